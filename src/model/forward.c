/* The forward pass: embedding, layers, head. The family's functions compute the
 * layers.
 *
 * A pass takes tokens of any number of sequences, of different numbers each. A
 * product treats all tokens as rows of one matrix; attention uses the cache of
 * each token's sequence. It is one parallel region in which every thread walks
 * all layers and the team meets at barriers. Work is split so that no value's
 * order of sums depends on the number of threads. */
#include <math.h>
#include <string.h>

#include "base/flag.h"
#include "model/pass.h"

/* Passes of fewer tokens are begun by one thread: that takes no longer than a
 * barrier. */
enum { SHARED_TOKENS = 64 };

bool pass_stops(struct worker *w, enum part part)
{
    const struct pass_io *io = w->p->io;
    if (w->tid == 0 && (flag_is_set(io->interrupt) ||
                        (io->deadline_ms > 0 && clock_ms() >= io->deadline_ms)))
        *w->p->stop = true;
    pass_barrier(w, part);
    return w->stopped = *w->p->stop;
}

void pass_ahead_layer(struct worker *w, size_t i)
{
    const struct model *m = w->p->m;
    const struct matrix *const head[] = {&m->head};
    if (i < m->config.n_layers)
        m->config.arch->ahead(w, i);
    else if (w->p->io->logits)
        pass_ahead_all(w, head, 1, w->p->n_kept);
}

/* Cap the logits that other threads have written, too. */
static void cap_logits(struct worker *w)
{
    const struct pass *p = w->p;
    size_t begin, end;
    par_split(p->n_kept * p->m->head.rows, 16, w->tid, w->n_threads, &begin,
              &end);
    w->k->cap(p->io->logits + begin, p->m->config.logit_cap, end - begin);
    pass_mark(w, PART_HEAD);
}

static void write_logits(struct worker *w)
{
    const struct pass *p = w->p;
    const struct model *m = p->m;
    const struct matrix *head = &m->head;
    size_t d = m->config.d_model, begin, end;
    if (p->io->hidden) {
        par_split(p->n_kept, 1, w->tid, w->n_threads, &begin, &end);
        for (size_t t = begin; t < end; t++)
            pass_norm(w, p->io->hidden + t * d, p->s->x + t * scratch_ld(d),
                      m->norm);
        pass_mark(w, PART_NORMS);
    }
    if (!p->io->logits && !p->io->on_input)
        return;
    struct input xn = pass_normalise(w, p->s->x, p->n_kept, m->head_norm,
                                     pass_act_types(p, &head, 1, p->n_kept));
    if (!p->io->logits) {
        pass_observe(w, head, &xn, NULL, p->n_kept);
        return;
    }
    struct product product = {
        .w = head, .out = p->io->logits, .ld = head->rows};
    pass_multiply_all(w, &product, 1, &xn, p->n_kept);
    bool caps = m->config.logit_cap > 0;
    if (p->io->ms || caps)
        pass_barrier(w, PART_HEAD); /* to measure how long threads wait */
    if (caps)
        cap_logits(w);
}

/* Add a row of a table to x. tmp [cols] */
static void add_row(const struct kernels *k, float *x,
                    const struct matrix *table, size_t row, float *tmp)
{
    table->ops->to_f32(k, tmp, table, row, 1);
    k->add(x, tmp, table->cols);
}

/* Write the embedding of token j of a span to x: the vocabulary's, and what an
 * encoder adds to it. tmp [d_model] */
static void embed(const struct pass *p, const struct span *span, size_t j,
                  float *x, float *tmp)
{
    const struct model *m = p->m;
    const struct matrix *w = &m->embed, *types = &m->types;
    float scale = m->config.embed_scale;
    bool second = types->rows > 1 && span->n_type0 && j >= span->n_type0;
    w->ops->to_f32(m->k, x, w, (size_t)span->tokens[j], 1);
    if (scale != 1)
        m->k->scale(x, scale, w->cols);
    if (m->positions.rows)
        add_row(m->k, x, &m->positions, span->kv->n + j, tmp);
    if (types->rows)
        add_row(m->k, x, types, second, tmp);
    if (m->embed_norm)
        m->normalise(x, x, m->embed_norm, 1, w->cols,
                     (float)m->config.rms_eps);
}

