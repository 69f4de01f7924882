#!/usr/bin/env bats
# qwick chat: the commands that change options, model and messages; keys.
load helpers
load chat

setup() {
    chat_setup
}

@test "/set and /unset: the table's options, with its ranges and relations" {
    mkdir -p "$T/.config/qwick"
    printf '[chat]\ntop-k = 30\n' >"$T/.config/qwick/config"
    drive <<'PY'
p = start("--temp", "0.7", "--seed", "5")
config = T + "/.config/qwick/config"
def row(text):
    return re.sub(" +", " ", text)
# all that can change, with their sources
out = row(p.line("/set"))
for l in ("temp 0.7 command line", f"top-k 30 {config}:2", "min-p - default",
          "stop - default", "think auto default"):
    has(out, l)
for name in "model", "ctx", "regex", "json-schema", "session", "log", "chat-template":
    assert "\n" + name + " " not in "\n" + out, name
# set, show, and the same again without a value
same(row(p.line("/set temp 0.25")), "temp 0.25 /set")
same(row(p.line("/set --temp=0.5")), "temp 0.5 /set")
same(row(p.line("/set temp")), "temp 0.5 /set")
same(row(p.line("/set stop a b")), 'stop "a b" /set')
same(row(p.line("/set stop c")), 'stop "c" /set')
# a fault keeps the old value
for line, why in (
        ("/set temp 101", '/set temp: "101": expected a number, 0..100'),
        ("/set temp x", '/set temp: "x": expected a number'),
        ("/set top-k -1", '/set top-k: "-1": expected an integer'),
        ("/set show-thinking maybe", "expected on or off"),
        ("/set think maybe", '"maybe" is none of on|off|auto'),
        ("/set loop-guard 2", "2 tokens repeat no sequence three times"),
        ("/set greedy on", "cannot be combined with /set: greedy"),
        ("/set tempp 1", "/set tempp: no such option, did you mean temp?"),
        ("/set ctx 9", "/set ctx: cannot change during a chat"),
        ("/set model x", "/set model: /model NAME changes it"),
        ("/set system x", "/set system: /system TEXT changes it"),
        ("/unset", "no such option"),
        ("/unset temp 1", "/unset temp: takes no value")):
    has(p.line(line), why)
same(row(p.line("/set temp")), "temp 0.5 /set")
same(row(p.line("/set top-k")), f"top-k 30 {config}:2")
# without the source; another option can then be set
same(row(p.line("/unset temp")), "temp - default")
same(row(p.line("/set greedy on")), "greedy on /set")
has(p.line("/set top-p 0.5"), "--top-p: has no effect with --greedy (/set)")
# the config file's option gave way to it, and comes back
same(row(p.line("/set top-k")), "top-k - default")
p.line("/unset greedy")
same(row(p.line("/set top-k")), f"top-k 30 {config}:2")
leave(p)
# what the chat was opened with does not give way
open(config, "a").write('regex = "[0-9]{3}"\n')
p = start()
has(p.line("/set ignore-eos on"), "/set ignore-eos: cannot be combined with --regex, which cannot")
assert re.fullmatch("[0-9]{3}", p.line("list files"))
leave(p)
PY
}

@test "/set acts on the next answer, also after the model's process died" {
    drive <<'PY'
p = start("--exact")
same(p.line("list files"), "ls")
p.line("/undo")
p.line("/set ignore-eos on")
p.line("/set max-tokens 5")
p.line("list files")
has(p.line("/stats"), "5 tokens in")
child, = p.children()
os.kill(child, signal.SIGKILL)
p.line("list files")
p.line("list files")
has(p.line("/stats").split("\n")[0], "5 tokens in")
p.line("/unset ignore-eos")
p.line("/unset max-tokens")
p.line("/clear")
same(p.line("list files"), "ls")
# a stop string, and thinking
p.line("/set stop s")
same(p.line("/retry").split("\n")[-1], "l")
p.line("/unset stop")
same(p.line("/think off"), "thinking: off")
has(p.line("/set think"), "off")
p.line("/set think on")
same(p.line("/think"), "thinking: on")
# the seed is that of the next answer
p.line("/clear")
p.line("/set temp 5")
p.line("/set max-tokens 12")
answers = []
for i in range(2):
    p.line("/set seed 7")
    answers.append(p.line("tell"))
    p.line("/undo")
same(answers[0], answers[1])
same(p.line("tell") == answers[0], False)
leave(p)
# a session is saved under options that have changed
p = start("--exact", "--session", T + "/s")
p.line("/set max-tokens 3")
p.line("list files")
leave(p)
p = start("--exact", "--session", T + "/s")
has(p.hello, "2 messages")
leave(p)
# what a file says about thinking is the option's value
json.dump({"enable_thinking": False, "messages": []}, open(T + "/f.json", "w"))
p = start("--chat-json", T + "/f.json")
has(p.line("/set think"), "off")
p.line("/unset think")
has(p.line("/think"), "auto")
p.line(f"/load {T}/f.json")
has(p.line("/think"), "off")
leave(p)
PY
}

