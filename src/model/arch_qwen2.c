/* Qwen2 and Qwen2.5 (Qwen2ForCausalLM in transformers), their mixture of
 * experts, and the text models of Qwen2-VL and Qwen2.5-VL: Llama with biases of
 * q, k and v. */
#include "model/arch_qwen3.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/moe.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {
    FIXED_LLAMA, {"qkv_bias", "true"}, {NULL, NULL}};

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (qwen3_read_config(c, s, e))
        return -1;
    c->qkv_bias = true;
    c->o_bias = false;
    return 0;
}

static int read_config_moe(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    return read_config(c, s, e) || experts_read_config(c, s, 0, e) ||
                   experts_read_shared(c, s, e)
               ? -1
               : 0;
}

#define QWEN2 .fixed = fixed, LLAMA_FAMILY

const struct arch arch_qwen2 = {
    .model_type = "qwen2", .gguf = "qwen2", .read_config = read_config, QWEN2};

const struct arch arch_qwen2moe = {.model_type = "qwen2_moe",
                                   .gguf = "qwen2moe",
                                   .gguf_plain_topk = true,
                                   .read_config = read_config_moe,
                                   QWEN2};

const struct arch arch_qwen2vl = {.model_type = "qwen2_vl_text",
                                  .wrapped = "qwen2_vl",
                                  .wraps_flat = true,
                                  .gguf = "qwen2vl",
                                  .read_config = read_config,
                                  QWEN2};

const struct arch arch_qwen25vl = {.model_type = "qwen2_5_vl_text",
                                   .wrapped = "qwen2_5_vl",
                                   .wraps_flat = true,
                                   .gguf_as = &arch_qwen2vl,
                                   .read_config = read_config,
                                   QWEN2};
