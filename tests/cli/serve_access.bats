#!/usr/bin/env bats
# serve: who may ask. Host, Origin and Sec-Fetch-Site, keys, CORS.
load helpers
load serve

setup_file() {
    serve_setup_file
    printf 'first-key-0123456789\nsecond-key-0123456789\n' >"$D/keys"
    chmod 600 "$D/keys"
    serve_start open
    serve_start keyed --api-key-file "$D/keys"
    serve_start origins --allow-origin http://app.example --allow-origin https://b.example:8443 \
        --allow-host model.example
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
}

@test "Host must be this machine's" {
    serve_py "unix:$D/open" "unix:$D/origins" <<'PY'
import sys
from serve_client import *
plain, named = sys.argv[1:]
def status(s, host, path="/v1/models"):
    got, _ = raw(s, b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
                 % (path.encode(), host.encode()))
    return statuses(got)[0]
for host in ("localhost", "LocalHost:80", "localhost:65535", "127.0.0.1", "127.0.0.1:8080",
             "127.1.2.3", "[::1]", "[::1]:8080", "localhost."):
    assert status(plain, host) == 200 or host == "localhost.", host
for host in ("example.com", "localhost.example.com", "127.0.0.1.example.com", "alocalhost",
             "localhost@example.com", "localhost:80:80", "localhost:x", "[::2]", "::1",
             "10.0.0.1", "0.0.0.0", "128.0.0.1", "[::]", "model.example", "127.0.0.1x",
             "2130706433", "0x7f.1", "localhost/", "localhost#", "*"):
    assert status(plain, host) in (400, 403), host
    assert host == "localhost.example.com" or status(plain, host, "/health") in (400, 403), host
for host in "example.com", "localhost.example.com", "10.0.0.1":
    assert status(plain, host) == 403, host
assert status(named, "model.example:123") == 200
assert status(named, "MODEL.example") == 200
assert status(named, "localhost") == 200
assert status(named, "a.model.example") == 403
# the host of an absolute target counts
def absolute(target, host="localhost"):
    got, _ = raw(plain, b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
                 % (target, host.encode()))
    return statuses(got)[0]
assert absolute(b"http://localhost/health") == 200
assert absolute(b"http://example.com/health") in (400, 403)
assert absolute(b"http://localhost/health", "example.com") in (200, 400, 403)
PY
}

@test "no web page may ask, unless --allow-origin names it" {
    serve_py "unix:$D/open" "unix:$D/origins" <<'PY'
import sys
from serve_client import *
plain, named = sys.argv[1:]
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 1}
for origin in ("http://example.com", "null", "http://localhost", "http://127.0.0.1:8080",
               "http://app.example", ""):
    f = {"Origin": origin}
    for method, path, body in (("GET", "/v1/models", None), ("POST", "/v1/chat/completions", chat),
                               ("GET", "/health", None), ("OPTIONS", "/v1/chat/completions", None)):
        r = request(plain, method, path, body, f)
        assert r.status == 403, (origin, path, r.status)
        assert r.error["message"]
        assert r.fields["Access-Control-Allow-Origin"] is None
assert request(plain, "POST", "/v1/chat/completions", chat,
               {"Sec-Fetch-Site": "cross-site"}).status == 403
for site in "same-origin", "none":
    assert request(plain, "GET", "/v1/models", None, {"Sec-Fetch-Site": site}).status == 200
# before the body is sent
got, closed = raw(plain, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Origin: http://example.com\r\nExpect: 100-continue\r\n"
                  b"Content-Length: 1000000\r\n\r\n")
