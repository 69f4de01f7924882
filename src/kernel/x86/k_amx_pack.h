/* Packing for AMX: rows as they lie in memory to the tiles of pairs that
 * tdpbf16ps takes as its right operand. */
#ifndef KERNEL_X86_K_AMX_PACK_H
#define KERNEL_X86_K_AMX_PACK_H

#include <immintrin.h>

#include "kernel/x86/k_amx_tiles.h"
#include "kernel/x86/k_zmm.h"

INLINE size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* The first n of DEPTH columns of a row, zeros behind them. */
INLINE __m512i load_columns(const char *p, size_t n)
{
    return _mm512_maskz_loadu_epi16(n >= DEPTH ? 0xffffffff : (1u << n) - 1, p);
}

/* Of rows e, 4 + e, 8 + e and 12 + e the same 16 bytes. */
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

/* SIDE rows of DEPTH columns to a tile [pair][row]. Loads do a part of the
 * transposition: shuffles are what it takes most of. */
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

/* The same of n rows and nk columns at least 1 each, of which a tile takes what
 * it can; zeros for what is missing. */
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
