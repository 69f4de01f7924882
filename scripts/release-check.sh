#!/usr/bin/env bash
# Run all checks of a release on one commit. See --help.
set -u
cd "$(dirname "$0")/.." || exit

usage()
{
    cat <<'TEXT'
Usage: scripts/release-check.sh [--list | --only NAME]...

Runs the checks of a release, one after the other, on the commit that is checked out,
and prints a table for the release notes. The table and the output of each check are
kept in build/release/COMMIT. A check that passed is not run again on this commit;
one that failed or was skipped is. After a failure, the other checks still run. A check
whose needs are missing is SKIP with the reason, and so is one of which a part is
missing. Files that differ from the commit are refused.

  --list       print the names of the checks and their commands
  --only NAME  run this check only, and those of other --only

  FUZZ_SECONDS=N  of all fuzz targets together (default 3600)
  OLD=FILE        the qwick of the last release, to compare speeds with; without it,
                  the last tag is built
  CHECKS=FILE     another list of checks: lines of name, tab, "whole" or "parts", tab,
                  command. "parts": any line of output that begins with SKIP is a
                  missing part; "whole": only the last line is
  JSON_SCHEMA_TEST_SUITE, MASKBENCH, BFCL: data for make check-schemas

Exit status: 0 no check failed, 1 some did, 2 usage, or files that differ.
TEXT
}

# ---- the checks ----

checks()
{
    if [ -n "${CHECKS:-}" ]; then
        cat "$CHECKS"
        return
    fi
    tr -s ' ' <<'TEXT' | sed 's/ /\t/; s/ /\t/'
check            whole make --no-print-directory check
check-san        whole make --no-print-directory check SAN=1
torture          whole make --no-print-directory torture
torture-san      whole make --no-print-directory torture SAN=1
fuzz             parts fuzz_together
check-races      parts make --no-print-directory check-races
analyse          parts make --no-print-directory analyse
check-arm        parts make --no-print-directory check-arm
check-deb        parts make --no-print-directory check-deb
check-dist       parts dist_twice
check-html       parts make --no-print-directory check-html
check-clients    parts make --no-print-directory check-clients
check-cluster    parts make --no-print-directory check-cluster
check-tokenizers parts make --no-print-directory check-tokenizers
check-schemas    parts make --no-print-directory check-schemas
check-static     parts scripts/check-static.sh
check-portable   parts scripts/check-portable.sh
compare          parts compare_with_release
TEXT
}

# shellcheck disable=SC2317 # called by bash -c
fuzz_together()
{
    local n
    n=$(find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -type d | wc -l)
    make --no-print-directory fuzz SECONDS=$(((${FUZZ_SECONDS:-3600} + n - 1) / n))
}

