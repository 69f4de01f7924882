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

/* ---- sets of parts ------------------------------------------------------- */

static const struct place *find_word(const struct sets *taken, uint32_t set,
                                     uint32_t word)
{
    const struct set *v = &taken->v[set];
    for (size_t i = 0; i < v->n; i++)
        if (taken->places[v->off + i].pc == word)
            return &taken->places[v->off + i];
    return NULL;
}

static bool taken_has(const struct sets *taken, uint32_t set, uint32_t part)
{
    const struct place *p = find_word(taken, set, part / 64);
    uint64_t bits = p ? (uint64_t)p->count << 32 | p->frame : 0;
    return bits >> part % 64 & 1;
}

/* Set *all to the number of parts of a set, with `other`, and *required to the
 * required ones. */
static void taken_count(const struct sets *taken, const struct code_once *o,
                        uint32_t set, uint32_t *all, uint32_t *required)
{
    const struct set *v = &taken->v[set];
    *all = *required = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct place *p = &taken->places[v->off + i];
        uint64_t bits = (uint64_t)p->count << 32 | p->frame;
        if (p->pc == UINT32_MAX) {
            *all += p->count;
            continue;
        }
        for (; bits; bits &= bits - 1) {
            size_t part = p->pc * 64u + (size_t)__builtin_ctzll(bits);
            *all += 1;
            *required += o->required[part];
        }
    }
}

/* Return the set with one more part. */
static uint32_t taken_add(struct sets *taken, uint32_t set, struct place x,
                          struct qwick_err *e)
{
    size_t n = taken->v[set].n, at = 0;
    struct place *v = malloc((n + 1) * sizeof *v);
    if (!v) {
        err_oom(e, n * sizeof *v);
        return SETS_FAIL;
    }
    if (n)
        memcpy(v, taken->places + taken->v[set].off, n * sizeof *v);
    while (at < n && v[at].pc < x.pc)
        at++;
    if (at == n || v[at].pc != x.pc) {
        memmove(v + at + 1, v + at, (n - at) * sizeof *v);
        v[at] = (struct place){.pc = x.pc};
        n++;
    }
    if (x.pc == UINT32_MAX) {
        v[at].count += x.count;
    } else {
        v[at].frame |= x.frame;
        v[at].count |= x.count;
    }
    uint32_t out = sets_find(taken, v, n, false, e);
    free(v);
    return out;
}

static int taken_take(struct sets *taken, const struct code_once *o,
                      uint32_t part, uint32_t *set, struct qwick_err *e)
{
    struct place x = {.pc = part / 64};
    uint32_t all, required;
    if (part < o->n) {
        x.frame = part % 64 < 32 ? 1u << part % 32 : 0;
        x.count = part % 64 < 32 ? 0 : 1u << part % 32;
    } else {
        taken_count(taken, o, *set, &all, &required);
        if (o->max == UINT32_MAX && all >= o->min)
            return 1;
        x = (struct place){.pc = UINT32_MAX, .count = 1};
    }
    *set = taken_add(taken, *set, x, e);
    return *set == SETS_FAIL ? -1 : 1;
}

int taken_run(struct sets *taken, const struct code *c, const struct instr *i,
              uint32_t *count, struct qwick_err *e)
{
    const struct code_once *o = &c->onces[i->arg];
    uint32_t part = code_part(i), all, required, after;
    if (i->op == OP_TAKE)
        return taken_take(taken, o, part, count, e);
    if (i->op == OP_FREE && part < o->n && taken_has(taken, *count, part))
        return 0;
    if (o->n_required == 0 && o->min <= 1 && o->max == UINT32_MAX) {
        if (i->op == OP_DONE)
            *count = 0;
        return 1;
    }
    taken_count(taken, o, *count, &all, &required);
    if (i->op == OP_DONE) {
        *count = 0;
        return required == o->n_required && all >= o->min;
    }
    after = required + (part < o->n ? o->required[part] : 0);
    return all + 1 <= o->max && o->n_required - after <= o->max - (all + 1);
}
