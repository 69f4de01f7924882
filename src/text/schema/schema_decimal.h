/* Decimal numbers of any size, exactly. */
#ifndef TEXT_SCHEMA_DECIMAL_H
#define TEXT_SCHEMA_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

/* Digits of a number, before and after the point together. */
#define DECIMAL_MAX_DIGITS 400

/* A number. The whole part does not begin with a zero, and the fraction does
 * not end with one. So zero has no digits, and its sign is false. */
struct decimal {
    bool negative;
    const char *whole; /* [n_whole] digits before the point */
    size_t n_whole;
    const char *frac; /* [n_frac] digits after it */
    size_t n_frac;
};

/* Read a JSON number, whose digits are copied to mem. Returns 0; -1 when memory
 * runs out; 1 when it has more than DECIMAL_MAX_DIGITS digits without an
 * exponent. */
int decimal_read(struct decimal *out, const char *s, size_t n,
                 struct arena *mem);

/* Compare two numbers: < 0, 0, > 0. */
int decimal_compare(const struct decimal *a, const struct decimal *b);

bool decimal_is_zero(const struct decimal *a);
bool decimal_is_integer(const struct decimal *a);

/* The number m * 10^e, where 10 does not divide m. m = 0: none. */
struct multiple {
    uint32_t m;
    int e;
};

/* Set *out to a number above 0. Returns 0; 1 when its digits or its exponent do
 * not fit. */
int multiple_of_decimal(struct multiple *out, const struct decimal *a);

/* Set *out to the least number that is a multiple of a and b and, with integer,
 * of 1. a and b may be none. Returns 0; 1 when it does not fit. */
int multiple_common(struct multiple *out, struct multiple a, struct multiple b,
                    bool integer);

/* Return whether a number is a multiple of k, which is not none. */
bool decimal_is_multiple(const struct decimal *a, struct multiple k);

#endif
