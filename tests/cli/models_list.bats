#!/usr/bin/env bats
# qwick models on a made-up home directory with a model of each kind in each
# store (model_cache.py), and the names that it prints as arguments of -m.
load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    [ -d models/demo ] && [ -d tests/golden/models ] || return 0
    python3 tests/cli/model_cache.py "$BATS_FILE_TMPDIR/home"
}

setup() {
    common_setup
    export HOME=$BATS_FILE_TMPDIR/home
    [ -d "$HOME" ] || skip "no models/demo"
    export QWICK_MODEL_PATH=$HOME/my
}

# list EXPRESSION: a Python expression over the models by name (m) is true.
list() {
    q models --json --no-speed 2>/dev/null | python3 -c '
import json, sys
o = json.load(sys.stdin)
# models of the system that runs the test are none of ours
m = {x["name"]: x for x in o["models"] if not x["path"].startswith("/usr/share/ollama")}
assert eval("(" + sys.argv[1] + ")"), m' "$1"
}

@test "what runs comes first, with its name, id and store" {
    run -0 --separate-stderr q models --no-speed
    [ -z "$stderr" ]
    [[ ${lines[0]} == "name "*"est. tok/s  runs" ]]
    run -0 list '[(x["name"], x["id"], x["store"]) for x in m.values() if x["runs"]] == [
        ("Demo", "org/Demo", "huggingface"),
        ("Gemma", "org/Gemma", "huggingface"),
        ("gemma3-tied", "gemma3-tied", "llama.cpp"),
        ("Moe", "org/Moe", "huggingface"),
        ("org_tiny-Q5_K_S", "org_tiny-Q5_K_S", "llama.cpp"),
        ("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B", "huggingface"),
        ("Qwen3.5-MoE", "org/Qwen3.5-MoE", "huggingface"),
        ("Qwen3.5-VL", "org/Qwen3.5-VL", "huggingface"),
        ("Sharded", "org/Sharded", "huggingface"),
        ("Tiny-4bit", "mlx-community/Tiny-4bit", "huggingface"),
        ("tiny-dense-Q4_K_S", "org/Tiny-GGUF:Q4_K_S", "huggingface"),
        ("tiny-dense-Q8_0", "org/Tiny-GGUF:Q8_0", "huggingface"),
        ("tiny-f16", "tiny-f16", "path"),
        ("tiny-moe-Q8_0", "org/Moe-GGUF:Q8_0", "lmstudio"),
        ("Tiny.F32", "org/Tiny.F32", "modelscope"),
        ("tiny:6k", "tiny:6k", "ollama")]'
    run -0 list 'list(m) == sorted((n for n in m if m[n]["runs"]), key=str.lower) +
        sorted((n for n in m if not m[n]["runs"]), key=str.lower)'
    run -0 list 'all((x["why"] is None) == x["runs"] for x in m.values())'
}

@test "the figures are those of inspect, and each name opens its model" {
    q models --json --no-speed >"$T/list"
    python3 - "$QWICK" "$T/list" <<'PY'
import json, subprocess, sys
qwick, path = sys.argv[1:]
done = 0
for m in json.load(open(path))["models"]:
    if not m["runs"] or m["disk_bytes"] > 1e9:
        continue
    for name in {m["name"], m["id"], m["path"], m["name"].upper()}:
        i = json.loads(subprocess.run([qwick, "inspect", "--json", "-m", name],
                                      check=True, capture_output=True).stdout)
        for key in ("n_params", "n_active_params", "weight_bytes", "decode_bytes",
                    "n_ctx_max", "weights_dtype"):
            assert m[key] == i[key], (name, key, m[key], i[key])
        bits = 8 * i["weight_bytes"] / i["n_params"]
        assert abs(m["bits"] - bits) <= 5e-4 * bits, (m["bits"], bits)
        assert i["path"] == m["path"], (name, i["path"], m["path"])
    done += 1
assert done >= 15, done
PY
    # a model runs by its short name
    equal "$(q -m demo "list files")" "$(unset QWICK_MODEL; q "list files")"
    [ -n "$(q -m tiny:6k --prompt-ids 5,9 -n 2 --ignore-eos --json)" ]
}

@test "a mixture of experts of 61 GB: active parameters, from the header alone" {
    # 128 experts of which 8 are active, in 48 layers; of the embedding one row
    run -0 list 'm["Qwen3-30B-A3B"]["n_params"] == 30532122624 and
        m["Qwen3-30B-A3B"]["n_active_params"] == 30532122624 - 48 * 120 * 3 * 768 * 2048 and
        m["Qwen3-30B-A3B"]["decode_bytes"] == 2 * (30532122624 - 48 * 120 * 3 * 768 * 2048 - 151935 * 2048) and
        m["Qwen3-30B-A3B"]["n_ctx_max"] == 40960 and m["Qwen3-30B-A3B"]["bits"] == 16'
    if command -v fincore >/dev/null; then
        # readahead brings some MB besides the header, which has 2.5 MB
        [ "$(fincore -b -n -o RES "$HOME"/.cache/huggingface/hub/*30B*/snapshots/*/*.safetensors)" -lt 33554432 ]
    fi
}

