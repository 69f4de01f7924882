/* Calls of tools as a grammar: the texts that text/chat/tool_calls.h reads as
 * calls whose arguments the tools' schemas admit. */
#ifndef TEXT_TOOLS_GRAMMAR_H
#define TEXT_TOOLS_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct call_form;
struct grammar;

#define TOOLS_MAX_BYTES (1u << 20) /* of the definitions */
#define TOOLS_MAX       1000

struct tools_options {
    const struct call_form *form;
    const char *tool; /* the text is one call of this tool; NULL: one call or
                         more, each of any tool; one call where the form has
                         only one */
    bool lenient;     /* of the schemas of all tools without "strict": true,
                         see schema_options */
    bool optional;    /* The text is free, and has calls of any tools or none:
                         a call is checked from the mark on that begins it. A
                         definition that cannot be held does not fail, unless
                         it has "strict": true; others are lenient. If only a
                         schema cannot be held, the arguments of its calls are
                         any object. */
    bool unchecked;   /* with optional: hold no schema, as if all of them were
                         too large, except those with "strict": true */
    void (*warn)(void *ctx, const char *text); /* with optional: says what is
                                                  not checked, and why; NULL:
                                                  nobody is told */
    void *warn_ctx;
};

struct json_value;

/* Whether a tool's schema is lenient by itself: "strict" is false. See
 * tool_definition. */
bool tool_is_lenient(const struct json_value *definition);

/* Add the calls of the tools text[0..n) to g, and set *root to their rule, for
 * grammar_finish. The text is a JSON array of definitions in OpenAI's form,
 * {"type": "function", "function": {"name", "parameters"?}}, or without its
 * outer object. A tool without "parameters" has no arguments.
 *
 * Returns 0, or -1 with *e set: QWICK_ERR_USAGE for a text that is not such an
 * array, an unknown o->tool, and schemas that are refused; QWICK_ERR_MEMORY.
 * The message begins with the grammar's name. */
int tools_compile(struct grammar *g, const char *text, size_t n,
                  const struct tools_options *o, uint32_t *root,
                  struct qwick_err *e);

/* Return the node of all texts without a call of this form: without its opening
 * tag, or if the whole answer would be a call, texts that do not begin with
 * "{". */
uint32_t tools_no_call(struct grammar *g, const struct call_form *form);

#endif
