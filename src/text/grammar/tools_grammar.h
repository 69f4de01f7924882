/* Calls of tools as a grammar: the texts that src/cli/tool_calls.c reads as
 * calls whose arguments the tools' schemas admit. */
#ifndef TEXT_TOOLS_GRAMMAR_H
#define TEXT_TOOLS_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grammar;

#define TOOLS_MAX_BYTES (1u << 20) /* of the definitions */
#define TOOLS_MAX       1000

/* How a model writes a call. */
enum tools_form {
    /* Qwen3, Hermes:
     *     <tool_call>
     *     {"name": NAME, "arguments": OBJECT}
     *     </tool_call> */
    TOOLS_JSON,
    /* Qwen3-Coder, Qwen3.5:
     *     <tool_call>
     *     <function=NAME>
     *     <parameter=KEY>
     *     VALUE
     *     </parameter>
     *     </function>
     *     </tool_call> */
    TOOLS_XML
};

struct tools_options {
    enum tools_form form;
    const char *tool; /* the text is one call of this tool; NULL: one call or
                         more, each of any tool, with a newline between them */
};

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

/* Return the node of all texts without a call: without "<tool_call>". */
uint32_t tools_no_call(struct grammar *g);

/* Find the form of calls in a prompt that shows one. Returns 0, or -1 if it
 * shows none that is known. */
int tools_form_of(enum tools_form *out, const char *prompt, size_t n);

#endif
