"""Checks of Anthropic's messages and of the events of their streams."""
import json

from serve_client import Stream, post

PATH = "/v1/messages"
STOPS = {"end_turn", "max_tokens", "stop_sequence", "tool_use",
         "model_context_window_exceeded"}
KEYS = ["id", "type", "role", "model", "content", "stop_reason",
        "stop_sequence", "usage"]
ERRORS = {400: "invalid_request_error", 401: "authentication_error",
          403: "permission_error", 404: "not_found_error",
          405: "invalid_request_error", 408: "invalid_request_error",
          413: "request_too_large", 429: "rate_limit_error",
          431: "invalid_request_error", 500: "api_error",
          503: "overloaded_error", 504: "timeout_error"}
CUTS = "max_tokens", "model_context_window_exceeded"


def check_usage(u):
    details = u["output_tokens_details"]
    assert set(u) == {"input_tokens", "cache_creation_input_tokens",
                      "cache_read_input_tokens", "output_tokens",
                      "output_tokens_details"}, u
    assert all(isinstance(u[k], int) and u[k] >= 0
               for k in u if k != "output_tokens_details"), u
    assert set(details) == {"thinking_tokens"}, u
    assert 0 <= details["thinking_tokens"] <= max(u["output_tokens"], 0), u


def inputs(usage):
    """The tokens of the prompt."""
    return usage["input_tokens"] + usage["cache_creation_input_tokens"] + \
        usage["cache_read_input_tokens"]


def check_block(b):
    """A block of content that is whole."""
    kinds = {"text": {"type": "text", "text": str},
             "thinking": {"type": "thinking", "thinking": str, "signature": str},
             "tool_use": {"type": "tool_use", "id": str, "name": str, "input": dict}}
    want = kinds[b["type"]]
    assert set(b) == set(want), b
    assert all(isinstance(b[k], t) for k, t in want.items() if k != "type"), b
    if b["type"] == "tool_use":
        assert b["id"].startswith("toolu_"), b


def check_message(m):
    assert list(m) == KEYS, m
    assert m["type"] == "message" and m["role"] == "assistant", m
    assert m["id"].startswith("msg_") and "/" not in m["model"], m
    for b in m["content"]:
        check_block(b)
    calls = [b["id"] for b in m["content"] if b["type"] == "tool_use"]
    assert len(set(calls)) == len(calls), m
    assert m["stop_reason"] in STOPS, m
    assert (m["stop_reason"] == "stop_sequence") == isinstance(m["stop_sequence"], str), m
    check_usage(m["usage"])


def error(r):
    """The "error" of an answer that is one."""
    e = r.json
    assert set(e) == {"type", "error"} and e["type"] == "error", e
    e = e["error"]
    assert set(e) - {"param"} == {"type", "message"}, e
    assert e["type"] == ERRORS[r.status], (r.status, e)
    assert e["message"] and "\n" not in e["message"], e
    return e


