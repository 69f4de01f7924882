/* JSON as Python's json.dumps writes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/json_int.h"

struct decimal {
    char digits[20]; /* d1 d2 …, no leading zero */
    int n;
    int exp10; /* of d1 */
};

static void decimal_add_one(struct decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    if (i >= 0) {
        d->digits[i]++;
    } else {
        d->digits[0] = '1'; /* 999 to 1000: one more digit before the point */
        d->exp10++;
    }
}

static bool decimal_reads_as(const struct decimal *d, double v)
{
    char text[40];
    double back;
    snprintf(text, sizeof text, "%.*se%d", d->n, d->digits,
             d->exp10 - d->n + 1);
    return json_read_double(text, &back) == 0 && back == v;
}

/* The decimal of n digits that is next to v, or if that one does not read
 * back, the one above: next to a power of two the interval that rounds to v is
 * wider above than below. */
static bool decimal_try(struct decimal *d, double v, int n)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", n - 1, v);
    d->n = 0;
    const char *s = text;
    for (; *s && *s != 'e'; s++) /* the separator is the locale's */
        if (*s >= '0' && *s <= '9' && d->n < n)
            d->digits[d->n++] = *s;
    d->exp10 = *s ? (int)strtol(s + 1, NULL, 10) : 0;
    if (decimal_reads_as(d, v))
        return true;
    decimal_add_one(d);
    return decimal_reads_as(d, v);
}

/* The fewest digits that read back as v > 0, the nearest such. */
static void decimal_shortest(struct decimal *d, double v)
{
    /* 15 digits or fewer are unique for normal numbers, so the 15 digits
     * without their trailing zeros are the shortest. */
    int n = v < 2.2250738585072014e-308 ? 1 : 15;
    while (n < 17 && !decimal_try(d, v, n))
        n++;
    if (n == 17)
        decimal_try(d, v, n);
    while (d->n > 1 && d->digits[d->n - 1] == '0')
        d->n--;
}

static int dump_double(struct buf *out, const char *s)
{
    double v;
    if (json_read_double(s, &v))
        return -1;
    if (isnan(v))
        return buf_puts(out, "NaN");
    if (signbit(v) && buf_putc(out, '-'))
        return -1;
    v = fabs(v);
    if (isinf(v))
        return buf_puts(out, "Infinity");
    if (v == 0)
        return buf_puts(out, "0.0");
    struct decimal d;
    decimal_shortest(&d, v);
    if (d.exp10 < -4 || d.exp10 >= 16) {
        char sign = d.exp10 < 0 ? '-' : '+';
        int x = d.exp10 < 0 ? -d.exp10 : d.exp10;
        if (d.n == 1)
            return buf_printf(out, "%ce%c%02d", d.digits[0], sign, x);
        return buf_printf(out, "%c.%.*se%c%02d", d.digits[0], d.n - 1,
                          d.digits + 1, sign, x);
    }
    if (d.exp10 < 0)
        return buf_printf(out, "0.%.*s%.*s", -d.exp10 - 1, "000", d.n,
                          d.digits);
    int whole = d.exp10 + 1; /* digits before the point */
    if (d.n <= whole)
        return buf_printf(out, "%.*s%.*s.0", d.n, d.digits, whole - d.n,
                          "000000000000000");
    return buf_printf(out, "%.*s.%.*s", whole, d.digits, d.n - whole,
                      d.digits + whole);
}

static int dump_number(struct buf *out, const struct json_value *v)
{
    if (!json_is_integer(v))
        return dump_double(out, v->str);
    if (strcmp(v->str, "-0") == 0) /* an int in Python */
        return buf_putc(out, '0');
    return buf_append(out, v->str, v->len);
}

static int dump_string(struct buf *out, const struct json_value *v)
{
    const char *s = v->str, *end = s + v->len;
    if (buf_putc(out, '"'))
        return -1;
    while (s < end) {
        const char *run = s;
        while (s < end && (unsigned char)*s >= 0x20 && *s != '"' && *s != '\\')
            s++;
        if (s > run && buf_append(out, run, (size_t)(s - run)))
            return -1;
        if (s == end)
            break;
        static const char plain[] = "\"\\\n\r\t\f\b",
                          short_form[] = "\"\\nrtfb";
        unsigned char c = (unsigned char)*s++;
        const char *at = c ? strchr(plain, c) : NULL;
        int rc = at ? buf_printf(out, "\\%c", short_form[at - plain])
                    : buf_printf(out, "\\u%04x", c);
        if (rc)
            return -1;
    }
    return buf_putc(out, '"');
}

/* Recursion is as deep as the tree, at most JSON_MAX_DEPTH. */
int json_dump_python(struct buf *out, const struct json_value *v)
{
    size_t before = out->len;
    int rc = 0;
    switch (v->type) {
    case JSON_NULL:
        rc = buf_puts(out, "null");
        break;
    case JSON_BOOL:
        rc = buf_puts(out, v->boolean ? "true" : "false");
        break;
    case JSON_NUMBER:
        rc = dump_number(out, v);
        break;
    case JSON_STRING:
        rc = dump_string(out, v);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT: {
        bool object = v->type == JSON_OBJECT;
        rc = buf_putc(out, object ? '{' : '[');
        for (size_t i = 0; i < v->len && !rc; i++) {
            if (i > 0)
                rc = buf_puts(out, ", ");
            if (!rc && object)
                rc = dump_string(out, &v->keys[i]) || buf_puts(out, ": ");
            if (!rc)
                rc = json_dump_python(out, &v->items[i]);
        }
        if (!rc)
            rc = buf_putc(out, object ? '}' : ']');
        break;
    }
    }
    if (rc && out->data) {
        out->len = before;
        out->data[before] = '\0';
    }
    return rc ? -1 : 0;
}
