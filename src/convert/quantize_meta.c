/* The metadata of a GGUF file, from config.json and generation_config.json.
 * config_gguf.c reads it back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "model/arch.h"

enum { N_SECTIONS = 4 }; /* of rotary positions in images */

struct writer {
    struct gguf_out *o;
    const struct arch *to; /* the family as which GGUF has the source's */
    const char *arch;      /* its name, with which keys begin */
};

static const char *full(const struct writer *w, const char *key, char out[96])
{
    snprintf(out, 96, "%s%s", w->arch, key);
    return out;
}

/* Sizes have been checked against MAX_DIM and the like. */
static void put_size(const struct writer *w, const char *key, size_t v)
{
    char name[96];
    gguf_put_u32(w->o, full(w, key, name), (uint32_t)v);
}

static void put_double(const struct writer *w, const char *key, double v)
{
    char name[96];
    gguf_put_f32(w->o, full(w, key, name), v);
}

static void put_text(struct gguf_out *o, const char *key, const char *text)
{
    gguf_put_string(o, key, text, strlen(text));
}

/* ---- what GGUF cannot say -------------------------------------------------
 */

static int refuse(const struct quantize_source *s, const char *field,
                  const char *what, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: %s cannot be written to a GGUF file",
                   checkpoint_dir(s->ck), field, what);
}

/* transformers' attention_factor where the file names none. */
static double usual_attention(const struct rope_config *r)
{
    return 0.1 * log(r->factor) + 1;
}

/* Whether readers of the family's files know a key that only some families
 * have. */
static bool has_key(const struct arch *to, const char *key)
{
    for (size_t i = 0; to->gguf_keys && to->gguf_keys[i]; i++)
        if (strcmp(to->gguf_keys[i], key) == 0)
            return true;
    return false;
}

static const char temperature_key[] = ".attention.temperature_scale",
                  scale_key[] = ".attention.scale";

static int check_yarn(const struct quantize_source *s, const struct arch *to,
                      const struct rope_config *r, struct qwick_err *e)
{
    bool warm = has_key(to, temperature_key);
    if (r->type != ROPE_YARN)
        return 0;
    if (r->truncate == to->gguf_untruncated)
        return refuse(s, "rope_scaling.truncate", r->truncate ? "true" : "false",
                      e);
    if (r->q_beta != 0 && !warm)
        return refuse(s, "rope_scaling.llama_4_scaling_beta",
                      "another value than 0", e);
    /* readers disagree on the meaning of the key for it */
    if (fabs(r->attention - (warm ? 1 : usual_attention(r))) > 1e-6)
        return refuse(s, "rope_scaling.attention_factor",
                      warm ? "another value than 1"
                           : "another value than 0.1 ln(factor) + 1",
                      e);
    return 0;
}

/* Scalings that are tensors of divisors. */
static int check_factors(const struct quantize_source *s, const struct arch *to,
                         const struct rope_config *r, struct qwick_err *e)
{
    const enum weight_id id =
        r->type == ROPE_LONGROPE ? WEIGHT_ROPE_LONG : WEIGHT_ROPE_FACTORS;
    if (r->type != ROPE_LLAMA3 && r->type != ROPE_LONGROPE &&
        r->type != ROPE_PROPORTIONAL)
        return 0;
    return to->gguf_names->of[id][0] && r->n_rot / 2 <= CONFIG_MAX_FACTORS
               ? 0
               : refuse(s, "rope_scaling.rope_type", config_rope_name(r), e);
}

static int check_rope(const struct quantize_source *s, const struct arch *to,
                      struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    for (size_t i = 1; i < c->n_ropes; i++)
        if (c->ropes[i].type != ROPE_DEFAULT)
            return refuse(s, "rope_parameters",
                          "scaling in layers with a window", e);
    for (size_t i = 0; i < c->n_layers; i++) {
        bool rotates = c->layers[i].rope != NO_ROPE;
        if (!c->layers[i].recurrent &&
            rotates != (!to->gguf_rotates || to->gguf_rotates(c, i)))
            return refuse(s, "no_rope_layers",
                          "other layers than those of the released model", e);
    }
    return check_yarn(s, to, &c->ropes[0], e) ||
                   check_factors(s, to, &c->ropes[0], e)
               ? -1
               : 0;
}

static size_t count_windows(const struct config *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_layers; i++)
        n += c->layers[i].window != NO_WINDOW;
    return n;
}

