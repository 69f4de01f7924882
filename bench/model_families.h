/* The tensors that make_model writes, as a list, and the families whose layers
 * are tables: gpt-oss, with experts in MXFP4 as released, and Gemma 4. */
#ifndef BENCH_MODEL_FAMILIES_H
#define BENCH_MODEL_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "file/gguf_write.h"
#include "file/safetensors.h"
#include "model_config.h"

#define NAME_MAX_LEN 96

/* How a tensor's weights are distributed. */
enum kind {
    MATRIX,
    NORM,
    CENTRED_NORM,
    CONV,
    DT_BIAS,
    FP8_CODES,
    FP8_SCALES,
    N_KINDS,
    CODES = N_KINDS, /* of MXFP4: bytes of two elements, or whole blocks */
    SCALES           /* of MXFP4 */
};

/* Means and deviations. Norms of Qwen3.5 and Gemma are stored less 1; its
 * states decay by about exp(-exp(0) softplus(-4)) = 0.98 a token. */
static const struct {
    double mean, spread;
} kinds[N_KINDS] = {[MATRIX] = {0, 0.02},
                    [NORM] = {1, 0.1},
                    [CENTRED_NORM] = {0, 0.1},
                    [CONV] = {0, 0.5},
                    [DT_BIAS] = {-4, 0.5},
                    /* the largest of 16,384 codes is near 448 */
                    [FP8_CODES] = {0, 100},
                    [FP8_SCALES] = {0.02 / 100, 0}};

struct plan {
    const char *prefix; /* of the text model's tensors */
    const char *layers; /* and of the layers' after it */
    enum dtype dtype;
    bool gguf; /* names and types of a GGUF file */
    struct st_out_tensor *tensors;
    enum kind *kinds;
    char (*names)[NAME_MAX_LEN];
    size_t n;
};

static inline void plan_add(struct plan *p, enum dtype dtype, size_t rows,
                            size_t cols, const char *name)
{
    struct st_out_tensor *t = &p->tensors[p->n];
    snprintf(p->names[p->n], NAME_MAX_LEN, "%s", name);
    *t = (struct st_out_tensor){.name = p->names[p->n],
                                .dtype = dtype,
                                .rank = cols ? 2 : 1,
                                .shape = {rows, cols}};
    p->kinds[p->n++] = cols ? MATRIX : NORM;
}

struct part {
    const char *name;
    size_t rows, cols;
    enum kind kind;
};

static inline void plan_parts(struct plan *p, enum dtype dtype, size_t layer,
                              const struct part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[NAME_MAX_LEN];
        snprintf(name, sizeof name, "%s%s.%zu.%s", p->prefix,
                 p->gguf ? "blk" : p->layers, layer, parts[i].name);
        plan_add(p, dtype, parts[i].rows, parts[i].cols, name);
        p->kinds[p->n - 1] = parts[i].kind;
    }
}

/* ---- FP8 ------------------------------------------------------------------
 */

enum { FP8_BLOCK = 128 }; /* rows and columns */

/* Whether released checkpoints have a matrix in FP8: those of layers, except
 * the small ones that choose. */
static inline bool plan_is_fp8(const struct st_out_tensor *t, enum kind kind)
{
    static const char *const others[] = {".gate.weight", "shared_expert_gate",
                                         "in_proj_a.", "in_proj_b.", "router."};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(t->name, others[i]))
            return false;
    return kind == MATRIX && t->rank == 2 && strstr(t->name, "layers.");
}

