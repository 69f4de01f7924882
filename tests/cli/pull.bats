#!/usr/bin/env bats
# qwick-pull against a local server that answers like the hub (hub_server.py).
# pull_hostile.bats tests answers that a hub should not give.

load hub

setup_file() {
    hub_missing && return
    hub_places
    local org
    for org in good corrupt short cut slow norange gated; do
        mkdir -p "$ROOT/$org/m"
        printf '{"model_type": "qwen3"}' >"$ROOT/$org/m/config.json"
        printf '{"a": 1}' >"$ROOT/$org/m/tokenizer.json"
        for name in tokenizer_config special_tokens_map added_tokens; do
            printf '{}' >"$ROOT/$org/m/$name.json"
        done
        printf 'no\n' >"$ROOT/$org/m/README.md"
        head -c 200000 /dev/urandom >"$ROOT/$org/m/model.safetensors"
    done
    printf '{{ x }}' >"$ROOT/good/m/chat_template.jinja"
    : >"$ROOT/good/m/generation_config.json" # even an empty file
    mkdir -p "$ROOT/good/sharded" "$ROOT/good/hole" "$ROOT/good/none"
    cp "$ROOT/good/m/config.json" "$ROOT/good/sharded"
    cp "$ROOT/good/m/config.json" "$ROOT/good/hole"
    cp "$ROOT/good/m/config.json" "$ROOT/good/none"
    local i
    for i in 1 2; do
        head -c 5000$i /dev/urandom \
            >"$ROOT/good/sharded/model-0000$i-of-00002.safetensors"
    done
    : >"$ROOT/good/sharded/other.safetensors" # not in the index
    printf '{"metadata":{},"weight_map":{"a":"%s","b":"%s","c":"%s"}}' \
        model-00001-of-00002.safetensors model-00002-of-00002.safetensors \
        model-00001-of-00002.safetensors \
        | tee "$ROOT/good/sharded/model.safetensors.index.json" \
            >"$ROOT/good/hole/model.safetensors.index.json"

    # GGUF files: of several types, split, in a directory, with a projector
    mkdir -p "$ROOT/good/x-GGUF/BF16" "$ROOT/short/one-GGUF" "$ROOT/good/parts-GGUF"
    for i in x-Q4_K_M x-UD-Q4_K_M x-Q8_0 mmproj-F16 BF16/x-BF16-00001-of-00002 \
        BF16/x-BF16-00002-of-00002; do
        head -c 100000 /dev/urandom >"$ROOT/good/x-GGUF/$i.gguf"
    done
    printf '{}' >"$ROOT/good/x-GGUF/config.json"
    head -c 100000 /dev/urandom >"$ROOT/short/one-GGUF/one-q8_0.gguf"
    : >"$ROOT/good/parts-GGUF/p-Q8_0-00002-of-00003.gguf"
    head -c 9 /dev/urandom >"$ROOT/good/parts-GGUF/p-Q8_0-00001-of-00003.gguf"

    hub_start
}

teardown_file() {
    hub_stop
}

setup() {
    hub_setup
}

not_logged() {
    if grep "$1" "$LOG"; then
        return 1
    fi
}

blob() {
    sha256sum <"$1" | cut -d ' ' -f 1
}

@test "the cache has the layout of the hub's own tools" {
    pull good/m
    [ "$status" -eq 0 ]
    local repo=$HF_HUB_CACHE/models--good--m
    [ "$output" = "$repo/snapshots/$commit" ]
    [ "$(cat "$repo/refs/main")" = $commit ]
    local name
    for name in config.json generation_config.json tokenizer.json \
        tokenizer_config.json special_tokens_map.json added_tokens.json \
        chat_template.jinja model.safetensors; do
        [ -L "$output/$name" ]
        cmp "$output/$name" "$ROOT/good/m/$name"
    done
    [ ! -e "$output/README.md" ]
    local id=$(blob "$ROOT/good/m/model.safetensors")
    [ "$(readlink "$output/model.safetensors")" = "../../blobs/$id" ]
    [ -z "$(find "$repo" -name '*.incomplete')" ]
}

