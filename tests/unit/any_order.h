/* Whether an automaton admits a document whose members may come in any order.
 * Validators see a document as a value; a grammar may write its members in one
 * order only, and its numbers in one spelling.
 *
 * order_ends finds the states after a value, for each state before it once.
 * For an object it draws a graph: its nodes are the states before a member,
 * its edges members. A path that uses each member once is an order. Two things
 * keep the search short: a path ends where a member that is left has no edge
 * any more, and of members with equal edges one stands for all. */
#ifndef TEST_ANY_ORDER_H
#define TEST_ANY_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "file/json.h"
#include "text/grammar/automaton.h"

enum {
    ORDER_STEPS = 50000000, /* bytes that are tried */
    ORDER_NODES = 3000,     /* of the graph of one object */
    ORDER_PLACES = 1 << 17, /* places of one search through a graph */
    ORDER_ENDS = 16,        /* states after one value */
    ORDER_DIGITS = 400      /* of a number without its exponent */
};

/* A state after a value, and a text that leads to it. */
struct order_end {
    uint32_t state;
    const char *text;
    size_t n;
};

/* The states after a value that begins in a state. */
struct order_ends {
    const struct json_value *v;
    uint32_t state;
    struct order_end *ends;
    size_t n;
};

struct order_search {
    struct automaton *a;
    bool literal; /* numbers are spelled as they are */
    struct arena mem;
    struct order_ends **known; /* [cap] by value and state; NULL: free */
    size_t n_known, cap;
    size_t steps;
    bool gave_up;
    size_t depth, noted; /* of values: now, and of the note */
    struct buf note;     /* what ended the search */
};

static struct order_ends *
order_ends(struct order_search *s, const struct json_value *v, uint32_t state);

static void *order_alloc(struct order_search *s, size_t n, size_t size)
{
    void *p = arena_alloc(&s->mem, n * size + 1, 16);
    if (p)
        memset(p, 0, n * size + 1);
    else
        s->gave_up = true;
    return p;
}

static uint32_t order_advance(struct order_search *s, uint32_t state,
                              const char *p, size_t n)
{
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
        state = automaton_advance(s->a, state, (unsigned char)p[i]);
    s->steps += n;
    if (s->steps > ORDER_STEPS)
        s->gave_up = true;
    return s->gave_up ? AUTOMATON_DEAD : state;
}

/* Append a string as grammars write it: plainly where they may not escape. */
static void order_spell(struct buf *b, const struct json_value *v)
{
    buf_putc(b, '"');
    for (size_t i = 0; i < v->len; i++) {
        unsigned char c = (unsigned char)v->str[i];
        if (c < 0x20)
            buf_printf(b, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else
            buf_putc(b, (char)c);
    }
    buf_putc(b, '"');
}

static void order_spell_value(struct buf *b, const struct json_value *v)
{
    bool object = v->type == JSON_OBJECT;
    if (v->type == JSON_STRING)
        order_spell(b, v);
    else if (v->type == JSON_NUMBER)
        buf_append(b, v->str, v->len);
    else if (v->type == JSON_NULL || v->type == JSON_BOOL)
        buf_puts(b, v->type == JSON_NULL ? "null"
                    : v->boolean         ? "true"
                                         : "false");
    if (!object && v->type != JSON_ARRAY)
        return;
    buf_putc(b, object ? '{' : '[');
    for (size_t i = 0; i < v->len; i++) {
        buf_puts(b, i ? "," : "");
        if (object)
            order_spell(b, &v->keys[i]);
        buf_puts(b, object ? ":" : "");
        order_spell_value(b, &v->items[i]);
    }
    buf_putc(b, object ? '}' : ']');
}

/* Note the deepest value after which no text leads on. */
static void order_note(struct order_search *s, const char *what,
                       const struct json_value *v)
{
    struct buf text = {0};
    if (s->note.len && s->depth < s->noted)
        return;
    s->noted = s->depth;
    s->note.len = 0;
    order_spell_value(&text, v);
    buf_printf(&s->note, "%s%.80s", what, buf_text(&text));
    buf_free(&text);
}

static void order_add_end(struct order_search *s, struct order_ends *e,
                          uint32_t state, const char *text, size_t n)
{
    if (state == AUTOMATON_DEAD)
        return;
    for (size_t i = 0; i < e->n; i++)
        if (e->ends[i].state == state)
            return;
    if (!e->ends)
        e->ends = order_alloc(s, ORDER_ENDS, sizeof *e->ends);
    const char *copy = arena_copy(&s->mem, text, n);
    if (!e->ends || !copy || e->n == ORDER_ENDS)
        s->gave_up = true;
    else
        e->ends[e->n++] = (struct order_end){state, copy, n};
}

/* ---- objects ------------------------------------------------------------- */

/* A member from a node: the states after its value, and the nodes after
 * those. */
struct order_edge {
    const struct order_ends *ends;
    uint32_t to[ORDER_ENDS]; /* UINT32_MAX: no member may follow */
};

struct order_node {
    uint32_t state;
    struct order_edge **edges; /* [n] NULL: none */
    uint64_t *reach;           /* members on paths from here */
};

struct order_graph {
    const struct json_value *v;
    struct buf *keys; /* [n] with a colon */
    struct order_node *nodes;
    size_t n_nodes;
    size_t *like;      /* [n] the first member with equal edges */
    uint64_t *visited; /* [ORDER_PLACES] hashes; 0: free */
    size_t n_visited;
    /* the current path */
    bool *used;
    size_t *path, *path_end; /* [n] members, and ends of their edges */
    uint32_t *path_node;
    struct order_ends *out;
};

static uint32_t order_node_of(struct order_search *s, struct order_graph *g,
                              uint32_t state)
{
    if (state == AUTOMATON_DEAD)
        return UINT32_MAX;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].state == state)
            return (uint32_t)i;
    if (g->n_nodes == ORDER_NODES) {
        s->gave_up = true;
        return UINT32_MAX;
    }
    struct order_node *node = &g->nodes[g->n_nodes];
    node->state = state;
    node->edges = order_alloc(s, g->v->len, sizeof(struct order_edge *));
    node->reach = order_alloc(s, g->v->len / 64 + 1, sizeof(uint64_t));
    return s->gave_up ? UINT32_MAX : (uint32_t)g->n_nodes++;
}

