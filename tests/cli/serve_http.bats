#!/usr/bin/env bats
# serve: HTTP itself. Statuses and their bodies, hostile requests, limits of sizes and
# times.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start main --exact
    # a server whose clock runs 20 times as fast
    fast_clock
    export FAST_CLOCK
    if [ -n "$FAST_CLOCK" ]; then
        serve_launch fast env LD_PRELOAD="$FAST_CLOCK" "$QWICK" serve --listen "unix:$D/fast"
        serve_wait fast "unix:$D/fast"
    fi
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

needs_fast_clock() {
    [ -n "$FAST_CLOCK" ] || skip "the clock is not changed under sanitizers"
}

@test "/health, /v1/models, HEAD" {
    serve_py "$S" <<'PY'
import sys
from serve_client import *
s = sys.argv[1]
for path in "/health", "/v1/health", "/", "/health?a=b":
    r = get(s, path)
    assert (r.status, r.json) == (200, {"status": "ok"}), path
    assert r.fields["Content-Type"].startswith("application/json")
    h = request(s, "HEAD", path)
    assert (h.status, h.body) == (200, b""), path
    assert h.fields["Content-Length"] == r.fields["Content-Length"], path
r = get(s, "/v1/models")
m, = r.json["data"]
assert r.json["object"] == "list" and m["object"] == "model"
assert "/" not in m["id"] and m["context_length"] == 2048
assert isinstance(m["created"], int) and isinstance(m["owned_by"], str)
assert get(s, "/v1/models/" + m["id"]).json == m
assert get(s, "/v1/models/other").status == 404
PY
}

@test "every refusal has its status, and a body that says why" {
    serve_py "$S" <<'PY'
import sys
from serve_client import *
s = sys.argv[1]
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 2}

def refused(status, method, path, body=None, fields=None, param=None, code=None):
    r = request(s, method, path, body, fields)
    assert r.status == status, (path, body, r.status, r.body)
    e = r.error
    assert param is None or e["param"] == param, (e, param)
    assert code is None or e["code"] == code, e
    if status == 405:
        assert r.fields["Allow"], path
    return e

# what is not there
for path in "/v1", "/v1/chat", "/chat/completions", "/v1/chat/completions/", "/metrics/x":
    refused(404, "GET", path)
    refused(404, "POST", path, chat)
for path in "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", \
        "/rerank", "/tokenize", "/detokenize", "/score":
    for method in "GET", "PUT", "DELETE", "PATCH":
        refused(405, method, path)
for path in "/health", "/v1/models":
    refused(405, "POST", path, {})
wrong = []
# members of the wrong kind, and values out of range
for name, values in {
        "messages": [None, "a", 1, {}, [], [1], [{}]],
        "max_tokens": ["1", -1, 1.5, 1e30, [], True],
        "max_completion_tokens": ["1", -1],
        "temperature": ["1", -1, 1e9, []],
        "top_p": [-0.1, 1.1, "1"],
        "top_k": [-2, 1.5, "1"],
        "min_p": [-1, 2],
        "presence_penalty": [3, "a"],
        "frequency_penalty": [-3],
        "repetition_penalty": [0, -1],
        "seed": ["a", 1.5],
        "stop": [1, [1], ["a"] * 17, {}],
        "n": [0, 9, "1", 1.5],
        "stream": ["yes", 1],
        "logprobs": [2, "a"],
        "top_logprobs": [-1, 1.5, 1000],
        "logit_bias": [[], {"a": 1}, {"1": "a"}, {"1": 101}, {"999999": 1}, {"-1": 1}],
        "response_format": [1, "json", {}, {"type": "x"}, {"type": "json_schema"}],
        "tools": [{}, [1], [{"type": "function"}], "a"],
        "tool_choice": ["x", 1, {"type": "function", "function": {"name": "none"}}],
        "stream_options": [1]}.items():
    for v in values:
        body = {**chat, name: v}
        if name == "stream_options":
            body["stream"] = True
        if name == "tool_choice":
            body["tools"] = [{"type": "function", "function": {"name": "f"}}]
        if name == "max_completion_tokens":
            del body["max_tokens"]
        if name == "top_logprobs":
            body["logprobs"] = True
        try:
            e = refused(400, "POST", "/v1/chat/completions", body)
            param = (e["param"] or "").split(".")[0].split("[")[0]
            assert param == name, e
        except AssertionError as e:
            wrong.append((name, v, e))
