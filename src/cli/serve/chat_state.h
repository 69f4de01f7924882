/* The state of a call of /v1/chat/completions. */
#ifndef CLI_SERVE_CHAT_STATE_H
#define CLI_SERVE_CHAT_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/openai_chat.h"
#include "cli/answer/request.h"
#include "cli/serve/samples.h"
#include "qwick.h"
#include "text/chat/tool_calls.h"

/* One of the answers. */
struct chat_sample {
    struct sample sample; /* must be the first member */
    size_t index;
    struct tool_calls calls;  /* without tools only its text is used */
    struct buf thinking;      /* all of it */
    struct buf logprobs;      /* items that are not sent yet */
    size_t n_text, n_thought; /* bytes of text, of thinking, that came in
                                 tokens */
    size_t n_thinking;        /* tokens of thinking */

    /* With a stream: what was sent. */
    bool began; /* the chunk with the role */
    size_t sent_thinking, sent_text, sent_calls;
};

struct chat_state {
    struct samples all; /* must be the first member; r.n chat_samples */
    struct request r;
    struct openai_head head; /* of completion and chunks */
    char id[SAMPLES_ID];     /* of head */
    bool include_usage;
};

static inline struct chat_sample *chat_at(const struct chat_state *s, size_t i)
{
    return (struct chat_sample *)samples_at(&s->all, i);
}

/* ---- chat_answer.c: engine thread ---- */

/* Read a token of the answer. ctx is a struct chat_sample. */
int chat_token(void *ctx, const struct qwick_token_event *ev);
/* Send the first chunk of a sample. */
void chat_send_role(struct chat_sample *x);
/* The callbacks of struct samples. */
void chat_end_sample(struct sample *x);
void chat_send_end(struct sample *x);
void chat_answer(struct samples *s);

#endif
