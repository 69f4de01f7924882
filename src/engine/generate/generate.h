/* A generation: one answer while it is generated. It turns rows of logits into
 * tokens and text, and decides when the answer ends. It has no session, so both
 * a decode loop and a batch can drive it. */
#ifndef ENGINE_GENERATE_H
#define ENGINE_GENERATE_H

#include "engine/core/engine.h"
#include "engine/generate/decode.h"
#include "engine/generate/guide.h"
#include "engine/generate/sampler.h"
#include "engine/generate/stream.h"
#include "engine/generate/think_budget.h"

/* The state of a generation. generation_free also accepts a struct of all
 * zeros. */
struct generation {
    const struct qwick_engine *eng;
    const struct qwick_generate_options *o; /* borrowed */
    const volatile int *interrupt;          /* NULL: never */
    double deadline_ms;                     /* end of the time by clock_ms; 0:
                                               none */
    struct decode_rules rules;
    struct qwick_result *r; /* owned by the caller */
    struct sampler *sampler;
    struct guide guide; /* keeps the constraint of the options */
    struct think_budget budget;
    struct bpe_decoder decoder;
    struct buf piece; /* text of the last token */
    struct stream stream;
    struct channels channels;
    enum channels_step step; /* what the last token is, with channels.on */
    unsigned char *blocked;
    struct qwick_logprob *top; /* [n_top] */
    size_t n_top;
    float logprob;     /* log-probability of the last drawn token */
    double mask_ms;    /* time for the constraint after the last token; only for
                          profiling */
    size_t *borders;   /* [loop_guard] memory for the loop guard */
    size_t n_chosen;   /* tokens up to the last one that had an alternative */
    size_t cap_tokens; /* capacity of r->tokens */
};

/* Return -1 with QWICK_ERR_USAGE when an id of prompt[0..n) is out of range. */
int generation_check(const struct qwick_engine *eng, const int32_t *prompt,
                     size_t n, struct qwick_err *e);

/* Tell a sampler which ids may not begin an answer. */
void generation_set_start(const struct qwick_engine *eng, struct sampler *s);

/* Read the options that a program gave (options_read); NULL: the defaults.
 * o->sampling becomes `sampling`, which must live as long as *o. */
int generation_read_sampling(struct qwick_sampling *o,
                             const struct qwick_sampling *given,
                             struct qwick_err *e);
int generation_read_options(struct qwick_generate_options *o,
                            struct qwick_sampling *sampling,
                            const struct qwick_generate_options *given,
                            struct qwick_err *e);

/* Start an answer to a prompt that generation_check accepts, in a context of at
 * most limit tokens. *o comes from generation_read_options. The functions below
 * fill in *r step by step. Call generation_free also after a failure. */
int generation_begin(struct generation *g, const struct qwick_engine *eng,
                     const int32_t *prompt, size_t n,
                     const struct qwick_generate_options *o, size_t limit,
                     struct qwick_result *r, struct qwick_err *e);

/* A guess that was drawn from the distribution q f32 [vocab_size]. */
struct guess {
    int32_t id;
    const float *q;
};

/* Choose the next token, from a row of logits unless the think budget forces
 * it, and append it to the result's tokens. guess: the draw is
 * sampler_draw_guess; NULL: sampler_draw. Threads may draw for different
 * generations at the same time. */
int generation_draw(struct generation *g, const float *logits,
                    const struct guess *guess, int32_t *id,
                    struct qwick_err *e);

/* Compute the log-probabilities that the options ask for. logits is the row
 * from which generation_draw chose the last token. Threads may do this for
 * different generations at the same time. */
void generation_weigh(struct generation *g, const float *logits);

/* Hand the drawn token out to the stream and the callback. pos: tokens
 * evaluated so far. *end is set to whether it was the last token; the result's
 * finish then says why. */
int generation_emit(struct generation *g, int32_t id, size_t pos, bool *end,
                    struct qwick_err *e);

/* Guess the next tokens: those that the think budget forces, or the only ones
 * that the constraint admits. Writes *n <= max ids. */
int generation_forced(struct generation *g, int32_t *ids, size_t max, size_t *n,
                      struct qwick_err *e);

/* Return whether generation_forced can give tokens in this answer. */
static inline bool generation_may_force(const struct generation *g)
{
    return g->guide.matcher || g->budget.ids;
}

/* Move text and thinking to the result. The result's text is not NULL
 * afterwards. */
int generation_finish(struct generation *g, struct qwick_err *e);

void generation_free(struct generation *g);

#endif
