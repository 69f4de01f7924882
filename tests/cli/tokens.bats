#!/usr/bin/env bats
# tokenize, detokenize, count, render.
load helpers

@test "tokenize: argument, file, stdin; ids on one line" {
    want=$(q tokenize "list files")
    [[ $want =~ ^[0-9]+(\ [0-9]+)*$ ]]
    printf 'list files' >"$T/f"
    [ "$(q tokenize -f "$T/f")" = "$want" ]
    [ "$("$QWICK" tokenize <"$T/f")" = "$want" ]
    [ "$("$QWICK" tokenize - <"$T/f")" = "$want" ]
    [ "$("$QWICK" tokenize -f - <"$T/f")" = "$want" ]
    [ "$(q tokenize --json "list files" | jget '" ".join(map(str, o["ids"]))')" = "$want" ]
    [ "$(q tokenize "")" = "" ]
    [ "$(q tokenize "" | wc -l)" -eq 1 ]
    run -2 closed tokenize
    run -2 "$QWICK" tokenize </
    fails 1 "$T/none" tokenize -f "$T/none"
}

@test "bytes come back unchanged" {
    python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 3 +
        "äöü 😀 \r\n\n".encode())' >"$T/f"
    "$QWICK" tokenize --no-special <"$T/f" | "$QWICK" detokenize | cmp - "$T/f"
    "$QWICK" tokenize --no-special <"$T/f" | tr ' ' , | "$QWICK" detokenize |
        cmp - "$T/f"
    printf 'a\0\n' | "$QWICK" tokenize | "$QWICK" detokenize | od -An -tx1 |
        grep -q '61 00 0a'
    # the final newline counts here
    [ "$(printf 'a\n' | "$QWICK" count)" -gt "$(printf 'a' | "$QWICK" count)" ]
}

@test "added tokens are recognised, unless --no-special" {
    [ "$(q tokenize "<|im_end|>")" = 6137 ]
    [ "$(q count "<|im_end|>")" = 1 ]
    [ "$(q count --no-special "<|im_end|>")" -gt 1 ]
    [ "$(q detokenize 6137)" = "<|im_end|>" ]
    [ -z "$(q detokenize --skip-special 6137)" ]
    [ "$(q count --json "<|im_end|>" | jget 'o["count"]')" = 1 ]
}

@test "tokens that only other files than tokenizer.json list" {
    copy_of models/demo m
    edit() { json_edit "$T/m/$1" "$2"; }
    same() {
        equal "$(q tokenize -m "$T/m" "$text")" "$(q tokenize "$text")"
        equal "$(q detokenize -m "$T/m" 6138 97 6143)" "$(q detokenize 6138 97 6143)"
        equal "$(q -m "$T/m" "$ask")" "$(q "$ask")"
    }
    text="a<tool_call>b</think><|im_end|>" ask="list all listening tcp ports"
    echo '{"prompt":"x"}' >"$T/in"
    q batch -m "$T/m" -n 2 -i "$T/in" -o "$T/out" 2>"$T/err"
    # added_tokens_decoder has them
    edit tokenizer.json 'del o["added_tokens"][3:]'
    same
    fails 2 "another model" batch -m "$T/m" -n 2 -i "$T/in" -o "$T/out"
    q quantize -m "$T/m" --format gguf -o "$T/q.gguf" 2>"$T/err"
    equal "$(q tokenize -m "$T/q.gguf" "$text")" "$(q tokenize "$text")"
    # added_tokens.json counts without it
    echo '{"<|im_end|>": 7}' >"$T/m/added_tokens.json"
    same
    edit tokenizer_config.json 'del o["added_tokens_decoder"]'
    fails 3 "added_tokens.json: added tokens: \"<|im_end|>\" has id 7, but 6137 in added_tokens" \
        tokenize -m "$T/m" "$text"
    edit added_tokens.json 'o = {t: 6138 + i for i, t in enumerate(("<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>", "<think>", "</think>"))}'
    same
    # and a special token with a name needs no id
    edit special_tokens_map.json 'o["additional_special_tokens"] = ["<new>"]'
    [ "$(q tokenize -m "$T/m" "<new>")" = 6144 ]
    [ -z "$(q detokenize -m "$T/m" --skip-special 6144)" ]
    run -0 --separate-stderr q -v -m "$T/m" "$ask"
    [[ $stderr == *"added tokens with ids 6144 to 6144 are text"* ]]
    # what contradicts tokenizer.json is refused
    edit tokenizer_config.json 'o["added_tokens_decoder"] = {"6137": {"content": "<other>"}}'
    for verb in tokenize generate; do
        fails 3 "tokenizer_config.json: added_tokens_decoder: id 6137 is shared by \"<|im_end|>\" and \"<other>\"" \
            $verb -m "$T/m" "$text"
    done
}

