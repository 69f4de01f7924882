/* Products of rows of Q8_0 or Q4_0 with few tokens, for k_blocks_avx512.c. A
 * row is read as a stream of bytes, without regard to its blocks.
 *
 * A block is an odd number of words long: its scale, then its codes. Two facts
 * follow, for blocks that begin at an even address:
 *
 *   - No 32-bit lane of the stream has codes of two blocks. So a vector of the
 *     stream can be multiplied as it is: the activations have zeros where the
 *     stream has scales, and each lane of the sums has one scale.
 *   - The scales of 32 blocks lie in different words modulo 32. So one vector
 *     collects them all, by blends alone. It is wide enough for 32 words, and
 *     block b has its scale in word W * b % 32, where W is the number of words
 *     in a block.
 *
 * 32 blocks are W vectors of 64 bytes; this is a part of a row. The last part
 * of a row may be shorter. It is copied and padded with zeros.
 *
 * Of the two vectors of sums, one is for the even and one for the odd vectors
 * of a part. */
#ifndef KERNEL_X86_K_BLOCKS_STREAM_H
#define KERNEL_X86_K_BLOCKS_STREAM_H

/* Blocks of a part; words in a block; vectors of a part of the longest block */
enum {
    PART_BLOCKS = 32,
    WORDS_Q4_0 = sizeof(struct q4_0) / 2,
    WORDS_Q8_0 = sizeof(struct q8_0) / 2,
    STREAM_VECTORS = WORDS_Q8_0
};

/* Return the words of a block, which are the vectors of a part. */
INLINE size_t stream_words(enum dtype type)
{
    return type == DT_Q8_0 ? WORDS_Q8_0 : WORDS_Q4_0;
}

/* ---- tables ------------------------------------------------------------- */

/* Two blocks are w 32-bit lanes long. The first block has codes in the first
 * w / 2 + 1 of these lanes, and the second block in the others. This is the
 * word of the collected scales that belongs to lane l of a part. */
#define LANE(w, l) ((w) * (2 * ((l) / (w)) + ((l) % (w) > (w) / 2)) % 32)
#define LANES4(w, l) \
    LANE(w, l), LANE(w, (l) + 1), LANE(w, (l) + 2), LANE(w, (l) + 3)
#define LANES(w, j)                                                        \
    LANES4(w, 16 * (j)), LANES4(w, 16 * (j) + 4), LANES4(w, 16 * (j) + 8), \
        LANES4(w, 16 * (j) + 12)

/* All ones where word i of a part is a scale. */
#define MASK(w, i) ((i) % (w) ? 0 : 0xffff)
#define MASKS4(w, i) \
    MASK(w, i), MASK(w, (i) + 1), MASK(w, (i) + 2), MASK(w, (i) + 3)
#define MASKS(w, j)                                                        \
    MASKS4(w, 32 * (j)), MASKS4(w, 32 * (j) + 4), MASKS4(w, 32 * (j) + 8), \
        MASKS4(w, 32 * (j) + 12), MASKS4(w, 32 * (j) + 16),                \
        MASKS4(w, 32 * (j) + 20), MASKS4(w, 32 * (j) + 24),                \
        MASKS4(w, 32 * (j) + 28)

#define NINE(f, w)                                                          \
    f(w, 0), f(w, 1), f(w, 2), f(w, 3), f(w, 4), f(w, 5), f(w, 6), f(w, 7), \
        f(w, 8)
#define SEVENTEEN(f, w)                                                    \
    NINE(f, w), f(w, 9), f(w, 10), f(w, 11), f(w, 12), f(w, 13), f(w, 14), \
        f(w, 15), f(w, 16)

_Alignas(64) static const uint32_t lanes_q4_0[] = {NINE(LANES, WORDS_Q4_0)};
_Alignas(64) static const uint16_t masks_q4_0[] = {NINE(MASKS, WORDS_Q4_0)};
_Alignas(64) static const uint32_t lanes_q8_0[] = {
    SEVENTEEN(LANES, WORDS_Q8_0)};
_Alignas(64) static const uint16_t masks_q8_0[] = {
    SEVENTEEN(MASKS, WORDS_Q8_0)};

_Static_assert(sizeof lanes_q4_0 == WORDS_Q4_0 * 64 &&
                   sizeof masks_q4_0 == WORDS_Q4_0 * 64 &&
                   sizeof lanes_q8_0 == WORDS_Q8_0 * 64 &&
                   sizeof masks_q8_0 == WORDS_Q8_0 * 64,
               "a vector for each vector of a part");

