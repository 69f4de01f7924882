/* The I/O thread: connections, and what libmicrohttpd may do with them. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/serve/http_parts.h"

/* libmicrohttpd's memory for a connection holds the head twice over, and then
 * answers. */
#define POOL_OF_HEAD(n) ((n) + 16 * 1024)
/* What the kernel holds of an answer that the client does not read. */
#define SEND_BUFFER (128 * 1024)
/* After a refusal the client has this time to read it, and to close. */
#define LINGER_MS 3000
/* Complete answers are written for this time after http_stop. */
#define STOP_MS 1000
/* Without a free descriptor we accept nothing for this time. */
#define ACCEPT_PAUSE_MS 100

/* ---- a connection ---- */

static struct http_client *client_of(struct MHD_Connection *m)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(m, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static void client_set(struct http_client *k, enum client_state state,
                       double in_ms)
{
    k->state = state;
    k->deadline_ms = clock_ms() + in_ms;
    k->look = true;
}

static void client_resume(struct http *h, struct http_client *k)
{
    if (!k->suspended)
        return;
    k->suspended = false;
    h->resumed = true;
    mhd.resume_connection(k->mhd);
}

static void client_suspend(struct http_client *k)
{
    if (k->suspended)
        return;
    k->suspended = true;
    mhd.suspend_connection(k->mhd);
}

/* Tell the handler that the client has left, if it owes an answer. */
static void call_gone(struct http_call *c)
{
    struct http *h = c->h;

    if (!c->ready || c->ended || c->gone)
        return;
    c->gone = true;
    if (h->handler.gone)
        h->handler.gone(h->handler.ctx, c);
}

/* The connection has nothing more to do with its call. */
static void client_drop_call(struct http *h, struct http_client *k)
{
    struct http_call *c = k->call;

    if (!c)
        return;
    k->call = NULL;
    pthread_mutex_lock(&h->mutex);
    call_gone(c);
    c->client = NULL;
    http_call_release(c);
    pthread_mutex_unlock(&h->mutex);
}

/* Let libmicrohttpd close the connection: it finds it shut down. */
static void client_close(struct http *h, struct http_client *k)
{
    if (k->state == CLIENT_CLOSING)
        return;
    client_drop_call(h, k);
    shutdown(k->fd, SHUT_RDWR);
    client_set(k, CLIENT_CLOSING, INFINITY);
    client_resume(h, k);
}

/* Write an answer past libmicrohttpd, which has written nothing yet, and close
 * the connection once the client has read it. */
static void client_refuse(struct http *h, struct http_client *k, int status,
                          const char *why)
{
    struct buf body = {0}, out = {0};
    const char *method = k->call ? k->call->method : "";

    h->handler.fault(h->handler.ctx, status, why, &body);
    buf_printf(&out,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\nConnection: close\r\n\r\n",
               status, mhd.get_reason_phrase_for((unsigned)status), body.len);
    if (strcmp(method, "HEAD") != 0)
        buf_append(&out, buf_text(&body), body.len);
    client_drop_call(h, k);
    if (out.failed || body.failed ||
        send(k->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        client_close(h, k);
    } else {
        shutdown(k->fd, SHUT_WR);
        client_set(k, CLIENT_REFUSED, LINGER_MS);
    }
    buf_free(&body);
    buf_free(&out);
}

/* Drop what a refused client sends, so that the kernel does not reset the
 * connection before the client has read the answer. */
static void client_drop_input(struct http *h, struct http_client *k)
{
    for (int i = 0; i < 64; i++) {
        ssize_t n = recv(k->fd, h->peeked, h->limits.max_head, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            client_close(h, k);
            return;
        }
    }
    k->look = true; /* others first */
}

/* A head is complete: begin its call. */
static void client_begin(struct http *h, struct http_client *k,
                         const struct http_head *head)
{
    if (head->length > h->limits.max_body) {
        client_refuse(h, k, 413, "the body is too large");
        return;
    }
    k->call = http_call_new(h, k, h->peeked, head);
    if (k->call)
        k->state = CLIENT_READING;
    else
        client_refuse(h, k, 503, "out of memory");
}

/* Empty lines before a request do no harm; libmicrohttpd would stop at them. */
static bool skip_empty_lines(struct http *h, struct http_client *k, size_t *n)
{
    size_t skip = 0;

    while (*n - skip >= 2 && memcmp(h->peeked + skip, "\r\n", 2) == 0)
        skip += 2;
    if (skip == 0)
        return true;
    *n -= skip;
    if (recv(k->fd, h->peeked, skip, MSG_DONTWAIT) != (ssize_t)skip)
        return false;
    memmove(h->peeked, h->peeked + skip, *n);
    return true;
}

/* Look at the bytes of a head that have come, and leave them in the socket. */
static void client_peek(struct http *h, struct http_client *k)
{
    struct http_head head;
    const char *why = NULL;
    ssize_t got =
        recv(k->fd, h->peeked, h->limits.max_head, MSG_PEEK | MSG_DONTWAIT);
    size_t n = got > 0 ? (size_t)got : 0;
    bool full = n == h->limits.max_head;
    int status;

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0 || !skip_empty_lines(h, k, &n)) {
        client_close(h, k);
        return;
    }
    if (n == 0)
        return;
    if (k->n_seen == 0)
        k->deadline_ms = clock_ms() + h->limits.read_ms;
    k->n_seen = n;
    status = http_head_check(h->peeked, n, &head, &why);
    if (status == 200)
        client_begin(h, k, &head);
    else if (status != 0)
        client_refuse(h, k, status, why);
    else if (full)
        client_refuse(h, k, 431, "the head is too large");
    else if (k->left)
        client_close(h, k);
}

/* Something has happened to the connection. */
static void client_look(struct http *h, struct http_client *k)
{
    k->look = false;
    switch (k->state) {
    case CLIENT_IDLE:
        if (atomic_load(&h->draining))
            client_close(h, k);
        else
            client_peek(h, k);
        break;
    case CLIENT_ANSWERING:
        /* An answer that has ended is written: its reader may have closed only
         * its own direction. */
        if (k->left && k->call && !k->call->ended)
            client_close(h, k);
        break;
    case CLIENT_REFUSED:
        client_drop_input(h, k);
        break;
    case CLIENT_READING: /* libmicrohttpd sees it */
    case CLIENT_CLOSING:
        break;
    }
}

/* A stream has been silent for too long. */
static void call_keep_alive(struct http *h, struct http_client *k)
{
    static const char comment[] = ": keep-alive\n\n";
    struct http_call *c = k->call;
    bool failed = false;

    pthread_mutex_lock(&h->mutex);
    if (!c->ended && c->out.len == c->n_taken) {
        failed = buf_append(&c->out, comment, sizeof comment - 1) != 0;
        c->started = true;
    }
    pthread_mutex_unlock(&h->mutex);
    if (failed) {
        client_close(h, k);
        return;
    }
    client_resume(h, k);
    k->deadline_ms = clock_ms() + h->limits.stall_ms;
}

/* Its deadline is over. */
static void client_expire(struct http *h, struct http_client *k)
{
    k->deadline_ms = INFINITY;
    if (k->state == CLIENT_READING ||
        (k->state == CLIENT_IDLE && k->n_seen > 0))
        client_refuse(h, k, 408, "the request took too long");
    else if (k->state == CLIENT_ANSWERING && k->suspended)
        call_keep_alive(h, k);
    else
        client_close(h, k);
}

/* ---- callbacks of libmicrohttpd ---- */

/* Give libmicrohttpd more of a stream. */
static ssize_t stream_read(void *ctx, uint64_t pos, char *to, size_t max)
{
    struct http_call *c = ctx;
    struct http *h = c->h;
    struct http_client *k;
    ssize_t n = 0;

    (void)pos;
    pthread_mutex_lock(&h->mutex);
    k = c->client;
    if (!k || k->state != CLIENT_ANSWERING) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (c->out.len > c->n_taken) {
        size_t left = c->out.len - c->n_taken;

        n = (ssize_t)(left < max ? left : max);
        memcpy(to, c->out.data + c->n_taken, (size_t)n);
        c->n_taken += (size_t)n;
        if (c->n_taken == c->out.len)
            c->n_taken = c->out.len = 0;
        k->deadline_ms = clock_ms() + h->limits.stall_ms;
    } else if (c->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        client_suspend(k);
        k->deadline_ms = clock_ms() + h->limits.silence_ms;
    }
    pthread_mutex_unlock(&h->mutex);
    return n;
}

/* Add the fields of an answer, and hand it to libmicrohttpd. */
static enum MHD_Result queue_answer(struct http_client *k, struct http_call *c,
                                    struct MHD_Response *r)
{
    struct http *h = c->h;
    enum MHD_Result ok = MHD_YES;

    pthread_mutex_lock(&h->mutex);
    for (size_t i = 0; i < c->n_added && ok == MHD_YES; i++)
        ok = mhd.add_response_header(r, c->added[i].name, c->added[i].value);
    pthread_mutex_unlock(&h->mutex);
    if (ok == MHD_YES && c->type)
        ok = mhd.add_response_header(r, "Content-Type", c->type);
    if (ok == MHD_YES && atomic_load(&h->draining))
        ok = mhd.add_response_header(r, "Connection", "close");
    if (ok == MHD_YES)
        ok = mhd.queue_response(k->mhd, (unsigned)c->status, r);
    mhd.destroy_response(r);
    client_set(k, CLIENT_ANSWERING, h->limits.stall_ms);
    return ok;
}

static enum MHD_Result queue_reply(struct http_client *k, struct http_call *c)
{
    size_t n;
    char *data = buf_take(&c->out, &n);
    struct MHD_Response *r =
        mhd.create_response_from_buffer(n, data, MHD_RESPMEM_MUST_FREE);

    if (!r) {
        free(data);
        return MHD_NO;
    }
    return queue_answer(k, c, r);
}

static enum MHD_Result queue_stream(struct http_client *k, struct http_call *c)
{
    /* The block is what HTTP/1.0 gets at once; chunks have the pool. */
    struct MHD_Response *r = mhd.create_response_from_callback(
        MHD_SIZE_UNKNOWN, 4096, stream_read, c, NULL);

    if (!r)
        return MHD_NO;
    c->status = 200;
    c->type = "text/event-stream";
    if (mhd.add_response_header(r, "Cache-Control", "no-cache, no-transform") !=
            MHD_YES ||
        mhd.add_response_header(r, "X-Accel-Buffering", "no") != MHD_YES) {
        mhd.destroy_response(r);
        return MHD_NO;
    }
    return queue_answer(k, c, r);
}

/* Begin to write the answer, or wait for it. */
static enum MHD_Result answer_begin(struct http *h, struct http_client *k)
{
    struct http_call *c = k->call;
    bool stream, waits;

    /* libmicrohttpd has locks of its own, and calls stream_read with one held,
     * so it is called without ours. What another thread does meanwhile wakes
     * the call, and then we come here again. */
    pthread_mutex_lock(&h->mutex);
    stream = c->streams;
    waits = !c->ended && !(stream && c->started);
    if (stream && !waits)
        c->started = true;
    pthread_mutex_unlock(&h->mutex);
    if (!waits)
        return stream ? queue_stream(k, c) : queue_reply(k, c);
    client_suspend(k);
    k->deadline_ms =
        stream ? clock_ms() + h->limits.silence_ms : (double)INFINITY;
    return MHD_YES;
}

/* libmicrohttpd has read a head along with what came before it. */
static enum MHD_Result refuse_unseen(struct http *h, struct http_client *k)
{
    struct buf body = {0};
    struct MHD_Response *r;
    enum MHD_Result ok;
    size_t n;
    char *data;

    h->handler.fault(h->handler.ctx, 400,
                     "a request was sent before the last answer ended", &body);
    data = buf_take(&body, &n);
    r = mhd.create_response_from_buffer(n, data, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(data);
        return MHD_NO;
    }
    mhd.add_response_header(r, "Content-Type", "application/json");
    mhd.add_response_header(r, "Connection", "close");
    ok = mhd.queue_response(k->mhd, 400, r);
    mhd.destroy_response(r);
    client_set(k, CLIENT_ANSWERING, h->limits.stall_ms);
    return ok;
}

/* Called with the target, before the access handler. Its result is the
 * handler's *state: the call, if this is the request that we have seen. */
static void *on_target(void *ctx, const char *target, struct MHD_Connection *m)
{
    struct http_client *k = client_of(m);
    struct http_call *c = k ? k->call : NULL;

    (void)ctx;
    return c && k->state == CLIENT_READING && !c->begun &&
                   strcmp(target, c->target) == 0
               ? c
               : NULL;
}

/* Return whether libmicrohttpd's request is the one that we have seen. It is
 * not if libmicrohttpd had read a part of it with an earlier body: then it has
 * more lines, or a longer first line. */
static bool is_seen(struct MHD_Connection *m, const struct http_call *c,
                    const char *method)
{
    int n = mhd.get_connection_values(m, MHD_HEADER_KIND, NULL, NULL);

    return strcmp(method, c->method) == 0 && n >= 0 && (size_t)n == c->n_fields;
}

/* The head of a request has been read. */
static enum MHD_Result request_begin(struct http *h, struct http_client *k)
{
    struct http_call *c = k->call;

    c->begun = true;
    if (h->handler.head)
        h->handler.head(h->handler.ctx, c);
    /* A refusal spares the client its body if it waits for leave to send it.
     * Otherwise the body is read and dropped, and the connection goes on. */
    return c->ended && c->expect_continue ? answer_begin(h, k) : MHD_YES;
}

static enum MHD_Result request_end(struct http *h, struct http_client *k)
{
    struct http_call *c = k->call;

    c->received_ms = clock_ms();
    client_set(k, CLIENT_ANSWERING, INFINITY);
    if (!c->ended) {
        pthread_mutex_lock(&h->mutex);
        c->ready = true;
        c->n_refs++;
        pthread_mutex_unlock(&h->mutex);
        h->handler.ready(h->handler.ctx, c);
    }
    return answer_begin(h, k);
}

/* libmicrohttpd calls this with the head, then with each part of the body, then
 * at the request's end, and again when a suspended connection goes on. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *m,
                                  const char *url, const char *method,
                                  const char *version, const char *data,
                                  size_t *n, void **state)
{
    struct http *h = ctx;
    struct http_client *k = client_of(m);
    const char *why = NULL;
    int status;

    (void)url;
    (void)version;
    if (!k || k->state == CLIENT_CLOSING)
        return MHD_NO;
    if (k->state == CLIENT_REFUSED) {
        if (*n == 0)
            client_suspend(k);
        *n = 0;
        return MHD_YES;
    }
    if (!*state || *state != k->call)
        return refuse_unseen(h, k);
    if (!k->call->begun)
        return is_seen(m, k->call, method) ? request_begin(h, k)
                                           : refuse_unseen(h, k);
    if (*n > 0) {
        status = k->call->ended ? 0 : http_call_take(k->call, data, *n, &why);
        if (status != 0)
            client_refuse(h, k, status, why);
        *n = 0;
        return MHD_YES;
    }
    return k->state == CLIENT_READING ? request_end(h, k) : answer_begin(h, k);
}

/* The answer has been written, or cannot be written. */
static void on_completed(void *ctx, struct MHD_Connection *m, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = ctx;
    struct http_client *k = client_of(m);

    (void)why;
    *state = NULL;
    if (!k)
        return;
    client_drop_call(h, k);
    if (k->state == CLIENT_READING || k->state == CLIENT_ANSWERING) {
        client_set(k, CLIENT_IDLE, h->limits.idle_ms);
        k->n_seen = 0;
    }
}

static void client_open(struct http *h, struct MHD_Connection *m,
                        void **socket_context)
{
    int fd = mhd.get_connection_info(m, MHD_CONNECTION_INFO_CONNECTION_FD)
                 ->connect_fd;
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    struct http_client *k = calloc(1, sizeof *k);

    if (!k || epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(k);
        shutdown(fd, SHUT_RDWR); /* libmicrohttpd will close it */
        return;
    }
    k->mhd = m;
    k->fd = fd;
    client_set(k, CLIENT_IDLE, h->limits.idle_ms);
    h->clients[fd] = k;
    if (fd >= h->n_fds)
        h->n_fds = fd + 1;
    atomic_fetch_add(&h->n_clients, 1);
    *socket_context = k;
}

static void on_connection(void *ctx, struct MHD_Connection *m,
                          void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = ctx;
    struct http_client *k = *socket_context;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        h->n_accepted++;
        client_open(h, m, socket_context);
    } else if (k) {
        client_drop_call(h, k);
        h->clients[k->fd] = NULL;
        *socket_context = NULL;
        free(k);
        atomic_fetch_sub(&h->n_clients, 1);
    }
}

