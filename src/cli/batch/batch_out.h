/* The output of batch: lines with answers, in the order of the input or as they
 * finish, to stdout or to a file.
 *
 * A file keeps the answers of an interrupted run, and the next run continues
 * it. Each answer has a place in the order of the input. An answer that
 * finishes before the ones at earlier places must wait. When a run ends, its
 * waiting answers are held: they are put into the pending file beside the
 * output, from which the next run takes them. With redo (--redo), a run
 * replaces the answers of earlier runs that another model, prompt, seed or
 * other options gave. */
#ifndef CLI_BATCH_OUT_H
#define CLI_BATCH_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A line that an earlier run wrote, to the output or to the pending file. */
struct answered {
    uint64_t place;  /* numbers of the record's line and of the sample, in one
                        value */
    uint64_t id;     /* request_id_hash */
    uint64_t record; /* request_key, or request_line_key */
    uint64_t at;     /* offset in its file */
    uint32_t run;    /* key of the model and of the options of the run */
    bool has_key;    /* record and run are known */
    bool whole;      /* an error that answers all samples of a record */
    bool error;      /* an error */
    bool broken;     /* an answer that falls short of a constraint */
    bool incomplete; /* another answer that is cut or empty */
    bool used;       /* held, and this run has written it to the output */
    bool stale;      /* held, but it answers another prompt */
};

/* The lines of one file. They are sorted by place before the first lookup. */
struct answers {
    struct answered *v;
    size_t n, cap;
};

struct out_slot {
    char *text; /* NULL: no answer yet */
    size_t n;
};

struct batch_out {
    const char *path; /* NULL: stdout */
    int fd;
    bool unordered, failed;
    struct answers done; /* lines that the output already has */
    /* held lines; the pending file is path + ".pending" */
    struct answers held;
    char *pending; /* name of the pending file; NULL: path is not a regular
                      file */
    int pending_fd;
    bool redo;
    uint64_t n_errors;     /* lines of earlier runs that are errors */
    uint64_t n_broken;     /* lines of earlier runs that fall short of a
                              constraint */
    uint64_t n_incomplete; /* others of earlier runs that are cut or empty */
    /* Ring buffer of the answers at places [base, base + n_slots), which are
       not written yet. */
    struct out_slot *slots;
    size_t cap_slots, n_slots, first;
    uint64_t base;
    struct buf ready;
    double synced_ms;
};

/* Open the output. An existing file must be the output of an earlier run: the
 * function notes its answers and removes an incomplete last line. in_fd is the
 * input, which must be another file. Returns 0, or -1 with *e set, as do all
 * functions below that take an e. */
int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e);

/* Compare the keys of earlier answers with the key of this run. An answer with
 * another key or without a key is refused (QWICK_ERR_USAGE). With redo it is
 * dropped instead, and all other answers are held, so that this run writes them
 * again in order. */
int batch_out_begin(struct batch_out *o, uint32_t run, bool redo,
                    struct qwick_err *e);

/* Write the lines that are ready, and close the output. */
int batch_out_close(struct batch_out *o, struct qwick_err *e);

/* End the run. complete: the run answered its whole input. Answers that wait
 * for their turn are held. Held lines that the run did not use belong to input
 * that it did not read. They stay held; a complete run with redo appends them
 * to the output instead. *n_held is set to the number of held lines, and
 * *n_lost to the number of lines that cannot be held because the output has no
 * pending file. */
int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e);

enum batch_out_found { FOUND_NONE, FOUND_DONE, FOUND_HELD };

/* Find out whether an earlier run has answered sample i of the record at a
 * line. FOUND_DONE: the output has the answer. FOUND_HELD: the pending file has
 * it; pass *held to batch_out_put_held. id: request_id_hash of the record; key:
 * request_key of the sample. An earlier answer to the sample with another id or
 * key is QWICK_ERR_USAGE. With redo, such an answer in the pending file counts
 * as not found. */
int batch_out_find(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                   uint64_t key, enum batch_out_found *found,
                   struct answered **held, struct qwick_err *e);

/* Write a held line at the next place. */
int batch_out_put_held(struct batch_out *o, struct answered *held,
                       struct qwick_err *e);

/* Reserve the next place in the order of the input. */
int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e);

/* Return the number of reserved places whose lines are not written yet. */
size_t batch_out_open_places(const struct batch_out *o);

/* Put a line, newline included, at its place. Takes the memory of *b. */
int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e);

/* Write the lines whose turn has come. */
int batch_out_flush(struct batch_out *o, struct qwick_err *e);

#endif