@test "weights of other systems are refused by name, with what to pull" {
    q models --json --no-speed >"$T/list"
    python3 - "$T/list" <<'PY'
import json, sys
m = {x["name"]: x for x in json.load(open(sys.argv[1]))["models"]}
instead = "weights are not supported: use the model in BF16 or FP8, or quantized in MLX's or GGUF's format"
for name, form, pull in (
        ("Qwen3-8B-FP8", "FBGEMM FP8", "Qwen/Qwen3-8B"),
        ("Qwen3-8B-GPTQ-Int4", "GPTQ", "Qwen/Qwen3-8B"),
        ("Qwen3-8B-AWQ", "Marlin", "Qwen/Qwen3-8B"),
        ("Some-HQQ", "HQQ", "org/Some"),
        ("Qwen3-8B-bnb-4bit", "bitsandbytes", "unsloth/Qwen3-8B"),
        ("Qwen3-8B-4bit-exl2", "EXL2", "org/Qwen3-8B"),
        ("Qwen3-8B-other", '"novel"', None),
        ("Tiny-mxfp6", '"mxfp6"', None)):
    x = m[name]
    assert not x["runs"] and x["family"] == "qwen3", x
    assert x["why"] == form + " " + instead, (x["why"], form)
    assert x["pull"] == pull, x
for name, family, why in (
        ("Mamba", "mamba2", 'family "mamba2" is not supported (Mamba layers): use Qwen3.5-4B'),
        ("cohere", "cohere2", 'family "cohere2" is not supported: use Mistral Small 3'),
        ("q1_0", None, "tensor blk.0.ffn_up.weight: type Q1_0 is not supported"),
        ("words", "qwen3", 'tokenizer.ggml.model: "rwkv" is not supported'),
        ("Torch", "qwen3", "pytorch_model.bin is in PyTorch's format, which is not supported"),
        ("Untokenized", "qwen3", "tokenizer.json: no such file"),
        # not whole
        ("Hole", "qwen3", "the shard model-00001-of-00003.safetensors is missing"),
        ("Cut", "qwen3", "model.safetensors: truncated"),
        ("half", None, "truncated: its tensors need"),
        ("later-00002-of-00003.gguf", None, "part 1 is missing"),
        ("org_tiny-Q2_K.gguf.downloadInProgress", None, "incomplete download"),
        ("gone:1b", None, "its file is missing: incomplete download?"),
        ("Partial", "qwen3", "model.safetensors: a symbolic link to a file that is missing"),
        ("Begun", None, "the snapshot of revision main is missing"),
        # hostile
        ("empty", None, "truncated"),
        ("noise", None, "not a GGUF file"),
        ("evil\n\x1b[31mname", None, "GGUF version"),
        ("deep", None, "nested deeper than"),
        ("pipe", None, "is a FIFO"),
        ("fifo", None, "is a FIFO"),
        ("zero", None, "is a character device"),
        ("self", None, "Too many levels of symbolic links")):
    x = m.pop(name)
    assert not x["runs"] and why in x["why"] and x["family"] == family, x
    assert x["pull"] == {"Partial": "org/Partial", "Begun": "org/Begun"}.get(name), x
PY
    # -m says the same
    fails 3 "FP8 weights are not supported" -m Qwen/Qwen3-8B-FP8 hi
    fails 3 "quantization.mode: is \"mxfp6\"; \"mxfp6\" weights are not supported" -m Tiny-mxfp6 hi
    fails 3 "incomplete download" -m Begun hi
    fails 3 "its file is missing: incomplete download?" -m gone:1b hi
}

@test "the table: one line each, aligned, whole names, no control bytes" {
    q models --no-speed >"$T/table"
    [ "$(wc -l <"$T/table")" -eq \
        $(($(q models --no-speed --json | jget 'len(o["models"])') + 1)) ]
    run -1 grep -P '[\t\x00-\x08\x0b-\x1f\x7f]' "$T/table"
    python3 - "$T/table" <<'PY'
import sys
rows = open(sys.argv[1]).read().split("\n")[:-1]
for title in "params", "active", "bits", "size", "context", "est. tok/s":
    end = rows[0].index(title) + len(title)
    for row in rows:
        assert row[end - 1] != " " and row[end:end + 2] == "  ", (title, row)
for title in "family", "runs":
    at = rows[0].index(title)
    for row in rows:
        assert row[at - 2:at] == "  " and row[at] != " ", (title, row)
PY
    grep -q '^"evil\\n\\u001b\[31mname" ' "$T/table"
    grep -q '; try qwick pull Qwen/Qwen3-8B$' "$T/table"
    grep -q 'yes$' "$T/table"
    q models --no-speed | cmp - "$T/table"
}

