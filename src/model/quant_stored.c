#include "model/quant_stored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/fixed.h"
#include "model/module_pattern.h"
#include "model/names.h"
#include "model/quant.h"
#include "model/weights.h"

enum { SHOWN = 40 };

static const struct fixed_field fixed_all[] = {
    {"sparsity_config.format", "\"dense\""},
    {"transform_config", "{}"},
    {NULL, NULL}};

static const struct fixed_field fixed_packed[] = {
    {"weights.type", "\"int\""}, {"weights.dynamic", "false"}, {NULL, NULL}};

static const struct fixed_field fixed_int8[] = {
    {"weights.num_bits", "8"},     {"weights.type", "\"int\""},
    {"weights.symmetric", "true"}, {"weights.dynamic", "false"},
    {"weights.actorder", "null"},  {NULL, NULL}};

static const struct fixed_field fixed_fp8[] = {
    {"weights.num_bits", "8"},     {"weights.type", "\"float\""},
    {"weights.symmetric", "true"}, {"weights.dynamic", "false"},
    {"weights.actorder", "null"},  {NULL, NULL}};

static const struct fixed_field fixed_nvfp4[] = {{"weights.num_bits", "4"},
                                                 {"weights.type", "\"float\""},
                                                 {"weights.symmetric", "true"},
                                                 {"weights.dynamic", "false"},
                                                 {"weights.actorder", "null"},
                                                 {"weights.group_size", "16"},
                                                 {NULL, NULL}};

