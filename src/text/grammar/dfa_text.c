#include "text/grammar/dfa_text.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/utf8.h"
#include "text/grammar/grammar_int.h"
#include "text/grammar/dfa.h"

enum { MAX_SPELL_EDGES = 1 << 20 };

#define NONE UINT32_MAX

/* States that read one thing and then go on to another state. Equal states are
 * made once. */
enum step {
    STEP_BYTE,  /* a byte lo..hi */
    STEP_DIGIT, /* a hexadecimal digit lo..hi, 0..15 */
    STEP_HEX    /* four of them with a value lo..hi */
};

struct step_key {
    uint32_t step, lo, hi, next, state;
    uint64_t hash;
};

/* A state that reads the characters which lead from state i of the points to
 * the target of most characters. States with equal ones share it. */
struct rest {
    uint32_t i, state;
    uint64_t hash;
};

/* A byte automaton that is being written. */
struct spell {
    struct grammar *g;
    enum text_escapes escapes;
    struct dfa_draft_edge *edges; /* of NODE_DFA */
    size_t n_edges, cap_edges;
    uint32_t n_states;
    struct step_key *steps;
    size_t n_steps, cap_steps, cap_map;
    struct hashmap map; /* of steps */
    struct rest *rests;
    size_t n_rests, cap_rests;
    struct hashmap by_hash; /* of rests */
    struct text_length length;
    int64_t *distance;    /* [states of the points] see dfa_distances; NULL:
                             no length is counted */
    uint32_t escape, hex; /* of the current state: the states after its '\'
                             and after its "\u"; NONE: not made yet */
    struct qwick_err err;
    bool failed;
};

static void put_edge(struct spell *s, uint32_t from, uint32_t lo, uint32_t hi,
                     uint32_t to)
{
    if (s->failed)
        return;
    if (s->n_edges >= MAX_SPELL_EDGES) {
        grammar_fail(s->g, "a string needs an automaton of more than %d edges",
                     MAX_SPELL_EDGES);
        s->failed = true;
        return;
    }
    if (ARRAY_RESERVE(s->edges, s->cap_edges, s->n_edges + 1, &s->err)) {
        s->failed = true;
        return;
    }
    s->edges[s->n_edges++] =
        (struct dfa_draft_edge){from, lo, hi, to};
}

/* Put edges that read the hexadecimal digits lo..hi, of either case. */
static void put_digits(struct spell *s, uint32_t from, uint32_t lo, uint32_t hi,
                       uint32_t to)
{
    if (lo < 10)
        put_edge(s, from, '0' + lo, '0' + (hi < 10 ? hi : 9), to);
    if (hi >= 10) {
        uint32_t first = lo > 10 ? lo - 10 : 0;
        if (s->escapes != TEXT_ESCAPE_ONE)
            put_edge(s, from, 'A' + first, 'A' + hi - 10, to);
        put_edge(s, from, 'a' + first, 'a' + hi - 10, to);
    }
}

/* Add a step to the table, which is built anew when it is full. */
static void add_step(struct spell *s, struct step_key key)
{
    if (s->n_steps >= MAX_SPELL_EDGES ||
        ARRAY_RESERVE(s->steps, s->cap_steps, s->n_steps + 1, &s->err)) {
        s->failed = true;
        return;
    }
    s->steps[s->n_steps] = key;
    if (s->n_steps++ < s->cap_map) {
        hashmap_put(&s->map, key.hash, (uint32_t)s->n_steps - 1);
        return;
    }
    s->cap_map = 2 * s->cap_map + 256;
    if (hashmap_init(&s->map, s->cap_map, MAX_SPELL_EDGES, &s->err)) {
        s->failed = true;
        return;
    }
    for (uint32_t i = 0; i < s->n_steps; i++)
        hashmap_put(&s->map, s->steps[i].hash, i);
}

static void put_hex(struct spell *s, uint32_t from, uint32_t lo, uint32_t hi,
                    uint32_t to);

