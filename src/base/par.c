#include "base/par.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/os.h"

/* `make check-races` builds this file for helgrind, which does not know how
 * atomics order memory, and has to be told. The thread sanitizer knows. */
#ifdef PAR_FOR_HELGRIND
#include <valgrind/helgrind.h>
#define ORDER_BEFORE(word) ANNOTATE_HAPPENS_BEFORE(word)
#define ORDER_AFTER(word)  ANNOTATE_HAPPENS_AFTER(word)
#define ONLY_ATOMICS(s)    VALGRIND_HG_DISABLE_CHECKING(s, sizeof *(s))
#else
#define ORDER_BEFORE(word) ((void)0)
#define ORDER_AFTER(word)  ((void)0)
#define ONLY_ATOMICS(s)    ((void)0)
#endif

/* Spins before sleeping. This must be longer than the skew between running
 * cores (tens of microseconds), and short compared with the time slice for
 * which another program may hold a core. If we yielded instead, such a program
 * would get a whole slice at every barrier; a thread that wakes up from sleep
 * goes first. */
enum { SPINS = 2000 };

/* Spins between regions, to bridge the work of a generation between two tokens.
 */
enum { IDLE_SPINS = 100000 };

/* Spins of any kind if there are more threads than CPUs: the thread that we
 * wait for may get a CPU only when this one sleeps. */
enum { CROWDED_SPINS = 20 };

/* Frames of kernels have up to 32 KiB; the rest is for libraries. */
enum { STACK_BYTES = 1 << 20 };

/* Threads arrive at a barrier by a tree. Each node has a few children, threads or
 * nodes, and the last of them to arrive goes on to the parent. With one counter
 * for all, 16 threads would take its cache line from each other 16 times in a
 * row; the nodes of a level are counted at the same time. */
enum { NODE_CHILDREN = 4 };

struct node {
    _Alignas(64) atomic_int arrived;
    int children;
    struct node *parent; /* NULL: the root */
};

struct par_team {
    int n_threads, spins;
    struct node *nodes; /* thread t arrives at node t / NODE_CHILDREN */
    _Alignas(64) atomic_uint generation;
    atomic_uint sleepers;
    _Alignas(64) atomic_size_t next;
};

struct worker {
    struct par_pool *pool;
    pthread_t thread;
    int tid;
};

struct par_pool {
    int n_threads;         /* workers with a tid from this number on return */
    int spins, idle_spins; /* before sleeping: inside and between regions */
    const struct os_node *node;   /* of the caller; NULL: it is not bound */
    struct os_affinity *affinity; /* the CPUs of the caller outside a region */
    /* of the running region */
    par_fn fn; /* NULL: nothing to do */
    void *ctx;
    struct par_team *team;
    bool rare; /* no region follows soon */
    struct node *nodes;
    _Alignas(64) atomic_uint region; /* number of regions started */
    atomic_uint sleepers;
    _Alignas(64) atomic_uint running; /* workers that have not returned */
    atomic_uint waited_for;           /* the caller sleeps until all have
                                         returned */
    struct worker workers[];
};

/* Sleep until the word is no longer `old`. A sleeper counts itself before the
 * kernel compares the word. The thread that changes the word looks for sleepers
 * after the change. So one of the two always sees the other. */
static void sleep_through(atomic_uint *word, unsigned old,
                          atomic_uint *sleepers)
{
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == old)
        os_wait(word, old);
    atomic_fetch_sub(sleepers, 1);
}

/* Wake the sleepers after a change of the word. */
static void wake_sleepers(atomic_uint *word, atomic_uint *sleepers)
{
    if (atomic_load(sleepers) > 0)
        os_wake(word);
}

/* Wait until the word is no longer `old`. */
static void await_change(atomic_uint *word, unsigned old, int spins,
                         atomic_uint *sleepers)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        cpu_pause();
    }
    sleep_through(word, old, sleepers);
}

/* ---- the pool ----------------------------------------------------------- */

static void *par_work(void *arg)
{
    const struct worker *w = arg;
    struct par_pool *p = w->pool;
    int spins = 0; /* do not spin before the first region: the tokenizer is
                      loading */
    for (unsigned seen = 0;; seen++) {
        await_change(&p->region, seen, spins, &p->sleepers);
        ORDER_AFTER(&p->region);
        if (w->tid >= p->n_threads)
            return NULL;
        if (p->fn)
            p->fn(p->ctx, p->team, w->tid, p->n_threads);
        /* before the caller may change them */
        spins = p->rare ? 0 : p->idle_spins;
        ORDER_BEFORE(&p->running);
        if (atomic_fetch_sub(&p->running, 1) == 1)
            wake_sleepers(&p->running, &p->waited_for);
    }
}

