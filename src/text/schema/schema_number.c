#include "text/schema/schema_number.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/hashmap.h"

/* The part of a number's text that was read last. */
enum phase {
    AT_START,
    AT_SIGN,  /* after the minus */
    AT_ZERO,  /* after a zero that is the whole part */
    AT_WHOLE, /* in a whole part that begins with 1 to 9 */
    AT_POINT, /* after the point */
    AT_FRAC,
    AT_E,       /* after the e */
    AT_E_SIGN,  /* after its sign */
    AT_E_SMALL, /* after a first digit 0 or 3 to 9 */
    AT_E_ONE,   /* after 1 */
    AT_E_TWO,   /* after 2 */
    AT_E_LAST,  /* one more digit may follow */
    AT_E_END
};

/* What is known about the digits so far. order[i] compares them with the
 * digits of limit i, both without signs: < 0, 0, > 0. */
struct progress {
    uint8_t phase, negative;
    uint8_t zeros, unused; /* see step_multiple */
    uint32_t remainder;
    uint16_t count; /* digits of the whole part or of the fraction */
    int8_t order[NUMBER_MAX_LIMITS];
};

struct builder {
    const struct number_form *f;
    const struct dfa_place *at;
    struct dfa_draft d;
    struct progress *states;
    size_t cap_states;
    size_t key_bytes; /* of struct progress that are in use */
    struct hashmap map;
    size_t max_whole, max_frac;
    size_t max_count; /* of digits of the whole part that are counted */
    bool signs; /* a number may begin with a minus */
};

/* ---- limits -------------------------------------------------------------- */

/* Compare a number with a limit, given its sign, whether it is zero, and the
 * comparison without the signs. */
static int signed_order(bool negative, const struct decimal *limit, int order)
{
    if (decimal_is_zero(limit))
        return negative ? -order : order;
    if (negative != limit->negative)
        return negative ? -1 : 1;
    return negative ? -order : order;
}

static bool inside(int kind, int order)
{
    switch (kind) {
    case NUMBER_AT_LEAST:
        return order >= 0;
    case NUMBER_ABOVE:
        return order > 0;
    case NUMBER_AT_MOST:
    case NUMBER_OUTSIDE:
        return order <= 0;
    case NUMBER_BELOW:
        return order < 0;
    default:
        return order != 0;
    }
}

/* Return whether a number is inside all limits, given how it compares with
 * each. */
static bool all_inside(const struct number_form *f, const int8_t *order)
{
    for (size_t i = 0; i < f->n_limits; i++) {
        int kind = f->limits[i].kind;
        bool ok = inside(kind, order[i]);
        if (kind == NUMBER_OUTSIDE)
            ok |= order[++i] >= 0;
        if (!ok)
            return false;
    }
    return true;
}

bool number_fits(const struct number_form *f, const struct decimal *v)
{
    int8_t order[NUMBER_MAX_LIMITS];
    for (size_t i = 0; i < f->n_limits; i++) {
        int c = decimal_compare(v, &f->limits[i].value);
        order[i] = (int8_t)(c < 0 ? -1 : c > 0);
    }
    if (!all_inside(f, order))
        return false;
    if (f->multiple.m && !decimal_is_multiple(v, f->multiple))
        return false;
    return !f->integer || decimal_is_integer(v);
}

/* ---- digits -------------------------------------------------------------- */

/* Return the comparison after digit number `count` of the whole part. While the
 * limit has more digits than were read, compare its first digits. */
static int after_whole(const struct decimal *limit, int order, size_t count,
                       int digit)
{
    if (count > limit->n_whole)
        return 1;
    if (order != 0)
        return order;
    int other = limit->whole[count - 1] - '0';
    return digit < other ? -1 : digit > other;
}

/* Return the comparison of a complete whole part of `count` digits. */
static int whole_done(const struct decimal *limit, int order, size_t count)
{
    return count < limit->n_whole ? -1 : order;
}

static int after_frac(const struct decimal *limit, int order, size_t count,
                      int digit)
{
    if (order != 0)
        return order;
    int other = count <= limit->n_frac ? limit->frac[count - 1] - '0' : 0;
    return digit < other ? -1 : digit > other;
}

/* Return the comparison of a complete number. */
static int all_done(const struct decimal *limit, const struct progress *p,
                    int order)
{
    if (p->phase == AT_ZERO || p->phase == AT_WHOLE)
        order = whole_done(limit, order, p->count);
    size_t n_frac = p->phase == AT_FRAC ? p->count : 0;
    return order == 0 && n_frac < limit->n_frac ? -1 : order;
}

/* Read a digit of a number that is to be a multiple of m * 10^e. The number so
 * far is a prefix and then `zeros` zeros, at most e. remainder: of the prefix
 * by m. So the last e digits need no states for their value. */
