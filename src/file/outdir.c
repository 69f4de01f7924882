#include "file/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/rng.h"

struct outdir {
    char *path;      /* without links and trailing slashes */
    char *temp;      /* NULL: has its name */
    struct buf name; /* of outdir_path */
    bool replace;
};

/* ---- what is there ------------------------------------------------------- */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Count the entries of a directory; *config: config.json is one; *dir: the name
 * of a directory among them, malloc'ed, or NULL. */
static int look(const char *path, size_t *n, bool *config, char **dir,
                struct qwick_err *e)
{
    *n = 0;
    *config = false;
    *dir = NULL;
    DIR *d = opendir(path);
    if (!d)
        return err_set(e, QWICK_ERR_USAGE, "%s: cannot list: %s", path,
                       strerror(errno));
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
    return err_set(e, QWICK_ERR_USAGE, "%s: cannot list: %s", path,
                   strerror(err));
}

static int check_there(const char *path, bool replace, struct qwick_err *e)
{
    size_t n;
    bool config;
    char *dir;
    if (look(path, &n, &config, &dir, e))
        return -1;
    int rc = 0;
    if (n > 0 && !replace)
        rc = err_set(e, QWICK_ERR_USAGE,
                     "%s: is there and not empty: --force replaces a "
                     "checkpoint",
                     path);
    else if (n > 0 && !config)
        rc = err_set(e, QWICK_ERR_USAGE,
                     "%s: is not replaced: without config.json it is no "
                     "checkpoint",
                     path);
    else if (n > 0 && dir)
        rc = err_set(e, QWICK_ERR_USAGE,
                     "%s: is not replaced: it has a directory in it, %s", path,
                     dir);
    free(dir);
    return rc;
}

static bool same_file(const struct stat *st, const char *path)
{
    struct stat other;
    return path && stat(path, &other) == 0 && st->st_dev == other.st_dev &&
           st->st_ino == other.st_ino;
}

/* Find out what path is; sets d->path. */
static int resolve(struct outdir *d, const char *path, bool replace,
                   const char *keep, struct qwick_err *e)
{
    struct stat st;
    if (!*path)
        return err_set(e, QWICK_ERR_USAGE, "output: the name is empty");
    if (stat(path, &st)) {
        int err = errno;
        /* A link to nowhere would be replaced by a directory. */
        if (err != ENOENT || lstat(path, &st) == 0)
            return err_set(e, QWICK_ERR_USAGE, "%s: cannot be a directory: %s",
                           path, strerror(err));
        d->path = strdup(path);
        if (!d->path)
            return err_oom(e, strlen(path) + 1);
        size_t n = strlen(d->path);
        while (n > 1 && d->path[n - 1] == '/')
            d->path[--n] = '\0';
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(e, QWICK_ERR_USAGE, "%s: is there and no directory",
                       path);
    if (same_file(&st, keep))
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: is the source: name another directory", path);
    if (check_there(path, replace, e))
        return -1;
    d->path = realpath(path, NULL);
    return d->path ? 0
                   : err_set(e, QWICK_ERR_RUNTIME, "%s: cannot resolve: %s",
                             path, strerror(errno));
}

/* ---- writing ------------------------------------------------------------- */

/* Make the directory PATH.SUFFIX-XXXXXX; its name malloc'ed. Not by mkdtemp,
 * whose directories nobody else can read. */
static char *make_beside(const struct outdir *d, const char *suffix,
                         struct qwick_err *e)
{
    enum { TRIES = 100 };
    struct buf name = {0};
    for (int i = 0; i < TRIES; i++) {
        unsigned random = (unsigned)rng_random_seed() & 0xffffff;
        name.len = 0;
        if (buf_printf(&name, "%s.%s-%06x", d->path, suffix, random)) {
            buf_free(&name);
            err_oom(e, strlen(d->path) + 16);
            return NULL;
        }
        if (mkdir(name.data, 0777) == 0)
            return buf_take(&name, NULL);
        if (errno != EEXIST)
            break;
    }
    err_set(e, QWICK_ERR_RUNTIME, "%s: cannot create %s: %s", d->path,
            name.data, strerror(errno));
    buf_free(&name);
    return NULL;
}

int outdir_open(struct outdir **out, const char *path, bool replace,
                const char *keep, struct qwick_err *e)
{
    *out = NULL;
    struct outdir *d = calloc(1, sizeof *d);
    if (!d)
        return err_oom(e, sizeof *d);
    d->replace = replace;
    if (resolve(d, path, replace, keep, e))
        goto fail;
    d->temp = make_beside(d, "tmp", e);
    if (!d->temp)
        goto fail;
    *out = d;
    return 0;
fail:
    outdir_abort(d);
    return -1;
}

const char *outdir_path(struct outdir *d, const char *name, struct qwick_err *e)
{
    d->name.len = 0;
    if (buf_printf(&d->name, "%s/%s", d->temp, name) == 0)
        return d->name.data;
    err_oom(e, strlen(d->temp) + strlen(name) + 2);
    return NULL;
}

static int write_all(int fd, const unsigned char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(fd, p, n < 1u << 26 ? n : 1u << 26);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k < 0 ? errno : EIO;
            return -1;
        }
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

int outdir_write(struct outdir *d, const char *name, const void *data, size_t n,
                 struct qwick_err *e)
{
    const char *path = outdir_path(d, name, e);
    if (!path)
        return -1;
    int fd;
    do
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot create: %s", path,
                       strerror(errno));
    int rc = write_all(fd, data, n) || fsync(fd) ? errno : 0;
    if (close(fd) && errno != EINTR && !rc)
        rc = errno;
    return rc ? err_set(e, QWICK_ERR_RUNTIME, "%s: cannot write: %s", path,
                        strerror(rc))
              : 0;
}

