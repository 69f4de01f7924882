/* Attention of a forward pass: keys and values into the caches, then tiles of
 * query rows against blocks of positions, with a running softmax (online
 * softmax, Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022).
 *
 * Positions are summed by segments of ATTN_SEGMENT, which are then merged in
 * order: so the same bits come out whether one thread walks all of them or,
 * in decode with few heads, many share them. Scores without a value (sinks)
 * join when all segments are merged. */
#include <math.h>
#include <string.h>

#include "model/pass.h"

/* Query rows from which on a tile is worth the packing of keys and values. */
enum { PACKED_MIN_ROWS = 24 };

/* Rounding to bf16 changes large products of queries and keys more than others:
 * it doubles the variance of the errors of logits. So a sequence of up to so
 * many positions does without, where attention is a hundredth of the
 * arithmetic. */
enum { PRECISE_POSITIONS = 256 };

/* How a span's rows meet keys and values. */
enum products_of_attn {
    ATTN_ROWS, /* in one order of sums: decode, and all of --exact */
    ATTN_F32,  /* by tiles */
    ATTN_BF16
};

/* Which query rows, of which heads, and where their results go. */
struct task {
    const struct attn_tile *tile;
    const struct span *span;
    size_t layer;
    size_t h0, h1; /* KV heads */
    size_t first;  /* position of the tile's first token in its sequence */
    size_t n;      /* rows of one KV head */
    enum products_of_attn products;
};

static const struct layer_config *config_of(const struct worker *w,
                                            size_t layer)
{
    return &w->p->m->config.layers[layer];
}

/* Query heads of a KV head. */
static size_t group_of(const struct worker *w, size_t layer)
{
    return w->p->m->config.n_heads / config_of(w, layer)->n_kv_heads;
}

/* The positions that a row of the span sees at most. */
static size_t most_visible(const struct worker *w, size_t layer,
                           const struct span *span)
{
    size_t n = span->kv->n + span->n, window = config_of(w, layer)->window;
    size_t both = w->p->m->config.bidirectional ? 2 * window - 1 : window;
    return n < window || both > n ? n : both;
}

/* A function of shapes alone. */
static enum products_of_attn products_of(const struct worker *w, size_t layer,
                                         const struct span *span)
{
    if (w->p->m->exact || span->n * group_of(w, layer) < PACKED_MIN_ROWS)
        return ATTN_ROWS;
    bool precise = w->p->m->large_scores &&
                   most_visible(w, layer, span) <= PRECISE_POSITIONS;
    return w->p->attn16 && !precise &&
                   w->k->attn_blocks_bf16[span->kv->kind->form]
               ? ATTN_BF16
               : ATTN_F32;
}

/* Rotate heads x [n_heads, head_dim] of token t. */
static void rotate(const struct worker *w, size_t layer, float *x,
                   size_t n_heads, size_t t)
{
    const struct model *m = w->p->m;
    size_t i = m->config.layers[layer].rope, d = config_of(w, layer)->head_dim;
    if (i == NO_ROPE)
        return;
    const struct angles *a = &w->p->s->angles[i];
    size_t n_rot = m->ropes[i].n_rot, half = n_rot / 2;
    void (*rope)(float *, size_t, size_t, const float *, const float *) =
        m->ropes[i].interleaved ? w->k->rope_pairs : w->k->rope;
    if (n_rot == d) {
        rope(x, n_heads, d, a->cos + t * half, a->sin + t * half);
        return;
    }
    for (size_t h = 0; h < n_heads; h++)
        rope(x + h * d, 1, n_rot, a->cos + t * half, a->sin + t * half);
}

/* Multiply n heads of keys, values, queries or results by the matrix of a cache
 * that rotates them. */
static void turn(const struct worker *w, const struct kv_cache *kv, float *x,
                 size_t n, size_t d)
{
    if (kv->kind->rotates)
        w->k->hadamard(x, n, d);
}

/* Norms, RoPE and storing of one token's keys and values of KV heads [h0, h1),
 * unless the layer reads another one's. */
