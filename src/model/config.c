#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/json.h"
#include "model/section.h"

/* Larger than any real model, small enough that products of two fit size_t
 * and that a hostile file cannot ask for absurd tables. */
enum { MAX_DIM = 1 << 24, MAX_LAYERS = 1 << 14, MAX_VOCAB = 1 << 28 };

/* Still a normal float32. A row of zeros has no norm without it. */
#define MIN_EPS 1e-30

int config_add_stop(struct config *c, int32_t id)
{
    for (size_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] == id)
            return 0;
    if (c->n_stop_ids == CONFIG_MAX_STOP_IDS)
        return -1;
    c->stop_ids[c->n_stop_ids++] = id;
    return 0;
}

static int add_stop_value(struct config *c, const struct section *s,
                          const struct json_value *v, struct qwick_err *e)
{
    int64_t id;
    if (json_int(v, 0, INT32_MAX, &id))
        return section_bad(s, "eos_token_id", "a token id or a list of them",
                           e);
    if (config_add_stop(c, (int32_t)id))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: eos_token_id: more than %d stop ids", s->path,
                       CONFIG_MAX_STOP_IDS);
    return 0;
}

static int read_stop_ids(struct config *c, const struct section *s,
                         struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "eos_token_id");
    if (section_absent(s, "eos_token_id"))
        return 0;
    if (v->type != JSON_ARRAY)
        return add_stop_value(c, s, v, e);
    for (size_t i = 0; i < v->len; i++)
        if (add_stop_value(c, s, &v->items[i], e))
            return -1;
    return 0;
}

/* 0.1 * mscale * ln(factor) + 1 (Peng et al. 2023, as in transformers). */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static int read_yarn(struct config *c, const struct section *s,
                     struct qwick_err *e)
{
    double mscale, mscale_all;
    if (section_double(s, "factor", 1, 1e6, &c->rope_factor, e) ||
        section_opt_double(s, "beta_fast", 32, 0, 1e9, &c->rope_beta_fast, e) ||
        section_opt_double(s, "beta_slow", 1, 0, 1e9, &c->rope_beta_slow, e) ||
        section_opt_bool(s, "truncate", true, &c->rope_truncate, e) ||
        section_opt_double(s, "mscale", 0, 0, 1e6, &mscale, e) ||
        section_opt_double(s, "mscale_all_dim", 0, 0, 1e6, &mscale_all, e))
        return -1;
    c->rope_original = c->n_ctx_max;
    if (!section_absent(s, "original_max_position_embeddings") &&
        section_size(s, "original_max_position_embeddings", INT32_MAX,
                     &c->rope_original, e))
        return -1;
    double f = yarn_mscale(c->rope_factor, 1);
    if (mscale != 0 && mscale_all != 0)
        f = yarn_mscale(c->rope_factor, mscale) /
            yarn_mscale(c->rope_factor, mscale_all);
    return section_opt_double(s, "attention_factor", f, 1e-6, 1e6,
                              &c->rope_attention, e);
}

/* rope_type, or type in older files. */
static int read_rope_type(struct config *c, const struct section *s,
                          struct qwick_err *e)
{
    const char *key = section_absent(s, "rope_type") ? "type" : "rope_type";
    const struct json_value *v = json_get(s->v, key);
    c->rope_attention = 1;
    if (json_equals(v, "default")) {
        c->rope = ROPE_DEFAULT;
        return 0;
    }
    if (json_equals(v, "linear")) {
        c->rope = ROPE_LINEAR;
        return section_double(s, "factor", 1, 1e6, &c->rope_factor, e);
    }
    if (json_equals(v, "yarn")) {
        c->rope = ROPE_YARN;
        return read_yarn(c, s, e);
    }
    return section_bad(s, key, "default, linear or yarn (what is supported)",
                       e);
}

/* rope_theta: wherever it stands, and the same everywhere. */
static int read_theta(struct config *c, const struct section *const *places,
                      size_t n, struct qwick_err *e)
{
    const struct section *from = NULL;
    for (size_t i = 0; i < n; i++) {
        double theta;
        if (section_absent(places[i], "rope_theta"))
            continue;
        if (section_double(places[i], "rope_theta", 1, 1e12, &theta, e))
            return -1;
        if (from && theta != c->rope_theta)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %srope_theta: is %g, but %srope_theta is %g",
                           from->path, from->in, c->rope_theta, places[i]->in,
                           theta);
        from = places[i];
        c->rope_theta = theta;
    }
    return from ? 0 : section_bad(places[0], "rope_theta", "a number", e);
}

static bool same_rope(const struct config *a, const struct config *b)
{
    return a->rope == b->rope && a->rope_factor == b->rope_factor &&
           a->rope_beta_fast == b->rope_beta_fast &&
           a->rope_beta_slow == b->rope_beta_slow &&
           a->rope_attention == b->rope_attention &&
           a->rope_original == b->rope_original &&
           a->rope_truncate == b->rope_truncate;
}

