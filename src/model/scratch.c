#include "model/scratch.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "model/pass.h"

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

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

/* int8 rows of up to n_cols columns, by groups of 32 or more; an odd number of
 * cache lines apart. */
static struct q8 bytes8(struct layout *l, size_t rows, size_t n_cols)
{
    struct q8 x = {.ldq = (((n_cols + 63) / 64) | 1) * 64,
                   .ldg = (n_cols + 15) / 16};
    x.q = (int8_t *)floats(l, rows, x.ldq / 4);
    x.scale = floats(l, rows, x.ldg);
    x.sum = floats(l, rows, x.ldg);
    return x;
}

/* int8 rows for passes of up to n tokens, `each` rows a token, or pairs of
 * them. */
static struct q8 token_bytes8(struct layout *l, const struct model *m, size_t n,
                              size_t each, size_t n_cols)
{
    size_t rows = n, twice = m->pairs8_tokens;
    if (!m->any_i8)
        rows = 0;
    else if (n <= twice)
        rows = 2 * n;
    else
        rows = max_size(n, 2 * twice);
    if (size_mul(rows, each, &rows)) {
        l->overflow = 1;
        rows = 0;
    }
    return bytes8(l, rows, n_cols);
}

/* n_acc: floats of all rows' acc. */
static struct softmax softmaxes(struct layout *l, size_t rows, size_t n_acc)
{
    return (struct softmax){.m = floats(l, rows, 1),
                            .l = floats(l, rows, 1),
                            .acc = floats(l, n_acc, 1)};
}

/* KV heads of a layer; 0: it has no attention. */
static size_t kv_heads(const struct model *m, size_t layer)
{
    const struct layer_config *l = &m->config.layers[layer];
    return l->recurrent ? 0 : l->n_kv_heads;
}

bool scratch_splits(const struct model *m)
{
    for (size_t i = 0; i < m->config.n_layers; i++)
        if (kv_heads(m, i) && scratch_splits_heads(m, kv_heads(m, i)))
            return true;
    return false;
}

static bool uses_bf16(const struct model *m)
{
    return !m->exact && m->k->tune.bf16;
}

/* Rows of normalised activations in bf16, or of pairs. */
static size_t rows16(const struct model *m, size_t n)
{
    return !uses_bf16(m) ? 0 : m->pairs16 ? 2 * n : n;
}

/* Rows of the largest delta.inputs[i] of any layer; 0: no layer has one. */
static size_t delta_input_rows(const struct model *m, size_t i)
{
    size_t rows = 0;
    for (size_t j = 0; j < m->config.n_layers; j++)
        rows = max_size(rows, m->layers[j].delta.inputs[i].rows);
    return rows;
}

static size_t panel_floats(size_t n_cols)
{
    return n_cols ? scratch_panel_rows(n_cols) * n_cols : 0;
}

/* The largest sizes of any layer. */
struct sizes {
    size_t d_ff; /* of dense layers, shared experts, per-layer embeddings */
    size_t n_experts, n_active, expert_ff;
    size_t q_dim, kv_dim, head_dim;
    size_t attn_dim; /* columns of o_proj or out_proj */
    size_t panel;    /* floats */
    /* of a tile of attention: */
    size_t rows, acc; /* floats of acc */
    size_t attn;      /* floats of kernels' work memory */
};

static void grow(size_t *most, size_t n)
{
    *most = max_size(*most, n);
}

static void grow_attention(struct sizes *s, const struct model *m, size_t layer)
{
    size_t n_heads = m->config.n_heads, n_kv_heads = kv_heads(m, layer);
    size_t d = m->config.layers[layer].head_dim;
    if (!n_kv_heads)
        return;
    size_t group = n_heads / n_kv_heads;
    size_t rows = scratch_tile_groups(group) * group;
    size_t packed = scratch_packed_rows(m, group);
    grow(&s->q_dim, n_heads * d);
    grow(&s->kv_dim, n_kv_heads * d);
    grow(&s->head_dim, d);
    grow(&s->panel, panel_floats(n_heads * d));
    grow(&s->attn, attn_scratch(rows, d));
    if (!m->exact) {
        rows = max_size(rows, packed);
        grow(&s->attn, attn_tile_scratch(rows, d));
    }
    if (uses_bf16(m))
        grow(&s->attn, attn_bf16_i8_scratch(packed, d));
    grow(&s->rows, rows);
    grow(&s->acc, rows * d);
}

