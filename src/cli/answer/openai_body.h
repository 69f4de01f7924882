/* Bodies of OpenAI's chat completions, for batch's requests of this format and
 * for serve. A body becomes a record that request.h describes. */
#ifndef CLI_OPENAI_BODY_H
#define CLI_OPENAI_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/answer/request.h"
#include "file/json.h"
#include "file/json_writer.h"

/* Most stop strings and samples of a request to serve, as OpenAI's clients and
 * servers have them. */
enum { OPENAI_MAX_STOP = 16, OPENAI_MAX_N = 8 };

struct openai_reader {
    /* What warns about members without effect. NULL: batch, where a member that
       has an effect that qwick lacks is an error, even if it is unknown. */
    struct request_context *warn;
    uint64_t number; /* of the request, for warnings */
    char *model; /* batch: the model that the first request names; NULL: none
                    yet */
    struct qwick_err *e;

    /* Of the body that was read last. */
    const struct json_value *body;
    struct json_writer *w;
    bool stream, include_usage;
    char fault[REQUEST_FAULT]; /* after a failure: the member at fault */
};

/* Write the members of the record for a body, an object, to the open object of
 * w. Returns 0, or -1 with *e set. */
int openai_read_body(struct openai_reader *x, const struct json_value *body,
                     struct json_writer *w, struct qwick_err *e);

/* Write the members of the record that a body of /v1/completions shares with
 * one of chat completions. others: its other members, with NULL at the end.
 * Returns 0, or -1 with *e set. */
int openai_read_completion(struct openai_reader *x,
                           const struct json_value *body,
                           const char *const *others, struct json_writer *w,
                           struct qwick_err *e);

/* Return the name in a body of a record's member. */
const char *openai_member_name(const char *name);

void openai_reader_free(struct openai_reader *x);

#endif
