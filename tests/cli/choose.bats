#!/usr/bin/env bats
# qwick choose: probabilities of given answers, thresholds, lines of JSON.
load helpers

@test "a table, likeliest first, with a sum of one" {
    run -0 --separate-stderr q choose -a ls -a "ls -la" -a "ls -l" \
        "list files with details"
    [ -z "$stderr" ]
    [ "${#lines[@]}" -eq 3 ]
    [[ ${lines[0]} =~ ^ls\ -l$'\t'[01]\.[0-9]{6}$'\t'-[0-9]+\.[0-9]{6}$ ]]
    printf '%s\n' "$output" | awk -F'\t' '{ p += $2; if (NR > 1 && $2 > last)
        exit 1; last = $2 } END { exit p < 0.999998 || p > 1.000002 }'
    run -0 q choose --in-order -a ls -a "ls -la" -a "ls -l" \
        "list files with details"
    [ "$(printf '%s\n' "$output" | cut -f1)" = $'ls\nls -la\nls -l' ]
}

@test "the probabilities are those of score --chat, times that of the end" {
    printf 'ls -l' >"$T/u"
    printf '[{"role":"user","content":"list files with details"}]' |
        "$QWICK" render --think off - >"$T/prompt"
    q choose --exact --json -a "ls -l" -a ls "list files with details" >"$T/a"
    q choose --exact --no-end --json -a "ls -l" -a ls \
        "list files with details" >"$T/b"
    q score --exact --json --chat --given "list files with details" -f "$T/u" \
        >"$T/s"
    { printf '{"given":'; jq_string "$T/prompt"
      printf ',"text":"ls -l<|im_end|>"}\n'; } >"$T/in"
    q score --exact --jsonl -i "$T/in" >"$T/e"
    python3 - "$T" <<'PY'
import json, math, sys
a, b, s, e = (json.load(open(sys.argv[1] + f)) for f in ("/a", "/b", "/s", "/e"))
get = lambda o, name: next(x for x in o["answers"] if x["answer"] == name)
assert get(b, "ls -l")["logprob"] == s["logprob"]
assert get(a, "ls -l")["logprob"] == e["logprob"]
for o in a, b:
    p = [math.exp(x["logprob"]) for x in o["answers"]]
    for x, y in zip(o["answers"], p):
        assert abs(x["probability"] - y / sum(p)) < 1e-12
    assert o["answer"] == o["answers"][0]["answer"]
    assert o["probability"] == o["answers"][0]["probability"]
    assert o["prompt_tokens"] > 0 and o["model"] == "qwick-demo"
assert a["answer"] == "ls -l"
PY
}

# Print the text of a file as a JSON string.
jq_string() {
    python3 -c 'import json, sys
sys.stdout.write(json.dumps(open(sys.argv[1]).read()))' "$1"
}

@test "an answer that is the beginning of another: the end decides, with --no-end it does not" {
    run -0 q choose -a ls -a "ls -l" "list files with details"
    [[ ${lines[0]} == "ls -l"$'\t'* ]]
    run -0 q choose --no-end --json -a ls -a "ls -l" "list files with details"
    printf '%s\n' "$output" | jget '[x["logprob"] for x in o["answers"]
        if x["answer"] == "ls"] >= [x["logprob"] for x in o["answers"]
        if x["answer"] == "ls -l"]' | grep -q True
}

@test "the prompt has the same sources as in generate" {
    want=$(q choose --exact -a ls -a pwd "list files")
    [ "$(q choose --exact -a ls -a pwd -p "list files")" = "$want" ]
    [ "$(echo "list files" | "$QWICK" choose --exact -a ls -a pwd)" = "$want" ]
    echo "list files" >"$T/f"
    [ "$(q choose --exact -a ls -a pwd -f "$T/f")" = "$want" ]
    echo '[{"role":"user","content":"list files"}]' >"$T/c"
    [ "$(q choose --exact -a ls -a pwd --chat-json "$T/c")" = "$want" ]
    ids=$("$QWICK" render --think off <"$T/c" | "$QWICK" tokenize)
    [ "$(q choose --exact -a ls -a pwd --prompt-ids "$ids")" = "$want" ]
    [ "$(q choose --exact -a ls -a pwd -s "be brief" "list files")" != "$want" ]
    [ "$(q choose --exact -a " -l" -a " -a" --prefill ls "list files")" != \
        "$want" ]
    run -0 q choose --raw -a " files" -a " cats" "list"
    [[ ${lines[0]} == " files"$'\t'* ]]
    fails 2 "no prompt" choose -a ls -a pwd
}

