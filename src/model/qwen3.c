/* Dense Qwen3 (Qwen3ForCausalLM in transformers): weights and forward pass.
 *
 *   h = x + o_proj(attention(q_norm, k_norm, RoPE of q, k, v of norm(x)))
 *   y = h + down_proj(silu(gate_proj(norm(h))) * up_proj(norm(h)))
 *
 * A pass is one parallel region in which every thread walks all layers and the
 * team meets at barriers. Work is split so that no value's order of sums depends
 * on the number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/par.h"
#include "kernel/gemm.h"
#include "model/model.h"
#include "model/scratch.h"

/* Passes of fewer tokens compute faster with the skinny kernels, which widen
 * weights in registers, than by way of f32 panels: measured crossovers of our
 * own sgemm and of OpenBLAS. Passes of fewer operations end before OpenBLAS is
 * loaded. */
#define OWN_MIN_TOKENS 192
#define BLAS_MIN_TOKENS 32
#define BLAS_MIN_FLOPS 8e9

/* ---- weights ---- */

static int open_attention(struct model *m, struct layer *l, size_t i,
                          struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    size_t d = c->d_model, q_dim = c->n_heads * c->head_dim,
           kv_dim = c->n_kv_heads * c->head_dim;
#define ATTN "layers.%zu.self_attn."
    if (weights_matrix(w, &l->q_proj, q_dim, d, e, ATTN "q_proj.weight", i) ||
        weights_matrix(w, &l->k_proj, kv_dim, d, e, ATTN "k_proj.weight", i) ||
        weights_matrix(w, &l->v_proj, kv_dim, d, e, ATTN "v_proj.weight", i) ||
        weights_matrix(w, &l->o_proj, d, q_dim, e, ATTN "o_proj.weight", i) ||
        weights_vector(w, &l->q_norm, c->head_dim, e, ATTN "q_norm.weight",
                       i) ||
        weights_vector(w, &l->k_norm, c->head_dim, e, ATTN "k_norm.weight", i))
        return -1;
    if (!c->attention_bias)
        return 0;
    if (weights_vector(w, &l->q_bias, q_dim, e, ATTN "q_proj.bias", i) ||
        weights_vector(w, &l->k_bias, kv_dim, e, ATTN "k_proj.bias", i) ||
        weights_vector(w, &l->v_bias, kv_dim, e, ATTN "v_proj.bias", i) ||
        weights_vector(w, &l->o_bias, d, e, ATTN "o_proj.bias", i))
        return -1;
#undef ATTN
    return 0;
}

static int open_layer(struct model *m, struct layer *l, size_t i,
                      struct qwick_err *e)
{
    struct weights *w = &m->weights;
    size_t d = m->config.d_model, ff = m->config.d_ff;
    if (open_attention(m, l, i, e) ||
        weights_matrix(w, &l->gate_proj, ff, d, e,
                       "layers.%zu.mlp.gate_proj.weight", i) ||
        weights_matrix(w, &l->up_proj, ff, d, e,
                       "layers.%zu.mlp.up_proj.weight", i) ||
        weights_matrix(w, &l->down_proj, d, ff, e,
                       "layers.%zu.mlp.down_proj.weight", i) ||
        weights_vector(w, &l->input_norm, d, e,
                       "layers.%zu.input_layernorm.weight", i) ||
        weights_vector(w, &l->post_norm, d, e,
                       "layers.%zu.post_attention_layernorm.weight", i))
        return -1;
    return 0;
}

