/* Gemma 4's text models (Gemma4ForCausalLM, Gemma4UnifiedForCausalLM in
 * transformers):
 *
 *   x = sqrt(d_model) * embedding
 *   h = x + norm(o_proj(attention(q_norm, k_norm, RoPE of q, k; norm of v)))
 *   y = h + norm(MLP(norm(h))), in some models with experts beside the MLP
 *   y = scale * (y + per-layer embedding), in small models
 *
 * Scores have no scale. Layers with a window and others differ in head_dim, in
 * the number of KV heads and in their rotary embedding. In large models, layers
 * without a window take values from k_proj; in small ones, the last layers read
 * the keys and values of earlier ones. */
#include <math.h>
#include <stdio.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/gemma.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

/* ---- config.json ----------------------------------------------------------
 */

/* Gemma4TextConfig's and Gemma4UnifiedTextConfig's. */
enum { GLOBAL_HEAD_DIM = 512, PATTERN = 6, PLE_DIM = 256 };
#define FULL_ROTARY 0.25

/* GGUF files have all fields but the base of the layers with a window. */
static void set_defaults(struct config *c, const struct section *s)
{
    bool unified = c->arch != &arch_gemma4;
    c->ropes[ROPE_SLIDING].theta = 10000;
    c->tied_head = true;
    if (section_is_gguf(s))
        return;
    c->rms_eps = 1e-6;
    c->ropes[ROPE_FULL].theta = 1000000;
    c->vocab_size = 262144;
    c->d_model = 2304;
    c->d_ff = 9216;
    c->n_layers = 30;
    c->n_heads = 8;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->n_ctx_max = unified ? 262144 : 131072;
    c->sliding_window = unified ? 1024 : 512;
    c->ple_dim = unified ? 0 : PLE_DIM;
}

/* A field that may be 0. *out holds the default. */
static int read_count(const struct section *s, const char *key, size_t max,
                      size_t *out, struct qwick_err *e)
{
    int64_t n;
    char want[64];
    if (section_absent(s, key))
        return 0;
    if (!json_int(json_get(s->v, key), 0, (int64_t)max, &n)) {
        *out = (size_t)n;
        return 0;
    }
    snprintf(want, sizeof want, "an integer from 0 to %zu", max);
    return section_bad(s, key, want, e);
}

/* Layers of transformers always end with one without a window
 * (Gemma4TextConfig). */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    if (config_read_windows(c, s, PATTERN, e))
        return -1;
    if (!section_is_gguf(s))
        c->layers[c->n_layers - 1].window = NO_WINDOW;
    return 0;
}

/* ---- what differs between layers ----------------------------------------- */

/* The fields of released checkpoints. */
static int read_full_layers(struct config *c, const struct section *s,
                            struct qwick_err *e)
{
    size_t head_dim, n_kv_heads;
    bool k_eq_v;
    if (section_opt_size(s, "global_head_dim", GLOBAL_HEAD_DIM, MAX_DIM,
                         &head_dim, e) ||
        section_opt_size(s, "num_global_key_value_heads", c->n_kv_heads,
                         MAX_DIM, &n_kv_heads, e) ||
        section_opt_bool(s, "attention_k_eq_v", false, &k_eq_v, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++) {
        struct layer_config *l = &c->layers[i];
        if (l->window != NO_WINDOW)
            continue;
        l->head_dim = head_dim;
        l->v_from_k = k_eq_v;
        l->n_kv_heads = k_eq_v ? n_kv_heads : c->n_kv_heads;
    }
    return 0;
}

/* The number of a layer; n_layers if the text is none. */
static size_t layer_number(const struct config *c, const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return c->n_layers;
        n = 10 * n + (size_t)(text[i] - '0');
        if (n >= c->n_layers)
            return c->n_layers;
    }
    return len ? n : c->n_layers;
}

/* The fields of one layer, which take the place of the model's. */
static int read_layer(struct layer_config *l, const struct section *s,
                      struct qwick_err *e)
{
    static const char *const known[] = {"head_dim", "num_key_value_heads",
                                        "intermediate_size",
                                        "attention_k_eq_v"};
    for (size_t i = 0; i < s->v->len; i++) {
        bool found = false;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++)
            found = found || json_get(s->v, known[j]) == &s->v->items[i];
        if (!found)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s%.60s: is not supported in one layer",
                           s->path, s->in,
                           ERR_SHOW(s->v->keys[i].str, s->v->keys[i].len));
    }
    return section_opt_size(s, "head_dim", l->head_dim, MAX_DIM, &l->head_dim,
                            e) ||
                   section_opt_size(s, "num_key_value_heads", l->n_kv_heads,
                                    MAX_DIM, &l->n_kv_heads, e) ||
                   section_opt_size(s, "intermediate_size", l->d_ff, MAX_DIM,
                                    &l->d_ff, e) ||
                   section_opt_bool(s, "attention_k_eq_v", l->v_from_k,
                                    &l->v_from_k, e)
               ? -1
               : 0;
}

