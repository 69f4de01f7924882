/* How many bits each module gets under a budget (--bpw, --target).
 *
 * A group is a layer, the embedding or the head. For each group, the model runs
 * over a part of the calibration texts with only the group's weights rounded to
 * the width nearest to the budget, the one below and the one above: KL_g(b) is
 * the mean divergence from the original. Within a group, KL_g is divided among
 * the modules by the share of each module's output that rounding changes. H are
 * the moments of its input, over some of its rows w:
 *   share(m, b) = sum of d^T H d / sum of w^T H w,   d = w - rounded w
 *   loss(m, b) = KL_g(b) share(m, b) / sum over the group of share(., b)
 * Above the measured widths, the highest of them stands for b in KL_g and in the
 * sum. Widths below them are not chosen, since losses grow faster than shares
 * there.
 * budget.h chooses the widths with the least sum of losses. */
#ifndef CONVERT_WIDTHS_H
#define CONVERT_WIDTHS_H

#include <stddef.h>

#include "base/err.h"
#include "convert/budget.h"
#include "convert/calibrate.h"
#include "convert/quantize.h"

enum { N_WIDTHS = 6 };
extern const int widths_bits[N_WIDTHS]; /* ascending */

struct widths_module {
    const char *name; /* of the plan's module */
    const struct st_tensor *t; /* in the engine's checkpoint */
    size_t group;
    size_t rows, cols;
    double share[N_WIDTHS];
    struct budget_choice choices[N_WIDTHS];
    size_t chosen;
};

struct widths {
    struct qwick_quantize_options o; /* of the probe */
    struct quantize_plan probe; /* the result with the widest width everywhere */
    struct widths_module *v; /* [n] */
    size_t n;
    double *kl; /* [n_groups, N_WIDTHS] of measured widths */
    size_t n_groups;
    size_t measured;  /* the width nearest to the budget */
    size_t low, high; /* the measured widths: from low to high */
    int common;      /* the bits that most weights have */
};

/* QWICK_ERR_USAGE for options of a budget that do not fit each other. */
int widths_check(const struct qwick_quantize_options *o, struct qwick_err *e);

/* Measure the modules that the plan would round, and choose their widths by the
 * budget of its options. plan->o, form and s are set, and nothing is planned.
 * QWICK_ERR_MODEL for mixtures of experts and sources that are quantized,
 * QWICK_ERR_USAGE if the budget is too small. The caller frees *out, also after
 * an error. */
int widths_choose(struct widths *out, const struct quantize_plan *plan,
                  const char *src, const struct calibration *c,
                  struct qwick_err *e);
void widths_free(struct widths *w);

/* Tell o->on_width about all choices. */
void widths_report(const struct widths *w,
                   const struct qwick_quantize_options *o);

/* The bits of a module; 0: none are chosen for it. */
int widths_find(const struct widths *w, const char *module);

/* ---- widths_measure.c ---------------------------------------------------- */

/* Set the shares and w->kl. eng: the source, exact. */
int widths_measure(struct widths *w, struct qwick_engine *eng,
                   const struct calibration *c, struct qwick_err *e);

#endif
