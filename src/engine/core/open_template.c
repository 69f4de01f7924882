/* The tokenizer and the chat templates of a checkpoint. Templates:
 * chat_template.jinja and the named ones of additional_chat_templates/, which
 * win, or tokenizer_config.json, or the metadata of a GGUF file, or a file that
 * the user names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/engine.h"
#include "engine/core/open_gguf.h"
#include "engine/core/specials.h"
#include "file/json.h"
#include "file/map.h"

struct source {
    struct qwick_engine *eng;
    const struct qwick_engine_options *o;
    const struct json_value *config; /* tokenizer_config.json, or the special
                                        tokens of a GGUF file */
    const char *config_path;
    const struct gguf *gguf; /* NULL: a directory */
};

static bool is_blank(const char *text, size_t n)
{
    static const char space[] = " \t\n\v\f\r";
    while (n && memchr(space, text[n - 1], sizeof space - 1))
        n--;
    return n == 0;
}

static int open_form(const struct source *s, struct chat_template **out,
                     const char *path, const char *text, size_t n,
                     struct qwick_err *e)
{
    const struct chat_template_settings settings = {s->o->template_args,
                                                s->o->template_time};
    if (is_blank(text, n))
        return 0; /* a template without text is none */
    return chat_template_open(out, path, text, n, s->config, &settings, e);
}

/* ---- a list of named templates ---- */

/* Transformers has it as a list of {"name", "template"}. */
static const struct json_value *find_named(const struct json_value *list,
                                           const char *name)
{
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++) {
        const struct json_value *t = json_get(&list->items[i], "template");
        if (json_equals(json_get(&list->items[i], "name"), name) &&
            json_is(t, JSON_STRING))
            return t;
    }
    return NULL;
}

static int list_name(struct buf *out, const char *name, size_t n)
{
    return (out->len && buf_puts(out, ", ")) || buf_append(out, name, n) ? -1
                                                                         : 0;
}

/* The names of a list, and of the files that replace it. */
static int list_names(const struct source *s, struct buf *out,
                      struct qwick_err *e)
{
    static const char suffix[] = ".jinja";
    const struct json_value *list = json_get(s->config, "chat_template");
    char **files;
    size_t n;
    int bad = 0;
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++) {
        const struct json_value *name = json_get(&list->items[i], "name");
        if (json_is(name, JSON_STRING))
            bad |= list_name(out, name->str, name->len);
    }
    if (checkpoint_list_templates(s->eng->ck, suffix, &files, &n, e))
        return -1;
    for (size_t i = 0; i < n; i++)
        bad |= list_name(out, files[i], strlen(files[i]) - strlen(suffix));
    checkpoint_list_free(files, n);
    return bad ? err_oom(e, out->len) : 0;
}

/* A template in the metadata of a GGUF file; NULL: the default one. */
static int open_metadata(const struct source *s, const char *name,
                         struct chat_template **out, struct qwick_err *e)
{
    const char *text;
    size_t n;
    if (open_gguf_template(s->gguf, name, &text, &n, e))
        return -1;
    return text ? open_form(s, out, s->config_path, text, n, e) : 0;
}

/* A template in a file of the checkpoint, if it is there. */
static int open_in(const struct source *s, const char *file,
                   struct chat_template **out, struct qwick_err *e)
{
    char path[640];
    struct map map;
    bool found;
    checkpoint_path(s->eng->ck, file, path, sizeof path);
    if (checkpoint_map_small(s->eng->ck, file, &map, &found, e))
        return -1;
    if (!found)
        return 0;
    int rc = open_form(s, out, path, (const char *)map.data, map.size, e);
    map_close(&map);
    return rc;
}

/* The file that transformers saves a named template in. */
static int open_saved(const struct source *s, const char *name,
                      struct chat_template **out, struct qwick_err *e)
{
    char file[sizeof CHECKPOINT_TEMPLATES + 100];
    if (strcmp(name, "default") == 0)
        return open_in(s, "chat_template.jinja", out, e);
    if (!*name || strchr(name, '/') || strlen(name) > 90)
        return 0;
    snprintf(file, sizeof file, CHECKPOINT_TEMPLATES "%s.jinja", name);
    return open_in(s, file, out, e);
}

static int open_named(const struct source *s, const char *name,
                      struct chat_template **out, struct qwick_err *e)
{
    char path[640];
    if (s->gguf)
        return open_metadata(s, name, out, e);
    if (open_saved(s, name, out, e) || *out)
        return *out ? 0 : -1;
    const struct json_value *t =
        find_named(json_get(s->config, "chat_template"), name);
    if (!t)
        return 0;
    snprintf(path, sizeof path, "%s: chat_template \"%.80s\"", s->config_path,
             name);
    return open_form(s, out, path, t->str, t->len, e);
}

