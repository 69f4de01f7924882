/* Numbers in JSON as automata over their digits. */
#ifndef TEXT_SCHEMA_NUMBER_H
#define TEXT_SCHEMA_NUMBER_H

#include "text/grammar/dfa.h"
#include "text/schema/schema_decimal.h"

/* Digits that a number may have before and after the point. Bounds with more
 * digits add to these. A number without bounds may also have an exponent; the
 * number stays below the largest double. */
#define NUMBER_WHOLE_DIGITS 20
#define NUMBER_FRAC_DIGITS  20

/* States of one number's automaton. */
#define NUMBER_MAX_STATES DFA_MAX_STATES

/* A limit. NUMBER_OUTSIDE excludes the numbers between its value and the value
 * of the next limit, which has no other meaning. */
struct number_limit {
    enum {
        NUMBER_AT_LEAST,
        NUMBER_ABOVE,
        NUMBER_AT_MOST,
        NUMBER_BELOW,
        NUMBER_NOT,
        NUMBER_OUTSIDE
    } kind;
    struct decimal value;
};

#define NUMBER_MAX_LIMITS 64

struct number_form {
    bool integer;             /* no fraction, no exponent */
    struct multiple multiple; /* of integers: of an integer */
    const struct number_limit *limits;
    size_t n_limits; /* at most NUMBER_MAX_LIMITS */
};

/* Return whether a number is inside the limits (and a multiple, where one is
 * asked for). */
bool number_fits(const struct number_form *f, const struct decimal *v);

/* Return how many characters a text of such a number has at most; -1: the
 * automaton counts them. */
int64_t number_length(const struct number_form *f);

/* Return the automaton of the texts of such numbers, or NULL with the error
 * set. -0 is a number like 0, but it is not among the texts of integers, nor
 * where no number below 0 fits. */
const struct dfa *number_points(const struct number_form *f,
                                   const struct dfa_place *at);

#endif
