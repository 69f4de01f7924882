/* The reference kernels of Gated DeltaNet layers: plain C with sums in double,
 * rounded once at the end (see k_ref.c). */
#include <math.h>
#include <stddef.h>

#include "kernel/kernel.h"

static void k_l2norm_ref(float *out, const float *x, size_t n_rows, size_t d,
                         float eps, float scale)
{
    for (size_t r = 0; r < n_rows; r++) {
        double sum = 0, by;

        for (size_t i = 0; i < d; i++)
            sum += (double)x[r * d + i] * (double)x[r * d + i];
        by = (double)scale / sqrt(sum + (double)eps);
        for (size_t i = 0; i < d; i++)
            out[r * d + i] = (float)((double)x[r * d + i] * by);
    }
}

static void k_conv_silu_ref(float *out, size_t ldo, const float *const *x,
                            const float *w, size_t ldw, size_t n_channels,
                            size_t n_taps, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t c = 0; c < n_channels; c++) {
            double z = 0;

            for (size_t j = 0; j < n_taps; j++)
                z += (double)w[j * ldw + c] * (double)x[t + j][c];
            out[t * ldo + c] = (float)(z / (1 + exp(-z)));
        }
}

static void k_conv_gated_ref(float *out, size_t ldo, const float *gate,
                             size_t ldg, const float *const *x, const float *w,
                             size_t ldw, size_t n_channels, size_t n_taps,
                             size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t c = 0; c < n_channels; c++) {
            double z = 0;

            for (size_t j = 0; j < n_taps; j++)
                z += (double)w[j * ldw + c] * (double)x[t + j][c];
            out[t * ldo + c] = (float)(z * (double)gate[t * ldg + c]);
        }
}

/* Set e[i] = exp(D[t, i]) for i <= t, and return exp(G[t]). */
static double decays(double *e, const float *g, size_t t)
{
    double sum = 0;

    for (size_t i = t + 1; i-- > 0;) {
        e[i] = exp(sum);
        sum += (double)g[i];
    }
    return exp(sum);
}

/* Return element j of S^T x. */
static double state_product(const struct delta_head *h, const float *x,
                            size_t j)
{
    double sum = 0;

    for (size_t i = 0; i < h->d_k; i++)
        sum += (double)h->s[i * h->d_v + j] * (double)x[i];
    return sum;
}

static void k_delta_rows_ref(const struct delta_head *h, float *scratch)
{
    double e[DELTA_BLOCK];

    (void)scratch;
    for (size_t t = h->from; t < h->to; t++) {
        const size_t r = t - h->from;
        const float *kk = h->kk + r * DELTA_BLOCK;
        const float *qk = h->qk + r * DELTA_BLOCK;
        const float *k = h->k + t * h->d_k, *q = h->q + r * h->d_k;
        const double keep = decays(e, h->g, t);

        for (size_t j = 0; j < h->d_v; j++) {
            double u = (double)h->v[r * h->d_v + j];
            double o = keep * state_product(h, q, j);

            u -= keep * state_product(h, k, j);
            for (size_t i = 0; i < t; i++)
                u -= e[i] * (double)kk[i] * (double)h->u[i * h->d_v + j];
            h->u[t * h->d_v + j] = (float)((double)h->beta[r] * u);
            for (size_t i = 0; i <= t; i++)
                o += e[i] * (double)qk[i] * (double)h->u[i * h->d_v + j];
            h->o[r * h->d_v + j] = (float)o;
        }
    }
}

static void k_delta_state_ref(float *next, const struct delta_head *h)
{
    double e[DELTA_BLOCK];
    const double keep = decays(e, h->g, h->to - 1);

    for (size_t i = 0; i < h->d_k; i++)
        for (size_t j = 0; j < h->d_v; j++) {
            double sum = keep * (double)h->s[i * h->d_v + j];

            for (size_t t = 0; t < h->to; t++)
                sum += e[t] * (double)h->k[t * h->d_k + i] *
                       (double)h->u[t * h->d_v + j];
            next[i * h->d_v + j] = (float)sum;
        }
}

void k_delta_ref_init(struct kernels *k)
{
    k->l2norm = k_l2norm_ref;
    k->conv_silu = k_conv_silu_ref;
    k->conv_gated = k_conv_gated_ref;
    k->delta_rows = k_delta_rows_ref;
    k->delta_state = k_delta_state_ref;
}
