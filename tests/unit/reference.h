/* Random checkpoints of any geometry, and a plain forward pass over them in
 * double: Qwen3ForCausalLM, Qwen3MoeForCausalLM, Gemma3ForCausalLM,
 * Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM and Qwen3NextForCausalLM as
 * transformers has them, one token after the other, one head after the other.
 */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "file/safetensors.h"
#include "kernel/kernel.h"
#include "model/affine.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/names.h"
#include "stack.h"
#include "tempdir.h"
#include "tensors_file.h"

struct geometry {
    size_t n_layers, d_model, d_ff, n_kv_heads, group, head_dim, vocab_size;
    size_t n_tokens;
    size_t window; /* sliding window of every second layer, in a mixture of
                      experts of each layer; 0: none */
    bool tied, bias;
    bool sinks; /* write the checkpoint with ref_set_config */
    /* of Gemma 4; write the checkpoint with ref_set_config: */
    bool v_from_k; /* values of every second layer are keys before their norm */
    bool v_norm;   /* each head of values is normalised */
    size_t n_shared; /* the last layers that may read the keys and values of an
                        earlier one (ref_kv_layer) do; without qwen35 */
    /* of other layers (has_other_heads), a divisor of all heads; 0: none. Write
     * the checkpoint with ref_set_config */
    size_t other_kv_heads, other_head_dim;
    bool gemma; /* Gemma 3; without experts */
    /* of scores and of logits, which the config of any family gets
     * (ref_set_config); 0: none */
    double attn_cap, logit_cap;
    /* of Qwen3.5, without windows: */
    bool qwen35;
    bool packed;                                   /* as Qwen3-Next's files */
    bool mlx;                                      /* in the form of mlx-lm */
    size_t n_lin_heads, lin_group, d_k, d_v, conv; /* of layers with a state,
                          each but every second; value heads of a key head */
    size_t n_rot;     /* elements of a head that rotate */
    size_t shared_ff; /* of the expert that all tokens share */
    enum dtype dtype; /* type of dense weights and of scales */
    int bits;         /* 0: dense */
    size_t q_group;   /* elements that share a scale */
    /* of a mixture of experts: */
    size_t n_experts; /* 0: dense */
    size_t n_active, expert_ff;
    size_t sparse_step; /* every sparse_step-th layer has experts */
    bool normalise;
    /* write the checkpoint of these with ref_set_config: */
    bool clamped; /* biases, activation and weights of experts as in gpt-oss */
    bool beside;  /* a dense MLP beside the experts, as in Gemma 4 */
    int router_bits; /* of a quantized router; 0: like the other weights */
    enum expert_layout layout;
};

static inline bool is_sparse(const struct geometry *g, size_t layer)
{
    return g->n_experts && (layer + 1) % g->sparse_step == 0;
}

/* Whether a layer has a state in place of attention. */
static inline bool is_recurrent(const struct geometry *g, size_t layer)
{
    return g->qwen35 && layer % 2 == 0;
}

static inline bool is_sliding(const struct geometry *g, size_t layer)
{
    return g->window && (layer % 2 || g->n_experts);
}

/* Whether a layer has other heads. Gemma's are those of sliding layers, as each
 * kind has a rotary embedding. */
static inline bool has_other_heads(const struct geometry *g, size_t layer)
{
    return g->other_kv_heads &&
           (g->gemma ? is_sliding(g, layer) : layer % 3 == 1);
}

static inline size_t ref_n_heads(const struct geometry *g)
{
    return g->n_kv_heads * g->group;
}

static inline size_t ref_kv_heads(const struct geometry *g, size_t layer)
{
    return has_other_heads(g, layer) ? g->other_kv_heads : g->n_kv_heads;
}

static inline size_t ref_head_dim(const struct geometry *g, size_t layer)
{
    return has_other_heads(g, layer) ? g->other_head_dim : g->head_dim;
}

/* The layer whose keys and values a layer reads: if the layer is one of the
 * last n_shared, the last one before these with the same window and heads, if
 * there is one; otherwise itself. */
static inline size_t ref_kv_layer(const struct geometry *g, size_t layer)
{
    size_t from = g->n_layers - g->n_shared;
    if (layer < from)
        return layer;
    while (from--)
        if (is_sliding(g, from) == is_sliding(g, layer) &&
            has_other_heads(g, from) == has_other_heads(g, layer))
            return from;
    return layer;
}

static inline bool ref_v_from_k(const struct geometry *g, size_t layer)
{
    return g->v_from_k && layer % 2;
}

static inline size_t ref_v_dim(const struct geometry *g)
{
    return g->n_lin_heads * g->lin_group * g->d_v;
}

static inline size_t ref_channels(const struct geometry *g)
{
    return 2 * g->n_lin_heads * g->d_k + ref_v_dim(g);
}

/* ---- random numbers ---- */

static uint64_t seed = 1, draws;

static inline double uniform(void)
{
    return rng_uniform(seed, draws++);
}

static inline size_t between(size_t lo, size_t hi)
{
    return lo + (size_t)(uniform() * (double)(hi - lo + 1));
}

