# Shared by the bats files about the server. A server listens on a unix socket in
# $BATS_FILE_TMPDIR, so no port is taken, unless a test is about ports.

# For setup_file, before serve_start.
serve_setup_file() {
    # the user's settings, as in common_setup
    local name
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    for name in "${!QWICK_@}"; do
        [[ $name == @(QWICK_FAULTS|QWICK_TEST_*) ]] || unset "$name"
    done
    unset NO_COLOR HF_HUB_CACHE HF_HOME XDG_CACHE_HOME XDG_CONFIG_HOME
    unset OLLAMA_MODELS LLAMA_CACHE MODELSCOPE_CACHE
    QWICK=$(realpath "${QWICK:-./qwick}")
    export QWICK HOME=$BATS_FILE_TMPDIR LC_ALL=C.UTF-8 D=$BATS_FILE_TMPDIR
    command -v python3 >/dev/null || skip "no python3"
}

# serve_launch NAME COMMAND…: run a server in the background: $D/NAME.pid has its
# process id, $D/NAME.err what it says, $D/NAME.status its status when it has ended.
serve_launch() {
    local name=$1
    shift
    rm -f "$D/$name.pid" "$D/$name.status"
    (
        set +eE
        trap - ERR EXIT
        bash -c 'echo $$ >"$0"; exec "$@"' "$D/$name.pid" "$@" \
            </dev/null >"$D/$name.out" 2>"$D/$name.err"
        echo $? >"$D/$name.status.new"
        mv "$D/$name.status.new" "$D/$name.status"
    ) >/dev/null 2>&1 3>&- &
    until [ -s "$D/$name.pid" ]; do sleep 0.02; done
}

# serve_start NAME ARGS…: start `qwick serve` on $D/NAME, and wait until it answers.
serve_start() {
    local name=$1
    shift
    serve_launch "$name" "$QWICK" serve --listen "unix:$D/$name" "$@"
    serve_wait "$name" "unix:$D/$name"
}

# serve_wait NAME ADDRESS: wait until the server answers there.
serve_wait() {
    local i
    for ((i = 0; i < 600; i++)); do
        if [ -e "$D/$1.status" ]; then
            ! grep -q "libmicrohttpd" "$D/$1.err" || skip "$(<"$D/$1.err")"
            echo "status $(<"$D/$1.status"): $(<"$D/$1.err")"
            return 1
        fi
        [ "$(serve_status "$2" /health)" != 200 ] || return 0
        sleep 0.05
    done
    echo "no answer: $(<"$D/$1.err")"
    return 1
}

# serve_status ADDRESS PATH [CURL ARGS…]: print the status of a GET; 000: none.
serve_status() {
    local where=(--unix-socket "${1#unix:}") base=http://localhost
    [[ $1 == unix:* ]] || { where=() base=http://$1; }
    curl -s -m 20 -o /dev/null -w '%{http_code}' "${where[@]}" "${@:3}" "$base$2" || true
}

# serve_ended NAME: wait for the end of a server, and print its status.
serve_ended() {
    local i
    for ((i = 0; i < 1200; i++)); do
        [ ! -e "$D/$1.status" ] || { cat "$D/$1.status"; return 0; }
        sleep 0.05
    done
    echo "still running: $1"
    return 1
}

# serve_stop NAME: SIGTERM ends the server with status 0, its socket is gone, and it
# said nothing that a sanitizer or a failed assertion would say.
serve_stop() {
    [ -e "$D/$1.pid" ] || return 0
    [ -e "$D/$1.status" ] || kill "$(<"$D/$1.pid")"
    [ "$(serve_ended "$1")" = 0 ] || { echo "status $(<"$D/$1.status")"; cat "$D/$1.err"; return 1; }
    [ ! -e "$D/$1" ] || { echo "$D/$1 is left"; return 1; }
    ! grep -E "ERROR|Assertion|runtime error" "$D/$1.err" || return 1
}

# For teardown_file: end every server that a failed test has left.
serve_teardown_file() {
    local pid
    for pid in "$D"/*.pid; do
        [ -e "$pid" ] && [ ! -e "${pid%.pid}.status" ] || continue
        kill -9 "$(<"$pid")" 2>/dev/null || true
    done
}

# serve_py [ARGS…]: run the Python program on standard input with the client library.
serve_py() {
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S - "$@"
}

# Print a TCP port that is free now.
free_port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}
