/* A pool of threads. A parallel region runs one function on all threads of the
 * pool (single program, multiple data). The threads meet at barriers and split
 * work by their index. */
#ifndef BASE_PAR_H
#define BASE_PAR_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct os_nodes;
struct par_pool;
struct par_team; /* the threads of the running region */

typedef void (*par_fn)(void *ctx, struct par_team *team, int tid,
                       int n_threads);

/* Create a pool of up to n_threads threads, counting the one that calls
 * par_run. If the system refuses some (RLIMIT_NPROC, RLIMIT_AS, cgroup pids),
 * only half of the started threads are kept, to leave room for their
 * allocations. The threads live as long as the pool, so a region cannot fail
 * because it gets no threads. They block all signals except those for their own
 * faults. Returns NULL when out of memory. */
struct par_pool *par_create(int n_threads);
/* Block signals before starting a thread, which inherits that, so that the
 * program's threads get them. Signals that an instruction causes stay: for
 * example, a page of a mapped file is gone. *old: the mask to restore. */
void par_block_signals(sigset_t *old);
/* End the threads and free the pool. p may be NULL. */
void par_free(struct par_pool *p);

/* Return the number of threads of a pool, at least 1. NULL has 1: only the
 * caller. */
int par_threads(const struct par_pool *p);

/* Bind the threads to memory nodes: the first threads[0] of them to the CPUs of
 * node 0, the next threads[1] to those of node 1, and so on. The numbers are
 * those of nodes_plan for par_threads(p). Workers stay bound. The thread that
 * calls par_run is bound in its regions, to those of its own CPUs that are on
 * the node, and gets all its CPUs back after each. nodes is borrowed and must
 * outlive the pool. Call this once, when no region runs. Returns false if not
 * all threads can be bound. */
bool par_bind(struct par_pool *p, const struct os_nodes *nodes,
              const size_t *threads);

/* Run fn on all threads of a pool, and return when all calls have returned. The
 * caller is thread 0. p NULL: only the caller runs fn. Any thread may call
 * this, one at a time. Regions do not nest. */
void par_run(struct par_pool *p, par_fn fn, void *ctx);
/* Run a region that no other follows soon. It differs from par_run in that the
 * threads sleep at once afterwards. After par_run they first spin for a while,
 * which takes CPU time from other programs, and from a caller on the same core. */
void par_run_rarely(struct par_pool *p, par_fn fn, void *ctx);

/* Wait until all threads of the team have called this. tid: the index that the
 * region's function got. Spins for a limited time, then sleeps. */
void par_barrier(struct par_team *team, int tid);

/* Wait as par_barrier does, but use the time: while the thread spins, it calls
 * idle(ctx) until that returns 0. Each call must be short, because the thread
 * cannot leave the barrier during a call. idle may be NULL. */
void par_barrier_idle(struct par_team *team, int tid, int (*idle)(void *),
                      void *ctx);

/* Take the next piece of dynamic work: at most grain of the indices [0, n). The
 * team's threads call this until no index is left. Sets *begin and *end and
 * returns 1, or returns 0 when no index is left. Every par_barrier starts again
 * from 0. */
int par_next(struct par_team *team, size_t n, size_t grain, size_t *begin,
             size_t *end);

/* Set [*begin, *end) to thread tid's share of n items, in units of align items;
 * the last unit may be shorter. Shares differ by at most one unit. */
void par_split(size_t n, size_t align, int tid, int n_threads, size_t *begin,
               size_t *end);

#endif
