/* Plain tokens: whole characters that nearly all strings may hold
 * (token_trie.h). Which of them a state admits can often be told from the
 * characters that it admits, without a walk over tokens. */
#include "base/array.h"
#include "engine/generate/constraint_int.h"
#include "engine/generate/token_trie.h"

#include <string.h>

/* ---- states ---- */

struct state_note *walk_note(struct qwick_constraint *c, uint32_t state,
                             struct qwick_err *e)
{
    size_t old = c->cap_notes;
    if (ARRAY_RESERVE(c->notes, c->cap_notes, (size_t)state + 1, e))
        return NULL;
    if (c->cap_notes > old)
        memset(c->notes + old, 0, (c->cap_notes - old) * sizeof *c->notes);
    return &c->notes[state];
}

int walk_alike(struct qwick_constraint *c, uint32_t *state, size_t n,
               struct qwick_err *e)
{
    struct state_note *note = walk_note(c, *state, e);
    if (!note)
        return -1;
    if (!note->alike) {
        note->room = automaton_room(c->a, *state);
        note->alike = 1 + automaton_alike(c->a, *state, 0);
    }
    if (n <= note->room)
        *state = note->alike - 1;
    return walk_check(c, e);
}

/* ---- characters ---- */

/* Bytes lead to different states. */
#define NO_STATE UINT32_MAX

/* Return the state to which all bytes from lo to hi lead, or NO_STATE. */
static uint32_t after_range(struct qwick_constraint *c, uint32_t state,
                            unsigned char lo, unsigned char hi)
{
    uint32_t to = automaton_advance(c->a, state, lo);
    for (unsigned b = lo + 1u; b <= hi; b++)
        if (automaton_advance(c->a, state, (unsigned char)b) != to)
            return NO_STATE;
    return to;
}

/* The bytes of plain characters: lowest and highest first byte, and so on. */
static const unsigned char plain[][8] = {
    {' ', '!'},
    {'#', '['},
    {']', '~'},
    {0xC2, 0xDF, 0x80, 0xBF},
    {0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF},
    {0xE1, 0xE1, 0x80, 0xBF, 0x80, 0xBF},
    {0xE2, 0xE2, 0x80, 0x80, 0x80, 0xA7},
    {0xE2, 0xE2, 0x80, 0x80, 0xAA, 0xBF},
    {0xE2, 0xE2, 0x81, 0xBF, 0x80, 0xBF},
    {0xE3, 0xEC, 0x80, 0xBF, 0x80, 0xBF},
    {0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF},
    {0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF},
    {0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
    {0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
    {0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF}};

enum { N_PLAIN = sizeof plain / sizeof *plain, N_PLAIN_ASCII = 3 };

/* Whether all plain characters lead from a state to the same one. */
static bool check_uniform(struct qwick_constraint *c, uint32_t state)
{
    uint32_t to = automaton_advance(c->a, state, ' ');
    for (size_t i = 0; i < N_PLAIN; i++) {
        uint32_t s = state;
        for (size_t k = 0; k < 8 && plain[i][k] && s != NO_STATE; k += 2)
            s = after_range(c, s, plain[i][k], plain[i][k + 1]);
        if (s != to)
            return false;
    }
    return true;
}

int plain_is_uniform(struct qwick_constraint *c, uint32_t state,
                     struct qwick_err *e)
{
    uint32_t alike = state;
    struct state_note *note;
    if (walk_alike(c, &alike, 0, e) || !(note = walk_note(c, alike, e)))
        return -1;
    if (!note->uniform)
        note->uniform = check_uniform(c, state) ? 2 : 1;
    return note->uniform - 1;
}

/* ---- whole tries ---- */

int plain_count(struct qwick_constraint *c, uint32_t state, bool ends,
                size_t *n, struct qwick_err *e)
{
    uint32_t next;
    int uniform;
    *n = 0;
    for (size_t k = 0; k < SHORT_TOKEN; k++) {
        if ((uniform = plain_is_uniform(c, state, e)) < 0)
            return -1;
        if (!uniform || (ends && automaton_accepts(c->a, state)))
            return 0;
        next = automaton_advance(c->a, state, ' ');
        if (next == AUTOMATON_DEAD) {
            *n = k;
            return 0;
        }
        if (walk_alike(c, &next, SHORT_TOKEN - k - 1, e))
            return -1;
        if (next == state)
            break;
        state = next;
    }
    *n = ends && automaton_accepts(c->a, state) ? 0 : SHORT_TOKEN;
    return 0;
}

/* States that plain characters reach from one state. */
enum { MAX_REACHED = 24 };

struct reached {
    uint32_t v[MAX_REACHED];
    size_t n;
};

static int add_reached(struct reached *r, uint32_t state)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i] == state)
            return 1;
    if (r->n == MAX_REACHED)
        return 0;
    r->v[r->n++] = state;
    return 1;
}

