#!/usr/bin/env bats
# serve: clients that leave, are slow or too many; drain, restart.
load helpers
load serve

setup_file() {
    serve_setup_file
    python3 tests/cli/slow_model.py models/demo "$D/slow" 8
    serve_start one --exact -v -m "$D/slow" --max-batch 1 --queue 1
    serve_start main --exact
    fast_clock
    export FAST_CLOCK
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

# Python for the tests: what a long answer and a short one are, and when a server rests.
LIFE='
import os, select, socket, struct, sys, threading, time
from serve_client import *
s, pid = sys.argv[1], int(sys.argv[2])
PATH = "/v1/chat/completions"
def user(text):
    return {"role": "user", "content": text}
SHORT = {"messages": [user("list files")], "temperature": 1, "seed": 4, "max_tokens": 12}
LONG = {"messages": [user("list files")], "regex": "[a-z ]{9000}", "stream": True}
PREFILL = {"messages": [user("show disk usage " * 600)], "max_tokens": 1}
def short():
    r = post(s, PATH, SHORT)
    assert r.status == 200, (r.status, r.body)
    return r.json["choices"][0]["message"]["content"]
def used():
    f = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
    return int(f[11]) + int(f[12])
def until(true, what):
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, what
        time.sleep(0.02)
def rests():
    """The server needs no CPU."""
    a = used()
    time.sleep(0.3)
    return used() - a <= 2
def send(body, address=None):
    """A request whose answer is not read."""
    c = Connection(address or s)
    c.request("POST", PATH, encode(body), {"Content-Type": "application/json"})
    return c
def first(stream_):
    """Read up to the first text."""
    for e in stream_:
        if e["choices"][0]["delta"].get("content"):
            return e
'

life_py() {
    local name=$1
    { echo "$LIFE"; cat; } >"$T/test.py"
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S "$T/test.py" "unix:$D/$name" "$(<"$D/$name.pid")"
}

@test "one request too many gets 429 at once; a place is free when a client leaves" {
    life_py one <<'PY'
want = short()
a = Stream(s, PATH, LONG).start()
first(a)
waiting = send(SHORT)
def refused():
    r = post(s, PATH, SHORT)
    if r.status != 429:
        return False
    assert int(r.fields["Retry-After"]) >= 1 and r.error["message"]
    return True
until(refused, "no 429")
assert get(s, "/health").status == 200 and get(s, "/v1/models").status == 200
# the one in the queue leaves, and its place is taken
waiting.close()
got = []
def patient():
    while not got:
        r = post(s, PATH, SHORT)
        if r.status == 429:
            time.sleep(0.05)
            continue
        got.append(r.json["choices"][0]["message"]["content"])
t = threading.Thread(target=patient)
t.start()
time.sleep(0.3)
# then the one that decodes
a.close()
t.join(60)
assert got == [want], (got, want)
until(rests, "it works for nobody")
PY
}

@test "a client that leaves in a prefill or in decode: its work ends, others go on" {
    life_py one <<'PY'
want = short()
# a prefill: the next one is served long before its end
for reset in False, True:
    c = send(PREFILL)
    time.sleep(0.15)
    if reset:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    until(rests, "the prefill goes on")
    assert short() == want
# decode
for _ in range(3):
    with Stream(s, PATH, LONG) as a:
        first(a)
    until(rests, "the answer goes on")
assert short() == want
# without a stream
c = send({**LONG, "stream": False})
time.sleep(0.2)
c.close()
until(rests, "the answer goes on")
# none of them went on to its end
with open(s[5:] + ".err") as log:
    left = [line for line in log if "the client has left" in line]
assert len(left) >= 6 and all(": 503," in line for line in left), left
# what was evaluated is kept
r = post(s, PATH, PREFILL)
assert r.status == 200
PY
}

@test "others' answers do not change while clients come and leave" {
    life_py main <<'PY'
import random
rng = random.Random(3)
want = short()
ask = {**SHORT, "messages": [user("show disk usage")], "stream": True, "max_tokens": 60}
whole = joined(stream(s, PATH, ask))
stop = []
def rude(seed):
    rng = random.Random(seed)
    while not stop:
        body = rng.choice([LONG, PREFILL, ask, {**LONG, "n": 3}])
        c = send(body)
        time.sleep(rng.random() * 0.1)
        if rng.random() < 0.5:
            c.sock.recv(rng.randrange(1, 2000)) if select.select([c.sock], [], [], 0.05)[0] else None
        c.close()
rudes = [threading.Thread(target=rude, args=(i,)) for i in range(4)]
for t in rudes:
    t.start()
try:
    for _ in range(4):
        assert short() == want
        assert joined(stream(s, PATH, ask)) == whole
        assert get(s, "/health").status == 200
finally:
    stop.append(1)
    for t in rudes:
        t.join()
until(rests, "it works for nobody")
PY
}

@test "a client that reads slowly stalls nobody, and gets all of its answer" {
    life_py main <<'PY'
want = short()
body = {**LONG, "n": 4, "temperature": 1, "seed": 1, "max_tokens": 900}
slow = send(body)
for _ in range(3):
    assert short() == want
until(rests, "the answer does not end")
assert short() == want
slow_ = Stream.__new__(Stream)
slow_.c, slow_.comments, slow_.done = slow, 0, False
events = list(slow_.start())
assert slow_.done
for i in range(4):
    got = joined(events, i)
    one = post(s, PATH, {**body, "stream": False}).json["choices"][i] if i == 0 else None
    assert got["finish_reason"] == "length"
    assert one is None or got["content"] == one["message"]["content"]
slow.close()
PY
}

@test "a client that takes no byte for a minute is cancelled" {
    [ -n "$FAST_CLOCK" ] || skip "the clock is not changed under sanitizers"
    serve_launch fast env LD_PRELOAD="$FAST_CLOCK" "$QWICK" serve --listen "unix:$D/fast"
    serve_wait fast "unix:$D/fast"
    life_py fast <<'PY'
body = {**LONG, "n": 8, "max_tokens": 1900}
c = send(body)
# it never reads, and the connection ends: after what was under way, no [DONE]
for _ in range(100):
    get(s, "/health")
    time.sleep(0.1)
    if rests():
        break
got = b""
c.sock.settimeout(60)
try:
    while b := c.sock.recv(1 << 20):
        got += b
except ConnectionResetError:
    pass
assert got and b"[DONE]" not in got, got[-300:]
assert get(s, "/health").status == 200
PY
    serve_stop fast
}

@test "no descriptor for a new connection: it waits" {
    serve_launch few bash -c 'ulimit -n 48; exec "$@"' _ "$QWICK" serve --listen "unix:$D/few"
    serve_wait few "unix:$D/few"
    life_py few <<'PY'
idle = [connect(s) for _ in range(80)]
time.sleep(0.3)
until(rests, "it spins")
for c in idle:
    c.close()
until(lambda: get(s, "/health").status == 200, "not served")
PY
    serve_stop few
}

@test "SIGTERM: running answers end, waiting ones get 503, nothing new is taken" {
    serve_start drain --exact -m "$D/slow" --max-batch 1
    life_py drain <<'PY'
import signal
long = {**LONG, "max_tokens": 250}
want = joined(stream(s, PATH, long))
keep = Connection(s)
assert ask(keep, "GET", "/health").status == 200
a = Stream(s, PATH, long).start()
events = [first(a)]
waiting = send(SHORT)
time.sleep(0.3)
os.kill(pid, signal.SIGTERM)
r = waiting.getresponse()
assert r.status == 503, r.status
assert json.loads(r.read())["error"]["message"]
try: # an open connection is closed, or says that the server drains
    assert ask(keep, "GET", "/health").status == 503
except (OSError, http.client.HTTPException):
    pass
try:
    with connect(s, 2) as c:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = c.recv(100)
        assert not got or b" 503 " in got, got
except OSError:
    pass
events += list(a)
assert a.done
got = joined(events)
assert got["finish_reason"] == "length" and want["content"].endswith(got["content"]), (got, want)
PY
    equal "$(serve_ended drain)" 0
    [ ! -e "$D/drain" ]
}

@test "--drain ends: an error event without [DONE], 503 without a stream" {
    serve_start drain --exact -m "$D/slow" --drain 0
    life_py drain <<'PY'
import signal
a = Stream(s, PATH, LONG).start()
first(a)
b = send({**LONG, "stream": False})
time.sleep(0.3)
os.kill(pid, signal.SIGTERM)
events = list(a)
assert not a.done and "error" in events[-1] and events[-1]["error"]["message"], events[-1]
r = b.getresponse()
assert r.status == 503 and json.loads(r.read())["error"], r.status
PY
    equal "$(serve_ended drain)" 0
}

@test "a second signal ends it at once; SIGHUP without keys is SIGTERM; SIGINT" {
    serve_start drain --exact -m "$D/slow"
    life_py drain <<'PY'
import signal
a = Stream(s, PATH, LONG).start()
first(a)
os.kill(pid, signal.SIGTERM)
time.sleep(0.3)
os.kill(pid, signal.SIGTERM)
try:
    list(a)
except (OSError, http.client.HTTPException, AssertionError):
    pass
assert not a.done
PY
    equal "$(serve_ended drain)" 143
    for signal in HUP INT; do
        rm -f "$D/drain"
        serve_start drain
        kill -$signal "$(<"$D/drain.pid")"
        equal "$(serve_ended drain)" 0
        [ ! -e "$D/drain" ]
    done
}

@test "SIGKILL and restart: prefix caches are consistent" {
    text=$(printf 'show disk usage %.0s' {1..40})
    body="{\"messages\":[{\"role\":\"user\",\"content\":\"$text\"}],\"max_tokens\":60,\"regex\":\"[a-z]{40}\",\"reasoning_effort\":\"none\"}"
    ask() {
        python3 tests/cli/serve_client.py "unix:$D/again" POST /v1/chat/completions "$body" | tail -n +2
    }
    serve_start again --exact --prefix-cache="$T/cache"
    want=$(ask | jget 'o["choices"][0]["message"]["content"]')
    for end in KILL TERM; do
        kill -$end "$(<"$D/again.pid")"
        serve_ended again >/dev/null
        serve_start again --exact --prefix-cache="$T/cache"
        equal "$(ask | jget 'o["choices"][0]["message"]["content"]')" "$want"
    done
    # stored at the end, at the latest
    kill "$(<"$D/again.pid")"
    serve_ended again >/dev/null
    serve_start again --exact --prefix-cache="$T/cache"
    [ "$(ask | jget 'o["usage"]["prompt_tokens_details"]["cached_tokens"]')" -ge 64 ]
    serve_stop again
}

@test "the servers end with status 0" {
    serve_stop one
    serve_stop main
}
