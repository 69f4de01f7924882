#!/usr/bin/env bats
# --schema-lenient and "strict": false: what cannot be held is named, and the
# finished answer is checked.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start main
}

teardown_file() {
    serve_teardown_file
}

# The automaton of the pattern inside has 2^18 states. One text matches it.
bad='{"type": "string", "pattern": "^a{20}$",
    "not": {"pattern": "^(a|b)*a(a|b){17}$"}}'
good=${bad/^a/^b}
a=aaaaaaaaaaaaaaaaaaaa
b=bbbbbbbbbbbbbbbbbbbb
why='the answer does not satisfy the schema: the document violates #/not'

lenient() {
    run --separate-stderr q --think off --schema-lenient "$@" x
}

@test "a schema is refused without the option, and weakened by name with it" {
    run -2 q --think off --json-schema "$bad" x
    lenient --json-schema "$good"
    [ "$status" -eq 0 ]
    [ "$output" = "\"$b\"" ]
    [ "$stderr" = "qwick: warning: --json-schema: weakened: #/not/pattern" ]
    lenient --json-schema '{"const": 1}'
    [ "$output$stderr" = 1 ]
    fails 2 'has no effect without' --schema-lenient x
}

@test "an answer that fails the check exits 6 and says schema_valid" {
    lenient --json-schema "$bad"
    [ "$status" -eq 6 ]
    [ "$output" = "\"$a\"" ]
    [[ $stderr == *"qwick: $why" ]]
    lenient --json --json-schema "$bad"
    [ "$status" -eq 6 ]
    [ "$(jget 'o["schema_valid"]' <<<"$output")" = False ]
    lenient --json --json-schema "$good"
    [ "$status" -eq 0 ]
    [ "$(jget 'o["schema_valid"]' <<<"$output")" = True ]
    lenient --json --json-schema "$good" -n 1
    [ "$status" -eq 6 ]
    [ "$(jget 'o["schema_valid"]' <<<"$output")" = False ]
    [[ $stderr == *"the answer is cut: -n 1 is reached" ]]
    lenient --jsonl --samples 2 --temp 1 --json-schema "$bad"
    [ "$status" -eq 6 ]
    [[ $stderr == *"sample 1: $why"* ]]
    run -0 q --think off --json --json-schema '{"const": 1}' x
    [[ $output != *schema_valid* ]]
}

@test "records: schema_lenient, and strict false in OpenAI's form" {
    {
        echo "{\"prompt\": \"x\", \"json_schema\": $bad, \"schema_lenient\": true}"
        echo "{\"prompt\": \"x\", \"json_schema\": $good, \"schema_lenient\": true}"
        echo "{\"prompt\": \"x\", \"json_schema\": $good}"
        echo "{\"prompt\": \"x\", \"json_schema\": $good, \"schema_lenient\": 1}"
        echo "{\"prompt\": \"x\", \"schema_lenient\": true}"
    } | tr -d '\n' | sed 's/}{"prompt/}\n{"prompt/g' >"$T/in"
    run -1 --separate-stderr "$QWICK" batch -q --think off --input "$T/in"
    jlines "o[0]['error'] == '$why' and o[0]['schema_valid'] is False and
        o[1]['text'] == '\"$b\"' and o[1]['schema_valid'] is True and
        '#/not/pattern' in o[2]['error'] and 'schema_valid' not in o[2] and
        'schema_lenient: must be true or false' in o[3]['error'] and
        'schema_lenient: has no effect without' in o[4]['error']" <<<"$output"
    run -0 --separate-stderr "$QWICK" batch -q --think off --schema-lenient \
        --input <(sed -n 3p "$T/in")
    python3 - "$bad" "$good" >"$T/in" <<'PY'
import json, sys
for i, (schema, strict) in enumerate(((0, False), (1, False), (1, None), (1, True), (1, 0))):
    f = {"name": "a", "schema": json.loads(sys.argv[1 + schema])}
    if strict is not None:
        f["strict"] = strict
    print(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": {
        "model": "qwick-demo", "messages": [{"role": "user", "content": "x"}],
        "chat_template_kwargs": {"enable_thinking": False},
        "response_format": {"type": "json_schema", "json_schema": f}}}))
