/* A grammar as instructions (Thompson 1968), one block for each rule. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "text/grammar/automaton_int.h"
#include "text/grammar/grammar_int.h"

struct builder {
    struct code *c;
    const struct grammar *g;
    uint32_t *index;        /* [g->n_rules] position of a rule in the order */
    unsigned char *inlined; /* [g->n_rules] references become copies */
    struct qwick_err *e;
};

static int emit_node(struct builder *b, uint32_t node);

static int put_instr(struct builder *b, struct instr i)
{
    struct code *c = b->c;
    if (c->n >= AUTOMATON_MAX_CODE)
        return err_usage(b->e,
                         "%s: is too large: its automaton has more than %u "
                         "instructions (large repetitions of large parts?)",
                         b->g->name, AUTOMATON_MAX_CODE);
    if (ARRAY_RESERVE(c->v, c->cap, c->n + 1, b->e))
        return -1;
    c->v[c->n++] = i;
    return 0;
}

static int put_range(struct builder *b, unsigned lo, unsigned hi)
{
    return put_instr(
        b,
        (struct instr){.op = OP_RANGE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}

static int put_op(struct builder *b, enum op op, uint32_t arg)
{
    return put_instr(b, (struct instr){.op = (uint8_t)op, .arg = arg});
}

/* Jumps to a place that is not known yet. Until then their args link them into
 * a list: 0 ends it. */
static int put_jump(struct builder *b, uint32_t *jumps)
{
    uint32_t at = (uint32_t)b->c->n;
    if (put_op(b, OP_JUMP, *jumps))
        return -1;
    *jumps = at;
    return 0;
}

/* Let these jumps, or splits that are linked like them, lead to the next
 * instruction. */
static void end_jumps(struct builder *b, uint32_t jumps)
{
    struct code *c = b->c;
    for (uint32_t next; jumps; jumps = next) {
        next = c->v[jumps].arg;
        c->v[jumps].arg = (uint32_t)c->n;
    }
}

/* ---- classes ---- */

/* The ranges of bytes, one after the other, that encode a range of code
 * points. */
struct sequence {
    unsigned char lo[4], hi[4];
    size_t n;
};

struct sequences {
    struct sequence *v;
    size_t n, cap;
};

static int put_sequence(struct builder *b, struct sequences *s, uint32_t lo,
                        uint32_t hi)
{
    struct sequence q;
    if (ARRAY_RESERVE(s->v, s->cap, s->n + 1, b->e))
        return -1;
    q.n = utf8_encode(lo, (char *)q.lo);
    utf8_encode(hi, (char *)q.hi);
    s->v[s->n++] = q;
    return 0;
}

/* Cut lo..hi into ranges whose encodings have equal lengths, and whose bytes
 * are independent: each byte takes all values of a range, whatever the others
 * are. */
static int split_range(struct builder *b, struct sequences *s, uint32_t lo,
                       uint32_t hi)
{
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF};
    for (size_t i = 0; i < 3; i++)
        if (lo <= last[i] && hi > last[i])
            return split_range(b, s, lo, last[i]) ||
                           split_range(b, s, last[i] + 1, hi)
                       ? -1
                       : 0;
    for (unsigned bits = 6; hi > 0x7F && bits <= 18; bits += 6) {
        uint32_t m = (1u << bits) - 1;
        if ((lo & ~m) == (hi & ~m))
            continue;
        if (lo & m)
            return split_range(b, s, lo, lo | m) ||
                           split_range(b, s, (lo | m) + 1, hi)
                       ? -1
                       : 0;
        if ((hi & m) != m)
            return split_range(b, s, lo, (hi & ~m) - 1) ||
                           split_range(b, s, hi & ~m, hi)
                       ? -1
                       : 0;
    }
    return put_sequence(b, s, lo, hi);
}

static int emit_class(struct builder *b, const struct node *v)
{
    const struct grammar_range *r = node_data(b->g, v);
    struct sequences s = {0};
    uint32_t jumps = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < v->len / sizeof *r; i++)
        rc = split_range(b, &s, r[i].lo, r[i].hi);
    for (size_t i = 0; !rc && i < s.n; i++) {
        bool last = i + 1 == s.n;
        uint32_t next = (uint32_t)(b->c->n + s.v[i].n + 2);
        if (!last)
            rc = put_op(b, OP_SPLIT, next);
        for (size_t k = 0; !rc && k < s.v[i].n; k++)
            rc = put_range(b, s.v[i].lo[k], s.v[i].hi[k]);
        if (!rc && !last)
            rc = put_jump(b, &jumps);
    }
    end_jumps(b, jumps);
    free(s.v);
    return rc;
}