class Message:
    """The message of a stream. Each event must be the one that may come next."""

    def __init__(self):
        self.message = None
        self.open = None
        self.json = ""
        self.cut = False
        self.ended = False

    def add(self, e):
        assert not self.ended, e
        handler = getattr(self, "on_" + e["type"])
        assert self.message is not None or e["type"] == "message_start", e
        handler(e)

    def on_message_start(self, e):
        assert set(e) == {"type", "message"} and self.message is None, e
        m = self.message = e["message"]
        assert list(m) == KEYS and m["content"] == [], m
        assert m["stop_reason"] is None and m["stop_sequence"] is None, m
        check_usage(m["usage"])
        assert m["usage"]["output_tokens"] == 0, m
        self.n_prompt = inputs(m["usage"])

    def on_content_block_start(self, e):
        assert set(e) == {"type", "index", "content_block"}, e
        assert self.open is None and self.message["stop_reason"] is None, e
        assert e["index"] == len(self.message["content"]) and not self.cut, e
        b = self.open = dict(e["content_block"])
        check_block(b)
        assert not b.get("text") and not b.get("thinking") and not b.get("input"), b
        self.json = ""
        self.signed = False
        self.message["content"].append(b)

    def on_content_block_delta(self, e):
        assert set(e) == {"type", "index", "delta"}, e
        assert e["index"] == len(self.message["content"]) - 1, e
        b, d = self.open, e["delta"]
        kind, key, of = {
            "text_delta": ("text", "text", "text"),
            "thinking_delta": ("thinking", "thinking", "thinking"),
            "signature_delta": ("signature", "signature", "thinking"),
            "input_json_delta": ("json", "partial_json", "tool_use")}[d["type"]]
        assert set(d) == {"type", key} and isinstance(d[key], str), e
        assert b["type"] == of and not self.signed, (b, e)
        if kind == "json":
            self.json += d[key]
        elif kind == "signature":
            b["signature"] = d[key]
            self.signed = True
        else:
            assert d[key], e
            b[kind] += d[key]

    def on_content_block_stop(self, e):
        assert set(e) == {"type", "index"}, e
        assert e["index"] == len(self.message["content"]) - 1, e
        b = self.open
        if b["type"] == "tool_use":
            try:
                b["input"] = json.loads(self.json)
            except json.JSONDecodeError: # a call that is cut
                assert self.json[0] == "{", self.json
                self.cut = True
        assert self.signed == (b["type"] == "thinking"), b
        check_block(b)
        self.open = None

    def on_message_delta(self, e):
        assert set(e) == {"type", "delta", "usage"}, e
        assert set(e["delta"]) == {"stop_reason", "stop_sequence"}, e
        assert self.open is None and e["delta"]["stop_reason"] in STOPS, e
        assert not self.cut or e["delta"]["stop_reason"] in CUTS, e
        self.message.update(e["delta"])
        self.message["usage"] = e["usage"]
        check_usage(e["usage"])
        assert inputs(e["usage"]) == self.n_prompt, e

    def on_message_stop(self, e):
        assert set(e) == {"type"} and self.message["stop_reason"], e
        self.ended = True


def events(s):
    """The events of a Stream, whose names are their types."""
    for name, e in s.named():
        assert e["type"] == name, (name, e)
        yield e


def stream(address, body, path=PATH, **more):
    """The message of a stream without a call that is cut, and its events."""
    got, all_ = Message(), []
    with Stream(address, path, {**body, "stream": True}, **more) as s:
        for e in events(s):
            got.add(e)
            all_.append(e)
        assert got.ended, all_
    if got.cut:
        got.message["content"].pop()
    check_message(got.message)
    return got.message, all_


def ask(address, body, path=PATH, **more):
    r = post(address, path, body, **more)
    assert r.status == 200, (r.status, r.body)
    check_message(r.json)
    return r.json


def plain(content):
    """Content without what differs from answer to answer."""
    return [{k: v for k, v in b.items() if k != "id"} for b in content]


def both(address, body):
    """The answer without a stream; that of a stream is equal."""
    m = ask(address, body)
    got, _ = stream(address, body)
    assert plain(got["content"]) == plain(m["content"]), (got, m)
    for k in "role", "model", "stop_reason", "stop_sequence":
        assert got[k] == m[k], (k, got, m)
    assert got["id"] != m["id"]
    assert inputs(got["usage"]) == inputs(m["usage"]), (got, m)
    assert got["usage"]["output_tokens"] == m["usage"]["output_tokens"], (got, m)
    return m


def text(m):
    return "".join(b["text"] for b in m["content"] if b["type"] == "text")


def count(address, body, **more):
    r = post(address, PATH + "/count_tokens", body, **more)
    assert r.status == 200, (r.status, r.body)
    assert list(r.json) == ["input_tokens"], r.json
    return r.json["input_tokens"]