@test "/clear, /undo, /show, /bye and /?" {
    drive <<'PY'
p = start("-s", "be brief", "--conversation", "c")
has(p.line("/?"), "/set [OPTION [VALUE]]")
same(p.line("/?"), p.line("/help"))
same(p.line("/clear"), "0 messages are taken out, the system prompt stays")
answer = p.line("list files")
has(p.line("/clear"), "2 messages are taken out, the system prompt stays; /undo brings")
same(texts(p), ["be brief"])
has(p.line("/undo"), "2 messages are back")
same(texts(p), ["be brief", "list files", answer])
# a conversation that is loaded stays
messages(p)
p.line("/clear")
has(p.line(f"/load {T}/saved.json"), "3 messages")
has(p.line("/undo"), "2 messages are taken out, 1 are left")
p.line("list files")
p.line("/clear")
p.line("show disk usage")
has(p.line("/undo"), "2 messages are taken out, 1 are left")
answer = p.line("list files")
out = p.line("/show")
for l in ("model:       ", "context:     ", "messages:    3", "kept as:     conversation c",
          "system:      be brief"):
    has(out, l)
p.line("/set temp 0")
has(re.sub(" +", " ", p.line("/show")), "options:\ntemp 0 /set")
same(p.line("/show chat"), "system: be brief\n>>> list files\n" + answer)
has(p.line("/show all"), '/show: "all": expected chat, or nothing')
same(p.end(b"/bye\r"), 0)
# what was cleared is gone from the conversation that is kept
p = start("--conversation", "c")
has(p.hello, "3 messages")
p.line("/clear")
leave(p)
p = start("--conversation", "c")
same(texts(p), ["be brief"])
leave(p)
PY
}

@test "/model: another model goes on with the text; a failure keeps the old one" {
    cp -r models/demo "$T/other"
    drive <<'PY'
p = start("--exact", "--session", T + "/s")
same(p.line("list files"), "ls")
old, = p.children()
has(p.line("/model"), "demo")
has(p.line("/model nonesuch"), "the chat goes on with")
os.mkdir(T + "/bad")
open(T + "/bad/config.json", "w").write("{")
has(p.line(f"/model {T}/bad"), "the chat goes on with")
same(p.children(), [old])
same(p.line("show disk usage") != "", True)
out = p.line("/model ~/other")
has(out, T + "/other, context of 2048 tokens; the conversation is evaluated again")
new, = p.children()
assert new != old
p.line("/undo")
p.line("show disk usage")
numbers_ = numbers(p)
same((numbers_[1], numbers_[4]), (0, 4))  # nothing was cached
has(p.line("/show"), T + "/other")
# it is what is started again
os.kill(new, signal.SIGKILL)
p.line("x")
p.line("list files")
has(p.line("/stats"), "messages:    6")
has(p.line("/show"), T + "/other")
leave(p)
# the session is the new model's now
q = [os.environ["QWICK"], "-m", T + "/other", "--exact", "--no-stdin"]
subprocess.run(q + ["--session", T + "/s", "-n", "2", "by size"], check=True,
               capture_output=True)
# an alias
subprocess.run([os.environ["QWICK"], "models", "alias", f"two={T}/other"], check=True)
p = start()
has(p.line("/model two"), T + "/other")
same(p.line("list files"), "ls")
leave(p)
PY
}

@test "/edit: the editor's text is one message; nothing stays behind" {
    mkdir "$T/tmp"
    cat >"$T/ed" <<'SH'
#!/bin/sh
# add a line, note the mode; -e ends with an error, -0 empties the file
stat -c %a "$2" >"$HOME/mode"
cat "$2" >"$HOME/before"
case $1 in
-e) exit 3 ;;
-0) : >"$2" ;;
*) printf '/quit is\nno command\n' >>"$2" ;;
esac
SH
    chmod +x "$T/ed"
    drive <<'PY'
