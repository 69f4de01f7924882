/* Qwen3.5's text models (Qwen3_5ForCausalLM and Qwen3_5MoeForCausalLM in
 * transformers; Qwen3.6 has the same model_type) and Qwen3-Next's
 * (Qwen3NextForCausalLM), which differ in how files pack the projections of
 * Gated DeltaNet:
 *
 *   h = x + mix(norm(x))
 *   y = h + mlp(norm(h))
 *
 * mix is Gated DeltaNet (delta.c) in most layers. In the others it is Qwen3's
 * attention, of which the first part of a head rotates, and whose results are
 * multiplied by the sigmoid of gates; q_proj computes these, a head of them
 * behind each head of queries. mlp is dense, or a mixture of experts with one
 * that all tokens share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/json.h"
#include "model/arch.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/model.h"
#include "model/moe.h"
#include "model/pass.h"
#include "model/section.h"

/* ---- config.json ----------------------------------------------------------
 */

#define QWEN35_FIXED                                          \
    {"hidden_act", "\"silu\""}, {"attn_output_gate", "true"}, \
    {                                                         \
        "output_gate_type", "\"swish\""                       \
    } /* SiLU */

static const struct fixed_field fixed[] = {QWEN35_FIXED, {NULL, NULL}};

static const struct fixed_field fixed_next[] = {{"hidden_act", "\"silu\""},
                                                {NULL, NULL}};

/* Qwen3_5MoeTopKRouter divides by the sum. */
static const struct fixed_field fixed_moe[] = {
    QWEN35_FIXED, {"norm_topk_prob", "true"}, {NULL, NULL}};

static int read_delta(struct delta_config *d, const struct section *s,
                      struct qwick_err *e)
{
    size_t k, v;
    if (section_size(s, "linear_num_key_heads", MAX_DIM, &d->n_k_heads, e) ||
        section_size(s, "linear_num_value_heads", MAX_DIM, &d->n_v_heads, e) ||
        section_size(s, "linear_key_head_dim", MAX_DIM, &d->d_k, e) ||
        section_size(s, "linear_value_head_dim", MAX_DIM, &d->d_v, e) ||
        section_size(s, "linear_conv_kernel_dim", DELTA_BLOCK, &d->conv, e))
        return -1;
    if (d->conv < 2)
        return section_bad(s, "linear_conv_kernel_dim", "at least 2", e);
    if (d->n_v_heads % d->n_k_heads)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: linear_num_value_heads: %zu is not a multiple of "
                       "linear_num_key_heads, %zu",
                       s->path, d->n_v_heads, d->n_k_heads);
    if (size_mul(d->n_k_heads, d->d_k, &k) || k > MAX_DIM)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: linear_num_key_heads times linear_key_head_dim: "
                       "%zu times %zu is over %d",
                       s->path, d->n_k_heads, d->d_k, MAX_DIM);
    if (size_mul(d->n_v_heads, d->d_v, &v) || v > MAX_DIM)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: linear_num_value_heads times "
                       "linear_value_head_dim: %zu times %zu is over %d",
                       s->path, d->n_v_heads, d->d_v, MAX_DIM);
    return 0;
}

/* layer_types; else every full_attention_interval-th layer attends. */
static int read_layers(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    size_t interval;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    if (section_opt_size(s, "full_attention_interval", 4, MAX_LAYERS, &interval,
                         e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].recurrent = (i + 1) % interval != 0;
    return 0;
}

/* The positions of text are equal in all three parts of mrope_section, which
 * makes it a plain rotary embedding. */
static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (config_read_common(c, s, e) || read_delta(&c->delta, s, e) ||
        read_layers(c, s, e))
        return -1;
    c->attention_gate = true;
    c->n_ropes = 1;
    if (config_read_rotary(c, &c->ropes[0], 0.25, s, e) ||
        config_read_rope(c, &c->ropes[0], s, e))
        return -1;
    size_t recurrent = 0;
    for (size_t i = 0; i < c->n_layers; i++) {
        recurrent += c->layers[i].recurrent;
    }
    if (recurrent == c->n_layers)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: none of %zu layers is of full_attention, which is "
                       "not supported",
                       s->path, c->n_layers);
    if (recurrent == 0)
        c->delta = (struct delta_config){0};
    return 0;
}

/* Qwen3NextConfig, with the defaults of what a file may leave out. */
static int read_config_next(struct config *c, const struct section *s,
                            struct qwick_err *e)
{
    c->d_ff = 5632; /* of layers without experts */
    if (read_config(c, s, e) || experts_read_config(c, s, 0, e) ||
        experts_read_shared(c, s, e))
        return -1;
    return section_opt_bool(s, "norm_topk_prob", true, &c->norm_topk_prob, e);
}

/* Qwen3_5MoeTextConfig has no intermediate_size, although files may. */
static int read_config_moe(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    c->d_ff = 1;
    if (read_config(c, s, e) || experts_read_config(c, s, 0, e) ||
        experts_read_shared(c, s, e))
        return -1;
    c->norm_topk_prob = true;
    return 0;
}

/* ---- weights --------------------------------------------------------------
 */

