#include "text/grammar/grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/rng.h"
#include "text/grammar/grammar_int.h"

/* Bytes of all payloads. */
enum { MAX_DATA = 32 << 20 };

#define MAX_CODE_POINT 0x10FFFFu

/* ---- errors ---- */

uint32_t grammar_fail(struct grammar *g, const char *fmt, ...)
{
    char msg[sizeof g->err.msg];
    va_list ap;
    if (g->err.code)
        return GRAMMAR_NOTHING;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    err_usage(&g->err, "%s: %s", g->name, msg);
    return GRAMMAR_NOTHING;
}

uint32_t grammar_oom(struct grammar *g, size_t n_bytes)
{
    if (!g->err.code)
        err_oom(&g->err, n_bytes);
    return GRAMMAR_NOTHING;
}

int grammar_error(const struct grammar *g, struct qwick_err *e)
{
    if (grammar_problems(g, e))
        return -1;
    if (!g->err.code)
        return 0;
    if (e)
        *e = g->err;
    return -1;
}

/* ---- nodes ---- */

static uint64_t hash_node(const struct grammar *g, enum node_type type,
                          const void *p, size_t n)
{
    return hash_bytes(g->seed + (uint64_t)type, p, n);
}

static bool same_node(const struct grammar *g, uint32_t i, enum node_type type,
                      const void *p, size_t n)
{
    const struct node *v = &g->nodes[i];
    return v->type == type && v->len == n &&
           (n == 0 || memcmp(node_data(g, v), p, n) == 0);
}

int grammar_list_add(struct grammar *g, struct grammar_list *l, uint32_t node)
{
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, NULL)) {
        grammar_oom(g, l->n * sizeof *l->v);
        return -1;
    }
    l->v[l->n++] = node;
    return 0;
}

int grammar_ranges_add(struct grammar *g, struct grammar_ranges *l, uint32_t lo,
                       uint32_t hi)
{
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, NULL)) {
        grammar_oom(g, l->n * sizeof *l->v);
        return -1;
    }
    l->v[l->n++] = (struct grammar_range){lo, hi};
    return 0;
}

int grammar_read_count(const char **p, const char *end, uint32_t *v)
{
    const char *from = *p;
    *v = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        uint64_t more = *v * UINT64_C(10) + (uint64_t)(**p - '0');
        if (more > GRAMMAR_MAX_REPEAT)
            return -1;
        *v = (uint32_t)more;
    }
    return *p > from;
}

/* Make room in the hash table: when it is half full, build a larger one. */
static int index_nodes(struct grammar *g)
{
    size_t cap = g->cap_nodes;
    if (ARRAY_RESERVE(g->nodes, g->cap_nodes, g->n_nodes + 1, &g->err))
        return -1;
    if (g->cap_nodes == cap)
        return 0;
    if (hashmap_init(&g->by_content, g->cap_nodes, GRAMMAR_MAX_NODES, &g->err))
        return -1;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct node *v = &g->nodes[i];
        hashmap_put(&g->by_content,
                    hash_node(g, v->type, node_data(g, v), v->len), i);
    }
    return 0;
}

static uint32_t depth_of(struct grammar *g, const uint32_t *kids, size_t n)
{
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++)
        if (g->nodes[kids[i]].depth > depth)
            depth = g->nodes[kids[i]].depth;
    return depth + 1;
}

/* Add a payload, at a multiple of 4. */
static int add_data(struct grammar *g, const void *p, size_t n)
{
    static const char zeros[4];
    size_t pad = -g->data.len & 3;
    if (g->data.len + pad + n > MAX_DATA) {
        grammar_fail(g, "is too large: its parts need more than %d bytes",
                     MAX_DATA);
        return -1;
    }
    if (buf_append(&g->data, zeros, pad) || (n && buf_append(&g->data, p, n)))
        grammar_oom(g, n);
    return g->err.code ? -1 : 0;
}

