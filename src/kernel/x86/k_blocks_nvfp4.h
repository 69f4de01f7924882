/* Products of rows of NVFP4 with few tokens, for k_blocks_avx512.c.
 *
 * A part of a row has four blocks, whose 16 scales fill a vector. A step has
 * two blocks. Its codes fill two vectors: a has the low nibbles and b the high
 * nibbles. A group of 16 elements has two lanes in both, so a and b have the
 * same scales, and their integer sums are added. Of the two vectors of sums,
 * one is for the first and one for the second step. */
#ifndef KERNEL_X86_K_BLOCKS_NVFP4_H
#define KERNEL_X86_K_BLOCKS_NVFP4_H

enum { NV_BLOCKS = 4, NV_RUNS = 2 * NV_BLOCKS };

/* Activations of a part: scales and mins of its groups of 16, both times 128
 * (nvfp4_bits), and for each step the codes for a and those for b. */
struct nvfp4_x {
    float scale[16], min[16];
    int8_t q[NV_RUNS * RUN];
};

/* Do the work of arrange_part (k_blocks_avx512.c). */
INLINE void nvfp4_arrange(struct nvfp4_x *out, const int8_t *q,
                          const float *scale, size_t n)
{
    if (n < NV_RUNS)
        memset(out, 0, sizeof *out);
    for (size_t g = 0; g < 2 * n; g++, q += 16) {
        int8_t *to = out->q + g / 8 * 128 + g % 8 * 8;
        int sum = 0;

        for (size_t k = 0; k < 16; k++)
            sum += q[k];
        out->scale[g] = scale[g / 2] * 128;
        out->min[g] = out->scale[g] * (float)(sum * E2M1_OFFSET);
        memcpy(to, q, 8);
        memcpy(to + 64, q + 8, 8);
    }
}

/* Return the scales of a part, divided by 128: an E4M3 number is an f16 number
 * with a smaller exponent. */
INLINE __m512 nvfp4_bits(const struct nvfp4 *p)
{
    const __m128i most = _mm_set1_epi8(0x7f);
    int d[NV_BLOCKS];
    __m128i v;

    UNROLL
    for (size_t i = 0; i < NV_BLOCKS; i++)
        memcpy(d + i, p[i].d, 4);
    v = _mm_setr_epi32(d[0], d[1], d[2], d[3]);
    v = _mm_andnot_si128(_mm_cmpeq_epi8(v, most), _mm_and_si128(v, most));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(v), 7));
}

/* Do the work of add_part (k_blocks_avx512.c). */
INLINE void nvfp4_add(struct row_sums *s, const unsigned char *p,
                      const struct nvfp4_x *x, size_t ldx, size_t n, int T,
                      struct sweep_far far)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i codes = _mm512_broadcast_i32x4(load16(e2m1_codes));
    struct nvfp4 copy[NV_BLOCKS];
    const struct nvfp4 *w = (const void *)p;
    __m512 scale, f[TOKENS];

    if (n != NV_RUNS) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, w, n / 2 * sizeof *copy);
        w = copy;
    }
    scale = nvfp4_bits(w);
    UNROLL
    for (int t = 0; t < T; t++) {
        f[t] = _mm512_mul_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->scale));
        s->min[t] = _mm512_fmadd_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->min),
                                    s->min[t]);
    }
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        const __m512i lanes = _mm512_add_epi32(
            _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
            _mm512_set1_epi32((int)(8 * i)));
        const __m512i v =
            _mm512_inserti64x4(_mm512_castsi256_si512(load32(w[2 * i].q)),
                               load32(w[2 * i + 1].q), 1);
        const __m512i a = _mm512_shuffle_epi8(codes, _mm512_and_si512(v, low));
        const __m512i b = _mm512_shuffle_epi8(
            codes, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));

        sweep_bytes(p, 2 * i * sizeof *w, 2 * (i + 1) * sizeof *w, far);
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
