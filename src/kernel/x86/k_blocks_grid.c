/* Products of rows of IQ2 and IQ3 with up to TOKENS tokens, for CPUs with
 * AVX-512 and byte permutations (VBMI, BITALG, GFNI).
 *
 * A permutation looks up 64 bytes in a table of 64. The tables of a grid, two
 * bytes a point, take a permutation for each 64 entries, merged by masks of the
 * higher bits of the indices; where it is as fast, a permutation of two tables
 * (permute_pairs). So the indices of 64 points are looked up at once, and no
 * element of a point is loaded from memory. Two rows at a time load tables and
 * activations once.
 *
 * A part of a row has 64 indices: one superblock of IQ3, two of IQ2. A vector
 * of codes has one element of each point, a field of the looked up bytes. The
 * signs join the fields, so that a code stands for a weight with its sign, plus
 * an offset that makes it unsigned. The sums begin with minus the part that the
 * offset adds, which depends on the activations only. The activations are put
 * in the order of the codes first.
 *
 * All fields of a part are added to one vector of integer sums, or to two if
 * scales are for 16 elements (IQ2_XS, IQ2_S): there the bytes of the first and
 * the second half of points alternate, so that a lane has two points.
 *
 * Order of sums. A row has one vector of sums, which takes the parts in
 * order. */
#include <immintrin.h>

#include "kernel/x86/k_blocks_grid.h"
#include "kernel/x86/k_blocks_lookup.h"

/* ---- products ----------------------------------------------------------- */

/* Where a row is, and 32 d of its superblocks from there on. */
struct grid_at {
    const unsigned char *w;
    const float *d;
};

/* The activations of token t. x: of token 0. */
#define x_of(x, t, ldx) \
    ((const struct grid_x *)((const char *)(x) + (size_t)(t) * (ldx)))

/* Begin sum h of T tokens. */
INLINE void begin_sums(__m512i *s, int h, const struct grid_x *x, size_t ldx,
                       int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        s[t] = _mm512_load_si512(x_of(x, t, ldx)->start[h]);
}

/* Add the products of field f of T tokens to s[t]. */
INLINE void add_field(__m512i *s, __m512i codes, int f, const struct grid_x *x,
                      size_t ldx, int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        s[t] = _mm512_dpbusd_epi32(
            s[t], codes, _mm512_load_si512(x_of(x, t, ldx)->q + POINTS * f));
}

/* Add sums, times scales of weights and of activations, to acc. Bits 19 to 22
 * of each lane of v are s, d32 is 32 d. As the highest bits of a number's
 * fraction, s and a 1 make 1 + (2 s + 1) / 32. */
INLINE void add_scaled(__m512 *acc, const __m512i *s, __m512 d32, __m512i v,
                       int h, const struct grid_x *x, size_t ldx, int T)
{
    const __m512 f = _mm512_castsi512_ps(
        /* (v & mask) | 1 + 1 / 32 */
        _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(0x00780000),
                                  _mm512_set1_epi32(0x3f840000), 0xea));
    const __m512 by = _mm512_fmsub_ps(f, d32, d32);

    UNROLL
    for (int t = 0; t < T; t++)
        acc[t] = _mm512_fmadd_ps(
            _mm512_cvtepi32_ps(s[t]),
            _mm512_mul_ps(by, _mm512_load_ps(x_of(x, t, ldx)->scale[h])),
            acc[t]);
}

/* Cut four times seven bits from each number of 32 bits. */
INLINE __m512i cut_sevens(__m512i v)
{
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700),
                                        v);
}

/* ---- IQ3 ---------------------------------------------------------------- */

/* A matrix of _mm512_gf2p8affine_epi64_epi8 that computes bit 7 and bit 3, or
 * the bits from there down to the next of them, from the bits of a byte in
 * masks. */
#define BITS_7_3(m7, m3) ((long long)(m7) | (long long)(m3) << 32)
#define ALL_BITS(m7, m3) (BITS_7_3(m7, m3) * 0x01010101)

/* Load 32 bytes twice. */
INLINE __m512i load_twice(const void *p)
{
    return _mm512_broadcast_i64x4(load32(p));
}

/* Multiply each byte's bits by one matrix in the first half of v, which has
 * even points, and by another one in the second half. */
#define BY_MATRICES(v, even, odd, flip)                                   \
    _mm512_gf2p8affine_epi64_epi8(                                        \
        v, _mm512_setr_epi64(even, even, even, even, odd, odd, odd, odd), \
        flip)

