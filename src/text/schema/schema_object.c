/* Objects as nodes of a grammar. */
#include <string.h>

#include "text/schema/schema_int.h"
#include "text/grammar/dfa_text.h"

/* If at most this many optional properties come before the first required one,
 * an object repeats the rest of its properties for each possible first one. */
enum { MAX_REPEATED_RESTS = 2 };

/* Demands on the members that no schema names; see struct demands. */
enum { MAX_DEMANDS = 3 };

/* What no name without quotes has, see schema_is_bare_name. */
#define BARE_SPECIAL ":,{}[]<\""

/* The most rules for the members of an object that are counted. */
enum { MAX_COUNTED = 20000 };

static uint32_t member_node(struct schema *s, uint32_t name,
                            struct schema_node *const *all, size_t n, int level)
{
    const uint32_t parts[] = {name, schema_colon(s),
                              schema_value_node(s, all, n, level + 1)};
    return grammar_seq(s->g, parts, 3);
}

bool schema_is_bare_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || strchr(BARE_SPECIAL, s[i]))
            return false;
    return n > 0;
}

uint32_t schema_name_literal(struct schema *s, const struct json_value *name)
{
    if (s->form != SCHEMA_BARE)
        return schema_literal(s, name, 0);
    if (schema_is_bare_name(name->str, name->len))
        return grammar_bytes(s->g, name->str, name->len);
    schema_refuse(s, name, NULL,
                  "the calls of this model cannot have a member \"%s\": a name "
                  "has no blanks and none of %s",
                  ERR_SHOW(name->str, name->len), BARE_SPECIAL);
    return GRAMMAR_NOTHING;
}

/* Return the node of the names p, without those that cannot be written. */
static uint32_t names_node(struct schema *s, const struct dfa *p,
                           struct text_length length)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    if (s->form != SCHEMA_BARE)
        return schema_string_node(s, p, TEXT_ESCAPE_SOME, length);
    const struct dfa *plain = schema_regex(s, "[^\\x00-\\x20:,{}\\[\\]<\"]+");
    p = plain ? schema_combine(s, p, plain, false, &at) : NULL;
    return p ? text_body(s->g, p, TEXT_ESCAPE_NONE, length) : GRAMMAR_NOTHING;
}

/* The names of members that no schema names, with their quotes. Without a
 * limit, a model that draws words at random would hardly ever end a name. */
static uint32_t name_node(struct schema *s, const struct dfa *names)
{
    const struct text_length length = {0, MAX_NAME};
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *without;
    struct schema_name_node **first =
        &s->name_nodes[(uintptr_t)names / 64 % SCHEMA_BUCKETS];
    for (const struct schema_name_node *x = *first; x; x = x->next)
        if (x->names == names)
            return x->node;
    struct schema_name_node *x = schema_alloc(s, 1, sizeof *x);
    if (!x || schema_unwritable(s, &without))
        return GRAMMAR_NOTHING;
    const struct dfa *p =
        without ? schema_combine(s, names, without, true, &at) : names;
    if (!p)
        return GRAMMAR_NOTHING;
    *x = (struct schema_name_node){
        names, grammar_shared(s->g, "name", names_node(s, p, length)), *first};
    *first = x;
    return x->node;
}

/* ---- members that no schema names ---------------------------------------- */

/* What a set asks of members that no schema names: each of the demands is met by
 * one of them. A set of demands is a number of bits. */
struct demands {
    const struct schema_some *v[MAX_DEMANDS];
    size_t n;
};

/* Names, and the schemas of their values. */
struct extra {
    const struct dfa *names;
    struct schema_node **all;
    size_t n_all;
};

/* Return the node of a member that meets the demands of `meets` from the i-th
 * one on, after members that met those of `met`. Of members with equal names,
 * programs read the last: so it must not spoil a demand that was met. */
