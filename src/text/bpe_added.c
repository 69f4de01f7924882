/* Read added_tokens: check them against the vocabulary, give them rows, sort
 * them. */
#include "text/bpe_load.h"

#include <stdlib.h>

static int added_flags(const struct bpe_load *l, const struct json_value *v,
                       size_t i, const struct json_value *content)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip",
                                      "normalized"};
    for (size_t k = 0; k < sizeof off / sizeof *off; k++) {
        const struct json_value *x = json_get(v, off[k]);
        if (!bpe_is_bool(x, false))
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: added_tokens: item %zu, \"%s\": %s is %s "
                           "(supported: false)",
                           l->name, i, ERR_SHOW(content->str, content->len),
                           off[k],
                           !x                      ? "missing"
                           : json_is(x, JSON_BOOL) ? "true"
                                                   : "no boolean");
    }
    if (!json_is(json_get(v, "special"), JSON_BOOL))
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: item %zu, \"%s\": special is not a "
                       "boolean",
                       l->name, i, ERR_SHOW(content->str, content->len));
    return 0;
}

static int compare_added(const void *x, const void *y)
{
    const struct bpe_added *a = x, *b = y;
    int c = memcmp(a->content, b->content, a->len < b->len ? a->len : b->len);
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

/* Read and check one item. out->content points into the JSON tree. */
static int read_added(const struct bpe_load *l, const struct json_value *v,
                      size_t i, struct bpe_added *out)
{
    const struct json_value *content = json_get(v, "content");
    if (!json_is(content, JSON_STRING) || content->len == 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: item %zu: content is not a string or "
                       "empty",
                       l->name, i);
    const struct json_value *id = json_get(v, "id");
    const char *id_text = json_is(id, JSON_NUMBER) ? id->str : "missing";
    int64_t value;
    if (json_int(id, 0, BPE_MAX_ID, &value) < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: item %zu, \"%s\": id %s is not an "
                       "integer from 0 to %d",
                       l->name, i, ERR_SHOW(content->str, content->len),
                       ERR_SHOW(id_text, strlen(id_text)), BPE_MAX_ID);
    if (content->len > BPE_MAX_TOKEN)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: content too long", l->name);
    out->content = content->str;
    out->len = content->len;
    out->id = (uint32_t)value;
    return added_flags(l, v, i, content);
}

static int same_id(const struct bpe_load *l, uint32_t id, const char *s,
                   size_t n, const char *t, size_t m)
{
    return err_set(l->e, QWICK_ERR_MODEL,
                   "%s: %s: id %u is shared by \"%s\" and "
                   "\"%s\"",
                   l->name, l->added_name, (unsigned)id, ERR_SHOW(s, n),
                   ERR_SHOW(t, m));
}

/* Give the added token its row. The model's tokens are still spellings, not
 * bytes. */
static int place_added(struct bpe_load *l, const struct bpe_added *a,
                       bool special)
{
    struct bpe *b = l->b;
    struct bpe_tok *t = &b->tok[a->id];
    int32_t known =
        bpe_find(b, &l->table, bpe_hash(b->seed, a->content, a->len),
                 a->content, a->len);
    if (known >= 0 && (uint32_t)known != a->id)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: \"%s\" has id %u, but %d in %s", l->name,
                       l->added_name, ERR_SHOW(a->content, a->len),
                       (unsigned)a->id, (int)known, l->vocab_name);
    if (t->flags && known < 0)
        return same_id(l, a->id, b->arena + t->off, t->len, a->content, a->len);
    if (t->flags & BPE_ADDED)
        return err_set(l->e, QWICK_ERR_MODEL, "%s: %s: \"%s\" is there twice",
                       l->name, l->added_name, ERR_SHOW(a->content, a->len));
    unsigned flags = t->flags | BPE_HAS | BPE_ADDED;
    t->flags = (uint8_t)(special ? flags | BPE_SPECIAL : flags);
    return 0;
}

