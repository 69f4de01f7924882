#!/usr/bin/env bats
# Files that a verb replaces keep their rights; what is a link, a device or
# somebody else's file is left alone.
load helpers

setup() {
    common_setup
    cd "$T" || return 1
    echo ls >text
}

# Each verb that writes a file by name, with NAME at the end of its arguments.
each_writer() {
    local writer
    while read -r -a writer; do
        "$1" "${writer[@]}"
    done <<'END'
embed -q -f text -o
embed -q -f text --format npy -o
logits ls -o
score ls --html
bench --prompt-lens 8 --depths 8 --gen 1 --reps 1 --warmup 0 --html
END
}

keeps_mode() {
    local mode
    for mode in 600 640 666; do
        rm -f out
        : >out
        chmod $mode out
        q "$@" out >stdout
        [ -s out ] || { echo "$*: empty"; return 1; }
        equal "$(stat -c %a out)" $mode || { echo "$*"; return 1; }
    done
    rm out
    (umask 077 && q "$@" out >stdout)
    equal "$(stat -c %a out)" 600
}

@test "a file that is replaced keeps its mode" {
    each_writer keeps_mode
    [ -z "$(find . -name '*tmp*')" ]
}

follows_link() {
    mkdir -p d
    echo stale >d/target
    chmod 604 d/target
    ln -sf d/target link
    q "$@" link >stdout
    [ -L link ] && ! grep -q stale d/target || { echo "$*"; return 1; }
    equal "$(stat -c %a d/target)" 604
}

@test "a link stays, and the file that it leads to is replaced" {
    each_writer follows_link
    equal "$(ls d)" target
}

writes_in_place() {
    q "$@" /dev/null >stdout
    q "$@" /dev/stdout | cat >piped
    [ -s piped ] && [ -c /dev/null ] || { echo "$*"; return 1; }
}

@test "devices and pipes are written in place" {
    each_writer writes_in_place
}

@test "quantize: what replaces a checkpoint has its rights" {
    q quantize -o dir
    equal "$(stat -c %a dir dir/model.safetensors)" "755"$'\n'"644"
    chmod 700 dir
    chmod 600 dir/model.safetensors
    q quantize --bits 8 --force -o dir
    equal "$(stat -c %a dir dir/model.safetensors dir/config.json)" \
        "700"$'\n'"600"$'\n'"644"
    q quantize -o file.gguf
    chmod 600 file.gguf
    q quantize --type Q8_0 --force -o file.gguf
    equal "$(stat -c %a file.gguf)" 600
}

@test "quantize: a name that ends in .gguf is a GGUF file" {
    q quantize -o q.gguf
    equal "$(head -c 4 q.gguf)" GGUF
    q quantize --type Q8_0 -o r.gguf
    fails 2 "--bits: has no effect with --format gguf" quantize -o s.gguf --bits 4
    fails 2 "-o s.gguf: a name that ends in .gguf is of --format gguf, but --format is mlx" \
        quantize -o s.gguf --format mlx
    [ ! -e s.gguf ]
    q quantize --format gguf --type Q8_0 -o plain
    equal "$(head -c 4 plain)" GGUF
}

@test "--save-session replaces a session or an empty file, and nothing else" {
    local kept
    : >s
    chmod 644 s
    q --save-session s ls >out
    equal "$(stat -c %a s)" 600 # a session is for its owner alone
    q --save-session s pwd >out
    q --session s ls >out
    cp ./s head && truncate -s 20 head
    seq 100 >long
    q --cache-dir cache -n 1 --raw -f long >out
    cp "$(find cache -name '*.kv')" entry
    for kept in text head entry "$QWICK"; do
        cp "$kept" before
        fails 2 "$kept: is not replaced: it is neither a session nor empty" --save-session "$kept" ls
        cmp "$kept" before
    done
    # one that changes while the answer is made
    mkfifo wait
    q --save-session t -f wait >out 2>err &
    exec 9>wait
    sleep 0.2
    echo precious >t
    echo ls >&9
    exec 9>&-
    run ! wait $!
    equal "$(cat t)" precious
}

@test "-o - is standard output, in every verb that writes there" {
    equal "$(q embed -o - ls)" "$(q embed ls)"
    q logits ls -o - >piped
    q logits ls -o named
    cmp piped named
    echo '{"prompt":"ls"}' >records
    equal "$(q batch --greedy -n 20 -i records -o - | jget 'o["text"]')" \
        "$(q batch --greedy -n 20 -i records | jget 'o["text"]')"
    fails 2 "-o -: the result is a directory or a file with a name" quantize -o -
    [ ! -e ./- ]
}
