/* Packing for AMX: functions that turn row-major matrices into tiles of pairs,
 * the layout that tdpbf16ps expects of its right operand. */
#ifndef KERNEL_X86_K_AMX_PACK_H
#define KERNEL_X86_K_AMX_PACK_H

#include <immintrin.h>

#include "kernel/x86/k_amx_tiles.h"
#include "kernel/x86/k_zmm.h"

INLINE size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* Load the first n of DEPTH columns of a row, followed by zeros. */
INLINE __m512i load_columns(const char *p, size_t n)
{
    return _mm512_maskz_loadu_epi16(n >= DEPTH ? 0xffffffff : (1u << n) - 1, p);
}

/* Load 16 bytes of each of four rows: the row at p, and the rows 4, 8 and 12
 * rows after it. */
INLINE __m512i load_lanes(const char *p, size_t stride)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));

    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 4 * stride)),
                           1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 8 * stride)),
                           2);
    return _mm512_inserti32x4(
        v, _mm_loadu_si128((const void *)(p + 12 * stride)), 3);
}

/* Pack SIDE rows of DEPTH columns into a tile [pair of columns][row]. The loads
 * do a part of the transposition, because the shuffles are its bottleneck. */
INLINE void pack_tile(char *out, const char *p, size_t stride)
{
    UNROLL
    for (size_t c = 0; c < 4; c++) {
        __m512i v[4], lo[2], hi[2];
        char *to = out + 4 * c * LINE;

        UNROLL
        for (size_t e = 0; e < 4; e++)
            v[e] = load_lanes(p + e * stride + 16 * c, stride);
        UNROLL
        for (int h = 0; h < 2; h++) {
            lo[h] = _mm512_unpacklo_epi32(v[2 * h], v[2 * h + 1]);
            hi[h] = _mm512_unpackhi_epi32(v[2 * h], v[2 * h + 1]);
        }
        _mm512_store_si512(to, _mm512_unpacklo_epi64(lo[0], lo[1]));
        _mm512_store_si512(to + LINE, _mm512_unpackhi_epi64(lo[0], lo[1]));
        _mm512_store_si512(to + 2 * LINE, _mm512_unpacklo_epi64(hi[0], hi[1]));
        _mm512_store_si512(to + 3 * LINE, _mm512_unpackhi_epi64(hi[0], hi[1]));
    }
}

/* Do the work of pack_tile for the first rows and columns of a matrix that has
 * n >= 1 rows and nk >= 1 columns, with zeros for missing rows and columns. */
INLINE void pack_some(char *out, const char *p, size_t stride, size_t n,
                      size_t nk)
{
    _Alignas(64) char part[SIDE * LINE];

    if (n >= SIDE && nk >= DEPTH) {
        pack_tile(out, p, stride);
        return;
    }
    for (size_t i = 0; i < SIDE; i++)
        _mm512_store_si512(part + i * LINE,
                           i < n ? load_columns(p + i * stride, nk)
                                 : _mm512_setzero_si512());
    pack_tile(out, part, LINE);
}

#endif
