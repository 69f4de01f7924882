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

/* Append words with line breaks at HELP_WIDTH. *col is the current column; new
 * lines start at HELP_INDENT. */
static void wrap(struct buf *b, const char *s, size_t *col)
{
    while (*s) {
        size_t n = strcspn(s, " ");
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

static void help_option(struct buf *b, const struct verb *v,
                        const struct opt *o)
{
    size_t start = b->len, col = HELP_INDENT;
    char range[64], extra[256];
    if (has_letter(v, o))
        buf_printf(b, "  -%c, --%s", o->letter, o->name);
    else
        buf_printf(b, "      --%s", o->name);
    const char *arg = opt_arg(o) ? opt_arg(o) : o->choices;
    if (arg)
        buf_printf(b, o->type == OPT_FLAG_FILE ? "[=%s]" : " %s", arg);
    size_t used = b->len - start;
    if (used + 2 > HELP_INDENT)
        buf_printf(b, "\n%*s", HELP_INDENT, "");
    else
        buf_printf(b, "%*s", (int)(HELP_INDENT - used), "");
    wrap(b, o->help, &col);
    if (o->type == OPT_CHOICE && o->arg) {
        snprintf(extra, sizeof(extra), "(%s)", o->choices);
        wrap(b, extra, &col);
    }
    opt_range_text(o, false, range, sizeof(range));
    if (range[0] || o->def) {
        snprintf(extra, sizeof(extra), "[%s%s%s%s]", range,
                 range[0] && o->def ? "; " : "", o->def ? "default: " : "",
                 o->def ? o->def : "");
        wrap(b, extra, &col);
    }
    help_needs(b, v, o, &col);
    buf_putc(b, '\n');
}

int opt_help(const struct verb *v)
{
    struct buf b = {0};
    bool main_help = v->bit == V_GENERATE;
    if (main_help)
        buf_puts(&b, "usage: qwick [OPTIONS] [PROMPT]\n"
                     "       qwick VERB [OPTIONS] [ARGS]\n\n");
    else
        buf_printf(&b, "usage: qwick %s [OPTIONS]%s%s\n\n", v->name,
                   v->args[0] ? " " : "", v->args);
    buf_printf(&b, "%s\n", v->about);
    if (main_help) {
        buf_puts(&b, "\nVerbs\n");
        for (size_t i = 0; verbs[i]; i++)
            buf_printf(&b, "  %-12s %s\n", verbs[i]->name, verbs[i]->summary);
        buf_puts(&b, "Each has its own --help.\n");
    }
    const char *heading = NULL;
    for (const struct opt *o = NULL; (o = opt_next(v, o));) {
        if (heading != opt_heading(o))
            buf_printf(&b, "\n%s\n", heading = opt_heading(o));
        help_option(&b, v, o);
    }
    buf_printf(&b, "\nExamples\n%s", v->examples);
    if (main_help)
        buf_puts(&b, "\nExit status: 0 done, 1 failure, 2 usage, 3 model, "
                     "4 context, 5 memory,\n6 incomplete "
                     "(--require-answer).\nMore: man qwick\n");
    return out_print(&b, out_write);
}

int opt_version(void)
{
    static const char text[] = "qwick " QWICK_VERSION "\n";
    return out_write(text, sizeof(text) - 1) ? QWICK_ERR_RUNTIME : 0;
}
