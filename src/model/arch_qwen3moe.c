/* Qwen3-MoE (Qwen3MoeForCausalLM in transformers) and the text model of
 * Qwen3-VL-MoE: Qwen3 with a mixture of
 * experts in place of the MLP, in all layers or some. There is no shared
 * expert. */
#include "model/arch.h"
#include "model/arch_qwen3.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/moe.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {
    QWEN3_FIXED, {"shared_expert_intermediate_size", "0"}, {NULL, NULL}};

/* transformers 5 has windows in all layers or in none (Qwen3MoeModel). Files
 * that ask for others must not depend on who reads them. */
static int check_windows(const struct config *c, const struct section *s,
                         struct qwick_err *e)
{
    bool listed = !section_absent(s, "layer_types");
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->sliding_window && c->layers[i].window == NO_WINDOW &&
            !section_is_gguf(s))
            return section_bad(
                s, listed ? "layer_types" : "max_window_layers",
                listed ? "sliding_attention in all layers (others are not "
                         "supported)"
                       : "0 with a window (others are not supported)",
                e);
    return 0;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    return qwen3_read_config(c, s, e) || check_windows(c, s, e) ||
                   experts_read_config(c, s, 0, e)
               ? -1
               : 0;
}

/* Qwen3VLMoeTextTopKRouter always divides by the sum. */
static int read_config_vl(struct config *c, const struct section *s,
                          struct qwick_err *e)
{
    if (read_config(c, s, e))
        return -1;
    c->norm_topk_prob = true;
    return 0;
}

static const struct names *const schemes[] = {&names_hub, &names_gguf, NULL};

const struct arch arch_qwen3moe = {.model_type = "qwen3_moe",
                                   .gguf = "qwen3moe",
                                   .blocks = QWEN3_BLOCKS,
                                   .fixed = fixed,
                                   .names = schemes,
                                   .gguf_names = &names_gguf,
                                   .read_config = read_config,
                                   LAYER_FUNCTIONS};

const struct arch arch_qwen3vlmoe = {.model_type = "qwen3_vl_moe_text",
                                     .wrapped = "qwen3_vl_moe",
                                     .gguf = "qwen3vlmoe",
                                     .transposed_experts = true,
                                     .implies_heads = true,
                                     .blocks = QWEN3_BLOCKS,
                                     .fixed = fixed,
                                     .names = schemes,
                                     .gguf_names = &names_gguf,
                                     .read_config = read_config_vl,
                                     LAYER_FUNCTIONS};
