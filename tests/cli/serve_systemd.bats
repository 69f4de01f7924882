#!/usr/bin/env bats
# serve: under systemd, and while its model loads.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start probe # skips all if there is no libmicrohttpd
    serve_stop probe
    cp -r models/demo "$D/model"
    export ATTACKER=$D/attack.so
    "${CC:-gcc}" -shared -fPIC -O1 -o "$ATTACKER" tests/faults/attack.c || ATTACKER=
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
}

# slow_load NAME ARGS…: start a server whose model is loaded when $D/go exists.
slow_load() {
    local name=$1
    shift
    [ -n "$ATTACKER" ] && [ -z "${SAN:-}" ] || skip "no library that delays loading"
    rm -f "$D/go"
    serve_launch "$name" env LD_PRELOAD="$ATTACKER" ATTACK_LOAD="wait:$D/go" \
        "$QWICK" serve -m "$D/model" --listen "unix:$D/$name" "$@"
    until [ -S "$D/$name" ]; do sleep 0.05; done
}

@test "/health is 503 while the model loads; other requests wait for it" {
    slow_load slow
    serve_py "unix:$D/slow" "$D/go" <<'PY'
import sys, threading, time
from serve_client import *
s, go = sys.argv[1:]
for path in "/health", "/v1/health", "/":
    r = get(s, path)
    assert r.status == 503 and "load" in r.error["message"], (r.status, r.body)
# what the head forbids is refused
assert get(s, "/nothing").status == 404
assert get(s, "/v1/chat/completions").status == 405
assert get(s, "/v1/models", fields={"Host": "example.com"}).status == 403
got = {}
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 12}
def ask(name, *a):
    try:
        got[name] = request(s, *a)
    except OSError as e:
        got[name] = e
asked = [("models", "GET", "/v1/models"), ("metrics", "GET", "/metrics"),
         ("chat", "POST", "/v1/chat/completions", chat),
         ("bad", "POST", "/v1/chat/completions", {}),
         ("ids", "POST", "/tokenize", {"text": "ls"})]
threads = [threading.Thread(target=ask, args=a) for a in asked]
for t in threads:
    t.start()
# one that leaves meanwhile
c = Connection(s)
c.request("POST", "/v1/chat/completions", encode(chat))
time.sleep(0.5)
c.close()
assert not got and get(s, "/health").status == 503
open(go, "w").close()
for t in threads:
    t.join(60)
assert {k: r.status for k, r in got.items()} == \
    {"models": 200, "metrics": 200, "chat": 200, "bad": 400, "ids": 200}, got
assert got["models"].json["data"][0]["id"] == "model"
assert got["chat"].json["choices"][0]["message"]["content"]
assert get(s, "/health").status == 200
PY
    serve_stop slow
}

@test "requests that wait for a model that cannot be loaded get 503" {
    slow_load bad --chat-template "$D/none"
    serve_py "unix:$D/bad" "$D/go" <<'PY'
import sys, threading, time
from serve_client import *
s, go = sys.argv[1:]
got = []
def ask(*a):
    got.append(request(s, *a).status)
threads = [threading.Thread(target=ask, args=a) for a in
           (("GET", "/v1/models"), ("POST", "/tokenize", {"text": "ls"}))]
for t in threads:
    t.start()
time.sleep(0.3)
open(go, "w").close()
for t in threads:
    t.join(60)
assert got == [503, 503], got
PY
    run serve_ended bad
    [ "$output" != 0 ]
    [ ! -e "$D/bad" ]
    grep -q "$D/none" "$D/bad.err"
}