/* Remove a directory and the files in it; what cannot be removed stays. */
static void remove_dir(const char *path)
{
    DIR *d = opendir(path);
    if (d) {
        for (struct dirent *f; (f = readdir(d)) != NULL;)
            if (!is_dots(f->d_name))
                (void)unlinkat(dirfd(d), f->d_name, 0);
        closedir(d);
    }
    (void)rmdir(path);
}

/* Names are on the disk when their directory is. Not every file system can. */
static void sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

static void sync_parent(const struct outdir *d)
{
    char *parent = strdup(d->path);
    if (!parent)
        return;
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    sync_dir(slash ? parent : ".");
    free(parent);
}

static int err_name(const struct outdir *d, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot rename %s to it: %s",
                   d->path, d->temp, strerror(errno));
}

/* Replace a directory that has files: it goes aside first, as a directory can
 * be renamed only over an empty one. */
static int swap(struct outdir *d, struct qwick_err *e)
{
    char *old = make_beside(d, "old", e);
    if (!old)
        return -1;
    int rc = -1;
    if (rename(d->path, old)) {
        err_set(e, QWICK_ERR_RUNTIME, "%s: cannot rename it to %s: %s", d->path,
                old, strerror(errno));
        (void)rmdir(old);
    } else if (rename(d->temp, d->path)) {
        err_name(d, e);
        (void)rename(old, d->path);
    } else {
        remove_dir(old);
        rc = 0;
    }
    free(old);
    return rc;
}

int outdir_commit(struct outdir *d, struct qwick_err *e)
{
    sync_dir(d->temp);
    int rc = rename(d->temp, d->path) ? err_name(d, e) : 0;
    if (rc && d->replace && (errno == ENOTEMPTY || errno == EEXIST)) {
        /* looked at again: it may have changed meanwhile */
        rc = check_there(d->path, true, e);
        if (!rc)
            rc = swap(d, e);
    }
    if (rc == 0) {
        free(d->temp);
        d->temp = NULL;
        sync_parent(d);
    }
    outdir_abort(d);
    return rc;
}

void outdir_abort(struct outdir *d)
{
    if (!d)
        return;
    if (d->temp)
        remove_dir(d->temp);
    free(d->temp);
    free(d->path);
    buf_free(&d->name);
    free(d);
}
