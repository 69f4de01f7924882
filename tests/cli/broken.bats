#!/usr/bin/env bats
# Checkpoints with one fault each: a sample of those that `make torture` tries.
# tests/torture/broken.py documents the checks.
load helpers

setup() {
    common_setup
    command -v python3 >/dev/null || skip "no python3"
}

@test "each checkpoint with one fault is refused with one line, or runs" {
    run python3 tests/torture/broken.py "$QWICK" "$T/broken" --every 29
    echo "$output"
    [ "$status" -eq 0 ]
    # print the counts for a reader of the log
    grep -E 'cases|^SKIP' <<<"$output" | sed 's/^/# /' >&3
    # a sample has cases of each area
    [ "$(grep -cE '^[a-z]+: [0-9]+ cases' <<<"$output")" -ge 8 ]
}

@test "NaN in a norm, and so in all logits, is an error in each kind of weights" {
    run python3 tests/torture/broken.py "$QWICK" "$T/broken" --only "norm.weight: NaN of"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a check that fails is seen: an answer where a refusal is due" {
    cat >"$T/sham" <<'TEXT'
#!/bin/sh
echo '{"text":"","tokens":[]}'
TEXT
    chmod +x "$T/sham"
    run python3 tests/torture/broken.py "$T/sham" "$T/broken" --only "cut to"
    [ "$status" -eq 1 ]
    [[ $output == *": accepted: status 0"* ]]
}
