/* Spending bytes where they save most: one choice for each item, of the least
 * loss within a limit. */
#ifndef CONVERT_BUDGET_H
#define CONVERT_BUDGET_H

#include <stddef.h>

#include "base/err.h"

/* What an item costs if this choice is made. */
struct budget_choice {
    size_t bytes;
    double loss; /* >= 0 */
};

/* Choose one of choices [n, n_choices] for each of n items, so that all their
 * bytes are at most `limit`; chosen [n] gets its index. Item i has row i.
 *
 * The result is the greedy one on the convex hulls (Dantzig): it begins with the
 * cheapest choices, and takes the steps along the hulls in the order of loss
 * saved per byte, as long as they fit; afterwards whatever single change still
 * fits and saves most. Its loss is at most that of the best selection plus the
 * loss of one step. QWICK_ERR_USAGE if even the cheapest choices do not fit. */
int budget_choose(size_t *chosen, const struct budget_choice *choices, size_t n,
                  size_t n_choices, size_t limit, struct qwick_err *e);

#endif
