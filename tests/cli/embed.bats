#!/usr/bin/env bats
# embed: sources, formats, records that are bad, texts that are too long.
load helpers

setup() {
    common_setup
    small_demo "$T/embedder"
    echo '{}' >"$T/embedder/modules.json"
    export QWICK_MODEL=$T/embedder
}

# Print the vectors of an .npy file on standard input as JSON: {"shape",
# "rows"}.
npy() {
    python3 -c 'import ast, json, struct, sys
b = sys.stdin.buffer.read()
assert b[:8] == b"\x93NUMPY\x01\x00", b[:8]
n, = struct.unpack("<H", b[8:10])
head = ast.literal_eval(b[10:10 + n].decode("ascii"))
assert (10 + n) % 64 == 0 and b[9 + n:10 + n] == b"\n"
assert set(head) == {"descr", "fortran_order", "shape"}, head
assert head["descr"] == "<f4" and head["fortran_order"] is False
rows, dim = head["shape"]
v = struct.unpack("<%df" % (rows * dim), b[10 + n:])
print(json.dumps({"shape": [rows, dim],
                  "rows": [v[i * dim:(i + 1) * dim] for i in range(rows)]}))'
}

@test "one vector per text, of length 1, in order" {
    q embed "list files" "show disk usage" | jlines \
        'len(o) == 2 and all(list(r) == ["embedding", "tokens"] for r in o) and
         all(len(r["embedding"]) == 256 for r in o) and
         [r["tokens"] for r in o] == [2, 3] and
         all(abs(sum(x * x for x in r["embedding"]) - 1) < 1e-6 for r in o) and
         o[0]["embedding"] != o[1]["embedding"]'
}

@test "arguments, files, lines and records give the same vectors" {
    printf 'list files\n' >"$T/a"
    printf 'show disk usage' >"$T/b"
    printf 'list files\r\nshow disk usage' >"$T/lines"
    printf '{"text":"list files"}\n{"text":"show disk usage"}\n' >"$T/jsonl"
    want=$(q embed --exact "list files" "show disk usage")
    [ "$(q embed --exact -f "$T/a" -f "$T/b")" = "$want" ]
    [ "$(q embed --exact --lines -i "$T/lines")" = "$want" ]
    [ "$(q embed --exact --jsonl -i "$T/jsonl")" = "$want" ]
    [ "$("$QWICK" embed --exact --lines <"$T/lines")" = "$want" ]
    [ "$("$QWICK" embed --exact --jsonl -i - <"$T/jsonl")" = "$want" ]
    [ "$("$QWICK" embed --exact <"$T/a")" = "${want%%$'\n'*}" ]
    [ "$("$QWICK" embed --exact - <"$T/a")" = "${want%%$'\n'*}" ]
    # batches do not change them
    for n in 1 2; do
        [ "$(q embed --exact --max-batch $n "list files" "show disk usage")" \
            = "$want" ]
    done
    [ "$(q embed --exact --prefill-chunk 1 "list files" "show disk usage")" \
        = "$want" ]
}

@test "formats hold the same numbers" {
    q embed --exact a b c >"$T/jsonl"
    q embed --exact a b c --format tsv >"$T/tsv"
    q embed --exact a b c --format f32 >"$T/f32"
    q embed --exact a b c --format npy >"$T/npy"
    for f in jsonl tsv f32 npy; do
        q embed --exact a b c --format $f -o "$T/out"
        cmp "$T/out" "$T/$f"
    done
    [ -z "$(ls "$T" | grep tmp)" ]
    npy <"$T/npy" >"$T/rows"
    python3 - "$T" <<'PY'
import json, struct, sys
t = sys.argv[1]
f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
npy = json.load(open(t + "/rows"))
rows = npy["rows"]
assert npy["shape"] == [3, 256]
lines = open(t + "/jsonl").read().splitlines()
assert [[f32(x) for x in json.loads(l)["embedding"]] for l in lines] == rows
lines = open(t + "/tsv").read().split("\n")[:-1]
assert [[f32(float(x)) for x in l.split("\t")] for l in lines] == rows
raw = open(t + "/f32", "rb").read()
assert len(raw) == 3 * 256 * 4
assert list(struct.unpack("<768f", raw)) == sum(rows, [])
PY
}

