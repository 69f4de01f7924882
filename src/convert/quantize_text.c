/* The tokenizer of a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"
#include "engine/core/open_gguf.h"
#include "engine/core/specials.h"
#include "file/checkpoint.h"
#include "file/map.h"
#include "text/bpe/bpe.h"

enum { MAX_PATH_BYTES = 4096 };

/* ---- the vocabulary -------------------------------------------------------
 */

/* Values of token_type. */
static const int32_t types[] = {[BPE_KIND_NORMAL] = 1,
                                [BPE_KIND_CONTROL] = 3,
                                [BPE_KIND_ADDED] = 4,
                                [BPE_KIND_UNUSED] = 5,
                                [BPE_KIND_BYTE] = 6};
enum { TYPE_UNKNOWN = 2 };

/* A token for each row of the embedding. unknown: the token for text without
 * tokens, or -1. */
static int put_tokens(struct gguf_out *o, const struct bpe *b, size_t n,
                      int32_t unknown, struct qwick_err *e)
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
        kinds[id] = (int32_t)id == unknown ? TYPE_UNKNOWN : types[kind];
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

/* Scores of tokens that merges do not make: as converters write them. */
static float other_score(enum bpe_kind kind)
{
    return kind == BPE_KIND_BYTE ? 0 : kind == BPE_KIND_UNUSED ? -10000 : -1000;
}

static int put_scores(struct gguf_out *o, const struct bpe *b, size_t n,
                      const char *name, struct qwick_err *e)
{
    struct buf text = {0};
    float *scores;
    if (bpe_export_scores(b, name, &scores, e))
        return -1;
    int rc = 0;
    gguf_put_array(o, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t id = 0; id < n && !rc; id++) {
        enum bpe_kind kind;
        text.len = 0;
        rc = bpe_export_token(b, id, &text, &kind) ? err_oom(e, text.len) : 0;
        gguf_put_element_f32(o, kind == BPE_KIND_NORMAL
                                    ? (double)scores[id]
                                    : (double)other_score(kind));
    }
    gguf_put_bool(o, "tokenizer.ggml.add_space_prefix", bpe_export_prefix(b));
    free(scores);
    buf_free(&text);
    return rc;
}

/* ---- special ids ----------------------------------------------------------
 */

/* Where an id may stand. */
struct places {
    struct bpe *b;
    const struct json_value *tokenizer, *model; /* tokenizer_config.json, with
                                                   special_tokens_map.json;
                                                   config.json */
    size_t vocab_size;
    const char *dir; /* of the checkpoint, for messages */
};

/* The id of "NAME_token" in tokenizer_config.json, else "NAME_token_id" in
 * config.json or its text_config, else -1. */
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
    if (!v)
        v = json_get(json_get(p->model, "text_config"), key);
    if (json_is(v, JSON_ARRAY) && v->len)
        v = &v->items[0];
    return json_int(v, 0, (int64_t)p->vocab_size - 1, &id) ? -1 : (int32_t)id;
}

static void put_id(struct gguf_out *o, const char *key, int32_t id)
{
    if (id >= 0)
        gguf_put_u32(o, key, (uint32_t)id);
}

/* Put the other stop ids. Readers add <|im_end|> and <|endoftext|> by
 * themselves, so they come last, where there may be no key left. An error if
 * there is none for another one. */
static int put_stops(struct gguf_out *o, const struct places *p,
                     const struct config *c, int32_t eos, struct qwick_err *e)
{
    enum { N_KEYS = 2 };
    static const char *const keys[N_KEYS] = {"tokenizer.ggml.eot_token_id",
                                             "tokenizer.ggml.eom_token_id"};
    const int32_t known[] = {bpe_added_id(p->b, "<|im_end|>"),
                             bpe_added_id(p->b, "<|endoftext|>")};
    size_t n = 0;
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < c->n_stop_ids; i++) {
            int32_t id = c->stop_ids[i];
            bool is_known = id == known[0] || id == known[1];
            if (id == eos || is_known != (late == 1))
                continue;
            if (n < N_KEYS)
                put_id(o, keys[n++], id);
            else if (!is_known)
                return err_set(e, QWICK_ERR_MODEL,
                               "%s: eos_token_id: %zu ids cannot be written to "
                               "a GGUF file, which has keys for %d: no key is "
                               "left for %d",
                               p->dir, c->n_stop_ids, N_KEYS + 1, (int)id);
        }
    return 0;
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
    const struct json_value *v = json_get(p->tokenizer, "add_bos_token");
    bool told = json_is(v, JSON_BOOL);
    bool add_bos = told ? v->boolean : f.n_before > 0;
    if (f.n_before && !told)
        bos = f.before[0];
    put_id(o, "tokenizer.ggml.eos_token_id", eos);
    put_id(o, "tokenizer.ggml.bos_token_id", bos);
    put_id(o, "tokenizer.ggml.padding_token_id", special_id(p, "pad"));
    put_id(o, "tokenizer.ggml.unknown_token_id", special_id(p, "unk"));
    gguf_put_bool(o, "tokenizer.ggml.add_bos_token", add_bos && bos >= 0);
    if (f.n_after)
        gguf_put_bool(o, "tokenizer.ggml.add_eos_token", true);
    return put_stops(o, p, c, eos, e);
}

