#include "text/grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/utf8.h"

#define NONE UINT32_MAX

int dfa_steps(const struct dfa_place *at, size_t n)
{
    if (*at->steps_left < n)
        return err_usage(at->e, "is too complex: it takes too many steps");
    *at->steps_left -= n;
    return 0;
}

/* ---- drafts -------------------------------------------------------------- */

static size_t max_states(const struct dfa_draft *d)
{
    return d->max_states ? d->max_states : DFA_MAX_STATES;
}

uint32_t dfa_draft_state(struct dfa_draft *d, bool accept,
                            const struct dfa_place *at)
{
    size_t max = max_states(d);
    if (d->n_states >= max) {
        err_usage(at->e, "needs an automaton of more than %zu states", max);
        return NONE;
    }
    if (ARRAY_RESERVE(d->accept, d->cap_states, d->n_states + 1, at->e))
        return NONE;
    d->accept[d->n_states] = accept;
    return (uint32_t)d->n_states++;
}

int dfa_draft_edge(struct dfa_draft *d, uint32_t from, uint32_t lo,
                      uint32_t hi, uint32_t to, const struct dfa_place *at)
{
    size_t max = max_states(d) * DFA_MAX_EDGES;
    if (d->n_edges >= max)
        return err_usage(at->e, "needs an automaton of more than %zu edges",
                         max);
    if (ARRAY_RESERVE(d->edges, d->cap_edges, d->n_edges + 1, at->e))
        return -1;
    d->edges[d->n_edges++] = (struct dfa_draft_edge){from, lo, hi, to};
    return 0;
}

void dfa_draft_free(struct dfa_draft *d)
{
    free(d->accept);
    free(d->edges);
    *d = (struct dfa_draft){0};
}

/* ---- languages ----------------------------------------------------------- */

const struct dfa *dfa_any(const struct dfa_place *at)
{
    return dfa_length(0, -1, at);
}

/* Add edges for all characters. Surrogates are not characters. */
static int any_edge(struct dfa_draft *d, uint32_t from, uint32_t to,
                    const struct dfa_place *at)
{
    if (dfa_draft_edge(d, from, 0, 0xD7FF, to, at))
        return -1;
    return dfa_draft_edge(d, from, 0xE000, DFA_LAST, to, at);
}

const struct dfa *dfa_length(int64_t min, int64_t max,
                                   const struct dfa_place *at)
{
    struct dfa_draft d = {0};
    const struct dfa *p = NULL;
    int64_t n = max < 0 ? min : max;
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i <= n; i++)
        rc = dfa_draft_state(&d, i >= min, at) == NONE ? -1 : 0;
    for (int64_t i = 0; rc == 0 && i < n; i++)
        rc = any_edge(&d, (uint32_t)i, (uint32_t)i + 1, at);
    if (rc == 0 && max < 0)
        rc = any_edge(&d, (uint32_t)n, (uint32_t)n, at);
    if (rc == 0)
        p = dfa_finish(&d, at);
    dfa_draft_free(&d);
    return p;
}

/* A tree of words. */
struct tree {
    struct dfa_draft d;
    uint32_t *last; /* [states] the newest edge of each state, or NONE */
    size_t cap_last;
};

static uint32_t tree_state(struct tree *t, const struct dfa_place *at)
{
    if (ARRAY_RESERVE(t->last, t->cap_last, t->d.n_states + 1, at->e))
        return NONE;
    t->last[t->d.n_states] = NONE;
    return dfa_draft_state(&t->d, false, at);
}

/* Return the state to which a code point leads from a state. Makes it if it is
 * new. Words come in order, so only the newest edge can have the code point. */
static uint32_t tree_step(struct tree *t, uint32_t from, uint32_t cp,
                          const struct dfa_place *at)
{
    uint32_t edge = t->last[from];
    if (edge != NONE && t->d.edges[edge].lo == cp)
        return t->d.edges[edge].to;
    uint32_t to = tree_state(t, at);
    if (to == NONE || dfa_draft_edge(&t->d, from, cp, cp, to, at))
        return NONE;
    t->last[from] = (uint32_t)t->d.n_edges - 1;
    return to;
}

