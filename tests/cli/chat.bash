# Shared by the bats files about qwick chat, at a terminal.
chat_setup() {
    common_setup
    unset XDG_STATE_HOME
    H=$T/.local/state/qwick
    export QWICK T H MODEL=$PWD/models/demo PYTHONPATH=$PWD/tests/cli
}

# Run a Python program that drives chats; start(ARGS…) gives one at its prompt.
drive() {
    cat >"$T/drive.py" <<'PY'
import json, os, re, signal, subprocess, sys, time
from on_pty import Pty, plain

T, H = os.environ["T"], os.environ["H"]
# an answer that takes a while
LONG = ["-n", "1500", "--ignore-eos", "--temp", "1", "--seed", "1"]

def start(*args, **more):
    p = Pty([os.environ["QWICK"], "chat", "-m", os.environ["MODEL"], *args], **more)
    p.hello = p.prompt()
    return p

def leave(p):
    assert p.end(b"\x04") == 0
    assert p.settings() == p.start[:4]

def answering():
    """A chat that writes a long answer."""
    p = start(*LONG)
    p.send(b"tell\r")
    p.wait_for(b"\x1b[?2004l")
    p.wait_for(b"\n")
    return p

def same(a, b):
    assert a == b, f"{a!r} is not {b!r}"

def has(text, part):
    assert part in text, f"no {part!r} in {text!r}"

def messages(p):
    """The conversation, as /save writes it."""
    path = T + "/saved.json"
    has(p.line("/save " + path), path)
    return json.load(open(path))

def texts(p):
    return [m["content"] for m in messages(p)]

def numbers(p):
    """prompt tokens, cached tokens, context used, its limit, messages"""
    out = p.line("/stats")
    last = re.search(r"last answer: (\d+) prompt tokens, (\d+) of them cached", out)
    context = re.search(r"context: +(\d+) of (\d+)", out)
    count = re.search(r"messages: +(\d+)", out)
    return [int(x) for m in (last, context, count) if m for x in m.groups()]

def typed():
    """The messages in the file of the history."""
    return [json.loads(l) for l in open(H + "/history")]

PY
    cat >>"$T/drive.py"
    timeout 100 python3 "$T/drive.py"
}
