/* Calls: matching arguments with parameters, macros, and Python's callables. */
#include <string.h>

#include "text/template/interp.h"

const struct builtin *function_find(const struct builtin *table, size_t n_rows,
                                    const char *name, size_t n)
{
    for (size_t i = 0; i < n_rows; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0)
            return &table[i];
    return NULL;
}

/* ---- built-in functions ---- */

/* The parameters of a row, one after the other. */
struct param {
    const char *p;
    size_t n;
    bool optional, chooses;
};

static bool next_param(const char **at, struct param *out)
{
    const char *p = *at + strspn(*at, " ");
    size_t n = strcspn(p, " ");
    if (!n)
        return false;
    *at = p + n;
    *out = (struct param){p, n, p[n - 1] == '?', *p == '!'};
    out->n -= out->optional;
    out->p += out->chooses;
    out->n -= out->chooses;
    return true;
}

static int bind_keyword(struct rt *rt, const struct builtin *b,
                        const struct keyword *kw, struct args *a)
{
    struct param param;
    const char *at = b->params;
    for (size_t i = 0; next_param(&at, &param); i++) {
        if (param.n != kw->name->n || memcmp(param.p, kw->name->p, param.n))
            continue;
        if (a->v[i].type != V_ABSENT)
            return rt_fail(rt, "%s: argument '%s' is given twice", b->name,
                           ERR_SHOW(param.p, param.n));
        a->v[i] = kw->v;
        return 0;
    }
    return rt_fail(rt, "%s: no argument is named '%s'", b->name,
                   ERR_SHOW(kw->name->p, kw->name->n));
}

static int bind_args(struct rt *rt, const struct builtin *b, struct args *a)
{
    struct param param;
    const char *at = b->params;
    size_t n = 0;
    while (next_param(&at, &param)) {
        a->v[n] =
            n < a->raw.n_pos ? a->raw.pos[n] : (struct value){.type = V_ABSENT};
        n++;
    }
    if (a->raw.n_pos > n)
        return rt_fail(rt, "%s: takes at most %zu arguments, got %zu", b->name,
                       n, a->raw.n_pos);
    for (size_t i = 0; i < a->raw.n_kw; i++)
        if (bind_keyword(rt, b, &a->raw.kw[i], a))
            return -1;
    at = b->params;
    for (size_t i = 0; next_param(&at, &param); i++)
        if (!param.optional && a->v[i].type == V_ABSENT)
            return rt_fail(rt, "%s: argument '%s' is missing", b->name,
                           ERR_SHOW(param.p, param.n));
    return 0;
}

/* Whether any text of the input is from outside. */
static int any_outside(struct rt *rt, const struct args *a, bool *outside)
{
    if (value_outside(rt, a->self, outside))
        return -1;
    for (size_t i = 0; i < a->raw.n_pos && !*outside; i++)
        if (value_outside(rt, a->raw.pos[i], outside))
            return -1;
    for (size_t i = 0; i < a->raw.n_kw && !*outside; i++)
        if (value_outside(rt, a->raw.kw[i].v, outside))
            return -1;
    return 0;
}

/* Whether an argument from outside chooses parts of the input. */
static bool chosen_from_outside(const struct args *a)
{
    struct param param;
    const char *at = a->row->params;
    for (size_t i = 0; next_param(&at, &param); i++)
        if (param.chooses && value_is_outside(a->v[i]))
            return true;
    return false;
}

/* A number that tells of an input from outside is from outside. */
static void mark_result(const struct args *a, struct value *out)
{
    bool outside = value_is_outside(a->self) || a->raw.outside;
    for (size_t i = 0; i < a->raw.n_pos; i++)
        outside |= value_is_outside(a->raw.pos[i]);
    for (size_t i = 0; i < a->raw.n_kw; i++)
        outside |= value_is_outside(a->raw.kw[i].v);
    out->outside |= outside && out->type != V_STR;
}

int builtin_call(struct rt *rt, const struct builtin *b, struct value self,
                 const struct call *c, struct value *out)
{
    struct args a = {.row = b, .self = self, .raw = *c};
    if (strcmp(b->params, "*") != 0 && bind_args(rt, b, &a))
        return -1;
    *out = value_none();
    bool whole = chosen_from_outside(&a);
    if (b->fn(rt, &a, out) || (b->taints && any_outside(rt, &a, &whole)))
        return -1;
    mark_result(&a, out);
    return whole ? value_mark(rt, out) : 0;
}

int arg_int(struct rt *rt, struct value v, const char *what, int64_t *out)
{
    if (v.type == V_ABSENT || value_as_int(v, out))
        return 0;
    return rt_fail(rt, "%s must be an integer, is a %s", what,
                   value_type_name(v));
}

int arg_str(struct rt *rt, struct value v, const char *what,
            const struct str **out)
{
    if (v.type == V_ABSENT)
        return 0;
    if (v.type != V_STR)
        return rt_fail(rt, "%s must be a string, is a %s", what,
                       value_type_name(v));
    *out = v.s;
    return 0;
}

/* ---- macros ---- */

static const struct keyword *find_keyword(const struct call *c,
                                          const struct str *name)
{
    for (size_t i = 0; i < c->n_kw; i++)
        if (str_equal(c->kw[i].name, name))
            return &c->kw[i];
    return NULL;
}