static int add_word(struct tree *t, const char *s, size_t n,
                    const struct dfa_place *at)
{
    uint32_t state = 0, cp;
    if (dfa_steps(at, n))
        return -1;
    for (size_t i = 0; i < n;) {
        size_t k = utf8_decode(s + i, n - i, &cp, NULL);
        if (k == 0)
            return err_usage(at->e, "invalid UTF-8");
        state = tree_step(t, state, cp, at);
        if (state == NONE)
            return -1;
        i += k;
    }
    t->d.accept[state] = true;
    return 0;
}

struct word {
    const char *s;
    size_t n;
};

static int compare_words(const void *pa, const void *pb)
{
    const struct word *a = pa, *b = pb;
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->s, b->s, n) : 0;
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

const struct dfa *dfa_words(const char *const *words, const size_t *lens,
                                  size_t n, const struct dfa_place *at)
{
    struct tree t = {.d.max_states = DFA_MAX_WORDS};
    const struct dfa *p = NULL;
    struct word *sorted = malloc((n + 1) * sizeof *sorted);
    int rc = sorted ? 0 : err_oom(at->e, (n + 1) * sizeof *sorted);
    for (size_t i = 0; rc == 0 && i < n; i++)
        sorted[i] = (struct word){words[i], lens[i]};
    if (rc == 0) /* so the newest edge of a state is the one to look for */
        qsort(sorted, n, sizeof *sorted, compare_words);
    if (rc == 0 && tree_state(&t, at) == NONE)
        rc = -1;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_word(&t, sorted[i].s, sorted[i].n, at);
    if (rc == 0)
        p = dfa_finish(&t.d, at);
    dfa_draft_free(&t.d);
    free(sorted);
    free(t.last);
    return p;
}

/* ---- products ------------------------------------------------------------ */

/* A product under construction: state i of the draft is the pair pairs[i].
 * b is NONE where the second automaton has died. */
struct product {
    const struct dfa *a, *b;
    bool minus;
    struct dfa_draft d;
    struct pair {
        uint32_t a, b;
    } * pairs;
    size_t cap_pairs;
    struct hashmap map;
};

static uint32_t pair_state(struct product *x, uint32_t a, uint32_t b,
                           const struct dfa_place *at)
{
    uint64_t h = hash_mix(a + 0x9e3779b97f4a7c15u, b ^ 0xd6e8feb86659fd93u);
    uint32_t slot = hashmap_slot(&x->map, h), i;
    while ((i = hashmap_next(&x->map, h, &slot)) != HASHMAP_NONE)
        if (x->pairs[i].a == a && x->pairs[i].b == b)
            return i;
    bool in_b = b != NONE && x->b->accept[b];
    i = dfa_draft_state(&x->d, x->a->accept[a] && in_b != x->minus, at);
    if (i == NONE || ARRAY_RESERVE(x->pairs, x->cap_pairs, i + 1u, at->e))
        return NONE;
    x->pairs[i] = (struct pair){a, b};
    hashmap_put(&x->map, h, i);
    return i;
}

/* Add the edges of pair i. */
static int expand_pair(struct product *x, uint32_t i,
                       const struct dfa_place *at)
{
    const struct dfa *a = x->a, *b = x->b;
    struct pair p = x->pairs[i];
    uint32_t kb = p.b == NONE ? 0 : b->first[p.b];
    uint32_t end_b = p.b == NONE ? 0 : b->first[p.b + 1];
    if (dfa_steps(at, 1 + end_b - kb + a->first[p.a + 1] - a->first[p.a]))
        return -1;
    for (uint32_t ka = a->first[p.a]; ka < a->first[p.a + 1]; ka++) {
        struct dfa_edge ea = a->edges[ka];
        uint32_t lo = ea.lo;
        for (;;) {
            while (kb < end_b && b->edges[kb].hi < lo)
                kb++;
            bool inside = kb < end_b && b->edges[kb].lo <= lo;
            uint32_t hi = ea.hi;
            if (inside && b->edges[kb].hi < hi)
                hi = b->edges[kb].hi;
            if (!inside && kb < end_b && b->edges[kb].lo <= hi)
                hi = b->edges[kb].lo - 1;
            if (inside || x->minus) {
                uint32_t to =
                    pair_state(x, ea.to, inside ? b->edges[kb].to : NONE, at);
                if (to == NONE || dfa_draft_edge(&x->d, i, lo, hi, to, at))
                    return -1;
            }
            if (hi == ea.hi)
                break;
            lo = hi + 1;
        }
    }
    return 0;
}

