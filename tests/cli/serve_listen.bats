#!/usr/bin/env bats
# serve: addresses, unix sockets, sockets of systemd, the end of the process.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start probe # skips all if there is no libmicrohttpd
    serve_stop probe
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
}

@test "a port: found by its clients, taken by a second server, free afterwards" {
    port=$(free_port)
    serve_launch port "$QWICK" serve --listen "127.0.0.1:$port"
    serve_wait port "127.0.0.1:$port"
    fails 1 "$port" serve --listen "127.0.0.1:$port"
    [ "$(serve_status "127.0.0.1:$port" /v1/models)" = 200 ]
    # some host names of this machine, and the bound one
    [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/health" -H 'Host: example.com')" = 403 ]
    serve_stop port
    # no address is held back
    serve_launch port "$QWICK" serve --listen "127.0.0.1:$port"
    serve_wait port "127.0.0.1:$port"
    serve_stop port
}

@test "several addresses; IPv6" {
    port=$(free_port)
    local six=()
    [ ! -e /proc/sys/net/ipv6/conf/lo ] || [ "$(cat /proc/sys/net/ipv6/conf/lo/disable_ipv6)" = 1 ] ||
        six=(--listen "[::1]:$port")
    serve_start many --listen "127.0.0.1:$port" "${six[@]}" --listen "unix:$D/many2"
    [ "$(serve_status "127.0.0.1:$port" /health)" = 200 ]
    [ "$(serve_status "unix:$D/many2" /health)" = 200 ]
    [ ${#six[@]} = 0 ] || [ "$(serve_status "[::1]:$port" /health -g)" = 200 ]
    serve_stop many
    [ ! -e "$D/many2" ]
}

@test "unix sockets: mode 0600; a dead one of our own is replaced, nothing else" {
    serve_start sock
    [ "$(stat -c %a "$D/sock")" = 600 ]
    # alive
    fails 1 "$D/sock" serve --listen "unix:$D/sock"
    [ "$(serve_status "unix:$D/sock" /health)" = 200 ]
    kill -9 "$(<"$D/sock.pid")"
    serve_ended sock >"$T/status"
    [ -S "$D/sock" ]
    serve_start sock
    [ "$(stat -c %a "$D/sock")" = 600 ]
    serve_stop sock
    # what is no socket of ours
    echo precious >"$T/file"
    mkdir "$T/dir"
    mkfifo "$T/fifo"
    ln -s "$T/none" "$T/link"
    for path in file dir fifo link; do
        fails 1 "$T/$path" serve --listen "unix:$T/$path"
    done
    equal "$(<"$T/file")" precious
    [ -d "$T/dir" ] && [ -p "$T/fifo" ] && [ -L "$T/link" ] && [ ! -e "$T/none" ]
    fails 1 "$T/none/sock" serve --listen "unix:$T/none/sock"
    long=$T/$(printf 'a%.0s' {1..200})
    run ! --separate-stderr timeout 20 "$QWICK" serve --listen "unix:$long"
    one_error_line
    # the socket of another program that no process holds any more: not alive, ours by owner
    python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])' "$D/dead"
    serve_start dead
    serve_stop dead
}

@test "other addresses than this machine's need keys or --no-auth" {
    printf 'first-key-0123456789\n' >"$T/k"
    chmod 600 "$T/k"
    port=$(free_port)
    for addr in "0.0.0.0:$port" "[::]:$port"; do
        fails 2 "" serve --listen "$addr"
        fails 2 "--api-key-file" serve --listen "$addr" --allow-host model.example
    done
    # a wildcard has no name of its own
    fails 2 "--allow-host" serve --listen "0.0.0.0:$port" --api-key-file "$T/k"
    fails 2 "--allow-host" serve --listen "0.0.0.0:$port" --no-auth
    serve_launch wild "$QWICK" serve --listen "0.0.0.0:$port" --api-key-file "$T/k" --allow-host model.example
    serve_wait wild "127.0.0.1:$port"
    [ "$(serve_status "127.0.0.1:$port" /v1/models)" = 401 ]
    [ "$(serve_status "127.0.0.1:$port" /v1/models -H 'x-api-key: first-key-0123456789' -H 'Host: model.example')" = 200 ]
    serve_stop wild
    # not an address of this machine
    fails 1 "192.0.2.1" serve --listen "192.0.2.1:$port" --api-key-file "$T/k"
}

