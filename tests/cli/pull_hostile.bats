#!/usr/bin/env bats
# qwick-pull against a hostile hub and a network that breaks answers. In all
# cases: one line of error without control characters, no files outside the
# cache, and no model in it that looks complete.

load hub

setup_file() {
    hub_missing && return
    hub_places
    local org
    for org in good stuck long html; do
        mkdir -p "$ROOT/$org/m"
        printf '{"model_type": "qwen3"}' >"$ROOT/$org/m/config.json"
        head -c 200000 /dev/urandom >"$ROOT/$org/m/model.safetensors"
    done
    mkdir -p "$ROOT/bad" "$ROOT/endless/m"
    hub_start
    export PLAIN_PORT=$PORT
    command -v openssl >/dev/null || return 0
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$BATS_FILE_TMPDIR/key" \
        -out "$BATS_FILE_TMPDIR/cert" 2>/dev/null
    cat "$BATS_FILE_TMPDIR/key" "$BATS_FILE_TMPDIR/cert" \
        >"$BATS_FILE_TMPDIR/pem"
    hub_start "$BATS_FILE_TMPDIR/pem"
    export TLS_PORT=$PORT
}

teardown_file() {
    hub_stop
}

setup() {
    PORT=$PLAIN_PORT hub_setup
    rm -rf "$ROOT"/bad/* "$ROOT"/good/*.location
    cd "$BATS_TEST_TMPDIR"
    mkdir cwd home tmp
    export HOME=$PWD/home TMPDIR=$PWD/tmp
    cd cwd
}

# pull_fails STATUS TEXT ARGS…: check for one line with TEXT and no harm.
pull_fails() {
    local want=$1 text=$2
    shift 2
    pull "$@"
    one_line_error "$want" "$text" && no_harm
}

# Check that there is no file outside the cache, and in it no reference and no
# name for weights.
no_harm() {
    local found
    found=$(
        cd "$BATS_TEST_TMPDIR"
        find . ! -type d ! -path './cache/*'
        find cache \( -path '*/refs/*' -o -name '*.safetensors' \) 2>/dev/null ||
            true
    )
    [ -z "$found" ] || { echo "there is: $found"; return 1; }
}

# sibling NAME [SIZE BLOB_ID SHA256]: an entry of a description; the arguments
# are JSON.
sibling() {
    local zeros=0000000000000000000000000000000000000000
    printf '{"rfilename":%s,"size":%s,"blobId":%s,"lfs":{"sha256":%s}}' \
        "$1" "${2-5}" "${3-\"$zeros\"}" \
        "${4-\"${zeros}000000000000000000000000\"}"
}

# describe SIBLINGS [SHA]: set the hub's description of bad/m.
describe() {
    printf '{"sha":"%s","siblings":[%s]}' "${2-$commit}" "$1" \
        >"$ROOT/bad/m.api"
}

config=$(sibling '"config.json"')

# ---- names ----

@test "names are escaped in URLs, and curl expands none of them" {
    mkdir "$ROOT/bad/m"
    cp "$ROOT/good/m/config.json" "$ROOT/bad/m"
    local name
    for name in 'model-{a,b}' 'model-[1-3]' '50%25' 'a b' 'a#b?c&d=e' \
        "it's" '$(touch pwned)' 'a;b|c' '~' '*'; do
        printf '%s' "$name" >"$ROOT/bad/m/$name.safetensors"
    done
    pull bad/m
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    for name in "$ROOT"/bad/m/*; do
        cmp "$name" "$output/${name##*/}"
    done
    [ "$(ls "$output" | wc -l)" -eq 11 ]
    grep -q '^GET /bad/m/resolve/[0-9a-f]*/model-%7Ba%2Cb%7D\.safetensors ' "$LOG"
    grep -q '^GET /bad/m/resolve/[0-9a-f]*/50%2525\.safetensors ' "$LOG"
    [ -z "$(ls "$BATS_TEST_TMPDIR/cwd")" ]
}

@test "names in the description that are not file names" {
    local name
    for name in .x -x -o 'a\u001b[2Jb' 'a\nb' 'a\\b' 'a\"b' 'é' \
        "$(printf 'x%.0s' {1..300})"; do
        describe "$config,$(sibling "\"$name.safetensors\"")"
        pull_fails 1 "unusable name" bad/m || { echo "$name"; return 1; }
    done
    # names in other directories are ignored
    for name in ../x /tmp/x x/../../x a/b; do
        describe "$config,$(sibling "\"$name.safetensors\"")"
        pull_fails 1 "has no weights" bad/m || { echo "$name"; return 1; }
    done
}