const struct dfa *dfa_combine(const struct dfa *a,
                                    const struct dfa *b, bool minus,
                                    const struct dfa_place *at)
{
    struct product x = {.a = a, .b = b, .minus = minus};
    const struct dfa *p = NULL;
    int rc;
    if (a->n_states == 0 || (minus && b->n_states == 0))
        return a;
    if (b->n_states == 0)
        return b;
    /* without a second loop, a product is as large as the larger one */
    x.d.max_states = (size_t)a->n_states + b->n_states;
    if (x.d.max_states < DFA_MAX_STATES)
        x.d.max_states = DFA_MAX_STATES;
    rc = hashmap_init(&x.map, x.d.max_states + 1, x.d.max_states, at->e);
    if (rc == 0 && pair_state(&x, 0, 0, at) == NONE)
        rc = -1;
    for (uint32_t i = 0; rc == 0 && i < x.d.n_states; i++)
        rc = expand_pair(&x, i, at);
    if (rc == 0)
        p = dfa_finish(&x.d, at);
    dfa_draft_free(&x.d);
    free(x.pairs);
    hashmap_free(&x.map);
    return p;
}

/* ---- distances ----------------------------------------------------------- */

int64_t *dfa_distances(const struct dfa *p, struct qwick_err *e)
{
    uint32_t n = p->n_states, n_edges = n ? p->first[n] : 0, n_todo = 0;
    int64_t *distance = malloc((n + 1) * sizeof *distance);
    uint32_t *start = calloc(n + 2, sizeof *start);
    uint32_t *source = malloc((n_edges + 1) * sizeof *source);
    uint32_t *todo = malloc((n + 1) * sizeof *todo); /* queue */
    if (!distance || !start || !source || !todo) {
        err_oom(e, (n_edges + 1) * sizeof *source);
        free(distance);
        distance = NULL;
        goto done;
    }
    for (uint32_t k = 0; k < n_edges; k++)
        start[p->edges[k].to + 2]++;
    for (uint32_t i = 0; i < n; i++)
        start[i + 2] += start[i + 1];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = p->first[i]; k < p->first[i + 1]; k++)
            source[start[p->edges[k].to + 1]++] = i;
    for (uint32_t i = 0; i < n; i++) {
        distance[i] = p->accept[i] ? 0 : -1;
        if (p->accept[i])
            todo[n_todo++] = i;
    }
    for (uint32_t at = 0; at < n_todo; at++)
        for (uint32_t k = start[todo[at]]; k < start[todo[at] + 1]; k++)
            if (distance[source[k]] < 0) {
                distance[source[k]] = distance[todo[at]] + 1;
                todo[n_todo++] = source[k];
            }
done:
    free(start);
    free(source);
    free(todo);
    return distance;
}

int dfa_can_wait(const struct dfa *p, struct qwick_err *e)
{
    int64_t *distance = dfa_distances(p, e);
    bool all = distance != NULL;
    for (uint32_t i = 0; all && i < p->n_states; i++) {
        bool can = false;
        for (uint32_t k = p->first[i]; k < p->first[i + 1]; k++)
            can |= distance[p->edges[k].to] <= distance[i];
        all = can;
    }
    int rc = !distance ? -1 : all;
    free(distance);
    return rc;
}

/* ---- folding ------------------------------------------------------------- */

/* Chains with fewer equal states are not folded. */
enum { MIN_FOLD = 16 };

