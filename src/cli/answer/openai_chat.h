/* Answers in the form of OpenAI's chat completions: chat.completion, which
 * batch and serve write, and chat.completion.chunk, of which a stream is made.
 */
#ifndef CLI_OPENAI_CHAT_H
#define CLI_OPENAI_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/answer_json.h"
#include "file/json_writer.h"
#include "qwick.h"
#include "text/chat/tool_calls.h"

struct openai_usage {
    size_t n_prompt, n_tokens;
    bool details; /* write the next two; they may differ from run to run */
    size_t n_cached, n_thinking;
};

/* A completion, or what the chunks of a stream have in common. */
struct openai_head {
    const char *id, *model;
    int64_t created;
    bool live;       /* of serve: with a fingerprint, and "reasoning" beside
                        "reasoning_content", as clients read one or the other */
    bool null_usage; /* chunks have "usage": null */
};

/* Return OpenAI's word for the end of an answer. Every cut is "length", also
 * that of a tool call. calls NULL: there are no tools. */
const char *openai_finish(enum qwick_finish why,
                          const struct tool_calls *calls);

/* Begin an object of this kind, and its array "choices". */
void openai_begin_choices(struct json_writer *w, const char *key,
                          const struct openai_head *h, const char *object);
void openai_put_usage(struct json_writer *w, const struct openai_usage *u);

/* Write a completion with the answers a[0..n) as its choices. */
void openai_completion(struct json_writer *w, const char *key,
                       const struct openai_head *h, const struct json_answer *a,
                       size_t n, const struct openai_usage *usage);

/* What a chunk adds to the choice `index`. All zeros: nothing. */
struct openai_delta {
    size_t index;
    bool role;            /* the first chunk */
    const char *thinking; /* [n_thinking]; NULL: none */
    size_t n_thinking;
    const char *text; /* [n_text]; NULL: none */
    size_t n_text;
    const struct tool_calls *calls; /* NULL: none */
    size_t call;                    /* number of the call */
    const char *arguments; /* [n_arguments] more of the call's arguments;
                              NULL: all but these */
    size_t n_arguments;
    const struct buf *logprobs; /* items of openai_logprobs; empty or NULL:
                                   none */
    const char *finish;         /* of openai_finish; NULL: not the last chunk */
};

/* Append a chunk to out. Returns 0, or -1 when out of memory. */
int openai_chunk(struct buf *out, const struct openai_head *h,
                 const struct openai_delta *d);
/* Append the chunk that has no choice, but the usage. */
int openai_usage_chunk(struct buf *out, const struct openai_head *h,
                       const struct openai_usage *usage);

/* Append a token to the items of logprobs, if it is part of the content.
 * Returns 0, or -1 when out of memory. */
int openai_logprobs(struct buf *items, const struct qwick_engine *eng,
                    const struct qwick_token_event *ev);

#endif