/* ---- the loop ---- */

/* Return whether libmicrohttpd may read a descriptor that it wants to read. */
static bool may_read(const struct http *h, int fd, int listener)
{
    const struct http_client *k = h->clients[fd];

    if (fd == listener)
        return atomic_load(&h->n_clients) < h->limits.max_connections &&
               clock_ms() >= h->accept_ms;
    return !k || k->state == CLIENT_READING || k->state == CLIENT_CLOSING;
}

static bool may_write(const struct http *h, int fd)
{
    return !h->clients[fd] || h->clients[fd]->state != CLIENT_REFUSED;
}

/* Let libmicrohttpd do what it can without waiting. Returns whether there was
 * something: resumed connections, or descriptors that are ready. */
static bool daemon_round(struct http *h, size_t i, bool resumed)
{
    struct pollfd polls[FD_SETSIZE];
    nfds_t n = 0;
    fd_set in, out, except;
    int max = -1, listener = h->listeners[i];
    unsigned long long n_accepted = h->n_accepted;
    bool accepting = false;

    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    mhd.get_fdset2(h->daemons[i], &in, &out, &except, &max, FD_SETSIZE);
    for (int fd = 0; fd <= max; fd++) {
        int events =
            (FD_ISSET(fd, &in) && may_read(h, fd, listener) ? POLLIN : 0) |
            (FD_ISSET(fd, &out) && may_write(h, fd) ? POLLOUT : 0);

        if (events)
            polls[n++] = (struct pollfd){.fd = fd, .events = (short)events};
    }
    if (poll(polls, n, 0) <= 0 && !resumed)
        return false;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    for (nfds_t j = 0; j < n; j++) {
        if (!polls[j].revents)
            continue;
        if (polls[j].events & POLLIN)
            FD_SET(polls[j].fd, &in);
        if (polls[j].events & POLLOUT)
            FD_SET(polls[j].fd, &out);
        accepting = accepting || polls[j].fd == listener;
    }
    mhd.run_from_select(h->daemons[i], &in, &out, &except);
    if (accepting && h->n_accepted == n_accepted) /* no descriptor is free */
        h->accept_ms = clock_ms() + ACCEPT_PAUSE_MS;
    return true;
}

