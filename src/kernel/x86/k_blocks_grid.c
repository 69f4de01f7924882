/* Products of rows of IQ2 and IQ3 with up to TOKENS tokens, for CPUs with
 * AVX-512 and byte permutations (VBMI, BITALG, GFNI).
 *
 * A permutation looks up 64 bytes in a table of 64. The tables of a grid, two
 * bytes a point, take a permutation for each 64 entries, merged by masks of the
 * higher bits of the indices. So the indices of 64 points are looked up at
 * once, and no element of a point is loaded from memory.
 *
 * A part of a row has 64 indices: one superblock of IQ3, two of IQ2. A vector
 * of magnitudes has one element of each point, in the order of the indices: a
 * field of the looked up bytes. The activations are put in this order first,
 * and change their signs where the weight is negative. All fields of a part are
 * added to one vector of integer sums, or to two if scales are for 16 elements
 * (IQ2_XS, IQ2_S): there the bytes of the first and the second half of points
 * alternate, so that a lane has two points.
 *
 * Order of sums. A row has one vector of sums, which takes the parts in
 * order. */
#include <immintrin.h>

#include "kernel/x86/k_blocks_codes.h"
#include "kernel/x86/k_zmm.h"

enum {
    TOKENS = 4,
    POINTS = 64,     /* of a part */
    SEGMENT = 16384, /* rows are cut into so many columns */
    MAX_FIELDS = 8
};

/* Activations of one token for a part. */
struct grid_x {
    int8_t q[MAX_FIELDS * POINTS]; /* fields one after another */
    float scale[2][16];
};

_Static_assert(TOKENS *(SEGMENT / SUPER) * sizeof(struct grid_x) <=
                   KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* If the type is a constant, the compiler knows the results of these
 * functions. */

INLINE bool is_iq3(enum dtype type)
{
    return type == DT_IQ3_XXS || type == DT_IQ3_S;
}

/* Superblocks of a part. */
INLINE size_t part_supers(enum dtype type)
{
    return is_iq3(type) ? 1 : 2;
}

/* Return the field, times POINTS, and the byte in it that multiply element e of
 * point i. */
INLINE size_t place_of(enum dtype type, size_t i, size_t e)
{
    if (!has_halves(type))
        return e * POINTS + i;
    return (i / 8 % 2 * 4 + e % 4) * POINTS + i / 16 * 16 + i % 8 * 2 + e / 4;
}

/* Return the first element that lane l of sum h multiplies. */
INLINE size_t first_of(enum dtype type, size_t h, size_t l)
{
    return !has_halves(type) ? SUPER * part_supers(type) / 16 * l
                             : 16 * (l / 4 * 8 + 4 * h + l % 4);
}

/* Return what is left of the scale of a weight, next to d * (2 s + 1). */
INLINE float unit_of(enum dtype type)
{
    return type == DT_IQ3_S ? 1 : is_iq3(type) ? 0.25f : 0.125f;
}

/* Arrange the activations of one token for a part with n superblocks. */
INLINE void grid_arrange(enum dtype type, struct grid_x *out, const int8_t *q,
                         const float *scale, size_t n)
{
    const size_t each = is_iq3(type) ? 4 : 8;
    const size_t n_sums = has_halves(type) ? 2 : 1;

    if (n < part_supers(type))
        memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n * SUPER / each; i++, q += each)
        for (size_t e = 0; e < each; e++)
            out->q[place_of(type, i, e)] = q[e];
    for (size_t h = 0; h < n_sums; h++)
        for (size_t l = 0; l < 16; l++) {
            const size_t at = first_of(type, h, l);

            if (at < n * SUPER)
                out->scale[h][l] = scale[at / RUN] * unit_of(type);
        }
}

/* ---- lookups ------------------------------------------------------------ */

/* Bits of 64 indices. The lower six choose an entry of a table, the others the
 * table. */
struct chosen {
    __mmask64 bit6, bit7, both, bit8, bit9;
};

INLINE struct chosen choose_tables(__m512i index, __mmask64 bit8,
                                   __mmask64 bit9)
{
    const __mmask64 bit7 = _mm512_movepi8_mask(index),
                    bit6 = _mm512_movepi8_mask(_mm512_add_epi8(index, index));

    return (struct chosen){.bit6 = bit6,
                           .bit7 = bit7,
                           .both = bit6 & bit7,
                           .bit8 = bit8,
                           .bit9 = bit9};
}

