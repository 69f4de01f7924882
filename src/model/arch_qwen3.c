/* Dense Qwen3 (Qwen3ForCausalLM in transformers):
 *
 *   h = x + o_proj(attention(q_norm, k_norm, RoPE of q, k, v of norm(x)))
 *   y = h + down_proj(silu(gate_proj(norm(h))) * up_proj(norm(h)))
 */
#include <math.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/arch_qwen3.h"
#include "model/cost.h"
#include "model/fixed.h"
#include "model/model.h"
#include "model/pass.h"
#include "model/section.h"

/* ---- config.json ----------------------------------------------------------
 */

static const struct fixed_field fixed[] = {QWEN3_FIXED, {NULL, NULL}};

/* Which layers attend through a window (Qwen3Config: layer_types, else the
 * layers from max_window_layers on). */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    enum { WINDOW = 4096 }; /* Qwen3Config's, where the field is missing */
    bool use;
    int64_t first;
    if (section_opt_bool(s, "use_sliding_window", false, &use, e))
        return -1;
    bool none = json_is(json_get(s->v, "sliding_window"), JSON_NULL);
    if (use && !none &&
        section_opt_size(s, "sliding_window", WINDOW, INT32_MAX,
                         &c->sliding_window, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    if (!c->sliding_window)
        return 0;
    if (json_int(json_get(s->v, "max_window_layers"), 0, INT32_MAX, &first))
        return section_bad(s, "max_window_layers", "an integer from 0", e);
    for (size_t i = (size_t)first; i < c->n_layers; i++)
        c->layers[i].window = c->sliding_window;
    return 0;
}

int qwen3_read_config(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    if (config_read_common(c, s, e) || config_check_head_dim(c, s, e))
        return -1;
    c->n_ropes = 1;
    c->ropes[0].n_rot = c->head_dim;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].score_scale = 1.0f / sqrtf((float)c->head_dim);
    if (config_read_rope(c, &c->ropes[0], s, e))
        return -1;
    return read_windows(c, s, e);
}

/* ---- weights --------------------------------------------------------------
 */

/* A weight of layer i. */
static struct weight_ref of_layer(enum weight_id id, size_t i)
{
    return (struct weight_ref){.id = id, .layer = i};
}

static int bind_biases(struct weights *w, struct attention *a, size_t i,
                       size_t d, size_t q_rows, size_t kv_dim,
                       struct qwick_err *e)
{
    return weights_vector(w, &a->q_bias, q_rows, of_layer(WEIGHT_Q_BIAS, i),
                          e) ||
                   weights_vector(w, &a->k_bias, kv_dim,
                                  of_layer(WEIGHT_K_BIAS, i), e) ||
                   weights_vector(w, &a->v_bias, kv_dim,
                                  of_layer(WEIGHT_V_BIAS, i), e) ||
                   weights_vector(w, &a->o_bias, d, of_layer(WEIGHT_O_BIAS, i),
                                  e)
               ? -1
               : 0;
}

int qwen3_bind_norms(struct model *m, struct layer *l, size_t i,
                     struct qwick_err *e)
{
    struct weights *w = &m->weights;
    size_t d = m->config.d_model;
    return weights_vector(w, &l->input_norm, d, of_layer(WEIGHT_ATTN_NORM, i),
                          e) ||
                   weights_vector(w, &l->post_norm, d,
                                  of_layer(WEIGHT_MLP_NORM, i), e)
               ? -1
               : 0;
}

int qwen3_bind_attention(struct model *m, struct layer *l, size_t i,
                         struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    struct attention *a = &l->attn;
    size_t d = c->d_model, q_dim = c->n_heads * c->head_dim,
           kv_dim = c->n_kv_heads * c->head_dim;
    size_t q_rows = (c->attention_gate ? 2 : 1) * q_dim;
    if (qwen3_bind_norms(m, l, i, e) ||
        weights_matrix(w, &a->q_proj, q_rows, d, of_layer(WEIGHT_Q_PROJ, i),
                       e) ||
        weights_matrix(w, &a->k_proj, kv_dim, d, of_layer(WEIGHT_K_PROJ, i),
                       e) ||
        weights_matrix(w, &a->v_proj, kv_dim, d, of_layer(WEIGHT_V_PROJ, i),
                       e) ||
        weights_matrix(w, &a->o_proj, d, q_dim, of_layer(WEIGHT_O_PROJ, i),
                       e) ||
        weights_vector(w, &a->q_norm, c->head_dim, of_layer(WEIGHT_Q_NORM, i),
                       e) ||
        weights_vector(w, &a->k_norm, c->head_dim, of_layer(WEIGHT_K_NORM, i),
                       e))
        return -1;
    /* the norm of q applies the scale of the scores, too */
    for (size_t j = 0; j < c->head_dim; j++)
        a->q_norm[j] *= c->layers[i].score_scale;
    return c->attention_bias ? bind_biases(w, a, i, d, q_rows, kv_dim, e) : 0;
}

