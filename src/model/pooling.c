#include "model/pooling_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "file/checkpoint.h"
#include "file/gguf.h"

int pooling_open_json(struct pooling_file *f, const struct checkpoint *ck,
                      const char *dir, const char *name, struct qwick_err *e)
{
    struct map map;
    bool found;
    char full[POOLING_PATH / 2];
    *f = (struct pooling_file){.s = {.path = f->path, .in = ""}};
    snprintf(full, sizeof full, "%.120s%s%s", dir ? dir : "", dir ? "/" : "",
             name);
    checkpoint_path(ck, full, f->path, sizeof f->path);
    if (dir ? checkpoint_map_small_in(ck, dir, name, &map, &found, e)
            : checkpoint_map_small(ck, name, &map, &found, e))
        return -1;
    if (!found)
        return 0;
    int rc = json_parse_python(&f->doc, f->path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    map_close(&map);
    if (!rc)
        f->s.v = json_root(f->doc);
    return rc;
}

int pooling_open_config(struct pooling_file *f, const struct checkpoint *ck,
                        const char *dir, struct qwick_err *e)
{
    if (pooling_open_json(f, ck, dir, "config.json", e))
        return -1;
    if (!f->s.v)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: no such file, but modules.json names it", f->path);
    return f->s.v->type == JSON_OBJECT
               ? 0
               : err_set(e, QWICK_ERR_MODEL, "%s: must be a JSON object",
                         f->path);
}

/* ---- Pooling ------------------------------------------------------------- */

/* Names of modes: of the field pooling_mode in newer files, and of the fields
 * of older ones. */
static const struct {
    const char *name, *flag;
} mode_names[] = {
    [POOLING_CLS] = {"cls", "pooling_mode_cls_token"},
    [POOLING_MAX] = {"max", "pooling_mode_max_tokens"},
    [POOLING_MEAN] = {"mean", "pooling_mode_mean_tokens"},
    [POOLING_MEAN_SQRT] = {"mean_sqrt_len_tokens",
                           "pooling_mode_mean_sqrt_len_tokens"},
    [POOLING_WEIGHTED_MEAN] = {"weightedmean",
                               "pooling_mode_weightedmean_tokens"},
    [POOLING_LAST] = {"lasttoken", "pooling_mode_lasttoken"}};

const char *pooling_mode_name(enum pooling_mode mode)
{
    return mode_names[mode].name;
}

static int add_named(struct pooling_modes *modes, const struct section *s,
                     const struct json_value *v, struct qwick_err *e)
{
    for (size_t i = 0; i < N_POOLING_MODES; i++)
        if (json_equals(v, mode_names[i].name) && modes->n < N_POOLING_MODES) {
            modes->v[modes->n++] = (enum pooling_mode)i;
            return 0;
        }
    return section_bad(s, "pooling_mode",
                       "cls, max, mean, mean_sqrt_len_tokens, weightedmean or "
                       "lasttoken, or a list of up to 6 of these",
                       e);
}

/* pooling_mode, of newer files: a name, or a list of them. */
static int read_names(struct pooling_modes *modes, const struct section *s,
                      struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "pooling_mode");
    if (!json_is(v, JSON_ARRAY))
        return add_named(modes, s, v, e);
    if (v->len == 0)
        return add_named(modes, s, v, e);
    for (size_t i = 0; i < v->len; i++)
        if (add_named(modes, s, &v->items[i], e))
            return -1;
    return 0;
}

/* A flag that we do not know must be false: it would add a mode. */
static int check_flags(const struct section *s, struct qwick_err *e)
{
    static const char prefix[] = "pooling_mode_";
    for (size_t i = 0; i < s->v->len; i++) {
        const struct json_value *key = &s->v->keys[i], *v = &s->v->items[i];
        bool known = key->len < strlen(prefix) ||
                     memcmp(key->str, prefix, strlen(prefix)) != 0 ||
                     (json_is(v, JSON_BOOL) && !v->boolean);
        for (size_t m = 0; m < N_POOLING_MODES && !known; m++)
            known = json_equals(key, mode_names[m].flag);
        if (!known)
            return section_bad(s, key->str, "false (it is not supported)", e);
    }
    return 0;
}

