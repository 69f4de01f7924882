/* Values as text: Python's str() and repr(), and json.dumps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/template/interp.h"
#include "text/unicode.h"

/* ---- numbers ---- */

int float_repr(struct rt *rt, struct sbuf *b, double f, bool outside)
{
    if (isnan(f) || isinf(f))
        return sbuf_puts(rt, b,
                         isnan(f) ? "nan"
                         : f < 0  ? "-inf"
                                  : "inf",
                         outside);
    /* The JSON writer knows Python's form of a double. */
    struct buf text = {0}, repr = {0};
    int rc = buf_json_double(&text, f) ||
             (strpbrk(text.data, ".eE") ? 0 : buf_puts(&text, ".0"));
    struct json_value v = {
        .type = JSON_NUMBER, .str = text.data, .len = text.len};
    rc = rc || json_dump_python(&repr, &v);
    rc =
        rc ? err_oom(rt->e, 32) : sbuf_add(rt, b, repr.data, repr.len, outside);
    buf_free(&text);
    buf_free(&repr);
    return rc;
}

static int print_int(struct rt *rt, struct sbuf *b, int64_t i, bool outside)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    return sbuf_puts(rt, b, text, outside);
}

/* ---- repr ---- */

static int repr_char(struct rt *rt, struct sbuf *b, const char *p, size_t n,
                     char quote, bool outside)
{
    uint32_t cp = (unsigned char)*p;
    char text[16];
    utf8_decode(p, n, &cp, NULL);
    if (cp == '\\' || cp == (unsigned char)quote)
        snprintf(text, sizeof text, "\\%c", (char)cp);
    else if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(text, sizeof text, "\\%c",
                 cp == '\n'   ? 'n'
                 : cp == '\r' ? 'r'
                              : 't');
    else if (unicode_printable(cp))
        return sbuf_add(rt, b, p, n, outside);
    else
        snprintf(text, sizeof text,
                 cp < 0x100     ? "\\x%02x"
                 : cp < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                 cp);
    return sbuf_puts(rt, b, text, outside);
}

static int repr_str(struct rt *rt, struct sbuf *b, const struct str *s)
{
    bool outside = str_has_outside(s);
    char quote[2] = "'";
    if (memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n))
        *quote = '"';
    if ((s->safe && sbuf_puts(rt, b, "Markup(", false)) ||
        sbuf_puts(rt, b, quote, outside))
        return -1;
    for (size_t i = 0, n; i < s->n; i += n) {
        n = str_step(s, i);
        if (repr_char(rt, b, s->p + i, n, *quote, outside))
            return -1;
    }
    return sbuf_puts(rt, b, quote, outside) ||
                   (s->safe && sbuf_puts(rt, b, ")", false))
               ? -1
               : 0;
}

static int repr_items(struct rt *rt, struct sbuf *b, const struct seq *s,
                      const char *open, const char *close)
{
    if (sbuf_puts(rt, b, open, false))
        return -1;
    for (size_t i = 0; i < s->n; i++)
        if ((i && sbuf_puts(rt, b, ", ", false)) || value_repr(rt, b, s->v[i]))
            return -1;
    return sbuf_puts(rt, b, close, false);
}

static int repr_dict(struct rt *rt, struct sbuf *b, const struct dict *d)
{
    if (sbuf_puts(rt, b, "{", false))
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if ((i && sbuf_puts(rt, b, ", ", false)) ||
            value_repr(rt, b, d->k[i]) || sbuf_puts(rt, b, ": ", false) ||
            value_repr(rt, b, d->v[i]))
            return -1;
    return sbuf_puts(rt, b, "}", false);
}

static int repr_range(struct rt *rt, struct sbuf *b, const struct seq *s,
                      bool outside)
{
    char text[80];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)s->start,
                     (long long)s->stop);
    snprintf(text + n, sizeof text - (size_t)n,
             s->stride == 1 ? ")" : ", %lld)", (long long)s->stride);
    return sbuf_puts(rt, b, text, outside);
}

static int repr_loop(struct rt *rt, struct sbuf *b, const struct loop *l)
{
    char text[80];
    snprintf(text, sizeof text, "<LoopContext %zu/%zu>", l->at + 1,
             l->items->n);
    return sbuf_puts(rt, b, text, l->outside);
}

