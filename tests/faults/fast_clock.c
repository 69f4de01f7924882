/* A library for LD_PRELOAD: the clock that measures durations runs 20 times as
 * fast. A measurement that takes a fixed time, and a wait for a condition, then
 * take a twentieth of it. For tests of what is done with measurements, whatever
 * they are, and of what appears after some time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RATE = 20 };

static long long ns_of(const struct timespec *t)
{
    return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static struct timespec time_of(long long ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (!rc && clock == CLOCK_MONOTONIC)
        *t = time_of(ns_of(t) * RATE);
    return rc;
}

/* qwick waits by this clock only, in these two ways. */
int poll(struct pollfd *fds, nfds_t n, int ms)
{
    static int (*real)(struct pollfd *, nfds_t, int);
    if (!real) {
        void *p = dlsym(RTLD_NEXT, "poll");
        memcpy(&real, &p, sizeof p);
    }
    return real(fds, n, ms > 0 ? (ms + RATE - 1) / RATE : ms);
}

int pthread_cond_timedwait(pthread_cond_t *restrict c,
                           pthread_mutex_t *restrict m,
                           const struct timespec *restrict t)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *,
                       const struct timespec *);
    struct timespec sooner = time_of(ns_of(t) / RATE);
    if (!real) {
        void *p = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
        memcpy(&real, &p, sizeof p);
    }
    return real(c, m, &sooner);
}
