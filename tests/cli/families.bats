#!/usr/bin/env bats
# Every family from end to end: checkpoints with a tokenizer and a chat template through
# each verb and both formats of quantize. A test is one verb with all families. What only
# one family has is in its own file, and so are numbers.
load helpers

# FAMILY CHECKPOINT SPLIT GGUF: golden weights, which get a small tokenizer with this
# pattern, and a GGUF file of the family by another writer. Names that end in _fp8 and
# _mxfp4 have weights in these forms.
families() {
    cat <<'END'
qwen3 models/tied-bf16 qwen2 gguf/tiny-dense-Q8_0
qwen3moe models/moe qwen2 gguf/tiny-moe-Q8_0
qwen35 models/qwen35-wrapped-untied qwen35 gguf/qwen35-wrapped-untied
qwen35moe models/qwen35-moe qwen35 gguf/qwen35-moe
qwen2 families/qwen2-tied qwen2 families/qwen2-tied
qwen2moe families/qwen2moe-top3 qwen2 families/qwen2moe-top3
qwen2vl families/qwen2vl qwen2 families/qwen2vl
qwen25vl families/qwen25vl qwen2 families/qwen25vl
qwen3vl families/qwen3vl-tied qwen2 families/qwen3vl-tied
qwen3vlmoe families/qwen3vlmoe qwen2 families/qwen3vlmoe
qwen3next families/qwen3next-odd qwen2 families/qwen3next-odd
llama families/llama-biases qwen2 families/llama-biases
llama3 families/llama3-tied qwen2 families/llama3-tied
mistral families/mistral-nemo qwen2 families/mistral-nemo
mistral3 families/mistral3 qwen2 families/mistral3
mixtral families/mixtral-top3 qwen2 families/mixtral-top3
smollm3 families/smollm3-tied qwen2 families/smollm3-tied
gemma families/gemma1 qwen2 families/gemma1
gemma2 families/gemma2-one qwen2 families/gemma2-one
granite families/granite-bias qwen2 families/granite-bias
olmo2 families/olmo2-one qwen2 families/olmo2-one
olmo3 families/olmo3-yarn qwen2 families/olmo3-yarn
phi3 families/phi3-long qwen2 families/phi3-long
phi4mini families/phi4mini-long qwen2 families/phi4mini-long
gemma4 families/gemma4-kv qwen2 families/gemma4-kv
gemma4e families/gemma4-e4b qwen2 families/gemma4-e4b
gemma4moe families/gemma4-top3 qwen2 families/gemma4-top3
glm4 families/glm4-wide qwen2 families/glm4-wide
seed_oss families/seed-oss qwen2 families/seed-oss
ernie4_5 families/ernie4_5 qwen2 families/ernie4_5
exaone4 families/exaone4 qwen2 families/exaone4
gpt_oss families/gpt-oss-top3 qwen2 families/gpt-oss-top3
qwen3_fp8 families/qwen3-fp8-row qwen2 gguf/tiny-dense-Q8_0
qwen3moe_fp8 families/qwen3moe-fp8 qwen2 gguf/tiny-moe-Q8_0
mistral3_fp8 families/mistral3-fp8 qwen2 families/mistral3
gpt_oss_mxfp4 families/gpt-oss-mxfp4 qwen2 families/gpt-oss-mxfp4
END
}

