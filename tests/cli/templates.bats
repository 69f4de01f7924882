#!/usr/bin/env bats
# Chat templates of checkpoints and of users.
load helpers

setup() {
    common_setup
    CHAT='[{"role":"user","content":"a"}]'
}

# A copy of the demo model in $T/m with another chat template.
with_template() {
    copy_of models/demo m
    printf '%s' "$1" >"$T/m/chat_template.jinja"
}

@test "the checkpoint's own template renders prompts, without a warning" {
    with_template "{{ eos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    run -0 --separate-stderr q render -m "$T/m" '[{"role":"user","content":" a "}]'
    [ "$output" = "<|im_end|>[user] a
[assistant]" ]
    [ -z "$stderr" ]
    run -0 --separate-stderr q -m "$T/m" -n 2 --json hi
    [[ $stderr != *template* ]]
    q inspect -m "$T/m" | grep -q '^template  *jinja$'
}

@test "text of messages never becomes a control token of a template" {
    with_template "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    [ "$(q logits -m "$T/m" --chat --json "<|im_end|>" |
        jget 'o["input_ids"].count(6137), o["input_ids"][-1]')" = "(1, 6137)" ]
}

@test "a broken template fails where it is needed, with its line" {
    with_template "a
{% if %}"
    run -3 --separate-stderr q -m "$T/m" hi
    one_error_line
    [[ $stderr == *"chat_template.jinja: line 2: expected an expression"* ]]
    run -3 --separate-stderr q render -m "$T/m" '[{"role":"user","content":"a"}]'
    [[ $stderr == *"line 2"* ]]
    run -0 --separate-stderr q --raw -m "$T/m" -n 1 hi
    [ -z "$stderr" ]
}

@test "a template that refuses a chat, and one that never ends" {
    with_template "{% if messages | length > 1 %}
{{ raise_exception('only one message') }}{% endif %}x"
    fails 2 "line 2: the template refuses the chat: only one message" -m "$T/m" -s x hi
    printf '%s' "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}" >"$T/m/chat_template.jinja"
    fails 3 "exceeds a bound" -m "$T/m" hi
}

@test "tokenizer_config.json has the template, or named ones" {
    with_template ""
    rm "$T/m/chat_template.jinja"
    config() {
        json_edit "$T/m/tokenizer_config.json" 'o["chat_template"] = '"$1"
    }
    chat='{"messages":[{"role":"user","content":"a"}]}'
    tools='{"messages":[{"role":"user","content":"a"}],"tools":[{"name":"t"}]}'
    config '"one {{ messages[0].content }}"'
    [ "$(q render -m "$T/m" "$chat")" = "one a" ]
    config '[{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t{{ tools[0].name }}"}]'
    [ "$(q render -m "$T/m" "$chat")" = "d" ]
    [ "$(q render -m "$T/m" "$tools")" = "tt" ]
    config '[{"name": "other", "template": "o"}]'
    run -0 --separate-stderr q -m "$T/m" -n 1 --ignore-eos hi
    [ "${#stderr_lines[@]}" -eq 2 ]
    [[ ${stderr_lines[0]} == *"none of its 1 templates is named default"* ]]
    [[ ${stderr_lines[1]} == *"has no chat template"* ]]
}

@test "--chat-template: a name of the checkpoint, or a file" {
    with_template "x"
    rm "$T/m/chat_template.jinja"
    json_edit "$T/m/tokenizer_config.json" 'o["chat_template"] = [
        {"name": "default", "template": "d"},
        {"name": "rag", "template": "r{{ eos_token }}"}]'
    [ "$(q render -m "$T/m" --chat-template rag "$CHAT")" = "r<|im_end|>" ]
    printf 'mine {{ messages[0].content }}' >"$T/my.jinja"
    [ "$(q render -m "$T/m" --chat-template "$T/my.jinja" "$CHAT")" = "mine a" ]
    [ "$(q render --chat-template "$T/my.jinja" "$CHAT")" = "mine a" ]
    fails 2 "chat template zz: no such file, and $T/m has only default, rag" \
        render -m "$T/m" --chat-template zz "$CHAT"
    : >"$T/empty"
    fails 2 "chat template: is empty" render --chat-template "$T/empty" "$CHAT"
    printf '{%% if' >"$T/bad"
    fails 3 "bad: line 1: " render --chat-template "$T/bad" "$CHAT"
    run -1 q render --chat-template "$T" "$CHAT"
}

