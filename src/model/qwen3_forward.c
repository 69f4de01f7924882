/* The forward pass of dense Qwen3: embedding, layers, head.
 *
 *   h = x + o_proj(attention(q_norm, k_norm, RoPE of q, k, v of norm(x)))
 *   y = h + down_proj(silu(gate_proj(norm(h))) * up_proj(norm(h)))
 *
 * A pass takes tokens of any number of sequences, ragged: products see them all
 * as rows of one matrix, attention sees each with its own cache. It is one
 * parallel region in which every thread walks all layers and the team meets at
 * barriers. Work is split so that no value's order of sums depends on the
 * number of threads. */
#include <math.h>
#include <string.h>

#include "kernel/gemm.h"
#include "model/pass.h"

static bool asked_to_stop(const struct pass_io *io)
{
    return (io->interrupt && *io->interrupt) ||
           (io->deadline_ms > 0 && clock_ms() >= io->deadline_ms);
}

/* Attention and its projections: x += o_proj(attention(norm(x))). */
static void attention_half(struct worker *w, size_t i, size_t n, bool last)
{
    const struct pass *p = w->p;
    const struct layer *l = &p->m->layers[i];
    struct scratch *s = p->s;
    const struct matrix *const qkv[] = {&l->q_proj, &l->k_proj, &l->v_proj};
    const size_t q_ld = scratch_ld(l->q_proj.rows);
    const size_t kv_ld = scratch_ld(l->k_proj.rows);
    const struct product products[] = {
        {&l->q_proj, l->q_bias, s->q, q_ld, false},
        {&l->k_proj, l->k_bias, s->k, kv_ld, false},
        {&l->v_proj, l->v_bias, s->v, kv_ld, false}};
    struct input in = pass_normalise(w, s->x, p->n, l->input_norm, qkv, 3);
    pass_multiply_all(w, products, 3, &in, p->n);
    if (w->tid == 0 && asked_to_stop(p->io))
        *p->stop = true;
    pass_barrier(w, PART_PROJECTIONS);
    if (*p->stop)
        return;
    pass_attention(w, i, last);
    if (n == 0)
        return;
    in = (struct input){.bf16 = s->attn16};
    if (!pass_in_bf16(p, &l->o_proj, n))
        in = pass_round(w, s->attn, s->attn16, &s->attn8, n, &l->o_proj);
    pass_ahead_gated(w, l, n);
    pass_multiply_residual(w, &l->o_proj, l->o_bias, &in, s->x, n);
}

/* What follows layer i: the next one's first products, or the head. */
static void ahead_of_layer(struct worker *w, size_t i)
{
    const struct pass *p = w->p;
    const struct matrix *const head[] = {&p->m->head};
    if (i + 1 < p->m->config.n_layers) {
        const struct layer *l = &p->m->layers[i + 1];
        const struct matrix *const qkv[] = {&l->q_proj, &l->k_proj, &l->v_proj};
        pass_ahead_all(w, qkv, 3, p->n);
    } else if (p->io->logits) {
        pass_ahead_all(w, head, 1, p->n_kept);
    }
}

/* x += down_proj(silu(gate_proj(norm(x))) * up_proj(norm(x))). */
static void gated_half(struct worker *w, size_t i, size_t n)
{
    const struct layer *l = &w->p->m->layers[i];
    float *x = w->p->s->x;
    const struct matrix *const both[] = {&l->gate_proj, &l->up_proj};
    struct input in = pass_normalise(w, x, n, l->post_norm, both, 2);
    in = pass_gated(w, l, &in, n);
    ahead_of_layer(w, i);
    pass_multiply_residual(w, &l->down_proj, NULL, &in, x, n);
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
            w->k->rmsnorm(p->io->hidden + t * d, p->s->x + t * scratch_ld(d),
                          m->norm, 1, d, (float)m->config.rms_eps);
        pass_mark(w, PART_NORMS);
    }
    if (!p->io->logits)
        return;
    struct input xn = pass_normalise(w, p->s->x, p->n_kept, m->norm, &head, 1);
    struct product product = {
        .w = head, .out = p->io->logits, .ld = head->rows};
    pass_multiply_all(w, &product, 1, &xn, p->n_kept);
    if (p->io->ms)
        pass_barrier(w, PART_HEAD); /* who waits, and for how long */
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
    for (size_t i = 0; i < p->m->config.n_layers; i++) {
        bool last = i + 1 == p->m->config.n_layers;
        size_t n = last ? p->n_kept : p->n;
        attention_half(&w, i, n, last);
        if (*p->stop)
            return;
        if (n)
            gated_half(&w, i, n);
    }
    if (p->n_kept)
        write_logits(&w);
}

/* Embeddings and the angles of positions, in float32 as transformers has them.
 */
static void embed(const struct pass *p)
{
    const struct model *m = p->m;
    struct scratch *s = p->s;
    size_t d = m->config.d_model, half = m->config.head_dim / 2;
    float scale = (float)m->config.rope_attention;
    for (size_t i = 0, t = 0; i < p->io->n_spans; i++) {
        const struct span *span = &p->io->spans[i];
        for (size_t j = 0; j < span->n; j++, t++) {
            size_t id = (size_t)span->tokens[j];
            float *x = s->x + t * scratch_ld(d);
            if (m->embed.bits) {
                struct affine row = matrix_affine(&m->embed, id);
                m->k->affine_to_f32(x, &row, 1, d);
            } else {
                m->k->to_f32[m->embed.dtype](x, matrix_row(&m->embed, id), d);
            }
            for (size_t k = 0; k < half; k++) {
                float angle = (float)s->pos[t] * m->inv_freq[k];
                s->cos[t * half + k] = cosf(angle) * scale;
                s->sin[t * half + k] = sinf(angle) * scale;
            }
        }
    }
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
    p.products = model_products(m, p.n);
    p.bf16 = p.products == PRODUCTS_BF16;
    p.affine16 = !m->exact && m->k->gemm_bf16_affine;
    p.attn16 = s->qr16 && !p.single && (p.bf16 || m->any_quantized);
    pass_plan_attention(&p);
    embed(&p);
    if (io->ms)
        io->ms[PART_EMBED] += clock_ms() - start;
    par_run(m->pool, pass_body, &p);
    if (stop)
        return -1;
    for (size_t i = 0; i < io->n_spans; i++)
        io->spans[i].kv->n += io->spans[i].n;
    return 0;
}
