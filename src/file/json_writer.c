#include "file/json_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct json_writer json_writer(struct buf *out)
{
    return (struct json_writer){.out = out, .comma = out->len > 0};
}

static void put(struct json_writer *w, const char *s)
{
    if (!w->failed && buf_puts(w->out, s))
        w->failed = true;
}

void jw_key(struct json_writer *w, const char *s, size_t n)
{
    if (w->comma)
        put(w, ",");
    if (!w->failed && buf_json_string(w->out, s, n))
        w->failed = true;
    put(w, ":");
    w->comma = false;
}

/* Write the comma and the key before a value. False: memory ran out. */
static bool begin(struct json_writer *w, const char *key)
{
    if (key)
        jw_key(w, key, strlen(key));
    else if (w->comma)
        put(w, ",");
    w->comma = true;
    return !w->failed;
}

static void literal(struct json_writer *w, const char *key, const char *s)
{
    begin(w, key);
    put(w, s);
}

/* Open an object or an array. */
static void open_nest(struct json_writer *w, const char *key, bool array)
{
    uint64_t bit = (uint64_t)1 << w->depth;
    assert(w->depth < 64);
    literal(w, key, array ? "[" : "{");
    w->arrays = array ? w->arrays | bit : w->arrays & ~bit;
    w->depth++;
    w->comma = false;
}

/* Close the innermost one, which must be of this kind. */
static void close_nest(struct json_writer *w, bool array)
{
    assert(w->depth && (w->arrays >> (w->depth - 1) & 1) == array);
    put(w, array ? "]" : "}");
    w->depth--;
    w->comma = true;
}

void jw_object(struct json_writer *w, const char *key)
{
    open_nest(w, key, false);
}

void jw_end_object(struct json_writer *w)
{
    close_nest(w, false);
}

void jw_array(struct json_writer *w, const char *key)
{
    open_nest(w, key, true);
}

void jw_end_array(struct json_writer *w)
{
    close_nest(w, true);
}

struct json_writer jw_line(struct buf *out)
{
    struct json_writer w = {.out = out};
    jw_object(&w, NULL);
    return w;
}

int jw_end_line(struct json_writer *w)
{
    while (w->depth)
        close_nest(w, w->arrays >> (w->depth - 1) & 1);
    put(w, "\n");
    w->comma = false;
    w->out->failed |= w->failed;
    return jw_status(w);
}

void jw_null(struct json_writer *w, const char *key)
{
    literal(w, key, "null");
}

void jw_bool(struct json_writer *w, const char *key, bool v)
{
    literal(w, key, v ? "true" : "false");
}

void jw_int(struct json_writer *w, const char *key, int64_t v)
{
    if (begin(w, key) && buf_printf(w->out, "%" PRId64, v))
        w->failed = true;
}

void jw_uint(struct json_writer *w, const char *key, uint64_t v)
{
    if (begin(w, key) && buf_printf(w->out, "%" PRIu64, v))
        w->failed = true;
}

void jw_double(struct json_writer *w, const char *key, double v)
{
    if (begin(w, key) && buf_json_double(w->out, v))
        w->failed = true;
}

void jw_floats(struct json_writer *w, const char *key, const float *v, size_t n)
{
    jw_array(w, key);
    for (size_t i = 0; i < n; i++)
        if (begin(w, NULL) && buf_json_float(w->out, v[i]))
            w->failed = true;
    jw_end_array(w);
}

void jw_string(struct json_writer *w, const char *key, const char *s, size_t n)
{
    if (begin(w, key) && buf_json_string(w->out, s, n))
        w->failed = true;
}

void jw_cstr(struct json_writer *w, const char *key, const char *s)
{
    if (s)
        jw_string(w, key, s, strlen(s));
    else
        jw_null(w, key);
}

void jw_buf(struct json_writer *w, const char *key, const struct buf *text)
{
    jw_string(w, key, text->data ? text->data : "", text->len);
}

void jw_known_uint(struct json_writer *w, const char *key, uint64_t v)
{
    if (v)
        jw_uint(w, key, v);
    else
        jw_null(w, key);
}

void jw_known_double(struct json_writer *w, const char *key, double v,
                     int digits)
{
    char text[32];
    snprintf(text, sizeof text, "%.*g", digits, v);
    jw_double(w, key, v > 0 ? strtod(text, NULL) : NAN);
}

void jw_raw(struct json_writer *w, const char *key, const char *s, size_t n)
{
    if (n && begin(w, key) && buf_append(w->out, s, n))
        w->failed = true;
}

void jw_value(struct json_writer *w, const char *key,
              const struct json_value *v)
{
    if (begin(w, key) && json_dump_python(w->out, v))
        w->failed = true;
}

int jw_status(const struct json_writer *w)
{
    return w->failed ? -1 : 0;
}
