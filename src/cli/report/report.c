#include "cli/report/report.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/io/units.h"
#include "cli/report/scale.h"
#include "file/csv.h"

/* ---- values ------------------------------------------------------------- */

static int put_number(struct buf *b, const struct fact *f,
                      enum report_format form)
{
    char text[SCALE_TEXT];
    const char *unit = f->unit ? f->unit : "", *blank = *unit == '%' ? "" : " ";
    if (form == REPORT_CSV)
        return buf_printf(b, "%.*f", f->csv_decimals, f->real);
    if (!*unit || (form == REPORT_TEXT && *blank) ||
        (form == REPORT_HTML && !isfinite(f->real)))
        blank = unit = "";
    if (form != REPORT_HTML)
        return buf_printf(b, "%.*f%s%s", f->decimals, f->real, blank, unit);
    scale_number(f->real, text);
    return buf_printf(b, "%s%s%s", text, blank, unit);
}

int report_name(struct buf *b, const char *s)
{
    size_t n = strlen(s), i = 0;
    while (i < n && (unsigned char)s[i] > 31 && s[i] != 127)
        i++;
    return i == n && utf8_valid(s, n) == n ? buf_puts(b, s)
                                           : buf_json_string(b, s, n);
}

/* A value in a table. */
static int put_cell(struct buf *b, const struct fact *f,
                    enum report_format form)
{
    char size[32];
    if (f->unknown || (f->digits && !(f->real > 0)))
        return buf_putc(b, '-');
    switch (f->type) {
    case FACT_TEXT:
    case FACT_NAME:
        if (f->text && form == REPORT_CSV) {
            csv_put_quoted(b, f->text, strlen(f->text));
            return b->failed ? -1 : 0;
        }
        if (f->text && f->type == FACT_NAME)
            return report_name(b, f->text);
        break;
    case FACT_COUNT:
        return buf_printf(b, "%zu", f->n);
    case FACT_LARGE:
    case FACT_BYTES:
        size_text(f->n, f->type == FACT_BYTES ? "B" : "", size);
        return buf_puts(b, size);
    case FACT_REAL:
        return put_number(b, f, form);
    case FACT_RANGE:
        return buf_printf(
            b, form == REPORT_MD ? "%.1f%%, %.1f%%" : "%.1f to %.1f%%",
            100 * f->real, 100 * f->most);
    case FACT_BOOL:
        return buf_puts(b, f->n ? "yes" : "no");
    case FACT_WORD:
        break;
    }
    return buf_puts(b, f->text ? f->text : "-");
}

/* ---- JSON and lines ----------------------------------------------------- */

static void put_member(struct json_writer *w, const char *key,
                       const struct fact *f)
{
    if (f->unknown) {
        jw_null(w, key);
        return;
    }
    switch (f->type) {
    case FACT_TEXT:
    case FACT_NAME:
    case FACT_WORD:
        jw_cstr(w, key, f->text);
        break;
    case FACT_COUNT:
    case FACT_LARGE:
    case FACT_BYTES:
        jw_uint(w, key, f->n);
        break;
    case FACT_REAL:
    case FACT_RANGE:
        if (f->digits)
            jw_known_double(w, key, f->real, f->digits);
        else
            jw_double(w, key, f->real);
        break;
    case FACT_BOOL:
        jw_bool(w, key, f->n);
        break;
    }
}

void report_json(struct json_writer *w, const struct fact *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (f[i].json)
            put_member(w, f[i].json, &f[i]);
}

int report_plain(struct buf *b, const struct fact *f)
{
    struct json_writer w = {.out = b};
    if (f->type == FACT_TEXT && f->text)
        return buf_puts(b, f->text);
    put_member(&w, NULL, f);
    return jw_status(&w);
}

int report_lines(struct buf *b, const struct fact *f, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n && !bad; i++) {
        size_t start = b->len;
        bad |= buf_printf(b, "%-18s ", f[i].json);
        for (char *s = b->data + start; !bad && *s; s++)
            *s = *s == '_' ? ' ' : *s;
        if (f[i].type == FACT_LARGE || f[i].type == FACT_BYTES)
            bad |= buf_printf(b, "%zu (", f[i].n);
        bad |= f[i].type == FACT_REAL ? buf_printf(b, "%g", f[i].real)
                                      : put_cell(b, &f[i], REPORT_TEXT);
        if (f[i].type == FACT_LARGE || f[i].type == FACT_BYTES)
            bad |= buf_putc(b, ')');
        bad |= buf_putc(b, '\n');
    }
    return bad ? -1 : 0;
}

