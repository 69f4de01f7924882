/* Filters that make numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/interp.h"

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* The bytes of s without white space at its ends, as a C string without the
 * underscores between digits. False: an underscore stands elsewhere, or s is
 * too long for a number that we could hold. */
static bool plain_number(struct rt *rt, const struct str *s, char *out,
                         size_t room)
{
    const struct str *t;
    size_t n = 0;
    if (str_strip(rt, s, NULL, 3, &t) || t->n >= room)
        return false;
    for (size_t i = 0; i < t->n; i++) {
        if (t->p[i] == '_') {
            if (i == 0 || i + 1 == t->n || digit_of(t->p[i - 1]) > 35 ||
                digit_of(t->p[i + 1]) > 35)
                return false;
            continue;
        }
        if (t->p[i] == '\0')
            return false;
        out[n++] = t->p[i];
    }
    out[n] = '\0';
    return n > 0;
}

enum { NUMBER_MAX = 400 };

/* Python's int(text, base). */
static int text_to_int(struct rt *rt, const struct str *s, int64_t base,
                       struct value *out, bool *ok)
{
    char text[NUMBER_MAX], *p = text;
    int64_t v = 0;
    bool negative, big = false;
    *ok = false;
    if (base < 0 || base == 1 || base > 36)
        return rt_fail(rt, "int: the base must be 0 or 2 to 36");
    if (!plain_number(rt, s, text, sizeof text))
        return 0;
    negative = *p == '-';
    p += *p == '-' || *p == '+';
    char letter = *p == '0' ? (char)(p[1] | 0x20) : '\0';
    int64_t prefix = letter == 'x'   ? 16
                     : letter == 'o' ? 8
                     : letter == 'b' ? 2
                                     : 0;
    if (prefix && (base == 0 || base == prefix)) {
        p += 2;
        base = prefix;
    }
    base = base ? base : 10;
    if (!*p)
        return 0;
    for (const char *q = p; *q; q++) {
        int d = digit_of(*q);
        if (d >= base)
            return 0;
        big |= __builtin_mul_overflow(v, base, &v) ||
               __builtin_add_overflow(v, d, &v);
    }
    *ok = true;
    if (!big) {
        *out = value_int(negative ? -v : v);
        return 0;
    }
    if (base != 10)
        return rt_fail(rt, "int: the integer exceeds 64 bits");
    p += strspn(p, "0");
    size_t n = strlen(p);
    char *copy = rt_alloc(rt, n + 1);
    if (!copy)
        return -1;
    copy[0] = '-';
    memcpy(copy + negative, p, n);
    const struct str *digits = str_new(rt, copy, n + negative, false);
    *out = (struct value){.type = V_BIG, .s = digits};
    return digits ? 0 : -1;
}

/* Python's float(text). */
static bool text_to_float(const struct str *s, double *out)
{
    char text[NUMBER_MAX];
    size_t n = s->n;
    const char *p = s->p;
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    p = text + (*text == '-' || *text == '+');
    /* strtod also takes hexadecimal and "nan(...)", which Python does not. */
    if (strspn(p, "0123456789.eE+-_") != strlen(p) &&
        strcasecmp(p, "inf") != 0 && strcasecmp(p, "infinity") != 0 &&
        strcasecmp(p, "nan") != 0)
        return false;
    char *end;
    *out = strtod(text, &end);
    return end == text + n;
}

static int f_float(struct rt *rt, const struct args *a, struct value *out)
{
    double d = 0;
    char text[NUMBER_MAX];
    struct value v = a->self;
    if (v.type == V_UNDEFINED)
        return rt_fail(rt, "float: the value is undefined");
    if (v.type == V_STR && plain_number(rt, v.s, text, sizeof text)) {
        const struct str plain = {.p = text, .n = strlen(text)};
        if (text_to_float(&plain, &d)) {
            *out = value_float(d);
            return 0;
        }
    } else if (v.type == V_BIG) {
        *out = value_float(strtod(v.s->p, NULL));
        return 0;
    } else if (value_as_float(v, &d)) {
        *out = value_float(d);
        return 0;
    }
    *out = a->v[0].type == V_ABSENT ? value_float(0) : a->v[0];
    return 0;
}