@test "names of GGUF files that are not file names, and parts that do not fit" {
    for name in '"../x-Q8_0.gguf"' '"./x-Q8_0.gguf"' '"-d/x-Q8_0.gguf"' \
        '"d/-x-Q8_0.gguf"' '"/x-Q8_0.gguf"' '".x-Q8_0.gguf"' '"d\\\\e/x-Q8_0.gguf"' \
        '"\u00e9-Q8_0.gguf"'; do
        describe "$(sibling "$name")"
        pull_fails 1 "" bad/m:Q8_0 || { echo "$name"; return 1; }
        pull_fails 1 "" bad/m || { echo "$name"; return 1; }
    done
    # two directories deep, and no GGUF file
    describe "$(sibling '"a/b/x-Q8_0.gguf"'),$(sibling '"x-Q8_0.gguf/y"')"
    pull_fails 1 "bad/m: has no GGUF files" bad/m:Q8_0
    describe "$(sibling '"x-Q8_0.gguf"'),$(sibling '"x-Q8_0-00001-of-00002.gguf"')"
    pull_fails 1 "x-Q8_0: the hub has 2 files, which are not its" bad/m:Q8_0
    describe "$(sibling '"x-Q8_0-00002-of-00002.gguf"')"
    pull_fails 1 "the hub has 1 files, which are not its 2 parts" bad/m:Q8_0
    describe "$(sibling '"x-Q8_0-00001-of-00000.gguf"')"
    pull_fails 1 "the hub has 1 files, which are not its 0 parts" bad/m:Q8_0
    describe "$(sibling '"a-Q8_0.gguf"'),$(sibling '"b-q8_0.gguf"')"
    pull_fails 1 "several GGUF files are of type Q8_0: there are a-Q8_0, b-q8_0" \
        bad/m:Q8_0
    # a list of 30,000 files
    describe "$(sibling '"a-Q8_0.gguf"')$(python3 -c '
for i in range(30000):
    print(",{\"rfilename\":\"%d-Q4_0.gguf\",\"size\":1}" % i, end="")')"
    pull_fails 1 "no GGUF file is of type F16: there are 0-Q4_0, 1-Q4_0" bad/m:F16
    # listed twice
    describe "$(sibling '"x-Q8_0.gguf"'),$(sibling '"x-Q8_0.gguf"')"
    pull_fails 1 "x-Q8_0.gguf: no such model, revision or file" bad/m:Q8_0
    # a regular expression is no type
    describe "$(sibling '"a-Q8_0.gguf"')"
    pull_fails 1 "no GGUF file is of type Q....: there are a-Q8_0" bad/m:Q....
}

@test "names in the index that are not file names" {
    mkdir "$ROOT/bad/m"
    cp "$ROOT/good/m/config.json" "$ROOT/bad/m"
    local name
    for name in ../../x /etc/x ../x x/y .x -x 'a\u001b[2Jb' 'a\nb' 'a\\b' 'é' \
        '../../../../../pwned'; do
        printf '{"weight_map":{"a":"%s.safetensors"}}' "$name" \
            >"$ROOT/bad/m/model.safetensors.index.json"
        pull_fails 1 "unusable name" bad/m || { echo "$name"; return 1; }
        # also as raw bytes
        printf '{"weight_map":{"a":"%b.safetensors"}}' "$name" \
            >"$ROOT/bad/m/model.safetensors.index.json"
        pull bad/m
        [ "$status" -eq 1 ]
        no_harm
    done
    printf 'no JSON at all' >"$ROOT/bad/m/model.safetensors.index.json"
    pull_fails 1 "names no shards" bad/m
    printf '["absent {a,b}.safetensors"]' \
        >"$ROOT/bad/m/model.safetensors.index.json"
    pull_fails 1 "names 'absent {a,b}.safetensors', which is not there" bad/m
}

# ---- the description ----

