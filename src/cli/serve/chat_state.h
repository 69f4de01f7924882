/* The state of a call of /v1/chat/completions. */
#ifndef CLI_SERVE_CHAT_STATE_H
#define CLI_SERVE_CHAT_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/openai_chat.h"
#include "cli/answer/request.h"
#include "cli/serve/serve.h"
#include "qwick.h"
#include "text/chat/tool_calls.h"

struct chat_state;

/* One of the answers. The batch knows it as the tag of a request. */
struct chat_sample {
    struct serve_task task; /* must be the first member */
    struct chat_state *chat;
    size_t index;
    bool queued, ended;    /* in the batch; ended there */
    struct qwick_result r; /* of the answer when it has ended */

    struct tool_calls calls;  /* without tools only its text is used */
    struct buf thinking;      /* all of it */
    struct buf logprobs;      /* items that are not sent yet */
    size_t n_text, n_thought; /* bytes of text, of thinking, that came in
                                 tokens */
    size_t n_thinking;        /* tokens of thinking */
    bool oom;                 /* memory ran out in a callback */

    /* With a stream: what was sent. */
    bool began; /* the chunk with the role */
    size_t sent_thinking, sent_text, sent_calls;
};

struct chat_state {
    struct serve_call *c;
    struct request r;
    struct openai_head head; /* of completion and chunks */
    char id[40];             /* of head */
    bool include_usage;
    struct chat_sample *samples; /* [r.n] */
    size_t n_open;               /* samples in the batch */
    struct serve_error why;      /* status not 0: the call ends with it */
};

/* ---- chat_answer.c: engine thread ---- */

/* Read a token of the answer. ctx is a struct chat_sample. */
int chat_token(void *ctx, const struct qwick_token_event *ev);
/* Send the first chunk of a sample. */
void chat_send_role(struct chat_sample *x);
/* Read the end of an answer. */
void chat_end_sample(struct chat_sample *x);
/* Send what is left of a sample's stream, and its last chunk. */
void chat_send_end(struct chat_sample *x);
/* Answer, when all samples have ended without an error, and free the call. */
void chat_answer(struct chat_state *s);

#endif
