/* Calibration: which inputs of a model's matrices matter, and by how much.
 *
 * A model runs over texts. For each set of matrices that multiply the same
 * input x (q, k and v; gate and up; those of each expert), the mean of x_i *
 * x_j over all tokens is collected. It is the Hessian of the error of the
 * outputs: if rounding changes a row of weights by d, the mean squared error of
 * its output is d^T H d. docs/calibration.md is the page for users. */
#ifndef CONVERT_CALIBRATE_H
#define CONVERT_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/par.h"
#include "kernel/kernel.h"
#include "qwick_tools.h"

/* ---- moments (moments.c) ------------------------------------------------- */

/* Second moments of the inputs of a set of matrices, in blocks of columns. H is
 * 0 outside of the blocks.
 *
 * In a block, columns are taken in this order: units of 256 columns by their
 * mean H_kk, the largest one first; in a unit those of 128, and so on down to
 * 64, 32 and 1. So the columns of each group or block of a format come one
 * after the other. Let A be H in this order, with a part (damping) of its mean
 * diagonal added to the diagonal. Then A = (U + I) D (U + I)^T with U strictly
 * upper and D diagonal. */
struct moments {
    size_t cols;
    size_t block;    /* columns of a block: a multiple of FEEDBACK_UNIT, or all;
                        the last one may have fewer. 1: only the diagonal is
                        known */
    size_t n_tokens; /* 0: nothing is known */
    float *diagonal; /* [cols] H_kk, with the same addition */
    /* Unless block is 1: */
    uint32_t *order; /* [cols] of each block: its columns, the first one to be
                        rounded first; numbers of the matrix's columns */
    float *factor;   /* blocks one after the other, see moments_factor */
    float *near;     /* [cols, FEEDBACK_UNIT] A_ij in row j of the order, for
                        the FEEDBACK_UNIT columns i among which j is */
};

/* Return the floats of the blocks of `cols` columns: of the factor. */
size_t moments_floats(size_t cols, size_t block);

/* Begin with no tokens. QWICK_ERR_MEMORY. */
int moments_init(struct moments *m, size_t cols, size_t block,
                 struct qwick_err *e);
void moments_free(struct moments *m);

/* Memory for adding rows, which all threads share. */
struct moments_room {
    const struct kernels *k;
    float *xt;   /* [widest input, MOMENTS_LD] */
    float *work; /* [threads, MOMENTS_WORK] */
};
/* Rows that are added at a time, at most. */
enum { MOMENTS_ROWS = 512, MOMENTS_LD = MOMENTS_ROWS + 16 };
int moments_room_init(struct moments_room *r, const struct kernels *k,
                      size_t cols, int n_threads, struct qwick_err *e);
void moments_room_free(struct moments_room *r);

/* Add n rows of x, n at most MOMENTS_ROWS, ld floats apart: rows[0..n), or the
 * first n if rows is NULL. All threads of a team call it. The sums do not
 * depend on their number. Ends with a barrier. */
void moments_add(struct moments *m, const struct moments_room *r,
                 const float *x, size_t ld, const uint32_t *rows, size_t n,
                 struct par_team *team, int tid, int n_threads);

/* Add the sums of another one of the same shape. */
void moments_merge(struct moments *m, const struct moments *other);

/* Make means of the sums, and factors. damping: more than 0. QWICK_ERR_MEMORY.
 */
int moments_finish(struct moments *m, const struct kernels *k, double damping,
                   struct qwick_err *e);

/* Return the factor of the block that begins at column `at`, of *w columns:
 * [w, w], where row j has U_ij in its elements i < j, D_j, and U_jk in its
 * elements k > j. */
const float *moments_factor(const struct moments *m, size_t at, size_t *w);

/* Return the sum over n rows d, f32 [n, m->cols], of d^T H d: the error of the
 * outputs of a matrix whose rows change by d. H has its addition. */
double moments_error(const struct moments *m, const float *d, size_t n);

/* ---- embeddings (calibrate_embed.c) -------------------------------------- */

struct layer;

/* Add to m, whose columns are those of the residual stream, what the matrices
 * that read the stream in a layer do with an error d of it: the sum over their
 * rows w of the square of d . (w * norm), with the weights of the norm before
 * them. So an embedding's rows have moments without a text. Rows count as
 * tokens. A norm's division by the size of its input is left out: it is a
 * factor of each row. The matrices of experts are left out, but for the shared
 * one. QWICK_ERR_MEMORY. */
int moments_of_readers(struct moments *m, const struct moments_room *room,
                       struct par_pool *pool, const struct layer *l,
                       struct qwick_err *e);

/* Add another one's sums, of the same shape, times what makes its mean H_kk
 * `part` times that of m. */
void moments_blend(struct moments *m, const struct moments *other, float part);

/* ---- calibration (calibrate.c) ------------------------------------------- */

