/* Attributes, items and slices. */
#include <string.h>

#include "text/template/interp.h"

/* ---- attributes ---- */

enum loop_attr {
    LOOP_INDEX,
    LOOP_INDEX0,
    LOOP_REVINDEX,
    LOOP_REVINDEX0,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_LENGTH,
    LOOP_PREVITEM,
    LOOP_NEXTITEM,
    LOOP_DEPTH,
    LOOP_DEPTH0,
    N_LOOP_ATTRS
};

static const char *const loop_attrs[N_LOOP_ATTRS] = {
    [LOOP_INDEX] = "index",       [LOOP_INDEX0] = "index0",
    [LOOP_REVINDEX] = "revindex", [LOOP_REVINDEX0] = "revindex0",
    [LOOP_FIRST] = "first",       [LOOP_LAST] = "last",
    [LOOP_LENGTH] = "length",     [LOOP_PREVITEM] = "previtem",
    [LOOP_NEXTITEM] = "nextitem", [LOOP_DEPTH] = "depth",
    [LOOP_DEPTH0] = "depth0",
};

static struct value loop_attr(const struct loop *l, int attr)
{
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    switch (attr) {
    case LOOP_INDEX:
        return value_int(at + 1);
    case LOOP_INDEX0:
        return value_int(at);
    case LOOP_REVINDEX:
        return value_int(n - at);
    case LOOP_REVINDEX0:
        return value_int(n - at - 1);
    case LOOP_FIRST:
        return value_bool(at == 0);
    case LOOP_LAST:
        return value_bool(at + 1 >= n);
    case LOOP_LENGTH:
        return value_int(n);
    case LOOP_PREVITEM:
        return at > 0 ? l->items->v[at - 1] : value_undefined(NULL);
    case LOOP_NEXTITEM:
        return at + 1 < n ? l->items->v[at + 1] : value_undefined(NULL);
    case LOOP_DEPTH:
        return value_int(l->depth + 1);
    default:
        return value_int(l->depth);
    }
}

static int macro_attr(struct rt *rt, const struct macro *m,
                      const struct str *name, struct value *out)
{
    const struct macro_node *node = m->node;
    if (str_is(name, "name")) {
        *out = node->name ? value_str(&node->name->str) : value_none();
    } else if (str_is(name, "arguments")) {
        struct seq *s = seq_new(rt, node->n_params);
        for (size_t i = 0; s && i < node->n_params; i++)
            if (seq_add(rt, s, value_str(&node->params[i]->str)))
                return -1;
        *out = value_seq(V_TUPLE, s);
        return s ? 0 : -1;
    } else if (str_is(name, "catch_kwargs")) {
        *out = value_bool(node->uses_kwargs);
    } else if (str_is(name, "catch_varargs")) {
        *out = value_bool(node->uses_varargs);
    } else if (str_is(name, "caller")) {
        *out = value_bool(node->uses_caller);
    }
    return 0;
}

int get_own_attr(struct rt *rt, struct value v, const struct str *name,
                 struct value *out)
{
    const struct builtin *fn = method_find(v.type, name->p, name->n);
    if (fn) {
        struct method *m = rt_alloc(rt, sizeof *m);
        if (!m)
            return -1;
        *m = (struct method){v, fn};
        *out = (struct value){.type = V_METHOD, .method = m};
        return 0;
    }
    if (v.type == V_LOOP) {
        for (int i = 0; i < N_LOOP_ATTRS; i++)
            if (str_is(name, loop_attrs[i])) {
                *out = loop_attr(v.loop, i);
                out->outside |= v.loop->outside && value_is_number(*out);
            }
    } else if (v.type == V_NAMESPACE) {
        const struct value *found = dict_find(v.d, name->p, name->n);
        if (found)
            *out = *found;
    } else if (v.type == V_TUPLE && v.seq->what) { /* of groupby */
        if (str_is(name, "grouper"))
            *out = v.seq->v[0];
        else if (str_is(name, "list"))
            *out = v.seq->v[1];
    } else if (v.type == V_CYCLER) {
        if (str_is(name, "current"))
            *out = v.cycler->v[v.cycler->at];
    } else if (v.type == V_MACRO) {
        return macro_attr(rt, v.macro, name, out);
    }
    return 0;
}

