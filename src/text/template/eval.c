/* Expressions. */
#include <string.h>

#include "text/template/interp.h"

/* ---- scopes ---- */

struct env *env_new(struct rt *rt, struct env *parent)
{
    struct env *env = rt_alloc(rt, sizeof *env);
    if (env)
        *env = (struct env){.parent = parent};
    return env;
}

int env_set(struct rt *rt, struct env *env, const struct name *name,
            struct value v)
{
    for (size_t i = 0; i < env->n; i++) {
        if (env->bind[i].name == name) {
            env->bind[i].v = v;
            return rt_steps(rt, env->n / 8);
        }
    }
    struct bind *grown =
        rt_reserve(rt, env->bind, env->n, &env->cap, sizeof *grown);
    if (!grown)
        return -1;
    env->bind = grown;
    env->bind[env->n++] = (struct bind){name, v};
    return rt_steps(rt, env->n / 8);
}

int env_get(struct rt *rt, const struct env *env, const struct name *name,
            struct value *out)
{
    for (; env; env = env->parent) {
        if (rt_steps(rt, env->n / 8 + 1))
            return -1;
        for (size_t i = 0; i < env->n; i++) {
            if (env->bind[i].name == name) {
                *out = env->bind[i].v;
                return 0;
            }
        }
    }
    *out = value_undefined(&name->str);
    return 0;
}

/* ---- displays ---- */

static int eval_list(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct seq *s = seq_new(rt, n->n);
    for (size_t i = 0; s && i < n->n; i++) {
        struct value v;
        if (eval(rt, env, n->list[i], &v) || seq_add(rt, s, v))
            return -1;
    }
    *out = value_seq(n->kind == N_TUPLE ? V_TUPLE : V_LIST, s);
    return s ? 0 : -1;
}

static int eval_dict(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct dict *d = dict_new(rt, n->n / 2);
    for (size_t i = 0; d && i < n->n; i += 2) {
        struct value k, v;
        if (eval(rt, env, n->list[i], &k) ||
            eval(rt, env, n->list[i + 1], &v) || dict_set(rt, d, k, v))
            return -1;
    }
    *out = (struct value){.type = V_DICT, .d = d};
    return d ? 0 : -1;
}

static int eval_concat(struct rt *rt, struct env *env, const struct node *n,
                       struct value *out)
{
    struct sbuf b = {0};
    for (size_t i = 0; i < n->n; i++) {
        struct value v;
        if (eval(rt, env, n->list[i], &v) || value_print(rt, &b, v))
            return -1;
    }
    const struct str *s = sbuf_str(rt, &b);
    *out = value_str(s);
    return s ? 0 : -1;
}

/* ---- operators ---- */

static int eval_binary(struct rt *rt, struct env *env, const struct node *n,
                       struct value *out)
{
    struct value a, b;
    if (eval(rt, env, n->a, &a) || eval(rt, env, n->b, &b))
        return -1;
    rt->line = n->line;
    return binary_op(rt, n->op, a, b, out);
}

/* An integer as text changes its sign as text. */
static int negate_big(struct rt *rt, struct value v, struct value *out)
{
    struct sbuf b = {0};
    *out = v;
    if (*v.s->p == '-')
        return (out->s = str_sub(rt, v.s, 1, v.s->n)) ? 0 : -1;
    if (sbuf_puts(rt, &b, "-", v.outside) || sbuf_add_str(rt, &b, v.s) ||
        !(out->s = sbuf_str(rt, &b)))
        return -1;
    if (str_is(out->s, "-9223372036854775808"))
        *out =
            (struct value){.type = V_INT, .outside = v.outside, .i = INT64_MIN};
    return 0;
}

static int eval_sign(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct value v;
    if (eval(rt, env, n->a, &v))
        return -1;
    rt->line = n->line;
    if (v.type == V_FLOAT && n->kind == N_NEG) {
        v.f = -v.f;
        *out = v;
        return 0;
    }
    if (v.type == V_FLOAT || (v.type == V_BIG && n->kind == N_POS)) {
        *out = v;
        return 0;
    }
    if (v.type == V_BIG)
        return negate_big(rt, v, out);
    struct value zero = value_int(0);
    return binary_op(rt, n->kind == N_NEG ? OP_SUB : OP_ADD, zero, v, out);
}

static int eval_not(struct rt *rt, struct env *env, const struct node *n,
                    struct value *out)
{
    struct value v;
    if (eval(rt, env, n->a, &v))
        return -1;
    *out = value_bool(!value_truth(v));
    out->outside = value_is_outside(v);
    return 0;
}

