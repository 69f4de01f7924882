/* Panels of quantized weights: PANEL_ROWS rows by some columns, unpacked to
 * bytes and transposed, with their scales and biases. For k_q8_avx512.c and
 * k_q8_amx.c. */
#ifndef KERNEL_X86_K_Q8_PANEL_H
#define KERNEL_X86_K_Q8_PANEL_H

#include "kernel/x86/k_q8_avx512.h"

enum { PANEL_ROWS = 64 };

/* Unpack columns [k, k + nk) of nr rows from r on. */
INLINE void panel_codes(uint32_t *out, const struct affine *w, size_t r,
                        size_t k, size_t nr, size_t nk, int bits)
{
    for (size_t r0 = 0; r0 < nr; r0 += 16)
        for (size_t k0 = 0; k0 < nk; k0 += 64) {
            const unsigned char *from = row_at(w, r + r0, k + k0).q;
            uint32_t *to = out + k0 / 4 * PANEL_ROWS + r0;
            __m512i v[16];

            UNROLL
            for (size_t i = 0; i < 16; i++)
                v[i] = r0 + i < nr
                           ? unpack(from + i * w->q_stride, bits, nk - k0 < 64)
                           : _mm512_setzero_si512();
            transpose16(v);
            UNROLL
            for (size_t i = 0; i < 16; i++)
                _mm512_store_si512(to + i * PANEL_ROWS, v[i]);
        }
}

#define PANEL_CODES(bits)                                                    \
    static void panel_codes_##bits(uint32_t *out, const struct affine *w,    \
                                   size_t r, size_t k, size_t nr, size_t nk) \
    {                                                                        \
        panel_codes(out, w, r, k, nr, nk, bits);                             \
    }

EACH_WIDTH(PANEL_CODES)

static void (*const panel_unpackers[N_WIDTHS])(uint32_t *,
                                               const struct affine *, size_t,
                                               size_t, size_t, size_t) = {
    [E2M1] = panel_codes_E2M1,     [2] = panel_codes_2, [3] = panel_codes_3,
    [4] = panel_codes_4,           [5] = panel_codes_5, [6] = panel_codes_6,
    [SIGNED] = panel_codes_SIGNED, [8] = panel_codes_8};

static void panel_transpose(float *out, __m512i v[16], size_t n_groups)
{
    transpose16(v);
    UNROLL
    for (size_t i = 0; i < 16; i++)
        if (i < n_groups)
            _mm512_store_si512(out + i * PANEL_ROWS, v[i]);
}

/* Pack the scales and biases of nr rows from r on and n_groups <= 16 groups
 * from column k on. */
static void panel_numbers(float *scales, float *biases, const struct affine *w,
                          size_t r, size_t k, size_t nr, size_t n_groups)
{
    const __mmask16 m = first_lanes(n_groups);

    for (size_t r0 = 0; r0 < nr; r0 += 16) {
        __m512i s[16], b[16];

        UNROLL
        for (size_t i = 0; i < 16; i++) {
            s[i] = b[i] = _mm512_setzero_si512();
            if (r0 + i < nr) {
                const struct row row = row_at(w, r + r0 + i, k);
                const __m512 v = load_scales(&row, m);

                s[i] = _mm512_castps_si512(v);
                b[i] = _mm512_castps_si512(load_biases(&row, m, v));
            }
        }
        panel_transpose(scales + r0, s, n_groups);
        panel_transpose(biases + r0, b, n_groups);
    }
}

#endif
