#!/usr/bin/env python3
"""Measure how long events of streams wait in the server: from draw to wire.

usage: serve_delay.py [options] ADDRESS

Keeps --streams streams of chat completions open at HOST:PORT or unix:PATH of qwick serve,
each of --tokens tokens, for --seconds, and prints what the histogram
qwick_event_delay_seconds of /metrics has got meanwhile: events, their rate, p50, p90 and
p99 in milliseconds (interpolated in the histogram's buckets), the share within 2 ms, and
tok/s.

The client is one thread that sleeps, and reads all sockets every --every milliseconds. So
it wakes seldom, and takes little of the CPUs that the server computes on; the kernel keeps
what it has not read.

    qwick serve -m MODEL --listen unix:/tmp/s &
    bench/serve_delay.py --seconds 20 unix:/tmp/s
"""
import argparse
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../tests/cli"))
import serve_client as client

PATH = "/v1/chat/completions"
DELAY = "qwick_event_delay_seconds"
TOKENS = "qwick_generation_tokens_total"


def read_metrics(address):
    """The cumulative buckets [(bound, count)], and the tokens so far."""
    text = client.get(address, "/metrics").body.decode()
    buckets = [(float(b), int(n)) for b, n in
               re.findall(DELAY + r'_bucket{.*le="(.*)"} (\d+)', text)]
    return buckets, int(re.search(TOKENS + r"{.*} (\d+)", text)[1])


def quantile(buckets, q):
    """In milliseconds."""
    total, below, bound = buckets[-1][1], 0, 0.0
    for upper, n in buckets:
        if n >= q * total and n > below:
            if upper == float("inf"):
                return 1e3 * bound
            return 1e3 * (bound + (upper - bound) * (q * total - below) / (n - below))
        below, bound = n, upper
    return 0.0


class Reader:
    """A stream that is asked for again whenever it ends."""

    def __init__(self, o, i):
        self.o, self.i, self.k, self.c = o, i, 0, None

    def ask(self):
        self.k += 1
        body = {"messages": [{"role": "user", "content": f"Question {self.i}.{self.k}?"}],
                "max_tokens": self.o.tokens, "temperature": 1, "seed": self.i,
                "stream": True, **self.o.body}
        self.c = client.Connection(self.o.address)
        self.c.request("POST", PATH, client.encode(body), {"Content-Type": "application/json"})
        self.c.sock.setblocking(False)
        self.tail = b""

    def read(self):
        if not self.c:
            self.ask()
        try:
            while data := self.c.sock.recv(1 << 16):
                self.tail = (self.tail + data)[-64:]
        except BlockingIOError:
            pass
        if b"[DONE]" in self.tail or b"0\r\n\r\n" in self.tail:
            self.close()

    def close(self):
        if self.c:
            self.c.close()
        self.c = None


def run(o):
    readers = [Reader(o, i) for i in range(o.streams)]

    def go_on(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for r in readers:
                r.read()
            time.sleep(o.every / 1000)

    go_on(o.warm)
    start, (before, n_before) = time.monotonic(), read_metrics(o.address)
    go_on(o.seconds)
    (after, n_after), seconds = read_metrics(o.address), time.monotonic() - start
    for r in readers:
        r.close()
    buckets = [(b, n - m) for (b, n), (_, m) in zip(after, before)]
    total = buckets[-1][1]
    if not total:
        sys.exit("no event was written")
    in_time = max(n for b, n in buckets if b <= 0.002)
    return {"streams": o.streams, "events": total, "events_per_s": total / seconds,
            "tok_per_s": (n_after - n_before) / seconds,
            **{f"p{q}_ms": quantile(buckets, q / 100) for q in (50, 90, 99)},
            "within_2_ms": in_time / total}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("address")
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--tokens", type=int, default=400)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--warm", type=float, default=2, help="seconds before the measurement")
    p.add_argument("--every", type=float, default=50, metavar="MS")
    p.add_argument("--body", type=json.loads, default={}, metavar="JSON")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    r = run(o)
    if o.json:
        print(json.dumps(r))
        return
    for name, value in r.items():
        print(f"{name:14} {value:.3f}" if isinstance(value, float) else f"{name:14} {value}")


if __name__ == "__main__":
    main()
