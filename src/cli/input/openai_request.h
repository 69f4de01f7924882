/* Requests of OpenAI's batch format. A line of it is an object
 *
 *   {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body"}
 *
 * and becomes a record that request.h of answer describes. */
#ifndef CLI_OPENAI_REQUEST_H
#define CLI_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/answer/openai_body.h"

/* Set *is to whether a line is such a request: an object with "custom_id" and
 * "body". Returns 0, or -1 with *e set when out of memory. */
int openai_is_request(const char *text, size_t n, bool *is,
                      struct qwick_err *e);

/* Append the record's JSON to *json. x is shared by the requests of a file: it
 * is an error if they name different models. Returns 0, or -1 with *e set; then
 * *json has an object with only the id, or nothing. */
int openai_request(struct body_reader *x, const char *text, size_t n,
                   struct buf *json, struct qwick_err *e);

#endif
