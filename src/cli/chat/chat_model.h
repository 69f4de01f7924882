/* The process of a chat that has the model.
 *
 * The chat's own process reads lines, runs commands and opens files that the
 * user names there, so it keeps the user's rights. It never parses or evaluates
 * a model. A child process does that in the sandbox (sandbox.h), with the files
 * of the options alone, and without the terminal's input. It writes answers,
 * warnings and progress to the same terminal. If a model takes it over or makes
 * it crash, the conversation is still in the chat's own process.
 *
 * The two talk through a socket. The child sends a reply when it has the model,
 * and then one for each request. The chat's own process trusts none of them. */
#ifndef CLI_CHAT_MODEL_H
#define CLI_CHAT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qwick.h"

struct chat;

/* Numbers of an answer, for /stats. */
struct chat_numbers {
    size_t n_prompt, n_cached, n_tokens;
    double prefill_ms, total_ms;
};

enum chat_op {
    CHAT_ANSWER, /* answer the conversation; the reply has the message */
    CHAT_COUNT,  /* count its tokens */
    CHAT_SAVE,   /* save it to the session's file */
    CHAT_SET     /* change an option; the request has its name and value */
};

/* Longer names are cut. */
enum { CHAT_NAME_SIZE = 1024 };

/* A request or a reply. Members that it does not use are 0. */
struct chat_packet {
    /* of a request */
    uint32_t op;     /* enum chat_op */
    int32_t think;   /* enum qwick_think */
    uint64_t number; /* of the answer in this chat, from 0 */

    /* of a reply */
    int32_t status;   /* 0, or the exit status that ends the chat */
    int32_t signal;   /* the child got it while it worked, and ends; 0: none */
    uint32_t unsaved; /* not 0: the session's file lacks the answer */
    struct chat_numbers numbers; /* of the answer */
    uint32_t finish;             /* of the answer: enum qwick_finish */
    uint64_t seed;               /* of the answer */
    struct qwick_sampling sampling; /* of the answer */
    uint64_t n_tokens;           /* of CHAT_COUNT */

    uint32_t greedy; /* of the first one and CHAT_SET: not 0: the
                        sampling is greedy */

    /* of the first reply */
    uint64_t limit;            /* of the context, in tokens */
    char name[CHAT_NAME_SIZE]; /* of the model */

    /* the conversation, or ["OPTION", "VALUE"]; in replies the new messages */
    size_t n_json;
    char *json; /* [n_json] malloc'ed, sent after the rest; NULL: none */
};

/* The child, as the chat's own process knows it. */
struct chat_model {
    long pid;                  /* 0: none runs */
    int fd;                    /* the socket */
    bool passed_on;            /* it got the signal that came while it worked */
    struct chat_packet opened; /* its first reply, without the messages */
};

/* ---- both processes ---- */

/* Send and free p->json, after the rest of the packet. Returns 0 or -1. */
int chat_packet_send(int fd, struct chat_packet *p);

/* Receive a packet. m: forward signals to this child meanwhile; NULL: this is
 * the child, which stops waiting when a signal other than SIGINT comes. Returns
 * 0 or -1. */
int chat_packet_receive(int fd, struct chat_packet *p, struct chat_model *m);

/* ---- the chat's own process ---- */

/* Start the child, and wait until it has loaded the model. The reply has the
 * messages of --session. Returns 0, or an exit status after a message was
 * printed. Call chat_model_stop at the end. */
int chat_model_start(struct chat *c, struct chat_packet *r);

/* Ask the child, and wait for its reply. SIGTERM and the like that only this
 * process got are passed on. If the child has ended, it is started again
 * before. Returns 0, or -1 after printing that it has ended meanwhile; then *r
 * has no messages. */
int chat_model_ask(struct chat *c, enum chat_op op, struct chat_packet *r);

/* Start a child with the model that the options name now, and end the old one.
 * Both are open for a while; if they do not fit in memory together, the old one
 * is closed first. Returns 0; or -1 after printing why the old one goes on. */
int chat_model_switch(struct chat *c);

void chat_model_stop(struct chat_model *m);

/* ---- the child: chat_child.c ---- */

/* Open the model, its session and the sandbox, then answer requests. parent:
 * the chat's own process, which the child does not outlive. */
_Noreturn void chat_child_run(struct chat *c, long parent, int fd);

#endif
