#!/usr/bin/env bats
# --prefix-cache, cache, --save-session and --session.
load helpers

setup() {
    common_setup
    for i in $(seq 1 20); do
        echo "Line $i of the manual says how to list files in directory $i."
    done >"$T/manual.txt"
    C=$T/cache
}

# Print the token ids, or another member, of an answer about the manual.
ask() {
    local what=$1
    shift
    q --exact -n 12 --json -f "$T/manual.txt" "$@" | jget "$what"
}

@test "the second question about a file skips the common beginning" {
    want=$(ask 'o["tokens"]' "how?")
    [ "$(ask 'o["usage"]["cached_tokens"]' --prefix-cache="$C" "where?")" = 0 ]
    n=$(ask 'o["usage"]["prompt_tokens"]' "how?")
    cached=$(ask 'o["usage"]["cached_tokens"]' --prefix-cache="$C" "how?")
    [ "$cached" -gt $((n - 80)) ]
    [ "$cached" -lt "$n" ]
    # the answer equals that of a run without the cache
    [ "$(ask 'o["tokens"]' --prefix-cache="$C" "how?")" = "$want" ]
    [ "$(ask 'o["tokens"]' --prefix-cache="$C" "how?")" = "$want" ]
    run -0 --separate-stderr q --prefix-cache="$C" -n 3 -f "$T/manual.txt" "how?"
    [ -z "$stderr" ]
}

@test "questions and batches share entries" {
    echo '{"prompt":"where?"}' >"$T/in"
    want=$(ask 'o["tokens"]' "how?")
    q batch --exact -n 12 -f "$T/manual.txt" -i "$T/in" --prefix-cache="$C" >"$T/out"
    cached=$(ask 'o["usage"]["cached_tokens"]' --prefix-cache="$C" "how?")
    [ "$cached" -gt 200 ]
    [ "$(ask 'o["tokens"]' --prefix-cache="$C" "how?")" = "$want" ]
    q cache clear --dir "$C"
    ask 'o["tokens"]' --prefix-cache="$C" "how?"
    q batch --exact -n 12 -f "$T/manual.txt" -i "$T/in" --prefix-cache="$C" >"$T/out"
    [ "$(jget 'o["usage"]["cached_tokens"]' <"$T/out")" -ge "$cached" ]
    equal "$(jget 'o["tokens"]' <"$T/out")" "$(ask 'o["tokens"]' "where?")"
}

@test "modes, KV types and kernel levels do not share entries" {
    sed -i 8q "$T/manual.txt" # the reference kernels are slow
    for o in "" "--kv f32" "--exact" "--kv q8" "--kv q4"; do
        # shellcheck disable=SC2086
        q --prefix-cache="$C" $o -n 1 -f "$T/manual.txt" hi >"$T/out"
        # shellcheck disable=SC2086
        [ "$(q --prefix-cache="$C" $o -n 1 --json -f "$T/manual.txt" hi |
            jget 'o["usage"]["cached_tokens"] > 0')" = True ]
    done
    [ "$(q cache ls --json --dir "$C" | jget 'len(o["entries"])')" = 5 ]
    # another level that every CPU has
    if [ "$(q inspect --json | jget 'o["isa"]')" != ref ]; then
        [ "$(q --prefix-cache="$C" --isa ref -n 1 --json -f "$T/manual.txt" hi |
            jget 'o["usage"]["cached_tokens"]')" = 0 ]
    fi
}

@test "the default directory" {
    q --prefix-cache -n 1 -f "$T/manual.txt" hi >"$T/out"
    [ -d "$T/.cache/qwick/prefix-1" ]
    [ "$(stat -c %a "$T/.cache/qwick/prefix-1")" = 700 ]
    [ -z "$(find "$T/.cache/qwick" -type f ! -perm 600)" ]
    XDG_CACHE_HOME=$T/xdg q --prefix-cache -n 1 -f "$T/manual.txt" hi >"$T/out"
    [ -d "$T/xdg/qwick/prefix-1" ]
    [ "$(q cache ls --json | jget 'o["dir"]')" = "$T/.cache/qwick" ]
    # without a directory: an answer, and a warning
    run -0 --separate-stderr env -u HOME "$QWICK" --prefix-cache -n 9 hi </dev/null
    [[ $stderr == *"warning: prefix cache: no directory"* ]]
    [ "${#stderr_lines[@]}" -eq 1 ]
    run -0 --separate-stderr env -u HOME "$QWICK" -q --prefix-cache -n 1 hi </dev/null
    [ -z "$stderr" ]
}

