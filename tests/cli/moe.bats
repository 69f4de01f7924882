#!/usr/bin/env bats
# A mixture of experts from end to end. Numbers are in the unit tests.
load helpers

setup() {
    common_setup
    M=$MODELS/moe
}

@test "generate, logits and batch agree" {
    want=$(q -m $M --exact --greedy --ignore-eos --prompt-ids 5,9,2,7 -n 12 --json |
        jget 'o["tokens"]')
    for n in 1 4; do
        for i in 1 2 3; do
            echo '{"prompt_ids":[5,9,2,7],"max_tokens":12}'
            echo '{"prompt_ids":[300,4,17],"max_tokens":5}'
        done | "$QWICK" batch -m $M --exact --greedy --ignore-eos --max-batch $n \
            -i - >"$T/out"
        got=$(sed -n 5p "$T/out" | jget 'o["tokens"]')
        [ "$got" = "$want" ] || { echo "max-batch $n: $got, not $want"; return 1; }
    done
    top=$(q logits -m $M --exact --prompt-ids 5,9,2,7 --json | jget 'o["positions"][0]["top"][0]["id"]')
    [ "$top" = "$(python3 -c "print($want[0])")" ]
}

@test "inspect and --profile-timing count the active experts" {
    q inspect -m $M --json | jget '(o["n_experts"], o["n_active_experts"],
        o["expert_d_ff"], o["n_params"] - o["n_active_params"],
        o["weight_bytes"] - o["decode_bytes"])' >"$T/got"
    # three layers with 6 idle experts of 3 * 48 * 64 weights in BF16
    [ "$(cat "$T/got")" = "(8, 2, 48, 165888, 331776)" ]
    q -m $M --greedy --ignore-eos --prompt-ids 5,9 -n 8 --profile-timing --json >"$T/p"
    bytes=$(q inspect -m $M --json | jget 'o["decode_bytes"]')
    jget "$bytes <= o['timing']['summary']['bytes_per_token'] < 1.1 * $bytes" \
        <"$T/p" | grep -q True
}

@test "quantize keeps the router at 8 bits and stacks the experts" {
    run -0 --separate-stderr q quantize -m $M -o "$T/m" --bits 4 --group 32 -v
    # 48 columns are not a multiple of 32
    [[ $stderr == *"switch_mlp.down_proj: is copied: 48 columns"* ]]
    python3 - "$T/m/config.json" <<'PY'
import json, sys
q = json.load(open(sys.argv[1]))["quantization"]
assert q["bits"] == 4, q
for i in range(3):
    m = "model.layers.%d.mlp." % i
    assert q[m + "gate"] == {"group_size": 32, "bits": 8}, q
    assert q[m + "switch_mlp.down_proj"] is False, q
    assert m + "switch_mlp.gate_proj" not in q, q
PY
    q inspect -m "$T/m" --tensors --json >"$T/tensors"
    jget '[t["shape"] for t in o["tensors"] if t["name"] ==
        "model.layers.2.mlp.switch_mlp.up_proj.weight"] == [[8, 48, 8]]' \
        <"$T/tensors" | grep -q True
    jget 'all(t["used"] for t in o["tensors"])' <"$T/tensors" | grep -q True
    q -m "$T/m" --ignore-eos --prompt-ids 5,9,2,7 -n 8 --json | jget \
        '[0][len(o["tokens"]) != 8]'
    hurried q bench -m "$T/m" --prompt-lens 20 --depths 4 --batches 3 --gen 3 --reps 1 \
        --json | jget '[0][len(o["results"]) != 3]'
}

@test "a model larger than the memory opens and says what to expect" {
    # holes: so many of Qwen3-30B-A3B's layers that they need twice the memory
    mkdir "$T/big"
    python3 - $M/config.json "$T/big" <<'PY'
import json, os, struct, sys
c = json.load(open(sys.argv[1]))
d, ff, e = 2048, 768, 128
memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
n = 2 * memory // (2 * 3 * e * d * ff) + 1
c.update(num_hidden_layers=n, hidden_size=d, moe_intermediate_size=ff,
         num_local_experts=e, num_experts_per_tok=8, num_attention_heads=4,
         num_key_value_heads=4, head_dim=128)
json.dump(c, open(sys.argv[2] + "/config.json", "w"))
shapes = {"embed_tokens.weight": [320, d], "norm.weight": [d]}
for i in range(n):
    shapes.update({"layers.%d.%s" % (i, k): v for k, v in {
        "input_layernorm.weight": [d], "post_attention_layernorm.weight": [d],
        "self_attn.q_proj.weight": [512, d], "self_attn.k_proj.weight": [512, d],
        "self_attn.v_proj.weight": [512, d], "self_attn.o_proj.weight": [d, 512],
        "self_attn.q_norm.weight": [128], "self_attn.k_norm.weight": [128],
        "mlp.gate.weight": [e, d], "mlp.experts.gate_up_proj": [e, 2 * ff, d],
        "mlp.experts.down_proj": [e, d, ff]}.items()})
header, at = {}, 0
for k, v in shapes.items():
    end = at + 2
    size = 2
    for x in v:
        size *= x
    header["model." + k] = {"dtype": "BF16", "shape": v,
                            "data_offsets": [at, at + size]}
    at += size
text = json.dumps(header).encode()
f = open(sys.argv[2] + "/model.safetensors", "wb")
f.write(struct.pack("<Q", len(text)) + text)
try:
    f.truncate(8 + len(text) + at)
except OSError:
    sys.exit(1)
PY
    [ $? = 0 ] || skip "the file system has no files of this size"
    run -0 --separate-stderr q inspect -v -m "$T/big"
    [[ $stderr == *"expect to read "*" MB from the disk for each token"* ]]
    [[ $output == *"n active params"* ]]
    fails 5 "preload: the weights are" --preload -m "$T/big" --prompt-ids 1 -n 1
    rm -rf "$T/big"
}