@test "existing files are not downloaded again" {
    pull good/m
    [ "$status" -eq 0 ]
    : >"$LOG"
    pull good/m
    [ "$status" -eq 0 ]
    [ "$(wc -l <"$LOG")" -eq 1 ]
    grep -q '^GET /api/' "$LOG"
}

# partial OWNER N: put the first N bytes of model.safetensors of OWNER/m in the cache,
# as an interrupted download leaves them.
partial() {
    local blobs=$HF_HUB_CACHE/models--$1--m/blobs file=$ROOT/$1/m/model.safetensors
    mkdir -p "$blobs"
    head -c "$2" "$file" >"$blobs/$(blob "$file").incomplete"
}

@test "a partial file is resumed where it ends" {
    partial good 123456
    pull good/m
    [ "$status" -eq 0 ]
    cmp "$output/model.safetensors" "$ROOT/good/m/model.safetensors"
    grep -q '^GET /cdn/.* bytes=123456- ' "$LOG"
    not_logged '^GET /cdn/.* - '
}

@test "a partial file that is complete or too long is handled" {
    local repo=$HF_HUB_CACHE/models--good--m
    local id=$(blob "$ROOT/good/m/model.safetensors")
    mkdir -p "$repo/blobs"
    cp "$ROOT/good/m/model.safetensors" "$repo/blobs/$id.incomplete"
    pull good/m
    [ "$status" -eq 0 ]
    not_logged '^GET /cdn/'
    rm -f "$repo/blobs/$id"
    head -c 300000 /dev/zero >"$repo/blobs/$id.incomplete"
    pull good/m
    [ "$status" -eq 0 ]
    cmp "$output/model.safetensors" "$ROOT/good/m/model.safetensors"
}

@test "an interrupted download is resumed automatically" {
    pull short/m
    [ "$status" -eq 0 ]
    cmp "$output/model.safetensors" "$ROOT/short/m/model.safetensors"
    grep -q '^GET /cdn/.* bytes=100000- ' "$LOG"
}

@test "a download that ends early without an error is also resumed" {
    pull cut/m
    [ "$status" -eq 0 ]
    cmp "$output/model.safetensors" "$ROOT/cut/m/model.safetensors"
    grep -q '^GET /cdn/.* bytes=140000- ' "$LOG"
}

@test "on a terminal: progress, and what to do next" {
    command -v script >/dev/null || skip "no script"
    run timeout 60 script -qec \
        "'$REPO/scripts/qwick-pull' --allow-http slow/m" /dev/null
    [ "$status" -eq 0 ]
    [[ $output == *"model.safetensors (195.3 KiB)"* ]]
    [[ $output == *"% of 195.3 KiB, "*"KiB/s"* ]]
    [[ $output == *"done: qwick -m slow/m"* ]]
    # existing files need no progress
    pull slow/m
    cmp "$output/model.safetensors" "$ROOT/slow/m/model.safetensors"
}

@test "a server without ranges: from the start" {
    partial norange 1000
    pull norange/m
    [ "$status" -eq 0 ]
    cmp "$output/model.safetensors" "$ROOT/norange/m/model.safetensors"
}

@test "a checksum that does not match: error, the file is removed" {
    pull corrupt/m
    one_line_error 1 "model.safetensors: checksum mismatch: "
    local repo=$HF_HUB_CACHE/models--corrupt--m
    [ ! -e "$repo/refs/main" ]
    [ ! -e "$repo/snapshots/$commit/model.safetensors" ]
    [ -z "$(find "$repo" -name '*.incomplete')" ]
}

@test "a small file is also checked" {
    local repo=$HF_HUB_CACHE/models--good--m
    local file=$ROOT/good/m/config.json
    local id=$({ printf 'blob %s\0' "$(stat -c %s "$file")"; cat "$file"; } |
        sha1sum | cut -d ' ' -f 1)
    mkdir -p "$repo/blobs"
    head -c "$(stat -c %s "$file")" /dev/zero >"$repo/blobs/$id.incomplete"
    pull good/m
    one_line_error 1 "config.json: checksum mismatch: "
    pull good/m
    [ "$status" -eq 0 ]
}