uint32_t grammar_node(struct grammar *g, enum node_type type, const void *p,
                      size_t n_bytes, size_t n_kids)
{
    if (g->err.code)
        return GRAMMAR_NOTHING;
    uint64_t h = hash_node(g, type, p, n_bytes);
    if (g->cap_nodes) {
        uint32_t at = hashmap_slot(&g->by_content, h), i;
        while ((i = hashmap_next(&g->by_content, h, &at)) != HASHMAP_NONE)
            if (same_node(g, i, type, p, n_bytes))
                return i;
    }
    if (g->n_nodes == GRAMMAR_MAX_NODES)
        return grammar_fail(g, "is too large: it has more than %d parts",
                            GRAMMAR_MAX_NODES);
    uint32_t depth = depth_of(g, p, n_kids);
    if (depth > GRAMMAR_MAX_DEPTH)
        return grammar_fail(g, "is nested deeper than %d", GRAMMAR_MAX_DEPTH);
    if (index_nodes(g) || add_data(g, p, n_bytes))
        return GRAMMAR_NOTHING;
    uint32_t i = (uint32_t)g->n_nodes++;
    g->nodes[i] = (struct node){.type = (uint8_t)type,
                                .depth = (uint16_t)depth,
                                .off = (uint32_t)(g->data.len - n_bytes),
                                .len = (uint32_t)n_bytes};
    hashmap_put(&g->by_content, h, i);
    return i;
}

int grammar_create(struct grammar **out, const char *name, struct qwick_err *e)
{
    *out = NULL;
    struct grammar *g = calloc(1, sizeof *g);
    if (!g)
        return err_oom(e, sizeof *g);
    g->seed = rng_random_seed();
    g->name = strdup(name);
    /* payload offsets need memory to point into */
    if (!g->name || buf_reserve(&g->data, 4096) || buf_reserve(&g->names, 4096))
        grammar_oom(g, 4096);
    grammar_node(g, NODE_NOTHING, NULL, 0, 0);
    grammar_node(g, NODE_EMPTY, NULL, 0, 0);
    if (grammar_error(g, e)) {
        grammar_free(g);
        return -1;
    }
    *out = g;
    return 0;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    free(g->name);
    free(g->nodes);
    free(g->rules);
    free(g->onces);
    free(g->productive);
    free(g->nullable);
    free(g->order);
    hashmap_free(&g->by_content);
    hashmap_free(&g->by_name);
    buf_free(&g->data);
    buf_free(&g->names);
    for (size_t i = 0; i < GRAMMAR_N_REMARKS; i++)
        buf_free(&g->remarks[i].lines);
    free(g);
}

uint32_t grammar_bytes(struct grammar *g, const void *p, size_t n)
{
    if (n > GRAMMAR_MAX_BYTES)
        return grammar_fail(g, "has a literal of %zu bytes, the limit is %u", n,
                            GRAMMAR_MAX_BYTES);
    return n ? grammar_node(g, NODE_BYTES, p, n, 0) : GRAMMAR_EMPTY;
}

/* ---- classes ---- */

