/* The MLP up to down_proj. It may have no up_proj. */
#include <string.h>

#include "model/pass.h"

/* The input of down_proj, in place of gate's n results. */
static void combine(const struct kernels *k, const struct mlp *mlp, float *gate,
                    const float *up, size_t n)
{
    mlp->glu(gate, gate, up, n);
    if (mlp->scale != 1)
        k->scale(gate, mlp->scale, n);
}

/* In f32, by rows so that both stay in cache: to s->gate. */
static void gated_f32(const struct worker *w, const struct mlp *mlp,
                      const struct input *xn, size_t n, size_t begin,
                      size_t end)
{
    size_t ld = scratch_ld(mlp->gate_proj.rows);
    struct product gate = {.w = &mlp->gate_proj,
                           .bias = mlp->gate_bias,
                           .out = w->p->s->gate,
                           .ld = ld};
    struct product up = {
        .w = &mlp->up_proj, .bias = mlp->up_bias, .out = w->p->s->up, .ld = ld};
    bool ungated = !mlp->up_proj.rows;
    /* one token's values stay there anyway, and memory likes long runs */
    size_t step = n == 1 ? end - begin
                  : w->p->products == PRODUCTS_GEMM_F32
                      ? GEMM_F32_ROWS
                      : scratch_panel_rows(mlp->gate_proj.cols);
    for (size_t r = begin; r < end; r += step) {
        size_t to = end - r < step ? end : r + step;
        pass_multiply(w, &gate, xn, n, r, to);
        if (!ungated)
            pass_multiply(w, &up, xn, n, r, to);
        for (size_t t = 0; t < n; t++) {
            float *g = gate.out + t * ld + r;
            combine(w->k, mlp, g, ungated ? NULL : up.out + t * ld + r,
                    to - r);
        }
    }
}

void pass_store_gated(const struct worker *w, const struct input *to, size_t ff,
                      const float *gate, size_t r, size_t rows, size_t t,
                      size_t n)
{
    size_t ldx = gemm_bf16_ldx(ff);
    for (size_t i = t; to->f32 && i < t + n; i++)
        memcpy((float *)to->f32 + i * scratch_ld(ff) + r, gate + (i - t) * rows,
               rows * sizeof *gate);
    for (size_t i = t; to->bf16 && i < t + n; i++)
        w->k->from_f32[DT_BF16]((uint16_t *)to->bf16 + i * ldx + r,
                                gate + (i - t) * rows, rows);
    for (size_t i = t; to->q8.q && i < t + n; i++)
        pass_round_q8(w->k, to, i, r, gate + (i - t) * rows, rows,
                      r + rows == ff);
}

/* In bf16 or int8, by blocks of rows and tokens that stay in a core's cache,
 * straight to the type that down_proj reads, or to f32. */
static void gated_blocks(const struct worker *w, const struct mlp *mlp,
                         const struct input *xn, const struct input *to,
                         size_t n, size_t begin, size_t end, size_t unit)
{
    enum act_type act = pass_act_type_read(w->p, &mlp->gate_proj, xn, n);
    float *gate = w->own->gate, *up = mlp->up_proj.rows ? w->own->up : NULL;
    size_t most = GATED_FLOATS / unit;
    size_t block = n < most ? n : most;
    size_t step = GATED_FLOATS / block / unit * unit;
    for (size_t r = begin; r < end; r += step) {
        size_t rows = end - r < step ? end - r : step;
        for (size_t t = 0; t < n; t += block) {
            size_t m = n - t < block ? n - t : block;
            pass_multiply_block(w, &mlp->gate_proj, xn, act, gate, r, rows, t,
                                m);
            if (up)
                pass_multiply_block(w, &mlp->up_proj, xn, act, up, r, rows, t,
                                    m);
            for (size_t i = 0; mlp->gate_bias && i < m; i++)
                w->k->add(gate + i * rows, mlp->gate_bias + r, rows);
            for (size_t i = 0; mlp->up_bias && i < m; i++)
                w->k->add(up + i * rows, mlp->up_bias + r, rows);
            combine(w->k, mlp, gate, up, m * rows);
            pass_store_gated(w, to, mlp->gate_proj.rows, gate, r, rows, t, m);
        }
    }
}

struct input pass_gated(struct worker *w, const struct mlp *mlp,
                        const struct input *xn, size_t n)
{
    struct scratch *s = w->p->s;
    const struct matrix *gate = &mlp->gate_proj, *down = &mlp->down_proj;
    enum act_type act = pass_act_type_read(w->p, gate, xn, n);
    size_t begin, end;
    struct input to;
    bool rounds = pass_rounds(w->p, down, n, s->gate, s->gate16, &s->gate8,
                              &to);
    if (!rounds)
        to = (struct input){.f32 = s->gate};
    bool blocks = n > 1 && act != ACT_F32 &&
                  (!mlp->up_proj.rows ||
                   act == pass_act_type_read(w->p, &mlp->up_proj, xn, n));
    size_t unit = !blocks                        ? pass_row_unit(w, gate, n)
                  : q8_unit(&to.q8) > GATED_ROWS ? q8_unit(&to.q8)
                                                 : GATED_ROWS;
    const struct matrix *const gated[] = {gate, &mlp->up_proj};
    pass_observe(w, gate, xn, NULL, n);
    pass_lora(w, gated, 2, xn, n);
    struct rows share = rows_new(w, gate->rows, unit, n);
    while (rows_next(w, &share, &begin, &end)) {
        if (blocks)
            gated_blocks(w, mlp, xn, &to, n, begin, end, unit);
        else
            gated_f32(w, mlp, xn, n, begin, end);
    }
    pass_ahead_all(w, &down, 1, n);
    pass_barrier(w, PART_PROJECTIONS);
    return blocks && rounds ? to : pass_round(w, s->gate, s->gate16, &s->gate8, n, down);
}
