/* Reading tokenizer.json.
 *
 * Nearly all of the file is model.vocab and model.merges. Where these are
 * written plainly, bpe_scan.c reads them; otherwise, and whenever something is
 * wrong, the parser reads the file: these two are taken from its events
 * straight into arenas, everything else is written to a small document, the
 * rest. This is then checked as a tree. Much of the time would be page faults,
 * so memory is touched sparingly. */
#include "text/bpe_load.h"

#include <stdlib.h>

#include "base/rng.h"

/* ---- events ---- */

/* A value in the rest. */
static int rest_value(struct bpe_load *l, const char *s, size_t n)
{
    if ((l->comma && buf_putc(&l->rest, ',') < 0) ||
        buf_append(&l->rest, s, n) < 0)
        return err_oom(l->e, l->rest.len + n);
    l->comma = true;
    return 0;
}

static int rest_string(struct bpe_load *l, const char *s, size_t n)
{
    if ((l->comma && buf_putc(&l->rest, ',') < 0) ||
        buf_json_string(&l->rest, s, n) < 0)
        return err_oom(l->e, l->rest.len + n);
    l->comma = true;
    return 0;
}

static int not_here(struct bpe_load *l, const char *what)
{
    if (l->mode == VOCAB && l->key_open)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.vocab: \"%.*s\": its id is %s, not an "
                       "integer",
                       l->name, SHOW(l->vocab.p + l->vocab.len, l->key_len),
                       what);
    return err_set(l->e, QWICK_ERR_MODEL,
                   "%s: model.merges: merge %zu is %s, not two strings",
                   l->name, l->merges.n, what);
}

static int on_null(void *ctx)
{
    struct bpe_load *l = ctx;
    if (l->mode != REST)
        return not_here(l, "null");
    l->next = REST;
    return rest_value(l, "null", 4);
}

static int on_boolean(void *ctx, bool v)
{
    struct bpe_load *l = ctx;
    if (l->mode != REST)
        return not_here(l, v ? "true" : "false");
    l->next = REST;
    return rest_value(l, v ? "true" : "false", v ? 4 : 5);
}

/* Make the row of id valid. Rows are zeroed shortly before they are used. */
static int tok_reserve(struct bpe_load *l, uint32_t id)
{
    struct bpe *b = l->b;
    if (id < l->n_tok)
        return 0;
    size_t n = ((size_t)id | 511) + 1;
    if (n > l->tok_cap) {
        size_t cap = 2 * n;
        struct bpe_tok *t = realloc(b->tok, cap * sizeof *t);
        if (!t)
            return err_oom(l->e, cap * sizeof *t);
        b->tok = t;
        l->tok_cap = cap;
    }
    memset(b->tok + l->n_tok, 0, (n - l->n_tok) * sizeof *b->tok);
    l->n_tok = n;
    return 0;
}

int bpe_vocab_put(struct bpe_load *l, size_t n, uint32_t id)
{
    const char *key = l->vocab.p + l->vocab.len;
    if (tok_reserve(l, id) < 0)
        return -1;
    struct bpe_tok *t = &l->b->tok[id];
    if (t->flags)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.vocab: id %u is shared by \"%.*s\" and "
                       "\"%.*s\"",
                       l->name, (unsigned)id,
                       SHOW(l->vocab.p + t->off, (size_t)t->len), SHOW(key, n));
    *t = (struct bpe_tok){(uint32_t)l->vocab.len, (uint16_t)n,
                          BPE_HAS | BPE_MODEL | BPE_SPELLED};
    if (id > l->max_id)
        l->max_id = id;
    l->vocab.len += n;
    l->n_vocab++;
    return 0;
}

static int vocab_entry(struct bpe_load *l, const char *s, size_t n)
{
    const char *key = l->vocab.p + l->vocab.len;
    uint32_t id = 0;
    size_t i = 0;
    for (; i < n && i < 9 && s[i] >= '0' && s[i] <= '9'; i++)
        id = id * 10 + (uint32_t)(s[i] - '0');
    if (n == 0 || i < n || id > BPE_MAX_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.vocab: \"%.*s\": id %.*s is no integer "
                       "from 0 to %d",
                       l->name, SHOW(key, l->key_len), SHOW(s, n), BPE_MAX_ID);
    l->key_open = false;
    return bpe_vocab_put(l, l->key_len, id);
}

static int on_number(void *ctx, const char *s, size_t n)
{
    struct bpe_load *l = ctx;
    if (l->mode == VOCAB)
        return vocab_entry(l, s, n);
    if (l->mode != REST)
        return not_here(l, "a number");
    l->next = REST;
    return rest_value(l, s, n);
}

/* After an event of the merges: resolve them a few at a time. */
static int merge_read(struct bpe_load *l, int rc)
{
    if (rc == 0 && l->vocab_done && l->merges.arena.len >= CHUNK_BYTES &&
        !l->merges.in_pair)
        bpe_resolve_here(l);
    return rc;
}