# golden_ids DIR: the tokens of a golden in golden/families, for which the choice of experts
# is clear.
golden_ids() {
    python3 - "$1/expected.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = 8 + struct.unpack("<Q", data[:8])[0]
ids = json.loads(data[8:n])["input_ids"]
lo, hi = (n + at for at in ids["data_offsets"])
print(*struct.unpack("<%d%s" % (ids["shape"][-1], {"I64": "q", "I32": "i"}[ids["dtype"]]),
                     data[lo:hi]), sep=",")
PY
}

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    local name model split to
    while read -r name model split _; do
        to=$BATS_FILE_TMPDIR/$name
        mkdir "$to"
        cp tests/golden/"$model"/{config.json,model.safetensors} "$to"
        python3 -S tests/cli/byte_tokenizer.py "$to" "$split"
        case $model in
        families/*) golden_ids "tests/golden/$model" ;;
        *) echo 5,9,2,7,40 ;;
        esac >"$to.ids"
    done < <(families)
    mkdir "$BATS_FILE_TMPDIR/gemma3"
    echo 5,9,2,7,40 >"$BATS_FILE_TMPDIR/gemma3.ids"
    python3 -S tests/cli/gemma.py "$BATS_FILE_TMPDIR/gemma3" closed
}

setup() {
    common_setup
    PROMPT="list the files"
    EX="--exact --greedy --ignore-eos"
    # more than a page of the cache, and more than the original length of each family
    LONG="1 2 3 $PROMPT of all the users, by their sizes, with the largest ones last: and more of "
    LONG+="it, without an end. 4 5 6 What is not in it is not to be in the answer. 7 8 9"
}

# each FUNCTION: call it with the folder of each family and its GGUF file, and go on after
# one that fails. The function must return what is wrong as its status, since bash ignores
# failures in it. Its M is the folder and its F the name of the family: outputs that
# Python checks are kept as $T/F.…, since one start of Python for all is quicker.
each() {
    local -
    set +T
    local gguf n_bad=0
    while read -r F _ _ gguf; do
        M=$BATS_FILE_TMPDIR/$F
        "$1" "$M" "tests/golden/$gguf.gguf" || { echo "$F: $1"; ((++n_bad)); }
    done < <(families; echo "gemma3 - - gguf/gemma3-tied")
    [ $n_bad -eq 0 ]
}

# tokens OPTIONS…: the ids of an answer of the model M, or the error and status 1.
tokens() {
    q -m "$M" $EX --json "$@" 2>"$T/.err" | sed -n 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/p' |
        grep . || { cat "$T/.err"; return 1; }
}

# cached OPTIONS…: how many tokens of the prompt were in a cache.
cached() {
    q -m "$M" $EX --json "$@" | sed -n 's/.*"cached_tokens":\([0-9]*\).*/\1/p'
}

# ---- verbs ---------------------------------------------------------------------------

# The prompt's own ids, and in parts of any length.
generate() {
    local want ids
    want=$(tokens -n 12 "$LONG") || { echo "$want"; return 1; }
    ids=$(printf '[{"role":"user","content":"%s"}]' "$LONG" | "$QWICK" render -m "$1" - |
        "$QWICK" tokenize -m "$1" -f - | tr ' \n' ,,)
    equal "$want" "$(tokens -n 12 --prompt-ids "${ids%,}")" &&
        equal "$want" "$(tokens -n 12 --prefill-chunk 1 "$LONG")"
}

@test "generate: prompts as ids, and in parts" { each generate; }

# Alone and among others, with and without room for all.
batch() {
    local n
    for i in 1 2; do
        printf '{"prompt":"%s","max_tokens":12}\n' "$PROMPT"
        printf '{"prompt":"%s","max_tokens":5}\n' "$LONG"
    done >"$T/in"
    for n in 1 3; do
        q batch -m "$1" $EX --max-batch $n -i "$T/in" | sed 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/' >"$T/out"
        { tokens -n 12 "$PROMPT"; tokens -n 5 "$LONG"; } >"$T/want"
        cat "$T/want" "$T/want" | diff - "$T/out" || return 1
    done
}

@test "batch: the answers of single runs" { each batch; }

# check CODE: Python code is called with the name of each family in which a file
# $T/F.KEY.json is, and o, all of its files by KEY.
check() {
    python3 - "$T" "$1" <<'PY'
import glob, json, os, sys
folder, code = sys.argv[1:]
families = {}
for path in glob.glob(folder + "/*.json"):
    name, key, _ = os.path.basename(path).split(".")
    families.setdefault(name, {})[key] = json.load(open(path))
assert families
for name, o in families.items():
    try:
        exec(code)
    except Exception:
        print(name)
        raise
PY
}