@test "five runs at once on a cold cache: all are right" {
    want=$(ask 'o["tokens"]' "how?")
    for i in 1 2 3 4 5; do
        ask 'o["tokens"]' -t 1 --prefix-cache="$C" "how?" \
            >"$T/out.$i" 2>"$T/err.$i" &
    done
    wait
    for i in 1 2 3 4 5; do
        [ "$(cat "$T/out.$i")" = "$want" ]
        [ ! -s "$T/err.$i" ]
    done
    [ "$(q cache ls --json --dir "$C" |
        jget '[e["damaged"] for e in o["entries"]]')" = "[False]" ]
    [ -z "$(find "$C" -name '*.tmp-*')" ]
    # also while another process keeps emptying it
    for i in 1 2 3 4 5; do
        ask 'o["tokens"]' -t 1 --prefix-cache="$C" "how?" >"$T/out.$i" \
            2>/dev/null &
    done
    while [ -n "$(jobs -r)" ]; do q cache clear --dir "$C"; done
    for i in 1 2 3 4 5; do
        [ "$(cat "$T/out.$i")" = "$want" ]
    done
}

@test "damaged entries are ignored with one warning, and rebuilt" {
    sed -i 8q "$T/manual.txt" # two pages are enough for this many runs
    want=$(ask 'o["tokens"]' "how?")
    ask 'o["tokens"]' --prefix-cache="$C" "how?"
    f=$(find "$C" -name '*.kv')
    cp "$f" "$T/good"
    n=$(stat -c %s "$f")
    for at in 0 8 20 100 250 5000 $((n / 2)) $((n - 1)); do
        python3 - "$T/good" "$f" "$at" <<'PY'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[int(sys.argv[3])] ^= 0x40
open(sys.argv[2], "wb").write(b)
PY
        run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$C" "how?"
        [ "$output" = "$want" ]
        [ "${#stderr_lines[@]}" -eq 1 ]
        [[ $stderr == "qwick: warning: prefix cache: $C/"*"; ignored" ]]
        run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$C" "how?"
        [ "$output" = "$want" ]
        [ -z "$stderr" ]
        q cache clear --dir "$C"
        mkdir -p "${f%/*}"
    done
    for size in 0 100 4096 $((n / 2)) $((n - 1)); do
        head -c "$size" "$T/good" >"$f"
        run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$C" "how?"
        [ "$output" = "$want" ]
        [ "${#stderr_lines[@]}" -eq 1 ]
        q cache clear --dir "$C"
        mkdir -p "${f%/*}"
    done
}

@test "a directory that cannot be written: an answer and a warning" {
    want=$(ask 'o["tokens"]' "how?")
    touch "$T/file"
    for dir in "$T/file" "$T/file/sub" /proc/none; do
        run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$dir" "how?"
        [ "$output" = "$want" ]
        [ "${#stderr_lines[@]}" -eq 1 ]
        [[ $stderr == "qwick: warning: prefix cache: $dir"* ]]
    done
}

@test "a read-only directory still serves" {
    local become=()
    if [ "$(id -u)" = 0 ]; then # root may write anywhere
        become=(setpriv --reuid 65534 --regid 65534 --clear-groups)
        command -v setpriv || skip "no setpriv"
    fi
    U=$(mktemp -d /tmp/qwick-user-XXXXXX)
    cp "$QWICK" "$T/manual.txt" "$U"
    chmod -R 777 "$U"
    how() {
        (cd "$U" && HOME=$U "${become[@]}" ./qwick --exact -n 12 --json \
            -f manual.txt --prefix-cache=c "how?" </dev/null)
    }
    [ "$(how | jget 'o["usage"]["cached_tokens"]')" = 0 ]
    chmod -R a-w "$U"
    how >"$T/second" 2>"$T/err"
    rm -rf "$U"
    cat "$T/err"
    [ ! -s "$T/err" ]
    [ "$(jget 'o["usage"]["cached_tokens"]' <"$T/second")" -gt 200 ]
    equal "$(jget 'o["tokens"]' <"$T/second")" "$(ask 'o["tokens"]' "how?")"
}

