/* Make a tokenizer from tokenizer.json. bpe_scan.c reads the file; this file
 * checks and completes the result. Page faults would take much of the time, so
 * it touches little memory. */
#include "text/bpe/bpe_load.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/rng.h"

/* Make the row of id valid. Rows are zeroed just before their first use. */
static int tok_reserve(struct bpe_load *l, uint32_t id)
{
    struct bpe *b = l->b;
    if (id < l->n_tok)
        return 0;
    size_t n = ((size_t)id | 511) + 1;
    if (ARRAY_RESERVE(b->tok, l->tok_cap, n, &l->fault.err)) {
        l->fault.at = l->merges.text;
        return -1;
    }
    memset(b->tok + l->n_tok, 0, (n - l->n_tok) * sizeof *b->tok);
    l->n_tok = n;
    return 0;
}

int bpe_vocab_put(struct bpe_load *l, size_t n, uint32_t id, const char *p)
{
    const char *key = l->vocab.p + l->vocab.len;
    if (tok_reserve(l, id) < 0)
        return -1;
    struct bpe_tok *t = &l->b->tok[id];
    if (t->flags) {
        l->fault.at = p;
        return err_set(&l->fault.err, QWICK_ERR_MODEL,
                       "%s: %s: id %u is shared by \"%s\" and "
                       "\"%s\"",
                       l->name, l->vocab_name, (unsigned)id,
                       ERR_SHOW(l->vocab.p + t->off, (size_t)t->len),
                       ERR_SHOW(key, n));
    }
    *t = (struct bpe_tok){(uint32_t)l->vocab.len, (uint16_t)n,
                          BPE_HAS | BPE_MODEL | BPE_SPELLED};
    if (id > l->max_id)
        l->max_id = id;
    l->vocab.len += n;
    l->n_vocab++;
    return 0;
}

static int text_alloc(struct bpe_text *t, size_t n, struct qwick_err *e)
{
    t->p = malloc(n);
    return t->p ? 0 : err_oom(e, n);
}

int bpe_load_init(struct bpe_load *l, const char *name, size_t n,
                  struct qwick_err *e)
{
    l->name = l->merges.name = name;
    l->vocab_name = "model.vocab";
    l->merges_name = "model.merges";
    l->added_name = "added_tokens";
    l->e = e;
    l->b = calloc(1, sizeof *l->b);
    if (!l->b)
        return err_oom(e, sizeof *l->b);
    pthread_mutex_init(&l->b->spell_lock, NULL);
    l->b->seed = rng_random_seed();
    l->b->window = BPE_WINDOW;
    l->b->model = &bpe_merging;
    alphabet_fill(&l->b->alphabet);
    if (n > 1u << 30)
        return err_set(e, QWICK_ERR_MODEL, "%s: larger than 1 GiB", name);
    l->tok_cap = n / 64 + 1024;
    l->b->tok = malloc(l->tok_cap * sizeof *l->b->tok);
    if (!l->b->tok)
        return err_oom(e, l->tok_cap * sizeof *l->b->tok);
    /* A decoded string is not longer than its text. A merge with k bytes of
     * parts takes 4 + k bytes here, and 3 + k as "L R" in the file. */
    return text_alloc(&l->vocab, n + 64, e) < 0 ||
                   text_alloc(&l->merges.arena, n + n / 2 + 64, e) < 0
               ? -1
               : 0;
}

struct bpe_load *bpe_load_new(struct qwick_err *e)
{
    struct bpe_load *l = aligned_alloc(_Alignof(struct bpe_load), sizeof *l);
    if (l)
        memset(l, 0, sizeof *l);
    else
        err_oom(e, sizeof *l);
    return l;
}

int bpe_load_end(struct bpe_load *l, int rc, struct bpe **out)
{
    struct bpe *b = l->b;
    free(l->merges.arena.p);
    free(l->scores);
    hashmap_free(&l->table);
    hashmap_free(&l->added);
    if (b)
        b->arena = l->vocab.p;
    else
        free(l->vocab.p);
    if (rc)
        bpe_close(b);
    else
        *out = b;
    return rc;
}

