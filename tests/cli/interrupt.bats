#!/usr/bin/env bats
# Interrupted work: a sample of what `make torture` does. The checks are documented
# in tests/torture/interrupt.py; batch.bats, quantize.bats, signals.bats and
# streams.bats have more of them.
load helpers

setup_file() {
    build_injector
}

setup() {
    injection_setup
}

interrupt() {
    run python3 tests/torture/interrupt.py "$QWICK" "$INJECT" "$T/int" \
        --seed "${QWICK_TEST_SEED:-1}" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    # print the counts for a reader of the log
    grep -E 'interruptions|^SKIP' <<<"$output" | sed 's/^/# /' >&3
}

@test "SIGKILL in writers, shared caches and downloads; files that change; SIGSTOP" {
    interrupt --runs 8 --only moments,random,cache,pull,mapped,stop
}

@test "closed streams, in all combinations" {
    interrupt --runs 12 --only closed
}

@test "a check that fails is seen: an output that is cut" {
    cat >"$T/sham" <<TEXT
#!/bin/sh
[ -n "\$FAULT_AT" ] || exec "$QWICK" "\$@"
env -u LD_PRELOAD "$QWICK" "\$@"
for f in new.kv old.kv; do [ ! -e \$f ] || : >\$f; done
kill -9 \$\$
TEXT
    chmod +x "$T/sham"
    run python3 tests/torture/interrupt.py "$T/sham" "$INJECT" "$T/int" --runs 4 --only moments
    [ "$status" -eq 1 ]
    [[ $output == *"is neither absent nor whole"* ]]
}
