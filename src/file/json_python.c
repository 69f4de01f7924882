/* JSON as Python's json module writes it: NaN, Infinity and -Infinity are
 * numbers. Each of them is a gap in the text for the strict reader. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "file/json_int.h"

static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
enum { N_WORDS = sizeof words / sizeof *words };

/* The bytes of the word at text[i], or 0. It must be a value of its own: the
 * strict reader refuses it elsewhere. */
static size_t word_at(const char *text, size_t n, size_t i)
{
    static const char before[] = ":,[ \t\r\n", after[] = ",]} \t\r\n";
    for (size_t k = 0; k < N_WORDS; k++) {
        size_t len = strlen(words[k]);
        if (n - i >= len && memcmp(text + i, words[k], len) == 0 &&
            (i == 0 || memchr(before, text[i - 1], sizeof before - 1)) &&
            (n - i == len || memchr(after, text[i + len], sizeof after - 1)))
            return len;
    }
    return 0;
}

/* The position after the string that begins at text[i]. */
static size_t skip_string(const char *text, size_t n, size_t i)
{
    for (i++; i < n && text[i] != '"'; i++)
        i += text[i] == '\\';
    return i + 1;
}

static int find_words(const char *text, size_t n, struct json_gap **gaps,
                      size_t *n_gaps, struct qwick_err *e)
{
    size_t cap = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        if (text[i] == '"') {
            i = skip_string(text, n, i) - 1;
            continue;
        }
        if ((text[i] != 'N' && text[i] != 'I' && text[i] != '-') ||
            !(len = word_at(text, n, i)))
            continue;
        if (ARRAY_RESERVE(*gaps, cap, *n_gaps + 1, e))
            return -1;
        (*gaps)[(*n_gaps)++] = (struct json_gap){i, i + len};
        i += len - 1;
    }
    return 0;
}

int json_parse_python(struct json_doc **out, const char *name, const char *text,
                      size_t n, enum qwick_err_code code, struct qwick_err *e)
{
    struct json_gap *gaps = NULL;
    size_t n_gaps = 0;
    bool any = n && (memmem(text, n, "NaN", 3) || memmem(text, n, "Inf", 3));
    *out = NULL;
    int rc = any ? find_words(text, n, &gaps, &n_gaps, e) : 0;
    if (!rc)
        rc = json_parse_around(out, name, text, n, gaps, n_gaps, code, e);
    free(gaps);
    return rc;
}
