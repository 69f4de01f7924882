/* The forward pass of dense Qwen3.
 *
 *   h = x + o_proj(attention(q_norm, k_norm, RoPE of q, k, v of norm(x)))
 *   y = h + down_proj(silu(gate_proj(norm(h))) * up_proj(norm(h)))
 *
 * A pass is one parallel region in which every thread walks all layers and the
 * team meets at barriers. Work is split so that no value's order of sums
 * depends on the number of threads.
 *
 * Products come in two forms. In f32, activations stay as they are and weights
 * are widened, in registers (skinny kernels) or by panels (sgemm). In bf16, for
 * prefill where the CPU multiplies bf16, each activation that enters a product
 * is rounded to bf16 by the thread that computes it. */
#include <math.h>
#include <string.h>

#include "base/par.h"
#include "kernel/gemm.h"
#include "model/model.h"
#include "model/scratch.h"

/* C[m, n] = A[m, k] * B[n, k]^T on one thread, as k->sgemm_nt. */
typedef void (*gemm_fn)(float *c, size_t ldc, const float *a, size_t lda,
                        const float *b, size_t ldb, size_t m, size_t n,
                        size_t k);

/* One pass, shared by its threads. */
struct pass {
    const struct model *m;
    struct scratch *s;
    struct kv_cache *kv;
    size_t n;   /* tokens */
    size_t pos; /* of the first one */
    enum logits_want want;
    float *logits;
    gemm_fn sgemm; /* of f32 products; NULL: skinny kernels */
    bool bf16;     /* products in bf16 */
    const volatile int *interrupt;
    bool *stop; /* written by thread 0 ahead of a barrier that all meet */
};

/* One thread's view of it. */
struct worker {
    const struct pass *p;
    const struct kernels *k;
    struct par_team *team;
    struct thread_scratch *own;
    int tid, n_threads;
};

/* What a product reads: one of both. */
struct input {
    const float *f32;     /* [n, cols] */
    const uint16_t *bf16; /* [n, cols], rows gemm_bf16_ldx(cols) apart */
};

/* One product of a phase: out[t, r] = w[r] . x[t] (+ bias[r]). */
struct product {
    const struct matrix *w;
    const float *bias;
    float *out; /* [n, w->rows] */
    bool add;   /* to what out holds; bf16 only */
};

/* Whether n tokens multiply in bf16. A single one, the last layer's, goes
 * through the skinny kernels as in decode. */
static bool in_bf16(const struct worker *w, size_t n)
{
    return w->p->bf16 && n > 1;
}

static uint16_t *bf16_row(uint16_t *base, size_t t, size_t n_cols)
{
    return base + t * gemm_bf16_ldx(n_cols);
}

/* Rows [begin, end) of a product for n tokens in f32. */
static void multiply_f32(const struct worker *w, const struct product *p,
                         const float *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    size_t ldo = a->rows, step = scratch_panel_rows(a->cols);
    if (!w->p->sgemm || n == 1) {
        w->k->matmul[a->dtype](p->out + begin, ldo, matrix_row(a, begin),
                               a->cols, x, a->cols, end - begin, a->cols, n);
        return;
    }
    for (size_t r = begin; r < end; r += step) {
        size_t rows = end - r < step ? end - r : step;
        w->k->to_f32[a->dtype](w->own->panel, matrix_row(a, r), rows * a->cols);
        w->p->sgemm(p->out + r, ldo, x, a->cols, w->own->panel, a->cols, n,
                    rows, a->cols);
    }
}

static void multiply(const struct worker *w, const struct product *p,
                     struct input x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    if (begin >= end)
        return;
    if (x.bf16)
        w->k->gemm_bf16(p->out + begin, a->rows, matrix_row(a, begin), a->cols,
                        x.bf16, gemm_bf16_ldx(a->cols), end - begin, a->cols, n,
                        p->add);
    else
        multiply_f32(w, p, x.f32, n, begin, end);
    if (p->bias)
        for (size_t t = 0; t < n; t++)
            w->k->add(p->out + t * a->rows + begin, p->bias + begin,
                      end - begin);
}

