/* Resolve merges: turn spellings into ids, and fill the table of pairs. */
#include "text/bpe/bpe_load.h"

#include <stdlib.h>
#include <time.h>

#define BATCH 64

/* Fill the table of spellings; a repeated one is an error. */
static int index_vocab(struct bpe_load *l)
{
    struct bpe *b = l->b;
    for (size_t id = 0; id < b->size;) {
        uint64_t hash[BATCH];
        uint32_t ids[BATCH];
        size_t n = 0;
        for (; n < BATCH && id < b->size; id++) {
            const struct bpe_tok *t = &b->tok[id];
            if (!(t->flags & BPE_MODEL))
                continue;
            ids[n] = (uint32_t)id;
            hash[n] = bpe_hash(b->seed, b->arena + t->off, t->len);
            __builtin_prefetch(
                &l->table.slots[hashmap_slot(&l->table, hash[n])], 1);
            n++;
        }
        for (size_t i = 0; i < n; i++) {
            const struct bpe_tok *t = &b->tok[ids[i]];
            const char *s = b->arena + t->off;
            int32_t other = bpe_find(b, &l->table, hash[i], s, t->len);
            if (other >= 0)
                return err_set(&l->resolve_err, QWICK_ERR_MODEL,
                               "%s: %s: \"%s\" has two ids, %d and %u", l->name,
                               l->vocab_name, ERR_SHOW(s, t->len), (int)other,
                               (unsigned)ids[i]);
            hashmap_put(&l->table, hash[i], ids[i]);
        }
    }
    return 0;
}

/* Make room for n merges, and an empty table of pairs. */
static int merges_alloc(struct bpe_load *l, size_t n, struct qwick_err *e)
{
    struct bpe *b = l->b;
    free(b->merges);
    l->merges_cap = n;
    b->merges = malloc(n * sizeof *b->merges);
    if (!b->merges)
        return err_oom(e, n * sizeof *b->merges);
    return hashmap_init(&b->pairs, n, n, e);
}

/* Add (left, right). If the pair is already there, the later rank wins, as in
 * the reference. Two threads may call this at the same time. */