@test "--verify: a damaged file in the cache is found and fetched again" {
    pull good/m
    [ "$status" -eq 0 ]
    local at=$output name
    for name in model.safetensors tokenizer.json; do
        printf 'not what it was' | dd of="$at/$name" conv=notrunc 2>/dev/null
        truncate -s "$(stat -c %s "$ROOT/good/m/$name")" "$at/$name"
    done
    : >"$LOG"
    pull good/m
    [ "$status" -eq 0 ]
    run ! cmp -s "$at/model.safetensors" "$ROOT/good/m/model.safetensors"
    [ "$(wc -l <"$LOG")" -eq 1 ]
    pull --verify good/m
    [ "$status" -eq 0 ]
    for name in model.safetensors tokenizer.json config.json; do
        cmp "$at/$name" "$ROOT/good/m/$name"
    done
    # requests: both descriptions, the small file, and the large file with its
    # redirect
    [ "$(wc -l <"$LOG")" -eq 5 ]
    : >"$LOG"
    pull good/m --verify
    [ "$status" -eq 0 ]
    [ "$(wc -l <"$LOG")" -eq 1 ]
}

@test "shards: all that the index names" {
    pull good/sharded
    [ "$status" -eq 0 ]
    local name
    for name in model-00001-of-00002.safetensors \
        model-00002-of-00002.safetensors model.safetensors.index.json; do
        cmp "$output/$name" "$ROOT/good/sharded/$name"
    done
    [ ! -e "$output/other.safetensors" ]
    pull good/hole
    one_line_error 1 "model-00001-of-00002.safetensors"
    pull good/none
    one_line_error 1 "good/none: has no weights in safetensors format"
}

@test "-d DIR: plain files, and a changed one is fetched again" {
    local dir="$BATS_TEST_TMPDIR/a dir"
    pull -d "$dir" good/m
    [ "$status" -eq 0 ]
    [ "$output" = "$dir" ]
    [ ! -L "$dir/config.json" ]
    cmp "$dir/model.safetensors" "$ROOT/good/m/model.safetensors"
    [ "$(ls -A "$dir" | wc -l)" -eq 8 ]
    [ ! -e "$HF_HUB_CACHE" ]
    printf "not what it was" | dd of="$dir/model.safetensors" conv=notrunc 2>/dev/null
    : >"$LOG"
    pull -d "$dir" good/m
    [ "$status" -eq 0 ]
    cmp "$dir/model.safetensors" "$ROOT/good/m/model.safetensors"
    [ "$(grep -c '^GET /cdn/' "$LOG")" -eq 1 ]
    [ "$(grep -c '^GET ' "$LOG")" -eq 3 ]
}

@test "-r: the reference has the revision's name" {
    pull -r v1/x good/m
    [ "$status" -eq 0 ]
    [ "$(cat "$HF_HUB_CACHE/models--good--m/refs/v1/x")" = $commit ]
    [ ! -e "$HF_HUB_CACHE/models--good--m/refs/main" ]
    grep -q '^GET /api/models/good/m/revision/v1%2Fx?' "$LOG"
    pull -r absent good/m
    one_line_error 1 "good/m@absent: no such model, revision or file"
}

@test "no such model" {
    pull good/absent
    one_line_error 1 "good/absent@main: no such model"
    [ ! -e "$HF_HUB_CACHE" ]
}

@test "gated models: with and without a token" {
    pull gated/m
    one_line_error 1 "set HF_TOKEN"
    export HF_TOKEN=hf_secret
    pull gated/m
    one_line_error 1 "config.json: gated or private (HTTP 403)"
    grep -q ' Bearer hf_secret$' "$LOG"
}