static void store_keys(const struct worker *w, size_t layer, size_t t,
                       size_t h0, size_t h1)
{
    const struct pass *p = w->p;
    const struct layer_config *c = config_of(w, layer);
    const struct kv_cache *kv = p->io->spans[p->s->span[t]].kv;
    size_t d = c->head_dim, at = t * scratch_ld(c->n_kv_heads * d) + h0 * d;
    size_t block = p->s->pos[t] / KV_BLOCK, slot = p->s->pos[t] % KV_BLOCK;
    float *k = p->s->k + at, *v = p->s->v + at;
    const struct attention *a = &p->m->layers[layer].attn;
    float eps = (float)p->m->config.rms_eps;
    if (c->kv_back)
        return;
    if (c->v_from_k)
        memcpy(v, k, (h1 - h0) * d * sizeof *v);
    if (a->v_norm)
        w->k->rmsnorm(v, v, a->v_norm, h1 - h0, d, eps);
    if (p->m->config.arch->blocks.qk_norm == QK_NORM_HEAD)
        w->k->rmsnorm(k, k, a->k_norm, h1 - h0, d, eps);
    rotate(w, layer, k, h1 - h0, t);
    turn(w, kv, k, h1 - h0, d);
    turn(w, kv, v, h1 - h0, d);
    const struct kv_kind *kind = kv->kind;
    for (size_t h = h0; h < h1; h++, k += d, v += d) {
        kind->store(kind, w->k, kv_keys(kv, block, layer, h), slot, k, d);
        kind->store(kind, w->k, kv_values(kv, block, layer, h), slot, v, d);
    }
}

/* The queries of a row from head `head` on. Behind each head in s->q, there
 * may be a head of gates. */
static float *queries(const struct worker *w, size_t layer, size_t row,
                      size_t head)
{
    const struct config *c = &w->p->m->config;
    size_t step = (c->attention_gate ? 2 : 1) * config_of(w, layer)->head_dim;
    return w->p->s->q + row * scratch_ld(c->n_heads * step) + head * step;
}

/* Multiply n queries of the token at position pos by what no norm has
 * multiplied them by: the scale of scores, and one that grows with the position
 * (get_llama_4_attn_scale in transformers). */
static void scale_queries(const struct worker *w, size_t layer, float *q,
                          size_t n, size_t pos)
{
    const struct model *m = w->p->m;
    size_t rope = config_of(w, layer)->rope;
    const struct rope_config *r = &m->config.ropes[rope == NO_ROPE ? 0 : rope];
    float scale = m->layers[layer].attn.q_scale;
    if (r->q_beta > 0)
        scale *= (float)(1 + r->q_beta * log1p((double)(pos / r->original)));
    if (scale != 1)
        w->k->scale(q, scale, n);
}

/* Queries of one row for KV heads [h0, h1), normalised, rotated and scaled, in
 * the order that attention reads: [kv head][row][head of the group]. */
static void prepare_queries(const struct worker *w, size_t layer, size_t row,
                            size_t h0, size_t h1)
{
    const struct pass *p = w->p;
    size_t t = pass_token(p, layer, row);
    const struct config *c = &p->m->config;
    const struct span *span = &p->io->spans[p->s->span[t]];
    size_t d = config_of(w, layer)->head_dim, group = group_of(w, layer);
    bool bf16 = products_of(w, layer, span) == ATTN_BF16;
    size_t run = c->attention_gate ? 1 : group; /* heads without gaps */
    for (size_t i = h0 * group; i < h1 * group; i += run) {
        size_t at = (i / group * p->n + row) * group * d + i % group * d;
        float *q = queries(w, layer, row, i);
        if (c->arch->blocks.qk_norm == QK_NORM_HEAD)
            w->k->rmsnorm(q, q, p->m->layers[layer].attn.q_norm, run, d,
                          (float)c->rms_eps);
        scale_queries(w, layer, q, run * d, p->s->pos[t]);
        rotate(w, layer, q, run, t);
        turn(w, span->kv, q, run, d);
        if (bf16)
            w->k->from_f32[DT_BF16](p->s->qr16 + at, q, run * d);
        else
            memcpy(p->s->qr + at, q, run * d * sizeof *q);
    }
}

/* Normalise whole rows of queries and keys. Ends with a barrier. */
static void normalise_rows(struct worker *w, size_t layer)
{
    const struct pass *p = w->p;
    const struct attention *a = &p->m->layers[layer].attn;
    float eps = (float)p->m->config.rms_eps;
    size_t begin, end;
    par_split(pass_rows(p, layer), 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *q = p->s->q + t * scratch_ld(a->q_proj.rows);
        float *k = p->s->k + t * scratch_ld(a->k_proj.rows);
        w->k->rmsnorm(q, q, a->q_norm, 1, a->q_proj.rows, eps);
        w->k->rmsnorm(k, k, a->k_norm, 1, a->k_proj.rows, eps);
    }
    pass_barrier(w, PART_ATTENTION);
}

