/* HTTP of serve over real sockets: requests, answers, streams, limits, and clients
 * that leave, stop reading or send nonsense. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/serve/http.h"
#include "cli/serve/listen.h"
#include "test.h"

/* A server in this process. Paths of the handler:
 *   /echo    answers with method, path and body at once
 *   /refuse  is refused with 403 when its head has come
 *   /hold    is kept in `held`, and the test answers */
struct server {
    struct http *http;
    struct listeners listeners;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct http_call *held; /* the last call of /hold */
    int n_held, n_gone;
};

static void on_head(void *ctx, struct http_call *c)
{
    struct buf b = {0};

    (void)ctx;
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
    body = http_body(c, &n);
    buf_printf(&b, "%s %s %zu ", http_method(c), http_path(c), n);
    buf_append(&b, body, n);
    http_add_field(c, "X-Test", "yes");
    http_reply(c, 200, "text/plain", &b);
}

static void on_gone(void *ctx, struct http_call *c)
{
    struct server *s = ctx;

    (void)c;
    pthread_mutex_lock(&s->mutex);
    s->n_gone++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void on_fault(void *ctx, int status, const char *why, struct buf *body)
{
    (void)ctx;
    buf_printf(body, "{\"%d\":\"%s\"}", status, why);
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
    struct http_handler h = {s, on_head, on_ready, on_gone, on_fault};
    struct listen_addr a;
    struct qwick_err e = {0};

    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    assert_ok(listen_parse(address, &a, &e), &e);
    assert_ok(listen_open(&s->listeners, &a, 1, &e), &e);
    assert_ok(http_open(&s->http, &s->listeners.v[0].fd, 1, limits, &h, &e), &e);
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

/* Read until the text ends in `end`, or until the connection ends (NULL). Returns
 * the text, which the next call overwrites. */
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

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST(path, length)                                                     \
    "POST " path " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " length     \
    "\r\n\r\n"

static void test_replies(void **state)
{
    struct server s;
    int fd;
    const char *t;

    (void)state;
    server_start(&s, "127.0.0.1:0", NULL);
    fd = connect_to(&s);
    for (int i = 0; i < 3; i++) { /* one connection */
        send_text(fd, GET("/echo?x=1"));
        t = read_until(fd, "GET /echo 0 ");
        assert_contains(t, "HTTP/1.1 200 OK\r\n");
        assert_contains(t, "X-Test: yes\r\n");
        assert_contains(t, "Content-Length: 12\r\n");
        send_text(fd, POST("/echo", "5") "12345");
        read_until(fd, "POST /echo 5 12345");
        send_text(fd, POST("/refuse", "5"));
        send_text(fd, "12345");
        assert_contains(read_until(fd, "no"), "HTTP/1.1 403 ");
    }
    close(fd);
    server_stop(&s);
}

static void test_stream(void **state)
{
    struct server s;
    struct http_call *c;
    int fd;
    const char *t;

    (void)state;
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

static void test_gone(void **state)
{
    struct server s;
    struct http_call *c;
    int fd;

    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
