#include "text/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/rng.h"
#include "text/grammar/automaton_int.h"

/* The most places to visit between two bytes. */
enum { MAX_VISITED = 1 << 20 };

static void fail_large(struct automaton *a)
{
    if (!a->err.code)
        err_set(&a->err, QWICK_ERR_RUNTIME,
                "constraint: is too ambiguous: the text can be at more than %u "
                "places of the grammar",
                AUTOMATON_MAX_PLACES);
}

/* ---- places between two bytes ---- */

static size_t hash_place(const struct automaton *a, struct place x)
{
    return hash_mix(((uint64_t)x.frame << 32 | x.pc) ^ a->states.seed,
                    x.count + 0xa0761d6478bd642fu);
}

static bool same_place(struct place a, struct place b)
{
    return a.pc == b.pc && a.frame == b.frame && a.count == b.count;
}

static int grow_seen(struct automaton *a)
{
    size_t cap = a->cap_seen ? 2 * a->cap_seen : 1024;
    uint32_t *seen = malloc(cap * sizeof *seen);
    uint32_t *at = calloc(cap, sizeof *at);
    if (!seen || !at) {
        free(seen);
        free(at);
        return err_oom(&a->err, cap * sizeof *seen);
    }
    free(a->seen);
    free(a->seen_at);
    a->seen = seen;
    a->seen_at = at;
    a->cap_seen = cap;
    a->epoch = 1;
    for (uint32_t i = 0; i < a->list.n; i++) {
        size_t h = hash_place(a, a->list.v[i]) & (cap - 1);
        while (at[h] == a->epoch)
            h = (h + 1) & (cap - 1);
        at[h] = a->epoch;
        seen[h] = i;
    }
    return 0;
}

static int places_push(struct automaton *a, struct places *p, struct place x)
{
    if (ARRAY_RESERVE(p->v, p->cap, p->n + 1, &a->err))
        return -1;
    p->v[p->n++] = x;
    return 0;
}

/* Visit a place, unless it was visited since the last byte. Those that wait for
 * a byte lead nowhere before it, so it does no harm to list them twice:
 * sort_places drops doubles. */
static int automaton_visit(struct automaton *a, struct place x)
{
    if (a->code.v[x.pc].op == OP_RANGE)
        return places_push(a, &a->out, x);
    if (2 * (a->list.n + 1) > a->cap_seen && grow_seen(a))
        return -1;
    size_t mask = a->cap_seen - 1, h = hash_place(a, x) & mask;
    for (; a->seen_at[h] == a->epoch; h = (h + 1) & mask)
        if (same_place(a->list.v[a->seen[h]], x))
            return 0;
    if (a->list.n >= MAX_VISITED) {
        fail_large(a);
        return -1;
    }
    a->seen_at[h] = a->epoch;
    a->seen[h] = (uint32_t)a->list.n;
    return places_push(a, &a->list, x);
}

/* Visit another instruction with the frame and the count of a place. */
static int visit_at(struct automaton *a, uint32_t pc, struct place x)
{
    return automaton_visit(a, (struct place){pc, x.frame, x.count});
}

/* Forget the visited places. */
static void automaton_begin(struct automaton *a)
{
    a->list.n = a->out.n = 0;
    a->accepts = false;
    a->n_callers = 0;
    if (++a->epoch == 0) {
        memset(a->seen_at, 0, a->cap_seen * sizeof *a->seen_at);
        a->epoch = 1;
    }
}

/* ---- calls ---- */

/* A heap of rules. The first rule in the order of rules is on top. */
static void heap_push(struct automaton *a, uint32_t rule)
{
    size_t i = a->n_heap++;
    for (; i && a->heap[(i - 1) / 2] > rule; i = (i - 1) / 2)
        a->heap[i] = a->heap[(i - 1) / 2];
    a->heap[i] = rule;
}

