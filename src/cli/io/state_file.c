#include "cli/io/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fs.h"

int xdg_path(struct buf *out, const char *variable, const char *below,
             const char *name)
{
    const char *base = getenv(variable);
    if (base && *base == '/') /* XDG: a relative path is invalid */
        below = "";
    else
        base = getenv("HOME");
    if (!base || *base != '/')
        return 0;
    return buf_printf(out, "%s%s/qwick/%s", base, below, name);
}

int state_path(struct buf *out, const char *name)
{
    return xdg_path(out, "XDG_STATE_HOME", "/.local/state", name);
}

int state_make_dir(const char *path, struct qwick_err *e)
{
    return make_dirs(path, dir_length(path), 0700, e);
}

static int check_file(const struct stat *st, const char *path,
                      struct qwick_err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is not a regular file", path);
    return owner_check(st, path, S_IWGRP | S_IWOTH, e);
}

int state_open(const char *path, int flags, struct qwick_err *e)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO must not wait */
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !(flags & O_CREAT))
        return -2;
    if (fd < 0 || fstat(fd, &st)) {
        err_errno(e, path, "cannot open");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (check_file(&st, path, e)) {
        close(fd);
        return -1;
    }
    return fd;
}

int state_need_path(struct buf *out, const char *name, const char *option,
                    struct qwick_err *e)
{
    if (state_path(out, name))
        return err_oom(e, 0);
    return out->len ? 0
                    : err_set(e, QWICK_ERR_RUNTIME,
                              "%s: there is no place for it: neither "
                              "XDG_STATE_HOME nor HOME is set",
                              option);
}

bool state_is_name(const char *name)
{
    static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "abcdefghijklmnopqrstuvwxyz"
                                     "0123456789._-";
    size_t n = strlen(name);
    return n && n <= STATE_NAME_MAX && *name != '.' &&
           strspn(name, characters) == n;
}

int state_conversation_path(struct buf *out, const char *name,
                            struct qwick_err *e)
{
    char file[STATE_NAME_MAX + 40];
    snprintf(file, sizeof(file), STATE_CONVERSATIONS "%s.json", name);
    return state_need_path(out, file, "--conversation", e);
}
