/* From what sets of items save or cost together to the losses of each item's
 * widths. */
#include "convert/widths.h"

enum { ROUNDS = 50 };
static const double LEAST = 0.05;

bool widths_in(const struct widths_set *set, const struct widths_item *item)
{
    return item->n_matrices &&
           set->key == (set->kind == SET_GROUP ? item->group : item->ref.id);
}

static double sum_of(const double *x, const struct widths_item *items, size_t n,
                     const struct widths_set *set)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += widths_in(set, &items[i]) ? x[i] : 0;
    return sum;
}

/* Raise the totals of sets of a kind to LEAST. scale: then let their sum be that
 * of x. */
static void settle(const double *x, const struct widths_item *items, size_t n,
                   struct widths_set *sets, size_t n_sets,
                   enum widths_kind kind, bool scale)
{
    double sum = 0, given = 0, now = 0;
    for (size_t s = 0; s < n_sets; s++) {
        given += sets[s].kind == kind ? sum_of(x, items, n, &sets[s]) : 0;
        sum += sets[s].kind == kind && sets[s].total > 0 ? sets[s].total : 0;
    }
    for (size_t s = 0; s < n_sets && given > 0; s++) {
        if (sets[s].kind != kind)
            continue;
        double least = LEAST * sum * sum_of(x, items, n, &sets[s]) / given;
        sets[s].total = sets[s].total > least ? sets[s].total : least;
        now += sets[s].total;
    }
    for (size_t s = 0; s < n_sets && scale && now > 0; s++)
        if (sets[s].kind == kind)
            sets[s].total *= given / now;
}

static void scale_items(double *x, const struct widths_item *items, size_t n,
                        const struct widths_set *set)
{
    double sum = sum_of(x, items, n, set);
    for (size_t i = 0; i < n && sum > 0; i++)
        if (widths_in(set, &items[i]))
            x[i] *= set->total / sum;
}

void widths_fit(double *x, const struct widths_item *items, size_t n,
                struct widths_set *sets, size_t n_sets)
{
    settle(x, items, n, sets, n_sets, SET_GROUP, false);
    for (size_t s = 0; s < n_sets; s++)
        if (sets[s].kind != SET_ROLE)
            scale_items(x, items, n, &sets[s]);
    settle(x, items, n, sets, n_sets, SET_ROLE, true);
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t s = 0; s < n_sets; s++)
            scale_items(x, items, n, &sets[s]);
}

/* How much share changes from b to c, in units of its change from `from` to
 * `to`. */
static double steps(const struct widths_item *m, size_t b, size_t c, size_t from,
                    size_t to)
{
    double one = m->share[from] - m->share[to];
    return one > 0 ? (m->share[b] - m->share[c]) / one : 0;
}

void widths_set_losses(struct widths_item *m, size_t n,
                       const struct widths_range *r)
{
    size_t last = n - 1, base = r->base;
    for (size_t b = 0; b < n; b++)
        m->choices[b].loss =
            m->up * steps(m, b < base ? base : b, last, base, r->high) +
            (b < base ? m->down * steps(m, b, base, r->low, base) : 0);
}
