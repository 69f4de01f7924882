#include "file/name_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/rng.h"

void name_table_free(struct name_table *t)
{
    free(t->names);
    hashmap_free(&t->map);
    *t = (struct name_table){0};
}

static uint64_t name_hash(const struct name_table *t, const char *s, size_t n)
{
    return hash_bytes(t->seed, s, n);
}

/* Make room for one more name. */
static int name_table_grow(struct name_table *t)
{
    if (!t->seed)
        t->seed = rng_random_seed() | 1;
    if (ARRAY_RESERVE(t->names, t->cap, t->n + 1, NULL))
        return -1;
    if (t->n < t->map_cap)
        return 0;
    if (hashmap_init(&t->map, t->cap, t->cap, NULL)) {
        t->map_cap = t->n = 0;
        return -1;
    }
    t->map_cap = t->cap;
    for (size_t i = 0; i < t->n; i++)
        hashmap_put(&t->map, name_hash(t, t->names[i].s, t->names[i].n),
                    (uint32_t)i);
    return 0;
}

int name_table_find(const struct name_table *t, const char *s, size_t n,
                    size_t *index)
{
    if (t->n == 0)
        return -1;
    uint64_t h = name_hash(t, s, n);
    uint32_t at = hashmap_slot(&t->map, h), i;
    while ((i = hashmap_next(&t->map, h, &at)) != HASHMAP_NONE) {
        const struct name *k = &t->names[i];
        if (k->n == n && memcmp(k->s, s, n) == 0) {
            *index = i;
            return 0;
        }
    }
    return -1;
}

int name_table_add(struct name_table *t, const char *s, size_t n, size_t *index)
{
    if (name_table_find(t, s, n, index) == 0)
        return 0;
    if (name_table_grow(t))
        return -1;
    hashmap_put(&t->map, name_hash(t, s, n), (uint32_t)t->n);
    t->names[t->n] = (struct name){s, n};
    *index = t->n++;
    return 1;
}