/* Read the indices of the 64 points of a superblock, even points first. */
INLINE __m512i iq3_index(enum dtype type, const unsigned char *p, __mmask64 *h)
{
    const __m512i ascending = _mm512_setr_epi64(
        0x0e0c0a0806040200, 0x1e1c1a1816141210, 0x2e2c2a2826242220,
        0x3e3c3a3836343230, 0x0f0d0b0907050301, 0x1f1d1b1917151311,
        0x2f2d2b2927252321, 0x3f3d3b3937353331);
    const uint64_t even = 0x5555555555555555;
    uint64_t bits = 0;

    if (type == DT_IQ3_S) {
        memcpy(&bits, ((const struct iq3_s *)(const void *)p)->h, 8);
        bits = _pext_u64(bits, even) | _pext_u64(bits, ~even) << 32;
    }
    *h = bits;
    return _mm512_permutexvar_epi8(ascending, _mm512_loadu_si512(p + 2));
}

/* Give fields of three bits their signs, and turn them to nibbles. Those of
 * IQ3_XXS have the sign in bit 3. Those of IQ3_S are i + 8 for a weight 2 i + 1
 * and 7 - i for -(2 i + 1): half the weight, plus 7.5. */
INLINE void iq3_sign(enum dtype type, __m512i *a, __m512i *b,
                     const unsigned char *p)
{
    if (type == DT_IQ3_S) {
        const __m512i s =
            load_twice(((const struct iq3_s *)(const void *)p)->signs);

        *a = _mm512_xor_si512(
            *a, BY_MATRICES(s, ALL_BITS(2, 1), ALL_BITS(32, 16), 0x88));
        *b = _mm512_xor_si512(
            *b, BY_MATRICES(s, ALL_BITS(8, 4), ALL_BITS(128, 64), 0x88));
    } else {
        const __m512i s = cut_sevens(
            load_twice(((const struct iq3_xxs *)(const void *)p)->s));

        *a = _mm512_or_si512(
            *a, BY_MATRICES(s, BITS_7_3(2, 1), BITS_7_3(32, 16), 0));
        /* the eighth sign is the parity of seven */
        *b = _mm512_or_si512(
            *b, BY_MATRICES(s, BITS_7_3(8, 4), BITS_7_3(127, 64), 0));
    }
}

/* Add the products of two fields from f on, whose codes are the nibbles of
 * v. */
INLINE void iq3_fields(enum dtype type, __m512i *s, __m512i v, int f,
                       const struct grid_x *x, size_t ldx, int T)
{
    const __m512i high = _mm512_set1_epi8((char)0xf0);
    const __m512i values = _mm512_broadcast_i32x4(_mm_setr_epi8(
        66, 74, 82, 90, 98, 106, 114, 124, 58, 50, 42, 34, 26, 18, 10, 0));

    if (type == DT_IQ3_S) { /* 16 times the nibbles */
        add_field(s, _mm512_and_si512(_mm512_slli_epi16(v, 4), high), f, x, ldx,
                  T);
        add_field(s, _mm512_and_si512(v, high), f + 1, x, ldx, T);
    } else { /* the higher bits of the indices do not matter */
        add_field(s, _mm512_permutexvar_epi8(v, values), f, x, ldx, T);
        add_field(s, _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), values),
                  f + 1, x, ldx, T);
    }
}

/* Return the numbers s of a superblock as add_scaled takes them. */
INLINE __m512i iq3_scale(enum dtype type, const unsigned char *p)
{
    int sc;

    if (type == DT_IQ3_XXS)
        return _mm512_srli_epi32(
            load_twice(((const struct iq3_xxs *)(const void *)p)->s), 28 - 19);
    memcpy(&sc, ((const struct iq3_s *)(const void *)p)->sc, 4);
    return _mm512_rolv_epi32(_mm512_set1_epi32(sc),
                             _mm512_setr_epi32(19, 15, 11, 7, 3, 31, 27, 23, 19,
                                               15, 11, 7, 3, 31, 27, 23));
}

