/* A chat as JSON, and its last user text, which --overflow may shorten. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/json_writer.h"
#include "file/json.h"
#include "qwick.h"

struct chat_input {
    struct json_doc *doc; /* of --chat-json; NULL: system and text are it */
    const struct json_value *last_user; /* the message in doc, or NULL */
    const char *system;                 /* NULL: none */
    size_t n_system;
    const char *text; /* [n_text] of the last user message; borrowed */
    size_t n_text;
};

/* Parse an array of messages, or an object with one as "messages". Returns 0,
 * or -1 with *e set (QWICK_ERR_USAGE); name is for messages. */
int chat_input_parse(struct chat_input *in, const char *name, const char *json,
                     size_t n, struct qwick_err *e);
/* The name of a path in messages: "-" becomes "standard input". */
const char *chat_input_name(const char *path);
/* msg_fail for an error of the library. The library calls the chat "chat"; the
 * message names its file instead. NULL: it came from no file. */
int chat_input_fail(const char *path, const struct qwick_err *e);
void chat_input_free(struct chat_input *in);

/* The chat's own "enable_thinking"; think if it has none. */
enum qwick_think chat_input_think(const struct chat_input *in,
                                  enum qwick_think think);

/* Write one message of a chat. */
void chat_put_message(struct json_writer *w, const char *role, const char *text,
                      size_t n);

/* Append the chat as JSON, the last user text replaced by text[0..n). -1: out
 * of memory. */
int chat_input_json(const struct chat_input *in, struct buf *out,
                    const char *text, size_t n);

#endif
