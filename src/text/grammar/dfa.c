#include "text/grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/utf8.h"

/* Larger automata keep equivalent states, because refining takes a round for
 * each step of the longest path. */
enum { MAX_MINIMIZED = 5000 };

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

static int compare_edges(const void *pa, const void *pb)
{
    const struct dfa_draft_edge *a = pa, *b = pb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Sort the edges and join neighbours that lead to the same state. */
static void draft_sort(struct dfa_draft *d)
{
    size_t n = 0;
    if (d->n_edges > 1)
        qsort(d->edges, d->n_edges, sizeof *d->edges, compare_edges);
    for (size_t i = 0; i < d->n_edges; i++) {
        struct dfa_draft_edge e = d->edges[i];
        struct dfa_draft_edge *last = n > 0 ? &d->edges[n - 1] : NULL;
        if (last && last->from == e.from && last->to == e.to &&
            last->hi + 1 == e.lo)
            last->hi = e.hi;
        else
            d->edges[n++] = e;
    }
    d->n_edges = n;
}

/* ---- from a draft to the smallest automaton ------------------------------ */

/* Work memory: arrays of one entry per state of the draft. */
struct shrink {
    uint32_t *first;    /* [n + 1] edges of each state, sorted */
    uint32_t *class_of; /* NONE: from here no accepting state can be reached */
    uint32_t *new_class;
    uint32_t *leader; /* [n_classes] a state of each class */
    uint64_t *hash;
    uint32_t n_classes;
};

static void shrink_free(struct shrink *w)
{
    free(w->first);
    free(w->class_of);
    free(w->new_class);
    free(w->leader);
    free(w->hash);
}

static int shrink_init(struct shrink *w, const struct dfa_draft *d,
                       struct qwick_err *e)
{
    size_t n = d->n_states;
    w->first = calloc(n + 1, sizeof *w->first);
    w->class_of = calloc(n + 1, sizeof *w->class_of);
    w->new_class = calloc(n + 1, sizeof *w->new_class);
    w->leader = calloc(n + 1, sizeof *w->leader);
    w->hash = calloc(n + 1, sizeof *w->hash);
    if (!w->first || !w->class_of || !w->new_class || !w->leader || !w->hash)
        return err_oom(e, (n + 1) * sizeof *w->hash);
    for (size_t i = 0; i < d->n_edges; i++)
        w->first[d->edges[i].from + 1]++;
    for (size_t i = 0; i < n; i++)
        w->first[i + 1] += w->first[i];
    return 0;
}

/* Set class_of to the distance from an accepting state, or to NONE for states
 * that lead to none. Goes backwards through the edges, level by level. */
static int find_live(struct shrink *w, const struct dfa_draft *d,
                     struct qwick_err *e)
{
    size_t n = d->n_states, n_todo = 0;
    uint32_t *todo = malloc((n + 1) * sizeof *todo);
    uint32_t *start = calloc(n + 2, sizeof *start);
    uint32_t *source = malloc((d->n_edges + 1) * sizeof *source);
    int rc = todo && start && source
                 ? 0
                 : err_oom(e, (d->n_edges + 1) * sizeof *source);
    for (size_t i = 0; rc == 0 && i < d->n_edges; i++)
        start[d->edges[i].to + 2]++;
    for (size_t i = 0; rc == 0 && i < n; i++)
        start[i + 2] += start[i + 1];
    for (size_t i = 0; rc == 0 && i < d->n_edges; i++)
        source[start[d->edges[i].to + 1]++] = d->edges[i].from;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        w->class_of[i] = d->accept[i] ? 0 : NONE;
        if (d->accept[i])
            todo[n_todo++] = i;
    }
    for (size_t i = 0; rc == 0 && i < n_todo; i++) {
        uint32_t to = todo[i];
        for (uint32_t k = start[to]; k < start[to + 1]; k++)
            if (w->class_of[source[k]] == NONE) {
                w->class_of[source[k]] = w->class_of[to] + 1;
                todo[n_todo++] = source[k];
            }
    }
    free(todo);
    free(start);
    free(source);
    return rc;
}

/* Reads the edges of a state as ranges that lead to classes. Joins neighbours
 * that lead to one class. */
struct reader {
    const struct dfa_draft *d;
    const struct shrink *w;
    uint32_t at, end;
};

static struct reader reader_of(const struct dfa_draft *d,
                               const struct shrink *w, uint32_t state)
{
    return (struct reader){d, w, w->first[state], w->first[state + 1]};
}

static bool read_range(struct reader *r, struct dfa_edge *out)
{
    const struct dfa_draft_edge *edges = r->d->edges;
    while (r->at < r->end && r->w->class_of[edges[r->at].to] == NONE)
        r->at++;
    if (r->at == r->end)
        return false;
    *out = (struct dfa_edge){edges[r->at].lo, edges[r->at].hi,
                                r->w->class_of[edges[r->at].to]};
    for (r->at++; r->at < r->end && edges[r->at].lo == out->hi + 1 &&
                  r->w->class_of[edges[r->at].to] == out->to;
         r->at++)
        out->hi = edges[r->at].hi;
    return true;
}