/* Set [*begin, *end) to the positions that the token at position pos attends to:
 * the last `window` ones, its own included, and as many on the other side in an
 * encoder. */
static void visible(const struct worker *w, const struct task *a, size_t pos,
                    size_t *begin, size_t *end)
{
    size_t window = config_of(w, a->layer)->window;
    size_t last = a->span->kv->n + a->span->n - 1;
    *begin = pos + 1 > window ? pos + 1 - window : 0;
    *end = pos + 1;
    if (w->p->m->config.bidirectional)
        *end += last - pos < window - 1 ? last - pos : window - 1;
}

/* Set lo and hi of each query row of task a to the range of positions that the
 * row attends to in the n blocks from `block` on, counted from the start of
 * that block. The rows of one token, one for each head of the group, have equal
 * ranges. */
static void set_ranges(const struct worker *w, const struct task *a,
                       size_t block, size_t n)
{
    size_t start = block * KV_BLOCK, i = 0, group = group_of(w, a->layer);
    size_t most = n * KV_BLOCK, begin, end;
    for (size_t t = 0; i < a->n; t++) {
        visible(w, a, a->first + t, &begin, &end);
        size_t lo = begin > start ? begin - start : 0;
        size_t hi = end > start ? end - start : 0;
        for (size_t g = 0; g < group; g++, i++) {
            w->own->lo[i] = (int)(lo < most ? lo : most);
            w->own->hi[i] = (int)(hi < most ? hi : most);
        }
    }
}

/* Return block i of the call in the form that kernels read. */
static const void *expanded(const struct worker *w, const struct kv_cache *kv,
                            const void *run, size_t i, size_t d)
{
    if (!kv->kind->expand)
        return run;
    void *to = w->own->expanded + i * kv_i8_block(d);
    kv->kind->expand(w->k, to, run, d);
    return to;
}

/* n blocks; next: keys that are read after the last one's values, or NULL. */
static void attend_blocks(const struct worker *w, const struct task *a,
                          size_t block, size_t n, size_t h, const void *next,
                          const struct softmax *to)
{
    const struct kv_cache *kv = a->span->kv;
    const struct scratch *s = w->p->s;
    size_t d = config_of(w, a->layer)->head_dim, at = (h - a->h0) * a->n;
    size_t q = (h * w->p->n + a->tile->first) * group_of(w, a->layer) * d;
    struct attn_rows rows = {
        .q = s->qr + q,
        .q16 = a->products == ATTN_BF16 ? s->qr16 + q : NULL,
        .ldq = d,
        .n = a->n,
        .cap = w->p->m->config.attn_cap,
        .lo = w->own->lo,
        .hi = w->own->hi,
        .m = to->m + at,
        .l = to->l + at,
        .acc = to->acc + at * d,
        .next = next,
    };
    const void *k[ATTN_BF16_BLOCKS], *v[ATTN_BF16_BLOCKS];
    for (size_t i = 0; i < n; i++) {
        k[i] = expanded(w, kv, kv_keys(kv, block + i, a->layer, h), 2 * i, d);
        v[i] = expanded(w, kv, kv_values(kv, block + i, a->layer, h),
                        2 * i + 1, d);
    }
    enum kv_form form = kv->kind->form;
    if (a->products == ATTN_BF16)
        w->k->attn_blocks_bf16[form](&rows, k, v, n, d, w->own->attn);
    else
        (a->products == ATTN_F32 ? w->k->attn_tile : w->k->attn_block)[form](
            &rows, k[0], v[0], d, w->own->attn);
}

/* One segment's blocks [block, end) into `to`. Blocks are walked with the heads
 * inside: a block's heads follow each other in memory. */