static void order_add_edge(struct order_search *s, struct order_graph *g,
                           size_t from, size_t member)
{
    const struct buf *key = &g->keys[member];
    uint32_t state =
        order_advance(s, g->nodes[from].state, key->data, key->len);
    if (state == AUTOMATON_DEAD)
        return;
    const struct order_ends *ends = order_ends(s, &g->v->items[member], state);
    struct order_edge *edge =
        ends && ends->n ? order_alloc(s, 1, sizeof *edge) : NULL;
    if (!edge)
        return;
    edge->ends = ends;
    for (size_t i = 0; i < ends->n; i++)
        edge->to[i] =
            order_node_of(s, g, order_advance(s, ends->ends[i].state, ",", 1));
    g->nodes[from].edges[member] = edge;
}

/* Find which members are on paths from each node. */
static void order_reach(struct order_graph *g)
{
    size_t words = g->v->len / 64 + 1;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = g->n_nodes; i-- > 0;)
            for (size_t m = 0; m < g->v->len; m++) {
                struct order_node *node = &g->nodes[i];
                const struct order_edge *edge = node->edges[m];
                if (!edge)
                    continue;
                node->reach[m / 64] |= 1ull << m % 64;
                for (size_t k = 0; k < edge->ends->n; k++)
                    for (size_t w = 0; edge->to[k] != UINT32_MAX && w < words;
                         w++) {
                        uint64_t more = g->nodes[edge->to[k]].reach[w];
                        changed |= (more & ~node->reach[w]) != 0;
                        node->reach[w] |= more;
                    }
            }
    }
}

static bool order_equal_edges(struct order_search *s, struct order_graph *g,
                              size_t a, size_t b)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct order_edge *x = g->nodes[i].edges[a],
                                *y = g->nodes[i].edges[b];
        s->steps++;
        if (!x || !y) {
            if (x != y)
                return false;
            continue;
        }
        if (x->ends->n != y->ends->n)
            return false;
        for (size_t k = 0; k < x->ends->n; k++)
            if (x->ends->ends[k].state != y->ends->ends[k].state)
                return false;
    }
    return true;
}

static void order_found(struct order_search *s, struct order_graph *g,
                        uint32_t state)
{
    struct buf text = {0};
    for (size_t i = 0; i < g->v->len; i++) {
        size_t m = g->path[i];
        const struct order_end *end =
            &g->nodes[g->path_node[i]].edges[m]->ends->ends[g->path_end[i]];
        buf_putc(&text, i ? ',' : '{');
        buf_append(&text, g->keys[m].data, g->keys[m].len);
        buf_append(&text, end->text, end->n);
    }
    buf_putc(&text, '}');
    order_add_end(s, g->out, state, buf_text(&text), text.len);
    buf_free(&text);
}

