/* attn_block, over the SIMD shim: attention in f32, always summed in the same
 * order. Included by k_f32.h after k_f32_elements.h.
 *
 * A tile is up to ATTN_ROWS query rows and one block of keys and values. For a
 * tile we compute all scores, then the exponentials, then the products with the
 * values. Tiling decides only which operations are done side by side, never the
 * order of sums: a score has one accumulator of VEC_LANES lanes, and acc adds
 * positions in ascending order. */
#ifndef KERNEL_K_F32_ATTN_H
#define KERNEL_K_F32_ATTN_H

#if !defined KERNEL || !defined VEC_LANES || !defined VEC_MASKS || \
    !defined ATTN_ROWS || !defined ATTN_VALUES || !defined ATTN_PREFETCH
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

_Static_assert(KV_I8_GROUP % (2 * VEC_LANES) == 0 && KV_BLOCK % VEC_LANES == 0,
               "whole vectors");
_Static_assert(ATTN_ROWS == 3 || ATTN_ROWS > 4, "attn_tiles");

/* WIDEN_ROWS: with more rows than this, a block is used at least three times,
 * and it pays to widen it once. SOFTMAX_FETCH: the exponentials of a row take
 * as long as this many positions of a sweep that prefetches. */
enum { WIDEN_ROWS = 2 * ATTN_ROWS, SOFTMAX_FETCH = 16 };

/* Elements of a head in the innermost loops. */
enum { ATTN_RUN = 32 };

/* acc and the weights of an int8 block are multiplied by this while values are
 * added. Otherwise the rounding of a weight below FLT_MIN, times a value of up
 * to 128, would be a larger error than the rounding of their product. */
#define I8_UP 128.0f

/* ---- prefetches --------------------------------------------------------- */

/* Data that a sweep over keys or values prefetches for the next sweep: `step`
 * bytes for each position, from `at` on. step is 0 if the next sweep reads
 * scratch, which needs no prefetch. */
struct prefetch {
    const char *at;
    size_t step;
    bool to_l2; /* a compile-time constant in hot loops */
};

/* Prefetch the bytes for n more positions. */
INLINE void prefetch_positions(struct prefetch *a, size_t n)
{
    for (size_t i = 0; i < n * a->step; i += 64)
        sweep_by(a->at + i, 0, a->to_l2);
    a->at += n * a->step;
}

/* ---- blocks ------------------------------------------------------------- */

/* Return the bytes of a block of keys or values. */
INLINE size_t block_bytes(size_t d, enum dtype type)
{
    size_t scales = type == DT_I8 ? kv_i8_groups(d) * sizeof(float) : 0;

    return KV_BLOCK * (d * type_bytes(type) + scales);
}

/* Prefetch the scales of an int8 block, where the prefetches of its elements
 * begin. All scales are needed before the last elements. */
INLINE void prefetch_scales(const struct prefetch *block, size_t d)
{
    struct prefetch scales = {block->at + KV_BLOCK * d,
                              kv_i8_groups(d) * sizeof(float), block->to_l2};

    prefetch_positions(&scales, KV_BLOCK);
}

/* Return the scale of element e of position j of an int8 block, in all
 * lanes. */
INLINE vec kv_scale(const char *block, size_t d, size_t j, size_t e)
{
    size_t at = j * kv_i8_groups(d) + e / KV_I8_GROUP;

    return vec_set1(load_float(block + KV_BLOCK * d + at * sizeof(float)));
}

/* Widen n elements of an int8 block to f32, starting at element e of position
 * j. */
INLINE void widen_vec(float *out, const char *block, size_t d, size_t j,
                      size_t e, size_t n)
{
    vec_store(
        out + j * d + e,
        vec_load_as(block + j * d + e, n, DT_I8) * kv_scale(block, d, j, e), n);
}

/* Widen an int8 block to f32. */
static void attn_widen_i8(float *out, const char *block, size_t d)
{
    for (size_t j = 0; j < KV_BLOCK; j++) {
        size_t e = 0;

        for (; d - e >= VEC_LANES; e += VEC_LANES)
            widen_vec(out, block, d, j, e, VEC_LANES);
        if (e < d)
            widen_vec(out, block, d, j, e, d - e);
    }
}

/* ---- scores ------------------------------------------------------------- */

/* The query rows of a tile: f32, or int16 for an int8 block. */
struct queries {
    const float *f32;
    const int16_t *i16; /* padded with zeros to whole groups */
    size_t ld;          /* elements from row to row */
};

