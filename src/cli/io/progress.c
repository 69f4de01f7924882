#include "cli/io/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/io/out.h"
#include "cli/io/term.h"

/* A task shorter than a second needs no progress line. */
#define DELAY_MS 1000
#define EVERY_MS 250
/* From this number of seconds on, the time that is left is in minutes. */
#define SECONDS 120
#define STACK   (256 << 10)

struct items {
    const char *unit;
    uint64_t before, n, total, n_free;
    double done;    /* with parts of items */
    double done_ms; /* when done was set */
    double first;   /* done when it was first known, at first_ms; reading the
                       model may have taken the time before */
    double first_ms;
};

/* There is one stderr, hence one line. A text that is set before DELAY_MS is
 * drawn later by the ticker, a thread, which also lets the time of items go on:
 * the first pass may take a minute without another call. The lock protects this
 * state from the ticker. */
static struct {
    bool on, drawn, ticking, stop;
    const char *name;
    char line[256];
    size_t n;
    double start_ms, set_ms;
    bool by_items; /* the line shows items */
    struct items items;
    pthread_t ticker;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} p = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- how it looks ------------------------------------------------------- */

static size_t time_left(char *out, size_t n, double s)
{
    int k = s < 0         ? 0
            : s < SECONDS ? snprintf(out, n, ", %.0f s left", s)
            : s < 7200    ? snprintf(out, n, ", %.0f min left", s / 60)
                          : snprintf(out, n, ", %.1f h left", s / 3600);
    return k > 0 ? (size_t)k : 0;
}

void progress_format(char *out, size_t n, const char *unit, uint64_t done,
                     uint64_t total, double seconds_left)
{
    int k = total
                ? snprintf(out, n, "%llu of %llu %s", (unsigned long long)done,
                           (unsigned long long)total, unit)
                : snprintf(out, n, "%llu %s", (unsigned long long)done, unit);
    if (k > 0 && (size_t)k < n)
        time_left(out + k, n - (size_t)k, seconds_left);
}

static double left(double seconds, double done, double n_free, double total)
{
    if (done <= n_free || total < done)
        return -1;
    return seconds * (total - done) / (done - n_free);
}

double progress_left(double seconds, uint64_t done, uint64_t n_free,
                     uint64_t total)
{
    return left(seconds, (double)done, (double)n_free, (double)total);
}

/* An upper bound of the columns that terminals use: all characters below Hangul
 * (U+1100) are narrow. */
static size_t char_columns(uint32_t cp)
{
    return cp < 0x1100 ? 1 : 2;
}

size_t progress_fit(const char *line, size_t n, size_t columns)
{
    size_t at = 0;
    while (at < n) {
        uint32_t cp = 0;
        size_t k = utf8_decode(line + at, n - at, &cp, NULL);
        size_t width = k ? char_columns(cp) : 1;
        if (width > columns)
            break;
        columns -= width;
        at += k ? k : 1;
    }
    return at;
}

/* ---- drawing ------------------------------------------------------------ */

static void erase(void)
{
    if (p.drawn)
        fd_write(STDERR_FILENO, "\r\033[K", 4);
    p.drawn = false;
}

/* The last column stays free: some terminals wrap when it is written. */
static void draw(void)
{
    char out[sizeof(p.line) + 8];
    size_t n = progress_fit(p.line, p.n, term_columns(STDERR_FILENO) - 1);
    int k = snprintf(out, sizeof(out), "\r%.*s\033[K", (int)n, p.line);
    fd_write(STDERR_FILENO, out, (size_t)k);
    p.drawn = true;
}

/* Estimate the seconds that are left now. Negative: unknown, or the estimate
 * was too low. */
static double seconds_left(const struct items *it, double now)
{
    bool again = it->done > it->first;
    double from = again ? it->first_ms : p.start_ms;
    double s = left((it->done_ms - from) / 1000, it->done,
                    again ? it->first : (double)it->n_free, (double)it->total);
    double since = (now - it->done_ms) / 1000;
    return s > since ? s - since : -1;
}

