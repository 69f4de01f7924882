#include "file/hub_repo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"

enum { MAX_DEPTH = 16 };

bool hub_names_have(const struct hub_names *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i], name) == 0)
            return true;
    return false;
}

int hub_names_add(struct hub_names *l, const char *name, struct qwick_err *e)
{
    if (hub_names_have(l, name))
        return 0;
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, e))
        return -1;
    l->v[l->n] = strdup(name);
    return l->v[l->n++] ? 0 : err_oom(e, strlen(name) + 1);
}

void hub_names_free(struct hub_names *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (struct hub_names){0};
}

int hub_err_in(const struct hub_removal *r, const char *path, const char *what,
               struct qwick_err *e)
{
    int why = errno;
    char full[3 * PATH_MAX];
    snprintf(full, sizeof full, "%s/%s", r->t->repo, path);
    errno = why;
    return err_errno(e, full, what);
}

/* ---- walking ------------------------------------------------------------- */

static int walk_dir(struct hub_walk *w, int dir, const char *name,
                    const char *path, int depth);

static int walk_entry(struct hub_walk *w, int dir, const char *path,
                      const char *name, int depth)
{
    struct buf full = {0};
    struct hub_entry f = {.dir = dir, .name = name};
    int rc = 0;
    if (buf_printf(&full, "%s%s%s", path, *path ? "/" : "", name)) {
        buf_free(&full);
        return err_oom(w->e, strlen(path) + strlen(name) + 2);
    }
    f.path = full.data;
    if (fstatat(dir, name, &f.st, AT_SYMLINK_NOFOLLOW))
        rc = errno == ENOENT
                 ? 0
                 : hub_err_in(w->r, full.data, "cannot be read", w->e);
    else if (!S_ISDIR(f.st.st_mode))
        rc = w->fn(w, &f);
    else if (walk_dir(w, dir, name, full.data, depth + 1))
        rc = -1;
    else if (w->dirs)
        rc = w->fn(w, &f);
    buf_free(&full);
    return rc;
}

/* Each directory is opened in the one above it, so that no link can come in
 * between. */
static int walk_dir(struct hub_walk *w, int dir, const char *name,
                    const char *path, int depth)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int rc = 0;
    if (!d) {
        if (errno == ENOENT)
            return 0;
        rc = hub_err_in(w->r, path, "cannot be read", w->e);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    if (depth > MAX_DEPTH)
        rc = err_set(w->e, QWICK_ERR_RUNTIME,
                     "%s/%s: is deeper than %d directories", w->r->t->repo,
                     path, MAX_DEPTH);
    for (struct dirent *in; !rc && (in = readdir(d));)
        if (strcmp(in->d_name, ".") != 0 && strcmp(in->d_name, "..") != 0)
            rc = walk_entry(w, dirfd(d), path, in->d_name, depth);
    closedir(d);
    return rc;
}

int hub_walk_below(struct hub_walk *w, const char *path)
{
    return walk_dir(w, w->r->fd, *path ? path : ".", path, 0);
}

int hub_walk_top(struct hub_walk *w, const char *name)
{
    return walk_entry(w, w->r->fd, "", name, 0);
}