static uint64_t signature(const struct dfa_draft *d, const struct shrink *w,
                          uint32_t state)
{
    struct reader r = reader_of(d, w, state);
    struct dfa_edge e;
    uint64_t h = hash_mix(w->class_of[state] + 1, 0x9e3779b97f4a7c15u);
    while (read_range(&r, &e))
        h = hash_mix(h ^ ((uint64_t)e.lo << 32 | e.hi),
                     e.to + 0xa0761d6478bd642fu);
    return h;
}

static bool same_signature(const struct dfa_draft *d, const struct shrink *w,
                           uint32_t a, uint32_t b)
{
    struct reader ra = reader_of(d, w, a), rb = reader_of(d, w, b);
    struct dfa_edge ea, eb;
    if (w->class_of[a] != w->class_of[b])
        return false;
    for (;;) {
        bool more = read_range(&ra, &ea);
        if (more != read_range(&rb, &eb))
            return false;
        if (!more)
            return true;
        if (ea.lo != eb.lo || ea.hi != eb.hi || ea.to != eb.to)
            return false;
    }
}

/* Split the classes once (Moore): states stay together when their edges lead
 * to the same classes. The class of state 0 becomes 0. */
static int split_classes(struct shrink *w, const struct dfa_draft *d,
                         struct qwick_err *e)
{
    struct hashmap map = {0};
    uint32_t n_classes = 0;
    if (hashmap_init(&map, d->n_states, d->n_states, e))
        return -1;
    for (uint32_t i = 0; i < d->n_states; i++) {
        if (w->class_of[i] == NONE)
            continue;
        uint64_t h = signature(d, w, i);
        uint32_t at = hashmap_slot(&map, h), k;
        while ((k = hashmap_next(&map, h, &at)) != HASHMAP_NONE)
            if (w->hash[k] == h && same_signature(d, w, w->leader[k], i))
                break;
        if (k == HASHMAP_NONE) {
            k = n_classes++;
            w->leader[k] = i;
            w->hash[k] = h;
            hashmap_put(&map, h, k);
        }
        w->new_class[i] = k;
    }
    for (uint32_t i = 0; i < d->n_states; i++)
        if (w->class_of[i] != NONE)
            w->class_of[i] = w->new_class[i];
    w->n_classes = n_classes;
    hashmap_free(&map);
    return 0;
}

/* Give the live states their classes: equivalent states one class, or in very
 * large automata each state its own. */
static int classify(struct shrink *w, const struct dfa_draft *d,
                    const struct dfa_place *at)
{
    if (find_live(w, d, at->e))
        return -1;
    if (d->n_states == 0 || w->class_of[0] == NONE)
        return 0;
    if (d->n_states > MAX_MINIMIZED) {
        for (uint32_t i = 0; i < d->n_states; i++)
            if (w->class_of[i] != NONE) {
                w->leader[w->n_classes] = i;
                w->class_of[i] = w->n_classes++;
            }
        return 0;
    }
    /* begin with the distances: equivalent states have the same one */
    for (uint32_t before = 0;; before = w->n_classes) {
        if (dfa_steps(at, d->n_edges) || split_classes(w, d, at->e))
            return -1;
        if (w->n_classes == before)
            return 0;
    }
}

/* Return memory that lives as long as the place. NULL with the error set. */
static void *place_alloc(const struct dfa_place *at, size_t n, size_t size)
{
    void *p = arena_alloc(at->mem, (n + 1) * size, 8);
    if (!p)
        err_oom(at->e, (n + 1) * size);
    return p;
}

static struct dfa *write_classes(const struct shrink *w,
                                    const struct dfa_draft *d,
                                    const struct dfa_place *at)
{
    struct dfa *p = place_alloc(at, 1, sizeof *p);
    uint32_t n = 0;
    if (!p)
        return NULL;
    p->n_states = w->n_classes;
    p->first = place_alloc(at, w->n_classes, sizeof *p->first);
    p->accept = place_alloc(at, w->n_classes, sizeof *p->accept);
    p->edges = place_alloc(at, d->n_edges, sizeof *p->edges);
    if (!p->first || !p->accept || !p->edges)
        return NULL;
    for (uint32_t k = 0; k < w->n_classes; k++) {
        struct reader r = reader_of(d, w, w->leader[k]);
        p->first[k] = n;
        p->accept[k] = d->accept[w->leader[k]];
        while (read_range(&r, &p->edges[n]))
            n++;
    }
    p->first[w->n_classes] = n;
    return p;
}

const struct dfa *dfa_finish(struct dfa_draft *d,
                                   const struct dfa_place *at)
{
    struct shrink w = {0};
    struct dfa *p = NULL;
    draft_sort(d);
    if (shrink_init(&w, d, at->e) == 0 && classify(&w, d, at) == 0)
        p = write_classes(&w, d, at);
    shrink_free(&w);
    return p;
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
