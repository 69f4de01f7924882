/* A list of texts as a node of a grammar. */
#ifndef TEXT_CHOICES_H
#define TEXT_CHOICES_H

#include <stddef.h>
#include <stdint.h>

struct grammar;

/* Return the node of the texts in list[0..n), which are separated by commas.
 * "\," is a comma and "\\" a backslash. Blanks belong to the texts. A text may
 * occur twice. Refuses empty texts. */
uint32_t choices_compile(struct grammar *g, const char *list, size_t n);

#endif
