/* The state of a call of /v1/completions. */
#ifndef CLI_COMPLETION_STATE_H
#define CLI_COMPLETION_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/request.h"
#include "cli/serve/samples.h"
#include "qwick.h"

/* Most candidates of a token that logprobs shows. */
enum { COMPLETION_MAX_TOP = 5 };

/* Log-probabilities in the form of this endpoint: the items of its arrays. */
struct completion_logprobs {
    struct buf tokens, values, tops, offsets;
    size_t at; /* characters before the next token */
};

struct completion_prompt {
    struct request r;
    struct buf text;  /* with echo */
    size_t n_hidden;  /* its first ids that the text does not have: BOS */
    double *logprobs; /* [r.n_ids] of the prompt, with echo and logprobs */
    struct qwick_logprob *top; /* [r.n_ids, n_top] */
};

/* One of the answers. */
struct completion_sample {
    struct sample sample; /* must be the first member */
    struct completion_prompt *prompt;
    size_t index;
    struct buf text; /* with echo, it begins with the prompt */
    size_t n_text;   /* bytes of the answer that came in tokens */
    size_t sent;     /* bytes of text that were sent */
    struct completion_logprobs logprobs; /* with a stream: those not sent yet */
};

struct completion_state {
    struct samples all; /* must be the first member */
    struct openai_head head;
    char id[SAMPLES_ID];               /* of head */
    struct completion_prompt *prompts; /* [n_prompts], with r.n samples each */
    size_t n_prompts;
    bool echo, include_usage;
    bool empty; /* max_tokens is 0: there is only the echo */
    bool with_logprobs;
    size_t n_top;                   /* candidates that logprobs shows */
    struct qwick_scorer *scorer;    /* of the prompts; NULL: not needed */
    struct qwick_score_item *items; /* [n_prompts] of the scorer */
};

/* ---- completion_answer.c: engine thread ---- */

/* Read a token of the answer. ctx is a struct completion_sample. */
int completion_token(void *ctx, const struct qwick_token_event *ev);
/* Begin the text of a sample with its prompt. */
void completion_echo(struct completion_sample *x);
/* The callbacks of struct samples. */
void completion_end(struct sample *x);
void completion_send_end(struct sample *x);
void completion_answer(struct samples *s);
void completion_logprobs_free(struct completion_logprobs *l);

#endif
