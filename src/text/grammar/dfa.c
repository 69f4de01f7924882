#include "text/grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/utf8.h"

/* Larger automata keep equivalent states. */
enum { MAX_MINIMIZED = DFA_MAX_STATES };

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
    uint32_t *first;  /* [n + 1] edges of each state, sorted */
    uint32_t *source; /* [edges] where edges to a state come from: to state i
                         source[into[i] .. into[i + 1]) */
    uint32_t *into;
    uint32_t *class_of; /* NONE: from here no accepting state can be reached */
    uint32_t *size;     /* [n_classes] states of each class */
    uint32_t *leader;   /* [n_classes] a state of each class */
    uint32_t n_classes;
    /* the states whose edges lead to classes that have changed */
    struct changed {
        uint32_t state, class_of, new_class;
        uint64_t hash;
    } * changed;
    size_t n_changed;
    bool *is_changed;
};

static void shrink_free(struct shrink *w)
{
    free(w->first);
    free(w->source);
    free(w->into);
    free(w->class_of);
    free(w->size);
    free(w->leader);
    free(w->changed);
    free(w->is_changed);
}

static int shrink_init(struct shrink *w, const struct dfa_draft *d,
                       struct qwick_err *e)
{
    size_t n = d->n_states, m = d->n_edges;
    w->first = calloc(n + 1, sizeof *w->first);
    w->source = malloc((m + 1) * sizeof *w->source);
    w->into = calloc(n + 2, sizeof *w->into);
    w->class_of = calloc(n + 1, sizeof *w->class_of);
    w->size = calloc(n + 1, sizeof *w->size);
    w->leader = calloc(n + 1, sizeof *w->leader);
    w->changed = malloc((n + 1) * sizeof *w->changed);
    w->is_changed = calloc(n + 1, sizeof *w->is_changed);
    if (!w->first || !w->source || !w->into || !w->class_of || !w->size ||
        !w->leader || !w->changed || !w->is_changed)
        return err_oom(e, (n + m) * sizeof *w->changed);
    for (size_t i = 0; i < m; i++) {
        w->first[d->edges[i].from + 1]++;
        w->into[d->edges[i].to + 2]++;
    }
    for (size_t i = 0; i < n; i++) {
        w->first[i + 1] += w->first[i];
        w->into[i + 2] += w->into[i + 1];
    }
    for (size_t i = 0; i < m; i++)
        w->source[w->into[d->edges[i].to + 1]++] = d->edges[i].from;
    return 0;
}

/* Set class_of to the distance from an accepting state, or to NONE for states
 * that lead to none. Goes backwards through the edges, level by level. */