static int repr_object(struct rt *rt, struct sbuf *b, struct value v)
{
    switch (v.type) {
    case V_LIST:
        return repr_items(rt, b, v.seq, "[", "]");
    case V_TUPLE:
        return repr_items(rt, b, v.seq, "(", v.seq->n == 1 ? ",)" : ")");
    case V_RANGE:
        return repr_range(rt, b, v.seq, v.outside);
    case V_VIEW:
        if (sbuf_puts(rt, b, v.seq->what, false))
            return -1;
        return repr_items(rt, b, v.seq, "([", "])");
    case V_DICT:
        return repr_dict(rt, b, v.d);
    case V_NAMESPACE:
        return sbuf_puts(rt, b, "<Namespace ", false) ||
                       repr_dict(rt, b, v.d) || sbuf_puts(rt, b, ">", false)
                   ? -1
                   : 0;
    case V_LOOP:
        return repr_loop(rt, b, v.loop);
    case V_MACRO: {
        const struct name *name = v.macro->node->name;
        if (!name)
            return sbuf_puts(rt, b, "<Macro anonymous>", false);
        return sbuf_puts(rt, b, "<Macro ", false) ||
                       repr_str(rt, b, &name->str) ||
                       sbuf_puts(rt, b, ">", false)
                   ? -1
                   : 0;
    }
    default: /* Python prints an address, which no template can want */
        return sbuf_puts(rt, b, "<", false) ||
                       sbuf_puts(rt, b, value_type_name(v), false) ||
                       sbuf_puts(rt, b, ">", false)
                   ? -1
                   : 0;
    }
}

int value_repr(struct rt *rt, struct sbuf *b, struct value v)
{
    switch (v.type) {
    case V_UNDEFINED:
    case V_ABSENT:
        return sbuf_puts(rt, b, "Undefined", false);
    case V_NONE:
        return sbuf_puts(rt, b, "None", v.outside);
    case V_BOOL:
        return sbuf_puts(rt, b, v.b ? "True" : "False", v.outside);
    case V_INT:
        return print_int(rt, b, v.i, v.outside);
    case V_BIG:
        return sbuf_add_str(rt, b, v.s);
    case V_FLOAT:
        return float_repr(rt, b, v.f, v.outside);
    case V_STR:
        return repr_str(rt, b, v.s);
    default:
        break;
    }
    if (rt_enter(rt))
        return -1;
    int rc = repr_object(rt, b, v);
    rt_leave(rt);
    return rc;
}

int value_print(struct rt *rt, struct sbuf *b, struct value v)
{
    if (v.type == V_UNDEFINED)
        return 0;
    if (v.type == V_STR)
        return sbuf_add_str(rt, b, v.s);
    return value_repr(rt, b, v);
}

int value_to_str(struct rt *rt, struct value v, const struct str **out)
{
    struct sbuf b = {0};
    if (v.type == V_STR) {
        *out = v.s;
        return 0;
    }
    if (value_print(rt, &b, v))
        return -1;
    *out = sbuf_str(rt, &b);
    return *out ? 0 : -1;
}

/* ---- JSON ---- */

static int json_char(struct rt *rt, struct sbuf *b, const char *p, size_t n,
                     bool ensure_ascii, bool outside)
{
    static const char plain[] = "\"\\\n\r\t\f\b", escape[] = "\"\\nrtfb";
    const char *at = *p ? strchr(plain, *p) : NULL;
    uint32_t cp = (unsigned char)*p;
    char text[16];
    utf8_decode(p, n, &cp, NULL);
    if (at)
        snprintf(text, sizeof text, "\\%c", escape[at - plain]);
    else if (cp >= 0x20 && !(ensure_ascii && cp >= 0x7F))
        return sbuf_add(rt, b, p, n, outside);
    else if (cp < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", cp);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x",
                 0xD800 + ((cp - 0x10000) >> 10),
                 0xDC00 + ((cp - 0x10000) & 0x3FF));
    return sbuf_puts(rt, b, text, outside);
}

static int json_str(struct rt *rt, struct sbuf *b, const struct str *s,
                    const struct json_style *style, bool outside)
{
    if (sbuf_puts(rt, b, "\"", outside))
        return -1;
    for (size_t i = 0, n; i < s->n; i += n) {
        /* Most text needs no escapes: add it in runs. */
        size_t run = i;
        while (run < s->n && (unsigned char)s->p[run] >= 0x20 &&
               (unsigned char)s->p[run] < 0x7F && s->p[run] != '"' &&
               s->p[run] != '\\')
            run++;
        n = run - i;
        if (n) {
            if (sbuf_add(rt, b, s->p + i, n, outside))
                return -1;
            continue;
        }
        n = str_step(s, i);
        if (json_char(rt, b, s->p + i, n, style->ensure_ascii, outside))
            return -1;
    }
    return sbuf_puts(rt, b, "\"", outside);
}

struct json_out {
    struct sbuf *b;
    const struct json_style *style;
    bool outside; /* of the whole text */
    size_t level;
};

static int json_value_out(struct rt *rt, struct json_out *o, struct value v);

