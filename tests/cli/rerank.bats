#!/usr/bin/env bats
# rerank: scores, order, formats, sources.
load helpers

setup() {
    common_setup
    demo_as reranker
    export QWICK_MODEL=$T/reranker
    DOCS=("show all files" "kill a process" "disk usage" "copy a file")
}

@test "a table, the best first: score, number, text" {
    run -0 --separate-stderr q rerank -q "list files" "${DOCS[@]}"
    [ -z "$stderr" ]
    echo "$output" | python3 -c 'import sys
rows = [l.split("\t") for l in sys.stdin.read().split("\n")[:-1]]
docs = sys.argv[1:]
assert len(rows) == 4 and all(len(r) == 3 for r in rows), rows
scores = [float(r[0]) for r in rows]
assert scores == sorted(scores, reverse=True)
assert all(0 <= s <= 1 for s in scores)
assert sorted(r[1] for r in rows) == ["1", "2", "3", "4"]
assert all(docs[int(r[1]) - 1] == r[2] for r in rows)' "${DOCS[@]}"
}

@test "the score is P(yes) against P(no) of the prompt" {
    pre=$'<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    post=$'<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n'
    # tokens of the three parts, encoded separately
    middle=$'<Instruct>: find a command\n<Query>: list files\n<Document>: show all files'
    ids="$(q tokenize "$pre") $(q tokenize --no-special "$middle") $(q tokenize "$post")"
    yes=$(q tokenize yes)
    no=$(q tokenize no)
    want=$(q logits --exact --prompt-ids "$ids" --top 6144 --json |
        python3 -c 'import json, math, sys
t = json.load(sys.stdin)["positions"][0]["top"]
l = {x["id"]: x["logit"] for x in t}
print(repr(1 / (1 + math.exp(l[int(sys.argv[2])] - l[int(sys.argv[1])]))))' \
            "$yes" "$no")
    q rerank --exact --json -q "list files" --instruct "find a command" \
        "show all files" >"$T/out"
    python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
r = o["results"][0]
assert abs(r["score"] - float(sys.argv[2])) < 1e-12, (r, sys.argv[2])
assert r["tokens"] == len(sys.argv[3].split())
assert o["model"].endswith("/reranker") and o["query"] == "list files"
assert r["index"] == 1 and r["text"] == "show all files"' "$T/out" "$want" "$ids"
}

@test "--in-order, --top, --threshold" {
    q rerank -q "list files" "${DOCS[@]}" >"$T/sorted"
    q rerank --in-order -q "list files" "${DOCS[@]}" >"$T/order"
    [ "$(cut -f2 "$T/order" | tr '\n' ' ')" = "1 2 3 4 " ]
    diff <(sort "$T/sorted") <(sort "$T/order")
    [ "$(q rerank --top 2 -q "list files" "${DOCS[@]}")" = \
        "$(head -n 2 "$T/sorted")" ]
    [ "$(q rerank --top 9 -q "list files" "${DOCS[@]}")" = \
        "$(cat "$T/sorted")" ]
    [ "$(q rerank --top 2 --in-order -q "list files" "${DOCS[@]}")" = \
        "$(head -n 2 "$T/sorted" | sort -k2,2n)" ]
    # between the second and the third score
    q rerank --json -q "list files" "${DOCS[@]}" >"$T/json"
    p=$(jget '"%.17f" % ((o["results"][1]["score"] + o["results"][2]["score"]) / 2)' <"$T/json")
    [ "$(q rerank --threshold "$p" -q "list files" "${DOCS[@]}")" = \
        "$(head -n 2 "$T/sorted")" ]
    [ "$(q rerank --threshold "$p" --top 1 -q "list files" "${DOCS[@]}")" = \
        "$(head -n 1 "$T/sorted")" ]
}

@test "equal documents stay in their order" {
    [ "$(q rerank --exact -q x same same same same | cut -f2 | tr '\n' ' ')" \
        = "1 2 3 4 " ]
}

@test "lines, files and records" {
    printf '%s\n' "${DOCS[@]}" >"$T/lines"
    want=$(q rerank --exact -q "list files" "${DOCS[@]}")
    [ "$(q rerank --exact -q "list files" --lines -i "$T/lines")" = "$want" ]
    [ "$("$QWICK" rerank --exact -q "list files" --lines <"$T/lines")" = "$want" ]
    # batches do not change scores
    [ "$(q rerank --exact --max-batch 1 -q "list files" "${DOCS[@]}")" = "$want" ]
    [ "$(q rerank --exact --prefill-chunk 7 -q "list files" "${DOCS[@]}")" = "$want" ]
    # for a file, the name is printed
    printf 'show all files\n' >"$T/a"
    printf 'kill a process' >"$T/b	c"
    [ "$(q rerank --exact -q "list files" -f "$T/a" -f "$T/b	c" | sort)" = \
        "$(echo "$want" | awk -F'\t' -v t="$T" \
            '$2 == 1 { print $1 "\t" t "/a" } $2 == 2 { print $1 "\t" t "/b\\tc" }' |
            sort)" ]
    [ "$("$QWICK" rerank --exact -q "list files" <"$T/a" | cut -f1)" = \
        "$(echo "$want" | awk '$2 == 1 { print $1 }')" ]
    printf '{"id":"%s","text":"%s"}\n' A "${DOCS[0]}" B "${DOCS[1]}" >"$T/jsonl"
    q rerank --exact -q "list files" --jsonl -i "$T/jsonl" >"$T/out"
    jlines 'sorted(r["id"] for r in o) == ["A", "B"] and
        o[0]["score"] >= o[1]["score"] and
        all(list(r) == ["id", "index", "score", "tokens", "text"] for r in o)' \
        <"$T/out"
}

@test "a bad record: last, or in its place with --in-order" {
    printf '%s\n' '{"text":"a","id":1}' 'nonsense' '{"id":2}' '{"text":"b"}' \
        >"$T/in"
    run -1 --separate-stderr q rerank -q x --jsonl -i "$T/in"
    [ -z "$stderr" ]
    echo "$output" | jlines '[("error" in r) for r in o] ==
        [False, False, True, True] and o[2]["index"] == 2 and o[3]["id"] == 2'
    run -1 --separate-stderr q rerank -q x --jsonl --in-order -i "$T/in"
    echo "$output" | jlines '[r["index"] for r in o] == [1, 2, 3, 4] and
        "in: line 2: " in o[1]["error"] and "in: line 3: text" in o[2]["error"]'
    run -1 --separate-stderr q rerank -q x --jsonl --in-order --top 1 -i "$T/in"
    echo "$output" | jlines 'len(o) == 3 and
        [("error" in r) for r in o].count(True) == 2'
}

@test "text is escaped in the table, and never a control token" {
    run -0 q rerank -q x $'a\tb\nc\\d\re\x01'
    [[ $output == *$'\t1\ta\\tb\\nc\\\\d\\re\\x01' ]]
    n=$(q rerank --json -q x "<|im_end|>" | jget 'o["results"][0]["tokens"]')
    m=$(q rerank --json -q x "" | jget 'o["results"][0]["tokens"]')
    [ $((n - m)) -gt 1 ]
}

@test "a long document loses its end, a long query is an error" {
    long=$(seq 3000 | tr '\n' ' ')
    run -0 --separate-stderr q rerank -q x "$long" short
    [ "$stderr" = "qwick: warning: documents that do not fit the context and were scored without their ends: 1 (-v names them)" ]
    run -0 --separate-stderr q rerank -q x short
    [ -z "$stderr" ]
    run -0 --separate-stderr q rerank -v --json -q x "$long" short
    [[ $stderr == *"argument 1: the last "*" tokens of the document"* ]]
    echo "$output" | jget 'o["results"]' >"$T/out"
    python3 -c 'import ast, sys
r = {x["index"]: x for x in ast.literal_eval(open(sys.argv[1]).read())}
assert r[1]["tokens"] == 2048 and r[1]["dropped_tokens"] > 0
assert "dropped_tokens" not in r[2]' "$T/out"
    fails 4 "tokens without a document" rerank -q "$long" a
    fails 4 "tokens without a document" rerank -c 50 -q x a
}

@test "no query, no documents, no tokenizer" {
    fails 2 "no --query; usage: qwick rerank -q" rerank a
    fails 2 "no --query" rerank -q "" a
    fails 2 "no input; usage: qwick rerank" rerank -q x
    fails 2 "-q: needs a value" rerank -q
    fails 2 "no effect with --lines" rerank -q x --lines a
    fails 2 "--json: cannot be combined with --jsonl" rerank -q x --json --jsonl
    fails 2 "--threshold: " rerank -q x --threshold 1.5 a
    fails 2 "--top: " rerank -q x --top 0 a
    fails 1 "/nonexistent" rerank -q x -f /nonexistent
    [ -z "$(q rerank -q x --lines)" ]
    [ "$(q rerank -q x --json --lines | jget 'o["results"]')" = "[]" ]
    fails 3 "tokenizer.json" rerank -m "$MODELS/tied-bf16" -q x a
}

@test "records stream with --in-order" {
    coproc R { "$QWICK" rerank -q x --jsonl --in-order; }
    pid=$R_PID # bash forgets it when the process ends
    for i in 1 2; do
        echo '{"text":"a"}' >&"${R[1]}"
        read -r -t 20 line <&"${R[0]}"
        [[ $line == '{"index":'$i,* ]]
    done
    eval "exec ${R[1]}>&-"
    wait "$pid"
}

@test "a model that does not look like a reranker gives a warning" {
    for m in "$T/chat" "$T/embedder"; do
        demo_as "${m##*/}" "$([ "$m" = "$T/chat" ] || echo modules.json)"
        run -0 --separate-stderr q rerank -m "$m" -q x a
        [ "$stderr" = "qwick: warning: $m: does not look like a reranker, the scores are doubtful" ]
        run -0 --separate-stderr q rerank --quiet -m "$m" -q x a
        [ -z "$stderr" ]
    done
    demo_as My-reranker-8bit
    demo_as readme
    printf -- '---\npipeline_tag: text-ranking\n---\n' >"$T/readme/README.md"
    for m in My-reranker-8bit readme; do
        run -0 --separate-stderr q rerank -m "$T/$m" -q x a
        [ -z "$stderr" ] || { echo "$m: $stderr"; return 1; }
    done
}

# classifier NAME CODE: $T/NAME is the demo model as a classifier whose head is the row
# of yes minus that of no. Python code may change config and tensors, {name: [type,
# shape, bytes]}.
classifier() {
    demo_as "$1"
    rm "$T/$1/config.json" "$T/$1/model.safetensors"
    python3 - "$T/$1" "$(q tokenize yes)" "$(q tokenize no)" "$2" <<'PY'
import json, struct, sys
raw = open("models/demo/model.safetensors", "rb").read()
n = 8 + struct.unpack_from("<Q", raw)[0]
head = json.loads(raw[8:n])
head.pop("__metadata__")
tensors = {k: [v["dtype"], v["shape"], raw[n + v["data_offsets"][0]:n + v["data_offsets"][1]]]
           for k, v in head.items()}
embed = tensors["model.embed_tokens.weight"][2]
def row(i):  # BF16 to numbers
    words = struct.unpack("<256H", embed[512 * i:512 * i + 512])
    return [struct.unpack("<f", struct.pack("<I", w << 16))[0] for w in words]
yes, no = row(int(sys.argv[2])), row(int(sys.argv[3]))
tensors["score.weight"] = ["F32", [1, 256], struct.pack("<256f", *(a - b for a, b in zip(yes, no)))]
config = json.load(open("models/demo/config.json"))
config["architectures"] = ["Qwen3ForSequenceClassification"]
config["id2label"] = {"0": "LABEL_0"}
exec(sys.argv[4])
at, where = 0, {}
for k, (dtype, shape, data) in tensors.items():
    where[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
    at += len(data)
text = json.dumps(where).encode()
with open(sys.argv[1] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
PY
}

@test "a classifier scores by its own head" {
    q rerank --exact --json -q "list files" "${DOCS[@]}" >"$T/want"
    # a head that is the difference of two rows gives the same probability
    classifier a-reranker ''
    # as converters leave it: no head of the language model, tied or not
    classifier b-reranker 'config["tie_word_embeddings"] = False'
    classifier c-reranker 'del config["id2label"]; config["num_labels"] = 1'
    for m in a b c; do
        run -0 --separate-stderr q rerank --exact --json -m "$T/$m-reranker" -q "list files" "${DOCS[@]}"
        [ -z "$stderr" ]
        python3 - "$T/want" "$output" <<'PY'
import json, sys
want = json.load(open(sys.argv[1]))["results"]
got = json.loads(sys.argv[2])["results"]
assert [r["index"] for r in got] == [r["index"] for r in want], got
assert all(abs(a["score"] - b["score"]) < 1e-6 for a, b in zip(got, want)), (got, want)
PY
    done
    classifier zero-reranker 'tensors["score.weight"][2] = bytes(1024)'
    equal "$(q rerank -m "$T/zero-reranker" -q x a b | cut -f 1 | tr '\n' ' ')" "0.500000 0.500000 "
    classifier nan-reranker 'tensors["score.weight"][2] = b"\xff" * 1024'
    fails 1 "not finite" rerank -m "$T/nan-reranker" -q x a
}

@test "--raw-scores prints logits" {
    q rerank --exact --json -q "list files" "${DOCS[@]}" >"$T/scores"
    q rerank --exact --json --raw-scores -q "list files" "${DOCS[@]}" >"$T/raw"
    python3 - "$T" <<'PY'
import json, math, sys
scores, raw = (json.load(open(sys.argv[1] + "/" + n))["results"] for n in ("scores", "raw"))
assert [r["index"] for r in raw] == [r["index"] for r in scores]
assert all(abs(1 / (1 + math.exp(-a["score"])) - b["score"]) < 1e-12 for a, b in zip(raw, scores))
PY
    # all documents are printed, whatever their signs, and a threshold is a logit
    [ "$(q rerank --raw-scores -q "list files" "${DOCS[@]}" | wc -l)" -eq 4 ]
    [ "$(q rerank --raw-scores --top 3 -q "list files" "${DOCS[@]}" | wc -l)" -eq 3 ]
    p=$(jget '"%.17f" % o["results"][1]["score"]' <"$T/raw")
    [ "$(q rerank --exact --raw-scores --threshold "$p" -q "list files" "${DOCS[@]}" | wc -l)" -eq 2 ]
    fails 2 "--threshold: must be from 0 to 1 without --raw-scores, is -1" rerank --threshold -1 -q x a
}

@test "--prompt-ids: sequences as they are" {
    pre=$'<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    post=$'<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n'
    middle='<Instruct>: find a command
<Query>: list files
<Document>: '
    for i in 0 1 2; do
        ids+="$(q tokenize "$pre") $(q tokenize --no-special "$middle${DOCS[i]}") $(q tokenize "$post")"$'\n'
    done
    want=$(q rerank --exact -q "list files" --instruct "find a command" "${DOCS[@]::3}")
    equal "$(q rerank --exact --prompt-ids "$ids" | cut -f 1,2)" "$(cut -f 1,2 <<<"$want")"
    q rerank --exact --json --prompt-ids "$ids" | jget 'o["results"]' >"$T/out"
    python3 - "$T/out" "$ids" <<'PY'
import ast, sys
got = {r["index"]: r for r in ast.literal_eval(open(sys.argv[1]).read())}
for i, line in enumerate(sys.argv[2].splitlines()):
    ids = [int(x) for x in line.split()]
    assert got[i + 1]["prompt_ids"] == ids and got[i + 1]["tokens"] == len(ids)
PY
    # records may have ids, alone or among texts
    first=$(head -n 1 <<<"$ids")
    printf '{"id":1,"prompt_ids":[%s]}\n{"text":"%s"}\n{"id":3,"prompt_ids":[[1],[2,3]]}\n' \
        "${first// /,}" "${DOCS[0]}" >"$T/in"
    q rerank --exact --jsonl --in-order -q "list files" --instruct "find a command" -i "$T/in" |
        jlines 'o[0]["score"] == o[1]["score"] and o[2]["prompt_ids"] == [1, 2, 3] and
            "prompt_ids" not in o[1] and o[2]["id"] == 3'
    fails 2 "no --query" rerank --jsonl -i "$T/in"
    printf '{"id":1,"prompt_ids":[1,2,3]}\n{"id":2,"prompt_ids":[%s1]}\n{"id":3,"prompt_ids":[[1],[]]}\n{"prompt_ids":[1,[2]]}\n{"prompt_ids":[999999]}\n' \
        "$(printf '1,%.0s' {1..50})" >"$T/in"
    run -1 --separate-stderr q rerank -c 40 --jsonl --in-order -i "$T/in"
    echo "$output" | jlines 'o[0]["tokens"] == 3 and o[1]["id"] == 2 and
        "line 2: 51 tokens do not fit the context of 40" in o[1]["error"] and
        all("not an array of token ids" in r["error"] for r in o[2:4]) and
        "is not below" in o[4]["error"]'
    fails 4 "4 tokens do not fit the context of 3" rerank -c 3 --prompt-ids $'1\n1 2 3 4'
    # segments mean nothing to a model without types
    equal "$(q rerank --exact --prompt-ids "1 2 | 3" | cut -f 1)" "$(q rerank --exact --prompt-ids "1,2,3" | cut -f 1)"
    fails 2 "--prompt-ids: no token ids" rerank --prompt-ids ""
    fails 2 "--prompt-ids: no token ids" rerank --prompt-ids "| 1"
    fails 2 'token 3: "|" is not a token id' rerank --prompt-ids "1 | 2 | 3"
    fails 2 "is not below the vocabulary's" rerank --prompt-ids "1 | 999999"
    fails 2 "--prompt-ids: cannot be combined with --query" rerank --prompt-ids 1 -q x
    fails 2 "--prompt-ids: cannot be combined with a text" rerank --prompt-ids 1 a
}

@test "a classifier is refused where its head does not fit" {
    two="tensors['score.weight'][1] = [2, 256]; tensors['score.weight'][2] *= 2"
    classifier two "$two; config['id2label'] = {'0': 'no', '1': 'yes'}"
    fails 3 'architectures: "Qwen3ForSequenceClassification" with 2 labels, and 2 rows of score.weight: 1 label is supported' \
        rerank -m "$T/two" -q x a
    classifier rows "$two"
    fails 3 "with 1 labels, and 2 rows" rerank -m "$T/rows" -q x a
    classifier labels "config['num_labels'] = 3; del config['id2label']"
    fails 3 "with 3 labels, and 1 rows" rerank -m "$T/labels" -q x a
    classifier bias 'tensors["score.bias"] = ["F32", [1], bytes(4)]'
    fails 3 "tensor score.bias: is not supported beside score.weight" rerank -m "$T/bias" -q x a
    classifier none 'del tensors["score.weight"]'
    fails 3 "tensor score.weight: missing" rerank -m "$T/none" -q x a
    # only rerank uses it
    classifier one ''
    says='one: architectures: "Qwen3ForSequenceClassification": is a classifier, which only rerank uses'
    echo '{"prompt":"a"}' >"$T/in"
    for v in "hi" "logits hi" "embed hi" "score hi" "choose -a x -a y hi" "batch -i $T/in" \
        "bench" "plan"; do
        fails 3 "$says" $v -m "$T/one"
    done
    run -3 q selftest -m "$T/one"
    [[ $output == *"$says"* ]]
    fails 3 "the head of a classifier cannot be converted" quantize -m "$T/one" -o "$T/q"
    [ "$(q count -m "$T/one" "list files")" -gt 0 ]
    q inspect -m "$T/one" --tensors | grep -q '"score.weight"'
}
