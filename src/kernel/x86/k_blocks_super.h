/* Products of rows of Q4_K, Q5_K and Q6_K with few tokens, for
 * k_blocks_avx512.c.
 *
 * A part of a row of Q4_K or Q5_K has four superblocks, so that each vector
 * that unpacks scales is full. A part of Q6_K has one superblock. A step is
 * half a superblock: 128 elements. Its codes fill two vectors, a and b, which
 * have the low and the high nibbles of 64 bytes. */
#ifndef KERNEL_X86_K_BLOCKS_SUPER_H
#define KERNEL_X86_K_BLOCKS_SUPER_H

enum { STEP = 128, K_SUPERS = 4, K_RUNS = K_SUPERS * CHUNK_RUNS };

/* Compute a | (v & mask) in each byte. */
INLINE __m512i or_bits(__m512i a, __m512i v, int mask)
{
    return _mm512_ternarylogic_epi32(a, v, _mm512_set1_epi8((char)mask), 0xf8);
}

/* Load 32 bytes twice; the upper half is shifted right by two bits. */
INLINE __m512i high_bits(const unsigned char *h)
{
    return _mm512_srlv_epi64(_mm512_broadcast_i64x4(load32(h)),
                             _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
}

/* ---- activations of Q4_K and Q5_K --------------------------------------- */

/* Activations of a part. In each scale[i] and min[i], lanes 4 L to 4 L + 3
 * belong to runs 4 i to 4 i + 3 of superblock L. q is in the order of codes:
 * for each step, runs 0 and 2 for a, then runs 1 and 3 for b. */
struct k_x {
    float scale[2][16], min[2][16];
    int8_t q[K_RUNS * RUN];
};

/* Do the work of arrange_part (k_blocks_avx512.c). */
INLINE void k_arrange(enum dtype type, struct k_x *out, const int8_t *q,
                      const float *scale, const float *sum, size_t n)
{
    /* b has the high nibbles of Q4_K in place, 16 times as large */
    const float high = type == DT_Q4_K ? 0.0625f : 1;

    if (n < K_RUNS)
        memset(out, 0, sizeof *out);
    for (size_t r = 0; r < n; r++) {
        const size_t i = r / 4 % 2, lane = r / 8 * 4 + r % 4;

        out->scale[i][lane] = r % 2 ? scale[r] * high : scale[r];
        out->min[i][lane] = sum[r];
        memcpy(out->q + r / 4 * STEP + r % 2 * 64 + r % 4 / 2 * RUN,
               q + r * RUN, RUN);
    }
}

/* ---- rows of Q4_K and Q5_K ---------------------------------------------- */

/* Compute the scales and mins of n <= 4 superblocks of `bytes` bytes at p, in
 * the order of struct k_x. Other lanes get those of the last superblock.
 * Both types begin with d, dmin and sc. */
INLINE void k_scales512(__m512 scale[2], __m512 min[2], const unsigned char *p,
                        size_t bytes, size_t n)
{
    /* bytes of sc follow four other bytes; low six or four bits of scales 0 to
     * 3, scales 4 to 7, mins 0 to 3, mins 4 to 7 */
    const __m512i low_at = _mm512_broadcast_i32x4(_mm_setr_epi8(
        4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i low_mask = _mm512_broadcast_i32x4(
        _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m512i low_shift =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0, 4));
    const __m512i high_at = _mm512_broadcast_i32x4(_mm_setr_epi8(
        -1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    /* the four bytes from byte 4 i on, one for each lane */
    const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1));
    const __m512i lane_d =
        _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    __m512i v = _mm512_castsi128_si512(load16(p)), low, high;
    __m512 d;

    v = _mm512_inserti32x4(v, load16(p + bytes * (n > 1 ? 1 : 0)), 1);
    v = _mm512_inserti32x4(v, load16(p + bytes * (n > 2 ? 2 : n - 1)), 2);
    v = _mm512_inserti32x4(v, load16(p + bytes * (n - 1)), 3);
    low = _mm512_and_si512(
        _mm512_srlv_epi32(_mm512_shuffle_epi8(v, low_at), low_shift), low_mask);
    high = _mm512_srli_epi16(_mm512_shuffle_epi8(v, high_at), 2);
    low = or_bits(low, high, 0x30);
    /* d and dmin of each superblock */
    d = _mm512_castps256_ps512(
        _mm256_cvtph_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(
            _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12)), v))));
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m512i at = _mm512_add_epi8(spread, _mm512_set1_epi32(4 * i));

        scale[i] =
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(low, at)),
                          _mm512_permutexvar_ps(lane_d, d));
        min[i] = _mm512_mul_ps(
            _mm512_cvtepi32_ps(_mm512_shuffle_epi8(
                low, _mm512_add_epi8(at, _mm512_set1_epi32(8)))),
            _mm512_permutexvar_ps(
                _mm512_add_epi32(lane_d, _mm512_set1_epi32(1)), d));
    }
}

