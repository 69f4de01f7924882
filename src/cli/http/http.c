/* The I/O thread: its loop, start and end. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/http/http_parts.h"

/* libmicrohttpd's memory for a connection: the head, an entry for each field, and
 * what it reads and writes at a time. It touches all of it once a connection is
 * used again. */
#define POOL_OF_HEAD(n) ((n) + 16 * 1024)
/* What the kernel holds of an answer that the client does not read. */
#define SEND_BUFFER (128 * 1024)
/* Complete answers are written for this time after http_stop. */
#define STOP_MS 1000
/* Rounds of libmicrohttpd after which new events are looked for. */
#define MAX_ROUNDS 8
/* Without a free descriptor we accept nothing for this time. */
#define ACCEPT_PAUSE_MS 100

/* ---- the loop ---- */

/* Return whether libmicrohttpd may read a descriptor that it wants to read. */
static bool may_read(const struct http *h, int fd, int listener)
{
    const struct http_client *k = h->clients[fd];

    if (fd == listener)
        return atomic_load(&h->n_clients) < h->limits.max_connections &&
               clock_ms() >= h->accept_ms;
    return !k || k->state == CLIENT_READING || k->state == CLIENT_CLOSING;
}

static bool may_write(const struct http *h, int fd)
{
    return !h->clients[fd] || h->clients[fd]->state != CLIENT_REFUSED;
}

/* Let epoll tell when connections that cannot be written to can be. */
static void watch_blocked(struct http *h, const struct pollfd *polls, nfds_t n)
{
    for (nfds_t j = 0; j < n; j++) {
        struct http_client *k = h->clients[polls[j].fd];

        if (k && (polls[j].events & POLLOUT) && !polls[j].revents)
            http_client_blocked(h, k);
    }
}

/* Let libmicrohttpd do what it can without waiting. Returns whether there was
 * something: resumed connections, or descriptors that are ready. */
static bool daemon_round(struct http *h, size_t i, bool resumed)
{
    struct pollfd polls[FD_SETSIZE];
    nfds_t n = 0;
    fd_set in, out, except;
    int max = -1, listener = h->listeners[i];
    unsigned long long n_accepted = h->n_accepted;
    bool accepting = false;

    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    mhd.get_fdset2(h->daemons[i], &in, &out, &except, &max, FD_SETSIZE);
    for (int fd = 0; fd <= max; fd++) {
        int events =
            (FD_ISSET(fd, &in) && may_read(h, fd, listener) ? POLLIN : 0) |
            (FD_ISSET(fd, &out) && may_write(h, fd) ? POLLOUT : 0);

        if (events)
            polls[n++] = (struct pollfd){.fd = fd, .events = (short)events};
    }
    /* It looks at resumed connections only now, so they are not in the sets. */
    int n_ready = resumed ? 0 : poll(polls, n, 0);

    if (n_ready < (int)n && !resumed)
        watch_blocked(h, polls, n);
    if (n_ready <= 0 && !resumed)
        return false;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    for (nfds_t j = 0; j < n && !resumed; j++) {
        if (!polls[j].revents)
            continue;
        if (polls[j].events & POLLIN)
            FD_SET(polls[j].fd, &in);
        if (polls[j].events & POLLOUT)
            FD_SET(polls[j].fd, &out);
        accepting = accepting || polls[j].fd == listener;
    }
    mhd.run_from_select(h->daemons[i], &in, &out, &except);
    if (accepting && h->n_accepted == n_accepted) /* no descriptor is free */
        h->accept_ms = clock_ms() + ACCEPT_PAUSE_MS;
    return true;
}

/* Wait for events, up to timeout_ms. The helper has its turn meanwhile. */
static int events_wait(struct http *h, int timeout_ms, struct qwick_err *e)
{
    struct epoll_event events[64];
    uint64_t count;
    int n;

    pthread_mutex_unlock(&h->turn);
    n = epoll_wait(h->epoll, events, 64, timeout_ms);
    pthread_mutex_lock(&h->turn);
    if (n < 0 && errno != EINTR)
        return err_errno(e, "serve", "cannot wait for connections");
    for (int i = 0; i < n; i++) {
        int fd = (int)(uint32_t)events[i].data.u64;
        struct http_client *k = fd == h->wake ? NULL : h->clients[fd];

        if (k && events[i].data.u64 == HTTP_EVENT(k->number, fd))
            http_client_event(h, k, events[i].events);
        else if (fd == h->wake && read(fd, &count, sizeof count) < 0)
            continue; /* nobody has written to it */
    }
    return 0;
}

