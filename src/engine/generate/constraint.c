#include "engine/generate/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hashmap.h"
#include "engine/generate/token_trie.h"
#include "text/bpe.h"
#include "text/grammar/automaton.h"

/* Places that one mask may visit: a hostile grammar ends with an error after
 * about a second. */
#define MAX_WORK 50000000u

/* States that need more memory than this are tidied before the next mask. A
 * mask may make more; AUTOMATON_MAX_MEMORY limits that. */
#define TIDY_BYTES (12u << 20)

/* What a state admits inside its rule. */
struct local {
    uint32_t state;
    uint32_t n_bits;
    uint64_t *bits; /* [words], or NULL: ids */
    int32_t *ids;   /* [n_bits] */
    uint32_t *ends; /* [n_ends] nodes of the trie where the rule can end */
    size_t n_ends;
};

struct qwick_constraint {
    struct automaton *a;
    const struct token_trie *trie;
    char *name;
    size_t n_words;
    uint32_t *stack; /* [max_depth + 1] states of a walk, by depth */
    struct local *locals;
    size_t n_locals, cap_locals;
    struct hashmap by_state; /* of locals */
    size_t local_bytes;
    struct matcher *matchers; /* list */
    /* memory of a walk */
    int32_t *found; /* [n_ids] */
    size_t n_found;
    uint32_t *ends;
    size_t n_ends, cap_ends;
};

struct matcher {
    struct qwick_constraint *c;
    struct matcher *next, **prev; /* in c->matchers */
    uint32_t state;
    uint32_t held;  /* another state that tidying keeps */
    uint64_t *mask; /* [n_words] */
    size_t n_bits;
    bool has_mask; /* mask is that of state */
};

/* ---- memory ---- */

static void drop_locals(struct qwick_constraint *c)
{
    for (size_t i = 0; i < c->n_locals; i++) {
        free(c->locals[i].bits);
        free(c->locals[i].ids);
        free(c->locals[i].ends);
    }
    c->n_locals = 0;
    c->local_bytes = 0;
    c->by_state.mask = 0; /* the next look-up builds the table again */
}

/* Tidy the automaton when its states need much memory: drop all except those of
 * the matchers. */
static int limit_states(struct qwick_constraint *c, struct qwick_err *e)
{
    size_t n = 0;
    if (automaton_bytes_used(c->a) <= TIDY_BYTES)
        return 0;
    for (struct matcher *m = c->matchers; m; m = m->next)
        n += 2;
    uint32_t *states = malloc((n + 1) * sizeof *states), *p = states;
    if (!states)
        return err_oom(e, n * sizeof *states);
    for (struct matcher *m = c->matchers; m; m = m->next) {
        *p++ = m->state;
        *p++ = m->held;
    }
    int rc = automaton_tidy(c->a, states, n, e);
    p = states;
    for (struct matcher *m = c->matchers; m; m = m->next) {
        m->state = *p++;
        m->held = *p++;
    }
    free(states);
    drop_locals(c);
    if (!rc && automaton_bytes_used(c->a) > AUTOMATON_MAX_MEMORY / 2)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: the texts are nested so deeply that their states "
                       "need more than %u MB",
                       c->name, AUTOMATON_MAX_MEMORY >> 21);
    return rc;
}

/* ---- walks ---- */

/* Walk over the nodes [from, to) of the trie, the children of a node of depth
 * `depth`, whose state is in c->stack[depth]. Collects the ids of tokens that
 * are admitted and, with ends, the nodes after which the state accepts. */
