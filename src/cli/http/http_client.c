/* Connections on the I/O thread: their heads, refusals and deadlines, and what
 * libmicrohttpd asks about them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "cli/http/http_parts.h"

/* After a refusal the client has this time to read it, and to close. */
#define LINGER_MS 3000
/* EPOLLOUT comes to that when a connection is full. Without this a unix socket
 * would wake us each time that its client reads. */
#define CLIENT_EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLET)

static struct epoll_event client_events(const struct http_client *k,
                                        unsigned events)
{
    return (struct epoll_event){.events = events,
                                .data.u64 = HTTP_EVENT(k->number, k->fd)};
}

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
void http_client_close(struct http *h, struct http_client *k)
{
    if (k->state == CLIENT_CLOSING)
        return;
    client_drop_call(h, k);
    shutdown(k->fd, SHUT_RDWR);
    client_set(k, CLIENT_CLOSING, INFINITY);
    client_resume(h, k);
}

/* Write a last answer past libmicrohttpd, which has written nothing yet, and
 * close the connection once the client has read it. */
static void client_send_last(struct http *h, struct http_client *k, int status,
                             const char *type, const struct http_field *fields,
                             size_t n_fields, const struct buf *body)
{
    struct buf out = {0};
    const char *method = k->call ? k->call->method : "";

    buf_printf(&out,
               "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n"
               "Content-Length: %zu\r\nConnection: close\r\n",
               status, mhd.get_reason_phrase_for((unsigned)status),
               type ? type : "text/plain", body->len);
    for (size_t i = 0; i < n_fields; i++)
        buf_printf(&out, "%s: %s\r\n", fields[i].name, fields[i].value);
    buf_puts(&out, "\r\n");
    if (strcmp(method, "HEAD") != 0)
        buf_append(&out, buf_text(body), body->len);
    bool failed = out.failed || body->failed;
    client_drop_call(h, k);
    if (failed ||
        send(k->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        http_client_close(h, k);
    } else {
        shutdown(k->fd, SHUT_WR);
        client_set(k, CLIENT_REFUSED, LINGER_MS);
    }
    buf_free(&out);
}

/* The path of the request that is being read; NULL: unknown. Without a call its
 * head is still in the socket. The text is valid until another socket is
 * read. */
static const char *client_path(struct http *h, const struct http_client *k)
{
    struct http_head head;
    const char *why;
    ssize_t n;

    if (k->call)
        return k->call->path;
    n = recv(k->fd, h->peeked, h->limits.max_head, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0)
        return NULL;
    http_head_check(h->peeked, (size_t)n, &head, &why);
    if (head.path.n == 0)
        return NULL;
    h->peeked[head.path.at + head.path.n] = '\0'; /* a version follows it */
    return h->peeked + head.path.at;
}

static void client_refuse(struct http *h, struct http_client *k, int status,
                          const char *why)
{
    struct buf body = {0};

    h->handler.fault(h->handler.ctx, client_path(h, k), status, why, &body);
    client_send_last(h, k, status, "application/json", NULL, 0, &body);
    buf_free(&body);
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
            http_client_close(h, k);
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
    struct http_call *c = k->call = http_call_new(h, k, h->peeked, head);

    if (!c) {
        client_refuse(h, k, 503, "out of memory");
        return;
    }
    k->state = CLIENT_READING;
    if (h->handler.head)
        h->handler.head(h->handler.ctx, c);
    /* Its body is not read, so the connection cannot go on. */
    if (c->ended && (head->length || head->chunked))
        client_send_last(h, k, c->status, c->type, c->added, c->n_added,
                         &c->out);
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
        http_client_close(h, k);
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
        http_client_close(h, k);
}

/* Something has happened to the connection. */
void http_client_look(struct http *h, struct http_client *k)
{
    k->look = false;
    switch (k->state) {
    case CLIENT_IDLE:
        client_peek(h, k);
        if (atomic_load(&h->draining) && k->state == CLIENT_IDLE)
            http_client_close(h, k);
        break;
    case CLIENT_ANSWERING:
        /* An answer that has ended is written: its reader may have closed only
         * its own direction. */
        if (k->left && k->call && !k->call->ended)
            http_client_close(h, k);
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
        http_client_close(h, k);
        return;
    }
    client_resume(h, k);
    k->deadline_ms = clock_ms() + h->limits.stall_ms;
}

/* Its deadline is over. */
void http_client_expire(struct http *h, struct http_client *k)
{
    k->deadline_ms = INFINITY;
    if (k->state == CLIENT_READING ||
        (k->state == CLIENT_IDLE && k->n_seen > 0))
        client_refuse(h, k, 408, "the request took too long");
    else if (k->state == CLIENT_ANSWERING && k->suspended)
        call_keep_alive(h, k);
    else
        http_client_close(h, k);
}

void http_client_blocked(struct http *h, struct http_client *k)
{
    struct epoll_event event = client_events(k, CLIENT_EVENTS | EPOLLOUT);

    if (k->watched)
        return;
    k->watched = true;
    if (epoll_ctl(h->epoll, EPOLL_CTL_MOD, k->fd, &event) != 0)
        http_client_close(h, k);
}

void http_client_event(struct http *h, struct http_client *k, unsigned events)
{
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        k->left = true;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        k->look = true;
    if ((events & EPOLLOUT) && k->state == CLIENT_ANSWERING && !k->suspended)
        k->deadline_ms = clock_ms() + h->limits.stall_ms; /* it takes bytes */
}

void http_client_woken(struct http *h, struct http_client *k,
                       const struct http_call *c)
{
    bool work, failed, streams;

    pthread_mutex_lock(&h->mutex);
    work = c->ended || c->out.len > c->n_taken;
    failed = c->failed;
    streams = c->streams;
    pthread_mutex_unlock(&h->mutex);
    if (failed) {
        http_client_close(h, k);
    } else if (k->suspended && work) {
        client_resume(h, k);
        k->deadline_ms = clock_ms() + h->limits.stall_ms;
    } else if (k->suspended && streams && k->deadline_ms == (double)INFINITY) {
        k->deadline_ms = clock_ms() + h->limits.silence_ms;
    }
}

/* ---- callbacks of libmicrohttpd ---- */

/* With the mutex locked: libmicrohttpd has written what it took. */
static void stream_written(struct http_call *c)
{
    struct http *h = c->h;

    if (c->taken_ms > 0 && h->handler.written)
        h->handler.written(h->handler.ctx, clock_ms() - c->taken_ms);
    c->taken_ms = 0;
}

/* Give libmicrohttpd more of a stream, once it has written what it had. */
static ssize_t stream_read(void *ctx, uint64_t pos, char *to, size_t max)
{
    struct http_client *k = ctx;
    struct http_call *c = k->call;
    struct http *h;
    ssize_t n = 0;

    (void)pos;
    if (!c) /* closing: the call belongs to the handler alone */
        return MHD_CONTENT_READER_END_WITH_ERROR;
    h = c->h;
    pthread_mutex_lock(&h->mutex);
    stream_written(c);
    if (c->out.len > c->n_taken) {
        size_t left = c->out.len - c->n_taken;

        n = (ssize_t)(left < max ? left : max);
        memcpy(to, c->out.data + c->n_taken, (size_t)n);
        c->n_taken += (size_t)n;
        c->taken_ms = c->put_ms;
        if ((size_t)n == left)
            c->put_ms = 0;
        if (c->n_taken > c->out.len / 2) { /* so that it does not grow */
            c->out.len -= c->n_taken;
            memmove(c->out.data, c->out.data + c->n_taken, c->out.len);
            c->n_taken = 0;
        }
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
        MHD_SIZE_UNKNOWN, 4096, stream_read, k, NULL);

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

    h->handler.fault(h->handler.ctx, NULL, 400,
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
void *http_on_target(void *ctx, const char *target, struct MHD_Connection *m)
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
enum MHD_Result http_on_request(void *ctx, struct MHD_Connection *m,
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
    if (!k->call->begun) {
        k->call->begun = is_seen(m, k->call, method);
        return k->call->begun ? MHD_YES : refuse_unseen(h, k);
    }
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
void http_on_completed(void *ctx, struct MHD_Connection *m, void **state,
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
    struct http_client *k = calloc(1, sizeof *k);
    struct epoll_event event;

    if (k) {
        k->mhd = m;
        k->fd = fd;
        k->number = (uint32_t)h->n_accepted;
        event = client_events(k, CLIENT_EVENTS);
    }
    if (!k || fd >= FD_SETSIZE ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(k);
        shutdown(fd, SHUT_RDWR); /* libmicrohttpd will close it */
        return;
    }
    client_set(k, CLIENT_IDLE, h->limits.idle_ms);
    h->clients[fd] = k;
    if (fd >= h->n_fds)
        h->n_fds = fd + 1;
    atomic_fetch_add(&h->n_clients, 1);
    *socket_context = k;
}

void http_on_connection(void *ctx, struct MHD_Connection *m,
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
