/* Rotary embedding: its fields in config.json, and its frequencies. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/json.h"
#include "model/config.h"
#include "model/section.h"

const char *config_rope_name(const struct rope_config *r)
{
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default",   [ROPE_LINEAR] = "linear",
        [ROPE_YARN] = "yarn",         [ROPE_LLAMA3] = "llama3",
        [ROPE_LONGROPE] = "longrope", [ROPE_PROPORTIONAL] = "proportional"};
    return names[r->type];
}

/* 0.1 * mscale * ln(factor) + 1 (Peng et al. 2023, as in transformers). */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* .original_max_position_embeddings, of the object or beside it; `dflt` if it
 * is in neither, 0: an error. */
static int read_original(struct rope_config *r, const struct section *s,
                         size_t dflt, struct qwick_err *e)
{
    static const char key[] = "original_max_position_embeddings";
    r->original = dflt;
    return section_absent(s, key) && dflt
               ? 0
               : section_size(s, key, INT32_MAX, &r->original, e);
}

static int read_yarn(const struct config *c, struct rope_config *r,
                     const struct section *s, struct qwick_err *e)
{
    double mscale, mscale_all;
    if (section_double(s, "factor", 1, 1e6, &r->factor, e) ||
        section_opt_double(s, "beta_fast", 32, 0, 1e9, &r->beta_fast, e) ||
        section_opt_double(s, "beta_slow", 1, 0, 1e9, &r->beta_slow, e) ||
        section_opt_bool(s, "truncate", true, &r->truncate, e) ||
        section_opt_double(s, "mscale", 0, 0, 1e6, &mscale, e) ||
        section_opt_double(s, "mscale_all_dim", 0, 0, 1e6, &mscale_all, e) ||
        section_opt_double(s, "llama_4_scaling_beta", 0, 0, 1e6, &r->q_beta,
                           e) ||
        read_original(r, s, c->n_ctx_max, e))
        return -1;
    double f = yarn_mscale(r->factor, 1);
    if (mscale != 0 && mscale_all != 0)
        f = yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all);
    return section_opt_double(s, "attention_factor", f, 1e-6, 1e6,
                              &r->attention, e);
}

static int read_default(const struct config *c, struct rope_config *r,
                        const struct section *s, struct qwick_err *e)
{
    (void)c, (void)r, (void)s, (void)e;
    return 0;
}

static int read_linear(const struct config *c, struct rope_config *r,
                       const struct section *s, struct qwick_err *e)
{
    (void)c;
    return section_double(s, "factor", 1, 1e6, &r->factor, e);
}

static int read_llama3(const struct config *c, struct rope_config *r,
                       const struct section *s, struct qwick_err *e)
{
    (void)c;
    if (section_double(s, "factor", 1, 1e6, &r->factor, e) ||
        section_double(s, "low_freq_factor", 1e-6, 1e6, &r->low_freq, e) ||
        section_double(s, "high_freq_factor", 1e-6, 1e6, &r->high_freq, e) ||
        read_original(r, s, 0, e))
        return -1;
    return r->high_freq > r->low_freq
               ? 0
               : section_bad(s, "high_freq_factor", "over low_freq_factor", e);
}

/* A divisor for each frequency. */
static int read_factors(const struct rope_config *r, const struct section *s,
                        const char *key, float *out, struct qwick_err *e)
{
    const struct json_value *list = json_get(s->v, key);
    size_t n = r->n_rot / 2;
    if (n > CONFIG_MAX_FACTORS || !json_is(list, JSON_ARRAY) || list->len != n)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s%s: must be a list of %zu numbers, one for each "
                       "frequency, has %zu",
                       s->path, s->in, key, n,
                       json_is(list, JSON_ARRAY) ? list->len : 0);
    for (size_t i = 0; i < n; i++) {
        double factor;
        if (json_double(&list->items[i], &factor) || !(factor >= 1e-6) ||
            factor > 1e6)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s%s[%zu]: must be a number from 1e-06 to "
                           "1e+06",
                           s->path, s->in, key, i);
        out[i] = (float)factor;
    }
    return 0;
}

