#include "engine/stream.h"

#include <string.h>

#include "base/utf8.h"

void stream_init(struct stream *s, const char *const *stop, size_t n_stop,
                 bool in_think)
{
    *s = (struct stream){.stop = stop, .n_stop = n_stop};
    s->channel = in_think ? QWICK_THINKING : QWICK_TEXT;
    s->trim = in_think;
}

void stream_free(struct stream *s)
{
    buf_free(&s->held);
    buf_free(&s->text);
    buf_free(&s->thinking);
}

/* Earliest stop string in the held bytes; false when there is none. */
static bool find_stop(const struct stream *s, size_t *at)
{
    bool found = false;
    for (size_t i = 0; i < s->n_stop; i++) {
        const char *p = s->held.len ? memmem(s->held.data, s->held.len,
                                             s->stop[i], strlen(s->stop[i]))
                                    : NULL;
        if (p && (!found || (size_t)(p - s->held.data) < *at)) {
            *at = (size_t)(p - s->held.data);
            found = true;
        }
    }
    return found;
}

/* Bytes at the end that may begin a stop string. */
static size_t stop_prefix(const struct stream *s)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n_stop; i++) {
        size_t n = strlen(s->stop[i]);
        size_t most = n - 1 < s->held.len ? n - 1 : s->held.len;
        for (size_t k = most; k > longest; k--) {
            if (!memcmp(s->held.data + s->held.len - k, s->stop[i], k)) {
                longest = k;
                break;
            }
        }
    }
    return longest;
}

/* Release the first n held bytes into the channel's buffer. */
static int release(struct stream *s, size_t n)
{
    const char *p = s->held.data;
    size_t left = n;
    while (s->trim && left > 0 && *p == '\n') {
        p++;
        left--;
    }
    struct buf *out = stream_buf(s, s->channel);
    if (left > 0) {
        s->trim = false;
        size_t tail = 0; /* the thinking ends where its last line does */
        while (s->channel == QWICK_THINKING && tail < left &&
               p[left - 1 - tail] == '\n')
            tail++;
        if (tail < left) {
            for (; s->newlines > 0; s->newlines--)
                if (buf_putc(out, '\n'))
                    return -1;
            if (utf8_sanitize(out, p, left - tail))
                return -1;
        }
        s->newlines += tail;
        if (s->channel == QWICK_THINKING)
            s->thought = true;
    }
    s->held.len -= n;
    if (n > 0)
        memmove(s->held.data, s->held.data + n, s->held.len);
    return 0;
}

int stream_switch(struct stream *s, enum qwick_channel to, size_t *from)
{
    *from = stream_buf(s, s->channel)->len;
    if (release(s, s->held.len))
        return -1;
    s->channel = to;
    s->trim = true;
    s->newlines = 0;
    return 0;
}

int stream_add(struct stream *s, const char *p, size_t n, bool last,
               size_t *from, bool *stopped)
{
    *stopped = false;
    *from = stream_buf(s, s->channel)->len;
    if (buf_append(&s->held, p, n))
        return -1;
    if (s->channel == QWICK_TEXT && s->n_stop > 0) {
        size_t at = 0;
        if (find_stop(s, &at)) {
            *stopped = true;
            s->held.len = at;
            return release(s, at);
        }
    }
    if (last)
        return release(s, s->held.len);
    size_t ready = s->held.len;
    if (s->channel == QWICK_TEXT)
        ready -= stop_prefix(s);
    if (ready > 0)
        ready = utf8_complete(s->held.data, ready);
    return release(s, ready);
}