@test "detokenize: arguments, stdin, ranges" {
    [ "$(q detokenize 1 2 3)" = '"#$' ]
    [ "$(q detokenize 1,2,3)" = '"#$' ]
    [ "$(printf '1 2\n3\n' | "$QWICK" detokenize)" = '"#$' ]
    [ -z "$(q tokenize "" | "$QWICK" detokenize)" ] # no ids, on a line
    run -2 --separate-stderr bash -c "printf '' | \"\$0\" detokenize" "$QWICK"
    one_error_line
    for bad in x 1x -1 1.5 6144 2147483648 99999999999999999999; do
        run -2 --separate-stderr q detokenize -- "$bad"
        [ -z "$output" ]
    done
    q detokenize --json 1 2 3 | jget '[0][o != {"text": "\"#$", "bytes_hex": "222324"}]'
}

@test "--jsonl: one line per line, bad lines in their place" {
    printf '%s\n' '{"text":"list files"}' 'nonsense' '{"text":7}' '{}' '' \
        '[]' '{"text":"a","text":"b"}' '{"text":""}' >"$T/in"
    printf '{"text":"no newline"}' >>"$T/in"
    run --separate-stderr "$QWICK" tokenize --jsonl <"$T/in"
    [ "$status" -eq 1 ]
    printf '%s\n' "$output" | jlines \
        '[list(x) for x in o] == [["ids"]] + [["error"]] * 6 + [["ids"]] * 2'
    printf '%s\n' "$output" | jlines 'o[7]["ids"] == []'
    run -1 "$QWICK" count --jsonl <"$T/in"
    printf '%s\n' "$output" | jlines 'o[0]["count"] == 2 and o[7]["count"] == 0'
    printf '%s\r\n' '{"text":"crlf"}' | "$QWICK" tokenize --jsonl | jlines 'o[0]["ids"]'
    printf '%s\n' '{"ids":[1,2,3]}' '{"ids":[6137],"skip_special":true}' \
        '{"ids":[6137],"skip_special":false}' '{"ids":[-1]}' '{"ids":[1.5]}' \
        '{"ids":[6144]}' '{"ids":"1"}' '{"ids":[1],"skip_special":3}' \
        '{"ids":[]}' >"$T/in"
    run -1 "$QWICK" detokenize --jsonl <"$T/in"
    printf '%s\n' "$output" | jlines 'o[0] == {"text": "\"#$",
        "bytes_hex": "222324"} and o[1]["text"] == "" and
        o[2]["text"] == "<|im_end|>" and all("error" in x for x in o[3:8]) and
        o[8] == {"text": "", "bytes_hex": ""}'
    run -0 "$QWICK" tokenize --jsonl </dev/null
    [ -z "$output" ]
    run -2 closed tokenize --jsonl
    run -1 q tokenize --jsonl -i "$T/none"
}

