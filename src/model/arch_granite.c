/* Granite 3 (GraniteForCausalLM in transformers): Llama with multipliers of
 * embeddings, scores, residuals and logits. */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    double embedding, scores, residual, logits;
    if (config_read_llama(c, s, e) ||
        section_opt_bool(s, "mlp_bias", false, &c->mlp_bias, e) ||
        section_opt_double(s, "embedding_multiplier", 1, 1e-6, 1e6, &embedding,
                           e) ||
        section_opt_double(s, "attention_multiplier", 1, 1e-6, 1e6, &scores,
                           e) ||
        section_opt_double(s, "residual_multiplier", 1, 1e-6, 1e6, &residual,
                           e) ||
        section_opt_double(s, "logits_scaling", 1, 1e-6, 1e6, &logits, e))
        return -1;
    c->embed_scale = (float)embedding;
    c->residual_scale = (float)residual;
    c->logit_scale = (float)(1 / logits);
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].score_scale = (float)scores;
    return 0;
}

static const char *const keys[] = {".attention.scale", ".embedding_scale",
                                   ".residual_scale", ".logit_scale", NULL};

const struct arch arch_granite = {.model_type = "granite",
                                  .gguf = "granite",
                                  .gguf_keys = keys,
                                  .gguf_interleaved = true,
                                  .fixed = fixed_llama,
                                  .read_config = read_config,
                                  LLAMA_FAMILY};
