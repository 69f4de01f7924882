#!/usr/bin/env bats
# --tool-choice: answers that are calls of tools, or have none.
load helpers

setup() {
    common_setup
    cat >"$T/tools" <<'END'
[{"type": "function", "function": {"name": "weather", "parameters": {
   "type": "object", "properties": {
    "city": {"type": "string", "maxLength": 12},
    "days": {"type": "integer", "minimum": 1, "maximum": 14},
    "unit": {"enum": ["C", "F", null]}},
   "required": ["city", "days", "unit"]}}},
 {"type": "function", "function": {"name": "now"}}]
END
    coder_template >"$T/coder"
}

# chosen CHOICE ARGS…: answer with a choice of tools.
chosen() {
    local choice=$1
    shift
    run --separate-stderr q --think off --tools "$T/tools" \
        --tool-choice "$choice" "$@" "list files"
}

# Check the calls of JSON answers, one a line: their names and arguments.
well_called() {
    jlines 'o and all(x["tool_calls"] and x["text"] == "" and
        "tool_calls_error" not in x and x["finish_reason"] == "stop" and
        all((lambda n, a: (n == "now" and a == {}) or
             (n == "weather" and list(a) == ["city", "days", "unit"] and
              isinstance(a["city"], str) and len(a["city"]) <= 12 and
              1 <= a["days"] <= 14 and a["unit"] in ("C", "F", None)))
            (c["function"]["name"], json.loads(c["function"]["arguments"]))
            for c in x["tool_calls"]) for x in o)'
}

@test "required: calls of any tools; a name: one call of that tool" {
    for form in qwen3 coder; do
        local opts=() whole=0
        [ $form = qwen3 ] || opts=(--chat-template "$T/coder")
        for seed in 1 2 3; do
            chosen weather --json --temp 1.5 --seed $seed "${opts[@]}"
            [ "$status" -eq 0 ]
            [ -z "$stderr" ]
            well_called <<<"$output"
            [ "$(jget '[c["function"]["name"] for c in o["tool_calls"]]' \
                <<<"$output")" = "['weather']" ]
        done
        chosen now "${opts[@]}"
        [ "$status" -eq 0 ]
        [[ $output == "<tool_call>
"*now*"
</tool_call>" ]]
        # the model may stop after each call; one that goes on is cut
        for seed in 1 2 3 4 5 6; do
            chosen required --json --temp 2 --seed $seed -n 600 "${opts[@]}"
            [ "$status" -eq 0 ] || {
                [ "$status" -eq 6 ]
                continue
            }
            whole=$((whole + 1))
            well_called <<<"$output"
        done
        [ $whole -ge 3 ]
    done
}

# bad_tool [MEMBERS]: a tool whose schema cannot be held.
bad_tool() {
    echo '{"function":{"name":"f",'"$1"'"parameters":{"properties":{"a":{
        "$ref":"#/no"}}}}}'
}

# Records whose answers are calls, although their choice is auto: the opening tag is
# the likeliest token of free text.
calling() {
    local tag seed
    tag=$(q tokenize "<tool_call>")
    for seed in 1 2 3; do
        echo "{\"prompt\":\"list files\",\"logit_bias\":{\"$tag\":60},
            \"max_tokens\":200,\"temperature\":1.5,\"seed\":$seed}" | tr -d '\n'
        echo
    done
}

