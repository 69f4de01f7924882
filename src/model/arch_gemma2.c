/* Gemma 2 and Gemma (Gemma2ForCausalLM, GemmaForCausalLM in transformers):
 *
 *   x = sqrt(d_model) * embedding
 *   h = x + norm(o_proj(attention(RoPE of q, k; v of norm(x))))
 *   y = h + norm(down_proj(gelu(gate_proj(norm(h))) * up_proj(norm(h))))
 *
 * as Gemma 3, but queries and keys have no norms, and all layers have one
 * rotary embedding. Gemma 2 caps scores and logits, and each second layer
 * attends to all positions, the others through a window. Gemma has neither
 * caps, nor windows, nor norms of the results of attention and MLP. */
#include "model/gemma.h"

#include <math.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

enum { PATTERN = 2, LAYERS_27B = 46 };

/* ---- what Gemmas share --------------------------------------------------- */

const char *const gemma_cap_keys[] = {".attn_logit_softcapping",
                                      ".final_logit_softcapping", NULL};

double gemma_gguf_scalar(const struct config *c, size_t layers_of_27b)
{
    return c->n_layers == layers_of_27b ? (double)(c->d_model / c->n_heads)
                                        : (double)c->head_dim;
}

static int read_scalar(const struct config *c, const struct section *s,
                       double *out, struct qwick_err *e)
{
    if (!section_is_gguf(s))
        return section_opt_double(s, "query_pre_attn_scalar", 256, 1e-6,
                                  MAX_DIM, out, e);
    *out = c->arch->gguf_query_scalar(c);
    return *out > 0 ? 0
                    : section_bad(s, "hidden_size", "at least head_count", e);
}

int gemma_read_scales(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    double scalar;
    if (read_scalar(c, s, &scalar, e))
        return -1;
    c->embed_scale = sqrtf((float)c->d_model);
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].score_scale = (float)(1 / sqrt(scalar));
    return 0;
}

int gemma_read_cap(const struct section *s, const char *key, double dflt,
                   float *out, struct qwick_err *e)
{
    double cap, other = json_get(s->v, key) ? 0 : dflt;
    if (section_opt_double(s, key, other, 1e-6, 1e6, &cap, e))
        return -1;
    *out = (float)cap;
    return 0;
}

/* ---- config.json ----------------------------------------------------------
 */

/* Fields that both families may lack. GGUF files have all but theta, which
 * llama.cpp knows. */
static void set_common_defaults(struct config *c, const struct section *s)
{
    c->ropes[0].theta = 10000;
    c->tied_head = true;
    if (section_is_gguf(s))
        return;
    c->rms_eps = 1e-6;
    c->vocab_size = 256000;
    c->head_dim = 256;
    c->n_ctx_max = 8192;
}

/* Gemma2Config's. llama.cpp has the same window for GGUF files without one; 0
 * there, which reads as null, is none. */
static void set_defaults(struct config *c, const struct section *s)
{
    static const char key[] = "sliding_window";
    bool none =
        section_is_gguf(s) && json_get(s->v, key) && section_absent(s, key);
    set_common_defaults(c, s);
    c->sliding_window = none ? 0 : 4096;
    if (section_is_gguf(s))
        return;
    c->d_model = 2304;
    c->d_ff = 9216;
    c->n_layers = 26;
    c->n_heads = 8;
    c->n_kv_heads = 4;
}

/* GemmaConfig's. */
static void set_first_defaults(struct config *c, const struct section *s)
{
    set_common_defaults(c, s);
    if (section_is_gguf(s))
        return;
    c->d_model = 3072;
    c->d_ff = 24576;
    c->n_layers = 28;
    c->n_heads = c->n_kv_heads = 16;
}

/* One embedding of whole heads for all layers. */
static int read_rope(struct config *c, const struct section *s,
                     struct qwick_err *e)
{
    if (config_check_head_dim(c, s, e))
        return -1;
    c->n_ropes = 1;
    c->ropes[0].n_rot = c->head_dim;
    return config_read_rope(c, &c->ropes[0], s, e);
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    set_defaults(c, s);
    return config_read_common(c, s, e) || gemma_read_scales(c, s, e) ||
                   config_read_windows(c, s, PATTERN, e) ||
                   read_rope(c, s, e) ||
                   gemma_read_cap(s, "attn_logit_softcapping", 50, &c->attn_cap,
                                  e) ||
                   gemma_read_cap(s, "final_logit_softcapping", 30,
                                  &c->logit_cap, e)
               ? -1
               : 0;
}

/* Older files say "gelu". They mean its tanh form, and so say those that have
 * hidden_activation, too. */
static int check_activation(const struct section *s, struct qwick_err *e)
{
    static const char key[] = "hidden_act", tanh_form[] = "gelu_pytorch_tanh";
    const struct json_value *v = json_get(s->v, key);
    return section_absent(s, key) || json_equals(v, tanh_form) ||
                   json_equals(v, "gelu")
               ? 0
               : section_bad(
                     s, key,
                     "\"gelu_pytorch_tanh\" or \"gelu\" (others are not "
                     "supported)",
                     e);
}

static int read_first_config(struct config *c, const struct section *s,
                             struct qwick_err *e)
{
    set_first_defaults(c, s);
    if (check_activation(s, e) || config_read_common(c, s, e) ||
        read_rope(c, s, e))
        return -1;
    c->embed_scale = sqrtf((float)c->d_model);
    return 0;
}

/* ---- the families ---------------------------------------------------------
 */

#define FIXED_GEMMA                                  \
    {"hidden_activation", "\"gelu_pytorch_tanh\""},  \
        {"partial_rotary_factor", "1"},              \
        {"rope_scaling.partial_rotary_factor", "1"}, \
    {                                                \
        "rope_parameters.partial_rotary_factor", "1" \
    }

static const struct fixed_field fixed[] = {FIXED_GEMMA, {NULL, NULL}};

static const struct fixed_field first_fixed[] = {
    FIXED_GEMMA,
    {"final_logit_softcapping", "null"},
    {"attn_logit_softcapping", "null"},
    {NULL, NULL}};

static double gguf_scalar(const struct config *c)
{
    return gemma_gguf_scalar(c, LAYERS_27B);
}

static const struct names *const schemes[] = {&names_gemma, &names_gguf, NULL};
static const struct names *const first_schemes[] = {&names_gemma1, &names_gguf,
                                                    NULL};

const struct arch arch_gemma2 = {.model_type = "gemma2",
                                 .gguf = "gemma2",
                                 .gguf_pattern = PATTERN,
                                 .gguf_implies = true,
                                 .gguf_keys = gemma_cap_keys,
                                 .blocks = {.attn_norm = true,
                                            .mlp_norm = true,
                                            .attn_post_norm = true,
                                            .mlp_post_norm = true,
                                            .activation = ACTIVATION_GELU},
                                 .fixed = fixed,
                                 .names = schemes,
                                 .gguf_names = &names_gguf,
                                 .gguf_query_scalar = gguf_scalar,
                                 .read_config = read_config,
                                 LAYER_FUNCTIONS};

const struct arch arch_gemma1 = {.model_type = "gemma",
                                 .gguf = "gemma",
                                 .blocks = {.attn_norm = true,
                                            .mlp_norm = true,
                                            .activation = ACTIVATION_GELU},
                                 .fixed = first_fixed,
                                 .names = first_schemes,
                                 .gguf_names = &names_gguf,
                                 .read_config = read_first_config,
                                 LAYER_FUNCTIONS};
