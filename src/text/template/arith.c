/* Operators on values, as Python has them. */
#include <math.h>
#include <string.h>

#include "text/template/interp.h"

static int overflow(struct rt *rt)
{
    return rt_fail(rt, "an integer exceeds 64 bits");
}

static int divide_by_zero(struct rt *rt)
{
    return rt_fail(rt, "division by zero");
}

static const char *op_name(enum op op)
{
    switch (op) {
    case OP_ADD:
        return "+";
    case OP_SUB:
        return "-";
    case OP_MUL:
        return "*";
    case OP_DIV:
        return "/";
    case OP_FLOORDIV:
        return "//";
    case OP_MOD:
        return "%";
    default:
        return "**";
    }
}

/* Python's % has the sign of the divisor. */
static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m != 0 ? (b < 0) != (m < 0) : false)
        m += b;
    return m == 0 ? copysign(0, b) : m;
}

static double float_floordiv(double a, double b)
{
    double m = fmod(a, b), d = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0))
        d -= 1;
    if (d == 0)
        return copysign(0, a / b);
    double f = floor(d);
    return d - f > 0.5 ? f + 1 : f;
}

static int int_pow(struct rt *rt, int64_t a, int64_t b, struct value *out)
{
    int64_t r = 1;
    if (b < 0) {
        if (a == 0)
            return divide_by_zero(rt);
        *out = value_float(pow((double)a, (double)b));
        return 0;
    }
    for (; b > 0; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r))
            return overflow(rt);
        if (b > 1 && __builtin_mul_overflow(a, a, &a))
            return overflow(rt);
    }
    *out = value_int(r);
    return 0;
}

static int int_op(struct rt *rt, enum op op, int64_t a, int64_t b,
                  struct value *out)
{
    int64_t r = 0;
    bool bad = false;
    switch (op) {
    case OP_ADD:
        bad = __builtin_add_overflow(a, b, &r);
        break;
    case OP_SUB:
        bad = __builtin_sub_overflow(a, b, &r);
        break;
    case OP_MUL:
        bad = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_POW:
        return int_pow(rt, a, b, out);
    case OP_DIV:
        if (b == 0)
            return divide_by_zero(rt);
        *out = value_float((double)a / (double)b);
        return 0;
    default: /* OP_FLOORDIV, OP_MOD */
        if (b == 0)
            return divide_by_zero(rt);
        if (a == INT64_MIN && b == -1) {
            bad = op == OP_FLOORDIV;
            break;
        }
        r = op == OP_MOD ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0))
            r += op == OP_MOD ? b : -1;
        break;
    }
    *out = value_int(r);
    return bad ? overflow(rt) : 0;
}

static int float_op(struct rt *rt, enum op op, double a, double b,
                    struct value *out)
{
    double r = 0;
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        return divide_by_zero(rt);
    switch (op) {
    case OP_ADD:
        r = a + b;
        break;
    case OP_SUB:
        r = a - b;
        break;
    case OP_MUL:
        r = a * b;
        break;
    case OP_DIV:
        r = a / b;
        break;
    case OP_FLOORDIV:
        r = float_floordiv(a, b);
        break;
    case OP_MOD:
        r = float_mod(a, b);
        break;
    default:
        if (a == 0 && b < 0)
            return divide_by_zero(rt);
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            return rt_fail(rt, "** has a complex result");
        if (isinf(r) && !isinf(a) && !isinf(b))
            return rt_fail(rt, "the result of ** is too large");
        break;
    }
    *out = value_float(r);
    return 0;
}

static int repeat_seq(struct rt *rt, struct value v, int64_t n,
                      struct value *out)
{
    struct seq *s = seq_new(rt, 0);
    for (; s && n > 0 && v.seq->n > 0; n--)
        for (size_t i = 0; i < v.seq->n; i++)
            if (seq_add(rt, s, v.seq->v[i]))
                return -1;
    *out = value_seq(v.type, s);
    out->outside = v.outside;
    return s ? 0 : -1;
}