static int json_newline(struct rt *rt, struct json_out *o)
{
    if (!o->style->indent)
        return 0;
    if (sbuf_puts(rt, o->b, "\n", o->outside))
        return -1;
    for (size_t i = 0; i < o->level; i++)
        if (sbuf_add_str(rt, o->b, o->style->indent))
            return -1;
    return 0;
}

static int json_next(struct rt *rt, struct json_out *o, size_t i)
{
    if (i && sbuf_add_str(rt, o->b, o->style->item_sep))
        return -1;
    return json_newline(rt, o);
}

static int json_seq(struct rt *rt, struct json_out *o, const struct seq *s)
{
    if (s->n == 0)
        return sbuf_puts(rt, o->b, "[]", o->outside);
    if (sbuf_puts(rt, o->b, "[", o->outside))
        return -1;
    o->level++;
    for (size_t i = 0; i < s->n; i++)
        if (json_next(rt, o, i) || json_value_out(rt, o, s->v[i]))
            return -1;
    o->level--;
    return json_newline(rt, o) || sbuf_puts(rt, o->b, "]", o->outside) ? -1 : 0;
}

/* A key that is not a string becomes the string that JSON would print. */
static int json_key(struct rt *rt, struct json_out *o, struct value k)
{
    if (k.type == V_STR)
        return json_str(rt, o->b, k.s, o->style, o->outside);
    if (k.type != V_NONE && !value_is_number(k))
        return rt_fail(rt, "tojson: a key is a %s", value_type_name(k));
    return sbuf_puts(rt, o->b, "\"", o->outside) || json_value_out(rt, o, k) ||
                   sbuf_puts(rt, o->b, "\"", o->outside)
               ? -1
               : 0;
}

/* Indices of d in the order of output: insertion, or by key. */
static int json_order(struct rt *rt, const struct dict *d, bool sorted,
                      size_t **out)
{
    size_t *order = rt_alloc_n(rt, d->n, sizeof *order);
    for (size_t i = 0; order && i < d->n; i++) {
        size_t at = i;
        for (int c; sorted && at > 0; at--) {
            bool unordered;
            if (value_compare(rt, d->k[order[at - 1]], d->k[i], &c,
                              &unordered) ||
                rt_steps(rt, 1))
                return -1;
            if (c <= 0)
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    *out = order;
    return order ? 0 : -1;
}

static int json_dict(struct rt *rt, struct json_out *o, const struct dict *d)
{
    size_t *order;
    if (d->n == 0)
        return sbuf_puts(rt, o->b, "{}", o->outside);
    if (json_order(rt, d, o->style->sort_keys, &order) ||
        sbuf_puts(rt, o->b, "{", o->outside))
        return -1;
    o->level++;
    for (size_t i = 0; i < d->n; i++)
        if (json_next(rt, o, i) || json_key(rt, o, d->k[order[i]]) ||
            sbuf_add_str(rt, o->b, o->style->key_sep) ||
            json_value_out(rt, o, d->v[order[i]]))
            return -1;
    o->level--;
    return json_newline(rt, o) || sbuf_puts(rt, o->b, "}", o->outside) ? -1 : 0;
}

static int json_scalar(struct rt *rt, struct json_out *o, struct value v)
{
    switch (v.type) {
    case V_NONE:
        return sbuf_puts(rt, o->b, "null", o->outside);
    case V_BOOL:
        return sbuf_puts(rt, o->b, v.b ? "true" : "false", o->outside);
    case V_INT:
        return print_int(rt, o->b, v.i, o->outside);
    case V_BIG:
        return sbuf_add(rt, o->b, v.s->p, v.s->n, o->outside);
    case V_FLOAT:
        if (isnan(v.f) || isinf(v.f))
            return sbuf_puts(rt, o->b,
                             isnan(v.f) ? "NaN"
                             : v.f < 0  ? "-Infinity"
                                        : "Infinity",
                             o->outside);
        return float_repr(rt, o->b, v.f, o->outside);
    case V_STR:
        return json_str(rt, o->b, v.s, o->style, o->outside);
    default:
        return rt_fail(rt, "tojson: a %s cannot be JSON", value_type_name(v));
    }
}

static int json_value_out(struct rt *rt, struct json_out *o, struct value v)
{
    bool list = v.type == V_LIST || v.type == V_TUPLE;
    if (!list && v.type != V_DICT)
        return json_scalar(rt, o, v);
    if (rt_enter(rt))
        return -1;
    int rc = list ? json_seq(rt, o, v.seq) : json_dict(rt, o, v.d);
    rt_leave(rt);
    return rc;
}

int value_to_json(struct rt *rt, struct sbuf *b, struct value v,
                  const struct json_style *style)
{
    struct json_out o = {.b = b, .style = style};
    if (value_outside(rt, v, &o.outside))
        return -1;
    return json_value_out(rt, &o, v);
}