/* The formats of compressed-tensors. */
static const struct form {
    const char *format, *strategies;
    enum stored_form form;
    const struct fixed_field *fixed;
} forms[] = {
    {"pack-quantized", "\"group\" or \"channel\"", STORED_PACKED, fixed_packed},
    {"int-quantized", "\"group\", \"channel\" or \"tensor\"", STORED_INT8,
     fixed_int8},
    {"float-quantized", "\"tensor\", \"channel\" or \"block\"", STORED_FP8,
     fixed_fp8},
    {"nvfp4-pack-quantized", "\"tensor_group\"", STORED_NVFP4, fixed_nvfp4},
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static const struct form *find_form(const struct json_value *format)
{
    for (size_t i = 0; i < N_FORMS; i++)
        if (json_equals(format, forms[i].format))
            return &forms[i];
    return NULL;
}

static bool is_modelopt(const struct json_value *v)
{
    return json_equals(json_get(v, "quant_method"), "modelopt");
}

bool quant_is_stored(const struct json_value *v)
{
    const struct json_value *format = json_get(v, "format");
    const struct json_value *algo = json_get(v, "quant_algo");
    if (is_modelopt(v))
        return json_equals(algo, "NVFP4") || json_equals(algo, "FP8");
    return json_equals(json_get(v, "quant_method"), "compressed-tensors") &&
           (find_form(format) || json_equals(format, "mixed-precision"));
}

static int add_pattern(struct quant_stored *q, const struct json_value *v,
                       struct qwick_err *e)
{
    if (ARRAY_RESERVE(q->patterns, q->cap_patterns, q->n_patterns + 1, e))
        return -1;
    char *copy = malloc(v->len + 1);
    if (!copy)
        return err_oom(e, v->len + 1);
    memcpy(copy, v->str, v->len);
    copy[v->len] = '\0';
    q->patterns[q->n_patterns++] = copy;
    return 0;
}

/* A list of names and patterns; a member of another type matches nothing. */
static int read_list(struct quant_stored *q, const struct section *s,
                     const char *key, struct qwick_err *e)
{
    const struct json_value *list = json_get(s->v, key);
    if (section_absent(s, key))
        return 0;
    if (!json_is(list, JSON_ARRAY))
        return section_bad(s, key, "an array", e);
    for (size_t i = 0; i < list->len; i++)
        if (json_is(&list->items[i], JSON_STRING) &&
            add_pattern(q, &list->items[i], e))
            return -1;
    return 0;
}

/* The columns that share a scale, and how. */
static int read_strategy(struct quant *q, struct stored_group *g,
                         const struct section *w, const struct form *f,
                         struct qwick_err *e)
{
    const struct json_value *strategy = json_get(w->v, "strategy");
    if (f->form == STORED_NVFP4) {
        g->group = 16;
        return json_equals(strategy, "tensor_group")
                   ? 0
                   : section_bad(w, "strategy", f->strategies, e);
    }
    if (json_equals(strategy, "channel"))
        return 0;
    if (json_equals(strategy, "tensor") && f->form != STORED_PACKED) {
        g->by_matrix = true;
        return 0;
    }
    if (json_equals(strategy, "block") && f->form == STORED_FP8)
        return quant_read_block(q, w, "block_structure", e);
    if (!json_equals(strategy, "group") || f->form == STORED_FP8)
        return section_bad(w, "strategy", f->strategies, e);
    int64_t group;
    if (json_int(json_get(w->v, "group_size"), 32, 1 << 20, &group) ||
        group % 32)
        return section_bad(w, "group_size", "a multiple of 32", e);
    g->group = (size_t)group;
    return 0;
}

static int read_weights(struct quant *q, struct stored_group *g,
                        const struct section *w, const struct form *f,
                        struct qwick_err *e)
{
    const struct json_value *order = json_get(w->v, "actorder");
    int64_t bits = f->form == STORED_NVFP4 ? 4 : 8;
    if (f->form == STORED_PACKED) {
        if (json_int(json_get(w->v, "num_bits"), 2, 8, &bits) ||
            (bits != 2 && bits != 4 && bits != 8))
            return section_bad(w, "num_bits", "2, 4 or 8", e);
        if (!section_absent(w, "actorder") && !json_equals(order, "weight") &&
            !json_equals(order, "static"))
            return section_bad(w, "actorder", "null, \"weight\" or \"static\"",
                               e);
        if (section_opt_bool(w, "symmetric", true, &g->symmetric, e))
            return -1;
    }
    g->bits = (int)bits;
    return read_strategy(q, g, w, f, e);
}

/* One of config_groups. all: the form of groups that name none. */
static int read_group(struct quant *q, struct stored_group *g,
                      const struct section *s, const struct form *all,
                      struct qwick_err *e)
{
    char in[192];
    const struct form *f =
        section_absent(s, "format") ? all : find_form(json_get(s->v, "format"));
    if (!f)
        return section_bad(s, "format",
                           "\"pack-quantized\", \"int-quantized\", "
                           "\"float-quantized\" or \"nvfp4-pack-quantized\"",
                           e);
    if (fixed_check(s, f->fixed, 0, e))
        return -1;
    snprintf(in, sizeof in, "%sweights.", s->in);
    struct section w = section_inner(s, "weights", in);
    snprintf(g->in, sizeof g->in, "%sweights", s->in);
    g->form = f->form;
    g->symmetric = true;
    g->first = q->stored.n_patterns;
    if (read_weights(q, g, &w, f, e) || read_list(&q->stored, s, "targets", e))
        return -1;
    g->n_targets = q->stored.n_patterns - g->first;
    q->fp8 = q->fp8 || f->form == STORED_FP8;
    return 0;
}

static int read_groups(struct quant *q, const struct section *s,
                       struct qwick_err *e)
{
    const struct json_value *groups = json_get(s->v, "config_groups");
    const struct form *all = find_form(json_get(s->v, "format"));
    if (fixed_check(s, fixed_all, 0, e))
        return -1;
    if (!json_is(groups, JSON_OBJECT))
        return section_bad(s, "config_groups", "an object", e);
    q->fp8 = all && all->form == STORED_FP8;
    q->stored.groups = calloc(groups->len + 1, sizeof *q->stored.groups);
    if (!q->stored.groups)
        return err_oom(e, groups->len * sizeof *q->stored.groups);
    for (size_t i = 0; i < groups->len; i++) {
        const struct json_value *key = &groups->keys[i];
        char in[160];
        snprintf(in, sizeof in, "%sconfig_groups.%.*s.", s->in,
                 (int)(key->len < SHOWN ? key->len : SHOWN), key->str);
        struct section group = *s;
        group.v = &groups->items[i];
        group.in = in;
        if (read_group(q, &q->stored.groups[q->stored.n_groups++], &group, all,
                       e))
            return -1;
    }
    return 0;
}

/* ModelOpt's matrices have one form. */
static int read_modelopt(struct quant *q, const struct section *s,
                         struct qwick_err *e)
{
    q->fp8 = json_equals(json_get(s->v, "quant_algo"), "FP8");
    q->stored.groups = calloc(1, sizeof *q->stored.groups);
    if (!q->stored.groups)
        return err_oom(e, sizeof *q->stored.groups);
    q->stored.n_groups = 1;
    q->stored.groups[0] =
        (struct stored_group){.form = q->fp8 ? STORED_FP8 : STORED_NVFP4,
                              .bits = q->fp8 ? 8 : 4,
                              .group = q->fp8 ? 0 : 16,
                              .by_matrix = true,
                              .symmetric = true};
    snprintf(q->stored.groups[0].in, sizeof q->stored.groups[0].in,
             "%squant_algo", s->in);
    return 0;
}

int quant_read_stored(struct quant *q, const struct section *s,
                      struct qwick_err *e)
{
    if (is_modelopt(s->v) ? read_modelopt(q, s, e) : read_groups(q, s, e))
        return -1;
    q->stored.ignored = q->stored.n_patterns;
    return read_list(&q->stored, s, "ignore", e);
}

void quant_free_stored(struct quant *q)
{
    for (size_t i = 0; i < q->stored.n_patterns; i++)
        free(q->stored.patterns[i]);
    free(q->stored.patterns);
    free(q->stored.groups);
    q->stored = (struct quant_stored){0};
}

/* Targets are modules, or classes of modules, which have no dots: a name wins
 * over a class. Any matrix may be a Linear. */
static const struct stored_group *find_group(const struct quant_stored *q,
                                             const char *module)
{
    const struct stored_group *any = NULL;
    for (size_t i = 0; i < q->n_groups; i++)
        for (size_t k = 0; k < q->groups[i].n_targets; k++) {
            const char *target = q->patterns[q->groups[i].first + k];
            if (module_matches(target, module))
                return &q->groups[i];
            if (!any && strcmp(target, "Linear") == 0)
                any = &q->groups[i];
        }
    return any || q->n_groups != 1 ? any : q->groups;
}

const struct stored_group *
quant_stored_find(const struct quant *q, const char *module,
                  enum stored_form form, const char *path, const char *tensor,
                  struct qwick_err *e)
{
    static const char *const names[] = {[STORED_NONE] = "nothing",
                                        [STORED_PACKED] =
                                            "pack-quantized weights",
                                        [STORED_INT8] = "int8 weights",
                                        [STORED_FP8] = "FP8 weights",
                                        [STORED_NVFP4] = "NVFP4 weights"};
    const struct quant_stored *s = q ? &q->stored : NULL;
    if (!s || !s->groups) {
        err_set(e, QWICK_ERR_MODEL,
                "%s: tensor %s: means %s, but config.json has no "
                "\"quantization_config\" of them",
                path, tensor, names[form]);
        return NULL;
    }
    for (size_t i = s->ignored; i < s->n_patterns; i++)
        if (module_matches(s->patterns[i], module)) {
            err_set(e, QWICK_ERR_MODEL,
                    "%s: tensor %s: means %s, but config.json's %s.ignore has "
                    "\"%.*s\"",
                    path, tensor, names[form], q->key, SHOWN, s->patterns[i]);
            return NULL;
        }
    const struct stored_group *g = find_group(s, module);
    if (!g)
        err_set(e, QWICK_ERR_MODEL,
                "%s: tensor %s: means %s, but no group of config.json's "
                "%s.config_groups has %s as a target",
                path, tensor, names[form], q->key, module);
    else if (g->form != form)
        err_set(e, QWICK_ERR_MODEL,
                "%s: tensor %s: means %s, but config.json's %s is about %s",
                path, tensor, names[form], g->in, names[g->form]);
    return g && g->form == form ? g : NULL;
}

bool quant_stored_shape(const struct quant *q, const struct st_tensor *t,
                        struct matrix_shape *out)
{
    char module[NAMES_BYTES];
    const size_t n = names_module(t->name);
    const bool packed = strcmp(t->name + n, NAMES_PACKED) == 0;
    if (!t->name[n] || t->rank != 2 || n >= sizeof module)
        return false;
    snprintf(module, sizeof module, "%.*s", (int)n, t->name);
    const enum stored_form form = t->dtype == DT_U8   ? STORED_NVFP4
                                  : packed            ? STORED_PACKED
                                  : t->dtype == DT_I8 ? STORED_INT8
                                                      : STORED_NONE;
    const struct stored_group *g =
        form ? quant_stored_find(q, module, form, "", t->name, NULL) : NULL;
    if (!g)
        return false;
    const size_t each = form == STORED_NVFP4    ? 2
                        : form == STORED_PACKED ? 32 / (size_t)g->bits
                                                : 1;
    *out =
        (struct matrix_shape){.rows = t->shape[0], .cols = t->shape[1] * each};
    return true;
}
