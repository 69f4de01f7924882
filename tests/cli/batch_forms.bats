#!/usr/bin/env bats
# batch: forms of input and output other than qwick's JSON lines.
load helpers

setup() {
    common_setup
    FAST=(--exact --greedy -n 5)
}

# prompt_of TEXT: tokens of the answer to a prompt, and the prompt's number.
prompt_of() {
    q --json "${FAST[@]}" "$1" | jget '(o["tokens"], o["usage"]["prompt_tokens"])'
}

# answers FILE: the same of each answer of a batch.
answers() {
    python3 - "$1" <<'PY'
import json, sys
for line in open(sys.argv[1]):
    o = json.loads(line)
    print((o["tokens"], o["usage"]["prompt_tokens"]) if "tokens" in o else o["error"])
PY
}

@test "lines: each line is a prompt, a blank line keeps its place" {
    printf '\357\273\277list files\r\n\n \t\nshow "disk" \\usage' >"$T/in"
    q batch --lines -i "$T/in" "${FAST[@]}" >"$T/a"
    q batch --input-format lines -i "$T/in" "${FAST[@]}" --prompt-template '{}' >"$T/b"
    for f in a b; do
        jlines '[x["line"] for x in o] == [1, 2, 3, 4] and
            [x.get("skipped") for x in o] == [None, True, True, None] and
            [(x["text"], x["tokens"]) for x in o[1:3]] == [("", [])] * 2' <"$T/$f"
        equal "$(answers "$T/$f" | sed -n 1p)" "$(prompt_of "list files")"
        equal "$(answers "$T/$f" | sed -n 4p)" "$(prompt_of 'show "disk" \usage')"
    done
    q batch --lines -i "$T/in" "${FAST[@]}" --prompt-template '{x}: {} {}' --set x=say >"$T/c"
    equal "$(answers "$T/c" | sed -n 1p)" "$(prompt_of "say: list files list files")"
    # a blank line is no empty answer
    printf '\n\n' | "$QWICK" batch --lines --require-answer >"$T/d"
    [ "$(wc -l <"$T/d")" -eq 2 ]
    printf 'a\n' >"$T/in"
    fails 2 "--prompt-template: has no {} for the lines" batch --lines --prompt-template x -i "$T/in"
    fails 2 "--prompt-template:1: {y} has no value" batch --lines --prompt-template '{} {y}' -i "$T/in"
    fails 2 "--lines: cannot be combined with --input-format" batch --lines --input-format csv -i "$T/in"
}

@test "--text -0: texts as they are, each with a NUL byte behind it" {
    printf '%s\n' '{"prompt":"a","regex":"a\\nb\\\\n\\n"}' '{"prompt":"list files"}' x >"$T/in"
    run -1 bash -c '"$0" batch --text -0 -n 40 --greedy -i "$1" >"$2"' \
        "$QWICK" "$T/in" "$T/null"
    run -1 bash -c '"$0" batch -n 40 --greedy -i "$1" >"$2"' \
        "$QWICK" "$T/in" "$T/json"
    python3 - "$T" <<'PY'
import json, sys
want = [json.loads(line).get("text", "") for line in open(sys.argv[1] + "/json")]
assert len(want) == 3 and want[0] == "a\nb\\n\n", want
assert open(sys.argv[1] + "/null", newline="").read() == "".join(t + "\0" for t in want)
PY
    # an answer with a NUL would be two
    printf '%s\n' '{"prompt":"x","choices":["a\u0000b"]}' '{"prompt":"x","choices":["c"]}' >"$T/in"
    run -1 bash -c '"$0" batch --text -0 -i "$1" >"$2"' "$QWICK" "$T/in" "$T/out"
    [[ $output == *"line 1: "*"has a NUL"* ]]
    equal "$(tr '\0' '|' <"$T/out")" "|c|"
    fails 2 "--null: has no effect without --text" batch -0 -i "$T/in"
}

