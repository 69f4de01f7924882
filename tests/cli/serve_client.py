"""An HTTP client for tests of the server: plain requests, streams of events, and raw
bytes, over TCP (HOST:PORT) or a unix socket (unix:PATH).

usage: serve_client.py ADDRESS METHOD PATH [BODY [FIELD…]]

prints the status and the body.
"""
import http.client
import json
import socket
import sys

TIMEOUT = 60


def connect(address, timeout=TIMEOUT):
    if address.startswith("unix:"):
        s = socket.socket(socket.AF_UNIX)
        s.connect(address[5:]) # without a timeout, so that it waits in the backlog
        s.settimeout(timeout)
        return s
    host, _, port = address.rpartition(":")
    s = socket.create_connection((host.strip("[]"), int(port)), timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


class Connection(http.client.HTTPConnection):
    def __init__(self, address, timeout=TIMEOUT):
        super().__init__("localhost", timeout=timeout)
        self.address = address

    def connect(self):
        self.sock = connect(self.address, self.timeout)


class Reply:
    def __init__(self, r, body):
        self.status, self.fields, self.body = r.status, r.headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The members of an error, all of which must be there."""
        e = self.json["error"]
        assert set(e) == {"message", "type", "param", "code"}, e
        assert e["message"] and "\n" not in e["message"], e
        assert isinstance(e["type"], str), e
        return e


def encode(body):
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def ask(c, method, path, body=None, fields=None):
    """Send a request over a connection and read the whole answer."""
    body = encode(body)
    fields = dict(fields or {})
    if body is not None:
        fields.setdefault("Content-Type", "application/json")
    c.request(method, path, body, fields)
    r = c.getresponse()
    return Reply(r, r.read())


def request(address, method, path, body=None, fields=None, timeout=TIMEOUT):
    c = Connection(address, timeout)
    try:
        return ask(c, method, path, body, fields)
    finally:
        c.close()


def get(address, path, **more):
    return request(address, "GET", path, **more)


def post(address, path, body, **more):
    return request(address, "POST", path, body, **more)


class Stream:
    """The events of an answer. A context manager: leaving it closes the
    connection."""

    def __init__(self, address, path, body, fields=None, timeout=TIMEOUT):
        self.c = Connection(address, timeout)
        fields = {"Content-Type": "application/json", **(fields or {})}
        self.c.request("POST", path, encode(body), fields)
        self.comments = 0
        self.done = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.c.close()
        if getattr(self, "r", None):
            self.r.close()

    def start(self):
        """Read the head."""
        self.r = self.c.getresponse()
        self.status = self.r.status
        return self

    def __iter__(self):
        """The JSON of each event until [DONE] or the end. An event is one line of data
        and a blank line; comments are counted."""
        if not hasattr(self, "r"):
            self.start()
        assert self.status == 200, (self.status, self.r.read())
        kind = self.r.headers["Content-Type"]
        assert kind.split(";")[0] == "text/event-stream", kind
        while line := self.r.readline():
            assert line.endswith(b"\n"), line
            if line == b"\n":
                continue
            if line.startswith(b":"):
                self.comments += 1
                continue
            assert line.startswith(b"data: "), line
            assert self.r.readline() == b"\n", line
            if line == b"data: [DONE]\n":
                self.done = True
                assert self.r.read() == b""
                return
            yield json.loads(line[6:])

    def named(self):
        """The events of a protocol that names them: pairs of name and JSON, until the
        end of the stream."""
        if not hasattr(self, "r"):
            self.start()
        assert self.status == 200, (self.status, self.r.read())
        while line := self.r.readline():
            if line == b"\n":
                continue
            if line.startswith(b":"):
                self.comments += 1
                continue
            assert line.startswith(b"event: "), line
            data = self.r.readline()
            assert data.startswith(b"data: "), data
            assert self.r.readline() == b"\n", data
            yield line[7:-1].decode(), json.loads(data[6:])


def stream(address, path, body, **more):
    """All events of an answer that ends with [DONE]."""
    with Stream(address, path, {**body, "stream": True}, **more) as s:
        events = list(s)
        assert s.done, events
        return events


def joined(events, index=0):
    """The message of one choice from the deltas of a stream: content,
    reasoning_content, tool_calls, finish_reason."""
    out = {"content": "", "reasoning_content": "", "tool_calls": [],
           "finish_reason": None}
    for e in events:
        for c in e["choices"]:
            if c["index"] != index:
                continue
            assert out["finish_reason"] is None, "a delta after the end"
            d = c["delta"]
            assert d.get("reasoning_content") == d.get("reasoning"), d
            for k in "content", "reasoning_content":
                out[k] += d.get(k) or ""
            for t in d.get("tool_calls", []):
                calls = out["tool_calls"]
                if t["index"] == len(calls):
                    assert t["id"] and t["type"] == "function", t
                    assert t["function"]["name"], t
                    assert t["function"]["arguments"] == "", t
                    calls.append({"id": t["id"], "name": t["function"]["name"],
                                  "arguments": ""})
                else:
                    assert t["index"] == len(calls) - 1, t
                    assert set(t["function"]) == {"arguments"}, t
                    calls[-1]["arguments"] += t["function"]["arguments"]
            if c["finish_reason"]:
                assert not d.get("content"), c
                out["finish_reason"] = c["finish_reason"]
    return out


def raw(address, data, timeout=4, pieces=None):
    """Send bytes and read until the server closes the connection. Returns what it
    sent; None after the bytes if it did not close."""
    got, closed = b"", True
    with connect(address, timeout) as s:
        try:
            for piece in pieces or [data]:
                s.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass # it refused the request before it had all of it
        try:
            while b := s.recv(65536):
                got += b
        except ConnectionResetError:
            pass
        except TimeoutError:
            closed = False
    return got, closed


def statuses(got):
    """The statuses of the answers in raw bytes."""
    out = []
    while got:
        head, _, rest = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1."), got[:80]
        out.append(int(head.split(b" ", 2)[1]))
        fields = dict(l.lower().split(b":", 1) for l in head.split(b"\r\n")[1:])
        n = int(fields.get(b"content-length", b"0"))
        got = rest[n:]
    return out


def main():
    address, method, path, *more = sys.argv[1:]
    fields = dict(f.split(": ", 1) for f in more[1:])
    r = request(address, method, path, more[0] if more and more[0] else None,
                fields)
    print(r.status)
    sys.stdout.write(r.body.decode())


if __name__ == "__main__":
    main()
