/* Records of CSV (RFC 4180) and of TSV, read line by line, and fields of CSV to
 * write. A field in double quotes may hold the delimiter, line ends, and "" for
 * a quote. Line ends are LF or CRLF. Stricter than most readers: what could be
 * read in two ways is an error. */
#ifndef FILE_CSV_H
#define FILE_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* A kind of file. */
struct csv_dialect {
    char delimiter;
    bool inner_quotes; /* a quote inside a field without quotes is text */
};
extern const struct csv_dialect csv_comma, csv_tab;

struct csv_field {
    size_t at, n; /* bytes of csv.text; a NUL follows them */
};

/* A record, and the state of the reader. All zeros but dialect is the start. */
struct csv {
    const struct csv_dialect *dialect;
    struct buf text;     /* values of the fields */
    struct csv_field *v; /* [n] */
    size_t n, cap;
    bool open;     /* the record goes on in the next line */
    size_t column; /* of the field that is read, from 1 */
};

/* Read the next line, without its LF. If the last call left the record open,
 * the line continues it. Otherwise it begins a new record, and the fields of
 * the last one are lost. A CR at the end of a record is dropped. A fault ends
 * the record. Returns 0, or -1 with *e set: QWICK_ERR_USAGE for a fault, which
 * names the column, or out of memory. */
int csv_line(struct csv *c, const char *line, size_t n, struct qwick_err *e);

/* The input has ended while the record was open: set *e, and return -1. */
int csv_open_end(struct csv *c, struct qwick_err *e);

/* Return the value of field i, which ends with a NUL. */
const char *csv_value(const struct csv *c, size_t i);

void csv_free(struct csv *c);

/* Append a field of CSV: with quotes only if its value needs them, or in any
 * case. out->failed is set when memory runs out. */
void csv_put(struct buf *out, const char *s, size_t n);
void csv_put_quoted(struct buf *out, const char *s, size_t n);

#endif
