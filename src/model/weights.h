/* Matrices and vectors of a checkpoint by name, shape and type. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/safetensors.h"
#include "kernel/kernel.h"
#include "model/format.h"
#include "model/names.h"
#include "model/quant.h"

struct weights {
    const struct st_set *set;
    const char *path; /* for messages */
    struct naming naming;
    const struct quant *quant; /* config.json's; NULL: nothing is quantized.
                                  The caller sets it after weights_open */
    bool sizes_only; /* read no values: vectors are zeros. The caller sets it
                        after weights_open */
    struct format_ops ops[N_FORMATS]; /* of formats[i], for the kernels */
    /* summed over what was asked for */
    size_t n_params;          /* logical: rows * cols, packed or not */
    size_t n_bytes;           /* as stored, scales and biases included */
    size_t params_by_bits[9]; /* of n_params; [0]: dense */
    bool *used;               /* [st_count(set)] */
    /* All matrices and vectors that were asked for, in this order. */
    struct matrix **matrices;
    float **vectors; /* owned */
    size_t n_matrices, cap_matrices, n_vectors, cap_vectors;
    char storage[96]; /* weights_storage's */
};

/* Find out how the weights are called: the first of schemes (ends with NULL)
 * and of its prefixes whose embedding is in the set; the first of all if there
 * is none. k, exact: the operations that matrices get. Matrices point into *w,
 * which must not move. */
int weights_open(struct weights *w, const struct st_set *set, const char *path,
                 const struct names *const *schemes, const struct kernels *k,
                 bool exact, struct qwick_err *e);
void weights_close(struct weights *w);

/* Whether the checkpoint has this weight, in any format. */
bool weights_has(const struct weights *w, struct weight_ref ref);

/* The matrix `ref` with exactly this shape, in the first format that the
 * checkpoint has it in; a matrix of one row may also be a vector there. The
 * error names the tensor and both values. *out stays where it is until
 * weights_close: w->matrices points at it. */
int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct weight_ref ref, struct qwick_err *e);

/* n >= 1 matrices [rows, cols] in one tensor [n, rows, cols]: *out is one
 * matrix of n * rows rows. Only what weights_view takes from it takes part in
 * products; *out may go. */
int weights_stack(struct weights *w, struct matrix *out, size_t n, size_t rows,
                  size_t cols, struct weight_ref ref, struct qwick_err *e);

/* Rows [row, row + rows) of a stack as a matrix of its own, which stays where
 * it is as weights_matrix's does. */
int weights_view(struct weights *w, struct matrix *out,
                 const struct matrix *stack, size_t row, size_t rows,
                 struct qwick_err *e);

/* The number of dimensions of a weight, the first `max` of them in dims[max];
 * 0: the checkpoint lacks it. */
size_t weights_shape(const struct weights *w, struct weight_ref ref,
                     size_t *dims, size_t max);

/* A small array with exactly this shape, widened to f32, plus what the naming
 * scheme adds to it (names.plus). It is the weights'; the caller may change its
 * values. */
int weights_array(struct weights *w, float **out, const size_t *dims,
                  size_t rank, struct weight_ref ref, struct qwick_err *e);

/* A vector [n], such as a norm or a bias, as weights_array has it. */
int weights_vector(struct weights *w, float **out, size_t n,
                   struct weight_ref ref, struct qwick_err *e);

/* How matrices are stored, for people: m's type when none is quantized, else
 * like "4-bit (group 64)", "4/8-bit (group 64)", or "Q4_K/Q6_K". */
const char *weights_storage(struct weights *w, const struct matrix *m);

/* ---- for formats --------------------------------------------------------- */

/* The tensor `name` if it has this shape: [rows, cols], or [stack, rows, cols]
 * of a stack. NULL with *e set: missing, or of another shape. why ends the
 * error about another shape: "", or the parameters that the shape follows
 * from. */
const struct st_tensor *weights_find(struct weights *w, const char *name,
                                     const struct matrix_shape *shape,
                                     const char *why, struct qwick_err *e);

/* An error unless t holds floats. `what` they are for: "weights", "scales". */
int weights_need_float(const struct weights *w, const struct st_tensor *t,
                       const char *what, struct qwick_err *e);

/* Count a tensor that the model uses, once. n_params: of these, with so many
 * bits each (0: floats). */
void weights_use(struct weights *w, const struct st_tensor *t, size_t n_params,
                 int bits);

#endif
