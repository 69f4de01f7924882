#include "text/grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/utf8.h"

enum {
    MAX_NFA_EDGES = 200000, /* of one expression */
    MAX_OWNERS = 1 << 21,   /* intervals of all its classes together */
    MAX_SETS_BYTES = 1 << 24
};

/* ---- the parts of an expression ------------------------------------------ */

static const struct grammar_range any_ranges[] = {{0, 0xD7FF},
                                                  {0xE000, DFA_LAST}};
static const struct grammar_range word_ranges[] = {
    {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

/* Append a symbol and return its number. NFA_NONE with the error set. */
static uint32_t add_symbol(struct nfa_alphabet *x, struct nfa_symbol symbol)
{
    if (ARRAY_RESERVE(x->symbols, x->cap_symbols, x->n_symbols + 1, x->at->e))
        return NFA_NONE;
    x->symbols[x->n_symbols] = symbol;
    return (uint32_t)x->n_symbols++;
}

/* Return the symbol of one character; NFA_NONE if it is new. */
static uint32_t find_char(const struct nfa_alphabet *x, uint32_t cp)
{
    uint64_t h = hash_mix(cp, 0x9e3779b97f4a7c15u);
    uint32_t at, i;
    if (x->cap_map == 0)
        return NFA_NONE;
    at = hashmap_slot(&x->by_char, h);
    while ((i = hashmap_next(&x->by_char, h, &at)) != HASHMAP_NONE)
        if (x->symbols[i].one == cp && !x->symbols[i].ranges)
            return i;
    return NFA_NONE;
}

static int add_char(struct nfa_alphabet *x, uint32_t cp)
{
    if (find_char(x, cp) != NFA_NONE)
        return 0;
    if (add_symbol(x, (struct nfa_symbol){.one = cp}) == NFA_NONE)
        return -1;
    uint32_t i = (uint32_t)x->n_symbols - 1;
    if (x->n_symbols > x->cap_map) {
        x->cap_map = 2 * x->n_symbols + 64;
        if (hashmap_init(&x->by_char, x->cap_map, x->cap_map, x->at->e))
            return -1;
        i = 0; /* put all of them */
    }
    for (; i < x->n_symbols; i++)
        if (!x->symbols[i].ranges)
            hashmap_put(&x->by_char,
                        hash_mix(x->symbols[i].one, 0x9e3779b97f4a7c15u), i);
    return 0;
}

static int collect_bytes(struct nfa_alphabet *x, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t k = utf8_decode(s + i, n - i, &cp, NULL);
        if (k == 0)
            return err_usage(x->at->e, "invalid UTF-8");
        if (add_char(x, cp))
            return -1;
        i += k;
    }
    return 0;
}

static int collect_look(struct nfa_alphabet *x, uint32_t node)
{
    if (ARRAY_RESERVE(x->looks, x->cap_looks, x->n_looks + 1, x->at->e))
        return -1;
    x->looks[x->n_looks++] = (struct nfa_look){.node = node};
    x->has_looks = true;
    return 0;
}

/* Find the symbols and lookaheads of a node. */
static int collect(struct nfa_alphabet *x, uint32_t node)
{
    const struct node *v = &x->g->nodes[node];
    const uint32_t *p = node_kids(x->g, v);
    size_t n_kids = 0;
    if (x->seen[node])
        return 0;
    x->seen[node] = true;
    switch (v->type) {
    case NODE_BYTES:
        return collect_bytes(x, node_data(x->g, v), v->len);
    case NODE_CLASS:
        x->symbol_of[node] = add_symbol(
            x, (struct nfa_symbol){.ranges = node_data(x->g, v),
                                   .n = v->len / sizeof(struct grammar_range)});
        return x->symbol_of[node] == NFA_NONE ? -1 : 0;
    case NODE_ASSERT:
        x->has_start |= *p == ASSERT_START;
        x->has_words |= *p == ASSERT_WORD || *p == ASSERT_NO_WORD;
        return 0;
    case NODE_LOOK:
        n_kids = 1;
        if (collect_look(x, node))
            return -1;
        break;
    case NODE_SEQ:
    case NODE_ALT:
        n_kids = node_n_kids(v);
        break;
    case NODE_REPEAT:
        n_kids = 1;
        break;
    default:
        break;
    }
    for (size_t i = 0; i < n_kids; i++)
        if (collect(x, p[i]))
            return -1;
    return 0;
}

/* ---- classes of characters ----------------------------------------------- */

static int compare_u32(const void *pa, const void *pb)
{
    const uint32_t *a = pa, *b = pb;
    return *a < *b ? -1 : *a > *b;
}

static struct grammar_range symbol_range(const struct nfa_symbol *s, size_t i)
{
    return s->ranges ? s->ranges[i] : (struct grammar_range){s->one, s->one};
}

static size_t symbol_n(const struct nfa_symbol *s)
{
    return s->ranges ? s->n : 1;
}

/* Cut the code points where the range of a symbol begins or ends. */
static int find_intervals(struct nfa_alphabet *x)
{
    size_t n = 0, n_cuts = 0, most = 2;
    for (size_t i = 0; i < x->n_symbols; i++)
        most += 2 * symbol_n(&x->symbols[i]);
    uint32_t *cuts = malloc(most * sizeof *cuts);
    x->intervals = malloc(most * sizeof *x->intervals);
    if (!cuts || !x->intervals) {
        free(cuts);
        return err_oom(x->at->e, most * sizeof *x->intervals);
    }
    cuts[n_cuts++] = 0;
    for (size_t i = 0; i < x->n_symbols; i++)
        for (size_t k = 0; k < symbol_n(&x->symbols[i]); k++) {
            struct grammar_range r = symbol_range(&x->symbols[i], k);
            cuts[n_cuts++] = r.lo;
            cuts[n_cuts++] = r.hi + 1;
        }
    cuts[n_cuts++] = DFA_LAST + 1;
    qsort(cuts, n_cuts, sizeof *cuts, compare_u32);
    for (size_t i = 0; i + 1 < n_cuts; i++)
        if (cuts[i] < cuts[i + 1])
            x->intervals[n++] =
                (struct nfa_interval){cuts[i], cuts[i + 1] - 1, 0};
    x->n_intervals = n;
    free(cuts);
    return 0;
}

/* Return the interval that begins at a code point. */
static uint32_t interval_at(const struct nfa_alphabet *x, uint32_t cp)
{
    size_t lo = 0, hi = x->n_intervals;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (x->intervals[mid].lo <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return (uint32_t)lo;
}

/* The symbols that have an interval, ascending. Intervals with equal lists are
 * one class. */
struct owners {
    uint32_t *symbols;
    uint32_t n, interval;
};

static int compare_owners(const void *pa, const void *pb)
{
    const struct owners *a = pa, *b = pb;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    int c =
        a->n ? memcmp(a->symbols, b->symbols, a->n * sizeof *a->symbols) : 0;
    return c ? c : a->interval < b->interval ? -1 : a->interval > b->interval;
}

/* Go through the intervals of all symbols: count the symbols of each interval,
 * and write them where it has a list. */
static int list_owners(const struct nfa_alphabet *x, struct owners *v)
{
    size_t total = 0;
    for (uint32_t s = 0; s < x->n_symbols; s++)
        for (size_t k = 0; k < symbol_n(&x->symbols[s]); k++) {
            struct grammar_range r = symbol_range(&x->symbols[s], k);
            for (uint32_t i = interval_at(x, r.lo);
                 i < x->n_intervals && x->intervals[i].hi <= r.hi; i++) {
                if (v[i].symbols)
                    v[i].symbols[v[i].n] = s;
                v[i].n++;
                if (++total > MAX_OWNERS)
                    return err_usage(x->at->e, "has too many classes of "
                                               "characters");
            }
        }
    return 0;
}

/* Number the classes of intervals with equal lists, which are neighbours in
 * v[], and note which symbols read them. */
static int number_classes(struct nfa_alphabet *x, const struct owners *v)
{
    size_t n = x->n_intervals;
    x->sample = malloc(n * sizeof *x->sample);
    if (!x->sample)
        return err_oom(x->at->e, n * sizeof *x->sample);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = v[i].interval;
        bool old = i > 0 && v[i].n == v[i - 1].n && v[i].n > 0 &&
                   memcmp(v[i].symbols, v[i - 1].symbols,
                          v[i].n * sizeof *v->symbols) == 0;
        x->intervals[at].class_of = NFA_NONE;
        if (v[i].n == 0)
            continue;
        if (!old)
            x->sample[x->n_classes++] = x->intervals[at].lo;
        x->intervals[at].class_of = x->n_classes - 1;
    }
    if (x->n_classes && x->n_symbols > MAX_SETS_BYTES / x->n_classes)
        return err_usage(x->at->e, "has too many classes of characters");
    x->sets = calloc(x->n_symbols * x->n_classes + 1, 1);
    if (!x->sets)
        return err_oom(x->at->e, x->n_symbols * x->n_classes);
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < v[i].n; k++)
            x->sets[(size_t)v[i].symbols[k] * x->n_classes +
                    x->intervals[v[i].interval].class_of] = 1;
    return 0;
}