/* Add the products of a superblock of each of R rows. */
INLINE void iq3_add(enum dtype type, __m512 acc[ROWS][TOKENS],
                    const struct grid_at *at, const struct grid_x *x,
                    size_t ldx, int R, int T, bool pairs)
{
    __m512i index[ROWS], a[ROWS], b[ROWS], s[TOKENS];
    struct chosen m[ROWS];

    UNROLL
    for (int r = 0; r < R; r++) {
        __mmask64 bit8;

        index[r] = iq3_index(type, at[r].w, &bit8);
        m[r] = choose_tables(index[r], bit8, 0);
    }
    look_up(a, table_of(type, 0), tables_of(type), index, m, R, pairs);
    look_up(b, table_of(type, 1), tables_of(type), index, m, R, pairs);
    UNROLL
    for (int r = 0; r < R; r++) {
        iq3_sign(type, a + r, b + r, at[r].w);
        begin_sums(s, 0, x, ldx, T);
        iq3_fields(type, s, a[r], 0, x, ldx, T);
        iq3_fields(type, s, b[r], 2, x, ldx, T);
        add_scaled(acc[r], s, _mm512_set1_ps(at[r].d[0]),
                   iq3_scale(type, at[r].w), 0, x, ldx, T);
    }
}

/* ---- IQ2 ---------------------------------------------------------------- */

/* Two superblocks: bytes of 64 indices and their higher bits, a byte of signs
 * for each point, and numbers s as add_scaled takes them. */
struct iq2_part {
    __m512i index, signs, scale[2];
    __mmask64 bit8, bit9;
};

INLINE void iq2_s_read(struct iq2_part *v, const struct iq2_s *a,
                       const struct iq2_s *b)
{
    const uint64_t even = 0x5555555555555555;
    uint64_t ha, hb;

    memcpy(&ha, a->h, 8);
    memcpy(&hb, b->h, 8);
    v->signs = _mm512_inserti64x4(_mm512_castsi256_si512(load32(a->signs)),
                                  load32(b->signs), 1);
    v->index = _mm512_inserti64x4(_mm512_castsi256_si512(load32(a->q)),
                                  load32(b->q), 1);
    v->bit8 = _pext_u64(ha, even) | _pext_u64(hb, even) << 32;
    v->bit9 = _pext_u64(ha, ~even) | _pext_u64(hb, ~even) << 32;
}

/* Join the bytes `at` of a and of b. b's come last. */
INLINE __m512i join_bytes(__m512i a, __m512i b, __m512i at)
{
    return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(at, a),
                                        0xffffffff00000000, at, b);
}

INLINE void iq2_xs_read(struct iq2_part *v, __m512i a, __m512i b)
{
    const __m512i at = _mm512_setr_epi64(
        0x0e0c0a0806040200, 0x1e1c1a1816141210, 0x2e2c2a2826242220,
        0x3e3c3a3836343230, 0x0e0c0a0806040200, 0x1e1c1a1816141210,
        0x2e2c2a2826242220, 0x3e3c3a3836343230);
    const __m512i high =
        join_bytes(a, b, _mm512_add_epi8(at, _mm512_set1_epi8(1)));

    v->index = join_bytes(a, b, at);
    v->bit8 = _mm512_test_epi8_mask(high, _mm512_set1_epi8(1));
    v->bit9 = 0;
    /* seven bits from bit 1 on, and above them their parity */
    v->signs = _mm512_gf2p8affine_epi64_epi8(
        high, _mm512_set1_epi64(0x02040810204080fe), 0);
}

INLINE void iq2_xxs_read(struct iq2_part *v, __m512i a, __m512i b)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                           20, 22, 24, 26, 28, 30);
    const __m512i s = _mm512_permutex2var_epi32(
        a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);

    v->index = _mm512_permutex2var_epi32(a, even, b);
    v->bit8 = v->bit9 = 0;
    /* seven bits, and above them their parity */
    v->signs = _mm512_gf2p8affine_epi64_epi8(
        cut_sevens(s), _mm512_set1_epi64(0x010204081020407f), 0);
    v->scale[0] = _mm512_srli_epi32(s, 28 - 19);
}

/* Unpack the scales of groups of 16: groups 8 L to 8 L + 3 for lanes 4 L to
 * 4 L + 3, and then the next four. */
INLINE void iq2_scales(struct iq2_part *v, const unsigned char a[8],
                       const unsigned char b[8])
{
    const __m512i lane =
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i by = _mm512_broadcast_i32x4(_mm_setr_epi32(19, 15, 11, 7));
    const __m128i bytes = _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)a),
                                             _mm_loadl_epi64((const void *)b));

    v->scale[0] = _mm512_rolv_epi32(
        _mm512_permutexvar_epi32(lane, _mm512_castsi128_si512(bytes)), by);
    v->scale[1] = _mm512_rol_epi32(v->scale[0], 16);
}

