/* LFM2 and LFM2-MoE (Lfm2ForCausalLM and Lfm2MoeForCausalLM in transformers):
 *
 *   h = x + mix(norm(x))
 *   y = h + mlp(norm(h))
 *
 * mix is a short convolution (shortconv.c) in most layers, and Qwen3's attention
 * in the others. mlp is dense, or, after the first layers of LFM2-MoE, a mixture
 * of experts, which are chosen by sigmoids of scores. */
#include <math.h>

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

static const struct fixed_field fixed[] = {{"conv_bias", "false"},
                                           {"hidden_act", "\"silu\""},
                                           {NULL, NULL}};

/* Keys of GGUF files that LFM2-MoE reads, or of which it needs other values. */
static const char *const moe_keys[] = {".expert_gating_func",
                                       ".expert_weights_scale", NULL};

/* The defaults of Lfm2Config. GGUF files have all fields. rms_norm_eps, which
 * transformers does not read, counts only in these. */
static int set_defaults(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    c->tied_head = true;
    c->rms_eps = 1e-5;
    if (section_is_gguf(s))
        return 0;
    c->ropes[0].theta = 1000000;
    return section_opt_bool(s, "tie_embedding", true, &c->tied_head, e);
}

/* The layers that attend: full_attn_idxs, of older files. */
static int read_attending(struct config *c, const struct section *s,
                          struct qwick_err *e)
{
    static const char key[] = "full_attn_idxs";
    const struct json_value *list = json_get(s->v, key);
    if (section_absent(s, key) || list->type != JSON_ARRAY)
        return section_bad(s, key, "a list of layers, or layer_types", e);
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].recurrent = true;
    for (size_t i = 0; i < list->len; i++) {
        int64_t layer;
        if (json_int(&list->items[i], 0, (int64_t)c->n_layers - 1, &layer))
            return section_bad(s, key, "a list of layers of the model", e);
        c->layers[layer].recurrent = false;
    }
    return 0;
}