@test "the estimate is the bandwidth by the bytes of a token" {
    hurried q models --json -t 1 >"$T/list" 2>"$T/err"
    if grep -q "bandwidth could not be measured" "$T/err"; then
        skip "no 256 MiB of memory for the measurement"
    fi
    python3 - "$T/list" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
assert o["bandwidth"] > 0
for m in o["models"]:
    rate = m["tokens_per_second"]
    if not m["runs"] or not m["fits_memory"]:
        assert rate is None, m
        continue
    want = o["bandwidth"] / m["decode_bytes"]
    # both figures have four digits
    assert abs(rate - want) <= 1.1e-3 * want, (rate, want)
PY
    run -0 list 'all(x["tokens_per_second"] is None for x in m.values())'
    q models --json --no-speed | jget '[o["bandwidth"]][0] is None' | grep -q True
}

@test "nothing is written, and directories that cannot be read are named" {
    marks() { find "$HOME" -printf '%p %T@ %C@ %s\n' | sort; }
    marks >"$T/before"
    q models --no-speed >"$T/table"
    marks | cmp - "$T/before"
    mkdir -p "$T/locked/in" "$T/open"
    cp "$HOME/.cache/llama.cpp/org_tiny-Q5_K_S.gguf" "$T/open/secret.gguf"
    chmod 000 "$T/locked/in" "$T/open/secret.gguf"
    local as=()
    if [ "$(id -u)" -eq 0 ]; then
        command -v setpriv >/dev/null || skip "root may read everything"
        as=(setpriv --bounding-set -dac_override,-dac_read_search)
    fi
    run -0 --separate-stderr env HOME="$T" QWICK_MODEL_PATH="$T/locked:$T/open" \
        "${as[@]}" "$QWICK" models --no-speed
    chmod 755 "$T/locked/in" "$T/open/secret.gguf"
    [[ $output == *"no: cannot list: Permission denied"* ]]
    [[ $output == *"secret "*"no: cannot open: Permission denied"* ]]
}

@test "a file that the address space has no room for is one broken model" {
    mkdir -p "$T/large"
    cp "$HOME/.cache/llama.cpp/org_tiny-Q5_K_S.gguf" "$T/large/tiny.gguf"
    truncate -s 8G "$T/large/huge.gguf"
    [ "${SAN:-}" != 1 ] || skip "limits are not tested under sanitizers"
    run -0 --separate-stderr env HOME="$T" QWICK_MODEL_PATH="$T/large" \
        bash -c 'ulimit -v 4000000; exec "$0" models --no-speed' "$QWICK"
    [[ $output == *"huge "*"no: out of memory: cannot map "* ]]
    [[ $output == *"tiny "* ]]
}

@test "--names takes time that is linear in the number of models" {
    mkdir -p "$T/many/sub"
    python3 -c 'import sys
for i in range(10000):
    for name in ("m%05d-Q4_0.gguf" % i, "sub/s-%05d-of-10000.gguf" % (i + 2)):
        open(sys.argv[1] + "/" + name, "wb").close()' "$T/many"
    # comparing each with each takes ten times the limit
    (ulimit -t 3; QWICK_MODEL_PATH=$T/many q models --names >"$T/names" 2>"$T/err")
    [ "$(wc -l <"$T/names")" -gt 9000 ]
}

@test "no models, and usage errors" {
    export HOME=$T
    unset QWICK_MODEL_PATH
    [ ! -d /usr/share/ollama/.ollama ] || skip "this system has Ollama's store"
    run -0 --separate-stderr hurried q models
    [ -z "$output" ]
    [ "$stderr" = "qwick: note: there are no models; qwick pull ORG/NAME downloads one" ]
    run -0 --separate-stderr hurried q models -q --json
    [ "$output" = '{"bandwidth":null,"models":[],"aliases":[]}' ]
    [ -z "$stderr" ]
    # no HOME at all
    run -0 --separate-stderr env -u HOME "$QWICK" models -q
    [ -z "$output" ]
    fails 2 "only alias, unalias and rm take arguments" models x
    fails 2 "has no effect with --no-speed" models --no-speed -t 2
    mkdir -p "$T/.cache/llama.cpp"
    echo >"$T/.cache/llama.cpp/a.gguf"
    run -1 --separate-stderr bash -c '"$0" models >/dev/full' "$QWICK"
    [[ $stderr == "qwick: "* ]]
}