static uint32_t extra_from(struct schema *s, const struct demands *d, size_t i,
                           unsigned meets, unsigned met, struct extra x,
                           int level)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    uint32_t without = GRAMMAR_NOTHING;
    if (x.names->n_states == 0)
        return GRAMMAR_NOTHING;
    if (i == d->n)
        return member_node(s, name_node(s, x.names), x.all, x.n_all, level);
    const struct schema_some *some = d->v[i];
    bool must = meets >> i & 1;
    bool may = !must && (met >> i & 1) && some->value != s->always;
    if (may) {
        struct extra other = x;
        other.names = schema_combine(s, x.names, some->names, true, &at);
        if (!other.names)
            return GRAMMAR_NOTHING;
        without = extra_from(s, d, i + 1, meets, met, other, level);
    }
    if (must || may) {
        x.names = schema_combine(s, x.names, some->names, false, &at);
        if (!x.names)
            return GRAMMAR_NOTHING;
        x.all[x.n_all++] = some->value;
    }
    return grammar_alt2(s->g, without,
                        extra_from(s, d, i + 1, meets, met, x, level));
}

static uint32_t extra_node(struct schema *s, const struct schema_object *o,
                           const struct demands *d, unsigned meets,
                           unsigned met, int level)
{
    uint32_t node = GRAMMAR_NOTHING;
    for (size_t i = 0; i < o->n_extras; i++) {
        const struct schema_extra *from = &o->extras[i];
        size_t most = from->n_all + d->n;
        struct extra x = {from->names, schema_borrow(s, most, sizeof *x.all),
                          from->n_all};
        if (!x.all)
            return GRAMMAR_NOTHING;
        if (x.n_all)
            memcpy(x.all, from->all, x.n_all * sizeof *x.all);
        node = grammar_alt2(s->g, node,
                            extra_from(s, d, 0, meets, met, x, level));
        schema_give_back(s, x.all, most, sizeof *x.all);
    }
    return node;
}

/* Set the nodes of the members that no schema names. after[met]: those that
 * follow others, when the demands of `met` are met. */
static void list_extras(struct schema *s, const struct schema_object *o,
                        const struct demands *d, struct schema_members *m,
                        int level)
{
    uint32_t comma = schema_comma(s, level + 1), after[1 << MAX_DEMANDS];
    unsigned all = (1u << d->n) - 1;
    m->extra = extra_node(s, o, d, 0, 0, level);
    m->follow_extra = grammar_seq2(s->g, comma, m->extra);
    m->extras = GRAMMAR_NOTHING;
    for (unsigned met = all + 1; met-- > 0;) {
        uint32_t other = extra_node(s, o, d, 0, met, level);
        uint32_t next = met == all ? GRAMMAR_EMPTY : GRAMMAR_NOTHING;
        for (unsigned more = 1; more <= all; more++) {
            if (more & met)
                continue;
            uint32_t one = extra_node(s, o, d, more, met, level);
            uint32_t parts[] = {comma, one, after[met | more]};
            next = grammar_alt2(s->g, next, grammar_seq(s->g, parts, 3));
            if (met == 0)
                m->extras = grammar_alt2(
                    s->g, m->extras, grammar_seq(s->g, parts + 1, 2));
        }
        after[met] = grammar_seq2(
            s->g,
            grammar_repeat(s->g, grammar_seq2(s->g, comma, other), 0,
                           GRAMMAR_UNBOUNDED),
            next);
        if (d->n > 1)
            after[met] = grammar_shared(s->g, "members", after[met]);
    }
    m->demanded = d->n == 1 ? extra_node(s, o, d, 1, 0, level) : GRAMMAR_NOTHING;
    m->follow_extras = after[0];
    m->extras = grammar_alt2(s->g, m->extras,
                             grammar_seq2(s->g, m->extra, after[0]));
}

/* Return 1 if a member that meets x meets y, too. -1 with the error set. */
static int implies(struct schema *s, const struct schema_some *x,
                   const struct schema_some *y)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    if (x->value != y->value && y->value != s->always)
        return 0;
    const struct dfa *p = dfa_combine(x->names, y->names, true, &at);
    return p ? p->n_states == 0 : -1;
}

