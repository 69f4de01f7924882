#include "cli/shell/completion.h"

#include <string.h>

#define SCRIPT(shell)                                                         \
    extern const char completion_script_##shell[],                            \
        completion_script_##shell##_end[]
#define SHELL(shell)                                                          \
    {                                                                         \
        #shell, completion_script_##shell, completion_script_##shell##_end,   \
            completion_##shell                                                \
    }

/* In completion_scripts.S. */
SCRIPT(bash);
SCRIPT(zsh);
SCRIPT(fish);

const struct completion_shell completion_shells[] = {
    SHELL(bash),
    SHELL(zsh),
    SHELL(fish),
    {NULL, NULL, NULL, NULL},
};

void completion_put(struct buf *out, const struct completion_shell *shell)
{
    static const char mark[] = "@TABLES@\n";
    size_t n = (size_t)(shell->script_end - shell->script);
    const char *at = memmem(shell->script, n, mark, sizeof(mark) - 1);
    const char *rest = at ? at + sizeof(mark) - 1 : shell->script_end;
    buf_append(out, shell->script, at ? (size_t)(at - shell->script) : n);
    if (at)
        shell->put_tables(out);
    buf_append(out, rest, (size_t)(shell->script_end - rest));
}

void completion_quote(struct buf *out, const char *text)
{
    buf_putc(out, '\'');
    for (; *text; text++)
        if (*text == '\'' || *text == '\\')
            buf_printf(out, "'\\%c'", *text);
        else
            buf_putc(out, *text);
    buf_putc(out, '\'');
}

/* ---- placeholders ---------------------------------------------------------
 */

static const char *const known[][2] = {
    {"FILE", "file"},   {"PATH", "file"}, {"DIR", "dir"},
    {"MODEL", "model"}, {"VERB", "verb"}, {"TEMPLATE", "template"},
};

/* Append the word for one part of a placeholder. Other parts in capitals stand
 * for texts that only the user knows. */
static void put_part(struct buf *out, const char *part, size_t n, bool literal)
{
    const size_t n_known = sizeof(known) / sizeof(*known);
    const char *blank = out->len ? " " : "";
    if (n == strlen("TOPIC") && memcmp(part, "TOPIC", n) == 0) {
        for (const struct help_topic *t = help_topics; t->name; t++)
            buf_printf(out, "%s=%s", out->len ? " " : "", t->name);
        return;
    }
    size_t i = 0;
    while (i < n_known &&
           (strlen(known[i][0]) != n || memcmp(known[i][0], part, n) != 0))
        i++;
    if (i < n_known)
        buf_printf(out, "%s%s", blank, known[i][1]);
    else if (literal || (*part >= 'a' && *part <= 'z'))
        buf_printf(out, "%s=%.*s", blank, (int)n, part);
}

/* Append the words for "PART|PART". literal: each part stands for itself. */
static void put_parts(struct buf *out, const char *text, size_t n, bool literal)
{
    while (n) {
        const char *bar = memchr(text, '|', n);
        size_t k = bar ? (size_t)(bar - text) : n;
        if (k)
            put_part(out, text, k, literal);
        k += bar != NULL;
        text += k;
        n -= k;
    }
}

void completion_option(struct buf *out, const struct opt *o)
{
    struct buf words = {0};
    if (o->type == OPT_FLAG)
        return;
    if (o->type == OPT_FLAG_FILE)
        buf_puts(&words, "?");
    if (o->choices)
        put_parts(&words, o->choices, strlen(o->choices), true);
    else if (opt_arg(o))
        put_parts(&words, opt_arg(o), strlen(opt_arg(o)), false);
    buf_puts(out, words.len ? words.data : "-");
    buf_free_part(&words, out);
}

void completion_argument(struct buf *out, const struct verb *v)
{
    struct buf words = {0};
    /* "-a A [PROMPT...]": an option and its value are no argument */
    for (const char *at = v->args; *at;) {
        size_t n = strcspn(at, " ");
        if (*at == '-') {
            at += n + (at[n] == ' ');
            n = strcspn(at, " ");
        } else {
            size_t from = at[0] == '[', to = n;
            while (to > from && strchr(".]", at[to - 1]))
                to--;
            put_parts(&words, at + from, to - from, false);
        }
        at += n + (at[n] == ' ');
    }
    buf_puts(out, buf_text(&words));
    buf_free_part(&words, out);
}
