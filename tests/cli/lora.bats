#!/usr/bin/env bats
# --lora: adapters of the demo model, with random values (lora.py).
load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    export A=$BATS_FILE_TMPDIR
    local all=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj
    command python3 -S tests/cli/lora.py models/demo/config.json "$A/one" size=0.2 targets=$all
    command python3 -S tests/cli/lora.py models/demo/config.json "$A/two" seed=2 size=0.3 dtype=F32
}

setup() {
    common_setup
    SAY="list all files"
}

# Print the likeliest tokens and their logits.
top() {
    q logits --exact --top 5 "$@" "$SAY"
}

@test "an adapter changes answers, and scale 0 does not" {
    local base
    base=$(top)
    [ "$(top --lora "$A/one")" != "$base" ]
    [ "$(top --lora "$A/one:0")" = "$base" ]
    [ "$(top --lora "$A/one:1e0")" = "$(top --lora "$A/one/")" ]
    [ "$(top --lora "$A/one" --lora "$A/two")" != "$(top --lora "$A/one")" ]
    q --lora "$A/one" -n 4 "$SAY"
    [ "$(q score --json --lora "$A/one" "$SAY")" != "$(q score --json "$SAY")" ]
    [ "$(q embed --lora "$A/one" "$SAY")" != "$(q embed "$SAY")" ]
    q choose --lora "$A/one" -a ls -a pwd "$SAY"
    q plan --lora "$A/one" --json
    q bench --lora "$A/one" --prompt-lens 4 --gen 2 --reps 1 --json >"$T/bench"
}

@test "inspect lists adapters" {
    run -0 q inspect --lora "$A/one" --lora "$A/two"
    [[ $output == *'adapter            "one", 56 matrices, rank up to 16'* ]]
    [[ $output == *"lora bytes "* ]]
    q inspect --json --lora "$A/one" | grep -q '"adapters":\[{"name":"one","n_matrices":56,"max_rank":8}\]'
    q inspect --json | grep -q '"adapters":\[\]'
}

@test "paths with colons, and the config file" {
    local base
    base=$(top)
    cp -r "$A/one" "$T/a:0"
    [ "$(top --lora "$T/a:0")" = "$(top --lora "$A/one")" ]
    [ "$(top --lora "$T/a:0:0")" = "$base" ]
    mkdir -p "$T/config/qwick"
    printf 'lora = %s\n' "$A/one" >"$T/config/qwick/config"
    [ "$(XDG_CONFIG_HOME=$T/config top)" = "$(top --lora "$A/one")" ]
    [ "$(XDG_CONFIG_HOME=$T/config top --no-config)" = "$base" ]
}

@test "what does not fit is refused with status 3" {
    fails 3 "no/such: No such file" --lora no/such hi
    fails 3 "half: No such file" --lora "$A/one:half" hi
    fails 3 "is neither a directory of an adapter nor a GGUF file" --lora "$A/one/adapter_config.json" hi
    mkdir "$T/empty"
    fails 3 "has no adapter_model.safetensors and no adapters.safetensors" --lora "$T/empty" hi
    fails 3 "takes 256 elements, the model's matrix takes 128" \
        inspect -m tests/golden/lora/all/base --lora "$A/one"
    fails 2 "scale: must be from -1e6 to 1e6" --lora "$A/one:1e9" hi
    fails 2 "--lora" tokenize --lora "$A/one" hi
    cp -r "$A/one" "$T/ia3"
    sed -i 's/"LORA"/"IA3"/' "$T/ia3/adapter_config.json"
    fails 3 'peft_type: must be "LORA", is "IA3"' --lora "$T/ia3" hi
}

@test "caches on disk and sessions tell adapters apart" {
    local d=$T/cache prompt with base cached
    prompt=$(seq 1 200)
    cached() {
        q --json -n 4 --cache-dir "$d" "$@" "$prompt" | sed 's/.*"cached_tokens":\([0-9]*\).*/\1/'
    }
    [ "$(cached)" = 0 ]
    [ "$(cached)" -gt 100 ]
    [ "$(cached --lora "$A/one")" = 0 ]
    [ "$(cached --lora "$A/one")" -gt 100 ]
    [ "$(cached --lora "$A/one:0.5")" = 0 ]
    [ "$(cached --lora "$A/two")" = 0 ]
    q -n 4 --save-session "$T/s" "$SAY" >/dev/null
    fails 2 "was saved with another model" -n 4 --session "$T/s" --lora "$A/one" more
    q -n 4 --save-session "$T/t" --lora "$A/one" "$SAY" >/dev/null
    q -n 4 --session "$T/t" --lora "$A/one" more >/dev/null
}

@test "a batch does not go on with another adapter's answers" {
    printf '{"prompt":"list all files"}\n{"prompt":"who am I"}\n' >"$T/in"
    q batch -n 4 -i "$T/in" -o "$T/out" --lora "$A/one"
    run -0 --separate-stderr q batch -v -n 4 -i "$T/in" -o "$T/out" --lora "$A/one"
    [[ $stderr == *"2 answered before"* ]]
    fails 2 "was written with another model" batch -n 4 -i "$T/in" -o "$T/out"
    fails 2 "was written with another model" batch -n 4 -i "$T/in" -o "$T/out" --lora "$A/two"
}

@test "quantize --lora merges" {
    local logits="q logits --exact --all"
    $logits --lora "$A/one" -o "$T/want" "$SAY"
    q quantize --lora "$A/one" --type BF16 -o "$T/m.gguf"
    $logits -m "$T/m.gguf" -o "$T/got" "$SAY"
    near "$T/got" "$T/want" 0.012
    q quantize --lora "$A/one" --bits 8 --group 32 -o "$T/m8"
    $logits -m "$T/m8" -o "$T/got" "$SAY"
    near "$T/got" "$T/want" 0.04
    q quantize --lora "$A/one:0" --bits 8 --group 32 -o "$T/zero"
    q quantize --bits 8 --group 32 -o "$T/base"
    cmp "$T/zero/model.safetensors" "$T/base/model.safetensors"
    # the adapter beside quantized weights
    $logits -m "$T/base" --lora "$A/one" -o "$T/got" "$SAY"
    near "$T/got" "$T/want" 0.04
    q quantize --type Q8_0 -o "$T/q8.gguf"
    q quantize -m "$T/q8.gguf" --type Q8_0 --lora "$A/one" -o "$T/again.gguf" 2>"$T/log"
    $logits -m "$T/again.gguf" -o "$T/got" "$SAY"
    near "$T/got" "$T/want" 0.04
    $logits -m "$T/q8.gguf" --lora "$A/one" -o "$T/got" "$SAY"
    near "$T/got" "$T/want" 0.04
}

# near GOT WANT BOUND: |got - want| <= bound * |want| of two files of logits.
near() {
    python3 - "$@" <<'P'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    a, b = json.loads(data[8:8 + n])["logits"]["data_offsets"]
    return struct.unpack(f"<{(b - a) // 4}f", data[8 + n + a:8 + n + b])
x, y = read(sys.argv[1]), read(sys.argv[2])
error = (sum((a - b) ** 2 for a, b in zip(x, y)) / sum(b * b for b in y)) ** 0.5
print(error)
sys.exit(error > float(sys.argv[3]))
P
}