/* Return the state that reads something and goes on to `next`. */
static uint32_t step_state(struct spell *s, enum step step, uint32_t lo,
                           uint32_t hi, uint32_t next)
{
    uint64_t h = hash_mix((uint64_t)next << 2 | step,
                          ((uint64_t)lo << 32 | hi) ^ 0x9e3779b97f4a7c15u);
    uint32_t at, i;
    if (s->failed)
        return 0;
    at = s->cap_map > 0 ? hashmap_slot(&s->map, h) : 0;
    while (s->cap_map > 0 &&
           (i = hashmap_next(&s->map, h, &at)) != HASHMAP_NONE) {
        const struct step_key *k = &s->steps[i];
        if (k->step == step && k->lo == lo && k->hi == hi && k->next == next)
            return k->state;
    }
    uint32_t state = s->n_states++;
    add_step(s, (struct step_key){step, lo, hi, next, state, h});
    if (step == STEP_BYTE)
        put_edge(s, state, lo, hi, next);
    else if (step == STEP_DIGIT)
        put_digits(s, state, lo, hi, next);
    else
        put_hex(s, state, lo, hi, next);
    return state;
}

/* Put edges that read a code point lo..hi as UTF-8. The range is cut until the
 * bytes of its encodings are independent. */
static void put_utf8(struct spell *s, uint32_t from, uint32_t lo, uint32_t hi,
                     uint32_t to)
{
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF};
    char a[4], b[4];
    for (size_t i = 0; i < 3; i++)
        if (lo <= last[i] && hi > last[i]) {
            put_utf8(s, from, lo, last[i], to);
            put_utf8(s, from, last[i] + 1, hi, to);
            return;
        }
    for (uint32_t m = 0x3F; hi > 0x7F && m < 0xFFFFFF; m = m << 6 | 0x3F) {
        if ((lo & ~m) == (hi & ~m))
            continue;
        if ((lo & m) || (hi & m) != m) {
            uint32_t cut = (lo & m) ? lo | m : (hi & ~m) - 1;
            put_utf8(s, from, lo, cut, to);
            put_utf8(s, from, cut + 1, hi, to);
            return;
        }
    }
    size_t n = utf8_encode(lo, a);
    utf8_encode(hi, b);
    while (n-- > 1)
        to = step_state(s, STEP_BYTE, (unsigned char)a[n], (unsigned char)b[n],
                        to);
    put_edge(s, from, (unsigned char)a[0], (unsigned char)b[0], to);
}

/* Put edges that read four hexadecimal digits of a value lo..hi. */
static void put_hex(struct spell *s, uint32_t from, uint32_t lo, uint32_t hi,
                    uint32_t to)
{
    for (uint32_t m = 0xF; m < 0xFFFF; m = m << 4 | 0xF) {
        if ((lo & ~m) == (hi & ~m))
            continue;
        if ((lo & m) || (hi & m) != m) {
            uint32_t cut = (lo & m) ? lo | m : (hi & ~m) - 1;
            put_hex(s, from, lo, cut, to);
            put_hex(s, from, cut + 1, hi, to);
            return;
        }
    }
    for (uint32_t shift = 0; shift < 12; shift += 4)
        to = step_state(s, STEP_DIGIT, lo >> shift & 15, hi >> shift & 15, to);
    put_digits(s, from, lo >> 12, hi >> 12, to);
}

/* Put edges that read "HHHH\uHHHH", the surrogates of a code point lo..hi above
 * U+FFFF. */
static void put_surrogates(struct spell *s, uint32_t from, uint32_t lo,
                           uint32_t hi, uint32_t to)
{
    uint32_t a = lo - 0x10000, b = hi - 0x10000, next;
    if (a >> 10 != b >> 10 && ((a & 0x3FF) || (b & 0x3FF) != 0x3FF)) {
        uint32_t cut = (a & 0x3FF) ? lo | 0x3FF : (hi & ~0x3FFu) - 1;
        put_surrogates(s, from, lo, cut, to);
        put_surrogates(s, from, cut + 1, hi, to);
        return;
    }
    next =
        step_state(s, STEP_HEX, 0xDC00 + (a & 0x3FF), 0xDC00 + (b & 0x3FF), to);
    next = step_state(s, STEP_BYTE, 'u', 'u', next);
    next = step_state(s, STEP_BYTE, '\\', '\\', next);
    put_hex(s, from, 0xD800 + (a >> 10), 0xD800 + (b >> 10), next);
}

/* ---- characters of strings ----------------------------------------------- */

static bool must_escape(uint32_t cp)
{
    return cp < 0x20 || cp == '"' || cp == '\\';
}

static bool has_short_escape(uint32_t cp)
{
    return cp == '"' || cp == '\\' || cp == '\b' || cp == '\f' || cp == '\n' ||
           cp == '\r' || cp == '\t';
}

