/* Global functions: range, dict, namespace, cycler, joiner, raise_exception,
 * strftime_now. */
#include <string.h>
#include <time.h>

#include "text/template/interp.h"

static int g_range(struct rt *rt, const struct args *a, struct value *out)
{
    int64_t start = 0, stop = 0, step = 1;
    if (arg_int(rt, a->v[0], "range: the argument", &stop))
        return -1;
    if (a->v[1].type != V_ABSENT) {
        start = stop;
        if (arg_int(rt, a->v[1], "range: the end", &stop))
            return -1;
    }
    if (arg_int(rt, a->v[2], "range: the step", &step))
        return -1;
    if (step == 0)
        return rt_fail(rt, "range: the step is zero");
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start
                             : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : -(uint64_t)step;
    uint64_t n =
        (step > 0 ? start < stop : start > stop) ? (span - 1) / stride + 1 : 0;
    if (n > TEMPLATE_MAX_RANGE)
        return rt_fail_bound(rt, "items of a range", TEMPLATE_MAX_RANGE);
    struct seq *s = seq_new(rt, (size_t)n);
    if (!s)
        return -1;
    s->start = start;
    s->stop = stop;
    s->stride = step;
    for (uint64_t i = 0; i < n; i++)
        if (seq_add(rt, s,
                    value_int((int64_t)((uint64_t)start + i * (uint64_t)step))))
            return -1;
    *out = value_seq(V_RANGE, s);
    return 0;
}

/* dict(mapping or pairs, name=value, ...), and namespace, which takes the same.
 */
static int g_dict(struct rt *rt, const struct args *a, struct value *out)
{
    const struct call *c = &a->raw;
    struct dict *d = dict_new(rt, c->n_kw);
    if (!d)
        return -1;
    if (c->n_pos > 1)
        return rt_fail(rt, "%s takes one argument without a name",
                       a->row->name);
    if (c->n_pos && c->pos[0].type == V_DICT) {
        const struct dict *from = c->pos[0].d;
        for (size_t i = 0; i < from->n; i++)
            if (dict_set(rt, d, from->k[i], from->v[i]))
                return -1;
    } else if (c->n_pos) {
        const struct seq *pairs, *pair;
        if (value_items(rt, c->pos[0], &pairs))
            return -1;
        for (size_t i = 0; i < pairs->n; i++) {
            if (value_items(rt, pairs->v[i], &pair))
                return -1;
            if (pair->n != 2)
                return rt_fail(rt, "%s: item %zu is not a pair", a->row->name,
                               i);
            if (dict_set(rt, d, pair->v[0], pair->v[1]))
                return -1;
        }
    }
    for (size_t i = 0; i < c->n_kw; i++)
        if (dict_set(rt, d, value_str(c->kw[i].name), c->kw[i].v))
            return -1;
    *out = (struct value){.type = (enum value_type)a->row->tag, .d = d};
    return 0;
}

static int g_cycler(struct rt *rt, const struct args *a, struct value *out)
{
    struct cycler *c = rt_alloc(rt, sizeof *c);
    if (!c)
        return -1;
    if (!a->raw.n_pos)
        return rt_fail(rt, "cycler needs values");
    *c = (struct cycler){.v = a->raw.pos, .n = a->raw.n_pos};
    *out = (struct value){.type = V_CYCLER, .cycler = c};
    return 0;
}

static int g_joiner(struct rt *rt, const struct args *a, struct value *out)
{
    struct cycler *c = rt_alloc(rt, sizeof *c);
    struct value *sep = rt_alloc(rt, sizeof *sep);
    const struct str *comma = str_literal(rt, ", ");
    if (!c || !sep || !comma)
        return -1;
    *sep = a->v[0].type == V_ABSENT ? value_str(comma) : a->v[0];
    *c = (struct cycler){.v = sep, .n = 1};
    *out = (struct value){.type = V_JOINER, .cycler = c};
    return 0;
}

static int g_raise(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    (void)out;
    if (value_to_str(rt, a->v[0], &s))
        return -1;
    return rt_fail(rt, "the template refuses the chat: %s",
                   ERR_SHOW(s->p, s->n));
}

/* What Python's datetime replaces before it asks the C library. */
static int prepare_format(struct rt *rt, const struct str *fmt, char *out,
                          size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < fmt->n; i++) {
        char c = fmt->p[i], next = i + 1 < fmt->n ? fmt->p[i + 1] : '\0';
        if (n + 8 > room || c == '\0')
            return rt_fail(rt, "strftime_now: the format is too long or holds "
                               "a NUL");
        if (c != '%') {
            out[n++] = c;
            continue;
        }
        i++;
        if (next == 'f') { /* microseconds */
            memcpy(out + n, "000000", 6);
            n += 6;
        } else if (next != 'z' && next != 'Z') { /* no time zone */
            out[n++] = '%';
            if (next)
                out[n++] = next;
        }
    }
    out[n] = '\0';
    return 0;
}

static int g_strftime(struct rt *rt, const struct args *a, struct value *out)
{
    enum { ROOM = 1024 };
    const struct str *fmt = NULL;
    char format[ROOM], *text = rt_alloc(rt, ROOM);
    struct tm now;
    time_t t = time(NULL);
    if (!text || arg_str(rt, a->v[0], "strftime_now: the format", &fmt) ||
        prepare_format(rt, fmt, format, sizeof format))
        return -1;
    if (rt->now)
        now = *rt->now;
    else if (!localtime_r(&t, &now))
        return rt_fail(rt, "strftime_now: the time is not known");
    size_t n = *format ? strftime(text, ROOM, format, &now) : 0;
    const struct str *s = str_new(rt, text, n, false);
    *out = value_str(s);
    return s ? 0 : -1;
}

static const struct builtin functions[] = {
    {"cycler", "*", g_cycler, 0, false},
    {"dict", "*", g_dict, V_DICT, false},
    {"joiner", "sep?", g_joiner, 0, false},
    {"namespace", "*", g_dict, V_NAMESPACE, false},
    {"raise_exception", "message", g_raise, 0, false},
    {"range", "!#1 !#2? !#3?", g_range, 0, false},
    {"strftime_now", "format", g_strftime, 0, true},
};

int globals_define(struct rt *rt, struct env *env)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const struct name *name =
            template_name(rt->t, functions[i].name, strlen(functions[i].name));
        if (name &&
            env_set(rt, env, name,
                    (struct value){.type = V_FUNCTION, .fn = &functions[i]}))
            return -1;
    }
    return 0;
}
