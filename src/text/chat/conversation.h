/* The turns of a conversation. The public functions qwick_chat_… that need no
 * engine are in conversation.c. */
#ifndef TEXT_CONVERSATION_H
#define TEXT_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include "file/json.h"
#include "text/chat/chat_templates.h"
#include "text/chat/chat_values.h"

/* All zeros is a conversation without messages. */
struct qwick_chat {
    /* [n] Objects with a string as "role", which is never "developer" or
       "function".
       "content" is a string, null or absent. Other members are unchanged. */
    struct json_value *messages;
    struct message_memory **memory; /* [n] of each message, or NULL */
    const struct json_value **parts; /* [n] the message with its content as a
                                        list of parts, or NULL */
    size_t n, cap, cap_memory, cap_parts;
    struct json_doc **docs; /* [n_docs] which messages and tools refer to */
    size_t n_docs, cap_docs;
    const struct json_value *tools; /* an array, or NULL */
    const struct json_value *template_args; /* an object, or NULL */
    enum chat_bool add_generation_prompt, enable_thinking;
};

/* Get the input of the template: *out refers to c. The caller's
 * add_generation_prompt and think count unless c overrules them. A conversation
 * without messages: QWICK_ERR_USAGE. */
int conversation_source(const struct qwick_chat *c, bool add_generation_prompt,
                        enum chat_bool think, struct chat_source *out,
                        struct qwick_err *e);

#endif
