#!/usr/bin/env bats
# SIGINT, SIGTERM, SIGHUP during an answer.
load helpers

# interrupt SIGNAL OUT ARGS…: start qwick, and send the signal after the first
# byte of output ("-": after 0.4 s). Print "STATUS SECONDS", with the status as
# a shell shows it.
interrupt() {
    python3 - "$QWICK" "$@" <<'PY'
import os, select, signal, subprocess, sys, time
qwick, name, out = sys.argv[1:4]
args = sys.argv[4:]
signal.signal(signal.SIGINT, signal.default_int_handler)
p = subprocess.Popen([qwick] + args, stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE)
data = b""
if "--json" in args:
    time.sleep(0.4)
else:
    data = os.read(p.stdout.fileno(), 1)
t = time.time()
p.send_signal(getattr(signal, name))
data += p.stdout.read()
p.wait(10)
print(128 - p.returncode if p.returncode < 0 else p.returncode,
      "late" if time.time() - t > 1 else "soon")
open(out, "wb").write(data)
PY
}

@test "stops after the token, flushes, dies by the signal" {
    for s in SIGINT:130 SIGTERM:143 SIGHUP:129; do
        run -0 interrupt "${s%:*}" "$T/out" -n 2000 --ignore-eos -t 1 hi
        [ "$output" = "${s#*:} soon" ]
        iconv -f UTF-8 -t UTF-8 "$T/out" >/dev/null
        [ -s "$T/out" ]
    done
}

@test "the JSON is written, finish_reason interrupted" {
    run -0 interrupt SIGINT "$T/out" --json --raw -n 2000 --ignore-eos \
        --exact --isa ref -t 1 hi
    [ "$output" = "130 soon" ]
    jget '[0][o["finish_reason"] != "interrupted" or
        len(o["tokens"]) != o["usage"]["completion_tokens"]]' <"$T/out"
    run -0 interrupt SIGTERM "$T/out" --jsonl --raw -n 2000 --ignore-eos -t 1 hi
    [ "$output" = "143 soon" ]
    jlines 'o[-1]["event"] == "done" and
        o[-1]["finish_reason"] == "interrupted" and
        len(o) == len(o[-1]["tokens"]) + 1' <"$T/out"
}

@test "a reader that no longer reads does not block it" {
    python3 - "$QWICK" <<'PY'
import os, signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "--jsonl", "--raw", "-n", "2000",
                      "--ignore-eos", "--logprobs", "20", "hi"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
time.sleep(1)  # the pipe is full by now
assert p.poll() is None
p.send_signal(signal.SIGINT)
p.wait(5)
assert p.returncode == -signal.SIGINT, p.returncode
PY
}

@test "a second signal kills at once; an ignored one stays ignored" {
    python3 - "$QWICK" <<'PY'
import os, signal, subprocess, sys, time
# blocked on a full pipe: the first signal asks it to stop, the second kills it
p = subprocess.Popen([sys.argv[1], "--jsonl", "--raw", "-n", "2000",
                      "--ignore-eos", "--logprobs", "20", "hi"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
time.sleep(1)
p.send_signal(signal.SIGINT)
p.send_signal(signal.SIGTERM)
p.wait(5)
assert p.returncode in (-signal.SIGINT, -signal.SIGTERM), p.returncode
# nohup
p = subprocess.Popen([sys.argv[1], "-n", "300", "--ignore-eos", "hi"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     preexec_fn=lambda: signal.signal(signal.SIGHUP,
                                                      signal.SIG_IGN))
os.read(p.stdout.fileno(), 1)
p.send_signal(signal.SIGHUP)
p.stdout.read()
p.wait(30)
assert p.returncode == 0, p.returncode
PY
}

@test "a mapped file that is truncated in use: one line, exit 1" {
    [ "${SAN:-}" != 1 ] || skip "fault injection is not run under sanitizers"
    copy_of models/demo m
    python3 - "$QWICK" "$T/m" <<'PY'
import os, subprocess, sys
p = subprocess.Popen([sys.argv[1], "-m", sys.argv[2], "-n", "2000",
                      "--ignore-eos", "hi"], stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
os.read(p.stdout.fileno(), 1)
os.truncate(sys.argv[2] + "/model.safetensors", 4096)
p.stdout.read()
err = p.stderr.read()
p.wait(10)
assert p.returncode == 1, (p.returncode, err)
assert err == b"qwick: a mapped file was truncated while in use\n", err
PY
}

@test "a mapped file that is truncated: one line from many threads" {
    [ "${SAN:-}" != 1 ] || skip "fault injection is not run under sanitizers"
    for _ in 1 2 3 4 5; do
        copy_of "$MODELS/tied-bf16" m
        python3 - "$QWICK" "$T/m" <<'PY'
import os, subprocess, sys
p = subprocess.Popen([sys.argv[1], "-m", sys.argv[2], "--prompt-ids", "1,2",
                      "-n", "2000", "--ignore-eos", "--jsonl", "-t", "4"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE)
os.read(p.stdout.fileno(), 1)
os.truncate(sys.argv[2] + "/model.safetensors", 4096)
err = p.communicate(timeout=20)[1]
assert p.returncode == 1, (p.returncode, err)
assert err.count(b"truncated while in use") == err.count(b"\n") == 1, err
PY
    done
}

@test "logits -o leaves no temporary file" {
    python3 - "$QWICK" "$T" <<'PY'
import glob, os, signal, subprocess, sys, time
out = sys.argv[2] + "/o.safetensors"
for s in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    p = subprocess.Popen([sys.argv[1], "logits", "--exact", "--isa", "ref",
                          "-t", "1", "--all", "-o", out, "--prompt-ids",
                          ",".join(["5"] * 2000)],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    for _ in range(500):
        if glob.glob(out + "*") or p.poll() is not None:
            break
        time.sleep(0.01)
    p.send_signal(s)
    text, err = p.communicate(timeout=60)
    assert p.returncode == -s, (p.returncode, err)
    assert text == err == b"", (text, err)
    assert not glob.glob(out + "*"), os.listdir(sys.argv[2])
PY
}

@test "replacing a file in use does not matter" {
    copy_of models/demo m
    want=$(q -m "$T/m" -n 300 --ignore-eos hi)
    python3 - "$QWICK" "$T/m" "$T/out" <<'PY'
import os, subprocess, sys
p = subprocess.Popen([sys.argv[1], "-m", sys.argv[2], "-n", "300",
                      "--ignore-eos", "hi"], stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE)
first = os.read(p.stdout.fileno(), 1)
open(sys.argv[2] + "/new", "wb").write(b"nothing")
os.rename(sys.argv[2] + "/new", sys.argv[2] + "/model.safetensors")
open(sys.argv[3], "wb").write(first + p.stdout.read())
p.wait(30)
assert p.returncode == 0
PY
    [ "$(cat "$T/out")" = "$want" ]
}

@test "a signal ends the wait for a standard input that stays silent" {
    python3 - "$QWICK" <<'PY'
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
for verb in ([], ["choose", "-a", "x", "-a", "y"], ["choose", "--yes", "--jsonl"],
             ["score"], ["score", "--jsonl"], ["logits"], ["tokenize"]):
    p = subprocess.Popen([sys.argv[1]] + verb, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.5)
    assert p.poll() is None, verb
    p.send_signal(signal.SIGINT)
    try:
        assert p.wait(10) == -signal.SIGINT, (verb, p.returncode)
    except subprocess.TimeoutExpired:
        p.kill()
        raise AssertionError(("still waiting", verb))
    assert p.stderr.read() == b"", verb
PY
}
