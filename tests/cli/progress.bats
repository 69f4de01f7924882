#!/usr/bin/env bats
# The progress line on a terminal's stderr; screen.py simulates the terminal.
load helpers

setup() {
    common_setup
    # two layers: no test looks at a text. The name avoids a warning.
    small_demo "$T/reranker"
    export QWICK_MODEL=$T/reranker
    cp -a "$T/reranker" "$T/embedder"
    echo '{}' >"$T/embedder/modules.json"
    # The first record outlives the others by far, so that the line shows 19 of 20
    # for some tenths of a second.
    python3 - "$T" <<'PY'
import sys, json
t = sys.argv[1]
with open(t + "/batch", "w") as out:
    out.write('{"prompt_ids":[1,2],"max_tokens":1500,"temperature":90,"seed":1}\n')
    for i in range(19):
        out.write(json.dumps({"prompt": f"list files of {i}", "max_tokens": 12}) + "\n")
with open(t + "/texts", "w") as out, open(t + "/jsonl", "w") as records:
    for i in range(30):
        text = f"{i} how do I list the files of a directory, sorted by size"
        out.write(text + ", with hidden ones?\n")
        # score and choose take longer for a token
        if i < 16:
            records.write(json.dumps({"text": text[:40], "prompt": text}) + "\n")
PY
    head -n 16 "$T/texts" >"$T/docs"
    # --ignore-eos: empty answers would add a note
    BATCH=(batch --exact -t 1 --ignore-eos -i "$T/batch")
    # slow kernels: some tenths of a second for these texts
    SLOW=(--isa ref -t 1)
    # The progress line appears after a second: by a clock that runs 20 times as fast,
    # or with the command paused for most of it.
    PAUSED=(--pause 1.1)
    fast_clock
    SOON=(--preload "$FAST_CLOCK")
    [ -n "$FAST_CLOCK" ] || SOON=("${PAUSED[@]}")
}

# screen OPTIONS… -- COMMAND…: print the final screen. $T/shots: all screens;
# $T/raw: the bytes.
screen() {
    run -0 python3 tests/cli/screen.py "${SOON[@]}" --keep "$T/shots" --raw "$T/raw" "$@"
}

@test "batch into a pipe whose reader writes to the terminal" {
    for columns in 80 40; do
        screen --columns $columns --pipe "$T/out" -- \
            "$QWICK" "${BATCH[@]}"
        jlines 'len(o) == 20 and all("text" in x for x in o)' <"$T/out"
        grep -q '^batch: 19 of 20 records' "$T/shots"
        # the line disappears before the reader writes, and does not come back
        python3 - "$T/raw" <<'PY'
import sys
b = open(sys.argv[1], "rb").read()
before, read, after = b.partition(b"[read ")
assert b"batch: " in before and before.endswith(b"\r\x1b[K"), before[-80:]
assert b"batch" not in after and b"\x1b" not in after, after
PY
        [ -z "$(grep -v '^\[read [0-9]*\]$' <<<"$output")" ]
    done
}

@test "batch to a terminal, to files" {
    screen --may-wrap -- "$QWICK" "${BATCH[@]}" --unordered
    python3 - "$T/raw" <<'PY'
import sys
b = open(sys.argv[1], "rb").read()
before, first, after = b.partition(b'{"line"')
assert b"batch:" not in after and b"\x1b" not in after
PY
    screen --columns 40 --out "$T/out" -- "$QWICK" "${BATCH[@]}" --unordered
    [ -z "$output" ]
    [ "$(wc -l <"$T/out")" -eq 20 ]
    grep -q '^batch: 19 of 20 records' "$T/shots"
    # the time that is left, by the real clock
    screen "${PAUSED[@]}" --preload "" --columns 40 -- "$QWICK" "${BATCH[@]}" -o "$T/out2"
    [ -z "$output" ]
    [ "$(wc -l <"$T/out2")" -eq 20 ]
    grep -q '^batch: 19 of 20 records, 0 s left, 1 at$' "$T/shots"
    # a shard shows the number of its own records
    screen --out "$T/out" -- "$QWICK" "${BATCH[@]}" --shard 1/3
    grep -q '^batch: 6 of 7 records' "$T/shots"
}

@test "embed, rerank, score, choose" {
    screen --columns 40 -- "$QWICK" embed "${SLOW[@]}" -m "$T/embedder" --lines -i "$T/texts" \
        --format f32 -o "$T/out"
    [ -z "$output" ]
    [ "$(stat -c %s "$T/out")" -eq 30720 ]
    grep -q '^embed: [0-9]* of 30 texts, [0-9]* s left$' "$T/shots"
    screen --columns 40 --out "$T/out" -- "$QWICK" rerank "${SLOW[@]}" \
        --query files --lines -i "$T/docs"
    [ -z "$output" ]
    [ "$(wc -l <"$T/out")" -eq 16 ]
    grep -q '^rerank: [0-9]* of 16 documents, [0-9]* s left$' "$T/shots"
    # on a terminal, output while input still comes ends the line
    screen --columns 40 --pipe "$T/out" -- "$QWICK" rerank "${SLOW[@]}" \
        --query files --lines --in-order -i "$T/docs"
    [ "$(wc -l <"$T/out")" -eq 16 ]
    grep -q '^rerank: ' "$T/shots"
    [ -z "$(sed 's/.*\[read//' "$T/raw" | grep -a rerank)" ]
    # several passes, and so several figures
    for v in "score --jsonl" "choose -a yes -a no --jsonl"; do
        # shellcheck disable=SC2086
        screen --columns 40 --stdin "$T/jsonl" --out "$T/out" -- "$QWICK" $v "${SLOW[@]}" \
            --prefill-chunk 64
        [ -z "$output" ]
        grep -q "^${v%% *}: [0-9]* of 16 records, [0-9]* s left$" "$T/shots"
    done
}

