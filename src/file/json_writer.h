/* Writes JSON value by value. The writer adds commas and escapes; the caller
 * must nest objects and arrays correctly. */
#ifndef FILE_JSON_WRITER_H
#define FILE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "file/json.h"

struct json_writer {
    struct buf *out; /* borrowed */
    bool comma;      /* the next value needs a comma before it */
    bool failed;     /* out of memory; later calls do nothing */
    unsigned depth;  /* open objects and arrays, at most 64 */
    uint64_t arrays; /* bit i: the one at depth i is an array */
};

/* Make a writer that appends to out. If out already has text, the text must be
 * complete values of the array that the writer continues. */
struct json_writer json_writer(struct buf *out);

/* Begin a line: a writer that appends to out, and the object that is the
 * line. */
struct json_writer jw_line(struct buf *out);
/* Close all that is open, and end the line. The next value begins a new line,
 * without a comma. Returns jw_status. */
int jw_end_line(struct json_writer *w);

/* Each function below writes one value. key is the member's name in an object;
 * it is NULL in an array and at the top. They return no status: call jw_status
 * once at the end. */

void jw_object(struct json_writer *w, const char *key);
void jw_end_object(struct json_writer *w);
void jw_array(struct json_writer *w, const char *key);
void jw_end_array(struct json_writer *w);

void jw_null(struct json_writer *w, const char *key);
void jw_bool(struct json_writer *w, const char *key, bool v);
void jw_int(struct json_writer *w, const char *key, int64_t v);
void jw_uint(struct json_writer *w, const char *key, uint64_t v);
/* Write the fewest digits that read back equal; null if v is not finite. */
void jw_double(struct json_writer *w, const char *key, double v);
/* Write an array of floats [n], each with the fewest digits that read back equal
 * as a float. */
void jw_floats(struct json_writer *w, const char *key, const float *v,
               size_t n);
/* Write a string. Invalid UTF-8 becomes U+FFFD. */
void jw_string(struct json_writer *w, const char *key, const char *s, size_t n);
/* Write a string, or null if s is NULL. */
void jw_cstr(struct json_writer *w, const char *key, const char *s);
/* Write the text of a buffer, which may be empty. */
void jw_buf(struct json_writer *w, const char *key, const struct buf *text);
/* Write a number, or null for 0, which stands for unknown. The double has so
 * many digits: more would change from run to run. */
void jw_known_uint(struct json_writer *w, const char *key, uint64_t v);
void jw_known_double(struct json_writer *w, const char *key, double v,
                     int digits);
/* Write s[0..n), which is JSON already: one value, or several values of an
 * array with commas between them. With n 0 nothing is written, not even the
 * key. */
void jw_raw(struct json_writer *w, const char *key, const char *s, size_t n);
/* Write a parsed value; see json_dump_python. */
void jw_value(struct json_writer *w, const char *key,
              const struct json_value *v);

/* Write only the name of a member; it may contain NUL. The next call writes the
 * value, with key NULL. */
void jw_key(struct json_writer *w, const char *s, size_t n);

/* Return 0, or -1 when memory ran out and the text is incomplete. */
int jw_status(const struct json_writer *w);

#endif
