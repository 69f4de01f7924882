/* The ids that tokenizer.json's post_processor adds to a text, or to two texts.
 * Templates add ids: TemplateProcessing of `tokenizers`, whose "single" and
 * "pair" are lists of special tokens around the texts; BertProcessing and
 * RobertaProcessing have fixed ones. Other templates are refused only when the
 * frame is requested, because plain encoding does not need them. */
#include "text/bpe/bpe_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Most ids of a template; tokenizers add far fewer. */
enum { MAX_FRAME = 64 };

/* A template: ids, and the texts between them. */
struct frame {
    int32_t ids[MAX_FRAME];
    int64_t types[MAX_FRAME]; /* type_id of each id; -1: none */
    size_t n;
    /* of the text, or of the first and the second text */
    size_t at[2]; /* how many ids come before it */
    int64_t text_types[2];
    size_t n_texts;
};

/* Record in *why the reason why a template is refused. -1 only when memory ran
 * out. */
__attribute__((format(printf, 3, 4))) static int
note(struct bpe_load *l, char **why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(why, fmt, ap);
    va_end(ap);
    if (n >= 0)
        return 0;
    *why = NULL;
    return err_oom(l->e, SIZE_MAX);
}

static bool adds_ids(const struct json_value *v)
{
    return bpe_is_type(v, "TemplateProcessing") ||
           bpe_is_type(v, "BertProcessing") ||
           bpe_is_type(v, "RobertaProcessing");
}

/* Find the processors that add ids, among a processor and those in it. */
static size_t find_templates(const struct json_value *v,
                             const struct json_value **found)
{
    if (adds_ids(v)) {
        *found = v;
        return 1;
    }
    const struct json_value *list = json_get(v, "processors");
    size_t n = 0;
    if (bpe_is_type(v, "Sequence") && json_is(list, JSON_ARRAY))
        for (size_t i = 0; i < list->len; i++)
            n += find_templates(&list->items[i], found);
    return n;
}

/* ---- reading ---- */

static int64_t type_of(const struct json_value *piece)
{
    int64_t type;
    return json_int(json_get(piece, "type_id"), 0, BPE_MAX_ID, &type) ? -1
                                                                      : type;
}

/* Add an id to f. Returns the fault, or NULL. */
static const char *add_id(const struct bpe *b, struct frame *f,
                          const struct json_value *id, int64_t type)
{
    int64_t value;
    if (json_int(id, 0, BPE_MAX_ID, &value) || !bpe_has(b, (int32_t)value))
        return "an id that the tokenizer does not have";
    if (f->n == MAX_FRAME)
        return "too many tokens";
    f->types[f->n] = type;
    f->ids[f->n++] = (int32_t)value;
    return NULL;
}

/* Add the ids of special_tokens[NAME] to f, for a piece {"id": NAME}. Returns
 * the fault, or NULL. */
static const char *add_special(const struct bpe *b, struct frame *f,
                               const struct json_value *template,
                               const struct json_value *piece)
{
    const struct json_value *name = json_get(piece, "id");
    const char *bad = NULL;
    if (!json_is(name, JSON_STRING))
        return "a special token without an id";
    const struct json_value *special =
        json_get_n(json_get(template, "special_tokens"), name->str, name->len);
    const struct json_value *ids = json_get(special, "ids");
    if (!json_is(ids, JSON_ARRAY))
        return "a token that special_tokens does not have";
    for (size_t i = 0; i < ids->len && !bad; i++)
        bad = add_id(b, f, &ids->items[i], type_of(piece));
    return bad;
}

static void add_text(struct frame *f, int64_t type)
{
    f->at[f->n_texts] = f->n;
    f->text_types[f->n_texts++] = type;
}

/* Add one piece of a list for n_texts texts. Returns the fault, or NULL. */
static const char *add_piece(const struct bpe *b, struct frame *f,
                             const struct json_value *template,
                             const struct json_value *piece, size_t n_texts)
{
    const struct json_value *text = json_get(piece, "Sequence");
    const struct json_value *special = json_get(piece, "SpecialToken");
    const struct json_value *id = json_get(text, "id");
    bool first = json_equals(id, "A");
    if (special)
        return add_special(b, f, template, special);
    if (!text)
        return "a piece that is not a Sequence or SpecialToken";
    if (!first && !(n_texts == 2 && json_equals(id, "B")))
        return n_texts == 2 ? "a sequence that is not A or B"
                            : "a sequence that is not A";
    if (f->n_texts != (first ? 0 : 1))
        return first && f->n_texts == 1 ? "the text twice"
                                        : "texts that are not A and then B";
    add_text(f, type_of(text));
    return NULL;
}

/* Read the list `name` of a TemplateProcessing. *why becomes the reason why it
 * is refused. -1 when out of memory. */
static int read_list(struct bpe_load *l, const struct json_value *template,
                     const char *name, size_t n_texts, struct frame *f,
                     char **why)
{
    static const char what[] = "post_processor: TemplateProcessing";
    const struct json_value *list = json_get(template, name);
    if (!json_is(list, JSON_ARRAY))
        return note(l, why, "%s: %s.%s: not an array", l->name, what, name);
    for (size_t i = 0; i < list->len; i++) {
        const char *bad =
            add_piece(l->b, f, template, &list->items[i], n_texts);
        if (bad)
            return note(l, why, "%s: %s.%s: piece %zu: %s", l->name, what, name,
                        i, bad);
    }
    return f->n_texts == n_texts
               ? 0
               : note(l, why, "%s: %s.%s: has no place for the text%s", l->name,
                      what, name, n_texts == 2 ? "s" : "");
}

