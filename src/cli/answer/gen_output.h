/* One answer of a verb that answers prompts: its options, its output as text or
 * JSON, and whether it is good enough for exit status 0. */
#ifndef CLI_GEN_OUTPUT_H
#define CLI_GEN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "text/chat/code_block.h"
#include "cli/answer/gen_job.h"
#include "text/chat/tool_calls.h"
#include "cli/report/paint.h"
#include "cli/report/profile.h"
#include "qwick.h"

/* An answer while it is generated. It stays where it is: o points to it and to
 * sampling. */
struct gen_output {
    struct gen_job *j;
    struct qwick_generate_options o;
    struct qwick_sampling sampling; /* of o */
    const size_t *sample; /* its number with --samples; NULL: the only answer */
    bool text;            /* stdout gets a text, not JSON */
    bool shows_thinking;  /* on stderr */
    bool dim;             /* it is dim there */
    bool may_end;         /* end the answer when its code block is closed */
    bool hold; /* keep what stdout shall get, until gen_output_release */

    /* The state; zeros at the start. */
    struct buf held;         /* kept by hold */
    struct buf items;        /* array items of "logprobs"; see json_logprobs */
    struct buf event;        /* lines of --jsonl; with --confidence, a piece */
    struct paint paint;      /* tokens of --confidence whose text is not out */
    struct tool_calls calls; /* calls.tools NULL: the chat has no tools */
    struct code_block block; /* with --extract; may begin with the text of
                                --prefill */
    size_t n_read;           /* bytes of the answer that came in tokens */
    bool printed;            /* the block is on stdout */
    bool wrote;              /* something was written to stdout */
    char last;               /* the last byte written to stdout */
    bool thinking;           /* stderr is showing thinking */
    char last_thinking;      /* the last byte of thinking written to stderr */
    bool had_thinking;       /* stdout has thinking, but no answer yet */
    enum schema_verdict schema; /* of the finished answer */
    struct qwick_err why_invalid;
    int status; /* exit status of a failed write, whose message is printed; 0:
                   no failure */
};

/* Set the options and the output of an answer with the seed. Returns 0, or an
 * exit status after printing a message. Call gen_output_free in both cases. */
int gen_output_begin(struct gen_output *x, struct gen_job *j,
                     const struct qwick_sampling *sampling, uint64_t seed,
                     const size_t *sample);

/* Generate the answer with the session of the job, and show progress until its
 * first token. Returns 0, or -1 with *e set. */
int gen_output_generate(struct gen_output *x, struct qwick_result *r,
                        struct qwick_err *e);

/* With --json and --jsonl: print the object of the answer. pr NULL: no profile.
 * Returns an exit status, after printing a message if it is not 0. */
int gen_output_json(struct gen_output *x, const struct qwick_result *r,
                    const struct profile *pr);

/* Warn when an answer is cut or empty, or lacks what the options demand.
 * Returns an exit status. */
int gen_output_status(const struct gen_output *x, const struct qwick_result *r);

/* With -v: print how long the answer took. */
void gen_note_timing(const struct qwick_result *r);

void gen_output_free(struct gen_output *x);

/* Return the sampling values of the run. The seed is the one of --seed, or
 * random. */
struct qwick_sampling gen_sampling(const struct gen_job *j);

/* ---- emit.c: the text and the events ---- */

/* The library's callback for tokens. ctx is a struct gen_output. */
int emit_token(void *ctx, const struct qwick_token_event *ev);

/* End the output of an answer, except for its JSON: write text that was held
 * back, and a newline if the text on stdout ends without one. Afterwards
 * x->block and x->calls have read the whole answer, and x->schema is known.
 * Corrects r->finish if -x ended it. Returns an exit status. */
int gen_output_end(struct gen_output *x, struct qwick_result *r);

/* End the output of an answer that failed. Returns the exit status of a write.
 */
int gen_output_fail(struct gen_output *x);

/* Write what hold kept, and hold nothing from now on. */
void gen_output_release(struct gen_output *x);

/* End the dim text of thinking, for a signal that ends the program.
 * Async-signal-safe. */
void emit_restore(void);

#endif