/* Look at the calls that other threads have changed. */
static void calls_woken(struct http *h)
{
    struct http_call *c, *next;

    pthread_mutex_lock(&h->mutex);
    c = h->woken;
    h->woken = NULL;
    h->last_woken = &h->woken;
    for (; c; c = next) {
        /* From now on others may put it into a new list. */
        next = c->next_woken;
        c->woken = false;
        pthread_mutex_unlock(&h->mutex);
        if (c->client)
            http_client_woken(h, c->client, c);
        pthread_mutex_lock(&h->mutex);
        http_call_release(c);
    }
    pthread_mutex_unlock(&h->mutex);
}

/* Look at all connections. Returns the nearest deadline. */
static double clients_look(struct http *h)
{
    double now = clock_ms(), nearest = INFINITY;

    if (h->accept_ms > now)
        nearest = h->accept_ms;
    for (int fd = 0; fd < h->n_fds; fd++) {
        struct http_client *k = h->clients[fd];

        if (!k)
            continue;
        if (k->look)
            http_client_look(h, k);
        if (k->deadline_ms <= now)
            http_client_expire(h, k);
        if (k->look)
            nearest = now;
        else if (k->deadline_ms < nearest)
            nearest = k->deadline_ms;
    }
    return nearest;
}

/* Close the listening sockets, once. */
static void listeners_close(struct http *h)
{
    for (size_t i = 0; i < h->n_listeners; i++) {
        if (h->listeners[i] < 0)
            continue;
        mhd.quiesce_daemon(h->daemons[i]);
        close(h->listeners[i]);
        h->listeners[i] = -1;
        for (int fd = 0; fd < h->n_fds; fd++)
            if (h->clients[fd])
                h->clients[fd]->look = true;
    }
}

/* Return whether a complete answer is not written yet. */
static bool answers_left(const struct http *h)
{
    for (int fd = 0; fd < h->n_fds; fd++)
        if (h->clients[fd] && h->clients[fd]->call &&
            h->clients[fd]->call->ended)
            return true;
    return false;
}

static int wait_ms(double until)
{
    double ms = ceil(until - clock_ms());

    return ms < 0 ? 0 : ms > 3600e3 ? -1 : (int)ms;
}

/* Do what another thread waits for. */
static void errand_run(struct http *h)
{
    pthread_mutex_lock(&h->mutex);
    if (h->errand) {
        h->errand(h->errand_arg);
        h->errand = NULL;
        pthread_cond_broadcast(&h->errand_done);
    }
    pthread_mutex_unlock(&h->mutex);
}

