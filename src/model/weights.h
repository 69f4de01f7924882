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

/* How passes use a tensor. */
enum weight_use {
    WEIGHT_UNUSED,
    WEIGHT_READ,
    WEIGHT_TABLE, /* weights_table */
    WEIGHT_COPIED /* never again: they read a copy in memory */
};

/* Memory with a repacked matrix. */
struct weight_copy {
    void *data;
    size_t n_bytes;
};

/* An order of columns, see matrix.order. */
struct matrix_order {
    uint32_t *columns; /* [n] owned */
    size_t n;
};

struct par_pool;

struct weights {
    const struct st_set *set;
    const char *path; /* for messages */
    struct naming naming;
    const struct quant *quant; /* config.json's; NULL: nothing is quantized.
                                  The caller sets it after weights_open */
    bool sizes_only; /* read no values: vectors are zeros. The caller sets it
                        after weights_open */
    bool repacks; /* formats that products do not take are repacked. The caller
                     sets this and the pool after weights_open */
    struct par_pool *pool;            /* borrowed; NULL: one thread */
    struct format_ops ops[N_FORMATS]; /* of formats[i], for the kernels */
    /* sums over the weights that were asked for */
    size_t n_params;          /* logical: rows * cols, packed or not */
    size_t n_bytes;           /* as stored, scales and biases included; without
                                 tables */
    size_t n_table_params, n_table_bytes; /* of tables */
    bool binds_table; /* weights_table is at work */
    size_t params_by_bits[9]; /* of n_params; [0]: dense */
    enum weight_use *used;    /* [st_count(set)] */
    struct weight_ref *refs;  /* [st_count(set)] which weight a tensor is, of
                                 those that are used */
    /* All matrices and vectors that were asked for, in this order. */
    struct matrix **matrices;
    float **vectors; /* owned; also the copies of transposed stacks */
    size_t n_matrices, cap_matrices, n_vectors, cap_vectors;
    struct weight_copy *copies; /* of repacked matrices */
    size_t n_copies, cap_copies;
    struct matrix_order *orders; /* of matrix.order */
    size_t n_orders, cap_orders;
    double repack_ms; /* time that repacking took */
    char storage[96]; /* weights_storage's */
};

/* Open the weights of a checkpoint, and choose the naming scheme and the prefix
 * with names_choose. k and exact choose the operations of matrices
 * (format_ops). Matrices point into *w, which must not move. */
int weights_open(struct weights *w, const struct st_set *set, const char *path,
                 const struct names *const *schemes, const struct kernels *k,
                 bool exact, struct qwick_err *e);
void weights_close(struct weights *w);

/* Return the bytes of all copies of repacked matrices. */
size_t weights_copied_bytes(const struct weights *w);

/* Free the copies of repacked matrices, once there are others. */
void weights_drop_copies(struct weights *w);

/* Fail if a tensor NAME.scale belongs to a weight that was asked for, but not
 * to its format: to ignore it would change the weight. */
int weights_check_factors(const struct weights *w, struct qwick_err *e);

/* Let go of the pages of a part of the checkpoint that is not read any more
 * (map_drop). */
void weights_drop_pages(const struct weights *w, const void *p, size_t n);

/* Whether the checkpoint has this weight, in any format. */
bool weights_has(const struct weights *w, struct weight_ref ref);

/* Whether the checkpoint has this weight in gpt-oss's MXFP4, whose matrices are
 * never transposed. */
bool weights_in_blocks(const struct weights *w, struct weight_ref ref);

/* Find a vector (a norm or a bias) that layers have and that the model does not
 * use in any of them, although the naming scheme knows it: the checkpoint is of
 * another family than config.json says. Writes its name in the first such layer
 * to out [NAMES_BYTES], or "" if there is none. Call it when all layers are
 * bound. */
void weights_find_ignored(const struct weights *w, size_t n_layers, char *out);

/* Bind the matrix `ref`, which must have exactly this shape, in the first
 * format in which the checkpoint has it. A matrix of one row may be a vector in
 * the checkpoint. The error names the tensor and both values. *out must stay
 * where it is until weights_close, because w->matrices points to it. */
int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct weight_ref ref, struct qwick_err *e);

/* Bind a matrix, like weights_matrix, of which passes read single rows. It
 * stays in the file: its bytes count as n_table_bytes, and nothing reads, copies
 * or prefetches it as a whole. */
int weights_table(struct weights *w, struct matrix *out, size_t rows,
                  size_t cols, struct weight_ref ref, struct qwick_err *e);

/* Bind n >= 1 matrices [rows, cols] that are one tensor [n, rows, cols]: *out
 * is one matrix of n * rows rows. Products take only the matrices that
 * weights_view makes of it. *out may be freed. */
int weights_stack(struct weights *w, struct matrix *out, size_t n, size_t rows,
                  size_t cols, struct weight_ref ref, struct qwick_err *e);

/* As weights_stack, for a tensor [n, cols, rows]: *out is a copy in memory, in
 * the order of products. The tensor has the rows of `parts` matrices by turns,
 * which *out has one matrix after the other; parts 1: the tensor's order.
 * QWICK_ERR_MODEL for quantized tensors. */
