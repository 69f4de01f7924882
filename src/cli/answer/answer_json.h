/* JSON of answers and tokens. Most functions append to a writer; its jw_status
 * tells whether memory ran out. */
#ifndef CLI_ANSWER_JSON_H
#define CLI_ANSWER_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/constraint_opts.h"
#include "text/chat/code_block.h"
#include "file/json_writer.h"
#include "cli/report/profile.h"
#include "text/chat/tool_calls.h"
#include "qwick.h"

struct json_answer {
    const struct qwick_result *r;
    const struct qwick_info *info;
    double tokenize_ms;
    bool show_dropped;
    size_t n_dropped; /* prompt tokens cut by --overflow */
    bool show_forced;
    const int32_t *prompt; /* [n_prompt] its ids; NULL: not written */
    size_t n_prompt;
    const struct buf *logprobs;     /* see json_logprobs; NULL: not requested */
    const struct code_block *block; /* after its end, the member "code"; NULL:
                                       not requested */
    const struct tool_calls *calls; /* after its end; NULL: the chat has no
                                       tools */
    const struct profile *profile;  /* NULL: not requested */
    enum schema_verdict schema;
};

/* Write the members of an answer's object. */
void json_answer(struct json_writer *w, const struct json_answer *a);

/* Write only the member "timing" of an answer's object. */
void json_timing(struct json_writer *w, const struct json_answer *a);

/* Set *text to the *n bytes of one token, malloc'ed. An id that only pads the
 * vocabulary has no bytes. *text is NULL if the checkpoint has no tokenizer.
 * Returns 0, or -1 when out of memory; then *text is NULL and *n is 0. */
int token_text(const struct qwick_engine *eng, int32_t id, char **text,
               size_t *n);

/* Write the member "text". If the bytes are not valid UTF-8, also write them as
 * "bytes", an array of numbers. */
void json_text(struct json_writer *w, const char *s, size_t n);

/* Write "id" and the members of json_text for one token. Without a tokenizer
 * the text is empty. */
void json_token(struct json_writer *w, const struct qwick_engine *eng,
                int32_t id);

/* Write the members "logprob" and "top" of an event. */
void json_logprob(struct json_writer *w, const struct qwick_engine *eng,
                  const struct qwick_token_event *ev);

/* Append an event's token and its log-probability to items, which collects the
 * array "logprobs" of an answer. Returns 0, or -1 when out of memory. */
int json_logprobs(struct buf *items, const struct qwick_engine *eng,
                  const struct qwick_token_event *ev);

void json_ids(struct json_writer *w, const char *key, const int32_t *ids,
              size_t n);

#endif
