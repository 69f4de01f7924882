/* Files of LoRA adapters: PEFT's, mlx-lm's and GGUF's. */
#include "model/lora_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "file/checkpoint.h"
#include "file/gguf.h"
#include "file/map.h"
#include "file/safetensors.h"
#include "model/names.h"
#include "model/section.h"

enum { MAX_RANK = 1 << 16 };

/* Ends of a tensor's name, after that of its module. */
struct tails {
    const char *a, *b;
};

/* ---- pairs --------------------------------------------------------------- */

static struct lora_pair *find_pair(const struct lora_file *f, const char *name,
                                   size_t n)
{
    for (size_t i = 0; i < f->n_pairs; i++)
        if (strlen(f->pairs[i].name) == n &&
            memcmp(f->pairs[i].name, name, n) == 0)
            return &f->pairs[i];
    return NULL;
}

/* Add tensor t, which is A or B of the weight name[0..n). */
static int add_half(struct lora_file *f, const struct st_tensor *t,
                    const char *name, size_t n, bool is_b, struct qwick_err *e)
{
    struct lora_pair *p = find_pair(f, name, n);
    if (!p) {
        if (ARRAY_RESERVE(f->pairs, f->cap_pairs, f->n_pairs + 1, e))
            return -1;
        char *copy = strndup(name, n);
        if (!copy)
            return err_oom(e, n);
        p = &f->pairs[f->n_pairs++];
        *p = (struct lora_pair){.name = copy, .factor = 1};
    }
    const struct st_tensor **half = is_b ? &p->b : &p->a;
    if (*half)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: is the same half of a module as %s",
                       f->path, ERR_SHOW(t->name, t->name_len), (*half)->name);
    *half = t;
    return 0;
}

static int refuse_tensor(const struct lora_file *f, const struct st_tensor *t,
                         const char *why, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: %s", f->path,
                   ERR_SHOW(t->name, t->name_len), why);
}

static int check_tensor(const struct lora_file *f, const struct st_tensor *t,
                        struct qwick_err *e)
{
    if (t->name_len != strlen(t->name) || t->name_len >= NAMES_BYTES)
        return refuse_tensor(f, t, "is no name of a module", e);
    if (t->rank != 2)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: has %zu dimensions, must have 2%s",
                       f->path, t->name, t->rank,
                       t->rank == 3 ? " (experts are not supported)" : "");
    return t->dtype < DT_N_FLOAT
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: dtype %s is not supported (BF16, F16 "
                         "and F32 are)",
                         f->path, t->name, dtype_name(t->dtype));
}

size_t lora_pair_rank(const struct lora_file *f, const struct lora_pair *p)
{
    return p->a->shape[f->transposed ? 1 : 0];
}

static int check_pair(const struct lora_file *f, const struct lora_pair *p,
                      struct qwick_err *e)
{
    if (!p->a || !p->b)
        return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: its %s is missing",
                       f->path, (p->a ? p->a : p->b)->name, p->a ? "B" : "A");
    size_t rank = lora_pair_rank(f, p), other = p->b->shape[f->transposed ? 0 : 1];
    if (!rank || rank > MAX_RANK)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: has rank %zu, must have 1 to %d",
                       f->path, p->a->name, rank, MAX_RANK);
    return rank == other
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: has rank %zu, and %s has %zu", f->path,
                         p->a->name, rank, p->b->name, other);
}

static int check_pairs(const struct lora_file *f, struct qwick_err *e)
{
    for (size_t i = 0; i < f->n_pairs; i++)
        if (check_pair(f, &f->pairs[i], e))
            return -1;
    return f->n_pairs ? 0
                      : err_set(e, QWICK_ERR_MODEL,
                                "%s: has no tensors of an adapter", f->path);
}

/* ---- directories --------------------------------------------------------- */

/* Make "DIR/name". NULL: out of memory. */
static char *path_in(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    char *out;
    return asprintf(&out, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/",
                    name) < 0
               ? NULL
               : out;
}