/* The original length stands in the object, or beside it where r->original has
 * it already. */
static int read_longrope(const struct config *c, struct rope_config *r,
                         const struct section *s, struct qwick_err *e)
{
    if (read_original(r, s, r->original, e) ||
        read_factors(r, s, "short_factor", r->short_factor, e) ||
        read_factors(r, s, "long_factor", r->long_factor, e))
        return -1;
    double factor = (double)c->n_ctx_max / (double)r->original;
    double scale =
        factor <= 1 ? 1 : sqrt(1 + log(factor) / log((double)r->original));
    return section_opt_double(s, "attention_factor", scale, 1e-6, 1e6,
                              &r->attention, e);
}

/* All of a head rotates, most of it by frequencies of 0. */
static int read_proportional(const struct config *c, struct rope_config *r,
                             const struct section *s, struct qwick_err *e)
{
    double part;
    (void)c;
    if (section_opt_double(s, "partial_rotary_factor", 1, 0, 1, &part, e) ||
        section_opt_double(s, "factor", 1, 1, 1e6, &r->factor, e))
        return -1;
    r->n_turning = (size_t)(part * (double)r->n_rot / 2);
    return 0;
}

static const struct {
    const char *name;
    enum rope_type type;
    int (*read)(const struct config *c, struct rope_config *r,
                const struct section *s, struct qwick_err *e);
} kinds[] = {{"default", ROPE_DEFAULT, read_default},
             {"mrope", ROPE_DEFAULT, read_default},
             {"linear", ROPE_LINEAR, read_linear},
             {"yarn", ROPE_YARN, read_yarn},
             {"llama3", ROPE_LLAMA3, read_llama3},
             {"longrope", ROPE_LONGROPE, read_longrope},
             {"su", ROPE_LONGROPE, read_longrope},
             {"proportional", ROPE_PROPORTIONAL, read_proportional}};

/* rope_type, or type in older files. mrope's positions are equal for text,
 * which makes it a plain embedding. */
static int read_rope_type(const struct config *c, struct rope_config *r,
                          const struct section *s, struct qwick_err *e)
{
    const char *key = section_absent(s, "rope_type") ? "type" : "rope_type";
    const struct json_value *v = json_get(s->v, key);
    r->attention = 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_equals(v, kinds[i].name)) {
            r->type = kinds[i].type;
            return kinds[i].read(c, r, s, e);
        }
    return section_bad(s, key,
                       "default, linear, yarn, llama3, longrope or "
                       "proportional (others are not supported)",
                       e);
}

int config_read_rotary(const struct config *c, struct rope_config *r,
                       double dflt, const struct section *s,
                       struct qwick_err *e)
{
    static const char key[] = "partial_rotary_factor";
    struct section rope =
        section_inner(s, "rope_parameters", "rope_parameters.");
    bool inner =
        rope.v && rope.v->type == JSON_OBJECT && !section_absent(&rope, key);
    double factor = dflt, other;
    if (inner && section_double(&rope, key, 0, 1, &factor, e))
        return -1;
    if (section_opt_double(s, key, factor, 0, 1, &other, e))
        return -1;
    if (inner && other != factor)
        return err_set(e, QWICK_ERR_MODEL, "%s: %s%s: is %g, but %s%s is %g",
                       s->path, s->in, key, other, rope.in, key, factor);
    /* the factor may be a rounded quotient */
    size_t n = (size_t)((double)c->head_dim * other * (1 + 1e-12));
    if (n < 2 || n % 2) {
        char want[96];
        snprintf(want, sizeof want,
                 "a part of head_dim, %zu, with an even number of elements",
                 c->head_dim);
        return section_bad(inner ? &rope : s, key, want, e);
    }
    r->n_rot = n;
    return 0;
}

/* The base: wherever it stands, and the same everywhere. `key` is its name in
 * the first place, rope_theta its name in the others. */