static void client_event(struct http *h, int fd, uint32_t events)
{
    struct http_client *k = h->clients[fd];

    if (!k)
        return;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        k->left = true;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        k->look = true;
    if ((events & EPOLLOUT) && k->state == CLIENT_ANSWERING && !k->suspended)
        k->deadline_ms = clock_ms() + h->limits.stall_ms; /* it takes bytes */
}

/* Wait for events, up to timeout_ms. */
static int events_wait(struct http *h, int timeout_ms, struct qwick_err *e)
{
    struct epoll_event events[64];
    int n = epoll_wait(h->epoll, events, 64, timeout_ms);
    uint64_t count;

    if (n < 0 && errno != EINTR)
        return err_errno(e, "serve", "cannot wait for connections");
    for (int i = 0; i < n; i++) {
        if (events[i].data.fd != h->wake)
            client_event(h, events[i].data.fd, events[i].events);
        else if (read(h->wake, &count, sizeof count) < 0)
            continue; /* nobody has written to it */
    }
    return 0;
}

/* Another thread has changed the call of a connection. */
static void client_woken(struct http *h, struct http_client *k,
                         const struct http_call *c)
{
    bool work, failed, streams;

    pthread_mutex_lock(&h->mutex);
    work = c->ended || c->out.len > c->n_taken;
    failed = c->failed;
    streams = c->streams;
    pthread_mutex_unlock(&h->mutex);
    if (failed) {
        client_close(h, k);
    } else if (k->suspended && work) {
        client_resume(h, k);
        k->deadline_ms = clock_ms() + h->limits.stall_ms;
    } else if (k->suspended && streams && k->deadline_ms == (double)INFINITY) {
        k->deadline_ms = clock_ms() + h->limits.silence_ms;
    }
}

