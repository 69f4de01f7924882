/* Calls of tools that have begun: what tool_calls.c knows of them before they
 * end. */
#ifndef TEXT_CALLS_BEGUN_H
#define TEXT_CALLS_BEGUN_H

#include "text/chat/tool_calls.h"

/* Take note of the last byte that is held, in a call of form f. Returns 0, or
 * -1 when out of memory. */
int calls_begun_feed(struct tool_calls *c, const struct call_form *f,
                     char byte);

/* Whether the n calls that were read behind the first ones go on as they have
 * begun. */
bool calls_begun_go_on(const struct tool_calls *c, size_t n);

void calls_begun_drop(struct tool_calls *c);

/* Free what the calls v[n] own. */
void tool_call_free(struct tool_call *v, size_t n);

#endif