@test "named templates in files of their own" {
    with_template "d"
    d=$T/m/additional_chat_templates
    mkdir "$d"
    printf 't{{ tools[0].name }}' >"$d/tool_use.jinja"
    printf 'r{{ eos_token }}' >"$d/rag.jinja"
    tools='{"messages":[{"role":"user","content":"a"}],"tools":[{"name":"t"}]}'
    [ "$(q render -m "$T/m" "$CHAT")" = "d" ]
    [ "$(q render -m "$T/m" "$tools")" = "tt" ]
    [ "$(q render -m "$T/m" --chat-template rag "$CHAT")" = "r<|im_end|>" ]
    [ "$(q render -m "$T/m" --chat-template default "$tools")" = "d" ]
    fails 2 "chat template zz: no such file, and $T/m has only rag, tool_use" \
        render -m "$T/m" --chat-template zz "$CHAT"
    printf '{%% if' >"$d/rag.jinja"
    fails 3 "additional_chat_templates/rag.jinja: line 1: " render -m "$T/m" --chat-template rag "$CHAT"
    printf 'x' >"$T/m/secret.jinja"
    fails 2 "chat template ../secret: no such file" render -m "$T/m" --chat-template ../secret "$CHAT"
    # they win over tokenizer_config.json's
    json_edit "$T/m/tokenizer_config.json" 'o["chat_template"] = [
        {"name": "default", "template": "x"}, {"name": "rag", "template": "x"},
        {"name": "old", "template": "old"}]'
    [ "$(q render -m "$T/m" "$CHAT")" = "d" ]
    printf 'rag' >"$d/rag.jinja"
    [ "$(q render -m "$T/m" --chat-template rag "$CHAT")" = "rag" ]
    [ "$(q render -m "$T/m" --chat-template old "$CHAT")" = "old" ]
    # no directory
    rm -r "$d"
    : >"$d"
    [ "$(q render -m "$T/m" "$CHAT")" = "d" ]
}

@test "--template-arg: JSON or text" {
    printf '%s' "{{ a }}|{{ a is string }}|{{ b is defined }}" >"$T/t"
    arg() {
        q render --chat-template "$T/t" --template-arg "$1" "$CHAT"
    }
    [ "$(arg a=low)" = "low|True|False" ]
    [ "$(arg a=)" = "|True|False" ]
    [ "$(arg a=b=c)" = "b=c|True|False" ]
    [ "$(arg a=3)" = "3|False|False" ]
    [ "$(arg a=true)" = "True|False|False" ]
    [ "$(arg 'a="3"')" = "3|True|False" ]
    [ "$(arg 'a=[1, "x"]')" = "[1, 'x']|False|False" ]
    [ "$(arg b=1)" = "|False|True" ]
    fails 2 "is not NAME=VALUE" render --template-arg a "$CHAT"
    fails 2 "is not NAME=VALUE" render --template-arg =1 "$CHAT"
    fails 2 "a: is given twice" render --template-arg a=1 --template-arg a=2 "$CHAT"
    fails 2 "template argument tools: the chat gives it" render --template-arg tools=1 "$CHAT"
}

@test "a template argument reaches Qwen3's template, and the chat overrules it" {
    q render --think off "$CHAT" >"$T/off"
    q render --template-arg enable_thinking=false "$CHAT" | cmp - "$T/off"
    q render "$CHAT" >"$T/on"
    run -1 cmp -s "$T/on" "$T/off"
    q render --template-arg enable_thinking=false --think on "$CHAT" | cmp - "$T/on"
    # with any argument the interpreter renders it
    q render --template-arg unused=1 "$CHAT" | cmp - "$T/on"
}

@test "--template-time" {
    printf '%s' "{{ strftime_now('%Y-%m-%d %H:%M:%S %a %j') }}" >"$T/t"
    at() {
        q render --chat-template "$T/t" --template-time "$1" "$CHAT"
    }
    [ "$(at "2026-11-22 10:30:07")" = "2026-11-22 10:30:07 Sun 326" ]
    [ "$(at 2024-02-29T23:59)" = "2024-02-29 23:59:00 Thu 060" ]
    [ "$(at 2026-11-22)" = "2026-11-22 00:00:00 Sun 326" ]
    for bad in now 2026-02-30 2026-13-01 26-11-22 "2026-11-22 24:00" \
        "2026-11-22 10:30:00 " "2026-11-22 10"; do
        fails 2 "template time: must be" render --chat-template "$T/t" \
            --template-time "$bad" "$CHAT"
    done
    [[ $(q render --chat-template "$T/t" "$CHAT") == 2???-* ]]
}

@test "options of templates where no template is used" {
    fails 2 "--template-arg: has no effect with --raw" --raw --template-arg a=1 hi
    fails 2 "--template-time: has no effect with --prompt-ids" \
        --template-time 2026-01-01 --prompt-ids 1
    fails 2 "--chat-template: has no effect without --chat" \
        logits --chat-template x hi
    with_template ""
    rm "$T/m/chat_template.jinja"
    json_edit "$T/m/tokenizer_config.json" 'o.pop("chat_template", None)'
    fails 2 "--template-arg: has no effect with a checkpoint that has no chat template" \
        -m "$T/m" --template-arg a=1 hi
    # a file makes up for it
    printf '{{ messages[0].content }}' >"$T/t"
    [ "$(q render -m "$T/m" --chat-template "$T/t" "$CHAT")" = a ]
}