@test "the token of the hub's own login" {
    local expected
    mkdir -p "$HOME/.cache/huggingface"
    printf ' hf_saved\n' >"$HOME/.cache/huggingface/token"
    pull gated/m
    one_line_error 1 "config.json: gated or private (HTTP 403)"
    grep -q ' Bearer hf_saved$' "$LOG"
    : >"$LOG"
    # HF_TOKEN goes before the file, HF_TOKEN_PATH before HF_HOME
    HF_TOKEN=hf_mine pull gated/m
    grep -q ' Bearer hf_mine$' "$LOG"
    not_logged hf_saved
    printf hf_home >"$BATS_TEST_TMPDIR/token"
    HF_HOME=$BATS_TEST_TMPDIR pull gated/m
    grep -q ' Bearer hf_home$' "$LOG"
    printf hf_path >"$BATS_TEST_TMPDIR/other"
    HF_HOME=$BATS_TEST_TMPDIR HF_TOKEN_PATH=$BATS_TEST_TMPDIR/other pull gated/m
    grep -q ' Bearer hf_path$' "$LOG"
    : >"$LOG"
    HF_HUB_DISABLE_IMPLICIT_TOKEN=1 pull gated/m
    one_line_error 1 "set HF_TOKEN"
    not_logged Bearer
    # what no token has is refused before anything is sent
    printf 'hf\n"x' >"$HOME/.cache/huggingface/token"
    : >"$LOG"
    pull good/m
    one_line_error 1 ".cache/huggingface/token: holds characters that no token has"
    [ ! -s "$LOG" ]
    # a FIFO is not waited for
    rm "$HOME/.cache/huggingface/token"
    mkfifo "$HOME/.cache/huggingface/token"
    pull good/m
    [ "$status" -eq 0 ]
}

@test ":TYPE: one GGUF file of a repository" {
    local from=$ROOT/good/x-GGUF
    pull good/x-GGUF:q4_k_m
    [ "$status" -eq 0 ]
    [ "$output" = "$HF_HUB_CACHE/models--good--x-GGUF/snapshots/$commit" ]
    cmp "$output/x-Q4_K_M.gguf" "$from/x-Q4_K_M.gguf"
    [ "$(readlink "$output/x-Q4_K_M.gguf")" = \
        "../../blobs/$(blob "$from/x-Q4_K_M.gguf")" ]
    [ "$(ls "$output")" = x-Q4_K_M.gguf ]
    # a type of its own
    pull good/x-GGUF:UD-Q4_K_M
    [ "$status" -eq 0 ]
    cmp "$output/x-UD-Q4_K_M.gguf" "$from/x-UD-Q4_K_M.gguf"
    # all parts, in their directory
    pull good/x-GGUF@main:BF16
    [ "$status" -eq 0 ]
    cmp "$output/BF16/x-BF16-00001-of-00002.gguf" "$from/BF16/x-BF16-00001-of-00002.gguf"
    cmp "$output/BF16/x-BF16-00002-of-00002.gguf" "$from/BF16/x-BF16-00002-of-00002.gguf"
    [ "$(ls "$output/BF16" | wc -l)" -eq 2 ]
    : >"$LOG"
    pull good/x-GGUF:BF16
    [ "$status" -eq 0 ]
    [ "$(wc -l <"$LOG")" -eq 1 ]
    # plain files
    pull -d "$BATS_TEST_TMPDIR/dir" good/x-GGUF:BF16
    [ "$status" -eq 0 ]
    cmp "$BATS_TEST_TMPDIR/dir/BF16/x-BF16-00001-of-00002.gguf" \
        "$from/BF16/x-BF16-00001-of-00002.gguf"
    [ "$(find "$BATS_TEST_TMPDIR/dir" -type f | wc -l)" -eq 2 ]
}

@test ":TYPE: what is there is listed, and downloads go on" {
    local all="there are BF16/x-BF16, x-Q4_K_M, x-Q8_0, x-UD-Q4_K_M"
    pull good/x-GGUF:Q5_K_M
    one_line_error 1 "good/x-GGUF: no GGUF file is of type Q5_K_M: $all"
    pull good/x-GGUF
    one_line_error 1 "name one by its type, as in good/x-GGUF:Q4_K_M: $all"
    pull good/m:Q8_0
    one_line_error 1 "good/m: has no GGUF files"
    pull good/parts-GGUF:Q8_0
    one_line_error 1 "p-Q8_0: the hub has 2 files, which are not its 3 parts"
    [ ! -e "$HF_HUB_CACHE/models--good--parts-GGUF" ]
    # the only file needs no type; the first answer breaks off
    pull short/one-GGUF
    [ "$status" -eq 0 ]
    cmp "$output/one-q8_0.gguf" "$ROOT/short/one-GGUF/one-q8_0.gguf"
    grep -q '^GET /cdn/.* bytes=50000- ' "$LOG"
}