/* Unit in which rows are split. */
static size_t row_unit(const struct worker *w, size_t n_cols, size_t n)
{
    if (in_bf16(w, n))
        return GEMM_BF16_ROWS;
    return w->p->sgemm && n > 1 ? scratch_panel_rows(n_cols) : 8;
}

/* Several products of the same x as if their rows were one matrix's. */
static void multiply_all(const struct worker *w, const struct product *p,
                         size_t n_products, struct input x, size_t n)
{
    size_t total = 0, at = 0, begin, end;
    for (size_t i = 0; i < n_products; i++)
        total += p[i].w->rows;
    par_split(total, row_unit(w, p[0].w->cols, n), w->tid, w->n_threads, &begin,
              &end);
    for (size_t i = 0; i < n_products; i++) {
        size_t rows = p[i].w->rows;
        size_t from = begin > at ? begin - at : 0;
        size_t to = end < at + rows ? (end > at ? end - at : 0) : rows;
        multiply(w, &p[i], x, n, from, to);
        at += rows;
    }
}

/* x += product: in bf16 straight, in f32 by way of s->proj. */
static void multiply_residual(const struct worker *w, const struct matrix *a,
                              const float *bias, struct input in, float *x,
                              size_t n)
{
    struct product p = {a, bias, in.bf16 ? x : w->p->s->proj, in.bf16 != NULL};
    size_t begin, end;
    par_split(a->rows, row_unit(w, a->cols, n), w->tid, w->n_threads, &begin,
              &end);
    multiply(w, &p, in, n, begin, end);
    for (size_t t = 0; t < n && begin < end && !p.add; t++)
        w->k->add(x + t * a->rows + begin, p.out + t * a->rows + begin,
                  end - begin);
    par_barrier(w->team);
}

/* Normalised copy of x[0..n) for all threads to read. */
static struct input normalise(const struct worker *w, const float *x, size_t n,
                              const float *weight)
{
    const struct config *c = &w->p->m->config;
    struct scratch *s = w->p->s;
    size_t d = c->d_model, begin, end;
    float eps = (float)c->rms_eps;
    bool bf16 = in_bf16(w, n);
    if (n <= SCRATCH_PRIVATE_TOKENS && !bf16) {
        w->k->rmsnorm(w->own->xn, x, weight, n, d, eps);
        return (struct input){.f32 = w->own->xn};
    }
    par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *out = bf16 ? w->own->xn : s->xn + t * d;
        w->k->rmsnorm(out, x + t * d, weight, 1, d, eps);
        if (bf16)
            w->k->from_f32[DT_BF16](bf16_row(s->xn16, t, d), out, d);
    }
    par_barrier(w->team);
    return bf16 ? (struct input){.bf16 = s->xn16}
                : (struct input){.f32 = s->xn};
}

/* Norm, RoPE and storing of one token's key and value of a KV head. */
static void store_key(const struct worker *w, size_t layer, size_t t, size_t h)
{
    const struct pass *p = w->p;
    const struct config *c = &p->m->config;
    const struct layer *l = &p->m->layers[layer];
    size_t d = c->head_dim, at = (t * c->n_kv_heads + h) * d;
    size_t pos = p->pos + t, slot = pos % KV_BLOCK * d;
    size_t elem = dtype_bytes(p->kv->dtype);
    float *key = w->own->head;
    w->k->rmsnorm(key, p->s->k + at, l->k_norm, 1, d, (float)c->rms_eps);
    w->k->rope(key, 1, d, p->s->cos + t * (d / 2), p->s->sin + t * (d / 2));
    w->k->from_f32[p->kv->dtype](
        kv_keys(p->kv, pos / KV_BLOCK, layer, h) + slot * elem, key, d);
    w->k->from_f32[p->kv->dtype](kv_values(p->kv, pos / KV_BLOCK, layer, h) +
                                     slot * elem,
                                 p->s->v + at, d);
}

