/* The output of batch: answers in order or as they come, to stdout or to a
 * file. A file keeps the answers of an interrupted run, and the next run goes
 * on from there. */
#ifndef CLI_BATCH_OUT_H
#define CLI_BATCH_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A line that an earlier run wrote. */
struct answered {
    uint64_t place;  /* numbers of the line and the sample in one value */
    uint64_t id;     /* request_id_hash */
    uint64_t record; /* request_key, or request_line_key */
    uint64_t at;     /* offset in its file */
    uint32_t run;    /* key of the model and of the options of the run */
    bool has_key;    /* record and run are known */
    bool whole;      /* an error that answers all samples of a record */
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
    struct answers done; /* lines that the file already has */
    /* Answers that finish before their turn wait for the next run in a file of
       their own, path + ".pending". */
    struct answers held;
    char *pending; /* name of that file; NULL: path is not a regular file */
    int pending_fd;
    bool redo;
    uint64_t n_errors;     /* lines of earlier runs that are errors */
    uint64_t n_incomplete; /* lines of earlier runs that are cut or empty */
    /* Ring buffer of the answers at places [base, base + n_slots), which are
     * not written yet
     */
    struct out_slot *slots;
    size_t cap_slots, n_slots, first;
    uint64_t base;
    struct buf ready;
    double synced_ms;
};

/* Open the output. An existing file must be the output of an earlier run: the
 * function notes its answers and removes an incomplete last line. in_fd: the
 * input, which must be another file. Returns 0, or -1 with *e set, like all
 * functions below. */
int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e);

/* Compare earlier answers with the key of this run. Answers with another key or
 * without a key are refused (QWICK_ERR_USAGE). With redo they are dropped
 * instead, and all others move to the pending file, from which the run writes
 * them in order.
 */
int batch_out_begin(struct batch_out *o, uint32_t run, bool redo,
                    struct qwick_err *e);

/* Write the lines that are ready, and close. */
int batch_out_close(struct batch_out *o, struct qwick_err *e);

/* End the run. complete: the run answered its whole input. Held lines that the
 * run did not use belong to input that it did not read. They stay held; a
 * complete run with redo appends them to the output instead. Finished answers
 * whose turn has not come are held as well. *n_held: number of held lines.
 * *n_lost: number of lines that cannot be held because the output has no
 * pending file. */
int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e);

enum batch_out_found { FOUND_NONE, FOUND_DONE, FOUND_HELD };

/* Find out whether an earlier run has answered sample i of the record at a
 * line. id: request_id_hash of the record; key: request_key of the sample. An
 * earlier answer with another id or key is an error, QWICK_ERR_USAGE; with
 * redo, held answers may differ. FOUND_HELD: pass *held to
 * batch_out_put_held. */
int batch_out_find(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                   uint64_t key, enum batch_out_found *found,
                   struct answered **held, struct qwick_err *e);

/* Put a held line at the next place. */
int batch_out_put_held(struct batch_out *o, struct answered *held,
                       struct qwick_err *e);

/* Reserve the next place in the order of the input. */
int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e);

/* Number of reserved places whose lines are not written yet. */
size_t batch_out_open_places(const struct batch_out *o);

/* Put a line, newline included, at its place; takes the memory of *b. */
int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e);

/* Write the lines whose turn has come. */
int batch_out_flush(struct batch_out *o, struct qwick_err *e);

#endif
