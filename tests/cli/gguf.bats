#!/usr/bin/env bats
# GGUF files: every verb on them, what inspect says, what is wrong with them. The
# demo model as a GGUF file must answer as the demo model does.
load helpers

GGUF=tests/golden/gguf

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    python3 tests/cli/gguf.py convert models/demo "$BATS_FILE_TMPDIR/demo.gguf"
}

setup() {
    common_setup
    IDS=5,9,2,7
}

# The demo model as $T/demo.gguf.
convert() {
    ln "$BATS_FILE_TMPDIR/demo.gguf" "$T/demo.gguf"
}

# same ARGS…: the same bytes on standard output from both.
same() {
    q "$@" | bare >"$T/same.1"
    q "$@" -m "$T/demo.gguf" | bare >"$T/same.2"
    [ -s "$T/same.1" ] || return 1
    diff "$T/same.1" "$T/same.2"
}

# changed CODE: $T/bad.gguf is a small golden, changed by Python code on kv and
# tensors.
changed() {
    gguf_edit "${2:-$GGUF/tiny-dense-Q2_K.gguf}" "$T/bad.gguf" "$1"
}

# refused CODE PATTERN [FILE]: exit 3 with the file's name and the pattern.
refused() {
    changed "$1" "${3:-}"
    fails 3 "$2" -m "$T/bad.gguf" --prompt-ids $IDS -n 1
    [[ $stderr == "qwick: $T/bad.gguf: "* ]]
}

@test "the demo model answers as from its checkpoint" {
    convert
    want=$(q "list all listening tcp ports")
    [ "$(q -m "$T/demo.gguf" "list all listening tcp ports")" = "$want" ]
    [ "$(QWICK_MODEL=$T/demo.gguf q "list all listening tcp ports")" = "$want" ]
    (cd "$T" && [ "$(q -m demo.gguf "list all listening tcp ports")" = "$want" ])
    ln -s demo.gguf "$T/sha256-0123"
    [ "$(q -m "$T/sha256-0123" "list all listening tcp ports")" = "$want" ]
    same --json --exact "show disk usage"
    same --json --temp 0.8 --seed 3 "show disk usage"
    same logits --json "list files"
    same choose --exact --json -a "ls -l" -a ls "list files with details"
    same score --exact --json --chat --given "list files" "ls -l"
    same tokenize --json "Größe 12 <|im_end|> <think>x"
    [ "$(q -m "$T/demo.gguf" render <<<'[{"role":"user","content":"x"}]')" = \
        "$(q render <<<'[{"role":"user","content":"x"}]')" ]
    equal "$(q -m "$T/demo.gguf" detokenize 6137 40 50)" "$(q detokenize 6137 40 50)"
}

@test "batch, embed and rerank as from the checkpoint" {
    convert
    printf '{"id":%d,"prompt":"show disk usage %d"}\n' 1 1 2 2 3 3 >"$T/in"
    diff <(q batch -i "$T/in" --exact | bare) \
        <(q batch -i "$T/in" --exact -m "$T/demo.gguf" | bare)
    ln -s demo.gguf "$T/embed.gguf"
    ln -s demo.gguf "$T/rerank.gguf"
    diff <(q embed --exact "list files" "kill a process" 2>/dev/null) \
        <(q embed --exact "list files" "kill a process" -m "$T/embed.gguf")
    run --separate-stderr q rerank --exact -q x a b -m "$T/rerank.gguf"
    [[ $stderr != *doubtful* ]]
    run --separate-stderr q embed x -m "$T/demo.gguf"
    [[ $stderr == *doubtful* ]]
}

@test "prefix cache and sessions know the file" {
    convert
    export XDG_CACHE_HOME=$T/cache
    first=$(q --prefix-cache -n 8 --json -m "$T/demo.gguf" -s "$(printf 'word %.0s' {1..200})" x)
    again=$(q --prefix-cache -n 8 --json -m "$T/demo.gguf" -s "$(printf 'word %.0s' {1..200})" x)
    [ "$(jget 'o["usage"]["cached_tokens"]' <<<"$first")" -eq 0 ]
    [ "$(jget 'o["usage"]["cached_tokens"]' <<<"$again")" -gt 0 ]
    equal "$(jget 'o["text"]' <<<"$first")" "$(jget 'o["text"]' <<<"$again")"
    gguf_edit "$T/demo.gguf" "$T/other.gguf" \
        't = tensors[3]; t[3] = t[3][:4] + b"\x40\x40" + t[3][6:]'
    other=$(q --prefix-cache -n 8 --json -m "$T/other.gguf" -s "$(printf 'word %.0s' {1..200})" x)
    [ "$(jget 'o["usage"]["cached_tokens"]' <<<"$other")" -eq 0 ]
}

