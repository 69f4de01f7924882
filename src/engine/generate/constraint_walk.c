/* Walks over the tokens, which find those that a state admits. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "engine/generate/class_trie.h"
#include "engine/generate/constraint_int.h"

/* Places that one mask may visit: a hostile grammar ends with an error after
 * about a second. */
#define MAX_WORK 50000000u

int walk_check(const struct qwick_constraint *c, struct qwick_err *e)
{
    if (automaton_error(c->a, e))
        return -1;
    if (automaton_work(c->a) <= MAX_WORK)
        return 0;
    return err_set(
        e, QWICK_ERR_RUNTIME,
        "%s: is too ambiguous: finding the next token takes too long", c->name);
}

/* ---- what a walk finds ---- */

static void set_bits(uint64_t *bits, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bits[ids[i] / 64] |= 1ull << (ids[i] & 63);
}

static void clear_bits(uint64_t *bits, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bits[ids[i] / 64] &= ~(1ull << (ids[i] & 63));
}

/* Move the ids that were found to the bits of a local. */
static int flush_found(struct qwick_constraint *c, struct local *l,
                       struct qwick_err *e)
{
    if (!l->bits && !(l->bits = calloc(c->n_words, sizeof *l->bits)))
        return err_oom(e, c->n_words * sizeof *l->bits);
    set_bits(l->bits, c->found, c->n_found);
    c->n_found = 0;
    return 0;
}

static inline int add_ids(struct qwick_constraint *c, struct local *l,
                          const int32_t *ids, size_t n, struct qwick_err *e)
{
    if (l->bits) {
        set_bits(l->bits, ids, n);
        return 0;
    }
    bool large = n > c->cap_found - c->n_found;
    if (large && flush_found(c, l, e))
        return -1;
    if (l->bits) {
        set_bits(l->bits, ids, n);
        return 0;
    }
    memcpy(c->found + c->n_found, ids, n * sizeof *ids);
    c->n_found += n;
    return 0;
}