/* Add the states to which the characters of a row of `plain` lead from a state,
 * after the bytes before row[0]. Returns 1, 0 if there is a character that is
 * not admitted or too many states, or -1 with *e set. */
static int reach_row(struct qwick_constraint *c, struct reached *r,
                     uint32_t state, const unsigned char *row, size_t n,
                     struct qwick_err *e)
{
    uint32_t last = AUTOMATON_DEAD;
    int good = 1;
    for (unsigned b = row[0]; b <= row[1] && good == 1; b++) {
        uint32_t to = automaton_advance(c->a, state, (unsigned char)b);
        if (to == AUTOMATON_DEAD)
            return walk_check(c, e);
        if (to == last)
            continue;
        last = to;
        if (n > 2 && row[2])
            good = reach_row(c, r, to, row + 2, n - 2, e);
        else
            good = walk_alike(c, &to, SHORT_TOKEN, e) ? -1 : add_reached(r, to);
    }
    return good;
}

/* Add the states to which the rows [from, to) of `plain` lead from all that are
 * reached. Returns as reach_row. */
static int reach_all(struct qwick_constraint *c, struct reached *r, size_t from,
                     size_t to, bool ends, struct qwick_err *e)
{
    int good = 1;
    for (size_t i = 0; i < r->n && good == 1; i++) {
        if (ends && automaton_accepts(c->a, r->v[i]))
            good = 0;
        automaton_fill(c->a, r->v[i]);
        for (size_t k = from; k < to && good == 1; k++)
            good = reach_row(c, r, r->v[i], plain[k], sizeof plain[k], e);
    }
    return good;
}

int plain_is_closed(struct qwick_constraint *c, uint32_t state, bool ends,
                    struct qwick_err *e)
{
    struct reached r = {.v = {state}, .n = 1};
    int good = reach_all(c, &r, 0, N_PLAIN_ASCII, ends, e);
    return good == 1 ? reach_all(c, &r, 0, N_PLAIN, ends, e) : good;
}

/* ---- parts of tries ---- */

/* List the states to which plain characters lead from a state. The list is
 * empty if there is a character that is not admitted, or too many states. */
static int list_reached(struct qwick_constraint *c, uint32_t state,
                        struct qwick_err *e)
{
    struct reached r = {.n = 0};
    int good = 1;
    automaton_fill(c->a, state);
    for (size_t k = 0; k < N_PLAIN && good == 1; k++)
        good = reach_row(c, &r, state, plain[k], sizeof plain[k], e);
    if (good < 0 ||
        ARRAY_RESERVE(c->reached, c->cap_reached, c->n_reached + r.n + 1, e))
        return -1;
    c->notes[state].reach = (uint32_t)c->n_reached + 1;
    c->reached[c->n_reached++] = good ? (uint32_t)r.n : 0;
    for (size_t i = 0; good && i < r.n; i++)
        c->reached[c->n_reached++] = r.v[i];
    return 0;
}

/* Whether a state is safe for n characters, if the states that it reaches are
 * for one less. */
static int reaches_safe(struct qwick_constraint *c, uint32_t state, size_t n,
                        struct qwick_err *e)
{
    if (!c->notes[state].reach && list_reached(c, state, e))
        return -1;
    size_t at = c->notes[state].reach - 1, n_reached = c->reached[at];
    int good = n_reached > 0;
    for (size_t i = 1; i <= n_reached && good == 1; i++)
        good = plain_is_safe(c, c->reached[at + i], n - 1, e);
    return good;
}

int plain_is_safe(struct qwick_constraint *c, uint32_t state, size_t n,
                  struct qwick_err *e)
{
    struct state_note *note = walk_note(c, state, e);
    if (!note)
        return -1;
    if (note->safe > n || automaton_accepts(c->a, state))
        return note->safe > n;
    if (note->unsafe && note->unsafe <= n)
        return 0;
    int good = n ? reaches_safe(c, state, n, e) : 1;
    if (good < 0 || !(note = walk_note(c, state, e)))
        return -1;
    if (good)
        note->safe = (unsigned char)(n + 1);
    else
        note->unsafe = (unsigned char)n;
    return good;
}
