/* Line editing at a terminal: one line at a time, with a history. A paste of
 * several lines is one line with newlines in it, if the terminal brackets
 * pastes. The window may have any size, and may change it at any time. A
 * terminal that cannot move its cursor (TERM unset or "dumb") edits lines
 * itself.
 *
 * Only one editor exists at a time. While it waits for a key, signals_catch and
 * signals_watch decide about signals, so the caller must have called
 * signals_catch. */
#ifndef CLI_CHAT_LINE_H
#define CLI_CHAT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/chat/chat_command.h"

struct chat_line;

/* Open the editor on standard input and standard output, which must be
 * terminals. rows: the commands, whose names Tab completes after a slash at the
 * beginning of a line; borrowed. After a name and a blank, Tab completes names
 * of files. */
int chat_line_open(struct chat_line **out, const struct chat_command *rows,
                   struct qwick_err *e);

/* Free the editor (NULL: none). */
void chat_line_close(struct chat_line *l);

/* Give the terminal its settings back, and turn its dim text and its marks of
 * pastes off. For a signal that ends the process; async-signal-safe. */
void chat_line_restore(void);

enum chat_line_status {
    CHAT_LINE_GOT,
    CHAT_LINE_END,         /* Ctrl-D in an empty line, or no terminal is left */
    CHAT_LINE_INTERRUPTED, /* Ctrl-C in a line with text */
    CHAT_LINE_INTERRUPTED_EMPTY,
    CHAT_LINE_STOPPED, /* another signal asks the program to stop */
    CHAT_LINE_FAILED   /* out of memory */
};

/* Let the user edit a line, and set *out to it, in UTF-8 without its end. */
enum chat_line_status chat_line_read(struct chat_line *l, const char *prompt,
                                     struct buf *out);

/* Add a text to the history that the arrow keys show. ctx is a struct
 * chat_line. Without memory, nothing is added. */
void chat_line_remember(void *ctx, const char *text, size_t n);

#endif