static void calls_woken(struct http *h)
{
    struct http_call *c, *next;

    pthread_mutex_lock(&h->mutex);
    c = h->woken;
    h->woken = NULL;
    h->last_woken = &h->woken;
    for (struct http_call *w = c; w; w = w->next_woken)
        w->woken = false;
    pthread_mutex_unlock(&h->mutex);
    for (; c; c = next) {
        next = c->next_woken;
        if (c->client)
            client_woken(h, c->client, c);
        pthread_mutex_lock(&h->mutex);
        http_call_release(c);
        pthread_mutex_unlock(&h->mutex);
    }
}

/* Look at all connections. Returns the nearest deadline. */
static double clients_look(struct http *h)
{
    double now = clock_ms(), nearest = INFINITY;

    if (h->accept_ms > now)
        nearest = h->accept_ms;
    for (int fd = 0; fd < h->n_fds; fd++) {
        struct http_client *k = h->clients[fd];

        if (!k)
            continue;
        if (k->look)
            client_look(h, k);
        if (k->deadline_ms <= now)
            client_expire(h, k);
        if (k->look)
            nearest = now;
        nearest = fmin(nearest, k->deadline_ms);
    }
    return nearest;
}

/* Close the listening sockets, once. */
static void listeners_close(struct http *h)
{
    for (size_t i = 0; i < h->n_listeners; i++) {
        if (h->listeners[i] < 0)
            continue;
        mhd.quiesce_daemon(h->daemons[i]);
        close(h->listeners[i]);
        h->listeners[i] = -1;
        for (int fd = 0; fd < h->n_fds; fd++)
            if (h->clients[fd])
                h->clients[fd]->look = true;
    }
}

