#!/usr/bin/env bats
# --think-budget: what is forced, where it appears, what has no think block.
load helpers

SAY="Considering the limited time by the user, I have to give the solution \
based on the thinking directly now."

setup() {
    common_setup
    # a prompt that ends inside an open think block
    THINK=6136,885,198,492,865,6137,198,6136,570,334,1120,198,6142,492
    OPTS=(--prompt-ids $THINK --exact --temp 1.2 --seed 7 --ignore-eos -n 60)
}

@test "the thinking ends at N tokens, and the answer goes on" {
    q "${OPTS[@]}" --json >"$T/all"
    [ "$(jget 'o["text"]' <"$T/all")" = "" ]
    jget '"forced_tokens" in o["usage"]' <"$T/all" | grep -qx False
    for n in 0 4; do
        q "${OPTS[@]}" --think-budget $n --json >"$T/o"
        python3 - "$T/all" "$T/o" $n "$SAY" <<'PY'
import json, sys
a, o = (json.load(open(f)) for f in sys.argv[1:3])
n, say = int(sys.argv[3]), sys.argv[4]
assert o["thinking"].endswith(say) and say not in o["text"] and o["text"], o
assert (o["thinking"] == say) == (n == 0), o
assert o["tokens"][:n] == a["tokens"][:n]
close = o["tokens"].index(6143)
assert o["usage"]["forced_tokens"] == close + 1 - n, o
assert o["usage"]["completion_tokens"] == len(o["tokens"]) == 60
assert o["finish_reason"] == "length"
PY
    done
    # a text on stdout, the thinking in a file, the forced text in both events
    q "${OPTS[@]}" --think-budget 4 --think-file "$T/think" >"$T/text"
    [ "$(<"$T/text")" = "$(jget 'o["text"]' <"$T/o")" ]
    [ "$(<"$T/think")" = "$(jget 'o["thinking"]' <"$T/o")" ]
    q "${OPTS[@]}" --think-budget 4 --show-thinking >"$T/both"
    grep -qF "$SAY" "$T/both"
    q "${OPTS[@]}" --think-budget 4 --jsonl >"$T/events"
    jlines 'sum("forced" in x for x in o) == o[-1]["usage"]["forced_tokens"] and
        all(x.get("text") == "" for x in o if "forced" in x) and
        [x["id"] for x in o[:-1]] == o[-1]["tokens"]' <"$T/events"
    run -0 --separate-stderr q "${OPTS[@]}" --think-budget 4 -v
    [[ $stderr == *"33 of the tokens are forced"* ]]
    # more than the model thinks
    q --think on --json "list files" >"$T/a"
    q --think on --think-budget 100 --json "list files" >"$T/b"
    [ "$(jget 'o["tokens"]' <"$T/a")" = "$(jget 'o["tokens"]' <"$T/b")" ]
    [ "$(jget 'o["usage"]["forced_tokens"]' <"$T/b")" = 0 ]
}

@test "the same with lookup, in chunks, with caches and in a batch" {
    want=$(q "${OPTS[@]}" --think-budget 4 --json | jget 'o["tokens"]')
    for more in "--lookup 5" "--prefill-chunk 16 -t 2" \
        "--prefix-cache --cache-dir $T/cache" \
        "--prefix-cache --cache-dir $T/cache"; do
        # shellcheck disable=SC2086
        [ "$(q "${OPTS[@]}" --think-budget 4 --json $more |
            jget 'o["tokens"]')" = "$want" ]
    done
    # in a batch each record has its own budget, or that of the option
    printf '{"prompt_ids":[%s],"seed":7%s}\n' "$THINK" '' \
        "$THINK" ',"think_budget":9' "$THINK" ',"think_budget":0' >"$T/in"
    q batch -q --exact --temp 1.2 --ignore-eos -n 60 --think-budget 4 \
        -i "$T/in" >"$T/out"
    i=0
    for n in 4 9 0; do
        i=$((i + 1))
        [ "$(sed -n "${i}p" "$T/out" |
            jget 'o["tokens"], o["text"], o["thinking"], o["usage"]["forced_tokens"]')" \
            = "$(q "${OPTS[@]}" --think-budget $n --json |
                jget 'o["tokens"], o["text"], o["thinking"], o["usage"]["forced_tokens"]')" ]
    done
}

@test "a constraint begins after the forced end" {
    run -0 q --prompt-ids $THINK --temp 2 --seed 3 --think-budget 3 --json \
        --regex '(ab|cd){3}'
    printf '%s' "$output" >"$T/o"
    [[ $(jget 'o["text"]' <"$T/o") =~ ^((ab|cd){3})$ ]]
    [[ $(jget 'o["thinking"]' <"$T/o") == *"$SAY" ]]
    # it is not part of what --require-answer asks for
    run -6 q "${OPTS[@]}" -n 20 --think-budget 3 --require-answer
    [ -z "$(q -q "${OPTS[@]}" -n 20 --think-budget 3)" ]
}

@test "models, prompts and records without a think block" {
    # MESSAGE ARGS: the options are taken, with a warning
    warns() {
        local want="qwick: warning: --think-budget: has no effect with $1"
        shift
        run -0 --separate-stderr q "$@" --think-budget 3
        [[ $stderr == *"$want"* ]]
    }
    warns --raw -n 1 --raw hi
    warns "--think off" -n 1 --think off hi
    warns "a model that has no token for the end" -n 1 -m $MODELS/f32 --prompt-ids 1,2
    for v in -1 1.5 x "" 2147483648; do
        fails 2 "--think-budget: " --think-budget "$v" hi
    done
    # a tokenizer whose tags are not known
    mkdir "$T/m"
    cp models/demo/* "$T/m"
    sed -i 's|"<think>"|"<hmm>"|; s|"</think>"|"</hmm>"|' "$T/m/tokenizer.json" "$T/m/tokenizer_config.json"
    warns "a model that has no token for the end" -n 1 -m "$T/m" hi
    echo '{"prompt":"hi","think_budget":3}' >"$T/in"
    echo '{"prompt":"hi"}' >"$T/plain"
    warns "a model that has no token for the end" batch -n 1 -m "$T/m" -i "$T/plain"
    run -1 --separate-stderr q batch -q -m "$T/m" -i "$T/in"
    [[ $output == *'"error":"think budget: the model has no token that closes a think block"'* ]]
    run -1 --separate-stderr q batch -q --raw -i "$T/in"
    [[ $output == *'"error":"record: think_budget: cannot be combined with --raw"'* ]]
    warns --raw batch -n 1 --raw -i "$T/plain"
    # the model does not think: nothing happens
    [ "$(q --prefill "ss" --think-budget 0 "list all listening tcp ports")" = \
        "$(q --prefill "ss" "list all listening tcp ports")" ]
}

@test "batch: a resumed run knows the budget" {
    echo '{"prompt":"list files"}' >"$T/in"
    q batch --think-budget 1 --exact -n 60 -i "$T/in" -o "$T/out" 2>/dev/null
    cp "$T/out" "$T/first"
    q batch --think-budget 1 --exact -n 60 -i "$T/in" -o "$T/out" 2>/dev/null
    cmp "$T/out" "$T/first"
    fails 2 "$T/out: " batch --think-budget 2 --exact -n 60 -i "$T/in" -o "$T/out"
    fails 2 "$T/out: " batch --exact -n 60 -i "$T/in" -o "$T/out"
}