/* Whether a character may be written as \uXXXX. */
static bool may_escape(const struct spell *s, uint32_t cp)
{
    if (s->escapes == TEXT_ESCAPE_ONE)
        return must_escape(cp) && !has_short_escape(cp);
    return s->escapes == TEXT_ESCAPE_ALL || must_escape(cp) || cp == '/' ||
           cp >= 0x7F;
}

static uint32_t escape_state(struct spell *s, uint32_t from)
{
    if (s->escape == NONE) {
        s->escape = s->n_states++;
        put_edge(s, from, '\\', '\\', s->escape);
    }
    return s->escape;
}

/* Put edges that read \uXXXX for the code points lo..hi. */
static void put_escaped(struct spell *s, uint32_t from, uint32_t lo,
                        uint32_t hi, uint32_t to)
{
    if (s->hex == NONE) {
        uint32_t escape = escape_state(s, from);
        s->hex = s->n_states++;
        put_edge(s, escape, 'u', 'u', s->hex);
    }
    if (lo <= 0xD7FF)
        put_hex(s, s->hex, lo, hi < 0xD7FF ? hi : 0xD7FF, to);
    if (lo <= 0xFFFF && hi >= 0xE000)
        put_hex(s, s->hex, lo > 0xE000 ? lo : 0xE000, hi < 0xFFFF ? hi : 0xFFFF,
                to);
    if (hi >= 0x10000)
        put_surrogates(s, s->hex, lo > 0x10000 ? lo : 0x10000, hi, to);
}

/* Call put for each maximal range inside lo..hi where `has` is true. Above
 * 0x7F, `has` must give the same result everywhere. */
static void put_where(struct spell *s, uint32_t from, uint32_t lo, uint32_t hi,
                      uint32_t to, bool (*has)(const struct spell *, uint32_t),
                      void (*put)(struct spell *, uint32_t, uint32_t, uint32_t,
                                  uint32_t))
{
    while (lo <= hi) {
        uint32_t end = lo;
        bool inside = has(s, lo);
        while (end < hi && end < 0x80 && has(s, end + 1) == inside)
            end++;
        if (end >= 0x80)
            end = hi;
        if (inside)
            put(s, from, lo, end, to);
        lo = end + 1;
    }
}

static bool is_plain(const struct spell *s, uint32_t cp)
{
    (void)s;
    return !must_escape(cp);
}

/* Whether an ASCII character can only be written plainly. */
static bool is_only_plain(const struct spell *s, uint32_t cp)
{
    return !may_escape(s, cp);
}

/* Put the edges for one character of lo..hi in a JSON string. */
static void put_characters(struct spell *s, uint32_t from, uint32_t lo,
                           uint32_t hi, uint32_t to)
{
    if (s->escapes == TEXT_ESCAPE_NONE) {
        put_utf8(s, from, lo, hi, to);
        return;
    }
    static const char shorts[][2] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},
                                     {'b', '\b'}, {'f', '\f'},  {'n', '\n'},
                                     {'r', '\r'}, {'t', '\t'}};
    put_where(s, from, lo, hi, to, is_plain, put_utf8);
    put_where(s, from, lo, hi, to, may_escape, put_escaped);
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        uint32_t cp = (unsigned char)shorts[i][1];
        uint32_t letter = (unsigned char)shorts[i][0];
        if (cp == '/' && s->escapes == TEXT_ESCAPE_ONE)
            continue;
        if (cp >= lo && cp <= hi)
            put_edge(s, escape_state(s, from), letter, letter, to);
    }
}

/* The characters that may be escaped where other ASCII is written plainly. */
static const struct dfa_edge others[] = {
    {0, 0x1F, 0},    {'"', '"', 0},     {'/', '/', 0},
    {'\\', '\\', 0}, {0x7F, 0xD7FF, 0}, {0xE000, DFA_LAST, 0}};

enum { N_OTHERS = sizeof others / sizeof *others };

/* If all characters that may be escaped lead from state i to one state, return
 * it, else NONE. */
static uint32_t others_target(const struct spell *s, const struct dfa *p,
                              uint32_t i)
{
    uint32_t k = p->first[i], to = NONE;
    for (size_t n = 0; n < N_OTHERS; n++) {
        for (uint32_t lo = others[n].lo; lo <= others[n].hi;) {
            while (k < p->first[i + 1] && p->edges[k].hi < lo)
                k++;
            if (s->escapes != TEXT_ESCAPE_SOME || k == p->first[i + 1] ||
                p->edges[k].lo > lo || (to != NONE && p->edges[k].to != to))
                return NONE;
            to = p->edges[k].to;
            lo = p->edges[k].hi + 1;
        }
    }
    return to;
}