/* The entries of a directory, in any order. */
int hub_list_dir(struct hub_removal *r, const char *path, struct hub_names *out,
                 struct qwick_err *e)
{
    int fd =
        openat(r->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int rc = 0;
    if (!d) {
        rc = errno == ENOENT ? 0 : hub_err_in(r, path, "cannot be read", e);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    for (struct dirent *in; !rc && (in = readdir(d));)
        if (strcmp(in->d_name, ".") != 0 && strcmp(in->d_name, "..") != 0)
            rc = hub_names_add(out, in->d_name, e);
    closedir(d);
    return rc;
}

/* ---- blobs --------------------------------------------------------------- */

/* What deleting it frees: nothing while it has another name. */
static size_t bytes_of(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_nlink == 1 ? (size_t)st->st_size : 0;
}

/* The blob that a link names: "../../blobs/NAME". False: another place. */
bool hub_blob_of(const struct hub_entry *f, char out[PATH_MAX])
{
    static const char blobs[] = "blobs/";
    ssize_t n = readlinkat(f->dir, f->name, out, PATH_MAX - 1);
    char *at = out;
    if (n <= 0)
        return false;
    out[n] = '\0';
    while (strncmp(at, "../", 3) == 0)
        at += 3;
    if (at == out || strncmp(at, blobs, sizeof blobs - 1) != 0)
        return false;
    at += sizeof blobs - 1;
    if (!*at || *at == '.' || strchr(at, '/') || strlen(at) > NAME_MAX)
        return false;
    memmove(out, at, strlen(at) + 1);
    return true;
}

bool hub_link_name(const struct hub_entry *f, char out[PATH_MAX])
{
    ssize_t n = readlinkat(f->dir, f->name, out, PATH_MAX - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    const char *slash = strrchr(out, '/');
    if (slash)
        memmove(out, slash + 1, strlen(slash));
    return true;
}

/* Add the blob of a link to w->names, and count a file of its own. */
int hub_collect(struct hub_walk *w, const struct hub_entry *f)
{
    char blob[PATH_MAX];
    w->n_files++;
    if (hub_blob_of(f, blob))
        return hub_names_add(w->names, blob, w->e);
    w->n_bytes += bytes_of(&f->st);
    return 0;
}

/* The bytes of a blob that no link names any more. */
size_t hub_blob_bytes(const struct hub_removal *r, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "blobs/%s", name);
    return fstatat(r->fd, path, &st, AT_SYMLINK_NOFOLLOW) ? 0 : bytes_of(&st);
}

/* References are no part of a model's size. */
size_t hub_bytes_below(const struct hub_entry *f)
{
    return strncmp(f->path, "refs/", 5) == 0 ? 0 : bytes_of(&f->st);
}

/* The directories of leftovers. */
int hub_list_leftovers(struct hub_removal *r, struct hub_names *out,
                       struct qwick_err *e)
{
    struct hub_names all = {0};
    int rc = hub_list_dir(r, ".", &all, e);
    for (size_t i = 0; i < all.n && !rc; i++)
        if (strncmp(all.v[i], HUB_LEFTOVER, sizeof HUB_LEFTOVER - 1) == 0)
            rc = hub_names_add(out, all.v[i], e);
    hub_names_free(&all);
    return rc;
}

/* Whether there is no snapshot, except this one; NULL: none. */
int hub_is_last(struct hub_removal *r, const char *except, bool *last,
                struct qwick_err *e)
{
    struct hub_names all = {0};
    int rc = hub_list_dir(r, "snapshots", &all, e);
    *last = all.n == 0 || (all.n == 1 && except && !strcmp(all.v[0], except));
    hub_names_free(&all);
    return rc;
}

/* ---- opening ------------------------------------------------------------- */

static int err_busy(const struct hub_removal *r, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME,
                   "%s: a download into it, or a removal, is running: nothing "
                   "is removed",
                   r->t->repo);
}

/* Whether another program holds a lock of huggingface_hub, which locks a file
 * for each blob, .locks/models--ORG--NAME/BLOB.lock in the cache. */
static int check_locks(struct hub_removal *r, struct qwick_err *e)
{
    const char *slash = strrchr(r->t->repo, '/');
    char dir[PATH_MAX], path[PATH_MAX];
    struct hub_names all = {0};
    bool held = false;
    snprintf(dir, sizeof dir, "../.locks/%s", slash ? slash + 1 : r->t->repo);
    int rc = hub_list_dir(r, dir, &all, e);
    for (size_t i = 0; i < all.n && !held; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, all.v[i]);
        int fd = n > 0 && (size_t)n < sizeof path
                     ? openat(r->fd, path,
                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                     : -1;
        held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        if (fd >= 0)
            close(fd);
    }
    hub_names_free(&all);
    return rc ? -1 : held ? err_busy(r, e) : 0;
}

static int err_link(const char *path, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME,
                   "%s: is a symbolic link: nothing behind it is removed",
                   path);
}

/* Check that what must change can be written and is no link, before anything
 * changes. */
static int check_access(struct hub_removal *r, struct qwick_err *e)
{
    char snapshot[PATH_MAX], path[3 * PATH_MAX];
    const char *const parts[] = {"/snapshots", "/blobs", "/refs", "", snapshot};
    enum { N_FIXED = 4, N_PARTS = 5 };
    struct stat st;
    snprintf(snapshot, sizeof snapshot, "/snapshots/%s",
             r->t->snapshot ? r->t->snapshot : "");
    for (size_t i = 0; i < N_PARTS; i++) {
        snprintf(path, sizeof path, "%s%s", r->t->repo, parts[i]);
        bool link = !lstat(path, &st) && S_ISLNK(st.st_mode);
        if (link && i < N_FIXED)
            return err_link(path, e);
        if (!link && faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) &&
            errno != ENOENT)
            return err_errno(e, path, "cannot be changed");
    }
    return 0;
}

int hub_open_repo(struct hub_removal *r, struct qwick_err *e)
{
    if (check_access(r, e))
        return -1;
    r->fd = open(r->t->repo, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r->fd < 0)
        return err_errno(e, r->t->repo, "cannot be opened");
    /* as qwick-pull does; a file system without locks has none */
    if (flock(r->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return err_busy(r, e);
    return check_locks(r, e);
}
