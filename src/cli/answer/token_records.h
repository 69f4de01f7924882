/* What tokenize, detokenize and count answer to one object. serve answers with
 * the same. */
#ifndef CLI_TOKEN_RECORDS_H
#define CLI_TOKEN_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "file/json.h"
#include "file/json_writer.h"
#include "qwick.h"

/* Encode a text into ids. Returns 0, or -1 with *e set. */
int tokens_encode(const struct qwick_engine *eng, const struct args *a,
                  const char *text, size_t n, int32_t **ids, size_t *n_ids,
                  struct qwick_err *e);
/* Write the member "ids", or with count only their number. */
void tokens_put_ids(struct json_writer *w, bool count, const int32_t *ids,
                    size_t n);
/* Write the members "text" and "bytes_hex". */
void tokens_put_text(struct json_writer *w, const char *text, size_t n);

/* Write the members of the object that answers {"text"}: "ids", or with count
 * only their number. The value may be of any type. Returns 0, or -1 with *e
 * set; the message begins with the member's name. */
int tokenize_record(const struct qwick_engine *eng, const struct args *a,
                    bool count, const struct json_value *v,
                    struct json_writer *w, struct qwick_err *e);

/* Write the members of the object that answers {"ids", "skip_special"?}. */
int detokenize_record(const struct qwick_engine *eng, const struct args *a,
                      const struct json_value *v, struct json_writer *w,
                      struct qwick_err *e);

/* Read the token ids of an array, [list->len] from 0 to max, which the caller
 * frees. name: of the member, for messages. Returns 0, or -1 with *e set. */
int token_ids_read(const struct json_value *list, const char *name, int32_t max,
                   int32_t **ids, struct qwick_err *e);

#endif
