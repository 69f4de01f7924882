/* A run of chat: its state, its turns and its commands. */
#ifndef CLI_CHAT_JOB_H
#define CLI_CHAT_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/gen_job.h"
#include "cli/chat/chat_command.h"
#include "cli/chat/chat_line.h"
#include "cli/chat/chat_model.h"
#include "cli/chat/chat_set.h"
#include "cli/chat/chat_text.h"
#include "cli/io/out.h"
#include "qwick.h"

struct chat {
    struct gen_job j; /* j.chat is the conversation. Only in the process of the
                         model, j.eng is open and j.ses has the tokens */
    struct chat_model model;
    struct chat_settings set; /* of /set and /model */
    const struct opt *change; /* what CHAT_SET is about */
    struct chat_line *line;
    struct buf history;  /* path of the file; empty: none */
    struct buf files;    /* texts of /read, for the next message */
    const char *session; /* path of --session; NULL: none */
    bool unsaved;        /* the conversation is newer than that file */
    bool evaluate; /* that file may be of another model: /model was used */
    struct qwick_chat *cleared; /* what /clear dropped, for /undo; NULL: none */
    uint64_t seed;       /* of the first answer */
    uint64_t n_answers;  /* answers that were begun: each has its own seed */
    bool has_last;
    struct chat_numbers last, total;
    bool quit;
    const char *arg;  /* of the command that runs: trimmed, perhaps empty; after
                         the  file, if the command takes one */
    const char *file; /* of the command that runs */
};

/* ---- chat_turn.c ---- */

/* Send a message: the texts of /read, then text[0..n). A message that gets no
 * token of an answer is taken back. Returns 0, or an exit status that ends the
 * chat, after printing a message. */
int chat_send(struct chat *c, const char *text, size_t n);

/* Fill a text into the template of -T or --prompt-template, if there is one.
 * Returns 0, or -1 with *e set. */
int chat_fill(const struct chat *c, struct buf *text, struct qwick_err *e);

/* Add a message to the history: that of the arrow keys, and its file. */
void chat_remember(struct chat *c, const struct chat_text *t);

/* Answer the last message of the user once more, in place of its answer; do
 * nothing if there is none.
 * Returns like chat_send. */
int chat_again(struct chat *c);

/* Find the last message of the user. Returns false if there is none. */
bool chat_last_user(const struct chat *c, size_t *i);

/* Return the number of tokens of the conversation as a prompt; 0 if it is
 * empty, or this is unknown. */
size_t chat_tokens(struct chat *c);

/* Save the conversation to the file of --session, if there is one. Returns 0,
 * or an exit status after printing a message. */
int chat_save_session(struct chat *c);

/* ---- chat_commands.c ---- */

/* The table of commands; a row without a name ends it. */
extern const struct chat_command chat_commands[];

/* Run the command that text is. Returns 0, or an exit status that ends the
 * chat. */
int chat_run_command(struct chat *c, const char *text);

/* ---- chat_show.c ---- */

/* Print the messages from number i on. cut: only the beginning of long ones. */
void chat_show_messages(const struct chat *c, size_t i, bool cut);

/* Print the last exchange of a conversation that goes on. */
void chat_show_last(const struct chat *c);

/* Run /show: print the facts of the chat; with c->arg "chat", its messages. */
int chat_show(struct chat *c);

/* ---- chat_files.c ---- */

/* Return whether the first message is a system prompt. */
bool chat_has_system(const struct qwick_chat *c);

/* Go on with the conversation of a file, without values that would overrule the
 * options, and with its "enable_thinking". Returns 0, or an exit status after
 * printing a message. */
int chat_load(struct chat *c, const char *path);

/* Write the conversation to a file. A file that is there must be a conversation
 * already. Returns 0, or an exit status after printing a message. */
int chat_write(const struct qwick_chat *c, const char *path);

/* Make text[0..n) the system prompt; NULL: take it out. Returns 0, 1 if one was
 * taken out, or -1 with *e set. */
int chat_set_system(struct qwick_chat **c, const char *text, size_t n,
                    struct qwick_err *e);

/* Copy a conversation. Returns 0, or -1 with *e set. */
int chat_copy(struct qwick_chat **out, const struct qwick_chat *c,
              struct qwick_err *e);

/* ---- texts on stderr ---- */

/* Print a line without "qwick: " before it, escaped as names are. */
#define chat_say(...) msg_say(MSG_PLAIN, __VA_ARGS__)

#endif
