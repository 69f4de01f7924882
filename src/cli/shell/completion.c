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

int completion_put(struct buf *out, const struct completion_shell *shell)
{
    static const char mark[] = "@TABLES@\n";
    size_t n = (size_t)(shell->script_end - shell->script);
    const char *at = memmem(shell->script, n, mark, sizeof(mark) - 1);
    if (!at)
        return buf_append(out, shell->script, n);
    const char *rest = at + sizeof(mark) - 1;
    return buf_append(out, shell->script, (size_t)(at - shell->script)) ||
                   shell->put_tables(out) ||
                   buf_append(out, rest, (size_t)(shell->script_end - rest))
               ? -1
               : 0;
}

int completion_quote(struct buf *out, const char *text)
{
    int bad = buf_putc(out, '\'');
    for (; *text && !bad; text++)
        bad = *text == '\'' || *text == '\\'
                  ? buf_printf(out, "'\\%c'", *text)
                  : buf_putc(out, *text);
    return bad || buf_putc(out, '\'') ? -1 : 0;
}

/* ---- placeholders ---------------------------------------------------------
 */

static const char *const known[][2] = {
    {"FILE", "file"},   {"PATH", "file"}, {"DIR", "dir"},
    {"MODEL", "model"}, {"VERB", "verb"},
};

/* Append the word for one part of a placeholder. Other parts in capitals stand
 * for texts that only the user knows. */
static int put_part(struct buf *out, const char *part, size_t n, bool literal)
{
    const char *blank = out->len ? " " : "";
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strlen(known[i][0]) == n && memcmp(known[i][0], part, n) == 0)
            return buf_printf(out, "%s%s", blank, known[i][1]);
    if (literal || (*part >= 'a' && *part <= 'z'))
        return buf_printf(out, "%s=%.*s", blank, (int)n, part);
    return 0;
}

/* Append the words for "PART|PART". literal: each part stands for itself. */
static int put_parts(struct buf *out, const char *text, size_t n, bool literal)
{
    while (n) {
        const char *bar = memchr(text, '|', n);
        size_t k = bar ? (size_t)(bar - text) : n;
        if (k && put_part(out, text, k, literal))
            return -1;
        k += bar != NULL;
        text += k;
        n -= k;
    }
    return 0;
}

int completion_option(struct buf *out, const struct opt *o)
{
    struct buf words = {0};
    int bad = 0;
    if (o->type == OPT_FLAG)
        return 0;
    if (o->type == OPT_FLAG_FILE)
        bad = buf_puts(&words, "?");
    if (o->type == OPT_CHOICE)
        bad = put_parts(&words, o->choices, strlen(o->choices), true);
    else if (opt_arg(o) && !bad)
        bad = put_parts(&words, opt_arg(o), strlen(opt_arg(o)), false);
    bad = bad || buf_puts(out, words.len ? words.data : "-");
    buf_free(&words);
    return bad ? -1 : 0;
}

int completion_argument(struct buf *out, const struct verb *v)
{
    struct buf words = {0};
    int bad = 0;
    /* "-a A [PROMPT...]": an option and its value are no argument */
    for (const char *at = v->args; *at && !bad;) {
        size_t n = strcspn(at, " ");
        if (*at == '-') {
            at += n + (at[n] == ' ');
            n = strcspn(at, " ");
        } else {
            size_t from = at[0] == '[', to = n;
            while (to > from && strchr(".]", at[to - 1]))
                to--;
            bad = put_parts(&words, at + from, to - from, false);
        }
        at += n + (at[n] == ' ');
    }
    bad = bad || buf_puts(out, words.len ? words.data : "");
    buf_free(&words);
    return bad ? -1 : 0;
}
