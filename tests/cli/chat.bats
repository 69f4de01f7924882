#!/usr/bin/env bats
# qwick chat at a terminal, and --keep with --continue.
load helpers
load chat

setup() {
    chat_setup
}

@test "without a terminal: refused, with the verbs that scripts want" {
    fails 2 'standard input is not a terminal; qwick "PROMPT" answers once, qwick batch' chat
    fails 2 '"hi": chat takes no arguments' chat hi
    drive <<'PY'
p = Pty(["sh", "-c", '"$QWICK" chat >"$T/out"'])
same(p.end(), 2)
has(plain(p.all), "standard output is not a terminal")
assert not os.path.exists(H)
PY
}

@test "a turn evaluates only its new tokens" {
    drive <<'PY'
p = start("--exact")
has(p.hello, "context of 2048 tokens; /help lists the commands")
same(p.line("list files"), "ls")
prompt, cached, used, limit, count = numbers(p)
same((cached, limit, count), (0, 2048, 2))
# the demo model thinks, and its template drops the thinking of earlier turns:
# the prompt before it is cached
p.line("show disk usage")
second, cached, used, limit, count = numbers(p)
same((cached, count), (prompt, 4))
assert second > prompt
# an exchange that is undone needs no work
has(p.line("/undo"), "2 messages are taken out, 2 are left")
again = p.line("show disk usage")
same(numbers(p)[:2], [second, second - 1])  # the last token gives the logits
# the same as in a run of its own
want = subprocess.run([os.environ["QWICK"], "-m", os.environ["MODEL"], "--exact",
                       "--chat-json", "-"], text=True, capture_output=True,
                      input=json.dumps(messages(p)[:3]), check=True).stdout
same(again, want.strip())
leave(p)
PY
}

@test "editing: history, several lines, pastes, UTF-8 in any locale" {
    drive <<'PY'
p = start(env={"LC_ALL": "C"})
p.line("list\\")
p.line("files")
for l in ('"""', "/quit", ""):
    same(p.line(l), "")
p.line('"""')
p.line("/etc/fstab?")
p.line(" /help")
# é and an ideograph, deleted as characters; a byte that is not UTF-8
p.send("aé日\x7f\x7f".encode() + b"\xff")
p.line("é")
# a paste is one message, whatever its lines end in
p.send(b"\x1b[200~one\rtwo\r\n/three\n\x1b[201~")
p.line("")
# the history: the message of two lines is one entry
p.send(b"\x1b[A" * 6)
p.line(" now")
want = ["list\nfiles", "/quit\n", "/etc/fstab?", "/help", "a\ufffdé",
        "one\ntwo\n/three", "list\nfiles now"]
same(texts(p)[::2], want)
leave(p)
same(os.stat(H + "/history").st_mode & 0o777, 0o600)
entries = typed()
same(entries[:3], ["list\nfiles", '"""\n/quit\n\n"""', "/etc/fstab?"])

# another chat has the history; two at once lose nothing
a, b = start(), start()
a.line("from a")
b.line("from b")
a.line("a again")
same(typed()[-3:], ["from a", "from b", "a again"])
leave(b)
b = start()
b.send(b"\x1b[A\x1b[A")
b.line("!")
same(texts(b)[0], "from b!")
leave(a)
leave(b)
# the history is bounded, and its newest part stays
open(H + "/history", "w").write('"old"\n' * 200000 + '"new"\n')
p = start()
p.line("last")
leave(p)
assert os.stat(H + "/history").st_size <= 1 << 19
same(typed()[-2:], ["new", "last"])
# no home: no history; nor with the option
before = typed()
for p in start(env={"HOME": ""}), start("--no-history"):
    p.line("x")
    leave(p)
same(typed(), before)
# a file that others can write is not used
os.chmod(H + "/history", 0o622)
p = start()
has(p.hello, "everybody may write to it (mode 622); the history is not used")
leave(p)
PY
}

