#!/usr/bin/env bash
# Decode beside busy loops that take turns with it on one core each: how much is
# lost when a neighbour steals a core. Prints tok/s without, with one and with
# two of them, interleaved.
#
# usage: bench/noisy.sh MODEL [ROUNDS]
set -eu
cd "$(dirname "$0")/.."
export QWICK_NO_CONFIG=on
model=$1
rounds=${2:-3}

tok_s() {
    ./qwick bench -m "$model" --prompt-lens 16 --depths 16 --gen 64 --reps 3 \
        --json | python3 -c 'import json, sys
r = [x for x in json.load(sys.stdin)["results"] if x["test"] == "decode"][0]
print("%.1f tok/s, %.1f%% of the limit" % (r["tok_s"], r["percent_of_limit"]))'
}

for round in $(seq "$rounds"); do
    for loops in 0 1 2; do
        pids=()
        for core in $(seq 0 $((loops - 1))); do
            taskset -c "$core" sh -c 'while :; do :; done' &
            pids+=($!)
        done
        echo "round $round, $loops busy: $(tok_s)"
        [ "$loops" = 0 ] || kill "${pids[@]}"
        wait 2>/dev/null || true
    done
done
