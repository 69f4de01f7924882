/* Per-layer embeddings (Gemma4TextModel in transformers). For a token with the
 * scaled embedding e and n = ple_dim, each layer gets a row of n values
 *
 *   row = (norm(model_proj(e) / sqrt(d_model)) + sqrt(n) * table[token])
 *         / sqrt(2)
 *
 * and adds, after its MLP, to the residual stream y
 *
 *   norm(proj(gelu(gate(y)) * row)) */
#include "model/ple.h"

#include <math.h>

#include "model/layer.h"
#include "model/pass.h"

/* ---- weights --------------------------------------------------------------
 */

int ple_bind(struct model *m, struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    struct ple *p = &m->ple;
    size_t n = c->ple_dim, all = c->n_layers * n;
    if (!n)
        return 0;
    if (weights_table(w, &p->table, c->ple_vocab_size, all,
                      layer_weight(WEIGHT_PLE_EMBED, 0), e) ||
        weights_matrix(w, &p->model_proj, all, c->d_model,
                       layer_weight(WEIGHT_PLE_MODEL_PROJ, 0), e) ||
        weights_vector(w, &p->norm, n, layer_weight(WEIGHT_PLE_MODEL_NORM, 0),
                       e))
        return -1;
    for (size_t i = 0; i < n; i++)
        p->norm[i] *= (float)M_SQRT1_2;
    return 0;
}

/* Converters to GGUF may leave the small matrices of layers in F32. Then their
 * type must not decide about products with all others. */
static void multiply_as_stored(struct matrix *w)
{
    w->f32_only = w->dtype == DT_F32;
}

int ple_bind_layer(struct model *m, size_t i, struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    struct ple_layer *p = &m->layers[i].ple;
    if (!c->ple_dim)
        return 0;
    if (weights_matrix(w, &p->gate, c->ple_dim, c->d_model,
                       layer_weight(WEIGHT_PLE_GATE, i), e) ||
        weights_matrix(w, &p->proj, c->d_model, c->ple_dim,
                       layer_weight(WEIGHT_PLE_PROJ, i), e) ||
        weights_vector(w, &p->norm, c->d_model,
                       layer_weight(WEIGHT_PLE_NORM, i), e))
        return -1;
    multiply_as_stored(&p->gate);
    multiply_as_stored(&p->proj);
    return 0;
}

/* ---- the pass -------------------------------------------------------------
 */

/* Make the rows of token t from the products with its embedding, which are
 * there. */
static void finish_rows(const struct worker *w, size_t t)
{
    const struct pass *p = w->p;
    const struct config *c = &p->m->config;
    const struct matrix *table = &p->m->ple.table;
    const struct span *span = &p->io->spans[p->s->span[t]];
    int32_t id = span->tokens[p->s->pos[t] - span->kv->n];
    float *row = p->s->ple + t * scratch_ld(table->cols), *own = w->own->ple;
    w->k->scale(row, 1 / sqrtf((float)c->d_model), table->cols);
    w->k->rmsnorm(row, row, p->m->ple.norm, c->n_layers, c->ple_dim,
                  (float)c->rms_eps);
    table->ops->to_f32(w->k, own, table, (size_t)id, 1);
    w->k->scale(own, sqrtf((float)c->ple_dim / 2), table->cols);
    w->k->add(row, own, table->cols);
}

void pass_ple_rows(struct worker *w)
{
    const struct pass *p = w->p;
    const struct matrix *proj = &p->m->ple.model_proj;
    size_t begin, end;
    if (!p->m->config.ple_dim)
        return;
    struct input in = pass_normalise(w, p->s->x, p->n, NULL,
                                     pass_act_types(p, &proj, 1, p->n));
    struct product product = {
        .w = proj, .out = p->s->ple, .ld = scratch_ld(proj->rows)};
    pass_multiply_all(w, &product, 1, &in, p->n);
    pass_barrier(w, PART_PROJECTIONS);
    par_split(p->n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++)
        finish_rows(w, t);
    pass_ahead_layer(w, 0);
    pass_barrier(w, PART_EMBED);
}

/* Multiply the activated gates of n tokens by the layer's part of their rows.
 * With few tokens, each thread does so for itself; otherwise this ends with a
 * barrier. */
static const float *weigh(struct worker *w, size_t layer, size_t n)
{
    const struct pass *p = w->p;
    size_t d = p->m->config.ple_dim, ld = scratch_ld(d), begin = 0, end = n;
    size_t row = scratch_ld(p->m->ple.table.cols);
    bool private = n <= SCRATCH_PRIVATE_TOKENS;
    float *out = private ? w->own->ple_gate : p->s->gate;
    if (!private)
        par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        /* this layer has moved rows */
        size_t token = layer < p->m->last_stored ? t : p->s->token[t];
        w->k->geglu(out + t * ld, p->s->gate + t * ld,
                    p->s->ple + token * row + layer * d, d);
    }
    if (!private)
        pass_barrier(w, PART_PROJECTIONS);
    return out;
}

void pass_add_ple(struct worker *w, size_t layer, size_t n)
{
    const struct pass *p = w->p;
    struct scratch *s = p->s;
    const struct layer *l = &p->m->layers[layer];
    const struct matrix *gate = &l->ple.gate, *proj = &l->ple.proj;
    struct input in =
        pass_normalise(w, s->x, n, NULL, pass_act_types(p, &gate, 1, n));
    struct product product = {
        .w = gate, .out = s->gate, .ld = scratch_ld(gate->rows)};
    pass_multiply_all(w, &product, 1, &in, n);
    pass_ahead_all(w, &proj, 1, n);
    pass_barrier(w, PART_PROJECTIONS);
    in = pass_round(w, weigh(w, layer, n), s->gate16, &s->gate8, n, proj);
    product = (struct product){
        .w = proj, .out = s->proj, .ld = scratch_ld(proj->rows)};
    pass_multiply_all(w, &product, 1, &in, n);
    pass_ahead_layer(w, layer + 1);
    pass_barrier(w, PART_PROJECTIONS);
    pass_add_normalised(w, l->ple.norm, n, l->scale);
}
