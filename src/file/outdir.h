/* An output directory, or a single file, that appears at its path only when it
 * is complete.
 *
 * Files are written to PATH.tmp-MARK beside it (see leftover.h), which is
 * renamed to PATH when everything is on the disk. If PATH exists, the two
 * directories exchange names in one step (RENAME_EXCHANGE), so that PATH always
 * exists. Some file systems cannot do that (NFS, some FUSE). There it takes two
 * steps: the old directory becomes PATH.old-MARK, and for a moment PATH does
 * not exist.
 *
 * What replaces a directory or a file gets its rights, as in save.h, and so do
 * the files of a directory that replace files of the same names.
 *
 * A killed process leaves only these temporary directories. The next process
 * that opens the same PATH removes the directories of dead processes of this
 * host.
 * If it finds the old directory but nothing at PATH, it puts the old one
 * back. */
#ifndef FILE_OUTDIR_H
#define FILE_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct outdir;

/* Begin a directory for path. path is a name that does not exist, in a
 * directory that does, or an empty directory. With replace, it may also be a
 * checkpoint: a directory that holds config.json and no directories. Anything
 * else at path is QWICK_ERR_USAGE. The directory `keep` (NULL: none) is never
 * replaced: QWICK_ERR_USAGE. */
int outdir_open(struct outdir **out, const char *path, bool replace,
                const char *keep, struct qwick_err *e);

/* Begin a single file for path, which does not exist, in a directory that does.
 * With replace, it may also be a GGUF file. Anything else at path is
 * QWICK_ERR_USAGE. Write the file as OUTDIR_FILE; outdir_commit then renames it
 * to path, and removes the directory. */
#define OUTDIR_FILE "file"
int outdir_open_file(struct outdir **out, const char *path, bool replace,
                     struct qwick_err *e);

/* Return the path of a file with this name in the temporary directory, valid
 * until the next call on d; NULL when out of memory. */
const char *outdir_path(struct outdir *d, const char *name,
                        struct qwick_err *e);

/* Write a file with these n bytes. */
int outdir_write(struct outdir *d, const char *name, const void *data, size_t n,
                 struct qwick_err *e);

/* Rename the directory or the file to PATH, replacing the one there, and free
 * d. On failure PATH is unchanged. */
int outdir_commit(struct outdir *d, struct qwick_err *e);
/* Remove the unfinished directory and free d (may be NULL). */
void outdir_abort(struct outdir *d);

/* Remove the unfinished directory of this process, and change nothing else. If
 * there are several, it removes the first one. For the handler of a signal that
 * ends the process. Async-signal-safe. */
void outdir_abandon(void);

#endif