@test "--text: one answer per line, in any form of the input" {
    # an answer of several lines, with a backslash and a carriage return
    cat >"$T/in" <<'END'
{"prompt":"a","regex":"x\\ny\\r\\\\\\n\\n"}

{"prompt":"b","regex":"é"}
{"prompt":1}
{"prompt":"c","n":2}
{"prompt":"d","tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}
{"prompt":"e","regex":"last"}
END
    run -1 --separate-stderr q batch --text -i "$T/in" --greedy
    printf 'x\\ny\\r\\\\\\n\né\n\n\n\nlast\n' >"$T/want"
    printf '%s\n' "$output" >"$T/got"
    diff "$T/want" "$T/got"
    # what the lines have no place for
    [[ $stderr == *"$T/in: line 4: record: prompt: must be a string"* ]]
    [[ $stderr == *"$T/in: line 5: record: n: must be 1 for texts"* ]]
    [[ $stderr == *"$T/in: line 6: record: tools: calls have no place in texts"* ]]
    [[ $stderr == *"$T/in: 3 answers are errors"* ]]
    # the bytes can be had back
    [ "$(printf '%b' "$(head -n 1 "$T/got")" | od -An -c)" = "$(printf 'x\ny\r\\\n' | od -An -c)" ]
    # many errors are counted
    for _ in {1..30}; do echo x; done >"$T/in"
    run -1 --separate-stderr q batch --text -i "$T/in"
    [ "$(grep -c ': line ' <<<"$stderr")" -eq 20 ]
    [[ $stderr == *"30 answers are errors"* ]]
    printf 'list files\n\nshow\n' >"$T/in"
    run -0 --separate-stderr bash -c '"$0" batch --lines --text --greedy <"$1"' "$QWICK" "$T/in"
    [ "${lines[0]}" = ls ] && [ "$(wc -l <<<"$output")" -ge 1 ]
    run -1 --separate-stderr q batch --lines --text -x --greedy -i "$T/in" -n 9
    [[ $stderr == *"no complete code block"* ]]
    fails 2 "--text: cannot be combined with --output" batch --text -i "$T/in" -o "$T/out"
    fails 2 "--text: cannot be combined with --unordered" batch --text -i "$T/in" --unordered
    fails 2 "--logprobs: has no effect with --text" batch --text -i "$T/in" --logprobs 1
    [ ! -e "$T/out" ]
}

@test "tables: columns by name, quotes, line numbers, ids" {
    printf '\357\273\277id,what,"first name"\r\n7,"list ""files""\r\n, all",Ann\r\n\r\n"x,y",show,\r\n' >"$T/in"
    q batch --input-format csv -i "$T/in" "${FAST[@]}" \
        --prompt-template '{what} {a}{first name}' --set a=- >"$T/out"
    jlines '[(x["line"], x["id"]) for x in o] == [(2, "7"), (5, "x,y")]' <"$T/out"
    equal "$(answers "$T/out" | sed -n 1p)" "$(prompt_of $'list "files"\r\n, all -Ann')"
    equal "$(answers "$T/out" | sed -n 2p)" "$(prompt_of "show -")"
    # the column "prompt" is {}, and the prompt without a template
    printf 'x\tprompt\n1\t5" {x} disk\n' >"$T/in"
    q batch --input-format tsv -i "$T/in" "${FAST[@]}" >"$T/out"
    equal "$(answers "$T/out")" "$(prompt_of '5" {x} disk')"
    q batch --input-format tsv -i "$T/in" "${FAST[@]}" --prompt-template '{x}{}' >"$T/out"
    equal "$(answers "$T/out")" "$(prompt_of '15" {x} disk')"
    # a column with a name of any kind
    printf '"price ($)",{a}\n3,4\n' >"$T/in"
    q batch --input-format csv -i "$T/in" "${FAST[@]}" --prompt-template 'it is {price ($)}' >"$T/out"
    equal "$(answers "$T/out")" "$(prompt_of 'it is 3')"
    # a pipe that comes byte by byte, with a record across lines
    { printf 'prompt\n"lis'; sleep 0.2; printf 't\nfil'; sleep 0.2; printf 'es"\n'; } |
        "$QWICK" batch --input-format csv "${FAST[@]}" >"$T/out"
    equal "$(answers "$T/out")" "$(prompt_of $'list\nfiles')"
}

@test "tables: bad records are errors in their places" {
    cat >"$T/in" <<'END'
id,prompt
1,a,b
2
"3"x,y
4,y"z
5,
6,list files
7,"open
8,a
END
    run -1 --separate-stderr q batch --input-format csv -i "$T/in" "${FAST[@]}"
    echo "$output" | jlines '[(x["line"], x.get("error", "")) for x in o] == [
        (2, "record: has 3 fields, the header has 2"),
        (3, "record: has 1 fields, the header has 2"),
        (4, "record: column 1: has text after the closing quote"),
        (5, "record: column 2: has a quote, so that the whole field needs quotes"),
        (6, "record: prompt: is empty"), (7, ""),
        (8, "record: column 2: has no closing quote")] and o[4]["id"] == "5"'
}