int qwen3_bind_mlp(struct model *m, struct layer *l, size_t i,
                   struct qwick_err *e)
{
    struct weights *w = &m->weights;
    struct mlp *mlp = &l->mlp;
    size_t d = m->config.d_model, ff = m->config.layers[i].d_ff;
    mlp->glu = m->k->swiglu;
    return weights_matrix(w, &mlp->gate_proj, ff, d,
                          of_layer(WEIGHT_GATE_PROJ, i), e) ||
                   weights_matrix(w, &mlp->up_proj, ff, d,
                                  of_layer(WEIGHT_UP_PROJ, i), e) ||
                   weights_matrix(w, &mlp->down_proj, d, ff,
                                  of_layer(WEIGHT_DOWN_PROJ, i), e)
               ? -1
               : 0;
}

static int bind_layer(struct model *m, struct layer *l, size_t i,
                      struct qwick_err *e)
{
    return qwen3_bind_attention(m, l, i, e) || qwen3_bind_mlp(m, l, i, e) ? -1
                                                                          : 0;
}

static const struct names *const schemes[] = {&names_hub, &names_gguf, NULL};

/* ---- the layer ------------------------------------------------------------
 */

void qwen3_ahead(struct worker *w, size_t i)
{
    const struct matrix *ws[LAYER_INPUTS];
    size_t n_ws = layer_inputs(&w->p->m->layers[i], ws);
    pass_ahead_all(w, ws, n_ws, w->p->n);
}

/* Add the product of o_proj and n results of attention to the residual stream.
 * Ends with a barrier. */
static void output(struct worker *w, const struct matrix *o_proj,
                   const float *bias, const struct input *in, size_t n)
{
    size_t ld = scratch_ld(w->p->m->config.d_model);
    struct product o = {o_proj, bias, w->p->s->x, ld, true};
    pass_multiply_all(w, &o, 1, in, n);
    pass_barrier(w, PART_PROJECTIONS);
}

/* Add the dense MLP of n tokens to the residual stream. Ends with a barrier. */
static void dense_mlp(struct worker *w, const struct layer *l, size_t n,
                      size_t next)
{
    const struct pass *p = w->p;
    const struct mlp *mlp = &l->mlp;
    const struct matrix *const gated[] = {&mlp->gate_proj, &mlp->up_proj};
    size_t ld = scratch_ld(p->m->config.d_model);
    struct input in = pass_normalise(w, p->s->x, n, l->post_norm,
                                     pass_act_types(p, gated, 2, n));
    in = pass_gated(w, mlp, &in, n);
    struct product down = {&mlp->down_proj, NULL, p->s->x, ld, true};
    pass_ahead_layer(w, next);
    pass_multiply_all(w, &down, 1, &in, n);
    pass_barrier(w, PART_PROJECTIONS);
}

void qwen3_finish(struct worker *w, const struct layer *l,
                  const struct matrix *o_proj, const struct input *in, size_t n,
                  size_t next)
{
    if (l->experts.n)
        pass_ahead_experts(w, &l->experts, n);
    else
        pass_ahead_gated(w, &l->mlp, n);
    output(w, o_proj, l->attn.o_bias, in, n);
    if (l->experts.n)
        pass_experts(w, &l->experts, l->post_norm, n, next);
    else
        dense_mlp(w, l, n, next);
}

void qwen3_layer(struct worker *w, size_t i, size_t n)
{
    const struct layer *l = &w->p->m->layers[i];
    struct input in = pass_attention(w, i, l->input_norm, n);
    if (!w->stopped && n > 0)
        qwen3_finish(w, l, &l->attn.o_proj, &in, n, i + 1);
}

/* ---- costs ----------------------------------------------------------------
 */

/* The cost of a layer without its MLP. */
static struct cost qwen3_attention_cost(const struct model *m, size_t i,
                                        size_t pos, size_t n, size_t n_kept)
{
    const struct config *c = &m->config;
    double d = (double)c->d_model, q_dim = (double)(c->n_heads * c->head_dim),
           kv_dim = (double)(c->n_kv_heads * c->head_dim),
           q_rows = c->attention_gate ? 2 * q_dim : q_dim;
    double pairs = cost_pairs(c->layers[i].window, pos + n - n_kept, n_kept);
    return (struct cost){
        .flops = (double)n * 2 * d * (q_rows + 2 * kv_dim) +
                 (double)n_kept * 2 * d * q_dim + 4 * pairs * q_dim,
        .positions = cost_positions(c->layers[i].window, pos, n)};
}

double qwen3_mlp_flops(const struct model *m, size_t i, size_t n)
{
    const struct layer_config *l = &m->config.layers[i];
    double mlps = l->n_experts ? (double)l->n_active : 1;
    double rows = 3 * (mlps * (double)l->d_ff + (double)l->shared_ff) +
                  (double)l->n_experts + (l->shared_ff ? 1 : 0);
    return (double)n * 2 * (double)m->config.d_model * rows;
}

struct cost qwen3_layer_cost(const struct model *m, size_t i, size_t pos,
                             size_t n, size_t n_kept)
{
    struct cost c = qwen3_attention_cost(m, i, pos, n, n_kept);
    c.flops += qwen3_mlp_flops(m, i, n_kept);
    return c;
}

const struct arch arch_qwen3 = {.model_type = "qwen3",
                                .gguf = "qwen3",
                                .fixed = fixed,
                                .names = schemes,
                                .gguf_names = &names_gguf,
                                .read_config = qwen3_read_config,
                                .bind_layer = bind_layer,
                                .layer = qwen3_layer,
                                .ahead = qwen3_ahead,
                                .layer_cost = qwen3_layer_cost};
