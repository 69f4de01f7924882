/* Mistral's tekken.json: tokens as bytes, by rank, and special tokens, whose
 * ids come first. There is no list of merges: two neighbours merge if their
 * bytes together are a token, and the token of the lowest rank goes first
 * (tiktoken).
 *
 * Each token gets the one merge that has this effect: the last one when its
 * bytes are merged alone. No other pair ever makes the token: when a merge
 * makes it, no merge has crossed its borders, so its bytes have merged as if
 * they were alone. A token whose bytes alone end as more than two tokens is
 * found as a whole part only (ignore_merges).
 */
#include <endian.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/rng.h"
#include "text/bpe/bpe_load.h"
#include "text/split.h"

/* Maximum length of a token in bytes. It bounds the work for one token. */
enum { MAX_BYTES = 512 };

/* Special tokens of files that do not list them, by id. */
static const char *const old_specials[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};
enum { N_OLD = sizeof old_specials / sizeof *old_specials };

struct tekken {
    const char *name;
    struct qwick_err *e;
    size_t n_special, n_tokens; /* ids, and those after the special ones */
    const struct json_value **special; /* [n_special] items by id, or NULL */
    bool old;                          /* the file lists no special tokens */
    struct alphabet alphabet;
    uint64_t seed;
    struct buf bytes;          /* of the tokens, one after another */
    size_t *at;                /* [n_tokens + 1] where they begin */
    struct hashmap ranks;      /* from bytes to rank */
    struct buf tokens, merges; /* strings as GGUF files store them */
    size_t n_merges;
    unsigned char *kinds; /* [n_special + n_tokens] enum bpe_kind */
};

/* ---- reading ---- */

static int need_int(const struct tekken *t, const struct json_value *config,
                    const char *name, size_t max, size_t *out)
{
    int64_t v;
    if (json_int(json_get(config, name), 0, (int64_t)max, &v))
        return err_set(t->e, QWICK_ERR_MODEL,
                       "%s: config.%s: is not an integer from 0 to %zu",
                       t->name, name, max);
    *out = (size_t)v;
    return 0;
}

static int read_config(struct tekken *t, const struct json_value *config)
{
    size_t n;
    const char *known = splits[SPLIT_TEKKEN].patterns[0];
    const struct json_value *pattern = json_get(config, "pattern");
    if (!json_equals(pattern, known))
        return err_set(
            t->e, QWICK_ERR_MODEL,
            "%s: config.pattern: \"%s\" is not supported (\"%s\" is)", t->name,
            json_is(pattern, JSON_STRING) ? ERR_SHOW(pattern->str, pattern->len)
                                          : json_type_name(pattern),
            known);
    if (need_int(t, config, "default_vocab_size", BPE_MAX_ID, &n) ||
        need_int(t, config, "default_num_special_tokens", n, &t->n_special))
        return -1;
    t->n_tokens = n - t->n_special;
    return 0;
}

/* Read the token of rank i. */
static int read_token(struct tekken *t, const struct json_value *v, size_t i)
{
    int64_t rank;
    const struct json_value *text = json_get(v, "token_bytes");
    t->at[i] = t->bytes.len;
    if (json_int(json_get(v, "rank"), (int64_t)i, (int64_t)i, &rank))
        return err_set(t->e, QWICK_ERR_MODEL,
                       "%s: vocab: item %zu: rank is not %zu", t->name, i, i);
    int rc = json_is(text, JSON_STRING)
                 ? base64_decode(&t->bytes, text->str, text->len)
                 : 1;
    size_t n = t->bytes.len - t->at[i];
    if (rc < 0)
        return err_oom(t->e, t->bytes.len);
    if (rc || n == 0 || n > MAX_BYTES)
        return err_set(t->e, QWICK_ERR_MODEL,
                       "%s: vocab: item %zu: token_bytes is not base64 of 1 to "
                       "%d bytes",
                       t->name, i, MAX_BYTES);
    return 0;
}