static bool is_param(const struct macro_node *m, const struct str *name)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (str_equal(&m->params[i]->str, name))
            return true;
    return false;
}

/* Arguments that no parameter takes: varargs and kwargs. */
static int bind_rest(struct rt *rt, const struct macro *m, struct env *env,
                     const struct call *c)
{
    const struct macro_node *n = m->node;
    struct seq *rest = seq_new(rt, 0);
    struct dict *kwargs = dict_new(rt, 0);
    if (!rest || !kwargs)
        return -1;
    if (c->n_pos > n->n_params && !n->uses_varargs)
        return rt_fail(rt, "macro '%s' takes at most %zu arguments, got %zu",
                       n->name ? ERR_SHOW(n->name->p, n->name->n) : "caller",
                       n->n_params, c->n_pos);
    for (size_t i = n->n_params; i < c->n_pos; i++)
        if (seq_add(rt, rest, c->pos[i]))
            return -1;
    for (size_t i = 0; i < c->n_kw; i++) {
        size_t at = 0;
        if (is_param(n, c->kw[i].name)) {
            while (!str_equal(&n->params[at]->str, c->kw[i].name))
                at++;
            if (at >= c->n_pos)
                continue;
        }
        if (n->uses_caller && str_is(c->kw[i].name, "caller"))
            continue;
        if (!n->uses_kwargs)
            return rt_fail(rt, "macro '%s' has no argument '%s' left",
                           n->name ? ERR_SHOW(n->name->p, n->name->n)
                                   : "caller",
                           ERR_SHOW(c->kw[i].name->p, c->kw[i].name->n));
        if (dict_set(rt, kwargs, value_str(c->kw[i].name), c->kw[i].v))
            return -1;
    }
    const struct name *varargs = template_name(rt->t, "varargs", 7);
    const struct name *kwargs_name = template_name(rt->t, "kwargs", 6);
    const struct value positional = {
        .type = V_TUPLE, .outside = c->outside, .seq = rest};
    const struct value named = {
        .type = V_DICT, .outside = c->outside, .d = kwargs};
    if (n->uses_varargs && varargs && env_set(rt, env, varargs, positional))
        return -1;
    if (n->uses_kwargs && kwargs_name && env_set(rt, env, kwargs_name, named))
        return -1;
    return 0;
}

static int bind_caller(struct rt *rt, const struct macro *m, struct env *env,
                       const struct call *c)
{
    const struct name *name = template_name(rt->t, "caller", 6);
    if (!m->node->uses_caller || !name || is_param(m->node, &name->str))
        return 0;
    const struct keyword *kw = find_keyword(c, &name->str);
    return env_set(rt, env, name, kw ? kw->v : value_undefined(&name->str));
}

static int macro_call(struct rt *rt, const struct macro *m,
                      const struct call *c, struct value *out)
{
    const struct macro_node *n = m->node;
    struct env *env = env_new(rt, m->env);
    if (!env || bind_rest(rt, m, env, c) || bind_caller(rt, m, env, c))
        return -1;
    for (size_t i = 0; i < n->n_params; i++) {
        const struct keyword *kw = find_keyword(c, &n->params[i]->str);
        struct value v = value_undefined(&n->params[i]->str);
        if (i < c->n_pos)
            v = c->pos[i];
        else if (kw)
            v = kw->v;
        else if (n->defaults[i] && eval(rt, env, n->defaults[i], &v))
            return -1;
        if (env_set(rt, env, n->params[i], v))
            return -1;
    }
    const struct str *text;
    if (exec_capture(rt, env, n->body, &text) == FLOW_FAIL)
        return -1;
    *out = value_str(text);
    return 0;
}

/* ---- everything that can be called ---- */

bool value_callable(struct value v)
{
    return v.type == V_FUNCTION || v.type == V_METHOD || v.type == V_MACRO ||
           v.type == V_LOOP || v.type == V_JOINER;
}

static int joiner_call(struct rt *rt, struct cycler *j, struct value *out)
{
    const struct str *empty = str_literal(rt, "");
    if (!empty)
        return -1;
    *out = j->at ? j->v[0] : value_str(empty);
    j->at = 1;
    return 0;
}

int value_call(struct rt *rt, struct value callee, const struct call *c,
               struct value *out)
{
    if (rt_enter(rt))
        return -1;
    int rc;
    switch (callee.type) {
    case V_FUNCTION:
        rc = builtin_call(rt, callee.fn, (struct value){.type = V_ABSENT}, c,
                          out);
        break;
    case V_METHOD:
        rc = builtin_call(rt, callee.method->fn, callee.method->self, c, out);
        break;
    case V_MACRO:
        rc = macro_call(rt, callee.macro, c, out);
        break;
    case V_LOOP:
        if (c->n_pos == 1 && c->n_kw == 0)
            rc = loop_recurse(rt, callee.loop, c->pos[0], out);
        else
            rc = rt_fail(rt, "loop() takes one argument");
        break;
    case V_JOINER:
        rc = joiner_call(rt, callee.cycler, out);
        break;
    case V_UNDEFINED:
        rc = callee.s ? rt_fail(rt, "'%s' is undefined",
                                ERR_SHOW(callee.s->p, callee.s->n))
                      : rt_fail(rt, "an undefined value is called");
        break;
    default:
        rc = rt_fail(rt, "a %s cannot be called", value_type_name(callee));
        break;
    }
    rt_leave(rt);
    return rc;
}
