#include "model/layer.h"

#include <stdlib.h>
#include <string.h>

#include "model/cost.h"
#include "model/model.h"
#include "model/moe.h"
#include "model/pass.h"

/* ---- weights --------------------------------------------------------------
 */

/* A vector of layer i: a norm, a bias or the sinks. */
struct vector {
    float **out;
    enum weight_id id;
    size_t n;
    bool has; /* false: the layer has none */
};

static int bind_vectors(struct weights *w, const struct vector *v, size_t n,
                        size_t i, struct qwick_err *e)
{
    for (size_t j = 0; j < n; j++)
        if (v[j].has &&
            weights_vector(w, v[j].out, v[j].n, layer_weight(v[j].id, i), e))
            return -1;
    return 0;
}

#define BIND_VECTORS(w, v, i, e) \
    bind_vectors(w, v, sizeof(v) / sizeof *(v), i, e)

static void scale_vector(float *v, size_t n, float scale)
{
    for (size_t i = 0; v && i < n; i++)
        v[i] *= scale;
}

int layer_bind_norms(struct model *m, struct layer *l, size_t i,
                     struct qwick_err *e)
{
    const struct blocks *b = &m->config.arch->blocks;
    const struct {
        float **out;
        struct weight_ref ref;
        bool has;
    } norms[] = {
        {&l->input_norm,
         b->norm_replaces ? layer_weight(WEIGHT_NORM, i - 1)
                          : layer_weight(WEIGHT_ATTN_NORM, i),
         b->attn_norm && (i > 0 || !b->embed_norm)},
        {&l->post_norm, layer_weight(WEIGHT_MLP_NORM, i), b->mlp_norm},
        {&l->attn_post_norm, layer_weight(WEIGHT_ATTN_POST_NORM, i),
         b->attn_post_norm},
        {&l->mlp_post_norm, layer_weight(WEIGHT_MLP_POST_NORM, i),
         b->mlp_post_norm},
    };
    float *scale = NULL;
    const struct vector scales[] = {
        {&scale, WEIGHT_LAYER_SCALE, 1, b->layer_scale}};
    for (size_t j = 0; j < sizeof norms / sizeof *norms; j++)
        if (norms[j].has && model_bind_norm(m, norms[j].out, norms[j].ref, e))
            return -1;
    if (BIND_VECTORS(&m->weights, scales, i, e))
        return -1;
    l->scale = scale ? *scale : 1;
    return 0;
}

/* One of several matrices whose rows may be in one tensor. */
struct rows_of {
    struct matrix *out;
    enum weight_id id;
    size_t rows;
};

/* Bind n matrices with d columns: the rows of the tensor `fused`, one after the
 * other, or tensors of their own. */
static int bind_parts(struct weights *w, const struct rows_of *parts, size_t n,
                      size_t d, enum weight_id fused, size_t i,
                      struct qwick_err *e)
{
    struct matrix whole;
    size_t rows = 0, at = 0;
    bool one = weights_has(w, layer_weight(fused, i));
    for (size_t j = 0; j < n; j++)
        rows += parts[j].rows;
    if (one && weights_stack(w, &whole, 0, rows, d, layer_weight(fused, i), e))
        return -1;
    for (size_t j = 0; j < n; at += parts[j++].rows)
        if (one ? weights_view(w, parts[j].out, &whole, at, parts[j].rows, e)
                : weights_matrix(w, parts[j].out, parts[j].rows, d,
                                 layer_weight(parts[j].id, i), e))
            return -1;
    return 0;
}

/* Bind the biases of such matrices: those of the tensor `fused`, one after the
 * other, or vectors of their own. */
static int bind_biases(struct weights *w, const struct vector *v, size_t n,
                       enum weight_id fused, size_t i, struct qwick_err *e)
{
    size_t rows = 0;
    float *all;
    for (size_t j = 0; j < n; j++)
        rows += v[j].n;
    if (!weights_has(w, layer_weight(fused, i)))
        return bind_vectors(w, v, n, i, e);
    if (weights_vector(w, &all, rows, layer_weight(fused, i), e))
        return -1;
    for (size_t j = 0; j < n; all += v[j++].n)
        *v[j].out = all;
    return 0;
}

/* Bind the norms of q, k and v. The scale of the scores goes into that of q; a
 * model without norms multiplies q by it. */
