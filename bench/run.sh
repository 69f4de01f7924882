#!/usr/bin/env bash
# Reproduce every figure of docs/performance.md on this machine. Nothing else should run
# beside it. Needs about 4.7 GB of disk under ${QWICK_BENCH_DIR:-build/bench-models}
# and, with RUNS=3, about an hour; RUNS=1 REPS=3 gives a first look.
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL OPENBLAS_CORETYPE
export QWICK_NO_CONFIG=on
models=${QWICK_BENCH_DIR:-build/bench-models}
bf16=$models/qwen3-0.6b-random
f32=$models/qwen3-0.6b-random-f32
runs=${RUNS:-3}
reps=${REPS:-3}
results=build/bench-results
make --no-print-directory -s all benches testdata
rm -rf "$results"
mkdir -p "$models" "$results"

[ -f "$f32/model.safetensors" ] ||
    build/bench/make_model --tokenizer build/testdata/qwen3-tokenizer \
        --dtype f32 "$f32"
[ -f "$bf16/model.safetensors" ] ||
    build/bench/make_model --tokenizer build/testdata/qwen3-tokenizer "$bf16"
for bits in 8 4; do
    [ -f "$models/qwen3-0.6b-${bits}bit/config.json" ] ||
        ./qwick quantize -m "$bf16" -o "$models/qwen3-0.6b-${bits}bit" \
            --bits $bits -v
done

# one_run NAME MODEL OPTIONS...
one_run() {
    local name=$1 model=$2
    shift 2
    ./qwick bench -m "$model" --reps "$reps" --gen 32 --json "$@" \
        >"$results/$name-$run.json"
}

# The level below AMX, where the CPU's best is that.
kernels=$(./qwick -v -n 1 --raw a 2>&1 >/dev/null | grep kernels)
vnni=
case $kernels in
*amx*)
    vnni="bf16:$bf16 8bit:$models/qwen3-0.6b-8bit"
    vnni="$vnni 4bit:$models/qwen3-0.6b-4bit"
    ;;
esac

for run in $(seq "$runs"); do
    for threads in 2 1; do
        for kind in bf16:"$bf16" 8bit:"$models/qwen3-0.6b-8bit" \
            4bit:"$models/qwen3-0.6b-4bit"; do
            one_run "${kind%%:*}-$threads" "${kind#*:}" -t $threads \
                --prompt-lens 512,4096 --depths 16,1024,4096
        done
    done
    one_run batches "$bf16" --prompt-lens 16 --depths 16 \
        --batches 1,2,4,8,16,32
    one_run batches-1 "$bf16" -t 1 --prompt-lens 16 --depths 16 --batches 8,16
    one_run preload "$bf16" --prompt-lens 512 --depths 16 --preload
    one_run avx2-f32 "$f32" --isa avx2 --prompt-lens 512 --depths 16
    for kind in bf16:"$bf16" 8bit:"$models/qwen3-0.6b-8bit" \
        4bit:"$models/qwen3-0.6b-4bit"; do
        one_run "avx2-${kind%%:*}" "${kind#*:}" --isa avx2 \
            --prompt-lens 512,4096 --depths 16,1024,4096
    done
    one_run avx2-batches "$bf16" --isa avx2 --prompt-lens 16 --depths 16 \
        --batches 8,16
    for kind in $vnni; do
        one_run "avx512bf16-${kind%%:*}" "${kind#*:}" --isa avx512bf16 \
            --prompt-lens 512 --depths 16
    done
done

echo "## Machine"
grep -m1 'model name' /proc/cpuinfo
echo "$kernels"

echo "## Speed, exact shapes of Qwen3-0.6B (random weights)"
names="bf16-2 8bit-2 4bit-2 bf16-1 8bit-1 4bit-1 batches"
names="$names batches-1 avx2-f32 avx2-bf16 avx2-8bit avx2-4bit avx2-batches"
for kind in $vnni; do
    names="$names avx512bf16-${kind%%:*}"
done
for name in $names; do
    for run in $(seq "$runs"); do
        echo "$results/$name-$run.json"
    done
done | xargs python3 bench/table.py
echo "## The same with --preload"
python3 bench/table.py "$results"/preload-*.json

echo "## Where a token's time goes"
for model in "$bf16" "$models/qwen3-0.6b-4bit"; do
    ./qwick bench -m "$model" --prompt-lens 512 --depths 16 --gen 32 \
        --reps 1 --parts --md
done

echo "## Start-up and memory"
for options in "" "-t 1" "--isa avx2"; do
    echo "${options:-2 threads, best kernels}:"
    python3 bench/process.py ./qwick "$options" "$bf16" \
        "$models/qwen3-0.6b-8bit" "$models/qwen3-0.6b-4bit"
done

echo "## Beside busy neighbours"
bench/noisy.sh "$bf16" 3

echo "## Tokenizer"
cat src/*/*.c src/*/*.h tests/unit/*.c >build/bench-source.txt
build/bench/bench_tokenizer build/testdata/qwen3-tokenizer/tokenizer.json \
    scripts/demo-model/tldr.jsonl build/bench-source.txt
