/* Automata over code points from the nodes of regular expressions: the subset
 * construction. A member of a subset is a state of the nondeterministic
 * automaton together with its duties: for each lookahead that was passed on the
 * way, the state of the lookahead's own automaton. At the end of the text they
 * must all accept. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "text/grammar/dfa.h"
#include "text/grammar/nfa.h"

enum {
    MAX_SUBSETS = 5000000, /* members of all subsets */
    MAX_DUTIES = 1000000   /* of all lists */
};

/* What is known about the character before or after a place. */
enum place { PLACE_TEXT_END, PLACE_WORD, PLACE_OTHER, PLACE_UNKNOWN };

struct member {
    uint32_t state;
    uint32_t duties; /* a list of them; 0: none */
};

struct duty {
    uint32_t look, before; /* which automaton, see nfa_look */
    uint32_t state;        /* of it */
};

/* Set i, the state i of the draft, is members[start[i] .. start[i + 1]),
 * ascending; before[i] was read before it. */
struct subsets {
    struct nfa_alphabet *x;
    struct nfa nfa;
    struct dfa_draft d;
    struct member *members;
    size_t n_members, cap_members;
    size_t *start;
    size_t cap_start;
    unsigned char *before;
    size_t cap_before;
    uint64_t *hash;
    size_t cap_hash;
    struct hashmap map;
    size_t begin; /* of the set that is being made */
    struct passed {
        struct member *v;
        size_t n, cap;
    } now, end; /* a set after its assertions, if a character or the end of the
                   text follows */
    struct member *todo;
    size_t n_todo, cap_todo;
    uint32_t *mark; /* [states of nfa] stamp of the last set with the state and
                       no duties */
    uint32_t stamp;
    unsigned char *traits; /* [states of nfa] */
    uint32_t *targets;     /* [classes] of the set that is expanded */
    uint32_t *heads;       /* [classes + 1] the first of each list of readers */
    struct reader {
        struct member to; /* its duties: of the member before it */
        uint32_t what, next;
    } * readers;
    size_t n_readers, cap_readers;
    struct duty *duties;
    size_t n_duties, cap_duties;
    size_t *list; /* where each list of duties begins */
    size_t n_lists, cap_list;
};

/* Traits of a state. */
enum {
    TRAIT_STAYS = 1,   /* has edges that are followed later, or is the end */
    TRAIT_ASSERTS = 2, /* has an assertion about the next character */
    TRAIT_SINK = 4     /* any text may follow */
};

static int too_complex(const struct subsets *s)
{
    return err_usage(s->x->at->e,
                     "is too complex for an automaton of bounded size");
}

/* ---- duties -------------------------------------------------------------- */

static int compare_duties(const void *pa, const void *pb)
{
    return memcmp(pa, pb, sizeof(struct duty));
}

/* The duties after the last list are complete. Return the number of an equal
 * list. NFA_NONE with the error set. */
static uint32_t duties_number(struct subsets *s)
{
    size_t begin = s->list[s->n_lists], n = s->n_duties - begin, m = 0;
    struct duty *v = s->duties + begin;
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, compare_duties);
    for (size_t i = 0; i < n; i++)
        if (m == 0 || compare_duties(&v[m - 1], &v[i]) != 0)
            v[m++] = v[i];
    s->n_duties = begin + m;
    if (dfa_steps(s->x->at, s->n_lists))
        return NFA_NONE;
    for (size_t i = 0; i < s->n_lists; i++)
        if (s->list[i + 1] - s->list[i] == m &&
            memcmp(s->duties + s->list[i], v, m * sizeof *v) == 0) {
            s->n_duties = begin;
            return (uint32_t)i;
        }
    if (s->n_duties > MAX_DUTIES) {
        too_complex(s);
        return NFA_NONE;
    }
    if (ARRAY_RESERVE(s->list, s->cap_list, s->n_lists + 2, s->x->at->e))
        return NFA_NONE;
    s->list[++s->n_lists] = s->n_duties;
    return (uint32_t)s->n_lists - 1;
}

static int put_duty(struct subsets *s, struct duty v)
{
    if (ARRAY_RESERVE(s->duties, s->cap_duties, s->n_duties + 1, s->x->at->e))
        return -1;
    s->duties[s->n_duties++] = v;
    return 0;
}

static const struct dfa *duty_dfa(const struct subsets *s, struct duty v)
{
    return s->x->looks[v.look].after[v.before];
}

