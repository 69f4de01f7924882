/* Gated DeltaNet layers of a forward pass (Yang, Kautz and Hatamizadeh 2024,
 * arXiv 2412.06464; Qwen3_5GatedDeltaNet in transformers): a causal convolution
 * over queries, keys and values, then a state for each value head that every
 * token decays and updates.
 *
 * Positions are computed by blocks of DELTA_BLOCK, which start at multiples of
 * it. The cache holds the state at a block's start and a log of the block's
 * tokens (state.h). A token's result is the product of that state with its
 * query plus a sum over the log, so the state itself is written once for each
 * block, and going back within a block costs nothing. Decode and prefill do the
 * same sums in the same order, in passes of any length. */
#include <math.h>
#include <string.h>

#include "model/pass.h"
#include "model/state.h"

/* transformers' l2norm */
#define L2_EPS 1e-6f

/* The share of a thread: some value heads of one key head, in one span. */
struct unit {
    const struct worker *w;
    const struct span *span;
    const struct delta *weights;
    const struct delta_config *c;
    size_t layer;
    size_t first; /* the span's first token in the pass */
    size_t k_head;
    size_t begin, end; /* value heads, counted within the key head's */
    bool owns_keys;    /* this unit stores the key head's own results */
};

/* Tokens of a unit that are in one block. */
struct run {
    size_t block;
    size_t from, to; /* positions in the block */
    size_t token;    /* the first one's index in the span */
    float *k;        /* [DELTA_BLOCK, d_k] keys of the block */
};

static size_t run_tokens(const struct run *r)
{
    return r->to - r->from;
}

static size_t group_of(const struct delta_config *c)
{
    return c->n_v_heads / c->n_k_heads;
}

/* Value head i of the unit's key head. */
static size_t v_head(const struct unit *u, size_t i)
{
    return u->weights->tiled ? i * u->c->n_k_heads + u->k_head
                             : u->k_head * group_of(u->c) + i;
}

/* First channels of a key head's queries and keys, and of a value head. */
static size_t q_channel(const struct unit *u)
{
    return u->k_head * u->c->d_k;
}

static size_t k_channel(const struct unit *u)
{
    return (u->c->n_k_heads + u->k_head) * u->c->d_k;
}

static size_t v_channel(const struct unit *u, size_t i)
{
    return 2 * u->c->n_k_heads * u->c->d_k + v_head(u, i) * u->c->d_v;
}

/* ---- rows before the convolution ----------------------------------------- */

/* The row of the position `at` - (conv - 1): of this pass, of the block's log,
 * or of those before the block. `at` >= the block's start. */
static const float *row_before(const struct unit *u, const struct run *r,
                               size_t at)
{
    const struct kv_cache *kv = u->span->kv;
    size_t reach = u->c->conv - 1, start = r->block * DELTA_BLOCK;
    size_t channels = delta_channels(u->c);
    if (at >= kv->n + reach) {
        size_t t = u->first + at - reach - kv->n;
        return u->w->p->s->qkv + t * scratch_ld(channels);
    }
    if (at >= start + reach)
        return state_qkv(kv, r->block, u->layer) +
               (at - start - reach) * channels;
    return state_tail(kv, r->block, u->layer) + (at - start) * channels;
}

/* Convolution and SiLU of channels [channel, channel + n) for the run's tokens:
 * out f32 [tokens, n]. */
static void convolve(const struct unit *u, const struct run *r, size_t channel,
                     size_t n, float *out)
{
    const float *rows[2 * DELTA_BLOCK];
    size_t tokens = run_tokens(r), taps = u->c->conv;
    size_t at = r->block * DELTA_BLOCK + r->from;
    for (size_t i = 0; i < tokens + taps - 1; i++)
        rows[i] = row_before(u, r, at + i) + channel;
    u->w->k->conv_silu(out, n, rows, u->weights->conv + channel,
                       delta_channels(u->c), n, taps, tokens);
}

/* Keep the run's rows of channels [channel, channel + n) for later passes: in
 * the block's log, and before the next block. */
static void keep_channels(const struct unit *u, const struct run *r,
                          size_t channel, size_t n)
{
    const struct kv_cache *kv = u->span->kv;
    size_t channels = delta_channels(u->c), reach = u->c->conv - 1;
    size_t start = r->block * DELTA_BLOCK, last = kv->n + u->span->n;
    /* the blocks that a sequence of `last` positions can go back to */
    bool logged = r->block + 1 >= last / DELTA_BLOCK;
    float *log = state_qkv(kv, r->block, u->layer) + channel;
    for (size_t i = r->from; logged && i < r->to; i++)
        memcpy(log + i * channels,
               row_before(u, r, start + i + reach) + channel, n * sizeof *log);
    if (r->to < DELTA_BLOCK)
        return;
    float *tail = state_tail(kv, r->block + 1, u->layer) + channel;
    for (size_t i = 0; i < reach; i++)
        memcpy(tail + i * channels,
               row_before(u, r, start + DELTA_BLOCK + i) + channel,
               n * sizeof *tail);
}

