/* From token bytes to what a reader sees: thinking split from text, stop
 * strings found across token borders, characters held back until complete. */
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
    bool trim;       /* new lines are dropped: a think block just began or
                        ended */
    bool thought;    /* there was a think block with something in it */
    struct buf held; /* raw bytes not yet released */
    size_t newlines; /* of the thinking, released when more follows */
    struct buf text, thinking; /* all that was released: valid UTF-8 */
};

void stream_init(struct stream *s, const char *const *stop, size_t n_stop,
                 bool in_think);
void stream_free(struct stream *s);

/* A token that opens or closes the think block. What the old channel held is
 * released: [*from, end) of its buffer is new. Returns 0, -1 out of memory. */
int stream_switch(struct stream *s, enum qwick_channel to, size_t *from);

/* Bytes of a token. last: nothing will follow on any channel, so hold nothing
 * back. *from: where the new bytes begin in the buffer of s->channel. *stopped:
 * a stop string was completed (of several the one that was first, whatever the
 * cuts between tokens); what comes from it on is not released. Returns 0, -1
 * out of memory. */
int stream_add(struct stream *s, const char *p, size_t n, bool last,
               size_t *from, bool *stopped);

/* The buffer of a channel. */
static inline struct buf *stream_buf(struct stream *s, enum qwick_channel c)
{
    return c == QWICK_TEXT ? &s->text : &s->thinking;
}

#endif