PY
    run -1 --separate-stderr "$QWICK" batch -q --input "$T/in"
    jlines "o[0]['error'] == {'code': 'schema_invalid', 'message': '$why'} and
        o[1]['response']['body']['choices'][0]['message']['content'] == '\"$b\"' and
        all('#/not/pattern' in o[i]['error']['message'] for i in (2, 3)) and
        'strict' in o[4]['error']['message']" <<<"$output"
}

@test "tools: strict false weakens the parameters, and calls are checked" {
    local tool='[{"type": "function", "function": {"name": "f", "strict": STRICT,
        "parameters": {"type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": SCHEMA}}}}]' text
    for form in qwen3 coder; do
        local args=(--think off --json --tools "$T/tools" --tool-choice required)
        coder_template >"$T/coder"
        [ $form = qwen3 ] || args+=(--chat-template "$T/coder")
        text=${tool/STRICT/false}
        echo "${text/SCHEMA/$bad}" >"$T/tools"
        run -6 --separate-stderr q "${args[@]}" x
        [[ $stderr == *"weakened: tool \"f\": parameters: #/properties/a/not/pattern"* ]]
        [[ $stderr == *"the arguments of f: /a violates #/properties/a/not"* ]]
        [ "$(jget 'o["schema_valid"]' <<<"$output")" = False ]
        echo "${text/SCHEMA/$good}" >"$T/tools"
        run -0 --separate-stderr q "${args[@]}" x
        [ "$(jget 'o["schema_valid"]' <<<"$output")" = True ]
        text=${tool/STRICT/true}
        echo "${text/SCHEMA/$good}" >"$T/tools"
        run -2 --separate-stderr q "${args[@]}" x
        run -2 --separate-stderr q "${args[@]}" --schema-lenient x
        echo "${text/SCHEMA/$good}" | sed 's/"strict": true,//' >"$T/tools"
        run -0 --separate-stderr q "${args[@]}" --schema-lenient x
    done
}

@test "tools: a call is checked also if the text after it is cut" {
    python3 - "$bad" "$(q tokenize "<tool_call>")" "$T/in" "unix:$D/main" <<'PY'
import json, sys
sys.path.insert(0, "tests/cli")
from serve_client import *
f = {"name": "f", "strict": False, "parameters": {"type": "object", "required": ["a"],
     "additionalProperties": False, "properties": {"a": json.loads(sys.argv[1])}}}
ask = {"tools": [{"type": "function", "function": f}], "max_tokens": 100,
       "logit_bias": {sys.argv[2]: 60}}
with open(sys.argv[3], "w") as out:
    print(json.dumps({"prompt": "x", **ask}), file=out)
r = post(sys.argv[4], "/v1/chat/completions", {
    "messages": [{"role": "user", "content": "x"}],
    "chat_template_kwargs": {"enable_thinking": False}, **ask})
assert r.status == 500 and r.json["error"]["code"] == "schema_invalid", r.body
PY
    run -1 --separate-stderr "$QWICK" batch -q --think off --input "$T/in"
    jlines 'o[0]["schema_valid"] is False and
        o[0]["error"].endswith("/a violates #/properties/a/not")' <<<"$output"
}

@test "serve: strict false answers, or fails with schema_invalid" {
    python3 - "$bad" "$good" "unix:$D/main" <<'PY'
import json, sys
sys.path.insert(0, "tests/cli")
from serve_client import *
bad, good, s = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
def ask(schema, strict, **more):
    return post(s, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}],
        "chat_template_kwargs": {"enable_thinking": False}, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": strict}}, **more})
r = ask(good, False)
assert r.status == 200 and r.json["choices"][0]["message"]["content"] == '"bbbbbbbbbbbbbbbbbbbb"', r.body
assert ask(good, True).status == 400
assert ask(good, 1).status == 400
r = ask(bad, False)
assert r.status == 500 and r.json["error"]["code"] == "schema_invalid", r.body
assert "violates #/not" in r.json["error"]["message"], r.body
r = ask(bad, False, stream=True)
assert r.status == 200 and b"schema_invalid" in r.body and b"[DONE]" not in r.body, r.body
PY
}