e = {"EDITOR": "false", "VISUAL": T + "/ed -a", "TMPDIR": T + "/tmp"}
p = start("-n", "1", env=e)
p.line("/edit")
same(open(T + "/mode").read(), "600\n")
same(texts(p)[::2], ["/quit is\nno command"])
leave(p)
same(typed()[1], '"""\n/quit is\nno command\n"""')
p = start("-n", "1", env=e)
p.line("/edit some words")
same(open(T + "/before").read(), "some words\n")
same(texts(p)[0], "some words\n/quit is\nno command")
leave(p)
for option, why in (("-e", f"{T}/ed -e: the editor ended with status 3"),
                    ("-0", "the text is empty; nothing is sent")):
    p = start(env=dict(e, VISUAL=T + "/ed " + option))
    has(p.line("/edit x"), why)
    same(messages(p), [])
    leave(p)
p = start(env=dict(e, VISUAL="", EDITOR="kill -9 $$;"))
has(p.line("/edit"), "the editor was ended by signal 9")
leave(p)
same(os.listdir(T + "/tmp"), [])
# Ctrl-C is the editor's, as often as it comes, and the model's process stays
open(T + "/slow", "w").write("#!/bin/sh\ntrap 'echo caught' INT\necho ready\n"
                             "until [ -e $HOME/go ]; do sleep 0.05; done\necho ok >$1\n")
os.chmod(T + "/slow", 0o755)
p = start("-n", "1", env=dict(e, VISUAL=T + "/slow"))
child, = p.children()
p.send(b"/edit\r")
p.wait_for(b"ready")
for i in range(2):
    p.send(b"\x03")
    p.wait_for(b"caught")
open(T + "/go", "w").close()
p.prompt()
same(texts(p)[0], "ok")
# at the prompt, too
for i in range(3):
    p.send(b"text")
    p.wait_for(b"text")
    p.send(b"\x03")
    p.prompt()
p.line("list files")
same(p.children(), [child])
leave(p)
PY
}

@test "-T: each message is filled into the template" {
    mkdir -p "$T/.config/qwick/prompts"
    printf 'temp = 0\nsystem = "be brief"\n---\nIn {lang}: {}\n' >"$T/.config/qwick/prompts/say.txt"
    printf 'max-tokens = 2\nignore-eos = on\n---\n' >"$T/.config/qwick/prompts/short.txt"
    printf 'no place\n' >"$T/.config/qwick/prompts/none.txt"
    printf 'hello\n' >"$T/f.txt"
    drive <<'PY'
p = start("-T", "say", "--set", "lang=shell")
p.line("list files")
p.line("/read ~/f.txt what is it?")
p.line("/retry")
same(texts(p)[:4:3] + texts(p)[1:2],
     ["be brief", "In shell: hello\n\nwhat is it?", "In shell: list files"])
has(re.sub(" +", " ", p.line("/set temp")), "prompts/say.txt:1")
leave(p)
# only options
p = start("-T", "short")
p.line("list files")
same(texts(p)[0], "list files")
has(p.line("/stats"), "2 tokens in")
leave(p)
p = start("--prompt-template", "<{}>", "--chat-json", T + "/saved.json")
p.line("x")
same(texts(p)[2], "<x>")
leave(p)
for args, why in ((["-T", "none"], "none.txt: has no {} for the input"),
                  (["-T", "say"], "{lang} has no value"),
                  (["-T", "say", "--set", "lang=a", "--set", "x=b"], "has no {x}"),
                  (["-T", "nonesuch"], "no such prompt"),
                  (["--set", "x=b"], "--set: has no effect without")):
    p = Pty([os.environ["QWICK"], "chat", "-m", os.environ["MODEL"], *args])
    same(p.end(), 2)
    has(plain(p.all), why)
PY
}

