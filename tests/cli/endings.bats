#!/usr/bin/env bats
# How an answer ends: newline, warnings, --require-answer, --timeout, choose.
load helpers

setup() {
    common_setup
    # a prompt that ends inside an open think block
    THINK=6136,885,198,492,865,6137,198,6136,570,334,1120,198,6142,492
}

# warns PATTERN ARGS…: exit status 0 and one warning that matches; no warning
# with -q.
warns() {
    local pattern=$1
    shift
    run -0 --separate-stderr q "$@"
    one_error_line || { echo "stderr: $stderr"; return 1; }
    [[ $stderr == "qwick: warning: "*"$pattern"* ]] || { echo "$stderr"; return 1; }
    [ -z "$(q -q "$@" 2>&1 >"$T/quiet")" ]
}

@test "an answer ends with one newline, so that scripts can read lines" {
    q "list all listening tcp ports" >"$T/out"
    q "list files" >>"$T/out"
    [ "$(wc -l <"$T/out")" -eq 2 ]
    n=0
    while read -r line; do n=$((n + 1)); done <"$T/out"
    [ "$n" -eq 2 ]
    # an empty answer writes nothing
    [ "$(q -q --stop s "list all listening tcp ports" | wc -c)" -eq 0 ]
    # also on a terminal
    command -v script >/dev/null || skip "no script(1)"
    script -qec "$QWICK -m models/demo --no-stdin --no-newline 'list all listening tcp ports'" \
        /dev/null >"$T/tty" </dev/null
    cmp "$T/tty" <(printf 'ss -ltn')
    fails 2 "--no-newline: has no effect with --json" --no-newline --json hi
}

@test "a cut answer gives a warning" {
    warns "the answer is cut: the context of 24 tokens is full" -c 24 \
        --ignore-eos hi
    warns "the answer is cut: its last 12 tokens repeat themselves" --raw \
        --loop-guard 12 --ignore-eos --greedy "a a a a a a a a a a a a a a a a"
    warns "0.3 seconds are over" --timeout 0.3 \
        --ignore-eos hi
    # the user asked for -n: no warning
    run -0 --separate-stderr q -n 9 hi
    [ -z "$stderr" ]
    # also with JSON
    run -0 --separate-stderr q --json -c 24 --ignore-eos hi
    [[ $stderr == *"the context of 24 tokens is full" ]]
    printf '%s\n' "$output" | jlines 'o[0]["finish_reason"] == "context"'
}

# An answer that repeats itself without end.
loops() {
    q -m "$T/small" --exact --greedy --frequency-penalty -2 --presence-penalty -2 \
        --prefill "b b b b b b b b b" "$@" "list files"
}

@test "the loop guard is on unless an option or a raw prompt turns it off" {
    small_demo "$T/small"
    run -0 --separate-stderr loops --json
    [ "$stderr" = "qwick: warning: the answer is cut: its last 600 tokens repeat themselves; --loop-guard 0 lets it go on" ]
    jget '[0][o["finish_reason"] != "loop" or len(o["tokens"]) > 700]' <<<"$output"
    run -0 --separate-stderr loops --json --loop-guard 0 -n 800
    [ -z "$stderr" ]
    jget '[0][o["finish_reason"] != "length"]' <<<"$output"
    run -0 --separate-stderr loops --json --loop-guard 60
    [ "$stderr" = "qwick: warning: the answer is cut: its last 60 tokens repeat themselves" ]
    run -6 loops --require-answer
    # texts to be continued, and answers that shall not end
    local p=(-m "$T/small" --exact --greedy --frequency-penalty -2 --presence-penalty -2)
    local a="a a a a a a a a a a a a"
    for o in "--prefill a --ignore-eos" --raw; do
        run -0 q --json "${p[@]}" -n 800 $o "$a"
        jget '[0][o["finish_reason"] != "length"]' <<<"$output"
        run -0 q -q --json "${p[@]}" -n 800 $o --loop-guard 600 "$a"
        jget '[0][o["finish_reason"] != "loop"]' <<<"$output"
    done
    rm "$T/small/tokenizer_config.json" # without a chat template, it is not asked for
    for o in -p --prompt-ids=5,5,5,5,5,5; do
        [ $o = -p ] && o="-p$a"
        run -0 q -q --json "${p[@]}" -n 800 "$o"
        jget '[0][o["finish_reason"] != "loop"]' <<<"$output"
        run -0 q -q --json "${p[@]}" -n 800 --loop-guard 0 "$o"
        jget '[0][o["finish_reason"] != "length"]' <<<"$output"
    done
    # 1 and 2 make no sense
    fails 2 "--loop-guard: 2 tokens repeat no sequence three times, expected 0 or 3..1000000" \
        --loop-guard 2 hi
    fails 2 "--loop-guard: 1 tokens" batch --loop-guard 1
}