/* Flags of older files. Without any, the mean counts. */
static int read_flags(struct pooling_modes *modes, const struct section *s,
                      struct qwick_err *e)
{
    if (check_flags(s, e))
        return -1;
    for (size_t m = 0; m < N_POOLING_MODES; m++) {
        bool on;
        if (section_opt_bool(s, mode_names[m].flag, false, &on, e))
            return -1;
        if (on)
            modes->v[modes->n++] = (enum pooling_mode)m;
    }
    if (modes->n == 0)
        modes->v[modes->n++] = POOLING_MEAN;
    return 0;
}

static int check_width(const struct section *s, size_t d, struct qwick_err *e)
{
    static const char *const keys[] = {"embedding_dimension",
                                       "word_embedding_dimension"};
    for (size_t i = 0; i < 2; i++) {
        size_t width;
        char expected[64];
        if (section_opt_size(s, keys[i], d, MAX_DIM, &width, e))
            return -1;
        snprintf(expected, sizeof expected, "%zu, as hidden_size says", d);
        if (width != d)
            return section_bad(s, keys[i], expected, e);
    }
    return 0;
}

static int read_pooling(struct pooling *p, const struct checkpoint *ck,
                        const char *dir, struct qwick_err *e)
{
    struct pooling_file f;
    struct pooling_modes modes = {.n = 0};
    int rc = pooling_open_config(&f, ck, dir, e);
    if (!rc)
        rc = check_width(&f.s, p->width, e) ||
                     section_opt_bool(&f.s, "include_prompt", true,
                                      &p->include_prompt, e) ||
                     (section_absent(&f.s, "pooling_mode")
                          ? read_flags(&modes, &f.s, e)
                          : read_names(&modes, &f.s, e))
                 ? -1
                 : 0;
    json_free(f.doc);
    p->modes = modes;
    p->width *= modes.n;
    p->named = true;
    return rc;
}

/* ---- modules ------------------------------------------------------------- */

/* Types are classes of sentence-transformers, which has moved them between
 * packages. Classes of other packages are a checkpoint's own code. */
static bool is_module(const struct json_value *type, const char *name)
{
    static const char package[] = "sentence_transformers.";
    size_t n = strlen(name);
    return json_is(type, JSON_STRING) && type->len > strlen(package) + n &&
           memcmp(type->str, package, strlen(package)) == 0 &&
           memcmp(type->str + type->len - n, name, n) == 0;
}

/* A module of the list. */
struct module {
    const char *path; /* of the file, for messages */
    size_t i;
    const struct json_value *v;
};

static int err_module(const struct module *m, const char *key, const char *want,
                      struct qwick_err *e)
{
    char in[32];
    snprintf(in, sizeof in, "module %zu: ", m->i);
    const struct section s = {.v = m->v, .path = m->path, .in = in};
    return section_bad(&s, key, want, e);
}

/* Return the name of the module's directory; NULL with *e set if it has
 * none. */
static const char *module_dir(const struct module *m, struct qwick_err *e)
{
    const struct json_value *dir = json_get(m->v, "path");
    if (json_is(dir, JSON_STRING) && strlen(dir->str) == dir->len &&
        dir->len < sizeof((struct dense *)0)->dir)
        return dir->str;
    err_module(m, "path", "the name of a directory", e);
    return NULL;
}

/* The first two modules. */
static int read_first(struct pooling *p, const struct checkpoint *ck,
                      const struct module *m, struct qwick_err *e)
{
    static const char *const names[] = {".Transformer", ".Pooling"};
    static const char *const wants[] = {
        "sentence_transformers' Transformer (others are not supported)",
        "sentence_transformers' Pooling (others are not supported)"};
    const struct json_value *dir = json_get(m->v, "path");
    if (!is_module(json_get(m->v, "type"), names[m->i]))
        return err_module(m, "type", wants[m->i], e);
    if (m->i == 0)
        return !dir || json_equals(dir, "") || json_equals(dir, ".")
                   ? 0
                   : err_module(m, "path",
                                "\"\" (weights elsewhere are not supported)",
                                e);
    const char *name = module_dir(m, e);
    return name ? read_pooling(p, ck, name, e) : -1;
}

static int read_module(struct pooling *p, const struct checkpoint *ck,
                       const struct module *m, bool *normalise,
                       struct qwick_err *e)
{
    const struct json_value *type = json_get(m->v, "type");
    if (m->i < 2)
        return read_first(p, ck, m, e);
    if (is_module(type, ".Normalize")) {
        *normalise = true;
        return 0;
    }
    if (!is_module(type, ".Dense"))
        return err_module(m, "type",
                          "sentence_transformers' Dense or Normalize (others "
                          "are not supported)",
                          e);
    const char *name = module_dir(m, e);
    if (!name || pooling_read_dense(p, ck, name, *normalise, e))
        return -1;
    *normalise = false;
    return 0;
}