/* Read two superblocks, at p and next. */
INLINE struct iq2_part iq2_read(enum dtype type, const unsigned char *p,
                                const unsigned char *next)
{
    struct iq2_part v;

    if (type == DT_IQ2_S) {
        const struct iq2_s *a = (const void *)p, *b = (const void *)next;

        iq2_s_read(&v, a, b);
        iq2_scales(&v, a->sc, b->sc);
    } else if (type == DT_IQ2_XS) {
        const struct iq2_xs *a = (const void *)p, *b = (const void *)next;

        iq2_xs_read(&v, _mm512_loadu_si512(a->q), _mm512_loadu_si512(b->q));
        iq2_scales(&v, a->sc, b->sc);
    } else {
        iq2_xxs_read(&v, _mm512_loadu_si512(p + 2),
                     _mm512_loadu_si512(next + 2));
    }
    return v;
}

/* Codes of the first and of the second of two elements: bits 0 and 1 are the
 * first one's digit, bits 2 and 3 the second one's, bits 4 and 5 their signs. A
 * digit 3 does not occur. */
_Alignas(64) static const unsigned char first_code[64] = {
    51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43,
    35, 18, 0,  43, 35, 18, 0,  43, 35, 18, 0,  43, 35, 18, 0,  43,
    51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43,
    35, 18, 0,  43, 35, 18, 0,  43, 35, 18, 0,  43, 35, 18, 0,  43};
_Alignas(64) static const unsigned char second_code[64] = {
    51, 51, 51, 51, 68, 68, 68, 68, 86, 86, 86, 86, 43, 43, 43, 43,
    51, 51, 51, 51, 68, 68, 68, 68, 86, 86, 86, 86, 43, 43, 43, 43,
    35, 35, 35, 35, 18, 18, 18, 18, 0,  0,  0,  0,  43, 43, 43, 43,
    35, 35, 35, 35, 18, 18, 18, 18, 0,  0,  0,  0,  43, 43, 43, 43};

/* Add the products of four fields from f on. Each byte of v has four elements;
 * bits 4 to 7 of signs are theirs. */
INLINE void iq2_fields(__m512i *s, __m512i v, __m512i signs, int f,
                       const struct grid_x *x, size_t ldx, int T)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i first = _mm512_load_si512(first_code),
                  second = _mm512_load_si512(second_code);

    UNROLL
    for (int i = 0; i < 4; i += 2) {
        /* low ? v : signs */
        const __m512i index = _mm512_ternarylogic_epi32(v, signs, low, 0xe4);

        add_field(s, _mm512_permutexvar_epi8(index, first), f + i, x, ldx, T);
        add_field(s, _mm512_permutexvar_epi8(index, second), f + i + 1, x, ldx,
                  T);
        v = _mm512_srli_epi16(v, 4);
        signs = _mm512_srli_epi16(signs, 2);
    }
}

/* Add the products of two superblocks of a row, whose points have the elements
 * a and b. */
INLINE void iq2_products(enum dtype type, __m512 *acc, __m512i a, __m512i b,
                         const struct iq2_part *v, __m512 d32,
                         const struct grid_x *x, size_t ldx, int T)
{
    const __m512i upper = _mm512_slli_epi16(v->signs, 4); /* of a */
    __m512i s[2][TOKENS];

    begin_sums(s[0], 0, x, ldx, T);
    if (has_halves(type)) {
        begin_sums(s[1], 1, x, ldx, T);
        iq2_fields(s[0], _mm512_unpacklo_epi8(a, b),
                   _mm512_unpacklo_epi8(upper, v->signs), 0, x, ldx, T);
        iq2_fields(s[1], _mm512_unpackhi_epi8(a, b),
                   _mm512_unpackhi_epi8(upper, v->signs), 4, x, ldx, T);
        add_scaled(acc, s[0], d32, v->scale[0], 0, x, ldx, T);
        add_scaled(acc, s[1], d32, v->scale[1], 1, x, ldx, T);
        return;
    }
    UNROLL
    for (int t = 0; t < T; t++)
        s[1][t] = _mm512_setzero_si512();
    iq2_fields(s[0], a, upper, 0, x, ldx, T);
    iq2_fields(s[1], b, v->signs, 4, x, ldx, T);
    UNROLL
    for (int t = 0; t < T; t++)
        s[0][t] = _mm512_add_epi32(s[0][t], s[1][t]);
    add_scaled(acc, s[0], d32, v->scale[0], 0, x, ldx, T);
}

