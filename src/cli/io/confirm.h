/* Questions before something is removed. */
#ifndef CLI_CONFIRM_H
#define CLI_CONFIRM_H

#include <stdbool.h>

/* Ask on a terminal whether `what` shall be removed, as in "all answers".
 * Without a terminal, `force` must say so; it is given by --force. Returns -1
 * to go on, or an exit status: after a no, after the end of the input, or after
 * a message that asks for --force. */
int confirm_removal(const char *what, bool force);

#endif
