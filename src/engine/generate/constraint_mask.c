/* Masks: the tokens that a state admits. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "engine/generate/class_trie.h"
#include "engine/generate/constraint_int.h"
#include "text/bpe/bpe.h"

/* Places that one mask may visit: a hostile grammar ends with an error after
 * about a second. */
#define MAX_WORK 50000000u

/* A walk that visits more nodes than this goes over classes instead. */
enum { LONG_WALK = 10000 };

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

/* ---- walks ---- */

static void set_bits(uint64_t *mask, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mask[ids[i] / 64] |= 1ull << (ids[i] & 63);
}

static int add_end(struct qwick_constraint *c, size_t i, struct qwick_err *e)
{
    if (ARRAY_RESERVE(c->ends, c->cap_ends, c->n_ends + 1, e))
        return -1;
    c->ends[c->n_ends++] = (uint32_t)i;
    return 0;
}

static int check_work(const struct qwick_constraint *c, struct qwick_err *e)
{
    if (automaton_work(c->a) <= MAX_WORK)
        return 0;
    return err_set(
        e, QWICK_ERR_RUNTIME,
        "%s: is too ambiguous: finding the next token takes too long", c->name);
}

/* Find the state after a byte, make it if need be, and bring *known up to
 * date. */
static inline int state_after(struct qwick_constraint *c, uint32_t state,
                              unsigned char byte, struct automaton_table *known,
                              uint32_t *to, struct qwick_err *e)
{
    uint32_t next =
        known->next[state * known->n_classes + known->class_of[byte]];
    if (next) {
        *to = next - 1;
        return 0;
    }
    *to = automaton_advance(c->a, state, byte);
    *known = automaton_known(c->a);
    return check_work(c, e) || automaton_error(c->a, e) ? -1 : 0;
}

/* Walk over the nodes [from, to) of the trie, the descendants of a node whose
 * state is in c->stack, at its depth. Collects the ids of tokens that are
 * admitted and, with ends, the nodes after which the state accepts. Returns 1
 * after `most` nodes. */
static int walk(struct qwick_constraint *c, size_t from, size_t to, bool ends,
                size_t most, struct qwick_err *e)
{
    const struct token_trie *t = c->trie;
    struct automaton_table known = automaton_known(c->a);
    uint32_t *stack = c->stack;
    for (size_t i = from; i < to;) {
        const struct trie_node *node = &t->nodes[i];
        size_t depth = node->depth;
        uint32_t state;
        if (state_after(c, stack[depth - 1], node->byte, &known, &state, e))
            return -1;
        if (state == AUTOMATON_DEAD) {
            i = node->skip;
            continue;
        }
        if (most-- == 0)
            return 1;
        stack[depth] = state;
        for (size_t k = 0; k < node->n_equal; k++)
            c->found[c->n_found++] = t->ids[node->rank + k];
        if (ends && known.accepts[state] && add_end(c, i, e))
            return -1;
        i++;
    }
    return 0;
}

/* Whether a state tells no two bytes of a class apart. */
static bool suits(const struct qwick_constraint *c, uint32_t state,
                  const struct class_trie *t)
{
    uint64_t borders[4] = {0};
    bool more = false;
    automaton_add_borders(c->a, state, borders);
    for (size_t i = 0; i < 4; i++)
        more |= (borders[i] & ~t->borders[i]) != 0;
    return !more;
}

/* Begin a walk: nothing is known of its states. */
static void forget_suits(struct qwick_constraint *c)
{
    if (++c->walk > UINT32_MAX / 2) {
        memset(c->suits, 0, c->cap_suits * sizeof *c->suits);
        c->walk = 1;
    }
}

/* Whether a state suits the trie of this walk. A walk meets most states many
 * times, so it keeps the answer: twice the number of the walk, plus 1 if the
 * state suits. Returns -1 with *e set when out of memory. */
static int suits_known(struct qwick_constraint *c, uint32_t state,
                       const struct class_trie *t, struct qwick_err *e)
{
    size_t old = c->cap_suits;
    if (ARRAY_RESERVE(c->suits, c->cap_suits, (size_t)state + 1, e))
        return -1;
    if (c->cap_suits > old)
        memset(c->suits + old, 0, (c->cap_suits - old) * sizeof *c->suits);
    if (c->suits[state] / 2 != c->walk)
        c->suits[state] = 2 * c->walk + suits(c, state, t);
    return c->suits[state] & 1;
}

static void add_tokens(uint64_t *bits, const struct class_trie *t,
                       const struct class_node *node)
{
    const uint64_t *more = t->bits + (node->bits - 1u) * t->n_words;
    if (!node->bits)
        set_bits(bits, t->ids + node->ids, node[1].ids - node->ids);
    for (size_t k = 0; node->bits && k < t->n_words; k++)
        bits[k] |= more[k];
}

