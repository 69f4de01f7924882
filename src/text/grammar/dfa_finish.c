/* From a draft to the smallest automaton for its language. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/grammar/dfa.h"

/* Larger automata keep equivalent states. */
enum { MAX_MINIMIZED = DFA_MAX_STATES };

#define NONE UINT32_MAX

static int compare_edges(const void *pa, const void *pb)
{
    const struct dfa_draft_edge *a = pa, *b = pb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

static bool is_sorted(const struct dfa_draft_edge *v, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (compare_edges(&v[i - 1], &v[i]) > 0)
            return false;
    return true;
}

int dfa_sort_edges(struct dfa_draft_edge *v, size_t n, struct qwick_err *e)
{
    uint32_t n_states = 0;
    if (is_sorted(v, n)) /* those of a product are */
        return 0;
    for (size_t i = 0; i < n; i++)
        n_states = v[i].from < n_states ? n_states : v[i].from + 1;
    uint32_t *end = calloc((size_t)n_states + 1, sizeof *end);
    struct dfa_draft_edge *old = malloc(n * sizeof *old);
    if (end && old) {
        memcpy(old, v, n * sizeof *old);
        for (size_t i = 0; i < n; i++)
            end[v[i].from + 1]++;
        for (size_t i = 0; i < n_states; i++)
            end[i + 1] += end[i];
        for (size_t i = 0; i < n; i++)
            v[end[old[i].from]++] = old[i];
        for (size_t i = 0, from = 0; i < n_states; from = end[i++])
            if (!is_sorted(v + from, end[i] - from))
                qsort(v + from, end[i] - from, sizeof *v, compare_edges);
    }
    int rc = end && old ? 0 : err_oom(e, n * sizeof *old);
    free(end);
    free(old);
    return rc;
}

/* Sort the edges and join neighbours that lead to the same state. */
static int draft_sort(struct dfa_draft *d, struct qwick_err *err)
{
    size_t n = 0;
    if (dfa_sort_edges(d->edges, d->n_edges, err))
        return -1;
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
    return 0;
}

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
    struct dfa_edge e;
    uint32_t n = 0;
    if (!p)
        return NULL;
    for (uint32_t k = 0; k < w->n_classes; k++)
        for (struct reader r = reader_of(d, w, w->leader[k]);
             read_range(&r, &e);)
            n++;
    p->n_states = w->n_classes;
    p->first = place_alloc(at, w->n_classes, sizeof *p->first);
    p->accept = place_alloc(at, w->n_classes, sizeof *p->accept);
    p->edges = place_alloc(at, n, sizeof *p->edges);
    if (!p->first || !p->accept || !p->edges)
        return NULL;
    n = 0;
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
    if (draft_sort(d, at->e) == 0 && shrink_init(&w, d, at->e) == 0 &&
        classify(&w, d, at) == 0)
        p = write_classes(&w, d, at);
    shrink_free(&w);
    return p;
}
