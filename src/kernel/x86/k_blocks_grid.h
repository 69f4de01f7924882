/* The activations of products of IQ2 and IQ3, for k_blocks_grid.c: they are put
 * in the order of the codes. */
#ifndef KERNEL_X86_K_BLOCKS_GRID_H
#define KERNEL_X86_K_BLOCKS_GRID_H

#include <immintrin.h>

#include "kernel/x86/k_blocks_codes.h"
#include "kernel/x86/k_zmm.h"

/* Enter the kernels of k_blocks_mxfp4.c. */
void k_blocks_mxfp4_init(struct kernels *k);

enum {
    ROWS = 2, /* multiplied at a time */
    TOKENS = 4,
    POINTS = 64,     /* of a part */
    SEGMENT = 16384, /* rows are cut into so many columns */
    NEAR_BYTES = 1024,
    MAX_FIELDS = 8
};

/* Activations of one token for a part. */
struct grid_x {
    int8_t q[MAX_FIELDS * POINTS]; /* fields one after another */
    float scale[2][16];
    int32_t start[2][16]; /* of the sums: minus the part of the offset */
};

_Static_assert(TOKENS *(SEGMENT / SUPER) * sizeof(struct grid_x) <=
                   KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* If the type is a constant, the compiler knows the results of these
 * functions. */

INLINE bool is_iq3(enum dtype type)
{
    return type == DT_IQ3_XXS || type == DT_IQ3_S;
}

/* Superblocks of a part. */
INLINE size_t part_supers(enum dtype type)
{
    return is_iq3(type) ? 1 : 2;
}

/* Return the offset of codes. */
INLINE int code_offset(enum dtype type)
{
    return type == DT_IQ3_S ? 120 : is_iq3(type) ? 62 : 43;
}

/* Return what is left of the scale of a weight, next to d * (2 s + 1). A code
 * of IQ3_S is eight times the weight. */
INLINE float unit_of(enum dtype type)
{
    return type == DT_IQ3_XXS ? 0.25f : 0.125f;
}

/* ---- order --------------------------------------------------------------- */

/* 64 activations are put in order, and cut into eight pieces of eight bytes.
 * Piece k has, for eight points, element k; of IQ3, element k / 2 of the even
 * points for an even k, otherwise of the odd points, because two points share a
 * byte of signs; if scales are for 16 elements, elements k / 2 and k / 2 + 4 of
 * four points. */

/* Return the order, as indices of bytes. */
INLINE __m512i piece_order(enum dtype type)
{
    const long long ones = 0x0101010101010101;
    const __m512i k =
        is_iq3(type) ? _mm512_setr_epi64(0, 4 * ones, ones, 5 * ones, 2 * ones,
                                         6 * ones, 3 * ones, 7 * ones)
        : has_halves(type)
            ? _mm512_setr_epi64(0, 32 * ones, ones, 33 * ones, 2 * ones,
                                34 * ones, 3 * ones, 35 * ones)
            : _mm512_setr_epi64(0, ones, 2 * ones, 3 * ones, 4 * ones, 5 * ones,
                                6 * ones, 7 * ones);

    return _mm512_add_epi8(k, _mm512_set1_epi64(has_halves(type)
                                                    ? 0x1c1814100c080400
                                                    : 0x3830282018100800));
}

/* Return where piece k of the activations 64 j to 64 j + 63 belongs. */
INLINE size_t piece_place(enum dtype type, size_t j, size_t k)
{
    return is_iq3(type) ? k / 2 * POINTS + k % 2 * (POINTS / 2) + 8 * j
           : !has_halves(type)
               ? k * POINTS + 8 * j
               : (j % 2 * 4 + k / 2) * POINTS + j / 2 * 16 + k % 2 * 8;
}

/* Return the scales for the lanes of sum h, from the scales of n superblocks.
 */
INLINE __m512 lane_scales(enum dtype type, const float *scale, size_t n, int h)
{
    const __m512 v = _mm512_maskz_loadu_ps(first_lanes(n * CHUNK_RUNS), scale);
    const __m512i lane =
        is_iq3(type)
            ? _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7)
            : _mm512_setr_epi32(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13,
                                13);

    return _mm512_mul_ps(
        is_iq3(type) || has_halves(type)
            ? _mm512_permutexvar_ps(
                  _mm512_add_epi32(lane, _mm512_set1_epi32(2 * h)), v)
            : v,
        _mm512_set1_ps(unit_of(type)));
}

/* Arrange the activations of one token for a part with n superblocks. */
INLINE void grid_arrange(enum dtype type, struct grid_x *out, const int8_t *q,
                         const float *scale, size_t n)
{
    const __m512i order = piece_order(type);
    const __m512i offset = _mm512_set1_epi8((char)code_offset(type));
    const size_t n_fields = is_iq3(type) ? 4 : 8;

    if (n < part_supers(type))
        memset(out, 0, sizeof *out);
    for (size_t j = 0; j < n * SUPER / 64; j++) {
        _Alignas(64) int64_t piece[8];

        _mm512_store_si512(piece, _mm512_permutexvar_epi8(
                                      order, _mm512_loadu_si512(q + 64 * j)));
        for (size_t k = 0; k < 8; k++)
            memcpy(out->q + piece_place(type, j, k), piece + k, 8);
    }
    for (int h = 0; h <= has_halves(type); h++) {
        __m512i s = _mm512_setzero_si512();

        for (size_t f = 0; f < n_fields; f++)
            if (!has_halves(type) || f / 4 == (size_t)h)
                s = _mm512_dpbusd_epi32(s, offset,
                                        _mm512_load_si512(out->q + f * POINTS));
        _mm512_store_si512(out->start[h],
                           _mm512_sub_epi32(_mm512_setzero_si512(), s));
        _mm512_store_ps(out->scale[h], lane_scales(type, scale, n, h));
    }
}

#endif