@test "the same prompt in all verbs that render chats" {
    printf '%s' "{{ a }}{{ messages[-1].content }}<|im_end|>" >"$T/t"
    want=$(q tokenize "Qx<|im_end|>")
    set -- --chat-template "$T/t" --template-arg a=Q
    [ "$(q logits --chat "$@" --json x | jget '*o["input_ids"],' | tr -d '(,)')" = "$want" ]
    n=$(wc -w <<<"$want")
    [ "$(q "$@" -n 1 --json x | jget 'o["usage"]["prompt_tokens"]')" = "$n" ]
    [ "$(printf '%s\n' '{"prompt":"x"}' | "$QWICK" batch "$@" -n 1 |
        jget 'o["usage"]["prompt_tokens"]')" = "$n" ]
}

@test "messages that agents send: every verb gives the template what it takes" {
    messages='[{"role":"system","content":"S"},{"role":"developer","content":"D"},
        {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"w","arguments":"{\"city\": \"A\"}"}}]},
        {"role":"tool","tool_call_id":"c1","content":"22"},{"role":"system","content":"T"}]'
    want=$(printf '<|im_start|>%s<|im_end|>\n' "system
S

D

T" "user
ab" "assistant

w city=A" "tool
22")
    set -- --chat-template tests/data/agents.jinja
    [ "$(q render "$@" "$messages")" = "$want
<|im_start|>assistant" ]
    chat=$(tr -d '\n' <<<"$messages")
    echo "{\"messages\":$chat}" >"$T/jsonl"
    [ "$("$QWICK" render --jsonl "$@" <"$T/jsonl" | jget 'o["text"]')" = "$want
<|im_start|>assistant" ]
    n=$(q render "$@" "$messages" | "$QWICK" count)
    echo "$messages" >"$T/chat"
    [ "$(q "$@" -n 1 --json --chat-json "$T/chat" --no-stdin | jget 'o["usage"]["prompt_tokens"]')" = "$n" ]
    [ "$("$QWICK" batch "$@" -n 1 <"$T/jsonl" | jget 'o["usage"]["prompt_tokens"]')" = "$n" ]
    # -s is for records without a system message
    [ "$("$QWICK" batch "$@" -s other -n 1 <"$T/jsonl" | jget 'o["usage"]["prompt_tokens"]')" = "$n" ]
    [ "$(echo '{"messages":[{"role":"developer","content":"x"},{"role":"user","content":"y"}]}' |
        "$QWICK" batch "$@" -s other -n 1 | jget 'o["usage"]["prompt_tokens"]')" = \
        "$(q "$@" -s x -n 1 --json y | jget 'o["usage"]["prompt_tokens"]')" ]
    printf '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"max_tokens":1,"messages":%s}}\n' \
        "$chat" >"$T/openai"
    [ "$("$QWICK" batch "$@" <"$T/openai" |
        jget 'o["response"]["body"]["usage"]["prompt_tokens"]')" = "$n" ]
}

@test "content as text parts reaches a template as one text" {
    printf '%s' "{{ messages[0].content is string }} {{ messages[0].content }}" >"$T/t"
    [ "$(q render --chat-template "$T/t" '[{"role":"user","content":
        [{"type":"text","text":"a"},{"type":"text","text":"b"}]}]')" = "True a
b" ]
}

@test "templates of a GGUF file, with its special tokens" {
    python3 tests/cli/gguf.py convert models/demo "$T/demo.gguf"
    python3 tests/cli/gguf.py edit "$T/demo.gguf" "$T/t.gguf" "
kv['tokenizer.chat_template'] = [8, b'd{{ eos_token }}']
kv['tokenizer.chat_template.tool_use'] = [8, b't{{ tools[0].name }}']
kv['tokenizer.chat_template.rag'] = [8, b'r']"
    [ "$(q render -m "$T/t.gguf" "$CHAT")" = "d<|im_end|>" ]
    [ "$(q render -m "$T/t.gguf" '{"messages":[{"role":"user","content":"a"}],
        "tools":[{"name":"x"}]}')" = "tx" ]
    [ "$(q render -m "$T/t.gguf" --chat-template rag "$CHAT")" = "r" ]
    fails 2 "chat template zz: no such file" \
        render -m "$T/t.gguf" --chat-template zz "$CHAT"
    printf 'mine' >"$T/my"
    [ "$(q render -m "$T/t.gguf" --chat-template "$T/my" "$CHAT")" = "mine" ]
    # without one
    python3 tests/cli/gguf.py edit "$T/demo.gguf" "$T/t.gguf" \
        "kv.pop('tokenizer.chat_template', None)"
    run -0 --separate-stderr q -m "$T/t.gguf" --think off --ignore-eos -n 2 hi
    one_error_line
    [[ $stderr == *"warning: "*" has no chat template: the model continues the prompt as a raw text"* ]]
    run -0 --separate-stderr q -m "$T/t.gguf" --raw --ignore-eos -n 2 hi
    [ -z "$stderr" ]
    python3 tests/cli/gguf.py edit "$T/demo.gguf" "$T/t.gguf" \
        "kv['tokenizer.chat_template'] = [8, b'a\xff']"
    fails 3 "offset 1: the template is not UTF-8" render -m "$T/t.gguf" "$CHAT"
}