static int bind_qkv_norms(struct model *m, struct attention *a, size_t i,
                          struct qwick_err *e)
{
    const struct layer_config *c = &m->config.layers[i];
    enum qk_norm kind = m->config.arch->blocks.qk_norm;
    size_t heads = kind == QK_NORM_ROW ? m->config.n_heads : 1,
           kv_heads = kind == QK_NORM_ROW ? c->n_kv_heads : 1;
    const struct vector norms[] = {
        {&a->q_norm, WEIGHT_Q_NORM, heads * c->head_dim, kind != QK_NORM_NONE},
        {&a->k_norm, WEIGHT_K_NORM, kv_heads * c->head_dim,
         kind != QK_NORM_NONE && !c->kv_back},
    };
    if (BIND_VECTORS(&m->weights, norms, i, e) ||
        (m->config.arch->blocks.v_norm && !c->kv_back &&
         weights_ones(&m->weights, &a->v_norm, c->head_dim, e)))
        return -1;
    scale_vector(a->q_norm, norms[0].n, c->score_scale);
    a->q_scale = kind == QK_NORM_NONE ? c->score_scale : 1;
    return 0;
}

int layer_bind_attention(struct model *m, struct layer *l, size_t i,
                         struct qwick_err *e)
{
    const struct config *c = &m->config;
    const struct layer_config *lc = &c->layers[i];
    struct weights *w = &m->weights;
    struct attention *a = &l->attn;
    size_t d = c->d_model, q_dim = c->n_heads * lc->head_dim,
           kv_dim = lc->n_kv_heads * lc->head_dim;
    size_t q_rows = (c->attention_gate ? 2 : 1) * q_dim;
    size_t n_parts = lc->kv_back ? 1 : lc->v_from_k ? 2 : 3;
    const struct rows_of qkv[] = {{&a->q_proj, WEIGHT_Q_PROJ, q_rows},
                               {&a->k_proj, WEIGHT_K_PROJ, kv_dim},
                               {&a->v_proj, WEIGHT_V_PROJ, kv_dim}};
    const struct vector biases[] = {{&a->q_bias, WEIGHT_Q_BIAS, q_rows, true},
                                    {&a->k_bias, WEIGHT_K_BIAS, kv_dim, true},
                                    {&a->v_bias, WEIGHT_V_BIAS, kv_dim, true}};
    const struct vector vectors[] = {
        {&a->o_bias, WEIGHT_O_BIAS, d, c->o_bias},
        {&a->sinks, WEIGHT_SINKS, c->n_heads, c->arch->blocks.sinks},
    };
    if (layer_bind_norms(m, l, i, e) ||
        bind_parts(w, qkv, n_parts, d, WEIGHT_QKV_PROJ, i, e) ||
        weights_matrix(w, &a->o_proj, d, q_dim, layer_weight(WEIGHT_O_PROJ, i),
                       e) ||
        (c->qkv_bias &&
         bind_biases(w, biases, n_parts, WEIGHT_QKV_BIAS, i, e)) ||
        bind_qkv_norms(m, a, i, e) || BIND_VECTORS(w, vectors, i, e))
        return -1;
    scale_vector(a->o_bias, d, c->residual_scale);
    return 0;
}

static int bind_dense(struct model *m, struct mlp *mlp, size_t i,
                      struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    size_t d = c->d_model, ff = c->layers[i].d_ff;
    size_t n_parts = c->arch->blocks.ungated ? 1 : 2;
    const struct rows_of gated[] = {{&mlp->gate_proj, WEIGHT_GATE_PROJ, ff},
                                 {&mlp->up_proj, WEIGHT_UP_PROJ, ff}};
    const struct vector biases[] = {
        {&mlp->gate_bias, WEIGHT_GATE_BIAS, ff, true},
        {&mlp->up_bias, WEIGHT_UP_BIAS, ff, true}};
    const struct vector down_bias[] = {
        {&mlp->down_bias, WEIGHT_DOWN_BIAS, d, c->mlp_bias}};
    if (bind_parts(w, gated, n_parts, d, WEIGHT_GATE_UP_PROJ, i, e) ||
        weights_matrix(w, &mlp->down_proj, d, ff,
                       layer_weight(WEIGHT_DOWN_PROJ, i), e) ||
        (c->mlp_bias &&
         bind_biases(w, biases, n_parts, WEIGHT_GATE_UP_BIAS, i, e)) ||
        BIND_VECTORS(w, down_bias, i, e))
        return -1;
    scale_vector(mlp->down_bias, d, c->residual_scale);
    mlp->scale = c->residual_scale;
    mlp->glu = model_glu(m);
    return 0;
}