/* Find the demands of a set, without those that another one implies. */
static int list_demands(struct schema *s, struct schema_node *const *v,
                        size_t n, struct demands *d)
{
    d->n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct schema_some *x = v[i]->others;
        int known = 0;
        size_t left = 0;
        if (!x)
            continue;
        for (size_t k = 0; k < d->n && !known; k++)
            known = implies(s, d->v[k], x);
        for (size_t k = 0; k < d->n && !known; k++) {
            int less = implies(s, x, d->v[k]);
            if (less < 0)
                return -1;
            if (!less)
                d->v[left++] = d->v[k];
        }
        if (known < 0)
            return -1;
        if (known)
            continue;
        d->n = left;
        if (d->n < MAX_DEMANDS)
            d->v[d->n++] = x;
        else if (schema_cannot_hold(s, v[i]->at, NULL,
                                    "more than %d demands on members that no "
                                    "schema names are not supported",
                                    MAX_DEMANDS))
            return -1;
    }
    return 0;
}

static int list_nodes(struct schema *s, const struct schema_object *o,
                      const struct demands *d, struct schema_members *m,
                      int level)
{
    uint32_t comma = schema_comma(s, level + 1);
    m->plain = schema_borrow(s, o->n_members + 1, sizeof *m->plain);
    m->follow = schema_borrow(s, o->n_members, sizeof *m->follow);
    m->required = schema_borrow(s, o->n_members + 1, sizeof *m->required);
    if (!m->plain || !m->follow || !m->required)
        return -1;
    for (size_t i = 0; i < o->n_members; i++) {
        const struct schema_member *from = &o->members[i];
        if (from->forbidden)
            continue;
        struct json_value key = *from->name;
        m->plain[m->n] = member_node(s, schema_name_literal(s, &key), from->all,
                                     from->n_all, level);
        m->follow[m->n] = grammar_seq2(s->g, comma, m->plain[m->n]);
        m->required[m->n++] = from->required;
    }
    list_extras(s, o, d, m, level);
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
                          struct demands *d, bool counts)
{
    const char *reason = NULL;
    if (d->n && counts)
        reason = "the number of members";
    else if (d->n && s->any_order &&
             (d->n > 1 || d->v[0]->value != s->always))
        reason = "members in any order"; /* equal names may repeat */
    if (!reason)
        return 0;
    d->n = 0;
    return schema_cannot_hold(s, node->at, NULL,
                              "%s and demands on members that no schema names "
                              "are not supported together",
                              reason);
}

/* Return the node of an object with these demands. */
static uint32_t emit_members(struct schema *s, struct schema_node *const *v,
                             size_t n, const struct schema_object *o,
                             struct schema_members *m, int level)
{
    struct demands d;
    bool counts;
    if (schema_refuses_all(o) || list_demands(s, v, n, &d))
        return GRAMMAR_NOTHING;
    bool may_be_empty = o->n_required == 0 && o->min == 0;
    if (!schema_has_room(s, level) || o->max == 0)
        return schema_container(s, "{}", GRAMMAR_NOTHING,
                                may_be_empty && d.n == 0, level);
    if (list_nodes(s, o, &d, m, level) || check_counts(s, o, m, &counts) ||
        check_demanded(s, v[n - 1], &d, counts))
        return GRAMMAR_NOTHING;
    may_be_empty &= d.n == 0;
    uint32_t some = s->any_order ? any_order(s, o, m, d.n > 0, level)
                    : counts     ? schema_counted_members(s, o, m, false)
                                 : some_members(s, m);
    return schema_container(s, "{}", some, may_be_empty, level);
}

uint32_t schema_emit_object(struct schema *s, struct schema_node *const *v,
                            size_t n, int level)
{
    struct schema_object o;
    int rc = schema_object_of(s, v, n, &o, schema_has_room(s, level));
    struct schema_members m = {.extra = GRAMMAR_NOTHING};
    uint32_t node =
        rc ? GRAMMAR_NOTHING : emit_members(s, v, n, &o, &m, level);
    schema_give_back(s, m.plain, o.n_members + 1, sizeof *m.plain);
    schema_give_back(s, m.follow, o.n_members, sizeof *m.follow);
    schema_give_back(s, m.required, o.n_members + 1, sizeof *m.required);
    schema_object_free(s, &o);
    return node;
}
