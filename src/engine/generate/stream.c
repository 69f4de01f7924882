#include "engine/generate/stream.h"

#include <string.h>

#include "base/utf8.h"

void stream_init(struct stream *s, const char *const *stop, size_t n_stop,
                 bool in_think, const char *label)
{
    *s = (struct stream){.stop = stop, .n_stop = n_stop, .label = label};
    s->channel = in_think ? QWICK_THINKING : QWICK_TEXT;
    s->trim = in_think;
}

void stream_free(struct stream *s)
{
    buf_free(&s->held);
    buf_free(&s->text);
    buf_free(&s->thinking);
}

/* Find the stop string that ends first in the held bytes; of two that end
 * together, the longer one. *at: its start. So the answer does not depend on
 * how the bytes are split into tokens. Sets s->stopped_by. False: there is
 * none. */
static bool find_stop(struct stream *s, size_t *at)
{
    size_t first_end = 0;
    for (size_t i = 0; i < s->n_stop; i++) {
        size_t n = strlen(s->stop[i]);
        const char *p = s->held.len
                            ? memmem(s->held.data, s->held.len, s->stop[i], n)
                            : NULL;
        if (!p)
            continue;
        size_t begin = (size_t)(p - s->held.data), end = begin + n;
        if (!first_end || end < first_end ||
            (end == first_end && begin < *at)) {
            first_end = end;
            *at = begin;
            s->stopped_by = i;
        }
    }
    return first_end > 0;
}

/* The number of bytes at the end that may begin a stop string. */
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

static void drop_held(struct stream *s, size_t n)
{
    s->held.len -= n;
    if (n > 0)
        memmove(s->held.data, s->held.data + n, s->held.len);
}

/* Drop newlines at the start of a channel. They are not part of it, so they
 * must not complete a stop string. */
static void trim_held(struct stream *s)
{
    size_t n = 0;
    while (n < s->held.len && s->held.data[n] == '\n')
        n++;
    s->trim = n == s->held.len;
    drop_held(s, n);
}

/* Drop the label at the start of a think block. Returns whether more bytes must
 * tell if it is there. */
static bool skip_label(struct stream *s)
{
    size_t n = strlen(s->skip), most = n < s->held.len ? n : s->held.len;
    bool fits = !most || !memcmp(s->held.data, s->skip, most);
    if (fits && most < n)
        return true;
    if (fits)
        drop_held(s, n);
    s->skip = NULL;
    return false;
}

/* Release the first n held bytes into the channel's buffer. */
static int release(struct stream *s, size_t n)
{
    struct buf *out = stream_buf(s, s->channel);
    size_t tail = 0; /* newlines at the end of the thinking are not part of
                        it */
    while (s->channel == QWICK_THINKING && tail < n &&
           s->held.data[n - 1 - tail] == '\n')
        tail++;
    if (tail < n) {
        for (; s->newlines > 0; s->newlines--)
            if (buf_putc(out, '\n'))
                return -1;
        if (utf8_sanitize(out, s->held.data, n - tail))
            return -1;
        if (s->channel == QWICK_THINKING)
            s->thought = true;
    }
    s->newlines += tail;
    drop_held(s, n);
    return 0;
}

int stream_switch(struct stream *s, enum qwick_channel to, size_t *from)
{
    *from = stream_buf(s, s->channel)->len;
    if (release(s, s->held.len))
        return -1;
    s->channel = to;
    s->trim = true;
    s->skip = to == QWICK_THINKING ? s->label : NULL;
    /* a second think block begins on a line of its own */
    s->newlines = to == QWICK_THINKING && s->thinking.len > 0;
    return 0;
}

int stream_add(struct stream *s, const char *p, size_t n, bool last,
               size_t *from, bool *stopped)
{
    *stopped = false;
    *from = stream_buf(s, s->channel)->len;
    if (buf_append(&s->held, p, n))
        return -1;
    if (s->skip && skip_label(s) && !last)
        return 0;
    if (s->trim)
        trim_held(s);
    bool stops = s->channel == QWICK_TEXT && !s->unstopped;
    if (stops && s->n_stop > 0) {
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
    if (stops)
        ready -= stop_prefix(s);
    if (ready > 0)
        ready = utf8_complete(s->held.data, ready);
    return release(s, ready);
}