/* ---- nodes ---- */

static int emit_bytes(struct builder *b, const struct node *v)
{
    const unsigned char *p = node_data(b->g, v);
    for (size_t i = 0; i < v->len; i++)
        if (put_range(b, p[i], p[i]))
            return -1;
    return 0;
}

/* ---- alternatives ---- */

/* An alternative: bytes, then nodes. */
struct branch {
    const unsigned char *p;
    size_t n;
    const uint32_t *rest;
    size_t n_rest;
};

/* Branches that have `depth` bytes in common, and where a split to them is. */
struct branches {
    size_t from, to, depth;
    uint32_t split; /* 0: none */
};

/* Alternatives as a tree over their first bytes. So a text is at few places,
 * however many alternatives there are. */
struct tree {
    struct branch *v;
    size_t n, cap;
    struct branches *todo; /* stack */
    size_t n_todo, cap_todo;
    uint32_t jumps;
};

static int compare_branches(const void *px, const void *py)
{
    const struct branch *x = px, *y = py;
    size_t n = x->n < y->n ? x->n : y->n;
    int c = n ? memcmp(x->p, y->p, n) : 0;
    if (c || x->n != y->n)
        return c ? c : x->n < y->n ? -1 : 1;
    if (x->n_rest != y->n_rest)
        return x->n_rest < y->n_rest ? -1 : 1;
    return memcmp(x->rest, y->rest, x->n_rest * sizeof *x->rest);
}

static int add_branch(struct builder *b, struct tree *t, const uint32_t *kid)
{
    const struct node *v = &b->g->nodes[*kid];
    if (ARRAY_RESERVE(t->v, t->cap, t->n + 1, b->e))
        return -1;
    while (v->type == NODE_REF && b->inlined[*node_kids(b->g, v)])
        v = &b->g->nodes[b->g->rules[*node_kids(b->g, v)].node];
    struct branch x = {.rest = kid, .n_rest = 1};
    if (v->type == NODE_SEQ) {
        x.rest = node_kids(b->g, v);
        x.n_rest = node_n_kids(v);
        v = &b->g->nodes[x.rest[0]];
    }
    if (v->type == NODE_BYTES) {
        x.p = node_data(b->g, v);
        x.n = v->len;
        x.rest++;
        x.n_rest--;
    }
    t->v[t->n++] = x;
    return 0;
}

static int push_branches(struct builder *b, struct tree *t, struct branches x)
{
    if (ARRAY_RESERVE(t->todo, t->cap_todo, t->n_todo + 1, b->e))
        return -1;
    t->todo[t->n_todo++] = x;
    return 0;
}

/* Return the end of the first branches of x that go on with one byte, or that
 * are equal and have no more bytes. */
static size_t same_branches(const struct tree *t, const struct branches *x)
{
    const struct branch *first = &t->v[x->from];
    size_t i = x->from + 1;
    if (first->n == x->depth)
        while (i < x->to && compare_branches(first, &t->v[i]) == 0)
            i++;
    else
        while (i < x->to && t->v[i].p[x->depth] == first->p[x->depth])
            i++;
    return i;
}

/* Emit the bytes that the branches from..to have in common after the first
 * `depth`, or the rest of one that has no more. */
static int emit_branches(struct builder *b, struct tree *t, size_t from,
                         size_t to, size_t depth)
{
    const struct branch *first = &t->v[from], *last = &t->v[to - 1];
    size_t end = depth;
    if (first->n == depth) {
        for (size_t i = 0; i < first->n_rest; i++)
            if (emit_node(b, first->rest[i]))
                return -1;
        return t->n_todo ? put_jump(b, &t->jumps) : 0;
    }
    while (end < first->n && first->p[end] == last->p[end])
        end++;
    for (size_t i = depth; i < end; i++)
        if (put_range(b, first->p[i], first->p[i]))
            return -1;
    return push_branches(b, t, (struct branches){from, to, end, 0});
}

