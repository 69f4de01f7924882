/* The tables of bash and zsh: associative arrays. */
#include <stdio.h>
#include <string.h>

#include "cli/shell/completion.h"
#include "cli/opt/verbs.h"

/* How a shell writes an entry: before the key, between key and value. */
struct style {
    const char *open, *middle;
};

static const struct style bash_style = {"[", "]="}, zsh_style = {"", " "};

static void put_entry(struct buf *out, const struct style *s, const char *key,
                      const char *value)
{
    buf_printf(out, "    %s", s->open);
    completion_quote(out, key);
    buf_puts(out, s->middle);
    completion_quote(out, value);
    buf_putc(out, '\n');
}

static void put_open(struct buf *out, const char *name)
{
    buf_printf(out, "typeset -gA _qwick_%s=(\n", name);
}

static void put_close(struct buf *out)
{
    buf_puts(out, ")\n");
}

/* Every name of a verb with the verb that it means. */
static void put_names(struct buf *out, const struct style *s)
{
    put_open(out, "verb");
    for (size_t i = 0; verbs[i]; i++)
        put_entry(out, s, verbs[i]->name, verbs[i]->name);
    for (size_t i = 0; verb_aliases[i].name; i++)
        put_entry(out, s, verb_aliases[i].name, verb_aliases[i].verb->name);
    put_close(out);
}

static void put_summaries(struct buf *out, const struct style *s)
{
    put_open(out, "summary");
    for (size_t i = 0; verbs[i]; i++)
        put_entry(out, s, verbs[i]->name, verbs[i]->summary);
    put_close(out);
}

/* The long options of each verb. */
static void put_options(struct buf *out, const struct style *s)
{
    struct buf list = {0};
    put_open(out, "options");
    for (size_t i = 0; verbs[i]; i++) {
        list.len = 0;
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o));)
            buf_printf(&list, "%s--%s", list.len ? " " : "", o->name);
        put_entry(out, s, verbs[i]->name, buf_text(&list));
    }
    buf_free_part(&list, out);
    put_close(out);
}

/* The text of an option, "" for NULL. */
typedef void (*text_fn)(struct buf *, const struct opt *);

static void help_text(struct buf *out, const struct opt *o)
{
    buf_puts(out, o->help);
}

static void text_of(struct buf *out, text_fn text, const struct opt *o)
{
    if (o)
        text(out, o);
}

/* Append the entry of an option of a verb. usual: what key means in an earlier
 * verb, whose entry is KEY; NULL: none. A verb that differs from it has an entry
 * "VERB KEY". */
static void put_option(struct buf *out, const struct style *s, text_fn text,
                       const char *verb, const char *key,
                       const struct opt *usual, const struct opt *o)
{
    struct buf a = {0}, b = {0}, name = {0};
    text_of(&a, text, usual);
    text_of(&b, text, o);
    buf_printf(&name, "%s%s%s", usual ? verb : "", usual ? " " : "", key);
    if (strcmp(buf_text(&a), buf_text(&b)) != 0)
        put_entry(out, s, buf_text(&name), buf_text(&b));
    buf_free_part(&a, out);
    buf_free_part(&b, out);
    buf_free_part(&name, out);
}

/* The option with this name, or with this letter before the verb, in the first
 * of the verbs before verbs[end] that has it. */
static const struct opt *earlier(const char *name, char letter, size_t end)
{
    const struct opt *o = NULL;
    for (size_t i = 0; i < end && !o; i++)
        o = name ? opt_find(verbs[i], name)
                 : opt_find_letter(verbs[i], letter, false);
    return o;
}

static void put_verb_options(struct buf *out, const struct style *s,
                             text_fn text, bool letters, size_t i)
{
    const struct verb *v = verbs[i];
    char key[64];
    for (const struct opt *o = NULL; (o = opt_next(v, o));) {
        snprintf(key, sizeof key, "--%s", o->name);
        put_option(out, s, text, v->name, key, earlier(o->name, 0, i), o);
        if (!letters || !o->letter || opt_find_letter(v, o->letter, true) != o)
            continue;
        snprintf(key, sizeof key, "-%c", o->letter);
        put_option(out, s, text, v->name, key, earlier(NULL, o->letter, i), o);
    }
}

/* How values are completed: of options, and of the first argument of a verb. */
static void put_kinds(struct buf *out, const struct style *s)
{
    struct buf b = {0};
    put_open(out, "kinds");
    for (size_t i = 0; verbs[i]; i++)
        put_verb_options(out, s, completion_option, true, i);
    for (size_t i = 0; verbs[i]; i++) {
        b.len = 0;
        completion_argument(&b, verbs[i]);
        if (b.len)
            put_entry(out, s, verbs[i]->name, b.data);
    }
    buf_free_part(&b, out);
    put_close(out);
}

static void put_help(struct buf *out, const struct style *s)
{
    put_open(out, "help");
    for (size_t i = 0; verbs[i]; i++)
        put_verb_options(out, s, help_text, false, i);
    put_close(out);
}

static void put_maps(struct buf *out, const struct style *s)
{
    put_names(out, s);
    put_options(out, s);
    put_kinds(out, s);
}

void completion_bash(struct buf *out)
{
    put_maps(out, &bash_style);
}

void completion_zsh(struct buf *out)
{
    put_maps(out, &zsh_style);
    put_summaries(out, &zsh_style);
    put_help(out, &zsh_style);
}
