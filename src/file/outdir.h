/* A directory that appears whole or not at all.
 *
 * Files go into PATH.tmp-RANDOM beside it, which gets its name when everything
 * is on the disk. A process that is killed leaves only that. */
#ifndef FILE_OUTDIR_H
#define FILE_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct outdir;

/* path: what is not there yet (its parent is), or an empty directory. With
 * replace also a checkpoint: a directory that has config.json and no
 * directories in it. Anything else there is QWICK_ERR_USAGE, as is path being
 * keep (a directory, or NULL), whatever replace says. */
int outdir_open(struct outdir **out, const char *path, bool replace,
                const char *keep, struct qwick_err *e);

/* Path for a file of that name; valid until the next call or the end. NULL when
 * out of memory. */
const char *outdir_path(struct outdir *d, const char *name,
                        struct qwick_err *e);

/* Write a whole file. */
int outdir_write(struct outdir *d, const char *name, const void *data, size_t n,
                 struct qwick_err *e);

/* Give the directory its name, in place of what is there, and free d. On
 * failure what was there is there. */
int outdir_commit(struct outdir *d, struct qwick_err *e);
/* Remove the unfinished directory and free d (NULL allowed). */
void outdir_abort(struct outdir *d);

#endif