/* ---- activations -------------------------------------------------------- */

/* The activations of one token for a part begin with the scales of the groups
 * and with their mins, both in the order of the collected scales. Then follow
 * the codes in the order of the stream. For Q4_0, the codes of all low nibbles
 * come before those of the high nibbles. */
enum { STREAM_SCALES = 2 * PART_BLOCKS * sizeof(float) };

/* Return the bytes of a part's activations of one token. */
INLINE size_t stream_bytes(enum dtype type)
{
    return STREAM_SCALES + 64 * stream_words(type) * (type == DT_Q8_0 ? 1 : 2);
}

/* Do the work of arrange_part (k_blocks_avx512.c). */
INLINE void stream_arrange(enum dtype type, char *out, const int8_t *q,
                           const float *scale, const float *sum, size_t n)
{
    const size_t words = stream_words(type);
    float *scales = (float *)(void *)out, *mins = scales + PART_BLOCKS;
    char *low = out + STREAM_SCALES, *high = low + 64 * words;

    if (n < PART_BLOCKS)
        memset(out, 0, stream_bytes(type));
    for (size_t b = 0; b < n; b++, q += RUN) {
        const size_t at = 2 * words * b, lane = words * b % PART_BLOCKS;

        scales[lane] = scale[b];
        mins[lane] = sum[b] * (type == DT_Q8_0 ? 128 : (float)offset_of(type));
        memset(low + at, 0, 2);
        if (type == DT_Q8_0) {
            memcpy(low + at + 2, q, RUN);
        } else {
            memcpy(low + at + 2, q, RUN / 2);
            memset(high + at, 0, 2);
            memcpy(high + at + 2, q + RUN / 2, RUN / 2);
        }
    }
}

/* ---- rows --------------------------------------------------------------- */

/* Convert collected scales. */
INLINE void widen_scales(__m512 d[2], __m512i h)
{
    d[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
    d[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
}

/* Collect the scales of the n_vectors first vectors of a part at p. */
INLINE void collect_scales(enum dtype type, __m512 d[2], const unsigned char *p,
                           size_t n_vectors)
{
    const uint16_t *masks = type == DT_Q8_0 ? masks_q8_0 : masks_q4_0;
    __m512i h = _mm512_setzero_si512();

    UNROLL
    for (size_t j = 0; j < STREAM_VECTORS && j < n_vectors; j++)
        /* h | (v & mask) */
        h = _mm512_ternarylogic_epi32(h, _mm512_loadu_si512(p + 64 * j),
                                      _mm512_load_si512(masks + 32 * j), 0xf8);
    widen_scales(d, h);
}

/* Compute the products of vector j of a part, v, and the activations at x, as
 * integers in lanes. */
INLINE sums stream_dot(enum dtype type, __m512i v, const char *x, size_t j)
{
    const __m512i low = _mm512_set1_epi8(15);
    const char *at = x + STREAM_SCALES + 64 * j;
    sums s = no_sums();

    if (type == DT_Q8_0)
        return dot4(s, _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80)),
                    _mm512_load_si512(at));
    s = dot4(s, _mm512_and_si512(v, low), _mm512_load_si512(at));
    return dot4(s, _mm512_and_si512(_mm512_srli_epi16(v, 4), low),
                _mm512_load_si512(at + 64 * WORDS_Q4_0));
}

/* Return the products of the collected scales d with the activations' scales at
 * xs in f, and add those with the activations' mins to *min. */
INLINE void scale_factors(__m512 f[2], __m512 *min, const __m512 d[2],
                          const float *xs)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        f[i] = _mm512_mul_ps(d[i], _mm512_load_ps(xs + 16 * i));
        *min = _mm512_fmadd_ps(d[i], _mm512_load_ps(xs + PART_BLOCKS + 16 * i),
                               *min);
    }
}

/* Return a bit for each of the 32 words of vector j that is a scale. */
INLINE __mmask32 scale_words(size_t words, size_t j)
{
    const size_t first = (words - 32 * j % words) % words;
    uint32_t mask = 0;

    UNROLL
    for (size_t i = 0; i < 4; i++)
        if (first + words * i < 32)
            mask |= 1u << (first + words * i);
    return mask;
}

#define FOR_17(f)                                                             \
    f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) \
        f(14) f(15) f(16)

