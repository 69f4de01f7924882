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
    bool in_copies;         /* no copies are noted here */
    struct qwick_err *e;
};

/* Shorter repetitions are not noted. */
enum { MIN_COPIES = 32 };

static int emit_node(struct builder *b, uint32_t node);

static int put(struct builder *b, struct instr i)
{
    struct code *c = b->c;
    if (c->n >= AUTOMATON_MAX_CODE)
        return err_set(b->e, QWICK_ERR_USAGE,
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
    return put(b, (struct instr){
                      .op = OP_RANGE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}

/* Alternatives under construction. Each one except the last begins with a split
 * to the next one and ends with a jump to the end. Until the end is known, the
 * args of the jumps link them into a list. */
struct fork {
    uint32_t split; /* split of the current alternative, 0: none */
    uint32_t jump;  /* last jump, 0: none */
};

static int fork_next(struct builder *b, struct fork *f, bool last)
{
    struct code *c = b->c;
    if (f->split) {
        uint32_t at = (uint32_t)c->n;
        if (put(b, (struct instr){.op = OP_JUMP, .arg = f->jump}))
            return -1;
        f->jump = at;
        c->v[f->split].arg = (uint32_t)c->n;
    }
    f->split = last ? 0 : (uint32_t)c->n;
    return last ? 0 : put(b, (struct instr){.op = OP_SPLIT});
}

static void fork_end(struct builder *b, struct fork *f)
{
    struct code *c = b->c;
    for (uint32_t at = f->jump, next; at; at = next) {
        next = c->v[at].arg;
        c->v[at].arg = (uint32_t)c->n;
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
    struct fork f = {0};
    int rc = 0;
    for (size_t i = 0; !rc && i < v->len / sizeof *r; i++)
        rc = split_range(b, &s, r[i].lo, r[i].hi);
    for (size_t i = 0; !rc && i < s.n; i++) {
        rc = fork_next(b, &f, i + 1 == s.n);
        for (size_t k = 0; !rc && k < s.v[i].n; k++)
            rc = put_range(b, s.v[i].lo[k], s.v[i].hi[k]);
    }
    fork_end(b, &f);
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

static int emit_alt(struct builder *b, const struct node *v)
{
    size_t n = node_n_kids(v), left = 0;
    struct fork f = {0};
    for (size_t i = 0; i < n; i++)
        left += b->g->productive[node_kids(b->g, v)[i]];
    for (size_t i = 0; i < n; i++) {
        uint32_t kid = node_kids(b->g, v)[i];
        if (!b->g->productive[kid])
            continue;
        if (fork_next(b, &f, --left == 0) || emit_node(b, kid))
            return -1;
    }
    fork_end(b, &f);
    return 0;
}

/* Note the n copies that begin at an instruction and end here. */
static int note_copies(struct builder *b, uint32_t start, uint32_t n)
{
    struct code *c = b->c;
    if (n < MIN_COPIES || b->in_copies)
        return 0;
    if (ARRAY_RESERVE(c->copies, c->cap_copies, c->n_copies + 1, b->e))
        return -1;
    c->copies[c->n_copies++] = (struct code_copies){
        .start = start, .stride = ((uint32_t)c->n - start) / n, .n = n};
    return 0;
}

static int emit_copies(struct builder *b, uint32_t node, uint32_t min,
                       uint32_t max);

static int emit_repeat(struct builder *b, const struct node *v)
{
    const uint32_t *p = node_kids(b->g, v);
    bool outer = b->in_copies;
    if (!b->g->productive[p[0]])
        return 0; /* zero times */
    /* a copy that may be empty can be skipped, and is not noted */
    if (b->g->nullable[p[0]])
        b->in_copies = true;
    int rc = emit_copies(b, p[0], p[1], p[2]);
    b->in_copies = outer;
    return rc;
}

/* Emit a copy, inside of which no others are noted if this one is. */
static int emit_copy(struct builder *b, uint32_t node, uint32_t n)
{
    bool outer = b->in_copies;
    b->in_copies |= n >= MIN_COPIES;
    int rc = emit_node(b, node);
    b->in_copies = outer;
    return rc;
}

static int emit_copies(struct builder *b, uint32_t node, uint32_t min,
                       uint32_t max)
{
    struct code *c = b->c;
    uint32_t start = (uint32_t)c->n;
    for (uint32_t i = 0; i < min; i++)
        if (emit_copy(b, node, min))
            return -1;
    if (note_copies(b, start, min))
        return -1;
    if (max == GRAMMAR_UNBOUNDED) {
        uint32_t split = (uint32_t)c->n;
        if (put(b, (struct instr){.op = OP_SPLIT}) || emit_node(b, node) ||
            put(b, (struct instr){.op = OP_JUMP, .arg = split}))
            return -1;
        c->v[split].arg = (uint32_t)c->n;
        return 0;
    }
    uint32_t last =
        0; /* until the end is known, args link the splits into a list */
    start = (uint32_t)c->n;
    for (uint32_t i = min; i < max; i++) {
        uint32_t split = (uint32_t)c->n;
        if (put(b, (struct instr){.op = OP_SPLIT, .arg = last}) ||
            emit_copy(b, node, max - min))
            return -1;
        last = split;
    }
    if (max > min && note_copies(b, start, max - min))
        return -1;
    struct fork f = {.jump = last};
    fork_end(b, &f);
    return 0;
}

/* The instructions of edge i: a split unless it is the last of its state, a
 * range unless it ends the text, and a jump. */
static size_t edge_size(const struct dfa_edge *d, size_t n, size_t i)
{
    return 1u + (d[i].lo <= d[i].hi) +
           (i + 1 < n && d[i + 1].from == d[i].from);
}

static int emit_dfa(struct builder *b, const struct node *v)
{
    const struct dfa_edge *d = node_data(b->g, v);
    size_t n = v->len / sizeof *d, n_states = n ? d[n - 1].from + 1u : 0;
    uint32_t *label = calloc(n_states + 1, sizeof *label);
    uint32_t at = (uint32_t)b->c->n;
    int rc = 0;
    if (!label)
        return err_oom(b->e, n_states * sizeof *label);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || d[i].from != d[i - 1].from)
            label[d[i].from] = at;
        at += (uint32_t)edge_size(d, n, i);
    }
    for (size_t i = 0; !rc && i < n; i++) {
        bool ends = d[i].lo > d[i].hi;
        if (i + 1 < n && d[i + 1].from == d[i].from)
            rc = put(b, (struct instr){
                            .op = OP_SPLIT,
                            .arg = (uint32_t)(b->c->n + edge_size(d, n, i))});
        if (!rc && !ends)
            rc = put_range(b, d[i].lo, d[i].hi);
        if (!rc)
            rc = put(b, (struct instr){.op = OP_JUMP,
                                       .arg = ends ? at : label[d[i].to]});
    }
    free(label);
    return rc;
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
    case NODE_REF:
        if (b->inlined[*node_kids(b->g, v)])
            return emit_node(b, b->g->rules[*node_kids(b->g, v)].node);
        return put(b, (struct instr){.op = OP_CALL,
                                     .arg = b->index[*node_kids(b->g, v)]});
    default: /* NODE_EMPTY */
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
        return kids[2] <= INLINE_REPEAT ? (size[kids[0]] + 1) * kids[2]
                                        : INLINE_SIZE + 1;
    case NODE_REF:
        return b->inlined[kids[0]] ? size[b->g->rules[kids[0]].node]
                                   : INLINE_SIZE + 1;
    case NODE_DFA:
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

/* Find the ranges and calls that a rule can begin with. seen [n of code] holds
 * the rule that visited an instruction, plus 1. */
static int find_firsts(struct builder *b, uint32_t rule, uint32_t *seen,
                       uint32_t *todo)
{
    struct code *c = b->c;
    struct code_rule *r = &c->rules[rule];
    size_t n = 0;
    r->ranges = (uint32_t)c->n_first_ranges;
    r->calls = (uint32_t)c->n_first_calls;
    todo[n++] = r->entry;
    while (n) {
        uint32_t pc = todo[--n];
        const struct instr *i = &c->v[pc];
        if (seen[pc] == rule + 1)
            continue;
        seen[pc] = rule + 1;
        switch ((enum op)i->op) {
        case OP_RANGE:
            if (ARRAY_RESERVE(c->first_ranges, c->cap_first_ranges,
                              c->n_first_ranges + 1, b->e))
                return -1;
            c->first_ranges[c->n_first_ranges++] = pc;
            break;
        case OP_SPLIT:
            todo[n++] = pc + 1;
            todo[n++] = i->arg;
            break;
        case OP_JUMP:
            todo[n++] = i->arg;
            break;
        case OP_CALL:
            if (ARRAY_RESERVE(c->first_calls, c->cap_first_calls,
                              c->n_first_calls + 1, b->e))
                return -1;
            c->first_calls[c->n_first_calls++] =
                (struct first_call){.rule = i->arg, .back = pc + 1};
            if (c->rules[i->arg].nullable)
                todo[n++] = pc + 1;
            break;
        case OP_RETURN:
        case OP_ACCEPT:
            break;
        }
    }
    r->n_ranges = (uint32_t)c->n_first_ranges - r->ranges;
    r->n_calls = (uint32_t)c->n_first_calls - r->calls;
    return 0;
}

static int find_all_firsts(struct builder *b)
{
    struct code *c = b->c;
    uint32_t *seen = calloc(c->n, sizeof *seen);
    uint32_t *todo = malloc((2 * c->n + 2) * sizeof *todo);
    int rc = seen && todo ? 0 : err_oom(b->e, 3 * c->n * sizeof *seen);
    for (uint32_t r = 0; !rc && r < c->n_rules; r++)
        rc = find_firsts(b, r, seen, todo);
    free(seen);
    free(todo);
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
            put(b, (struct instr){.op = OP_RETURN}))
            return -1;
    }
    return 0;
}

static void classify_bytes(struct code *c)
{
    unsigned char begins[257] = {0};
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].op == OP_RANGE) {
            begins[c->v[i].lo] = 1;
            begins[c->v[i].hi + 1] = 1;
        }
    c->n_classes = 1;
    for (size_t i = 0; i < 256; i++) {
        if (i && begins[i])
            c->n_classes++;
        c->class_of[i] = (unsigned char)(c->n_classes - 1);
    }
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
    if (choose_inlined(&b) || put(&b, (struct instr){.op = OP_ACCEPT}) ||
        emit_rules(&b) || find_all_firsts(&b))
        goto done;
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
    free(c->copies);
    free(c->rules);
    free(c->first_ranges);
    free(c->first_calls);
    *c = (struct code){0};
}