static void attend_segment(const struct worker *w, const struct task *a,
                           size_t block, size_t end, const struct softmax *to)
{
    const struct layer_config *c = config_of(w, a->layer);
    const struct kv_cache *kv = a->span->kv;
    size_t rows = (a->h1 - a->h0) * a->n, n;
    for (size_t i = 0; i < rows; i++) {
        to->m[i] = -INFINITY;
        to->l[i] = 0;
    }
    bool bf16 = a->products == ATTN_BF16;
    if (!bf16)
        memset(to->acc, 0, rows * c->head_dim * sizeof *to->acc);
    for (size_t b = block; b < end; b += n) {
        /* the same blocks together, whichever is the first */
        size_t step = bf16 ? ATTN_BF16_BLOCKS - b % ATTN_BF16_BLOCKS : 1;
        n = end - b < step ? end - b : step;
        set_ranges(w, a, b, n);
        for (size_t h = a->h0; h < a->h1; h++) {
            const void *next = h + 1 < a->h1 ? kv_keys(kv, b, a->layer, h + 1)
                               : b + n < end
                                   ? kv_keys(kv, b + n, a->layer, a->h0)
                                   : NULL;
            attend_blocks(w, a, b, n, h, next, to);
        }
    }
}

/* Add a later segment's softmax to the running one, row by row. Where either
 * has attended to nothing, its acc need not be there. */
static void merge(const struct kernels *k, const struct softmax *to,
                  const struct softmax *part, size_t rows, size_t d)
{
    for (size_t i = 0; i < rows; i++) {
        float *acc = to->acc + i * d, *more = part->acc + i * d;
        bool first = to->m[i] == -INFINITY, none = part->m[i] == -INFINITY;
        float m = to->m[i] > part->m[i] ? to->m[i] : part->m[i];
        float shift = m == -INFINITY ? 0 : m;
        float a = expf(to->m[i] - shift), b = expf(part->m[i] - shift);
        to->m[i] = m;
        to->l[i] = to->l[i] * a + part->l[i] * b;
        if (none)
            continue;
        if (first) {
            memcpy(acc, more, d * sizeof *acc);
            continue;
        }
        if (a != 1)
            k->scale(acc, a, d);
        if (b != 1)
            k->scale(more, b, d);
        k->add(acc, more, d);
    }
}

/* Return the factor of a row's acc: the residual scale over the sum of
 * exponentials. A sink adds its own exponential to the sum, and becomes the
 * maximum if it is larger. */
static float factor_of(const struct softmax *from, size_t row,
                       const float *sink, float scale)
{
    float m = from->m[row], l = from->l[row];
    if (!sink)
        return scale / l;
    float top = m > *sink ? m : *sink, a = expf(m - top);
    return scale * a / (l * a + expf(*sink - top));
}

/* Divide by the sums, apply the residual scale and the gates, and hand out the
 * rows. */
static void finish(const struct worker *w, const struct task *a,
                   const struct softmax *from, bool out16)
{
    const struct pass *p = w->p;
    const struct config *c = &p->m->config;
    const float *sinks = p->m->layers[a->layer].attn.sinks;
    size_t d = config_of(w, a->layer)->head_dim, group = group_of(w, a->layer),
           q_dim = c->n_heads * d;
    for (size_t i = 0; i < (a->h1 - a->h0) * a->n; i++) {
        size_t t = a->tile->out + i % a->n / group;
        size_t head = (a->h0 + i / a->n) * group + i % group;
        float *row = from->acc + i * d;
        w->k->scale(
            row,
            factor_of(from, i, sinks ? sinks + head : NULL, c->residual_scale),
            d);
        turn(w, a->span->kv, row, 1, d);
        if (c->attention_gate) {
            size_t token = a->tile->first + i % a->n / group;
            w->k->glu(row, queries(w, a->layer, token, head) + d, row, d);
        }
        if (out16)
            w->k->from_f32[DT_BF16](
                p->s->attn16 + t * gemm_bf16_ldx(q_dim) + head * d, row, d);
        else
            memcpy(p->s->attn + t * scratch_ld(q_dim) + head * d, row,
                   d * sizeof *row);
    }
}

static struct task task_of(const struct worker *w, const struct attn_tile *tile,
                           size_t layer, size_t h0, size_t h1)
{
    const struct pass *p = w->p;
    struct task a = {.tile = tile,
                     .span = &p->io->spans[tile->span],
                     .layer = layer,
                     .h0 = h0,
                     .h1 = h1,
                     .first = p->s->pos[pass_token(p, layer, tile->first)],
                     .n = (tile->last - tile->first) * group_of(w, layer)};
    a.products = products_of(w, layer, a.span);
    return a;
}

/* Blocks [*begin, *end) that the task's tokens see. */
static void blocks_of(const struct worker *w, const struct task *a,
                      size_t *begin, size_t *end)
{
    size_t n = a->tile->last - a->tile->first, none;
    visible(w, a, a->first, begin, &none);
    visible(w, a, a->first + n - 1, &none, end);
    *begin /= KV_BLOCK;
    *end = (*end - 1) / KV_BLOCK + 1;
}

