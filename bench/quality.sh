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
# KL, perplexity and same top: what qwick quantize --report measures on the
# held-out texts after what is given, each by itself, with half of the 95%
# interval; perplexity as a multiple of the source's.
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

row() { # NAME SCALES CHECKPOINT <LINES of quantize --report
    awk -F '\t' -v name="$1" -v scales="$2" -v same="$(agreement "$3")" '
        { value[$1] = $2; half[$1] = ($4 - $3) / 2 }
        function pair(name, form) {
            return sprintf(form " ± " form, value[name], half[name])
        }
        END {
            printf "| %s | %s | %.2f | %s | %s | %.2f%% | %s |\n", name, scales,
                value["bits_per_weight"], pair("kl", "%.4f"),
                pair("perplexity_ratio", "%.3f"), 100 * value["agreement"], same
        }'
}

echo "| width | scales | bits per weight | KL | perplexity, times | same top | same answer |"
echo "|---|---|--:|--:|--:|--:|--:|"
for bits in ${BITS:-8 6 5 4 3 2}; do
    for scales in mlx lsq; do
        "$qwick" quantize -m "$src" -o "$tmp/to" --force --bits "$bits" \
            --scales "$scales" --report "$heldout" >"$tmp/lines"
        row "$bits" "$scales" "$tmp/to" <"$tmp/lines"
    done
done
