#include "cli/progress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/out.h"
#include "cli/term.h"

/* A task shorter than a second needs no progress line. */
#define DELAY_MS 1000
#define EVERY_MS 250
#define STACK    (256 << 10)

struct items {
    const char *unit;
    uint64_t before, n, total, n_free;
};

/* There is one stderr, hence one line. A text that is set before DELAY_MS is
 * drawn later by the ticker, a thread: the first pass may take a minute without
 * another call. The lock protects this state from the ticker. */
static struct {
    bool on, drawn, ticking, stop;
    const char *name;
    char line[256];
    size_t n;
    double start_ms, set_ms;
    struct items items;
    pthread_t ticker;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} p = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- how it looks ------------------------------------------------------- */

static size_t time_left(char *out, size_t n, double s)
{
    int k = s < 0      ? 0
            : s < 120  ? snprintf(out, n, ", %.0f s left", s)
            : s < 7200 ? snprintf(out, n, ", %.0f min left", s / 60)
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

double progress_left(double seconds, uint64_t done, uint64_t n_free,
                     uint64_t total)
{
    if (done <= n_free || total < done)
        return -1;
    return seconds * (double)(total - done) / (double)(done - n_free);
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

static bool can_erase(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static void to_stderr(const char *s, size_t n)
{
    /* a failure cannot be reported: this is stderr */
    fd_write(STDERR_FILENO, s, n);
}

static void erase(void)
{
    if (p.drawn)
        to_stderr("\r\033[K", 4);
    p.drawn = false;
}

/* The last column stays free: some terminals wrap when it is written. */
static void draw(void)
{
    char out[sizeof(p.line) + 8];
    size_t n = progress_fit(p.line, p.n, term_columns(STDERR_FILENO) - 1);
    int k = snprintf(out, sizeof(out), "\r%.*s\033[K", (int)n, p.line);
    to_stderr(out, (size_t)k);
    p.drawn = true;
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
        if (!p.stop && !p.drawn && p.n && clock_ms() - p.start_ms >= DELAY_MS)
            draw();
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
    if (p.on || msg_quiet() || !can_erase())
        return;
    p.on = true;
    p.name = name;
    p.n = 0;
    p.start_ms = p.set_ms = clock_ms();
    start_ticker();
}

bool progress_on(void)
{
    return p.on;
}

bool progress_due(void)
{
    return p.on && (p.n == 0 || clock_ms() - p.set_ms >= EVERY_MS);
}

void progress_show(const char *fmt, ...)
{
    va_list ap;
    if (!p.on)
        return;
    pthread_mutex_lock(&p.lock);
    int n = snprintf(p.line, sizeof(p.line), "%s: ", p.name);
    va_start(ap, fmt);
    n += vsnprintf(p.line + n, sizeof(p.line) - (size_t)n, fmt, ap);
    va_end(ap);
    p.n = strlen(p.line);
    (void)n;
    p.set_ms = clock_ms();
    if (p.set_ms - p.start_ms >= DELAY_MS)
        draw();
    pthread_mutex_unlock(&p.lock);
}

/* Show the number of items and the time left. */
static void show_items(uint64_t done, uint64_t total)
{
    char text[128];
    double s = (clock_ms() - p.start_ms) / 1000;
    progress_format(text, sizeof(text), p.items.unit, done, total,
                    total ? progress_left(s, done, p.items.n_free, total) : -1);
    progress_show("%s", text);
}

void progress_items(const char *unit, uint64_t before, uint64_t n,
                    uint64_t total, uint64_t n_free)
{
    if (!p.on)
        return;
    p.items = (struct items){unit, before, n, total, n_free};
    if (progress_due() && (n || total))
        show_items(before, total);
}

void progress_step(void *ctx, size_t done, size_t total)
{
    const struct items *it = &p.items;
    (void)ctx;
    if (!progress_due() || total == 0)
        return;
    if (it->n == 0)
        show_items(done, total);
    else
        show_items(it->before +
                       (uint64_t)((double)it->n * (double)done / (double)total),
                   it->total);
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