@test "empty and repeated answers" {
    fails 2 'number 2 is the same as number 1: "ls"' choose -a ls -a ls hi
    fails 2 "the value is empty" choose -a ls -a "" hi
    run -0 q choose -a $'a\tb' -a $'c\nd' hi
    [ "${#lines[@]}" -eq 2 ]
    [[ $output == *'a\tb'$'\t'* && $output == *'c\nd'$'\t'* ]]
}

@test "exit status 10 below the threshold, the same output" {
    run -0 q choose --threshold 0.9 -a ls -a pwd "list files"
    want=$output
    run -10 --separate-stderr q choose --threshold 1 -a pwd -a ls -a "ls ." \
        "list files"
    [ -z "$stderr" ]
    [ "$output" = "$(q choose -a pwd -a ls -a "ls ." "list files")" ]
    run -0 q choose --threshold 0 -a ls -a pwd "list files"
    [ "$output" = "$want" ]
}

@test "--yes" {
    p=$(q choose --yes --json "is ls a command" | jget 'o["probability"]')
    run -0 q choose --yes "is ls a command"
    [ "$output" = "$(python3 -c "print('yes' if $p >= 0.5 else 'no')")" ]
    # the printed word and the status agree
    run q choose --yes --threshold 1 "is ls a command"
    [ "$output" = no ]
    [ "$status" -eq 10 ]
    run -0 q choose --yes --threshold 0 "is ls a command"
    [ "$output" = yes ]
    q choose --yes --json --threshold 0 --in-order "is ls a command" |
        jget 'o["answer"] == "yes" and [x["answer"] for x in o["answers"]]
            == ["yes", "no"] and o["probability"]
            == o["answers"][0]["probability"]' | grep -q True
}

@test "--jsonl: in order, errors in their place, equal to single runs" {
    cat >"$T/in" <<'J'
{"id":1,"prompt":"list files"}
{"id":2,"messages":[{"role":"user","content":"print the current directory"}]}
{"id":3,"prompt":"x","prompt_ids":[1]}
{"id":4,"prompt":7}
nothing
{"id":5,"prompt_ids":[9999999]}
{"id":6,"prompt":"list files"}
{"prompt":""}
{"id":8,"messages":[{"role":"nobody","content":"x"}]}
{"id":9,"prompt_ids":[10,11,12]}
J
    run -1 --separate-stderr "$QWICK" choose --exact -a ls -a pwd --jsonl \
        <"$T/in"
    [ -z "$stderr" ]
    printf '%s\n' "$output" >"$T/out"
    jlines 'len(o) == 10 and
        [i for i in range(10) if "error" in o[i]] == [2, 3, 4, 5, 7, 8]
        and [x.get("id") for x in o] == [1, 2, 3, 4, None, 5, 6, None, 8, 9]
        and o[0]["answer"] == "ls" and o[1]["answer"] == "pwd"
        and o[0]["answers"] == o[6]["answers"]' <"$T/out"
    python3 -c 'import json, sys
a = json.loads(sys.argv[1]); b = json.loads(open(sys.argv[2]).readline())
assert a["answers"] == b["answers"], (a, b)' \
        "$(q choose --exact -a ls -a pwd --json "list files")" "$T/out"
    echo '{"prompt":"list files"}' |
        "$QWICK" choose --exact -a ls -a pwd --jsonl -s "be brief" |
        jget 'o["answers"][0]["logprob"]' >"$T/a"
    q choose --exact -a ls -a pwd --json -s "be brief" "list files" |
        jget 'o["answers"][0]["logprob"]' >"$T/b"
    cmp "$T/a" "$T/b"
}

@test "--jsonl: lines that are no JSON, beyond the first group of records" {
    python3 -c 'for i in range(300): print("{\"prompt\":\"hi\"}\nx" if i > 250 else
        "{\"prompt\":\"hi\"}")' >"$T/in"
    run -1 --separate-stderr "$QWICK" choose --exact -a ls -a pwd --jsonl <"$T/in"
    [ -z "$stderr" ]
    [ "${#lines[@]}" -eq 349 ]
    [ "$(sort -u <<<"$output" | grep -vc '"error":')" -eq 1 ]
}