void par_block_signals(sigset_t *old)
{
    static const int faults[] = {SIGBUS,  SIGFPE, SIGILL,
                                 SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_BLOCK, &set, old);
}

/* Start up to n workers. Returns how many could be started. */
static int start_workers(struct par_pool *p, int n)
{
    pthread_attr_t attr;
    sigset_t old;
    int i = 0;
    if (pthread_attr_init(&attr))
        return 0;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    par_block_signals(&old);
    for (; i < n; i++) {
        struct worker *w = &p->workers[i];
        *w = (struct worker){.pool = p, .tid = i + 1};
        if (pthread_create(&w->thread, &attr, par_work, w))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return i;
}

/* Start the workers on the region that the pool describes. */
static void start_region(struct par_pool *p)
{
    ORDER_BEFORE(&p->region);
    atomic_store(&p->running, (unsigned)p->n_threads - 1);
    atomic_fetch_add(&p->region, 1);
    wake_sleepers(&p->region, &p->sleepers);
}

static void await_workers(struct par_pool *p)
{
    unsigned left;
    for (int i = 0; i < p->spins; i++) {
        if (!atomic_load_explicit(&p->running, memory_order_acquire))
            return;
        cpu_pause();
    }
    atomic_store(&p->waited_for, 1);
    while ((left = atomic_load(&p->running)) > 0)
        os_wait(&p->running, left);
    atomic_store(&p->waited_for, 0);
}

/* Wait until all workers have returned from the region. */
static void end_region(struct par_pool *p)
{
    await_workers(p);
    ORDER_AFTER(&p->running);
}

/* End the workers of n after the first `keep` ones. */
static void dismiss(struct par_pool *p, int n, int keep)
{
    p->fn = NULL;
    p->n_threads = keep + 1;
    start_region(p);
    for (int i = keep; i < n; i++)
        pthread_join(p->workers[i].thread, NULL);
    end_region(p);
}

/* Return the nodes of a level whose nodes or threads below are n. */
static size_t level_nodes(size_t n)
{
    return (n + NODE_CHILDREN - 1) / NODE_CHILDREN;
}

/* Return the nodes of a tree for n threads. */
static size_t tree_nodes(size_t n)
{
    size_t all = n = level_nodes(n);
    while (n > 1)
        all += n = level_nodes(n);
    return all;
}

/* Link the nodes for n threads. Those of the lowest level come first. */
static void plant_tree(struct node *nodes, size_t n)
{
    for (;;) {
        size_t level = level_nodes(n);
        struct node *above = level > 1 ? nodes + level : NULL;
        for (size_t i = 0; i < level; i++) {
            size_t left = n - i * NODE_CHILDREN;
            nodes[i] = (struct node){
                .children = left < NODE_CHILDREN ? (int)left : NODE_CHILDREN,
                .parent = above ? above + i / NODE_CHILDREN : NULL};
            ONLY_ATOMICS(&nodes[i]);
        }
        if (!above)
            return;
        nodes = above;
        n = level;
    }
}

/* Return memory for a pool, its tree and its workers of n_threads threads, or
 * NULL. */
static struct par_pool *pool_memory(size_t n_threads)
{
    size_t bytes =
        sizeof(struct par_pool) + (n_threads - 1) * sizeof(struct worker);
    struct par_pool *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        return NULL;
    *p = (struct par_pool){.n_threads = 1};
    p->nodes = aligned_alloc(64, tree_nodes(n_threads) * sizeof *p->nodes);
    if (p->nodes)
        return p;
    free(p);
    return NULL;
}

struct par_pool *par_create(int n_threads)
{
    int most = n_threads > 1 ? n_threads - 1 : 0;
    struct par_pool *p = pool_memory((size_t)most + 1);
    if (!p)
        return NULL;
    ONLY_ATOMICS(p);
    int n = start_workers(p, most);
    p->n_threads = n + 1;
    if (n < most)
        dismiss(p, n, n / 2);
    plant_tree(p->nodes, (size_t)p->n_threads);
    bool crowded = p->n_threads > os_cpus();
    p->spins = crowded ? CROWDED_SPINS : SPINS;
    p->idle_spins = crowded ? CROWDED_SPINS : IDLE_SPINS;
    return p;
}

void par_free(struct par_pool *p)
{
    if (!p)
        return;
    dismiss(p, p->n_threads - 1, 0);
    os_affinity_free(p->affinity);
    free(p->nodes);
    free(p);
}

int par_threads(const struct par_pool *p)
{
    return p ? p->n_threads : 1;
}

static void run_region(struct par_pool *p, par_fn fn, void *ctx, bool rare)
{
    struct par_team team = {.n_threads = par_threads(p)};
    if (p) {
        team.spins = p->spins;
        team.nodes = p->nodes;
    }
    if (team.n_threads == 1) {
        fn(ctx, &team, 0, 1);
        return;
    }
    ONLY_ATOMICS(&team);
    p->fn = fn;
    p->ctx = ctx;
    p->team = &team;
    p->rare = rare;
    start_region(p);
    fn(ctx, &team, 0, team.n_threads);
    end_region(p);
}

static void par_run_body(struct par_pool *p, par_fn fn, void *ctx, bool rare)
{
    bool bound = p && p->node && os_bind_thread(p->affinity, p->node);
    run_region(p, fn, ctx, rare);
    if (bound)
        os_unbind_thread(p->affinity);
}

void par_run(struct par_pool *p, par_fn fn, void *ctx)
{
    par_run_body(p, fn, ctx, false);
}

void par_run_rarely(struct par_pool *p, par_fn fn, void *ctx)
{
    par_run_body(p, fn, ctx, true);
}

/* ---- memory nodes ------------------------------------------------------- */

struct binding {
    const struct os_nodes *nodes;
    const size_t *threads;
    atomic_bool failed;
};

/* The caller is thread 0. It is bound by run. */
static void bind_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct binding *b = ctx;
    size_t node = 0, last = b->threads[0];
    (void)team;
    (void)n_threads;
    if (tid == 0)
        return;
    while (last <= (size_t)tid)
        last += b->threads[++node];
    struct os_affinity *a = os_affinity_create();
    if (!a || !os_bind_thread(a, &b->nodes->nodes[node]))
        atomic_store(&b->failed, true);
    os_affinity_free(a);
}

