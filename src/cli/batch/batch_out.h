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
    bool over;       /* this run has written it to the output, or it answers
                        another prompt: it is held no longer */
};

/* A file of earlier runs, and its lines. They are sorted by place before the
 * first lookup. Lookups are in the order of places. */
struct out_file {
    char *path;
    int fd; /* -1: there is none */
    struct answered *v;
    size_t n, cap;
    size_t next; /* of the first line that the next lookup may find */
};

struct out_slot {
    char *text; /* NULL: no answer yet */
    size_t n;
};

struct batch_out {
    struct out_file file;    /* the output; path NULL: stdout */
    struct out_file pending; /* path: that of the output + ".pending"; NULL: the
                                output is not a regular file */
    bool unordered, redo, failed;
    bool replaces; /* this run began by holding all earlier answers */
    uint64_t n_errors;     /* lines of earlier runs that are errors */
    uint64_t n_broken;     /* lines of earlier runs that fall short of a
                              constraint */
    uint64_t n_incomplete; /* others of earlier runs that are cut or empty */
    /* Ring buffer of the answers at places [base, base + n_slots), which are
       not written yet. */
    struct out_slot *slots;
    size_t cap_slots, n_slots;
    uint64_t base;
    struct buf ready;
    double synced_ms;
};

#define BATCH_OUT_NONE                        \
    {                                         \
        .file = {.fd = -1}, .pending.fd = -1, \
    }

/* Open the output. An existing file must be the output of an earlier run: the
 * function notes its answers and those of its pending file, and removes an
 * incomplete last line. A file that batch did not write, or that another
 * process is writing, is left unchanged: QWICK_ERR_USAGE. in_fd is the input,
 * which must be another file. Returns 0, or -1 with *e set, as do all functions
 * below that take an e. */
int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e);

/* Compare the keys of earlier answers with the key of this run. An answer with
 * another key or without a key is refused (QWICK_ERR_USAGE). With redo it is
 * dropped instead, and with retry the errors are dropped; all other answers are
 * then held, so that this run writes them again in order. */
int batch_out_begin(struct batch_out *o, uint32_t run, bool redo, bool retry,
                    struct qwick_err *e);

/* Write the lines that are ready, and close the output. */
int batch_out_close(struct batch_out *o, struct qwick_err *e);

/* End the run. complete: the run answered its whole input. Answers that wait
 * for their turn are held. Held lines that the run did not use belong to input
 * that it did not read. They stay held; a complete run that replaces answers
 * appends them to the output instead. *n_held is set to the number of held lines, and
 * *n_lost to the number of lines that cannot be held because the output has no
 * pending file. */
int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e);

/* Find out whether an earlier run has answered sample i of the record at a
 * line: *found. If the pending file has the answer, it gets the next place. id:
 * request_id_hash of the record; key: batch_key_of_sample. An earlier
 * answer to the sample with another id or key is QWICK_ERR_USAGE. With redo,
 * such an answer counts as not found. */
int batch_out_reuse(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                    uint64_t key, bool *found, struct qwick_err *e);

/* Reserve the next place in the order of the input. */
int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e);

/* Return the slot of a reserved place that is not written yet. */
struct out_slot *batch_out_slot(const struct batch_out *o, uint64_t place);

/* Put a line, newline included, at its place. Takes the memory of *b. */
int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e);

/* Write the lines whose turn has come; a file is sometimes synced. */
int batch_out_flush(struct batch_out *o, struct qwick_err *e);

/* Write the lines whose turn has come to a file, and sync it. */
int batch_out_sync(struct batch_out *o, struct qwick_err *e);

#endif