static int walk(struct qwick_constraint *c, size_t from, size_t to, bool ends,
                struct qwick_err *e)
{
    const struct token_trie *t = c->trie;
    struct automaton *a = c->a;
    uint32_t *stack = c->stack;
    for (size_t i = from; i < to;) {
        const struct trie_node *node = &t->nodes[i];
        size_t depth = node->depth;
        uint32_t state = automaton_advance(a, stack[depth - 1], node->byte);
        if (state == AUTOMATON_DEAD) {
            i = node->skip;
            continue;
        }
        stack[depth] = state;
        for (size_t k = 0; k < node->n_equal; k++)
            c->found[c->n_found++] = t->ids[node->rank + k];
        if (ends && automaton_accepts(a, state)) {
            if (ARRAY_RESERVE(c->ends, c->cap_ends, c->n_ends + 1, e))
                return -1;
            c->ends[c->n_ends++] = (uint32_t)i;
        }
        i++;
        if (automaton_work(a) > MAX_WORK)
            return err_set(e, QWICK_ERR_RUNTIME,
                           "%s: is too ambiguous: finding the next token takes "
                           "too long",
                           c->name);
    }
    return automaton_error(a, e);
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

/* Keep what the walk from a state found. Many ids are kept as bits. */
static struct local *keep_local(struct qwick_constraint *c, uint32_t state,
                                struct qwick_err *e)
{
    struct local l = {
        .state = state, .n_bits = (uint32_t)c->n_found, .n_ends = c->n_ends};
    size_t n_ends = c->n_ends * sizeof *l.ends, n;
    bool as_bits = c->n_found > 2 * c->n_words;
    n = as_bits ? c->n_words * sizeof *l.bits : c->n_found * sizeof *l.ids;
    if (c->local_bytes + n + n_ends > CONSTRAINT_MASK_BYTES)
        drop_locals(c);
    if (ARRAY_RESERVE(c->locals, c->cap_locals, c->n_locals + 1, e))
        return NULL;
    l.ends = malloc(n_ends + 1);
    if (as_bits)
        l.bits = calloc(c->n_words, sizeof *l.bits);
    else
        l.ids = malloc(n + 1);
    if (!l.ends || (!l.bits && !l.ids)) {
        free(l.ends);
        free(l.bits);
        free(l.ids);
        err_oom(e, n + n_ends);
        return NULL;
    }
    if (n_ends)
        memcpy(l.ends, c->ends, n_ends);
    if (!as_bits && n)
        memcpy(l.ids, c->found, n);
    for (size_t i = 0; as_bits && i < c->n_found; i++)
        l.bits[c->found[i] / 64] |= 1ull << (c->found[i] & 63);
    c->locals[c->n_locals++] = l;
    c->local_bytes += n + n_ends + sizeof l;
    return index_local(c, e) ? NULL : &c->locals[c->n_locals - 1];
}

/* Return what the state admits inside its rule. */
static const struct local *local_of(struct qwick_constraint *c, uint32_t state,
                                    struct qwick_err *e)
{
    struct local *l = find_local(c, state);
    if (l)
        return l;
    c->n_found = c->n_ends = 0;
    c->stack[0] = state;
    if (walk(c, 0, c->trie->n_nodes, true, e))
        return NULL;
    return keep_local(c, state, e);
}

/* ---- masks ---- */

static void set_bits(uint64_t *mask, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mask[ids[i] / 64] |= 1ull << (ids[i] & 63);
}

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
        if (walk(c, l->ends[i] + 1u, node->skip, false, e))
            return -1;
        set_bits(mask, c->found, c->n_found);
    }
    return 0;
}

static int add_group(struct matcher *m, size_t i, struct qwick_err *e)
{
    struct qwick_constraint *c = m->c;
    struct automaton_group g;
    automaton_group(c->a, m->state, i, &g);
    if (automaton_error(c->a, e))
        return -1;
    const struct local *l = local_of(c, g.local, e);
    if (!l)
        return -1;
    for (size_t k = 0; l->bits && k < c->n_words; k++)
        m->mask[k] |= l->bits[k];
    if (l->ids)
        set_bits(m->mask, l->ids, l->n_bits);
    return add_after(c, l, g.after, m->mask, e);
}

static size_t count_bits(const uint64_t *mask, size_t n)
{
    size_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += (size_t)__builtin_popcountll(mask[i]);
    return bits;
}

static int make_mask(struct matcher *m, struct qwick_err *e)
{
    struct qwick_constraint *c = m->c;
    if (limit_states(c, e))
        return -1;
    automaton_reset_work(c->a);
    memset(m->mask, 0, c->n_words * sizeof *m->mask);
    for (size_t i = 0; i < automaton_groups(c->a, m->state); i++)
        if (add_group(m, i, e))
            return -1;
    m->n_bits = count_bits(m->mask, c->n_words);
    m->has_mask = true;
    return 0;
}

const uint64_t *matcher_mask(struct matcher *m, size_t *n_ids,
                             struct qwick_err *e)
{
    *n_ids = 0;
    if (!m->has_mask && make_mask(m, e))
        return NULL;
    *n_ids = m->n_bits;
    return m->mask;
}

size_t matcher_words(const struct matcher *m)
{
    return m->c->n_words;
}

/* ---- texts ---- */

