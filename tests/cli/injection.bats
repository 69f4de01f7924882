#!/usr/bin/env bats
# Failed, short and interrupted calls of the system: a sample of those that `make
# torture` tries. tests/torture/injection.py documents the checks, and takes a seed.
load helpers

setup_file() {
    build_injector
}

setup() {
    injection_setup
}

inject() {
    run python3 tests/torture/injection.py "$QWICK" "$INJECT" "$T/inject" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    # print the counts for a reader of the log
    echo "# ${lines[-1]}" >&3
}

@test "a sample of all calls, scenarios and ways to fail" {
    if [ "${QWICK_FAULTS:-}" = all ]; then
        inject
    else
        inject --sample 150 --seed "${QWICK_TEST_SEED:-1}"
    fi
}

@test "embed: a short write of the header is continued" {
    inject --only 'embed -o: write (one|half) from'
}

@test "batch: no answer is called foreign because memory was short" {
    inject --only 'batch -o, complete: alloc ENOMEM at' --last 40
}

@test "quantize --force: a directory that cannot be opened stays, and nothing else" {
    inject --only 'quantize --force: open EIO at'
}

@test "a warning needs no memory" {
    inject --only 'threads: alloc ENOMEM from' --last 8
}

@test "embed: an output is written although the sandbox cannot open its directory" {
    inject --only 'embed -o: open EMFILE at' --last 8
}

@test "a check that fails is seen" {
    cat >"$T/sham" <<TEXT
#!/bin/sh
[ -z "\$FAULT_AT" ] || exec echo nothing
exec "$QWICK" "\$@"
TEXT
    chmod +x "$T/sham"
    run python3 tests/torture/injection.py "$T/sham" "$INJECT" "$T/inject" \
        --only '^generate: read EIO at'
    [ "$status" -eq 1 ]
    [[ $output == *"status 0, but another output"* ]]
}
