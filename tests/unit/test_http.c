/* HTTP of serve over real sockets: requests, answers, streams, limits, and
 * clients that leave, stop reading or send nonsense. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/http/http.h"
#include "cli/http/http_head.h"
#include "cli/http/listen.h"
#include "tempdir.h"
#include "test.h"

/* A server in this process. Paths of the handler:
 *   /echo    answers with method, path and body at once
 *   /refuse  is refused with 403 when its head has come
 *   /hold    is kept in `held`, and the test answers
 *   /queue   is put into `queue`, for threads */
struct server {
    struct http *http;
    struct listeners listeners;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct http_call *held; /* the last call of /hold */
    int n_held, n_gone;
    struct http_call *queue[64]; /* [n_queued] calls of /queue */
    int n_queued;
    bool done;
    atomic_int n_written;
};

static void on_head(void *ctx, struct http_call *c)
{
    struct buf b = {0};

    if (strcmp(http_path(c), "/refuse") != 0)
        return;
    buf_puts(&b, "no");
    http_reply(c, 403, "text/plain", &b);
}

static void on_ready(void *ctx, struct http_call *c)
{
    struct server *s = ctx;
    struct buf b = {0};
    const char *body;
    size_t n;

    if (strcmp(http_path(c), "/hold") == 0) {
        pthread_mutex_lock(&s->mutex);
        s->held = c;
        s->n_held++;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        return;
    }
    if (strcmp(http_path(c), "/queue") == 0) {
        pthread_mutex_lock(&s->mutex);
        assert_true(s->n_queued < 64);
        s->queue[s->n_queued++] = c;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        return;
    }
    body = http_body(c, &n);
    buf_printf(&b, "%s %s %zu ", http_method(c), http_path(c), n);
    buf_append(&b, body, n);
    http_add_field(c, "X-Test", "yes");
    http_reply(c, 200, "text/plain", &b);
}

