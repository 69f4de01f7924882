#!/usr/bin/env bats
# serve: Anthropic's messages. Bodies, answers and events, tools, what a second turn
# finds in the cache, count_tokens, errors.
load helpers
load serve

# A template that begins to think, and shows the thinking of all turns.
thinking_template() {
    cat <<'END'
{%- if reasoning_effort == 'high' %}{{ 'Think long and well.\n' }}{% elif reasoning_effort %}{{ 'Think.\n' }}{% endif %}
{%- for t in tools or [] %}{{ 'tool ' + t.function.name + '\n' }}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}
{{- ('\n' if m.content or not loop.first else '') }}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments|tojson + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}
{%- else %}The{% endif %}{% endif %}
END
}

setup_file() {
    serve_setup_file
    serve_start main --exact
    thinking_template >"$D/template"
    serve_start thinker --exact --chat-template "$D/template"
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

MESSAGES='
import os, re, sys
from serve_client import *
from serve_messages import *
s = sys.argv[1]
def user(*content):
    one = len(content) == 1 and not isinstance(content[0], dict)
    return {"role": "user", "content": content[0] if one else list(content)}
def assistant(*content):
    return {**user(*content), "role": "assistant"}
def t(text):
    return {"type": "text", "text": text}
def use(id, name, **input):
    return {"type": "tool_use", "id": id, "name": name, "input": input}
def result(id, content, **more):
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}
def body(*messages, **more):
    return {"model": "any", "max_tokens": 40, "messages": list(messages), **more}
def as_chat(messages, **more):
    """The answer of /v1/chat/completions: the number of tokens and the text."""
    r = post(s, "/v1/chat/completions", {"messages": messages, "max_tokens": 40, **more})
    assert r.status == 200, r.body
    return r.json["usage"]["prompt_tokens"], r.json["choices"][0]["message"]
