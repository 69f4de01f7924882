#include "model/fixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/section.h"

/* What transformers reads for any model (masking_utils.py,
 * configuration_utils.py), and older names of quantization. */
const struct fixed_field fixed_common[] = {
    {"is_causal", "true"},           {"use_bidirectional_attention", "false"},
    {"is_encoder_decoder", "false"}, {"add_cross_attention", "false"},
    {"pruned_heads", "{}"},          {"per_layer_config", "{}"},
    {"compression_config", "null"},  {NULL, NULL},
};

const struct fixed_field fixed_llama[] = {FIXED_LLAMA, {NULL, NULL}};

static bool has_value(const struct json_value *v, const char *expected)
{
    double number;
    switch (v->type) {
    case JSON_STRING: /* expected has quotes */
        return expected[0] == '"' && v->len == strlen(expected) - 2 &&
               memcmp(v->str, expected + 1, v->len) == 0;
    case JSON_BOOL:
        return strcmp(expected, v->boolean ? "true" : "false") == 0;
    case JSON_NUMBER:
        return strchr("0123456789", expected[0]) && !json_double(v, &number) &&
               number == strtod(expected, NULL);
    case JSON_ARRAY:
    case JSON_OBJECT:
        return strcmp(expected, "{}") == 0 && v->len == 0;
    case JSON_NULL:
        break;
    }
    return true;
}

static int check_field(const struct section *s, const struct fixed_field *f,
                       struct qwick_err *e)
{
    char names[96], in[160], expected[64];
    struct section at = *s;
    snprintf(names, sizeof names, "%s", f->path);
    snprintf(in, sizeof in, "%s", s->in);
    char *key = names, *dot;
    while ((dot = strchr(key, '.')) && at.v) {
        *dot = '\0';
        size_t n = strlen(in);
        snprintf(in + n, sizeof in - n, "%s.", key);
        at = section_inner(&at, key, in);
        key = dot + 1;
    }
    const struct json_value *v = json_get(at.v, key);
    if (!v || has_value(v, f->expected))
        return 0;
    if (strchr("tf", f->expected[0]) && v->type != JSON_BOOL)
        return section_bad(&at, key, "true or false", e);
    snprintf(expected, sizeof expected, "%s (others are not supported)",
             strcmp(f->expected, "{}") == 0 ? "empty" : f->expected);
    return section_bad(&at, key, expected, e);
}

static bool is_in(const char *const *paths, const char *path)
{
    for (; paths && *paths; paths++)
        if (strcmp(*paths, path) == 0)
            return true;
    return false;
}

int fixed_check(const struct section *s, const struct fixed_field *table,
                const char *const *except, struct qwick_err *e)
{
    for (; table->path; table++)
        if (!is_in(except, table->path) && check_field(s, table, e))
            return -1;
    return 0;
}
