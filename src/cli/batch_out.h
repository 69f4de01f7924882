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
    uint64_t place;   /* of line and sample */
    uint64_t id;      /* request_id_hash */
    uint64_t record;  /* request_key, or request_line_key */
    uint64_t at;      /* offset in its file */
    uint32_t run;     /* of the model and what holds for all answers */
    bool has_key;     /* the last but one and run are there */
    bool whole;       /* an error of the whole record */
    bool error;       /* of whatever */
    bool incomplete;  /* an answer that is cut or empty */
    bool used, stale; /* held lines: it was put out; it is another prompt's */
};

/* Lines of one file, by place once they are looked up. */
struct answers {
    struct answered *v;
    size_t n, cap;
};

struct out_slot {
    char *text; /* NULL: not there yet */
    size_t n;
};

struct batch_out {
    const char *path; /* NULL: stdout */
    int fd;
    bool unordered, failed;
    struct answers done; /* lines of path */
    /* Answers that were finished before they were due wait in a file of their
       own, path with .pending behind it, for the next run. */
    struct answers held;
    char *pending; /* its name; NULL: path is no regular file */
    int pending_fd;
    bool redo;
    uint64_t n_errors;     /* lines of earlier runs that are errors */
    uint64_t n_incomplete; /* and those whose answers are cut or empty */
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

/* Now that the key of the run is known: earlier answers that have another one,
 * or none, are refused (QWICK_ERR_USAGE), or with redo dropped. Redo moves all
 * others to the pending file, from where they are put out in order. */
int batch_out_begin(struct batch_out *o, uint32_t run, bool redo,
                    struct qwick_err *e);

/* Write what is ready and close. */
int batch_out_close(struct batch_out *o, struct qwick_err *e);

/* The run has ended. complete: it has answered its whole input; what is then
 * still held belongs to lines that it has not read: it stays held, with redo it
 * is put out. Otherwise finished answers that are not due are held. *n_held:
 * how many are; *n_lost: how many cannot be, there being no file to hold them.
 */
int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e);

enum batch_out_found { FOUND_NONE, FOUND_DONE, FOUND_HELD };

/* Whether an earlier run has answered sample i of the record at a line. id: its
 * request_id_hash, key: its request_key; others are QWICK_ERR_USAGE, but for a
 * key with redo. FOUND_HELD: *held is for batch_out_put_held. */
int batch_out_find(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                   uint64_t key, enum batch_out_found *found,
                   struct answered **held, struct qwick_err *e);

/* Put a held line at the next place. */
int batch_out_put_held(struct batch_out *o, struct answered *held,
                       struct qwick_err *e);

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