static uint32_t heap_pop(struct automaton *a)
{
    uint32_t top = a->heap[0], last = a->heap[--a->n_heap];
    size_t i = 0, kid;
    while ((kid = 2 * i + 1) < a->n_heap) {
        if (kid + 1 < a->n_heap && a->heap[kid + 1] < a->heap[kid])
            kid++;
        if (a->heap[kid] >= last)
            break;
        a->heap[i] = a->heap[kid];
        i = kid;
    }
    if (a->n_heap)
        a->heap[i] = last;
    return top;
}

static int add_caller(struct automaton *a, uint32_t rule, struct place back)
{
    if (a->n_callers >= MAX_VISITED) {
        fail_large(a);
        return -1;
    }
    if (ARRAY_RESERVE(a->callers, a->cap_callers, a->n_callers + 1, &a->err))
        return -1;
    if (a->heads[rule] == NO_CALLER)
        heap_push(a, rule);
    a->callers[a->n_callers] =
        (struct caller){.back = back, .next = a->heads[rule]};
    a->heads[rule] = (uint32_t)a->n_callers++;
    return 0;
}

/* Note a call of a rule from a place with this frame. A call at the end of a
 * rule returns to the places to which that rule returns. */
static int call(struct automaton *a, uint32_t rule, struct place back)
{
    while (a->code.v[back.pc].op == OP_JUMP)
        back.pc = a->code.v[back.pc].arg;
    if (a->code.v[back.pc].op != OP_RETURN)
        return add_caller(a, rule, back);
    const struct set *f = &a->frames.v[back.frame];
    for (size_t i = 0; i < f->n; i++)
        if (add_caller(a, rule, a->frames.places[f->off + i]))
            return -1;
    return 0;
}

static int by_frame(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    if (a->frame != b->frame)
        return a->frame < b->frame ? -1 : 1;
    if (a->pc != b->pc)
        return a->pc < b->pc ? -1 : 1;
    return a->count < b->count ? -1 : a->count > b->count;
}

/* So many are sorted by insertion. */
enum { FEW_PLACES = 16 };

static void sort_places(struct places *p)
{
    size_t m = 0, sorted = 0;
    while (sorted < p->n &&
           (sorted == 0 || by_frame(&p->v[sorted - 1], &p->v[sorted]) <= 0))
        sorted++;
    for (; sorted < p->n && p->n <= FEW_PLACES; sorted++) {
        struct place x = p->v[sorted];
        size_t i = sorted;
        for (; i > 0 && by_frame(&p->v[i - 1], &x) > 0; i--)
            p->v[i] = p->v[i - 1];
        p->v[i] = x;
    }
    if (sorted < p->n)
        qsort(p->v, p->n, sizeof *p->v, by_frame);
    for (size_t i = 0; i < p->n; i++)
        if (m == 0 || by_frame(&p->v[m - 1], &p->v[i]) != 0)
            p->v[m++] = p->v[i];
    p->n = m;
}

/* Enter the first rule that has callers. All its callers are known: they come
 * before it in the order of rules. */
static int enter(struct automaton *a)
{
    uint32_t rule = heap_pop(a), frame;
    const struct code_rule *r = &a->code.rules[rule];
    int rc = 0;
    a->back.n = 0;
    for (uint32_t i = a->heads[rule]; i != NO_CALLER; i = a->callers[i].next)
        rc |= places_push(a, &a->back, a->callers[i].back);
    a->heads[rule] = NO_CALLER;
    if (rc)
        return -1;
    sort_places(&a->back);
    frame = sets_find(&a->frames, a->back.v, a->back.n, false, &a->err);
    if (frame == SETS_FAIL)
        return -1;
    for (uint32_t i = 0; i < r->n_ranges; i++) {
        const struct first *f = &a->code.first_ranges[r->ranges + i];
        if (places_push(a, &a->out, (struct place){f->pc, frame, f->count}))
            return -1;
    }
    for (uint32_t i = 0; i < r->n_calls; i++) {
        const struct first *f = &a->code.first_calls[r->calls + i];
        if (call(a, f->rule, (struct place){f->pc, frame, f->count}))
            return -1;
    }
    return 0;
}

/* ---- states ---- */

