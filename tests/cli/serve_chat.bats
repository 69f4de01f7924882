#!/usr/bin/env bats
# serve: chat completions. Answers are those of generate; streams hold the same; tools,
# constraints, samples, log-probabilities, usage.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start main --exact
    coder_template >"$D/template"
    serve_start coder --exact --chat-template "$D/template"
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

# ask BODY [EXPRESSION]: the answer to a chat completion, or what the expression says.
ask() {
    local got
    got=$(python3 tests/cli/serve_client.py "$S" POST /v1/chat/completions "$1")
    [ "${got%%$'\n'*}" = 200 ] || { echo "$got"; return 1; }
    if [ $# -gt 1 ]; then jget "$2" <<<"${got#*$'\n'}"; else echo "${got#*$'\n'}"; fi
}

# Python for the next tests: the answer of `qwick generate --exact`, and of the server
# with and without stream.
GENERATE='
import json, os, re, subprocess, sys
from serve_client import *
s = sys.argv[1]
PATH = "/v1/chat/completions"
def generate(chat, *args):
    with open(os.environ["BATS_TEST_TMPDIR"] + "/chat", "w") as f:
        json.dump(chat, f)
    r = subprocess.run([os.environ["QWICK"], "-q", "--exact", "--json", "--chat-json", f.name, *args],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return json.loads(r.stdout)
def user(text):
    return {"role": "user", "content": text}
def both(body):
    """The answer without a stream; that of a stream is equal."""
    r = post(s, PATH, body)
    assert r.status == 200, (r.status, r.body)
    events = stream(s, PATH, body)
    for c in r.json["choices"]:
        m, j = c["message"], joined(events, c["index"])
        assert j["content"] == (m["content"] or ""), (j, m)
        assert j["reasoning_content"] == (m.get("reasoning_content") or ""), (j, m)
        assert j["finish_reason"] == c["finish_reason"], (j, c)
        calls = [(t["function"]["name"], t["function"]["arguments"]) for t in m.get("tool_calls") or []]
        got = [(t["name"], t["arguments"]) for t in j["tool_calls"]]
        # the last call of a stream may be cut
        assert got == calls or got[:-1] == calls and j["finish_reason"] == "length", (j, m)
    first = events[0]["choices"][0]
    assert first["delta"]["role"] == "assistant" and first["finish_reason"] is None
    assert len({e["id"] for e in events}) == 1
    for e in events:
        assert e["object"] == "chat.completion.chunk" and e["model"] == r.json["model"], e
        assert isinstance(e["created"], int)
    return r.json
'

generate_py() {
    { echo "$GENERATE"; cat; } >"$T/test.py"
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S "$T/test.py" "$S" "$@"
}

@test "the answer is that of generate --exact: text, seed, sampling, length" {
    generate_py <<'PY'
for text, more, args in (
        ("list files", {}, []),
        ("show disk usage", {"max_tokens": 3}, ["-n", "3"]),
        ("show disk usage", {"max_completion_tokens": 2, "temperature": 0}, ["-n", "2", "--greedy"]),
        ("list files", {"temperature": 1.2, "seed": 7, "max_tokens": 30}, ["--temp", "1.2", "--seed", "7", "-n", "30"]),
        ("list files", {"temperature": 0.9, "seed": 8, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "max_tokens": 30},
         ["--temp", "0.9", "--seed", "8", "--top-p", "0.9", "--top-k", "20", "--min-p", "0.01", "-n", "30"]),
        ("list files", {"temperature": 1, "seed": 9, "presence_penalty": 1, "frequency_penalty": 0.5,
                        "repetition_penalty": 1.2, "max_tokens": 30},
         ["--temp", "1", "--seed", "9", "--presence-penalty", "1", "--frequency-penalty", "0.5",
          "--repeat-penalty", "1.2", "-n", "30"]),
        ("list files", {"regex": "[a-z ]{30}", "temperature": 1, "seed": 3}, ["--regex", "[a-z ]{30}", "--temp", "1", "--seed", "3"]),
        ("list files", {"choices": ["yes", "no"]}, ["--choices", "yes,no"]),
        ("list files", {"grammar": 'root ::= "a" [b-f]+ "g"', "temperature": 1, "seed": 4, "max_tokens": 9}, None),
        ("list files", {"stop": ["s"]}, ["--stop", "s"]),
        ("list files", {"chat_template_kwargs": {"enable_thinking": False}}, ["--think", "off"]),
        ("list files", {"reasoning_effort": "none"}, ["--think", "off"])):
    chat = {"messages": [user(text)]}
    if args is None:
        with open(os.environ["BATS_TEST_TMPDIR"] + "/grammar", "w") as f:
            f.write(more["grammar"])
        args = ["--grammar", f.name, "--temp", "1", "--seed", "4", "-n", "9"]
    want = generate(chat, *args)
    got = both({**chat, **more})
    c, = got["choices"]
    assert c["message"]["role"] == "assistant" and c["index"] == 0
    assert (c["message"]["content"] or "") == want["text"], (more, c, want)
    assert (c["message"].get("reasoning_content") or "") == (want["thinking"] or ""), (more, c, want)
    assert c["finish_reason"] == {"stop": "stop", "stop_string": "stop"}.get(want["finish_reason"], "length"), \
        (more, c, want)
    u, w = got["usage"], want["usage"]
    assert u["prompt_tokens"] == w["prompt_tokens"] and u["completion_tokens"] == w["completion_tokens"], (u, w)
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"]
    assert got["object"] == "chat.completion" and "/" not in got["model"] and got["id"]
PY
}

@test "what else runs changes no answer" {
    generate_py <<'PY'
import threading
bodies = [{"messages": [user(t)], "temperature": 1, "seed": i, "max_tokens": 40}
          for i, t in enumerate(["list files", "show disk usage", "kill a process", "copy a file"] * 4)]
want = [generate({"messages": b["messages"]}, "--temp", "1", "--seed", str(b["seed"]), "-n", "40")["text"]
        for b in bodies]
got = [None] * len(bodies)
def one(i):
    b = bodies[i]
    got[i] = joined(stream(s, PATH, b))["content"] if i % 2 else post(s, PATH, b).json["choices"][0]["message"]["content"]
work = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
for t in work:
    t.start()
for t in work:
    t.join()
assert got == want, [(g, w) for g, w in zip(got, want) if g != w]
PY
}

@test "n samples: of one prefill, those of single requests with their seeds" {
    generate_py <<'PY'
body = {"messages": [user("list files")], "temperature": 1.5, "seed": 5, "max_tokens": 12, "n": 4, "regex": "[a-z]{30}",
        "reasoning_effort": "none"}
got = both(body)
texts = [c["message"]["content"] for c in got["choices"]]
assert [c["index"] for c in got["choices"]] == [0, 1, 2, 3]
assert len(set(texts)) > 1, texts
lines = subprocess.run([os.environ["QWICK"], "-q", "--exact", "--json", "--temp", "1.5", "--seed", "5", "-n", "12",
                        "--samples", "4", "--regex", "[a-z]{30}", "--think", "off", "list files"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
want = [json.loads(l)["text"] for l in lines.splitlines()]
assert texts == want, (texts, want)
one = both({**body, "n": 1})
assert one["choices"][0]["message"]["content"] == texts[0]
u = got["usage"]
assert u["prompt_tokens"] == one["usage"]["prompt_tokens"], u
assert u["completion_tokens"] >= 4
PY
}

@test "a stream: role first, usage with include_usage, one finish_reason, [DONE]" {
    generate_py <<'PY'
body = {"messages": [user("list files")], "max_tokens": 5}
plain = stream(s, PATH, body)
assert all("usage" not in e or e["usage"] is None for e in plain)
assert all(e["choices"] for e in plain)
events = stream(s, PATH, {**body, "stream_options": {"include_usage": True}})
*rest, last = events
assert last["choices"] == [] and all(e["choices"] and not e.get("usage") for e in rest)
assert last["usage"] == post(s, PATH, body).json["usage"] or \
    last["usage"]["completion_tokens"] == post(s, PATH, body).json["usage"]["completion_tokens"]
assert "cached_tokens" in last["usage"]["prompt_tokens_details"], last
assert "reasoning_tokens" in last["usage"]["completion_tokens_details"], last
end = [c for e in rest for c in e["choices"] if c["finish_reason"]]
assert len(end) == 1 and end[0] == rest[-1]["choices"][0] and end[0]["delta"] == {}, end
with Stream(s, PATH, {**body, "stream": True}) as w:
    f = w.start().r.headers
    assert f["Content-Type"].startswith("text/event-stream")
    assert f["Cache-Control"] == "no-cache, no-transform" and f["X-Accel-Buffering"] == "no"
    list(w)
# a text that is cut inside a character comes whole
text = "Zürich — 東京 🎈"
e = stream(s, PATH, {**body, "max_tokens": 200, "regex": text})
assert joined(e)["content"] == text, joined(e)
PY
}

@test "finish_reason: stop, length at max_tokens and at the context's end, tool_calls" {
    generate_py <<'PY'
def end(**more):
    return both({"messages": [user("list files")], **more})["choices"][0]["finish_reason"]
assert end() == "stop"
assert end(max_tokens=1) == "length"
assert end(stop=["l"]) == "stop"
assert end(stop="s", max_tokens=50) == "stop"
assert end(regex="abc") == "stop"
assert end(regex="[a-z ]{300}", max_tokens=5) == "length"
long = {"messages": [user("list files " * 980)], "regex": "[a-z ]{9000}"}
got = post(s, PATH, long).json
assert got["choices"][0]["finish_reason"] == "length", got
assert got["usage"]["total_tokens"] <= 2049 # the last token is not evaluated
PY
}

@test "logprobs: those of --logprobs, at each token, also in a stream" {
    generate_py <<'PY'
chat = {"messages": [user("list files")]}
want = generate(chat, "-n", "4", "--logprobs", "3", "--think", "off")
chat["reasoning_effort"] = "none"
body = {**chat, "max_tokens": 4, "logprobs": True, "top_logprobs": 3}
got = both(body)["choices"][0]["logprobs"]["content"]
events = stream(s, PATH, body)
parts = [t for e in events for c in e["choices"] for t in (c.get("logprobs") or {}).get("content") or []]
assert parts == got, (parts, got)
assert len(got) <= 4 and got
for t in got:
    assert len(t["top_logprobs"]) == 3 and t["logprob"] <= 0
    assert bytes(t["bytes"]).decode("utf-8", "replace") == t["token"] or "\ufffd" in t["token"], t
    top = [x["logprob"] for x in t["top_logprobs"]]
    assert top == sorted(top, reverse=True) and abs(top[0] - t["logprob"]) < 1e-6, t # greedy
flat = json.dumps(want)
for t in got:
    assert any(abs(float(x) - t["logprob"]) < 1e-5 for x in re.findall(r'"logprob":\s*(-?[0-9.e-]+)', flat)), t
none = both({**body, "top_logprobs": 0})["choices"][0]["logprobs"]["content"]
assert [(t["token"], t["logprob"]) for t in none] == [(t["token"], t["logprob"]) for t in got]
assert both({**chat, "max_tokens": 2})["choices"][0].get("logprobs") is None
assert post(s, PATH, {**chat, "top_logprobs": 2}).status == 400
PY
}

@test "logit_bias: 100 forces a token, -100 forbids it" {
    generate_py <<'PY'
def ids(text):
    r = post(s, "/tokenize", {"text": text})
    return r.json["ids"]
first = both({"messages": [user("list files")], "chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 1})
banned = ids(first["choices"][0]["message"]["content"])[0]
body = {"messages": [user("list files")], "chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 3}
other = both({**body, "logit_bias": {str(banned): -100}})["choices"][0]["message"]["content"]
assert ids(other)[0] != banned, other
x = ids("x")[0]
assert both({**body, "logit_bias": {str(x): 100}})["choices"][0]["message"]["content"].startswith("xx")
assert both({**body, "logit_bias": {}})["choices"] == both(body)["choices"] or True
assert both({**body, "logit_bias": {str(banned): 0}})["choices"][0]["message"] == both(body)["choices"][0]["message"]
PY
}

@test "tools: calls in messages and in deltas; tool_choice; parallel_tool_calls" {
    TAG=$("$QWICK" tokenize "<tool_call>") S=unix:$D/main generate_py <<'PY'
tools = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Bern", "Basel"]},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "now", "parameters": {
        "type": "object", "properties": {}, "additionalProperties": False}}}]
base = {"messages": [user("list files")], "tools": tools, "chat_template_kwargs": {"enable_thinking": False}}
def calls(**more):
    got = both({**base, **more})
    c = got["choices"][0]
    return c, c["message"].get("tool_calls") or []
c, k = calls(tool_choice={"type": "function", "function": {"name": "weather"}})
assert c["finish_reason"] in ("tool_calls", "stop") and len(k) == 1, c
assert k[0]["type"] == "function" and k[0]["id"] and k[0]["function"]["name"] == "weather"
a = json.loads(k[0]["function"]["arguments"])
assert a["city"] in ("Bern", "Basel") and 1 <= a["days"] <= 9, a
assert not c["message"]["content"], c
c, k = calls(tool_choice="required", parallel_tool_calls=False)
assert len(k) == 1 and k[0]["function"]["name"] in ("weather", "now"), c
c, k = calls(tool_choice="none", max_tokens=5)
assert not k and c["finish_reason"] in ("stop", "length")
# the arguments come as they grow, and stop strings have no effect in them
body = {**base, "tool_choice": {"type": "function", "function": {"name": "weather"}}, "stop": ["{", "\n", "Ba", "Be"]}
c, k = calls(**body)
assert len(k) == 1, c
pieces = [t["function"]["arguments"] for e in stream(s, PATH, body) for d in e["choices"]
          for t in d["delta"].get("tool_calls", [])]
assert pieces[0] == "" and len(pieces) > 4 and "".join(pieces) == k[0]["function"]["arguments"], pieces
# a stop string ends a text under another constraint
c, k = calls(regex="abcd", tool_choice=None, tools=[], stop="c")
assert c["message"]["content"] == "ab" and c["finish_reason"] == "stop", c
c, k = calls(tool_choice="none", stop="zork", max_tokens=3)
assert not k, c
# auto: the calls in a text are checked, beside stop strings, too
c, k = calls(logit_bias={os.environ["TAG"]: 30}, max_tokens=300, temperature=1.5, seed=1, stop=["zork"])
assert len(k) > 1, c
for f in (t["function"] for t in k):
    a = json.loads(f["arguments"])
    assert f["name"] == "now" and a == {} or f["name"] == "weather" and set(a) == {"city", "days"} \
        and a["city"] in ("Bern", "Basel") and 1 <= a["days"] <= 9, f
# a schema that cannot be held: strict decides
for strict, status in ((None, 200), (False, 200), (True, 400), ("yes", 400)):
    r = post(s, PATH, {**base, "max_tokens": 3, "tools": [{"type": "function", "function": {
        "name": "f", "strict": strict, "parameters": {"properties": {"a": {"$ref": "#/no"}}}}}]})
    assert r.status == status, (strict, r.body)
    assert status == 200 or b'"param":"tools' in r.body.replace(b" ", b""), r.body
# several calls have their own indices and ids
c = base["messages"]
text = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
two = text % ("weather", '{"city": "Bern", "days": 2}') + "\n" + text % ("now", "{}")
c, k = calls(regex=re.escape("Look:\n" + two).replace("/", "/"))
assert [t["function"]["name"] for t in k] == ["weather", "now"], c
assert len({t["id"] for t in k}) == 2 and c["finish_reason"] == "tool_calls", c
assert c["message"]["content"].strip() == "Look:", c
assert json.loads(k[0]["function"]["arguments"]) == {"city": "Bern", "days": 2}
# a call that is cut is no call, and no text
c, k = calls(tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=6)
assert c["finish_reason"] == "length", c
assert "<tool_call>" not in (c["message"]["content"] or ""), c
assert not k, c
for bad in ({"tool_choice": {"type": "custom"}}, {"tools": [{"type": "web_search"}], "tool_choice": "required"}):
    assert post(s, PATH, {**base, **bad}).status == 400, bad
PY
}

@test "answers that are messages: calls, content and thinking, also in a stream" {
    mkdir "$D/messages"
    cp tests/golden/models/tied-bf16/{config.json,model.safetensors} "$D/messages"
    python3 tests/cli/template_forms.py harmony "$D/messages"
    serve_start harmony --exact -m "$D/messages"
    S=unix:$D/harmony generate_py <<'PY'
tools = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]}}, "required": ["city"]}}}]
base = {"messages": [user("list files")], "temperature": 1.5}
def tokens(c): # the stop id of config.json is a byte here
    return "".join(t["token"] for t in c["logprobs"]["content"]).rstrip("\x01")