/* Whether any text may follow in a state. */
static bool is_done(const struct dfa *p, uint32_t state)
{
    const struct dfa_edge *e = p->edges + p->first[state];
    return p->accept[state] && p->first[state + 1] - p->first[state] == 2 &&
           e[0].to == state && e[1].to == state && e[0].lo == 0 &&
           e[0].hi == 0xD7FF && e[1].lo == 0xE000 && e[1].hi == DFA_LAST;
}

/* Set *out to the duties of a list after a character. Returns 1, 0 if one of
 * them cannot be met any more, or -1. */
static int step_duties(struct subsets *s, uint32_t list, uint32_t cp,
                       uint32_t *out)
{
    size_t begin = s->n_duties;
    *out = 0;
    for (size_t i = s->list[list]; i < s->list[list + 1]; i++) {
        struct duty v = s->duties[i];
        const struct dfa *p = duty_dfa(s, v);
        uint32_t k = p->first[v.state], end = p->first[v.state + 1];
        if (dfa_steps(s->x->at, 1 + end - k))
            return -1;
        while (k < end && p->edges[k].hi < cp)
            k++;
        if (k == end || p->edges[k].lo > cp) {
            s->n_duties = begin;
            return 0;
        }
        v.state = p->edges[k].to;
        if (!is_done(p, v.state) && put_duty(s, v))
            return -1;
    }
    *out = duties_number(s);
    return *out == NFA_NONE ? -1 : 1;
}

static bool duties_accept(const struct subsets *s, uint32_t list)
{
    for (size_t i = s->list[list]; i < s->list[list + 1]; i++)
        if (!duty_dfa(s, s->duties[i])->accept[s->duties[i].state])
            return false;
    return true;
}

static const struct dfa *determinise(struct nfa_alphabet *x, uint32_t node,
                                     bool with_rest, enum place before);

/* Make the automaton of the texts that may follow a lookahead. */
static int make_look(struct subsets *s, uint32_t look, enum place before)
{
    const struct dfa_place *at = s->x->at;
    const uint32_t *p =
        node_kids(s->x->g, &s->x->g->nodes[s->x->looks[look].node]);
    const struct dfa *found = determinise(s->x, p[0], true, before);
    if (found && p[1]) {
        const struct dfa *any = dfa_any(at);
        found = any ? dfa_combine(any, found, true, at) : NULL;
    }
    s->x->looks[look].after[before] = found;
    return found ? 0 : -1;
}

/* Add the duty of a lookahead to the list *list. Returns 1, 0 if no text can
 * meet it, or -1. */
static int pass_look(struct subsets *s, uint32_t look, enum place before,
                     uint32_t *list)
{
    if (!s->x->looks[look].after[before] && make_look(s, look, before))
        return -1;
    const struct dfa *p = s->x->looks[look].after[before];
    if (p->n_states == 0)
        return 0;
    if (is_done(p, 0))
        return 1;
    for (size_t i = s->list[*list]; i < s->list[*list + 1]; i++)
        if (put_duty(s, s->duties[i]))
            return -1;
    if (put_duty(s, (struct duty){look, before, 0}))
        return -1;
    *list = duties_number(s);
    return *list == NFA_NONE ? -1 : 1;
}

/* ---- sets ---------------------------------------------------------------- */

/* Return 1 if an assertion holds between two characters, 0 if not, -1 if that
 * is not known yet. */
static int holds(uint32_t assertion, enum place before, enum place after)
{
    bool border = (before == PLACE_WORD) != (after == PLACE_WORD);
    if (assertion == ASSERT_START)
        return before == PLACE_TEXT_END;
    if (after == PLACE_UNKNOWN)
        return -1;
    if (assertion == ASSERT_END)
        return after == PLACE_TEXT_END;
    return border == (assertion == ASSERT_WORD);
}

/* Append a member to the set that is being made, unless it has it already. */
static int put_member(struct subsets *s, struct member m)
{
    struct qwick_err *e = s->x->at->e;
    if (s->mark[m.state] == s->stamp)
        return 0;
    if (m.duties == 0)
        s->mark[m.state] = s->stamp;
    else if (dfa_steps(s->x->at, s->n_members - s->begin))
        return -1;
    for (size_t i = s->begin; m.duties && i < s->n_members; i++)
        if (s->members[i].state == m.state && s->members[i].duties == m.duties)
            return 0;
    if (s->n_members >= MAX_SUBSETS)
        return too_complex(s);
    if (ARRAY_RESERVE(s->members, s->cap_members, s->n_members + 1, e) ||
        ARRAY_RESERVE(s->todo, s->cap_todo, s->n_todo + 1, e))
        return -1;
    s->members[s->n_members++] = m;
    s->todo[s->n_todo++] = m;
    return 0;
}

