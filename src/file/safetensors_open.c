/* Opening all weights of a checkpoint: one file, the shards of an index, or
 * every file with the suffix. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "file/gguf.h"
#include "file/json.h"
#include "file/map.h"
#include "file/name_table.h"
#include "file/safetensors_int.h"

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

/* ---- the index ----------------------------------------------------------- */

struct placement {
    const char *tensor;
    size_t n;
    size_t shard;
    const char *other; /* another shard that has it as well, or NULL */
};

struct index {
    const char *path;
    struct qwick_err *e;
    struct arena text;
    struct placement *v;
    size_t n, cap;
    struct name_table shards;
    struct name_table tensors; /* of v, with equal numbers */
    const char *reading;       /* the shard that is being read */
    int depth;
    bool in_map, map_seen;
    const char *tensor; /* the last key of the map */
    size_t tensor_len;
};

static int err_index(const struct index *x, const char *why)
{
    return err_set(x->e, QWICK_ERR_MODEL, "%s: %s", x->path, why);
}

static const char bad_map[] = "weight_map: must be an object of strings";

static int index_scalar(struct index *x)
{
    if (x->depth == 0)
        return err_index(x, "is not a JSON object");
    return x->in_map ? err_index(x, bad_map) : 0;
}

static int index_null(void *ctx)
{
    return index_scalar(ctx);
}

static int index_boolean(void *ctx, bool v)
{
    (void)v;
    return index_scalar(ctx);
}

static int index_number(void *ctx, const char *s, size_t n)
{
    (void)s;
    (void)n;
    return index_scalar(ctx);
}

static int index_begin_object(void *ctx)
{
    struct index *x = ctx;
    if (x->in_map && x->depth != 1)
        return err_index(x, bad_map);
    x->depth++;
    return 0;
}

static int index_begin_array(void *ctx)
{
    struct index *x = ctx;
    if (index_scalar(x))
        return -1;
    x->depth++;
    return 0;
}

static int index_end(void *ctx)
{
    struct index *x = ctx;
    if (--x->depth == 1)
        x->in_map = false;
    return 0;
}

static int index_key(void *ctx, const char *s, size_t n)
{
    struct index *x = ctx;
    if (x->depth == 1) {
        x->in_map = n == 10 && memcmp(s, "weight_map", 10) == 0;
        if (!x->in_map)
            return 0;
        if (x->map_seen)
            return err_index(x, "repeated weight_map");
        x->map_seen = true;
        return 0;
    }
    if (!x->in_map)
        return 0;
    x->tensor = arena_copy(&x->text, s, n);
    x->tensor_len = n;
    return x->tensor ? 0 : err_oom(x->e, n + 1);
}

static bool is_plain_name(const char *s, size_t n)
{
    return n > 0 && !memchr(s, '/', n) && !memchr(s, '\0', n) &&
           !(n == 1 && s[0] == '.') && !(n == 2 && s[0] == '.' && s[1] == '.');
}

static int err_shard(const struct index *x, const char *s, size_t n,
                     const char *why)
{
    char tensor[ERR_SHOWN], shard[ERR_SHOWN];
    return err_set(x->e, QWICK_ERR_MODEL, "%s: tensor %s: the shard \"%s\" %s",
                   x->path, err_show(tensor, x->tensor, x->tensor_len),
                   err_show(shard, s, n), why);
}

static int index_string(void *ctx, const char *s, size_t n)
{
    static const char suffix[] = ".safetensors";
    const size_t n_suffix = sizeof suffix - 1;
    struct index *x = ctx;
    if (x->depth != 2 || !x->in_map)
        return index_scalar(x);
    if (!is_plain_name(s, n))
        return err_shard(x, s, n, "is not a plain file name");
    if (n <= n_suffix || memcmp(s + n - n_suffix, suffix, n_suffix) != 0)
        return err_shard(x, s, n, "is not named *.safetensors");
    if (ARRAY_RESERVE(x->v, x->cap, x->n + 1, x->e))
        return -1;
    size_t shard;
    if (name_table_find(&x->shards, s, n, &shard)) {
        const char *copy = arena_copy(&x->text, s, n);
        if (!copy || name_table_add(&x->shards, copy, n, &shard) < 0)
            return err_oom(x->e, n + 1);
    }
    x->v[x->n++] = (struct placement){
        .tensor = x->tensor, .n = x->tensor_len, .shard = shard};
    return 0;
}

