#include "model/config_gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/gguf.h"
#include "model/section.h"

static const char layers_key[] = ".block_count",
                  recurrent_key[] = ".attention.recurrent_layers";

/* Arrays that have readers of their own, or that text does not need. */
static const char *const arrays[] = {
    ".attention.sliding_window_pattern", /* put_windows of config_gguf.c */
    ".classifier.output_labels",         /* read_classes there */
    /* of positions in images; Ollama has names of its own */
    ".rope.dimension_sections",
    ".rope.mrope_section",
    ".mrope_sections",
};
/* Arrays whose elements may differ where layers do (gguf_keys.layered). */
static const char *const by_layer[] = {".attention.head_count_kv",
                                       ".feed_forward_length"};
/* Beginnings of keys that belong to a vision model. */
static const char *const outside[] = {".vision.", ".mm."};

/* Keys that other architectures have, and the values that mean no change: one
 * or two. */
static const struct {
    const char *key;
    double values[2];
} neutral[] = {
    {".attention.causal", {1, 1}},
    {".attention.clamp_kqv", {0, 0}},
    {".attention.max_alibi_bias", {0, 0}},
    {".attention.scale", {0, 0}},
    {".attention.shared_kv_layers", {0, 0}},
    {".attention.temperature_scale", {0, 0}},
    {".attn_logit_softcapping", {0, 0}},
    {".embedding_scale", {0, 1}},
    {".expert_gating_func", {0, 1}}, /* 1: softmax */
    {".expert_group_count", {0, 1}},
    {".expert_weights_norm", {1, 1}},
    {".expert_weights_scale", {0, 1}},
    {".final_logit_softcapping", {0, 0}},
    {".logit_scale", {0, 1}},
    {".norm_top_k_prob", {1, 1}}, /* Ollama's */
    {".residual_scale", {0, 1}},
    {".rope.scaling.yarn_ext_factor", {-1, 1}}, /* -1: not said */
    {".use_parallel_residual", {0, 0}},
};

const struct gguf_value *gguf_keys_find(const struct gguf_keys *k,
                                        const char *key)
{
    char full[160];
    snprintf(full, sizeof full, "%s%s", key[0] == '.' ? k->arch : "", key);
    return gguf_find(k->g, full);
}

/* ---- layers ---------------------------------------------------------------
 */

static bool is_integer(enum gguf_type type)
{
    return type != GGUF_STRING && type != GGUF_ARRAY && type != GGUF_F32 &&
           type != GGUF_F64;
}

/* Whether the array has an integer for each layer. */
static bool is_layered(const struct gguf_keys *k, const struct gguf_value *v)
{
    const struct gguf_value *n = gguf_keys_find(k, layers_key);
    return n && is_integer(n->type) && v->type == GGUF_ARRAY &&
           is_integer(v->element) && v->n > 0 &&
           v->n == (n->u | (uint64_t)n->i);
}

/* The numbers of KV heads, if some layer has none. */
static const struct gguf_value *find_no_heads(const struct gguf_keys *k)
{
    const struct gguf_value *v = gguf_keys_find(k, ".attention.head_count_kv");
    for (size_t i = 0; v && is_layered(k, v) && i < v->n; i++)
        if (gguf_int_at(v, i) == 0)
            return v;
    return NULL;
}

bool gguf_keys_lists_recurrent(const struct gguf_keys *k)
{
    return gguf_keys_find(k, recurrent_key) || find_no_heads(k);
}

bool gguf_keys_recurrent(const struct gguf_keys *k, size_t i)
{
    const struct gguf_value *v = gguf_keys_find(k, recurrent_key);
    if (!k->hybrid)
        return false;
    if (v)
        return is_layered(k, v) && i < v->n && gguf_int_at(v, i) != 0;
    v = find_no_heads(k);
    if (v)
        return i < v->n && gguf_int_at(v, i) == 0;
    v = gguf_keys_find(k, ".full_attention_interval");
    uint64_t interval = v ? v->u | (uint64_t)v->i : 4;
    return interval == 0 || (i + 1) % interval != 0;
}

bool gguf_keys_shared(const struct gguf_keys *k, const struct gguf_value *v,
                      int64_t *out)
{
    bool found = false;
    *out = 0;
    if (!is_layered(k, v))
        return false;
    for (size_t i = 0; i < v->n; i++) {
        int64_t n = gguf_int_at(v, i);
        if (n == 0 && gguf_keys_recurrent(k, i))
            continue;
        if (found && n != *out)
            return false;
        *out = n;
        found = true;
    }
    return true;
}

uint64_t gguf_keys_int(const struct gguf_keys *k, const char *key)
{
    const struct gguf_value *v = gguf_keys_find(k, key);
    int64_t n;
    if (v && v->type == GGUF_ARRAY)
        return gguf_keys_shared(k, v, &n) && n > 0 ? (uint64_t)n : 0;
    return v ? v->u | (uint64_t)v->i : 0;
}

bool gguf_keys_at(const struct gguf_keys *k, const char *key, size_t i,
                  int64_t *out)
{
    const struct gguf_value *v = gguf_keys_find(k, key);
    bool listed = v && is_layered(k, v) && i < v->n;
    if (!listed && (!v || !is_integer(v->type)))
        return false;
    *out = listed ? gguf_int_at(v, i) : (int64_t)v->u | v->i;
    return true;
}