static size_t bytes_of(const struct sets *s)
{
    return s->cap * (sizeof *s->v + 2 * sizeof(uint32_t)) +
           s->cap_places * sizeof *s->places;
}

size_t automaton_bytes_used(const struct automaton *a)
{
    return bytes_of(&a->states) + bytes_of(&a->frames) + bytes_of(&a->taken) +
           a->cap_next * a->code.n_classes * sizeof *a->next;
}

/* Follow one visited place until it needs a byte. */
static int follow(struct automaton *a, struct place x)
{
    const struct instr *i = &a->code.v[x.pc];
    const struct set *f = &a->frames.v[x.frame];
    int go_on;
    switch ((enum op)i->op) {
    case OP_RANGE: /* automaton_visit lists them */
        return 0;
    case OP_SPLIT:
        return visit_at(a, x.pc + 1, x) || visit_at(a, i->arg, x) ? -1 : 0;
    case OP_JUMP:
        return visit_at(a, i->arg, x);
    case OP_CALL:
        x.pc++;
        if (a->code.rules[i->arg].nullable && automaton_visit(a, x))
            return -1;
        return call(a, i->arg, x);
    case OP_RETURN:
        for (size_t k = 0; k < f->n; k++)
            if (automaton_visit(a, a->frames.places[f->off + k]))
                return -1;
        return 0;
    case OP_ACCEPT:
        a->accepts = true;
        return 0;
    case OP_COUNT:
    case OP_COUNT_UP:
    case OP_LEAVE:
        x.pc++;
        return code_count(i, &x.count) ? automaton_visit(a, x) : 0;
    case OP_FREE:
    case OP_TAKE:
    case OP_DONE:
        x.pc++;
        go_on = taken_run(&a->taken, &a->code, i, &x.count, &a->err);
        return go_on > 0 ? automaton_visit(a, x) : go_on;
    }
    return 0;
}

static void drop_calls(struct automaton *a)
{
    while (a->n_heap)
        a->heads[a->heap[--a->n_heap]] = NO_CALLER;
}

/* Make room for the transitions of as many states as there is room for. They
 * are not cleared, so that growing costs little. */
static int reserve_next(struct automaton *a)
{
    size_t cap = a->states.cap, n = a->code.n_classes;
    if (cap <= a->cap_next)
        return 0;
    uint32_t *next = realloc(a->next, cap * n * sizeof *next);
    if (!next)
        return err_oom(&a->err, cap * n * sizeof *next);
    a->next = next;
    unsigned char *ends = realloc(a->ends, cap);
    if (!ends)
        return err_oom(&a->err, cap);
    a->ends = ends;
    a->cap_next = cap;
    return 0;
}

/* Forget the transitions of a state. */
static void clear_next(struct automaton *a, uint32_t state)
{
    size_t n = a->code.n_classes;
    memset(a->next + state * n, 0, n * sizeof *a->next);
    a->ends[state] = a->states.v[state].accepts;
}

static uint32_t find_state(struct automaton *a)
{
    size_t n_states = a->states.n;
    if (a->out.n > AUTOMATON_MAX_PLACES) {
        fail_large(a);
        return AUTOMATON_DEAD;
    }
    uint32_t s = sets_find(&a->states, a->out.v, a->out.n, a->accepts, &a->err);
    if (s == SETS_FAIL || reserve_next(a))
        return AUTOMATON_DEAD;
    if (s == n_states) /* it is new */
        clear_next(a, s);
    return s;
}

/* Return the state that has the visited places. */
static uint32_t close_places(struct automaton *a)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < a->list.n; i++)
        rc = follow(a, a->list.v[i]);
    while (!rc && a->n_heap)
        rc = enter(a);
    drop_calls(a);
    if (rc)
        return AUTOMATON_DEAD;
    sort_places(&a->out);
    a->work += a->list.n + a->out.n + a->n_callers;
    return find_state(a);
}

/* Return the state that has one visited place. Many bytes lead to one place: in
 * a finite automaton, all that lead to one of its states. */