/* The angles of token t, in float32 as transformers has them. */
static void set_angles(const struct pass *p, const struct span *span, size_t t)
{
    for (size_t i = 0; i < p->m->config.n_ropes; i++) {
        const struct rope *r = &p->m->ropes[i];
        struct angles *a = &p->s->angles[i];
        size_t half = r->n_rot / 2;
        bool is_long = span->kv->long_rope;
        const float *freq =
            is_long && r->inv_freq_long ? r->inv_freq_long : r->inv_freq;
        for (size_t k = 0; k < half; k++) {
            float angle = (float)p->s->pos[t] * freq[k];
            a->cos[t * half + k] = cosf(angle) * r->scale;
            a->sin[t * half + k] = sinf(angle) * r->scale;
        }
    }
}

/* What layers need of tokens [begin, end). tmp [d_model] */
static void begin_tokens(const struct pass *p, size_t begin, size_t end,
                         float *tmp)
{
    size_t ld = scratch_ld(p->m->config.d_model);
    for (size_t t = begin; t < end; t++) {
        const struct span *span = &p->io->spans[p->s->span[t]];
        embed(p, span, p->s->pos[t] - span->kv->n, p->s->x + t * ld, tmp);
        set_angles(p, span, t);
    }
}

static void pass_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct pass *p = ctx;
    struct worker w = {.p = p,
                       .k = p->m->k,
                       .team = team,
                       .own = &p->s->threads[tid],
                       .tid = tid,
                       .n_threads = n_threads,
                       .since = p->io->ms ? clock_ms() : 0};
    const struct config *c = &p->m->config;
    if (p->n >= SHARED_TOKENS) {
        size_t begin, stop;
        par_split(p->n, 1, tid, n_threads, &begin, &stop);
        begin_tokens(p, begin, stop, w.own->xn);
        pass_barrier(&w, PART_EMBED);
    }
    pass_ple_rows(&w);
    size_t last = p->m->last_stored, end = p->n_kept ? c->n_layers : last + 1;
    for (size_t i = 0; i < end; i++) {
        c->arch->layer(&w, i, i < last ? p->n : p->n_kept);
        /* not *p->stop: thread 0 may be a layer ahead and have set it since */
        if (w.stopped)
            return;
        if (tid == 0 && p->io->on_layer && i + 1 < c->n_layers)
            p->io->on_layer(p->io->on_layer_ctx, i + 1, c->n_layers);
    }
    if (p->n_kept)
        write_logits(&w);
}

/* Choose the types of the operands of products and attention. */
static void choose_types(struct pass *p)
{
    const struct model *m = p->m;
    p->products = model_products(m, p->n, p->single);
    if (p->io->on_input) {
        p->products = m->exact || !m->k->tune.gemm_f32 ? PRODUCTS_SKINNY
                                                       : PRODUCTS_GEMM_F32;
        return;
    }
    p->bf16 = p->products == PRODUCTS_BF16;
    p->pairs = !m->exact && model_is_precise(m, p->n, p->single) &&
               p->n >= PASS_PAIRS_MIN_TOKENS && m->k->tune.bf16_pairs &&
               m->dense_bf16;
    p->pairs8 = !m->exact && p->n <= m->pairs8_tokens;
    p->attn16 =
        p->s->qr16 && !p->single && !p->pairs8 && (p->bf16 || m->any_quantized);
}

int model_forward(const struct model *m, struct scratch *s,
                  const struct pass_io *io)
{
    bool stop = false;
    struct pass p = {.m = m, .s = s, .io = io, .single = true, .stop = &stop};
    double start = io->ms ? clock_ms() : 0;
    for (size_t i = 0; i < io->n_spans; i++) {
        p.n += io->spans[i].n;
        p.single = p.single && io->spans[i].n == 1;
    }
    choose_types(&p);
    pass_plan_attention(&p);
    pass_plan_lora(&p);
    if (p.n < SHARED_TOKENS)
        begin_tokens(&p, 0, p.n, s->threads[0].xn);
    if (io->ms)
        io->ms[PART_EMBED] += clock_ms() - start;
    s->weight_bytes += (double)m->shared_bytes;
    par_run(m->pool, pass_body, &p);
    for (size_t i = 0; i < io->n_spans; i++)
        (stop ? kv_stop : kv_advance)(io->spans[i].kv, io->spans[i].n);
    return stop ? -1 : 0;
}