TOOLS = [{"name": "weather", "description": "Weather in a city.", "input_schema": {
    "type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]}, "days": {
        "type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}},
    {"name": "now", "type": "custom", "input_schema": {
        "type": "object", "properties": {}, "additionalProperties": False}}]
FUNCTIONS = [{"type": "function", "function": {**{k: v for k, v in x.items() if k in ("name", "description")},
    "parameters": x["input_schema"]}} for x in TOOLS]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
'

messages_py() {
    { echo "$MESSAGES"; cat; } >"$T/test.py"
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S "$T/test.py" "$S" "$@"
}

@test "answers are those of chat completions, also in a stream; how they end" {
    messages_py <<'PY'
q = user("list files")
n, m = as_chat([q], **OFF)
got = both(s, body(q))
assert got["content"] == [t(m["content"])] and got["stop_reason"] == "end_turn", got
assert inputs(got["usage"]) == n, (got, n)
# a query string is ignored, and so are the fields of clients
got2 = ask(s, body(q), PATH + "?beta=true", fields={"anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2"})
assert got2["content"] == got["content"]
cases = (({"max_tokens": 1}, "max_tokens", None),
         ({"max_tokens": 0}, "max_tokens", None),
         ({"stop_sequences": ["zork", "s"]}, "stop_sequence", "s"),
         ({"stop_sequences": []}, "end_turn", None),
         ({"temperature": 0, "top_p": 0.9, "top_k": 5}, "end_turn", None))
for more, why, sequence in cases:
    got = both(s, body(q, **more))
    assert (got["stop_reason"], got["stop_sequence"]) == (why, sequence), (more, got)
assert text(both(s, body(q, stop_sequences=["s"]))) == "l"
# max_tokens 0 only fills the cache
new = user("warm the cache with this prompt, which is new")
m = ask(s, body(new, max_tokens=0, stop_sequences=["a"], tools=TOOLS, tool_choice={"type": "any"}))
assert m["content"] == [] and m["stop_reason"] == "max_tokens" and m["usage"]["output_tokens"] == 0, m
assert m["usage"]["input_tokens"] > 20, m
m = ask(s, body(new, tools=TOOLS, max_tokens=5))
assert m["usage"]["cache_read_input_tokens"] >= inputs(m["usage"]) - 1, m
# the end of the context
long = body(user("list files " * 900), max_tokens=9000, tool_choice={"type": "any"}, tools=[{
    "name": "f", "input_schema": {"properties": {"a": {"type": "string", "minLength": 5000}}, "required": ["a"]}}])
got = both(s, long)
assert got["stop_reason"] == "model_context_window_exceeded" and got["content"] == [], got
PY
}

@test "thinking: off, enabled with a budget, adaptive with an effort" {
    S=unix:$D/thinker messages_py <<'PY'
q = user("list files")
n = count(s, body(q))
got = both(s, body(q))
assert [b["type"] for b in got["content"]] == ["text"], got
assert got == {**got, **{"content": both(s, body(q, thinking={"type": "disabled"}))["content"]}}
for thinking in {"type": "enabled", "budget_tokens": 3}, {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}, \
        {"type": "adaptive"}:
    got = both(s, body(q, thinking=thinking))
    first = got["content"][0]
    assert first["type"] == "thinking" and first["thinking"] and first["signature"] == "", got
    assert got["usage"]["output_tokens_details"]["thinking_tokens"] > 0, got
got = both(s, body(q, thinking={"type": "enabled", "budget_tokens": 3}))
assert [b["type"] for b in got["content"]] == ["thinking", "text"], got
assert count(s, body(q, thinking={"type": "adaptive"})) != n
# an effort is the template's variable, if it thinks
def with_effort(kind, effort):
    return count(s, body(q, thinking={"type": kind}, output_config={"effort": effort}))
for effort, word in ("low", "low"), ("high", "high"), ("max", "high"), ("xhigh", "high"):
    n_words, _ = as_chat([q], chat_template_kwargs={"reasoning_effort": word})
    assert with_effort("adaptive", effort) == n_words, (effort, n_words)
assert with_effort("adaptive", "low") < with_effort("adaptive", "high")
assert with_effort("disabled", "low") == n
# thinking goes back into its turn, whatever its blocks
think = {"type": "thinking", "thinking": "I know it.", "signature": "x"}
a, b = {**think, "thinking": "I know"}, {**think, "thinking": " it."}
turn = [q, assistant(think, t("ls")), user("why?")]
n, m = as_chat([q, {"role": "assistant", "content": "ls", "reasoning_content": "I know it."}, user("why?")], **OFF)
for content in ((think, t("ls")), (a, {"type": "redacted_thinking", "data": "zz"}, b, t("ls"))):
    got = both(s, body(q, assistant(*content), user("why?")))
    assert inputs(got["usage"]) == n and text(got) == m["content"], (content, got, m)
PY
}

@test "tools: any, one, none, auto; calls have their places between texts" {
    messages_py <<'PY'
q = user("list files")
base = body(q, tools=TOOLS, max_tokens=300)
def calls(m):
    return [(b["name"], b["input"]) for b in m["content"] if b["type"] == "tool_use"]
for choice in {"type": "any"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}:
    m = both(s, {**base, "tool_choice": choice})
    assert m["stop_reason"] == "tool_use" and not text(m), m
    for name, input in calls(m):
        assert name == "now" and input == {} or name == "weather" and set(input) == {"city", "days"} \
            and input["city"] in ("Bern", "Basel") and 1 <= input["days"] <= 9, m
    if choice["type"] == "tool":
        assert [c[0] for c in calls(m)] == ["weather"], m
    if "disable_parallel_tool_use" in choice:
        assert len(calls(m)) == 1, m
for choice in {"type": "none"}, {"type": "auto", "disable_parallel_tool_use": True}:
    m = both(s, {**base, "tool_choice": choice, "max_tokens": 5})
    assert choice["type"] == "auto" or not calls(m), m
# the input comes as it grows, and stop sequences have no effect in it
more = {**base, "tool_choice": {"type": "tool", "name": "weather"}, "stop_sequences": ["{", "\n", "B"]}
m = both(s, more)
assert m["stop_reason"] == "tool_use" and len(calls(m)) == 1, m
pieces = [e["delta"]["partial_json"] for e in stream(s, more)[1] if e["type"] == "content_block_delta"]
assert len(pieces) > 2, pieces
# a call that is cut is no call, and no text
m = both(s, {**base, "tool_choice": {"type": "any"}, "max_tokens": 6})
assert m["stop_reason"] == "max_tokens" and m["content"] == [], m
# tools of the vendor are left out, unless one is forced
server = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
          {"type": "bash_20250124", "name": "bash"}]
assert count(s, {**base, "tools": TOOLS + server}) == count(s, base)
for choice in {"type": "any"}, {"type": "tool", "name": "web_search"}:
    r = post(s, PATH, body(q, tools=server, tool_choice=choice))
    assert r.status == 400 and error(r)["param"] == "tool_choice", r.body
assert post(s, PATH, body(q, tools=server, tool_choice={"type": "auto"})).status == 200
# a schema that cannot be held
for strict, status in (None, 200), (True, 400):
    r = post(s, PATH, body(q, tools=[{"name": "f", "strict": strict, "input_schema": {"properties": {"a": {"$ref": "#/no"}}}}]))
    assert r.status == status, (strict, r.body)
PY
    grep -q '"bash_20250124" is not an option' "$D/main.err"
    serve_start forced --exact --regex "$(cat <<'END'
Look:\n<tool_call>\n\{"name": "weather", "arguments": \{"city": "Bern", "days": 2\}\}\n</tool_call>\n<tool_call>\n\{"name": "now", "arguments": \{\}\}\n</tool_call>\nThat is all\.
END
)"
    S=unix:$D/forced messages_py <<'PY'
m = both(s, body(user("list files"), tools=TOOLS, max_tokens=300))
assert plain(m["content"]) == [t("Look:"), {"type": "tool_use", "name": "weather", "input": {"city": "Bern", "days": 2}},
                               {"type": "tool_use", "name": "now", "input": {}}, t("That is all.")], m
assert m["stop_reason"] == "tool_use", m
PY
    serve_stop forced
}

