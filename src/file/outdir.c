#include "file/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/os.h"
#include "file/fs.h"
#include "file/gguf.h"
#include "file/save.h"

struct outdir {
    char *path;      /* without links and trailing slashes */
    char *temp;      /* temporary name; NULL: renamed to path */
    int fd;          /* descriptor of temp, locked while we write */
    struct buf name; /* result of outdir_path */
    bool replace;
    bool file;   /* only OUTDIR_FILE is the result */
    bool listed; /* listed in `unfinished` */
};

/* The directory that outdir_abandon removes. It is global, because a signal
 * handler gets no argument. */
static struct {
    atomic_int state; /* 0: none, 1: being set, 2: set */
    int fd;
    char path[4096];
} unfinished;

/* ---- what is there ------------------------------------------------------- */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Count the entries of a directory. *config: whether config.json is among them.
 * *dir: the name of a subdirectory, malloc'ed, or NULL. */
static int outdir_scan(const char *path, size_t *n, bool *config, char **dir,
                       struct qwick_err *e)
{
    *n = 0;
    *config = false;
    *dir = NULL;
    DIR *d = opendir(path);
    if (!d)
        return dir_list_fail(path, errno, QWICK_ERR_RUNTIME, e);
    for (struct dirent *f; (errno = 0, f = readdir(d)) != NULL;) {
        struct stat st;
        if (is_dots(f->d_name))
            continue;
        ++*n;
        *config |= strcmp(f->d_name, "config.json") == 0;
        if (!*dir &&
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(st.st_mode)) {
            *dir = strdup(f->d_name);
            if (!*dir) {
                closedir(d);
                return err_oom(e, strlen(f->d_name) + 1);
            }
        }
    }
    int err = errno;
    closedir(d);
    if (!err)
        return 0;
    free(*dir);
    *dir = NULL;
    return dir_list_fail(path, err, QWICK_ERR_RUNTIME, e);
}

static int check_there(const char *path, bool replace, struct qwick_err *e)
{
    size_t n;
    bool config;
    char *dir;
    if (outdir_scan(path, &n, &config, &dir, e))
        return -1;
    int rc = 0;
    if (n > 0 && !replace)
        rc = err_usage(
            e, "%s: is there and not empty: --force replaces a checkpoint",
            path);
    else if (n > 0 && !config)
        rc = err_usage(e,
                       "%s: is not replaced: it has no config.json, so it is "
                       "not a checkpoint",
                       path);
    else if (n > 0 && dir)
        rc = err_usage(e, "%s: is not replaced: it has a directory in it, %s",
                       path, dir);
    free(dir);
    return rc;
}

static bool same_file(const struct stat *st, const char *path)
{
    struct stat other;
    return path && stat(path, &other) == 0 && st->st_dev == other.st_dev &&
           st->st_ino == other.st_ino;
}