/* The deciding operand, not its truth. */
static int eval_logic(struct rt *rt, struct env *env, const struct node *n,
                      struct value *out)
{
    if (eval(rt, env, n->a, out))
        return -1;
    return value_truth(*out) == (n->kind == N_AND) ? eval(rt, env, n->b, out)
                                                   : 0;
}

static int compare(struct rt *rt, enum op op, struct value a, struct value b,
                   bool *out)
{
    int order;
    bool unordered;
    if (op == OP_IN || op == OP_NOT_IN) {
        if (value_contains(rt, b, a, out))
            return -1;
        *out ^= op == OP_NOT_IN;
        return 0;
    }
    if (op == OP_EQ || op == OP_NE) {
        if (value_equal(rt, a, b, out))
            return -1;
        *out ^= op == OP_NE;
        return 0;
    }
    if (value_compare(rt, a, b, &order, &unordered))
        return -1;
    *out = !unordered && (op == OP_LT   ? order < 0
                          : op == OP_LE ? order <= 0
                          : op == OP_GT ? order > 0
                                        : order >= 0);
    return 0;
}

/* a < b < c holds if a < b and b < c; the rest is not evaluated after the first
 * that fails. */
static int eval_compare(struct rt *rt, struct env *env, const struct node *n,
                        struct value *out)
{
    struct value a, b;
    bool holds = true, outside = false;
    if (eval(rt, env, n->a, &a))
        return -1;
    for (size_t i = 0; i < n->n && holds; i++) {
        if (eval(rt, env, n->list[i]->a, &b))
            return -1;
        rt->line = n->line;
        if (compare(rt, n->list[i]->op, a, b, &holds) ||
            value_outside(rt, a, &outside) || value_outside(rt, b, &outside))
            return -1;
        a = b;
    }
    *out = value_bool(holds);
    out->outside = outside;
    return 0;
}

static int eval_cond(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct value test;
    if (eval(rt, env, n->a, &test))
        return -1;
    if (value_truth(test))
        return eval(rt, env, n->b, out);
    if (n->c)
        return eval(rt, env, n->c, out);
    *out = value_undefined(NULL);
    return 0;
}

/* ---- attributes and items ---- */

static int eval_attr(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct value v;
    if (eval(rt, env, n->a, &v))
        return -1;
    rt->line = n->line;
    return get_attr(rt, v, &n->name->str, out);
}

static int eval_or_absent(struct rt *rt, struct env *env, const struct node *n,
                          struct value *out)
{
    *out = (struct value){.type = V_ABSENT};
    return n ? eval(rt, env, n, out) : 0;
}

static int eval_item(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct value v, key, start, stop, step;
    if (eval(rt, env, n->a, &v))
        return -1;
    if (n->b->kind == N_SLICE) {
        if (eval_or_absent(rt, env, n->b->a, &start) ||
            eval_or_absent(rt, env, n->b->b, &stop) ||
            eval_or_absent(rt, env, n->b->c, &step))
            return -1;
        rt->line = n->line;
        return get_slice(rt, v, start, stop, step, out);
    }
    if (eval(rt, env, n->b, &key))
        return -1;
    rt->line = n->line;
    return get_item(rt, v, key, out);
}

/* ---- calls ---- */

struct arg_lists {
    struct seq *pos;
    struct keyword *kw;
    size_t n_kw, cap_kw;
    bool outside; /* the number of arguments is from outside */
};

static int add_keyword(struct rt *rt, struct arg_lists *l,
                       const struct str *name, struct value v)
{
    for (size_t i = 0; i < l->n_kw; i++)
        if (str_equal(l->kw[i].name, name))
            return rt_fail(rt, "argument '%s' is given twice",
                           ERR_SHOW(name->p, name->n));
    struct keyword *grown =
        rt_reserve(rt, l->kw, l->n_kw, &l->cap_kw, sizeof *grown);
    if (!grown)
        return -1;
    l->kw = grown;
    l->kw[l->n_kw++] = (struct keyword){name, v};
    return rt_steps(rt, l->n_kw);
}

static int add_star(struct rt *rt, struct arg_lists *l, struct value v)
{
    const struct seq *items;
    if (value_items(rt, v, &items))
        return -1;
    l->outside |= value_is_outside(v);
    for (size_t i = 0; i < items->n; i++)
        if (seq_add(rt, l->pos, items->v[i]))
            return -1;
    return 0;
}

static int add_starstar(struct rt *rt, struct arg_lists *l, struct value v)
{
    if (v.type != V_DICT)
        return rt_fail(rt, "** needs a dict, not a %s", value_type_name(v));
    l->outside |= v.outside;
    for (size_t i = 0; i < v.d->n; i++) {
        if (v.d->k[i].type != V_STR)
            return rt_fail(rt, "** needs keys that are strings");
        if (add_keyword(rt, l, v.d->k[i].s, v.d->v[i]))
            return -1;
    }
    return 0;
}