static uint32_t close_place(struct automaton *a, struct place x)
{
    while (a->code.v[x.pc].op == OP_JUMP)
        x.pc = a->code.v[x.pc].arg;
    struct closed *known = &a->closed[hash_place(a, x) % CLOSED_SLOTS];
    if (known->state == AUTOMATON_DEAD || !same_place(known->from, x))
        *known = (struct closed){x, close_places(a)};
    return known->state;
}

/* Return the state after a byte. *from and *to: the first and the last byte
 * that the state does not tell apart from it. */
static uint32_t advance(struct automaton *a, uint32_t state, unsigned char byte,
                        unsigned *from, unsigned *to)
{
    const struct set *s = &a->states.v[state];
    struct place last = {0};
    size_t n = 0;
    automaton_begin(a);
    *from = 0;
    *to = 255;
    for (size_t i = 0; i < s->n; i++) {
        struct place x = a->states.places[s->off + i];
        const struct instr *in = &a->code.v[x.pc];
        bool matches = in->lo <= byte && byte <= in->hi;
        unsigned low = matches ? in->lo : in->hi + 1u, high = in->hi;
        if (in->lo > byte) {
            low = 0;
            high = in->lo - 1u;
        } else if (in->hi < byte) {
            high = 255;
        }
        *from = low > *from ? low : *from;
        *to = high < *to ? high : *to;
        if (matches && in->arg == RANGE_RECORDS) {
            *from = *to = byte;
            if (taken_record(&a->taken, &x.count, byte, &a->err))
                return AUTOMATON_DEAD;
        }
        x.pc++;
        if (matches && automaton_visit(a, x))
            return AUTOMATON_DEAD;
        if (matches)
            last = x;
        n += matches;
    }
    return n == 1 ? close_place(a, last) : close_places(a);
}

uint32_t automaton_advance(struct automaton *a, uint32_t state,
                           unsigned char byte)
{
    const unsigned char *class_of = a->code.class_of;
    size_t first = state * a->code.n_classes;
    unsigned from, to;
    if (a->next[first + class_of[byte]])
        return a->next[first + class_of[byte]] - 1;
    if (a->err.code)
        return AUTOMATON_DEAD;
    uint32_t after = advance(a, state, byte, &from, &to);
    for (size_t i = class_of[from]; !a->err.code && i <= class_of[to]; i++)
        a->next[first + i] = after + 1;
    return after;
}

void automaton_fill(struct automaton *a, uint32_t state)
{
    const unsigned char *class_of = a->code.class_of;
    struct set s = a->states.v[state];
    uint32_t *next = a->next + state * a->code.n_classes, to = AUTOMATON_DEAD;
    unsigned char n[256] = {0};
    size_t of[256], last = SIZE_MAX; /* the place that a byte matches */
    for (size_t i = 0; i < s.n; i++) {
        const struct instr *in = &a->code.v[a->states.places[s.off + i].pc];
        unsigned more = in->arg == RANGE_RECORDS ? 2 : 1;
        for (unsigned b = in->lo; b <= in->hi; b++) {
            n[b] = (unsigned char)(n[b] + more < 2 ? 1 : 2);
            of[b] = i;
        }
    }
    for (unsigned b = 0; b < 256 && !a->err.code; b++) {
        if (next[class_of[b]])
            continue;
        if (n[b] > 1) {
            automaton_advance(a, state, (unsigned char)b);
        } else if (n[b] && of[b] != last) {
            struct place x = a->states.places[s.off + (last = of[b])];
            x.pc++;
            automaton_begin(a);
            to = automaton_visit(a, x) ? AUTOMATON_DEAD : close_place(a, x);
        }
        next = a->next + state * a->code.n_classes; /* it may have moved */
        if (n[b] < 2 && !a->err.code)
            next[class_of[b]] = 1 + (n[b] ? to : AUTOMATON_DEAD);
    }
}

static int visit_state(struct automaton *a, uint32_t state)
{
    struct set s = a->states.v[state];
    for (size_t i = 0; i < s.n; i++)
        if (automaton_visit(a, a->states.places[s.off + i]))
            return -1;
    return 0;
}

