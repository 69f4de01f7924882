#include "file/gguf_pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"

/* "-00001-of-00003" */
enum { PART = 15 };

static bool is_digits(const char *s, size_t n)
{
    return strspn(s, "0123456789") >= n;
}

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* Return where "-00001-of-00003" begins in a name of n bytes without ".gguf"; 0
 * if the name is not that of a part. */
static size_t find_part(const char *name, size_t n)
{
    if (n <= PART)
        return 0;
    const char *part = name + n - PART;
    return part[0] == '-' && is_digits(part + 1, 5) &&
                   memcmp(part + 6, "-of-", 4) == 0 && is_digits(part + 10, 5)
               ? n - PART
               : 0;
}

size_t gguf_stem(const char *name)
{
    size_t n = strlen(name), part;
    if (!ends_in(name, ".gguf") || n == 5 ||
        strncasecmp(base_of(name), "mmproj", 6) == 0)
        return 0;
    n -= 5;
    part = find_part(name, n);
    if (!part)
        return n;
    return memcmp(name + part + 1, "00001", 5) == 0 ? part : 0;
}

size_t gguf_part_name(char *out, size_t size, const char *name, size_t number)
{
    size_t part =
        ends_in(name, ".gguf") ? find_part(name, strlen(name) - 5) : 0;
    if (!part)
        return 0;
    snprintf(out, size, "%.*s-%05zu%s", (int)part, name, number % 100000,
             name + part + 6);
    return strtoul(name + part + 1, NULL, 10);
}

bool gguf_part_before(const char *a, const char *b)
{
    size_t n = strlen(b), part = ends_in(b, ".gguf") ? find_part(b, n - 5) : 0;
    return part && strlen(a) == n && memcmp(a, b, part + 1) == 0 &&
           is_digits(a + part + 1, 5) &&
           strcmp(a + part + 6, b + part + 6) == 0 &&
           memcmp(a + part + 1, b + part + 1, 5) < 0;
}

/* How well a file fits. */
enum fit { NO_FIT, FITS_OTHER, FITS };

/* "UD-Q4_K_M" is a type of its own, which "Q4_K_M" means only if the plain type
 * is not there. */
static enum fit fit_of(const char *name, const char *quant)
{
    size_t n = gguf_stem(name), m = quant ? strlen(quant) : 0;
    if (n == 0 || !quant)
        return n > 0 ? FITS : NO_FIT;
    if (m == 0 || n <= m || !strchr("-._/", name[n - m - 1]) ||
        strncasecmp(name + n - m, quant, m) != 0)
        return NO_FIT;
    return n > m + 3 && strncasecmp(name + n - m - 3, "UD-", 3) == 0
               ? FITS_OTHER
               : FITS;
}

/* Names that count, with commas, cut at n bytes. */
static void list_files(char *out, size_t n, const char *const *names,
                       size_t n_names)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n_names && at < n; i++) {
        if (gguf_stem(names[i]) == 0)
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
    enum fit best = NO_FIT;
    for (size_t i = 0; i < n; i++) {
        enum fit fit = fit_of(names[i], quant);
        if (fit == NO_FIT || fit < best)
            continue;
        found = fit > best ? 1 : found + 1;
        best = fit;
        at = i;
        if (!e && best == FITS && found > 1)
            return -1; /* nothing can change that */
    }
    if (found == 1)
        return (int)at;
    if (!e)
        return -1;
    list_files(all, sizeof all, names, n);
    const char *shown = ERR_SHOW(all, strlen(all));
    if (!quant)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %zu GGUF files: name a file, or its type behind a "
                       "colon, as in ID:Q4_K_M: %s",
                       dir, found, shown);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s GGUF file is of type \"%s\": there are %s", dir,
                   found ? "more than one" : "no",
                   ERR_SHOW(quant, strlen(quant)), *all ? shown : "none");
}

/* Whether a text begins like the name of a type: "Q4_K_M", "UD-IQ2_XXS". */
static bool is_type(const char *s, size_t n)
{
    static const char *const begins[] = {"Q",  "IQ",   "F",    "BF",
                                         "FP", "MXFP", "NVFP", "TQ"};
    if (n > 3 && strncasecmp(s, "UD-", 3) == 0) {
        s += 3;
        n -= 3;
    }
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t m = strlen(begins[i]);
        if (n > m && strncasecmp(s, begins[i], m) == 0 && s[m] >= '0' &&
            s[m] <= '9')
            return true;
    }
    return false;
}

size_t gguf_tag(const char *const *names, size_t n, size_t i)
{
    const char *name = names[i];
    size_t end = gguf_stem(name);
    for (size_t at = end; at > 1; at--) {
        char tag[64];
        size_t len = end - at;
        if (!strchr("-._", name[at - 1]) || !is_type(name + at, len) ||
            len >= sizeof tag)
            continue;
        memcpy(tag, name + at, len);
        tag[len] = '\0';
        if (gguf_pick(names, n, tag, "", NULL) == (int)i)
            return at;
    }
    return 0;
}

/* ---- listing --------------------------------------------------------------
 */

/* Add the files of a list, whose directory is called `in` ("": none). */
static int add_names(struct gguf_names *l, const struct dir_list *list,
                     const char *in, struct qwick_err *e)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct dir_entry *f = &list->v[i];
        char *name;
        if (f->is_dir || !ends_in(f->name, ".gguf"))
            continue;
        if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, e))
            return -1;
        if (asprintf(&name, "%s%s%s", in, *in ? "/" : "", f->name) < 0)
            return err_oom(e, strlen(in) + strlen(f->name) + 2);
        l->v[l->n++] = name;
    }
    return 0;
}

static int add_below(struct gguf_names *l, const struct dir_list *list,
                     const char *dir, struct qwick_err *e)
{
    for (size_t i = 0; i < list->n; i++) {
        struct dir_list below;
        char *path;
        if (!list->v[i].is_dir)
            continue;
        if (asprintf(&path, "%s/%s", dir, list->v[i].name) < 0)
            return err_oom(e, strlen(dir) + strlen(list->v[i].name) + 2);
        struct qwick_err why = {0};
        int rc = dir_list_read(&below, path, GGUF_MAX_BELOW, &why);
        free(path);
        if (rc && why.code == QWICK_ERR_MEMORY)
            return err_set(e, why.code, "%s", why.msg);
        if (rc)
            continue; /* an unreadable directory has no files to choose from */
        rc = add_names(l, &below, list->v[i].name, e);
        dir_list_free(&below);
        if (rc)
            return -1;
    }
    return 0;
}

int gguf_names_list(struct gguf_names *l, const struct dir_list *list,
                    const char *dir, bool below, struct qwick_err *e)
{
    *l = (struct gguf_names){0};
    if (!add_names(l, list, "", e) && (!below || !add_below(l, list, dir, e)))
        return 0;
    gguf_names_free(l);
    return -1;
}

void gguf_names_free(struct gguf_names *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (struct gguf_names){0};
}
