/* gpt-oss (GptOssForCausalLM in transformers): Llama's layers with windows in
 * every second layer from the first on, a sink for each query head, biases in
 * all products, and experts with a clamped activation. */
#include <stdio.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/moe.h"
#include "model/names.h"
#include "model/section.h"

/* The last two are fields of other mixtures, which transformers does not read
 * here. */
static const struct fixed_field fixed[] = {FIXED_LLAMA,
                                           {"swiglu_limit", "7"},
                                           {"decoder_sparse_step", "1"},
                                           {"norm_topk_prob", "true"},
                                           {NULL, NULL}};

/* layer_types; else every second layer has a window. */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    enum { WINDOW = 128 }; /* GptOssConfig's */
    static const char key[] = "sliding_window";
    c->sliding_window = WINDOW;
    if ((json_get(s->v, key) || section_is_gguf(s)) &&
        section_size(s, key, INT32_MAX, &c->sliding_window, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    for (size_t i = 0; i < c->n_layers; i += 2)
        c->layers[i].window = c->sliding_window;
    return 0;
}

/* A field of released files with the value of another one, which counts. */
static int check_alias(const struct section *s, const char *key, size_t value,
                       const char *name, struct qwick_err *e)
{
    size_t n;
    char want[96];
    if (section_opt_size(s, key, value, INT32_MAX, &n, e))
        return -1;
    snprintf(want, sizeof want, "%zu, as %s", value, name);
    return n == value ? 0 : section_bad(s, key, want, e);
}

/* The default of transformers is the scaling of the released models, which
 * other readers do not have for GGUF files. */
static int check_scaling(const struct config *c, const struct section *s,
                         struct qwick_err *e)
{
    const struct rope_config *r = &c->ropes[0];
    if (section_absent(s, "rope_parameters") &&
        section_absent(s, "rope_scaling"))
        return section_is_gguf(s)
                   ? section_bad(s, "rope_scaling.rope_type", "a string", e)
                   : section_bad(s, "rope_scaling", "an object", e);
    return r->type == ROPE_YARN
               ? check_alias(s, "initial_context_length", r->original,
                             "original_max_position_embeddings", e)
               : 0;
}

static int read_experts(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    const char *count =
        section_is_gguf(s) ? "num_experts" : "num_local_experts";
    if (experts_read_config(c, s, c->d_ff, e))
        return -1;
    if (!c->layers[0].n_experts)
        return section_bad(s, count, "an integer from 1", e);
    c->expert_bias = true;
    c->norm_topk_prob = true; /* by ROUTING_CHOSEN */
    return check_alias(s, "experts_per_token", c->layers[0].n_active,
                       "num_experts_per_tok", e);
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (!section_is_gguf(s))
        c->ropes[0].theta = 150000; /* GptOssConfig's */
    if (config_read_llama(c, s, e) ||
        section_opt_bool(s, "attention_bias", true, &c->qkv_bias, e))
        return -1;
    c->o_bias = c->qkv_bias;
    return check_scaling(c, s, e) || read_windows(c, s, e) ||
                   read_experts(c, s, e)
               ? -1
               : 0;
}

static const struct names *const schemes[] = {&names_gpt_oss, &names_gguf_oss,
                                              NULL};

/* Rounding changes the choice of experts more easily than in mixtures whose
 * queries and keys have norms: of a golden's 80 tokens, one got another expert,
 * and all logits together an error of 4e-2 in place of 1e-2. */
enum { PRECISE_TOKENS = 128 };

const struct arch arch_gpt_oss = {
    .model_type = "gpt_oss",
    .gguf = "gpt-oss",
    .gguf_pattern = 2,
    .gguf_untruncated = true,
    .transposed_experts = true,
    .alternate_experts = true,
    .blocks = {.attn_norm = true,
               .mlp_norm = true,
               .sinks = true,
               .precise_tokens = PRECISE_TOKENS,
               .activation = ACTIVATION_CLAMPED_SILU,
               .routing = ROUTING_CHOSEN},
    .fixed = fixed,
    .names = schemes,
    .gguf_names = &names_gguf_oss,
    .read_config = read_config,
    LAYER_FUNCTIONS};
