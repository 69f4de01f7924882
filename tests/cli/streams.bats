#!/usr/bin/env bats
# The answer goes to stdout, everything else to stderr.
load helpers

setup() {
    common_setup
    # a prompt that ends inside an open think block, so that the answer has
    # thinking
    THINK=6136,885,198,492,865,6137,198,6136,570,334,1120,198,6142,492
}

@test "the answer alone is on stdout, stderr is silent" {
    run -0 --separate-stderr q "list all listening tcp ports"
    [ "$output" = "ss -ltn" ]
    [ -z "$stderr" ]
    # a text gets a final newline in every kind of stdout; --no-newline adds
    # none
    q "list all listening tcp ports" | cmp - <(printf 'ss -ltn\n')
    q --no-newline "list all listening tcp ports" | cmp - <(printf 'ss -ltn')
}

@test "streamed text is the JSON's text, byte for byte" {
    for p in "list files" "count lines in myfile" "äöü 😀"; do
        q --no-newline -n 40 "$p" >"$T/text"
        q -n 40 --json "$p" | python3 -c 'import json, sys
sys.stdout.buffer.write(json.load(sys.stdin)["text"].encode())' >"$T/json"
        q -n 40 --jsonl "$p" | python3 -c 'import json, sys
sys.stdout.buffer.write("".join(json.loads(l)["text"] for l in sys.stdin
    if json.loads(l)["event"] == "token").encode())' >"$T/jsonl"
        cmp "$T/text" "$T/json"
        cmp "$T/text" "$T/jsonl"
    done
    # random text splits characters over tokens, so parts are held back
    for s in 1 2 3; do
        o=(-n 120 --ignore-eos --raw --temp 3 --seed $s --stop zq "übergroß 😀")
        q --no-newline "${o[@]}" >"$T/text"
        q --json "${o[@]}" | python3 -c 'import json, sys
sys.stdout.buffer.write(json.load(sys.stdin)["text"].encode())' >"$T/json"
        q --jsonl "${o[@]}" | python3 -c 'import json, sys
sys.stdout.buffer.write("".join(json.loads(l)["text"] for l in sys.stdin
    if json.loads(l)["event"] == "token").encode())' >"$T/jsonl"
        cmp "$T/text" "$T/json"
        cmp "$T/text" "$T/jsonl"
        iconv -f UTF-8 -t UTF-8 "$T/text" >/dev/null
    done
}

@test "a closed stderr changes nothing" {
    [ "$("$QWICK" "list all listening tcp ports" 2>&- </dev/null)" = "ss -ltn" ]
    [ "$("$QWICK" -v "list all listening tcp ports" 2>&- <&-)" = "ss -ltn" ]
    [ "$("$QWICK" -v "list all listening tcp ports" 2>/dev/full </dev/null)" = "ss -ltn" ]
    run -2 "$QWICK" --nope 2>&- </dev/null
}

@test "a full or closed stdout is an error, exit 1" {
    [ -e /dev/full ] || skip "no /dev/full"
    for args in "hi" "--json hi" "--jsonl hi" "--help" "--version" \
        "tokenize hi" "tokenize --help" "count hi" "detokenize 5 6" \
        "logits hi" "inspect" "inspect --json"; do
        # shellcheck disable=SC2086
        run -1 --separate-stderr bash -c "'$QWICK' $args </dev/null >/dev/full"
        [[ $stderr == *"stdout: write error: No space left on device" ]]
        one_error_line
        run -1 --separate-stderr bash -c "'$QWICK' $args </dev/null >&-"
        [[ $stderr == *"stdout: write error"* ]]
        one_error_line
    done
    echo '{"text":"a"}' >"$T/l"
    run -1 bash -c "'$QWICK' tokenize --jsonl <'$T/l' >/dev/full"
}

@test "files opened while 0, 1, 2 are closed do not get these numbers" {
    "$QWICK" "list all listening tcp ports" --think-file "$T/think" \
        >"$T/out" 2>&- <&-
    [ "$(cat "$T/out")" = "ss -ltn" ]
    [ ! -s "$T/think" ]
    run -1 bash -c "'$QWICK' --prompt-ids $THINK -n 5 --think-file '$T/think' >&- 2>&- <&-"
}

@test "a reader that goes away ends it quietly" {
    run --separate-stderr bash -c \
        "'$QWICK' -n 2000 --ignore-eos hi </dev/null | head -c1 >/dev/null
         exit \${PIPESTATUS[0]}"
    [ "$status" -eq 141 ]
    [ -z "$stderr" ]
    # also if the parent ignored SIGPIPE
    run --separate-stderr bash -c "trap '' PIPE
         '$QWICK' -n 2000 --ignore-eos hi </dev/null | head -c1 >/dev/null
         exit \${PIPESTATUS[0]}"
    [ "$status" -ne 0 ]
    [ -z "$stderr" ]
}