bool par_bind(struct par_pool *p, const struct os_nodes *nodes,
              const size_t *threads)
{
    struct binding b = {.nodes = nodes, .threads = threads};
    size_t node = 0;
    par_run_rarely(p, bind_body, &b);
    p->affinity = os_affinity_create();
    if (!p->affinity)
        return false;
    while (!threads[node])
        node++;
    p->node = &nodes->nodes[node];
    if (!os_bind_thread(p->affinity, p->node))
        return false;
    os_unbind_thread(p->affinity);
    return !atomic_load(&b.failed);
}

/* ---- teams -------------------------------------------------------------- */

void par_barrier(struct par_team *team, int tid)
{
    par_barrier_idle(team, tid, NULL, NULL);
}

/* Count this thread. Returns whether it is the last of the team. */
static bool arrive(struct node *node)
{
    for (; node; node = node->parent) {
        if (atomic_fetch_add_explicit(&node->arrived, 1,
                                      memory_order_acq_rel) <
            node->children - 1)
            return false;
        atomic_store_explicit(&node->arrived, 0, memory_order_relaxed);
    }
    return true;
}

static void await_team(struct par_team *team, int tid, int (*idle)(void *),
                       void *ctx)
{
    unsigned gen =
        atomic_load_explicit(&team->generation, memory_order_relaxed);
    if (team->n_threads == 1 || arrive(&team->nodes[tid / NODE_CHILDREN])) {
        atomic_store_explicit(&team->next, 0, memory_order_relaxed);
        atomic_store(&team->generation, gen + 1);
        wake_sleepers(&team->generation, &team->sleepers);
        return;
    }
    for (int i = 0; i < team->spins; i++) {
        if (atomic_load_explicit(&team->generation, memory_order_acquire) !=
            gen)
            return;
        if (!idle || !idle(ctx)) {
            idle = NULL;
            cpu_pause();
        }
    }
    sleep_through(&team->generation, gen, &team->sleepers);
}

void par_barrier_idle(struct par_team *team, int tid, int (*idle)(void *),
                      void *ctx)
{
    ORDER_BEFORE(team);
    await_team(team, tid, idle, ctx);
    ORDER_AFTER(team);
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