static bool exists_in(const char *dir, const char *name)
{
    struct stat st;
    char *path = path_in(dir, name);
    bool found = path && stat(path, &st) == 0;
    free(path);
    return found;
}

static int read_json(struct json_doc **out, const char *path,
                     struct qwick_err *e)
{
    struct map map;
    if (map_open(&map, path, e))
        return -1;
    int rc = map.size > CHECKPOINT_SMALL
                 ? err_set(e, QWICK_ERR_MODEL,
                           "%s: has %zu bytes, at most %zu are read", path,
                           map.size, CHECKPOINT_SMALL)
                 : json_parse_python(out, path, (const char *)map.data,
                                     map.size, QWICK_ERR_MODEL, e);
    map_close(&map);
    return rc;
}

/* Whether a field says nothing: it is missing, null, false, or empty. */
static bool says_nothing(const struct json_value *v)
{
    return !v || v->type == JSON_NULL || (v->type == JSON_BOOL && !v->boolean) ||
           ((v->type == JSON_ARRAY || v->type == JSON_OBJECT) && !v->len);
}

static int refuse_field(const struct section *s, const char *key,
                        struct qwick_err *e)
{
    char got[64];
    section_describe(json_get(s->v, key), got, sizeof got);
    return err_set(e, QWICK_ERR_MODEL, "%s: %s%s: %s is not supported", s->path,
                   s->in, key, got);
}

/* ---- PEFT ---------------------------------------------------------------- */

/* Fields with which an adapter is more than A and B. */
static const char *const peft_refused[] = {
    "use_dora",          "fan_in_fan_out", "lora_bias",
    "modules_to_save",   "trainable_token_indices",
    "target_parameters", "alora_invocation_tokens",
    "use_qalora",        "arrow_config"};

/* Ways to begin training that also change the base model's weights. */
static const char *const changes_base[] = {"pissa", "olora", "corda", "loftq"};

static int check_initial(const struct section *s, struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "init_lora_weights");
    for (size_t i = 0; i < sizeof changes_base / sizeof *changes_base; i++)
        if (json_is(v, JSON_STRING) &&
            strncmp(v->str, changes_base[i], strlen(changes_base[i])) == 0)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: init_lora_weights: \"%.40s\" is not supported: "
                           "the adapter belongs to changed base weights",
                           s->path, v->str);
    return 0;
}

static int check_peft(const struct section *s, struct qwick_err *e)
{
    const struct json_value *bias = json_get(s->v, "bias");
    if (!json_equals(json_get(s->v, "peft_type"), "LORA"))
        return section_bad(s, "peft_type", "\"LORA\"", e);
    if (!section_absent(s, "bias") && !json_equals(bias, "none"))
        return section_bad(s, "bias", "\"none\"", e);
    for (size_t i = 0; i < sizeof peft_refused / sizeof *peft_refused; i++)
        if (!says_nothing(json_get(s->v, peft_refused[i])))
            return refuse_field(s, peft_refused[i], e);
    return check_initial(s, e);
}

/* Whether a key of rank_pattern or alpha_pattern, or a member of
 * target_modules, means module name[0..n): its whole name or its end. */
static bool means_module(const struct json_value *key, const char *name,
                         size_t n)
{
    return key->len <= n &&
           memcmp(name + n - key->len, key->str, key->len) == 0 &&
           (key->len == n || name[n - key->len - 1] == '.');
}

/* PEFT takes keys as regular expressions. Dots are the only special characters
 * in names of modules. */
static int check_pattern(const struct section *s, const char *field,
                         struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, field);
    if (section_absent(s, field))
        return 0;
    if (!json_is(v, JSON_OBJECT))
        return section_bad(s, field, "an object", e);
    for (size_t i = 0; i < v->len; i++)
        if (strpbrk(v->keys[i].str, "\\^$*+?()[]{}|"))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: \"%.80s\": regular expressions are not "
                           "supported",
                           s->path, field, v->keys[i].str);
    return 0;
}

/* The number of a module: that of the pattern's first key that means it, or the
 * field's. */
