#include "model/quant.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "model/foreign.h"

enum { SHOWN = 200 };

/* Names come from the file: long ones are cut in messages. */
static int shown(size_t n, const char *name)
{
    return (int)utf8_complete(name, n < SHOWN ? n : SHOWN);
}

static int compare_names(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : (na > nb) - (na < nb);
}

static int compare_overrides(const void *a, const void *b)
{
    const struct quant_override *x = a, *y = b;
    return compare_names(x->module, x->len, y->module, y->len);
}

/* MLX's modes without biases, each of which has one number of bits and one size
 * of groups. */
static const struct {
    enum quant_mode mode;
    const char *name, *shown;
    int bits, group;
} modes[] = {{QUANT_MXFP4, "mxfp4", "MXFP4", 4, 32},
             {QUANT_MXFP8, "mxfp8", "MXFP8", 8, 32},
             {QUANT_NVFP4, "nvfp4", "NVFP4", 4, 16}};

enum { N_MODES = sizeof modes / sizeof *modes };

/* quant_method marks other systems' files. Modes other than affine have no
 * biases, and scales of other types. */
static int read_mode(enum quant_mode *mode, const struct section *s,
                     struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "mode");
    *mode = QUANT_AFFINE;
    if (!section_absent(s, "quant_method"))
        return foreign_refuse(s, "quant_method", e);
    if (section_absent(s, "mode") || json_equals(v, "affine"))
        return 0;
    for (size_t i = 0; i < N_MODES; i++)
        if (json_equals(v, modes[i].name)) {
            *mode = modes[i].mode;
            return 0;
        }
    return foreign_refuse(s, "mode", e);
}

/* A parameter that the mode alone decides. */
static int need_value(const struct section *s, const char *key, int value,
                      const char *mode, struct qwick_err *e)
{
    char expected[64];
    int64_t v;
    if (json_int(json_get(s->v, key), value, value, &v) == 0)
        return 0;
    snprintf(expected, sizeof expected, "%d, as mode is %s", value, mode);
    return section_bad(s, key, expected, e);
}

static int read_params(struct quant_params *p, const struct section *s,
                       struct qwick_err *e)
{
    int64_t bits, group;
    if (read_mode(&p->mode, s, e))
        return -1;
    for (size_t i = 0; i < N_MODES; i++) {
        if (p->mode != modes[i].mode)
            continue;
        p->bits = modes[i].bits;
        p->group = (size_t)modes[i].group;
        return need_value(s, "group_size", modes[i].group, modes[i].name, e) ||
                       need_value(s, "bits", modes[i].bits, modes[i].name, e)
                   ? -1
                   : 0;
    }
    if (json_int(json_get(s->v, "group_size"), 32, 128, &group) ||
        (group != 32 && group != 64 && group != 128)) {
        return section_bad(s, "group_size", "32, 64 or 128", e);
    } else if (json_int(json_get(s->v, "bits"), 2, 8, &bits) || bits == 7) {
        return section_bad(s, "bits", "2, 3, 4, 5, 6 or 8", e);
    }
    p->bits = (int)bits;
    p->group = (size_t)group;
    return 0;
}

static bool is_param(const struct json_value *key)
{
    return json_equals(key, "group_size") || json_equals(key, "bits") ||
           json_equals(key, "mode") || json_equals(key, "quant_method");
}

/* Flags of other systems ("desc_act": false) are not names of modules. */
static bool may_be_module(const struct json_value *key)
{
    return memchr(key->str, '.', key->len) || json_equals(key, "lm_head") ||
           json_equals(key, "embed_tokens");
}

/* The parameters of one module: an object with its own, true for the common
 * ones, false for none. */
static int read_override(struct quant_params *p, const struct quant_params *all,
                         const struct section *s, const struct json_value *key,
                         const struct json_value *v, struct qwick_err *e)
{
    char in[64 + SHOWN];
    int n = shown(key->len, key->str);
    if (json_is(v, JSON_BOOL) && may_be_module(key)) {
        *p = v->boolean ? *all : (struct quant_params){0};
        return 0;
    }
    if (!json_is(v, JSON_OBJECT)) {
        char got[64];
        section_describe(v, got, sizeof got);
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s%.*s: is %s, which is not known to quantization",
                       s->path, s->in, n, key->str, got);
    }
    snprintf(in, sizeof in, "%s%.*s.", s->in, n, key->str);
    struct section own = {.v = v, .path = s->path, .in = in};
    if (read_params(p, &own, e))
        return -1;
    for (size_t i = 0; i < v->len; i++)
        if (!is_param(&v->keys[i]) && v->items[i].type != JSON_NULL)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s%.*s: is not known to quantization", s->path,
                           in, shown(v->keys[i].len, v->keys[i].str),
                           v->keys[i].str);
    return 0;
}

static bool is_override(const struct section *s, size_t i)
{
    return !is_param(&s->v->keys[i]) && s->v->items[i].type != JSON_NULL;
}

/* Room for the overrides of an object and for their names. */
static int reserve(struct quant *q, const struct section *s,
                   struct qwick_err *e)
{
    size_t n = 0, bytes = 0, n_bytes;
    for (size_t i = 0; i < s->v->len; i++) {
        if (!is_override(s, i))
            continue;
        n++;
        if (size_add(bytes, s->v->keys[i].len + 1, &bytes))
            return err_oom(e, SIZE_MAX);
    }
    if (!n)
        return 0;
    if (size_mul(n, sizeof *q->v, &n_bytes))
        return err_oom(e, SIZE_MAX);
    q->v = malloc(n_bytes);
    q->names = malloc(bytes);
    return q->v && q->names ? 0 : err_oom(e, n_bytes);
}

