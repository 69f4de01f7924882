/* Products of a forward pass: which kernel multiplies, what its operands are
 * rounded to, and who computes which rows. */
#include <string.h>

#include "kernel/gemm.h"
#include "model/pass.h"

/* What part of a phase is shared out as threads come, in how many pieces, and
 * from how many tokens on: fewer are limited by memory, which wants long runs.
 */
enum { TAIL_SHARE = 8, TAIL_PIECES = 16, TAIL_MIN_TOKENS = 64 };

/* Forms of an input. */
enum { NEED_F32 = 1, NEED_BF16 = 2, NEED_Q8 = 4 };

/* Forms that n rows need for these matrices; *group of the int8 one. A matrix
 * quantized by other groups than the first one reads f32. */
static int needs(const struct pass *p, const struct matrix *const *ws,
                 size_t n_ws, size_t n, size_t *group)
{
    int need = 0;
    *group = 0;
    for (size_t i = 0; i < n_ws; i++) {
        if (pass_in_bf16(p, ws[i], n)) {
            need |= NEED_BF16;
        } else if (!ws[i]->bits) {
            need |= NEED_F32;
        } else if (p->m->exact || (*group && ws[i]->group != *group)) {
            need |= NEED_F32;
        } else {
            *group = ws[i]->group;
            need |= NEED_Q8;
        }
    }
    return need;
}

/* One row of n, x f32 [cols], to the forms needed. */
static void round_row(const struct kernels *k, const struct input *to, size_t t,
                      const float *x, size_t cols)
{
    if (to->bf16)
        k->from_f32[DT_BF16]((uint16_t *)to->bf16 + t * gemm_bf16_ldx(cols), x,
                             cols);
    if (to->q8.q) {
        struct q8 out = to->q8;
        out.q += t * out.ldq;
        out.scale += t * out.ldg;
        out.sum += t * out.ldg;
        k->to_q8(&out, x, cols, cols, 1);
    }
}

/* The buffers of those forms that are needed. */
static struct input choose(int need, size_t group, const float *f32,
                           const uint16_t *bf16, const struct q8 *q8)
{
    struct input in = {0};
    if (need & NEED_F32)
        in.f32 = f32;
    if (need & NEED_BF16)
        in.bf16 = bf16;
    if (need & NEED_Q8) {
        in.q8 = *q8;
        in.q8.group = group;
    }
    return in;
}

struct input pass_normalise(struct worker *w, const float *x, size_t n,
                            const float *weight, const struct matrix *const *ws,
                            size_t n_ws)
{
    struct scratch *s = w->p->s;
    struct thread_scratch *own = w->own;
    size_t d = ws[0]->cols, group, begin = 0, end = n;
    float eps = (float)w->p->m->config.rms_eps;
    int need = needs(w->p, ws, n_ws, n, &group);
    bool private = n <= SCRATCH_PRIVATE_TOKENS;
    struct input in = private
                          ? choose(need, group, own->xn, own->xn16, &own->x8)
                          : choose(need, group, s->xn, s->xn16, &s->xn8);
    if (!private)
        par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *row = in.f32 ? (float *)in.f32 + t * scratch_ld(d) : own->xn;
        w->k->rmsnorm(row, x + t * scratch_ld(d), weight, 1, d, eps);
        round_row(w->k, &in, t, row, d);
    }
    if (private)
        pass_mark(w, PART_NORMS);
    else
        pass_barrier(w, PART_NORMS);
    return in;
}

struct input pass_round(struct worker *w, const float *x, uint16_t *x16,
                        const struct q8 *x8, size_t n, const struct matrix *m)
{
    size_t group, begin = 0, end = n;
    int need = needs(w->p, &m, 1, n, &group);
    bool private = n <= SCRATCH_PRIVATE_TOKENS && !(need & NEED_BF16);
    struct input in = choose(need, group, x, x16, private ? &w->own->x8 : x8);
    if (need == NEED_F32)
        return in;
    if (!private)
        par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++)
        round_row(w->k, &in, t, x + t * scratch_ld(m->cols), m->cols);
    if (private)
        pass_mark(w, PART_NORMS);
    else
        pass_barrier(w, PART_NORMS);
    return in;
}

/* Whether dense rows are multiplied by a large product in f32. */
static bool in_sgemm(const struct pass *p, size_t n)
{
    return n > 1 &&
           (p->products == PRODUCTS_SGEMM || p->products == PRODUCTS_BLAS);
}