/* Look up indices of eight bits. The tables are merged in an order in which the
 * last one is right. */
INLINE __m512i look_up_256(const unsigned char *table, __m512i index,
                           const struct chosen *c)
{
    const __m512i *t = (const void *)table;
    __m512i v = _mm512_permutexvar_epi8(index, t[0]);

    v = _mm512_mask_permutexvar_epi8(v, c->bit6, index, t[1]);
    v = _mm512_mask_permutexvar_epi8(v, c->bit7, index, t[2]);
    return _mm512_mask_permutexvar_epi8(v, c->both, index, t[3]);
}

/* Look up indices in 4, 8 or 16 tables. */
INLINE __m512i look_up(const unsigned char *table, int n_tables, __m512i index,
                       const struct chosen *c)
{
    __m512i v = look_up_256(table, index, c), high;

    if (n_tables == 4)
        return v;
    v = _mm512_mask_blend_epi8(c->bit8, v, look_up_256(table + 256, index, c));
    if (n_tables == 8)
        return v;
    high = _mm512_mask_blend_epi8(c->bit8, look_up_256(table + 512, index, c),
                                  look_up_256(table + 768, index, c));
    return _mm512_mask_blend_epi8(c->bit9, v, high);
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

/* ---- products ----------------------------------------------------------- */

/* A part that is looked up. */
struct grid_part {
    __m512i a, b;  /* first and second halves of the points */
    __m512i signs; /* IQ3: a word of 64 bits for each run, of which the low 32
                      are signs; IQ2: a byte for each point */
    __m512i scale[2]; /* integers */
};

/* The activations of token t, of which those of token 0 are at x. */
#define x_of(x, t, ldx) \
    ((const struct grid_x *)((const char *)(x) + (size_t)(t) * (ldx)))

/* Add the products of field f of T tokens to s[t]. */
INLINE void add_field(__m512i *s, __m512i magnitudes, __mmask64 minus, int f,
                      const struct grid_x *x, size_t ldx, int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512i v = _mm512_load_si512(x_of(x, t, ldx)->q + POINTS * f);

        s[t] = _mm512_dpbusd_epi32(
            s[t], magnitudes,
            _mm512_mask_sub_epi8(v, minus, _mm512_setzero_si512(), v));
    }
}

/* Add sums times scales of weights and of activations to acc. */
INLINE void add_scaled(__m512 *acc, const __m512i *s, __m512 d, __m512i scale,
                       int h, const struct grid_x *x, size_t ldx, int T)
{
    const __m512 by = _mm512_mul_ps(_mm512_cvtepi32_ps(scale), d);

    UNROLL
    for (int t = 0; t < T; t++)
        acc[t] = _mm512_fmadd_ps(
            _mm512_cvtepi32_ps(s[t]),
            _mm512_mul_ps(by, _mm512_load_ps(x_of(x, t, ldx)->scale[h])),
            acc[t]);
}

/* Put the parity of seven bits above them, in each byte. */
INLINE __m512i with_parity(__m512i v)
{
    return _mm512_gf2p8affine_epi64_epi8(
        v, _mm512_set1_epi64(0x010204081020407f), 0);
}

/* Return 2 s + 1 for each nibble s that is the lowest of a lane. */
INLINE __m512i odd_of(__m512i nibbles)
{
    return _mm512_or_si512(_mm512_and_si512(_mm512_add_epi32(nibbles, nibbles),
                                            _mm512_set1_epi32(30)),
                           _mm512_set1_epi32(1));
}

/* ---- IQ3 ---------------------------------------------------------------- */

