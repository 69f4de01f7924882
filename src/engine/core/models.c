/* Describing the models on this machine, from the headers of their files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/flag.h"
#include "engine/core/open_gguf.h"
#include "engine/core/specials.h"
#include "file/fs.h"
#include "file/gguf.h"
#include "file/json.h"
#include "file/safetensors.h"
#include "file/stores.h"
#include "model/foreign.h"
#include "model/model.h"
#include "model/unsupported.h"
#include "qwick_tools.h"

/* A model while it is examined. */
struct exam {
    const struct store_model *from;
    struct qwick_model *out;
    struct checkpoint *ck;
    struct st_set *set;
    struct model model;
    struct qwick_err e;
    bool foreign; /* e says that the weights have a form of other programs */
};

/* ---- why not --------------------------------------------------------------
 */

/* Set why this build does not run the model: the fault that the search found,
 * or else *x->e. Returns -1 when memory ran out. */
static int set_why(struct exam *x)
{
    bool unfinished = !x->from->fault && x->from->unfinished && !x->foreign &&
                      x->e.kind != QWICK_KIND_INCOMPLETE;
    free(x->out->why);
    return asprintf(&x->out->why, "%s%s",
                    x->from->fault ? x->from->fault
                                   : err_without_name(&x->e, x->out->path),
                    unfinished ? ": " ERR_INCOMPLETE_HINT : "") < 0
               ? -1
               : 0;
}

/* Bytes of an id before the mark of a form of quantized weights:
 * "Qwen/Qwen3-8B-FP8". 0: it has none. */
static size_t find_mark(const char *id)
{
    static const char *const marks[] = {
        "FP8",   "GPTQ", "AWQ",  "bnb-", "unsloth-bnb-", "NVFP4",
        "MXFP4", "exl2", "exl3", "HQQ",  "AQLM",         "quantized.",
        "w4a16", "w8a8", "Int4", "Int8", "4bit-",        "8bit-"};
    for (const char *at = strchr(id, '-'); at; at = strchr(at + 1, '-'))
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
            if (strncasecmp(at + 1, marks[i], strlen(marks[i])) == 0)
                return (size_t)(at - id);
    return 0;
}

/* Choose the model to download: this model in another form, or the rest of this
 * one. Makers of forms for MLX do not have the original. */
static int set_pull(struct exam *x)
{
    const char *id = x->from->id;
    size_t n = strcspn(id, "@"), mark = find_mark(id);
    bool hub = strcmp(x->from->store, "huggingface") == 0;
    if (!x->out->why || !hub || (!x->foreign && !x->from->unfinished) ||
        (x->foreign && (!mark || strncmp(id, "mlx-", 4) == 0)))
        return 0;
    x->out->pull = strndup(id, x->foreign ? mark : n);
    return x->out->pull ? 0 : -1;
}

/* ---- what it is -----------------------------------------------------------
 */

static int set_text(char **out, const char *s, size_t n)
{
    char shown[ERR_SHOWN];
    free(*out);
    *out = strdup(err_show(shown, s, n));
    return *out ? 0 : -1;
}

static int refuse_family(struct exam *x, const char *name, size_t len)
{
    char why[160];
    unsupported_describe(why, sizeof why, name, len);
    return err_set(&x->e, QWICK_ERR_MODEL, "family %s", why);
}

/* The family as config.json calls it, and whether this build has it. */
static int read_config_json(struct exam *x)
{
    struct map map;
    struct json_doc *doc;
    bool found, wrapped;
    char name[96];
    if (checkpoint_map_small(x->ck, "config.json", &map, &found, &x->e))
        return -1;
    if (!found)
        return err_set(&x->e, QWICK_ERR_MODEL, "config.json: no such file");
    int rc = json_parse_python(&doc, "config.json", (const char *)map.data,
                               map.size, QWICK_ERR_MODEL, &x->e);
    map_close(&map);
    if (rc)
        return -1;
    const struct json_value *type = json_get(json_root(doc), "model_type");
    if (json_is(type, JSON_STRING) &&
        set_text(&x->out->family, type->str, type->len))
        rc = err_oom(&x->e, type->len);
    else if (json_is(type, JSON_STRING) &&
             !config_find_arch(json_root(doc), &wrapped))
        rc = refuse_family(x, type->str, type->len);
    else if (foreign_name(json_root(doc), name, sizeof name)) {
        x->foreign = true;
        rc = err_set(&x->e, QWICK_ERR_MODEL,
                     "%s weights are not supported: " FOREIGN_INSTEAD, name);
    }
    json_free(doc);
    return rc;
}