static int on_string(void *ctx, const char *s, size_t n)
{
    struct bpe_load *l = ctx;
    switch (l->mode) {
    case MERGES:
        return merge_read(l, bpe_merge_string(&l->merges, s, n));
    case VOCAB:
        return not_here(l, "a string");
    default:
        l->next = REST;
        return rest_string(l, s, n);
    }
}

static int on_key(void *ctx, const char *s, size_t n)
{
    struct bpe_load *l = ctx;
    if (l->mode == VOCAB) {
        if (bpe_room(l->name, &l->vocab, n, s, l->e) < 0)
            return -1;
        bpe_copy(l->vocab.p + l->vocab.len, s, n);
        l->key_len = n;
        l->key_open = true;
        return 0;
    }
    if (rest_string(l, s, n) < 0 || buf_putc(&l->rest, ':') < 0)
        return err_oom(l->e, n);
    l->comma = false;
    l->next = REST;
    if (l->depth == 1)
        l->in_model = n == 5 && !memcmp(s, "model", 5);
    else if (l->depth == 2 && l->in_model && n == 5 && !memcmp(s, "vocab", 5))
        l->next = VOCAB;
    else if (l->depth == 2 && l->in_model && n == 6 && !memcmp(s, "merges", 6))
        l->next = MERGES;
    return 0;
}

/* Start of an object or array of the rest. A repeated vocab or merges must not
 * be collected twice; other repeated keys are found in the tree. */
static int open_value(struct bpe_load *l, char bracket)
{
    if (rest_value(l, &bracket, 1) < 0)
        return -1;
    l->comma = false;
    l->depth++;
    bool vocab = l->next == VOCAB && bracket == '{';
    bool merges = l->next == MERGES && bracket == '[';
    l->next = REST;
    if ((vocab && l->has_vocab) || (merges && l->has_merges))
        return err_set(l->e, QWICK_ERR_MODEL, "%s: model: repeated key \"%s\"",
                       l->name, vocab ? "vocab" : "merges");
    if (vocab) {
        l->has_vocab = true;
        l->mode = VOCAB;
    } else if (merges) {
        l->has_merges = true;
        l->mode = MERGES;
    }
    return 0;
}

static int close_value(struct bpe_load *l, char bracket)
{
    l->comma = false;
    l->depth--;
    return rest_value(l, &bracket, 1);
}

static int on_begin_object(void *ctx)
{
    struct bpe_load *l = ctx;
    return l->mode == REST ? open_value(l, '{') : not_here(l, "an object");
}

static int on_end_object(void *ctx)
{
    struct bpe_load *l = ctx;
    if (l->mode == VOCAB) {
        l->mode = REST;
        if (bpe_vocab_done(l) < 0)
            return -1;
    }
    return close_value(l, '}');
}

static int on_begin_array(void *ctx)
{
    struct bpe_load *l = ctx;
    if (l->mode == MERGES && !l->merges.in_pair)
        return bpe_merge_open(&l->merges);
    return l->mode == REST ? open_value(l, '[') : not_here(l, "an array");
}

static int on_end_array(void *ctx)
{
    struct bpe_load *l = ctx;
    if (l->merges.in_pair)
        return merge_read(l, bpe_merge_close(&l->merges));
    if (l->mode == MERGES)
        l->mode = REST;
    return close_value(l, ']');
}

static int arena_alloc(struct arena *a, size_t n, struct qwick_err *e)
{
    a->p = malloc(n);
    a->cap = n - BPE_PAD;
    return a->p ? 0 : err_oom(e, n);
}

static const struct json_handler handler = {
    .null = on_null,
    .boolean = on_boolean,
    .number = on_number,
    .string = on_string,
    .begin_object = on_begin_object,
    .key = on_key,
    .end_object = on_end_object,
    .begin_array = on_begin_array,
    .end_array = on_end_array,
};

int bpe_parse(struct bpe_load *l, const char *text, size_t n,
              struct json_doc **rest)
{
    *rest = NULL;
    if (json_events(l->name, text, n, QWICK_ERR_MODEL, &handler, l, l->e) < 0)
        return -1;
    if (l->vocab_done)
        bpe_resolve_here(l);
    return json_parse(rest, l->name, l->rest.data, l->rest.len, QWICK_ERR_MODEL,
                      l->e);
}

