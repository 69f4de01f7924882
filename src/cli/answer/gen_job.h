/* A run of generate: its arguments and its state. choose, chat and batch use
 * parts of it. */
#ifndef CLI_GEN_JOB_H
#define CLI_GEN_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/answer_opts.h"
#include "cli/answer/constraint_opts.h"
#include "cli/answer/tool_choice.h"
#include "cli/answer/tools.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/preset.h"
#include "qwick.h"

struct log_db;

enum gen_mode { MODE_CHAT, MODE_RAW, MODE_IDS };

struct gen_job {
    struct opt_parsed *p;
    enum gen_mode mode;
    enum qwick_think think;
    const char *arg; /* prompt, given as an argument or by -p */
    struct buf text; /* composed prompt; of records: what stands before each */
    struct buf system; /* data NULL: none */
    struct buf prefill;
    struct qwick_chat *chat; /* made from --chat-json when that is read, or from
                                text and system when they are encoded */
    struct tool_list tools;  /* of --tools or of --chat-json */
    struct tool_choice choice; /* of --tool-choice or of --chat-json */
    int32_t *ids;
    size_t n_ids;
    bool in_think;    /* the prompt ends inside an open think block */
    size_t n_dropped; /* tokens that --overflow cut */
    double start_ms;  /* when the run began, from which --timeout counts; 0: it
                         counts from the prompt's evaluation */
    double tokenize_ms;
    struct qwick_engine *eng;
    struct qwick_engine *draft; /* NULL: none */
    struct qwick_session *ses;
    size_t limit;                        /* of the session's context */
    struct qwick_constraint *constraint; /* NULL: none */
    enum qwick_constraint_kind kind;     /* of the constraint */
    struct qwick_bias *bias; /* [logit_bias.n of the options]; NULL: none */
    int think_fd, profile_fd;            /* files of options; 0: none */
    struct log_db *log;                  /* of --log; NULL: none */
    int lock_fd; /* of --conversation; 0: none */
    char *last_model; /* that gave its last answer; NULL: unknown */
};

/* Check the options and words of a verb that answers one prompt. Returns -1 to
 * go on, or exit status 2 after printing a message. */
int gen_check(struct opt_parsed *p);

/* "qwick tokenise" and "qwick list" are answered as prompts. Warn that the user
 * probably meant a verb. */
void gen_warn_verb(const struct gen_job *j);

/* Read all files and standard input, before the model is opened. Returns 0, or
 * an exit status after printing a message. */
int gen_read_input(struct gen_job *j, struct qwick_err *e);

/* Read the texts that stand before the prompts of records: of -s, of files and
 * of --prefill. Returns 0, or an exit status after printing a message. */
int gen_read_before(struct gen_job *j, struct qwick_err *e);

/* Set j->mode from the options and the open checkpoint. If the checkpoint has
 * no template, prompts are raw, and options that need a template are refused.
 * Returns 0, or an exit status after printing a message. */
int gen_choose_mode(struct gen_job *j);

/* Check, before any work is done, whether the directory of --save-session is
 * writable. Returns 0, or an exit status after printing a message. */
int gen_check_save(const struct gen_job *j);

/* Open a new session, or the saved session of --session. Returns 0, or an exit
 * status after printing a message. */
int gen_open_session(struct gen_job *j);

/* Put the tokens of the saved session before the ids of a prompt that is not a
 * chat. Returns 0, or -1 with *e set. */
int gen_continue(struct gen_job *j, struct qwick_err *e);

/* Save the session to the file of --save-session, with a note (NULL: none).
 * Returns an exit status, after printing a message if it is not 0. */
int gen_save(struct gen_job *j, const struct qwick_result *r, const char *note,
             size_t n_note);

/* ---- $XDG_STATE_HOME/qwick/last.json: the conversation that --keep keeps and
 * --continue goes on with ---- */

/* Refuse --keep when the session of --session has no messages. Returns -1 to go
 * on, or exit status 2 after printing a message. */
int gen_kept_check_session(const struct gen_job *j);

/* With --keep or --continue: make the directory of the file, before any work is
 * done. Returns 0, or an exit status after printing a message. */
int gen_kept_prepare(const struct gen_job *j);

/* Open the file of --continue or --conversation for reading, to see that it is the
 * user's own, and keep other processes from the conversation. Sets *path, which the
 * caller frees; NULL: the conversation begins. Returns 0, or an exit status after
 * printing a message. */
int gen_kept_find(struct gen_job *j, char **path);

/* On a terminal, say which conversation goes on. */
void gen_kept_hint(const struct qwick_chat *c);

/* After the answer: store the prompt in the prefix cache, keep the conversation
 * for --continue, and save the session to its file. Returns an exit status,
 * after printing a message if it is not 0. */
int gen_keep(struct gen_job *j, const struct qwick_result *r);

/* Set the ids of the prompt. If they do not fit the session's context, they are
 * cut as --overflow says. Returns 0, or -1 with *e set. */
int gen_encode(struct gen_job *j, struct qwick_err *e);

/* Set *id to the control token with this text; -1 if there is none. Returns 0,
 * or -1 with *e set when out of memory. */
int gen_control_id(const struct qwick_engine *eng, const char *text,
                   int32_t *id, struct qwick_err *e);

/* Return whether ids[0..n) end inside an open think block. */
bool gen_ids_in_think(const struct qwick_engine *eng, const int32_t *ids,
                      size_t n);

/* Set *o to the constraint of the options or of the choice of tools; its name
 * is NULL if there is none. (With the choice auto, calls have one, unless the
 * answer goes on with a text or has no end.) *text owns its text; free it with
 * free(). Returns 0, or an exit status after printing a message. */
int gen_read_constraint(struct gen_job *j, struct qwick_constraint_options *o,
                        char **text);
/* Compile it. Returns 0, or an exit status after printing a message. */
int gen_open_constraint(struct gen_job *j);

/* Free what a job has. */
void gen_free(struct gen_job *j);

#endif
