/* The ids that tokenizer.json's post_processor adds to a text. Only a template
 * adds ids: TemplateProcessing of `tokenizers`, whose "single" is a list of
 * special tokens around the text. Other templates are refused only when the
 * frame is requested, because plain encoding does not need them. */
#include "text/bpe/bpe_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Most ids of a template; tokenizers add far fewer. */
enum { MAX_FRAME = 64 };

struct frame {
    int32_t ids[MAX_FRAME];
    size_t n, n_before;
    bool has_text;
};

/* Record why bpe_get_frame must refuse the template. -1 only when memory ran
 * out. */
__attribute__((format(printf, 2, 3))) static int note(struct bpe_load *l,
                                                      const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&l->b->no_frame, fmt, ap);
    va_end(ap);
    if (n >= 0)
        return 0;
    l->b->no_frame = NULL;
    return err_oom(l->e, SIZE_MAX);
}

/* Find the templates of a processor and of the processors in it. */
static size_t find_templates(const struct json_value *v,
                             const struct json_value **found)
{
    if (bpe_is_type(v, "TemplateProcessing")) {
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

/* Add the ids of special_tokens[NAME] to f, for a piece {"id": NAME}. Returns
 * the fault, or NULL. */
static const char *add_special(const struct bpe *b, struct frame *f,
                               const struct json_value *template,
                               const struct json_value *piece)
{
    const struct json_value *name = json_get(piece, "id");
    if (!json_is(name, JSON_STRING))
        return "a special token without an id";
    const struct json_value *special =
        json_get_n(json_get(template, "special_tokens"), name->str, name->len);
    const struct json_value *ids = json_get(special, "ids");
    if (!json_is(ids, JSON_ARRAY))
        return "a token that special_tokens does not have";
    for (size_t i = 0; i < ids->len; i++) {
        int64_t id;
        if (json_int(&ids->items[i], 0, BPE_MAX_ID, &id) ||
            !bpe_has(b, (int32_t)id))
            return "an id that the tokenizer does not have";
        if (f->n == MAX_FRAME)
            return "too many tokens";
        f->ids[f->n++] = (int32_t)id;
    }
    return NULL;
}

/* Add one piece of "single". Returns the fault, or NULL. */
static const char *add_piece(const struct bpe *b, struct frame *f,
                             const struct json_value *template,
                             const struct json_value *piece)
{
    const struct json_value *text = json_get(piece, "Sequence");
    const struct json_value *special = json_get(piece, "SpecialToken");
    if (special)
        return add_special(b, f, template, special);
    if (!text)
        return "a piece that is not a Sequence or SpecialToken";
    if (!json_equals(json_get(text, "id"), "A"))
        return "a sequence that is not A";
    if (f->has_text)
        return "the text twice";
    f->has_text = true;
    f->n_before = f->n;
    return NULL;
}

int bpe_read_frame(struct bpe_load *l, const struct json_value *post)
{
    struct bpe *b = l->b;
    const struct json_value *template = NULL;
    struct frame f = {0};
    size_t n = find_templates(post, &template);
    if (n == 0)
        return 0;
    if (n > 1)
        return note(l,
                    "%s: post_processor: %zu of type TemplateProcessing are "
                    "not supported (supported: one)",
                    l->name, n);
    const struct json_value *single = json_get(template, "single");
    if (!json_is(single, JSON_ARRAY))
        return note(l,
                    "%s: post_processor: TemplateProcessing.single: not an "
                    "array",
                    l->name);
    for (size_t i = 0; i < single->len; i++) {
        const char *bad = add_piece(b, &f, template, &single->items[i]);
        if (bad)
            return note(l,
                        "%s: post_processor: TemplateProcessing.single: piece "
                        "%zu: %s",
                        l->name, i, bad);
    }
    if (!f.has_text)
        return note(l,
                    "%s: post_processor: TemplateProcessing.single: has no "
                    "place for the text",
                    l->name);
    if (f.n == 0)
        return 0;
    b->frame = malloc(f.n * sizeof *b->frame);
    if (!b->frame)
        return err_oom(l->e, f.n * sizeof *b->frame);
    memcpy(b->frame, f.ids, f.n * sizeof *b->frame);
    b->n_before = f.n_before;
    b->n_after = f.n - f.n_before;
    return 0;
}

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
    (void)b;
    *out = (struct bpe_pair){0};
    return err_set(e, QWICK_ERR_MODEL,
                   "tokenizer.json: post_processor: has no frame for pairs");
}