/* About normal: the sum of twelve uniform numbers. */
static inline double gauss(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

/* ---- weights ---- */

enum { REF_MAX_TENSORS = 2048 };

/* A tensor as stored, and the numbers that it contains. */
struct ref_tensor {
    char name[192];
    double *v;
    size_t rows, cols;
};

struct ref_model {
    struct geometry g;
    struct ref_tensor t[REF_MAX_TENSORS];
    size_t n;
    struct st_out_tensor out[REF_MAX_TENSORS];
    char out_names[REF_MAX_TENSORS][192];
    size_t n_out;
};

static inline void *ref_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

static inline void ref_store(struct ref_model *m, const char *module,
                             const char *part, enum dtype dtype, size_t rows,
                             size_t cols, void *data)
{
    struct st_out_tensor *t = &m->out[m->n_out];
    assert_true(m->n_out < REF_MAX_TENSORS);
    snprintf(m->out_names[m->n_out], sizeof m->out_names[0], "%s.%s", module,
             part);
    t->name = m->out_names[m->n_out++];
    t->dtype = dtype;
    t->rank = rows ? 2 : 1;
    t->shape[0] = rows ? rows : cols;
    t->shape[1] = rows ? cols : 0;
    t->data = data;
}

/* Store x [rows, cols] (rows 0: a vector), and set x to the stored, rounded
 * numbers. */
static inline void ref_store_dense(struct ref_model *m, const char *module,
                                   const char *part, size_t rows, size_t cols,
                                   float *x)
{
    const struct kernels *k = kernels_get(ISA_REF);
    size_t n = (rows ? rows : 1) * cols;
    void *data = ref_alloc(n, dtype_bytes(m->g.dtype));
    k->from_f32[m->g.dtype](data, x, n);
    k->to_f32[m->g.dtype](x, data, n);
    ref_store(m, module, part, m->g.dtype, rows, cols, data);
}

static inline int ref_bits(const struct geometry *g, const char *module)
{
    size_t n = strlen(module), tail = strlen(".mlp.gate");
    bool router = n > tail && !strcmp(module + n - tail, ".mlp.gate");
    return router && g->router_bits ? g->router_bits : g->bits;
}

static inline void ref_store_packed(struct ref_model *m, const char *module,
                                    size_t rows, size_t cols, float *x)
{
    const struct kernels *k = kernels_get(ISA_REF);
    const struct geometry *g = &m->g;
    size_t n = rows * cols, groups = n / g->q_group, bad;
    size_t bytes = dtype_bytes(g->dtype), row_groups = cols / g->q_group;
    unsigned char *w = ref_alloc(n, bytes);
    int bits = ref_bits(g, module);
    unsigned char *q = ref_alloc(n / 8, (size_t)bits);
    unsigned char *scales = ref_alloc(groups, bytes);
    unsigned char *biases = ref_alloc(groups, bytes);
    struct affine_format f = {bits, g->q_group, g->dtype, AFFINE_MLX, k};
    struct affine a = {.q = q,
                       .q_stride = cols * (size_t)bits / 8,
                       .scales = scales,
                       .s_stride = row_groups * bytes,
                       .s_type = g->dtype,
                       .biases = biases,
                       .b_stride = row_groups * bytes,
                       .b_type = g->dtype,
                       .bits = bits,
                       .group = g->q_group};
    k->from_f32[g->dtype](w, x, n);
    assert_int_equal(affine_quantize(&f, q, scales, biases, w, n, &bad), 0);
    free(w);
    k->affine_to_f32(x, &a, rows, cols);
    ref_store(m, module, "weight", DT_U32, rows, cols * (size_t)bits / 32, q);
    ref_store(m, module, "scales", g->dtype, rows, row_groups, scales);
    ref_store(m, module, "biases", g->dtype, rows, row_groups, biases);
}

/* Add a tensor of normal numbers with this mean and standard deviation. rows 0:
 * a vector. */
static inline void ref_add(struct ref_model *m, const char *module,
                           const char *part, size_t rows, size_t cols,
                           double mean, double spread)
{
    struct ref_tensor *t = &m->t[m->n++];
    size_t n = (rows ? rows : 1) * cols;
    float *x = ref_alloc(n, sizeof *x);
    assert_true(m->n <= REF_MAX_TENSORS);
    snprintf(t->name, sizeof t->name, "%s.%s", module, part);
    t->rows = rows;
    t->cols = cols;
    t->v = ref_alloc(n, sizeof *t->v);
    /* Gemma's and Qwen3.5's norms are stored without their mean of 1, except
     * Qwen3.5's norms of the states' results */
    bool centred = m->g.gemma ||
                   (m->g.qwen35 && !m->g.mlx && !strstr(module, "linear_attn"));
    double centre = centred && !rows && mean > 0 ? mean : 0;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mean - centre + spread * gauss());
    if (rows && m->g.bits)
        ref_store_packed(m, module, rows, cols, x);
    else
        ref_store_dense(m, module, part, rows, cols, x);
    for (size_t i = 0; i < n; i++)
        t->v[i] = (double)x[i] + centre;
    free(x);
}

/* Add a matrix of normal numbers, scaled so that products have the size of
 * their operands. */
static inline void ref_add_matrix(struct ref_model *m, const char *module,
                                  size_t rows, size_t cols)
{
    ref_add(m, module, "weight", rows, cols, 0, 1 / sqrt((double)cols));
}

static inline void ref_add_mlp(struct ref_model *m, const char *mlp, size_t ff)
{
    static const char *const roles[] = {"gate_proj", "up_proj", "down_proj"};
    for (size_t i = 0; i < 3; i++) {
        char module[192];
        snprintf(module, sizeof module, "%s.%s", mlp, roles[i]);
        ref_add_matrix(m, module, i == 2 ? m->g.d_model : ff,
                       i == 2 ? ff : m->g.d_model);
    }
}

/* Add a vector of a layer that is stored as [rows, cols]. */
static inline void ref_add_rows(struct ref_model *m, const char *module,
                                const char *part, size_t rows, size_t cols,
                                double spread)
{
    ref_add(m, module, part, 0, rows * cols, 0, spread);
    struct st_out_tensor *t = &m->out[m->n_out - 1];
    t->rank = 2;
    t->shape[0] = rows;
    t->shape[1] = cols;
}

/* What experts with biases, or beside a dense MLP, have beyond the weights.
 * Biases are large, so that the activation's limits count. */
static inline void ref_add_other_experts(struct ref_model *m, const char *mlp,
                                         size_t layer)
{
    static const char *const norms[] = {"dense_post_norm", "experts_norm",
                                        "experts_post_norm", "router_scale"};
    const struct geometry *g = &m->g;
    char module[176];
    snprintf(module, sizeof module, "%s.gate", mlp);
    if (g->clamped) {
        ref_add(m, module, "bias", 0, g->n_experts, 0, 1);
        ref_add_rows(m, mlp, "gate_bias", g->n_experts, g->expert_ff, 4);
        ref_add_rows(m, mlp, "up_bias", g->n_experts, g->expert_ff, 4);
        ref_add_rows(m, mlp, "down_bias", g->n_experts, g->d_model, 1);
    }
    if (!g->beside)
        return;
    ref_add_mlp(m, mlp, g->d_ff);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(module, sizeof module, "model.layers.%zu.%s", layer, norms[i]);
        ref_add(m, module, "weight", 0, g->d_model, 1, 0.2);
    }
    ref_add(m, mlp, "scales", 0, g->n_experts, 1, 0.3);
}

