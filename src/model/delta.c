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

/* ---- products ------------------------------------------------------------
 */

void delta_find_columns(struct delta *l, const struct delta_config *c,
                        bool qkvz, bool ba)
{
    size_t group = group_of(c), nk = c->n_k_heads, d_k = c->d_k, d_v = c->d_v;
    size_t key = l->tiled ? 1 : group, value = l->tiled ? nk : 1;
    size_t all = 2 * (d_k + group * d_v), next = qkvz ? 1 : 2;
    if (qkvz) { /* of a key head: query, key, values, gates */
        l->q = (struct head_columns){0, 0, all, 0};
        l->k = (struct head_columns){0, d_k, all, 0};
        l->v = (struct head_columns){0, 2 * d_k, all, d_v};
        l->z = (struct head_columns){0, 2 * d_k + group * d_v, all, d_v};
    } else {
        l->q = (struct head_columns){0, 0, d_k, 0};
        l->k = (struct head_columns){0, nk * d_k, d_k, 0};
        l->v = (struct head_columns){0, 2 * nk * d_k, key * d_v, value * d_v};
        l->z = (struct head_columns){1, 0, key * d_v, value * d_v};
    }
    if (ba) { /* of a key head: all of b, all of a */
        l->b = (struct head_columns){next, 0, 2 * group, 1};
        l->a = (struct head_columns){next, group, 2 * group, 1};
    } else {
        l->b = (struct head_columns){next, 0, key, value};
        l->a = (struct head_columns){next + 1, 0, key, value};
    }
}

/* Floats from a token's results of a product to the next one's. */
static size_t row_floats(const struct unit *u, const struct head_columns *h)
{
    return scratch_ld(u->weights->inputs[h->input].rows);
}

/* The results for token t of the pass that belong to the unit's key head, or to
 * its value head i. */
static const float *head_results(const struct unit *u,
                                 const struct head_columns *h, size_t i,
                                 size_t t)
{
    return u->w->p->s->delta[h->input] + t * row_floats(u, h) + h->first +
           u->k_head * h->key + i * h->value;
}

/* Channels of the convolution that belong to one head. */
struct channels {
    const struct head_columns *columns;
    size_t head; /* for head_results */
    size_t first, n;
};

static struct channels q_channels(const struct unit *u)
{
    size_t d = u->c->d_k;
    return (struct channels){&u->weights->q, 0, u->k_head * d, d};
}

static struct channels k_channels(const struct unit *u)
{
    size_t d = u->c->d_k;
    return (struct channels){&u->weights->k, 0,
                             (u->c->n_k_heads + u->k_head) * d, d};
}

static struct channels v_channels(const struct unit *u, size_t i)
{
    size_t before = 2 * u->c->n_k_heads * u->c->d_k, d = u->c->d_v;
    return (struct channels){&u->weights->v, i, before + v_head(u, i) * d, d};
}

/* ---- rows before the convolution ----------------------------------------- */

/* The channels of the position `at` - (conv - 1): of this pass, of the block's
 * log, or of those before the block. `at` >= the block's start. */
static const float *channels_before(const struct unit *u, const struct run *r,
                                    size_t at, const struct channels *c)
{
    const struct kv_cache *kv = u->span->kv;
    size_t reach = u->c->conv - 1, start = r->block * DELTA_BLOCK;
    size_t channels = delta_channels(u->c);
    if (at >= kv->n + reach)
        return head_results(u, c->columns, c->head,
                            u->first + at - reach - kv->n);
    if (at >= start + reach)
        return state_qkv(kv, r->block, u->layer) +
               (at - start - reach) * channels + c->first;
    return state_tail(kv, r->block, u->layer) + (at - start) * channels +
           c->first;
}

/* Convolution and SiLU of a head's channels for the run's tokens: out f32
 * [tokens, c.n]. */
