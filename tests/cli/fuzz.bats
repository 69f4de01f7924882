#!/usr/bin/env bats
# The inputs of the fuzz targets that the repository keeps. `make fuzz` searches for
# others.
load helpers

setup() {
    common_setup
    REPLAY=${TESTS:-build/tests}/replay
}

@test "each kept input is taken, or refused with one message" {
    run --separate-stderr "$REPLAY" tests/fuzz/corpus
    echo "$output" "$stderr"
    [ "$status" -eq 0 ]
    # each target has a directory of inputs
    [ "$(grep -c ' inputs, ' <<<"$output")" -eq "$(ls tests/fuzz/corpus | wc -l)" ]
}

@test "an input that a target never takes is seen" {
    mkdir -p "$T/corpus/json"
    echo '{' >"$T/corpus/json/bad"
    run "$REPLAY" "$T/corpus" json
    [ "$status" -eq 1 ]
    [[ $output == *"json: no input is taken"* ]]
}