static void on_gone(void *ctx, struct http_call *c)
{
    struct server *s = ctx;

    pthread_mutex_lock(&s->mutex);
    s->n_gone++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void on_fault(void *ctx, const char *path, int status, const char *why,
                     struct buf *body)
{
    buf_printf(body, "{\"%d\":\"%s\"}", status, why);
}

static void on_written(void *ctx, double ms)
{
    struct server *s = ctx;

    assert_true(ms >= 0 && ms < 60000);
    s->n_written++;
}

static void *serve_thread(void *arg)
{
    struct server *s = arg;
    struct qwick_err e;

    assert_int_equal(http_run(s->http, &e), 0);
    return NULL;
}

static void server_start(struct server *s, const char *address,
                         const struct http_limits *limits)
{
    struct http_handler h = {s,       on_head,  on_ready,
                             on_gone, on_fault, on_written};
    struct listen_addr a;
    struct qwick_err e = {0};

    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    assert_ok(listen_parse(address, &a, &e), &e);
    assert_ok(listen_open(&s->listeners, &a, 1, &e), &e);
    assert_ok(http_open(&s->http, &s->listeners.v[0].fd, 1, limits, &h, &e),
              &e);
    s->listeners.v[0].fd = -1;
    assert_int_equal(pthread_create(&s->thread, NULL, serve_thread, s), 0);
}

static void server_stop(struct server *s)
{
    http_stop(s->http);
    pthread_join(s->thread, NULL);
    http_close(s->http);
    listen_close(&s->listeners);
}

/* Wait for the n-th call of /hold. */
static struct http_call *wait_held(struct server *s, int n)
{
    struct http_call *c;

    pthread_mutex_lock(&s->mutex);
    while (s->n_held < n)
        pthread_cond_wait(&s->changed, &s->mutex);
    c = s->held;
    pthread_mutex_unlock(&s->mutex);
    return c;
}

static void wait_gone(struct server *s, int n)
{
    pthread_mutex_lock(&s->mutex);
    while (s->n_gone < n)
        pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

static int connect_to(const struct server *s)
{
    const struct listen_addr *a = &s->listeners.v[0].a;
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    int fd = socket(a->kind == LISTEN_UNIX ? AF_UNIX : a->addr.ss_family,
                    SOCK_STREAM, 0);

    assert_true(fd >= 0);
    if (a->kind == LISTEN_UNIX) {
        memcpy(u.sun_path, a->path, sizeof u.sun_path);
        assert_int_equal(connect(fd, (struct sockaddr *)&u, sizeof u), 0);
    } else {
        assert_int_equal(
            connect(fd, (const struct sockaddr *)&a->addr, a->n_addr), 0);
    }
    return fd;
}

static void send_text(int fd, const char *text)
{
    size_t n = strlen(text);

    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Read until the text ends in `end`, or until the connection ends (NULL).
 * Returns the text, which the next call overwrites. */
static const char *read_until(int fd, const char *end)
{
    static char text[1 << 16];
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got;

        text[n] = '\0';
        if (end && n >= strlen(end) && strcmp(text + n - strlen(end), end) == 0)
            return text;
        if (poll(&p, 1, 20000) != 1)
            fail_msg("no byte after: %s", text);
        got = recv(fd, text + n, 1, 0);
        if (got <= 0 && !end)
            return text;
        if (got <= 0)
            fail_msg("the connection ended after: %s", text);
        n += (size_t)got;
    }
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %s", part, text);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST(path, length)                                                 \
    "POST " path " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " length \
    "\r\n\r\n"

static void test_replies(void **state)
{
    struct server s;
    int fd;
    const char *t;

    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    for (int i = 0; i < 3; i++) { /* all on one connection */
        send_text(fd, GET("/echo?x=1"));
        t = read_until(fd, "GET /echo 0 ");
        assert_contains(t, "HTTP/1.1 200 OK\r\n");
        assert_contains(t, "X-Test: yes\r\n");
        assert_contains(t, "Content-Length: 12\r\n");
        send_text(fd, POST("/echo", "5") "12345");
        read_until(fd, "POST /echo 5 12345");
        send_text(fd, GET("/refuse"));
        assert_contains(read_until(fd, "no"), "HTTP/1.1 403 ");
    }
    /* a body is not awaited, and the connection ends */
    send_text(fd, POST("/refuse", "5"));
    t = read_until(fd, NULL);
    assert_contains(t, "HTTP/1.1 403 ");
    assert_contains(t, "Connection: close\r\n");
    close(fd);
    server_stop(&s);
}

static void test_stream(void **state)
{
    struct server s;
    struct http_call *c;
    int fd;
    const char *t;

    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    for (int i = 1; i <= 2; i++) {
        send_text(fd, GET("/hold"));
        c = wait_held(&s, i);
        http_stream(c);
        assert_int_equal(http_write(c, "data: 1\n\n", 9), 0);
        t = read_until(fd, "data: 1\n\n\r\n");
        assert_contains(t, "Content-Type: text/event-stream\r\n");
        assert_contains(t, "Transfer-Encoding: chunked\r\n");
        assert_int_equal(http_write(c, "data: 2\n\n", 9), 0);
        read_until(fd, "data: 2\n\n\r\n");
        http_end(c);
        read_until(fd, "0\r\n\r\n");
    }
    assert_int_equal(s.n_gone, 0);
    close(fd);
    server_stop(&s);
}

/* The thread that answers writes as well, in place of the I/O thread. */
static void test_helper(void **state)
{
    struct http_limits limits = {.idle_ms = 2000};
    struct server s;
    struct http_call *c;
    struct buf b = {0};
    int fd;

    server_start(&s, "127.0.0.1:0", &limits);
    http_set_helper(s.http, true);
    fd = connect_to(&s);
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 1);
    http_stream(c);
    http_write(c, "data: 1\n\n", 9);
    http_help(s.http);
    read_until(fd, "data: 1\n\n\r\n");
    http_write(c, "data: 2\n\n", 9);
    http_help(s.http);
    read_until(fd, "data: 2\n\n\r\n");
    http_end(c);
    http_help(s.http);
    read_until(fd, "0\r\n\r\n");
    assert_int_equal(s.n_written, 2);
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 2);
    buf_puts(&b, "whole");
    http_reply(c, 200, "text/plain", &b);
    http_help(s.http);
    read_until(fd, "whole");
    /* the I/O thread knows of deadlines that the helper has set */
    assert_string_equal(read_until(fd, NULL), "");
    close(fd);
    /* and it goes on alone */
    fd = connect_to(&s);
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 3);
    buf_puts(&b, "late");
    http_reply(c, 200, "text/plain", &b);
    http_set_helper(s.http, false);
    read_until(fd, "late");
    close(fd);
    server_stop(&s);
}

