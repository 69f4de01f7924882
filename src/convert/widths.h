/* How many bits each matrix of a result gets under a budget (--bpw, --target).
 *
 * An item is what has one width: a matrix, or all experts of a layer that
 * multiply the same input. The base is the width that is nearest to the budget.
 * KL(s) is the mean divergence from the original of the model whose items have
 * the widths s, rounded as the result will be.
 *   1. KL(base) is measured, and for each set of items KL(base, but the set about
 *      a bit higher) and KL(base, but the set a bit lower). Sets are layers
 *      and roles (all q_proj, ...): what a single item saves is little beside
 *      the noise of few tokens.
 *   2. What a set saves or costs is divided among its items (widths_fit.c), and
 *      extended to other widths by
 *        share(m, b) = sum of d^T H d / sum of w^T H w,   d = w - rounded w
 *      over some rows w of the item; H: the moments of its input.
 *   3. budget.h chooses the widths with the least sum of losses.
 *   4. KL of some choices, and of the widest width that fits for all items, is
 *      measured. The choice with the least KL is the result. */
#ifndef CONVERT_WIDTHS_H
#define CONVERT_WIDTHS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "convert/budget.h"
#include "convert/calibrate.h"
#include "convert/quantize.h"

/* Widths. */
struct widths_range {
    size_t low, base, high; /* a bit below, nearest to the budget, a bit above */
};

struct widths_item {
    struct weight_ref ref;
    size_t group;            /* its layer; others have numbers of their own */
    enum dtype type;         /* of its elements in the source */
    size_t n_asked, n, cols; /* weights of the result, and of matrices */
    size_t *matrices;        /* [n_matrices] indices into the engine's; none: it
                                cannot be measured, and has the base */
    size_t n_matrices;
    double share[MAX_WIDTHS];
    double up, down; /* KL that the base costs beside range.high, and range.low
                        beside the base */
    struct budget_choice choices[MAX_WIDTHS];
};

/* A matrix of the result. */
struct widths_entry {
    char *name;
    size_t item, n; /* weights */
};

struct widths {
    const struct quantize_plan *plan; /* of the result */
    struct qwick_quantize_options o;  /* of the probe */
    struct quantize_plan probe; /* the result with the widest width everywhere */
    const struct quantize_width *widths; /* [n_widths] */
    size_t n_widths;
    struct qwick_engine *eng;   /* the source, exact */
    struct widths_item *items;  /* [n] */
    size_t n, cap;
    size_t *item_of; /* [tensors of eng] SIZE_MAX: none */
    struct widths_entry *entries;
    size_t n_entries, cap_entries;
    bool failed; /* memory is short */
    struct widths_range range;
    size_t uniform; /* the widest width that fits for all */
    unsigned char *chosen; /* [n] widths */
    double kl, uniform_kl, base_kl;
    size_t n_rows; /* of each measurement */
};

/* QWICK_ERR_USAGE for options of a budget that do not fit each other. */
int widths_check(const struct qwick_quantize_options *o, struct qwick_err *e);

/* Measure the matrices that the plan would round, and choose their widths by the
 * budget of its options. plan->o, form and s are set, and nothing is planned.
 * QWICK_ERR_MODEL for sources of integer codes, QWICK_ERR_USAGE if the budget is
 * too small. The caller frees *out, also after an error. */
int widths_choose(struct widths *out, const struct quantize_plan *plan,
                  const char *src, const struct calibration *c,
                  struct qwick_err *e);
void widths_free(struct widths *w);

/* Tell o->on_width about all choices. */
void widths_report(const struct widths *w,
                   const struct qwick_quantize_options *o);

/* The width that most weights have. */
const struct quantize_width *widths_common(const struct widths *w);

/* As quantize_plan.find_width; ctx: a struct widths whose choices are made. */
const struct quantize_width *widths_find(void *ctx,
                                         const struct quantize_asked *asked);

/* ---- widths_items.c ------------------------------------------------------ */

/* Plan the probe, and find the items. w->plan, o and eng are set. */
int widths_find_items(struct widths *w, struct qwick_err *e);

/* ---- widths_fit.c -------------------------------------------------------- */

/* Items that are measured together. */
enum widths_kind { SET_GROUP, SET_ROLE };
struct widths_set {
    enum widths_kind kind;
    size_t key;   /* group; weight_id */
    double total; /* measured, what all its items save or cost */
};
bool widths_in(const struct widths_set *set, const struct widths_item *item);

/* Divide totals among items, x [n]: x_i begins as given, and is scaled until the
 * items of each set have its total (iterative proportional fitting; Deming and
 * Stephan 1940). Totals of roles are scaled to what their items have by the
 * groups. A total is at least a twentieth of what x gives its set beside others,
 * since differences of measurements are noisy. */
void widths_fit(double *x, const struct widths_item *items, size_t n,
                struct widths_set *sets, size_t n_sets);

/* Set the losses of n choices by share, up and down. */
void widths_set_losses(struct widths_item *item, size_t n,
                       const struct widths_range *r);

/* ---- widths_measure.c ---------------------------------------------------- */

struct widths_measure;

/* n_passes: about how many measurements will be made. QWICK_ERR_USAGE if there
 * is no text. */
int widths_measure_open(struct widths_measure **out, struct widths *w,
                        const struct calibration *c, size_t n_passes,
                        struct qwick_err *e);
/* The engine has its own weights again. */
void widths_measure_close(struct widths_measure *q);

/* Set item->share. */
int widths_measure_shares(struct widths_measure *q, struct widths_item *item,
                          struct qwick_err *e);

/* The mean divergence of the model with these widths [w->n]. */
int widths_measure_kl(struct widths_measure *q, const unsigned char *widths,
                      double *kl, struct qwick_err *e);

#endif
