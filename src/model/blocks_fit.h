/* Rounding weights to GGUF's blocks (kernel/blocks.h). */
#ifndef MODEL_BLOCKS_FIT_H
#define MODEL_BLOCKS_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "kernel/kernel.h"

/* Whether blocks_fit writes blocks of this type. */
bool blocks_fit_has(enum dtype type);

/* Round x[0..n) to blocks of a type: Q8_0, Q4_0, Q5_0, Q5_1, IQ4_NL, or one of
 * Q2_K to Q6_K. n is a multiple of the type's block. out gets n / block * bytes
 * of a block, and needs no alignment; x is 16-byte aligned.
 *
 * Q8_0 gets the same bytes as from ggml's reference: in float32, d = max |x| /
 * 127, and a code is x * (1 / d) rounded to nearest, halves away from zero. d
 * is rounded to f16 after that.
 *
 * For the other types a search chooses scales and mins with the least sum of
 * squared errors, computed with the rounded scales and mins. It tries ranges
 * that are cut by up to some steps. From the best one on, it alternates two
 * steps while the error falls: scales by least squares for the codes, then
 * codes for the rounded scales. In superblocks it then rounds the scales and
 * mins of the groups to integers, tries their neighbours, and fits the
 * superblock's d and dmin by least squares.
 *
 * k: any level, since conversions are the same on all of them. Serial;
 * allocates nothing. Returns 0, or -1 when a block has no scale: *bad is the
 * index of its first element, and the block holds NaN, infinities, or values
 * too large for an f16 scale. */
int blocks_fit(enum dtype type, const struct kernels *k, unsigned char *out,
               const float *x, size_t n, size_t *bad);

/* ---- the same in steps ----------------------------------------------------
 */

enum { BLOCKS_GROUPS = 16 };

/* The numbers of a block as stored: a code q of group g has the value
 * q * (d * sc[g]) - dmin * m[g]. Blocks without groups have sc 1, and Q5_1 has
 * m -1. */
struct block_scales {
    float d, dmin;
    int sc[BLOCKS_GROUPS], m[BLOCKS_GROUPS];
};

/* The codes of a type. */
struct block_codes {
    int group;           /* elements that share sc and m */
    int low, high;       /* the least and the largest code */
    const int8_t *table; /* [high + 1] codes are indices of these multiples,
                            which ascend; NULL: a code is the multiple */
};

/* The codes of a type that has scales to be searched; NULL: it has none, as
 * Q8_0. */
const struct block_codes *blocks_codes(enum dtype type);

/* The scales of n / block blocks, by the search of blocks_fit with the sum of
 * h_i times the squared error of x_i. h [n]: weights above 0; x and h 16-byte
 * aligned. Fails as blocks_fit does. */
int blocks_scales(enum dtype type, const struct kernels *k,
                  struct block_scales *out, const float *x, const float *h,
                  size_t n, size_t *bad);

/* The nearest codes for n / block blocks with these scales. */
void blocks_encode(enum dtype type, int8_t *codes, const struct block_scales *s,
                   const float *x, size_t n);

/* Store n / block blocks. */
void blocks_pack(enum dtype type, const struct kernels *k, unsigned char *out,
                 const struct block_scales *s, const int8_t *codes, size_t n);

#endif
