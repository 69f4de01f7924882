/* Objects as nodes of a grammar. */
#include <string.h>

#include "text/grammar/schema_int.h"
#include "text/grammar/schema_text.h"

/* If at most this many optional properties come before the first required one,
 * an object repeats the rest of its properties for each possible first one. */
enum { MAX_REPEATED_RESTS = 2 };

/* The most rules for the members of an object that are counted. */
enum { MAX_COUNTED = 20000 };

static uint32_t member_node(struct schema *s, uint32_t name,
                            struct schema_node *const *all, size_t n, int level)
{
    const uint32_t parts[] = {
        name, grammar_bytes(s->g, ": ", s->indent || s->spaced ? 2 : 1),
        schema_value_node(s, all, n, level + 1)};
    return grammar_seq(s->g, parts, 3);
}

/* The names of members that no schema names, with their quotes. Without a
 * limit, a model that draws words at random would hardly ever end a name. */
static uint32_t name_node(struct schema *s, const struct dfa *names)
{
    const struct text_length length = {0, MAX_NAME};
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *without;
    if (names == s->any_text && s->name)
        return s->name;
    if (schema_unwritable(s, &without))
        return GRAMMAR_NOTHING;
    const struct dfa *p =
        without ? dfa_combine(names, without, true, &at) : names;
    if (!p)
        return GRAMMAR_NOTHING;
    uint32_t node = grammar_shared(
        s->g, "name", text_string(s->g, p, TEXT_ESCAPE_SOME, length));
    if (names == s->any_text)
        s->name = node;
    return node;
}

/* Return the node of a member that no schema names and, unless it is NULL, that
 * `some` asks for. */
static uint32_t extra_node(struct schema *s, const struct schema_object *o,
                           const struct schema_some *some, int level)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    uint32_t extra = GRAMMAR_NOTHING;
    for (size_t i = 0; i < o->n_extras; i++) {
        const struct schema_extra *x = &o->extras[i];
        const struct dfa *names = x->names;
        struct schema_node **all = schema_alloc(s, x->n_all + 1, sizeof *all);
        if (some)
            names = dfa_combine(names, some->names, false, &at);
        if (!all || !names)
            return GRAMMAR_NOTHING;
        if (names->n_states == 0)
            continue;
        if (x->n_all)
            memcpy(all, x->all, x->n_all * sizeof(struct schema_node *));
        if (some)
            all[x->n_all] = some->value;
        extra = grammar_alt2(s->g, extra,
                             member_node(s, name_node(s, names), all,
                                         x->n_all + (some != NULL), level));
    }
    return extra;
}

/* Set the nodes of the members that no schema names. If one of them is as `some`
 * asks, and its value matters, it is the last one: of members with equal names,
 * programs read the last. */
static void list_extras(struct schema *s, const struct schema_object *o,
                        const struct schema_some *some,
                        struct schema_members *m, int level)
{
    uint32_t comma = schema_comma(s, level + 1);
    m->extra = extra_node(s, o, NULL, level);
    m->follow_extra = grammar_seq2(s->g, comma, m->extra);
    uint32_t more =
        grammar_repeat(s->g, m->follow_extra, 0, GRAMMAR_UNBOUNDED);
    m->extras = grammar_seq2(s->g, m->extra, more);
    m->follow_extras = more;
    if (!some)
        return;
    uint32_t the = extra_node(s, o, some, level);
    uint32_t before = grammar_repeat(
        s->g, grammar_seq2(s->g, m->extra, comma), 0, GRAMMAR_UNBOUNDED);
    uint32_t last = grammar_seq2(
        s->g, the, some->value == s->always ? more : GRAMMAR_EMPTY);
    const uint32_t parts[] = {more, comma, last};
    m->demanded = the;
    m->extras = grammar_seq2(s->g, before, last);
    m->follow_extras = grammar_seq(s->g, parts, 3);
}

/* Set *some to what the set asks of members that no schema names. Demands that
 * another one implies do not count. */
static int demanded_extra(struct schema *s, struct schema_node *const *v,
                          size_t n, const struct schema_some **some)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    *some = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct schema_some *x = v[i]->others, *y = *some;
        const struct dfa *rest = NULL, *back = NULL;
        if (!x)
            continue;
        if (y && (!(rest = dfa_combine(y->names, x->names, true, &at)) ||
                  !(back = dfa_combine(x->names, y->names, true, &at))))
            return -1;
        if (!y || (back->n_states == 0 && y->value == s->always))
            *some = x;
        else if (rest->n_states > 0 || x->value != s->always)
            return schema_cannot_hold(s, v[i]->at, NULL,
                                      "several demands on members that no "
                                      "schema names are not supported");
    }
    return 0;
}