/* Write to a stream and help, until the client of /hold has left. */
static void *help_thread(void *arg)
{
    struct server *s = arg;
    struct http_call *c;

    http_set_helper(s->http, true);
    c = wait_held(s, 1);
    http_stream(c);
    while (http_write(c, "data: 1\n\n", 9) == 0)
        http_help(s->http);
    http_end(c);
    http_set_helper(s->http, false);
    return NULL;
}

/* Descriptors are used again while two threads do the work. */
static void test_helper_reuse(void **state)
{
    struct server s;
    pthread_t helper;
    int stream, n = 0;
    char block[4096];

    server_start(&s, "127.0.0.1:0", NULL);
    pthread_create(&helper, NULL, help_thread, &s);
    stream = connect_to(&s);
    send_text(stream, GET("/hold"));
    for (n = 0; n < 400; n++) {
        int fd = connect_to(&s);

        send_text(fd, GET("/echo"));
        read_until(fd, "GET /echo 0 ");
        close(fd);
        while (recv(stream, block, sizeof block, MSG_DONTWAIT) > 0)
            ;
    }
    close(stream);
    pthread_join(helper, NULL);
    server_stop(&s);
}

static void test_gone(void **state)
{
    struct server s;
    struct http_call *c;
    int fd;

    server_start(&s, "127.0.0.1:0", NULL);
    for (int i = 1; i <= 2; i++) {
        fd = connect_to(&s);
        send_text(fd, GET("/hold"));
        c = wait_held(&s, i);
        http_stream(c);
        if (i == 2) {
            http_write(c, "data: 1\n\n", 9);
            read_until(fd, "data: 1\n\n\r\n");
        }
        close(fd);
        wait_gone(&s, i);
        assert_int_equal(http_write(c, "x", 1), -1);
        assert_string_equal(http_path(c), "/hold");
        http_end(c);
    }
    server_stop(&s);
}

/* Send a request on a new connection, and read until the server closes it. */
static const char *exchange(const struct server *s, const char *request)
{
    int fd = connect_to(s);
    const char *t;

    send_text(fd, request);
    t = read_until(fd, NULL);
    close(fd);
    return t;
}

