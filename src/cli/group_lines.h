/* Filters of JSON lines that answer many records in one go: lines in, one line
 * out for each, in order. */
#ifndef CLI_GROUP_LINES_H
#define CLI_GROUP_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/json_writer.h"
#include "cli/opt.h"
#include "file/json.h"
#include "qwick.h"

/* Most records of a group. */
enum { GROUP_MAX = 256 };

struct group_work {
    /* Take the record of a line as number i of the group. -1: the line becomes
     * {"error"}, and the place stays empty. */
    int (*read)(void *ctx, size_t i, const struct json_value *v,
                struct qwick_err *e);
    /* Answer the records there are; a failure ends the run. */
    int (*work)(void *ctx, struct qwick_err *e);
    /* Write the members of answer i's object. */
    int (*write)(void *ctx, size_t i, struct json_writer *w,
                 struct qwick_err *e);
    /* Forget the group. */
    void (*drop)(void *ctx);
    bool silent; /* write is called, but only errors are printed */
};

/* Run the lines of the files, of standard input when there are none. A group is
 * answered when it is full or no more input is there at the moment. A record's
 * "id" comes first in its answer, whatever it is. Returns the exit status: 1
 * when a line was bad. */
int group_run(const struct verb *v, const struct opt_texts *files,
              const struct group_work *w, void *ctx);

#endif
