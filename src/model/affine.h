/* Rounding weights to few bits by groups of consecutive elements of a row. The
 * result fills a struct affine (kernel/kernel.h). */
#ifndef MODEL_AFFINE_H
#define MODEL_AFFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "kernel/kernel.h"

/* The rule that chooses a group's scale and bias.
 *
 * AFFINE_MLX: as mlx.core.quantize does on a CPU (mlx/backend/cpu/
 * quantized.cpp). In float32, n = 2^bits - 1, min and max over the group:
 *   s = max((max - min) / n, 1e-7), negated unless |min| > |max|
 *   edge = |min| > |max| ? min : max;  q0 = round(edge / s)
 *   q0 != 0: s = edge / q0, b = edge;  q0 == 0: b = 0
 *   q = min(max(round((w - b) / s), 0), n)
 * round is to nearest even. The codes follow from the unrounded s. s is stored
 * rounded to the type; b has that type already. The error of an element is at
 * most |s| / 2 inside the range, and |s| where the code is n, because moving s
 * so that the edge is exact can leave up to half a step beyond it. To this, add
 * n times the rounding of s.
 *
 * AFFINE_LSQ: a search for the least sum of squares of w - (q * s + b), with s
 * and b as stored. It starts once from MLX's choice and once from the best of
 * some ranges that are cut by up to one and a half steps. From there it
 * alternates between the best s and b for the codes and the best codes for s
 * and b. The error is never larger than that of AFFINE_MLX. */
enum affine_search { AFFINE_MLX, AFFINE_LSQ };

struct affine_format {
    int bits;        /* 2, 3, 4, 5, 6 or 8 */
    size_t group;    /* 32, 64 or 128 */
    enum dtype type; /* F32, F16 or BF16: of weights, scales and biases */
    enum affine_search search;
    const struct kernels *k; /* any level: conversions are the same on all */
};

/* Whether the format exists. */
bool affine_valid(int bits, size_t group);

/* Pack n codes, a byte each, n a multiple of 8: q gets n * bits / 8 bytes. */
void affine_pack(unsigned char *q, const uint8_t *codes, size_t n, int bits);

/* Quantize n elements at w, whole groups, any alignment: q gets n * bits / 8
 * bytes, scales and biases n / group values each. As rows are whole groups, a
 * matrix is one run of groups. Serial, allocates nothing. Returns 0, or -1 when
 * a group has no scale: *bad is the index of its first element, and the group
 * holds NaN, infinities or values too large for a range in float32. */
int affine_quantize(const struct affine_format *f, unsigned char *q,
                    unsigned char *scales, unsigned char *biases,
                    const unsigned char *w, size_t n, size_t *bad);

/* Choose the scale and the bias of each group of x f32 [n], whole groups, as
 * affine_quantize does, and round them as they will be stored. With AFFINE_LSQ,
 * the sum counts the square of element i h[i] > 0 times. x and h are 16-byte
 * aligned. Returns 0, or -1 with *bad as there. */
int affine_scales(const struct affine_format *f, float *scales, float *biases,
                  const float *x, const float *h, size_t n, size_t *bad);

#endif