/* Return whether a complete answer is not written yet. */
static bool answers_left(const struct http *h)
{
    for (int fd = 0; fd < h->n_fds; fd++)
        if (h->clients[fd] && h->clients[fd]->call &&
            h->clients[fd]->call->ended)
            return true;
    return false;
}

static int wait_ms(double until)
{
    double ms = ceil(until - clock_ms());

    return ms < 0 ? 0 : ms > 3600e3 ? -1 : (int)ms;
}

int http_run(struct http *h, struct qwick_err *e)
{
    double stop_ms = INFINITY;

    for (;;) {
        double nearest;
        bool moved, resumed;

        calls_woken(h);
        if (atomic_load(&h->draining))
            listeners_close(h);
        nearest = clients_look(h);
        if (atomic_load(&h->stopping)) {
            stop_ms = fmin(stop_ms, clock_ms() + STOP_MS);
            nearest = fmin(nearest, stop_ms);
            if (clock_ms() >= stop_ms || !answers_left(h))
                return 0;
        }
        resumed = h->resumed;
        h->resumed = moved = false;
        for (size_t i = 0; i < h->n_listeners; i++)
            moved = daemon_round(h, i, resumed) || moved;
        if (events_wait(h, moved ? 0 : wait_ms(nearest), e) != 0)
            return -1;
    }
}

