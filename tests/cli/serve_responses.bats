#!/usr/bin/env bats
# serve: /v1/responses. Its answers are those of chat completions; each event of a stream
# is checked; items of an answer come back as input.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start main --exact
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

# Python for the tests: an answer with and without stream.
RESPONSES='
import json, os, re, sys
from responses_events import *
from serve_client import *
s = sys.argv[1]
PATH = "/v1/responses"
CHAT = "/v1/chat/completions"
OFF = {"reasoning": {"effort": "none"}}
def function(name, strict=None, **properties):
    return {"type": "function", "name": name, "description": "d", "strict": strict, "parameters": {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}
WEATHER = function("weather", city={"type": "string", "enum": ["Bern", "Basel"]})
NOW = function("now")
def message(text, role="user"):
    return {"role": role, "content": text}
def bare(o):
    """Without what differs between two answers to the same request."""
    if isinstance(o, dict):
        return {k: bare(v) for k, v in o.items() if k not in ("id", "call_id", "created_at", "completed_at")
                and not k.startswith("cache") and not (k == "logprobs")}
    return [bare(v) for v in o] if isinstance(o, list) else o
def events(body):
    with Stream(s, PATH, {**body, "stream": True}) as w:
        got = list(w.named())
        assert w.r.headers["Content-Type"].startswith("text/event-stream")
        return got
def both(body):
    """The answer without a stream; that of a stream is equal."""
    r = post(s, PATH, body)
    assert r.status == 200, (r.status, r.body)
    check_response(r.json, r.json["status"])
    streamed = check(events(body))
    assert bare(streamed) == bare(r.json), (streamed, r.json)
    return r.json
def texts(r, kind="message", part="output_text", members=("content",)):
    return "".join(p["text"] for i in r["output"] if i["type"] == kind for m in members for p in i[m]
                   if p["type"] == part)
def calls(r):
    return [i for i in r["output"] if i["type"] == "function_call"]
def refused(body, param, status=400):
    r = post(s, PATH, body)
    assert r.status == status, (body, r.status, r.body)
    assert r.error["param"] == param, (body, r.body)
    assert r.error["type"] == "invalid_request_error"
    e = post(s, PATH, {**body, "stream": True})
    assert e.status == status and e.error == r.error, e.body
    return r.error["message"]
'

responses_py() {
    { echo "$RESPONSES"; cat; } >"$T/test.py"
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S "$T/test.py" "$S" "$@"
}

@test "the answer is that of chat completions: text, instructions, sampling, length" {
    responses_py <<'PY'
for text, chat, more in (
        ("list files", {}, {}),
        ("show disk usage", {"max_tokens": 3}, {"max_output_tokens": 3}),
        ("list files", {"temperature": 1.2, "seed": 7, "top_p": 0.9}, {"temperature": 1.2, "seed": 7, "top_p": 0.9}),
        ("list files", {"reasoning_effort": "none"}, OFF),
        ("list files", {"reasoning_effort": "high"}, {"reasoning": {"effort": "high", "summary": None}}),
        ("list files", {"chat_template_kwargs": {"enable_thinking": False}},
         {"chat_template_kwargs": {"enable_thinking": False}}),
        ("list files", {"regex": "[a-z ]{20}", "temperature": 1, "seed": 3},
         {"regex": "[a-z ]{20}", "temperature": 1, "seed": 3})):
    for system in None, "Be brief.":
        messages = [message(text)] if system is None else [message(system, "system"), message(text)]
        want = post(s, CHAT, {"messages": messages, **chat}).json
        got = both({"input": text, "instructions": system, **more})
        c = want["choices"][0]
        assert texts(got) == c["message"]["content"], (got, want)
        assert (got["status"] == "incomplete") == (c["finish_reason"] == "length"), (got, want)
        u, w = got["usage"], want["usage"]
        assert (u["input_tokens"], u["output_tokens"]) == (w["prompt_tokens"], w["completion_tokens"]), (u, w)
        assert got["instructions"] == system and got["model"] == want["model"]
        assert got["temperature"] == round(chat.get("temperature", 0), 6) or abs(got["temperature"] - 1.2) < 1e-6
PY
}

@test "items of input: roles, parts, an answer's items are one message" {
    responses_py <<'PY'
def same(items, messages, **more):
    """The items are these messages of a chat."""
    tools = {"tools": [WEATHER]} if more else {}
    chat = {"tools": [{"type": "function", "function": {k: WEATHER[k] for k in ("name", "description", "parameters")}}]} \
        if more else {}
    got = post(s, PATH, {"input": items, "max_output_tokens": 9, **tools})
    want = post(s, CHAT, {"messages": messages, "max_tokens": 9, **chat})
    assert got.status == want.status == 200, (got.body, want.body)
    assert got.json["usage"]["input_tokens"] == want.json["usage"]["prompt_tokens"], (items, messages)
    cached = want.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == want.json["usage"]["prompt_tokens"] - 1, want.json
    assert texts(got.json) == (want.json["choices"][0]["message"]["content"] or ""), (got.json, want.json)
def item(role, *parts, **more):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": t} for t in parts], **more}
same([message("list files")], [message("list files")])
same([item("user", "list files")], [message("list files")])
same([item("user", "list", "files")], [message("list\nfiles")])
same([item("developer", "Be brief."), item("system", "Be good."), item("user", "a")],
     [message("Be brief.", "system"), message("Be good.", "system"), message("a")])
same([item("user", "a"), item("assistant", "b", id="msg_1", status="completed", phase="final_answer"), item("user", "c")],
     [message("a"), message("b", "assistant"), message("c")])
call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city": "Bern"}',
        "status": "completed"}
result = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
asked = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
answer = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}],
           "encrypted_content": None}
