/* Keeps an answer within a constraint: it says which tokens may be drawn next.
 * The constraint begins after the think block. A stop id may be drawn exactly
 * when the text is complete. Where a constraint leaves the text free
 * (constraint_set_free), think blocks may be anywhere in it, and nothing else
 * is forbidden there or in them.
 *
 * Where answers are messages (engine/core/channels.h), the constraint holds for
 * the message of the answer, whose header is forced; a message of thinking may
 * come before it. A constraint whose texts begin with the header of a message,
 * as calls do, holds for the header as well. */
#ifndef ENGINE_GUIDE_H
#define ENGINE_GUIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/core/channels.h"

struct matcher;
struct qwick_constraint;
struct qwick_engine;
struct sampler;

enum guide_phase {
    GUIDE_MAY_THINK,   /* before the first token: the model may open a think
                          block; see guide_look. Also in the text of a
                          constraint that leaves it free */
    GUIDE_THINKING,    /* anything but a stop id */
    GUIDE_AFTER_THINK, /* a token of newlines may come before the text */
    GUIDE_TURN,        /* in what begins a message */
    GUIDE_HEADER,      /* in a header, whose channel is not known yet */
    GUIDE_TEXT
};

/* Headers of messages, as tokens. */
struct guide_header {
    int32_t *ids; /* [n] */
    size_t n;
};

/* The place in a message. */
struct guide_message {
    size_t k;       /* tokens of GUIDE_TURN or GUIDE_HEADER so far */
    bool may_think; /* a message may be thinking */
    bool thinks,
        writes;   /* the header so far is that of thinking, of the answer */
    bool begun;   /* the constraint has the first token of the header */
    bool in_body; /* the header is complete */
};

/* A struct of all zeros has no constraint. guide_free accepts it. */
struct guide {
    const struct qwick_engine *eng;
    struct matcher *matcher; /* NULL: no constraint */
    enum guide_phase phase;
    uint64_t *allowed; /* [n_words] ids that may be drawn, as bits */
    size_t n_words;
    bool free;   /* the constraint leaves the text free */
    bool forced; /* the constraint admits only one next token */
    struct channel_ids channels;
    struct guide_header turn, think, answer; /* with channels.found */
    bool headed; /* texts of the constraint begin with a header */
    struct guide_message message;
    bool timed;  /* count the time, for a profile */
    double ms;   /* time of the functions below, if timed */
    /* while tokens are tried */
    uint64_t *held; /* [n_words] allowed before that; NULL: not needed yet */
    enum guide_phase held_phase;
    bool held_forced;
    struct guide_message held_message;
};

/* Begin an answer under a constraint. phase: where it begins. If the model has
 * no think tokens, that is GUIDE_TEXT in any case. ch: where it begins in the
 * messages, if answers are messages. timed: see struct guide. */
int guide_begin(struct guide *g, const struct qwick_engine *eng,
                struct qwick_constraint *c, enum guide_phase phase,
                const struct channels *ch, bool timed, struct qwick_err *e);
void guide_free(struct guide *g);

/* Set g->allowed for the next draw. Not for several threads at a time.
 * QWICK_ERR_RUNTIME if no token is allowed. */
int guide_prepare(struct guide *g, struct qwick_err *e);

/* Look at the logits f32 [vocab_size] of the first draw of this sampler. If the
 * token that opens a think block is the likeliest of all, only it is allowed.
 * Otherwise it is not: a model that would not think must not begin to only
 * because the constraint forbids the tokens that it prefers. */
void guide_look(struct guide *g, const struct sampler *s, const float *logits);

/* Add a token to the answer. It is not a stop id. */
int guide_accept(struct guide *g, int32_t id, struct qwick_err *e);

/* Whether the answer is inside a call of a tool. */
bool guide_in_call(const struct guide *g);

/* No message after this one may be thinking. */
void guide_stop_thinking(struct guide *g);

/* Whether the text may begin with a newline that belongs to it, although
 * newlines after a think block usually do not. */
bool guide_keeps_newlines(const struct guide *g);

/* Write to ids the next tokens of the answer, at most max, as long as only one
 * token can be drawn each time. */
int guide_forced(struct guide *g, int32_t *ids, size_t max, size_t *n,
                 struct qwick_err *e);

/* Try tokens: guide_hold remembers the place in the answer. guide_try adds a
 * token, which is no stop id, and sets g->allowed. guide_return goes back to
 * the place that was held; call it also after guide_try has failed. */
int guide_hold(struct guide *g, struct qwick_err *e);
int guide_try(struct guide *g, int32_t id, struct qwick_err *e);
void guide_return(struct guide *g);

#endif