enum { SEGMENT_BLOCKS = ATTN_SEGMENT / KV_BLOCK };

/* All segments of a task on one thread. */
static void attend(const struct worker *w, const struct task *a, bool out16)
{
    const struct softmax *to = &w->own->total;
    size_t d = config_of(w, a->layer)->head_dim, b, end;
    size_t rows = (a->h1 - a->h0) * a->n;
    blocks_of(w, a, &b, &end);
    for (bool first = true; b < end; first = false) {
        size_t stop = (b / SEGMENT_BLOCKS + 1) * SEGMENT_BLOCKS;
        stop = stop < end ? stop : end;
        attend_segment(w, a, b, stop, first ? to : &w->own->part);
        if (!first)
            merge(w->k, to, &w->own->part, rows, d);
        b = stop;
    }
    finish(w, a, to, out16);
}

/* ---- decode: one token of each sequence --------------------------------- */

static void store_and_prepare(const struct worker *w, size_t layer, size_t t,
                              size_t h0, size_t h1)
{
    if (h0 >= h1)
        return;
    store_keys(w, layer, t, h0, h1);
    prepare_queries(w, layer, t, h0, h1);
}

/* Heads [h0, h1) of one sequence, all on this thread: no barrier between. */
static void decode_heads(const struct worker *w, size_t layer,
                         const struct attn_tile *tile, size_t h0, size_t h1,
                         bool out16)
{
    size_t step = scratch_tile_groups(group_of(w, layer));
    store_and_prepare(w, layer, tile->first, h0, h1);
    for (size_t h = h0; h < h1; h += step) {
        struct task a =
            task_of(w, tile, layer, h, h1 - h < step ? h1 : h + step);
        attend(w, &a, out16);
    }
}

/* Part `segment` of p->s->split, for one KV head's rows. */
static struct softmax split_part(const struct worker *w, size_t layer,
                                 size_t segment, size_t h)
{
    const struct softmax *s = &w->p->s->split;
    size_t d = config_of(w, layer)->head_dim;
    size_t row = segment * w->p->m->config.n_heads + h * group_of(w, layer);
    return (struct softmax){s->m + row, s->l + row, s->acc + row * d};
}

/* Few heads, a long context: threads share out heads and segments. */
static void decode_split(struct worker *w, size_t layer,
                         const struct attn_tile *tile, bool out16)
{
    const struct layer_config *c = config_of(w, layer);
    size_t n_heads = c->n_kv_heads, h0, h1, i, next, b, end;
    par_split(n_heads, 1, w->tid, w->n_threads, &h0, &h1);
    store_and_prepare(w, layer, tile->first, h0, h1);
    pass_barrier(w, PART_ATTENTION);
    struct task a = task_of(w, tile, layer, 0, 1);
    blocks_of(w, &a, &b, &end);
    size_t s0 = b / SEGMENT_BLOCKS, n = (end - 1) / SEGMENT_BLOCKS + 1 - s0;
    while (par_next(w->team, n * n_heads, 1, &i, &next)) {
        size_t segment = s0 + i / n_heads, h = i % n_heads;
        size_t from = segment * SEGMENT_BLOCKS, to = from + SEGMENT_BLOCKS;
        struct softmax part = split_part(w, layer, segment - s0, h);
        a = task_of(w, tile, layer, h, h + 1);
        attend_segment(w, &a, from > b ? from : b, to < end ? to : end, &part);
    }
    pass_barrier(w, PART_ATTENTION);
    for (size_t h = h0; h < h1; h++) {
        struct softmax total = split_part(w, layer, 0, h);
        a = task_of(w, tile, layer, h, h + 1);
        for (size_t s = 1; s < n; s++) {
            struct softmax part = split_part(w, layer, s, h);
            merge(w->k, &total, &part, a.n, c->head_dim);
        }
        finish(w, &a, &total, out16);
    }
}