/* Advance by the bytes of a token. */
static uint32_t advance_by(struct qwick_constraint *c, uint32_t state,
                           int32_t id)
{
    size_t n;
    const char *p = bpe_token(c->trie->bpe, id, &n);
    if (!p || n == 0 || bpe_is_added(c->trie->bpe, id))
        return AUTOMATON_DEAD;
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
        state = automaton_advance(c->a, state, (unsigned char)p[i]);
    return state;
}

int matcher_accept(struct matcher *m, int32_t id, struct qwick_err *e)
{
    struct qwick_constraint *c = m->c;
    if (limit_states(c, e))
        return -1;
    uint32_t to = advance_by(c, m->state, id);
    if (automaton_error(c->a, e))
        return -1;
    if (to == AUTOMATON_DEAD)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: token %d does not fit the text so far", c->name,
                       id);
    m->state = to;
    m->has_mask = false;
    return 0;
}

bool matcher_complete(const struct matcher *m)
{
    return automaton_accepts(m->c->a, m->state);
}

bool matcher_admits_byte(const struct matcher *m, unsigned char byte)
{
    unsigned char bytes[256];
    automaton_bytes(m->c->a, m->state, bytes);
    return bytes[byte];
}

/* The lowest id in a mask that is not empty. */
static int32_t first_id(const uint64_t *mask)
{
    size_t i = 0;
    while (!mask[i])
        i++;
    return (int32_t)(i * 64 + (size_t)__builtin_ctzll(mask[i]));
}

int matcher_forced(struct matcher *m, int32_t *ids, size_t max, size_t *n,
                   struct qwick_err *e)
{
    size_t n_ids;
    int rc = 0;
    *n = 0;
    m->held = m->state;
    while (*n < max && !matcher_complete(m)) {
        const uint64_t *mask = matcher_mask(m, &n_ids, e);
        if (!mask || n_ids != 1) {
            rc = mask ? 0 : -1;
            break;
        }
        ids[*n] = first_id(mask);
        if ((rc = matcher_accept(m, ids[*n], e)) != 0)
            break;
        ++*n;
    }
    m->has_mask &= *n == 0;
    m->state = m->held;
    m->held = AUTOMATON_DEAD;
    return rc;
}

int matcher_create(struct matcher **out, struct qwick_constraint *c,
                   struct qwick_err *e)
{
    struct matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m)
        m->mask = calloc(c->n_words, sizeof *m->mask);
    if (!m || !m->mask) {
        free(m);
        return err_oom(e, c->n_words * sizeof *m->mask);
    }
    m->c = c;
    m->state = automaton_start(c->a);
    m->next = c->matchers;
    m->prev = &c->matchers;
    if (m->next)
        m->next->prev = &m->next;
    c->matchers = m;
    *out = m;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    *m->prev = m->next;
    if (m->next)
        m->next->prev = m->prev;
    free(m->mask);
    free(m);
}

/* ---- constraints ---- */

/* Whether a token can begin the text, or the text may be empty. */
static int check_start(struct qwick_constraint *c, struct qwick_err *e)
{
    struct matcher *m;
    size_t n_ids;
    if (matcher_create(&m, c, e))
        return -1;
    int rc = matcher_mask(m, &n_ids, e) ? 0 : -1;
    if (!rc && n_ids == 0 && !matcher_complete(m))
        rc = err_set(e, QWICK_ERR_USAGE,
                     "%s: the model has no token that begins such a text",
                     c->name);
    matcher_free(m);
    return rc;
}

int constraint_create(struct qwick_constraint **out, const struct grammar *g,
                      const char *name, const struct token_trie *trie,
                      struct qwick_err *e)
{
    *out = NULL;
    struct qwick_constraint *c = calloc(1, sizeof *c);
    if (!c)
        return err_oom(e, sizeof *c);
    c->trie = trie;
    c->n_words = trie->n_vocab / 64 + 1;
    c->name = strdup(name);
    c->stack = malloc((trie->max_depth + 1) * sizeof *c->stack);
    c->found = malloc((trie->n_ids + 1) * sizeof *c->found);
    if (!c->name || !c->stack || !c->found) {
        err_oom(e, trie->n_ids * sizeof *c->found);
        goto fail;
    }
    if (automaton_create(&c->a, g, e) || check_start(c, e))
        goto fail;
    *out = c;
    return 0;
fail:
    constraint_free(c);
    return -1;
}

void constraint_free(struct qwick_constraint *c)
{
    if (!c)
        return;
    drop_locals(c);
    automaton_free(c->a);
    free(c->locals);
    hashmap_free(&c->by_state);
    free(c->name);
    free(c->stack);
    free(c->found);
    free(c->ends);
    free(c);
}
