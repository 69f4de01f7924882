/* Unicode properties and normalisation. Only unicode.c uses utf8proc. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf;

/* Classes of characters in the split pattern: \p{L}, \p{N}, \s (White_Space),
 * and all others. */
enum uclass { UC_OTHER, UC_LETTER, UC_NUMBER, UC_SPACE };

/* Return the class of a code point; UC_OTHER from 0x110000 on. Uses a table
 * whose blocks are filled when they are first needed. Any thread may call
 * this. */
enum uclass unicode_class(uint32_t cp);

/* Finer classes that patterns name, as bits. Only letters have a case: those of
 * \p{Lm} and \p{Lo} have neither bit. Marks and signs are UC_OTHER. */
enum {
    UC_MARK = 16,  /* \p{M} */
    UC_UPPER = 32, /* \p{Lu} and \p{Lt} */
    UC_LOWER = 64, /* \p{Ll} */
    UC_SIGN = 128  /* \p{P} and \p{S} */
};

/* Return the finer classes of a code point; 0 from 0x110000 on. */
unsigned unicode_traits(uint32_t cp);

/* Return the general category of a code point, two letters: "Lu". Characters
 * that utf8proc does not know have "Cn". */
const char *unicode_category(uint32_t cp);

/* Code points from `first` to the next run have one general category. */
struct unicode_run {
    uint32_t first;
    char category[2]; /* "Lu" */
};

/* Return the runs of all code points, ascending. Any thread may call this. */
const struct unicode_run *unicode_runs(size_t *n);

/* Check quickly whether p[0..n) is in NFC. True is certain; false may be wrong.
 * Bytes that are not valid UTF-8 count as normalised, as in unicode_nfc. */
bool unicode_is_nfc(const char *p, size_t n);

/* Append the NFC form of p[0..n) to out. Bytes that are not valid UTF-8 stay
 * unchanged, and the texts before and after them are normalised separately.
 * Takes time linear in n. On failure out is unchanged. */
int unicode_nfc(struct buf *out, const char *p, size_t n, struct qwick_err *e);

/* Append the NFKC form of p[0..n) to out, as unicode_nfc does. */
int unicode_nfkc(struct buf *out, const char *p, size_t n, struct qwick_err *e);

/* Return where p[0..n) can be cut, at `least` bytes or after: the NFC forms of
 * both parts together are that of the whole. */
size_t unicode_nfc_part(const char *p, size_t n, size_t least);

/* Write the canonical decomposition of a character, which may be the character
 * itself. Returns its length. */
#define UNICODE_MAX_DECOMP 4
size_t unicode_decompose(uint32_t cp, uint32_t out[UNICODE_MAX_DECOMP]);

/* Return the canonical combining class; 0: the character starts a sequence. */
unsigned unicode_combining(uint32_t cp);

/* Put d[0..n) into canonical order: sort each run of nonzero combining classes
 * by class, stably. tmp has room for n. Takes time linear in n. */
void unicode_order_marks(uint32_t *d, uint32_t *tmp, size_t n);

/* Change the case of a character by Unicode's full mappings, as Python does.
 * The result may have up to three characters. Each function writes UTF-8 to out
 * and returns its length. */
#define UNICODE_MAX_CASE 12
size_t unicode_upper(uint32_t cp, char out[UNICODE_MAX_CASE]);
size_t unicode_title(uint32_t cp, char out[UNICODE_MAX_CASE]);
/* Write the lower case of the character at byte i of p[0..n). It depends on the
 * text around the character, because of the final sigma. */
size_t unicode_lower(const char *p, size_t n, size_t i,
                     char out[UNICODE_MAX_CASE]);
/* Write the lower case of a character without regard to the text around it. */
size_t unicode_lower_alone(uint32_t cp, char out[UNICODE_MAX_CASE]);
/* Append the upper case of p[0..n), to compare texts without regard to case.
 * Bytes that are not valid UTF-8 stay. Returns 0, or -1 when out of memory. */
int unicode_fold(struct buf *out, const char *p, size_t n);
bool unicode_is_upper(uint32_t cp);
bool unicode_is_lower(uint32_t cp);

/* Return the bytes of the extended grapheme cluster (UAX #29) that p[0..n),
 * n >= 1, begins with. A byte that is not valid UTF-8 is one of its own. */
size_t unicode_grapheme(const char *p, size_t n);

/* Return whether Python's repr() shows the character itself. repr() escapes
 * controls, formats, private and unassigned characters, and separators except
 * the blank. */
bool unicode_printable(uint32_t cp);

#endif
