/* AWQ and GPTQ in "quantization_config":
 *
 *     {"quant_method": "awq", "bits": 4, "group_size": 128,
 *      "zero_point": true, "version": "gemm"}
 *     {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true,
 *      "sym": false, "checkpoint_format": "gptq_v2"}
 *
 * A module is quantized if and only if the checkpoint has its ".qweight". So
 * lists of modules do not count, nor do rules that only leave modules out. */
#include <stdio.h>

#include "model/fixed.h"
#include "model/quant.h"

enum { MAX_GROUP = 1 << 20, SHOWN = 80 };

static const struct fixed_field fixed_gptq[] = {{"pack_dtype", "\"int32\""},
                                                {NULL, NULL}};

bool quant_is_transposed(const struct json_value *v)
{
    const struct json_value *method = json_get(v, "quant_method");
    return json_equals(method, "awq") || json_equals(method, "gptq");
}

/* Whether a field has one of two values, or is missing. */
static bool is_either(const struct section *s, const char *key, const char *a,
                      const char *b)
{
    const struct json_value *v = json_get(s->v, key);
    return section_absent(s, key) || json_equals(v, a) || json_equals(v, b);
}

static int read_group(struct quant_transposed *t, const struct section *s,
                      struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "group_size");
    int64_t group;
    if (json_int(v, -1, MAX_GROUP, &group) || group == 0 ||
        (group > 0 && group != 32 && group != 64 && group % 128))
        return section_bad(s, "group_size", "-1, 32, 64 or a multiple of 128",
                           e);
    t->group = group > 0 ? (size_t)group : 0;
    return 0;
}

static int read_awq(struct quant_transposed *t, const struct section *s,
                    struct qwick_err *e)
{
    int64_t bits;
    bool zeros;
    t->form = TRANSPOSED_AWQ;
    if (json_int(json_get(s->v, "bits"), 4, 4, &bits))
        return section_bad(s, "bits", "4, as quant_method is awq", e);
    t->bits = (int)bits;
    if (!is_either(s, "version", "gemm", "GEMM"))
        return section_bad(s, "version", "\"gemm\" (others are not supported)",
                           e);
    if (section_opt_bool(s, "zero_point", true, &zeros, e))
        return -1;
    t->symmetric = !zeros;
    return 0;
}

/* GPTQModel's rules for modules: regular expressions, with "-:" before those
 * whose modules are not quantized. */
static int check_rules(const struct section *s, struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "dynamic");
    if (section_absent(s, "dynamic"))
        return 0;
    if (!json_is(v, JSON_OBJECT))
        return section_bad(s, "dynamic", "an object", e);
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *key = &v->keys[i];
        if (key->len < 2 || key->str[0] != '-' || key->str[1] != ':')
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %sdynamic: rule \"%.*s\" gives modules their "
                           "own parameters, which is not supported",
                           s->path, s->in,
                           (int)(key->len < SHOWN ? key->len : SHOWN),
                           key->str);
    }
    return 0;
}

static int read_gptq(struct quant_transposed *t, const struct section *s,
                     struct qwick_err *e)
{
    static const char key[] = "checkpoint_format";
    int64_t bits;
    t->form = TRANSPOSED_GPTQ;
    if (json_int(json_get(s->v, "bits"), 2, 8, &bits) ||
        (bits > 4 && bits < 8))
        return section_bad(s, "bits", "2, 3, 4 or 8, as quant_method is gptq",
                           e);
    t->bits = (int)bits;
    if (!is_either(s, key, "gptq", "gptq_v2"))
        return section_bad(s, key, "\"gptq\" or \"gptq_v2\"", e);
    t->zero_plus = json_equals(json_get(s->v, key), "gptq_v2") ? 0 : 1;
    if (section_opt_bool(s, "desc_act", false, &t->any_order, e) ||
        section_opt_bool(s, "sym", true, &t->symmetric, e))
        return -1;
    return fixed_check(s, fixed_gptq, NULL, e) || check_rules(s, e) ? -1 : 0;
}

int quant_read_transposed(struct quant *q, const struct section *s,
                          struct qwick_err *e)
{
    struct quant_transposed *t = &q->transposed;
    bool awq = json_equals(json_get(s->v, "quant_method"), "awq");
    return (awq ? read_awq : read_gptq)(t, s, e) || read_group(t, s, e) ? -1
                                                                        : 0;
}
