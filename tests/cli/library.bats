#!/usr/bin/env bats
# The installed library: build the examples with pkg-config, as other programs
# do, and run them.
load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.."
    QWICK=$(realpath "${QWICK:-./qwick}")
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
    local build=$(realpath --relative-to=. "$(dirname "$QWICK")")
    [ "$build" != . ] || build=build
    export DEST=$BATS_FILE_TMPDIR/dest PREFIX=/opt/qwick
    make --no-print-directory -s "BUILD=$build" "SAN=${SAN:-}" CI=1 \
        "DESTDIR=$DEST" "PREFIX=$PREFIX" install
    export LIB=$DEST$PREFIX/lib
    export PKG_CONFIG_PATH=$LIB/pkgconfig PKG_CONFIG_SYSROOT_DIR=$DEST
    FLAGS="-Wall -Wextra -Wshadow -Werror -O1"
    [ -z "${SAN:-}" ] || FLAGS="$FLAGS -fsanitize=address,undefined"
    export FLAGS
}

setup() {
    common_setup
    command -v pkg-config >/dev/null || skip "no pkg-config"
}

# build NAME COMPILER SOURCE: make $T/NAME-so and $T/NAME-a.
build() {
    local static
    static=$(pkg-config --static --libs qwick)
    # shellcheck disable=SC2046,SC2086
    $2 $FLAGS -o "$T/$1-so" "$3" $(pkg-config --cflags --libs qwick)
    # shellcheck disable=SC2046,SC2086
    $2 $FLAGS -o "$T/$1-a" "$3" $(pkg-config --cflags qwick) \
        ${static/-lqwick/-l:libqwick.a}
    ldd "$T/$1-so" | grep 'libqwick\.so\.1' >/dev/null
    run -1 grep libqwick <(ldd "$T/$1-a")
}

# same NAME ARGUMENTS…: check that both programs print the same, and set
# $output.
same() {
    local name=$1
    shift
    run -127 "$T/$name-so" "$@" </dev/null # the loader does not find the library yet
    "$T/$name-a" "$@" >"$T/static" 2>&1
    LD_LIBRARY_PATH=$LIB "$T/$name-so" "$@" >"$T/shared" 2>&1
    cmp "$T/static" "$T/shared"
    output=$(cat "$T/static")
}

@test "examples/digits.c: a number, with either library" {
    build digits "${CC:-cc} -std=c11 -Wconversion" examples/digits.c
    same digits
    echo "$output"
    [[ $output =~ ^[0-9]+$ ]]
    same digits "list files"
    [[ $output =~ ^[0-9]+$ ]]
    run -1 "$T/digits-a" "list files" /nonexistent
    [[ $output == "digits: /nonexistent: "* ]]
}

@test "examples/batch.cpp: the answers of qwick, with either library" {
    local cxx=${CXX:-c++}
    command -v "${cxx%% *}" >/dev/null || skip "no C++ compiler"
    build batch "$cxx -std=c++17" examples/batch.cpp
    local -a prompts=("list files" "count lines in a file" "what is grep?")
    same batch "${prompts[@]}"
    echo "$output"
    for prompt in "${prompts[@]}"; do
        printf '%s\t%s\n' "$prompt" "$("$QWICK" --greedy --no-stdin "$prompt")"
    done >"$T/want"
    cmp <(sort "$T/want") <(sort "$T/static")
    # a quote in the prompt does not end it
    same batch 'say "hi"'
    [[ $output == 'say "hi"'$'\t'?* ]]
}

@test "qwick.pc names version and directories" {
    [ "$(pkg-config --modversion qwick)" = \
        "$(sed -n 's/^#define QWICK_VERSION "\(.*\)"$/\1/p' include/qwick.h)" ]
    [ "$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --cflags --libs qwick | xargs)" = \
        "-I$PREFIX/include -L$PREFIX/lib -lqwick" ]
    # a moved tree
    [ "$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --define-variable=prefix=/x \
        --libs-only-L qwick | xargs)" = "-L/x/lib" ]
}

@test "each header compiles alone, as C and as C++, with warnings" {
    local header std
    for header in qwick.h qwick_tools.h; do
        echo "#include <$header>" >"$T/a.c"
        for std in c99 c11 gnu2x; do
            "${CC:-cc}" -x c -std=$std -Wall -Wextra -Wpedantic -Wshadow \
                -Wconversion -Wstrict-prototypes -Werror -Iinclude -fsyntax-only \
                "$T/a.c"
        done
        command -v "${CXX:-c++}" >/dev/null || skip "no C++ compiler"
        for std in c++11 c++20; do
            "${CXX:-c++}" -x c++ -std=$std -Wall -Wextra -Wpedantic -Wshadow \
                -Wconversion -Werror -Iinclude -fsyntax-only "$T/a.c"
        done
    done
}
