/* Turns the bytes of tokens into readable text. It separates thinking from
 * text, finds stop strings that span several tokens, and holds back incomplete
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
    size_t stopped_by; /* index in stop of the one that was found */
    enum qwick_channel channel;
    bool unstopped;  /* the next bytes are no part of a stop string */
    bool trim;       /* drop newlines: a think block just began or ended */
    const char *label; /* what begins a think block, and is dropped with the
                          newlines after it; NULL: nothing */
    const char *skip;  /* label, while it may still come; else NULL */
    bool thought;    /* there was a think block that is not empty */
    struct buf held; /* raw bytes that are held back */
    size_t newlines; /* newlines held back at the end of the thinking */
    struct buf text, thinking; /* released bytes, valid UTF-8 */
};

/* label: see struct stream. */
void stream_init(struct stream *s, const char *const *stop, size_t n_stop,
                 bool in_think, const char *label);
void stream_free(struct stream *s);

/* Handle a token that opens or closes the think block: release the bytes that
 * are held back on the old channel, and switch to channel `to`. *from is where
 * the new bytes begin in the buffer of the old channel. Returns 0, or -1 when
 * out of memory. */
int stream_switch(struct stream *s, enum qwick_channel to, size_t *from);

/* Add the bytes of a token. With last no bytes follow on any channel, so
 * nothing is held back. *from is where the new bytes begin in the buffer of
 * s->channel. *stopped is set to whether the text contains a stop string; only
 * the bytes before it are released. If several stop strings occur, the one that
 * ends first counts, however the text is divided into tokens. Returns 0, or -1
 * when out of memory. */
int stream_add(struct stream *s, const char *p, size_t n, bool last,
               size_t *from, bool *stopped);

/* Return the buffer of a channel. */
static inline struct buf *stream_buf(struct stream *s, enum qwick_channel c)
{
    return c == QWICK_TEXT ? &s->text : &s->thinking;
}

#endif
