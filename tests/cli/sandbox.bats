#!/usr/bin/env bats
# The sandbox: faults/attack.c plays a program that an attacker has taken over.
load helpers

setup_file() {
    # setup skips: a file whose set-up skips has failed for bats
    [ "${SAN:-}" != 1 ] && [ "$(uname -m)" = x86_64 ] || return 0
    export ATTACKER=$BATS_FILE_TMPDIR/attack.so
    "${CC:-gcc}" -shared -fPIC -O1 -o "$ATTACKER" \
        "$BATS_TEST_DIRNAME/../faults/attack.c"
}

setup() {
    [ "${SAN:-}" != 1 ] || skip "SAN=1 has no sandbox"
    [ "$(uname -m)" = x86_64 ] || skip "faults/attack.c is for x86-64"
    common_setup
    if q -v -n 1 --raw ls 2>&1 >/dev/null | grep 'sandbox: without seccomp'; then
        skip "no seccomp here"
    fi
    cd "$T" || return 1
    echo secret >secret
}

# attack CALLS ARGS...: run qwick, whose first write to stdout makes these calls.
# $output has what qwick and the attacker print on stderr.
attack() {
    local calls=$1
    shift
    ATTACK=$calls run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" "$@" </dev/null
}

teardown() {
    [ -z "${SERVER:-}" ] || kill "$SERVER" 2>/dev/null || :
}

needs_landlock() {
    ! q -v -n 1 --raw ls 2>&1 >/dev/null | grep 'sandbox: without Landlock' ||
        skip "no Landlock here"
}

# Each verb with an output on stdout, ready for an attack.
each_verb() {
    local verb
    while read -r -a verb; do
        "$@" "${verb[@]}"
    done <<'END'
generate pwd
generate --samples 2 --temp 1 --seed 1 pwd
batch -n 2 --seed 1 -i records
embed ls
embed -q -f text
score ls
score -f text
score --jsonl -i texts
choose -a a -a b ls
choose --yes ls
rerank -q ls pwd ls
rerank -q ls --lines -i text
END
}

inputs() {
    echo ls >text
    echo '{"text":"ls"}' >texts
    echo '{"prompt":"ls"}' >records
}

denied() {
    attack "read:$T/secret write:$T/secret create:$T/new fork kill code" "$@"
    [ "$(grep -cE '^(read|write|create|fork|kill|code): (Operation not permitted|Permission denied)$' <<<"$stderr")" = 6 ] ||
        { echo "$*: $stderr"; return 1; }
}

@test "a program that was taken over opens no file and starts no process" {
    needs_landlock
    inputs
    each_verb denied
    [ "$(cat secret)" = secret ]
    [ ! -e new ]
}

# serve_attack CALLS ARGS...: run `qwick serve`, whose first answer makes these calls,
# and end it after this answer. $status is its exit status, $stderr what it printed.
serve_attack() {
    local calls=$1 i
    shift
    mkdir -p run
    rm -f run/sock
    ATTACK=$calls LD_PRELOAD="$ATTACKER" "$QWICK" serve --listen unix:run/sock "$@" \
        </dev/null 2>stderr 3>&- &
    SERVER=$!
    for ((i = 0; i < 300; i++)); do
        [ ! -S run/sock ] || break
        sleep 0.1
    done
    # it answers this when the model is loaded
    curl -s --max-time 60 --unix-socket run/sock http://localhost/v1/models >answer || :
    kill "$SERVER" || :
    status=0
    wait "$SERVER" || status=$?
    stderr=$(cat stderr)
}

needs_server() {
    command -v curl >/dev/null || skip "no curl"
    ldconfig -p | grep -q 'libmicrohttpd\.so\.12' || skip "no libmicrohttpd"
}

@test "a server that was taken over reaches nothing but its connections" {
    needs_landlock
    needs_server
    serve_attack "read:$T/secret write:$T/secret create:$T/new unlink:$T/secret fork kill code recvmsg"
    grep -q '"object":"list"' answer
    [ "$status" = 0 ]
    [ "$(grep -cE '^(read|write|create|unlink|fork|kill|code|recvmsg): (Operation not permitted|Permission denied)$' <<<"$stderr")" = 8 ]
    [ "$(cat secret)" = secret ]
    [ ! -e new ]
    [ ! -e run/sock ] # it removes its own
}

