/* The user's editor, $VISUAL or $EDITOR, for a message. */
#ifndef CLI_CHAT_EDITOR_H
#define CLI_CHAT_EDITOR_H

#include "base/buf.h"
#include "base/err.h"

/* Let the user edit a text, in a file of mode 0600 that is removed afterwards,
 * and append the new text to *out, without its last newline and in UTF-8. The
 * caller must not be in a sandbox. Returns 0, or -1 with *e set, also if the
 * editor fails. */
int chat_editor_run(const char *text, size_t n, struct buf *out,
                    struct qwick_err *e);

#endif