static struct sizes largest_sizes(const struct model *m)
{
    const struct config *c = &m->config;
    size_t v_dim = c->delta.n_v_heads * c->delta.d_v + c->delta.n_short;
    struct sizes s = {
        .panel = max_size(panel_floats(c->d_model), panel_floats(v_dim))};
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct layer_config *l = &c->layers[i];
        grow(&s.expert_ff, l->expert_ff);
        grow(&s.d_ff, l->d_ff);
        grow(&s.d_ff, l->shared_ff);
        grow(&s.n_experts, l->n_experts);
        grow(&s.n_active, l->n_active);
        grow(&s.panel, panel_floats(l->d_ff));
        grow(&s.panel, panel_floats(l->expert_ff));
        grow(&s.panel, panel_floats(l->shared_ff));
        grow_attention(&s, m, i);
    }
    grow(&s.d_ff, c->ple_dim);
    grow(&s.panel, panel_floats(c->ple_dim));
    s.attn_dim = max_size(s.q_dim, v_dim);
    return s;
}

/* Columns of the widest matrix outside of experts. */
static size_t widest_input(const struct model *m, const struct sizes *z)
{
    return max_size(m->config.d_model, max_size(z->d_ff, z->attn_dim));
}

static struct choice choices(struct layout *l, size_t n_slots)
{
    return (struct choice){place(l, n_slots, sizeof(uint32_t)),
                           floats(l, n_slots, 1)};
}

/* Lay out one thread's memory for a pass of n tokens with experts. */
static void layout_routing(struct layout *l, struct thread_scratch *t,
                           const struct model *m, const struct sizes *z,
                           size_t n, size_t n_slots)
{
    size_t d = m->config.d_model;
    size_t rows = 2 * n < SCRATCH_GATHER_ROWS ? 2 * n : SCRATCH_GATHER_ROWS;
    t->choice = choices(l, SCRATCH_PRIVATE_TOKENS * z->n_active);
    t->routing.first = place(l, z->n_experts + 1, sizeof(uint32_t));
    t->routing.active = place(l, z->n_experts, sizeof(uint32_t));
    t->routing.token = place(l, n_slots, sizeof(uint32_t));
    t->routing.weight = floats(l, n_slots, 1);
    t->rows = floats(l, rows, scratch_ld(d));
    t->rows16 = halves(l, uses_bf16(m) ? rows : 0, d);
    /* as far apart as the inputs that are gathered (layout_threads) */
    rows = n < SCRATCH_GATHER_ROWS ? n : SCRATCH_GATHER_ROWS;
    t->rows8 = token_bytes8(l, m, rows, 1, widest_input(m, z));
}

static void layout_experts(struct layout *l, struct scratch *s,
                           const struct model *m, const struct sizes *z,
                           size_t n)
{
    size_t n_slots, n_pairs;
    if (!z->n_experts)
        return;
    if (size_mul(n, z->n_active, &n_slots) || size_mul(n_slots, 2, &n_pairs)) {
        l->overflow = 1;
        return;
    }
    s->router = floats(l, n, z->n_experts);
    s->shared_weight = floats(l, n, 1);
    s->choice = choices(l, n_slots);
    s->expert_gate = floats(l, n_slots, scratch_ld(z->expert_ff));
    s->expert_gate16 = halves(l, uses_bf16(m) ? n_pairs : 0, z->expert_ff);
    s->expert_gate8 = token_bytes8(l, m, n, z->n_active, z->expert_ff);
    for (int i = 0; i < s->n_threads; i++)
        layout_routing(l, &s->threads[i], m, z, n, n_slots);
}

/* Lay out one thread's memory for Gated DeltaNet. */
static void layout_delta(struct layout *l, struct delta_scratch *t,
                         const struct delta_config *c)
{
    size_t rows = c->n_k_heads ? DELTA_BLOCK : 0;
    t->q = floats(l, rows, c->d_k);
    t->k = floats(l, rows, c->d_k);
    t->kk = floats(l, rows, DELTA_BLOCK);
    t->qk = floats(l, rows, DELTA_BLOCK);
    t->v = floats(l, rows, c->d_v);
    t->o = floats(l, rows, c->d_v);
    t->work = floats(l, rows ? delta_scratch(rows, c->d_v) : 0, 1);
}

