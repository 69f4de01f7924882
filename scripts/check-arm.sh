#!/usr/bin/env bash
# Build qwick for 64-bit ARM and run it under qemu-aarch64: the unit tests that
# need no kernels of x86, and a few answers of the built-in model, which must be
# those of the reference kernels here. Ends with a line "N passed, N failed".
# Without the packages, and without a way to install them, it prints SKIP and
# the reason.
#   JOBS=N  tests at once
set -u
cd "$(dirname "$0")/.." || exit
build=build/aarch64
jobs=${JOBS:-$(nproc)}
export QWICK_TEST_TOKENIZER=${QWICK_TEST_TOKENIZER:-build/testdata/qwen3-tokenizer}
unset QWICK_MODEL HF_HUB_CACHE HF_HOME OPENBLAS_CORETYPE
export QWICK_NO_CONFIG=on

if ! why=$(scripts/install-deps.sh arm 2>&1); then
    printf 'SKIP: %s\n' "$(tail -n 1 <<<"$why")"
    exit 0
fi
make --no-print-directory -s -j"$jobs" all testdata CI=1 &&
    make --no-print-directory -s -j"$jobs" all unit-tests CI=1 \
        CC=aarch64-linux-gnu-gcc BUILD=$build || exit 1

# Emulation is slow: left out are the tests that take minutes in it and whose
# code is tested by others as well, and those of kernels that only x86 has.
# test_outdir fails in it: qemu tells a process another time of its start than
# other processes see. test_safetensors maps a terabyte, which takes gigabytes of
# an emulator's memory.
left_out="check_attn check_kernels check_products check_q8 test_alloc test_batch"
left_out="$left_out test_engine test_score test_lookup"
left_out="$left_out test_geometry test_outdir test_pass test_prefix test_quantize"
left_out="$left_out test_recurrent test_safetensors test_session test_threads"

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs build

# run_test NAME: its output and its counts go to $logs.
run_test()
{
    local log=$logs/$1.log ok bad rc
    # An emulator keeps books about each page: mapping terabytes must fail.
    (
        ulimit -v 16777216
        exec timeout 1800 qemu-aarch64 "$build/tests/$1"
    ) >"$log" 2>&1 </dev/null
    rc=$?
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep '^\[  FAILED  \] [A-Za-z_0-9]*$' "$log" | sort -u | wc -l)
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    printf '%d %d\n' "$ok" "$bad" >"$logs/$1.count"
    printf '== %s: %d passed, %d failed, exit status %d\n' "$1" "$ok" "$bad" "$rc"
    [ "$rc" -eq 0 ] || grep -v '^\[ RUN \|^\[       OK \]' "$log"
}

# check_answer ARGUMENT...: qwick prints the same on both machines.
check_answer()
{
    local ok=0 bad=0
    n_answers=$((n_answers + 1))
    if ./qwick "$@" >"$logs/x86" 2>"$logs/x86.err" </dev/null &&
        qemu-aarch64 "$build/qwick" "$@" >"$logs/arm" 2>"$logs/arm.err" \
            </dev/null &&
        [ -s "$logs/arm" ] && cmp "$logs/x86" "$logs/arm"; then
        ok=1
    else
        bad=1
        cat "$logs/x86" "$logs/x86.err" "$logs/arm" "$logs/arm.err"
    fi
    printf '%d %d\n' "$ok" "$bad" >"$logs/answer$n_answers.count"
    printf '== qwick %s: %d passed, %d failed\n' "$*" "$ok" "$bad"
}

export -f run_test
for file in tests/unit/*.c; do
    name=$(basename "$file" .c)
    case " $left_out " in *" $name "*) ;; *) printf '%s\0' "$name" ;; esac
done | xargs -0 -n1 -P "$jobs" bash -c 'run_test "$1"' -

n_answers=0
check_answer generate --isa ref --exact "list all listening tcp ports"
check_answer generate --isa ref --exact --seed 7 --temp 1 -n 12 "count lines"
check_answer tokenize "ünïcode, 數字 and 123"
check_answer detokenize 100 200 300

passed=0
failed=0
for count in "$logs"/*.count; do
    read -r ok bad <"$count"
    passed=$((passed + ok))
    failed=$((failed + bad))
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