static int emit_tree(struct builder *b, struct tree *t)
{
    qsort(t->v, t->n, sizeof *t->v, compare_branches);
    if (push_branches(b, t, (struct branches){0, t->n, 0, 0}))
        return -1;
    while (t->n_todo) {
        struct branches x = t->todo[--t->n_todo];
        size_t mid = same_branches(t, &x);
        if (x.split)
            b->c->v[x.split].arg = (uint32_t)b->c->n;
        if (mid < x.to) {
            struct branches others = {mid, x.to, x.depth, (uint32_t)b->c->n};
            if (put_op(b, OP_SPLIT, 0) || push_branches(b, t, others))
                return -1;
        }
        if (emit_branches(b, t, x.from, mid, x.depth))
            return -1;
    }
    end_jumps(b, t->jumps);
    return 0;
}

static int emit_alt(struct builder *b, const struct node *v)
{
    const uint32_t *kids = node_kids(b->g, v);
    struct tree t = {0};
    int rc = 0;
    for (size_t i = 0; !rc && i < node_n_kids(v); i++)
        if (b->g->productive[kids[i]])
            rc = add_branch(b, &t, &kids[i]);
    if (!rc && t.n)
        rc = emit_tree(b, &t);
    free(t.v);
    free(t.todo);
    return rc;
}

/* ---- repetitions ---- */

static int emit_copies(struct builder *b, uint32_t node, uint32_t min,
                       uint32_t max)
{
    for (uint32_t i = 0; i < min; i++)
        if (emit_node(b, node))
            return -1;
    if (max == GRAMMAR_UNBOUNDED) {
        uint32_t split = (uint32_t)b->c->n;
        if (put_op(b, OP_SPLIT, 0) || emit_node(b, node) ||
            put_op(b, OP_JUMP, split))
            return -1;
        b->c->v[split].arg = (uint32_t)b->c->n;
        return 0;
    }
    uint32_t splits = 0;
    for (uint32_t i = min; i < max; i++) {
        uint32_t at = (uint32_t)b->c->n;
        if (put_op(b, OP_SPLIT, splits) || emit_node(b, node))
            return -1;
        splits = at;
    }
    end_jumps(b, splits);
    return 0;
}

/* Note the counted part that begins at an instruction and ends here. */
static int note_counter(struct builder *b, uint32_t start, uint32_t min,
                        uint32_t max)
{
    struct code *c = b->c;
    if (ARRAY_RESERVE(c->counters, c->cap_counters, c->n_counters + 1, b->e))
        return -1;
    c->counters[c->n_counters++] =
        (struct code_counter){start, (uint32_t)c->n, min, max};
    return 0;
}

/* Emit a loop with a count. No other one is inside: grammar_finish made a rule
 * of it. */
static int emit_counted(struct builder *b, uint32_t node, uint32_t min,
                        uint32_t max)
{
    struct code *c = b->c;
    uint32_t start = (uint32_t)c->n;
    bool bounded = max != GRAMMAR_UNBOUNDED;
    if (put_op(b, OP_SPLIT, 0) ||
        put_op(b, bounded ? OP_COUNT : OP_COUNT_UP, bounded ? max : min) ||
        emit_node(b, node) || put_op(b, OP_JUMP, start))
        return -1;
    c->v[start].arg = (uint32_t)c->n;
    return put_op(b, OP_LEAVE, min) || note_counter(b, start, min, max) ? -1
                                                                        : 0;
}

static int emit_repeat(struct builder *b, const struct node *v)
{
    const uint32_t *p = node_kids(b->g, v); /* node, min, max */
    if (!b->g->productive[p[0]])
        return 0;             /* zero times */
    if (b->g->nullable[p[0]]) /* fewer times are enough */
        return emit_copies(b, p[0], 0, p[2]);
    return node_is_counted(b->g, v) ? emit_counted(b, p[0], p[1], p[2])
                                    : emit_copies(b, p[0], p[1], p[2]);
}

