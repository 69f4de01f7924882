"""Send requests that are no valid HTTP, or that no server should take, and check that
each gets its status, and that the connection of those that are no HTTP ends.

usage: serve_hostile.py ADDRESS [--table]

Prints what is wrong, or with --table all rows: the name and the statuses of the answers.
After each request the server must still answer /health.
"""
import json
import random
import sys

import serve_client as client

CHAT = b"/v1/chat/completions"
LIMIT = 32 << 20


def get(target=b"/health", fields=b"Host: localhost\r\n", version=b"HTTP/1.1"):
    return b"GET " + target + b" " + version + b"\r\n" + fields + b"\r\n"


def post(body=b"", fields=b"", target=CHAT, length=None):
    n = b"%d" % len(body) if length is None else length
    return (b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: " + n +
            b"\r\n" + fields + b"\r\n" + body)


def chunked(body, fields=b"Transfer-Encoding: chunked\r\n", target=CHAT):
    return (b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + fields +
            b"\r\n" + body)


def with_field(field):
    return get(fields=b"Host: localhost\r\n" + field + b"\r\n")


def deep(n):
    return b'{"messages":' + b"[" * n + b"]" * n + b"}"


def junk(n):
    return random.Random(1).randbytes(n)


def pieces(head, part, n):
    yield head
    for _ in range(n):
        yield part


def in_chunks(body, n):
    return b"".join(b"%X;a=b\r\n%s\r\n" % (len(body[i:i + n]), body[i:i + n])
                    for i in range(0, len(body), n))


USER = b'{"messages":[{"role":"user","content":"%s"}],"max_tokens":1}'

