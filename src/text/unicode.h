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
 * NFC. Bytes that are not UTF-8 count as normalised, as in unicode_nfc. */
bool unicode_is_nfc(const char *p, size_t n);

/* Append the NFC form of p[0..n). Bytes that are not UTF-8 stay unchanged, and
 * the texts before and after them are normalised separately. Time is linear in
 * n. On failure out is unchanged. */
int unicode_nfc(struct buf *out, const char *p, size_t n, struct qwick_err *e);

/* Change the case of a character by Unicode's full mappings, as in Python. The
 * result may have up to three characters. Each function writes UTF-8 to out and
 * returns its length. */
#define UNICODE_MAX_CASE 12
size_t unicode_upper(uint32_t cp, char out[UNICODE_MAX_CASE]);
size_t unicode_title(uint32_t cp, char out[UNICODE_MAX_CASE]);
/* The lower case of the character at byte i of p[0..n). It depends on the text
 * around it, because of the final sigma. */
size_t unicode_lower(const char *p, size_t n, size_t i,
                     char out[UNICODE_MAX_CASE]);
bool unicode_is_upper(uint32_t cp);
bool unicode_is_lower(uint32_t cp);

/* Whether Python's repr() shows the character itself. It escapes controls,
 * formats, private and unassigned characters, and separators except the
 * blank. */
bool unicode_printable(uint32_t cp);

#endif
