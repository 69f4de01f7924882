/* A checkpoint's chat template, ready to render conversations. */
#ifndef TEXT_CHAT_TEMPLATES_H
#define TEXT_CHAT_TEMPLATES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "file/json.h"
#include "text/bpe/bpe.h"

enum chat_bool { CHAT_UNSET = -1, CHAT_FALSE = 0, CHAT_TRUE = 1 };

struct chat_prompt {
    struct buf text;
    struct bpe_span *pieces; /* the parts of text that the template wrote,
                                ascending; adjacent parts are joined */
    size_t n_pieces;
    bool in_think;           /* text ends inside an open think block */
    const char *think_close; /* the tag that ends it; NULL: "</think>" */
    bool has_tools;          /* the template got tools */
    enum chat_bool think;    /* what it got as enable_thinking */
};

/* The variables of a template. */
struct chat_source {
    struct json_value messages; /* JSON_ARRAY, not empty, of objects with a
                                   string as "role" and perhaps "content",
                                   "reasoning_content", "tool_calls" */
    /* [messages.len] The message with its content as a list of parts, or NULL.
       An array that is NULL: no message has a list. */
    const struct json_value *const *parts;
    bool follows; /* other messages come before these, so that no system message
                     can move to the front */
    const struct json_value *tools; /* JSON_ARRAY; NULL: none */
    const struct json_value *args;  /* JSON_OBJECT of more variables, which win
                                       over those of settings; NULL: none */
    bool add_generation_prompt;
    enum chat_bool enable_thinking;
    size_t max_bytes; /* see template_render_within */
};

/* Keep only the text after the first occurrence of s. Returns 0, or -1 with *p
 * unchanged if the text does not contain s. */
int chat_prompt_cut(struct chat_prompt *p, const char *s);
void chat_prompt_free(struct chat_prompt *p);

struct chat_template;

/* The user's settings for a template. */
struct chat_template_settings {
    const char *args; /* a JSON object of further variables, or NULL */
    const char *time; /* the time of strftime_now, "YYYY-MM-DD HH:MM:SS"; the
                         time of day may be left out. NULL: the local time */
};

/* Read the template text[0..n). tokenizer_config (NULL: none) holds special
 * tokens, which become variables by their names. Everything is copied.
 *
 * name is for messages. A template that cannot be parsed does not fail here,
 * because text without a template still works: each rendering fails with the
 * parser's error. QWICK_ERR_USAGE if settings are wrong. */
int chat_template_open(struct chat_template **out, const char *name, const char *text,
                   size_t n, const struct json_value *tokenizer_config,
                   const struct chat_template_settings *settings,
                   struct qwick_err *e);
void chat_template_close(struct chat_template *f);

/* Check args of a chat_source: an object, or NULL, none of whose members has the
 * name of a variable that the conversation gives. Returns 0, or -1 with *e
 * set. */
int chat_template_check_args(const struct json_value *args,
                             struct qwick_err *e);

/* Return "qwen3" for the text of Qwen3's releases (white space at both ends
 * ignored), "jinja" for another template. */
const char *chat_template_name(const struct chat_template *f);

/* Render a conversation as Jinja would, with the messages in the form that the
 * template takes: see chat_fit.h. Variables of the conversation win over
 * variables of the settings. Call chat_prompt_free even after a failure. */
int chat_template_render(struct chat_prompt *out, const struct chat_template *f,
                     const struct chat_source *in, struct qwick_err *e);

#endif
