/* Checks of ownership. Caches and sessions are used only if no other user than
 * root can have written them. */
#ifndef FILE_OWNER_H
#define FILE_OWNER_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* Check a file: it must belong to this user or to root, and have none of the
 * mode bits in writers (S_IWGRP, S_IWOTH); otherwise QWICK_ERR_RUNTIME. */
int owner_check(const struct stat *st, const char *path, mode_t writers,
                struct qwick_err *e);

/* Check a directory by its path. inside: its parent belongs to us; then it must
 * not be a symbolic link, and nobody else may write to it. Otherwise the user
 * gave its name; then a link is followed, its group may write, as with a umask
 * of 002, and everybody may write if the sticky bit is set, as in /tmp. A
 * directory that does not exist passes. */
int owner_check_dir(const char *path, bool inside, struct qwick_err *e);

#endif
