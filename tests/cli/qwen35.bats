#!/usr/bin/env bats
# Qwen3.5 from end to end: a checkpoint laid out as released ones are, with a
# tokenizer and a template, through the verbs; its GGUF form; what is refused.
# Numbers are in the unit tests.
load helpers

GGUF=tests/golden/gguf

setup() {
    common_setup
    M=$T/m
    mkdir "$M"
    cp $MODELS/qwen35-wrapped-untied/{config.json,model.safetensors} "$M"
    python3 tests/cli/byte_tokenizer.py "$M" qwen35
    EX="--exact --greedy --ignore-eos"
}

@test "generate, batch, choose and a chat" {
    run -0 --separate-stderr q -v -m "$M" $EX --json -n 12 "list files"
    [[ $stderr == *"2 tensors, 0.0 MB, are not part of the text model and ignored"* ]]
    want=$(jget 'o["tokens"]' <<<"$output")
    for n in 1 3; do
        for i in 1 2; do
            echo '{"prompt":"list files","max_tokens":12}'
            echo '{"prompt":"a longer prompt than the other","max_tokens":5}'
        done | "$QWICK" batch -m "$M" $EX --max-batch $n -i - >"$T/out"
        for line in 1 3; do
            [ "$(sed -n ${line}p "$T/out" | jget 'o["tokens"]')" = "$want" ]
        done
    done
    # the prompt's own ids, and token by token
    ids=$(q render -m "$M" '[{"role":"user","content":"list files"}]' |
        "$QWICK" tokenize -m "$M" -f - | tr ' ' ,)
    [ "$(q -m "$M" $EX --json -n 12 --prompt-ids "$ids" | jget 'o["tokens"]')" = "$want" ]
    [ "$(q -m "$M" $EX --json -n 12 --prefill-chunk 1 "list files" |
        jget 'o["tokens"]')" = "$want" ]
    q choose -m "$M" --exact --json -a yes -a no "is it?" |
        jget '[0][abs(sum(a["probability"] for a in o["answers"]) - 1) > 1e-6]'
    # a chat of two turns, and the same text at once
    chat='[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
        {"role":"user","content":"c"}]'
    echo "$chat" >"$T/chat.json"
    q -m "$M" $EX -n 6 --chat-json "$T/chat.json" --json | jget \
        '[0][len(o["tokens"]) != 6]'
}

@test "quantize keeps what is not the text model's" {
    q quantize -m "$M" -o "$T/q" --bits 4 --group 32
    q inspect -m "$T/q" --tensors --json >"$T/t"
    jget '[t["dtype"] for t in o["tensors"] if t["name"] in ("mtp.fc.weight",
        "model.visual.blocks.0.norm1.weight")] == ["BF16"] * 2' <"$T/t" | grep -q True
    q -m "$T/q" --ignore-eos -n 4 --json "list files" | jget \
        '[0][len(o["tokens"]) != 4]'
    hurried q bench -m "$T/q" --prompt-lens 20 --depths 40 --batches 3 --gen 3 --reps 1 \
        --json | jget '[0][len(o["results"]) != 3]'
}

@test "its GGUF file answers as the checkpoint" {
    for m in tied wrapped-untied moe f16-long; do
        want=$(q -m $MODELS/qwen35-$m $EX --prompt-ids 5,9,2,7 -n 12 --json |
            jget 'o["tokens"]')
        got=$(q -m $GGUF/qwen35-$m.gguf $EX --prompt-ids 5,9,2,7 -n 12 --json |
            jget 'o["tokens"]')
        [ "$got" = "$want" ] || { echo "$m: $got, not $want"; return 1; }
    done
}

