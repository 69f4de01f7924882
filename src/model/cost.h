/* Formulas that families add up to the costs of a layer. */
#ifndef MODEL_COST_H
#define MODEL_COST_H

#include <stddef.h>

/* Pairs of query and key of n tokens after pos others, where a token sees the
 * last `window` positions, itself included. */
double cost_pairs(size_t window, size_t pos, size_t n);

/* Positions whose keys and values these tokens read, each once. window >= 1. */
double cost_positions(size_t window, size_t pos, size_t n);

#endif