@test "auto: text is free, and the calls in it are checked" {
    for form in qwen3 coder; do
        local opts=()
        [ $form = qwen3 ] || opts=(--chat-template "$T/coder")
        calling >"$T/in"
        run -1 --separate-stderr q batch --think off --tools "$T/tools" \
            "${opts[@]}" -i "$T/in" -o "$T/out"
        # the last call of each answer is cut
        sed 's/"finish_reason":"length"/"finish_reason":"stop"/
            s/"tool_calls_error":"tool call [0-9]*: it is cut",//
            s/"text":"[^"\\]*\(\\.[^"\\]*\)*"/"text":""/' "$T/out" >"$T/cut"
        well_called <"$T/cut"
        rm "$T/out"
    done
    # the model is free to make no call, and a stop string ends its text
    run -0 --separate-stderr q --think off --tools "$T/tools" --seed 1 --json \
        -n 20 "list files"
    [ -z "$stderr" ]
    [ "$(jget 'o["tool_calls"]' <<<"$output")" = "[]" ]
    text=$(jget 'o["text"][4:8]' <<<"$output")
    run -0 q --think off --tools "$T/tools" --seed 1 --json -n 20 \
        --tool-choice auto --stop "$text" "list files"
    [ "$(jget 'o["finish_reason"]' <<<"$output")" = stop_string ]
    # no constraint beside an answer without an end, or that goes on with a text
    run -0 q --think off --tools "$T/tools" --ignore-eos -n 5 "list files"
    run -0 q --think off --tools "$T/tools" --prefill "a" -n 5 "list files"
}

@test "auto: a schema that cannot be held warns, or with strict is refused" {
    bad_tool >"$T/bad"
    run -0 --separate-stderr q --think off --tools "$T/bad" -n 3 x
    [[ $stderr == 'qwick: warning: --tools: tool "f": its arguments are not checked: #/properties/a/$ref: '* ]]
    bad_tool '"strict":false,' >"$T/bad"
    run -0 --separate-stderr q --think off --tools "$T/bad" -n 3 x
    [ -n "$stderr" ]
    bad_tool '"strict":true,' >"$T/bad"
    fails 2 '--tools: tool "f": parameters: #/properties/a/$ref: ' \
        --tools "$T/bad" x
    printf '%s\n' "{\"prompt\":\"x\",\"max_tokens\":3,\"tools\":[$(bad_tool | tr -d '\n')]}" \
        "{\"prompt\":\"x\",\"max_tokens\":3,\"tools\":[$(bad_tool '"strict":true,' | tr -d '\n')]}" \
        >"$T/in"
    run -1 --separate-stderr q batch --think off -i "$T/in"
    [[ $stderr == *'warning: record: tools: tool "f": its arguments are not '* ]]
    jlines '"error" not in o[0] and o[1]["error"].startswith(
        "record: tools: tool \"f\": parameters: #/properties/a/$ref: ")' <<<"$output"
    bad_tool '"strict":5,' >"$T/bad"
    fails 2 "tools[0].function.strict: must be true or false, is a number" \
        --tools "$T/bad" x
}

