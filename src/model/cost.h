/* Formulas from which families compute the cost of a layer. */
#ifndef MODEL_COST_H
#define MODEL_COST_H

#include <stddef.h>

/* Return the number of (query, key) pairs of n tokens after pos others, if a
 * token sees the last `window` positions, itself included. */
double cost_pairs(size_t window, size_t pos, size_t n);

/* The same for the first n_kept of the n tokens of an encoder's text, each of
 * which also sees window - 1 positions behind it. */
double cost_pairs_both(size_t window, size_t n, size_t n_kept);

#endif