static int read_gguf(struct exam *x, const struct gguf *g)
{
    const struct gguf_value *v = gguf_find(g, "general.architecture");
    const char *s;
    if (!v || v->type != GGUF_STRING)
        return 0; /* config_load says so */
    s = (const char *)v->data;
    if (set_text(&x->out->family, s, v->n_bytes))
        return err_oom(&x->e, v->n_bytes);
    return arch_find_gguf(s, v->n_bytes)
               ? 0
               : refuse_family(x, s, v->n_bytes);
}

/* Add up the sizes of the files in a directory. One that cannot be read has
 * none. */
static int sum_files(const char *dir, size_t *sum, struct qwick_err *e)
{
    struct dir_list l;
    struct qwick_err why;
    struct stat st;
    int rc = 0;
    if (dir_list_read(&l, dir, STORES_MAX_ENTRIES, &why))
        return why.code == QWICK_ERR_MEMORY ? err_oom(e, strlen(dir)) : 0;
    for (size_t i = 0; i < l.n && !rc; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", dir, l.v[i].name) < 0) {
            rc = err_oom(e, strlen(dir) + strlen(l.v[i].name) + 2);
            break;
        }
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
            size_add(*sum, (size_t)st.st_size, sum))
            *sum = SIZE_MAX;
        free(path);
    }
    dir_list_free(&l);
    return rc;
}

/* Bytes of the files of a checkpoint's directory, or of a GGUF file. */
static int set_disk_bytes(struct exam *x, struct qwick_err *e)
{
    struct stat st;
    size_t *sum = &x->out->disk_bytes;
    if (x->ck && checkpoint_gguf(x->ck))
        *sum = st_file_bytes(gguf_tensors(checkpoint_gguf(x->ck)));
    else if (stat(x->out->path, &st))
        return 0;
    else if (S_ISDIR(st.st_mode))
        return sum_files(x->out->path, sum, e);
    else if (S_ISREG(st.st_mode))
        *sum = (size_t)st.st_size;
    return 0;
}

/* Without a tokenizer a model cannot answer texts. */
static int check_tokenizer(struct exam *x)
{
    const struct gguf *g = checkpoint_gguf(x->ck);
    struct map map;
    bool found;
    if (g)
        return open_gguf_check_tokenizer(g, &x->e);
    const char *name;
    if (specials_map_tokenizer(x->ck, &map, &name, &found, &x->e))
        return -1;
    if (!found)
        return err_set(&x->e, QWICK_ERR_MODEL, "%s: no such file", name);
    map_close(&map);
    return 0;
}

static int fill(struct exam *x)
{
    struct model *m = &x->model;
    struct qwick_model *o = x->out;
    struct model_sizes s = model_sizes(m);
    o->n_params = s.n_params;
    o->n_active_params = s.n_active_params;
    o->weight_bytes = s.bytes;
    o->decode_bytes = s.decode_bytes;
    o->n_ctx_max = m->config.n_ctx_max;
    o->bits = 8 * (double)(s.bytes + s.table_bytes) / (double)o->n_params;
    o->weights_dtype = strdup(s.storage);
    return o->weights_dtype ? 0 : err_oom(&x->e, 96);
}

/* Open all that opening an engine opens, except the tokenizer's contents and
 * the values of weights. */
static int examine(struct exam *x)
{
    struct model *m = &x->model;
    if (checkpoint_open(&x->ck, x->out->path, &x->e))
        return -1;
    const struct gguf *g = checkpoint_gguf(x->ck);
    if ((g ? read_gguf(x, g) : read_config_json(x)) ||
        config_load(&m->config, x->ck, &x->e) || st_open(&x->set, x->ck, &x->e))
        return -1;
    m->k = kernels_best();
    m->sizes_only = true;
    return model_open(m, x->ck, x->set, &x->e) || fill(x) || check_tokenizer(x)
               ? -1
               : 0;
}