/* The arguments of n. caller: the body of a call block, V_ABSENT elsewhere. */
static int eval_args(struct rt *rt, struct env *env, const struct node *n,
                     struct value caller, struct call *out)
{
    static const struct str caller_name = {.p = "caller", .n = 6, .n_chars = 6};
    struct arg_lists l = {.pos = seq_new(rt, n->n)};
    if (!l.pos)
        return -1;
    for (size_t i = 0; i < n->n; i++) {
        const struct node *arg = n->list[i];
        struct value v;
        if (eval(rt, env, arg->a, &v))
            return -1;
        if (arg->kind == N_ARG       ? seq_add(rt, l.pos, v)
            : arg->kind == N_KEYWORD ? add_keyword(rt, &l, &arg->name->str, v)
            : arg->kind == N_STAR    ? add_star(rt, &l, v)
                                     : add_starstar(rt, &l, v))
            return -1;
    }
    if (caller.type != V_ABSENT && add_keyword(rt, &l, &caller_name, caller))
        return -1;
    *out = (struct call){l.pos->v, l.kw, l.pos->n, l.n_kw, l.outside};
    return 0;
}

int eval_call(struct rt *rt, struct env *env, const struct node *n,
              struct value caller, struct value *out)
{
    struct value callee;
    struct call c;
    if (eval(rt, env, n->a, &callee) || eval_args(rt, env, n, caller, &c))
        return -1;
    rt->line = n->line;
    return value_call(rt, callee, &c, out);
}

/* A filter or a test on a value. */
static int eval_apply(struct rt *rt, struct env *env, const struct node *n,
                      struct value input, struct value *out)
{
    static const struct value absent = {.type = V_ABSENT};
    struct call c;
    const struct builtin *fn = n->fn;
    if (!fn)
        return rt_fail(rt, "no %s is named '%s'",
                       n->kind == N_FILTER ? "filter" : "test",
                       ERR_SHOW(n->name->p, n->name->n));
    if (eval_args(rt, env, n, absent, &c))
        return -1;
    rt->line = n->line;
    return builtin_call(rt, fn, input, &c, out);
}

static int eval_filter(struct rt *rt, struct env *env, const struct node *n,
                       struct value *out)
{
    struct value input;
    if (eval(rt, env, n->a, &input))
        return -1;
    rt->line = n->line;
    return eval_apply(rt, env, n, input, out);
}

int eval_filters(struct rt *rt, struct env *env, const struct node *n,
                 struct value input, struct value *out)
{
    struct value inner = input;
    if (n->kind == N_INPUT) {
        *out = input;
        return 0;
    }
    if (rt_enter(rt))
        return -1;
    int rc = eval_filters(rt, env, n->a, input, &inner);
    rt->line = n->line;
    rc = rc ? rc : eval_apply(rt, env, n, inner, out);
    rt_leave(rt);
    return rc;
}

/* ---- dispatch ---- */

static int eval_const(struct rt *rt, struct env *env, const struct node *n,
                      struct value *out)
{
    (void)rt;
    (void)env;
    *out = n->val;
    return 0;
}

static int eval_name(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    return env_get(rt, env, n->name, out);
}

static int eval_plain_call(struct rt *rt, struct env *env, const struct node *n,
                           struct value *out)
{
    return eval_call(rt, env, n, (struct value){.type = V_ABSENT}, out);
}

typedef int (*eval_fn)(struct rt *, struct env *, const struct node *,
                       struct value *);
static const eval_fn evals[N_KINDS] = {
    [N_CONST] = eval_const,     [N_NAME] = eval_name,
    [N_TUPLE] = eval_list,      [N_LIST] = eval_list,
    [N_DICT] = eval_dict,       [N_CONCAT] = eval_concat,
    [N_BINARY] = eval_binary,   [N_NEG] = eval_sign,
    [N_POS] = eval_sign,        [N_NOT] = eval_not,
    [N_AND] = eval_logic,       [N_OR] = eval_logic,
    [N_COMPARE] = eval_compare, [N_COND] = eval_cond,
    [N_ATTR] = eval_attr,       [N_ITEM] = eval_item,
    [N_CALL] = eval_plain_call, [N_FILTER] = eval_filter,
    [N_TEST] = eval_filter,
};

int eval(struct rt *rt, struct env *env, const struct node *n,
         struct value *out)
{
    if (rt_enter(rt))
        return -1;
    rt->line = n->line;
    int rc = evals[n->kind](rt, env, n, out);
    rt_leave(rt);
    return rc;
}