/* Set the line to a text. */
static void set_line(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
static void set_line(const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(p.line, sizeof(p.line), "%s: ", p.name);
    va_start(ap, fmt);
    n += vsnprintf(p.line + n, sizeof(p.line) - (size_t)n, fmt, ap);
    va_end(ap);
    p.n = strlen(p.line);
    (void)n;
}

/* Set the line to the number of items and the time that is left. The time so
 * far follows, unless the line has seconds that change. */
static void set_items_line(void)
{
    const struct items *it = &p.items;
    char text[128];
    double now = clock_ms(), s = it->total ? seconds_left(it, now) : -1;
    progress_format(text, sizeof(text), it->unit, (uint64_t)it->done, it->total,
                    s);
    if (s < 0 || s >= SECONDS)
        set_line("%s, %.0f s so far", text, (now - p.start_ms) / 1000);
    else
        set_line("%s", text);
}

static void draw_if_due(void)
{
    if (p.n && clock_ms() - p.start_ms >= DELAY_MS)
        draw();
}

/* Draw a line that is late, or whose time has changed. */
static void go_on(void)
{
    if (p.by_items)
        set_items_line();
    if (p.by_items || !p.drawn)
        draw_if_due();
}

static void *tick(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&p.lock);
    while (!p.stop) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += EVERY_MS * 1000000L;
        t.tv_sec += t.tv_nsec / 1000000000L;
        t.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&p.wake, &p.lock, &t);
        if (!p.stop)
            go_on();
    }
    pthread_mutex_unlock(&p.lock);
    return NULL;
}

/* Start the ticker with all signals blocked: the thread that waits for input
 * must get them. If it cannot start, lines are only drawn when they are set. */
static void start_ticker(void)
{
    pthread_attr_t attr;
    pthread_condattr_t clock;
    sigset_t all, old;
    if (pthread_attr_init(&attr) || pthread_condattr_init(&clock))
        return;
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p.wake, &clock);
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    p.stop = false;
    p.ticking = pthread_create(&p.ticker, &attr, tick, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    pthread_condattr_destroy(&clock);
}

/* ---- from outside ------------------------------------------------------- */

void progress_start(const char *name)
{
    if (p.on || msg_quiet() || !isatty(STDERR_FILENO) || !term_moves())
        return;
    p.on = true;
    p.name = name;
    p.n = 0;
    p.by_items = false;
    p.items = (struct items){0};
    p.start_ms = clock_ms();
    p.set_ms = -1;
    start_ticker();
}

bool progress_on(void)
{
    return p.on;
}

bool progress_due(void)
{
    return p.on && (p.set_ms < 0 || clock_ms() - p.set_ms >= EVERY_MS);
}

void progress_show(const char *fmt, ...)
{
    char text[sizeof(p.line)];
    va_list ap;
    if (!p.on)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&p.lock);
    p.by_items = false;
    set_line("%s", text);
    p.set_ms = clock_ms();
    draw_if_due();
    pthread_mutex_unlock(&p.lock);
}

/* Show the number of items and the time. */
static void show_items(double done, uint64_t total)
{
    struct items *it = &p.items;
    pthread_mutex_lock(&p.lock);
    p.by_items = true;
    p.set_ms = it->done_ms = clock_ms();
    it->done = done;
    it->total = total;
    if (it->first_ms <= 0 && done > (double)it->n_free) {
        it->first = done;
        it->first_ms = it->done_ms;
    }
    set_items_line();
    draw_if_due();
    pthread_mutex_unlock(&p.lock);
}

void progress_items(const char *unit, uint64_t before, uint64_t n,
                    uint64_t total, uint64_t n_free)
{
    struct items *it = &p.items;
    if (!p.on)
        return;
    bool due = progress_due();
    pthread_mutex_lock(&p.lock);
    it->unit = unit;
    it->before = before;
    it->n = n;
    it->total = total;
    it->n_free = n_free;
    pthread_mutex_unlock(&p.lock);
    if (due && (n || total))
        show_items((double)before, total);
}

void progress_step(void *ctx, size_t done, size_t total)
{
    struct items *it = &p.items;
    (void)ctx;
    if (!progress_due() || total == 0)
        return;
    if (it->total == 1) { /* the parts of one item are more telling */
        pthread_mutex_lock(&p.lock);
        it->unit = "tokens";
        it->n = 0;
        pthread_mutex_unlock(&p.lock);
    }
    double share = (double)done / (double)total;
    if (it->n == 0)
        show_items((double)done, total);
    else
        show_items((double)it->before + (double)it->n * share, it->total);
}

void progress_clear(void)
{
    if (!p.on)
        return;
    pthread_mutex_lock(&p.lock);
    erase();
    pthread_mutex_unlock(&p.lock);
}

void progress_output(int fd)
{
    struct stat st;
    if (!p.on)
        return;
    if (isatty(fd) || fstat(fd, &st) || S_ISFIFO(st.st_mode) ||
        S_ISSOCK(st.st_mode))
        progress_stop();
}

void progress_stop(void)
{
    if (!p.on)
        return;
    pthread_mutex_lock(&p.lock);
    p.stop = true;
    erase();
    pthread_mutex_unlock(&p.lock);
    if (p.ticking) {
        pthread_cond_signal(&p.wake);
        pthread_join(p.ticker, NULL);
        pthread_cond_destroy(&p.wake);
    }
    p.on = p.ticking = false;
}
