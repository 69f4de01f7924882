/* Products of a forward pass: the choice of the kernel and the type of its
 * operands, and the split of rows among threads. */
#include <string.h>

#include "kernel/gemm.h"
#include "model/pass.h"

/* How rows are divided among threads. Cores are not equally fast: one may share
 * its units with another machine's thread, or be a small one. So with
 * MANY_TOKENS or more, threads take pieces of rows, each 1/PIECES of what a
 * thread gets on average. With fewer tokens memory is the limit, and long
 * sequential reads are faster: each thread gets one part. */
enum { MANY_TOKENS = 64, PIECES = 16 };

/* Rows of one token's products that a thread takes at least. */
enum { DECODE_ROWS = 8 };

/* Values whose rests are computed at a time. */
enum { REST_COLS = 1024 };

enum act_type pass_act_type(const struct pass *p, const struct matrix *a,
                            size_t n)
{
    const struct format_ops *ops = a->ops;
    if (p->io->on_input)
        return ACT_F32;
    if (ops->mul_bf16 && n >= ops->bf16_min_tokens &&
        (p->bf16 || !a->format->is_float))
        return ACT_BF16;
    return ops->mul_i8 ? ACT_I8 : ACT_F32;
}

static bool takes_pairs8(const struct pass *p, const struct matrix *a)
{
    enum pairs8 least = p->single ? PAIRS8_PROMPTS_AND_STEPS : PAIRS8_PROMPTS;
    return p->pairs8 && a->pairs8 >= least;
}

/* Whether some activations are rounded. */
static bool rounds(struct act_types f)
{
    return f.set & ~(1u << ACT_F32);
}

struct act_types pass_act_types(const struct pass *p,
                                const struct matrix *const *ws, size_t n_ws,
                                size_t n)
{
    struct act_types need = {0};
    for (size_t i = 0; i < n_ws; i++) {
        enum act_type act = pass_act_type(p, ws[i], n);
        if (act == ACT_I8 && need.group && ws[i]->group != need.group)
            act = ACT_F32;
        if (rounds(need) && ws[i]->order != need.order)
            act = ACT_F32;
        if (act != ACT_F32)
            need.order = ws[i]->order;
        if (act == ACT_I8) {
            need.paired = ws[i]->paired && (need.paired || !need.group);
            need.group = ws[i]->group;
        }
        need.set |= 1u << act | pass_lora_act_types(p, ws[i], act);
        need.pairs8 = need.pairs8 || takes_pairs8(p, ws[i]);
        need.pairs16 = need.pairs16 || (act == ACT_BF16 && ws[i]->pairs16);
    }
    return need;
}

static bool has_act_type(struct act_types f, enum act_type act)
{
    return f.set >> act & 1;
}

enum act_type pass_act_type_read(const struct pass *p, const struct matrix *a,
                                 const struct input *x, size_t n)
{
    enum act_type act = pass_act_type(p, a, n);
    if (act != ACT_F32 && x->order != a->order)
        return ACT_F32;
    return act == ACT_I8 && (!x->q8.q || x->q8.group != a->group) ? ACT_F32
                                                                  : act;
}

/* out's row begins at a column and has ld bytes from it on. */
static struct q8 q8_at(const struct q8 *x, size_t row, size_t col, size_t ld)
{
    struct q8 at = *x;
    at.q += row * x->ldq + col;
    at.scale += row * x->ldg + col / x->group;
    at.sum += row * x->ldg + col / x->group;
    at.ldq = ld;
    return at;
}

/* x minus the rounded values of `first`. */
static void rest_of(float *rest, const float *x, const struct q8 *first,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        rest[i] = x[i] - first->scale[i / first->group] * (float)first->q[i];
}