/* Make matrices FP8, with a tensor of scales each. */
static inline void plan_fp8(struct plan *p)
{
    size_t n = p->n;
    for (size_t i = 0; i < n; i++) {
        struct st_out_tensor *t = &p->tensors[i];
        char name[NAME_MAX_LEN + 16];
        if (!plan_is_fp8(t, p->kinds[i]))
            continue;
        t->dtype = DT_F8_E4M3;
        p->kinds[i] = FP8_CODES;
        snprintf(name, sizeof name, "%s_scale_inv", t->name);
        plan_add(p, DT_F32, (t->shape[0] + FP8_BLOCK - 1) / FP8_BLOCK,
                 (t->shape[1] + FP8_BLOCK - 1) / FP8_BLOCK, name);
        p->kinds[p->n - 1] = FP8_SCALES;
    }
}

/* ---- gpt-oss --------------------------------------------------------------
 */

/* Add a tensor of experts, or of their biases. */
static inline void plan_experts_of(struct plan *p, size_t layer,
                                   const char *name, enum dtype dtype,
                                   enum kind kind, size_t rank,
                                   const size_t *shape)
{
    const struct part part = {name, shape[0], shape[1], kind};
    plan_parts(p, dtype, layer, &part, 1);
    p->tensors[p->n - 1].rank = rank;
    memcpy(p->tensors[p->n - 1].shape, shape, rank * sizeof *shape);
}

/* In safetensors, rows of gate_proj and up_proj alternate, which random ones do
 * anyway. */
static inline void plan_gpt_oss_experts(struct plan *p, const struct shape *s,
                                        size_t layer)
{
    const size_t n = s->n_experts, ff = s->expert_ff, d = s->d_model;
    const struct {
        const char *hub, *gguf;
        size_t rows, cols;
    } roles[] = {{"gate_up_proj", NULL, 2 * ff, d},
                 {"down_proj", "ffn_down_exps", d, ff},
                 {NULL, "ffn_gate_exps", ff, d},
                 {NULL, "ffn_up_exps", ff, d}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const char *role = p->gguf ? roles[i].gguf : roles[i].hub;
        const size_t rows = roles[i].rows, cols = roles[i].cols;
        const size_t bias[] = {n, rows}, stack[] = {n, rows, cols},
                     codes[] = {n, rows, cols / 32, 16};
        char name[48];
        if (!role)
            continue;
        snprintf(name, sizeof name, p->gguf ? "%s.bias" : "mlp.experts.%s_bias",
                 role);
        plan_experts_of(p, layer, name, p->dtype, CENTRED_NORM, 2, bias);
        if (p->gguf) {
            snprintf(name, sizeof name, "%s.weight", role);
            plan_experts_of(p, layer, name, DT_MXFP4, CODES, 3, stack);
            continue;
        }
        snprintf(name, sizeof name, "mlp.experts.%s_blocks", role);
        plan_experts_of(p, layer, name, DT_U8, CODES, 4, codes);
        snprintf(name, sizeof name, "mlp.experts.%s_scales", role);
        plan_experts_of(p, layer, name, DT_U8, SCALES, 3, codes);
    }
}

static inline void plan_gpt_oss(struct plan *p, const struct shape *s,
                                size_t layer)
{
    const size_t d = s->d_model, q = s->n_heads * s->head_dim,
                 kv = s->n_kv_heads * s->head_dim;
    const struct part hub[] = {
        {"input_layernorm.weight", d, 0, NORM},
        {"mlp.router.bias", s->n_experts, 0, CENTRED_NORM},
        {"mlp.router.weight", s->n_experts, d, MATRIX},
        {"post_attention_layernorm.weight", d, 0, NORM},
        {"self_attn.k_proj.bias", kv, 0, CENTRED_NORM},
        {"self_attn.k_proj.weight", kv, d, MATRIX},
        {"self_attn.o_proj.bias", d, 0, CENTRED_NORM},
        {"self_attn.o_proj.weight", d, q, MATRIX},
        {"self_attn.q_proj.bias", q, 0, CENTRED_NORM},
        {"self_attn.q_proj.weight", q, d, MATRIX},
        {"self_attn.sinks", s->n_heads, 0, CENTRED_NORM},
        {"self_attn.v_proj.bias", kv, 0, CENTRED_NORM},
        {"self_attn.v_proj.weight", kv, d, MATRIX},
    };
    enum { N_PARTS = sizeof hub / sizeof *hub };
    static const char *const gguf[N_PARTS] = {
        "attn_norm.weight",    "ffn_gate_inp.bias",
        "ffn_gate_inp.weight", "post_attention_norm.weight",
        "attn_k.bias",         "attn_k.weight",
        "attn_output.bias",    "attn_output.weight",
        "attn_q.bias",         "attn_q.weight",
        "attn_sinks.weight",   "attn_v.bias",
        "attn_v.weight"};
    struct part parts[N_PARTS];
    memcpy(parts, hub, sizeof parts);
    for (size_t i = 0; p->gguf && i < N_PARTS; i++)
        parts[i].name = gguf[i];
    plan_parts(p, p->dtype, layer, parts, N_PARTS);
    plan_gpt_oss_experts(p, s, layer);
}