INLINE struct grid_part iq3_read(enum dtype type, const unsigned char *p)
{
    const __m512i index = _mm512_loadu_si512(p + 2);
    const __m512i run =
        _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    struct grid_part v;
    uint64_t bit8 = 0;
    struct chosen m;

    if (type == DT_IQ3_S) {
        const struct iq3_s *w = (const void *)p;
        int sc;

        memcpy(&bit8, w->h, 8);
        memcpy(&sc, w->sc, 4);
        v.signs = _mm512_cvtepu32_epi64(load32(w->signs));
        v.scale[0] = odd_of(_mm512_srlv_epi32(_mm512_set1_epi32(sc),
                                              _mm512_slli_epi32(run, 2)));
    } else {
        const __m256i s = load32(((const struct iq3_xxs *)(const void *)p)->s);

        v.signs = with_parity(_mm512_multishift_epi64_epi8(
            _mm512_set1_epi64(0x150e0700150e0700), _mm512_cvtepu32_epi64(s)));
        /* bit 27 is a sign, which the 1 replaces */
        v.scale[0] = _mm512_or_si512(
            _mm512_srli_epi32(
                _mm512_permutexvar_epi32(run, _mm512_castsi256_si512(s)), 27),
            _mm512_set1_epi32(1));
    }
    m = choose_tables(index, bit8, 0);
    v.a = look_up(table_of(type, 0), tables_of(type), index, &m);
    v.b = look_up(table_of(type, 1), tables_of(type), index, &m);
    return v;
}

/* Add the products of two fields from f on, whose elements are the nibbles of
 * v. */
INLINE void iq3_fields(enum dtype type, __m512i *s, __m512i v, __m512i signs,
                       int f, const struct grid_x *x, size_t ldx, int T)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i values = _mm512_broadcast_i32x4(_mm_setr_epi8(
        4, 12, 20, 28, 36, 44, 52, 62, 4, 12, 20, 28, 36, 44, 52, 62));
    /* signs of element 0 of eight points of a run */
    const __m512i first = _mm512_set1_epi64(0x1c1814100c080400);
    __m512i a = v, b = _mm512_srli_epi16(v, 4);

    if (type == DT_IQ3_S) {
        a = _mm512_and_si512(a, low);
        b = _mm512_and_si512(b, low);
    } else { /* bits 3 and 7 of v are 0 */
        a = _mm512_shuffle_epi8(values, a);
        b = _mm512_shuffle_epi8(values, b);
    }
    add_field(s, a,
              _mm512_bitshuffle_epi64_mask(
                  signs, _mm512_add_epi8(first, _mm512_set1_epi8((char)f))),
              f, x, ldx, T);
    add_field(
        s, b,
        _mm512_bitshuffle_epi64_mask(
            signs, _mm512_add_epi8(first, _mm512_set1_epi8((char)(f + 1)))),
        f + 1, x, ldx, T);
}

INLINE void iq3_add(enum dtype type, __m512 *acc, const struct grid_part *v,
                    __m512 d, const struct grid_x *x, size_t ldx, int T)
{
    __m512i s[2][TOKENS];

    UNROLL
    for (int t = 0; t < T; t++)
        s[0][t] = s[1][t] = _mm512_setzero_si512();
    iq3_fields(type, s[0], v->a, v->signs, 0, x, ldx, T);
    iq3_fields(type, s[1], v->b, v->signs, 2, x, ldx, T);
    UNROLL
    for (int t = 0; t < T; t++)
        s[0][t] = _mm512_add_epi32(s[0][t], s[1][t]);
    add_scaled(acc, s[0], d, v->scale[0], 0, x, ldx, T);
}

/* ---- IQ2 ---------------------------------------------------------------- */

/* The indices of two superblocks. */
struct iq2_index {
    __m512i byte;
    __mmask64 bit8, bit9;
};

INLINE struct iq2_index iq2_s_read(struct grid_part *v, const struct iq2_s *a,
                                   const struct iq2_s *b)
{
    const uint64_t even = 0x5555555555555555, odd = 0xaaaaaaaaaaaaaaaa;
    uint64_t ha, hb;

    memcpy(&ha, a->h, 8);
    memcpy(&hb, b->h, 8);
    v->signs = _mm512_inserti64x4(_mm512_castsi256_si512(load32(a->signs)),
                                  load32(b->signs), 1);
    return (struct iq2_index){
        .byte = _mm512_inserti64x4(_mm512_castsi256_si512(load32(a->q)),
                                   load32(b->q), 1),
        .bit8 = _pext_u64(ha, even) | _pext_u64(hb, even) << 32,
        .bit9 = _pext_u64(ha, odd) | _pext_u64(hb, odd) << 32};
}

