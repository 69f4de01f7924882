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
 * float32, as it does for float32 weights. */
#include <math.h>
#include <stdio.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/arch_qwen3.h"
#include "model/fixed.h"
#include "model/model.h"
#include "model/pass.h"
#include "model/section.h"

/* ---- config.json ----------------------------------------------------------
 */

enum { ROPE_FULL, ROPE_SLIDING, N_ROPES };

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
    c->n_ropes = N_ROPES;
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

/* Of GGUF files. Ollama's files of the model with 26 layers have a cap by
 * mistake, which Ollama ignores. */
static int check_caps(const struct section *s, struct qwick_err *e)
{
    int64_t n;
    bool capped_1b =
        is_ollama(s) && !json_int(json_get(s->v, "num_hidden_layers"),
                                  LAYERS_1B, LAYERS_1B, &n);
    return section_is_gguf(s) && !capped_1b ? fixed_check(s, fixed, e) : 0;
}

/* layer_types; else every sliding_window_pattern-th layer attends to all. */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    const char *key = section_absent(s, "sliding_window_pattern")
                          ? "_sliding_window_pattern"
                          : "sliding_window_pattern";
    size_t pattern;
    if (section_is_gguf(s) && section_absent(s, "sliding_window"))
        return 0;
    if (section_opt_size(s, "sliding_window", c->sliding_window, INT32_MAX,
                         &c->sliding_window, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    if (section_opt_size(s, key, 6, MAX_LAYERS, &pattern, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        if ((i + 1) % pattern)
            c->layers[i].window = c->sliding_window;
    return 0;
}

/* In transformers 5, each kind of layer has an object. In 4, rope_theta and
 * rope_scaling belong to the layers that attend to all positions. */
static int read_ropes(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    static const char *const kinds[N_ROPES] = {"full_attention",
                                               "sliding_attention"};
    static const char *const thetas[N_ROPES] = {"rope_theta",
                                                "rope_local_base_freq"};
    static const char *const ollama[N_ROPES] = {"ollama.rope_theta",
                                                "ollama.rope_local_base_freq"};
    char in[64], in_kind[96];
    snprintf(in, sizeof in, "%srope_parameters.", s->in);
    struct section all = section_inner(s, "rope_parameters", in);
    bool has5 = !section_absent(s, "rope_parameters");
    if (has5 && all.v->type != JSON_OBJECT)
        return section_bad(s, "rope_parameters", "an object", e);
    for (int i = 0; i < N_ROPES; i++) {
        struct section none = {.path = s->path, .in = ""};
        struct section v4 = none, v5 = none;
        snprintf(in_kind, sizeof in_kind, "%s%s.", in, kinds[i]);
        if (has5)
            v5 = section_inner(&all, kinds[i], in_kind);
        if (has5 && (!v5.v || v5.v->type != JSON_OBJECT))
            return section_bad(&all, kinds[i], "an object", e);
        if (i == ROPE_FULL)
            v4 = section_inner(s, "rope_scaling", "rope_scaling.");
        if (i == ROPE_FULL && !section_absent(s, "rope_scaling") &&
            v4.v->type != JSON_OBJECT)
            return section_bad(s, "rope_scaling", "an object or null", e);
        c->ropes[i].n_rot = c->head_dim;
        if (config_read_rope_of(c, &c->ropes[i], s,
                                section_absent(s, ollama[i]) ? thetas[i]
                                                             : ollama[i],
                                &v5, &v4, e))
            return -1;
    }
    return 0;
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

/* query_pre_attn_scalar of GGUF files: head_dim, and in the model of 27B, which
 * is the one with 62 layers, d_model / n_heads. */
static double gguf_scalar(const struct config *c)
{
    return c->n_layers == LAYERS_27B ? (double)(c->d_model / c->n_heads)
                                     : (double)c->head_dim;
}

static int read_scalar(const struct config *c, const struct section *s,
                       double *out, struct qwick_err *e)
{
    if (!section_is_gguf(s))
        return section_opt_double(s, "query_pre_attn_scalar", 256, 1e-6,
                                  MAX_DIM, out, e);
    *out = gguf_scalar(c);
    return *out > 0 ? 0
                    : section_bad(s, "hidden_size", "at least head_count", e);
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    double scalar;
    set_defaults(c, s);
    if (check_caps(s, e) || config_read_common(c, s, e) ||
        read_scalar(c, s, &scalar, e))
        return -1;
    if (config_check_head_dim(c, s, e) || read_windows(c, s, e) ||
        read_ropes(c, s, e))
        return -1;
    scale_ollama(c, s);
    c->embed_scale = sqrtf((float)c->d_model);
    for (size_t i = 0; i < c->n_layers; i++) {
        struct layer_config *l = &c->layers[i];
        l->score_scale = (float)(1 / sqrt(scalar));
        l->rope = l->window == NO_WINDOW ? ROPE_FULL : ROPE_SLIDING;
    }
    return 0;
}

/* ---- weights --------------------------------------------------------------
 */

static int bind_layer(struct model *m, struct layer *l, size_t i,
                      struct qwick_err *e)
{
    struct weights *w = &m->weights;
    size_t d = m->config.d_model;
    struct weight_ref attn = {.id = WEIGHT_ATTN_POST_NORM, .layer = i},
                      mlp = {.id = WEIGHT_MLP_POST_NORM, .layer = i};
    if (qwen3_bind_attention(m, l, i, e) || qwen3_bind_mlp(m, l, i, e) ||
        weights_vector(w, &l->attn_post_norm, d, attn, e) ||
        weights_vector(w, &l->mlp_post_norm, d, mlp, e))
        return -1;
    l->mlp.glu = m->k->geglu;
    return 0;
}

static const struct names *const schemes[] = {&names_gemma, &names_gguf, NULL};

/* ---- the layer ------------------------------------------------------------
 */

/* Add norm(w(in)) to the residual stream. Ends with a barrier; at one before
 * it, the caller's w->ahead applies. */
static void add_product(struct worker *w, const struct matrix *a,
                        const float *bias, const struct input *in, size_t n,
                        const float *norm)
{
    size_t ld = scratch_ld(w->p->m->config.d_model);
    struct product p = {a, bias, w->p->s->proj, ld, false};
    pass_multiply_all(w, &p, 1, in, n);
    pass_barrier(w, PART_PROJECTIONS);
    pass_add_normalised(w, norm, n);
}

static void layer(struct worker *w, size_t i, size_t n)
{
    const struct pass *p = w->p;
    const struct layer *l = &p->m->layers[i];
    const struct mlp *mlp = &l->mlp;
    const struct matrix *const gated[] = {&mlp->gate_proj, &mlp->up_proj};
    struct input in = pass_attention(w, i, l->input_norm, n);
    if (w->stopped || n == 0)
        return;
    pass_ahead_gated(w, mlp, n);
    add_product(w, &l->attn.o_proj, l->attn.o_bias, &in, n, l->attn_post_norm);
    in = pass_normalise(w, p->s->x, n, l->post_norm,
                        pass_act_types(p, gated, 2, n));
    in = pass_gated(w, mlp, &in, n);
    pass_ahead_layer(w, i + 1);
    add_product(w, &mlp->down_proj, NULL, &in, n, l->mlp_post_norm);
}

const struct arch arch_gemma3 = {.model_type = "gemma3_text",
                                 .wrapped = "gemma3",
                                 .gguf = "gemma3",
                                 .gguf_pattern = 6,
                                 .fixed = fixed,
                                 .names = schemes,
                                 .gguf_names = &names_gguf,
                                 .gguf_query_scalar = gguf_scalar,
                                 .read_config = read_config,
                                 .bind_layer = bind_layer,
                                 .layer = layer,
                                 .ahead = qwen3_ahead,
                                 .layer_cost = qwen3_layer_cost};
