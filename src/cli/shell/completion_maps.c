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

static int put_entry(struct buf *out, const struct style *s, const char *key,
                     const char *value)
{
    return buf_printf(out, "    %s", s->open) || completion_quote(out, key) ||
                   buf_puts(out, s->middle) || completion_quote(out, value) ||
                   buf_putc(out, '\n')
               ? -1
               : 0;
}

static int put_open(struct buf *out, const char *name)
{
    return buf_printf(out, "typeset -gA _qwick_%s=(\n", name);
}

static int put_close(struct buf *out)
{
    return buf_puts(out, ")\n");
}

/* Every name of a verb with the verb that it means. */
static int put_names(struct buf *out, const struct style *s)
{
    int bad = put_open(out, "verb");
    for (size_t i = 0; verbs[i] && !bad; i++)
        bad = put_entry(out, s, verbs[i]->name, verbs[i]->name);
    for (size_t i = 0; verb_aliases[i].name && !bad; i++)
        bad = put_entry(out, s, verb_aliases[i].name,
                        verb_aliases[i].verb->name);
    return bad || put_close(out) ? -1 : 0;
}

static int put_summaries(struct buf *out, const struct style *s)
{
    int bad = put_open(out, "summary");
    for (size_t i = 0; verbs[i] && !bad; i++)
        bad = put_entry(out, s, verbs[i]->name, verbs[i]->summary);
    return bad || put_close(out) ? -1 : 0;
}

/* The long options of each verb. */
static int put_options(struct buf *out, const struct style *s)
{
    struct buf list = {0};
    int bad = put_open(out, "options");
    for (size_t i = 0; verbs[i] && !bad; i++) {
        list.len = 0;
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o)) && !bad;)
            bad = buf_printf(&list, "%s--%s", list.len ? " " : "", o->name);
        bad = bad || put_entry(out, s, verbs[i]->name, list.data);
    }
    buf_free(&list);
    return bad || put_close(out) ? -1 : 0;
}

/* The text of an option, "" for NULL. */
typedef int (*text_fn)(struct buf *, const struct opt *);

static int help_text(struct buf *out, const struct opt *o)
{
    return buf_puts(out, o->help);
}

static int text_of(struct buf *out, text_fn text, const struct opt *o)
{
    return buf_puts(out, "") || (o && text(out, o)) ? -1 : 0;
}

/* Append the entry of an option of a verb. usual: what key means in an earlier
 * verb, whose entry is KEY; NULL: none. A verb that differs from it has an entry
 * "VERB KEY". */
static int put_option(struct buf *out, const struct style *s, text_fn text,
                      const char *verb, const char *key,
                      const struct opt *usual, const struct opt *o)
{
    struct buf a = {0}, b = {0}, name = {0};
    int bad = text_of(&a, text, usual) || text_of(&b, text, o) ||
              (usual && buf_printf(&name, "%s ", verb)) || buf_puts(&name, key);
    if (!bad && strcmp(a.data, b.data) != 0)
        bad = put_entry(out, s, name.data, b.data);
    buf_free(&a);
    buf_free(&b);
    buf_free(&name);
    return bad ? -1 : 0;
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

static int put_verb_options(struct buf *out, const struct style *s,
                            text_fn text, bool letters, size_t i)
{
    const struct verb *v = verbs[i];
    char key[64];
    int bad = 0;
    for (const struct opt *o = NULL; (o = opt_next(v, o)) && !bad;) {
        snprintf(key, sizeof key, "--%s", o->name);
        bad = put_option(out, s, text, v->name, key, earlier(o->name, 0, i), o);
        if (bad || !letters || !o->letter ||
            opt_find_letter(v, o->letter, true) != o)
            continue;
        snprintf(key, sizeof key, "-%c", o->letter);
        bad = put_option(out, s, text, v->name, key,
                         earlier(NULL, o->letter, i), o);
    }
    return bad ? -1 : 0;
}

/* How values are completed: of options, and of the first argument of a verb. */
static int put_kinds(struct buf *out, const struct style *s)
{
    struct buf b = {0};
    int bad = put_open(out, "kinds");
    for (size_t i = 0; verbs[i] && !bad; i++)
        bad = put_verb_options(out, s, completion_option, true, i);
    for (size_t i = 0; verbs[i] && !bad; i++) {
        b.len = 0;
        bad = completion_argument(&b, verbs[i]) ||
              (b.len && put_entry(out, s, verbs[i]->name, b.data));
    }
    buf_free(&b);
    return bad || put_close(out) ? -1 : 0;
}

static int put_help(struct buf *out, const struct style *s)
{
    int bad = put_open(out, "help");
    for (size_t i = 0; verbs[i] && !bad; i++)
        bad = put_verb_options(out, s, help_text, false, i);
    return bad || put_close(out) ? -1 : 0;
}

static int put_maps(struct buf *out, const struct style *s)
{
    return put_names(out, s) || put_options(out, s) || put_kinds(out, s) ? -1
                                                                         : 0;
}

int completion_bash(struct buf *out)
{
    return put_maps(out, &bash_style);
}

int completion_zsh(struct buf *out)
{
    return put_maps(out, &zsh_style) || put_summaries(out, &zsh_style) ||
                   put_help(out, &zsh_style)
               ? -1
               : 0;
}
