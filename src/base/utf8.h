/* UTF-8 as bytes: which bytes are valid, and where characters end. No Unicode
 * tables. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

struct buf;

/* Decode one character at p, with n >= 1 bytes left. Returns its length 1..4
 * and sets *cp. If no valid character starts at p, returns 0 and sets *bad to
 * the length of the maximal invalid part, which a decoder replaces by one
 * U+FFFD (Unicode 15, table 3-7). Overlong forms, surrogates and values above
 * U+10FFFF are invalid. cp and bad may be NULL. */
size_t utf8_decode(const char *p, size_t n, uint32_t *cp, size_t *bad);

/* Return the number of ASCII bytes at the start of p[0..n). */
size_t utf8_ascii(const char *p, size_t n);

/* Return the length of the longest prefix of p[0..n) that consists of complete,
 * valid characters. */
size_t utf8_valid(const char *p, size_t n);

/* Write cp as UTF-8 to out[4] and return its length. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Return the length of p[0..n) without an incomplete character at the end,
 * whose other bytes may still follow. Invalid bytes count as complete. */
size_t utf8_complete(const char *p, size_t n);

/* Append p[0..n) to out, with each maximal invalid part replaced by U+FFFD.
 * Returns 0, or -1 when out cannot grow. */
int utf8_sanitize(struct buf *out, const char *p, size_t n);

#endif
