#include "text/template/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/deadline.h"
#include "text/template/interp.h"

/* ---- bounds and memory ---- */

#undef rt_fail
#undef rt_fail_bound

int rt_fail(struct rt *rt, const char *fmt, ...)
{
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_usage(rt->e, "%s: line %u: %s", rt->t->file_name, rt->line, msg);
}

int rt_fail_bound(struct rt *rt, const char *what, uint64_t bound)
{
    return err_set(rt->e, rt->limited ? QWICK_ERR_USAGE : QWICK_ERR_MODEL,
                   "%s: line %u: the template exceeds a bound: %s (%llu)",
                   rt->t->file_name, rt->line, what, (unsigned long long)bound);
}

void *rt_alloc(struct rt *rt, size_t n)
{
    if (n > rt->max_memory || rt->used > rt->max_memory - n) {
        rt_fail_bound(rt, "bytes of memory", rt->max_memory);
        return NULL;
    }
    void *p = arena_alloc(&rt->arena, n ? n : 1, 16);
    if (!p) {
        err_oom(rt->e, n);
        return NULL;
    }
    rt->used += n + 16;
    return p;
}

void *rt_alloc_n(struct rt *rt, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        bytes = SIZE_MAX;
    return rt_alloc(rt, bytes);
}

void *rt_reserve(struct rt *rt, void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    size_t more = *cap ? *cap * 2 : 4;
    void *grown = rt_alloc_n(rt, more, size);
    if (!grown)
        return NULL;
    if (n)
        memcpy(grown, v, n * size);
    *cap = more;
    return grown;
}

/* Look at the thread's deadline once in many steps. */
static int check_time(struct rt *rt)
{
    enum { CLOCK_STEPS = 1 << 16 };
    char what[512];
    rt->next_clock = rt->steps + CLOCK_STEPS;
    snprintf(what, sizeof what, "%s: line %u: rendering", rt->t->file_name,
             rt->line);
    return text_check_deadline(what, rt->e);
}

int rt_steps(struct rt *rt, size_t n)
{
    rt->steps += n;
    if (rt->steps >= rt->next_clock && check_time(rt))
        return -1;
    if (rt->steps <= TEMPLATE_MAX_STEPS)
        return 0;
    return rt_fail_bound(rt, "steps", TEMPLATE_MAX_STEPS);
}

int rt_enter(struct rt *rt)
{
    if (rt->depth >= TEMPLATE_MAX_DEPTH)
        return rt_fail_bound(rt, "depth of evaluation", TEMPLATE_MAX_DEPTH);
    if (rt_steps(rt, 1))
        return -1;
    rt->depth++;
    return 0;
}

/* ---- containers ---- */

struct seq *seq_new(struct rt *rt, size_t n)
{
    struct seq *s = rt_alloc(rt, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct seq){0};
    if (n && !(s->v = rt_alloc_n(rt, n, sizeof *s->v)))
        return NULL;
    s->cap = n;
    return s;
}

int seq_add(struct rt *rt, struct seq *s, struct value v)
{
    struct value *grown = rt_reserve(rt, s->v, s->n, &s->cap, sizeof *grown);
    if (!grown)
        return -1;
    s->v = grown;
    s->v[s->n++] = v;
    return rt_steps(rt, 1);
}

struct dict *dict_new(struct rt *rt, size_t n)
{
    struct dict *d = rt_alloc(rt, sizeof *d);
    if (!d)
        return NULL;
    *d = (struct dict){0};
    if (n && (!(d->k = rt_alloc_n(rt, n, sizeof *d->k)) ||
              !(d->v = rt_alloc_n(rt, n, sizeof *d->v))))
        return NULL;
    d->cap = n;
    return d;
}

/* A tuple is hashable if its items are; so far down nobody nests keys. */
static int check_hashable(struct rt *rt, struct value k)
{
    if (k.type == V_LIST || k.type == V_DICT)
        return rt_fail(rt, "a %s cannot be a key", value_type_name(k));
    if (k.type != V_TUPLE)
        return 0;
    if (rt_enter(rt))
        return -1;
    int rc = 0;
    for (size_t i = 0; i < k.seq->n && !rc; i++)
        rc = check_hashable(rt, k.seq->v[i]);
    rt_leave(rt);
    return rc;
}

