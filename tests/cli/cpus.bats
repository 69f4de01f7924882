#!/usr/bin/env bats
# CPUs other than the one that runs the tests, in an emulator.
load helpers

setup() {
    common_setup
    command -v qemu-x86_64 >/dev/null || skip "no qemu-x86_64 (package qemu-user)"
    [ "$(uname -m)" = x86_64 ] || skip "not an x86-64"
    [ -z "$SAN" ] || skip "a sanitizer's memory map does not fit in an emulator"
    # a small model, because an emulator is slow
    export QWICK_MODEL=./$MODELS/tied-bf16
}

# on CPU ARGUMENT...: run qwick on another CPU. The emulator's own warnings are
# dropped.
on() {
    local cpu=$1
    shift
    qemu-x86_64 -cpu "$cpu" "$QWICK" "$@" </dev/null \
        2> >(grep -v '^qemu-x86_64: warning' >&2)
}

@test "each CPU gets the kernels that it can run, and the same answer" {
    o=(--exact --greedy -n 4 --json --prompt-ids 5,6)
    want=$(q "${o[@]}" --isa ref | grep -o '"tokens":\[[0-9,]*\]')
    run -0 on core2duo "${o[@]}" -v
    [[ $output == *"warning: there are no fast kernels for this CPU"* ]]
    [[ $output == *"kernels ref of ref"* ]]
    [[ $output == *"$want"* ]]
    for cpu in Haswell EPYC; do
        run -0 on $cpu "${o[@]}" -v
        [[ $output == *"kernels avx2 of avx2"* ]]
        [[ $output == *"$want"* ]]
    done
    run -2 on Haswell --isa avx512 -n 1 --prompt-ids 5
}
