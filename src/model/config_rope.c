/* Rotary embedding: its fields in config.json, and its frequencies. */
#include <math.h>

#include "file/json.h"
#include "model/config.h"
#include "model/section.h"

const char *config_rope_name(const struct rope_config *r)
{
    static const char *const names[] = {[ROPE_DEFAULT] = "default",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_YARN] = "yarn"};
    return names[r->type];
}

/* 0.1 * mscale * ln(factor) + 1 (Peng et al. 2023, as in transformers). */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
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
        section_opt_double(s, "mscale_all_dim", 0, 0, 1e6, &mscale_all, e))
        return -1;
    r->original = c->n_ctx_max;
    if (!section_absent(s, "original_max_position_embeddings") &&
        section_size(s, "original_max_position_embeddings", INT32_MAX,
                     &r->original, e))
        return -1;
    double f = yarn_mscale(r->factor, 1);
    if (mscale != 0 && mscale_all != 0)
        f = yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all);
    return section_opt_double(s, "attention_factor", f, 1e-6, 1e6,
                              &r->attention, e);
}

/* rope_type, or type in older files. */
static int read_rope_type(const struct config *c, struct rope_config *r,
                          const struct section *s, struct qwick_err *e)
{
    const char *key = section_absent(s, "rope_type") ? "type" : "rope_type";
    const struct json_value *v = json_get(s->v, key);
    r->attention = 1;
    if (json_equals(v, "default")) {
        r->type = ROPE_DEFAULT;
        return 0;
    }
    if (json_equals(v, "linear")) {
        r->type = ROPE_LINEAR;
        return section_double(s, "factor", 1, 1e6, &r->factor, e);
    }
    if (json_equals(v, "yarn")) {
        r->type = ROPE_YARN;
        return read_yarn(c, r, s, e);
    }
    return section_bad(s, key,
                       "default, linear or yarn (others are not supported)", e);
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
           a->attention == b->attention && a->original == b->original &&
           a->truncate == b->truncate;
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

/* The dimension that turns `turns` times within the original context. */
static double yarn_dim(const struct rope_config *r, double turns)
{
    double two_pi = 6.283185307179586;
    return (double)r->n_rot * log((double)r->original / (turns * two_pi)) /
           (2 * log(r->theta));
}

void config_rope_frequencies(const struct rope_config *r, float *inv_freq)
{
    size_t half = r->n_rot / 2;
    for (size_t i = 0; i < half; i++) {
        float exponent = (float)(2 * i) / (float)r->n_rot;
        inv_freq[i] = 1.0f / powf((float)r->theta, exponent);
    }
    if (r->type == ROPE_LINEAR)
        for (size_t i = 0; i < half; i++)
            inv_freq[i] /= (float)r->factor;
    if (r->type != ROPE_YARN)
        return;
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
    for (size_t i = 0; i < half; i++) {
        float ramp = (float)fmin(fmax(((double)i - low) / (high - low), 0), 1);
        float slow = inv_freq[i] / (float)r->factor;
        inv_freq[i] = slow * ramp + inv_freq[i] * (1.0f - ramp);
    }
}
