/* How different two words are, to find what a misspelt one means. */
#ifndef BASE_WORD_DISTANCE_H
#define BASE_WORD_DISTANCE_H

#include <stddef.h>

/* Return the number of edits (insert, delete, replace, swap neighbours) that
 * turn a into b. If one of them has 40 bytes or more, the result is at least
 * 40. */
size_t word_distance(const char *a, const char *b);

#endif