int model_open(struct model *m, const struct checkpoint *ck,
               const struct st_set *set, struct qwick_err *e)
{
    struct config *c = &m->config;
    m->gemm_min_tokens =
        m->k->level >= ISA_AVX512 ? OWN_MIN_TOKENS : BLAS_MIN_TOKENS;
    m->blas_min_flops = BLAS_MIN_FLOPS;
    if (weights_open(&m->weights, set, checkpoint_dir(ck), e))
        return -1;
    m->layers = calloc(c->n_layers, sizeof *m->layers);
    m->inv_freq = malloc(c->head_dim / 2 * sizeof *m->inv_freq);
    if (!m->layers || !m->inv_freq)
        return err_oom(e, c->n_layers * sizeof *m->layers);
    if (weights_matrix(&m->weights, &m->embed, c->vocab_size, c->d_model, e,
                       "embed_tokens.weight"))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        if (open_layer(m, &m->layers[i], i, e))
            return -1;
    if (weights_vector(&m->weights, &m->norm, c->d_model, e, "norm.weight"))
        return -1;
    /* Small checkpoints carry a redundant lm_head beside a tied one. */
    if (c->tied_head)
        m->head = m->embed;
    else if (weights_head(&m->weights, &m->head, c->vocab_size, c->d_model, e))
        return -1;
    config_rope_frequencies(c, m->inv_freq);
    return 0;
}

void model_close(struct model *m)
{
    for (size_t i = 0; m->layers && i < m->config.n_layers; i++) {
        struct layer *l = &m->layers[i];
        float *const vectors[] = {l->q_bias,     l->k_bias,    l->v_bias,
                                  l->o_bias,     l->q_norm,    l->k_norm,
                                  l->input_norm, l->post_norm};
        for (size_t j = 0; j < sizeof vectors / sizeof *vectors; j++)
            free(vectors[j]);
    }
    if (m->preloaded)
        munmap(m->preloaded, m->preloaded_bytes);
    free(m->layers);
    free(m->norm);
    free(m->inv_freq);
    weights_close(&m->weights);
    config_free(&m->config);
    *m = (struct model){0};
}

/* Every distinct matrix of the model: visit(ctx, matrix). */
static void each_matrix(struct model *m,
                        void (*visit)(void *ctx, struct matrix *w), void *ctx)
{
    visit(ctx, &m->embed);
    if (!m->config.tied_head)
        visit(ctx, &m->head);
    for (size_t i = 0; i < m->config.n_layers; i++) {
        struct layer *l = &m->layers[i];
        struct matrix *const all[] = {&l->q_proj, &l->k_proj,    &l->v_proj,
                                      &l->o_proj, &l->gate_proj, &l->up_proj,
                                      &l->down_proj};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            visit(ctx, all[j]);
    }
}

static size_t matrix_bytes(const struct matrix *w)
{
    return w->rows * w->cols * dtype_bytes(w->dtype);
}

struct preload {
    unsigned char *to;
    size_t at;
    int tid, n_threads;
};

static size_t aligned_bytes(const struct matrix *w)
{
    return (matrix_bytes(w) + 63) / 64 * 64;
}

static void add_size(void *ctx, struct matrix *w)
{
    *(size_t *)ctx += aligned_bytes(w);
}

static void copy_share(void *ctx, struct matrix *w)
{
    struct preload *p = ctx;
    size_t begin, end;
    par_split(matrix_bytes(w), 4096, p->tid, p->n_threads, &begin, &end);
    memcpy(p->to + p->at + begin, w->data + begin, end - begin);
    p->at += aligned_bytes(w);
}

static void rebind(void *ctx, struct matrix *w)
{
    struct preload *p = ctx;
    w->data = p->to + p->at;
    p->at += aligned_bytes(w);
}

static void preload_body(void *ctx, struct par_team *team, int tid,
                         int n_threads)
{
    struct model *m = ctx;
    struct preload p = {m->preloaded, 0, tid, n_threads};
    (void)team;
    each_matrix(m, copy_share, &p);
}