static void layout_threads(struct layout *l, struct scratch *s,
                           const struct model *m)
{
    const struct config *c = &m->config;
    struct sizes z = largest_sizes(m);
    size_t widest = widest_input(m, &z);
    for (int i = 0; i < s->n_threads; i++) {
        struct thread_scratch *t = &s->threads[i];
        size_t n = SCRATCH_PRIVATE_TOKENS;
        t->xn = floats(l, n, scratch_ld(c->d_model));
        t->xn16 = halves(l, rows16(m, n), c->d_model);
        t->x8 = token_bytes8(l, m, n, 1, widest);
        bool blocks = uses_bf16(m) || m->any_i8 || z.n_experts;
        size_t gated = blocks ? GATED_FLOATS : 0;
        t->gate = floats(l, gated, 1);
        t->up = floats(l, gated, 1);
        size_t pairs =
            m->exact || !m->k->tune.bf16_pairs ? 0 : m->precise_tokens;
        bool any = pairs || m->pairs8_tokens;
        t->pairs = halves(l, 2 * pairs, widest);
        t->pairs_y =
            floats(l, any ? max_size(widest, SCRATCH_PAIRS_FLOATS) : 0, 1);
        t->ordered = floats(l, m->weights.n_orders ? SCRATCH_ORDERED_TOKENS : 0,
                            scratch_ld(max_size(widest, z.expert_ff)));
        t->lora_y = floats(l, m->loras.cols ? SCRATCH_LORA_FLOATS : 0, 1);
        t->panel = floats(l, m->exact ? 0 : z.panel, 1);
        t->work = floats(l, KERNEL_WORK + KERNEL_BLOCKS_WORK, 1);
        t->attn = floats(l, z.attn, 1);
        t->expanded = place(l, m->exact ? 0 : 2 * ATTN_BF16_BLOCKS,
                            kv_i8_block(z.head_dim));
        t->part = softmaxes(l, z.rows, z.acc);
        t->total = softmaxes(l, z.rows, z.acc);
        t->lo = place(l, z.rows, sizeof(int));
        t->hi = place(l, z.rows, sizeof(int));
        t->ple = floats(l, 1, m->ple.table.cols);
        t->ple_gate = floats(l, c->ple_dim ? n : 0, scratch_ld(c->ple_dim));
        layout_delta(l, &t->delta, &c->delta);
    }
}

static void layout_lora(struct layout *l, struct scratch *s,
                        const struct model *m, size_t n)
{
    size_t cols = m->loras.cols, rows = cols ? n : 0;
    s->lora_ld = scratch_ld(cols);
    s->lora = floats(l, rows, s->lora_ld);
    s->lora16 = (uint16_t *)floats(l, rows, s->lora_ld / 2);
    s->lora16_rest = (uint16_t *)floats(l, rows, s->lora_ld / 2);
    s->lora_runs = place(l, 2 * rows, sizeof *s->lora_runs);
}

static void layout_shared(struct layout *l, struct scratch *s,
                          const struct model *m, size_t n, size_t n_segments)
{
    const struct config *c = &m->config;
    struct sizes z = largest_sizes(m);
    s->x = floats(l, n, scratch_ld(c->d_model));
    s->xn = floats(l, n, scratch_ld(c->d_model));
    s->proj = floats(l, n, scratch_ld(c->d_model));
    s->q = floats(l, n, scratch_ld((c->attention_gate ? 2 : 1) * z.q_dim));
    s->qr = floats(l, n, z.q_dim);
    s->k = floats(l, n, scratch_ld(z.kv_dim));
    s->v = floats(l, n, scratch_ld(z.kv_dim));
    s->attn = floats(l, n, scratch_ld(z.attn_dim));
    s->gate = floats(l, n, scratch_ld(z.d_ff));
    s->up = floats(l, n, scratch_ld(z.d_ff));
    s->ple = floats(l, c->ple_dim ? n : 0, scratch_ld(m->ple.table.cols));
    for (size_t i = 0; i < c->n_ropes; i++) {
        s->angles[i].cos = floats(l, n, c->ropes[i].n_rot / 2);
        s->angles[i].sin = floats(l, n, c->ropes[i].n_rot / 2);
    }
    s->pos = place(l, n, sizeof *s->pos);
    s->span = place(l, n, sizeof *s->span);
    s->kept = place(l, n, sizeof *s->kept);
    s->token = place(l, n, sizeof *s->token);
    for (size_t i = 0; i < s->n_plans; i++)
        s->plans[i].tiles = place(l, n, sizeof(struct attn_tile));
    s->last.tiles = place(l, n, sizeof(struct attn_tile));
    size_t split = 0, acc;
    if ((scratch_splits(m) && size_mul(n_segments, c->n_heads, &split)) ||
        size_mul(split, z.head_dim, &acc)) {
        l->overflow = 1;
        acc = 0;
    }
    s->split = softmaxes(l, split, acc);
    if (uses_bf16(m)) {
        s->qr16 = place(l, n, z.q_dim * sizeof(uint16_t));
        s->xn16 = halves(l, rows16(m, n), c->d_model);
        s->attn16 = halves(l, n, z.attn_dim);
        s->gate16 = halves(l, n, z.d_ff);
    }
    if (m->any_i8) {
        s->xn8 = token_bytes8(l, m, n, 1, c->d_model);
        s->attn8 = token_bytes8(l, m, n, 1, z.attn_dim);
        s->gate8 = token_bytes8(l, m, n, 1, z.d_ff);
    }
    for (size_t i = 0; i < DELTA_INPUTS; i++) {
        size_t rows = delta_input_rows(m, i);
        s->delta[i] = rows ? floats(l, n, scratch_ld(rows)) : NULL;
    }
    layout_lora(l, s, m, n);
    layout_experts(l, s, m, &z, n);
}

