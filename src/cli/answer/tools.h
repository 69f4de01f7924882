/* Definitions of tools: the file of --tools, and the tools of a chat. */
#ifndef CLI_TOOLS_H
#define CLI_TOOLS_H

#include "file/json.h"
#include "qwick.h"

/* A list of definitions. All zeros is an empty one. */
struct tool_list {
    struct json_doc *doc;            /* owns the values; NULL: none */
    struct json_value list;          /* an array; len 0: no tools */
    const struct json_value *choice; /* "tool_choice" of a chat; NULL: none */
};

/* Read the file of --tools: an array of definitions in OpenAI's form
 * ({"type": "function", "function": {"name", …}}), one definition, or an object
 * with an array "tools". Each has a name of its own. Returns 0, or an exit
 * status after printing a message. */
int tools_read(struct tool_list *t, const char *path);

/* Check a list of definitions in OpenAI's form, as tools_read does. Messages
 * begin with `before` and a path such as tools[0].function.name. Returns 0, or
 * -1 with *e set. */
int tools_check(const struct json_value *list, const char *before,
                struct qwick_err *e);

/* Read "tools" and "tool_choice" of a chat that is known to be valid. It may
 * have none.
 * Returns 0, or -1 with *e set. */
int tools_of_chat(struct tool_list *t, const char *json, size_t n,
                  struct qwick_err *e);

/* Give the tools of a list, if it has any, to a chat, which keeps the address:
 * the list must outlive it. Returns 0, or -1 with *e set. */
int tools_add(struct qwick_chat *c, const struct json_value *list,
              struct qwick_err *e);

/* Refuse a chat template that prints nothing of the tools, or whose calls have
 * no form that is known. Returns 0, or an exit status after printing a
 * message. */
int tools_check_template(const struct tool_list *t,
                         const struct qwick_engine *eng);

void tools_free(struct tool_list *t);

#endif
