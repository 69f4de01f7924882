#!/usr/bin/env bash
# Run every test and end with a line "N passed, N failed".
#   QWICK  the binary      TESTS  folder of unit test programs
#   SAN=1  the build has sanitizers: tests that inject faults or set limits skip
set -u
cd "$(dirname "$0")/.."
QWICK=${QWICK:-$PWD/qwick}
TESTS=${TESTS:-build/tests}
export QWICK SAN=${SAN:-}
export QWICK_TEST_TOKENIZER=${QWICK_TEST_TOKENIZER:-build/testdata/qwen3-tokenizer}
unset QWICK_MODEL HF_HUB_CACHE HF_HOME NO_COLOR OPENBLAS_CORETYPE
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

count() { grep -c "$1" "$log"; }

printf '== layers\n'
if scripts/check-layers.sh; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
fi

for src in tests/unit/*.c; do
    name=$(basename "$src" .c)
    printf '== %s\n' "$name"
    timeout 900 "$TESTS/$name" >"$log" 2>&1 </dev/null
    rc=$?
    cat "$log"
    ok=$(count '^\[       OK \]')
    bad=$(count '^\[  FAILED  \] [A-Za-z_0-9]*$')
    # a crash or a time-out leaves no line of its own
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
        printf '%s: exit status %d\n' "$name" "$rc"
        bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
done

for src in tests/cli/*.bats; do
    printf '== %s\n' "$src"
    timeout 1200 bats --tap "$src" >"$log" 2>&1 </dev/null
    rc=$?
    cat "$log"
    ok=$(count '^ok ')
    bad=$(count '^not ok ')
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
        printf '%s: exit status %d\n' "$src" "$rc"
        bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
done

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