@test "--jsonl: each line out has the id of its line in" {
    check() { # VERB LINE KEYS OF THE LINE OUT
        printf '%s\n' "$2" | "$QWICK" "$1" --jsonl >"$T/o" || [ $? -eq 1 ]
        jlines "list(o[0]) == $3 and o[0]['id'] == json.loads(r'$2')['id']" <"$T/o"
    }
    check tokenize '{"text":"ls","id":"a\"b"}' '["id", "ids"]'
    check count '{"id":7,"text":"ls"}' '["id", "count"]'
    check detokenize '{"ids":[1],"id":1.50}' '["id", "text", "bytes_hex"]'
    check render '{"id":[null],"messages":[{"role":"user","content":"a"}]}' '["id", "text"]'
    for verb in tokenize count detokenize render; do
        check $verb '{"id":"x"}' '["id", "error"]'
        [ "$(echo nonsense | "$QWICK" $verb --jsonl | jget 'list(o)')" = "['error']" ]
    done
}

@test "--jsonl answers each line before it waits for the next" {
    python3 - "$QWICK" <<'PY'
import subprocess, sys
p = subprocess.Popen([sys.argv[1], "tokenize", "--jsonl"],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for _ in range(3):
    p.stdin.write(b'{"text":"a"}\n')
    p.stdin.flush()
    assert p.stdout.readline().startswith(b'{"ids":[')
p.stdin.close()
assert p.wait(10) == 0
PY
}

@test "--jsonl: a long line, many lines" {
    python3 -c 'print("{\"text\":\"" + "ab " * 1000000 + "\"}")' |
        "$QWICK" count --jsonl | jlines 'o[0]["count"] > 1000000'
    python3 -c 'for i in range(20000): print("{\"text\":\"%d\"}" % i)' |
        "$QWICK" tokenize --jsonl | wc -l | grep -qx '20000'
}

@test "render: exact text, nothing added" {
    echo '[{"role":"user","content":"hi"}]' >"$T/c"
    printf '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n' >"$T/want"
    "$QWICK" render <"$T/c" | cmp - "$T/want"
    q render -f "$T/c" | cmp - "$T/want"
    "$QWICK" render - <"$T/c" | cmp - "$T/want"
    printf '<think>\n\n</think>\n\n' >>"$T/want"
    q render --think off -f "$T/c" | cmp - "$T/want"
    printf '<|im_start|>user\nhi<|im_end|>\n' >"$T/want"
    q render --no-generation-prompt -f "$T/c" | cmp - "$T/want"
    q render --json --no-generation-prompt -f "$T/c" | jget \
        '[0][o["text"] != "<|im_start|>user\nhi<|im_end|>\n"]'
    # members of the chat have priority
    echo '{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false}' >"$T/c"
    q render -f "$T/c" | cmp - "$T/want"
    run -2 q render
    run -2 closed render
    fails 1 "$T/none" render -f "$T/none"
    echo '{"messages": 5}' >"$T/bad"
    fails 2 "" render -f "$T/bad"
    echo '{"messages": [}' >"$T/bad"
    fails 2 "offset" render -f "$T/bad"
}

@test "render --jsonl: the goldens, and a bad line" {
    [ -f tests/golden/text/chat.jsonl ] || skip "no goldens"
    "$QWICK" render --jsonl <tests/golden/text/chat.jsonl >"$T/out"
    python3 - tests/golden/text/chat.jsonl "$T/out" <<'PY'
import json, sys
for a, b in zip(open(sys.argv[1]), open(sys.argv[2])):
    a, b = json.loads(a), json.loads(b)
    assert list(b) == ["text"] and a["text"] == b["text"], (a, b)
PY
    printf '%s\n' '[{"role":"user","content":"a"}]' 'x' \
        '{"messages":[{"role":"user","content":"b"}]}' '7' >"$T/in"
    run -1 "$QWICK" render --jsonl <"$T/in"
    printf '%s\n' "$output" | jlines \
        '[list(x)[0] for x in o] == ["text", "error", "text", "error"]'
}

@test "no weights are needed, only the tokenizer's files" {
    mkdir "$T/m"
    cp models/demo/*.json "$T/m"
    equal "$(q tokenize -m "$T/m" "list files")" "$(q tokenize "list files")"
    equal "$(q count -m "$T/m" "list files")" "$(q count "list files")"
    equal "$(q detokenize -m "$T/m" 1 2 3)" "$(q detokenize 1 2 3)"
    echo '[{"role":"user","content":"hi"}]' >"$T/c"
    equal "$(q render -m "$T/m" -f "$T/c")" "$(q render -f "$T/c")"
    run -3 --separate-stderr q -m "$T/m" hi
    one_error_line
    fails 3 "tokenizer" tokenize -m $MODELS/tied-bf16 hi
    run -3 "$QWICK" tokenize --jsonl -m $MODELS/tied-bf16 <"$T/c"
}

@test "errors name the file and the line of the chat or the ids" {
    echo '[]' >"$T/c"
    fails 2 "qwick: $T/c: messages: must hold" render -f "$T/c"
    fails 2 "qwick: $T/c: messages: must hold" --chat-json "$T/c"
    for a in "render" "--chat-json -"; do
        run -2 --separate-stderr "$QWICK" $a <"$T/c"
        one_error_line
        [[ $stderr == "qwick: standard input: messages: must hold"* ]]
    done
    run -1 "$QWICK" render --jsonl -i "$T/c"
    [[ $output == "{\"error\":\"$T/c: line 1: chat: messages: must hold"* ]]
    echo '{"ids":[99999999]}' >"$T/i"
    run -1 "$QWICK" detokenize --jsonl -i "$T/i"
    [[ $output == "{\"error\":\"$T/i: line 1: token id 99999999: "* ]]
}

@test "--jsonl: out of memory is exit 5" {
    [ "${SAN:-}" != 1 ] || skip "limits are not tested under sanitizers"
    run -5 --separate-stderr bash -c \
        'ulimit -v 100000; head -c 200000000 /dev/zero | "$0" tokenize --jsonl' \
        "$QWICK"
    [ "$stderr" = "qwick: out of memory" ]
}

@test "a long word takes no more memory than a short one" {
    [ "${SAN:-}" != 1 ] || skip "limits are not tested under sanitizers"
    head -c 20000000 /dev/zero | tr '\0' a >"$T/word"
    run -0 bash -c 'ulimit -v 400000; exec "$0" count -f "$1"' "$QWICK" "$T/word"
    [ "$output" -gt 100000 ]
}

@test "tokenize --jsonl: the ids of the chat goldens" {
    dir=${QWICK_TEST_TOKENIZER:-build/testdata/qwen3-tokenizer}
    [ -f "$dir/tokenizer.json" ] || skip "no $dir: make testdata"
    "$QWICK" tokenize --jsonl -m "$dir" <tests/golden/text/chat.jsonl >"$T/out"
    python3 - tests/golden/text/chat.jsonl "$T/out" <<'PY'
import json, sys
want, got = ([json.loads(l) for l in open(f)] for f in sys.argv[1:])
assert [w["ids"] for w in want] == [g.get("ids") for g in got]
PY
}

# A golden model, which draws all ids, with a tokenizer that lacks some of its 320 ids.
gappy_model() {
    copy_of "$MODELS/tied-bf16" m
    python3 tests/cli/byte_tokenizer.py "$T/m"
}

@test "ids without a text are never drawn" {
    gappy_model
    # their logits are not the lowest: without a tokenizer they are drawn
    local -a o=(--prompt-ids 100,101 -n 60 --json --ignore-eos --temp 2 --top-k 0 --top-p 1
        --min-p 0 --seed 1 --loop-guard 0)
    q -m "$MODELS/tied-bf16" "${o[@]}" |
        jlines 'any(260 < i < 300 or i > 304 for i in o[0]["tokens"])'
    q -m "$T/m" "${o[@]}" |
        jlines 'len(o[0]["tokens"]) == 60 and all(i <= 260 or 300 <= i <= 304 for i in o[0]["tokens"])'
}

@test "a stop id outside the vocabulary is ignored with a warning" {
    gappy_model
    local id
    for id in 320 '[300, 999]'; do
        echo "{\"eos_token_id\": $id}" >"$T/m/generation_config.json"
        run -0 --separate-stderr q -m "$T/m" --raw -n 2 --seed 1 list
        [[ $stderr == *"eos_token_id: "*" is outside the vocabulary of 320 and ignored"* ]]
    done
    echo '{"eos_token_id": 4294967296}' >"$T/m/generation_config.json"
    fails 3 "generation_config.json: eos_token_id" -m "$T/m" --raw -n 2 list
}

@test "count: several files get a line each, and a total" {
    printf 'list files' >"$T/a"
    printf 'hello, world\n' >"$T/b c"
    : >"$T/empty"
    a=$(q count -f "$T/a") b=$(q count -f "$T/b c")
    cd "$T"
    equal "$(q count -f a -f "b c")" "$a"$'\ta\n'"$b"$'\tb c\n'"$((a + b))"$'\ttotal'
    equal "$(q count --json -f a -f "b c")" \
        "{\"files\":[{\"file\":\"a\",\"count\":$a},{\"file\":\"b c\",\"count\":$b}],\"count\":$((a + b))}"
    # one file is a number, as before; files are counted apart, not joined
    equal "$(q count -f a)" "$a"
    run -0 --separate-stderr q count -f a -f empty -f a
    equal "$output" "$a"$'\ta\n0\tempty\n'"$a"$'\ta\n'"$((2 * a))"$'\ttotal'
    [[ $stderr == "qwick: warning: "*empty* ]]
    equal "$(printf 'list files' | "$QWICK" count -f - -f a | head -n 1)" "$a"$'\t-'
    # a name cannot fake a line
    cp a $'x\ny'
    equal "$(q count -f a -f $'x\ny' | sed -n 2p)" "$a"$'\t"x\\ny"'
    # one that is missing prints nothing
    run -1 --separate-stderr q count -f a -f none
    [ -z "$output" ]
}

@test "WordPiece: tokenizer.json, vocab.txt, and settings of BERT" {
    mkdir "$T/w" "$T/v"
    cp tests/golden/wordpiece/tokenizer.json "$T/w"
    python3 - "$T" <<'PY'
import json, sys
t = json.load(open(sys.argv[1] + "/w/tokenizer.json"))
by_id = sorted(t["model"]["vocab"].items(), key=lambda pair: pair[1])
open(sys.argv[1] + "/v/vocab.txt", "w").write("".join(text + "\n" for text, _ in by_id))
PY
    echo '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}' \
        >"$T/v/tokenizer_config.json"
    text="The command shows [MASK]... Ärger, don't"
    ids=$(q tokenize -m "$T/w" "$text")
    equal "$(q tokenize -m "$T/v" "$text")" "$ids"
    equal "$(q count -m "$T/w" "$text")" "$(wc -w <<<"$ids")"
    equal "$(q tokenize -m "$T/w" "${text,,}")" "${ids/ 4 / $(q tokenize -m "$T/w" "[mask]") }"
    # shellcheck disable=SC2086 # ids
    equal "$(q detokenize -m "$T/w" $ids)" "the command shows [MASK]... arger, don ' t"
    # bytes that are not UTF-8 are dropped, as U+FFFD is
    equal "$(printf 'the\xff' | "$QWICK" tokenize -m "$T/w")" "$(q tokenize -m "$T/w" the)"
    # files that cannot be read say so
    echo '{"tokenizer_class": "PhobertTokenizer"}' >"$T/v/tokenizer_config.json"
    fails 3 "PhobertTokenizer" tokenize -m "$T/v" x
}