/* Index of k in d, d->n if it is not there. */
static int dict_index(struct rt *rt, const struct dict *d, struct value k,
                      size_t *out)
{
    size_t i = 0;
    if (rt_steps(rt, d->n / 8 + 1))
        return -1;
    if (k.type == V_STR) {
        for (; i < d->n; i++) {
            if (d->k[i].type != V_STR || d->k[i].s->n != k.s->n)
                continue;
            if (rt_bytes(rt, k.s->n))
                return -1;
            if (str_equal(d->k[i].s, k.s))
                break;
        }
    } else {
        if (check_hashable(rt, k))
            return -1;
        for (bool same; i < d->n; i++) {
            if (value_equal(rt, d->k[i], k, &same))
                return -1;
            if (same)
                break;
        }
    }
    *out = i;
    return 0;
}

int dict_set(struct rt *rt, struct dict *d, struct value k, struct value v)
{
    size_t i;
    if (dict_index(rt, d, k, &i))
        return -1;
    if (i < d->n) {
        d->v[i] = v;
        return 0;
    }
    size_t cap = d->cap;
    struct value *gk = rt_reserve(rt, d->k, d->n, &cap, sizeof *gk);
    struct value *gv =
        gk ? rt_reserve(rt, d->v, d->n, &d->cap, sizeof *gv) : NULL;
    if (!gv)
        return -1;
    d->k = gk;
    d->v = gv;
    d->k[d->n] = k;
    d->v[d->n++] = v;
    return 0;
}

int dict_get(struct rt *rt, const struct dict *d, struct value k,
             struct value *out)
{
    size_t i;
    *out = (struct value){.type = V_ABSENT};
    if (dict_index(rt, d, k, &i))
        return -1;
    if (i < d->n)
        *out = d->v[i];
    return 0;
}

const struct value *dict_find(const struct dict *d, const char *key, size_t n)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->k[i].type == V_STR && d->k[i].s->n == n &&
            memcmp(d->k[i].s->p, key, n) == 0)
            return &d->v[i];
    return NULL;
}

int dict_view(struct rt *rt, const struct dict *d, enum dict_part part,
              struct seq **out)
{
    struct seq *s = seq_new(rt, d->n);
    for (size_t i = 0; s && i < d->n; i++) {
        struct value item = part == DICT_KEYS ? d->k[i] : d->v[i];
        if (part == DICT_ITEMS) {
            struct seq *pair = seq_new(rt, 2);
            if (!pair || seq_add(rt, pair, d->k[i]) ||
                seq_add(rt, pair, d->v[i]))
                return -1;
            item = value_seq(V_TUPLE, pair);
        }
        if (seq_add(rt, s, item))
            return -1;
    }
    *out = s;
    return s ? 0 : -1;
}

/* ---- kinds ---- */

bool value_is_number(struct value v)
{
    return v.type == V_BOOL || v.type == V_INT || v.type == V_BIG ||
           v.type == V_FLOAT;
}

bool value_is_seq(struct value v)
{
    return v.type == V_LIST || v.type == V_TUPLE || v.type == V_RANGE ||
           v.type == V_VIEW || v.type == V_ITER;
}

bool value_truth(struct value v)
{
    switch (v.type) {
    case V_ABSENT:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->n > 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.seq->n > 0;
    case V_DICT:
        return v.d->n > 0;
    default:
        return true;
    }
}

const char *value_type_name(struct value v)
{
    static const char *const names[N_VALUE_TYPES] = {
        [V_ABSENT] = "undefined value",
        [V_UNDEFINED] = "undefined value",
        [V_NONE] = "none",
        [V_BOOL] = "boolean",
        [V_INT] = "integer",
        [V_BIG] = "large integer",
        [V_FLOAT] = "float",
        [V_STR] = "string",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_RANGE] = "range",
        [V_VIEW] = "view of a dict",
        [V_ITER] = "iterator",
        [V_DICT] = "dict",
        [V_NAMESPACE] = "namespace",
        [V_FUNCTION] = "function",
        [V_METHOD] = "method",
        [V_MACRO] = "macro",
        [V_LOOP] = "loop",
        [V_CYCLER] = "cycler",
        [V_JOINER] = "joiner",
    };
    return names[v.type];
}

bool value_as_int(struct value v, int64_t *i)
{
    if (v.type == V_BOOL)
        *i = v.b;
    else if (v.type == V_INT)
        *i = v.i;
    else
        return false;
    return true;
}

bool value_as_float(struct value v, double *f)
{
    int64_t i;
    if (v.type == V_FLOAT)
        *f = v.f;
    else if (value_as_int(v, &i))
        *f = (double)i;
    else
        return false;
    return true;
}

bool value_is_outside(struct value v)
{
    return v.outside || (v.type == V_STR && v.s->outside);
}

static int mark_str(struct rt *rt, struct value *v)
{
    if (v->s->fixed || (v->s->outside && !v->s->mark))
        return 0;
    struct str *s = rt_alloc(rt, sizeof *s);
    if (!s)
        return -1;
    *s = *v->s;
    s->mark = NULL;
    s->outside = s->n > 0;
    v->s = s;
    return 0;
}