@test "npy of no texts, of many, to a pipe" {
    [ "$("$QWICK" embed --lines --format npy </dev/null | npy |
        jget 'o["shape"]')" = "[0, 256]" ]
    seq 600 >"$T/lines"
    "$QWICK" embed --lines --dim 3 --format npy -o "$T/out" <"$T/lines"
    [ "$(npy <"$T/out" | jget 'o["shape"]')" = "[600, 3]" ]
    mkfifo "$T/pipe"
    cat "$T/pipe" >"$T/through" &
    q embed a b --format npy -o "$T/pipe"
    wait
    [ "$(npy <"$T/through" | jget 'o["shape"]')" = "[2, 256]" ]
}

@test "--dim cuts and normalises again, --no-normalize does not" {
    q embed --exact --no-normalize a >"$T/raw"
    q embed --exact --no-normalize --dim 5 a >"$T/raw5"
    q embed --exact --dim 5 a >"$T/five"
    cat "$T/raw" "$T/raw5" "$T/five" | jlines \
        'o[0]["embedding"][:5] == o[1]["embedding"] and
         len(o[2]["embedding"]) == 5 and
         all(abs(x / sum(y * y for y in o[1]["embedding"]) ** 0.5 - z) < 1e-7
             for x, z in zip(o[1]["embedding"], o[2]["embedding"]))'
    fails 2 "dim: 257 asked for, the model's vectors have 256" embed --dim 257 a
}

@test "--instruct makes queries, a record may have its own" {
    one=$(q embed --exact $'Instruct: find a command\nQuery:disk full')
    [ "$(q embed --exact --instruct "find a command" "disk full")" = "$one" ]
    printf '%s\n' '{"text":"disk full","instruct":"find a command"}' \
        '{"text":"disk full"}' '{"text":"disk full","instruct":null}' \
        >"$T/in"
    "$QWICK" embed --exact --jsonl <"$T/in" >"$T/out"
    [ "$(sed -n 1p "$T/out")" = "$one" ]
    equal "$(sed -n 2p "$T/out")" "$(q embed --exact "disk full")"
    "$QWICK" embed --exact --jsonl --instruct "find a command" <"$T/in" \
        >"$T/out"
    [ "$(sed -n 2p "$T/out")" = "$one" ]
    equal "$(sed -n 3p "$T/out")" "$(q embed --exact "disk full")"
}

@test "text is text, unless --allow-special" {
    [ "$(q embed "<think>" | jget 'o["tokens"] > 1')" = True ]
    [ "$(q embed --allow-special "<think>" | jget 'o["tokens"]')" = 1 ]
}

@test "a bad record is answered in its place" {
    printf '%s\n' '{"id":7,"text":"a"}' 'nonsense' '[]' '{"id":"x"}' '' \
        '{"text":"b","instruct":1}' '{"text":""}' '{"id":{"k":[1]},"text":"c"}' \
        >"$T/in"
    run -1 --separate-stderr "$QWICK" embed --jsonl --dim 2 -i "$T/in"
    [ -z "$stderr" ]
    echo "$output" | jlines \
        '[("error" in r) for r in o] ==
             [False, True, True, True, True, True, True, False] and
         o[0]["id"] == 7 and o[3]["id"] == "x" and o[7]["id"] == {"k": [1]} and
         all("in: line %d: " % (i + 1) in o[i]["error"]
             for i in range(1, 7)) and
         len(o[0]["embedding"]) == 2'
    # an empty line is a text without tokens, which is an error
    run -1 --separate-stderr bash -c "printf 'a\n\nb\n' | '$QWICK' embed --lines"
    echo "$output" | jlines '[list(r)[0] for r in o] ==
        ["embedding", "error", "embedding"]'
    # formats that have no place for an error end the run
    for f in tsv f32 npy; do
        fails 1 "in: line 2: " embed --jsonl --format $f -i "$T/in" -o "$T/x"
        [ ! -e "$T/x" ]
        [ -z "$(ls "$T" | grep tmp)" ]
    done
}

