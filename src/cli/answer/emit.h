/* Prints an answer token by token, as text or as JSON events. */
#ifndef CLI_EMIT_H
#define CLI_EMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/answer/code_block.h"
#include "cli/report/paint.h"
#include "cli/answer/tool_calls.h"
#include "qwick.h"

enum emit_mode { EMIT_TEXT, EMIT_JSON, EMIT_JSONL };

struct emit {
    enum emit_mode mode;
    const struct qwick_engine *eng;
    bool stderr_tty;
    bool show_thinking; /* print the thinking on stdout */
    bool dim;           /* dim the thinking on stderr */
    bool no_newline;    /* add no newline at the end of the text */
    bool null;          /* end the text with a NUL byte instead of a newline */
    bool logprobs;      /* collect log-probabilities */
    bool extract;       /* find the first code block; EMIT_TEXT prints only
                           this block, when it is closed */
    bool may_end;       /* end the answer when the block is closed */
    int think_fd;       /* descriptor of --think-file; -1: none */
    const char *think_file;
    const size_t *sample; /* its number, for the events of --jsonl; NULL: the
                             only answer */
    bool coloured;        /* colour the tokens on stdout by probability */
    bool hold;            /* keep what stdout shall get, until emit_release */

    /* The state; zeros at the start. */
    struct buf held;         /* kept by hold */
    struct buf items;        /* array items of "logprobs"; see json_logprobs */
    struct buf event;        /* one line of --jsonl; with coloured, a piece */
    struct paint paint;      /* with coloured: tokens whose text is not out */
    size_t n_text;           /* bytes of the answer written */
    struct tool_calls calls; /* calls.tools NULL: the chat has no tools */
    size_t n_calls;          /* bytes of the answer that calls has read */
    struct code_block block; /* with extract; may begin with the text of
                                --prefill */
    size_t n_block;          /* bytes of the answer that block has read */
    bool printed;            /* the block is on stdout */
    bool wrote;              /* something was written to stdout */
    char last;               /* the last byte written to stdout */
    bool thinking;           /* stderr is showing thinking */
    char last_thinking;      /* the last byte of thinking written to stderr */
    bool had_thinking;       /* stdout has thinking, but no answer yet */
    int status; /* exit status of a failed write, whose message is printed; 0:
                   no failure */
};

/* The library's callback for tokens. ctx is a struct emit. */
int emit_token(void *ctx, const struct qwick_token_event *ev);

/* Return whether emit_token ended the answer because its code block is
 * closed. */
bool emit_has_ended(const struct emit *st);

/* End the output: write the text that was held back, and a newline if the text
 * on stdout ends without one. Afterwards st->block and st->calls have read the
 * whole answer. */
void emit_end(struct emit *st, const struct qwick_result *r);

/* Write what hold kept, and hold nothing from now on. */
void emit_release(struct emit *st);

/* End the dim text of thinking, for a signal that ends the program.
 * Async-signal-safe. */
void emit_restore(void);

void emit_free(struct emit *st);

#endif