static int read_vocab(struct tekken *t, const struct json_value *vocab)
{
    if (!json_is(vocab, JSON_ARRAY) || vocab->len < t->n_tokens)
        return err_set(t->e, QWICK_ERR_MODEL,
                       "%s: vocab: must be an array of at least %zu items "
                       "(config.default_vocab_size less "
                       "config.default_num_special_tokens)",
                       t->name, t->n_tokens);
    t->at = calloc(t->n_tokens + 1, sizeof *t->at);
    if (!t->at)
        return err_oom(t->e, t->n_tokens * sizeof *t->at);
    for (size_t i = 0; i < t->n_tokens; i++)
        if (read_token(t, &vocab->items[i], i))
            return -1;
    t->at[t->n_tokens] = t->bytes.len;
    if (buf_append(&t->bytes, (char[BPE_PAD]){0}, BPE_PAD))
        return err_oom(t->e, t->bytes.len);
    if (hashmap_init(&t->ranks, t->n_tokens, t->n_tokens + 1, t->e))
        return -1;
    for (size_t i = 0; i < t->n_tokens; i++)
        hashmap_put(&t->ranks,
                    bpe_hash(t->seed, t->bytes.data + t->at[i],
                             t->at[i + 1] - t->at[i]),
                    (uint32_t)i);
    return 0;
}

static int read_specials(struct tekken *t, const struct json_value *list)
{
    t->special = calloc(t->n_special + 1, sizeof *t->special);
    if (!t->special)
        return err_oom(t->e, t->n_special * sizeof *t->special);
    t->old = bpe_is_null(list);
    if (t->old)
        return 0;
    if (!json_is(list, JSON_ARRAY))
        return err_set(t->e, QWICK_ERR_MODEL,
                       "%s: special_tokens: must be an array, is %s", t->name,
                       json_type_name(list));
    for (size_t i = 0; i < list->len; i++) {
        const struct json_value *v = &list->items[i];
        const struct json_value *text = json_get(v, "token_str");
        int64_t id;
        if (json_int(json_get(v, "rank"), 0, (int64_t)t->n_special - 1, &id) ||
            t->special[id])
            return err_set(t->e, QWICK_ERR_MODEL,
                           "%s: special_tokens: item %zu: rank is not a new "
                           "integer below %zu",
                           t->name, i, t->n_special);
        if (!json_is(text, JSON_STRING) || text->len == 0)
            return err_set(t->e, QWICK_ERR_MODEL,
                           "%s: special_tokens: item %zu: token_str is not a "
                           "string or empty",
                           t->name, i);
        t->special[id] = v;
    }
    return 0;
}

/* ---- merges ---- */

static uint32_t rank_of(const struct tekken *t, const char *p, size_t n)
{
    uint64_t h = bpe_hash(t->seed, p, n);
    uint32_t at = hashmap_slot(&t->ranks, h), i;
    while ((i = hashmap_next(&t->ranks, h, &at)) != HASHMAP_NONE)
        if (t->at[i + 1] - t->at[i] == n &&
            memcmp(t->bytes.data + t->at[i], p, n) == 0)
            return i;
    return BPE_NO_RANK;
}

/* Merge the bytes of the token `rank`. Returns the length of the first of the
 * last two parts; 0 if more are left. */
static size_t first_part(const struct tekken *t, uint32_t rank)
{
    const char *p = t->bytes.data + t->at[rank];
    size_t n = t->at[rank + 1] - t->at[rank];
    size_t end[MAX_BYTES];    /* of each part */
    uint32_t made[MAX_BYTES]; /* rank of a part and its successor */
    for (size_t i = 0; i < n; i++) {
        end[i] = i + 1;
        made[i] = i + 1 < n ? rank_of(t, p + i, 2) : BPE_NO_RANK;
    }
    while (n > 2) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            best = made[i] < made[best] ? i : best;
        if (made[best] == BPE_NO_RANK)
            return 0;
        n--;
        for (size_t i = best; i < n; i++) {
            end[i] = end[i + 1];
            made[i] = made[i + 1];
        }
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            size_t begin = i ? end[i - 1] : 0;
            made[i] = rank_of(t, p + begin, end[i + 1] - begin);
        }
    }
    return n == 2 ? end[0] : 0;
}

/* ---- parts ---- */

/* Append a string with its length before it: begin, text, end. */
static int string_begin(struct buf *out, size_t *at)
{
    *at = out->len;
    return buf_append(out, (char[8]){0}, 8);
}