int layer_bind_mlp(struct model *m, struct layer *l, size_t i,
                   struct qwick_err *e)
{
    const struct layer_config *c = &m->config.layers[i];
    return (c->n_experts && experts_bind(m, &l->experts, i, e)) ||
                   (c->d_ff && bind_dense(m, &l->mlp, i, e))
               ? -1
               : 0;
}

int layer_bind_conv(struct model *m, float **out, size_t i,
                    struct qwick_err *e)
{
    const struct weight_ref ref = layer_weight(WEIGHT_DELTA_CONV, i);
    size_t n = delta_channels(&m->config.delta), taps = m->config.delta.conv;
    size_t has[3] = {0}, want[3] = {n, 1, taps};
    size_t rank = weights_shape(&m->weights, ref, has, 3);
    float *by_channel, *by_tap = malloc(n * taps * sizeof *by_tap);
    if (!by_tap)
        return err_oom(e, n * taps * sizeof *by_tap);
    if (rank == 2 || (rank == 3 && has[2] == 1)) {
        want[1] = taps;
        want[2] = 1;
    }
    if (weights_array(&m->weights, &by_channel, want, rank == 2 ? 2 : 3, ref,
                      e)) {
        free(by_tap);
        return -1;
    }
    for (size_t c = 0; c < n; c++)
        for (size_t k = 0; k < taps; k++)
            by_tap[k * n + c] = by_channel[c * taps + k];
    memcpy(by_channel, by_tap, n * taps * sizeof *by_tap);
    free(by_tap);
    *out = by_channel;
    return 0;
}

int layer_bind(struct model *m, struct layer *l, size_t i, struct qwick_err *e)
{
    const struct recurrence *r = m->config.arch->recurrence;
    return (m->config.layers[i].recurrent ? r->bind
                                          : layer_bind_attention)(m, l, i, e) ||
                   layer_bind_mlp(m, l, i, e)
               ? -1
               : 0;
}

/* ---- the layer ------------------------------------------------------------
 */

void layer_ahead(struct worker *w, size_t i)
{
    const struct matrix *ws[LAYER_INPUTS];
    size_t n_ws = layer_inputs(&w->p->m->layers[i], ws);
    pass_ahead_all(w, ws, n_ws, pass_rows(w->p, i));
}

/* Add the product of a half's last matrix and n rows `in` to the residual
 * stream; norm: of the product first, or NULL. With a norm, the sum is
 * multiplied by scale. Ends with a barrier; at the first one, the caller's
 * w->ahead applies. */
static void add_product(struct worker *w, const struct matrix *a,
                        const float *bias, const struct input *in, size_t n,
                        const float *norm, float scale)
{
    const struct scratch *s = w->p->s;
    size_t ld = scratch_ld(w->p->m->config.d_model);
    struct product p = {a, bias, norm ? s->proj : s->x, ld, !norm};
    pass_lora(w, &a, 1, in, n);
    pass_multiply_all(w, &p, 1, in, n);
    pass_barrier(w, PART_PROJECTIONS);
    if (norm)
        pass_add_normalised(w, norm, n, scale);
}

/* Normalise n tokens and compute the dense MLP up to down_proj. Ends with a
 * barrier. */
static struct input dense_gated(struct worker *w, const struct layer *l,
                                size_t n)
{
    const struct pass *p = w->p;
    const struct mlp *mlp = &l->mlp;
    const struct matrix *const gated[] = {&mlp->gate_proj, &mlp->up_proj};
    struct input in = pass_normalise(w, p->s->x, n, l->post_norm,
                                     pass_act_types(p, gated,
                                                    mlp->up_proj.rows ? 2 : 1,
                                                    n));
    return pass_gated(w, mlp, &in, n);
}

/* The factor of the stream after the MLP: the layer's scale, unless something
 * comes between. */
static float mlp_scale(const struct layer *l)
{
    return l->ple.gate.rows ? 1 : l->scale;
}

/* Add the dense MLP of n tokens to the residual stream. Ends with a barrier. */
static void dense_mlp(struct worker *w, const struct layer *l, size_t n,
                      size_t next)
{
    const struct mlp *mlp = &l->mlp;
    const struct matrix *const ple[] = {&l->ple.gate};
    struct input in = dense_gated(w, l, n);
    if (l->ple.gate.rows)
        pass_ahead_all(w, ple, 1, n);
    else
        pass_ahead_layer(w, next);
    add_product(w, &mlp->down_proj, mlp->down_bias, &in, n, l->mlp_post_norm,
                mlp_scale(l));
}

