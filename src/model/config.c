#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/json.h"
#include "model/arch.h"
#include "model/fixed.h"
#include "model/section.h"
#include "model/unsupported.h"

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

int config_read_stops(struct config *c, const struct section *s,
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

/* Fields with a default where *out is not 0. */
static int read_size(const struct section *s, const char *key, size_t max,
                     size_t *out, struct qwick_err *e)
{
    return *out ? section_opt_size(s, key, *out, max, out, e)
                : section_size(s, key, max, out, e);
}

static int read_eps(const struct arch *arch, const struct section *s,
                    double *out, struct qwick_err *e)
{
    const char *key = arch->eps ? arch->eps : "rms_norm_eps";
    return *out > 0 ? section_opt_double(s, key, *out, MIN_EPS, 1, out, e)
                    : section_double(s, key, MIN_EPS, 1, out, e);
}

/* Of a model that takes more than text, the whole may say it. */
static int read_tied(const struct section *s, bool is_optional, bool *out,
                     struct qwick_err *e)
{
    static const char key[] = "tie_word_embeddings";
    const struct section whole = {.v = s->whole, .path = s->path, .in = ""};
    if (s->whole && section_absent(s, key) && !section_absent(&whole, key))
        return section_bool(&whole, key, out, e);
    return *out || is_optional ? section_opt_bool(s, key, *out, out, e)
                               : section_bool(s, key, out, e);
}

/* The fields of heads. Where a family implies them: as many heads of keys and
 * values as of queries, and all heads together as wide as the model. */
static int read_heads(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    if (read_size(s, "num_attention_heads", MAX_DIM, &c->n_heads, e))
        return -1;
    if (c->arch->implies_heads) {
        c->n_kv_heads = c->n_heads;
        c->head_dim = c->d_model / c->n_heads;
    }
    return read_size(s, "num_key_value_heads", MAX_DIM, &c->n_kv_heads, e) ||
                   read_size(s, "head_dim", MAX_DIM, &c->head_dim, e)
               ? -1
               : 0;
}

void config_set_heads(struct config *c)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        c->layers[i].n_kv_heads = c->n_kv_heads;
        c->layers[i].head_dim = c->head_dim;
        c->layers[i].score_scale = 1.0f / sqrtf((float)c->head_dim);
    }
}

int config_read_common(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    bool bias;
    if (read_size(s, "vocab_size", MAX_VOCAB, &c->vocab_size, e) ||
        read_size(s, "hidden_size", MAX_DIM, &c->d_model, e) ||
        read_size(s, "intermediate_size", MAX_DIM, &c->d_ff, e) ||
        read_size(s, "num_hidden_layers", MAX_LAYERS, &c->n_layers, e) ||
        read_heads(c, s, e) ||
        read_size(s, "max_position_embeddings", INT32_MAX, &c->n_ctx_max, e) ||
        read_eps(c->arch, s, &c->rms_eps, e) ||
        read_tied(s, c->arch->implies_heads, &c->tied_head, e) ||
        section_opt_bool(s, "attention_bias", false, &bias, e))
        return -1;
    c->qkv_bias = c->o_bias = bias;
    if (c->n_heads % c->n_kv_heads)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: num_attention_heads: %zu is not a multiple of "
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
    config_set_heads(c);
    return config_read_stops(c, s, e);
}

int config_check_head_dim(const struct config *c, const struct section *s,
                          struct qwick_err *e)
{
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].head_dim % 2)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: head_dim: must be even for rotary embedding, "
                           "is %zu",
                           s->path, c->layers[i].head_dim);
    return 0;
}

int config_read_llama(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    if (config_read_common(c, s, e) || config_check_head_dim(c, s, e))
        return -1;
    c->n_ropes = 1;
    c->ropes[0].n_rot = c->head_dim;
    return config_read_rope(c, &c->ropes[0], s, e);
}

