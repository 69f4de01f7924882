/* The output of batch: answers in order or as they come, to stdout or to a
 * file. A file keeps what an interrupted run has answered, and the next run
 * goes on from there. */
#ifndef CLI_BATCH_OUT_H
#define CLI_BATCH_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A line that an earlier run has written. */
struct answered {
    uint64_t place;  /* number of the line and the sample */
    uint64_t id;     /* request_id_hash */
    uint64_t record; /* request_key, or request_line_key */
    uint64_t at;     /* offset in its file */
    uint32_t run;    /* key of the model and of the options of the run */
    bool has_key;    /* record and run are known */
    bool whole;      /* an error that stands for all samples of a record */
    bool error;      /* any error */
    bool incomplete; /* an answer that is cut or empty */
    bool used;       /* a held line that was written to the output */
    bool stale;      /* a held line that answers another prompt */
};

/* Lines of one file. They are sorted by place before the first lookup. */
struct answers {
    struct answered *v;
    size_t n, cap;
};

struct out_slot {
    char *text; /* NULL: not answered yet */
    size_t n;
};

struct batch_out {
    const char *path; /* NULL: stdout */
    int fd;
    bool unordered, failed;
    struct answers done; /* lines that path has already */
    /* Answers that finish before their turn wait for the next run in a file of
       their own, path + ".pending". */
    struct answers held;
    char *pending; /* name of that file; NULL: path is no regular file */
    int pending_fd;
    bool redo;
    uint64_t n_errors;     /* lines of earlier runs that are errors */
    uint64_t n_incomplete; /* lines of earlier runs that are cut or empty */
    /* A ring of the answers at places [base, base + n_slots), not written yet
     */
    struct out_slot *slots;
    size_t cap_slots, n_slots, first;
    uint64_t base;
    struct buf ready;
    double synced_ms;
};

/* Open the output. An existing file must be the output of an earlier run: its
 * answers are noted, and an incomplete last line is removed. in_fd: the input,
 * which must be another file. Returns 0, or -1 with *e set, as all below do. */
int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e);

/* Compare earlier answers with the key of this run. Answers with another key,
 * or with none, are refused (QWICK_ERR_USAGE); redo drops them instead, and
 * moves all others to the pending file, from where they are written in order.
 */
int batch_out_begin(struct batch_out *o, uint32_t run, bool redo,
                    struct qwick_err *e);

/* Write what is ready and close. */
int batch_out_close(struct batch_out *o, struct qwick_err *e);

/* The run has ended. complete: it has answered its whole input. Lines that are
 * still held then belong to input that it has not read; they stay held, or with
 * redo go to the output. If the run is not complete, finished answers whose
 * turn has not come are held. *n_held: how many lines are held. *n_lost: how
 * many cannot be held because the output has no pending file. */
int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e);

enum batch_out_found { FOUND_NONE, FOUND_DONE, FOUND_HELD };

/* Whether an earlier run has answered sample i of the record at a line. id: its
 * request_id_hash; key: its request_key. An answer with another id or key is
 * QWICK_ERR_USAGE; redo allows another key. FOUND_HELD: *held is for
 * batch_out_put_held. */
int batch_out_find(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                   uint64_t key, enum batch_out_found *found,
                   struct answered **held, struct qwick_err *e);

/* Put a held line at the next place. */
int batch_out_put_held(struct batch_out *o, struct answered *held,
                       struct qwick_err *e);

/* Reserve the next place in the order of the input. */
int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e);

/* The number of reserved places whose lines are not written yet. */
size_t batch_out_open_places(const struct batch_out *o);

/* Put a line, newline included, at its place; takes the memory of *b. */
int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e);

/* Write the lines whose turn has come. */
int batch_out_flush(struct batch_out *o, struct qwick_err *e);

#endif