/* ---- where templates come from ---- */

static int open_file(const struct source *s, const char *path,
                     struct qwick_err *e)
{
    char *text;
    size_t n;
    if (map_read_all(path, CHECKPOINT_SMALL, &text, &n, e))
        return -1;
    int rc = open_form(s, &s->eng->form, path, text, n, e);
    free(text);
    if (!rc && !s->eng->form)
        rc = err_set(e, QWICK_ERR_USAGE, "%s: chat template: is empty", path);
    return rc;
}

/* The template that the user asked for: a name in the checkpoint, or a file. */
static int open_asked(const struct source *s, const char *name,
                      struct qwick_err *e)
{
    struct map_id id;
    struct buf names = {0};
    if (open_named(s, name, &s->eng->form, e))
        return -1;
    if (s->eng->form)
        return 0;
    if (map_id_now(&id, name) == 0)
        return open_file(s, name, e);
    int rc = list_names(s, &names, e);
    rc = rc ? rc
            : err_set(e, QWICK_ERR_USAGE,
                      "chat template %s: no such file, and %s has %s%s", name,
                      checkpoint_dir(s->eng->ck),
                      names.len ? "only " : "no named templates",
                      names.len ? names.data : "");
    buf_free(&names);
    return rc;
}

static int open_default(const struct source *s, struct qwick_err *e)
{
    const struct json_value *t = json_get(s->config, "chat_template");
    struct qwick_engine *eng = s->eng;
    if (s->gguf)
        return open_metadata(s, NULL, &eng->form, e) ||
                       open_metadata(s, "tool_use", &eng->form_tools, e)
                   ? -1
                   : 0;
    if (open_saved(s, "default", &eng->form, e) ||
        open_saved(s, "tool_use", &eng->form_tools, e))
        return -1;
    if (eng->form) /* files replace what tokenizer_config.json has */
        return 0;
    if (json_is(t, JSON_STRING))
        return open_form(s, &eng->form, s->config_path, t->str, t->len, e);
    if (open_named(s, "default", &eng->form, e) ||
        (!eng->form_tools && open_named(s, "tool_use", &eng->form_tools, e)))
        return -1;
    if (!eng->form && json_is(t, JSON_ARRAY) && t->len)
        engine_warn(eng,
                    "%s: chat_template: none of its %zu templates is named "
                    "default; choose one by its name",
                    s->config_path, t->len);
    return 0;
}

/* ---- open ---- */

static int open_source(const struct source *s, struct qwick_err *e)
{
    return s->o->chat_template ? open_asked(s, s->o->chat_template, e)
                               : open_default(s, e);
}

static int open_gguf_text(struct qwick_engine *eng,
                          const struct qwick_engine_options *o,
                          struct qwick_err *e)
{
    const struct gguf *g = checkpoint_gguf(eng->ck);
    if (open_gguf_tokenizer(&eng->bpe, g, e))
        return -1;
    struct json_value keys[OPEN_GGUF_TOKENS], values[OPEN_GGUF_TOKENS];
    size_t n = eng->bpe ? open_gguf_tokens(g, eng->bpe, keys, values) : 0;
    const struct json_value tokens = {
        .type = JSON_OBJECT, .len = n, .items = values, .keys = keys};
    const struct source s = {eng, o, &tokens, checkpoint_dir(eng->ck), g};
    if (open_source(&s, e))
        return -1;
    if (eng->bpe)
        open_gguf_stops(eng->bpe, &eng->model.config);
    eng->bos_id = engine_frame_bos(eng);
    return 0;
}

int engine_open_text(struct qwick_engine *eng,
                     const struct qwick_engine_options *o, struct qwick_err *e)
{
    struct specials specials;
    if (checkpoint_gguf(eng->ck))
        return open_gguf_text(eng, o, e);
    int rc = specials_open(&specials, eng->ck, e) ||
             specials_open_tokenizer(&specials, eng->ck, &eng->bpe, e) ||
             (!eng->bpe &&
              specials_find_pieces(eng->ck, &eng->pieces_file, e));
    if (!rc) {
        const struct source s = {eng, o, &specials.all,
                                 specials.beside.config.path, NULL};
        rc = open_source(&s, e);
    }
    if (!rc)
        specials_apply(eng, &specials);
    specials_close(&specials);
    return rc ? -1 : 0;
}
