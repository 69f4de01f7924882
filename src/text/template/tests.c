/* The tests that come after `is`. */
#include <string.h>

#include "text/template/interp.h"

enum {
    IS_BOOLEAN,
    IS_CALLABLE,
    IS_DEFINED,
    IS_ESCAPED,
    IS_FALSE,
    IS_FLOAT,
    IS_INTEGER,
    IS_ITERABLE,
    IS_MAPPING,
    IS_NONE,
    IS_NUMBER,
    IS_SEQUENCE,
    IS_STRING,
    IS_TRUE,
    IS_UNDEFINED
};

/* An undefined value is callable, iterable and a sequence: Jinja's class has
 * the methods. */
static bool is_kind(struct value v, int kind)
{
    switch (kind) {
    case IS_BOOLEAN:
        return v.type == V_BOOL;
    case IS_CALLABLE:
        return value_callable(v) || v.type == V_UNDEFINED;
    case IS_DEFINED:
        return v.type != V_UNDEFINED;
    case IS_ESCAPED:
        return v.type == V_STR && v.s->safe;
    case IS_FALSE:
        return v.type == V_BOOL && !v.b;
    case IS_FLOAT:
        return v.type == V_FLOAT;
    case IS_INTEGER:
        return v.type == V_INT || v.type == V_BIG;
    case IS_ITERABLE:
        return value_is_seq(v) || v.type == V_STR || v.type == V_DICT ||
               v.type == V_UNDEFINED || v.type == V_LOOP;
    case IS_MAPPING:
        return v.type == V_DICT;
    case IS_NONE:
        return v.type == V_NONE;
    case IS_NUMBER:
        return value_is_number(v);
    case IS_SEQUENCE:
        return v.type == V_STR || v.type == V_LIST || v.type == V_TUPLE ||
               v.type == V_RANGE || v.type == V_DICT || v.type == V_UNDEFINED;
    case IS_STRING:
        return v.type == V_STR;
    case IS_TRUE:
        return v.type == V_BOOL && v.b;
    default:
        return v.type == V_UNDEFINED;
    }
}

static int test_kind(struct rt *rt, const struct args *a, struct value *out)
{
    (void)rt;
    *out = value_bool(is_kind(a->self, a->row->tag));
    return 0;
}

/* self % n == want, for odd, even and divisibleby. */
static int test_modulo(struct rt *rt, const struct args *a, struct value *out)
{
    struct value n = a->v[0].type == V_ABSENT ? value_int(2) : a->v[0], rest;
    bool holds;
    if (binary_op(rt, OP_MOD, a->self, n, &rest) ||
        value_equal(rt, rest, value_int(a->row->tag), &holds))
        return -1;
    *out = value_bool(holds);
    return 0;
}

static int test_equal(struct rt *rt, const struct args *a, struct value *out)
{
    bool same;
    if (value_equal(rt, a->self, a->v[0], &same))
        return -1;
    *out = value_bool(same == (a->row->tag == OP_EQ));
    return 0;
}

static int test_order(struct rt *rt, const struct args *a, struct value *out)
{
    int order;
    bool unordered;
    if (value_compare(rt, a->self, a->v[0], &order, &unordered))
        return -1;
    *out = value_bool(!unordered && (a->row->tag == OP_LT   ? order < 0
                                     : a->row->tag == OP_LE ? order <= 0
                                     : a->row->tag == OP_GT ? order > 0
                                                            : order >= 0));
    return 0;
}

static int test_in(struct rt *rt, const struct args *a, struct value *out)
{
    bool in;
    if (value_contains(rt, a->v[0], a->self, &in))
        return -1;
    *out = value_bool(in);
    return 0;
}

/* Python's `is`: equal values of one type pass, except containers. */
static int test_sameas(struct rt *rt, const struct args *a, struct value *out)
{
    bool same = a->self.type == a->v[0].type;
    if (same && (value_is_number(a->self) || a->self.type == V_STR)) {
        if (value_equal(rt, a->self, a->v[0], &same))
            return -1;
    } else if (same && a->self.type != V_NONE) {
        same = a->self.seq == a->v[0].seq; /* all others are pointers */
    }
    *out = value_bool(same);
    return 0;
}

static int test_case(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    if (value_to_str(rt, a->self, &s))
        return -1;
    *out = value_bool(str_is_case(s, a->row->tag == CASE_UPPER));
    return rt_bytes(rt, s->n);
}

static int test_exists(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = NULL;
    if (arg_str(rt, a->self, "a name", &s))
        return -1;
    *out = value_bool((a->row->tag ? filter_find(s->p, s->n)
                                   : test_find(s->p, s->n)) != NULL);
    return 0;
}

static const struct builtin tests[] = {
    {"boolean", "", test_kind, IS_BOOLEAN, false},
    {"callable", "", test_kind, IS_CALLABLE, false},
    {"defined", "", test_kind, IS_DEFINED, false},
    {"divisibleby", "num", test_modulo, 0, false},
    {"eq", "other", test_equal, OP_EQ, false},
    {"equalto", "other", test_equal, OP_EQ, false},
    {"==", "other", test_equal, OP_EQ, false},
    {"escaped", "", test_kind, IS_ESCAPED, false},
    {"even", "", test_modulo, 0, false},
    {"false", "", test_kind, IS_FALSE, false},
    {"filter", "", test_exists, 1, false},
    {"float", "", test_kind, IS_FLOAT, false},
    {"ge", "other", test_order, OP_GE, false},
    {">=", "other", test_order, OP_GE, false},
    {"greaterthan", "other", test_order, OP_GT, false},
    {"gt", "other", test_order, OP_GT, false},
    {">", "other", test_order, OP_GT, false},
    {"in", "seq", test_in, 0, false},
    {"integer", "", test_kind, IS_INTEGER, false},
    {"iterable", "", test_kind, IS_ITERABLE, false},
    {"le", "other", test_order, OP_LE, false},
    {"<=", "other", test_order, OP_LE, false},
    {"lessthan", "other", test_order, OP_LT, false},
    {"lower", "", test_case, CASE_LOWER, false},
    {"lt", "other", test_order, OP_LT, false},
    {"<", "other", test_order, OP_LT, false},
    {"mapping", "", test_kind, IS_MAPPING, false},
    {"ne", "other", test_equal, OP_NE, false},
    {"!=", "other", test_equal, OP_NE, false},
    {"none", "", test_kind, IS_NONE, false},
    {"number", "", test_kind, IS_NUMBER, false},
    {"odd", "", test_modulo, 1, false},
    {"sameas", "other", test_sameas, 0, false},
    {"sequence", "", test_kind, IS_SEQUENCE, false},
    {"string", "", test_kind, IS_STRING, false},
    {"test", "", test_exists, 0, false},
    {"true", "", test_kind, IS_TRUE, false},
    {"undefined", "", test_kind, IS_UNDEFINED, false},
    {"upper", "", test_case, CASE_UPPER, false},
};

const struct builtin *test_find(const char *name, size_t n)
{
    return function_find(tests, sizeof tests / sizeof *tests, name, n);
}