/* ---- finite automata ---- */

/* Whether another edge of the same state follows edge i. */
static bool has_next(const struct dfa_draft_edge *d, size_t n, size_t i)
{
    return i + 1 < n && d[i + 1].from == d[i].from;
}

/* The instructions of edge i: a split unless it is the last of its state, one
 * for what it reads or counts, and a jump. */
static uint32_t edge_size(const struct dfa_draft_edge *d, size_t n, size_t i)
{
    bool reads = d[i].lo != DFA_END && d[i].lo != DFA_SKIP;
    return 1u + reads + has_next(d, n, i);
}

static int emit_edge(struct builder *b, const struct dfa_draft_edge *d,
                     size_t n, size_t i, uint32_t to)
{
    static const enum op ops[] = {[DFA_COUNT - DFA_COUNT] = OP_COUNT,
                                  [DFA_COUNT_UP - DFA_COUNT] = OP_COUNT_UP,
                                  [DFA_LEAVE - DFA_COUNT] = OP_LEAVE};
    uint32_t next = (uint32_t)b->c->n + edge_size(d, n, i);
    if (has_next(d, n, i) && put_op(b, OP_SPLIT, next))
        return -1;
    if (d[i].lo < DFA_END && put_range(b, d[i].lo, d[i].hi))
        return -1;
    if (d[i].lo > DFA_SKIP && put_op(b, ops[d[i].lo - DFA_COUNT], d[i].hi))
        return -1;
    return put_op(b, OP_JUMP, to);
}

static int emit_dfa(struct builder *b, const struct node *v)
{
    const struct dfa_draft_edge *d = node_data(b->g, v);
    size_t n = v->len / sizeof *d, n_states = n ? d[n - 1].from + 1u : 0;
    uint32_t *label = calloc(n_states + 1, sizeof *label);
    uint32_t start = (uint32_t)b->c->n, at = start, min = 0, max = UINT32_MAX;
    bool counted = false;
    int rc = 0;
    if (!label)
        return err_oom(b->e, n_states * sizeof *label);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || d[i].from != d[i - 1].from)
            label[d[i].from] = at;
        at += edge_size(d, n, i);
        counted |= d[i].lo > DFA_SKIP;
        if (d[i].lo == DFA_LEAVE)
            min = d[i].hi;
        if (d[i].lo == DFA_COUNT && d[i].hi < max)
            max = d[i].hi;
    }
    for (size_t i = 0; !rc && i < n; i++)
        rc = emit_edge(b, d, n, i, d[i].lo == DFA_END ? at : label[d[i].to]);
    free(label);
    return rc || (counted && note_counter(b, start, min, max)) ? -1 : 0;
}

static int emit_mark(struct builder *b, const struct node *v)
{
    const uint32_t *p = node_kids(b->g, v); /* index in onces, part */
    enum op op = v->type == NODE_FREE   ? OP_FREE
                 : v->type == NODE_TAKE ? OP_TAKE
                                        : OP_DONE;
    return put_instr(b, (struct instr){.op = (uint8_t)op,
                                       .lo = (uint8_t)p[1],
                                       .hi = (uint8_t)(p[1] >> 8),
                                       .arg = p[0]});
}

static int emit_seq(struct builder *b, const struct node *v)
{
    for (size_t i = 0; i < node_n_kids(v); i++)
        if (emit_node(b, node_kids(b->g, v)[i]))
            return -1;
    return 0;
}

/* Emit a productive node. Recursion is bounded by GRAMMAR_MAX_DEPTH. */
static int emit_node(struct builder *b, uint32_t node)
{
    const struct node *v = &b->g->nodes[node];
    switch (v->type) {
    case NODE_BYTES:
        return emit_bytes(b, v);
    case NODE_CLASS:
        return emit_class(b, v);
    case NODE_SEQ:
        return emit_seq(b, v);
    case NODE_ALT:
        return emit_alt(b, v);
    case NODE_REPEAT:
        return emit_repeat(b, v);
    case NODE_DFA:
        return emit_dfa(b, v);
    case NODE_FREE:
    case NODE_TAKE:
    case NODE_DONE:
        return emit_mark(b, v);
    case NODE_REF:
        if (b->inlined[*node_kids(b->g, v)])
            return emit_node(b, b->g->rules[*node_kids(b->g, v)].node);
        return put_op(b, OP_CALL, b->index[*node_kids(b->g, v)]);
    default: /* NODE_EMPTY, NODE_NEED */
        return 0;
    }
}

