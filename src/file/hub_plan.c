/* The plan of a removal: files, and bytes that it would free. */
#include <string.h>

#include "file/gguf_pick.h"
#include "file/hub_repo.h"

/* The path below the target's snapshot; NULL: it is not in there. */
static const char *in_target(const struct hub_target *t, const char *path)
{
    static const char snapshots[] = "snapshots/";
    size_t n = t->snapshot ? strlen(t->snapshot) : 0;
    const char *at = path + sizeof snapshots - 1;
    if (t->all)
        return path;
    if (!t->snapshot || strncmp(path, snapshots, sizeof snapshots - 1) != 0 ||
        strncmp(at, t->snapshot, n) != 0 || (at[n] && at[n] != '/'))
        return NULL;
    return at[n] ? at + n + 1 : at + n;
}

/* Whether a file below the snapshot is the target's, or a part of it. */
static bool is_part(const struct hub_target *t, const char *below)
{
    return !t->file || strcmp(below, t->file) == 0 ||
           gguf_part_before(t->file, below);
}

static int look_for_others(struct hub_walk *w, const struct hub_entry *f)
{
    const char *below = in_target(w->r->t, f->path);
    if (below && !is_part(w->r->t, below))
        w->r->entire = false;
    return 0;
}

/* The walk collects the blobs of files that go; `other` has those of files that
 * stay. */
struct plan {
    struct hub_walk w;
    struct hub_names other;
};

static int plan_entry(struct hub_walk *w, const struct hub_entry *f)
{
    struct plan *p = (struct plan *)w;
    const char *below = in_target(w->r->t, f->path);
    char blob[PATH_MAX];
    if (below && (w->r->entire || is_part(w->r->t, below)))
        return hub_collect(w, f);
    return hub_link_name(f, blob) ? hub_names_add(&p->other, blob, w->e) : 0;
}

static int count_bytes(struct hub_walk *w, const struct hub_entry *f)
{
    w->n_bytes += hub_bytes_below(f);
    return 0;
}

/* Count the bytes to be freed; with `last`, the whole repository goes. */
static int plan_bytes(struct hub_removal *r, struct plan *p, bool last,
                      size_t *n_bytes, struct qwick_err *e)
{
    struct hub_walk all = {.r = r, .fn = count_bytes, .e = e};
    if (last) {
        if (hub_walk_below(&all, ""))
            return -1;
        *n_bytes = all.n_bytes;
        return 0;
    }
    *n_bytes = p->w.n_bytes;
    for (size_t i = 0; i < p->w.names->n; i++)
        if (!hub_names_have(&p->other, p->w.names->v[i]))
            *n_bytes += hub_blob_bytes(r, p->w.names->v[i]);
    return 0;
}

int hub_plan(struct hub_removal *r, size_t *n_files, size_t *n_bytes,
             struct qwick_err *e)
{
    const struct hub_target *t = r->t;
    struct hub_names gone = {0}, dirs = {0};
    struct plan p = {.w = {.r = r, .fn = plan_entry, .names = &gone, .e = e}};
    struct hub_walk others = {.r = r, .fn = look_for_others, .e = e};
    struct hub_walk old = {.r = r, .fn = hub_collect, .names = &gone, .e = e};
    bool last = false;
    r->entire = true;
    int rc = hub_walk_below(&others, "snapshots") ||
             hub_walk_below(&p.w, "snapshots") ||
             hub_is_last(r, r->entire ? t->snapshot : NULL, &last, e) ||
             hub_list_leftovers(r, &dirs, e);
    for (size_t i = 0; i < dirs.n && !rc; i++)
        rc = hub_walk_top(&old, dirs.v[i]);
    p.w.n_bytes += old.n_bytes;
    *n_files = p.w.n_files + old.n_files;
    if (!rc)
        rc = plan_bytes(r, &p, last || t->all, n_bytes, e);
    hub_names_free(&gone);
    hub_names_free(&dirs);
    hub_names_free(&p.other);
    return rc ? -1 : 0;
}