static inline int config_gpt_oss(struct buf *b, const struct shape *s,
                                 const char *dtype)
{
    return buf_printf(
        b,
        "{\n"
        "  \"architectures\": [\n    \"GptOssForCausalLM\"\n  ],\n"
        "  \"attention_bias\": true,\n"
        "  \"bos_token_id\": %lld,\n"
        "  \"eos_token_id\": %lld,\n"
        "  \"experts_per_token\": %zu,\n"
        "  \"head_dim\": %zu,\n"
        "  \"hidden_act\": \"silu\",\n"
        "  \"hidden_size\": %zu,\n"
        "  \"initial_context_length\": 4096,\n"
        "  \"intermediate_size\": %zu,\n"
        "  \"max_position_embeddings\": %zu,\n"
        "  \"model_type\": \"gpt_oss\",\n"
        "  \"num_attention_heads\": %zu,\n"
        "  \"num_experts_per_tok\": %zu,\n"
        "  \"num_hidden_layers\": %zu,\n"
        "  \"num_key_value_heads\": %zu,\n"
        "  \"num_local_experts\": %zu,\n"
        "  \"quantization_config\": {\n"
        "    \"modules_to_not_convert\": [\n"
        "      \"model.layers.*.self_attn\",\n"
        "      \"model.layers.*.mlp.router\",\n"
        "      \"model.embed_tokens\",\n"
        "      \"lm_head\"\n"
        "    ],\n"
        "    \"quant_method\": \"mxfp4\"\n"
        "  },\n"
        "  \"rms_norm_eps\": 1e-05,\n"
        "  \"rope_scaling\": {\n"
        "    \"beta_fast\": 32.0,\n"
        "    \"beta_slow\": 1.0,\n"
        "    \"factor\": 32.0,\n"
        "    \"original_max_position_embeddings\": 4096,\n"
        "    \"rope_type\": \"yarn\",\n"
        "    \"truncate\": false\n"
        "  },\n"
        "  \"rope_theta\": 150000,\n"
        "  \"sliding_window\": 128,\n"
        "  \"swiglu_limit\": 7.0,\n"
        "  \"tie_word_embeddings\": false,\n"
        "  \"torch_dtype\": \"%s\",\n"
        "  \"vocab_size\": %zu\n}",
        (long long)s->bos_id, (long long)s->eos_id, s->n_active, s->head_dim,
        s->d_model, s->d_ff, s->n_ctx, s->n_heads, s->n_active, s->n_layers,
        s->n_kv_heads, s->n_experts, dtype, s->vocab_size);
}

