/* The character map of SentencePiece's normalizer (precompiled_charsmap): texts
 * of a few characters and their replacements. It begins with the bytes of a
 * trie (u32), then has the trie, a double array of u32 in little-endian (as
 * darts-clone writes it), and then the replacements, each ended by a NUL. */
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct charsmap;

/* Read a map p[0..n), of which nothing is kept. name: of the file; field: where
 * the map is in it, both for messages. QWICK_ERR_MODEL if the map is broken. */
int charsmap_open(struct charsmap **out, const char *name, const char *field,
                  const void *p, size_t n, struct qwick_err *e);
void charsmap_free(struct charsmap *m);

/* Append p[0..n) to out with everything replaced that the map has, as the
 * library spm_precompiled does. A grapheme cluster of fewer than 6 bytes is
 * replaced as a whole if the map has the cluster or one of its beginnings; the
 * shortest one counts. In other clusters each character is replaced by itself.
 * Bytes that are not valid UTF-8 stay. Takes time linear in n. Returns 0, or -1
 * when out of memory. */
int charsmap_apply(const struct charsmap *m, const char *p, size_t n,
                   struct buf *out);

#endif
