/* The tokenizer and the chat templates of a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"
#include "engine/core/open_gguf.h"
#include "file/checkpoint.h"
#include "file/map.h"
#include "text/bpe.h"

enum { MAX_PATH_BYTES = 4096 };

/* ---- the vocabulary -------------------------------------------------------
 */

/* Values of token_type. */
static const int32_t types[] = {[BPE_KIND_NORMAL] = 1,
                                [BPE_KIND_CONTROL] = 3,
                                [BPE_KIND_ADDED] = 4,
                                [BPE_KIND_UNUSED] = 5};

/* A token for each row of the embedding. */
static int put_tokens(struct gguf_out *o, const struct bpe *b, size_t n,
                      struct qwick_err *e)
{
    struct buf text = {0};
    int32_t *kinds = calloc(n, sizeof *kinds);
    int rc = kinds ? 0 : err_oom(e, n * sizeof *kinds);
    gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (size_t id = 0; id < n && !rc; id++) {
        enum bpe_kind kind;
        text.len = 0;
        if (bpe_export_token(b, id, &text, &kind) ||
            (kind == BPE_KIND_UNUSED && buf_printf(&text, "[PAD%zu]", id)))
            rc = err_oom(e, text.len);
        else
            gguf_put_element_string(o, text.data, text.len);
        kinds[id] = types[kind];
    }
    if (!rc)
        gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t id = 0; id < n && !rc; id++)
        gguf_put_element_i32(o, kinds[id]);
    free(kinds);
    buf_free(&text);
    return rc;
}

static int put_merges(struct gguf_out *o, const struct bpe *b,
                      struct qwick_err *e)
{
    struct buf text = {0};
    size_t n = bpe_export_merges(b);
    int rc = 0;
    gguf_put_array(o, "tokenizer.ggml.merges", GGUF_STRING, n);
    for (size_t rank = 0; rank < n && !rc; rank++) {
        text.len = 0;
        if (bpe_export_merge(b, rank, &text))
            rc = err_oom(e, text.len);
        else
            gguf_put_element_string(o, text.data, text.len);
    }
    buf_free(&text);
    return rc;
}

/* ---- special ids ----------------------------------------------------------
 */

/* Where an id may stand. */
struct places {
    const struct bpe *b;
    const struct json_value *tokenizer, *model; /* tokenizer_config.json, NULL:
                                                   none; config.json */
    size_t vocab_size;
};

/* The id of "NAME_token" in tokenizer_config.json, else "NAME_token_id" in
 * config.json, else -1. */
static int32_t special_id(const struct places *p, const char *name)
{
    char key[32];
    int64_t id;
    snprintf(key, sizeof key, "%s_token", name);
    const struct json_value *v = json_get(p->tokenizer, key);
    if (json_is(v, JSON_OBJECT))
        v = json_get(v, "content");
    if (json_is(v, JSON_STRING) && strlen(v->str) == v->len)
        return bpe_added_id(p->b, v->str);
    snprintf(key, sizeof key, "%s_token_id", name);
    v = json_get(p->model, key);
    if (json_is(v, JSON_ARRAY) && v->len)
        v = &v->items[0];
    return json_int(v, 0, (int64_t)p->vocab_size - 1, &id) ? -1 : (int32_t)id;
}

static void put_id(struct gguf_out *o, const char *key, int32_t id)
{
    if (id >= 0)
        gguf_put_u32(o, key, (uint32_t)id);
}

/* The other stop ids. Readers add <|im_end|> and <|endoftext|> by themselves,
 * so they come last, where there may be no key left. */
static void put_stops(struct gguf_out *o, const struct places *p,
                      const struct config *c, int32_t eos)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const int32_t known[] = {bpe_added_id(p->b, "<|im_end|>"),
                             bpe_added_id(p->b, "<|endoftext|>")};
    size_t n = 0;
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < c->n_stop_ids && n < 2; i++) {
            int32_t id = c->stop_ids[i];
            bool is_known = id == known[0] || id == known[1];
            if (id != eos && is_known == (late == 1))
                put_id(o, keys[n++], id);
        }
}

