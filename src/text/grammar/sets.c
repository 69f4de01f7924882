/* Sets of places without duplicates: equal sets have one number. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
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
    for (uint32_t i = 0; i < s->n; i++)
        hashmap_put(&s->map, s->v[i].hash, i);
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
        if (v->hash == h && v->n == n && v->accepts == accepts &&
            (n == 0 ||
             memcmp(s->places + v->off, places, n * sizeof *places) == 0))
            return i;
    }
    i = (uint32_t)s->n++;
    s->v[i] = (struct set){.hash = h,
                           .off = s->n_places,
                           .n = (uint32_t)n,
                           .accepts = accepts};
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

/* ---- sets of texts ------------------------------------------------------- */

void taken_open(const struct sets *taken, uint32_t count, uint32_t *set,
                uint32_t *text)
{
    const struct set *v = &taken->v[count];
    const struct place *p = v->n ? &taken->places[v->off] : NULL;
    bool record = p && p->pc == TAKEN_RECORD;
    *set = record ? p->frame : count;
    *text = record ? p->count : 0;
}

int taken_rest(const struct sets *taken, uint32_t text, uint32_t begin,
               struct buf *out)
{
    size_t at = out->len;
    for (; text && text != begin;
         text = taken->places[taken->v[text].off].frame)
        if (buf_putc(out, (char)taken->places[taken->v[text].off].count))
            return -1;
    if (text != begin) {
        out->len = at;
        return 0;
    }
    for (size_t k = out->len; at + 1 < k; at++) {
        char c = out->data[--k];
        out->data[k] = out->data[at];
        out->data[at] = c;
    }
    return 1;
}

int taken_record(struct sets *taken, uint32_t *count, unsigned char byte,
                 struct qwick_err *e)
{
    uint32_t set, text;
    if (*count >= TAKEN_PLAIN)
        return 0;
    taken_open(taken, *count, &set, &text);
    struct place x = {.pc = TAKEN_BYTE, .frame = text, .count = byte};
    text = sets_find(taken, &x, 1, false, e);
    if (text == SETS_FAIL)
        return -1;
    x = (struct place){.pc = TAKEN_RECORD, .frame = set, .count = text};
    *count = sets_find(taken, &x, 1, false, e);
    return *count == SETS_FAIL ? -1 : 0;
}

/* Return the number of parts, or of those before the current one. */
static uint32_t count_texts(const struct sets *taken, uint32_t count)
{
    uint32_t set, text;
    if (count >= TAKEN_PLAIN)
        return count & ~TAKEN_PLAIN;
    taken_open(taken, count, &set, &text);
    return taken->v[set].n;
}

uint32_t taken_plain(const struct sets *taken, const struct code_once *o,
                     uint32_t count)
{
    uint32_t n = count_texts(taken, count);
    uint32_t cap = o->max == UINT32_MAX ? o->min : o->max;
    return TAKEN_PLAIN | (n < cap ? n : cap);
}

/* Add the text of a record to its set, unless it has it. */
static int take_text(struct sets *taken, uint32_t *count, struct qwick_err *e)
{
    uint32_t set, text;
    taken_open(taken, *count, &set, &text);
    size_t n = taken->v[set].n, at = 0;
    struct place *v = malloc((n + 1) * sizeof *v);
    if (!v)
        return err_oom(e, n * sizeof *v);
    if (n)
        memcpy(v, taken->places + taken->v[set].off, n * sizeof *v);
    while (at < n && v[at].frame < text)
        at++;
    bool has = at < n && v[at].frame == text;
    memmove(v + at + 1, v + at, (n - at) * sizeof *v);
    v[at] = (struct place){.pc = TAKEN_TEXT, .frame = text};
    if (!has)
        *count = sets_find(taken, v, n + 1, false, e);
    free(v);
    return has ? 0 : *count == SETS_FAIL ? -1 : 1;
}

/* taken_run for parts whose texts differ. */
static int run_texts(struct sets *taken, const struct code_once *o,
                     const struct instr *i, uint32_t *count,
                     struct qwick_err *e)
{
    uint32_t n = count_texts(taken, *count);
    bool plain = *count >= TAKEN_PLAIN;
    struct place x = {.pc = TAKEN_RECORD, .frame = *count};
    switch (i->op) {
    case OP_FREE:
        if (!plain && *count)
            *count = sets_find(taken, &x, 1, false, e);
        return *count == SETS_FAIL ? -1 : n < o->max;
    case OP_TAKE:
        if (!plain)
            return take_text(taken, count, e);
        *count = taken_plain(taken, o, *count + 1);
        return 1;
    default:
        *count = 0;
        return n >= o->min;
    }
}

/* ---- copies of sets ------------------------------------------------------ */

/* Return the places of a set that refer to other sets: frame, and of a record
 * count, too. */
static bool refers(const struct place *p)
{
    return p->pc >= TAKEN_RECORD && p->pc <= TAKEN_BYTE;
}

static int by_text(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    return a->frame < b->frame ? -1 : a->frame > b->frame;
}

int taken_copy(struct sets *taken, const struct sets *old, uint32_t *keep,
               struct qwick_err *e)
{
    struct place *v = NULL;
    size_t cap = 0;
    int rc = 0;
    /* a set is made after all sets to which it refers */
    for (size_t i = old->n; i-- > 1;)
        for (size_t k = 0; keep[i] && k < old->v[i].n; k++) {
            const struct place *p = &old->places[old->v[i].off + k];
            if (refers(p))
                keep[p->frame] = 1;
            if (p->pc == TAKEN_RECORD)
                keep[p->count] = 1;
        }
    keep[0] = sets_find(taken, NULL, 0, false, e);
    for (size_t i = 1; i < old->n && !rc; i++) {
        const struct set *s = &old->v[i];
        if (!keep[i])
            continue;
        rc = ARRAY_RESERVE(v, cap, s->n, e);
        for (size_t k = 0; !rc && k < s->n; k++) {
            v[k] = old->places[s->off + k];
            if (refers(&v[k]))
                v[k].frame = keep[v[k].frame];
            if (v[k].pc == TAKEN_RECORD)
                v[k].count = keep[v[k].count];
        }
        if (!rc && s->n && v[0].pc == TAKEN_TEXT)
            qsort(v, s->n, sizeof *v, by_text);
        keep[i] = rc ? SETS_FAIL : sets_find(taken, v, s->n, false, e);
        rc = keep[i] == SETS_FAIL ? -1 : 0;
    }
    free(v);
    return rc || keep[0] == SETS_FAIL ? -1 : 0;
}

/* ---- running ------------------------------------------------------------- */

int taken_run(struct sets *taken, const struct code *c, const struct instr *i,
              uint32_t *count, struct qwick_err *e)
{
    const struct code_once *o = &c->onces[i->arg];
    uint32_t part = code_part(i), all, required, after;
    if (o->differ)
        return run_texts(taken, o, i, count, e);
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
