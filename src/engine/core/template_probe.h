/* What the chat template shows of its model: how it writes calls of tools, and
 * which tokens end an answer. */
#ifndef ENGINE_TEMPLATE_PROBE_H
#define ENGINE_TEMPLATE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct qwick_engine;

/* Render small chats. Sets eng->call_form and eng->call_tags, and adds to the
 * stop ids the tokens that follow an answer and a call: a model whose files
 * name another end would go on with the next turn. think_open and think_close
 * must be set. A template that refuses the chats shows nothing. Returns 0, or
 * -1 when out of memory. */
int engine_probe_template(struct qwick_engine *eng, struct qwick_err *e);

/* Whether a token is a tag of calls: answers have it as text. */
bool engine_is_call_tag(const struct qwick_engine *eng, int32_t id);

#endif