/* ---- byte tokens ---- */

int bpe_find_bytes(const struct bpe_load *l)
{
    struct bpe *b = l->b;
    if (b->byte_fallback)
        return bpe_find_chars(l);
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
                           "%s: %s: no token for byte 0x%02zX (\"%s\")",
                           l->name, l->vocab_name, c, s);
        b->byte_id[c] = (uint32_t)id;
    }
    return 0;
}

/* ---- all of it ---- */

/* Index the model's tokens by their bytes: with ignore_merges, a word that is a
 * token is not merged. */
static int index_words(struct bpe_load *l)
{
    struct bpe *b = l->b;
    if (!b->ignore_merges)
        return 0;
    if (hashmap_init(&b->words, l->n_vocab, b->size, l->e) < 0)
        return -1;
    for (size_t i = 0; i < b->size; i++) {
        struct bpe_tok *t = &b->tok[i];
        if (t->flags & BPE_SPELLED)
            bpe_unspell(b, t);
        if ((t->flags & BPE_MODEL) && !(t->flags & BPE_RAW))
            hashmap_put(&b->words, bpe_hash(b->seed, b->arena + t->off, t->len),
                        (uint32_t)i);
    }
    return 0;
}

int bpe_finish(struct bpe_load *l)
{
    struct bpe *b = l->b;
    b->cache = calloc(BPE_CACHE_WORDS, sizeof *b->cache);
    if (!b->cache)
        return err_oom(l->e, BPE_CACHE_WORDS * sizeof *b->cache);
    return index_words(l);
}

static int add_rest(struct bpe_load *l, const struct json_value *root,
                    const struct bpe_beside *beside)
{
    return l->maker->begin(l, root) < 0 ||
                   bpe_add_tokens(l, json_get(root, "added_tokens"), beside) <
                       0 ||
                   bpe_read_frame(l, json_get(root, "post_processor")) < 0
               ? -1
               : l->maker->end(l);
}

/* bpe_open_beside with l, all zeros, which the caller frees. */
static int open_with(struct bpe_load *l, struct bpe **out, const char *name,
                     const char *text, size_t n,
                     const struct bpe_beside *beside, struct qwick_err *e)
{
    struct json_doc *rest = NULL;
    int rc = bpe_load_init(l, name, n, e);
    if (rc == 0)
        rc = bpe_scan(l, text, n, &rest);
    if (rc == 0)
        rc = bpe_check_rest(l, json_root(rest));
    /* Report unsupported features before faulty merges: with a prefix, for
     * example, merges cannot be right. */
    if (rc == 0 && l->rc < 0) {
        *e = l->resolve_err;
        rc = -1;
    }
    if (rc == 0)
        rc = add_rest(l, json_root(rest), beside);
    json_free(rest);
    return bpe_load_end(l, rc, out);
}

int bpe_open_beside(struct bpe **out, const char *name, const char *text,
                    size_t n, const struct bpe_beside *beside,
                    struct qwick_err *e)
{
    struct qwick_err unused;
    *out = NULL;
    struct bpe_load *l = bpe_load_new(e);
    if (!l)
        return -1;
    int rc = open_with(l, out, name, text, n, beside, e ? e : &unused);
    free(l);
    return rc;
}

int bpe_open(struct bpe **out, const char *name, const char *text, size_t n,
             struct qwick_err *e)
{
    return bpe_open_beside(out, name, text, n, NULL, e);
}

void bpe_close(struct bpe *b)
{
    if (!b)
        return;
    free(b->arena);
    free(b->tok);
    free(b->merges);
    free(b->order);
    free(b->chars);
    hashmap_free(&b->pairs);
    hashmap_free(&b->words);
    free(b->added);
    free(b->frame);
    free(b->no_frame);
    free(b->pair_ids);
    free(b->no_pair);
    free(b->cache);
    if (b->model->free)
        b->model->free(b);
    pthread_mutex_destroy(&b->spell_lock);
    free(b);
}
