/* Tokenizers with byte_fallback, of Gemma's kind. A word starts as characters
 * rather than bytes. A character that is not in the vocabulary starts as the
 * tokens <0x00> to <0xFF> of its bytes. In spellings, U+2581 stands for a
 * blank.
 *
 * `tokenizers` replaces blanks in the text first. Here a blank starts as the
 * token of U+2581, so the text needs no copy. */
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/bpe/bpe_load.h"

#define BLANK 0x2581u

static int compare_chars(const void *x, const void *y)
{
    const struct bpe_char *a = x, *b = y;
    return (a->c > b->c) - (a->c < b->c);
}

/* Return the character if p[0..n) is a single one, 0x80 or above; else 0. */
static uint32_t only_char(const char *p, size_t n)
{
    uint32_t c;
    return n >= 2 && n <= 4 && utf8_decode(p, n, &c, NULL) == n ? c : 0;
}

/* Return the token spelled p[0..n), n <= 8, or -1. */
static int32_t chars_find(const struct bpe_load *l, const char *p, size_t n)
{
    char s[8 + BPE_PAD] = {0};
    memcpy(s, p, n);
    return bpe_find(l->b, &l->table, bpe_hash(l->b->seed, s, n), s, n);
}

static int find_fallbacks(const struct bpe_load *l)
{
    for (unsigned c = 0; c < 256; c++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", c);
        int32_t id = chars_find(l, s, 6);
        if (id < 0 && c == '\t') /* Gemma 1 and 2 have a tab in place of it */
            id = chars_find(l, &(char){(char)c}, 1);
        if (id < 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: %s: no token for byte 0x%02X (\"%s\")", l->name,
                           l->vocab_name, c, s);
        l->b->byte_id[c] = (uint32_t)id;
    }
    return 0;
}

int bpe_find_chars(const struct bpe_load *l)
{
    struct bpe *b = l->b;
    size_t n = 0;
    if (find_fallbacks(l) < 0)
        return -1;
    for (size_t i = 0; i < b->size; i++)
        n += b->tok[i].flags &&
             only_char(b->arena + b->tok[i].off, b->tok[i].len);
    b->chars = malloc((n + 1) * sizeof *b->chars);
    if (!b->chars)
        return err_oom(l->e, n * sizeof *b->chars);
    for (size_t i = 0; i < b->size; i++) {
        const struct bpe_tok *t = &b->tok[i];
        uint32_t c = t->flags ? only_char(b->arena + t->off, t->len) : 0;
        if (c)
            b->chars[b->n_chars++] = (struct bpe_char){c, (uint32_t)i};
    }
    qsort(b->chars, n, sizeof *b->chars, compare_chars);
    int32_t blank = chars_find(l, "\xE2\x96\x81", 3);
    if (blank < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: no token for a blank (\"\xE2\x96\x81\")",
                       l->name, l->vocab_name);
    for (unsigned c = 0; c < 0x80; c++) {
        char s = (char)c;
        int32_t id = c == ' ' ? blank : chars_find(l, &s, 1);
        b->ascii_id[c] = id < 0 ? b->byte_id[c] : (uint32_t)id;
    }
    return 0;
}

uint32_t bpe_first_char(const struct bpe *b, const char *p, size_t n,
                        size_t *len)
{
    unsigned char first = (unsigned char)*p;
    uint32_t c;
    *len = 1;
    if (first < 0x80)
        return b->ascii_id[first];
    size_t k = utf8_decode(p, n, &c, NULL), lo = 0, hi = b->n_chars;
    while (k && lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (b->chars[mid].c < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (k == 0 || lo == b->n_chars || b->chars[lo].c != c)
        return b->byte_id[first];
    *len = k;
    return b->chars[lo].id;
}

size_t bpe_char_start(const char *p, size_t n, size_t at)
{
    for (size_t k = 1; k <= 3 && k <= at && at < n; k++)
        if (utf8_decode(p + at - k, n - at + k, NULL, NULL) > k)
            return at - k;
    return at;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int bpe_fallback_byte(const char *p, size_t n)
{
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    int high = hex_digit(p[3]), low = hex_digit(p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int bpe_chars_first(const char *spelled, size_t n)
{
    if (n == 0 || *spelled == '<')
        return -1;
    return n >= 3 && memcmp(spelled, "\xE2\x96\x81", 3) == 0
               ? ' '
               : (unsigned char)*spelled;
}

void bpe_chars_bytes(char *arena, struct bpe_tok *t)
{
    char *s = arena + t->off;
    int byte = bpe_fallback_byte(s, t->len);
    size_t to = 0;
    t->flags &= (uint16_t)~BPE_SPELLED;
    if (byte >= 0) {
        *s = (char)byte;
        t->len = 1;
        t->flags |= BPE_FALLBACK;
        return;
    }
    for (size_t i = 0; i < t->len;) {
        if (t->len - i >= 3 && memcmp(s + i, "\xE2\x96\x81", 3) == 0) {
            s[to++] = ' ';
            i += 3;
        } else {
            s[to++] = s[i++];
        }
    }
    t->len = (uint16_t)to;
}