static int fail_undefined(struct rt *rt, struct value v)
{
    if (v.s)
        return rt_fail(rt, "'%s' is undefined", ERR_SHOW(v.s->p, v.s->n));
    return rt_fail(rt, "the value is undefined");
}

/* Jinja tries the attribute first and then the key. */
int get_attr(struct rt *rt, struct value v, const struct str *name,
             struct value *out)
{
    if (v.type == V_UNDEFINED)
        return fail_undefined(rt, v);
    *out = value_undefined(name);
    if (get_own_attr(rt, v, name, out))
        return -1;
    if (out->type == V_UNDEFINED && v.type == V_DICT) {
        const struct value *found = dict_find(v.d, name->p, name->n);
        if (found)
            *out = *found;
        return rt_steps(rt, v.d->n / 8 + 1);
    }
    return 0;
}

/* ---- items ---- */

static int seq_item(struct rt *rt, const struct seq *s, int64_t i,
                    struct value *out)
{
    int64_t n = (int64_t)s->n;
    (void)rt;
    i = i < 0 ? i + n : i;
    if (i >= 0 && i < n)
        *out = s->v[i];
    return 0;
}

static int str_item(struct rt *rt, const struct str *s, int64_t i,
                    struct value *out)
{
    int64_t n = (int64_t)str_chars(s);
    i = i < 0 ? i + n : i;
    if (i < 0 || i >= n)
        return 0;
    size_t at = str_offset(s, (size_t)i);
    const struct str *c = str_sub(rt, s, at, at + str_step(s, at));
    if (!c)
        return -1;
    *out = value_str(c);
    return rt_bytes(rt, (size_t)n == s->n ? 1 : 4 * s->n);
}

/* The key first and then the attribute, in Jinja's other order. */
static int find_item(struct rt *rt, struct value v, struct value key,
                     struct value *out)
{
    int64_t i;
    if (v.type == V_UNDEFINED)
        return fail_undefined(rt, v);
    *out = value_undefined(key.type == V_STR ? key.s : NULL);
    if (v.type == V_DICT) {
        struct value found = {.type = V_ABSENT};
        if (key.type != V_LIST && key.type != V_DICT &&
            dict_get(rt, v.d, key, &found))
            return -1;
        if (found.type != V_ABSENT) {
            *out = found;
            return 0;
        }
    }
    if (key.type == V_STR)
        return get_own_attr(rt, v, key.s, out);
    if (!value_as_int(key, &i))
        return 0;
    if (v.type == V_STR)
        return str_item(rt, v.s, i, out);
    if (v.type == V_LIST || v.type == V_TUPLE || v.type == V_RANGE)
        return seq_item(rt, v.seq, i, out);
    return 0;
}

int get_item(struct rt *rt, struct value v, struct value key, struct value *out)
{
    if (find_item(rt, v, key, out))
        return -1;
    return value_is_outside(key) ? value_mark(rt, out) : 0;
}

/* ---- slices ---- */

struct bounds {
    int64_t start, stop, step;
    size_t n; /* how many items */
};

static int bound(struct rt *rt, struct value v, int64_t absent, int64_t low,
                 int64_t high, int64_t n, int64_t *out)
{
    int64_t i;
    *out = absent;
    if (v.type == V_ABSENT || v.type == V_NONE)
        return 0;
    if (!value_as_int(v, &i))
        return rt_fail(rt, "a slice needs integers, not a %s",
                       value_type_name(v));
    if (i < 0)
        i = i < -n ? low : i + n;
    *out = i < low ? low : i > high ? high : i;
    return 0;
}

