#!/usr/bin/env bats
# Gemma 3 from the shell: its kind of tokenizer and chat template, and GGUF files.
load helpers

# A small checkpoint in the layout of released ones, and the same as a GGUF file.
setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    mkdir "$BATS_FILE_TMPDIR/gemma"
    python3 tests/cli/gemma.py "$BATS_FILE_TMPDIR/gemma"
    python3 tests/cli/gguf.py convert "$BATS_FILE_TMPDIR/gemma" "$BATS_FILE_TMPDIR/gemma.gguf"
}

setup() {
    common_setup
    ln -s "$BATS_FILE_TMPDIR/gemma" "$T/m"
    GEMMA="$T/m $BATS_FILE_TMPDIR/gemma.gguf"
}

@test "a chat by a template of Gemma's kind" {
    chat='[{"role": "user", "content": " hi there "}]'
    want=$(printf '<bos><start_of_turn>user\nhi there<end_of_turn>\n<start_of_turn>model\n.')
    [ "$(q render -m "$T/m" "$chat"; printf .)" = "$want" ]
    # control tokens, and blanks as U+2581's
    [ "$(q tokenize -m "$T/m" "<bos>hi there<end_of_turn>")" = "2 353 354 542 2114 12" ]
    # not in plain text
    [ "$(q tokenize -m "$T/m" --no-special "<bos>" | wc -w)" -gt 1 ]
}

@test "the tokenizer of a GGUF file is that of tokenizer.json" {
    python3 -c 'import json
for line in open("tests/golden/gemma-tokenizer/visible.jsonl"):
    o = json.loads(line)
    if "skip_special" not in o:
        print(json.dumps({"text": o["text"]}))' >"$T/texts"
    [ "$(wc -l <"$T/texts")" -gt 150 ]
    for m in $GEMMA; do
        q tokenize --jsonl -m "$m" -i "$T/texts" >"$T/ids.${m##*/}" || return 1
        q detokenize --jsonl -m "$m" -i "$T/ids.${m##*/}" >"$T/back.${m##*/}"
    done
    cmp "$T/ids.m" "$T/ids.gemma.gguf"
    cmp "$T/back.m" "$T/back.gemma.gguf"
    # a megabyte without blanks
    head -c 750000 /dev/urandom | base64 -w 0 >"$T/long"
    equal "$(q count -m "$T/m" -f "$T/long")" "$(q count -m "$BATS_FILE_TMPDIR/gemma.gguf" -f "$T/long")"
}

@test "a chat through generate, batch and choose, from both containers" {
    printf '%s\n' '{"id":1,"prompt":"count to three"}' \
        '{"id":2,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes?"},{"role":"user","content":"a haiku about windows of attention, please, and make it short"}]}' \
        '{"id":3,"prompt":"count to four"}' >"$T/in"
    for m in $GEMMA; do
        q --json --exact -n 30 -m "$m" "why is the sky blue?" | bare >"$T/generate.${m##*/}"
        q --json --exact -n 30 --temp 1 --seed 3 -m "$m" "why is the sky blue?" | bare >"$T/sample.${m##*/}"
        q batch --exact -n 20 -i "$T/in" -m "$m" | bare >"$T/batch.${m##*/}"
        q choose --exact --json -a yes -a no -a "I do not know" -m "$m" "is it raining?" |
            bare >"$T/choose.${m##*/}"
        q render -m "$m" '[{"role":"user","content":"x"}]' >"$T/render.${m##*/}"
        q score --exact --json --chat --given "say it" -m "$m" "it" | bare >"$T/score.${m##*/}"
    done
    for f in generate sample batch choose render score; do
        diff "$T/$f.m" "$T/$f.gemma.gguf"
        [ -s "$T/$f.m" ]
    done
    jget '[0][len(o["tokens"]) != 30 or len(set(o["tokens"])) < 4]' <"$T/generate.m"
    # in a batch as alone
    [ "$(q --json --exact -n 20 -m "$T/m" "count to four" | jget 'o["tokens"]')" = \
        "$(tail -n 1 "$T/batch.m" | jget 'o["tokens"]')" ]
    # the turn's end ends an answer
    for m in $GEMMA; do
        q inspect --json -m "$m" | jget '[0][12 not in o["stop_ids"]]'
    done
}

