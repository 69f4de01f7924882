#!/usr/bin/env python3
"""Use a server as careless programs do, for an hour, and look for what it loses.

usage: serve_soak.py [--minutes N] [--clients N] [--seed N] QWICK [SERVE OPTIONS…]

Starts `QWICK serve --exact --embeddings --kv-memory 100M` with the options on a unix socket of its
own. Clients ask all endpoints at random, leave in the queue, in a prefill or in the middle
of an answer, with a close or a reset, read slowly or not at all, and send requests that
are no HTTP. Every complete answer must be the one that its request got at the start.

Prints the memory (RSS), descriptors and threads of the server at the start, in the
middle and at the end, when no client is left; the counts of what was asked; and the exit
status after SIGTERM. The exit status is 1 if an answer was wrong, a request failed
without reason, a counter of /metrics fell, a descriptor or thread is left, or memory grew
by more than 5% and 8 MB from the middle to the end.

    bench/serve_soak.py --minutes 60 ./qwick
"""
import argparse
import collections
import http.client
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../tests/cli"))
import serve_client as client

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
QUESTIONS = ("list files", "show disk usage", "kill a process", "copy a file",
             "find large files", "count lines")
GONE = (OSError, http.client.HTTPException)


def chat(rng, n):
    return {"messages": [{"role": "user", "content": rng.choice(QUESTIONS)}],
            "temperature": 1, "seed": rng.randrange(4), "max_tokens": n}


def long_chat(rng):
    return {**chat(rng, 400), "regex": "[a-z ]{2000}", "stream": True,
            "n": rng.choice((1, 1, 3))}


def prefill(rng):
    text = " ".join(rng.choice(QUESTIONS) for _ in range(rng.randrange(100, 450)))
    return {**chat(rng, 1), "messages": [{"role": "user", "content": text}]}


# Of each protocol: what a request about a text adds to it, where the text of an answer
# is, and that of an event of a stream.
def conversation(path, text, n):
    if path == RESPONSES:
        return {"input": text, "temperature": 0, "max_output_tokens": n, "reasoning": {"effort": "none"}}
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": n}


def answer_of(path, o):
    parts = [p for i in o["output"] for p in i.get("content", ())] if path == RESPONSES else o["content"]
    return "".join(p["text"] for p in parts if "text" in p)


def delta_of(name, o):
    """The text of an event; None: it is the last one."""
    if name in ("response.completed", "response.incomplete", "message_stop"):
        return None
    d = o.get("delta", "")
    return d if name == "response.output_text.delta" else \
        d.get("text", "") if name == "content_block_delta" else ""


