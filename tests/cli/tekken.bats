#!/usr/bin/env bats
# Mistral's tekken.json in place of tokenizer.json.
load helpers

setup() {
    common_setup
    mkdir "$T/m"
    python3 tests/cli/gemma.py "$T/m"
    rm "$T/m/tokenizer.json" "$T/m/tokenizer_config.json"
    cp tests/golden/tekken/tekken.json "$T/m"
    G=tests/golden/tekken/ids.jsonl
}

# same_ids MODEL: the ids of the goldens.
same_ids() {
    q tokenize --jsonl -m "$1" -i "$G" >"$T/ids"
    python3 - "$G" "$T/ids" <<'EOP'
import json, sys
want, have = ([json.loads(s)["ids"] for s in open(p)] for p in sys.argv[1:])
assert want == have and len(want) > 100
EOP
}

@test "tekken.json alone is the tokenizer, and <s> goes before a text" {
    same_ids "$T/m"
    q detokenize --jsonl -m "$T/m" -i "$G" | python3 -c 'import json, sys
texts = [json.loads(s)["text"] for s in open(sys.argv[1])]
assert texts == [json.loads(s)["text"] for s in sys.stdin]' "$G"
    equal "$(q logits --json -m "$T/m" hi | jget 'o["input_ids"][0]')" 1
    q --raw --json -n 3 -m "$T/m" hi | jget 'len(o["tokens"])'
    HOME=$T QWICK_MODEL_PATH=$T q models --json --no-speed >"$T/models" 2>/dev/null
    [[ $(<"$T/models") == *'/m"'* && $(<"$T/models") != *"no such file"* ]]
}

@test "tokenizer.json wins" {
    cp tests/golden/gemma-tokenizer/tokenizer.json "$T/m"
    equal "$(q tokenize -m "$T/m" "the")" "365 395"
}

@test "quantize: a copy, and a GGUF file with merges" {
    q quantize --bits 8 --group 32 -m "$T/m" -o "$T/q8"
    cmp "$T/q8/tekken.json" "$T/m/tekken.json"
    q quantize --format gguf --type BF16 -m "$T/m" -o "$T/m.gguf"
    same_ids "$T/m.gguf"
    q inspect -m "$T/m.gguf" >"$T/inspect"
    equal "$(q logits --json -m "$T/m.gguf" hi | jget 'o["input_ids"][0]')" 1
}

@test "a broken file is one line" {
    sed -i 's/"rank":9,/"rank":8,/' "$T/m/tekken.json"
    fails 3 "tekken.json: vocab: item 9: rank is not 9" tokenize -m "$T/m" x
}
