/* A pool of threads. A parallel region runs one function on all of them (single
 * program, multiple data); threads meet at barriers and split work by their
 * index. */
#ifndef BASE_PAR_H
#define BASE_PAR_H

#include <stddef.h>

struct par_pool;
struct par_team; /* the threads of the running region */

typedef void (*par_fn)(void *ctx, struct par_team *team, int tid,
                       int n_threads);

/* A pool of up to n_threads threads, counting the one that calls par_run. If
 * the system refuses some (RLIMIT_NPROC, RLIMIT_AS, cgroup pids), only half of
 * the started threads are kept, to leave room for their allocations. The
 * threads live as long as the pool. A region creates no threads, so it cannot
 * fail for lack of them. The threads block all signals except those for their
 * own faults. NULL: out of memory. */
struct par_pool *par_create(int n_threads);
/* End the threads. NULL is allowed. */
void par_free(struct par_pool *p);

/* The number of threads of a pool, at least 1; 1 for NULL: only the caller. */
int par_threads(const struct par_pool *p);

/* Run fn on all threads of a pool, the caller being thread 0, and return when
 * all calls have returned. NULL: only the caller runs it. Any thread may call
 * this, one at a time. Regions do not nest. */
void par_run(struct par_pool *p, par_fn fn, void *ctx);

/* Wait for all threads of the team: spins for a bounded time, then sleeps. */
void par_barrier(struct par_team *team);

/* par_barrier that uses the wait: while it spins, it calls idle(ctx) until that
 * returns 0. Each call must be short, because a thread leaves the barrier only
 * after it. idle NULL: par_barrier. */
void par_barrier_idle(struct par_team *team, int (*idle)(void *), void *ctx);

/* Hand out the indices [0, n) of the team's current piece of dynamic work in
 * runs of at most grain: sets *begin and *end. Returns 0 when none are left.
 * Every par_barrier starts a new piece. */
int par_next(struct par_team *team, size_t n, size_t grain, size_t *begin,
             size_t *end);

/* Thread tid's share [*begin, *end) of n items, in units of align items; the
 * last unit may be shorter. Shares differ by at most one unit. */
void par_split(size_t n, size_t align, int tid, int n_threads, size_t *begin,
               size_t *end);

#endif