@test "a server that was taken over makes no socket" {
    local name
    needs_server
    for name in socket bind connect; do
        serve_attack "$name"
        [ "$status" = 159 ]
        [[ $stderr == *"qwick: sandbox: $name was called: a defect or an attack"* ]]
        [ ! -s answer ]
    done
}

@test "a model's files that take over a server make no socket" {
    local name
    needs_landlock
    needs_server
    cp -r "$BATS_TEST_DIRNAME/../../models/demo" models
    for name in socket bind connect; do
        ATTACK_LOAD=$name serve_attack "" -m models
        [ "$status" = 159 ]
        [[ $stderr == *"qwick: sandbox: $name was called: a defect or an attack"* ]]
    done
    ATTACK_LOAD="read:$T/secret unlink:$T/secret" serve_attack "" -m models
    grep -q '"object":"list"' answer
    [ "$(grep -c ': Permission denied$' <<<"$stderr")" = 2 ]
}

@test "a server's thread that runs before the model is loaded has both parts" {
    needs_landlock
    needs_server
    cp -r "$BATS_TEST_DIRNAME/../../models/demo" models
    # with a cache, files may be opened, so it is up to Landlock which
    serve_attack "read:$T/models/config.json read:/proc/self/status read:$T/secret" \
        -m models --prefix-cache="$T/cache"
    grep -q '"object":"list"' answer
    [ "$(grep -c '^read: Permission denied$' <<<"$stderr")" = 3 ]
    # while the model is loaded
    rm -f run/sock
    ATTACK="read:$T/secret write:$T/models/config.json kill" ATTACK_LOAD="wait:$T/go" \
        LD_PRELOAD="$ATTACKER" "$QWICK" serve --listen unix:run/sock -m models \
        </dev/null 2>stderr 3>&- &
    SERVER=$!
    until [ -S run/sock ]; do sleep 0.1; done
    curl -s --max-time 60 --unix-socket run/sock http://localhost/health >answer
    grep -q 503 <(curl -s --unix-socket run/sock -w '%{http_code}' http://localhost/health)
    touch go
    curl -s --max-time 60 --unix-socket run/sock http://localhost/v1/models >answer
    kill "$SERVER"
    wait "$SERVER"
    [ "$(grep -cE '^(read|write|kill): (Operation not permitted|Permission denied)$' stderr)" = 3 ]
}

@test "a server reads a new key file of the same name" {
    needs_server
    mkdir keys
    (umask 077; echo 0123456789abcdef-old >keys/file; echo 0123456789abcdef-new >keys/next)
    key_works() {
        curl -sf --max-time 60 -o health --unix-socket run/sock -H "x-api-key: 0123456789abcdef-$1" \
            http://localhost/v1/models
    }
    mkdir run
    "$QWICK" serve --listen unix:run/sock --api-key-file keys/file \
        </dev/null 2>stderr 3>&- &
    SERVER=$!
    local i
    for ((i = 0; i < 300; i++)); do
        ! key_works old || break
        sleep 0.1
    done
    run ! key_works new
    mv keys/next keys/file
    kill -HUP "$SERVER"
    for ((i = 0; i < 300; i++)); do
        ! key_works new || break
        sleep 0.1
    done
    key_works new
    run ! key_works old
    kill "$SERVER"
    wait "$SERVER"
}

@test "without the sandbox the same calls succeed" {
    attack "read:$T/secret write:$T/secret create:$T/new code" --no-sandbox pwd
    [ "$(grep -c ': done$' <<<"$stderr")" = 4 ]
    QWICK_NO_SANDBOX=1 attack "read:$T/secret" pwd
    [[ $stderr == *"read: done"* ]]
}

@test "names cannot be changed, and unknown calls fail" {
    attack "open:$T/secret unlink:$T/secret rename:$T/secret chmod:$T/secret ioctl bpf unknown clone3" ls
    [ "$status" = 0 ]
    [ "$(grep -c ': Operation not permitted$' <<<"$stderr")" = 6 ]
    # a C library falls back on clone, and on what it knows instead of new calls
    [[ $stderr == *"unknown: Function not implemented"* ]]
    [[ $stderr == *"clone3: Function not implemented"* ]]
    [ -e secret ]
    [ "$output" = ls ]
}

@test "exec, sockets and ptrace end the program by SIGSYS" {
    local call name
    while read -r call name; do
        attack "$call" ls
        [ "$status" = 159 ]
        [[ $stderr == "qwick: sandbox: $name was called: a defect or an attack" ]]
        [ -z "$output" ]
    done <<'END'
exec execve
socket socket
ptrace ptrace
END
}

# Each verb with a sandbox that reads a checkpoint, ready for an attack by its files.
denied_early() {
    ATTACK_LOAD="read:$T/secret write:$T/secret create:$T/new fork kill chmod:$T/secret read:$T/models/private read:$T/models/config.json" \
        run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" "$@" </dev/null
    [ "$(grep -cE '^(read|write|create|fork|kill|chmod): (Operation not permitted|Permission denied)$' <<<"$stderr")" = 7 ] ||
        { echo "$*: $stderr"; return 1; }
    [[ $stderr == *"read: done"* ]] || { echo "$*: $stderr"; return 1; }
}

@test "a model's files that take over a program while they are parsed reach nothing" {
    needs_landlock
    inputs
    cp -r "$BATS_TEST_DIRNAME/../../models/demo" models
    echo secret >models/private
    each_verb denied_early -m models
    mkdir out
    denied_early quantize -m models -o out/q
    denied_early quantize -m models -o out/q.gguf
    denied_early quantize -m models -o out/q --force
    [ -s out/q/config.json ]
    [ "$(cat secret)" = secret ]
    [ ! -e new ]

    # a GGUF file in the home directory opens no other file there
    q quantize -m models -o home.gguf
    ATTACK_LOAD="read:$T/secret read:$T/models/config.json read:$T/home.gguf" \
        run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" -m home.gguf pwd </dev/null
    [ "$output" = pwd ]
    [ "$(sed 's/Operation not permitted/Permission denied/' <<<"$stderr")" = \
        "read: Permission denied"$'\n'"read: Permission denied"$'\n'"read: done" ]
    # the draft model is loaded in the sandbox, too
    denied_early -m models --draft models pwd
    ATTACK_LOAD="exec" run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" -m models pwd </dev/null
    [ "$status" = 159 ]
    [[ $stderr == "qwick: sandbox: execve was called: a defect or an attack" ]]
}

@test "a checkpoint of links, split GGUF files and schemas load in the sandbox" {
    local f
    mkdir blobs hub
    for f in "$BATS_TEST_DIRNAME"/../../models/demo/*; do
        cp "$f" "blobs/${f##*/}.blob"
        ln -s "../blobs/${f##*/}.blob" "hub/${f##*/}"
    done
    equal "$(q -m hub pwd)" pwd
    echo '{"enum":["ls","pwd"]}' >s.json
    echo '{{ messages[0].content }}' >t.jinja
    run -0 q -m hub --json-schema s.json --chat-template t.jinja pwd
    run -0 q -q -m hub --think-file think --profile-file profile pwd
    [ -s profile ]
}

