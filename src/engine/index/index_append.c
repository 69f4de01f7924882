/* Appending to an index. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/core/options.h"
#include "engine/index/index.h"
#include "file/fs.h"
#include "kernel/kernel.h"

/* From here on a number is infinite as f16. */
#define F16_END 65520.0f

/* ---- opening ------------------------------------------------------------- */

static bool is_old_manifest(const char *name)
{
    const char start[] = INDEX_MANIFEST ".tmp-";
    return strncmp(name, start, sizeof start - 1) == 0;
}

/* Without a manifest, the directory may only have what is left when the process
 * was killed before it wrote one. */
static int check_new(const struct qwick_index *ix, const struct dir_list *l,
                     struct qwick_err *e)
{
    const char *first = index_name(&ix->info, INDEX_OFFSETS);
    for (size_t i = 0; i < l->n; i++) {
        const char *name = l->v[i].name;
        struct stat st;
        char *path = index_path(ix, name, e);
        if (!path)
            return -1;
        bool ours = is_old_manifest(name) ||
                    (strcmp(name, first) == 0 && lstat(path, &st) == 0 &&
                     S_ISREG(st.st_mode) && st.st_size == 0);
        free(path);
        if (!ours)
            return err_usage(e,
                             "%s: is not an index, and is not empty: it has %s",
                             ix->dir, ERR_SHOW(name, strlen(name)));
    }
    return 0;
}

/* Read the directory, and check what is in it. locked: remove what a killed
 * process has left. */
static int look_around(const struct qwick_index *ix, bool locked,
                       struct qwick_err *e)
{
    struct dir_list l;
    int rc = 0;
    if (dir_list_read(&l, ix->dir, SIZE_MAX, e)) {
        if (e && e->code == QWICK_ERR_MODEL)
            e->code = QWICK_ERR_RUNTIME;
        return -1;
    }
    if (!dir_list_has(&l, INDEX_MANIFEST))
        rc = check_new(ix, &l, e);
    for (size_t i = 0; locked && !rc && i < l.n; i++) {
        char *path = is_old_manifest(l.v[i].name)
                         ? index_path(ix, l.v[i].name, NULL)
                         : NULL;
        if (path)
            (void)unlink(path);
        free(path);
    }
    dir_list_free(&l);
    return rc;
}

static int open_file(struct qwick_index *ix, enum index_file f,
                     struct qwick_err *e)
{
    char *path = index_path(ix, index_name(&ix->info, f), e);
    struct stat st;
    int rc = 0;
    if (!path)
        return -1;
    ix->fds[f] =
        fs_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (ix->fds[f] < 0 || fstat(ix->fds[f], &st))
        rc = err_errno(e, path, "cannot open");
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, QWICK_ERR_RUNTIME, "%s: is not a regular file", path);
    free(path);
    return rc;
}

/* Be the only writer. The file of the lock is never replaced. */
static int lock_index(struct qwick_index *ix, struct qwick_err *e)
{
    if (open_file(ix, INDEX_OFFSETS, e))
        return -1;
    if (flock(ix->fds[INDEX_OFFSETS], LOCK_EX | LOCK_NB) &&
        errno == EWOULDBLOCK)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: another process is writing this index", ix->dir);
    return 0;
}

static int mismatch(const struct qwick_index *ix, const char *what,
                    const char *is, const char *want, struct qwick_err *e)
{
    return err_usage(e, "%s: %s: is %s in the index, %s here", ix->dir, what,
                     ERR_SHOW(is, strlen(is)), ERR_SHOW(want, strlen(want)));
}

