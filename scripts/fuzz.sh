#!/usr/bin/env bash
# Search with libFuzzer for inputs that break a parser, and print executions and
# coverage of each target. New inputs are kept in build/fuzz/corpus, those that break
# something in build/fuzz/finds; ends with status 1 if there are any. Without the
# packages, and without a way to install them, it prints SKIP and the reason.
#   SECONDS_EACH=N  for each target (default 60)    TARGET=NAME  only this one
#   JOBS=N          targets at once (default: one for each CPU)
set -u
cd "$(dirname "$0")/.." || exit
build=build/fuzz
seconds=${SECONDS_EACH:-60}
jobs=${JOBS:-$(nproc)}
unset QWICK_MODEL HF_HUB_CACHE HF_HOME

if ! why=$(scripts/install-deps.sh fuzz 2>&1); then
    printf 'SKIP: %s\n' "$(tail -n 1 <<<"$why")"
    exit 0
fi
make --no-print-directory -s -j"$(nproc)" FUZZ=1 $build/tests/fuzz/fuzz || exit 1

targets=${TARGET:-$(ls tests/fuzz/corpus)}
mkdir -p $build/finds $build/logs
export build seconds

# fuzz_one TARGET: its last line goes to standard output.
fuzz_one()
{
    local log=$build/logs/$1.log masked=0 rc
    mkdir -p "$build/corpus/$1"
    # options are refused with messages
    [ "$1" != options ] || masked=2
    QWICK_FUZZ_TARGET=$1 ASAN_OPTIONS=allocator_may_return_null=1 \
        "$build/tests/fuzz/fuzz" -max_total_time="$seconds" -timeout=60 \
        -rss_limit_mb=4096 -max_len=8192 -close_fd_mask=$masked \
        -print_final_stats=1 -artifact_prefix="$build/finds/$1-" \
        "$build/corpus/$1" "tests/fuzz/corpus/$1" >"$log" 2>&1
    rc=$?
    awk -v name="$1" -v rc=$rc '
        / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1)
                   for (i = 1; i < NF; i++) if ($i == "ft:") ft = $(i + 1) }
        /number_of_executed_units/ { runs = $2 }
        END { printf("%-12s %10d executions, %6d edges, %7d features%s\n", name,
                     runs, cov, ft, rc ? ", FAILED: status " rc : "") }' "$log"
    [ $rc -eq 0 ] || tail -n 40 "$log"
    return $rc
}
export -f fuzz_one
# shellcheck disable=SC2086 # a list of names
printf '%s\n' $targets | xargs -P "$jobs" -I{} bash -c 'fuzz_one {}' && echo "no finds"