static int by_lo(const void *a, const void *b)
{
    const struct grammar_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Append lo..hi to out[0..n), without surrogates. Returns the new n. */
static size_t put_range(struct grammar_range *out, size_t n, uint32_t lo,
                        uint32_t hi)
{
    if (lo <= hi && lo < 0xD800 && hi >= 0xD800) {
        out[n++] = (struct grammar_range){lo, 0xD7FF};
        lo = 0xE000;
    } else if (lo >= 0xD800 && lo <= 0xDFFF) {
        lo = 0xE000;
    }
    if (hi >= 0xD800 && hi <= 0xDFFF)
        hi = 0xD7FF;
    if (lo <= hi)
        out[n++] = (struct grammar_range){lo, hi};
    return n;
}

size_t ranges_normalise(struct grammar_range *out,
                        const struct grammar_range *in, size_t n, bool negated)
{
    struct grammar_range *sorted = out + n + 3; /* the second half */
    size_t m = 0, n_out = 0;
    uint32_t next = 0; /* code points below are done */
    if (n)
        memcpy(sorted, in, n * sizeof *in);
    qsort(sorted, n, sizeof *sorted, by_lo);
    for (size_t i = 0; i < n; i++) { /* join */
        if (m && sorted[i].lo <= sorted[m - 1].hi + 1) {
            if (sorted[i].hi > sorted[m - 1].hi)
                sorted[m - 1].hi = sorted[i].hi;
        } else {
            sorted[m++] = sorted[i];
        }
    }
    for (size_t i = 0; i < m; i++) {
        if (!negated)
            n_out = put_range(out, n_out, sorted[i].lo, sorted[i].hi);
        else if (sorted[i].lo > next)
            n_out = put_range(out, n_out, next, sorted[i].lo - 1);
        next = sorted[i].hi + 1;
    }
    if (negated && next <= MAX_CODE_POINT)
        n_out = put_range(out, n_out, next, MAX_CODE_POINT);
    return n_out;
}

uint32_t grammar_class(struct grammar *g, const struct grammar_range *ranges,
                       size_t n, bool negated)
{
    if (g->err.code)
        return GRAMMAR_NOTHING;
    if (n > MAX_DATA / 32)
        return grammar_fail(g, "has a class of %zu ranges, the limit is %d", n,
                            MAX_DATA / 32);
    for (size_t i = 0; i < n; i++)
        if (ranges[i].lo > ranges[i].hi || ranges[i].hi > MAX_CODE_POINT)
            return grammar_fail(g, "has a class with the bad range %X to %X",
                                ranges[i].lo, ranges[i].hi);
    struct grammar_range *out = malloc((2 * n + 4) * sizeof *out);
    if (!out)
        return grammar_oom(g, (2 * n + 4) * sizeof *out);
    size_t m = ranges_normalise(out, ranges, n, negated);
    uint32_t node = GRAMMAR_NOTHING;
    if (m)
        node = grammar_node(g, NODE_CLASS, out, m * sizeof *out, 0);
    free(out);
    return node;
}

/* ---- sequences and alternatives ---- */

/* Join the literals at nodes[0..n), n >= 2. */
static uint32_t join_bytes(struct grammar *g, const uint32_t *nodes, size_t n)
{
    struct buf all = {0};
    uint32_t node;
    size_t len = 0;
    bool bad = false;
    for (size_t i = 0; i < n; i++)
        len += g->nodes[nodes[i]].len;
    if (len > GRAMMAR_MAX_BYTES)
        return grammar_fail(g, "has a literal of more than %u bytes",
                            GRAMMAR_MAX_BYTES);
    for (size_t i = 0; i < n && !bad; i++) {
        const struct node *v = &g->nodes[nodes[i]];
        bad = buf_append(&all, node_data(g, v), v->len) != 0;
    }
    node = bad ? grammar_oom(g, len) : grammar_bytes(g, all.data, all.len);
    buf_free(&all);
    return node;
}

/* Sequences of at most this many parts become parts of sequences around them.
 * So more texts meet, and alternatives begin with their bytes. */
enum { MAX_FLAT = 4 };

/* Copy nodes to out [n * MAX_FLAT], short sequences as their parts. Returns
 * their number. */
static size_t flatten(const struct grammar *g, const uint32_t *nodes, size_t n,
                      uint32_t *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const struct node *v = &g->nodes[nodes[i]];
        bool inner = v->type == NODE_SEQ && node_n_kids(v) <= MAX_FLAT;
        size_t k = inner ? node_n_kids(v) : 1;
        memcpy(out + m, inner ? node_kids(g, v) : &nodes[i], k * sizeof *out);
        m += k;
    }
    return m;
}

/* Write the parts of a sequence to kids. Leaves out empty parts and joins
 * neighbouring literals. Returns the number of parts. */