/* Copy the items and mark the copies. */
static int mark_seq(struct rt *rt, struct value *v)
{
    struct seq *s = rt_alloc(rt, sizeof *s);
    if (!s)
        return -1;
    *s = *v->seq;
    s->cap = s->n;
    if (!(s->v = rt_alloc_n(rt, s->n, sizeof *s->v)))
        return -1;
    for (size_t i = 0; i < s->n; i++) {
        s->v[i] = v->seq->v[i];
        if (value_mark(rt, &s->v[i]))
            return -1;
    }
    v->seq = s;
    return 0;
}

static int mark_dict(struct rt *rt, struct value *v)
{
    struct dict *d = dict_new(rt, v->d->n);
    for (size_t i = 0; d && i < v->d->n; i++) {
        d->k[i] = v->d->k[i];
        d->v[i] = v->d->v[i];
        d->n = i + 1;
        if (value_mark(rt, &d->k[i]) || value_mark(rt, &d->v[i]))
            return -1;
    }
    v->d = d;
    return d ? 0 : -1;
}

int value_mark(struct rt *rt, struct value *v)
{
    int rc = 0;
    v->outside = v->type != V_STR;
    if (v->type == V_STR || v->type == V_BIG)
        return mark_str(rt, v);
    bool seq = value_is_seq(*v);
    if ((!seq && v->type != V_DICT) || (seq ? v->seq->outside : v->d->outside))
        return 0;
    if (rt_enter(rt))
        return -1;
    rc = seq ? mark_seq(rt, v) : mark_dict(rt, v);
    rt_leave(rt);
    return rc;
}

int value_outside(struct rt *rt, struct value v, bool *outside)
{
    int rc = 0;
    if (v.type == V_STR || v.type == V_BIG) {
        *outside |= v.outside || str_has_outside(v.s);
        return 0;
    }
    *outside |= v.outside;
    bool seq = value_is_seq(v),
         dict = v.type == V_DICT || v.type == V_NAMESPACE;
    if (*outside || (!seq && !dict))
        return 0;
    if (rt_enter(rt))
        return -1;
    for (size_t i = 0; !rc && !*outside && i < (seq ? v.seq->n : v.d->n); i++) {
        rc = value_outside(rt, seq ? v.seq->v[i] : v.d->v[i], outside);
        if (!rc && dict)
            rc = value_outside(rt, v.d->k[i], outside);
    }
    rt_leave(rt);
    return rc;
}

/* ---- order ---- */

static int equal_seq(struct rt *rt, const struct seq *a, const struct seq *b,
                     bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++)
        if (value_equal(rt, a->v[i], b->v[i], equal))
            return -1;
    return 0;
}

static int equal_dict(struct rt *rt, const struct dict *a, const struct dict *b,
                      bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        struct value other;
        if (dict_get(rt, b, a->k[i], &other))
            return -1;
        *equal = other.type != V_ABSENT;
        if (*equal && value_equal(rt, a->v[i], other, equal))
            return -1;
    }
    return 0;
}

/* Integers compare as integers: doubles would make large ones equal. */
static bool equal_numbers(struct value a, struct value b)
{
    int64_t i, j;
    double f, g;
    if (a.type == V_BIG || b.type == V_BIG)
        return a.type == b.type && str_equal(a.s, b.s);
    if (value_as_int(a, &i) && value_as_int(b, &j))
        return i == j;
    return value_as_float(a, &f) && value_as_float(b, &g) && f == g;
}

static int equal_containers(struct rt *rt, struct value a, struct value b,
                            bool *equal)
{
    int rc = 0;
    if (rt_enter(rt))
        return -1;
    if (a.type == V_LIST || a.type == V_TUPLE || a.type == V_RANGE)
        rc = equal_seq(rt, a.seq, b.seq, equal);
    else
        rc = equal_dict(rt, a.d, b.d, equal);
    rt_leave(rt);
    return rc;
}

int value_equal(struct rt *rt, struct value a, struct value b, bool *equal)
{
    *equal = false;
    if (value_is_number(a) && value_is_number(b)) {
        *equal = equal_numbers(a, b);
        return 0;
    }
    if (a.type != b.type)
        return 0;
    switch (a.type) {
    case V_UNDEFINED:
    case V_NONE:
        *equal = true;
        return 0;
    case V_STR:
        *equal = str_equal(a.s, b.s);
        return rt_bytes(rt, a.s->n == b.s->n ? a.s->n : 0);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_DICT:
        return equal_containers(rt, a, b, equal);
    default:
        *equal = a.seq == b.seq; /* all are pointers */
        return 0;
    }
}

