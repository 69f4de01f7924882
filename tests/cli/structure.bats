#!/usr/bin/env bats
# scripts/check-layers.sh: which files may include which, and how many a room has.
load helpers

setup() {
    common_setup
    S=$T/src
    mkdir -p "$S"/{base,kernel,model} "$S"/text/bpe "$S"/cli/{io,opt,sandbox,generate,batch}
    echo 'int base;' >"$S/base/buf.h"
}

# includes FILE HEADER…: make a file below src/ with these lines.
includes() {
    printf '#include "%s"\n' "${@:2}" >"$S/$1"
}

# room DIR N: make N files in a folder below src/.
room() {
    local i
    for i in $(seq "$2"); do
        echo "int ${1##*/}_$i;" >"$S/$1/${1##*/}_$i.c"
    done
}

well() {
    run scripts/check-layers.sh "$T"
    [ "$status" -eq 0 ] && [ -z "$output" ] || { echo "$output"; return 1; }
}

# ill PATTERN: one line, with the pattern.
ill() {
    run scripts/check-layers.sh "$T"
    [ "$status" -eq 1 ] && [ "${#lines[@]}" -eq 1 ] && [[ $output == *"$1"* ]] ||
        { echo "status $status: $output"; return 1; }
}

@test "the source is in order" {
    run -0 scripts/check-layers.sh
    [ -z "$output" ]
}

@test "a room has at most 40 files" {
    local dir
    for dir in cli/batch text/bpe; do
        room $dir 40
        well
        echo "int more;" >"$S/$dir/more.h"
        ill "src/$dir has more than 40 files"
        rm "$S/$dir/more.h"
    done
    # rooms are counted apart, and other layers are not
    room cli/generate 30
    room kernel 50
    well
}

@test "rooms of verbs do not include each other" {
    includes cli/generate/one.c cli/generate/two.h cli/io/out.h cli/sandbox/sandbox.h base/buf.h
    includes cli/main.c cli/generate/two.h cli/batch/batch.h
    well
    includes cli/batch/three.c cli/generate/two.h
    ill "cli/batch may not include a room of verbs"
}

@test "rooms below the verbs include those before them" {
    includes cli/opt/opt.c cli/io/out.h
    well
    includes cli/io/out.c cli/opt/opt.h
    ill "cli/io may not include cli/opt"
    includes cli/io/out.c cli/batch/batch.h
    ill "cli/io may not include a room of verbs"
}

@test "layers include those below them" {
    includes model/pass.c base/buf.h
    well
    includes base/buf.c model/pass.h
    ill "base may not include model/pass.h"
}