/* Check what is at path, and set d->path. */
static int resolve(struct outdir *d, const char *path, bool replace,
                   const char *keep, struct qwick_err *e)
{
    struct stat st;
    if (!*path)
        return err_usage(e, "output: the name is empty");
    if (stat(path, &st)) {
        int err = errno;
        /* Refuse a dangling link: a directory would replace it. */
        if (err != ENOENT || lstat(path, &st) == 0)
            return err_usage(e, "%s: cannot be a directory: %s", path,
                             strerror(err));
        d->path = strdup(path);
        if (!d->path)
            return err_oom(e, strlen(path) + 1);
        size_t n = strlen(d->path);
        while (n > 1 && d->path[n - 1] == '/')
            d->path[--n] = '\0';
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return err_usage(e, "%s: is there and is not a directory", path);
    if (same_file(&st, keep))
        return err_usage(e, "%s: is the source: name another directory", path);
    if (check_there(path, replace, e))
        return -1;
    d->path = realpath(path, NULL);
    return d->path ? 0
                   : err_set(e, QWICK_ERR_RUNTIME, "%s: cannot resolve: %s",
                             path, strerror(errno));
}

/* Whether a file may be replaced at path, where something is. */
static int check_file(const char *path, bool replace, struct qwick_err *e)
{
    struct stat st;
    struct map map;
    if (stat(path, &st))
        return err_usage(e, "%s: cannot be a file: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_usage(
            e, "%s: is a directory: name a file, such as %s/model.gguf", path,
            path);
    if (!S_ISREG(st.st_mode))
        return err_usage(e, "%s: is there and is not a regular file", path);
    if (!replace)
        return err_usage(e, "%s: is there: --force replaces a GGUF file", path);
    if (map_open(&map, path, e))
        return -1;
    bool is = gguf_is(&map);
    map_close(&map);
    return is ? 0
              : err_usage(e, "%s: is not replaced: it is not a GGUF file",
                          path);
}

/* Check what is at path, and set d->path. */
static int resolve_file(struct outdir *d, const char *path, struct qwick_err *e)
{
    struct stat st;
    size_t n = strlen(path);
    if (n == 0)
        return err_usage(e, "output: the name is empty");
    if (lstat(path, &st) && errno == ENOENT) {
        if (path[n - 1] == '/')
            return err_usage(e, "%s: is the name of a directory: name a file",
                             path);
        d->path = strdup(path);
        return d->path ? 0 : err_oom(e, n + 1);
    }
    if (check_file(path, d->replace, e))
        return -1;
    d->path = realpath(path, NULL);
    return d->path ? 0
                   : err_set(e, QWICK_ERR_RUNTIME, "%s: cannot resolve: %s",
                             path, strerror(errno));
}

/* ---- removing ------------------------------------------------------------ */

static int open_dir(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Remove a directory and its files. Files that cannot be removed stay. */
static void remove_dir(const char *path)
{
    int fd = open_dir(path);
    if (fd >= 0) {
        os_empty_dir(fd);
        close(fd);
    }
    (void)rmdir(path);
}

static void list_unfinished(struct outdir *d)
{
    int none = 0;
    if (strlen(d->temp) >= sizeof unfinished.path ||
        !atomic_compare_exchange_strong(&unfinished.state, &none, 1))
        return;
    strcpy(unfinished.path, d->temp);
    unfinished.fd = d->fd;
    atomic_store(&unfinished.state, 2);
    d->listed = true;
}

static void unlist(struct outdir *d)
{
    if (d->listed)
        atomic_store(&unfinished.state, 0);
    d->listed = false;
}

void outdir_abandon(void)
{
    if (atomic_load(&unfinished.state) != 2)
        return;
    os_empty_dir(unfinished.fd);
    (void)rmdir(unfinished.path);
}

/* ---- what dead processes have left --------------------------------------- */

/* Remove the leftover at path, or rename it back to d->path. Returns true if it
 * was renamed. */
static bool clean(const struct outdir *d, const char *path, bool old)
{
    bool restored = false;
    int fd = open_dir(path);
    /* a running process holds a lock, even in another pid namespace */
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        restored = old && access(d->path, F_OK) && rename(path, d->path) == 0;
        if (!restored) {
            os_empty_dir(fd);
            (void)rmdir(path);
        }
    }
    if (fd >= 0)
        close(fd);
    return restored;
}

/* Clean up leftovers beside d->path. Returns true if a directory was renamed
 * back to d->path. Failures are ignored: they do not affect this run. */
static bool clean_up(const struct outdir *d)
{
    size_t n_dir = dir_length(d->path);
    const char *base = d->path + n_dir;
    size_t n_base = strlen(base);
    struct buf path = {0};
    bool restored = false;
    if (buf_append(&path, d->path, n_dir) || buf_puts(&path, n_dir ? "" : "."))
        goto done;
    DIR *dir = opendir(path.data);
    if (!dir)
        goto done;
    for (struct dirent *f; (f = readdir(dir)) != NULL;) {
        const char *suffix = f->d_name + n_base;
        if (strncmp(f->d_name, base, n_base) != 0 ||
            (strncmp(suffix, ".tmp-", 5) && strncmp(suffix, ".old-", 5)) ||
            !leftover_dead(suffix + 5))
            continue;
        path.len = 0;
        if (buf_append(&path, d->path, n_dir) || buf_puts(&path, f->d_name))
            break;
        restored |= clean(d, path.data, suffix[1] == 'o');
    }
    closedir(dir);
done:
    buf_free(&path);
    return restored;
}

/* ---- writing ------------------------------------------------------------- */

/* Make the directory PATH.SUFFIX-MARK, and return its name, malloc'ed. We do
 * not use mkdtemp, because other users could not read its directories. */
static char *make_beside(const struct outdir *d, const char *suffix,
                         mode_t mode, struct qwick_err *e)
{
    enum { TRIES = 100 };
    struct buf name = {0};
    int err = EEXIST;
    for (int i = 0; i < TRIES && err == EEXIST; i++) {
        char mark[LEFTOVER_MARK];
        leftover_mark(mark);
        name.len = 0;
        if (buf_printf(&name, "%s.%s-%s", d->path, suffix, mark)) {
            buf_free(&name);
            err_oom(e, strlen(d->path) + LEFTOVER_MARK);
            return NULL;
        }
        if (mkdir(name.data, mode) == 0)
            return buf_take(&name, NULL);
        err = errno;
    }
    err_set(e, QWICK_ERR_RUNTIME, "%s: cannot create %s: %s", d->path,
            name.data, strerror(err));
    buf_free(&name);
    return NULL;
}

/* Make the temporary directory, and lock it. What it replaces may be for few
 * eyes, so until outdir_commit it is for ours alone. */
static int make_temp(struct outdir *d, struct qwick_err *e)
{
    mode_t mode = access(d->path, F_OK) == 0 ? 0700 : 0777;
    d->temp = make_beside(d, "tmp", mode, e);
    if (!d->temp)
        return -1;
    d->fd = open_dir(d->temp);
    if (d->fd < 0)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", d->temp,
                       strerror(errno));
    (void)flock(d->fd, LOCK_SH | LOCK_NB); /* if the file system supports
                                              locks */
    list_unfinished(d);
    return 0;
}