@test "addresses that are none are usage errors" {
    for addr in "" x 127.0.0.1 127.0.0.1: :80 127.0.0.1:0x50 127.0.0.1:65536 127.0.0.1:-1 \
        "127.0.0.1:80 " "[::1]" "[::1]80" "::1:80" unix: fd: fd:3 fd:x "tcp:80" "localhost:80:80" \
        "http://127.0.0.1:80"; do
        fails 2 "--listen" serve --listen "$addr"
    done
    fails 2 "--queue" serve --listen "unix:$T/s" --queue -1
    fails 2 "--drain" serve --listen "unix:$T/s" --drain x
    fails 2 "--idle-exit" serve --listen "unix:$T/s" --idle-exit -1
    fails 2 "--no-auth" serve --listen "unix:$T/s" --no-auth --api-key-file "$T/k"
    # no systemd
    LISTEN_FDS='' fails 1 "fd:systemd" serve --listen fd:systemd
    [ ! -e "$T/s" ]
}

# ask_first NAME: in the background, ask the server NAME as soon as it listens: a
# server with --idle-exit may leave before a client that is started later. Prints
# the status.
ask_first() {
    serve_py "unix:$D/$1" <<'PY' >"$T/status" &
import sys, time
from serve_client import *
c = Connection(sys.argv[1])
limit = time.monotonic() + 60
while not c.sock:
    assert time.monotonic() < limit
    try:
        c.connect()
    except (FileNotFoundError, ConnectionRefusedError):
        time.sleep(0.01)
chat = {"messages": [{"role": "user", "content": "list files"}], "regex": "[a-z ]{400}"}
print(ask(c, "POST", "/v1/chat/completions", chat).status)
PY
    asks=$!
}

@test "fd:systemd serves the socket of its activation, and leaves it" {
    ask_first act
    serve_launch act python3 -S -c 'import os, socket, sys
path, *command = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(16)
fd = s.detach()
if fd != 3:
    os.dup2(fd, 3)
    os.close(fd)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(command[0], command)' "$D/act" "$QWICK" serve --listen fd:systemd --idle-exit 1
    wait "$asks"
    [ "$(<"$T/status")" = 200 ]
    # it leaves by itself, and the socket is systemd's
    [ "$(serve_ended act)" = 0 ]
    [ -S "$D/act" ]
    rm "$D/act"
}

@test "--idle-exit: an idle server leaves, a working one does not" {
    ask_first idle
    serve_launch idle "$QWICK" serve --listen "unix:$D/idle" --idle-exit 1 --exact
    wait "$asks"
    [ "$(<"$T/status")" = 200 ]
    [ "$(serve_ended idle)" = 0 ]
    [ ! -e "$D/idle" ]
}

@test "bad models and options end before anything listens" {
    fails 3 "$T/none" serve --listen "unix:$T/s" -m "$T/none"
    [ ! -e "$T/s" ]
    run -2 --separate-stderr q serve --listen "unix:$T/s" --max-batch 0
    run -2 --separate-stderr q serve --listen "unix:$T/s" hello
    [ ! -e "$T/s" ]
}

@test "one line on a terminal: the address and an example of curl" {
    serve_py "$QWICK" "$D/tty" <<'PY'
import os, signal, sys
from on_pty import Pty
p = Pty([sys.argv[1], "serve", "--listen", "unix:" + sys.argv[2]])
got = p.wait_for(b"/v1/chat/completions")
assert sys.argv[2].encode() in got if isinstance(got, bytes) else sys.argv[2] in got, got
assert "curl" in str(got), got
os.kill(p.pid, signal.SIGTERM)
assert p.end(b"") == 0
PY
    [ ! -e "$D/tty" ]
}
