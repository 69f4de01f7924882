/* Base64 (RFC 4648, section 4). */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>

#include "base/buf.h"

/* Append p[0..n) as base64, padded with "=". Returns 0, or -1 as buf_reserve
 * does. */
int base64_append(struct buf *out, const void *p, size_t n);

/* Append the bytes that p[0..n) stands for, with its padding. Returns 1 if it
 * is not base64, -1 as buf_reserve does. */
int base64_decode(struct buf *out, const char *p, size_t n);

#endif
