/* Added tokens: check them against the vocabulary, give them rows, sort
 * them. */
#include "text/bpe/bpe_load.h"

#include <stdlib.h>

#include "base/array.h"
#include "text/unicode.h"

/* ---- reading ---- */

/* The start of a message about a token. */
#define ITEM "%s: %s: item %zu, \"%s\": "
#define ITEM_OF(t) \
    (t)->file, (t)->list, (t)->item, ERR_SHOW((t)->content, (t)->len)

/* Read a flag of v. With `partial` it may be missing. */
static int read_flag(const struct bpe_load *l, const struct bpe_listed *t,
                     const struct json_value *v, const char *name, bool partial,
                     bool *out)
{
    const struct json_value *x = json_get(v, name);
    if (!x && partial)
        return 0;
    if (!json_is(x, JSON_BOOL))
        return err_set(l->e, QWICK_ERR_MODEL, ITEM "%s is %s", ITEM_OF(t), name,
                       x ? "not a boolean" : "missing");
    *out = x->boolean;
    return 0;
}

static int read_flags(const struct bpe_load *l, const struct json_value *v,
                      bool partial, struct bpe_listed *t)
{
    bool single_word = false;
    if (read_flag(l, t, v, "single_word", partial, &single_word))
        return -1;
    if (single_word)
        return err_set(l->e, QWICK_ERR_MODEL,
                       ITEM "single_word is true (supported: false)",
                       ITEM_OF(t));
    if (read_flag(l, t, v, "lstrip", partial, &t->lstrip) ||
        read_flag(l, t, v, "rstrip", partial, &t->rstrip) ||
        read_flag(l, t, v, "special", partial, &t->special))
        return -1;
    t->normalized = !t->special;
    return read_flag(l, t, v, "normalized", partial, &t->normalized);
}

static int read_id(const struct bpe_load *l, const struct json_value *id,
                   struct bpe_listed *t)
{
    const char *text = json_is(id, JSON_NUMBER) ? id->str : "missing";
    int64_t value;
    if (json_int(id, 0, BPE_MAX_ID, &value) < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       ITEM "id %s is not an integer from 0 to %d", ITEM_OF(t),
                       ERR_SHOW(text, strlen(text)), BPE_MAX_ID);
    t->id = (int32_t)value;
    return 0;
}

int bpe_list_token(const struct bpe_load *l, struct bpe_listing *t,
                   const struct bpe_listed *token)
{
    if (token->len > BPE_MAX_TOKEN)
        return err_set(l->e, QWICK_ERR_MODEL, "%s: %s: content too long",
                       token->file, token->list);
    if (ARRAY_RESERVE(t->v, t->cap, t->n + 1, l->e))
        return -1;
    t->v[t->n++] = *token;
    return 0;
}

int bpe_list_object(const struct bpe_load *l, struct bpe_listing *t,
                    struct bpe_listed *token, const struct json_value *v,
                    bool partial)
{
    const struct json_value *content = json_get(v, "content");
    if (!json_is(content, JSON_STRING) || content->len == 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: item %zu: content is not a string or empty",
                       token->file, token->list, token->item);
    token->content = content->str;
    token->len = content->len;
    return (!partial && read_id(l, json_get(v, "id"), token)) ||
                   read_flags(l, v, partial, token)
               ? -1
               : bpe_list_token(l, t, token);
}

/* ---- searching ---- */

static int compare_texts(const char *p, size_t n, const char *q, size_t m)
{
    int c = memcmp(p, q, n < m ? n : m);
    return c ? c : (n > m) - (n < m);
}

static int compare_added(const void *x, const void *y)
{
    const struct bpe_added *a = x, *b = y;
    return a->normalized != b->normalized
               ? a->normalized - b->normalized
               : compare_texts(a->content, a->len, b->content, b->len);
}

