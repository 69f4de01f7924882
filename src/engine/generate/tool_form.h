/* The form in which a model writes calls of tools. */
#ifndef ENGINE_TOOL_FORM_H
#define ENGINE_TOOL_FORM_H

#include "base/err.h"
#include "text/grammar/tools_grammar.h"

struct qwick_engine;

/* Find the form in what the chat template prints for a chat with a call.
 * QWICK_ERR_USAGE if there is no template, or it prints no form that is
 * known. */
int tool_form_find(const struct qwick_engine *eng, enum tools_form *out,
                   struct qwick_err *e);

#endif
