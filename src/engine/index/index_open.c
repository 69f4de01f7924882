/* Opening an index, and functions for both readers and writers. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/par.h"
#include "base/rng.h"
#include "engine/core/engine.h"
#include "engine/core/options.h"
#include "engine/index/index.h"
#include "kernel/kernel.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are on disk as they are in memory");

/* ---- descriptions -------------------------------------------------------- */

void qwick_index_info_init(struct qwick_index_info *o, size_t size)
{
    static const struct qwick_index_info defaults = {.prompt = "",
                                                     .normalized = true};
    options_init(o, size, &defaults, sizeof defaults);
}

static void free_info(struct qwick_index_info *info)
{
    free((char *)(uintptr_t)info->model);
    free((char *)(uintptr_t)info->prompt);
    info->model = info->prompt = NULL;
}

int index_copy_info(struct qwick_index_info *info,
                    const struct qwick_index_info *from, struct qwick_err *e)
{
    struct qwick_index_info own = *from;
    own.model = from->model ? strdup(from->model) : NULL;
    own.prompt = strdup(from->prompt);
    free_info(info);
    *info = own;
    info->n_rows = info->n_dead = 0;
    return (from->model && !own.model) || !own.prompt
               ? err_oom(e, strlen(from->prompt))
               : 0;
}

const struct qwick_index_info *
qwick_index_get_info(const struct qwick_index *ix)
{
    return &ix->info;
}

int qwick_index_check_model(const struct qwick_index *ix,
                            const struct qwick_index_info *o,
                            struct qwick_err *e)
{
    const struct qwick_index_info *is = &ix->info;
    const uint64_t *a = is->model_hash, *b = o->model_hash;
    if (a[0] != b[0] || a[1] != b[1])
        return err_usage(e,
                         "%s: holds vectors of another model: its hash is "
                         "%016llx%016llx, that of the model %016llx%016llx",
                         ix->dir, (unsigned long long)a[0],
                         (unsigned long long)a[1], (unsigned long long)b[0],
                         (unsigned long long)b[1]);
    return 0;
}

/* ---- opening ------------------------------------------------------------- */

struct qwick_index *index_new(const char *dir, struct qwick_err *e)
{
    struct qwick_index *ix = calloc(1, sizeof *ix);
    if (ix && (ix->dir = strdup(dir))) {
        size_t n = strlen(dir);
        while (n > 1 && ix->dir[n - 1] == '/')
            ix->dir[--n] = '\0';
        for (size_t f = 0; f < INDEX_FILES; f++)
            ix->fds[f] = -1;
        ix->seed = rng_random_seed();
        return ix;
    }
    free(ix);
    err_oom(e, sizeof *ix);
    return NULL;
}

void qwick_index_close(struct qwick_index *ix)
{
    if (!ix)
        return;
    for (size_t f = 0; f < INDEX_FILES; f++) {
        map_close(&ix->maps[f]);
        buf_free(&ix->added[f]);
        if (ix->fds[f] >= 0)
            close(ix->fds[f]);
    }
    par_free(ix->pool);
    hashmap_free(&ix->by_id);
    free(ix->dead);
    free_info(&ix->info);
    free(ix->dir);
    free(ix);
}

int index_room_dead(struct qwick_index *ix, size_t n_rows, struct qwick_err *e)
{
    size_t old = ix->cap_dead;
    if (ARRAY_RESERVE(ix->dead, ix->cap_dead, n_rows / 64 + 1, e))
        return -1;
    if (ix->cap_dead > old)
        memset(ix->dead + old, 0, (ix->cap_dead - old) * sizeof *ix->dead);
    return 0;
}

/* Set the bits of dead rows. */
int index_read_dead(struct qwick_index *ix, struct qwick_err *e)
{
    const unsigned char *p = ix->maps[INDEX_DEAD].data;
    if (index_room_dead(ix, ix->n_rows, e))
        return -1;
    for (size_t i = 0; i < ix->info.n_dead; i++) {
        uint64_t row;
        memcpy(&row, p + i * sizeof row, sizeof row);
        if (row >= ix->n_rows || index_is_dead(ix, row))
            return index_bad(ix, index_name(&ix->info, INDEX_DEAD), e,
                             "row %llu: is %s", (unsigned long long)row,
                             row >= ix->n_rows ? "not there" : "dead twice");
        ix->dead[row / 64] |= (uint64_t)1 << row % 64;
    }
    return 0;
}

/* The last row must end where the manifest says. */
static int check_ends(const struct qwick_index *ix, struct qwick_err *e)
{
    const struct map *m = &ix->maps[INDEX_OFFSETS];
    uint64_t end[2] = {0, 0};
    if (ix->n_rows)
        memcpy(end, m->data + ix->sizes[INDEX_OFFSETS] - sizeof end,
               sizeof end);
    for (size_t i = 0; i < 2; i++)
        if (end[i] != ix->sizes[INDEX_IDS + i])
            return index_bad(ix, index_name(&ix->info, INDEX_OFFSETS), e,
                             "%s end at byte %llu, in %s at %zu",
                             i ? "texts" : "ids", (unsigned long long)end[i],
                             INDEX_MANIFEST, ix->sizes[INDEX_IDS + i]);
    return 0;
}

static int map_committed(struct qwick_index *ix, enum index_file f,
                         struct qwick_err *e)
{
    const char *name = index_name(&ix->info, f);
    map_close(&ix->maps[f]);
    if (!ix->sizes[f])
        return 0;
    if (index_map_file(ix, name, &ix->maps[f], e))
        return -1;
    if (ix->maps[f].size < ix->sizes[f])
        return index_bad(ix, name, e, "has %zu bytes, %s counts %zu",
                         ix->maps[f].size, INDEX_MANIFEST, ix->sizes[f]);
    return 0;
}