@test "a conversation that goes on shows its last exchange, cut where it is long" {
    drive <<'PY'
p = start("--conversation", "c")
p.line("list files")
answer = p.line("print working directory")
same(p.line("/show chat").split("\n")[0], ">>> list files")
leave(p)
p = start("--conversation", "c")
has(p.hello, "\n>>> print working directory\n" + answer)
assert ">>> list files" not in p.hello
leave(p)
p = start("-q", "--conversation", "c")
same(p.hello, "")
leave(p)
long = "\n".join(f"line {i}" for i in range(300)) + "\x1b[2J"
json.dump([{"role": "user", "content": long}, {"role": "assistant", "content": "ls"}],
          open(T + "/long.json", "w"))
p = start("--chat-json", T + "/long.json")
has(p.hello, "line 19\n... (")
has(p.hello, " more bytes; /show chat prints all)\nls")
assert "line 20" not in p.hello
at = len(p.all)
has(p.line("/show chat"), "line 299\\x1b[2J\nls")
assert b"\x1b[2J" not in p.all[at:]
leave(p)
PY
}

@test "Alt-Enter: a message of several lines" {
    drive <<'PY'
p = start("-n", "1")
p.send(b"one\x1b\rtwo\x1b[13;3uthree\x1b[A\x1b[A\x01zero \r")
p.wait_for(b"\x1b[?2004l")
p.prompt()
same(texts(p)[0], "zero one\ntwo\nthree")
p.line("/set max-tokens\x1b\r2")  # a command may have it, too
has(p.line("/set max-tokens"), "2  ")
leave(p)
PY
}

@test "a paste of 100 kB: one drawing, and a key draws only the window" {
    drive <<'PY'
p = start("-n", "1")
text = b"".join(b"line %04d of a long text that is pasted into the chat\n" % i for i in range(1900))
assert len(text) > 100000
at = len(p.all)
for piece in [b"\x1b[200~"] + [text[i:i + 1000] for i in range(0, len(text), 1000)] + [b"\x1b[201~"]:
    p.send(piece)
p.wait_for(b"line 1899 of a long text that is pasted into the chat")
p.wait_for(b"\x1b[?7h")
screen = 40 * 60  # rows of this text, and escapes
paste = p.all[at:]
# one drawing before the first byte of the paste was read, and one after it
assert paste.count(b"\x1b[?7l") <= 2, paste.count(b"\x1b[?7l")
assert len(paste) <= 2 * screen, len(paste)
at = len(p.all)
for i in range(10):
    p.send(b"x")
    p.wait_for(b"x\r")
keys = p.all[at:]
assert keys.count(b"\x1b[?7l") <= 11 and len(keys) <= 11 * screen, len(keys)
at = len(p.all)
has(p.line(""), "the message is taken back")
assert len(p.all) - at <= 1.2 * len(text), len(p.all) - at
# the line that was typed is in the history, whole
p.send(b"\x1b[A")
p.wait_for(b"xxxxxxxxxx")
p.send(b"\x03")
p.prompt()
leave(p)
PY
}

@test "a long prompt shows its status, and Ctrl-C takes the message back" {
    python3 tests/cli/slow_model.py models/demo "$T/slow" 16
    export MODEL=$T/slow
    drive <<'PY'
p = start("--isa", "ref", "-t", "1")
p.send(b"list files " * 300 + b"\r")
p.wait_for(b"\x1b[?2004l")
p.wait_for(b"prompt: ")
p.wait_for(b" tokens")
p.send(b"\x03")
has(p.prompt(), "interrupted before the answer; the message is taken back")
same(messages(p), [])
leave(p)
PY
}

@test "Tab: commands, options and their values, models" {
    mkdir -p "$T/models/org/"
    cp -r models/demo "$T/models/org/one"
    cp -r models/demo "$T/models/org/"$'t\033[2Jwo'
    export QWICK_MODEL_PATH=$T/models
    drive <<'PY'
p = start("-n", "1")
def tab(text, want):
    p.send(text.encode() + b"\t")
    p.wait_for(want)
    p.send(b"\x15")
tab("/se", b"t ")
tab("/set te", b"mp ")
tab("/set thi", b"nk")
tab("/set think o", b"off  on\r\n")
tab("/set show-thinking on", b"on ")
tab("/unset gre", b"edy ")
at = len(p.all)
tab("/model on", b"e ")
tab("/model t", b"\x07")  # its name would need an escape
assert b"\x1b[2J" not in p.all[at:]
tab(f"/model {T}/models/org/o", b"ne/")
p.line("")
has(p.line("/model one"), "one, context of 2048 tokens")
leave(p)
PY
}
