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

static bool has_value(const struct json_value *v, const char *want)
{
    double number;
    switch (v->type) {
    case JSON_STRING: /* want has quotes */
        return want[0] == '"' && v->len == strlen(want) - 2 &&
               memcmp(v->str, want + 1, v->len) == 0;
    case JSON_BOOL:
        return strcmp(want, v->boolean ? "true" : "false") == 0;
    case JSON_NUMBER:
        return strchr("0123456789", want[0]) && !json_double(v, &number) &&
               number == strtod(want, NULL);
    case JSON_ARRAY:
    case JSON_OBJECT:
        return strcmp(want, "{}") == 0 && v->len == 0;
    case JSON_NULL:
        break;
    }
    return true;
}

static int check_field(const struct section *s, const struct fixed_field *f,
                       struct qwick_err *e)
{
    char names[96], in[160], want[64];
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
    if (!v || has_value(v, f->want))
        return 0;
    if (strchr("tf", f->want[0]) && v->type != JSON_BOOL)
        return section_bad(&at, key, "true or false", e);
    snprintf(want, sizeof want, "%s (others are not supported)",
             strcmp(f->want, "{}") == 0 ? "empty" : f->want);
    return section_bad(&at, key, want, e);
}

int fixed_check(const struct section *s, const struct fixed_field *table,
                struct qwick_err *e)
{
    for (; table->path; table++)
        if (check_field(s, table, e))
            return -1;
    return 0;
}
