/* The one way to replace a file. The new contents are written under a temporary
 * name in the directory of the target. On success they are synced and renamed,
 * so the path never names an incomplete file.
 *
 * A shared file that is replaced keeps its mode, its group and, if we may set
 * it, its owner. If we may not set its group, the new file has no rights for
 * the group. The temporary file is never more readable than the result. Access
 * control lists, extended attributes and other hard links stay with the old
 * file. */
#ifndef FILE_SAVE_H
#define FILE_SAVE_H

#include <stddef.h>
#include <sys/stat.h>

#include "base/err.h"

enum save_kind {
    /* A new file gets the rights that the umask allows. If the path is a
     * symbolic link, the file that it leads to is replaced. A device, a FIFO,
     * and a link in /proc such as /dev/stdout, are written in place. */
    SAVE_SHARED,
    /* Only the owner can read the result (0600), whatever it replaces. Anything
     * that is not a regular file is refused, and so are links: another user may
     * have made them. */
    SAVE_PRIVATE
};

struct save {
    const char *path; /* as the caller named it; borrowed */
    char *temp;       /* in dir; NULL: written in place, or nothing is open */
    char *name;       /* in dir */
    int dir;          /* descriptor of the directory; -1: none */
    int fd;           /* where the contents are written; -1: none */
};

/* What save_abort does nothing with. */
#define SAVE_NONE           \
    {                       \
        .dir = -1, .fd = -1 \
    }

/* Begin to replace the file at path, which must stay valid. On failure *s is
 * SAVE_NONE. These functions return 0, or -1 with *e set (QWICK_ERR_RUNTIME, or
 * QWICK_ERR_MEMORY) to "PATH: cannot create|write: WHY". A FIFO without a
 * reader blocks. */
int save_begin(struct save *s, const char *path, enum save_kind kind,
               struct qwick_err *e);

/* Append bytes. The caller may also write to s->fd on its own. */
int save_write(struct save *s, const void *p, size_t n, struct qwick_err *e);

/* Sync the contents, rename the file, sync its directory, and set *s to
 * SAVE_NONE. If only the last step fails, the file is in place, and the message
 * says so. Other failures leave the old file. */
int save_commit(struct save *s, struct qwick_err *e);

/* Remove the temporary file, if there is one, and set *s to SAVE_NONE. What was
 * written in place stays. */
void save_abort(struct save *s);

/* Replace a whole file. */
int save_put(const char *path, enum save_kind kind, const void *p, size_t n,
             struct qwick_err *e);

/* Check, before the work is done, whether save_begin could succeed for a shared
 * file. */
int save_check(const char *path, struct qwick_err *e);

/* The path of the file that SAVE_SHARED replaces: `path` after all symbolic
 * links at its end, malloc'ed. It may not exist. NULL with *e set; a circle of
 * links is an error. *in_place: it is written without a temporary file. */
char *save_target(const char *path, int *in_place, struct qwick_err *e);

/* Give the open file or directory the rights of one that it replaces. Returns
 * 0, or -1 with errno set. */
int save_take_rights(int fd, const struct stat *old);

#endif
