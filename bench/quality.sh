#!/usr/bin/env bash
# What quantizing costs: a Markdown table of a checkpoint at each width, with
# scales and codes chosen in each way.
#
# Usage: bench/quality.sh [CHECKPOINT [HELDOUT [CALIBRATE [FILE...]]]]
#   CHECKPOINT  in bf16, f16 or f32; default: models/demo
#   HELDOUT     records as `qwick score -i` takes them; default:
#               bench/heldout.jsonl, 200 dialogues that the demo model was not
#               trained on (phrasings that its training left out, see
#               bench/heldout.py)
#   CALIBRATE   texts as `qwick quantize --calibrate` takes them, none of which
#               is in HELDOUT: adds rows of calibrated results; -: none
#   FILE        quantized checkpoints of the same model that another program
#               has written: a row each
#
# BITS are the widths of MLX's format, TYPES the types of GGUF files (none by
# default), BPW the budgets (with CALIBRATE); QWICK names the program.
#
# KL, perplexity and same top: what `qwick score --against CHECKPOINT --exact`
# measures on the held-out texts after what is given, each by itself, with half
# of the 95% interval; perplexity as a multiple of the source's.
# same answer: prompts of tests/golden/demo_visible.jsonl whose greedy answer
# has the ids of the golden, which is transformers' in float32; only for the
# demo model, by --exact.
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL
export QWICK_NO_CONFIG=on
qwick=${QWICK:-./qwick}
src=${1:-models/demo}
heldout=${2:-bench/heldout.jsonl}
calibrate=${3:--}
shift $(($# < 3 ? $# : 3))
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

row() { # NAME HOW CHECKPOINT
    "$qwick" score -m "$3" --against "$src" -i "$heldout" --exact --jsonl \
        --perplexity | awk -F '\t' -v name="$1" -v how="$2" \
        -v bytes="$(du -bsL "$3" | cut -f 1)" -v same="$(agreement "$3")" '
        { value[$1] = $2; half[$1] = ($4 - $3) / 2 }
        function pair(name, form) {
            return sprintf(form " ± " form, value[name], half[name])
        }
        END {
            printf "| %s | %s | %.2f | %s | %s | %.2f%% | %s |\n", name, how,
                bytes / 1e6, pair("kl", "%.4f"), pair("perplexity_ratio", "%.3f"),
                100 * value["agreement"], same
        }'
}

made() { # NAME HOW OPTIONS...: the row of what quantize writes
    local name=$1 how=$2
    shift 2
    rm -rf "$tmp/to" "$tmp/to.gguf"
    case " $* " in
    *" --format gguf "*) set -- "$@" -o "$tmp/to.gguf" ;;
    *) set -- "$@" -o "$tmp/to" ;;
    esac
    "$qwick" quantize -q -m "$src" "$@" >/dev/null
    row "$name" "$how" "${!#}"
}

ways() { # NAME UNCALIBRATED OPTIONS...: in each way
    local name=$1 plain=$2 scales
    shift 2
    for scales in $plain; do
        made "$name" "$scales" "$@" --scales "$scales"
    done
    [ "$plain" ] || made "$name" "search" "$@"
    [ "$calibrate" != - ] || return 0
    for scales in lsq feedback; do
        made "$name" "calibrated $scales" "$@" --scales "$scales" \
            --calibrate "$calibrate"
    done
}

echo "| width | chosen by | MB | KL | perplexity, times | same top | same answer |"
echo "|---|---|--:|--:|--:|--:|--:|"
for bits in ${BITS-8 6 5 4 3 2}; do
    ways "$bits" "mlx lsq" --bits "$bits"
done
for bpw in ${BPW-}; do
    made "$bpw" "budget" --bpw "$bpw" --calibrate "$calibrate"
done
for type in ${TYPES-}; do
    ways "$type" "" --format gguf --type "$type"
done
for file; do
    row "$(basename "$file" .gguf)" "as written" "$file"
done
