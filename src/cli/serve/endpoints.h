/* The functions of the endpoints, for the rows of serve_endpoints; see struct
 * endpoint. */
#ifndef CLI_ENDPOINTS_H
#define CLI_ENDPOINTS_H

#include "cli/serve/serve.h"

/* ---- chat.c: conversations ---- */

int chat_prepare(struct serve_call *c, struct serve_error *e);
int chat_start(struct serve_call *c, struct serve_error *e);
void chat_cancel(struct serve_call *c);
bool chat_waits(const struct serve_call *c);
void chat_free(struct serve_call *c);

/* ---- messages.c: /v1/messages/count_tokens ---- */

int count_prepare(struct serve_call *c, struct serve_error *e);

/* ---- vectors_api.c: /v1/embeddings, /v1/rerank ---- */

/* Before the sandbox: read the files that embeddings need, if the server gives
 * any. Returns 0, or an exit status after printing a message. */
int embeddings_open(struct serve *s);

int embeddings_prepare(struct serve_call *c, struct serve_error *e);
int embeddings_start(struct serve_call *c, struct serve_error *e);
int embeddings_slice(struct serve_call *c, struct serve_error *e);
void embeddings_free(struct serve_call *c);

int rerank_prepare(struct serve_call *c, struct serve_error *e);
int rerank_start(struct serve_call *c, struct serve_error *e);
int rerank_slice(struct serve_call *c, struct serve_error *e);
void rerank_free(struct serve_call *c);

/* ---- texts_api.c: /tokenize, /detokenize, /score ---- */

int tokenize_prepare(struct serve_call *c, struct serve_error *e);
int detokenize_prepare(struct serve_call *c, struct serve_error *e);

int scoring_prepare(struct serve_call *c, struct serve_error *e);
int scoring_start(struct serve_call *c, struct serve_error *e);
int scoring_slice(struct serve_call *c, struct serve_error *e);
void scoring_free(struct serve_call *c);

/* ---- completions.c: /v1/completions ---- */

int completion_prepare(struct serve_call *c, struct serve_error *e);
int completion_start(struct serve_call *c, struct serve_error *e);
int completion_slice(struct serve_call *c, struct serve_error *e);
void completion_cancel(struct serve_call *c);
bool completion_waits(const struct serve_call *c);
void completion_free(struct serve_call *c);

/* ---- serve_slice.c: what endpoints with slices share ---- */

/* The interrupt of their passes: a call that shall end stops its pass. */
const volatile int *slice_interrupt(const struct serve_call *c);
/* The callback for progress of their passes. ctx is the server. */
void slice_layer(void *ctx, size_t n_done, size_t n_total);
/* The end of a slice whose step has failed: returns -1 with *e set, or 1 if it
 * was interrupted, because the core then sees that the call shall end. */
int slice_fault(struct serve_error *e, const struct qwick_err *why);

#endif
