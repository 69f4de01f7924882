#!/usr/bin/env bash
# Reproduce every figure of the README on this machine. Nothing else should run
# beside it. Needs about 1.3 GB of disk under ${QWICK_BENCH_DIR:-build/bench-models}.
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL OPENBLAS_CORETYPE
models=${QWICK_BENCH_DIR:-build/bench-models}
model=$models/qwen3-0.6b-random
reps=${REPS:-5}
make --no-print-directory -s all benches testdata

if [ ! -f "$model/model.safetensors" ]; then
    mkdir -p "$models"
    build/bench/make_model --tokenizer build/testdata/qwen3-tokenizer "$model"
fi

echo "## Machine"
grep -m1 'model name' /proc/cpuinfo
./qwick -v -n 1 --raw a 2>&1 >/dev/null | grep kernels

echo "## Tokenizer"
cat src/*/*.c src/*/*.h tests/unit/*.c >build/bench-source.txt
build/bench/bench_tokenizer build/testdata/qwen3-tokenizer/tokenizer.json \
    scripts/demo-model/tldr.jsonl build/bench-source.txt

echo "## Start-up and memory"
python3 bench/process.py ./qwick "$model"

echo "## Speed, exact shapes of Qwen3-0.6B in bf16 (random weights)"
for threads in 1 2; do
    ./qwick bench -m "$model" -t $threads --prompt-lens 512 --gen 64 \
        --depths 16,1024 --reps "$reps" --md
done
./qwick bench -m "$model" --isa avx2 --prompt-lens 512 --reps "$reps" --md