/* Add products of n <= VEC_LANES elements, starting at element e of the head,
 * to a[t * P + r], for positions j + r of the block k and T query rows t. */
INLINE void score_last(vec *a, struct queries q, const char *k, size_t j,
                       size_t d, size_t e, size_t n, int P, int T,
                       enum dtype type)
{
    const size_t bytes = type_bytes(type);
    vec qv[ATTN_ROWS];

    UNROLL
    for (int t = 0; t < T; t++)
        qv[t] = vec_load(q.f32 + (size_t)t * q.ld + e, n);
    UNROLL
    for (int r = 0; r < P; r++) {
        const size_t at = j + (size_t)r;
        const vec kv = vec_load_as(k + (at * d + e) * bytes, n, type);

        UNROLL
        for (int t = 0; t < T; t++)
            a[t * P + r] = vec_fma(kv, qv[t], a[t * P + r]);
    }
}

/* Prefetch for the next positions, at the first vector of position r of P. */
INLINE void score_prefetch(struct prefetch *part, int r, int P)
{
    if (r % ATTN_PREFETCH == 0)
        prefetch_positions(part,
                           (size_t)(P < ATTN_PREFETCH ? P : ATTN_PREFETCH));
}

/* Compute a[t * P + r] = q_t . k_(j + r), lane by lane, for P positions and T
 * rows. part: one step per ATTN_RUN elements. */
INLINE void score_sums(vec *a, struct queries q, const char *k, size_t j,
                       size_t d, int P, int T, enum dtype type,
                       struct prefetch *part)
{
    const size_t bytes = type_bytes(type), row = d * bytes;
    const char *kj = k + j * row;
    vec qv[ATTN_ROWS];
    size_t e = 0;

    for (; e + ATTN_RUN <= d; e += ATTN_RUN) {
        UNROLL
        for (size_t h = e; h < e + ATTN_RUN; h += VEC_LANES) {
            UNROLL
            for (int t = 0; t < T; t++)
                qv[t] = vec_load(q.f32 + (size_t)t * q.ld + h, VEC_LANES);
            UNROLL
            for (int r = 0; r < P; r++) {
                vec kv;

                if (h == e)
                    score_prefetch(part, r, P);
                kv = vec_load_as(kj + (size_t)r * row + h * bytes, VEC_LANES,
                                 type);
                UNROLL
                for (int t = 0; t < T; t++)
                    a[t * P + r] = vec_fma(kv, qv[t], a[t * P + r]);
            }
        }
    }
    for (; !VEC_MASKS && d - e >= VEC_LANES; e += VEC_LANES)
        score_last(a, q, k, j, d, e, VEC_LANES, P, T, type);
    for (; e < d; e += VEC_LANES)
        score_last(a, q, k, j, d, e, d - e, P, T, type);
}

/* Do the work of score_sums for an int8 block. The sum of a group is exact, and
 * only that sum is converted to f32 and multiplied by the scale. The last group
 * may reach into the next position or into the scales, where the query is 0. */
INLINE void score_sums_i8(vec *a, struct queries q, const char *k, size_t j,
                          size_t d, int P, int T, struct prefetch *part)
{
    enum { N = KV_I8_GROUP / (2 * VEC_LANES) };
    const char *kj = k + j * d;
    vec_ints qv[ATTN_ROWS][N], kv[N];

    for (size_t e = 0; e < d; e += KV_I8_GROUP) {
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (size_t h = 0; h < N; h++)
                qv[t][h] = vec_load_i16(q.i16 + (size_t)t * q.ld + e +
                                        2 * VEC_LANES * h);
        }
        UNROLL
        for (int r = 0; r < P; r++) {
            const vec scale = kv_scale(k, d, j + (size_t)r, e);

            if (r == 0)
                prefetch_positions(part, (size_t)P);
            UNROLL
            for (size_t h = 0; h < N; h++)
                kv[h] =
                    vec_widen_i8(kj + (size_t)r * d + e + 2 * VEC_LANES * h);
            UNROLL
            for (int t = 0; t < T; t++) {
                vec_ints sum = vec_mul_pairs(kv[0], qv[t][0]);

                UNROLL
                for (size_t h = 1; h < N; h++)
                    sum = vec_ints_add(sum, vec_mul_pairs(kv[h], qv[t][h]));
                a[t * P + r] = vec_fma(vec_from_ints(sum), scale, a[t * P + r]);
            }
        }
    }
}