static int bind_decay(struct weights *w, struct delta *l, size_t n, size_t i,
                      struct qwick_err *e)
{
    struct weight_ref log = layer_weight(WEIGHT_DELTA_A_LOG, i);
    struct weight_ref decay = layer_weight(WEIGHT_DELTA_DECAY, i);
    if (w->naming.names->of[WEIGHT_DELTA_DECAY][0])
        return weights_vector(w, &l->decay, n, decay, e);
    if (weights_vector(w, &l->decay, n, log, e))
        return -1;
    for (size_t j = 0; j < n; j++)
        l->decay[j] = (float)-exp((double)l->decay[j]);
    return 0;
}

/* The split or the packed matrices that the layer multiplies by its input,
 * whichever the checkpoint has. */
static int bind_inputs(struct model *m, struct delta *l, size_t i,
                       struct qwick_err *e)
{
    const struct delta_config *c = &m->config.delta;
    const struct names *names = m->weights.naming.names;
    size_t n = c->n_v_heads, v_dim = n * c->d_v, channels = delta_channels(c);
    bool ba = names->of[WEIGHT_DELTA_BA][0];
    bool qkvz = !names->of[WEIGHT_DELTA_QKV][0] ||
                weights_has(&m->weights, layer_weight(WEIGHT_DELTA_QKVZ, i));
    const struct {
        enum weight_id id;
        size_t rows;
        bool used;
    } all[] = {
        {WEIGHT_DELTA_QKVZ, channels + v_dim, qkvz},
        {WEIGHT_DELTA_QKV, channels, !qkvz},
        {WEIGHT_DELTA_Z, v_dim, !qkvz},
        {WEIGHT_DELTA_BA, 2 * n, ba},
        {WEIGHT_DELTA_B, n, !ba},
        {WEIGHT_DELTA_A, n, !ba},
    };
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        if (all[j].used &&
            weights_matrix(&m->weights, &l->inputs[l->n_inputs++], all[j].rows,
                           m->config.d_model, layer_weight(all[j].id, i), e))
            return -1;
    l->tiled = names->tiled;
    delta_find_columns(l, c, qkvz, ba);
    return 0;
}

static int bind_delta(struct model *m, struct layer *layer, size_t i,
                      struct qwick_err *e)
{
    const struct delta_config *c = &m->config.delta;
    struct weights *w = &m->weights;
    struct delta *l = &layer->delta;
    size_t d = m->config.d_model, n = c->n_v_heads, v_dim = n * c->d_v;
    return layer_bind_norms(m, layer, i, e) || bind_inputs(m, l, i, e) ||
                   weights_matrix(w, &l->out, d, v_dim,
                                  layer_weight(WEIGHT_DELTA_OUT, i), e) ||
                   layer_bind_conv(m, &l->conv, i, e) || bind_decay(w, l, n, i, e) ||
                   weights_vector(w, &l->dt_bias, n,
                                  layer_weight(WEIGHT_DELTA_DT_BIAS, i), e) ||
                   weights_vector(w, &l->norm, c->d_v,
                                  layer_weight(WEIGHT_DELTA_NORM, i), e)
               ? -1
               : 0;
}

static const struct names *const schemes[] = {&names_qwen35_mlx, &names_qwen35,
                                              &names_qwen35_gguf, NULL};
static const struct names *const next_schemes[] = {
    &names_qwen3next_mlx, &names_qwen3next, &names_qwen3next_gguf, NULL};

/* ---- recurrent layers -----------------------------------------------------
 */

/* The recurrence multiplies three times by a state or adds to it, and decays
 * it. */
static struct cost delta_cost(const struct model *m, size_t n, size_t n_kept)
{
    const struct delta_config *c = &m->config.delta;
    double d = (double)m->config.d_model, heads = (double)c->n_v_heads,
           v_dim = heads * (double)c->d_v, channels = (double)delta_channels(c);
    double state = heads * (double)c->d_k * (double)c->d_v;
    double token = 2 * d * (channels + v_dim + 2 * heads) +
                   2 * (double)c->conv * channels + 7 * state;
    return (struct cost){.flops = (double)n * token +
                                  (double)n_kept * 2 * d * v_dim};
}

static const struct recurrence recurrence = {.layer_type = "linear_attention",
                                             .bind = bind_delta,
                                             .run = pass_delta,
                                             .cost = delta_cost};

/* What the families share. */
#define QWEN35                                                                \
    .partial_rotary = true,                                                   \
    .blocks = {.attn_norm = true, .mlp_norm = true, .qk_norm = QK_NORM_HEAD}, \
    .recurrence = &recurrence, LAYER_FUNCTIONS

const struct arch arch_qwen35 = {.model_type = "qwen3_5_text",
                                 .wrapped = "qwen3_5",
                                 .gguf = "qwen35",
                                 .fixed = fixed,
                                 .names = schemes,
                                 .gguf_names = &names_qwen35_gguf,
                                 .read_config = read_config,
                                 QWEN35};

const struct arch arch_qwen35moe = {.model_type = "qwen3_5_moe_text",
                                    .wrapped = "qwen3_5_moe",
                                    .gguf = "qwen35moe",
                                    .fixed = fixed_moe,
                                    .names = schemes,
                                    .gguf_names = &names_qwen35_gguf,
                                    .read_config = read_config_moe,
                                    QWEN35};

const struct arch arch_qwen3next = {.model_type = "qwen3_next",
                                    .gguf = "qwen3next",
                                    .fixed = fixed_next,
                                    .names = next_schemes,
                                    .gguf_names = &names_qwen3next_gguf,
                                    .read_config = read_config_next,
                                    QWEN35};
