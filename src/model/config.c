#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/section.h"

/* Still a normal float32. A row of zeros has no norm without it. */
#define MIN_EPS 1e-30

int config_add_stop(struct config *c, int32_t id)
{
    for (size_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] == id)
            return 0;
    if (c->n_stop_ids == CONFIG_MAX_STOP_IDS)
        return -1;
    c->stop_ids[c->n_stop_ids++] = id;
    return 0;
}

static int add_stop_value(struct config *c, const struct section *s,
                          const struct json_value *v, struct qwick_err *e)
{
    int64_t id;
    if (json_int(v, 0, INT32_MAX, &id))
        return section_bad(s, "eos_token_id", "a token id or a list of them",
                           e);
    if (config_add_stop(c, (int32_t)id))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: eos_token_id: more than %d stop ids", s->path,
                       CONFIG_MAX_STOP_IDS);
    return 0;
}

static int read_stop_ids(struct config *c, const struct section *s,
                         struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "eos_token_id");
    if (section_absent(s, "eos_token_id"))
        return 0;
    if (v->type != JSON_ARRAY)
        return add_stop_value(c, s, v, e);
    for (size_t i = 0; i < v->len; i++)
        if (add_stop_value(c, s, &v->items[i], e))
            return -1;
    return 0;
}

int config_read_common(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (quant_read(&c->quant, s, e))
        return -1;
    if (section_size(s, "vocab_size", MAX_VOCAB, &c->vocab_size, e) ||
        section_size(s, "hidden_size", MAX_DIM, &c->d_model, e) ||
        section_size(s, "intermediate_size", MAX_DIM, &c->d_ff, e) ||
        section_size(s, "num_hidden_layers", MAX_LAYERS, &c->n_layers, e) ||
        section_size(s, "num_attention_heads", MAX_DIM, &c->n_heads, e) ||
        section_size(s, "num_key_value_heads", MAX_DIM, &c->n_kv_heads, e) ||
        section_size(s, "head_dim", MAX_DIM, &c->head_dim, e) ||
        section_size(s, "max_position_embeddings", INT32_MAX, &c->n_ctx_max,
                     e) ||
        section_double(s, "rms_norm_eps", MIN_EPS, 1, &c->rms_eps, e) ||
        section_bool(s, "tie_word_embeddings", &c->tied_head, e) ||
        section_opt_bool(s, "attention_bias", false, &c->attention_bias, e))
        return -1;
    if (c->n_heads % c->n_kv_heads)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: num_attention_heads: %zu is no multiple of "
                       "num_key_value_heads, %zu",
                       s->path, c->n_heads, c->n_kv_heads);
    if (c->n_heads * c->head_dim > MAX_DIM)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: num_attention_heads times head_dim: %zu times %zu "
                       "is over %d",
                       s->path, c->n_heads, c->head_dim, MAX_DIM);
    c->layers = calloc(c->n_layers, sizeof *c->layers);
    if (!c->layers)
        return err_oom(e, c->n_layers * sizeof *c->layers);
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i] =
            (struct layer_config){.window = NO_WINDOW, .d_ff = c->d_ff};
    return read_stop_ids(c, s, e);
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    const struct json_value *type = json_get(s->v, "model_type");
    c->arch =
        json_is(type, JSON_STRING) ? arch_find(type->str, type->len) : NULL;
    if (!c->arch) {
        char names[192], want[224];
        arch_names(names, sizeof names);
        snprintf(want, sizeof want, "%s (what is supported)", names);
        return section_bad(s, "model_type", want, e);
    }
    snprintf(c->model_type, sizeof c->model_type, "%s", c->arch->model_type);
    return c->arch->read_config(c, s, e);
}

int config_read_generation(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    if (read_stop_ids(c, s, e) ||
        section_opt_bool(s, "do_sample", false, &c->do_sample, e) ||
        section_opt_double(s, "temperature", 1, 0, 1e6, &c->temperature, e) ||
        section_opt_double(s, "top_p", 1, 0, 1, &c->top_p, e) ||
        section_opt_double(s, "min_p", 0, 0, 1, &c->min_p, e) ||
        section_opt_double(s, "repetition_penalty", 1, 1e-6, 1e6,
                           &c->repetition_penalty, e))
        return -1;
    /* transformers: 50 when not given, none when null */
    c->top_k = json_get(s->v, "top_k") ? 0 : 50;
    if (!section_absent(s, "top_k")) {
        int64_t k;
        if (json_int(json_get(s->v, "top_k"), 0, INT32_MAX, &k))
            return section_bad(s, "top_k", "an integer from 0", e);
        c->top_k = (size_t)k;
    }
    return 0;
}

static int load_file(struct config *c, const struct checkpoint *ck,
                     const char *name, bool required,
                     int (*read)(struct config *, const struct section *,
                                 struct qwick_err *),
                     struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[512];
    checkpoint_path(ck, name, path, sizeof path);
    if (checkpoint_map_small(ck, name, &map, &found, e))
        return -1;
    if (!found)
        return required ? err_set(e, QWICK_ERR_MODEL,
                                  "%s: no such file: not a checkpoint", path)
                        : 0;
    struct json_doc *doc;
    int rc = json_parse(&doc, path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    if (!rc) {
        struct section s = {.v = json_root(doc), .path = path, .in = ""};
        rc = s.v->type == JSON_OBJECT
                 ? read(c, &s, e)
                 : err_set(e, QWICK_ERR_MODEL, "%s: must be a JSON object",
                           path);
        json_free(doc);
    }
    map_close(&map);
    return rc;
}

int config_load(struct config *c, const struct checkpoint *ck,
                struct qwick_err *e)
{
    *c = (struct config){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    const struct gguf *g = checkpoint_gguf(ck);
    if (g) {
        if (!config_read_gguf(c, g, e))
            return 0;
        config_free(c);
        return -1;
    }
    if (load_file(c, ck, "config.json", true, read_config, e) ||
        load_file(c, ck, "generation_config.json", false,
                  config_read_generation, e)) {
        config_free(c);
        return -1;
    }
    return 0;
}

void config_free(struct config *c)
{
    free(c->layers);
    c->layers = NULL;
    quant_free(&c->quant);
}