/* ---- automata ------------------------------------------------------------ */

/* Sort the edges and hand them to the grammar. */
static uint32_t spell_finish(struct spell *s)
{
    uint32_t node = GRAMMAR_NOTHING;
    free(s->steps);
    free(s->rests);
    hashmap_free(&s->map);
    hashmap_free(&s->by_hash);
    if (!s->failed && dfa_sort_edges(s->edges, s->n_edges, &s->err))
        s->failed = true;
    if (s->failed) {
        if (s->err.code == QWICK_ERR_USAGE)
            grammar_fail(s->g, "%s", s->err.msg);
        else if (s->err.code)
            grammar_oom(s->g, 0);
        else
            grammar_fail(s->g, "a string needs an automaton that is too large");
    } else {
        node = grammar_node(s->g, NODE_DFA, s->edges,
                            s->n_edges * sizeof *s->edges, 0);
    }
    free(s->edges);
    return node;
}

/* Say that the text may end in a state. */
static void put_end(struct spell *s, uint32_t state)
{
    put_edge(s, state, DFA_END, 0, state);
}

/* Put the plain ASCII characters of an edge. */
static void put_plain(struct spell *s, const struct dfa_edge *e,
                      uint32_t from, uint32_t shift)
{
    if (e->lo < 0x7F)
        put_where(s, from, e->lo, e->hi < 0x7F ? e->hi : 0x7E, e->to + shift,
                  is_only_plain, put_utf8);
}

/* Return the next edge of state i, from k on, that leads to a state; the end of
 * its edges if there is none. */
static uint32_t edge_to(const struct dfa *p, uint32_t i, uint32_t k,
                        uint32_t to)
{
    while (k < p->first[i + 1] && p->edges[k].to != to)
        k++;
    return k;
}

/* Whether the same characters lead to a state from states i and k. */
static bool same_rest(const struct dfa *p, uint32_t i, uint32_t k,
                      uint32_t to)
{
    uint32_t a = edge_to(p, i, p->first[i], to);
    uint32_t b = edge_to(p, k, p->first[k], to);
    while (a < p->first[i + 1] && b < p->first[k + 1] &&
           p->edges[a].lo == p->edges[b].lo &&
           p->edges[a].hi == p->edges[b].hi) {
        a = edge_to(p, i, a + 1, to);
        b = edge_to(p, k, b + 1, to);
    }
    return a == p->first[i + 1] && b == p->first[k + 1];
}

static uint64_t hash_rest(const struct dfa *p, uint32_t i, uint32_t to)
{
    uint64_t h = to;
    for (uint32_t k = edge_to(p, i, p->first[i], to); k < p->first[i + 1];
         k = edge_to(p, i, k + 1, to))
        h = hash_mix(h ^ ((uint64_t)p->edges[k].lo << 32 | p->edges[k].hi),
                     0x9e3779b97f4a7c15u);
    return h;
}

/* Return the state for the characters that lead from state i to `to`, among
 * them all that may be escaped. */
static uint32_t rest_state(struct spell *s, const struct dfa *p, uint32_t i,
                           uint32_t to, uint32_t shift)
{
    uint64_t h = hash_rest(p, i, to);
    uint32_t at, k, state = s->n_states, n = (uint32_t)s->n_rests;
    if (!s->by_hash.slots &&
        hashmap_init(&s->by_hash, p->n_states, p->n_states, &s->err))
        s->failed = true;
    if (s->failed)
        return 0;
    at = hashmap_slot(&s->by_hash, h);
    while ((k = hashmap_next(&s->by_hash, h, &at)) != HASHMAP_NONE)
        if (s->rests[k].hash == h && same_rest(p, s->rests[k].i, i, to))
            return s->rests[k].state;
    if (ARRAY_RESERVE(s->rests, s->cap_rests, s->n_rests + 1, &s->err)) {
        s->failed = true;
        return 0;
    }
    s->n_states++;
    s->rests[s->n_rests++] = (struct rest){i, state, h};
    hashmap_put(&s->by_hash, h, n);
    s->escape = s->hex = NONE;
    for (k = 0; k < N_OTHERS; k++)
        put_characters(s, state, others[k].lo, others[k].hi, to + shift);
    for (k = p->first[i]; k < p->first[i + 1]; k++)
        if (p->edges[k].to == to)
            put_plain(s, &p->edges[k], state, shift);
    return state;
}

