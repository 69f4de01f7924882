/* Filters of JSON lines: one object a line in, one a line out, in order. */
#ifndef CLI_JSONL_H
#define CLI_JSONL_H

#include <stdbool.h>

#include "cli/json_writer.h"
#include "cli/opt.h"
#include "file/json.h"
#include "qwick.h"

struct jsonl_line {
    const char *where; /* "FILE: line N", for messages */
    const char *text;  /* as it was read */
    size_t n;
    const struct json_value *value;
};

/* Write the members of one line's answer. On -1 what was written is dropped and
 * the line becomes {"error": e->msg}. */
typedef int (*jsonl_fn)(void *ctx, const struct jsonl_line *line,
                        struct json_writer *w, struct qwick_err *e);

/* Run fn over the lines of the files, of standard input when there are none.
 * Output is written before each wait for input. Returns the exit status: 1 when
 * a line was bad. */
int jsonl_run(const struct verb *v, const struct opt_texts *files, jsonl_fn fn,
              void *ctx);

#endif
