/* HTTP/1.1 for serve: connections, requests and answers. It knows nothing of
 * models. libmicrohttpd parses requests and writes answers; http.c loads it
 * with dlopen, because only serve needs it.
 *
 * One thread, the I/O thread, runs http_run. It reads requests and writes what
 * other threads have put into answers. The functions marked "any thread" may be
 * called by all threads.
 *
 * A request goes through these steps:
 *
 *   head     The head has been read, and is well formed. The handler may refuse
 *            it now with http_reply: then the body is not read, and the
 *            connection is closed if there is one. This may be the last that
 *            the handler hears of the call.
 *   ready    The body has been read. The handler owes one answer, now or later:
 *            http_reply, or http_stream and http_end.
 *   gone     The client has left, or has read nothing for stall_ms. The handler
 *            still owes the answer, which is dropped.
 *
 * A client that closes only its own direction (shutdown with SHUT_WR, `nc -N`)
 * has left, too: nothing tells it from one that was killed. It gets the answer
 * if that has ended before.
 *
 * Requests that are no valid HTTP never reach the handler: http.c answers them
 * with 400, 408, 413, 431, 501, 503 or 505, and closes the connection.
 *
 * http_head.c checks heads, http_call.c has the functions for any thread,
 * http_mhd.c loads libmicrohttpd. */
#ifndef CLI_HTTP_H
#define CLI_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct http;
struct http_call;

struct http_field {
    const char *name, *value;
};

struct http_handler {
    void *ctx;
    /* I/O thread. Must be quick. */
    void (*head)(void *ctx, struct http_call *c);
    /* I/O thread. Must be quick. */
    void (*ready)(void *ctx, struct http_call *c);
    /* I/O thread, with c locked: set a flag, wake a thread, and call no
     * function of this header but http_tag. A lock that it takes must not be
     * held by a thread that calls functions of this header. Called at most
     * once, after ready, and never after the answer's end. */
    void (*gone)(void *ctx, struct http_call *c);
    /* I/O thread. Append the body, JSON, of an answer that http.c gives by
     * itself. path: of the request; NULL: its first line has not come, or is
     * malformed. */
    void (*fault)(void *ctx, const char *path, int status, const char *why,
                  struct buf *body);
    /* I/O thread, with c locked: count, and call no function of this header.
     * Events of a stream have been written to the socket, the first of them
     * `ms` after its http_write. NULL: nobody counts. */
    void (*written)(void *ctx, double ms);
};

/* Values of 0 stand for the defaults in comments. */
struct http_limits {
    size_t max_connections; /* 256; the next ones wait in the backlog */
    size_t max_head;        /* bytes of a head; 16 KiB, then 431 */
    size_t max_body;        /* bytes of a body; 32 MiB, then 413 */
    size_t max_bodies;      /* bytes of all bodies; 256 MiB, then 503 */
    int read_ms;            /* for head and body; 30 s, then 408 */
    int idle_ms;            /* between two requests of a connection; 60 s */
    int stall_ms;           /* a client that takes no byte of an answer; 60 s */
    int silence_ms;         /* a stream says ": keep-alive" after it; 10 s */
};

/* Load libmicrohttpd, and prepare to serve listening sockets fds[0..n), which
 * http owns from now on, also after a failure. QWICK_ERR_RUNTIME names the
 * package if the library is missing. Makes every descriptor but those of
 * clients: the sandbox may begin afterwards. */
int http_open(struct http **out, const int *fds, size_t n,
              const struct http_limits *limits, const struct http_handler *h,
              struct qwick_err *e);

/* Serve until http_stop, on the calling thread: the I/O thread. Returns 0, or
 * -1 with *e set. */
int http_run(struct http *h, struct qwick_err *e);

/* Any thread but the I/O thread, while that runs or is about to. Call fn(arg)
 * there, and return when it has returned, or when the I/O thread has ended. fn
 * calls no function of this header. */
void http_on_thread(struct http *h, void (*fn)(void *arg), void *arg);
/* One thread but the I/O thread, while that runs: become its helper, or be it
 * no longer. Answers of the helper wake nobody. Instead it calls http_help
 * before it sleeps, or computes for long, and with that writes them itself, and
 * what else the I/O thread has to do. So they do not wait until the kernel
 * gives the I/O thread a CPU; if no CPU is idle, that takes milliseconds. The
 * functions of http_handler may be called on the helper, too. */
void http_set_helper(struct http *h, bool on);
void http_help(struct http *h);
/* Any thread. Accept no more connections. Connections without a request are
 * closed, others after their answer. */
void http_drain(struct http *h);
/* Any thread. Return the number of connections. */
size_t http_connections(struct http *h);
/* Any thread. Return from http_run soon. Answers that are complete are still
 * written, for up to a second. */
void http_stop(struct http *h);
/* Close all connections. http_run must have returned, and every answer must
 * have ended. */
void http_close(struct http *h);

/* ---- the request ----
 * Any thread, until the answer's end. Strings are borrowed from the call. */

const char *http_method(const struct http_call *c);
/* The target as sent, and its path without the query. */
const char *http_target(const struct http_call *c);
const char *http_path(const struct http_call *c);
/* The host of an absolute target, else the value of Host; NULL: neither. */
const char *http_host(const struct http_call *c);
/* The value of the header field of this name, in any case; NULL: none. */
const char *http_field(const struct http_call *c, const char *name);
/* The body, which a NUL follows; after ready. */
const char *http_body(const struct http_call *c, size_t *n);
/* Free the body early: a long answer does not need it, and the memory of all
 * bodies is limited. */
void http_free_body(struct http_call *c);
/* clock_ms when the last byte of the request had been read; 0 before. */
double http_received_ms(const struct http_call *c);
/* A number that no other request of this process has. */
unsigned long long http_number(const struct http_call *c);

/* What the handler keeps with the call. */
void http_set_tag(struct http_call *c, void *tag);
void *http_tag(const struct http_call *c);

/* ---- the answer ---- */

/* Any thread. Fields that every answer to this call gets, for example those of
 * CORS; copied. */
int http_add_field(struct http_call *c, const char *name, const char *value);

/* Any thread. Answer with a status and a body, whose memory it takes; type is
 * its Content-Type, a literal. type NULL: no body, and body may be NULL. Ends
 * the call: c is not valid afterwards. Must not be called once http_started
 * returns true. */
void http_reply(struct http_call *c, int status, const char *type,
                struct buf *body);

/* Any thread. The answer will be a stream of events (text/event-stream) with
 * status 200. Its head goes out with the first http_write, or after silence_ms;
 * until then http_reply is possible instead. */
void http_stream(struct http_call *c);
/* Any thread. Return whether the head of a stream goes out: something has been
 * written, or silence_ms are over. Once true, it stays true; it may become true
 * at any time after http_stream, so that an answer with a status is sent by
 * http_refuse. */
bool http_started(const struct http_call *c);
/* Any thread. Answer with a status as http_reply does, unless the head of the
 * stream has gone out. Returns whether it did; then the call has ended. */
bool http_refuse(struct http_call *c, int status, const char *type,
                 struct buf *body);
/* Any thread. Append bytes to a stream. Returns 0, or -1 when the client has
 * gone. Out of memory, or with 64 MiB waiting, it returns -1 as well, and the
 * client is sent away: gone follows. */
int http_write(struct http_call *c, const char *p, size_t n);
/* Any thread. Return the bytes that wait because the client is slow. */
size_t http_unsent(const struct http_call *c);
/* Any thread. End a stream, after all bytes. Ends the call: c is not valid
 * afterwards. */
void http_end(struct http_call *c);

#endif