# Blocks of half the value with scales of 2 are the same weights.
@test "a tensor NAME.scale multiplies the weights" {
    local e n
    gguf_edit $GGUF/qwen3-NVFP4.gguf "$T/whole.gguf" 'for t in tensors:
    if t[2] == 40:
        t[3] = bytes((b & 7) + 16 if i % 36 < 4 else b for i, b in enumerate(t[3]))'
    gguf_edit "$T/whole.gguf" "$T/scaled.gguf" 'new = []
for t in tensors:
    if t[2] == 40:
        t[3] = bytes(b - 8 if i % 36 < 4 else b for i, b in enumerate(t[3]))
        new.append([t[0].replace(".weight", ".scale"), [1], 0, b"\0\0\0\x40"])
tensors += new'
    for e in "" --exact "--isa avx2" "--isa ref"; do
        for n in 3 40; do
            [ "$(q -m "$T/whole.gguf" $e --prompt-ids "$(seq -s, 1 $n)" -n 9 --ignore-eos --json |
                jget 'o["tokens"]')" = \
                "$(q -m "$T/scaled.gguf" $e --prompt-ids "$(seq -s, 1 $n)" -n 9 --ignore-eos --json |
                jget 'o["tokens"]')" ]
        done
    done
    # the scales count: without them, answers differ
    gguf_edit "$T/scaled.gguf" "$T/without.gguf" \
        'tensors[:] = [t for t in tensors if not t[0].endswith("attn_output.scale")]'
    [ "$(q -m "$T/scaled.gguf" --prompt-ids "$IDS" -n 9 --ignore-eos --json | jget 'o["tokens"]')" != \
        "$(q -m "$T/without.gguf" --prompt-ids "$IDS" -n 9 --ignore-eos --json | jget 'o["tokens"]')" ]
    gguf_edit "$T/scaled.gguf" "$T/bad.gguf" \
        'tensors[-1][3] = b"\0\0\xc0\x7f"'
    fails 3 "blk.1.ffn_down.scale: element 0 is nan, must have a magnitude from 2^-64 to 2^64" \
        -m "$T/bad.gguf" --prompt-ids "$IDS"
    gguf_edit "$T/scaled.gguf" "$T/bad.gguf" \
        'tensors[-1][1:] = [[2], 0, bytes(8)]'
    fails 3 "blk.1.ffn_down.scale: shape [2] in the file, [1]" -m "$T/bad.gguf" --prompt-ids "$IDS"
    gguf_edit "$T/scaled.gguf" "$T/bad.gguf" \
        'tensors[-1][1:] = [[1], 1, bytes(2)]'
    fails 3 "blk.1.ffn_down.scale: dtype F16 in the file, must be F32" -m "$T/bad.gguf" \
        --prompt-ids "$IDS"
    # beside floats they are not ignored
    gguf_edit $GGUF/tiny-dense-F16.gguf "$T/bad.gguf" \
        'tensors.append(["blk.1.ffn_down.scale", [1], 0, b"\0\0\0\x40"])'
    fails 3 "blk.1.ffn_down.scale: a scale of weights in F16 is not supported" -m "$T/bad.gguf" \
        --prompt-ids "$IDS"
}

# Expert e has blocks of 2^e times the value and a scale of 2^-e: the same weights.
@test "a tensor NAME.scale of experts has a scale for each of them" {
    local e n of all=$GGUF/tiny-moe-Q8_0.gguf
    tokens() { q --prompt-ids "$(seq -s, 1 "$n")" -n 9 --ignore-eos --json "$@" | jget 'o["tokens"]'; }
    gguf_edit "$all" "$T/scaled.gguf" 'import struct
new = []
for t in tensors:
    if "_exps.weight" in t[0]:
        each, b = len(t[3]) // t[1][2], bytearray(t[3])
        for at in range(0, len(b), 34):  # the exponent of f16
            b[at + 1] += 4 * (at // each) if b[at + 1] & 0x7c else 0
        t[3] = bytes(b)
        new.append([t[0].replace(".weight", ".scale"), [4], 0,
                    struct.pack("<4f", *(2.0 ** -e for e in range(4)))])
tensors += new'
    for e in "" --exact "--isa avx2" "--isa ref"; do
        for n in 3 40; do
            [ "$(tokens -m "$all" $e)" = "$(tokens -m "$T/scaled.gguf" $e)" ]
        done
    done
    # each projection's scales count
    n=3
    for of in gate up down; do
        gguf_edit "$T/scaled.gguf" "$T/without.gguf" \
            'tensors[:] = [t for t in tensors if not t[0].endswith("'$of'_exps.scale")]'
        [ "$(tokens -m "$all")" != "$(tokens -m "$T/without.gguf")" ]
    done
    gguf_edit "$T/scaled.gguf" "$T/bad.gguf" 'tensors[-1][1:] = [[3], 0, bytes(12)]'
    fails 3 "_exps.scale: shape [3] in the file, [4]" -m "$T/bad.gguf" --prompt-ids 1
    gguf_edit "$T/scaled.gguf" "$T/bad.gguf" 'tensors[-1][3] = tensors[-1][3][:12] + bytes(4)'
    fails 3 "_exps.scale: element 3 is 0, must have a magnitude from 2^-64 to 2^64" \
        -m "$T/bad.gguf" --prompt-ids 1
}

@test "every type runs, and inspect lists types and sizes" {
    for t in F16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL Q2_K Q3_K_S Q4_K_S Q5_K_S Q6_K IQ4_XS; do
        q -m $GGUF/tiny-dense-$t.gguf --prompt-ids $IDS -n 3 --ignore-eos --json |
            jget '[0][len(o["tokens"]) != 3]'
    done
    for m in tiny-moe-Q4_K_S qwen3-{MXFP4,NVFP4,IQ3_XXS,IQ3_S,IQ2_XXS,IQ2_XS,IQ2_S,IQ1_S,IQ1_M,TQ1_0,TQ2_0}; do
        q -m $GGUF/$m.gguf --prompt-ids $IDS -n 3 --ignore-eos --json |
            jget '[0][len(o["tokens"]) != 3]'
    done
    q inspect --json -m $GGUF/tiny-dense-Q4_K_S.gguf >"$T/i"
    [ "$(jget 'o["weights_dtype"], o["model_type"], o["quantization"]["params_by_bits"]["4"] > 800000' <"$T/i")" = \
        "('Q4_K', 'qwen3', True)" ]
    jget '[0][not any(k["name"] == "blk.*.ffn_up.weight" and k["dtype"] == "Q4_K" and
        k["shape"] == [256, 256] and k["bytes"] == 2 * 256 * 144
        for k in o["tensor_kinds"])]' <"$T/i"
    run -0 q inspect --tensors -m $GGUF/tiny-dense-Q6_K.gguf
    [[ $output == *"Q6_K"*"[256, 256]"*'"blk.0.attn_q.weight"'* ]]
    # preloaded weights give the same bits, also where rows of two matrices alternate
    for m in $GGUF/tiny-dense-Q6_K.gguf tests/golden/families/gpt-oss-mxfp4; do
        [ "$(q -m $m --prompt-ids $IDS -n 9 --preload --json | jget 'o["tokens"]')" = \
            "$(q -m $m --prompt-ids $IDS -n 9 --json | jget 'o["tokens"]')" ]
    done
}