/* Compute s[t * KV_BLOCK + r] = q_t . k_(j + r) for P positions (1, 4 or
 * vec_dots_at_once) and T rows. */
INLINE void score_tile(float *s, struct queries q, const char *k, size_t j,
                       size_t d, int P, int T, enum dtype type,
                       struct prefetch *next)
{
    struct prefetch part = {next->at, next->step * ATTN_RUN / d, next->to_l2};
    vec a[16 > 4 * ATTN_ROWS ? 16 : 4 * ATTN_ROWS];

    UNROLL
    for (int i = 0; i < P * T; i++)
        a[i] = vec_zero();
    if (type == DT_I8)
        score_sums_i8(a, q, k, j, d, P, T, &part);
    else
        score_sums(a, q, k, j, d, P, T, type, &part);
    next->at += (size_t)P * next->step;
    vec_store_dots(s, a, P, T);
}

/* Compute scores[t * KV_BLOCK + j] = q_t . k_j for T rows of q and j in [lo,
 * hi). */
INLINE void attn_scores(float *scores, struct queries q, const char *k,
                        size_t d, int lo, int hi, int T, enum dtype type,
                        struct prefetch *next)
{
    const size_t most = vec_dots_at_once(T);
    size_t j = (size_t)lo, end = (size_t)hi;

    for (; j + most <= end; j += most)
        score_tile(scores + j, q, k, j, d, (int)most, T, type, next);
    for (; most > 4 && j + 4 <= end; j += 4)
        score_tile(scores + j, q, k, j, d, 4, T, type, next);
    for (; j < end; j++)
        score_tile(scores + j, q, k, j, d, 1, T, type, next);
}

/* Round a query row to multiples of a power of two, as attn_block says. out
 * has whole groups. Returns the power of two, or NaN if an element is not
 * finite. */
INLINE float query_to_i16(int16_t *out, const float *q, size_t d)
{
    const size_t end = kv_i8_groups(d) * KV_I8_GROUP;
    vec_ints most = vec_ints_zero();
    uint32_t exponent;
    size_t e = 0;
    vec up;

    for (; d - e >= VEC_LANES; e += VEC_LANES)
        most = vec_max_size(most, vec_load(q + e, VEC_LANES));
    if (e < d)
        most = vec_max_size(most, vec_load(q + e, d - e));
    exponent = (uint32_t)vec_max_lane(vec_exponents(most));
    if (exponent == 255)
        return NAN;
    exponent = exponent > 14 ? exponent : 15;
    up = vec_set1(power_of_two(267 - exponent));
    for (e = 0; d - e >= 2 * VEC_LANES; e += 2 * VEC_LANES)
        vec_store_i16(out + e, up * vec_load(q + e, VEC_LANES),
                      up * vec_load(q + e + VEC_LANES, VEC_LANES));
    for (; e < end; e += 2 * VEC_LANES) {
        const size_t left = e < d ? d - e : 0;
        const size_t more = left > VEC_LANES ? left - VEC_LANES : 0;

        vec_store_i16(out + e, up * vec_load(q + e, left),
                      up * vec_load(q + e + VEC_LANES, more));
    }
    return power_of_two(exponent - 13);
}

/* ---- exponentials ------------------------------------------------------- */

/* Compute scores = exp(s - shift) and return their sum. flush: small results
 * may become 0. */
INLINE float attn_exp(float *scores, vec *s, float shift, bool flush)
{
    enum { N = KV_BLOCK / VEC_LANES };

    UNROLL
    for (int c = 0; c < N; c++) {
        s[c] -= vec_set1(shift);
        s[c] = flush ? vec_exp_flush(s[c]) : vec_exp(s[c]);
        vec_store(scores + VEC_LANES * c, s[c], VEC_LANES);
    }
    UNROLL
    for (int half = 1; half < N; half *= 2) {
        UNROLL
        for (int c = 0; c < N; c += 2 * half)
            s[c] += s[c + half];
    }
    return vec_sum(s[0]);
}

/* Multiply the scores of row i by step, cap them, turn them into
 * exp(score - m), or 0 outside [lo, hi), and update m, l and acc for the new
 * maximum. flush: see
 * attn_exp. It is not inlined, because 48 copies of its exponentials would take
 * a quarter of the time to compile a level. A call is cheap beside the work on
 * KV_BLOCK scores. */
