#!/usr/bin/env bats
# embed and rerank with text encoders.
load helpers
load serve

setup_file() {
    serve_setup_file
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    FAMILIES=tests/golden/families
}

# expected NAME TENSOR: the numbers of a tensor of a golden, as JSON.
expected() {
    python3 - "$FAMILIES/$1/expected.safetensors" "$2" <<'PY'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", b[:8])
t = json.loads(b[8:8 + n])[sys.argv[2]]
at, end = t["data_offsets"]
code, size = {"I64": ("q", 8), "F32": ("f", 4)}[t["dtype"]]
data = b[8 + n + at:8 + n + end]
print(json.dumps(struct.unpack("<%d%s" % (len(data) // size, code), data)))
PY
}

# ids NAME: the ids of a golden, for --prompt-ids.
ids() {
    expected "$1" input_ids | tr -d '[]'
}

# words FILE: a tokenizer of the letters, with BERT's frame. [CLS] is 2, [SEP] is 3.
words() {
    python3 - "$1" <<'PY'
import json, string, sys
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
vocab = special + list(string.ascii_lowercase) + ["##" + c for c in string.ascii_lowercase]
def part(kind, name, i):
    return {kind: {"id": name, "type_id": i}}
cls, sep = part("SpecialToken", "[CLS]", 0), part("SpecialToken", "[SEP]", 0)
json.dump({
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for i, t in enumerate(special)],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                   "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing",
        "single": [cls, part("Sequence", "A", 0), sep],
        "pair": [cls, part("Sequence", "A", 0), sep, part("Sequence", "B", 1), part("SpecialToken", "[SEP]", 1)],
        "special_tokens": {t: {"id": t, "ids": [special.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(vocab)}}},
    open(sys.argv[1], "w"))
PY
}

# model NAME: a copy $T/NAME of a golden with the tokenizer of words.
model() {
    mkdir "$T/$1"
    cp -r "$FAMILIES/$1/." "$T/$1"
    chmod -R u+w "$T/$1"
    words "$T/$1/tokenizer.json"
}

@test "vectors of encoders are the goldens" {
    for name in bert-cls embeddinggemma modernbert xlmr; do
        for m in "$FAMILIES/$name" "$FAMILIES/$name.gguf"; do
            run -0 --separate-stderr q embed --exact -m "$m" --prompt-ids "$(ids $name)"
            [ -z "$stderr" ]
            python3 - "$output" "$(expected $name pooled)" <<'PY'
import json, sys
v, w = json.loads(sys.argv[1])["embedding"], json.loads(sys.argv[2])
dot = lambda a, b: sum(x * y for x, y in zip(a, b))
assert len(v) == len(w)
assert 1 - dot(v, w) / (dot(v, v) * dot(w, w)) ** 0.5 <= 1e-10
PY
        done
    done
}

@test "inspect shows how vectors are made" {
    model bert-cls
    m=$T/bert-cls
    echo '{"prompts":{"query":"find: ","document":"text: \n"},"default_prompt_name":"document","truncate_dim":32}' \
        >"$m/config_sentence_transformers.json"
    echo '{"max_seq_length": 99}' >"$m/sentence_bert_config.json"
    printf '```json\n"matryoshka_dims": [64, 32]\n```\n' >"$m/README.md"
    q inspect --json -m "$m" | jlines 'o[0]["vectors"] == {"pooling": "cls", "dense_modules": 0,
        "dim": 64, "default_dim": 32, "trained_dims": [64, 32], "max_tokens": 99,
        "prompts": {"query": "find: ", "document": "text: \n"}, "default_prompt": "document"}'
    q inspect -m "$m" >"$T/lines"
    grep -qx 'pooling            cls' "$T/lines"
    grep -qx 'vectors            64 numbers, cut to 32; trained for 64, 32' "$T/lines"
    grep -qx 'max text tokens    99' "$T/lines"
    grep -qx 'prompt             "query" "find: "' "$T/lines"
    grep -qx 'prompt             "document" (default) "text: \\n"' "$T/lines"
    # what does not run is named, and the rest is shown
    echo '{"pooling_mode": ["mean", "max"]}' >"$m/1_Pooling/config.json"
    [ "$(q inspect --json -m "$m" | jget '[o["vectors"]["pooling"], o["vectors"]["dim"]]')" = "['mean+max', 128]" ]
    echo '{"pooling_mode": "first"}' >"$m/1_Pooling/config.json"
    run -0 q inspect -m "$m"
    [[ $output == *"vectors            none: "*"is \"first\""* && $output == *"d model  "* ]]
    q inspect --json -m "$m" | jlines '"is \"first\"" in o[0]["vectors"]["error"]'
    # other models have none of it
    q inspect --json | jlines 'o[0]["vectors"] is None'
    q inspect --json -m "$FAMILIES/xlmr-rerank" | jlines 'o[0]["vectors"] is None'
    q inspect --json -m "$FAMILIES/embeddinggemma.gguf" |
        jlines 'o[0]["vectors"]["pooling"] == "mean" and o[0]["vectors"]["dense_modules"] == 2'
}

@test "texts of unequal lengths share passes" {
    model bert-cls
    for i in 1 2 3 4 5 6 7; do seq 100 $((100 + i * 4)) | tr '\n0-9' ' a-j'; echo; done >"$T/in"
    q embed --exact --lines -m "$T/bert-cls" -i "$T/in" >"$T/want"
    [ "$(wc -l <"$T/want")" -eq 7 ]
    for o in "--max-batch 1" "--prefill-chunk 1" "--prefill-chunk 9" "-t 1"; do
        # shellcheck disable=SC2086
        q embed --exact $o --lines -m "$T/bert-cls" -i "$T/in" >"$T/out"
        cmp "$T/out" "$T/want"
    done
    # the frame of the tokenizer is part of a text
    [ "$(q embed -m "$T/bert-cls" ab | jget 'o["tokens"]')" = 4 ]
    equal "$(q embed --exact -m "$T/bert-cls" AB)" "$(q embed --exact -m "$T/bert-cls" --prompt-ids "2,4,31,3")"
    fails 4 "do not fit the context of 128" embed -m "$T/bert-cls" "$(seq 200 | tr '0-9\n' 'a-j ')"
    run -0 --separate-stderr q embed --truncate -m "$T/bert-cls" "$(seq 200 | tr '0-9\n' 'a-j ')"
    echo "$output" | jlines 'o[0]["tokens"] == 128'
}

@test "an encoder whose pooling no file names takes the mean, and says so" {
    model bert-cls
    rm -r "$T/bert-cls/modules.json" "$T/bert-cls/1_Pooling"
    run -0 --separate-stderr q embed --exact -m "$T/bert-cls" ab cd
    [ "$stderr" = "qwick: warning: $T/bert-cls: no file says how vectors are made of its tokens: the mean of all tokens is taken" ]
    mkdir "$T/bert-cls/1_Pooling"
    echo '{"pooling_mode_mean_tokens": true}' >"$T/bert-cls/1_Pooling/config.json"
    cp "$FAMILIES/bert-cls/modules.json" "$T/bert-cls"
    want=$output
    run -0 --separate-stderr q embed --exact -m "$T/bert-cls" ab cd
    [ -z "$stderr" ]
    equal "$output" "$want"
    # the file says it for one that takes the first token
    run ! equal "$(q embed --exact -m "$FAMILIES/bert-cls" --prompt-ids 2,4,31,3)" "${want%%$'\n'*}"
}

@test "a cross-encoder scores pairs" {
    model xlmr-rerank
    m=$T/xlmr-rerank
    score=$(expected xlmr-rerank score | tr -d '[]')
    for x in "$FAMILIES/xlmr-rerank" "$FAMILIES/xlmr-rerank.gguf"; do
        run -0 --separate-stderr q rerank --exact --json --raw-scores -m "$x" --prompt-ids "$(ids xlmr-rerank)"
        [ -z "$stderr" ]
        python3 -c 'import json, sys
got, want = json.loads(sys.argv[1])["results"][0]["score"], float(sys.argv[2])
assert abs(got - want) <= 2e-5 * abs(want), (got, want)' "$output" "$score"
    done
    # frames: [CLS] query [SEP] document [SEP]
    q rerank --exact --json -m "$m" -q "ab" "cd" "" "a a a" >"$T/texts"
    q rerank --exact --json -m "$m" --prompt-ids $'2 4 31 3 6 33 3\n2 4 31 3 3\n2 4 31 3 4 4 4 3' >"$T/ids"
    python3 - "$T" <<'PY'
import json, sys
texts, ids = (json.load(open(sys.argv[1] + "/" + n)) for n in ("texts", "ids"))
assert texts["query"] == "ab" and "query" not in ids
assert [(r["index"], r["score"], r["tokens"]) for r in texts["results"]] == \
    [(r["index"], r["score"], r["tokens"]) for r in ids["results"]]
assert all(0 < r["score"] < 1 for r in ids["results"])
PY
    # batches do not change scores
    for o in "--max-batch 1" "--prefill-chunk 1" "-t 1"; do
        # shellcheck disable=SC2086
        q rerank --exact --json $o -m "$m" -q "ab" "cd" "" "a a a" | cmp - "$T/texts"
    done
    # only the document is cut
    long=$(seq 300 | tr '0-9\n' 'a-j ')
    run -0 --separate-stderr q rerank --json -m "$m" -q ab "$long" c
    [[ $stderr == *"documents that do not fit the context and were scored without their ends: 1"* ]]
    echo "$output" | jlines 'max(r["tokens"] for r in o[0]["results"]) == 128 and
        max(r.get("dropped_tokens", 0) for r in o[0]["results"]) > 100'
    fails 4 "query: the prompt has" rerank -m "$m" -q "$long" c
    fails 2 "which have no place for it" rerank -m "$m" -q ab --instruct x c
}

@test "a pair's separators have the types that the template gives them" {
    model bert-rerank
    m=$T/bert-rerank
    # [SEP] of type 0, and another one of type 1
    python3 - "$m/tokenizer.json" <<'PY'
import copy, json, sys
t = json.load(open(sys.argv[1]))
pair = t["post_processor"]["pair"]
pair.insert(3, copy.deepcopy(pair[4]))
json.dump(t, open(sys.argv[1], "w"))
PY
    score() { q rerank --exact --json --raw-scores -m "$m" "$@" | jget 'o["results"][0]["score"]'; }
    got=$(score -q ab cd)
    equal "$got" "$(score --prompt-ids "2 4 31 3 | 3 6 33 3")"
    run ! equal "$got" "$(score --prompt-ids "2 4 31 3 3 | 6 33 3")"
}

@test "pooling_type of a GGUF file" {
    cp -r "$FAMILIES/bert-cls" "$T"
    chmod -R u+w "$T/bert-cls"
    declare -A modes=([1]=mean [2]=cls [3]=lasttoken)
    for type in 1 2 3; do
        gguf_edit "$FAMILIES/bert-cls.gguf" "$T/x.gguf" "kv['bert.pooling_type'] = [4, $type]"
        echo "{\"pooling_mode\": \"${modes[$type]}\"}" >"$T/bert-cls/1_Pooling/config.json"
        equal "$(q embed --exact -m "$T/x.gguf" --prompt-ids 2,4,31,3)" \
            "$(q embed --exact -m "$T/bert-cls" --prompt-ids 2,4,31,3)"
    done
}

@test "encoders are refused where they do not fit" {
    fails 3 "is a text encoder without a classifier, which only embed can use" \
        rerank -m "$FAMILIES/bert-cls" --prompt-ids 1,2
    for m in "$FAMILIES/xlmr-rerank" "$FAMILIES/xlmr-rerank.gguf"; do
        fails 3 "which only rerank uses" embed -m "$m" --prompt-ids 1,2
    done
    cp "$FAMILIES/xlmr-rerank.gguf" "$T/x.gguf"
    run -0 --separate-stderr q rerank -m "$T/x.gguf" --prompt-ids 1,2
    [ -z "$stderr" ]
    mkdir "$T/mlm"
    cp -r "$FAMILIES/bert-cls/." "$T/mlm"
    chmod -R u+w "$T/mlm"
    sed -i 's/"BertModel"/"BertForMaskedLM"/' "$T/mlm/config.json"
    run -0 --separate-stderr q embed -m "$T/mlm" --prompt-ids 1,2
    [ -z "$stderr" ]
}

# refused WORDS ARGUMENTS...: exit status 3, and one line with the words.
refused() {
    fails 3 "$@"
    [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "verbs that need logits name the verb that an encoder is for" {
    model bert-cls
    model xlmr-rerank
    for m in "$T/bert-cls" "$FAMILIES/bert-cls" "$FAMILIES/bert-cls.gguf"; do
        for verb in generate score logits "choose -a x -a y"; do
            # shellcheck disable=SC2086
            refused "only embed can be used" $verb -m "$m" ab
        done
        echo '{"prompt": "ab"}' >"$T/in"
        refused "only embed can be used" batch -m "$m" -i "$T/in"
        refused "only embed can be used" generate -m "$m" --prompt-ids 1,2
    done
    for m in "$T/xlmr-rerank" "$FAMILIES/xlmr-rerank" "$FAMILIES/xlmr-rerank.gguf"; do
        for verb in generate score logits "choose -a x -a y"; do
            # shellcheck disable=SC2086
            refused "which only rerank uses" $verb -m "$m" ab
        done
    done
}

@test "plan, inspect, models and count take encoders" {
    model bert-cls
    for m in "$T/bert-cls" "$FAMILIES/bert-cls.gguf" "$FAMILIES/modernbert.gguf" "$FAMILIES/xlmr-rerank"; do
        run -0 --separate-stderr q plan --json -m "$m"
        [ -z "$stderr" ]
        run -0 --separate-stderr q inspect --json -m "$m"
        [ -z "$stderr" ]
    done
    q inspect --json -m "$T/bert-cls" | jlines 'o[0]["model_type"] == "bert" and o[0]["n_layers"] == 3 and
        o[0]["n_ctx_max"] == 128 and o[0]["has_tokenizer"]'
    QWICK_MODEL_PATH=$T q models --json --no-speed | jlines '[(m["name"], m["family"], m["runs"])
        for m in o[0]["models"]] == [("bert-cls", "bert", True)]'
    # without the frame that embed puts around a text
    [ "$(q count -m "$T/bert-cls" ab)" = 2 ]
}

@test "a GGUF file of a ModernBERT classifier does not say what it reads" {
    m=$FAMILIES/modernbert-rerank-mean.gguf
    run -0 --separate-stderr q rerank --raw-scores -m "$m" --prompt-ids 1,2
    [ "${#stderr_lines[@]}" -eq 1 ]
    [[ $stderr == *"$m: a GGUF file of ModernBERT does not say classifier_pooling"* ]]
    run -0 --separate-stderr q rerank -m "$FAMILIES/modernbert-rerank" --prompt-ids 1,2
    [ -z "$stderr" ]
}

@test "serve: vectors of an encoder, scores of a cross-encoder" {
    model bert-cls
    model xlmr-rerank
    # both limits are refused, not cut
    echo '{"max_seq_length": 8}' >"$T/bert-cls/sentence_bert_config.json"
    serve_start embed --exact -m "$T/bert-cls"
    serve_start rerank --exact -m "$T/xlmr-rerank"
    q embed --exact -m "$T/bert-cls" ab "a a" >"$T/vectors"
    q rerank --exact --json -m "$T/xlmr-rerank" -q ab cd "a a a" "" >"$T/scores"
    serve_py "$D" "$T" <<'PY'
import json, sys
from serve_client import *
D, T = sys.argv[1:]
def good(name, path, body):
    r = post("unix:%s/%s" % (D, name), path, body)
    assert r.status == 200, r.body[:300]
    return r.json
want = [json.loads(l) for l in open(T + "/vectors")]
got = good("embed", "/v1/embeddings", {"input": ["ab", "a a"]})
assert [d["embedding"] for d in got["data"]] == [w["embedding"] for w in want]
assert post("unix:" + D + "/embed", "/v1/embeddings", {"input": "abcdefghi"}).status == 400
want = json.load(open(T + "/scores"))["results"]
got = good("rerank", "/v1/rerank", {"query": "ab", "documents": ["cd", "a a a", ""]})
assert [(r["index"] + 1, r["relevance_score"]) for r in got["results"]] == [(w["index"], w["score"]) for w in want]
for name, other in ("embed", "/v1/embeddings"), ("rerank", "/v1/rerank"):
    for path, body in (("completions", {"prompt": "a"}), ("responses", {"input": "a"}),
                       ("chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                       ("messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})):
        r = post("unix:%s/%s" % (D, name), "/v1/" + path, body)
        assert r.status == 400 and "gives no answers: POST " + other in r.json["error"]["message"], r.body
r = post("unix:" + D + "/rerank", "/v1/embeddings", {"input": "a"})
assert r.status == 400 and "gives no vectors: POST /v1/rerank" in r.json["error"]["message"], r.body
PY
    # no warning about templates, which these models do not need
    run ! grep warning "$D/embed.err" "$D/rerank.err"
    serve_stop embed
    serve_stop rerank
}
