/* The pending file beside the output of embed. It keeps the vectors of an
 * interrupted run for the next run. */
#ifndef CLI_EMBED_PENDING_H
#define CLI_EMBED_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/key.h"

struct pending_row;

struct embed_pending {
    char *path; /* NULL: there is no pending file, and all functions do
                   nothing */
    int fd;
    size_t dim;
    struct pending_row *rows; /* [n_rows] vectors of earlier runs, sorted by
                                 key */
    size_t n_rows;
    size_t n_added;
    struct buf out;
};

/* Open the pending file of an output. run: key of the model and of the options
 * that change vectors. dim: numbers in a vector. Vectors of a run with another
 * key are refused; with redo they are dropped. An output that is not a regular
 * file has no pending file. Returns 0, or an exit status after printing a
 * message. */
int embed_pending_open(struct embed_pending *p, const char *output,
                       const struct key *run, size_t dim, bool redo);

/* Read the stored vector of a text into row [dim]. Returns false if there is
 * none. */
bool embed_pending_get(const struct embed_pending *p, const struct key *text,
                       float *row);

/* Store one more vector. On failure, it prints a warning and stores no more
 * vectors. */
void embed_pending_put(struct embed_pending *p, const struct key *text,
                       const float *row);
void embed_pending_flush(struct embed_pending *p);

/* Close the file. done: the output is complete, so the file is removed.
 * Otherwise the file stays if it has any vector. Returns the number of vectors
 * that it keeps. */
size_t embed_pending_close(struct embed_pending *p, bool done);

#endif
