/* Finding models in trees of directories: files of GGUF, and checkpoints, which
 * have a config.json or weights in safetensors format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/flag.h"
#include "file/fs.h"
#include "file/gguf_pick.h"
#include "file/stores.h"

enum { MAX_PATH_BYTES = 4096 };

/* Suffixes of files that are still being downloaded. */
static const char *const unfinished[] = {
    ".part",        ".incomplete", ".downloadInProgress",
    ".downloading", ".aria2",      ".crdownload",
    ".tmp",
};

enum { N_UNFINISHED = sizeof unfinished / sizeof *unfinished };

/* A directory while it is searched. */
struct dir {
    struct store_scan *scan;
    const char *path, *id;
    size_t depth;
    struct dir_list list;
    struct gguf_names gguf;
};

/* The names, as gguf_pick takes them. */
static const char *const *names_of(const struct dir *d)
{
    return (const char *const *)d->gguf.v;
}

static int join(struct buf *out, const char *a, const char *between,
                const char *b)
{
    out->len = 0;
    return buf_puts(out, a) || buf_puts(out, between) || buf_puts(out, b) ? -1
                                                                          : 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- GGUF files -----------------------------------------------------------
 */

/* Bytes of the name of a GGUF file before ".gguf" and the number of its
 * part. */
static int short_name(struct buf *out, const char *file)
{
    const char *name = base_of(file);
    out->len = 0;
    return buf_append(out, name, gguf_stem(name));
}

/* The id of file i of a directory: with the directory's id, and the file's type
 * where that is needed. */
static int file_id(const struct dir *d, size_t i, struct buf *out)
{
    const char *file = d->gguf.v[i];
    if (!*d->id)
        return short_name(out, file);
    size_t tag = gguf_tag(names_of(d), d->gguf.n, i), n = gguf_stem(file);
    if (tag)
        return join(out, d->id, ":", "") || buf_append(out, file + tag, n - tag)
                   ? -1
                   : 0;
    return gguf_pick(names_of(d), d->gguf.n, NULL, d->path, NULL) == (int)i
               ? join(out, d->id, "", "")
               : join(out, d->id, "/", file);
}

static int add_gguf(const struct dir *d, size_t i)
{
    struct buf id = {0}, name = {0}, path = {0};
    int rc = file_id(d, i, &id) || short_name(&name, d->gguf.v[i]) ||
             join(&path, d->path, "/", d->gguf.v[i]);
    rc = rc ? err_oom(d->scan->e, MAX_PATH_BYTES)
            : scan_add(d->scan, id.data, name.data, path.data, NULL);
    buf_free(&id);
    buf_free(&name);
    buf_free(&path);
    return rc;
}

/* Add a file that is not a model by itself, with its fault. */
static int add_faulty(const struct dir *d, const char *file, const char *fault)
{
    struct buf path = {0}, id = {0};
    int rc = join(&path, d->path, "/", file) ||
             join(&id, d->id, *d->id ? "/" : "", file);
    rc = rc ? err_oom(d->scan->e, MAX_PATH_BYTES)
            : scan_add(d->scan, id.data, file, path.data, fault);
    buf_free(&path);
    buf_free(&id);
    return rc;
}

/* Add a later part of a split file if no part with a lower number is there. */
static int add_orphan(const struct dir *d, size_t i)
{
    static const char fault[] = "part 1 is missing: " ERR_INCOMPLETE_HINT;
    char first[256];
    if (gguf_part_name(first, sizeof first, d->gguf.v[i], 1) < 2)
        return 0;
    for (size_t k = 0; k < d->gguf.n; k++)
        if (gguf_part_before(d->gguf.v[k], d->gguf.v[i]))
            return 0;
    return add_faulty(d, d->gguf.v[i], fault);
}

static int add_files(struct dir *d)
{
    for (size_t i = 0; i < d->gguf.n; i++)
        if (gguf_stem(d->gguf.v[i]) ? add_gguf(d, i) : add_orphan(d, i))
            return -1;
    return 0;
}

/* "NAME.gguf.part" and the like. */
static int add_unfinished(const struct dir *d)
{
    for (size_t i = 0; i < d->list.n; i++) {
        const char *name = d->list.v[i].name;
        const char *gguf = strstr(name, ".gguf.");
        for (size_t k = 0; gguf && k < N_UNFINISHED; k++)
            if (ends_in(name, unfinished[k]) &&
                add_faulty(d, name, "incomplete download"))
                return -1;
    }
    return 0;
}

/* ---- directories ----------------------------------------------------------
 */

static bool has_suffix(const struct dir_list *l, const char *suffix)
{
    for (size_t i = 0; i < l->n; i++)
        if (ends_in(l->v[i].name, suffix))
            return true;
    return false;
}

static int search(struct store_scan *scan, const char *path, const char *id,
                  size_t depth);

static int search_below(const struct dir *d)
{
    struct buf path = {0}, id = {0};
    int rc = 0;
    for (size_t i = 0; i < d->list.n && !rc; i++) {
        const char *name = d->list.v[i].name;
        if (!d->list.v[i].is_dir)
            continue;
        rc = join(&path, d->path, "/", name) ||
                     join(&id, d->id, *d->id ? "/" : "", name)
                 ? err_oom(d->scan->e, MAX_PATH_BYTES)
                 : search(d->scan, path.data, id.data, d->depth + 1);
    }
    buf_free(&path);
    buf_free(&id);
    return rc;
}

/* Whether the directory is a checkpoint. One with weights but without
 * config.json is one whose download is not complete, unless it has GGUF files:
 * then the weights are something else. */
static bool is_checkpoint(const struct dir *d)
{
    return has_suffix(&d->list, ".safetensors") &&
           (dir_list_has(&d->list, "config.json") ||
            !has_suffix(&d->list, ".gguf"));
}

/* What is in a directory. Below a checkpoint with weights nothing is searched:
 * its directories hold other forms of the model. */
static int search_list(struct dir *d)
{
    bool weights = is_checkpoint(d);
    bool config = dir_list_has(&d->list, "config.json");
    const char *id = *d->id ? d->id : base_of(d->path);
    size_t n = d->scan->s->n;
    bool below = d->scan->repository && d->depth == 0;
    if (weights && scan_add(d->scan, id, NULL, d->path, NULL))
        return -1;
    if (gguf_names_list(&d->gguf, &d->list, d->path, below, d->scan->e) ||
        add_files(d) || add_unfinished(d) ||
        (!weights && !below && search_below(d)))
        return -1;
    return config && !weights && d->scan->s->n == n
               ? scan_add(d->scan, id, NULL, d->path, NULL)
               : 0;
}

/* Whether the directory is one of those above it. */
static bool is_loop(struct store_scan *scan, const char *path, size_t depth)
{
    struct stat st;
    if (stat(path, &st))
        return false; /* listing it will say why */
    for (size_t i = 0; i < depth; i++)
        if (scan->above[i].ino == st.st_ino && scan->above[i].dev == st.st_dev)
            return true;
    scan->above[depth].dev = st.st_dev;
    scan->above[depth].ino = st.st_ino;
    return false;
}

static int search(struct store_scan *scan, const char *path, const char *id,
                  size_t depth)
{
    struct dir d = {.scan = scan, .path = path, .id = id, .depth = depth};
    if (flag_is_set(scan->interrupt))
        return err_set(scan->e, QWICK_ERR_INTERRUPTED, "interrupted");
    if (depth > STORES_MAX_DEPTH || is_loop(scan, path, depth))
        return 0;
    if (!scan->entries) {
        scan->s->cut = true;
        return 0;
    }
    struct qwick_err why = {0};
    if (dir_list_read(&d.list, path, scan->entries, &why)) {
        const char *name = *id ? id : base_of(path);
        return scan_add_unreadable(scan, name, NULL, path, &why);
    }
    scan->entries -= d.list.n;
    int rc = search_list(&d);
    gguf_names_free(&d.gguf);
    dir_list_free(&d.list);
    return rc;
}

int scan_models(struct store_scan *scan, const char *path, const char *id)
{
    return search(scan, path, id, 0);
}

int scan_tree(struct store_scan *scan, const char *root)
{
    return search(scan, root, "", 0);
}

/* ---- ModelScope -----------------------------------------------------------
 */

/* The id is the last two parts of the path below the cache, which has "___" in
 * place of ".". */
static int rename_model(struct store_model *m, struct qwick_err *e)
{
    char *slash = strrchr(m->id, '/'), *from, *to;
    while (slash && slash > m->id && slash[-1] != '/')
        slash--;
    from = slash ? slash : m->id;
    to = m->id;
    while (*from) {
        bool dot = strncmp(from, "___", 3) == 0;
        *to++ = dot ? '.' : *from;
        from += dot ? 3 : 1;
    }
    *to = '\0';
    const char *tail = strrchr(m->id, '/');
    if (ends_in(m->path, ".gguf"))
        return 0;
    char *name = strdup(tail ? tail + 1 : m->id);
    if (!name)
        return err_oom(e, strlen(m->id) + 1);
    free(m->name);
    m->name = name;
    return 0;
}

int scan_modelscope(struct store_scan *scan, const char *root)
{
    size_t n = scan->s->n;
    if (scan_tree(scan, root))
        return -1;
    for (size_t i = n; i < scan->s->n; i++)
        if (rename_model(&scan->s->v[i], scan->e))
            return -1;
    return 0;
}