void pass_round_q8(const struct kernels *k, const struct input *to, size_t t,
                   size_t from, const float *x, size_t n, bool last)
{
    const struct q8 *q8 = &to->q8;
    float rest[REST_COLS];
    size_t row = t * to->q8_rows, step;
    struct q8 out = q8_at(q8, row, from, last ? q8->ldq - from : n);
    k->to_q8(&out, x, n, n, 1);
    for (size_t i = 0; to->q8_rows == 2 && i < n; i += step) {
        step = n - i < REST_COLS ? n - i : REST_COLS;
        out = q8_at(q8, row, from + i, step);
        rest_of(rest, x + i, &out, step);
        if (last && i + step == n)
            out.ldq = q8->ldq - from - i;
        out = q8_at(q8, row + 1, from + i, out.ldq);
        k->to_q8(&out, rest, step, step, 1);
    }
}

/* n values from element `at` on, as pairs where the input has pairs. */
static void round_bf16(const struct kernels *k, const struct input *to,
                       size_t at, const float *x, size_t n)
{
    uint16_t *out = (uint16_t *)to->bf16 + at;
    if (to->rest16)
        pass_split(k, out, out + to->rest16, x, n);
    else
        k->from_f32[DT_BF16](out, x, n);
}

/* Values [from, from + n) of one row of cols, to the types needed. */
static void round_part(const struct kernels *k, const struct input *to,
                       size_t t, size_t from, const float *x, size_t n,
                       size_t cols)
{
    if (to->bf16)
        round_bf16(k, to, t * gemm_bf16_ldx(cols) + from, x, n);
    if (to->q8.q)
        pass_round_q8(k, to, t, from, x, n, from + n == cols);
}

/* out[0..n) = the elements of x that columns [from, from + n) multiply. */
static void put_in_order(float *out, const float *x, const uint32_t *order,
                         size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[order[from + i]];
}

/* One row of n, x f32 [cols], to the types needed and in their order. */
static void round_row(const struct kernels *k, const struct input *to, size_t t,
                      const float *x, size_t cols)
{
    float part[REST_COLS];
    if (!to->order) {
        round_part(k, to, t, 0, x, cols, cols);
        return;
    }
    for (size_t i = 0, n; i < cols; i += n) {
        n = cols - i < REST_COLS ? cols - i : REST_COLS;
        put_in_order(part, x, to->order, i, n);
        round_part(k, to, t, i, part, n, cols);
    }
}

/* The buffers of the types that are needed. */
static struct input choose(struct act_types need, const float *f32,
                           const uint16_t *bf16, const struct q8 *q8)
{
    struct input in = {.q8_rows = need.pairs8 ? 2 : 1, .order = need.order};
    if (has_act_type(need, ACT_F32))
        in.f32 = f32;
    if (has_act_type(need, ACT_BF16))
        in.bf16 = bf16;
    if (has_act_type(need, ACT_I8)) {
        in.q8 = *q8;
        in.q8.group = need.group;
        in.q8.paired = need.paired;
    }
    return in;
}

struct input pass_normalise(struct worker *w, float *x, size_t n,
                            const float *weight, struct act_types need)
{
    struct scratch *s = w->p->s;
    struct thread_scratch *own = w->own;
    size_t d = w->p->m->config.d_model, begin = 0, end = n;
    bool replaces = w->p->m->config.arch->blocks.norm_replaces && weight;
    bool private = n <= SCRATCH_PRIVATE_TOKENS && !replaces;
    struct input in = private ? choose(need, own->xn, own->xn16, &own->x8)
                              : choose(need, s->xn, s->xn16, &s->xn8);
    if (need.pairs16)
        in.rest16 =
            (private ? SCRATCH_PRIVATE_TOKENS : s->cap) * gemm_bf16_ldx(d);
    if (!private)
        par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *row = in.f32 ? (float *)in.f32 + t * scratch_ld(d) : own->xn;
        float *from = x + t * scratch_ld(d);
        if (weight)
            pass_norm(w, row, from, weight);
        else
            memcpy(row, from, d * sizeof *row);
        if (replaces)
            memcpy(from, row, d * sizeof *row);
        round_row(w->k, &in, t, row, d);
    }
    if (private)
        pass_mark(w, PART_NORMS);
    else
        pass_barrier(w, PART_NORMS);
    return in;
}

