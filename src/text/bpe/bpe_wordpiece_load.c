/* Make a WordPiece tokenizer from tokenizer.json, or from the arrays of a GGUF
 * file. */
#include <stdio.h>
#include <stdlib.h>

#include "text/bpe/bpe_wordpiece.h"

/* Give l->b an own struct wordpiece, all zeros. NULL with *l->e set. */
static struct wordpiece *wordpiece_new(struct bpe_load *l)
{
    struct wordpiece *w = calloc(1, sizeof *w);
    if (!w) {
        err_oom(l->e, sizeof *w);
        return NULL;
    }
    l->b->own = w;
    l->b->model = &bpe_wordpiece;
    return w;
}

/* ---- checks ---- */

/* Read a member that must be a boolean. */
static int read_bool(const struct bpe_load *l, const char *what,
                     const struct json_value *v, const char *name, bool *out)
{
    const struct json_value *x = json_get(v, name);
    char where[64];
    snprintf(where, sizeof where, "%s.%s", what, name);
    if (!json_is(x, JSON_BOOL))
        return bpe_refuse(l, where, x, "true, false");
    *out = x->boolean;
    return 0;
}

/* Read a prefix of tokens. */
static int read_prefix(const struct bpe_load *l, const char *what,
                       const struct json_value *v, char *out, size_t *n)
{
    if (!json_is(v, JSON_STRING) || v->len > WORDPIECE_MAX_PREFIX)
        return bpe_refuse(l, what, v, "a string of at most 63 bytes");
    memcpy(out, v->str, v->len);
    *n = v->len;
    return 0;
}

static int read_bert(const struct bpe_load *l, const struct json_value *v,
                     unsigned *step)
{
    static const char what[] = "normalizer: BertNormalizer";
    const struct json_value *strip = json_get(v, "strip_accents");
    bool clean, han, lower;
    if (read_bool(l, what, v, "clean_text", &clean) ||
        read_bool(l, what, v, "handle_chinese_chars", &han) ||
        read_bool(l, what, v, "lowercase", &lower))
        return -1;
    if (!bpe_is_null(strip) && !json_is(strip, JSON_BOOL))
        return bpe_refuse(l, "normalizer: BertNormalizer.strip_accents", strip,
                          "null, true, false");
    bool strips = bpe_is_null(strip) ? lower : strip->boolean;
    *step = (clean ? BERT_CLEAN : 0) | (han ? BERT_HAN : 0) |
            (strips ? BERT_NFD | BERT_STRIP : 0) | (lower ? BERT_LOWER : 0);
    return 0;
}

static int check_normalizer(const struct bpe_load *l,
                            const struct json_value *v)
{
    static const struct {
        const char *type;
        unsigned step;
    } others[] = {{"Lowercase", BERT_LOWER},
                  {"NFC", BERT_NFC},
                  {"NFD", BERT_NFD},
                  {"StripAccents", BERT_STRIP_ALL}};
    enum { N_OTHERS = sizeof others / sizeof *others };
    struct wordpiece *w = l->b->own;
    unsigned step = 0;
    if (bpe_is_type(v, "BertNormalizer") && read_bert(l, v, &step))
        return -1;
    for (size_t i = 0; i < N_OTHERS; i++)
        step = bpe_is_type(v, others[i].type) ? others[i].step : step;
    if ((!step && !bpe_is_type(v, "BertNormalizer")) ||
        w->n_steps == WORDPIECE_MAX_STEPS)
        return bpe_refuse(l, "normalizer", v,
                          "null, BertNormalizer, Lowercase, NFC, NFD, "
                          "StripAccents, Sequence of at most 4 of these");
    w->steps[w->n_steps++] = (uint8_t)step;
    return 0;
}

/* Return whether v is a Punctuation after which nothing of a text is left out
 * or joined. */
static bool is_punctuation(const struct json_value *v)
{
    const struct json_value *behavior = json_get(v, "behavior");
    return bpe_is_type(v, "Punctuation") &&
           (!behavior || json_equals(behavior, "Isolated"));
}

static int check_pre_tokenizer(const struct bpe_load *l,
                               const struct json_value *v)
{
    static const char *const types[] = {"BertPreTokenizer", "WhitespaceSplit",
                                        "Whitespace"}; /* by enum bert_split */
    struct wordpiece *w = l->b->own;
    const struct json_value *list = json_get(v, "pretokenizers"), *one = v;
    bool sequence = bpe_is_type(v, "Sequence") && json_is(list, JSON_ARRAY);
    bool punctuation =
        sequence && list->len == 2 && is_punctuation(&list->items[1]);
    size_t i = 0;
    if (sequence && list->len == 1U + punctuation)
        one = list->items;
    while (i < 3 && !bpe_is_type(one, types[i]))
        i++;
    if (i == 3 || (punctuation && i == BERT_SPLIT_WORD))
        return bpe_refuse(l, "pre_tokenizer", v,
                          "BertPreTokenizer, WhitespaceSplit, Whitespace, "
                          "Sequence of WhitespaceSplit and Punctuation");
    w->split = punctuation ? BERT_SPLIT : (enum bert_split)i;
    return 0;
}

