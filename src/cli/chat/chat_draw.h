/* Draws the line that a user edits at a terminal, which may be smaller than the
 * line: then the rows around the cursor are shown.
 *
 * Nothing here depends on what was drawn in a window of another size, so a
 * window may change its size at any time. */
#ifndef CLI_CHAT_DRAW_H
#define CLI_CHAT_DRAW_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What to draw: the prompt and then the text, in UTF-8, in a window of this
 * size; 0 counts as 1. */
struct chat_view {
    const char *prompt, *text;
    size_t n_prompt, n_text;
    size_t cursor; /* a byte of the text; n_text: behind the text */
    size_t rows, columns;
};

/* What is on the screen; zeros before a line is drawn for the first time. */
struct chat_draw {
    size_t row; /* of the cursor, below the first row that is shown */
    size_t top; /* the first row of the line that is shown */
};

/* Append to out what replaces the drawing on the screen by this view, with
 * escapes (escape.h). Newlines of the text begin rows. Returns 0, or -1 when
 * out of memory, with *d unchanged. */
int chat_draw(struct chat_draw *d, const struct chat_view *v, struct buf *out);

/* Return the columns of a character, 0 to 2, by the C locale's LC_CTYPE, which
 * should be one of UTF-8. */
size_t chat_columns(uint32_t cp);

#endif