static int resolve_any(struct outdir *d, const char *path, const char *keep,
                       struct qwick_err *e)
{
    return d->file ? resolve_file(d, path, e)
                   : resolve(d, path, d->replace, keep, e);
}

static int open_any(struct outdir **out, const char *path, bool replace,
                    bool file, const char *keep, struct qwick_err *e)
{
    *out = NULL;
    struct outdir *d = calloc(1, sizeof *d);
    if (!d)
        return err_oom(e, sizeof *d);
    d->replace = replace;
    d->file = file;
    d->fd = -1;
    if (resolve_any(d, path, keep, e))
        goto fail;
    if (clean_up(d)) {
        free(d->path);
        d->path = NULL;
        if (resolve_any(d, path, keep, e))
            goto fail;
    }
    if (make_temp(d, e))
        goto fail;
    *out = d;
    return 0;
fail:
    outdir_abort(d);
    return -1;
}

int outdir_open(struct outdir **out, const char *path, bool replace,
                const char *keep, struct qwick_err *e)
{
    return open_any(out, path, replace, false, keep, e);
}

int outdir_open_file(struct outdir **out, const char *path, bool replace,
                     struct qwick_err *e)
{
    return open_any(out, path, replace, true, NULL, e);
}

const char *outdir_path(struct outdir *d, const char *name, struct qwick_err *e)
{
    d->name.len = 0;
    if (buf_printf(&d->name, "%s/%s", d->temp, name) == 0)
        return d->name.data;
    err_oom(e, strlen(d->temp) + strlen(name) + 2);
    return NULL;
}

int outdir_write(struct outdir *d, const char *name, const void *data, size_t n,
                 struct qwick_err *e)
{
    const char *path = outdir_path(d, name, e);
    if (!path)
        return -1;
    int fd = fs_open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot create: %s", path,
                       strerror(errno));
    int why = write_all(fd, data, n) ? errno : 0;
    if (sync_close(fd) && !why)
        why = errno;
    return why ? err_set(e, QWICK_ERR_RUNTIME, "%s: cannot write: %s", path,
                         strerror(why))
               : 0;
}

static int err_name(const struct outdir *d, int err, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot rename %s to it: %s",
                   d->path, d->temp, strerror(err));
}

/* Empty a directory through its descriptor, and remove it. */
static void remove_open(const char *path, int fd)
{
    os_empty_dir(fd);
    (void)rmdir(path);
}

/* Replace a directory that has files in two steps, because rename replaces only
 * empty directories. fd: the directory to replace. */
static int swap(struct outdir *d, int fd, struct qwick_err *e)
{
    char *old = make_beside(d, "old", 0700, e);
    if (!old)
        return -1;
    int rc = -1;
    (void)flock(fd, LOCK_SH | LOCK_NB);
    if (rename(d->path, old)) {
        err_set(e, QWICK_ERR_RUNTIME, "%s: cannot rename it to %s: %s", d->path,
                old, strerror(errno));
        (void)rmdir(old);
    } else if (rename(d->temp, d->path)) {
        err_name(d, errno, e);
        (void)rename(old, d->path);
    } else {
        remove_open(old, fd);
        rc = 0;
    }
    free(old);
    return rc;
}

/* Replace a directory that has files: exchange the two names, then remove the
 * old directory, now PATH.tmp-MARK. We open it before, because nothing that
 * comes after the exchange may fail. */
