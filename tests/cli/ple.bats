#!/usr/bin/env bats
# Per-layer embeddings: their table stays in the file, but for a row of each token.
load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    python3 -S tests/cli/ple_table.py tests/golden/families/gemma4-e2b "$BATS_FILE_TMPDIR/m" 4000000
}

setup() {
    common_setup
    SMALL=tests/golden/families/gemma4-e2b
    M=$BATS_FILE_TMPDIR/m # its table has 1 GB
    IDS=5,17,300,4,9,250,31,8,77,102
}

# peak ARGS...: run qwick; then its output is in $T/out, and $PEAK is the memory that it
# used at most, in MB, with pages of files.
peak() {
    PEAK=$(python3 -S -c '
import resource, subprocess, sys
with open(sys.argv[1], "w") as f:
    subprocess.run(sys.argv[2:], check=True, stdout=f, stdin=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)' "$T/out" ./qwick "$@")
}

@test "the table is not read, whatever runs" {
    printf '{"prompt_ids": [%s]}\n' "$IDS" "$IDS" >"$T/lines"
    local run
    for run in "run --prompt-ids $IDS -n 8 --greedy --ignore-eos --save-session $T/s" \
        "run --prompt-ids $IDS -n 8 --greedy --ignore-eos --session $T/s" \
        "run --prompt-ids $IDS -n 8 --greedy --ignore-eos --preload" \
        "run --prompt-ids $IDS -n 8 --greedy --ignore-eos --threads 3" \
        "plan --threads 2" "inspect --json" "batch --input $T/lines -n 4 --greedy --prefix-cache=$T/cache"; do
        peak ${run%% *} -m "$M" ${run#* }
        [ "$PEAK" -lt 300 ] || { echo "$run: $PEAK MB"; return 1; }
    done
}

@test "a longer table changes no answer" {
    local o
    for o in "--exact" "--exact --preload"; do
        q run -m "$SMALL" --prompt-ids $IDS -n 16 --greedy --ignore-eos $o --json >"$T/want"
        q run -m "$M" --prompt-ids $IDS -n 16 --greedy --ignore-eos $o --json >"$T/got"
        jget 'o["tokens"]' <"$T/got" >"$T/tokens"
        jget 'o["tokens"]' <"$T/want" | cmp - "$T/tokens"
        [ -s "$T/tokens" ]
    done
}

@test "plan and inspect count the table by itself" {
    q inspect -m "$SMALL" --json >"$T/small"
    q inspect -m "$M" --json >"$T/large"
    q plan -m "$M" --no-speed --json >"$T/plan"
    python3 -S -c '
import json, sys
small, large, plan = (json.load(open(sys.argv[1] + "/" + f)) for f in ("small", "large", "plan"))
table = 4000000 * 128 * 2
assert small["table_bytes"] == 320 * 128 * 2, small["table_bytes"]
assert large["table_bytes"] == plan["table_bytes"] == table, (large, plan)
for key in ("weight_bytes", "decode_bytes", "n_active_params"):
    assert small[key] == large[key], key
assert plan["weight_bytes"] == large["weight_bytes"] < 1 << 20, plan
assert plan["fits"] and plan["needed_bytes"] < 64 << 20, plan
assert large["n_params"] - small["n_params"] == (4000000 - 320) * 128' "$T"
    run -0 q plan -m "$M" --no-speed
    [[ $output == *"1.02 GB  stays in the file: each token reads one row"* ]]
    run -0 q plan -m tests/golden/models/tied-bf16 --no-speed
    [[ $output != *"stays in the file"* ]]
}

@test "a table with fewer rows than the vocabulary is refused" {
    cp -r "$SMALL" "$T/short"
    sed -i 's/"vocab_size_per_layer_input": 320/"vocab_size_per_layer_input": 319/' "$T/short/config.json"
    run -3 q inspect -m "$T/short"
    [[ $output == *'vocab_size_per_layer_input'*'at least 320'* ]]
}

# The ids that the released model of 12B never draws, made likely here: twice the row of
# the likeliest token.
@test "suppress_tokens of Gemma 4 are never drawn" {
    local m=$T/m
    python3 -S tests/cli/ple_table.py "$SMALL" "$m" 262144 262144
    python3 -S -c '
import json, struct, sys
with open(sys.argv[1], "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(n))
    at = next(t["data_offsets"][0] for k, t in header.items() if k.endswith("embed_tokens.weight"))
    f.seek(8 + n + at + 252 * 128)
    row = struct.unpack("<64H", f.read(128))
    twice = struct.pack("<64H", *(x + 128 if x & 0x7f80 else x for x in row))
    f.seek(8 + n + at + 258882 * 128)
    f.write(2 * twice)' "$m/model.safetensors"
    local go="run -m $m --prompt-ids 5,17,300 -n 6 --ignore-eos --json"
    [ "$(q $go --greedy | jget 'o["tokens"][0]')" = 258882 ]
    echo '{"suppress_tokens": [258883, 258882]}' >"$m/generation_config.json"
    [ "$(q $go --greedy | jget 'o["tokens"][0]')" = 252 ]
    for o in "--greedy" "--temp 3 --seed 1" "--temp 3 --seed 2" "--greedy --lookup 4" "--greedy --draft $m"; do
        q $go $o | jget 'o["tokens"]' >"$T/tokens"
        [ -s "$T/tokens" ]
        run -1 grep -E "25888[23]" "$T/tokens"
    done
}