static int read_rope(struct config *c, const struct section *s,
                     struct qwick_err *e)
{
    struct section v5 = {json_get(s->v, "rope_parameters"), s->path,
                         "rope_parameters."};
    struct section v4 = {json_get(s->v, "rope_scaling"), s->path,
                         "rope_scaling."};
    bool has5 = !section_absent(s, "rope_parameters");
    bool has4 = !section_absent(s, "rope_scaling");
    if (has5 && v5.v->type != JSON_OBJECT)
        return section_bad(s, "rope_parameters", "an object", e);
    if (has4 && v4.v->type != JSON_OBJECT)
        return section_bad(s, "rope_scaling", "an object or null", e);
    const struct section *const places[] = {s, &v5, &v4};
    if (read_theta(c, places, 3, e))
        return -1;
    c->rope = ROPE_DEFAULT;
    c->rope_attention = 1;
    bool typed5 = has5 && !(section_absent(&v5, "rope_type") &&
                            section_absent(&v5, "type"));
    if (typed5 && read_rope_type(c, &v5, e))
        return -1;
    if (!has4)
        return 0;
    /* Readers differ in which of the two wins, so they have to agree. */
    struct config other = *c;
    if (read_rope_type(&other, &v4, e))
        return -1;
    if (typed5 && !same_rope(c, &other))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: rope_scaling: asks for another rope than "
                       "rope_parameters",
                       s->path);
    *c = other;
    return 0;
}

/* Which layers attend through a window (Qwen3Config: layer_types, else the
 * layers from max_window_layers on). */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    bool use;
    c->layer_slides = calloc(c->n_layers, sizeof *c->layer_slides);
    if (!c->layer_slides)
        return err_oom(e, c->n_layers);
    if (section_opt_bool(s, "use_sliding_window", false, &use, e))
        return -1;
    if (use && !section_absent(s, "sliding_window") &&
        section_size(s, "sliding_window", INT32_MAX, &c->sliding_window, e))
        return -1;
    const struct json_value *types = json_get(s->v, "layer_types");
    if (!section_absent(s, "layer_types")) {
        if (types->type != JSON_ARRAY || types->len != c->n_layers)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: layer_types: must be a list of %zu strings "
                           "(num_hidden_layers), has %zu",
                           s->path, c->n_layers,
                           types->type == JSON_ARRAY ? types->len : 0);
        for (size_t i = 0; i < c->n_layers; i++) {
            const struct json_value *t = &types->items[i];
            c->layer_slides[i] = json_equals(t, "sliding_attention");
            if (!c->layer_slides[i] && !json_equals(t, "full_attention")) {
                char got[64];
                section_describe(t, got, sizeof got);
                return err_set(e, QWICK_ERR_MODEL,
                               "%s: layer_types[%zu]: %s is not supported",
                               s->path, i, got);
            }
            if (c->layer_slides[i] && !c->sliding_window)
                return err_set(e, QWICK_ERR_MODEL,
                               "%s: layer_types[%zu]: sliding_attention, but "
                               "no sliding_window is in use",
                               s->path, i);
        }
        return 0;
    }
    if (c->sliding_window) {
        int64_t first;
        if (json_int(json_get(s->v, "max_window_layers"), 0, INT32_MAX, &first))
            return section_bad(s, "max_window_layers", "an integer from 0", e);
        for (size_t i = 0; i < c->n_layers; i++)
            c->layer_slides[i] = i >= (size_t)first;
    }
    return 0;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    const struct json_value *type = json_get(s->v, "model_type");
    if (!json_equals(type, "qwen3"))
        return section_bad(s, "model_type", "\"qwen3\" (what is supported)", e);
    snprintf(c->model_type, sizeof c->model_type, "qwen3");
    if (quant_read(&c->quant, s, e))
        return -1;
    if (!section_absent(s, "hidden_act") &&
        !json_equals(json_get(s->v, "hidden_act"), "silu"))
        return section_bad(s, "hidden_act", "\"silu\" (what is supported)", e);
    if (section_size(s, "vocab_size", MAX_VOCAB, &c->vocab_size, e) ||
        section_size(s, "hidden_size", MAX_DIM, &c->d_model, e) ||
        section_size(s, "intermediate_size", MAX_DIM, &c->d_ff, e) ||
        section_size(s, "num_hidden_layers", MAX_LAYERS, &c->n_layers, e) ||
        section_size(s, "num_attention_heads", MAX_DIM, &c->n_heads, e) ||
        section_size(s, "num_key_value_heads", MAX_DIM, &c->n_kv_heads, e) ||
        section_size(s, "head_dim", MAX_DIM, &c->head_dim, e) ||
        section_size(s, "max_position_embeddings", INT32_MAX, &c->n_ctx_max,
                     e) ||
        section_double(s, "rms_norm_eps", MIN_EPS, 1, &c->rms_eps, e) ||
        section_bool(s, "tie_word_embeddings", &c->tied_head, e) ||
        section_opt_bool(s, "attention_bias", false, &c->attention_bias, e))
        return -1;
    if (c->n_heads % c->n_kv_heads)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: num_attention_heads: %zu is no multiple of "
                       "num_key_value_heads, %zu",
                       s->path, c->n_heads, c->n_kv_heads);
    if (c->head_dim % 2)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: head_dim: must be even for rotary embedding, is "
                       "%zu",
                       s->path, c->head_dim);
    if (c->n_heads * c->head_dim > MAX_DIM)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: num_attention_heads times head_dim: %zu times %zu "
                       "is over %d",
                       s->path, c->n_heads, c->head_dim, MAX_DIM);
    if (read_rope(c, s, e) || read_windows(c, s, e))
        return -1;
    return read_stop_ids(c, s, e);
}