static void convolve(const struct unit *u, const struct run *r,
                     struct channels c, float *out)
{
    const float *rows[2 * DELTA_BLOCK];
    size_t tokens = run_tokens(r), taps = u->c->conv;
    size_t at = r->block * DELTA_BLOCK + r->from;
    for (size_t i = 0; i < tokens + taps - 1; i++)
        rows[i] = channels_before(u, r, at + i, &c);
    u->w->k->conv_silu(out, c.n, rows, u->weights->conv + c.first,
                       delta_channels(u->c), c.n, taps, tokens);
}

/* Keep the run's rows of a head's channels for later passes: in the block's
 * log, and before the next block. */
static void keep_channels(const struct unit *u, const struct run *r,
                          struct channels c)
{
    const struct kv_cache *kv = u->span->kv;
    size_t channels = delta_channels(u->c), reach = u->c->conv - 1;
    size_t start = r->block * DELTA_BLOCK, last = kv->n + u->span->n;
    /* the blocks that a sequence of `last` positions can go back to */
    bool logged = r->block + 1 >= last / DELTA_BLOCK;
    float *log = state_qkv(kv, r->block, u->layer) + c.first;
    for (size_t i = r->from; logged && i < r->to; i++)
        memcpy(log + i * channels, channels_before(u, r, start + i + reach, &c),
               c.n * sizeof *log);
    if (r->to < DELTA_BLOCK)
        return;
    float *tail = state_tail(kv, r->block + 1, u->layer) + c.first;
    for (size_t i = 0; i < reach; i++)
        memcpy(tail + i * channels,
               channels_before(u, r, start + DELTA_BLOCK + i, &c),
               c.n * sizeof *tail);
}

/* Fetch `width` results of a head for tokens [token, token + n) of the span
 * ahead. The part of one head is a short piece of a long row, which the
 * hardware does not fetch by itself. Always inline: gcc takes a function that
 * only fetches for one without effect. */
static inline __attribute__((always_inline)) void
fetch(const struct unit *u, const struct head_columns *h, size_t head,
      size_t token, size_t n, size_t width)
{
    size_t left = u->span->n - token < n ? u->span->n - token : n;
    size_t ld = row_floats(u, h);
    const float *row = head_results(u, h, head, u->first + token);
    for (size_t t = 0; t < left; t++, row += ld)
        for (size_t i = 0; i < width; i += 64 / sizeof *row)
            __builtin_prefetch(row + i, 0, 2); /* to the second level */
}

/* Fetch a head's channels of the block that begins with a token. */
static inline __attribute__((always_inline)) void
fetch_channels(const struct unit *u, size_t token, struct channels c)
{
    if (token < u->span->n)
        fetch(u, c.columns, c.head, token, DELTA_BLOCK, c.n);
}

/* ---- the state ------------------------------------------------------------
 */

/* A sequence starts with zeros. */
static void clear_channels(const struct unit *u, struct channels c)
{
    float *tail = state_tail(u->span->kv, 0, u->layer) + c.first;
    for (size_t i = 0; i + 1 < u->c->conv; i++)
        memset(tail + i * delta_channels(u->c), 0, c.n * sizeof *tail);
}

static void clear(const struct unit *u)
{
    size_t d_k = u->c->d_k, d_v = u->c->d_v;
    if (u->owns_keys) {
        clear_channels(u, q_channels(u));
        clear_channels(u, k_channels(u));
    }
    for (size_t i = u->begin; i < u->end; i++) {
        clear_channels(u, v_channels(u, i));
        memset(state_s(u->span->kv, 0, u->layer, v_head(u, i)), 0,
               d_k * d_v * sizeof(float));
    }
}

/* Copy a head's channels of the rows before block b to the snapshot of the page
 * that ends there. */
