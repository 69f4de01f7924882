/* The kernels of Gated DeltaNet layers, over the SIMD shim. Included by k_f32.h
 * after k_f32_elements.h.
 *
 * The order of sums: every element of a result has one accumulator. Products
 * with the state add its rows in ascending order; the sums over a block's
 * positions begin with the state's part and add positions in ascending order.
 * Tiling decides only which elements are computed side by side. */
#ifndef KERNEL_K_F32_DELTA_H
#define KERNEL_K_F32_DELTA_H

#if !defined KERNEL || !defined VEC_LANES || !defined DELTA_TOKENS || \
    !defined DELTA_VALUES
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

_Static_assert(DELTA_BLOCK % VEC_LANES == 0, "whole vectors");

/* Columns of a value head that one tile covers at most. */
enum { DELTA_COLUMNS = DELTA_VALUES * VEC_LANES };

/* ---- l2norm ------------------------------------------------------------- */

INLINE void l2norm_vec(float *out, const float *x, vec by, size_t n)
{
    vec_store(out, vec_load(x, n) * by, n);
}

static void KERNEL(l2norm)(float *out, const float *x, size_t n_rows, size_t d,
                           float eps, float scale)
{
    for (size_t r = 0; r < n_rows; r++, x += d, out += d) {
        const double sum = sum_squares(x, d);
        const vec by =
            vec_set1((float)((double)scale / sqrt(sum + (double)eps)));
        size_t i = 0;

        for (; d - i >= VEC_LANES; i += VEC_LANES)
            l2norm_vec(out + i, x + i, by, VEC_LANES);
        if (i < d)
            l2norm_vec(out + i, x + i, by, d - i);
    }
}

/* ---- convolution -------------------------------------------------------- */

INLINE vec conv_vec(const float *const *x, size_t c, const float *w, size_t ldw,
                    size_t n_taps, size_t n)
{
    vec z = vec_load(w + c, n) * vec_load(x[0] + c, n);

    UNROLL_SOME
    for (size_t j = 1; j < n_taps; j++)
        z = vec_fma(vec_load(w + j * ldw + c, n), vec_load(x[j] + c, n), z);
    return z;
}

INLINE void conv_silu_vec(float *out, const float *const *x, size_t c,
                          const float *w, size_t ldw, size_t n_taps, size_t n)
{
    const vec z = conv_vec(x, c, w, ldw, n_taps, n);

    vec_store(out + c, z / (vec_set1(1) + vec_exp(-z)), n);
}

INLINE void conv_silu(float *out, size_t ldo, const float *const *x,
                      const float *w, size_t ldw, size_t n_channels,
                      size_t n_taps, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++, out += ldo) {
        size_t c = 0;

        for (; n_channels - c >= VEC_LANES; c += VEC_LANES)
            conv_silu_vec(out, x + t, c, w, ldw, n_taps, VEC_LANES);
        if (c < n_channels)
            conv_silu_vec(out, x + t, c, w, ldw, n_taps, n_channels - c);
    }
}

static void KERNEL(conv_silu)(float *out, size_t ldo, const float *const *x,
                              const float *w, size_t ldw, size_t n_channels,
                              size_t n_taps, size_t n_tokens)
{
    /* all known models have four taps */
    if (n_taps == 4)
        conv_silu(out, ldo, x, w, ldw, n_channels, 4, n_tokens);
    else
        conv_silu(out, ldo, x, w, ldw, n_channels, n_taps, n_tokens);
}

INLINE void conv_gated_vec(float *out, const float *gate, const float *const *x,
                           size_t c, const float *w, size_t ldw, size_t n_taps,
                           size_t n)
{
    vec_store(out + c,
              conv_vec(x, c, w, ldw, n_taps, n) * vec_load(gate + c, n), n);
}

INLINE void conv_gated(float *out, size_t ldo, const float *gate, size_t ldg,
                       const float *const *x, const float *w, size_t ldw,
                       size_t n_channels, size_t n_taps, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++, out += ldo, gate += ldg) {
        size_t c = 0;

        for (; n_channels - c >= VEC_LANES; c += VEC_LANES)
            conv_gated_vec(out, gate, x + t, c, w, ldw, n_taps, VEC_LANES);
        if (c < n_channels)
            conv_gated_vec(out, gate, x + t, c, w, ldw, n_taps, n_channels - c);
    }
}