int weights_stack_transposed(struct weights *w, struct matrix *out, size_t n,
                             size_t rows, size_t cols, size_t parts,
                             struct weight_ref ref, struct qwick_err *e);

/* Make a matrix of rows [row, row + rows) of a stack. *out must stay where it
 * is, as for weights_matrix. */
int weights_view(struct weights *w, struct matrix *out,
                 const struct matrix *stack, size_t row, size_t rows,
                 struct qwick_err *e);

/* As weights_view, of rows row, row + step, row + 2 step, ... of a stack.
 * QWICK_ERR_MODEL if the format has no such matrices. */
int weights_view_steps(struct weights *w, struct matrix *out,
                       const struct matrix *stack, size_t row, size_t rows,
                       size_t step, struct qwick_err *e);

/* Bind the matrices, n of them or one, that are the tensor `name`, whichever
 * weight this is: for tools that read all tensors of a file. *found: some
 * format has it. *out may be freed. */
int weights_named(struct weights *w, struct matrix *out, const char *name,
                  const struct matrix_shape *shape, bool *found,
                  struct qwick_err *e);

/* Return the number of dimensions of a weight, and write the first `max` of
 * them to dims. 0: the checkpoint lacks the weight. */
size_t weights_shape(const struct weights *w, struct weight_ref ref,
                     size_t *dims, size_t max);

/* Read a small array of exactly this shape, widen it to f32, and add the naming
 * scheme's constant (names.plus). The weights own it; the caller may change its
 * values. */
int weights_array(struct weights *w, float **out, const size_t *dims,
                  size_t rank, struct weight_ref ref, struct qwick_err *e);

/* Read a vector [n], such as a norm or a bias, like weights_array. */
int weights_vector(struct weights *w, float **out, size_t n,
                   struct weight_ref ref, struct qwick_err *e);

/* Read the weights of a norm, and its biases if it is a LayerNorm: n or 2 * n
 * values. The biases' tensor is called `.bias` in place of `.weight`. has_bias:
 * the checkpoint must have them; otherwise they are 0. */
int weights_norm(struct weights *w, float **out, size_t n, bool layer_norm,
                 bool has_bias, struct weight_ref ref, struct qwick_err *e);

/* Make a vector of n ones. The weights own it. */
int weights_ones(struct weights *w, float **out, size_t n, struct qwick_err *e);

/* Describe how matrices are stored: m's type if none is quantized, otherwise a
 * text such as "FP8", "4-bit (group 64)", "4/8-bit (group 64)" or "Q4_K/Q6_K". */
const char *weights_storage(struct weights *w, const struct matrix *m);

/* ---- for formats --------------------------------------------------------- */

/* Return the tensor `name` if it has this shape: [rows, cols], or [stack, rows,
 * cols]. NULL with *e set: it is missing or has another shape. The error about
 * another shape ends with why: "", or the parameters from which the shape
 * follows. */
const struct st_tensor *weights_find(struct weights *w, const char *name,
                                     const struct matrix_shape *shape,
                                     const char *why, struct qwick_err *e);

/* As weights_find, for any dimensions. */
const struct st_tensor *weights_find_dims(struct weights *w, const char *name,
                                          const size_t *dims, size_t rank,
                                          const char *why, struct qwick_err *e);

/* Set an error unless t holds floats. what: the role of t for the message, such
 * as "weights" or "scales". */
int weights_need_float(const struct weights *w, const struct st_tensor *t,
                       const char *what, struct qwick_err *e);

/* Count a tensor that the model uses; each counts once. n_params: parameters in
 * it, of `bits` bits each (0: floats). Returns whether it was counted now. */
bool weights_use(struct weights *w, const struct st_tensor *t, size_t n_params,
                 int bits);

/* Count a tensor of which passes read a copy, in place of the tensor. */
void weights_use_copy(struct weights *w, const struct st_tensor *t);

/* Make n_bytes of memory for a repacked matrix, aligned to cache lines and not
 * set. The weights own it. NULL with *e set on failure. */
unsigned char *weights_copy(struct weights *w, size_t n_bytes,
                            struct qwick_err *e);

/* Return an array that equals order [n] and stays until weights_close, one for
 * all that are equal. The weights own order from now on. NULL with *e set on
 * failure. */
const uint32_t *weights_order(struct weights *w, uint32_t *order, size_t n,
                              struct qwick_err *e);

/* Make memory of n_bytes zeros, which the weights own. NULL with *e set on
 * failure. */
void *weights_block(struct weights *w, size_t n_bytes, struct qwick_err *e);

/* Copy the values of a tensor of floats as f32, zeros if sizes_only. The weights
 * own the copy. NULL with *e set on failure. */
float *weights_floats(struct weights *w, const struct st_tensor *t,
                      struct qwick_err *e);

/* Do the work of format.bind for a matrix that is one tensor of this type. */
int weights_bind_type(struct weights *w, struct matrix *out, const char *name,
                      const struct matrix_shape *shape, enum dtype type,
                      int bits, bool *found, struct qwick_err *e);

#endif
