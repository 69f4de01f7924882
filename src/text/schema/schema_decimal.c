#include "text/schema/schema_decimal.h"

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

/* ---- multiples ----------------------------------------------------------- */

enum { MAX_MULTIPLE_EXPONENT = 20 };

/* Set *out to n * 10^e. */
static int multiple_set(struct multiple *out, uint64_t n, int e)
{
    for (; n % 10 == 0; e++)
        n /= 10;
    *out = (struct multiple){(uint32_t)n, e};
    return n > UINT32_MAX || e > MAX_MULTIPLE_EXPONENT ||
           e < -MAX_MULTIPLE_EXPONENT;
}

/* The digit of 10^place. */
static int digit_at(const struct decimal *a, int place)
{
    int n_whole = (int)a->n_whole, n_frac = (int)a->n_frac;
    if (place >= n_whole || place < -n_frac)
        return 0;
    return (place >= 0 ? a->whole[n_whole - 1 - place] : a->frac[-1 - place]) -
           '0';
}

int multiple_of_decimal(struct multiple *out, const struct decimal *a)
{
    uint64_t n = 0;
    int last = -(int)a->n_frac; /* the last digit that is not 0 */
    while (digit_at(a, last) == 0)
        last++;
    for (int place = (int)a->n_whole; place >= last; place--) {
        n = n * 10 + (uint64_t)digit_at(a, place);
        if (n > UINT32_MAX)
            return 1;
    }
    return multiple_set(out, n, last);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

int multiple_common(struct multiple *out, struct multiple a, struct multiple b,
                    bool integer)
{
    const struct multiple one = {1, 0};
    if (integer && multiple_common(&a, a, one, false))
        return 1;
    *out = a.m ? a : b;
    if (!a.m || !b.m)
        return 0;
    int e = a.e < b.e ? a.e : b.e;
    uint64_t v[] = {a.m, b.m};
    for (int i = 0; i < 2; i++)
        for (int k = e; k < (i ? b.e : a.e); k++) {
            if (v[i] > UINT64_MAX / 10)
                return 1;
            v[i] *= 10;
        }
    uint64_t part = v[0] / gcd(v[0], v[1]);
    return part > UINT64_MAX / v[1] || multiple_set(out, part * v[1], e);
}

bool decimal_is_multiple(const struct decimal *a, struct multiple k)
{
    uint64_t r = 0;
    for (int place = (int)a->n_whole - 1; place >= k.e; place--)
        r = (r * 10 + (uint64_t)digit_at(a, place)) % k.m;
    for (int place = k.e - 1; place >= -(int)a->n_frac; place--)
        if (digit_at(a, place))
            return false;
    return r == 0;
}
