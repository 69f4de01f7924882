/* The terminal: its colours, characters and size. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>

/* Return whether the terminal moves its cursor: TERM is set and not "dumb". */
bool term_moves(void);

/* Return whether output gets colours. `when` is the value of --color, NULL for
 * the default. With auto: it goes to a terminal (tty) that can move its cursor,
 * and NO_COLOR is not set. */
bool term_colours(const char *when, bool tty);

/* Return whether COLORTERM promises 24-bit colours. */
bool term_truecolor(void);

/* Return whether the locale's characters are UTF-8. */
bool term_utf8(void);

/* Return the size of a descriptor's terminal: what the terminal reports, or
 * else $LINES and $COLUMNS, or else 24 and 80. */
size_t term_rows(int fd);
size_t term_columns(int fd);

#endif
