/* Masks: the tokens that a state admits. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "engine/generate/constraint_int.h"
#include "text/bpe/bpe.h"

/* ---- memory ---- */

static void free_local(struct local *l)
{
    free(l->bits);
    free(l->ids);
    free(l->ends);
    *l = (struct local){0};
}

void constraint_drop_masks(struct qwick_constraint *c)
{
    for (size_t i = 0; i < c->n_locals; i++)
        free_local(&c->locals[i]);
    c->n_locals = 0;
    c->local_bytes = 0;
    c->by_state.mask = 0; /* the next look-up builds the table again */
    if (c->notes) /* states may get new numbers */
        memset(c->notes, 0, c->cap_notes * sizeof *c->notes);
    c->n_reached = 0;
}

static size_t bytes_of(const struct qwick_constraint *c, const struct local *l)
{
    return sizeof *l + l->n_ends * sizeof *l->ends +
           (l->bits ? c->n_words * sizeof *l->bits : l->n_ids * sizeof *l->ids);
}

/* Drop the results that were not used since the last call or, if the others
 * take more than half of the memory, all of them. */
static void drop_old_masks(struct qwick_constraint *c)
{
    size_t n = 0, bytes = 0;
    for (size_t i = 0; i < c->n_locals; i++) {
        struct local *l = &c->locals[i];
        if (!l->used) {
            free_local(l);
            continue;
        }
        l->used = false;
        bytes += bytes_of(c, l);
        c->locals[n++] = *l;
    }
    c->n_locals = n;
    c->local_bytes = bytes;
    c->by_state.mask = 0; /* the next look-up builds the table again */
    if (bytes > c->mask_bytes / 2)
        constraint_drop_masks(c);
}

/* ---- what a state admits inside its rule ---- */

