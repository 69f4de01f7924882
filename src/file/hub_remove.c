#include "file/hub_remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/gguf_pick.h"
#include "file/hub_repo.h"

static const char leftover[] = HUB_LEFTOVER;
/* In a directory of leftovers, a snapshot as a whole. */
static const char whole[] = "@snapshot";

void hub_target_free(struct hub_target *t)
{
    free(t->repo);
    free(t->snapshot);
    free(t->file);
    *t = (struct hub_target){0};
}

static int delete_entry(struct hub_walk *w, const struct hub_entry *f)
{
    bool dir = S_ISDIR(f->st.st_mode);
    if (unlinkat(f->dir, f->name, dir ? AT_REMOVEDIR : 0) && errno != ENOENT)
        return hub_err_in(w->r, f->path, "cannot be removed", w->e);
    w->r->freed += hub_bytes_below(f);
    return 0;
}

/* Delete what is below a directory, and itself unless it is the repository. */
static int delete_tree(struct hub_removal *r, const char *path,
                       struct qwick_err *e)
{
    struct hub_walk w = {.r = r, .fn = delete_entry, .dirs = true, .e = e};
    return *path ? hub_walk_top(&w, path) : hub_walk_below(&w, "");
}

/* ---- leftovers ----------------------------------------------------------- */

/* Move a file of a snapshot to the leftovers. One that is not there is none. */
static int move_file(const struct hub_removal *r, const char *snapshot,
                     const char *file, struct qwick_err *e)
{
    char from[PATH_MAX], to[PATH_MAX];
    const char *slash = strchr(file, '/');
    int n = snprintf(from, sizeof from, "snapshots/%s/%s", snapshot, file);
    snprintf(to, sizeof to, "%s%s", leftover, snapshot);
    if (n < 0 || (size_t)n >= sizeof from)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: the path is too long", file);
    if (mkdirat(r->fd, to, 0777) && errno != EEXIST)
        return hub_err_in(r, to, "cannot be made", e);
    if (slash) {
        snprintf(to, sizeof to, "%s%s/%.*s", leftover, snapshot,
                 (int)(slash - file), file);
        if (mkdirat(r->fd, to, 0777) && errno != EEXIST)
            return hub_err_in(r, to, "cannot be made", e);
    }
    snprintf(to, sizeof to, "%s%s/%s", leftover, snapshot, file);
    return renameat(r->fd, from, r->fd, to) && errno != ENOENT
               ? hub_err_in(r, from, "cannot be removed", e)
               : 0;
}

/* The number of parts of a split file, and of its part that `file` is; 0: it is
 * not split. */
static size_t part_count(const char *file, size_t *own)
{
    size_t n = strlen(file);
    char part[PATH_MAX];
    *own = gguf_part_name(part, sizeof part, file, 1);
    return *own ? strtoul(file + n - 10, NULL, 10) : 0; /* "00003.gguf" */
}

/* Move the later parts of a file whose first part was moved, or is missing. */
static int move_parts(const struct hub_removal *r, const char *snapshot,
                      const char *first, struct qwick_err *e)
{
    char part[PATH_MAX];
    size_t k, n = part_count(first, &k);
    int rc = 0;
    while (++k <= n && !rc) {
        gguf_part_name(part, sizeof part, first, k);
        rc = move_file(r, snapshot, part, e);
    }
    const char *slash = strrchr(first, '/');
    snprintf(part, sizeof part, "snapshots/%s/%.*s", snapshot,
             slash ? (int)(slash - first) : 0, first);
    if (slash)
        (void)unlinkat(r->fd, part, AT_REMOVEDIR); /* if it is empty */
    return rc;
}

/* A first part among the leftovers, ".removed-SNAPSHOT/FILE": the others may
 * still be in the snapshot, unless it was downloaded again. */
static int finish_parts(struct hub_walk *w, const struct hub_entry *f)
{
    char snapshot[NAME_MAX + 1], first[PATH_MAX];
    struct stat st;
    const char *at = f->path + sizeof leftover - 1, *slash = strchr(at, '/');
    size_t own;
    if (!slash || part_count(slash + 1, &own) < 2 || own != 1)
        return 0;
    snprintf(snapshot, sizeof snapshot, "%.*s", (int)(slash - at), at);
    snprintf(first, sizeof first, "snapshots/%s/%s", snapshot, slash + 1);
    return fstatat(w->r->fd, first, &st, AT_SYMLINK_NOFOLLOW)
               ? move_parts(w->r, snapshot, slash + 1, w->e)
               : 0;
}

bool hub_has_leftovers(const char *repo)
{
    DIR *d = opendir(repo);
    bool found = false;
    for (struct dirent *in; d && !found && (in = readdir(d));)
        found = strncmp(in->d_name, leftover, sizeof leftover - 1) == 0;
    if (d)
        closedir(d);
    return found;
}

static int delete_blob(struct hub_removal *r, const char *name,
                       struct qwick_err *e)
{
    char path[PATH_MAX];
    size_t n = hub_blob_bytes(r, name);
    snprintf(path, sizeof path, "blobs/%s", name);
    if (unlinkat(r->fd, path, 0)) {
        if (errno == ENOENT)
            return 0;
        return hub_err_in(r, path, "cannot be removed", e);
    }
    r->freed += n;
    return 0;
}

static int keep_blob(struct hub_walk *w, const struct hub_entry *f)
{
    char name[PATH_MAX];
    return hub_link_name(f, name) ? hub_names_add(w->names, name, w->e) : 0;
}

