#!/usr/bin/env bats
# qwick selftest: its table, JSON and exit statuses. test_selftest.c has the
# checks themselves.
load helpers

setup() {
    common_setup
    M=$MODELS/tied-bf16
    export QWICK
}

@test "the table: facts, one row per check, a summary; exit 0" {
    run -0 --separate-stderr q selftest -m "$M" -t 2
    [ -z "$stderr" ]
    [[ ${lines[0]} == "qwick 0.1.0 selftest, "20??-??-?? ]]
    [[ ${lines[1]} == "system   Linux "*" CPUs, "*" available" ]]
    [[ ${lines[2]} == "cpu      "* ]]
    [[ ${lines[3]} == "kernels  "*", 2 threads, prefill "* ]]
    [[ ${lines[4]} == "model    \"$M\", qwen3, BF16, 150 k parameters" ]]
    for check in "files                skip " "tokenizer            skip " \
        "cached               pass " "threads              pass " \
        "batch                pass " "ref, exact           pass " \
        "ref, default         pass "; do
        grep -q "^$check" <<<"$output"
    done
    [[ ${lines[-1]} =~ ^[0-9]+" passed, 0 failed, 2 skipped, 0 cut; text of 200 tokens"$ ]]
}

@test "--json" {
    q selftest -m "$M" --json >"$T/json"
    jget '[o["version"], o["model_type"], o["n_fail"], o["n_cut"], o["n_tokens"]]' <"$T/json" |
        grep -qF "['0.1.0', 'qwen3', 0, 0, 200]"
    jget '[o["n_pass"] + o["n_skip"] == len(o["checks"]), {c["result"] for c in o["checks"]} == {"pass", "skip"}, {len(c) for c in o["checks"]}]' \
        <"$T/json" | grep -qF "[True, True, {4}]"
}

@test "the built-in model: all but its files" {
    run -0 q selftest --seconds 0
    [[ $output == *"files                skip "*" the model is inside the program"* ]]
    [[ $output == *"tokenizer            pass "*" tokens: equal"* ]]
    [[ ${lines[-1]} == *" 0 failed, 1 skipped, 0 cut; "* ]]
}

# hub_model: the model as the hub's tools leave it, in $T/hub/snapshots/1.
hub_model() {
    mkdir -p "$T/hub/blobs" "$T/hub/snapshots/1"
    for f in config.json model.safetensors; do
        sum=$(sha256sum "$M/$f")
        cp "$M/$f" "$T/hub/blobs/${sum%% *}"
        ln -s "../../blobs/${sum%% *}" "$T/hub/snapshots/1/$f"
    done
}

@test "a flipped byte of a file with a checksum: exit 1" {
    hub_model
    run -0 q selftest -m "$T/hub/snapshots/1"
    [[ $output == *"files                pass "*" 2 files, 0 MB, equal their checksums"* ]]
    python3 - "$T/hub/snapshots/1/model.safetensors" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-1, 2)
    byte = f.read(1)[0]
    f.seek(-1, 2)
    f.write(bytes([byte ^ 1]))
PY
    run -1 --separate-stderr q selftest -m "$T/hub/snapshots/1"
    [ -z "$stderr" ]
    [[ $output == *"files                FAIL "*" 1 of 2 files differ from their checksums: model.safetensors"* ]]
    [[ ${lines[-1]} == *" 1 failed, "* ]]
    run -1 q selftest -m "$T/hub/snapshots/1" --json
    jget '[c["result"] for c in o["checks"]][0]' <<<"$output" | grep -qx fail
}

@test "a name that breaks lines is quoted" {
    hub_model
    sum=$(sha256sum "$M/config.json")
    echo x >"$T/hub/blobs/${sum//?/0}"
    zeros=$(printf '0%.0s' {1..64})
    echo x >"$T/hub/blobs/$zeros"
    ln -s "../../blobs/$zeros" "$T/hub/snapshots/1/"$'a\n\e[31mb'
    run -1 q selftest -m "$T/hub/snapshots/1"
    [[ $output == *'"1 of 3 files differ from their checksums: a\n\u001b[31mb"'* ]]
}

@test "too little time: exit 6" {
    run -6 --separate-stderr q selftest --seconds 0.000001 -m "$M"
    [ -z "$stderr" ]
    [[ $output == *"ref, exact           cut "*" its time is over"* ]]
    [[ ${lines[-1]} == "0 passed, 0 failed, 0 skipped, "*" cut; "* ]]
}

@test "bad input, a broken model, a closed output" {
    fails 2 "--seconds" selftest --seconds -1
    fails 2 "--seconds" selftest --seconds nan
    fails 2 "\"more\": unexpected, a model goes with -m" selftest -m "$M" more
    fails 3 "/nonexistent" selftest -m /nonexistent
    mkdir "$T/m"
    cp "$M/config.json" "$T/m"
    head -c 1000 "$M/model.safetensors" >"$T/m/model.safetensors"
    fails 3 "model.safetensors" selftest -m "$T/m"
    run -1 --separate-stderr bash -c '"$QWICK" selftest -m "$1" >/dev/full' - "$M"
    [[ $stderr == "qwick: "*"No space left"* ]]
}