choose() {
    printf 'a list' >"$T/u"
    q choose -m "$1" --exact --no-end --json -a yes -a "a list" "is it?" >"$T/$F.choose.json" &&
        q score -m "$1" --exact --json --chat --given "is it?" -f "$T/u" >"$T/$F.score.json"
}

@test "choose: the probabilities are those of score" {
    each choose
    check '
c = o["choose"]["answers"]
assert abs(sum(a["probability"] for a in c) - 1) < 1e-9, c
assert next(a["logprob"] for a in c if a["answer"] == "a list") == o["score"]["logprob"]'
}

score() {
    printf '%s' "$PROMPT" >"$T/u"
    q score -m "$1" --exact --json -f "$T/u" >"$T/$F.score.json" &&
        q score -m "$1" --exact --json --prefill-chunk 1 -f "$T/u" >"$T/$F.parts.json" &&
        q logits -m "$1" --exact --all --top 5000 --json -f "$T/u" >"$T/$F.logits.json"
}

@test "score: the log-probabilities are those of logits, in parts of any length" {
    each score
    check '
units, l = o["score"]["units"], o["logits"]
assert units == o["parts"]["units"]
# logits puts a token before the text if the tokenizer does so
before = len(l["input_ids"]) - len(units)
assert [u["id"] for u in units] == l["input_ids"][before:]
for u, p in zip(units[1:], l["positions"][before:]):
    want = next(t["logprob"] for t in p["top"] if t["id"] == u["id"])
    # logits uses libm, score a kernel whose exp has a relative error of 2^-21
    assert abs(u["logprob"] - want) <= 1e-6, (u, want)'
}

# A saved session continues as one run does.
session() {
    local all
    rm -f "$T/s"
    all=$(tokens -n 20 --raw "$LONG") || { echo "$all"; return 1; }
    all=${all//[\[\]]/}
    q -m "$1" $EX -n 5 --raw --save-session "$T/s" "$LONG" >"$T/out" &&
        equal "[$(cut -d , -f 11-20 <<<"$all")]" \
            "$(tokens -n 10 --session "$T/s" --prompt-ids "$(cut -d , -f 6-10 <<<"$all")")"
}

@test "sessions: a saved one continues as one run" { each session; }

# What is in the cache on disk is not computed again, and changes nothing. Sequences beyond
# Phi's original length, which is a page here, have no entries.
prefix_cache() {
    local want least=64
    [[ $F != phi* ]] || least=0
    rm -rf "$T/cache"
    want=$(tokens -n 8 "$LONG") || { echo "$want"; return 1; }
    tokens -n 1 --prefix-cache="$T/cache" "$LONG" >"$T/out"
    [ "$(cached -n 1 --prefix-cache="$T/cache" "$LONG")" -ge $least ] &&
        equal "$want" "$(tokens -n 8 --prefix-cache="$T/cache" "$LONG")"
}

@test "prefix cache: the answers of runs without it" { each prefix_cache; }

# Guesses from the text, and from the same model.
guesses() {
    local want
    want=$(tokens -n 40 "$PROMPT $PROMPT") || { echo "$want"; return 1; }
    equal "$want" "$(tokens -n 40 --lookup 8 "$PROMPT $PROMPT")" &&
        equal "$want" "$(tokens -n 40 --draft "$1" "$PROMPT $PROMPT")"
}

@test "lookup and draft: the answers of runs without them" { each guesses; }

plan() {
    q plan -m "$1" --no-speed --json --prompt-tokens 40 -n 20 >"$T/$F.plan.json" &&
        q inspect -m "$1" --json >"$T/$F.inspect.json" && cp "$1/config.json" "$T/$F.config.json"
}

# The weights are those of inspect, and the cache holds what the layers with keys need.
@test "plan: the memory of weights and cache" {
    each plan
    check '
p, c = o["plan"], o["config"].get("text_config", o["config"])
assert p["fits"] and p["weight_bytes"] == o["inspect"]["weight_bytes"], p
n = c["num_hidden_layers"]
own = n - c.get("num_kv_shared_layers", 0)
layers = [{**c, **c.get("per_layer_config", {}).get(str(i), {})} for i in range(own)]
layers = [l for i, l in enumerate(layers) if c.get("layer_types", [""] * n)[i] != "linear_attention"]
full = n - own + len(layers)
dims = [(l.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]) * l["num_key_value_heads"] for l in layers]
# keys and values of one page of 64 tokens in f16, of Gemma 4 in f32; states come on top
need = sum(dims) * (4 if "gemma4" in c["model_type"] else 2) * 2 * 64
assert p["kv_bytes"] == need or full < n and p["kv_bytes"] > need, (p["kv_bytes"], need)'
}