@test "a description with control characters" {
    local byte
    for byte in '\033[2J' '\000' '\007' '\177' '\010'; do
        describe "$config,$(sibling '"x@.safetensors"')"
        # in a name, and at the end
        sed -i "s/@/\\x1b/" "$ROOT/bad/m.api"
        pull_fails 1 "holds control characters" bad/m
        describe "$config"
        printf "$byte" >>"$ROOT/bad/m.api"
        pull_fails 1 "holds control characters" bad/m
    done
}

@test "a description that is not JSON of the right form" {
    local text
    for text in '' '<html><body>Log in first</body></html>' '[]' '{}' '"sha"' \
        '{"sha":' '{"sha":"' '}}}}' "$(printf '[%.0s' {1..5000})" '\u0000'; do
        printf '%s' "$text" >"$ROOT/bad/m.api"
        pull_fails 1 "the answer for bad/m" bad/m || { echo "$text"; return 1; }
    done
}

@test "a description without end" {
    pull_fails 1 "and no end" endless/m
    [ -z "$(find "$BATS_TEST_TMPDIR/tmp" -mindepth 1)" ]
}

@test "invalid commits" {
    local sha
    for sha in '' ../.. main "${commit:1}" "${commit}0" "${commit^^}" \
        "../../$commit" '$(touch pwned)'; do
        describe "$config" "$sha"
        pull_fails 1 "names no commit" bad/m || { echo "$sha"; return 1; }
    done
}

@test "invalid sizes" {
    local size
    for size in -1 1e3 1.5 0x10 08 null '""' '"12 "' 99999999999999999999 \
        9223372036854775808 '"a[$(touch pwned)]"' '"$(touch pwned)"' '"1;1"' \
        '"config"' true '{}' '[1]' '"\t1"'; do
        describe "$(sibling '"config.json"' "$size"),$(sibling \
            '"model.safetensors"')"
        pull_fails 1 "lists no size for config.json" bad/m ||
            { echo "$size"; return 1; }
    done
    # a valid size that no disk has
    describe "$(sibling '"config.json"' 999999999999999),$(sibling \
        '"model.safetensors"')"
    pull_fails 1 "config.json: disk full: needs 909.5 TiB" bad/m
}

@test "invalid checksums" {
    local sum
    for sum in '""' '"../../../pwned"' '"/tmp/pwned"' "\"${commit}\"" \
        '"-rf"' '"$(touch pwned)"' '"\u001b"' 5 \
        "\"$(printf 'A%.0s' {1..64})\"" "\"$(printf 'g%.0s' {1..64})\"" \
        "\"$(printf '0%.0s' {1..63})\"" "\"$(printf '0%.0s' {1..65})\""; do
        describe "$(sibling '"config.json"' 5 '""' "$sum"),$(sibling \
            '"model.safetensors"')"
        pull_fails 1 "config.json: '" bad/m || { echo "sha256 $sum"; return 1; }
        [ "$sum" != "\"$commit\"" ] || continue
        describe "$(sibling '"config.json"' 5 "$sum" '""'),$(sibling \
            '"model.safetensors"')"
        pull_fails 1 "lists no checksum for config.json" bad/m ||
            { echo "blob $sum"; return 1; }
    done
}

# ---- files ----

@test "an endless file: read only the announced size" {
    pull_fails 1 "model.safetensors: more bytes came than the 200000" long/m
    [ -z "$(find "$HF_HUB_CACHE" -name '*.incomplete')" ]
    [ "$(du -s -B1 "$BATS_TEST_TMPDIR" | cut -f 1)" -lt 1000000 ]
}

@test "a page instead of a file" {
    pull_fails 1 "model.safetensors: 25 bytes came, expected 200000" html/m
    [ -z "$(find "$HF_HUB_CACHE" -name '*.incomplete')" ]
}

@test "a file that always stops in its middle" {
    pull_fails 1 "model.safetensors: 100000 bytes came, expected 200000" stuck/m
}

@test "links planted in the cache are not followed" {
    local repo=$HF_HUB_CACHE/models--good--m id
    id=$(sha256sum <"$ROOT/good/m/model.safetensors" | cut -d ' ' -f 1)
    mkdir -p "$repo/blobs" "$repo/snapshots/$commit/model.safetensors"
    printf mine >"$BATS_TEST_TMPDIR/mine"
    ln -s "$BATS_TEST_TMPDIR/mine" "$repo/blobs/$id.incomplete"
    # a directory in the place of the link
    pull good/m
    one_line_error 1 "model.safetensors: cannot be made"
    rmdir "$repo/snapshots/$commit/model.safetensors"
    pull good/m
    [ "$status" -eq 0 ]
    [ "$(cat "$BATS_TEST_TMPDIR/mine")" = mine ]
    cmp "$output/model.safetensors" "$ROOT/good/m/model.safetensors"
}