static int sign(int64_t i)
{
    return i < 0 ? -1 : i > 0;
}

/* Integers of which one or both are beyond 64 bits. */
static bool compare_big(struct value a, struct value b, int *order)
{
    int64_t i = 0;
    bool a_big = a.type == V_BIG, b_big = b.type == V_BIG;
    if ((!a_big && !b_big) || (!a_big && !value_as_int(a, &i)) ||
        (!b_big && !value_as_int(b, &i)))
        return false;
    int sa = a_big && *a.s->p == '-' ? -1 : a_big;
    int sb = b_big && *b.s->p == '-' ? -1 : b_big;
    if (sa != sb || !a_big || !b_big)
        *order = sign(sa - sb);
    else if (a.s->n != b.s->n)
        *order = a.s->n < b.s->n ? -sa : sa;
    else
        *order = sa * sign(memcmp(a.s->p, b.s->p, a.s->n));
    return true;
}

static int compare_seqs(struct rt *rt, const struct seq *a, const struct seq *b,
                        int *order, bool *unordered)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (value_equal(rt, a->v[i], b->v[i], &same))
            return -1;
        if (!same)
            return value_compare(rt, a->v[i], b->v[i], order, unordered);
    }
    *order = a->n < b->n ? -1 : a->n > b->n;
    return 0;
}

int value_compare(struct rt *rt, struct value a, struct value b, int *order,
                  bool *unordered)
{
    int64_t i, j;
    double f, g;
    *unordered = false;
    if (value_as_int(a, &i) && value_as_int(b, &j)) {
        *order = i < j ? -1 : i > j;
        return 0;
    }
    if (compare_big(a, b, order))
        return 0;
    if (value_as_float(a, &f) && value_as_float(b, &g)) {
        *order = f < g ? -1 : f > g;
        *unordered = isnan(f) || isnan(g);
        return 0;
    }
    if (a.type == V_STR && b.type == V_STR) {
        /* UTF-8 sorts as code points do. */
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        *order = c ? c : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
        return rt_bytes(rt, n);
    }
    if (a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE)) {
        if (rt_enter(rt))
            return -1;
        int rc = compare_seqs(rt, a.seq, b.seq, order, unordered);
        rt_leave(rt);
        return rc;
    }
    return rt_fail(rt, "cannot compare a %s with a %s", value_type_name(a),
                   value_type_name(b));
}

/* ---- iteration ---- */

static int chars_of(struct rt *rt, const struct str *s, struct seq **out)
{
    struct seq *r = seq_new(rt, s->n < 64 ? s->n : 64);
    for (size_t i = 0; r && i < s->n;) {
        size_t step = str_step(s, i);
        struct str *c = rt_alloc(rt, sizeof *c);
        if (!c)
            return -1;
        *c = (struct str){.p = s->p + i,
                          .mark = s->mark ? s->mark + i : NULL,
                          .n = step,
                          .n_chars = 1,
                          .outside = s->outside};
        if (seq_add(rt, r, value_str(c)))
            return -1;
        i += step;
    }
    *out = r;
    return r ? 0 : -1;
}

int value_items(struct rt *rt, struct value v, const struct seq **out)
{
    static const struct seq empty;
    struct seq *r;
    switch (v.type) {
    case V_UNDEFINED:
        *out = &empty;
        return 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        *out = v.seq;
        return 0;
    case V_ITER: {
        if (!(r = seq_new(rt, 0)))
            return -1;
        r->v = v.seq->n ? v.seq->v + v.seq->at : NULL;
        r->n = r->cap = v.seq->n - v.seq->at;
        v.seq->at = v.seq->n;
        *out = r;
        return 0;
    }
    case V_DICT:
        if (!(r = seq_new(rt, 0)))
            return -1;
        r->v = v.d->k;
        r->n = r->cap = v.d->n;
        *out = r;
        return 0;
    case V_STR:
        if (chars_of(rt, v.s, &r))
            return -1;
        *out = r;
        return 0;
    default:
        return rt_fail(rt, "a %s cannot be iterated", value_type_name(v));
    }
}

int value_length(struct rt *rt, struct value v, size_t *n)
{
    switch (v.type) {
    case V_UNDEFINED:
        *n = 0;
        return 0;
    case V_STR:
        *n = str_chars(v.s);
        return rt_bytes(rt, *n == v.s->n ? 0 : v.s->n);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        *n = v.seq->n;
        return 0;
    case V_DICT:
        *n = v.d->n;
        return 0;
    case V_LOOP:
        *n = v.loop->items->n;
        return 0;
    default:
        return rt_fail(rt, "a %s has no length", value_type_name(v));
    }
}