/* The bodies and methods that HTTP allows. */
static void test_requests(void **state)
{
    struct server s;
    const char *t;
    int fd;

    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    send_text(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n3;x=y\r\nabc\r\n");
    send_text(fd, "a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n");
    read_until(fd, "POST /echo 13 abc0123456789");
    send_text(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                  "Expect: 100-continue\r\n\r\n");
    assert_string_equal(read_until(fd, "\r\n\r\n"),
                        "HTTP/1.1 100 Continue\r\n\r\n");
    send_text(fd, "ab");
    read_until(fd, "POST /echo 2 ab");
    send_text(fd, "HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_contains(read_until(fd, "\r\n\r\n"), "Content-Length: 13\r\n");
    send_text(fd, "OPTIONS http://b:1/echo?x HTTP/1.1\r\nHost: a\r\n\r\n");
    read_until(fd, "OPTIONS /echo 0 ");
    /* empty lines between requests, also along with a body */
    send_text(fd, POST("/echo", "1") "x\r\n\r\n");
    read_until(fd, "POST /echo 1 x");
    send_text(fd, "\r\n\r\n");
    send_text(fd, "\r\n" GET("/echo"));
    read_until(fd, "GET /echo 0 ");
    /* a head in single bytes */
    for (const char *p = POST("/echo", "1") "x"; *p; p++)
        send_text(fd, (char[2]){*p, '\0'});
    read_until(fd, "POST /echo 1 x");
    /* a refusal spares the body */
    send_text(fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
                  "Expect: 100-continue\r\n\r\n");
    t = read_until(fd, NULL);
    assert_contains(t, "HTTP/1.1 403 ");
    close(fd);
    /* HTTP/1.0 ends with the connection */
    t = exchange(&s, "GET /echo HTTP/1.0\r\n\r\n");
    assert_contains(t, "GET /echo 0 ");
    server_stop(&s);
}

static void test_old_stream(void **state)
{
    struct server s;
    struct http_call *c;
    const char *t;
    int fd;

    server_start(&s, "[::1]:0", NULL);
    fd = connect_to(&s);
    send_text(fd, "GET /hold HTTP/1.0\r\n\r\n");
    c = wait_held(&s, 1);
    http_stream(c);
    http_write(c, "data: 1\n\n", 9);
    t = read_until(fd, "\r\n\r\ndata: 1\n\n");
    assert_null(strstr(t, "chunked"));
    http_write(c, "data: 2\n\n", 9);
    read_until(fd, "data: 2\n\n");
    http_end(c);
    assert_string_equal(read_until(fd, NULL), "");
    close(fd);
    server_stop(&s);
}

/* Answers with a status, before and after the head of a stream. */
static void test_refuse(void **state)
{
    struct server s;
    struct http_call *c;
    struct buf b = {0};
    int fd;

    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 1);
    http_stream(c);
    assert_false(http_started(c));
    buf_puts(&b, "busy");
    http_add_field(c, "Retry-After", "1");
    assert_true(http_refuse(c, 429, "text/plain", &b));
    assert_contains(read_until(fd, "busy"), "Retry-After: 1\r\n");
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 2);
    http_stream(c);
    http_write(c, "data: 1\n\n", 9);
    assert_true(http_started(c));
    assert_false(http_refuse(c, 500, "text/plain", &b));
    http_write(c, "data: 2\n\n", 9);
    http_end(c);
    read_until(fd, "0\r\n\r\n");
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 3);
    http_reply(c, 204, NULL, NULL);
    assert_contains(read_until(fd, "\r\n\r\n"), "HTTP/1.1 204 ");
    close(fd);
    server_stop(&s);
}

/* Requests that are refused before the handler knows of them. */
static void test_hostile(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\n\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/3.0\r\n\r\n", 505},
        {"GET /\x01 HTTP/1.1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33554433\r\n\r\n", 413},
        {"\x16\x03\x01\x02\x01\x01", 400},
    };
    struct server s;
    char line[40];

    server_start(&s, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = rows[i].text;
        size_t n = strlen(text);

        snprintf(line, sizeof line, "HTTP/1.1 %d ", rows[i].status);
        assert_contains(exchange(&s, text), line);
        for (size_t cut = 1; cut < n; cut++) {
            int fd = connect_to(&s);
            const char *t;

            send(fd, text, cut, MSG_NOSIGNAL);
            send(fd, text + cut, n - cut, MSG_NOSIGNAL);
            t = read_until(fd, NULL);
            assert_contains(t, line);
            assert_contains(t, "Connection: close\r\n");
            assert_contains(t, "{\"");
            close(fd);
        }
    }
    server_stop(&s);
}

/* libmicrohttpd must not take requests whose head we have not checked. */
static void test_pipelined(void **state)
{
    static const char *const second[] = {
        GET("/echo"),
        "GET /secret HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /secret HTTP/1.1\nHost: a\n\n",
    };
    /* A part of the second head comes with the first request, and the rest
     * looks like a head of its own. */
    static const char *const split[][2] = {
        {"GET /secret HTTP/1.1\r\nX: ", GET("/echo")},
        {"GET /echo HTTP/1.1\r\nHost: evil\r\nX:", GET("/echo")},
        {"GET /echo HTTP/1.1 ", GET("/echo")},
        {"G", "ET /echo HTTP/1.1\r\nHost: a\r\n\r\n"},
    };
    struct server s;
    char text[300];

    server_start(&s, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        const char *t;

        snprintf(text, sizeof text, "%s%s", POST("/echo", "1") "x", second[i]);
        t = exchange(&s, text);
        assert_contains(t, "POST /echo 1 x");
        assert_contains(t, "HTTP/1.1 400 ");
        assert_null(strstr(t, "secret"));
        assert_null(strstr(t, "GET /echo"));
    }
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) {
        int fd = connect_to(&s);
        const char *t;

        snprintf(text, sizeof text, "%s%s", POST("/echo", "1") "x",
                 split[i][0]);
        send_text(fd, text);
        read_until(fd, "POST /echo 1 x");
        send_text(fd, split[i][1]);
        t = read_until(fd, NULL);
        if (*t) /* else libmicrohttpd has closed the connection */
            assert_contains(t, "HTTP/1.1 400 ");
        close(fd);
    }
    server_stop(&s);
}

