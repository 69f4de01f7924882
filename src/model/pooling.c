#include "model/pooling.h"

#include <stdio.h>
#include <string.h>

#include "file/checkpoint.h"
#include "file/json.h"
#include "model/fixed.h"
#include "model/section.h"

enum { PATH_BYTES = 512 };

static const char lasttoken[] = "lasttoken";

/* A JSON file of the checkpoint. */
struct file {
    struct section s; /* v is NULL if there is no such file */
    struct json_doc *doc;
    char path[PATH_BYTES];
};

/* dir: the directory in the checkpoint that has the file; NULL: itself. The
 * caller frees f->doc, also after a failure. f must not move. */
static int open_json(struct file *f, const struct checkpoint *ck,
                     const char *dir, const char *name, struct qwick_err *e)
{
    struct map map;
    bool found;
    char full[PATH_BYTES / 2];
    *f = (struct file){.s = {.path = f->path, .in = ""}};
    snprintf(full, sizeof full, "%.120s%s%s", dir ? dir : "", dir ? "/" : "",
             name);
    checkpoint_path(ck, full, f->path, sizeof f->path);
    if (dir ? checkpoint_map_in(ck, dir, name, &map, &found, e)
            : checkpoint_map_small(ck, name, &map, &found, e))
        return -1;
    if (!found)
        return 0;
    int rc = json_parse(&f->doc, f->path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    map_close(&map);
    if (!rc)
        f->s.v = json_root(f->doc);
    return rc;
}

/* ---- pooling ------------------------------------------------------------- */

/* pooling_mode, of newer files: a name, or a list of them. */
static bool names_last(const struct json_value *mode)
{
    if (json_is(mode, JSON_ARRAY) && mode->len == 1)
        mode = &mode->items[0];
    return json_equals(mode, lasttoken);
}

/* Several modes would be joined to a longer vector. Without any, the mean
 * counts. */
static int check_modes(const struct section *s, struct qwick_err *e)
{
    static const char prefix[] = "pooling_mode_", name[] = "pooling_mode",
                      flag[] = "pooling_mode_lasttoken";
    bool named = !section_absent(s, name), last;
    if (named && !names_last(json_get(s->v, name)))
        return section_bad(s, name, "\"lasttoken\" (others are not supported)",
                           e);
    for (size_t i = 0; i < s->v->len; i++) {
        const struct json_value *key = &s->v->keys[i], *v = &s->v->items[i];
        if (key->len < strlen(prefix) ||
            memcmp(key->str, prefix, strlen(prefix)) != 0 ||
            json_equals(key, flag) || (json_is(v, JSON_BOOL) && !v->boolean))
            continue;
        return section_bad(
            s, key->str, "false (only pooling_mode_lasttoken is supported)", e);
    }
    if (section_opt_bool(s, flag, named, &last, e))
        return -1;
    return last ? 0
                : section_bad(s, flag, "true (others are not supported)", e);
}

static int check_pooling(const struct checkpoint *ck, const char *dir,
                         struct qwick_err *e)
{
    struct file f;
    int rc = open_json(&f, ck, dir, "config.json", e);
    if (!rc && !f.s.v)
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: no such file, but modules.json names it", f.path);
    else if (!rc && f.s.v->type != JSON_OBJECT)
        rc = err_set(e, QWICK_ERR_MODEL, "%s: must be a JSON object", f.path);
    else if (!rc)
        rc = check_modes(&f.s, e);
    json_free(f.doc);
    return rc;
}

/* ---- modules ------------------------------------------------------------- */

/* The modules that the embedder has, in their order. */
enum module { TRANSFORMER, POOLING, NORMALIZE, N_MODULES };

/* Types are classes of sentence-transformers, which has moved them between
 * packages. Classes of other packages are a checkpoint's own code. */
static bool is_module(const struct json_value *type, enum module m)
{
    static const char package[] = "sentence_transformers.";
    static const char *const names[] = {".Transformer", ".Pooling",
                                        ".Normalize"};
    size_t n = strlen(names[m]);
    return json_is(type, JSON_STRING) && type->len > strlen(package) + n &&
           memcmp(type->str, package, strlen(package)) == 0 &&
           memcmp(type->str + type->len - n, names[m], n) == 0;
}

static int err_module(const char *path, size_t i, const struct json_value *v,
                      const char *key, const char *want, struct qwick_err *e)
{
    char in[32];
    snprintf(in, sizeof in, "module %zu: ", i);
    const struct section s = {.v = v, .path = path, .in = in};
    return section_bad(&s, key, want, e);
}

static int check_module(const struct checkpoint *ck, const char *path,
                        const struct json_value *v, size_t i,
                        struct qwick_err *e)
{
    static const char *const wants[] = {
        "sentence_transformers' Transformer (others are not supported)",
        "sentence_transformers' Pooling (others are not supported)",
        "sentence_transformers' Normalize (others are not supported)"};
    const struct json_value *dir = json_get(v, "path");
    if (i >= N_MODULES)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: has more than %d modules: Transformer, Pooling "
                       "and Normalize are supported",
                       path, N_MODULES);
    if (!is_module(json_get(v, "type"), (enum module)i))
        return err_module(path, i, v, "type", wants[i], e);
    if (i == TRANSFORMER && dir && !json_equals(dir, "") &&
        !json_equals(dir, "."))
        return err_module(path, i, v, "path",
                          "\"\" (weights elsewhere are not supported)", e);
    if (i != POOLING)
        return 0;
    if (!json_is(dir, JSON_STRING) || strlen(dir->str) != dir->len)
        return err_module(path, i, v, "path", "the name of a directory", e);
    return check_pooling(ck, dir->str, e);
}

