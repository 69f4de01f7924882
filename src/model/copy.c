/* Whether two models are copies of one another. */
#include <string.h>

#include "model/model.h"

static bool equal(const float *a, const float *b, size_t n)
{
    return !a == !b && (!a || memcmp(a, b, n * sizeof *a) == 0);
}

static bool same_config(const struct config *a, const struct config *b)
{
    return a->arch == b->arch && a->d_model == b->d_model &&
           a->n_layers == b->n_layers && a->n_heads == b->n_heads &&
           a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim &&
           a->n_ropes == b->n_ropes && a->ple_dim == b->ple_dim && a->embed_scale == b->embed_scale &&
           a->residual_scale == b->residual_scale &&
           a->delta.n_k_heads == b->delta.n_k_heads &&
           a->delta.n_v_heads == b->delta.n_v_heads &&
           a->delta.d_k == b->delta.d_k && a->delta.d_v == b->delta.d_v &&
           a->delta.conv == b->delta.conv &&
           a->delta.n_short == b->delta.n_short;
}

static bool same_rope(const struct rope *a, const struct rope *b)
{
    return a->n_rot == b->n_rot && a->scale == b->scale &&
           a->interleaved == b->interleaved &&
           equal(a->inv_freq, b->inv_freq, a->n_rot / 2) &&
           equal(a->inv_freq_long, b->inv_freq_long, a->n_rot / 2);
}

static bool same_layer(const struct model *a, const struct model *b, size_t i)
{
    const struct layer_config *p = &a->config.layers[i];
    const struct layer_config *q = &b->config.layers[i];
    const struct layer *x = &a->layers[i], *y = &b->layers[i];
    size_t d_model = a->config.d_model;
    bool row = a->config.arch->blocks.qk_norm == QK_NORM_ROW;
    size_t q_norm = p->head_dim * (row ? a->config.n_heads : 1),
           k_norm = p->head_dim * (row ? p->n_kv_heads : 1);
    return p->head_dim == q->head_dim && p->n_kv_heads == q->n_kv_heads &&
           p->slot == q->slot && p->window == q->window && p->rope == q->rope &&
           p->kv_back == q->kv_back && p->v_from_k == q->v_from_k &&
           p->score_scale == q->score_scale && p->recurrent == q->recurrent &&
           equal(x->input_norm, y->input_norm, d_model) &&
           equal(x->post_norm, y->post_norm, d_model) &&
           equal(x->ple.norm, y->ple.norm, d_model) &&
           equal(x->attn.q_norm, y->attn.q_norm, q_norm) &&
           equal(x->attn.k_norm, y->attn.k_norm, k_norm) &&
           equal(x->attn.sinks, y->attn.sinks, a->config.n_heads) &&
           x->scale == y->scale;
}

bool model_is_copy(const struct model *a, const struct model *b)
{
    if (!same_config(&a->config, &b->config) ||
        !equal(a->norm, b->norm, a->config.d_model) ||
        !equal(a->ple.norm, b->ple.norm, a->config.ple_dim))
        return false;
    for (size_t i = 0; i < a->config.n_ropes; i++)
        if (!same_rope(&a->ropes[i], &b->ropes[i]))
            return false;
    for (size_t i = 0; i < a->config.n_layers; i++)
        if (!same_layer(a, b, i))
            return false;
    return true;
}
