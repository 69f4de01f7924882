#include "file/csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

const struct csv_dialect csv_comma = {.delimiter = ','};
const struct csv_dialect csv_tab = {.delimiter = '\t', .inner_quotes = true};

static int fault(struct csv *c, const char *what, struct qwick_err *e)
{
    c->open = false;
    return err_usage(e, "column %zu: %s", c->column, what);
}

static int begin_field(struct csv *c, struct qwick_err *e)
{
    if (ARRAY_RESERVE(c->v, c->cap, c->n + 1, e))
        return -1;
    c->v[c->n++] = (struct csv_field){.at = c->text.len};
    c->column = c->n;
    return 0;
}

static int csv_append(struct csv *c, const char *s, size_t n,
                      struct qwick_err *e)
{
    return buf_append(&c->text, s, n) ? err_oom(e, n) : 0;
}

/* Set the field's length, and end it with a NUL. */
static int end_field(struct csv *c, struct qwick_err *e)
{
    struct csv_field *f = &c->v[c->n - 1];
    f->n = c->text.len - f->at;
    return csv_append(c, "", 1, e);
}

/* Read the rest of a field in quotes, from *s on. Leaves *s behind its closing
 * quote. The record is open if the line has none. */
static int read_quoted(struct csv *c, const char **s, const char *end,
                       struct qwick_err *e)
{
    for (;;) {
        const char *quote = memchr(*s, '"', (size_t)(end - *s));
        c->open = !quote;
        if (csv_append(c, *s, (size_t)((quote ? quote : end) - *s), e))
            return -1;
        *s = quote ? quote + 1 : end;
        if (!quote)
            return csv_append(c, "\n", 1, e);
        if (*s == end || **s != '"')
            return 0;
        if (csv_append(c, "\"", 1, e))
            return -1;
        ++*s;
    }
}

/* Read a field without quotes. */
static int read_plain(struct csv *c, const char **s, const char *end,
                      struct qwick_err *e)
{
    const char *stop = memchr(*s, c->dialect->delimiter, (size_t)(end - *s));
    size_t n = (size_t)((stop ? stop : end) - *s);
    if (!c->dialect->inner_quotes && memchr(*s, '"', n))
        return fault(c, "has a quote, so that the whole field needs quotes", e);
    if (memchr(*s, '\r', n))
        return fault(c, "has a carriage return outside quotes", e);
    if (csv_append(c, *s, n, e))
        return -1;
    *s += n;
    return 0;
}

/* The end of a line of n bytes without its CR. */
static const char *drop_cr(const char *line, size_t n)
{
    return line + (n && line[n - 1] == '\r' ? n - 1 : n);
}

/* Read fields until the end of the line. */
static int read_fields(struct csv *c, const char *s, const char *line_end,
                       struct qwick_err *e)
{
    bool quoted = c->open;
    for (;;) {
        const char *end = drop_cr(s, (size_t)(line_end - s));
        if (!quoted && begin_field(c, e))
            return -1;
        if (!quoted && s < end && *s == '"') {
            quoted = true;
            s++;
        }
        if (quoted ? read_quoted(c, &s, line_end, e)
                   : read_plain(c, &s, end, e))
            return -1;
        if (c->open)
            return 0;
        if (s < end && *s != c->dialect->delimiter)
            return fault(c, "has text after the closing quote", e);
        if (end_field(c, e))
            return -1;
        if (s >= end)
            return 0;
        s++;
        quoted = false;
    }
}

int csv_line(struct csv *c, const char *line, size_t n, struct qwick_err *e)
{
    if (!c->open) {
        c->text.len = 0;
        c->n = 0;
        c->column = 1;
    }
    if (!read_fields(c, line, line + n, e))
        return 0;
    c->open = false;
    return -1;
}

int csv_open_end(struct csv *c, struct qwick_err *e)
{
    return fault(c, "has no closing quote", e);
}

const char *csv_value(const struct csv *c, size_t i)
{
    return c->text.data + c->v[i].at;
}

void csv_free(struct csv *c)
{
    buf_free(&c->text);
    free(c->v);
    *c = (struct csv){.dialect = c->dialect};
}

void csv_put_quoted(struct buf *out, const char *s, size_t n)
{
    buf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"')
            buf_putc(out, '"');
        buf_putc(out, s[i]);
    }
    buf_putc(out, '"');
}

void csv_put(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memchr(",\"\r\n", s[i], 4)) {
            csv_put_quoted(out, s, n);
            return;
        }
    buf_append(out, s, n);
}
