#include "engine/tasks/divergence.h"

#include <math.h>

#include "base/par.h"

/* A row is divided into parts of at least so many logits. */
enum { PART_MIN = 4096, MAX_PARTS = 64 };

struct side {
    const float *row;
    double max;
    size_t top;
};

struct sums {
    double p, r, diff; /* of e^a, e^b and e^b (b - a) */
};

struct task {
    struct side p, r;
    size_t n, part, n_parts;
    struct sums sums[MAX_PARTS];
};

static struct side find_top(const float *row, size_t n)
{
    size_t top = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[top])
            top = i;
    return (struct side){row, (double)row[top], top};
}

static struct sums sum_part(const struct task *t, size_t begin, size_t end)
{
    struct sums s = {0};
    for (size_t i = begin; i < end; i++) {
        double a = (double)t->p.row[i] - t->p.max;
        double b = (double)t->r.row[i] - t->r.max;
        double r = exp(b);
        s.p += exp(a);
        s.r += r;
        if (r > 0) /* -inf - -inf is no number */
            s.diff += r * (b - a);
    }
    return s;
}

static void divergence_body(void *ctx, struct par_team *team, int tid,
                            int n_threads)
{
    struct task *t = ctx;
    size_t i, end;
    (void)tid;
    (void)n_threads;
    while (par_next(team, t->n_parts, 1, &i, &end)) {
        size_t begin = i * t->part, left = t->n - begin;
        t->sums[i] =
            sum_part(t, begin, begin + (left < t->part ? left : t->part));
    }
}

struct divergence divergence(const float *p, const float *r, size_t n,
                             struct par_pool *pool)
{
    struct task t = {find_top(p, n), find_top(r, n), .n = n};
    struct sums all = {0};
    t.part = (n + MAX_PARTS - 1) / MAX_PARTS;
    if (t.part < PART_MIN)
        t.part = PART_MIN;
    t.n_parts = (n + t.part - 1) / t.part;
    par_run(t.n_parts > 1 ? pool : NULL, divergence_body, &t);
    for (size_t i = 0; i < t.n_parts; i++) {
        all.p += t.sums[i].p;
        all.r += t.sums[i].r;
        all.diff += t.sums[i].diff;
    }
    double kl = all.diff / all.r - log(all.r) + log(all.p);
    /* rounding may leave a hair below 0 */
    return (struct divergence){kl < 0 ? 0 : kl, t.p.top == t.r.top};
}