/* The metadata of the same model. */
static inline void gguf_gpt_oss(struct gguf_out *o, const struct shape *s)
{
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"gpt-oss.vocab_size", s->vocab_size},
                 {"gpt-oss.block_count", s->n_layers},
                 {"gpt-oss.context_length", s->n_ctx},
                 {"gpt-oss.embedding_length", s->d_model},
                 {"gpt-oss.feed_forward_length", s->d_ff},
                 {"gpt-oss.attention.head_count", s->n_heads},
                 {"gpt-oss.attention.head_count_kv", s->n_kv_heads},
                 {"gpt-oss.attention.key_length", s->head_dim},
                 {"gpt-oss.attention.value_length", s->head_dim},
                 {"gpt-oss.attention.sliding_window", 128},
                 {"gpt-oss.expert_count", s->n_experts},
                 {"gpt-oss.expert_used_count", s->n_active},
                 {"gpt-oss.expert_feed_forward_length", s->expert_ff},
                 {"gpt-oss.rope.scaling.original_context_length", 4096},
                 {"tokenizer.ggml.eos_token_id", (size_t)s->eos_id}};
    gguf_put_string(o, "general.architecture", "gpt-oss", 7);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        gguf_put_u32(o, sizes[i].key, (uint32_t)sizes[i].value);
    gguf_put_f32(o, "gpt-oss.attention.layer_norm_rms_epsilon", 1e-5);
    gguf_put_f32(o, "gpt-oss.rope.freq_base", 150000);
    gguf_put_string(o, "gpt-oss.rope.scaling.type", "yarn", 4);
    gguf_put_f32(o, "gpt-oss.rope.scaling.factor", 32);
    gguf_put_f32(o, "gpt-oss.rope.scaling.yarn_beta_fast", 32);
    gguf_put_f32(o, "gpt-oss.rope.scaling.yarn_beta_slow", 1);
    gguf_put_string(o, "tokenizer.ggml.model", "none", 4);
}

/* ---- Gemma 4 --------------------------------------------------------------
 */

/* Layers without a window: the last one, and each sixth. Where the last layers
 * read earlier keys and values, each second one, so that few layers have all
 * kinds of the released model. */
static inline bool gemma4_is_full(const struct shape *s, size_t layer)
{
    size_t period = s->n_shared ? 2 : 6;
    return (layer + 1) % period == 0 || layer + 1 == s->n_layers;
}

static inline void plan_gemma4(struct plan *p, const struct shape *s,
                               size_t layer)
{
    const bool full = gemma4_is_full(s, layer), moe = s->n_experts > 0;
    const bool shared = layer + s->n_shared >= s->n_layers;
    const size_t d = s->d_model, hd = full ? 512 : s->head_dim;
    const size_t kv = (full && moe ? s->full_kv_heads : s->n_kv_heads) * hd;
    const size_t ff = shared ? 2 * s->d_ff : s->d_ff, q = s->n_heads * hd;
    const struct part common[] = {
        {"input_layernorm.weight", d, 0, NORM},
        {"layer_scalar", 1, 0, NORM},
        {"mlp.down_proj.weight", d, ff, MATRIX},
        {"mlp.gate_proj.weight", ff, d, MATRIX},
        {"mlp.up_proj.weight", ff, d, MATRIX},
        {"post_attention_layernorm.weight", d, 0, NORM},
        {"post_feedforward_layernorm.weight", d, 0, NORM},
        {"pre_feedforward_layernorm.weight", d, 0, NORM},
        {"self_attn.o_proj.weight", d, q, MATRIX},
        {"self_attn.q_norm.weight", hd, 0, NORM},
        {"self_attn.q_proj.weight", q, d, MATRIX},
        {"self_attn.k_norm.weight", hd, 0, NORM},
        {"self_attn.k_proj.weight", kv, d, MATRIX},
        {"self_attn.v_proj.weight", kv, d, MATRIX},
    };
    const struct part ple[] = {
        {"per_layer_input_gate.weight", s->ple_dim, d, MATRIX},
        {"per_layer_projection.weight", d, s->ple_dim, MATRIX},
        {"post_per_layer_input_norm.weight", d, 0, NORM}};
    const struct part experts[] = {
        {"post_feedforward_layernorm_1.weight", d, 0, NORM},
        {"post_feedforward_layernorm_2.weight", d, 0, NORM},
        {"pre_feedforward_layernorm_2.weight", d, 0, NORM},
        {"router.per_expert_scale", s->n_experts, 0, NORM},
        {"router.proj.weight", s->n_experts, d, MATRIX},
        {"router.scale", d, 0, NORM}};
    const size_t up[] = {s->n_experts, 2 * s->expert_ff, d},
                 down[] = {s->n_experts, d, s->expert_ff};
    size_t n = sizeof common / sizeof *common;
    n -= shared ? 3 : full && moe ? 1 : 0; /* no k and v; v from k */
    plan_parts(p, p->dtype, layer, common, n);
    if (s->ple_dim)
        plan_parts(p, p->dtype, layer, ple, 3);
    if (!moe)
        return;
    plan_parts(p, p->dtype, layer, experts, 6);
    plan_experts_of(p, layer, "experts.gate_up_proj", p->dtype, MATRIX, 3, up);
    plan_experts_of(p, layer, "experts.down_proj", p->dtype, MATRIX, 3, down);
}

