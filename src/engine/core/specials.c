#include "engine/core/specials.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"

enum { FILE_CONFIG, FILE_MAP, FILE_ADDED };
static const char *const files[SPECIALS_FILES] = {
    [FILE_CONFIG] = "tokenizer_config.json",
    [FILE_MAP] = "special_tokens_map.json",
    [FILE_ADDED] = "added_tokens.json",
};

static int read_json(struct specials *s, size_t file,
                     const struct checkpoint *ck, struct bpe_beside_file *out,
                     struct qwick_err *e)
{
    struct map map;
    bool found;
    char *path = s->paths[file];
    checkpoint_path(ck, files[file], path, sizeof s->paths[file]);
    out->path = path;
    if (checkpoint_map_small(ck, files[file], &map, &found, e))
        return -1;
    if (!found)
        return 0;
    int rc = json_parse_python(&s->docs[file], path, (const char *)map.data,
                               map.size, QWICK_ERR_MODEL, e);
    map_close(&map);
    if (rc)
        return -1;
    out->root = json_root(s->docs[file]);
    return json_is(out->root, JSON_OBJECT)
               ? 0
               : err_set(e, QWICK_ERR_MODEL, "%s: must be a JSON object", path);
}

static bool is_token(const struct json_value *key)
{
    static const char suffix[] = "_token";
    size_t n = strlen(suffix);
    return key->len > n && memcmp(key->str + key->len - n, suffix, n) == 0;
}

/* Add the members of an object, or only its tokens. The first member of a name
 * counts, see json_get. */
static void add(struct specials *s, const struct json_value *v, size_t room,
                bool tokens)
{
    for (size_t i = 0; i < v->len; i++) {
        if (tokens && !is_token(&v->keys[i]))
            continue;
        s->rows[s->all.len] = v->keys[i];
        s->rows[room + s->all.len++] = v->items[i];
    }
}

int specials_open(struct specials *out, const struct checkpoint *ck,
                  struct qwick_err *e)
{
    struct specials *s = out;
    *s = (struct specials){.all = {.type = JSON_OBJECT}};
    struct bpe_beside *b = &s->beside;
    if (read_json(s, FILE_CONFIG, ck, &b->config, e) ||
        (!json_get(b->config.root, "added_tokens_decoder") &&
         (read_json(s, FILE_MAP, ck, &b->map, e) ||
          read_json(s, FILE_ADDED, ck, &b->added, e))))
        return -1;
    const struct json_value *config = b->config.root, *map = b->map.root;
    size_t room = (config ? config->len : 0) + (map ? map->len : 0);
    s->rows = calloc(2 * room + 1, sizeof *s->rows);
    if (!s->rows)
        return err_oom(e, 2 * room * sizeof *s->rows);
    if (map)
        add(s, map, room, true);
    if (config)
        add(s, config, room, false);
    s->all.keys = s->rows;
    s->all.items = s->rows + room;
    return 0;
}

void specials_close(struct specials *s)
{
    for (size_t i = 0; i < SPECIALS_FILES; i++)
        json_free(s->docs[i]);
    free(s->rows);
}

int specials_map_tokenizer(const struct checkpoint *ck, struct map *map,
                           const char **name, bool *found, struct qwick_err *e)
{
    static const char *const names[] = {"tokenizer.json", "tekken.json",
                                        "vocab.txt"};
    *found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*found; i++) {
        *name = names[i];
        if (checkpoint_map(ck, *name, map, found, e))
            return -1;
    }
    *name = *found ? *name : names[0];
    return 0;
}

int specials_open_tokenizer(const struct specials *s,
                            const struct checkpoint *ck, struct bpe **out,
                            struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[512];
    *out = NULL;
    const char *name, *text;
    if (specials_map_tokenizer(ck, &map, &name, &found, e))
        return -1;
    if (!found)
        return 0;
    checkpoint_path(ck, name, path, sizeof path);
    text = (const char *)map.data;
    int rc = strcmp(name, "tekken.json") == 0
                 ? bpe_open_tekken(out, path, text, map.size, e)
             : strcmp(name, "vocab.txt") == 0
                 ? bpe_open_vocab(out, path, text, map.size, &s->beside, e)
                 : bpe_open_beside(out, path, text, map.size, &s->beside, e);
    map_close(&map);
    return rc;
}

int specials_find_pieces(const struct checkpoint *ck, const char **name,
                         struct qwick_err *e)
{
    static const char *const names[] = {"sentencepiece.bpe.model",
                                        "spiece.model", "tokenizer.model"};
    *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*name; i++) {
        struct map map;
        bool found;
        if (checkpoint_map(ck, names[i], &map, &found, e))
            return -1;
        if (found)
            map_close(&map);
        *name = found ? names[i] : NULL;
    }
    return 0;
}

/* The id of the added token that a member names, or -1. */
static int32_t id_of(const struct qwick_engine *eng, const struct specials *s,
                     const char *name)
{
    const struct json_value *v = json_get(&s->all, name);
    if (json_is(v, JSON_OBJECT))
        v = json_get(v, "content");
    return json_is(v, JSON_STRING) && eng->bpe ? bpe_added_id(eng->bpe, v->str)
                                               : -1;
}

int32_t engine_frame_bos(const struct qwick_engine *eng)
{
    struct bpe_frame f;
    if (!eng->bpe || bpe_get_frame(eng->bpe, &f, NULL) || f.n_before != 1)
        return -1;
    return f.before[0];
}

void specials_apply(struct qwick_engine *eng, const struct specials *s)
{
    const struct json_value *add_bos = json_get(&s->all, "add_bos_token");
    int32_t eos = id_of(eng, s, "eos_token");
    if (eos >= 0)
        (void)config_add_stop(&eng->model.config, eos);
    if (!json_is(add_bos, JSON_BOOL))
        eng->bos_id = engine_frame_bos(eng);
    else if (add_bos->boolean)
        eng->bos_id = id_of(eng, s, "bos_token");
    if (eng->bpe && json_is(add_bos, JSON_BOOL) && add_bos->boolean &&
        eng->bos_id < 0)
        engine_warn(eng,
                    "%s: add_bos_token: is true, but bos_token is not an "
                    "added token of the tokenizer; no token goes before texts",
                    s->beside.config.path);
}
