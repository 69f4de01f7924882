/* Seed-OSS (SeedOssForCausalLM in transformers): Llama with biases of q, k and
 * v that may lack that of o. */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    return config_read_llama(c, s, e) ||
                   section_opt_bool(s, "attention_bias", true, &c->qkv_bias,
                                    e) ||
                   section_opt_bool(s, "attention_out_bias", false, &c->o_bias,
                                    e) ||
                   section_opt_bool(s, "mlp_bias", false, &c->mlp_bias, e)
               ? -1
               : 0;
}

static const struct names *const schemes[] = {&names_hub, &names_gguf_oss,
                                              NULL};

const struct arch arch_seed_oss = {
    .model_type = "seed_oss",
    .gguf = "seed_oss",
    .implies_heads = true,
    .blocks = {.attn_norm = true, .mlp_norm = true},
    .fixed = fixed_llama,
    .names = schemes,
    .gguf_names = &names_gguf_oss,
    .read_config = read_config,
    LAYER_FUNCTIONS};
