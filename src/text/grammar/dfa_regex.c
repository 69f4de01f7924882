/* Automata over code points from the nodes that regex_compile makes: Thompson's
 * construction, then the subset construction. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/utf8.h"
#include "text/grammar/grammar_int.h"
#include "text/grammar/dfa.h"

enum {
    MAX_NFA_EDGES = 200000, /* of one expression */
    MAX_SUBSETS = 5000000,  /* numbers in all sets of states */
    MAX_STEPS = 20000000    /* edges looked at */
};

#define NONE UINT32_MAX

/* An edge of the nondeterministic automaton: lo > hi reads nothing. */
struct nfa_edge {
    uint32_t from, lo, hi, to;
};

struct nfa {
    const struct dfa_place *at;
    const struct grammar *g;
    struct nfa_edge *edges; /* later sorted by from */
    size_t n_edges, cap_edges;
    uint32_t n_states;
    uint32_t *first; /* [n_states + 1] */
};

/* ---- nodes to a nondeterministic automaton ------------------------------- */

static int too_large(const struct nfa *a)
{
    return err_usage(a->at->e,
                     "is too large: its automaton has more than %d edges",
                     MAX_NFA_EDGES);
}

static int nfa_edge(struct nfa *a, uint32_t from, uint32_t lo, uint32_t hi,
                    uint32_t to)
{
    if (a->n_edges >= MAX_NFA_EDGES)
        return too_large(a);
    if (ARRAY_RESERVE(a->edges, a->cap_edges, a->n_edges + 1, a->at->e))
        return -1;
    a->edges[a->n_edges++] = (struct nfa_edge){from, lo, hi, to};
    return 0;
}

static int nfa_skip(struct nfa *a, uint32_t from, uint32_t to)
{
    return nfa_edge(a, from, 1, 0, to);
}

static int add_node(struct nfa *a, uint32_t node, uint32_t from, uint32_t to);

static int add_bytes(struct nfa *a, const char *s, size_t n, uint32_t from,
                     uint32_t to)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp, next;
        size_t k = utf8_decode(s + i, n - i, &cp, NULL);
        if (k == 0)
            return err_usage(a->at->e, "invalid UTF-8");
        i += k;
        next = i == n ? to : a->n_states++;
        if (nfa_edge(a, from, cp, cp, next))
            return -1;
        from = next;
    }
    return n == 0 ? nfa_skip(a, from, to) : 0;
}

static int add_repeat(struct nfa *a, const uint32_t *payload, uint32_t from,
                      uint32_t to)
{
    uint32_t node = payload[0], min = payload[1], max = payload[2];
    for (uint32_t i = 0; i < min; i++) {
        uint32_t next = a->n_states++;
        if (add_node(a, node, from, next))
            return -1;
        from = next;
    }
    if (max == GRAMMAR_UNBOUNDED) {
        uint32_t loop = a->n_states++;
        return nfa_skip(a, from, loop) || add_node(a, node, loop, loop)
                   ? -1
                   : nfa_skip(a, loop, to);
    }
    for (uint32_t i = min; i < max; i++) {
        uint32_t next = a->n_states++;
        if (nfa_skip(a, from, to) || add_node(a, node, from, next))
            return -1;
        from = next;
    }
    return nfa_skip(a, from, to);
}

static int add_list(struct nfa *a, const struct node *v, uint32_t from,
                    uint32_t to)
{
    const uint32_t *kids = node_kids(a->g, v);
    size_t n = node_n_kids(v);
    for (size_t i = 0; i < n; i++) {
        uint32_t next = to;
        if (v->type == NODE_SEQ && i + 1 < n)
            next = a->n_states++;
        if (add_node(a, kids[i], from, next))
            return -1;
        if (v->type == NODE_SEQ)
            from = next;
    }
    return 0;
}