/* ---- tables ------------------------------------------------------------- */

/* The name of the column in a format; NULL: it is not there. */
static const char *column_name(const struct fact *f, enum report_format form)
{
    switch (form) {
    case REPORT_TEXT:
        return f->width ? f->title : NULL;
    case REPORT_MD:
        return f->html ? f->title : NULL;
    case REPORT_HTML:
        return f->html;
    case REPORT_CSV:
        return f->csv;
    case REPORT_JSON:
        break;
    }
    return NULL;
}

/* What is around names and cells, and between them. */
static const struct {
    const char *head[2], *cell[2], *between;
} marks[] = {
    [REPORT_TEXT] = {{"", ""}, {"", ""}, " "},
    [REPORT_MD] = {{"| ", " "}, {"| ", " "}, ""},
    [REPORT_CSV] = {{"", ""}, {"", ""}, ","},
    [REPORT_HTML] = {{"<th scope=\"col\">", "</th>"}, {"<td>", "</td>"}, ""},
};

/* The number of columns of a text on a terminal. */
static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static int put_padded(struct buf *b, const char *s, int width)
{
    int pad = (width < 0 ? -width : width) - (int)width_of(s);
    return width < 0 ? buf_printf(b, "%s%*s", s, pad > 0 ? pad : 0, "")
                     : buf_printf(b, "%*s%s", pad > 0 ? pad : 0, "", s);
}

int report_row(struct buf *b, const struct fact *f, size_t n,
               enum report_format form, bool head)
{
    const char *const *around = head ? marks[form].head : marks[form].cell;
    struct buf cell = {0};
    bool any = false;
    int bad = 0;
    for (size_t i = 0; i < n && !bad; i++) {
        const char *name = column_name(&f[i], form);
        if (!name)
            continue;
        cell.len = 0;
        bad |= buf_puts(b, any ? marks[form].between : "");
        bad |= buf_puts(b, around[0]);
        bad |= head ? buf_puts(&cell, name) : put_cell(&cell, &f[i], form);
        if (!bad)
            bad |=
                put_padded(b, cell.data, form == REPORT_TEXT ? f[i].width : 0);
        bad |= buf_puts(b, around[1]);
        any = true;
    }
    buf_free_part(&cell, b);
    if (form == REPORT_HTML)
        return bad;
    if (form == REPORT_MD)
        bad |= buf_puts(b, head ? "|\n|" : "|");
    for (size_t i = 0; form == REPORT_MD && head && i < n; i++)
        if (column_name(&f[i], form))
            bad |= buf_puts(b, f[i].width < 0 ? "---|" : "---:|");
    return bad | buf_putc(b, '\n');
}

/* ---- tables as wide as their cells -------------------------------------- */

/* Add the names of the columns, or a row. */
static int add_row(struct report_table *t, const struct fact *f, size_t n,
                   bool head)
{
    int bad = 0;
    size_t k = 0;
    for (size_t i = 0; i < n && !bad; i++) {
        const char *name = column_name(&f[i], REPORT_TEXT);
        size_t at = t->cells.len;
        if (!name)
            continue;
        bad |= head ? buf_puts(&t->cells, name)
                    : put_cell(&t->cells, &f[i], REPORT_TEXT);
        bad |= buf_append(&t->cells, "", 1);
        if (bad)
            break;
        size_t width = width_of(t->cells.data + at);
        t->widths[k] = width > t->widths[k] ? width : t->widths[k];
        t->left[k++] = f[i].width < 0;
    }
    t->n_columns = k;
    return bad ? -1 : 0;
}

int report_table_add(struct report_table *t, const struct fact *f, size_t n)
{
    return (!t->cells.len && add_row(t, f, n, true)) || add_row(t, f, n, false)
               ? -1
               : 0;
}

int report_table_put(struct buf *b, struct report_table *t, int bad)
{
    size_t k = 0;
    for (size_t at = 0; at < t->cells.len && !bad;) {
        const char *s = t->cells.data + at;
        bool last = k + 1 == t->n_columns;
        int width = last && t->left[k] ? 0 : (int)t->widths[k];
        bad |= put_padded(b, s, t->left[k] ? -width : width);
        bad |= buf_puts(b, last ? "\n" : "  ");
        at += strlen(s) + 1;
        k = last ? 0 : k + 1;
    }
    b->failed |= bad != 0;
    buf_free_part(&t->cells, b);
    return b->failed ? -1 : 0;
}
