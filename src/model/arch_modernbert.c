/* ModernBERT (ModernBertModel in transformers), a text encoder:
 *
 *   x = norm(embedding)
 *   h = x + o_proj(attention(RoPE of q, k; v of norm(x)))
 *   y = h + down_proj(gelu(gate_proj(norm(h))) * up_proj(norm(h)))
 *
 * Layer 0 has no norm before attention. Norms are LayerNorms, mostly without
 * biases. Each third layer attends to all positions, the others through a
 * window, and each kind has a rotary embedding of its own. */
#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

enum { PATTERN = 3 };

static const struct fixed_field fixed[] = {
    {"hidden_activation", "\"gelu\""},
    {"classifier_activation", "\"gelu\""},
    {"is_causal", "false"},
    {NULL, NULL}};

/* ModernBertConfig's. Readers of GGUF files know the base of the layers with a
 * window. */
static void set_defaults(struct config *c, const struct section *s)
{
    c->ropes[ROPE_SLIDING].theta = 10000;
    if (section_is_gguf(s))
        return;
    c->ropes[ROPE_FULL].theta = 160000;
    c->rms_eps = 1e-5;
    c->sliding_window = 128;
}

/* The window counts tokens on both sides. */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    static const char every[] = "global_attn_every_n_layers";
    const char *key = section_is_gguf(s) ? "sliding_window" : "local_attention";
    size_t pattern;
    if (section_absent(s, key) && !c->sliding_window)
        return 0;
    if (section_opt_size(s, key, c->sliding_window, INT32_MAX,
                         &c->sliding_window, e) ||
        section_opt_size(s, every, PATTERN, MAX_LAYERS, &pattern, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    for (size_t i = 0; i < c->n_layers; i++)
        if (i % pattern)
            c->layers[i].window = c->sliding_window;
    return 0;
}

static int read_ropes(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    return section_is_gguf(s)
               ? config_read_rope_kinds(c, "rope_theta", "rope_local_base_freq",
                                        s, e)
               : config_read_rope_kinds(c, "global_rope_theta",
                                        "local_rope_theta", s, e);
}

/* Whether a classifier reads the mean of all states. GGUF files have no key for
 * it, and their readers take the mean. */
static int read_class_pooling(struct config *c, const struct section *s,
                              struct qwick_err *e)
{
    static const char key[] = "classifier_pooling";
    const struct json_value *v = json_get(s->v, key);
    c->class_mean_assumed = section_is_gguf(s);
    c->class_mean = json_equals(v, "mean") || c->class_mean_assumed;
    return section_absent(s, key) || c->class_mean || json_equals(v, "cls")
               ? 0
               : section_bad(s, key, "\"cls\" or \"mean\"", e);
}

static int read_biases(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    return section_opt_bool(s, "norm_bias", false, &c->norm_bias, e) ||
                   section_opt_bool(s, "mlp_bias", false, &c->mlp_bias, e) ||
                   section_opt_bool(s, "classifier_bias", false,
                                    &c->class_dense_bias, e)
               ? -1
               : 0;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    set_defaults(c, s);
    return config_read_common(c, s, e) || config_check_head_dim(c, s, e) ||
                   read_biases(c, s, e) || read_class_pooling(c, s, e) || read_windows(c, s, e) ||
                   read_ropes(c, s, e) || config_set_bidirectional(c, s, e)
               ? -1
               : 0;
}

static const struct names *const schemes[] = {&names_modernbert,
                                              &names_gguf_fused, NULL};
static const char *const own_fields[] = {"is_causal", NULL};
static const char *const gguf_keys[] = {".attention.causal", NULL};

const struct arch arch_modernbert = {
    .model_type = "modernbert",
    .eps = "norm_eps",
    .gguf = "modern-bert",
    .gguf_pattern = PATTERN,
    .gguf_full_first = true,
    .gguf_keys = gguf_keys,
    .own_fields = own_fields,
    .implies_heads = true,
    .blocks = {.attn_norm = true,
               .mlp_norm = true,
               .layer_norm = true,
               .embed_norm = true,
               .class_norm = true,
               .pairs16 = PAIRS16_NORMED,
               .activation = ACTIVATION_GELU_ERF},
    .fixed = fixed,
    .names = schemes,
    .gguf_names = &names_gguf_fused,
    .read_config = read_config,
    LAYER_FUNCTIONS};