# The archive of this commit from two checkouts of different users has the same bytes.
# shellcheck disable=SC2317
dist_twice()
{
    local work sums
    work=$(mktemp -d build/dist-twice.XXXXXX) || return
    (umask 022 && git clone -q --shared . "$work/one" && cd "$work/one" &&
        TZ=UTC make --no-print-directory -s dist) &&
        (umask 077 && git clone -q --shared . "$work/two" && cd "$work/two" &&
            TZ=Asia/Tokyo LC_ALL=C.UTF-8 make --no-print-directory -s dist)
    sums=$(cat "$work"/*/build/*.sha256)
    rm -rf "$work"
    echo "$sums"
    [ "$(wc -l <<<"$sums")" -eq 2 ] && [ "$(sort -u <<<"$sums" | wc -l)" -eq 1 ]
}

# Build the last release, unless OLD is its program.
# shellcheck disable=SC2317
compare_with_release()
{
    local tag tree=build/release/old
    if [ -z "${OLD:-}" ]; then
        tag=$(git describe --tags --abbrev=0 2>/dev/null)
        if [ -z "$tag" ]; then
            echo "SKIP: no release has a tag, and OLD is not given"
            return
        fi
        rm -rf "$tree"
        git clone -q --shared --branch "$tag" . "$tree" 2>/dev/null &&
            make --no-print-directory -s -j"$(nproc)" -C "$tree" all || return
        OLD=$tree/qwick
    fi
    make --no-print-directory -s -j"$(nproc)" all &&
        bench/compare.sh "$OLD" ./qwick
}
export -f fuzz_together dist_twice compare_with_release

# ---- running them ----

is_dirty()
{
    [ -n "$(git status --porcelain 2>&1)" ]
}

# verdict STATUS KIND LOG: print what the check came to.
verdict()
{
    if [ "$1" -ne 0 ]; then
        echo "FAILED ($1)"
    elif { [ "$2" = parts ] && grep -q '^SKIP' "$3"; } || tail -n 1 "$3" | grep -q '^SKIP'; then
        echo SKIP
    else
        echo passed
    fi
}

# last_line RESULT LOG: the last line of its output, or why it was skipped.
last_line()
{
    if [ "$1" = SKIP ]; then
        sed -n 's|^SKIP:* *||p' "$2" | tail -n 1
    else
        grep -v '^[[:space:]]*$' "$2" | tail -n 1
    fi | tr -d '\r' | cut -c 1-160
}

# run_check NAME KIND COMMAND: the result is a file of three lines: result, seconds,
# last line. It appears when the check has ended.
run_check()
{
    local log=$state/$1.log result start=$SECONDS
    rm -f "$state/$1.result"
    echo "== $1: $3"
    MAKEFLAGS='' bash -c "$3" >"$log" 2>&1 </dev/null
    result=$(verdict $? "$2" "$log")
    if [ "$(git rev-parse HEAD)" != "$commit" ] || is_dirty; then
        echo "release-check: the files changed while $1 ran; its result does not count" >&2
        exit 2
    fi
    {
        echo "$result"
        echo $((SECONDS - start))
        last_line "$result" "$log"
    } >"$state/$1.tmp"
    mv "$state/$1.tmp" "$state/$1.result"
    [[ $result != FAILED* ]] || tail -n 20 "$log"
    echo "== $1: $result, $((SECONDS - start)) s"
}

# table: all checks with their results on this commit.
table()
{
    local name result seconds line
    printf 'Commit %s; %s, %d CPUs; %s\n\n' "$(git rev-parse --short=12 HEAD)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
        "$("${CC:-gcc}" --version | head -n 1)"
    printf '| check | result | time | last line |\n|---|---|---:|---|\n'
    while IFS=$'\t' read -r name _; do
        result='not run' seconds='' line=''
        if [ -e "$state/$name.result" ]; then
            { read -r result; read -r seconds; read -r line; } <"$state/$name.result"
            seconds=$(printf '%d:%02d:%02d' $((seconds / 3600)) $((seconds / 60 % 60)) \
                $((seconds % 60)))
        fi
        printf '| %s | %s | %s | %s |\n' "$name" "$result" "$seconds" "${line//|/\\|}"
    done < <(checks)
}

only=' '
while [ $# -gt 0 ]; do
    case $1 in
    --list)
        checks | awk -F '\t' '{ printf("%-16s %s\n", $1, $3) }'
        exit 0
        ;;
    --only)
        if ! checks | cut -f 1 | grep -qxF -- "${2:-}"; then
            echo "release-check: --only \"${2:-}\": no such check; --list has them" >&2
            exit 2
        fi
        only="$only$2 "
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done

if is_dirty; then
    echo "release-check: files differ from the commit:" >&2
    git status --porcelain 2>&1 | head -n 10 >&2
    exit 2
fi
commit=$(git rev-parse HEAD)
state=build/release/$commit
mkdir -p "$state"
failed=0
while IFS=$'\t' read -r name kind command <&3; do
    [ "$only" = ' ' ] || [[ $only == *" $name "* ]] || continue
    if [ "$(head -n 1 "$state/$name.result" 2>/dev/null)" = passed ]; then
        echo "== $name: passed before"
        continue
    fi
    run_check "$name" "$kind" "$command"
    [[ $(head -n 1 "$state/$name.result") != FAILED* ]] || failed=1
done 3< <(checks)
echo
table | tee "$state/table.md"
exit $failed