# ---- addresses ----

@test "plain http only with --allow-http, and no other protocols" {
    local address
    run timeout 60 "$REPO/scripts/qwick-pull" good/m
    one_line_error 2 "plain http protects nothing on its way; --allow-http"
    [ ! -s "$LOG" ]
    for address in file:///etc ftp://127.0.0.1 127.0.0.1 /etc https:// \
        'https:///x' 'https://-x' 'https://a b' 'https://a?b' $'https://a\nb' \
        $'https://\033[2J' 'https://{a,b}' 'https://a"b' HTTP://127.0.0.1; do
        HF_ENDPOINT=$address pull_fails 2 "HF_ENDPOINT: '" good/m ||
            { echo "$address"; return 1; }
    done
    [ ! -s "$LOG" ]
}

@test "every call of curl restricts the protocols" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\necho "$@" >>"%s"\nexec "%s" "$@"\n' \
        "$BATS_TEST_TMPDIR/args" "$(command -v curl)" \
        >"$BATS_TEST_TMPDIR/bin/curl"
    chmod +x "$BATS_TEST_TMPDIR/bin/curl"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH pull good/m
    [ "$status" -eq 0 ]
    [ "$(wc -l <"$BATS_TEST_TMPDIR/args")" -eq 3 ]
    local option
    for option in --globoff '--proto =http,https' '--proto-redir =http,https'; do
        [ "$(grep -c -e " $option " "$BATS_TEST_TMPDIR/args")" -eq 3 ]
    done
}

@test "redirects to other protocols, to nowhere, in circles" {
    local to
    for to in file:///etc/passwd ftp://127.0.0.1/x gopher://127.0.0.1/ \
        dict://127.0.0.1:1/x smb://127.0.0.1/x; do
        printf %s "$to" >"$ROOT/good/m.location"
        pull_fails 1 "config.json: redirected to a URL that is not http,https" \
            good/m || { echo "$to"; return 1; }
    done
    printf '/good/m/resolve/%s/config.json' $commit >"$ROOT/good/m.location"
    pull_fails 1 "config.json: redirected too often" good/m
    for to in $'http://\033[2Jevil.invalid/' 'http://evil{a,b}.invalid/' \
        $'http://\200\233\233.invalid/' 'http://' 'http://:0/' ''; do
        printf %s "$to" >"$ROOT/good/m.location"
        pull good/m
        one_line_error 1 "" || { echo "$to"; return 1; }
        no_harm
    done
}

@test "https: certificates are checked, redirects stay there" {
    [ -n "${TLS_PORT-}" ] || skip "no openssl for a certificate"
    export HF_ENDPOINT=https://127.0.0.1:$TLS_PORT
    pull_fails 1 "$HF_ENDPOINT: TLS: " good/m
    export CURL_CA_BUNDLE=$BATS_FILE_TMPDIR/cert
    # --allow-http allows an http HF_ENDPOINT, but no redirect from https to
    # http
    local to
    for to in "http://127.0.0.1:$PLAIN_PORT/good/m/resolve/$commit/config.json" \
        file:///etc/passwd; do
        printf %s "$to" >"$ROOT/good/m.location"
        pull_fails 1 "config.json: redirected to a URL that is not https" good/m
    done
    # two descriptions and the redirect
    [ "$(wc -l <"$LOG")" -eq 4 ]
    rm "$ROOT/good/m.location"
    run timeout 60 "$REPO/scripts/qwick-pull" good/m
    [ "$status" -eq 0 ]
    cmp "$output/model.safetensors" "$ROOT/good/m/model.safetensors"
}

@test "the token is sent only to the hub" {
    # the same server under another name, which is another host for curl
    printf 'http://localhost:%s/bad/x' "$PLAIN_PORT" >"$ROOT/good/m.location"
    HF_TOKEN=hf_secret pull good/m
    one_line_error 1 "config.json: no such model, revision or file (HTTP 404)"
    grep -q '^GET /good/.* Bearer hf_secret$' "$LOG"
    grep -q '^GET /bad/x - -$' "$LOG"
}
