/* The one pool of threads (OpenMP). A parallel region runs one function on all
 * threads of a team (single program, multiple data); threads meet at barriers
 * and split work by their index. */
#ifndef BASE_PAR_H
#define BASE_PAR_H

#include <stddef.h>

struct par_team; /* of the running region */

typedef void (*par_fn)(void *ctx, struct par_team *team, int tid,
                       int n_threads);

/* Probe how many of n_threads this process may really create (RLIMIT_NPROC,
 * RLIMIT_AS, cgroup pids): libgomp would end the process. Where some fail, half
 * of the others make the pool, to leave room. Returns how many, 1..n_threads.
 */
int par_probe(int n_threads);

/* Run fn on n_threads threads, the caller being thread 0; returns when all
 * have returned. Not nested. */
void par_run(int n_threads, par_fn fn, void *ctx);

/* Wait for all threads of the team: spins for a bounded time, then sleeps. */
void par_barrier(struct par_team *team);

/* The same, and makes use of the wait: while it spins it calls idle(ctx), again
 * until that returns 0. Each call is to be short, as nobody is let go in its
 * midst. idle NULL: par_barrier. */
void par_barrier_idle(struct par_team *team, int (*idle)(void *), void *ctx);

/* Hand out the indices [0, n) of the team's current piece of dynamic work in
 * runs of at most grain: sets *begin and *end, returns 0 when none are left.
 * Every par_barrier starts a new piece. */
int par_next(struct par_team *team, size_t n, size_t grain, size_t *begin,
             size_t *end);

/* Thread tid's share [*begin, *end) of n items, in whole units of align but for
 * the last; differs by at most one unit among threads. */
void par_split(size_t n, size_t align, int tid, int n_threads, size_t *begin,
               size_t *end);

#endif