@test "texts that do not fit the context" {
    long=$(seq 200 | tr '\n' ' ')
    fails 4 "tokens do not fit the context of 10" embed -c 10 "$long"
    fails 4 "argument 2: text: " embed -c 10 a "$long"
    run -0 --separate-stderr q embed -v -c 10 --truncate "$long"
    [[ $stderr == *"tokens are dropped"* ]]
    echo "$output" | jlines 'o[0]["tokens"] == 10 and o[0]["dropped_tokens"] > 90'
    printf 'a\n%s\n' "$long" >"$T/in"
    run -1 --separate-stderr q embed -c 10 --lines -i "$T/in"
    echo "$output" | jlines '"embedding" in o[0] and "context of 10" in
        o[1]["error"]'
    fails 4 "context of 10" embed -c 10 --lines --format tsv -i "$T/in" -o "$T/x"
    fails 4 "context of 4000 tokens asked for" embed -c 4000 a
}

@test "no input, no terminal for bytes, no tokenizer" {
    fails 2 "no input; usage: qwick embed" embed
    fails 2 "text: has no tokens" embed ""
    fails 2 "no effect with --lines" embed --lines a
    fails 2 "no effect with --jsonl" embed --jsonl a
    fails 2 "--lines: cannot be combined with --jsonl" embed --lines --jsonl
    fails 2 "--file: cannot be combined" embed -f x a
    fails 1 "/nonexistent" embed -f /nonexistent
    fails 1 "/nonexistent" embed --lines -i /nonexistent
    fails 1 "cannot create" embed -o /nonexistent/x a
    for f in f32 npy; do
        run script -qec "'$QWICK' embed --format $f a; echo status \$?" /dev/null
        [[ $output == *"--format $f: standard output is a terminal"* ]]
        [[ $output == *"status 2"* ]]
    done
    fails 3 "tokenizer.json" embed -m "$MODELS/embedding-names" a
}

@test "a reader gets answers before the input ends" {
    coproc Q { "$QWICK" embed --lines --dim 2; }
    pid=$Q_PID # bash forgets it when the process ends
    for text in a b; do
        echo $text >&"${Q[1]}"
        read -r -t 20 line <&"${Q[0]}"
        [[ $line == *'"tokens":1'* ]]
    done
    eval "exec ${Q[1]}>&-"
    wait "$pid"
}

@test "a full disk and a closed output" {
    [ -e /dev/full ] || skip "no /dev/full"
    run -1 --separate-stderr bash -c "'$QWICK' embed a >/dev/full"
    [[ $stderr == *"write error"* ]]
    fails 1 "/dev/full: cannot write" embed -o /dev/full a
    run -1 bash -c "'$QWICK' embed a >&-"
}

@test "a signal right before a wait for input ends it" {
    [ "${SAN:-}" != 1 ] || skip "fault injection is not run under sanitizers"
    ${CC:-cc} -shared -fPIC -o "$T/shim.so" tests/cli/signal_in_poll.c
    printf '{"text":"a"}\n' >"$T/line"
    waits() { # ARGS…: run with a standard input that gives a line and stays open
        python3 - "$QWICK" "$T/shim.so" "$T/line" "$@" <<'PY'
import os, signal, subprocess, sys
qwick, shim, line = sys.argv[1:4]
p = subprocess.Popen([qwick] + sys.argv[4:], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                     env=dict(os.environ, LD_PRELOAD=shim, SIGNAL_IN_POLL="1"))
p.stdin.write(open(line, "rb").read())
p.stdin.flush()
try:
    p.wait(10)
finally:
    p.kill()
assert p.returncode == -signal.SIGINT, (sys.argv[4:], p.returncode)
PY
    }
    waits embed --lines
    waits embed
    waits rerank --query x --jsonl
    waits score --jsonl
    waits choose -a x -a y --jsonl
    waits batch --debounce 0
}

