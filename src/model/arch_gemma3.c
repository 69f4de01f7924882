/* Gemma 3's text model (Gemma3ForCausalLM in transformers):
 *
 *   x = sqrt(d_model) * embedding
 *   h = x + norm(o_proj(attention(q_norm, k_norm, RoPE of q, k, v of norm(x))))
 *   y = h + norm(down_proj(gelu(gate_proj(norm(h))) * up_proj(norm(h))))
 *
 * Norms are zero-centred in checkpoints of the hub: names.plus makes plain ones
 * of them.
 * Most layers attend through a window and have a rotary embedding of their own.
 * transformers rounds sqrt(d_model) to the type of the weights; we keep it in
 * float32, as it does for float32 weights.
 *
 * EmbeddingGemma has the same layers with attention in both directions
 * (use_bidirectional_attention). */
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

enum { LAYERS_1B = 26, LAYERS_4B = 34, LAYERS_12B = 48, LAYERS_27B = 62 };

/* GGUF files that Ollama's converter wrote have names of their own for some
 * fields, and lack what Ollama's code for the released models knows. */
static bool is_ollama(const struct section *s)
{
    static const char *const own[] = {"ollama.rope_theta",
                                      "ollama.rope_local_base_freq",
                                      "ollama.mm_tokens_per_image"};
    bool found = section_absent(s, "rms_norm_eps");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        found = found || !section_absent(s, own[i]);
    return section_is_gguf(s) && found;
}

/* Gemma3TextConfig's. Released checkpoints rely on them. GGUF files have all
 * fields but the base of the layers with a window (llama.cpp has the same
 * default). */
static void set_defaults(struct config *c, const struct section *s)
{
    c->ropes[ROPE_SLIDING].theta = 10000;
    c->tied_head = true;
    if (!section_is_gguf(s) || is_ollama(s)) {
        c->rms_eps = 1e-6;
        c->ropes[ROPE_FULL].theta = 1000000;
    }
    if (section_is_gguf(s))
        return;
    c->vocab_size = 262208;
    c->d_model = 2304;
    c->d_ff = 9216;
    c->n_layers = 26;
    c->n_heads = 8;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->n_ctx_max = 131072;
    c->sliding_window = 4096;
}

/* Other Gemmas have caps. */
static const struct fixed_field fixed[] = {
    {"final_logit_softcapping", "null"},
    {"attn_logit_softcapping", "null"},
    {"hidden_activation", "\"gelu_pytorch_tanh\""},
    {"partial_rotary_factor", "1"},
    {"rope_scaling.partial_rotary_factor", "1"},
    {"rope_parameters.full_attention.partial_rotary_factor", "1"},
    {"rope_parameters.sliding_attention.partial_rotary_factor", "1"},
    {NULL, NULL}};

static const char *const own_fields[] = {"use_bidirectional_attention", NULL};
static const char *const embedding_keys[] = {".attention.causal", NULL};

/* Of GGUF files. Ollama's files of the model with 26 layers have a cap by
 * mistake, which Ollama ignores. */
static int check_caps(const struct section *s, struct qwick_err *e)
{
    int64_t n;
    bool capped_1b =
        is_ollama(s) && !json_int(json_get(s->v, "num_hidden_layers"),
                                  LAYERS_1B, LAYERS_1B, &n);
    return section_is_gguf(s) && !capped_1b ? fixed_check(s, fixed, NULL, e)
                                            : 0;
}

static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    const char *key = section_absent(s, "sliding_window_pattern")
                          ? "_sliding_window_pattern"
                          : "sliding_window_pattern";
    size_t pattern = 6;
    if (section_absent(s, "layer_types") &&
        section_opt_size(s, key, pattern, MAX_LAYERS, &pattern, e))
        return -1;
    return config_read_windows(c, s, pattern, e);
}

static int read_ropes(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    static const char *const thetas[2] = {"rope_theta", "rope_local_base_freq"};
    static const char *const ollama[2] = {"ollama.rope_theta",
                                          "ollama.rope_local_base_freq"};
    const char *keys[2];
    for (int i = 0; i < 2; i++)
        keys[i] = section_absent(s, ollama[i]) ? thetas[i] : ollama[i];
    return config_read_rope_kinds(c, keys[ROPE_FULL], keys[ROPE_SLIDING], s, e);
}

/* The released models of 4B, 12B and 27B scale, and Ollama's files do not say
 * so. */
static void scale_ollama(struct config *c, const struct section *s)
{
    struct rope_config *r = &c->ropes[ROPE_FULL];
    size_t n = c->n_layers;
    if (!is_ollama(s) || !section_absent(s, "rope_scaling") ||
        (n != LAYERS_4B && n != LAYERS_12B && n != LAYERS_27B))
        return;
    r->type = ROPE_LINEAR;
    r->factor = 8;
}

/* The model of 27B is the one with 62 layers. */
static double gguf_scalar(const struct config *c)
{
    return gemma_gguf_scalar(c, LAYERS_27B);
}

static int read_common(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    set_defaults(c, s);
    return check_caps(s, e) || config_read_common(c, s, e) ||
                   gemma_read_scales(c, s, e) ||
                   config_check_head_dim(c, s, e) || read_windows(c, s, e) ||
                   read_ropes(c, s, e)
               ? -1
               : 0;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    bool both;
    if (read_common(c, s, e) ||
        section_opt_bool(s, own_fields[0], false, &both, e))
        return -1;
    scale_ollama(c, s);
    return both ? config_set_bidirectional(c, s, e) : 0;
}

/* Of EmbeddingGemma, which has an architecture of its own in GGUF files. */
static int read_embedding_config(struct config *c, const struct section *s,
                                 struct qwick_err *e)
{
    return read_common(c, s, e) || config_set_bidirectional(c, s, e) ? -1 : 0;
}

static const struct names *const schemes[] = {&names_gemma, &names_gguf, NULL};

#define BLOCKS                                                   \
    {.attn_norm = true,                                          \
     .mlp_norm = true,                                           \
     .attn_post_norm = true,                                     \
     .mlp_post_norm = true,                                      \
     .qk_norm = QK_NORM_HEAD,                                    \
     .activation = ACTIVATION_GELU,                              \
     .pairs16 = PAIRS16_ATTENTION}

const struct arch arch_gemma3 = {.model_type = "gemma3_text",
                                 .wrapped = "gemma3",
                                 .gguf = "gemma3",
                                 .gguf_pattern = 6,
                                 .gguf_keys = gemma_cap_keys,
                                 .own_fields = own_fields,
                                 .blocks = BLOCKS,
                                 .fixed = fixed,
                                 .names = schemes,
                                 .gguf_names = &names_gguf,
                                 .gguf_query_scalar = gguf_scalar,
                                 .read_config = read_config,
                                 LAYER_FUNCTIONS};

/* config.json has no type for EmbeddingGemma but Gemma 3's. */
const struct arch arch_gemma_embedding = {.model_type = "gemma3_text",
                                          .gguf = "gemma-embedding",
                                          .gguf_pattern = 6,
                                          .gguf_keys = embedding_keys,
                                          .blocks = BLOCKS,
                                          .fixed = fixed,
                                          .names = schemes,
                                          .gguf_names = &names_gguf,
                                          .gguf_query_scalar = gguf_scalar,
                                          .read_config = read_embedding_config,
                                          LAYER_FUNCTIONS};