int index_map(struct qwick_index *ix, enum index_file from, struct qwick_err *e)
{
    for (size_t f = from; f < INDEX_FILES; f++)
        if (map_committed(ix, (enum index_file)f, e))
            return -1;
    return check_ends(ix, e);
}

int qwick_index_open(struct qwick_index **out, const char *dir,
                     struct qwick_err *e)
{
    struct qwick_index *ix = index_new(dir, e);
    bool found;
    *out = NULL;
    if (!ix)
        return -1;
    int rc = index_read_manifest(ix, &found, e);
    if (!rc && !found)
        rc = err_set(e, QWICK_ERR_RUNTIME,
                     "%s: is not an index: it has no " INDEX_MANIFEST, ix->dir);
    if (rc || index_map(ix, INDEX_VECTORS, e) || index_read_dead(ix, e)) {
        qwick_index_close(ix);
        return -1;
    }
    map_expect_all(&ix->maps[INDEX_VECTORS]);
    *out = ix;
    return 0;
}

/* ---- rows ---------------------------------------------------------------- */

static void get_ends(const struct qwick_index *ix, size_t row, uint64_t end[2])
{
    size_t at = row * 2 * sizeof *end;
    const unsigned char *p =
        row < ix->n_rows
            ? ix->maps[INDEX_OFFSETS].data + at
            : (const unsigned char *)ix->added[INDEX_OFFSETS].data +
                  (at - ix->sizes[INDEX_OFFSETS]);
    memcpy(end, p, 2 * sizeof *end);
}

int qwick_index_get_row(const struct qwick_index *ix, size_t row,
                        struct qwick_index_row *out, struct qwick_err *e)
{
    uint64_t begin[2] = {0, 0}, end[2];
    const char *bytes[2];
    *out = (struct qwick_index_row){0};
    if (row >= ix->info.n_rows)
        return err_usage(e, "%s: row %zu: there are %zu", ix->dir, row,
                         ix->info.n_rows);
    if (ix->n_rows && !ix->maps[INDEX_OFFSETS].data)
        return index_bad(ix, index_name(&ix->info, INDEX_OFFSETS), e,
                         "is no longer mapped");
    if (row)
        get_ends(ix, row - 1, begin);
    get_ends(ix, row, end);
    for (size_t i = 0; i < 2; i++) {
        enum index_file f = (enum index_file)(INDEX_IDS + i);
        bool committed = row < ix->n_rows;
        size_t start = committed ? 0 : ix->sizes[f];
        size_t n = committed ? ix->sizes[f] < ix->maps[f].size
                                   ? ix->sizes[f]
                                   : ix->maps[f].size
                             : ix->added[f].len;
        if (begin[i] > end[i] || begin[i] < start || end[i] - start > n)
            return index_bad(ix, index_name(&ix->info, INDEX_OFFSETS), e,
                             "row %zu: has bytes %llu to %llu of %zu of %s",
                             row, (unsigned long long)begin[i],
                             (unsigned long long)end[i], start + n,
                             index_name(&ix->info, f));
        const char *base =
            committed ? (const char *)ix->maps[f].data : ix->added[f].data;
        bytes[i] = end[i] > begin[i] ? base + (begin[i] - start) : "";
    }
    *out = (struct qwick_index_row){bytes[0], bytes[1], end[0] - begin[0],
                                    end[1] - begin[1]};
    return 0;
}

int qwick_index_get_vector(const struct qwick_index *ix, size_t row, float *out,
                           struct qwick_err *e)
{
    const struct map *m = &ix->maps[INDEX_VECTORS];
    size_t bytes = ix->info.dim * index_number_bytes(&ix->info);
    if (row >= ix->n_rows || m->size / bytes <= row)
        return err_usage(e, "%s: row %zu: there are %zu to read", ix->dir, row,
                         m->size ? ix->n_rows : 0);
    kernels_ref()->to_f32[ix->info.f16 ? DT_F16 : DT_F32](
        out, m->data + row * bytes, ix->info.dim);
    return 0;
}

/* ---- ids ----------------------------------------------------------------- */

/* Make the table anew, with room for more rows. */
static int make_ids(struct qwick_index *ix, struct qwick_err *e)
{
    size_t room = ix->info.n_rows + ix->info.n_rows / 2 + 1024;
    if (room > INDEX_MAX_ROWS)
        room = INDEX_MAX_ROWS;
    ix->cap_ids = 0;
    if (hashmap_init(&ix->by_id, room, room, e))
        return -1;
    for (size_t i = 0; i < ix->info.n_rows; i++) {
        struct qwick_index_row r;
        if (index_is_dead(ix, i))
            continue;
        if (qwick_index_get_row(ix, i, &r, e))
            return -1;
        hashmap_put(&ix->by_id, hash_bytes(ix->seed, r.id, r.n_id),
                    (uint32_t)i);
    }
    ix->cap_ids = room;
    return 0;
}

int qwick_index_find(struct qwick_index *ix, const char *id, size_t n_id,
                     size_t *row, struct qwick_err *e)
{
    *row = SIZE_MAX;
    if (ix->cap_ids <= ix->info.n_rows && make_ids(ix, e))
        return -1;
    uint64_t h = hash_bytes(ix->seed, id, n_id);
    uint32_t at = hashmap_slot(&ix->by_id, h), i;
    while ((i = hashmap_next(&ix->by_id, h, &at)) != HASHMAP_NONE) {
        struct qwick_index_row r;
        if (index_is_dead(ix, i))
            continue;
        if (qwick_index_get_row(ix, i, &r, e))
            return -1;
        if (r.n_id == n_id && memcmp(r.id, id, n_id) == 0) {
            *row = i;
            return 0;
        }
    }
    return 0;
}