static inline void ref_add_experts(struct ref_model *m, const char *mlp,
                                   size_t layer)
{
    const struct geometry *g = &m->g;
    struct tensors all = {m->out, 0};
    char module[176];
    snprintf(module, sizeof module, "%s.gate", mlp);
    ref_add_matrix(m, module, g->n_experts, g->d_model);
    for (size_t i = 0; i < g->n_experts; i++) {
        snprintf(module, sizeof module, "%s.experts.%zu", mlp, i);
        ref_add_mlp(m, module, g->expert_ff);
    }
    all.n = m->n_out;
    tensors_layout(&all, mlp, g->n_experts, g->layout);
    m->n_out = all.n;
    ref_add_other_experts(m, mlp, layer);
    if (!g->qwen35)
        return;
    snprintf(module, sizeof module, "%s.shared_expert", mlp);
    ref_add_mlp(m, module, g->shared_ff);
    snprintf(module, sizeof module, "%s.shared_expert_gate", mlp);
    ref_add_matrix(m, module, 1, g->d_model);
}

static inline void ref_add_delta(struct ref_model *m, size_t layer)
{
    const struct geometry *g = &m->g;
    size_t heads = g->n_lin_heads * g->lin_group, channels = ref_channels(g);
    const struct {
        const char *module;
        size_t rows, cols;
    } all[] = {
        {"out_proj", g->d_model, ref_v_dim(g)},
        {"in_proj_qkvz", channels + ref_v_dim(g), g->d_model},
        {"in_proj_ba", 2 * heads, g->d_model},
        {"in_proj_qkv", channels, g->d_model},
        {"in_proj_z", ref_v_dim(g), g->d_model},
        {"in_proj_b", heads, g->d_model},
        {"in_proj_a", heads, g->d_model},
    };
    size_t n = sizeof all / sizeof *all;
    char attn[96], module[160];
    snprintf(attn, sizeof attn, "model.layers.%zu.linear_attn", layer);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && g->packed != (i < 3))
            continue;
        snprintf(module, sizeof module, "%s.%s", attn, all[i].module);
        ref_add_matrix(m, module, all[i].rows, all[i].cols);
    }
    snprintf(module, sizeof module, "%s.conv1d", attn);
    ref_add(m, module, "weight", 0, channels * g->conv, 0, 0.7);
    struct st_out_tensor *conv = &m->out[m->n_out - 1];
    conv->rank = 3;
    conv->shape[0] = channels;
    conv->shape[1] = g->mlx ? g->conv : 1;
    conv->shape[2] = g->mlx ? 1 : g->conv;
    ref_add(m, attn, "A_log", 0, heads, 0, 1);
    ref_add(m, attn, "dt_bias", 0, heads, -1, 1);
    snprintf(module, sizeof module, "%s.norm", attn);
    ref_add(m, module, "weight", 0, g->d_v, 1, 0.2);
}

/* Whether the checkpoint has no such module, as the layer does not need it.
 * Some layers have it, as in released checkpoints. */
static inline bool ref_is_left_out(const struct geometry *g, size_t layer,
                                   const char *module)
{
    bool v = !strncmp(module, "self_attn.v_", 12),
         k = !strncmp(module, "self_attn.k_", 12);
    if (ref_kv_layer(g, layer) != layer)
        return (k || v) && layer % 3;
    return v && ref_v_from_k(g, layer) && layer % 3;
}

static inline void ref_add_layer(struct ref_model *m, size_t layer)
{
    const struct geometry *g = &m->g;
    size_t head_dim = ref_head_dim(g, layer), d = g->d_model;
    size_t q_dim = ref_n_heads(g) * head_dim;
    size_t kv_dim = ref_kv_heads(g, layer) * head_dim;
    const struct {
        const char *module;
        size_t rows, cols;
        bool bias;
    } all[] = {
        {"self_attn.q_proj", g->qwen35 ? 2 * q_dim : q_dim, d, g->bias},
        {"self_attn.k_proj", kv_dim, d, g->bias},
        {"self_attn.v_proj", kv_dim, d, g->bias},
        {"self_attn.o_proj", d, q_dim, g->bias},
        {"self_attn.q_norm", 0, head_dim, false},
        {"self_attn.k_norm", 0, head_dim, false},
        {"input_layernorm", 0, d, false},
        {"post_attention_layernorm", 0, d, false},
        {"post_feedforward_layernorm", 0, d, false},
        {"pre_feedforward_layernorm", 0, d, false},
    };
    size_t n = sizeof all / sizeof *all - (g->gemma ? 0 : g->beside ? 1 : 2);
    char mlp[64];
    snprintf(mlp, sizeof mlp, "model.layers.%zu.mlp", layer);
    if (is_sparse(g, layer))
        ref_add_experts(m, mlp, layer);
    else
        ref_add_mlp(m, mlp, g->d_ff);
    for (size_t i = 0; i < n; i++) {
        char module[176];
        snprintf(module, sizeof module, "model.layers.%zu.%s", layer,
                 all[i].module);
        if (is_recurrent(g, layer) && !strncmp(all[i].module, "self_", 5))
            continue;
        if (ref_is_left_out(g, layer, all[i].module))
            continue;
        if (all[i].rows)
            ref_add_matrix(m, module, all[i].rows, all[i].cols);
        else
            ref_add(m, module, "weight", 0, all[i].cols, 1, 0.2);
        if (all[i].bias)
            ref_add(m, module, "bias", 0, all[i].rows, 0, 0.2);
    }
    if (is_recurrent(g, layer)) {
        ref_add_delta(m, layer);
    } else if (g->sinks) {
        char attn[64];
        snprintf(attn, sizeof attn, "model.layers.%zu.self_attn", layer);
        ref_add(m, attn, "sinks", 0, ref_n_heads(g), 0, 2);
    }
}

static const double *ref_find(const struct ref_model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->t[i].name, name))
            return m->t[i].v;
    return NULL;
}

static const double *ref_layer(const struct ref_model *m, size_t layer,
                               const char *name)
{
    char full[192];
    snprintf(full, sizeof full, "model.layers.%zu.%s", layer, name);
    return ref_find(m, full);
}

static inline struct ref_model *ref_create(const struct geometry *g)
{
    struct ref_model *m = ref_alloc(1, sizeof *m);
    m->g = *g;
    ref_add(m, "model.embed_tokens", "weight", g->vocab_size, g->d_model, 0, 1);
    for (size_t i = 0; i < g->n_layers; i++)
        ref_add_layer(m, i);
    ref_add(m, "model.norm", "weight", 0, g->d_model, 1, 0.2);
    if (!g->tied)
        ref_add(m, "lm_head", "weight", g->vocab_size, g->d_model, 0, 1);
    return m;
}

static inline void ref_free(struct ref_model *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->t[i].v);
    for (size_t i = 0; i < m->n_out; i++)
        free((void *)m->out[i].data);
    free(m);
}

#define REF_THETA 10000
#define REF_EPS   1e-6
/* Of Gemma's sliding layers, and of the others. */
#define REF_LOCAL_THETA 100
#define REF_FACTOR      2

