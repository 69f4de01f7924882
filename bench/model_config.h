/* config.json of the checkpoints that make_model writes, in the words of the
 * released ones. */
#ifndef BENCH_MODEL_CONFIG_H
#define BENCH_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct plan;

struct shape {
    const char *name;
    size_t d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, vocab_size;
    size_t n_ctx;
    int64_t bos_id, eos_id;
    /* for a mixture of experts, whose head is not tied */
    size_t n_experts, n_active, expert_ff;
    /* of Qwen3.5; all but every fourth layer are Gated DeltaNet. 0: Qwen3 */
    size_t n_lin_k_heads, n_lin_v_heads, lin_dim;
    /* of Gemma 2 (with a class) and 3: the window, and the linear scaling of
     * the other layers' rotary embedding, which models with a vision model
     * have. 0: another family */
    size_t window;
    double rope_factor;
    /* of families without norms of queries and keys: architectures, model_type
     * and rope_scaling, NULL: null. class NULL: another family */
    const char *class, *model_type, *scaling;
    /* of gpt-oss and Gemma 4, see model_families.h: plan the tensors of a
     * layer, and write config.json. NULL: another family */
    void (*plan)(struct plan *p, const struct shape *s, size_t layer);
    int (*config)(struct buf *b, const struct shape *s, const char *dtype);
    /* of encoders, beside the two: plan the tensors outside of layers */
    void (*plan_outside)(struct plan *p, const struct shape *s);
    bool both; /* of Gemma 3: attention in both directions */
    /* of Gemma 4: KV heads of layers without a window; layers that read the
     * keys and values of earlier ones; values of a token for each layer */
    size_t full_kv_heads, n_shared, ple_dim;
};

enum { LIN_CONV = 4, LIN_INTERVAL = 4 };

/* Write the members that only Qwen3.5 has. */
static inline int config_delta(struct buf *b, const struct shape *s)
{
    if (!s->n_lin_k_heads)
        return 0;
    return buf_printf(b,
                      "  \"attn_output_gate\": true,\n"
                      "  \"full_attention_interval\": %d,\n"
                      "  \"linear_conv_kernel_dim\": %d,\n"
                      "  \"linear_key_head_dim\": %zu,\n"
                      "  \"linear_num_key_heads\": %zu,\n"
                      "  \"linear_num_value_heads\": %zu,\n"
                      "  \"linear_value_head_dim\": %zu,\n"
                      "  \"partial_rotary_factor\": 0.25,\n"
                      "  \"shared_expert_intermediate_size\": %zu,\n",
                      LIN_INTERVAL, LIN_CONV, s->lin_dim, s->n_lin_k_heads,
                      s->n_lin_v_heads, s->lin_dim, s->expert_ff);
}

/* Write the members that only a mixture of experts has. */
static inline int config_experts(struct buf *b, const struct shape *s)
{
    if (!s->n_experts)
        return 0;
    return buf_printf(b,
                      "  \"decoder_sparse_step\": 1,\n"
                      "  \"mlp_only_layers\": [],\n"
                      "  \"moe_intermediate_size\": %zu,\n"
                      "  \"norm_topk_prob\": true,\n"
                      "  \"num_experts\": %zu,\n"
                      "  \"num_experts_per_tok\": %zu,\n",
                      s->expert_ff, s->n_experts, s->n_active);
}