@test "the loop guard under a constraint: what it demands is no loop" {
    small_demo "$T/small"
    export QWICK_MODEL=$T/small
    # one token each, without an alternative
    run -0 --separate-stderr q --think off --json --regex '☃{300}' x
    [ -z "$stderr" ]
    jget '[0][o["finish_reason"] != "stop" or len(o["tokens"]) < 700]' <<<"$output"
    # other tokens spell the text as well
    run -6 --separate-stderr q --think off --regex 'a{3000}' x
    [[ $stderr == *"its last 600 tokens repeat themselves; --loop-guard 0 lets it go on" ]]
    run -0 --separate-stderr q --think off --regex 'a{3000}' --loop-guard 0 x
    [ "${#output}" -eq 3000 ]
}

@test "batch: the loop guard is on, and --loop-guard 0 turns it off" {
    small_demo "$T/small"
    export QWICK_MODEL=$T/small
    printf '%s\n' '{"prompt":"x","regex":"a{2600}"}' '{"prompt":"list files"}' \
        >"$T/in"
    run -1 --separate-stderr q batch --think off -i "$T/in"
    printf '%s\n' "${lines[@]}" | jlines '[x["finish_reason"] for x in o] ==
        ["loop", "stop"] and o[0]["incomplete"]'
    run -0 --separate-stderr q batch --think off -i "$T/in" --loop-guard 0
    printf '%s\n' "${lines[@]}" | jlines '[x["finish_reason"] for x in o] ==
        ["stop", "stop"]'
    echo '{"prompt":"a"}' >"$T/list"
    for o in --raw --ignore-eos; do
        run -0 q batch $o -n 700 --greedy --frequency-penalty -2 \
            -i "$T/list"
        [[ $output != *'"loop"'* ]]
    done
}

@test "an empty answer gives a warning with the reason" {
    warns "the answer is empty: a stop string came first" --stop s \
        "list all listening tcp ports"
    warns "the answer is empty: -n 5 is reached while the model thought (see --think)" \
        --prompt-ids $THINK -n 5 --ignore-eos
    # nothing is missing: the answer was given with --prefill
    warns "the answer is empty: the model stopped at once" --prefill "ss -ltn" \
        "list all listening tcp ports"
}

@test "--require-answer: exit status 6, unchanged text" {
    run -6 --separate-stderr q --require-answer -n 8 "list all listening tcp ports"
    [ "$output" = "$(q -n 8 "list all listening tcp ports")" ]
    [[ $stderr == "qwick: the answer is cut: -n 8 is reached" ]]
    run -6 --separate-stderr q -q --require-answer --json -c 24 --ignore-eos hi
    [[ $stderr == "qwick: the answer is cut: the context of 24 tokens is full" ]]
    printf '%s\n' "$output" | jlines 'o[0]["finish_reason"] == "context"'
    run -6 q --require-answer --stop s "list all listening tcp ports"
    run -6 q --require-answer --timeout 0.01 --ignore-eos hi
    run -0 --separate-stderr q --require-answer "list all listening tcp ports"
    [ "$output" = "ss -ltn" ]
    [ -z "$stderr" ]
    # a stop string ends an answer as requested
    run -0 q --require-answer --stop " -l" "list all listening tcp ports"
    # the session is saved anyway
    run -6 q --require-answer -n 2 --save-session "$T/s" hi
    [ -s "$T/s" ]
}

@test "--timeout: whole tokens, a finish reason, the prompt's time counts" {
    q -q --json --timeout 0.3 --ignore-eos hi >"$T/json"
    [ "$(jget 'o["finish_reason"]' <"$T/json")" = timeout ]
    jget '[0][len(o["tokens"]) != o["usage"]["completion_tokens"] or
        len(o["tokens"]) < 1]' <"$T/json"
    # an answer that is done in time is complete
    q --json --timeout 100 "list all listening tcp ports" >"$T/json"
    [ "$(jget 'o["finish_reason"]' <"$T/json")" = stop ]
    # a prompt that takes longer: no token at all
    python3 -c 'print("list the files " * 600)' >"$T/long"
    q -q --isa ref -t 1 --json --timeout 0.02 -f "$T/long" >"$T/json"
    jget '[0][(o["finish_reason"], o["tokens"], o["text"]) !=
        ("timeout", [], "")]' <"$T/json"
    run -6 --separate-stderr q --isa ref -t 1 --require-answer --timeout 0.02 \
        -f "$T/long"
    [[ $stderr == "qwick: the answer is empty: 0.02 seconds are over" ]]
    for v in 0 -1 nan 1e10 "" x; do
        fails 2 "--timeout: " --timeout "$v" hi
    done
}

@test "choose --yes: exit status 10 for no" {
    run q choose --yes --json "is ls a command"
    p=$(printf '%s' "$output" | jget 'o["probability"]')
    a=$(printf '%s' "$output" | jget 'o["answer"]')
    if [ "$a" = yes ]; then want=0; else want=10; fi
    [ "$status" -eq "$want" ]
    run q choose --yes "is ls a command"
    [ "$status" -eq "$want" ]
    [ "$output" = "$a" ]
    # thresholds on both sides of the probability
    above=$(python3 -c "print(min(1.0, $p * (1 + 1e-6)))")
    below=$(python3 -c "print($p * (1 - 1e-6))")
    run -10 q choose --yes --threshold "$above" "is ls a command"
    [ "$output" = no ]
    run -0 q choose --yes --threshold "$below" "is ls a command"
    [ "$output" = yes ]
    for p in "list files" "is this a question" "rm -rf /" "no" "yes"; do
        run q choose --yes "$p"
        [[ $output/$status == yes/0 || $output/$status == no/10 ]]
    done
    fails 2 "no prompt; usage: qwick choose " choose --yes
}