/* The square of one over the scale of scores. */
static inline size_t ref_scalar(const struct geometry *g, size_t layer)
{
    return g->gemma ? g->head_dim + 3 : ref_head_dim(g, layer);
}

/* Give the layers of a config their heads, which no config.json here has. A
 * part of a head that rotates is as large in all layers. */
static inline void ref_set_heads(const struct geometry *g, struct config *c)
{
    size_t rope = g->gemma ? ROPE_SLIDING : g->qwen35 ? 0 : c->n_ropes++;
    if (!g->gemma)
        c->ropes[rope] = c->ropes[0];
    if (!g->qwen35)
        c->ropes[rope].n_rot = g->other_head_dim;
    for (size_t i = 0; i < c->n_layers; i++) {
        if (!has_other_heads(g, i))
            continue;
        c->layers[i].n_kv_heads = g->other_kv_heads;
        c->layers[i].head_dim = g->other_head_dim;
        c->layers[i].rope = rope;
        c->layers[i].score_scale = 1 / sqrtf((float)ref_scalar(g, i));
    }
}

/* The names of what ref_add_other_experts adds, beside those of the family. */
static inline const struct names *ref_names(void)
{
    static struct names names;
    static const struct {
        enum weight_id id;
        const char *name;
    } others[] = {
        {WEIGHT_ROUTER_BIAS, "@layers.#.mlp.gate.bias"},
        {WEIGHT_EXPERTS_GATE_BIAS, "@layers.#.mlp.gate_bias"},
        {WEIGHT_EXPERTS_UP_BIAS, "@layers.#.mlp.up_bias"},
        {WEIGHT_EXPERTS_DOWN_BIAS, "@layers.#.mlp.down_bias"},
        {WEIGHT_MLP_POST_NORM, "@layers.#.post_feedforward_layernorm.weight"},
        {WEIGHT_DENSE_POST_NORM, "@layers.#.dense_post_norm.weight"},
        {WEIGHT_EXPERTS_NORM, "@layers.#.experts_norm.weight"},
        {WEIGHT_EXPERTS_POST_NORM, "@layers.#.experts_post_norm.weight"},
        {WEIGHT_ROUTER_SCALE, "@layers.#.router_scale.weight"},
        {WEIGHT_EXPERT_SCALES, "@layers.#.mlp.scales"},
    };
    names = names_hub;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        names.of[others[i].id][0] = others[i].name;
    return &names;
}

/* Change a config that was read to what no config.json can say, or only that of
 * another family. */
static inline void ref_set_config(const struct geometry *g, struct config *c)
{
    static struct arch arch;
    static const struct names *schemes[2];
    c->attn_cap = (float)g->attn_cap;
    c->logit_cap = (float)g->logit_cap;
    if (g->other_kv_heads)
        ref_set_heads(g, c);
    for (size_t i = 0; i < c->n_layers; i++) {
        c->layers[i].kv_back = i - ref_kv_layer(g, i);
        c->layers[i].v_from_k = ref_v_from_k(g, i);
    }
    if (!g->sinks && !g->clamped && !g->beside && !g->v_norm)
        return;
    arch = *c->arch;
    arch.blocks.sinks = g->sinks;
    arch.blocks.v_norm = g->v_norm;
    c->arch = &arch;
    if (!g->clamped && !g->beside)
        return;
    schemes[0] = ref_names();
    arch.names = schemes;
    arch.blocks.routing = ROUTING_CHOSEN;
    arch.blocks.experts_beside = arch.blocks.mlp_post_norm = g->beside;
    if (g->clamped)
        arch.blocks.activation = ACTIVATION_CLAMPED_SILU;
    c->expert_bias = g->clamped;
    for (size_t i = 0; i < c->n_layers; i++)
        if (g->beside)
            c->layers[i].d_ff = g->d_ff;
}

static inline double ref_capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* The quantization object, with the router's own bits, as mlx-lm writes it. */
static inline void ref_quantization(const struct geometry *g, char *out,
                                    size_t size)
{
    size_t n = (size_t)snprintf(
        out, size, "\"quantization\": {\"group_size\": %zu, \"bits\": %d",
        g->q_group, g->bits);
    for (size_t i = 0; i < g->n_layers && g->router_bits; i++)
        n += (size_t)snprintf(out + n, size - n,
                              ", \"model.layers.%zu.mlp.gate\": "
                              "{\"group_size\": %zu, \"bits\": %d}",
                              i, g->q_group, g->router_bits);
    n += (size_t)snprintf(out + n, size - n, "},");
    assert_true(n < size);
}

static inline void ref_write_config(const struct geometry *g)
{
    char text[4096], quant[1024] = "", moe[256] = "", gemma[256] = "";
    char delta[512] = "";
    const char *types[3] = {"full_attention", "sliding_attention",
                            "linear_attention"};
    if (g->n_experts || g->packed)
        snprintf(moe, sizeof moe,
                 "\"num_experts\": %zu, \"num_experts_per_tok\": %zu, "
                 "\"moe_intermediate_size\": %zu, \"norm_topk_prob\": %s, "
                 "\"decoder_sparse_step\": %zu,",
                 g->n_experts, g->n_active, g->expert_ff,
                 g->normalise ? "true" : "false",
                 g->n_experts ? g->sparse_step : 1);
    if (g->gemma)
        snprintf(gemma, sizeof gemma,
                 "\"query_pre_attn_scalar\": %zu, "
                 "\"rope_local_base_freq\": %d, \"rope_scaling\": "
                 "{\"rope_type\": \"linear\", \"factor\": %d},",
                 ref_scalar(g, 0), REF_LOCAL_THETA, REF_FACTOR);
    if (g->qwen35)
        snprintf(delta, sizeof delta,
                 "\"linear_num_key_heads\": %zu, "
                 "\"linear_num_value_heads\": %zu, "
                 "\"linear_key_head_dim\": %zu, "
                 "\"linear_value_head_dim\": %zu, "
                 "\"linear_conv_kernel_dim\": %zu, "
                 "\"shared_expert_intermediate_size\": %zu, "
                 "\"partial_rotary_factor\": %.17g,",
                 g->n_lin_heads, g->n_lin_heads * g->lin_group, g->d_k, g->d_v,
                 g->conv, g->shared_ff, (double)g->n_rot / (double)g->head_dim);
    if (g->bits)
        ref_quantization(g, quant, sizeof quant);
    int n = snprintf(
        text, sizeof text,
        "{\"model_type\": \"%s\", %s %s %s %s \"hidden_size\": %zu, "
        "\"intermediate_size\": %zu, \"num_hidden_layers\": %zu, "
        "\"num_attention_heads\": %zu, \"num_key_value_heads\": %zu, "
        "\"head_dim\": %zu, \"vocab_size\": %zu, \"rms_norm_eps\": %g, "
        "\"rope_theta\": %d, \"max_position_embeddings\": 4096, "
        "\"tie_word_embeddings\": %s, \"attention_bias\": %s, "
        "\"eos_token_id\": 0, \"use_sliding_window\": %s, "
        "\"sliding_window\": %zu, \"layer_types\": [",
        g->packed      ? "qwen3_next"
        : g->qwen35    ? (g->n_experts ? "qwen3_5_moe_text" : "qwen3_5_text")
        : g->n_experts ? "qwen3_moe"
        : g->gemma     ? "gemma3_text"
                       : "qwen3",
        quant, moe, gemma, delta, g->d_model, g->d_ff, g->n_layers,
        g->n_kv_heads * g->group, g->n_kv_heads, g->head_dim, g->vocab_size,
        REF_EPS, REF_THETA, g->tied ? "true" : "false",
        g->bias ? "true" : "false", g->window ? "true" : "false",
        g->window ? g->window : 1);
    for (size_t i = 0; i < g->n_layers; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\"%s\"",
                      i ? ", " : "",
                      types[is_recurrent(g, i) ? 2 : is_sliding(g, i)]);
    n += snprintf(text + n, sizeof text - (size_t)n, "]}\n");
    assert_true((size_t)n < sizeof text);
    temp_write("config.json", text, (size_t)n);
}

