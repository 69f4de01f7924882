/* The JSON files of a quantized checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"

static const char *const own_keys[] = {"quantization", "quantization_config"};
enum { N_OWN_KEYS = sizeof own_keys / sizeof *own_keys };

static const char tied_key[] = "tie_word_embeddings";

int quantize_check_config(const struct json_value *config, const char *path,
                          struct qwick_err *e)
{
    for (int i = 0; i < N_OWN_KEYS; i++) {
        const struct json_value *q = json_get(config, own_keys[i]);
        if (!q || q->type == JSON_NULL)
            continue;
        const struct json_value *method = json_get(q, "quant_method");
        int64_t bits;
        const struct json_value *form = method ? method : json_get(q, "mode");
        if (quant_is_fp8(q) || quant_is_stored(q) ||
            quant_is_transposed(q) ||
            json_equals(form, "mxfp4") || json_equals(form, "mxfp8") ||
            json_equals(form, "nvfp4"))
            continue;
        if (json_is(method, JSON_STRING))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: the checkpoint is quantized already (%s): "
                           "start from the original",
                           path, own_keys[i], method->str);
        if (json_int(json_get(q, "bits"), 1, 64, &bits) == 0)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: the checkpoint is quantized already (%d "
                           "bits): start from the original",
                           path, own_keys[i], (int)bits);
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: the checkpoint is quantized already: start "
                       "from the original",
                       path, own_keys[i]);
    }
    return 0;
}

static int new_line(struct buf *out, int depth)
{
    return buf_printf(out, "\n%*s", 2 * depth, "");
}

/* Whether the member must say false: the source says that a head of its own is
 * tied, and readers would drop it. */
static bool is_untied(const struct quantize_source *s,
                      const struct json_value *key)
{
    return s->untied && json_equals(key, tied_key);
}

/* As Python's json.dumps(v, indent=2, ensure_ascii=False) lays it out, with
 * numbers as they came. The parser has limited the depth. */
static int dump(struct buf *out, const struct quantize_source *s,
                const struct json_value *v, int depth)
{
    bool object = v->type == JSON_OBJECT;
    switch (v->type) {
    case JSON_NULL:
        return buf_puts(out, "null");
    case JSON_BOOL:
        return buf_puts(out, v->boolean ? "true" : "false");
    case JSON_NUMBER:
        return buf_puts(out, v->str);
    case JSON_STRING:
        return buf_json_string(out, v->str, v->len);
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    int rc = buf_putc(out, object ? '{' : '[');
    for (size_t i = 0; i < v->len && !rc; i++) {
        rc = (i > 0 && buf_putc(out, ',')) || new_line(out, depth + 1);
        if (object)
            rc = rc || buf_json_string(out, v->keys[i].str, v->keys[i].len) ||
                 buf_puts(out, ": ");
        rc = rc || (object && is_untied(s, &v->keys[i])
                        ? buf_puts(out, "false")
                        : dump(out, s, &v->items[i], depth + 1));
    }
    if (v->len > 0)
        rc = rc || new_line(out, depth);
    return rc || buf_putc(out, object ? '}' : ']') ? -1 : 0;
}

/* {"group_size", "bits", "mode", and the modules that differ: "MODULE": {…} or
 * false}. */
static int put_quantization(struct buf *out, const struct quantize_plan *p)
{
    int rc = buf_printf(out,
                        "{\n    \"group_size\": %d,\n    \"bits\": %d,\n"
                        "    \"mode\": \"affine\"",
                        p->o->group, p->o->bits);
    for (size_t i = 0; i < p->n_modules && !rc; i++) {
        const struct quantize_module *m = &p->modules[i];
        if ((m->bits == p->o->bits && m->group == p->o->group) || m->bias)
            continue;
        rc = buf_puts(out, ",\n    ") || buf_json_cstr(out, m->name);
        if (m->kept)
            rc = rc || buf_puts(out, ": {\n      \"group_size\": 32,\n"
                                     "      \"bits\": 4,\n"
                                     "      \"mode\": \"mxfp4\"\n    }");
        else if (m->bits == 0)
            rc = rc || buf_puts(out, ": false");
        else
            rc = rc || buf_printf(out,
                                  ": {\n      \"group_size\": %d,\n"
                                  "      \"bits\": %d\n    }",
                                  m->group, m->bits);
    }
    return rc || buf_puts(out, "\n  }") ? -1 : 0;
}

static bool is_own_key(const struct json_value *key)
{
    for (int i = 0; i < N_OWN_KEYS; i++)
        if (json_equals(key, own_keys[i]))
            return true;
    return false;
}

int quantize_config(struct buf *out, const struct quantize_source *s,
                    const struct quantize_plan *p)
{
    const struct json_value *config = json_root(s->config);
    int rc = buf_putc(out, '{');
    for (size_t i = 0; i < config->len && !rc; i++) {
        const struct json_value *key = &config->keys[i];
        /* own keys describe the source */
        if (is_own_key(key) || is_untied(s, key))
            continue;
        rc = new_line(out, 1) || buf_json_string(out, key->str, key->len) ||
             buf_puts(out, ": ") || dump(out, s, &config->items[i], 1) ||
             buf_putc(out, ',');
    }
    if (s->untied && !rc) /* also if the family's default is true */
        rc = new_line(out, 1) || buf_json_cstr(out, tied_key) ||
             buf_puts(out, ": false,");
    for (int i = 0; i < N_OWN_KEYS && !rc; i++)
        rc = new_line(out, 1) || buf_json_cstr(out, own_keys[i]) ||
             buf_puts(out, ": ") || put_quantization(out, p) ||
             (i + 1 < N_OWN_KEYS && buf_putc(out, ','));
    return rc || buf_puts(out, "\n}\n") ? -1 : 0;
}

struct place {
    const char *tensor, *file;
};

static int by_tensor(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return strcmp(x->tensor, y->tensor);
}

int quantize_index(struct buf *out, const struct quantize_plan *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_shards; i++)
        n += p->shards[i].n_out;
    struct place *places = calloc(n + 1, sizeof *places);
    if (!places)
        return -1;
    n = 0;
    for (size_t i = 0; i < p->n_shards; i++)
        for (size_t j = 0; j < p->shards[i].n_out; j++)
            places[n++] =
                (struct place){p->shards[i].out[j].name, p->shards[i].name};
    qsort(places, n, sizeof *places, by_tensor);
    int rc = buf_printf(out,
                        "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n"
                        "  \"weight_map\": {",
                        p->bytes_written);
    for (size_t i = 0; i < n && !rc; i++)
        rc = (i > 0 && buf_putc(out, ',')) || new_line(out, 2) ||
             buf_json_cstr(out, places[i].tensor) || buf_puts(out, ": ") ||
             buf_json_cstr(out, places[i].file);
    free(places);
    return rc || buf_puts(out, "\n  }\n}\n") ? -1 : 0;
}
