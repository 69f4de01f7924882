/* Properties of characters as regular expressions name them: \p{…}. */
#ifndef TEXT_UNICODE_PROPERTY_H
#define TEXT_UNICODE_PROPERTY_H

#include <stddef.h>
#include <stdint.h>

/* Code points lo to hi, hi included. */
struct unicode_range {
    uint32_t lo, hi;
};

/* Call put for the ranges of a property, ascending, until it returns nonzero.
 * Properties are the general categories ("L", "Lu", "Uppercase_Letter",
 * "gc=Lu"), some scripts ("Greek", "Script=Greek", "sc=Grek"), "Any" and
 * "ASCII". Surrogates may be in the ranges. Returns 0; 1 if no property has the
 * name; or what put returned. */
int unicode_property(const char *name, size_t n,
                     int (*put)(void *ctx, struct unicode_range r), void *ctx);

#endif