static int check_modules(struct pooling *p, const struct checkpoint *ck,
                         struct qwick_err *e)
{
    struct file f;
    int rc = open_json(&f, ck, NULL, "modules.json", e);
    const struct json_value *list = f.s.v;
    p->found = list != NULL;
    if (list && list->type != JSON_ARRAY &&
        !(list->type == JSON_OBJECT && list->len == 0))
        rc = err_set(e, QWICK_ERR_MODEL, "%s: must be a list of modules",
                     f.path);
    for (size_t i = 0; list && !rc && i < list->len; i++)
        rc = check_module(ck, f.path, &list->items[i], i, e);
    if (!rc && list && list->len == 1)
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: has no module for pooling after Transformer", f.path);
    json_free(f.doc);
    return rc;
}

/* ---- texts --------------------------------------------------------------- */

static int check_case(const struct checkpoint *ck, struct qwick_err *e)
{
    static const struct fixed_field fixed[] = {{"do_lower_case", "false"},
                                               {NULL, NULL}};
    struct file f;
    int rc = open_json(&f, ck, NULL, "sentence_bert_config.json", e);
    if (!rc && f.s.v)
        rc = fixed_check(&f.s, fixed, NULL, e);
    json_free(f.doc);
    return rc;
}

/* The prompt that encode() puts before each text without being asked. */
static int find_prompt(struct pooling *p, const struct checkpoint *ck,
                       struct qwick_err *e)
{
    struct file f;
    int rc = open_json(&f, ck, NULL, "config_sentence_transformers.json", e);
    const struct json_value *name = json_get(f.s.v, "default_prompt_name");
    const struct json_value *prompts = json_get(f.s.v, "prompts");
    if (json_is(name, JSON_STRING)) {
        const struct json_value *text =
            json_get_n(prompts, name->str, name->len);
        if (!json_equals(text, ""))
            snprintf(p->prompt, sizeof p->prompt, "%.60s",
                     ERR_SHOW(name->str, name->len));
    }
    json_free(f.doc);
    return rc;
}

int pooling_read(struct pooling *p, const struct checkpoint *ck,
                 struct qwick_err *e)
{
    *p = (struct pooling){0};
    return check_modules(p, ck, e) || check_case(ck, e) || find_prompt(p, ck, e)
               ? -1
               : 0;
}
