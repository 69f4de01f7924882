/* Writes vectors in one of several formats. */
#ifndef CLI_VECTORS_H
#define CLI_VECTORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "file/save.h"
#include "qwick.h"

enum vectors_format {
    VECTORS_JSONL, /* lines of JSON that the caller composes */
    VECTORS_TSV,   /* one line of numbers per vector */
    VECTORS_F32,   /* raw float32, little-endian */
    VECTORS_NPY    /* NumPy's format 1.0: float32 [n, dim] */
};

enum vectors_format vectors_format(const char *name); /* NULL: jsonl */

struct vectors {
    enum vectors_format format;
    size_t dim, n;
    const char *path; /* NULL: standard output */
    struct save file; /* of path; its fd is -1 without one */
    bool hold;        /* NPY to a pipe: keep all vectors in buf until the end */
    struct buf buf;
};

/* Open the output for vectors of dim numbers. A file appears at its path when
 * it is complete. All functions that return int return 0, or an exit status
 * after printing a message. Always call vectors_abort at the end. */
int vectors_open(struct vectors *v, enum vectors_format format,
                 const char *path, size_t dim);
/* Write a vector x [dim]. Not for VECTORS_JSONL. */
int vectors_put(struct vectors *v, const float *x);
/* Write a line of JSON and a newline. */
int vectors_line(struct vectors *v, const char *s, size_t n);
/* Write the buffer to the output. */
int vectors_flush(struct vectors *v);
int vectors_close(struct vectors *v);
void vectors_abort(struct vectors *v);

#endif
