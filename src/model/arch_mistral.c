/* Mistral, Ministral 3 and Mixtral (MistralForCausalLM, Ministral3ForCausalLM
 * and MixtralForCausalLM in transformers): Llama with a window in all layers,
 * if there is one. Ministral's queries grow with the position
 * (rope_config.q_beta). Mixtral has experts in place of the MLP. */
#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/moe.h"
#include "model/names.h"
#include "model/section.h"

/* dflt: the window of a config.json without the field, 0: none. */
static int read_window(struct config *c, const struct section *s, size_t dflt,
                       struct qwick_err *e)
{
    static const char key[] = "sliding_window";
    const struct json_value *v = json_get(s->v, key);
    if (v && v->type == JSON_NULL)
        dflt = 0;
    if (!section_absent(s, key) &&
        section_size(s, key, INT32_MAX, &c->sliding_window, e))
        return -1;
    if (!v && !section_is_gguf(s))
        c->sliding_window = dflt;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    for (size_t i = 0; c->sliding_window && i < c->n_layers; i++)
        c->layers[i].window = c->sliding_window;
    return 0;
}

static int read_mistral(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    enum { WINDOW = 4096 }; /* MistralConfig's */
    return config_read_llama(c, s, e) || read_window(c, s, WINDOW, e) ? -1 : 0;
}

/* mscale and mscale_all_dim are equal in released files, so that cosines and
 * sines have no factor. GGUF files have the second one only. */
static int read_ministral3(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    if (config_read_llama(c, s, e) || read_window(c, s, 0, e))
        return -1;
    if (section_is_gguf(s))
        c->ropes[0].attention = 1;
    return 0;
}

static const char *const ministral3_keys[] = {".attention.temperature_scale",
                                              NULL};

static int read_mixtral(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    if (read_ministral3(c, s, e) || experts_read_config(c, s, c->d_ff, e))
        return -1;
    c->norm_topk_prob = true;
    return 0;
}

const struct arch arch_mistral = {.model_type = "mistral",
                                  .wrapped = "mistral3",
                                  .gguf_as = &arch_llama,
                                  .fixed = fixed_llama,
                                  .read_config = read_mistral,
                                  LLAMA_FAMILY};

const struct arch arch_ministral3 = {.model_type = "ministral3",
                                     .wrapped = "mistral3",
                                     .gguf = "mistral3",
                                     .gguf_keys = ministral3_keys,
                                     .gguf_interleaved = true,
                                     .fixed = fixed_llama,
                                     .read_config = read_ministral3,
                                     LLAMA_FAMILY};

const struct arch arch_mixtral = {.model_type = "mixtral",
                                  .gguf_as = &arch_llama,
                                  .fixed = fixed_llama,
                                  .read_config = read_mixtral,
                                  LLAMA_FAMILY};
