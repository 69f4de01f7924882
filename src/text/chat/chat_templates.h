/* A checkpoint's chat template, ready to render conversations. */
#ifndef TEXT_CHAT_TEMPLATES_H
#define TEXT_CHAT_TEMPLATES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/json.h"
#include "text/chat/chat.h"

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

/* Return "qwen3" for the text of Qwen3's releases, "jinja" for another
 * template. */
const char *chat_template_name(const struct chat_template *f);

/* Render a conversation as Jinja would, with the messages in the form that the
 * template takes: see chat_fit.h. Variables of the conversation win over
 * variables of the settings. Call chat_prompt_free even after a failure.
 */
int chat_template_render(struct chat_prompt *out, const struct chat_template *f,
                     const struct chat_source *in, struct qwick_err *e);

#endif
