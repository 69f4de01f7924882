/* The process of a chat that has the model.
 *
 * The chat's own process reads lines, runs commands and opens files that the
 * user names there, so it keeps the user's rights. It never parses or evaluates
 * a model. A child process does that in the sandbox (sandbox.h), with the files
 * of the options alone, and without the terminal's input. It writes answers,
 * warnings and progress to the same terminal. If a model takes it over or makes
 * it crash, the conversation is still in the chat's own process.
 *
 * The two talk through pipes: a struct chat_request and the conversation in
 * JSON one way, a struct chat_reply_fixed with a name and messages in JSON the
 * other way. The chat's own process trusts none of it. */
#ifndef CLI_CHAT_MODEL_H
#define CLI_CHAT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "cli/chat/chat_job.h"

enum chat_op {
    CHAT_ANSWER, /* answer the conversation; the reply has the message */
    CHAT_COUNT,  /* count its tokens */
    CHAT_SAVE    /* save it to the session's file */
};

struct chat_reply_fixed {
    int32_t status;              /* 0, or the exit status that ends the chat */
    uint8_t greedy;              /* the sampling is */
    uint8_t unsaved;             /* the session's file lacks the answer */
    uint8_t signal;  /* the process got it while it worked, and ends; 0: none */
    struct chat_numbers numbers; /* of the answer */
    uint64_t n_tokens;           /* of CHAT_COUNT */
    uint64_t limit;              /* of the context, in tokens */
    uint64_t n_name, n_json;     /* bytes that follow */
};

struct chat_reply {
    struct chat_reply_fixed fixed;
    char *json; /* [n_json] malloc'ed; NULL: there are no messages */
    size_t n_json;
};

/* ---- in the chat's own process ---- */

/* Start the process, and wait until it has loaded the model. The reply has the
 * messages of --session. Returns 0, or an exit status after a message was
 * printed. Call chat_model_stop at the end. */
int chat_model_start(struct chat *c, struct chat_reply *r);

/* Ask the process, and wait for its reply. SIGTERM and the like that only this
 * process got are passed on. If the process has ended, it is started again
 * before. Returns 0, or -1 after printing that it has ended meanwhile. */
int chat_model_ask(struct chat *c, enum chat_op op, struct chat_reply *r);

void chat_model_stop(struct chat *c);

/* ---- in the process of the model: chat_child.c ---- */

/* Open the model, its session and the sandbox. Set the reply's limit, greedy
 * and messages. Returns 0, or an exit status after printing a message. */
int chat_child_open(struct chat *c, struct chat_reply *r);

/* Answer c->j.chat, print the answer and how it ended, and save the session.
 * The reply gets the answer if it has tokens. number: of the answer in this
 * chat, from 0. Returns 0, or an exit status that ends the chat. */
int chat_child_answer(struct chat *c, uint64_t number, struct chat_reply *r);

/* Save the session of c->j.chat. Returns 0, or an exit status. */
int chat_child_save(struct chat *c);

/* Return the number of tokens of c->j.chat as a prompt; 0: unknown. */
size_t chat_child_count(const struct chat *c);

#endif