same([item("user", "a"), call, result], [message("a"), {"role": "assistant", "content": "", "tool_calls": [asked]}, answer],
     tools=1)
same([item("user", "a"), thought, item("assistant", "Look:"), call, {**call, "call_id": "c2"}, result,
      {**result, "call_id": "c2", "output": [{"type": "input_text", "text": "sunny"}]}],
     [message("a"), {"role": "assistant", "content": "Look:", "reasoning_content": "Hm.",
                     "tool_calls": [asked, {**asked, "id": "c2"}]}, answer, {**answer, "tool_call_id": "c2"}], tools=1)
# thinking that comes back as a summary, and another server's items
same([item("user", "a"), {**thought, "content": None, "summary": [{"type": "summary_text", "text": "Hm."}]},
      {"type": "web_search_call", "id": "ws_1", "status": "completed"}, call, result],
     [message("a"), {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [asked]}, answer], tools=1)
same([item("user", "a"), {**call, "arguments": ""}, result],
     [message("a"), {"role": "assistant", "content": "", "tool_calls": [
         {**asked, "function": {"name": "weather", "arguments": "{}"}}]}, answer], tools=1)
same([item("user", "a"), {"type": "custom_tool_call", "call_id": "c1", "name": "weather", "input": "x\ny"},
      {"type": "custom_tool_call_output", "call_id": "c1", "output": "sunny"}],
     [message("a"), {"role": "assistant", "content": "", "tool_calls": [
         {**asked, "function": {"name": "weather", "arguments": {"input": "x\ny"}}}]}, answer], tools=1)
same([item("user", "a"), {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
      item("user", "b")], [message("a"), message("No.", "assistant"), message("b")])
PY
}

