#!/usr/bin/env bats
# Tokenizers that put a blank before a text (Llama 2, Mistral, Phi-3): in all verbs, and as GGUF
# files. Gemma 4's tokenizer in a GGUF file.
load helpers

# Gemma's small checkpoint, with normalizer and decoder of Llama 2.
setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    mkdir "$BATS_FILE_TMPDIR/m"
    python3 tests/cli/gemma.py "$BATS_FILE_TMPDIR/m" closed
    python3 - "$BATS_FILE_TMPDIR/m/tokenizer.json" <<'EOP'
import json, sys
t = json.load(open(sys.argv[1]))
t["normalizer"] = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"}, t["normalizer"]]}
t["pre_tokenizer"] = None
t["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
json.dump(t, open(sys.argv[1], "w"))
EOP
    ./qwick quantize --format gguf --type BF16 -m "$BATS_FILE_TMPDIR/m" \
        -o "$BATS_FILE_TMPDIR/m.gguf"
}

setup() {
    common_setup
    M=$BATS_FILE_TMPDIR/m
}

@test "a blank goes before a text, and decoding drops it" {
    [ "$(q tokenize -m "$M" "the")" = 404 ]
    [ "$(q tokenize -m "$M" "the<bos>the")" = "404 2 404" ]
    equal "$(q detokenize -m "$M" 404 404; printf .)" "the the."
    equal "$(q detokenize -m "$M" 2 404; printf .)" "<bos> the."
}

@test "texts come back, also as a GGUF file" {
    python3 -c 'import json
for line in open("tests/golden/gemma-tokenizer/visible.jsonl"):
    o = json.loads(line)
    if "skip_special" not in o:
        print(json.dumps({"text": o["text"]}))' >"$T/texts"
    for m in m m.gguf; do
        q tokenize --jsonl -m "$BATS_FILE_TMPDIR/$m" -i "$T/texts" >"$T/ids.$m"
        q detokenize --jsonl -m "$BATS_FILE_TMPDIR/$m" -i "$T/ids.$m" >"$T/back.$m"
    done
    diff "$T/ids.m" "$T/ids.m.gguf"
    diff "$T/back.m" "$T/back.m.gguf"
}

@test "an answer begins without a blank, and goes on with a raw prompt or a prefill" {
    for m in m m.gguf; do
        q --json --exact -n 6 -m "$BATS_FILE_TMPDIR/$m" "the sky" >"$T/chat"
        q --raw --json --exact -n 6 -m "$BATS_FILE_TMPDIR/$m" "the sky" >"$T/raw"
        q --json --exact -n 6 --prefill "the" -m "$BATS_FILE_TMPDIR/$m" "the sky" >"$T/prefill"
        for k in chat raw prefill; do
            ids=$(jget '" ".join(map(str, o["tokens"]))' <"$T/$k")
            before=; [ $k = chat ] || before=404
            # shellcheck disable=SC2086
            q detokenize -m "$M" --skip-special $before $ids >"$T/want"
            python3 - "$T/$k" "$T/want" "$before" <<'EOP'
import json, sys
have = json.load(open(sys.argv[1]))["text"]
want = open(sys.argv[2]).read()
want = want[len("the"):] if sys.argv[3] else want
assert have == want, (have, want)
EOP
        done
    done
    # a stream has the same text
    q --jsonl --exact -n 6 -m "$M" "the sky" >"$T/stream"
    python3 - "$T/stream" "$T/chat" <<'EOP'
import json, sys
lines = [json.loads(s) for s in open(sys.argv[1])]
text = "".join(o["text"] for o in lines if o.get("type") == "token" or "id" in o)
assert text == json.load(open(sys.argv[2]))["text"], (text, lines)
EOP
}

@test "a scored text goes on with the given one" {
    units() { q score --json -m "$M" "$@" | jget '[u["text"] for u in o["units"]]'; }
    # no blank is made up, and the text's own is not lost
    equal "$(units "the sky")" "['the', ' s', 'k', 'y']"
    equal "$(units --given "a" "the sky")" "['t', 'he', ' s', 'k', 'y']"
    equal "$(units --given "a" " the sky")" "[' the', ' s', 'k', 'y']"
    for given in "" "a"; do
        run -0 q score -m "$M" --given "$given" "the sky"
        [[ $output != *"normal form"* ]]
    done
}

@test "Gemma 4's tokenizer in a GGUF file" {
    python3 - "$BATS_FILE_TMPDIR/m.gguf" "$T/g4.gguf" tests/golden/gemma-tokenizer/tokenizer.json <<'EOP'
import json, sys
sys.path.insert(0, "tests/cli")
from gguf import *
kv, tensors = read(sys.argv[1])
K = "tokenizer.ggml."
merges = json.load(open(sys.argv[3]))["model"]["merges"]
kv[K + "model"] = [STRING, "gemma4"]
kv[K + "merges"] = [ARRAY, (STRING, [" ".join(m) for m in merges])]
kv[K + "add_bos_token"] = [BOOL, False]
for k in ("pre", "scores", "add_space_prefix"):
    kv.pop(K + k, None)
write(sys.argv[2], kv, tensors)
EOP
    python3 -c 'import json
for line in open("tests/golden/gemma-tokenizer/visible.jsonl"):
    o = json.loads(line)
    if "skip_special" not in o:
        print(json.dumps({"text": o["text"], "ids": o["ids"]}))' >"$T/texts"
    q tokenize --jsonl -m "$T/g4.gguf" -i "$T/texts" >"$T/ids"
    python3 - "$T/texts" "$T/ids" <<'EOP'
import json, sys
want, have = ([json.loads(s) for s in open(p)] for p in sys.argv[1:])
assert len(want) == len(have) > 150
for w, h in zip(want, have):
    ids = h.get("tokens", h.get("ids"))
    assert ids == w["ids"], (w, h)
EOP
    # the token before a text is not optional
    equal "$(q logits --json -m "$T/g4.gguf" hi | jget 'o["input_ids"][0]')" 2
    # broken files
    edit() { python3 tests/cli/gguf.py edit "$T/g4.gguf" "$T/bad.gguf" "K = 'tokenizer.ggml.'
$1"; }
    edit 'del kv[K + "merges"]'
    fails 3 "tokenizer.ggml.merges: missing" tokenize -m "$T/bad.gguf" x
    edit 'del kv[K + "token_type"]'
    fails 3 "tokenizer.ggml.token_type: missing" tokenize -m "$T/bad.gguf" x
    edit 'kv[K + "tokens"][1][1][kv[K + "tokens"][1][1].index(b"<0x41>")] = b"<0x4141>"'
    fails 3 'no token for byte 0x41 ("<0x41>")' tokenize -m "$T/bad.gguf" x
}

@test "white space that SentencePiece would drop is refused" {
    python3 tests/cli/gguf.py edit "$BATS_FILE_TMPDIR/m.gguf" "$T/x.gguf" \
        "kv['tokenizer.ggml.remove_extra_whitespaces'] = [7, True]"
    fails 3 "tokenizer.ggml.remove_extra_whitespaces: true is not supported (false is)" \
        tokenize -m "$T/x.gguf" x
    python3 tests/cli/gguf.py edit "$BATS_FILE_TMPDIR/m.gguf" "$T/x.gguf" \
        "kv['tokenizer.ggml.remove_extra_whitespaces'] = [7, False]"
    [ "$(q tokenize -m "$T/x.gguf" the)" = 404 ]
}
