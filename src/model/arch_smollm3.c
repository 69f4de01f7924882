/* SmolLM3 (SmolLM3ForCausalLM in transformers): Llama without a rotary
 * embedding in some layers. */
#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {
    FIXED_LLAMA, {"use_sliding_window", "false"}, {NULL, NULL}};

/* no_rope_layers has 0 for each layer without; else it is every
 * no_rope_layer_interval-th layer. */
static int read_ropes(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    const struct json_value *list = json_get(s->v, "no_rope_layers");
    bool listed = !section_absent(s, "no_rope_layers");
    size_t interval;
    if (section_opt_size(s, "no_rope_layer_interval", 4, MAX_LAYERS, &interval,
                         e))
        return -1;
    if (listed && (list->type != JSON_ARRAY || list->len != c->n_layers))
        return section_bad(s, "no_rope_layers",
                           "a list with 0 or 1 for each layer", e);
    for (size_t i = 0; i < c->n_layers; i++) {
        int64_t rotates = (i + 1) % interval != 0;
        if (listed && json_int(&list->items[i], 0, 1, &rotates))
            return section_bad(s, "no_rope_layers",
                               "a list with 0 or 1 for each layer", e);
        c->layers[i].rope = rotates ? 0 : NO_ROPE;
    }
    return 0;
}

static bool gguf_rotates(const struct config *c, size_t i)
{
    (void)c;
    return (i + 1) % 4 != 0;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    c->tied_head = true; /* SmolLM3Config's default */
    return config_read_llama(c, s, e) ||
                   section_opt_bool(s, "mlp_bias", false, &c->mlp_bias, e) ||
                   read_ropes(c, s, e)
               ? -1
               : 0;
}

const struct arch arch_smollm3 = {.model_type = "smollm3",
                                  .gguf = "smollm3",
                                  .gguf_interleaved = true,
                                  .fixed = fixed,
                                  .gguf_rotates = gguf_rotates,
                                  .read_config = read_config,
                                  LLAMA_FAMILY};