static void pairs_put(struct bpe *b, uint64_t h, uint32_t rank)
{
    struct hashmap *t = &b->pairs;
    uint64_t pair = b->merges[rank] >> BPE_ID_BITS;
    uint32_t at = hashmap_slot(t, h), tag = hashmap_tag(t, h);
    uint32_t low = (1u << t->id_bits) - 1, mine = tag | (rank + 1);
    for (;; at = (at + 1) & t->mask) {
        uint32_t s = __atomic_load_n(&t->slots[at], __ATOMIC_ACQUIRE);
        while (s == 0 || ((s & ~low) == tag &&
                          b->merges[(s & low) - 1] >> BPE_ID_BITS == pair))
            if (s > mine ||
                __atomic_compare_exchange_n(&t->slots[at], &s, mine, false,
                                            __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
                return;
    }
}

static int unknown_part(const struct bpe_load *l, size_t rank, const char *s,
                        size_t left, size_t right, size_t which,
                        struct qwick_err *e)
{
    const char *part = which == 1 ? s + left : s;
    size_t n = which == 0 ? left : which == 1 ? right : left + right;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: merge %zu (\"%s\" \"%s\"): \"%s\" is not in the "
                   "vocabulary",
                   l->name, l->merges_name, rank, ERR_SHOW(s, left),
                   ERR_SHOW(s + left, right), ERR_SHOW(part, n));
}

/* Resolve the records in [at, end) of the arena. The first has the rank `rank`;
 * there is room for the results. *expect: the probable id of the next merge. It
 * works in steps over batches, so that the memory of one look-up is fetched
 * while others are processed. */
static int resolve_range(const struct bpe_load *l, size_t at, size_t end,
                         size_t rank, uint32_t *expect, struct qwick_err *e)
{
    struct bpe *b = l->b;
    const struct hashmap *t = &l->table;
    const char *p = l->merges.arena.p + at, *stop = l->merges.arena.p + end;
    uint32_t low = (1u << t->id_bits) - 1;
    while (p < stop) {
        struct {
            const char *s;
            uint64_t hash[2];
            size_t len[2];
        } w[BATCH];
        size_t n = 0;
        for (; n < BATCH && p < stop; n++) {
            w[n].len[0] = bpe_get16(p);
            w[n].len[1] = bpe_get16(p + 2);
            w[n].s = p += HEAD;
            for (int k = 0; k < 2; k++) {
                w[n].hash[k] = bpe_hash(b->seed, p, w[n].len[k]);
                __builtin_prefetch(&t->slots[hashmap_slot(t, w[n].hash[k])]);
                p += w[n].len[k];
            }
        }
        for (size_t i = 0; i < 2 * n; i++) {
            uint64_t h = w[i / 2].hash[i % 2];
            uint32_t slot = t->slots[hashmap_slot(t, h)];
            if (slot)
                __builtin_prefetch(&b->tok[(slot & low) - 1]);
        }
        uint64_t pair_hash[BATCH];
        for (size_t i = 0; i < n; i++) {
            const char *s = w[i].s;
            size_t left = w[i].len[0], right = w[i].len[1];
            int32_t id[2];
            for (size_t k = 0; k < 2; k++) {
                id[k] =
                    bpe_find(b, t, w[i].hash[k], k ? s + left : s, w[i].len[k]);
                if (id[k] < 0)
                    return unknown_part(l, rank + i, s, left, right, k, e);
            }
            /* Vocabularies are usually in the order of their merges. */
            uint32_t made = *expect;
            if (made >= b->size || b->tok[made].len != left + right ||
                !b->tok[made].flags ||
                !bpe_same(b->arena + b->tok[made].off, s, left + right)) {
                int32_t found = bpe_find(
                    b, t, bpe_hash(b->seed, s, left + right), s, left + right);
                if (found < 0)
                    return unknown_part(l, rank + i, s, left, right, 2, e);
                made = (uint32_t)found;
            }
            *expect = made + 1;
            uint64_t pair = bpe_pair((uint32_t)id[0], (uint32_t)id[1]);
            b->merges[rank + i] = pair << BPE_ID_BITS | made;
            pair_hash[i] = bpe_hash_pair(b->seed, pair);
            __builtin_prefetch(
                &b->pairs.slots[hashmap_slot(&b->pairs, pair_hash[i])], 1);
        }
        for (size_t i = 0; i < n; i++)
            pairs_put(b, pair_hash[i], (uint32_t)(rank + i));
        rank += n;
    }
    return 0;
}

void bpe_resolve_chunks(struct bpe_load *l)
{
    struct merges *m = &l->merges;
    struct qwick_err unused;
    uint32_t expect = 0;
    for (;;) {
        size_t c = __atomic_fetch_add(&m->taken, 1, __ATOMIC_RELAXED), n;
        int ended;
        for (;;) {
            ended = __atomic_load_n(&m->ended, __ATOMIC_ACQUIRE);
            n = __atomic_load_n(&m->published, __ATOMIC_ACQUIRE);
            if (c < n || ended)
                break;
            nanosleep(&(struct timespec){0, 20000}, NULL);
        }
        if (ended < 0 || c >= n)
            return;
        size_t rank = c * CHUNK_MERGES;
        if (rank + CHUNK_MERGES > l->merges_cap ||
            resolve_range(l, m->start[c], m->start[c + 1], rank, &expect,
                          &unused) < 0)
            __atomic_store_n(&m->ended, -1, __ATOMIC_RELEASE);
    }
}

void bpe_resolve_all(struct bpe_load *l)
{
    const struct merges *m = &l->merges;
    size_t n = m->n > l->merges_cap ? m->n : l->merges_cap;
    uint32_t expect = 0;
    /* Start over if two threads have resolved some merges, in any order. */
    if (m->taken > 0 || n > l->merges_cap)
        l->rc = merges_alloc(l, n, &l->resolve_err);
    if (l->rc == 0)
        l->rc = resolve_range(l, 0, m->arena.len, 0, &expect, &l->resolve_err);
}

int bpe_vocab_done(struct bpe_load *l, struct qwick_err *e)
{
    struct bpe *b = l->b;
    b->arena = l->vocab.p;
    b->size = l->n_vocab ? (size_t)l->max_id + 1 : 0;
    /* Byte-level tokenizers have hardly more merges than tokens. Gemma's has
     * twice as many: all pairs of tokens that make another. bpe_resolve_all
     * accepts any number. */
    size_t most = l->expect_fallback ? 2 * l->n_vocab : l->n_vocab;
    if (hashmap_init(&l->table, l->n_vocab, l->max_id, e) < 0 ||
        (!b->order && merges_alloc(l, most + CHUNK_MERGES, e) < 0))
        return -1;
    l->rc = index_vocab(l);
    return 0;
}