/* A new one for a file of n bytes; to be freed whatever is returned. */
static int load_new(struct bpe_load *l, const char *name, size_t n,
                    struct qwick_err *e)
{
    *l = (struct bpe_load){.name = name, .e = e};
    l->merges.name = name;
    l->merges.e = e;
    l->b = calloc(1, sizeof *l->b);
    if (!l->b)
        return err_oom(e, sizeof *l->b);
    l->b->seed = rng_random_seed();
    l->b->window = BPE_WINDOW;
    alphabet_fill(&l->b->alphabet);
    if (n > 1u << 30)
        return err_set(e, QWICK_ERR_MODEL, "%s: larger than 1 GiB", name);
    l->tok_cap = n / 64 + 1024;
    l->b->tok = malloc(l->tok_cap * sizeof *l->b->tok);
    if (!l->b->tok)
        return err_oom(e, l->tok_cap * sizeof *l->b->tok);
    /* Decoded strings are no longer than their text; a merge takes 4 + k bytes
     * against "L R", with 3 + k. */
    return arena_alloc(&l->vocab, n + 64, e) < 0 ||
                   arena_alloc(&l->merges.arena, n + n / 2 + 64, e) < 0
               ? -1
               : 0;
}

/* Returns the tokenizer. */
static struct bpe *load_free(struct bpe_load *l)
{
    struct bpe *b = l->b;
    buf_free(&l->rest);
    free(l->merges.arena.p);
    free(l->table.slots);
    if (b)
        b->arena = l->vocab.p;
    else
        free(l->vocab.p);
    return b;
}

/* ---- byte tokens ---- */

static int find_bytes(const struct bpe_load *l)
{
    struct bpe *b = l->b;
    const struct alphabet *a = &b->alphabet;
    for (size_t c = 0; c < 256; c++) {
        uint32_t u = a->char_of[c];
        char s[2 + BPE_PAD] = {(char)u};
        size_t n = 1;
        if (u >= 0x80) {
            s[0] = (char)(0xC0 | u >> 6);
            s[1] = (char)(0x80 | (u & 0x3F));
            n = 2;
        }
        int32_t id = bpe_find(b, &l->table, bpe_hash(b->seed, s, n), s, n);
        if (id < 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: model.vocab: no token for byte 0x%02zX "
                           "(\"%s\")",
                           l->name, c, s);
        b->byte_id[c] = (uint32_t)id;
    }
    return 0;
}

/* ---- all of it ---- */

/* With ignore_merges a word that is a token of the model is that token. */
static int index_words(struct bpe_load *l)
{
    struct bpe *b = l->b;
    if (!b->ignore_merges)
        return 0;
    if (bpe_table_alloc(&b->words, l->n_vocab,
                        bpe_table_bits((uint32_t)b->size), l->e) < 0)
        return -1;
    for (size_t i = 0; i < b->size; i++) {
        struct bpe_tok *t = &b->tok[i];
        if (t->flags & BPE_SPELLED)
            alphabet_bytes(&b->alphabet, b->arena, t);
        if ((t->flags & BPE_MODEL) && !(t->flags & BPE_RAW))
            bpe_table_put(&b->words,
                          bpe_hash(b->seed, b->arena + t->off, t->len),
                          (uint32_t)i);
    }
    return 0;
}

static int finish(struct bpe_load *l, const struct json_value *root)
{
    struct bpe *b = l->b;
    if (find_bytes(l) < 0 ||
        bpe_add_tokens(l, json_get(root, "added_tokens")) < 0 ||
        bpe_read_frame(l, json_get(root, "post_processor")) < 0)
        return -1;
    b->cache = calloc(BPE_CACHE_WORDS, sizeof *b->cache);
    if (!b->cache)
        return err_oom(l->e, BPE_CACHE_WORDS * sizeof *b->cache);
    return index_words(l);
}

int bpe_open_by(bpe_reader *read, struct bpe **out, const char *name,
                const char *text, size_t n, struct qwick_err *e)
{
    struct bpe_load l;
    struct json_doc *rest = NULL;
    *out = NULL;
    int rc = load_new(&l, name, n, e);
    if (rc == 0)
        rc = read(&l, text, n, &rest);
    if (rc == 0)
        rc = bpe_check_rest(&l, json_root(rest));
    /* What the file asks for comes before what is wrong with its merges: with
     * a prefix, say, they cannot be right. */
    if (rc == 0 && l.rc < 0) {
        *e = l.resolve_err;
        rc = -1;
    }
    if (rc == 0)
        rc = finish(&l, json_root(rest));
    json_free(rest);
    struct bpe *b = load_free(&l);
    if (rc < 0)
        bpe_close(b);
    else
        *out = b;
    return rc;
}

int bpe_open(struct bpe **out, const char *name, const char *text, size_t n,
             struct qwick_err *e)
{
    struct qwick_err unused;
    if (bpe_open_by(bpe_scan, out, name, text, n, &unused) == 0)
        return 0;
    return bpe_open_by(bpe_parse, out, name, text, n, e ? e : &unused);
}

void bpe_close(struct bpe *b)
{
    if (!b)
        return;
    free(b->arena);
    free(b->tok);
    free(b->merges);
    free(b->pairs.slots);
    free(b->words.slots);
    free(b->added);
    free(b->frame);
    free(b->no_frame);
    free(b->cache);
    free(b);
}
