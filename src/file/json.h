/* A strict JSON reader (RFC 8259).
 *
 * It accepts one value, with white space around it and a UTF-8 byte order mark
 * before it. It refuses, with the byte offset: anything after the value,
 * comments, trailing commas, invalid UTF-8 or UTF-16, lone surrogates in \u
 * escapes, nesting deeper than JSON_MAX_DEPTH, and (in trees) repeated keys. */
#ifndef FILE_JSON_H
#define FILE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf;

#define JSON_MAX_DEPTH 512

/* ---- events: for large files ---- */

/* Callbacks for the parts of a text. Strings are decoded (escapes are resolved;
 * a string may hold NUL) and valid only during the call. Numbers come as their
 * text. A callback returns 0 to go on or -1 to stop; to stop with an error, it
 * sets the error itself. NULL ignores such parts. */
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

/* Parse text[0..n) and call h's callbacks. name and code are for errors: the
 * message is "NAME: offset N: …". A handler must find repeated keys itself.
 * Returns 0 or -1. When a callback stopped, *e is as the callback left it. */
int json_events(const char *name, const char *text, size_t n,
                enum qwick_err_code code, const struct json_handler *h,
                void *ctx, struct qwick_err *e);

/* Check that text[0..n) is JSON. Repeated keys are accepted. On failure *at is
 * the offset that the message names, or 0 if it names none (out of memory). */
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
    const char *str; /* NUMBER: its text; STRING: the decoded text; both end
                        with a NUL */
    size_t len;      /* bytes of str, items of ARRAY, or members of OBJECT */
    const struct json_value *items; /* [len] items, or values of the members, in
                                       file order */
    const struct json_value *keys;  /* [len] only in OBJECT: names of the
                                       members, JSON_STRING */
};

struct json_doc;

/* Parse a text into a tree that lives until json_free. Takes time linear in
 * n. */
int json_parse(struct json_doc **out, const char *name, const char *text,
               size_t n, enum qwick_err_code code, struct qwick_err *e);

/* Parse a text from a stranger: the tree may take about max_bytes of memory (0:
 * any number). A tree of short values takes up to 60 times the bytes of its
 * text. */
int json_parse_within(struct json_doc **out, const char *name, const char *text,
                      size_t n, size_t max_bytes, enum qwick_err_code code,
                      struct qwick_err *e);

/* Parse a text as Python's json module does: NaN, Infinity and -Infinity are
 * numbers, for which json_double and json_int return -1. */
int json_parse_python(struct json_doc **out, const char *name, const char *text,
                      size_t n, enum qwick_err_code code, struct qwick_err *e);

/* A gap: the part [begin, end) of a text, which is one complete object or
 * array. */
struct json_gap {
    size_t begin, end;
};

/* Parse a text except its gaps, which ascend and do not overlap. In the tree,
 * an empty object or array replaces each gap. Nothing in a gap is checked or
 * read: the caller reads it by other means. Offsets in messages count from the
 * start of text. */
int json_parse_around(struct json_doc **out, const char *name, const char *text,
                      size_t n, const struct json_gap *gaps, size_t n_gaps,
                      enum qwick_err_code code, struct qwick_err *e);

/* Return the root of a document; NULL for NULL. */
const struct json_value *json_root(const struct json_doc *doc);
void json_free(struct json_doc *doc);

/* Return the value of a member of v. NULL if v lacks the key, is not an object,
 * or is NULL. json_get_n accepts keys that hold NUL. */
const struct json_value *json_get(const struct json_value *v, const char *key);
const struct json_value *json_get_n(const struct json_value *v, const char *key,
                                    size_t n);
/* As json_get, but NULL also for a member that is null. */
const struct json_value *json_member(const struct json_value *v,
                                     const char *key);
bool json_is(const struct json_value *v, enum json_type t); /* NULL: false */
/* Return the type's name for messages: "a string", "an object" …; NULL:
 * "missing". */
const char *json_type_name(const struct json_value *v);
/* Return whether v is a string equal to s. */
bool json_equals(const struct json_value *v, const char *s);

/* Write v to *out as an integer in [min, max]. Returns 0, or -1 when v is not a
 * number, has a fraction or an exponent, or is out of range. */
int json_int(const struct json_value *v, int64_t min, int64_t max,
             int64_t *out);
/* Write v to *out as a finite double, in any locale. Returns 0, or -1 if v is
 * not a number or not finite as a double. */
int json_double(const struct json_value *v, double *out);

/* Append v as Python's json.dumps(v, ensure_ascii=False) writes it; the
 * `tojson` filter of chat templates does the same. Separators are ", " and ":
 * ". The order of members is kept. Integers of any size keep their digits,
 * other numbers are written like Python's repr of a double (2.0, 1e+16, 1e-07,
 * Infinity). Returns 0, or -1 when out cannot grow. */
int json_dump_python(struct buf *out, const struct json_value *v);

#endif
