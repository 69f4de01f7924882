/* Requests and answers, for any thread. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/http/http_parts.h"

/* A stream that has more bytes waiting than this belongs to a client that does
 * not read. */
#define MAX_UNSENT ((size_t)64 << 20)

/* ---- the request ---- */

/* Copy a part of the head into the call, and end it with a NUL. The byte after
 * a part is a separator that nobody needs. */
static const char *head_part(struct http_call *c, struct http_span s)
{
    c->head[s.at + s.n] = '\0';
    return c->head + s.at;
}

struct http_call *http_call_new(struct http *h, struct http_client *k,
                                const char *p, const struct http_head *head)
{
    struct http_call *c = calloc(1, sizeof *c);
    size_t n_path = head->path.n;
    /* The host of an absolute target ends where its path begins, so both and
     * the target have copies of their own. */
    size_t n_copies = head->target.n + 1 + n_path + 2 + head->host.n + 1;
    char *copy;

    if (!c || !(c->head = malloc(head->n + n_copies))) {
        free(c);
        return NULL;
    }
    c->h = h;
    c->client = k;
    c->n_refs = 1;
    c->number = ++h->number;
    memcpy(c->head, p, head->n);
    copy = c->head + head->n;
    c->target = copy;
    memcpy(copy, p + head->target.at, head->target.n);
    copy += head->target.n;
    *copy++ = '\0';
    c->path = copy;
    if (n_path == 0)
        *copy++ = '/';
    memcpy(copy, p + head->path.at, n_path);
    copy += n_path;
    *copy++ = '\0';
    if (head->has_host) {
        c->host = copy;
        memcpy(copy, p + head->host.at, head->host.n);
        copy[head->host.n] = '\0';
    }
    c->method = head_part(c, head->method);
    for (size_t i = 0; i < head->n_fields; i++)
        c->fields[i] = (struct http_field){head_part(c, head->names[i]),
                                           head_part(c, head->values[i])};
    c->n_fields = head->n_fields;
    c->body.max = h->limits.max_body;
    c->out.max = MAX_UNSENT;
    if (head->length)
        buf_reserve(&c->body, (size_t)head->length); /* else it grows */
    c->body.failed = false;
    return c;
}

static void body_free(struct http_call *c)
{
    atomic_fetch_sub(&c->h->n_body_bytes, c->body.len);
    buf_free(&c->body);
}

void http_call_release(struct http_call *c)
{
    if (--c->n_refs > 0)
        return;
    body_free(c);
    buf_free(&c->out);
    for (size_t i = 0; i < c->n_added; i++)
        free((char *)c->added[i].name);
    free(c->added);
    free(c->head);
    free(c);
}

int http_call_take(struct http_call *c, const char *p, size_t n,
                   const char **why)
{
    struct http *h = c->h;

    if (n > h->limits.max_body - c->body.len) {
        *why = "the body is too large";
        return 413;
    }
    if (n > h->limits.max_bodies ||
        atomic_load(&h->n_body_bytes) > h->limits.max_bodies - n) {
        *why = "the bodies of all requests need too much memory";
        return 503;
    }
    if (buf_append(&c->body, p, n) != 0) {
        *why = "out of memory";
        return 503;
    }
    atomic_fetch_add(&h->n_body_bytes, n);
    return 0;
}

const char *http_method(const struct http_call *c)
{
    return c->method;
}

const char *http_target(const struct http_call *c)
{
    return c->target;
}

const char *http_path(const struct http_call *c)
{
    return c->path;
}

const char *http_host(const struct http_call *c)
{
    return c->host;
}

const char *http_field(const struct http_call *c, const char *name)
{
    for (size_t i = 0; i < c->n_fields; i++)
        if (http_equal(c->fields[i].name, strlen(c->fields[i].name), name))
            return c->fields[i].value;
    return NULL;
}

const char *http_body(const struct http_call *c, size_t *n)
{
    *n = c->body.len;
    return buf_text(&c->body);
}

void http_free_body(struct http_call *c)
{
    body_free(c);
}

double http_received_ms(const struct http_call *c)
{
    return c->received_ms;
}

unsigned long long http_number(const struct http_call *c)
{
    return c->number;
}