static inline int config_gemma4(struct buf *b, const struct shape *s,
                                const char *dtype)
{
    const bool moe = s->n_experts > 0;
    int bad = buf_printf(
        b,
        "{\n"
        "  \"architectures\": [\n    \"Gemma4ForCausalLM\"\n  ],\n"
        "  \"attention_k_eq_v\": %s,\n"
        "  \"bos_token_id\": %lld,\n"
        "  \"enable_moe_block\": %s,\n"
        "  \"eos_token_id\": %lld,\n"
        "  \"final_logit_softcapping\": 30.0,\n"
        "  \"global_head_dim\": 512,\n"
        "  \"head_dim\": %zu,\n"
        "  \"hidden_activation\": \"gelu_pytorch_tanh\",\n"
        "  \"hidden_size\": %zu,\n"
        "  \"hidden_size_per_layer_input\": %zu,\n"
        "  \"intermediate_size\": %zu,\n"
        "  \"max_position_embeddings\": %zu,\n"
        "  \"model_type\": \"gemma4_text\",\n"
        "  \"num_attention_heads\": %zu,\n"
        "  \"num_hidden_layers\": %zu,\n"
        "  \"num_key_value_heads\": %zu,\n"
        "  \"num_kv_shared_layers\": %zu,\n"
        "  \"rms_norm_eps\": 1e-06,\n"
        "  \"sliding_window\": %d,\n"
        "  \"tie_word_embeddings\": true,\n"
        "  \"torch_dtype\": \"%s\",\n"
        "  \"use_double_wide_mlp\": %s,\n"
        "  \"vocab_size\": %zu,\n",
        moe ? "true" : "false", (long long)s->bos_id, moe ? "true" : "false",
        (long long)s->eos_id, s->head_dim, s->d_model, s->ple_dim, s->d_ff,
        s->n_ctx, s->n_heads, s->n_layers, s->n_kv_heads, s->n_shared,
        moe ? 1024 : 512, dtype, s->n_shared ? "true" : "false", s->vocab_size);
    if (moe)
        bad |= buf_printf(b,
                          "  \"moe_intermediate_size\": %zu,\n"
                          "  \"num_experts\": %zu,\n"
                          "  \"num_global_key_value_heads\": %zu,\n"
                          "  \"top_k_experts\": %zu,\n",
                          s->expert_ff, s->n_experts, s->full_kv_heads,
                          s->n_active);
    bad |= buf_puts(b, "  \"layer_types\": [");
    for (size_t i = 0; i < s->n_layers; i++)
        bad |= buf_printf(b, "%s\"%s_attention\"", i ? ", " : "",
                          gemma4_is_full(s, i) ? "full" : "sliding");
    bad |= buf_puts(b, "]\n}");
    return bad ? -1 : 0;
}

#endif
