#include "file/owner.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int owner_check(const struct stat *st, const char *path, mode_t writers,
                struct qwick_err *e)
{
    uid_t me = geteuid();
    if (st->st_uid != me && st->st_uid != 0)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: belongs to user %u, this is user %u", path,
                       (unsigned)st->st_uid, (unsigned)me);
    if (st->st_mode & writers)
        return err_set(
            e, QWICK_ERR_RUNTIME, "%s: %s may write to it (mode %03o)", path,
            st->st_mode & writers & S_IWOTH ? "everybody" : "its group",
            (unsigned)st->st_mode & 0777);
    return 0;
}

int owner_check_dir(const char *path, bool inside, struct qwick_err *e)
{
    struct stat st;
    if (inside ? lstat(path, &st) : stat(path, &st))
        return errno == ENOENT
                   ? 0
                   : err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", path,
                             strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is %s", path,
                       S_ISLNK(st.st_mode) ? "a symbolic link"
                                           : "not a directory");
    mode_t writers = inside                 ? S_IWGRP | S_IWOTH
                     : st.st_mode & S_ISVTX ? 0
                                            : S_IWOTH;
    return owner_check(&st, path, writers, e);
}