static int number_of(const struct section *s, const char *pattern,
                     const char *field, const char *module, size_t n,
                     double min, double *out, struct qwick_err *e)
{
    struct section in = section_inner(s, pattern, pattern);
    for (size_t i = 0; in.v && i < in.v->len; i++)
        if (means_module(&in.v->keys[i], module, n)) {
            char text[32];
            snprintf(text, sizeof text, "%s.", pattern);
            in.in = text;
            return section_double(&in, in.v->keys[i].str, min, 1e9, out, e);
        }
    return section_double(s, field, min, 1e9, out, e);
}

static int set_peft_factor(const struct lora_file *f, struct lora_pair *p,
                           const struct section *s, struct qwick_err *e)
{
    size_t n = names_module(p->name), rank = lora_pair_rank(f, p);
    double r, alpha;
    bool rs;
    if (number_of(s, "rank_pattern", "r", p->name, n, 1, &r, e) ||
        number_of(s, "alpha_pattern", "lora_alpha", p->name, n, -1e9, &alpha,
                  e) ||
        section_opt_bool(s, "use_rslora", false, &rs, e))
        return -1;
    if (r != (double)rank)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: has rank %zu, and %s says %g", f->path,
                       p->a->name, rank, s->path, r);
    p->factor = alpha / (rs ? sqrt(r) : r);
    return 0;
}

/* A list of modules of which one has no tensors means that some are missing. */
static int check_targets(const struct lora_file *f, const struct section *s,
                         struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, "target_modules");
    if (!json_is(v, JSON_ARRAY))
        return 0;
    for (size_t i = 0; i < v->len; i++) {
        bool found = false;
        if (!json_is(&v->items[i], JSON_STRING))
            return section_bad(s, "target_modules", "an array of strings", e);
        for (size_t j = 0; j < f->n_pairs && !found; j++) {
            const char *name = f->pairs[j].name;
            found = means_module(&v->items[i], name, names_module(name));
        }
        if (!found)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: target_modules: \"%.80s\": %s has no tensors "
                           "of such a module",
                           s->path, v->items[i].str, f->path);
    }
    return 0;
}

/* base_model.model.MODULE.lora_A.weight, or .lora_A.ADAPTER.weight. */
static int add_peft(struct lora_file *f, const struct st_tensor *t,
                    struct qwick_err *e)
{
    static const char before[] = "base_model.model.";
    const char *name = t->name;
    char weight[NAMES_BYTES + sizeof ".weight"];
    if (strncmp(name, before, sizeof before - 1) == 0)
        name += sizeof before - 1;
    if (strstr(name, ".lora_embedding_"))
        return refuse_tensor(f, t, "adapts an embedding, which is not supported",
                             e);
    if (strstr(name, ".lora_magnitude_vector"))
        return refuse_tensor(f, t, "is DoRA's, which is not supported", e);
    const char *half = strstr(name, ".lora_A.");
    bool is_b = !half;
    if (is_b)
        half = strstr(name, ".lora_B.");
    size_t tail = half ? strlen(half) : 0;
    if (tail < sizeof ".lora_A.weight" - 1 ||
        strcmp(half + tail - (sizeof "weight" - 1), "weight") != 0)
        return refuse_tensor(f, t, "is no lora_A.weight or lora_B.weight of a "
                                   "module, and nothing else is supported",
                             e);
    if (check_tensor(f, t, e))
        return -1;
    int n = snprintf(weight, sizeof weight, "%.*s.weight", (int)(half - name),
                     name);
    return add_half(f, t, weight, (size_t)n, is_b, e);
}

static int read_peft(struct lora_file *f, const struct section *s,
                     struct qwick_err *e)
{
    if (check_peft(s, e) || check_pattern(s, "rank_pattern", e) ||
        check_pattern(s, "alpha_pattern", e))
        return -1;
    for (size_t i = 0; i < st_count(f->set); i++)
        if (add_peft(f, st_at(f->set, i), e))
            return -1;
    if (check_pairs(f, e))
        return -1;
    for (size_t i = 0; i < f->n_pairs; i++)
        if (set_peft_factor(f, &f->pairs[i], s, e))
            return -1;
    return check_targets(f, s, e);
}

