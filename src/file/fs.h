/* Functions on files and directories that the C library lacks: whole writes,
 * syncing, lists and paths of directories, owners, and marks of temporary
 * files. */
#ifndef FILE_FS_H
#define FILE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

/* ---- opening and writing -----------------------------------------------
 */

/* Call open, again after signals, with O_CLOEXEC and O_NOCTTY. */
int fs_open(const char *path, int flags, mode_t mode);

/* Write all of p[0..n) at the descriptor's position, in as many calls as
 * needed. Returns 0, or -1 with errno set; then a part may have been
 * written. */
int write_all(int fd, const void *p, size_t n);
/* Do the same at offset `at` of the file. Several threads may write at the same
 * time. */
int write_all_at(int fd, const void *p, size_t n, size_t at);
/* Read all of p[0..n) from offset `at` of the file, in as many calls as needed.
 * Returns 0, or -1 with errno set: ENODATA if the file ends before. */
int read_all_at(int fd, void *p, size_t n, size_t at);

/* ---- on the disk -------------------------------------------------------
 */

/* Write an open file or directory to the disk (sync_open, and sync_close, which
 * closes it in any case), a directory (sync_dir), or the directory that holds
 * path (sync_parent): after a crash a renamed file keeps its new name only if
 * its directory was also written. Return 0, or -1 with errno set. If the file
 * system cannot sync, or if we may not read the directory, they return 0. */
int sync_open(int fd);
int sync_close(int fd);
int sync_dir(const char *path);
int sync_parent(const char *path);

/* ---- directories -------------------------------------------------------
 */

/* Return the length of the directory of path, with its slash; 0: the current
 * one. */
size_t dir_length(const char *path);

/* Make the directory at path[0..n) and those above it, unless they are there.
 * New ones get `mode`, less the umask, and are synced. */
int make_dirs(const char *path, size_t n, mode_t mode, struct qwick_err *e);

struct dir_entry {
    char *name;
    bool is_dir; /* or a symbolic link to a directory */
};

struct dir_list {
    struct dir_entry *v; /* [n] by name, bytewise */
    size_t n, cap;
};

/* Read the entries of the directory at path, except hidden ones (their names
 * begin with "."), in *l. max: stop after so many entries, in the order of the
 * file system. Returns 0, or -1 with *e set and *l empty. The code is
 * QWICK_ERR_MEMORY, or QWICK_ERR_MODEL if the directory cannot be read; errno
 * says why then. */
int dir_list_read(struct dir_list *l, const char *path, size_t max,
                  struct qwick_err *e);
void dir_list_free(struct dir_list *l);

/* Set *e for a directory at path that cannot be listed for reason err, a value
 * of errno. The code is `code`, or QWICK_ERR_MEMORY for ENOMEM. Returns -1 with
 * errno set to err. */
int dir_list_fail(const char *path, int err, int code, struct qwick_err *e);

/* Return whether the list has an entry of this name. */
bool dir_list_has(const struct dir_list *l, const char *name);

/* Return whether s ends in `end`. */
bool ends_in(const char *s, const char *end);

/* A directory that an environment variable names. */
struct place {
    const char *variable; /* NULL: below is the whole path */
    const char *below;    /* appended to the variable's value */
};

/* Write the path to *out. Returns 1; 0 if the variable is unset or empty; -1 if
 * memory ran out. */
int place_path(const struct place *p, struct buf *out);

/* ---- owners ------------------------------------------------------------
 */

/* Caches and sessions are used only if no other user than root can have written
 * them. */

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

/* ---- leftovers ---------------------------------------------------------
 */

/* Names of temporary files and directories say which process made them, so that
 * a later run can remove the leftovers of dead processes. */

/* Write a mark to out: "HOST-BOOT-PID-START-RANDOM". HOST and BOOT are hashes
 * of the host's name and of the kernel's boot id. START is the start time of
 * the process, because process ids are used again. The size includes the
 * NUL. */
enum { LEFTOVER_MARK = 64 };
void leftover_mark(char out[LEFTOVER_MARK]);

/* Return whether mark is a complete mark of a process of this host that no
 * longer runs: it has ended, or ran before the last boot. Processes of other
 * hosts, and processes that we cannot inspect, count as running. A running
 * process in another pid namespace looks dead, so the caller must also hold a
 * lock. */
bool leftover_dead(const char *mark);

#endif