/* ---- rules ---- */

/* Limits of copied rules: levels of rules inside each other, instructions of
 * one copy, and its largest repetition. */
enum { INLINE_LEVELS = 4, INLINE_SIZE = 400, INLINE_REPEAT = 8 };

/* Estimate the instructions of a copy of a node. The result exceeds INLINE_SIZE
 * if the node is not worth copying. size has the estimates of nodes so far. */
static uint32_t inline_size(const struct builder *b, const uint32_t *size,
                            const struct node *v)
{
    const uint32_t *kids = node_kids(b->g, v);
    uint32_t sum = 1;
    switch (v->type) {
    case NODE_BYTES:
        return v->len;
    case NODE_CLASS:
        return v->len / (uint32_t)sizeof(struct grammar_range) * 10;
    case NODE_SEQ:
    case NODE_ALT:
        for (size_t i = 0; i < node_n_kids(v) && sum <= INLINE_SIZE; i++)
            sum += size[kids[i]] + 2;
        return sum;
    case NODE_REPEAT: /* a long one is worth a rule: masks are kept for it */
        return kids[2] <= INLINE_REPEAT && !node_is_counted(b->g, v)
                   ? (size[kids[0]] + 1) * kids[2]
                   : INLINE_SIZE + 1;
    case NODE_REF:
        return b->inlined[kids[0]] ? size[b->g->rules[kids[0]].node]
                                   : INLINE_SIZE + 1;
    case NODE_DFA:
    case NODE_FREE: /* a rule of its own has the set */
    case NODE_TAKE:
    case NODE_DONE:
        return INLINE_SIZE + 1;
    default:
        return 0;
    }
}

/* Choose the rules to copy: small ones without loops, such as one character of
 * a string. Each round finds those whose references earlier rounds found, so
 * rules that contain themselves are never among them. */
static int choose_inlined(struct builder *b)
{
    const struct grammar *g = b->g;
    uint32_t *size = calloc(g->n_nodes, sizeof *size);
    if (!size)
        return err_oom(b->e, g->n_nodes * sizeof *size);
    for (int level = 0; level < INLINE_LEVELS; level++) {
        /* a reference may have a lower number than the node of its rule */
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < g->n_nodes; i++) {
                uint32_t n = inline_size(b, size, &g->nodes[i]);
                size[i] = n <= INLINE_SIZE ? n : INLINE_SIZE + 1;
            }
        for (size_t r = 0; r < g->n_rules; r++)
            if (g->rules[r].node != NO_NODE)
                b->inlined[r] |= size[g->rules[r].node] <= INLINE_SIZE;
    }
    free(size);
    return 0;
}

static int add_first(struct builder *b, struct first **v, size_t *n,
                     size_t *cap, struct first x)
{
    if (ARRAY_RESERVE(*v, *cap, *n + 1, b->e))
        return -1;
    (*v)[(*n)++] = x;
    return 0;
}

/* Whether a rule can begin with an instruction of parts in any order, and go on
 * after it with the empty set. */
static bool first_mark(const struct code *c, const struct instr *i)
{
    const struct code_once *o = &c->onces[i->arg];
    uint32_t part = code_part(i);
    if (i->op != OP_FREE)
        return i->op == OP_DONE && o->min == 0 && o->n_required == 0;
    return o->max > 0 &&
           o->n_required - (part < o->n ? o->required[part] : 0) <= o->max - 1;
}

/* Instructions that a rule can begin with, to be looked at. */
struct first_list {
    struct first *v;
    size_t n, cap;
};