static int read_generation(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    if (read_stop_ids(c, s, e) ||
        section_opt_bool(s, "do_sample", false, &c->do_sample, e) ||
        section_opt_double(s, "temperature", 1, 0, 1e6, &c->temperature, e) ||
        section_opt_double(s, "top_p", 1, 0, 1, &c->top_p, e) ||
        section_opt_double(s, "min_p", 0, 0, 1, &c->min_p, e) ||
        section_opt_double(s, "repetition_penalty", 1, 1e-6, 1e6,
                           &c->repetition_penalty, e))
        return -1;
    /* transformers: 50 when not given, none when null */
    c->top_k = json_get(s->v, "top_k") ? 0 : 50;
    if (!section_absent(s, "top_k")) {
        int64_t k;
        if (json_int(json_get(s->v, "top_k"), 0, INT32_MAX, &k))
            return section_bad(s, "top_k", "an integer from 0", e);
        c->top_k = (size_t)k;
    }
    return 0;
}

static int load_file(struct config *c, const struct checkpoint *ck,
                     const char *name, bool required,
                     int (*read)(struct config *, const struct section *,
                                 struct qwick_err *),
                     struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[512];
    checkpoint_path(ck, name, path, sizeof path);
    if (checkpoint_map_small(ck, name, &map, &found, e))
        return -1;
    if (!found)
        return required ? err_set(e, QWICK_ERR_MODEL,
                                  "%s: no such file: not a checkpoint", path)
                        : 0;
    struct json_doc *doc;
    int rc = json_parse(&doc, path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    if (!rc) {
        struct section s = {json_root(doc), path, ""};
        rc = s.v->type == JSON_OBJECT
                 ? read(c, &s, e)
                 : err_set(e, QWICK_ERR_MODEL, "%s: must be a JSON object",
                           path);
        json_free(doc);
    }
    map_close(&map);
    return rc;
}

int config_load(struct config *c, const struct checkpoint *ck,
                struct qwick_err *e)
{
    *c = (struct config){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    if (load_file(c, ck, "config.json", true, read_config, e) ||
        load_file(c, ck, "generation_config.json", false, read_generation, e)) {
        config_free(c);
        return -1;
    }
    return 0;
}

void config_free(struct config *c)
{
    free(c->layer_slides);
    c->layer_slides = NULL;
    quant_free(&c->quant);
}

/* The dimension that turns `turns` times within the original context. */
static double yarn_dim(const struct config *c, double turns)
{
    double two_pi = 6.283185307179586;
    return (double)c->head_dim *
           log((double)c->rope_original / (turns * two_pi)) /
           (2 * log(c->rope_theta));
}

void config_rope_frequencies(const struct config *c, float *inv_freq)
{
    size_t half = c->head_dim / 2;
    for (size_t i = 0; i < half; i++) {
        float exponent = (float)(2 * i) / (float)c->head_dim;
        inv_freq[i] = 1.0f / powf((float)c->rope_theta, exponent);
    }
    if (c->rope == ROPE_LINEAR)
        for (size_t i = 0; i < half; i++)
            inv_freq[i] /= (float)c->rope_factor;
    if (c->rope != ROPE_YARN)
        return;
    double low = yarn_dim(c, c->rope_beta_fast);
    double high = yarn_dim(c, c->rope_beta_slow);
    if (c->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)c->head_dim - 1);
    if (low == high)
        high += 0.001;
    for (size_t i = 0; i < half; i++) {
        float ramp = (float)fmin(fmax(((double)i - low) / (high - low), 0), 1);
        float slow = inv_freq[i] / (float)c->rope_factor;
        inv_freq[i] = slow * ramp + inv_freq[i] * (1.0f - ramp);
    }
}
