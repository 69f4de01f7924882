/* The chat that generate feeds to the library, as JSON, and its last user text,
 * which --overflow may shorten. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/json_writer.h"
#include "file/json.h"
#include "qwick.h"

struct chat_input {
    struct json_doc *doc; /* --chat-json; NULL: made of the texts below */
    const struct json_value *last_user; /* message of doc, or NULL */
    const char *system;                 /* NULL: none */
    size_t n_system;
    const char *text; /* of the last user message; borrowed */
    size_t n_text;
};

/* Parse a chat object or array of messages. Code USAGE. */
int chat_input_parse(struct chat_input *in, const char *name, const char *json,
                     size_t n, struct qwick_err *e);
/* PATH as messages name it: "-" is standard input. */
const char *chat_input_name(const char *path);
/* msg_fail for an error of the library, which knows the chat as "chat": say its
 * file (NULL: it had none). */
int chat_input_fail(const char *path, const struct qwick_err *e);
void chat_input_free(struct chat_input *in);

/* What the chat itself says about thinking, else think. */
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