/* ---- mlx-lm -------------------------------------------------------------- */

/* MODULE.lora_a [cols, rank] and MODULE.lora_b [rank, rows]. */
static int add_mlx(struct lora_file *f, const struct st_tensor *t,
                   struct qwick_err *e)
{
    static const char a[] = ".lora_a", b[] = ".lora_b";
    char weight[NAMES_BYTES + sizeof ".weight"];
    size_t n = t->name_len, tail = sizeof a - 1;
    bool is_a = n > tail && strcmp(t->name + n - tail, a) == 0;
    bool is_b = n > tail && strcmp(t->name + n - tail, b) == 0;
    if (!is_a && !is_b)
        return refuse_tensor(f, t, "is no lora_a or lora_b of a module, and "
                                   "nothing else is supported",
                             e);
    if (check_tensor(f, t, e))
        return -1;
    int len = snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - tail),
                       t->name);
    return add_half(f, t, weight, (size_t)len, is_b, e);
}

static int read_mlx(struct lora_file *f, const struct section *s,
                    struct qwick_err *e)
{
    struct section in = section_inner(s, "lora_parameters", "lora_parameters.");
    double scale, alpha;
    size_t rank;
    f->transposed = true;
    if (!section_absent(s, "fine_tune_type") &&
        !json_equals(json_get(s->v, "fine_tune_type"), "lora"))
        return section_bad(s, "fine_tune_type", "\"lora\"", e);
    if (!json_is(in.v, JSON_OBJECT))
        return section_bad(s, "lora_parameters", "an object", e);
    if (section_double(&in, "scale", -1e9, 1e9, &scale, e) ||
        section_size(&in, "rank", MAX_RANK, &rank, e) ||
        section_opt_double(&in, "alpha", (double)rank, -1e9, 1e9, &alpha, e))
        return -1;
    if (alpha != (double)rank) /* its effect depends on the release of mlx-lm */
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: lora_parameters.alpha: is %g and rank is %zu, "
                       "which is not supported",
                       s->path, alpha, rank);
    for (size_t i = 0; i < st_count(f->set); i++)
        if (add_mlx(f, st_at(f->set, i), e))
            return -1;
    if (check_pairs(f, e))
        return -1;
    for (size_t i = 0; i < f->n_pairs; i++) {
        size_t has = lora_pair_rank(f, &f->pairs[i]);
        if (has != rank)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: tensor %s: has rank %zu, and %s says %zu",
                           f->path, f->pairs[i].a->name, has, s->path, rank);
        f->pairs[i].factor = scale;
    }
    return 0;
}

/* ---- GGUF ---------------------------------------------------------------- */

static int need_text(const struct gguf *g, const char *key, const char *want,
                     const struct gguf_value **out, struct qwick_err *e)
{
    bool found;
    *out = gguf_need(g, key, GGUF_STRING, GGUF_STRING, &found, e);
    if (!*out)
        return found ? -1
                     : err_set(e, QWICK_ERR_MODEL, "%s: %s: missing",
                               gguf_path(g), key);
    if (!want || ((*out)->n_bytes == strlen(want) &&
                  memcmp((*out)->data, want, strlen(want)) == 0))
        return 0;
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: must be \"%s\", is \"%s\"",
                   gguf_path(g), key, want,
                   ERR_SHOW((const char *)(*out)->data, (*out)->n_bytes));
}

/* WEIGHT.lora_a and WEIGHT.lora_b. */
static int add_gguf(struct lora_file *f, const struct st_tensor *t,
                    struct qwick_err *e)
{
    size_t n = t->name_len, tail = sizeof ".lora_a" - 1;
    bool is_a = n > tail && strcmp(t->name + n - tail, ".lora_a") == 0;
    bool is_b = n > tail && strcmp(t->name + n - tail, ".lora_b") == 0;
    if (!is_a && !is_b)
        return refuse_tensor(f, t, "is no lora_a or lora_b of a weight, and "
                                   "nothing else is supported",
                             e);
    return check_tensor(f, t, e) ? -1
                                 : add_half(f, t, t->name, n - tail, is_b, e);
}