@test "tables: faults of the header and of the template, before any work" {
    check() { # CONTENT TEMPLATE MESSAGE
        printf "$1" >"$T/in"
        fails 2 "$3" batch --input-format csv -i "$T/in" --prompt-template "$2" -o "$T/out" -m "$T/none"
        [ ! -e "$T/out" ]
    }
    check '' '{a}' "$T/in: is empty; its first line must name the columns"
    check 'a,b c\n' '\n{x}' '{x} is no column of '"$T"'/in; there are: "a", "b c"'
    check 'a,b\n' '{}' '{} is no column of '"$T"'/in, since none is named prompt'
    check 'a,b\n' 'x' "--prompt-template: has no column of $T/in"
    check 'a,b,a\n' '{a}' "$T/in: columns 1 and 3 have the same name, a"
    check '"a\n' '{a}' "$T/in: line 1: column 1: has no closing quote"
    check 'a"\n' '{a}' "$T/in: line 1: column 1: has a quote"
    printf 'a,b,b\n1,2,3\n' >"$T/in"
    fails 2 'has no column "prompt", so that --prompt-template or -T must name columns; there are: "a"' \
        batch --input-format csv -i "$T/in"
    fails 2 "--set a: is a column of $T/in" batch --input-format csv -i "$T/in" \
        --prompt-template '{a}' --set a=1
    # a name that the template does not use may be there twice
    q batch --input-format csv -i "$T/in" --prompt-template '{a}' -n 1 -q >/dev/null
}

@test "-o continues lines and tables" {
    printf 'list files\n\nshow disk usage\nprint date\n' >"$T/lines"
    printf 'q\n"list\nfiles"\nshow\n"print"x\n' >"$T/csv"
    for form in lines csv; do
        run q batch --input-format $form -i "$T/$form" "${FAST[@]}" -o "$T/$form.out" --prompt-template \
            "$([ $form = csv ] && echo 'a {q}' || echo 'a {}')"
        cp "$T/$form.out" "$T/$form.whole"
        for n in 1 2; do
            head -n $n "$T/$form.whole" >"$T/$form.out"
            [ $n = 2 ] && sed -n 3p "$T/$form.whole" | head -c 30 >>"$T/$form.out"
            run q batch --input-format $form -i "$T/$form" "${FAST[@]}" -o "$T/$form.out" --prompt-template \
                "$([ $form = csv ] && echo 'a {q}' || echo 'a {}')"
            python3 - "$T/$form.out" "$T/$form.whole" <<'PY'
import json, sys
def load(name):
    rows = [json.loads(l) for l in open(name)]
    for r in rows:
        r.pop("timing", 0), r.get("usage", {}).pop("cached_tokens", 0), r.pop("seed", 0)
    return rows
a, b = map(load, sys.argv[1:])
assert a == b and len(a) >= 3, (a, b)
PY
        done
    done
    # another template is another prompt
    fails 2 "belongs to another prompt" batch --lines -i "$T/lines" "${FAST[@]}" \
        -o "$T/lines.out" --prompt-template 'b {}'
    # so is a line that has become blank
    sed -i '1s/.*//' "$T/lines"
    cp "$T/lines.out" "$T/before"
    fails 2 "answer to line 1 belongs to another prompt" batch --lines -i "$T/lines" "${FAST[@]}" \
        -o "$T/lines.out"
    cmp "$T/before" "$T/lines.out"
    # the same prompts as JSON lines have the same keys
    printf '{"prompt":"a list files"}\n' >"$T/json"
    head -n 1 "$T/lines.whole" >"$T/json.out"
    q batch -i "$T/json" "${FAST[@]}" -o "$T/json.out"
    [ "$(wc -l <"$T/json.out")" -eq 1 ]
}