/* Whether all members that are left are on paths from a node. */
static bool order_may_end(const struct order_graph *g, uint32_t node)
{
    for (size_t m = 0; m < g->v->len; m++)
        if (!g->used[m] && !(g->nodes[node].reach[m / 64] >> m % 64 & 1))
            return false;
    return true;
}

static bool order_visited(struct order_search *s, struct order_graph *g,
                          uint64_t place)
{
    size_t i = place >> 20 & (ORDER_PLACES - 1);
    for (place |= 1; g->visited[i]; i = (i + 1) & (ORDER_PLACES - 1))
        if (g->visited[i] == place)
            return true;
    g->visited[i] = place;
    s->gave_up |= ++g->n_visited > ORDER_PLACES / 2;
    return false;
}

/* Try the members that are left from a node. used: a hash of the others. */
static void order_try(struct order_search *s, struct order_graph *g,
                      uint32_t node, size_t n_done, uint64_t used)
{
    if (order_visited(s, g, hash_mix(used, node + 0x9e3779b97f4a7c15u)))
        return;
    for (size_t m = 0; m < g->v->len && !s->gave_up; m++) {
        const struct order_edge *edge = g->nodes[node].edges[m];
        size_t first = g->like[m];
        if (!edge || g->used[m])
            continue;
        while (first < m && (g->like[first] != g->like[m] || g->used[first]))
            first++;
        if (first < m)
            continue;
        g->used[m] = true;
        g->path[n_done] = m;
        g->path_node[n_done] = node;
        for (size_t k = 0; k < edge->ends->n; k++) {
            g->path_end[n_done] = k;
            if (n_done + 1 == g->v->len)
                order_found(
                    s, g, order_advance(s, edge->ends->ends[k].state, "}", 1));
            else if (edge->to[k] != UINT32_MAX && order_may_end(g, edge->to[k]))
                order_try(s, g, edge->to[k], n_done + 1,
                          used + hash_mix(g->like[m] + 1, 0xa0761d6478bd642fu));
        }
        g->used[m] = false;
    }
}

static bool order_start_graph(struct order_search *s, struct order_graph *g,
                              uint32_t state)
{
    size_t n = g->v->len;
    g->keys = order_alloc(s, n, sizeof *g->keys);
    g->nodes = calloc(ORDER_NODES, sizeof *g->nodes);
    g->visited = calloc(ORDER_PLACES, sizeof *g->visited);
    g->like = order_alloc(s, n, sizeof *g->like);
    g->used = order_alloc(s, n, sizeof *g->used);
    g->path = order_alloc(s, n, sizeof *g->path);
    g->path_end = order_alloc(s, n, sizeof *g->path_end);
    g->path_node = order_alloc(s, n, sizeof *g->path_node);
    s->gave_up |= !g->nodes || !g->visited;
    for (size_t i = 0; i < n && !s->gave_up; i++) {
        order_spell(&g->keys[i], &g->v->keys[i]);
        s->gave_up |= buf_putc(&g->keys[i], ':') != 0;
    }
    return !s->gave_up && order_node_of(s, g, state) == 0;
}

static void order_object(struct order_search *s, const struct json_value *v,
                         uint32_t state, struct order_ends *out)
{
    struct order_graph g = {.v = v, .out = out};
    state = order_advance(s, state, "{", 1);
    if (v->len == 0) {
        order_add_end(s, out, order_advance(s, state, "}", 1), "{}", 2);
        return;
    }
    if (state == AUTOMATON_DEAD)
        return;
    bool started = order_start_graph(s, &g, state);
    for (size_t i = 0; started && i < g.n_nodes; i++)
        for (size_t m = 0; m < v->len && !s->gave_up; m++)
            order_add_edge(s, &g, i, m);
    if (started && !s->gave_up) {
        order_reach(&g);
        for (size_t m = 0; m < v->len; m++)
            while (!order_equal_edges(s, &g, g.like[m], m))
                g.like[m]++;
        if (order_may_end(&g, 0))
            order_try(s, &g, 0, 0, 1);
        for (size_t m = 0; m < v->len; m++)
            if (!(g.nodes[0].reach[m / 64] >> m % 64 & 1))
                order_note(s, "no place for the member ", &v->keys[m]);
    }
    for (size_t i = 0; g.keys && i < v->len; i++)
        buf_free(&g.keys[i]);
    free(g.nodes);
    free(g.visited);
}

