/* The colour scale for probabilities: one for terminals and for HTML.
 *
 * A token has a class by its probability. The likeliest class has no colour.
 * The others get darker step by step, from yellow to violet, so that they can
 * be told apart without seeing hues. Each has a colour of the text on it with a
 * contrast of at least 4.5 (WCAG 2.1, AA), so that the background of the
 * terminal or of the page does not matter. */
#ifndef CLI_HEAT_H
#define CLI_HEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { HEAT_CLASSES = 6 };

struct heat_class {
    double p;          /* least probability of the class */
    const char *label; /* "50%": the same as text */
    uint8_t rgb[3];    /* background; class 0 has none */
    uint8_t index;     /* background in the 256 colours of terminals */
    bool white;        /* the text is white, not black */
};
extern const struct heat_class heat_classes[HEAT_CLASSES];

/* Return the class of a token with these bits, that is -log2 of its
 * probability. NAN (not known) has class 0. */
size_t heat_class_of(double bits);

/* Append the escape sequence that begins a class, and the one that ends it.
 * Class 0 needs none. truecolor: use 24 bits, not 256 colours. */
void heat_begin(struct buf *b, size_t class, bool truecolor);
void heat_end(struct buf *b, size_t class);

/* Append the legend as a line for a terminal. */
void heat_legend(struct buf *b, bool truecolor);

#endif