static int check_decoder(const struct bpe_load *l, const struct json_value *v)
{
    struct wordpiece *w = l->b->own;
    if (bpe_is_null(v)) /* all tokens are joined by blanks */
        return 0;
    if (!bpe_is_type(v, "WordPiece"))
        return bpe_refuse(l, "decoder", v, "null, WordPiece");
    w->joins = true;
    return read_bool(l, "decoder: WordPiece", v, "cleanup", &w->cleanup) ||
                   read_prefix(l, "decoder: WordPiece.prefix",
                               json_get(v, "prefix"), w->joined, &w->n_joined)
               ? -1
               : 0;
}

static int check_model(struct bpe_load *l, const struct json_value *v)
{
    static const char *const known[] = {"type", "unk_token",
                                        "continuing_subword_prefix",
                                        "max_input_chars_per_word", "vocab"};
    struct wordpiece *w = l->b->own;
    const struct json_value *most = json_get(v, "max_input_chars_per_word");
    int64_t n;
    if (json_int(most, 1, WORDPIECE_MAX_CHARS, &n))
        return bpe_refuse(l, "model.max_input_chars_per_word", most,
                          "1 to 1000");
    w->max_chars = (size_t)n;
    if (read_prefix(l, "model.continuing_subword_prefix",
                    json_get(v, "continuing_subword_prefix"), w->prefix,
                    &w->n_prefix))
        return -1;
    if (!json_is(json_get(v, "unk_token"), JSON_STRING))
        return bpe_refuse(l, "model.unk_token", json_get(v, "unk_token"),
                          "a token");
    if (!l->has_vocab)
        return bpe_refuse(l, "model.vocab", json_get(v, "vocab"), "an object");
    return bpe_check_fields(l, v, known, sizeof known / sizeof *known);
}

static int check_wordpiece(struct bpe_load *l, const struct json_value *root)
{
    const struct json_value *normalizer = json_get(root, "normalizer");
    const struct json_value *pre = json_get(root, "pre_tokenizer");
    if (!wordpiece_new(l) || check_model(l, json_get(root, "model")))
        return -1;
    if (!bpe_is_null(normalizer) &&
        bpe_check_each(l, normalizer, "normalizers", check_normalizer))
        return -1;
    return check_pre_tokenizer(l, pre) ||
                   check_decoder(l, json_get(root, "decoder"))
               ? -1
               : 0;
}

/* ---- making ---- */

static int find_unk(struct bpe_load *l, const struct json_value *root)
{
    const struct json_value *unk =
        json_get(json_get(root, "model"), "unk_token");
    struct wordpiece *w = l->b->own;
    struct buf token = {0};
    if (buf_append(&token, unk->str, unk->len) ||
        buf_append(&token, (char[BPE_PAD]){0}, BPE_PAD)) {
        buf_free(&token);
        return err_oom(l->e, unk->len);
    }
    uint64_t h = bpe_hash(l->b->seed, token.data, unk->len);
    int32_t id = bpe_find(l->b, &l->table, h, token.data, unk->len);
    buf_free(&token);
    if (id < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.unk_token: \"%s\" is not in the vocabulary",
                       l->name, ERR_SHOW(unk->str, unk->len));
    w->unk = (uint32_t)id;
    return 0;
}

int wordpiece_end(struct bpe_load *l)
{
    struct bpe *b = l->b;
    struct wordpiece *w = b->own;
    if (!bpe_has(b, (int32_t)w->unk))
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: has no token %u, the one of unknown words",
                       l->name, l->vocab_name, (unsigned)w->unk);
    b->words = l->table;
    l->table = (struct hashmap){0};
    for (size_t i = 0; i < b->size; i++) {
        struct bpe_tok *t = &b->tok[i];
        t->flags &= (uint16_t)~BPE_SPELLED;
        if (t->flags & BPE_MODEL && t->len > w->longest)
            w->longest = t->len;
    }
    return bpe_finish(l);
}

const struct bpe_maker bpe_maker_wordpiece = {
    "WordPiece", "max_input_chars_per_word", check_wordpiece, find_unk,
    wordpiece_end};

/* ---- arrays ---- */

int wordpiece_put(struct bpe_load *l, uint32_t id, const char *p, size_t n)
{
    static const char blank[] = "\xE2\x96\x81", inside[] = "##";
    char *out = l->vocab.p + l->vocab.len;
    bool begins = n > 3 && memcmp(p, blank, 3) == 0;
    size_t cut = begins ? 3 : 0, more = begins ? 0 : 2;
    if (n - cut + more > BPE_MAX_TOKEN)
        return err_set(l->e, QWICK_ERR_MODEL, "%s: %s: token %u is too long",
                       l->name, l->vocab_name, (unsigned)id);
    /* the length before each string leaves room for the prefix */
    memcpy(out, inside, more);
    memcpy(out + more, p + cut, n - cut);
    if (bpe_vocab_put(l, n - cut + more, id, p)) {
        *l->e = l->fault.err;
        return -1;
    }
    return 0;
}

int wordpiece_begin_parts(struct bpe_load *l)
{
    struct wordpiece *w = wordpiece_new(l);
    if (!w)
        return -1;
    *w = (struct wordpiece){
        .steps = {BERT_CLEAN | BERT_HAN | BERT_NFD | BERT_STRIP | BERT_LOWER},
        .n_steps = 1,
        .prefix = "##",
        .n_prefix = 2,
        .max_chars = 100,
        .unk = (uint32_t)l->parts->wordpiece->unk,
        .joined = "##",
        .n_joined = 2,
        .joins = true,
        .cleanup = true};
    return 0;
}
