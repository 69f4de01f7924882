/* Who can have written a file: caches and sessions are only used when it was
 * this user, or root. */
#ifndef FILE_OWNER_H
#define FILE_OWNER_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* Refuse what belongs to another user (root may own anything), and what has one
 * of the mode bits in writers, S_IWGRP or S_IWOTH. QWICK_ERR_RUNTIME. */
int owner_check(const struct stat *st, const char *path, mode_t writers,
                struct qwick_err *e);

/* Check a directory by its path. inside: it lies in a directory of ours, so it
 * is no symbolic link, and nobody else may write to it. Else its name comes
 * from the user: a link is followed, and a group may write, as with a umask of
 * 002; so may everybody when the sticky bit is set, as in /tmp. One that does
 * not exist is fine. */
int owner_check_dir(const char *path, bool inside, struct qwick_err *e);

#endif
