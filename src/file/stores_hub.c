/* Models in the Hugging Face cache; hub_cache.h shows how it is laid out. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "file/fs.h"
#include "file/hub_cache.h"
#include "file/stores.h"

enum { MAX_REF_DEPTH = 4 };

/* A revision, and the name of the snapshot that it means. */
struct ref {
    char *revision, *snapshot;
};

struct repo {
    struct store_scan *scan;
    const char *path;
    char *id; /* "org/name" */
    struct ref *refs;
    size_t n_refs, cap_refs;
};

static const char folder[] = "models--";

static int read_list(struct store_scan *scan, struct dir_list *l,
                     const char *path)
{
    struct qwick_err why = {0};
    if (dir_list_read(l, path, scan->entries, &why))
        return why.code == QWICK_ERR_MODEL
                   ? 0
                   : err_set(scan->e, why.code, "%s", why.msg);
    scan->entries -= l->n;
    return 0;
}

static char *join(const char *a, const char *between, const char *b)
{
    struct buf out = {0};
    if (buf_puts(&out, a) || buf_puts(&out, between) || buf_puts(&out, b))
        buf_free(&out);
    return buf_take(&out, NULL);
}

/* ---- revisions ------------------------------------------------------------
 */

/* Add the revision in the file at path. One that cannot be read names no
 * snapshot. */
static int add_ref(struct repo *r, const char *path, const char *revision)
{
    struct buf name = {0};
    struct qwick_err why;
    if (hub_read_ref(path, &name, &why)) {
        name.len = 0;
        if (why.code == QWICK_ERR_MEMORY) {
            buf_free(&name);
            return err_set(r->scan->e, why.code, "%s", why.msg);
        }
    }
    int rc = ARRAY_RESERVE(r->refs, r->cap_refs, r->n_refs + 1, r->scan->e);
    if (!rc) {
        struct ref *ref = &r->refs[r->n_refs++];
        *ref =
            (struct ref){strdup(revision), strdup(name.len ? name.data : "")};
        if (!ref->revision || !ref->snapshot)
            rc = err_oom(r->scan->e, strlen(revision) + 256);
    }
    buf_free(&name);
    return rc;
}

/* The files in refs/, and in directories below it: "refs/pr/3". */
static int read_refs(struct repo *r, const char *path, const char *in,
                     int depth)
{
    struct dir_list l = {0};
    int rc = read_list(r->scan, &l, path);
    for (size_t i = 0; i < l.n && !rc; i++) {
        char *file = join(path, "/", l.v[i].name);
        char *name = join(in, *in ? "/" : "", l.v[i].name);
        if (!file || !name)
            rc = err_oom(r->scan->e, strlen(path) + 256);
        else if (!l.v[i].is_dir)
            rc = add_ref(r, file, name);
        else if (depth < MAX_REF_DEPTH)
            rc = read_refs(r, file, name, depth + 1);
        free(file);
        free(name);
    }
    dir_list_free(&l);
    return rc;
}

/* The revision that means a snapshot: main if it does, else the first by name;
 * NULL: none. */
static const char *revision_of(const struct repo *r, const char *snapshot)
{
    const char *found = NULL;
    for (size_t i = 0; i < r->n_refs; i++) {
        if (strcmp(r->refs[i].snapshot, snapshot) != 0)
            continue;
        if (strcmp(r->refs[i].revision, "main") == 0)
            return "main";
        found = found ? found : r->refs[i].revision;
    }
    return found;
}

/* ---- repositories ---------------------------------------------------------
 */

static int add_snapshot(struct repo *r, const char *dir, const char *snapshot)
{
    const char *revision = revision_of(r, snapshot);
    bool is_main = revision && strcmp(revision, "main") == 0;
    char *path = join(dir, "/", snapshot);
    char *id = is_main ? strdup(r->id)
                       : join(r->id, "@", revision ? revision : snapshot);
    int rc = path && id ? scan_models(r->scan, path, id)
                        : err_oom(r->scan->e, strlen(dir) + 256);
    free(path);
    free(id);
    return rc;
}

/* The snapshots, and main if it means none of them. */
static int add_snapshots(struct repo *r, const char *dir)
{
    struct dir_list l = {0};
    size_t n = r->scan->s->n;
    int rc = read_list(r->scan, &l, dir);
    for (size_t i = 0; i < l.n && !rc; i++)
        if (l.v[i].is_dir)
            rc = add_snapshot(r, dir, l.v[i].name);
    for (size_t i = 0; i < r->n_refs && !rc; i++)
        if (strcmp(r->refs[i].revision, "main") == 0 &&
            !dir_list_has(&l, r->refs[i].snapshot))
            rc = scan_add(r->scan, r->id, NULL, r->path,
                          "the snapshot of revision main is missing: "
                          ERR_INCOMPLETE_HINT);
    if (!rc && r->scan->s->n == n && (r->scan->unfinished || !l.n))
        rc = scan_add(r->scan, r->id, NULL, r->path, "incomplete download");
    dir_list_free(&l);
    return rc;
}

static int find_unfinished(struct store_scan *scan, const char *blobs)
{
    struct dir_list l = {0};
    if (read_list(scan, &l, blobs))
        return -1;
    for (size_t i = 0; i < l.n; i++)
        scan->unfinished |= ends_in(l.v[i].name, ".incomplete");
    dir_list_free(&l);
    return 0;
}

/* "models--org--name" as "org/name". */
static char *id_of(const char *name)
{
    const char *from = name + sizeof folder - 1;
    const char *between = strstr(from, "--");
    if (!between)
        return strdup(from);
    char *org = strndup(from, (size_t)(between - from));
    char *id = org ? join(org, "/", between + 2) : NULL;
    free(org);
    return id;
}

static int add_repo(struct store_scan *scan, const char *path, const char *name)
{
    struct repo r = {.scan = scan, .path = path, .id = id_of(name)};
    char *refs = join(path, "/", "refs"), *blobs = join(path, "/", "blobs");
    char *snapshots = join(path, "/", "snapshots");
    int rc = 0;
    scan->unfinished = false;
    if (!r.id || !refs || !blobs || !snapshots)
        rc = err_oom(scan->e, strlen(path) + 256);
    if (!rc)
        rc = find_unfinished(scan, blobs) || read_refs(&r, refs, "", 0) ||
                     add_snapshots(&r, snapshots)
                 ? -1
                 : 0;
    for (size_t i = 0; i < r.n_refs; i++) {
        free(r.refs[i].revision);
        free(r.refs[i].snapshot);
    }
    free(r.refs);
    free(r.id);
    free(refs);
    free(blobs);
    free(snapshots);
    return rc;
}

int scan_hub(struct store_scan *scan, const char *root)
{
    struct dir_list l;
    struct qwick_err why = {0};
    int rc = 0;
    scan->repository = true;
    if (dir_list_read(&l, root, scan->entries, &why))
        return scan_add_unreadable(scan, root, NULL, root, &why);
    for (size_t i = 0; i < l.n && !rc; i++) {
        const char *name = l.v[i].name;
        if (!l.v[i].is_dir || strncmp(name, folder, sizeof folder - 1) != 0)
            continue;
        char *path = join(root, "/", name);
        rc = path ? add_repo(scan, path, name)
                  : err_oom(scan->e, strlen(root) + strlen(name) + 2);
        free(path);
    }
    dir_list_free(&l);
    return rc;
}