static int add_todo(struct builder *b, struct first_list *l, struct first x)
{
    return add_first(b, &l->v, &l->n, &l->cap, x);
}

/* Look at one instruction that a rule can begin with. */
static int look_at_first(struct builder *b, struct first x,
                         struct first_list *todo)
{
    struct code *c = b->c;
    const struct instr *i = &c->v[x.pc];
    struct first next = {0, x.pc + 1, x.count}, to = {0, i->arg, x.count};
    switch ((enum op)i->op) {
    case OP_RANGE:
        return add_first(b, &c->first_ranges, &c->n_first_ranges,
                         &c->cap_first_ranges, x);
    case OP_SPLIT:
        return add_todo(b, todo, next) ? -1 : add_todo(b, todo, to);
    case OP_JUMP:
        return add_todo(b, todo, to);
    case OP_CALL:
        next.rule = i->arg;
        if (add_first(b, &c->first_calls, &c->n_first_calls,
                      &c->cap_first_calls, next))
            return -1;
        return c->rules[i->arg].nullable ? add_todo(b, todo, next) : 0;
    case OP_COUNT:
    case OP_COUNT_UP:
    case OP_LEAVE:
        return code_count(i, &next.count) ? add_todo(b, todo, next) : 0;
    case OP_FREE:
    case OP_TAKE: /* not before the first byte */
    case OP_DONE:
        return first_mark(c, i) ? add_todo(b, todo, next) : 0;
    case OP_RETURN:
    case OP_ACCEPT:
        break;
    }
    return 0;
}

/* Find the ranges and calls that a rule can begin with. seen: a bit for each
 * instruction that was visited; all 0 before. A counted part is not left and
 * entered again without a byte, so an instruction has only one count. */
static int find_firsts(struct builder *b, uint32_t rule, uint64_t *seen,
                       struct first_list *todo)
{
    struct code *c = b->c;
    struct code_rule *r = &c->rules[rule];
    r->ranges = (uint32_t)c->n_first_ranges;
    r->calls = (uint32_t)c->n_first_calls;
    if (add_todo(b, todo, (struct first){.pc = r->entry}))
        return -1;
    while (todo->n) {
        struct first x = todo->v[--todo->n];
        bool again = seen[x.pc / 64] >> (x.pc & 63) & 1;
        seen[x.pc / 64] |= 1ull << (x.pc & 63);
        if (!again && look_at_first(b, x, todo))
            return -1;
    }
    r->n_ranges = (uint32_t)c->n_first_ranges - r->ranges;
    r->n_calls = (uint32_t)c->n_first_calls - r->calls;
    return 0;
}

static int find_all_firsts(struct builder *b)
{
    struct code *c = b->c;
    uint64_t *seen = calloc(c->n / 64 + 1, sizeof *seen);
    struct first_list todo = {0};
    int rc = seen ? 0 : err_oom(b->e, c->n / 8);
    for (uint32_t r = 0; !rc && r < c->n_rules; r++) {
        /* its instructions are between its entry and the next rule's */
        size_t from = c->rules[r].entry / 64,
               last = (r + 1 < c->n_rules ? c->rules[r + 1].entry : c->n) / 64;
        rc = find_firsts(b, r, seen, &todo);
        memset(seen + from, 0, (last + 1 - from) * sizeof *seen);
    }
    free(seen);
    free(todo.v);
    return rc;
}

static int emit_rules(struct builder *b)
{
    const struct grammar *g = b->g;
    struct code *c = b->c;
    for (size_t i = 0; i < g->n_order; i++) {
        uint32_t node = g->rules[g->order[i]].node;
        c->rules[i].entry = (uint32_t)c->n;
        c->rules[i].nullable = g->nullable[node];
        /* nothing refers to a rule that admits no text */
        if ((g->productive[node] && emit_node(b, node)) ||
            put_op(b, OP_RETURN, 0))
            return -1;
    }
    return 0;
}

