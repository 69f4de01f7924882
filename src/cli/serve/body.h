/* Bodies of requests that no record of batch describes: objects with a few
 * members. All functions belong to the preparation thread. Those that return
 * int return 0, or -1 with *e set. */
#ifndef CLI_BODY_H
#define CLI_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/serve/serve.h"
#include "file/json.h"

/* Allocate the state of a call, n bytes of zeros, and return it. NULL with *e
 * set: out of memory. */
void *body_state(struct serve_call *c, size_t n, struct serve_error *e);

/* Parse the body of a call, which must be an object. names: of the members that
 * the endpoint knows, with NULL at the end; others are named once in the log.
 * names NULL: the caller looks for others.
 * The caller frees *doc with json_free, also after a failure. */
int body_read(struct serve_call *c, const char *const *names,
              struct json_doc **doc, struct serve_error *e);

/* Set *e to an error of the library, about this member (NULL: none). A model
 * that lacks what the endpoint needs is a fault of the request. Returns -1. */
int body_fault(struct serve_error *e, const char *param,
               const struct qwick_err *why);

/* Read a member that is true or false; absent or null: false. */
int body_bool(const struct json_value *v, const char *name, bool *out,
              struct serve_error *e);
/* Read a member that is an integer from min to max. Absent or null: *out stays
 * as it is. */
int body_int(const struct json_value *v, const char *name, int64_t min,
             int64_t max, int64_t *out, struct serve_error *e);

/* Texts or lists of token ids: a member that is one of them, or an array of
 * them. */
struct body_inputs {
    const char *name;               /* of the member */
    const struct json_value *items; /* [n] each a string, or an array of
                                       integers */
    size_t n;
};

/* Most inputs of a request. */
enum { BODY_MAX_INPUTS = 2048 };

/* Read such a member. None of the inputs is empty, and there is at least
 * one. */
int body_inputs(const struct json_value *v, const char *name,
                struct body_inputs *in, struct serve_error *e);
/* Copy the token ids of input i, which is an array, to *ids [*n], which the
 * caller frees. They are below vocab_size. */
int body_ids(const struct body_inputs *in, size_t i, size_t vocab_size,
             int32_t **ids, size_t *n, struct serve_error *e);

#endif
