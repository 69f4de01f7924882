/* The probe of a core without a record: how to prefetch, and whether bf16
 * products are faster than f32. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/core/tuning.h"

/* A round reads one slice of weights with each variant. PEAK_MS is kept for the
 * peaks, and a tenth of the time for the last round. */
enum {
    ROWS = 512,
    COLS = 1024,
    SLICE = ROWS * COLS * 2, /* bytes */
    MIN_ROUNDS = 3,
    MAX_ROUNDS = 16,
    MAX_VARIANTS = 12,
    PEAK_MS = 4
};

/* Another variant must be faster by this factor. */
#define CLEARLY 1.03

struct variant {
    uint32_t ahead, l2;
    double ms[MAX_ROUNDS], median;
};

struct probe {
    const struct kernels *k;
    struct core_choices choices; /* of the variant that runs */
    struct variant v[MAX_VARIANTS];
    size_t n, rounds;
    unsigned char *pattern, *slice;
    float *x, *y, *work;
};

static const char *const names[] = {"sweep_ahead", "sweep_l2", "bf16"};

const struct core_knob *tuning_probed(size_t i)
{
    const struct core_knob *k;
    if (i >= sizeof names / sizeof *names)
        return NULL;
    for (size_t j = 0; (k = core_knob(j)) != NULL; j++)
        if (!strcmp(k->name, names[i]))
            break;
    return k;
}

static void list_variants(struct probe *p)
{
    const struct core_knob *ahead = tuning_probed(0), *l2 = tuning_probed(1);
    for (size_t i = 0; i < ahead->n_variants; i++)
        for (size_t j = 0; j < l2->n_variants && p->n < MAX_VARIANTS; j++)
            p->v[p->n++] = (struct variant){.ahead = ahead->variants[i],
                                            .l2 = l2->variants[j]};
}

/* Time the product of one token with a slice that is in no cache. */
static double time_slice(struct probe *p, const struct variant *v)
{
    core_copy_uncached(p->slice, p->pattern, SLICE);
    p->choices.sweep_ahead = v->ahead;
    p->choices.sweep_l2 = v->l2;
    kernels_choose(&p->choices);
    double t = clock_ms();
    p->k->matmul_f32[DT_BF16](p->y, ROWS, p->slice, COLS, p->x, COLS, ROWS,
                              COLS, 1, p->work);
    return clock_ms() - t;
}

static void time_variants(struct probe *p, double end)
{
    double now = clock_ms(), round = 0;
    /* the first round warms up */
    for (size_t r = 0; r <= MAX_ROUNDS && now + round < end; r++) {
        double start = now;
        for (size_t i = 0; i < p->n; i++) {
            double ms = time_slice(p, &p->v[i]);
            if (r > 0)
                p->v[i].ms[r - 1] = ms;
        }
        p->rounds = r;
        now = clock_ms();
        round = now - start;
    }
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void choose_sweep(struct probe *p, struct core_choices *c)
{
    const struct variant *best = NULL, *own = NULL;
    if (p->rounds < MIN_ROUNDS)
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct variant *v = &p->v[i];
        qsort(v->ms, p->rounds, sizeof *v->ms, by_value);
        v->median = v->ms[p->rounds / 2];
        if (v->ahead == c->sweep_ahead && v->l2 == c->sweep_l2)
            own = v;
        if (!best || v->median < best->median)
            best = v;
    }
    if (!best || (own && own->median <= CLEARLY * best->median))
        return;
    c->sweep_ahead = best->ahead;
    c->sweep_l2 = best->l2;
}

/* Operations per millisecond: the best of the attempts that fit in the time. */
static double peak(double (*flops_of)(size_t, float *), double ms)
{
    double start = clock_ms(), now = start, best = 0;
    float sink;
    do {
        double t = now, flops = flops_of(1, &sink);
        now = clock_ms();
        if (now > t && flops / (now - t) > best)
            best = flops / (now - t);
    } while (now - start < ms);
    return best;
}

static void choose_bf16(const struct kernels *k, struct core_choices *c)
{
    if (!k->peak_bf16 || !kernels_use(k, tuning_probed(2)))
        return;
    double f32 = peak(k->peak_flops, PEAK_MS / 2.0);
    c->bf16 = peak(k->peak_bf16, PEAK_MS / 2.0) > CLEARLY * f32;
}

static void *lines(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

int tuning_probe(struct core_choices *c, struct qwick_err *e)
{
    double end = clock_ms() + 0.9 * TUNING_PROBE_MS - PEAK_MS;
    struct probe *p = calloc(1, sizeof *p);
    int rc = -1;
    if (!p)
        return err_oom(e, sizeof *p);
    p->k = kernels_best();
    p->choices = *c;
    p->pattern = lines(SLICE);
    p->slice = lines(SLICE);
    p->x = lines(COLS * sizeof *p->x);
    p->y = lines(ROWS * sizeof *p->y);
    p->work = lines((KERNEL_WORK + KERNEL_BLOCKS_WORK) * sizeof *p->work);
    if (p->pattern && p->slice && p->x && p->y && p->work) {
        memset(p->pattern, 0x3c, SLICE); /* small numbers */
        for (size_t i = 0; i < COLS; i++)
            p->x[i] = 1;
        list_variants(p);
        time_variants(p, end);
        choose_sweep(p, c);
        choose_bf16(p->k, c);
        rc = 0;
    } else {
        err_oom(e, 2 * SLICE);
    }
    free(p->pattern);
    free(p->slice);
    free(p->x);
    free(p->y);
    free(p->work);
    free(p);
    return rc;
}