/* Walk below the nodes of the token trie that a class node stands for. */
static int walk_below(struct qwick_constraint *c, const struct class_trie *t,
                      const struct class_node *node, uint32_t state, bool ends,
                      uint64_t *bits, struct qwick_err *e)
{
    for (size_t k = node->nodes; k < node[1].nodes; k++) {
        size_t i = t->nodes[k];
        c->n_found = 0;
        c->stack[node->depth] = state;
        if (walk(c, i + 1, c->trie->nodes[i].skip, ends, SIZE_MAX, e))
            return -1;
        set_bits(bits, c->found, c->n_found);
    }
    return 0;
}

/* Walk over the classes from the state in c->stack[0]. Where a state tells more
 * bytes apart, go on over bytes. Writes the tokens to bits. */
static int walk_classes(struct qwick_constraint *c, const struct class_trie *t,
                        bool ends, uint64_t *bits, struct qwick_err *e)
{
    struct automaton_table known = automaton_known(c->a);
    uint32_t *stack = c->stack;
    forget_suits(c);
    for (size_t i = 0; i < t->n;) {
        const struct class_node *node = &t->v[i];
        size_t depth = node->depth;
        uint32_t state;
        if (state_after(c, stack[depth - 1], node->byte, &known, &state, e))
            return -1;
        if (state == AUTOMATON_DEAD) {
            i = node->skip;
            continue;
        }
        stack[depth] = state;
        add_tokens(bits, t, node);
        for (size_t k = node->nodes;
             ends && known.accepts[state] && k < node[1].nodes; k++)
            if (add_end(c, t->nodes[k], e))
                return -1;
        int down = node->skip == i + 1 ? 1 : suits_known(c, state, t, e);
        if (down < 0)
            return -1;
        if (!down && walk_below(c, t, node, state, ends, bits, e))
            return -1;
        known = automaton_known(c->a);
        i = down ? i + 1 : node->skip;
    }
    return 0;
}

/* Classes that lead to a state of which the borders count, too, have at least
 * this many bytes. */
enum { LARGE_CLASS = 8 };

/* Find the borders of classes for a walk from a state: its own, and those of
 * the states after large classes. All others are left to walks over bytes. */
static int find_borders(struct qwick_constraint *c, uint32_t state,
                        uint64_t borders[4], struct qwick_err *e)
{
    uint64_t own[4] = {0};
    automaton_add_borders(c->a, state, own);
    memcpy(borders, own, sizeof own);
    for (unsigned from = 0, to; from < 256; from = to) {
        for (to = from + 1; to < 256 && !(own[to / 64] >> (to & 63) & 1); to++)
            ;
        if (to - from < LARGE_CLASS)
            continue;
        uint32_t next = automaton_advance(c->a, state, (unsigned char)from);
        if (automaton_error(c->a, e))
            return -1;
        automaton_add_borders(c->a, next, borders);
    }
    return 0;
}

/* Making a trie over classes takes as long as some walks over bytes, so that
 * many come first. */
enum { WALKS_FIRST = 4 };

/* Note a wish for a trie over classes. Returns whether to make it. */
static bool wish_classes(struct token_trie *t, const uint64_t borders[4])
{
    struct class_wish *w = t->wishes;
    size_t n =
        t->n_wishes < TOKEN_TRIE_CLASSES ? t->n_wishes : TOKEN_TRIE_CLASSES;
    for (size_t i = 0; i < n; i++)
        if (memcmp(w[i].borders, borders, sizeof w->borders) == 0)
            return ++w[i].n > WALKS_FIRST;
    w += t->n_wishes++ % TOKEN_TRIE_CLASSES;
    memcpy(w->borders, borders, sizeof w->borders);
    w->n = 1;
    return false;
}

/* Look for the trie over classes with these borders. If there is none, *make
 * says whether to make it. */
static struct class_trie *known_classes(struct token_trie *t,
                                        const uint64_t borders[4], bool *make)
{
    struct class_trie *found = NULL;
    *make = false;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_classes && !found; i++)
        if (memcmp(t->classes[i]->borders, borders, sizeof found->borders) == 0)
            found = t->classes[i];
    if (found)
        __atomic_add_fetch(&found->refs, 1, __ATOMIC_RELAXED);
    else
        *make = wish_classes(t, borders);
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* Keep a trie over classes for other walks, in place of the oldest one. */
static void keep_classes(struct token_trie *t, struct class_trie *c)
{
    pthread_mutex_lock(&t->lock);
    size_t at = t->n_made++ % TOKEN_TRIE_CLASSES;
    if (at < t->n_classes)
        class_trie_drop(t->classes[at]);
    else
        t->n_classes++;
    t->classes[at] = c;
    __atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&t->lock);
}

/* Return the trie over classes for a walk from a state, with a reference for
 * the caller. It is made when it was needed some times. NULL: it is not worth
 * it. */
static int find_classes(struct qwick_constraint *c, uint32_t state,
                        struct class_trie **out, struct qwick_err *e)
{
    uint64_t borders[4];
    bool make;
    *out = NULL;
    if (find_borders(c, state, borders, e))
        return -1;
    if (class_trie_count(borders) > CLASS_TRIE_MAX)
        return 0;
    *out = known_classes(c->trie, borders, &make);
    if (!make)
        return 0;
    if (class_trie_create(out, c->trie, borders, e))
        return -1;
    keep_classes(c->trie, *out);
    return 0;
}

