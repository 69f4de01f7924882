/* Dense Qwen3 (Qwen3ForCausalLM in transformers): weights, sizes and what
 * multiplies. The forward pass is in qwen3_forward.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/par.h"
#include "kernel/gemm.h"
#include "model/model.h"

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
    for (size_t j = 0; j < c->head_dim; j++)
        l->q_norm[j] *= 1.0f / sqrtf((float)c->head_dim);
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

/* Every distinct matrix of the model: visit(ctx, matrix). */
static void each_matrix(struct model *m,
                        void (*visit)(void *ctx, struct matrix *w), void *ctx)
{
    visit(ctx, &m->embed);
    if (!m->config.tied_head)
        visit(ctx, &m->head);
    for (size_t i = 0; i < m->config.n_layers; i++) {
        struct layer *l = &m->layers[i];
        struct matrix *const all[] = {&l->q_proj,   &l->k_proj,    &l->v_proj,
                                      &l->o_proj,   &l->gate_proj, &l->up_proj,
                                      &l->down_proj};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            visit(ctx, all[j]);
    }
}

/* What kinds of matrices multiply. */
static void note_kinds(void *ctx, struct matrix *w)
{
    struct model *m = ctx;
    if (w->bits)
        m->any_quantized = true;
    else
        m->any_dense = true;
    m->dense_bf16 = m->dense_bf16 && (w->bits || w->dtype == DT_BF16);
}

static bool worth_blas(const struct model *m, size_t n)
{
    return 2.0 * (double)n * (double)m->weights.n_params >= m->blas_min_flops;
}

void model_load_blas(const struct model *m)
{
    if (!m->lazy_blas && !m->exact && m->any_dense && m->blas &&
        worth_blas(m, m->chunk))
        gemm_blas_load(m->k);
}

enum products model_products(const struct model *m, size_t n)
{
    if (m->exact || n < m->gemm_min_tokens)
        return PRODUCTS_SKINNY;
    if (!m->any_dense)
        return PRODUCTS_SKINNY; /* all is multiplied in integers */
    const struct kernel_tuning *t = &m->k->tune;
    if (t->bf16 && m->dense_bf16)
        return PRODUCTS_BF16;
    if (m->blas) {
        if (!worth_blas(m, n))
            return PRODUCTS_SKINNY;
        if (m->lazy_blas ? gemm_blas_load(m->k) : gemm_blas_loaded())
            return PRODUCTS_BLAS;
    }
    if (!t->sgemm || (n < t->sgemm_any_tokens && (n - 1) % 8 < 3))
        return PRODUCTS_SKINNY;
    return PRODUCTS_SGEMM;
}

/* Once the weights are bound: see model_products. The embedding counts only as
 * a head. */
static void choose_products(struct model *m)
{
    struct matrix embed = m->embed;
    m->dense_bf16 = true;
    if (!m->config.tied_head)
        m->embed = m->head;
    each_matrix(m, note_kinds, m);
    m->embed = embed;
    m->dense_bf16 = m->dense_bf16 && m->any_dense;
    const struct kernel_tuning *t = &m->k->tune;
    m->blas = t->blas;
    m->blas_min_flops = t->blas_min_flops;
    m->gemm_min_tokens = t->bf16 && m->dense_bf16 ? t->bf16_min_tokens
                         : t->blas                ? t->blas_min_tokens
                                                  : t->sgemm_min_tokens;
}

int model_open(struct model *m, const struct checkpoint *ck,
               const struct st_set *set, struct qwick_err *e)
{
    struct config *c = &m->config;
    if (weights_open(&m->weights, set, checkpoint_dir(ck), e))
        return -1;
    m->weights.quant = &c->quant;
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
    choose_products(m);
    return 0;
}

void model_close(struct model *m)
{
    for (size_t i = 0; m->layers && i < m->config.n_layers; i++) {
        struct layer *l = &m->layers[i];
        float *const vectors[] = {l->q_bias,     l->k_bias,   l->v_bias,
                                  l->o_bias,     l->q_norm,   l->k_norm,
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

/* The arrays behind a matrix: elements, and what quantized ones add. */
static size_t matrix_arrays(struct matrix *w, const unsigned char **data[3],
                            size_t bytes[3])
{
    size_t n = w->rows * w->cols;
    data[0] = &w->data;
    bytes[0] = w->bits ? n / 8 * (size_t)w->bits : n * dtype_bytes(w->dtype);
    if (!w->bits)
        return 1;
    data[1] = &w->scales;
    data[2] = &w->biases;
    bytes[1] = bytes[2] = n / w->group * dtype_bytes(w->dtype);
    return 3;
}

static size_t matrix_bytes(const struct matrix *w)
{
    struct matrix copy = *w;
    const unsigned char **data[3];
    size_t bytes[3], sum = 0;
    for (size_t i = 0, n = matrix_arrays(&copy, data, bytes); i < n; i++)
        sum += bytes[i];
    return sum;
}

struct preload {
    unsigned char *to;
    size_t at;
    int tid, n_threads;
};

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void add_size(void *ctx, struct matrix *w)
{
    const unsigned char **data[3];
    size_t bytes[3];
    for (size_t i = 0, n = matrix_arrays(w, data, bytes); i < n; i++)
        *(size_t *)ctx += aligned(bytes[i]);
}

static void copy_share(void *ctx, struct matrix *w)
{
    struct preload *p = ctx;
    const unsigned char **data[3];
    size_t bytes[3], begin, end;
    for (size_t i = 0, n = matrix_arrays(w, data, bytes); i < n; i++) {
        par_split(bytes[i], 4096, p->tid, p->n_threads, &begin, &end);
        memcpy(p->to + p->at + begin, *data[i] + begin, end - begin);
        p->at += aligned(bytes[i]);
    }
}

static void rebind(void *ctx, struct matrix *w)
{
    struct preload *p = ctx;
    const unsigned char **data[3];
    size_t bytes[3];
    for (size_t i = 0, n = matrix_arrays(w, data, bytes); i < n; i++) {
        *data[i] = p->to + p->at;
        p->at += aligned(bytes[i]);
    }
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
    par_run(m->pool, preload_body, m);
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
