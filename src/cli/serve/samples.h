/* The answers of a call that the batch generates: its samples. All functions
 * but samples_create, samples_check and samples_free belong to the engine
 * thread. */
#ifndef CLI_SAMPLES_H
#define CLI_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/answer/openai_chat.h"
#include "cli/answer/request.h"
#include "cli/serve/serve.h"
#include "qwick.h"

struct samples;

/* An endpoint embeds it as the first member of its own struct. */
struct sample {
    struct serve_task task; /* must be the first member */
    struct samples *all;
    bool queued, ended;    /* in the batch; ended there */
    bool oom;              /* memory ran out in a callback */
    struct qwick_result r; /* of the answer when it has ended */
    const struct qwick_constraint *constraint; /* of its request; NULL: none */
    bool is_text;                              /* see constraint_is_text */

    /* for metrics */
    qwick_token_fn on_token;  /* of the endpoint */
    size_t n_prompt;          /* tokens of the prompt; 0: another sample's */
    size_t n_drawn;           /* tokens so far */
    double first_ms, last_ms; /* clock_ms of the first and the last */
};

struct samples {
    struct serve_call *c;
    char *v; /* [n] structs of `size` bytes */
    size_t n, size;
    size_t n_open;          /* samples in the batch */
    bool began;             /* a token has been drawn */
    struct serve_error why; /* status not 0: the call ends with it */
    /* A sample has ended: read what is left of it. */
    void (*end)(struct sample *x);
    /* With a stream: send the last chunk of a sample that has ended without an
     * error. */
    void (*send_end)(struct sample *x);
    /* All samples have: answer, and free the call. */
    void (*answer)(struct samples *s);
};

/* Make n samples, zeros but for their struct sample. s->c and the callbacks are
 * set. Sets the call's n_streams. Returns 0, or -1 with *e set. */
int samples_create(struct samples *s, size_t n, size_t size,
                   struct serve_error *e);
void samples_free(struct samples *s);

static inline struct sample *samples_at(const struct samples *s, size_t i)
{
    return (struct sample *)(s->v + i * s->size);
}

/* Refuse a request that the batch would refuse, or that never fits the context
 * or --kv-memory. param: the member with its prompt. Returns 0, or -1 with *e
 * set. */
int samples_check(const struct serve *s, const struct request *r,
                  const char *param, struct serve_error *e);

/* Return whether the batch has places for n more samples at once. */
bool samples_have_places(const struct serve *s, size_t n);

/* Queue sample i of the call, the k-th of its request. fn gets its tokens.
 * Returns 0; 1: the rest need not be queued, because the samples in the batch
 * are cancelled and end the call; or -1 with *e set when there are none. */
int samples_queue(struct samples *s, size_t i, const struct request *r,
                  size_t k, qwick_token_fn fn, struct serve_error *e);

/* Return whether samples are in the batch, and none has begun. */
bool samples_wait(const struct samples *s);

/* Cancel the samples that are in the batch. */
void samples_cancel(struct samples *s);

/* Set the beginning of an answer. prefix: of its id, which is written to id. */
enum { SAMPLES_ID = 40 };
void samples_make_head(const struct serve_call *c, const char *prefix,
                       char id[SAMPLES_ID], struct openai_head *h);

#endif
