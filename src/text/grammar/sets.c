/* Sets of places without duplicates: equal sets have one number. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "text/grammar/automaton_int.h"

static uint64_t hash_set(const struct sets *s, const struct place *places,
                         size_t n, bool accepts)
{
    return hash_bytes(s->seed + accepts, places, n * sizeof *places);
}

/* Make room for one more set. */
static int reserve(struct sets *s, size_t n_places, struct qwick_err *e)
{
    size_t cap = s->cap;
    if (ARRAY_RESERVE(s->places, s->cap_places, s->n_places + n_places + 1,
                      e) ||
        ARRAY_RESERVE(s->v, s->cap, s->n + 1, e))
        return -1;
    if (s->cap == cap)
        return 0;
    if (hashmap_init(&s->map, s->cap, s->cap, e)) {
        s->cap = s->n; /* the next call builds the table again */
        return -1;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const struct set *v = &s->v[i];
        hashmap_put(&s->map, hash_set(s, s->places + v->off, v->n, v->accepts),
                    i);
    }
    return 0;
}

uint32_t sets_find(struct sets *s, const struct place *places, size_t n,
                   bool accepts, struct qwick_err *e)
{
    if (reserve(s, n, e))
        return SETS_FAIL;
    uint64_t h = hash_set(s, places, n, accepts);
    uint32_t at = hashmap_slot(&s->map, h), i;
    while ((i = hashmap_next(&s->map, h, &at)) != HASHMAP_NONE) {
        const struct set *v = &s->v[i];
        if (v->n == n && v->accepts == accepts &&
            (n == 0 ||
             memcmp(s->places + v->off, places, n * sizeof *places) == 0))
            return i;
    }
    i = (uint32_t)s->n++;
    s->v[i] =
        (struct set){.off = s->n_places, .n = (uint32_t)n, .accepts = accepts};
    if (n)
        memcpy(s->places + s->n_places, places, n * sizeof *places);
    s->n_places += n;
    hashmap_put(&s->map, h, i);
    return i;
}

void sets_free(struct sets *s)
{
    free(s->v);
    free(s->places);
    hashmap_free(&s->map);
    *s = (struct sets){0};
}
