/* /v1/chat/completions. See struct endpoint. */
#ifndef CLI_SERVE_CHAT_H
#define CLI_SERVE_CHAT_H

#include "cli/serve/serve.h"

int chat_prepare(struct serve_call *c, struct serve_error *e);
int chat_start(struct serve_call *c, struct serve_error *e);
void chat_cancel(struct serve_call *c);
void chat_free(struct serve_call *c);

#endif