/* Readers know the windows of some families only, and take windows and caps of
 * others for granted. */
static int check_windows(const struct quantize_source *s, const struct arch *to,
                         struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    if (!to->gguf_pattern && !to->gguf_layered && count_windows(c))
        return refuse(s, "sliding_window", "a window", e);
    if (!to->gguf_implies)
        return 0;
    if (!count_windows(c))
        return refuse(s, "layer_types", "a model without sliding_attention", e);
    if (c->attn_cap == 0)
        return refuse(s, "attn_logit_softcapping", "null", e);
    return c->logit_cap == 0 ? refuse(s, "final_logit_softcapping", "null", e)
                             : 0;
}

/* A norm can take the scale of scores (quantize_gguf_query_scale). */
static int check_scores(const struct quantize_source *s, const struct arch *to,
                        struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    return to->blocks.qk_norm != QK_NORM_NONE || has_key(to, scale_key) ||
                   quantize_gguf_query_scale(c, 0) == 1
               ? 0
               : refuse(s, "query_pre_attn_scalar",
                        "another value than that of the released models", e);
}

/* Return the period n if each n-th layer, and no other one, attends without a
 * state. Returns 0 if the layers have no period. */
static size_t full_interval(const struct config *c)
{
    size_t period = 1;
    while (period < c->n_layers && c->layers[period - 1].recurrent)
        period++;
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].recurrent != ((i + 1) % period != 0))
            return 0;
    return period;
}

static int check_layers(const struct quantize_source *s, const struct arch *to,
                        struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    bool experts = c->layers[0].n_experts > 0;
    bool hybrid = names_recurrent(to->gguf_names);
    for (size_t i = 0; i < c->n_layers; i++) {
        if ((c->layers[i].n_experts > 0) != experts)
            return refuse(s, "mlp_only_layers",
                          "layers without experts beside layers with them", e);
        if (!to->gguf_layered && (c->layers[i].n_kv_heads != c->n_kv_heads ||
                                  c->layers[i].head_dim != c->head_dim))
            return refuse(s, "head_dim", "heads that differ between layers", e);
    }
    if (!experts && strcmp(to->gguf, "qwen3moe") == 0)
        return refuse(s, "num_experts", "a mixture without experts", e);
    if (experts && c->norm_topk_prob == to->gguf_plain_topk)
        return refuse(s, "norm_topk_prob", c->norm_topk_prob ? "true" : "false",
                      e);
    if (hybrid && !delta_channels(&c->delta))
        return refuse(s, "layer_types", "a model without recurrent layers", e);
    return check_windows(s, to, e) || check_scores(s, to, e) ? -1 : 0;
}

float quantize_gguf_query_scale(const struct config *c, size_t i)
{
    double scalar = c->arch->gguf_query_scalar ? c->arch->gguf_query_scalar(c)
                                               : (double)c->head_dim;
    float ratio = c->layers[i].score_scale / (float)(1 / sqrt(scalar));
    return fabsf(ratio - 1) < 1e-6f ? 1 : ratio; /* by rounding only */
}

/* ---- entries --------------------------------------------------------------
 */

/* The last part of the name that the user gave. */
static void put_name(struct gguf_out *o, const struct checkpoint *ck)
{
    const char *name = checkpoint_name(ck), *end = name + strlen(name);
    while (end > name && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > name && begin[-1] != '/')
        begin--;
    gguf_put_string(o, "general.name", begin, (size_t)(end - begin));
}

/* A size of each layer, its place in struct layer_config given: one number, or
 * an array where layers differ. */
static void put_each(const struct writer *w, const struct config *c,
                     const char *key, size_t offset)
{
    size_t v[2] = {0, 0};
    char name[96];
    for (size_t i = 0; i < c->n_layers; i++) {
        memcpy(&v[i > 0], (const char *)&c->layers[i] + offset, sizeof *v);
        if (i == 0 || v[1] == v[0])
            continue;
        gguf_put_array(w->o, full(w, key, name), GGUF_I32, c->n_layers);
        for (size_t j = 0; j < c->n_layers; j++) {
            memcpy(v, (const char *)&c->layers[j] + offset, sizeof *v);
            gguf_put_element_i32(w->o, (int32_t)*v);
        }
        return;
    }
    put_size(w, key, v[0]);
}

/* The sizes of a family whose layers differ: of those without a window, and of
 * the others. */