@test "--csv: the columns of the input and the answer, as CSV readers take it" {
    printf '\357\273\277id,what,"first, name"\r\n7,"list ""files""\r\n, all",Ann\r\n\r\n"x,y",show,\r\n1,2\r\n1,2,3,4\r\n"3"x,1,2\r\n6,"open\n' >"$T/in"
    run -1 --separate-stderr q batch --greedy --input-format csv --csv -i "$T/in" \
        --regex 'a\n"b", *' --prompt-template 'do {what} {first, name}'
    [[ $stderr == *"4 answers are errors"* ]]
    printf '%s\n' "$output" >"$T/out"
    python3 - "$T/out" <<'PY'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline=""), strict=True))
assert rows[0] == ["id", "what", "first, name", "answer", "finish_reason", "error"]
assert [r[:3] for r in rows[1:]] == [
    ["7", 'list "files"\r\n, all', "Ann"], ["x,y", "show", ""], ["1", "2", ""], ["1", "2", "3"],
    ["", "", ""], ["", "", ""]], rows
assert all(r[3].startswith('a\n"b",') and r[4:] == ["stop", ""] for r in rows[1:3]), rows
assert [r[3:] for r in rows[3:]] == [["", "", "line %d: record: " % n + what] for n, what in (
    (6, "has 2 fields, the header has 3"), (7, "has 4 fields, the header has 3"),
    (8, "column 1: has text after the closing quote"),
    (9, "column 2: has no closing quote"))], rows
PY
    # answers are those of JSON lines, in the order of the input
    for i in {1..40}; do echo "list files $((i * 7919 % 50))"; done >"$T/lines"
    q batch --lines -i "$T/lines" "${FAST[@]}" --think off >"$T/json"
    q batch --lines -i "$T/lines" "${FAST[@]}" --think off --csv -o - >"$T/out"
    python3 - "$T/out" "$T/json" "$T/lines" <<'PY'
import csv, json, sys
rows = list(csv.reader(open(sys.argv[1], newline=""), strict=True))
assert rows.pop(0) == ["input", "answer", "finish_reason", "error"]
want = [json.loads(l) for l in open(sys.argv[2])]
assert rows == [[line, o["text"], o["finish_reason"], ""]
                for o, line in zip(want, open(sys.argv[3]).read().split("\n"))]
PY
    # blank lines, records of JSON, code blocks
    printf '\nlist files\n' >"$T/l"
    run -0 q batch --lines --csv -i "$T/l" --regex x
    equal "$output" $'input,answer,finish_reason,error\n,,,\nlist files,x,stop,'
    printf '%s\n' '{"id":"a,b","prompt":"c","regex":"```\\nx\\n```"}' '{"id":2,"prompt":"c","n":2}' x >"$T/j"
    run -1 q batch --csv -x -i "$T/j"
    equal "${lines[0]}|${lines[1]}|${lines[2]}" 'id,answer,finish_reason,error|"a,b","x|",stop,'
    [[ ${lines[3]} == '2,,,line 2: record: n: must be 1 for CSV' && ${lines[4]} == ',,,line 3: '* ]]
    # refused by name
    fails 2 "--csv: cannot be combined with --output: a run could not be continued" batch --csv -o "$T/o"
    [ ! -e "$T/o" ]
    fails 2 "--csv: cannot be combined with --unordered" batch --csv --unordered
    fails 2 "--text: cannot be combined with --csv" batch --csv --text
    fails 2 "--tools: has no effect with --csv" batch --csv --tools x
    for name in answer finish_reason error; do
        printf 'a,%s\n1,2\n' $name >"$T/clash"
        fails 2 "has a column \"$name\" already, which --csv would add" batch --csv \
            --input-format csv -i "$T/clash" --prompt-template '{a}' -m "$T/none"
    done
    request a >"$T/openai"
    fails 2 "--csv: has no effect in OpenAI's batch format" batch --csv -i "$T/openai"
}

