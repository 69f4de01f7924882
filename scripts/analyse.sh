#!/usr/bin/env bash
# Static analysis of src/: clang-tidy (.clang-tidy), cppcheck, and gcc -fanalyzer on the
# code that reads files and texts. tests/tidy.txt, tests/cppcheck.txt and
# tests/fanalyzer.txt have the known alarms with reasons. Prints each new alarm, and
# each line of a list that no alarm matches, and ends with status 1 if there is one.
# Without the packages, and without a way to install them, it prints SKIP and the reason.
#   JOBS=N  files at once    T=NAME  only this tool: tidy, cppcheck or fanalyzer
#   FILES="src/cli/*.c"      only these files, with tidy and fanalyzer
set -u
cd "$(dirname "$0")/.." || exit
jobs=${JOBS:-$(nproc)}
# Analysers read one file at a time. base/err.h tells them what a failure returns.
flags="-std=gnu11 -D_GNU_SOURCE -DERR_FOR_ANALYSERS -Iinclude -Isrc"
bad=0

if ! why=$(scripts/install-deps.sh analyse 2>&1); then
    printf 'SKIP: %s\n' "$(tail -n 1 <<<"$why")"
    exit 0
fi

# sources DIR...: the files below, or those of FILES that are among them. Kernels are
# compiled with the flags of their level, which the Makefile has, and the tests compare
# each with the reference.
sources()
{
    find "$@" -name '*.c' ! -path 'src/kernel/x86/*' ! -name '*_other.c' | sort |
        if [ -n "${FILES:-}" ]; then
            # shellcheck disable=SC2086 # a list of patterns
            grep -xF "$(printf '%s\n' $FILES)"
        else
            cat
        fi
}

# report TOOL ALARMS: print the alarms and their number.
report()
{
    [ -z "$2" ] || printf '%s\n' "$2"
    printf '%s: %d alarms\n' "$1" "$(grep -c . <<<"$2")"
    [ -z "$2" ] || bad=1
}

# new_alarms KNOWN: the alarms on standard input, without line numbers, that the file
# does not have. Then, if all files were read, what only the file has.
new_alarms()
{
    local found
    found=$(sed -n "s|^$PWD/||; s/^\([^:]*\):[0-9]*:[0-9]*: \(warning\|error\): /\1: /p" |
        LC_ALL=C sort -u)
    LC_ALL=C comm -23 <(printf '%s\n' "$found" | grep .) \
        <(grep -v '^#\|^$' "$1" | LC_ALL=C sort -u)
    [ -n "${FILES:-}" ] ||
        LC_ALL=C comm -13 <(printf '%s\n' "$found" | grep .) \
            <(grep -v '^#\|^$' "$1" | LC_ALL=C sort -u) |
        sed "s|^|$1: no such alarm any more: |"
}

# One file at a time: with several, clang-tidy 14 mistakes each va_list of the later
# ones for an uninitialised one.
tidy()
{
    if ! clang-tidy --version | grep -q 'version 14'; then
        echo "SKIP: clang-tidy: its false alarms are known for version 14 only"
        return
    fi
    export flags
    # shellcheck disable=SC2016 # sh expands it
    report clang-tidy "$(sources src | xargs -r -P "$jobs" -n 1 sh -c \
        'clang-tidy --quiet "$1" -- $flags 2>/dev/null' clang-tidy |
        new_alarms tests/tidy.txt)"
}

check_cpp()
{
    # shellcheck disable=SC2086 # a list of flags
    report cppcheck "$(cppcheck -q -j "$jobs" --std=c11 --platform=unix64 \
        -D__x86_64__ -D__linux__ -D_GNU_SOURCE -DERR_FOR_ANALYSERS -Iinclude -Isrc \
        --enable=warning,performance,portability --inconclusive \
        --suppressions-list=tests/cppcheck.txt \
        --template='{file}:{line}: {id}: {message}' src 2>&1)"
}

# An alarm in a macro counts for the file that uses the macro.
fanalyzer()
{
    local version
    version=$(gcc -dumpversion)
    if [ "${version%%.*}" != 12 ]; then
        echo "SKIP: gcc -fanalyzer: its false alarms are known for gcc 12 only"
        return
    fi
    export flags
    # shellcheck disable=SC2016 # sh expands it
    report "gcc -fanalyzer" "$(sources src/file src/text | xargs -r -P "$jobs" -I{} sh -c \
        'LC_ALL=C gcc $flags -O1 -fno-math-errno -ftrack-macro-expansion=0 -fanalyzer \
            -c -o /dev/null {} 2>&1' |
        new_alarms tests/fanalyzer.txt)"
}

for tool in tidy cppcheck fanalyzer; do
    [ "${T:-$tool}" = "$tool" ] || continue
    case $tool in
    cppcheck) check_cpp ;;
    *) $tool ;;
    esac
done
exit $bad