INLINE struct iq2_index iq2_xs_read(struct grid_part *v, __m512i a, __m512i b)
{
    /* the low bytes of numbers of 16 bits: 0, 2, ..., 14 and so on */
    const __m512i at = _mm512_add_epi8(
        _mm512_set1_epi64(0x0e0c0a0806040200),
        _mm512_mullo_epi16(
            _mm512_set1_epi16(0x1010),
            _mm512_setr_epi64(0, 0x1000100010001 * 1, 0x1000100010001 * 2,
                              0x1000100010001 * 3, 0x1000100010001 * 4,
                              0x1000100010001 * 5, 0x1000100010001 * 6,
                              0x1000100010001 * 7)));
    const __m512i high = _mm512_permutex2var_epi8(
        a, _mm512_add_epi8(at, _mm512_set1_epi8(1)), b);

    /* seven bits from bit 1 on, and above them their parity */
    v->signs = _mm512_gf2p8affine_epi64_epi8(
        high, _mm512_set1_epi64(0x02040810204080fe), 0);
    return (struct iq2_index){
        .byte = _mm512_permutex2var_epi8(a, at, b),
        .bit8 = _mm512_test_epi8_mask(high, _mm512_set1_epi8(1)),
        .bit9 = 0};
}

INLINE struct iq2_index iq2_xxs_read(struct grid_part *v, __m512i a, __m512i b)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                           20, 22, 24, 26, 28, 30);
    const __m512i s = _mm512_permutex2var_epi32(
        a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);

    v->signs = with_parity(
        _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), s));
    v->scale[0] =
        _mm512_or_si512(_mm512_srli_epi32(s, 27), _mm512_set1_epi32(1));
    return (struct iq2_index){
        .byte = _mm512_permutex2var_epi32(a, even, b), .bit8 = 0, .bit9 = 0};
}

/* Unpack the scales of groups of 16: groups 8 L to 8 L + 3 for lanes 4 L to
 * 4 L + 3, and then the next four. */
INLINE void iq2_scales(struct grid_part *v, const unsigned char a[8],
                       const unsigned char b[8])
{
    const __m512i lane =
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i shift = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 4, 8, 12));
    const __m128i bytes = _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)a),
                                             _mm_loadl_epi64((const void *)b));
    const __m512i sc = _mm512_srlv_epi32(
        _mm512_permutexvar_epi32(lane, _mm512_castsi128_si512(bytes)), shift);

    v->scale[0] = odd_of(sc);
    v->scale[1] = odd_of(_mm512_srli_epi32(sc, 16));
}

/* Look up two superblocks, at p and next. */
INLINE struct grid_part iq2_read(enum dtype type, const unsigned char *p,
                                 const unsigned char *next)
{
    struct grid_part v;
    struct iq2_index index;
    struct chosen m;

    if (type == DT_IQ2_S) {
        const struct iq2_s *a = (const void *)p, *b = (const void *)next;

        index = iq2_s_read(&v, a, b);
        iq2_scales(&v, a->sc, b->sc);
    } else if (type == DT_IQ2_XS) {
        const struct iq2_xs *a = (const void *)p, *b = (const void *)next;

        index =
            iq2_xs_read(&v, _mm512_loadu_si512(a->q), _mm512_loadu_si512(b->q));
        iq2_scales(&v, a->sc, b->sc);
    } else {
        index = iq2_xxs_read(&v, _mm512_loadu_si512(p + 2),
                             _mm512_loadu_si512(next + 2));
    }
    m = choose_tables(index.byte, index.bit8, index.bit9);
    v.a = look_up(table_of(type, 0), tables_of(type), index.byte, &m);
    v.b = look_up(table_of(type, 1), tables_of(type), index.byte, &m);
    return v;
}

/* Add the products of four fields from f on. Each byte of v has four elements;
 * bits 7, 6, 5 and 4 of signs are those of elements 3 to 0. */
INLINE void iq2_fields(__m512i *s, __m512i v, __m512i signs, int f,
                       const struct grid_x *x, size_t ldx, int T)
{
    const __m512i low = _mm512_set1_epi8(15);
    /* the elements of two digits: the low one and the high one */
    const __m512i even = _mm512_broadcast_i32x4(
        _mm_setr_epi8(8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0, 0, 0, 0, 0));
    const __m512i odd = _mm512_broadcast_i32x4(
        _mm_setr_epi8(8, 8, 8, 0, 25, 25, 25, 0, 43, 43, 43, 0, 0, 0, 0, 0));
    const __m512i a = _mm512_and_si512(v, low),
                  b = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    const __m512i magnitudes[4] = {
        _mm512_shuffle_epi8(even, a), _mm512_shuffle_epi8(odd, a),
        _mm512_shuffle_epi8(even, b), _mm512_shuffle_epi8(odd, b)};

    UNROLL
    for (int i = 0; i < 4; i++)
        add_field(
            s, magnitudes[i],
            _mm512_test_epi8_mask(signs, _mm512_set1_epi8((char)(16 << i))),
            f + i, x, ldx, T);
}