# request ID BODY: a line of OpenAI's format.
request() {
    printf '{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"list files"}]%s}}\n' \
        "$1" "${2:+,$2}"
}

@test "OpenAI's format: answers as its clients read them, equal bytes each time" {
    {
        request 'a\"' '"model":"qwick-demo","max_tokens":5,"seed":1,"temperature":2,"user":"u","n":1'
        request b '"max_completion_tokens":14,"logprobs":true,"top_logprobs":2,"stop":null'
        request c '"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"enum":[12]}}}'
        request d '"logprobs":true,"max_tokens":14,"chat_template_kwargs":{"enable_thinking":false}'
        request e '"max_tokens":900,"stop":["s"]'
    } >"$T/in"
    q batch -i "$T/in" -o "$T/a" --exact
    q batch -i "$T/in" --exact >"$T/b"
    cmp "$T/a" "$T/b"
    q batch --input-format openai -i "$T/in" --exact >"$T/c"
    cmp "$T/a" "$T/c"
    q --json --exact --seed 1 --temp 2 -n 5 "list files" >"$T/g"
    python3 - "$T/a" "$T/g" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
g = json.load(open(sys.argv[2]))
assert [r["custom_id"] for r in rows] == ['a"', "b", "c", "d", "e"]
assert len({r["id"] for r in rows}) == 5
for r in rows:
    assert list(r) == ["id", "custom_id", "response", "error"] and r["error"] is None
    assert list(r["response"]) == ["status_code", "request_id", "body"]
    assert r["response"]["status_code"] == 200
    b = r["response"]["body"]
    assert list(b) == ["id", "object", "created", "model", "choices", "usage"], b
    assert (b["object"], b["created"], b["model"]) == ("chat.completion", 0, "qwick-demo")
    assert b["usage"]["total_tokens"] == b["usage"]["prompt_tokens"] + b["usage"]["completion_tokens"]
    c, = b["choices"]
    assert list(c) == ["index", "message", "logprobs", "finish_reason"] and c["index"] == 0
    assert c["message"]["role"] == "assistant"
c = [r["response"]["body"]["choices"][0] for r in rows]
assert [x["finish_reason"] for x in c] == ["length", "stop", "stop", "stop", "stop"], c
assert c[0]["message"]["content"] == g["text"]
assert [x["message"]["content"] for x in c[1:]] == ["ls", "12", "ls", "l"], c
for i, n in (1, 2), (3, 0):
    items = c[i]["logprobs"]["content"]
    text = b"".join(bytes(t["bytes"]) for t in items).decode()
    assert text.strip() == c[i]["message"]["content"].strip(), (text, c[i])
    assert all(len(t["top_logprobs"]) == n and t["logprob"] <= 0 for t in items), items
assert c[0]["logprobs"] is None
PY
    # continued, after a line that was cut off
    { head -n 2 "$T/a"; sed -n 3p "$T/a" | head -c 50; } >"$T/d"
    q batch -i "$T/in" -o "$T/d" --exact
    cmp "$T/a" "$T/d"
    { head -n 2 "$T/a"; sed -n 3p "$T/a" | head -c 3; } >"$T/d"
    q batch -i "$T/in" -o "$T/d" --exact
    cmp "$T/a" "$T/d"
    # another prompt, or JSON lines in the same file
    sed 's/list files/show files/' "$T/in" >"$T/other"
    fails 2 "belongs to another prompt" batch -i "$T/other" -o "$T/d" --exact
    echo '{"prompt":"x"}' >"$T/other"
    fails 2 "or in another form; left alone" batch -i "$T/other" -o "$T/d" --exact
    cmp "$T/a" "$T/d"
    # a request with other logprobs is another record
    sed 's/"top_logprobs":2/"top_logprobs":1/' "$T/in" >"$T/other"
    fails 2 "its answer to line 2 belongs to another prompt" batch -i "$T/other" -o "$T/d" --exact
}