/* ---- arrays -------------------------------------------------------------- */

/* Write to *out the ends of item i after each of the ends in *from. */
static void order_item(struct order_search *s, const struct json_value *v,
                       size_t i, const struct order_ends *from,
                       struct order_ends *out)
{
    const char *close = i + 1 < v->len ? "," : "]";
    for (size_t k = 0; k < from->n; k++) {
        const struct order_end *before = &from->ends[k];
        const struct order_ends *ends =
            order_ends(s, &v->items[i], before->state);
        for (size_t m = 0; ends && m < ends->n; m++) {
            struct buf text = {0};
            uint32_t state = order_advance(s, ends->ends[m].state, close, 1);
            buf_append(&text, ends->ends[m].text, ends->ends[m].n);
            buf_puts(&text, close);
            order_add_end(s, out, state, buf_text(&text), text.len);
            buf_free(&text);
        }
    }
}

/* The text of an end is that of its last item only: order_array joins them. */
struct order_column {
    struct order_ends ends;
    size_t from[ORDER_ENDS]; /* the end of the column before it */
};

static void order_join(struct order_search *s, const struct order_column *c,
                       size_t n, struct order_ends *out)
{
    for (size_t k = 0; k < c[n].ends.n; k++) {
        struct buf text = {0};
        size_t *at = order_alloc(s, n + 1, sizeof *at);
        if (!at)
            return;
        at[n] = k;
        for (size_t i = n; i-- > 0;)
            at[i] = c[i + 1].from[at[i + 1]];
        for (size_t i = 0; i <= n; i++)
            buf_append(&text, c[i].ends.ends[at[i]].text,
                       c[i].ends.ends[at[i]].n);
        order_add_end(s, out, c[n].ends.ends[k].state, buf_text(&text),
                      text.len);
        buf_free(&text);
    }
}

static void order_array(struct order_search *s, const struct json_value *v,
                        uint32_t state, struct order_ends *out)
{
    struct order_column *c = order_alloc(s, v->len + 1, sizeof *c);
    state = order_advance(s, state, "[", 1);
    if (!c || state == AUTOMATON_DEAD)
        return;
    order_add_end(s, &c[0].ends, state, "[", 1);
    if (v->len == 0) {
        order_add_end(s, out, order_advance(s, state, "]", 1), "[]", 2);
        return;
    }
    for (size_t i = 0; i < v->len; i++)
        for (size_t k = 0; k < c[i].ends.n && !s->gave_up; k++) {
            struct order_ends one = {.ends = &c[i].ends.ends[k], .n = 1};
            size_t n = c[i + 1].ends.n;
            order_item(s, v, i, &one, &c[i + 1].ends);
            for (; n < c[i + 1].ends.n; n++)
                c[i + 1].from[n] = k;
        }
    order_join(s, c, v->len, out);
}

/* ---- other values -------------------------------------------------------- */

/* Write the digits of a number without its exponent to out[ORDER_DIGITS + 8].
 * Returns false if there are too many. */
static bool order_plain_number(const struct json_value *v, char *out)
{
    char digits[ORDER_DIGITS + 1], *o = out;
    const char *p = v->str + (v->str[0] == '-');
    long n = 0, point = 0, i = 0;
    bool fraction = false;
    for (; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
        } else if (n == ORDER_DIGITS) {
            return false;
        } else {
            digits[n++] = *p;
            point += !fraction;
        }
    }
    if (*p) {
        long e = strtol(p + 1, NULL, 10);
        point += e > 10000 ? 10000 : e < -10000 ? -10000 : e;
    }
    while (i < n && digits[i] == '0')
        i++;
    while (n > i && digits[n - 1] == '0')
        n--;
    if (i == n) {
        strcpy(out, "0");
        return true;
    }
    if (point - i > ORDER_DIGITS / 2 || point - i < -ORDER_DIGITS / 4 ||
        n - i > ORDER_DIGITS / 2)
        return false;
    if (v->str[0] == '-')
        *o++ = '-';
    if (point <= i)
        *o++ = '0';
    for (long k = i; k < point; k++)
        *o++ = k < n ? digits[k] : '0';
    if (point < n)
        *o++ = '.';
    for (long k = point; k < n; k++)
        *o++ = k < i ? '0' : digits[k];
    *o = '\0';
    return true;
}