/* per_layer_config of transformers 5: an object for each layer that differs. */
static int read_each_layer(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    static const char key[] = "per_layer_config";
    char in[160];
    bool k_eq_v;
    struct section all = section_inner(s, key, "");
    if (all.v->type != JSON_OBJECT)
        return section_bad(s, key, "an object", e);
    if (section_opt_bool(s, "attention_k_eq_v", false, &k_eq_v, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].v_from_k = k_eq_v && c->layers[i].window == NO_WINDOW;
    for (size_t i = 0; i < all.v->len; i++) {
        struct section one = *s;
        size_t layer = layer_number(c, all.v->keys[i].str, all.v->keys[i].len);
        one.v = &all.v->items[i];
        snprintf(in, sizeof in, "%s%s.%.40s.", s->in, key,
                 ERR_SHOW(all.v->keys[i].str, all.v->keys[i].len));
        if (!section_is_gguf(s)) /* its keys have all layers' values */
            one.in = in;
        if (layer == c->n_layers || one.v->type != JSON_OBJECT)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s must be an object of a layer from 0 to %zu",
                           s->path, in, c->n_layers - 1);
        if (read_layer(&c->layers[layer], &one, e))
            return -1;
    }
    return 0;
}

static int check_heads(const struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct layer_config *l = &c->layers[i];
        if (c->n_heads % l->n_kv_heads)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: num_attention_heads: %zu is not a multiple of "
                           "the KV heads of layer %zu, %zu",
                           s->path, c->n_heads, i, l->n_kv_heads);
        if (c->n_heads * l->head_dim > MAX_DIM)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: num_attention_heads times head_dim of layer "
                           "%zu: %zu times %zu is over %d",
                           s->path, i, c->n_heads, l->head_dim, MAX_DIM);
    }
    return config_check_head_dim(c, s, e);
}

/* The last num_kv_shared_layers read the keys and values of the last layer
 * before them that has a window as they have, or none. */
static int read_shared_layers(struct config *c, const struct section *s,
                              struct qwick_err *e)
{
    static const char key[] = "num_kv_shared_layers";
    size_t n_shared = 0;
    bool wide;
    if (read_count(s, key, c->n_layers - 1, &n_shared, e) ||
        section_opt_bool(s, "use_double_wide_mlp", false, &wide, e))
        return -1;
    size_t first = c->n_layers - n_shared;
    for (size_t i = first; i < c->n_layers; i++) {
        struct layer_config *l = &c->layers[i];
        size_t from = first;
        while (from && c->layers[from - 1].window != l->window)
            from--;
        const struct layer_config *own = from ? &c->layers[from - 1] : NULL;
        if (!own || own->head_dim != l->head_dim ||
            own->n_kv_heads != l->n_kv_heads)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s%s: is %zu, but no earlier layer has keys "
                           "and values as layer %zu needs them",
                           s->path, s->in, key, n_shared, i);
        l->kv_back = i - (from - 1);
        l->v_from_k = false;
        l->d_ff *= wide ? 2 : 1;
    }
    return 0;
}

static int read_layers(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (read_windows(c, s, e))
        return -1;
    return (section_absent(s, "per_layer_config") ? read_full_layers(c, s, e)
                                                  : read_each_layer(c, s, e)) ||
                   check_heads(c, s, e) || read_shared_layers(c, s, e)
               ? -1
               : 0;
}

/* ---- other fields ---------------------------------------------------------
 */

static int read_ropes(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    struct rope_config *r = &c->ropes[ROPE_FULL];
    if (config_read_rope_kinds(c, "rope_theta", "rope_local_base_freq", s, e))
        return -1;
    if (section_is_gguf(s) || !section_absent(s, "rope_parameters"))
        return 0;
    r->type = ROPE_PROPORTIONAL;
    r->factor = 1;
    r->n_turning = (size_t)(FULL_ROTARY * (double)r->n_rot / 2);
    return 0;
}

/* GGUF files have other names, which are those of other families. */
static int read_experts(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    bool has = section_is_gguf(s) && !section_absent(s, "num_experts");
    size_t n, n_active, d_ff;
    if (section_opt_bool(s, "enable_moe_block", has, &has, e))
        return -1;
    if (!has)
        return 0;
    if (section_size(s, "num_experts", MAX_EXPERTS, &n, e) ||
        section_size(
            s, section_is_gguf(s) ? "num_experts_per_tok" : "top_k_experts", n,
            &n_active, e) ||
        section_size(s, "moe_intermediate_size", MAX_DIM, &d_ff, e))
        return -1;
    c->norm_topk_prob = true;
    for (size_t i = 0; i < c->n_layers; i++) {
        c->layers[i].n_experts = n;
        c->layers[i].n_active = n_active;
        c->layers[i].expert_ff = d_ff;
    }
    return 0;
}

