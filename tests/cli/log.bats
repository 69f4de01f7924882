#!/usr/bin/env bats
# qwick log, and what --log, --no-log and log = on keep.
load helpers

setup() {
    config_setup
    L=$T/.local/state/qwick/log
    DB=$L/log.db
    python3 -c 'import ctypes; ctypes.CDLL("libsqlite3.so.0")' 2>/dev/null ||
        skip "no libsqlite3"
}

# The number of answers in the log.
n_logged() {
    q log --last 0 --json | wc -l
}

# jlog EXPRESSION ARGS…: the value of an expression of o, the list of objects that
# qwick log ARGS --json prints.
jlog() {
    local e=$1
    shift
    q log "$@" --json >"$T/json" || return
    python3 - "$e" "$T/json" <<'PY'
import json, sys
o = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
print(eval(sys.argv[1]))
PY
}

@test "nothing is logged unless the user says so" {
    [ "$(q "list files")" = ls ]
    [ ! -e "$L" ]
    run -0 --separate-stderr q log
    [ -z "$output$stderr" ]
    [ ! -e "$L" ]
    fails 1 "log: there is no answer yet" log show
    fails 1 "log: there is no answer 1" log rm 1
}

@test "--log keeps an answer, with its prompt, options and times" {
    run -0 --separate-stderr q --log -s "Be short." --temp 0.7 --top-k 5 --seed 3 -n 20 "list files"
    [ -z "$stderr" ]
    answer=$output
    [ "$(stat -c %a "$L")" = 700 ]
    [ "$(stat -c %a "$DB" "$DB-journal" | sort -u)" = 600 ]
    [ ! -s "$DB-journal" ]
    equal "$(jlog 'o[0]["answer"].rstrip("\n")')" "$answer"
    equal "$(jlog '[o[0][k] for k in ("id", "verb", "model", "prompt", "system", "messages", "seed", "conversation")]')" \
        "[1, 'generate', 'qwick-demo', 'list files', 'Be short.', 2, 3, None]"
    equal "$(jlog '[o[0]["options"][k] for k in ("temp", "top-k", "max-tokens")]')" "[0.7, 5, 20]"
    equal "$(jlog '[o[0]["options"]["sampling"][k] for k in ("temperature", "top_k")]')" "[0.7, 5]"
    equal "$(jlog 'o[0]["prompt_tokens"] > 5 and o[0]["completion_tokens"] > 0 and o[0]["total_ms"] > 0')" True
    run -0 q log show 1
    [[ $output == "answer 1, "*"[system]"*"Be short."*"[prompt]"*"list files"*"[answer]"*"$answer"* ]]
    # a text, token ids, a chat, samples
    q --log --raw -n 3 "a text" >"$T/out"
    q --log -n 2 --prompt-ids 1,2 >"$T/out"
    echo '[{"role":"user","content":"one"},{"role":"assistant","content":"two"},
        {"role":"user","content":"three"}]' >"$T/chat"
    q --log -n 2 --chat-json "$T/chat" >"$T/out"
    q --log -n 3 --samples 2 --temp 1 "list files" >"$T/out"
    equal "$(jlog '[(r["prompt"], r["messages"], r["finish_reason"]) for r in o][1:4]')" \
        "[('a text', 0, 'length'), ('1,2', 0, 'length'), ('three', 3, 'length')]"
    equal "$(jlog 'len(o), len({r["seed"] for r in o[4:]})')" "(6, 2)"
}

@test "log = on is for single answers, log = all for chat and batch, too" {
    echo '{"prompt":"list files","n":2}' >"$T/in"
    echo 'log = on' >"$CONFIG"
    q "list files" >"$T/out"
    [ "$(n_logged)" = 1 ]
    q batch -i "$T/in" >"$T/out"
    q score ls >"$T/out"
    q --no-log "list files" >"$T/out"
    QWICK_LOG=off q "list files" >"$T/out"
    q --no-config "list files" >"$T/out"
    [ "$(n_logged)" = 1 ]
    QWICK_LOG=all q batch -i "$T/in" -s short >"$T/out"
    [ "$(n_logged)" = 3 ]
    equal "$(jlog '[(r["verb"], r["prompt"], r["system"], r["messages"]) for r in o[1:]]')" \
        "[('batch', 'list files', 'short', 2), ('batch', 'list files', 'short', 2)]"
    q batch --log -i "$T/in" >"$T/out"
    [ "$(n_logged)" = 5 ]
    printf '[batch]\nlog = on\n' >"$CONFIG"
    q batch -i "$T/in" >"$T/out"
    q "list files" >"$T/out"
    [ "$(n_logged)" = 7 ]
    echo 'log = all' >"$CONFIG"
    printf '%s\n' '{"messages":[{"role":"user","content":"pwd"}]}' '{"prompt_ids":[1,2],"max_tokens":2}' |
        "$QWICK" batch >"$T/out"
    equal "$(jlog 'sorted((r["prompt"] for r in o[7:]), reverse=True)')" "['pwd', '1,2']"
    q batch --no-log -i "$T/in" >"$T/out"
    [ "$(n_logged)" = 9 ]
    echo 'log = some' >"$CONFIG"
    fails 2 "log: \"some\": expected on or off, or all" hi
    rm "$CONFIG"
    fails 2 "--log: cannot be combined with --no-log" --log --no-log hi
    fails 2 "--log: \"on\": its only value is all" --log=on hi
    fails 2 "--log: unknown option" score --log ls
    fails 2 "--log: unknown option" serve --log
}