/* A text of the calibration. */
struct calibration_text {
    int32_t *tokens;
    size_t n;
};

struct calibration;

/* QWICK_ERR_USAGE for options of calibration that do not fit each other. */
int calibration_check(const struct qwick_quantize_options *o,
                      struct qwick_err *e);

/* Run the model src over the texts of *o (calibrate or calibrate_self), and
 * collect the moments, on o->threads threads; results do not depend on their
 * number. The caller closes it. */
int calibration_open(struct calibration **out, const char *src,
                     const struct qwick_quantize_options *o,
                     struct qwick_err *e);
void calibration_close(struct calibration *c);

/* Return the moments of the inputs of a matrix: `tensor` is the name of the
 * source's tensor as floats (".../q_proj.weight"), and expert its index in a
 * stack, else 0. NULL: no product is known, or it has seen no token. */
const struct moments *calibration_find(const struct calibration *c,
                                       const char *tensor, size_t expert);

/* The texts, as the passes had them, and the engine that ran them: the source
 * in f32, on a pool of its own. */
const struct calibration_text *calibration_texts(const struct calibration *c,
                                                 size_t *n);
struct qwick_engine *calibration_engine(const struct calibration *c);

/* Read the texts of *o (calibrate_texts.c). */
int calibration_read(struct calibration_text **out, size_t *n,
                     struct qwick_engine *eng,
                     const struct qwick_quantize_options *o,
                     struct qwick_err *e);
void calibration_free_texts(struct calibration_text *texts, size_t n);

/* ---- rounding with error feedback (feedback.c) ----------------------------
 */

/* What the elements may become: base + q * step, or base + table[q] * step, for
 * codes q from low to high. */
struct grid {
    int low, high;
    const int8_t *table; /* ascending; low is 0 then; NULL: none */
};

/* Rows that are rounded together, and the most columns of a unit. */
enum { FEEDBACK_ROWS = 16, FEEDBACK_UNIT = 256 };

struct tile;

/* Memory of one thread. */
struct feedback_room {
    float *errors;      /* [FEEDBACK_ROWS, widest block] */
    float *made, *pull; /* likewise, see descend.c */
    float *work;        /* of products */
    struct tile *tile;  /* [FEEDBACK_UNIT] */
};
int feedback_room_init(struct feedback_room *r, size_t block,
                       struct qwick_err *e);
void feedback_room_free(struct feedback_room *r);

/* Choose the steps and bases of columns [col, col + unit) of a row, whose
 * weights, with what earlier columns add, are x [unit]; h [unit]: the weights
 * of the squared errors. Both are aligned. -1: there are none. */
typedef int (*feedback_fit)(void *ctx, size_t row, size_t col, const float *x,
                            const float *h, float *step, float *base);

/* Read the steps and bases, as they are now, of columns [col, col + unit) of a
 * row. */
typedef void (*feedback_read)(void *ctx, size_t row, size_t col, float *step,
                              float *base);

/* Round a step and a base, which all columns of the group at column col of a
 * row have, to what can be stored. keep: also take them. */
typedef void (*feedback_write)(void *ctx, size_t row, size_t col, float *step,
                               float *base, bool keep);

/* Rounding of some rows. */
struct feedback {
    const struct moments *m; /* with blocks */
    const struct kernels *k;
    const struct grid *g;
    const struct feedback_room *room;
    size_t unit; /* columns whose steps are chosen together: 32 to
                    FEEDBACK_UNIT, a power of 2 */
    feedback_fit fit;
    void *ctx;
    const float *w;       /* [n, cols] */
    unsigned char *codes; /* [n, cols], as int8 or uint8 */
    size_t n;             /* rows, at most FEEDBACK_ROWS */
    feedback_read read;   /* NULL: error feedback alone */
    feedback_write write; /* NULL: steps stay as fit chose them */
    size_t group;         /* for write: the columns that share a step, a divisor
                             of unit */
    bool no_bases;        /* for write: bases stay as they are */
};

/* Choose the codes of the rows:
 *   q_j = round(w_j + sum over earlier columns i of (w_i - q_i) U_ij)
 * (LDLQ of Chee et al. 2023, arXiv 2307.13304, which is GPTQ of Frantar et al.
 * 2022, arXiv 2210.17323). The steps of a unit are chosen when its first column
 * is reached. Then coordinate descent. Returns -1 if a unit has no steps. */
int feedback_codes(const struct feedback *f);

/* After error feedback, make the sum of d^T A d smaller, over the columns of
 * the block of moments at column `at`: by cyclic coordinate descent over the
 * codes (as QuantEase does, Behdin et al. 2023, arXiv 2309.01885), and by steps
 * and bases of least squares. It never becomes larger, but for rounding in f32.
 * feedback_codes calls it if f->read is there (descend.c). */
void feedback_descend(const struct feedback *f, size_t at);

#endif