static int read_modules(struct pooling *p, const struct checkpoint *ck,
                        struct qwick_err *e)
{
    struct pooling_file f;
    bool normalise = false;
    int rc = pooling_open_json(&f, ck, NULL, "modules.json", e);
    const struct json_value *list = f.s.v;
    p->found = list != NULL;
    if (list && list->type != JSON_ARRAY &&
        !(list->type == JSON_OBJECT && list->len == 0))
        rc = err_set(e, QWICK_ERR_MODEL, "%s: must be a list of modules",
                     f.path);
    for (size_t i = 0; list && !rc && i < list->len; i++) {
        const struct module m = {f.path, i, &list->items[i]};
        rc = read_module(p, ck, &m, &normalise, e);
    }
    if (!rc && list && list->len == 1)
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: has no module for pooling after Transformer", f.path);
    json_free(f.doc);
    return rc;
}

/* ---- GGUF ---------------------------------------------------------------- */

enum pooling_gguf pooling_gguf(const struct gguf *g)
{
    char key[96];
    const struct gguf_value *arch = gguf_find(g, "general.architecture");
    if (!arch || arch->type != GGUF_STRING || arch->n_bytes > 64)
        return POOLING_GGUF_NONE;
    snprintf(key, sizeof key, "%.*s.pooling_type", (int)arch->n_bytes,
             (const char *)arch->data);
    const struct gguf_value *v = gguf_find(g, key);
    uint64_t type = v ? v->u | (uint64_t)v->i : 0; /* of either sign */
    return type <= POOLING_GGUF_RANK ? (enum pooling_gguf)type
                                     : POOLING_GGUF_NONE;
}

static int read_gguf(struct pooling *p, const struct gguf *g,
                     struct qwick_err *e)
{
    static const enum pooling_mode modes[] = {
        [POOLING_GGUF_MEAN] = POOLING_MEAN,
        [POOLING_GGUF_CLS] = POOLING_CLS,
        [POOLING_GGUF_LAST] = POOLING_LAST};
    enum pooling_gguf type = pooling_gguf(g);
    if (type != POOLING_GGUF_NONE && type != POOLING_GGUF_RANK) {
        p->modes.v[0] = modes[type];
        p->named = true;
    }
    return pooling_find_dense(p, g, e);
}

/* ---- all of it ----------------------------------------------------------- */

int pooling_read(struct pooling *p, const struct checkpoint *ck,
                 const struct config *c, struct qwick_err *e)
{
    const struct gguf *g = checkpoint_gguf(ck);
    *p = (struct pooling){
        .named = !c->bidirectional,
        .modes = {{c->bidirectional ? POOLING_MEAN : POOLING_LAST}, 1},
        .include_prompt = true,
        .width = c->d_model};
    return (g ? read_gguf(p, g, e) : read_modules(p, ck, e)) ||
                   pooling_read_texts(p, ck, e)
               ? -1
               : 0;
}

void pooling_close(struct pooling *p)
{
    for (size_t i = 0; i < p->n_dense; i++) {
        weights_close(&p->dense[i].weights);
        st_close(p->dense[i].set);
    }
    json_free(p->doc);
    *p = (struct pooling){0};
}

static void hash_size(uint64_t id[2], size_t x)
{
    const uint64_t row = x;
    for (size_t i = 0; i < 2; i++)
        id[i] = hash_bytes(id[i], &row, sizeof row);
}

void pooling_hash(const struct pooling *p, uint64_t id[2])
{
    hash_size(id, p->modes.n);
    for (size_t i = 0; i < p->modes.n; i++)
        hash_size(id, p->modes.v[i]);
    hash_size(id, p->include_prompt);
    hash_size(id, p->max_seq);
    hash_size(id, p->lower);
    for (size_t i = 0; i < p->n_dense; i++) {
        const struct dense *d = &p->dense[i];
        hash_size(id, d->normalise);
        hash_size(id, d->activation);
        for (size_t k = 0; k < 2; k++) {
            for (size_t a = 0; a < d->weight.format->n_arrays; a++)
                id[k] = hash_bytes(
                    id[k], d->weight.data[a],
                    d->n_out * d->weight.format->row_bytes(&d->weight, a));
            if (d->bias)
                id[k] = hash_bytes(id[k], d->bias, d->n_out * sizeof *d->bias);
        }
    }
}