/* Queries of one token and KV head, normalised, rotated and scaled, in the
 * order that attention reads: [kv head][token][head of the group]. */
static void prepare_queries(const struct worker *w, size_t layer, size_t t,
                            size_t h)
{
    const struct pass *p = w->p;
    const struct config *c = &p->m->config;
    size_t d = c->head_dim, group = c->n_heads / c->n_kv_heads;
    float *q = p->s->qr + (h * p->n + t) * group * d;
    w->k->rmsnorm(q, p->s->q + (t * c->n_heads + h * group) * d,
                  p->m->layers[layer].q_norm, group, d, (float)c->rms_eps);
    w->k->rope(q, group, d, p->s->cos + t * (d / 2), p->s->sin + t * (d / 2));
    w->k->scale(q, 1.0f / sqrtf((float)d), group * d);
}

/* Positions [lo, hi) of a block that each of the tokens [first, last) attends
 * to, for the group of heads of each. */
static void set_ranges(const struct worker *w, size_t block, size_t window,
                       size_t first, size_t last, size_t group)
{
    size_t start = block * KV_BLOCK, i = 0;
    for (size_t t = first; t < last; t++) {
        size_t end = w->p->pos + t + 1; /* a token sees itself */
        size_t begin = end > window ? end - window : 0;
        size_t lo = begin > start ? begin - start : 0;
        size_t hi = end > start ? end - start : 0;
        for (size_t g = 0; g < group; g++, i++) {
            w->own->lo[i] = (int)(lo < KV_BLOCK ? lo : KV_BLOCK);
            w->own->hi[i] = (int)(hi < KV_BLOCK ? hi : KV_BLOCK);
        }
    }
}

/* Attention of tokens [first, last) for KV heads [h0, h1) into s->attn, or
 * rounded into s->attn16. Their query rows fit a tile. Blocks are walked with
 * the heads inside: a block's heads follow each other in memory. */
static void attend(const struct worker *w, size_t layer, size_t h0, size_t h1,
                   size_t first, size_t last, bool bf16)
{
    const struct pass *p = w->p;
    const struct config *c = &p->m->config;
    struct thread_scratch *own = w->own;
    size_t d = c->head_dim, group = c->n_heads / c->n_kv_heads;
    size_t n = (last - first) * group, all = (h1 - h0) * n;
    size_t window = c->layer_slides[layer] ? c->sliding_window : SIZE_MAX;
    for (size_t i = 0; i < all; i++) {
        own->m[i] = -INFINITY;
        own->l[i] = 0;
    }
    memset(own->acc, 0, all * d * sizeof *own->acc);
    size_t seen = p->pos + first + 1;
    size_t oldest = seen > window ? seen - window : 0;
    size_t end_block = (p->pos + last - 1) / KV_BLOCK + 1;
    for (size_t b = oldest / KV_BLOCK; b < end_block; b++) {
        set_ranges(w, b, window, first, last, group);
        for (size_t h = h0; h < h1; h++) {
            size_t at = (h - h0) * n;
            struct attn_rows rows = {
                .q = p->s->qr + (h * p->n + first) * group * d,
                .ldq = d,
                .n = n,
                .lo = own->lo,
                .hi = own->hi,
                .m = own->m + at,
                .l = own->l + at,
                .acc = own->acc + at * d,
            };
            w->k->attn_block[p->kv->dtype](&rows, kv_keys(p->kv, b, layer, h),
                                           kv_values(p->kv, b, layer, h), d,
                                           own->attn);
        }
    }
    for (size_t i = 0; i < all; i++) {
        size_t t = first + i % n / group;
        size_t head = (h0 + i / n) * group + i % group;
        float *out = own->acc + i * d;
        w->k->scale(out, 1.0f / own->l[i], d);
        if (bf16)
            w->k->from_f32[DT_BF16](
                bf16_row(p->s->attn16, t, c->n_heads * d) + head * d, out, d);
        else
            memcpy(p->s->attn + (t * c->n_heads + head) * d, out,
                   d * sizeof *out);
    }
}