void http_drain(struct http *h)
{
    atomic_store(&h->draining, true);
    http_wake(h);
}

bool http_is_idle(struct http *h)
{
    return atomic_load(&h->n_clients) == 0;
}

void http_stop(struct http *h)
{
    atomic_store(&h->draining, true);
    atomic_store(&h->stopping, true);
    http_wake(h);
}

/* ---- start and end ---- */

static void limits_default(struct http_limits *l)
{
    if (!l->max_connections)
        l->max_connections = 256;
    if (!l->max_head)
        l->max_head = 32 * 1024;
    if (!l->max_body)
        l->max_body = (size_t)32 << 20;
    if (!l->max_bodies)
        l->max_bodies = (size_t)256 << 20;
    if (!l->read_ms)
        l->read_ms = 30000;
    if (!l->idle_ms)
        l->idle_ms = 60000;
    if (!l->stall_ms)
        l->stall_ms = 60000;
    if (!l->silence_ms)
        l->silence_ms = 10000;
}

static struct MHD_Daemon *daemon_start(struct http *h, int fd)
{
    return mhd.start_daemon(
        MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->limits.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        POOL_OF_HEAD(h->limits.max_head), MHD_OPTION_URI_LOG_CALLBACK,
        on_target, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

/* Begin to serve a listening socket. */
static int listener_add(struct http *h, int fd, struct qwick_err *e)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    int size = SEND_BUFFER;

    if (fd >= FD_SETSIZE)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "descriptor %d of a listening socket is not below %d",
                       fd, FD_SETSIZE);
    /* Connections inherit it. It is only a wish. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return err_errno(e, "serve", "cannot watch a listening socket");
    h->daemons[h->n_listeners] = daemon_start(h, fd);
    if (!h->daemons[h->n_listeners])
        return err_set(e, QWICK_ERR_RUNTIME,
                       "libmicrohttpd cannot serve a listening socket");
    h->listeners[h->n_listeners++] = fd;
    return 0;
}

/* Everything but the listening sockets. */
static int http_prepare(struct http *h, size_t n, struct qwick_err *e)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (http_mhd_load(e) != 0)
        return -1;
    h->daemons = calloc(n, sizeof *h->daemons);
    h->listeners = calloc(n, sizeof *h->listeners);
    h->peeked = malloc(h->limits.max_head);
    if (!h->daemons || !h->listeners || !h->peeked)
        return err_oom(e, h->limits.max_head);
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.fd = h->wake;
    if (h->epoll < 0 || h->wake < 0 ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &event) != 0)
        return err_errno(e, "serve", "cannot make an event descriptor");
    return 0;
}

