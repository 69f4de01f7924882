/* A directory that appears whole or not at all.
 *
 * Files go into PATH.tmp-MARK beside it (see leftover.h), which gets its name
 * when everything is on the disk. A directory that is replaced changes names
 * with it at once (RENAME_EXCHANGE), so that there is always one at PATH. File
 * systems without that (NFS, some FUSE) do it in two steps: the old directory
 * becomes PATH.old-MARK, and for a moment there is nothing at PATH.
 *
 * A process that is killed leaves only such directories. The next one that
 * opens the same PATH removes those of dead processes of this host; where it
 * finds the old directory and nothing at PATH, it puts the old one back. */
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

/* Remove the unfinished directory of this process, the first where there are
 * several, and leave everything else as it is: for the handler of a signal
 * after which nothing else runs. Async-signal-safe. */
void outdir_abandon(void);

#endif