/* Write the checkpoint to temp_dir. */
static inline void ref_write(const struct ref_model *m)
{
    ref_write_config(&m->g);
    temp_put_tensors("model.safetensors", m->out, m->n_out);
}

/* ---- the forward pass ---- */

/* Random errors for every activation that an engine would round: each number
 * changes by up to `relative` of itself, and up to `absolute` of the largest
 * number of its group. */
struct ref_noise {
    double relative, absolute;
    size_t group;
};

struct ref_noises {
    struct ref_noise products;  /* operands that are multiplied with weights */
    struct ref_noise attention; /* queries and the softmax's exponentials */
    struct ref_noise kv;        /* keys and values */
};

static inline void ref_disturb(double *x, size_t n, const struct ref_noise *z)
{
    for (size_t i = 0; z->relative > 0 && i < n; i++)
        x[i] *= 1 + z->relative * (2 * uniform() - 1);
    for (size_t i = 0; z->absolute > 0 && i < n; i += z->group) {
        size_t end = i + z->group < n ? i + z->group : n;
        double top = 0;
        for (size_t j = i; j < end; j++)
            top = fmax(top, fabs(x[j]));
        for (size_t j = i; j < end; j++)
            x[j] += z->absolute * top * (2 * uniform() - 1);
    }
}

/* y = W x (+ bias) */
static inline void ref_multiply(double *y, const double *w, const double *bias,
                                const double *x, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++) {
        double sum = bias ? bias[r] : 0;
        for (size_t c = 0; c < cols; c++)
            sum += w[r * cols + c] * x[c];
        y[r] = sum;
    }
}

static inline void ref_norm(double *y, const double *x, const double *w,
                            size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        y[i] = w[i] * x[i] / sqrt(sum / (double)n + REF_EPS);
}

/* Angles are in float32, as in transformers: they are part of the model. */
static inline void ref_rope(const struct geometry *g, size_t layer, double *x,
                            size_t pos)
{
    bool local = g->gemma && is_sliding(g, layer);
    float theta = local ? REF_LOCAL_THETA : REF_THETA;
    float factor = g->gemma && !local ? REF_FACTOR : 1;
    size_t d = g->qwen35 ? g->n_rot : ref_head_dim(g, layer), half = d / 2;
    for (size_t i = 0; i < half; i++) {
        float exponent = (float)(2 * i) / (float)d;
        float inverse = 1.0f / powf(theta, exponent) / factor;
        float angle = (float)pos * inverse;
        double c = cos((double)angle), s = sin((double)angle);
        double a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

/* The last of n positions attends to those in its window. sink: a score without
 * a value, or NULL. */
static inline void ref_attend(double *out, const double *q, const double *k,
                              const double *v, size_t ld, size_t n,
                              size_t layer, const struct geometry *g,
                              const double *sink, const struct ref_noise *z)
{
    size_t d = ref_head_dim(g, layer);
    size_t window = is_sliding(g, layer) ? g->window : 0;
    size_t first = window && n > window ? n - window : 0;
    double *p = ref_alloc(n, sizeof *p), top = -INFINITY, sum = 0;
    for (size_t j = first; j < n; j++) {
        for (size_t i = 0; i < d; i++)
            p[j] += q[i] * k[j * ld + i];
        p[j] =
            ref_capped(p[j] / sqrt((double)ref_scalar(g, layer)), g->attn_cap);
        top = fmax(top, p[j]);
    }
    if (sink)
        top = fmax(top, *sink);
    for (size_t j = first; j < n; j++)
        sum += p[j] = exp(p[j] - top);
    if (sink)
        sum += exp(*sink - top);
    ref_disturb(p, n, z);
    for (size_t i = 0; i < d; i++) {
        out[i] = 0;
        for (size_t j = first; j < n; j++)
            out[i] += p[j] * v[j * ld + i] / sum;
    }
    free(p);
}

/* Activations of one pass. */
struct ref_pass {
    const struct ref_model *m;
    const struct ref_noises *z;
    double *x, *xn, *q, *attn, *gate, *up;
    double *k, *v; /* [n_layers, n_tokens, kv_dim], kv_most from layer to
                      layer */
    size_t kv_most;
    double *rows;  /* [n_layers, n_tokens, channels] before the convolution */
    double *s;     /* [n_layers, value heads, d_k, d_v] */
};

/* out [rows] = a product of attention, "q", "k" or "v", with the norm's
 * result. */
static inline void ref_project(struct ref_pass *p, size_t layer,
                               const char *name, double *out, size_t rows)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "self_attn.%s_proj.weight", name);
    snprintf(bias, sizeof bias, "self_attn.%s_proj.bias", name);
    ref_multiply(out, ref_layer(p->m, layer, weight),
                 ref_layer(p->m, layer, bias), p->xn, rows, p->m->g.d_model);
}