# cut_off SIGNAL ARGS…: run embed with output $T/out, and send the signal when
# some vectors are stored.
cut_off() {
    python3 - "$QWICK" "$T/out" "$@" <<'PY'
import os, signal, subprocess, sys, time
qwick, out, name = sys.argv[1:4]
p = subprocess.Popen([qwick, "embed", "--exact", "-t", "1", "-o", out] + sys.argv[4:],
                     stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
def size():
    return os.path.getsize(out + ".pending") if os.path.exists(out + ".pending") else 0
before = size()
while p.poll() is None and size() <= max(before, 100):
    time.sleep(0.002)
p.send_signal(getattr(signal, name))
err = p.communicate(timeout=20)[1]
assert p.returncode == -getattr(signal, name), (p.returncode, err)
assert err == b"", err
PY
}

@test "-o: a run that was cut off is continued, in every format" {
    # groups of 256 texts are written together; sanitizers make each text slow
    local n=600 formats="jsonl tsv f32 npy"
    [ -z "${SAN:-}" ] || { n=400 formats="jsonl npy"; }
    seq $n >"$T/in"
    for f in $formats; do
        q embed --exact --lines -i "$T/in" --format $f -o "$T/want"
        [ ! -e "$T/want.pending" ]
        # the end of a run does not depend on the format
        signals=SIGKILL
        [ $f != npy ] || signals="SIGINT SIGTERM SIGKILL"
        for s in $signals; do
            cut_off $s --lines -i "$T/in" --format $f
            [ ! -e "$T/out" ]
            [ "$(stat -c %s "$T/out.pending")" -gt 1000 ]
            q embed --exact --lines -i "$T/in" --format $f -o "$T/out"
            cmp "$T/out" "$T/want"
            [ ! -e "$T/out.pending" ]
            rm -f "$T/out" "$T/out.tmp."*
        done
    done
    # stored vectors are not computed again: a changed one stays changed
    cut_off SIGINT --lines -i "$T/in" --format f32
    printf '\0\0\0\0' | dd of="$T/out.pending" bs=1 seek=56 conv=notrunc status=none
    cp "$T/out.pending" "$T/some"
    q embed --exact --lines -i "$T/in" --format f32 -o "$T/out"
    [ "$(cmp -l "$T/out" <(q embed --exact --lines -i "$T/in" --format f32) | wc -l)" -le 4 ]
    run ! cmp -s "$T/out" <(q embed --exact --lines -i "$T/in" --format f32)
    # another format can use them, and so can other texts in another order
    cp "$T/some" "$T/out.pending"
    tac "$T/in" | sed 's/^5$/five/' >"$T/in2"
    q embed --exact --lines -i "$T/in2" --format tsv -o "$T/out"
    q embed --exact --lines -i "$T/in2" --format tsv -o "$T/want"
    [ "$(diff "$T/out" "$T/want" | grep -c '^<')" -eq 1 ]
    # an incomplete row is ignored
    cp "$T/some" "$T/out.pending"
    truncate -s -700 "$T/out.pending"
    q embed --exact --lines -i "$T/in" --format f32 -o "$T/out"
    [ "$(stat -c %s "$T/out")" -eq $((n * 1024)) ]
    # a complete file is replaced as usual
    q embed --exact a -o "$T/out"
    [ "$(wc -l <"$T/out")" -eq 1 ]
}

@test "-o: vectors of another model or other options are not mixed in" {
    seq 600 >"$T/in"
    cut_off SIGINT --lines -i "$T/in"
    cp "$T/out.pending" "$T/some"
    demo_as other modules.json
    rm "$T/other/model.safetensors"
    cp models/demo/model.safetensors "$T/other/"
    chmod u+w "$T/other/model.safetensors"
    weights_edit "$T/other/model.safetensors" 'data[:64] = (x ^ 1 for x in data[:64])'
    for o in "-m $T/other --exact" "--dim 8 --exact" "--no-normalize --exact" ""; do
        # shellcheck disable=SC2086
        fails 2 "$T/out.pending: has vectors of an unfinished run with another" \
            embed $o --lines -i "$T/in" -o "$T/out"
        cmp "$T/out.pending" "$T/some"
        [ ! -e "$T/out" ]
    done
    q embed --exact --dim 8 --redo --lines -i "$T/in" -o "$T/out"
    q embed --exact --dim 8 --lines -i "$T/in" -o "$T/want"
    cmp "$T/out" "$T/want"
    [ ! -e "$T/out.pending" ]
    echo "my notes, which are longer than a header of that file is" >"$T/out.pending"
    for redo in "" --redo; do
        fails 2 "out.pending: was not written by qwick embed" embed $redo a -o "$T/out"
    done
    [ "$(wc -l <"$T/out.pending")" -eq 1 ]
    fails 2 "no effect without --output" embed --redo a
}

@test "a model that does not look like an embedding model gives a warning" {
    run -0 --separate-stderr env -u QWICK_MODEL "$QWICK" embed a </dev/null
    [ "$stderr" = "qwick: warning: qwick-demo: does not look like an embedding model, the vectors are doubtful" ]
    run -0 --separate-stderr env -u QWICK_MODEL "$QWICK" embed -q a </dev/null
    [ -z "$stderr" ]
    # each sign of an embedding model
    demo_as My-Embedding-4bit
    demo_as st config_sentence_transformers.json
    demo_as readme
    printf -- '---\npipeline_tag: feature-extraction\n---\n' >"$T/readme/README.md"
    demo_as ends
    rm "$T/ends/tokenizer.json"
    python3 - models/demo/tokenizer.json "$T/ends/tokenizer.json" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
end = next(x for x in t["added_tokens"] if x["content"] == "<|endoftext|>")
t["post_processor"] = {"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [end["id"]],
                                         "tokens": ["<|endoftext|>"]}}}
