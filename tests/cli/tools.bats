#!/usr/bin/env bats
# --tools: definitions in the prompt, calls out of the answer.
load helpers

setup() {
    common_setup
    cat >"$T/tools" <<'END'
[{"type": "function", "function": {"name": "weather", "description": "it's <b>",
  "parameters": {"type": "object", "properties": {
   "city": {"type": "string"}, "days": {"type": "integer"}}}}},
 {"type": "function", "function": {"name": "now"}}]
END
    coder_template >"$T/coder"
    CALL='<tool_call>
{"name": "weather", "arguments": {"city": "Bern", "days": 2}}
</tool_call>'
    XML='<tool_call>
<function=weather>
<parameter=city>
5
</parameter>
<parameter=days>
2
</parameter>
</function>
</tool_call>'
}

# says TEXT ARGS…: answer with the text, to which a constraint forces the model.
says() {
    local text=$1
    shift
    run --separate-stderr q --think off --tools "$T/tools" \
        --regex "$(as_regex "$text")" "$@" "list files"
}

@test "definitions are rendered by the checkpoint's template" {
    local chat='[{"role":"user","content":"x"}]'
    run -0 q render --tools "$T/tools" "$chat"
    [ "$output" = "$(q render "{\"messages\":$chat,\"tools\":$(cat "$T/tools")}")" ]
    [[ $output == *'"description": "it'"'"'s <b>"'* ]]
    # one definition, and an object with a list
    printf '{"tools":%s}' "$(cat "$T/tools")" >"$T/object"
    [ "$(q render --tools "$T/object" "$chat")" = "$output" ]
    echo '{"type":"function","function":{"name":"now"}}' >"$T/one"
    [[ $(q render --tools "$T/one" "$chat") == *'"name": "now"'* ]]
    # a chat's own tools stay
    [[ $(q render --tools "$T/tools" "{\"messages\":$chat,\"tools\":[{\"a\":1}]}") \
        == *'<tools>
{"a": 1}
</tools>'* ]]
    [ "$(printf '%s\n' "{\"messages\":$chat}" "{\"messages\":$chat,\"tools\":[1]}" |
        q_in render --jsonl --tools "$T/tools" | grep -c weather)" -eq 1 ]
}

# q_in ARGS…: run qwick with this standard input.
q_in() {
    "$QWICK" "$@"
}

@test "generate gives the model the definitions" {
    ids() { q --json -n 1 "$@" | jget 'o["usage"]["prompt_tokens"]'; }
    echo "{\"messages\":[{\"role\":\"user\",\"content\":\"list files\"}],
        \"tools\":$(cat "$T/tools")}" >"$T/chat"
    echo '[{"role":"user","content":"list files"}]' >"$T/bare"
    with=$(ids --tools "$T/tools" "list files")
    [ "$with" -gt "$(ids "list files")" ]
    [ "$with" = "$(ids --chat-json "$T/chat")" ]
    [ "$with" = "$(ids --chat-json "$T/bare" --tools "$T/tools")" ]
    fails 2 "--tools: $T/chat has tools as well" --chat-json "$T/chat" \
        --tools "$T/tools"
}

@test "calls of Qwen3's form become tool_calls" {
    says "Let me look.
$CALL
$CALL" --json
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(jget 'o["text"] == "Let me look." and "tool_calls_error" not in o and
        [(c["type"], c["function"]) for c in o["tool_calls"]] ==
        2 * [("function", {"name": "weather",
        "arguments": json.dumps({"city": "Bern", "days": 2})})] and
        len({c["id"] for c in o["tool_calls"]}) == 2' <<<"$output")" = True ]
    first=$(jget '[c["id"] for c in o["tool_calls"]]' <<<"$output")
    # the same answer has the same ids, another question other ones
    says "Let me look.
$CALL
$CALL" --json --seed "$(jget 'o["seed"]' <<<"$output")"
    [ "$(jget '[c["id"] for c in o["tool_calls"]]' <<<"$output")" = "$first" ]
    # text without calls is unchanged, and text mode prints all
    says " a </tool_call> <tool " --json
    [ "$(jget 'repr((o["text"], o["tool_calls"]))' <<<"$output")" = \
        "(' a </tool_call> <tool ', [])" ]
    says "a
$CALL"
    [ "$output" = "a
$CALL" ]
}

@test "the schema types the values of Qwen3-Coder's form" {
    says "$XML" --json
    [ "$status" -eq 0 ]
    [ "$(jget 'o["text"] == "" and
        [json.loads(c["function"]["arguments"]) for c in o["tool_calls"]] ==
        [{"city": "5", "days": 2}]' <<<"$output")" = True ]
    # an answer of calls is an answer
    says "$XML" --json --require-answer
    [ "$status" -eq 0 ]
}

# The call of an answer, as a message of the chat, renders as the answer was.
@test "calls that are fed back render the same text" {
    for form in qwen3 coder; do
        local opts=() text=$CALL
        [ $form = qwen3 ] || { opts=(--chat-template "$T/coder"); text=$XML; }
        for before in "" "Let me look.
"; do
            says "$before$text
$text" --json "${opts[@]}"
            [ "$status" -eq 0 ]
            chat=$(TOOLS=$T/tools python3 -c 'import json, os, sys
o = json.load(sys.stdin)
for c in o["tool_calls"]:
    c["function"]["arguments"] = json.loads(c["function"]["arguments"])
print(json.dumps({"messages": [{"role": "user", "content": "x"},
    {"role": "assistant", "content": o["text"], "tool_calls": o["tool_calls"]},
    {"role": "user", "content": "y"}], "tools": json.load(open(os.environ["TOOLS"]))}))' \
                <<<"$output")
            [[ "$(q render "${opts[@]}" "$chat")" == *"<|im_start|>assistant
$before$text
$text<|im_end|>"* ]]
        done
    done
}

@test "a call that is malformed, unknown or cut stays in the text: exit status 6" {
    says "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>$CALL" --json
    [ "$status" -eq 6 ]
    [ "$stderr" = 'qwick: tool call 1: there is no tool "rm"' ]
    [ "$(jget 'len(o["tool_calls"]) == 1 and o["text"][:11] == "<tool_call>" and
        o["tool_calls_error"][:12] == "tool call 1:"' <<<"$output")" = True ]
    says "${XML/2/two}"
    [ "$status" -eq 6 ]
    [ "$output" = "${XML/2/two}" ]
    [[ $stderr == *'parameter "days": must be an integer' ]]
    run -6 --separate-stderr q --think off --tools "$T/tools" --json -n 9 \
        --prefill '<tool_call>
{"name": "weather", "arguments": {"city": "' --ignore-eos "list files"
    [[ $stderr == "qwick: tool call 1: it is cut" ]]
    [ "$(jget 'o["text"][:12] == "<tool_call>\n" and
        o["finish_reason"] == "length"' <<<"$output")" = True ]
}

@test "a call may begin in the text of --prefill" {
    run -0 q --think off --tools "$T/tools" --json --prefill '<tool_call>
{"name": "now",' --regex ' "arguments": \{\}\}\n</tool_call>' "list files"
    [ "$(jget 'o["text"] == "" and o["tool_calls"][0]["function"] ==
        {"name": "now", "arguments": "{}"}' <<<"$output")" = True ]
}

@test "calls are streamed as events" {
    says "So:
$CALL
$CALL
 bye <tool" --jsonl
    [ "$status" -eq 0 ]
    printf '%s\n' "$output" | jlines '
        "".join(x.get("text", "") for x in o[:-1]) == o[-1]["text"] ==
        "So:\nbye <tool" and
        [x["tool_call"] for x in o if x["event"] == "tool_call"] ==
        o[-1]["tool_calls"] and len(o[-1]["tool_calls"]) == 2 and
        [x["index"] for x in o if x["event"] == "tool_call"] == [0, 1] and
        [x["event"] for x in o][-2:] == ["text", "done"] and
        [x["id"] for x in o if x["event"] == "token"] == o[-1]["tokens"] and
        o[[x["event"] for x in o].index("tool_call") + 1]["event"] == "token"'
    # without tools, nothing is a call
    run -0 q --think off --jsonl --regex "$(as_regex "$CALL")" "list files"
    printf '%s\n' "$output" | CALL=$CALL jlines \
        'o[-1]["text"] == __import__("os").environ["CALL"] and
        "tool_calls" not in o[-1]'
}

@test "a batch gives the calls of each answer, as single runs do" {
    TOOLS=$T/tools CALL=$CALL XML=$XML python3 >"$T/in" <<'END'
import json, os
tools = json.load(open(os.environ["TOOLS"]))
call, xml = os.environ["CALL"], os.environ["XML"]
chat = [{"role": "user", "content": "list files"}]
rows = [{"prompt": "list files", "choices": ["a " + call]},
        {"messages": chat, "choices": [xml]},
        {"messages": chat, "tools": tools[1:], "choices": [call]},
        {"prompt": "list files", "tools": tools[:1], "n": 2, "choices": [call]},
        {"prompt": "list files", "tools": [], "choices": [call]},
        {"prompt_ids": [5, 6], "choices": [call]},
        {"prompt_ids": [5, 6], "tools": tools},
        {"prompt": "x", "tools": 5}]
for row in rows:
    print(json.dumps(row))
END
    opts=(--think off --exact --seed 3 --require-answer)
    run -1 --separate-stderr q batch "${opts[@]}" --tools "$T/tools" -i "$T/in" \
        -o "$T/out"
    [[ $stderr == *"1 answer falls short of its constraint or tools"* ]]
    jlines '[len(x.get("tool_calls", "no")) for x in o] == [1, 1, 0, 1, 1] + 4 * [2]
        and o[2]["tool_calls_error"] == "tool call 1: there is no tool \"weather\""
        and o[2]["incomplete"] and "incomplete" not in o[0] and
        o[0]["text"] == "a" and o[1]["text"] == "" and
        json.loads(o[1]["tool_calls"][0]["function"]["arguments"]) ==
        {"city": "5", "days": 2} and o[5]["text"] == o[6]["text"] and
        "cannot be combined with prompt_ids" in o[7]["error"] and
        "must be an array" in o[8]["error"]' <"$T/out"
    # finished calls are not answered again, and are complete answers
    cp "$T/out" "$T/old"
    run -1 --separate-stderr q batch "${opts[@]}" --tools "$T/tools" -i "$T/in" \
        -o "$T/out"
    [[ $stderr != *"cut or empty"* ]]
    cmp "$T/out" "$T/old"
    line() { sed -n "$1p" "$T/out"; }
    says "a $CALL" --json --exact --seed "$(line 1 | jget 'o["seed"]')"
    [ "$(jget 'o["tool_calls"]' <<<"$output")" = "$(line 1 | jget 'o["tool_calls"]')" ]
}

@test "a template that prints no tools is refused" {
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >"$T/plain"
    local chat='[{"role":"user","content":"x"}]'
    for verb in "generate x" "render $chat" "batch -i $T/tools"; do
        # shellcheck disable=SC2086 # words
        fails 2 "--tools: the chat template of" $verb --tools "$T/tools" \
            --chat-template "$T/plain"
    done
}

@test "files of tools that are wrong" {
    bad() {
        printf '%s' "$1" >"$T/bad"
        fails 2 "$2" --tools "$T/bad" x
    }
    bad '[' "$T/bad: "
    bad '[]' "$T/bad: must be an array of tools, not empty, or one tool"
    bad '5' "must be an array of tools"
    bad '[5]' "tools[0]: must be an object, is a number"
    bad '{"name":"now"}' "tools[0].function: must be an object, is missing"
    bad '[{"type":"x","function":{"name":"a"}}]' 'type: must be "function"'
    bad '[{"function":{"name":5}}]' "tools[0].function.name: must be a string"
    bad '[{"function":{"name":""}}]' "function.name: must not be empty"
    bad '[{"function":{"name":"a","parameters":[]}}]' "function.parameters: must be"
    bad '[{"function":{"name":"a"}},{"function":{"name":"a"}}]' \
        'tools[1]: there is another tool "a"'
    fails 1 "$T/none: " --tools "$T/none" x
    fails 2 "--tools: has no effect with --raw" --raw --tools "$T/tools" x
    fails 2 "--tools: has no effect with --prompt-ids" --prompt-ids 5 \
        --tools "$T/tools"
}
