#!/usr/bin/env bats
# serve: an allocation that fails while a request is read and answered. The request gets
# 503, or a stream that does not end as if it were whole; the server goes on.
load helpers
load serve

setup_file() {
    serve_setup_file
    [ "${SAN:-}" != 1 ] || skip "fault injection is not run under sanitizers"
    build_injector
    head -c 4096 /dev/zero >"$D/control"
    serve_launch main env FAULT_CONTROL="$D/control" LD_PRELOAD="$INJECT" "$QWICK" serve \
        --exact --listen "unix:$D/main"
    serve_wait main "unix:$D/main"
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

# failing PATH BODY: send the request while each of its allocations fails in turn.
failing() {
    PYTHONPATH=$BATS_TEST_DIRNAME python3 - "$S" "$D/control" "$@" <<'PY'
import http.client, json, mmap, re, struct, sys, time
from serve_client import *
s, control, path, body = sys.argv[1:]
body = json.loads(body) if body else None
stream = bool(body) and body.get("stream", False)
with open(control, "r+b") as f:
    memory = mmap.mmap(f.fileno(), 4)
def set_control(n):
    memory[:] = struct.pack("i", n)
def left():
    return struct.unpack("i", memory[:])[0]
def send():
    r = request(s, "POST" if body else "GET", path, body)
    return r.status, r.body
def bare(text):
    """Without ids, times and what the prefix cache had."""
    text = re.sub(rb'("(?:[a-z]*_)?(?:id|at|created|usage)": ?)("[^"]*"|[0-9]+)', rb"\1X", text)
    return re.sub(rb'("(?:input|prompt|cached|cache_[a-z]*)_?(?:input_)?_?tokens": ?)[0-9]+', rb"\1X", text)
def events(text):
    """The data of a stream, all of which is JSON; None: it does not say that it is
    whole."""
    data = [l[6:] for l in text.split(b"\n") if l.startswith(b"data: ")]
    ends = [d for d in data if d == b"[DONE]"]
    all = [json.loads(d) for d in data if d != b"[DONE]"]
    last = all[-1].get("type") if all else None
    return all if ends or last in ("response.completed", "response.incomplete", "message_stop") else None
def shape(all):
    """What a whole stream says, without the sizes of its pieces."""
    text, kinds = "", []
    for i, e in enumerate(all):
        assert e.get("sequence_number", i) == i, (i, e)
        d = e.get("delta", "")
        d = [d] if e.get("type") else [c["delta"] for c in e.get("choices", [])]
        for x in d:
            text += x if isinstance(x, str) else "".join(str(x[k]) for k in sorted(x) if isinstance(x[k], str))
        if not "".join(kinds[-1:]).endswith(str(e.get("type"))):
            kinds.append(str(e.get("type")))
    return text, kinds
def meaning(text):
    return shape(events(text)) if stream else bare(text)
for _ in range(3):
    status, text = send()
    assert status == 200, text
want, seen, n, missed = meaning(text), set(), 1, 0
while missed < 3:
    set_control(n)
    try:
        status, text = send()
    except (OSError, http.client.HTTPException):
        status, text = 0, b"" # libmicrohttpd closes the connection
    failed = left() == 0
    set_control(0)
    missed += not failed
    n += 1
    if status == 200 and stream:
        whole = events(text) is not None
        assert not whole or meaning(text) == want, (n, text)
        status = 200 if whole else "cut"
    elif status == 200:
        assert meaning(text) == want, (n, text, want)
    elif status:
        assert status == 503 and json.loads(text)["error"]["message"], (n, status, text)
    seen.add(status)
    assert get(s, "/health").status == 200, n
assert {200, 503} <= seen and (not stream or "cut" in seen) and n > 12, (n, seen)
print(n, seen)
PY
}

SCHEMA='{"type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]}}, "required": ["city"], "additionalProperties": false}'

@test "out of memory: /v1/responses, text and calls in a stream, a response" {
    failing /v1/responses '{"input": "list files", "instructions": "Be brief.", "max_output_tokens": 6,
        "stream": true, "reasoning": {"effort": "none"}}'
    local tools="\"tools\": [{\"type\": \"namespace\", \"name\": \"mcp\", \"tools\": [
        {\"type\": \"function\", \"name\": \"w\", \"parameters\": $SCHEMA}]}], \"tool_choice\": \"required\",
        \"parallel_tool_calls\": false, \"max_output_tokens\": 40, \"reasoning\": {\"effort\": \"none\"}"
    failing /v1/responses "{\"input\": [{\"role\": \"user\", \"content\": \"a\"}, {\"type\": \"function_call\", \"call_id\": \"c\",
        \"name\": \"w\", \"namespace\": \"mcp\", \"arguments\": \"{}\"}, {\"type\": \"function_call_output\", \"call_id\": \"c\",
        \"output\": \"b\"}], \"stream\": true, $tools}"
    failing /v1/responses "{\"input\": \"a\", $tools}"
}

@test "out of memory: /v1/messages, text and calls in a stream, a message, count_tokens" {
    local messages='"messages": [{"role": "user", "content": "list files"}], "max_tokens": 6'
    failing /v1/messages "{$messages, \"stream\": true}"
    failing /v1/messages "{$messages}"
    failing /v1/messages/count_tokens "{$messages}"
    failing /v1/messages "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]},
        {\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"c\", \"name\": \"w\", \"input\": {}}]},
        {\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"c\", \"content\": \"b\", \"is_error\": true}]}],
        \"tools\": [{\"name\": \"w\", \"input_schema\": $SCHEMA}], \"tool_choice\": {\"type\": \"any\",
        \"disable_parallel_tool_use\": true}, \"max_tokens\": 40, \"stream\": true}"
}

@test "out of memory: /v1/chat/completions, /v1/models" {
    failing /v1/chat/completions '{"messages": [{"role": "user", "content": "list files"}], "max_tokens": 6,
        "stream": true, "stream_options": {"include_usage": true}, "reasoning_effort": "none"}'
    failing /v1/models ''
}

@test "the server ends with status 0" {
    serve_stop main
}
