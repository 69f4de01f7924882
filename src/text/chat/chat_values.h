/* A chat as JSON values, for callers that have parsed it as a part of something
 * else: the command line's records hold chats, and are not parsed again. */
#ifndef TEXT_CHAT_VALUES_H
#define TEXT_CHAT_VALUES_H

#include "base/err.h"
#include "file/json.h"

struct qwick_chat;

/* Members of a chat object. NULL: it does not have this one. */
struct chat_values {
    const struct json_value *messages;
    const struct json_value *tools;
    const struct json_value *add_generation_prompt;
    const struct json_value *enable_thinking;
    const struct json_value *template_args; /* an object: more variables of the
                                               template */
};

/* Return the members of an object. An array counts as an object that has only
 * messages. Any other value has no members. template_args stays NULL: it is no
 * member of a chat. */
struct chat_values chat_values_of(const struct json_value *v);

/* Append the messages and apply the other members, as qwick_chat_add_json does.
 * The chat refers to the values: they must outlive it. Returns 0, or -1 with *e
 * set and the chat unchanged. */
int chat_add_values(struct qwick_chat *c, const struct chat_values *v,
                    struct qwick_err *e);

#endif
