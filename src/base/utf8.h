/* UTF-8 as bytes: validity and boundaries. No Unicode tables. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

struct buf;

/* Decode one character at p (n >= 1 bytes left). Returns its length 1..4 and
 * sets *cp; or returns 0 if no valid character starts at p (overlong forms,
 * surrogates and values above U+10FFFF are invalid), with *bad set to the
 * length of the maximal invalid part (Unicode 15, table 3-7: a decoder replaces
 * it by one U+FFFD). cp and bad may be NULL. */
size_t utf8_decode(const char *p, size_t n, uint32_t *cp, size_t *bad);

/* Length of the longest prefix of p[0..n) that consists of whole, valid
 * characters; n when all of it does. */
size_t utf8_valid(const char *p, size_t n);

/* Write cp as UTF-8 to out[4]; returns the length. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Length of the longest prefix of p[0..n) that ends with a complete character:
 * without the first bytes of a character whose other bytes may follow. Invalid
 * bytes count as complete. */
size_t utf8_complete(const char *p, size_t n);

/* Append p[0..n) to out with each maximal invalid part replaced by U+FFFD.
 * Returns 0, or -1 when out cannot grow. */
int utf8_sanitize(struct buf *out, const char *p, size_t n);

#endif