static int find_classes(struct nfa_alphabet *x)
{
    size_t n = x->n_intervals, total = 0;
    struct owners *v = calloc(n, sizeof *v);
    uint32_t *lists = NULL;
    int rc = v ? list_owners(x, v) : err_oom(x->at->e, n * sizeof *v);
    for (size_t i = 0; rc == 0 && i < n; i++)
        total += v[i].n;
    lists = malloc((total + 1) * sizeof *lists);
    if (rc == 0 && !lists)
        rc = err_oom(x->at->e, total * sizeof *lists);
    total = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint32_t count = v[i].n;
        v[i] =
            (struct owners){.symbols = lists + total, .interval = (uint32_t)i};
        total += count;
    }
    if (rc == 0)
        rc = list_owners(x, v);
    if (rc == 0) {
        qsort(v, n, sizeof *v, compare_owners);
        rc = number_classes(x, v);
    }
    free(v);
    free(lists);
    return rc;
}

int nfa_alphabet(struct nfa_alphabet *x, const struct grammar *g, uint32_t node,
                 const struct dfa_place *at)
{
    static const struct nfa_symbol any = {.ranges = any_ranges, .n = 2};
    static const struct nfa_symbol words = {.ranges = word_ranges, .n = 4};
    *x = (struct nfa_alphabet){.g = g, .at = at};
    x->seen = calloc(g->n_nodes, sizeof *x->seen);
    x->symbol_of = malloc(g->n_nodes * sizeof *x->symbol_of);
    if (!x->seen || !x->symbol_of)
        return err_oom(at->e, g->n_nodes * sizeof *x->symbol_of);
    if (collect(x, node))
        return -1;
    if (x->has_looks && (x->any = add_symbol(x, any)) == NFA_NONE)
        return -1;
    if (x->has_words && (x->words = add_symbol(x, words)) == NFA_NONE)
        return -1;
    if (find_intervals(x) || find_classes(x))
        return -1;
    for (size_t i = 0; i < x->n_symbols; i++)
        x->symbols[i].class_of =
            x->intervals[interval_at(x, x->symbols[i].one)].class_of;
    return 0;
}