json.dump(t, open(sys.argv[2], "w"))
PY
    hub=$T/hub/models--Qwen--Qwen3-Embedding-0.6B
    mkdir -p "$hub/snapshots/abc" "$hub/refs"
    printf abc >"$hub/refs/main"
    cp -rL "$T/st/." "$hub/snapshots/abc"
    rm "$hub/snapshots/abc/config_sentence_transformers.json"
    for m in "$T/My-Embedding-4bit" "$T/st" "$T/readme" "$T/ends" Qwen/Qwen3-Embedding-0.6B; do
        HF_HUB_CACHE=$T/hub run -0 --separate-stderr q embed -m "$m" a
        [ -z "$stderr" ] || { echo "$m: $stderr"; return 1; }
    done
    # signs of another kind of model
    demo_as Qwen3-Reranker-0.6B
    run -0 --separate-stderr q embed -m "$T/Qwen3-Reranker-0.6B" a
    [[ $stderr == *"Reranker-0.6B: is a reranker by its name, the vectors are doubtful" ]]
}

# modules MODULES [POOLING]: $T/st is the embedder with this modules.json, and this
# 1_Pooling/config.json, "" for none.
modules() {
    rm -rf "$T/st"
    small_demo "$T/st"
    printf '%s' "$1" >"$T/st/modules.json"
    [ -z "${2-}" ] || { mkdir "$T/st/1_Pooling" && printf '%s' "$2" >"$T/st/1_Pooling/config.json"; }
}

# module NAME [PATH]: an entry of modules.json.
module() {
    printf '{"idx": 0, "name": "0", "path": "%s", "type": "sentence_transformers.models.%s"}' "${2-}" "$1"
}

