/* Whether a grammar can be run: which parts match any text, which match the
 * empty text, and whether a rule begins with itself. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_int.h"

struct check {
    struct grammar *g;
    size_t *begin;     /* [n_nodes + 1] where a node's users begin in user */
    uint32_t *user;    /* nodes that have this node as a part, or refer to the
                          rule which has it */
    uint32_t *missing; /* [n_nodes] parts of a sequence without the property */
    uint32_t *todo;    /* [n_nodes] stack */
    size_t n_todo;
};

/* ---- properties that spread from the leaves ---- */

/* The parts of a node. A reference has one part, the node of its rule. */
static size_t parts(const struct grammar *g, const struct node *v,
                    const uint32_t **out)
{
    *out = node_kids(g, v);
    switch (v->type) {
    case NODE_SEQ:
    case NODE_ALT:
        return node_n_kids(v);
    case NODE_NEED:
        return node_n_kids(v) - 1;
    case NODE_REPEAT:
        return 1;
    case NODE_REF:
        *out = &g->rules[**out].node;
        return **out != NO_NODE;
    default:
        return 0;
    }
}

static int list_users(struct check *c, struct qwick_err *e)
{
    const struct grammar *g = c->g;
    const uint32_t *v;
    size_t total = 0;
    c->begin = calloc(g->n_nodes + 2, sizeof *c->begin);
    c->missing = calloc(g->n_nodes, sizeof *c->missing);
    c->todo = calloc(g->n_nodes, sizeof *c->todo);
    if (!c->begin || !c->missing || !c->todo)
        return err_oom(e, g->n_nodes * sizeof *c->begin);
    for (size_t i = 0; i < g->n_nodes; i++)
        for (size_t k = parts(g, &g->nodes[i], &v); k-- > 0; total++)
            c->begin[v[k] + 2]++;
    c->user = calloc(total + 1, sizeof *c->user);
    if (!c->user)
        return err_oom(e, total * sizeof *c->user);
    for (size_t i = 2; i < g->n_nodes + 2; i++)
        c->begin[i] += c->begin[i - 1];
    for (size_t i = 0; i < g->n_nodes; i++)
        for (size_t k = parts(g, &g->nodes[i], &v); k-- > 0;)
            c->user[c->begin[v[k] + 1]++] = (uint32_t)i;
    return 0;
}

static void mark(struct check *c, unsigned char *has, uint32_t i)
{
    if (has[i])
        return;
    has[i] = 1;
    c->todo[c->n_todo++] = i;
}

/* A sequence has the property if all its parts have it, NODE_NEED if a number
 * of them has it, any other node if one part has it. */
static void spread(struct check *c, unsigned char *has)
{
    const struct grammar *g = c->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct node *v = &g->nodes[i];
        size_t n = node_n_kids(v);
        c->missing[i] =
            v->type == NODE_NEED ? node_kids(g, v)[n - 1] : (uint32_t)n;
    }
    while (c->n_todo) {
        uint32_t i = c->todo[--c->n_todo];
        for (size_t k = c->begin[i]; k < c->begin[i + 1]; k++) {
            uint32_t user = c->user[k];
            bool counts = g->nodes[user].type == NODE_SEQ ||
                          g->nodes[user].type == NODE_NEED;
            if (!counts || --c->missing[user] == 0)
                mark(c, has, user);
        }
    }
}

/* Whether an automaton matches the empty text: it may end in its start, or
 * after leaving its count of 0. */
static bool dfa_has_empty(const struct grammar *g, const struct node *v)
{
    const struct dfa_draft_edge *d = node_data(g, v);
    size_t n = v->len / sizeof *d;
    uint32_t after = 0;
    for (size_t i = 0; i < n && d[i].from == 0; i++)
        if (d[i].lo == DFA_LEAVE && d[i].hi == 0)
            after = d[i].to;
    for (size_t i = 0; i < n; i++)
        if (d[i].lo == DFA_END && (d[i].from == 0 || d[i].from == after))
            return true;
    return false;
}

/* Whether a node belongs to parts in any order and reads nothing. */
static bool is_mark(const struct node *v)
{
    return v->type == NODE_FREE || v->type == NODE_TAKE || v->type == NODE_DONE;
}