@test "tools: functions, namespaces, those of vendors; tool_choice; parallel_tool_calls" {
    responses_py <<'PY'
base = {"input": "list files", "tools": [WEATHER, NOW], **OFF}
r = both({**base, "tool_choice": {"type": "function", "name": "weather"}})
k, = calls(r)
assert k["name"] == "weather" and json.loads(k["arguments"])["city"] in ("Bern", "Basel"), k
assert len(r["output"]) == 1 and r["status"] == "completed" and r["tools"] == [WEATHER, NOW], r
assert r["tool_choice"] == {"type": "function", "name": "weather"}
r = both({**base, "tool_choice": "required", "parallel_tool_calls": False})
assert len(calls(r)) == 1 and r["parallel_tool_calls"] is False, r
r = both({**base, "tool_choice": "none", "max_output_tokens": 5})
assert not calls(r), r
# text before calls, between them and behind them
text = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
bern, now = text % ("weather", '{"city": "Bern"}'), text % ("now", "{}")
r = both({**base, "regex": re.escape("Look:\n" + bern + "\n" + now)})
assert [i["type"] for i in r["output"]] == ["message", "function_call", "function_call"], r
assert texts(r) == "Look:" and [k["name"] for k in calls(r)] == ["weather", "now"], r
assert len({k["call_id"] for k in calls(r)}) == 2, r
r = both({**base, "regex": re.escape("Look:\n" + bern + "\nAnd:\n" + now + "\nSo.")})
assert [i["type"] for i in r["output"]] == ["message", "function_call"] * 2 + ["message"], r
assert [i["content"][0]["text"] for i in r["output"] if i["type"] == "message"] == ["Look:", "And:", "So."], r
# a call that is cut is no call
r = both({**base, "tool_choice": {"type": "function", "name": "weather"}, "max_output_tokens": 6})
assert r["status"] == "incomplete" and not calls(r) and "<tool_call>" not in texts(r), r
# functions of a namespace have both names, and come back with them
space = {"type": "namespace", "name": "mcp__sky__", "description": "d",
         "tools": [WEATHER, {"type": "custom", "name": "patch"}]}
web = {"type": "web_search", "external_web_access": False}
r = both({**base, "tools": [NOW, web, space, {"type": "local_shell"}],
          "tool_choice": {"type": "function", "name": "weather", "namespace": "mcp__sky__"}})
k, = calls(r)
assert k["name"] == "weather" and k["namespace"] == "mcp__sky__", k
assert r["tools"] == [NOW, space], r
r = both({**base, "tools": [NOW, space], "tool_choice": {"type": "function", "name": "mcp__sky__weather"}})
assert calls(r)[0]["namespace"] == "mcp__sky__", r
n = [post(s, PATH, {"input": [message("a"), {**k, **more}, {"type": "function_call_output", "call_id": k["call_id"],
     "output": "b"}], "max_output_tokens": 1}).json["usage"]["input_tokens"]
     for more in ({}, {"namespace": None, "name": "mcp__sky__weather"})]
assert n[0] == n[1], n
# strict decides about keywords that cannot be held
for strict, status in ((None, 200), (False, 200), (True, 400)):
    f = function("f", strict, a={"$ref": "#/no"})
    assert post(s, PATH, {**base, "tools": [f], "max_output_tokens": 3}).status == status, strict
refused({**base, "tools": [function("f", True, a={"$ref": "#/no"})]}, "tools")
for tools in ([{"name": "f"}], [{"type": "function"}], "f", [NOW, NOW], [{"type": "namespace", "tools": []}],
              [{"type": "function", "name": "f", "parameters": 1}], [{"type": "function", "name": "f", "strict": "yes"}],
              [space, {**NOW, "name": "mcp__sky__weather"}], [5]):
    refused({**base, "tools": tools}, "tools")
for choice in ({"type": "web_search"}, {"type": "custom", "name": "patch"}, "always", {"type": "function"},
               {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "now"}]},
               {"type": "function", "name": "no"}):
    refused({**base, "tool_choice": choice}, "tool_choice")
refused({**base, "tools": [web], "tool_choice": "required"}, "tool_choice")
PY
    equal "$(grep -c '"web_search"' "$D/main.err")" 1
    equal "$(grep -c local_shell "$D/main.err")" 1
}

@test "text.format: schemas; an answer that is cut is incomplete" {
    responses_py <<'PY'
schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}, "b": {"enum": ["x", "y"]}},
          "required": ["a", "b"], "additionalProperties": False}
body = {"input": "list files", "temperature": 1, "seed": 2}
form = {"type": "json_schema", "name": "n", "strict": True, "schema": schema}
r = both({**body, "text": {"format": form, "verbosity": "low"}})
o = json.loads(texts(r))
assert set(o) == {"a", "b"} and 1 <= o["a"] <= 9 and o["b"] in ("x", "y"), o
assert r["text"] == {"format": form, "verbosity": "low"}, r
r = both({**body, "text": {"format": {"type": "json_object"}}, "max_output_tokens": 300})
assert r["status"] == "incomplete" or isinstance(json.loads(texts(r)), dict), r
assert both({**body, **OFF, "text": {"format": {"type": "text"}}, "max_output_tokens": 3})["output"]
r = both({**body, "regex": "[a-z]{60}", "max_output_tokens": 8, **OFF})
assert r["status"] == "incomplete" and r["output"][-1]["status"] == "incomplete", r
assert r["usage"]["output_tokens"] == 8 and r["max_output_tokens"] == 8
r = both({"input": "list files " * 970, "regex": "[a-z ]{9000}", **OFF}) # to the context's end
assert r["status"] == "incomplete" and r["usage"]["total_tokens"] <= 2049, r["usage"]
for bad in ({"type": "json_schema", "name": "n"}, {"type": "json_schema", "name": "n", "schema": {"type": "nothing"}},
            {"type": "yaml"}, {**form, "strict": 1}):
    refused({**body, "text": {"format": bad}}, "text")
refused({**body, "text": 1}, "text")
PY
}

