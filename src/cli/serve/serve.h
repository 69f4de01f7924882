/* qwick serve: its parts and the way of a request through them. docs/serve.md
 * is the page about the design.
 *
 * Three threads pass a call on, and one at a time owns it:
 *
 *   I/O          reads the request and writes the answer (http.h); refuses what
 *                the head forbids (access.h); answers /health, /metrics and /v1/models
 *   preparation  parses the body, renders the template, tokenizes and compiles
 *                constraints (endpoint.prepare)
 *   engine       the main thread: evaluates and draws (endpoint.start,
 *                endpoint.slice, and callbacks of the batch)
 */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/request.h"
#include "cli/http/http.h"
#include "cli/http/listen.h"
#include "cli/serve/metrics.h"
#include "file/json.h"
#include "file/json_writer.h"
#include "qwick.h"

/* Most bytes of the name of a faulty member. */
#define SERVE_PARAM 64

/* Why a request is refused: the members of an answer's "error". */
struct serve_error {
    int status;       /* 0: none yet; serve_error_of sets it from e.code */
    const char *code; /* "context_length_exceeded" …; NULL: null */
    char param[SERVE_PARAM]; /* the member at fault; empty: null */
    struct qwick_err e;
};

struct serve;
struct serve_call;
struct chat_form;

/* What protocols have for all of their endpoints. */
struct protocol {
    /* Append the JSON of an error. */
    void (*put_error)(struct buf *out, const struct serve_error *e);
    const char *error_event; /* name of a stream's event of an error; NULL: it
                                has none */
    /* Write the events of an error that ends a stream. NULL: one event, the
     * JSON of put_error. */
    void (*send_error)(struct serve_call *c, const struct serve_error *e);
    bool done;               /* streams end with [DONE] */
};

/* An endpoint. Functions return 0, or -1 with *e set, unless they say
 * otherwise; after -1 the core answers with the error and frees the call. */
struct endpoint {
    const char *method, *path;
    bool open;  /* needs no key */
    bool early; /* with reply: answers while the model is loaded */
    bool chat;  /* needs s->batch: a model that gives answers */
    const struct chat_form *form;    /* of a conversation; see chat_state.h */
    const struct protocol *protocol; /* NULL: OpenAI's older one */
    /* I/O thread, or the preparation thread if the request came while the model
     * was loaded: answer at once with http_reply. NULL: the functions below
     * answer. */
    void (*reply)(struct serve *s, const struct endpoint *ep,
                  struct http_call *c);
    /* Preparation thread. Sets c->state. Returns 1 if it has answered, with
     * serve_reply. */
    int (*prepare)(struct serve_call *c, struct serve_error *e);
    /* Engine thread. Begin the work: queue requests in s->batch, whose
     * callbacks answer, or return 1 if slice does the work. */
    int (*start)(struct serve_call *c, struct serve_error *e);
    /* Engine thread, between passes: do a piece of the work of about one pass.
     * Returns 1 if there is more; 0 when it has answered, or has queued
     * requests in s->batch. NULL: the batch does the work. */
    int (*slice)(struct serve_call *c, struct serve_error *e);
    /* Engine thread: a request that start has queued is cancelled: call
     * qwick_batch_cancel. The batch's callback ends the call as usual. NULL:
     * the call ends between slices. */
    void (*cancel)(struct serve_call *c);
    /* Engine thread: return whether the batch has begun none of the requests
     * that start has queued. NULL: never. */
    bool (*waits)(const struct serve_call *c);
    /* Free c->state; any thread. NULL: there is none. */
    void (*free)(struct serve_call *c);
};

extern const struct endpoint serve_endpoints[]; /* ends with a NULL path */

/* Why a call shall end before its work has. */
enum serve_stop {
    SERVE_GO_ON,
    SERVE_GONE,   /* the client has left */
    SERVE_DRAINED /* the server ends: the call has not begun, or the time of
                     --drain is over */
};

/* A request of the batch. Endpoints embed it as the first member of what they
 * give the batch as a tag. */
struct serve_task {
    /* Engine thread: the request has ended; see qwick_done_fn. */
    void (*done)(struct serve_task *t, struct qwick_result *r,
                 const struct qwick_err *e);
};

struct serve_call {
    struct serve_call *next;               /* in a queue or in s->sliced */
    struct serve_call *next_all, **at_all; /* in s->all */
    struct serve *s;
    struct http_call *http;
    const struct endpoint *endpoint;
    _Atomic int stop; /* enum serve_stop */
    bool started;     /* engine thread: start has succeeded */
    bool cancelled;   /* engine thread: cancel has been called */
    bool stream;      /* the answer is a stream; see serve_stream */
    bool broken;      /* an event of it could not be written */
    size_t lora; /* the adapter that the request names; serve.n_loras: none */
    size_t n_streams; /* its samples; prepare may set it, 1 otherwise; 0 with
                         `reply`, and once the places are given back */
    void *state;      /* of the endpoint */
};

struct serve_queue {
    struct serve_call *first, **last;
};

struct serve {
    struct opt_parsed *p;
    struct args *a; /* of p */
    struct gen_job g;
    struct request_context requests; /* of g; what all requests share */
    char *id;                        /* the served id: the model's short name */
    size_t n_loras;                  /* adapters, which have ids of their own */
    size_t n_ctx;                    /* most tokens of a request */
    int64_t created;                 /* Unix time of the start */
    bool embeds;                     /* the model is made for embeddings */
    const char *rerank_warning; /* preparation thread: to be printed once; NULL:
                                   the model is made for reranking */
    struct http *http;
    struct qwick_batch *batch; /* NULL: the model cannot answer */
    pthread_mutex_t mutex;     /* of the members up to the blank line */
    pthread_cond_t to_prepare;
    struct serve_queue unprepared, prepared;
    struct serve_call *all; /* list of all calls */
    size_t n_calls;         /* in all */
    size_t n_streams;       /* sum of theirs */
    double idle_ms;         /* clock_ms since when there has been no call */
    bool stopping;          /* the preparation thread shall end */