/* The table has a row for each token, or more. GGUF files always say whether
 * there is one. */
static int read_ple(struct config *c, const struct section *s,
                    struct qwick_err *e)
{
    static const char key[] = "vocab_size_per_layer_input",
                      dim[] = "hidden_size_per_layer_input";
    if (section_is_gguf(s) && section_absent(s, dim))
        return section_bad(s, dim, "an integer from 0", e);
    if (read_count(s, dim, MAX_DIM, &c->ple_dim, e))
        return -1;
    if (!c->ple_dim)
        return 0;
    if (section_opt_size(s, key, c->vocab_size, MAX_VOCAB, &c->ple_vocab_size,
                         e))
        return -1;
    char want[64];
    snprintf(want, sizeof want, "at least %zu, as vocab_size", c->vocab_size);
    return c->ple_vocab_size >= c->vocab_size ? 0
                                              : section_bad(s, key, want, e);
}

/* "vision": only tokens of an image see each other both ways. */
static int check_direction(const struct section *s, struct qwick_err *e)
{
    static const char key[] = "use_bidirectional_attention";
    const struct json_value *v = json_get(s->v, key);
    bool causal = section_absent(s, key) || json_equals(v, "vision") ||
                  (v->type == JSON_BOOL && !v->boolean);
    return causal ? 0
                  : section_bad(s, key,
                                "null or \"vision\" (others are not supported)",
                                e);
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    double cap = section_is_gguf(s) ? (double)c->arch->gguf_logit_cap : 0;
    set_defaults(c, s);
    if (config_read_common(c, s, e) || read_layers(c, s, e) ||
        read_ropes(c, s, e) || read_experts(c, s, e) || read_ple(c, s, e) ||
        check_direction(s, e) ||
        gemma_read_cap(s, "final_logit_softcapping", cap, &c->logit_cap, e))
        return -1;
    c->embed_scale = sqrtf((float)c->d_model);
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].score_scale = 1;
    return 0;
}

/* ---- the family -----------------------------------------------------------
 */

static const struct fixed_field fixed[] = {
    {"hidden_activation", "\"gelu_pytorch_tanh\""},
    {"attention_bias", "false"},
    {"attn_logit_softcapping", "null"},
    {NULL, NULL}};

static const char *const own_fields[] = {"per_layer_config",
                                         "use_bidirectional_attention", NULL};

static const char *const keys[] = {".attention.shared_kv_layers",
                                   ".final_logit_softcapping", NULL};

static double gguf_scalar(const struct config *c)
{
    (void)c;
    return 1;
}

static const struct names *const schemes[] = {&names_gemma4, &names_gguf, NULL};

#define GEMMA4                                                    \
    .gguf_layered = true, .gguf_fused_experts = true,             \
    .gguf_rope_factors = true, .gguf_logit_cap = 30,              \
    .own_fields = own_fields, .gguf_keys = keys,                  \
    .blocks = {.attn_norm = true,                                 \
               .mlp_norm = true,                                  \
               .attn_post_norm = true,                            \
               .mlp_post_norm = true,                             \
               .qk_norm = QK_NORM_HEAD,                           \
               .v_norm = true,                                    \
               .layer_scale = true,                               \
               .activation = ACTIVATION_GELU,                     \
               .routing = ROUTING_CHOSEN,                         \
               .experts_beside = true},                           \
    .fixed = fixed, .names = schemes, .gguf_names = &names_gguf,  \
    .gguf_query_scalar = gguf_scalar, .read_config = read_config, \
    LAYER_FUNCTIONS

const struct arch arch_gemma4 = {
    .model_type = "gemma4_text", .wrapped = "gemma4", .gguf = "gemma4", GEMMA4};

/* The text model of one that reads images and audio without encoders. It has
 * no per-layer embeddings and no experts. */
const struct arch arch_gemma4_unified = {.model_type = "gemma4_unified_text",
                                         .wrapped = "gemma4_unified",
                                         .gguf_as = &arch_gemma4,
                                         GEMMA4};

/* Files that call it by the other's name. */
const struct arch arch_gemma4_unified_text = {.model_type = "gemma4_text",
                                              .wrapped = "gemma4_unified",
                                              .gguf_as = &arch_gemma4,
                                              GEMMA4};