int model_preload(struct model *m, struct qwick_err *e)
{
    size_t n = 0;
    each_matrix(m, add_size, &n);
    void *to = mmap(NULL, n, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return err_oom(e, n);
    (void)madvise(to, n, MADV_HUGEPAGE); /* a hint: may be unsupported */
    m->preloaded = to;
    m->preloaded_bytes = n;
    par_run(m->n_threads, preload_body, m);
    struct preload p = {to, 0, 0, 1};
    each_matrix(m, rebind, &p);
    if (m->config.tied_head)
        m->head = m->embed;
    return 0;
}

size_t model_decode_bytes(const struct model *m)
{
    size_t n = m->weights.n_bytes;
    /* Of an embedding that is not the head, one row is read. */
    if (m->embed.data != m->head.data)
        n -= matrix_bytes(&m->embed) - matrix_bytes(&m->embed) / m->embed.rows;
    return n;
}

gemm_fn model_gemm(const struct model *m, size_t n)
{
    bool own = m->k->level >= ISA_AVX512;
    if (m->exact || n < m->gemm_min_tokens)
        return NULL;
    if (own)
        return m->k->sgemm_nt;
    if (2.0 * (double)n * (double)m->weights.n_params < m->blas_min_flops)
        return NULL;
    if (gemm_blas_load(m->k->level))
        return gemm_blas_nt;
    return m->k->level == ISA_REF ? NULL : m->k->sgemm_nt;
}

double model_flops(const struct model *m, size_t pos, size_t n)
{
    const struct config *c = &m->config;
    double d = (double)c->d_model, q_dim = (double)(c->n_heads * c->head_dim),
           kv_dim = (double)(c->n_kv_heads * c->head_dim);
    double qkv = 2 * d * (q_dim + 2 * kv_dim);
    double rest = 2 * d * q_dim + 6 * d * (double)c->d_ff;
    double flops = 2 * d * (double)c->vocab_size;
    for (size_t i = 0; i < c->n_layers; i++) {
        /* Of the last layer, only the last token goes on past its keys. */
        size_t first = i + 1 == c->n_layers ? n - 1 : 0;
        size_t window = c->layer_slides[i] ? c->sliding_window : SIZE_MAX;
        double pairs = 0;
        for (size_t t = first; t < n; t++)
            pairs += (double)(pos + t + 1 < window ? pos + t + 1 : window);
        flops += (double)n * qkv + (double)(n - first) * rest;
        flops += 4 * pairs * q_dim;
    }
    return flops;
}

/* ---- forward ---- */

/* One pass, shared by its threads. */
struct pass {
    const struct model *m;
    struct scratch *s;
    struct kv_cache *kv;
    size_t n;   /* tokens */
    size_t pos; /* of the first one */
    enum logits_want want;
    float *logits;
    gemm_fn gemm; /* NULL: skinny kernels, as for the last token alone */
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

/* One product of a phase: out[t, r] = w[r] . x[t] (+ bias[r]). */
struct product {
    const struct matrix *w;
    const float *bias;
    float *out; /* [n, w->rows] */
};

/* Rows [begin, end) of a product for n tokens. */
static void multiply(const struct worker *w, const struct product *p,
                     const float *x, size_t n, size_t begin, size_t end)
{
    const struct matrix *a = p->w;
    size_t ldo = a->rows;
    gemm_fn gemm = n > 1 ? w->p->gemm : NULL;
    if (!gemm && begin < end)
        w->k->matmul[a->dtype](p->out + begin, ldo, matrix_row(a, begin),
                               a->cols, x, a->cols, end - begin, a->cols, n);
    size_t step = scratch_panel_rows(a->cols);
    for (size_t r = begin; gemm && r < end; r += step) {
        size_t rows = end - r < step ? end - r : step;
        w->k->to_f32[a->dtype](w->own->panel, matrix_row(a, r),
                               rows * a->cols);
        gemm(p->out + r, ldo, x, a->cols, w->own->panel, a->cols, n, rows,
             a->cols);
    }
    if (p->bias)
        for (size_t t = 0; t < n; t++)
            w->k->add(p->out + t * ldo + begin, p->bias + begin, end - begin);
}

/* Unit in which rows are split. */
static size_t row_unit(const struct worker *w, size_t n_cols, size_t n)
{
    return w->p->gemm && n > 1 ? scratch_panel_rows(n_cols) : 8;
}

/* Several products of the same x as if their rows were one matrix's. */
static void multiply_all(const struct worker *w, const struct product *p,
                         size_t n_products, const float *x, size_t n)
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
        if (from < to)
            multiply(w, &p[i], x, n, from, to);
        at += rows;
    }
}