/* The keys k and values v of a position, all heads. */
static inline void ref_keys(struct ref_pass *p, size_t layer, size_t pos,
                            double *k, double *v)
{
    const struct geometry *g = &p->m->g;
    const double *norm = ref_layer(p->m, layer, "self_attn.k_norm.weight");
    size_t d = ref_head_dim(g, layer), n = ref_kv_heads(g, layer);
    double *ones = ref_alloc(d, sizeof *ones);
    ref_project(p, layer, "k", k, n * d);
    if (ref_v_from_k(g, layer))
        memcpy(v, k, n * d * sizeof *v);
    else
        ref_project(p, layer, "v", v, n * d);
    for (size_t i = 0; i < d; i++)
        ones[i] = 1;
    for (size_t h = 0; h < n; h++, k += d, v += d) {
        ref_norm(k, k, norm, d);
        ref_rope(g, layer, k, pos);
        ref_disturb(k, d, &p->z->kv);
        if (g->v_norm)
            ref_norm(v, v, ones, d);
        ref_disturb(v, d, &p->z->kv);
    }
    free(ones);
}

static inline void ref_attention(struct ref_pass *p, size_t layer, size_t pos)
{
    const struct ref_model *m = p->m;
    const struct geometry *g = &m->g;
    size_t d = ref_head_dim(g, layer), n_heads = ref_n_heads(g);
    size_t n_kv_heads = ref_kv_heads(g, layer), group = n_heads / n_kv_heads;
    size_t q_dim = n_heads * d, kv_dim = n_kv_heads * d;
    size_t from = ref_kv_layer(g, layer);
    double *k = p->k + from * p->kv_most, *v = p->v + from * p->kv_most;
    double *y = ref_alloc(g->d_model, sizeof *y);
    const double *sinks = ref_layer(m, layer, "self_attn.sinks");
    ref_norm(p->xn, p->x, ref_layer(m, layer, "input_layernorm.weight"),
             g->d_model);
    ref_disturb(p->xn, g->d_model, &p->z->products);
    ref_project(p, layer, "q", p->q, g->qwen35 ? 2 * q_dim : q_dim);
    if (from == layer)
        ref_keys(p, layer, pos, k + pos * kv_dim, v + pos * kv_dim);
    for (size_t h = 0; h < n_heads; h++) {
        double *q = p->q + h * (g->qwen35 ? 2 * d : d);
        ref_norm(q, q, ref_layer(m, layer, "self_attn.q_norm.weight"), d);
        ref_rope(g, layer, q, pos);
        ref_disturb(q, d, &p->z->attention);
        ref_attend(p->attn + h * d, q, k + h / group * d, v + h / group * d,
                   kv_dim, pos + 1, layer, g, sinks ? sinks + h : NULL,
                   &p->z->attention);
        for (size_t i = 0; i < d && g->qwen35; i++) /* gates */
            p->attn[h * d + i] /= 1 + exp(-q[d + i]);
    }
    ref_disturb(p->attn, q_dim, &p->z->products);
    ref_multiply(y, ref_layer(m, layer, "self_attn.o_proj.weight"),
                 ref_layer(m, layer, "self_attn.o_proj.bias"), p->attn,
                 g->d_model, q_dim);
    if (g->gemma)
        ref_norm(y, y, ref_layer(m, layer, "post_attention_layernorm.weight"),
                 g->d_model);
    for (size_t i = 0; i < g->d_model; i++)
        p->x[i] += y[i];
    free(y);
}

static inline double ref_silu(double z)
{
    return z / (1 + exp(-z));
}

/* Divide x [n] by sqrt(|x|^2 + 1e-6) and multiply it by scale. */
static inline void ref_l2norm(double *x, size_t n, double scale)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        x[i] *= scale / sqrt(sum + 1e-6);
}

/* One token of value head h of Gated DeltaNet: its state s advances, and o gets
 * its result. q, k and v belong to the head. */
static inline void ref_state(double *o, double *s, const double *q,
                             const double *k, const double *v, double decay,
                             double beta, size_t d_k, size_t d_v)
{
    for (size_t i = 0; i < d_k * d_v; i++)
        s[i] *= decay;
    for (size_t j = 0; j < d_v; j++) {
        double seen = 0;
        for (size_t i = 0; i < d_k; i++)
            seen += s[i * d_v + j] * k[i];
        for (size_t i = 0; i < d_k; i++)
            s[i * d_v + j] += k[i] * beta * (v[j] - seen);
        o[j] = 0;
        for (size_t i = 0; i < d_k; i++)
            o[j] += s[i * d_v + j] * q[i];
    }
}

/* Unpack the results of in_proj_qkvz and in_proj_ba
 * (fix_query_key_value_ordering in transformers). */
static inline void ref_unpack(const struct geometry *g, const double *qkvz,
                              const double *ba, double *qkv, double *z,
                              double *b, double *a)
{
    size_t heads = g->n_lin_heads, d_k = g->d_k, group = g->lin_group;
    size_t values = group * g->d_v;
    for (size_t h = 0; h < heads; h++) {
        const struct {
            double *to;
            size_t n;
        } parts[] = {{qkv + h * d_k, d_k},
                     {qkv + (heads + h) * d_k, d_k},
                     {qkv + 2 * heads * d_k + h * values, values},
                     {z + h * values, values}};
        for (size_t i = 0; i < 4; qkvz += parts[i++].n)
            memcpy(parts[i].to, qkvz, parts[i].n * sizeof *qkvz);
        memcpy(b + h * group, ba + 2 * h * group, group * sizeof *b);
        memcpy(a + h * group, ba + (2 * h + 1) * group, group * sizeof *a);
    }
}