OUTLINE void attn_softmax(const struct attn_rows *rows, size_t i, float *scores,
                          float step, size_t d, bool flush)
{
    vec s[KV_BLOCK / VEC_LANES], most = vec_set1(-INFINITY);
    float old = rows->m[i], top, shift, sum, keep;

    if (rows->cap > 0) {
        float *visible = scores + rows->lo[i];
        const size_t n = (size_t)(rows->hi[i] - rows->lo[i]);

        KERNEL(scale)(visible, step, n);
        KERNEL(cap)(visible, rows->cap, n);
        step = 1;
    }
    vec_load_range(s, scores, rows->lo[i], rows->hi[i]);
    UNROLL
    for (int c = 0; c < KV_BLOCK / VEC_LANES; c++) {
        s[c] *= vec_set1(step);
        most = vec_max(s[c], most); /* skips NaN */
    }
    top = vec_max_lane(most);
    top = top > old ? top : old;
    /* if all scores so far are -INFINITY, their weights are exp(-INFINITY) and
     * not exp(NaN) */
    shift = top == -INFINITY ? 0 : top;
    sum = attn_exp(scores, s, shift, flush);
    rows->m[i] = top;
    if (top == old) {
        rows->l[i] += sum;
        return;
    }
    keep = exp1(old - shift);
    rows->l[i] = rows->l[i] * keep + sum;
    KERNEL(scale)(rows->acc + i * d, keep, d);
}

/* ---- values ------------------------------------------------------------- */

/* Return the number of weights of a position j: p_j, or for each group of an
 * int8 block, I8_UP * p_j * scale. */
INLINE size_t n_weights(size_t d, enum dtype type)
{
    return type == DT_I8 ? kv_i8_groups(d) : 1;
}

/* Compute the weights of a row for the positions [lo, hi) of an int8 block. It
 * may overwrite VEC_LANES - 1 floats after the last weight, and read as many
 * after the last p. */
INLINE void weights_i8(float *w, const float *p, const char *v, size_t d,
                       int lo, int hi)
{
    const size_t groups = kv_i8_groups(d), all = KV_BLOCK * groups;
    const char *scales = v + KV_BLOCK * d;
    const bool some = VEC_LANES % groups == 0; /* positions in a vector */
    const size_t step = some ? VEC_LANES / groups : 1;

    for (size_t j = (size_t)lo; j < (size_t)hi; j += step) {
        const size_t at = j * groups, end = some ? all : at + groups;
        const vec pj = (some ? vec_spread(p + j, groups) : vec_set1(p[j])) *
                       vec_set1(I8_UP);

        for (size_t i = at; i < at + step * groups; i += VEC_LANES)
            vec_store(
                w + i,
                pj * vec_load_as(scales + i * sizeof(float), end - i, DT_F32),
                VEC_LANES);
    }
}

/* Add the sum over j in [lo, hi), ascending, of w_j v_j to acc, for R rows and
 * NV vectors of elements, starting at element e. Only the first n lanes of the
 * last vector count. In an int8 block, e is the beginning of a group, or NV is
 * 1. */