@test "commands" {
    printf 'hello\n' >"$T/f.txt"
    printf 'world\n' >"$T/a b.txt"
    drive <<'PY'
p = start("-s", "be brief")
out = p.line("/help")
for name in "help think nothink system nosystem read retry undo save load stats quit".split():
    has(out, "/" + name)
has(p.line("/hlep"), "qwick: /hlep: no such command, did you mean /help?; a blank before it sends the text")
has(p.line("/frobnicate"), "no such command (/help lists them)")
same(p.line("/system"), "be brief")
p.line("/system speak\\")
p.line("loud")
same(p.line("/system"), "speak\nloud")
p.line("list files")
same(p.line("/nosystem"), "the system prompt is taken out")
same(p.line("/system"), "there is no system prompt")
same(p.line("/nosystem"), "there is no system prompt")
same([m["role"] for m in messages(p)], ["user", "assistant"])
p.line("/undo")
same(messages(p), [])
p.line("/system speak")
same(p.line("/nosystem"), "the system prompt is taken out")
same(messages(p), [])
p.line("/system speak\\")
p.line("loud")
same(p.line("/think"), "thinking: auto, as the model's template does")
same(p.line("/think on"), "thinking: on")
same(p.line("/nothink"), "thinking: off")
has(p.line("/think maybe"), 'qwick: /think: "maybe": expected on, off or auto')
has(p.line("/retry"), "there is no message to answer")
has(p.line("/undo"), "there is no exchange")
has(p.line("/quit now"), "/quit: takes no argument")
# files go before the next message
has(p.line("/read ~/f.txt"), "5 bytes go before the next message")
has(p.line("/read ~/f.txt"), "5 bytes")
has(p.line("/undo"), "the texts of /read are dropped")
p.line("/read ~/f.txt")
p.line('/read "~/a b.txt" what is it?')
same(texts(p)[:2], ["speak\nloud", "hello\n\nworld\n\nwhat is it?"])
has(p.line("/read ~/none"), T + "/none: cannot open: No such file")
# Tab completes commands and names of files
p.send(b"/sta\t")
p.wait_for(b"ts ")
has(p.line(""), "messages:")
p.send(f"/read {T}/a\t".encode())
p.wait_for(b".txt ")
has(p.line(""), "a b.txt: 5 bytes")
p.line("/undo")
# saving replaces conversations only
p.line("/save " + T + "/c.json")
p.line("list files")
has(p.line("/save " + T + "/c.json"), "5 messages")
has(p.line("/save ~/f.txt"), "exists and is not a conversation; it is not replaced")
has(p.line("/save /dev/null"), "not a regular file")
os.mkfifo(T + "/fifo")
has(p.line("/read " + T + "/fifo"), "/read: " + T + "/fifo: is not a regular file")
has(p.line("/load /dev/tty"), "/load: /dev/tty: is not a regular file")
same(open(T + "/f.txt").read(), "hello\n")
same(p.line("/undo"), "2 messages are taken out, 3 are left")
has(p.line("/load " + T + "/c.json"), "5 messages")
same(len(messages(p)), 5)
has(p.line("/load ~/f.txt"), "f.txt: ")
same(len(messages(p)), 5)
same(p.end(b"/quit\r"), 0)
# what /save wrote is a chat for other verbs
out = subprocess.run([os.environ["QWICK"], "--chat-json", T + "/c.json", "-n", "3"],
                     stdin=subprocess.DEVNULL, capture_output=True)
same(out.returncode, 0)
# /retry has another seed, and the old answer is gone
p = start("--temp", "5", "--seed", "7", "-n", "9", "--chat-json", T + "/c.json")
has(p.hello, "5 messages")
first = p.line("list files")
same(p.line("/retry") == first, False)
same(len(messages(p)), 7)
leave(p)
PY
}

@test "Ctrl-C stops the answer and keeps the chat; a second one leaves" {
    drive <<'PY'
p = start(*LONG)
p.send(b"tell\r")
p.wait_for(b"\x1b[?2004l")
p.wait_for(b"\n")  # the answer has a line
p.send(b"\x03")
out = p.prompt()
has(out, "qwick: warning: the answer was interrupted; its part above stays")
kept = texts(p)
same((len(kept), kept[0]), (2, "tell"))
assert kept[1]
has(p.line("/undo"), "0 are left")
# Ctrl-C in a line drops the line; twice in an empty one leaves
# (Ctrl-C drops what is typed and not read yet)
p.send(b"half a line")
p.wait_for(b"line")
p.send(b"\x03")
p.prompt()
p.send(b"\x03")
has(p.prompt(), "Ctrl-C again leaves, and so does Ctrl-D")
p.send(b"xyz")
p.wait_for(b"xyz")
p.send(b"\x03")
p.prompt()
same(len(messages(p)), 0)
p.send(b"\x03")
p.prompt()
same(p.end(b"\x03"), -signal.SIGINT)
same(p.settings(), p.start[:4])

# the terminal takes no more, so the first signal cannot end the answer
p = start(*LONG)
p.send(b"tell\r")
p.wait_for(b"\x1b[?2004l")
p.wait_blocked()
p.kill(signal.SIGINT)
time.sleep(0.1)
p.kill(signal.SIGINT)
same(p.end(), -signal.SIGINT)
same(p.settings(), p.start[:4])
PY
}