uint32_t automaton_union(struct automaton *a, uint32_t s, uint32_t t)
{
    if (s == t || t == AUTOMATON_DEAD)
        return s;
    if (s == AUTOMATON_DEAD)
        return t;
    automaton_begin(a);
    if (visit_state(a, s) || visit_state(a, t))
        return AUTOMATON_DEAD;
    a->accepts = a->states.v[s].accepts || a->states.v[t].accepts;
    return close_places(a);
}

/* ---- making an automaton ---- */

static int start(struct automaton *a, struct qwick_err *e)
{
    static const struct place bottom = {.pc = CODE_ACCEPT};
    size_t n_rules = a->code.n_rules;
    a->heads = malloc((n_rules + 1) * sizeof *a->heads);
    a->heap = malloc((n_rules + 1) * sizeof *a->heap);
    a->closed = calloc(CLOSED_SLOTS, sizeof *a->closed);
    if (!a->heads || !a->heap || !a->closed)
        return err_oom(e, n_rules * sizeof *a->heads);
    for (size_t i = 0; i < n_rules; i++)
        a->heads[i] = NO_CALLER;
    a->states.seed = a->frames.seed = a->taken.seed = rng_random_seed();
    sets_find(&a->taken, NULL, 0, false, &a->err);
    sets_find(&a->frames, &bottom, 1, false, &a->err);
    automaton_begin(a);
    if (!a->err.code && find_state(a) == AUTOMATON_DEAD && !grow_seen(a) &&
        !add_caller(a, a->code.root, bottom)) {
        a->accepts = a->code.rules[a->code.root].nullable;
        a->start = close_places(a);
    }
    if (a->err.code == QWICK_ERR_RUNTIME)
        a->err.code = QWICK_ERR_USAGE;
    return automaton_error(a, e);
}

int automaton_create(struct automaton **out, const struct grammar *g,
                     struct qwick_err *e)
{
    *out = NULL;
    struct automaton *a = calloc(1, sizeof *a);
    if (!a)
        return err_oom(e, sizeof *a);
    if (code_build(&a->code, g, e) || start(a, e)) {
        automaton_free(a);
        return -1;
    }
    *out = a;
    return 0;
}

void automaton_free(struct automaton *a)
{
    if (!a)
        return;
    code_free(&a->code);
    sets_free(&a->states);
    sets_free(&a->frames);
    sets_free(&a->taken);
    free(a->next);
    free(a->ends);
    free(a->list.v);
    free(a->out.v);
    free(a->back.v);
    free(a->seen);
    free(a->seen_at);
    free(a->heads);
    free(a->callers);
    free(a->heap);
    free(a->closed);
    free(a);
}

/* ---- looking at states ---- */

uint32_t automaton_start(const struct automaton *a)
{
    return a->start;
}

struct automaton_table automaton_known(const struct automaton *a)
{
    return (struct automaton_table){.next = a->next,
                                    .accepts = a->ends,
                                    .class_of = a->code.class_of,
                                    .n_classes = a->code.n_classes,
                                    .counted = a->code.n_counters > 0};
}

bool automaton_accepts(const struct automaton *a, uint32_t state)
{
    return a->states.v[state].accepts;
}

bool automaton_is_final(const struct automaton *a, uint32_t state)
{
    return a->states.v[state].accepts && a->states.v[state].n == 0;
}

void automaton_bytes(struct automaton *a, uint32_t state,
                     unsigned char bytes[256])
{
    const struct set *s = &a->states.v[state];
    bool records = false;
    memset(bytes, 0, 256);
    for (size_t i = 0; i < s->n; i++) {
        const struct instr *in = &a->code.v[a->states.places[s->off + i].pc];
        memset(bytes + in->lo, 1, (size_t)in->hi - in->lo + 1);
        records |= in->arg == RANGE_RECORDS;
    }
    /* the text of a part that must differ ends with a quote */
    if (records && bytes['"'])
        bytes['"'] = automaton_advance(a, state, '"') != AUTOMATON_DEAD;
}

