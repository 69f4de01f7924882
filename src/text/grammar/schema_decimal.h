/* Decimal numbers of any size, exactly. */
#ifndef TEXT_SCHEMA_DECIMAL_H
#define TEXT_SCHEMA_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>

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

/* The remainder of the whole part, without its sign, for 1 <= m < 2^32. */
unsigned decimal_remainder(const struct decimal *a, unsigned m);

#endif