static int put_ids(struct gguf_out *o, const struct places *p,
                   const struct config *c, struct qwick_err *e)
{
    struct bpe_frame f;
    if (bpe_get_frame(p->b, &f, e))
        return -1;
    int32_t eos = special_id(p, "eos"), bos = special_id(p, "bos");
    if (eos < 0 && c->n_stop_ids)
        eos = c->stop_ids[0];
    if (f.n_after)
        eos = f.after[0];
    if (f.n_before)
        bos = f.before[0];
    put_id(o, "tokenizer.ggml.eos_token_id", eos);
    put_id(o, "tokenizer.ggml.bos_token_id", bos);
    put_id(o, "tokenizer.ggml.padding_token_id", special_id(p, "pad"));
    gguf_put_bool(o, "tokenizer.ggml.add_bos_token", f.n_before > 0);
    if (f.n_after)
        gguf_put_bool(o, "tokenizer.ggml.add_eos_token", true);
    put_stops(o, p, c, eos);
    return 0;
}

/* ---- chat templates -------------------------------------------------------
 */

/* A list of {"name", "template"}. "default" has the key without a name. */
static void put_named(struct gguf_out *o, const struct json_value *list)
{
    for (size_t i = 0; i < list->len; i++) {
        const struct json_value *name = json_get(&list->items[i], "name");
        const struct json_value *t = json_get(&list->items[i], "template");
        char key[128] = "tokenizer.chat_template";
        if (!json_is(name, JSON_STRING) || !json_is(t, JSON_STRING))
            continue;
        if (!json_equals(name, "default"))
            snprintf(key, sizeof key, "tokenizer.chat_template.%.60s",
                     name->str);
        gguf_put_string(o, key, t->str, t->len);
    }
}

static int put_templates(struct gguf_out *o, const struct checkpoint *ck,
                         const struct json_value *tokenizer,
                         struct qwick_err *e)
{
    static const char key[] = "tokenizer.chat_template";
    const struct json_value *t = json_get(tokenizer, "chat_template");
    struct map map;
    bool found;
    if (checkpoint_map_small(ck, "chat_template.jinja", &map, &found, e))
        return -1;
    if (found) {
        gguf_put_string(o, key, (const char *)map.data, map.size);
        map_close(&map);
    } else if (json_is(t, JSON_STRING)) {
        gguf_put_string(o, key, t->str, t->len);
    } else if (json_is(t, JSON_ARRAY)) {
        put_named(o, t);
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------
 */

/* *out is NULL when the checkpoint has no tokenizer. */
static int open_bpe(struct bpe **out, const struct quantize_source *s,
                    struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[MAX_PATH_BYTES];
    *out = NULL;
    checkpoint_path(s->ck, "tokenizer.json", path, sizeof path);
    if (checkpoint_map(s->ck, "tokenizer.json", &map, &found, e))
        return -1;
    if (!found)
        return 0;
    int rc = bpe_open(out, path, (const char *)map.data, map.size, e);
    map_close(&map);
    if (rc)
        return -1;
    const char *lack = bpe_export_lacks(*out);
    if (!lack && bpe_size(*out) > s->c.vocab_size &&
        bpe_drop_from(*out, s->c.vocab_size))
        lack = "more tokens than the embedding has rows";
    if (!lack)
        return 0;
    bpe_close(*out);
    *out = NULL;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: a tokenizer with %s cannot be written to a GGUF file",
                   path, lack);
}

static int open_config(struct json_doc **out, const struct checkpoint *ck,
                       struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[MAX_PATH_BYTES];
    *out = NULL;
    checkpoint_path(ck, "tokenizer_config.json", path, sizeof path);
    if (checkpoint_map_small(ck, "tokenizer_config.json", &map, &found, e))
        return -1;
    if (!found)
        return 0;
    int rc = json_parse(out, path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    map_close(&map);
    return rc;
}

int quantize_gguf_text(struct quantize_plan *p, const struct quantize_source *s,
                       struct qwick_err *e)
{
    struct bpe *b;
    struct json_doc *doc = NULL;
    if (open_bpe(&b, s, e))
        return -1;
    if (!b) {
        quantize_note(p, "tokenizer.json",
                      "there is none: the file has only "
                      "weights");
        return 0;
    }
    int rc = open_config(&doc, s->ck, e);
    const struct places places = {b, doc ? json_root(doc) : NULL,
                                  json_root(s->config), s->c.vocab_size};
    struct gguf_out *o = &p->meta;
    if (!rc) {
        gguf_put_string(o, "tokenizer.ggml.model", "gpt2", 4);
        const char *pre = open_gguf_pre(bpe_export_split(b));
        gguf_put_string(o, "tokenizer.ggml.pre", pre, strlen(pre));
        rc = put_tokens(o, b, s->c.vocab_size, e) || put_merges(o, b, e) ||
                     put_ids(o, &places, &s->c, e) ||
                     put_templates(o, s->ck, places.tokenizer, e)
                 ? -1
                 : 0;
    }
    json_free(doc);
    bpe_close(b);
    return rc;
}