static int list_nodes(struct schema *s, const struct schema_object *o,
                      const struct schema_some *some, struct schema_members *m,
                      int level)
{
    uint32_t comma = schema_comma(s, level + 1);
    m->plain = schema_alloc(s, o->n_members + 1, sizeof *m->plain);
    m->follow = schema_alloc(s, o->n_members, sizeof *m->follow);
    m->required = schema_alloc(s, o->n_members + 1, sizeof *m->required);
    if (!m->plain || !m->follow || !m->required)
        return -1;
    for (size_t i = 0; i < o->n_members; i++) {
        const struct schema_member *from = &o->members[i];
        if (from->forbidden)
            continue;
        struct json_value key = *from->name;
        m->plain[m->n] = member_node(s, schema_literal(s, &key, 0), from->all,
                                     from->n_all, level);
        m->follow[m->n] = grammar_seq2(s->g, comma, m->plain[m->n]);
        m->required[m->n++] = from->required;
    }
    list_extras(s, o, some, m, level);
    return s->e->code ? -1 : 0;
}

/* ---- members without limits of their number ------------------------------ */

/* Return the node of the members from i on, which follow another member. */
static uint32_t rest_from(struct schema *s, const struct schema_members *m,
                          size_t i)
{
    uint32_t *parts = schema_alloc(s, m->n - i + 1, sizeof *parts);
    size_t n = 0;
    if (!parts)
        return GRAMMAR_NOTHING;
    for (; i < m->n; i++)
        parts[n++] = m->required[i] ? m->follow[i]
                                    : grammar_repeat(s->g, m->follow[i], 0, 1);
    parts[n++] = m->follow_extras;
    return grammar_seq(s->g, parts, n);
}

/* Return the node of at least one member. Any optional member can be the first
 * unless a required one comes before it. If there are many members, rules share
 * the parts that follow the first one. */
static uint32_t some_members(struct schema *s, const struct schema_members *m)
{
    size_t first_required = 0;
    while (first_required < m->n && !m->required[first_required])
        first_required++;
    size_t last = first_required < m->n ? first_required + 1 : m->n;
    uint32_t *firsts = schema_alloc(s, last + 1, sizeof *firsts);
    uint32_t rest = rest_from(s, m, last);
    bool share = first_required > MAX_REPEATED_RESTS;
    size_t n = 0;
    if (!firsts)
        return GRAMMAR_NOTHING;
    if (first_required == m->n)
        firsts[n++] = m->extras;
    for (size_t i = last; i-- > 0;) {
        if (share)
            rest = grammar_shared(s->g, "members", rest);
        firsts[n++] = grammar_seq2(s->g, m->plain[i], rest);
        uint32_t follow = m->required[i]
                              ? m->follow[i]
                              : grammar_repeat(s->g, m->follow[i], 0, 1);
        if (i > 0)
            rest = grammar_seq2(s->g, follow, rest);
    }
    return grammar_alt(s->g, firsts, n);
}

/* ---- members whose number matters ---------------------------------------- */

bool schema_counts_members(const struct schema_object *o,
                           const struct schema_members *m)
{
    int64_t surely = o->n_required ? (int64_t)o->n_required : 1;
    return o->min > surely || (o->max >= 0 && (m->extra != GRAMMAR_NOTHING ||
                                               (int64_t)m->n > o->max));
}

/* Return the node of the extra members after `count` others. */
static uint32_t extras_after(struct schema *s, const struct schema_object *o,
                             const struct schema_members *m, int64_t count,
                             bool may_be_empty)
{
    uint32_t nodes[2] = {GRAMMAR_NOTHING};
    uint32_t min = o->min > count ? (uint32_t)(o->min - count) : 0;
    uint32_t max = o->max < 0 ? GRAMMAR_UNBOUNDED : (uint32_t)(o->max - count);
    if (count > 0)
        return grammar_repeat(s->g, m->follow_extra, min, max);
    if (max > 0) {
        uint32_t most = max == GRAMMAR_UNBOUNDED ? max : max - 1;
        uint32_t more =
            grammar_repeat(s->g, m->follow_extra, min ? min - 1 : 0, most);
        nodes[0] = grammar_seq2(s->g, m->extra, more);
    }
    nodes[1] = min == 0 && may_be_empty ? GRAMMAR_EMPTY : GRAMMAR_NOTHING;
    return grammar_alt(s->g, nodes, 2);
}

/* Return the node that an object has of its members from i on when `count` are
 * written. after: that of member i + 1, one count on; skip: that of member
 * i + 1. */
static uint32_t member_or_not(struct schema *s, const struct schema_members *m,
                              size_t i, bool first, uint32_t after,
                              uint32_t skip)
{
    uint32_t take =
        grammar_seq2(s->g, first ? m->plain[i] : m->follow[i], after);
    if (take == GRAMMAR_NOTHING)
        return m->required[i] ? GRAMMAR_NOTHING : skip;
    return grammar_shared(
        s->g, "members",
        grammar_alt2(s->g, take, m->required[i] ? GRAMMAR_NOTHING : skip));
}

