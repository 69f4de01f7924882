/* The form of commands at the prompt of chat: "/name argument". */
#ifndef CLI_CHAT_COMMAND_H
#define CLI_CHAT_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct chat;

/* Append the words that may follow words[0..n) of an argument, each with a
 * newline. Returns 0, or -1 when out of memory. */
typedef int chat_words_fn(struct buf *out, const char *words, size_t n);

/* A row of the table of commands. */
struct chat_command {
    const char *name; /* without the slash */
    const char *args; /* "[TEXT]", "FILE", "FILE [TEXT]": the argument is or
                         begins with a file's name. "": it takes no argument */
    const char *help; /* NULL: another name of a row, which /help leaves out */
    int (*run)(struct chat *c); /* with c->arg and c->file. Returns 0, or an
                                   exit status that ends the chat */
    chat_words_fn *words;       /* for Tab; NULL: names of files */
};

/* Return whether a text has the form of a command: a slash, letters or a
 * question mark, then a blank or the end of the line. Paths such as /etc/fstab
 * have another form. */
bool chat_command_is(const char *text);

/* Return the number of blanks before the slash of a text that is a command
 * without them; else 0. Users put a blank before a text that begins like a
 * command. */
size_t chat_command_skip(const char *text);

/* Find the command of a text for which chat_command_is is true. *arg is set to
 * the text after the name and its blanks. Returns NULL if no row has the name.
 * rows end with a row without a name. */
const struct chat_command *chat_command_find(const struct chat_command *rows,
                                             const char *text,
                                             const char **arg);

/* Return the name of the command that the user probably meant: the beginning of
 * the name of exactly one command, or one with few typing errors. NULL if there
 * is none. */
const char *chat_command_near(const struct chat_command *rows,
                              const char *text);

/* Read a file's name from the beginning of an argument: up to the first blank
 * without a backslash before it, or in double quotes, in which \" and \\ stand
 * for these characters. "~/" at its beginning becomes the directory of $HOME.
 * whole: an unquoted name is all of the argument, with blanks. *rest is set to
 * the text after the name and its blanks. Returns NULL, or the reason why the
 * name cannot be read. *out stays empty if the argument is empty. */
const char *chat_command_file(const char *arg, bool whole, struct buf *out,
                              const char **rest);

#endif