/* Add edges so that the texts of a node lead from one state to another. */
static int add_node(struct nfa *a, uint32_t node, uint32_t from, uint32_t to)
{
    const struct node *v = &a->g->nodes[node];
    const struct grammar_range *r = node_data(a->g, v);
    if (a->n_states > MAX_NFA_EDGES)
        return too_large(a);
    switch (v->type) {
    case NODE_NOTHING:
        return 0;
    case NODE_EMPTY:
        return nfa_skip(a, from, to);
    case NODE_BYTES:
        return add_bytes(a, node_data(a->g, v), v->len, from, to);
    case NODE_CLASS:
        for (size_t i = 0; i < v->len / sizeof *r; i++)
            if (nfa_edge(a, from, r[i].lo, r[i].hi, to))
                return -1;
        return 0;
    case NODE_SEQ:
    case NODE_ALT:
        return add_list(a, v, from, to);
    case NODE_REPEAT:
        return add_repeat(a, node_kids(a->g, v), from, to);
    default:
        return err_usage(a->at->e, "is not regular");
    }
}

static int compare_nfa_edges(const void *pa, const void *pb)
{
    const struct nfa_edge *a = pa, *b = pb;
    return a->from < b->from ? -1 : a->from > b->from;
}

static int sort_edges(struct nfa *a)
{
    a->first = calloc((size_t)a->n_states + 2, sizeof *a->first);
    if (!a->first)
        return err_oom(a->at->e, a->n_states * sizeof *a->first);
    if (a->n_edges > 1)
        qsort(a->edges, a->n_edges, sizeof *a->edges, compare_nfa_edges);
    for (size_t i = 0; i < a->n_edges; i++)
        a->first[a->edges[i].from + 1]++;
    for (uint32_t i = 0; i < a->n_states; i++)
        a->first[i + 1] += a->first[i];
    return 0;
}

/* ---- sets of its states -------------------------------------------------- */

/* The subset construction. Set i, the state i of the draft, is
 * members[start[i] .. start[i + 1]), ascending. */
struct subsets {
    struct nfa *nfa;
    struct dfa_draft d;
    uint32_t *members;
    size_t n_members, cap_members;
    size_t *start;
    size_t cap_start;
    struct hashmap map;
    uint64_t *hash;
    size_t cap_hash;
    uint32_t *mark; /* [states of nfa] stamp of the last closure */
    uint32_t stamp;
    uint32_t *todo; /* [states of nfa] */
    uint32_t *cuts; /* where ranges of edges begin */
    size_t n_cuts, cap_cuts;
};

static int too_complex(const struct subsets *x)
{
    return err_usage(x->nfa->at->e,
                     "is too complex for an automaton of bounded size");
}

static int compare_u32(const void *pa, const void *pb)
{
    const uint32_t *a = pa, *b = pb;
    return *a < *b ? -1 : *a > *b;
}

/* Append a state, and all states that it reaches without reading, after the
 * last set. */
static int close_over(struct subsets *x, uint32_t state)
{
    const struct nfa *a = x->nfa;
    size_t n_todo = 0;
    if (x->mark[state] == x->stamp)
        return 0;
    x->mark[state] = x->stamp;
    x->todo[n_todo++] = state;
    while (n_todo > 0) {
        uint32_t s = x->todo[--n_todo];
        if (x->n_members >= MAX_SUBSETS)
            return too_complex(x);
        if (ARRAY_RESERVE(x->members, x->cap_members, x->n_members + 1,
                          a->at->e))
            return -1;
        x->members[x->n_members++] = s;
        for (uint32_t k = a->first[s]; k < a->first[s + 1]; k++) {
            const struct nfa_edge *e = &a->edges[k];
            if (e->lo > e->hi && x->mark[e->to] != x->stamp) {
                x->mark[e->to] = x->stamp;
                x->todo[n_todo++] = e->to;
            }
        }
    }
    return 0;
}

/* The set after the last one is complete. Return its number, or the number of
 * an equal earlier set. The NFA's state 1 is its end. */
static uint32_t set_number(struct subsets *x)
{
    const struct dfa_place *at = x->nfa->at;
    size_t begin = x->start[x->d.n_states], n = x->n_members - begin;
    uint32_t *set = x->members + begin, i;
    qsort(set, n, sizeof *set, compare_u32);
    uint64_t h = hash_bytes(0, set, n * sizeof *set);
    uint32_t slot = hashmap_slot(&x->map, h);
    while ((i = hashmap_next(&x->map, h, &slot)) != HASHMAP_NONE)
        if (x->hash[i] == h && x->start[i + 1] - x->start[i] == n &&
            memcmp(x->members + x->start[i], set, n * sizeof *set) == 0) {
            x->n_members = begin;
            return i;
        }
    i = dfa_draft_state(&x->d, x->mark[1] == x->stamp, at);
    if (i == NONE ||
        ARRAY_RESERVE(x->start, x->cap_start, x->d.n_states + 1, at->e) ||
        ARRAY_RESERVE(x->hash, x->cap_hash, x->d.n_states, at->e))
        return NONE;
    x->start[i + 1] = x->n_members;
    x->hash[i] = h;
    hashmap_put(&x->map, h, i);
    return i;
}