/* Add a number in the spellings that a grammar may have. */
static void order_number(struct order_search *s, const struct json_value *v,
                         uint32_t state, struct order_ends *out)
{
    char plain[ORDER_DIGITS + 8];
    uint32_t to = order_advance(s, state, v->str, v->len);
    order_add_end(s, out, to, v->str, v->len);
    if (s->literal || !order_plain_number(v, plain))
        return;
    size_t n = strlen(plain);
    to = order_advance(s, state, plain, n);
    order_add_end(s, out, to, plain, n);
    if (to == AUTOMATON_DEAD || strchr(plain, '.'))
        return;
    memcpy(plain + n, ".0", 3);
    order_add_end(s, out, order_advance(s, to, ".0", 2), plain, n + 2);
}

static void order_scalar(struct order_search *s, const struct json_value *v,
                         uint32_t state, struct order_ends *out)
{
    struct buf text = {0};
    order_spell_value(&text, v);
    order_add_end(s, out, order_advance(s, state, text.data, text.len),
                  buf_text(&text), text.len);
    buf_free(&text);
}

/* ---- all values ---------------------------------------------------------- */

/* Return the slot of a value and a state. */
static struct order_ends **order_slot(const struct order_search *s,
                                      const struct json_value *v,
                                      uint32_t state)
{
    size_t i = hash_mix((uintptr_t)v, state ^ 0xe7037ed1a0b428dbu) >> 8;
    for (;; i++) {
        struct order_ends **slot = &s->known[i & (s->cap - 1)];
        if (!*slot || ((*slot)->v == v && (*slot)->state == state))
            return slot;
    }
}

static bool order_grow(struct order_search *s)
{
    struct order_search old = *s;
    if (s->known && s->n_known < s->cap / 2)
        return true;
    s->cap = s->cap ? 2 * s->cap : 1024;
    s->known = calloc(s->cap, sizeof(struct order_ends *));
    if (!s->known) {
        *s = old;
        s->gave_up = true;
        return false;
    }
    for (size_t i = 0; i < old.cap; i++)
        if (old.known[i])
            *order_slot(s, old.known[i]->v, old.known[i]->state) = old.known[i];
    free(old.known);
    return true;
}

/* Return the states after a value, or NULL if the search gives up. */
static struct order_ends *order_ends(struct order_search *s,
                                     const struct json_value *v, uint32_t state)
{
    if (!order_grow(s))
        return NULL;
    struct order_ends *e = *order_slot(s, v, state);
    if (e || s->gave_up)
        return e;
    e = order_alloc(s, 1, sizeof *e);
    if (!e)
        return NULL;
    e->v = v;
    e->state = state;
    s->depth++;
    if (v->type == JSON_OBJECT)
        order_object(s, v, state, e);
    else if (v->type == JSON_ARRAY)
        order_array(s, v, state, e);
    else if (v->type == JSON_NUMBER)
        order_number(s, v, state, e);
    else
        order_scalar(s, v, state, e);
    if (!e->n)
        order_note(s, "", v);
    s->depth--;
    *order_slot(s, v, state) = e;
    s->n_known++;
    return s->gave_up ? NULL : e;
}

/* Whether the text of a document, as it is, is admitted. */
static bool order_as_is(struct order_search *s, const struct json_value *doc,
                        struct buf *text)
{
    size_t begin = text->len;
    order_spell_value(text, doc);
    uint32_t state = order_advance(s, automaton_start(s->a), text->data + begin,
                                   text->len - begin);
    if (state != AUTOMATON_DEAD && automaton_accepts(s->a, state))
        return true;
    text->len = begin;
    return false;
}

/* Return 1 if the automaton admits the document with its members in some order,
 * 0 if not, and -1 if the search gave up or the automaton failed. Unless
 * `literal`, 1.0 may become 1. Append to *text the text that is admitted, or a
 * note about what was not. */
static int any_order_find(struct automaton *a, const struct json_value *doc,
                          bool literal, struct buf *text)
{
    struct order_search s = {.a = a, .literal = literal};
    int found = order_as_is(&s, doc, text);
    const struct order_ends *e =
        found ? NULL : order_ends(&s, doc, automaton_start(a));
    for (size_t i = 0; e && i < e->n && !found; i++)
        if (automaton_accepts(a, e->ends[i].state)) {
            found = 1;
            buf_append(text, e->ends[i].text, e->ends[i].n);
        }
    if (!found)
        buf_append(text, buf_text(&s.note), s.note.len);
    if (s.gave_up || automaton_error(a, NULL))
        found = found ? found : -1;
    arena_free(&s.mem);
    free(s.known);
    buf_free(&s.note);
    return found;
}

#endif