# ---- formats -------------------------------------------------------------------------

# rendered MODEL: what a model's tokenizer and template make of texts.
rendered() {
    q render -m "$1" '[{"role":"user","content":"list it"}]'
    q tokenize -m "$1" "the list: Größe <|im_end|> x̀ 12"
}

# answers MODEL: the tokens of an answer, and the probabilities of a choice. These are
# rounded: Qwen3.5's decays are exponentials, and a GGUF file has them in float32.
answers() {
    local M=$1
    tokens -n 12 "$PROMPT" || return 1
    q choose -m "$1" --exact -a yes -a no -a "a list" "is it?" | cut -f 1,2 | sed 's/\(\.[0-9]\{3\}\)[0-9]*/\1/'
}

# close NAME MODEL: keep logits of the model M and of another, for close_logits.
close() {
    local ids=(--prompt-ids "$(<"$BATS_FILE_TMPDIR/$F.ids")")
    q logits -m "$M" --exact --json --top 5000 "${ids[@]}" >"$T/$F.whole.json" &&
        q logits -m "$2" --exact --json --top 5000 "${ids[@]}" >"$T/$F.$1.json"
}

# The logits differ by less than half their size. Rounding the weights to 8 bits changes
# logits by up to a fifth, since random weights amplify each error; a weight in a wrong
# place changes them by about their size.
close_logits() {
    check '
by_id = {k: {t["id"]: t["logit"] for t in v["positions"][0]["top"]} for k, v in o.items()}
a = by_id.pop("whole")
assert len(a) >= 320 and by_id, len(a)
for k, b in by_id.items():
    assert a.keys() == b.keys(), k
    d = sum((a[i] - b[i]) ** 2 for i in a) / sum(v * v for v in a.values())
    assert d < 0.5 ** 2, (k, d)'
}

# Floats are copied: the same answers. BF16 holds all numbers of MXFP4, and rounds the
# product of an FP8 number and its scale.
to_gguf() {
    q quantize --format gguf --type BF16 -m "$1" -o "$T/$F.gguf" && cp "$2" "$T/$F.golden" &&
        if [[ $F == *_fp8 ]]; then
            close bf16 "$T/$F.gguf"
        else
            diff <(answers "$1") <(answers "$T/$F.gguf")
        fi &&
        diff <(rendered "$1") <(rendered "$T/$F.gguf")
}

