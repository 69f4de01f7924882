#!/usr/bin/env bats
# Quantized checkpoints of other systems from end to end: the ids of their goldens on
# every path, and what each verb says about them.
load helpers

FORMS="qwen3-awq qwen3-gptq-act qwen3-w4a16 qwen3-w4a16-asym qwen3-w8a8 qwen3-nvfp4
    qwen3-nvfp4-modelopt qwen3-nvfp4-mlx qwen3-mxfp8"

setup() {
    common_setup
    command -v python3 >/dev/null || skip "no python3"
}

# golden NAME TENSOR: the numbers of a tensor of integers, with commas.
golden() {
    python3 - "tests/golden/families/$1/expected.safetensors" "$2" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = 8 + struct.unpack("<Q", data[:8])[0]
t = json.loads(data[8:n])[sys.argv[2]]
lo, hi = (n + at for at in t["data_offsets"])
kind = {"I64": "q", "I32": "i"}[t["dtype"]]
print(*struct.unpack("<%d%s" % (t["shape"][-1], kind), data[lo:hi]), sep=",")
PY
}

# answers NAME MODEL [OPTION...]: the model draws the golden's ids.
answers() {
    local name=$1 model=$2 want
    shift 2
    want=$(golden "$name" greedy)
    equal "$(q -m "$model" --prompt-ids "$(golden "$name" input_ids)" --greedy \
        --ignore-eos -n "$(tr , '\n' <<<"$want" | wc -l)" --json "$@" 2>/dev/null |
        jget '",".join(map(str, o["tokens"]))')" "$want"
}

@test "greedy ids equal the goldens: --threads, --preload" {
    for name in $FORMS; do
        answers $name tests/golden/families/$name --exact --threads 1
        answers $name tests/golden/families/$name --exact --threads 2 --preload
    done
}

@test "inspect and plan know the form and its bytes" {
    for name in $FORMS; do
        dir=tests/golden/families/$name
        file=$(stat -L -c %s $dir/model.safetensors)
        weights=$(q inspect -m $dir --json | jget 'o["weight_bytes"]')
        [ "$weights" -le $((file * 11 / 10)) ]
        q plan -m $dir --json >"$T/plan"
    done
}

@test "a note about repacking names quantize where that loses nothing" {
    run -0 --separate-stderr q -m tests/golden/families/qwen3-awq --prompt-ids 1,2 -n 1 -v
    [[ $stderr == *"repacking the weights took"*"qwick quantize"* ]]
    run -0 --separate-stderr q -m tests/golden/families/qwen3-gptq-act --prompt-ids 1,2 -n 1 -v
    [[ $stderr == *"repacking the weights took"* ]]
    [[ $stderr != *"qwick quantize"* ]]
}

@test "quantize keeps the codes by default: equal logits, and says so" {
    for name in qwen3-awq qwen3-w4a16 qwen3-w8a8; do
        dir=tests/golden/families/$name
        run -0 --separate-stderr q quantize -m $dir -o "$T/out" --force -v --json
        [[ $stderr == *"14 modules: keep the codes of the source"* ]]
        jget '[0][o["n_quantized"] != 14 or o["n_dense"] != 2]' <<<"$output"
        answers $name "$T/out" --exact
        ids=$(golden $name input_ids)
        equal "$(q logits -m "$T/out" --prompt-ids "$ids" --exact)" \
            "$(q logits -m $dir --prompt-ids "$ids" --exact)"
    done
    run -0 --separate-stderr q quantize -m tests/golden/families/qwen3-gptq-act \
        -o "$T/out" --force -v
    [[ $stderr == *"14 modules: are rounded again"* ]]
}