static int exchange(struct outdir *d, struct qwick_err *e)
{
    int rc = 0, fd = open_dir(d->path);
    if (fd < 0)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", d->path,
                       strerror(errno));
    if (renameat2(AT_FDCWD, d->temp, AT_FDCWD, d->path, RENAME_EXCHANGE) == 0) {
        remove_open(d->temp, fd);
    } else {
        int err = errno;
        rc = err == ENOSYS || err == EINVAL || err == ENOTSUP
                 ? swap(d, fd, e)
                 : err_name(d, err, e);
    }
    close(fd);
    return rc;
}

/* Give an open file or directory the rights of what it replaces, and write them
 * to the disk. */
static int take_rights(const struct outdir *d, int fd, const struct stat *old,
                       struct qwick_err *e)
{
    if (fd < 0 || save_take_rights(fd, old) || sync_open(fd))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: cannot set the rights of what it replaces: %s",
                       d->path, strerror(errno));
    return 0;
}

/* Give the files the rights of those with the same names that they replace, and
 * then the directory its own. */
static int take_all_rights(const struct outdir *d, struct qwick_err *e)
{
    struct stat st;
    int rc = 0, old = open_dir(d->path), copy = dup(d->fd);
    DIR *dir = old >= 0 && copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir && copy >= 0)
        close(copy);
    if (dir)
        rewinddir(dir); /* the descriptor shares its position with others */
    for (struct dirent *f; dir && !rc && (f = readdir(dir)) != NULL;) {
        if (is_dots(f->d_name) || fstatat(old, f->d_name, &st, 0) ||
            !S_ISREG(st.st_mode))
            continue;
        int fd = openat(d->fd, f->d_name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        rc = take_rights(d, fd, &st, e);
        if (fd >= 0)
            close(fd);
    }
    if (!rc && old >= 0 && fstat(old, &st) == 0)
        rc = take_rights(d, d->fd, &st, e);
    if (dir)
        closedir(dir);
    if (old >= 0)
        close(old);
    return rc;
}

/* Give the directory its name. */
static int put_in_place(struct outdir *d, struct qwick_err *e)
{
    if (access(d->path, F_OK) == 0 && take_all_rights(d, e))
        return -1;
    if (rename(d->temp, d->path) == 0)
        return 0;
    int err = errno;
    if (!d->replace || (err != ENOTEMPTY && err != EEXIST))
        return err_name(d, err, e);
    /* check again: it may have changed meanwhile */
    return check_there(d->path, true, e) ? -1 : exchange(d, e);
}

/* Give the file its name. Without replace, nothing that has appeared there
 * meanwhile is replaced, if the file system can tell. */
static int put_file(struct outdir *d, struct qwick_err *e)
{
    const char *from = outdir_path(d, OUTDIR_FILE, e);
    if (!from)
        return -1;
    if (d->replace) {
        struct stat st;
        int fd = open(from, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        int bad = stat(d->path, &st) == 0 && (check_file(d->path, true, e) ||
                                              take_rights(d, fd, &st, e));
        if (fd >= 0)
            close(fd);
        if (bad)
            return -1;
        return rename(from, d->path) ? err_name(d, errno, e) : 0;
    }
    if (renameat2(AT_FDCWD, from, AT_FDCWD, d->path, RENAME_NOREPLACE) == 0)
        return 0;
    int err = errno;
    if (err != ENOSYS && err != EINVAL && err != ENOTSUP)
        return err_name(d, err, e);
    return rename(from, d->path) ? err_name(d, errno, e) : 0;
}

int outdir_commit(struct outdir *d, struct qwick_err *e)
{
    int rc = 0;
    if (sync_dir(d->temp))
        rc = err_set(e, QWICK_ERR_RUNTIME, "%s: cannot write: %s", d->temp,
                     strerror(errno));
    unlist(d); /* finished: outdir_abandon must not remove it */
    if (!rc)
        rc = d->file ? put_file(d, e) : put_in_place(d, e);
    if (!rc) {
        if (d->file)
            remove_dir(d->temp);
        free(d->temp);
        d->temp = NULL;
        if (sync_parent(d->path))
            rc = err_set(e, QWICK_ERR_RUNTIME,
                         "%s: written, but its directory cannot be synced: %s",
                         d->path, strerror(errno));
    }
    outdir_abort(d);
    return rc;
}

void outdir_abort(struct outdir *d)
{
    if (!d)
        return;
    unlist(d);
    if (d->temp && d->fd >= 0)
        os_empty_dir(d->fd);
    if (d->temp)
        (void)rmdir(d->temp);
    if (d->fd >= 0)
        close(d->fd);
    free(d->temp);
    free(d->path);
    buf_free(&d->name);
    free(d);
}