/* Put the characters of state i that lead to states `distance` characters
 * before the end; without a maximum all. */
static void put_state(struct spell *s, const struct dfa *p, uint32_t i,
                      uint32_t from, uint32_t shift, int64_t distance)
{
    uint32_t rest = others_target(s, p, i);
    bool all = s->length.max < 0;
    if (rest != NONE && (all || s->distance[rest] == distance))
        put_edge(s, from, DFA_SKIP, 0, rest_state(s, p, i, rest, shift));
    s->escape = s->hex = NONE;
    for (uint32_t k = p->first[i]; k < p->first[i + 1]; k++) {
        const struct dfa_edge *e = &p->edges[k];
        if (!all && s->distance[e->to] != distance)
            continue;
        if (rest == NONE)
            put_characters(s, from, e->lo, e->hi, e->to + shift);
        else if (e->to != rest)
            put_plain(s, e, from, shift);
    }
}

/* Put the characters of state i, each after a count. A character that leads to
 * a state d characters before the end may come while the text is at least d
 * shorter than its maximum. */
static void put_counted(struct spell *s, const struct dfa *p, uint32_t i,
                        uint32_t from, uint32_t shift)
{
    int64_t max = s->length.max, done = -1;
    for (bool more = p->first[i] < p->first[i + 1]; more && !s->failed;) {
        int64_t next = max < 0 ? 0 : max;
        for (uint32_t k = p->first[i]; max >= 0 && k < p->first[i + 1]; k++) {
            int64_t d = s->distance[p->edges[k].to];
            if (d > done && d < next)
                next = d;
        }
        if (next == max)
            return;
        uint32_t group = s->n_states++;
        put_edge(s, from, max < 0 ? DFA_COUNT_UP : DFA_COUNT,
                 (uint32_t)(max < 0 ? s->length.min : max - next), group);
        put_state(s, p, i, group, shift, next);
        done = next;
        more = max >= 0;
    }
}

/* Put the edges of all states. The text ends in the state `end`, before the
 * closing quote if there are quotes. */
static void put_states(struct spell *s, const struct dfa *p, bool quotes)
{
    uint32_t shift = quotes ? 1 : 0, end = s->n_states++, last;
    last = quotes ? s->n_states++ : end;
    if (quotes)
        put_edge(s, 0, '"', '"', 1);
    if (quotes && s->distance)
        put_edge(s, end, '"', '"', last);
    if (quotes || s->distance)
        put_end(s, last);
    for (uint32_t i = 0; i < p->n_states && !s->failed; i++) {
        uint32_t from = i + shift;
        if (s->distance)
            put_counted(s, p, i, from, shift);
        else
            put_state(s, p, i, from, shift, 0);
        if (!p->accept[i])
            continue;
        if (s->distance)
            put_edge(s, from, DFA_LEAVE, (uint32_t)s->length.min, end);
        else if (quotes)
            put_edge(s, from, '"', '"', last);
        else
            put_end(s, from);
    }
}

static uint32_t spell(struct grammar *g, const struct dfa *p,
                      enum text_escapes escapes, bool quotes,
                      struct text_length length)
{
    struct spell s = {.g = g, .escapes = escapes, .length = length};
    uint32_t node = GRAMMAR_NOTHING;
    if (p->n_states == 0 || (length.max >= 0 && length.min > length.max))
        return GRAMMAR_NOTHING;
    s.n_states = p->n_states + quotes;
    if (length.min > 0 || length.max >= 0) {
        s.distance = dfa_distances(p, &s.err);
        if (!s.distance)
            return grammar_oom(g, p->n_states * sizeof *s.distance);
    }
    if (!s.distance || length.max < 0 || s.distance[0] <= length.max) {
        put_states(&s, p, quotes);
        node = spell_finish(&s);
    }
    free(s.distance);
    return node;
}

uint32_t text_string(struct grammar *g, const struct dfa *p,
                     enum text_escapes escapes, struct text_length length)
{
    return spell(g, p, escapes, true, length);
}

uint32_t text_body(struct grammar *g, const struct dfa *p,
                   enum text_escapes escapes, struct text_length length)
{
    return spell(g, p, escapes, false, length);
}