/* Append a member, and all that it reaches without reading, to the set that is
 * being made. */
static int close_over(struct subsets *s, struct member m, enum place before,
                      enum place after)
{
    const struct nfa *a = &s->nfa;
    s->n_todo = 0;
    if (put_member(s, m))
        return -1;
    while (s->n_todo > 0) {
        m = s->todo[--s->n_todo];
        uint32_t n = a->first[m.state + 1] - a->first[m.state];
        if (dfa_steps(s->x->at, 1 + n / 4))
            return -1;
        for (uint32_t k = a->first[m.state]; k < a->first[m.state + 1]; k++) {
            const struct nfa_edge *e = &a->edges[k];
            struct member to = {e->to, m.duties};
            int rc = e->kind == NFA_SKIP;
            if (e->kind == NFA_ASSERT)
                rc = holds(e->what, before, after) > 0;
            else if (e->kind == NFA_LOOK)
                rc = pass_look(s, e->what, before, &to.duties);
            if (rc < 0 || (rc > 0 && put_member(s, to)))
                return -1;
        }
    }
    return 0;
}

/* Begin to make a set, after the last one. */
static void begin_set(struct subsets *s)
{
    s->begin = s->n_members;
    s->stamp++;
}

/* Write the set members[from..to) as it is after its assertions, given the next
 * character, to out. */
static int pass_assertions(struct subsets *s, size_t from, size_t to,
                           enum place before, enum place after,
                           struct passed *out)
{
    bool asserts = false;
    for (size_t i = from; i < to; i++)
        asserts |= (s->traits[s->members[i].state] & TRAIT_ASSERTS) != 0;
    begin_set(s);
    for (size_t i = from; asserts && i < to; i++)
        if (close_over(s, s->members[i], before, after))
            return -1;
    if (asserts) {
        from = s->begin;
        to = s->n_members;
    }
    out->n = to - from;
    if (ARRAY_RESERVE(out->v, out->cap, out->n, s->x->at->e))
        return -1;
    if (out->n)
        memcpy(out->v, s->members + from, out->n * sizeof *out->v);
    s->n_members = s->begin;
    return 0;
}

static int compare_members(const void *pa, const void *pb)
{
    const struct member *a = pa, *b = pb;
    if (a->state != b->state)
        return a->state < b->state ? -1 : 1;
    return a->duties < b->duties ? -1 : a->duties > b->duties;
}

/* Keep the members that matter of the set that was made: those that have
 * something to do later. If any text may follow one, no other matters. */
static void thin_out(struct subsets *s)
{
    size_t begin = s->begin, n = begin;
    for (size_t i = begin; i < s->n_members; i++) {
        struct member m = s->members[i];
        if (m.duties == 0 && (s->traits[m.state] & TRAIT_SINK)) {
            s->members[begin] = m;
            s->members[begin + 1] = (struct member){1, 0}; /* it skips to it */
            s->n_members = begin + 2;
            return;
        }
    }
    for (size_t i = begin; i < s->n_members; i++) {
        struct member m = s->members[i];
        bool weaker = m.duties && s->mark[m.state] == s->stamp;
        if ((s->traits[m.state] & TRAIT_STAYS) && !weaker)
            s->members[n++] = m;
    }
    s->n_members = n;
    if (n - begin > 1)
        qsort(s->members + begin, n - begin, sizeof *s->members,
              compare_members);
}

/* Whether the text may end in the set that was made: 1 or 0; -1 with the error
 * set. */
static int set_accepts(struct subsets *s, enum place before)
{
    if (pass_assertions(s, s->begin, s->n_members, before, PLACE_TEXT_END,
                        &s->end))
        return -1;
    for (size_t i = 0; i < s->end.n; i++)
        if (s->end.v[i].state == 1 && duties_accept(s, s->end.v[i].duties))
            return 1;
    return 0;
}

/* The set after the last one is complete. Return its number, or the number of
 * an equal earlier set. NFA_NONE with the error set. */