static int f_int(struct rt *rt, const struct args *a, struct value *out)
{
    int64_t base = 10, i;
    double d = NAN;
    bool ok = false;
    char text[NUMBER_MAX];
    struct value v = a->self;
    if (v.type == V_UNDEFINED)
        return rt_fail(rt, "int: the value is undefined");
    if (arg_int(rt, a->v[1], "int: the base", &base))
        return -1;
    if (v.type == V_BIG) {
        *out = v;
        return 0;
    }
    if (value_as_int(v, &i)) {
        *out = value_int(i);
        return 0;
    }
    if (v.type == V_STR) {
        if (text_to_int(rt, v.s, base, out, &ok))
            return -1;
        if (ok)
            return 0;
        if (plain_number(rt, v.s, text, sizeof text)) {
            const struct str plain = {.p = text, .n = strlen(text)};
            if (!text_to_float(&plain, &d) || isinf(d))
                d = NAN;
        }
    } else if (v.type == V_FLOAT) {
        d = v.f;
    }
    if (isinf(d) || fabs(d) >= 9.2e18)
        return rt_fail(rt, "int: the value exceeds 64 bits");
    *out = !isnan(d)                  ? value_int((int64_t)d)
           : a->v[0].type == V_ABSENT ? value_int(0)
                                      : a->v[0];
    return 0;
}

static int f_abs(struct rt *rt, const struct args *a, struct value *out)
{
    struct value v = a->self;
    int64_t i;
    *out = v;
    if (v.type == V_FLOAT) {
        out->f = fabs(v.f);
        return 0;
    }
    if (v.type == V_BIG) {
        out->s = *v.s->p == '-' ? str_sub(rt, v.s, 1, v.s->n) : v.s;
        return out->s ? 0 : -1;
    }
    if (!value_as_int(v, &i))
        return rt_fail(rt, "abs: a %s is not a number", value_type_name(v));
    if (i == INT64_MIN)
        return rt_fail(rt, "an integer exceeds 64 bits");
    *out = value_int(i < 0 ? -i : i);
    return 0;
}

/* Half to even, as Python rounds integers at a power of ten. */
static int round_int(struct rt *rt, int64_t i, int64_t digits,
                     struct value *out)
{
    int64_t unit = 1;
    *out = value_int(digits < -18 ? 0 : i);
    if (digits >= 0 || digits < -18)
        return 0;
    for (; digits < 0; digits++)
        unit *= 10;
    int64_t low = i / unit, rest = i % unit;
    if (rest < 0) {
        rest += unit;
        low--;
    }
    int64_t half = unit / 2;
    low += rest > half || (rest == half && (low & 1));
    if (__builtin_mul_overflow(low, unit, &low))
        return rt_fail(rt, "an integer exceeds 64 bits");
    *out = value_int(low);
    return 0;
}

static double round_float(double f, int64_t digits)
{
    char text[512];
    if (isnan(f) || isinf(f) || digits > 80)
        return f;
    if (digits < 0) {
        double unit = digits < -308 ? INFINITY : pow(10, (double)-digits);
        return isinf(unit) ? copysign(0, f) : rint(f / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)digits, f);
    return strtod(text, NULL);
}

static int f_round(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *method = str_literal(rt, "common");
    int64_t digits = 0, i;
    double f;
    if (!method || arg_int(rt, a->v[0], "round: the precision", &digits) ||
        arg_str(rt, a->v[1], "round: the method", &method))
        return -1;
    bool common = str_is(method, "common"), up = str_is(method, "ceil");
    if (!common && !up && !str_is(method, "floor"))
        return rt_fail(rt, "round: no method is named '%s'",
                       ERR_SHOW(method->p, method->n));
    if (common && value_as_int(a->self, &i))
        return round_int(rt, i, digits, out);
    if (common && a->self.type == V_BIG && digits >= 0) {
        *out = a->self;
        return 0;
    }
    if (!value_as_float(a->self, &f))
        return rt_fail(rt, "round: a %s is not a number",
                       value_type_name(a->self));
    double unit = pow(10, (double)digits);
    *out = value_float(common ? round_float(f, digits)
                       : up   ? ceil(f * unit) / unit
                              : floor(f * unit) / unit);
    return 0;
}

const struct builtin filters_number[] = {
    {"abs", "", f_abs, 0, true},
    {"float", "default?", f_float, 0, true},
    {"int", "default? base?", f_int, 0, true},
    {"round", "precision? method?", f_round, 0, true},
};
const size_t n_filters_number = sizeof filters_number / sizeof *filters_number;
