/* The check of a request's head: what is good, what is refused and with which
 * status, whole and in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/http/http_head.h"
#include "test.h"

#define LINE    "GET / HTTP/1.1\r\n"
#define HOST    "Host: localhost\r\n"
#define TEXT(s) s, sizeof s - 1

static const struct {
    const char *text;
    size_t n;
    int status;
} heads[] = {
    {TEXT(LINE HOST "\r\n"), 200},
    {TEXT("POST /v1/x?a=b HTTP/1.1\r\nhOST: a:80\r\n\r\n"), 200},
    {TEXT("GET / HTTP/1.0\r\n\r\n"), 200},
    {TEXT("GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n"), 200},
    {TEXT("OPTIONS /a HTTP/1.1\r\nHost:\r\n\r\n"), 200},
    {TEXT("X-NEW /a HTTP/1.1\r\nHost: a\r\n\r\n"), 200},
    {TEXT(LINE HOST "A: b\tc \x80\xff\r\n\r\n"), 200},
    {TEXT(LINE HOST "Transfer-Encoding: CHUNKED\r\n\r\n"), 200},
    {TEXT(LINE HOST "Content-Length: 18446744073709551609\r\n\r\n"), 200},
    /* more must follow */
    {TEXT(""), 0},
    {TEXT("GET / HT"), 0},
    {TEXT(LINE HOST "\r"), 0},
    {TEXT(LINE HOST "A: b"), 0},
    /* the request line */
    {TEXT("\r\n\r\n"), 400},
    {TEXT(" GET / HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET\r\n" HOST "\r\n"), 400},
    {TEXT("GET /\r\n" HOST "\r\n"), 400},
    {TEXT("GET  / HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET /  HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET\t/ HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET / HTTP/1.1 \r\n" HOST "\r\n"), 400},
    {TEXT("GET / HTTP/1\r\n" HOST "\r\n"), 400},
    {TEXT("GET / http/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET / HTTP/1.:\r\n" HOST "\r\n"), 400},
    {TEXT("GET / HTTP/1.2\r\n" HOST "\r\n"), 505},
    {TEXT("GET / HTTP/0.9\r\n" HOST "\r\n"), 505},
    {TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505},
    {TEXT("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET a HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET http:///x HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET http://?x HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("GET /\x80 HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("G(T / HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT("\x16\x03\x01\x02"), 400}, /* TLS */
    /* bytes */
    {TEXT("GET / HTTP/1.1\nHost: a\n\n"), 400},
    {TEXT(LINE "Host: a\n\r\n"), 400},
    {TEXT(LINE HOST "A: b\rC: d\r\n\r\n"), 400},
    {TEXT(LINE HOST "A: b\r\r\n\r\n"), 400},
    {TEXT(LINE HOST "A: \0\r\n\r\n"), 400},
    {TEXT(LINE HOST "A\0: b\r\n\r\n"), 400},
    {TEXT("GET /\0 HTTP/1.1\r\n" HOST "\r\n"), 400},
    {TEXT(LINE HOST "A: \x1b[1m\r\n\r\n"), 400},
    {TEXT(LINE HOST "A: \x7f\r\n\r\n"), 400},
    /* fields */
    {TEXT(LINE HOST "A : b\r\n\r\n"), 400},
    {TEXT(LINE HOST "A\r\n\r\n"), 400},
    {TEXT(LINE HOST ": b\r\n\r\n"), 400},
    {TEXT(LINE HOST "A: b\r\n c\r\n\r\n"), 400},
    {TEXT(LINE HOST "A: b\r\n\tc\r\n\r\n"), 400},
    {TEXT(LINE " Host: a\r\n\r\n"), 400},
    {TEXT(LINE HOST "A B: c\r\n\r\n"), 400},
    /* Host */
    {TEXT(LINE "\r\n"), 400},
    {TEXT(LINE HOST HOST "\r\n"), 400},
    {TEXT(LINE HOST "host: other\r\n\r\n"), 400},
    {TEXT("GET http://h/ HTTP/1.1\r\n\r\n"), 400},
    {TEXT("GET / HTTP/1.0\r\n" HOST HOST "\r\n"), 400},
    /* where the body ends */
    {TEXT(LINE HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length: 1, 1\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length: +1\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length: -1\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length: 0x1\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length:\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length: 1 2\r\n\r\n"), 400},
    {TEXT(LINE HOST "Content-Length: 18446744073709551616\r\n\r\n"), 413},
    {TEXT(LINE HOST "Content-Length: 99999999999999999999999\r\n\r\n"), 413},
    {TEXT(LINE HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
     400},
    {TEXT(LINE HOST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"),
     400},
    {TEXT(LINE HOST
          "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
     400},
    {TEXT(LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501},
    {TEXT(LINE HOST "Transfer-Encoding: identity\r\n\r\n"), 501},
    {TEXT(LINE HOST "Transfer-Encoding:\r\n\r\n"), 501},
    {TEXT(LINE HOST "Transfer-Encoding: xchunked\r\n\r\n"), 501},
    {TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
};

/* Check a head in memory of exactly its size, for the address sanitizer. */
static int head_check(const char *p, size_t n, struct http_head *h)
{
    const char *why = NULL;
    char *copy = malloc(n + !n);
    int status;

    assert_non_null(copy);
    memcpy(copy, p, n);
    status = http_head_check(copy, n, h, &why);
    if (status != 0 && status != 200)
        assert_non_null(why);
    free(copy);
    return status;
}

static void test_statuses(void **state)
{
    struct http_head h;

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        int status = head_check(heads[i].text, heads[i].n, &h);

        if (status != heads[i].status)
            fail_msg("head %zu: %d, not %d: %s", i, status, heads[i].status,
                     heads[i].text);
    }
}

/* A head that comes in pieces gets the status that it gets at once, and none
 * before the byte that decides. A complete one is found at its last byte. */
static void test_pieces(void **state)
{
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct http_head h;
        int status = 0;

        for (size_t n = 0; n <= heads[i].n && status == 0; n++) {
            status = head_check(heads[i].text, n, &h);
            if (status == 200)
                assert_int_equal(n, heads[i].n);
        }
        if (status != heads[i].status)
            fail_msg("head %zu in pieces: %d, not %d: %s", i, status,
                     heads[i].status, heads[i].text);
    }
}

static void assert_span(const char *text, struct http_span s, const char *want)
{
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(text + s.at, want, s.n);
}

static void test_parts(void **state)
{
    static const char text[] = "POST HTTP://User@Host:1?q=/x HTTP/1.1\r\n"
                               "Host:  \tother \r\nexpect: 100-Continue\r\n"
                               "content-length: 007\r\nEmpty:\r\n\r\nbody";
    static const char plain[] = "GET /a/b?c=d HTTP/1.0\r\nTE: x\r\n\r\n";
    struct http_head h;

    assert_int_equal(head_check(TEXT(text), &h), 200);
    assert_int_equal(h.n, sizeof text - 1 - 4);
    assert_span(text, h.method, "POST");
    assert_span(text, h.target, "HTTP://User@Host:1?q=/x");
    assert_span(text, h.path, "");
    assert_span(text, h.host, "User@Host:1");
    assert_int_equal(h.n_fields, 4);
    assert_span(text, h.names[0], "Host");
    assert_span(text, h.values[0], "other");
    assert_span(text, h.values[3], "");
    assert_int_equal(h.length, 7);
    assert_true(h.has_host && !h.chunked && !h.http10);
    assert_int_equal(head_check(TEXT(plain), &h), 200);
    assert_span(plain, h.path, "/a/b");
    assert_true(!h.has_host && h.http10 && h.length == 0);
}

/* Compose a head with n pieces between `before` and `after`. */
static int repeated(const char *before, const char *piece, size_t n,
                    const char *after)
{
    static char text[1 << 16];
    struct http_head h;
    size_t at = 0;

    at += (size_t)sprintf(text + at, "%s", before);
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "%s", piece);
    at += (size_t)sprintf(text + at, "%s", after);
    return head_check(text, at, &h);
}

static void test_counts(void **state)
{
    const size_t max = HTTP_MAX_FIELDS;

    assert_int_equal(repeated(LINE HOST, "A: b\r\n", max - 1, "\r\n"), 200);
    assert_int_equal(repeated(LINE HOST, "A: b\r\n", max, "\r\n"), 431);
    assert_int_equal(
        repeated("GET /?", "&", max - 1, " HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(repeated("GET /?", "&", max, " HTTP/1.1\r\n" HOST "\r\n"),
                     431);
    assert_int_equal(repeated(LINE HOST "Cookie: ", ";", max - 3, "\r\n\r\n"),
                     200);
    assert_int_equal(repeated(LINE HOST "Cookie: ", ";", max - 2, "\r\n\r\n"),
                     431);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