static void decode_attention(struct worker *w, size_t layer,
                             const struct attn_plan *plan, bool out16)
{
    const struct pass *p = w->p;
    const struct attn_tile *tiles = plan->tiles;
    size_t n_tiles = plan->n;
    size_t n_heads = config_of(w, layer)->n_kv_heads, begin, end;
    size_t n = pass_rows(p, layer);
    if (n == 1 && n_tiles == 1) {
        if (scratch_splits_heads(p->m, n_heads) &&
            p->s->pos[pass_token(p, layer, 0)] >= ATTN_SEGMENT) {
            decode_split(w, layer, tiles, out16);
            return;
        }
        par_split(n_heads, 1, w->tid, w->n_threads, &begin, &end);
        decode_heads(w, layer, tiles, begin, end, out16);
        return;
    }
    /* Chunks of heads: several for each thread, few for each sequence. */
    size_t per = n * n_heads / (4 * (size_t)w->n_threads);
    per = per < 1 ? 1 : per > n_heads ? n_heads : per;
    size_t chunks = (n_heads + per - 1) / per, i, next;
    while (par_next(w->team, n * chunks, 1, &i, &next)) {
        size_t t = i / chunks, h0 = i % chunks * per;
        size_t h1 = n_heads - h0 < per ? n_heads : h0 + per;
        size_t tile = n_tiles == n ? t : p->s->kept[t];
        if (tile < n_tiles)
            decode_heads(w, layer, &tiles[tile], h0, h1, out16);
        else
            store_and_prepare(w, layer, t, h0, h1);
    }
}

/* ---- prefill ------------------------------------------------------------ */

static void prefill_attention(struct worker *w, size_t layer,
                              const struct attn_plan *plan, bool out16)
{
    const struct pass *p = w->p;
    size_t n_heads = config_of(w, layer)->n_kv_heads, begin, end;
    size_t n_tiles = plan->n;
    size_t at_once =
        (size_t)w->n_threads < n_heads ? (size_t)w->n_threads : n_heads;
    par_split(pass_rows(p, layer), 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++)
        store_and_prepare(w, layer, t, 0, n_heads);
    pass_barrier(w, PART_ATTENTION);
    while (par_next(w->team, n_tiles * n_heads, 1, &begin, &end)) {
        /* a head's keys stay in a thread's cache while it goes through its
         * tiles; late ones see the most keys: they go first */
        size_t i = begin % (n_tiles * at_once),
               group = begin / (n_tiles * at_once);
        size_t left = n_heads - group * at_once;
        size_t width = left < at_once ? left : at_once;
        const struct attn_tile *tile = &plan->tiles[n_tiles - 1 - i / width];
        size_t h = group * at_once + i % width;
        struct task a = task_of(w, tile, layer, h, h + 1);
        attend(w, &a, out16);
    }
}

void pass_keep_rows(const struct pass *p)
{
    size_t d = p->m->config.d_model, ld = scratch_ld(d);
    for (size_t t = 0; t < p->n && p->n_kept < p->n; t++)
        if (p->s->kept[t] != UINT32_MAX && p->s->kept[t] != t)
            memcpy(p->s->x + p->s->kept[t] * ld, p->s->x + t * ld,
                   d * sizeof *p->s->x);
}

static const struct attn_plan *plan_of(const struct pass *p, size_t layer)
{
    const struct config *c = &p->m->config;
    const struct attn_plan *plan = p->s->plans;
    bool kept = layer > p->m->last_stored;
    if (layer == p->m->last_stored)
        return &p->s->last;
    while (plan->n_kv_heads != c->layers[layer].n_kv_heads ||
           plan->kept != kept)
        plan++;
    return plan;
}

/* From s->q, s->k, s->v: norms and RoPE, keys and values into the caches, and
 * attention. Returns its results. */
static struct input attend_all(struct worker *w, size_t layer, size_t n)
{
    const struct pass *p = w->p;
    const struct matrix *o_proj = &p->m->layers[layer].attn.o_proj;
    bool out16 = pass_mixes_bf16(p, o_proj, n);
    (p->single ? decode_attention
               : prefill_attention)(w, layer, plan_of(p, layer), out16);
    return pass_mixed(w, layer, o_proj, n, out16);
}

bool pass_mixes_bf16(const struct pass *p, const struct matrix *out, size_t n)
{
    struct act_types need = pass_act_types(p, &out, 1, n);
    return need.set == 1u << ACT_BF16 && !need.order;
}

struct input pass_mixed(struct worker *w, size_t layer,
                        const struct matrix *out, size_t n, bool is_bf16)
{
    const struct pass *p = w->p;
    struct scratch *s = p->s;
    if (layer == p->m->last_stored && w->tid == 0)
        pass_keep_rows(p);
    pass_ahead_all(w, &out, 1, n);
    pass_barrier(w, PART_ATTENTION);
    return n && !is_bf16 ? pass_round(w, s->attn, s->attn16, &s->attn8, n, out)
                         : (struct input){.bf16 = s->attn16};
}