static void string_end(struct buf *out, size_t at)
{
    uint64_t n = htole64(out->len - at - 8);
    memcpy(out->data + at, &n, 8);
}

static int put_special(struct tekken *t, size_t id)
{
    const struct json_value *v = t->special[id];
    const struct json_value *text = json_get(v, "token_str");
    size_t at;
    if (string_begin(&t->tokens, &at) ||
        (v                      ? buf_append(&t->tokens, text->str, text->len)
         : t->old && id < N_OLD ? buf_puts(&t->tokens, old_specials[id])
                                : buf_printf(&t->tokens, "<SPECIAL_%zu>", id)))
        return err_oom(t->e, t->tokens.len);
    string_end(&t->tokens, at);
    t->kinds[id] = bpe_is_bool(json_get(v, "is_control"), false)
                       ? BPE_KIND_ADDED
                       : BPE_KIND_CONTROL;
    return 0;
}

static int put_token(struct tekken *t, uint32_t rank)
{
    const char *p = t->bytes.data + t->at[rank];
    size_t n = t->at[rank + 1] - t->at[rank], left = first_part(t, rank), at;
    if (string_begin(&t->tokens, &at) ||
        alphabet_spell(&t->alphabet, p, n, &t->tokens))
        return err_oom(t->e, t->tokens.len);
    string_end(&t->tokens, at);
    t->kinds[t->n_special + rank] = BPE_KIND_NORMAL;
    if (!left)
        return 0;
    if (string_begin(&t->merges, &at) ||
        alphabet_spell(&t->alphabet, p, left, &t->merges) ||
        buf_putc(&t->merges, ' ') ||
        alphabet_spell(&t->alphabet, p + left, n - left, &t->merges))
        return err_oom(t->e, t->merges.len);
    string_end(&t->merges, at);
    t->n_merges++;
    return 0;
}

/* The id of the special token that begins texts, or -1. */
static int32_t find_bos(const struct tekken *t)
{
    for (size_t i = 0; i < t->n_special; i++)
        if (t->old ? i == 1
                   : json_equals(json_get(t->special[i], "token_str"), "<s>"))
            return (int32_t)i;
    return -1;
}

static int make_parts(struct tekken *t, struct bpe **out)
{
    size_t n = t->n_special + t->n_tokens;
    t->kinds = malloc(n + 1);
    if (!t->kinds)
        return err_oom(t->e, n + 1);
    for (size_t id = 0; id < t->n_special; id++)
        if (put_special(t, id))
            return -1;
    for (uint32_t rank = 0; rank < t->n_tokens; rank++)
        if (put_token(t, rank))
            return -1;
    const struct bpe_parts parts = {
        .name = t->name,
        .tokens_name = "vocab",
        .merges_name = "vocab",
        .tokens = {(const unsigned char *)t->tokens.data, n, t->tokens.len},
        .kinds = t->kinds,
        .merges = {(const unsigned char *)t->merges.data, t->n_merges,
                   t->merges.len},
        .split = SPLIT_TEKKEN,
        .ignore_merges = true,
        .before = find_bos(t),
        .after = -1};
    return bpe_open_parts(out, &parts, t->e);
}

int bpe_open_tekken(struct bpe **out, const char *name, const char *text,
                    size_t n, struct qwick_err *e)
{
    struct tekken t = {.name = name, .e = e, .seed = rng_random_seed()};
    struct json_doc *doc = NULL;
    *out = NULL;
    alphabet_fill(&t.alphabet);
    int rc = json_parse(&doc, name, text, n, QWICK_ERR_MODEL, e);
    const struct json_value *root = json_root(doc);
    if (rc || read_config(&t, json_get(root, "config")) ||
        read_vocab(&t, json_get(root, "vocab")) ||
        read_specials(&t, json_get(root, "special_tokens")) ||
        make_parts(&t, out))
        rc = -1;
    json_free(doc);
    hashmap_free(&t.ranks);
    buf_free(&t.bytes);
    buf_free(&t.tokens);
    buf_free(&t.merges);
    free(t.special);
    free(t.at);
    free(t.kinds);
    return rc;
}