static int find_properties(struct check *c, struct qwick_err *e)
{
    struct grammar *g = c->g;
    g->productive = calloc(g->n_nodes, 1);
    g->nullable = calloc(g->n_nodes, 1);
    if (!g->productive || !g->nullable)
        return err_oom(e, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct node *v = &g->nodes[i];
        if (v->type == NODE_EMPTY || v->type == NODE_BYTES ||
            v->type == NODE_CLASS || v->type == NODE_DFA || is_mark(v) ||
            (v->type == NODE_NEED &&
             node_kids(g, v)[node_n_kids(v) - 1] == 0) ||
            (v->type == NODE_REPEAT && node_kids(g, v)[1] == 0))
            mark(c, g->productive, i);
    }
    spread(c, g->productive);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct node *v = &g->nodes[i];
        if (v->type == NODE_EMPTY || v->type == NODE_NEED || is_mark(v) ||
            (v->type == NODE_REPEAT && node_kids(g, v)[1] == 0) ||
            (v->type == NODE_DFA && dfa_has_empty(g, v)))
            mark(c, g->nullable, i);
    }
    spread(c, g->nullable);
    return 0;
}

/* ---- counted parts ---- */

static bool dfa_counts(const struct grammar *g, const struct node *v)
{
    const struct dfa_draft_edge *d = node_data(g, v);
    for (size_t i = 0; i < v->len / sizeof *d; i++)
        if (d[i].lo > DFA_SKIP)
            return true;
    return false;
}

/* Make rules of counted parts inside counted repetitions: a place has one
 * count. */
static int separate_counts(struct grammar *g, struct qwick_err *e)
{
    size_t n = g->n_nodes;
    unsigned char *counts = calloc(n, 1); /* whether a node has a count */
    const uint32_t *kids;
    if (!counts)
        return err_oom(e, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct node *v = &g->nodes[i];
        bool counted = node_is_counted(g, v);
        if (v->type != NODE_REF)
            for (size_t k = parts(g, v, &kids); k-- > 0;)
                counts[i] |= counts[kids[k]];
        if (counted && counts[i]) {
            uint32_t part = *node_kids(g, v);
            uint32_t ref = grammar_shared(g, "part", part);
            size_t off = g->nodes[i].off;
            memcpy(g->data.data + off, &ref, sizeof ref);
        }
        counts[i] |=
            counted || is_mark(&g->nodes[i]) ||
            (g->nodes[i].type == NODE_DFA && dfa_counts(g, &g->nodes[i]));
    }
    free(counts);
    return grammar_error(g, e);
}

/* ---- the order of rules ---- */

/* A walk over nodes, depth first, without recursion: grammars may have long
 * chains of rules. */
struct walk {
    uint32_t node;
    uint32_t at; /* part to visit next */
};

enum { NEW, OPEN, DONE }; /* states of a node in a walk */

struct order {
    struct grammar *g;
    unsigned char *state; /* [n_nodes] */
    struct walk *stack;   /* [n_nodes + 1] */
    size_t n;
    unsigned char *reached; /* [n_rules] */
    uint32_t *finish; /* [n_nodes] when the walk left a node; counts from 1 */
    uint32_t n_finished;
};

static const char *rule_name(const struct grammar *g, uint32_t rule,
                             char out[ERR_SHOWN])
{
    const struct rule *r = &g->rules[rule];
    return err_show(out, g->names.data + r->name, r->n_name);
}

static void order_push(struct order *o, uint32_t node)
{
    o->state[node] = OPEN;
    o->stack[o->n++] = (struct walk){.node = node};
}

/* Return the part of the top of the stack to visit next, or NO_NODE. With
 * `left`, only parts that the text of the node can begin with. */
static uint32_t next_part(struct order *o, bool left)
{
    const struct grammar *g = o->g;
    struct walk *w = &o->stack[o->n - 1];
    const struct node *v = &g->nodes[w->node];
    const uint32_t *kids;
    size_t n = left && v->type == NODE_NEED ? 0 : parts(g, v, &kids);
    while (w->at < n) {
        uint32_t kid = kids[w->at++];
        if (left && v->type == NODE_SEQ && !g->nullable[kid])
            w->at = UINT32_MAX;
        if (!left || g->productive[kid])
            return kid;
    }
    return NO_NODE;
}

static int undefined(const struct grammar *g, uint32_t node,
                     struct qwick_err *e)
{
    uint32_t rule = node_kids(g, &g->nodes[node])[0];
    return err_usage(e, "%s: rule \"%s\" is not defined", g->name,
                     rule_name(g, rule, (char[ERR_SHOWN]){""}));
}

/* Find the rules that a node reaches. */
static int reach(struct order *o, uint32_t start, struct qwick_err *e)
{
    const struct grammar *g = o->g;
    order_push(o, start);
    while (o->n) {
        uint32_t node = o->stack[o->n - 1].node, kid;
        if (g->nodes[node].type == NODE_REF) {
            uint32_t rule = node_kids(g, &g->nodes[node])[0];
            if (g->rules[rule].node == NO_NODE)
                return undefined(g, node, e);
            o->reached[rule] = 1;
        }
        kid = next_part(o, false);
        if (kid == NO_NODE)
            o->n--;
        else if (o->state[kid] == NEW)
            order_push(o, kid);
    }
    return 0;
}