void http_set_tag(struct http_call *c, void *tag)
{
    c->tag = tag;
}

void *http_tag(const struct http_call *c)
{
    return c->tag;
}

/* ---- the answer ---- */

void http_wake(struct http *h)
{
    uint64_t one = 1;

    /* It fails only if the counter is full, and then the thread wakes as well.
     */
    if (write(h->wake, &one, sizeof one) < 0)
        return;
}

/* With the mutex locked: the I/O thread shall look at this call. Returns whether
 * it has to be woken. */
static bool call_wake(struct http_call *c)
{
    struct http *h = c->h;
    bool first = !h->woken;

    if (c->woken || !c->client)
        return false;
    c->woken = true;
    c->n_refs++;
    c->next_woken = NULL;
    *h->last_woken = c;
    h->last_woken = &c->next_woken;
    return first;
}

/* With the mutex locked: the answer is complete. Returns as call_wake. */
static bool call_end(struct http_call *c)
{
    bool wake;

    c->ended = true;
    wake = call_wake(c);
    if (c->ready) /* the handler was an owner */
        http_call_release(c);
    return wake;
}

/* Unlock the mutex, then wake the I/O thread: woken earlier it would take the
 * CPU, and wait for the mutex. The helper does the work itself. */
static void unlock_and_wake(struct http *h, bool wake)
{
    pthread_mutex_unlock(&h->mutex);
    if (wake &&
        !(atomic_load(&h->helped) && pthread_equal(h->helper, pthread_self())))
        http_wake(h);
}

int http_add_field(struct http_call *c, const char *name, const char *value)
{
    size_t n_name = strlen(name) + 1, n_value = strlen(value) + 1;
    struct http_field *added;
    char *text = NULL;

    pthread_mutex_lock(&c->h->mutex);
    added = realloc(c->added, (c->n_added + 1) * sizeof *added);
    if (added) {
        c->added = added;
        text = malloc(n_name + n_value);
    }
    if (text) {
        memcpy(text, name, n_name);
        memcpy(text + n_name, value, n_value);
        added[c->n_added++] = (struct http_field){text, text + n_name};
    }
    pthread_mutex_unlock(&c->h->mutex);
    return text ? 0 : -1;
}

bool http_refuse(struct http_call *c, int status, const char *type,
                 struct buf *body)
{
    struct http *h = c->h;
    bool started, wake = false;

    pthread_mutex_lock(&h->mutex);
    started = c->started;
    if (!started) {
        c->streams = false;
        c->status = status;
        c->type = type;
        if (body) {
            c->out = *body;
            *body = (struct buf){0};
        }
        wake = call_end(c);
    }
    unlock_and_wake(h, wake);
    return !started;
}

void http_reply(struct http_call *c, int status, const char *type,
                struct buf *body)
{
    http_refuse(c, status, type, body);
}

void http_stream(struct http_call *c)
{
    struct http *h = c->h;

    pthread_mutex_lock(&h->mutex);
    c->streams = true;
    unlock_and_wake(h, call_wake(c));
}

bool http_started(const struct http_call *c)
{
    bool started;

    pthread_mutex_lock(&c->h->mutex);
    started = c->started;
    pthread_mutex_unlock(&c->h->mutex);
    return started;
}

int http_write(struct http_call *c, const char *p, size_t n)
{
    struct http *h = c->h;
    bool wake = false;
    int r = -1;

    pthread_mutex_lock(&h->mutex);
    if (c->client && !c->gone && !c->failed) {
        r = buf_append(&c->out, p, n);
        c->failed = r != 0;
        if (c->put_ms <= 0)
            c->put_ms = clock_ms();
        c->started = c->started || n > 0;
        wake = call_wake(c);
    }
    unlock_and_wake(h, wake);
    return r;
}

size_t http_unsent(const struct http_call *c)
{
    size_t n;

    pthread_mutex_lock(&c->h->mutex);
    n = c->out.len - c->n_taken;
    pthread_mutex_unlock(&c->h->mutex);
    return n;
}

void http_end(struct http_call *c)
{
    struct http *h = c->h;

    pthread_mutex_lock(&h->mutex);
    unlock_and_wake(h, call_end(c));
}