@test "signals: SIGTERM and SIGHUP restore the terminal, Ctrl-Z and fg the line" {
    drive <<'PY'
for sig in signal.SIGTERM, signal.SIGHUP:
    p = start()
    assert p.settings() != p.start[:4]
    p.kill(sig)
    same(p.end(), -sig)
    same(p.settings(), p.start[:4])
    p = start(*LONG)
    p.send(b"tell\r")
    p.wait_for(b"\x1b[?2004l")
    p.wait_for(b"\n")
    p.kill(sig)
    same(p.end(), -sig)
    same(p.settings(), p.start[:4])
# a shell with job control; its terminal settings show when the chat stops
p = Pty(["bash", "--norc", "-c",
         'set -m; "$QWICK" chat -m "$MODEL"; echo "st""opped"; read x; fg; echo "en""ded $?"'])
p.prompt()
editing = p.settings()
p.send(b"list fi")
p.wait_for(b"list fi")
p.send(b"\x1a")
p.wait_for(b"stopped")
same(p.settings(), p.start[:4])
p.send(b"\r")
p.wait_for(b"list fi")
end = time.time() + 60
while p.settings() != editing and time.time() < end:
    p.read(0.05)
same(p.line("les"), "ls")
p.send(b"\x04")
p.wait_for(b"ended 0")
p.end()
# a stopped chat that is killed dies, though the terminal is not its own
p = Pty(["bash", "--norc", "-c",
         'set -m; "$QWICK" chat -m "$MODEL"; kill %1; '
         'while jobs %1; do sleep 0.1; done; read x'])
p.prompt()
p.send(b"list fi")
p.wait_for(b"list fi")
p.send(b"\x1a")
p.wait_for(b"Terminated")
same(p.settings(), p.start[:4])
p.send(b"\r")
p.end()
# Ctrl-S during an answer does not keep a signal from ending the chat
p = start(*LONG)
p.send(b"tell\r")
p.wait_for(b"\x1b[?2004l")
p.wait_for(b"\n")
p.send(b"\x13")
p.wait_blocked()
p.kill(signal.SIGTERM)
same(p.end(), -signal.SIGTERM)
PY
}

@test "--session: the chat goes on, with its tokens and its messages" {
    drive <<'PY'
s = T + "/s"
p = start("--session", s)
p.line("list files")
used = numbers(p)[2]
# it is saved after each answer, not only at the end
p.kill(signal.SIGKILL)
p.end()
same(os.stat(s).st_mode & 0o777, 0o600)
p = start("--session", s)
has(p.hello, "2 messages")
same(numbers(p), [used, 2048, 2])
p.line("show disk usage")
prompt, cached = numbers(p)[:2]
assert cached > 0
p.line("by size")
p.line("/undo")
leave(p)
p = start("--session", s)
same(texts(p)[::2], ["list files", "show disk usage"])
leave(p)
# generate goes on with a chat's session, and the chat with generate's
q = [os.environ["QWICK"], "-m", os.environ["MODEL"], "--no-stdin"]
out = subprocess.run(q + ["--json", "--session", s, "--save-session", s, "by size"],
                     check=True, capture_output=True).stdout
usage = json.loads(out)["usage"]
assert usage["cached_tokens"] >= used, usage
# nothing of the exchange that was undone: as without it
p = start("--session", T + "/s2")
p.line("list files")
p.line("show disk usage")
leave(p)
out = subprocess.run(q + ["--json", "--session", T + "/s2", "by size"],
                     check=True, capture_output=True).stdout
same(usage["prompt_tokens"], json.loads(out)["usage"]["prompt_tokens"])
p = start("--session", s)
same(texts(p)[::2], ["list files", "show disk usage", "by size"])
leave(p)
# a conversation that does not fit the context is saved all the same
p = start("--session", T + "/s3", "-c", "16")
p.line("/load " + T + "/saved.json")
leave(p)
p = start("--session", T + "/s3")
same(len(messages(p)), 6)
leave(p)
# a session without messages
subprocess.run(q + ["--raw", "-n", "2", "--save-session", T + "/raw", "x"], check=True)
p = Pty(q[:1] + ["chat", "-m", os.environ["MODEL"], "--session", T + "/raw"])
same(p.end(), 2)
has(plain(p.all), "has no messages, only tokens")
PY
}

