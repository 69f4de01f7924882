#include "engine/core/specials.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"

static int read_json(struct json_doc **out, const struct checkpoint *ck,
                     const char *name, struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[512];
    *out = NULL;
    if (checkpoint_map_small(ck, name, &map, &found, e))
        return -1;
    if (!found)
        return 0;
    checkpoint_path(ck, name, path, sizeof path);
    int rc = json_parse(out, path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    map_close(&map);
    if (!rc && !json_is(json_root(*out), JSON_OBJECT))
        return err_set(e, QWICK_ERR_MODEL, "%s: must be a JSON object", path);
    return rc;
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
    checkpoint_path(ck, "tokenizer_config.json", s->path, sizeof s->path);
    if (read_json(&s->config, ck, "tokenizer_config.json", e) ||
        read_json(&s->map, ck, "special_tokens_map.json", e))
        return -1;
    const struct json_value *config =
        s->config ? json_root(s->config) : &s->all;
    const struct json_value *map =
        s->map && !json_get(config, "added_tokens_decoder") ? json_root(s->map)
                                                            : &s->all;
    size_t room = config->len + map->len;
    s->rows = calloc(2 * room + 1, sizeof *s->rows);
    if (!s->rows)
        return err_oom(e, 2 * room * sizeof *s->rows);
    if (map != &s->all)
        add(s, map, room, true);
    if (config != &s->all)
        add(s, config, room, false);
    s->all.keys = s->rows;
    s->all.items = s->rows + room;
    return 0;
}

void specials_close(struct specials *s)
{
    json_free(s->config);
    json_free(s->map);
    free(s->rows);
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
                    s->path);
}