static struct local *find_local(struct qwick_constraint *c, uint32_t state)
{
    uint64_t h = (uint64_t)state * 0x9e3779b97f4a7c15u;
    uint32_t at, i;
    if (c->n_locals == 0)
        return NULL;
    at = hashmap_slot(&c->by_state, h ^ h >> 32);
    while ((i = hashmap_next(&c->by_state, h ^ h >> 32, &at)) != HASHMAP_NONE)
        if (c->locals[i].state == state)
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
    for (size_t i = from; i < c->n_locals; i++) {
        uint64_t h = (uint64_t)c->locals[i].state * 0x9e3779b97f4a7c15u;
        hashmap_put(&c->by_state, h ^ h >> 32, (uint32_t)i);
    }
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

static int copy(void *to, const void *from, size_t n, struct qwick_err *e)
{
    void *p = malloc(n + 1);
    if (!p)
        return err_oom(e, n);
    if (n)
        memcpy(p, from, n);
    memcpy(to, &p, sizeof p);
    return 0;
}

/* Walk from a state. Few tokens are kept as ids, many as bits. *classes: the
 * trie that the walk used, with a reference for the caller, or NULL. */
static int walk_from(struct qwick_constraint *c, struct local *l, bool ends,
                     struct class_trie **classes, struct qwick_err *e)
{
    size_t n = c->n_words * sizeof *l->bits;
    c->n_found = c->n_ends = 0;
    c->stack[0] = l->state;
    int rc = walk(c, 0, c->trie->n_nodes, ends, LONG_WALK, e);
    if (rc < 0 || (rc && find_classes(c, l->state, classes, e)))
        return -1;
    if (rc && !*classes) {
        c->n_found = c->n_ends = 0;
        if (walk(c, 0, c->trie->n_nodes, ends, SIZE_MAX, e))
            return -1;
    }
    l->n_ids = (uint32_t)c->n_found;
    if (rc == 0 && c->n_found <= 2 * c->n_words) {
        if (copy(&l->ids, c->found, c->n_found * sizeof *l->ids, e))
            return -1;
    } else if (!(l->bits = calloc(c->n_words, sizeof *l->bits))) {
        return err_oom(e, n);
    } else if (*classes) {
        c->n_ends = 0;
        if (walk_classes(c, *classes, ends, l->bits, e))
            return -1;
    } else {
        set_bits(l->bits, c->found, c->n_found);
    }
    l->n_ends = c->n_ends;
    return ends ? copy(&l->ends, c->ends, c->n_ends * sizeof *l->ends, e) : 0;
}

static int fill_local(struct qwick_constraint *c, struct local *l, bool ends,
                      struct qwick_err *e)
{
    struct class_trie *classes = NULL;
    int rc = walk_from(c, l, ends, &classes, e);
    class_trie_drop(classes);
    return rc;
}

/* Return what the state admits inside its rule and, with ends, where the rule
 * can end. */
static const struct local *local_of(struct qwick_constraint *c, uint32_t state,
                                    bool ends, struct qwick_err *e)
{
    struct local *old = find_local(c, state), l = {.state = state};
    if (old)
        old->used = true;
    if (old && (old->ends || !ends))
        return old;
    if (fill_local(c, &l, ends, e)) {
        free_local(&l);
        return NULL;
    }
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

/* Add the tokens that leave the rule: from the nodes where it can end, the
 * state after it goes on. */
static int add_after(struct qwick_constraint *c, const struct local *l,
                     uint32_t after, uint64_t *mask, struct qwick_err *e)
{
    const struct token_trie *t = c->trie;
    for (size_t i = 0; i < l->n_ends; i++) {
        const struct trie_node *node = &t->nodes[l->ends[i]];
        c->n_found = 0;
        c->stack[node->depth] = after;
        if (walk(c, l->ends[i] + 1u, node->skip, false, SIZE_MAX, e))
            return -1;
        set_bits(mask, c->found, c->n_found);
    }
    return 0;
}

static int add_group(struct qwick_constraint *c, uint32_t state, size_t i,
                     uint64_t *mask, struct qwick_err *e)
{
    struct automaton_group g;
    automaton_group(c->a, state, i, &g);
    g.local = automaton_alike(c->a, g.local, c->trie->max_depth);
    if (automaton_error(c->a, e) || check_work(c, e))
        return -1;
    /* if nothing can follow the rule, its ends do not matter */
    bool ends = automaton_groups(c->a, g.after) > 0;
    const struct local *l = local_of(c, g.local, ends, e);
    if (!l)
        return -1;
    for (size_t k = 0; l->bits && k < c->n_words; k++)
        mask[k] |= l->bits[k];
    if (l->ids)
        set_bits(mask, l->ids, l->n_ids);
    return ends ? add_after(c, l, g.after, mask, e) : 0;
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
    for (size_t i = 0; i < n; i++)
        if (add_group(c, state, i, mask, e))
            return -1;
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