/* The added token with this content, or NULL. */
static const struct bpe_added *bpe_find_added(const struct bpe *b,
                                              const char *p, size_t n)
{
    for (size_t k = 0; k < BPE_N_SETS && n > 0; k++) {
        const struct bpe_set *s = &b->sets[k];
        size_t lo = s->at[(unsigned char)*p];
        size_t hi = s->at[(unsigned char)*p + 1];
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            int c = compare_texts(s->v[mid].content, s->v[mid].len, p, n);
            if (c == 0)
                return &s->v[mid];
            if (c < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
    }
    return NULL;
}

/* Index b->added [b->n_added], which is sorted, by first bytes. */
static void index_sets(struct bpe *b)
{
    size_t n_plain = 0;
    while (n_plain < b->n_added && !b->added[n_plain].normalized)
        n_plain++;
    b->sets[BPE_PLAIN] = (struct bpe_set){.v = b->added, .n = n_plain};
    b->sets[BPE_NORMALIZED] =
        (struct bpe_set){.v = b->added + n_plain, .n = b->n_added - n_plain};
    for (size_t s = 0; s < BPE_N_SETS; s++) {
        struct bpe_set *set = &b->sets[s];
        size_t k = 0;
        for (size_t c = 0; c < 257; c++) {
            while (k < set->n && (unsigned char)set->v[k].content[0] < c)
                k++;
            set->at[c] = k;
        }
    }
}

/* Sort and index all added tokens. Two of them may still have one normal
 * form. */
static int sort_added(struct bpe_load *l)
{
    struct bpe *b = l->b;
    qsort(b->added, b->n_added, sizeof *b->added, compare_added);
    index_sets(b);
    for (size_t i = 1; i < b->n_added; i++) {
        const struct bpe_added *a = &b->added[i];
        if (compare_added(a - 1, a) == 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: %s: \"%s\" is the normal form of two ids, %u "
                           "and %u",
                           l->name, l->added_name, ERR_SHOW(a->content, a->len),
                           (unsigned)a[-1].id, (unsigned)a->id);
    }
    return 0;
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
    const struct bpe_pair *pair = &b->pair;
    for (size_t i = 0; i < pair->n_before + pair->n_between + pair->n_after;
         i++)
        if ((size_t)b->pair_ids[i] >= n)
            return -1;
    for (size_t i = 0; i < b->n_added; i++)
        if (b->added[i].id < n)
            b->added[kept++] = b->added[i];
    b->n_added = kept;
    b->size = n < b->size ? n : b->size;
    index_sets(b);
    return 0;
}

int32_t bpe_added_id(struct bpe *b, const char *content)
{
    size_t n = strlen(content);
    const struct bpe_added *a = bpe_find_added(b, content, n);
    if (a)
        return (int32_t)a->id;
    /* the prefix of a normal form hides the content */
    for (size_t i = 0; i < b->sets[BPE_NORMALIZED].n; i++) {
        int32_t id = (int32_t)b->sets[BPE_NORMALIZED].v[i].id;
        size_t len;
        const char *p = bpe_token(b, id, &len);
        if (len == n && memcmp(p, content, n) == 0)
            return id;
    }
    return -1;
}

/* ---- normal forms ---- */

/* A normal form has at most this many bytes for each byte of a text. A prefix
 * has 3. */
enum { NORMAL_GROWTH = 6 };

/* Give a normalized token its normal form, which texts are searched for. The
 * arena has room for it. Decoding gives the token as it is. */
static int normalise(struct bpe_load *l, struct bpe_added *a)
{
    struct bpe *b = l->b;
    struct buf form = {0};
    if (b->model->normal_form(b, a->content, a->len, true, &form, l->e)) {
        buf_free(&form);
        return -1;
    }
    if (form.len == 0) {
        buf_free(&form);
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: the normal form of \"%s\", id %u, is empty",
                       l->name, l->added_name, ERR_SHOW(a->content, a->len),
                       (unsigned)a->id);
    }
    if (form.len != a->len || memcmp(form.data, a->content, a->len) != 0) {
        char *s = b->arena + l->vocab.len;
        size_t n = form.len;
        if (n > BPE_MAX_TOKEN || n > NORMAL_GROWTH * a->len) {
            buf_free(&form);
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: %s: the normal form of \"%s\" is too long",
                           l->name, l->added_name,
                           ERR_SHOW(a->content, a->len));
        }
        memcpy(s, form.data, n);
        l->vocab.len += n;
        a->content = s;
        a->len = n;
    }
    buf_free(&form);
    return 0;
}

/* Give added tokens their flags, and those that are normalized their form. */
static int mark_added(struct bpe_load *l)
{
    struct bpe *b = l->b;
    for (size_t i = 0; i < b->n_added; i++) {
        struct bpe_added *a = &b->added[i];
        a->normalized = (b->tok[a->id].flags & BPE_NORMAL) != 0;
        a->lstrip = (b->tok[a->id].flags & BPE_LSTRIP) != 0;
        a->rstrip = (b->tok[a->id].flags & BPE_RSTRIP) != 0;
        if (a->normalized && normalise(l, a))
            return -1;
    }
    return 0;
}