static void test_limits(void **state)
{
    static const char chunk[] = "POST /echo HTTP/1.1\r\nHost: a\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n3e9\r\n";
    struct http_limits limits = {
        .max_head = 2000, .max_body = 1000, .max_bodies = 1500};
    struct server s;
    struct http_call *c;
    char text[4000];
    int fd, other;

    server_start(&s, "127.0.0.1:0", &limits);
    memset(text, 'x', sizeof text);
    memcpy(text, "GET /", 5);
    text[2000] = '\0';
    assert_contains(exchange(&s, text), "HTTP/1.1 431 ");
    assert_contains(exchange(&s, POST("/echo", "1001")), "HTTP/1.1 413 ");
    memset(text, 'x', sizeof text);
    memcpy(text, chunk, sizeof chunk - 1);
    text[sizeof chunk - 1 + 1001] = '\0';
    assert_contains(exchange(&s, text), "HTTP/1.1 413 ");
    /* two bodies of 800 bytes: 1600 in all */
    memset(text, 'x', sizeof text);
    text[800] = '\0';
    fd = connect_to(&s);
    send_text(fd, POST("/hold", "800"));
    send_text(fd, text);
    c = wait_held(&s, 1);
    other = connect_to(&s);
    send_text(other, POST("/echo", "800"));
    send_text(other, text);
    assert_contains(read_until(other, NULL), "HTTP/1.1 503 ");
    close(other);
    http_free_body(c);
    other = connect_to(&s);
    send_text(other, POST("/echo", "800"));
    send_text(other, text);
    read_until(other, text);
    close(other);
    http_reply(c, 204, NULL, NULL);
    read_until(fd, "\r\n\r\n");
    close(fd);
    server_stop(&s);
}

/* The largest head, with most fields, leaves memory for a body and an answer.
 */
static void test_large_head(void **state)
{
    const size_t max_head = 16 * 1024;
    struct server s;
    struct http_call *c;
    struct buf b = {0};
    char value[2000];
    int fd;

    memset(value, 'x', sizeof value);
    buf_puts(&b,
             "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n");
    for (int i = 3; i < HTTP_MAX_FIELDS; i++)
        buf_printf(&b, "F%02d: %.155s\r\n", i, value);
    buf_printf(&b, "Last: %.*s\r\n\r\n", (int)(max_head - b.len - 10), value);
    assert_int_equal(b.len, max_head);
    for (int i = 0; i < 100000; i++)
        buf_putc(&b, 'y');
    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    for (int i = 1; i <= 3; i++) {
        send_text(fd, b.data);
        c = wait_held(&s, i);
        assert_int_equal(strlen(http_body(c, &(size_t){0})), 100000);
        http_stream(c);
        for (int j = 0; j < 10; j++)
            http_write(c, value, sizeof value);
        http_end(c);
        read_until(fd, "0\r\n\r\n");
    }
    close(fd);
    server_stop(&s);
    buf_free(&b);
}

static void test_slow_requests(void **state)
{
    static const char *const parts[] = {"G", "GET / HTTP/1.1\r\n",
                                        POST("/echo", "5") "1234"};
    struct http_limits limits = {.read_ms = 100, .idle_ms = 200};
    struct server s;
    int fd;

    server_start(&s, "127.0.0.1:0", &limits);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(exchange(&s, parts[i]), "HTTP/1.1 408 ");
    assert_string_equal(exchange(&s, ""), "");
    fd = connect_to(&s);
    send_text(fd, GET("/echo"));
    read_until(fd, "GET /echo 0 ");
    assert_string_equal(read_until(fd, NULL), "");
    close(fd);
    server_stop(&s);
}