static inline void ref_delta(struct ref_pass *p, size_t layer, size_t pos)
{
    const struct ref_model *m = p->m;
    const struct geometry *g = &m->g;
    size_t heads = g->n_lin_heads * g->lin_group, n = ref_channels(g);
    size_t d_k = g->d_k, d_v = g->d_v, v_dim = ref_v_dim(g);
    double *rows = p->rows + layer * g->n_tokens * n;
    double *all =
        ref_alloc(2 * n + 3 * v_dim + 4 * heads + g->d_model, sizeof *all);
    double *x = all, *z = x + n, *o = z + v_dim, *b = o + v_dim, *a = b + heads,
           *y = a + heads, *qkvz = y + g->d_model, *ba = qkvz + n + v_dim;
    const double *conv = ref_layer(m, layer, "linear_attn.conv1d.weight");
    const double *dt = ref_layer(m, layer, "linear_attn.dt_bias");
    const double *a_log = ref_layer(m, layer, "linear_attn.A_log");
    ref_norm(p->xn, p->x, ref_layer(m, layer, "input_layernorm.weight"),
             g->d_model);
    ref_disturb(p->xn, g->d_model, &p->z->products);
#define REF_PROJECT(out, name, count)                                     \
    ref_multiply(out, ref_layer(m, layer, "linear_attn." name ".weight"), \
                 NULL, p->xn, count, g->d_model)
    if (g->packed) {
        REF_PROJECT(qkvz, "in_proj_qkvz", n + v_dim);
        REF_PROJECT(ba, "in_proj_ba", 2 * heads);
        ref_unpack(g, qkvz, ba, rows + pos * n, z, b, a);
    } else {
        REF_PROJECT(rows + pos * n, "in_proj_qkv", n);
        REF_PROJECT(z, "in_proj_z", v_dim);
        REF_PROJECT(b, "in_proj_b", heads);
        REF_PROJECT(a, "in_proj_a", heads);
    }
#undef REF_PROJECT
    for (size_t c = 0; c < n; c++) {
        for (size_t k = 0; k < g->conv && k <= pos; k++)
            x[c] +=
                conv[c * g->conv + g->conv - 1 - k] * rows[(pos - k) * n + c];
        x[c] = ref_silu(x[c]);
    }
    for (size_t h = 0; h < g->n_lin_heads; h++) {
        ref_l2norm(x + h * d_k, d_k, 1 / sqrt((double)d_k));
        ref_l2norm(x + (g->n_lin_heads + h) * d_k, d_k, 1);
    }
    for (size_t h = 0; h < heads; h++) {
        size_t from = h / g->lin_group;
        double step = log1p(exp(a[h] + dt[h])) * exp(a_log[h]);
        ref_state(o + h * d_v, p->s + (layer * heads + h) * d_k * d_v,
                  x + from * d_k, x + (g->n_lin_heads + from) * d_k,
                  x + 2 * g->n_lin_heads * d_k + h * d_v, exp(-step),
                  1 / (1 + exp(-b[h])), d_k, d_v);
        ref_norm(o + h * d_v, o + h * d_v,
                 ref_layer(m, layer, "linear_attn.norm.weight"), d_v);
    }
    for (size_t i = 0; i < v_dim; i++)
        o[i] *= ref_silu(z[i]);
    ref_disturb(o, v_dim, &p->z->products);
    ref_multiply(y, ref_layer(m, layer, "linear_attn.out_proj.weight"), NULL, o,
                 g->d_model, v_dim);
    for (size_t i = 0; i < g->d_model; i++)
        p->x[i] += y[i];
    free(all);
}

static const double *ref_part(const struct ref_model *m, const char *mlp,
                              const char *part)
{
    char name[192];
    snprintf(name, sizeof name, "%s.%s.weight", mlp, part);
    return ref_find(m, name);
}

/* act(gate) * up: with silu, Gemma's GELU, or as gpt-oss's experts. */
static inline double ref_glu(const struct geometry *g, double gate, double up)
{
    double u = 0.797884560802865356 * (gate + 0.044715 * gate * gate * gate);
    if (g->gemma)
        return gate / 2 * (1 + tanh(u)) * up;
    if (!g->clamped)
        return gate / (1 + exp(-gate)) * up;
    gate = fmin(gate, 7);
    return gate / (1 + exp(-1.702 * gate)) * (fmax(fmin(up, 7), -7) + 1);
}

/* A gated MLP. */
struct ref_gated {
    const char *module;
    size_t ff;
    double share;                                         /* of its result */
    const double *gate_bias, *up_bias, *down_bias, *norm; /* or NULL */
};

/* x += share * norm(down(act(gate(xn)) * up(xn))). */
static inline void ref_add_gated(struct ref_pass *p, const struct ref_gated *r,
                                 const double *xn)
{
    const struct ref_model *m = p->m;
    size_t d = m->g.d_model, ff = r->ff;
    double *y = ref_alloc(d, sizeof *y);
    ref_multiply(p->gate, ref_part(m, r->module, "gate_proj"), r->gate_bias, xn,
                 ff, d);
    ref_multiply(p->up, ref_part(m, r->module, "up_proj"), r->up_bias, xn, ff,
                 d);
    for (size_t i = 0; i < ff; i++)
        p->gate[i] = ref_glu(&m->g, p->gate[i], p->up[i]);
    ref_disturb(p->gate, ff, &p->z->products);
    ref_multiply(y, ref_part(m, r->module, "down_proj"), r->down_bias, p->gate,
                 d, ff);
    if (r->norm)
        ref_norm(y, y, r->norm, d);
    for (size_t i = 0; i < d; i++)
        p->x[i] += r->share * y[i];
    free(y);
}

/* Row i of a matrix of biases; NULL: there is none. */
static const double *ref_bias(const struct ref_pass *p, const char *mlp,
                              const char *part, size_t i, size_t n)
{
    char name[192];
    snprintf(name, sizeof name, "%s.%s", mlp, part);
    const double *bias = ref_find(p->m, name);
    return bias ? bias + i * n : NULL;
}

/* Add an expert's result. */
static inline void ref_add_expert(struct ref_pass *p, const char *mlp, size_t i,
                                  double share)
{
    const struct geometry *g = &p->m->g;
    size_t ff = g->expert_ff;
    char module[176];
    const double *scale = ref_bias(p, mlp, "scales", i, 1);
    snprintf(module, sizeof module, "%s.experts.%zu", mlp, i);
    const struct ref_gated r = {
        .module = module,
        .ff = ff,
        .share = share * (scale ? *scale : 1),
        .gate_bias = ref_bias(p, mlp, "gate_bias", i, ff),
        .up_bias = ref_bias(p, mlp, "up_bias", i, ff),
        .down_bias = ref_bias(p, mlp, "down_bias", i, g->d_model)};
    ref_add_gated(p, &r, p->xn);
}

/* Run the experts with the highest scores for the token, whose router reads
 * `in`. */