INLINE void iq2_add(enum dtype type, __m512 *acc, const struct grid_part *v,
                    __m512 d, const struct grid_x *x, size_t ldx, int T)
{
    const __m512i upper = _mm512_slli_epi16(v->signs, 4); /* of a */
    __m512i s[2][TOKENS];

    UNROLL
    for (int t = 0; t < T; t++)
        s[0][t] = s[1][t] = _mm512_setzero_si512();
    if (has_halves(type)) {
        iq2_fields(s[0], _mm512_unpacklo_epi8(v->a, v->b),
                   _mm512_unpacklo_epi8(upper, v->signs), 0, x, ldx, T);
        iq2_fields(s[1], _mm512_unpackhi_epi8(v->a, v->b),
                   _mm512_unpackhi_epi8(upper, v->signs), 4, x, ldx, T);
        add_scaled(acc, s[0], d, v->scale[0], 0, x, ldx, T);
        add_scaled(acc, s[1], d, v->scale[1], 1, x, ldx, T);
    } else {
        iq2_fields(s[0], v->a, upper, 0, x, ldx, T);
        iq2_fields(s[1], v->b, v->signs, 4, x, ldx, T);
        UNROLL
        for (int t = 0; t < T; t++)
            s[0][t] = _mm512_add_epi32(s[0][t], s[1][t]);
        add_scaled(acc, s[0], d, v->scale[0], 0, x, ldx, T);
    }
}

/* ---- rows --------------------------------------------------------------- */

/* Superblocks whose d are widened at once. */
enum { D_SUPERS = 8 };

/* Widen d of n <= D_SUPERS superblocks; others have 0. */
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
    _mm256_store_ps(out, _mm256_cvtph_ps(_mm_load_si128((const void *)h)));
}

INLINE struct grid_part grid_read(enum dtype type, const unsigned char *w,
                                  size_t bytes, size_t left)
{
    return is_iq3(type) ? iq3_read(type, w)
                        /* a superblock without another is multiplied by
                           zeros, too */
                        : iq2_read(type, w, left > 1 ? w + bytes : w);
}

/* Multiply a row of n superblocks by T tokens. Each part is looked up while the
 * part before it is multiplied. */
INLINE void grid_row(enum dtype type, float *y, size_t ldy,
                     const unsigned char *w, const struct grid_x *x, size_t ldx,
                     size_t n, bool add, int T)
{
    const size_t supers = part_supers(type);
    const size_t bytes = chunk_bytes(type, CHUNK_RUNS);
    struct grid_part part = grid_read(type, w, bytes, n);
    __m512 acc[TOKENS];

    UNROLL
    for (int t = 0; t < T; t++)
        acc[t] = _mm512_setzero_ps();
    for (size_t from = 0; from < n; from += D_SUPERS) {
        const size_t most = n - from < D_SUPERS ? n - from : D_SUPERS;
        _Alignas(32) float d[D_SUPERS];

        widen_d(d, w, bytes, most);
        for (size_t i = 0; i < most; i += supers, x++) {
            const struct grid_part now = part;
            const size_t left = n - from - i;

            UNROLL
            for (size_t line = 0; line < supers * bytes; line += 64)
                sweep(w + line);
            if (left > supers) {
                w += supers * bytes;
                part = grid_read(type, w, bytes, left - supers);
            }
            if (is_iq3(type))
                iq3_add(type, acc, &now, _mm512_set1_ps(d[i]), x, ldx, T);
            else
                iq2_add(type, acc, &now,
                        _mm512_insertf32x8(_mm512_set1_ps(d[i]),
                                           _mm256_set1_ps(d[i + 1]), 1),
                        x, ldx, T);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = y + (size_t)t * ldy;

        *to = sum_lanes(fold16(acc[t])) + (add ? *to : 0);
    }
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
        for (size_t r = 0; r < n_rows; r++)
            grid_row(type, y + r, ldy, w + r * w_stride, (const void *)arranged,
                     ldx, n, add || c > 0, T);
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
}