/* s * n and n * s for strings, lists and tuples. *done: it was one. */
static int repeat(struct rt *rt, struct value a, struct value b,
                  struct value *out, bool *done)
{
    int64_t n;
    bool a_repeats = a.type == V_STR || a.type == V_LIST || a.type == V_TUPLE;
    if (!a_repeats) {
        struct value t = a;
        a = b;
        b = t;
        a_repeats = a.type == V_STR || a.type == V_LIST || a.type == V_TUPLE;
    }
    *done = a_repeats && value_as_int(b, &n);
    if (!*done)
        return 0;
    const struct str *s;
    if (a.type != V_STR ? repeat_seq(rt, a, n, out)
                        : str_repeat(rt, a.s, n, &s))
        return -1;
    if (a.type == V_STR)
        *out = value_str(s);
    return b.outside ? value_mark(rt, out) : 0;
}

static int add_seqs(struct rt *rt, struct value a, struct value b,
                    struct value *out)
{
    struct seq *s = seq_new(rt, a.seq->n + b.seq->n);
    for (size_t i = 0; s && i < a.seq->n; i++)
        if (seq_add(rt, s, a.seq->v[i]))
            return -1;
    for (size_t i = 0; s && i < b.seq->n; i++)
        if (seq_add(rt, s, b.seq->v[i]))
            return -1;
    *out = value_seq(a.type, s);
    out->outside = a.outside || b.outside;
    return s ? 0 : -1;
}

static int fail_operands(struct rt *rt, enum op op, struct value a,
                         struct value b)
{
    const struct value *u = a.type == V_UNDEFINED   ? &a
                            : b.type == V_UNDEFINED ? &b
                                                    : NULL;
    if (u && u->s)
        return rt_fail(rt, "'%s' is undefined", ERR_SHOW(u->s->p, u->s->n));
    return rt_fail(rt, "%s does not take a %s and a %s", op_name(op),
                   value_type_name(a), value_type_name(b));
}

int binary_op(struct rt *rt, enum op op, struct value a, struct value b,
              struct value *out)
{
    int64_t i, j;
    double f, g;
    int rc;
    bool done = false;
    if (value_as_int(a, &i) && value_as_int(b, &j)) {
        rc = int_op(rt, op, i, j, out);
    } else if (value_as_float(a, &f) && value_as_float(b, &g)) {
        rc = float_op(rt, op, f, g, out);
    } else if (op == OP_ADD && a.type == V_STR && b.type == V_STR) {
        const struct str *s;
        rc = str_concat(rt, a.s, b.s, &s);
        *out = value_str(s);
        return rc;
    } else if (op == OP_ADD && a.type == b.type &&
               (a.type == V_LIST || a.type == V_TUPLE)) {
        return add_seqs(rt, a, b, out);
    } else if (op == OP_MOD && a.type == V_STR) {
        return format_percent(rt, a.s, b, out);
    } else {
        if (op == OP_MUL && repeat(rt, a, b, out, &done))
            return -1;
        return done ? 0 : fail_operands(rt, op, a, b);
    }
    out->outside = a.outside || b.outside;
    return rc;
}

int value_contains(struct rt *rt, struct value container, struct value item,
                   bool *out)
{
    struct value found;
    const struct seq *items;
    *out = false;
    switch (container.type) {
    case V_STR:
        if (item.type != V_STR)
            return rt_fail(rt, "'in' looks for a %s in a string",
                           value_type_name(item));
        *out = str_find(container.s, item.s, 0) != SIZE_MAX;
        return rt_bytes(rt, container.s->n);
    case V_DICT:
        if (dict_get(rt, container.d, item, &found))
            return -1;
        *out = found.type != V_ABSENT;
        return 0;
    default:
        if (value_items(rt, container, &items))
            return -1;
        for (size_t i = 0; i < items->n && !*out; i++)
            if (value_equal(rt, items->v[i], item, out) || rt_steps(rt, 1))
                return -1;
        return 0;
    }
}
