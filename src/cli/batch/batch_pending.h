/* The pending file beside the output of a batch. It holds answers for the next
 * run (see batch_out.h). */
#ifndef CLI_BATCH_PENDING_H
#define CLI_BATCH_PENDING_H

#include "cli/batch/batch_out.h"

/* A new version of the file. Initialise it with zeros, and fd with -1. */
struct pending_file {
    char *temp; /* name until it is complete */
    int fd;
    uint64_t n_bytes;
    struct buf buf;
};

/* Append s[0..n) to the new version. Returns 0, or -1 with *e set. */
int pending_add(struct batch_out *o, struct pending_file *p, const char *s,
                size_t n, struct qwick_err *e);

/* Replace the file by its new version, and sync it to the disk. Afterwards
 * o->pending_fd reads the new version. On failure the old version is unchanged.
 * If the new version is empty, the file is removed. Returns 0, or -1 with *e
 * set. */
int pending_commit(struct batch_out *o, struct pending_file *p,
                   struct qwick_err *e);

/* Drop a new version that was not committed. */
void pending_abort(struct pending_file *p);

/* Append the line at offset `at` of a file to out, with its newline. Returns 0,
 * or -1 with *e set. */
int pending_copy_line(const char *path, int fd, uint64_t at, struct buf *out,
                      struct qwick_err *e);

#endif