static void put_layer_sizes(const struct writer *w, const struct config *c)
{
    size_t n_shared = 0;
    bool windows = false;
    for (size_t i = 0; i < c->n_layers; i++) {
        n_shared += c->layers[i].kv_back > 0;
        windows = windows || c->layers[i].window != NO_WINDOW;
    }
    put_each(w, c, ".feed_forward_length", offsetof(struct layer_config, d_ff));
    put_each(w, c, ".attention.head_count_kv",
             offsetof(struct layer_config, n_kv_heads));
    put_size(w, ".attention.shared_kv_layers", n_shared);
    put_size(w, ".embedding_length_per_layer_input", c->ple_dim);
    for (size_t i = 0; i < (windows ? 2 : 1); i++) {
        static const char *const keys[][2] = {
            {".attention.key_length", ".attention.key_length_swa"},
            {".attention.value_length", ".attention.value_length_swa"},
            {".rope.dimension_count", ".rope.dimension_count_swa"}};
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++)
            put_size(w, keys[j][i], c->ropes[i].n_rot);
    }
}

/* The number of KV heads; layers with a short convolution have none. */
static void put_kv_heads(const struct writer *w, const struct config *c)
{
    static const char key[] = ".attention.head_count_kv";
    char name[96];
    if (!c->delta.n_short) {
        put_size(w, key, c->n_kv_heads);
        return;
    }
    put_size(w, ".shortconv.l_cache", c->delta.conv);
    gguf_put_array(w->o, full(w, key, name), GGUF_I32, c->n_layers);
    for (size_t i = 0; i < c->n_layers; i++)
        gguf_put_element_i32(
            w->o, c->layers[i].recurrent ? 0 : (int32_t)c->n_kv_heads);
}

static void put_sizes(const struct writer *w, const struct config *c)
{
    const struct layer_config *l = &c->layers[0];
    put_size(w, ".block_count", c->n_layers);
    put_size(w, ".context_length", c->n_ctx_max);
    put_size(w, ".embedding_length", c->d_model);
    put_size(w, ".attention.head_count", c->n_heads);
    if (w->to->gguf_layered) {
        put_layer_sizes(w, c);
    } else {
        if (c->d_ff > 1) /* mixtures of experts may have no such field */
            put_size(w, ".feed_forward_length", c->d_ff);
        put_kv_heads(w, c);
        put_size(w, ".attention.key_length", c->head_dim);
        put_size(w, ".attention.value_length", c->head_dim);
    }
    put_double(w, ".attention.layer_norm_rms_epsilon", c->rms_eps);
    if (!l->n_experts)
        return;
    put_size(w, ".expert_count", l->n_experts);
    put_size(w, ".expert_used_count", l->n_active);
    put_size(w, ".expert_feed_forward_length", l->expert_ff);
    if (l->shared_ff)
        put_size(w, ".expert_shared_feed_forward_length", l->shared_ff);
}

/* Find the period of the layers without a window, as config_gguf.c has it; 0 if
 * each layer has a window. Returns false if the layers have no period. */
static bool find_period(const struct config *c, size_t *period)
{
    bool any = false;
    for (size_t i = 0; i < c->n_layers && !any; i++) {
        *period = i + 1;
        any = c->layers[i].window == NO_WINDOW;
    }
    if (!any)
        *period = 0;
    for (size_t i = 0; i < c->n_layers; i++) {
        bool window = *period == 0 || (i + 1) % *period != 0;
        if ((c->layers[i].window != NO_WINDOW) != window)
            return false;
    }
    return true;
}

/* Readers take gguf_pattern as the period unless the file says otherwise. */
static void put_windows(const struct writer *w, const struct config *c)
{
    static const char key[] = ".attention.sliding_window_pattern";
    size_t n = count_windows(c), period, usual = w->to->gguf_pattern;
    bool is_usual = true;
    char name[96];
    for (size_t i = 0; i < c->n_layers; i++)
        is_usual = is_usual && usual &&
                   (c->layers[i].window != NO_WINDOW) == ((i + 1) % usual != 0);
    /* llama.cpp needs the key where all layers may have windows; 0: none */
    if (n == 0 && usual == SIZE_MAX)
        put_size(w, ".attention.sliding_window", 0);
    if (n == 0)
        return;
    put_size(w, ".attention.sliding_window", c->sliding_window);
    if (c->n_ropes > 1)
        put_double(w, ".rope.freq_base_swa", c->ropes[1].theta);
    if (is_usual)
        return;
    /* readers of a family without a usual period want flags */
    if (!w->to->gguf_layered && find_period(c, &period)) {
        put_size(w, key, period);
        return;
    }
    gguf_put_array(w->o, full(w, key, name), GGUF_BOOL, c->n_layers);
    for (size_t i = 0; i < c->n_layers; i++)
        gguf_put_element_bool(w->o, c->layers[i].window != NO_WINDOW);
}