@test "modules.json: what Qwen3-Embedding has runs" {
    want=$(q embed a)
    old='{"word_embedding_dimension": 256, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "include_prompt": true}'
    two="$(module Transformer), $(module Pooling 1_Pooling)"
    three="$two, $(module Normalize 2_Normalize)"
    new=${three//sentence_transformers.models./sentence_transformers.sentence_transformer.modules.x.}
    for m in "[$three]" "[$new]" "[$two]" "[]" "{}"; do
        for p in "$old" '{"pooling_mode": "lasttoken"}' '{"pooling_mode": ["lasttoken"]}' \
            '{"pooling_mode_lasttoken": true}'; do
            modules "$m" "$p"
            run -0 --separate-stderr q embed -m "$T/st" a
            [ -z "$stderr" ]
            equal "$output" "$want"
        done
    done
}

@test "modules.json: what the embedder does not have is refused" {
    last='{"pooling_mode_lasttoken": true}'
    t=$(module Transformer) p=$(module Pooling 1_Pooling) n=$(module Normalize)
    # refused MODULES POOLING PATTERN: by embed and by quantize, with the file's name
    refused() {
        modules "$1" "$2"
        fails 3 "$3" embed -m "$T/st" a
        [[ $stderr == "qwick: $T/st/"* ]]
        fails 3 "$3" quantize -m "$T/st" -o "$T/q"
    }
    refused "[$t, $p]" '{"pooling_mode_lasttoken": true, "pooling_mode_new": 1}' "pooling_mode_new: must be false"
    refused "[$t, $p]" '{"pooling_mode": "first"}' "pooling_mode: must be cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken"
    refused "[$t, $p]" '' "1_Pooling/config.json: no such file, but modules.json names it"
    refused "[$t, $p, $(module LSTM 2_LSTM)]" "$last" \
        "modules.json: module 2: type: must be sentence_transformers' Dense or Normalize (others are not supported), is \"sentence_transformers.models.LSTM\""
    refused "[$t]" "$last" "has no module for pooling"
    refused "[$t, $n]" "$last" "module 1: type: must be sentence_transformers' Pooling"
    refused "[$(module Transformer 0_Transformer), $p]" "$last" "module 0: path: must be \"\""
    refused "[{\"path\": \"\", \"type\": \"own.Transformer\"}, $p]" "$last" "module 0: type"
    # the path comes from the file
    mkdir "$T/1_Pooling"
    echo "$last" >"$T/1_Pooling/config.json"
    for path in ../1_Pooling "$T/1_Pooling" .. . "" 1_Pooling/../../1_Pooling ./1_Pooling '1_Pooling\u0000'; do
        modules "[$t, $(module Pooling "$path")]" "$last"
        fails 3 "" embed -m "$T/st" a
        [[ $stderr == *"not a plain file name" || $stderr == *"path: must be the name of a directory"* ]]
    done
    refused "[$t, {\"type\": \"sentence_transformers.models.Pooling\"}]" "$last" "module 1: path: must be the name"
    refused '"x"' "$last" "modules.json: must be a list of modules"
    refused '[' "$last" "modules.json"
    # other verbs need no vectors
    q logits -m "$T/st" a >/dev/null
}

@test "modules.json: other modes of pooling" {
    t=$(module Transformer) p=$(module Pooling 1_Pooling) n=$(module Normalize)
    [ "$(q embed '#' | jget 'o["tokens"]')" = 1 ]
    modules "[$t, $p, $n]" '{"pooling_mode_cls_token": true}'
    # the first token alone has the state of the last token of one token
    equal "$(q embed --exact -m "$T/st" '# list' | jget 'o["embedding"]')" \
        "$(q embed --exact '#' | jget 'o["embedding"]')"
    # two modes make a longer vector
    modules "[$t, $p, $n]" '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}'
    [ "$(q embed -m "$T/st" 'list files' | jget 'len(o["embedding"])')" = 512 ]
    [ "$(q embed -m "$T/st" --dim 300 'list files' 2>/dev/null | jget 'len(o["embedding"])')" = 300 ]
    fails 2 "dim: 513 asked for, the model's vectors have 512" embed -m "$T/st" --dim 513 a
    # texts share passes, in any order and in pieces
    seq 40 | tr '\n' ' ' >"$T/long"
    want=$(q embed --exact -m "$T/st" a "$(<"$T/long")" "list files")
    for o in "--prefill-chunk 1" "--prefill-chunk 3" "--max-batch 1" "-t 1"; do
        # shellcheck disable=SC2086
        equal "$(q embed --exact -m "$T/st" $o a "$(<"$T/long")" "list files")" "$want"
    done
    fails 3 "vectors are not made of the last token only, which the result would not have" \
        quantize -m "$T/st" -o "$T/q"
    [ ! -e "$T/q" ]
}

@test "prompts of config_sentence_transformers.json" {
    modules "[]"
    prompts() { printf '{"prompts": {"query": "task: find | query: ", "document": "text: "}, "default_prompt_name": %s}' "$1" >"$T/st/config_sentence_transformers.json"; }
    prompts '"document"'
    run -0 --separate-stderr q embed --exact -m "$T/st" "list files"
    [ -z "$stderr" ]
    equal "$output" "$(q embed --exact "text: list files")"
    equal "$(q embed --exact -m "$T/st" --prompt-name query "list files")" "$(q embed --exact "task: find | query: list files")"
    equal "$(q embed --exact -m "$T/st" --instruct find "list files")" "$(q embed --exact --instruct find "list files")"
    prompts null
    equal "$(q embed --exact -m "$T/st" "list files")" "$(q embed --exact "list files")"
    fails 2 'prompt name: "q": the model'"'"'s prompts are query, document' embed -m "$T/st" --prompt-name q a
    fails 2 'prompt name: "query": the model has none' embed --prompt-name query a
    fails 2 "--prompt-name: cannot be combined with --instruct" embed -m "$T/st" --prompt-name query --instruct x a
    # a record's instruct takes the place of the prompt
    printf '%s\n' '{"text":"list files","instruct":"find"}' '{"text":"list files"}' >"$T/in"
    q embed --exact -m "$T/st" --prompt-name query --jsonl -i "$T/in" >"$T/out"
    equal "$(sed -n 1p "$T/out")" "$(q embed --exact --instruct find "list files")"
    equal "$(sed -n 2p "$T/out")" "$(q embed --exact "task: find | query: list files")"
}

@test "max_seq_length of sentence_bert_config.json cuts texts, with a warning" {
    modules "[]"
    echo '{"max_seq_length": 4, "do_lower_case": true}' >"$T/st/sentence_bert_config.json"
    run -0 --separate-stderr q embed --exact -m "$T/st" "A B C D E F" "A B" "a b c d x y"
    [ "$stderr" = "qwick: warning: texts that were cut to the model's max_seq_length: 2 (-v names them)" ]
    echo "$output" | jlines '[r["tokens"] for r in o] == [4, 2, 4] and o[0]["dropped_tokens"] >= 2 and
        "dropped_tokens" not in o[1] and o[0]["embedding"] == o[2]["embedding"]'
    run -0 --separate-stderr q embed -v -m "$T/st" "A B C D E F"
    [[ $stderr == *"argument 1: the last "* ]]
    run -0 --separate-stderr q embed --truncate -m "$T/st" "A B C D E F"
    [ -z "$stderr" ]
    # a context that is asked for counts instead
    fails 4 "do not fit the context of 5" embed -c 5 -m "$T/st" "A B C D E F"
    equal "$(q embed --exact -c 100 -m "$T/st" "A B C D E F")" "$(q embed --exact "a b c d e f")"
}

@test "--prompt-ids: sequences as they are" {
    a=$(q tokenize "list files") b=$(q tokenize "show disk usage")
    equal "$(q embed --exact --prompt-ids "$a")" "$(q embed --exact "list files")"
    equal "$(q embed --exact --prompt-ids "$a"$'\n\n'"${b// /, }"$'\n')" \
        "$(q embed --exact "list files" "show disk usage")"
    printf '{"id":1,"prompt_ids":[%s]}\n{"text":"list files"}\n{"prompt_ids":[1,"2"]}\n{"prompt_ids":[]}\n{"prompt_ids":[999999]}\n' \
        "${a// /, }" >"$T/in"
    run -1 --separate-stderr q embed --exact --jsonl -i "$T/in"
    echo "$output" | jlines 'o[0]["embedding"] == o[1]["embedding"] and o[0]["id"] == 1 and
        all("prompt_ids: not an array of token ids" in r["error"] for r in o[2:4]) and
        "id 999999 is not below" in o[4]["error"]'
    # ids that do not fit are an error of their record only
    printf '{"prompt_ids":[1]}\n{"prompt_ids":[1,2,3]}\n{"prompt_ids":[2]}\n' >"$T/in"
    run -1 --separate-stderr q embed -c 2 --jsonl -i "$T/in"
    echo "$output" | jlines '"embedding" in o[0] and "embedding" in o[2] and
        "line 2: 3 tokens do not fit the context of 2" in o[1]["error"]'
    # a checkpoint without a tokenizer
    [ "$(q embed -m "$MODELS/embedding-names" --prompt-ids 1,2,3 | jget 'o["tokens"]')" = 3 ]
    for bad in "" " " $'\n'; do
        fails 2 "--prompt-ids: no token ids" embed --prompt-ids "$bad"
    done
    fails 2 '--prompt-ids: token 2: "x" is not a token id' embed --prompt-ids "1 x"
    fails 2 '"2|3" is not a token id' embed --prompt-ids "1 2|3"
    fails 2 "is not below the vocabulary's" embed --prompt-ids "999999"
    fails 4 "do not fit the context" embed -c 2 --prompt-ids "1 2 3"
    fails 2 "--prompt-ids: cannot be combined with a text" embed --prompt-ids 1 a
    for o in "--instruct x" "--prompt-name x" "--truncate" "--lines" "--jsonl" "-f x"; do
        # shellcheck disable=SC2086
        fails 2 "cannot be combined with" embed --prompt-ids 1 $o
    done
}
