/* Tensors of a checkpoint by name, shape and dtype. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/safetensors.h"
#include "kernel/kernel.h"
#include "model/quant.h"

/* A weight matrix [rows, cols], row-major, borrowed from the mapping: dense, or
 * quantized by groups of a row's elements (struct affine). */
struct matrix {
    enum dtype dtype; /* below DT_N_FLOAT; quantized: of scales and biases */
    size_t rows, cols;
    const unsigned char *data; /* any alignment */
    int bits;                  /* 0: dense */
    size_t group;
    const unsigned char *scales, *biases; /* [rows, cols / group] */
};

/* A row of a dense matrix. */
static inline const void *matrix_row(const struct matrix *m, size_t row)
{
    return m->data + row * m->cols * dtype_bytes(m->dtype);
}

/* A quantized matrix from a row on. */
static inline struct affine matrix_affine(const struct matrix *m, size_t row)
{
    size_t q_stride = m->cols / 8 * (size_t)m->bits;
    size_t sb_stride = m->cols / m->group * dtype_bytes(m->dtype);
    return (struct affine){.q = m->data + row * q_stride,
                           .q_stride = q_stride,
                           .scales = m->scales + row * sb_stride,
                           .biases = m->biases + row * sb_stride,
                           .sb_stride = sb_stride,
                           .sb_type = m->dtype,
                           .bits = m->bits,
                           .group = m->group};
}

struct weights {
    const struct st_set *set;
    const char *path;          /* for messages */
    const char *prefix;        /* "model." or "" */
    const struct quant *quant; /* of config.json; NULL: nothing is quantized.
                                  To be set once weights_open has returned */
    /* summed over what was asked for */
    size_t n_params;          /* logical: rows * cols, packed or not */
    size_t n_bytes;           /* as stored, scales and biases included */
    size_t params_by_bits[9]; /* of n_params; [0]: dense */
    bool *used;               /* [st_count(set)] */
    char storage[48];         /* weights_storage's */
};

/* Find out whether names carry the prefix "model.". */
int weights_open(struct weights *w, const struct st_set *set, const char *path,
                 struct qwick_err *e);
void weights_close(struct weights *w);

/* The matrix called NAME (printf format, after the prefix), which ends in
 * ".weight", with exactly this shape: of a float dtype; or, where the module's
 * ".scales" exist, packed in U32 [rows, cols * bits / 32] with scales and
 * biases of one float dtype [rows, cols / group], bits and group as config.json
 * has them. The error names the tensor and what the two sides say. */
int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct qwick_err *e, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* A vector [n], widened to f32 (norms and biases are small); malloc'ed. */
int weights_vector(struct weights *w, float **out, size_t n,
                   struct qwick_err *e, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The head, whose name never has the prefix. */
int weights_head(struct weights *w, struct matrix *out, size_t rows,
                 size_t cols, struct qwick_err *e);

/* What the matrices asked for are stored as, for people: m's dtype when none is
 * quantized, else like "4-bit (group 64)", "4/8-bit (group 64)". */
const char *weights_storage(struct weights *w, const struct matrix *m);

#endif
