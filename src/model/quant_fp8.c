/* FP8 weights in "quantization_config": transformers' quant_method fp8, and
 * compressed-tensors in its format float-quantized.
 *
 *     {"quant_method": "fp8", "weight_block_size": [128, 128],
 *      "modules_to_not_convert": ["lm_head"]}
 *     {"quant_method": "compressed-tensors", "format": "float-quantized",
 *      "config_groups": {"group_0": {"weights": {"num_bits": 8,
 *       "type": "float", "strategy": "channel"}}}, "ignore": ["lm_head"]}
 *
 * A module has FP8 weights if and only if its tensor has that type. So lists of
 * modules do not count. Activations are never rounded to FP8, nor is the cache,
 * so what is said about them does not count, either. */
#include <stdio.h>
#include <string.h>

#include "model/fixed.h"
#include "model/quant.h"

#define COMPRESSED "compressed-tensors"

/* Blocks have a multiple of so many columns (struct fp8). */
enum { COLUMNS = 32, MAX_BLOCK = 1 << 20 };

static const struct fixed_field fixed_fp8[] = {{"fmt", "\"e4m3\""},
                                               {NULL, NULL}};

static const struct fixed_field fixed_compressed[] = {
    {"sparsity_config.format", "\"dense\""},
    {"transform_config", "{}"},
    {NULL, NULL}};

static const struct fixed_field fixed_group[] = {
    {"format", "\"float-quantized\""},
    {"weights.num_bits", "8"},
    {"weights.type", "\"float\""},
    {"weights.symmetric", "true"},
    {"weights.dynamic", "false"},
    {"weights.actorder", "null"},
    {NULL, NULL}};

bool quant_is_fp8(const struct json_value *v)
{
    const struct json_value *method = json_get(v, "quant_method");
    return json_equals(method, "fp8") ||
           (json_equals(method, COMPRESSED) &&
            json_equals(json_get(v, "format"), "float-quantized"));
}

/* The rows and columns of a block. */
static int read_block(struct quant *q, const struct section *s, const char *key,
                      struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, key);
    int64_t rows, cols;
    if (!json_is(v, JSON_ARRAY) || v->len != 2 ||
        json_int(&v->items[0], 1, MAX_BLOCK, &rows) ||
        json_int(&v->items[1], COLUMNS, MAX_BLOCK, &cols) || cols % COLUMNS)
        return section_bad(s, key,
                           "rows and columns of a block, a multiple of 32 "
                           "columns",
                           e);
    if (q->block_rows &&
        (q->block_rows != (size_t)rows || q->block_cols != (size_t)cols))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s%s: is [%zu, %zu], but another group has [%zu, "
                       "%zu]",
                       s->path, s->in, key, (size_t)rows, (size_t)cols,
                       q->block_rows, q->block_cols);
    q->block_rows = (size_t)rows;
    q->block_cols = (size_t)cols;
    return 0;
}

/* One of config_groups. */
static int read_group(struct quant *q, const struct section *s,
                      struct qwick_err *e)
{
    char in[192];
    snprintf(in, sizeof in, "%sweights.", s->in);
    struct section w = section_inner(s, "weights", in);
    const struct json_value *strategy = json_get(w.v, "strategy");
    if (fixed_check(s, fixed_group, 0, e))
        return -1;
    if (json_equals(strategy, "tensor") || json_equals(strategy, "channel"))
        return 0;
    if (json_equals(strategy, "block"))
        return read_block(q, &w, "block_structure", e);
    return section_bad(&w, "strategy", "\"tensor\", \"channel\" or \"block\"",
                       e);
}

static int read_groups(struct quant *q, const struct section *s,
                       struct qwick_err *e)
{
    enum { SHOWN = 40 };
    const struct json_value *groups = json_get(s->v, "config_groups");
    if (fixed_check(s, fixed_compressed, 0, e))
        return -1;
    if (!json_is(groups, JSON_OBJECT))
        return section_bad(s, "config_groups", "an object", e);
    for (size_t i = 0; i < groups->len; i++) {
        const struct json_value *key = &groups->keys[i];
        char in[160];
        snprintf(in, sizeof in, "%sconfig_groups.%.*s.", s->in,
                 (int)(key->len < SHOWN ? key->len : SHOWN), key->str);
        struct section group = *s;
        group.v = &groups->items[i];
        group.in = in;
        if (read_group(q, &group, e))
            return -1;
    }
    return 0;
}

int quant_read_fp8(struct quant *q, const struct section *s,
                   struct qwick_err *e)
{
    q->fp8 = true;
    if (json_equals(json_get(s->v, "quant_method"), COMPRESSED))
        return read_groups(q, s, e);
    if (fixed_check(s, fixed_fp8, 0, e))
        return -1;
    return section_absent(s, "weight_block_size")
               ? 0
               : read_block(q, s, "weight_block_size", e);
}