/* Collect the code points at which ranges of a set's edges begin or end. */
static int find_cuts(struct subsets *x, uint32_t set)
{
    const struct nfa *a = x->nfa;
    size_t n = 0;
    x->n_cuts = 0;
    for (size_t i = x->start[set]; i < x->start[set + 1]; i++)
        for (uint32_t k = a->first[x->members[i]];
             k < a->first[x->members[i] + 1]; k++) {
            if (a->edges[k].lo > a->edges[k].hi)
                continue;
            if (ARRAY_RESERVE(x->cuts, x->cap_cuts, x->n_cuts + 2, a->at->e))
                return -1;
            x->cuts[x->n_cuts++] = a->edges[k].lo;
            x->cuts[x->n_cuts++] = a->edges[k].hi + 1;
        }
    if (x->n_cuts > 1)
        qsort(x->cuts, x->n_cuts, sizeof *x->cuts, compare_u32);
    for (size_t i = 0; i < x->n_cuts; i++)
        if (n == 0 || x->cuts[n - 1] != x->cuts[i])
            x->cuts[n++] = x->cuts[i];
    x->n_cuts = n;
    return 0;
}

/* Add the edges of a set for the code points lo to hi. Each edge of the set
 * reads all of them or none. */
static int expand_range(struct subsets *x, uint32_t set, uint32_t lo,
                        uint32_t hi)
{
    const struct nfa *a = x->nfa;
    x->stamp++;
    for (size_t i = x->start[set]; i < x->start[set + 1]; i++)
        for (uint32_t k = a->first[x->members[i]];
             k < a->first[x->members[i] + 1]; k++) {
            if (dfa_steps(a->at, 1))
                return -1;
            if (a->edges[k].lo <= lo && lo <= a->edges[k].hi &&
                close_over(x, a->edges[k].to))
                return -1;
        }
    if (x->n_members == x->start[x->d.n_states])
        return 0;
    uint32_t to = set_number(x);
    return to == NONE ? -1 : dfa_draft_edge(&x->d, set, lo, hi, to, a->at);
}

static int run_subsets(struct subsets *x)
{
    const struct nfa *a = x->nfa;
    x->mark = calloc(a->n_states, sizeof *x->mark);
    x->todo = malloc(a->n_states * sizeof *x->todo);
    if (!x->mark || !x->todo)
        return err_oom(a->at->e, a->n_states * sizeof *x->todo);
    if (ARRAY_RESERVE(x->start, x->cap_start, 1, a->at->e) ||
        hashmap_init(&x->map, DFA_MAX_STATES + 1, DFA_MAX_STATES,
                     a->at->e))
        return -1;
    x->start[0] = 0;
    x->stamp = 1;
    if (close_over(x, 0) || set_number(x) == NONE)
        return -1;
    for (uint32_t set = 0; set < x->d.n_states; set++) {
        if (find_cuts(x, set))
            return -1;
        for (size_t i = 0; i + 1 < x->n_cuts; i++)
            if (expand_range(x, set, x->cuts[i], x->cuts[i + 1] - 1))
                return -1;
    }
    return 0;
}

const struct dfa *dfa_of_node(const struct grammar *g, uint32_t node,
                                    const struct dfa_place *at)
{
    struct nfa a = {.at = at, .g = g, .n_states = 2};
    struct subsets x = {.nfa = &a};
    const struct dfa *p = NULL;
    if (add_node(&a, node, 0, 1) == 0 && sort_edges(&a) == 0 &&
        run_subsets(&x) == 0)
        p = dfa_finish(&x.d, at);
    dfa_draft_free(&x.d);
    free(x.members);
    free(x.start);
    free(x.hash);
    free(x.mark);
    free(x.todo);
    free(x.cuts);
    hashmap_free(&x.map);
    free(a.edges);
    free(a.first);
    return p;
}
