#!/usr/bin/env bats
# Failed allocations: fault_sweep.py documents the checks. By default a sample
# of the allocations fails; QWICK_FAULTS=all makes each of them fail.
load helpers

setup_file() {
    build_injector
}

setup() {
    injection_setup
    printf 'hello there\nls -l\n' >"$T/text"
    printf '%s\n' '{"prompt":"hi"}' '{"prompt_ids":[1,2,3]}' >"$T/records"
}

# sweep STRIDE ARGS…: run qwick ARGS with every STRIDE-th allocation failing. Odd
# strides reach allocations of all kinds where pairs of them alternate.
sweep() {
    local one=$1 many=$((4 * $1))
    shift
    [ "${QWICK_FAULTS:-}" != all ] || one=1 many=1
    run python3 tests/cli/fault_sweep.py "$INJECT" "$T/sweep" $one $many \
        "$QWICK" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    # print the counts for a reader of the log
    echo "# ${lines[0]}" >&3
}

@test "out of memory: generate --json --logprobs" {
    sweep 3 generate -q --json --logprobs 3 -n 3 --seed 1 hi
    # an answer with text
    sweep 17 generate --json --logprobs 3 -n 3 --seed 1 --think off "list files"
}

@test "out of memory: generate --jsonl, --prompt-ids, --save-session" {
    sweep 17 generate -q --jsonl --logprobs 2 -n 2 --seed 1 hi
    # in order: the lines of --jsonl come in another order if a sample waits
    sweep 17 generate -q --json --samples 3 --temp 1 -n 2 --seed 1 hi
    sweep 7 generate -q --json -n 3 --seed 1 --prompt-ids 1,2,6142
    sweep 17 generate -q -n 2 --save-session session hi
}

@test "out of memory: --tool-choice" {
    echo '[{"function":{"name":"f","parameters":{"properties":{"a":{"enum":
        ["b","c"]},"d":{"type":["string","null"],"maxLength":3}}}}}]' >"$T/tools"
    echo '{% for t in tools or [] %}t{% endfor %}<tool_call><function=f>' \
        >"$T/coder"
    sweep 129 generate -q --json --seed 1 --think off --tools "$T/tools" \
        --tool-choice f hi
    sweep 129 generate -q --json --seed 1 --think off --tools "$T/tools" \
        --tool-choice f --chat-template "$T/coder" hi
}

@test "out of memory: generate --draft" {
    python3 tests/cli/slow_model.py models/demo "$T/slow" 8
    sweep 49 generate -q --exact --temp 1 --seed 1 -n 8 -m "$T/slow" \
        --draft "$PWD/models/demo" "list files"
}

@test "out of memory: batch --draft" {
    python3 tests/cli/slow_model.py models/demo "$T/slow" 8
    # in this form, answers do not tell how many guesses there were
    local body='{"max_tokens":8,"messages":[{"role":"user","content":"hi"}]}'
    printf '{"custom_id":"%s","method":"POST","url":"%s","body":%s}\n' \
        a /v1/chat/completions "$body" b /v1/chat/completions "$body" >"$T/in"
    sweep 49 batch -q --exact --temp 1 --seed 1 --max-batch 2 \
        -m "$T/slow" --draft "$PWD/models/demo" -i "$T/in"
}

@test "out of memory: logits" {
    sweep 7 logits --json hi
    sweep 17 logits --all hi
    sweep 17 logits -o out.safetensors hi
}

@test "out of memory: inspect" {
    sweep 7 inspect
    sweep 17 inspect --json
}

