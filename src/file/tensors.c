#include "file/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "file/name_table.h"

struct shard {
    const char *name;
    struct map map;
};

struct st_set {
    size_t refs;
    struct st_tensor *tensors;
    size_t n, cap;
    struct name_table names; /* index i is tensors[i] */
    struct shard *shards;
    size_t n_shards, cap_shards;
    struct arena text;
};

int st_set_new(struct st_set **out, struct qwick_err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_oom(e, sizeof **out);
    (*out)->refs = 1;
    return 0;
}

struct st_set *st_set_share(struct st_set *set)
{
    set->refs++;
    return set;
}

void st_close(struct st_set *set)
{
    if (!set || --set->refs > 0)
        return;
    for (size_t i = 0; i < set->n_shards; i++)
        map_close(&set->shards[i].map);
    free(set->shards);
    free(set->tensors);
    name_table_free(&set->names);
    arena_free(&set->text);
    free(set);
}

struct arena *st_set_text(struct st_set *set)
{
    return &set->text;
}

int st_set_shard(struct st_set *set, const char *name, struct map *map,
                 struct qwick_err *e)
{
    const char *copy = arena_copy(&set->text, name, strlen(name));
    if (!copy ||
        ARRAY_RESERVE(set->shards, set->cap_shards, set->n_shards + 1, NULL)) {
        map_close(map);
        return err_oom(e, strlen(name) + sizeof *set->shards);
    }
    set->shards[set->n_shards++] = (struct shard){copy, *map};
    return 0;
}

int st_set_add(struct st_set *set, const struct st_tensor *t, const char *path,
               struct qwick_err *e)
{
    const char *file = set->shards[set->n_shards - 1].name;
    size_t other;
    if (ARRAY_RESERVE(set->tensors, set->cap, set->n + 1, e))
        return -1;
    int fresh = name_table_add(&set->names, t->name, t->name_len, &other);
    if (fresh < 0)
        return err_oom(e, set->n * sizeof(struct name));
    if (fresh) {
        set->tensors[set->n] = *t;
        set->tensors[set->n++].file = file;
        return 0;
    }
    const char *in = set->tensors[other].file;
    const char *name = ERR_SHOW(t->name, t->name_len);
    if (in == file)
        return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: repeated", path,
                       name);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: tensor %s: is in the file %s as well", path, name, in);
}

void st_set_data(struct st_set *set, size_t i, const unsigned char *data)
{
    set->tensors[i].data = data;
}

size_t st_count(const struct st_set *set)
{
    return set->n;
}

const struct st_tensor *st_at(const struct st_set *set, size_t i)
{
    return i < set->n ? &set->tensors[i] : NULL;
}

const struct st_tensor *st_find_n(const struct st_set *set, const char *name,
                                  size_t n)
{
    size_t i;
    return name_table_find(&set->names, name, n, &i) ? NULL : &set->tensors[i];
}

const struct st_tensor *st_find(const struct st_set *set, const char *name)
{
    return st_find_n(set, name, strlen(name));
}

const struct map_id *st_file_id(const struct st_set *set, size_t i,
                                const char **name)
{
    if (i >= set->n_shards)
        return NULL;
    *name = set->shards[i].name;
    return &set->shards[i].map.id;
}

const struct map *st_map(const struct st_set *set, size_t i)
{
    return i < set->n_shards ? &set->shards[i].map : NULL;
}

size_t st_file_bytes(const struct st_set *set)
{
    size_t sum = 0;
    for (size_t i = 0; i < set->n_shards; i++)
        sum += set->shards[i].map.size;
    return sum;
}