size_t automaton_work(const struct automaton *a)
{
    return a->work;
}

void automaton_reset_work(struct automaton *a)
{
    a->work = 0;
}

int automaton_error(const struct automaton *a, struct qwick_err *e)
{
    if (!a->err.code)
        return 0;
    if (e)
        *e = a->err;
    return -1;
}

/* ---- groups ---- */

/* Return the end of the group that begins at place i of a state. */
static size_t group_end(const struct automaton *a, const struct set *s,
                        size_t i)
{
    const struct place *p = a->states.places + s->off;
    uint32_t frame = p[i].frame;
    while (i < s->n && p[i].frame == frame)
        i++;
    return i;
}

size_t automaton_groups(const struct automaton *a, uint32_t state)
{
    const struct set *s = &a->states.v[state];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i = group_end(a, s, i))
        n++;
    return n;
}

void automaton_group(struct automaton *a, uint32_t state, size_t i,
                     struct automaton_group *out)
{
    struct set s = a->states.v[state];
    size_t from = 0, to;
    *out = (struct automaton_group){0};
    while (i-- > 0)
        from = group_end(a, &s, from);
    to = group_end(a, &s, from);
    uint32_t frame = a->states.places[s.off + from].frame;
    a->work += to;
    automaton_begin(a);
    for (size_t k = from; k < to; k++) {
        struct place x = a->states.places[s.off + k];
        x.frame = 0;
        if (places_push(a, &a->out, x))
            return;
    }
    out->local = find_state(a);
    struct set f = a->frames.v[frame];
    automaton_begin(a);
    for (size_t k = 0; k < f.n; k++)
        if (automaton_visit(a, a->frames.places[f.off + k]))
            return;
    out->after = close_places(a);
}

/* Return the counted part that a place is in, or NULL. */
static const struct code_counter *counter_at(const struct code *c, uint32_t pc)
{
    size_t low = 0, high = c->n_counters;
    while (low < high) { /* the first counter that begins after the place */
        size_t mid = low + (high - low) / 2;
        if (c->counters[mid].start <= pc)
            low = mid + 1;
        else
            high = mid;
    }
    return low && pc < c->counters[low - 1].end ? &c->counters[low - 1] : NULL;
}

/* Return a count that stands for the one of a place: n more bytes reach the
 * same limits of the counted part. */
static uint32_t alike(const struct code *c, struct place x, size_t n)
{
    const struct code_counter *v = counter_at(c, x.pc);
    if (!v ||
        (v->max != UINT32_MAX && (x.count >= v->max || v->max - x.count <= n)))
        return x.count;
    if (x.count >= v->min)
        return v->min;
    return v->min - x.count > n ? 0 : x.count;
}

uint32_t automaton_room(const struct automaton *a, uint32_t state)
{
    const struct set *s = &a->states.v[state];
    uint32_t room = UINT32_MAX;
    for (size_t i = 0; i < s->n; i++) {
        struct place x = a->states.places[s->off + i];
        const struct code_counter *v = counter_at(&a->code, x.pc);
        uint32_t left = UINT32_MAX;
        if (v && v->max != UINT32_MAX && x.count < v->max)
            left = v->max - x.count - 1;
        if (v && x.count < v->min && v->min - x.count - 1 < left)
            left = v->min - x.count - 1;
        room = left < room ? left : room;
    }
    return room;
}

/* Return the state of the places in a->out. */
static uint32_t state_like(struct automaton *a, bool accepts)
{
    sort_places(&a->out);
    a->accepts = accepts;
    return find_state(a);
}

uint32_t automaton_alike(struct automaton *a, uint32_t state, size_t n)
{
    struct set s = a->states.v[state];
    bool other = false;
    if (a->code.n_counters == 0)
        return state;
    automaton_begin(a);
    for (size_t i = 0; i < s.n; i++) {
        struct place x = a->states.places[s.off + i];
        uint32_t count = alike(&a->code, x, n);
        other |= count != x.count;
        x.count = count;
        if (places_push(a, &a->out, x))
            return AUTOMATON_DEAD;
    }
    return other ? state_like(a, s.accepts) : state;
}