/* Add the dense MLP and the experts of n tokens to the residual stream
 * (Gemma4TextDecoderLayer in transformers). Each reads the stream through a
 * norm of its own, and there is a norm of each result and of their sum. Ends
 * with a barrier. */
static void mlp_and_experts(struct worker *w, const struct layer *l, size_t n,
                            size_t next)
{
    const struct scratch *s = w->p->s;
    const struct experts *x = &l->experts;
    size_t d = w->p->m->config.d_model, ld = scratch_ld(d), begin, end;
    struct product down = {&l->mlp.down_proj, l->mlp.down_bias, s->proj, ld,
                           false};
    struct input in = dense_gated(w, l, n);
    pass_lora(w, &down.w, 1, &in, n);
    pass_multiply_all(w, &down, 1, &in, n);
    /* s->proj is read after the barriers of the experts */
    pass_experts(w, x, x->norm, n, next);
    par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *dense = s->proj + t * ld, *sum = s->xn + t * ld;
        pass_norm(w, dense, dense, x->dense_post_norm);
        pass_norm(w, sum, sum, x->post_norm);
        w->k->add(dense, sum, d);
    }
    /* the same rows */
    pass_add_normalised(w, l->mlp_post_norm, n, mlp_scale(l));
}

void layer_finish(struct worker *w, const struct layer *l,
                  const struct matrix *o_proj, const struct input *in, size_t n,
                  size_t next)
{
    bool dense = l->mlp.down_proj.rows;
    if (dense)
        pass_ahead_gated(w, &l->mlp, n);
    else
        pass_ahead_experts(w, &l->experts, n);
    add_product(w, o_proj, l->attn.o_bias, in, n, l->attn_post_norm, 1);
    if (!dense)
        pass_experts(w, &l->experts, l->post_norm, n, next);
    else if (l->experts.n)
        mlp_and_experts(w, l, n, next);
    else
        dense_mlp(w, l, n, next);
    if (l->ple.gate.rows)
        pass_add_ple(w, next - 1, n);
}

void layer_run(struct worker *w, size_t i, size_t n)
{
    const struct model *m = w->p->m;
    const struct layer *l = &m->layers[i];
    bool recurrent = m->config.layers[i].recurrent;
    struct input in = (recurrent ? m->config.arch->recurrence->run
                                 : pass_attention)(w, i, l->input_norm, n);
    if (!w->stopped && n > 0)
        layer_finish(w, l, recurrent ? &l->delta.out : &l->attn.o_proj, &in, n,
                     i + 1);
}

/* ---- costs ----------------------------------------------------------------
 */

/* The cost of a layer without its MLP. */
static struct cost attention_cost(const struct model *m, size_t i, size_t pos,
                                  size_t n, size_t n_kept)
{
    const struct config *c = &m->config;
    const struct layer_config *l = &c->layers[i];
    const struct attention *a = &m->layers[i].attn;
    double d = (double)c->d_model, q_dim = (double)(c->n_heads * l->head_dim),
           rows = (double)(a->q_proj.rows + a->k_proj.rows + a->v_proj.rows);
    double pairs =
        c->bidirectional
            ? cost_pairs_both(l->window, n, n_kept)
            : cost_pairs(l->window, pos + n - n_kept, n_kept);
    return (struct cost){.flops = (double)n * 2 * d * rows +
                                  (double)n_kept * 2 * d * q_dim +
                                  4 * pairs * q_dim};
}

double layer_mlp_flops(const struct model *m, size_t i, size_t n)
{
    const struct layer_config *l = &m->config.layers[i];
    double products = m->config.arch->blocks.ungated ? 2 : 3;
    double rows = products * ((double)l->d_ff +
                              (double)(l->n_active * l->expert_ff) +
                              (double)l->shared_ff) +
                  (double)l->n_experts + (l->shared_ff ? 1 : 0);
    return (double)n * 2 * (double)m->config.d_model * rows;
}

struct cost layer_cost(const struct model *m, size_t i, size_t pos, size_t n,
                       size_t n_kept)
{
    struct cost c = m->config.layers[i].recurrent
                        ? m->config.arch->recurrence->cost(m, n, n_kept)
                        : attention_cost(m, i, pos, n, n_kept);
    c.flops += layer_mlp_flops(m, i, n_kept);
    return c;
}