@test "--jsonl: many prompts with a long beginning in common" {
    for i in $(seq 120); do echo "notes on file $i are here"; done >"$T/notes"
    head -c 1200 "$T/notes" >"$T/before"
    for i in $(seq 40); do echo "{\"prompt\":\"remove file $i\"}"; done >"$T/in"
    "$QWICK" choose --exact --jsonl -f "$T/before" -a ls -a "rm file" <"$T/in" \
        >"$T/out"
    [ "$(wc -l <"$T/out")" -eq 40 ]
    q choose --exact --json -f "$T/before" -a ls -a "rm file" "remove file 17" |
        jget 'o["answers"]' >"$T/one"
    sed -n 17p "$T/out" | jget 'o["answers"]' | cmp - "$T/one"
}

@test "prompts and answers that do not fit the context" {
    fails 4 "do not fit the context" choose -c 8 -a ls -a pwd \
        "list all of the files in this directory"
    long=$(for i in $(seq 900); do printf 'list file %s ' "$i"; done)
    fails 4 "do not fit the context" choose -a ls -a pwd "$long"
    run -0 q choose --overflow middle -a ls -a pwd "$long"
    printf '%s\n' "{\"prompt\":\"$long\"}" '{"prompt":"list files"}' >"$T/in"
    run -1 "$QWICK" choose --jsonl -a ls -a pwd <"$T/in"
    printf '%s\n' "$output" |
        jlines '"do not fit" in o[0]["error"] and o[1]["answer"] == "ls"'
}

@test "the reply ends with the token that the chat template writes" {
    printf '%s' "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|endoftext|>{% endfor %}" \
        "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}" >"$T/other.jinja"
    export QWICK_MODEL=./models/demo
    got=$(q choose --exact --chat-template "$T/other.jinja" -a ls -a pwd "list files")
    # with --raw, <|endoftext|> ends the reply
    [ "$got" = "$(q choose --exact --raw -a ls -a pwd \
        "<|im_start|>user list files<|endoftext|><|im_start|>assistant ")" ]
    [ "$got" != "$(q choose --exact --no-end --chat-template "$T/other.jinja" -a ls -a pwd "list files")" ]
}

@test "an open think block is closed, with the tags that the model has" {
    cp -r models/demo "$T/other"
    sed -i 's|"<think>"|"[THINK]"|; s|"</think>"|"[/THINK]"|' \
        "$T/other/tokenizer.json" "$T/other/tokenizer_config.json"
    printf '%s' "{% for m in messages %}<|im_start|>{{ m.role }}" \
        "{{ '\n' ~ m.content }}<|im_end|>{{ '\n' }}{% endfor %}" \
        "<|im_start|>assistant{{ '\n' }}" >"$T/closed.jinja"
    cp "$T/closed.jinja" "$T/open.jinja"
    cp "$T/closed.jinja" "$T/open2.jinja"
    printf '%s' "<think>{{ '\n\n' }}</think>{{ '\n\n' }}" >>"$T/closed.jinja"
    printf '%s' "<think>{{ '\n' }}" >>"$T/open.jinja"
    printf '%s' "[THINK]{{ '\n' }}" >>"$T/open2.jinja"
    echo '{"prompt":"list files"}' >"$T/in"
    want=$(q choose --exact -m models/demo --chat-template "$T/closed.jinja" \
        -a ls -a pwd "list files")
    for m in models/demo:open "$T/other:open2"; do
        template=$T/${m##*:}.jinja
        [ "$(q choose --exact -m "${m%:*}" --chat-template "$template" \
            -a ls -a pwd "list files")" = "$want" ]
        "$QWICK" choose --exact -m "${m%:*}" --chat-template "$template" --jsonl \
            -a ls -a pwd <"$T/in" >"$T/out-${m##*:}"
    done
    python3 - "$T/out-open" "$T/out-open2" <<'PY'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["answers"] == b["answers"]
PY
    # ids end in a think block by the same tags
    for m in models/demo "$T/other"; do
        q -m "$m" --prompt-ids 6136,885,198,6142,198 -n 4 --ignore-eos \
            --json >"$T/answer"
        python3 - "$T/answer" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
assert o["text"] == "" and o["thinking"]
PY
    done
}
