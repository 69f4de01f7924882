#include "base/word_distance.h"

#include <string.h>

enum { MAX_WORD = 40 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein distance plus swaps of neighbours. */
size_t word_distance(const char *a, const char *b)
{
    size_t rows[3][MAX_WORD + 1], m = strlen(a), n = strlen(b);
    if (m >= MAX_WORD || n >= MAX_WORD)
        return MAX_WORD;
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *row = rows[i % 3], *up = rows[(i + 2) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t d = up[j - 1] + (a[i - 1] != b[j - 1]);
            d = least(d, least(up[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = least(d, rows[(i + 1) % 3][j - 2] + 1);
            row[j] = d;
        }
    }
    return rows[m % 3][n];
}

void word_nearest(const char *word, const char *name, size_t *least,
                  const char **nearest)
{
    size_t d = word_distance(word, name);
    if (d >= *least)
        return;
    *least = d;
    *nearest = name;
}