@test "a full context: a message, and the chat goes on" {
    drive <<'PY'
p = start("-c", "60")
n = 0
while True:
    out = p.line("list all the files of a directory by size")
    if "context" in out:
        break
    n += 1
has(out, "the context holds 60: the message is taken back; /undo makes room, /save")
same(len(messages(p)), 2 * n)
p.line("/undo")
p.line("list files")
same(texts(p)[-2], "list files")
leave(p)
# the answer that fills it
p = start("-c", "60", "--ignore-eos")
has(p.line("list files"), "the answer is cut: the context of 60 tokens is full")
leave(p)
PY
}

@test "options of answers: lookup, thinking, constraints, time, the config file" {
    mkdir -p "$T/.config/qwick"
    printf 'raw = on\nkeep = on\n[chat]\nsystem = "from the config"\n' >"$T/.config/qwick/config"
    drive <<'PY'
p = start("--exact", "--lookup", "8")
same(p.line("/system"), "from the config")
same(p.line("list files"), p.line("/retry").split("\n")[-1])
leave(p)
p = start("--regex", "[0-9]{3}")
assert re.fullmatch("[0-9]{3}", p.line("list files"))
assert re.fullmatch("[0-9]{3}", p.line("again"))
leave(p)
p = start("--timeout", "0.001")
has(p.line("list files"), "before the answer; the message is taken back")
same(len(messages(p)), 1)
leave(p)
PY
    fails 2 "--prefill: unknown option" chat --prefill x
    run --separate-stderr q chat --think off --think-budget 3 </dev/null
    [[ $stderr == *"--think-budget: has no effect with --think off"* ]]
    fails 2 "--chat-json: cannot be combined with --session" chat \
        --chat-json x --session y
    fails 2 "--continue: cannot be combined with --allow-special" chat -C \
        --allow-special
}

@test "--keep and -C: the last conversation goes on" {
    fails 1 "--continue: no conversation is kept ($H/last.json does not exist); --keep keeps one" \
        -C "by size"
    q "list files" >"$T/out"
    [ ! -e "$H" ]
    [ "$(q --keep "list files")" = ls ]
    [ "$(stat -c %a "$H/last.json")" = 600 ]
    # the same prompt as that of the whole conversation
    echo '[{"role":"user","content":"list files"},
        {"role":"assistant","content":"ls"},
        {"role":"user","content":"by size"}]' >"$T/chat"
    q --chat-json "$T/chat" >"$T/want"
    cmp <(q -C "by size") "$T/want"
    jget '[m["content"] for m in o][:3]' <"$H/last.json" |
        grep -qxF "['list files', 'ls', 'by size']"
    # -C keeps, too
    q -C "and hidden ones" >"$T/out"
    [ "$(jget 'len(o)' <"$H/last.json")" = 6 ]
    # text in messages is never a control token
    q --keep "a<|im_end|>b" >"$T/out"
    q -C --json -n 1 "c" >"$T/json"
    jget '[m["content"] for m in o][0]' <"$H/last.json" | grep -qxF 'a<|im_end|>b'
    fails 2 "--continue: cannot be combined with --allow-special" -C \
        --allow-special hi
    for o in "-s x" "--raw" "--chat-json $T/chat" "--session $T/s"; do
        fails 2 "--continue: cannot be combined with" -C $o
    done
    fails 2 "--keep: cannot be combined with --raw" --keep --raw hi
    # a session: with messages it is a conversation, without it is none
    q --save-session "$T/s" "list files" >"$T/out"
    q --session "$T/s" --keep "by size" >"$T/out"
    jget '[m["content"] for m in o][:3]' <"$H/last.json" |
        grep -qxF "['list files', 'ls', 'by size']"
    q --raw -n 2 --save-session "$T/raw" "list files" >"$T/out"
    fails 2 "--keep: has no effect with a session that has no messages" \
        --session "$T/raw" --keep hi
    QWICK_KEEP=on q --session "$T/raw" -n 2 hi >"$T/out"
    # the text of --prefill is a part of the answer
    q --keep --prefill "ls -" "list files" >"$T/out"
    jget 'o[1]["content"].startswith("ls -")' <"$H/last.json" | grep -qx True
    # a pipe: the prompt's text is kept as one message
    printf 'one' | "$QWICK" --keep "two" >"$T/out"
    jget 'o[0]["content"] == "one\n\ntwo"' <"$H/last.json" | grep -qx True
}

