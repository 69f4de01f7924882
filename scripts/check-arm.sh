#!/usr/bin/env bash
# Build qwick for 64-bit ARM and run it under qemu-aarch64, which emulates CPUs
# without and with the instructions of each level of kernels. It runs
#   - the checks of the kernels that a level adds: of neon on a Cortex-A53, of
#     dotprod on a Neoverse N1, of i8mm and bf16 on qemu's largest CPU
#   - on each of these CPUs answers of the built-in model at each of its levels,
#     which must be those of the reference kernels here; a level that the CPU
#     lacks must be refused
#   - on the largest CPU the other unit tests, which go through all levels:
#     goldens of models, equivalences
# Prints a table of the levels and ends with a line "N passed, N failed".
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
# code is tested by others as well, and those of kernels that only x86 has. The
# checks of kernels have their own lines below.
# test_outdir fails in it: qemu tells a process another time of its start than
# other processes see. test_safetensors maps a terabyte, which takes gigabytes of
# an emulator's memory.
left_out="test_alloc test_batch"
left_out="$left_out test_engine test_score test_lookup"
left_out="$left_out test_geometry test_outdir test_pass test_prefix test_quantize"
left_out="$left_out test_recurrent test_safetensors test_session test_threads"

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs build

# run_test CPU ROW NAME [FILTER]: its output and its counts go to $logs. ROW is
# the row of the table.
run_test()
{
    local name=$3${4:+-${4//\//-}} ok bad rc
    local log=$logs/$1-$name.log
    # An emulator keeps books about each page: mapping terabytes must fail.
    (
        ulimit -v 16777216
        exec timeout 1800 qemu-aarch64 -cpu "$1" "$build/tests/$3" \
            ${4:+--filter "$4"}
    ) >"$log" 2>&1 </dev/null
    rc=$?
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep '^\[  FAILED  \] [A-Za-z_0-9/]*$' "$log" | sort -u | wc -l)
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    printf '%s %s %d %d\n' "$1" "$2" "$ok" "$bad" >"$logs/$1-$name.count"
    printf '== %s on %s: %d passed, %d failed, exit status %d, %d s\n' \
        "$name" "$1" "$ok" "$bad" "$rc" "$SECONDS"
    [ "$rc" -eq 0 ] || grep -v '^\[ RUN \|^\[       OK \]' "$log"
}

# check_answer CPU LEVEL ARGUMENT...: qwick prints the same as the reference
# kernels of this machine. LEVEL is a row of the table: none where it is "tools".
check_answer()
{
    local cpu=$1 level=$2 ok=0 bad=0 at isa=() ref=()
    shift 2
    at=$logs/answer-$cpu-$level-$(cksum <<<"$*" | cut -d ' ' -f 1)
    if [ "$level" != tools ]; then
        isa=(--isa "$level")
        ref=(--isa ref)
    fi
    if ./qwick "$@" "${ref[@]}" >"$at.x86" 2>"$at.err" </dev/null &&
        qemu-aarch64 -cpu "$cpu" "$build/qwick" "$@" "${isa[@]}" >"$at.arm" \
            2>>"$at.err" </dev/null &&
        [ -s "$at.arm" ] && cmp "$at.x86" "$at.arm"; then
        ok=1
    else
        bad=1
        cat "$at.x86" "$at.arm" "$at.err"
    fi
    printf '%s %s %d %d\n' "$cpu" "$level" "$ok" "$bad" >"$at.count"
    printf '== qwick %s on %s, %s: %d passed, %d failed\n' "$*" "$cpu" "$level" \
        "$ok" "$bad"
}

# check_refused CPU LEVEL: the CPU lacks the level, which is a usage error.
check_refused()
{
    local ok=0 bad=1 rc at=$logs/refused-$1-$2
    qemu-aarch64 -cpu "$1" "$build/qwick" -n 1 --isa "$2" hi >"$at.arm" 2>&1 \
        </dev/null
    rc=$?
    if [ "$rc" -eq 2 ] && grep -q "$2" "$at.arm"; then
        ok=1 bad=0
    fi
    printf '%s %s %d %d\n' "$1" "$2" "$ok" "$bad" >"$at.count"
    printf '== --isa %s on %s: refused with %d\n' "$2" "$1" "$rc"
}

export -f run_test check_answer check_refused

# The commands, the longest first. Levels above neon have its kernels of floats;
# bf16 has the integer products of i8mm.
commands()
{
    local cpu level file name
    for level in i8mm:max dotprod:neoverse-n1; do
        cpu=${level#*:} level=${level%:*}
        printf '%s\n' "QWICK_TEST_EVERY=4 run_test $cpu $level check_q8 $level/gemm_q8" \
            "run_test $cpu $level check_blocks $level/gemm_q8"
    done
    for name in check_q8 check_blocks check_attn check_attn_q8 check_kernels \
        check_products check_delta check_fp8 check_kv_q4; do
        printf '%s\n' "run_test cortex-a53 neon $name neon/"
    done
    for name in check_products:bf16/gemm_bf16 check_fp8:bf16/gemm_bf16 \
        check_kernels:bf16/table check_kernels:bf16/peak; do
        printf '%s\n' \
            "QWICK_TEST_EVERY=9 run_test max bf16 ${name%:*} ${name#*:}"
    done
    for file in tests/unit/*.c; do
        name=$(basename "$file" .c)
        if [[ $name != check_* && " $left_out " != *" $name "* ]]; then
            printf '%s\n' "run_test max all $name"
        fi
    done
    for level in ref:cortex-a53 neon:cortex-a53 neon:neoverse-n1 \
        dotprod:neoverse-n1 neon:max dotprod:max i8mm:max bf16:max; do
        cpu=${level#*:} level=${level%:*}
        printf '%s\n' \
            "check_answer $cpu $level generate --exact 'list all listening tcp ports'" \
            "check_answer $cpu $level generate --exact --seed 7 --temp 1 -n 12 'count lines'" \
            "check_answer $cpu $level generate -n 12 'list all listening tcp ports'"
    done
    printf '%s\n' "check_refused cortex-a53 dotprod" \
        "check_refused neoverse-n1 i8mm" "check_refused max avx2" \
        "check_answer max tools tokenize 'ünïcode, 數字 and 123'" \
        "check_answer max tools detokenize 100 200 300"
}
# shellcheck disable=SC2016 # the inner shell expands it
commands | tr '\n' '\0' | xargs -0 -n1 -P "$jobs" bash -c 'eval "$1"' -

printf '\n%-9s %-12s %7s %7s\n' level CPU passed failed
cat "$logs"/*.count | awk '{ row = sprintf("%-9s %-12s", $2, $1)
    ok[row] += $3; bad[row] += $4 }
    END { for (row in ok) printf("%s %7d %7d\n", row, ok[row], bad[row]) }' | sort
passed=0
failed=0
for count in "$logs"/*.count; do
    read -r _ _ ok bad <"$count"
    passed=$((passed + ok))
    failed=$((failed + bad))
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
