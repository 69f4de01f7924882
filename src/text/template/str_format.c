/* Python's two ways to format: "..." % values, and "...".format(values). Text
 * of the format is its own, text of a value keeps the value's origin. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template/interp.h"

enum { MAX_PRECISION = 100, NUMBER_ROOM = 512 };

struct spec {
    const struct str *fill; /* NULL: blank */
    char align;             /* < > ^ = or NUL */
    char sign;              /* + blank - or NUL */
    bool alt, zero, comma;
    int64_t width, precision; /* -1: not given */
    char type;                /* NUL: not given */
};

/* A decimal number of the format; the bound keeps sums in range. */
static int read_number(struct rt *rt, const struct str *s, size_t *i,
                       int64_t *out)
{
    *out = -1;
    for (; *i < s->n && s->p[*i] >= '0' && s->p[*i] <= '9'; ++*i) {
        *out = (*out < 0 ? 0 : *out) * 10 + (s->p[*i] - '0');
        if (*out > (int64_t)TEMPLATE_MAX_OUTPUT)
            return rt_fail_bound(rt, "width of a format", TEMPLATE_MAX_OUTPUT);
    }
    return 0;
}

/* ---- numbers ---- */

static void insert_commas(char *digits)
{
    size_t n = strspn(digits, "0123456789");
    for (size_t at = n; at > 3;) {
        at -= 3;
        memmove(digits + at + 1, digits + at, strlen(digits + at) + 1);
        digits[at] = ',';
    }
}

static void put_base(char *out, uint64_t u, unsigned base, bool upper)
{
    char text[72];
    size_t n = sizeof text;
    text[--n] = '\0';
    do
        text[--n] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    memcpy(out, text + n, sizeof text - n);
}

/* |v| as digits to out, its prefix to prefix. */
static int integer_text(struct rt *rt, const struct spec *f, int64_t i,
                        char *out, const char **prefix)
{
    uint64_t u = i < 0 ? -(uint64_t)i : (uint64_t)i;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    put_base(out, u, base, f->type == 'X');
    *prefix = !f->alt          ? ""
              : f->type == 'x' ? "0x"
              : f->type == 'X' ? "0X"
              : f->type == 'o' ? "0o"
              : f->type == 'b' ? "0b"
                               : "";
    if (f->precision > MAX_PRECISION)
        return rt_fail(rt, "the precision of a format is too large");
    for (size_t n = strlen(out); (int64_t)n < f->precision; n++) {
        memmove(out + 1, out, n + 1);
        out[0] = '0';
    }
    if (f->comma)
        insert_commas(out);
    return 0;
}

static int float_text(struct rt *rt, const struct spec *f, double v, char *out)
{
    char how[] = "%.*f";
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    if (f->precision > MAX_PRECISION)
        return rt_fail(rt, "the precision of a format is too large");
    if (isnan(v) || isinf(v)) {
        strcpy(out, isnan(v) ? "nan" : "inf");
        return 0;
    }
    if (f->type == '%') {
        v *= 100;
    } else if (f->type == '\0') {
        struct sbuf b = {0};
        if (f->precision < 0) {
            if (float_repr(rt, &b, fabs(v), false))
                return -1;
            memcpy(out, b.p, b.len);
            out[b.len] = '\0';
            return 0;
        }
        how[3] = 'g';
    } else {
        how[3] = f->type == 'n' ? 'g' : f->type;
    }
    snprintf(out, NUMBER_ROOM, how, precision, fabs(v));
    if (f->type == '%')
        strcat(out, "%");
    if (f->comma)
        insert_commas(out);
    return 0;
}

/* ---- padding ---- */

static int pad(struct rt *rt, struct sbuf *b, const struct spec *f, int64_t n)
{
    for (; n > 0; n--)
        if (f->fill ? sbuf_add_str(rt, b, f->fill)
                    : sbuf_fill(rt, b, f->zero ? '0' : ' ', 1))
            return -1;
    return 0;
}

