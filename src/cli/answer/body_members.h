/* Members of the bodies of protocols as rows: what batch's requests in OpenAI's
 * form and serve's endpoints share. A body becomes a record that request.h
 * describes. All functions that return int return 0, or -1 with *x->e and
 * x->fault set. */
#ifndef CLI_BODY_MEMBERS_H
#define CLI_BODY_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/answer/request.h"
#include "file/json.h"
#include "file/json_writer.h"

struct body_reader {
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

void body_reader_free(struct body_reader *x);

struct body_member {
    const char *name;
    /* Write the members of the record for the value m, which is not null. */
    int (*put)(struct body_reader *x, const struct body_member *row,
               const struct json_value *m);
    const char *to; /* the record's name, if it is another one; or the only
                       value that is supported */
};

/* Begin to read a body. */
void body_begin(struct body_reader *x, const struct json_value *body,
                struct json_writer *w, struct qwick_err *e);
/* Read a member by its row of rows[0..n). */
int body_read_member(struct body_reader *x, const struct body_member *rows,
                     size_t n, const struct json_value *key,
                     const struct json_value *m);
/* Read all members of x->body. */
int body_read_members(struct body_reader *x, const struct body_member *rows,
                      size_t n);

/* Most stop strings of a request to serve. */
enum { BODY_MAX_STOP = 16 };

/* Set the error to a message about the member `name`. Returns -1. */
int body_refuse(struct body_reader *x, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* For a member that has no effect. */
int body_unknown(struct body_reader *x, const struct json_value *key);

/* ---- functions of rows ---- */

/* The record has the same member. */
int body_same(struct body_reader *x, const struct body_member *row,
              const struct json_value *m);
/* For members that change no answer. */
int body_nothing(struct body_reader *x, const struct body_member *row,
                 const struct json_value *m);
/* For members that would change the answer if they had a value. */
int body_never(struct body_reader *x, const struct body_member *row,
               const struct json_value *m);
/* Refuse every value but row->to. */
int body_only(struct body_reader *x, const struct body_member *row,
              const struct json_value *m);
/* The model's name, which the first request of a batch sets. */
int body_model(struct body_reader *x, const struct body_member *row,
               const struct json_value *m);
/* Set x->stream. */
int body_stream(struct body_reader *x, const struct body_member *row,
                const struct json_value *m);
/* Stop strings: one, or an array of at most BODY_MAX_STOP for serve. */
int body_stop(struct body_reader *x, const struct body_member *row,
              const struct json_value *m);
/* parallel_tool_calls */
int body_parallel(struct body_reader *x, const struct body_member *row,
                  const struct json_value *m);

#endif