# name, bytes or their pieces, the statuses of the answers: one of these lists; 0: no
# answer. OPEN: the request is HTTP, so the connection may go on.
OPEN = "open"
ROWS = [
    # heads
    ("Content-Length and Transfer-Encoding",
     post(b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\n"), [400]),
    ("Transfer-Encoding and Content-Length",
     chunked(b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), [400]),
    ("two equal Content-Lengths", post(b"{}", b"Content-Length: 2\r\n"), [400]),
    ("two Content-Lengths that differ", post(b"{}", b"Content-Length: 3\r\n"), [400]),
    ("a list as Content-Length", post(b"{}", length=b"2, 2"), [400]),
    ("Content-Length +2", post(b"{}", length=b"+2"), [400]),
    ("Content-Length -1", post(b"{}", length=b"-1"), [400]),
    ("Content-Length 0x2", post(b"{}", length=b"0x2"), [400]),
    ("no digits in Content-Length", post(b"{}", length=b""), [400]),
    ("Content-Length 2^64 + 2", post(b"{}", length=b"18446744073709551618"), [400], [413]),
    ("Content-Length with many digits", post(b"{}", length=b"9" * 400), [400], [413]),
    ("two Transfer-Encodings",
     chunked(b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\n" * 2), [400], [501]),
    ("Transfer-Encoding gzip", chunked(b"", b"Transfer-Encoding: gzip\r\n"), [400], [501]),
    ("Transfer-Encoding gzip, chunked",
     chunked(b"0\r\n\r\n", b"Transfer-Encoding: gzip, chunked\r\n"), [400], [501]),
    ("Transfer-Encoding xchunked",
     chunked(b"0\r\n\r\n", b"Transfer-Encoding: xchunked\r\n"), [400], [501]),
    ("two Hosts", with_field(b"Host: localhost"), [400]),
    ("two Hosts that differ", with_field(b"Host: example.com"), [400]),
    ("no Host", get(fields=b""), [400]),
    ("an empty Host", get(fields=b"Host:\r\n"), [400], [403], OPEN),
    ("a list as Host", get(fields=b"Host: localhost, localhost\r\n"), [400], [403], OPEN),
    ("a user in Host", get(fields=b"Host: a@localhost\r\n"), [400], [403], OPEN),
    ("NUL in a value", with_field(b"X: a\0b"), [400]),
    ("NUL in a name", with_field(b"X\0Y: a"), [400]),
    ("NUL in the target", get(b"/health\0"), [400]),
    ("NUL after Host", get(fields=b"Host: localhost\0.example.com\r\n"), [400]),
    ("bare line feeds", b"GET /health HTTP/1.1\nHost: localhost\n\n", [400]),
    ("a bare line feed among others",
     b"GET /health HTTP/1.1\r\nHost: localhost\nX: a\r\n\r\n", [400]),
    ("a bare line feed at the end",
     b"GET /health HTTP/1.1\r\nHost: localhost\r\n\n", [400]),
    ("a bare carriage return", with_field(b"X: a\rb"), [400]),
    ("a folded field", with_field(b"X: a\r\n b"), [400]),
    ("a folded first field", get(fields=b" X: a\r\nHost: localhost\r\n"), [400]),
    ("a blank before the colon", get(fields=b"Host : localhost\r\n"), [400]),
    ("a tab before the colon", with_field(b"X\t: a"), [400]),
    ("a field without a colon", with_field(b"X"), [400]),
    ("a field without a name", with_field(b": a"), [400]),
    ("a blank in a name", with_field(b"X Y: a"), [400]),
    ("a control byte in a value", with_field(b"X: a\x01b"), [400]),
    ("DEL in a value", with_field(b"X: a\x7fb"), [400]),
    ("a megabyte of one field", with_field(b"X: " + b"a" * (1 << 20)), [431]),
    ("a megabyte of fields", with_field(b"X: a\r\n" * 170000 + b"Y: b"), [431]),
    ("a megabyte of target", get(b"/" + b"a" * (1 << 20)), [431], [414]),
    ("a megabyte without a line end", b"A" * (1 << 20), [400], [431]),
    # first lines
    ("garbage", junk(4096), [400], [0]),
    ("a TLS client", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + junk(500) + b"\r\n\r\n",
     [400], [0]),
    ("HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400], [505]),
    ("HTTP/0.9", b"GET /health\r\n\r\n", [400], [505]),
    ("HTTP/1.0", get(version=b"HTTP/1.0"), [200], [400], [505]),
    ("HTTP/9.9", get(version=b"HTTP/9.9"), [400], [505]),
    ("HTTP/1.1x", get(version=b"HTTP/1.1x"), [400], [505]),
    ("http/1.1", get(version=b"http/1.1"), [400], [505]),
    ("two blanks in the first line", get(b" /health"), [400]),
    ("a blank in the target", get(b"/hea lth"), [400]),
    ("no target", b"GET HTTP/1.1\r\nHost: localhost\r\n\r\n", [400], [505]),
    ("a blank before the method", b" " + get(), [400]),
    ("a control byte in the method", b"G\x01T" + get()[3:], [400]),
    ("a long method", b"G" * 5000 + get()[3:], [400], [405], [501], OPEN),
    ("CONNECT", b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
     [400], [404], [405], [501]),
    ("TRACE", b"TRACE" + get()[3:], [400], [405], [501], OPEN),
    ("a target without a slash", get(b"health"), [400], [404]),
    ("a target with user and host", get(b"http://a@localhost/health"), [400], [403], OPEN),
    ("another scheme", get(b"ftp://localhost/health"), [400], [403], [404]),
    # bodies
    ("33 MiB announced", post(length=b"%d" % (33 << 20)), [413]),
    ("33 MiB", pieces(post(length=b"%d" % (33 << 20)), b" " * (1 << 20), 33), [413]),
    ("33 MiB in chunks",
     pieces(chunked(b""), b"100000\r\n" + b" " * (1 << 20) + b"\r\n", 33), [413]),
    ("a chunk's size of 2^64", chunked(b"10000000000000000\r\n"), [400], [413]),
    ("a chunk's size that is none", chunked(b"zz\r\n{}\r\n0\r\n\r\n"), [400]),
    ("a chunk's size of -1", chunked(b"-1\r\n{}\r\n0\r\n\r\n"), [400]),
    ("a chunk's size of 0x2", chunked(b"0x2\r\n{}\r\n0\r\n\r\n"), [400]),
    ("a chunk that is longer than its size", chunked(b"2\r\n{}{}{}\r\n0\r\n\r\n"), [400]),
    ("chunks with bare line feeds", chunked(b"2\n{}\n0\n\n"), [400], OPEN),
    ("bad UTF-8", post(USER % b"\xff\xfe"), [400]),
    ("a lone surrogate in UTF-8", post(USER % b"\xed\xa0\x80"), [400], OPEN),
    ("UTF-16", post((USER % b"a").decode().encode("utf-16")), [400], OPEN),
    ("deep JSON", post(deep(100000)), [400]),
    ("endless JSON", post(b"[" * 100000), [400], OPEN),
    ("bytes after the JSON", post(USER % b"a" + b"}"), [400], OPEN),
    ("no JSON", post(b"hello"), [400], OPEN),
    ("a list", post(b"[]"), [400], OPEN),
    ("nothing", post(), [400], OPEN),
    ("NUL in the JSON", post(USER % b"a\0b"), [400], OPEN),
    ("a number that is too large", post(b'{"messages":[],"max_tokens":1e999}'), [400], OPEN),
    # a request before the answer to the last one
    ("pipelined requests", get() * 3, [200, 400], [200], [400]),
    ("a request in a body", post(USER % b"a") + get(), [400], [200], [200, 400]),
    ("a request after a refused one", get(fields=b"") + get(), [400]),
    ("two requests, the first ended", chunked(b"0\r\n\r\n") + get(), [400], [400, 400]),
]

# Requests that are unusual and right.
GOOD = [
    ("an absolute target", get(b"http://localhost/health"), 200),
    ("an absolute target with a port", get(b"http://127.0.0.1:80/health"), 200),
    ("a query", get(b"/health?a=b&c"), 200),
    ("other letters in names", get(fields=b"hOsT:localhost\r\n"), 200),
    ("blanks around a value", get(fields=b"Host: \t localhost \t \r\n"), 200),
    ("a byte of Latin-1 in a value", with_field(b"X: \xe4"), 200),
    ("HEAD", b"HEAD" + get()[3:], 200),
    ("another path", get(b"/etc/passwd"), 404),
    ("a path upwards", get(b"/../../etc/passwd"), 404),
    ("an encoded NUL", get(b"/health%00"), 404),
    ("two slashes", get(b"//health"), 404),
    ("another method", b"DELETE" + get()[3:], 405),
    ("chunks", chunked(in_chunks(USER % b"a", 7) + b"0\r\nX: a\r\n\r\n"), 200),
]


def send(address, data):
    if isinstance(data, bytes):
        return client.raw(address, data)
    return client.raw(address, None, pieces=data)


def bodies_are_errors(got):
    """Each answer with an error has one in its body."""
    while got:
        head, _, got = got.partition(b"\r\n\r\n")
        fields = dict(l.lower().split(b":", 1) for l in head.split(b"\r\n")[1:])
        n = int(fields.get(b"content-length", b"0"))
        # libmicrohttpd answers bad chunks itself, in HTML
        if int(head.split(b" ", 2)[1]) >= 400 and b"content-type" in fields:
            e = json.loads(got[:n])["error"]
            assert e["message"], e
            assert fields[b"content-type"].strip().startswith(b"application/json")
        got = got[n:]


def hostile(address, name, data, *right):
    got, closed = send(address, data)
    seen = client.statuses(got) or [0]
    if seen not in right:
        yield f"{seen}, not {' or '.join(str(x) for x in right if x != OPEN)}"
    if not closed and OPEN not in right:
        yield "the connection was not closed"
    if seen != [0]:
        bodies_are_errors(got)
    if client.get(address, "/health").status != 200:
        yield "no /health afterwards"
    return seen


def good(address, name, data, right):
    line, rest = data.split(b"\r\n", 1)
    got, _ = client.raw(address, line + b"\r\nConnection: close\r\n" + rest)
    if data.startswith(b"HEAD"):
        seen = int(got.split(b" ", 2)[1])
    else:
        seen = client.statuses(got)[0]
    if seen != right:
        yield f"{seen}, not {right}"


def main():
    address, *more = sys.argv[1:]
    wrong = 0
    for check, rows in (hostile, ROWS), (good, GOOD):
        for name, *rest in rows:
            g = check(address, name, *rest)
            found = []
            try:
                while True:
                    found.append(next(g))
            except StopIteration as end:
                seen = end.value
            except Exception as e:
                found.append(repr(e))
                seen = None
            for why in found:
                print(f"WRONG {name}: {why}", flush=True)
            wrong += bool(found)
            if more and seen is not None:
                print(f"{name}\t{' '.join(map(str, seen)) if seen != [0] else 'closed'}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