class Soak:
    def __init__(self, address, seed):
        self.address, self.seed = address, seed
        self.counts = collections.Counter()
        self.counters = {}  # of /metrics
        self.wrong = []
        self.known = {}  # request: its answer
        self.lock = threading.Lock()
        self.pause, self.over = threading.Event(), threading.Event()
        self.resting = threading.Semaphore(0)

    # ---- what a client does ----

    def compare(self, key, answer):
        with self.lock:
            want = self.known.setdefault(key, answer)
        if want != answer:
            self.fault(f"{key}: {answer!r}, not {want!r}")

    def fault(self, why):
        with self.lock:
            self.wrong.append(why)
        print("WRONG", why[:500], file=sys.stderr, flush=True)

    def status(self, r, *right):
        """Count an answer. 429 and 503 are right when the server is full."""
        with self.lock:
            self.counts[r.status] += 1
        if r.status not in (*right, 429, 503):
            self.fault(f"status {r.status}: {r.body[:200]!r}")
        return r.status in right

    def whole(self, rng):
        body = chat(rng, rng.choice((1, 8, 40)))
        r = client.post(self.address, CHAT, body)
        if self.status(r, 200):
            self.compare(str(body), r.json["choices"][0]["message"]["content"])

    def streamed(self, rng):
        body = chat(rng, rng.choice((1, 8, 40)))
        with client.Stream(self.address, CHAT, {**body, "stream": True}) as s:
            s.start()
            if s.status != 200:
                self.status(client.Reply(s.r, s.r.read()))
                return
            events = list(s)
        if not s.done:
            self.fault(f"{body}: no [DONE]: {events[-1:]}")
        else:
            self.compare(str(body), client.joined(events)["content"])

    def protocols(self, rng):
        """A conversation in the form of another protocol, with or without a stream."""
        path = rng.choice((RESPONSES, MESSAGES))
        body = conversation(path, rng.choice(QUESTIONS), rng.choice((1, 8, 40)))
        if rng.random() < 0.5:
            r = client.post(self.address, path, body)
            if self.status(r, 200):
                self.compare(path + str(body), answer_of(path, r.json))
            return
        text, ended = "", False
        with client.Stream(self.address, path, {**body, "stream": True}) as s:
            s.start()
            if s.status != 200:
                self.status(client.Reply(s.r, s.r.read()))
                return
            for name, o in s.named():
                d = delta_of(name, o)
                ended = ended or d is None
                text += d or ""
        if not ended:
            self.fault(f"{path} {body}: the stream has no end")
        else:
            self.compare(path + str(body), text)

    def sent(self, body, path=CHAT):
        c = client.Connection(self.address)
        c.request("POST", path, client.encode(body), {"Content-Type": "application/json"})
        return c

    def leave(self, rng, c):
        if rng.random() < 0.5:
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()

    def leaves(self, rng):
        path = rng.choice((CHAT, CHAT, RESPONSES, MESSAGES))
        if path == CHAT:
            body = rng.choice((prefill, long_chat))(rng)
        else:
            text = prefill(rng)["messages"][0]["content"]
            body = {**conversation(path, text, 100), "stream": rng.random() < 0.7}
        c = self.sent(body, path)
        time.sleep(rng.choice((0, 0.01, 0.1, 0.5)))
        self.leave(rng, c)

    def leaves_midway(self, rng):
        c = self.sent(long_chat(rng))
        c.sock.settimeout(60)
        for _ in range(rng.randrange(1, 30)):
            if not c.sock.recv(rng.randrange(1, 4096)):
                break
        self.leave(rng, c)

    def reads_slowly(self, rng):
        c = self.sent(long_chat(rng))
        for _ in range(rng.randrange(20)):
            time.sleep(rng.random())
            if self.pause.is_set() or not c.sock.recv(512):
                break
        self.leave(rng, c)

    def never_reads(self, rng):
        c = self.sent(long_chat(rng))
        self.pause.wait(rng.choice((1, 10, 90)))
        self.leave(rng, c)

    def other_endpoint(self, rng):
        text = rng.choice(QUESTIONS)
        path, body = rng.choice((
            ("/v1/embeddings", {"input": [text] * rng.randrange(1, 20)}),
            ("/v1/embeddings", {"input": text, "encoding_format": "base64"}),
            ("/v1/rerank", {"query": text, "documents": list(QUESTIONS)}),
            ("/tokenize", {"text": text * 20}), ("/detokenize", {"ids": [1, 2, 3]}),
            ("/score", {"text": text * 30}),
            (MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": text}]}),
            ("/v1/completions", {"prompt": text, "max_tokens": 8, "seed": 1})))
        r = client.post(self.address, path, body)
        # 400: this model has no such endpoint
        if self.status(r, 200, 400) and r.status == 200:
            o = r.json
            for name in "id", "created":
                o.pop(name, None)
            self.drop_cached(o)
            self.compare(path + str(body), o)

    @staticmethod
    def drop_cached(o):
        (o.get("usage") or {}).pop("prompt_tokens_details", None)

    def small(self, rng):
        for path in "/health", "/v1/models", "/":
            r = client.get(self.address, path)
            if r.status != 200:
                self.fault(f"{path}: {r.status}")

    def metrics(self, rng):
        """Counters do not fall."""
        with self.lock:
            before = dict(self.counters)
        r = client.get(self.address, "/metrics")
        if r.status != 200:
            self.fault(f"/metrics: {r.status}")
            return
        now = {}
        for line in r.body.decode().splitlines():
            name, _, number = line.rpartition(" ")
            if not line.startswith("#") and ("_total" in name or "_count" in name or "_bucket" in name):
                now[name] = float(number)
        for name, value in before.items():
            if now.get(name, 0) < value:
                self.fault(f"{name} fell from {value} to {now.get(name)}")
        with self.lock:
            for name, v in now.items():
                self.counters[name] = max(v, self.counters.get(name, 0))

    def mistaken(self, rng):
        body = rng.choice(({}, {"messages": 1}, {**chat(rng, 1), "temperature": "x"},
                           {**chat(rng, 1), "regex": "("},
                           {**chat(rng, 1), "messages": [{"role": "user", "content": "a " * 5000}]}))
        self.status(client.post(self.address, CHAT, body), 400)

    def no_http(self, rng):
        data = rng.choice((rng.randbytes(2000), b"GET / HTTP/1.1\r\n\r\n",
                           b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
                           b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "))
        with client.connect(self.address) as s:
            s.sendall(data)
            time.sleep(rng.random() * 0.1)

    # ---- clients ----

    ACTIONS = ("whole",) * 3 + ("streamed",) * 3 + ("protocols",) * 3 + ("leaves",) * 4 + ("leaves_midway",) * 4 + (
        "reads_slowly", "never_reads", "other_endpoint", "other_endpoint", "small", "mistaken",
        "no_http", "metrics")

    def run_client(self, i):
        rng = random.Random(f"{self.seed}.{i}")
        while not self.over.is_set():
            if self.pause.is_set():
                self.resting.release()
                while self.pause.is_set() and not self.over.is_set():
                    time.sleep(0.1)
                continue
            name = rng.choice(self.ACTIONS)
            with self.lock:
                self.counts[name] += 1
            try:
                getattr(self, name)(rng)
            except AssertionError as e:
                self.fault(f"{name}: {e!r}")
            except GONE as e:
                if name not in ("leaves", "leaves_midway", "reads_slowly", "never_reads", "no_http"):
                    self.fault(f"{name}: {e!r}")

    def rest(self, n):
        """Wait until all n clients have ended what they do."""
        self.pause.set()
        for _ in range(n):
            self.resting.acquire()

    def go_on(self):
        self.pause.clear()
        while self.resting.acquire(blocking=False):
            pass


def measure(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = dict(l.split(":", 1) for l in f)
    return {"rss_mb": int(status["VmRSS"].split()[0]) / 1024,
            "fds": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"])}


def settled(pid, limit=60):
    """Measure when descriptors have stopped to change."""
    last, end = None, time.monotonic() + limit
    while time.monotonic() < end:
        time.sleep(1)
        now = measure(pid)
        if last and last["fds"] == now["fds"]:
            return now
        last = now
    return last


def start(o, address):
    # so that the prefix cache is soon full: its growth would hide a leak
    command = [o.qwick, "serve", "--exact", "--embeddings", "--listen", address, "--kv-memory", "100M",
               *o.options]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(1200):
        if server.poll() is not None:
            sys.exit(f"{' '.join(command)}: exit status {server.returncode}")
        try:
            if client.get(address, "/health").status == 200:
                return server
        except GONE:
            pass
        time.sleep(0.1)
    server.kill()
    sys.exit("the server does not answer")


def soak(o, address, server):
    work = Soak(address, o.seed)
    threads = [threading.Thread(target=work.run_client, args=(i,), daemon=True)
               for i in range(o.clients)]
    points, length = [], o.minutes * 60
    for t in threads:
        t.start()
    # the first tenth fills caches and pools, if it is some minutes
    for wait in 0.1 * length, 0.45 * length, 0.45 * length:
        end = time.monotonic() + wait
        while time.monotonic() < end and server.poll() is None:
            time.sleep(0.2)
        if server.poll() is not None:
            work.fault(f"the server ended: {server.returncode}")
            break
        work.rest(o.clients)
        points.append(settled(server.pid))
        print(f"{len(points)}: {points[-1]}", flush=True)
        work.go_on()
    work.over.set()
    return work, points


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--clients", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("qwick")
    p.add_argument("options", nargs=argparse.REMAINDER)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        address = f"unix:{d}/s"
        server = start(o, address)
        work, points = soak(o, address, server)
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        try:
            status = server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            status = "killed: it did not end"
    for name, count in sorted(work.counts.items(), key=str):
        print(f"{str(name):15} {count}")
    for name, at in zip(("start", "middle", "end"), points):
        print(f"{name:15} RSS {at['rss_mb']:.1f} MB, {at['fds']} descriptors, {at['threads']} threads")
    print(f"exit status     {status}\nwrong           {len(work.wrong)}")
    bad = bool(work.wrong) or status != 0 or len(points) < 3
    if not bad:
        first, middle, last = points
        bad = last["fds"] > first["fds"] or last["threads"] > first["threads"] or \
            last["rss_mb"] > middle["rss_mb"] * 1.05 + 8
    print("FAILED" if bad else "passed")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
