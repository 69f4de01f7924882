/* The file beside a batch's output for answers that are not due yet. */
#ifndef CLI_BATCH_PENDING_H
#define CLI_BATCH_PENDING_H

#include "cli/batch_out.h"

/* A new version of the file. Initialise with zeros and fd -1. */
struct pending_file {
    char *temp; /* its name until it is complete */
    int fd;
    uint64_t n_bytes;
    struct buf buf;
};

/* Append s[0..n) to the new version. Returns 0, or -1 with *e set. */
int pending_add(struct batch_out *o, struct pending_file *p, const char *s,
                size_t n, struct qwick_err *e);

/* Replace the file by its new version, which is on the disk when this returns;
 * o->pending_fd reads it. Until then the old version stays as it is. An empty
 * new version removes the file. Returns 0, or -1 with *e set. */
int pending_commit(struct batch_out *o, struct pending_file *p,
                   struct qwick_err *e);

/* Drop a version that was not committed. */
void pending_abort(struct pending_file *p);

/* Append to out the line at an offset of a file, with its newline. Returns 0,
 * or -1 with *e set. */
int pending_copy_line(const char *path, int fd, uint64_t at, struct buf *out,
                      struct qwick_err *e);

#endif
