/* Anthropic's Messages: /v1/messages and /v1/messages/count_tokens. */
#ifndef CLI_MESSAGES_H
#define CLI_MESSAGES_H

#include <stdbool.h>

#include "cli/answer/body_members.h"

/* ---- messages_body.c: from a body to a record ---- */

/* After body_begin: write the members of the record for a body. counts: the
 * request only counts the tokens of its prompt. has_budget: the model's
 * thinking can be limited. Returns 0, or -1 with *x->e and x->fault set. */
int messages_read_body(struct body_reader *x, bool counts, bool has_budget);

/* Return a body's name for a member of the record. */
const char *messages_member_name(const char *name);

/* ---- messages_turns.c ---- */

/* Write "messages" of the record from "system" and "messages" of the body.
 * Returns as messages_read_body does. */
int messages_put_turns(struct body_reader *x);

#endif