int http_open(struct http **out, const int *fds, size_t n,
              const struct http_limits *limits,
              const struct http_handler *handler, struct qwick_err *e)
{
    struct http *h = calloc(1, sizeof *h);
    int r;

    *out = NULL;
    if (!h) {
        for (size_t i = 0; i < n; i++)
            close(fds[i]);
        return err_oom(e, sizeof *h);
    }
    h->epoll = h->wake = -1;
    h->last_woken = &h->woken;
    h->handler = *handler;
    if (limits)
        h->limits = *limits;
    limits_default(&h->limits);
    pthread_mutex_init(&h->mutex, NULL);
    r = http_prepare(h, n, e);
    for (size_t i = 0; i < n; i++) {
        if (r == 0)
            r = listener_add(h, fds[i], e);
        if (r != 0)
            close(fds[i]);
    }
    if (r != 0) {
        http_close(h);
        return -1;
    }
    *out = h;
    return 0;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    /* libmicrohttpd must have no suspended connection when it stops. */
    for (int fd = 0; fd < h->n_fds; fd++)
        if (h->clients[fd])
            client_close(h, h->clients[fd]);
    for (size_t i = 0; i < h->n_listeners; i++)
        mhd.stop_daemon(h->daemons[i]);
    calls_woken(h);
    if (h->wake >= 0)
        close(h->wake);
    if (h->epoll >= 0)
        close(h->epoll);
    pthread_mutex_destroy(&h->mutex);
    free(h->daemons);
    free(h->listeners);
    free(h->peeked);
    free(h);
}
