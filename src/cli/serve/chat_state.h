/* The state of a call that a conversation begins: /v1/chat/completions and the
 * endpoints of other protocols, each with its form. */
#ifndef CLI_SERVE_CHAT_STATE_H
#define CLI_SERVE_CHAT_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/body_members.h"
#include "cli/answer/openai_chat.h"
#include "cli/answer/request.h"
#include "cli/serve/samples.h"
#include "qwick.h"
#include "text/chat/tool_calls.h"

struct chat_state;
struct chat_sample;

/* A protocol's bodies and answers: a row for each. All functions but `read`
 * belong to the engine thread. Those that send set sample.oom when memory runs
 * out. */
struct chat_form {
    const char *id_prefix;   /* of the answer's id */
    const char *call_prefix; /* of ids of tool calls; NULL: "call" */
    bool same_members; /* messages and tools of bodies are those of records, at
                          the same places */
    /* The name in a body of a record's member. */
    const char *(*member_name)(const char *name);
    /* Preparation thread: write the members of the record (request.h) for
     * x->body to x->w. Sets x->stream, and may set members of s. Returns 0, or
     * -1 with *x->e and x->fault set. */
    int (*read)(struct chat_state *s, struct body_reader *x);
    /* With a stream: send the beginning of a sample, once. */
    void (*send_begin)(struct chat_sample *x);
    /* Send what the sample has that was not sent. all: it has ended, so calls
     * are whole, and log-probabilities without text go out, too. */
    void (*send)(struct chat_sample *x, bool all);
    /* Send the end of a sample, after `send`. */
    void (*send_end)(struct chat_sample *x);
    /* Send the end of the stream, after that of all samples; the caller ends
     * it. Returns 0, or -1 when out of memory. */
    int (*send_last)(struct chat_state *s, const struct openai_usage *usage);
    /* Write the answer without stream. a[s->r.n] are its samples. */
    void (*write)(struct chat_state *s, const struct json_answer *a,
                  const struct openai_usage *usage, struct json_writer *w);
    /* Any thread: free s->own. NULL: the form has none. */
    void (*free)(struct chat_state *s);
};

extern const struct chat_form chat_form_openai;
extern const struct chat_form chat_form_responses;
extern const struct protocol protocol_responses;
extern const struct chat_form chat_form_messages;
extern const struct chat_form chat_form_count; /* of count_tokens */
extern const struct protocol protocol_messages;

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
    bool call_open;        /* the beginning of the next call */
    size_t sent_arguments; /* of this call */
    size_t n_blocks; /* Messages: blocks that have begun */
    int block;       /* Messages: the kind of the one that is open */
};

struct chat_state {
    struct samples all; /* must be the first member; r.n chat_samples */
    const struct chat_form *form; /* of the endpoint */
    struct request r;
    struct openai_head head; /* of completion and chunks */
    char id[SAMPLES_ID];     /* of head */
    bool include_usage;
    bool warm; /* the prompt is evaluated for the cache, and nothing answered */
    void *own; /* of the form */
};

static inline struct chat_state *chat_of(const struct chat_sample *x)
{
    return (struct chat_state *)x->sample.all;
}

static inline struct chat_sample *chat_at(const struct chat_state *s, size_t i)
{
    return (struct chat_sample *)samples_at(&s->all, i);
}

/* ---- chat.c: preparation thread ---- */

/* Make the state of a call, and read its request: s->r. Sets c->stream. Returns
 * NULL with *e set after a failure. */
struct chat_state *chat_open(struct serve_call *c, struct serve_error *e);

/* ---- chat_answer.c: engine thread ---- */

/* Read a token of the answer. ctx is a struct chat_sample. */
int chat_token(void *ctx, const struct qwick_token_event *ev);
/* What of a call was not sent. */
struct chat_call_piece {
    size_t i; /* number of the call */
    const struct tool_call *call;
    bool begins, ends;
    const char *arguments; /* [n] the next of them */
    size_t n;
};

/* Take the next piece of calls as sent. Returns false if there is none. */
bool chat_next_call(struct chat_sample *x, struct chat_call_piece *out);

/* The callbacks of struct samples. */
void chat_end_sample(struct sample *x);
void chat_send_end(struct sample *x);
void chat_answer(struct samples *s);

#endif
