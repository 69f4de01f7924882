#!/usr/bin/env bats
# Limits, environments, JSON and UTF-8 of all kinds, and determinism: samples of what
# `make torture` tries. limits.py, texts.py and determinism.py in tests/torture
# document the checks.
load helpers

setup() {
    common_setup
    command -v python3 >/dev/null || skip "no python3"
}

# sample SCRIPT ARGS…: run it, and print its counts for a reader of the log.
sample() {
    local script=$1
    shift
    run python3 "tests/torture/$script" "$QWICK" "$T/run" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    grep -E '^[0-9]+ |^SKIP' <<<"$output" | sed 's/^/# /' >&3
}

@test "limits of memory, descriptors, sizes, stacks and threads; full and read-only disks" {
    [ "${SAN:-}" != 1 ] || skip "limits are not set under sanitizers"
    sample limits.py --dense 8
}

@test "JSON and UTF-8 of all kinds through each entry" {
    sample texts.py --every 40
}

@test "the same bytes with any threads, chunks, companions, arrivals and cache hits" {
    sample determinism.py --runs 6 --seed "${QWICK_TEST_SEED:-1}"
}

@test "checks that fail are seen" {
    printf '#!/bin/bash\n[[ "$*" == *"-t 1" ]] || set -- "$@" -s other\nexec "%s" "$@"\n' \
        "$QWICK" >"$T/sham"
    chmod +x "$T/sham"
    run python3 tests/torture/determinism.py "$T/sham" "$T/run" --runs 6 --only default
    [ "$status" -eq 1 ]
    [[ $output == *"default: "*": differs"* ]]
    printf '#!/bin/sh\n[ -n "$HOME" ] || exit 1\nexec "%s" "$@"\n' "$QWICK" >"$T/sham"
    run python3 tests/torture/limits.py "$T/sham" "$T/run" --only places
    [ "$status" -eq 1 ]
    [[ $output == *"places: no HOME"* ]]
}
