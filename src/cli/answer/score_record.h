/* The text that score reads from its options, or from a line of --jsonl, with
 * the context before it. serve reads the same. */
#ifndef CLI_SCORE_RECORD_H
#define CLI_SCORE_RECORD_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/score_text.h"
#include "cli/opt/opt.h"
#include "file/json.h"
#include "qwick.h"

/* Prepare a text that follows given[0..n_given); given NULL: nothing precedes
 * it. The caller frees *t with score_free. Returns 0, or -1 with *e set. */
int score_prepare(struct score_text *t, const struct qwick_engine *eng,
                  const struct args *a, const char *given, size_t n_given,
                  const char *text, size_t n, struct qwick_err *e);

/* Prepare the text of an object {"text", "given"?}. filled: the text instead;
 * its data NULL: none. before: what precedes a text without "given"; its data
 * NULL: nothing. Returns 0, or -1 with *e set;
 * the message begins with the member's name. */
int score_record_read(struct score_text *t, const struct qwick_engine *eng,
                      const struct args *a, const struct buf *before,
                      const struct buf *filled, const struct json_value *v,
                      struct qwick_err *e);

#endif
