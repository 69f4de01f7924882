/* Check tokenizer.json: refuse by name every feature that this tokenizer does
 * not have. */
#include "text/bpe/bpe_load.h"

#include <stdio.h>

#include "base/utf8.h"
#include "text/split.h"

int bpe_refuse(const struct bpe_load *l, const char *what,
               const struct json_value *v, const char *want)
{
    struct buf b = {.max = 1u << 20};
    if (!v)
        err_set(l->e, QWICK_ERR_MODEL, "%s: %s: missing (supported: %s)",
                l->name, what, want);
    else if (json_dump_python(&b, v) < 0)
        err_set(l->e, QWICK_ERR_MODEL, "%s: %s: not supported (supported: %s)",
                l->name, what, want);
    else
        err_set(l->e, QWICK_ERR_MODEL,
                "%s: %s: %.*s%s is not supported (supported: %s)", l->name,
                what, b.len > 300 ? (int)utf8_complete(b.data, 300) : (int)b.len,
                b.data,
                b.len > 300 ? "..." : "", want);
    buf_free(&b);
    return -1;
}

int bpe_check_each(const struct bpe_load *l, const struct json_value *v,
                   const char *list,
                   int (*check)(const struct bpe_load *l,
                                const struct json_value *v))
{
    const struct json_value *all = json_get(v, list);
    if (!bpe_is_type(v, "Sequence") || !json_is(all, JSON_ARRAY))
        return check(l, v);
    for (size_t i = 0; i < all->len; i++)
        if (bpe_check_each(l, &all->items[i], list, check))
            return -1;
    return 0;
}

int bpe_check_fields(const struct bpe_load *l, const struct json_value *v,
                     const char *const *known, size_t n)
{
    for (size_t i = 0; i < v->len; i++) {
        size_t k = 0;
        while (k < n && !json_equals(&v->keys[i], known[k]))
            k++;
        if (k == n && !bpe_is_null(&v->items[i]) &&
            !bpe_is_bool(&v->items[i], false))
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: model: unknown field \"%s\"", l->name,
                           ERR_SHOW(v->keys[i].str, v->keys[i].len));
    }
    return 0;
}

static int check_nfc(const struct bpe_load *l, const struct json_value *v)
{
    if (!bpe_is_type(v, "NFC"))
        return bpe_refuse(l, "normalizer", v, "null, NFC, Sequence of NFC");
    l->b->nfc = true;
    return 0;
}

static int check_normalizer(const struct bpe_load *l,
                            const struct json_value *v)
{
    return bpe_is_null(v) ? 0 : bpe_check_each(l, v, "normalizers", check_nfc);
}

/* Check the behaviour of a Split. Removed with invert drops only text between
 * matches, and a pattern alone leaves none. */
static int check_behavior(const struct bpe_load *l,
                          const struct json_value *split, bool alone)
{
    const struct json_value *behavior = json_get(split, "behavior");
    const struct json_value *invert = json_get(split, "invert");
    bool removed = alone && json_equals(behavior, "Removed");
    if (!removed && !json_equals(behavior, "Isolated"))
        return bpe_refuse(l, "pre_tokenizer: Split.behavior", behavior,
                          alone ? "Isolated, Removed" : "Isolated");
    if (!bpe_is_bool(invert, removed))
        return bpe_refuse(l, "pre_tokenizer: Split.invert", invert,
                          removed ? "true" : "false");
    return 0;
}

/* Return whether a Regex is the pattern. Files write newlines in it as they are
 * or escaped. */
static bool same_pattern(const struct json_value *regex, const char *pattern)
{
    if (!json_is(regex, JSON_STRING))
        return false;
    const char *p = regex->str, *end = p + regex->len;
    for (; p < end && *pattern; p++, pattern++)
        if (*p == '\n' || *p == '\r') {
            if (*pattern++ != '\\' || *pattern != (*p == '\n' ? 'n' : 'r'))
                return false;
        } else if (*p != *pattern) {
            return false;
        }
    return p == end && !*pattern;
}

/* Return whether the pre-tokenizer splits at the pattern. */
static bool splits_at(const struct json_value *v, const char *pattern)
{
    const struct json_value *flag = json_get(v, "use_regex");
    if (bpe_is_type(v, "Split"))
        return same_pattern(json_get(json_get(v, "pattern"), "Regex"), pattern);
    if (bpe_is_type(v, "Digits"))
        return bpe_is_bool(json_get(v, "individual_digits"), true) &&
               strcmp(pattern, splits[SPLIT_SMOLLM].patterns[0]) == 0;
    return bpe_is_type(v, "ByteLevel") && (!flag || bpe_is_bool(flag, true)) &&
           strcmp(pattern, splits[SPLIT_GPT2].patterns[0]) == 0;
}

