/* The channels of an answer whose model writes messages with headers
 * (text/chat/harmony.h). It says of each token whether it belongs to a header,
 * and which channel the text of the next ones is for. Answers of other models
 * have none of this: there `on` is false. */
#ifndef ENGINE_CHANNELS_H
#define ENGINE_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/chat/harmony.h"

struct qwick_engine;

/* The tokens of messages, in an engine. */
struct channel_ids {
    bool found; /* the tokenizer has all of them */
    int32_t start, channel, message, end;
    int32_t constrain; /* -1: there is none */
};

enum channels_place {
    CHANNELS_HEADER, /* in a header, or before it */
    CHANNELS_BODY,
    CHANNELS_BETWEEN /* after a message */
};

/* What a token is. */
enum channels_step {
    CHANNELS_TEXT,  /* text of the message */
    CHANNELS_FORM,  /* part of a header, or of the end of a message */
    CHANNELS_OPENED /* the last token of a header: its message begins */
};

/* All zeros: no channels. */
struct channels {
    bool on;
    struct channel_ids ids;
    const struct qwick_engine *eng;
    enum channels_place place;
    enum harmony_kind kind; /* of the message, or the last one */
    bool final;             /* of the message: see harmony_header */
    bool said;              /* there was a text for the user */
    struct buf header;
    struct buf opening; /* what the text of the message begins with, until it is
                           taken */
};

/* Find the tokens, and correct the stop ids: the end of a message does not end
 * the answer. */
void channels_open(struct qwick_engine *eng);

/* Begin the answer to a prompt. on: the caller wants channels. */
int channels_begin(struct channels *c, const struct qwick_engine *eng,
                   const int32_t *prompt, size_t n, bool on,
                   struct qwick_err *e);
void channels_free(struct channels *c);

/* Whether the answer is inside of thinking. */
bool channels_think(const struct channels *c);

/* Whether this token ends the answer, although it is no stop id: the end of the
 * message that is the answer. */
bool channels_ends(const struct channels *c, int32_t id);

/* Go on by a token. Returns 0, or -1 when out of memory. */
int channels_accept(struct channels *c, int32_t id, enum channels_step *what);

/* Whether the prompt ids[0..n) ends inside of thinking, in an engine that has
 * channels. */
int channels_in_thinking(const struct qwick_engine *eng, const int32_t *ids,
                         size_t n, bool *yes, struct qwick_err *e);

#endif