    struct listeners listeners;
    struct access *access; /* the I/O thread alone uses it, once it runs */
    int notify;            /* socket of systemd; -1: none */
    int memory;            /* of os_memory_read */
    struct metrics metrics;

    volatile int woken;   /* set by serve_wake; ends what idle time is for */
    int wake;             /* eventfd of the engine thread */
    _Atomic bool loading; /* the model is not ready: calls wait for the
                             preparation thread; the I/O thread reads nothing of
                             the model */
    _Atomic bool draining;
    _Atomic bool failed;      /* the I/O thread has ended */
    _Atomic bool reload;      /* the I/O thread shall read the key file again */
    _Atomic bool any_stopped; /* some call may have stop set */
    _Atomic bool working;     /* the engine has work */
    _Atomic size_t n_running; /* answers and calls in slices that run now */
    _Atomic double step_ms;   /* clock_ms of the engine's last layer */
    /* engine thread */
    struct serve_queue sliced; /* calls with slices left */
    bool unstored;             /* the prefix cache has news for the disk */
    bool leaving;              /* --idle-exit */
    double watchdog_ms;        /* systemd wants a message so often */
    double watchdog_at;        /* clock_ms of the next one; INFINITY: none */
    double drain_ms;           /* clock_ms at which draining ends; 0: not yet */
    double shown_ms;           /* clock_ms of the last look at the batch's
                                  memory */
};

/* ---- serve_call.c: any thread that owns the call ---- */

void serve_push(struct serve_queue *q, struct serve_call *c);
struct serve_call *serve_pop(struct serve_queue *q); /* NULL: empty */

/* I/O thread: begin a call for a request whose body has been read. Answers with
 * an error if that is not possible. */
void serve_begin(struct serve *s, struct http_call *http,
                 const struct endpoint *ep);
/* Wake the engine thread. Async-signal-safe. */
void serve_wake(struct serve *s);

/* Return the served id of an adapter; i = s->n_loras: that of the model. */
const char *serve_id(const struct serve *s, size_t i);
/* Let a call use the adapter of this served id; no adapter if there is none, or
 * id is NULL. */
void serve_choose_lora(struct serve_call *c, const char *id);

/* Set *e to QWICK_ERR_USAGE with a message, and the member at fault (NULL:
 * none). Returns -1. */
int serve_refuse(struct serve_error *e, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepare: the answer will be a stream of events. Call it when nothing can fail
 * any more. */
void serve_stream(struct serve_call *c);

/* Preparation thread: answer a call of an endpoint with `reply`, end it and
 * free it. */
void serve_reply_late(struct serve_call *c);
/* Answer with JSON and status 200, end the call and free it. Takes the memory
 * of *json. Also for calls whose client has left. */
void serve_reply(struct serve_call *c, struct buf *json);
/* Answer with an error, end the call and free it. If the head of a stream has
 * gone out, the error is an event, and no [DONE] follows. */
void serve_fail(struct serve_call *c, const struct serve_error *e);
/* Write "data: JSON\n\n" to a stream, after "event: NAME\n" unless name is
 * NULL. A failure means that the client has left: the core notices that by
 * itself. */
void serve_event(struct serve_call *c, const char *name, const char *json,
                 size_t n);
/* End a stream, with "data: [DONE]" if the protocol has that, end the call and
 * free it. */
void serve_done(struct serve_call *c);

/* Append the JSON of an error in a protocol's form. p NULL: OpenAI's older
 * one. */
void serve_error_json(const struct protocol *p, struct buf *out,
                      const struct serve_error *e);
/* put_error of OpenAI's protocols. */
void serve_openai_error(struct buf *out, const struct serve_error *e);
/* The word for a status: "invalid_request_error" … */
const char *serve_error_type(int status);
/* The error of a library's error, with its status: 400 for QWICK_ERR_USAGE and
 * QWICK_ERR_CONTEXT, 503 for QWICK_ERR_MEMORY, 400 for QWICK_KIND_LIMIT, else
 * 500. */
struct serve_error serve_error_of(const struct qwick_err *e);

/* Count a request that has been answered. ep NULL: it has no endpoint. */
void serve_count(struct serve *s, const struct endpoint *ep, int status);

/* ---- serve_io.c: the handler of http.h ---- */

struct http_handler serve_handler(struct serve *s);

/* ---- serve_notify.c: messages to systemd, such as "READY=1" ---- */

/* Connect to the socket of NOTIFY_SOCKET, if there is one: *fd, else -1. Before
 * the sandbox. */
void notify_open(int *fd);
void notify_send(int fd, const char *text);
/* Return after how many milliseconds systemd wants "WATCHDOG=1" again: half of
 * WATCHDOG_USEC. INFINITY: never. */
double notify_watchdog_ms(void);

/* ---- serve_engine.c ---- */

/* The preparation thread. arg is the struct serve. */
void *serve_prepare_thread(void *arg);
/* Work until a signal, or --idle-exit, ends the server, and all calls have
 * ended. */
int serve_loop(struct serve *s);
/* End all calls with an error: after serve_loop has failed, and without the
 * preparation thread. */
void serve_fail_all(struct serve *s);
/* The callbacks of the batch. */
int serve_batch_done(void *ctx, void *tag, struct qwick_result *r,
                     const struct qwick_err *e);
void serve_batch_layer(void *ctx);

#endif