static void KERNEL(conv_gated)(float *out, size_t ldo, const float *gate,
                               size_t ldg, const float *const *x,
                               const float *w, size_t ldw, size_t n_channels,
                               size_t n_taps, size_t n_tokens)
{
    /* all known models have three taps */
    if (n_taps == 3)
        conv_gated(out, ldo, gate, ldg, x, w, ldw, n_channels, 3, n_tokens);
    else
        conv_gated(out, ldo, gate, ldg, x, w, ldw, n_channels, n_taps,
                   n_tokens);
}

/* ---- decays ------------------------------------------------------------- */

/* D[t, i] of kernel.h for one t. Elements i >= t are 0. */
struct decays {
    vec d[DELTA_BLOCK / VEC_LANES];
    float total; /* G[t] */
};

INLINE struct decays decays_none(void)
{
    struct decays a = {.total = 0};

    UNROLL
    for (size_t c = 0; c < DELTA_BLOCK / VEC_LANES; c++)
        a.d[c] = vec_zero();
    return a;
}

/* Advance to position t, whose log decay is g. */
INLINE void decays_step(struct decays *a, float g, size_t t)
{
    UNROLL
    for (size_t c = 0; c < DELTA_BLOCK / VEC_LANES; c++) {
        const size_t first = c * VEC_LANES;

        a->d[c] += vec_set1(g);
        a->d[c] = t > first ? vec_first(a->d[c], t - first) : vec_zero();
    }
    a->total += g;
}

/* Compute out[i] = exp(D[t, i]) * x[i] for i <= t. Other elements of out are
 * undefined. */
INLINE void decays_weigh(const struct decays *a, float *out, const float *x)
{
    UNROLL
    for (size_t c = 0; c < DELTA_BLOCK / VEC_LANES; c++)
        vec_store(out + c * VEC_LANES,
                  vec_exp_flush(a->d[c]) *
                      vec_load(x + c * VEC_LANES, VEC_LANES),
                  VEC_LANES);
}

/* ---- products with the state -------------------------------------------- */

/* Compute columns [e, e + NV * VEC_LANES) of S^T k and S^T q for T tokens. Only
 * the first n lanes of the last vector count. sk, sq [T, d_v]. */
