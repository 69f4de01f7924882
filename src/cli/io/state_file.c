#include "cli/io/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int state_path(struct buf *out, const char *name)
{
    const char *base = getenv("XDG_STATE_HOME"), *sub = "";
    if (!base || *base != '/') { /* XDG: a relative path is invalid */
        base = getenv("HOME");
        sub = "/.local/state";
    }
    if (!base || *base != '/')
        return 0;
    return buf_printf(out, "%s%s/qwick/%s", base, sub, name);
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int state_make_dir(const char *path, struct qwick_err *e)
{
    char *dir = strdup(path);
    int rc = 0;
    if (!dir)
        return err_oom(e, strlen(path));
    for (char *at = strchr(dir + 1, '/'); at && !rc; at = strchr(at + 1, '/')) {
        *at = 0;
        int why = mkdir(dir, 0700) ? errno : 0;
        /* no other errno than EEXIST matters where the directory is there */
        if (why && !is_dir(dir))
            rc = err_set(e, QWICK_ERR_RUNTIME, "%s: cannot make directory: %s",
                         dir, strerror(why == EEXIST ? ENOTDIR : why));
        *at = '/';
    }
    free(dir);
    return rc;
}

static int check_owner(const struct stat *st, const char *path,
                       struct qwick_err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is not a regular file", path);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: belongs to user %u, this is user %u", path,
                       (unsigned)st->st_uid, (unsigned)geteuid());
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: others may write to it (mode %o)", path,
                       (unsigned)st->st_mode & 0777);
    return 0;
}

int state_open(const char *path, int flags, struct qwick_err *e)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO must not wait */
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !(flags & O_CREAT))
        return -2;
    if (fd < 0 || fstat(fd, &st)) {
        err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", path,
                strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (check_owner(&st, path, e)) {
        close(fd);
        return -1;
    }
    return fd;
}

int state_kept_path(struct buf *out, const char *option, struct qwick_err *e)
{
    if (state_path(out, "last.json"))
        return err_oom(e, 0);
    return out->len ? 0
                    : err_set(e, QWICK_ERR_RUNTIME,
                              "%s: there is no place for the conversation: "
                              "neither XDG_STATE_HOME nor HOME is set",
                              option);
}