@test "the threads of the pool are in the sandbox" {
    needs_landlock
    inputs
    ATTACK_WORKER="read:$T/secret fork" run --separate-stderr \
        env LD_PRELOAD="$ATTACKER" "$QWICK" -t 2 ls </dev/null
    [[ $stderr == *"read: Operation not permitted"*"fork: Operation not permitted"* ]]
    # here a system call may open files, and Landlock stops this one
    ATTACK_WORKER="read:$T/secret" run --separate-stderr \
        env LD_PRELOAD="$ATTACKER" "$QWICK" score -t 2 -f text </dev/null
    [[ $stderr == *"read: Permission denied"* ]]
}

@test "a draft model's threads are in the sandbox" {
    needs_landlock
    inputs
    # the pool of each model has one thread beside the first
    ATTACK_WORKERS=2 ATTACK_WORKER="read:$T/secret" run --separate-stderr \
        env LD_PRELOAD="$ATTACKER" "$QWICK" -t 2 --draft "$BATS_TEST_DIRNAME/../../models/demo" pwd </dev/null
    [ "$status" = 0 ]
    [ "$(grep -c "read: Operation not permitted" <<<"$stderr")" = 2 ]
}

@test "only what the options name can be read" {
    needs_landlock
    inputs
    attack "read:$T/text read:$T/secret write:$T/text" score -f text
    [[ $stderr == *"read: done"*"read: Permission denied"*"write: Operation not permitted"* ]]
    # a directory given as a file is still reported as one
    mkdir dir
    run ! q embed -f dir
    [[ $output == *"dir"*"irectory"* ]]
    run ! q embed -f missing
    [[ $output == *"missing: "*"No such file"* ]]
    # inputs that are no files
    equal "$(q score --perplexity -f <(echo ls) | head -1)" \
        "$(q score --perplexity -f text | head -1)"
}