static void add_border(uint64_t *to, unsigned byte)
{
    if (byte > 0 && byte < 256)
        to[byte / 64] |= 1ull << (byte & 63);
}

void automaton_add_borders(const struct automaton *a, uint32_t state,
                           uint64_t borders[4])
{
    const struct set *s = &a->states.v[state];
    for (size_t i = 0; i < s->n; i++) {
        const struct instr *in = &a->code.v[a->states.places[s->off + i].pc];
        add_border(borders, in->lo);
        add_border(borders, in->hi + 1u);
    }
}

/* ---- texts that differ ---- */

uint32_t automaton_plain(struct automaton *a, uint32_t state)
{
    struct set s = a->states.v[state];
    bool other = false;
    if (!a->code.records)
        return state;
    automaton_begin(a);
    for (size_t i = 0; i < s.n; i++) {
        struct place x = a->states.places[s.off + i];
        const struct code_once *o = code_once_at(&a->code, x.pc);
        if (o && o->differ && x.count < TAKEN_PLAIN) {
            x.count = taken_plain(&a->taken, o, x.count);
            other = true;
        }
        if (places_push(a, &a->out, x))
            return AUTOMATON_DEAD;
    }
    return other ? state_like(a, s.accepts) : state;
}

bool automaton_has_texts(const struct automaton *a)
{
    return a->code.records;
}

/* Append the texts that a place must not get, without their part that is
 * there. */
static int add_texts(const struct automaton *a, struct place x, struct buf *out)
{
    uint32_t set, text;
    taken_open(&a->taken, x.count, &set, &text);
    for (size_t i = 0; i < a->taken.v[set].n; i++) {
        uint32_t old = a->taken.places[a->taken.v[set].off + i].frame;
        uint32_t len = 0;
        size_t at = out->len;
        if (buf_append(out, &len, sizeof len))
            return -1;
        int rc = taken_rest(&a->taken, old, text, out);
        if (rc < 0)
            return -1;
        len = (uint32_t)(out->len - at - sizeof len);
        memcpy(out->data + at, &len, sizeof len);
        if (len == 0)
            out->len = at;
    }
    return 0;
}

int automaton_repeats(const struct automaton *a, uint32_t state,
                      struct buf *out)
{
    const struct set *s = &a->states.v[state];
    for (size_t i = 0; i < s->n; i++) {
        struct place x = a->states.places[s->off + i];
        const struct code_once *o = code_once_at(&a->code, x.pc);
        if (o && o->differ && x.count < TAKEN_PLAIN && add_texts(a, x, out))
            return -1;
    }
    return 0;
}

/* ---- memory ---- */

/* Mark the frames that the states use, and the frames to which these return. A
 * frame is made after all frames to which it returns. */
static void mark_frames(const struct automaton *a, const uint32_t *states,
                        size_t n, uint32_t *map)
{
    for (size_t i = 0; i < n; i++) {
        const struct set *s = &a->states.v[states[i]];
        for (size_t k = 0; k < s->n; k++)
            map[a->states.places[s->off + k].frame] = 1;
    }
    map[0] = 1;
    for (size_t i = a->frames.n; i-- > 1;) {
        const struct set *f = &a->frames.v[i];
        for (size_t k = 0; map[i] && k < f->n; k++)
            map[a->frames.places[f->off + k].frame] = 1;
    }
}

/* Sets before tidying, and their new numbers. */
struct old_sets {
    struct sets states, frames, taken;
    uint32_t *frame_map, *taken_map; /* taken_map: NULL: there are none */
};

/* Mark the sets of parts that places have. */
static void mark_taken(const struct automaton *a, const struct sets *sets,
                       uint32_t i, uint32_t *map)
{
    const struct set *s = &sets->v[i];
    for (size_t k = 0; map && k < s->n; k++) {
        const struct place *x = &sets->places[s->off + k];
        if (x->count && x->count < TAKEN_PLAIN && code_once_at(&a->code, x->pc))
            map[x->count] = 1;
    }
}