/* Readers take an alpha of 0 for none: the factor is 1 then. */
static int set_gguf_factors(struct lora_file *f, struct qwick_err *e)
{
    bool found;
    const struct gguf_value *v =
        gguf_need(f->gguf, "adapter.lora.alpha", GGUF_F32, GGUF_F32, &found, e);
    if (!v && found)
        return -1;
    if (v && !(fabs(v->f) <= 1e9))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: adapter.lora.alpha: must be a number from -1e9 to "
                       "1e9, is %g",
                       f->path, v->f);
    for (size_t i = 0; i < f->n_pairs && v && v->f != 0; i++)
        f->pairs[i].factor =
            v->f / (double)lora_pair_rank(f, &f->pairs[i]);
    return 0;
}

static int open_gguf(struct lora_file *f, const char *path,
                     struct qwick_err *e)
{
    const struct gguf_value *v, *arch;
    f->is_gguf = true;
    if (gguf_open(&f->gguf, path, e))
        return -1;
    f->set = st_set_share(gguf_tensors(f->gguf));
    if (need_text(f->gguf, "general.type", "adapter", &v, e) ||
        need_text(f->gguf, "adapter.type", "lora", &v, e) ||
        need_text(f->gguf, "general.architecture", NULL, &arch, e))
        return -1;
    f->architecture = (const char *)arch->data;
    f->n_architecture = arch->n_bytes;
    for (size_t i = 0; i < st_count(f->set); i++)
        if (add_gguf(f, st_at(f->set, i), e))
            return -1;
    return check_pairs(f, e) || set_gguf_factors(f, e) ? -1 : 0;
}

/* ---- all kinds ----------------------------------------------------------- */

static int open_dir(struct lora_file *f, const char *dir, struct qwick_err *e)
{
    static const char peft[] = "adapter_model.safetensors",
                      mlx[] = "adapters.safetensors";
    bool is_peft = exists_in(dir, peft);
    struct json_doc *doc = NULL;
    if (!is_peft && !exists_in(dir, mlx))
        return err_set(e, QWICK_ERR_MODEL, "%s: has no %s and no %s%s", dir,
                       peft, mlx,
                       exists_in(dir, "adapter_model.bin")
                           ? " (adapter_model.bin is not supported)"
                           : "");
    char *config = path_in(dir, "adapter_config.json");
    f->path = path_in(dir, is_peft ? peft : mlx);
    int rc = !config || !f->path ? err_oom(e, strlen(dir))
             : read_json(&doc, config, e) || st_open_file(&f->set, f->path, e)
                 ? -1
                 : 0;
    if (!rc) {
        const struct section s = {.v = json_root(doc), .path = config, .in = ""};
        rc = (is_peft ? read_peft : read_mlx)(f, &s, e);
    }
    json_free(doc);
    free(config);
    return rc;
}

int lora_file_open(struct lora_file *out, const char *path, struct qwick_err *e)
{
    struct stat st;
    *out = (struct lora_file){0};
    if (stat(path, &st))
        return err_set(e, QWICK_ERR_MODEL, "%s: %s", path, strerror(errno));
    int rc;
    if (S_ISDIR(st.st_mode)) {
        rc = open_dir(out, path, e);
    } else {
        size_t n = strlen(path), tail = sizeof ".gguf" - 1;
        out->path = strdup(path);
        rc = !out->path ? err_oom(e, n)
             : n > tail && strcmp(path + n - tail, ".gguf") == 0
                 ? open_gguf(out, path, e)
                 : err_set(e, QWICK_ERR_MODEL,
                           "%s: is neither a directory of an adapter nor a "
                           "GGUF file",
                           path);
    }
    if (rc)
        lora_file_close(out);
    return rc;
}

void lora_file_close(struct lora_file *f)
{
    for (size_t i = 0; i < f->n_pairs; i++)
        free(f->pairs[i].name);
    free(f->pairs);
    st_close(f->set);
    gguf_close(f->gguf);
    free(f->path);
    *f = (struct lora_file){0};
}
