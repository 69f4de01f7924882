/* Colours a text by the probabilities of its tokens.
 *
 * Text may come later than its tokens, because an incomplete character or a
 * possible stop string was held back. So the tokens wait in a queue until their
 * text comes. */
#ifndef CLI_PAINT_H
#define CLI_PAINT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct paint_mark;

/* The state; zeros at the start. */
struct paint {
    bool truecolor;
    struct buf raw; /* bytes of the tokens in the queue */
    size_t at;      /* bytes of raw that were used */
    struct paint_mark *marks;
    size_t n_marks, cap_marks, mark; /* mark: that of the byte raw[at] */
};

/* Queue a token with its bytes and its bits, that is -log2 of its probability;
 * NAN: unknown. Returns 0, or -1 when out of memory. */
int paint_token(struct paint *p, const char *bytes, size_t n, double bits);

/* Append text[0..n) to out, in colour. It must be the text of queued tokens,
 * where U+FFFD may stand for invalid bytes and bytes may be left out. Control
 * characters except newline and tab become \xNN. A character that is made of
 * several tokens has the product of their probabilities. Colours never span a
 * newline. Returns 0, or -1 when out of memory. */
int paint_text(struct paint *p, const char *text, size_t n, struct buf *out);

/* Print the legend of the colours on stderr, if that is a terminal that gets
 * colours and --quiet is not given. when: the value of --color. */
void paint_legend(const char *when);

void paint_free(struct paint *p);

#endif
