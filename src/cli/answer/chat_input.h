/* Chats of the command line: functions that make them, and messages about
 * them. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "qwick.h"

/* Append the messages of a command line: system[0..n_system), unless system is
 * NULL, and the user's text[0..n). Returns 0, or -1 with *e set. */
int chat_input_texts(struct qwick_chat *c, const char *system, size_t n_system,
                     const char *text, size_t n, struct qwick_err *e);

/* Refuse messages that a template would silently drop. Returns 0, or -1 with *e
 * set (QWICK_ERR_USAGE). The message begins with `before`. */
int chat_input_check(const struct qwick_chat *c, const char *before,
                     struct qwick_err *e);

/* Find the last message of the user that has a text. Sets *i to its index and
 * *out to the message. Returns false if there is none. */
bool chat_input_last_user(const struct qwick_chat *c, size_t *i,
                          struct qwick_message *out);

/* Print an error of the library, and return its exit status. The library calls
 * the chat "chat"; the message names the file `path` instead. path NULL: the
 * chat came from no file. */
int chat_input_fail(const char *path, const struct qwick_err *e);

/* Return the chat's own "enable_thinking"; `think` if it has none, or c is
 * NULL. */
enum qwick_think chat_input_think(const struct qwick_chat *c,
                                  enum qwick_think think);

#endif
