#!/usr/bin/env bats
# Conversations by name: --conversation in generate and chat, qwick log conversations.
load helpers

setup() {
    config_setup
    C=$T/.local/state/qwick/conversations
}

# jget EXPRESSION: the value of an expression of o, the JSON of standard input.
jget() {
    python3 -c 'import json, sys
o = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1"
}

@test "a name begins a conversation and goes on with it" {
    run -0 --separate-stderr q --conversation trip -s "Be short." "list files"
    [ -z "$stderr" ]
    first=$output
    [ "$(stat -c %a "$C")" = 700 ]
    [ "$(stat -c %a "$C/trip.json" "$C/.lock" | sort -u)" = 600 ]
    equal "$(jget 'o["model"], [m["role"] for m in o["messages"]]' <"$C/trip.json")" \
        "('qwick-demo', ['system', 'user', 'assistant'])"
    # the same prompt as that of the whole conversation
    jget 'json.dumps(o["messages"] + [{"role": "user", "content": "by size"}])' <"$C/trip.json" >"$T/chat"
    q --exact --chat-json "$T/chat" >"$T/want"
    cmp <(q --exact --conversation trip "by size") "$T/want"
    equal "$(jget '[m["content"] for m in o["messages"]][1:4]' <"$C/trip.json")" \
        "['list files', '$first', 'by size']"
    # the same system prompt may be given again, and no other one
    q --conversation trip -s "Be short." "and hidden ones" >"$T/out"
    equal "$(jget 'len(o["messages"])' <"$C/trip.json")" 7
    fails 2 "--system: conversation trip has another system prompt" --conversation trip -s "Be long." hi
    q --conversation plain hi >"$T/out"
    fails 2 "--system: conversation plain has no system prompt" --conversation plain -s "Be long." hi
    echo 'system = from the config' >"$CONFIG"
    q --conversation plain hi >"$T/out"
    equal "$(jget '[m["role"] for m in o["messages"]].count("system")' <"$C/plain.json")" 0
    q --conversation new hi >"$T/out"
    equal "$(jget 'o["messages"][0]["content"]' <"$C/new.json")" "from the config"
    # neither the log nor --keep is needed, and neither is made
    [ ! -e "$C/../log" ]
    [ ! -e "$C/../last.json" ]
    # text in messages is never a control token
    q --conversation tokens "a<|im_end|>b" >"$T/out"
    q --conversation tokens -n 1 "c" >"$T/out"
    equal "$(jget 'o["messages"][1]["content"]' <"$C/tokens.json")" "a<|im_end|>b"
}

@test "names" {
    for name in a A-b_c.d 0 "$(printf '%064d' 1)"; do
        q --conversation "$name" -n 1 hi >"$T/out"
        [ -e "$C/$name.json" ]
    done
    for name in "" .a a/b ../x "a b" ä "$(printf '%065d' 1)"; do
        fails 2 "a name has 1 to 64 letters, digits," --conversation "$name" hi
        fails 2 "a name has 1 to 64 letters, digits," log --conversation "$name"
    done
    [ "$(find "$C" -type f | wc -l)" = 5 ]
    for o in -C --keep --raw "--session x" "--chat-json x" --allow-special; do
        # shellcheck disable=SC2086
        fails 2 "cannot be combined with" --conversation a $o hi
    done
    fails 2 "--conversation: has no effect with --samples" --conversation a --samples 2 hi
    echo 'conversation = a' >"$CONFIG"
    fails 2 "conversation: belongs to one command" hi
}

@test "a second turn evaluates new tokens only" {
    # a template that shows an answer as the demo model generates it, after empty
    # thinking; Qwen3's leaves that out, so that other tokens stand before the answer
    echo '{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == "assistant" %}<think>

</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}' >"$T/template"
    text=$(printf 'list files of directory %d. ' {1..40})
    for template in "" "--chat-template $T/template"; do
        # shellcheck disable=SC2086
        q --conversation "long${#template}" --json $template "$text" >"$T/first"
        # shellcheck disable=SC2086
        q --conversation "long${#template}" --json $template "by size" >"$T/second"
        jget '[o["usage"][k] for k in ("prompt_tokens", "cached_tokens", "completion_tokens")]' <"$T/first"
        jget '[o["usage"][k] for k in ("prompt_tokens", "cached_tokens")]' <"$T/second"
        n=$(jget 'o["usage"]["prompt_tokens"]' <"$T/first")
        cached=$(jget 'o["usage"]["cached_tokens"]' <"$T/second")
        [ "$cached" -gt $((n - 64)) ]
    done
    # the first page of 64 tokens ends in the second answer
    turn() {
        q --exact --conversation answer --json --chat-template "$T/template" "$@"
    }
    turn -s "$(printf 'a %.0s' {1..20})" "find large files" >"$T/out"
    turn "by size" >"$T/second"
    turn "by size" >"$T/third"
    [ "$(jget 'o["usage"]["prompt_tokens"]' <"$T/second")" -lt 64 ]
    [ "$(jget 'o["usage"]["cached_tokens"]' <"$T/third")" -ge 64 ]
    # another model, or no cache: the same text
    q cache clear
    q --conversation long0 --json -n 4 "by name" >"$T/third"
    equal "$(jget 'o["usage"]["cached_tokens"]' <"$T/third")" 0
    rm -r "$T/.cache"
    QWICK_PREFIX_CACHE=off q --conversation other -n 1 "$text" >"$T/out"
    [ ! -e "$T/.cache" ] || [ -z "$(find "$T/.cache" -name '*.kv')" ]
}

