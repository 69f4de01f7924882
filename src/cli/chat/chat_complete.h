/* What Tab adds at the end of a line of chat. */
#ifndef CLI_CHAT_COMPLETE_H
#define CLI_CHAT_COMPLETE_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/chat/chat_command.h"

/* Complete line[0..n): the name of a command after a slash at its beginning,
 * or, after a command, the last word as the name of a file, as
 * chat_command_file reads it. rows: the commands. Appends the
 * text that all names with this beginning share to *insert; or, if that is
 * empty, a list of these names to *list. Names that would need an escape are
 * left out, because nobody could type them. Returns 0, or -1 when out of
 * memory. */
int chat_complete(const struct chat_command *rows, const char *line, size_t n,
                  struct buf *insert, struct buf *list);

#endif