@test "a prompt's first pass, bench's first row" {
    screen --may-wrap --columns 40 -- "$QWICK" "${SLOW[@]}" --prefill-chunk 2000 -n 4 --ignore-eos -f "$T/docs" --raw
    grep -q '^prompt: [0-9]* of [0-9]* tokens, [0-9]* s \(so far\|left\)$' "$T/shots"
    [[ $output != *prompt:* ]]
    # in ASCII: screen.py counts bytes
    LC_ALL=C screen --columns 200 -- "$QWICK" bench "${SLOW[@]}" --prompt-lens 64 --gen 8 --reps 2
    grep -q '^bench: [0-6] of 6 runs, .*prefill of 64$' "$T/shots"
    [[ $output != *bench:* ]]
    [ "$(grep -c '^prefill  \|^decode  ' <<<"$output")" -eq 2 ]
    # rows appear when they are measured
    grep -q '^prefill' "$T/shots"
    python3 - "$T/shots" <<'PY'
import sys
shots = open(sys.argv[1]).read().split("-" * 200)
assert any("\nprefill " in s and "\ndecode " not in s for s in shots)
PY
}

@test "one long text, in one pass: the line moves with the layers" {
    local demo=(-m models/demo "${SLOW[@]}" --prefill-chunk 2000)
    head -n 6 "$T/docs" >"$T/long"
    # moves NAME: the layers in its lines
    moves() {
        python3 - "$1" "$T/shots" <<'PY'
import re, sys
seen = re.findall(f"^{sys.argv[1]}: ([0-9]+) of ([0-9]+) tokens, .*", open(sys.argv[2]).read(), re.M)
done = sorted({int(d) for d, n in seen if 0 < int(d) < int(n)})
print(seen)
# 7 layers of 8 end before the pass does; a slow terminal may miss some
assert len(done) >= 3, done
PY
    }
    [ -n "$FAST_CLOCK" ] || skip "the clock cannot be driven"
    screen --may-wrap -- "$QWICK" "${demo[@]}" -n 2 --raw -f "$T/long"
    moves prompt
    screen --may-wrap -- "$QWICK" choose "${demo[@]}" -a yes -a no -f "$T/long"
    moves choose
    # a document is cut to 256 tokens or so
    screen --may-wrap -- "$QWICK" rerank "${demo[@]}" --query files -f "$T/long"
    moves rerank
    screen --may-wrap -- "$QWICK" logits "${demo[@]}" -f "$T/long"
    moves logits
    # chat is interactive
    QWICK=$QWICK T=$T FAST_CLOCK=$FAST_CLOCK PYTHONPATH=$PWD/tests/cli \
        command python3 - "${demo[@]}" <<'PY'
import os, re, sys
from on_pty import Pty
T = os.environ["T"]
p = Pty([os.environ["QWICK"], "chat", *sys.argv[1:], "--no-history", "-n", "1"],
        env={"LD_PRELOAD": os.environ["FAST_CLOCK"]})
p.prompt()
p.line(f"/read {T}/long")
out = p.line("which?")
seen = re.findall(rb"prompt: ([0-9]+) of ([0-9]+) tokens, ", p.all)
open(T + "/shots", "wb").write(b"\n".join(b"prompt: %s of %s tokens, x" % s for s in seen))
PY
    moves prompt
}

@test "terminals that cannot erase, quiet, no terminal: nothing" {
    for how in dumb ""; do
        screen --term "$how" --out "$T/out" -- \
            "$QWICK" "${BATCH[@]}"
        [ ! -s "$T/raw" ]
    done
    screen --out "$T/out" -- \
        "$QWICK" "${BATCH[@]}" -q
    [ ! -s "$T/raw" ]
    run -0 --separate-stderr hurried q "${BATCH[@]}"
    [ -z "$stderr" ]
}

@test "messages have their own lines, and a signal leaves no progress line" {
    printf '%s\n' nonsense >>"$T/batch"
    screen --may-wrap --columns 60 --out "$T/out" -- bash -c \
        "'$QWICK' ${BATCH[*]}; [ \$? -eq 1 ]"
    [ "$(tr -d '\n' <<<"$output")" = "qwick: $T/batch: 1 answer is an error" ]
    run -130 python3 tests/cli/screen.py "${SOON[@]}" --keep "$T/shots" --raw "$T/raw" \
        --may-wrap --interrupt batch: -- "$QWICK" "${BATCH[@]}" --isa ref -o "$T/o"
    grep -q '^batch: ' "$T/shots"
    echo "$output"
    [[ $output != *batch:\ * ]]
}
