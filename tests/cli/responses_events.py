"""A check of the events of /v1/responses: their order, their members, and that the
response that a client puts together from them is the one of the last event.

    response = check(events)    events: pairs of name and JSON

returns that response.
"""
RESPONSE = {
    "id", "object", "created_at", "completed_at", "status", "error", "incomplete_details",
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "output",
    "parallel_tool_calls", "previous_response_id", "prompt_cache_key", "reasoning",
    "safety_identifier", "service_tier", "store", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation", "usage", "user", "background"}
ITEMS = {
    "message": {"id", "type", "status", "content", "role"},
    "reasoning": {"id", "type", "status", "summary", "content", "encrypted_content"},
    "function_call": {"id", "type", "status", "call_id", "name", "arguments"}}
PREFIX = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
# a part: the list of its item, the number of the part, and its events
PARTS = {
    "output_text": ("content", "content_index", "response.content_part",
                    "response.output_text"),
    "reasoning_text": ("content", "content_index", "response.content_part",
                       "response.reasoning_text"),
    "summary_text": ("summary", "summary_index", "response.reasoning_summary_part",
                     "response.reasoning_summary_text")}


def check_response(r, status):
    assert set(r) == RESPONSE, set(r) ^ RESPONSE
    assert r["id"].startswith("resp_") and r["object"] == "response", r
    assert r["status"] == status, (r["status"], status)
    assert isinstance(r["created_at"], int) and r["store"] is False
    assert (r["completed_at"] is not None) == (status == "completed"), r
    assert (r["error"] is not None) == (status == "failed"), r
    want = {"reason": "max_output_tokens"} if status == "incomplete" else None
    assert r["incomplete_details"] == want, r
    assert (r["usage"] is not None) == (status in ("completed", "incomplete")), r
    if r["usage"]:
        u = r["usage"]
        assert u["total_tokens"] == u["input_tokens"] + u["output_tokens"], u
        d = u["input_tokens_details"]
        assert d["cached_tokens"] + d["cache_write_tokens"] == u["input_tokens"], u
        assert 0 <= u["output_tokens_details"]["reasoning_tokens"] <= u["output_tokens"]
    ids = [i["id"] for i in r["output"]]
    assert len(set(ids)) == len(ids), ids
    for i in r["output"]:
        check_item(i)


def check_item(i):
    members = ITEMS[i["type"]]
    assert set(i) - {"namespace"} == members, i
    assert i["id"].startswith(PREFIX[i["type"]]) and len(i["id"]) > 8, i
    if i["type"] == "message":
        assert i["role"] == "assistant", i
    for p in i.get("content", []) + i.get("summary", []):
        check_part(p)


def check_part(p):
    members = {"type", "text"}
    if p["type"] == "output_text":
        members |= {"annotations", "logprobs"}
        assert p["annotations"] == [], p
    assert set(p) == members and p["type"] in PARTS, p


class Events:
    def __init__(self, events):
        self.left = list(events)
        self.n = 0

    def peek(self):
        return self.left[0][0] if self.left else None

    def next(self, name, *members):
        got, e = self.left.pop(0)
        assert got == name == e["type"], (got, name, e)
        assert e["sequence_number"] == self.n, e
        self.n += 1
        assert set(e) == {"type", "sequence_number", *members}, (set(e), members)
        return e


def check_text_item(ev, i, item):
    """The events of an item with one part; item: as it was added. Returns it as it
    ended."""
    assert item["content"] == [] and item.get("summary", []) == [], item
    name, e = ev.left[0]
    kind = e["part"]["type"]
    members, number, part, text = PARTS[kind]
    at = {"item_id": item["id"], "output_index": i, number: 0}
    logprobs = ["logprobs"] if kind == "output_text" else []

    def one(name, *more):
        e = ev.next(name, *at, *more)
        assert {k: e[k] for k in at} == at, (e, at)
        return e
    first = one(part + ".added", "part")["part"]
    check_part(first)
    assert first["text"] == "", first
    got, probs = "", []
    while ev.peek() == text + ".delta":
        e = one(text + ".delta", "delta", *logprobs)
        assert e["delta"], e
        got += e["delta"]
        probs += e.get("logprobs", [])
    e = one(text + ".done", "text", *logprobs)
    assert e["text"] == got, (e, got)
    assert e.get("logprobs", []) == probs
    last = one(part + ".done", "part")["part"]
    check_part(last)
    assert last["text"] == got and last.get("logprobs", []) == probs, last
    return {**item, "status": None, members: [last]}


def check_call(ev, i, item):
    assert item["arguments"] == "" and item["call_id"] and item["name"], item
    got = ""
    while ev.peek() == "response.function_call_arguments.delta":
        e = ev.next(ev.peek(), "item_id", "output_index", "delta")
        assert e["item_id"] == item["id"] and e["output_index"] == i, e
        got += e["delta"]
    space = ["namespace"] if "namespace" in item else []
    e = ev.next("response.function_call_arguments.done", "item_id", "output_index",
                "arguments", "name", *space)
    assert e["item_id"] == item["id"] and e["output_index"] == i, e
    assert e["arguments"] == got and e["name"] == item["name"], (e, got)
    return {**item, "status": None, "arguments": got}


def check(events):
    ev = Events(events)
    first = ev.next("response.created", "response")["response"]
    check_response(first, "in_progress")
    assert ev.next("response.in_progress", "response")["response"] == first
    assert first["output"] == []
    output = []
    while ev.peek() == "response.output_item.added":
        i = len(output)
        e = ev.next(ev.peek(), "output_index", "item")
        assert e["output_index"] == i, e
        item = e["item"]
        check_item(item)
        assert item["status"] == "in_progress", item
        of_type = check_call if item["type"] == "function_call" else check_text_item
        want = of_type(ev, i, item)
        e = ev.next("response.output_item.done", "output_index", "item")
        assert e["output_index"] == i, e
        done = e["item"]
        check_item(done)
        assert done["status"] in ("completed", "incomplete"), done
        assert {**done, "status": None} == want, (done, want)
        output.append(done)
    name = ev.peek()
    assert name in ("response.completed", "response.incomplete"), (name, ev.left)
    last = ev.next(name, "response")["response"]
    assert not ev.left, ev.left
    check_response(last, name[len("response."):])
    assert last["output"] == output, (last, output)
    for i in output[:-1]:
        assert i["status"] == "completed", output
    changed = {"status", "output", "usage", "completed_at", "incomplete_details"}
    for k in RESPONSE - changed:
        assert last[k] == first[k], (k, last[k], first[k])
    return last