static size_t tidy_seq(struct grammar *g, const uint32_t *nodes, size_t n,
                       uint32_t *kids)
{
    size_t m = 0;
    for (size_t i = 0; i < n && !g->err.code;) {
        size_t end = i;
        while (end < n && g->nodes[nodes[end]].type == NODE_BYTES)
            end++;
        if (end - i > 1)
            kids[m++] = join_bytes(g, nodes + i, end - i);
        else if (nodes[i] != GRAMMAR_EMPTY)
            kids[m++] = nodes[i];
        i = end - i > 1 ? end : i + 1;
    }
    return m;
}

static bool has_node(const uint32_t *nodes, size_t n, uint32_t node)
{
    for (size_t i = 0; i < n; i++)
        if (nodes[i] == node)
            return true;
    return false;
}

/* Whether all nodes[0..n) exist. A compiler that passes other numbers has a
 * bug, which must not lead to an access outside of an array. */
static bool valid(struct grammar *g, const uint32_t *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nodes[i] >= g->n_nodes) {
            grammar_fail(g, "has no part %u", nodes[i]);
            return false;
        }
    return !g->err.code;
}

static uint32_t combine(struct grammar *g, enum node_type type,
                        const uint32_t *nodes, size_t n)
{
    if (!valid(g, nodes, n))
        return GRAMMAR_NOTHING;
    size_t m = 0, most = (n + 1) * MAX_FLAT;
    uint32_t *kids = malloc(2 * most * sizeof *kids), *flat, node;
    if (!kids)
        return grammar_oom(g, 2 * most * sizeof *kids);
    flat = kids + most;
    if (type == NODE_SEQ)
        m = tidy_seq(g, flat, flatten(g, nodes, n, flat), kids);
    for (size_t i = 0; i < n && type == NODE_ALT; i++)
        if (nodes[i] != GRAMMAR_NOTHING)
            kids[m++] = nodes[i];
    if (m == 0)
        node = type == NODE_SEQ ? GRAMMAR_EMPTY : GRAMMAR_NOTHING;
    else
        node =
            m == 1 ? kids[0] : grammar_node(g, type, kids, m * sizeof *kids, m);
    free(kids);
    return g->err.code ? GRAMMAR_NOTHING : node;
}

uint32_t grammar_seq(struct grammar *g, const uint32_t *nodes, size_t n)
{
    if (has_node(nodes, n, GRAMMAR_NOTHING))
        return GRAMMAR_NOTHING;
    return combine(g, NODE_SEQ, nodes, n);
}

uint32_t grammar_seq2(struct grammar *g, uint32_t a, uint32_t b)
{
    const uint32_t nodes[] = {a, b};
    return grammar_seq(g, nodes, 2);
}

uint32_t grammar_alt(struct grammar *g, const uint32_t *nodes, size_t n)
{
    return combine(g, NODE_ALT, nodes, n);
}

uint32_t grammar_alt2(struct grammar *g, uint32_t a, uint32_t b)
{
    const uint32_t nodes[] = {a, b};
    return grammar_alt(g, nodes, 2);
}

uint32_t grammar_repeat(struct grammar *g, uint32_t node, uint32_t min,
                        uint32_t max)
{
    const uint32_t payload[] = {node, min, max};
    if (!valid(g, &node, 1) || max < min)
        return GRAMMAR_NOTHING;
    if (min > GRAMMAR_MAX_REPEAT)
        return grammar_fail(g, "repeats a part without end");
    if (node == GRAMMAR_NOTHING)
        return min ? GRAMMAR_NOTHING : GRAMMAR_EMPTY;
    if (max == 0 || node == GRAMMAR_EMPTY)
        return GRAMMAR_EMPTY;
    if (min == 1 && max == 1)
        return node;
    return grammar_node(g, NODE_REPEAT, payload, sizeof payload, 1);
}

/* ---- parts in any order ---- */

/* Return a node that matches the empty text if n_needed of nodes[0..n) match
 * any text. */
