/* Messages in the form that a template takes. Programs send the form of
 * OpenAI's API; templates differ in which parts of it they read. What a
 * template reads is found out by rendering small chats, once per template and
 * only when a chat needs to know:
 *
 * - Content as a list of parts stays a list where the template iterates it in
 *   messages of this role. Otherwise its texts are joined with newlines.
 * - Arguments of tool calls that are a string with an object of JSON become the
 *   object, unless the template prints the string as it is. A template that
 *   prints only strings gets the objects as JSON.
 * - In a message with tool calls, content that is null or missing is "".
 * - The thinking of an answer is the member that the template reads, of
 *   "reasoning_content", "thinking" and "reasoning". Templates that read
 *   "thinking" take no content beside it in a message with tool calls: there
 * the content follows the thinking.
 * - System messages at the start are joined with blank lines. A later one stays
 *   where it is if the template prints it there. Otherwise it is joined to the
 *   first, or becomes it. */
#ifndef TEXT_CHAT_FIT_H
#define TEXT_CHAT_FIT_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/err.h"
#include "file/json.h"
#include "text/chat/chat_templates.h"

enum chat_trait {
    TRAIT_SYSTEM_PARTS, /* the template iterates lists in these messages */
    TRAIT_USER_PARTS,
    TRAIT_ASSISTANT_PARTS,
    TRAIT_TOOL_PARTS,
    TRAIT_LATER_SYSTEM, /* it prints a system message where it stands */
    TRAIT_ARGUMENTS,    /* enum chat_arguments */
    TRAIT_THINKING,     /* index of the member with the thinking */
    N_CHAT_TRAITS
};

/* What a template takes as the arguments of a call. */
enum chat_arguments { ARGUMENTS_ANY, ARGUMENTS_OBJECT, ARGUMENTS_TEXT };

/* What is known about a template. All zeros: nothing. Threads may share it. */
struct chat_traits {
    _Atomic unsigned char known[N_CHAT_TRAITS]; /* 0, or 1 + the value */
};

struct chat_fit {
    struct chat_source source; /* for the template */
    struct arena arena;
    struct json_doc **docs; /* [n_docs] arguments of calls */
    size_t n_docs, cap_docs;
};

/* Fit a conversation to the template of f. *out refers to in. QWICK_ERR_USAGE
 * if a system message would have to move in front of messages that are not in
 * the source (in->follows). Call chat_fit_free even after a failure. */
int chat_fit(struct chat_fit *out, const struct chat_template *f,
             const struct chat_source *in, struct qwick_err *e);
void chat_fit_free(struct chat_fit *x);

/* ---- in chat_templates.c ---- */

struct chat_traits *chat_template_traits(const struct chat_template *f);
/* Render without a change of the messages. f's template has been parsed. */
int chat_template_render_as_is(struct chat_prompt *out, const struct chat_template *f,
                           const struct chat_source *in, struct qwick_err *e);

#endif