@test "keep = on: the config file keeps, and what cannot be kept is left alone" {
    mkdir -p "$T/.config/qwick"
    echo 'keep = on' >"$T/.config/qwick/config"
    q "list files" >"$T/out"
    before=$(cat "$H/last.json")
    q --raw -n 2 "other" >"$T/out"
    q --samples 2 --temp 1 -n 2 "other" >"$T/out"
    QWICK_KEEP=off q "other" >"$T/out"
    q --no-config "other" >"$T/out"
    equal "$(cat "$H/last.json")" "$before"
    q -C "by size" >"$T/out"
    [ "$(jget 'len(o)' <"$H/last.json")" = 4 ]
    echo 'continue = on' >>"$T/.config/qwick/config"
    fails 2 "continue: belongs to one command, and has no default" hi
    rm "$T/.config/qwick/config"
    # a failed write is a failure, found before the work
    rm -r "$H"
    touch "$H"
    fails 1 "cannot create" --keep "list files"
    rm "$H"
    HOME= fails 1 "neither XDG_STATE_HOME nor HOME is set" --keep hi
    # a directory of one's own; others may not write to the file
    export XDG_STATE_HOME=$T/state
    q --keep "list files" >"$T/out"
    chmod 666 "$T/state/qwick/last.json"
    fails 1 "everybody may write to it (mode 666)" -C hi
    drive <<'PY'
os.chmod(T + "/state/qwick/last.json", 0o600)
p = start("-C")
has(p.hello, 'goes on after "list files"')
same(len(messages(p)), 2)
leave(p)
PY
}

@test "the window: any size at any time; the line stays, and so does the chat" {
    # more sessions: line_sweep.py sizes 600 SEED
    run -0 timeout 100 python3 tests/cli/line_sweep.py sizes 16 "${SEED:-1}"
    echo "# $output" >&3
    run -0 timeout 100 python3 tests/cli/line_sweep.py keys 8 "${SEED:-1}"
    echo "# $output" >&3
    # a window that shrinks below a paste; a function that runs commands of an editor
    drive <<'PY'
import fcntl, struct, termios
def size(p, rows, columns):
    fcntl.ioctl(p.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
for rows, lines, after in (24, 13, 12), (50, 30, 25), (24, 13, 1):
    p = start("-n", "1")
    size(p, rows, 80)
    text = "\n".join(f"line {i}" for i in range(lines))
    p.send(b"\x1b[200~" + text.encode() + b"\x1b[201~")
    p.wait_for(b"line %d" % (lines - 1))
    size(p, after, 80)
    p.send(b"x")
    size(p, 24, 80)
    p.line("")
    same(texts(p)[0], text + "x")
    leave(p)
p = start("-n", "1")
p.send(b'\x1bx"abc')
p.line("")
same(texts(p)[0], '"abc')
leave(p)
PY
}

@test "a crash restores the terminal, and the chat dies by the signal" {
    drive <<'PY'
for sig in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE,
            signal.SIGILL, signal.SIGQUIT, signal.SIGUSR1, signal.SIGXCPU):
    p = start()
    assert p.settings() != p.start[:4]
    p.kill(sig)
    same(p.end(), -sig)
    same(p.settings(), p.start[:4])
    assert p.all.endswith(b"\x1b[?2004l\x1b[?7h\x1b[0m"), p.all[-30:]
PY
}

@test "Tab: names with control characters are not shown; lists" {
    mkdir "$T/d"
    echo hello >"$T/d/one.txt"
    touch "$T/d/one.md" "$T/d/a b" "$T/d/"$'c\033[2J' "$T/d/"$'c\xe2\x80\xaex' \
        "$T/d/"$'c\xe2\x80\x8fx'
    drive <<'PY'
p = start("-n", "1")
p.send(f"/read {T}/d/\t".encode())
p.wait_for(b"a b  one.md  one.txt\r\n")
p.send(b"o\t")
p.wait_for(b"ne.")
p.send(b"t\t")
p.wait_for(b"xt ")
has(p.line(""), "one.txt: 5 bytes")
for verb in "read", "save", "load":
    at = len(p.all)
    p.send(f"/{verb} {T}/d/c\t".encode())
    p.wait_for(b"\x07")
    for bad in b"\x1b[2J", "\u202e".encode(), "\u200f".encode():
        assert bad not in p.all[at:], p.all[at:]
    p.send(b"\x03")
    p.prompt()
p.send(b"/s\t")
p.wait_for(b"save  set  show  stats  system\r\n")
p.send(b"\x03")
p.prompt()
leave(p)
PY
}