static int read_overrides(struct quant *q, const struct section *s,
                          struct qwick_err *e)
{
    if (reserve(q, s, e))
        return -1;
    char *at = q->names;
    for (size_t i = 0; i < s->v->len; i++) {
        const struct json_value *key = &s->v->keys[i];
        if (!is_override(s, i))
            continue;
        struct quant_override *o = &q->v[q->n];
        if (read_override(&o->params, &q->all, s, key, &s->v->items[i], e))
            return -1;
        memcpy(at, key->str, key->len);
        at[key->len] = '\0';
        o->module = at;
        o->len = key->len;
        at += key->len + 1;
        q->n++;
    }
    if (q->n)
        qsort(q->v, q->n, sizeof *q->v, compare_overrides);
    return 0;
}

static int read_object(struct quant *q, const struct section *config,
                       const char *key, struct qwick_err *e)
{
    char in[32];
    snprintf(in, sizeof in, "%s.", key);
    struct section s = section_inner(config, key, in);
    *q = (struct quant){.key = key};
    if (s.v->type != JSON_OBJECT)
        return section_bad(config, key, "an object", e);
    if (json_equals(json_get(s.v, "quant_method"), "mxfp4"))
        return 0;
    if (quant_is_fp8(s.v) ? quant_read_fp8(q, &s, e)
        : quant_is_stored(s.v)
            ? quant_read_stored(q, &s, e)
        : quant_is_transposed(s.v)
            ? quant_read_transposed(q, &s, e)
            : read_params(&q->all, &s, e) || read_overrides(q, &s, e)) {
        quant_free(q);
        return -1;
    }
    return 0;
}

static void params_text(const struct quant_params *p, char *out, size_t n)
{
    for (size_t i = 0; i < N_MODES; i++)
        if (p->mode == modes[i].mode) {
            snprintf(out, n, "%s", modes[i].shown);
            return;
        }
    if (p->bits)
        snprintf(out, n, "%d bits in groups of %zu", p->bits, p->group);
    else
        snprintf(out, n, "dense");
}

static bool same_params(const struct quant_params *a,
                        const struct quant_params *b)
{
    return a->mode == b->mode && a->bits == b->bits && a->group == b->group;
}

static int disagree(const struct quant *a, const struct quant *b,
                    const struct quant_params *pa,
                    const struct quant_params *pb, const char *module,
                    size_t len, const struct section *s, struct qwick_err *e)
{
    char ta[64], tb[64];
    params_text(pa, ta, sizeof ta);
    params_text(pb, tb, sizeof tb);
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: has %s%s%.*s, but %s has %s",
                   s->path, a->key, ta, len ? " for " : "", shown(len, module),
                   module, b->key, tb);
}

/* Both objects are sorted; a module that only one of them names has the other's
 * common parameters there. */
static int agree(const struct quant *a, const struct quant *b,
                 const struct section *s, struct qwick_err *e)
{
    if (!same_params(&a->all, &b->all))
        return disagree(a, b, &a->all, &b->all, "", 0, s, e);
    for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
        int c = i == a->n   ? 1
                : k == b->n ? -1
                            : compare_overrides(&a->v[i], &b->v[k]);
        const struct quant_override *o = c <= 0 ? &a->v[i] : &b->v[k];
        const struct quant_params *pa = c <= 0 ? &a->v[i].params : &a->all;
        const struct quant_params *pb = c >= 0 ? &b->v[k].params : &b->all;
        if (!same_params(pa, pb))
            return disagree(a, b, pa, pb, o->module, o->len, s, e);
        i += c <= 0;
        k += c >= 0;
    }
    return 0;
}

static bool has_other_system(const struct quant *q)
{
    return q->fp8 || q->stored.groups || q->transposed.form != TRANSPOSED_NONE;
}

/* Only one object can describe weights of other systems than MLX. */
static int one_system(const struct quant *a, const struct quant *b,
                      const struct section *config, struct qwick_err *e)
{
    bool first = has_other_system(a);
    const char *key = first ? a->key : b->key;
    char in[32], expected[64];
    if (!first && !has_other_system(b))
        return 0;
    snprintf(in, sizeof in, "%s.", key);
    snprintf(expected, sizeof expected, "missing beside %s",
             first ? b->key : a->key);
    struct section s = section_inner(config, key, in);
    return section_bad(&s, "quant_method", expected, e);
}

int quant_read(struct quant *q, const struct section *config,
               struct qwick_err *e)
{
    struct quant other = {0};
    *q = (struct quant){0};
    bool has = !section_absent(config, "quantization");
    bool has_config = !section_absent(config, "quantization_config");
    if (has && read_object(q, config, "quantization", e))
        return -1;
    if (!has_config)
        return 0;
    if (!has)
        return read_object(q, config, "quantization_config", e);
    if (read_object(&other, config, "quantization_config", e) ||
        one_system(q, &other, config, e) || agree(q, &other, config, e)) {
        quant_free(&other);
        quant_free(q);
        return -1;
    }
    quant_free(&other);
    return 0;
}

void quant_free(struct quant *q)
{
    free(q->v);
    free(q->names);
    quant_free_stored(q);
    *q = (struct quant){0};
}

struct quant_params quant_find(const struct quant *q, const char *module)
{
    struct quant_override key = {.module = module, .len = strlen(module)};
    const struct quant_override *o =
        q->n ? bsearch(&key, q->v, q->n, sizeof *q->v, compare_overrides)
             : NULL;
    return o ? o->params : q->all;
}