@test "a second turn of an agent: its results go back, and the cache has the rest" {
    messages_py <<'PY'
def system(n):
    return [t("x-anthropic-billing-header: cc_version=2.1; cch=%d;" % n),
            {**t("You are an agent. " * 20), "cache_control": {"type": "ephemeral"}}, t("Be brief.")]
messages = [user(t("<system-reminder>a</system-reminder>"), t("weather in Bern?"))]
base = {"tools": TOOLS, "max_tokens": 300, "thinking": {"type": "disabled"}}
for turn in range(4):
    force = {"type": "any" if turn % 2 == 0 else "none"}
    got, _ = stream(s, {**base, "messages": messages, "system": system(turn), "tool_choice": force})
    u = got["usage"]
    if turn:
        # all of the last prompt but what begins an answer; this model spells its
        # answers in other tokens than their text has
        assert u["cache_read_input_tokens"] >= before - 6, (turn, u, before)
    assert count(s, {**base, "messages": messages, "system": system(9)}) == inputs(u), u
    before = inputs(u)
    messages.append({"role": "assistant", "content": got["content"]})
    ids = [b["id"] for b in got["content"] if b["type"] == "tool_use"]
    assert bool(ids) == (turn % 2 == 0), got
    messages.append(user(*[result(i, [t("sunny")]) for i in ids]) if ids else user("And Basel?"))
PY
}

@test "bodies: system, blocks, results in their order, turns that are joined" {
    messages_py <<'PY'
q = {"role": "user", "content": "list files"}
def same(a, messages, **more):
    """A body has the prompt of a chat."""
    n, m = as_chat(messages, **OFF, **more)
    got = ask(s, {"max_tokens": 40, **a})
    assert count(s, a) == n == inputs(got["usage"]), (a, n, got)
    assert text(got) == (m["content"] or ""), (a, m, got)
def sys_(text):
    return {"role": "system", "content": text}
def msgs(*m, **more):
    return {"messages": list(m), **more}
same(msgs(user("list files")), [q])
same(msgs(user(t("list files"))), [q])
same(msgs(user([t("list files")])), [q])
same(msgs(user(t("list"), {**t("files"), "cache_control": {"type": "ephemeral"}, "citations": None})),
     [{"role": "user", "content": "list\nfiles"}])
same(msgs(user("list"), user("files")), [{"role": "user", "content": "list\nfiles"}])
for system in "Be brief.", [t("Be brief.")], [t("x-anthropic-billing-header: a=1;"), t("Be brief.")]:
    same(msgs(q, system=system), [sys_("Be brief."), q])
same(msgs(q, system=[t("Be"), t("brief.")]), [sys_("Be\nbrief."), q])
for system in "", [], [t("x-anthropic-billing-header: a=1;")], None:
    same(msgs(q, system=system), [q])
same(msgs(q, sys_([t("Be brief.")]), system="You help."), [sys_("You help."), q, sys_("Be brief.")])
same(msgs(q, sys_([{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "now"}}]), tools=TOOLS),
     [q, sys_("The tool now is available now.")], tools=FUNCTIONS)
