#!/usr/bin/env bash
# What guessing ahead (--lookup) gains on text that repeats itself, and what it
# costs on text that does not: a Markdown table. Runs with and without take
# turns, each pair in the other order than the one before; medians.
#
# usage: bench/lookup.sh [ROUNDS [N]]
#   ROUNDS  runs of each kind, default 9      N  of --lookup, default 16
# QWICK names the program, MODEL the model (default: the demo model), TOKENS the
# length of the answers (default 200), OPTS further options (--exact, -t 1 …).
#
# The prompts are raw text. Repetition: greedy answers that go round in circles
# (the demo model's and random weights' do soon) and answers that must copy,
# because a negative penalty favours tokens that were there. None: greedy
# answers to requests, and draws at high temperature.
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL
export QWICK_NO_CONFIG=on
export QWICK=${QWICK:-./qwick} MODEL=${MODEL:-} TOKENS=${TOKENS:-200} OPTS=${OPTS:-}
python3 - "${1:-9}" "${2:-16}" <<'PY'
import json, os, statistics, subprocess, sys
rounds, n = int(sys.argv[1]), sys.argv[2]
env = os.environ
base = [env["QWICK"], "--json", "-n", env["TOKENS"], "--no-stdin"]
base += (["-m", env["MODEL"]] if env["MODEL"] else []) + env["OPTS"].split()
raw = ["--raw", "--ignore-eos"]
cases = [
    ("circles", raw + ["--greedy", "-p", "Hello"]),
    ("circles", raw + ["--greedy", "-p", "cat a; cat b; cat c"]),
    ("copies", raw + ["--greedy", "--frequency-penalty", "-0.3",
                      "-p", "find . -name '*.txt' -print\n"]),
    ("some", ["--ignore-eos", "--greedy", "list all listening tcp ports"]),
    ("none", ["--greedy", "what is rsync?"]),
    ("none", raw + ["--greedy", "-p", "1 2 3 4 5 6 7 8"]),
    ("none", raw + ["--temp", "1.5", "--seed", "1", "-p", "Copy a file"]),
    ("none", raw + ["--temp", "1", "--seed", "2", "-p", "Copy a file"]),
]

def run(args, lookup):
    out = subprocess.run(base + args + ["--lookup", lookup], check=True,
                         capture_output=True).stdout
    o = json.loads(out)
    t = o["timing"]
    steps = max(1, len(o["tokens"]) - 1)
    return o, (t["total_ms"] - t["prefill_ms"]) / steps

print("| repetition | prompt | tokens | drafted | kept | passes | kept a pass "
      "| ms a token without | with | speed |")
print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
for kind, args in cases:
    ms = {"0": [], n: []}
    for r in range(rounds):
        for lookup in ("0", n)[:: 1 if r % 2 else -1]:
            o, t = run(args, lookup)
            ms[lookup].append(t)
            if lookup != "0":
                on = o
    off, with_ = (statistics.median(ms[k]) for k in ("0", n))
    l = on["lookup"]
    print("| %s | %s | %d | %d | %d | %d | %.2f | %.3f | %.3f | %.2f |" %
          (kind, args[-1].strip(), len(on["tokens"]), l["drafted"],
           l["accepted"], l["passes"],
           l["accepted"] / l["passes"] if l["passes"] else 0,
           off, with_, off / with_), flush=True)
PY
