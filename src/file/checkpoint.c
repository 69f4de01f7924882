#include "file/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buf.h"
#include "file/builtin.h"
#include "file/find_model.h"
#include "file/fs.h"
#include "file/gguf.h"
#include "file/gguf_pick.h"

struct checkpoint {
    char *name;
    char *dir; /* or the GGUF file */
    bool builtin;
    struct gguf *gguf; /* or NULL */
};

/* ---- checkpoints --------------------------------------------------------- */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A clone of a repository without Git LFS has a few lines of text in place of
 * each large file: version, oid, size. */
static int check_pointer(struct map *m, const char *path, struct qwick_err *e)
{
    static const char magic[] = "version https://git-lfs.github.com/spec/";
    if (m->size < sizeof magic - 1 || m->size > 1024 ||
        memcmp(m->data, magic, sizeof magic - 1) != 0)
        return 0;
    map_close(m);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: is a Git LFS pointer, not the file itself: fetch it "
                   "with git lfs pull, or with qwick pull",
                   path);
}

static const char *separator(const struct checkpoint *ck)
{
    return strcmp(ck->dir, "/") == 0 ? "" : "/";
}

/* The file at ck->dir, which must be GGUF's by its first bytes (stores of
 * models drop the suffix) or its name. */
static int open_file(struct checkpoint *ck, struct qwick_err *e)
{
    struct map map;
    if (map_open(&map, ck->dir, e))
        return -1;
    bool is = gguf_is(&map) || ends_in(ck->dir, ".gguf");
    int rc = is ? check_pointer(&map, ck->dir, e) : 0;
    if (!rc)
        map_close(&map);
    if (rc || is)
        return rc ? rc : gguf_open(&ck->gguf, ck->dir, e);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: is a file, not a checkpoint directory or a GGUF file: "
                   "name the directory that holds it",
                   ck->dir);
}

/* Open the GGUF file `name` of the directory at ck->dir, or below it. */
static int open_named(struct checkpoint *ck, const char *name,
                      struct qwick_err *e)
{
    char *path;
    if (asprintf(&path, "%s%s%s", ck->dir, separator(ck), name) < 0)
        return err_oom(e, strlen(ck->dir) + strlen(name) + 2);
    free(ck->dir);
    ck->dir = path;
    return open_file(ck, e);
}

/* Whether one of the files counts for gguf_pick. */
static bool any_counts(const struct gguf_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        if (gguf_stem(names->v[i]))
            return true;
    return false;
}

/* Open the GGUF file of this type (NULL: the only one) in the directory of
 * list, or in those below it if it has none. Does nothing if there are no GGUF
 * files and no type. */
static int open_gguf(struct checkpoint *ck, const struct dir_list *list,
                     const char *type, struct qwick_err *e)
{
    struct gguf_names names;
    int rc = 0;
    for (int below = 0; below < 2; below++) {
        if (gguf_names_list(&names, list, ck->dir, below, e))
            return -1;
        const char *const *v = (const char *const *)names.v;
        int at = gguf_pick(v, names.n, type, ck->dir, NULL);
        if (at >= 0)
            rc = open_named(ck, names.v[at], e);
        else if (below && (type || any_counts(&names)))
            rc = gguf_pick(v, names.n, type, ck->dir, e);
        gguf_names_free(&names);
        if (rc || at >= 0)
            break;
    }
    return rc;
}

static bool has_weights(const struct dir_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (ends_in(l->v[i].name, ".safetensors"))
            return true;
    return dir_list_has(l, "model.safetensors.index.json");
}

/* The directory at ck->dir: a checkpoint, or one with GGUF files, of which the
 * one of this type counts (NULL: the only one). Repositories of GGUF files may
 * also have a config.json. */
static int open_dir(struct checkpoint *ck, const char *type,
                    struct qwick_err *e)
{
    char path[4096];
    struct stat st;
    struct dir_list list;
    checkpoint_path(ck, "config.json", path, sizeof path);
    bool config = lstat(path, &st) == 0;
    if (dir_list_read(&list, ck->dir, SIZE_MAX, e))
        return config && !type ? 0 : -1;
    int rc = config && !type && has_weights(&list)
                 ? 0
                 : open_gguf(ck, &list, type, e);
    dir_list_free(&list);
    return rc;
}

/* Find and open what spec names. */
static int open_spec(struct checkpoint *ck, const char *spec,
                     struct qwick_err *e)
{
    const char *type;
    if (find_model(&ck->dir, &type, spec, false, e))
        return -1;
    /* "DIR//" and "DIR" read the same in messages. */
    size_t n = strlen(ck->dir);
    while (n > 1 && ck->dir[n - 1] == '/')
        ck->dir[--n] = '\0';
    return is_dir(ck->dir) ? open_dir(ck, type, e) : open_file(ck, e);
}