/* ---- all of it ------------------------------------------------------------
 */

/* *out is NULL when the checkpoint has no tokenizer. */
static int open_bpe(struct bpe **out, const struct quantize_source *s,
                    const struct specials *names, struct qwick_err *e)
{
    char path[MAX_PATH_BYTES];
    if (specials_open_tokenizer(names, s->ck, out, e))
        return -1;
    if (!*out)
        return 0;
    checkpoint_path(s->ck, "tokenizer.json", path, sizeof path);
    const char *lack = bpe_export_lacks(*out);
    if (!lack && bpe_size(*out) > s->m.config.vocab_size &&
        bpe_drop_from(*out, s->m.config.vocab_size))
        lack = "more tokens than the embedding has rows";
    if (!lack)
        return 0;
    bpe_close(*out);
    *out = NULL;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: a tokenizer with %s cannot be written to a GGUF file",
                   path, lack);
}

static const char pre_key[] = "tokenizer.ggml.pre";

/* Write how texts are split. ignore_merges is left out if it changes nothing
 * and no name has it. */
static int put_pre(struct gguf_out *o, struct bpe *b, const char *path,
                   struct qwick_err *e)
{
    struct bpe_parts parts = {0};
    size_t n;
    bool all = false;
    bpe_export_splitting(b, &parts);
    const char *name = open_gguf_pre(&parts, &n);
    if (!name && parts.ignore_merges && bpe_export_merges_make_all(b, &all, e))
        return -1;
    if (all) {
        struct bpe_parts plain = parts;
        plain.ignore_merges = false;
        name = open_gguf_pre(&plain, &n);
    }
    if (!name)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: a tokenizer with the split of %s, %s NFC and %s "
                       "ignore_merges cannot be written to a GGUF file, which "
                       "has no name for it",
                       path, splits[parts.split].name,
                       parts.nfc ? "with" : "without",
                       parts.ignore_merges ? "with" : "without");
    gguf_put_string(o, pre_key, name, n);
    return 0;
}

/* Write the kind of the tokenizer, and the metadata that only this kind has. */
static int put_kind(struct gguf_out *o, const struct quantize_source *s,
                    struct bpe *b, struct qwick_err *e)
{
    static const char model[] = "tokenizer.ggml.model";
    char path[MAX_PATH_BYTES];
    checkpoint_path(s->ck, "tokenizer.json", path, sizeof path);
    if (bpe_export_pieces(b)) {
        gguf_put_string(o, model, "llama", 5);
        gguf_put_string(o, pre_key, "default", 7);
        return put_scores(o, b, s->m.config.vocab_size, path, e);
    }
    gguf_put_string(o, model, "gpt2", 4);
    if (put_pre(o, b, path, e))
        return -1;
    return put_merges(o, b, e);
}

/* Write the tokenizer b and the templates. */
static int put_text(struct quantize_plan *p, const struct quantize_source *s,
                    const struct specials *names, struct bpe *b,
                    struct qwick_err *e)
{
    const struct places places = {b, &names->all, json_root(s->config),
                                  s->m.config.vocab_size,
                                  checkpoint_dir(s->ck)};
    struct gguf_out *o = &p->meta;
    int32_t unknown = bpe_export_pieces(b) ? special_id(&places, "unk") : -1;
    const char *loss = bpe_export_loses(b);
    if (loss)
        quantize_warn(p, "tokenizer.json", loss);
    return put_kind(o, s, b, e) ||
                   put_tokens(o, b, s->m.config.vocab_size, unknown, e) ||
                   put_ids(o, &places, &s->m.config, e) ||
                   quantize_gguf_templates(p, s->ck, places.tokenizer, e)
               ? -1
               : 0;
}

int quantize_gguf_text(struct quantize_plan *p, const struct quantize_source *s,
                       struct qwick_err *e)
{
    struct bpe *b = NULL;
    struct specials names;
    int rc = specials_open(&names, s->ck, e) || open_bpe(&b, s, &names, e);
    if (!rc && b)
        rc = put_text(p, s, &names, b, e);
    else if (!rc)
        quantize_note(p, "tokenizer.json",
                      "there is none: the file has only weights");
    specials_close(&names);
    bpe_close(b);
    return rc ? -1 : 0;
}