int config_read_layer_types(struct config *c, const struct section *s,
                            struct qwick_err *e)
{
    const struct json_value *types = json_get(s->v, "layer_types");
    if (types->type != JSON_ARRAY || types->len != c->n_layers)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: layer_types: must be a list of %zu strings "
                       "(num_hidden_layers), has %zu",
                       s->path, c->n_layers,
                       types->type == JSON_ARRAY ? types->len : 0);
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct json_value *t = &types->items[i];
        if (json_equals(t, "full_attention"))
            continue;
        if (delta_channels(&c->delta) &&
            json_equals(t, c->arch->recurrence->layer_type)) {
            c->layers[i].recurrent = true;
            continue;
        }
        if (!json_equals(t, "sliding_attention")) {
            char got[64];
            section_describe(t, got, sizeof got);
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: layer_types[%zu]: %s is not supported", s->path,
                           i, got);
        }
        if (!c->sliding_window)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: layer_types[%zu]: sliding_attention, but no "
                           "sliding_window is in use",
                           s->path, i);
        c->layers[i].window = c->sliding_window;
    }
    return 0;
}

int config_read_windows(struct config *c, const struct section *s,
                        size_t pattern, struct qwick_err *e)
{
    static const char key[] = "sliding_window";
    if (section_absent(s, key) && !c->sliding_window)
        return 0;
    if (section_opt_size(s, key, c->sliding_window, INT32_MAX,
                         &c->sliding_window, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    for (size_t i = 0; i < c->n_layers; i++)
        if ((i + 1) % pattern)
            c->layers[i].window = c->sliding_window;
    return 0;
}

int config_set_bidirectional(struct config *c, const struct section *s,
                             struct qwick_err *e)
{
    static const char key[] = "is_causal";
    bool causal = false;
    if (section_is_gguf(s) &&
        section_opt_bool(s, key, false, &causal, e))
        return -1;
    if (causal)
        return section_bad(s, key, "false: this is an encoder", e);
    c->bidirectional = true;
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].window != NO_WINDOW)
            c->layers[i].window = c->layers[i].window / 2 + 1;
    return 0;
}

/* The object that holds the family's fields: all of the file, or text_config of
 * a model that takes more than text. */
static int find_text(const struct config *c, const struct section *s,
                     bool wrapped, struct section *out, struct qwick_err *e)
{
    *out = *s;
    if (!wrapped || (c->arch->wraps_flat && section_absent(s, "text_config")))
        return 0;
    *out = section_inner(s, "text_config", "text_config.");
    out->whole = s->v;
    if (!out->v || out->v->type != JSON_OBJECT)
        return section_bad(s, "text_config", "an object", e);
    const struct json_value *type = json_get(out->v, "model_type");
    if (!section_absent(out, "model_type") &&
        !json_equals(type, c->arch->model_type)) {
        char expected[64];
        snprintf(expected, sizeof expected, "\"%s\"", c->arch->model_type);
        return section_bad(out, "model_type", expected, e);
    }
    return 0;
}

/* ---- what the checkpoint is for ------------------------------------------ */

static enum model_class class_of(const struct json_value *name)
{
    static const struct {
        const char *end;
        enum model_class class;
    } ends[] = {{"ForCausalLM", CLASS_LANGUAGE},
                {"ForConditionalGeneration", CLASS_LANGUAGE},
                {"ForSequenceClassification", CLASS_CLASSIFIER},
                {"ForMaskedLM", CLASS_BARE},
                {"Model", CLASS_BARE}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i].end);
        if (name->len >= n &&
            memcmp(name->str + name->len - n, ends[i].end, n) == 0)
            return ends[i].class;
    }
    return CLASS_OTHER;
}

static int read_class(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    const struct json_value *list = json_get(s->v, "architectures");
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++) {
        const struct json_value *name = &list->items[i];
        if (name->type != JSON_STRING)
            return section_bad(s, "architectures", "a list of names", e);
        enum model_class class = class_of(name);
        if (class <= c->class)
            continue;
        c->class = class;
        snprintf(c->class_name, sizeof c->class_name, "%.60s",
                 ERR_SHOW(name->str, name->len));
    }
    return section_absent(s, "architectures") || list->type == JSON_ARRAY
               ? 0
               : section_bad(s, "architectures", "a list of names", e);
}

/* auto_map names classes in files of the checkpoint. Those of tokenizers and
 * configurations do not concern us. */