assert statuses(got) == [403], got
for origin in "http://app.example", "https://b.example:8443":
    f = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    r = request(named, "POST", "/v1/chat/completions", chat, f)
    assert r.status == 200, (origin, r.status)
    assert r.fields["Access-Control-Allow-Origin"] == origin
    assert "origin" in r.fields["Vary"].lower()
    r = request(named, "OPTIONS", "/v1/chat/completions", None, {
        **f, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type"})
    assert (r.status, r.body) == (204, b""), r.status
    assert r.fields["Access-Control-Allow-Origin"] == origin
    assert "POST" in r.fields["Access-Control-Allow-Methods"]
    allowed = r.fields["Access-Control-Allow-Headers"].lower()
    assert "*" in allowed or ("authorization" in allowed and "content-type" in allowed)
    assert "origin" in r.fields["Vary"].lower()
    # a refusal is readable too
    r = request(named, "POST", "/v1/chat/completions", {}, f)
    assert r.status == 400 and r.fields["Access-Control-Allow-Origin"] == origin
for origin in ("http://app.example:80", "https://app.example", "http://app.example.com",
               "http://app.exampl", "HTTP://APP.EXAMPLE/", "null", "http://a.app.example"):
    assert request(named, "GET", "/v1/models", None, {"Origin": origin}).status == 403, origin
PY
}

@test "keys: Bearer and x-api-key, all but /health" {
    serve_py "unix:$D/keyed" <<'PY'
import sys
from serve_client import *
s = sys.argv[1]
chat = {"messages": [{"role": "user", "content": "list files"}], "max_tokens": 1}
for path in "/health", "/v1/health":
    assert get(s, path).status == 200
for path in "/v1/models", "/v1/models/qwick-demo", "/none":
    assert get(s, path).status == 401, path
bad = [{}, {"Authorization": "Bearer "}, {"Authorization": "Bearer first-key-012345678"},
       {"Authorization": "Bearer first-key-01234567890"}, {"Authorization": "first-key-0123456789"},
       {"Authorization": "Basic first-key-0123456789"}, {"x-api-key": ""},
       {"x-api-key": "first-key-0123456789\tsecond-key-0123456789"},
       {"Authorization": "Bearer first-key-0123456789,second-key-0123456789"}]
for f in bad:
    r = request(s, "POST", "/v1/chat/completions", chat, f)
    assert r.status == 401, (f, r.status)
    assert "first-key" not in r.body.decode() and r.error["message"]
for f in ({"Authorization": "Bearer first-key-0123456789"}, {"x-api-key": "first-key-0123456789"},
          {"Authorization": "bearer second-key-0123456789"}, {"X-API-Key": "second-key-0123456789"}):
    assert request(s, "POST", "/v1/chat/completions", chat, f).status == 200, f
    assert get(s, "/v1/models", fields=f).status == 200
# a key does not open what Host and Origin forbid
f = {"x-api-key": "first-key-0123456789", "Origin": "http://example.com"}
assert get(s, "/v1/models", fields=f).status == 403
# before the body is sent
got, closed = raw(s, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
assert statuses(got) == [401], got
PY
    ! grep -r "first-key\|second-key" "$D/keyed.err"
}

@test "SIGHUP reads the keys again; the old ones stay if there are none" {
    ask() { serve_status "unix:$D/keyed" /v1/models -H "x-api-key: $1"; }
    becomes() { # becomes STATUS KEY
        local i
        for ((i = 0; i < 200; i++)); do
            [ "$(ask "$2")" != "$1" ] || return 0
            sleep 0.05
        done
        return 1
    }
    pid=$(<"$D/keyed.pid")
    equal "$(ask first-key-0123456789)" 200
    printf '\nthird-key-0123456789\n' >"$D/keys"
    kill -HUP "$pid"
    becomes 200 third-key-0123456789
    equal "$(ask first-key-0123456789)" 401
    for bad in '' $'short\n' $'\n\n'; do
        before=$(wc -l <"$D/keyed.err")
        printf '%s' "$bad" >"$D/keys"
        kill -HUP "$pid"
        for _ in {1..200}; do
            ask x >/dev/null
            [ "$(wc -l <"$D/keyed.err")" = "$before" ] || break
            sleep 0.05
        done
        [ "$(wc -l <"$D/keyed.err")" -gt "$before" ]
        equal "$(ask third-key-0123456789)" 200
        equal "$(ask short)" 401
    done
    rm "$D/keys"
    kill -HUP "$pid"
    sleep 0.2
    equal "$(ask third-key-0123456789)" 200
    printf 'fourth-key-0123456789\n' >"$D/keys.new"
    chmod 600 "$D/keys.new"
    mv "$D/keys.new" "$D/keys"
    kill -HUP "$pid"
    becomes 200 fourth-key-0123456789
}

@test "files of keys that are refused" {
    local n=0
    refused() { # refused PATTERN: with the content of $T/k
        fails 2 "$1" serve --listen "unix:$T/s" --api-key-file "$T/k"
        [[ $stderr == *"$T/k"* ]]
        [ ! -e "$T/s" ]
    }
    printf 'first-key-0123456789\n' >"$T/k"
    chmod 644 "$T/k"
    refused ""
    chmod 604 "$T/k"
    refused ""
    chmod 600 "$T/k"
    : >"$T/k"
    refused ""
    printf '\n\n' >"$T/k"
    refused ""
    printf 'fifteen-bytes15\n' >"$T/k"
    refused "16"
    [[ $stderr != *fifteen* ]]
    rm "$T/k"
    run ! timeout 20 "$QWICK" serve --listen "unix:$T/s" --api-key-file "$T/k"
    [[ $output == *"$T/k"* ]]
    run ! timeout 20 "$QWICK" serve --listen "unix:$T/s" --api-key-file "$T"
    [ ! -e "$T/s" ]
}

@test "the servers end with status 0" {
    serve_stop open
    serve_stop origins
    serve_stop keyed
}
