/* Turns the bytes of tokens into readable text: it splits thinking from text,
 * finds stop strings across token borders, and holds back incomplete
 * characters. */
#ifndef ENGINE_STREAM_H
#define ENGINE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "qwick.h"

struct stream {
    const char *const *stop; /* borrowed */
    size_t n_stop;
    enum qwick_channel channel;
    bool trim;       /* drop newlines: a think block just began or ended */
    bool thought;    /* there was a think block that is not empty */
    struct buf held; /* raw bytes not yet released */
    size_t newlines; /* held back at the end of the thinking */
    struct buf text, thinking; /* all released bytes: valid UTF-8 */
};

void stream_init(struct stream *s, const char *const *stop, size_t n_stop,
                 bool in_think);
void stream_free(struct stream *s);

/* Handle a token that opens or closes the think block: release the bytes that
 * the old channel held. [*from, end) of its buffer is new. Returns 0, or -1
 * when out of memory. */
int stream_switch(struct stream *s, enum qwick_channel to, size_t *from);

/* Add the bytes of a token. last: no bytes follow on any channel, so hold
 * nothing back. *from: where the new bytes begin in the buffer of s->channel.
 * *stopped: the text has a stop string, and only the bytes before it are
 * released. If there are several, the one that ends first counts, however the
 * text is split into tokens. Returns 0, or -1 when out of memory. */
int stream_add(struct stream *s, const char *p, size_t n, bool last,
               size_t *from, bool *stopped);

/* The buffer of a channel. */
static inline struct buf *stream_buf(struct stream *s, enum qwick_channel c)
{
    return c == QWICK_TEXT ? &s->text : &s->thinking;
}

#endif
