#!/usr/bin/env python3
"""Load a server of OpenAI's chat completions with streams that share a prefix.

usage: serve_load.py [options] ADDRESS

ADDRESS is HOST:PORT or unix:PATH, of qwick serve, llama-server or another. Each of
--clients clients asks --requests times, one after the other, for a stream of --tokens
tokens. The prompts share about --prefix tokens and end differently. One request before
the measurement says how many tokens the prefix has, and leaves it in the server's cache;
--cold skips that.

Answers should have equal lengths, or figures of two servers do not compare: --body adds
members to each request, such as '{"regex": "[a-z ]{4000}"}' for qwick and
'{"ignore_eos": true}' for llama-server. With random weights neither is needed.

Prints tokens and seconds, tok/s of all clients together, the time from a request to its
first text or thinking (median and 99th percentile), the same of /health, which is asked
every 50 ms meanwhile, and the number of failed requests. The exit status is 1 if any
failed.

    qwick serve -m MODEL --listen unix:/tmp/s &
    bench/serve_load.py --clients 16 --prefix 4000 --tokens 128 unix:/tmp/s
"""
import argparse
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../tests/cli"))
import serve_client as client

PATH = "/v1/chat/completions"
WORDS = ("time year people way day man thing woman life child world school state family "
         "student group country problem hand part place case week company system").split()


class Load:
    def __init__(self, o):
        self.o = o
        self.fields = {"Authorization": "Bearer " + o.key} if o.key else {}
        self.prefix = self.shared = ""
        self.first, self.health, self.errors = [], [], []
        self.tokens = 0
        self.lock = threading.Lock()
        self.over = threading.Event()

    def body(self, text, n):
        return {"messages": [{"role": "user", "content": text}], "max_tokens": n,
                "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}, **self.o.body}

    def ask(self, text, n):
        """Returns seconds to the first text, and the usage."""
        start, first, pieces, usage = time.perf_counter(), None, 0, {}
        with client.Stream(self.o.address, PATH, self.body(text, n), self.fields,
                           timeout=self.o.timeout) as s:
            for event in s:
                if "error" in event:
                    raise RuntimeError(event["error"]["message"])
                usage = event.get("usage") or usage
                for c in event["choices"]:
                    d = c["delta"]
                    if d.get("content") or d.get("reasoning_content"):
                        pieces += 1
                        first = first or time.perf_counter() - start
            if not s.done:
                raise RuntimeError("no [DONE]")
        usage.setdefault("completion_tokens", pieces)
        return first or time.perf_counter() - start, usage

    def words(self, n):
        return " ".join(WORDS[i * 7 % len(WORDS)] for i in range(n))

    def make_prefix(self):
        """Find a text of about the tokens that are asked for."""
        n = self.o.prefix
        if n == 0:
            return 0, 0
        _, few = self.ask(self.words(16), 1)
        _, more = self.ask(self.words(272), 1)
        a, b = few.get("prompt_tokens", 16), more.get("prompt_tokens", 272)
        self.prefix = self.words(max(1, round(n * 256 / (b - a))))
        if self.o.cold:
            return n, 0
        start = time.perf_counter()
        _, usage = self.ask(self.prefix, 1)
        return usage.get("prompt_tokens", n), time.perf_counter() - start

    def run_client(self, i):
        for k in range(self.o.requests):
            text = f"{self.prefix} Question {i}.{k}: tell me about {WORDS[(i + k) % len(WORDS)]}."
            try:
                first, usage = self.ask(text, self.o.tokens)
            except (OSError, AssertionError, RuntimeError, client.http.client.HTTPException) as e:
                with self.lock:
                    self.errors.append(f"client {i}: {e!r}")
                continue
            with self.lock:
                self.first.append(first)
                self.tokens += usage["completion_tokens"]

    def watch_health(self):
        c = client.Connection(self.o.address)
        while not self.over.wait(0.05):
            start = time.perf_counter()
            try:
                client.ask(c, "GET", "/health")
                self.health.append(time.perf_counter() - start)
            except (OSError, client.http.client.HTTPException) as e:
                self.errors.append(f"/health: {e!r}")
                c.close()
        c.close()

    def run(self):
        prefix, prefill = self.make_prefix()
        threads = [threading.Thread(target=self.run_client, args=(i,))
                   for i in range(self.o.clients)]
        watch = threading.Thread(target=self.watch_health)
        start = time.perf_counter()
        for t in [watch, *threads]:
            t.start()
        for t in threads:
            t.join()
        seconds = time.perf_counter() - start
        self.over.set()
        watch.join()
        return {"clients": self.o.clients, "requests": self.o.clients * self.o.requests,
                "prefix_tokens": prefix, "prefix_s": prefill,
                "tokens": self.tokens, "seconds": seconds, "tok_per_s": self.tokens / seconds,
                "first_ms_p50": quantile(self.first, 0.5), "first_ms_p99": quantile(self.first, 0.99),
                "health_ms_p50": quantile(self.health, 0.5), "health_ms_p99": quantile(self.health, 0.99),
                "errors": len(self.errors)}


def quantile(seconds, q):
    """In milliseconds; None without values."""
    if not seconds:
        return None
    v = sorted(seconds)
    return 1e3 * v[min(len(v) - 1, int(q * len(v)))]


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("address")
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--requests", type=int, default=1)
    p.add_argument("--prefix", type=int, default=0, metavar="TOKENS")
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--body", type=json.loads, default={}, metavar="JSON")
    p.add_argument("--key")
    p.add_argument("--cold", action="store_true")
    p.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def main():
    o = options()
    load = Load(o)
    r = load.run()
    if o.json:
        print(json.dumps(r))
    else:
        for name, value in r.items():
            print(f"{name:14} {value:.1f}" if isinstance(value, float) else f"{name:14} {value}")
    for why in load.errors[:10]:
        print(why, file=sys.stderr)
    return 1 if load.errors else 0


if __name__ == "__main__":
    sys.exit(main())
