/* JSON text in place: white space, strings, and values that are not read. The
 * reader in json.c and the one of tokenizer.json are built from these
 * functions, which are inlined into their loops.
 *
 * Each function that takes p and end reads at position p of a text that ends at
 * `end`. It returns the position where it stopped, or NULL if the text does not
 * match. */
#ifndef FILE_JSON_SCAN_H
#define FILE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline const char *json_skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* Skip white space. The character c must follow; it is not skipped. */
static inline const char *json_expect(const char *p, const char *end, char c)
{
    p = json_skip_space(p, end);
    return p < end && *p == c ? p : NULL;
}

/* Skip one value. Does not check the syntax: it only counts brackets, of all
 * kinds. */
static inline const char *json_skip_value(const char *p, const char *end)
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

/* JSON_ONES * c is a word with c in every byte. JSON_HIGH is a word with the
 * highest bit of every byte, by which the functions mark a byte. */
#define JSON_ONES 0x0101010101010101u
#define JSON_HIGH 0x8080808080808080u

/* Mark the bytes that are below c (c <= 0x80). The result is right up to the
 * lowest marked byte. Above it the borrow of the subtraction can make it
 * wrong. */
static inline uint64_t json_bytes_below(uint64_t w, unsigned char c)
{
    return (w - JSON_ONES * c) & ~w & JSON_HIGH;
}

/* Mark the first byte that cannot be copied as it is, like json_bytes_below: a
 * quote, a backslash or a control character. */
static inline uint64_t json_bytes_stop(uint64_t w)
{
    return json_bytes_below(w ^ JSON_ONES * '"', 1) |
           json_bytes_below(w ^ JSON_ONES * '\\', 1) | json_bytes_below(w, ' ');
}

/* Read four hexadecimal digits to *v. */
const char *json_read_hex4(const char *p, const char *end, uint32_t *v);

/* Decode the escape whose backslash is at p. Writes the character to *at and
 * advances *at. */
const char *json_copy_escape(const char *p, const char *end, char **at);

/* Decode the rest of a string to `at`, in any characters. Sets *n to the length
 * of the whole string, which begins at out. */
const char *json_copy_rest(const char *p, const char *end, char *out, char *at,
                           size_t *n);

/* Decode a string to out and set *n to its length. p is the position after the
 * opening quote. Returns the position of the closing quote. Writes at most 7
 * bytes beyond the result, and at most end - p bytes in all.
 *
 * Handles eight bytes at a time while they are ASCII and characters of two
 * bytes, because vocabularies spell bytes that way. */
static inline const char *json_copy_string(const char *p, const char *end,
                                           char *out, size_t *n)
{
    char *at = out;
    uint64_t open = 0; /* the high bit of byte 0 if byte 0 must be the second
                          byte of a character */
    while (end - p >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t stop = json_bytes_stop(w);
        stop &= -stop;
        uint64_t high = w & JSON_HIGH & (stop - 1); /* all bytes if nothing
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
    return json_copy_rest(p, end, out, at, n);
}

#endif
