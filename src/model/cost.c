/* The costs of passes: operations, and bytes of weights. */
#include "model/cost.h"

#include "model/model.h"

size_t model_shared_bytes(const struct model *m)
{
    size_t n = m->weights.n_bytes;
    /* Of an embedding that is not the head, one row is read. */
    if (m->embed.data[0] != m->head.data[0])
        n -= matrix_bytes(&m->embed) - matrix_bytes(&m->embed) / m->embed.rows;
    for (size_t i = 0; i < m->config.n_layers; i++)
        n -= m->layers[i].experts.n * m->layers[i].experts.bytes;
    return n;
}

size_t model_decode_bytes(const struct model *m)
{
    size_t n = model_shared_bytes(m);
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct experts *x = &m->layers[i].experts;
        n += x->n_active * x->bytes;
    }
    return n;
}

double model_disk_bytes(const struct model *m, size_t memory)
{
    size_t all = m->weights.n_bytes, shared = m->shared_bytes;
    size_t step = model_decode_bytes(m);
    if (all <= memory)
        return 0;
    if (shared > memory || step == shared)
        return (double)step;
    double held = (double)(memory - shared) / (double)(all - shared);
    return (double)(step - shared) * (1 - held);
}

struct model_sizes model_sizes(struct model *m)
{
    return (struct model_sizes){.storage =
                                    weights_storage(
                                        &m->weights,
                                        m->no_head ? &m->embed : &m->head),
                                .n_params = m->weights.n_params,
                                .n_active_params = model_active_params(m),
                                .bytes = m->weights.n_bytes,
                                .decode_bytes = model_decode_bytes(m),
                                .table_bytes = m->weights.n_table_bytes};
}

size_t model_active_params(const struct model *m)
{
    size_t n = m->weights.n_params - m->weights.n_table_params;
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct experts *x = &m->layers[i].experts;
        n -= (x->n - x->n_active) * x->n_params;
    }
    return n;
}

/* Bytes that a second token adds to a pass of one: the experts that only the
 * second token has, on average, if tokens chose experts at random. */
static double second_token_bytes(const struct model *m)
{
    double sum = 0;
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct experts *x = &m->layers[i].experts;
        if (x->n)
            sum += (double)x->n_active *
                   (1 - (double)x->n_active / (double)x->n) * (double)x->bytes;
    }
    return sum;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

double cost_pairs(size_t window, size_t pos, size_t n)
{
    double pairs = 0;
    for (size_t t = 0; t < n; t++)
        pairs += (double)least(pos + t + 1, window);
    return pairs;
}

double cost_pairs_both(size_t window, size_t n, size_t n_kept)
{
    double pairs = 0;
    for (size_t t = 0; t < n_kept; t++)
        pairs += (double)least(t, window - 1) + 1 +
                 (double)least(n - 1 - t, window - 1);
    return pairs;
}

struct cost model_cost(const struct model *m, size_t pos, size_t n)
{
    const struct config *c = &m->config;
    double rows = (double)m->head.rows +
                  (double)n * (double)m->ple.model_proj.rows;
    struct cost sum = {.flops = 2 * (double)c->d_model * rows};
    for (size_t i = 0; i < c->n_layers; i++) {
        size_t n_in = i > m->last_stored ? 1 : n;
        size_t n_kept = i < m->last_stored ? n : 1;
        sum.flops +=
            c->arch->layer_cost(m, i, pos + n - n_in, n_in, n_kept).flops;
    }
    return sum;
}

/* Weights that stay in the caches cost nothing to stream. */
#define CACHED_BYTES ((size_t)64 << 20)

/* Measured on two cores of a Sapphire Rapids for passes of up to 9 tokens, as a
 * share of a pass of one token: 0.06 with bf16 weights, 0.12 with 8 bits (0.17
 * with exact), 0.2 with 4 bits. Without AVX-512 it is double. The demo model,
 * which stays in the caches, has 0.36. */
double model_row_cost(const struct model *m)
{
    const struct weights *w = &m->weights;
    double cost = 0.12 * (double)(w->n_params - w->n_table_params) /
                  (double)w->n_bytes;
    double factor = m->k->tune.row_cost;
    if (m->row_cost > 0)
        return m->row_cost;
    if (factor == 0)
        return 1; /* the scalar kernels save nothing */
    cost *= factor;
    if (m->exact && m->any_quantized)
        cost *= 1.5;
    if (model_decode_bytes(m) < CACHED_BYTES)
        cost *= 6;
    cost = cost < 0.4 ? cost : 0.4;
    cost += second_token_bytes(m) / (double)model_decode_bytes(m);
    return cost < 1 ? cost : 1;
}

/* The unit is the time to stream a byte from memory, which hides the arithmetic
 * of one token. Caches are faster but hide nothing. Measured on a Zen 4: of a
 * model with 0.6B parameters, a step with 4 bits takes 0.27 times as long as in
 * bf16; of the demo model, which stays in the caches, 0.73 times, with 8 bits
 * 0.8 times. */
double model_step_time(const struct model *m)
{
    double bytes = (double)model_decode_bytes(m);
    double arithmetic = 0.34 * (double)model_active_params(m);
    if (m->step_time > 0)
        return m->step_time;
    if (model_decode_bytes(m) < CACHED_BYTES)
        return bytes / 13 + arithmetic;
    return bytes > arithmetic ? bytes : arithmetic;
}