static void snapshot_channels(const struct unit *u, size_t b, struct channels c)
{
    const struct kv_cache *kv = u->span->kv;
    size_t channels = delta_channels(u->c);
    const float *tail = state_tail(kv, b, u->layer) + c.first;
    float *to =
        state_snapshot_tail(kv, b * DELTA_BLOCK / KV_BLOCK - 1, u->layer) +
        c.first;
    for (size_t i = 0; i + 1 < u->c->conv; i++)
        memcpy(to + i * channels, tail + i * channels, c.n * sizeof *to);
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
        snapshot_channels(u, b, q_channels(u));
        snapshot_channels(u, b, k_channels(u));
    }
    for (size_t i = u->begin; i < u->end; i++) {
        size_t h = v_head(u, i);
        snapshot_channels(u, b, v_channels(u, i));
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
    convolve(u, r, q_channels(u), own->q);
    convolve(u, r, k_channels(u), keys);
    fetch_channels(u, r->token + n, q_channels(u));
    fetch_channels(u, r->token + n, k_channels(u));
    k->l2norm(own->q, own->q, n, d, L2_EPS, 1 / sqrtf((float)d));
    k->l2norm(keys, keys, n, d, L2_EPS, 1);
    multiply_keys(u, r, own->kk, keys);
    multiply_keys(u, r, own->qk, own->q);
    if (u->owns_keys) {
        keep_channels(u, r, q_channels(u));
        keep_channels(u, r, k_channels(u));
    }
}

/* torch.nn.functional.softplus */
static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* Decay and beta of value head i of the key head: g [DELTA_BLOCK] of the block,
 * beta of the run. */
static void prepare_gates(const struct unit *u, const struct run *r, size_t i,
                          float *g, float *beta)
{
    const struct delta *d = u->weights;
    size_t h = v_head(u, i);
    for (size_t j = 0; j < run_tokens(r); j++) {
        size_t t = u->first + r->token + j;
        g[r->from + j] = d->decay[h] * softplus(*head_results(u, &d->a, i, t) +
                                                d->dt_bias[h]);
        beta[j] = 1 / (1 + expf(-*head_results(u, &d->b, i, t)));
    }
}

/* Normalise the results o of value head v of the key head, gate them, and store
 * the rows of the tokens that the layer computes to the end. */
static void finish(const struct unit *u, const struct run *r, size_t v,
                   float *o, bool out16)
{
    const struct pass *p = u->w->p;
    const struct kernels *k = u->w->k;
    size_t d = u->c->d_v, cols = u->c->n_v_heads * d, n = run_tokens(r);
    size_t h = v_head(u, v);
    bool last = u->layer == p->m->last_stored;
    k->rmsnorm(o, o, u->weights->norm, n, d, (float)p->m->config.rms_eps);
    for (size_t i = 0; i < n; i++, o += d) {
        size_t t = u->first + r->token + i, to = last ? p->s->kept[t] : t;
        const float *z = head_results(u, &u->weights->z, v, t);
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
    prepare_gates(u, r, i, g, beta);
    convolve(u, r, v_channels(u, i), own->v);
    fetch(u, &u->weights->z, i, r->token, run_tokens(r), u->c->d_v);
    u->w->k->delta_rows(&head, own->work);
    fetch_channels(u, r->token + run_tokens(r), v_channels(u, i));
    keep_channels(u, r, v_channels(u, i));
    if (r->to == DELTA_BLOCK)
        u->w->k->delta_state(state_s(kv, r->block + 1, u->layer, h), &head);
    finish(u, r, i, own->o, out16);
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
    struct product products[DELTA_INPUTS];
    for (size_t i = 0; i < n_ws; i++)
        products[i] = (struct product){ws[i], NULL, s->delta[i],
                                       scratch_ld(ws[i]->rows), false};
    struct input in =
        pass_normalise(w, s->x, p->n, norm, pass_act_types(p, ws, n_ws, p->n));
    pass_lora(w, ws, n_ws, &in, p->n);
    pass_multiply_all(w, products, n_ws, &in, p->n);
    if (pass_stops(w, PART_PROJECTIONS))
        return in;
    bool out16 = pass_mixes_bf16(p, out, n);
    do_units(w, layer, out16);
    return pass_mixed(w, layer, out, n, out16);
}
