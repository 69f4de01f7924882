/* An answer on its way out: text on stdout, thinking elsewhere, or events. */
#ifndef CLI_EMIT_H
#define CLI_EMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "qwick.h"

enum emit_mode { EMIT_TEXT, EMIT_JSON, EMIT_JSONL };

struct emit {
    enum emit_mode mode;
    const struct qwick_engine *eng;
    bool stderr_tty;
    bool show_thinking; /* on stdout */
    bool dim;           /* colour the thinking on stderr */
    bool no_newline;    /* a text on stdout ends as the model ended it */
    bool logprobs;      /* collect items */
    int think_fd;       /* -1: none */
    const char *think_file;
    /* state */
    struct buf items; /* of the "logprobs" array */
    struct buf event; /* one line of --jsonl */
    size_t n_text;    /* bytes of the answer written */
    bool wrote;       /* some of the text is on stdout */
    char last;        /* byte written to stdout */
    bool thinking;    /* thinking is being shown on stderr */
    char last_thinking;
    bool had_thinking; /* shown on stdout, the answer has not begun */
    int status;        /* exit status of a failed write, reported; 0: fine */
};

/* The token callback; ctx is the stream. */
int emit_token(void *ctx, const struct qwick_token_event *ev);

/* The prefill callback: the line of progress, which ends with the first token.
 */
void emit_progress(void *ctx, size_t done, size_t total);

/* After the generation: write the text that was held back, and a newline where
 * the text on stdout ends without one. */
void emit_end(struct emit *st, const struct qwick_result *r);

void emit_free(struct emit *st);

#endif