static void multiply_skinny(const struct worker *w, const struct product *p,
                            const float *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    size_t ldx = scratch_ld(a->cols);
    if (a->bits) {
        struct affine q = matrix_affine(a, begin);
        w->k->matmul_affine(p->out + begin, p->ld, &q, x, ldx, end - begin,
                            a->cols, n, w->own->work);
    } else {
        w->k->matmul[a->dtype](p->out + begin, p->ld, matrix_row(a, begin),
                               a->cols, x, ldx, end - begin, a->cols, n,
                               w->own->work);
    }
}

/* By panels of weights that are widened first. */
static void multiply_panels(const struct worker *w, const struct product *p,
                            const float *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    size_t step = scratch_panel_rows(a->cols), cols = a->cols;
    size_t ldx = scratch_ld(cols);
    float *panel = w->own->panel;
    for (size_t r = begin; r < end; r += step) {
        size_t rows = end - r < step ? end - r : step;
        if (a->bits) {
            struct affine q = matrix_affine(a, r);
            w->k->affine_to_f32(panel, &q, rows, cols);
        } else {
            w->k->to_f32[a->dtype](panel, matrix_row(a, r), rows * cols);
        }
        if (w->p->products == PRODUCTS_BLAS)
            gemm_blas_nt(p->out + r, p->ld, x, ldx, panel, cols, n, rows, cols);
        else
            w->k->sgemm_nt[DT_F32](p->out + r, p->ld, x, ldx, panel, cols, n,
                                   rows, cols, w->own->work);
    }
}

/* Rows [begin, end) in f32. */
static void multiply_f32(const struct worker *w, const struct product *p,
                         const float *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    if (!in_sgemm(w->p, n))
        multiply_skinny(w, p, x, n, begin, end);
    else if (a->bits || w->p->products == PRODUCTS_BLAS)
        multiply_panels(w, p, x, n, begin, end);
    else
        w->k->sgemm_nt[a->dtype](p->out + begin, p->ld, x, scratch_ld(a->cols),
                                 matrix_row(a, begin), a->cols, n, end - begin,
                                 a->cols, w->own->work);
}

/* Whether the product reads the input's int8 form. */
static bool reads_q8(const struct matrix *a, const struct input *x)
{
    return a->bits && x->q8.q && x->q8.group == a->group;
}

/* Rows [r, r + rows) of a for n tokens. */
static void multiply_bf16(const struct worker *w, const struct matrix *a,
                          const uint16_t *x, float *out, size_t ldo, size_t r,
                          size_t rows, size_t n, bool add)
{
    size_t ldx = gemm_bf16_ldx(a->cols);
    if (a->bits) {
        struct affine q = matrix_affine(a, r);
        w->k->gemm_bf16_affine(out, ldo, &q, x, ldx, rows, a->cols, n, add,
                               w->own->work);
    } else {
        w->k->gemm_bf16(out, ldo, matrix_row(a, r), a->cols, x, ldx, rows,
                        a->cols, n, add, w->own->work);
    }
}

void pass_multiply(const struct worker *w, const struct product *p,
                   const struct input *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    if (begin >= end)
        return;
    if (reads_q8(a, x)) {
        struct affine q = matrix_affine(a, begin);
        w->k->matmul_q8(p->out + begin, p->ld, &q, &x->q8, end - begin, a->cols,
                        n, p->add, w->own->work);
    } else if (pass_in_bf16(w->p, a, n)) {
        multiply_bf16(w, a, x->bf16, p->out + begin, p->ld, begin, end - begin,
                      n, p->add);
    } else {
        multiply_f32(w, p, x->f32, n, begin, end);
    }
    if (p->bias)
        for (size_t t = 0; t < n; t++)
            w->k->add(p->out + t * p->ld + begin, p->bias + begin, end - begin);
}

/* Rows of our sgemm that one thread takes at least: each piece reads x anew, so
 * not few; but enough pieces for all threads. */
static size_t sgemm_unit(const struct worker *w, const struct matrix *a)
{
    size_t rows = a->rows / (4 * (size_t)w->n_threads) / 32 * 32;
    return rows < 32 ? 32 : rows > 64 ? 64 : rows;
}