static uint64_t hash_local(uint32_t state, const struct token_trie *t)
{
    uint64_t h = (state + ((uint64_t)t->kind << 32)) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static struct local *find_local(struct qwick_constraint *c, uint32_t state,
                                const struct token_trie *t)
{
    uint64_t h = hash_local(state, t);
    uint32_t at, i;
    if (c->n_locals == 0)
        return NULL;
    at = hashmap_slot(&c->by_state, h);
    while ((i = hashmap_next(&c->by_state, h, &at)) != HASHMAP_NONE)
        if (c->locals[i].state == state && c->locals[i].trie == t)
            return &c->locals[i];
    return NULL;
}

static int index_local(struct qwick_constraint *c, struct qwick_err *e)
{
    size_t from = c->n_locals - 1, cap = c->by_state.mask + 1u;
    if (c->n_locals == 1 || 2 * c->n_locals > cap) {
        if (hashmap_init(&c->by_state, 2 * c->n_locals + 64, INT32_MAX - 1, e))
            return -1;
        from = 0;
    }
    for (size_t i = from; i < c->n_locals; i++)
        hashmap_put(&c->by_state,
                    hash_local(c->locals[i].state, c->locals[i].trie),
                    (uint32_t)i);
    return 0;
}

/* Make room for n more bytes of masks. */
static int reserve_local(struct qwick_constraint *c, size_t n,
                         struct qwick_err *e)
{
    if (c->local_bytes + n > c->mask_bytes)
        drop_old_masks(c);
    return ARRAY_RESERVE(c->locals, c->cap_locals, c->n_locals + 1, e);
}

/* Return what the state admits inside its rule and, with ends, where the rule
 * can end. */
static const struct local *local_of(struct qwick_constraint *c, uint32_t state,
                                    struct token_trie *t, bool ends,
                                    struct qwick_err *e);

/* Fill in l. Where the next byte mostly leads to a state that stays the same
 * then, begin with the tokens of that one. */
static int fill_local(struct qwick_constraint *c, struct local *l, bool ends,
                      struct qwick_err *e)
{
    struct walk_plan plan;
    const struct local *like = NULL;
    if (walk_choose(c, l, ends, &plan, e) ||
        (plan.kind == WALK_LIKE &&
         !(like = local_of(c, plan.like, l->trie, ends, e))))
        return -1;
    return walk_run(c, l, &plan, like, ends, e);
}

static const struct local *local_of(struct qwick_constraint *c, uint32_t state,
                                    struct token_trie *t, bool ends,
                                    struct qwick_err *e)
{
    struct local *old = find_local(c, state, t);
    struct local l = {.state = state, .trie = t};
    if (old)
        old->used = true;
    if (old && (old->ends || !ends))
        return old;
    if (fill_local(c, &l, ends, e)) {
        free_local(&l);
        return NULL;
    }
    old = find_local(c, state, t); /* the walk may have moved it */
    size_t n = bytes_of(c, &l);
    if (old) {
        c->local_bytes += n - bytes_of(c, old);
        free_local(old);
        *old = l;
        old->used = true;
        return old;
    }
    if (reserve_local(c, n, e)) {
        free_local(&l);
        constraint_drop_masks(c); /* they are not indexed */
        return NULL;
    }
    l.used = true;
    c->locals[c->n_locals++] = l;
    c->local_bytes += n;
    if (index_local(c, e)) {
        constraint_drop_masks(c);
        return NULL;
    }
    return &c->locals[c->n_locals - 1];
}

/* ---- masks ---- */

static void add_local(const struct qwick_constraint *c, const struct local *l,
                      uint64_t *mask)
{
    for (size_t k = 0; l->bits && k < c->n_words; k++)
        mask[k] |= l->bits[k];
    for (size_t i = 0; l->ids && i < l->n_ids; i++)
        mask[l->ids[i] / 64] |= 1ull << (l->ids[i] & 63);
}

/* Add the tokens that leave the rule: from the nodes where it can end, the
 * state after it goes on. */
static int add_after(struct qwick_constraint *c, const struct local *l,
                     uint32_t after, uint64_t *mask, struct qwick_err *e)
{
    struct local more = {.trie = l->trie, .bits = mask};
    c->n_found = 0;
    for (size_t i = 0; i < l->n_ends; i++)
        if (walk_below(c, &more, l->ends[i], after, false, e))
            return -1;
    return 0;
}

/* Add the tokens of a trie that begin in group g. */
static int add_group(struct qwick_constraint *c,
                     const struct automaton_group *g, struct token_trie *t,
                     uint64_t *mask, struct qwick_err *e)
{
    /* if nothing can follow the rule, its ends do not matter */
    bool ends = automaton_groups(c->a, g->after) > 0;
    uint32_t alike = automaton_alike(c->a, g->local, t->max_depth);
    if (automaton_error(c->a, e) || walk_check(c, e))
        return -1;
    const struct local *l = local_of(c, alike, t, ends, e);
    if (!l)
        return -1;
    add_local(c, l, mask);
    return ends ? add_after(c, l, g->after, mask, e) : 0;
}

/* If a state has several groups with unknown tokens in a trie, and none of
 * their rules can end there, add the tokens of all groups with one walk. That
 * is usual for plain tokens, because strings end with a quote. Returns 1 if it
 * did so, 0, or -1 with *e set. */
static int add_together(struct qwick_constraint *c, uint32_t state, size_t n,
                        struct token_trie *t, uint64_t *mask,
                        struct qwick_err *e)
{
    uint32_t all = AUTOMATON_DEAD;
    size_t n_new = 0;
    for (size_t i = 0; i < n; i++) {
        struct automaton_group g;
        automaton_group(c->a, state, i, &g);
        uint32_t alike = automaton_alike(c->a, g.local, t->max_depth);
        all = automaton_union(c->a, all, g.local);
        n_new += !find_local(c, alike, t);
        if (walk_check(c, e))
            return -1;
    }
    all = automaton_alike(c->a, all, t->max_depth);
    if (automaton_error(c->a, e))
        return -1;
    if (n_new < 2 && !find_local(c, all, t))
        return 0;
    const struct local *l = local_of(c, all, t, true, e);
    if (l && l->n_ends == 0)
        add_local(c, l, mask);
    return l ? l->n_ends == 0 : -1;
}

/* ---- texts that differ ---- */

/* List the tokens with quotes. Parts whose texts differ end with a quote. */
static int list_quoted(struct qwick_constraint *c, struct qwick_err *e)
{
    const struct token_trie *t = c->trie;
    size_t n = 0;
    c->quoted = malloc((t->n_vocab + 1) * sizeof *c->quoted);
    if (!c->quoted)
        return err_oom(e, t->n_vocab * sizeof *c->quoted);
    for (int more = 1; more >= 0; more--) {
        for (int32_t id = 0; (size_t)id < t->n_vocab; id++) {
            size_t len, quotes = 0;
            const char *p =
                token_trie_has(t, id) ? bpe_token(t->bpe, id, &len) : NULL;
            for (size_t i = 0; p && i < len; i++)
                quotes += p[i] == '"';
            if (quotes > 0 && (quotes > 2) == more)
                c->quoted[n++] = id;
        }
        c->n_quoted_more = more ? n : c->n_quoted_more;
    }
    c->n_quoted = n;
    return 0;
}

/* Whether a token that has a quote can end one of the texts of
 * automaton_repeats: it begins with the text or, between two parts, its first
 * quote does. */
static bool may_repeat(const struct buf *texts, const char *token, size_t n)
{
    const char *quote = memchr(token, '"', n);
    size_t skip = quote ? (size_t)(quote - token) : 0;
    uint32_t len;
    for (size_t i = 0; i < texts->len; i += sizeof len + len) {
        const char *text = texts->data + i + sizeof len;
        memcpy(&len, texts->data + i, sizeof len);
        if ((len <= n && memcmp(token, text, len) == 0) ||
            (len <= n - skip && memcmp(token + skip, text, len) == 0))
            return true;
    }
    return false;
}

/* Take the tokens out of the mask with which a part has the text of an earlier
 * one. A token with fewer than three quotes ends at most one part; try each of
 * the others, because walks over classes do not tell texts apart. */
static int drop_repeats(struct qwick_constraint *c, uint32_t state,
                        uint64_t *mask, struct qwick_err *e)
{
    struct buf texts = {0};
    int rc = c->quoted ? 0 : list_quoted(c, e);
    if (!rc && automaton_repeats(c->a, state, &texts))
        rc = err_oom(e, texts.len);
    for (size_t i = 0; !rc && i < c->n_quoted; i++) {
        int32_t id = c->quoted[i];
        size_t n;
        const char *p = bpe_token(c->trie->bpe, id, &n);
        uint64_t bit = 1ull << (id & 63);
        if (i >= c->n_quoted_more &&
            (!(mask[id / 64] & bit) || !may_repeat(&texts, p, n)))
            continue;
        mask[id / 64] &= ~bit;
        if (constraint_advance(c, state, id) != AUTOMATON_DEAD)
            mask[id / 64] |= bit;
    }
    buf_free(&texts);
    return rc || automaton_error(c->a, e) ? -1 : 0;
}

static int mask_of(struct qwick_constraint *c, uint32_t state, uint64_t *mask,
                   struct qwick_err *e)
{
    size_t n = automaton_groups(c->a, state);
    for (struct token_trie *t = c->trie; t; t = t->next) {
        int done =
            n > 1 && t->kind == 0 ? add_together(c, state, n, t, mask, e) : 0;
        for (size_t i = 0; !done && i < n; i++) {
            struct automaton_group g;
            automaton_group(c->a, state, i, &g);
            if (add_group(c, &g, t, mask, e))
                return -1;
        }
        if (done < 0)
            return -1;
    }
    return 0;
}

int constraint_mask(struct qwick_constraint *c, uint32_t state, uint64_t *mask,
                    struct qwick_err *e)
{
    uint32_t plain = automaton_plain(c->a, state);
    automaton_reset_work(c->a);
    memset(mask, 0, c->n_words * sizeof *mask);
    if (automaton_error(c->a, e) || mask_of(c, plain, mask, e))
        return -1;
    return automaton_has_texts(c->a) ? drop_repeats(c, state, mask, e) : 0;
}