@test "texts without a template begin with <bos>" {
    ids() { q --raw -n 1 --json "$@" | jget 'o["prompt_ids"]'; }
    printf '{"prompt":"hi"}\n{"prompt":"<bos>hi"}\n' >"$T/in"
    for m in $GEMMA; do
        [ "$(ids -m "$m" "hi there")" = "[2, 353, 354, 542, 2114]" ]
        [ "$(ids -m "$m" "<bos>hi there")" = "[2, 353, 354, 542, 2114]" ]
        [ "$(ids -m "$m" "hi <bos>")" = "[2, 353, 354, 270, 2]" ]
        [ "$(q logits --json -m "$m" "hi" | jget 'o["input_ids"]')" = "[2, 353, 354]" ]
        q batch --raw -n 1 -m "$m" -i "$T/in" | jlines '[r["usage"]["prompt_tokens"] for r in o] == [3, 3]'
        # its first token follows <bos>, and is scored
        want=$(q score --exact -m "$m" "hi")
        [[ $want == *"#scored_tokens	2"* ]]
        [ "$(q score --exact -m "$m" --given "<bos>" "hi")" = "$want" ]
        [[ $(q score --exact -m "$m" "<bos>hi") == *"#scored_tokens	2"* ]]
        [ "$(q choose --raw --json -a x -a y -m "$m" hi | jget 'o["prompt_tokens"]')" -eq 3 ]
        # not in what counts or shows tokens, and not twice in a chat
        [ "$(q tokenize -m "$m" "hi there")" = "353 354 542 2114" ]
        [ "$(q count -m "$m" "hi there")" -eq 4 ]
        q --json -n 1 -m "$m" hi | jget '[0]["prompt_ids" in o]'
        # a session that goes on has its first token
        q --raw -n 2 --json -m "$m" --save-session "$T/s" hi >"$T/first"
        [ "$(ids -m "$m" --session "$T/s" " there" | jget 'o.count(2)')" -eq 1 ]
        rm "$T/s"
    done
    equal "$(q embed -m "$T/m" hi 2>/dev/null | cksum)" "$(q embed --allow-special -m "$T/m" "<bos>hi" 2>/dev/null | cksum)"
}

