#include "text/grammar/schema_decimal.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"

/* The parts of a JSON number. */
struct parts {
    const char *digits; /* without the point; owned by the buffer */
    size_t n_digits, n_whole;
    int64_t exponent;
};

/* Read the exponent s[0..n), which follows the e. Huge ones become 10^9. */
static int64_t read_exponent(const char *s, size_t n)
{
    int64_t v = 0;
    bool negative = n > 0 && s[0] == '-';
    for (size_t i = n > 0 && (s[0] == '-' || s[0] == '+'); i < n; i++)
        if (v < 1000000000)
            v = v * 10 + (s[i] - '0');
    return negative ? -v : v;
}

/* Copy the digits to all and find the point. */
static int split(struct parts *p, struct buf *all, const char *s, size_t n)
{
    size_t i = 0;
    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        if (buf_putc(all, s[i]))
            return -1;
    p->n_whole = all->len;
    if (i < n && s[i] == '.')
        for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            if (buf_putc(all, s[i]))
                return -1;
    p->exponent = i < n ? read_exponent(s + i + 1, n - i - 1) : 0;
    p->digits = all->data ? all->data : "";
    p->n_digits = all->len;
    return 0;
}

/* Write the digits of 0.DIGITS * 10^point, which has no zero at either end. */
static int place_point(struct decimal *out, const char *digits, size_t n,
                       int64_t point, struct arena *mem)
{
    size_t before = point > 0 ? (size_t)point : 0;
    size_t zeros = point < 0 ? (size_t)-point : 0;
    if (point > DECIMAL_MAX_DIGITS || point < -DECIMAL_MAX_DIGITS)
        return 1;
    size_t total = before > zeros + n ? before : zeros + n;
    if (total > DECIMAL_MAX_DIGITS)
        return 1;
    char *p = arena_alloc(mem, total + 1, 1);
    if (!p)
        return -1;
    memset(p, '0', total + 1);
    memcpy(p + zeros, digits, n);
    out->whole = p;
    out->n_whole = before;
    out->frac = p + before;
    out->n_frac = total - before;
    return 0;
}

int decimal_read(struct decimal *out, const char *s, size_t n,
                 struct arena *mem)
{
    struct buf all = {0};
    struct parts p;
    size_t zeros = 0;
    int rc;
    *out = (struct decimal){.negative = n > 0 && s[0] == '-'};
    rc = split(&p, &all, s + out->negative, n - out->negative);
    if (rc == 0) {
        while (zeros < p.n_digits && p.digits[zeros] == '0')
            zeros++;
        while (p.n_digits > zeros && p.digits[p.n_digits - 1] == '0')
            p.n_digits--;
        if (zeros == p.n_digits)
            *out = (struct decimal){.whole = "", .frac = ""};
        else
            rc = place_point(out, p.digits + zeros, p.n_digits - zeros,
                             (int64_t)p.n_whole - (int64_t)zeros + p.exponent,
                             mem);
    }
    buf_free(&all);
    return rc;
}

static int compare_digits(const char *a, size_t na, const char *b, size_t nb)
{
    size_t n = na < nb ? na : nb;
    int c = n > 0 ? memcmp(a, b, n) : 0;
    return c ? c : na < nb ? -1 : na > nb;
}

/* Compare without the signs. */
static int decimal_compare_size(const struct decimal *a,
                                const struct decimal *b)
{
    if (a->n_whole != b->n_whole)
        return a->n_whole < b->n_whole ? -1 : 1;
    int c = compare_digits(a->whole, a->n_whole, b->whole, b->n_whole);
    return c ? c : compare_digits(a->frac, a->n_frac, b->frac, b->n_frac);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int c = decimal_compare_size(a, b);
    return a->negative ? -c : c;
}

bool decimal_is_zero(const struct decimal *a)
{
    return a->n_whole == 0 && a->n_frac == 0;
}

bool decimal_is_integer(const struct decimal *a)
{
    return a->n_frac == 0;
}

unsigned decimal_remainder(const struct decimal *a, unsigned m)
{
    uint64_t r = 0;
    for (size_t i = 0; i < a->n_whole; i++)
        r = (r * 10 + (uint64_t)(a->whole[i] - '0')) % m;
    return (unsigned)r;
}
