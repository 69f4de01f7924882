#!/usr/bin/env bats
# The forms of many families: how they write calls of tools, think, and end.
load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    local f
    for f in $(python3 tests/cli/template_forms.py list); do
        mkdir "$BATS_FILE_TMPDIR/$f"
        cp tests/golden/models/tied-bf16/{config.json,model.safetensors} "$BATS_FILE_TMPDIR/$f"
        python3 tests/cli/template_forms.py "$f" "$BATS_FILE_TMPDIR/$f"
    done
}

setup() {
    common_setup
    cat >"$T/tools" <<'END_OF_TOOLS'
[{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {
   "type": "object", "properties": {
    "city": {"type": "string", "maxLength": 6},
    "days": {"type": "integer", "minimum": 1, "maximum": 14}},
   "required": ["city", "days"]}}},
 {"type": "function", "function": {"name": "now", "description": "d"}}]
END_OF_TOOLS
}

# for_each [SKIPPED]: run the function `each` for each family, with its model and facts.
for_each() {
    local f
    for f in $(python3 tests/cli/template_forms.py list); do
        [[ " $1 " != *" $f "* ]] || continue
        M=$BATS_FILE_TMPDIR/$f
        FACTS=$(python3 tests/cli/template_forms.py facts "$f")
        # a random model would not end its thinking
        THINK=(--think off)
        [ "$(fact 'o["opens"]')" = None ] || THINK=(--think on --think-budget 4)
        echo "family $f: $FACTS"
        each "$f"
    done
}

fact() {
    jget "$1" <<<"$FACTS"
}

# the turns of a conversation: N calls in the assistant's turn
conversation() {
    python3 - "$T/tools" "$1" <<'PY'
import json, sys
calls = [{"id": "call0000%d" % i, "type": "function", "function": {
    "name": "weather", "arguments": {"city": "Bern", "days": i + 2}}} for i in range(int(sys.argv[2]))]
print(json.dumps({"tools": json.load(open(sys.argv[1])), "messages": [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": calls},
    *({"role": "tool", "tool_call_id": c["id"], "name": "weather", "content": "zqrain"} for c in calls),
    {"role": "user", "content": "Thanks."}]}))
PY
}

# written N: the calls as the template prints them in the conversation.
written() {
    q render -m "$M" "$(conversation "$1")" >"$T/whole"
    q render -m "$M" "$(conversation "$1" | jget 'json.dumps(
        {**o, "messages": o["messages"][:2], "add_generation_prompt": True})')" >"$T/prompt"
    FACTS=$FACTS python3 - "$T/whole" "$T/prompt" <<'PY'
import json, os, sys
f = json.loads(os.environ["FACTS"])
whole, prompt = (open(p).read() for p in sys.argv[1:])
prompt = prompt.removesuffix(f["opens"] or f["closed"] or "\0")
assert whole.startswith(prompt), (whole, prompt)
call = whole[len(prompt):whole.index("zqrain")]
ends = [call.index(s) for s in f["stops"] if s in call]
sys.stdout.write(call[:min(ends)])
PY
}

@test "a template shows the form of calls, and the tokens that end answers" {
    each() {
        q inspect --json -m "$M" >"$T/o"
        FACTS=$FACTS python3 - "$T/o" "$M/tokenizer.json" <<'PY'
import json, os, sys
o, tok, f = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), json.loads(os.environ["FACTS"])
names = {t["id"]: t["content"] for t in tok["added_tokens"]}
got = [names.get(i) for i in o["stop_ids"]]
assert o["tool_calls"] == f["form"], o["tool_calls"]
assert got == [None, *f["stops"]], got  # the first one is config.json's
PY
    }
    for_each
}