INLINE void state_tile(float *sk, float *sq, const float *s, const float *k,
                       const float *q, size_t d_k, size_t d_v, size_t e, int T,
                       int NV, size_t n)
{
    vec a[DELTA_TOKENS][2][2 * DELTA_VALUES], sv[2 * DELTA_VALUES];

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < NV; v++)
            a[t][0][v] = a[t][1][v] = vec_zero();
    }
    for (size_t i = 0; i < d_k; i++) {
        UNROLL
        for (int v = 0; v < NV; v++) {
            const float *from = s + i * d_v + e + VEC_LANES * (size_t)v;

            sv[v] = v < NV - 1 ? vec_load(from, VEC_LANES) : vec_load(from, n);
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            const vec kt = vec_set1(k[(size_t)t * d_k + i]);
            const vec qt = vec_set1(q[(size_t)t * d_k + i]);

            UNROLL
            for (int v = 0; v < NV; v++) {
                a[t][0][v] = vec_fma(sv[v], kt, a[t][0][v]);
                a[t][1][v] = vec_fma(sv[v], qt, a[t][1][v]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < NV; v++) {
            const size_t at = (size_t)t * d_v + e + VEC_LANES * (size_t)v;
            const size_t lanes = v < NV - 1 ? VEC_LANES : n;

            vec_store(sk + at, a[t][0][v], lanes);
            vec_store(sq + at, a[t][1][v], lanes);
        }
    }
}

/* Do the work of state_tile for all columns. */
INLINE void state_rows(float *sk, float *sq, const float *s, const float *k,
                       const float *q, size_t d_k, size_t d_v, int T)
{
    /* one token leaves registers for more columns */
    const int NV = T == 1 ? 2 * DELTA_VALUES : DELTA_VALUES;
    const size_t step = (size_t)NV * VEC_LANES;
    size_t e = 0;

    for (; d_v - e >= step; e += step)
        state_tile(sk, sq, s, k, q, d_k, d_v, e, T, NV, VEC_LANES);
    for (; d_v - e >= VEC_LANES; e += VEC_LANES)
        state_tile(sk, sq, s, k, q, d_k, d_v, e, T, 1, VEC_LANES);
    if (e < d_v)
        state_tile(sk, sq, s, k, q, d_k, d_v, e, T, 1, d_v - e);
}

INLINE void state_products(float *sk, float *sq, const struct delta_head *h)
{
    const size_t n = h->to - h->from, d_k = h->d_k, d_v = h->d_v;
    const float *k = h->k + h->from * d_k;
    size_t t = 0;

    for (; n - t >= DELTA_TOKENS; t += DELTA_TOKENS)
        state_rows(sk + t * d_v, sq + t * d_v, h->s, k + t * d_k,
                   h->q + t * d_k, d_k, d_v, DELTA_TOKENS);
    for (; t < n; t++)
        state_rows(sk + t * d_v, sq + t * d_v, h->s, k + t * d_k,
                   h->q + t * d_k, d_k, d_v, 1);
}

/* ---- u and o ------------------------------------------------------------ */

/* One token of a block, with its results u and o and the inputs of their
 * sums. */
struct delta_token {
    size_t t;             /* position in the block */
    const float *log;     /* [t, d_v] u of the positions before */
    const float *sk, *sq; /* [d_v] */
    const float *v;       /* [d_v] */
    const float *wk, *wq; /* [DELTA_BLOCK] weights of the log in u and in o */
    float keep, beta;
    float *u, *o; /* [d_v] */
};

/* Compute columns [e, e + NV * VEC_LANES) of u and o. Only the first n lanes of
 * the last vector count. */
INLINE void token_tile(const struct delta_token *a, size_t d_v, size_t e,
                       int NV, size_t n)
{
    const vec keep = vec_set1(a->keep), beta = vec_set1(a->beta);
    const vec self = vec_set1(a->wq[a->t]);
    vec u[2 * DELTA_VALUES], o[2 * DELTA_VALUES];

    UNROLL
    for (int v = 0; v < NV; v++) {
        const size_t at = e + VEC_LANES * (size_t)v;
        const size_t lanes = v < NV - 1 ? VEC_LANES : n;

        u[v] = vec_fnma(keep, vec_load(a->sk + at, lanes),
                        vec_load(a->v + at, lanes));
        o[v] = keep * vec_load(a->sq + at, lanes);
    }
    for (size_t i = 0; i < a->t; i++) {
        const vec wk = vec_set1(a->wk[i]), wq = vec_set1(a->wq[i]);

        UNROLL
        for (int v = 0; v < NV; v++) {
            const float *from = a->log + i * d_v + e + VEC_LANES * (size_t)v;
            const vec ui =
                v < NV - 1 ? vec_load(from, VEC_LANES) : vec_load(from, n);

            u[v] = vec_fnma(wk, ui, u[v]);
            o[v] = vec_fma(wq, ui, o[v]);
        }
    }
    UNROLL
    for (int v = 0; v < NV; v++) {
        const size_t at = e + VEC_LANES * (size_t)v;
        const size_t lanes = v < NV - 1 ? VEC_LANES : n;

        u[v] *= beta;
        vec_store(a->u + at, u[v], lanes);
        vec_store(a->o + at, vec_fma(self, u[v], o[v]), lanes);
    }
}

INLINE void token_row(const struct delta_token *a, size_t d_v)
{
    enum { STEP = 2 * DELTA_COLUMNS };
    size_t e = 0;

    for (; d_v - e >= STEP; e += STEP)
        token_tile(a, d_v, e, 2 * DELTA_VALUES, VEC_LANES);
    for (; d_v - e >= VEC_LANES; e += VEC_LANES)
        token_tile(a, d_v, e, 1, VEC_LANES);
    if (e < d_v)
        token_tile(a, d_v, e, 1, d_v - e);
}

static void KERNEL(delta_rows)(const struct delta_head *h, float *scratch)
{
    const size_t d_v = h->d_v, n = h->to - h->from;
    float *wk = scratch, *wq = wk + DELTA_BLOCK;
    float *sk = wq + DELTA_BLOCK, *sq = sk + n * d_v;
    struct decays decays = decays_none();

    state_products(sk, sq, h);
    for (size_t t = 0; t < h->from; t++)
        decays_step(&decays, h->g[t], t);
    for (size_t r = 0; r < n; r++) {
        const size_t t = h->from + r;
        struct delta_token a = {.t = t,
                                .log = h->u,
                                .sk = sk + r * d_v,
                                .sq = sq + r * d_v,
                                .v = h->v + r * d_v,
                                .wk = wk,
                                .wq = wq,
                                .beta = h->beta[r],
                                .u = h->u + t * d_v,
                                .o = h->o + r * d_v};

        decays_step(&decays, h->g[t], t);
        decays_weigh(&decays, wk, h->kk + r * DELTA_BLOCK);
        decays_weigh(&decays, wq, h->qk + r * DELTA_BLOCK);
        a.keep = exp1(decays.total);
        token_row(&a, d_v);
    }
}

/* ---- the next state ----------------------------------------------------- */

/* Compute rows [i, i + R) and columns [e, e + NV * VEC_LANES) of the next state
 * from u times the weights, wu [to, DELTA_COLUMNS]. Only the first n lanes of
 * the last vector count. */
INLINE void next_tile(float *next, const struct delta_head *h, const float *wu,
                      float keep, size_t i, size_t e, int R, int NV, size_t n)
{
    const vec by = vec_set1(keep);
    vec a[2 * DELTA_TOKENS][DELTA_VALUES], u[DELTA_VALUES];

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < NV; v++) {
            const size_t at =
                (i + (size_t)r) * h->d_v + e + VEC_LANES * (size_t)v;

            a[r][v] = by * (v < NV - 1 ? vec_load(h->s + at, VEC_LANES)
                                       : vec_load(h->s + at, n));
        }
    }
    for (size_t t = 0; t < h->to; t++) {
        UNROLL
        for (int v = 0; v < NV; v++)
            u[v] = vec_load(wu + t * DELTA_COLUMNS + VEC_LANES * (size_t)v,
                            VEC_LANES);
        UNROLL
        for (int r = 0; r < R; r++) {
            const vec k = vec_set1(h->k[t * h->d_k + i + (size_t)r]);

            UNROLL
            for (int v = 0; v < NV; v++)
                a[r][v] = vec_fma(k, u[v], a[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < NV; v++) {
            const size_t at =
                (i + (size_t)r) * h->d_v + e + VEC_LANES * (size_t)v;

            vec_store(next + at, a[r][v], v < NV - 1 ? VEC_LANES : n);
        }
    }
}

/* Do the work of next_tile for all rows. */
INLINE void next_columns(float *next, const struct delta_head *h,
                         const float *weights, float keep, size_t e, int NV,
                         size_t n)
{
    float wu[DELTA_BLOCK * DELTA_COLUMNS];
    size_t i = 0;

    for (size_t t = 0; t < h->to; t++) {
        UNROLL
        for (int v = 0; v < NV; v++) {
            const size_t at = VEC_LANES * (size_t)v;
            const float *u = h->u + t * h->d_v + e + at;

            vec_store(wu + t * DELTA_COLUMNS + at,
                      vec_set1(weights[t]) * (v < NV - 1
                                                  ? vec_load(u, VEC_LANES)
                                                  : vec_load(u, n)),
                      VEC_LANES);
        }
    }
    for (; h->d_k - i >= 2 * DELTA_TOKENS; i += 2 * DELTA_TOKENS)
        next_tile(next, h, wu, keep, i, e, 2 * DELTA_TOKENS, NV, n);
    for (; h->d_k - i >= 2; i += 2)
        next_tile(next, h, wu, keep, i, e, 2, NV, n);
    if (i < h->d_k)
        next_tile(next, h, wu, keep, i, e, 1, NV, n);
}

static void KERNEL(delta_state)(float *next, const struct delta_head *h)
{
    const size_t d_v = h->d_v;
    struct decays decays = decays_none();
    float weights[DELTA_BLOCK], ones[DELTA_BLOCK], keep;
    size_t e = 0;

    for (size_t t = 0; t < DELTA_BLOCK; t++)
        ones[t] = 1;
    for (size_t t = 0; t < h->to; t++)
        decays_step(&decays, h->g[t], t);
    decays_weigh(&decays, weights, ones);
    keep = exp1(decays.total);
    for (; d_v - e >= DELTA_COLUMNS; e += DELTA_COLUMNS)
        next_columns(next, h, weights, keep, e, DELTA_VALUES, VEC_LANES);
    for (; d_v - e >= VEC_LANES; e += VEC_LANES)
        next_columns(next, h, weights, keep, e, 1, VEC_LANES);
    if (e < d_v)
        next_columns(next, h, weights, keep, e, 1, d_v - e);
}

#endif