/* If all edges of a state lead to one state, return that, else NONE. */
static uint32_t only_target(const struct dfa *p, uint32_t state)
{
    uint32_t k = p->first[state],
             to = k < p->first[state + 1] ? p->edges[k].to : NONE;
    for (; k < p->first[state + 1]; k++)
        if (p->edges[k].to != to)
            return NONE;
    return to;
}

static bool same_characters(const struct dfa *p, uint32_t a, uint32_t b)
{
    uint32_t ka = p->first[a], kb = p->first[b];
    for (; ka < p->first[a + 1] && kb < p->first[b + 1]; ka++, kb++)
        if (p->edges[ka].lo != p->edges[kb].lo ||
            p->edges[ka].hi != p->edges[kb].hi)
            return false;
    return ka == p->first[a + 1] && kb == p->first[b + 1];
}

/* A chain: its states in order, with a loop at the last one or not. From
 * `first` on they accept, and from `equal` on, those with edges have equal
 * ones. */
struct chain {
    uint32_t *states;
    size_t n, first, equal;
    bool loops;
};

/* Return whether an automaton is a chain. */
static bool find_chain(const struct dfa *p, struct chain *c)
{
    uint32_t state = 0, next = NONE;
    c->n = 0;
    c->first = p->n_states;
    for (; c->n < p->n_states; state = next) {
        if (p->accept[state] && c->first == p->n_states)
            c->first = c->n;
        if (!p->accept[state] && c->first < p->n_states)
            return false;
        c->states[c->n++] = state;
        next = only_target(p, state);
        if (next == NONE || next == state)
            break;
    }
    c->loops = next == state;
    if (c->n < p->n_states || (next != NONE && !c->loops) ||
        (next == NONE && p->first[state] < p->first[state + 1]))
        return false;
    size_t last = c->n - 1 - !c->loops;
    for (c->equal = last; c->equal > 0; c->equal--)
        if (!same_characters(p, c->states[c->equal - 1], c->states[last]))
            break;
    return c->n - c->equal >= MIN_FOLD;
}

/* Write the beginning of a chain, up to its first equal state, with a loop
 * there. */
static const struct dfa *fold(const struct dfa *p, const struct chain *c,
                              const struct dfa_place *at)
{
    struct dfa_draft d = {0};
    const struct dfa *out = NULL;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i <= c->equal; i++)
        rc = dfa_draft_state(&d, i >= c->first || i == c->equal, at) == NONE;
    for (uint32_t i = 0; rc == 0 && i <= c->equal; i++)
        for (uint32_t k = p->first[c->states[i]];
             rc == 0 && k < p->first[c->states[i] + 1]; k++)
            rc = dfa_draft_edge(&d, i, p->edges[k].lo, p->edges[k].hi,
                                i < c->equal ? i + 1 : i, at);
    if (rc == 0)
        out = dfa_finish(&d, at);
    dfa_draft_free(&d);
    return out;
}

const struct dfa *dfa_fold(const struct dfa *p, int64_t *min, int64_t *max,
                           const struct dfa_place *at)
{
    struct chain c = {malloc((p->n_states + 1) * sizeof *c.states), 0, 0, 0, 0};
    *min = 0;
    *max = -1;
    if (!c.states) {
        err_oom(at->e, p->n_states * sizeof *c.states);
        return NULL;
    }
    if (p->n_states >= MIN_FOLD && find_chain(p, &c)) {
        *min = c.first > c.equal ? (int64_t)c.first : 0;
        *max = c.loops ? -1 : (int64_t)c.n - 1;
        p = fold(p, &c, at);
    }
    free(c.states);
    return p;
}

/* ---- running ------------------------------------------------------------- */

bool dfa_match(const struct dfa *p, const char *s, size_t n)
{
    uint32_t state = 0, cp;
    if (p->n_states == 0)
        return false;
    for (size_t i = 0; i < n;) {
        size_t k = utf8_decode(s + i, n - i, &cp, NULL);
        uint32_t at = p->first[state], end = p->first[state + 1];
        while (at < end && p->edges[at].hi < cp)
            at++;
        if (k == 0 || at == end || p->edges[at].lo > cp)
            return false;
        state = p->edges[at].to;
        i += k;
    }
    return p->accept[state];
}