# calls and results
def call(id, name, **arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
def tool(id, content):
    return {"role": "tool", "tool_call_id": id, "content": content}
asked = [q, assistant(t("Look."), use("c1", "weather", city="Bern", days=2), use("c2", "now"))]
chat = [q, {"role": "assistant", "content": "Look.", "tool_calls": [call("c1", "weather", city="Bern", days=2), call("c2", "now")]}]
for results, want in (
        ([result("c1", "sunny"), result("c2", [t("9"), t("am")])], [tool("c1", "sunny"), tool("c2", "9\nam")]),
        ([result("c2", None), t("Go"), t("on."), result("c1", [])],
         [tool("c2", ""), {"role": "user", "content": "Go\non."}, tool("c1", "")]),
        ([result("c1", "no such city", is_error=True), result("c2", [t("9")], is_error=False)],
         [tool("c1", "Error: no such city"), tool("c2", "9")]),
        ([result("c1", [t("a"), t("b")], is_error=True)], [tool("c1", "Error: a\nb")]),
        ([{"type": "tool_result", "tool_use_id": "c1", "is_error": True}], [tool("c1", "Error: ")]),
        ([result("c1", [{"type": "tool_reference", "tool_name": "now"}])], [tool("c1", "now")])):
    same(msgs(*asked, user(results), tools=TOOLS), chat + want, tools=FUNCTIONS)
same(msgs(q, assistant(use("c1", "now")), user(result("c1", "9")), tools=TOOLS),
     [q, {"role": "assistant", "content": None, "tool_calls": [call("c1", "now")]}, tool("c1", "9")], tools=FUNCTIONS)
# a last message of the assistant is continued
for start in "l", [t("find . -type")]:
    same(msgs(q, assistant(start)), [q, {"role": "assistant", "content": start if start == "l" else "find . -type"}])
    both(s, body(q, assistant(start)))
PY
}

@test "output_config with a schema" {
    messages_py <<'PY'
schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}, "b": {"enum": ["x", "y"]}},
          "required": ["a", "b"], "additionalProperties": False}
form = {"type": "json_schema", "schema": schema}
for more in {"output_config": {"format": form, "effort": "high"}}, {"output_format": form}:
    got = json.loads(text(both(s, body(user("list files"), **more))))
    assert set(got) == {"a", "b"} and 1 <= got["a"] <= 9 and got["b"] in ("x", "y"), got
assert text(ask(s, body(user("list files"), output_config={"format": None}))) == text(ask(s, body(user("list files"))))
PY
}

