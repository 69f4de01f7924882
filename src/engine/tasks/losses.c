/* What a model has lost, over many tokens: means, their intervals, and the
 * largest divergences. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "qwick_tools.h"

enum { BLOCK_TOKENS = 128 };

/* Sums over a block's tokens. */
enum loss_sum { SUM_KL, SUM_SAME, SUM_LOSS, SUM_REFERENCE, SUM_DIFF, N_SUMS };

struct block {
    double n, sums[N_SUMS];
};

struct qwick_losses {
    struct block *blocks;
    size_t n_blocks, cap_blocks;
    double *kl; /* [n] of each token */
    size_t n, cap;
};

int qwick_losses_create(struct qwick_losses **out, struct qwick_err *e)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_oom(e, sizeof **out);
}

void qwick_losses_free(struct qwick_losses *l)
{
    if (!l)
        return;
    free(l->blocks);
    free(l->kl);
    free(l);
}

static struct block sum_block(const struct qwick_token_loss *v, size_t n)
{
    struct block b = {.n = (double)n};
    for (size_t i = 0; i < n; i++) {
        b.sums[SUM_KL] += v[i].kl;
        b.sums[SUM_SAME] += v[i].same_top;
        b.sums[SUM_LOSS] -= v[i].logprob;
        b.sums[SUM_REFERENCE] -= v[i].reference;
        b.sums[SUM_DIFF] += v[i].reference - v[i].logprob;
    }
    return b;
}

int qwick_losses_add(struct qwick_losses *l, const struct qwick_token_loss *v,
                     size_t n, struct qwick_err *e)
{
    size_t n_blocks = n / BLOCK_TOKENS + (n % BLOCK_TOKENS > 0);
    if (ARRAY_RESERVE(l->kl, l->cap, l->n + n, e) ||
        ARRAY_RESERVE(l->blocks, l->cap_blocks, l->n_blocks + n_blocks, e))
        return -1;
    for (size_t i = 0; i < n; i++)
        l->kl[l->n + i] = v[i].kl;
    l->n += n;
    for (size_t at = 0; n_blocks > 0; n_blocks--) {
        size_t size = (n - at) / n_blocks;
        l->blocks[l->n_blocks++] = sum_block(v + at, size);
        at += size;
    }
    return 0;
}

/* The quantile 0.975 of Student's t: the first ones, then the expansion around
 * the normal quantile (Abramowitz and Stegun, 26.7.5), which is then right to
 * five digits. */
static double student(size_t degrees)
{
    static const double first[] = {12.70620, 4.302653, 3.182446, 2.776445,
                                   2.570582, 2.446912, 2.364624, 2.306004};
    const double z = 1.959964, z2 = z * z, v = (double)degrees;
    if (degrees <= sizeof first / sizeof *first)
        return first[degrees - 1];
    double g1 = (z2 + 1) / 4, g2 = ((5 * z2 + 16) * z2 + 3) / 96;
    double g3 = (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
    return z * (1 + (g1 + (g2 + g3 / v) / v) / v);
}

/* The mean of a sum over the tokens, and its interval. */
static struct qwick_interval mean_of(const struct qwick_losses *l,
                                     enum loss_sum which)
{
    double sum = 0, squares = 0, n = (double)l->n, c = (double)l->n_blocks;
    for (size_t i = 0; i < l->n_blocks; i++)
        sum += l->blocks[i].sums[which];
    double mean = sum / n;
    if (l->n_blocks < 2)
        return (struct qwick_interval){mean, NAN, NAN};
    for (size_t i = 0; i < l->n_blocks; i++) {
        double rest = l->blocks[i].sums[which] - mean * l->blocks[i].n;
        squares += rest * rest;
    }
    double half =
        student(l->n_blocks - 1) * sqrt(c / (c - 1) * squares) / n;
    return (struct qwick_interval){mean, mean - half, mean + half};
}

/* The interval, cut where no value can be. */
static struct qwick_interval within(struct qwick_interval v, double least,
                                    double most)
{
    v.low = v.low < least ? least : v.low;
    v.high = v.high > most ? most : v.high;
    return v;
}

static struct qwick_interval exp_of(struct qwick_interval v)
{
    return (struct qwick_interval){exp(v.value), exp(v.low), exp(v.high)};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int qwick_losses_summary(const struct qwick_losses *l,
                         struct qwick_loss_summary *out, struct qwick_err *e)
{
    *out = (struct qwick_loss_summary){
        .n_tokens = l->n,
        .n_blocks = l->n_blocks,
        .kl = within(mean_of(l, SUM_KL), 0, INFINITY),
        .agreement = within(mean_of(l, SUM_SAME), 0, 1),
        .perplexity = exp_of(mean_of(l, SUM_LOSS)),
        .reference_perplexity = exp_of(mean_of(l, SUM_REFERENCE)),
        .ratio = exp_of(mean_of(l, SUM_DIFF)),
        .kl_p99 = NAN,
        .kl_max = NAN,
    };
    if (l->n == 0)
        return 0;
    double *sorted = malloc(l->n * sizeof *sorted);
    if (!sorted)
        return err_oom(e, l->n * sizeof *sorted);
    for (size_t i = 0; i < l->n; i++)
        sorted[i] = l->kl[i];
    qsort(sorted, l->n, sizeof *sorted, by_value);
    out->kl_p99 = sorted[l->n - l->n / 100 - 1];
    out->kl_max = sorted[l->n - 1];
    free(sorted);
    return 0;
}