/* Copy a set into `to`. */
static uint32_t copy_set(struct automaton *a, const struct old_sets *old,
                         const struct sets *from, struct sets *to, uint32_t i)
{
    const struct set *s = &from->v[i];
    a->out.n = 0;
    for (size_t k = 0; k < s->n; k++) {
        struct place x = from->places[s->off + k];
        x.frame = old->frame_map[x.frame];
        if (old->taken_map && x.count && x.count < TAKEN_PLAIN &&
            code_once_at(&a->code, x.pc))
            x.count = old->taken_map[x.count];
        if (places_push(a, &a->out, x))
            return SETS_FAIL;
    }
    /* new numbers are in another order */
    sort_places(&a->out);
    return sets_find(to, a->out.v, a->out.n, s->accepts, &a->err);
}

/* Find the frames and sets of parts that states[0..n) and the start use, and
 * copy the latter. Returns 0 or -1. */
static int map_old(struct automaton *a, struct old_sets *old,
                   const uint32_t *states, size_t n)
{
    old->frame_map = calloc(old->frames.n, sizeof *old->frame_map);
    if (a->code.once_of)
        old->taken_map = calloc(old->taken.n, sizeof *old->taken_map);
    if (!old->frame_map || (a->code.once_of && !old->taken_map))
        return err_oom(&a->err, old->frames.n * sizeof *old->frame_map);
    mark_frames(a, states, n, old->frame_map);
    mark_frames(a, &a->start, 1, old->frame_map);
    for (size_t i = 0; i < n; i++)
        mark_taken(a, &old->states, states[i], old->taken_map);
    mark_taken(a, &old->states, a->start, old->taken_map);
    for (uint32_t i = 0; i < old->frames.n; i++)
        if (old->frame_map[i])
            mark_taken(a, &old->frames, i, old->taken_map);
    if (!old->taken_map)
        return 0;
    a->taken = (struct sets){.seed = old->taken.seed};
    return taken_copy(&a->taken, &old->taken, old->taken_map, &a->err);
}

/* Give back the memory of transitions that the states do not need, and forget
 * all transitions. */
static void shrink_next(struct automaton *a)
{
    size_t cap = a->states.cap, n = a->code.n_classes;
    uint32_t *next = realloc(a->next, (cap * n + 1) * sizeof *next);
    unsigned char *ends = realloc(a->ends, cap + 1);
    a->next = next ? next : a->next;
    a->ends = ends ? ends : a->ends;
    a->cap_next = cap;
    for (uint32_t i = 0; i < a->states.n; i++)
        clear_next(a, i);
}

int automaton_tidy(struct automaton *a, uint32_t *states, size_t n,
                   struct qwick_err *e)
{
    struct old_sets old = {
        .states = a->states, .frames = a->frames, .taken = a->taken};
    uint32_t new_start;
    if (map_old(a, &old, states, n)) {
        free(old.frame_map);
        free(old.taken_map);
        return automaton_error(a, e);
    }
    a->states = (struct sets){.seed = old.states.seed};
    a->frames = (struct sets){.seed = old.frames.seed};
    old.frame_map[0] = 0;
    for (uint32_t i = 0; i < old.frames.n; i++)
        if (old.frame_map[i] || i == 0)
            old.frame_map[i] = copy_set(a, &old, &old.frames, &a->frames, i);
    copy_set(a, &old, &old.states, &a->states, AUTOMATON_DEAD);
    new_start = copy_set(a, &old, &old.states, &a->states, a->start);
    for (size_t i = 0; i < n && !a->err.code; i++)
        states[i] = copy_set(a, &old, &old.states, &a->states, states[i]);
    a->start = new_start;
    memset(a->closed, 0, CLOSED_SLOTS * sizeof *a->closed);
    sets_free(&old.states);
    sets_free(&old.frames);
    if (old.taken_map)
        sets_free(&old.taken);
    free(old.frame_map);
    free(old.taken_map);
    shrink_next(a);
    return automaton_error(a, e);
}