@test "a chat is logged answer by answer" {
    cat >"$T/chat.py" <<'PY'
import sys
from on_pty import Pty
p = Pty([sys.argv[1], "chat", "--log", "-s", "short"])
p.prompt()
p.line("list files")
p.line("show disk usage")
assert p.end(b"\x04") == 0
PY
    PYTHONPATH=tests/cli run -0 python3 "$T/chat.py" "$QWICK"
    equal "$(jlog '[(r["verb"], r["prompt"], r["system"], r["messages"], r["finish_reason"]) for r in o]')" \
        "[('chat', 'list files', 'short', 2, 'stop'), ('chat', 'show disk usage', 'short', 4, 'stop')]"
    equal "$(jlog '[bool(r["answer"] and r["completion_tokens"] and r["total_ms"]) for r in o]')" "[True, True]"
}

@test "list shows short lines, the newest last" {
    for i in {1..25}; do
        echo "{\"prompt\":\"list files $i\",\"max_tokens\":1}"
    done | "$QWICK" batch --log >"$T/out"
    [ "$(q log | wc -l)" = 20 ]
    q log | tail -n 1 | grep -qE '^ {4}25  [0-9-]{10} [0-9:]{5}  qwick-demo {12}list files 25$'
    [ "$(q log --last 3 | awk '{print $1}' | paste -sd,)" = 23,24,25 ]
    [ "$(q log list --last 0 | wc -l)" = 25 ]
    # a long prompt of several lines is one line
    printf 'a\tb\n\n  %0300d\n' 1 | "$QWICK" --log -n 1 --raw >"$T/out"
    [ "$(q log --last 1 | wc -l)" = 1 ]
    [ "$(q log --last 1 | wc -c)" = 120 ]
    q log --last 1 | grep -qE ' a b 0+\.\.\.$'
    fails 2 '"x": is none of list, search, show, conversations, rm; search finds words' log x
    fails 2 '"x": unexpected' log list x
    fails 2 "--last: has no effect with show" log show --last 3
    fails 2 "--all: has no effect with list" log --all
    fails 2 '"0": is no id of an answer' log show 0
}