/* Find the rotary sections of positions in images: the number of frequencies i
 * with i % 3 = 0, 1 and 2, as in released models. They matter for text, too:
 * llama.cpp rotates by position 0 where sections do not cover a frequency. */
static void find_sections(size_t n_rot, int64_t v[N_SECTIONS])
{
    for (size_t i = 0; i < N_SECTIONS; i++)
        v[i] = i < 3 ? (int64_t)((n_rot / 2 + 2 - i) / 3) : 0;
}

/* The sections in config.json; NULL: none. */
static const struct json_value *sections_of(const struct quantize_source *s)
{
    static const char *const objects[] = {"rope_parameters", "rope_scaling"};
    const struct json_value *config = json_root(s->config);
    const struct json_value *text = json_get(config, "text_config");
    for (int i = 0; i < 2; i++) {
        const struct json_value *v = json_get(
            json_get(text ? text : config, objects[i]), "mrope_section");
        if (v && v->type != JSON_NULL)
            return v;
    }
    return NULL;
}

static int check_sections(const struct quantize_source *s, struct qwick_err *e)
{
    const struct json_value *list = sections_of(s);
    int64_t want[N_SECTIONS], v;
    char what[96];
    if (!s->m.config.delta.n_k_heads || !list)
        return 0;
    find_sections(s->m.config.ropes[0].n_rot, want);
    bool same = list->type == JSON_ARRAY && list->len == 3;
    for (size_t i = 0; same && i < list->len; i++)
        same = !json_int(&list->items[i], 0, INT32_MAX, &v) && v == want[i];
    if (same)
        return 0;
    snprintf(what, sizeof what, "other sections than [%d, %d, %d]",
             (int)want[0], (int)want[1], (int)want[2]);
    return refuse(s, "rope_parameters.mrope_section", what, e);
}

/* Those of config.json, which check_sections has compared, or the usual ones.
 */
static void put_sections(const struct writer *w,
                         const struct quantize_source *s)
{
    const struct json_value *list = sections_of(s);
    int64_t v[N_SECTIONS];
    char key[96];
    find_sections(s->m.config.ropes[0].n_rot, v);
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < N_SECTIONS; i++)
        if (i >= list->len || json_int(&list->items[i], 0, INT32_MAX, &v[i]))
            v[i] = 0;
    gguf_put_array(w->o, full(w, ".rope.dimension_sections", key), GGUF_I32,
                   N_SECTIONS);
    for (size_t i = 0; i < N_SECTIONS; i++)
        gguf_put_element_i32(w->o, (int32_t)v[i]);
}

/* Which layers attend: each n-th one, or a flag for each that does not. */
static void put_layers(const struct writer *w, const struct config *c)
{
    size_t interval = full_interval(c);
    char key[96];
    if (interval) {
        put_size(w, ".full_attention_interval", interval);
        return;
    }
    gguf_put_array(w->o, full(w, ".attention.recurrent_layers", key), GGUF_BOOL,
                   c->n_layers);
    for (size_t i = 0; i < c->n_layers; i++)
        gguf_put_element_bool(w->o, c->layers[i].recurrent);
}

static void put_delta(const struct writer *w, const struct quantize_source *s)
{
    const struct delta_config *d = &s->m.config.delta;
    put_size(w, ".ssm.conv_kernel", d->conv);
    put_size(w, ".ssm.state_size", d->d_k);
    put_size(w, ".ssm.group_count", d->n_k_heads);
    put_size(w, ".ssm.time_step_rank", d->n_v_heads);
    put_size(w, ".ssm.inner_size", d->n_v_heads * d->d_v);
    put_layers(w, &s->m.config);
}

static void put_yarn(const struct writer *w, const struct rope_config *r)
{
    put_double(w, ".rope.scaling.yarn_beta_fast", r->beta_fast);
    put_double(w, ".rope.scaling.yarn_beta_slow", r->beta_slow);
    if (!has_key(w->to, temperature_key))
        return;
    /* mscale_all_dim, with which cosines and sines have no factor */
    put_double(w, ".rope.scaling.yarn_log_multiplier", 1);
    put_double(w, temperature_key, r->q_beta);
}