@test "a call after the thinking" {
    run -0 q --think on --think-budget 5 --tools "$T/tools" --tool-choice now \
        --json "list files"
    [ "$(jget 'o["text"] == "" and o["thinking"] is not None and
        [c["function"]["name"] for c in o["tool_calls"]] == ["now"]' \
        <<<"$output")" = True ]
}

@test "a cut answer of calls: exit status 6" {
    chosen weather -n 20
    [ "$status" -eq 6 ]
    [ "$stderr" = "qwick: tool call 1: it is cut" ]
    chosen required -n 1 --json --seed 1
    [ "$status" -eq 6 ]
    one_error_line
}

@test "none: no call, whatever the model prefers" {
    for seed in 1 2 3; do
        chosen none --json --temp 2 --seed $seed -n 200
        [ "$status" -eq 0 ]
        [ "$(jget 'o["tool_calls"] == [] and "<tool_call>" not in o["text"] and
            o["usage"]["prompt_tokens"]' <<<"$output")" -gt 100 ]
    done
    # the same prompt as with auto, a cut is no failure, and -x works
    prompt=$(q --think off --tools "$T/tools" --json -n 1 "list files" |
        jget 'o["usage"]["prompt_tokens"]')
    chosen none --json -n 3
    [ "$status" -eq 0 ]
    [ "$(jget 'o["usage"]["prompt_tokens"]' <<<"$output")" = "$prompt" ]
    chosen none -x -n 3
    [ "$status" -eq 6 ]
    [[ $stderr == *"no code block"* ]]
    chosen none --require-answer -n 3
    [ "$status" -eq 6 ]
}

@test "tool_choice of a chat, in OpenAI's form" {
    chat() {
        printf '{"messages":[{"role":"user","content":"x"}],"tools":%s,
            "tool_choice":%s}' "${2:-$(cat "$T/tools")}" "$1" >"$T/chat"
    }
    chat '{"type":"function","function":{"name":"now"}}'
    run -0 q --think off --chat-json "$T/chat" --json
    well_called <<<"$output"
    chat '"none"'
    run -0 q --think off --chat-json "$T/chat" --json -n 9
    [ "$(jget 'o["tool_calls"]' <<<"$output")" = "[]" ]
    fails 2 "tool_choice: cannot be combined with --regex" \
        --chat-json "$T/chat" --regex a
    fails 2 "--tool-choice: $T/chat has a tool_choice as well" \
        --chat-json "$T/chat" --tool-choice now
    for choice in auto null '"none"'; do
        [ "$choice" != auto ] || choice='"auto"'
        chat "$choice" '[]'
        run -0 q --think off --chat-json "$T/chat" --regex a
        [ "$output" = a ]
    done
    chat '"required"' '[]'
    fails 2 "tool_choice: there are no tools" --chat-json "$T/chat"
    for bad in '"now"' 5 '{"type":"function"}' '{"function":{"name":"now"}}'; do
        chat "$bad"
        fails 2 "$T/chat: tool_choice: must be" --chat-json "$T/chat"
    done
    chat '"auto"'
    run -0 q --think off --chat-json "$T/chat" -n 3
    # --tools for a chat that only chooses
    echo '{"messages":[{"role":"user","content":"x"}],
        "tool_choice":"required"}' >"$T/chat"
    fails 2 "tool_choice: there are no tools" --chat-json "$T/chat"
}

@test "stop strings have no effect inside calls" {
    local wanted
    chosen now
    wanted=$output
    chosen now --stop '{' --stop name --stop $'\n'
    [ "$status" -eq 0 ]
    [ "$output" = "$wanted" ]
    chosen none --stop zork -n 3
    [ "$status" -eq 0 ]
    # auto: they end the text before a call, or behind it
    local auto=(--think off --tools "$T/tools" --json --logit-bias "$("$QWICK" tokenize '<tool_call>')=30"
        --temp 1.5 --seed 1 -n 100)
    run --separate-stderr q "${auto[@]}" "list files"
    wanted=$(jget 'o["tokens"], o["tool_calls"]' <<<"$output")
    [[ $wanted == *function* ]]
    run --separate-stderr q "${auto[@]}" --stop '{' --stop name "list files"
    [ "$(jget 'o["tokens"], o["tool_calls"]' <<<"$output")" = "$wanted" ]
}

@test "what is refused" {
    chosen zip
    [ "$status" -eq 2 ]
    [ "$stderr" = 'qwick: --tool-choice: there is no tool "zip"; the tools are: weather, now' ]
    fails 2 "--tool-choice: has no effect without --tools" --tool-choice none x
    fails 2 "--tool-choice: has no effect with --raw" --raw \
        --tool-choice none x
    local with=(--tools "$T/tools" --tool-choice)
    for more in "--regex a" "--choices a" "--grammar g" "--json-schema {}" \
        --ignore-eos "--prefill a"; do
        for choice in none required now; do
            # shellcheck disable=SC2086 # words
            fails 2 "--tool-choice: cannot be combined with ${more%% *}" \
                "${with[@]}" $choice $more x
        done
    done
    fails 2 "--tool-choice: cannot be combined with --extract" \
        "${with[@]}" required -x x
    run -0 q --think off "${with[@]}" auto --regex a x
    [ "$output" = a ]
    # a schema that cannot be held, and a template that shows no calls
    bad_tool >"$T/bad"
    fails 2 '--tool-choice: tool "f": parameters: #/properties/a/$ref: ' \
        --tools "$T/bad" --tool-choice required x
    run -0 q --think off --tools "$T/bad" --tool-choice none -n 3 x
    echo '{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}' \
        >"$T/plain"
    fails 2 "shows no calls of tools in a form that qwick knows" "${with[@]}" now \
        --chat-template "$T/plain" x
}