@test "quantize writes a GGUF file that answers as the checkpoint" {
    q quantize --format gguf --type BF16 -m "$M" -o "$T/m.gguf"
    for m in m m.gguf; do
        {
            q -m "$T/$m" $EX --json -n 20 "list files" | jget 'o["tokens"]'
            q choose -m "$T/$m" --exact -a yes -a no "is it?" | cut -f 1
            q render -m "$T/$m" '[{"role":"user","content":"x"}]'
            q tokenize -m "$T/$m" "Größe १२ <|im_end|> x̀"
            q inspect -m "$T/$m" | grep -E "^(n ctx max|rope|rms)" | sort
        } >"$T/out.$m"
    done
    [ "$(wc -l <"$T/out.m")" -gt 8 ]
    diff "$T/out.m" "$T/out.m.gguf"
    for t in Q8_0 Q4_K_M Q4_0; do
        q quantize --format gguf --type $t -m "$M" -o "$T/$t.gguf"
        q -m "$T/$t.gguf" --ignore-eos -n 6 --json "list files" | jget \
            '[0][len(o["tokens"]) != 6]'
    done
    q inspect -m "$T/Q4_0.gguf" --tensors | grep -q 'Q8_0.*"blk.0.ssm_alpha.weight"'
    # what is not the text model's stays out
    run -0 --separate-stderr q quantize --format gguf -m "$M" -o "$T/x.gguf" -v
    [[ $stderr == *"2 tensors: left out: not part of the text model"* ]]
}

# changed CODE: $T/x.gguf is a golden, changed by Python code on kv and tensors.
changed() {
    gguf_edit $GGUF/qwen35-tied.gguf "$T/x.gguf" "$1"
}

# refused CODE PATTERN: exit 3 with the file's name and the pattern.
refused() {
    changed "$1"
    fails 3 "$2" -m "$T/x.gguf" --prompt-ids 5 -n 1
    [[ $stderr == "qwick: $T/x.gguf: "* ]]
}

@test "metadata of GGUF files" {
    A=qwen35
    want=$(q -m $GGUF/qwen35-tied.gguf $EX --prompt-ids 5,9 -n 5)
    # layers of multi-token prediction stay unused
    changed "kv['$A.block_count'][1] = 5; kv['$A.nextn_predict_layers'] = [4, 1]"
    [ "$(q -m "$T/x.gguf" $EX --prompt-ids 5,9 -n 5)" = "$want" ]
    changed "kv['tokenizer.ggml.pre'][1] = b'qwen35'"
    [ "$(q -m "$T/x.gguf" $EX --prompt-ids 5,9 -n 5)" = "$want" ]
    refused "kv['$A.nextn_predict_layers'] = [4, 4]" \
        "$A.nextn_predict_layers: 4, must be less than block_count, 4"
    refused "kv['$A.ssm.inner_size'][1] = 66" \
        "$A.ssm.inner_size: 66, must be a multiple of ssm.time_step_rank, 4"
    refused "del kv['$A.ssm.inner_size']" "$A.ssm.inner_size: must be"
    refused "del kv['$A.ssm.group_count']" "$A.ssm.group_count: must be"
    refused "kv['$A.ssm.group_count'][1] = 3" "is not a multiple of"
    refused "kv['$A.ssm.conv_kernel'][1] = 1" "$A.ssm.conv_kernel: must be at least 2"
    refused "kv['$A.ssm.conv_kernel'][1] = 5" "tensor blk.0.ssm_conv1d.weight: shape"
    refused "kv['$A.ssm.state_size'][1] = 2**31" "$A.ssm.state_size"
    refused "kv['$A.rope.dimension_count'][1] = 9" "$A.rope.dimension_count"
    refused "kv['$A.rope.dimension_count'][1] = 64" "$A.rope.dimension_count"
    refused "kv['$A.full_attention_interval'][1] = 2" "tensor blk.1.attn_q.weight: missing"
    refused "tensors[:] = [t for t in tensors if t[0] != 'blk.0.ssm_a']" \
        "tensor blk.0.ssm_a: missing"
    # the layers that attend, as a list; keys and values have no heads elsewhere
    changed "kv['$A.attention.recurrent_layers'] = [9, (7, [True] * 3 + [False])]
n = kv['$A.attention.head_count_kv'][1]
kv['$A.attention.head_count_kv'] = [9, (5, [0, 0, 0, n])]
kv['$A.full_attention_interval'][1] = 2"
    [ "$(q -m "$T/x.gguf" $EX --prompt-ids 5,9 -n 5)" = "$want" ]
    refused "kv['$A.attention.recurrent_layers'] = [9, (7, [True, False, True, False])]" \
        "tensor blk.1.attn_q.weight: missing"
    refused "kv['$A.attention.recurrent_layers'] = [9, (7, [True] * 3)]" \
        "$A.attention.recurrent_layers: 1, 1, 1: must have an integer for each of block_count"
    refused "kv['$A.attention.recurrent_layers'] = [7, True]" \
        "$A.attention.recurrent_layers: must be an array, is of type bool"
    refused "kv['$A.attention.head_count_kv'] = [9, (5, [2, 0, 0, 1])]" \
        "$A.attention.head_count_kv: 2, 0, 0, 1: differs between layers"
}

