/* What http.c (the loop of the I/O thread), http_client.c (connections, on that
 * thread) and http_call.c (requests and answers, on any thread) share. */
#ifndef CLI_HTTP_PARTS_H
#define CLI_HTTP_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/select.h>

#include "cli/http/http.h"
#include "cli/http/http_head.h"
#include "cli/http/http_mhd.h"

enum client_state {
    CLIENT_IDLE,      /* the head of its next request is not complete */
    CLIENT_READING,   /* the head is good; libmicrohttpd reads the request */
    CLIENT_ANSWERING, /* the request has been read; its answer is not written */
    CLIENT_REFUSED, /* we have written a last answer, and drop what it sends */
    CLIENT_CLOSING  /* shut down; libmicrohttpd sees that and closes it */
};

/* A connection. I/O thread only. */
struct http_client {
    struct MHD_Connection *mhd;
    int fd;
    uint32_t number; /* of the connection, which tells it from others that had
                        the descriptor before */
    enum client_state state;
    bool look;          /* an event has come that client_look has not seen */
    bool left;          /* the client sends nothing more */
    bool suspended;     /* libmicrohttpd leaves the connection alone */
    bool watched;       /* epoll tells when it can be written to */
    size_t n_seen;      /* bytes seen of a head that is not complete */
    double deadline_ms; /* what then happens depends on the state; INFINITY:
                           nothing */
    struct http_call *call; /* NULL: none */
};

/* A request and its answer. Its owners count in n_refs: the handler from ready
 * to the answer's end, the connection until the answer is written, and the list
 * of woken calls. */
struct http_call {
    struct http *h;
    unsigned long long number;
    char *head; /* the bytes of the head; a NUL follows each part below */
    const char *method, *target, *path, *host; /* host NULL: none */
    struct http_field fields[HTTP_MAX_FIELDS];
    size_t n_fields;
    bool begun; /* libmicrohttpd has read the head */
    struct buf body;
    double received_ms;
    void *tag;

    /* with h->mutex locked */
    unsigned n_refs;
    struct http_client *client; /* NULL: closed */
    struct http_call *next_woken;
    bool woken;        /* in h->woken */
    bool ready;        /* the handler owes an answer */
    bool gone;         /* the client has left */
    bool failed;       /* a write had no memory */
    bool streams;      /* the answer is a stream */
    bool started;      /* a stream's first byte is written, or its head */
    atomic_bool ended; /* the answer is complete; read without the mutex */
    int status;
    const char *type;         /* NULL: no body */
    struct http_field *added; /* [n_added] malloc'ed, as each name is */
    size_t n_added;
    struct buf out;  /* the answer's body */
    size_t n_taken;  /* bytes of it that libmicrohttpd has taken */
    double put_ms;   /* clock_ms of the first event that waits; 0: none */
    double taken_ms; /* that of what libmicrohttpd writes now; 0: nothing */
};

/* What epoll tells with events of a descriptor: the number of its connection as
 * well. The helper may close a connection, and accept another with the same
 * descriptor, after the I/O thread has got events of the first one. */
#define HTTP_EVENT(number, fd) ((uint64_t)(number) << 32 | (uint32_t)(fd))

struct http {
    /* Held by the thread that does the work of the I/O thread: that thread
     * while it does not sleep, or the helper. */
    pthread_mutex_t turn;
    _Atomic bool helped; /* there is a helper */
    pthread_t helper;
    double wakes_ms; /* with turn: the I/O thread wakes at this time at the
                        latest */

    struct http_limits limits;
    struct http_handler handler;
    int epoll, wake;             /* wake: eventfd for other threads */
    struct MHD_Daemon **daemons; /* [n_listeners] */
    int *listeners;              /* [n_listeners]; -1: closed */
    size_t n_listeners;
    atomic_size_t n_clients, n_body_bytes;
    atomic_bool draining, stopping;

    /* I/O thread, or its helper: with turn */
    struct http_client *clients[FD_SETSIZE]; /* by descriptor */
    bool resumed;     /* a connection; libmicrohttpd shall look at it */
    int n_fds;        /* above the highest descriptor of a client so far */
    char *peeked;     /* [limits.max_head] */
    double accept_ms; /* accept nothing before this time */
    unsigned long long number;     /* of the last call */
    unsigned long long n_accepted; /* connections so far */

    pthread_mutex_t mutex;
    struct http_call *woken, **last_woken;
    pthread_cond_t errand_done;
    void (*errand)(void *arg); /* of http_on_thread; NULL: none */
    void *errand_arg;
    bool ended; /* the I/O thread has */
};

/* ---- http_client.c: I/O thread ---- */

/* Epoll has events for the connection. */
void http_client_event(struct http *h, struct http_client *k, unsigned events);
/* The connection cannot be written to now. */
void http_client_blocked(struct http *h, struct http_client *k);
/* `look` is set: something has come, or a flag has changed. */
void http_client_look(struct http *h, struct http_client *k);
/* The deadline is over. */
void http_client_expire(struct http *h, struct http_client *k);
/* Another thread has changed the connection's call. */
void http_client_woken(struct http *h, struct http_client *k,
                       const struct http_call *c);
/* Let libmicrohttpd close the connection: it finds it shut down. */
void http_client_close(struct http *h, struct http_client *k);

/* Callbacks of libmicrohttpd. */
void *http_on_target(void *ctx, const char *target, struct MHD_Connection *m);
enum MHD_Result http_on_request(void *ctx, struct MHD_Connection *m,
                                const char *url, const char *method,
                                const char *version, const char *data,
                                size_t *n, void **state);
void http_on_completed(void *ctx, struct MHD_Connection *m, void **state,
                       enum MHD_RequestTerminationCode why);
void http_on_connection(void *ctx, struct MHD_Connection *m,
                        void **socket_context,
                        enum MHD_ConnectionNotificationCode what);

/* ---- http_call.c ---- */

/* Make the call of a head, p[0..head->n). NULL: out of memory. It has one
 * owner, the connection. */
struct http_call *http_call_new(struct http *h, struct http_client *k,
                                const char *p, const struct http_head *head);
/* With h->mutex locked: give up one reference. */
void http_call_release(struct http_call *c);
/* Append a part of the body. Returns 0, or the status of a refusal, with *why
 * set. */
int http_call_take(struct http_call *c, const char *p, size_t n,
                   const char **why);

/* The I/O thread shall look at the draining and stopping flags, or at woken
 * calls. */
void http_wake(struct http *h);

#endif
