#!/usr/bin/env bats
# Every family from end to end: a checkpoint with a tokenizer and a chat template
# through generate, batch, choose and quantize, and each result of quantize through
# the same verbs. What only one family has is in its own file, and so are numbers.
load helpers

# FAMILY/CHECKPOINT/SPLIT: golden weights with a small tokenizer.
FAMILIES="qwen3/tied-bf16/qwen2 qwen3moe/moe/qwen2 qwen35/qwen35-wrapped-untied/qwen35
    qwen35moe/qwen35-moe/qwen35"

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    local f name model split
    for f in $FAMILIES; do
        IFS=/ read -r name model split <<<"$f"
        mkdir "$BATS_FILE_TMPDIR/$name"
        cp tests/golden/models/"$model"/{config.json,model.safetensors} "$BATS_FILE_TMPDIR/$name"
        python3 tests/cli/byte_tokenizer.py "$BATS_FILE_TMPDIR/$name" "$split"
    done
    mkdir "$BATS_FILE_TMPDIR/gemma3"
    python3 tests/cli/gemma.py "$BATS_FILE_TMPDIR/gemma3" closed
}

setup() {
    common_setup
    PROMPT="list the files"
    EX="--exact --greedy --ignore-eos"
}

# verbs MODEL: print the tokens of an answer and the probabilities of a choice. The
# answer must be the same alone and in a batch.
verbs() {
    for i in 1 2; do
        printf '{"prompt":"%s","max_tokens":12}\n' "$PROMPT"
        echo '{"prompt":"a longer prompt than the other","max_tokens":5}'
    done >"$T/in"
    q -m "$1" $EX --json -n 12 "$PROMPT" >"$T/answer" &&
        q batch -m "$1" $EX --max-batch 4 -i "$T/in" >"$T/answers" &&
        q choose -m "$1" --exact --json -a yes -a no -a "a list" "is it?" >"$T/choice" &&
        python3 - "$T/answer" "$T/answers" "$T/choice" <<'PY'
import json, sys
alone, batch, choice = ([json.loads(line) for line in open(f)] for f in sys.argv[1:])
tokens = alone[0]["tokens"]
got = [r["tokens"] for r in batch]
assert [len(t) for t in [tokens, *got]] == [12, 12, 5, 12, 5], (tokens, got)
assert got[0] == got[2] == tokens, (tokens, got)
p = {a["answer"]: a["probability"] for a in choice[0]["answers"]}
assert len(p) == 3 and abs(sum(p.values()) - 1) < 1e-6, p
# rounded: Qwen3.5's decays are exponentials, and a GGUF file has them in float32
print(tokens, sorted((a, "%.3f" % v) for a, v in p.items()))
PY
}

# rendered MODEL: what a model's tokenizer and template make of texts.
rendered() {
    q render -m "$1" '[{"role":"user","content":"list it"}]'
    q tokenize -m "$1" "the list: Größe <|im_end|> x̀ 12"
}

# close A B: the logits of two models differ by less than half their size. Rounding the
# weights to 8 bits changes logits by up to a fifth, since random weights amplify each
# error; a weight in a wrong place changes them by about their size.
close() {
    local m
    for m in 1 2; do
        q logits -m "${!m}" --exact --json --top 5000 --prompt-ids 5,9,2,7,40 >"$T/logits.$m" || return 1
    done
    python3 - "$T"/logits.[12] <<'PY'
import json, math, sys
a, b = ({t["id"]: t["logit"] for t in json.load(open(f))["positions"][0]["top"]}
        for f in sys.argv[1:])
assert a.keys() == b.keys() and len(a) >= 320, (len(a), len(b))
d = math.sqrt(sum((a[i] - b[i]) ** 2 for i in a) / sum(v * v for v in a.values()))
assert d < 0.5, d
PY
}

# laid_out FILE GOLDEN: a GGUF file has all keys of a golden one, in their types, and
# exactly its tensors by name, number of dimensions, and whether they are F32.
laid_out() {
    python3 - "$1" "tests/golden/gguf/$2.gguf" <<'PY'
import re, sys
sys.path.insert(0, "tests/cli")
from gguf import read
(kv, tensors), (want_kv, want) = map(read, sys.argv[1:])
# the goldens have byte-level BPE in place of Gemma's scores
lost = {k: t for k, (t, _) in want_kv.items() if kv.get(k, [None])[0] != t}
assert not lost or list(lost) == ["tokenizer.ggml.merges"] and b"gemma3" in kv["general.architecture"], lost
kinds = lambda all: {(re.sub(r"\d+", "N", name), len(dims), t == 0) for name, dims, t, _ in all}
assert kinds(tensors) == kinds(want), kinds(tensors) ^ kinds(want)
PY
}

# end_to_end FAMILY GOLDEN
end_to_end() {
    local m=$BATS_FILE_TMPDIR/$1
    verbs "$m" >"$T/want"
    rendered "$m" >"$T/text"
    [ -s "$T/text" ]

    # floats are copied: the same answers
    q quantize --format gguf --type BF16 -m "$m" -o "$T/bf16.gguf"
    laid_out "$T/bf16.gguf" "$2"
    verbs "$T/bf16.gguf" >"$T/got"
    diff "$T/want" "$T/got"
    rendered "$T/bf16.gguf" | diff "$T/text" -

    # fewer bits: the same model, and answers
    q quantize --format gguf --type Q8_0 -m "$m" -o "$T/q8.gguf"
    close "$m" "$T/q8.gguf"
    q quantize --format gguf -m "$m" -o "$T/q4.gguf"
    verbs "$T/q4.gguf" >"$T/got"
    q quantize --bits 8 --group 32 -m "$m" -o "$T/mlx8"
    close "$m" "$T/mlx8"
    q quantize --bits 4 --group 32 -m "$m" -o "$T/mlx4"
    verbs "$T/mlx4" >"$T/got"
    rendered "$T/mlx4" | diff "$T/text" -

    # what is quantized is no source
    fails 3 "is a GGUF file" quantize -m "$T/q4.gguf" -o "$T/again"
    fails 3 "quantized already" quantize --format gguf -m "$T/mlx4" -o "$T/again"
}

@test "Qwen3" { end_to_end qwen3 tiny-dense-Q8_0; }

@test "Qwen3-MoE" { end_to_end qwen3moe tiny-moe-Q8_0; }

@test "Qwen3.5 in the layout of released checkpoints" { end_to_end qwen35 qwen35-wrapped-untied; }

@test "Qwen3.5, a mixture of experts" { end_to_end qwen35moe qwen35-moe; }

@test "Gemma 3 in the layout of released checkpoints" { end_to_end gemma3 gemma3-tied; }

@test "GGUF files of llama.cpp's tools" {
    for m in tiny-dense-Q4_K_S tiny-moe-Q4_K_S gemma3-tied qwen35-tied qwen35-moe; do
        verbs tests/golden/gguf/$m.gguf >"$T/got" || { echo "$m"; return 1; }
        fails 3 "is a GGUF file" quantize -m tests/golden/gguf/$m.gguf -o "$T/again"
    done
}
