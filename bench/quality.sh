#!/usr/bin/env bash
# What quantizing costs: a Markdown table of a checkpoint at each width, with
# scales chosen in both ways.
#
# Usage: bench/quality.sh [CHECKPOINT [HELDOUT.jsonl]]
#   CHECKPOINT  in bf16, f16 or f32; default: models/demo
#   HELDOUT     lines of {"given", "text"} as `qwick score --jsonl` takes them;
#               default: bench/heldout.jsonl, 200 dialogues that the demo model
#               was not trained on (phrasings that its training left out, see
#               bench/heldout.py)
#
# perplexity: of the held-out texts after what is given, each by itself.
# same answer: prompts of tests/golden/demo_visible.jsonl whose greedy answer
# has the ids of the golden, which is transformers' in float32; only for the
# demo model. All by --exact. QWICK names the program, BITS the widths.
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL
export QWICK_NO_CONFIG=on
qwick=${QWICK:-./qwick}
src=${1:-models/demo}
heldout=${2:-bench/heldout.jsonl}
golden=tests/golden/demo_visible.jsonl
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

perplexity() {
    "$qwick" score -m "$1" --exact --jsonl --perplexity -i "$heldout" |
        awk '$1 == "perplexity" { printf "%.4f", $2 }'
}

agreement() {
    [ "$(realpath "$src")" = "$(realpath models/demo)" ] || { echo "-"; return; }
    python3 - "$qwick" "$1" "$golden" <<'PY'
import json, subprocess, sys
qwick, model, golden = sys.argv[1:]
same = total = 0
for line in open(golden, encoding="utf-8"):
    want = json.loads(line)
    got = subprocess.run(
        [qwick, "-m", model, "--exact", "--greedy", "--think", "off", "-n", "60",
         "--no-stdin", "--json", "-p", want["prompt"]],
        check=True, capture_output=True)
    same += json.loads(got.stdout)["tokens"] == want["ids"]
    total += 1
print(f"{same}/{total}")
PY
}

row() { # NAME SCALES BITS_PER_WEIGHT CHECKPOINT
    printf '| %s | %s | %s | %s | %s |\n' "$1" "$2" "$3" "$(perplexity "$4")" \
        "$(agreement "$4")"
}

echo "| width | scales | bits per weight | perplexity | same answer |"
echo "|---|---|--:|--:|--:|"
row "as it is" "-" "$("$qwick" inspect -m "$src" --json | python3 -c '
import json, sys
o = json.load(sys.stdin)
print("%.2f" % (8 * o["weight_bytes"] / o["n_params"]))')" "$src"
for bits in ${BITS:-8 6 5 4 3 2}; do
    for scales in mlx lsq; do
        to=$tmp/$bits-$scales
        per_weight=$("$qwick" quantize -m "$src" -o "$to" --bits "$bits" \
            --scales "$scales" --json | python3 -c '
import json, sys
print("%.2f" % json.load(sys.stdin)["bits_per_weight"])')
        row "$bits" "$scales" "$per_weight" "$to"
        rm -rf "$to"
    done
done