@test "search finds words in prompts and answers" {
    for text in "the word" "I don't know a \"quoted\" re-run" "ÄRGER 100%" "我说你好吗"; do
        q --log --raw -n 1 "$text" >"$T/out"
    done
    ids() {
        q log search "$@" | awk '{print $1}' | paste -sd,
    }
    [ "$(ids WORD)" = 1 ]
    [ "$(ids "don't")" = 2 ]
    [ "$(ids '"quoted"' re-run)" = 2 ]
    [ "$(ids ärger)" = 3 ]
    [ "$(ids %)" = 3 ]
    [ "$(ids 你好)" = 4 ]
    [ "$(ids -- --)" = "" ]
    [ "$(ids word nothing)" = "" ]
    equal "$(jlog 'o[0]["prompt"]' search "the word")" "the word"
    fails 2 "search: no words" log search
    fails 2 "search: a word is empty" log search ""
}

@test "rm removes for good" {
    q --log --raw -n 1 "the hidden word" >"$T/out"
    q --log --raw -n 1 "another" >"$T/out"
    grep -q "hidden" "$DB"
    run -0 q log rm 1
    [ -z "$output" ]
    ! grep -q "hidden" "$DB" "$DB-journal"
    fails 1 "log: there is no answer 1" log rm 1
    fails 2 "rm: takes ids, --all or --conversation" log rm
    fails 2 "--force: has no effect with ids" log rm 2 --force
    fails 2 "all answers: without a terminal, --force removes them" log rm --all
    [ "$(n_logged)" = 1 ]
    run -0 q log rm --all --force
    [ "$(n_logged)" = 0 ]
    # an id is never used again
    q --log --raw -n 1 "new" >"$T/out"
    equal "$(jlog 'o[0]["id"]')" 3
    # at a terminal it asks
    [ -n "$(command -v script)" ] || skip "no script"
    printf 'no\n' | script -qec "'$QWICK' log rm --all" /dev/null >"$T/tty" || :
    grep -q "remove all answers" "$T/tty"
    [ "$(n_logged)" = 1 ]
}

# not_logged WHY ARGS…: the answer comes with exit status 0, and one warning.
not_logged() {
    local why=$1
    shift
    run -0 --separate-stderr q --log "$@" "list files"
    [ "$output" = ls ]
    [[ $stderr == "qwick: warning: the answer is not logged: "*"$why"* ]] ||
        { echo "$stderr"; return 1; }
    [ "$(wc -l <<<"$stderr")" = 1 ]
}

@test "without libsqlite3, the answer stands and qwick log names the package" {
    mkdir "$T/lib"
    : >"$T/lib/libsqlite3.so.0"
    export LD_LIBRARY_PATH=$T/lib
    not_logged "the log needs the library libsqlite3.so.0 (package libsqlite3-0)"
    [ ! -e "$DB" ]
    fails 1 "the log needs the library libsqlite3.so.0 (package libsqlite3-0)" log
    [ "$(q "list files")" = ls ]
}

@test "a log that cannot be written is a warning, and stays as it is" {
    mkdir -p "$L"
    echo "no database, but the diary of the user" >"$DB"
    chmod 600 "$DB"
    not_logged "file is not a database"
    [ "$(cat "$DB")" = "no database, but the diary of the user" ]
    fails 1 "file is not a database" log
    rm -r "$L"
    q --log "list files" >"$T/out"
    python3 - "$DB" <<'PY' || skip "python3 has no sqlite3"
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("PRAGMA user_version=2")
PY
    cp "$DB" "$T/before"
    not_logged "was written by a newer qwick (schema 2, this one has 1)"
    cmp "$DB" "$T/before"
    fails 1 "was written by a newer qwick" log
    chmod 666 "$DB"
    not_logged "everybody may write to it"
    rm -r "$L"
    : >"$L"
    not_logged "cannot create"
    rm "$L"
    HOME='' not_logged "neither XDG_STATE_HOME nor HOME is set"
}

@test "a full disk and failed calls are a warning" {
    [ "${SAN:-}" != 1 ] || skip "SAN=1 allows no fault injection"
    build_injector
    local kind how at
    q --log "list files" >"$T/out"
    for kind in write:ENOSPC write:EIO sync:EIO; do
        how=${kind#*:} kind=${kind%:*}
        # the calls of the log come before and after the answer's
        for at in 1 2 3 4 5 6 8 10; do
            FAULT_CALL=$kind FAULT_HOW=$how FAULT_AT=$at FAULT_FROM=1 LD_PRELOAD=$INJECT \
                run --separate-stderr q --log --json "list files"
            # the answer's own write may be among those that fail
            [ "$status" = 0 ] || [[ $stderr == *"stdout"* || $stderr == *"write error"* ]]
            [ "$status" != 0 ] || [[ $output == *'"text":"ls"'* ]]
            [[ $status != 0 || -z $stderr || $stderr == "qwick: warning: the answer is not logged: $DB: "* ]]
        done
    done
    # what was there is there, and the log goes on
    q --log "list files" >"$T/out"
    equal "$(jlog 'o[0]["id"], o[-1]["answer"], len(o) >= 2')" "(1, 'ls', True)"
}

@test "several processes log at once" {
    for i in {1..8}; do
        q --log -n 1 --raw "$i" >"$T/out$i" 2>"$T/err$i" &
    done
    wait
    [ -z "$(cat "$T"/err*)" ]
    equal "$(jlog 'sorted(r["prompt"] for r in o)' --last 0)" \
        "['1', '2', '3', '4', '5', '6', '7', '8']"
}

@test "the columns are in the page" {
    q --log -n 1 hi >"$T/out"
    for column in $(jlog '" ".join(o[0])'); do
        grep -q "^\\\\fB$column\\\\fR" man/qwick-log.1 || { echo "$column"; return 1; }
    done
}