@test "every refusal has its status, words and param" {
    messages_py <<'PY'
q = user("list files")
wrong = []
for name, values in {
        "max_tokens": [None, "1", -1, 1.5, []],
        "temperature": ["1", -1, []],
        "top_p": [-0.1, 1.1, "1"],
        "top_k": [-2, 1.5, "1"],
        "stop_sequences": [1, [1], [""], ["a"] * 17],
        "stream": ["yes", 1],
        "model": [1],
        "thinking": [1, {}, {"type": "x"}, {"type": "enabled", "budget_tokens": "a"}, {"type": "enabled", "budget_tokens": -1}],
        "tools": [{}, [1], [{}], [{"name": "a"}], [{"name": 1, "input_schema": {}}], [{"name": "", "input_schema": {}}],
                  [{"name": "a", "input_schema": []}], TOOLS + TOOLS,
                  [{"name": "a", "input_schema": {}, "strict": 1}]],
        "tool_choice": [1, "auto", {}, {"type": "x"}, {"type": "tool"}, {"type": "tool", "name": "none"},
                        {"type": "auto", "disable_parallel_tool_use": 1}],
        "output_config": [1, {"effort": 1}, {"format": {"type": "text"}}, {"format": {"type": "json_schema"}},
                          {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}],
        "output_format": [{}, {"type": "json_schema"}],
        "mcp_servers": [{}, [{"type": "url", "url": "http://localhost/", "name": "a"}]],
        "container": ["id"],
        "system": [1, {}, [1], [{}], [{"type": "text"}], [{"type": "image"}]],
        "messages": [None, "a", {}, [], [1], [{}], [{"role": "nobody", "content": "a"}], [{"role": "user"}], [user([])],
                     [user(1)], [user([1])], [user([{"type": "text"}])], [user([{"type": "text", "text": 1}])],
                     [user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}])],
                     [user([{"type": "document", "source": {"type": "text", "data": "a"}}])],
                     [user([use("a", "b")])], [assistant([result("a", "b")])], [user([{"type": "thinking", "thinking": ""}])],
                     [q, assistant([{"type": "thinking"}]), q],
                     [q, assistant([{"type": "tool_use", "name": "a", "input": {}}]), q],
                     [q, assistant([{"type": "tool_use", "id": "a", "name": "a", "input": "{}"}]), q],
                     [user([{"type": "tool_result"}])], [user([result("a", 1)])], [user([result("a", "b", is_error=1)])],
                     [user([result("a", [{"type": "image"}])])], [user([result("a", [{"type": "tool_result"}])])],
                     [q, {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition"}}]}],
                     [q, assistant([{"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}]), q]]}.items():
    for v in values:
        for path in PATH, PATH + "/count_tokens":
            if path != PATH and name in ("max_tokens", "stream") and v is None:
                continue
            more = {"tools": TOOLS} if name == "tool_choice" else {}
            r = post(s, path, {**body(q), **more, name: v})
            try:
                assert r.status == 400, r.status
                assert error(r)["param"].split("[")[0].split(".")[0] == name, r.body
            except AssertionError as e:
                wrong.append((path, name, v, e, r.body[:200]))
assert not wrong, "\n".join(map(str, wrong))
def refused(status, r, param=None):
    assert r.status == status, (r.status, r.body)
    e = error(r)
    assert e.get("param") == param, e
    return e
e = refused(400, post(s, PATH, body(user([t("a"), {"type": "image"}]))), "messages[0].content[1]")
assert "image" in e["message"], e
refused(400, post(s, PATH, body(q, thinking={"type": "enabled", "budget_tokens": 9}, messages=[q, assistant("a")])), "thinking")
refused(400, post(s, PATH, b"{broken"))
refused(400, post(s, PATH, []))
# too long: words that agents look for, and both numbers
for stream_ in False, True:
    e = refused(400, post(s, PATH, body(user("list files " * 2000), stream=stream_)), "messages")
    assert e["message"].startswith("prompt is too long: ") and "2048" in e["message"], e
    assert any(int(w) > 4000 for w in e["message"].split() if w.isdigit()), e
# not of this protocol, but beside it
for path in PATH + "/batches", PATH + "/count_tokens/x":
    refused(404, post(s, path, body(q)))
for path in PATH, PATH + "/count_tokens":
    for method in "GET", "PUT", "DELETE":
        r = request(s, method, path)
        refused(405, r)
        assert r.fields["Allow"] == "POST", path
assert set(post(s, PATH + "x", {}).json) == {"error"} # no path below it
for fields in {"Origin": "http://a.example"}, {"Host": "a.example"}:
    refused(403, post(s, PATH, body(q), fields=fields))
# by HTTP itself: the path is known once the first line is
def by_http(status, data):
    got, _ = raw(s, data)
    head, _, rest = got.partition(b"\r\n\r\n")
    assert statuses(got) == [status], got
    e = json.loads(rest)
    assert e["error"]["message"], e
    return e.get("type"), e["error"]["type"]
line = b"POST /v1/messages?beta=true HTTP/1.1\r\n"
assert by_http(413, line + b"Host: localhost\r\nContent-Length: 99999999\r\n\r\n") == ("error", "request_too_large")
assert by_http(400, line + b"\r\n") == ("error", "invalid_request_error")
assert by_http(431, line + b"Host: localhost\r\n" + b"A: b\r\n" * 3000) == ("error", "invalid_request_error")
assert by_http(400, b"POST /v1/mes\0sages HTTP/1.1\r\n\r\n")[0] is None
assert by_http(400, b"POST /v1/messages\r\n\r\n")[0] is None
assert by_http(413, b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")[0] is None
chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
assert by_http(413, line + b"Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 34) == ("error", "request_too_large")
PY
}

@test "keys, a full queue and a slow request have Anthropic's errors, too" {
    echo "first-key-0123456789" >"$D/keys"
    chmod 600 "$D/keys"
    serve_start keyed --api-key-file "$D/keys"
    S=unix:$D/keyed messages_py <<'PY'
b = body(user("list files"))
for fields in {}, {"x-api-key": "other-key-0123456789"}, {"Authorization": "Bearer x"}:
    for path in PATH, PATH + "/count_tokens":
        r = post(s, path, b, fields=fields)
        assert r.status == 401 and error(r), r.body
for fields in {"x-api-key": "first-key-0123456789"}, {"Authorization": "Bearer first-key-0123456789"}:
    assert post(s, PATH, b, fields=fields).status == 200, fields
PY
    serve_stop keyed
    fast_clock
    [ -n "$FAST_CLOCK" ] || return 0
    serve_launch fast env LD_PRELOAD="$FAST_CLOCK" "$QWICK" serve --listen "unix:$D/fast"
    serve_wait fast "unix:$D/fast"
    S=unix:$D/fast messages_py <<'PY'
import select, time
head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
slow = [connect(s), connect(s)]
slow[0].sendall(head[:40])
slow[1].sendall(head + b"{")
limit = time.monotonic() + 60
while len(select.select(slow, [], [], 0)[0]) < 2:
    assert time.monotonic() < limit
    get(s, "/health") # which makes it look at the clock
    time.sleep(0.1)
for c in slow:
    got = c.recv(4096)
    assert statuses(got) == [408], got
    assert json.loads(got.partition(b"\r\n\r\n")[2])["type"] == "error", got
PY
    serve_stop fast
}

@test "a late error is an event, and nothing follows it" {
    python3 tests/cli/slow_model.py models/demo "$D/slow" 8
    serve_start drain --exact -m "$D/slow" --drain 0 --max-batch 1 --queue 1 --regex '[a-z ]{9000}'
    S=unix:$D/drain messages_py "$(<"$D/drain.pid")" <<'PY'
import os, signal, threading, time
b = body(user("list files"), max_tokens=2000)
a = events(Stream(s, PATH, {**b, "stream": True}).start())
got = Message()
for e in a:
    got.add(e)
    if e["type"] == "content_block_delta":
        break
waiting = Connection(s)
waiting.request("POST", PATH, encode(b), {})
time.sleep(0.3)
r = post(s, PATH, b)
assert r.status == 429 and error(r) and r.fields["Retry-After"], r.body
os.kill(int(sys.argv[2]), signal.SIGTERM)
*rest, last = a
for e in rest:
    got.add(e)
assert last["type"] == "error" and set(last) == {"type", "error"}, last
assert last["error"]["type"] == "overloaded_error" and last["error"]["message"], last
assert not got.ended
r = waiting.getresponse()
assert r.status == 503 and json.loads(r.read())["error"]["type"] == "overloaded_error"
PY
    equal "$(serve_ended drain)" 0
}

@test "count_tokens: what usage says, without max_tokens, also of more than the context" {
    messages_py <<'PY'
for b in (body(user("list files")), body(user("list files"), tools=TOOLS, system="Be brief."),
          body(user(t("a"), t("b")), thinking={"type": "enabled", "budget_tokens": 2000})):
    n = inputs(ask(s, b)["usage"])
    del b["max_tokens"]
    assert count(s, b) == n, b
    assert count(s, {**b, "stream": True}) == n
    r = post(s, PATH, b)
    assert r.status == 400 and error(r)["param"] == "max_tokens"
assert count(s, {"messages": [user("list files " * 1500)]}) > 2048
PY
}

@test "what has no effect is taken; unknown members are named once; no texts in the log" {
    messages_py <<'PY'
b = body(user("list secret files"))
want = both(s, b)
more = {"metadata": {"user_id": "me"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}, "speed": "fast",
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "mcp_servers": [],
        "container": None, "thinking": None, "tools": [], "tool_choice": {"type": "auto"}, "zork_member": 1,
        "inference_geo": "eu", "seed": 3, "n": 2}
for _ in range(2):
    got = both(s, {**b, **more})
    assert got["content"] == want["content"] and got["model"] == want["model"], got
PY
    equal "$(grep -c zork_member "$D/main.err")" 1
    run ! grep -q "metadata" "$D/main.err"
    run ! grep -q "secret" "$D/main.err"
}

@test "/v1/models for a client of Anthropic" {
    messages_py <<'PY'
fields = {"anthropic-version": "2023-06-01"}
r = get(s, "/v1/models?limit=20", fields=fields).json
m, = r["data"]
assert set(r) == {"data", "first_id", "last_id", "has_more"} and r["has_more"] is False, r
assert r["first_id"] == r["last_id"] == m["id"] == m["display_name"] and m["type"] == "model", r
assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", m["created_at"]), m
assert m["max_input_tokens"] == 2048, m
assert get(s, "/v1/models/" + m["id"], fields=fields).json == m
assert get(s, "/v1/models/x", fields=fields).status == 404
assert get(s, "/v1/models").json["object"] == "list"
assert request(s, "HEAD", "/").status == 200
PY
}

@test "the servers end with status 0" {
    serve_stop main
    serve_stop thinker
}
