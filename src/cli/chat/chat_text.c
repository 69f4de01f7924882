#include "cli/chat/chat_text.h"

#include <string.h>

#include "cli/chat/chat_command.h"

static const char quotes[] = "\"\"\"";
enum { N_QUOTES = sizeof(quotes) - 1 };

/* Whether a line is three quotes; blanks may follow. */
static bool is_quotes(const char *s, size_t n)
{
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    return n == N_QUOTES && memcmp(s, quotes, n) == 0;
}

/* The last line of a text. */
static const char *last_line(const char *s, size_t n)
{
    const char *newline = n ? memrchr(s, '\n', n) : NULL;
    return newline ? newline + 1 : s;
}

/* Add a line inside a block, which it may end. */
static int add_to_block(struct chat_text *t, const char *line, size_t n,
                        bool *complete)
{
    const char *last = last_line(line, n);
    *complete = is_quotes(last, (size_t)(line + n - last));
    if (*complete)
        n = last > line ? (size_t)(last - line) - 1 : 0;
    t->open = !*complete;
    if (*complete && last == line)
        return 0;
    bool bad = (t->n_lines && buf_putc(&t->text, '\n')) ||
               buf_append(&t->text, line, n);
    t->n_lines++;
    return bad ? -1 : 0;
}

int chat_text_add(struct chat_text *t, const char *line, size_t n,
                  bool *complete)
{
    const char *newline = n ? memchr(line, '\n', n) : NULL;
    size_t first = newline ? (size_t)(newline - line) : n;
    *complete = false;
    if (!t->open && is_quotes(line, first)) {
        t->block = true;
        t->open = !newline;
        if (t->open)
            return 0;
        return add_to_block(t, newline + 1, n - first - 1, complete);
    }
    if (t->block)
        return add_to_block(t, line, n, complete);
    t->open = n && line[n - 1] == '\\';
    *complete = !t->open;
    return buf_append(&t->text, line, n - t->open) ||
                   (t->open && buf_putc(&t->text, '\n'))
               ? -1
               : 0;
}

/* Whether the text of a block, typed as it is, would be read in another way. */
static bool needs_quotes(const struct buf *b)
{
    const char *newline = memchr(b->data, '\n', b->len);
    size_t first = newline ? (size_t)(newline - b->data) : b->len;
    return b->data[b->len - 1] == '\\' || is_quotes(b->data, first) ||
           chat_command_is(b->data) || chat_command_skip(b->data) > 0;
}

int chat_text_entry(const struct chat_text *t, struct buf *out)
{
    const struct buf *b = &t->text;
    if (!b->len)
        return 0;
    if (!t->block || !needs_quotes(b))
        return buf_append(out, b->data, b->len);
    return buf_printf(out, "%s\n", quotes) ||
                   buf_append(out, b->data, b->len) ||
                   buf_printf(out, "\n%s", quotes)
               ? -1
               : 0;
}

void chat_text_clear(struct chat_text *t)
{
    t->text.len = 0;
    t->n_lines = 0;
    t->open = t->block = false;
}

void chat_text_free(struct chat_text *t)
{
    buf_free(&t->text);
}