int checkpoint_check_name(const char *spec, struct qwick_err *e)
{
    return *spec ? 0
                 : err_set(e, QWICK_ERR_MODEL,
                           "model: the name is empty: give a directory or a "
                           "hub id such as Qwen/Qwen3-0.6B");
}

int checkpoint_open(struct checkpoint **out, const char *spec,
                    struct qwick_err *e)
{
    return checkpoint_open_at(out, spec, NULL, e);
}

int checkpoint_open_at(struct checkpoint **out, const char *spec,
                       const char *place, struct qwick_err *e)
{
    *out = NULL;
    if (spec && checkpoint_check_name(spec, e))
        return -1;
    struct checkpoint *ck = calloc(1, sizeof *ck);
    if (!ck)
        return err_oom(e, sizeof *ck);
    ck->builtin = !spec;
    ck->name = strdup(spec ? spec : "qwick-demo");
    if (!ck->name) {
        err_oom(e, strlen(spec ? spec : "qwick-demo") + 1);
        goto fail;
    }
    if (spec) {
        if (open_spec(ck, place ? place : spec, e))
            goto fail;
    } else {
        ck->dir = strdup("built-in");
        if (!ck->dir) {
            err_oom(e, sizeof "built-in");
            goto fail;
        }
    }
    *out = ck;
    return 0;
fail:
    checkpoint_close(ck);
    return -1;
}

void checkpoint_close(struct checkpoint *ck)
{
    if (!ck)
        return;
    gguf_close(ck->gguf);
    free(ck->name);
    free(ck->dir);
    free(ck);
}

const char *checkpoint_name(const struct checkpoint *ck)
{
    return ck->name;
}

const char *checkpoint_dir(const struct checkpoint *ck)
{
    return ck->dir;
}

bool checkpoint_is_builtin(const struct checkpoint *ck)
{
    return ck->builtin;
}

const struct gguf *checkpoint_gguf(const struct checkpoint *ck)
{
    return ck->gguf;
}

static bool is_plain(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static int err_name(const struct checkpoint *ck, const char *name,
                    struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: not a plain file name", ck->dir,
                   name);
}

/* name: a path in the checkpoint, which has been checked. */
static int map_path(const struct checkpoint *ck, const char *name,
                    struct map *out, bool *found, struct qwick_err *e)
{
    if (ck->gguf)
        return 0;
    if (ck->builtin) {
        struct builtin_file f;
        if (builtin_find(name, &f) == 0) {
            out->data = f.data;
            out->size = f.size;
            *found = true;
        }
        return 0;
    }
    struct buf path = {0};
    if (buf_puts(&path, ck->dir) || buf_puts(&path, separator(ck)) ||
        buf_puts(&path, name)) {
        buf_free(&path);
        return err_oom(e, strlen(ck->dir) + strlen(name) + 2);
    }
    struct stat st;
    int rc = 0;
    /* lstat, so that a link whose target is gone (a pruned or unfinished hub
     * cache) is an error, not a file that was never there. */
    if (lstat(path.data, &st)) {
        if (errno != ENOENT && errno != ENOTDIR)
            rc = err_set(e, QWICK_ERR_MODEL, "%s: cannot open: %s", path.data,
                         strerror(errno));
    } else if (S_ISLNK(st.st_mode) && stat(path.data, &st) && errno == ENOENT) {
        rc = err_incomplete(e, "%s: a symbolic link to a file that is missing",
                     path.data);
    } else {
        rc = map_open(out, path.data, e);
        if (!rc)
            rc = check_pointer(out, path.data, e);
        *found = rc == 0;
    }
    buf_free(&path);
    return rc;
}

int checkpoint_map(const struct checkpoint *ck, const char *name,
                   struct map *out, bool *found, struct qwick_err *e)
{
    size_t n = strlen(CHECKPOINT_TEMPLATES);
    *out = (struct map){0};
    *found = false;
    return is_plain(strncmp(name, CHECKPOINT_TEMPLATES, n) ? name : name + n)
               ? map_path(ck, name, out, found, e)
               : err_name(ck, name, e);
}

/* Close a file that is too large. */
static int check_small(const struct checkpoint *ck, const char *name,
                       struct map *out, bool *found, struct qwick_err *e)
{
    size_t n = out->size;
    if (n <= CHECKPOINT_SMALL)
        return 0;
    map_close(out);
    *found = false;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s%s%s: %zu bytes are above the limit of %zu", ck->dir,
                   separator(ck), name, n, CHECKPOINT_SMALL);
}

int checkpoint_map_small(const struct checkpoint *ck, const char *name,
                         struct map *out, bool *found, struct qwick_err *e)
{
    return checkpoint_map(ck, name, out, found, e) ||
                   check_small(ck, name, out, found, e)
               ? -1
               : 0;
}