@test "OpenAI's format: thinking and tool calls" {
    tool='{"type":"function","function":{"name":"now"}}'
    {
        request a "\"tools\":[$tool],\"tool_choice\":\"required\",\"chat_template_kwargs\":{\"enable_thinking\":false}"
        request b "\"tools\":[$tool],\"tool_choice\":\"required\",\"max_tokens\":2,\"chat_template_kwargs\":{\"enable_thinking\":false}"
    } >"$T/in"
    run -1 --separate-stderr q batch -i "$T/in" --exact
    [[ $stderr == *"1 answer falls short of its constraint or tools"* ]]
    printf '%s\n' "$output" >"$T/out"
    python3 - "$T/out" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
a, b = [r["response"]["body"]["choices"][0] for r in rows]
calls = a["message"]["tool_calls"]
assert a["finish_reason"] == "tool_calls" and a["message"]["content"] is None, a
assert all(x["type"] == "function" and x["function"] == {"name": "now", "arguments": "{}"}
           and x["id"].startswith("call_") for x in calls) and calls, calls
assert "incomplete" not in rows[0] and rows[1]["incomplete"] is True
assert b["finish_reason"] == "length" and "tool_calls" not in b["message"]
PY
    # an answer of calls is not empty when the run is continued
    head -n 1 "$T/out" >"$T/o"
    head -n 1 "$T/in" >"$T/i"
    q batch -i "$T/i" -o "$T/o" --exact --require-answer
    head -n 2 "$T/out" >"$T/o"
    run -1 --separate-stderr q batch -i "$T/in" -o "$T/o" --exact
    [[ $stderr == *"1 answer of earlier runs falls short"* ]]
    # a template that begins to think
    echo "{{ messages[0].content + '<|im_start|>assistant\n<think>\n' }}" >"$T/thinks"
    request c '"logprobs":true,"max_tokens":50,"temperature":1.2,"seed":7' |
        "$QWICK" batch --exact --chat-template "$T/thinks" --think-budget 0 --ignore-eos >"$T/out"
    python3 - "$T/out" <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))["response"]["body"]["choices"][0]
assert c["message"]["reasoning_content"].endswith("directly now."), c
assert c["message"]["content"], c
text = b"".join(bytes(t["bytes"]) for t in c["logprobs"]["content"]).decode(errors="replace")
assert text.strip() == c["message"]["content"].strip(), (text, c)
PY
}

@test "OpenAI's format: messages that go on, old roles, arguments of the template" {
    local user='{"role":"user","content":"list files"}' go='"role":"assistant","content"'
    chat() { # ID MESSAGES MEMBERS
        printf '{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"messages":[%s]%s}}\n' \
            "$1" "$user,$2" "${3:+,$3}"
    }
    {
        chat a "{$go:\"find . \"}"
        chat b "{$go:[{\"type\":\"text\",\"text\":\"find . \"}]}" '"reasoning_effort":"low"'
        chat c '{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"a"}'
        chat d '{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"x\":1}"}},{"role":"function","name":"f","content":"a"}'
        chat e "{$go:\"find . \"}" '"chat_template_kwargs":{"tools":[]}'
    } >"$T/in"
    run -1 --separate-stderr q batch -i "$T/in" --greedy --exact
    printf '%s\n' "$output" >"$T/out"
    q --greedy --exact --prefill 'find . ' 'list files' >"$T/text"
    python3 - "$T/out" "$T/text" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
a, b, c, d = [r["response"]["body"] for r in rows[:4]]
assert a["choices"][0]["message"]["content"] + "\n" == open(sys.argv[2]).read(), a
assert a["choices"] == b["choices"] and a["usage"] == b["usage"]
assert c["choices"] == d["choices"] and c["usage"] == d["usage"]
assert rows[4]["error"]["message"] == "template argument tools: the chat gives it"
PY
}

