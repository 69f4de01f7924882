/* Reports: rows of facts. A verb names each fact once, with its value; the
 * printers here write the same rows as JSON, as lines for people, and as tables
 * in text, Markdown, CSV and HTML. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "file/json_writer.h"

enum fact_type {
    FACT_TEXT,  /* NULL: null, "-" */
    FACT_NAME,  /* text of a file: for people, quoted unless it is plain */
    FACT_WORD,  /* text that CSV does not quote */
    FACT_COUNT, /* an integer */
    FACT_LARGE, /* a count; for people also as "596 M" */
    FACT_BYTES, /* for people also as "1.19 GB" */
    FACT_REAL,
    FACT_BOOL,
    FACT_RANGE, /* from real to most, in percent; not in JSON */
};

/* A fact. Names that are NULL leave it out of these formats. */
struct fact {
    const char *json, *csv;
    const char *title; /* in tables of text and Markdown */
    const char *html;  /* in tables of HTML; without one also not in Markdown */
    int width;         /* in tables of text: at least so wide; negative: to the
                          left; 0: not there */
    enum fact_type type;
    bool unknown; /* the value is not known: null, "-" */
    union {
        const char *text;
        size_t n;
        double real;
    };
    double most; /* the end of a range */
    int decimals, csv_decimals;
    int digits; /* of an estimate, which is unknown unless it is above 0: JSON
                   has so many; 0: a real with all */
    const char *unit; /* for people; tables of text leave it out
                         unless it is "%" */
};

/* Values of facts. */
#define AS_TEXT(v)     .type = FACT_TEXT, .text = (v)
#define AS_NAME(v)     .type = FACT_NAME, .text = (v)
#define AS_WORD(v)     .type = FACT_WORD, .text = (v)
#define AS_COUNT(v)    .type = FACT_COUNT, .n = (size_t)(v)
#define AS_LARGE(v)    .type = FACT_LARGE, .n = (v)
#define AS_BYTES(v)    .type = FACT_BYTES, .n = (v)
#define AS_RANGE(a, b) .type = FACT_RANGE, .real = (a), .most = (b)
#define AS_BOOL(v)     .type = FACT_BOOL, .n = (v)
#define AS_REAL(v, d, c) \
    .type = FACT_REAL, .real = (v), .decimals = (d), .csv_decimals = (c)
/* An estimate. More digits would change from run to run. */
#define AS_ESTIMATE(v, d) AS_REAL(v, (v) < 9.95, 0), .digits = (d)
/* A share: JSON, CSV and people get 100 times as much. */
#define AS_PERCENT(v) AS_REAL(100 * (v), 1, 3), .unit = "%"

/* A fact of lines: people get its name with blanks for underscores. */
#define FACT(name, ...)           \
    {                             \
        .json = name, __VA_ARGS__ \
    }
/* A fact of tables. */
#define CELL(j, c, t, h, w, ...)                                            \
    {                                                                       \
        .json = j, .csv = c, .title = t, .html = h, .width = w, __VA_ARGS__ \
    }

/* Write the facts as members of the object that w has open. */
void report_json(struct json_writer *w, const struct fact *f, size_t n);
/* Append a line for each fact that JSON has: its name and its value. */
int report_lines(struct buf *b, const struct fact *f, size_t n);

/* Append a text of a file or a file's name: whole if it is plain, else quoted,
 * so that no control byte and no end of line gets out. */
int report_name(struct buf *b, const char *s);
/* Append the value as JSON, but text without quotes. */
int report_plain(struct buf *b, const struct fact *f);

enum report_format {
    REPORT_TEXT,
    REPORT_MD,
    REPORT_JSON, /* not for tables */
    REPORT_CSV,
    REPORT_HTML
};

/* Append the names of the columns, or a row. Returns 0, or -1 when out of
 * memory. */
int report_row(struct buf *b, const struct fact *f, size_t n,
               enum report_format form, bool head);

/* A table of text whose columns are as wide as their widest cells. All zeros is
 * empty. */
enum { REPORT_COLUMNS = 12 };
struct report_table {
    struct buf cells; /* texts, each with a NUL */
    size_t n_columns;
    size_t widths[REPORT_COLUMNS];
    bool left[REPORT_COLUMNS];
};

/* Add a row; the first one adds the names of the columns before it. Facts are
 * not needed afterwards. */
int report_table_add(struct report_table *t, const struct fact *f, size_t n);
/* Append the table to b, and free it. bad: a row could not be added. */
int report_table_put(struct buf *b, struct report_table *t, int bad);

#endif