@test "the figures of inspect are sums over tensors" {
    # an odd mix: one layer's experts in F16 and Q8_0, and a head of its own
    changed "for t in tensors:
    block, size = {'blk.0.ffn_down_exps.weight': (1, 2), 'blk.0.ffn_up_exps.weight': (32, 34)}.get(t[0], (0, 0))
    if block:
        t[2] = 1 if block == 1 else 8
        t[3] = bytes(t[1][0] * t[1][1] * t[1][2] // block * size)
tensors.append(['output.weight', [256, 320], 14, bytes(320 * 210)])
tensors.append(['other.weight', [256], 0, bytes(1024)])" $GGUF/tiny-moe-Q4_K_S.gguf
    for f in "$T/bad.gguf" $GGUF/tiny-moe-Q6_K.gguf $GGUF/qwen35-{moe,tied,wrapped-untied}.gguf \
        $GGUF/gemma3-tied.gguf; do
        q inspect --json -m "$f" >"$T/i"
        python3 - "$f" "$T/i" <<'EOF'
import json, math, sys
from fractions import Fraction
path, info = sys.argv[1:]
sys.path.insert(0, "tests/cli")
from gguf import *
kv, tensors = read(path)
o = json.load(open(info))
a = kv["general.architecture"][1].decode()
experts, used = (kv.get("%s.expert_%s" % (a, k), [0, 1])[1] for k in ("count", "used_count"))
tensors = [t for t in tensors if t[0] != "other.weight"]
tied = not any(t[0] == "output.weight" for t in tensors)
want = dict(n_params=0, n_active_params=0, weight_bytes=0, decode_bytes=0)
bits = {}
for name, dims, kind, data in tensors:
    n = math.prod(dims)
    share = Fraction(used, experts) if "_exps." in name else 1
    row = Fraction(1, dims[1]) if name == "token_embd.weight" and not tied else share
    want["n_params"] += n
    want["n_active_params"] += n * share
    want["weight_bytes"] += len(data)
    want["decode_bytes"] += len(data) * row
    b = {0: "dense", 1: "dense", 30: "dense", 8: "8", 12: "4", 14: "6"}[kind]
    bits[b] = bits.get(b, 0) + n
got = {k: o[k] for k in want}
assert got == want, (path, got, want)
if len(bits) > 1:
    q = o["quantization"]
    assert q["params_by_bits"] == bits, (q, bits)
    assert abs(q["bits_per_param"] - 8 * want["weight_bytes"] / want["n_params"]) < 1e-3, q
EOF
    done
}

@test "long prompts by any level of kernels" {
    ids=$(python3 -c 'print(",".join(str(i * 7 % 300) for i in range(100)))')
    for t in Q8_0 Q4_K_S Q6_K IQ4_XS; do
        q logits -m $GGUF/tiny-dense-$t.gguf --prompt-ids "$ids" --exact --top 320 --json >"$T/want"
        for isa in ref avx2 avxvnni avx512 avx512bf16 amx; do
            q logits -m $GGUF/tiny-dense-$t.gguf --prompt-ids "$ids" --isa $isa \
                --top 320 --json >"$T/got" 2>"$T/err" ||
                { grep -q "this CPU supports only" "$T/err"; continue; }
            python3 -c 'import json, math, sys
a, b = ({t["id"]: t["logit"] for t in json.load(open(f))["positions"][0]["top"]}
        for f in sys.argv[1:])
assert len(a) == len(b) == 320
d = math.sqrt(sum((a[i] - b[i]) ** 2 for i in a) / sum(v * v for v in a.values()))
assert d < 4e-2, d' "$T/want" "$T/got"
        done
    done
}

@test "a file that is split" {
    fails 3 "no such file" -m "$T/m-00001-of-00002.gguf" x
    src=$GGUF/tiny-dense-Q4_0.gguf
    gguf_edit $src "$T/m-00001-of-00002.gguf" \
        'tensors[10:] = []; kv["split.no"] = [2, 0]; kv["split.count"] = [2, 2]'
    fails 3 "m-00002-of-00002.gguf: cannot open" -m "$T/m-00001-of-00002.gguf" --prompt-ids $IDS
    gguf_edit $src "$T/m-00002-of-00002.gguf" \
        'tensors[:10] = []; kv.clear(); kv["split.no"] = [2, 1]; kv["split.count"] = [2, 2]'
    [ "$(q -m "$T/m-00001-of-00002.gguf" --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" = \
        "$(q -m $src --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" ]
    fails 3 "is part 2 of 2: name the first part" -m "$T/m-00002-of-00002.gguf" x
}

@test "an untied head, a frame, pooling and sampling from the metadata" {
    convert
    changed 'import copy
t = [t for t in tensors if t[0] == "token_embd.weight"][0]
tensors.append(["output.weight"] + copy.copy(t[1:]))'
    [ "$(q inspect -m "$T/bad.gguf" --json | jget 'o["tied_head"]')" = False ]
    [ "$(q -m "$T/bad.gguf" --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" = \
        "$(q -m $GGUF/tiny-dense-Q2_K.gguf --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" ]
    changed 'kv["tokenizer.ggml.add_eos_token"] = [7, True]'
    n=$(q tokenize -m "$T/bad.gguf" --json abc | jget 'len(o["ids"])')
    [ "$(q embed -m "$T/bad.gguf" abc 2>/dev/null | jget 'o["tokens"]')" -eq $((n + 1)) ]
    changed 'kv["qwen3.pooling_type"] = [4, 3]'
    run -0 --separate-stderr q embed -m "$T/bad.gguf" abc
    [ -z "$stderr" ]
    # how a decoder is pooled changes its vectors, and none of its answers
    last=$output tokens=$(q -m $GGUF/tiny-dense-Q2_K.gguf --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')
    for type in 1 2; do
        changed "kv['qwen3.pooling_type'] = [4, $type]"
        equal "$(q -m "$T/bad.gguf" --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" "$tokens"
        run -0 --separate-stderr q embed -m "$T/bad.gguf" abc
        [[ -z $stderr && $output != "$last" ]]
        last=$output
    done
    changed 'kv["qwen3.pooling_type"] = [4, 4]' "$T/demo.gguf"
    run -0 --separate-stderr q rerank -m "$T/bad.gguf" -q x a b
    [ -z "$stderr" ]
    refused 'kv["qwen3.pooling_type"] = [4, 5]' "qwen3.pooling_type: 5 is not supported"
    changed 'kv["general.sampling.temp"] = [6, 0.6]'
    a=$(q -m "$T/bad.gguf" --prompt-ids $IDS -n 9 --seed 1 --json | jget 'o["tokens"]')
    b=$(q -m "$T/bad.gguf" --prompt-ids $IDS -n 9 --temp 0.6 --seed 1 --json | jget 'o["tokens"]')
    [ "$a" = "$b" ]
}

@test "a reranker's own head" {
    convert
    ids=$(q tokenize yes; q tokenize no)
    [ "$(wc -w <<<"$ids")" -eq 2 ]
    # rows LABELS CODE: a head of the rows that Python code makes of yes and no
    rows() {
        changed "
yes, no = map(int, '$(tr '\n' ' ' <<<"$ids")'.split())
t = [t for t in tensors if t[0] == 'token_embd.weight'][0]
d, n = t[1][0], len(t[3]) // t[1][1]
yes, no, zero = t[3][yes * n:(yes + 1) * n], t[3][no * n:(no + 1) * n], bytes(n)
rows = $2
tensors.append(['cls.output.weight', [d, len(rows)], t[2], b''.join(rows)])
kv['qwen3.pooling_type'] = [4, 4]
kv['qwen3.classifier.output_labels'] = [9, (8, $1)]" "$T/demo.gguf"
    }
    rerank() { q rerank --exact -m "$1" -q "list files" "ls -l" "kill 1" 2>/dev/null; }
    want=$(rerank "$T/demo.gguf")
    rows '["yes", "no"]' '[yes, no]'
    [ "$(rerank "$T/bad.gguf")" = "$want" ]
    rows '["no", "yes"]' '[no, yes]'
    [ "$(rerank "$T/bad.gguf")" = "$want" ]
    rows '["yes", "no"]' '[no, yes]'
    [ "$(rerank "$T/bad.gguf")" != "$want" ]
    # one row has the log-odds
    rows '["yes", "no"]' '[yes, zero]'
    want=$(rerank "$T/bad.gguf")
    rows '["LABEL_0"]' '[yes]'
    [ "$(rerank "$T/bad.gguf")" = "$want" ]
    for bad in '["yes", "maybe"]' '["no", "no"]' '["yes"]' '["yes", "no", "x"]'; do
        rows "$bad" '[yes, no]'
        fails 3 'has 2 rows, must have 1, or 2 that qwen3.classifier.output_labels calls "yes" and "no"' \
            rerank -m "$T/bad.gguf" -q a b
    done
    rows '["a", "b", "c"]' '[yes, no, yes]'
    fails 3 "has 3 rows" rerank -m "$T/bad.gguf" -q a b
    rows '["yes", "no"]' '[yes, no]'
    gguf_edit "$T/bad.gguf" "$T/worse.gguf" \
        'tensors.append(["cls.output.bias", [2], 0, bytes(8)])'
    fails 3 "tensor cls.output.bias: is not supported beside cls.output.weight" \
        rerank -m "$T/worse.gguf" -q a b
}

@test "a reranker without the head of its language model" {
    warned() {
        run -0 --separate-stderr q "$@" -m "$T/bad.gguf" --prompt-ids $IDS
        [ "$(grep -c "bad.gguf: is a reranker without output.weight: the embedding is its head, and what it writes is doubtful" <<<"$stderr")" -eq "$n" ]
    }
    n=1
    changed "kv['qwen3.pooling_type'] = [4, 4]"
    warned -n 3 --ignore-eos
    warned logits
    changed "kv['qwen3.pooling_type'] = [5, 4]" # i32
    warned logits
    n=0
    warned -q -n 3 --ignore-eos
    changed "kv['qwen3.pooling_type'] = [4, 4]
tensors.append(['output.weight'] + [t for t in tensors if t[0] == 'token_embd.weight'][0][1:])"
    warned -n 3 --ignore-eos
    changed "kv['qwen3.pooling_type'] = [4, 3]"
    warned -n 3 --ignore-eos
    # a head of its own says the same; reranking does not need the other
    convert
    changed "t = [t for t in tensors if t[0] == 'token_embd.weight'][0]
n = len(t[3]) // t[1][1]
tensors.append(['cls.output.weight', [t[1][0], 1], t[2], t[3][:n]])" "$T/demo.gguf"
    n=1
    warned -n 3
    run -0 --separate-stderr q rerank -m "$T/bad.gguf" -q x a b
    [[ $stderr != *"output.weight"* ]]
    run -0 --separate-stderr q embed -m "$T/bad.gguf" x
    [[ $stderr != *"output.weight"* ]]
}

@test "values of single layers, and of other architectures" {
    A=qwen3
    src=$GGUF/tiny-dense-Q4_0.gguf
    want=$(q -m $src --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')
    # equal ones are one value
    changed "for k in 'head_count', 'head_count_kv':
    k = '$A.attention.' + k
    kv[k] = [9, (5, [kv[k][1]] * 2)]
kv['$A.attention.recurrent_layers'] = [9, (7, [False, False])]
kv['$A.vision.deepstack_layers'] = [9, (7, [True, False, True])]
kv['$A.attention.causal'] = [7, True]; kv['$A.logit_scale'] = [6, 1.0]" $src
    [ "$(q -m "$T/bad.gguf" --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" = "$want" ]
    refused "kv['$A.attention.head_count_kv'] = [9, (5, [2, 0])]" \
        "$A.attention.head_count_kv: 2, 0: differs between layers, which is not supported"
    refused "kv['$A.attention.head_count_kv'] = [9, (8, ['2', '2'])]" \
        "$A.attention.head_count_kv: an array of 2 string: must have an integer for each"
    refused "kv['$A.attention.head_count_kv'] = [9, (4, [])]" "must have an integer for each"
    refused "kv['$A.attention.recurrent_layers'] = [9, (7, [True, True])]" \
        "$A.attention.recurrent_layers: 1, 1: is not supported"
    refused "kv['$A.swiglu_clamp_exp'] = [9, (6, [1.0, 2.0])]" \
        "$A.swiglu_clamp_exp: an array of 2 f32: must have"
    refused "kv['$A.attention.compress_ratios'] = [9, (4, [4, 4])]" \
        "$A.attention.compress_ratios: 4, 4: is not supported"
    refused "kv['$A.attention.causal'] = [7, False]" \
        "$A.attention.causal: 0 is not supported (1 is)"
    refused "kv['$A.logit_scale'] = [6, 0.0625]" "$A.logit_scale: 0.0625 is not supported"
    refused "kv['$A.expert_gating_func'] = [4, 2]" "$A.expert_gating_func: 2 is not supported"
    refused "kv['$A.attn_logit_softcapping'] = [6, 50.0]" \
        "$A.attn_logit_softcapping: 50 is not supported"
    refused "kv['$A.final_logit_softcapping'] = [6, 30.0]" \
        "$A.final_logit_softcapping: 30 is not supported"
    refused "kv['$A.rope.scaling.yarn_attn_factor'] = [6, 2.0]" "yarn_attn_factor: 2 is not"
    refused "kv['$A.rope.scaling.yarn_ext_factor'] = [6, 0.0]" "yarn_ext_factor: 0 is not"
}

@test "what files of a family always have" {
    local families=tests/golden/families
    A=gemma4
    refused "tensors[:] = [t for t in tensors if t[0] != 'rope_freqs.weight']" \
        "tensor rope_freqs.weight: missing" $families/gemma4-e4b.gguf
    refused "del kv['$A.embedding_length_per_layer_input']" \
        "$A.embedding_length_per_layer_input: must be an integer from 0, is missing" \
        $families/gemma4-e4b.gguf
    for v in "[4, 0]" "[4, 7]" "[8, 'x']" "[4, 1 << 31]" "[9, (4, [1])]"; do
        refused "kv['$A.attention.key_length_swa'] = $v" "$A.attention.key_length_swa" \
            $families/gemma4-e4b.gguf
    done
    refused "del kv['gpt-oss.rope.scaling.type']" \
        "gpt-oss.rope.scaling.type: must be a string, is missing" $families/gpt-oss-top3.gguf
    # biases of one layer are biases of all
    for name in attn_q attn_output; do
        refused "tensors[:] = [t for t in tensors if t[0] != 'blk.0.$name.bias']" \
            "tensor blk.0.$name.bias: missing" $families/gpt-oss-top3.gguf
    done
}

@test "Gemma 4 has a cap of logits unless its file says otherwise" {
    local src=tests/golden/families/gemma4-e2b.gguf key="kv['gemma4.final_logit_softcapping']"
    logprobs() {
        q -m "$1" --prompt-ids "5 6 7 9" -n 4 --greedy --logprobs 1 --json 2>/dev/null |
            jget '[t["logprob"] for t in o["logprobs"]]'
    }
    want=$(logprobs $src)
    changed "del $key" $src # 30 in the file
    [ "$(logprobs "$T/bad.gguf")" = "$want" ]
    changed "$key = [6, 0.0]" $src
    [ "$(logprobs "$T/bad.gguf")" != "$want" ]
    # quantize says so of a model without one
    cp -r "${src%.gguf}" "$T/none"
    sed -i 's/"final_logit_softcapping": 30.0/"final_logit_softcapping": null/' "$T/none/config.json"
    q quantize -m "$T/none" -o "$T/none.gguf" --type BF16
    [ "$(logprobs "$T/none.gguf")" = "$(logprobs "$T/none")" ]
    [ "$(logprobs "$T/none")" != "$want" ]
}

@test "metadata that is missing, of another type or out of range" {
    A=qwen3
    refused "del kv['general.architecture']" "general.architecture: missing"
    refused "kv['general.architecture'] = [4, 1]" "must be of type string, is u32"
    refused "kv['general.architecture'][1] = b'mamba2'" '"mamba2" is not supported (Mamba layers): use Qwen3.5-4B'
    for k in embedding_length feed_forward_length block_count context_length \
        attention.head_count attention.layer_norm_rms_epsilon rope.freq_base; do
        refused "del kv['$A.$k']" "$A.$k: must be"
        refused "kv['$A.$k'] = [8, 'x']" "$A.$k: must be"
        refused "kv['$A.$k'] = [9, (4, [1, 2, 3])]" \
            "$A.$k: 1, 2, 3: must have an integer for each of block_count layers"
        [ $k = block_count ] ||
            refused "kv['$A.$k'] = [9, (4, [1, 2])]" "$A.$k: 1, 2: differs between layers"
        refused "kv['$A.$k'] = [4, 0]" "$A.$k: must be"
    done
    refused "kv['$A.embedding_length'] = [10, 1 << 63]" "$A.embedding_length"
    refused "kv['$A.embedding_length'] = [4, 512]" "[320, 512] by its metadata"
    refused "kv['$A.block_count'] = [4, 3]" "tensor blk.2.attn_norm.weight: missing"
    refused "kv['$A.attention.head_count_kv'] = [4, 3]" "not a multiple"
    refused "kv['$A.attention.layer_norm_rms_epsilon'] = [6, float('nan')]" "not finite"
    refused "kv['$A.attention.value_length'] = [4, 32]" "value_length: 32, must equal"
    refused "kv['$A.rope.dimension_count'] = [4, 32]" "dimension_count: 32, must equal"
    refused "kv['$A.attention.sliding_window'] = [4, 32]" \
        "sliding_window: 32, but $A.attention.sliding_window_pattern is missing"
    refused "kv['$A.rope.scaling.type'] = [8, 'dynamic']" "$A.rope.scaling.type: must be"
    refused "kv['$A.rope.scaling.type'] = [8, 'yarn']" "$A.rope.scaling.factor: must be"
    moe=$GGUF/tiny-moe-Q4_K_S.gguf
    for k in expert_count expert_used_count expert_feed_forward_length; do
        changed "del kv['qwen3moe.$k']" $moe
        fails 3 "qwen3moe.$k: must be" -m "$T/bad.gguf" --prompt-ids $IDS
    done
    changed "kv['qwen3moe.expert_count'] = [4, 8]" $moe
    fails 3 "by its metadata" -m "$T/bad.gguf" --prompt-ids $IDS
    refused "kv['tokenizer.ggml.eos_token_id'] = [8, 'x']" "must be a token id"
    refused "tensors.pop(0)" "output_norm.weight: missing"
    refused "tensors[0][0] = 'other'" "output_norm.weight: missing"
    refused "tensors[0][1] = [128, 2]" "shape [2, 128] in the file, [256] by its metadata"
}

@test "windows of Qwen's GGUF files" {
    convert
    demo_as windows
    rm "$T/windows/config.json"
    python3 -c 'import json, sys
c = json.load(open("models/demo/config.json"))
n = c["num_hidden_layers"]
c["use_sliding_window"] = True
c["sliding_window"] = 4
c["layer_types"] = ["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(n)]
json.dump(c, open(sys.argv[1], "w"))' "$T/windows/config.json"
    changed "kv['qwen3.attention.sliding_window'] = [4, 4]
kv['qwen3.attention.sliding_window_pattern'] = [4, 3]" "$T/demo.gguf"
    logits() {
        q logits --exact --json --top 50 "list files with details and their sizes" -m "$1" |
            jget 'o["positions"]'
    }
    want=$(logits "$T/windows")
    [ "$(logits "$T/bad.gguf")" = "$want" ]
    [ "$(logits models/demo)" != "$want" ]
}

@test "tokenizers of other kinds, and with bad metadata" {
    K=tokenizer.ggml
    refused "kv['$K.model'][1] = b'rwkv'" '"rwkv" is not supported ("gpt2", byte-level BPE, "llama", SentencePiece, "t5", Unigram, "bert", WordPiece, and "gemma4", BPE of characters, are)'
    refused "kv['$K.model'][1] = b'llama'" "$K.scores: missing"
    refused "kv['$K.model'][1] = b'llama'; kv['$K.scores'] = [9, (6, [0.0] * 319)]" \
        "$K.scores: 319 of them, but 320"
    refused "kv['$K.model'][1] = b'llama'; kv['$K.scores'] = [9, (5, [0] * 320)]" \
        "$K.scores: must be an array of f32"
    refused "kv['$K.model'][1] = b'llama'; kv['$K.scores'] = [9, (6, [0.0] * 320)]" \
        "no token for byte 0x00"
    refused "kv['$K.model'][1] = b'llama'; kv['$K.scores'] = [9, (6, [float('nan')] * 320)]" \
        "$K.scores: token 0, \"!\": the score is"
    refused "kv['$K.model'][1] = b'llama'; kv['$K.scores'] = [9, (6, [0.0] * 320)]; del kv['$K.token_type']" \
        "$K.token_type: missing"
    refused "del kv['$K.model']" "$K.model: missing"
    refused "kv['$K.pre'][1] = b'llama-spm'" '"llama-spm" is not supported (qwen2 '
    refused "del kv['$K.pre']" "$K.pre: missing"
    refused "del kv['$K.merges']" "$K.merges: missing"
    refused "kv['$K.tokens'] = [9, (4, [1])]" "$K.tokens: must be an array of string"
    refused "kv['$K.token_type'][1][1].pop()" "$K.token_type: 319 of them, but 320"
    refused "kv['$K.token_type'][1][1][7] = 6" "token 7 has type 6, which byte-level BPE does not have"
    refused "kv['$K.token_type'][1][1][7] = 7" "token 7 has type 7"
    refused "kv['$K.token_type'][1][1][7] = -1" "token 7 has type -1"
    refused "kv['$K.tokens'][1][1][8] = kv['$K.tokens'][1][1][7]" "has two ids, 7 and 8"
    refused "kv['$K.merges'][1][1][0] = b'th'" "two spellings with a blank"
    refused "kv['$K.add_bos_token'] = [7, True]; kv['$K.bos_token_id'] = [4, 320]" \
        "$K.bos_token_id: 320, but there are 320 tokens"
    refused "kv['tokenizer.chat_template'] = [4, 1]" "chat_template: must be of type string"
    changed "[kv.pop(k) for k in list(kv) if k.startswith('$K')]"
    fails 3 "$K.tokens: missing" -m "$T/bad.gguf" hi
    q -m "$T/bad.gguf" --prompt-ids $IDS -n 2 >"$T/out"
}

@test "WordPiece: tokens and ids as in tokenizer.json" {
    K=tokenizer.ggml w=tests/golden/wordpiece/tokenizer.json
    wordpiece="import json
t = json.load(open('$w'))
by_id = [k for k, v in sorted(t['model']['vocab'].items(), key=lambda p: p[1])]
tokens = [k if k[0] == '[' and k[-1] == ']' and len(k) > 2
          else k[2:] if k[:2] == '##' and len(k) > 2 else '\\u2581' + k for k in by_id]
[kv.pop(k) for k in list(kv) if k.startswith('$K')]
kv['$K.model'] = [8, b'bert']
kv['$K.tokens'] = [9, (8, [k.encode() for k in tokens])]
kv['$K.token_type'] = [9, (5, [3] * 5 + [1] * (len(tokens) - 5))]
kv['$K.cls_token_id'] = [4, 2]; kv['$K.seperator_token_id'] = [4, 3]
kv['$K.unknown_token_id'] = [4, 1]
"
    changed "$wordpiece"
    mkdir "$T/w"
    cp $w "$T/w"
    while read -r line; do
        equal "$(q tokenize -m "$T/bad.gguf" "$line")" "$(q tokenize -m "$T/w" "$line")"
    done <<'TEXTS'
The command shows [MASK]... Ärger, don't
中文 a中b 한국어 naïve xyzzyzzy 日本語 ## ##the
TEXTS
    equal "$(q detokenize -m "$T/bad.gguf" 2 148 3)" "$(q detokenize -m "$T/w" 2 148 3)"
    refused "${wordpiece}kv['$K.cls_token_id'] = [4, 905]" "$K.cls_token_id: 905, but there are 905"
    refused "${wordpiece}kv['$K.seperator_token_id'] = [6, 1.0]" "$K.seperator_token_id: must"
    refused "${wordpiece}kv['$K.unknown_token_id'] = [4, 7000]" "$K.unknown_token_id: 7000"
    refused "${wordpiece}kv['$K.token_type'][1][1][9] = 6" \
        "token 9 has type 6, which WordPiece does not have"
    refused "${wordpiece}kv['$K.tokens'][1][1][9] = b''" "token 9 has 0 bytes"
    # without keys the ids are those of BERT
    changed "${wordpiece}[kv.pop('$K.' + k) for k in ('cls_token_id', 'seperator_token_id', 'unknown_token_id')]"
    equal "$(q tokenize -m "$T/bad.gguf" 龘)" 100
}

@test "one file of a directory or of a repository" {
    d=$T/hub/models--org--Tiny-GGUF
    mkdir -p "$d/refs" "$d/snapshots/abc"
    printf abc >"$d/refs/main"
    export HF_HUB_CACHE=$T/hub
    cp $GGUF/tiny-dense-Q2_K.gguf "$d/snapshots/abc/tiny-q2_k.gguf"
    want=$(q -m $GGUF/tiny-dense-Q2_K.gguf --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')
    for m in org/Tiny-GGUF org/Tiny-GGUF:Q2_K "$d/snapshots/abc" "$d/snapshots/abc:q2_k"; do
        [ "$(q -m "$m" --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" = "$want" ]
    done
    touch "$d/snapshots/abc/mmproj-F16.gguf"
    q -m org/Tiny-GGUF --prompt-ids $IDS -n 1 >"$T/out"
    cp $GGUF/tiny-dense-Q4_0.gguf "$d/snapshots/abc/Tiny-Q4_0.gguf"
    [ "$(q -m org/Tiny-GGUF:q4_0 --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" = \
        "$(q -m $GGUF/tiny-dense-Q4_0.gguf --prompt-ids $IDS -n 5 --json | jget 'o["tokens"]')" ]
    fails 3 "2 GGUF files: name a file" -m org/Tiny-GGUF x
    fails 3 'no GGUF file is of type "Q8_0": there are Tiny-Q4_0.gguf, tiny-q2_k.gguf' -m org/Tiny-GGUF:Q8_0 x
    fails 3 'no GGUF file is of type "_0"' -m org/Tiny-GGUF:_0 x
    fails 3 'no GGUF file is of type ""' -m org/Tiny-GGUF: x
    fails 3 "org/Other:Q8_0: no such directory" -m org/Other:Q8_0 x
    fails 3 'no GGUF file is of type "Q8_0": there are none' -m models/demo:Q8_0 x
}

@test "files that are no GGUF file, and verbs that take none" {
    fails 3 "no such file" -m "$T/missing.gguf" hi
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >"$T/x.gguf"
    fails 3 "Git LFS pointer" -m "$T/x.gguf" hi
    printf GGML >"$T/x.gguf"
    fails 3 "not a GGUF file" -m "$T/x.gguf" hi
    printf GGUF >"$T/x.bin"
    fails 3 "truncated" -m "$T/x.bin" hi
    printf hello >"$T/x.bin"
    fails 3 "not a checkpoint directory or a GGUF file" -m "$T/x.bin" hi
    head -c 200000 $GGUF/tiny-dense-Q2_K.gguf >"$T/x.gguf"
    fails 3 "incomplete download?" -m "$T/x.gguf" hi
    mkfifo "$T/fifo.gguf"
    fails 3 "is a FIFO" -m "$T/fifo.gguf" hi
    fails 3 "is a GGUF file, of which only GGUF files are made" \
        quantize -m $GGUF/tiny-dense-F16.gguf -o "$T/out"
    [ ! -e "$T/out" ]
}

@test "an architecture that does not run: what to use" {
    refused "kv['general.architecture'] = [8, 'gptoss']" \
        "\"gptoss\" is not supported (Ollama's own layout of gpt-oss): use gpt-oss-20b from Hugging Face"
    refused "kv['general.architecture'] = [8, 'gemma3n']" \
        '"gemma3n" is not supported: use Gemma 4 E2B'
}
