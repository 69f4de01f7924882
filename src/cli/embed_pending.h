/* Vectors of a run of embed that has not ended, in a file beside its output,
 * from which the next run takes them. */
#ifndef CLI_EMBED_PENDING_H
#define CLI_EMBED_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/key.h"

struct pending_row;

struct embed_pending {
    char *path; /* NULL: there is none, all below does nothing */
    int fd;
    size_t dim;
    struct pending_row *rows; /* [n_rows] of earlier runs, by key */
    size_t n_rows;
    size_t n_added;
    struct buf out;
};

/* The file of an output. run: the key of the model and the options that change
 * vectors of dim numbers; what is there of another one is refused, or with redo
 * dropped. An output that is no regular file has none. 0, or an exit status
 * with the message printed. */
int embed_pending_open(struct embed_pending *p, const char *output,
                       const struct key *run, size_t dim, bool redo);

/* Read the vector of a text into row [dim]. False: there is none. */
bool embed_pending_get(const struct embed_pending *p, const struct key *text,
                       float *row);

/* One more. Not being able to store it is worth a warning, no more. */
void embed_pending_put(struct embed_pending *p, const struct key *text,
                       const float *row);
void embed_pending_flush(struct embed_pending *p);

/* done: the output is complete, the file goes; else it stays if it has any
 * vector. Returns how many it has. */
size_t embed_pending_close(struct embed_pending *p, bool done);

#endif