@test "a file size limit is a write error" {
    # stderr goes through a pipe, because the limit would also apply to a file
    run bash -c "ulimit -f 0
        '$QWICK' 'list all listening tcp ports' 2>&1 </dev/null >'$T/out' | cat
        exit \${PIPESTATUS[0]}"
    [ "$status" -eq 1 ]
    [[ $output == "qwick: stdout: write error: File too large" ]]
}

@test "on a terminal: a final newline, nothing else" {
    command -v script >/dev/null || skip "no script(1)"
    script -qec "$QWICK -m models/demo --no-stdin 'list all listening tcp ports'" \
        /dev/null >"$T/out" </dev/null
    cmp "$T/out" <(printf 'ss -ltn\r\n')
}

@test "thinking goes to a file, to stdout if requested, dim to a terminal, else nowhere" {
    q --prompt-ids $THINK -n 12 --ignore-eos --json >"$T/json"
    python3 - "$T/json" "$T/want" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
assert o["thinking"] and o["text"] == "", o
open(sys.argv[2], "wb").write(o["thinking"].encode())
PY
    run -0 --separate-stderr q --prompt-ids $THINK -n 12 --ignore-eos
    [ -z "$output" ]
    [[ $stderr == *"the answer is empty: -n 12 is reached while the model thought (see --think)" ]]
    one_error_line
    run -0 --separate-stderr q -q --prompt-ids $THINK -n 12 --ignore-eos \
        --think-file "$T/think"
    [ -z "$output$stderr" ]
    cmp "$T/think" "$T/want"
    q --prompt-ids $THINK -n 12 --ignore-eos --show-thinking --no-newline |
        cmp - "$T/want"
    q --prompt-ids $THINK -n 12 --ignore-eos --jsonl | python3 -c 'import json, sys
ev = [json.loads(l) for l in sys.stdin]
assert "".join(e.get("thinking", "") for e in ev[:-1]) == ev[-1]["thinking"]
assert "".join(e["text"] for e in ev[:-1]) == ""'
    fails 1 "$T/no/file" --think-file "$T/no/file" hi
    run -1 q --prompt-ids $THINK -n 12 --ignore-eos --think-file /dev/full
    command -v script >/dev/null || skip "no script(1)"
    c="$QWICK -m models/demo --no-stdin --prompt-ids $THINK -n 12 --ignore-eos"
    export TERM=xterm
    script -qec "$c" /dev/null >"$T/tty" </dev/null
    grep -q $'\033\[2m' "$T/tty"
    for off in NO_COLOR=1 TERM=dumb TERM=; do
        env $off script -qec "$c" /dev/null >"$T/tty" </dev/null
        run ! grep -q $'\033' "$T/tty"
    done
    [ -s "$T/tty" ]
    script -qec "$c --color never" /dev/null >"$T/tty" </dev/null
    run ! grep -q $'\033' "$T/tty"
    NO_COLOR=1 script -qec "$c --color always" /dev/null >"$T/tty" </dev/null
    grep -q $'\033\[2m' "$T/tty"
}

@test "control bytes in messages are escaped" {
    run --separate-stderr q -m $'no\033[31m\nsuch' hi
    [ "$status" -eq 3 ]
    one_error_line
    [[ $stderr == *'\x1b[31m\x0asuch'* ]]
}

@test "-q and -v" {
    run -0 --separate-stderr q -v "list all listening tcp ports"
    [ "$output" = "ss -ltn" ]
    [[ $stderr == *"prompt tokens"* ]]
    python3 -c 'print("list the files " * 2000)' >"$T/long"
    run -0 --separate-stderr q -q -n 1 -f "$T/long" --overflow tail
    [ -z "$stderr" ]
}

@test "--stop across token borders cuts text, not tokens" {
    whole=$(q "list all listening tcp ports")
    [ "$whole" = "ss -ltn" ]
    [ "$(q --stop " -l" "list all listening tcp ports")" = "ss" ]
    [ "$(q --stop "s -lt" "list all listening tcp ports")" = "s" ]
    [ "$(q --stop "zzz" --stop "ltn" "list all listening tcp ports")" = "ss -" ]
    [ "$(q --stop "n?" "list all listening tcp ports")" = "ss -ltn" ]
    q --json --stop "s -lt" "list all listening tcp ports" | jget \
        '[0][(o["text"], o["finish_reason"]) != ("s", "stop_string") or
            o["usage"]["completion_tokens"] != len(o["tokens"])]'
    fails 2 "--stop" --stop "" hi
}

@test "-n 1, and why it stopped" {
    q --json -n 1 hi | jget '[0][len(o["tokens"]) != 1 or
        o["finish_reason"] != "length"]'
    q --json "list all listening tcp ports" | jget \
        '[0][o["finish_reason"] != "stop" or o["tokens"][-1] != 6137]'
    q --json -c 40 --ignore-eos hi | jget \
        '[0][o["finish_reason"] != "context" or 6137 in o["tokens"]]'
    [ "$(q --json --quiet --raw --loop-guard 8 --ignore-eos -n 2000 \
        "a a a a a a a a a a" | jget 'o["finish_reason"]')" = loop ]
}
