/* One answer in the making: what turns rows of logits into tokens, text and an
 * end. Knows no session, so that a loop or a batch can drive it. */
#ifndef ENGINE_GENERATE_H
#define ENGINE_GENERATE_H

#include "engine/decode.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/stream.h"

/* All zeros is a state that generation_free takes. */
struct generation {
    const struct qwick_engine *eng;
    const struct qwick_generate_options *o; /* borrowed */
    const volatile int *interrupt;          /* NULL: never */
    double deadline_ms;                     /* of clock_ms; 0: none */
    struct decode_rules rules;
    struct qwick_result *r; /* of the caller */
    struct sampler *sampler;
    struct stream stream;
    unsigned char *blocked;
    struct qwick_logprob *top; /* [n_top] */
    size_t n_top;
    float logprob;   /* of the token drawn last */
    size_t *borders; /* [loop_guard] */
    size_t cap_tokens;
};

/* Whether ids [n] can be a prompt: QWICK_ERR_USAGE otherwise. */
int generation_check(const struct qwick_engine *eng, const int32_t *prompt,
                     size_t n, struct qwick_err *e);

/* Start an answer to a checked prompt in a context of limit tokens; *r is
 * filled in step by step. Call generation_free in any case. */
int generation_begin(struct generation *g, const struct qwick_engine *eng,
                     const int32_t *prompt, size_t n,
                     const struct qwick_generate_options *o, size_t limit,
                     struct qwick_result *r, struct qwick_err *e);

/* Choose the next token from a row of logits and record it in the result. May
 * run beside other generations. */
int generation_draw(struct generation *g, const float *logits, int32_t *id,
                    struct qwick_err *e);

/* The log-probabilities that were asked for, of the same row. As above. */
void generation_weigh(struct generation *g, const float *logits);

/* Split, hold back and hand out the token just drawn (and weighed). pos: tokens
 * evaluated so far. *end and result's finish tell whether it was the last. */
int generation_emit(struct generation *g, int32_t id, size_t pos, bool *end,
                    struct qwick_err *e);

/* Whether the generation's deadline has passed. Reads no clock when there is
 * none. */
bool generation_timed_out(const struct generation *g);

/* What was released becomes the result's; there is always a text. */
int generation_finish(struct generation *g, struct qwick_err *e);

void generation_free(struct generation *g);

#endif
