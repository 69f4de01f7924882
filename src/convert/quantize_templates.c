/* The chat templates of a GGUF file. */
#include <stdio.h>
#include <string.h>

#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "file/map.h"

static const char jinja[] = ".jinja";
static const char template_key[] = "tokenizer.chat_template";

/* Bytes of a template's name, see open_gguf_template. */
enum { MAX_NAME = 60 };

/* A template with a name. "default" has the key without a name. */
static void put_named(struct quantize_plan *p, const char *name, size_t n,
                      const char *text, size_t n_text)
{
    char key[sizeof template_key + MAX_NAME + 1];
    if (n > MAX_NAME || memchr(name, '\0', n)) {
        quantize_note(p, name, "chat template left out: its name is too long");
        return;
    }
    snprintf(key, sizeof key, "%s.%.*s", template_key, (int)n, name);
    if (n == 7 && memcmp(name, "default", n) == 0)
        key[strlen(template_key)] = '\0';
    gguf_put_string(&p->meta, key, text, n_text);
}

/* The files of named templates. */
static int put_files(struct quantize_plan *p, const struct checkpoint *ck,
                     char *const *files, size_t n_files, struct qwick_err *e)
{
    char path[sizeof CHECKPOINT_TEMPLATES + 256];
    for (size_t i = 0; i < n_files; i++) {
        struct map map;
        bool found;
        if (strcmp(files[i], "default.jinja") == 0)
            continue; /* chat_template.jinja is the default */
        snprintf(path, sizeof path, CHECKPOINT_TEMPLATES "%.255s", files[i]);
        if (checkpoint_map_small(ck, path, &map, &found, e))
            return -1;
        if (!found)
            continue;
        put_named(p, files[i], strlen(files[i]) - strlen(jinja),
                  (const char *)map.data, map.size);
        map_close(&map);
    }
    return 0;
}

/* Whether the template of this name is a file. */
static bool is_file(const struct json_value *name, bool has_default,
                    char *const *files, size_t n_files)
{
    if (json_equals(name, "default"))
        return has_default;
    for (size_t k = 0; k < n_files; k++)
        if (strlen(files[k]) == name->len + strlen(jinja) &&
            memcmp(files[k], name->str, name->len) == 0)
            return true;
    return false;
}

/* Whether an earlier item of the list has the name of item i. */
static bool is_repeated(const struct json_value *list, size_t i)
{
    const struct json_value *name = json_get(&list->items[i], "name");
    for (size_t k = 0; k < i; k++)
        if (json_equals(json_get(&list->items[k], "name"), name->str))
            return true;
    return false;
}

/* A list of {"name", "template"}. has_default: the default is a file. */
static void put_list(struct quantize_plan *p, const struct json_value *list,
                     bool has_default, char *const *files, size_t n_files)
{
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++) {
        const struct json_value *name = json_get(&list->items[i], "name");
        const struct json_value *t = json_get(&list->items[i], "template");
        if (!json_is(name, JSON_STRING) || !json_is(t, JSON_STRING) ||
            is_repeated(list, i) || is_file(name, has_default, files, n_files))
            continue;
        put_named(p, name->str, name->len, t->str, t->len);
    }
}

/* Files win over tokenizer_config.json, as in engine/core/form.c. */
int quantize_gguf_templates(struct quantize_plan *p,
                            const struct checkpoint *ck,
                            const struct json_value *tokenizer,
                            struct qwick_err *e)
{
    const struct json_value *t = json_get(tokenizer, "chat_template");
    struct map map;
    char **files;
    size_t n_files;
    bool found;
    if (checkpoint_map_small(ck, "chat_template.jinja", &map, &found, e))
        return -1;
    if (found) {
        gguf_put_string(&p->meta, template_key, (const char *)map.data,
                        map.size);
        map_close(&map);
    } else if (json_is(t, JSON_STRING)) {
        gguf_put_string(&p->meta, template_key, t->str, t->len);
    }
    if (checkpoint_list_templates(ck, jinja, &files, &n_files, e))
        return -1;
    int rc = put_files(p, ck, files, n_files, e);
    if (!rc)
        put_list(p, t, found, files, n_files);
    checkpoint_list_free(files, n_files);
    return rc;
}