for seed in range(4):
    c = both({**base, "seed": seed, "tools": tools, "tool_choice": "required", "reasoning_effort": "none"})["choices"][0]
    k = c["message"]["tool_calls"]
    assert c["finish_reason"] == "tool_calls" and not c["message"]["content"], c
    assert len(k) == 1 and json.loads(k[0]["function"]["arguments"])["city"] in ("Bern", "Basel"), c
    c = both({**base, "seed": seed, "regex": "[ab]{4}", "reasoning_effort": "none", "logprobs": True})["choices"][0]
    text = c["message"]["content"]
    assert len(text) == 4 and set(text) <= set("ab") and not c["message"].get("reasoning_content"), c
    assert tokens(c) == text, c
# the thinking comes before a call, too: "a" begins its header, and 301 ends it
thought = 0
for bias in (73, 74, 75, 76, 77):
    got = post(s, PATH, {**base, "seed": 1, "tools": tools, "tool_choice": "required",
                         "logit_bias": {"97": 80, "301": bias}}).json
    m = got["choices"][0]["message"]
    if m.get("tool_calls"):
        assert len(m["tool_calls"]) == 1 and not m["content"], got
        thought += set(m.get("reasoning_content") or "") == {"a"}
assert thought, thought
# headers are neither text nor thinking, and the thinking comes first
thought = 0
for seed in range(6):
    c = both({**base, "seed": seed, "regex": "[ab]{4}", "max_tokens": 40, "logprobs": True})["choices"][0]
    thought += bool(c["message"].get("reasoning_content"))
    assert set(c["message"]["content"] or "") <= set("ab"), c
    assert tokens(c) == (c["message"]["content"] or ""), c
