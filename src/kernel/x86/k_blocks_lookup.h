/* Lookups of points of the grids of IQ2 and IQ3 by permutations of bytes, for
 * k_blocks_grid.c, which explains them. */
#ifndef KERNEL_X86_K_BLOCKS_LOOKUP_H
#define KERNEL_X86_K_BLOCKS_LOOKUP_H

#include <immintrin.h>

#include "kernel/x86/k_blocks_grid.h"

/* Bits of 64 indices. The lower six choose an entry of a table, the others the
 * table. */
struct chosen {
    __mmask64 bit6, bit7, both, bit8, bit9;
};

INLINE struct chosen choose_tables(__m512i index, __mmask64 bit8,
                                   __mmask64 bit9)
{
    const __mmask64 bit7 = _mm512_movepi8_mask(index),
                    bit6 = _mm512_test_epi8_mask(index, _mm512_set1_epi8(64));

    return (struct chosen){.bit6 = bit6,
                           .bit7 = bit7,
                           .both = bit6 & bit7,
                           .bit8 = bit8,
                           .bit9 = bit9};
}

/* Look up indices of eight bits. Tables are merged in an order in which the
 * last one is right. */
INLINE __m512i look_up_256(const unsigned char *table, __m512i index,
                           const struct chosen *c, bool pairs)
{
    const __m512i *t = (const void *)table;
    __m512i v;

    if (pairs)
        return _mm512_mask_blend_epi8(
            c->bit7, _mm512_permutex2var_epi8(t[0], index, t[1]),
            _mm512_permutex2var_epi8(t[2], index, t[3]));
    v = _mm512_permutexvar_epi8(index, t[0]);
    v = _mm512_mask_permutexvar_epi8(v, c->bit6, index, t[1]);
    v = _mm512_mask_permutexvar_epi8(v, c->bit7, index, t[2]);
    return _mm512_mask_permutexvar_epi8(v, c->both, index, t[3]);
}

/* Look up the indices of R rows in 4, 8 or 16 tables, which are loaded once. */
INLINE void look_up(__m512i *out, const unsigned char *table, int n_tables,
                    const __m512i *index, const struct chosen *c, int R,
                    bool pairs)
{
    __m512i v[4][ROWS];

    UNROLL
    for (int i = 0; i < n_tables / 4; i++) {
        UNROLL
        for (int r = 0; r < R; r++)
            v[i][r] = look_up_256(table + 256 * i, index[r], c + r, pairs);
        if (i % 2 == 0)
            continue;
        UNROLL
        for (int r = 0; r < R; r++)
            v[i - 1][r] =
                _mm512_mask_blend_epi8(c[r].bit8, v[i - 1][r], v[i][r]);
    }
    UNROLL
    for (int r = 0; r < R; r++)
        out[r] = n_tables == 16
                     ? _mm512_mask_blend_epi8(c[r].bit9, v[0][r], v[2][r])
                     : v[0][r];
}

INLINE const unsigned char *table_of(enum dtype type, int half)
{
    return type == DT_IQ3_XXS   ? iq3_xxs_bytes[half]
           : type == DT_IQ3_S   ? iq3_s_bytes[half]
           : type == DT_IQ2_XXS ? iq2_xxs_bytes[half]
           : type == DT_IQ2_XS  ? iq2_xs_bytes[half]
                                : iq2_s_bytes[half];
}

INLINE int tables_of(enum dtype type)
{
    return type == DT_IQ3_XXS || type == DT_IQ2_XXS ? 4
           : type == DT_IQ2_S                       ? 16
                                                    : 8;
}

#endif