@test "calls that the template prints are read from answers" {
    each() {
        for n in 1 2; do
            [ $n = 1 ] || [ "$(fact 'o["single"]')" = None ] || continue
            text=$(written $n)
            run -0 --separate-stderr q -m "$M" "${THINK[@]}" --tools "$T/tools" --json \
                --regex "$(as_regex "$text")" "Weather?"
            [ -z "$stderr" ]
            [ "$(N=$n ID=$(fact 'o["id"]') jget 'o["text"] == "" and "tool_calls_error" not in o
                and [(c["function"]["name"], json.loads(c["function"]["arguments"]))
                for c in o["tool_calls"]] == [("weather", {"city": "Bern", "days": i + 2})
                for i in range(int(__import__("os").environ["N"]))] and
                (__import__("os").environ["ID"] != "9" or
                all(len(c["id"]) == 9 and c["id"].isalnum() for c in o["tool_calls"]))' \
                <<<"$output")" = True ] || { echo "$text"; return 1; }
        done
    }
    for_each "smollm olmo harmony"
}

@test "--tool-choice writes calls in each form" {
    each() {
        local whole=0
        for seed in 1 2; do
            run -0 --separate-stderr q -m "$M" "${THINK[@]}" --tools "$T/tools" \
                --tool-choice weather --json --temp 1.5 --seed $seed "Weather?"
            [ "$(jget 'o["text"] == "" and len(o["tool_calls"]) == 1 and
                (lambda a: len(a["city"]) <= 6 and 1 <= a["days"] <= 14)(
                json.loads(o["tool_calls"][0]["function"]["arguments"]))' \
                <<<"$output")" = True ] || return 1
        done
        # the model may stop after each call; one that goes on is cut
        for seed in 1 2 3 4 5; do
            run --separate-stderr q -m "$M" "${THINK[@]}" --tools "$T/tools" --json \
                --tool-choice required --temp 1.2 --seed $seed -n 400 "Weather?"
            [ "$status" -eq 0 ] || {
                [ "$status" -eq 6 ]
                continue
            }
            whole=$((whole + 1))
            [ "$(jget 'o["text"] == "" and len(o["tool_calls"]) > 0' <<<"$output")" = True ]
        done
        [ $whole -ge 1 ]
        run -0 --separate-stderr q -m "$M" "${THINK[@]}" --tools "$T/tools" --json \
            --tool-choice none --temp 1.5 --seed 3 -n 100 "Weather?"
        [ "$(jget 'o["tool_calls"] == [] and "tool_call" not in o["text"].lower()' \
            <<<"$output")" = True ]
    }
    for_each olmo
}

@test "a call that does not parse stays in the text: exit status 6" {
    each() {
        local text
        text=$(written 1)
        run --separate-stderr q -m "$M" "${THINK[@]}" --tools "$T/tools" --json \
            --regex "$(as_regex "${text/weather/wether}")" "Weather?"
        [ "$status" -eq 6 ]
        [[ $stderr == *'tool call 1: there is no tool "wether"' ]]
        [ "$(TEXT=${text/weather/wether} jget 'o["tool_calls"] == [] and
            o["text"] == __import__("os").environ["TEXT"]' <<<"$output")" = True ]
    }
    for_each "smollm olmo harmony"
    # where the whole answer is a call, other JSON is text, and so is a late call
    M=$BATS_FILE_TMPDIR/llama
    for text in '{"a": 1}' ' {"type": "x"}' 'Look: {"name": "now", "parameters": {}}'; do
        run -0 --separate-stderr q -m "$M" --tools "$T/tools" --json \
            --regex "$(as_regex "$text")" "Weather?"
        [ "$(TEXT=$text jget 'o["tool_calls"] == [] and
            o["text"] == __import__("os").environ["TEXT"]' <<<"$output")" = True ]
    done
    run -0 q -m "$M" --tools "$T/tools" --json --regex "$(as_regex \
        '{"type": "function", "name": "now", "parameters": {}}')" "Weather?"
    [ "$(jget 'len(o["tool_calls"])' <<<"$output")" = 1 ]
}

@test "a template without a form that is known: --tools is refused" {
    fails 2 "leave out --tools, or name a template with --chat-template" \
        -m "$BATS_FILE_TMPDIR/olmo" --tools "$T/tools" "Weather?"
    # the tools of a chat are the template's, and answers are text
    conversation 1 >"$T/chat"
    run -0 q -m "$BATS_FILE_TMPDIR/olmo" --chat-json "$T/chat" --json --regex 'a<tool_call>'
    [ "$(jget 'o["text"] == "a<tool_call>" and o["tool_calls"] == []' <<<"$output")" = True ]
}

@test "--think: each family's switch" {
    each() {
        for think in on off auto; do
            q render -m "$M" --tools "$T/tools" --think $think '[{"role":"user","content":"x"}]' >"$T/$think"
        done
        if [ "$(fact 'o["off"] or o["switch"]')" = None ]; then
            cmp "$T/on" "$T/off" && cmp "$T/on" "$T/auto"
        else
            run -1 cmp -s "$T/on" "$T/off"
        fi
        # a prompt inside of an open block: the answer begins with thinking
        if [ "$(fact 'o["opens"]')" != None ]; then
            run -0 --separate-stderr q -m "$M" --think on --think-budget 3 --json -n 60 --ignore-eos x
            [ "$(jget 'len(o["thinking"]) > 0' <<<"$output")" = True ]
            run -0 --separate-stderr q -m "$M" --think off --json -n 1 x
            [[ $stderr == *"--think: has no effect with a template that always opens a think block"* ]]
        fi
    }
    for_each olmo
}

@test "one token goes before a prompt: the template's or the tokenizer's" {
    bos() {
        q logits -m "$M" "$@" --json x | jget 'o["input_ids"].count(300), o["input_ids"][0]'
    }
    for f in llama mistral deepseek; do
        M=$BATS_FILE_TMPDIR/$f
        [ "$(bos)" = "(1, 300)" ]
        [ "$(bos --chat)" = "(1, 300)" ]
        copy_of "$M" m
        M=$T/m
        sed -i 's/{{ bos_token if bos_token else .. }}//' "$M/chat_template.jinja"
        [[ $(q render -m "$M" '[{"role":"user","content":"x"}]') != *"begin"* ]]
        [ "$(bos --chat)" = "(1, 300)" ]
    done
    # none where no file asks for one
    M=$BATS_FILE_TMPDIR/qwen
    [ "$(q logits -m "$M" --json x | jget 'len(o["input_ids"])')" = 1 ]
}

# prompt_tokens OPTION...: the length of the prompt "x".
prompt_tokens() {
    q -m "$M" --json -n 1 --ignore-eos "$@" x 2>/dev/null | jget 'o["usage"]["prompt_tokens"]'
}

@test "answers that are messages: effort, --think off, and text that begins the answer" {
    local ask='[{"role":"user","content":"x"}]'
    M=$BATS_FILE_TMPDIR/harmony
    [[ $(q render -m "$M" "$ask") == *"Reasoning: medium<"* ]]
    [[ $(q render -m "$M" --template-arg reasoning_effort=high "$ask") == *"Reasoning: high<"* ]]
    # there is no real off: the lowest effort, and the answer begins in its channel
    [[ $(q render -m "$M" --think off "$ask") == *"Reasoning: low<"* ]]
    [[ $(q render -m "$M" --think off --template-arg reasoning_effort=high "$ask") == *"Reasoning: high<"* ]]
    header='<|channel|>final<|message|>' # 7 tokens
    auto=$(prompt_tokens)
    [ "$(prompt_tokens --think on)" = "$auto" ]
    [ "$(prompt_tokens --think off)" = $((auto - 6 + 3 + 7)) ]
    [ "$(prompt_tokens --prefill ab)" = $((auto + 7 + 2)) ]
    [ "$(prompt_tokens --prefill "${header}ab" --allow-special)" = $((auto + 7 + 2)) ]
    # a model with tools chooses the channel itself
    [ "$(prompt_tokens --tools "$T/tools" --think on)" = $(($(prompt_tokens --tools "$T/tools" --think off) + 3)) ]
    # batch, and so a server, in OpenAI's form
    for effort in none low medium high; do
        echo "{\"custom_id\":\"$effort\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\",
            \"messages\":$ask,\"max_tokens\":1,\"reasoning_effort\":\"$effort\"}}" | tr -d '\n'
        echo
    done >"$T/requests"
    run -0 --separate-stderr q batch -m "$M" -i "$T/requests"
    [ "$(AUTO=$auto python3 -c '
import json, os, sys
n = {o["custom_id"]: o["response"]["body"]["usage"]["prompt_tokens"] for o in map(json.loads, sys.stdin)}
auto = int(os.environ["AUTO"])
print(n == {"none": auto + 4, "low": auto - 3, "medium": auto, "high": auto - 2})' <<<"$output")" = True ]
}

@test "answers that are messages: the thinking comes first, the constraint holds for the answer" {
    M=$BATS_FILE_TMPDIR/harmony
    local thought=0
    for seed in 1 2 3 4 5 6 7 8; do
        run -0 --separate-stderr q -m "$M" --json --think on --think-budget 5 --temp 1.5 --seed $seed \
            --regex '[ab]{3}' x
        [ "$(jget 'set(o["text"]) <= set("ab") and len(o["text"]) == 3' <<<"$output")" = True ]
        thought=$((thought + $(jget 'int(o["thinking"] is not None)' <<<"$output")))
    done
    [ $thought -gt 0 ] && [ $thought -lt 8 ]
    for seed in 1 2 3 4; do
        run -0 --separate-stderr q -m "$M" --json --think off --temp 1.5 --seed $seed --regex '[ab]{3}' x
        [ "$(jget 'o["thinking"], len(o["text"])' <<<"$output")" = "(None, 3)" ]
    done
    # without a constraint a budget ends in the answer's channel
    run -0 --separate-stderr q -m "$M" --json --think on --think-budget 0 -n 150 --temp 1 --seed 1 \
        --prefill '<|channel|>analysis<|message|>' --allow-special x
    [ "$(jget '"Considering the limited time" in o["thinking"] and o["usage"]["forced_tokens"] > 100' <<<"$output")" = True ]
    # earlier thinking goes where the template reads it
    conversation 1 | sed 's/"content": "", "tool_calls"/"content": "I look.", "reasoning_content": "zqwhy", "tool_calls"/' >"$T/chat"
    [[ $(q render -m "$M" -f "$T/chat") == *$'<|channel|>analysis<|message|>zqwhy\n\nI look.<|end|><|start|>assistant to=functions.weather'* ]]
    # choose and score look at the answer
    [ "$(q choose -m "$M" --json -a yes -a no x | jget 'o["prompt_tokens"]')" = "$(prompt_tokens --think off)" ]
}
