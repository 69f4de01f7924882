#include "file/gguf_pick.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "-00001-of-00003" */
enum { PART = 15 };

static bool is_digits(const char *s, size_t n)
{
    return strspn(s, "0123456789") >= n;
}

/* Bytes of the name before ".gguf" and the number of its part; 0: a file that
 * does not count. */
static size_t stem(const char *name)
{
    size_t n = strlen(name);
    if (n <= 5 || strncasecmp(name, "mmproj", 6) == 0)
        return 0;
    n -= 5;
    if (n <= PART)
        return n;
    const char *part = name + n - PART;
    if (part[0] != '-' || !is_digits(part + 1, 5) ||
        memcmp(part + 6, "-of-", 4) != 0 || !is_digits(part + 10, 5))
        return n;
    return memcmp(part + 1, "00001", 5) == 0 ? n - PART : 0;
}

static bool fits(const char *name, const char *quant)
{
    size_t n = stem(name), m = quant ? strlen(quant) : 0;
    if (n == 0 || !quant)
        return n > 0;
    return m > 0 && n > m && strchr("-._", name[n - m - 1]) &&
           strncasecmp(name + n - m, quant, m) == 0;
}

/* Names that count, with commas, cut at n bytes. */
static void list(char *out, size_t n, const char *const *names, size_t n_names)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n_names && at < n; i++) {
        if (stem(names[i]) == 0)
            continue;
        int len = snprintf(out + at, n - at, "%s%s", at ? ", " : "", names[i]);
        at += len > 0 ? (size_t)len : 0;
    }
}

int gguf_pick(const char *const *names, size_t n, const char *quant,
              const char *dir, struct qwick_err *e)
{
    char all[ERR_SHOWN];
    size_t found = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!fits(names[i], quant))
            continue;
        found++;
        at = i;
    }
    if (found == 1)
        return (int)at;
    list(all, sizeof all, names, n);
    const char *shown = ERR_SHOW(all, strlen(all));
    if (!quant)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %zu GGUF files and no config.json: name a file, or "
                       "its type behind a colon, as in ID:Q4_K_M: %s",
                       dir, found, shown);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s GGUF file is of type \"%s\": there are %s", dir,
                   found ? "more than one" : "no",
                   ERR_SHOW(quant, strlen(quant)), *all ? shown : "none");
}