/* Find the split whose patterns the n pre-tokenizers have. */
static int find_split(const struct bpe_load *l, const struct json_value *list,
                      size_t n)
{
    char names[160] = "the patterns of ";
    for (size_t i = 0; i < N_SPLITS; i++) {
        const char *const *patterns = splits[i].patterns;
        size_t k = 0;
        while (k < n && k < SPLIT_MAX_PATTERNS && patterns[k] &&
               splits_at(&list[k], patterns[k]))
            k++;
        if (k == n && (k == SPLIT_MAX_PATTERNS || !patterns[k])) {
            l->b->split = (enum split)i;
            return 0;
        }
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                 splits[i].name);
    }
    if (n == 1 && bpe_is_type(list, "Split"))
        return bpe_refuse(l, "pre_tokenizer: Split.pattern",
                          json_get(list, "pattern"), names);
    return bpe_refuse(
        l, "pre_tokenizer.pretokenizers",
        &(struct json_value){.type = JSON_ARRAY, .items = list, .len = n},
        names);
}

/* Splits, and then ByteLevel, which splits, too, if it has use_regex. */
static int check_pre_tokenizer(const struct bpe_load *l,
                               const struct json_value *v)
{
    const char *want = "ByteLevel, Sequence of Split or Digits and ByteLevel";
    const struct json_value *list = json_get(v, "pretokenizers");
    bool sequence = bpe_is_type(v, "Sequence") && json_is(list, JSON_ARRAY);
    const struct json_value *first = sequence ? list->items : v;
    size_t n = sequence ? list->len : 1;
    const struct json_value *last = n ? &first[n - 1] : NULL;
    bool splits_last = !bpe_is_bool(json_get(last, "use_regex"), false);
    if (n == 0 || !bpe_is_type(last, "ByteLevel"))
        return bpe_refuse(l, "pre_tokenizer", v, want);
    for (size_t i = 0; i + 1 < n; i++) {
        if (!bpe_is_type(&first[i], "Split") &&
            !bpe_is_type(&first[i], "Digits"))
            return bpe_refuse(l, "pre_tokenizer", &first[i], want);
        if (bpe_is_type(&first[i], "Split") &&
            check_behavior(l, &first[i], n == 2 && !splits_last) < 0)
            return -1;
    }
    if (!bpe_is_bool(json_get(last, "add_prefix_space"), false))
        return bpe_refuse(l, "pre_tokenizer: ByteLevel.add_prefix_space",
                          json_get(last, "add_prefix_space"), "false");
    return find_split(l, first, splits_last ? n : n - 1);
}

static int check_decoder(const struct bpe_load *l, const struct json_value *v)
{
    return bpe_is_type(v, "ByteLevel")
               ? 0
               : bpe_refuse(l, "decoder", v, "ByteLevel");
}

/* ---- byte fallback ---- */

#define BLANK "\xE2\x96\x81"

/* {"type": "Replace", "pattern": {"String": FROM}, "content": TO} */
static bool is_replace(const struct json_value *v, const char *from,
                       const char *to)
{
    return bpe_is_type(v, "Replace") &&
           json_equals(json_get(json_get(v, "pattern"), "String"), from) &&
           json_equals(json_get(v, "content"), to);
}

static bool is_list(const struct json_value *v, const char *name, size_t n)
{
    const struct json_value *list = json_get(v, name);
    return bpe_is_type(v, "Sequence") && json_is(list, JSON_ARRAY) &&
           list->len == n;
}

/* Replace, perhaps after Prepend. Metaspace replaces blanks as well. */
static int check_replace(const struct bpe_load *l, const struct json_value *v)
{
    const struct json_value *list = json_get(v, "normalizers");
    if (is_replace(v, " ", BLANK) || (is_list(v, "normalizers", 1) &&
                                      is_replace(&list->items[0], " ", BLANK)))
        return 0;
    if (is_list(v, "normalizers", 2) &&
        bpe_is_type(&list->items[0], "Prepend") &&
        json_equals(json_get(&list->items[0], "prepend"), BLANK) &&
        is_replace(&list->items[1], " ", BLANK)) {
        l->b->prefix = BPE_PREFIX_EACH;
        return 0;
    }
    if ((bpe_is_null(v) || is_list(v, "normalizers", 0)) && l->has_metaspace)
        return 0;
    return bpe_refuse(l, "normalizer", v,
                      "Replace of \" \" by \"" BLANK
                      "\", after Prepend of \"" BLANK
                      "\" or alone; null with the pre_tokenizer Metaspace");
}