/* Write config.json of Qwen3 or Qwen3.5. Returns 0, or -1 without memory. */
static inline int config_qwen(struct buf *b, const struct shape *s,
                              const char *dtype)
{
    const bool moe = s->n_experts > 0, qwen35 = s->n_lin_k_heads > 0;
    static const char *const families[2][2][2] = {
        {{"Qwen3ForCausalLM", "qwen3"}, {"Qwen3MoeForCausalLM", "qwen3_moe"}},
        {{"Qwen3_5ForCausalLM", "qwen3_5_text"},
         {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"}}};
    const char *const plain[] = {s->class, s->model_type};
    const char *const *family = s->class ? plain : families[qwen35][moe];
    return buf_printf(b,
                      "{\n"
                      "  \"architectures\": [\n"
                      "    \"%s\"\n"
                      "  ],\n"
                      "  \"attention_bias\": false,\n"
                      "  \"attention_dropout\": 0.0,\n"
                      "  \"bos_token_id\": %lld,\n"
                      "  \"eos_token_id\": %lld,\n"
                      "  \"head_dim\": %zu,\n"
                      "  \"hidden_act\": \"silu\",\n"
                      "  \"hidden_size\": %zu,\n"
                      "  \"initializer_range\": 0.02,\n"
                      "  \"intermediate_size\": %zu,\n"
                      "  \"max_position_embeddings\": %zu,\n"
                      "  \"max_window_layers\": %zu,\n"
                      "  \"model_type\": \"%s\",\n"
                      "  \"num_attention_heads\": %zu,\n"
                      "  \"num_hidden_layers\": %zu,\n"
                      "  \"num_key_value_heads\": %zu,\n"
                      "  \"rms_norm_eps\": 1e-06,\n"
                      "  \"rope_scaling\": %s,\n"
                      "  \"rope_theta\": %d,\n"
                      "  \"sliding_window\": null,\n"
                      "  \"tie_word_embeddings\": %s,\n"
                      "  \"torch_dtype\": \"%s\",\n"
                      "  \"transformers_version\": \"4.51.0\",\n"
                      "  \"use_cache\": true,\n"
                      "  \"use_sliding_window\": false,\n",
                      family[0], (long long)s->bos_id, (long long)s->eos_id,
                      s->head_dim, s->d_model, s->d_ff, s->n_ctx, s->n_layers,
                      family[1], s->n_heads, s->n_layers, s->n_kv_heads,
                      s->scaling ? s->scaling : "null", qwen35 ? 10000000 : 1000000, moe ? "false" : "true",
                      dtype) ||
           config_experts(b, s) || config_delta(b, s) ||
           buf_printf(b, "  \"vocab_size\": %zu\n}", s->vocab_size);
}

/* The fields of Gemma 2, or of Gemma 3's text model. indent: before each of
 * them. The last one has no comma behind it. */
static inline int config_gemma_text(struct buf *b, const struct shape *s,
                                    const char *indent)
{
    const bool second = s->class != NULL;
    const struct {
        const char *name;
        size_t value;
    } sizes[] = {
        {"head_dim", s->head_dim},
        {"hidden_size", s->d_model},
        {"intermediate_size", s->d_ff},
        {"max_position_embeddings", s->n_ctx},
        {"num_attention_heads", s->n_heads},
        {"num_hidden_layers", s->n_layers},
        {"num_key_value_heads", s->n_kv_heads},
        {"query_pre_attn_scalar", s->head_dim},
        {"rope_local_base_freq", 10000},
        {"rope_theta", second ? 10000 : 1000000},
        {"sliding_window", s->window},
        {"sliding_window_pattern", second ? 2 : 6},
        {"vocab_size", s->vocab_size},
    };
    int bad = buf_printf(b,
                         "%s\"attn_logit_softcapping\": %s,\n"
                         "%s\"final_logit_softcapping\": %s,\n"
                         "%s\"hidden_activation\": \"gelu_pytorch_tanh\",\n"
                         "%s\"model_type\": \"%s\",\n"
                         "%s\"rms_norm_eps\": 1e-06,\n",
                         indent, second ? "50.0" : "null", indent,
                         second ? "30.0" : "null", indent, indent,
                         second ? s->model_type : "gemma3_text", indent);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        bad |= buf_printf(b, "%s\"%s\": %zu,\n", indent, sizes[i].name,
                          sizes[i].value);
    if (s->both)
        bad |= buf_printf(b, "%s\"use_bidirectional_attention\": true,\n",
                          indent);
    bad |= buf_printf(b, "%s\"rope_scaling\": ", indent);
    bad |=
        s->rope_factor > 0
            ? buf_printf(b, "{\"factor\": %.1f, \"rope_type\": \"linear\"}\n",
                         s->rope_factor)
            : buf_puts(b, "null\n");
    return bad;
}

/* Write config.json of Gemma 2, or of Gemma 3: of a text model, or of one that
 * also has a vision model. Returns 0, or -1 without memory. */
static inline int config_gemma(struct buf *b, const struct shape *s,
                               const char *dtype)
{
    const bool wrapped = s->rope_factor > 0;
    int bad = buf_printf(b,
                         "{\n"
                         "  \"architectures\": [\n"
                         "    \"%s\"\n"
                         "  ],\n"
                         "  \"bos_token_id\": %lld,\n"
                         "  \"eos_token_id\": %lld,\n"
                         "  \"torch_dtype\": \"%s\",\n",
                         s->class  ? s->class
                         : s->both ? "Gemma3TextModel"
                         : wrapped ? "Gemma3ForConditionalGeneration"
                                   : "Gemma3ForCausalLM",
                         (long long)s->bos_id, (long long)s->eos_id, dtype);
    if (wrapped)
        bad |= buf_puts(b, "  \"model_type\": \"gemma3\",\n"
                           "  \"text_config\": {\n");
    bad |= config_gemma_text(b, s, wrapped ? "    " : "  ");
    bad |= buf_puts(b, wrapped ? "  }\n}" : "}");
    return bad ? -1 : 0;
}

#endif
