/* Products with LoRA adapters.
 *
 * Before the products of one input, pass_lora computes f * (A x) of all adapted
 * matrices and tokens, which has few rows: threads share rows and tokens. The
 * products then add B times these to the rows that they compute.
 *
 * In long passes, where a matrix reads bf16, A also does. B takes the results
 * as sums of two bf16 numbers: that costs little, and rounding them would add
 * to the error of a product.
 *
 * Tokens are taken by blocks of a fixed size, so that no value depends on the
 * number of threads. */
#include "model/pass.h"

/* Tokens, and rows of A in passes of few tokens, that a thread takes at a
 * time. */
enum { LORA_TOKENS = 64, LORA_FEW_TOKENS = 16, LORA_FEW_ROWS = 4 };

/* An adapter may add as much as the matrix has, or more, and adds to its rounding
 * errors as much. So passes of up to so many tokens, in which memory limits the
 * products, do without roundings in A. */
enum { PRECISE_TOKENS = 64 };

/* Rows of A that a thread takes at most at a time. */
enum { MAX_ROWS = 1024 };

/* Tokens whose results of B a thread has at a time. */
enum { LORA_ADD_TOKENS = 64 };

void pass_plan_lora(struct pass *p)
{
    struct lora_run *at = p->s->lora_runs;
    const struct pass_io *io = p->io;
    struct pass_runs *all = &p->runs[0], *kept = &p->runs[1];
    size_t row = 0;
    *all = *kept = (struct pass_runs){0};
    if (!p->m->loras.cols)
        return;
    all->v = at;
    for (size_t i = 0; i < io->n_spans; row += io->spans[i++].n)
        if (io->spans[i].lora)
            at[all->n++] = (struct lora_run){io->spans[i].lora - 1, row,
                                             row + io->spans[i].n};
    kept->v = at + all->n;
    for (size_t i = 0; i < p->n_kept; i++) {
        size_t lora = io->spans[p->s->span[p->s->token[i]]].lora;
        struct lora_run *last = at + all->n + kept->n - 1;
        if (lora && kept->n && last->lora == lora - 1 && last->end == i)
            last->end++;
        else if (lora)
            at[all->n + kept->n++] = (struct lora_run){lora - 1, i, i + 1};
    }
}

/* Whether A and B of a matrix that reads act multiply bf16 numbers: not where
 * its input has another order of columns, or is pairs of such numbers. */
static bool in_bf16(const struct pass *p, const struct matrix *w,
                    const struct lora *l, enum act_type act)
{
    return act == ACT_BF16 && !w->order && !w->pairs16 &&
           p->n > PRECISE_TOKENS && l->a.ops && l->a.ops->mul_bf16;
}

unsigned pass_lora_act_types(const struct pass *p, const struct matrix *w,
                             enum act_type act)
{
    unsigned set = 0;
    if (!w->lora || !p->runs[0].n)
        return 0;
    for (size_t i = 0; i < p->m->loras.n; i++)
        if (w->lora[i].a.rows)
            set |= 1u << (in_bf16(p, w, &w->lora[i], act) ? ACT_BF16
                                                          : ACT_F32);
    return set;
}

/* Multiply by A or B in f32. */
static void multiply_f32(const struct worker *w, const struct row_product *p,
                         const float *x, size_t ldx)
{
    const struct kernels *k = w->k;
    const struct format_ops *ops = p->w->ops;
    bool large = ops->gemm_f32 && k->tune.gemm_f32 &&
                 p->n >= k->tune.gemm_f32_min_tokens;
    (large ? ops->gemm_f32 : ops->mul_f32)(k, p, x, ldx);
}

/* f * (A x) of rows [row, row + n_rows) of A and n tokens from t on. */
static void reduce_block(const struct worker *w, const struct lora *l,
                         const struct input *x, bool bf16, size_t row,
                         size_t n_rows, size_t t, size_t n)
{
    const struct scratch *s = w->p->s;
    size_t ld = s->lora_ld, cols = l->a.cols, at = t * ld + l->at + row;
    struct row_product p = {.w = &l->a,
                            .row = row,
                            .n_rows = n_rows,
                            .n = n,
                            .y = s->lora + at,
                            .ldy = ld,
                            .work = w->own->work};
    size_t ldx = bf16 ? gemm_bf16_ldx(cols) : scratch_ld(cols);
    if (bf16)
        l->a.ops->mul_bf16(w->k, &p, x->bf16 + t * ldx, ldx);
    else
        multiply_f32(w, &p, x->f32 + t * ldx, ldx);
    for (size_t i = 0; i < n; i++) {
        float *y = s->lora + at + i * ld;
        w->k->mul(y, l->factors + row, n_rows);
        if (bf16)
            pass_split(w->k, s->lora16 + at + i * ld,
                       s->lora16_rest + at + i * ld, y, n_rows);
    }
}

/* Do units [begin, end) of the work for a matrix and a run of tokens, of which
 * there are `units`. A unit is a block of rows of A and tokens. Only counts them
 * if end is 0. */
