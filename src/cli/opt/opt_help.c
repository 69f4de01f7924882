/* --help and --version. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/opt_int.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

#define HELP_WIDTH  79
#define HELP_INDENT 29

/* The bytes of a word that a line takes: a long list of choices breaks after a
 * "|". */
static size_t word_bytes(const char *s)
{
    const size_t most = HELP_WIDTH - HELP_INDENT;
    size_t n = strcspn(s, " "), k = n;
    if (n <= most)
        return n;
    for (k = most; k && s[k - 1] != '|';)
        k--;
    return k ? k : n;
}

/* Append words with line breaks at HELP_WIDTH. *col is the current column; new
 * lines start at HELP_INDENT. */
static void wrap(struct buf *b, const char *s, size_t *col)
{
    while (*s) {
        size_t n = word_bytes(s);
        if (n && *col + 1 + n > HELP_WIDTH) {
            buf_printf(b, "\n%*s", HELP_INDENT, "");
            *col = HELP_INDENT;
        } else if (n && *col > HELP_INDENT) {
            buf_putc(b, ' ');
            ++*col;
        }
        buf_append(b, s, n);
        *col += n;
        s += n;
        while (*s == ' ')
            s++;
    }
}

const struct opt *opt_find_letter(const struct verb *v, char letter, bool late)
{
    const struct opt *found = NULL;
    for (const struct opt *o = NULL; (o = opt_next(v, o));)
        if (o->letter == letter && o->letter_late <= late &&
            (!found || o->letter_late))
            found = o;
    return found;
}

/* Whether the option's letter, standing after the verb, means this option. */
static bool has_letter(const struct verb *v, const struct opt *o)
{
    return o->letter && opt_find_letter(v, o->letter, true) == o;
}

/* Append the options of which this one needs one. */
static void help_needs(struct buf *b, const struct verb *v, const struct opt *o,
                       size_t *col)
{
    struct buf needs = {0};
    opt_needs(&needs, v, o->id);
    if (needs.len) {
        wrap(b, "[with", col);
        wrap(b, needs.data, col);
        buf_putc(b, ']');
    }
    buf_free_part(&needs, b);
}

/* Append what stands left of the help: "  -n, --max-tokens N". */
static void help_name(struct buf *b, const struct opt *o, bool letter)
{
    const char *arg = opt_arg(o) ? opt_arg(o) : o->choices;
    size_t start = b->len;
    if (letter)
        buf_printf(b, "  -%c, --%s", o->letter, o->name);
    else
        buf_printf(b, "      --%s", o->name);
    if (arg)
        buf_printf(b, o->type == OPT_FLAG_FILE ? "[=%s]" : " %s", arg);
    size_t used = b->len - start;
    if (used + 2 > HELP_INDENT)
        buf_printf(b, "\n%*s", HELP_INDENT, "");
    else
        buf_printf(b, "%*s", (int)(HELP_INDENT - used), "");
}

/* Append an option without the end of its line, at which *col is. */
static void help_option(struct buf *b, const struct verb *v,
                        const struct opt *o, size_t *col)
{
    char range[64], extra[256];
    *col = HELP_INDENT;
    help_name(b, o, has_letter(v, o));
    wrap(b, o->help, col);
    if (o->type == OPT_CHOICE && o->arg) {
        snprintf(extra, sizeof(extra), "(%s)", o->choices);
        wrap(b, extra, col);
    }
    opt_range_text(o, false, range, sizeof(range));
    if (range[0] || o->def) {
        snprintf(extra, sizeof(extra), "[%s%s%s%s]", range,
                 range[0] && o->def ? "; " : "", o->def ? "default: " : "",
                 o->def ? o->def : "");
        wrap(b, extra, col);
    }
    help_needs(b, v, o, col);
}

/* ---- the page of a verb ---- */

/* Append the line of the shared options: their letters, and the number of the
 * others. */
static void help_shared_line(struct buf *b, const struct verb *v)
{
    size_t others = 0;
    buf_puts(b, "\nShared options (qwick help options): ");
    for (const struct opt *o = NULL; (o = opt_next(v, o));)
        if (opt_heading(o)->shared && has_letter(v, o))
            buf_printf(b, "-%c ", o->letter);
        else
            others += opt_heading(o)->shared;
    buf_printf(b, "and %zu more\n", others);
}

static void help_verb(struct buf *b, const struct verb *v)
{
    const struct opt *heading = NULL;
    size_t col;
    buf_printf(b, "usage: qwick %s [OPTIONS]%s%s\n\nExamples\n%s\n%s\n",
               v->name, v->args[0] ? " " : "", v->args, v->examples, v->about);
    for (const struct opt *o = NULL; (o = opt_next(v, o));) {
        if (opt_heading(o)->shared)
            continue;
        if (heading != opt_heading(o)) {
            heading = opt_heading(o);
            buf_printf(b, "\n%s\n", heading->help);
        }
        help_option(b, v, o, &col);
        buf_putc(b, '\n');
    }
    help_shared_line(b, v);
}

