/* The copy of the weights that --preload makes. The checkpoint's pages do not
 * stay in this process's memory beside it. On a machine with several
 * memory nodes, the kernel takes a page from the node of the thread that first
 * writes to it. So each thread copies the rows that it multiplies in decode.
 *
 * Huge pages blur that: a page with rows of threads on two nodes lies on one of
 * them. Threads of one node follow each other (par_bind), so these are only the
 * pages where a matrix begins, and where the rows of the next node begin. */
#include <string.h>
#include <sys/mman.h>

#include "base/os.h"
#include "model/pass.h"

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of array i of a matrix. */
static size_t array_bytes(const struct matrix *w, size_t i)
{
    return w->rows * w->format->row_bytes(w, i);
}

void model_preload_rows(const struct model *m, size_t j, int tid, int n_threads,
                        size_t *begin, size_t *end)
{
    const struct matrix *ws[LAYER_INPUTS], *w = m->weights.matrices[j];
    for (size_t i = 0; i < m->config.n_layers; i++) {
        size_t n = layer_inputs(&m->layers[i], ws);
        for (size_t k = 0; k < n; k++) {
            if (ws[k] != w)
                continue;
            pass_decode_rows(ws, n, k, tid, n_threads, begin, end);
            return;
        }
    }
    pass_decode_rows(&w, 1, 0, tid, n_threads, begin, end);
}

/* Let go of the pages of array i of a matrix that preload_body did not drop:
 * those of two threads, and of rows that alternate with another matrix's. */
static void drop_array(const struct weights *w, const struct matrix *m,
                       size_t i)
{
    const unsigned char *first = matrix_row(m, i, 0);
    const unsigned char *last = matrix_row(m, i, m->rows - 1);
    weights_drop_pages(w, first,
                       (size_t)(last - first) + m->format->row_bytes(m, i));
}

static void preload_body(void *ctx, struct par_team *team, int tid,
                         int n_threads)
{
    const struct model *m = ctx;
    unsigned char *to = m->preloaded;
    (void)team;
    for (size_t j = 0; j < m->weights.n_matrices; j++) {
        const struct matrix *w = m->weights.matrices[j];
        size_t begin, end;
        model_preload_rows(m, j, tid, n_threads, &begin, &end);
        for (size_t i = 0; i < w->format->n_arrays; i++) {
            size_t bytes = w->format->row_bytes(w, i);
            size_t run = w->step == 1 ? end - begin : 1;
            for (size_t row = begin; row < end; row += run) {
                const void *from = matrix_row(w, i, row);
                memcpy(to + row * bytes, from, run * bytes);
                weights_drop_pages(&m->weights, from, run * bytes);
            }
            to += aligned(array_bytes(w, i));
        }
    }
}

int model_preload(struct model *m, const struct os_nodes *spread, int *why,
                  struct qwick_err *e)
{
    struct weights *w = &m->weights;
    size_t n = 0;
    *why = 0;
    for (size_t j = 0; j < w->n_matrices; j++)
        for (size_t i = 0; i < w->matrices[j]->format->n_arrays; i++)
            n += aligned(array_bytes(w->matrices[j], i));
    unsigned char *to = mmap(NULL, n, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return err_oom(e, n);
    (void)madvise(to, n, MADV_HUGEPAGE); /* a hint: may be unsupported */
    if (spread)
        *why = os_interleave(to, n, spread);
    m->preloaded = to;
    m->preloaded_bytes = n;
    par_run(m->pool, preload_body, m);
    for (size_t j = 0; j < w->n_matrices; j++) {
        for (size_t i = 0; i < w->matrices[j]->format->n_arrays; i++) {
            drop_array(w, w->matrices[j], i);
            w->matrices[j]->data[i] = to;
            to += aligned(array_bytes(w->matrices[j], i));
        }
        w->matrices[j]->step = 1;
    }
    if (m->config.tied_head)
        m->head = m->embed;
    weights_drop_copies(w);
    return 0;
}