/* Allocate what a layout adds up to, in huge pages where it is large: rows of
 * activations lie a page or more apart, and products walk many of them at a
 * time. NULL when it cannot be had. */
static void *allocate(struct layout *l, struct qwick_err *e)
{
    size_t align = l->at < 2 * HUGE_PAGE ? ALIGN : HUGE_PAGE;
    size_t bytes = (l->at / align + 1) * align;
    void *p = l->overflow || l->at > SIZE_MAX / 2 ? NULL
                                                  : aligned_alloc(align, bytes);
    if (!p)
        err_oom(e, l->at);
    else if (align == HUGE_PAGE)
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
    *l = (struct layout){.base = p};
    return p;
}

/* Add a plan for each number of KV heads before and after layer last_stored. */
static void add_plans(struct scratch *s, const struct model *m)
{
    size_t n_layers = m->config.n_layers;
    for (size_t i = 0; i < n_layers; i++) {
        struct attn_plan plan = {.n_kv_heads = kv_heads(m, i),
                                 .kept = i > m->last_stored};
        size_t k = 0;
        while (k < s->n_plans && (s->plans[k].n_kv_heads != plan.n_kv_heads ||
                                  s->plans[k].kept != plan.kept))
            k++;
        if (plan.n_kv_heads && k == s->n_plans)
            s->plans[s->n_plans++] = plan;
    }
    s->last.n_kv_heads = kv_heads(m, m->last_stored);
}

/* A scratch without memory for passes. NULL: out of memory. */
static struct scratch *create_empty(const struct model *m, struct qwick_err *e)
{
    struct scratch *s = calloc(1, sizeof *s);
    if (!s) {
        err_oom(e, sizeof *s);
        return NULL;
    }
    s->n_threads = m->n_threads;
    size_t n = (size_t)m->n_threads, n_layers = m->config.n_layers;
    s->threads = calloc(n, sizeof *s->threads);
    s->plans = calloc(n_layers, sizeof *s->plans);
    if (!s->threads || !s->plans) {
        err_oom(e, n * sizeof *s->threads + n_layers * sizeof *s->plans);
        scratch_free(s);
        return NULL;
    }
    add_plans(s, m);
    return s;
}

int scratch_create(struct scratch **out, const struct model *m,
                   struct qwick_err *e)
{
    struct layout l = {0};
    *out = NULL;
    struct scratch *s = create_empty(m, e);
    if (!s)
        return -1;
    layout_threads(&l, s, m);
    s->private = allocate(&l, e);
    if (!s->private) {
        scratch_free(s);
        return -1;
    }
    layout_threads(&l, s, m);
    *out = s;
    return 0;
}

/* Segments to make room for, so that growing contexts seldom need more. */
static size_t grown_segments(size_t n_ctx)
{
    size_t segments = n_ctx / ATTN_SEGMENT + 1;
    return segments + segments / 2;
}

int scratch_predict(size_t *bytes, const struct model *m, size_t n,
                    size_t n_ctx, struct qwick_err *e)
{
    struct layout l = {0};
    *bytes = 0;
    struct scratch *s = create_empty(m, e);
    if (!s)
        return -1;
    layout_threads(&l, s, m);
    layout_shared(&l, s, m, n, grown_segments(n_ctx));
    scratch_free(s);
    *bytes = l.overflow ? SIZE_MAX : l.at;
    return 0;
}

void scratch_free(struct scratch *s)
{
    if (!s)
        return;
    free(s->shared);
    free(s->private);
    free(s->threads);
    free(s->plans);
    free(s);
}

int scratch_reserve(struct scratch *s, const struct model *m, size_t n,
                    size_t n_ctx, struct qwick_err *e)
{
    size_t segments = n_ctx / ATTN_SEGMENT + 1;
    if (n <= s->cap && segments <= s->cap_segments)
        return 0;
    n = max_size(n, s->cap);
    segments = max_size(grown_segments(n_ctx), s->cap_segments);
    struct scratch size = *s;
    struct layout l = {0};
    layout_shared(&l, &size, m, n, segments);
    void *p = allocate(&l, e);
    if (!p) {
        /* the walk has reset what the threads have */
        l = (struct layout){.base = s->shared};
        layout_shared(&l, s, m, s->cap, s->cap_segments);
        return -1;
    }
    free(s->shared);
    s->shared = p;
    s->cap = n;
    s->cap_segments = segments;
    layout_shared(&l, s, m, n, segments);
    return 0;
}