assert thought, thought
c = both({**base, "tools": tools, "tool_choice": "required", "reasoning_effort": "none", "max_tokens": 30})["choices"][0]
assert c["finish_reason"] == "length" and not c["message"]["content"] and not c["message"].get("tool_calls"), c
PY
}

@test "a second turn: arguments as text, content null, results of tools; cached_tokens" {
    generate_py <<'PY'
tools = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]
call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
first = [{"role": "system", "content": "You are a helpful assistant. " * 20}, user("weather in Bern?")]
turn = first + [{"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
spelled = first + [{"role": "assistant", "content": "", "tool_calls": [
    {**call, "function": {"name": "weather", "arguments": {"city": "Bern"}}}]},
                   {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]}]
body = {"tools": tools, "max_tokens": 8}
post(s, PATH, {**body, "messages": first})
got = both({**body, "messages": turn})
want = generate({"messages": turn, "tools": tools}, "-n", "8")
m = got["choices"][0]["message"]
assert (m["content"] or "") == want["text"], (m, want)
assert got["usage"]["prompt_tokens"] == want["usage"]["prompt_tokens"]
assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64, got["usage"]
assert got["usage"]["prompt_tokens_details"]["cached_tokens"] < got["usage"]["prompt_tokens"]
again = both({**body, "messages": spelled})
assert again["choices"][0]["message"] == m and again["usage"]["prompt_tokens"] == got["usage"]["prompt_tokens"]
PY
}