static uint32_t set_number(struct subsets *s, enum place before)
{
    const struct dfa_place *at = s->x->at;
    thin_out(s);
    size_t n = s->n_members - s->begin;
    struct member *set = s->members + s->begin;
    uint64_t h = hash_bytes(before, set, n * sizeof *set);
    uint32_t slot = hashmap_slot(&s->map, h), i;
    while ((i = hashmap_next(&s->map, h, &slot)) != HASHMAP_NONE)
        if (s->hash[i] == h && s->before[i] == before &&
            s->start[i + 1] - s->start[i] == n &&
            memcmp(s->members + s->start[i], set, n * sizeof *set) == 0) {
            s->n_members = s->begin;
            return i;
        }
    int accepts = set_accepts(s, before);
    i = accepts < 0 ? NFA_NONE : dfa_draft_state(&s->d, accepts > 0, at);
    if (i == NFA_NONE || ARRAY_RESERVE(s->start, s->cap_start, i + 2u, at->e) ||
        ARRAY_RESERVE(s->before, s->cap_before, i + 1u, at->e) ||
        ARRAY_RESERVE(s->hash, s->cap_hash, i + 1u, at->e))
        return NFA_NONE;
    s->start[i + 1] = s->n_members;
    s->before[i] = (unsigned char)before;
    s->hash[i] = h;
    hashmap_put(&s->map, h, i);
    return i;
}

/* ---- reading ------------------------------------------------------------- */

/* Collect the edges of the current set that read: those of one character in
 * lists, one for each class, the others in one list. */
static int list_readers(struct subsets *s)
{
    const struct nfa *a = &s->nfa;
    const struct nfa_alphabet *x = s->x;
    s->n_readers = 0;
    memset(s->heads, 0xFF, (x->n_classes + 1) * sizeof *s->heads);
    for (size_t i = 0; i < s->now.n; i++) {
        struct member m = s->now.v[i];
        if (dfa_steps(x->at, 1))
            return -1;
        for (uint32_t k = a->first[m.state]; k < a->first[m.state + 1]; k++) {
            const struct nfa_edge *e = &a->edges[k];
            if (e->kind != NFA_READ)
                continue;
            if (ARRAY_RESERVE(s->readers, s->cap_readers, s->n_readers + 1,
                              x->at->e))
                return -1;
            const struct nfa_symbol *symbol = &x->symbols[e->what];
            uint32_t *head =
                &s->heads[symbol->ranges ? x->n_classes : symbol->class_of];
            s->readers[s->n_readers] =
                (struct reader){{e->to, m.duties}, e->what, *head};
            *head = (uint32_t)s->n_readers++;
        }
    }
    return 0;
}

/* Make the set after a character of a class. */
static int read_class(struct subsets *s, uint32_t class_of, enum place before)
{
    const struct nfa_alphabet *x = s->x;
    begin_set(s);
    for (int list = 0; list < 2; list++)
        for (uint32_t k = s->heads[list ? x->n_classes : class_of];
             k != NFA_NONE; k = s->readers[k].next) {
            struct reader r = s->readers[k];
            if (dfa_steps(x->at, 1))
                return -1;
            if (!nfa_reads(x, r.what, class_of))
                continue;
            int rc = r.to.duties
                         ? step_duties(s, r.to.duties, x->sample[class_of],
                                       &r.to.duties)
                         : 1;
            if (rc < 0 ||
                (rc > 0 && close_over(s, r.to, before, PLACE_UNKNOWN)))
                return -1;
        }
    return 0;
}

/* Add the edges of a set, whose classes lead to s->targets. */
static int put_edges(struct subsets *s, uint32_t set)
{
    const struct nfa_alphabet *x = s->x;
    uint32_t lo = 0, to = NFA_NONE;
    if (dfa_steps(x->at, 1 + x->n_intervals / 16))
        return -1;
    for (size_t i = 0; i <= x->n_intervals; i++) {
        const struct nfa_interval *v = &x->intervals[i];
        uint32_t next = NFA_NONE;
        if (i < x->n_intervals && v->class_of != NFA_NONE)
            next = s->targets[v->class_of];
        if (next == to)
            continue;
        if (to != NFA_NONE &&
            dfa_draft_edge(&s->d, set, lo, v[-1].hi, to, x->at))
            return -1;
        lo = i < x->n_intervals ? v->lo : 0;
        to = next;
    }
    return 0;
}