@test "OpenAI's format: what is not supported is refused by name" {
    # each is MEMBERS OF THE BODY | MESSAGE
    while IFS='|' read -r members message; do
        request "$message" "$members" >>"$T/in"
        echo "record: $message" >>"$T/want"
    done <<'END'
"logit_bias":{"1":101}|logit_bias: 1: must be a number from -100 to 100
"functions":[]|body.functions: is not supported
"n":2|body.n: only 1 is supported
"stream":true|body.stream: only false is supported
"parallel_tool_calls":1|body.parallel_tool_calls: must be true or false
"modalities":["audio"]|body.modalities: only [
"top_logprobs":2|body.top_logprobs: needs logprobs: true
"logprobs":true,"top_logprobs":21|body.top_logprobs: must be an integer from 0 to 20
"logprobs":1|body.logprobs: must be true or false
"max_tokens":2,"max_completion_tokens":3|body.max_tokens: differs from max_completion_tokens
"response_format":{"type":"xml"}|body.response_format: type must be
"response_format":{"type":"json_schema"}|body.response_format: json_schema.schema must be an object
"chat_template_kwargs":1|body.chat_template_kwargs: must be an object
"model":1|body.model: must be a string
"temperature":-1|temperature: must be a number from 0
"tools":1|tools: must be an array
END
    sed -i 's/|.*//' "$T/in"
    {
        echo '{"custom_id":"u","method":"POST","url":"/v1/embeddings","body":{}}'
        echo '{"custom_id":"v","method":"GET","url":"/v1/chat/completions","body":{}}'
        echo '{"custom_id":"w","method":"POST","url":"/v1/chat/completions","body":[]}'
        echo '{"custom_id":"x","method":"POST","url":"/v1/chat/completions","body":{}}'
        echo '{"custom_id":"y","method":"POST","url":"/v1/chat/completions","body":{"messages":[]},"extra":1}'
        echo '{"custom_id":3,"method":"POST","url":"/v1/chat/completions","body":{}}'
        echo '{"prompt":"list files"}'
        request z '"logit_bias":null,"max_tokens":2,"model":"gpt-x"'
        request zz '"max_tokens":2,"model":"gpt-y"'
    } >>"$T/in"
    run -1 --separate-stderr q batch -i "$T/in" --greedy
    printf '%s\n' "$output" >"$T/out"
    python3 - "$T/out" "$T/want" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
want = open(sys.argv[2]).read().split("\n")[:-1]
want += ["record: url: must be", "record: method: must be", "record: body: must be an object",
         "record: body.messages: must be an array", "record: extra: is not supported",
         "record: is no request of OpenAI's batch format: custom_id is a number",
         "record: is no request of OpenAI's batch format: custom_id is missing"]
for r, w in zip(rows, want):
    assert r["response"] is None and r["error"]["code"] == "invalid_request", r
    assert r["error"]["message"].startswith(w), (r, w)
assert [r["custom_id"] for r in rows[-9:]] == ["u", "v", "w", "x", "y", None, None, "z", "zz"]
assert rows[-2]["error"] is None and rows[-2]["response"]["body"]["choices"]
assert rows[-1]["error"]["message"] == 'record: body.model: is "gpt-y", but the first request has "gpt-x"'
assert len(rows) == len(want) + 2
PY
    [[ $stderr == *"warning: $T/in: the requests name the model gpt-x, and qwick-demo answers them"* ]]
    fails 2 "a prompt template does not apply" batch -i "$T/in" --prompt-template '{}'
    fails 2 "--extract: has no effect in OpenAI's batch format" batch -i "$T/in" -x
    # a request among other records
    { echo '{"prompt":"list files","max_tokens":2}'; request a; } >"$T/mixed"
    run -1 --separate-stderr q batch -q -i "$T/mixed"
    echo "$output" | jlines '"text" in o[0] and
        "batch format, but the first record is not; --input-format openai" in o[1]["error"]'
    # answers in the other form
    request a '"max_tokens":9' >"$T/in"
    equal "$(q batch --text --greedy -i "$T/in")" "$(q --greedy -n 9 "list files")"
}

@test "logprobs of a record" {
    printf '%s\n' '{"prompt":"list files","logprobs":2}' '{"prompt":"list files","logprobs":0}' \
        '{"prompt":"list files"}' '{"prompt":"list files","logprobs":101}' >"$T/in"
    run -1 --separate-stderr q batch -i "$T/in" --greedy -n 3
    echo "$output" | jlines '[[len(t["top"]) for t in x["logprobs"]] for x in o[:2]] == [[2] * 3, [0] * 3]
        and "logprobs" not in o[2] and "logprobs: must be an integer from 0 to 100" in o[3]["error"]
        and len({x["key"] for x in o}) == 4'
}