static int read_index(struct index *x, const struct map *m)
{
    static const struct json_handler events = {
        .null = index_null,
        .boolean = index_boolean,
        .number = index_number,
        .string = index_string,
        .begin_object = index_begin_object,
        .key = index_key,
        .end_object = index_end,
        .begin_array = index_begin_array,
        .end_array = index_end,
    };
    if (json_events(x->path, (const char *)m->data, m->size, QWICK_ERR_MODEL,
                    &events, x, x->e))
        return -1;
    if (!x->map_seen)
        return err_index(x, "weight_map is missing");
    if (x->n == 0)
        return err_index(x, "weight_map is empty");
    return 0;
}

/* Number the tensors. Each may be named once. */
static int number_tensors(struct index *x)
{
    for (size_t i = 0; i < x->n; i++) {
        const struct placement *p = &x->v[i];
        size_t at;
        int fresh = name_table_add(&x->tensors, p->tensor, p->n, &at);
        if (fresh < 0)
            return err_oom(x->e, x->n * sizeof(struct name));
        if (!fresh)
            return err_set(x->e, QWICK_ERR_MODEL, "%s: tensor %s: repeated",
                           x->path, ERR_SHOW(p->tensor, p->n));
    }
    return 0;
}

/* A tensor of the index counts only in its own shard: an index may place new
 * weights in a file of their own and leave the old ones where they are. */
static bool keep_placed(void *ctx, const char *name, size_t n)
{
    struct index *x = ctx;
    size_t i;
    if (name_table_find(&x->tensors, name, n, &i))
        return true;
    if (strcmp(x->shards.names[x->v[i].shard].s, x->reading) == 0)
        return true;
    x->v[i].other = x->reading;
    return false;
}

/* Every tensor of the index is in its shard. */
static int check_index(const struct index *x, const struct st_set *set)
{
    for (size_t i = 0; i < x->n; i++) {
        const struct placement *p = &x->v[i];
        const struct name *file = &x->shards.names[p->shard];
        if (!st_find_n(set, p->tensor, p->n))
            return err_set(
                x->e, QWICK_ERR_MODEL,
                "%s: tensor %s: is not in the shard %s%s%s", x->path,
                ERR_SHOW(p->tensor, p->n), ERR_SHOW(file->s, file->n),
                p->other ? " but in " : "", p->other ? p->other : "");
    }
    return 0;
}

/* ---- opening ------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* index: NULL, or the index that lists the file. */
static int open_file(struct st_set *set, const struct checkpoint *ck,
                     const char *name, struct index *index, bool *found,
                     struct qwick_err *e)
{
    struct map map;
    char path[4200];
    if (checkpoint_map(ck, name, &map, found, e))
        return -1;
    if (!*found)
        return 0;
    checkpoint_path(ck, name, path, sizeof path);
    if (st_set_shard(set, name, &map, e))
        return -1;
    if (index)
        index->reading = name;
    return st_read_shard(set, &map, path, index ? keep_placed : NULL, index, e);
}