size_t pass_row_unit(const struct worker *w, const struct matrix *a, size_t n)
{
    if (n == 1)
        return 8;
    if (pass_in_bf16(w->p, a, n))
        return GEMM_BF16_ROWS;
    if (a->bits && !w->p->m->exact)
        return MATMUL_Q8_ROWS;
    if (!in_sgemm(w->p, n))
        return 8;
    return w->p->products == PRODUCTS_BLAS ? scratch_panel_rows(a->cols)
                                           : sgemm_unit(w, a);
}

/* Rows of a phase's products, shared out: most of them evenly in one piece a
 * thread, which memory likes; the last ones in small pieces to whoever comes,
 * so that a thread whose core was stolen for a while is not waited for as long.
 */
struct rows {
    size_t n, unit;
    size_t dynamic; /* first row that is not shared out beforehand */
    bool started;
};

static struct rows rows_new(size_t n, size_t unit, size_t n_tokens)
{
    size_t tail = n / TAIL_SHARE / unit * unit;
    if (n_tokens < TAIL_MIN_TOKENS)
        tail = 0;
    return (struct rows){.n = n, .unit = unit, .dynamic = n - tail};
}

static bool rows_next(const struct worker *w, struct rows *r, size_t *begin,
                      size_t *end)
{
    if (!r->started) {
        r->started = true;
        par_split(r->dynamic, r->unit, w->tid, w->n_threads, begin, end);
        if (*begin < *end)
            return true;
    }
    size_t rest = r->n - r->dynamic, grain = rest / TAIL_PIECES / r->unit;
    grain = grain ? grain * r->unit : r->unit;
    if (!rest || !par_next(w->team, rest, grain, begin, end))
        return false;
    *begin += r->dynamic;
    *end += r->dynamic;
    return true;
}

void pass_multiply_all(const struct worker *w, const struct product *p,
                       size_t n_products, const struct input *x, size_t n)
{
    size_t total = 0, begin, end;
    for (size_t i = 0; i < n_products; i++)
        total += p[i].w->rows;
    struct rows share = rows_new(total, pass_row_unit(w, p[0].w, n), n);
    while (rows_next(w, &share, &begin, &end)) {
        size_t at = 0;
        for (size_t i = 0; i < n_products; i++) {
            size_t rows = p[i].w->rows;
            size_t from = begin > at ? begin - at : 0;
            size_t to = end < at + rows ? (end > at ? end - at : 0) : rows;
            pass_multiply(w, &p[i], x, n, from, to);
            at += rows;
        }
    }
}

void pass_multiply_residual(struct worker *w, const struct matrix *a,
                            const float *bias, const struct input *in, float *x,
                            size_t n)
{
    bool add = reads_q8(a, in) || pass_in_bf16(w->p, a, n);
    size_t ld = scratch_ld(a->rows);
    struct product p = {a, bias, add ? x : w->p->s->proj, ld, add};
    size_t begin, end;
    struct rows share = rows_new(a->rows, pass_row_unit(w, a, n), n);
    while (rows_next(w, &share, &begin, &end)) {
        pass_multiply(w, &p, in, n, begin, end);
        for (size_t t = 0; t < n && !add; t++)
            w->k->add(x + t * ld + begin, p.out + t * ld + begin, end - begin);
    }
    pass_barrier(w, PART_PROJECTIONS);
}

/* ---- the gated products ------------------------------------------------- */

/* In f32, by rows so that both stay in cache: to s->gate. */
static void gated_f32(const struct worker *w, const struct layer *l,
                      const struct input *xn, size_t n, size_t begin,
                      size_t end)
{
    size_t ld = scratch_ld(l->gate_proj.rows);
    struct product gate = {.w = &l->gate_proj, .out = w->p->s->gate, .ld = ld};
    struct product up = {.w = &l->up_proj, .out = w->p->s->up, .ld = ld};
    /* one token's values stay there anyway, and memory likes long runs */
    size_t step = n == 1 ? end - begin
                  : w->p->products == PRODUCTS_SGEMM
                      ? SGEMM_ROWS
                      : scratch_panel_rows(l->gate_proj.cols);
    for (size_t r = begin; r < end; r += step) {
        size_t to = end - r < step ? end : r + step;
        pass_multiply(w, &gate, xn, n, r, to);
        pass_multiply(w, &up, xn, n, r, to);
        for (size_t t = 0; t < n; t++) {
            float *g = gate.out + t * ld + r;
            w->k->swiglu(g, g, up.out + t * ld + r, to - r);
        }
    }
}