@test "qwick pull runs the script" {
    local qwick=$(realpath "${QWICK:-$REPO/qwick}")
    run timeout 60 "$qwick" pull --allow-http good/m
    [ "$status" -eq 0 ]
    [ "$output" = "$HF_HUB_CACHE/models--good--m/snapshots/$commit" ]
    cmp "$output/model.safetensors" "$ROOT/good/m/model.safetensors"
    # options before and after the verb, and the status
    run timeout 60 "$qwick" -r v1 pull --allow-http -q good/m
    [ "$status" -eq 0 ]
    [ -e "$HF_HUB_CACHE/models--good--m/refs/v1" ]
    run timeout 60 "$qwick" pull -d "$BATS_TEST_TMPDIR/a dir" --verify --allow-http \
        good/x-GGUF:Q8_0
    [ "$status" -eq 0 ]
    [ "$(ls "$BATS_TEST_TMPDIR/a dir")" = x-Q8_0.gguf ]
    run timeout 60 "$qwick" pull --allow-http good/none
    one_line_error 1 "good/none: has no weights"
    run timeout 60 "$qwick" pull good/m
    one_line_error 2 "--allow-http permits it"
    run timeout 60 "$qwick" pull --allow-http -- -x
    one_line_error 2 "unknown option -x"
    run "$qwick" pull
    [ "$status" -eq 2 ]
    [[ $output == *"give ORG/NAME"* ]]
    run "$qwick" pull a/b c/d
    [ "$status" -eq 2 ]
    [[ $output == *"one model at a time"* ]]
    # without the script
    mkdir "$BATS_TEST_TMPDIR/bin" "$BATS_TEST_TMPDIR/empty"
    cp "$qwick" "$BATS_TEST_TMPDIR/bin/qwick"
    PATH=$BATS_TEST_TMPDIR/empty run "$BATS_TEST_TMPDIR/bin/qwick" pull a/b
    [ "$status" -eq 1 ]
    [ "$output" = "qwick: qwick-pull: is neither beside qwick nor in PATH: make install puts it there" ]
}

@test "offline" {
    # A port that was free just now.
    local port=$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
    HF_ENDPOINT=http://127.0.0.1:$port pull good/m
    one_line_error 1 "http://127.0.0.1:$port: cannot connect: offline?"
}

@test "a full disk is reported before the download" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    cat >"$BATS_TEST_TMPDIR/bin/df" <<'DF'
#!/bin/sh
echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'
echo 'none 1000 900 100 90% /'
DF
    chmod +x "$BATS_TEST_TMPDIR/bin/df"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH pull good/m
    one_line_error 1 "model.safetensors: disk full: needs 195.3 KiB, 100.0 KiB"
}

@test "a write that fails" {
    # Files of at most 64 blocks of 1024 bytes; no signal, so write fails.
    run timeout 60 bash -c "trap '' XFSZ; ulimit -f 64
        exec '$REPO/scripts/qwick-pull' --allow-http good/m"
    one_line_error 1 "model.safetensors: cannot be written: disk full?"
}

@test "two downloads at once: the second one says so" {
    command -v flock >/dev/null || skip "no flock"
    mkdir -p "$HF_HUB_CACHE/models--good--m"
    bash -c 'exec 8<"$1" && flock 8 && exec sleep 20' - \
        "$HF_HUB_CACHE/models--good--m" 3>&- &
    local holder=$!
    local i
    for i in $(seq 50); do
        flock -n "$HF_HUB_CACHE/models--good--m" true || break
        sleep 0.1
    done
    pull good/m
    kill "$holder"
    one_line_error 1 "another download into it is running"
}

