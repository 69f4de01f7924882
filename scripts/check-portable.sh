#!/usr/bin/env bash
# Build qwick with gcc 12 and clang 14, with -O1 and -O2, without a warning, and run
# the unit tests and some tests of the command line on each build; some of them again
# on a kernel without Landlock. Ends with a line "N passed, N failed". A compiler that
# is not there is a line SKIP; installs clang, if it can.
#   COMPILERS="clang-14"  LEVELS="-O1"  only these    T=NAME  only tests with NAME
set -u
cd "$(dirname "$0")/.." || exit
levels=${LEVELS:--O1 -O2}
tests=${T:-unit/ streams.bats json.bats options.bats sandbox.bats threads.bats
    structure.bats batch.bats gguf.bats cache.bats embed.bats serve_http.bats}
passed=0
failed=0

command -v clang-14 >/dev/null || scripts/install-deps.sh fuzz >&2

# count LOG: add the numbers of its last line.
count()
{
    local ok bad
    read -r ok bad < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$1")
    passed=$((passed + ${ok:-0}))
    failed=$((failed + ${bad:-1}))
}

# try COMPILER LEVEL: one build and its tests.
try()
{
    local build=build/portable/$1$2
    local log=$build/log
    mkdir -p "$build"
    # -O1 comes last and holds for the kernels as well; with -O2 they keep -O3
    local flags=''
    [ "$2" = -O2 ] || flags=$2
    if ! make --no-print-directory -s -j"$(nproc)" all unit-tests testdata CI=1 \
        CC="$1" BUILD="$build" CFLAGS="$flags" >"$log" 2>&1 || [ -s "$log" ]; then
        head -n 40 "$log"
        echo "$1 $2: the build fails or warns"
        failed=$((failed + 1))
        return
    fi
    T=$tests QWICK=$PWD/$build/qwick TESTS=$build/tests scripts/run-tests.sh >"$log" 2>&1
    grep -E '^[A-Za-z_.]*: (not ok|\[  FAILED|.*exit status)' "$log"
    echo "$1 $2: $(tail -n 1 "$log")"
    count "$log"
}

# without_landlock QWICK: the sandbox and some verbs where the kernel has none.
without_landlock()
{
    local log=build/portable/landlock.log
    "${CC:-gcc}" -O1 -o build/portable/no_landlock tests/faults/no_landlock.c || exit 1
    T="sandbox.bats streams.bats embed.bats" QWICK=$1 build/portable/no_landlock \
        scripts/run-tests.sh >"$log" 2>&1
    grep -E '^[A-Za-z_.]*: (not ok|.*exit status)' "$log"
    echo "without Landlock: $(tail -n 1 "$log")"
    count "$log"
}

for compiler in ${COMPILERS:-gcc-12 clang-14}; do
    if ! command -v "$compiler" >/dev/null; then
        echo "SKIP: there is no $compiler"
        continue
    fi
    for level in $levels; do
        try "$compiler" "$level"
    done
    without_landlock "$PWD/build/portable/$compiler${level}/qwick"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
