#include "model/scratch.h"

#include <stdlib.h>

#include "base/buf.h"

enum { ALIGN = 64 };

/* Lays out aligned arrays one after the other: the first walk, with base NULL,
 * adds up their size, the second hands out addresses. */
struct layout {
    unsigned char *base;
    size_t at;
    int overflow;
};

static void *place(struct layout *l, size_t n, size_t elem)
{
    size_t bytes;
    void *p = l->base ? l->base + l->at : NULL;
    if (size_mul(n, elem, &bytes) || size_add(bytes, 2 * ALIGN, &bytes) ||
        size_add(l->at, bytes / ALIGN * ALIGN, &l->at))
        l->overflow = 1;
    return p;
}

static float *floats(struct layout *l, size_t rows, size_t cols)
{
    size_t n;
    if (size_mul(rows, cols, &n)) {
        l->overflow = 1;
        n = 0;
    }
    return place(l, n, sizeof(float));
}

/* Rows of bf16, spread over the sets of a cache. */
static uint16_t *halves(struct layout *l, size_t rows, size_t cols)
{
    return (uint16_t *)floats(l, rows, gemm_bf16_ldx(cols) / 2);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t scratch_panel_rows(size_t n_cols)
{
    size_t rows = PANEL_FLOATS / n_cols / 16 * 16;
    return rows < 16 ? 16 : rows > 256 ? 256 : rows;
}

static void layout_threads(struct layout *l, struct scratch *s,
                           const struct model *m)
{
    const struct config *c = &m->config;
    size_t q_dim = c->n_heads * c->head_dim;
    size_t panel = max_size(scratch_panel_rows(c->d_model) * c->d_model,
                            max_size(scratch_panel_rows(c->d_ff) * c->d_ff,
                                     scratch_panel_rows(q_dim) * q_dim));
    for (int i = 0; i < s->n_threads; i++) {
        struct thread_scratch *t = &s->threads[i];
        t->xn = floats(l, SCRATCH_PRIVATE_TOKENS, c->d_model);
        bool bf16 = m->k->level == ISA_AVX512BF16;
        size_t gated = m->exact || !bf16 ? 0 : GATED_TOKENS * GATED_ROWS;
        t->gate = floats(l, gated, 1);
        t->up = floats(l, gated, 1);
        t->panel = floats(l, m->exact ? 0 : panel, 1);
        t->head = floats(l, c->head_dim, 1);
        t->attn = floats(l, attn_scratch(s->tile_rows, c->head_dim), 1);
        t->m = floats(l, s->tile_rows, 1);
        t->l = floats(l, s->tile_rows, 1);
        t->acc = floats(l, s->tile_rows, c->head_dim);
        t->lo = place(l, s->tile_rows, sizeof(int));
        t->hi = place(l, s->tile_rows, sizeof(int));
    }
}

static void layout_shared(struct layout *l, struct scratch *s,
                          const struct model *m, size_t n)
{
    const struct config *c = &m->config;
    size_t q_dim = c->n_heads * c->head_dim;
    size_t kv_dim = c->n_kv_heads * c->head_dim;
    s->x = floats(l, n, c->d_model);
    s->xn = floats(l, n, c->d_model);
    s->proj = floats(l, n, c->d_model);
    s->q = floats(l, n, q_dim);
    s->qr = floats(l, n, q_dim);
    s->k = floats(l, n, kv_dim);
    s->v = floats(l, n, kv_dim);
    s->attn = floats(l, n, q_dim);
    s->gate = floats(l, n, c->d_ff);
    s->up = floats(l, n, c->d_ff);
    s->cos = floats(l, n, c->head_dim / 2);
    s->sin = floats(l, n, c->head_dim / 2);
    if (m->exact || m->k->level != ISA_AVX512BF16)
        return;
    s->xn16 = halves(l, n, c->d_model);
    s->attn16 = halves(l, n, q_dim);
    s->gate16 = halves(l, n, c->d_ff);
}

/* Allocate what a layout adds up to; NULL when it cannot be had. */
static void *allocate(struct layout *l, struct qwick_err *e)
{
    void *p = l->overflow || l->at > SIZE_MAX / 2
                  ? NULL
                  : aligned_alloc(ALIGN, l->at + ALIGN);
    if (!p)
        err_oom(e, l->at);
    *l = (struct layout){.base = p};
    return p;
}

int scratch_create(struct scratch **out, const struct model *m,
                   struct qwick_err *e)
{
    *out = NULL;
    struct scratch *s = calloc(1, sizeof *s);
    if (!s)
        return err_oom(e, sizeof *s);
    size_t group = m->config.n_heads / m->config.n_kv_heads;
    s->tile_rows = max_size(ATTN_TILE_ROWS / group, 1) * group;
    s->n_threads = m->n_threads;
    size_t n = (size_t)m->n_threads;
    s->threads = calloc(n, sizeof *s->threads);
    if (!s->threads) {
        err_oom(e, n * sizeof *s->threads);
        goto fail;
    }
    struct layout l = {0};
    layout_threads(&l, s, m);
    s->private = allocate(&l, e);
    if (!s->private)
        goto fail;
    layout_threads(&l, s, m);
    *out = s;
    return 0;
fail:
    scratch_free(s);
    return -1;
}

void scratch_free(struct scratch *s)
{
    if (!s)
        return;
    free(s->shared);
    free(s->private);
    free(s->threads);
    free(s);
}

int scratch_reserve(struct scratch *s, const struct model *m, size_t n,
                    struct qwick_err *e)
{
    if (n <= s->cap)
        return 0;
    struct scratch size = *s;
    struct layout l = {0};
    layout_shared(&l, &size, m, n);
    void *p = allocate(&l, e);
    if (!p)
        return -1;
    free(s->shared);
    s->shared = p;
    s->cap = n;
    layout_shared(&l, s, m, n);
    return 0;
}
