#include "base/par.h"

#include <limits.h>
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Spins before sleeping: longer than the skew between cores that both run (tens
 * of microseconds), short beside the time slice for which another program may
 * hold a core. Yielding instead would hand a whole slice to such a program at
 * every barrier; a sleeper that is woken goes first. */
enum { SPINS = 2000 };

struct par_team {
    atomic_int n_threads;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint generation;
    atomic_int sleepers;
    _Alignas(64) atomic_size_t next;
};

static void *probe_wait(void *arg)
{
    pthread_mutex_t *gate = arg;
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

int par_probe(int n_threads)
{
    enum { MAX = 1024 };
    pthread_t threads[MAX];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int want = n_threads - 1 < MAX ? n_threads - 1 : MAX;
    int n = 0;
    pthread_mutex_lock(&gate);
    while (n < want && !pthread_create(&threads[n], NULL, probe_wait, &gate))
        n++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (n < want) {
        n /= 2; /* leave room for what threads allocate */
        /* The pool starts while what was probed still holds. Otherwise not yet:
         * it would spin beside the thread that loads the tokenizer. */
#pragma omp parallel num_threads(n + 1)
        {
        }
    }
    return n + 1;
}

void par_run(int n_threads, par_fn fn, void *ctx)
{
    struct par_team team = {.n_threads = 1};
    if (n_threads <= 1) {
        fn(ctx, &team, 0, 1);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        /* OpenMP may give fewer threads than asked for: the team is what came.
         * Every thread stores the same number before its first barrier. */
        int n = omp_get_num_threads();
        atomic_store_explicit(&team.n_threads, n, memory_order_relaxed);
        fn(ctx, &team, omp_get_thread_num(), n);
    }
}

static void futex(atomic_uint *word, int op, unsigned value)
{
    syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/* Sleep until the generation is another one. A sleeper counts itself before the
 * kernel compares the generation, and the last to arrive looks for sleepers
 * after it has changed it: one of both always sees the other. */
static void sleep_through(struct par_team *team, unsigned gen)
{
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(&team->generation) == gen)
        futex(&team->generation, FUTEX_WAIT_PRIVATE, gen);
    atomic_fetch_sub(&team->sleepers, 1);
}

void par_barrier(struct par_team *team)
{
    par_barrier_idle(team, NULL, NULL);
}

void par_barrier_idle(struct par_team *team, int (*idle)(void *), void *ctx)
{
    unsigned gen =
        atomic_load_explicit(&team->generation, memory_order_relaxed);
    int before =
        atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    int n = atomic_load_explicit(&team->n_threads, memory_order_relaxed);
    if (before == n - 1) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->next, 0, memory_order_relaxed);
        atomic_store(&team->generation, gen + 1);
        if (atomic_load(&team->sleepers) > 0)
            futex(&team->generation, FUTEX_WAKE_PRIVATE, INT_MAX);
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&team->generation, memory_order_acquire) !=
            gen)
            return;
        if (!idle || !idle(ctx)) {
            idle = NULL;
            __builtin_ia32_pause();
        }
    }
    sleep_through(team, gen);
}

int par_next(struct par_team *team, size_t n, size_t grain, size_t *begin,
             size_t *end)
{
    size_t at =
        atomic_fetch_add_explicit(&team->next, grain, memory_order_relaxed);
    if (at >= n)
        return 0;
    *begin = at;
    *end = at + grain < n ? at + grain : n;
    return 1;
}

void par_split(size_t n, size_t align, int tid, int n_threads, size_t *begin,
               size_t *end)
{
    size_t units = (n + align - 1) / align;
    size_t t = (size_t)tid, p = (size_t)n_threads;
    size_t from = units / p * t + (t < units % p ? t : units % p);
    size_t count = units / p + (t < units % p);
    *begin = from * align < n ? from * align : n;
    *end = (from + count) * align < n ? (from + count) * align : n;
}
