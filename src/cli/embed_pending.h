/* A file beside the output of embed that keeps the vectors of an interrupted
 * run for the next one. */
#ifndef CLI_EMBED_PENDING_H
#define CLI_EMBED_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/key.h"

struct pending_row;

struct embed_pending {
    char *path; /* NULL: no file is kept, and all functions do nothing */
    int fd;
    size_t dim;
    struct pending_row *rows; /* [n_rows] vectors of earlier runs, sorted by
                                 key */
    size_t n_rows;
    size_t n_added;
    struct buf out;
};

/* Open the pending file of an output. run: key of the model and of the options
 * that change vectors. dim: numbers per vector. Vectors of another run are
 * refused; redo drops them. An output that is not a regular file has no pending
 * file. Returns 0, or an exit status with the message printed. */
int embed_pending_open(struct embed_pending *p, const char *output,
                       const struct key *run, size_t dim, bool redo);

/* Read the stored vector of a text into row [dim]. False: there is none. */
bool embed_pending_get(const struct embed_pending *p, const struct key *text,
                       float *row);

/* Store one more vector. On failure, print a warning and store no more. */
void embed_pending_put(struct embed_pending *p, const struct key *text,
                       const float *row);
void embed_pending_flush(struct embed_pending *p);

/* done: the output is complete, and the file is removed. Otherwise it stays if
 * it has any vector. Returns the number of vectors kept. */
size_t embed_pending_close(struct embed_pending *p, bool done);

#endif