static int open_by_index(struct st_set *set, const struct checkpoint *ck,
                         const struct map *m, struct qwick_err *e)
{
    char path[4200];
    checkpoint_path(ck, index_name, path, sizeof path);
    struct index x = {.path = path, .e = e};
    const char **names = NULL;
    int rc = read_index(&x, m) || number_tensors(&x) ? -1 : 0;
    if (rc)
        goto done;
    names = calloc(x.shards.n, sizeof *names);
    if (!names) {
        rc = err_oom(e, x.shards.n * sizeof *names);
        goto done;
    }
    for (size_t i = 0; i < x.shards.n; i++)
        names[i] = x.shards.names[i].s;
    qsort(names, x.shards.n, sizeof *names, by_text);
    for (size_t i = 0; i < x.shards.n && !rc; i++) {
        bool found;
        rc = open_file(set, ck, names[i], &x, &found, e);
        if (!rc && !found) {
            char shard[ERR_SHOWN];
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: the shard %s is missing in %s: incomplete "
                         "download?",
                         path, err_show(shard, names[i], strlen(names[i])),
                         checkpoint_dir(ck));
        }
    }
    if (!rc)
        rc = check_index(&x, set);
done:
    free(names);
    free(x.v);
    name_table_free(&x.shards);
    name_table_free(&x.tensors);
    arena_free(&x.text);
    return rc;
}

/* Files with weights in formats that we do not read. */
static const struct {
    const char *suffix, *format;
} others[] = {
    {".bin", "PyTorch's"},  {".pth", "PyTorch's"}, {".pt", "PyTorch's"},
    {".ckpt", "PyTorch's"}, {".onnx", "ONNX"},     {".h5", "TensorFlow's"},
    {".msgpack", "Flax's"}, {".npz", "NumPy's"},
};

static int err_no_weights(const struct checkpoint *ck, struct qwick_err *e)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char **names, shown[ERR_SHOWN];
        size_t n;
        if (checkpoint_list(ck, others[i].suffix, &names, &n, e))
            return -1;
        if (n)
            err_show(shown, names[0], strlen(names[0]));
        checkpoint_list_free(names, n);
        if (n)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: no weights in safetensors format: %s is in %s "
                           "format, which is not supported",
                           checkpoint_dir(ck), shown, others[i].format);
    }
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: no weights: none of %s, %s, *.safetensors is there",
                   checkpoint_dir(ck), index_name, single_name);
}

static int open_all(struct st_set *set, const struct checkpoint *ck,
                    struct qwick_err *e)
{
    char **names;
    size_t n;
    if (checkpoint_list(ck, ".safetensors", &names, &n, e))
        return -1;
    int rc = 0;
    bool found;
    for (size_t i = 0; i < n && !rc; i++)
        rc = open_file(set, ck, names[i], NULL, &found, e);
    if (n == 0)
        rc = err_no_weights(ck, e);
    checkpoint_list_free(names, n);
    return rc;
}

int st_open(struct st_set **out, const struct checkpoint *ck,
            struct qwick_err *e)
{
    const struct gguf *g = checkpoint_gguf(ck);
    *out = NULL;
    if (g) {
        *out = st_set_share(gguf_tensors(g));
        return 0;
    }
    struct st_set *set;
    if (st_set_new(&set, e))
        return -1;
    struct map index;
    bool found;
    int rc = checkpoint_map_small(ck, index_name, &index, &found, e);
    if (!rc && found) {
        rc = open_by_index(set, ck, &index, e);
        map_close(&index);
    } else if (!rc) {
        rc = open_file(set, ck, single_name, NULL, &found, e);
        if (!rc && !found)
            rc = open_all(set, ck, e);
    }
    if (rc) {
        st_close(set);
        return -1;
    }
    *out = set;
    return 0;
}

int st_open_in(struct st_set **out, const struct checkpoint *ck,
               const char *dir, const char *name, bool *found,
               struct qwick_err *e)
{
    struct st_set *set;
    struct map map;
    char file[256], path[4200];
    *out = NULL;
    if (checkpoint_map_in(ck, dir, name, &map, found, e))
        return -1;
    if (!*found)
        return 0;
    snprintf(file, sizeof file, "%.120s/%.120s", dir, name);
    checkpoint_path(ck, file, path, sizeof path);
    if (st_set_new(&set, e)) {
        map_close(&map);
        return -1;
    }
    if (st_set_shard(set, file, &map, e) ||
        st_read_shard(set, &map, path, NULL, NULL, e)) {
        st_close(set);
        return -1;
    }
    *out = set;
    return 0;
}