/* Python's slice.indices. */
static int slice_bounds(struct rt *rt, struct value start, struct value stop,
                        struct value step, size_t len, struct bounds *b)
{
    int64_t n = (int64_t)len;
    b->step = 1;
    if (step.type != V_ABSENT && step.type != V_NONE &&
        !value_as_int(step, &b->step))
        return rt_fail(rt, "a slice needs integers, not a %s",
                       value_type_name(step));
    if (b->step == 0)
        return rt_fail(rt, "the step of a slice is zero");
    if (b->step < -n - 1) /* keeps sums of it in range; the result is equal */
        b->step = -n - 1;
    if (b->step > n + 1)
        b->step = n + 1;
    bool up = b->step > 0;
    int64_t low = up ? 0 : -1, high = up ? n : n - 1;
    if (bound(rt, start, up ? low : high, low, high, n, &b->start) ||
        bound(rt, stop, up ? high : low, low, high, n, &b->stop))
        return -1;
    int64_t span = up ? b->stop - b->start : b->start - b->stop;
    int64_t stride = up ? b->step : -b->step;
    b->n = span > 0 ? (size_t)((span + stride - 1) / stride) : 0;
    return 0;
}

static int slice_str(struct rt *rt, const struct str *s, const struct bounds *b,
                     struct value *out)
{
    struct sbuf buf = {0};
    const struct str *r;
    if (rt_bytes(rt, s->n))
        return -1;
    if (b->step == 1) {
        size_t begin = str_offset(s, (size_t)b->start);
        size_t end = b->n ? str_offset(s, (size_t)b->stop) : begin;
        r = str_sub(rt, s, begin, end);
    } else {
        size_t *offsets = rt_alloc_n(rt, b->n + 1, sizeof *offsets);
        if (!offsets)
            return -1;
        /* One walk over the text, then the characters in the slice's order. */
        size_t at = 0, first = (size_t)b->start;
        size_t stride = (size_t)(b->step > 0 ? b->step : -b->step);
        for (size_t i = 0; at < s->n; i++, at += str_step(s, at)) {
            size_t d = b->step > 0 ? i - first : first - i;
            if ((b->step > 0 ? i >= first : i <= first) && d % stride == 0 &&
                d / stride < b->n)
                offsets[d / stride] = at;
        }
        for (size_t i = 0; i < b->n; i++) {
            at = offsets[i];
            const struct str *c = str_sub(rt, s, at, at + str_step(s, at));
            if (!c || sbuf_add_str(rt, &buf, c))
                return -1;
        }
        r = sbuf_str(rt, &buf);
    }
    if (!r)
        return -1;
    *out = value_str(r);
    return 0;
}

static int slice(struct rt *rt, struct value v, struct value start,
                 struct value stop, struct value step, struct value *out)
{
    struct bounds b;
    bool seq = v.type == V_LIST || v.type == V_TUPLE || v.type == V_RANGE;
    if (v.type == V_UNDEFINED)
        return fail_undefined(rt, v);
    if (v.type != V_STR && !seq)
        return rt_fail(rt, "a %s cannot be sliced", value_type_name(v));
    if (slice_bounds(rt, start, stop, step, seq ? v.seq->n : str_chars(v.s),
                     &b))
        return -1;
    if (!seq)
        return slice_str(rt, v.s, &b, out);
    struct seq *r = seq_new(rt, b.n);
    for (size_t i = 0; r && i < b.n; i++)
        if (seq_add(rt, r, v.seq->v[b.start + (int64_t)i * b.step]))
            return -1;
    if (!r)
        return -1;
    if (v.type == V_RANGE) { /* bounded by TEMPLATE_MAX_RANGE items */
        r->start = v.seq->start + b.start * v.seq->stride;
        r->stop = v.seq->start + b.stop * v.seq->stride;
        r->stride = v.seq->stride * b.step;
    }
    *out = value_seq(v.type, r);
    out->outside = v.outside;
    return 0;
}

int get_slice(struct rt *rt, struct value v, struct value start,
              struct value stop, struct value step, struct value *out)
{
    if (slice(rt, v, start, stop, step, out))
        return -1;
    return start.outside || stop.outside || step.outside ? value_mark(rt, out)
                                                         : 0;
}