/* ---- the first page ---- */

enum { FIRST_EXAMPLES = 3 };

/* Append the verbs of a group, on one line. */
static void help_group(struct buf *b, enum verb_group group)
{
    buf_printf(b, "  %-20s", verb_groups[group]);
    for (size_t i = 0; verbs[i]; i++)
        if (verbs[i]->group == group)
            buf_printf(b, " %s%s", verbs[i]->name,
                       verbs[i] == &verb_generate ? " (the default)" : "");
    buf_putc(b, '\n');
}

/* Append the first n lines of a text. */
static void help_lines(struct buf *b, const char *text, int n)
{
    for (const char *end; n-- > 0 && (end = strchr(text, '\n')); text = end + 1)
        buf_append(b, text, (size_t)(end + 1 - text));
}

static void help_first(struct buf *b)
{
    const struct verb *v = &verb_generate;
    buf_puts(b, "usage: qwick [OPTIONS] [PROMPT]\n"
                "       qwick VERB [OPTIONS] [ARGS]\n\n"
                "Answer a prompt with a language model on this machine's CPU. "
                "The prompt is the\nfiles of -f, then piped standard input, "
                "then PROMPT.\n\nVerbs\n");
    for (int i = VERBS_NONE + 1; i < N_VERB_GROUPS; i++)
        help_group(b, (enum verb_group)i);
    buf_puts(b, "\nOptions\n");
    for (const struct opt *o = NULL; (o = opt_next(v, o));)
        if (o->first) {
            help_name(b, o, has_letter(v, o));
            buf_printf(b, "%s\n", o->first);
        }
    buf_puts(b, "\nExamples\n");
    help_lines(b, v->examples, FIRST_EXAMPLES);
    buf_puts(b, "\nA good model (2.5 GB): qwick pull "
                "Qwen/Qwen3-4B-GGUF:Q4_K_M\n"
                "More: qwick help VERB, man qwick, and qwick help TOPIC:\n ");
    for (const struct help_topic *t = help_topics; t->name; t++)
        buf_printf(b, " %s", t->name);
    buf_puts(b, "\nExit status: 0 done, 1 failure, 2 usage, 3 model, 4 "
                "context, 5 memory,\n6 incomplete (--require-answer).\n");
}

int opt_help(const struct verb *v)
{
    struct buf b = {0};
    if (v)
        help_verb(&b, v);
    else
        help_first(&b);
    return out_print(&b, out_write);
}

/* ---- topics ---- */

/* Append the verbs that have an option, unless all have it. */
static void help_verbs_with(struct buf *b, const struct opt *o, size_t *col)
{
    if (o->verbs == V_ALL)
        return;
    buf_printf(b, "\n%*s", (int)(*col = HELP_INDENT), "");
    wrap(b, "Verbs:", col);
    for (size_t i = 0; verbs[i]; i++)
        if (o->verbs & verbs[i]->bit)
            wrap(b, verbs[i]->name, col);
}

void help_put_shared(struct buf *b)
{
    const struct opt *o = NULL, *heading = NULL;
    while ((o = opt_next(NULL, o))) {
        size_t col, i = 0;
        if (!opt_heading(o)->shared)
            continue;
        if (heading != opt_heading(o)) {
            heading = opt_heading(o);
            buf_printf(b, "\n%s\n", heading->help);
        }
        while (!(o->verbs & verbs[i]->bit))
            i++;
        help_option(b, verbs[i], o, &col);
        help_verbs_with(b, o, &col);
        buf_putc(b, '\n');
    }
}

void help_put_verbs(struct buf *b)
{
    for (int group = VERBS_NONE + 1; group < N_VERB_GROUPS; group++) {
        buf_printf(b, "\n%s\n", verb_groups[group]);
        for (size_t i = 0; verbs[i]; i++)
            if ((int)verbs[i]->group == group)
                buf_printf(b, "  %-12s %s\n", verbs[i]->name,
                           verbs[i]->summary);
    }
}

int help_topic_print(const char *name)
{
    struct buf b = {0};
    const struct help_topic *t = help_topics;
    while (t->name && strcmp(t->name, name) != 0)
        t++;
    if (!t->name)
        return -1;
    buf_puts(&b, t->text);
    if (t->put_rest)
        t->put_rest(&b);
    return out_print(&b, out_write);
}

int opt_version(void)
{
    static const char text[] = "qwick " QWICK_VERSION "\n";
    return out_write(text, sizeof(text) - 1) ? QWICK_ERR_RUNTIME : 0;
}
