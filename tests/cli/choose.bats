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

@test "--jsonl: the tools beside messages are in the prompt" {
    local messages='"messages":[{"role":"user","content":"list files"}]'
    printf '%s\n' "{$messages}" \
        "{$messages,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]}" |
        "$QWICK" choose --exact -a ls -a pwd --jsonl |
        jlines 'len(o) == 2 and o[0]["answers"] != o[1]["answers"]'
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

# label PROMPT: the label and the probability that one prompt gives.
label() {
    q choose --exact -a ls -a pwd "$1" | head -n 1 | cut -f 1,2
}

@test "--lines: labels in the places of the lines, as single prompts have them" {
    printf '\357\273\277list files\r\n\n \t\nwhere\tam I? \\x\nprint the directory' >"$T/in"
    run -0 --separate-stderr q choose --exact --lines -a ls -a pwd -i "$T/in"
    [ -z "$stderr" ]
    printf '%s\n\t\n\t\n%s\n%s\n' "$(label "list files")" "$(label $'where\tam I? \\x')" \
        "$(label "print the directory")" >"$T/want"
    equal "$output" "$(cat "$T/want")"
    [[ ${lines[0]} =~ ^ls$'\t'[01]\.[0-9]{6}$ ]]
    # the input behind the label, and a template, from a pipe
    run -0 bash -c '"$0" choose --exact --lines -a ls -a pwd --with-input \
        --prompt-template "say {x}: {}" --set x=it <"$1"' "$QWICK" "$T/in"
    equal "${lines[0]}" "$(label "say it: list files")"$'\tlist files'
    equal "${lines[3]}" "$(label $'say it: where\tam I? \\x')"$'\twhere\\tam I? \\\\x'
    equal "${lines[1]}|${lines[2]}" $'\t\t|\t\t \\t'
    # -T, the text of -f and several files
    mkdir -p "$T/config/qwick/prompts"
    printf 'system = be brief\n---\nsay {}' >"$T/config/qwick/prompts/say.txt"
    printf 'list files\n' >"$T/one"
    export XDG_CONFIG_HOME=$T/config
    run -0 q choose --exact --lines -a ls -a pwd -T say -f "$T/one" -i "$T/one" -i "$T/one"
    [ "${#lines[@]}" -eq 2 ] && [ "${lines[0]}" = "${lines[1]}" ]
    equal "${lines[0]}" "$(q choose --exact -s "be brief" -a ls -a pwd $'list files\n\nsay list files' |
        head -n 1 | cut -f 1,2)"
    # in choose for one prompt, and for records of JSON
    equal "$(q choose --exact -a ls -a pwd --prompt-template 'say {}' "list files" | head -n 1 | cut -f 1,2)" \
        "$(label "say list files")"
    echo '{"id":7,"what":"list files"}' |
        "$QWICK" choose --exact -a ls -a pwd --jsonl --prompt-template 'say {what}' |
        jlines 'o[0]["id"] == 7 and "%.6f" % o[0]["probability"] == "'"$(label "say list files" | cut -f 2)"'"'
}

@test "--lines: thresholds, bad records, exit statuses" {
    printf 'list files\n\nshow "a", b\n' >"$T/in"
    p=$(q choose --lines -a ls -a pwd -i "$T/in" | sed -n 3p | cut -f 2)
    [[ $p == 0.* ]]
    run -10 --separate-stderr q choose --lines -a ls -a pwd --threshold 0.99999 -i "$T/in"
    [ -z "$stderr" ]
    equal "${lines[0]%%$'\t'*}|${lines[2]}" $'ls|\t'"$p"
    run -0 q choose --lines -a ls -a pwd --threshold 0 -i "$T/in"
    # a record that does not fit: status 1, though another label is below the threshold
    long=$(printf 'list file %.0s' {1..3000})
    printf 'list files\n%s\nshow "a", b\n' "$long" >"$T/bad"
    run -1 --separate-stderr q choose --lines -a ls -a pwd --threshold 0.99999 -i "$T/bad"
    equal "${lines[1]}|${lines[2]}" $'\t|\t'"$p"
    [[ $stderr == *"$T/bad: line 2: prompt: "*"do not fit the context"* ]]
    [[ $stderr == *"1 record has no label" ]]
    # --yes: no is a label; a threshold gives status 10
    run -0 q choose --lines --yes -i "$T/in"
    [[ ${lines[0]} =~ ^(yes|no)$'\t'[01]\.[0-9]+$ ]]
    run -10 q choose --lines --yes --threshold 1 -i "$T/in"
    [[ ${lines[0]} == no$'\t'* ]]
    # in JSON, the answer below the threshold is null
    echo '{"prompt":"show \"a\", b"}' >"$T/json"
    run -10 q choose --jsonl -a ls -a pwd --threshold 0.99999 -i "$T/json"
    echo "$output" | jlines 'o[0]["answer"] is None and o[0]["probability"] < 0.99999'
    # errors are counted
    for _ in {1..30}; do echo "$long"; done >"$T/bad"
    run -1 --separate-stderr q choose --lines -a ls -a pwd -i "$T/bad"
    [ "$(grep -c ': line ' <<<"$stderr")" -eq 20 ]
    [[ $stderr == *"30 records have no labels" ]]
    fails 2 "has no records" choose --lines -a ls -a pwd -i /dev/null
    fails 2 "--prompt-template: has no {} for the lines" choose --lines -a ls -a pwd \
        --prompt-template x -i "$T/in" -m "$T/none"
    fails 2 '--prompt-template "... {}" asks about each' choose --lines -a ls -a pwd \
        -i "$T/in" "what is {}?"
    fails 2 "standard input has the records" choose --lines -a ls -a pwd -f -
}