@test "thinking: an item of its own, as content or as summary" {
    responses_py <<'PY'
def ids(text):
    return post(s, "/tokenize", {"text": text}).json["ids"]
body = {"input": "list files", "regex": "[ab]{3}c", "temperature": 1, "seed": 5, "max_output_tokens": 60,
        "logit_bias": {str(ids("\n\n")[0]): -100, str(ids("</think>")[0]): 5}}
r = both(body)
assert [i["type"] for i in r["output"]] == ["reasoning", "message"], r
thought = texts(r, "reasoning", "reasoning_text")
assert thought and r["output"][0]["summary"] == [], r
assert r["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
q = both({**body, "reasoning": {"summary": "auto"}})
assert texts(q, "reasoning", "summary_text", ["summary"]) == thought and q["output"][0]["content"] == [], q
assert q["reasoning"] == {"effort": None, "summary": "auto"} and texts(q) == texts(r)
# cut in the thinking: no message
r = both({**body, "max_output_tokens": 2})
assert r["status"] == "incomplete" and [i["type"] for i in r["output"]] in ([], ["reasoning"]), r
PY
}

@test "logprobs: with include, also in a stream" {
    responses_py <<'PY'
body = {"input": "list files", "max_output_tokens": 4, **OFF}
want = post(s, CHAT, {"messages": [message("list files")], "max_tokens": 4, "logprobs": True, "top_logprobs": 3,
                      "reasoning_effort": "none"}).json["choices"][0]["logprobs"]["content"]
for more in ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, {"top_logprobs": 3}):
    got = post(s, PATH, {**body, **more}).json["output"][0]["content"][0]["logprobs"]
    assert got == want, (got, want)
    assert check(events({**body, **more}))["output"][0]["content"][0]["logprobs"] == want
none = both({**body, "include": ["message.output_text.logprobs"]})["output"][0]["content"][0]["logprobs"]
assert [(t["token"], t["logprob"]) for t in none] == [(t["token"], t["logprob"]) for t in want]
assert both({**body, "include": ["reasoning.encrypted_content"]})["output"][0]["content"][0]["logprobs"] == []
refused({**body, "top_logprobs": 21}, "top_logprobs")
refused({**body, "include": "x"}, "include")
PY
}

