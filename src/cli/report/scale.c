#include "cli/report/scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The distance of about n ticks over `span`: 1, 2 or 5 times a power of ten. */
static double nice_step(double span, double n)
{
    double raw = span / n, ten = pow(10, floor(log10(raw)));
    double x = raw / ten;
    return ten * (x <= 1 ? 1 : x <= 2 ? 2 : x <= 5 ? 5 : 10);
}

static struct scale make_log(double lo, double hi, struct scale s)
{
    if (!(lo > 0 && isfinite(lo) && hi > 0 && isfinite(hi)) || lo > hi) {
        lo = 1;
        hi = 10;
    }
    /* to 1, 2 or 5 times a power of ten, or to a power if it is many of them */
    double ten = pow(10, floor(log10(lo))), x = lo / ten;
    s.lo = ten * (x < 2 ? 1 : x < 5 ? 2 : 5);
    ten = pow(10, floor(log10(hi)));
    x = hi / ten;
    s.hi = ten * (x <= 1 ? 1 : x <= 2 ? 2 : x <= 5 ? 5 : 10);
    if (s.hi <= s.lo)
        s.hi = 10 * s.lo;
    return s;
}

struct scale scale_make(double lo, double hi, bool log, double a, double b)
{
    struct scale s = {.log = log, .a = a, .b = b};
    if (log)
        return make_log(lo, hi, s);
    if (!isfinite(lo) || !isfinite(hi) || lo > hi || hi - lo > 1e300) {
        lo = 0;
        hi = 1;
    }
    if (lo > 0 && lo < 0.6 * hi)
        lo = 0;
    if (hi <= lo) { /* one value, in the middle */
        double room = lo != 0 ? fabs(lo) * 0.1 : 1;
        lo -= room;
        hi += room;
    }
    double step = nice_step(hi - lo, 5);
    s.lo = floor(lo / step + 1e-9) * step;
    s.hi = ceil(hi / step - 1e-9) * step;
    return s;
}

double scale_at(const struct scale *s, double v)
{
    double share = s->log ? (v > 0 ? log(v / s->lo) / log(s->hi / s->lo) : 0)
                          : (v - s->lo) / (s->hi - s->lo);
    if (!(share > 0)) /* NAN, too */
        share = 0;
    return s->a + (s->b - s->a) * fmin(share, 1);
}

static size_t log_ticks(const struct scale *s, double out[SCALE_TICKS])
{
    static const double few[] = {1, 2, 5};
    double decades = log10(s->hi / s->lo);
    /* at most 9 powers */
    int every = decades > 8 ? (int)ceil(decades / 8) : 1;
    size_t per = decades <= 3 ? 3 : 1, n = 0;
    for (int e = (int)floor(log10(s->lo) + 1e-9); n < SCALE_TICKS; e += every) {
        if (pow(10, e) > s->hi * (1 + 1e-9))
            break;
        for (size_t i = 0; i < per && n < SCALE_TICKS; i++) {
            double v = few[i] * pow(10, e);
            if (v >= s->lo * (1 - 1e-9) && v <= s->hi * (1 + 1e-9))
                out[n++] = v;
        }
    }
    return n;
}

size_t scale_ticks(const struct scale *s, double out[SCALE_TICKS])
{
    size_t n = 0;
    if (s->log)
        return log_ticks(s, out);
    double step = nice_step(s->hi - s->lo, 5);
    for (; n < SCALE_TICKS; n++) {
        /* the first multiple that is not below lo */
        double v = (ceil(s->lo / step - 1e-6) + (double)n) * step;
        if (v > s->hi + step * 1e-6)
            break;
        out[n] = fabs(v) < step * 1e-6 ? 0 : v;
    }
    return n;
}

void scale_label(const struct scale *s, double tick, char out[SCALE_TEXT])
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
    size_t u = 0;
    /* a linear axis has one unit, a logarithmic one a unit for each tick */
    double most = s->log ? fabs(tick) : fmax(fabs(s->lo), fabs(s->hi));
    while (u < 3 && most < 9.9999 * units[u].unit &&
           !(s->log && most >= 0.9999 * units[u].unit && u < 2))
        u++;
    double unit = units[u].unit;
    double step = s->log ? fabs(tick) : nice_step(s->hi - s->lo, 5);
    int decimals = step > 0 ? (int)ceil(-log10(step / unit) - 1e-9) : 0;
    if (decimals < 0)
        decimals = 0;
    if (tick == 0)
        snprintf(out, SCALE_TEXT, "0");
    else if (decimals > 5)
        snprintf(out, SCALE_TEXT, "%.4g", tick);
    else
        snprintf(out, SCALE_TEXT, "%.*f%s", decimals, tick / unit,
                 units[u].name);
}

/* Put commas between thousands of the integer in text. */
static void group(char text[SCALE_TEXT])
{
    size_t n = strlen(text);
    for (size_t i = 3; i < n - (*text == '-') && n + 1 < SCALE_TEXT; i += 4) {
        char *at = text + n - i;
        memmove(at + 1, at, i + 1);
        *at = ',';
        n++;
    }
}

void scale_number(double v, char out[SCALE_TEXT])
{
    double x = fabs(v);
    if (!isfinite(v))
        snprintf(out, SCALE_TEXT, "-");
    else if (x >= 1e15 || (x > 0 && x < 1e-4))
        snprintf(out, SCALE_TEXT, "%.2e", v);
    else if (x >= 99.95) {
        snprintf(out, SCALE_TEXT, "%.0f", v);
        group(out);
    } else {
        /* half a unit of the third digit may round up to the next power */
        int decimals = x > 0 ? 2 - (int)floor(log10(x * 1.00051)) : 2;
        snprintf(out, SCALE_TEXT, "%.*f", decimals, v);
    }
}
