#include "text/bpe/charsmap.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

struct charsmap {
    const uint32_t *units; /* [n_units] */
    size_t n_units;
    const char *text; /* [n_text] replacements */
    size_t n_text;
};

/* ---- the trie ----
 *
 * The units of a node's children are at its base XOR the byte of each child. A
 * child carries that byte as its label. A node whose text is complete has its
 * value at its base. Values have bit 31 set. */

#define VALUE (1u << 31)

static bool is_leaf(uint32_t u)
{
    return u >> 8 & 1;
}

/* The base of the node with unit u at index i. */
static size_t base_of(size_t i, uint32_t u)
{
    return i ^ ((size_t)(u >> 10) << ((u & 1u << 9) >> 6));
}

/* Find the shortest beginning of p[0..n) that the map has. Returns its
 * replacement, or NULL. */
static const char *find(const struct charsmap *m, const char *p, size_t n,
                        size_t *len)
{
    size_t at = base_of(0, m->units[0]);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        at ^= c;
        if (c == 0 || at >= m->n_units)
            return NULL;
        uint32_t u = m->units[at];
        if ((u & (VALUE | 0xFF)) != c)
            return NULL;
        at = base_of(at, u);
        if (is_leaf(u)) { /* charsmap_open has checked the value */
            const char *s = m->text + (m->units[at] & ~VALUE);
            *len = strnlen(s, (size_t)(m->text + m->n_text - s));
            return s;
        }
    }
    return NULL;
}

/* ---- reading ---- */

/* Return the first node whose value is not the beginning of a character, or
 * n_units. Units that are values, or not in use, have no leaf. */
static size_t find_bad(const struct charsmap *m)
{
    for (size_t i = 0; i < m->n_units; i++) {
        uint32_t u = m->units[i];
        if (u & VALUE || !is_leaf(u))
            continue;
        size_t at = base_of(i, u);
        size_t value = at < m->n_units ? m->units[at] & ~VALUE : SIZE_MAX;
        if (value > m->n_text ||
            (value < m->n_text && (m->text[value] & 0xC0) == 0x80))
            return i;
    }
    return m->n_units;
}

int charsmap_open(struct charsmap **out, const char *name, const char *field,
                  const void *p, size_t n, struct qwick_err *e)
{
    uint32_t size = 0;
    *out = NULL;
    if (n >= 4)
        memcpy(&size, p, 4);
    size = le32toh(size);
    if (n < 4 || size == 0 || size % 4 || size > n - 4)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: a trie of %u bytes in a map of %zu", name,
                       field, (unsigned)size, n);
    const char *text = (const char *)p + 4 + size;
    size_t n_text = n - 4 - size;
    if (utf8_valid(text, n_text) != n_text)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: the replacements are not UTF-8", name, field);
    struct charsmap *m = malloc(sizeof *m + n);
    if (!m)
        return err_oom(e, n);
    uint32_t *units = (uint32_t *)(m + 1);
    memcpy(units, (const char *)p + 4, n - 4);
    *m = (struct charsmap){units, size / 4, (const char *)units + size, n_text};
    for (size_t i = 0; i < m->n_units; i++)
        units[i] = le32toh(units[i]);
    size_t bad = find_bad(m);
    if (bad < m->n_units) {
        err_set(e, QWICK_ERR_MODEL,
                "%s: %s: unit %zu of the trie has no replacement", name, field,
                bad);
        free(m);
        return -1;
    }
    *out = m;
    return 0;
}

void charsmap_free(struct charsmap *m)
{
    free(m);
}

/* ---- replacing ---- */

/* The state of a replacement: text that has been replaced so far. */
struct replacing {
    const struct charsmap *m;
    const char *p;
    size_t copied; /* p[0..copied) is in out */
    struct buf *out;
};

/* Replace the k bytes of the text at i if the map has them, or a beginning of
 * them. Returns 1, 0 if not, or -1. */
static int replace(struct replacing *r, size_t i, size_t k)
{
    size_t len;
    const char *s = find(r->m, r->p + i, k, &len);
    if (!s)
        return 0;
    if (buf_append(r->out, r->p + r->copied, i - r->copied) ||
        buf_append(r->out, s, len))
        return -1;
    r->copied = i + k;
    return 1;
}

int charsmap_apply(const struct charsmap *m, const char *p, size_t n,
                   struct buf *out)
{
    struct replacing r = {m, p, 0, out};
    for (size_t i = 0, k; i < n; i += k) {
        k = unicode_grapheme(p + i, n - i);
        int done = k < 6 ? replace(&r, i, k) : 0;
        for (size_t at = i, len; at < i + k && done == 0; at += len) {
            len = utf8_decode(p + at, i + k - at, NULL, NULL);
            len = len ? len : 1;
            if (replace(&r, at, len) < 0)
                return -1;
        }
        if (done < 0)
            return -1;
    }
    return buf_append(out, p + r.copied, n - r.copied);
}