@test "a terminal that cannot move its cursor: the system edits lines" {
    drive <<'PY'
p = Pty([os.environ["QWICK"], "chat", "-m", os.environ["MODEL"], "-n", "1"],
        env={"TERM": "dumb"})
p.wait_for(b">>> ")
same(p.settings(), p.start[:4])
p.send(b"list filex\x7fs\r")
p.wait_for(b">>> ")
p.send(f"/save {T}/c.json\r".encode())
p.wait_for(b">>> ")
same(json.load(open(T + "/c.json"))[0]["content"], "list files")
p.send(b"\x03")
p.wait_for(b"Ctrl-C again leaves")
same(p.end(b"\x04"), 0)
assert b"\x1b" not in p.all, p.all
PY
}

@test "the model's process: if it dies, the conversation stays and goes on" {
    drive <<'PY'
p = start("--exact", "--session", T + "/s")
same(p.line("list files"), "ls")
child, = p.children()
# while it waits
os.kill(child, signal.SIGSEGV)
out = p.line("print working directory")
has(out, "the process of the model ended by signal 11 (Segmentation fault); "
         "the conversation is kept, and the next message starts it again")
same(texts(p), ["list files", "ls"])
assert p.line("print working directory")
again, = p.children()
assert again != child
same(len(messages(p)), 4)
leave(p)
# what was saved goes on
p = start("--exact", "--session", T + "/s")
has(p.hello, "4 messages")
leave(p)
# a signal that only it got
p = start("--exact")
p.line("list files")
for sig in signal.SIGTERM, signal.SIGHUP:
    child, = p.children()
    os.kill(child, sig)
    has(p.line("list files"), f"the process of the model ended by signal {int(sig)} ")
    same(p.line("list files") != "", True)
leave(p)
# while it answers
for sig in signal.SIGTERM, signal.SIGKILL:
    p = answering()
    child, = p.children()
    os.kill(child, sig)
    has(p.prompt(), f"ended by signal {int(sig)}")
    same(messages(p), [])
    if sig == signal.SIGTERM:
        leave(p)
# it does not outlive the chat
p.send(b"tell\r")
p.wait_for(b"\x1b[?2004l")
p.wait_for(b"\n")
child, = p.children()
p.kill(signal.SIGKILL)
same(p.end(), -signal.SIGKILL)
end = time.time() + 60
while os.path.exists(f"/proc/{child}/exe") and time.time() < end:
    time.sleep(0.05)
assert not os.path.exists(f"/proc/{child}/exe")
# a signal that only the chat got reaches it
p = answering()
p.kill(signal.SIGINT)
has(p.prompt(), "the answer was interrupted; its part above stays")
same(len(messages(p)), 2)
leave(p)
PY
}

@test "the model's process is in the sandbox, and the chat itself is not" {
    [ "${SAN:-}" != 1 ] && [ "$(uname -m)" = x86_64 ] || skip "no sandbox here"
    if q -v -n 1 --raw ls 2>&1 >/dev/null | grep 'sandbox: without'; then
        skip "no seccomp or no Landlock here"
    fi
    mkdir "$T/lib" # which may be read, as OpenBLAS may be there
    export ATTACKER=$T/lib/attack.so
    "${CC:-gcc}" -shared -fPIC -O1 -o "$ATTACKER" "$BATS_TEST_DIRNAME/../faults/attack.c"
    echo secret >"$T/secret"
    drive <<'PY'
calls = f"read:{T}/secret write:{T}/secret create:{T}/new fork kill"
for variable in "ATTACK", "ATTACK_LOAD":
    p = Pty([os.environ["QWICK"], "chat", "-m", os.environ["MODEL"]],
            env={"LD_PRELOAD": os.environ["ATTACKER"], "ATTACK_CHILD": "1",
                 variable: calls})
    p.prompt()
    has(p.line("list files"), "ls")
    denied = re.findall(r"(\w+): (?:Operation not permitted|Permission denied)",
                        plain(p.all))
    same(denied, ["read", "write", "create", "fork", "kill"])
    # commands open what the user names
    has(p.line(f"/read {T}/secret"), "secret: 6 bytes")
    has(p.line(f"/save {T}/{variable}.json"), "2 messages")
    leave(p)
assert not os.path.exists(T + "/new")
p = start("--no-sandbox")
has(p.line("list files"), "ls")
leave(p)
PY
}
