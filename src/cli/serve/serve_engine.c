/* The preparation thread and the engine thread. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flag.h"
#include "base/os.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/serve/serve.h"

/* After this idle time the prefix cache is stored on disk. */
enum { STORE_IDLE_MS = 2000 };
/* Signals are seen after each piece. */
enum { STORE_PIECE_MS = 500 };

/* The memory of the batch is looked at so often. */
enum { SHOW_MEMORY_MS = 200 };

/* The longest sleep of the engine thread while it drains: a second signal kills
 * the process, so it only has to see the time pass. */
enum { DRAIN_WAIT_MS = 100 };
/* The same until the last connection is closed. */
enum { LEAVE_WAIT_MS = 10 };

static const struct serve_error drained = {
    .status = 503, .e.msg = "the server is shutting down"};

/* ---- the preparation thread ---- */

/* The longest preparation of a call. */
enum { PREPARE_MS = 5000 };

/* Call `prepare`, unless the call cannot go on. */
static int call_read(struct serve_call *c, struct serve_error *e)
{
    qwick_text_timeout(PREPARE_MS);
    if (atomic_load(&c->s->draining)) {
        *e = drained;
        return -1;
    }
    if (c->endpoint->chat && !c->s->batch)
        return serve_refuse(
            e, NULL, "the model gives no answers: %s",
            qwick_engine_info(c->s->g.eng)->is_classifier
                ? "POST /v1/rerank scores documents"
                : "POST /v1/embeddings turns texts into vectors");
    return c->endpoint->prepare(c, e);
}

/* Prepare a call, and pass it on. */
static void call_prepare(struct serve *s, struct serve_call *c)
{
    struct serve_error e = {0};
    int rc = call_read(c, &e);
    if (rc > 0) /* it has answered */
        return;
    http_free_body(c->http);
    size_t most = (size_t)(s->a->max_batch + s->a->queue);
    if (!rc && c->n_streams > most)
        rc = serve_refuse(&e, NULL,
                          "the request asks for %zu answers, --max-batch and "
                          "--queue have places for %zu",
                          c->n_streams, most);
    pthread_mutex_lock(&s->mutex);
    s->n_streams += c->n_streams - 1;
    bool full = s->n_streams > most;
    if (!rc && !full) {
        serve_push(&s->prepared, c);
        c = NULL;
    }
    pthread_mutex_unlock(&s->mutex);
    if (!c) {
        serve_wake(s);
        return;
    }
    if (!rc)
        e = (struct serve_error){.status = 429,
                                 .e.msg = "the queue is full, try again later"};
    serve_fail(c, &e);
}