/* llama3 has no keys but a tensor. longrope has two tensors. */
static void put_scaling(const struct writer *w, const struct rope_config *r)
{
    char key[96];
    if (r->original && r->type != ROPE_LLAMA3)
        put_size(w, ".rope.scaling.original_context_length", r->original);
    if (r->type == ROPE_LONGROPE)
        put_double(w, ".rope.scaling.attn_factor", r->attention);
    if (r->type != ROPE_LINEAR && r->type != ROPE_YARN)
        return;
    put_text(w->o, full(w, ".rope.scaling.type", key), config_rope_name(r));
    put_double(w, ".rope.scaling.factor", r->factor);
    if (r->type == ROPE_YARN)
        put_yarn(w, r);
}

static void put_rope(const struct writer *w, const struct quantize_source *s)
{
    const struct rope_config *r = &s->m.config.ropes[0];
    put_double(w, ".rope.freq_base", r->theta);
    if (w->to->partial_rotary || w->to->gguf_interleaved)
        put_size(w, ".rope.dimension_count", r->n_rot);
    /* Qwen3-Next has no positions in images */
    bool hybrid = s->m.config.delta.n_k_heads > 0;
    if (sections_of(s) || (hybrid && strcmp(w->arch, "qwen3next") != 0))
        put_sections(w, s);
    put_scaling(w, r);
}

/* The scales that some families have. */
static void put_scales(const struct writer *w, const struct config *c)
{
    const struct {
        const char *key;
        double value;
    } scales[] = {
        {scale_key, c->layers[0].score_scale},
        {".embedding_scale", c->embed_scale},
        {".residual_scale", c->residual_scale},
        {".logit_scale", 1 / (double)c->logit_scale},
    };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (has_key(w->to, scales[i].key))
            put_double(w, scales[i].key, scales[i].value);
    if (c->attn_cap > 0)
        put_double(w, ".attn_logit_softcapping", c->attn_cap);
    if (c->logit_cap > 0 || w->to->gguf_logit_cap > 0)
        put_double(w, ".final_logit_softcapping", c->logit_cap);
}

static void put_sampling(struct quantize_plan *p, const struct config *c)
{
    static const char file[] = "generation_config.json";
    struct gguf_out *o = &p->meta;
    if (c->n_suppress || c->n_begin || c->min_new_tokens || c->min_length)
        quantize_warn(p, file,
                      "suppressed tokens and minimum lengths are left out: a "
                      "GGUF file has no keys for them");
    if (*c->unsupported || *c->unsupported_draw)
        quantize_warn(p, file,
                      *c->unsupported ? c->unsupported : c->unsupported_draw);
    if (c->do_sample) {
        gguf_put_f32(o, "general.sampling.temp", c->temperature);
        gguf_put_i32(o, "general.sampling.top_k", (int32_t)c->top_k);
        gguf_put_f32(o, "general.sampling.top_p", c->top_p);
        gguf_put_f32(o, "general.sampling.min_p", c->min_p);
    }
    if (c->do_sample || c->repetition_penalty != 1)
        gguf_put_f32(o, "general.sampling.penalty_repeat",
                     c->repetition_penalty);
}

/* sentence-transformers' list of modules says that a checkpoint embeds. Qwen's
 * take the last token's state. */
static void put_pooling(const struct writer *w, const struct pooling *p)
{
    if (p->found)
        put_size(w, ".pooling_type", POOLING_GGUF_LAST);
}

int quantize_gguf_meta(struct quantize_plan *p, const struct quantize_source *s,
                       struct qwick_err *e)
{
    const struct arch *to = arch_in_gguf(s->m.config.arch);
    const struct writer w = {&p->meta, to, to->gguf};
    if (check_rope(s, to, e) || check_sections(s, e) || check_layers(s, to, e))
        return -1;
    put_text(&p->meta, "general.architecture", to->gguf);
    put_name(&p->meta, s->ck);
    put_sizes(&w, &s->m.config);
    put_rope(&w, s);
    put_scales(&w, &s->m.config);
    if (s->m.config.delta.n_k_heads)
        put_delta(&w, s);
    if (to->gguf_pattern || to->gguf_layered)
        put_windows(&w, &s->m.config);
    put_sampling(p, &s->m.config);
    put_pooling(&w, &s->pooling);
    return 0;
}