/* Silence is filled, before and after the first event. */
static void test_silence(void **state)
{
    struct http_limits limits = {.silence_ms = 50};
    struct server s;
    struct http_call *c;
    int fd;

    server_start(&s, "127.0.0.1:0", &limits);
    fd = connect_to(&s);
    send_text(fd, GET("/hold"));
    c = wait_held(&s, 1);
    http_stream(c);
    assert_contains(read_until(fd, ": keep-alive\n\n\r\n"), "HTTP/1.1 200 ");
    assert_true(http_started(c));
    read_until(fd, ": keep-alive\n\n\r\n");
    http_write(c, "data: 1\n\n", 9);
    read_until(fd, "data: 1\n\n\r\n");
    read_until(fd, ": keep-alive\n\n\r\n");
    http_end(c);
    read_until(fd, "0\r\n\r\n");
    close(fd);
    server_stop(&s);
}

/* A client that reads nothing is sent away, and costs what it has not taken. */
static void test_stall(void **state)
{
    struct http_limits limits = {.stall_ms = 300};
    struct server s;
    struct http_call *c;
    char block[10000];
    int fd, n = 0;

    memset(block, 'x', sizeof block);
    for (int stream = 0; stream < 2; stream++) {
        server_start(&s, "127.0.0.1:0", &limits);
        fd = connect_to(&s);
        send_text(fd, GET("/hold"));
        c = wait_held(&s, 1);
        if (stream) {
            http_stream(c);
            for (n = 0; n < 2000; n++)
                if (http_write(c, block, sizeof block) != 0)
                    break; /* a slow machine has used up stall_ms */
            assert_true(http_unsent(c) > sizeof block);
            wait_gone(&s, 1);
            http_end(c);
        } else {
            struct buf b = {0};

            for (n = 0; n < 2000; n++)
                buf_append(&b, block, sizeof block);
            http_reply(c, 200, "text/plain", &b);
        }
        while (http_connections(s.http))
            usleep(1000);
        assert_int_equal(s.n_gone, stream);
        close(fd);
        server_stop(&s);
    }
}

/* A client that closes its direction has left, but gets what has ended. */
static void test_half_closed(void **state)
{
    struct server s;
    int fd;

    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    send_text(fd, GET("/echo"));
    shutdown(fd, SHUT_WR);
    assert_contains(read_until(fd, NULL), "GET /echo 0 ");
    close(fd);
    fd = connect_to(&s);
    send_text(fd, GET("/hold"));
    shutdown(fd, SHUT_WR);
    wait_gone(&s, 1);
    http_reply(wait_held(&s, 1), 204, NULL, NULL);
    assert_string_equal(read_until(fd, NULL), "");
    close(fd);
    server_stop(&s);
}

static void test_connections(void **state)
{
    struct http_limits limits = {.max_connections = 2};
    struct server s;
    int a, b, c;

    server_start(&s, "127.0.0.1:0", &limits);
    a = connect_to(&s);
    b = connect_to(&s);
    send_text(a, GET("/echo"));
    send_text(b, GET("/echo"));
    read_until(a, "GET /echo 0 ");
    read_until(b, "GET /echo 0 ");
    c = connect_to(&s); /* waits in the backlog */
    send_text(c, GET("/echo"));
    assert_int_equal(poll(&(struct pollfd){.fd = c, .events = POLLIN}, 1, 100),
                     0);
    close(a);
    read_until(c, "GET /echo 0 ");
    close(b);
    close(c);
    while (http_connections(s.http))
        usleep(1000);
    server_stop(&s);
}

