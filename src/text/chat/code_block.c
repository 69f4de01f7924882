#include "text/chat/code_block.h"

#include <string.h>

enum { TAB_STOP = 4, MIN_FENCE = 3, MAX_CLOSING_INDENT = 3 };

/* A line is text[0..n) without its "\n". */
struct text_line {
    const char *text;
    size_t n;
};

/* Return the number of bytes of blanks at the start of a line, at most up to
 * column max. *columns is set to the columns that they take. */
static size_t skip_blanks(struct text_line l, size_t max, size_t *columns)
{
    size_t i = 0;
    *columns = 0;
    for (; i < l.n && *columns < max; i++) {
        if (l.text[i] == ' ')
            ++*columns;
        else if (l.text[i] == '\t')
            *columns += TAB_STOP - *columns % TAB_STOP;
        else
            break;
    }
    return i;
}

/* Return the length of the run of character c at byte i of a line. */
static size_t run_length(struct text_line l, size_t i, char c)
{
    size_t n = 0;
    while (i + n < l.n && l.text[i + n] == c)
        n++;
    return n;
}

static bool is_blank(struct text_line l, size_t from)
{
    for (size_t i = from; i < l.n; i++)
        if (!strchr(" \t\r\n", l.text[i]) || !l.text[i])
            return false;
    return true;
}

static void try_open(struct code_block *c, struct text_line l)
{
    size_t columns, i = skip_blanks(l, SIZE_MAX, &columns);
    if (i == l.n || (l.text[i] != '`' && l.text[i] != '~'))
        return;
    size_t n = run_length(l, i, l.text[i]);
    if (n < MIN_FENCE ||
        (l.text[i] == '`' && memchr(l.text + i + n, '`', l.n - i - n)))
        return;
    c->state = CODE_BLOCK_OPEN;
    c->fence = l.text[i];
    c->n_fence = n;
    c->indent = columns;
}

static bool closes(const struct code_block *c, struct text_line l)
{
    size_t columns, i = skip_blanks(l, SIZE_MAX, &columns);
    size_t n = run_length(l, i, c->fence);
    return n >= c->n_fence && columns <= c->indent + MAX_CLOSING_INDENT &&
           is_blank(l, i + n);
}

/* Append a line of content without its indent. A tab that reaches beyond the
 * indent leaves blanks. */
static int add_content(struct code_block *c, struct text_line l, bool newline)
{
    size_t columns, i = skip_blanks(l, c->indent, &columns);
    for (; columns > c->indent; columns--)
        if (buf_putc(&c->content, ' '))
            return -1;
    return buf_append(&c->content, l.text + i, l.n - i) ||
                   (newline && buf_putc(&c->content, '\n'))
               ? -1
               : 0;
}

static int read_line(struct code_block *c, struct text_line l, bool newline)
{
    if (c->state == CODE_BLOCK_NONE)
        try_open(c, l);
    else if (closes(c, l))
        c->state = CODE_BLOCK_CLOSED;
    else
        return add_content(c, l, newline);
    return 0;
}

int code_block_feed(struct code_block *c, const char *s, size_t n)
{
    while (n > 0 && c->state != CODE_BLOCK_CLOSED) {
        const char *end = memchr(s, '\n', n);
        size_t part = end ? (size_t)(end - s) : n;
        if (buf_append(&c->line, s, part))
            return -1;
        if (!end)
            return 0;
        struct text_line l = {c->line.data ? c->line.data : "", c->line.len};
        if (read_line(c, l, true))
            return -1;
        c->line.len = 0;
        s += part + 1;
        n -= part + 1;
    }
    return 0;
}

int code_block_end(struct code_block *c, bool whole)
{
    struct text_line l = {c->line.data, c->line.len};
    if (c->state == CODE_BLOCK_CLOSED)
        return 0;
    if (l.n && read_line(c, l, false))
        return -1;
    c->line.len = 0;
    if (whole && c->state == CODE_BLOCK_OPEN)
        c->state = CODE_BLOCK_CLOSED;
    return 0;
}

bool code_block_is_empty(const struct code_block *c)
{
    return is_blank((struct text_line){c->content.data, c->content.len}, 0);
}

void code_block_free(struct code_block *c)
{
    buf_free(&c->content);
    buf_free(&c->line);
    *c = (struct code_block){0};
}