int bpe_check_metaspace(const struct bpe_load *l, const char *what,
                        const struct json_value *v, enum bpe_prefix *prefix)
{
    const struct json_value *scheme = json_get(v, "prepend_scheme");
    const struct json_value *old = json_get(v, "add_prefix_space");
    bool never = json_equals(scheme, "never");
    if (!json_equals(json_get(v, "replacement"), BLANK))
        return bpe_refuse(l, what, v,
                          "Metaspace with replacement \"" BLANK "\"");
    if (scheme && !json_equals(scheme, "first") &&
        !json_equals(scheme, "always") && !never)
        return bpe_refuse(l, what, v,
                          "Metaspace with prepend_scheme first, always, never");
    if (scheme && !never && bpe_is_bool(old, false))
        return bpe_refuse(l, what, v,
                          "Metaspace with add_prefix_space true, or with "
                          "prepend_scheme never");
    *prefix = never || bpe_is_bool(old, false) ? BPE_PREFIX_NONE
              : json_equals(scheme, "first")   ? BPE_PREFIX_FIRST
                                               : BPE_PREFIX_ALWAYS;
    return 0;
}

/* No blank is left to split at. */
static int check_split(const struct bpe_load *l, const struct json_value *v)
{
    if (bpe_is_null(v) ||
        (bpe_is_type(v, "Split") &&
         json_equals(json_get(json_get(v, "pattern"), "String"), " ") &&
         bpe_is_bool(json_get(v, "invert"), false)))
        return 0;
    if (!bpe_is_type(v, "Metaspace"))
        return bpe_refuse(l, "pre_tokenizer", v,
                          "null, Split at \" \", Metaspace");
    if (!bpe_is_bool(json_get(v, "split"), false))
        return bpe_refuse(l, "pre_tokenizer: Metaspace.split",
                          json_get(v, "split"), "false");
    if (l->b->prefix != BPE_PREFIX_NONE)
        return bpe_refuse(l, "pre_tokenizer", v, "null, with Prepend");
    return bpe_check_metaspace(l, "pre_tokenizer", v, &l->b->prefix);
}

/* Strip of one blank at the start of the text. */
static bool is_strip(const struct json_value *v)
{
    int64_t n;
    return bpe_is_type(v, "Strip") &&
           json_equals(json_get(v, "content"), " ") &&
           !json_int(json_get(v, "start"), 1, 1, &n) &&
           !json_int(json_get(v, "stop"), 0, 0, &n);
}

/* Metaspace alone decodes no bytes in `tokenizers`; here it does. */
static int check_fallback_decoder(const struct bpe_load *l,
                                  const struct json_value *v)
{
    const struct json_value *list = json_get(v, "decoders");
    l->b->strip = is_list(v, "decoders", 4) && is_strip(&list->items[3]);
    if ((l->b->strip || is_list(v, "decoders", 3)) &&
        is_replace(&list->items[0], BLANK, " ") &&
        bpe_is_type(&list->items[1], "ByteFallback") &&
        bpe_is_type(&list->items[2], "Fuse"))
        return 0;
    if (bpe_is_type(v, "Metaspace")) {
        enum bpe_prefix prefix = BPE_PREFIX_NONE;
        int rc = bpe_check_metaspace(l, "decoder", v, &prefix);
        l->b->strip = prefix != BPE_PREFIX_NONE;
        return rc;
    }
    return bpe_refuse(
        l, "decoder", v,
        "Sequence of Replace of \"" BLANK "\" by \" \", "
        "ByteFallback, Fuse and perhaps Strip of one \" \" at the "
        "start; Metaspace");
}

/* ---- BPE ---- */

static int check_model(struct bpe_load *l, const struct json_value *v)
{
    static const char *const known[] = {
        "type",          "dropout",
        "unk_token",     "continuing_subword_prefix",
        "fuse_unk",      "vocab",
        "byte_fallback", "end_of_word_suffix",
        "ignore_merges", "merges",
    };
    const struct json_value *x;
    double dropout;
    x = json_get(v, "dropout");
    if (!bpe_is_null(x) && (json_double(x, &dropout) < 0 || dropout != 0))
        return bpe_refuse(l, "model.dropout", x, "null");
    x = json_get(v, "byte_fallback");
    if (!bpe_is_null(x) && !json_is(x, JSON_BOOL))
        return bpe_refuse(l, "model.byte_fallback", x, "true, false");
    bool fallback = l->b->byte_fallback = x && bpe_is_bool(x, true);
    /* with the tokens of all bytes no character is unknown */
    x = json_get(v, "unk_token");
    if (!bpe_is_null(x) && !(fallback && json_is(x, JSON_STRING)))
        return bpe_refuse(l, "model.unk_token", x, "null");
    x = json_get(v, "continuing_subword_prefix");
    if (!bpe_is_null(x) && !json_equals(x, ""))
        return bpe_refuse(l, "model.continuing_subword_prefix", x,
                          "null, \"\"");
    x = json_get(v, "end_of_word_suffix");
    if (!bpe_is_null(x) && !json_equals(x, ""))
        return bpe_refuse(l, "model.end_of_word_suffix", x, "null, \"\"");
    x = json_get(v, "fuse_unk");
    if (!bpe_is_null(x) && !bpe_is_bool(x, false) &&
        !(fallback && bpe_is_bool(x, true)))
        return bpe_refuse(l, "model.fuse_unk", x, "false");
    x = json_get(v, "ignore_merges");
    if (!bpe_is_null(x) && !json_is(x, JSON_BOOL))
        return bpe_refuse(l, "model.ignore_merges", x, "true, false");
    l->b->ignore_merges = x && bpe_is_bool(x, true);
    if (fallback && l->b->ignore_merges)
        return bpe_refuse(l, "model.ignore_merges", x,
                          "false, with byte_fallback");
    if (!l->has_vocab)
        return bpe_refuse(l, "model.vocab", json_get(v, "vocab"), "an object");
    if (!l->has_merges)
        return bpe_refuse(l, "model.merges", json_get(v, "merges"), "an array");
    return bpe_check_fields(l, v, known, sizeof known / sizeof *known);
}

