/* Formats of weight matrices: how rows are stored, and the functions that
 * compute with them.
 *
 * A format is one file, format_<name>.c, and one row of the table in format.c.
 * The rest of the model asks the matrix's operations and never which format it
 * has. */
#ifndef MODEL_FORMAT_H
#define MODEL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "kernel/kernel.h"

struct format;
struct lora;
struct st_tensor;
struct transposed;
struct weights;

/* The passes that multiply a matrix by pairs of int8 activations: the first is
 * the rounded value, and the second one the rounded rest. In steps, each token
 * is of another sequence (pass.single). */
enum pairs8 { PAIRS8_NEVER, PAIRS8_PROMPTS, PAIRS8_PROMPTS_AND_STEPS };

/* Arrays that a format may split a matrix into. */
enum { FORMAT_ARRAYS = 3 };

/* A weight matrix [rows, cols], row-major, borrowed from the mapping. */
struct matrix {
    const struct format *format;
    const struct format_ops *ops; /* for the model's kernels */
    size_t rows, cols;
    size_t step; /* rows of the arrays from one row to the next: 1, or more if
                    the rows of several matrices come by turns */
    const unsigned char *data[FORMAT_ARRAYS]; /* any alignment; NULL beyond
                                                 format->n_arrays */
    enum dtype dtype; /* of floats: their type; affine: of scales; of blocks and
                         MXFP4: theirs */
    enum dtype bias_dtype; /* affine: of biases, such as F32 for computed ones;
                              U8: zero points. See struct affine. */
    enum affine_codes codes; /* affine: see struct affine, also for by */
    float by;
    int zero;         /* affine: not 0: the zero point of all groups, and no
                         biases */
    int bits;         /* of a quantized element; 0: floats */
    size_t group;     /* elements that share a scale; 0: floats */
    struct fp8 fp8;   /* of FP8 weights: their scales, without elements */
    size_t each;      /* of FP8 weights and `factors`: rows of one matrix of a
                         stack */
    const float *factors; /* of blocks: multiply the elements, one for each
                             matrix of a stack; NULL: there are none */
    const struct transposed *stored; /* of AWQ and GPTQ (transposed.h) */
    size_t first; /* of these: the row of the tensors that is row 0 */
    const uint32_t *order; /* column i holds the weights of element order[i] of
                              an activation: activations must be put into this
                              order first. Matrices with equal orders share the
                              array. NULL: the same order */
    bool paired;       /* products are faster if groups of int8 activations are
                         paired (struct q8) */
    bool f32_only;    /* multiplies in f32 in every mode: a router, or the gate
                         of a shared expert */
    enum pairs8 pairs8; /* of passes with pass.pairs8 */
    bool pairs16; /* activations in bf16 are pairs (enum pairs16) */
    const struct lora *lora; /* [loras.n of the model] adapters (lora.h); NULL:
                                none */
};

/* The shape of a weight in a file. */
struct matrix_shape {
    size_t stack; /* matrices in one tensor [stack, rows, cols]; 0: one matrix,
                     [rows, cols] */
    size_t rows, cols; /* of one matrix */
};

/* Rows of all matrices of a shape. Cannot wrap once a tensor has the shape. */
static inline size_t shape_rows(const struct matrix_shape *s)
{
    return (s->stack ? s->stack : 1) * s->rows;
}

/* The type of the activations that enter a product. */
enum act_type { ACT_F32, ACT_BF16, ACT_I8 };

/* Rows [row, row + n_rows) of a matrix times n activations:
 *   y[t * ldy + r] = w[row + r] . x[t]
 * and, with add, plus the value that y holds. */
struct row_product {
    const struct matrix *w;
    size_t row, n_rows;
    size_t n; /* activations: tokens */
    float *y;
    size_t ldy;
    bool add;    /* mul_f32 and gemm_f32 ignore it */
    float *work; /* [KERNEL_WORK + KERNEL_BLOCKS_WORK], 64-byte aligned,
                    overwritten */
};

/* The operations of a format with one table of kernels. All are serial and
 * allocate nothing. A NULL means that this level, or exact, has none. */
