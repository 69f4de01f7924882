/* The values of options: integers, numbers, sizes, flags. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/opt/opt.h"

int opt_int(const char *s, int64_t *out)
{
    const char *p = s + (*s == '-');
    char *end;
    if (*p < '0' || *p > '9')
        return -1;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (*end || errno)
        return -1;
    *out = v;
    return 0;
}

static const char *digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

int opt_number(const char *s, double *out)
{
    /* checked here, because strtod takes blanks, hexadecimal and "nan"; the
     * program never calls setlocale, so the decimal point is a point */
    const char *p = s + (*s == '-');
    const char *q = digits(p);
    size_t n = (size_t)(q - p);
    if (*q == '.') {
        p = q + 1;
        q = digits(p);
        n += (size_t)(q - p);
    }
    if (n == 0)
        return -1;
    if (*q == 'e' || *q == 'E') {
        p = q + 1;
        if (*p == '-' || *p == '+')
            p++;
        q = digits(p);
        if (q == p)
            return -1;
    }
    if (*q)
        return -1;
    *out = strtod(s, NULL);
    return isfinite(*out) ? 0 : -1;
}

/* The number of bytes of a unit, or 0 if it is unknown. */
static double unit_bytes(const char *name)
{
    static const char letters[] = "KMGT";
    double bytes = 1;
    const char *at =
        *name ? strchr(letters, toupper((unsigned char)*name)) : NULL;
    if (!at)
        return 0;
    name++;
    if (strcasecmp(name, "") != 0 && strcasecmp(name, "b") != 0 &&
        strcasecmp(name, "ib") != 0)
        return 0;
    for (const char *u = letters; u <= at; u++)
        bytes *= 1024;
    return bytes;
}

int opt_size(const char *s, int64_t *out)
{
    char number[32];
    size_t n = strspn(s, "0123456789.");
    double x, unit;
    if (!s[n])
        return *s == '-' || opt_int(s, out) ? -1 : 0;
    if (n == 0 || n >= sizeof(number) || (unit = unit_bytes(s + n)) == 0)
        return -1;
    memcpy(number, s, n);
    number[n] = 0;
    /* whole numbers stay exact beyond 2^53 */
    if (opt_int(number, out) == 0)
        return __builtin_mul_overflow(*out, (int64_t)unit, out) ? -1 : 0;
    if (opt_number(number, &x) || x * unit >= 0x1p63)
        return -1;
    *out = (int64_t)(x * unit);
    return 0;
}

int opt_bool(const char *s, bool *out)
{
    static const char *const words[][2] = {
        {"off", "on"}, {"false", "true"}, {"no", "yes"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        for (int on = 0; on < 2; on++)
            if (strcasecmp(s, words[i][on]) == 0) {
                *out = on;
                return 0;
            }
    return -1;
}
