#include "convert/budget.h"

#include <stdbool.h>
#include <stdlib.h>

/* From choice `from` of an item to `to`, along its hull. */
struct step {
    size_t item, from, to;
    size_t bytes;   /* more */
    double per_byte; /* loss saved */
};

static double slope(const struct budget_choice *a, const struct budget_choice *b)
{
    return (a->loss - b->loss) / (double)(b->bytes - a->bytes);
}

/* The cheapest choice; of equally cheap ones the one that loses least. */
static size_t cheapest(const struct budget_choice *c, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (c[i].bytes < c[best].bytes ||
            (c[i].bytes == c[best].bytes && c[i].loss < c[best].loss))
            best = i;
    return best;
}

/* The next corner of the hull after choice `at`: it saves most per byte, and of
 * equal ones takes most bytes. n: there is none. */
static size_t next_corner(const struct budget_choice *c, size_t n, size_t at)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (c[i].bytes <= c[at].bytes || c[i].loss >= c[at].loss)
            continue;
        if (best < n) {
            double a = slope(&c[at], &c[i]), b = slope(&c[at], &c[best]);
            if (a < b || (a == b && c[i].bytes < c[best].bytes))
                continue;
        }
        best = i;
    }
    return best;
}

/* The steps of an item become flatter one after the other, so this order never
 * takes a step before the one that it continues. */
static int by_saving(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->per_byte != y->per_byte)
        return x->per_byte > y->per_byte ? -1 : 1;
    return x->item != y->item ? (x->item < y->item ? -1 : 1)
                              : (x->from > y->from) - (x->from < y->from);
}

static size_t add_steps(struct step *steps, const struct budget_choice *c,
                        size_t n_choices, size_t item)
{
    size_t n = 0, at = cheapest(c, n_choices), to;
    while ((to = next_corner(c, n_choices, at)) < n_choices) {
        steps[n++] = (struct step){item, at, to, c[to].bytes - c[at].bytes,
                                   slope(&c[at], &c[to])};
        at = to;
    }
    return n;
}

/* Make the one change that saves most and fits. Returns whether there was
 * one. */
static bool improve(size_t *chosen, const struct budget_choice *choices,
                    size_t n, size_t n_choices, size_t *left)
{
    double most = 0;
    size_t item = n, to = 0;
    for (size_t i = 0; i < n * n_choices; i++) {
        const struct budget_choice *c = &choices[i];
        const struct budget_choice *now =
            &choices[i / n_choices * n_choices + chosen[i / n_choices]];
        if (c->bytes > now->bytes + *left || now->loss - c->loss <= most)
            continue;
        most = now->loss - c->loss;
        item = i / n_choices;
        to = i % n_choices;
    }
    if (item == n)
        return false;
    *left += choices[item * n_choices + chosen[item]].bytes;
    *left -= choices[item * n_choices + to].bytes;
    chosen[item] = to;
    return true;
}

int budget_choose(size_t *chosen, const struct budget_choice *choices, size_t n,
                  size_t n_choices, size_t limit, struct qwick_err *e)
{
    struct step *steps = calloc(n * n_choices + 1, sizeof *steps);
    size_t n_steps = 0, least = 0;
    if (!steps)
        return err_oom(e, n * n_choices * sizeof *steps);
    for (size_t i = 0; i < n; i++) {
        const struct budget_choice *c = choices + i * n_choices;
        chosen[i] = cheapest(c, n_choices);
        least += c[chosen[i]].bytes;
        n_steps += add_steps(steps + n_steps, c, n_choices, i);
    }
    if (least > limit) {
        free(steps);
        return err_usage(e,
                         "the matrices need at least %zu bytes, and %zu are "
                         "left for them",
                         least, limit);
    }
    qsort(steps, n_steps, sizeof *steps, by_saving);
    size_t left = limit - least;
    for (size_t i = 0; i < n_steps; i++) {
        const struct step *s = &steps[i];
        if (chosen[s->item] != s->from || s->bytes > left)
            continue;
        chosen[s->item] = s->to;
        left -= s->bytes;
    }
    free(steps);
    while (improve(chosen, choices, n, n_choices, &left))
        ;
    return 0;
}
