/* The answers of a batch on their way out: in order or as they come, to stdout
 * or to a file in which a run that was cut off is continued. */
#ifndef CLI_BATCH_OUT_H
#define CLI_BATCH_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A line that an earlier run has written. */
struct answered {
    uint64_t key; /* of line and sample */
    uint64_t id;  /* record_id_hash */
    bool whole;   /* an error of the whole record */
};

struct out_slot {
    char *text; /* NULL: not there yet */
    size_t n;
};

struct batch_out {
    const char *path; /* NULL: stdout */
    int fd;
    bool unordered, failed;
    struct answered *answered; /* [n_answered], by key */
    size_t n_answered, cap_answered;
    bool had_errors; /* among them */
    /* places [base, base + n_slots) are not written; slots is a ring */
    struct out_slot *slots;
    size_t cap_slots, n_slots, first;
    uint64_t base;
    struct buf ready;
    double synced_ms;
};

/* Open the output. A file that is there must be one of an earlier run: its
 * answers are noted, a last line that was cut off is removed. in_fd: the input,
 * which must be another file. */
int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e);

/* Write what is ready and close. */
int batch_out_close(struct batch_out *o, struct qwick_err *e);

/* Whether an earlier run has answered sample i of the record at a line. id: its
 * record_id_hash; another one is QWICK_ERR_USAGE. */
int batch_out_answered(const struct batch_out *o, uint64_t line, size_t i,
                       uint64_t id, bool *yes, struct qwick_err *e);

/* The next place in the order of the input. */
int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e);

/* Places handed out whose lines are not written. */
size_t batch_out_open_places(const struct batch_out *o);

/* Put a line, newline included, at its place; takes the memory of *b. */
int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e);

/* Write what may be written. */
int batch_out_flush(struct batch_out *o, struct qwick_err *e);

#endif
