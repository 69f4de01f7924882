/* Filters on lists, dicts and iterators. Those that are lazy in Jinja give an
 * iterator here too, but compute it at once. */
#include <string.h>

#include "text/template/interp.h"

static int out_iter(struct seq *s, const char *what, struct value *out)
{
    if (!s)
        return -1;
    s->what = what;
    *out = value_seq(V_ITER, s);
    return 0;
}

static int f_unique(struct rt *rt, const struct args *a, struct value *out)
{
    struct getter g = {.attribute = a->v[1],
                       .ignore_case = !value_truth(a->v[0])};
    const struct seq *items;
    struct dict *seen = dict_new(rt, 0);
    struct seq *s = seq_new(rt, 0);
    if (!seen || !s || value_items(rt, a->self, &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value key, found;
        if (get_key(rt, &g, items->v[i], &key) ||
            dict_get(rt, seen, key, &found))
            return -1;
        if (found.type == V_ABSENT && (dict_set(rt, seen, key, value_none()) ||
                                       seq_add(rt, s, items->v[i])))
            return -1;
    }
    return out_iter(s, "generator", out);
}

static int f_sum(struct rt *rt, const struct args *a, struct value *out)
{
    struct getter g = {.attribute = a->v[0]};
    const struct seq *items;
    struct value sum = a->v[1].type == V_ABSENT ? value_int(0) : a->v[1];
    if (value_items(rt, a->self, &items))
        return -1;
    if (sum.type == V_STR)
        return rt_fail(rt, "sum does not add strings");
    for (size_t i = 0; i < items->n; i++) {
        struct value v, before = sum;
        if (get_key(rt, &g, items->v[i], &v) ||
            binary_op(rt, OP_ADD, before, v, &sum))
            return -1;
    }
    *out = sum;
    return 0;
}

/* ---- parts ---- */

static int f_first(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    struct value v = a->self;
    *out = value_undefined(NULL);
    if (v.type == V_ITER) {
        if (v.seq->at < v.seq->n)
            *out = v.seq->v[v.seq->at++];
        return 0;
    }
    if (value_items(rt, v, &items))
        return -1;
    if (items->n)
        *out = items->v[0];
    return 0;
}

static int f_last(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    *out = value_undefined(NULL);
    if (a->self.type == V_ITER)
        return rt_fail(rt, "last: an iterator has no last item");
    if (value_items(rt, a->self, &items))
        return -1;
    if (items->n)
        *out = items->v[items->n - 1];
    return 0;
}

static int f_length(struct rt *rt, const struct args *a, struct value *out)
{
    size_t n;
    if (value_length(rt, a->self, &n))
        return -1;
    *out = value_int((int64_t)n);
    return 0;
}

static int copy_items(struct rt *rt, struct value v, struct seq **out)
{
    const struct seq *items;
    struct seq *s = value_items(rt, v, &items) ? NULL : seq_new(rt, items->n);
    for (size_t i = 0; s && i < items->n; i++)
        if (seq_add(rt, s, items->v[i]))
            return -1;
    *out = s;
    return s ? 0 : -1;
}

static int f_list(struct rt *rt, const struct args *a, struct value *out)
{
    struct seq *s;
    if (copy_items(rt, a->self, &s))
        return -1;
    *out = value_seq(V_LIST, s);
    return 0;
}

static int f_reverse(struct rt *rt, const struct args *a, struct value *out)
{
    struct seq *s;
    struct value absent = {.type = V_ABSENT};
    if (a->self.type == V_STR)
        return get_slice(rt, a->self, absent, absent, value_int(-1), out);
    if (copy_items(rt, a->self, &s))
        return -1;
    for (size_t i = 0; i < s->n / 2; i++) {
        struct value v = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = v;
    }
    if (a->self.type == V_ITER) {
        *out = value_seq(V_LIST, s);
        return 0;
    }
    return out_iter(s, "reversed", out);
}

static int f_items(struct rt *rt, const struct args *a, struct value *out)
{
    struct seq *s;
    if (a->self.type == V_UNDEFINED) {
        s = seq_new(rt, 0);
    } else if (a->self.type != V_DICT) {
        return rt_fail(rt, "items: a %s is not a dict",
                       value_type_name(a->self));
    } else if (dict_view(rt, a->self.d, DICT_ITEMS, &s)) {
        return -1;
    }
    return out_iter(s, "generator", out);
}

static int f_batch(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    struct seq *rows = seq_new(rt, 0), *row = NULL;
    int64_t n = 0;
    if (!rows || arg_int(rt, a->v[0], "batch: the size", &n) ||
        value_items(rt, a->self, &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        if (!row || (int64_t)row->n == n) {
            row = seq_new(rt, 0);
            if (!row || seq_add(rt, rows, value_seq(V_LIST, row)))
                return -1;
        }
        if (seq_add(rt, row, items->v[i]))
            return -1;
    }
    bool fills = a->v[1].type != V_ABSENT && a->v[1].type != V_NONE;
    while (row && fills && (int64_t)row->n < n)
        if (seq_add(rt, row, a->v[1]))
            return -1;
    return out_iter(rows, "generator", out);
}

static int f_slice(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    struct seq *columns = seq_new(rt, 0);
    int64_t n = 0;
    if (!columns || arg_int(rt, a->v[0], "slice: the number", &n) ||
        value_items(rt, a->self, &items))
        return -1;
    if (n == 0)
        return rt_fail(rt, "slice: the number is zero");
    bool fills = a->v[1].type != V_ABSENT && a->v[1].type != V_NONE;
    size_t at = 0, n_columns = n > 0 ? (size_t)n : 0;
    for (size_t i = 0; i < n_columns; i++) {
        struct seq *column = seq_new(rt, 0);
        size_t extra = items->n % n_columns;
        size_t end = at + items->n / n_columns + (i < extra);
        if (!column || seq_add(rt, columns, value_seq(V_LIST, column)))
            return -1;
        for (; at < end; at++)
            if (seq_add(rt, column, items->v[at]))
                return -1;
        if (fills && i >= extra && seq_add(rt, column, a->v[1]))
            return -1;
    }
    return out_iter(columns, "generator", out);
}

static int f_join(struct rt *rt, const struct args *a, struct value *out)
{
    struct getter g = {.attribute = a->v[1]};
    const struct seq *items;
    const struct str *sep = NULL;
    struct sbuf b = {0};
    if ((a->v[0].type != V_ABSENT && value_to_str(rt, a->v[0], &sep)) ||
        value_items(rt, a->self, &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        if ((i && sep && sbuf_add_str(rt, &b, sep)) ||
            get_key(rt, &g, items->v[i], &v) || value_print(rt, &b, v) ||
            rt_steps(rt, 1))
            return -1;
    }
    const struct str *s = sbuf_str(rt, &b);
    *out = value_str(s);
    return s ? 0 : -1;
}

static int f_default(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *empty = str_literal(rt, "");
    bool missing = a->self.type == V_UNDEFINED ||
                   (value_truth(a->v[1]) && !value_truth(a->self));
    if (!empty)
        return -1;
    *out = !missing                   ? a->self
           : a->v[0].type == V_ABSENT ? value_str(empty)
                                      : a->v[0];
    return 0;
}

static int f_attr(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *name = NULL;
    if (arg_str(rt, a->v[0], "attr: the name", &name))
        return -1;
    if (a->self.type == V_UNDEFINED)
        return rt_fail(rt, "attr: the value is undefined");
    *out = value_undefined(name);
    return get_own_attr(rt, a->self, name, out);
}

/* ---- functions by name ---- */

/* The rest of a call, without its first n values. */
static struct call call_tail(const struct call *c, size_t n)
{
    struct call r = *c;
    r.pos += n;
    r.n_pos -= n;
    return r;
}

static const struct keyword *keyword_of(const struct call *c, const char *name)
{
    for (size_t i = 0; i < c->n_kw; i++)
        if (str_is(c->kw[i].name, name))
            return &c->kw[i];
    return NULL;
}

static int find_named(struct rt *rt, struct value name, bool filter,
                      const struct builtin **out)
{
    const struct str *s = NULL;
    if (arg_str(rt, name, "the name of a filter or test", &s))
        return -1;
    *out = filter ? filter_find(s->p, s->n) : test_find(s->p, s->n);
    return *out ? 0
                : rt_fail(rt, "no %s is named '%s'", filter ? "filter" : "test",
                          ERR_SHOW(s->p, s->n));
}

static int map_attribute(struct rt *rt, const struct args *a,
                         const struct seq *items, struct seq *s)
{
    const struct keyword *attribute = keyword_of(&a->raw, "attribute");
    const struct keyword *fallback = keyword_of(&a->raw, "default");
    struct getter g = {.attribute = attribute->v};
    if (fallback)
        g.fallback = fallback->v;
    if (a->raw.n_kw > (fallback ? 2 : 1))
        return rt_fail(rt, "map: an argument besides attribute and default");
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        if (get_key(rt, &g, items->v[i], &v) || seq_add(rt, s, v))
            return -1;
    }
    return 0;
}

static int f_map(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    const struct builtin *fn;
    struct seq *s = seq_new(rt, 0);
    if (!s)
        return -1;
    if (!value_truth(a->self))
        return out_iter(s, "generator", out);
    if (value_items(rt, a->self, &items))
        return -1;
    if (!a->raw.n_pos && keyword_of(&a->raw, "attribute"))
        return map_attribute(rt, a, items, s) ? -1
                                              : out_iter(s, "generator", out);
    if (!a->raw.n_pos)
        return rt_fail(rt, "map needs a filter or attribute=");
    if (find_named(rt, a->raw.pos[0], true, &fn))
        return -1;
    struct call rest = call_tail(&a->raw, 1);
    if (rt_enter(rt))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        if (builtin_call(rt, fn, items->v[i], &rest, &v) || seq_add(rt, s, v))
            return -1;
    }
    rt_leave(rt);
    return out_iter(s, "generator", out);
}

enum { PICK_REJECT = 1, PICK_ATTR = 2 };

static int f_pick(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    const struct builtin *test = NULL;
    struct getter g = {.attribute = {.type = V_ABSENT}};
    struct seq *s = seq_new(rt, 0);
    size_t off = (a->row->tag & PICK_ATTR) ? 1 : 0;
    if (!s)
        return -1;
    if (!value_truth(a->self))
        return out_iter(s, "generator", out);
    if (a->raw.n_pos < off)
        return rt_fail(rt, "%s needs the name of an attribute", a->row->name);
    if (off)
        g.attribute = a->raw.pos[0];
    if (value_items(rt, a->self, &items) ||
        (a->raw.n_pos > off && find_named(rt, a->raw.pos[off], false, &test)))
        return -1;
    struct call rest =
        call_tail(&a->raw, a->raw.n_pos > off ? off + 1 : a->raw.n_pos);
    for (size_t i = 0; i < items->n; i++) {
        struct value v, holds;
        if (get_key(rt, &g, items->v[i], &v))
            return -1;
        holds = v;
        if (test && builtin_call(rt, test, v, &rest, &holds))
            return -1;
        if (value_truth(holds) != ((a->row->tag & PICK_REJECT) != 0) &&
            seq_add(rt, s, items->v[i]))
            return -1;
    }
    bool chosen = false;
    for (size_t i = 0; i < rest.n_pos; i++)
        chosen |= value_is_outside(rest.pos[i]);
    if (out_iter(s, "generator", out))
        return -1;
    return chosen ? value_mark(rt, out) : 0;
}

const struct builtin filters_seq[] = {
    {"attr", "!name", f_attr, 0, false},
    {"batch", "!linecount fill_with?", f_batch, 0, false},
    {"count", "", f_length, 0, false},
    {"d", "default_value? boolean?", f_default, 0, false},
    {"default", "default_value? boolean?", f_default, 0, false},
    {"first", "", f_first, 0, false},
    {"items", "", f_items, 0, false},
    {"join", "d? attribute?", f_join, 0, false},
    {"last", "", f_last, 0, false},
    {"length", "", f_length, 0, false},
    {"list", "", f_list, 0, false},
    {"map", "*", f_map, 0, false},
    {"reject", "*", f_pick, PICK_REJECT, false},
    {"rejectattr", "*", f_pick, PICK_REJECT | PICK_ATTR, false},
    {"reverse", "", f_reverse, 0, false},
    {"select", "*", f_pick, 0, false},
    {"selectattr", "*", f_pick, PICK_ATTR, false},
    {"slice", "!slices fill_with?", f_slice, 0, false},
    {"sum", "attribute? start?", f_sum, 0, false},
    {"unique", "case_sensitive? attribute?", f_unique, 0, true},
};
const size_t n_filters_seq = sizeof filters_seq / sizeof *filters_seq;

const struct builtin *filter_find(const char *name, size_t n)
{
    const struct {
        const struct builtin *rows;
        size_t n;
    } tables[] = {
        {filters_text, n_filters_text},
        {filters_number, n_filters_number},
        {filters_seq, n_filters_seq},
        {filters_sort, n_filters_sort},
    };
    const struct builtin *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !found; i++)
        found = function_find(tables[i].rows, tables[i].n, name, n);
    return found;
}