struct input pass_attention(struct worker *w, size_t layer, const float *norm,
                            size_t n)
{
    const struct pass *p = w->p;
    const struct attention *a = &p->m->layers[layer].attn;
    struct scratch *s = p->s;
    const struct matrix *qkv[LAYER_INPUTS];
    const size_t n_qkv = layer_inputs(&p->m->layers[layer], qkv);
    const size_t q_ld = scratch_ld(a->q_proj.rows);
    const size_t kv_ld = scratch_ld(a->k_proj.rows);
    const struct product products[] = {
        {&a->q_proj, a->q_bias, s->q, q_ld, false},
        {&a->k_proj, a->k_bias, s->k, kv_ld, false},
        {&a->v_proj, a->v_bias, s->v, kv_ld, false}};
    size_t n_in = pass_rows(p, layer);
    struct input in = pass_normalise(w, s->x, n_in, norm,
                                     pass_act_types(p, qkv, n_qkv, n_in));
    pass_lora(w, qkv, n_qkv, &in, n_in);
    pass_multiply_all(w, products, n_qkv, &in, n_in);
    if (pass_stops(w, PART_PROJECTIONS))
        return in;
    if (p->m->config.arch->blocks.qk_norm == QK_NORM_ROW)
        normalise_rows(w, layer);
    return attend_all(w, layer, n);
}

/* Tokens of a span that make a tile in layers with n_kv_heads, at least one: a
 * group may have more rows than a tile aims at. Large tiles pack keys and
 * values less often, small ones are shared out more evenly. */
static size_t tile_tokens(const struct pass *p, const struct span *span,
                          size_t n_kv_heads)
{
    size_t group = p->m->config.n_heads / n_kv_heads;
    size_t rows = scratch_packed_rows(p->m, group);
    size_t wanted = 4 * (size_t)p->s->n_threads;
    if (p->m->exact || p->single)
        return scratch_tile_groups(group);
    while (rows / 2 >= ATTN_PACKED_ROWS &&
           (span->n * group + rows - 1) / rows * n_kv_heads < wanted)
        rows /= 2;
    return rows < group ? 1 : rows / group;
}

/* Add the tiles of rows [first, last) of a span, results from row out on. */
static void add_tiles(struct attn_plan *plan, const struct pass *p, size_t span,
                      size_t first, size_t last, size_t out)
{
    if (!plan->n_kv_heads)
        return;
    size_t step = tile_tokens(p, &p->io->spans[span], plan->n_kv_heads);
    for (size_t t = first; t < last; t += step) {
        size_t end = last - t < step ? last : t + step;
        plan->tiles[plan->n++] =
            (struct attn_tile){(uint32_t)span, (uint32_t)t, (uint32_t)end,
                               (uint32_t)(out + t - first)};
    }
}

void pass_plan_attention(struct pass *p)
{
    struct scratch *s = p->s;
    size_t at = 0, kept = 0;
    s->last.n = 0;
    for (size_t k = 0; k < s->n_plans; k++)
        s->plans[k].n = 0;
    for (size_t i = 0; i < p->io->n_spans; i++) {
        const struct span *span = &p->io->spans[i];
        size_t end = at + span->n;
        size_t from = span->rows == ROWS_ALL || span->rows == ROWS_FIRST ? at
                      : span->rows == ROWS_LAST ? end - 1
                                                : end;
        size_t to = span->rows == ROWS_FIRST ? at + 1 : end;
        for (size_t k = 0; k < s->n_plans; k++) {
            struct attn_plan *plan = &s->plans[k];
            size_t first = plan->kept ? kept : at;
            size_t n = plan->kept ? to - from : span->n;
            add_tiles(plan, p, i, first, first + n, first);
        }
        add_tiles(&s->last, p, i, from, to, kept);
        for (size_t t = at; t < end; t++) {
            s->pos[t] = span->kv->n + t - at;
            s->span[t] = (uint32_t)i;
            bool keeps = t >= from && t < to;
            s->kept[t] = keeps ? (uint32_t)kept : UINT32_MAX;
            if (keeps)
                s->token[kept++] = (uint32_t)t;
        }
        at = end;
    }
    p->n_kept = kept;
}