/* ---- placing ---- */

/* Make room in the arena and in the rows for all tokens of a listing. */
static int make_room(struct bpe_load *l, const struct bpe_listing *t)
{
    struct bpe *b = l->b;
    size_t len = l->vocab.len, size = b->size;
    for (size_t i = 0; i < t->n; i++) {
        const struct bpe_listed *k = &t->v[i];
        len += 2 * k->len * (k->normalized ? 1 + NORMAL_GROWTH : 1);
        if (k->id >= 0 && (size_t)k->id >= size)
            size = (size_t)k->id + 1;
    }
    if (len + BPE_PAD > UINT32_MAX || size + t->n > UINT32_MAX)
        return err_set(l->e, QWICK_ERR_MODEL, "%s: %s: too long", l->name,
                       l->added_name);
    char *arena = realloc(l->vocab.p, len + BPE_PAD);
    if (!arena)
        return err_oom(l->e, len);
    b->arena = l->vocab.p = arena;
    memset(arena + l->vocab.len, 0, len + BPE_PAD - l->vocab.len);
    /* a token without an id needs a row, too */
    size_t rows = size + t->n + 1;
    struct bpe_tok *tok = realloc(b->tok, rows * sizeof *tok);
    if (!tok)
        return err_oom(l->e, size * sizeof *tok);
    memset(tok + b->size, 0, (rows - b->size) * sizeof *tok);
    b->tok = tok;
    b->size = size;
    b->added = calloc(t->n + 1, sizeof *b->added);
    return b->added ? hashmap_init(&l->added, t->n, rows, l->e)
                    : err_oom(l->e, t->n * sizeof *b->added);
}

static void set_flags(struct bpe_tok *tok, const struct bpe_listed *t)
{
    unsigned flags = tok->flags | BPE_HAS | BPE_ADDED;
    flags |= t->special ? BPE_SPECIAL : 0;
    flags &= ~(unsigned)(BPE_NORMAL | BPE_LSTRIP | BPE_RSTRIP);
    flags |= (t->normalized ? BPE_NORMAL : 0) | (t->lstrip ? BPE_LSTRIP : 0) |
             (t->rstrip ? BPE_RSTRIP : 0);
    tok->flags = (uint16_t)flags;
}

/* Whether the added token at this row is spelled so. Nothing in a row of the
 * vocabulary has become bytes yet. */
static bool is_at(const struct bpe *b, const struct bpe_tok *tok,
                  const struct bpe_listed *t)
{
    return tok->flags & BPE_ADDED && tok->len == t->len &&
           memcmp(b->arena + tok->off, t->content, t->len) == 0;
}

/* Copy a token's text to the end of the arena, and return the id that it has,
 * or -1. */
static int32_t look_up(struct bpe_load *l, const struct bpe_listed *t)
{
    char *s = l->vocab.p + l->vocab.len;
    memcpy(s, t->content, t->len);
    uint64_t h = bpe_hash(l->b->seed, s, t->len);
    int32_t id = bpe_find(l->b, &l->table, h, s, t->len);
    return id >= 0 ? id : bpe_find(l->b, &l->added, h, s, t->len);
}

/* Give the added token its row, unless it has one. The model's tokens are still
 * spellings, not bytes. The arena stores each content twice: as the text to
 * search for, and as the spelling that becomes the token's bytes. */
static int place_token(struct bpe_load *l, const struct bpe_listed *t)
{
    struct bpe *b = l->b;
    struct bpe_tok *tok = &b->tok[t->id];
    if (is_at(b, tok, t)) {
        set_flags(tok, t);
        return 0;
    }
    int32_t known = look_up(l, t);
    if (known >= 0 && known != t->id)
        return err_set(
            l->e, QWICK_ERR_MODEL, "%s: %s: \"%s\" has id %d, but %d in %s",
            t->file, t->list, ERR_SHOW(t->content, t->len), (int)t->id,
            (int)known,
            b->tok[known].flags & BPE_MODEL ? l->vocab_name : l->added_name);
    if (tok->flags && known < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: id %d is shared by \"%s\" and \"%s\"", t->file,
                       t->list, (int)t->id,
                       ERR_SHOW(b->arena + tok->off, (size_t)tok->len),
                       ERR_SHOW(t->content, t->len));
    char *s = b->arena + l->vocab.len;
    memcpy(s + t->len, s, t->len);
    l->vocab.len += 2 * t->len;
    set_flags(tok, t);
    if (!(tok->flags & BPE_MODEL)) {
        tok->off = (uint32_t)(s + t->len - b->arena);
        tok->len = (uint16_t)t->len;
        tok->flags |= BPE_SPELLED;
        hashmap_put(&l->added, bpe_hash(b->seed, s, t->len), (uint32_t)t->id);
    }
    b->added[b->n_added++] = (struct bpe_added){.content = s,
                                                .len = t->len,
                                                .text = s,
                                                .n_text = t->len,
                                                .id = (uint32_t)t->id};
    return 0;
}

