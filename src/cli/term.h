/* Abilities of the terminal: colours and characters. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>

/* Return whether output gets colours. `when` is the value of --color, NULL for
 * the default. With auto: it goes to a terminal (tty), TERM is set and not
 * "dumb", and NO_COLOR is not set. */
bool term_colours(const char *when, bool tty);

/* Return whether COLORTERM promises 24-bit colours. */
bool term_truecolor(void);

/* Return whether the locale's characters are UTF-8. */
bool term_utf8(void);

#endif
