/* Whether the model may or must call tools: --tool-choice, and "tool_choice" of
 * chats and records. */
#ifndef CLI_TOOL_CHOICE_H
#define CLI_TOOL_CHOICE_H

#include "base/buf.h"
#include "cli/opt/opt.h"
#include "file/json.h"
#include "qwick.h"

/* All zeros: auto. */
struct tool_choice {
    enum {
        CHOICE_AUTO,     /* the model decides */
        CHOICE_NONE,     /* the answer has no call */
        CHOICE_REQUIRED, /* the answer is calls of any tools */
        CHOICE_TOOL      /* the answer is one call of the tool `name` */
    } kind;
    char *name;
};

/* Read the value of --tool-choice; NULL: auto. Returns 0, or -1 when out of
 * memory. */
int tool_choice_parse(struct tool_choice *out, const char *text);

/* Read "tool_choice" of OpenAI's form: "auto", "none", "required", or
 * {"type": "function", "function": {"name": NAME}}. Returns 0, or -1 with *e
 * set; the message begins with "tool_choice: ". */
int tool_choice_read(struct tool_choice *out, const struct json_value *v,
                     struct qwick_err *e);

void tool_choice_free(struct tool_choice *c);

/* Refuse options that a choice other than auto cannot be combined with. name:
 * of the choice, for the message. Returns -1 to go on, or exit status 2 after
 * printing a message. */
int tool_choice_check(const struct tool_choice *c, const char *name,
                      const struct opt_parsed *p);

/* Set *o to the constraint of a choice. tools: an array. The
 * text of *o is appended to *text and borrowed, as is the name of the tool.
 * Returns 0, or -1 with *e set. */
int tool_choice_constraint(const struct tool_choice *c,
                           const struct json_value *tools, struct buf *text,
                           struct qwick_constraint_options *o,
                           struct qwick_err *e);

#endif