static void find_live(struct shrink *w, const struct dfa_draft *d)
{
    uint32_t *todo = w->leader; /* not in use yet */
    size_t n_todo = 0;
    for (uint32_t i = 0; i < d->n_states; i++) {
        w->class_of[i] = d->accept[i] ? 0 : NONE;
        if (d->accept[i])
            todo[n_todo++] = i;
    }
    for (size_t i = 0; i < n_todo; i++) {
        uint32_t to = todo[i];
        for (uint32_t k = w->into[to]; k < w->into[to + 1]; k++)
            if (w->class_of[w->source[k]] == NONE) {
                w->class_of[w->source[k]] = w->class_of[to] + 1;
                todo[n_todo++] = w->source[k];
            }
    }
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

static int compare_changed(const void *pa, const void *pb)
{
    const struct changed *a = pa, *b = pb;
    if (a->class_of != b->class_of)
        return a->class_of < b->class_of ? -1 : 1;
    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

/* Give one class to all states of v[0..n) whose edges are those of the first
 * one, and move them to the front. Return their number. */
static size_t take_alike(const struct shrink *w, const struct dfa_draft *d,
                         struct changed *v, size_t n)
{
    size_t m = 1;
    for (size_t i = 1; i < n && v[i].hash == v[0].hash; i++)
        if (same_signature(d, w, v[0].state, v[i].state)) {
            struct changed x = v[i];
            v[i] = v[m];
            v[m++] = x;
        }
    return m;
}

/* Split a class, whose changed states are v[0..n): into groups of states with
 * equal edges, and the states that have not changed. One part keeps the class,
 * the others get new ones. */
static void split_class(struct shrink *w, const struct dfa_draft *d,
                        struct changed *v, size_t n)
{
    uint32_t old = v[0].class_of;
    size_t largest = 0, n_largest = 0;
    bool all = w->size[old] == n;
    for (size_t i = 0, m; i < n; i += m) {
        m = take_alike(w, d, v + i, n - i);
        for (size_t k = i; k < i + m; k++)
            v[k].new_class = (uint32_t)i; /* the group */
        if (m > n_largest) {
            largest = i;
            n_largest = m;
        }
    }
    for (size_t i = 0, group = n; i < n; i++) {
        size_t mine = v[i].new_class;
        if (all && mine == largest) {
            v[i].new_class = old;
            continue;
        }
        if (mine != group)
            w->n_classes++;
        group = mine;
        v[i].new_class = w->n_classes - 1;
        w->size[old]--;
        w->size[v[i].new_class]++;
    }
}

/* Note the states with an edge to a state that has a new class. */
static void find_changed(struct shrink *w)
{
    size_t n = w->n_changed, m = 0;
    uint32_t *moved = w->leader; /* not in use yet */
    for (size_t i = 0; i < n; i++) {
        const struct changed *c = &w->changed[i];
        w->is_changed[c->state] = false;
        if (c->new_class != c->class_of)
            moved[m++] = c->state;
        w->class_of[c->state] = c->new_class;
    }
    w->n_changed = 0;
    for (size_t i = 0; i < m; i++)
        for (uint32_t k = w->into[moved[i]]; k < w->into[moved[i] + 1]; k++) {
            uint32_t from = w->source[k];
            if (w->class_of[from] == NONE || w->is_changed[from])
                continue;
            w->is_changed[from] = true;
            w->changed[w->n_changed++] = (struct changed){.state = from};
        }
}

/* Split the classes until the edges of all states of a class lead to the same
 * classes. A round looks only at states whose edges have changed. */
static int refine(struct shrink *w, const struct dfa_draft *d,
                  const struct dfa_place *at)
{
    w->n_changed = 0;
    for (uint32_t i = 0; i < d->n_states; i++)
        if (w->class_of[i] != NONE) {
            w->changed[w->n_changed++] = (struct changed){.state = i};
            if (w->size[w->class_of[i]]++ == 0)
                w->n_classes++;
        }
    while (w->n_changed > 0) {
        for (size_t i = 0; i < w->n_changed; i++) {
            struct changed *c = &w->changed[i];
            c->class_of = w->class_of[c->state];
            c->hash = signature(d, w, c->state);
            if (dfa_steps(at, 1 + w->first[c->state + 1] - w->first[c->state]))
                return -1;
        }
        qsort(w->changed, w->n_changed, sizeof *w->changed, compare_changed);
        for (size_t i = 0, n; i < w->n_changed; i += n) {
            struct changed *c = &w->changed[i];
            n = 1;
            while (i + n < w->n_changed && c[n].class_of == c[0].class_of)
                n++;
            split_class(w, d, c, n);
        }
        find_changed(w);
    }
    return 0;
}

/* Give the live states their classes: equivalent states one class, or in very
 * large automata each state its own. The class of state 0 is 0. */
static int classify(struct shrink *w, const struct dfa_draft *d,
                    const struct dfa_place *at)
{
    uint32_t *number = w->size; /* of each class */
    bool each = d->n_states > MAX_MINIMIZED;
    find_live(w, d);
    if (d->n_states == 0 || w->class_of[0] == NONE)
        return 0;
    if (!each && refine(w, d, at))
        return -1;
    for (uint32_t i = 0; i < d->n_states; i++)
        number[i] = NONE;
    w->n_classes = 0;
    for (uint32_t i = 0; i < d->n_states; i++) {
        if (w->class_of[i] == NONE)
            continue;
        uint32_t *k = &number[each ? i : w->class_of[i]];
        if (*k == NONE) {
            w->leader[w->n_classes] = i;
            *k = w->n_classes++;
        }
        w->class_of[i] = *k;
    }
    return 0;
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