/* The id that `tokenizers` gives to the next new token. */
static int32_t next_id(const struct bpe_load *l)
{
    const struct bpe *b = l->b;
    size_t next = l->n_vocab;
    for (size_t i = 0; i < b->n_added; i++)
        if (b->added[i].id >= next)
            next = (size_t)b->added[i].id + 1;
    return (int32_t)next;
}

/* A special token that has a name is not added again if it is there. */
static void keep_flags(const struct bpe_tok *tok, struct bpe_listed *t)
{
    if (!(tok->flags & BPE_ADDED))
        return;
    t->normalized = tok->flags & BPE_NORMAL;
    t->lstrip = tok->flags & BPE_LSTRIP;
    t->rstrip = tok->flags & BPE_RSTRIP;
}

/* Place a token of another file. *next: the next free id. */
static int place_beside(struct bpe_load *l, struct bpe_listed t, int32_t *next)
{
    struct bpe *b = l->b;
    int32_t known = look_up(l, &t);
    bool is_new = known < 0;
    if (t.id < 0) {
        t.id = is_new ? *next : known;
        keep_flags(&b->tok[t.id], &t);
    }
    if (is_new && t.id != *next && !b->tok[t.id].flags)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: \"%s\" has id %d, but %d is the next free id "
                       "after %s",
                       t.file, t.list, ERR_SHOW(t.content, t.len), (int)t.id,
                       (int)*next, l->name);
    if (t.id > BPE_MAX_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: \"%s\" would have id %d, but %d is the most",
                       t.file, t.list, ERR_SHOW(t.content, t.len), (int)t.id,
                       BPE_MAX_ID);
    unsigned before = b->tok[t.id].flags;
    if (place_token(l, &t))
        return -1;
    b->size = (size_t)t.id < b->size ? b->size : (size_t)t.id + 1;
    *next += is_new;
    b->n_beside += b->tok[t.id].flags != before;
    return 0;
}

int bpe_place_tokens(struct bpe_load *l, const struct bpe_listing *t,
                     size_t n_own)
{
    if (make_room(l, t))
        return -1;
    for (size_t i = 0; i < n_own; i++)
        if (place_token(l, &t->v[i]))
            return -1;
    int32_t next = next_id(l);
    for (size_t i = n_own; i < t->n; i++)
        if (place_beside(l, t->v[i], &next))
            return -1;
    return mark_added(l) || sort_added(l) ? -1 : 0;
}

/* Append the tokens of tokenizer.json. */
static int list_own(const struct bpe_load *l, struct bpe_listing *t,
                    const struct json_value *list)
{
    if (bpe_is_null(list))
        return 0;
    if (!json_is(list, JSON_ARRAY))
        return err_set(l->e, QWICK_ERR_MODEL, "%s: added_tokens: not an array",
                       l->name);
    for (size_t i = 0; i < list->len; i++) {
        struct bpe_listed k = {
            .file = l->name, .list = l->added_name, .item = i};
        if (bpe_list_object(l, t, &k, &list->items[i], false))
            return -1;
    }
    return 0;
}

int bpe_add_tokens(struct bpe_load *l, const struct json_value *list,
                   const struct bpe_beside *beside)
{
    struct bpe_listing t = {0};
    int rc = list_own(l, &t, list);
    size_t n_own = t.n;
    if (!rc && beside)
        rc = bpe_list_beside(l, &t, beside);
    if (!rc)
        rc = bpe_place_tokens(l, &t, n_own);
    free(t.v);
    return rc;
}

size_t bpe_n_beside(const struct bpe *b)
{
    return b->n_beside;
}