/* Attention of the pass's tokens from `first` on, after their q, k and v. */
static void attention(const struct worker *w, size_t layer, size_t first)
{
    const struct pass *p = w->p;
    size_t n_heads = p->m->config.n_kv_heads;
    size_t group = p->m->config.n_heads / n_heads;
    size_t begin, end;
    if (p->n == 1) { /* a head's work is one thread's: no barrier between */
        par_split(n_heads, 1, w->tid, w->n_threads, &begin, &end);
        size_t step = p->s->tile_rows / group;
        for (size_t h = begin; h < end; h++) {
            store_key(w, layer, 0, h);
            prepare_queries(w, layer, 0, h);
        }
        for (size_t h = begin; h < end; h += step)
            attend(w, layer, h, end - h < step ? end : h + step, 0, 1, false);
        par_barrier(w->team);
        return;
    }
    par_split(p->n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        for (size_t h = 0; h < n_heads; h++) {
            store_key(w, layer, t, h);
            if (t >= first)
                prepare_queries(w, layer, t, h);
        }
    }
    par_barrier(w->team);
    size_t tile = p->s->tile_rows / group;
    size_t n_tiles = (p->n - first + tile - 1) / tile;
    while (par_next(w->team, n_tiles * n_heads, 1, &begin, &end)) {
        /* late tiles see the most keys: they go first */
        size_t i = n_tiles - 1 - begin / n_heads, h = begin % n_heads;
        size_t from = first + i * tile;
        size_t to = from + tile < p->n ? from + tile : p->n;
        attend(w, layer, h, h + 1, from, to, in_bf16(w, p->n - first));
    }
    par_barrier(w->team);
}

/* silu(gate(x)) * up(x), by rows so that both stay in cache: into s->gate. */
static void gated_f32(const struct worker *w, const struct layer *l,
                      struct input xn, size_t n, size_t begin, size_t end)
{
    struct product gate = {.w = &l->gate_proj, .out = w->p->s->gate};
    struct product up = {.w = &l->up_proj, .out = w->p->s->up};
    size_t rows = l->gate_proj.rows;
    size_t step = scratch_panel_rows(l->gate_proj.cols);
    for (size_t r = begin; r < end; r += step) {
        size_t to = end - r < step ? end : r + step;
        multiply(w, &gate, xn, n, r, to);
        multiply(w, &up, xn, n, r, to);
        for (size_t t = 0; t < n; t++) {
            float *g = gate.out + t * rows + r;
            w->k->swiglu(g, g, up.out + t * rows + r, to - r);
        }
    }
}

/* The same in bf16, by blocks of rows and tokens that stay in a core's cache:
 * into s->gate16. */
static void gated_bf16(const struct worker *w, const struct layer *l,
                       struct input xn, size_t n, size_t begin, size_t end)
{
    size_t d = l->gate_proj.cols, ff = l->gate_proj.rows;
    size_t ldx = gemm_bf16_ldx(d);
    float *gate = w->own->gate, *up = w->own->up;
    for (size_t r = begin; r < end; r += GATED_ROWS) {
        size_t rows = end - r < GATED_ROWS ? end - r : GATED_ROWS;
        for (size_t t = 0; t < n; t += GATED_TOKENS) {
            size_t m = n - t < GATED_TOKENS ? n - t : GATED_TOKENS;
            const uint16_t *x = xn.bf16 + t * ldx;
            w->k->gemm_bf16(gate, rows, matrix_row(&l->gate_proj, r), d, x, ldx,
                            rows, d, m, false);
            w->k->gemm_bf16(up, rows, matrix_row(&l->up_proj, r), d, x, ldx,
                            rows, d, m, false);
            w->k->swiglu(gate, gate, up, m * rows);
            for (size_t i = 0; i < m; i++)
                w->k->from_f32[DT_BF16](bf16_row(w->p->s->gate16, t + i, ff) +
                                            r,
                                        gate + i * rows, rows);
        }
    }
}