/* Add the products of two superblocks of each of R rows. A superblock without
 * another is multiplied by zeros, too. */
INLINE void iq2_add(enum dtype type, __m512 acc[ROWS][TOKENS],
                    const struct grid_at *at, bool alone,
                    const struct grid_x *x, size_t ldx, int R, int T,
                    bool pairs)
{
    const size_t bytes = chunk_bytes(type, CHUNK_RUNS);
    __m512i index[ROWS], a[ROWS], b[ROWS];
    struct iq2_part v[ROWS];
    struct chosen m[ROWS];

    UNROLL
    for (int r = 0; r < R; r++) {
        v[r] = iq2_read(type, at[r].w, at[r].w + (alone ? 0 : bytes));
        index[r] = v[r].index;
        m[r] = choose_tables(index[r], v[r].bit8, v[r].bit9);
    }
    look_up(a, table_of(type, 0), tables_of(type), index, m, R, pairs);
    look_up(b, table_of(type, 1), tables_of(type), index, m, R, pairs);
    UNROLL
    for (int r = 0; r < R; r++)
        iq2_products(type, acc[r], a[r], b[r], v + r,
                     _mm512_mask_broadcastss_ps(_mm512_set1_ps(at[r].d[0]),
                                                0xff00,
                                                _mm_load_ss(at[r].d + 1)),
                     x, ldx, T);
}

/* ---- rows --------------------------------------------------------------- */

/* Superblocks whose d are widened at once. */
enum { D_SUPERS = 8 };

/* Widen 32 d of n <= D_SUPERS superblocks; others have 0. */
INLINE void widen_d(float *out, const unsigned char *w, size_t bytes, size_t n)
{
    _Alignas(16) uint16_t h[D_SUPERS] = {0};

    if (n == D_SUPERS) {
        UNROLL
        for (size_t i = 0; i < D_SUPERS; i++)
            memcpy(h + i, w + i * bytes, 2);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(h + i, w + i * bytes, 2);
    }
    _mm256_store_ps(
        out, _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128((const void *)h)),
                           _mm256_set1_ps(32)));
}

/* Prefetch for a sweep that has come to p. Blocks straddle cache lines, so
 * lines in L2 are prefetched into L1 when the sweep is near. */
INLINE void sweep_near(const unsigned char *p, size_t ahead, bool to_l2)
{
    sweep_by(p, ahead, to_l2);
    if (to_l2)
        sweep_by(p, NEAR_BYTES, false);
}

/* How to multiply: constants of a function. */
struct grid_way {
    int T; /* tokens */
    bool to_l2, pairs;
};

/* Multiply up to ROWS rows of n superblocks by T tokens. A row without another
 * one is multiplied twice. */
INLINE void grid_row(enum dtype type, float *y, size_t ldy,
                     const unsigned char *w, size_t w_stride, size_t n_rows,
                     const struct grid_x *x, size_t ldx, size_t n, bool add,
                     struct grid_way by)
{
    const int R = ROWS, T = by.T;
    const size_t step = n_rows < ROWS ? 0 : w_stride;
    const size_t ahead = kernel_core.sweep_ahead;
    const size_t supers = part_supers(type);
    const size_t bytes = chunk_bytes(type, CHUNK_RUNS);
    __m512 acc[ROWS][TOKENS];