static int read_layers(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    size_t attending = 0;
    c->delta.n_short = c->d_model;
    if (section_opt_size(s, "conv_L_cache", 3, DELTA_BLOCK, &c->delta.conv, e))
        return -1;
    if (c->delta.conv < 2)
        return section_bad(s, "conv_L_cache", "at least 2", e);
    if (section_absent(s, "layer_types") ? read_attending(c, s, e)
                                         : config_read_layer_types(c, s, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        attending += !c->layers[i].recurrent;
    if (attending == c->n_layers)
        c->delta = (struct delta_config){0};
    return attending ? 0
                     : err_set(e, QWICK_ERR_MODEL,
                               "%s: none of %zu layers is of full_attention, "
                               "which is not supported",
                               s->path, c->n_layers);
}

static int read_shape(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    return set_defaults(c, s, e) || config_read_llama(c, s, e) ||
                   section_opt_double(s, "norm_eps", c->rms_eps, 1e-12, 1,
                                      &c->rms_eps, e) ||
                   read_layers(c, s, e)
               ? -1
               : 0;
}

/* Rows of the MLP: two thirds of block_ff_dim, times a factor, rounded up, if
 * the file says so. GGUF files have the result. */
static int read_d_ff(struct config *c, const struct section *s,
                     struct qwick_err *e)
{
    bool adjust;
    double factor;
    size_t multiple, ff = c->d_ff;
    if (section_opt_bool(s, "block_auto_adjust_ff_dim", true, &adjust, e) ||
        section_opt_double(s, "block_ffn_dim_multiplier", 1, 1e-3, 1e3, &factor,
                           e) ||
        section_opt_size(s, "block_multiple_of", 256, MAX_DIM, &multiple, e) ||
        section_opt_size(s, "block_ff_dim", ff, MAX_DIM, &ff, e))
        return -1;
    if (adjust) {
        ff = (size_t)(factor * (double)(2 * ff / 3));
        ff = (ff + multiple - 1) / multiple * multiple;
    }
    if (!ff || ff > MAX_DIM)
        return section_bad(s, "block_ff_dim",
                           "a size that the other fields make fit", e);
    c->d_ff = ff;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].d_ff = ff;
    return 0;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    bool renamed = section_absent(s, "intermediate_size");
    if (renamed && section_opt_size(s, "block_ff_dim", 12288, MAX_DIM, &c->d_ff, e))
        return -1;
    return read_shape(c, s, e) ||
                   (!section_is_gguf(s) && read_d_ff(c, s, e))
               ? -1
               : 0;
}

/* The converter writes 2, sigmoid. */
static int check_gating(const struct section *s, struct qwick_err *e)
{
    static const struct fixed_field gating[] = {{"expert_gating_func", "2"},
                                                {NULL, NULL}};
    return section_is_gguf(s) ? fixed_check(s, gating, NULL, e) : 0;
}

static int read_config_moe(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    size_t n_dense;
    double scale;
    bool gguf = section_is_gguf(s);
    if (check_gating(s, e) || read_shape(c, s, e) ||
        experts_read_config(c, s, 0, e) ||
        section_opt_size(s, "num_dense_layers", 2, MAX_LAYERS, &n_dense, e) ||
        section_opt_bool(s, "use_expert_bias", true, &c->select_bias, e) ||
        section_opt_bool(s, "norm_topk_prob", true, &c->norm_topk_prob, e) ||
        section_opt_double(s, "routed_scaling_factor", 1, 0, 1e6, &scale, e))
        return -1;
    c->routed_scale = gguf && scale == 0 ? 1 : (float)scale;
    experts_leave_dense(c, n_dense);
    return 0;
}

/* ---- short convolutions -------------------------------------------------- */

static int bind(struct model *m, struct layer *layer, size_t i,
                struct qwick_err *e)
{
    struct weights *w = &m->weights;
    struct delta *l = &layer->delta;
    size_t d = m->config.d_model;
    l->n_inputs = 1;
    return layer_bind_norms(m, layer, i, e) ||
                   weights_matrix(w, &l->inputs[0], 3 * d, d,
                                  layer_weight(WEIGHT_DELTA_QKV, i), e) ||
                   weights_matrix(w, &l->out, d, d,
                                  layer_weight(WEIGHT_DELTA_OUT, i), e) ||
                   layer_bind_conv(m, &l->conv, i, e)
               ? -1
               : 0;
}

static struct cost cost(const struct model *m, size_t n, size_t n_kept)
{
    double d = (double)m->config.d_model;
    double token = 2 * 3 * d * d + 2 * (double)(m->config.delta.conv + 1) * d;
    return (struct cost){.flops =
                             (double)n * token + (double)n_kept * 2 * d * d};
}

static const struct recurrence recurrence = {
    .layer_type = "conv", .bind = bind, .run = pass_shortconv, .cost = cost};

/* ---- the families ---------------------------------------------------------
 */

static const struct names *const schemes[] = {&names_lfm2, &names_lfm2_gguf,
                                              NULL};

#define LFM2                                                               \
    .implies_heads = true, .recurrence = &recurrence, .fixed = fixed,      \
    .names = schemes, .gguf_names = &names_lfm2_gguf, LAYER_FUNCTIONS
/* A short convolution multiplies three results of one product, and so the errors
 * of their roundings. */
#define LFM2_BLOCKS                                                         \
    .attn_norm = true, .mlp_norm = true, .qk_norm = QK_NORM_HEAD,           \
    .precise_tokens = 64

const struct arch arch_lfm2 = {.model_type = "lfm2",
                               .wrapped = "lfm2_vl",
                               .gguf = "lfm2",
                               .blocks = {LFM2_BLOCKS},
                               .read_config = read_config,
                               LFM2};

const struct arch arch_lfm2moe = {
    .model_type = "lfm2_moe",
    .gguf = "lfm2moe",
    .gguf_keys = moe_keys,
    .blocks = {LFM2_BLOCKS, .routing = ROUTING_SIGMOID},
    .read_config = read_config_moe,
    LFM2};