static uint32_t need(struct grammar *g, const uint32_t *nodes, size_t n,
                     uint32_t n_needed)
{
    uint32_t *payload = malloc((n + 1) * sizeof *payload);
    if (!payload)
        return grammar_oom(g, n * sizeof *payload);
    if (n)
        memcpy(payload, nodes, n * sizeof *payload);
    payload[n] = n_needed;
    uint32_t node =
        grammar_node(g, NODE_NEED, payload, (n + 1) * sizeof *payload, n);
    free(payload);
    return node;
}

/* Add what is known of the parts. Returns the index, or UINT32_MAX. */
static uint32_t add_once(struct grammar *g, const struct grammar_once *o)
{
    struct once x = {.n = (uint32_t)o->n, .min = o->min, .max = o->max,
                     .differ = o->differ};
    char *required = calloc(o->n + 1, 1);
    if (!required ||
        ARRAY_RESERVE(g->onces, g->cap_onces, g->n_onces + 1, &g->err)) {
        free(required);
        grammar_oom(g, o->n);
        return UINT32_MAX;
    }
    for (size_t i = 0; o->required && i < o->n; i++)
        if (o->required[i]) {
            required[i] = 1;
            x.n_required++;
        }
    int rc = add_data(g, required, o->n);
    x.required = (uint32_t)(g->data.len - o->n);
    g->onces[g->n_onces] = x;
    free(required);
    return rc ? UINT32_MAX : (uint32_t)g->n_onces++;
}

/* Whether a node has no counts of its own. Those of a rule are apart. */
static bool is_simple(const struct grammar *g, uint32_t node)
{
    const struct node *v = &g->nodes[node];
    bool simple = v->type == NODE_BYTES || v->type == NODE_REF;
    if (v->type != NODE_SEQ)
        return simple;
    for (size_t i = 0; i < node_n_kids(v); i++) {
        enum node_type type = g->nodes[node_kids(g, v)[i]].type;
        if (type != NODE_BYTES && type != NODE_REF)
            return false;
    }
    return true;
}

/* Return the node of part i between its marks. */
static uint32_t once_part(struct grammar *g, uint32_t once, uint32_t i,
                          uint32_t part)
{
    bool apart = !g->onces[once].differ && !is_simple(g, part);
    const uint32_t mark[] = {once, i};
    const uint32_t nodes[] = {
        grammar_node(g, NODE_FREE, mark, sizeof mark, 0),
        apart ? grammar_shared(g, "part", part) : part,
        grammar_node(g, NODE_TAKE, mark, sizeof mark, 0)};
    return grammar_seq(g, nodes, 3);
}

/* Return a node that matches the empty text if enough parts match any text. */
static uint32_t enough_parts(struct grammar *g, const struct grammar_once *o)
{
    uint32_t *required = malloc((o->n + 1) * sizeof *required);
    size_t n = 0;
    if (!required)
        return grammar_oom(g, o->n * sizeof *required);
    for (size_t i = 0; o->required && i < o->n; i++)
        if (o->required[i])
            required[n++] = o->parts[i];
    uint32_t all = need(g, required, n, (uint32_t)n);
    uint32_t min = need(g, o->parts, o->n, o->min);
    free(required);
    if (o->other != GRAMMAR_NOTHING)
        min = grammar_alt2(g, min, need(g, &o->other, 1, 1));
    return grammar_seq2(g, all, min);
}

