/* Functions that read JSON text in place: white space, strings, and skipping
 * values. Only for bpe_scan.c, into whose loops they are inlined.
 *
 * Each function that takes p and end reads at position p of a text that ends at
 * `end`. It returns the position where it stopped, or NULL if the text does not
 * match. */
#ifndef TEXT_BPE_TEXT_H
#define TEXT_BPE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "text/bpe/bpe_int.h"

static inline bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static inline const char *skip_space(const char *p, const char *end)
{
    while (p < end && is_space(*p))
        p++;
    return p;
}

/* Skip white space. The character c must follow; it is not skipped. */
static inline const char *expect(const char *p, const char *end, char c)
{
    p = skip_space(p, end);
    return p < end && *p == c ? p : NULL;
}

/* Skip one value. Does not check the syntax: it only counts brackets, of all
 * kinds. */
static inline const char *skip_value(const char *p, const char *end)
{
    size_t depth = 0;
    for (; p < end; p++) {
        switch (*p) {
        case '"':
            for (p++; p < end && *p != '"'; p++)
                if (*p == '\\' && ++p == end)
                    break;
            if (p == end)
                return NULL;
            break;
        case '{':
        case '[':
            depth++;
            continue;
        case '}':
        case ']':
            if (depth == 0)
                return p; /* closing bracket of the container, after a number or
                             literal */
            depth--;
            break;
        case ',':
            if (depth == 0)
                return p;
            continue;
        default:
            continue;
        }
        if (depth == 0)
            return p + 1;
    }
    return NULL;
}

/* ---- strings ---- */

/* ONES * c is a word with c in every byte. HIGH is a word with the highest bit
 * of every byte. bytes_below and bytes_equal mark a byte by its highest bit. */
#define ONES 0x0101010101010101u
#define HIGH 0x8080808080808080u

/* Mark the bytes that are below c (c <= 0x80), or equal to c. The result is
 * right up to the lowest marked byte. Above it the borrow of the subtraction
 * can make it wrong. */
static inline uint64_t bytes_below(uint64_t w, unsigned char c)
{
    return (w - ONES * c) & ~w & HIGH;
}

static inline uint64_t bytes_equal(uint64_t w, unsigned char c)
{
    return bytes_below(w ^ ONES * c, 1);
}

/* Read four hexadecimal digits to *v. */
static inline const char *read_hex4(const char *p, const char *end, uint32_t *v)
{
    if (end - p < 4)
        return NULL;
    *v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)p[i];
        unsigned digit = c - '0', letter = (c | 0x20) - 'a';
        if (digit > 9 && letter > 5)
            return NULL;
        *v = *v << 4 | (digit <= 9 ? digit : letter + 10);
    }
    return p + 4;
}

/* Decode the escape whose backslash is at p. Writes the character to *at and
 * advances *at. */
static const char *copy_escape(const char *p, const char *end, char **at)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    if (end - p < 2)
        return NULL;
    if (p[1] != 'u') {
        const char *k = memchr(letters, p[1], sizeof letters - 1);
        if (!k)
            return NULL;
        *(*at)++ = bytes[k - letters];
        return p + 2;
    }
    p = read_hex4(p + 2, end, &c);
    if (p && (c & 0xF800) == 0xD800) { /* a surrogate: the first of a pair */
        if (c >= 0xDC00 || end - p < 2 || memcmp(p, "\\u", 2) != 0 ||
            !(p = read_hex4(p + 2, end, &low)) || (low & 0xFC00) != 0xDC00)
            return NULL;
        c = 0x10000 + ((c & 0x3FF) << 10 | (low & 0x3FF));
    }
    if (p)
        *at += utf8_encode(c, *at);
    return p;
}

/* Decode the rest of a string to `at`, one character at a time. Sets *n to the
 * length of the whole string, which begins at out. */
static const char *copy_slowly(const char *p, const char *end, char *out,
                               char *at, size_t *n)
{
    while (p && p < end && *p != '"') {
        if (*p == '\\') {
            p = copy_escape(p, end, &at);
            continue;
        }
        size_t k = utf8_decode(p, (size_t)(end - p), NULL, NULL);
        if (k == 0 || (unsigned char)*p < 0x20)
            return NULL;
        for (; k > 0; k--)
            *at++ = *p++;
    }
    *n = (size_t)(at - out);
    return p && p < end ? p : NULL;
}

/* Decode a string to out and set *n to its length. p is the position after the
 * opening quote. Returns the position of the closing quote. Writes at most 7
 * bytes beyond the result, and at most end - p bytes in all.
 *
 * Handles eight bytes at a time while they are ASCII and characters of two
 * bytes, because vocabularies spell bytes that way. */
static inline const char *copy_string(const char *p, const char *end, char *out,
                                      size_t *n)
{
    char *at = out;
    uint64_t open = 0; /* the high bit of byte 0 if byte 0 must be the second
                          byte of a character */
    while (end - p >= 8) {
        uint64_t w = bpe_load64(p);
        uint64_t stop =
            bytes_equal(w, '"') | bytes_equal(w, '\\') | bytes_below(w, ' ');
        stop &= -stop;
        uint64_t high = w & HIGH & (stop - 1); /* all bytes if nothing
                                                  stops */
        uint64_t lead = high & w << 1, second = high & ~(w << 1);
        /* a byte that is not 110xxxxx, or that begins an overlong character */
        uint64_t no_lead = w << 2 | ~(w << 3 | w << 4 | w << 5 | w << 6);
        if ((second ^ (lead << 8 | open)) | (lead & no_lead))
            break;
        memcpy(at, &w, 8);
        if (stop) {
            int k = __builtin_ctzll(stop) / 8;
            p += k;
            at += k;
            open = 0;
            if (*p != '"')
                break;
            *n = (size_t)(at - out);
            return p;
        }
        open = lead >> 63 << 7;
        p += 8;
        at += 8;
    }
    if (open) { /* go back to the first byte of an incomplete character */
        p--;
        at--;
    }
    return copy_slowly(p, end, out, at, n);
}

/* ---- what repeats ---- */

/* The text between two strings: brackets, a comma and white space. A program
 * that writes a list puts the same text between all entries. Once we have read
 * this text, it is enough to compare. */
struct between {
    uint64_t word[4], mask[4];
    size_t n; /* 0: none */
};

static inline void between_learn(struct between *b, const char *from,
                                 const char *to)
{
    size_t n = (size_t)(to - from);
    *b = (struct between){.n = n <= sizeof b->word ? n : 0};
    memcpy(b->word, from, b->n);
    memset(b->mask, 0xFF, b->n);
}

static inline bool between_again(const struct between *b, const char *p,
                                 const char *end)
{
    uint64_t differ = 0;
    if (b->n == 0 || (size_t)(end - p) < sizeof b->word)
        return false;
    for (size_t i = 0; i < 4; i++)
        differ |= (bpe_load64(p + 8 * i) ^ b->word[i]) & b->mask[i];
    return differ == 0;
}

#endif