/* Copy what the grammar knows of parts in any order. */
static int copy_onces(struct builder *b)
{
    const struct grammar *g = b->g;
    struct code *c = b->c;
    if (g->n_onces == 0)
        return 0;
    c->onces = calloc(g->n_onces, sizeof *c->onces);
    c->once_of = calloc(g->n_order, sizeof *c->once_of);
    if (!c->onces || !c->once_of)
        return err_oom(b->e, g->n_onces * sizeof *c->onces);
    for (; c->n_onces < g->n_onces; c->n_onces++) {
        const struct once *from = &g->onces[c->n_onces];
        struct code_once *to = &c->onces[c->n_onces];
        *to = (struct code_once){
            from->n,          from->min,           from->max,
            from->n_required, malloc(from->n + 1), from->differ};
        if (!to->required)
            return err_oom(b->e, from->n);
        memcpy(to->required, g->data.data + from->required, from->n);
    }
    return 0;
}

const struct code_once *code_once_at(const struct code *c, uint32_t pc)
{
    size_t low = 0, high = c->n_rules;
    while (c->once_of && low + 1 < high) {
        size_t mid = low + (high - low) / 2;
        if (c->rules[mid].entry <= pc)
            low = mid;
        else
            high = mid;
    }
    return c->once_of && c->once_of[low] && pc >= c->rules[low].entry
               ? &c->onces[c->once_of[low] - 1]
               : NULL;
}

/* Note the rules whose places have sets of parts, and the instructions whose
 * bytes are recorded. */
static void note_once_rules(struct code *c)
{
    for (size_t r = 0; c->once_of && r < c->n_rules; r++) {
        bool records = false;
        for (size_t i = c->rules[r].entry; c->v[i].op != OP_RETURN; i++) {
            struct instr *in = &c->v[i];
            if (code_is_once(in)) {
                c->once_of[r] = in->arg + 1;
                records = in->op == OP_FREE && c->onces[in->arg].differ;
            } else if (in->op == OP_RANGE && records) {
                in->arg = RANGE_RECORDS;
                c->records = true;
            }
        }
    }
}

static void classify_bytes(struct code *c)
{
    unsigned char begins[257] = {0};
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].op == OP_RANGE) {
            begins[c->v[i].lo] = 1;
            begins[c->v[i].hi + 1] = 1;
        }
    if (c->records) /* texts tell all bytes apart */
        memset(begins, 1, sizeof begins);
    c->n_classes = 1;
    for (size_t i = 0; i < 256; i++) {
        if (i && begins[i])
            c->n_classes++;
        c->class_of[i] = (unsigned char)(c->n_classes - 1);
    }
}

/* Give back the memory that the instructions do not need. */
static int shrink_code(struct code *c, struct qwick_err *e)
{
    struct instr *v = realloc(c->v, c->n * sizeof *v);
    if (!v)
        return err_oom(e, c->n * sizeof *v);
    c->v = v;
    c->cap = c->n;
    return 0;
}

int code_build(struct code *c, const struct grammar *g, struct qwick_err *e)
{
    struct builder b = {.c = c, .g = g, .e = e};
    int rc = -1;
    *c = (struct code){.n_rules = g->n_order};
    b.index = calloc(g->n_rules + 1, sizeof *b.index);
    c->rules = calloc(g->n_order + 1, sizeof *c->rules);
    b.inlined = calloc(g->n_rules + 1, 1);
    if (!b.index || !c->rules || !b.inlined) {
        err_oom(e, g->n_rules * sizeof *c->rules);
        goto done;
    }
    for (size_t i = 0; i < g->n_order; i++)
        b.index[g->order[i]] = (uint32_t)i;
    c->root = b.index[g->root];
    if (copy_onces(&b) || choose_inlined(&b) || put_op(&b, OP_ACCEPT, 0) ||
        emit_rules(&b) || shrink_code(c, e) || find_all_firsts(&b))
        goto done;
    note_once_rules(c);
    classify_bytes(c);
    rc = 0;
done:
    free(b.index);
    free(b.inlined);
    return rc;
}

void code_free(struct code *c)
{
    free(c->v);
    for (size_t i = 0; i < c->n_onces; i++)
        free(c->onces[i].required);
    free(c->onces);
    free(c->once_of);
    free(c->counters);
    free(c->rules);
    free(c->first_ranges);
    free(c->first_calls);
    *c = (struct code){0};
}