void nfa_alphabet_free(struct nfa_alphabet *x)
{
    free(x->seen);
    free(x->symbol_of);
    free(x->symbols);
    hashmap_free(&x->by_char);
    free(x->intervals);
    free(x->sample);
    free(x->sets);
    free(x->looks);
}

/* ---- edges --------------------------------------------------------------- */

static int too_large(const struct nfa *a)
{
    return err_usage(a->x->at->e,
                     "is too large: its automaton has more than %d edges",
                     MAX_NFA_EDGES);
}

static int nfa_edge(struct nfa *a, uint32_t from, uint32_t to,
                    enum nfa_kind kind, uint32_t what)
{
    if (a->n_edges >= MAX_NFA_EDGES)
        return too_large(a);
    if (ARRAY_RESERVE(a->edges, a->cap_edges, a->n_edges + 1, a->x->at->e))
        return -1;
    a->edges[a->n_edges++] = (struct nfa_edge){from, to, kind, what};
    return 0;
}

static int nfa_skip(struct nfa *a, uint32_t from, uint32_t to)
{
    return nfa_edge(a, from, to, NFA_SKIP, 0);
}

static int add_node(struct nfa *a, uint32_t node, uint32_t from, uint32_t to);

static int add_bytes(struct nfa *a, const char *s, size_t n, uint32_t from,
                     uint32_t to)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp, next;
        i += utf8_decode(s + i, n - i, &cp, NULL); /* checked by collect */
        next = i == n ? to : a->n_states++;
        if (nfa_edge(a, from, next, NFA_READ, find_char(a->x, cp)))
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
    const uint32_t *kids = node_kids(a->x->g, v);
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

