/* Statements. */
#include <string.h>

#include "text/template/interp.h"

/* ---- output ---- */

static enum flow exec_data(struct rt *rt, struct env *env, const struct node *n)
{
    (void)env;
    return sbuf_add_str(rt, rt->out, n->val.s) ? FLOW_FAIL : FLOW_NEXT;
}

static enum flow exec_output(struct rt *rt, struct env *env,
                             const struct node *n)
{
    struct value v;
    if (eval(rt, env, n->a, &v))
        return FLOW_FAIL;
    rt->line = n->line;
    return value_print(rt, rt->out, v) ? FLOW_FAIL : FLOW_NEXT;
}

enum flow exec_capture(struct rt *rt, struct env *env, const struct node *n,
                       const struct str **out)
{
    struct sbuf b = {0}, *outer = rt->out;
    rt->out = &b;
    enum flow flow = exec(rt, env, n);
    rt->out = outer;
    if (flow == FLOW_FAIL)
        return FLOW_FAIL;
    *out = sbuf_str(rt, &b);
    return *out ? flow : FLOW_FAIL;
}

/* ---- scopes and assignment ---- */

static enum flow exec_block(struct rt *rt, struct env *env,
                            const struct node *n)
{
    enum flow flow = FLOW_NEXT;
    for (size_t i = 0; i < n->n && flow == FLOW_NEXT; i++)
        flow = exec(rt, env, n->list[i]);
    return flow;
}

static enum flow exec_if(struct rt *rt, struct env *env, const struct node *n)
{
    struct value test;
    for (; n && n->kind == N_IF; n = n->c) {
        if (eval(rt, env, n->a, &test))
            return FLOW_FAIL;
        if (value_truth(test))
            return exec(rt, env, n->b);
    }
    return n ? exec(rt, env, n) : FLOW_NEXT;
}

static int assign_attr(struct rt *rt, struct env *env, const struct node *n,
                       struct value v)
{
    struct value ns;
    if (env_get(rt, env, n->name, &ns))
        return -1;
    if (ns.type != V_NAMESPACE)
        return rt_fail(rt,
                       "attributes can be set on namespaces only, '%s' is "
                       "a %s",
                       ERR_SHOW(n->name->p, n->name->n), value_type_name(ns));
    return dict_set(rt, ns.d, n->b->val, v);
}

static int assign(struct rt *rt, struct env *env, const struct node *target,
                  struct value v)
{
    const struct seq *items;
    if (target->kind == N_NAME)
        return env_set(rt, env, target->name, v);
    if (target->kind == N_NSREF)
        return assign_attr(rt, env, target, v);
    if (value_items(rt, v, &items))
        return -1;
    if (items->n != target->n)
        return rt_fail(rt, "cannot assign %zu values to %zu names", items->n,
                       target->n);
    if (rt_enter(rt))
        return -1;
    int rc = 0;
    for (size_t i = 0; i < items->n && !rc; i++)
        rc = assign(rt, env, target->list[i], items->v[i]);
    rt_leave(rt);
    return rc;
}

static enum flow exec_set(struct rt *rt, struct env *env, const struct node *n)
{
    struct value v;
    if (eval(rt, env, n->b, &v))
        return FLOW_FAIL;
    rt->line = n->line;
    return assign(rt, env, n->a, v) ? FLOW_FAIL : FLOW_NEXT;
}

/* Run a body in a scope of its own, and return what it prints. */
static enum flow capture_inner(struct rt *rt, struct env *env,
                               const struct node *body, struct value *out)
{
    struct env *inner = env_new(rt, env);
    const struct str *text;
    if (!inner)
        return FLOW_FAIL;
    enum flow flow = exec_capture(rt, inner, body, &text);
    if (flow == FLOW_NEXT)
        *out = value_str(text);
    return flow;
}

static enum flow exec_set_block(struct rt *rt, struct env *env,
                                const struct node *n)
{
    struct value v;
    enum flow flow = capture_inner(rt, env, n->b, &v);
    if (flow != FLOW_NEXT)
        return flow;
    if (n->c && eval_filters(rt, env, n->c, v, &v))
        return FLOW_FAIL;
    return assign(rt, env, n->a, v) ? FLOW_FAIL : FLOW_NEXT;
}

/* Filter and call blocks can print text only. */
static enum flow print_text(struct rt *rt, struct value v, const char *block)
{
    if (v.type != V_STR)
        return rt_fail(rt, "a %s block gives a %s, not text", block,
                       value_type_name(v));
    return sbuf_add_str(rt, rt->out, v.s) ? FLOW_FAIL : FLOW_NEXT;
}

static enum flow exec_filter_block(struct rt *rt, struct env *env,
                                   const struct node *n)
{
    struct value v;
    enum flow flow = capture_inner(rt, env, n->b, &v);
    if (flow != FLOW_NEXT)
        return flow;
    if (eval_filters(rt, env, n->a, v, &v))
        return FLOW_FAIL;
    return print_text(rt, v, "filter");
}

static enum flow exec_scope(struct rt *rt, struct env *env,
                            const struct node *n)
{
    struct env *inner = env_new(rt, env);
    return inner ? exec(rt, inner, n->b) : FLOW_FAIL;
}

static enum flow exec_with(struct rt *rt, struct env *env, const struct node *n)
{
    struct env *inner = env_new(rt, env);
    if (!inner)
        return FLOW_FAIL;
    for (size_t i = 0; i < n->n; i += 2) {
        struct value v;
        if (eval(rt, env, n->list[i + 1], &v) ||
            assign(rt, inner, n->list[i], v))
            return FLOW_FAIL;
    }
    return exec(rt, inner, n->b);
}

