# Shared by the bats files about qwick-pull: a hub on this machine.
bats_require_minimum_version 1.5.0

commit=0123456789abcdef0123456789abcdef01234567

# Print the tools that the server needs and that are missing; false if none is
# missing.
hub_missing() {
    local tool
    for tool in python3 curl; do
        command -v $tool >/dev/null || { echo "no $tool"; return 0; }
    done
    return 1
}

# Call in setup_file: set the source tree, the directory that the hub serves,
# and its log.
hub_places() {
    export REPO=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export ROOT=$BATS_FILE_TMPDIR/hub LOG=$BATS_FILE_TMPDIR/log
    mkdir -p "$ROOT"
}

# Serve $ROOT. Further arguments go to hub_server.py.
hub_start() {
    local port_file i
    port_file=$(mktemp -u "$BATS_FILE_TMPDIR/port.XXXXXX")
    : >"$LOG"
    python3 "$BATS_TEST_DIRNAME/hub_server.py" "$ROOT" "$port_file" "$LOG" \
        "$@" >/dev/null 2>&1 3>&- &
    echo $! >>"$BATS_FILE_TMPDIR/pids"
    for i in $(seq 100); do
        [ -s "$port_file" ] && break
        sleep 0.1
    done
    export PORT=$(cat "$port_file")
}

hub_stop() {
    local pid
    [ -s "$BATS_FILE_TMPDIR/pids" ] || return 0
    while read -r pid; do
        kill "$pid" 2>/dev/null || true
    done <"$BATS_FILE_TMPDIR/pids"
}

hub_setup() {
    local missing
    if missing=$(hub_missing); then
        skip "$missing for the web server"
    fi
    export HF_ENDPOINT=http://127.0.0.1:$PORT
    export HF_HUB_CACHE=$BATS_TEST_TMPDIR/cache
    export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost
    unset HF_TOKEN HF_TOKEN_PATH HF_HOME HF_HUB_DISABLE_IMPLICIT_TOKEN
    # the user's own login is none of the tests'
    export HOME=$BATS_TEST_TMPDIR
    unset XDG_CACHE_HOME
    : >"$LOG"
}

pull() {
    run timeout 60 "$REPO/scripts/qwick-pull" --allow-http "$@"
}

# one_line_error STATUS TEXT: check that the output is one line, "qwick-pull:
# …TEXT…", without control characters.
one_line_error() {
    [ "$status" -eq "$1" ] && [ "${#lines[@]}" -eq 1 ] &&
        [[ $output == "qwick-pull: "*"$2"* ]] &&
        ! LC_ALL=C grep -q '[[:cntrl:]]' <<<"$output" ||
        { echo "status $status: $output"; return 1; }
}

# gguf_repository ORG/NAME FILE: put the demo model as FILE.gguf into a repository.
gguf_repository() {
    mkdir -p "$ROOT/$1"
    q quantize -q -m "$MODELS/../../../models/demo" --format gguf --type Q8_0 \
        -o "$ROOT/$1/$2.gguf" >/dev/null
}

# Put a qwick into the PATH whose pull takes the hub of the test, which has no https.
hub_qwick() {
    mkdir -p "$T/bin"
    export PATH="$T/bin:$PATH"
    cat >"$T/bin/qwick" <<SH
#!/bin/sh
if [ "\$1" = pull ]; then set -- "\$@" --allow-http; fi
exec "$QWICK" "\$@"
SH
    chmod +x "$T/bin/qwick"
}
