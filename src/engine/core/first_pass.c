#include "engine/core/first_pass.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/flag.h"
#include "base/os.h"
#include "base/par.h"
#include "engine/core/engine.h"
#include "qwick_tools.h"

/* Ask about so many pages of a file whether they are in memory: asking about
 * all takes a millisecond for 400 MB. The file counts as read if FEW of them
 * are not. */
enum { SAMPLES = 64, FEW = 6 };

/* Bytes that a thread reads at once: a huge page. */
enum { STEP = 2 << 20 };

/* A file that is being read. */
struct reading {
    const struct map *map;
    const struct matrix *table;    /* stays in the file; may be empty */
    const volatile int *interrupt; /* or NULL */
    double deadline_ms;            /* 0: none */
    atomic_size_t next;            /* step */
    atomic_bool stop;
};

static size_t n_arrays(const struct matrix *table)
{
    return table->rows ? table->format->n_arrays : 0;
}

static size_t array_bytes(const struct matrix *w, size_t i)
{
    return w->rows * w->format->row_bytes(w, i);
}

/* Cut off the part of [*p, *p + *n) that begins in a table, or with one. */
static void leave_out(const struct matrix *table, const unsigned char **p,
                      size_t *n)
{
    for (size_t i = 0; i < n_arrays(table); i++) {
        const unsigned char *from = table->data[i];
        const unsigned char *to = from + array_bytes(table, i);
        if (*p >= from && *p < to) {
            size_t skip = (size_t)(to - *p) < *n ? (size_t)(to - *p) : *n;
            *p += skip;
            *n -= skip;
        } else if (*p < from && *p + *n > from) {
            *n = (size_t)(from - *p);
        }
    }
}

void first_pass_leave_tables(const struct qwick_engine *eng)
{
    const struct matrix *table = &eng->model.ple.table;
    for (size_t i = 0; i < n_arrays(table); i++)
        map_expect_few(table->data[i], array_bytes(table, i));
}

static bool is_read(const struct reading *r)
{
    const struct map *map = r->map;
    size_t missing = 0, n;
    for (size_t i = 0; i < SAMPLES; i++) {
        const unsigned char *p = map->data + map->size / SAMPLES * i;
        n = 1;
        leave_out(r->table, &p, &n);
        if (!n)
            continue;
        if (!os_resident_bytes(p, 1, &n))
            return true;
        missing += n == 0;
    }
    return missing <= FEW;
}

/* Read the next step. Returns whether there was one. */
static bool read_step(struct reading *r)
{
    size_t at = atomic_fetch_add(&r->next, 1) * STEP;
    if (at >= r->map->size || atomic_load(&r->stop))
        return false;
    size_t left = r->map->size - at, n = left < STEP ? left : STEP;
    const unsigned char *p = r->map->data + at;
    leave_out(r->table, &p, &n);
    if (flag_is_set(r->interrupt) ||
        (r->deadline_ms > 0 && clock_ms() >= r->deadline_ms) ||
        (n && !os_read_mapping(p, n)))
        atomic_store(&r->stop, true);
    return true;
}

static void read_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    (void)team, (void)tid, (void)n_threads;
    while (read_step(ctx))
        ;
}

/* Linux before 5.18 reads single pages without readahead, also where it could
 * read a huge page: the first steps show it. */
static void read_file(struct reading *r, struct par_pool *pool)
{
    enum { MANY_FAULTS = 16 };
    size_t faults = os_disk_faults(), now = faults;
    while (now == faults && read_step(r))
        now = os_disk_faults();
    if (now - faults > MANY_FAULTS)
        map_readahead(r->map, true);
    par_run(pool, read_body, r);
}

void first_pass_expect(struct qwick_engine *eng)
{
    const struct map *map;
    eng->read_first = true;
    for (size_t i = 0; (map = st_map(eng->weights, i)); i++) {
        map_expect_all(map);
        /* Readahead would read parts of huge pages, which stay small. */
        map_readahead(map, false);
    }
}

void first_pass_read(struct qwick_engine *eng, const volatile int *interrupt,
                     double deadline_ms)
{
    const struct map *map;
    double start = clock_ms();
    bool any = false;
    if (!eng->read_first)
        return;
    eng->read_first = false;
    for (size_t i = 0; (map = st_map(eng->weights, i)); i++) {
        struct reading r = {.map = map,
                            .table = &eng->model.ple.table,
                            .interrupt = interrupt,
                            .deadline_ms = deadline_ms};
        if (map->mapped && !is_read(&r)) {
            any = true;
            read_file(&r, eng->pool);
        }
        map_readahead(map, true);
    }
    first_pass_leave_tables(eng);
    if (any)
        eng->info.first_read_ms = clock_ms() - start;
}

int qwick_engine_pages(const struct qwick_engine *eng, size_t *mapped,
                       size_t *huge)
{
    const struct map *map;
    int rc = -1;
    *mapped = *huge = 0;
    for (size_t i = 0; eng->weights && (map = st_map(eng->weights, i)); i++) {
        size_t all, large;
        if (!map->mapped || !os_huge_bytes(map->data, map->size, &all, &large))
            continue;
        *mapped += all;
        *huge += large;
        rc = 0;
    }
    return rc;
}

int engine_pass(struct qwick_engine *eng, const struct pass_io *io)
{
    if (eng->passed)
        return model_forward(&eng->model, eng->scratch, io);
    first_pass_read(eng, io->interrupt, io->deadline_ms);
    size_t before = os_page_faults();
    int rc = model_forward(&eng->model, eng->scratch, io);
    eng->info.first_faults = os_page_faults() - before;
    eng->passed = true;
    return rc;
}
