/* Qwen3's chat template, in C. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "file/json.h"
#include "text/bpe/bpe.h"

enum chat_known {
    CHAT_NONE,    /* the checkpoint has no template */
    CHAT_QWEN3,   /* the text of one of Qwen3's releases */
    CHAT_UNKNOWN, /* another text, for the interpreter */
};

/* Recognise a template by its content (white space at both ends ignored). */
enum chat_known chat_recognise(const char *text, size_t n);

enum chat_bool { CHAT_UNSET = -1, CHAT_FALSE = 0, CHAT_TRUE = 1 };

struct chat_prompt {
    struct buf text;
    struct bpe_span *pieces; /* the parts of text that the template wrote,
                                ascending; adjacent parts are joined */
    size_t n_pieces;
    bool in_think;           /* text ends inside an open think block */
    const char *think_close; /* the tag that ends it; NULL: "</think>" */
};

/* The variables of a template. */
struct chat_source {
    struct json_value messages;     /* JSON_ARRAY, not empty, of objects with a
                                       string as "role" and perhaps "content",
                                       "reasoning_content", "tool_calls" */
    /* [messages.len] for chat_template_render: the message with its content as a
       list of parts, or NULL. An array that is NULL: no message has a list. */
    const struct json_value *const *parts;
    bool follows; /* for chat_template_render: other messages come before these, so
                     that no system message can move to the front */
    const struct json_value *tools; /* JSON_ARRAY; NULL: none */
    bool add_generation_prompt;
    enum chat_bool enable_thinking;
};

/* Render a conversation byte for byte as the Jinja template does. Errors have
 * code USAGE; their text begins with "chat: " and tells which message and field
 * is wrong. Call chat_prompt_free even after a failure. */
int chat_render(struct chat_prompt *out, const struct chat_source *in,
                struct qwick_err *e);
/* Keep only the text after the first occurrence of s. Returns 0, or -1 with *p
 * unchanged if the text does not contain s. */
int chat_prompt_cut(struct chat_prompt *p, const char *s);
void chat_prompt_free(struct chat_prompt *p);

#endif