static int left_recursion(const struct order *o, uint32_t node,
                          struct qwick_err *e)
{
    const struct grammar *g = o->g;
    char name[ERR_SHOWN];
    for (size_t i = o->n; i-- > 0;) { /* the innermost reference in the cycle */
        const struct node *v = &g->nodes[o->stack[i].node];
        if (v->type == NODE_REF)
            return err_usage(e,
                             "%s: rule \"%s\" begins with itself (left "
                             "recursion); write it with a repetition",
                             g->name, rule_name(g, *node_kids(g, v), name));
    }
    return err_usage(e, "%s: part %u begins with itself", g->name, node);
}

/* Walk over everything that the texts of a rule can begin with. */
static int walk_left(struct order *o, uint32_t rule, struct qwick_err *e)
{
    uint32_t start = o->g->rules[rule].node;
    if (o->state[start] == NEW)
        order_push(o, start);
    while (o->n) {
        uint32_t kid = next_part(o, true);
        if (kid == NO_NODE) {
            uint32_t node = o->stack[--o->n].node;
            o->state[node] = DONE;
            o->finish[node] = ++o->n_finished;
            continue;
        }
        if (o->state[kid] == OPEN)
            return left_recursion(o, kid, e);
        if (o->state[kid] == NEW)
            order_push(o, kid);
    }
    return 0;
}

/* Sort the rules. If texts of rule A can begin with rule B, the walk leaves A's
 * node later than B's, so A comes first. */
static int sort_rules(struct order *o, struct qwick_err *e)
{
    struct grammar *g = o->g;
    uint32_t *by_finish = malloc((g->n_nodes + 1) * sizeof *by_finish);
    uint32_t *next = malloc((g->n_rules + 1) * sizeof *next);
    g->order = malloc((g->n_rules + 1) * sizeof *g->order);
    bool ok = by_finish && next && g->order;
    for (size_t i = 0; ok && i <= g->n_nodes; i++)
        by_finish[i] = NO_NODE;
    for (uint32_t r = 0; ok && r < g->n_rules; r++)
        if (o->reached[r]) { /* rules with the same node form a list */
            uint32_t at = o->finish[g->rules[r].node];
            next[r] = by_finish[at];
            by_finish[at] = r;
        }
    for (size_t i = g->n_nodes + 1; ok && i-- > 0;)
        for (uint32_t r = by_finish[i]; r != NO_NODE; r = next[r])
            g->order[g->n_order++] = r;
    free(by_finish);
    free(next);
    return ok ? 0 : err_oom(e, g->n_nodes * sizeof *by_finish);
}

static int order_rules(struct grammar *g, struct qwick_err *e)
{
    struct order o = {.g = g};
    int rc = -1;
    o.state = calloc(g->n_nodes, 1);
    o.stack = calloc(g->n_nodes + 1, sizeof *o.stack);
    o.reached = calloc(g->n_rules, 1);
    o.finish = calloc(g->n_nodes, sizeof *o.finish);
    if (!o.state || !o.stack || !o.reached || !o.finish) {
        err_oom(e, g->n_nodes * sizeof *o.stack);
        goto done;
    }
    o.reached[g->root] = 1;
    if (reach(&o, g->rules[g->root].node, e))
        goto done;
    if (!g->productive[g->rules[g->root].node]) {
        err_usage(e, "%s: no text can match", g->name);
        goto done;
    }
    memset(o.state, NEW, g->n_nodes);
    for (uint32_t r = 0; r < g->n_rules; r++)
        if (o.reached[r] && g->productive[g->rules[r].node] &&
            walk_left(&o, r, e))
            goto done;
    rc = sort_rules(&o, e);
done:
    free(o.state);
    free(o.stack);
    free(o.reached);
    free(o.finish);
    return rc;
}

/* Give back the memory that the nodes do not need. */
static void shrink_data(struct grammar *g)
{
    size_t n = g->data.len + 1;
    char *data = realloc(g->data.data, n);
    if (!data)
        return;
    g->data.data = data;
    g->data.cap = n;
}

int grammar_finish(struct grammar *g, uint32_t root, struct qwick_err *e)
{
    struct check c = {.g = g};
    int rc = -1;
    if (grammar_error(g, e))
        return -1;
    if (!grammar_is_defined(g, root))
        return err_usage(e, "%s: has no rule to begin with", g->name);
    g->root = root;
    if (!separate_counts(g, e) && !list_users(&c, e) && !find_properties(&c, e))
        rc = order_rules(g, e);
    free(c.begin);
    free(c.user);
    free(c.missing);
    free(c.todo);
    shrink_data(g);
    g->done = rc == 0;
    return rc;
}
