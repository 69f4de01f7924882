#!/usr/bin/env bash
# What a draft model (--draft) gains and costs: a Markdown table. Runs with and
# without take turns, each pair in the other order than the one before; medians.
#
# usage: bench/draft.sh DRAFT [ROUNDS]
#   DRAFT   the draft model      ROUNDS  runs of each kind, default 9
# QWICK names the program, MODEL the model (default: the demo model), TOKENS the
# length of the answers (default 100), OPTS further options (--exact, -t 1 …).
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL
if [ $# -lt 1 ]; then
    sed -n '5,8p' "$0" >&2
    exit 2
fi
export QWICK=${QWICK:-./qwick} MODEL=${MODEL:-} TOKENS=${TOKENS:-100} OPTS=${OPTS:-}
python3 - "$1" "${2:-9}" <<'PY'
import json, os, statistics, subprocess, sys
draft, rounds = sys.argv[1], int(sys.argv[2])
env = os.environ
base = [env["QWICK"], "-q", "--json", "-n", env["TOKENS"], "--no-stdin"]
base += (["-m", env["MODEL"]] if env["MODEL"] else []) + env["OPTS"].split()
sample = ["--temp", "1", "--seed", "7"]
cases = [
    ("greedy", ["--greedy", "list all files larger than 10 MB"]),
    ("greedy", ["--greedy", "what is rsync?"]),
    ("greedy", ["--greedy", "show the processes that use most memory"]),
    ("sampled", sample + ["find all symbolic links below /etc"]),
    ("sampled", sample + ["how do I unpack a tar file?"]),
    ("sampled", sample + ["--raw", "--ignore-eos", "-p", "Copy a file"]),
    ("hot", ["--temp", "2", "--seed", "7", "--raw", "--ignore-eos", "-p",
             "Copy a file"]),
]

def run(args, extra):
    out = subprocess.run(base + args + extra, check=True,
                         capture_output=True).stdout
    o = json.loads(out)
    t = o["timing"]
    steps = max(1, len(o["tokens"]) - 1)
    return o, (t["total_ms"] - t["prefill_ms"]) / steps, t["total_ms"]

print("| draws | prompt | tokens | drafted | kept | passes "
      "| ms a token without | with | speed | of the whole answer |")
print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
for kind, args in cases:
    ms, whole = {0: [], 1: []}, {0: [], 1: []}
    for r in range(rounds):
        for with_ in (0, 1)[:: 1 if r % 2 else -1]:
            o, step, total = run(args, ["--draft", draft] if with_ else [])
            ms[with_].append(step)
            whole[with_].append(total / len(o["tokens"]))
            if with_:
                on = o
    a, b = (statistics.median(ms[k]) for k in (0, 1))
    c, d = (statistics.median(whole[k]) for k in (0, 1))
    n = on["draft"]
    print("| %s | %s | %d | %d | %d | %d | %.3f | %.3f | %.2f | %.2f |" %
          (kind, args[-1], len(on["tokens"]), n["drafted"], n["accepted"],
           n["passes"], a, b, a / b, c / d), flush=True)
PY