static int check_same(const struct qwick_index *ix,
                      const struct qwick_index_info *want, struct qwick_err *e)
{
    static const char *const yes_no[] = {"false", "true"};
    const struct qwick_index_info *is = &ix->info;
    if (qwick_index_check_model(ix, want, e))
        return -1;
    if (strcmp(is->prompt, want->prompt) != 0)
        return err_usage(e, "%s: prompt: is \"%s\" in the index, \"%s\" here",
                         ix->dir, ERR_SHOW(is->prompt, strlen(is->prompt)),
                         ERR_SHOW(want->prompt, strlen(want->prompt)));
    if (is->dim != want->dim)
        return err_usage(e, "%s: dim: is %zu in the index, %zu here", ix->dir,
                         is->dim, want->dim);
    if (is->normalized != want->normalized)
        return mismatch(ix, "normalized", yes_no[is->normalized],
                        yes_no[want->normalized], e);
    if (is->f16 != want->f16)
        return mismatch(ix, "type", is->f16 ? "f16" : "f32",
                        want->f16 ? "f16" : "f32", e);
    return 0;
}

/* Begin an index that has no rows, and so belongs to no model yet. */
static int begin(struct qwick_index *ix, const struct qwick_index_info *want,
                 struct qwick_err *e)
{
    if (want->dim < 1 || want->dim > INDEX_MAX_DIM)
        return err_usage(e, "dim: is %zu, not 1 to %d", want->dim,
                         INDEX_MAX_DIM);
    memset(ix->sizes, 0, sizeof ix->sizes);
    ix->n_rows = 0;
    return index_copy_info(&ix->info, want, e) || index_write_manifest(ix, e)
               ? -1
               : 0;
}

/* Open a file, unless it is open, that has all that is committed. */
static int open_to_append(struct qwick_index *ix, enum index_file f,
                          struct qwick_err *e)
{
    const char *name = index_name(&ix->info, f);
    struct stat st;
    if (ix->fds[f] < 0 && open_file(ix, f, e))
        return -1;
    if (fstat(ix->fds[f], &st))
        return index_bad(ix, name, e, "cannot read: %s", strerror(errno));
    if ((size_t)st.st_size < ix->sizes[f])
        return index_bad(ix, name, e, "has %zu bytes, %s counts %zu",
                         (size_t)st.st_size, INDEX_MANIFEST, ix->sizes[f]);
    return 0;
}

/* Drop what is not committed. */
static int cut_files(const struct qwick_index *ix, struct qwick_err *e)
{
    for (size_t f = 0; f < INDEX_FILES; f++)
        if (ftruncate(ix->fds[f], (off_t)ix->sizes[f]))
            return index_bad(ix, index_name(&ix->info, (enum index_file)f), e,
                             "cannot be cut: %s", strerror(errno));
    return 0;
}

static int append_open(struct qwick_index *ix,
                       const struct qwick_index_info *want, struct qwick_err *e)
{
    bool found;
    if (look_around(ix, false, e) || lock_index(ix, e) ||
        look_around(ix, true, e) || index_read_manifest(ix, &found, e))
        return -1;
    ix->writes = true;
    if (!found && !want)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: is not an index: it has no " INDEX_MANIFEST,
                       ix->dir);
    if (want && ix->n_rows ? check_same(ix, want, e)
        : want             ? begin(ix, want, e)
                           : 0)
        return -1;
    for (size_t f = 0; f < INDEX_FILES; f++)
        if (open_to_append(ix, (enum index_file)f, e))
            return -1;
    /* a damaged index is not changed */
    return index_map(ix, INDEX_OFFSETS, e) || index_read_dead(ix, e) ||
                   cut_files(ix, e)
               ? -1
               : 0;
}

int qwick_index_append(struct qwick_index **out, const char *dir,
                       const struct qwick_index_info *given,
                       struct qwick_err *e)
{
    struct qwick_index_info want = qwick_index_info_defaults();
    struct qwick_index *ix;
    *out = NULL;
    if (options_read(&want, sizeof want, given, "index", e) ||
        !(ix = index_new(dir, e)))
        return -1;
    if (append_open(ix, given ? &want : NULL, e)) {
        qwick_index_close(ix);
        return -1;
    }
    *out = ix;
    return 0;
}

/* ---- adding -------------------------------------------------------------- */