static void step_multiple(struct multiple k, struct progress *p, int digit)
{
    bool end = k.e > 0 && digit == 0;
    if (end && p->zeros < k.e) {
        p->zeros++;
        return;
    }
    uint64_t r = p->remainder;
    for (; !end && p->zeros > 0; p->zeros--)
        r = r * 10 % k.m;
    p->remainder = (uint32_t)((r * 10 + (unsigned)digit) % k.m);
}

/* Whether a complete number is a multiple. */
static bool is_multiple(struct multiple k, const struct progress *p)
{
    uint64_t r = p->remainder;
    if (p->phase == AT_ZERO || k.m == 0)
        return true;
    for (int i = p->phase == AT_FRAC ? p->count : 0; i < -k.e; i++)
        r = r * 10 % k.m;
    return r == 0 && (k.e <= 0 || p->zeros == k.e);
}

static bool accepts(const struct builder *b, const struct progress *p)
{
    if (p->phase >= AT_E_SMALL)
        return true;
    if (p->phase != AT_ZERO && p->phase != AT_WHOLE && p->phase != AT_FRAC)
        return false;
    int8_t order[NUMBER_MAX_LIMITS];
    for (size_t i = 0; i < b->f->n_limits; i++) {
        const struct decimal *limit = &b->f->limits[i].value;
        int size = all_done(limit, p, p->order[i]);
        order[i] = (int8_t)signed_order(p->negative, limit, size);
    }
    if (!all_inside(b->f, order))
        return false;
    return is_multiple(b->f->multiple, p);
}

/* Read one digit of an exponent: 0 to 99, or up to 279. With 20 digits before
 * the point, the number stays below 10^300. */
static bool step_exponent(struct progress *p, int digit)
{
    switch (p->phase) {
    case AT_E:
    case AT_E_SIGN:
        p->phase = digit == 1 ? AT_E_ONE : digit == 2 ? AT_E_TWO : AT_E_SMALL;
        return true;
    case AT_E_ONE:
        p->phase = AT_E_LAST;
        return true;
    case AT_E_TWO:
        p->phase = digit <= 7 ? AT_E_LAST : AT_E_END;
        return true;
    case AT_E_SMALL:
    case AT_E_LAST:
        p->phase = AT_E_END;
        return true;
    default:
        return false;
    }
}

/* Whether a whole part of `count` digits is already beyond limit i. */
static bool is_beyond(const struct number_form *f, size_t i, bool negative,
                      size_t count)
{
    const struct number_limit *l = &f->limits[i];
    bool from_below = l->kind == NUMBER_AT_LEAST || l->kind == NUMBER_ABOVE;
    bool from_above = l->kind == NUMBER_AT_MOST || l->kind == NUMBER_BELOW;
    if (i > 0 && l[-1].kind == NUMBER_OUTSIDE)
        return false;
    return count > l->value.n_whole && (negative ? from_below : from_above);
}

static bool step_digit(const struct builder *b, struct progress *p, int digit)
{
    size_t n = b->f->n_limits;
    if (p->phase >= AT_E)
        return step_exponent(p, digit);
    if (p->phase == AT_ZERO)
        return false;
    if (p->phase <= AT_WHOLE) {
        bool zero = p->phase != AT_WHOLE && digit == 0;
        if (zero ? p->negative && b->f->integer : p->count >= b->max_whole)
            return false;
        p->phase = zero ? AT_ZERO : AT_WHOLE;
        if (n == 0)
            p->negative = 0; /* nothing asks for it from here on */
        p->count = (uint16_t)(p->count + (!zero && p->count < b->max_count));
        for (size_t i = 0; i < n && !zero; i++) {
            if (is_beyond(b->f, i, p->negative, p->count))
                return false;
            p->order[i] = (int8_t)after_whole(&b->f->limits[i].value,
                                              p->order[i], p->count, digit);
        }
        if (b->f->multiple.m)
            step_multiple(b->f->multiple, p, digit);
        return true;
    }
    if (p->count >= b->max_frac)
        return false;
    p->phase = AT_FRAC;
    p->count++;
    if (b->f->multiple.m)
        step_multiple(b->f->multiple, p, digit);
    for (size_t i = 0; i < n; i++)
        p->order[i] = (int8_t)after_frac(&b->f->limits[i].value, p->order[i],
                                         p->count, digit);
    return true;
}

/* Read one byte. Returns false if it cannot follow. */
static bool number_step(const struct builder *b, struct progress *p, int c)
{
    if (c >= '0' && c <= '9')
        return step_digit(b, p, c - '0');
    if (c == '-' && p->phase == AT_START && b->signs) {
        p->phase = AT_SIGN;
        p->negative = 1;
        return true;
    }
    if ((c == '-' || c == '+') && p->phase == AT_E) {
        p->phase = AT_E_SIGN;
        return true;
    }
    if (b->f->integer)
        return false;
    if (c == '.' && (p->phase == AT_ZERO || p->phase == AT_WHOLE)) {
        for (size_t i = 0; i < b->f->n_limits; i++)
            p->order[i] = (int8_t)whole_done(&b->f->limits[i].value,
                                             p->order[i], p->count);
        p->phase = AT_POINT;
        p->count = 0;
        return true;
    }
    if ((c == 'e' || c == 'E') && b->f->n_limits == 0 && !b->f->multiple.m &&
        (p->phase == AT_ZERO || p->phase == AT_WHOLE || p->phase == AT_FRAC)) {
        *p = (struct progress){.phase = AT_E};
        return true;
    }
    return false;
}

