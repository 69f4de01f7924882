/* The tables of fish: a line for each option of one or more verbs. */
#include <string.h>

#include "cli/opt/opt_int.h"
#include "cli/opt/verbs.h"
#include "cli/shell/completion.h"

static void put_names(struct buf *out)
{
    buf_puts(out, "set -g __qwick_verbs");
    for (size_t i = 0; verbs[i]; i++)
        buf_printf(out, " %s", verbs[i]->name);
    buf_puts(out, "\nset -g __qwick_aliases");
    for (size_t i = 0; verb_aliases[i].name; i++)
        buf_printf(out, " %s=%s", verb_aliases[i].name,
                   verb_aliases[i].verb->name);
    buf_putc(out, '\n');
}

/* Whether a verb before verbs[i] has the option. */
static bool is_known(const char *name, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (opt_find(verbs[k], name))
            return true;
    return false;
}

/* The options of all verbs that take the next word, and the options of the
 * default verb. */
static void put_words(struct buf *out)
{
    buf_puts(out, "set -g __qwick_with_value");
    for (size_t i = 0; verbs[i]; i++)
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o));) {
            if (!opt_takes_value(o))
                continue;
            if (o->letter && o->letter_late)
                buf_printf(out, " %s:-%c", verbs[i]->name, o->letter);
            if (is_known(o->name, i))
                continue;
            buf_printf(out, " --%s", o->name);
            if (o->letter && !o->letter_late)
                buf_printf(out, " -%c", o->letter);
        }
    buf_puts(out, "\nset -g __qwick_default");
    for (const struct opt *o = NULL; (o = opt_next(&verb_generate, o));) {
        buf_printf(out, " --%s", o->name);
        if (o->letter)
            buf_printf(out, " -%c", o->letter);
    }
    buf_putc(out, '\n');
}

static void put_verb(struct buf *out, const char *name, const struct verb *v)
{
    buf_printf(out, "complete -c qwick -n __qwick_before_verb -a %s -d ", name);
    completion_quote(out, v->summary);
    buf_putc(out, '\n');
}

static void put_verbs(struct buf *out)
{
    for (size_t i = 0; verbs[i]; i++)
        put_verb(out, verbs[i]->name, verbs[i]);
    for (size_t i = 0; verb_aliases[i].name; i++)
        put_verb(out, verb_aliases[i].name, verb_aliases[i].verb);
}

/* Append the options of complete for a value of these kinds. */
static void put_value(struct buf *out, const char *kinds)
{
    const char *optional = strchr(kinds, '?');
    bool none = strcmp(kinds, "-") == 0; /* only the user knows the value */
    if (!optional && *kinds)
        buf_puts(out, strstr(kinds, "file") ? " -rF" : " -x");
    if (*kinds && !none && strcmp(kinds, "file") != 0)
        buf_printf(out, " -a '(__qwick_value %s)'",
                   optional ? optional + 1 : kinds);
}

/* Append what follows the condition in the line of an option. */
static void put_option(struct buf *out, const struct verb *v,
                       const struct opt *o)
{
    struct buf kinds = {0};
    buf_printf(out, " -l %s", o->name);
    if (o->letter && opt_find_letter(v, o->letter, true) == o)
        buf_printf(out, " -s %c", o->letter);
    completion_option(&kinds, o);
    put_value(out, buf_text(&kinds));
    buf_puts(out, " -d ");
    completion_quote(out, o->help);
    buf_free_part(&kinds, out);
}

/* Write the text of the verb's option of this name to *b, if it has one. */
static void text_of(struct buf *b, const struct verb *v, const char *name)
{
    const struct opt *o = opt_find(v, name);
    b->len = 0;
    buf_puts(b, ""); /* without the option, the empty text */
    if (o)
        put_option(b, v, o);
}

/* Append the line of an option of verbs[i], for all verbs in which it is equal,
 * unless an earlier verb had this line. */
static void put_line(struct buf *out, size_t i, const struct opt *o)
{
    struct buf line = {0}, other = {0}, names = {0};
    bool had = false;
    text_of(&line, verbs[i], o->name);
    for (size_t k = 0; verbs[k] && !had; k++) {
        text_of(&other, verbs[k], o->name);
        if (strcmp(buf_text(&line), buf_text(&other)) != 0)
            continue;
        had = k < i;
        buf_printf(&names, " %s", verbs[k]->name);
    }
    if (!had)
        buf_printf(out, "complete -c qwick -n '__qwick_for%s'%s\n",
                   buf_text(&names), buf_text(&line));
    buf_free_part(&line, out);
    buf_free_part(&other, out);
    buf_free_part(&names, out);
}

static void put_argument(struct buf *out, const struct verb *v)
{
    struct buf kinds = {0};
    completion_argument(&kinds, v);
    if (kinds.len)
        buf_printf(out,
                   "complete -c qwick -n '__qwick_argument %s' "
                   "-a '(__qwick_value %s)'\n",
                   v->name, kinds.data);
    buf_free_part(&kinds, out);
}

static void put_lines(struct buf *out)
{
    for (size_t i = 0; verbs[i]; i++) {
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o));)
            put_line(out, i, o);
        put_argument(out, verbs[i]);
    }
}

void completion_fish(struct buf *out)
{
    put_names(out);
    put_words(out);
    put_verbs(out);
    put_lines(out);
}