/* sign and prefix, then digits, padded to the width. */
static int put_number(struct rt *rt, struct sbuf *b, const struct spec *f,
                      bool negative, const char *prefix, const char *digits,
                      bool outside)
{
    char head[8];
    snprintf(head, sizeof head, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    int64_t room = f->width - (int64_t)(strlen(head) + strlen(digits));
    char align = f->align ? f->align : f->zero ? '=' : '>';
    int64_t left = align == '<' ? 0 : align == '^' ? room / 2 : room;
    struct spec blank = *f;
    blank.zero = f->zero && align == '=';
    if ((align != '=' && pad(rt, b, &blank, left)) ||
        sbuf_puts(rt, b, head, outside) ||
        (align == '=' && pad(rt, b, &blank, left)) ||
        sbuf_puts(rt, b, digits, outside))
        return -1;
    return room > 0 ? pad(rt, b, &blank, room - left) : 0;
}

static int put_str(struct rt *rt, struct sbuf *b, const struct spec *f,
                   const struct str *s)
{
    if (f->precision >= 0 && (size_t)f->precision < str_chars(s))
        s = str_sub(rt, s, 0, str_offset(s, (size_t)f->precision));
    if (!s)
        return -1;
    int64_t room = f->width - (int64_t)str_chars(s);
    int64_t left = f->align == '>' ? room : f->align == '^' ? room / 2 : 0;
    if (pad(rt, b, f, left) || sbuf_add_str(rt, b, s))
        return -1;
    return room > 0 ? pad(rt, b, f, room - left) : 0;
}

static int put_value(struct rt *rt, struct sbuf *b, const struct spec *f,
                     struct value v)
{
    char text[NUMBER_ROOM + 200] = "";
    const char *prefix = "";
    double d;
    int64_t i;
    bool whole = value_as_int(v, &i);
    if (f->type && strchr("eEfFgG%", f->type)) {
        if (!value_as_float(v, &d))
            return rt_fail(rt, "a format needs a number, got a %s",
                           value_type_name(v));
    } else if (whole) {
        if (integer_text(rt, f, i, text, &prefix))
            return -1;
        return put_number(rt, b, f, i < 0, prefix, text, v.outside);
    } else if (v.type == V_BIG) {
        bool negative = *v.s->p == '-';
        const struct str *digits = str_sub(rt, v.s, negative, v.s->n);
        char *copy = digits ? rt_alloc(rt, digits->n + 1) : NULL;
        if (!copy)
            return -1;
        memcpy(copy, digits->p, digits->n);
        copy[digits->n] = '\0';
        return put_number(rt, b, f, negative, "", copy, v.outside);
    } else if (v.type == V_FLOAT) {
        d = v.f;
    } else {
        return rt_fail(rt, "a format needs a number, got a %s",
                       value_type_name(v));
    }
    if (float_text(rt, f, d, text))
        return -1;
    return put_number(rt, b, f, signbit(d), "", text, v.outside);
}

/* ---- percent ---- */

static void percent_flags(const struct str *s, size_t *i, struct spec *f)
{
    for (; *i < s->n; ++*i) {
        char c = s->p[*i];
        if (c == '-')
            f->align = '<';
        else if (c == '+')
            f->sign = '+';
        else if (c == ' ')
            f->sign = f->sign ? f->sign : ' ';
        else if (c == '0')
            f->zero = true;
        else if (c == '#')
            f->alt = true;
        else
            break;
    }
}

struct percent {
    const struct str *fmt;
    struct value args;
    const struct seq *list; /* the positional ones */
    size_t used;
    bool named;
};

static int percent_next(struct rt *rt, struct percent *p, struct value *out)
{
    if (p->used >= p->list->n)
        return rt_fail(rt, "a format has too few values");
    *out = p->list->v[p->used++];
    return 0;
}

/* The value of %(name). *i is after the opening parenthesis. */
static int percent_named(struct rt *rt, struct percent *p, size_t *i,
                         struct value *out)
{
    const char *end = memchr(p->fmt->p + *i, ')', p->fmt->n - *i);
    if (!end || p->args.type != V_DICT)
        return rt_fail(rt, end ? "a format with names needs a dict"
                               : "a format has no ')'");
    size_t n = (size_t)(end - p->fmt->p) - *i;
    const struct value *found = dict_find(p->args.d, p->fmt->p + *i, n);
    if (!found)
        return rt_fail(rt, "a format names '%s', which is not there",
                       ERR_SHOW(p->fmt->p + *i, n));
    *out = *found;
    *i += n + 1;
    p->named = true;
    return 0;
}

static int percent_str(struct rt *rt, struct sbuf *b, const struct spec *f,
                       struct value v)
{
    struct sbuf text = {0};
    if (f->type == 's' ? value_print(rt, &text, v) : value_repr(rt, &text, v))
        return -1;
    const struct str *s = sbuf_str(rt, &text);
    struct spec padded = *f;
    padded.zero = false;
    padded.align = f->align == '<' ? '<' : '>';
    return s ? put_str(rt, b, &padded, s) : -1;
}

/* %c: a code point or a string of one character. */
static int percent_char(struct rt *rt, struct sbuf *b, const struct spec *f,
                        struct value v)
{
    int64_t cp;
    char text[4];
    struct spec as_text = *f;
    as_text.type = 's';
    if (v.type == V_STR && str_chars(v.s) == 1)
        return percent_str(rt, b, &as_text, v);
    if (!value_as_int(v, &cp) || cp < 0 || cp > 0x10FFFF ||
        (cp >= 0xD800 && cp <= 0xDFFF))
        return rt_fail(rt, "%%c needs a character");
    const struct str *s =
        str_new(rt, text, utf8_encode((uint32_t)cp, text), v.outside);
    return s ? percent_str(rt, b, &as_text, value_str(s)) : -1;
}

static int percent_field(struct rt *rt, struct percent *p, struct sbuf *b,
                         size_t *i)
{
    const struct str *s = p->fmt;
    struct spec f = {.width = -1, .precision = -1};
    struct value v = {.type = V_ABSENT};
    if (*i < s->n && s->p[*i] == '(') {
        ++*i;
        if (percent_named(rt, p, i, &v))
            return -1;
    }
    percent_flags(s, i, &f);
    if (read_number(rt, s, i, &f.width))
        return -1;
    if (*i < s->n && s->p[*i] == '.') {
        ++*i;
        if (read_number(rt, s, i, &f.precision))
            return -1;
        f.precision = f.precision < 0 ? 0 : f.precision;
    }
    f.type = *i < s->n ? s->p[(*i)++] : '\0';
    if (f.type == '%')
        return sbuf_puts(rt, b, "%", false);
    if (!f.type || !strchr("srcdiuxXoeEfFgG", f.type))
        return rt_fail(rt, "a format has an unknown type");
    if (v.type == V_ABSENT && percent_next(rt, p, &v))
        return -1;
    if (f.type == 's' || f.type == 'r')
        return percent_str(rt, b, &f, v);
    if (f.type == 'c')
        return percent_char(rt, b, &f, v);
    if (strchr("diu", f.type)) {
        if (v.type == V_FLOAT && fabs(v.f) < 9e18)
            v = (struct value){
                .type = V_INT, .outside = v.outside, .i = (int64_t)v.f};
        f.type = 'd';
    }
    f.align = f.align == '<' ? '<' : '\0';
    if (v.type == V_FLOAT && strchr("dxXo", f.type))
        return rt_fail(rt, "a format needs an integer");
    return put_value(rt, b, &f, v);
}

int format_percent(struct rt *rt, const struct str *fmt, struct value args,
                   struct value *out)
{
    const struct seq one = {.v = &args, .n = 1};
    struct percent p = {.fmt = fmt,
                        .args = args,
                        .list = args.type == V_TUPLE ? args.seq : &one};
    struct sbuf b = {0};
    for (size_t i = 0, next; i < fmt->n; i = next) {
        const char *at = memchr(fmt->p + i, '%', fmt->n - i);
        next = at ? (size_t)(at - fmt->p) : fmt->n;
        const struct str *text = str_sub(rt, fmt, i, next);
        if (!text || sbuf_add_str(rt, &b, text))
            return -1;
        next += at != NULL;
        if (at && percent_field(rt, &p, &b, &next))
            return -1;
    }
    /* Python takes any value with items for a dict, and ignores unused values.
     */
    bool has_items = args.type == V_DICT || args.type == V_LIST ||
                     args.type == V_RANGE || args.type == V_UNDEFINED;
    if (p.used < p.list->n && !p.named && !has_items)
        return rt_fail(rt, "a format has too many values");
    const struct str *s = sbuf_str(rt, &b);
    *out = value_str(s);
    return s ? 0 : -1;
}

/* ---- braces ---- */

struct braces {
    const struct str *fmt;
    const struct call *c;
    size_t next;
};

static int read_spec(struct rt *rt, const struct str *s, struct spec *f)
{
    size_t i = 0, first = s->n ? str_step(s, 0) : 0;
    *f = (struct spec){.width = -1, .precision = -1};
    if (s->n > first && strchr("<>^=", s->p[first])) {
        if (!(f->fill = str_sub(rt, s, 0, first)))
            return -1;
        f->align = s->p[first];
        i = first + 1;
    } else if (s->n && strchr("<>^=", s->p[0])) {
        f->align = s->p[0];
        i = 1;
    }
    if (i < s->n && strchr("+- ", s->p[i]))
        f->sign = s->p[i++];
    if (i < s->n && s->p[i] == '#') {
        f->alt = true;
        i++;
    }
    if (i < s->n && s->p[i] == '0') {
        f->zero = true;
        i++;
    }
    if (read_number(rt, s, &i, &f->width))
        return -1;
    if (i < s->n && s->p[i] == ',') {
        f->comma = true;
        i++;
    }
    if (i < s->n && s->p[i] == '.') {
        i++;
        if (read_number(rt, s, &i, &f->precision))
            return -1;
        if (f->precision < 0)
            return rt_fail(rt, "a format has no precision after '.'");
    }
    if (i < s->n)
        f->type = s->p[i++];
    if (i < s->n || (f->type && !strchr("sdxXobeEfFgGn%", f->type)))
        return rt_fail(rt, "a format has the unknown specification '%s'",
                       ERR_SHOW(s->p, s->n));
    return 0;
}

static int put_spec(struct rt *rt, struct sbuf *b, const struct str *spec,
                    struct value v)
{
    struct spec f;
    if (spec->n == 0)
        return value_print(rt, b, v);
    if (read_spec(rt, spec, &f))
        return -1;
    if (value_is_number(v))
        return f.type == 's' ? rt_fail(rt, "a number has no format 's'")
                             : put_value(rt, b, &f, v);
    if (v.type != V_STR || (f.type && f.type != 's') || f.sign || f.comma ||
        f.alt || f.align == '=')
        return rt_fail(rt, "a %s has no such format", value_type_name(v));
    return put_str(rt, b, &f, v.s);
}

/* The argument that a field begins with: a number, a name, or the next one. */
static int first_value(struct rt *rt, struct braces *p, const struct str *name,
                       struct value *out)
{
    size_t i = 0;
    int64_t n;
    if (read_number(rt, name, &i, &n))
        return -1;
    if (name->n == 0)
        n = (int64_t)p->next++;
    if (name->n == 0 || i == name->n) {
        if ((uint64_t)n >= p->c->n_pos)
            return rt_fail(rt, "a format has too few values");
        *out = p->c->pos[n];
        return 0;
    }
    for (i = 0; i < p->c->n_kw; i++) {
        if (str_equal(p->c->kw[i].name, name)) {
            *out = p->c->kw[i].v;
            return 0;
        }
    }
    return rt_fail(rt, "a format names '%s', which is not there",
                   ERR_SHOW(name->p, name->n));
}

/* name.attr[key]... */
static int field_value(struct rt *rt, struct braces *p, const struct str *s,
                       struct value *out)
{
    size_t i = 0;
    while (i < s->n && s->p[i] != '.' && s->p[i] != '[')
        i++;
    const struct str *part = str_sub(rt, s, 0, i);
    if (!part || first_value(rt, p, part, out))
        return -1;
    while (i < s->n) {
        bool item = s->p[i] == '[';
        size_t begin = i + 1, end = begin, k = 0;
        while (end < s->n &&
               (item ? s->p[end] != ']' : s->p[end] != '.' && s->p[end] != '['))
            end++;
        if (item && end == s->n)
            return rt_fail(rt, "a format has no ']'");
        if (!(part = str_sub(rt, s, begin, end)))
            return -1;
        int64_t n;
        if (read_number(rt, part, &k, &n))
            return -1;
        struct value v = *out;
        struct value key =
            n >= 0 && k == part->n ? value_int(n) : value_str(part);
        if (item ? get_item(rt, v, key, out) : get_attr(rt, v, part, out))
            return -1;
        i = item ? end + 1 : end;
    }
    return 0;
}

/* One field. *i is after its opening brace, and moves past the closing one. */
static int braces_field(struct rt *rt, struct braces *p, struct sbuf *b,
                        size_t *i)
{
    const struct str *s = p->fmt;
    size_t begin = *i, end = begin;
    while (end < s->n && s->p[end] != '}' && s->p[end] != '{')
        end++;
    if (end == s->n || s->p[end] == '{')
        return rt_fail(rt, "a format has a field that is not closed");
    *i = end + 1;
    const char *colon = memchr(s->p + begin, ':', end - begin);
    size_t name_end = colon ? (size_t)(colon - s->p) : end;
    size_t spec_begin = colon ? name_end + 1 : end;
    char conversion = '\0';
    if (name_end - begin >= 2 && s->p[name_end - 2] == '!') {
        conversion = s->p[name_end - 1];
        name_end -= 2;
    }
    const struct str *name = str_sub(rt, s, begin, name_end);
    const struct str *spec = str_sub(rt, s, spec_begin, end);
    struct value v;
    if (!name || !spec || field_value(rt, p, name, &v))
        return -1;
    if (conversion) {
        struct sbuf text = {0};
        if (conversion == 's'   ? value_print(rt, &text, v)
            : conversion == 'r' ? value_repr(rt, &text, v)
                                : rt_fail(rt, "a format has an unknown "
                                              "conversion"))
            return -1;
        const struct str *t = sbuf_str(rt, &text);
        if (!t)
            return -1;
        v = value_str(t);
    }
    return put_spec(rt, b, spec, v);
}

int format_braces(struct rt *rt, const struct str *fmt, const struct call *c,
                  struct value *out)
{
    struct braces p = {.fmt = fmt, .c = c};
    struct sbuf b = {0};
    for (size_t i = 0; i < fmt->n;) {
        char ch = fmt->p[i];
        bool doubled = i + 1 < fmt->n && fmt->p[i + 1] == ch;
        if ((ch == '{' || ch == '}') && !doubled) {
            i++;
            if (ch == '}')
                return rt_fail(rt, "a format has a single '}'");
            if (braces_field(rt, &p, &b, &i))
                return -1;
            continue;
        }
        const struct str *one = str_sub(rt, fmt, i, i + 1);
        if (!one || sbuf_add_str(rt, &b, one))
            return -1;
        i += ch == '{' || ch == '}' ? 2 : 1;
    }
    const struct str *s = sbuf_str(rt, &b);
    *out = value_str(s);
    return s ? 0 : -1;
}