/* ---- states -------------------------------------------------------------- */

static uint32_t state_of(struct builder *b, const struct progress *p)
{
    uint64_t h = hash_bytes(0, p, b->key_bytes);
    uint32_t at = hashmap_slot(&b->map, h), i;
    while ((i = hashmap_next(&b->map, h, &at)) != HASHMAP_NONE)
        if (memcmp(&b->states[i], p, b->key_bytes) == 0)
            return i;
    i = dfa_draft_state(&b->d, accepts(b, p), b->at);
    if (i == UINT32_MAX ||
        ARRAY_RESERVE(b->states, b->cap_states, i + 1u, b->at->e))
        return UINT32_MAX;
    b->states[i] = *p;
    hashmap_put(&b->map, h, i);
    return i;
}

static int build(struct builder *b)
{
    static const char bytes[] = "+-.0123456789Ee";
    struct progress start = {.phase = AT_START};
    if (hashmap_init(&b->map, NUMBER_MAX_STATES + 1, NUMBER_MAX_STATES,
                     b->at->e) ||
        state_of(b, &start) == UINT32_MAX)
        return -1;
    for (uint32_t i = 0; i < b->d.n_states; i++) {
        if (dfa_steps(b->at, sizeof bytes))
            return -1;
        for (const char *c = bytes; *c; c++) {
            struct progress p = b->states[i];
            if (!number_step(b, &p, *c))
                continue;
            uint32_t to = state_of(b, &p), lo = (unsigned char)*c;
            if (to == UINT32_MAX ||
                dfa_draft_edge(&b->d, i, lo, lo, to, b->at))
                return -1;
        }
    }
    return 0;
}

/* The digits before the point of the longest limit. */
static size_t longest_limit(const struct number_form *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_limits; i++)
        if (f->limits[i].value.n_whole > n)
            n = f->limits[i].value.n_whole;
    return n;
}

int64_t number_length(const struct number_form *f)
{
    int64_t n = (int64_t)longest_limit(f) + 1; /* and a sign */
    if (!f->multiple.m)
        return -1;
    if (f->multiple.e < 0)
        n += 1 - f->multiple.e;
    return n > NUMBER_WHOLE_DIGITS ? n : NUMBER_WHOLE_DIGITS;
}

/* Set how many digits a number may have, so that limits can be met. Where the
 * text's length is limited, the automaton counts only digits that limits
 * have: for each remainder, it would need a state for each number of digits. */
static void set_digits(struct builder *b)
{
    const struct number_form *f = b->f;
    size_t longest = longest_limit(f);
    bool counts = number_length(f) < 0;
    b->max_whole =
        longest > NUMBER_WHOLE_DIGITS ? longest : NUMBER_WHOLE_DIGITS;
    b->max_count = counts ? b->max_whole : longest + 1;
    if (!counts)
        b->max_whole = SIZE_MAX;
    b->max_frac = NUMBER_FRAC_DIGITS;
    for (size_t i = 0; i < f->n_limits; i++)
        if (f->limits[i].value.n_frac > b->max_frac)
            b->max_frac = f->limits[i].value.n_frac;
    if (f->multiple.m)
        b->max_frac = f->multiple.e < 0 ? (size_t)-f->multiple.e : 0;
}

/* Return whether no limit from below is 0 or more. Where one is, no number with
 * a minus fits except -0, which is not written there. */
static bool admits_negative(const struct number_form *f)
{
    for (size_t i = 0; i < f->n_limits; i++) {
        const struct number_limit *l = &f->limits[i];
        if (l->kind == NUMBER_OUTSIDE)
            i++;
        else if ((l->kind == NUMBER_AT_LEAST || l->kind == NUMBER_ABOVE) &&
                 !l->value.negative)
            return false;
    }
    return true;
}

const struct dfa *number_points(const struct number_form *f,
                                   const struct dfa_place *at)
{
    struct builder b = {.f = f, .at = at, .signs = admits_negative(f)};
    const struct dfa *p = NULL;
    b.key_bytes = offsetof(struct progress, order) + f->n_limits;
    set_digits(&b);
    if (build(&b) == 0)
        p = dfa_finish(&b.d, at);
    dfa_draft_free(&b.d);
    free(b.states);
    hashmap_free(&b.map);
    return p;
}