/* Make room in the arena and in the rows for the n tokens of b->added. */
static int make_room(struct bpe_load *l, size_t n)
{
    struct bpe *b = l->b;
    size_t len = l->vocab.len, size = b->size;
    for (size_t i = 0; i < n; i++) {
        len += 2 * b->added[i].len;
        if (b->added[i].id >= size)
            size = (size_t)b->added[i].id + 1;
    }
    if (len + BPE_PAD > UINT32_MAX)
        return err_set(l->e, QWICK_ERR_MODEL, "%s: %s: too long", l->name,
                       l->added_name);
    char *arena = realloc(l->vocab.p, len + BPE_PAD);
    if (!arena)
        return err_oom(l->e, len);
    b->arena = l->vocab.p = arena;
    memset(arena + l->vocab.len, 0, len + BPE_PAD - l->vocab.len);
    struct bpe_tok *tok = realloc(b->tok, (size + 1) * sizeof *tok);
    if (!tok)
        return err_oom(l->e, size * sizeof *tok);
    memset(tok + b->size, 0, (size + 1 - b->size) * sizeof *tok);
    b->tok = tok;
    b->size = size;
    return 0;
}

void bpe_index_added(struct bpe *b)
{
    size_t k = 0;
    for (size_t c = 0; c < 257; c++) {
        while (k < b->n_added && (unsigned char)b->added[k].content[0] < c)
            k++;
        b->added_at[c] = k;
    }
}

int bpe_drop_from(struct bpe *b, size_t n)
{
    size_t kept = 0;
    for (size_t i = n; i < b->size; i++)
        if (b->tok[i].flags && !(b->tok[i].flags & BPE_ADDED))
            return -1;
    for (size_t i = 0; i < b->n_before + b->n_after; i++)
        if ((size_t)b->frame[i] >= n)
            return -1;
    for (size_t i = 0; i < b->n_added; i++)
        if (b->added[i].id < n)
            b->added[kept++] = b->added[i];
    b->n_added = kept;
    b->size = n < b->size ? n : b->size;
    bpe_index_added(b);
    return 0;
}

/* Sort b->added and index it by first bytes. */
static int index_added(struct bpe_load *l, size_t n)
{
    struct bpe *b = l->b;
    qsort(b->added, n, sizeof *b->added, compare_added);
    b->n_added = n;
    bpe_index_added(b);
    for (size_t i = 1; i < n; i++)
        if (compare_added(&b->added[i - 1], &b->added[i]) == 0)
            return err_set(
                l->e, QWICK_ERR_MODEL, "%s: %s: \"%s\" is there twice", l->name,
                l->added_name, ERR_SHOW(b->added[i].content, b->added[i].len));
    return 0;
}

/* The arena stores each content twice: as the text to search for, and as the
 * spelling that becomes the token's bytes. */
int bpe_place_tokens(struct bpe_load *l, size_t n, const bool *special)
{
    struct bpe *b = l->b;
    if (make_room(l, n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct bpe_added *a = &b->added[i];
        char *s = b->arena + l->vocab.len;
        memcpy(s, a->content, a->len);
        memcpy(s + a->len, a->content, a->len);
        a->content = s;
        l->vocab.len += 2 * a->len;
        if (place_added(l, a, special[i]) < 0)
            return -1;
        struct bpe_tok *t = &b->tok[a->id];
        if (!(t->flags & BPE_MODEL)) {
            t->off = (uint32_t)(s + a->len - b->arena);
            t->len = (uint16_t)a->len;
            t->flags |= BPE_SPELLED;
        }
    }
    return index_added(l, n);
}

int bpe_add_tokens(struct bpe_load *l, const struct json_value *list)
{
    struct bpe *b = l->b;
    if (!bpe_is_null(list) && !json_is(list, JSON_ARRAY))
        return err_set(l->e, QWICK_ERR_MODEL, "%s: added_tokens: not an array",
                       l->name);
    size_t n = bpe_is_null(list) ? 0 : list->len;
    bool *special = calloc(n + 1, sizeof *special);
    b->added = calloc(n + 1, sizeof *b->added);
    int rc = 0;
    if (!b->added || !special)
        rc = err_oom(l->e, n * sizeof *b->added);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = read_added(l, &list->items[i], i, &b->added[i]);
        if (!rc)
            special[i] = json_get(&list->items[i], "special")->boolean;
    }
    if (!rc)
        rc = bpe_place_tokens(l, n, special);
    free(special);
    return rc;
}
