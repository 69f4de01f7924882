/* Numbers for people. */
#ifndef CLI_UNITS_H
#define CLI_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Write n to out with three digits and a unit of powers of 1000, as in the
 * figures of bench: "1.19 GB", "596 M". */
void size_text(size_t n, const char *unit, char out[32]);

/* Return the words for n things: `one` for one thing, else `many`. */
static inline const char *plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#endif