/* x += product, where the product goes through s->proj. */
static void multiply_residual(const struct worker *w, const struct matrix *a,
                              const float *bias, const float *in, float *x,
                              size_t n)
{
    struct product p = {a, bias, w->p->s->proj};
    size_t begin, end;
    par_split(a->rows, row_unit(w, a->cols, n), w->tid, w->n_threads, &begin,
              &end);
    multiply(w, &p, in, n, begin, end);
    for (size_t t = 0; t < n && begin < end; t++)
        w->k->add(x + t * a->rows + begin, p.out + t * a->rows + begin,
                  end - begin);
    par_barrier(w->team);
}

/* Normalised copy of x[0..n) for all threads to read. */
static const float *normalise(const struct worker *w, const float *x, size_t n,
                              const float *weight)
{
    const struct config *c = &w->p->m->config;
    float eps = (float)c->rms_eps;
    if (n <= SCRATCH_PRIVATE_TOKENS) {
        w->k->rmsnorm(w->own->xn, x, weight, n, c->d_model, eps);
        return w->own->xn;
    }
    float *xn = w->p->s->xn;
    size_t begin, end;
    par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    w->k->rmsnorm(xn + begin * c->d_model, x + begin * c->d_model, weight,
                  end - begin, c->d_model, eps);
    par_barrier(w->team);
    return xn;
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
    w->k->from_f32[p->kv->dtype](
        kv_values(p->kv, pos / KV_BLOCK, layer, h) + slot * elem, p->s->v + at,
        d);
}

/* Queries of one token and KV head, normalised, rotated and scaled, in the
 * order that attention reads: [kv head][token][head of the group]. */
static float *prepare_queries(const struct worker *w, size_t layer, size_t t,
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
    return q;
}

/* Attention of tokens [first, last) for one KV head into s->attn. */
static void attend(const struct worker *w, size_t layer, size_t h,
                   size_t first, size_t last)
{
    const struct pass *p = w->p;
    const struct config *c = &p->m->config;
    struct thread_scratch *own = w->own;
    size_t d = c->head_dim, group = c->n_heads / c->n_kv_heads;
    size_t window = c->layer_slides[layer] ? c->sliding_window : SIZE_MAX;
    struct attn_rows rows = {
        .q = p->s->qr + (h * p->n + first) * group * d,
        .ldq = d,
        .n = (last - first) * group,
        .lo = own->lo,
        .hi = own->hi,
        .m = own->m,
        .l = own->l,
        .acc = own->acc,
    };
    for (size_t i = 0; i < rows.n; i++) {
        own->m[i] = -INFINITY;
        own->l[i] = 0;
    }
    memset(own->acc, 0, rows.n * d * sizeof *own->acc);
    size_t oldest = p->pos + first + 1 > window ? p->pos + first + 1 - window
                                                : 0;
    size_t end_block = (p->pos + last - 1) / KV_BLOCK + 1;
    for (size_t b = oldest / KV_BLOCK; b < end_block; b++) {
        size_t start = b * KV_BLOCK;
        for (size_t t = first; t < last; t++) {
            size_t end = p->pos + t + 1; /* a token sees itself */
            size_t begin = end > window ? end - window : 0;
            size_t lo = begin > start ? begin - start : 0;
            size_t hi = end > start ? end - start : 0;
            for (size_t g = 0; g < group; g++) {
                own->lo[(t - first) * group + g] =
                    (int)(lo < KV_BLOCK ? lo : KV_BLOCK);
                own->hi[(t - first) * group + g] =
                    (int)(hi < KV_BLOCK ? hi : KV_BLOCK);
            }
        }
        w->k->attn_block[p->kv->dtype](&rows, kv_keys(p->kv, b, layer, h),
                                       kv_values(p->kv, b, layer, h), d,
                                       own->attn);
    }
    for (size_t i = 0; i < rows.n; i++) {
        size_t t = first + i / group, head = h * group + i % group;
        float *out = p->s->attn + (t * c->n_heads + head) * d;
        memcpy(out, own->acc + i * d, d * sizeof *out);
        w->k->scale(out, 1.0f / own->l[i], d);
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
        for (size_t h = begin; h < end; h++) {
            store_key(w, layer, 0, h);
            prepare_queries(w, layer, 0, h);
            attend(w, layer, h, 0, 1);
        }
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
        attend(w, layer, h, from, to);
    }
    par_barrier(w->team);
}

