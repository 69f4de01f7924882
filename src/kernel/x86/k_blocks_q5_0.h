/* Products of rows of Q5_0 with few tokens, for k_blocks_avx512.c.
 *
 * A part of a row has 16 blocks, whose scales fill a vector. A step has four
 * blocks. Its codes fill two vectors: a has the low nibbles and b the high
 * nibbles, so both have the same scales, and their integer sums are added. Of
 * the two vectors of sums, one is for even and one for odd steps. */
#ifndef KERNEL_X86_K_BLOCKS_Q5_0_H
#define KERNEL_X86_K_BLOCKS_Q5_0_H

enum { Q5_0_BLOCKS = 16, Q5_0_STEP = 4 };

/* ---- activations -------------------------------------------------------- */

/* Activations of a part: the scales of its blocks, their mins, and the codes of
 * all steps, for a and b. */
struct q5_0_x {
    float scale[Q5_0_BLOCKS], min[Q5_0_BLOCKS];
    int8_t q[Q5_0_BLOCKS * RUN];
};

/* Do the work of arrange_part (k_blocks_avx512.c). */
INLINE void q5_0_arrange(struct q5_0_x *out, const int8_t *q,
                         const float *scale, const float *sum, size_t n)
{
    if (n < Q5_0_BLOCKS)
        memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++, q += RUN) {
        int8_t *to = out->q + b / Q5_0_STEP * 128 + b % Q5_0_STEP * 16;

        out->scale[b] = scale[b];
        out->min[b] = sum[b] * (float)offset_of(DT_Q5_0);
        memcpy(to, q, 16);
        memcpy(to + 64, q + 16, 16);
    }
}

/* ---- rows --------------------------------------------------------------- */

/* Load the scales of n <= 16 blocks, with zeros in the other lanes. */
INLINE __m512 q5_0_scales(const struct q5_0 *p, size_t n)
{
    _Alignas(32) uint16_t h[16] = {0};

    if (n == Q5_0_BLOCKS) {
        UNROLL
        for (size_t i = 0; i < Q5_0_BLOCKS; i++)
            memcpy(h + i, p[i].d, 2);
        return _mm512_cvtph_ps(_mm256_setr_epi16(
            (short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4],
            (short)h[5], (short)h[6], (short)h[7], (short)h[8], (short)h[9],
            (short)h[10], (short)h[11], (short)h[12], (short)h[13],
            (short)h[14], (short)h[15]));
    }
    for (size_t i = 0; i < n; i++)
        memcpy(h + i, p[i].d, 2);
    return _mm512_cvtph_ps(_mm256_load_si256((const void *)h));
}

/* Load the nibbles of four blocks. */
INLINE __m512i four_blocks(const struct q5_0 *p)
{
    __m512i v = _mm512_castsi128_si512(load16(p[0].q));

    v = _mm512_inserti32x4(v, load16(p[1].q), 1);
    v = _mm512_inserti32x4(v, load16(p[2].q), 2);
    return _mm512_inserti32x4(v, load16(p[3].q), 3);
}

/* Add 16 to the codes of four blocks whose fifth bits are set. These are the 16
 * bits from byte `first` of each h on. */
INLINE __m512i add_bits(__m512i codes, const struct q5_0 *p, size_t first)
{
    uint16_t bits[4];
    __mmask64 m = 0;

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        memcpy(bits + i, p[i].h + first, 2);
        m |= (__mmask64)bits[i] << (16 * i);
    }
    return _mm512_mask_add_epi8(codes, m, codes, _mm512_set1_epi8(16));
}

/* Do the work of add_part (k_blocks_avx512.c). */
INLINE void q5_0_add(struct row_sums *s, const struct q5_0 *p,
                     const struct q5_0_x *x, size_t ldx, size_t n, int T,
                     struct sweep_far far)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512 scale = q5_0_scales(p, n);
    __m512 f[TOKENS];

    UNROLL
    for (int t = 0; t < T; t++) {
        f[t] = _mm512_mul_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->scale));
        s->min[t] = _mm512_fmadd_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->min),
                                    s->min[t]);
    }
    UNROLL
    for (size_t i = 0; i < Q5_0_BLOCKS / Q5_0_STEP; i++) {
        const size_t first = i * Q5_0_STEP;
        const __m512i lanes = _mm512_add_epi32(
            _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
            _mm512_set1_epi32((int)first));
        struct q5_0 copy[Q5_0_STEP];
        const struct q5_0 *w = p + first;
        __m512i v, a, b;

        if (n != Q5_0_BLOCKS && first >= n)
            break;
        sweep_bytes((const unsigned char *)p, first * sizeof *p,
                    (first + Q5_0_STEP) * sizeof *p, far);
        if (n != Q5_0_BLOCKS && n - first < Q5_0_STEP) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, w, (n - first) * sizeof *p);
            w = copy;
        }
        v = four_blocks(w);
        a = add_bits(_mm512_and_si512(v, low), w, 0);
        b = add_bits(_mm512_and_si512(_mm512_srli_epi16(v, 4), low), w, 2);
        UNROLL
        for (int t = 0; t < T; t++) {
            const int8_t *q = x_of(x, t, ldx)->q + 128 * i;
            __m512 *to = i % 2 ? &s->b[t] : &s->a[t];
            sums sum = dot4(no_sums(), a, _mm512_load_si512(q));

            sum = dot4(sum, b, _mm512_load_si512(q + 64));
            *to = _mm512_fmadd_ps(to_floats(sum),
                                  _mm512_permutexvar_ps(lanes, f[t]), *to);
        }
    }
}

#endif
