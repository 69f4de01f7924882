/* Unicode properties and normalisation. utf8proc stays in unicode.c. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf;

/* Classes of the split pattern: \p{L}, \p{N}, \s (White_Space), the rest. */
enum uclass { UC_OTHER, UC_LETTER, UC_NUMBER, UC_SPACE };

/* Class of a code point; UC_OTHER from 0x110000 on. Looks it up in a table,
 * whose blocks are filled when they are first needed. Any thread may call it.
 */
enum uclass unicode_class(uint32_t cp);

/* True only if p[0..n) is in NFC. A quick check: it may be false for text in
 * NFC. Bytes that are not UTF-8 count as unchangeable, as in unicode_nfc. */
bool unicode_is_nfc(const char *p, size_t n);

/* Append the NFC form of p[0..n). Bytes that are not UTF-8 stay as they are,
 * and the text before and after them is normalised apart. Time is linear in n.
 * On failure out is unchanged. */
int unicode_nfc(struct buf *out, const char *p, size_t n, struct qwick_err *e);

#endif
