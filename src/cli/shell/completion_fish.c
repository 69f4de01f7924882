/* The tables of fish: a line for each option of one or more verbs. */
#include <string.h>

#include "cli/shell/completion.h"
#include "cli/opt/verbs.h"

static int put_names(struct buf *out)
{
    int bad = buf_puts(out, "set -g __qwick_verbs");
    for (size_t i = 0; verbs[i] && !bad; i++)
        bad = buf_printf(out, " %s", verbs[i]->name);
    bad = bad || buf_puts(out, "\nset -g __qwick_aliases");
    for (size_t i = 0; verb_aliases[i].name && !bad; i++)
        bad = buf_printf(out, " %s=%s", verb_aliases[i].name,
                         verb_aliases[i].verb->name);
    return bad || buf_putc(out, '\n') ? -1 : 0;
}

/* Whether an option takes the next word as its value. */
static bool takes_word(const struct opt *o)
{
    return o->type != OPT_FLAG && o->type != OPT_FLAG_FILE;
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
static int put_words(struct buf *out)
{
    int bad = buf_puts(out, "set -g __qwick_with_value");
    for (size_t i = 0; verbs[i] && !bad; i++)
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o)) && !bad;) {
            if (!takes_word(o))
                continue;
            if (o->letter && o->letter_late)
                bad = buf_printf(out, " %s:-%c", verbs[i]->name, o->letter);
            if (is_known(o->name, i))
                continue;
            bad |= buf_printf(out, " --%s", o->name);
            if (o->letter && !o->letter_late)
                bad |= buf_printf(out, " -%c", o->letter);
        }
    bad = bad || buf_puts(out, "\nset -g __qwick_default");
    for (const struct opt *o = NULL;
         (o = opt_next(&verb_generate, o)) && !bad;) {
        bad |= buf_printf(out, " --%s", o->name);
        if (o->letter)
            bad |= buf_printf(out, " -%c", o->letter);
    }
    return bad || buf_putc(out, '\n') ? -1 : 0;
}

static int put_verb(struct buf *out, const char *name, const struct verb *v)
{
    return buf_printf(out,
                      "complete -c qwick -n __qwick_before_verb -a %s -d ",
                      name) ||
                   completion_quote(out, v->summary) || buf_putc(out, '\n')
               ? -1
               : 0;
}

static int put_verbs(struct buf *out)
{
    int bad = 0;
    for (size_t i = 0; verbs[i] && !bad; i++)
        bad = put_verb(out, verbs[i]->name, verbs[i]);
    for (size_t i = 0; verb_aliases[i].name && !bad; i++)
        bad = put_verb(out, verb_aliases[i].name, verb_aliases[i].verb);
    return bad ? -1 : 0;
}

/* Append the options of complete for a value of these kinds. */
static int put_value(struct buf *out, const char *kinds)
{
    const char *optional = strchr(kinds, '?');
    if (!*kinds || strcmp(kinds, "-") == 0)
        return *kinds ? buf_puts(out, " -x") : 0;
    if (!optional && buf_puts(out, strstr(kinds, "file") ? " -rF" : " -x"))
        return -1;
    return strcmp(kinds, "file") == 0
               ? 0
               : buf_printf(out, " -a '(__qwick_value %s)'",
                            optional ? optional + 1 : kinds);
}

/* Append what follows the condition in the line of an option. */
static int put_option(struct buf *out, const struct verb *v,
                      const struct opt *o)
{
    struct buf kinds = {0};
    int bad = buf_printf(out, " -l %s", o->name);
    if (o->letter && opt_find_letter(v, o->letter, true) == o)
        bad |= buf_printf(out, " -s %c", o->letter);
    bad = bad || completion_option(&kinds, o) ||
          put_value(out, kinds.len ? kinds.data : "") ||
          buf_puts(out, " -d ") || completion_quote(out, o->help);
    buf_free(&kinds);
    return bad ? -1 : 0;
}

/* Write the text of the verb's option of this name to *b, if it has one. */
static int text_of(struct buf *b, const struct verb *v, const char *name)
{
    const struct opt *o = opt_find(v, name);
    b->len = 0;
    return buf_puts(b, "") || (o && put_option(b, v, o)) ? -1 : 0;
}

/* Append the line of an option of verbs[i], for all verbs in which it is equal,
 * unless an earlier verb had this line. */
static int put_line(struct buf *out, size_t i, const struct opt *o)
{
    struct buf line = {0}, other = {0}, names = {0};
    bool had = false;
    int bad = text_of(&line, verbs[i], o->name);
    for (size_t k = 0; verbs[k] && !bad && !had; k++) {
        bad = text_of(&other, verbs[k], o->name);
        if (bad || strcmp(line.data, other.data) != 0)
            continue;
        had = k < i;
        bad = buf_printf(&names, " %s", verbs[k]->name);
    }
    if (!bad && !had)
        bad = buf_printf(out, "complete -c qwick -n '__qwick_for%s'%s\n",
                         names.data, line.data);
    buf_free(&line);
    buf_free(&other);
    buf_free(&names);
    return bad ? -1 : 0;
}

static int put_argument(struct buf *out, const struct verb *v)
{
    struct buf kinds = {0};
    int bad = completion_argument(&kinds, v);
    if (!bad && kinds.len)
        bad = buf_printf(out,
                         "complete -c qwick -n '__qwick_argument %s' "
                         "-a '(__qwick_value %s)'\n",
                         v->name, kinds.data);
    buf_free(&kinds);
    return bad ? -1 : 0;
}

static int put_lines(struct buf *out)
{
    int bad = 0;
    for (size_t i = 0; verbs[i] && !bad; i++) {
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o)) && !bad;)
            bad = put_line(out, i, o);
        bad = bad || put_argument(out, verbs[i]);
    }
    return bad ? -1 : 0;
}

int completion_fish(struct buf *out)
{
    return put_names(out) || put_words(out) || put_verbs(out) || put_lines(out)
               ? -1
               : 0;
}