static inline void ref_experts(struct ref_pass *p, const char *mlp,
                               const double *in)
{
    const struct geometry *g = &p->m->g;
    double *prob = ref_alloc(g->n_experts, sizeof *prob), sum = 0, chosen = 0;
    bool *is = ref_alloc(g->n_experts, sizeof *is);
    bool normalise = g->normalise || g->clamped || g->beside;
    double share = 0;
    if (g->qwen35)
        ref_multiply(&share, ref_part(p->m, mlp, "shared_expert_gate"), NULL,
                     p->xn, 1, g->d_model);
    ref_multiply(prob, ref_part(p->m, mlp, "gate"),
                 ref_bias(p, mlp, "gate.bias", 0, 0), in, g->n_experts,
                 g->d_model);
    for (size_t i = 0; i < g->n_experts; i++)
        sum += prob[i] = exp(prob[i]);
    for (size_t i = 0; i < g->n_active; i++) {
        size_t best = g->n_experts;
        for (size_t j = 0; j < g->n_experts; j++)
            if (!is[j] && (best == g->n_experts || prob[j] > prob[best]))
                best = j;
        is[best] = true;
        chosen += prob[best];
    }
    ref_disturb(p->xn, g->d_model, &p->z->products);
    for (size_t i = 0; i < g->n_experts; i++)
        if (is[i])
            ref_add_expert(p, mlp, i, prob[i] / (normalise ? chosen : sum));
    char shared[176];
    snprintf(shared, sizeof shared, "%s.shared_expert", mlp);
    const struct ref_gated r = {
        .module = shared, .ff = g->shared_ff, .share = 1 / (1 + exp(-share))};
    if (g->qwen35)
        ref_add_gated(p, &r, p->xn);
    free(prob);
    free(is);
}

/* A dense MLP and experts, with norms of their own. */
static inline void ref_beside(struct ref_pass *p, size_t layer, const char *mlp)
{
    const struct ref_model *m = p->m;
    size_t d = m->g.d_model;
    double *x = p->x, *dense = ref_alloc(3 * d, sizeof *dense),
           *sum = dense + d, *router = sum + d;
    const struct ref_gated r = {
        .module = mlp,
        .ff = m->g.d_ff,
        .share = 1,
        .norm = ref_layer(m, layer, "dense_post_norm.weight")};
    ref_disturb(p->xn, d, &p->z->products);
    p->x = dense;
    ref_add_gated(p, &r, p->xn);
    ref_norm(router, x, ref_layer(m, layer, "router_scale.weight"), d);
    for (size_t i = 0; i < d; i++)
        router[i] /= sqrt((double)d);
    ref_norm(p->xn, x, ref_layer(m, layer, "experts_norm.weight"), d);
    p->x = sum;
    ref_experts(p, mlp, router);
    ref_norm(sum, sum, ref_layer(m, layer, "experts_post_norm.weight"), d);
    for (size_t i = 0; i < d; i++)
        sum[i] += dense[i];
    ref_norm(sum, sum, ref_layer(m, layer, "post_feedforward_layernorm.weight"),
             d);
    p->x = x;
    for (size_t i = 0; i < d; i++)
        x[i] += sum[i];
    free(dense);
}

static inline void ref_mlp(struct ref_pass *p, size_t layer)
{
    const struct ref_model *m = p->m;
    bool sparse = is_sparse(&m->g, layer);
    char mlp[64];
    snprintf(mlp, sizeof mlp, "model.layers.%zu.mlp", layer);
    const char *norm = m->g.gemma ? "pre_feedforward_layernorm.weight"
                                  : "post_attention_layernorm.weight";
    ref_norm(p->xn, p->x, ref_layer(m, layer, norm), m->g.d_model);
    if (sparse && m->g.beside)
        ref_beside(p, layer, mlp);
    else if (sparse)
        ref_experts(p, mlp, p->xn);
    if (sparse)
        return;
    const struct ref_gated r = {
        .module = mlp,
        .ff = m->g.d_ff,
        .share = 1,
        .norm = ref_layer(m, layer, "post_feedforward_layernorm.weight")};
    ref_disturb(p->xn, m->g.d_model, &p->z->products);
    ref_add_gated(p, &r, p->xn);
}

/* Compute the logits [n_tokens, vocab_size] of the tokens. */
static inline void ref_forward(const struct ref_model *m, const int32_t *tokens,
                               const struct ref_noises *z, double *logits)
{
    const struct geometry *g = &m->g;
    size_t kv_dim = g->n_kv_heads * g->head_dim, d = g->d_model;
    size_t other = g->other_kv_heads * g->other_head_dim;
    size_t wide =
        g->head_dim > g->other_head_dim ? g->head_dim : g->other_head_dim;
    size_t q_dim = ref_n_heads(g) * wide;
    size_t kv_most = g->n_tokens * (kv_dim > other ? kv_dim : other);
    size_t kv = g->n_layers * kv_most;
    size_t ff = g->d_ff > g->expert_ff ? g->d_ff : g->expert_ff;
    size_t state = g->n_layers * ref_v_dim(g) * g->d_k;
    ff = ff > g->shared_ff ? ff : g->shared_ff;
    struct ref_pass p = {
        .m = m,
        .z = z,
        .x = ref_alloc(d, sizeof(double)),
        .xn = ref_alloc(d, sizeof(double)),
        .q = ref_alloc(2 * q_dim, sizeof(double)),
        .attn = ref_alloc(q_dim, sizeof(double)),
        .gate = ref_alloc(ff, sizeof(double)),
        .up = ref_alloc(ff, sizeof(double)),
        .k = ref_alloc(kv, sizeof(double)),
        .v = ref_alloc(kv, sizeof(double)),
        .kv_most = kv_most,
        .rows = ref_alloc(g->n_layers * g->n_tokens * ref_channels(g),
                          sizeof(double)),
        .s = ref_alloc(state, sizeof(double))};
    const double *embed = ref_find(m, "model.embed_tokens.weight");
    for (size_t t = 0; t < g->n_tokens; t++) {
        for (size_t i = 0; i < d; i++)
            p.x[i] = embed[(size_t)tokens[t] * d + i] *
                     (g->gemma ? (double)sqrtf((float)d) : 1);
        for (size_t i = 0; i < g->n_layers; i++) {
            (is_recurrent(g, i) ? ref_delta : ref_attention)(&p, i, t);
            ref_mlp(&p, i);
        }
        ref_norm(p.xn, p.x, ref_find(m, "model.norm.weight"), d);
        ref_disturb(p.xn, d, &z->products);
        ref_multiply(logits + t * g->vocab_size,
                     g->tied ? embed : ref_find(m, "lm_head.weight"), NULL,
                     p.xn, g->vocab_size, d);
        for (size_t i = 0; i < g->vocab_size; i++)
            logits[t * g->vocab_size + i] =
                ref_capped(logits[t * g->vocab_size + i], g->logit_cap);
    }
    double *const all[] = {p.x,  p.xn, p.q, p.attn, p.gate,
                           p.up, p.k,  p.v, p.rows, p.s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

#endif
