/* JSON (RFC 8259), strict. The library behind it stays in json.c.
 *
 * Accepted: one value, white space around it, a UTF-8 byte order mark before
 * it. Refused with the byte offset: anything after the value, comments,
 * trailing commas, invalid UTF-8 or UTF-16, lone surrogates in \u escapes,
 * nesting deeper than JSON_MAX_DEPTH, and (in trees) repeated keys. */
#ifndef FILE_JSON_H
#define FILE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf;

#define JSON_MAX_DEPTH 512

/* ---- events: for large files ---- */

/* Strings are decoded (escapes resolved, NUL allowed inside) and valid for the
 * call only; numbers come as their text. Each callback returns 0 to go on, -1
 * to stop; having set its own error is its business. NULL: ignore. */
struct json_handler {
    int (*null)(void *ctx);
    int (*boolean)(void *ctx, bool v);
    int (*number)(void *ctx, const char *s, size_t n);
    int (*string)(void *ctx, const char *s, size_t n);
    int (*begin_object)(void *ctx);
    int (*key)(void *ctx, const char *s, size_t n);
    int (*end_object)(void *ctx);
    int (*begin_array)(void *ctx);
    int (*end_array)(void *ctx);
};

/* Parse text[0..n). name is for messages: "NAME: offset N: …", code is the
 * error's code. Repeated keys are the handler's to find. When a callback
 * stopped, -1 is returned and *e is left as the callback set it. */
int json_events(const char *name, const char *text, size_t n,
                enum qwick_err_code code, const struct json_handler *h,
                void *ctx, struct qwick_err *e);

/* Check that text[0..n) is JSON. Repeated keys pass. On failure *at is the
 * offset that the message names, 0 when it names none (out of memory). */
int json_check(const char *name, const char *text, size_t n,
               enum qwick_err_code code, size_t *at, struct qwick_err *e);

/* ---- trees: for small documents ---- */

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json_value {
    enum json_type type;
    bool boolean;
    const char *str; /* NUMBER: its text. STRING: decoded. NUL-terminated */
    size_t len;      /* bytes of str; or items of ARRAY, members of OBJECT */
    const struct json_value *items; /* [len], members in file order */
    const struct json_value *keys;  /* [len] JSON_STRING, OBJECT only */
};

struct json_doc;

/* Parse into a tree that lives until json_free. Time is linear in n. */
int json_parse(struct json_doc **out, const char *name, const char *text,
               size_t n, enum qwick_err_code code, struct qwick_err *e);

/* A part [begin, end) of a text: one whole object or array. */
struct json_gap {
    size_t begin, end;
};

/* json_parse without the gaps (ascending, disjoint): an empty object or array
 * stands in the place of each. Nothing in a gap is checked or read, which is
 * for callers who have read it by other means. Offsets in messages are those of
 * text. */
int json_parse_around(struct json_doc **out, const char *name, const char *text,
                      size_t n, const struct json_gap *gaps, size_t n_gaps,
                      enum qwick_err_code code, struct qwick_err *e);

const struct json_value *json_root(const struct json_doc *doc);
void json_free(struct json_doc *doc);

/* The member of an object, or NULL: no such key, or v is no object (or NULL).
 * json_get_n takes keys that may hold NUL. */
const struct json_value *json_get(const struct json_value *v, const char *key);
const struct json_value *json_get_n(const struct json_value *v, const char *key,
                                    size_t n);
bool json_is(const struct json_value *v, enum json_type t); /* NULL: false */
/* For messages: "a string", "an object" …; NULL: "missing". */
const char *json_type_name(const struct json_value *v);
/* v is a string equal to s. */
bool json_equals(const struct json_value *v, const char *s);

/* The number as an integer in [min, max]. -1 when v is no number, has a
 * fraction or exponent part, or is out of range. */
int json_int(const struct json_value *v, int64_t min, int64_t max,
             int64_t *out);
/* The number as a finite double, whatever the locale; -1 otherwise. */
int json_double(const struct json_value *v, double *out);

/* Append v as Python's json.dumps(v, ensure_ascii=False) writes it, which is
 * what the `tojson` filter of chat templates does: ", " and ": " between,
 * member order kept, integers of any size digit for digit, other numbers in
 * Python's repr of a double (2.0, 1e+16, 1e-07, Infinity). Returns 0, or -1
 * when out cannot grow. */
int json_dump_python(struct buf *out, const struct json_value *v);

#endif
