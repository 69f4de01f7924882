/* Puts the lines that a user types together to one message. */
#ifndef CLI_CHAT_TEXT_H
#define CLI_CHAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* A message in the making; all zeros is an empty one.
 *
 * A line that ends in a backslash goes on in the next line. Lines between two
 * lines of three double quotes are one text, which is never a command. A "line"
 * may itself hold newlines, when it was pasted or comes from the history: then
 * it is one piece of text. */
struct chat_text {
    struct buf text;
    size_t n_lines; /* in a block: lines, or pieces, that were added */
    bool open;      /* more lines follow */
    bool block;     /* the text is, or was, between lines of quotes */
};

/* Add a line without its newline. *complete: the message ends with it. Returns
 * 0, or -1 when out of memory. */
int chat_text_add(struct chat_text *t, const char *line, size_t n,
                  bool *complete);

/* Append what the user would type in one piece to get this message again, for
 * the history. Returns 0, or -1 when out of memory. */
int chat_text_entry(const struct chat_text *t, struct buf *out);

/* Make the message empty again. */
void chat_text_clear(struct chat_text *t);
void chat_text_free(struct chat_text *t);

#endif