/* silu(gate(x)) * up(x) into s->gate, by rows so that both stay in cache. */
static void gated(const struct worker *w, const struct layer *l,
                  const float *xn, size_t n)
{
    struct product gate = {&l->gate_proj, NULL, w->p->s->gate};
    struct product up = {&l->up_proj, NULL, w->p->s->up};
    size_t rows = l->gate_proj.rows, cols = l->gate_proj.cols;
    size_t step = scratch_panel_rows(cols), begin, end;
    par_split(rows, row_unit(w, cols, n), w->tid, w->n_threads, &begin, &end);
    for (size_t r = begin; r < end; r += step) {
        size_t to = end - r < step ? end : r + step;
        multiply(w, &gate, xn, n, r, to);
        multiply(w, &up, xn, n, r, to);
        for (size_t t = 0; t < n; t++) {
            float *g = gate.out + t * rows + r;
            w->k->swiglu(g, g, up.out + t * rows + r, to - r);
        }
    }
    par_barrier(w->team);
}

static void write_logits(const struct worker *w, size_t first)
{
    const struct model *m = w->p->m;
    size_t n = w->p->n - first;
    const float *xn =
        normalise(w, w->p->s->x + first * m->config.d_model, n, m->norm);
    struct product head = {&m->head, NULL, w->p->logits};
    multiply_all(w, &head, 1, xn, n);
}

static void pass_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct pass *p = ctx;
    const struct model *m = p->m;
    struct worker w = {p,   m->k, team, &p->s->threads[tid], tid,
                       n_threads};
    size_t d = m->config.d_model;
    size_t q_dim = m->config.n_heads * m->config.head_dim;
    size_t first = 0; /* tokens before it have nothing left to do */
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct layer *l = &m->layers[i];
        const float *xn = normalise(&w, p->s->x, p->n, l->input_norm);
        const struct product qkv[] = {{&l->q_proj, l->q_bias, p->s->q},
                                      {&l->k_proj, l->k_bias, p->s->k},
                                      {&l->v_proj, l->v_bias, p->s->v}};
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
        multiply_residual(&w, &l->o_proj, l->o_bias, p->s->attn + first * q_dim,
                          x, n);
        gated(&w, l, normalise(&w, x, n, l->post_norm), n);
        multiply_residual(&w, &l->down_proj, NULL, p->s->gate, x, n);
    }
    if (p->want != LOGITS_NONE)
        write_logits(&w, first);
}

int model_forward(const struct model *m, struct scratch *s,
                  struct kv_cache *kv, const int32_t *tokens, size_t n,
                  enum logits_want want, float *logits,
                  const volatile int *interrupt)
{
    bool stop = false;
    struct pass p = {.m = m,
                     .s = s,
                     .kv = kv,
                     .n = n,
                     .pos = kv->n,
                     .want = want,
                     .logits = logits,
                     .gemm = model_gemm(m, n),
                     .interrupt = interrupt,
                     .stop = &stop};
    size_t d = m->config.d_model, half = m->config.head_dim / 2;
    float scale = (float)m->config.rope_attention;
    for (size_t t = 0; t < n; t++) {
        m->k->to_f32[m->embed.dtype](s->x + t * d,
                                     matrix_row(&m->embed, (size_t)tokens[t]),
                                     d);
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
