#include "cli/io/units.h"

#include <stdio.h>

void size_text(size_t n, const char *unit, char out[32])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    double x = (double)n;
    size_t i = 0;
    for (; x >= 999.5 && i + 1 < sizeof(prefixes) / sizeof(*prefixes); i++)
        x /= 1000;
    int digits = i == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
    snprintf(out, 32, "%.*f %s%s", digits, x, prefixes[i], unit);
}