static void test_drain(void **state)
{
    struct server s;
    struct http_call *reply, *stream;
    struct buf body = {0};
    int idle, replied, streamed, fd;
    const struct listen_addr *a;

    server_start(&s, "127.0.0.1:0", NULL);
    a = &s.listeners.v[0].a;
    idle = connect_to(&s);
    send_text(idle, GET("/echo"));
    read_until(idle, "GET /echo 0 ");
    replied = connect_to(&s);
    send_text(replied, GET("/hold"));
    reply = wait_held(&s, 1);
    streamed = connect_to(&s);
    send_text(streamed, GET("/hold"));
    stream = wait_held(&s, 2);
    http_stream(stream);
    http_write(stream, "data: 1\n\n", 9);
    read_until(streamed, "data: 1\n\n\r\n");
    send_text(idle, "GET /e"); /* not yet a request */
    http_drain(s.http);
    assert_string_equal(read_until(idle, NULL), "");
    fd = socket(a->addr.ss_family, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a->addr, a->n_addr),
                     -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    assert_int_not_equal(http_connections(s.http), 0);
    buf_puts(&body, "late");
    http_reply(reply, 200, "text/plain", &body);
    assert_contains(read_until(replied, NULL), "Connection: close\r\n");
    http_write(stream, "data: 2\n\n", 9);
    http_end(stream);
    assert_contains(read_until(streamed, NULL), "data: 2\n\n\r\n0\r\n\r\n");
    while (http_connections(s.http))
        usleep(1000);
    close(idle);
    close(replied);
    close(streamed);
    server_stop(&s);
}

/* http_stop still writes what is complete. */
static void test_stop(void **state)
{
    struct server s;
    struct http_call *a, *b;
    struct buf body = {0};
    int first, second;

    server_start(&s, "127.0.0.1:0", NULL);
    first = connect_to(&s);
    send_text(first, GET("/hold"));
    a = wait_held(&s, 1);
    second = connect_to(&s);
    send_text(second, GET("/hold"));
    b = wait_held(&s, 2);
    http_stream(b);
    buf_puts(&body, "last");
    http_reply(a, 503, "text/plain", &body);
    http_write(b, "data: 1\n\n", 9);
    http_end(b);
    server_stop(&s);
    assert_contains(read_until(first, NULL), "last");
    assert_contains(read_until(second, NULL), "0\r\n\r\n");
    close(first);
    close(second);
}

/* Streams that other threads write, while clients come and leave. */
enum { N_WRITERS = 4, N_CALLS = 100 };

static void *write_events(void *arg)
{
    struct server *s = arg;

    for (;;) {
        struct http_call *c;

        pthread_mutex_lock(&s->mutex);
        while (s->n_queued == 0 && !s->done)
            pthread_cond_wait(&s->changed, &s->mutex);
        c = s->n_queued ? s->queue[--s->n_queued] : NULL;
        pthread_mutex_unlock(&s->mutex);
        if (!c)
            return NULL;
        http_stream(c);
        for (int i = 0; i < 50; i++)
            http_write(c, "data: 1\n\n", 9);
        assert_non_null(http_field(c, "host"));
        http_end(c);
    }
}

static void test_threads(void **state)
{
    struct server s;
    pthread_t writers[N_WRITERS];
    char address[200];

    snprintf(address, sizeof address, "unix:%s", temp_path("s"));
    server_start(&s, address, NULL);
    for (int i = 0; i < N_WRITERS; i++)
        pthread_create(&writers[i], NULL, write_events, &s);
    for (int i = 0; i < N_CALLS; i++) {
        int fds[8];

        for (int j = 0; j < 8; j++) {
            fds[j] = connect_to(&s);
            send_text(fds[j], GET("/queue"));
        }
        for (int j = 0; j < 8; j++) {
            if (j % 3)
                read_until(fds[j], "0\r\n\r\n");
            close(fds[j]);
        }
    }
    while (http_connections(s.http))
        usleep(1000);
    pthread_mutex_lock(&s.mutex);
    s.done = true;
    pthread_cond_broadcast(&s.changed);
    pthread_mutex_unlock(&s.mutex);
    for (int i = 0; i < N_WRITERS; i++)
        pthread_join(writers[i], NULL);
    server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_old_stream),
        cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_helper),
        cmocka_unit_test(test_helper_reuse),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_large_head),
        cmocka_unit_test(test_slow_requests),
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