assert not wrong, "\n".join(map(str, wrong))
del chat["max_tokens"]
refused(400, "POST", "/v1/chat/completions", {}, param="messages")
# what changes the answer and is not there
refused(400, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [
    {"type": "image_url", "image_url": {"url": "http://localhost/"}}]}]})
refused(400, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}]})
ask = {"role": "user", "content": "a"}
for bad, param in (
        ({"messages": [{"role": "nobody", "content": "a"}]}, "messages[0].role"),
        ({"messages": [ask, 5]}, "messages[1]"),
        ({"messages": [ask, {"role": "user", "content": 5}]}, "messages[1].content"),
        ({"messages": [ask, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
         "messages[1].content[1].type"),
        ({"messages": [ask], "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function"}]},
         "tools[1].function"),
        ({"messages": [ask], "tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
         "tools[0].function.parameters")):
    refused(400, "POST", "/v1/chat/completions", bad, param=param)
# too long: both numbers, never cut
e = refused(400, "POST", "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "list files " * 2000}]},
            code="context_length_exceeded")
assert "2048" in e["message"], e
assert any(int(w) > 4000 for w in e["message"].replace(",", " ").split() if w.isdigit()), e
# another model's work
refused(400, "POST", "/v1/embeddings", {"input": "a"})
# errors of a stream that has not begun have their status
refused(400, "POST", "/v1/chat/completions", {"messages": [], "stream": True})
refused(400, "POST", "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "list files " * 2000}], "stream": True},
        code="context_length_exceeded")
PY
}

@test "limits of the options: places for answers, memory for keys and values" {
    serve_start few --exact --max-batch 2 --queue 1 --kv-memory 8M
    serve_py "unix:$D/few" <<'PY'
import sys
from serve_client import *
s, path = sys.argv[1], "/v1/chat/completions"
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 2}
# a client that has its whole answer finds the places of it free
for _ in range(20):
    assert len(post(s, path, {**chat, "n": 3}).json["choices"]) == 3
r = post(s, path, {**chat, "n": 4})
assert r.status == 400 and "4 answers" in r.error["message"], r.body
# one that would never fit is refused at once, and others go on
long = {**chat, "messages": [{"role": "user", "content": "word " * 1500}]}
r = post(s, path, long)
assert r.status == 400 and "8388608" in r.error["message"], r.body
assert r.error["param"] == "messages"
assert post(s, path, chat).status == 200
PY
    serve_stop few
}

@test "a model without a head gives embeddings, and no answers" {
    copy_of "$MODELS/embedding-names" embedding
    python3 tests/cli/byte_tokenizer.py "$T/embedding"
    sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$T/embedding/config.json"
    serve_start headless --exact -m "$T/embedding"
    serve_py "unix:$D/headless" <<'PY'
import sys
from serve_client import *
s = sys.argv[1]
r = post(s, "/v1/embeddings", {"input": "list files"})
assert r.status == 200 and len(r.json["data"][0]["embedding"]) > 1, r.body
for path, body in ("/v1/chat/completions", {"messages": []}), ("/v1/completions", {"prompt": "a"}):
    r = post(s, path, body)
    assert r.status == 400 and "no answers" in r.error["message"], r.body
assert get(s, "/health").status == 200
PY
    serve_stop headless
}

@test "a constraint that costs too much is refused, and others are served meanwhile" {
    serve_py "$S" <<'PY'
import sys, threading
from serve_client import *
s = sys.argv[1]
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 1}
got = []
def cost(**more):
    got.append(post(s, "/v1/chat/completions", {**chat, **more}))
work = [threading.Thread(target=cost, kwargs=k) for k in (
    {"regex": "(((a{1,1000}){1,1000}){1,1000}){1,1000}"},
    {"regex": "(a|b)*a(a|b){200}"},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "type": "object", "properties": {"p%d" % i: {"type": "string"} for i in range(20000)}}}}},
    {"chat_template_kwargs": {"a": [[[]] * 1000] * 1000}})]
for t in work:
    t.start()
while any(t.is_alive() for t in work):
    assert get(s, "/health", timeout=20).status == 200
for t in work:
    t.join()
for r in got:
    assert r.status in (200, 400), (r.status, r.body[:200])
assert post(s, "/v1/chat/completions", chat).status == 200
PY
}

@test "hostile requests get their status, and the connection ends" {
    run -0 python3 tests/cli/serve_hostile.py "$S"
}