static int read_theta(struct rope_config *r, const char *key,
                      const struct section *const *places, size_t n,
                      struct qwick_err *e)
{
    const struct section *from = NULL;
    const char *from_key = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = i ? "rope_theta" : key;
        double theta;
        if (section_absent(places[i], name))
            continue;
        if (section_double(places[i], name, 1, 1e12, &theta, e))
            return -1;
        if (from && theta != r->theta)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s%s: is %g, but %s%s is %g", from->path,
                           from->in, from_key, r->theta, places[i]->in, name,
                           theta);
        from = places[i];
        from_key = name;
        r->theta = theta;
    }
    return r->theta > 0 ? 0 : section_bad(places[0], key, "a number", e);
}

static bool same_rope(const struct rope_config *a, const struct rope_config *b)
{
    return a->type == b->type && a->factor == b->factor &&
           a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
           a->low_freq == b->low_freq && a->high_freq == b->high_freq &&
           a->q_beta == b->q_beta && a->attention == b->attention &&
           a->original == b->original && a->truncate == b->truncate &&
           a->n_turning == b->n_turning &&
           memcmp(a->short_factor, b->short_factor, sizeof a->short_factor) ==
               0 &&
           memcmp(a->long_factor, b->long_factor, sizeof a->long_factor) == 0;
}

static bool is_there(const struct section *object)
{
    return object->v && object->v->type != JSON_NULL;
}

int config_read_rope_of(const struct config *c, struct rope_config *r,
                        const struct section *s, const char *theta,
                        const struct section *v5, const struct section *v4,
                        struct qwick_err *e)
{
    const struct section *const places[] = {s, v5, v4};
    if (read_theta(r, theta, places, 3, e))
        return -1;
    r->type = ROPE_DEFAULT;
    r->attention = 1;
    bool typed5 = is_there(v5) && !(section_absent(v5, "rope_type") &&
                                    section_absent(v5, "type"));
    if (typed5 && read_rope_type(c, r, v5, e))
        return -1;
    if (!is_there(v4))
        return 0;
    /* Readers differ in which of the two wins, so they have to agree. */
    struct rope_config other = *r;
    if (read_rope_type(c, &other, v4, e))
        return -1;
    if (typed5 && !same_rope(r, &other))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: rope_scaling: asks for another rope than "
                       "rope_parameters",
                       s->path);
    *r = other;
    return 0;
}

int config_read_rope(const struct config *c, struct rope_config *r,
                     const struct section *s, struct qwick_err *e)
{
    struct section v5 = section_inner(s, "rope_parameters", "rope_parameters.");
    struct section v4 = section_inner(s, "rope_scaling", "rope_scaling.");
    if (is_there(&v5) && v5.v->type != JSON_OBJECT)
        return section_bad(s, "rope_parameters", "an object", e);
    if (is_there(&v4) && v4.v->type != JSON_OBJECT)
        return section_bad(s, "rope_scaling", "an object or null", e);
    return config_read_rope_of(c, r, s, "rope_theta", &v5, &v4, e);
}

/* Set n_rot of a kind's embedding to the head_dim of its layers. */
static int rotate_heads(struct config *c, size_t kind, const struct section *s,
                        struct qwick_err *e)
{
    size_t *n_rot = &c->ropes[kind].n_rot;
    *n_rot = 0;
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct layer_config *l = &c->layers[i];
        if (l->rope != kind || *n_rot == l->head_dim)
            continue;
        if (*n_rot)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: head_dim of layer %zu: is %zu, but %zu in "
                           "another layer with the same rotary embedding",
                           s->path, i, l->head_dim, *n_rot);
        *n_rot = l->head_dim;
    }
    *n_rot = *n_rot ? *n_rot : c->head_dim;
    return 0;
}