/* One rule for each member and number of members before it, up to the limit
 * beyond which the number does not matter. */
uint32_t schema_counted_members(struct schema *s, const struct schema_object *o,
                                const struct schema_members *m,
                                bool may_be_empty)
{
    bool bounded = o->max >= 0;
    int64_t cap = bounded ? o->max : o->min;
    size_t most = cap < (int64_t)m->n ? (size_t)cap : m->n;
    uint32_t *node = schema_alloc(s, most + 2, sizeof *node);
    if (!node || schema_step(s, (m->n + 1) * (most + 1)))
        return GRAMMAR_NOTHING;
    for (size_t k = 0; k <= most; k++)
        node[k] = extras_after(s, o, m, (int64_t)k, may_be_empty);
    /* node[k] is that of the members after i when k are written; from member
       i on it needs node[k + 1], too */
    for (size_t i = m->n; i-- > 0;)
        for (size_t k = 0; k <= i && k <= most; k++) {
            bool full = (int64_t)k == cap;
            uint32_t after = !full     ? node[k + 1]
                             : bounded ? GRAMMAR_NOTHING
                                       : node[k];
            node[k] = member_or_not(s, m, i, k == 0, after, node[k]);
        }
    return node[0];
}

/* ---- objects ------------------------------------------------------------- */

/* Return the node of members in any order. */
static uint32_t any_order(struct schema *s, const struct schema_object *o,
                          const struct schema_members *m, bool demanded,
                          int level)
{
    if (demanded && m->demanded == GRAMMAR_NOTHING)
        return GRAMMAR_NOTHING;
    if (demanded) { /* one more part */
        m->plain[m->n] = m->demanded;
        m->required[m->n] = true;
    }
    const struct grammar_once once = {.parts = m->plain,
                                      .required = m->required,
                                      .n = m->n + demanded,
                                      .other = m->extra,
                                      .comma = schema_comma(s, level + 1),
                                      .min = (uint32_t)o->min,
                                      .max = o->max < 0 ? GRAMMAR_UNBOUNDED
                                                        : (uint32_t)o->max};
    return grammar_once(s->g, &once);
}

/* Set *counts to whether the number of members matters, and report limits that
 * cannot be held. */
static int check_counts(struct schema *s, const struct schema_object *o,
                        const struct schema_members *m, bool *counts)
{
    *counts = schema_counts_members(o, m);
    if (!*counts)
        return 0;
    bool bounded = o->max >= 0;
    int64_t cap = bounded ? o->max : o->min, n = (int64_t)m->n;
    if (!s->any_order && n * (cap < n ? cap : n) > MAX_COUNTED) {
        *counts = false;
        return schema_cannot_hold(s, bounded ? o->has_max : o->has_min,
                                  bounded ? "maxProperties" : "minProperties",
                                  "needs too many states for %zu properties",
                                  m->n);
    }
    if (m->extra != GRAMMAR_NOTHING && o->min - (int64_t)o->n_required > 1)
        return schema_cannot_hold(s, o->has_min, "minProperties",
                                  "counts members that the schema does not "
                                  "list, and their names may repeat");
    return 0;
}

/* Report a demand on the members that no schema names which cannot be held. */
static int check_demanded(struct schema *s, const struct schema_node *node,
                          const struct schema_some **some, bool counts)
{
    const char *reason = NULL;
    if (*some && counts)
        reason = "the number of members";
    else if (*some && s->any_order && (*some)->value != s->always)
        reason = "members in any order"; /* equal names may repeat */
    if (!reason)
        return 0;
    *some = NULL;
    return schema_cannot_hold(s, node->at, NULL,
                              "%s and demands on members that no schema names "
                              "are not supported together",
                              reason);
}

uint32_t schema_emit_object(struct schema *s, struct schema_node *const *v,
                            size_t n, int level)
{
    struct schema_object o;
    struct schema_members m = {.extra = GRAMMAR_NOTHING};
    const struct schema_some *some_extra;
    bool room = schema_has_room(s, level), counts;
    if (schema_object_of(s, v, n, &o, room) || schema_refuses_all(&o) ||
        demanded_extra(s, v, n, &some_extra))
        return GRAMMAR_NOTHING;
    bool may_be_empty = o.n_required == 0 && o.min == 0;
    if (!room || o.max == 0)
        return schema_container(s, "{}", GRAMMAR_NOTHING,
                                may_be_empty && !some_extra, level);
    if (list_nodes(s, &o, some_extra, &m, level) ||
        check_counts(s, &o, &m, &counts) ||
        check_demanded(s, v[n - 1], &some_extra, counts))
        return GRAMMAR_NOTHING;
    may_be_empty &= !some_extra;
    uint32_t some = s->any_order ? any_order(s, &o, &m, some_extra != NULL, level)
                    : counts     ? schema_counted_members(s, &o, &m, false)
                                 : some_members(s, &m);
    return schema_container(s, "{}", some, may_be_empty, level);
}