@test "batch: cut and empty answers are counted, and fail with --require-answer" {
    printf '%s\n' '{"prompt":"list all listening tcp ports"}' \
        '{"prompt":"list all listening tcp ports","stop":["s"]}' \
        '{"prompt":"list all listening tcp ports","max_tokens":8}' >"$T/in"
    run -0 --separate-stderr q batch -i "$T/in"
    [[ $stderr == "qwick: warning: $T/in: incomplete answers: 1 empty" ]]
    run -0 --separate-stderr q batch -q -i "$T/in"
    [ -z "$stderr" ]
    run -1 --separate-stderr q batch -i "$T/in" --require-answer
    [[ $stderr == "qwick: $T/in: incomplete answers: 1 cut (length), 1 empty" ]]
    [ "${#lines[@]}" -eq 3 ]
    head -n1 "$T/in" >"$T/one"
    run -0 --separate-stderr q batch -i "$T/one" --require-answer
    [ -z "$stderr" ]
    # during the prompt's evaluation, and after it
    python3 -c 'import json
print(json.dumps({"prompt": "list the files " * 600}))
print(json.dumps({"prompt": "hi"}))' >"$T/long"
    run -1 --separate-stderr q batch -i "$T/long" --isa ref -t 1 \
        --prefill-chunk 16 --timeout 0.02 --require-answer
    printf '%s\n' "${lines[@]}" | jlines '[x["finish_reason"] for x in o] ==
        ["timeout", "timeout"] and o[0]["tokens"] == []'
    run -0 q batch -i "$T/in" --timeout 100
}

@test "batch: an answer that is incomplete in two ways is counted once" {
    # cut and empty; broken and cut; broken, cut and empty
    printf '%s\n' '{"prompt":"hi","max_tokens":1,"think":true}' \
        '{"prompt":"x","regex":"a{2600}","max_tokens":3}' \
        '{"prompt":"x","json_schema":{"type":"object"},"max_tokens":1,"think":true}' >"$T/in"
    run -1 --separate-stderr q batch -i "$T/in" -o "$T/out" --require-answer
    [[ $stderr == "qwick: $T/in: 2 answers fall short of their constraint or tools
qwick: $T/in: incomplete answers: 1 empty" ]]
    run -1 --separate-stderr q batch -i "$T/in" -o "$T/out" --require-answer
    [[ $stderr == "qwick: $T/out: 2 answers of earlier runs fall short of their constraint or tools
qwick: $T/out: 1 answer of earlier runs is cut or empty" ]]
    # not silent where -n alone is to blame
    head -n 1 "$T/in" >"$T/one"
    run -0 --separate-stderr q batch -i "$T/one"
    [[ $stderr == "qwick: warning: $T/one: incomplete answers: 1 empty" ]]
}

@test "batch -v: the answers of the run by finish reason" {
    printf '%s\n' '{"prompt":"list all listening tcp ports"}' \
        '{"prompt":"list all listening tcp ports","stop":[" -l"]}' nonsense \
        '{"prompt":"list all listening tcp ports","max_tokens":2,"n":2}' \
        '{"prompt":"x","regex":"a{2600}"}' >"$T/in"
    run -1 --separate-stderr q batch -v --think off -i "$T/in" -o "$T/out"
    [[ $stderr == *"qwick: finish reasons: 1 stop, 1 stop_string, 2 length, 1 loop, 1 error"* ]]
    [[ $stderr == *"qwick: $T/in: 1 answer is an error"* ]]
    [[ $stderr == *"qwick: $T/in: 1 answer falls short of its constraint or tools"* ]]
    # none of them is of this run
    run -1 --separate-stderr q batch -v --think off -i "$T/in" -o "$T/out"
    [[ $stderr != *"finish reasons"* ]]
    [[ $stderr == *"qwick: $T/out: 1 answer of earlier runs is an error"* ]]
    [[ $stderr == *"qwick: $T/out: 1 answer of earlier runs falls short of its constraint or tools"* ]]
    # a note, which needs -v or a terminal
    run -1 --separate-stderr q batch --think off -i "$T/in"
    [[ $stderr != *"finish reasons"* ]]
}

@test "batch: --require-answer counts answers of earlier runs" {
    printf '%s\n' '{"prompt":"list all listening tcp ports","max_tokens":8}' \
        '{"prompt":"list files"}' >"$T/in"
    run -0 q batch -q -i "$T/in" -o "$T/out"
    cp "$T/out" "$T/first"
    # the option changes no text: the lines are kept, and checked
    run -1 --separate-stderr q batch -i "$T/in" -o "$T/out" --require-answer
    [[ $stderr == "qwick: $T/out: 1 answer of earlier runs is cut or empty" ]]
    cmp "$T/out" "$T/first"
    run -0 q batch -i "$T/in" -o "$T/out"
}
