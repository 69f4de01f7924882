#include "file/save.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/rng.h"
#include "file/fs.h"

static int cannot(const char *path, const char *what, int why,
                  struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot %s: %s", path, what,
                   strerror(why));
}

/* ---- where the file is -------------------------------------------------- */

/* Links in /proc lead to open files, whatever their text says. */
static bool link_in_proc(const char *path)
{
    struct statfs fs;
    int fd = fs_open(path, O_PATH | O_NOFOLLOW, 0);
    bool is = fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Free path, and return where it leads, as a link with this text. */
static char *follow(char *path, const char *text)
{
    char *next;
    int n = *text == '/' ? 0 : (int)dir_length(path);
    if (asprintf(&next, "%.*s%s", n, path, text) < 0)
        next = NULL;
    free(path);
    return next;
}

char *save_target(const char *path, int *in_place, struct qwick_err *e)
{
    enum { MAX_LINKS = 40 }; /* as Linux */
    struct stat st;
    char text[PATH_MAX];
    char *at = strlen(path) < PATH_MAX ? strdup(path) : NULL;
    *in_place = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    for (int i = 0; at && !*in_place; i++) {
        ssize_t n = readlink(at, text, sizeof text - 1);
        if (n < 0)
            return at; /* no link: opening it finds other faults */
        if (i == MAX_LINKS) {
            cannot(path, "create", ELOOP, e);
            free(at);
            return NULL;
        }
        text[n] = 0;
        *in_place = link_in_proc(at);
        if (!*in_place)
            at = follow(at, text);
    }
    if (!at && strlen(path) >= PATH_MAX)
        cannot(path, "create", ENAMETOOLONG, e);
    else if (!at)
        err_oom(e, strlen(path));
    return at;
}

/* ---- rights ------------------------------------------------------------- */

int save_take_rights(int fd, const struct stat *old)
{
    struct stat st;
    if (fstat(fd, &st))
        return -1;
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
        fchown(fd, old->st_uid, old->st_gid) &&
        fchown(fd, (uid_t)-1, old->st_gid))
        errno = 0; /* not allowed: the group's rights tell below */
    if (fstat(fd, &st))
        return -1;
    mode_t mode = old->st_mode & (S_ISDIR(old->st_mode) ? 07777 : 0777);
    if (st.st_gid != old->st_gid)
        mode &= ~(mode_t)S_IRWXG;
    return fchmod(fd, mode);
}

/* ---- writing ------------------------------------------------------------ */

static int check_private(const char *path, struct qwick_err *e)
{
    struct stat st;
    if (lstat(path, &st) || S_ISREG(st.st_mode))
        return 0;
    return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot write: is %s", path,
                   S_ISLNK(st.st_mode) ? "a symbolic link"
                                       : "not a regular file");
}

/* Open the directory of the target. One that we may not list cannot be synced,
 * but files in it can be made. */
static int open_dir_of(const char *target)
{
    size_t n = dir_length(target);
    char *dir = n ? strndup(target, n) : strdup(".");
    if (!dir)
        return -1;
    int fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == EACCES)
        fd = fs_open(dir, O_PATH | O_DIRECTORY, 0);
    int why = errno;
    free(dir);
    errno = why;
    return fd;
}

/* Open the temporary file. Returns 0, or -1 with errno set. */
static int open_temp(struct save *s, const char *target, enum save_kind kind)
{
    struct stat st;
    const char *name = target + dir_length(target);
    bool keep = kind == SAVE_SHARED && lstat(target, &st) == 0;
    mode_t mode = keep || kind == SAVE_PRIVATE ? 0600 : 0666;
    if (!*name) {
        errno = EISDIR;
        return -1;
    }
    if ((s->dir = open_dir_of(target)) < 0 || !(s->name = strdup(name)))
        return -1;
    if (asprintf(&s->temp, "%s.tmp-%016llx", name,
                 (unsigned long long)rng_random_seed()) < 0) {
        s->temp = NULL;
        return -1;
    }
    do
        s->fd =
            openat(s->dir, s->temp,
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    while (s->fd < 0 && errno == EINTR);
    if (s->fd < 0) {
        int why = errno;
        free(s->temp);
        s->temp = NULL;
        errno = why;
        return -1;
    }
    return keep ? save_take_rights(s->fd, &st) : 0;
}

int save_begin(struct save *s, const char *path, enum save_kind kind,
               struct qwick_err *e)
{
    int in_place = 0;
    char *target;
    *s = (struct save){.path = path, .dir = -1, .fd = -1};
    if (kind == SAVE_PRIVATE && check_private(path, e))
        return -1;
    target =
        kind == SAVE_PRIVATE ? strdup(path) : save_target(path, &in_place, e);
    if (!target)
        return kind == SAVE_PRIVATE ? err_oom(e, strlen(path)) : -1;
    int bad = in_place ? (s->fd = fs_open(target, O_WRONLY | O_TRUNC, 0)) < 0
                       : open_temp(s, target, kind);
    int why = errno;
    free(target);
    if (!bad)
        return 0;
    save_abort(s);
    return why == ENOMEM ? err_oom(e, strlen(path))
                         : cannot(path, "create", why, e);
}

int save_write(struct save *s, const void *p, size_t n, struct qwick_err *e)
{
    return write_all(s->fd, p, n) ? cannot(s->path, "write", errno, e) : 0;
}

int save_commit(struct save *s, struct qwick_err *e)
{
    const char *path = s->path;
    /* pipes and devices cannot be synced, and need not */
    int why = sync_close(s->fd) ? errno : 0;
    s->fd = -1;
    if (!why && s->temp && renameat(s->dir, s->temp, s->dir, s->name))
        why = errno;
    if (why) {
        save_abort(s);
        return cannot(path, "write", why, e);
    }
    bool renamed = s->temp != NULL;
    free(s->temp);
    s->temp = NULL;
    why = renamed && sync_open(s->dir) ? errno : 0;
    save_abort(s);
    return why ? err_set(e, QWICK_ERR_RUNTIME,
                         "%s: written, but its directory cannot be synced: %s",
                         path, strerror(why))
               : 0;
}

void save_abort(struct save *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->temp)
        (void)unlinkat(s->dir, s->temp, 0);
    if (s->dir >= 0)
        close(s->dir);
    free(s->temp);
    free(s->name);
    *s = (struct save)SAVE_NONE;
}

int save_put(const char *path, enum save_kind kind, const void *p, size_t n,
             struct qwick_err *e)
{
    struct save s;
    if (save_begin(&s, path, kind, e))
        return -1;
    if (save_write(&s, p, n, e)) {
        save_abort(&s);
        return -1;
    }
    return save_commit(&s, e);
}

int save_check(const char *path, struct qwick_err *e)
{
    struct stat st;
    int in_place;
    char *target = save_target(path, &in_place, e);
    if (!target)
        return -1;
    size_t n = dir_length(target);
    int why = 0;
    if (in_place) {
        bool is_dir = stat(target, &st) == 0 && S_ISDIR(st.st_mode);
        why = is_dir ? EISDIR : access(target, W_OK) ? errno : 0;
    } else {
        /* the slash stays: it may be the root's */
        target[n] = 0;
        why = access(n ? target : ".", W_OK | X_OK) ? errno : 0;
    }
    free(target);
    return why ? cannot(path, "create", why, e) : 0;
}
