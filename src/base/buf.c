#include "base/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

int size_mul(size_t a, size_t b, size_t *out)
{
    return __builtin_mul_overflow(a, b, out) ? -1 : 0;
}

int size_add(size_t a, size_t b, size_t *out)
{
    return __builtin_add_overflow(a, b, out) ? -1 : 0;
}

static int make_room(struct buf *b, size_t n_more)
{
    size_t max = b->max && b->max < SIZE_MAX / 2 ? b->max : SIZE_MAX / 2;
    size_t need;
    if (size_add(b->len, n_more, &need) || need > max)
        return -1;
    if (b->data && need < b->cap)
        return 0;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap <= need)
        cap *= 2;
    char *p = realloc(b->data, cap);
    if (!p)
        return -1;
    b->data = p;
    b->cap = cap;
    b->data[b->len] = '\0';
    return 0;
}

int buf_reserve(struct buf *b, size_t n_more)
{
    int bad = make_room(b, n_more);
    b->failed |= bad != 0;
    return bad;
}

int buf_append(struct buf *b, const void *p, size_t n)
{
    if (buf_reserve(b, n))
        return -1;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || buf_reserve(b, (size_t)n))
        return -1;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

static int put_escaped(struct buf *b, unsigned char c)
{
    switch (c) {
    case '"':
        return buf_puts(b, "\\\"");
    case '\\':
        return buf_puts(b, "\\\\");
    case '\n':
        return buf_puts(b, "\\n");
    case '\r':
        return buf_puts(b, "\\r");
    case '\t':
        return buf_puts(b, "\\t");
    default:
        return buf_printf(b, "\\u%04x", c);
    }
}

int buf_json_string(struct buf *b, const char *p, size_t n)
{
    size_t len0 = b->len;
    size_t start = 0, i = 0;
    if (buf_putc(b, '"'))
        return -1;
    while (i < n) {
        unsigned char c = (unsigned char)p[i];
        size_t bad = 1;
        size_t len = utf8_decode(p + i, n - i, NULL, &bad);
        /* DEL is escaped as well: the line may be read on a terminal */
        if (len && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) {
            i += len;
            continue;
        }
        if (buf_append(b, p + start, i - start) ||
            (len ? put_escaped(b, c) : buf_append(b, "\xEF\xBF\xBD", 3)))
            goto fail;
        i += len ? 1 : bad;
        start = i;
    }
    if (buf_append(b, p + start, n - start) || buf_putc(b, '"'))
        goto fail;
    return 0;
fail:
    b->len = len0;
    b->data[len0] = '\0';
    return -1;
}

int buf_json_cstr(struct buf *b, const char *s)
{
    return buf_json_string(b, s, strlen(s));
}

/* Append a number that printf has written, with "." in place of the locale's
 * decimal point, which may have several bytes. */
static int append_number(struct buf *b, char *s)
{
    size_t n = 0;
    for (const char *c = s; *c; c++) {
        if (strchr("0123456789+-e", *c))
            s[n++] = *c;
        else if (n > 0 && s[n - 1] != '.')
            s[n++] = '.';
    }
    return buf_append(b, s, n);
}

int buf_json_double(struct buf *b, double v)
{
    if (!isfinite(v))
        return buf_puts(b, "null");
    char s[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    return append_number(b, s);
}

int buf_json_float(struct buf *b, float v)
{
    if (!isfinite(v))
        return buf_puts(b, "null");
    char s[40];
    /* six digits are exact for each decimal number that has no more */
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)v);
        if (strtof(s, NULL) == v)
            break;
    }
    return append_number(b, s);
}

char *buf_take(struct buf *b, size_t *n)
{
    char *p = b->data;
    if (n)
        *n = b->len;
    *b = (struct buf){.max = b->max};
    return p;
}

void buf_free_part(struct buf *part, struct buf *whole)
{
    whole->failed |= part->failed;
    buf_free(part);
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.max = b->max};
}
