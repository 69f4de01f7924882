#include "cli/chat/chat_draw.h"

#include <wchar.h>

#include "base/utf8.h"
#include "cli/io/escape.h"

/* A walk over the cells of a line. A row that is full ends only when something
 * follows it. */
struct walk {
    size_t columns, row, col;
    size_t cursor_row, cursor_col;
    struct buf *out; /* NULL: measure only */
    size_t top, end; /* the rows that go to out */
    struct buf *escape;
};

size_t chat_columns(uint32_t cp)
{
    int n = wcwidth((wchar_t)cp);
    return n < 0 ? 1 : (size_t)n;
}

static void walk_next_row(struct walk *w)
{
    w->row++;
    w->col = 0;
    if (w->out && w->row > w->top && w->row < w->end)
        buf_puts(w->out, "\r\n");
}

static void end_full_row(struct walk *w)
{
    if (w->col >= w->columns)
        walk_next_row(w);
}

/* Put a character of this width. */
static void walk_put(struct walk *w, const char *s, size_t n, size_t width)
{
    if (width > w->columns) {
        s = "?";
        n = width = 1;
    }
    if (w->col + width > w->columns)
        walk_next_row(w);
    if (w->out && w->row >= w->top && w->row < w->end)
        buf_append(w->out, s, n);
    w->col += width;
}

static void walk_text(struct walk *w, const char *s, size_t n, size_t cursor)
{
    for (size_t at = 0; at <= n;) {
        struct buf *e = w->escape;
        uint32_t cp = 0;
        if (at == cursor) {
            end_full_row(w);
            w->cursor_row = w->row;
            w->cursor_col = w->col;
        }
        if (at == n)
            return;
        size_t k = utf8_decode(s + at, n - at, &cp, NULL);
        if (s[at] == '\n') {
            end_full_row(w);
            walk_next_row(w);
        } else if (k && !escape_needs(cp, ESCAPE_TEXT)) {
            walk_put(w, s + at, k, chat_columns(cp));
        } else {
            e->len = 0;
            escape_append(e, s + at, k ? k : 1, ESCAPE_TEXT, "");
            for (size_t i = 0; i < e->len; i++)
                walk_put(w, e->data + i, 1, 1);
        }
        at += k ? k : 1;
    }
}

static void walk_line(struct walk *w, const struct chat_view *v)
{
    walk_text(w, v->prompt, v->n_prompt, SIZE_MAX);
    walk_text(w, v->text, v->n_text, v->cursor);
}

/* Choose the first row that is shown: the old one if the cursor is then visible
 * and no row at the end stays free. */
static size_t choose_top(size_t top, size_t cursor, size_t last, size_t rows)
{
    size_t most = last + 1 > rows ? last + 1 - rows : 0;
    if (top > most)
        top = most;
    if (cursor < top)
        top = cursor;
    return cursor - top < rows ? top : cursor - rows + 1;
}

int chat_draw(struct chat_draw *d, const struct chat_view *v, struct buf *out)
{
    struct buf escape = {0};
    struct walk size = {.columns = v->columns ? v->columns : 1,
                        .escape = &escape},
                w = size;
    size_t rows = v->rows ? v->rows : 1;
    walk_line(&size, v);
    size_t top = choose_top(d->top, size.cursor_row, size.row, rows);
    size_t last = size.row - top < rows ? size.row : top + rows - 1;
    w.out = out;
    w.top = top;
    w.end = last + 1;
    /* Without wrapping, a character that is wider on this terminal than here
     * does no more than hide another one. */
    buf_puts(out, "\033[?7l\r");
    if (d->row)
        buf_printf(out, "\033[%zuA", d->row);
    buf_puts(out, "\033[J");
    walk_line(&w, v);
    if (last > size.cursor_row)
        buf_printf(out, "\033[%zuA", last - size.cursor_row);
    buf_puts(out, "\r");
    if (size.cursor_col)
        buf_printf(out, "\033[%zuC", size.cursor_col);
    buf_puts(out, "\033[?7h");
    buf_free_part(&escape, out);
    if (out->failed)
        return -1;
    *d = (struct chat_draw){size.cursor_row - top, top};
    return 0;
}
