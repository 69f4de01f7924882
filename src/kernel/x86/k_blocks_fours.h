/* Products of rows of Q5_0 and MXFP4 with few tokens, for k_blocks_avx512.c.
 *
 * A part of a row has 16 blocks, whose scales fill a vector. A step has four
 * blocks. Its codes fill two vectors: a has the low nibbles and b the high
 * nibbles, so both have the same scales, and their integer sums are added. Of
 * the two vectors of sums, one is for even and one for odd steps. */
#ifndef KERNEL_X86_K_BLOCKS_FOURS_H
#define KERNEL_X86_K_BLOCKS_FOURS_H

enum { FOURS_BLOCKS = 16, FOURS_STEP = 4 };

/* ---- activations -------------------------------------------------------- */

/* Activations of a part: the scales of its blocks, their mins, and the codes of
 * all steps, for a and b. */
struct fours_x {
    float scale[FOURS_BLOCKS], min[FOURS_BLOCKS];
    int8_t q[FOURS_BLOCKS * RUN];
};

/* Do the work of arrange_part (k_blocks_avx512.c). */
INLINE void fours_arrange(enum dtype type, struct fours_x *out, const int8_t *q,
                          const float *scale, const float *sum, size_t n)
{
    if (n < FOURS_BLOCKS)
        memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++, q += RUN) {
        int8_t *to = out->q + b / FOURS_STEP * 128 + b % FOURS_STEP * 16;

        out->scale[b] = scale[b];
        out->min[b] = sum[b] * (float)offset_of(type);
        memcpy(to, q, 16);
        memcpy(to + 64, q + 16, 16);
    }
}

/* ---- rows --------------------------------------------------------------- */

/* Load the scales of n <= 16 blocks of MXFP4, with zeros in the other lanes. */
INLINE __m512 mxfp4_scales(const unsigned char *w, size_t n)
{
    const struct mxfp4 *p = (const void *)w;
    _Alignas(16) unsigned char e[16] = {0};

    if (n == FOURS_BLOCKS)
        return e8m0_halves512(_mm_setr_epi8(
            (char)p[0].e, (char)p[1].e, (char)p[2].e, (char)p[3].e,
            (char)p[4].e, (char)p[5].e, (char)p[6].e, (char)p[7].e,
            (char)p[8].e, (char)p[9].e, (char)p[10].e, (char)p[11].e,
            (char)p[12].e, (char)p[13].e, (char)p[14].e, (char)p[15].e));
    for (size_t i = 0; i < n; i++)
        e[i] = p[i].e;
    return _mm512_maskz_mov_ps(first_lanes(n),
                               e8m0_halves512(_mm_load_si128((void *)e)));
}

/* Load the scales of n <= 16 blocks, with zeros in the other lanes. */
INLINE __m512 fours_scales(enum dtype type, const unsigned char *w, size_t n)
{
    const struct q5_0 *p = (const void *)w;
    _Alignas(32) uint16_t h[16] = {0};

    if (type == DT_MXFP4)
        return mxfp4_scales(w, n);
    if (n == FOURS_BLOCKS) {
        UNROLL
        for (size_t i = 0; i < FOURS_BLOCKS; i++)
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

/* Load the nibbles of four blocks of `bytes` bytes, whose last 16 they are. */
INLINE __m512i four_blocks(const unsigned char *p, size_t bytes)
{
    const unsigned char *q = p + bytes - 16;
    __m512i v = _mm512_castsi128_si512(load16(q));

    v = _mm512_inserti32x4(v, load16(q + bytes), 1);
    v = _mm512_inserti32x4(v, load16(q + 2 * bytes), 2);
    return _mm512_inserti32x4(v, load16(q + 3 * bytes), 3);
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

/* Unpack the codes of four blocks. */
INLINE void fours_codes(enum dtype type, __m512i *a, __m512i *b,
                        const unsigned char *w)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i v = four_blocks(w, chunk_bytes(type, 1));

    *a = _mm512_and_si512(v, low);
    *b = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    if (type == DT_MXFP4) {
        const __m512i codes = _mm512_broadcast_i32x4(load16(e2m1_codes));

        *a = _mm512_shuffle_epi8(codes, *a);
        *b = _mm512_shuffle_epi8(codes, *b);
    } else {
        *a = add_bits(*a, (const void *)w, 0);
        *b = add_bits(*b, (const void *)w, 2);
    }
}

/* Do the work of add_part (k_blocks_avx512.c). */
INLINE void fours_add(enum dtype type, struct row_sums *s,
                      const unsigned char *p, const struct fours_x *x,
                      size_t ldx, size_t n, int T, struct sweep_far far)
{
    const size_t bytes = chunk_bytes(type, 1);
    const __m512 scale = fours_scales(type, p, n);
    __m512 f[TOKENS];

    UNROLL
    for (int t = 0; t < T; t++) {
        f[t] = _mm512_mul_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->scale));
        s->min[t] = _mm512_fmadd_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->min),
                                    s->min[t]);
    }
    UNROLL
    for (size_t i = 0; i < FOURS_BLOCKS / FOURS_STEP; i++) {
        const size_t first = i * FOURS_STEP;
        const __m512i lanes = _mm512_add_epi32(
            _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
            _mm512_set1_epi32((int)first));
        unsigned char copy[FOURS_STEP * sizeof(struct q5_0)];
        const unsigned char *w = p + first * bytes;
        __m512i a, b;

        if (n != FOURS_BLOCKS && first >= n)
            break;
        sweep_bytes(p, first * bytes, (first + FOURS_STEP) * bytes, far);
        if (n != FOURS_BLOCKS && n - first < FOURS_STEP) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, w, (n - first) * bytes);
            w = copy;
        }
        fours_codes(type, &a, &b, w);
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