/* Load vector j, and collect its scales by a constant mask, in one of four
 * vectors: a single one would be a long chain. Without the statement of no
 * instruction, gcc would load the vector again later. */
#define LOAD_VECTOR(j)                                                         \
    __m512i v##j = _mm512_setzero_si512();                                     \
    if (j < words) {                                                           \
        v##j = _mm512_loadu_si512(p + 64 * j);                                 \
        __asm__("" : "+v"(v##j));                                              \
        h[j % 4] = j < 4 ? _mm512_maskz_mov_epi16(scale_words(words, j), v##j) \
                         : _mm512_mask_mov_epi16(h[j % 4],                     \
                                                 scale_words(words, j), v##j); \
    }

#define ADD_VECTOR(j)                                                       \
    if (j < words) {                                                        \
        __m512 *to = j % 2 ? &b : &a;                                       \
                                                                            \
        sweep_by(p + 64 * j, far.ahead, far.to_l2);                         \
        *to = _mm512_fmadd_ps(                                              \
            to_floats(stream_dot(type, v##j, x, j)),                        \
            _mm512_permutex2var_ps(f[0], _mm512_load_si512(lanes + 16 * j), \
                                   f[1]),                                   \
            *to);                                                           \
    }

/* Do the work of stream_add for a whole part and one token, with the same
 * result. Loads limit it, so the vectors of the part are loaded once and stay
 * in registers. Whether that pays for the longer parts of Q8_0 depends on the
 * core (struct core_choices). */
INLINE void stream_add_one(enum dtype type, struct row_sums *s,
                           const unsigned char *p, const char *x,
                           struct sweep_far far)
{
    const size_t words = stream_words(type);
    const uint32_t *lanes = type == DT_Q8_0 ? lanes_q8_0 : lanes_q4_0;
    __m512i h[4];
    __m512 d[2], f[2], a = s->a[0], b = s->b[0];

    /* otherwise gcc keeps lanes in registers, and puts the part on the stack */
    __asm__("" : "+r"(lanes));
    FOR_17(LOAD_VECTOR)
    widen_scales(d, _mm512_or_si512(_mm512_or_si512(h[0], h[1]),
                                    _mm512_or_si512(h[2], h[3])));
    scale_factors(f, s->min, d, (const float *)(const void *)x);
    FOR_17(ADD_VECTOR)
    s->a[0] = a;
    s->b[0] = b;
}

/* Do the work of add_part (k_blocks_avx512.c). */
INLINE void stream_add(enum dtype type, struct row_sums *s,
                       const unsigned char *p, const char *x, size_t ldx,
                       size_t n, int T, struct sweep_far far)
{
    const size_t words = stream_words(type);
    const size_t n_vectors = (2 * words * n + 63) / 64;
    const bool whole = n == PART_BLOCKS;
    _Alignas(64) unsigned char copy[64 * STREAM_VECTORS];
    const unsigned char *row = p;
    const uint32_t *lanes = type == DT_Q8_0 ? lanes_q8_0 : lanes_q4_0;
    __m512 d[2], f[TOKENS][2];

    if (whole && T == 1 && (type == DT_Q4_0 || far.once)) {
        stream_add_one(type, s, p, x, far);
        return;
    }
    if (!whole) {
        memset(copy + 64 * (n_vectors - 1), 0, 64);
        memcpy(copy, p, 2 * words * n);
        p = copy;
    }
    collect_scales(type, d, p, n_vectors);
    UNROLL
    for (int t = 0; t < T; t++)
        scale_factors(f[t], &s->min[t], d,
                      (const float *)(const void *)(x + (size_t)t * ldx));
    UNROLL
    for (size_t j = 0; j < STREAM_VECTORS && j < n_vectors; j++) {
        const __m512i v = _mm512_loadu_si512(p + 64 * j);
        const __m512i lane = _mm512_load_si512(lanes + 16 * j);

        sweep_by(row + 64 * j, far.ahead, far.to_l2);
        UNROLL
        for (int t = 0; t < T; t++) {
            const __m512 sum =
                to_floats(stream_dot(type, v, x + (size_t)t * ldx, j));
            const __m512 scale = _mm512_permutex2var_ps(f[t][0], lane, f[t][1]);
            __m512 *to = j % 2 ? &s->b[t] : &s->a[t];

            *to = _mm512_fmadd_ps(sum, scale, *to);
        }
    }
}

#endif