@test "--lines: a label comes when its line does, beyond a group as well" {
    {
        echo "list files"
        until [ -s "$T/out" ]; do sleep 0.05; done
        cp "$T/out" "$T/first"
        for _ in {1..300}; do echo "list files"; done
    } | "$QWICK" choose --exact --lines -a ls -a pwd >"$T/out"
    [ "$(wc -l <"$T/first")" -eq 1 ]
    [ "$(wc -l <"$T/out")" -eq 301 ]
    [ "$(sort -u "$T/out" | wc -l)" -eq 1 ]
}

@test "--csv: the columns of the input and the label, as CSV readers take it" {
    printf '\357\273\277id,what,"first, name"\r\n7,"list ""files""\r\n, all",Ann\r\n\r\n"x,y",show,\r\n1,2\r\n1,2,3,4\r\n"3"x,1,2\r\n6,"open\n' >"$T/in"
    run -1 --separate-stderr q choose --exact --input-format csv -a ls -a pwd --csv -i "$T/in" \
        --prompt-template 'do {what} {first, name}'
    printf '%s\n' "$output" >"$T/out"
    python3 - "$T/out" "$T/in" <<'PY'
import csv, re, sys
rows = list(csv.reader(open(sys.argv[1], newline=""), strict=True))
assert rows[0] == ["id", "what", "first, name", "answer", "probability", "error"]
assert [r[:3] for r in rows[1:]] == [
    ["7", 'list "files"\r\n, all', "Ann"], ["x,y", "show", ""], ["1", "2", ""], ["1", "2", "3"],
    ["", "", ""], ["", "", ""]], rows
for r in rows[1:3]:
    assert r[3] in ("ls", "pwd") and re.fullmatch(r"[01]\.\d{6}", r[4]) and not r[5], r
errors = [r[5] for r in rows[3:]]
assert errors == [sys.argv[2] + ": line %d: record: " % n + what for n, what in (
    (6, "has 2 fields, the header has 3"), (7, "has 4 fields, the header has 3"),
    (8, "column 1: has text after the closing quote"),
    (9, "column 2: has no closing quote"))], errors
assert all(r[3:5] == ["", ""] for r in rows[3:])
PY
    # its own output is an input again, but for the names of the columns
    fails 2 "$T/out: has a column \"answer\" already, which --csv would add; rename it" \
        choose --input-format csv -a ls -a pwd --csv -i "$T/out" --prompt-template '{what}' -m "$T/none"
    sed -i '1s/answer,probability,error/a,b,c/' "$T/out"
    q choose --input-format csv -a ls -a pwd --csv -i "$T/out" --prompt-template 'x{id}' >"$T/again"
    [[ $(head -n 1 "$T/again") == 'id,what,"first, name",a,b,c,answer,probability,error' ]]
    # tab separated in and out, and CSV of lines and of JSON
    printf 'what\tn\nlist "files"\t1\n' >"$T/tsv"
    equal "$(q choose --exact --input-format tsv -a ls -a pwd --with-input -i "$T/tsv" --prompt-template '{what}')" \
        "$(label 'list "files"')"$'\tlist "files"\t1'
    printf 'list files\n\n' >"$T/l"
    equal "$(q choose --exact --lines -a ls -a pwd --csv -i "$T/l")" \
        $'input,answer,probability,error\nlist files,'"$(label "list files" | tr '\t' ,)"$',\n,,,'
    printf '{"id":"a,b","prompt":"list files"}\n{"id":2}\nx\n' >"$T/json"
    run -1 q choose --exact --jsonl -a ls -a pwd --csv -i "$T/json"
    equal "${lines[0]}|${lines[1]}" "id,answer,probability,error|\"a,b\",$(label "list files" | tr '\t' ,),"
    [[ ${lines[2]} == 2,,,*'not one of'* && ${lines[3]} == ,,,*'line 3: '* ]]
    # below the threshold
    run -10 q choose --lines -a ls -a pwd --csv --threshold 1 -i "$T/l"
    [[ ${lines[1]} =~ ^list\ files,,[01]\.[0-9]+,$ ]]
    fails 2 "--input: one file only with --input-format csv" choose --input-format csv -a ls -a pwd \
        -i "$T/in" -i "$T/in"
    fails 2 '{x} is no column of' choose --input-format csv -a ls -a pwd -i "$T/in" \
        --prompt-template '{x}' -m "$T/none"
}