static void read_own_code(struct config *c, const struct section *s)
{
    static const char models[] = "AutoModel";
    const struct json_value *map = json_get(s->v, "auto_map");
    for (size_t i = 0; json_is(map, JSON_OBJECT) && i < map->len; i++) {
        if (map->keys[i].len < strlen(models) ||
            memcmp(map->keys[i].str, models, strlen(models)) != 0)
            continue;
        snprintf(c->own_code, sizeof c->own_code, "auto_map.%.50s",
                 ERR_SHOW(map->keys[i].str, map->keys[i].len));
        return;
    }
}

static void read_labels(struct config *c, const struct section *s)
{
    const struct json_value *labels = json_get(s->v, "id2label");
    int64_t n;
    if (json_is(labels, JSON_OBJECT))
        c->n_labels = labels->len;
    else if (!json_int(json_get(s->v, "num_labels"), 0, INT32_MAX, &n))
        c->n_labels = (size_t)n;
}

static int check_fixed(const struct config *c, const struct section *s,
                       const struct section *text, struct qwick_err *e)
{
    const char *const *own = c->arch->own_fields;
    return fixed_check(s, fixed_common, own, e) ||
                   (text->v != s->v &&
                    fixed_check(text, fixed_common, own, e)) ||
                   fixed_check(text, c->arch->fixed, NULL, e)
               ? -1
               : 0;
}

const struct arch *config_find_arch(const struct json_value *root,
                                    bool *wrapped)
{
    const struct json_value *type = json_get(root, "model_type");
    const struct json_value *text = json_get(root, "text_config");
    const struct json_value *inner =
        json_is(text, JSON_OBJECT) ? json_get(text, "model_type") : NULL;
    bool named = json_is(inner, JSON_STRING);
    *wrapped = false;
    if (!json_is(type, JSON_STRING))
        return NULL;
    const struct arch *a = arch_find(type->str, type->len);
    *wrapped = !a;
    return a ? a
             : arch_find_wrapped(type->str, type->len,
                                 named ? inner->str : NULL,
                                 named ? inner->len : 0);
}

/* Quantization, the stop ids and the class belong to the whole model. */
static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    struct section text;
    bool wrapped;
    c->arch = config_find_arch(s->v, &wrapped);
    if (!c->arch) {
        const struct json_value *type = json_get(s->v, "model_type");
        char why[160];
        if (!json_is(type, JSON_STRING))
            return section_bad(s, "model_type", "a family's name", e);
        unsupported_describe(why, sizeof why, type->str, type->len);
        return err_set(e, QWICK_ERR_MODEL, "%s: model_type: %s", s->path, why);
    }
    snprintf(c->model_type, sizeof c->model_type, "%s", c->arch->model_type);
    read_own_code(c, s);
    read_labels(c, s);
    return find_text(c, s, wrapped, &text, e) || read_class(c, s, e) ||
                   quant_read(&c->quant, s, e) || check_fixed(c, s, &text, e) ||
                   c->arch->read_config(c, &text, e) || config_read_stops(c, s, e)
               ? -1
               : 0;
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
    int rc = json_parse_python(&doc, path, (const char *)map.data, map.size,
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
    *c = (struct config){.embed_scale = 1,
                         .residual_scale = 1,
                         .routed_scale = 1,
                         .logit_scale = 1,
                         .temperature = 1,
                         .top_p = 1,
                         .repetition_penalty = 1};
    const struct gguf *g = checkpoint_gguf(ck);
    if (g ? config_read_gguf(c, g, e)
          : load_file(c, ck, "config.json", true, read_config, e) ||
                load_file(c, ck, "generation_config.json", false,
                          config_read_generation, e)) {
        config_free(c);
        return -1;
    }
    for (size_t i = 0; i < c->n_ropes; i++)
        c->ropes[i].interleaved =
            g ? c->arch->gguf_interleaved : c->arch->interleaved;
    config_number_layers(c);
    return 0;
}

bool config_unscaled(const struct config *c)
{
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].score_scale >= 1)
            return true;
    return false;
}

void config_number_layers(struct config *c)
{
    size_t n[2] = {0, 0};
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].slot = n[c->layers[i].recurrent]++;
}

void config_free(struct config *c)
{
    free(c->layers);
    free(c->suppress);
    c->layers = NULL;
    c->suppress = NULL;
    quant_free(&c->quant);
}