/* Note that the rule can end after a node, unless no token goes on there. */
static int add_end(struct qwick_constraint *c, const struct token_trie *t,
                   size_t i, struct qwick_err *e)
{
    if (t->nodes[i].skip == i + 1)
        return 0;
    if (ARRAY_RESERVE(c->ends, c->cap_ends, c->n_ends + 1, e))
        return -1;
    c->ends[c->n_ends++] = (uint32_t)i;
    return 0;
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

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* Keep what a walk found. Few tokens are kept as ids, many as bits. */
static int keep_found(struct qwick_constraint *c, struct local *l, bool ends,
                      struct qwick_err *e)
{
    if (l->bits ? flush_found(c, l, e)
                : copy(&l->ids, c->found, c->n_found * sizeof *l->ids, e))
        return -1;
    l->n_ids = (uint32_t)c->n_found;
    l->n_ends = c->n_ends;
    if (ends && c->n_ends > 1)
        qsort(c->ends, c->n_ends, sizeof *c->ends, ascending);
    return ends ? copy(&l->ends, c->ends, c->n_ends * sizeof *l->ends, e) : 0;
}

/* ---- states ---- */

/* Find the state after a byte, make it if need be, and bring *known up to date.
 * n: bytes that may follow. */
static inline int state_after(struct qwick_constraint *c, uint32_t state,
                              unsigned char byte, size_t n,
                              struct automaton_table *known, uint32_t *to,
                              struct qwick_err *e)
{
    uint32_t next =
        known->next[state * known->n_classes + known->class_of[byte]];
    if (next && (!known->counted || next - 1 == AUTOMATON_DEAD)) {
        *to = next - 1;
        return 0;
    }
    if (next && next - 1 < c->cap_notes && c->notes[next - 1].alike) {
        const struct state_note *note = &c->notes[next - 1];
        *to = n <= note->room ? note->alike - 1 : next - 1;
        return 0;
    }
    *to = next ? next - 1 : automaton_advance(c->a, state, byte);
    if (known->counted && *to != AUTOMATON_DEAD && walk_alike(c, to, n, e))
        return -1;
    *known = automaton_known(c->a);
    return next ? 0 : walk_check(c, e);
}

/* ---- plain tokens ---- */

/* Subtrees with fewer nodes are not worth a question. */
enum { LARGE_SUBTREE = 64 };

/* States that fewer nodes have are not asked whether they are safe. */
enum { MANY_VISITS = 32 };

/* Whether a state admits the plain tokens of a subtree that is not high because
 * it admits all texts of so many characters. Returns -1 with *e set on
 * failure. */
static inline int admits_short(struct qwick_constraint *c,
                               const struct trie_node *node, uint32_t state,
                               struct qwick_err *e)
{
    struct state_note *note =
        state < c->cap_notes ? &c->notes[state] : walk_note(c, state, e);
    if (!note)
        return -1;
    if (note->safe > node->height)
        return 1;
    if (note->visits < MANY_VISITS) {
        note->visits++;
        return 0;
    }
    return note->unsafe && note->unsafe <= node->height
               ? 0
               : plain_is_safe(c, state, node->height, e);
}

/* Whether a state admits all plain tokens of the subtree of a node that is no
 * leaf, because plain characters lead to it again. Returns -1 with *e set when
 * out of memory. */
static inline int admits_all(struct qwick_constraint *c,
                             const struct token_trie *t, size_t i,
                             uint32_t state, bool ends, struct qwick_err *e)
{
    const struct trie_node *node = &t->nodes[i];
    if (node->height <= PLAIN_SAFE)
        return admits_short(c, node, state, e);
    if (node->skip < i + LARGE_SUBTREE ||
        (ends && automaton_accepts(c->a, state)))
        return 0;
    int uniform = plain_is_uniform(c, state, e);
    if (uniform <= 0)
        return uniform;
    uint32_t to = automaton_advance(c->a, state, ' ');
    return walk_alike(c, &to, node->height, e) ? -1 : to == state;
}

/* ---- walks ---- */

/* Walk over the nodes [from, to) of the trie, the descendants of a node whose
 * state is in c->stack, at its depth. Collects the tokens that are admitted
 * and, with ends, the nodes after which the state accepts. Tokens between two
 * nodes that are not admitted are neighbours in the ids of the trie. */
static int walk_nodes(struct qwick_constraint *c, struct local *l, size_t from,
                      size_t to, bool ends, struct qwick_err *e)
{
    const struct token_trie *t = l->trie;
    struct automaton_table known = automaton_known(c->a);
    uint32_t *stack = c->stack;
    size_t good = t->nodes[from].rank; /* ids from here on are admitted */
    for (size_t i = from; i < to;) {
        const struct trie_node *node = &t->nodes[i];
        size_t depth = node->depth;
        uint32_t state;
        if (state_after(c, stack[depth - 1], node->byte, node->height, &known,
                        &state, e))
            return -1;
        if (state == AUTOMATON_DEAD) {
            if (add_ids(c, l, t->ids + good, node->rank - good, e))
                return -1;
            i = node->skip;
            good = t->nodes[i].rank;
            continue;
        }
        if (node->height == 0) { /* nothing goes on after a leaf */
            i++;
            continue;
        }
        stack[depth] = state;
        int all = t->kind == 0 ? admits_all(c, t, i, state, ends, e) : 0;
        if (all < 0)
            return -1;
        if (all) {
            known = automaton_known(c->a);
            i = node->skip;
            continue;
        }
        if (ends && known.accepts[state] && add_end(c, t, i, e))
            return -1;
        i++;
    }
    return add_ids(c, l, t->ids + good, t->nodes[to].rank - good, e);
}

int walk_below(struct qwick_constraint *c, struct local *l, size_t i,
               uint32_t state, bool ends, struct qwick_err *e)
{
    const struct trie_node *node = &l->trie->nodes[i];
    c->stack[node->depth] = state;
    return walk_nodes(c, l, i + 1, node->skip, ends, e);
}

static int walk_bytes(struct qwick_constraint *c, struct local *l, bool ends,
                      struct qwick_err *e)
{
    struct token_trie *t = l->trie;
    c->n_found = c->n_ends = 0;
    c->stack[0] = l->state;
    for (unsigned i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        if (automaton_advance(c->a, l->state, byte) == AUTOMATON_DEAD)
            continue;
        if (token_trie_need(t, byte, e))
            return -1;
        const struct trie_part *part = &t->parts[i];
        if (part->n_ids && walk_nodes(c, l, part->from, part->to, ends, e))
            return -1;
    }
    return keep_found(c, l, ends, e);
}

/* Whether a state tells no two bytes of a class apart; or -1 with *e set. */
static int suits(struct qwick_constraint *c, uint32_t state,
                 struct qwick_err *e)
{
    struct state_note *note = walk_note(c, state, e);
    if (!note)
        return -1;
    if (!note->suits) {
        const uint64_t *classes = c->trie->classes->borders;
        uint64_t borders[4] = {0}, more = 0;
        automaton_add_borders(c->a, state, borders);
        for (size_t i = 0; i < 4; i++)
            more |= borders[i] & ~classes[i];
        note->suits = more ? 1 : 2;
    }
    return note->suits - 1;
}

static int add_class(struct qwick_constraint *c, struct local *l,
                     const struct class_part *t, const struct class_node *node,
                     struct qwick_err *e)
{
    size_t n = node[1].ids - node->ids;
    if (!node->bits)
        return n ? add_ids(c, l, t->ids + node->ids, n, e) : 0;
    if (flush_found(c, l, e))
        return -1;
    const uint64_t *more = t->bits + (node->bits - 1u) * t->n_words;
    for (size_t k = 0; k < t->n_words; k++)
        l->bits[k] |= more[k];
    return 0;
}

/* Note that the rule can end at a node, or go on below it over bytes. */
static int leave_class(struct qwick_constraint *c, struct local *l,
                       const struct class_part *t,
                       const struct class_node *node, uint32_t state, bool ends,
                       bool down, struct qwick_err *e)
{
    bool accepts = ends && automaton_accepts(c->a, state);
    for (size_t k = node->nodes; k < node[1].nodes; k++) {
        if (accepts && add_end(c, l->trie, t->nodes[k], e))
            return -1;
        if (!down && walk_below(c, l, t->nodes[k], state, ends, e))
            return -1;
    }
    return 0;
}

/* Walk over the part of a class. */
static int walk_class(struct qwick_constraint *c, struct local *l,
                      const struct class_part *t, bool ends,
                      struct qwick_err *e)
{
    struct automaton_table known = automaton_known(c->a);
    uint32_t *stack = c->stack;
    stack[0] = l->state;
    for (size_t i = 0; i < t->n;) {
        const struct class_node *node = &t->v[i];
        size_t depth = node->depth;
        uint32_t state;
        if (state_after(c, stack[depth - 1], node->byte, node->height, &known,
                        &state, e))
            return -1;
        if (state == AUTOMATON_DEAD) {
            i = node->skip;
            continue;
        }
        stack[depth] = state;
        if (add_class(c, l, t, node, e))
            return -1;
        int down = node->skip == i + 1 ? 1 : suits(c, state, e);
        if (down < 0)
            return -1;
        if (!down || (ends && known.accepts[state])) {
            if (leave_class(c, l, t, node, state, ends, down, e))
                return -1;
            known = automaton_known(c->a);
        }
        i = down ? i + 1 : node->skip;
    }
    return 0;
}

static int walk_classes(struct qwick_constraint *c, struct local *l, bool ends,
                        struct qwick_err *e)
{
    const struct byte_classes *classes = l->trie->classes;
    c->n_found = c->n_ends = 0;
    for (unsigned i = 0; i < 256; i++) {
        const struct class_part *part;
        unsigned char class = classes->class_of[i];
        if ((i && class == classes->class_of[i - 1]) ||
            automaton_advance(c->a, l->state, (unsigned char)i) ==
                AUTOMATON_DEAD)
            continue;
        part = class_trie_need(l->trie, class, e);
        if (!part || walk_class(c, l, part, ends, e))
            return -1;
    }
    return keep_found(c, l, ends, e);
}

/* ---- walks from what another state admits ---- */

/* Keep the ends of *like from node i to node `to`, and drop those before i.
 * *at: how many ends were looked at. */
static int keep_ends(struct qwick_constraint *c, const struct local *like,
                     size_t i, size_t to, size_t *at, struct qwick_err *e)
{
    while (*at < like->n_ends && like->ends[*at] < i)
        ++*at;
    for (; *at < like->n_ends && like->ends[*at] < to; ++*at)
        if (add_end(c, like->trie, like->ends[*at], e))
            return -1;
    return 0;
}

/* Walk over a part of the trie, where l began with the tokens of *like. The
 * states of the root are in c->stack and c->others. */
static int compare_nodes(struct qwick_constraint *c, struct local *l,
                         const struct local *like, const struct trie_part *part,
                         bool ends, struct qwick_err *e)
{
    const struct token_trie *t = l->trie;
    size_t at = 0; /* parts are not in the order of ends */
    struct automaton_table known = automaton_known(c->a);
    uint32_t *stack = c->stack, *others = c->others, state, other;
    for (size_t i = part->from; i < part->to;) {
        const struct trie_node *node = &t->nodes[i];
        size_t d = node->depth, skip = node->skip;
        size_t left = node->height;
        if (state_after(c, stack[d - 1], node->byte, left, &known, &state, e) ||
            state_after(c, others[d - 1], node->byte, left, &known, &other, e))
            return -1;
        if (state == other && ends && keep_ends(c, like, i, skip, &at, e))
            return -1;
        if (state != other && state == AUTOMATON_DEAD)
            clear_bits(l->bits, t->ids + node->rank,
                       t->nodes[skip].rank - node->rank);
        if (state == other || state == AUTOMATON_DEAD) {
            i = skip;
            continue;
        }
        stack[d] = state;
        others[d] = other;
        set_bits(l->bits, t->ids + node->rank, node->n_equal);
        if (ends && known.accepts[state] && add_end(c, t, i, e))
            return -1;
        i++;
    }
    return 0;
}

static int walk_like(struct qwick_constraint *c, struct local *l,
                     const struct local *like, bool ends, struct qwick_err *e)
{
    struct token_trie *t = l->trie;
    c->n_found = c->n_ends = 0;
    if (like->bits ? copy(&l->bits, like->bits, c->n_words * sizeof *l->bits, e)
                   : flush_found(c, l, e))
        return -1;
    if (like->ids)
        set_bits(l->bits, like->ids, like->n_ids);
    c->stack[0] = l->state;
    c->others[0] = like->state;
    for (unsigned i = 0; i < 256; i++) {
        const struct trie_part *part = &t->parts[i];
        unsigned char byte = (unsigned char)i;
        uint32_t state = automaton_advance(c->a, l->state, byte);
        bool same = state == automaton_advance(c->a, like->state, byte);
        /* where the other state has ends, the part is made */
        if (same && !token_trie_is_made(t, byte))
            continue;
        if (token_trie_need(t, byte, e) ||
            compare_nodes(c, l, like, part, ends, e))
            return -1;
    }
    return keep_found(c, l, ends, e);
}

/* ---- which walk ---- */

/* A state has a loop if at least so many characters lead to it. */
enum { LOOP_BYTES = 16 };

/* Find the state to which most characters lead from a state and, as it is alike
 * then, from itself. AUTOMATON_DEAD: there is none. */
static uint32_t find_loop(struct qwick_constraint *c, const struct local *l)
{
    size_t depth = l->trie->max_depth, most = LOOP_BYTES - 1;
    uint32_t to[0x7F - ' '], loop = AUTOMATON_DEAD;
    unsigned char byte = 0;
    for (unsigned i = 0; i < 0x7F - ' '; i++)
        to[i] = automaton_advance(c->a, l->state, (unsigned char)(i + ' '));
    for (unsigned i = 0; i < 0x7F - ' '; i++) {
        size_t n = 0;
        for (unsigned k = i; k < 0x7F - ' '; k++)
            n += to[k] == to[i];
        if (to[i] == AUTOMATON_DEAD || n <= most)
            continue;
        loop = to[i];
        most = n;
        byte = (unsigned char)(i + ' ');
    }
    if (loop == AUTOMATON_DEAD)
        return loop;
    loop = automaton_alike(c->a, loop, depth);
    uint32_t again = automaton_advance(c->a, loop, byte);
    return automaton_alike(c->a, again, depth) == loop ? loop : AUTOMATON_DEAD;
}

int walk_choose(struct qwick_constraint *c, const struct local *l, bool ends,
                struct walk_plan *plan, struct qwick_err *e)
{
    bool is_plain = l->trie->kind == 0;
    int yes;
    *plan = (struct walk_plan){.kind = WALK_PLAIN, .like = AUTOMATON_DEAD};
    if (is_plain && plain_count(c, l->state, ends, &plan->chars, e))
        return -1;
    if (plan->chars)
        return walk_check(c, e);
    if ((yes = suits(c, l->state, e)) < 0)
        return -1;
    plan->kind = yes ? WALK_CLASSES : WALK_BYTES;
    if (!yes)
        plan->like = find_loop(c, l);
    if (plan->like != AUTOMATON_DEAD && plan->like != l->state) {
        plan->kind = WALK_LIKE;
    } else if (is_plain && (yes = plain_is_closed(c, l->state, ends, e)) != 0) {
        plan->kind = WALK_PLAIN;
        plan->chars = SHORT_TOKEN;
        if (yes < 0)
            return -1;
    }
    return walk_check(c, e);
}

static int walk_plain(struct qwick_constraint *c, struct local *l, size_t chars,
                      bool ends, struct qwick_err *e)
{
    const uint64_t *plain_bits = token_trie_plain(l->trie, chars, e);
    c->n_found = c->n_ends = 0;
    return !plain_bits ||
                   copy(&l->bits, plain_bits, c->n_words * sizeof *l->bits, e)
               ? -1
               : keep_found(c, l, ends, e);
}

int walk_run(struct qwick_constraint *c, struct local *l,
             const struct walk_plan *plan, const struct local *like, bool ends,
             struct qwick_err *e)
{
    switch (plan->kind) {
    case WALK_BYTES:
        return walk_bytes(c, l, ends, e);
    case WALK_CLASSES:
        return walk_classes(c, l, ends, e);
    case WALK_LIKE:
        return walk_like(c, l, like, ends, e);
    default:
        return walk_plain(c, l, plan->chars, ends, e);
    }
}