@test "a revision may be part of the name; a model may have no organisation" {
    pull good/m@v1/x
    [ "$status" -eq 0 ]
    [ "$(cat "$HF_HUB_CACHE/models--good--m/refs/v1/x")" = $commit ]
    pull good
    one_line_error 1 "good@main: no such model"
    grep -q '^GET /api/models/good/revision/main?' "$LOG"
}

@test "usage" {
    local option
    for option in -h --help "good/m --help"; do
        # shellcheck disable=SC2086 # split on purpose
        pull $option
        [ "$status" -eq 0 ]
        [[ $output == "usage: qwick-pull"* ]]
    done
    local arguments
    for arguments in "" "a/b c/d" "-x a/b" "--nope a/b" "a/../b" "../b" "/b" \
        "a/" "a/b/c" "a--b/c" "a/b--c" "a..b/c" ".a/b" "a/.b" "-r" "a/b -r" \
        "--revision" "-r ../x a/b" "-r x/../y a/b" "-r . a/b" "-r x/.y a/b" \
        "-r x//y a/b" "-r x/ a/b" "a/b@" "a/b@../x" "a/b@c@d" "-r x a/b@y" \
        "-d a/b" "--dir= a/b" "http://h/a" "a/b:" "a/b:x/y" "a/b:a:b"; do
        # shellcheck disable=SC2086 # split on purpose
        pull $arguments
        one_line_error 2 "(see --help)" || { echo "$arguments"; return 1; }
    done
}

@test "what is no regular file in the place of a partial one is replaced" {
    local dir="$BATS_TEST_TMPDIR/dir" name partial
    pull -d "$dir" good/m
    for name in config.json model.safetensors; do
        partial=$dir/.$name.$(python3 -c 'import hashlib, sys
b = open(sys.argv[1], "rb").read()
small = hashlib.sha1(b"blob %d\0" % len(b) + b).hexdigest()
print((hashlib.sha256(b).hexdigest() if len(b) > 4096 else small)[:12])' "$ROOT/good/m/$name").incomplete
        rm "$dir/$name"
        mkfifo "$partial"
        pull -q -d "$dir" good/m
        [ "$status" -eq 0 ]
        cmp "$dir/$name" "$ROOT/good/m/$name"
        [ ! -e "$partial" ]
        rm "$dir/$name"
        mkdir "$partial"
        pull -q -d "$dir" good/m
        one_line_error 1 "$partial: is in the way of the download"
        rmdir "$partial"
    done
    # and in the place of the file itself
    rm -f "$dir/config.json"
    mkfifo "$dir/config.json"
    pull -q -d "$dir" good/m
    [ "$status" -eq 0 ]
    cmp "$dir/config.json" "$ROOT/good/m/config.json"
}

@test "~/.curlrc has no effect" {
    echo "max-filesize = 1" >"$HOME/.curlrc"
    pull good/m
    [ "$status" -eq 0 ]
}

@test "the man page has each option of --help, and no other" {
    python3 - "$REPO" <<'PY'
import re, subprocess, sys
man = open(sys.argv[1] + "/man/qwick-pull.1").read().replace("\\-", "-")
text = subprocess.run([sys.argv[1] + "/scripts/qwick-pull", "--help"],
                      capture_output=True, text=True, check=True).stdout
assert all(len(line) <= 80 for line in text.split("\n"))
have = set(re.findall(r"^  (?:-., |    )--([a-z-]+)", text, flags=re.M))
tags = re.findall(r"^\.TP\n(.*--.*)", man, flags=re.M)
tags = [t.replace("\\fB", "").replace("\\fR", "") for t in tags]
# the verb's page has these with the common options
have -= {"help", "quiet"}
assert have == {re.search(r"--([a-z-]+)", tag).group(1) for tag in tags}, have
PY
    command -v groff >/dev/null || skip "no groff"
    run groff -man -Tutf8 -ww "$REPO/man/qwick-pull.1"
    [ "$status" -eq 0 ]
    [[ $output != *warning* ]]
}