static size_t reduce_units(const struct worker *w, const struct matrix *m,
                           const struct lora_run *run, const struct input *x,
                           size_t n, size_t begin, size_t end)
{
    const struct lora *l = &m->lora[run->lora];
    size_t tokens = run->end - run->begin, rank = l->a.rows;
    size_t step = tokens <= LORA_FEW_TOKENS ? LORA_FEW_ROWS : MAX_ROWS;
    size_t blocks = (tokens + LORA_TOKENS - 1) / LORA_TOKENS;
    size_t units = rank ? blocks * ((rank + step - 1) / step) : 0;
    bool bf16 = in_bf16(w->p, m, l, pass_act_type_read(w->p, m, x, n));
    for (size_t i = begin; i < end && i < units; i++) {
        size_t t = i % blocks * LORA_TOKENS, row = i / blocks * step;
        size_t n_rows = rank - row < step ? rank - row : step;
        size_t some = tokens - t < LORA_TOKENS ? tokens - t : LORA_TOKENS;
        reduce_block(w, l, x, bf16, row, n_rows, run->begin + t, some);
    }
    return units;
}

/* Do this thread's part of the work for all matrices and runs. */
static void reduce(const struct worker *w, const struct matrix *const *ws,
                   size_t n_ws, const struct input *x, size_t n)
{
    const struct pass_runs *runs = w->runs;
    size_t total = 0, at = 0, begin, end;
    for (size_t i = 0; i < n_ws; i++)
        for (size_t k = 0; ws[i]->lora && k < runs->n; k++)
            total += reduce_units(w, ws[i], &runs->v[k], x, n, 0, 0);
    par_split(total, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t i = 0; i < n_ws; i++)
        for (size_t k = 0; ws[i]->lora && k < runs->n && at < end; k++)
            at += reduce_units(w, ws[i], &runs->v[k], x, n,
                               begin > at ? begin - at : 0, end - at);
}

void pass_lora(struct worker *w, const struct matrix *const *ws, size_t n_ws,
               const struct input *x, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n_ws; i++)
        any = any || ws[i]->lora;
    w->runs = &w->p->runs[n == w->p->n ? 0 : 1];
    if (!any || !w->runs->n)
        return;
    struct ahead ahead[2] = {w->ahead[0], w->ahead[1]};
    w->ahead[0].w = w->ahead[1].w = NULL;
    reduce(w, ws, n_ws, x, n);
    pass_barrier(w, PART_PROJECTIONS);
    w->ahead[0] = ahead[0];
    w->ahead[1] = ahead[1];
}

/* Add B's part for n tokens from t on, all of one adapter, to y. */
static void add_tokens(const struct worker *w, const struct lora *l,
                       bool bf16, struct row_product p, size_t t)
{
    const struct scratch *s = w->p->s;
    const size_t ld = s->lora_ld, at = t * ld + l->at, all = p.n;
    float *y = p.y;
    size_t step, rows = p.n_rows, ldy = p.ldy, row = p.row;
    p.w = &l->b;
    if (bf16) {
        p.add = true;
        l->b.ops->mul_bf16(w->k, &p, s->lora16 + at, ld);
        l->b.ops->mul_bf16(w->k, &p, s->lora16_rest + at, ld);
        return;
    }
    p.y = w->own->lora_y;
    p.add = false;
    for (size_t i = 0; i < all; i += p.n) {
        p.n = all - i < LORA_ADD_TOKENS ? all - i : LORA_ADD_TOKENS;
        step = SCRATCH_LORA_FLOATS / p.n;
        for (size_t r = 0; r < rows; r += p.n_rows) {
            p.row = row + r;
            p.n_rows = p.ldy = rows - r < step ? rows - r : step;
            multiply_f32(w, &p, s->lora + at + i * ld, ld);
            for (size_t k = 0; k < p.n; k++)
                w->k->add(y + (i + k) * ldy + r, p.y + k * p.ldy, p.n_rows);
        }
    }
}

void pass_add_lora(const struct worker *w, const struct row_product *p,
                   enum act_type act, size_t t)
{
    const struct pass_runs *runs = w->runs;
    for (size_t i = 0; i < runs->n; i++) {
        const struct lora_run *run = &runs->v[i];
        const struct lora *l = &p->w->lora[run->lora];
        size_t begin = run->begin > t ? run->begin : t,
               end = run->end < t + p->n ? run->end : t + p->n;
        struct row_product part = *p;
        if (begin >= end || !l->a.rows)
            continue;
        part.y = p->y + (begin - t) * p->ldy;
        part.n = end - begin;
        add_tokens(w, l, in_bf16(w->p, p->w, l, act), part, begin);
    }
}

void lora_merge(const struct kernels *k, const struct lora *l, float *w,
                size_t row, size_t n_rows, float *tmp)
{
    size_t cols = l->a.cols, rank = l->a.rows;
    for (size_t j = 0; j < rank; j++) {
        l->a.ops->to_f32(k, tmp, &l->a, j, 1);
        for (size_t r = 0; r < n_rows; r++) {
            float b;
            const unsigned char *at =
                matrix_row(&l->b, 0, row + r) + j * dtype_bytes(l->b.dtype);
            k->to_f32[l->b.dtype](&b, at, 1);
            b *= l->factors[j];
            for (size_t c = 0; c < cols; c++)
                w[r * cols + c] += b * tmp[c];
        }
    }
}