/* Make the sets that follow a set. */
static int expand_set(struct subsets *s, uint32_t set)
{
    const struct nfa_alphabet *x = s->x;
    for (enum place kind = PLACE_WORD; kind <= PLACE_OTHER; kind++) {
        if (kind == PLACE_WORD && !x->has_words)
            continue;
        if (pass_assertions(s, s->start[set], s->start[set + 1], s->before[set],
                            kind, &s->now) ||
            list_readers(s))
            return -1;
        for (uint32_t c = 0; c < x->n_classes; c++) {
            bool word = x->has_words && nfa_reads(x, x->words, c);
            if (word != (kind == PLACE_WORD))
                continue;
            if (read_class(s, c, kind))
                return -1;
            bool none = s->n_members == s->begin;
            s->targets[c] = none ? NFA_NONE : set_number(s, kind);
            if (!none && s->targets[c] == NFA_NONE)
                return -1;
        }
    }
    return put_edges(s, set);
}

static bool is_any(const struct nfa_symbol *v)
{
    return v->n == 2 && v->ranges[0].lo == 0 && v->ranges[0].hi == 0xD7FF &&
           v->ranges[1].lo == 0xE000 && v->ranges[1].hi == DFA_LAST;
}

static void find_traits(struct subsets *s)
{
    const struct nfa *a = &s->nfa;
    for (uint32_t i = 0; i < a->n_states; i++) {
        bool loops = false, ends = false;
        unsigned t = i == 1 ? TRAIT_STAYS : 0;
        for (uint32_t k = a->first[i]; k < a->first[i + 1]; k++) {
            const struct nfa_edge *e = &a->edges[k];
            if (e->kind == NFA_READ)
                t |= TRAIT_STAYS;
            if (e->kind == NFA_ASSERT && e->what != ASSERT_START)
                t |= TRAIT_STAYS | TRAIT_ASSERTS;
            loops |= e->kind == NFA_READ && e->to == i &&
                     is_any(&s->x->symbols[e->what]);
            ends |= e->kind == NFA_SKIP && e->to == 1;
        }
        s->traits[i] = (unsigned char)(t | (loops && ends ? TRAIT_SINK : 0));
    }
}

static int run_subsets(struct subsets *s, enum place before)
{
    struct qwick_err *e = s->x->at->e;
    uint32_t n = s->nfa.n_states;
    s->mark = calloc(n, sizeof *s->mark);
    s->traits = calloc(n, sizeof *s->traits);
    s->targets = malloc((s->x->n_classes + 1) * sizeof *s->targets);
    s->heads = malloc((s->x->n_classes + 1) * sizeof *s->heads);
    if (!s->mark || !s->traits || !s->targets || !s->heads)
        return err_oom(e, n * sizeof *s->mark);
    if (ARRAY_RESERVE(s->start, s->cap_start, 1, e) ||
        ARRAY_RESERVE(s->list, s->cap_list, 2, e) ||
        hashmap_init(&s->map, DFA_MAX_STATES + 1, DFA_MAX_STATES, e))
        return -1;
    s->start[0] = 0;
    s->list[0] = s->list[1] = 0; /* list 0 is empty */
    s->n_lists = 1;
    find_traits(s);
    begin_set(s);
    if (close_over(s, (struct member){0, 0}, before, PLACE_UNKNOWN) ||
        set_number(s, before) == NFA_NONE)
        return -1;
    for (uint32_t set = 0; set < s->d.n_states; set++)
        if (expand_set(s, set))
            return -1;
    return 0;
}

/* Return the automaton of the texts of a node after a character. with_rest: any
 * text may follow them. NULL with the error set. */
static const struct dfa *determinise(struct nfa_alphabet *x, uint32_t node,
                                     bool with_rest, enum place before)
{
    struct subsets s = {.x = x};
    const struct dfa *p = NULL;
    if (nfa_create(&s.nfa, x, node, with_rest) == 0 &&
        run_subsets(&s, before) == 0)
        p = dfa_finish(&s.d, x->at);
    nfa_free(&s.nfa);
    dfa_draft_free(&s.d);
    free(s.members);
    free(s.start);
    free(s.before);
    free(s.hash);
    hashmap_free(&s.map);
    free(s.now.v);
    free(s.end.v);
    free(s.todo);
    free(s.mark);
    free(s.traits);
    free(s.targets);
    free(s.heads);
    free(s.readers);
    free(s.duties);
    free(s.list);
    return p;
}

const struct dfa *dfa_of_node(const struct grammar *g, uint32_t node,
                              const struct dfa_place *at)
{
    struct nfa_alphabet x;
    const struct dfa *p = NULL;
    if (nfa_alphabet(&x, g, node, at) == 0)
        p = determinise(&x, node, false,
                        x.has_start ? PLACE_TEXT_END : PLACE_OTHER);
    nfa_alphabet_free(&x);
    return p;
}