/* The name of a file in a directory of the checkpoint. */
static int name_in(struct buf *out, const struct checkpoint *ck,
                   const char *dir, const char *name, struct qwick_err *e)
{
    if (!is_plain(dir) || !is_plain(name))
        return err_name(ck, is_plain(dir) ? name : dir, e);
    return buf_printf(out, "%s/%s", dir, name)
               ? err_oom(e, strlen(dir) + strlen(name) + 2)
               : 0;
}

int checkpoint_map_in(const struct checkpoint *ck, const char *dir,
                      const char *name, struct map *out, bool *found,
                      struct qwick_err *e)
{
    struct buf path = {0};
    *out = (struct map){0};
    *found = false;
    int rc = name_in(&path, ck, dir, name, e);
    if (!rc)
        rc = map_path(ck, path.data, out, found, e);
    buf_free(&path);
    return rc;
}

int checkpoint_map_small_in(const struct checkpoint *ck, const char *dir,
                            const char *name, struct map *out, bool *found,
                            struct qwick_err *e)
{
    struct buf path = {0};
    int rc = name_in(&path, ck, dir, name, e);
    if (!rc)
        rc = checkpoint_map_in(ck, dir, name, out, found, e) ||
                     check_small(ck, path.data, out, found, e)
                 ? -1
                 : 0;
    buf_free(&path);
    return rc;
}

void checkpoint_path(const struct checkpoint *ck, const char *name, char *out,
                     size_t n)
{
    const char *slash = ck->gguf ? strrchr(ck->dir, '/') : NULL;
    if (ck->gguf)
        snprintf(out, n, "%.*s%s", slash ? (int)(slash + 1 - ck->dir) : 0,
                 ck->dir, name);
    else
        snprintf(out, n, "%s%s%s", ck->dir, separator(ck), name);
}

/* ---- listing ------------------------------------------------------------- */

struct names {
    char **v;
    size_t n, cap;
};

static int names_add(struct names *l, const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    if (n < m || strcmp(name + n - m, suffix) != 0)
        return 0;
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, NULL))
        return -1;
    l->v[l->n] = strdup(name);
    if (!l->v[l->n])
        return -1;
    l->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_builtin(struct names *l, const char *suffix,
                        struct qwick_err *e)
{
    struct builtin_file f;
    for (size_t i = 0; builtin_at(i, &f) == 0; i++)
        if (names_add(l, f.name, suffix))
            return err_oom(e, strlen(f.name) + 1);
    return 0;
}

static int list_dir(struct names *l, const char *path, const char *suffix,
                    struct qwick_err *e)
{
    /* Hidden files do not belong to a checkpoint ("._model.safetensors" of
     * foreign file systems). */
    struct dir_list list;
    int rc = dir_list_read(&list, path, SIZE_MAX, e);
    for (size_t i = 0; i < list.n && !rc; i++)
        if (names_add(l, list.v[i].name, suffix))
            rc = err_oom(e, strlen(list.v[i].name) + 1);
    dir_list_free(&list);
    return rc;
}

/* Give the caller the sorted names, or free them if rc is not 0. */
static int list_end(struct names *l, int rc, char ***names, size_t *n)
{
    if (rc) {
        checkpoint_list_free(l->v, l->n);
        return rc;
    }
    if (l->n > 0)
        qsort(l->v, l->n, sizeof *l->v, by_name);
    *names = l->v;
    *n = l->n;
    return 0;
}

int checkpoint_list(const struct checkpoint *ck, const char *suffix,
                    char ***names, size_t *n, struct qwick_err *e)
{
    struct names l = {0};
    *names = NULL;
    *n = 0;
    if (ck->gguf)
        return 0;
    int rc = ck->builtin ? list_builtin(&l, suffix, e)
                         : list_dir(&l, ck->dir, suffix, e);
    return list_end(&l, rc, names, n);
}

int checkpoint_list_templates(const struct checkpoint *ck, const char *suffix,
                              char ***names, size_t *n, struct qwick_err *e)
{
    struct names l = {0};
    struct buf path = {0};
    struct stat st;
    int rc = 0;
    *names = NULL;
    *n = 0;
    if (ck->gguf || ck->builtin)
        return 0;
    if (buf_puts(&path, ck->dir) || buf_puts(&path, separator(ck)) ||
        buf_puts(&path, CHECKPOINT_TEMPLATES))
        rc = err_oom(e, strlen(ck->dir));
    else if (stat(path.data, &st) == 0)
        rc = list_dir(&l, path.data, suffix, e);
    buf_free(&path);
    return list_end(&l, rc, names, n);
}

void checkpoint_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}