@test "READY=1 when it answers, STOPPING=1 when it ends" {
    serve_py "$QWICK" "$D" <<'PY'
import os, signal, sys
from play_systemd import Systemd
from serve_client import *
qwick, d = sys.argv[1:]
for notify in d + "/notify", "@qwick-test-%d" % os.getpid():
    path = d + "/ready"
    with Systemd([qwick, "serve", "--listen", "fd:systemd"], path, path + "2",
                 notify=notify) as m:
        for p in path, path + "2":
            assert get("unix:" + p, "/v1/models").status == 200
        m.wait_for(lambda: m.messages, "READY=1")
        assert m.texts() == ["READY=1"], m.messages
        assert get("unix:" + path, "/health").status == 200
        os.kill(m.pid, signal.SIGTERM)
        m.wait_for(lambda: m.ends, "the end")
        assert m.ends == [0] and m.texts() == ["READY=1", "STOPPING=1"], m.messages
        # the sockets are systemd's: the next connection starts it again
        assert get("unix:" + path, "/v1/models").status == 200
    assert m.ends == [0, 0]
    assert m.texts() == ["READY=1", "STOPPING=1"] * 2, m.messages
    os.unlink(path)
    os.unlink(path + "2")
PY
}

@test "--idle-exit: each request is answered, by this server or by the next" {
    serve_py "$QWICK" "$D" <<'PY'
import random, sys, threading, time
from play_systemd import Systemd
from serve_client import *
qwick, d = sys.argv[1:]
path = d + "/idle"
s = "unix:" + path
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 3}
faults = []
def ask_once(c):
    c.request("GET", "/v1/models")
    r = c.getresponse()
    r.read()
    return r
def ask(seed):
    rng = random.Random(seed)
    for _ in range(3):
        # just when it leaves
        time.sleep(1 + rng.uniform(-0.01, 0.06))
        try:
            r = post(s, "/v1/chat/completions", chat)
            if r.status != 200:
                faults.append(r.body)
        except (OSError, http.client.HTTPException) as e:
            faults.append(e)
with Systemd([qwick, "serve", "--exact", "--listen", "fd:systemd", "--idle-exit", "1"], path,
             notify=d + "/notify2") as m:
    for round_ in range(3):
        assert get(s, "/v1/models").status == 200
        ask(round_)
    threads = [threading.Thread(target=ask, args=(10 + i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults
    # nobody asks, also not a connection that is kept open
    keep = Connection(s)
    assert ask_once(keep).status == 200
    m.wait_for(lambda: m.pid is None, "idle exit")
    assert len(m.ends) >= 3 and set(m.ends) == {0}, m.ends
    assert m.texts() == ["READY=1", "STOPPING=1"] * len(m.ends), m.messages
PY
}

@test "WATCHDOG=1 comes in time, at work, at rest, and in a long prefill" {
    python3 tests/cli/slow_model.py models/demo "$D/long" 8
    serve_py "$QWICK" "$D" <<'PY'
import sys, time
from play_systemd import Systemd
from serve_client import *
qwick, d = sys.argv[1:]
s = "unix:" + d + "/dog"
text = "show disk usage " * 600
with Systemd([qwick, "serve", "--exact", "-m", d + "/long", "--listen", "fd:systemd"],
             d + "/dog", notify=d + "/notify3", env={"WATCHDOG_USEC": "600000"}) as m:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
    start = time.monotonic()
    assert post(s, "/v1/chat/completions", body).status == 200
    worked = time.monotonic() - start
    time.sleep(1.5)
    n = m.texts().count("WATCHDOG=1")
    assert n >= 4 + min(worked, 3), (n, worked, m.messages)
assert set(m.texts()) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}, m.messages
assert m.ends == [0]
PY
}

@test "the units are complete" {
    command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
    local where
    for where in system user; do
        mkdir -p "$T/$where"
        cp contrib/systemd/$where/* "$T/$where"
        # the program of this build
        sed -i "s|^ExecStart=qwick|ExecStart=$QWICK|" "$T/$where"/*.service
        XDG_RUNTIME_DIR=$T run systemd-analyze verify --man=no "--$where" "$T/$where"/*
        [ "$status" = 0 ] && [ -z "$output" ] || { echo "$output"; return 1; }
    done
    # the options are those of serve
    for where in contrib/systemd/*/*.service; do
        # shellcheck disable=SC2046 # words
        set -- $(sed -n 's/^ExecStart=qwick //p' "$where")
        [ "$1" = serve ]
        q "${@//%C/$T}" --show-config >/dev/null
    done
}