/* ---- macros ---- */

static int new_macro(struct rt *rt, struct env *env, const struct node *n,
                     struct value *out)
{
    struct macro *m = rt_alloc(rt, sizeof *m);
    if (!m)
        return -1;
    *m = (struct macro){n->macro, env};
    *out = (struct value){.type = V_MACRO, .macro = m};
    return 0;
}

static enum flow exec_macro(struct rt *rt, struct env *env,
                            const struct node *n)
{
    struct value v;
    if (new_macro(rt, env, n, &v) || env_set(rt, env, n->name, v))
        return FLOW_FAIL;
    return FLOW_NEXT;
}

static enum flow exec_call_block(struct rt *rt, struct env *env,
                                 const struct node *n)
{
    struct value caller, v;
    if (new_macro(rt, env, n, &caller) || eval_call(rt, env, n->a, caller, &v))
        return FLOW_FAIL;
    return print_text(rt, v, "call");
}

/* ---- loops ---- */

/* The items for which the loop's condition holds. The loop variable does not
 * exist yet when the condition runs. */
static int filter_items(struct rt *rt, struct env *env, const struct node *n,
                        const struct seq **items)
{
    struct seq *kept = seq_new(rt, 0);
    for (size_t i = 0; kept && i < (*items)->n; i++) {
        struct env *inner = env_new(rt, env);
        struct value holds;
        if (!inner || assign(rt, inner, n->a, (*items)->v[i]) ||
            eval(rt, inner, n->filter, &holds) ||
            (value_truth(holds) && seq_add(rt, kept, (*items)->v[i])))
            return -1;
    }
    *items = kept;
    return kept ? 0 : -1;
}

/* One iteration. Its scope begins empty each time. A macro that the body
 * defines sees later changes of the scope, as in Jinja. */
static enum flow iterate(struct rt *rt, struct env *env, const struct node *n,
                         struct loop *loop)
{
    static const struct str loop_name = {.p = "loop", .n = 4, .n_chars = 4};
    const struct name *name = template_name(rt->t, loop_name.p, loop_name.n);
    env->n = 0;
    if (rt_steps(rt, 1) ||
        (name && env_set(rt, env, name,
                         (struct value){.type = V_LOOP,
                                        .outside = loop->outside,
                                        .loop = loop})) ||
        assign(rt, env, n->a, loop->items->v[loop->at]))
        return FLOW_FAIL;
    return exec(rt, env, n->c);
}

static enum flow run_loop(struct rt *rt, struct env *env, const struct node *n,
                          struct value over, int depth)
{
    const struct seq *items;
    struct env *inner = env_new(rt, env);
    struct loop *loop = rt_alloc(rt, sizeof *loop);
    if (!inner || !loop || value_items(rt, over, &items) ||
        (n->filter && filter_items(rt, env, n, &items)))
        return FLOW_FAIL;
    *loop = (struct loop){.items = items,
                          .outside = value_is_outside(over),
                          .depth = depth,
                          .node = n,
                          .env = env,
                          .changed = {.type = V_ABSENT}};
    bool completed = false;
    for (; loop->at < items->n; loop->at++) {
        enum flow flow = iterate(rt, inner, n, loop);
        if (flow == FLOW_FAIL)
            return FLOW_FAIL;
        if (flow == FLOW_BREAK)
            break;
        completed |= flow == FLOW_NEXT;
    }
    /* In Jinja, else runs unless some iteration reached the end of the body. */
    if (completed || !n->d)
        return FLOW_NEXT;
    inner->n = 0;
    return exec(rt, inner, n->d);
}

static enum flow exec_for(struct rt *rt, struct env *env, const struct node *n)
{
    struct value over;
    if (eval(rt, env, n->b, &over))
        return FLOW_FAIL;
    rt->line = n->line;
    return run_loop(rt, env, n, over, 0);
}

int loop_recurse(struct rt *rt, struct loop *loop, struct value items,
                 struct value *out)
{
    struct sbuf b = {0}, *outer = rt->out;
    if (!loop->node->flag)
        return rt_fail(rt, "loop() needs a loop marked 'recursive'");
    rt->out = &b;
    enum flow flow =
        run_loop(rt, loop->env, loop->node, items, loop->depth + 1);
    rt->out = outer;
    const struct str *s = flow == FLOW_FAIL ? NULL : sbuf_str(rt, &b);
    *out = value_str(s);
    return s ? 0 : -1;
}

static enum flow exec_control(struct rt *rt, struct env *env,
                              const struct node *n)
{
    (void)rt;
    (void)env;
    return n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
}

/* ---- dispatch ---- */

typedef enum flow (*exec_fn)(struct rt *, struct env *, const struct node *);
static const exec_fn execs[N_KINDS] = {
    [N_DATA] = exec_data,
    [N_OUTPUT] = exec_output,
    [N_BLOCK] = exec_block,
    [N_IF] = exec_if,
    [N_FOR] = exec_for,
    [N_SET] = exec_set,
    [N_SETBLOCK] = exec_set_block,
    [N_MACRO] = exec_macro,
    [N_CALLBLOCK] = exec_call_block,
    [N_FILTERBLOCK] = exec_filter_block,
    [N_SCOPE] = exec_scope,
    [N_WITH] = exec_with,
    [N_BREAK] = exec_control,
    [N_CONTINUE] = exec_control,
};

enum flow exec(struct rt *rt, struct env *env, const struct node *n)
{
    if (rt_enter(rt))
        return FLOW_FAIL;
    rt->line = n->line;
    enum flow flow = execs[n->kind](rt, env, n);
    rt_leave(rt);
    return flow;
}