/* Unpack the codes of step j of the superblock at p. */
INLINE void k_codes(enum dtype type, __m512i *a, __m512i *b,
                    const unsigned char *p, int j)
{
    const __m512i low = _mm512_set1_epi8(15);

    if (type == DT_Q4_K) {
        const struct q4_k *w = (const struct q4_k *)(const void *)p;
        const __m512i v = _mm512_loadu_si512(w->q + 64 * j);

        *a = _mm512_and_si512(v, low);
        *b = _mm512_andnot_si512(low, v); /* k_arrange makes up for it */
    } else {
        const struct q5_k *w = (const struct q5_k *)(const void *)p;
        const __m512i v = _mm512_loadu_si512(w->q + 64 * j);
        const __m512i h = high_bits(w->h);

        *a = or_bits(_mm512_and_si512(v, low), j ? h : _mm512_slli_epi16(h, 4),
                     16);
        *b = or_bits(_mm512_and_si512(_mm512_srli_epi16(v, 4), low),
                     j ? _mm512_srli_epi16(h, 1) : _mm512_slli_epi16(h, 3), 16);
    }
}

/* Do the work of add_part (k_blocks_avx512.c). */
INLINE void k_add(enum dtype type, struct row_sums *s, const unsigned char *p,
                  const struct k_x *x, size_t ldx, size_t n, int T,
                  struct sweep_far far)
{
    const size_t bytes = chunk_bytes(type, CHUNK_RUNS);
    __m512 scale[2], min[2], f[TOKENS][2];

    k_scales512(scale, min, p, bytes, n / CHUNK_RUNS);
    UNROLL
    for (int t = 0; t < T; t++) {
        const struct k_x *of = x_of(x, t, ldx);

        UNROLL
        for (int i = 0; i < 2; i++) {
            f[t][i] = _mm512_mul_ps(scale[i], _mm512_load_ps(of->scale[i]));
            s->min[t] =
                _mm512_fmadd_ps(min[i], _mm512_load_ps(of->min[i]), s->min[t]);
        }
    }
    UNROLL
    for (size_t i = 0; i < 2 * K_SUPERS; i++) {
        const int first = (int)(i / 2 * 4);
        const __m512i at =
            _mm512_setr_epi32(first, first, first, first, first, first, first,
                              first, first + 2, first + 2, first + 2, first + 2,
                              first + 2, first + 2, first + 2, first + 2);
        __m512i a, b;

        if (n != K_RUNS && i * 4 >= n)
            break;
        sweep_bytes(p, i * bytes / 2, (i + 1) * bytes / 2, far);
        k_codes(type, &a, &b, p + i / 2 * bytes, (int)(i % 2));
        UNROLL
        for (int t = 0; t < T; t++) {
            const int8_t *q = x_of(x, t, ldx)->q + i * STEP;
            const sums da = dot4(no_sums(), a, _mm512_load_si512(q));
            const sums db = dot4(no_sums(), b, _mm512_load_si512(q + 64));

            s->a[t] = _mm512_fmadd_ps(
                to_floats(da), _mm512_permutexvar_ps(at, f[t][i % 2]), s->a[t]);
            s->b[t] = _mm512_fmadd_ps(
                to_floats(db),
                _mm512_permutexvar_ps(
                    _mm512_add_epi32(at, _mm512_set1_epi32(1)), f[t][i % 2]),
                s->b[t]);
        }
    }
}

