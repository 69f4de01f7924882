/* Large numbers for people. */
#ifndef CLI_UNITS_H
#define CLI_UNITS_H

#include <stddef.h>

/* Write n to out with three digits and a unit of powers of 1000, as in the
 * figures of bench: "1.19 GB", "596 M". */
void size_text(size_t n, const char *unit, char out[32]);

#endif
