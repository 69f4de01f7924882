/* URI references (RFC 3986). */
#ifndef TEXT_URI_H
#define TEXT_URI_H

#include <stddef.h>

struct buf;

/* Append the target of a reference (section 5.2.2, strict), without its
 * fragment. base is a URI that begins with a scheme. Case and percent-encoding
 * stay as they are. Returns 0, or -1 when out of memory. */
int uri_resolve(struct buf *out, const char *base, size_t n_base,
                const char *ref, size_t n_ref);

/* Return the offset of the '#' before a reference's fragment; n: it has
 * none. */
size_t uri_fragment(const char *ref, size_t n);

/* Append s[0..n) with each %HH replaced by its byte. A '%' without two digits
 * stays. Returns 0, or -1 when out of memory. */
int uri_decode(struct buf *out, const char *s, size_t n);

#endif
