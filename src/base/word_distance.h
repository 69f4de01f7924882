/* How different two words are, to find what a misspelt one means. */
#ifndef BASE_WORD_DISTANCE_H
#define BASE_WORD_DISTANCE_H

#include <stddef.h>

/* Return the number of edits (insert, delete, replace, swap neighbours) that
 * turn a into b. If one of them has 40 bytes or more, the result is at least
 * 40. */
size_t word_distance(const char *a, const char *b);

/* One step of a search for the name that a word means: if fewer than *least
 * edits turn word into name, set *nearest to name and *least to their
 * number. */
void word_nearest(const char *word, const char *name, size_t *least,
                  const char **nearest);

#endif