static struct input gated(const struct worker *w, const struct layer *l,
                          struct input xn, size_t n)
{
    size_t begin, end;
    par_split(l->gate_proj.rows, row_unit(w, l->gate_proj.cols, n), w->tid,
              w->n_threads, &begin, &end);
    if (xn.bf16)
        gated_bf16(w, l, xn, n, begin, end);
    else
        gated_f32(w, l, xn, n, begin, end);
    par_barrier(w->team);
    return xn.bf16 ? (struct input){.bf16 = w->p->s->gate16}
                   : (struct input){.f32 = w->p->s->gate};
}

static void write_logits(const struct worker *w, size_t first)
{
    const struct model *m = w->p->m;
    size_t n = w->p->n - first;
    struct input xn =
        normalise(w, w->p->s->x + first * m->config.d_model, n, m->norm);
    struct product head = {.w = &m->head, .out = w->p->logits};
    multiply_all(w, &head, 1, xn, n);
}

static void pass_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct pass *p = ctx;
    const struct model *m = p->m;
    struct worker w = {p, m->k, team, &p->s->threads[tid], tid, n_threads};
    size_t d = m->config.d_model;
    size_t q_dim = m->config.n_heads * m->config.head_dim;
    size_t first = 0; /* tokens before it have nothing left to do */
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct layer *l = &m->layers[i];
        struct input xn = normalise(&w, p->s->x, p->n, l->input_norm);
        const struct product qkv[] = {{&l->q_proj, l->q_bias, p->s->q, false},
                                      {&l->k_proj, l->k_bias, p->s->k, false},
                                      {&l->v_proj, l->v_bias, p->s->v, false}};
        multiply_all(&w, qkv, 3, xn, p->n);
        if (tid == 0 && p->interrupt && *p->interrupt)
            *p->stop = true;
        par_barrier(team);
        if (*p->stop)
            return;
        if (i + 1 == m->config.n_layers && p->want != LOGITS_ALL)
            first = p->n - 1;
        attention(&w, i, first);
        size_t n = p->n - first;
        float *x = p->s->x + first * d;
        struct input attn = {.f32 = p->s->attn + first * q_dim};
        if (in_bf16(&w, n))
            attn = (struct input){.bf16 = p->s->attn16}; /* first is 0 */
        multiply_residual(&w, &l->o_proj, l->o_bias, attn, x, n);
        xn = normalise(&w, x, n, l->post_norm);
        multiply_residual(&w, &l->down_proj, NULL, gated(&w, l, xn, n), x, n);
    }
    if (p->want != LOGITS_NONE)
        write_logits(&w, first);
}

int model_forward(const struct model *m, struct scratch *s, struct kv_cache *kv,
                  const int32_t *tokens, size_t n, enum logits_want want,
                  float *logits, const volatile int *interrupt)
{
    bool stop = false;
    enum products products = model_products(m, n);
    struct pass p = {.m = m,
                     .s = s,
                     .kv = kv,
                     .n = n,
                     .pos = kv->n,
                     .want = want,
                     .logits = logits,
                     .sgemm = products == PRODUCTS_BLAS    ? gemm_blas_nt
                              : products == PRODUCTS_SGEMM ? m->k->sgemm_nt
                                                           : NULL,
                     .bf16 = products == PRODUCTS_BF16,
                     .interrupt = interrupt,
                     .stop = &stop};
    size_t d = m->config.d_model, half = m->config.head_dim / 2;
    float scale = (float)m->config.rope_attention;
    for (size_t t = 0; t < n; t++) {
        m->k->to_f32[m->embed.dtype](
            s->x + t * d, matrix_row(&m->embed, (size_t)tokens[t]), d);
        /* angles in float32, as transformers has them */
        for (size_t i = 0; i < half; i++) {
            float angle = (float)(p.pos + t) * m->inv_freq[i];
            s->cos[t * half + i] = cosf(angle) * scale;
            s->sin[t * half + i] = sinf(angle) * scale;
        }
    }
    par_run(m->n_threads, pass_body, &p);
    if (stop)
        return -1;
    kv->n += n;
    return 0;
}