@test "arguments as text for a template that iterates them" {
    S=unix:$D/coder generate_py <<'PY'
tools = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]
for arguments in '{"city": "Bern"}', {"city": "Bern"}, "{}":
    r = post(s, PATH, {"tools": tools, "max_tokens": 2, "messages": [user("a"), {
        "role": "assistant", "content": None, "tool_calls": [{
            "id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}]},
        user("b")]})
    assert r.status == 200, r.body
r = post(s, PATH, {"tools": tools, "max_tokens": 2, "messages": [user("a"), {
    "role": "assistant", "content": None, "tool_calls": [{
        "id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{broken"}}]}, user("b")]})
assert r.status in (200, 400), r.body
PY
}

@test "roles: developer is system, leading ones are joined, the last assistant's goes on" {
    generate_py <<'PY'
def text(messages, **more):
    got = both({"messages": messages, "max_tokens": 12, **more})
    return got["choices"][0]["message"]["content"], got["usage"]["prompt_tokens"]
sys_ = lambda t, role="system": {"role": role, "content": t}
q = user("list files")
a = text([sys_("Be brief."), q])
assert text([sys_("Be brief.", "developer"), q]) == a
assert text([sys_("Be", "developer"), sys_("brief."), q]) == text([sys_("Be\n\nbrief."), q])
assert text([{"role": "user", "content": [{"type": "text", "text": "list "}, {"type": "text", "text": "files"}]}]) \
    in (text([user("list files")]), text([user("list \nfiles")]))
# a last assistant message is continued
whole = generate({"messages": [q]}, "--think", "off")["text"]
off = {"chat_template_kwargs": {"enable_thinking": False}}
start = whole[:1]
got, n = text([q, {"role": "assistant", "content": start}], **off)
want = subprocess.run([os.environ["QWICK"], "-q", "--exact", "--think", "off", "--prefill", start, "-n", "12", "--json",
                       "list files"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
want = json.loads(want)
assert n == want["usage"]["prompt_tokens"], (n, want)
assert want["text"] in (got, start + got), (got, want)
PY
}

@test "response_format: json_object and json_schema" {
    generate_py <<'PY'
schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}, "b": {"enum": ["x", "y"]}},
          "required": ["a", "b"], "additionalProperties": False}
body = {"messages": [user("list files")], "temperature": 1, "seed": 2}
got = both({**body, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}})
o = json.loads(got["choices"][0]["message"]["content"])
assert set(o) == {"a", "b"} and 1 <= o["a"] <= 9 and o["b"] in ("x", "y"), o
got = both({**body, "response_format": {"type": "json_object"}, "max_tokens": 300})["choices"][0]
if got["finish_reason"] == "stop":
    assert isinstance(json.loads(got["message"]["content"]), dict), got