    UNROLL
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            acc[r][t] = _mm512_setzero_ps();
    for (size_t from = 0; from < n; from += D_SUPERS) {
        const size_t most = n - from < D_SUPERS ? n - from : D_SUPERS;
        _Alignas(32) float d[ROWS][D_SUPERS];

        UNROLL
        for (int r = 0; r < R; r++)
            widen_d(d[r], w + (size_t)r * step, bytes, most);
        for (size_t i = 0; i < most; i += supers, w += supers * bytes, x++) {
            struct grid_at at[ROWS];

            UNROLL
            for (int r = 0; r < R; r++) {
                at[r] = (struct grid_at){w + (size_t)r * step, d[r] + i};
                UNROLL
                for (size_t line = 0; line < supers * bytes; line += 64)
                    sweep_near(at[r].w + line, ahead, by.to_l2);
            }
            if (is_iq3(type))
                iq3_add(type, acc, at, x, ldx, R, T, by.pairs);
            else
                iq2_add(type, acc, at, most - i < 2, x, ldx, R, T, by.pairs);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T && (size_t)r < n_rows; t++) {
            float *to = y + (size_t)t * ldy + r;

            *to = sum_lanes(fold16(acc[r][t])) + (add ? *to : 0);
        }
}

INLINE void grid_sweep(enum dtype type, float *y, size_t ldy,
                       const unsigned char *w, size_t w_stride, size_t n_rows,
                       const struct grid_x *x, size_t ldx, size_t n, bool add,
                       struct grid_way by)
{
    for (size_t r = 0; r < n_rows; r += ROWS)
        grid_row(type, y + r, ldy, w + r * w_stride, w_stride, n_rows - r, x,
                 ldx, n, add, by);
}

/* Multiply all rows by T tokens. */
INLINE void grid_rows(enum dtype type, float *y, size_t ldy,
                      const unsigned char *w, size_t w_stride,
                      const struct q8 *x, size_t n_rows, size_t n_cols,
                      bool add, int T, float *work)
{
    const size_t supers = part_supers(type);
    const size_t bytes = chunk_bytes(type, CHUNK_RUNS);
    const size_t ldx = SEGMENT / SUPER / supers * sizeof(struct grid_x);
    char *arranged = (char *)work;
    size_t n;

    for (size_t c = 0; c < n_cols / SUPER; c += n, w += n * bytes) {
        n = n_cols / SUPER - c;
        n = n < SEGMENT / SUPER ? n : SEGMENT / SUPER;
        for (size_t t = 0; t < (size_t)T; t++)
            for (size_t i = 0; i < n; i += supers)
                grid_arrange(type,
                             (struct grid_x *)(void *)(arranged + t * ldx) +
                                 i / supers,
                             x->q + t * x->ldq + (c + i) * SUPER,
                             x->scale + t * x->ldg + (c + i) * CHUNK_RUNS,
                             n - i < supers ? n - i : supers);
        WITH_FLAG(to_l2, kernel_core.sweep_l2,
                  WITH_FLAG(pairs, kernel_core.permute_pairs,
                            grid_sweep(type, y, ldy, w, w_stride, n_rows,
                                       (const void *)arranged, ldx, n,
                                       add || c > 0,
                                       (struct grid_way){T, to_l2, pairs})));
    }
}

/* ---- kernels ------------------------------------------------------------ */

#define GEMM(name, TYPE)                                                     \
    static void k_gemm_q8_##name##_vbmi(                                     \
        float *y, size_t ldy, const void *w, size_t w_stride,                \
        const struct q8 *x, size_t n_rows, size_t n_cols, size_t n_tokens,   \
        bool add, float *work)                                               \
    {                                                                        \
        if (n_tokens > TOKENS) {                                             \
            kernels_get(ISA_AVX512)                                          \
                ->gemm_q8_blocks[TYPE - DT_BLOCKS](y, ldy, w, w_stride, x,   \
                                                   n_rows, n_cols, n_tokens, \
                                                   add, work);               \
            return;                                                          \
        }                                                                    \
        if (n_tokens > 0)                                                    \
            WITH_TOKENS(n_tokens, grid_rows(TYPE, y, ldy, w, w_stride, x,    \
                                            n_rows, n_cols, add, T, work));  \
    }

GEMM(iq3_xxs, DT_IQ3_XXS)
GEMM(iq3_s, DT_IQ3_S)
GEMM(iq2_xxs, DT_IQ2_XXS)
GEMM(iq2_xs, DT_IQ2_XS)
GEMM(iq2_s, DT_IQ2_S)

void k_blocks_vbmi_init(struct kernels *k)
{
    k->gemm_q8_blocks[DT_IQ3_XXS - DT_BLOCKS] = k_gemm_q8_iq3_xxs_vbmi;
    k->gemm_q8_blocks[DT_IQ3_S - DT_BLOCKS] = k_gemm_q8_iq3_s_vbmi;
    k->gemm_q8_blocks[DT_IQ2_XXS - DT_BLOCKS] = k_gemm_q8_iq2_xxs_vbmi;
    k->gemm_q8_blocks[DT_IQ2_XS - DT_BLOCKS] = k_gemm_q8_iq2_xs_vbmi;
    k->gemm_q8_blocks[DT_IQ2_S - DT_BLOCKS] = k_gemm_q8_iq2_s_vbmi;
    k_blocks_mxfp4_init(k);
}