@test "add_bos_token decides, then the post-processor" {
    cp -RL "$T/m" "$T/c"
    first() { q logits --json -m "$1" "hi" | jget 'o["input_ids"][0]'; }
    settings() { python3 -c 'import json, sys
path = sys.argv[1] + "/" + sys.argv[2]
o = json.load(open(path))
exec(sys.argv[3])
json.dump(o, open(path, "w"))' "$T/c" "$1" "$2"; }
    settings tokenizer_config.json 'o["add_bos_token"] = False'
    [ "$(first "$T/c")" -eq 353 ]
    # vectors of texts without it and with it are not mixed
    seq 100000 >"$T/in"
    "$QWICK" embed -q -m "$T/c" --lines -i "$T/in" -o "$T/out" &
    until [ -s "$T/out.pending" ]; do sleep 0.01; done
    kill -KILL $!
    wait $! || true
    settings tokenizer_config.json 'del o["add_bos_token"]'
    fails 2 "vectors of an unfinished run with another model" embed -m "$T/c" \
        --lines -i "$T/in" -o "$T/out"
    [ "$(first "$T/c")" -eq 2 ]
    settings tokenizer.json 'o["post_processor"] = None'
    [ "$(first "$T/c")" -eq 353 ]
    settings tokenizer_config.json 'o["add_bos_token"] = False'
    [ "$(first "$T/c")" -eq 353 ]
    settings tokenizer_config.json 'o.update(add_bos_token=True, bos_token={"content": "<mask>"})'
    [ "$(first "$T/c")" -eq 4 ]
    # a token that the tokenizer lacks gets the next id
    settings tokenizer_config.json 'o["bos_token"] = "<new>"'
    size=$(q inspect -m "$T/c" --json | jget 'o["tokenizer_size"]')
    [ "$(first "$T/c")" -eq $((size - 1)) ]
    [ "$(q detokenize -m "$T/c" $((size - 1)))" = "<new>" ]
    settings tokenizer_config.json 'o["bos_token"] = None'
    run --separate-stderr q logits --json -m "$T/c" "hi"
    [ "$(jget 'o["input_ids"][0]' <<<"$output")" -eq 353 ]
    [[ $stderr == *"add_bos_token: is true, but bos_token is not an added token"* ]]
    # older checkpoints have the tokens in a file of their own, which wins unless
    # tokenizer_config.json lists added tokens
    settings tokenizer_config.json 'o["bos_token"] = "<mask>"'
    echo '{"bos_token": {"content": "<unused0>"}, "pad_token": "<mask>"}' >"$T/c/special_tokens_map.json"
    [ "$(first "$T/c")" -eq 5 ]
    [[ $(q render -m "$T/c" '[{"role":"user","content":"x"}]') == "<unused0><start_of_turn>"* ]]
    settings tokenizer_config.json 'o["added_tokens_decoder"] = {}'
    [ "$(first "$T/c")" -eq 4 ]
    settings tokenizer_config.json 'del o["added_tokens_decoder"]'
    echo '[]' >"$T/c/special_tokens_map.json"
    fails 3 "special_tokens_map.json: must be a JSON object" logits -m "$T/c" "hi"
    echo '{' >"$T/c/special_tokens_map.json"
    fails 3 "special_tokens_map.json" logits -m "$T/c" "hi"
    rm "$T/c/special_tokens_map.json"
    echo '"x"' >"$T/c/tokenizer_config.json"
    fails 3 "tokenizer_config.json: must be a JSON object" logits -m "$T/c" "hi"
}

@test "prefix caches have prompts longer than the windows" {
    long=$(python3 -c 'print("count the words in this sentence again and " * 100)')
    for i in 1 2; do
        q --prefix-cache="$T/cache" -m "$T/m" --json --exact -n 4 "$long" >"$T/$i"
    done
    [ "$(jget 'o["usage"]["cached_tokens"] > 1000' <"$T/2")" = True ]
    equal "$(jget 'o["tokens"]' <"$T/1")" "$(jget 'o["tokens"]' <"$T/2")"
    # in memory, after the first record has ended
    printf '{"prompt":"a"}\n{"prompt":"b"}\n' >"$T/in"
    q batch --max-batch 1 -n 4 -m "$T/m" -s "$long" -i "$T/in" |
        jlines '[r["usage"]["cached_tokens"] > 1000 for r in o] == [False, True]'
}

@test "quantized Gemma answers" {
    q quantize --bits 8 --group 32 -m "$T/m" -o "$T/q8"
    q --json -n 10 -m "$T/q8" "why is the sky blue?" | jget '[0][len(o["tokens"]) != 10]'
    # an answer that is all but certain stays so
    sure() { jget 'o["answer"], o["probability"] > 0.99'; }
    want=$(q choose --json -a yes -a no -m "$T/m" "is it" | sure)
    [[ $want == *True* ]]
    [ "$(q choose --json -a yes -a no -m "$T/q8" "is it" | sure)" = "$want" ]
}

@test "SentencePiece in GGUF: defaults of keys that are not there" {
    mkdir "$T/c"
    python3 tests/cli/gemma.py "$T/c" closed
    q quantize --format gguf --type BF16 -m "$T/c" -o "$T/c.gguf"
    edit() { python3 tests/cli/gguf.py edit "$T/c.gguf" "$T/$1.gguf" "
arch = lambda name: kv.update({'general.architecture': [8, name]})
K = 'tokenizer.ggml.'
$2"; }
    edit none 'del kv[K + "add_space_prefix"]; arch("llama")'
    edit yes 'kv[K + "add_space_prefix"] = [7, True]; arch("llama")'
    edit no 'kv[K + "add_space_prefix"] = [7, False]; arch("llama")'
    edit gemma 'del kv[K + "add_space_prefix"]'
    edit gemma2 'del kv[K + "add_space_prefix"]; arch("gemma2")'
    text="the sky<bos>is blue"
    of() { q tokenize -m "$T/$1.gguf" "${2-$text}"; }
    equal "$(of c)" "$(q tokenize -m "$T/c" "$text")"
    for m in gemma gemma2 no; do
        equal "$(of $m)" "$(of c)"
    done
    # a blank before the text, and after added tokens
    equal "$(of yes)" "$(of c " the sky<bos> is blue")"
    equal "$(of none)" "$(of yes)"
    [ "$(of none)" != "$(of c)" ]
    [ -z "$(of none "")" ]
    # the ids of SentencePiece's own tokens
    edit bos 'del kv[K + "bos_token_id"], kv[K + "add_bos_token"]'
    equal "$(q logits --json -m "$T/bos.gguf" hi | jget 'o["input_ids"][0]')" 1
}

@test "quantize writes a GGUF file that answers as the checkpoint" {
    mkdir "$T/c"
    python3 tests/cli/gemma.py "$T/c" closed
    q quantize --format gguf --type BF16 -m "$T/c" -o "$T/c.gguf"
    python3 -c 'import json
for line in open("tests/golden/gemma-tokenizer/visible.jsonl"):
    o = json.loads(line)
    if "skip_special" not in o:
        print(json.dumps({"text": o["text"]}))' >"$T/texts"
    for m in c c.gguf; do
        {
            q tokenize --jsonl -m "$T/$m" -i "$T/texts"
            q render -m "$T/$m" '[{"role":"user","content":"x"}]'
            q --json --exact -n 30 -m "$T/$m" "why is the sky blue?" | bare
            q --raw --json --exact -n 9 -m "$T/$m" "why is  the sky" | bare
            q choose --exact --json -a yes -a no -m "$T/$m" "is it raining?" | bare
            q score --exact --json --chat --given "say it" -m "$T/$m" "it" | bare
            q inspect -m "$T/$m" | grep -E "^(n ctx max|rope|rms|sliding|stop)" | sort
        } >"$T/out.$m"
    done
    [ "$(wc -l <"$T/out.c")" -gt 170 ]
    diff "$T/out.c" "$T/out.c.gguf"
    q quantize --format gguf --type Q4_0 -m "$T/c" -o "$T/q4.gguf"
    q --json -n 10 -m "$T/q4.gguf" "why is the sky blue?" | jget '[0][len(o["tokens"]) != 10]'
    q inspect -m "$T/q4.gguf" | grep -q "^quantization *Q4_0"
    # as converters of SentencePiece models write it
    python3 - "$T/c.gguf" <<'EOF'
import re, sys
sys.path.insert(0, "tests/cli")
from gguf import *
kv, _ = read(sys.argv[1])
get = lambda k: kv["tokenizer.ggml." + k][1]
assert get("model") == b"llama" and get("pre") == b"default"
assert get("add_bos_token") is True and get("add_space_prefix") is False
assert (get("bos_token_id"), get("eos_token_id"), get("unknown_token_id"),
        get("padding_token_id"), get("eot_token_id")) == (2, 1, 3, 0, 12)
tokens, types, scores = (get(k)[1] for k in ("tokens", "token_type", "scores"))
assert len(tokens) == len(types) == len(scores) == 3520
for t, k, s in zip(tokens, types, scores):
    want = 2 if t == b"<unk>" else 6 if re.fullmatch(rb"<0x[0-9A-F]{2}>", t) else \
        5 if t.startswith(b"[PAD") else 4 if t in (b"<table>", b"</table>", b"[multimodal]") else \
        3 if re.fullmatch(rb"<[a-z_0-9]+>", t) else 1
    assert k == want, (t, k)
    assert (s <= 0) if k == 1 else s == {6: 0, 5: -10000}.get(k, -1000), (t, s)
normal = [s for k, s in zip(types, scores) if k == 1]
assert len(set(normal)) == len(normal)
EOF
}

@test "quantize refuses a tokenizer whose merges no scores can replace" {
    # the golden one has one way to make each token
    fails 3 "tokenizer.json: model.merges: " quantize --format gguf -m "$T/m" -o "$T/x.gguf"
    [[ $stderr == *"are no merge, but make a token together: a GGUF file has scores"* ]]
    [ ! -e "$T/x.gguf" ]
    mkdir "$T/c"
    python3 tests/cli/gemma.py "$T/c" closed
    mv "$T/c/tokenizer.json" "$T/closed.json"
    change() {
        python3 -c 'import json, sys
t = json.load(open(sys.argv[1]))
m, v = t["model"]["merges"], t["model"]["vocab"]
exec(sys.argv[3])
json.dump(t, open(sys.argv[2], "w"))' "$T/closed.json" "$T/c/tokenizer.json" "$1"
        fails 3 "$2" quantize --format gguf -m "$T/c" -o "$T/x.gguf"
    }
    change 'i = next(i for i in range(len(m)) if "".join(m[i]) == "".join(m[i + 1])); m.append(m.pop(i))' \
        "merges that make one token do not follow one another"
    change 'v["\u0416\u0416\u0416"] = v.pop("<unused0>"); del t["added_tokens"][5]' \
        "has a character that is no token"
    change 'v["a b"] = v.pop("<unused0>"); del t["added_tokens"][5]' "has a blank"
    change 'v["a" * 1100] = v.pop("<unused0>"); del t["added_tokens"][5]' "has more than 1024 bytes"
    change 'v["\u2581<x>"] = v.pop("<unused0>"); t["added_tokens"][5].update(content="\u2581<y>", special=False, id=3473)' \
        "has U+2581 and nothing makes it"
}

# gguf CODE: $T/x.gguf is the golden, changed by Python code on kv and tensors.
gguf() {
    gguf_edit tests/golden/gguf/gemma3-tied.gguf "$T/x.gguf" "$1"
}

# checkpoint CODE: $T/x is the checkpoint of the golden, c its config.json.
checkpoint() {
    rm -rf "$T/x"
    mkdir "$T/x"
    ln -s "$PWD/$MODELS/gemma3-tied/model.safetensors" "$T/x"
    python3 -c 'import json, sys
c = json.load(open(sys.argv[1]))
exec(sys.argv[3])
json.dump(c, open(sys.argv[2], "w"))' $MODELS/gemma3-tied/config.json "$T/x/config.json" "$1"
}

# logits MODEL: of 40 ids, more than the windows of the goldens have.
logits() {
    q logits --exact --json --top 384 --prompt-ids "$(seq -s, 0 7 273)" -m "$1" |
        jget '[(t["id"], t["logit"]) for t in o["positions"][0]["top"]]'
}

@test "GGUF's metadata and config.json say the same" {
    golden=$(logits tests/golden/gguf/gemma3-tied.gguf)
    [ "$golden" = "$(logits $MODELS/gemma3-tied)" ]
    window="kv['gemma3.attention.sliding_window'] ="
    pattern="kv['gemma3.attention.sliding_window_pattern'] ="
    while IFS='|' read -r meta config; do
        gguf "$meta"
        checkpoint "$config"
        changed=$(logits "$T/x.gguf")
        [ "$changed" = "$(logits "$T/x")" ] || { echo "$meta"; return 1; }
        [ "$changed" != "$golden" ] || { echo "no change: $meta"; return 1; }
    done <<EOF
$window [4, 8]|c["sliding_window"] = 8
$window [4, 0]|c["layer_types"] = ["full_attention"] * 7
del kv['gemma3.attention.sliding_window']|c["layer_types"] = ["full_attention"] * 7
$pattern [4, 3]|c["layer_types"] = (["sliding_attention"] * 2 + ["full_attention"]) * 2 + ["sliding_attention"]
$pattern [4, 0]|c["layer_types"] = ["sliding_attention"] * 7
$pattern [9, (7, [i % 2 for i in range(7)])]|c["layer_types"] = ["full_attention", "sliding_attention"] * 3 + ["full_attention"]
kv['gemma3.rope.freq_base_swa'] = [6, 2e4]|c["rope_parameters"]["sliding_attention"]["rope_theta"] = 20000
kv['gemma3.rope.freq_base'] = [6, 2e4]|c["rope_parameters"]["full_attention"]["rope_theta"] = 20000
kv['gemma3.rope.scaling.type'] = [8, 'linear']; kv['gemma3.rope.scaling.factor'] = [6, 8.0]|c["rope_parameters"]["full_attention"].update(rope_type="linear", factor=8)
EOF
}

@test "the score scale of a GGUF file follows from its shape" {
    # only the 27B model has 62 layers; its scale is that of d_model / n_heads,
    # here 16, and not that of head_dim, 32
    gguf "
for i in range(7, 62):
    tensors += [['blk.%d.' % i + t[0][6:]] + t[1:] for t in tensors if t[0].startswith('blk.0.')]
kv['gemma3.block_count'][1] = 62"
    mkdir "$T/m62"
    python3 - "$T/m62" <<'EOF'
import json, struct, sys
d = "tests/golden/models/gemma3-tied/"
raw = open(d + "model.safetensors", "rb").read()
n = struct.unpack_from("<Q", raw)[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
first = [k for k in head if k.startswith("model.layers.0.")]
for i in range(7, 62):
    for k in first:
        begin, end = head[k]["data_offsets"]
        head[k.replace(".0.", ".%d." % i)] = dict(
            head[k], data_offsets=[len(data), len(data) + end - begin])
        data += data[begin:end]
text = json.dumps(head).encode()
open(sys.argv[1] + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
c = json.load(open(d + "config.json"))
c["num_hidden_layers"] = 62
c["layer_types"] = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(62)]
c["query_pre_attn_scalar"] = 16
json.dump(c, open(sys.argv[1] + "/config.json", "w"))
EOF
    want=$(logits "$T/m62")
    [ "$(logits "$T/x.gguf")" = "$want" ]
}

# deep N: Python code that makes the golden N layers deep.
deep() {
    printf '%s\n' "
for i in range(7, $1):
    tensors += [['blk.%d.' % i + t[0][6:]] + t[1:] for t in tensors if t[0].startswith('blk.0.')]
kv['gemma3.block_count'][1] = $1"
}

@test "GGUF files of Ollama's converter" {
    golden=$(logits tests/golden/gguf/gemma3-tied.gguf)
    gguf "for k in 'rope.freq_base', 'attention.layer_norm_rms_epsilon': del kv['gemma3.' + k]"
    [ "$(logits "$T/x.gguf")" = "$golden" ]
    gguf "kv['gemma3.rope.global.freq_base'] = kv.pop('gemma3.rope.freq_base')
kv['gemma3.rope.local.freq_base'] = [6, 2e4]"
    mv "$T/x.gguf" "$T/y.gguf"
    gguf "kv['gemma3.rope.freq_base_swa'] = [6, 2e4]"
    equal "$(logits "$T/x.gguf")" "$(logits "$T/y.gguf")"
    # released sizes: linear scaling from 34 layers on, and a cap that is none
    for n in 34 48; do
        gguf "$(deep $n)
kv['gemma3.mm.tokens_per_image'] = [4, 256]"
        mv "$T/x.gguf" "$T/y.gguf"
        gguf "$(deep $n)
kv['gemma3.rope.scaling.type'] = [8, 'linear']; kv['gemma3.rope.scaling.factor'] = [6, 8.0]"
        want=$(logits "$T/x.gguf")
        [ "$(logits "$T/y.gguf")" = "$want" ]
        gguf "$(deep $n)"
        [ "$(logits "$T/x.gguf")" != "$want" ]
    done
    gguf "$(deep 26)
kv['gemma3.final_logit_softcapping'] = [6, 30.0]"
    fails 3 "final_logit_softcapping: must be null" -m "$T/x.gguf" --prompt-ids 1 -n 1
    gguf "$(deep 26)"
    want=$(logits "$T/x.gguf")
    gguf "$(deep 26)
kv['gemma3.final_logit_softcapping'] = [6, 30.0]; del kv['gemma3.attention.layer_norm_rms_epsilon']"
    [ "$(logits "$T/x.gguf")" = "$want" ]
}

@test "Gemma's GGUF files with bad metadata" {
    local k=gemma3.attention.sliding_window
    refused() {
        gguf "$1"
        fails 3 "$2" -m "$T/x.gguf" --prompt-ids 1,2 -n 1
        [[ $stderr == "qwick: $T/x.gguf: "* ]]
    }
    for f in context_length embedding_length block_count attention.head_count \
        attention.key_length feed_forward_length rope.freq_base; do
        refused "del kv['gemma3.$f']" "gemma3.$f: must be"
    done
    refused "kv['${k}_pattern'] = [9, (7, [True] * 6)]" "${k}_pattern: must be an integer, or an array"
    refused "kv['${k}_pattern'] = [9, (6, [1.0] * 7)]" "${k}_pattern: must be an integer, or an array"
    refused "kv['${k}_pattern'] = [8, '6']" "${k}_pattern: must be an integer, or an array"
    refused "kv['$k'] = [8, 'x']" "$k: must be"
    refused "kv['$k'] = [5, -1]" "$k: must be"
    refused "kv['gemma3.final_logit_softcapping'] = [6, 30.0]" \
        "gemma3.final_logit_softcapping: must be null"
    refused "kv['gemma3.rope.freq_base_swa'] = [6, 0.0]" "gemma3.rope.freq_base_swa: must be"
    refused "kv['gemma3.rope.scaling.type'] = [8, 'dynamic']" "gemma3.rope.scaling.type: must be"
    refused "del tensors[5]" "blk.0.post_attention_norm.weight: missing"
    refused "del tensors[6]" "blk.0.post_ffw_norm.weight: missing"
    gguf "kv['gemma3.final_logit_softcapping'] = [6, 0.0]"
    q -m "$T/x.gguf" --prompt-ids 1,2 -n 1 >"$T/out"
}