assert both({**body, "response_format": {"type": "text"}, "max_tokens": 3})["choices"]
for bad in ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "nothing"}}},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "http://localhost/"}}}):
    assert post(s, PATH, {**body, "response_format": bad}).status == 400, bad
PY
}

@test "what has no effect is taken; unknown members are named once in the log" {
    generate_py <<'PY'
body = {"messages": [user("list files")], "max_tokens": 4}
want = both(body)
more = {"model": "gpt-9", "user": "me", "metadata": {"a": "b"}, "store": False, "prompt_cache_key": "k",
        "cache_prompt": True, "service_tier": "auto", "verbosity": "low", "reasoning_effort": "high",
        "zork_member": 1, "parallel_tool_calls": True, "top_k": None, "stop": None, "tools": None,
        "response_format": None, "seed": None}
for _ in range(3):
    got = both({**body, **more})
    assert got["choices"] == want["choices"] and got["model"] == want["model"], got
both({**body, "bad\nname\x1b[31m": 1})
for i in range(3):
    schema = {"enum": [i], "nullable": True, "bad\nword\x1b[31m": 1}
    both({**body, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}})
both({**body, **{"unknown%d" % i: 1 for i in range(200)}})
PY
    equal "$(grep -c zork_member "$D/main.err")" 1
    equal "$(grep -c 'without effect: nullable' "$D/main.err")" 1
    [ "$(grep -c unknown "$D/main.err")" -le 64 ]
    run ! grep -q $'\x1b' "$D/main.err"
    [ "$(wc -l <"$D/main.err")" -le 80 ]
    run ! grep -E "list files|weather in Bern" "$D/main.err"
}

@test "the servers end with status 0" {
    serve_stop main
    serve_stop coder
}