@test "with --log, nothing but the log can be written" {
    needs_landlock
    local log=$T/.local/state/qwick/log
    q --log pwd >/dev/null
    attack "read:$T/secret write:$T/secret create:$T/new create:$log/../new unlink:$log/log.db fork code" --log pwd
    [ "$(grep -cE '^(read|write|create|unlink|fork|code): (Operation not permitted|Permission denied)$' <<<"$stderr")" = 7 ] ||
        { echo "$stderr"; return 1; }
    [ "$(cat secret)" = secret ]
    # the answer is logged all the same
    [ "$(q log | wc -l)" = 2 ]
    attack "read:$log/log.db" pwd
    [[ $stderr == *"read: "*denied* || $stderr == *"read: "*permitted* ]]
}

@test "outputs that the options name are written, and nothing else is" {
    needs_landlock
    inputs
    mkdir out cache
    # a writing verb may not even touch other files
    touch -d 2001-01-01 secret
    attack "times:$T/secret" --save-session out/s pwd
    [[ $stderr == *"times: Operation not permitted"* ]]
    [ "$(stat -c %y secret | cut -c 1-4)" = 2001 ]
    attack "write:$T/secret create:$T/new create:$T/out/new read:$T/secret" \
        --save-session out/s pwd
    [ -s out/s ]
    [ "$(grep -c ': Permission denied$' <<<"$stderr")" = 3 ]
    [[ $stderr == *"create: done"* ]] # the limit of what a kernel can tell apart
    [ -e out/new ]
    [ ! -e new ]

    q -n 2 --session out/s ls
    attack "write:$T/secret create:$T/new" --think-file think --profile-file profile pwd
    [ -e think ] && [ -s profile ]
    [ ! -e new ]

    # an entry of the cache takes 64 tokens
    seq 100 >long
    attack "create:$T/new write:$T/secret" --cache-dir cache/a/b -n 1 --raw -f long
    [ ! -e new ]
    [ -n "$(find cache -name '*.kv')" ]
    [ "$(q --json --cache-dir cache/a/b -n 1 --raw -f long | jget 'o["usage"]["cached_tokens"] > 0')" = True ]

    attack "create:$T/new write:$T/secret" batch -i records -o out/answers
    [ -s out/answers ]
    [ ! -e new ]
    attack "create:$T/new write:$T/secret" embed -o out/v ls
    [ -s out/v ]
    [ ! -e out/v.pending ]
    [ ! -e new ]
}

@test "the sandbox changes no output" {
    inputs
    both() {
        equal "$(q "$@" 2>&1 | sed 's/,"timing":.*//')" \
            "$(q "$@" --no-sandbox 2>&1 | sed 's/,"timing":.*//')" || { echo "$*"; return 1; }
    }
    each_verb both
}

@test "what the kernel lacks is a note with -v, and nothing else" {
    NO_LANDLOCK=1 run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" -v ls </dev/null
    [ "$status" = 0 ] && [ "$output" = ls ]
    [ "$(grep -c sandbox <<<"$stderr")" = 1 ]
    [[ $stderr == *"qwick: sandbox: without Landlock, files are not restricted by name: Function not implemented"* ]]
    NO_LANDLOCK=1 attack "read:$T/secret" ls
    [[ $stderr == "read: Operation not permitted" ]]
    NO_LANDLOCK=1 NO_SECCOMP=1 run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" ls </dev/null
    [ "$status" = 0 ] && [ "$output" = ls ] && [ -z "$stderr" ]
    NO_LANDLOCK=1 NO_SECCOMP=1 run --separate-stderr env LD_PRELOAD="$ATTACKER" "$QWICK" -v ls </dev/null
    [ "$(grep -c sandbox <<<"$stderr")" = 2 ]
    # a container's filter answers EPERM
    NO_LANDLOCK=1 NO_SECCOMP=1 LACK=1 run --separate-stderr \
        env LD_PRELOAD="$ATTACKER" "$QWICK" -v ls </dev/null
    [ "$status" = 0 ] && [ "$output" = ls ]
    [[ $stderr == *"without Landlock, files are not restricted by name: Operation not permitted"* ]]
    [[ $stderr == *"without seccomp, system calls are not restricted: "* ]]
}