/* Fetch a part of the rows of tokens [token, token + n) of the span ahead. The
 * part of one head is a short piece of a long row, which the hardware does not
 * fetch by itself. x: rows of the pass, ld apart. Always inline: gcc takes a
 * function that only fetches for one without effect. */
static inline __attribute__((always_inline)) void
fetch(const struct unit *u, const float *x, size_t ld, size_t token, size_t n,
      size_t column, size_t width)
{
    size_t left = u->span->n - token < n ? u->span->n - token : n;
    const float *row = x + (u->first + token) * ld + column;
    for (size_t t = 0; t < left; t++, row += ld)
        for (size_t i = 0; i < width; i += 64 / sizeof *row)
            __builtin_prefetch(row + i, 0, 2); /* to the second level */
}

/* Fetch the channels of the block that begins with a token. */
static inline __attribute__((always_inline)) void
fetch_channels(const struct unit *u, size_t token, size_t channel, size_t n)
{
    if (token < u->span->n)
        fetch(u, u->w->p->s->qkv, scratch_ld(delta_channels(u->c)), token,
              DELTA_BLOCK, channel, n);
}

/* ---- the state ------------------------------------------------------------
 */

/* A sequence starts with zeros. */
static void clear_channels(const struct unit *u, size_t channel, size_t n)
{
    float *tail = state_tail(u->span->kv, 0, u->layer) + channel;
    for (size_t i = 0; i + 1 < u->c->conv; i++)
        memset(tail + i * delta_channels(u->c), 0, n * sizeof *tail);
}

static void clear(const struct unit *u)
{
    size_t d_k = u->c->d_k, d_v = u->c->d_v;
    if (u->owns_keys) {
        clear_channels(u, q_channel(u), d_k);
        clear_channels(u, k_channel(u), d_k);
    }
    for (size_t i = u->begin; i < u->end; i++) {
        clear_channels(u, v_channel(u, i), d_v);
        memset(state_s(u->span->kv, 0, u->layer, v_head(u, i)), 0,
               d_k * d_v * sizeof(float));
    }
}

/* Copy channels [channel, channel + n) of the rows before block b to the
 * snapshot of the page that ends there. */
static void snapshot_channels(const struct unit *u, size_t b, size_t channel,
                              size_t n)
{
    const struct kv_cache *kv = u->span->kv;
    size_t channels = delta_channels(u->c);
    const float *tail = state_tail(kv, b, u->layer) + channel;
    float *to =
        state_snapshot_tail(kv, b * DELTA_BLOCK / KV_BLOCK - 1, u->layer) +
        channel;
    for (size_t i = 0; i + 1 < u->c->conv; i++)
        memcpy(to + i * channels, tail + i * channels, n * sizeof *to);
}

/* Copy the unit's part of the state at the start of block b to the page that
 * ends there, if that page carries a snapshot. */
static void snapshot(const struct unit *u, size_t b)
{
    const struct kv_cache *kv = u->span->kv;
    size_t d_k = u->c->d_k, d_v = u->c->d_v;
    size_t page = b * DELTA_BLOCK / KV_BLOCK - 1;
    if (b * DELTA_BLOCK % KV_BLOCK ||
        !state_snapshot_s(kv, page, u->layer, v_head(u, u->begin)))
        return;
    if (u->owns_keys) {
        snapshot_channels(u, b, q_channel(u), d_k);
        snapshot_channels(u, b, k_channel(u), d_k);
    }
    for (size_t i = u->begin; i < u->end; i++) {
        size_t h = v_head(u, i);
        snapshot_channels(u, b, v_channel(u, i), d_v);
        memcpy(state_snapshot_s(kv, page, u->layer, h),
               state_s(kv, b, u->layer, h), d_k * d_v * sizeof(float));
    }
}

/* ---- a run of tokens ------------------------------------------------------
 */

/* Products of rows x [tokens, d_k] of the run with the keys up to each row's
 * own position, to out [tokens, DELTA_BLOCK]. */
static void multiply_keys(const struct unit *u, const struct run *r, float *out,
                          const float *x)
{
    enum { STEP = 9 }; /* a multiple of the tokens that the kernel tiles */
    size_t d = u->c->d_k, n = run_tokens(r);
    for (size_t t = 0; t < n; t += STEP) {
        size_t m = n - t < STEP ? n - t : STEP;
        u->w->k->matmul_f32[DT_F32](out + t * DELTA_BLOCK, DELTA_BLOCK, r->k, d,
                                    x + t * d, d, r->from + t + m, d, m,
                                    u->w->own->work);
    }
}