void http_on_thread(struct http *h, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&h->mutex);
    h->errand = fn;
    h->errand_arg = arg;
    http_wake(h);
    while (h->errand && !h->ended)
        pthread_cond_wait(&h->errand_done, &h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

/* Let libmicrohttpd do what it can on all listeners. */
static bool daemons_round(struct http *h)
{
    bool resumed = h->resumed, moved = false;

    h->resumed = false;
    for (size_t i = 0; i < h->n_listeners; i++)
        moved = daemon_round(h, i, resumed) || moved;
    return moved;
}

static int http_loop(struct http *h, struct qwick_err *e)
{
    double stop_ms = INFINITY;
    int rounds = 0;

    for (;;) {
        double nearest;
        bool moved;

        errand_run(h);
        calls_woken(h);
        if (atomic_load(&h->draining))
            listeners_close(h);
        nearest = clients_look(h);
        if (atomic_load(&h->stopping)) {
            stop_ms = fmin(stop_ms, clock_ms() + STOP_MS);
            nearest = fmin(nearest, stop_ms);
            if (clock_ms() >= stop_ms || !answers_left(h))
                return 0;
        }
        moved = daemons_round(h);
        if (moved && ++rounds < MAX_ROUNDS)
            continue;
        rounds = 0;
        h->wakes_ms = nearest;
        if (events_wait(h, moved ? 0 : wait_ms(nearest), e) != 0)
            return -1;
    }
}

int http_run(struct http *h, struct qwick_err *e)
{
    int rc;

    pthread_mutex_lock(&h->turn);
    rc = http_loop(h, e);
    pthread_mutex_unlock(&h->turn);
    pthread_mutex_lock(&h->mutex);
    h->ended = true;
    pthread_cond_broadcast(&h->errand_done);
    pthread_mutex_unlock(&h->mutex);
    return rc;
}

/* ---- the helper ---- */

void http_set_helper(struct http *h, bool on)
{
    if (on)
        h->helper = pthread_self(); /* before others look at it */
    atomic_store(&h->helped, on);
    if (!on)
        http_wake(h);
}

static bool any_woken(struct http *h)
{
    bool any;

    pthread_mutex_lock(&h->mutex);
    any = h->woken;
    pthread_mutex_unlock(&h->mutex);
    return any;
}

void http_help(struct http *h)
{
    double nearest = 0;
    bool moved = true;

    if (!atomic_load(&h->helped) || !any_woken(h))
        return;
    /* It does not wait: other programs would take the CPU, for a time slice. */
    if (pthread_mutex_trylock(&h->turn) != 0) {
        http_wake(h);
        return;
    }
    for (int i = 0; moved && i < MAX_ROUNDS; i++) {
        calls_woken(h);
        nearest = clients_look(h);
        moved = daemons_round(h);
    }
    /* a new deadline, or there is more to do */
    if (moved || nearest < h->wakes_ms)
        http_wake(h);
    pthread_mutex_unlock(&h->turn);
}

void http_drain(struct http *h)
{
    atomic_store(&h->draining, true);
    http_wake(h);
}

size_t http_connections(struct http *h)
{
    return atomic_load(&h->n_clients);
}

void http_stop(struct http *h)
{
    atomic_store(&h->draining, true);
    atomic_store(&h->stopping, true);
    http_wake(h);
}

/* ---- start and end ---- */

static void limits_default(struct http_limits *l)
{
    if (!l->max_connections)
        l->max_connections = 256;
    if (!l->max_head)
        l->max_head = 16 * 1024;
    if (!l->max_body)
        l->max_body = (size_t)32 << 20;
    if (!l->max_bodies)
        l->max_bodies = (size_t)256 << 20;
    if (!l->read_ms)
        l->read_ms = 30000;
    if (!l->idle_ms)
        l->idle_ms = 60000;
    if (!l->stall_ms)
        l->stall_ms = 60000;
    if (!l->silence_ms)
        l->silence_ms = 10000;
}

static struct MHD_Daemon *daemon_start(struct http *h, int fd)
{
    return mhd.start_daemon(
        MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, http_on_request, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->limits.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        POOL_OF_HEAD(h->limits.max_head), MHD_OPTION_URI_LOG_CALLBACK,
        http_on_target, h, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, h,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

/* Begin to serve a listening socket. */
static int listener_add(struct http *h, int fd, struct qwick_err *e)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET,
                                .data.u64 = HTTP_EVENT(0, fd)};
    int size = SEND_BUFFER;

    if (fd >= FD_SETSIZE)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "descriptor %d of a listening socket is not below %d",
                       fd, FD_SETSIZE);
    /* Connections inherit it. It is only a wish. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return err_errno(e, "serve", "cannot watch a listening socket");
    h->daemons[h->n_listeners] = daemon_start(h, fd);
    if (!h->daemons[h->n_listeners])
        return err_set(e, QWICK_ERR_RUNTIME,
                       "libmicrohttpd cannot serve a listening socket");
    h->listeners[h->n_listeners++] = fd;
    return 0;
}

/* Everything but the listening sockets. */
static int http_prepare(struct http *h, size_t n, struct qwick_err *e)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (http_mhd_load(e) != 0)
        return -1;
    h->daemons = calloc(n, sizeof *h->daemons);
    h->listeners = calloc(n, sizeof *h->listeners);
    h->peeked = malloc(h->limits.max_head);
    if (!h->daemons || !h->listeners || !h->peeked)
        return err_oom(e, h->limits.max_head);
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.u64 = HTTP_EVENT(0, h->wake);
    if (h->epoll < 0 || h->wake < 0 ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &event) != 0)
        return err_errno(e, "serve", "cannot make an event descriptor");
    return 0;
}

int http_open(struct http **out, const int *fds, size_t n,
              const struct http_limits *limits,
              const struct http_handler *handler, struct qwick_err *e)
{
    struct http *h = calloc(1, sizeof *h);
    int r;

    *out = NULL;
    if (!h) {
        for (size_t i = 0; i < n; i++)
            close(fds[i]);
        return err_oom(e, sizeof *h);
    }
    h->epoll = h->wake = -1;
    h->last_woken = &h->woken;
    h->handler = *handler;
    if (limits)
        h->limits = *limits;
    limits_default(&h->limits);
    pthread_mutex_init(&h->turn, NULL);
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->errand_done, NULL);
    r = http_prepare(h, n, e);
    for (size_t i = 0; i < n; i++) {
        if (r == 0)
            r = listener_add(h, fds[i], e);
        if (r != 0)
            close(fds[i]);
    }
    if (r != 0) {
        http_close(h);
        return -1;
    }
    *out = h;
    return 0;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    /* libmicrohttpd must have no suspended connection when it stops. */
    for (int fd = 0; fd < h->n_fds; fd++)
        if (h->clients[fd])
            http_client_close(h, h->clients[fd]);
    for (size_t i = 0; i < h->n_listeners; i++)
        mhd.stop_daemon(h->daemons[i]);
    calls_woken(h);
    if (h->wake >= 0)
        close(h->wake);
    if (h->epoll >= 0)
        close(h->epoll);
    pthread_cond_destroy(&h->errand_done);
    pthread_mutex_destroy(&h->mutex);
    pthread_mutex_destroy(&h->turn);
    free(h->daemons);
    free(h->listeners);
    free(h->peeked);
    free(h);
}