struct format_ops {
    /* Widen rows to f32: out [n_rows, cols]. Never NULL. */
    void (*to_f32)(const struct kernels *k, float *out, const struct matrix *w,
                   size_t row, size_t n_rows);
    /* x f32 [n, cols], rows ldx apart; one order of sums. Never NULL. */
    void (*mul_f32)(const struct kernels *k, const struct row_product *p,
                    const float *x, size_t ldx);
    /* x as for mul_f32; any order of sums. NULL: widen rows first. */
    void (*gemm_f32)(const struct kernels *k, const struct row_product *p,
                     const float *x, size_t ldx);
    /* x bf16 [n, cols], rows ldx apart. */
    void (*mul_bf16)(const struct kernels *k, const struct row_product *p,
                     const uint16_t *x, size_t ldx);
    size_t bf16_min_tokens; /* mul_bf16 pays from so many activations on */
    /* x int8 by groups of w->group elements. */
    void (*mul_i8)(const struct kernels *k, const struct row_product *p,
                   const struct q8 *x);
};

struct format {
    const char *name;
    const char *shown; /* the name in texts about a model; NULL: bits and
                          group, or the type, tell more */
    /* Weights are stored as floats, with scales or without. For these,
       model_products chooses the kernel of a pass; for other formats the number
       of tokens alone decides. */
    bool is_float;
    bool steps; /* the operations take matrices with any step */
    size_t n_arrays;
    /* Bytes of a row in array i < n_arrays. Rows of the array follow each
       other. */
    size_t (*row_bytes)(const struct matrix *w, size_t i);
    /* Let *out, a copy of a matrix whose data begins at row `row` now, begin
       there in all other respects. NULL: there are none. */
    void (*view)(struct matrix *out, const struct matrix *stack, size_t row);
    /* Fill *ops for a table of kernels. exact: only what has one order of sums
       and f32 activations. *ops is all NULL before. */
    void (*fill)(struct format_ops *ops, const struct kernels *k, bool exact);
    /* Bind the matrix whose elements are tensor `name`, with exactly this
       shape; of a stack, all rows as one matrix. *found: the checkpoint has it
       in this format; without it nothing else happens and the next format is
       asked. Fills all fields of *out except format and ops. Returns 0, or -1
       with *e set. */
    int (*bind)(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e);
    /* Replace *m by a copy in memory that products take, in the format affine.
       The weights own it. NULL: products take the matrix as it is stored.
       Otherwise the operations are no more than to_f32. */
    int (*repack)(struct weights *w, struct matrix *m, struct qwick_err *e);
    /* Row `row` as MLX's affine format has it, code * scale + bias. codes:
       [cols], a byte each, or NULL. scales, biases: [cols / w->group]. Returns
       false if the format cannot hold the row: groups have no order. NULL: the
       elements are no such codes. */
    bool (*codes)(const struct kernels *k, const struct matrix *w, size_t row,
                  unsigned char *codes, float *scales, float *biases);
};

/* The formats, in the order in which they are asked to bind a tensor. */
extern const struct format *const formats[];
enum { N_FORMATS = 33 };
extern const struct format format_affine, format_mxfp4_split, format_packed,
    format_nvfp4_split, format_mxfp8, format_transposed;
extern const struct format format_f32, format_f16, format_bf16, format_fp8;
extern const struct format format_q4_0, format_q4_1, format_q5_0, format_q5_1,
    format_q8_0, format_iq4_nl, format_q2_k, format_q3_k, format_q4_k,
    format_q5_k, format_q6_k, format_iq4_xs, format_mxfp4, format_nvfp4,
    format_iq3_xxs, format_iq3_s, format_iq2_xxs, format_iq2_xs, format_iq2_s,
    format_iq1_s, format_iq1_m, format_tq1_0, format_tq2_0;

/* Row `row` of array i. */
static inline const unsigned char *matrix_row(const struct matrix *w, size_t i,
                                              size_t row)
{
    return w->data[i] + row * w->step * w->format->row_bytes(w, i);
}

/* Let *out be the rows of a matrix from row `row` on: n of them, as far apart
 * as in the matrix. Of a stack they belong to one of its matrices. */
void matrix_view(struct matrix *out, const struct matrix *stack, size_t row,
                 size_t n);

/* Bytes of all arrays. The sum cannot wrap: the file holds them. */
size_t matrix_bytes(const struct matrix *w);

/* Compare n rows of two matrices of one shape, at equal distances from the
 * first row to the last; all rows if they have no more. *differ: one of these
 * has another value. */
int matrix_compare(const struct kernels *k, const struct matrix *a,
                   const struct matrix *b, size_t n, bool *differ,
                   struct qwick_err *e);

/* A quantized matrix from a row on, as the affine kernels take it; of the
 * formats whose products are affine. */
struct affine matrix_affine(const struct matrix *w, size_t row);

#endif