/* Delete leftovers with the blobs that no snapshot links. */
static int delete_leftovers(struct hub_removal *r, const struct hub_names *dirs,
                            struct qwick_err *e)
{
    struct hub_names gone = {0}, linked = {0};
    struct hub_walk take = {.r = r, .fn = hub_collect, .names = &gone, .e = e};
    struct hub_walk keep = {.r = r, .fn = keep_blob, .names = &linked, .e = e};
    struct hub_walk parts = {.r = r, .fn = finish_parts, .e = e};
    int rc = 0;
    for (size_t i = 0; i < dirs->n && !rc; i++)
        rc = hub_walk_top(&parts, dirs->v[i]);
    for (size_t i = 0; i < dirs->n && !rc; i++)
        rc = hub_walk_top(&take, dirs->v[i]);
    if (!rc)
        rc = hub_walk_below(&keep, "snapshots");
    for (size_t i = 0; i < gone.n && !rc; i++)
        if (!hub_names_have(&linked, gone.v[i]))
            rc = delete_blob(r, gone.v[i], e);
    for (size_t i = 0; i < dirs->n && !rc; i++)
        rc = delete_tree(r, dirs->v[i], e);
    hub_names_free(&gone);
    hub_names_free(&linked);
    return rc;
}

/* Delete what removals have left; without any snapshot, the repository. */
static int finish(struct hub_removal *r, struct qwick_err *e)
{
    struct hub_names dirs = {0};
    bool last = false;
    int rc = hub_list_leftovers(r, &dirs, e);
    if (!rc && dirs.n)
        rc = delete_leftovers(r, &dirs, e);
    hub_names_free(&dirs);
    if (rc || hub_is_last(r, NULL, &last, e))
        return -1;
    if (!last)
        return 0;
    if (delete_tree(r, "", e))
        return -1;
    return rmdir(r->t->repo) && errno != ENOENT
               ? err_errno(e, r->t->repo, "cannot be removed")
               : 0;
}

/* ---- names first --------------------------------------------------------- */

/* Remove a reference that names the target; without one, a snapshot that is not
 * there. */
static int drop_ref(struct hub_walk *w, const struct hub_entry *f)
{
    char text[256], path[PATH_MAX];
    struct stat st;
    if (S_ISDIR(f->st.st_mode)) {
        (void)unlinkat(f->dir, f->name, AT_REMOVEDIR); /* if it is empty */
        return 0;
    }
    int fd =
        openat(f->dir, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0; /* it names nothing */
    text[n] = '\0';
    text[strcspn(text, " \t\r\n")] = '\0';
    snprintf(path, sizeof path, "snapshots/%s", text);
    bool ours = w->r->t->snapshot
                    ? strcmp(text, w->r->t->snapshot) == 0
                    : w->r->t->all || fstatat(w->r->fd, path, &st, 0);
    return ours ? delete_entry(w, f) : 0;
}

static int move_snapshot(struct hub_removal *r, const char *name,
                         struct qwick_err *e)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(to, sizeof to, "%s%s", leftover, name);
    if (mkdirat(r->fd, to, 0777) && errno != EEXIST)
        return hub_err_in(r, to, "cannot be made", e);
    snprintf(from, sizeof from, "snapshots/%s", name);
    snprintf(to, sizeof to, "%s%s/%s", leftover, name, whole);
    return renameat(r->fd, from, r->fd, to)
               ? hub_err_in(r, from, "cannot be removed", e)
               : 0;
}

static int move_all(struct hub_removal *r, struct qwick_err *e)
{
    struct hub_names all = {0};
    int rc = hub_list_dir(r, "snapshots", &all, e);
    for (size_t i = 0; i < all.n && !rc; i++)
        rc = move_snapshot(r, all.v[i], e);
    hub_names_free(&all);
    return rc;
}

int hub_removal_run(struct hub_removal *r, size_t *n_bytes, struct qwick_err *e)
{
    const struct hub_target *t = r->t;
    struct hub_walk refs = {.r = r, .fn = drop_ref, .dirs = true, .e = e};
    bool none = !t->snapshot && !t->all;
    int rc = finish(r, e); /* old leftovers would be in the way */
    if (!rc && r->entire)
        rc = hub_walk_below(&refs, "refs");
    if (!rc && t->all)
        rc = move_all(r, e);
    else if (!rc && !none)
        rc = r->entire ? move_snapshot(r, t->snapshot, e)
                       : (move_file(r, t->snapshot, t->file, e) ||
                          move_parts(r, t->snapshot, t->file, e));
    if (!rc && fsync(r->fd) && errno != EINVAL && errno != EROFS)
        rc = err_errno(e, t->repo, "cannot be written");
    if (!rc)
        rc = finish(r, e);
    *n_bytes = r->freed;
    return rc ? -1 : 0;
}

int hub_removal_open(struct hub_removal **out, const struct hub_target *t,
                     size_t *n_files, size_t *n_bytes, struct qwick_err *e)
{
    struct hub_removal *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return err_oom(e, sizeof *r);
    r->t = t;
    r->fd = -1;
    if (hub_open_repo(r, e) || hub_plan(r, n_files, n_bytes, e)) {
        hub_removal_close(r);
        return -1;
    }
    *out = r;
    return 0;
}

void hub_removal_close(struct hub_removal *r)
{
    if (r && r->fd >= 0)
        close(r->fd);
    free(r);
}
