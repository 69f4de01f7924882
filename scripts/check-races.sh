#!/usr/bin/env bash
# Look for races between threads and for memory errors: the thread sanitizer over
# unit tests of what threads share, helgrind over one answer, and valgrind's memcheck
# over an answer, a batch and an embedding at two levels of kernels. Ends with a line
# "N passed, N failed". Without the packages, and without a way to install them, it
# prints SKIP and the reason.
#   T=NAME  only this part: tsan, helgrind or memcheck
set -u
cd "$(dirname "$0")/.." || exit
export QWICK_TEST_TOKENIZER=${QWICK_TEST_TOKENIZER:-build/testdata/qwen3-tokenizer}
export QWICK_NO_CONFIG=on QWICK_NO_SANDBOX=on
unset QWICK_MODEL HF_HUB_CACHE HF_HOME OPENBLAS_CORETYPE
ok=0 bad=0

if ! why=$(scripts/install-deps.sh races 2>&1); then
    printf 'SKIP: %s\n' "$(tail -n 1 <<<"$why")"
    exit 0
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
prompt="list files"
echo '{"prompt":"list files"}' >"$out/records"

# try NAME COMMAND...: one check; its output is shown if it fails.
try()
{
    local name=$1 status
    shift
    "$@" >"$out/log" 2>&1 </dev/null
    status=$?
    if [ $status -eq 0 ]; then
        ok=$((ok + 1))
        echo "ok $name"
    else
        bad=$((bad + 1))
        echo "not ok $name: exit status $status"
        head -n 200 "$out/log"
    fi
}

# Tests in which threads share something, and the names of the cases to run (all if
# there is none): instrumented kernels are slow.
tsan_tests="
test_base
test_threads *thread*
test_text_threads
test_runs
test_engine *thread*
test_batch cancelled_*
test_batch stopped_*
test_session *interrupted*
test_session forked_*
test_containers
test_bpe_load
test_bpe_parts *large*
test_batch_speculative *exact*
test_http
"

# The pool is ours and uses atomics and futexes, which the sanitizer sees. It does
# not see those of libgomp and OpenBLAS, but they run no threads of their own here.
# It cannot start threads in a child after fork, so that case of test_threads stays out.
# Addresses at random places are too many for gcc's sanitizer (setarch -R).
tsan()
{
    local name cases
    # shellcheck disable=SC2046 # a list of words
    make --no-print-directory -s -j"$(nproc)" TSAN=1 testdata \
        $(sed -n 's|^\(test_[a-z_]*\).*|build/tsan/tests/\1|p' <<<"$tsan_tests" | sort -u) ||
        exit 1
    while read -r name cases; do
        [ -n "$name" ] || continue
        export TEST_FILTER=${cases:-*}
        TSAN_OPTIONS="exitcode=66 suppressions=tests/tsan.txt" \
            try "tsan $name${cases:+ $cases}" timeout 600 setarch -R "build/tsan/tests/$name"
        if grep -q 'Running 0 test' "$out/log"; then
            bad=$((bad + 1))
            echo "not ok tsan $name: no case is named $cases"
        fi
    done <<<"$tsan_tests"
}

# helgrind knows pthreads but not the order that atomics give; par.c tells it.
helgrind()
{
    make --no-print-directory -s -j"$(nproc)" build/helgrind/qwick || exit 1
    try helgrind valgrind -q --tool=helgrind --error-exitcode=66 \
        --suppressions=tests/valgrind.txt build/helgrind/qwick -t 2 --isa avx2 \
        -n 4 "$prompt"
}

# valgrind has no AVX-512.
memcheck()
{
    local isa
    local run="valgrind -q --error-exitcode=66 --leak-check=full
        --errors-for-leak-kinds=definite --suppressions=tests/valgrind.txt ./qwick"
    make --no-print-directory -s -j"$(nproc)" all || exit 1
    for isa in ref avx2; do
        # shellcheck disable=SC2086 # a list of words
        {
            try "memcheck generate --isa $isa" $run --isa $isa -t 2 -n 4 "$prompt"
            try "memcheck batch --isa $isa" $run batch --isa $isa -t 2 -n 4 \
                -i "$out/records" -o "$out/answers-$isa"
            try "memcheck embed --isa $isa" $run embed -q --isa $isa -t 2 "$prompt"
        }
    done
}

for part in tsan helgrind memcheck; do
    [ "${T:-$part}" = "$part" ] && $part
done
echo "$ok passed, $bad failed"
[ $bad -eq 0 ]
