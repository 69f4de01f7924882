/* Reads and answers records: lines of JSON. Each input line gives one output
 * line, in order. */
#ifndef CLI_RECORDS_H
#define CLI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "file/json_writer.h"
#include "cli/io/lines.h"
#include "cli/io/strings.h"
#include "file/json.h"
#include "qwick.h"

/* ---- one record ---- */

struct record {
    struct json_doc *doc;
    const struct json_value *value; /* the line's object, or NULL */
    struct buf id;    /* the value of "id" as JSON; empty: no id */
    struct buf error; /* why the line has no answer, beginning with its place;
                         empty: no error */
};

/* Read a line. A fault of the line goes to r->error. Returns 0, or -1 when out
 * of memory. Call record_free in both cases. */
int record_read(struct record *r, const struct line *l);
void record_free(struct record *r);

/* Append a message, preceded by `where` unless the message begins with it.
 * Returns 0, or -1 when out of memory. */
int record_message(struct buf *out, const char *where, const char *msg);

/* ---- a filter of records ---- */

/* Maximum number of records in a group. The records of a group are evaluated
 * jointly. */
enum { RECORDS_GROUP = 256 };

/* Callbacks of a verb. A verb either has `answer`, or it has `read`, `work`,
 * `write` and `drop`. */
struct records_work {
    /* Answer a line at once: write the members of its object, after "id". The
       value may be of any type. If it returns -1, the line becomes {"error"}
       and the members written are dropped. */
    int (*answer)(void *ctx, const struct line *l, const struct json_value *v,
                  struct json_writer *w, struct qwick_err *e);

    /* Take the object of a line as record i of a group. If it returns -1, the
       line becomes {"error"} and place i stays empty. */
    int (*read)(void *ctx, size_t i, const struct json_value *v,
                struct qwick_err *e);
    /* Answer the records of the group. A failure ends the run. */
    int (*work)(void *ctx, struct qwick_err *e);
    /* Write the members of the object that answers record i, after "id". A
       failure ends the run. */
    int (*write)(void *ctx, size_t i, struct json_writer *w,
                 struct qwick_err *e);
    /* Forget the group. */
    void (*drop)(void *ctx);
    /* Instead of `write`: append the whole line that answers record i. error:
       why it has no answer; NULL: it has one, or is blank. */
    void (*row)(void *ctx, size_t i, const char *error, struct buf *out);
    /* Hand out the lines of the input to h, as lines_run does. NULL: lines_run
       does so. */
    int (*input)(void *ctx, const struct lines_handler *h, void *h_ctx);
    bool silent; /* print only errors; `write` is still called */
    bool required; /* an input without any record is an error */
};

/* Print that the input `name` has no records. Returns exit status 2. */
int records_none(const char *verb, const char *name);

/* Answer the lines of the files, or of standard input when no file is given. A
 * group is answered when it is full, and before each wait for input. Returns an
 * exit status: 1 if a line was bad. */
int records_run(const char *verb, const struct strings *files,
                const struct records_work *w, void *ctx);

#endif