/* ---- what no reader uses --------------------------------------------------
 */

/* Write the first values of an array to out [n]. */
static void show_array(char *out, size_t n, const struct gguf_value *v)
{
    enum { SHOWN = 12 };
    size_t at = 0;
    if (!is_integer(v->element)) {
        snprintf(out, n, "an array of %zu %s", v->n,
                 gguf_type_name(v->element));
        return;
    }
    out[0] = '\0';
    for (size_t i = 0; i < v->n && i < SHOWN && at < n; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%lld", i ? ", " : "",
                               (long long)gguf_int_at(v, i));
    if (v->n > SHOWN && at < n)
        snprintf(out + at, n - at, " and %zu more", v->n - SHOWN);
}

static int err_array(const struct gguf_keys *k, const struct gguf_value *v,
                     const char *why, struct qwick_err *e)
{
    char values[320];
    show_array(values, sizeof values, v);
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: %s: %s", gguf_path(k->g),
                   ERR_SHOW(v->key, v->key_len), values, why);
}

static bool is(const char *key, size_t n, const char *expected)
{
    return strlen(expected) == n && memcmp(key, expected, n) == 0;
}

static bool is_by_layer(const char *key, size_t n)
{
    for (size_t i = 0; i < sizeof by_layer / sizeof *by_layer; i++)
        if (is(key, n, by_layer[i]))
            return true;
    return false;
}

/* key [n] is the entry's without the name of the architecture. */
static int check_array(const struct gguf_keys *k, const char *key, size_t n,
                       const struct gguf_value *v,
                       const struct section_name *names, struct qwick_err *e)
{
    int64_t shared;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (is(key, n, arrays[i]))
            return 0;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (n > strlen(outside[i]) &&
            memcmp(key, outside[i], strlen(outside[i])) == 0)
            return 0;
    if (!is_layered(k, v))
        return err_array(k, v,
                         "must have an integer for each of block_count "
                         "layers",
                         e);
    if (is(key, n, recurrent_key) && k->hybrid)
        return 0;
    if (k->layered && is_by_layer(key, n))
        return 0;
    if (!gguf_keys_shared(k, v, &shared))
        return err_array(k, v, "differs between layers, which is not supported",
                         e);
    for (; names->field; names++)
        if (is(key, n, names->key))
            return 0;
    return shared ? err_array(k, v, "is not supported", e) : 0;
}

/* Whether the family has a reader for the key. */
static bool is_own(const struct gguf_keys *k, const char *key, size_t n)
{
    for (size_t i = 0; k->own && k->own[i]; i++)
        if (is(key, n, k->own[i]))
            return true;
    return false;
}

/* The factor of cosines and sines that yarn has without a key (config_rope.c).
 * Converters write it, or 1. */
static int check_yarn_factor(const struct gguf_keys *k,
                             const struct gguf_value *v, double x,
                             struct qwick_err *e)
{
    const struct gguf_value *factor = gguf_keys_find(k, ".rope.scaling.factor");
    double usual = factor && factor->f > 1 ? 1 + 0.1 * log(factor->f) : 1;
    if (x == 1 || fabs(x - usual) < 1e-5)
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: %g is not supported (%g is, by "
                   "rope.scaling.factor)",
                   gguf_path(k->g), ERR_SHOW(v->key, v->key_len), x, usual);
}

static int check_neutral(const struct gguf_keys *k, const char *key, size_t n,
                         const struct gguf_value *v, struct qwick_err *e)
{
    static const char tiled[] = ".ssm.v_head_reordered"; /* Ollama's */
    double x = (double)v->u + (double)v->i + v->f;
    if (is(key, n, tiled) && x != (double)k->tiled)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: %g is not supported (%d is)", gguf_path(k->g),
                       ERR_SHOW(v->key, v->key_len), x, k->tiled);
    if (is(key, n, ".rope.scaling.yarn_attn_factor"))
        return check_yarn_factor(k, v, x, e);
    if (is(key, n, recurrent_key))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: must be an array, is of type %s",
                       gguf_path(k->g), ERR_SHOW(v->key, v->key_len),
                       gguf_type_name(v->type));
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
        const double *values = neutral[i].values;
        if (!is(key, n, neutral[i].key) || is_own(k, key, n))
            continue;
        if (v->type != GGUF_STRING && (x == values[0] || x == values[1]))
            return 0;
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: %g is not supported (%g is)", gguf_path(k->g),
                       ERR_SHOW(v->key, v->key_len), x, values[1]);
    }
    return 0;
}

int gguf_keys_check(const struct gguf_keys *k, const struct section_name *names,
                    struct qwick_err *e)
{
    size_t skip = strlen(k->arch);
    for (size_t i = 0; i < gguf_count(k->g); i++) {
        const struct gguf_value *v = gguf_at(k->g, i);
        if (v->key_len <= skip || memcmp(v->key, k->arch, skip) != 0 ||
            v->key[skip] != '.')
            continue;
        const char *key = v->key + skip;
        size_t n = v->key_len - skip;
        if (v->type == GGUF_ARRAY ? check_array(k, key, n, v, names, e)
                                  : check_neutral(k, key, n, v, e))
            return -1;
    }
    return 0;
}