/* Make the frames of BertProcessing and RobertaProcessing: "cls" and "sep" are
 * [TOKEN, ID]. */
static int read_fixed(struct bpe_load *l, const struct json_value *v,
                      struct frame *single, struct frame *pair)
{
    bool bert = bpe_is_type(v, "BertProcessing");
    const struct json_value *cls = json_get(v, "cls"),
                            *sep = json_get(v, "sep");
    const struct json_value *none = NULL;
    cls = json_is(cls, JSON_ARRAY) && cls->len == 2 ? &cls->items[1] : none;
    sep = json_is(sep, JSON_ARRAY) && sep->len == 2 ? &sep->items[1] : none;
    const char *bad = NULL;
    for (size_t n_texts = 1; n_texts <= 2 && !bad; n_texts++) {
        struct frame *f = n_texts == 1 ? single : pair;
        bad = add_id(l->b, f, cls, 0);
        for (size_t i = 0; i < n_texts && !bad; i++) {
            int64_t type = bert ? (int64_t)i : 0;
            if (i == 1 && !bert)
                bad = add_id(l->b, f, sep, type);
            add_text(f, type);
            bad = bad ? bad : add_id(l->b, f, sep, type);
        }
    }
    return bad ? note(l, &l->b->no_frame, "%s: post_processor: cls or sep: %s",
                      l->name, bad)
               : 0;
}

/* ---- keeping ---- */

/* Return how many of the ids [begin, end) have the type of the first text, 0;
 * those after them must have that of the second text. SIZE_MAX: they do not. */
static size_t count_first(const struct frame *f, size_t begin, size_t end)
{
    size_t i = begin;
    while (i < end && f->types[i] == 0)
        i++;
    for (size_t k = i; k < end; k++)
        if (f->types[k] != f->text_types[1])
            return SIZE_MAX;
    return i - begin;
}

/* Keep the frame of pairs, unless its types cannot be said in struct
 * bpe_pair. */
static int keep_pair(struct bpe_load *l, const struct frame *f)
{
    struct bpe *b = l->b;
    size_t first = f->at[0], second = f->at[1];
    size_t between = count_first(f, first, second);
    bool types = f->text_types[1] == 1;
    if (f->text_types[0] != 0 || (f->text_types[1] != 0 && !types) ||
        count_first(f, 0, first) != first || between == SIZE_MAX ||
        count_first(f, second, f->n) != (types ? 0 : f->n - second))
        return note(l, &b->no_pair,
                    "%s: post_processor: TemplateProcessing.pair: its type_ids "
                    "are not 0 up to a place, and 0 or 1 after it",
                    l->name);
    b->pair_ids = malloc((f->n + 1) * sizeof *b->pair_ids);
    if (!b->pair_ids)
        return err_oom(l->e, f->n * sizeof *b->pair_ids);
    memcpy(b->pair_ids, f->ids, f->n * sizeof *b->pair_ids);
    b->pair = (struct bpe_pair){.before = b->pair_ids,
                                .between = b->pair_ids + first,
                                .after = b->pair_ids + second,
                                .n_before = first,
                                .n_between = second - first,
                                .n_after = f->n - second,
                                .n_between_type0 = between,
                                .types = types};
    return 0;
}

static int keep_frame(struct bpe_load *l, const struct frame *f)
{
    struct bpe *b = l->b;
    if (f->n == 0)
        return 0;
    b->frame = malloc(f->n * sizeof *b->frame);
    if (!b->frame)
        return err_oom(l->e, f->n * sizeof *b->frame);
    memcpy(b->frame, f->ids, f->n * sizeof *b->frame);
    b->n_before = f->at[0];
    b->n_after = f->n - f->at[0];
    return 0;
}

int bpe_read_frame(struct bpe_load *l, const struct json_value *post)
{
    struct bpe *b = l->b;
    const struct json_value *v = NULL;
    struct frame single = {0}, pair = {0};
    size_t n = find_templates(post, &v);
    if (n == 0)
        return 0;
    if (n > 1)
        return note(l, &b->no_frame,
                    "%s: post_processor: %zu of type TemplateProcessing are "
                    "not supported (supported: one)",
                    l->name, n);
    int rc = bpe_is_type(v, "TemplateProcessing")
                 ? read_list(l, v, "single", 1, &single, &b->no_frame) ||
                       read_list(l, v, "pair", 2, &pair, &b->no_pair)
                 : read_fixed(l, v, &single, &pair);
    if (!rc && !b->no_frame)
        rc = keep_frame(l, &single);
    if (!rc && !b->no_frame && !b->no_pair)
        rc = keep_pair(l, &pair);
    return rc ? -1 : 0;
}

/* ---- using ---- */

int bpe_get_frame(const struct bpe *b, struct bpe_frame *out,
                  struct qwick_err *e)
{
    *out = (struct bpe_frame){0};
    if (b->no_frame)
        return err_set(e, QWICK_ERR_MODEL, "%s", b->no_frame);
    if (!b->frame)
        return 0;
    *out = (struct bpe_frame){.before = b->frame,
                              .after = b->frame + b->n_before,
                              .n_before = b->n_before,
                              .n_after = b->n_after};
    return 0;
}

int bpe_get_pair(const struct bpe *b, struct bpe_pair *out, struct qwick_err *e)
{
    const char *why = b->no_frame ? b->no_frame : b->no_pair;
    *out = b->pair;
    if (b->pair_ids)
        return 0;
    return err_set(e, QWICK_ERR_MODEL, "%s",
                   why ? why
                       : "the tokenizer has no frame for pairs of texts (no "
                         "post_processor that adds tokens)");
}
