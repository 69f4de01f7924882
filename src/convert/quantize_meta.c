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
    const char *arch; /* keys begin with it */
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

static int check_yarn(const struct quantize_source *s,
                      const struct rope_config *r, struct qwick_err *e)
{
    if (r->type != ROPE_YARN)
        return 0;
    if (!r->truncate)
        return refuse(s, "rope_scaling.truncate", "false", e);
    /* readers disagree on the meaning of the key for it */
    if (fabs(r->attention - usual_attention(r)) > 1e-6)
        return refuse(s, "rope_scaling.attention_factor",
                      "another value than 0.1 ln(factor) + 1", e);
    return 0;
}

static int check_rope(const struct quantize_source *s, struct qwick_err *e)
{
    const struct config *c = &s->c;
    for (size_t i = 1; i < c->n_ropes; i++)
        if (c->ropes[i].type != ROPE_DEFAULT)
            return refuse(s, "rope_parameters",
                          "scaling in layers with a window", e);
    return check_yarn(s, &c->ropes[0], e);
}

/* Readers know the windows of Gemma only. */
static int check_windows(const struct quantize_source *s, struct qwick_err *e)
{
    const struct config *c = &s->c;
    for (size_t i = 0; i < c->n_layers && !c->arch->gguf_pattern; i++)
        if (c->layers[i].window != NO_WINDOW)
            return refuse(s, "sliding_window", "a window", e);
    return 0;
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

static int check_layers(const struct quantize_source *s, struct qwick_err *e)
{
    const struct config *c = &s->c;
    bool experts = c->layers[0].n_experts > 0;
    bool hybrid = names_recurrent(c->arch->gguf_names);
    for (size_t i = 0; i < c->n_layers; i++)
        if ((c->layers[i].n_experts > 0) != experts)
            return refuse(s, "mlp_only_layers",
                          "layers without experts beside layers with them", e);
    if (!experts && strcmp(c->arch->gguf, "qwen3moe") == 0)
        return refuse(s, "num_experts", "a mixture without experts", e);
    if (experts && !c->norm_topk_prob)
        return refuse(s, "norm_topk_prob", "false", e);
    if (hybrid && !c->delta.n_k_heads)
        return refuse(s, "layer_types", "a model without linear_attention", e);
    return check_windows(s, e);
}

float quantize_gguf_query_scale(const struct config *c, size_t i)
{
    double scalar = c->arch->gguf_query_scalar ? c->arch->gguf_query_scalar(c)
                                               : (double)c->head_dim;
    return c->layers[i].score_scale / (float)(1 / sqrt(scalar));
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

static void put_sizes(const struct writer *w, const struct config *c)
{
    const struct layer_config *l = &c->layers[0];
    put_size(w, ".block_count", c->n_layers);
    put_size(w, ".context_length", c->n_ctx_max);
    put_size(w, ".embedding_length", c->d_model);
    if (c->d_ff > 1) /* mixtures of experts may have no such field */
        put_size(w, ".feed_forward_length", c->d_ff);
    put_size(w, ".attention.head_count", c->n_heads);
    put_size(w, ".attention.head_count_kv", c->n_kv_heads);
    put_size(w, ".attention.key_length", c->head_dim);
    put_size(w, ".attention.value_length", c->head_dim);
    put_double(w, ".attention.layer_norm_rms_epsilon", c->rms_eps);
    if (!l->n_experts)
        return;
    put_size(w, ".expert_count", l->n_experts);
    put_size(w, ".expert_used_count", l->n_active);
    put_size(w, ".expert_feed_forward_length", l->d_ff);
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
    size_t n = 0, period, usual = c->arch->gguf_pattern;
    bool is_usual = true;
    char name[96];
    for (size_t i = 0; i < c->n_layers; i++) {
        bool window = c->layers[i].window != NO_WINDOW;
        n += window;
        is_usual = is_usual && window == ((i + 1) % usual != 0);
    }
    if (n == 0)
        return;
    put_size(w, ".attention.sliding_window", c->sliding_window);
    put_double(w, ".rope.freq_base_swa", c->ropes[1].theta);
    if (is_usual)
        return;
    if (find_period(c, &period)) {
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

static int check_sections(const struct quantize_source *s, struct qwick_err *e)
{
    const struct json_value *config = json_root(s->config);
    const struct json_value *text = json_get(config, "text_config");
    const struct json_value *list = json_get(
        json_get(text ? text : config, "rope_parameters"), "mrope_section");
    int64_t want[N_SECTIONS], v;
    char what[96];
    if (!s->c.delta.n_k_heads || !list || list->type == JSON_NULL)
        return 0;
    find_sections(s->c.ropes[0].n_rot, want);
    bool same = list->type == JSON_ARRAY && list->len == 3;
    for (size_t i = 0; same && i < list->len; i++)
        same = !json_int(&list->items[i], 0, INT32_MAX, &v) && v == want[i];
    if (same)
        return 0;
    snprintf(what, sizeof what, "other sections than [%d, %d, %d]",
             (int)want[0], (int)want[1], (int)want[2]);
    return refuse(s, "rope_parameters.mrope_section", what, e);
}

static void put_sections(const struct writer *w, size_t n_rot)
{
    int64_t v[N_SECTIONS];
    char key[96];
    find_sections(n_rot, v);
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
    const struct delta_config *d = &s->c.delta;
    put_size(w, ".rope.dimension_count", s->c.ropes[0].n_rot);
    if (strcmp(w->arch, "qwen3next") != 0) /* which has no positions in images */
        put_sections(w, s->c.ropes[0].n_rot);
    put_size(w, ".ssm.conv_kernel", d->conv);
    put_size(w, ".ssm.state_size", d->d_k);
    put_size(w, ".ssm.group_count", d->n_k_heads);
    put_size(w, ".ssm.time_step_rank", d->n_v_heads);
    put_size(w, ".ssm.inner_size", d->n_v_heads * d->d_v);
    put_layers(w, &s->c);
}

static void put_rope(const struct writer *w, const struct rope_config *r)
{
    char key[96];
    put_double(w, ".rope.freq_base", r->theta);
    if (r->type == ROPE_DEFAULT)
        return;
    put_text(w->o, full(w, ".rope.scaling.type", key), config_rope_name(r));
    put_double(w, ".rope.scaling.factor", r->factor);
    if (r->type != ROPE_YARN)
        return;
    put_size(w, ".rope.scaling.original_context_length", r->original);
    put_double(w, ".rope.scaling.yarn_beta_fast", r->beta_fast);
    put_double(w, ".rope.scaling.yarn_beta_slow", r->beta_slow);
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
    enum { POOLING_LAST = 3 };
    if (p->found)
        put_size(w, ".pooling_type", POOLING_LAST);
}

int quantize_gguf_meta(struct quantize_plan *p, const struct quantize_source *s,
                       const struct quantize_type *t, struct qwick_err *e)
{
    enum { QUANTIZATION_VERSION = 2 };
    const struct writer w = {&p->meta, s->c.arch->gguf};
    if (check_rope(s, e) || check_sections(s, e) || check_layers(s, e))
        return -1;
    put_text(&p->meta, "general.architecture", s->c.arch->gguf);
    put_name(&p->meta, s->ck);
    put_sizes(&w, &s->c);
    put_rope(&w, &s->c.ropes[0]);
    if (s->c.delta.n_k_heads)
        put_delta(&w, s);
    if (s->c.arch->gguf_pattern)
        put_windows(&w, &s->c);
    put_sampling(p, &s->c);
    gguf_put_u32(&p->meta, "general.quantization_version",
                 QUANTIZATION_VERSION);
    gguf_put_u32(&p->meta, "general.file_type", t->file_type);
    put_pooling(&w, &s->pooling);
    return 0;
}