/* Queries and keys of the run, and their products with the keys of the
 * block. */
static void prepare_keys(const struct unit *u, struct run *r)
{
    const struct kernels *k = u->w->k;
    struct delta_scratch *own = &u->w->own->delta;
    size_t d = u->c->d_k, n = run_tokens(r);
    float *log = state_k(u->span->kv, r->block, u->layer, u->k_head);
    r->k = log;
    if (!u->owns_keys) {
        r->k = own->k;
        memcpy(r->k, log, r->from * d * sizeof *r->k);
    }
    float *keys = r->k + r->from * d;
    convolve(u, r, q_channel(u), d, own->q);
    convolve(u, r, k_channel(u), d, keys);
    fetch_channels(u, r->token + n, q_channel(u), d);
    fetch_channels(u, r->token + n, k_channel(u), d);
    k->l2norm(own->q, own->q, n, d, L2_EPS, 1 / sqrtf((float)d));
    k->l2norm(keys, keys, n, d, L2_EPS, 1);
    multiply_keys(u, r, own->kk, keys);
    multiply_keys(u, r, own->qk, own->q);
    if (u->owns_keys) {
        keep_channels(u, r, q_channel(u), d);
        keep_channels(u, r, k_channel(u), d);
    }
}

/* torch.nn.functional.softplus */
static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* Decay and beta of value head h: g [DELTA_BLOCK] of the block, beta of the
 * run. */
static void prepare_gates(const struct unit *u, const struct run *r, size_t h,
                          float *g, float *beta)
{
    const struct scratch *s = u->w->p->s;
    size_t ld = scratch_ld(u->c->n_v_heads);
    for (size_t i = r->from; i < r->to; i++) {
        size_t row = (u->first + r->token + i - r->from) * ld + h;
        g[i] = u->weights->decay[h] *
               softplus(s->delta_a[row] + u->weights->dt_bias[h]);
        beta[i - r->from] = 1 / (1 + expf(-s->delta_b[row]));
    }
}

/* Normalise the results o of value head h, gate them, and store the rows of the
 * tokens that the layer computes to the end. */
static void finish(const struct unit *u, const struct run *r, size_t h,
                   float *o, bool out16)
{
    const struct pass *p = u->w->p;
    const struct kernels *k = u->w->k;
    size_t d = u->c->d_v, cols = u->c->n_v_heads * d, n = run_tokens(r);
    bool last = u->layer + 1 == p->m->config.n_layers;
    k->rmsnorm(o, o, u->weights->norm, n, d, (float)p->m->config.rms_eps);
    for (size_t i = 0; i < n; i++, o += d) {
        size_t t = u->first + r->token + i, to = last ? p->s->kept[t] : t;
        const float *z = p->s->delta_z + t * scratch_ld(cols) + h * d;
        if (to == UINT32_MAX)
            continue;
        if (out16) {
            k->swiglu(o, z, o, d);
            k->from_f32[DT_BF16](
                p->s->attn16 + to * gemm_bf16_ldx(cols) + h * d, o, d);
        } else {
            k->swiglu(p->s->attn + to * scratch_ld(cols) + h * d, z, o, d);
        }
    }
}

/* Value head i of the key head. */
static void do_head(const struct unit *u, const struct run *r, size_t i,
                    bool out16)
{
    const struct kv_cache *kv = u->span->kv;
    const struct delta_scratch *own = &u->w->own->delta;
    size_t h = v_head(u, i);
    float *g = state_g(kv, r->block, u->layer, h), beta[DELTA_BLOCK];
    struct delta_head head = {
        .d_k = u->c->d_k,
        .d_v = u->c->d_v,
        .from = r->from,
        .to = r->to,
        .s = state_s(kv, r->block, u->layer, h),
        .k = r->k,
        .q = own->q,
        .kk = own->kk,
        .qk = own->qk,
        .v = own->v,
        .g = g,
        .beta = beta,
        .u = state_u(kv, r->block, u->layer, h),
        .o = own->o,
    };
    prepare_gates(u, r, h, g, beta);
    convolve(u, r, v_channel(u, i), u->c->d_v, own->v);
    fetch(u, u->w->p->s->delta_z, scratch_ld(u->c->n_v_heads * u->c->d_v),
          r->token, run_tokens(r), h * u->c->d_v, u->c->d_v);
    u->w->k->delta_rows(&head, own->work);
    fetch_channels(u, r->token + run_tokens(r), v_channel(u, i), u->c->d_v);
    keep_channels(u, r, v_channel(u, i), u->c->d_v);
    if (r->to == DELTA_BLOCK)
        u->w->k->delta_state(state_s(kv, r->block + 1, u->layer, h), &head);
    finish(u, r, h, own->o, out16);
}

