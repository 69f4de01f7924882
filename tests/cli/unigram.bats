#!/usr/bin/env bats
# Tokenizers of type Unigram, from tokenizer.json and from GGUF files.
load helpers

G=tests/golden/unigram

setup() {
    common_setup
    cp -r models/demo "$T/m"
    rm "$T/m/tokenizer_config.json"
    cp $G/tokenizer.json "$T/m"
}

# lines VARIANT [TEXT]: the goldens of a variant, without those that have the text.
lines() {
    python3 -c 'import json, sys
for line in open(sys.argv[1]):
    o = json.loads(line)
    if o["variant"] == sys.argv[2] and sys.argv[3] not in o["text"]:
        print(line, end="")' $G/ids.jsonl "$1" "${2:-no such text}" >"$T/golden"
}

# same_ids MODEL: the ids of $T/golden.
same_ids() {
    q tokenize --jsonl -m "$1" -i "$T/golden" >"$T/ids"
    python3 - "$T/golden" "$T/ids" <<'EOP'
import json, sys
want, have = ([json.loads(s)["ids"] for s in open(p)] for p in sys.argv[1:])
assert want == have and len(want) > 25
EOP
}

@test "tokenize, count and detokenize" {
    lines bge-m3
    same_ids "$T/m"
    equal "$(q count -m "$T/m" "the command")" \
        "$(q tokenize -m "$T/m" "the command" | wc -w)"
    q detokenize --jsonl -m "$T/m" -i "$T/golden" | python3 -c 'import json, sys
want = [json.loads(s)["decoded"] for s in open(sys.argv[1])]
assert want == [json.loads(s)["text"] for s in sys.stdin]' "$T/golden"
}

@test "a GGUF file has the same ids" {
    python3 tests/cli/gguf.py convert models/demo "$T/demo.gguf"
    gguf_edit "$T/demo.gguf" "$T/t5.gguf" "
import base64, json
f = json.load(open('$G/tokenizer.json'))
vocab, k = f['model']['vocab'], 'tokenizer.ggml.'
rows = len(kv[k + 'tokens'][1][1])
pad = [('[PAD%d]' % i, -10000) for i in range(len(vocab), rows)]
types = [3, 3, 3, 2] + [1] * (len(vocab) - 5) + [3] + [5] * len(pad)
charsmap = base64.b64decode(f['normalizer']['normalizers'][0]['precompiled_charsmap'])
for name in [n for n in kv if n.startswith(k)]:
    del kv[name]
kv[k + 'model'] = [8, b't5']
kv[k + 'tokens'] = [9, (8, [p.encode() for p, _ in vocab + pad])]
kv[k + 'scores'] = [9, (6, [s for _, s in vocab + pad])]
kv[k + 'token_type'] = [9, (5, types)]
kv[k + 'precompiled_charsmap'] = [9, (0, list(charsmap))]
kv[k + 'add_space_prefix'] = [7, True]
kv[k + 'remove_extra_whitespaces'] = [7, True]
kv[k + 'add_bos_token'] = [7, True]
kv[k + 'bos_token_id'] = [4, 0]
kv[k + 'eos_token_id'] = [4, 2]"
    lines xlm-roberta "<mask>"
    same_ids "$T/t5.gguf"
    gguf_edit "$T/t5.gguf" "$T/bad.gguf" \
        "kv['tokenizer.ggml.precompiled_charsmap'] = [9, (0, [1, 2, 3, 4, 5])]"
    fails 3 "tokenizer.ggml.precompiled_charsmap: a trie of" tokenize -m "$T/bad.gguf" x
    gguf_edit "$T/t5.gguf" "$T/bad.gguf" \
        "kv['tokenizer.ggml.precompiled_charsmap'] = [9, (5, [1, 2])]"
    fails 3 "tokenizer.ggml.precompiled_charsmap" tokenize -m "$T/bad.gguf" x
    gguf_edit "$T/t5.gguf" "$T/bad.gguf" "kv['tokenizer.ggml.unknown_token_id'] = [4, 1 << 20]"
    fails 3 "tokenizer.ggml.unknown_token_id: 1048576" tokenize -m "$T/bad.gguf" x
    gguf_edit "$T/t5.gguf" "$T/bad.gguf" "kv['tokenizer.ggml.scores'][1][1][9] = float('nan')"
    fails 3 "the score is" tokenize -m "$T/bad.gguf" x
}

@test "SentencePiece's own file alone is refused, with what to do" {
    for name in sentencepiece.bpe.model spiece.model tokenizer.model; do
        rm -f "$T"/m/*.model "$T/m/tokenizer.json"
        echo x >"$T/m/$name"
        fails 3 "$name alone is not supported: let transformers write tokenizer.json" \
            tokenize -m "$T/m" x
    done
    rm "$T/m/tokenizer.model"
    fails 3 "tokenizer.json: no such file, so that only token ids can be used" \
        tokenize -m "$T/m" x
}

@test "quantize to GGUF is refused" {
    fails 3 "Unigram" quantize --format gguf --type BF16 -m "$T/m" -o "$T/out.gguf"
    [ ! -e "$T/out.gguf" ]
}