uint32_t grammar_once(struct grammar *g, const struct grammar_once *o)
{
    if (!valid(g, o->parts, o->n) || !valid(g, &o->other, 1) ||
        !valid(g, &o->comma, 1))
        return GRAMMAR_NOTHING;
    if (o->n > GRAMMAR_MAX_ONCE)
        return grammar_fail(g, "has %zu parts in any order, the limit is %d",
                            o->n, GRAMMAR_MAX_ONCE);
    uint32_t once = add_once(g, o), n = 0;
    uint32_t *items = malloc((o->n + 1) * sizeof *items);
    if (once == UINT32_MAX || !items) {
        free(items);
        return grammar_oom(g, o->n * sizeof *items);
    }
    for (uint32_t i = 0; i < o->n; i++)
        items[n++] = once_part(g, once, i, o->parts[i]);
    if (o->other != GRAMMAR_NOTHING)
        items[n++] = once_part(g, once, (uint32_t)o->n, o->other);
    uint32_t item = grammar_alt(g, items, n);
    const uint32_t done[] = {once, 0};
    const uint32_t nodes[] = {enough_parts(g, o), item,
                              grammar_repeat(g, grammar_seq2(g, o->comma, item),
                                             0, GRAMMAR_UNBOUNDED),
                              grammar_node(g, NODE_DONE, done, sizeof done, 0)};
    free(items);
    return grammar_shared(g, "parts", grammar_seq(g, nodes, 4));
}

/* ---- rules ---- */

static uint32_t add_rule(struct grammar *g, const char *name, size_t n)
{
    if (g->err.code)
        return 0;
    if (g->n_rules == GRAMMAR_MAX_RULES)
        return grammar_fail(g, "is too large: it has more than %d rules",
                            GRAMMAR_MAX_RULES);
    if (g->names.len + n > GRAMMAR_MAX_BYTES)
        return grammar_fail(g, "has names of more than %u bytes",
                            GRAMMAR_MAX_BYTES);
    if (ARRAY_RESERVE(g->rules, g->cap_rules, g->n_rules + 1, &g->err))
        return 0;
    g->rules[g->n_rules] = (struct rule){
        .node = NO_NODE, .name = (uint32_t)g->names.len, .n_name = (uint32_t)n};
    if (n && buf_append(&g->names, name, n))
        return grammar_oom(g, n);
    return (uint32_t)g->n_rules++;
}

uint32_t grammar_new_rule(struct grammar *g, const char *name, size_t n_name)
{
    return add_rule(g, name, n_name);
}

uint32_t grammar_rule(struct grammar *g, const char *name, size_t n_name)
{
    if (g->err.code)
        return 0;
    if (!g->by_name.cap && hashmap_init(&g->by_name, GRAMMAR_MAX_RULES,
                                        GRAMMAR_MAX_RULES, &g->err))
        return 0;
    uint64_t h = hash_bytes(g->seed, name, n_name);
    uint32_t at = hashmap_slot(&g->by_name, h), i;
    while ((i = hashmap_next(&g->by_name, h, &at)) != HASHMAP_NONE)
        if (g->rules[i].n_name == n_name &&
            memcmp(g->names.data + g->rules[i].name, name, n_name) == 0)
            return i;
    i = add_rule(g, name, n_name);
    if (!g->err.code)
        hashmap_put(&g->by_name, h, i);
    return i;
}

uint32_t grammar_ref(struct grammar *g, uint32_t rule)
{
    if (!g->err.code && rule >= g->n_rules)
        return grammar_fail(g, "has no rule %u", rule);
    return grammar_node(g, NODE_REF, &rule, sizeof rule, 0);
}

void grammar_define(struct grammar *g, uint32_t rule, uint32_t node)
{
    if (!valid(g, &node, 1))
        return;
    if (rule >= g->n_rules) {
        grammar_fail(g, "has no rule %u", rule);
        return;
    }
    struct rule *r = &g->rules[rule];
    if (r->node != NO_NODE)
        grammar_fail(g, "rule \"%s\" is defined twice",
                     ERR_SHOW(g->names.data + r->name, r->n_name));
    r->node = node;
}

bool grammar_is_defined(const struct grammar *g, uint32_t rule)
{
    return rule < g->n_rules && g->rules[rule].node != NO_NODE;
}

uint32_t grammar_shared(struct grammar *g, const char *name, uint32_t node)
{
    uint32_t rule = grammar_new_rule(g, name, strlen(name));
    grammar_define(g, rule, node);
    return grammar_ref(g, rule);
}