static void do_unit(const struct unit *u, bool out16)
{
    size_t n = u->span->n, pos = u->span->kv->n;
    if (pos == 0)
        clear(u);
    for (size_t t = 0; t < n;) {
        struct run r = {.block = (pos + t) / DELTA_BLOCK,
                        .from = (pos + t) % DELTA_BLOCK,
                        .token = t};
        size_t left = DELTA_BLOCK - r.from;
        r.to = r.from + (n - t < left ? n - t : left);
        prepare_keys(u, &r);
        for (size_t i = u->begin; i < u->end; i++)
            do_head(u, &r, i, out16);
        if (r.to == DELTA_BLOCK)
            snapshot(u, r.block + 1);
        t += run_tokens(&r);
    }
}

/* ---- the layer ------------------------------------------------------------
 */

/* Parts into which the value heads of a key head are split, where key heads are
 * too few for all threads. Several units may read what belongs to a key head
 * only in passes in which its owner does not overwrite what others read: each
 * sequence goes on by one token. */
static size_t parts_of(const struct worker *w, const struct delta_config *c)
{
    const struct pass_io *io = w->p->io;
    size_t units = io->n_spans * c->n_k_heads;
    size_t wanted = (2 * (size_t)w->n_threads + units - 1) / units;
    for (size_t i = 0; i < io->n_spans; i++)
        if (io->spans[i].n > 1 || io->spans[i].kv->n == 0)
            return 1;
    return wanted < group_of(c) ? wanted : group_of(c);
}

/* Unit i of the units of all spans. */
static struct unit unit_at(const struct worker *w, size_t layer, size_t i,
                           size_t parts)
{
    const struct pass *p = w->p;
    const struct delta_config *c = &p->m->config.delta;
    size_t each = c->n_k_heads * parts, span = i / each, part = i % parts;
    struct unit u = {.w = w,
                     .span = &p->io->spans[span],
                     .weights = &p->m->layers[layer].delta,
                     .c = c,
                     .layer = layer,
                     .k_head = i % each / parts,
                     .begin = part * group_of(c) / parts,
                     .end = (part + 1) * group_of(c) / parts,
                     .owns_keys = part == 0};
    for (size_t j = 0; j < span; j++)
        u.first += p->io->spans[j].n;
    return u;
}

static void do_units(const struct worker *w, size_t layer, bool out16)
{
    const struct delta_config *c = &w->p->m->config.delta;
    size_t parts = parts_of(w, c), begin, end;
    size_t n = w->p->io->n_spans * c->n_k_heads * parts;
    if (w->p->single) {
        /* equal work; a thread finds its states in its core's cache */
        par_split(n, 1, w->tid, w->n_threads, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            struct unit u = unit_at(w, layer, i, parts);
            do_unit(&u, out16);
        }
        return;
    }
    while (par_next(w->team, n, 1, &begin, &end)) {
        struct unit u = unit_at(w, layer, begin, parts);
        do_unit(&u, out16);
    }
}

struct input pass_delta(struct worker *w, size_t layer, const float *norm,
                        size_t n)
{
    const struct pass *p = w->p;
    const struct delta *d = &p->m->layers[layer].delta;
    const struct matrix *ws[LAYER_INPUTS];
    const size_t n_ws = layer_inputs(&p->m->layers[layer], ws);
    const struct matrix *const out = &d->out;
    struct scratch *s = p->s;
    const struct product products[] = {
        {ws[0], NULL, s->qkv, scratch_ld(d->qkv.rows), false},
        {ws[1], NULL, s->delta_z, scratch_ld(d->z.rows), false},
        {ws[2], NULL, s->delta_b, scratch_ld(d->b.rows), false},
        {ws[3], NULL, s->delta_a, scratch_ld(d->a.rows), false}};
    struct input in =
        pass_normalise(w, s->x, p->n, norm, pass_act_types(p, ws, n_ws, p->n));
    pass_multiply_all(w, products, n_ws, &in, p->n);
    if (pass_stops(w, PART_PROJECTIONS))
        return in;
    bool out16 = pass_act_type(p, out, n) == ACT_BF16;
    do_units(w, layer, out16);
    if (layer + 1 == p->m->config.n_layers && w->tid == 0)
        pass_keep_rows(p);
    pass_ahead_all(w, &out, 1, n);
    pass_barrier(w, PART_ATTENTION);
    if (n && !out16)
        return pass_round(w, s->attn, s->attn16, &s->attn8, n, out);
    return (struct input){.bf16 = s->attn16};
}