@test "out of memory: selftest cuts checks, and none fails" {
    # it prints rows before the fault, so fault_sweep.py does not fit
    m=$MODELS/tied-bf16
    FAULT_COUNT=$T/count LD_PRELOAD=$INJECT "$QWICK" selftest -m "$m" >"$T/want"
    total=$(awk '$1 == "alloc" { print $2 }' "$T/count")
    for ((n = 1; n <= total; n += total / 16)); do
        status=0
        FAULT_AT=$n LD_PRELOAD=$INJECT "$QWICK" selftest -m "$m" \
            >"$T/out" 2>"$T/err" || status=$?
        echo "allocation $n: status $status, $(cat "$T/err")"
        case $status in
        5) grep -q '^qwick: .*memory' "$T/err" ;;
        6) grep -q ' cut .* memory' "$T/out" ;;
        *) [ "$status" -eq 0 ] ;;
        esac
        run -1 grep FAIL "$T/out"
    done
}

@test "out of memory: models" {
    # a few of the models: some that run, some that do not
    python3 tests/cli/model_cache.py "$T/home"
    mkdir -p "$T/my/deep"
    mv "$T/home/my/tiny-f16" "$T/home/my/half.gguf" "$T/home/my/cohere.gguf" "$T/my"
    mv "$T/home/.cache/huggingface/hub/models--Qwen--Qwen3-8B-FP8" "$T/my/deep"
    mkdir "$T/hub"
    for name in org--Demo Qwen--Qwen3-8B-AWQ org--Partial org--Tiny-GGUF; do
        mv "$T/home/.cache/huggingface/hub/models--$name" "$T/hub"
    done
    export QWICK_MODEL_PATH=$T/my HF_HUB_CACHE=$T/hub
    export OLLAMA_MODELS=$T/home/.ollama/models
    sweep 81 models --no-speed
    sweep 161 models --no-speed --json
}

@test "out of memory: tokenize, count, detokenize" {
    sweep 5 tokenize hi
    sweep 17 count hi
    sweep 17 detokenize 1 2 3
}

@test "out of memory: render by a template" {
    printf '%s' "{% macro m(a) %}<{{ a }}>{% endmacro %}{% for c in messages %}
{{ m(c.role | upper) }}{{ c | tojson }}{{ (c.content ~ 'x').split('x') | join(',') }}
{% endfor %}{{ 1.5 * n }}{{ [1, 'a', none] }}{{ strftime_now('%Y') }}" >"$T/t"
    sweep 3 render --chat-template "$T/t" --template-arg n=3 \
        --template-time 2026-01-01 '[{"role":"user","content":"hi"}]'
}

@test "out of memory: choose" {
    sweep 7 choose --raw -a yes -a no "is it"
}

@test "out of memory: score, embed, batch" {
    sweep 17 score --by line -f "$T/text"
    sweep 17 embed -q hi
    sweep 17 batch -q -i "$T/records" -n 3 --seed 1
}

@test "out of memory: prompts of the user, aliases, forms of batch" {
    export XDG_CONFIG_HOME=$T/config
    mkdir -p "$T/config/qwick/prompts"
    printf 'max-tokens = 2\n---\n{a} {}\n' >"$T/config/qwick/prompts/p.txt"
    printf 'other = x\nx = %s\n' "$PWD/models/demo" >"$T/config/qwick/aliases"
    sweep 17 generate -q --json --seed 1 -T p --set a=b -m other hi
    sweep 9 models alias --json
    printf 'a,b\n"x ""y"",",z\n' >"$T/csv"
    sweep 25 batch -q -i "$T/csv" --input-format csv --prompt-template '{a}{b}' -n 2 --seed 1
    # one prompt: two may share fewer tokens when memory is short
    printf 'x\n\n' >"$T/lines"
    sweep 33 batch -q -i "$T/lines" --lines -T p --set a=b --seed 1
    echo '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[
        {"role":"user","content":"hi"}],"max_tokens":2,"logprobs":true,"seed":1,"top_logprobs":2}}' |
        tr -d '\n' >"$T/openai"
    sweep 25 batch -q -i "$T/openai"
}

@test "out of memory: quantize" {
    sweep 33 quantize -m "$PWD/$MODELS/tied-bf16" -o out
    sweep 33 quantize --format gguf -m "$PWD/$MODELS/tied-bf16" -o out.gguf
    sweep 65 quantize --format gguf --type F16 -o out.gguf
}