static uint32_t look_of(const struct nfa_alphabet *x, uint32_t node)
{
    uint32_t i = 0;
    while (x->looks[i].node != node)
        i++;
    return i;
}

/* Add edges so that the texts of a node lead from one state to another. */
static int add_node(struct nfa *a, uint32_t node, uint32_t from, uint32_t to)
{
    const struct nfa_alphabet *x = a->x;
    const struct node *v = &x->g->nodes[node];
    if (a->n_states > MAX_NFA_EDGES)
        return too_large(a);
    switch (v->type) {
    case NODE_NOTHING:
        return 0;
    case NODE_EMPTY:
        return nfa_skip(a, from, to);
    case NODE_BYTES:
        return add_bytes(a, node_data(x->g, v), v->len, from, to);
    case NODE_CLASS:
        return nfa_edge(a, from, to, NFA_READ, x->symbol_of[node]);
    case NODE_SEQ:
    case NODE_ALT:
        return add_list(a, v, from, to);
    case NODE_REPEAT:
        return add_repeat(a, node_kids(x->g, v), from, to);
    case NODE_ASSERT:
        return nfa_edge(a, from, to, NFA_ASSERT, *node_kids(x->g, v));
    case NODE_LOOK:
        return nfa_edge(a, from, to, NFA_LOOK, look_of(x, node));
    default:
        return err_usage(x->at->e, "is not regular");
    }
}

static int compare_edges(const void *pa, const void *pb)
{
    const struct nfa_edge *a = pa, *b = pb;
    return a->from < b->from ? -1 : a->from > b->from;
}

static int sort_edges(struct nfa *a)
{
    a->first = calloc((size_t)a->n_states + 2, sizeof *a->first);
    if (!a->first)
        return err_oom(a->x->at->e, a->n_states * sizeof *a->first);
    if (a->n_edges > 1)
        qsort(a->edges, a->n_edges, sizeof *a->edges, compare_edges);
    for (size_t i = 0; i < a->n_edges; i++)
        a->first[a->edges[i].from + 1]++;
    for (uint32_t i = 0; i < a->n_states; i++)
        a->first[i + 1] += a->first[i];
    return 0;
}

int nfa_create(struct nfa *a, const struct nfa_alphabet *x, uint32_t node,
               bool with_rest)
{
    *a = (struct nfa){.x = x, .n_states = 2};
    uint32_t end = with_rest ? a->n_states++ : 1;
    if (with_rest &&
        (nfa_edge(a, end, end, NFA_READ, x->any) || nfa_skip(a, end, 1)))
        return -1;
    return add_node(a, node, 0, end) ? -1 : sort_edges(a);
}

void nfa_free(struct nfa *a)
{
    free(a->edges);
    free(a->first);
}
