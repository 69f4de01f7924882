/* Tokens that other files than tokenizer.json add. transformers does the same
 * when it loads a tokenizer (PreTrainedTokenizerFast.__init__ and
 * _from_pretrained): it adds the tokens of added_tokens_decoder, or of
 * added_tokens.json, in the order of their ids, and then the special tokens
 * that have names. */
#include "text/bpe/bpe_load.h"

#include <stdlib.h>

/* The id that a member of added_tokens_decoder has as its name. */
static int read_key(const struct bpe_load *l, struct bpe_listed *t,
                    const struct json_value *key)
{
    int32_t id = 0;
    size_t i = 0;
    while (i < key->len && key->str[i] >= '0' && key->str[i] <= '9' &&
           id <= BPE_MAX_ID)
        id = id * 10 + (key->str[i++] - '0');
    if (i == 0 || i < key->len || id > BPE_MAX_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: id \"%s\" is not an integer from 0 to %d",
                       t->file, t->list, ERR_SHOW(key->str, key->len),
                       BPE_MAX_ID);
    t->id = id;
    return 0;
}

static int need_object(const struct bpe_load *l, const char *file,
                       const char *list, const struct json_value *v)
{
    return json_is(v, JSON_OBJECT) ? 0
                                   : err_set(l->e, QWICK_ERR_MODEL,
                                             "%s: %s: must be an object, is %s",
                                             file, list, json_type_name(v));
}

/* The ids with their tokens. */
static int list_decoder(const struct bpe_load *l, struct bpe_listing *t,
                        const char *file, const struct json_value *v)
{
    static const char name[] = "added_tokens_decoder";
    if (need_object(l, file, name, v))
        return -1;
    for (size_t i = 0; i < v->len; i++) {
        struct bpe_listed k = {.file = file, .list = name, .item = i};
        if (read_key(l, &k, &v->keys[i]) ||
            bpe_list_object(l, t, &k, &v->items[i], true))
            return -1;
    }
    return 0;
}

/* The names of special tokens, and of lists of them. */
static const char *const names[] = {"bos_token", "eos_token", "unk_token",
                                    "sep_token", "pad_token", "cls_token",
                                    "mask_token"};
static const char *const lists[] = {"additional_special_tokens",
                                    "extra_special_tokens"};
enum {
    N_NAMES = sizeof names / sizeof *names,
    N_LISTS = sizeof lists / sizeof *lists
};

/* A special token: its text, or an object. null and an empty text are none. */
static int list_special(const struct bpe_load *l, struct bpe_listing *t,
                        const char *file, const char *list, size_t item,
                        const struct json_value *v)
{
    struct bpe_listed k = {
        .file = file, .list = list, .item = item, .id = -1, .special = true};
    if (json_is(v, JSON_OBJECT)) {
        if (bpe_list_object(l, t, &k, v, true))
            return -1;
        t->v[t->n - 1].special = true;
        return 0;
    }
    if (bpe_is_null(v) || (json_is(v, JSON_STRING) && v->len == 0))
        return 0;
    if (!json_is(v, JSON_STRING))
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: must be a string or an object, is %s", file,
                       list, json_type_name(v));
    k.content = v->str;
    k.len = v->len;
    return bpe_list_token(l, t, &k);
}

/* All special tokens of a file that have names. skip: a file whose names win,
 * or NULL. */
static int list_specials(const struct bpe_load *l, struct bpe_listing *t,
                         const struct bpe_beside_file *f,
                         const struct json_value *skip)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (bpe_is_null(json_get(skip, names[i])) &&
            list_special(l, t, f->path, names[i], 0,
                         json_get(f->root, names[i])))
            return -1;
    for (size_t k = 0; k < N_LISTS; k++) {
        const struct json_value *v = json_get(f->root, lists[k]);
        if (!json_is(v, JSON_ARRAY) && !json_is(v, JSON_OBJECT))
            continue;
        for (size_t i = 0; i < v->len; i++)
            if (list_special(l, t, f->path, lists[k], i, &v->items[i]))
                return -1;
    }
    return 0;
}

/* The texts with their ids. Those that are special have names, too. */
static int list_encoder(const struct bpe_load *l, struct bpe_listing *t,
                        const struct bpe_beside_file *f)
{
    for (size_t i = 0; i < f->root->len; i++) {
        const struct json_value *text = &f->root->keys[i];
        struct bpe_listed k = {.file = f->path,
                               .list = "added tokens",
                               .item = i,
                               .content = text->str,
                               .len = text->len,
                               .normalized = true};
        int64_t id;
        if (text->len == 0 || json_int(&f->root->items[i], 0, BPE_MAX_ID, &id))
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: \"%s\": must be a text with an id from 0 to %d",
                           f->path, ERR_SHOW(text->str, text->len), BPE_MAX_ID);
        k.id = (int32_t)id;
        if (bpe_list_token(l, t, &k))
            return -1;
    }
    return 0;
}

static int by_id(const void *x, const void *y)
{
    const struct bpe_listed *a = x, *b = y;
    return (a->id > b->id) - (a->id < b->id);
}

int bpe_list_beside(const struct bpe_load *l, struct bpe_listing *t,
                    const struct bpe_beside *beside)
{
    const struct json_value *decoder =
        json_get(beside->config.root, "added_tokens_decoder");
    struct bpe_listing specials = {0};
    size_t first = t->n;
    int rc = list_specials(l, &specials, &beside->map, NULL) ||
             list_specials(l, &specials, &beside->config, beside->map.root) ||
             (decoder && list_decoder(l, t, beside->config.path, decoder)) ||
             (beside->added.root && list_encoder(l, t, &beside->added));
    if (!rc && t->n > first)
        qsort(t->v + first, t->n - first, sizeof *t->v, by_id);
    for (size_t i = 0; i < specials.n && !rc; i++)
        rc = bpe_list_token(l, t, &specials.v[i]);
    free(specials.v);
    return rc ? -1 : 0;
}
