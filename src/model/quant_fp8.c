/* FP8 weights in "quantization_config": transformers' quant_method fp8.
 *
 *     {"quant_method": "fp8", "weight_block_size": [128, 128],
 *      "modules_to_not_convert": ["lm_head"]}
 *
 * A module has FP8 weights if and only if its tensor has that type. So lists of
 * modules do not count. Activations are never rounded to FP8, nor is the cache,
 * so what is said about them does not count, either. */
#include <stdio.h>
#include <string.h>

#include "model/fixed.h"
#include "model/quant.h"

/* Blocks have a multiple of so many columns (struct fp8). */
enum { COLUMNS = 32, MAX_BLOCK = 1 << 20 };

static const struct fixed_field fixed_fp8[] = {{"fmt", "\"e4m3\""},
                                               {NULL, NULL}};

bool quant_is_fp8(const struct json_value *v)
{
    return json_equals(json_get(v, "quant_method"), "fp8");
}

int quant_read_block(struct quant *q, const struct section *s, const char *key,
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

int quant_read_fp8(struct quant *q, const struct section *s,
                   struct qwick_err *e)
{
    q->fp8 = true;
    if (fixed_check(s, fixed_fp8, 0, e))
        return -1;
    return section_absent(s, "weight_block_size")
               ? 0
               : quant_read_block(q, s, "weight_block_size", e);
}
