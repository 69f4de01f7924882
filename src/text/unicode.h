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

/* Class of a code point; UC_OTHER from 0x110000 on. A table look-up: the table
 * fills itself in blocks when first asked. Safe in any thread. */
enum uclass unicode_class(uint32_t cp);

/* true if p[0..n) is surely in NFC already (quick check; false says nothing).
 * Bytes that are no UTF-8 count as unchangeable, as in unicode_nfc. */
bool unicode_is_nfc(const char *p, size_t n);

/* Append the NFC form of p[0..n). Bytes that are no UTF-8 are kept as they are
 * and end the run that is normalised. Time is linear in n. On failure out is
 * as it was. */
int unicode_nfc(struct buf *out, const char *p, size_t n, struct qwick_err *e);

#endif