int config_read_rope_kinds(struct config *c, const char *full,
                           const char *sliding, const struct section *s,
                           struct qwick_err *e)
{
    static const char *const kinds_of_layers[] = {"full_attention",
                                                  "sliding_attention"};
    const char *const thetas[] = {full, sliding};
    char in[64], in_kind[96];
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].rope =
            c->layers[i].window == NO_WINDOW ? ROPE_FULL : ROPE_SLIDING;
    snprintf(in, sizeof in, "%srope_parameters.", s->in);
    struct section all = section_inner(s, "rope_parameters", in);
    bool has5 = !section_absent(s, "rope_parameters");
    if (has5 && all.v->type != JSON_OBJECT)
        return section_bad(s, "rope_parameters", "an object", e);
    for (int i = 0; i < 2; i++) {
        struct section none = {.path = s->path, .in = ""};
        struct section v4 = none, v5 = none;
        snprintf(in_kind, sizeof in_kind, "%s%s.", in, kinds_of_layers[i]);
        if (has5)
            v5 = section_inner(&all, kinds_of_layers[i], in_kind);
        if (has5 && (!v5.v || v5.v->type != JSON_OBJECT))
            return section_bad(&all, kinds_of_layers[i], "an object", e);
        if (i == ROPE_FULL)
            v4 = section_inner(s, "rope_scaling", "rope_scaling.");
        if (i == ROPE_FULL && !section_absent(s, "rope_scaling") &&
            v4.v->type != JSON_OBJECT)
            return section_bad(s, "rope_scaling", "an object or null", e);
        if (rotate_heads(c, (size_t)i, s, e) ||
            config_read_rope_of(c, &c->ropes[i], s, thetas[i], &v5, &v4, e))
            return -1;
    }
    c->n_ropes = 2;
    return 0;
}

/* The dimension that turns `turns` times within the original context. */
static double yarn_dim(const struct rope_config *r, double turns)
{
    double two_pi = 6.283185307179586;
    return (double)r->n_rot * log((double)r->original / (turns * two_pi)) /
           (2 * log(r->theta));
}

/* The dimensions that turn often within the original context keep their
 * frequencies, the others are divided, with a ramp between. */
static void scale_yarn(const struct rope_config *r, float *inv_freq)
{
    double low = yarn_dim(r, r->beta_fast);
    double high = yarn_dim(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)r->n_rot - 1);
    if (low == high)
        high += 0.001;
    for (size_t i = 0; i < r->n_rot / 2; i++) {
        float ramp = (float)fmin(fmax(((double)i - low) / (high - low), 0), 1);
        float slow = inv_freq[i] / (float)r->factor;
        inv_freq[i] = slow * ramp + inv_freq[i] * (1.0f - ramp);
    }
}

/* By the length of a wave: short ones stay, long ones are stretched. */
static void scale_llama3(const struct rope_config *r, float *inv_freq)
{
    double two_pi = 6.283185307179586, original = (double)r->original;
    for (size_t i = 0; i < r->n_rot / 2; i++) {
        double wave = two_pi / (double)inv_freq[i];
        if (wave < original / r->high_freq)
            continue;
        float slow = inv_freq[i] / (float)r->factor;
        float ramp = (float)((original / wave - r->low_freq) /
                             (r->high_freq - r->low_freq));
        inv_freq[i] = wave > original / r->low_freq
                          ? slow
                          : (1 - ramp) * slow + ramp * inv_freq[i];
    }
}

void config_rope_frequencies(const struct rope_config *r, bool is_long,
                             float *inv_freq)
{
    const float *factors = is_long ? r->long_factor : r->short_factor;
    for (size_t i = 0; i < r->n_rot / 2; i++) {
        float exponent = (float)(2 * i) / (float)r->n_rot;
        float base = powf((float)r->theta, exponent);
        inv_freq[i] = r->type == ROPE_LONGROPE
                          ? 1.0f / (factors[i] * base)
                          : 1.0f / base;
        if (r->type == ROPE_LINEAR || r->type == ROPE_PROPORTIONAL)
            inv_freq[i] /= (float)r->factor;
        if (r->type == ROPE_PROPORTIONAL && i >= r->n_turning)
            inv_freq[i] = 0;
    }
    if (r->type == ROPE_YARN)
        scale_yarn(r, inv_freq);
    if (r->type == ROPE_LLAMA3)
        scale_llama3(r, inv_freq);
}