void *serve_prepare_thread(void *arg)
{
    struct serve *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        struct serve_call *c = serve_pop(&s->unprepared);
        if (!c && s->stopping)
            break;
        if (!c) {
            pthread_cond_wait(&s->to_prepare, &s->mutex);
            continue;
        }
        pthread_mutex_unlock(&s->mutex);
        if (atomic_load(&c->stop))
            serve_fail(c, &drained); /* nobody reads it */
        else if (c->endpoint->reply)
            serve_reply_late(c);
        else
            call_prepare(s, c);
        pthread_mutex_lock(&s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- calls on the engine thread ---- */

static struct serve_call *take_prepared(struct serve *s)
{
    pthread_mutex_lock(&s->mutex);
    struct serve_call *c = serve_pop(&s->prepared);
    pthread_mutex_unlock(&s->mutex);
    return c;
}

/* Let what a call begins now use its adapter. */
static void use_lora(const struct serve_call *c)
{
    (void)qwick_engine_use_lora(c->s->g.eng, c->lora, NULL);
}

static void start_calls(struct serve *s)
{
    struct serve_call *c;
    while ((c = take_prepared(s))) {
        struct serve_error e = drained;
        c->started = true;
        int rc = atomic_load(&c->stop) || atomic_load(&s->draining)
                     ? -1
                     : (use_lora(c), c->endpoint->start(c, &e));
        if (rc < 0)
            serve_fail(c, &e);
        else if (rc > 0)
            serve_push(&s->sliced, c);
    }
}

/* Do a piece of work of the first call with slices, and put it behind the
 * others. */
static void do_slice(struct serve *s)
{
    struct serve_call *c = serve_pop(&s->sliced);
    struct serve_error e = drained;
    if (!c)
        return;
    use_lora(c);
    int rc = atomic_load(&c->stop) ? -1 : c->endpoint->slice(c, &e);
    if (rc > 0)
        serve_push(&s->sliced, c);
    else if (rc < 0)
        serve_fail(c, &e);
}

/* Cancel the requests of calls that shall end. The callback of the batch ends
 * the calls. */
static void cancel_calls(struct serve *s)
{
    if (!atomic_exchange(&s->any_stopped, false))
        return;
    pthread_mutex_lock(&s->mutex);
    for (struct serve_call *c = s->all; c; c = c->next_all)
        if (c->started && !c->cancelled && c->endpoint->cancel &&
            atomic_load(&c->stop)) {
            c->cancelled = true;
            c->endpoint->cancel(c);
        }
    pthread_mutex_unlock(&s->mutex);
}

int serve_batch_done(void *ctx, void *tag, struct qwick_result *r,
                     const struct qwick_err *e)
{
    struct serve_task *t = tag;
    (void)ctx;
    t->done(t, r, e);
    return 0;
}

/* ---- signals and the end ---- */

static bool call_waits(const struct serve_call *c)
{
    return c->started && c->endpoint->waits && c->endpoint->waits(c);
}

/* End all calls, or those that have not begun. */
static void drain_calls(struct serve *s, bool all)
{
    pthread_mutex_lock(&s->mutex);
    for (struct serve_call *c = s->all; c; c = c->next_all) {
        int go_on = SERVE_GO_ON;
        if (all || call_waits(c))
            atomic_compare_exchange_strong(&c->stop, &go_on, SERVE_DRAINED);
    }
    pthread_mutex_unlock(&s->mutex);
    atomic_store(&s->any_stopped, true);
}

static void begin_drain(struct serve *s)
{
    if (s->drain_ms > 0)
        return;
    s->drain_ms = clock_ms() + (double)s->a->drain * 1000;
    atomic_store(&s->draining, true);
    drain_calls(s, false);
    http_drain(s->http);
    notify_send(s->notify, "STOPPING=1");
}

/* Nobody has needed the server for the time of --idle-exit. Requests that have
 * come are answered; new connections wait in the sockets of systemd, if it has
 * any, for the next server. */
static void begin_leave(struct serve *s)
{
    s->leaving = true;
    http_drain(s->http);
    notify_send(s->notify, "STOPPING=1");
}

/* Tell systemd in time that the engine works. */
static void feed_watchdog(struct serve *s)
{
    double now = clock_ms();
    if (now < s->watchdog_at)
        return;
    s->watchdog_at = now + s->watchdog_ms;
    notify_send(s->notify, "WATCHDOG=1");
}

static void read_signals(struct serve *s)
{
    if (signals_reload())
        atomic_store(&s->reload, true);
    if (flag_is_set(signals_flag()))
        begin_drain(s);
    if (s->drain_ms > 0 && clock_ms() >= s->drain_ms)
        drain_calls(s, true);
}

void serve_batch_layer(void *ctx)
{
    struct serve *s = ctx;
    atomic_store(&s->step_ms, clock_ms());
    feed_watchdog(s);
    read_signals(s);
    cancel_calls(s);
    http_help(s->http);
}

/* Return how long the engine may sleep, in milliseconds; -1: until it is woken.
 * 0: there is work. *over: the server has ended. */
static int sleep_ms(struct serve *s, bool *over)
{
    double now = clock_ms(), idle = (double)s->a->idle_exit * 1000;
    pthread_mutex_lock(&s->mutex);
    size_t n = s->n_calls;
    double since = s->idle_ms;
    bool ready = s->prepared.first;
    pthread_mutex_unlock(&s->mutex);
    bool draining = s->drain_ms > 0;
    if (n == 0 && !draining && !s->leaving && idle > 0 && now >= since + idle)
        begin_leave(s);
    *over =
        n == 0 && (draining || (s->leaving && http_connections(s->http) == 0));
    if (ready || *over)
        return 0;
    if (draining)
        return DRAIN_WAIT_MS;
    if (s->leaving)
        return LEAVE_WAIT_MS;
    double until = s->watchdog_at;
    if (n == 0 && idle > 0)
        until = fmin(until, since + idle);
    if (n == 0 && s->unstored)
        until = fmin(until, since + STORE_IDLE_MS);
    return until == (double)INFINITY ? -1 : (int)fmax(until - now, 0) + 1;
}

/* Store the prefix cache on disk, so that conversations outlive the process,
 * until *stop or another request comes. */
static void store_prefixes(struct serve *s, const volatile int *stop,
                           double until_ms)
{
    struct qwick_err e = {0};
    double began;
    bool failed, more;
    do {
        began = clock_ms();
        feed_watchdog(s);
        failed = qwick_engine_store_prefixes(s->g.eng, STORE_PIECE_MS,
                                             &s->woken, &e) != 0;
        more = clock_ms() - began >= STORE_PIECE_MS;
    } while (!failed && more && !flag_is_set(&s->woken) && !flag_is_set(stop) &&
             clock_ms() < until_ms);
    s->unstored = flag_is_set(&s->woken);
    if (failed && e.code != QWICK_ERR_INTERRUPTED)
        msg_warn("%s", e.msg);
}

/* No request has come for a while. */
static void use_idle_time(struct serve *s)
{
    pthread_mutex_lock(&s->mutex);
    bool idle = s->n_calls == 0 && clock_ms() >= s->idle_ms + STORE_IDLE_MS;
    pthread_mutex_unlock(&s->mutex);
    if (idle && s->unstored)
        store_prefixes(s, signals_flag(), INFINITY);
}

static bool batch_has_work(const struct serve *s)
{
    struct qwick_batch_stats st = {0};
    if (s->batch)
        st = qwick_batch_get_stats(s->batch);
    return st.n_live + st.n_waiting > 0;
}

/* Show what the batch does. Its memory is counted page by page, so not in each
 * pass. */
static void show_batch(struct serve *s)
{
    metric_number *v = s->metrics.v;
    struct qwick_batch_stats st = {0};
    uint64_t n_sliced = 0;
    double now = clock_ms();
    if (s->batch)
        st = qwick_batch_get_stats(s->batch);
    for (const struct serve_call *c = s->sliced.first; c; c = c->next)
        n_sliced++;
    metric_set(&v[METRIC_PREEMPTIONS], st.n_preempted);
    if (s->batch && (!st.n_live || now >= s->shown_ms + SHOW_MEMORY_MS)) {
        metric_set(&v[METRIC_KV_BYTES], qwick_batch_kv_bytes(s->batch));
        s->shown_ms = now;
    }
    /* Last: whoever reads that nothing runs reads the memory of nothing. */
    atomic_store(&s->n_running, st.n_live + n_sliced);
}

/* Sleep until there is work. Returns false when the server shall end. */
static bool wait_for_work(struct serve *s)
{
    bool over;
    uint64_t n;
    int ms = sleep_ms(s, &over);
    struct pollfd fd = {.fd = s->wake, .events = POLLIN};
    if (over)
        return false;
    if (ms == 0)
        return true;
    atomic_store(&s->working, false);
    flag_set(&s->woken, 0);
    if (s->drain_ms > 0) /* signals_poll would not wait any more */
        poll(&fd, 1, ms);
    else
        signals_poll(s->wake, POLLIN, ms);
    ssize_t r = read(s->wake, &n, sizeof(n)); /* it does not block */
    (void)r;
    use_idle_time(s);
    return true;
}

/* The server ends: keep what it knows, for as long as it would have drained. */
static void store_at_end(struct serve *s)
{
    flag_set(&s->woken, 0);
    if (s->unstored && s->a->drain > 0)
        store_prefixes(s, &s->woken, clock_ms() + (double)s->a->drain * 1000);
}

/* Work until the server shall end. */
static int engine_loop(struct serve *s)
{
    struct qwick_err e;
    while (!atomic_load(&s->failed)) {
        feed_watchdog(s);
        read_signals(s);
        start_calls(s);
        cancel_calls(s);
        show_batch(s);
        http_help(s->http);
        bool busy = batch_has_work(s) || s->sliced.first;
        if (!busy && !wait_for_work(s))
            break;
        if (!busy)
            continue;
        atomic_store(&s->step_ms, clock_ms());
        atomic_store(&s->working, true);
        s->unstored = s->a->prefix_cache.on;
        if (batch_has_work(s) && qwick_batch_step(s->batch, &e))
            return msg_fail(&e);
        http_help(s->http);
        do_slice(s);
    }
    /* the I/O thread has said why */
    return atomic_load(&s->failed) ? QWICK_ERR_RUNTIME : 0;
}

/* Whether the engine leaves no CPU to the I/O thread. */
static bool takes_all_cpus(const struct serve *s)
{
    return qwick_engine_info(s->g.eng)->threads >= os_cpus();
}

int serve_loop(struct serve *s)
{
    http_set_helper(s->http, takes_all_cpus(s));
    int rc = engine_loop(s);
    http_set_helper(s->http, false);
    if (!rc)
        store_at_end(s);
    return rc;
}

void serve_fail_all(struct serve *s)
{
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        struct serve_call *c = s->all;
        pthread_mutex_unlock(&s->mutex);
        if (!c)
            return;
        serve_fail(c, &drained);
    }
}