/* Round columns [r, r + rows) of what down_proj reads, for tokens from t on. */
static void store_gated(const struct worker *w, const struct input *to,
                        size_t ff, const float *gate, size_t r, size_t rows,
                        size_t t, size_t n)
{
    size_t ldx = gemm_bf16_ldx(ff);
    for (size_t i = t; to->bf16 && i < t + n; i++)
        w->k->from_f32[DT_BF16]((uint16_t *)to->bf16 + i * ldx + r,
                                gate + (i - t) * rows, rows);
    for (size_t i = t; to->q8.q && i < t + n; i++) {
        struct q8 row = to->q8;
        row.q += i * row.ldq + r;
        row.scale += i * row.ldg + r / row.group;
        row.sum += i * row.ldg + r / row.group;
        row.ldq = rows; /* no padding between the row's parts */
        w->k->to_q8(&row, gate + (i - t) * rows, rows, rows, 1);
        if (r + rows == ff)
            memset(row.q + rows, 0, to->q8.ldq - ff);
    }
}

/* Rows of one product into a block of own memory. */
static void multiply_block(const struct worker *w, const struct matrix *a,
                           const struct input *x, float *out, size_t r,
                           size_t rows, size_t t, size_t n)
{
    if (reads_q8(a, x)) {
        struct affine q = matrix_affine(a, r);
        struct q8 x8 = x->q8;
        x8.q += t * x8.ldq;
        x8.scale += t * x8.ldg;
        x8.sum += t * x8.ldg;
        w->k->matmul_q8(out, rows, &q, &x8, rows, a->cols, n, false,
                        w->own->work);
    } else {
        multiply_bf16(w, a, x->bf16 + t * gemm_bf16_ldx(a->cols), out, rows, r,
                      rows, n, false);
    }
}

/* In bf16 or int8, by blocks of rows and tokens that stay in a core's cache,
 * straight to the form that down_proj reads. */
static void gated_blocks(const struct worker *w, const struct layer *l,
                         const struct input *xn, const struct input *to,
                         size_t n, size_t begin, size_t end, size_t unit)
{
    float *gate = w->own->gate, *up = w->own->up;
    size_t most = GATED_FLOATS / unit;
    size_t block = n < most ? n : most;
    size_t step = GATED_FLOATS / block / unit * unit;
    for (size_t r = begin; r < end; r += step) {
        size_t rows = end - r < step ? end - r : step;
        for (size_t t = 0; t < n; t += block) {
            size_t m = n - t < block ? n - t : block;
            multiply_block(w, &l->gate_proj, xn, gate, r, rows, t, m);
            multiply_block(w, &l->up_proj, xn, up, r, rows, t, m);
            w->k->swiglu(gate, gate, up, m * rows);
            store_gated(w, to, l->gate_proj.rows, gate, r, rows, t, m);
        }
    }
}

struct input pass_gated(struct worker *w, const struct layer *l,
                        const struct input *xn, size_t n)
{
    struct scratch *s = w->p->s;
    const struct matrix *down = &l->down_proj;
    size_t group, begin, end;
    int need = needs(w->p, &down, 1, n, &group);
    bool q8 = reads_q8(&l->gate_proj, xn) && reads_q8(&l->up_proj, xn);
    bool bf16 = pass_in_bf16(w->p, &l->gate_proj, n) &&
                pass_in_bf16(w->p, &l->up_proj, n);
    if (n == 1 || !(q8 || bf16) || need & NEED_F32) {
        struct rows share =
            rows_new(l->gate_proj.rows, pass_row_unit(w, &l->gate_proj, n), n);
        while (rows_next(w, &share, &begin, &end))
            gated_f32(w, l, xn, n, begin, end);
        pass_ahead_all(w, &down, 1, n);
        pass_barrier(w, PART_PROJECTIONS);
        struct input in = pass_round(w, s->gate, s->gate16, &s->gate8, n, down);
        return in;
    }
    struct input to = choose(need, group, NULL, s->gate16, &s->gate8);
    size_t unit = group > GATED_ROWS ? group : GATED_ROWS;
    struct rows share = rows_new(l->gate_proj.rows, unit, n);
    while (rows_next(w, &share, &begin, &end))
        gated_blocks(w, l, xn, &to, n, begin, end, unit);
    pass_ahead_all(w, &down, 1, n);
    pass_barrier(w, PART_PROJECTIONS);
    return to;
}