/* The checks that each kind of BPE needs. */
static const struct kind {
    int (*normalizer)(const struct bpe_load *l, const struct json_value *v);
    int (*pre_tokenizer)(const struct bpe_load *l, const struct json_value *v);
    int (*decoder)(const struct bpe_load *l, const struct json_value *v);
} by_bytes = {check_normalizer, check_pre_tokenizer, check_decoder},
  by_chars = {check_replace, check_split, check_fallback_decoder};

static int check_merging(struct bpe_load *l, const struct json_value *root)
{
    if (check_model(l, json_get(root, "model")))
        return -1;
    const struct kind *k = l->b->byte_fallback ? &by_chars : &by_bytes;
    l->has_metaspace =
        bpe_is_type(json_get(root, "pre_tokenizer"), "Metaspace");
    return k->normalizer(l, json_get(root, "normalizer")) ||
                   k->pre_tokenizer(l, json_get(root, "pre_tokenizer")) ||
                   k->decoder(l, json_get(root, "decoder"))
               ? -1
               : 0;
}

static int begin_merging(struct bpe_load *l, const struct json_value *root)
{
    (void)root;
    return bpe_find_bytes(l);
}

const struct bpe_maker bpe_maker_merging = {"BPE", NULL, check_merging,
                                            begin_merging, bpe_finish};

/* ---- all of it ---- */

static const struct bpe_maker *const makers[] = {&bpe_maker_merging,
                                                 &bpe_maker_wordpiece,
                                                 &bpe_maker_unigram};
enum { N_MAKERS = sizeof makers / sizeof *makers };

static int find_maker(struct bpe_load *l, const struct json_value *model)
{
    const struct json_value *type = json_get(model, "type");
    char names[64] = "";
    if (!json_is(model, JSON_OBJECT))
        return bpe_refuse(l, "model", model, "an object");
    for (size_t i = 0; i < N_MAKERS && !l->maker; i++) {
        const struct bpe_maker *m = makers[i];
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", m->type);
        if (type ? json_equals(type, m->type)
                 : m->mark && json_get(model, m->mark))
            l->maker = m;
    }
    return l->maker ? 0 : bpe_refuse(l, "model.type", type, names);
}

/* Accept post-processors that change only offsets, or add special tokens for
 * add_special_tokens; this tokenizer never adds those. */
static int check_post_processor(const struct bpe_load *l,
                                const struct json_value *v)
{
    if (bpe_is_null(v) || bpe_is_type(v, "ByteLevel") ||
        bpe_is_type(v, "TemplateProcessing") ||
        bpe_is_type(v, "BertProcessing") || bpe_is_type(v, "RobertaProcessing"))
        return 0;
    const struct json_value *list = json_get(v, "processors");
    if (!bpe_is_type(v, "Sequence") || !json_is(list, JSON_ARRAY))
        return bpe_refuse(l, "post_processor", v,
                          "null, ByteLevel, TemplateProcessing, "
                          "BertProcessing, RobertaProcessing, Sequence");
    for (size_t i = 0; i < list->len; i++)
        if (check_post_processor(l, &list->items[i]) < 0)
            return -1;
    return 0;
}

int bpe_check_rest(struct bpe_load *l, const struct json_value *root)
{
    if (!json_is(root, JSON_OBJECT))
        return err_set(l->e, QWICK_ERR_MODEL, "%s: not a JSON object", l->name);
    return find_maker(l, json_get(root, "model")) || l->maker->check(l, root) ||
                   check_post_processor(l, json_get(root, "post_processor"))
               ? -1
               : 0;
}