@test "a hundred connections that say nothing, and descriptors afterwards" {
    serve_py "$S" "$(<"$D/main.pid")" <<'PY'
import os, sys, time
from serve_client import *
s, pid = sys.argv[1:]
fds = lambda: len(os.listdir(f"/proc/{pid}/fd"))
get(s, "/health")
before = fds()
idle = [connect(s) for _ in range(100)]
half = [connect(s) for _ in range(100)]
for c in half:
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
assert get(s, "/health").status == 200
for c in idle + half:
    c.close()
for _ in range(200):
    if fds() <= before:
        break
    time.sleep(0.05)
assert fds() <= before, (fds(), before)
# more than are admitted: the next ones wait
many = [connect(s) for _ in range(256)]
late = Connection(s)
late.request("GET", "/health")
for c in many:
    c.close()
assert late.getresponse().status == 200
late.close()
PY
}

@test "keep-alive: many requests of one connection; a large body in small pieces" {
    serve_py "$S" <<'PY'
import sys, time
from serve_client import *
s = sys.argv[1]
c = Connection(s)
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 2, "seed": 1}
want = None
for i in range(5):
    assert ask(c, "GET", "/health").status == 200
    assert ask(c, "GET", "/none").status == 404
    r = ask(c, "POST", "/v1/chat/completions", chat)
    text = r.json["choices"][0]["message"]["content"]
    assert want is None or text == want
    want = text
c.close()
# Expect: 100-continue
with connect(s) as k:
    body = encode(chat)
    k.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
              b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert k.recv(4096).startswith(b"HTTP/1.1 100 ")
    for b in body:
        k.sendall(bytes([b]))
    got = b""
    while b := k.recv(4096):
        got += b
    assert got.startswith(b"HTTP/1.1 200 "), got
# a megabyte of a member that has no effect
assert post(s, "/v1/chat/completions", {**chat, "user": "a" * (1 << 20)}).status == 200
PY
}

@test "slow heads and bodies get 408, idle connections are closed" {
    needs_fast_clock
    serve_py "unix:$D/fast" <<'PY'
import select, sys, time
from serve_client import *
s = sys.argv[1]
head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
slow = {"nothing": connect(s), "half a head": connect(s), "half a body": connect(s),
        "bit by bit": connect(s), "after an answer": connect(s)}
slow["half a chunk"] = connect(s)
slow["half a chunk"].sendall(head.replace(b"Content-Length: 9", b"Transfer-Encoding: chunked") +
                             b"7fffffffffffffff\r\n{")
slow["half a head"].sendall(head[:30])
slow["half a body"].sendall(head + b"{")
slow["bit by bit"].sendall(b"GET /health HTTP/1.1\r\n")
slow["after an answer"].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
got = dict.fromkeys(slow, b"")
open_ = dict(slow)
limit = time.monotonic() + 60
while open_ and time.monotonic() < limit:
    if "bit by bit" in open_:
        try:
            open_["bit by bit"].sendall(b"X")
        except OSError:
            pass
    for name, c in list(open_.items()):
        if not select.select([c], [], [], 0.05)[0]:
            continue
        try:
            b = c.recv(4096)
        except ConnectionResetError:
            b = b""
        got[name] += b
        if not b:
            del open_[name]
assert not open_, open_.keys()
seen = {name: statuses(b) for name, b in got.items()}
assert seen["half a head"] == [408] and seen["half a body"] == [408], seen
assert seen["bit by bit"] == [408] and seen["half a chunk"] in ([408], [413]), seen
assert seen["nothing"] in ([], [408]) and seen["after an answer"] in ([200], [200, 408]), seen
PY
}

@test "a stream that has nothing to say sends comments" {
    needs_fast_clock
    serve_py "unix:$D/fast" <<'PY'
import sys, threading
from serve_client import *
s = sys.argv[1]
# all places are taken by long answers, so this one waits
chat = {"messages": [{"role": "user", "content": "list files"}]}
long = {**chat, "regex": "[a-z ]{9000}", "n": 8, "stream": True}
a, b = Stream(s, "/v1/chat/completions", long).start(), Stream(s, "/v1/chat/completions", long).start()
with Stream(s, "/v1/chat/completions", {**chat, "max_tokens": 2, "stream": True}) as w:
    w.start()
    assert w.status == 200
    line = w.r.readline()
    assert line.startswith(b":"), line
    a.close()
    b.close()
    events = list(w)
    assert w.done and joined(events)["finish_reason"], events
PY
}

@test "nothing is left when it ends" {
    serve_stop main
    serve_stop fast
    # no text and no key in what it said
    ! grep -E "list files" "$D/main.err" "$D/fast.err"
}
