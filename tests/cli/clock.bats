#!/usr/bin/env bats
# The clock of the day jumps by a year between any two readings: nothing changes.
# faults/inject.c makes it jump.
load helpers

setup_file() {
    build_injector
}

setup() {
    injection_setup
    cd "$T" || return 1
}

# Run qwick under the clock that jumps.
jumping() {
    FAULT_CLOCK=31536000 LD_PRELOAD=$INJECT "$QWICK" "$@" </dev/null
}

# Assert that all values of "timing" in the lines on standard input are times of a
# test, and none is a year or less than nothing.
sane_times() {
    python3 -c 'import json, sys
def numbers(v):
    if isinstance(v, dict):
        return [x for k in v if k.endswith("_ms") for x in numbers(v[k])]
    return [x for w in v for x in numbers(w)] if isinstance(v, list) else [v]
lines = sys.stdin.read().splitlines()
assert lines
for line in lines:
    times = numbers(json.loads(line)["timing"])
    assert len(times) > 3 and all(0 <= t < 3600e3 for t in times), line'
}

@test "the clock of these tests does jump" {
    cat >now.c <<'END'
#include <stdlib.h>
#include <time.h>
int main(void)
{
    struct timespec t, m[2];
    long a = time(NULL), b;
    clock_gettime(CLOCK_REALTIME, &t);
    b = t.tv_sec;
    clock_gettime(CLOCK_MONOTONIC, &m[0]);
    clock_gettime(CLOCK_MONOTONIC, &m[1]);
    return labs(a - b) < 63000000 || m[1].tv_sec - m[0].tv_sec > 1000;
}
END
    "${CC:-cc}" -O1 -o now now.c
    run ! ./now
    FAULT_CLOCK=31536000 LD_PRELOAD=$INJECT ./now
}

@test "answers, and the times that they report" {
    local -a o=(-n 24 --seed 1 --raw ls --timeout 600)
    equal "$(jumping "${o[@]}")" "$(q "${o[@]}")"
    jumping "${o[@]}" --json --profile-file profile >answer
    sane_times <answer
    sane_times <profile
    [ "$(jget 'o["finish_reason"]' <answer)" = length ]
}

@test "--timeout ends an answer" {
    [ "$(jumping --json --raw --ignore-eos --loop-guard 0 -n 1000000 --timeout 0.1 ls |
        jget 'o["finish_reason"]')" = timeout ]
}

@test "batch answers as ever" {
    printf '{"prompt":"%s"}\n' ls pwd 'list files' >in
    jumping batch --seed 1 -n 8 --timeout 600 -i in >out
    sane_times <out
    equal "$(sed 's/,"timing":.*//' out)" \
        "$(q batch --seed 1 -n 8 -i in | sed 's/,"timing":.*//')"
}

@test "the prefix cache answers from its entries, and drops the right ones" {
    seq 80 >one
    seq 100 180 >two
    local n file=one
    used() {
        jumping --prefix-cache=cache -n 2 --raw --json -f "$1" >answer
        jget "o['usage']['cached_tokens']" <answer
    }
    [ "$(used one)" = 0 ]
    [ "$(used one)" -gt 0 ]
    # an entry of next year was used before the clock was set back
    find cache -name '*.kv' -exec touch -d '+1 year' {} +
    [ "$(q --prefix-cache=cache -n 2 --raw --json -f two | jget "o['usage']['cached_tokens']")" = 0 ]
    n=$(find cache -name '*.kv' -newermt '+1 day' | wc -l)
    [ "$n" -ge 1 ]
    size=$(find cache -name '*.kv' -not -newermt '+1 day' -printf '%s\n' | awk '{ n += $1 } END { print n }')
    q cache gc --dir cache --size "$size"
    [ -z "$(find cache -name '*.kv' -newermt '+1 day')" ]
    [ "$(q --prefix-cache=cache -n 2 --raw --json -f two | jget "o['usage']['cached_tokens']")" -gt 0 ]
    # a temporary file of next year has no writer
    entry=$(find cache -name '*.kv')
    touch -d '+1 year' "$entry.tmp-0123456789abcdef"
    touch "$entry.tmp-0123456789abcde0"
    q cache gc --dir cache
    [ ! -e "$entry.tmp-0123456789abcdef" ]
    [ -e "$entry.tmp-0123456789abcde0" ]
}