/* ---- Q6_K --------------------------------------------------------------- */

/* Activations of a superblock. Lane 4 L + i of scale belongs to group 4 i + L
 * of 16 elements. q is in order. In place of a min, the sums of a group begin
 * with `start`: its activations times -32. Then a sum of four products has at
 * most 15 bits, and a sum of eight at most 16, sign included. */
struct q6_k_x {
    float scale[16];
    int32_t start[SUPER / 4];
    int8_t q[SUPER];
};

/* Do the work of arrange_part (k_blocks_avx512.c). */
INLINE void q6_k_arrange(struct q6_k_x *out, const int8_t *q,
                         const float *scale)
{
    const __m512i offset = _mm512_set1_epi8((char)offset_of(DT_Q6_K));

    for (size_t g = 0; g < 16; g++)
        out->scale[g % 4 * 4 + g / 4] = scale[g / 2];
    for (size_t k = 0; k < SUPER; k += 64) {
        const __m512i v = _mm512_load_si512(q + k);

        _mm512_store_si512(out->q + k, v);
        _mm512_store_si512(
            out->start + k / 4,
            _mm512_sub_epi32(_mm512_setzero_si512(),
                             (__m512i)dot4(no_sums(), offset, v)));
    }
}

/* Compute the scales of a superblock in the order of struct q6_k_x. */
INLINE __m512 q6_k_scales(const struct q6_k *w)
{
    const __m128i order =
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    uint16_t d;

    memcpy(&d, w->d, 2);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
                             _mm_shuffle_epi8(load16(w->sc), order))),
                         _mm512_cvtph_ps(_mm256_set1_epi16((short)d)));
}

/* Unpack the codes of step j. */
INLINE void q6_k_codes(__m512i *a, __m512i *b, const struct q6_k *w, size_t j)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i v = _mm512_loadu_si512(w->l + 64 * j);
    const __m512i h =
        _mm512_and_si512(high_bits(w->h + 32 * j), _mm512_set1_epi8(0x33));

    /* low ? v : h */
    *a = _mm512_ternarylogic_epi32(low, v, _mm512_slli_epi16(h, 4), 0xca);
    *b = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(v, 4), h, 0xca);
}

/* Add pairs of lanes of a and of b, which have at most 16 bits. Each 128 bits
 * of the result have two sums of a, then two sums of b. */
INLINE __m512i add_pairs(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* Do the work of add_part (k_blocks_avx512.c). */
INLINE void q6_k_add(struct row_sums *s, const struct q6_k *w,
                     const struct q6_k_x *x, size_t ldx, int T,
                     struct sweep_far far)
{
    const __m512 scale = q6_k_scales(w);
    __m512i half[TOKENS][2];

    UNROLL
    for (size_t j = 0; j < 2; j++) {
        __m512i a, b;

        sweep_bytes((const unsigned char *)w, j * sizeof *w / 2,
                    (j + 1) * sizeof *w / 2, far);
        q6_k_codes(&a, &b, w, j);
        UNROLL
        for (int t = 0; t < T; t++) {
            const int8_t *q = x_of(x, t, ldx)->q + j * STEP;
            const int32_t *start = x_of(x, t, ldx)->start + j * STEP / 4;
            const sums da =
                dot4((sums)_mm512_load_si512(start), a, _mm512_load_si512(q));
            const sums db = dot4((sums)_mm512_load_si512(start + 16), b,
                                 _mm512_load_si512(q + 64));

            half[t][j] = add_pairs((__m512i)da, (__m512i)db);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++)
        s->a[t] = _mm512_fmadd_ps(
            _mm512_cvtepi32_ps(add_pairs(half[t][0], half[t][1])),
            _mm512_mul_ps(scale, _mm512_load_ps(x_of(x, t, ldx)->scale)),
            s->a[t]);
}

#endif