@test "a write that fails leaves nothing behind" {
    run -0 --separate-stderr bash -c "ulimit -f 8; exec '$QWICK' -n 1 \
        --prefix-cache='$C' -f '$T/manual.txt' hi </dev/null"
    [[ $stderr == "qwick: warning: prefix cache: "*"File too large" ]]
    [ -z "$(find "$C" -type f)" ]
    run -1 --separate-stderr bash -c "ulimit -f 8; exec '$QWICK' -n 1 \
        --save-session '$T/s' -f '$T/manual.txt' hi </dev/null"
    one_error_line
    [ -z "$(find "$T" -maxdepth 1 -name 's.*')" ]
    [ ! -e "$T/s" ]
}

@test "cache ls, gc and clear" {
    [ "$(q cache ls --dir "$C" --json | jget 'o["entries"]')" = "[]" ]
    q cache gc --dir "$C"
    q cache clear --dir "$C"
    q --prefix-cache="$C" -n 1 -f "$T/manual.txt" hi >"$T/out"
    q --prefix-cache="$C" -n 1 -s "Be brief." -f "$T/manual.txt" hi >"$T/out"
    [ "$(q cache ls --json --dir "$C" | jget 'len(o["entries"]),
        set(e["model"] for e in o["entries"]), o["bytes"] ==
        sum(e["bytes"] for e in o["entries"]),
        [e["tokens"] % 64 for e in o["entries"]],
        o["entries"][0]["last_use"] >= o["entries"][1]["last_use"]')" = \
        "(2, {'qwick-demo'}, True, [0, 0], True)" ]
    run -0 --separate-stderr q cache ls --dir "$C"
    [ "${#lines[@]}" -eq 4 ]
    [[ ${lines[1]} == *'"qwick-demo" f16 '* ]]
    newest=$(q cache ls --json --dir "$C" | jget 'o["entries"][0]["path"]')
    size=$(stat -c %s "$newest")
    q cache gc --dir "$C" --size "$size"
    [ "$(q cache ls --json --dir "$C" | jget '[e["path"] for e in o["entries"]]')" \
        = "['$newest']" ]
    q cache clear --dir "$C"
    [ -z "$(find "$C" -type f)" ]
    # a budget too small for an entry keeps none
    run -0 --separate-stderr q --prefix-cache="$C" --prefix-cache-size 4K \
        -n 1 -f "$T/manual.txt" hi
    [[ $stderr == "qwick: warning: prefix cache: "*" tokens take "*" MB, the limit is 0.0041 MB: not stored" ]]
    [ -z "$(find "$C" -type f)" ]
    # snapshots of recurrent layers make entries large
    M=$MODELS/qwen35-tied
    ids=$(python3 -c 'print(",".join(str(i * 7 % 300) for i in range(150)))')
    fresh() { q -m $M --exact --prompt-ids $ids -n 1 --json --prefix-cache="$C" "$@"; }
    run -0 --separate-stderr fresh --prefix-cache-size 40K
    [[ $stderr =~ "prefix cache: 128 tokens take "([0-9.]+)" MB, the limit is 0.041 MB: not stored" ]]
    size=$(python3 -c "print(round(${BASH_REMATCH[1]} * 1e6 * 1.1))")
    run -0 --separate-stderr fresh --prefix-cache-size $size
    [[ $stderr != *"prefix cache"* ]]
    fresh | jget '[0][o["usage"]["cached_tokens"] != 128]'
}

@test "invalid options of the cache" {
    fails 2 "ls, gc or clear is missing" cache
    fails 2 '"rm": is none of ls, gc, clear' cache rm
    fails 2 '"x": unexpected' cache ls x
    fails 2 "--size: has no effect without gc" cache ls --size 1G
    fails 2 "--json: has no effect without ls" cache clear --json
    fails 2 "--prefix-cache-size: has no effect without --prefix-cache" \
        --prefix-cache-size 1G hi
    for size in "" x 4X 1.5 -1 0x10 4GBB G " 4" 99999999999T; do
        fails 2 "expected a number of bytes" cache gc --size "$size"
    done
    fails 2 "expected a number of bytes" --prefix-cache --prefix-cache-size 0 hi
    fails 2 "the value is empty" --prefix-cache= hi
    run -2 --separate-stderr env -u HOME "$QWICK" cache ls
    [[ $stderr == *"neither XDG_CACHE_HOME nor HOME is set" ]]
}

@test "a session continues where it was saved" {
    # write both turns by hand: the think block of an answer stays in the
    # session, although the template drops it
    q --exact --json "list all listening tcp ports" >"$T/first"
    turn() {
        echo "[{\"role\":\"user\",\"content\":\"$1\"}]" | "$QWICK" render
    }
    ids="$(turn "list all listening tcp ports" | "$QWICK" tokenize)
        $(jget '" ".join(map(str, o["tokens"]))' <"$T/first")
        $( (echo && turn "list files") | "$QWICK" tokenize)"
    ids=$(echo $ids | tr ' ' ,)
    q --exact --json --prompt-ids "$ids" >"$T/whole"
    q --exact --save-session "$T/s" "list all listening tcp ports" >"$T/out"
    [ "$(cat "$T/out")" = "ss -ltn" ]
    [ "$(stat -c %a "$T/s")" = 600 ]
    q --exact --json --session "$T/s" --save-session "$T/s2" "list files" >"$T/o"
    n=$(jget 'o["usage"]["prompt_tokens"]' <"$T/o")
    k=$(jget 'o["usage"]["cached_tokens"]' <"$T/o")
    [ "$k" = "$(jget 'o["usage"]["prompt_tokens"] + len(o["tokens"])' <"$T/first")" ]
    [ "$n" -gt "$k" ]
    [ "$n" = "$(jget 'o["usage"]["prompt_tokens"]' <"$T/whole")" ]
    equal "$(jget 'o["tokens"]' <"$T/o")" "$(jget 'o["tokens"]' <"$T/whole")"
    # continue from the second file; the first one is unchanged
    [ "$(q --exact --json --session "$T/s2" hi |
        jget 'o["usage"]["cached_tokens"]')" = \
        "$((n + $(jget 'len(o["tokens"])' <"$T/o")))" ]
}

@test "a raw session in parts equals one run" {
    q --exact -n 20 --ignore-eos --raw --json "list files" >"$T/whole"
    all=$(jget 'o["tokens"]' <"$T/whole")
    q --exact -n 5 --ignore-eos --raw --save-session "$T/s" "list files" >"$T/out"
    # pass the next five ids by hand, take the rest from the file
    next=$(jget '",".join(map(str, o["tokens"][5:10]))' <"$T/whole")
    rest=$(q --exact -n 10 --ignore-eos --session "$T/s" --prompt-ids "$next" \
        --json | jget 'o["tokens"]')
    [ "$rest" = "$(jget 'o["tokens"][10:]' <"$T/whole")" ]
    [ -n "$all" ]
}

@test "sessions that cannot be used" {
    q --save-session "$T/s" hi >"$T/out"
    fails 1 "$T/none: cannot open: No such file" --session "$T/none" hi
    fails 1 "$T: is not a regular file" --session "$T" hi
    fails 1 "is not a saved session" --session "$T/manual.txt" hi
    fails 2 "was saved with a KV cache in f16, this one is in f32" \
        --session "$T/s" --exact hi
    fails 2 "was saved with a KV cache in f16, this one is in q8" \
        --session "$T/s" --kv q8 hi
    q --kv q8 --save-session "$T/s8" hi >"$T/out"
    fails 2 "was saved with a KV cache in q8, this one is in q4" \
        --session "$T/s8" --kv q4 hi
    q --kv q4 --save-session "$T/s4" hi >"$T/out"
    fails 2 "was saved with a KV cache in q4, this one is in q8" \
        --session "$T/s4" --kv q8 hi
    run -0 q --kv q4 --session "$T/s4" -n 1 again
    fails 4 "tokens do not fit the context of 8" --session "$T/s" -c 8 hi
    q --kv f32 --save-session "$T/s32" hi >"$T/out"
    fails 2 "was saved in default mode" --session "$T/s32" --exact hi
    fails 2 "was saved with another model: qwick-demo" --session "$T/s" \
        -m "$MODELS/tied-bf16" --prompt-ids 1
    for o in "-s x" "--chat-json f" "--overflow head"; do
        # shellcheck disable=SC2086
        run -2 q --session "$T/s" $o
    done
    head -c 3000 "$T/s" >"$T/cut"
    fails 1 "$T/cut: is damaged" --session "$T/cut" hi
    run -1 --separate-stderr q --save-session "$T/no/s" "list files"
    [ -z "$output" ] # refused before the work
    [[ $stderr == *"$T/no/s: --save-session cannot write to $T/no: No such file or directory" ]]
    run -1 --separate-stderr q --save-session /dev/null "list files"
    [ -c /dev/null ]
}

# flip FILE: flip one bit in its middle, in place, and restore the modification
# time.
flip() {
    touch -r "$1" "$T/time"
    sleep 0.05
    python3 - "$1" <<'PY'
import os, sys
n = os.path.getsize(sys.argv[1]) // 2
with open(sys.argv[1], "r+b") as f:
    f.seek(n)
    c = f.read(1)[0]
    f.seek(n)
    f.write(bytes([c ^ 1]))
PY
    touch -r "$T/time" "$1"
}

@test "weights edited in place with their old time: no stale answers" {
    copy_of models/demo m
    q -m "$T/m" --prefix-cache="$C" --save-session "$T/s" -n 2 -f "$T/manual.txt" hi
    again() {
        q -m "$T/m" --prefix-cache="$C" -n 1 --json -f "$T/manual.txt" hi |
            jget 'o["usage"]["cached_tokens"] > 200'
    }
    [ "$(again)" = True ]
    run -0 q -m "$T/m" --session "$T/s" -n 1 hi
    flip "$T/m/model.safetensors"
    [ "$(again)" = False ]
    fails 2 "$T/s: was saved with other weights of $T/m: they have been changed" \
        -m "$T/m" --session "$T/s" hi
    # the original bytes again, and at another place
    flip "$T/m/model.safetensors"
    run -0 q -m "$T/m" --session "$T/s" -n 1 hi
    mv "$T/m" "$T/moved"
    run -0 q -m "$T/moved" --session "$T/s" -n 1 hi
    cp -r "$T/moved" "$T/m"
    run -0 q -m "$T/m" --session "$T/s" -n 1 hi
    # also for the weights in the binary
    run -0 q --session "$T/s" -n 1 hi
}

@test "files of other users, and files that others may write to, are not used" {
    ask 'o["tokens"]' --prefix-cache="$C" --save-session "$T/s" "how?"
    want=$(ask 'o["tokens"]' "how?")
    not_used() {
        run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$C" "how?"
        [ "$output" = "$want" ]
        [ "${#stderr_lines[@]}" -eq 1 ]
        [[ $stderr == "qwick: warning: prefix cache: "*"$1"* ]]
    }
    chmod 777 "$C"
    not_used "$C: everybody may write to it (mode 777); not used"
    chmod 1777 "$C"
    run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$C" "how?"
    [ -z "$stderr" ]
    chmod 775 "$C"
    chmod 775 "$C/prefix-1"
    not_used "$C/prefix-1: its group may write to it (mode 775); not used"
    chmod 700 "$C/prefix-1"
    chmod 666 "$T/s"
    fails 1 "$T/s: everybody may write to it (mode 666)" --exact --session "$T/s" hi
    chmod 600 "$T/s"
    ln -s "$T/s" "$T/link"
    fails 1 "$T/link: is a symbolic link" --exact --save-session "$T/link" hi
    [ -L "$T/link" ]
    [ "$(id -u)" = 0 ] || return 0 # only root can change owners
    chown -R 12345 "$C"
    not_used "$C: belongs to user 12345, this is user 0; not used"
    chown 0 "$C"
    not_used "$C/prefix-1: belongs to user 12345, this is user 0; not used"
    chown -R 0 "$C"
    run -0 --separate-stderr ask 'o["tokens"]' --prefix-cache="$C" "how?"
    [ -z "$stderr" ]
    chown 12345 "$T/s"
    fails 1 "$T/s: belongs to user 12345, this is user 0" --exact --session "$T/s" hi
    # but that user can use files of root
    chown 0 "$T/s"
    chmod 644 "$T/s"
    as_user() { setpriv --reuid 12345 --clear-groups "$@"; }
    as_user test -r "$T/s" -a -x "$QWICK" || return 0 # $T is root's alone
    as_user "$QWICK" --exact --session "$T/s" -n 1 hi </dev/null
}

@test "the message for a read-only file system" {
    [ "$(id -u)" = 0 ] || skip "it takes root to mount"
    mkdir "$T/ro"
    unshare -m true 2>/dev/null || skip "no mount namespaces here"
    run -0 --separate-stderr unshare -m bash -c 'mount -t tmpfs -o ro none "$1" &&
        exec "$0" --prefix-cache="$1/a/b" -n 1 -f "$2" hi </dev/null' \
        "$QWICK" "$T/ro" "$T/manual.txt"
    [[ $stderr == *"prefix cache: $T/ro/a/b/"*": cannot create: Read-only file system" ]]
    run -1 --separate-stderr unshare -m bash -c 'mount -t tmpfs -o ro none "$1" &&
        exec "$0" --save-session "$1/s" -n 1 hi </dev/null' "$QWICK" "$T/ro"
    [[ $stderr == *"$T/ro/s: "*": Read-only file system" ]]
}