void pass_add_normalised(struct worker *w, const float *weight, size_t n,
                         float scale)
{
    const struct scratch *s = w->p->s;
    size_t d = w->p->m->config.d_model, begin, end;
    par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *row = s->proj + t * scratch_ld(d);
        pass_norm(w, row, row, weight);
        w->k->add(s->x + t * scratch_ld(d), row, d);
        if (scale != 1)
            w->k->scale(s->x + t * scratch_ld(d), scale, d);
    }
    pass_barrier(w, PART_NORMS);
}

struct input pass_round(struct worker *w, const float *x, uint16_t *x16,
                        const struct q8 *x8, size_t n, const struct matrix *m)
{
    size_t begin = 0, end = n;
    struct act_types need = pass_act_types(w->p, &m, 1, n);
    bool private = n <= SCRATCH_PRIVATE_TOKENS && !has_act_type(need, ACT_BF16);
    struct input in = choose(need, x, x16, private ? &w->own->x8 : x8);
    if (!rounds(need))
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
static bool in_gemm_f32(const struct pass *p, size_t n)
{
    return n > 1 &&
           (p->products == PRODUCTS_GEMM_F32 || p->products == PRODUCTS_BLAS);
}

/* By panels of weights that are widened first. */
static void multiply_panels(const struct worker *w, const struct row_product *p,
                            const float *x, size_t ldx)
{
    const struct matrix *a = p->w;
    size_t step = scratch_panel_rows(a->cols), cols = a->cols;
    float *panel = w->own->panel;
    for (size_t r = 0; r < p->n_rows; r += step) {
        size_t rows = p->n_rows - r < step ? p->n_rows - r : step;
        a->ops->to_f32(w->k, panel, a, p->row + r, rows);
        if (w->p->products == PRODUCTS_BLAS)
            gemm_blas_nt(p->y + r, p->ldy, x, ldx, panel, cols, p->n, rows,
                         cols);
        else
            w->k->gemm_f32[DT_F32](p->y + r, p->ldy, x, ldx, panel, cols, p->n,
                                   rows, cols, p->work);
    }
}

/* By skinny kernels on copies of a few rows at a time, in the order of the
 * matrix's columns. */
static void multiply_in_order(const struct worker *w,
                              const struct row_product *p, const float *x)
{
    size_t ldx = scratch_ld(p->w->cols), n;
    for (size_t t = 0; t < p->n; t += n) {
        struct row_product part = *p;
        n = p->n - t < SCRATCH_ORDERED_TOKENS ? p->n - t
                                              : SCRATCH_ORDERED_TOKENS;
        for (size_t i = 0; i < n; i++)
            put_in_order(w->own->ordered + i * ldx, x + (t + i) * ldx,
                         p->w->order, 0, p->w->cols);
        part.n = n;
        part.y = p->y + t * p->ldy;
        p->w->ops->mul_f32(w->k, &part, w->own->ordered, ldx);
    }
}

/* Whether products of n rows with this matrix in f32 are done by pairs. */
static bool by_pairs(const struct pass *p, const struct matrix *a, size_t n)
{
    return p->pairs && a->ops->mul_bf16 && n >= PASS_PAIRS_MIN_TOKENS;
}

void pass_split(const struct kernels *k, uint16_t *first, uint16_t *second,
                const float *x, size_t n)
{
    float rest[REST_COLS];
    for (size_t i = 0, step; i < n; i += step) {
        step = n - i < REST_COLS ? n - i : REST_COLS;
        k->from_f32[DT_BF16](first + i, x + i, step);
        k->to_f32[DT_BF16](rest, first + i, step);
        k->scale(rest, -1, step);
        k->add(rest, x + i, step);
        k->from_f32[DT_BF16](second + i, rest, step);
    }
}

/* By bf16 kernels that see two tokens for each: its first numbers and, n rows
 * after them, its second ones. */
static void multiply_pairs(const struct worker *w, const struct row_product *p,
                           const float *x)
{
    size_t cols = p->w->cols, n = p->n, ldx = gemm_bf16_ldx(cols);
    uint16_t *x16 = w->own->pairs;
    float *y = w->own->pairs_y;
    for (size_t t = 0; t < n; t++)
        pass_split(w->k, x16 + t * ldx, x16 + (n + t) * ldx,
                   x + t * scratch_ld(cols), cols);
    size_t step = SCRATCH_PAIRS_FLOATS / (2 * n) / GEMM_BF16_ROWS;
    step *= GEMM_BF16_ROWS;
    for (size_t r = 0; r < p->n_rows; r += step) {
        struct row_product part = *p;
        part.row += r;
        part.n_rows = p->n_rows - r < step ? p->n_rows - r : step;
        part.n = 2 * n;
        part.y = y;
        part.ldy = part.n_rows;
        part.add = false; /* as products in f32 */
        p->w->ops->mul_bf16(w->k, &part, x16, ldx);
        for (size_t t = 0; t < n; t++) {
            float *to = p->y + t * p->ldy + r;
            memcpy(to, y + t * part.n_rows, part.n_rows * sizeof *to);
            w->k->add(to, y + (n + t) * part.n_rows, part.n_rows);
        }
    }
}

static void multiply_f32(const struct worker *w, const struct row_product *p,
                         const float *x)
{
    const struct format_ops *ops = p->w->ops;
    size_t ldx = scratch_ld(p->w->cols);
    if (p->w->order)
        multiply_in_order(w, p, x);
    else if (by_pairs(w->p, p->w, p->n))
        multiply_pairs(w, p, x);
    else if (!in_gemm_f32(w->p, p->n))
        ops->mul_f32(w->k, p, x, ldx);
    else if (!ops->gemm_f32 || w->p->products == PRODUCTS_BLAS)
        multiply_panels(w, p, x, ldx);
    else
        ops->gemm_f32(w->k, p, x, ldx);
}

/* The int8 activations of an input from token t on. */
static struct q8 q8_from(const struct input *x, size_t t)
{
    return q8_at(&x->q8, t * x->q8_rows, 0, x->q8.ldq);
}

/* By int8 kernels that see two tokens for each. */
static void multiply_pairs8(const struct worker *w, const struct row_product *p,
                            const struct q8 *x)
{
    float *y = w->own->pairs_y;
    size_t step = SCRATCH_PAIRS_FLOATS / (2 * p->n) / GEMM_Q8_ROWS;
    step *= GEMM_Q8_ROWS;
    for (size_t r = 0; r < p->n_rows; r += step) {
        struct row_product part = *p;
        part.row += r;
        part.n_rows = p->n_rows - r < step ? p->n_rows - r : step;
        part.n = 2 * p->n;
        part.y = y;
        part.ldy = part.n_rows;
        part.add = false;
        p->w->ops->mul_i8(w->k, &part, x);
        for (size_t t = 0; t < p->n; t++) {
            float *to = p->y + t * p->ldy + r;
            const float *from = y + 2 * t * part.n_rows;
            if (!p->add)
                memset(to, 0, part.n_rows * sizeof *to);
            w->k->add(to, from, part.n_rows);
            w->k->add(to, from + part.n_rows, part.n_rows);
        }
    }
}

/* p with x's rows from t on, of the type that the matrix reads. */
static void multiply_rows(const struct worker *w, const struct row_product *p,
                          const struct input *x, size_t t, enum act_type act)
{
    size_t cols = p->w->cols;
    if (act == ACT_I8) {
        struct q8 x8 = q8_from(x, t);
        if (x->q8_rows == 2)
            multiply_pairs8(w, p, &x8);
        else
            p->w->ops->mul_i8(w->k, p, &x8);
    } else if (act == ACT_BF16) {
        size_t ldx = gemm_bf16_ldx(cols);
        const uint16_t *x16 = x->bf16 + t * ldx;
        struct row_product second = *p;
        second.add = true;
        p->w->ops->mul_bf16(w->k, p, x16, ldx);
        if (x->rest16)
            p->w->ops->mul_bf16(w->k, &second, x16 + x->rest16, ldx);
    } else {
        multiply_f32(w, p, x->f32 + t * scratch_ld(cols));
    }
}

void pass_multiply(const struct worker *w, const struct product *p,
                   const struct input *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    if (begin >= end)
        return;
    enum act_type act = pass_act_type_read(w->p, a, x, n);
    /* f32 products cannot add: they go to memory of the pass first */
    bool apart = p->add && act == ACT_F32;
    float *out = apart ? w->p->s->proj : p->out;
    struct row_product rows = {.w = a,
                               .row = begin,
                               .n_rows = end - begin,
                               .n = n,
                               .y = out + begin,
                               .ldy = p->ld,
                               .add = p->add,
                               .work = w->own->work};
    multiply_rows(w, &rows, x, 0, act);
    if (a->lora)
        pass_add_lora(w, &rows, act, 0);
    for (size_t t = 0; t < n && p->bias; t++)
        w->k->add(out + t * p->ld + begin, p->bias + begin, end - begin);
    for (size_t t = 0; t < n && apart; t++)
        w->k->add(p->out + t * p->ld + begin, out + t * p->ld + begin,
                  end - begin);
}

/* Rows of gemm_f32 that one thread takes at least: each piece reads x anew, so
 * not few; but enough pieces for all threads. */
static size_t gemm_f32_unit(const struct worker *w, const struct matrix *a)
{
    size_t rows = a->rows / (4 * (size_t)w->n_threads) / 32 * 32;
    return rows < 32 ? 32 : rows > 64 ? 64 : rows;
}

size_t pass_row_unit(const struct worker *w, const struct matrix *a, size_t n)
{
    if (n == 1)
        return DECODE_ROWS;
    enum act_type act = pass_act_type(w->p, a, n);
    if (act != ACT_F32)
        return act == ACT_BF16 ? GEMM_BF16_ROWS : GEMM_Q8_ROWS;
    if (!in_gemm_f32(w->p, n))
        return by_pairs(w->p, a, n) ? GEMM_BF16_ROWS : 8;
    return w->p->products == PRODUCTS_BLAS ? scratch_panel_rows(a->cols)
                                           : gemm_f32_unit(w, a);
}

struct rows rows_new(const struct worker *w, size_t n, size_t unit,
                     size_t n_tokens)
{
    struct rows r = {.n = n, .unit = unit};
    if (n_tokens >= MANY_TOKENS) {
        r.piece = n / (size_t)w->n_threads / PIECES / unit * unit;
        r.piece = r.piece ? r.piece : unit;
    }
    return r;
}

bool rows_next(const struct worker *w, struct rows *r, size_t *begin,
               size_t *end)
{
    if (r->piece)
        return par_next(w->team, r->n, r->piece, begin, end);
    if (r->taken)
        return false;
    r->taken = true;
    par_split(r->n, r->unit, w->tid, w->n_threads, begin, end);
    return *begin < *end;
}

/* Cut rows [*begin, *end) of several matrices to those of the matrix whose rows
 * are [at, at + rows), and count them from its begin. */
static void cut_rows(size_t at, size_t rows, size_t *begin, size_t *end)
{
    *end = *end < at + rows ? (*end > at ? *end - at : 0) : rows;
    *begin = *begin > at ? *begin - at : 0;
    *begin = *begin < *end ? *begin : *end;
}

void pass_decode_rows(const struct matrix *const *ws, size_t n_ws, size_t i,
                      int tid, int n_threads, size_t *begin, size_t *end)
{
    size_t total = 0, at = 0;
    for (size_t k = 0; k < n_ws; k++) {
        at = k == i ? total : at;
        total += ws[k]->rows;
    }
    par_split(total, DECODE_ROWS, tid, n_threads, begin, end);
    cut_rows(at, ws[i]->rows, begin, end);
}

void pass_multiply_all(const struct worker *w, const struct product *p,
                       size_t n_products, const struct input *x, size_t n)
{
    size_t total = 0, begin, end;
    pass_observe(w, p[0].w, x, NULL, n);
    for (size_t i = 0; i < n_products; i++)
        total += p[i].w->rows;
    struct rows share = rows_new(w, total, pass_row_unit(w, p[0].w, n), n);
    while (rows_next(w, &share, &begin, &end)) {
        size_t at = 0;
        for (size_t i = 0; i < n_products; i++) {
            size_t from = begin, to = end;
            cut_rows(at, p[i].w->rows, &from, &to);
            pass_multiply(w, &p[i], x, n, from, to);
            at += p[i].w->rows;
        }
    }
}

bool pass_rounds(const struct pass *p, const struct matrix *next, size_t n,
                 const float *f32, uint16_t *x16, const struct q8 *x8,
                 struct input *to)
{
    struct act_types need = pass_act_types(p, &next, 1, n);
    *to = choose(need, f32, x16, x8);
    return rounds(need) && !need.order;
}

/* Whether rows[0..n) follow each other. */
static bool consecutive(const uint32_t *rows, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (rows[i] != rows[0] + i)
            return false;
    return true;
}

/* x with only the rows from t on. */
static struct input input_from(const struct input *x, size_t t, size_t cols)
{
    struct input in = {
        .rest16 = x->rest16, .q8_rows = x->q8_rows, .order = x->order};
    if (x->f32)
        in.f32 = x->f32 + t * scratch_ld(cols);
    if (x->bf16)
        in.bf16 = x->bf16 + t * gemm_bf16_ldx(cols);
    if (x->q8.q)
        in.q8 = q8_from(x, t);
    return in;
}

/* Copy token t of x to token i of `to`. */
static void copy_q8(const struct input *to, size_t i, const struct input *x,
                    size_t t)
{
    struct q8 a = q8_from(to, i), b = q8_from(x, t);
    size_t rows = x->q8_rows, n = rows * b.ldg;
    memcpy(a.q, b.q, rows * b.ldq);
    memcpy(a.scale, b.scale, n * sizeof *b.scale);
    memcpy(a.sum, b.sum, n * sizeof *b.sum);
}

struct input pass_gather(const struct worker *w, const struct input *x,
                         const uint32_t *rows, size_t n, size_t cols)
{
    const struct thread_scratch *own = w->own;
    size_t ld = scratch_ld(cols), ldx = gemm_bf16_ldx(cols);
    if (consecutive(rows, n))
        return input_from(x, rows[0], cols);
    struct input in = {.f32 = x->f32 ? own->rows : NULL,
                       .bf16 = x->bf16 ? own->rows16 : NULL,
                       .order = x->order,
                       .q8_rows = x->q8_rows};
    if (x->q8.q) { /* rows as far apart as x's */
        in.q8 = own->rows8;
        in.q8.ldq = x->q8.ldq;
        in.q8.ldg = x->q8.ldg;
        in.q8.group = x->q8.group;
        in.q8.paired = x->q8.paired;
    }
    for (size_t i = 0; i < n; i++) {
        if (in.f32)
            memcpy(own->rows + i * ld, x->f32 + rows[i] * ld,
                   cols * sizeof *in.f32);
        if (in.bf16)
            memcpy(own->rows16 + i * ldx, x->bf16 + rows[i] * ldx,
                   cols * sizeof *in.bf16);
        if (in.q8.q)
            copy_q8(&in, i, x, rows[i]);
    }
    return in;
}

void pass_multiply_block(const struct worker *w, const struct matrix *a,
                         const struct input *x, enum act_type act, float *out,
                         size_t r, size_t rows, size_t t, size_t n)
{
    struct row_product p = {.w = a,
                            .row = r,
                            .n_rows = rows,
                            .n = n,
                            .y = out,
                            .ldy = rows,
                            .work = w->own->work};
    multiply_rows(w, &p, x, t, act);
    if (a->lora)
        pass_add_lora(w, &p, act, t);
}
