/* Short convolutions of a forward pass (Lfm2ShortConv in transformers), a
 * recurrent layer without weights of its own for positions: with [b; c; x] =
 * in_proj(norm(h)),
 *
 *   u_t = b_t * x_t
 *   y_t = c_t * sum over j < L of w_j * u_{t - L + 1 + j}
 *
 * for each channel, and zeros before position 0. The state is the last L - 1
 * rows u. It is kept in the form of Gated DeltaNet's (state.h): the tail before
 * each block of positions, and a log of the block's rows. A row's sums have one
 * order in passes of any length. */
#include <string.h>

#include "model/pass.h"
#include "model/state.h"

/* Channels of a unit: at most CHANNELS, and whole cache lines. */
enum { CHANNELS = 512, LINE = 16 };

/* The share of a thread: some channels of one span. */
struct unit {
    const struct worker *w;
    const struct span *span;
    size_t layer;
    size_t first;    /* the span's first token in the pass */
    size_t begin, n; /* channels */
};

static const struct delta_config *shape(const struct unit *u)
{
    return &u->w->p->m->config.delta;
}

/* Rows before the one of a token that its sum has. */
static size_t reach(const struct unit *u)
{
    return shape(u)->conv - 1;
}

/* Part `part` (b, c, x) of the product for the span's token t. u_t takes the
 * place of b_t. */
static float *results(const struct unit *u, size_t t, size_t part)
{
    const struct pass *p = u->w->p;
    size_t d = shape(u)->n_short;
    return p->s->delta[0] + (u->first + t) * scratch_ld(3 * d) + part * d +
           u->begin;
}

/* The row `back` positions before the span's token t, whose own is not needed:
 * of this pass, of the block's log, or of the tail before the block. */
static const float *row_before(const struct unit *u, size_t t, size_t back)
{
    const struct kv_cache *kv = u->span->kv;
    size_t d = shape(u)->n_short, at = kv->n + t,
           block = at / DELTA_BLOCK, in_block = at % DELTA_BLOCK;
    if (back <= t)
        return results(u, t - back, 0);
    if (back <= in_block)
        return state_qkv(kv, block, u->layer) + (in_block - back) * d +
               u->begin;
    return state_tail(kv, block, u->layer) +
           (reach(u) + in_block - back) * d + u->begin;
}

/* ---- the state ------------------------------------------------------------
 */

/* A sequence starts with zeros. */
static void clear(const struct unit *u)
{
    float *tail = state_tail(u->span->kv, 0, u->layer) + u->begin;
    for (size_t i = 0; i < reach(u); i++)
        memset(tail + i * shape(u)->n_short, 0, u->n * sizeof *tail);
}

/* The rows before the block that begins after the span's token t, and their
 * copy in the snapshot of the page that ends there, if it carries one. */
static void keep_tail(const struct unit *u, size_t t)
{
    const struct kv_cache *kv = u->span->kv;
    size_t d = shape(u)->n_short, end = kv->n + t + 1;
    float *tail = state_tail(kv, end / DELTA_BLOCK, u->layer) + u->begin;
    float *copy = end % KV_BLOCK ? NULL
                                 : state_snapshot_tail(kv, end / KV_BLOCK - 1,
                                                       u->layer);
    for (size_t i = 0; i < reach(u); i++) {
        const float *row = row_before(u, t, reach(u) - 1 - i);
        memcpy(tail + i * d, row, u->n * sizeof *tail);
        if (copy)
            memcpy(copy + i * d + u->begin, row, u->n * sizeof *copy);
    }
}

/* Keep the row of the span's token t for later passes: in the log of its block,
 * if a sequence of the span's end can go back to that. */
static void keep_row(const struct unit *u, size_t t)
{
    const struct kv_cache *kv = u->span->kv;
    size_t at = kv->n + t, block = at / DELTA_BLOCK,
           last = (kv->n + u->span->n) / DELTA_BLOCK;
    float *log = state_qkv(kv, block, u->layer) +
                 at % DELTA_BLOCK * shape(u)->n_short + u->begin;
    if (block + 1 >= last)
        memcpy(log, results(u, t, 0), u->n * sizeof *log);
    if ((at + 1) % DELTA_BLOCK == 0)
        keep_tail(u, t);
}

/* ---- tokens ---------------------------------------------------------------
 */

/* The result of the span's token t, unless the layer does not compute it to the
 * end. */
static void convolve(const struct unit *u, size_t t, bool out16)
{
    const struct pass *p = u->w->p;
    const struct kernels *k = u->w->k;
    size_t d = shape(u)->n_short, taps = shape(u)->conv, token = u->first + t;
    size_t to = u->layer == p->m->last_stored ? p->s->kept[token] : token;
    const float *rows[DELTA_BLOCK];
    float y[CHANNELS];
    if (to == UINT32_MAX)
        return;
    for (size_t j = 0; j < taps; j++)
        rows[j] = row_before(u, t, taps - 1 - j);
    float *out =
        out16 ? y : p->s->attn + to * scratch_ld(d) + u->begin;
    k->conv_gated(out, d, results(u, t, 1), d, rows,
                  p->m->layers[u->layer].delta.conv + u->begin, d, u->n, taps,
                  1);
    if (out16)
        k->from_f32[DT_BF16](
            p->s->attn16 + to * gemm_bf16_ldx(d) + u->begin, y, u->n);
}

static void do_unit(const struct unit *u, bool out16)
{
    if (u->span->kv->n == 0)
        clear(u);
    for (size_t t = 0; t < u->span->n; t++) {
        u->w->k->mul(results(u, t, 0), results(u, t, 2), u->n);
        convolve(u, t, out16);
        keep_row(u, t);
    }
}

/* ---- the layer ------------------------------------------------------------
 */

static void do_units(const struct worker *w, size_t layer, bool out16)
{
    const struct pass *p = w->p;
    size_t d = p->m->config.delta.n_short, spans = p->io->n_spans, begin, end;
    size_t wanted = (2 * (size_t)w->n_threads + spans - 1) / spans;
    size_t each = (d + wanted - 1) / wanted;
    each = (each + LINE - 1) / LINE * LINE;
    each = each < CHANNELS ? each : CHANNELS;
    size_t parts = (d + each - 1) / each;
    par_split(spans * parts, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t i = 0, first = 0; i < spans; i++) {
        const struct span *span = &p->io->spans[i];
        for (size_t j = 0; j < parts; j++) {
            struct unit u = {.w = w,
                             .span = span,
                             .layer = layer,
                             .first = first,
                             .begin = j * each,
                             .n = j * each + each < d ? each : d - j * each};
            if (i * parts + j >= begin && i * parts + j < end)
                do_unit(&u, out16);
        }
        first += span->n;
    }
}

struct input pass_shortconv(struct worker *w, size_t layer, const float *norm,
                            size_t n)
{
    const struct pass *p = w->p;
    const struct delta *l = &p->m->layers[layer].delta;
    const struct matrix *in_proj = &l->inputs[0];
    struct scratch *s = p->s;
    struct product product = {in_proj, NULL, s->delta[0],
                              scratch_ld(in_proj->rows), false};
    struct input in = pass_normalise(w, s->x, p->n, norm,
                                     pass_act_types(p, &in_proj, 1, p->n));
    pass_lora(w, &in_proj, 1, &in, p->n);
    pass_multiply_all(w, &product, 1, &in, p->n);
    if (pass_stops(w, PART_PROJECTIONS))
        return in;
    bool out16 = pass_mixes_bf16(p, &l->out, n);
    do_units(w, layer, out16);
    return pass_mixed(w, layer, &l->out, n, out16);
}