@test "GGUF files of Ollama's converter" {
    A=qwen35
    want=$(q logits -m $GGUF/qwen35-tied.gguf --exact --prompt-ids 5,9,2 --json | jget 'o["positions"]')
    ollama="kv['$A.rope.mrope_section'] = [9, (5, [2, 1, 1])]
kv['$A.mrope_sections'] = [9, (5, [2, 1, 1])]
kv['$A.rope.mrope_interleaved'] = [7, True]
kv['$A.ssm.v_head_reordered'] = [7, True]
kv['$A.norm_top_k_prob'] = [7, True]
for t in tensors:
    t[0] = t[0].replace('ssm_dt.bias', 'ssm_dt')"
    changed "$ollama"
    equal "$want" "$(q logits -m "$T/x.gguf" --exact --prompt-ids 5,9,2 --json | jget 'o["positions"]')"
    refused "$ollama
kv['$A.norm_top_k_prob'] = [7, False]" "$A.norm_top_k_prob: 0 is not supported (1 is)"
    refused "$ollama
kv['$A.ssm.v_head_reordered'] = [7, False]" "$A.ssm.v_head_reordered: 0 is not supported (1 is)"
    # Qwen3-Next's heads are not tiled
    gguf_edit tests/golden/families/qwen3next-odd.gguf "$T/x.gguf" \
        "kv['qwen3next.ssm.v_head_reordered'] = [7, True]"
    fails 3 "qwen3next.ssm.v_head_reordered: 1 is not supported (0 is)" -m "$T/x.gguf" \
        --prompt-ids 5 -n 1
}

@test "quantize writes layers in any order" {
    mkdir "$T/o"
    python3 - "$M" "$T/o" <<'PY'
import json, struct, sys
raw = open(sys.argv[1] + "/model.safetensors", "rb").read()
n = struct.unpack_from("<Q", raw)[0]
head = json.loads(raw[8:8 + n])
# the layer of attention, the fourth, becomes the first
swap = lambda k: k.replace("layers.3.", "layers.x.").replace("layers.0.", "layers.3.") \
    .replace("layers.x.", "layers.0.")
text = json.dumps({swap(k): v for k, v in head.items()}).encode()
open(sys.argv[2] + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + raw[8 + n:])
c = json.load(open(sys.argv[1] + "/config.json"))
t = c["text_config"]["layer_types"]
t[0], t[3] = t[3], t[0]
json.dump(c, open(sys.argv[2] + "/config.json", "w"))
PY
    want=$(q -m "$T/o" $EX --prompt-ids 5,9,2,7 -n 12 --json | jget 'o["tokens"]')
    [ "$want" != "$(q -m "$M" $EX --prompt-ids 5,9,2,7 -n 12 --json | jget 'o["tokens"]')" ]
    q quantize --format gguf --type BF16 -m "$T/o" -o "$T/o.gguf"
    [ "$(q -m "$T/o.gguf" $EX --prompt-ids 5,9,2,7 -n 12 --json | jget 'o["tokens"]')" = "$want" ]
}