@test "refusals name the member; what has no effect is taken" {
    responses_py <<'PY'
for body, param in (
        ({}, "input"), ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"),
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "a", "conversation": "conv_1"}, "conversation"),
        ({"input": "a", "prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": "a", "background": True}, "background"),
        ({"input": "a", "instructions": ["b"]}, "instructions"),
        ({"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "a", "temperature": "hot"}, "temperature"), ({"input": "a", "top_p": 2}, "top_p"),
        ({"input": "a", "stream_options": None, "reasoning": "high"}, "reasoning"),
        ({"input": "a", "reasoning": {"effort": 1}}, "reasoning"),
        ({"input": "a", "metadata": {"a": 1}}, "metadata"),
        ({"input": "a", "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"input": "a", "model": 1}, "model"),
        ({"input": "list files " * 2000}, "input")):
    refused(body, param)
def bad(*items):
    return refused({"input": list(items)}, "input")
assert "input_image" in bad({"role": "user", "content": [{"type": "input_image", "image_url": "http://a/b"}]})
assert "input_file" in bad({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]})
assert "item_reference" in bad(message("a"), {"type": "item_reference", "id": "msg_1"})
assert "item 1" in bad(message("a"), {"type": "computer_call"})
for item in (5, {}, {"type": 5}, {"role": "robot", "content": "a"}, {"role": "user"}, {"role": "user", "content": [5]},
             {"role": "user", "content": [{"type": "input_text"}]}, {"type": "message", "content": "a"},
             {"type": "function_call", "name": "f", "arguments": "{}"}, {"type": "function_call", "call_id": "c", "arguments": "{}"},
             {"type": "function_call", "call_id": "c", "name": "f"}, {"type": "function_call_output", "output": "a"},
             {"type": "function_call_output", "call_id": "c"}, {"type": "reasoning", "summary": 5}):
    bad(message("a"), item)
context = post(s, PATH, {"input": "list files " * 2000}).error
assert context["code"] == "context_length_exceeded" and "2048" in context["message"], context
body = {"input": "list files", "max_output_tokens": 4}
want = both(body)
more = {"model": "gpt-9", "user": "me", "metadata": {"a": "b"}, "store": True, "prompt_cache_key": "k", "service_tier": "auto",
        "truncation": "auto", "client_metadata": {"x": "y"}, "safety_identifier": "i", "stream_options": {"include_obfuscation": True},
        "background": False, "previous_response_id": None, "tools": None, "tool_choice": None, "max_tool_calls": 3, "zork_responses": 1}
got = both({**body, **more})
assert bare(got["output"]) == bare(want["output"]) and got["metadata"] == {"a": "b"} and got["model"] == want["model"], got
assert got["truncation"] == "disabled" and got["store"] is False, got
assert get(s, PATH).status == 405 and get(s, PATH + "/resp_1").status == 404
assert request(s, "POST", PATH, b"{").error["type"] == "invalid_request_error"
# a number that JSON cannot say again, where it would have no effect
for member in b'"text": {"x": 1e400}', b'"tools": [{"type": "function", "name": "f", "x": [-1e999]}]', b'"temperature": 1e400':
    r = request(s, "POST", PATH, b'{"input": "a", "max_output_tokens": 1, %s}' % member)
    assert r.status == 400 and "out of range" in r.error["message"], r.body
PY
    equal "$(grep -c zork_responses "$D/main.err")" 1
}

@test "an agent's turns: a call, its result, the answer; the next turn is cached" {
    mkdir "$D/thinks"
    cp tests/golden/models/tied-bf16/{config.json,model.safetensors} "$D/thinks"
    python3 tests/cli/template_forms.py qwen "$D/thinks"
    cat >"$D/thinks/chat_template.jinja" <<'END'
{%- for t in tools or [] %}{{ t|tojson + '\n' }}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments|tojson + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% else %}{{ '<think>' }}{% endif %}{% endif %}
END
    serve_start agent --exact -m "$D/thinks"
    S=unix:$D/agent responses_py <<'PY'
def token(text):
    t, = post(s, "/tokenize", {"text": text}).json["ids"]
    return str(t)
# a model of random weights: a thinking of "a", and the tag of a call as its token, as
# real models write it; the tokenizer has one way to spell the rest
body = {"tools": [{**WEATHER, "name": "rain"}], "temperature": 1, "seed": 3,
        "logit_bias": {token("a"): 80, token("</think>"): 76, token("<"): -100}}
first = [message("Weather?")]
one = both({**body, "input": first, "tool_choice": {"type": "function", "name": "rain"}})
assert [i["type"] for i in one["output"]] == ["reasoning", "function_call"], one
second = first + one["output"] + [
    {"type": "function_call_output", "call_id": calls(one)[0]["call_id"], "output": "sunny"}]
n = one["usage"]["input_tokens"] + one["usage"]["output_tokens"]
def cached(items):
    u = post(s, PATH, {**body, "input": items, "max_output_tokens": 3}).json["usage"]
    return u["input_tokens_details"]["cached_tokens"]
got = cached(second)
assert n - 2 <= got <= n + 1, (n, got)
# the items of a client that keeps only what it displays
one = both({**body, "input": [message("Rain?")], "reasoning": {"summary": "auto"},
            "tool_choice": {"type": "function", "name": "rain"}})
n = one["usage"]["input_tokens"] + one["usage"]["output_tokens"]
kept = [{k: v for k, v in i.items() if k in ("type", "summary", "call_id", "name", "arguments")} for i in one["output"]]
got = cached([message("Rain?")] + kept + [
    {"type": "function_call_output", "call_id": calls(one)[0]["call_id"], "output": "no"}])
assert n - 2 <= got <= n + 1, (n, got)
PY
    serve_stop agent
}

@test "errors in a stream are events; a client that leaves is no fault" {
    serve_start late --exact --timeout 0.4
    S=unix:$D/late responses_py <<'PY'
body = {"input": "list files", "regex": "[a-z]{8000}", "temperature": 1, **OFF}
plain = post(s, PATH, body)
assert plain.status == 504 and plain.error["code"] == "timeout", plain.body
*begun, error, failed = events(body)
assert [n for n, _ in begun[:2]] == ["response.created", "response.in_progress"], begun[:3]
assert error[0] == "error" and failed[0] == "response.failed", (error, failed)
for i, (_, e) in enumerate(begun + [error, failed]):
    assert e["sequence_number"] == i, e
e = error[1]
assert e["code"] == "timeout" and e["param"] is None and e["message"] == e["error"]["message"], e
check_response(failed[1]["response"], "failed")
assert failed[1]["response"]["error"]["code"] == "server_error", failed
PY
    serve_stop late
    responses_py <<'PY'
for _ in range(5):
    with Stream(s, PATH, {"input": "list files", "regex": "[a-z]{1000}", "temperature": 1, "stream": True, **OFF}) as w:
        got = w.named()
        assert next(got)[0] == "response.created"
        next(got), next(got)
assert both({"input": "list files"})["status"] == "completed"
PY
}

@test "the servers end with status 0" {
    serve_stop main
}
