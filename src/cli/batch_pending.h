/* The file beside a batch's output for answers that are not due yet. */
#ifndef CLI_BATCH_PENDING_H
#define CLI_BATCH_PENDING_H

#include "cli/batch_out.h"

/* A new content on its way; zeros with fd -1 to begin with. */
struct pending_file {
    char *temp;
    int fd;
    uint64_t n_bytes;
    struct buf buf;
};

/* Append s[0..n) to the new content. */
int pending_add(struct batch_out *o, struct pending_file *p, const char *s,
                size_t n, struct qwick_err *e);

/* The new content takes the place of the old one, which until then stays as it
 * is, and is on the disk when this returns; o->pending_fd reads it. Without
 * content there is no file. */
int pending_commit(struct batch_out *o, struct pending_file *p,
                   struct qwick_err *e);

/* Drop what was not committed. */
void pending_abort(struct pending_file *p);

/* Append the line at an offset of a file, its newline included. */
int pending_copy_line(const char *path, int fd, uint64_t at, struct buf *out,
                      struct qwick_err *e);

#endif