@test "another model goes on with the text, and a note says so" {
    q --conversation m -n 9 "list files" >"$T/out"
    run -0 --separate-stderr q --conversation m -n 9 -m models/demo "by size"
    [ "$stderr" = "qwick: note: conversation m: goes on with models/demo; its last answer is by qwick-demo" ]
    run -0 --separate-stderr q --conversation m -n 9 -m models/demo "by name"
    [ -z "$stderr" ]
    equal "$(jget 'o["model"], len(o["messages"])' <"$C/m.json")" "('models/demo', 6)"
}

@test "a cut answer is kept, an interrupted one is not" {
    q --conversation cut -n 2 "list files" >"$T/out"
    equal "$(jget 'len(o["messages"])' <"$C/cut.json")" 2
    before=$(cat "$C/cut.json")
    mkfifo "$T/pipe"
    "$QWICK" --conversation cut --ignore-eos --loop-guard 0 --temp 1 "tell" </dev/null >"$T/pipe" 2>"$T/err" &
    head -c 5 <"$T/pipe" >"$T/head"
    kill -INT $! || :
    run wait $!
    equal "$(cat "$C/cut.json")" "$before"
}

@test "one process at a time has a conversation" {
    # a process that holds all conversations
    q --conversation busy -n 1 hi >"$T/out"
    cat >"$T/hold.py" <<'PY'
import fcntl, os, struct, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
F_OFD_SETLK = 37
fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
print("held", flush=True)
time.sleep(60)
PY
    command python3 "$T/hold.py" "$C/.lock" >"$T/held" 3>&- &
    holder=$!
    for ((i = 0; i < 100; i++)); do
        [ ! -s "$T/held" ] || break
        sleep 0.1
    done
    before=$(cat "$C/busy.json")
    fails 1 "conversation busy: another qwick has it" --conversation busy hi
    fails 1 "conversation busy: another qwick has it" log rm --conversation busy --force
    kill "$holder"
    wait "$holder" || :
    equal "$(cat "$C/busy.json")" "$before"
    # many at once: some are refused, and no answer is lost or mixed
    for i in {1..6}; do
        { q --conversation busy -n 1 "at once $i" >"$T/o$i" 2>"$T/e$i" && echo "$i" >>"$T/done"; } || : 3>&- &
    done
    wait
    q --conversation busy -n 1 last >"$T/out"
    equal "$(jget 'len(o["messages"])' <"$C/busy.json")" "$((4 + 2 * $(cat "$T/done" 2>/dev/null | wc -l)))"
}

@test "log conversations lists them, and rm removes one" {
    run -0 --separate-stderr q log conversations
    [ -z "$output$stderr" ]
    q --conversation b -n 1 hi >"$T/out"
    q --conversation a -n 1 hi >"$T/out"
    q --conversation a -n 1 hi >"$T/out"
    [ "$(q log conversations | awk '{print $1, $4, $6}' | paste -sd,)" = "a 4 qwick-demo,b 2 qwick-demo" ]
    q log conversations --json >"$T/json"
    equal "$(python3 -c 'import json, sys
print([(o["conversation"], o["messages"], o["model"], o["time"][:2]) for o in map(json.loads, sys.stdin)])' <"$T/json")" \
        "[('a', 4, 'qwick-demo', '20'), ('b', 2, 'qwick-demo', '20')]"
    fails 2 "conversation a with its answers: without a terminal, --force removes them" log rm --conversation a
    ldconfig -p | grep -q 'libsqlite3\.so\.0' || skip "no libsqlite3"
    q --log --conversation a -n 1 "logged one" >"$T/out"
    q --log -n 1 "logged two" >"$T/out"
    [ "$(q log --conversation a | wc -l)" = 1 ]
    grep -qF '[a] logged one' <(q log)
    run -0 q log rm --conversation a --force
    [ ! -e "$C/a.json" ]
    [ "$(q log | wc -l)" = 1 ]
    fails 1 "log: there is no conversation a" log rm --conversation a --force
    # a damaged one is named
    echo '{' >"$C/bad.json"
    run -0 --separate-stderr q log conversations
    [ "$(wc -l <<<"$output")" = 2 ]
    [[ $stderr == "qwick: warning: $C/bad.json: "* ]]
    fails 1 "bad.json" --conversation bad hi
    chmod 666 "$C/b.json"
    fails 1 "everybody may write to it" --conversation b hi
}

@test "what cannot be kept is a failure, found before the work" {
    mkdir -p "${C%/*}"
    : >"$C"
    fails 1 "cannot create" --conversation a hi
    HOME='' fails 1 "neither XDG_STATE_HOME nor HOME is set" --conversation a hi
}

@test "chat goes on with a conversation of generate, and back" {
    q --conversation c "list files" >"$T/out"
    cat >"$T/chat.py" <<'PY'
import json, sys
from on_pty import Pty
path = sys.argv[2]
def count():
    return len(json.load(open(path))["messages"])
p = Pty([sys.argv[1], "chat", "--conversation", "c"])
hello = p.prompt()
assert "2 messages" in hello and "list files" in hello, hello
p.line("show disk usage")
assert count() == 4, count()   # after each answer
p.line("pwd")
assert count() == 6
p.line("/undo")
assert p.end(b"\x04") == 0
assert count() == 4            # what was undone is gone at the end
p = Pty([sys.argv[1], "chat", "--conversation", "fresh"])
p.prompt()
assert p.end(b"\x04") == 0
PY
    PYTHONPATH=tests/cli run -0 python3 "$T/chat.py" "$QWICK" "$C/c.json"
    [ ! -e "$C/fresh.json" ]
    q --conversation c "by size" >"$T/out"
    equal "$(jget 'len(o["messages"])' <"$C/c.json")" 6
    fails 2 "cannot be combined with" chat --conversation c --session x
}