# A file has all keys of one by another writer, in their types, and exactly its tensors by
# name, number of dimensions, and whether they are F32.
@test "quantize to GGUF, BF16: the same model, laid out as by others" {
    each to_gguf
    close_logits
    python3 - "$T" <<'PY'
import glob, re, sys
sys.path.insert(0, "tests/cli")
from gguf import read
for path in glob.glob(sys.argv[1] + "/*.gguf"):
    (kv, tensors), (want_kv, want) = read(path), read(path[:-4] + "golden")
    # needless: names of the file, the size of no vocabulary, images, what other keys imply
    needless = ("general.type", "general.size_label", ".vocab_size", ".n_deepstack_layers",
                ".sliding_window_pattern", ".yarn_attn_factor")
    lost = {k: t for k, (t, _) in want_kv.items() if kv.get(k, [None])[0] != t and
            not k.endswith(needless)}
    # the goldens have byte-level BPE in place of Gemma's scores
    gemma = b"gemma3" in kv["general.architecture"]
    assert not lost or gemma and list(lost) == ["tokenizer.ggml.merges"], (path, lost)
    kinds = lambda all: {(re.sub(r"\d+", "N", name), len(dims), t == 0) for name, dims, t, _ in all}
    differ = kinds(tensors) ^ kinds(want)
    # the golden of qwen3moe has no head of its own
    assert not differ or "moe_fp8" in path and differ == {("output.weight", 2, False)}, (path, differ)
PY
}

# Fewer bits: the same model, answers, and guesses for the whole one.
to_few_bits() {
    rm -rf "$T"/q*.gguf "$T"/mlx*
    q quantize --format gguf --type Q8_0 -m "$1" -o "$T/q8.gguf" && close q8 "$T/q8.gguf" &&
        q quantize --format gguf -m "$1" -o "$T/q4.gguf" && answers "$T/q4.gguf" >"$T/out" &&
        q quantize --bits 8 --group 32 -m "$1" -o "$T/mlx8" && close mlx8 "$T/mlx8" &&
        q quantize --bits 4 --group 32 -m "$1" -o "$T/mlx4" && answers "$T/mlx4" >"$T/out" &&
        diff <(rendered "$1") <(rendered "$T/mlx4") &&
        equal "$(tokens -n 12 "$PROMPT")" "$(tokens -n 12 --draft "$T/mlx4" "$PROMPT")" &&
        fails 3 "is a GGUF file" quantize -m "$T/q4.gguf" -o "$T/again" &&
        fails 3 "quantized already" quantize --format gguf -m "$T/mlx4" -o "$T/again"
}

@test "quantize to fewer bits in both formats: the same model" {
    each to_few_bits
    close_logits
}

# It rounds norms that have their 1. It has no FP8, and MXFP4 only from quantize.
from_mlx() {
    case $F in
    *_fp8 | *_mxfp4) ;;
    qwen35* | qwen3next) close mlx "$T/$F.mlx" ;;
    *) diff <(answers "$1") <(answers "$T/$F.mlx") ;;
    esac
}

@test "mlx-lm's layout of the same floats: the same answers" {
    local all=()
    for m in "$BATS_FILE_TMPDIR"/*/; do
        [[ $m != *_@(fp8|mxfp4)/ ]] || continue
        copy_of "$m" "$(basename "$m").mlx"
        all+=("$m" "$T/$(basename "$m").mlx")
    done
    python3 tests/cli/mlx_layout.py "${all[@]}"
    each from_mlx
    close_logits
}

@test "GGUF files of llama.cpp's tools" {
    for m in gguf/{tiny-dense-Q4_K_S,tiny-moe-Q4_K_S,gemma3-tied,qwen35-tied,qwen35-moe}; do
        M=tests/golden/$m.gguf
        [ "$(tokens -n 3 --prompt-ids 5,9,2 | tr , '\n' | wc -l)" -eq 3 ] || { echo "$m"; return 1; }
        fails 3 "is a GGUF file" quantize -m "$M" -o "$T/again"
    done
}

no_pictures() {
    local kind
    for kind in image audio; do
        echo '[{"role":"user","content":[{"type":"'$kind'","'$kind'":"x"},
            {"type":"text","text":"what is it?"}]}]' >"$T/chat.json"
        fails 2 "messages[0].content[0].type: must be \"text\", is \"$kind\"" -m "$1" \
            --chat-json "$T/chat.json" || return 1
    done
}

@test "an image and sound in a chat are refused by name" {
    each no_pictures
}
