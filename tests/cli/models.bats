#!/usr/bin/env bats
# Checkpoints: finding them, reporting their faults, inspect, logits, bench.
load helpers

setup() {
    common_setup
    IDS=5,9,2,7
}

@test "-m, QWICK_MODEL and the hub cache with its links" {
    want=$(q "list all listening tcp ports")
    [ "$(q -m models/demo "list all listening tcp ports")" = "$want" ]
    [ "$(QWICK_MODEL=./models/demo q "list all listening tcp ports")" = "$want" ]
    [ "$(QWICK_MODEL= q "list all listening tcp ports")" = "$want" ]
    fails 3 "/nonexistent" -m /nonexistent hi
    QWICK_MODEL=/nonexistent fails 3 "/nonexistent" hi
    d=$T/hub/models--org--demo
    mkdir -p "$d/blobs" "$d/refs" "$d/snapshots/abc"
    printf abc >"$d/refs/main"
    i=0
    for f in models/demo/*; do
        i=$((i + 1))
        cp "$f" "$d/blobs/$i"
        ln -s "../../blobs/$i" "$d/snapshots/abc/$(basename "$f")"
    done
    [ "$(HF_HUB_CACHE=$T/hub q -m org/demo "list all listening tcp ports")" = "$want" ]
    [ "$(HF_HOME=$T q -m org/demo "list all listening tcp ports")" = "$want" ]
    mkdir -p "$T/.cache/huggingface"
    mv "$T/hub" "$T/.cache/huggingface/hub"
    [ "$(q -m org/demo "list all listening tcp ports")" = "$want" ]
    fails 3 "org/other" -m org/other hi
}

@test "-m and a short name: one model, several, none" {
    want=$(q "list files")
    mkdir -p "$T/a/org" "$T/b"
    demo_as a/org/Tiny
    export QWICK_MODEL_PATH=$T/a:$T/b
    [ "$(q -m Tiny "list files")" = "$want" ]
    [ "$(q -m tiny "list files")" = "$want" ]
    [ "$(q -m org/Tiny "list files")" = "$want" ]
    [ "$(QWICK_MODEL=TINY q "list files")" = "$want" ]
    # another path to the same directory is no other model
    ln -s ../a/org/Tiny "$T/b/Tiny"
    [ "$(q -m Tiny "list files")" = "$want" ]
    rm "$T/b/Tiny"
    demo_as b/Tiny
    fails 3 "Tiny: 2 models have this name: choose one of org/Tiny, $T/b/Tiny" \
        -m Tiny hi
    # letters that agree exactly go first
    mv "$T/b/Tiny" "$T/b/tiny"
    q inspect -m Tiny | grep -qx "path  *$T/a/org/Tiny"
    q inspect -m tiny | grep -qx "path  *$T/b/tiny"
    # a directory goes before a name
    cd "$T"
    mkdir tiny
    fails 3 "tiny/config.json" -m tiny hi
    # a near name instead of the places
    near="no such directory, and no model has this name; did you mean"
    fails 3 "Tinny: $near Tiny? If not, download it with qwick pull ORG/NAME" -m Tinny hi
    fails 3 "org/Tinny: $near Tiny? If not, download it with qwick pull org/Tinny" -m org/Tinny hi
    mv "$T/a/org/Tiny" "$T/a/org/Tiny-0.6B"
    fails 3 "tiny-06b: $near Tiny-0.6B?" -m tiny-06b hi
    # the beginning of a name; of several, the shortest
    rmdir tiny
    mv "$T/b/tiny" "$T/b/other"
    fails 3 "tiny: $near Tiny-0.6B?" -m tiny hi
    mv "$T/a/org/Tiny-0.6B" "$T/a/org/Tiny-0.6B-Q4"
    cp -r "$T/a/org/Tiny-0.6B-Q4" "$T/a/org/Tiny-0.6B-Q4-long"
    fails 3 "tiny:0.6b: $near Tiny-0.6B-Q4?" -m tiny:0.6b hi
    fails 3 "Tiny-0.6: no such directory, and not in" -m Tiny-0.6 hi
    # a model of another size is not meant
    fails 3 "Tiny-0.8B: no such directory, and not in the Hugging Face cache $T/.cache/huggingface/hub, QWICK_MODEL_PATH's $T/a, $T/b (not on this machine: Ollama's store, LM Studio's store, llama.cpp's cache, ModelScope's cache): download it with qwick pull ORG/NAME" \
        -m Tiny-0.8B hi
    fails 3 "./Tiny: no such directory" -m ./Tiny hi
}

@test "every golden checkpoint runs with ids, without a tokenizer" {
    for m in tied-bf16 f16 f32 sharded-bf16 head128-untied-bf16 yarn \
        legacy-config attention-bias embedding-names mlx4 mlx8 moe gemma3-tied \
        gemma3-gqa qwen35-tied qwen35-f16-long qwen35-wrapped-untied \
        qwen35-moe; do
        [ -d $MODELS/$m ] || continue
        q -m $MODELS/$m --prompt-ids $IDS -n 3 --ignore-eos --json | jget \
            '[0][o["text"] != "" or len(o["tokens"]) != 3]'
    done
    fails 3 "tokenizer" -m $MODELS/tied-bf16 hi
    fails 2 "320" -m $MODELS/tied-bf16 --prompt-ids 320
}

# broken CODE [MODEL]: copy the model (tied-bf16) to $T/m, edited by Python
# code on h (header), data (bytes) and config.
broken() {
    copy_of $MODELS/${2:-tied-bf16} m
    rm -f "$T/m/expected.safetensors"
    python3 -c '
import json, struct, sys
d = sys.argv[1]
raw = open(d + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
h, data = json.loads(raw[8:8 + n]), raw[8 + n:]
config = json.load(open(d + "/config.json"))
exec(sys.argv[2])
j = json.dumps(h).encode() if isinstance(h, dict) else h
open(d + "/model.safetensors", "wb").write(struct.pack("<Q", len(j)) + j + data)
json.dump(config, open(d + "/config.json", "w"))
' "$T/m" "$1"
}

@test "broken checkpoints: exit 3, one line that names the fault" {
    run_m() { fails 3 "$1" -m "$T/m" --prompt-ids $IDS; }
    broken 'pass'
    run -0 q -m "$T/m" --prompt-ids $IDS -n 1
    broken 'data = data[:-100]'
    run_m model.safetensors
    broken 'data += b"x" * 10'
    run_m model.safetensors
    # remove the last tensor with its data
    broken 'k = max((k for k in h if k != "__metadata__"), key=lambda k: h[k]["data_offsets"][1])
data = data[:h[k]["data_offsets"][0]]; del h[k]'
    run_m model
    broken 'h["model.norm.weight"]["dtype"] = "Q7"'
    run_m model.norm.weight
    broken 'h["model.norm.weight"]["shape"] = [63]'
    run_m model.norm.weight
    broken 'h["model.norm.weight"]["shape"] = [2**62, 4]'
    run_m model.norm.weight
    broken 'h = b"{not json"'
    run_m model.safetensors
    broken 'del config["hidden_size"]'
    run_m hidden_size
    broken 'config["hidden_size"] = -64'
    run_m hidden_size
    broken 'config["num_hidden_layers"] = "3"'
    run_m num_hidden_layers
    broken 'config["num_attention_heads"] = 2**32 + 4'
    run_m num_attention_heads
    broken 'config["model_type"] = "mamba2"'
    run_m mamba2
    broken 'config["hidden_act"] = "gelu"'
    run_m gelu
    broken 'del config["rope_parameters"]'
    run_m rope
    printf '{' >"$T/m/config.json"
    run_m config.json
    rm "$T/m/config.json"
    run_m config.json
    mkfifo "$T/m/config.json"
    fails 3 config.json -m "$T/m" --prompt-ids $IDS
    broken 'pass'
    rm "$T/m/model.safetensors"
    run_m safetensors
}

@test "huge files that should be small, and Git LFS pointers in place of files" {
    for f in config.json generation_config.json tokenizer_config.json \
        chat_template.jinja model.safetensors.index.json; do
        copy_of models/demo m
        truncate -s 1T "$T/m/$f" || skip "no sparse files of 1 TiB in $T"
        run -3 --separate-stderr timeout 20 "$QWICK" -m "$T/m" hi </dev/null
        one_error_line
        [[ $stderr == *"/m/$f: 1099511627776 bytes are above the limit of 16777216" ]]
        [ $f != tokenizer_config.json ] ||
            fails 3 "above the limit" quantize -m "$T/m" -o "$T/q"
    done
    # tokenizer.json may be larger, but not this large
    cp models/demo/*.json "$T/m"
    truncate -s 1T "$T/m/tokenizer.json"
    run -3 --separate-stderr timeout 20 "$QWICK" count -m "$T/m" hi </dev/null
    one_error_line
    for f in model.safetensors tokenizer.json; do
        copy_of models/demo m
        printf '%s\n' "version https://git-lfs.github.com/spec/v1" \
            "oid sha256:0123456789abcdef" "size 28000000" >"$T/m/$f"
        fails 3 "/m/$f: is a Git LFS pointer, not the file itself" -m "$T/m" hi
    done
}

@test "a tokenizer with ids that the model does not have" {
    copy_of models/demo m
    size=$(q inspect --json | jget 'o["vocab_size"]')
    cp "$T/m/tokenizer.json" "$T/good"
    # an added token without a row is text
    json_edit "$T/m/tokenizer.json" 'o["added_tokens"].append({"id": '$size',
        "content": "<|beyond|>", "single_word": False, "lstrip": False,
        "rstrip": False, "normalized": False, "special": True})'
    run -0 --separate-stderr q -v -m "$T/m" "list all listening tcp ports"
    [ "$output" = "ss -ltn" ]
    [[ $stderr == *"added tokens with ids $size to $size are text"* ]]
    q inspect -m "$T/m" >"$T/out"
    # a token of the vocabulary is not
    json_edit "$T/m/tokenizer.json" 'o["added_tokens"].pop()
o["model"]["vocab"]["<|beyond|>"] = '$size
    fails 3 "tokenizer.json has ids up to $size, config.json a vocab_size of $size" \
        -m "$T/m" hi
    fails 3 "ids up to $size" inspect -m "$T/m"
    # verbs for text need no model
    equal "$(q tokenize -m "$T/m" "list")" "$(q tokenize "list")"
    # fewer ids than rows are fine
    cp "$T/good" "$T/m/tokenizer.json"
    json_edit "$T/m/tokenizer.json" 'a = o["added_tokens"]
a.remove(max(a, key=lambda x: x["id"]))'
    rm "$T/m/tokenizer_config.json" # which lists it, too
    [ "$(q inspect -m "$T/m" --json |
        jget 'o["tokenizer_size"] < o["vocab_size"]')" = True ]
}

@test "quantized checkpoints: config.json and weights must agree" {
    run_m() { fails 3 "$1" -m "$T/m" --prompt-ids $IDS; }
    E=model.embed_tokens
    broken 'pass' mlx4
    run -0 q -m "$T/m" --prompt-ids $IDS -n 1 --ignore-eos
    broken 'del config["quantization"]' mlx4
    run -0 q -m "$T/m" --prompt-ids $IDS -n 1 --ignore-eos
    broken 'del config["quantization"], config["quantization_config"]' mlx4
    run_m "tensor $E.scales: means quantized weights"
    broken 'config["quantization"]["bits"] = 8' mlx4
    run_m "quantization: has 8 bits in groups of 64, but quantization_config has 4"
    broken 'del config["quantization_config"]
config["quantization"]["bits"] = 8' mlx4
    run_m "tensor $E.weight: shape [320, 16] in the file, [320, 32] by config"
    broken 'del config["quantization_config"]
config["quantization"]["bits"] = 7' mlx4
    run_m "quantization.bits: must be 2, 3, 4, 5, 6 or 8, is 7"
    broken 'del config["quantization_config"]
config["quantization"]["mode"] = "mxfp4"' mlx4
    run_m mxfp4
    broken 'h["'$E'.extra"] = h.pop("'$E'.biases")' mlx4
    run_m "tensor $E.biases: missing"
    broken 'h["'$E'.extra"] = h.pop("'$E'.scales")' mlx4
    run_m "tensor $E.scales: missing"
    for method in awq gptq bitsandbytes compressed-tensors; do
        broken 'config["quantization_config"] = {"quant_method": "'$method'"}'
        run_m "$method"
    done
    broken 'config["model_type"] = "mixture"'
    run_m 'config.json: model_type: "mixture" is not supported; qwick(1) lists what is'
    broken 'config["model_type"] = "mamba2"'
    run_m 'config.json: model_type: "mamba2" is not supported (Mamba layers): use Qwen3.5-4B'
}

@test "a norm or bias that the family does not use is a warning" {
    mkdir "$T/other"
    cp tests/golden/models/tied-bf16/* "$T/other"
    sed -i 's/"model_type": "qwen3"/"model_type": "llama"/' "$T/other/config.json"
    run -0 --separate-stderr q logits -m "$T/other" --prompt-ids 5,6
    [ "$stderr" = "qwick: warning: $T/other: tensor model.layers.0.self_attn.q_norm.weight: a model of type llama does not use it: the results are doubtful" ]
    run -0 --separate-stderr q logits -m tests/golden/models/tied-bf16 --prompt-ids 5,6
    [ -z "$stderr" ]
}

@test "NaN and Infinity, as Python writes them, are numbers that must not be read" {
    copy_of models/demo m
    cp -r "$T/m" "$T/good"
    edit() { json_edit "$T/m/$1" "$2"; }
    inf='float("inf"), float("-inf"), float("nan")'
    edit config.json "o['other'] = [$inf]"
    edit generation_config.json "o['other'] = [$inf]"
    edit tokenizer_config.json "o.update(zip(('model_max_length', 'x', 'y'), ($inf)))"
    ask="list all listening tcp ports"
    equal "$(q -m "$T/m" "$ask")" "$(q "$ask")"
    q quantize -m "$T/m" --bits 8 -o "$T/q" 2>"$T/err"
    [ "$(q count -m "$T/q" "$ask")" -gt 0 ]
    q quantize -m "$T/m" --format gguf -o "$T/q.gguf" 2>"$T/err"
    while read -r file field word; do
        edit $file "o['$field'] = float('$word')"
        fails 3 "$file: $field: must be" -m "$T/m" hi
        cp "$T/good/$file" "$T/m"
    done <<'FIELDS'
config.json rms_norm_eps nan
config.json hidden_size inf
generation_config.json temperature inf
generation_config.json repetition_penalty nan
FIELDS
    # tokenizer.json is not written by Python
    edit tokenizer.json 'o["padding"] = float("nan")'
    fails 3 "tokenizer.json: offset" tokenize -m "$T/m" hi
}

@test "no template: raw prompts and a warning; options that need a template are refused" {
    copy_of models/demo m
    rm -f "$T/m/chat_template.jinja"
    json_edit "$T/m/tokenizer_config.json" 'o.pop("chat_template", None)'
    want=$(q --raw -n 5 --json "git commit" | jget 'o["tokens"]')
    echo '{"prompt":"git commit"}' >"$T/in"
    none="qwick: warning: $T/m: has no chat template: the model continues the prompt as a raw text;"
    run -0 --separate-stderr q -m "$T/m" -n 5 --json "git commit"
    [ "${stderr_lines[*]}" = "$none --raw says that you want this, --chat-template FILE gives one" ]
    [ "$(printf '%s' "$output" | jget 'o["tokens"]')" = "$want" ]
    run -0 --separate-stderr q batch -m "$T/m" -n 5 -i "$T/in"
    [[ $stderr == *"$none"* ]]
    [ "$(printf '%s' "$output" | jget 'o["tokens"]')" = "$want" ]
    # asked for, or without a prompt of text
    run -0 --separate-stderr q -m "$T/m" --raw -n 5 "git commit"
    [ -z "$stderr" ]
    run -0 --separate-stderr q batch -m "$T/m" --raw -n 5 -i "$T/in"
    [ -z "$stderr" ]
    run -0 --separate-stderr q -m "$T/m" --prompt-ids 1 --ignore-eos -n 5
    [ -z "$stderr" ]
    fails 2 "no chat template" -m "$T/m" -s x hi
    # --think: what scripts give to any model
    for think in off auto; do
        run -0 --separate-stderr q -m "$T/m" --think $think -n 5 "git commit"
        [ "${#stderr_lines[@]}" -eq 1 ]
        run -0 --separate-stderr q batch -m "$T/m" --think $think -n 5 -i "$T/in"
        [ "${#stderr_lines[@]}" -eq 1 ]
    done
    run -0 --separate-stderr q -m "$T/m" --think on --think-budget 9 -n 5 "git commit"
    for option in think think-budget; do
        [[ $stderr == *"warning: --$option: has no effect with a checkpoint that has no chat template"* ]]
    done
    # the loop guard is on unless --raw is given
    echo "{\"prompt\":\"x\",\"regex\":\"a{2600}\"}" >"$T/loop"
    [ "$(q batch -q -m "$T/m" -i "$T/loop" | jget 'o["finish_reason"]')" = loop ]
    [ "$(q batch -q --raw -m "$T/m" -i "$T/loop" | jget 'o["finish_reason"]')" != loop ]
    [ "$(q -q --json -m "$T/m" --regex 'a{2600}' x | jget 'o["finish_reason"]')" = loop ]
    [ "$(q -q --json --raw -m "$T/m" --regex 'a{2600}' x | jget 'o["finish_reason"]')" != loop ]
    fails 2 "no chat template" logits -m "$T/m" --chat hi
}

@test "inspect" {
    q inspect | grep -q '^template  *qwen3$'
    q inspect --json >"$T/o"
    python3 - "$T/o" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
assert o["model"] == "qwick-demo" and o["vocab_size"] == 6144
assert o["stop_ids"] == [6137, 6135] and o["template"] == "qwen3"
assert o["tied_head"] is True and o["n_layers"] == 8
assert sum(k["bytes"] for k in o["tensor_kinds"]) == o["weight_bytes"]
PY
    q inspect --json --tensors | jget '[0][
        sum(t["bytes"] for t in o["tensors"] if t["used"]) != o["weight_bytes"]
        or "shape" not in o["tensors"][0]]'
    q inspect --tensors | grep -c '"model\.' | grep -qx 90
    q inspect -m $MODELS/mlx8 | grep -q '^quantization  *8 bits, group size 32,'
    q inspect -m $MODELS/mlx8 --json >"$T/o"
    q inspect -m $MODELS/tied-bf16 --json >"$T/dense"
    python3 - "$T/o" "$T/dense" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
z = o["quantization"]
assert z["bits"] == 8 and z["group_size"] == 32 and z["overrides"] == 0
p = z["params_by_bits"]
assert set(p) == {"8", "dense"} and sum(p.values()) == o["n_params"]
assert o["weights_dtype"] == "8-bit (group 32)"
assert z["bits_per_param"] == round(8 * o["weight_bytes"] / o["n_params"], 3)
assert sum(k["bytes"] for k in o["tensor_kinds"]) == o["weight_bytes"]
assert {k["dtype"] for k in o["tensor_kinds"]} == {"U32", "BF16"}
# a token reads one row of the embedding: 128 elements, 4 scales, 4 biases
assert o["decode_bytes"] == o["weight_bytes"] - 319 * (128 + 16)
assert json.load(open(sys.argv[2]))["quantization"] is None
PY
    q inspect -m $MODELS/sharded-bf16 --json --tensors | jget \
        '[0][len(set(t["file"] for t in o["tensors"])) != 3]'
}

@test "logits: tabs, JSON, safetensors" {
    [ "$(q logits git | wc -l)" -eq 10 ]
    equal "$(q logits --isa ref --top 3 "tar x")" \
        $'833\t15.554014\t-0.923012\t0.397320\t"tar"
1533\t14.350709\t-2.126318\t0.119276\t"af"
2348\t14.086946\t-2.390081\t0.091622\t"vf"'
    # with --all, the position comes first
    q logits --exact --all --top 2 "git commit" >"$T/all"
    equal "$(cut -f 1 "$T/all" | uniq -c | tr -s ' \n' ' ')" " 2 0 2 1 "
    equal "$(tail -n 2 "$T/all" | cut -f 2-)" "$(q logits --exact --top 2 "git commit")"
    q logits --top 6144 --json git | python3 -c '
import json, math, sys
p = json.load(sys.stdin)["positions"]
assert len(p) == 1 and len(p[0]["top"]) == 6144
assert abs(sum(math.exp(t["logprob"]) for t in p[0]["top"]) - 1) < 1e-6
v = [t["logit"] for t in p[0]["top"]]
assert v == sorted(v, reverse=True)'
    q logits --exact -o "$T/all" --all "git commit"
    q logits --exact -o "$T/last" "git commit"
    q logits --exact --all --top 1 --json "git commit" >"$T/json"
    python3 - "$T/all" "$T/last" "$T/json" <<'PY'
import array, json, struct, sys
def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    h = json.loads(raw[8:8 + n])
    out = {}
    for k, t in h.items():
        if k == "__metadata__":
            continue
        b, e = t["data_offsets"]
        a = array.array({"F32": "f", "I64": "q"}[t["dtype"]])
        a.frombytes(raw[8 + n + b:8 + n + e])
        out[k] = (t["shape"], a)
    return out
a, l = load(sys.argv[1]), load(sys.argv[2])
o = json.load(open(sys.argv[3]))
ids = o["input_ids"]
assert a["input_ids"] == l["input_ids"] and list(a["input_ids"][1]) == ids
assert a["input_ids"][0] == [len(ids)]
assert a["logits"][0] == [len(ids), 6144] and l["logits"][0] == [1, 6144]
assert a["logits"][1][-6144:] == l["logits"][1]
for pos, p in enumerate(o["positions"]):
    row = a["logits"][1][pos * 6144:(pos + 1) * 6144]
    assert p["pos"] == pos and p["top"][0]["logit"] == max(row)
    assert row[p["top"][0]["id"]] == max(row)
PY
    [ "$(q logits --chat --json hi | jget 'len(o["input_ids"])')" -eq \
        "$(q --json -n 1 hi | jget 'o["usage"]["prompt_tokens"]')" ]
    fails 1 "$T/no/x" logits -o "$T/no/x" hi
    [ -z "$(ls "$T" | grep tmp || true)" ]
}

@test "logits that are NaN are an error" {
    copy_of "$MODELS/tied-bf16" nan
    weights_edit "$T/nan/model.safetensors" 'data = b"\xff" * len(data)'
    for a in "" "--json" "--all"; do
        fails 1 "logits: not finite" logits -m "$T/nan" --prompt-ids 1,2 $a
    done
    fails 1 "logits: not finite" -m "$T/nan" --prompt-ids 1,2
}

@test "logits -o: rows that are not finite leave no file, and the old one as it was" {
    copy_of "$MODELS/head128-untied-bf16" nan
    # the embedding of id 5, and nothing else
    weights_edit "$T/nan/model.safetensors" 'name = "model.embed_tokens.weight"
row = 2 * h[name]["shape"][1]
i = at(name) + 5 * row
data[i:i + row] = b"\xff" * row'
    mkdir "$T/out"
    for a in "" "--all"; do
        fails 1 "logits: not finite at position 2" logits -m "$T/nan" -o "$T/out/x" \
            --prompt-ids 1,2,5 $a
        [ -z "$(ls -A "$T/out")" ]
    done
    q logits -m "$T/nan" -o "$T/out/x" --prompt-ids 1,2 --all
    sum=$(cksum "$T/out/x")
    fails 1 "logits: not finite" logits -m "$T/nan" -o "$T/out/x" --prompt-ids 5
    equal "$sum" "$(cksum "$T/out/x")"
}

# tied NAME CODE [GOLDEN]: $T/NAME is a golden with a head of its own whose config.json
# says that it is tied. Python code may change embed and head, two byte arrays, and
# config.
tied() {
    cp -r "$MODELS/${3:-head128-untied-bf16}" "$T/$1"
    chmod -R u+w "$T/$1"
    python3 - "$T/$1" "$2" <<'PY'
import json, struct, sys
path = sys.argv[1] + "/model.safetensors"
raw = open(path, "rb").read()
n = 8 + struct.unpack_from("<Q", raw)[0]
where = {k: v["data_offsets"] for k, v in json.loads(raw[8:n]).items() if k != "__metadata__"}
config = json.load(open(sys.argv[1] + "/config.json"))
config["tie_word_embeddings"] = True
if "text_config" in config:
    config["text_config"]["tie_word_embeddings"] = True
b, e = where[next(k for k in where if k.endswith("embed_tokens.weight"))]
embed = bytearray(raw[n + b:n + e])
b, e = where["lm_head.weight"]
head = bytearray(raw[n + b:n + e])
exec(sys.argv[2])
open(path, "wb").write(raw[:n + b] + head + raw[n + e:])
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
PY
}

# logits_of MODEL: its logits for three ids, without warnings.
logits_of() {
    q logits -q --exact -m "$1" --prompt-ids 1,2,3 --json | jget 'o["positions"]'
}

@test "a head of its own counts, although the config says that it is tied" {
    tied differs ''
    tied equal 'head = embed'
    # one row that the comparison for the warning leaves out
    tied row 'head = embed[:]; head[5 * 256:6 * 256] = bytes(256)'
    run -0 --separate-stderr q logits -m "$T/differs" --prompt-ids 1
    [ "$stderr" = "qwick: warning: $T/differs: lm_head.weight differs from the embedding,\
 although tie_word_embeddings is true: lm_head.weight is used" ]
    equal "$(logits_of "$T/differs")" "$(logits_of "$MODELS/head128-untied-bf16")"
    [ "$(logits_of "$T/row")" != "$(logits_of "$T/equal")" ]
    for m in equal row; do
        run -0 --separate-stderr q logits -m "$T/$m" --prompt-ids 1
        [ -z "$stderr" ]
    done
    # quantize compares all rows: it drops an equal head and keeps another one
    for m in differs equal row; do
        q quantize -q --format gguf --type BF16 -m "$T/$m" -o "$T/$m.gguf"
        equal "$(logits_of "$T/$m.gguf")" "$(logits_of "$T/$m")"
        q quantize -q --bits 8 -m "$T/$m" -o "$T/$m.mlx"
        tie=$(jget 'o["tie_word_embeddings"]' <"$T/$m.mlx/config.json")
        heads=$(q inspect --tensors -m "$T/$m.mlx" | grep -c '"lm_head.weight"' || true)
        ggufs=$(q inspect --tensors -m "$T/$m.gguf" | grep -c '"output.weight"' || true)
        case $m in
        equal) equal "$tie $heads $ggufs" "True 0 0" ;;
        *) equal "$tie $heads $ggufs" "False 1 1" ;;
        esac
    done
    # also where text_config says it
    tied wrapped '' qwen35-wrapped-untied
    equal "$(logits_of "$T/wrapped")" "$(logits_of "$MODELS/qwen35-wrapped-untied")"
    q quantize -q --bits 8 -m "$T/wrapped" -o "$T/wrapped.mlx"
    equal "$(jget 'o["tie_word_embeddings"], o["text_config"]["tie_word_embeddings"]' \
        <"$T/wrapped.mlx/config.json")" "(False, False)"
    # the result says so itself
    run -0 --separate-stderr q logits -m "$T/differs.mlx" --prompt-ids 1
    [ -z "$stderr" ]
}

# edited NAME CODE: $T/NAME is the demo model with the name of an embedding model, whose
# config.json Python code changes.
edited() {
    demo_as "$1-embedding"
    rm "$T/$1-embedding/config.json"
    cp models/demo/config.json "$T/$1-embedding/"
    json_edit "$T/$1-embedding/config.json" "$2"
}

# warns N PATTERN ARGS...: exit 0, and N lines on stderr with the pattern, all warnings.
warns() {
    local n=$1 pattern=$2
    shift 2
    run -0 --separate-stderr q "$@"
    equal "$(grep -c "^qwick: warning: .*$pattern" <<<"$stderr" || true)" "$n"
    equal "${#stderr_lines[@]}" "$n"
}

@test "architectures say what a checkpoint is for" {
    is='Model": is run as qwen3, which it may not be: the results are doubtful'
    edited none 'del o["architectures"]'
    edited image 'o["architectures"] = ["Qwen3ForConditionalGeneration"]'
    edited bare 'o["architectures"] = ["Qwen3Model"]'
    edited other 'o["architectures"] = ["Qwen3ForTokenModels"]'
    for m in none image; do
        for v in "--think off -n 5 files" "logits hi" "embed hi" "score ls,files"; do
            warns 0 "" $v -m "$T/$m-embedding"
        done
    done
    warns 0 "" embed hi -m "$T/bare-embedding"
    for v in "--think off -n 5 files" "logits hi" "score ls,files" "choose -a x -a y hi"; do
        warns 1 "bare-embedding: architectures: \"Qwen3$is" $v -m "$T/bare-embedding"
    done
    for v in "--think off -n 5 files" "logits hi" "embed hi" "score ls,files"; do
        warns 1 "other-embedding: architectures: \"Qwen3ForTokenModels\": is run as" $v -m "$T/other-embedding"
        warns 0 "" $v -q -m "$T/other-embedding"
    done
    warns 0 "" count hi -m "$T/other-embedding"
    edited code 'o["auto_map"] = {"AutoConfig": "c.C", "AutoModel": "m.M"}'
    for v in "--think off -n 5 files" "embed hi"; do
        warns 1 "auto_map.AutoModel: the model has code of its own" $v -m "$T/code-embedding"
    done
    edited bad 'o["architectures"] = "Qwen3ForCausalLM"'
    fails 3 "config.json: architectures: must be a list of names" hi -m "$T/bad-embedding"
}

@test "fields of config.json that change results and are not computed are refused" {
    edited causal 'o["is_causal"] = False'
    for v in "hi -n 1" "embed hi" "quantize -o $T/q"; do
        fails 3 "causal-embedding/config.json: is_causal: must be true (others are not supported), is false" \
            $v -m "$T/causal-embedding"
    done
    edited layers 'o["per_layer_config"] = {"3": {"head_dim": 32}}'
    fails 3 "per_layer_config: must be empty (others are not supported), is an object" \
        hi -m "$T/layers-embedding"
}

@test "an embedding model without a head" {
    copy_of "$MODELS/embedding-names" embedding
    python3 tests/cli/byte_tokenizer.py "$T/embedding"
    want=$(q embed --exact -m "$T/embedding" "list files")
    sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$T/embedding/config.json"
    grep -q '"tie_word_embeddings": false' "$T/embedding/config.json"
    equal "$(q embed --exact -m "$T/embedding" "list files")" "$want"
    for v in "hi" "logits hi" "rerank -q x a"; do
        fails 3 "tensor lm_head.weight: missing, so that only embed can be used" $v -m "$T/embedding"
    done
}

@test "logits equal the goldens in --exact" {
    for m in tied-bf16 mlx4; do
        python3 - "$QWICK" $MODELS/$m "$T/out" <<'PY'
import array, json, struct, subprocess, sys
def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for k, t in json.loads(raw[8:8 + n]).items():
        if k != "__metadata__":
            b, e = t["data_offsets"]
            a = array.array({"F32": "f", "I64": "q"}[t["dtype"]])
            a.frombytes(raw[8 + n + b:8 + n + e])
            out[k] = a
    return out
want = load(sys.argv[2] + "/expected.safetensors")
ids = ",".join(map(str, want["input_ids"]))
subprocess.run([sys.argv[1], "logits", "-m", sys.argv[2], "--exact", "--all",
                "--prompt-ids", ids, "-o", sys.argv[3]],
               stdin=subprocess.DEVNULL, check=True)
got = load(sys.argv[3])["logits"]
num = sum((a - b) ** 2 for a, b in zip(got, want["logits"])) ** 0.5
den = sum(b * b for b in want["logits"]) ** 0.5
assert num / den <= 2e-5, num / den
o = json.loads(subprocess.run(
    [sys.argv[1], "-m", sys.argv[2], "--exact", "--greedy", "--ignore-eos",
     "-n", "16", "--json", "--prompt-ids", ids], stdin=subprocess.DEVNULL,
    check=True, capture_output=True).stdout)
assert o["tokens"] == list(want["greedy"])
PY
    done
}

@test "bench: table, Markdown, JSON" {
    hurried q bench --reps 2 --warmup 0 --gen 4 --prompt-lens 8,16 --depths 4 \
        -t 1,2 --json >"$T/o"
    python3 - "$T/o" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
r = o["results"]
assert [(x["test"], x["threads"]) for x in r] == [
    ("prefill", 1), ("prefill", 1), ("decode", 1),
    ("prefill", 2), ("prefill", 2), ("decode", 2)], r
assert [x.get("tokens") for x in r[:2]] == [8, 16] and r[2]["depth"] == 4
assert all(x["tok_s"] > 0 and x["spread"] >= 0 and x["percent_of_limit"] > 0
           for x in r)
assert o["gen"] == 4
assert all(x["limit"] > 0 and x["least_percent"] <= x["percent_of_limit"]
           <= x["most_percent"] for x in r)
PY
    hurried q bench --reps 1 --gen 4 --prompt-lens 8 -t 1 --batches 1,3 --parts --json \
        >"$T/o"
    python3 - "$T/o" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))["results"]
assert [(x["test"], x["batch"]) for x in r] == [
    ("prefill", 1), ("decode", 1), ("batch", 1), ("batch", 3)], r
parts = {"embedding", "norms", "projections", "attention", "head", "barriers"}
assert all(set(x["parts_ms"]) - {"sampling"} == parts for x in r)
assert r[1]["parts_ms"]["sampling"] > 0 and "sampling" not in r[0]["parts_ms"]
PY
    hurried q bench --reps 1 --warmup 0 --gen 4 --prompt-lens 8 -t 1 --parts --md >"$T/md"
    grep -q '^| attention | ' "$T/md"
    grep -q '^| decode |' "$T/md"
    fails 4 "2048" bench --prompt-lens 4096
}