static int add_vector(struct qwick_index *ix, const float *v,
                      struct qwick_err *e)
{
    struct buf *b = &ix->added[INDEX_VECTORS];
    size_t n = ix->info.dim, bytes = n * index_number_bytes(&ix->info);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]) || (ix->info.f16 && fabsf(v[i]) >= F16_END))
            return err_usage(e,
                             "%s: number %zu of a vector is %g, which %s "
                             "cannot hold",
                             ix->dir, i, (double)v[i],
                             index_name(&ix->info, INDEX_VECTORS));
    if (buf_reserve(b, bytes))
        return err_oom(e, bytes);
    kernels_ref()->from_f32[ix->info.f16 ? DT_F16 : DT_F32](b->data + b->len, v,
                                                            n);
    b->len += bytes;
    return 0;
}

/* Add the bytes of a row to all files; old: the row that it replaces. */
static int add_bytes(struct qwick_index *ix, const struct qwick_index_row *row,
                     size_t old, const float *vector, struct qwick_err *e)
{
    struct buf *a = ix->added;
    const uint64_t end[2] = {
        ix->sizes[INDEX_IDS] + a[INDEX_IDS].len + row->n_id,
        ix->sizes[INDEX_TEXTS] + a[INDEX_TEXTS].len + row->n_text};
    const uint64_t dead = old;
    if (add_vector(ix, vector, e))
        return -1;
    if (buf_append(&a[INDEX_IDS], row->id, row->n_id) ||
        buf_append(&a[INDEX_TEXTS], row->text, row->n_text) ||
        buf_append(&a[INDEX_OFFSETS], end, sizeof end) ||
        (old != SIZE_MAX && buf_append(&a[INDEX_DEAD], &dead, sizeof dead)))
        return err_oom(e, row->n_id + row->n_text);
    return 0;
}

int qwick_index_add(struct qwick_index *ix, const struct qwick_index_row *row,
                    const float *vector, struct qwick_err *e)
{
    size_t old, at = ix->info.n_rows, lengths[INDEX_FILES];
    if (!ix->writes)
        return err_usage(e, "%s: is open for reading", ix->dir);
    if (at == INDEX_MAX_ROWS)
        return err_usage(e, "%s: more than %zu rows", ix->dir, at);
    if (qwick_index_find(ix, row->id, row->n_id, &old, e) ||
        index_room_dead(ix, at + 1, e))
        return -1;
    for (size_t f = 0; f < INDEX_FILES; f++)
        lengths[f] = ix->added[f].len;
    if (add_bytes(ix, row, old, vector, e)) {
        for (size_t f = 0; f < INDEX_FILES; f++)
            ix->added[f].len = lengths[f];
        return -1;
    }
    hashmap_put(&ix->by_id, hash_bytes(ix->seed, row->id, row->n_id),
                (uint32_t)at);
    ix->info.n_rows++;
    if (old != SIZE_MAX) {
        ix->dead[old / 64] |= (uint64_t)1 << old % 64;
        ix->info.n_dead++;
    }
    return 0;
}

/* ---- to the disk --------------------------------------------------------- */

int qwick_index_commit(struct qwick_index *ix, struct qwick_err *e)
{
    if (!ix->writes || ix->info.n_rows == ix->n_rows)
        return 0;
    for (size_t f = 0; f < INDEX_FILES; f++) {
        const struct buf *b = &ix->added[f];
        const char *name = index_name(&ix->info, (enum index_file)f);
        if (b->len &&
            (write_all_at(ix->fds[f], b->data, b->len, ix->sizes[f]) ||
             sync_open(ix->fds[f])))
            return index_bad(ix, name, e, "cannot write: %s", strerror(errno));
    }
    if (index_write_manifest(ix, e))
        return -1;
    for (size_t f = 0; f < INDEX_FILES; f++) {
        ix->sizes[f] += ix->added[f].len;
        ix->added[f].len = 0;
    }
    ix->n_rows = ix->info.n_rows;
    return index_map(ix, INDEX_OFFSETS, e);
}