INLINE void attn_values(float *acc, size_t d, const float *w, const char *v,
                        size_t e, int lo, int hi, int R, int NV, size_t n,
                        enum dtype type, struct prefetch *next)
{
    const size_t bytes = type_bytes(type), n_w = n_weights(d, type);
    vec a[ATTN_ROWS][ATTN_VALUES], wj[ATTN_ROWS];

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int u = 0; u < NV; u++) {
            const float *from = acc + (size_t)i * d + e + VEC_LANES * (size_t)u;

            a[i][u] =
                u < NV - 1 ? vec_load(from, VEC_LANES) : vec_load(from, n);
        }
    }
    for (size_t j = (size_t)lo; j < (size_t)hi; j++) {
        const char *vj = v + (j * d + e) * bytes;

        if (j % ATTN_PREFETCH == 0)
            prefetch_positions(next, ATTN_PREFETCH);
        UNROLL
        for (int u = 0; u < NV; u++) {
            const char *from = vj + VEC_LANES * (size_t)u * bytes;
            const size_t g = (e + VEC_LANES * (size_t)u) / KV_I8_GROUP;
            const float *wu = w + j * n_w + (type == DT_I8 ? g : 0);
            const vec vv = u < NV - 1 ? vec_load_as(from, VEC_LANES, type)
                                      : vec_load_as(from, n, type);

            UNROLL
            for (int i = 0; i < R; i++) {
                if (u == 0 ||
                    (type == DT_I8 && u * VEC_LANES % KV_I8_GROUP == 0))
                    wj[i] = vec_set1(wu[(size_t)i * KV_BLOCK * n_w]);
                a[i][u] = vec_fma(wj[i], vv, a[i][u]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int u = 0; u < NV; u++) {
            float *to = acc + (size_t)i * d + e + VEC_LANES * (size_t)u;

            if (u < NV - 1)
                vec_store(to, a[i][u], VEC_LANES);
            else
                vec_store(to, a[i][u], n);
        }
    }
}

/* Do the work of attn_values for all elements of a head. */
INLINE void attn_value_rows(float *acc, size_t d, const float *w, const char *v,
                            int lo, int hi, int R, enum dtype type,
                            struct prefetch *next)
{
    enum { MOST = ATTN_VALUES * VEC_LANES, FOUR = 4 * VEC_LANES };
    struct prefetch part = {next->at, 0, next->to_l2};
    size_t e = 0;

    if (lo >= hi)
        return;
    part.step = next->step * MOST / d;
    for (; MOST > FOUR && R <= 2 && e + MOST <= d; e += MOST)
        attn_values(acc, d, w, v, e, lo, hi, R, ATTN_VALUES, VEC_LANES, type,
                    &part);
    part.step = next->step * FOUR / d;
    for (; e + FOUR <= d; e += FOUR)
        attn_values(acc, d, w, v, e, lo, hi, R, 4, VEC_LANES, type, &part);
    part.step = next->step * VEC_LANES / d;
    for (; !VEC_MASKS && e + VEC_LANES <= d; e += VEC_LANES)
        attn_values(acc, d, w, v, e, lo, hi, R, 1, VEC_LANES, type, &part);
    for (; e < d; e += VEC_LANES)
        attn_values(acc, d, w, v, e, lo, hi, R, 1, d - e, type, &part);
    next->at = part.at;
}

/* ---- tiles -------------------------------------------------------------- */

/* Compute attention for query rows [i, i + T) with scratch space s. To keep
 * memory busy, it prefetches the values while it reads the keys, and once it
 * starts on the exponentials it prefetches the keys of the next call. */
INLINE void attn_rows_tile(const struct attn_rows *rows, size_t i, float *s,
                           const char *k, const char *v, size_t d, int T,
                           enum dtype type, struct prefetch *values,
                           struct prefetch *next)
{
    const size_t bytes = type == DT_F32 ? 0 : KV_BLOCK * d * type_bytes(type);
    int lo = KV_BLOCK, hi = 0;       /* positions of at least one row */
    int in_lo = 0, in_hi = KV_BLOCK; /* positions of every row */
    const size_t n_w = n_weights(d, type);
    struct queries q = {.f32 = rows->q + i * rows->ldq, .ld = rows->ldq};
    float *acc = rows->acc + i * d, *w = s, step[ATTN_ROWS];

    for (size_t t = i; t < i + (size_t)T; t++) {
        if (rows->lo[t] < rows->hi[t]) {
            lo = rows->lo[t] < lo ? rows->lo[t] : lo;
            hi = rows->hi[t] > hi ? rows->hi[t] : hi;
        }
        in_lo = rows->lo[t] > in_lo ? rows->lo[t] : in_lo;
        in_hi = rows->hi[t] < in_hi ? rows->hi[t] : in_hi;
    }
    if (lo >= hi)
        return;
    /* each tile prefetches its share */
    values->step = bytes * (size_t)T / (KV_BLOCK * rows->n);
    next->step = bytes * (size_t)T / ((KV_BLOCK + SOFTMAX_FETCH) * rows->n);
    if (type == DT_I8 && i == 0)
        prefetch_scales(values, d);
    if (type == DT_I8) {
        int16_t *to = (int16_t *)(void *)(s + T * KV_BLOCK);

        q.i16 = to;
        q.ld = n_w * KV_I8_GROUP;
        for (size_t t = 0; t < (size_t)T; t++)
            step[t] = query_to_i16(to + t * q.ld, q.f32 + t * rows->ldq, d);
        w = (float *)(void *)(to + (size_t)T * q.ld);
    }
    attn_scores(s, q, k, d, lo, hi, T, type, values);
    if (type == DT_I8 && i == 0)
        prefetch_scales(next, d);
    for (size_t t = 0; t < (size_t)T; t++) {
        prefetch_positions(next, SOFTMAX_FETCH / (size_t)T);
        if (rows->lo[i + t] < rows->hi[i + t])
            attn_softmax(rows, i + t, s + t * KV_BLOCK,
                         type == DT_I8 ? step[t] : 1, d, false);
    }
    for (size_t t = 0; type == DT_I8 && t < (size_t)T; t++)
        if (rows->lo[i + t] < rows->hi[i + t]) {
            weights_i8(w + t * KV_BLOCK * n_w, s + t * KV_BLOCK, v, d,
                       rows->lo[i + t], rows->hi[i + t]);
            KERNEL(scale)(acc + t * d, I8_UP, d);
        }
    /* Each row adds its own positions before and after the common ones. A
     * position outside a row's range must not affect it, not even multiplied
     * by 0. */
    if (T == 1 || in_lo >= in_hi)
        in_lo = in_hi = KV_BLOCK;
    for (int after = 0; after < (T == 1 ? 1 : 2); after++) {
        for (size_t t = 0; t < (size_t)T; t++) {
            const int from = after ? in_hi : 0, to = after ? KV_BLOCK : in_lo;
            const int a = rows->lo[i + t], b = rows->hi[i + t];

            attn_value_rows(acc + t * d, d, w + t * KV_BLOCK * n_w, v,
                            a > from ? a : from, b < to ? b : to, 1, type,
                            next);
        }
        if (T > 1 && !after)
            attn_value_rows(acc, d, w, v, in_lo, in_hi, T, type, next);
    }
    for (size_t t = 0; type == DT_I8 && t < (size_t)T; t++)
        if (rows->lo[i + t] < rows->hi[i + t])
            KERNEL(scale)(acc + t * d, 1 / I8_UP, d);
}

INLINE void attn_tiles(const struct attn_rows *rows, const char *k,
                       const char *v, size_t d, float *s, enum dtype type,
                       bool to_l2)
{
    struct prefetch values = {v, 0, to_l2};
    struct prefetch next = {rows->next ? rows->next : v + block_bytes(d, type),
                            0, to_l2};
    size_t i = 0;

    for (; rows->n - i >= ATTN_ROWS; i += ATTN_ROWS)
        attn_rows_tile(rows, i, s, k, v, d, ATTN_ROWS, type, &values, &next);
    for (; ATTN_ROWS > 4 && rows->n - i >= 4; i += 4)
        attn_rows_tile(rows, i, s, k, v, d, 4, type, &values, &next);
    for (; rows->n - i >= 2; i += 2)
        attn_rows_tile(rows, i, s, k, v, d, 2, type, &values, &next);
    for (; i < rows->n; i++)
        attn_rows_tile(rows, i, s, k, v, d, 1, type, &values, &next);
}

/* Attend with all rows. Heads of 128 elements (Qwen3's) get code in which all
 * strides and the kind of prefetch are constants. */
INLINE void attn_all_rows(const struct attn_rows *rows, const char *k,
                          const char *v, size_t d, float *s, enum dtype type)
{
    if (d != 128)
        attn_tiles(rows, k, v, d, s, type, kernel_core.sweep_l2);
    else if (kernel_core.sweep_l2)
        attn_tiles(rows, k, v, 128, s, type, true);
    else
        attn_tiles(rows, k, v, 128, s, type, false);
}

static void KERNEL(attn_block_f32)(const struct attn_rows *rows, const void *k,
                                   const void *v, size_t d, float *scratch)
{
    attn_all_rows(rows, k, v, d, scratch, DT_F32);
}

INLINE void attn_block_16(const struct attn_rows *rows, const void *k,
                          const void *v, size_t d, float *scratch,
                          enum dtype type)
{
    size_t n = KV_BLOCK * d;

    if (rows->n <= WIDEN_ROWS) {
        attn_all_rows(rows, k, v, d, scratch, type);
        return;
    }
    to_f32(scratch, k, n, type);
    to_f32(scratch + n, v, n, type);
    KERNEL(attn_block_f32)(rows, scratch, scratch + n, d, scratch + 2 * n);
}

#define ATTN_BLOCK(name, type)                                             \
    static void KERNEL(attn_block_##name)(const struct attn_rows *rows,    \
                                          const void *k, const void *v,    \
                                          size_t head_dim, float *scratch) \
    {                                                                      \
        attn_block_16(rows, k, v, head_dim, scratch, type);                \
    }

ATTN_BLOCK(f16, DT_F16)
ATTN_BLOCK(bf16, DT_BF16)

static void KERNEL(attn_block_i8)(const struct attn_rows *rows, const void *k,
                                  const void *v, size_t d, float *scratch)
{
    attn_all_rows(rows, k, v, d, scratch, DT_I8);
}

#endif