/* Whether memory ran out. A file that the address space has no room for is a
 * fault of this model alone. */
static bool is_memory(const struct qwick_err *e)
{
    return e->code == QWICK_ERR_MEMORY && e->kind != QWICK_KIND_ADDRESS_SPACE;
}

/* What a model is called and where it is. */
static int set_names(struct qwick_model *out, const struct stores *s, size_t i,
                     struct qwick_err *e)
{
    const struct store_model *from = &s->v[i];
    out->store = from->store;
    out->name = strdup(stores_spec(s, i));
    out->id = strdup(from->id);
    out->path = strdup(from->path);
    return out->name && out->id && out->path
               ? 0
               : err_oom(e, strlen(from->path) + 1);
}

static int name(struct qwick_model *out, const struct stores *s, size_t i,
                struct qwick_err *e)
{
    const char *fault = s->v[i].fault;
    if (set_names(out, s, i, e))
        return -1;
    out->why = fault ? strdup(fault) : NULL;
    return fault && !out->why ? err_oom(e, strlen(fault) + 1) : 0;
}

static int describe(struct qwick_model *out, const struct stores *s, size_t i,
                    struct qwick_err *e)
{
    const struct store_model *from = &s->v[i];
    struct exam x = {.from = from, .out = out};
    if (set_names(out, s, i, e))
        return -1;
    int bad = from->fault ? 0 : examine(&x), rc = 0;
    if (from->fault || (bad && !is_memory(&x.e)))
        rc = set_why(&x);
    if (rc || set_pull(&x))
        rc = err_oom(e, sizeof x.e.msg);
    else if (bad && is_memory(&x.e))
        rc = err_set(e, x.e.code, "%s", x.e.msg);
    else
        rc = set_disk_bytes(&x, e);
    model_close(&x.model);
    st_close(x.set);
    checkpoint_close(x.ck);
    return rc;
}

/* ---- the list -------------------------------------------------------------
 */

/* Models that run first, then by name. */
static int by_use(const void *a, const void *b)
{
    const struct qwick_model *x = a, *y = b;
    if (!x->why != !y->why)
        return x->why ? 1 : -1;
    int c = strcasecmp(x->name, y->name);
    c = c ? c : strcmp(x->name, y->name);
    return c ? c : strcmp(x->path, y->path);
}

/* Search the stores and fill a struct of the list for each model. */
static int list(struct qwick_model **out, size_t *n, bool *cut,
                int (*fill_one)(struct qwick_model *, const struct stores *,
                                size_t, struct qwick_err *),
                const volatile int *interrupt, struct qwick_err *e)
{
    struct stores s;
    *out = NULL;
    *n = 0;
    *cut = false;
    if (stores_scan(&s, interrupt, e))
        return -1;
    struct qwick_model *v = calloc(s.n + 1, sizeof *v);
    int rc = v ? stores_index(&s, e) : err_oom(e, s.n * sizeof *v);
    size_t done = 0;
    for (size_t i = 0; i < s.n && !rc; i++) {
        if (s.v[i].is_copy)
            continue;
        if (flag_is_set(interrupt))
            rc = err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        else
            rc = fill_one(&v[done++], &s, i, e);
    }
    if (rc) {
        qwick_models_free(v, done);
    } else {
        qsort(v, done, sizeof *v, by_use);
        *out = v;
        *n = done;
        *cut = s.cut;
    }
    stores_free(&s);
    return rc;
}

int qwick_models_list(struct qwick_model **out, size_t *n, bool *cut,
                      const volatile int *interrupt, struct qwick_err *e)
{
    return list(out, n, cut, describe, interrupt, e);
}

int qwick_models_names(struct qwick_model **out, size_t *n, bool *cut,
                       const volatile int *interrupt, struct qwick_err *e)
{
    return list(out, n, cut, name, interrupt, e);
}

void qwick_models_free(struct qwick_model *v, size_t n)
{
    for (size_t i = 0; v && i < n; i++) {
        free(v[i].name);
        free(v[i].id);
        free(v[i].path);
        free(v[i].family);
        free(v[i].weights_dtype);
        free(v[i].why);
        free(v[i].pull);
    }
    free(v);
}