@test "a batch: the option, and tool_choice of records, as single runs do" {
    TOOLS=$T/tools python3 >"$T/in" <<'END'
import json, os
tools = json.load(open(os.environ["TOOLS"]))
now = {"type": "function", "function": {"name": "now"}}
chat = [{"role": "user", "content": "list files"}]
rows = [{"prompt": "list files"},
        {"messages": chat, "tool_choice": now},
        {"prompt": "list files", "tools": tools[1:]},
        {"prompt": "list files", "tool_choice": "none", "max_tokens": 5},
        {"prompt": "list files", "tool_choice": "auto", "max_tokens": 5},
        {"prompt": "list files", "regex": "a"},
        {"prompt": "list files", "tools": [], "max_tokens": 5},
        {"prompt_ids": [5, 6], "max_tokens": 5},
        {"prompt": "list files", "max_tokens": 5},
        {"prompt": "x", "tools": [], "tool_choice": now},
        {"prompt": "x", "tools": [], "tool_choice": "none", "max_tokens": 5},
        {"prompt": "x", "tool_choice": "required", "regex": "a"},
        {"prompt": "x", "tool_choice": "now"},
        {"prompt": "x", "tools": tools[1:], "tool_choice":
         {"type": "function", "function": {"name": "weather"}}},
        {"prompt": "x", "tools": tools[:1], "stop": ["a", "{", "name"]}]
for row in rows:
    print(json.dumps(row))
END
    opts=(--think off --exact --seed 3 --tools "$T/tools")
    run -1 --separate-stderr q batch "${opts[@]}" --tool-choice weather \
        -i "$T/in" -o "$T/out"
    [[ $stderr == *"1 answers fall short of their constraint or tools"* ]] ||
        [[ $stderr == *"1 answer falls short of its constraint or tools"* ]]
    jlines '[[c["function"]["name"] for c in x["tool_calls"]]
         for x in (o[0], o[1])] == [["weather"], ["now"]] and
        o[2]["error"] == "record: --tool-choice: there is no tool \"weather\"; the tools are: now"
        and o[3]["tool_calls"] == o[4]["tool_calls"] == [] and
        "incomplete" not in o[3] and o[5]["text"] == "a" and
        "tool_calls" not in o[6] and "tool_calls" not in o[7] and
        "error" not in o[6] and "error" not in o[7] and o[8]["incomplete"] and
        "tool_choice: there are no tools" in o[9]["error"] and
        "error" not in o[10] and
        o[11]["error"] == "record: regex: cannot be combined with tool_choice" and
        "tool_choice: must be" in o[12]["error"] and
        "there is no tool" in o[13]["error"] and
        [c["function"]["name"] for c in o[14]["tool_calls"]] == ["weather"]' <"$T/out"
    sed -n 1p "$T/out" | well_called
    # a second run answers nothing again; another choice is another answer
    cp "$T/out" "$T/old"
    run -1 --separate-stderr q batch "${opts[@]}" --tool-choice weather \
        -i "$T/in" -o "$T/out"
    cmp "$T/out" "$T/old"
    run -2 --separate-stderr q batch "${opts[@]}" --tool-choice zip -i "$T/in"
    [[ $stderr == *'--tool-choice: there is no tool "zip"'* ]]
    run -2 --separate-stderr q batch "${opts[@]}" --tool-choice now --regex a \
        -i "$T/in"
    [[ $stderr == *"--tool-choice: cannot be combined with --regex"* ]]
    # the same answer alone
    chosen weather --json --exact --seed "$(sed -n 1p "$T/out" | jget 'o["seed"]')"
    [ "$(jget 'o["tool_calls"]' <<<"$output")" = \
        "$(sed -n 1p "$T/out" | jget 'o["tool_calls"]')" ]
}
