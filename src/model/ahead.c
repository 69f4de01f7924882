/* While a thread waits for the others, it prefetches the first rows that it
 * will multiply next. One thread alone does not saturate memory, so without
 * this the waiting time would be lost. */
#include "model/pass.h"

/* Bytes that a thread fetches at most, a part of any second-level cache; and
 * tokens up to which memory limits products. */
enum { AHEAD_BYTES = 256 << 10, AHEAD_MAX_TOKENS = 32 };

/* Bytes of a row's elements, without what a format keeps apart. */
static size_t row_bytes(const struct matrix *m)
{
    return m->format->row_bytes(m, 0);
}

/* Rows from `row` on, at most `bytes` of them. */
static void ahead_set(struct ahead *a, const struct matrix *m, size_t row,
                      size_t end, size_t bytes)
{
    size_t most = bytes / (row_bytes(m) + 1) + 1;
    *a = (struct ahead){m, row, end - row < most ? end : row + most};
}

void pass_ahead_all(struct worker *w, const struct matrix *const *ws,
                    size_t n_ws, size_t n)
{
    size_t total = 0, begin, end, at = 0;
    if (n > AHEAD_MAX_TOKENS)
        return;
    for (size_t i = 0; i < n_ws; i++)
        total += ws[i]->rows;
    par_split(total, pass_row_unit(w, ws[0], n), w->tid, w->n_threads, &begin,
              &end);
    for (size_t i = 0; i < n_ws && begin < end; at += ws[i++]->rows) {
        size_t stop = at + ws[i]->rows < end ? at + ws[i]->rows : end;
        if (begin < stop) {
            ahead_set(&w->ahead[0], ws[i], begin - at, stop - at, AHEAD_BYTES);
            return;
        }
    }
}

void pass_ahead_gated(struct worker *w, const struct mlp *mlp, size_t n)
{
    const struct matrix *gate = &mlp->gate_proj;
    size_t unit = n == 1 ? pass_row_unit(w, gate, n) : GATED_ROWS, begin, end;
    if (n > AHEAD_MAX_TOKENS)
        return;
    par_split(gate->rows, unit, w->tid, w->n_threads, &begin, &end);
    if (begin >= end)
        return;
    ahead_set(&w->ahead[0], gate, begin, end, AHEAD_BYTES / 2);
    if (mlp->up_proj.rows)
        ahead_set(&w->ahead[1], &mlp->up_proj, begin, end, AHEAD_BYTES / 2);
}

static void fetch_bytes(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch(p + i, 0, 2); /* to the second level */
}

int pass_fetch_ahead(void *worker)
{
    struct worker *w = worker;
    struct ahead *a = w->ahead;
    if (a->w && a->row == a->end)
        a++;
    const struct matrix *m = a->w;
    if (!m || a->row == a->end)
        return 0;
    size_t row = a->row++;
    for (size_t i = 0; i < m->format->n_arrays; i++)
        fetch_bytes(matrix_row(m, i, row), m->format->row_bytes(m, i));
    return 1;
}
