/* The JSON that generate writes. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/profile.h"
#include "qwick.h"

struct json_answer {
    const struct qwick_result *r;
    const struct qwick_info *info;
    double tokenize_ms;
    bool show_dropped;
    size_t n_dropped;              /* prompt tokens cut by --overflow */
    const struct buf *logprobs;    /* items of the array, NULL: not asked for */
    const struct profile *profile; /* NULL: not asked for */
};

/* Append the members of the answer's object, without its braces. All of these
 * return 0, or -1 when memory ran out. */
int json_answer(struct buf *b, const struct json_answer *a);

/* Append "timing":{…} alone. */
int json_timing(struct buf *b, const struct json_answer *a);

/* The bytes of one token, malloc'ed: none for a row that pads the vocabulary.
 * *text is NULL where the checkpoint has no tokenizer. Returns 0, or -1 when
 * memory ran out; *text is NULL and *n 0 then. */
int token_text(const struct qwick_engine *eng, int32_t id, char **text,
               size_t *n);

/* Append "id":…,"text":… of one token; bytes that are no UTF-8 by themselves
 * are also given as "bytes", an array of numbers. Without a tokenizer the text
 * is empty. */
int json_token(struct buf *b, const struct qwick_engine *eng, int32_t id);

/* Append "logprob":…,"top":[…] of an event. */
int json_logprob(struct buf *b, const struct qwick_engine *eng,
                 const struct qwick_token_event *ev);

int json_ids(struct buf *b, const int32_t *ids, size_t n);

#endif
