/* Opening a model: its weights, and the choice of the kernels that multiply
 * them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/dynlib.h"
#include "kernel/gemm.h"
#include "model/layer.h"
#include "model/model.h"
#include "model/ple.h"
#include "model/scratch.h"

static bool worth_blas(const struct model *m, size_t n)
{
    return 2.0 * (double)n * (double)model_active_params(m) >=
           m->blas_min_flops;
}

void model_load_blas(const struct model *m, size_t n)
{
    if (!m->exact && m->any_dense && m->blas && worth_blas(m, n))
        gemm_blas_load(m->k);
}

bool model_is_precise(const struct model *m, size_t n, bool steps)
{
    return n <= m->precise_tokens && !(steps && m->rounds_steps);
}

enum products model_products(const struct model *m, size_t n, bool steps)
{
    if (m->exact || n < m->gemm_min_tokens)
        return PRODUCTS_SKINNY;
    if (!m->any_dense)
        return PRODUCTS_SKINNY; /* no float multiplies */
    const struct kernel_tuning *t = &m->k->tune;
    if (m->dense_bf16)
        return model_is_precise(m, n, steps) ? PRODUCTS_SKINNY : PRODUCTS_BF16;
    if (m->blas) {
        if (!worth_blas(m, n))
            return PRODUCTS_SKINNY;
        if (m->lazy_blas ? gemm_blas_load(m->k) : gemm_blas_loaded())
            return PRODUCTS_BLAS;
    }
    if (!t->gemm_f32 || (n < t->gemm_f32_any_tokens && (n - 1) % 8 < 3))
        return PRODUCTS_SKINNY;
    return PRODUCTS_GEMM_F32;
}

/* Which kinds of matrices multiply by a type of activations that the pass
 * chooses. The embedding does only as a head. Rows of classes are multiplied
 * one by one. */
static void note_kinds(struct model *m)
{
    bool all_bf16 = true;
    for (size_t i = 0; i < m->weights.n_matrices; i++) {
        const struct matrix *w = m->weights.matrices[i];
        if (w->f32_only || w == &m->classes || w == &m->class_dense ||
            (w == &m->embed && !m->config.tied_head))
            continue;
        m->any_i8 = m->any_i8 || w->ops->mul_i8;
        if (!w->format->is_float) {
            m->any_quantized = true;
            m->other_bf16 = m->other_bf16 || w->ops->mul_bf16;
            continue;
        }
        m->any_dense = true;
        all_bf16 = all_bf16 && w->ops->mul_bf16;
    }
    m->dense_bf16 = all_bf16 && m->any_dense;
}

/* A recurrent state amplifies the rounding of activations: a layer's result is
 * a sum of products of keys and queries, which may nearly cancel, and it is
 * normalised afterwards. Large scores amplify it, too: those of queries and
 * keys without norms a little, those without a scale the most. So passes of up
 * to this many tokens round no activations: by pairs of bf16 numbers where the
 * level has them (pass.pairs), otherwise in f32, which takes about twice as
 * long as bf16. Longer passes round like those of other families;
 * docs/accuracy.md has the errors. Decode steps of many sequences round without
 * a recurrent state: there, speed counts. The vector that an encoder makes of a
 * short text is the mean of few states, where errors do not cancel. */
enum {
    PRECISE_TOKENS = 32,
    UNSCALED_PRECISE_TOKENS = 64,
    ENCODER_PRECISE_TOKENS = 64
};

static size_t precise_tokens(const struct config *c)
{
    const struct blocks *b = &c->arch->blocks;
    if (b->precise_tokens)
        return b->precise_tokens;
    if (config_unscaled(c))
        return UNSCALED_PRECISE_TOKENS;
    if (c->bidirectional)
        return ENCODER_PRECISE_TOKENS;
    return c->delta.n_k_heads || b->qk_norm == QK_NORM_NONE ? PRECISE_TOKENS : 0;
}

/* A mixture of experts chooses by comparing scores, which may be nearly equal:
 * rounded activations then choose another expert than the reference, and that
 * changes a result by much more than rounding does. Scores of attention without
 * a scale amplify roundings as much. So passes of up to this many tokens round
 * int8 activations twice: the second number of a pair is what the first one
 * leaves. In decode steps only attention and dense layers of mixtures do. The
 * experts have most of the weights that a step reads, and pairs would cost it a
 * tenth of its speed; so they would without experts. In the prompts of gpt-oss
 * and Gemma 4, whose errors are the largest, experts do, too, which costs these
 * 4 to 27 % of their speed. The head chooses nothing that other layers read, and
 * rounds once everywhere. */
enum { PAIRS8_TOKENS = 64 };

static bool has_experts(const struct config *c)
{
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].n_experts)
            return true;
    return false;
}

/* Choose the passes in which matrices take pairs. */
static void mark_pairs(struct model *m)
{
    bool sensitive =
        m->config.arch->blocks.precise_tokens || config_unscaled(&m->config);
    enum pairs8 most = has_experts(&m->config) ? PAIRS8_PROMPTS_AND_STEPS
                                               : PAIRS8_PROMPTS,
                of_experts = sensitive ? PAIRS8_PROMPTS : PAIRS8_NEVER;
    if (!m->pairs8_tokens)
        return;
    for (size_t i = 0; i < m->weights.n_matrices; i++)
        m->weights.matrices[i]->pairs8 = most;
    m->embed.pairs8 = m->head.pairs8 = m->classes.pairs8 = PAIRS8_NEVER;
    for (size_t i = 0; i < m->config.n_layers; i++) {
        struct experts *x = &m->layers[i].experts;
        struct mlp *shared = &x->shared;
        for (size_t e = 0; e < x->n; e++)
            x->gate[e].pairs8 = x->up[e].pairs8 = x->down[e].pairs8 =
                of_experts;
        shared->gate_proj.pairs8 = shared->up_proj.pairs8 =
            shared->down_proj.pairs8 = of_experts;
    }
}

/* The vectors of encoders whose MLP is a product of two sides have larger
 * errors than those of BERT (docs/accuracy.md): these matrices bring them below
 * the bound. */
static void mark_pairs16(struct model *m)
{
    for (size_t i = 0; i < m->config.n_layers; i++) {
        struct attention *a = &m->layers[i].attn;
        struct mlp *mlp = &m->layers[i].mlp;
        a->q_proj.pairs16 = a->k_proj.pairs16 = a->v_proj.pairs16 =
            m->pairs16 >= PAIRS16_ATTENTION;
        mlp->gate_proj.pairs16 = mlp->up_proj.pairs16 =
            m->pairs16 >= PAIRS16_NORMED;
    }
}

/* Once the weights are bound: see model_products. */
static void choose_products(struct model *m)
{
    const struct kernel_tuning *t = &m->k->tune;
    note_kinds(m);
    m->blas = t->blas && dynlib_can_load();
    m->blas_min_flops = t->blas_min_flops;
    m->gemm_min_tokens = m->dense_bf16 ? t->bf16_min_tokens
                         : m->blas     ? t->blas_min_tokens
                                       : t->gemm_f32_min_tokens;
    const struct config *c = &m->config;
    bool plain = c->arch->blocks.qk_norm == QK_NORM_NONE;
    bool unscaled = config_unscaled(c);
    m->pairs16 = c->bidirectional ? c->arch->blocks.pairs16 : PAIRS16_NEVER;
    m->large_scores = (plain && !c->bidirectional) || unscaled || m->pairs16;
    size_t own = c->arch->blocks.precise_tokens;
    m->precise_tokens = precise_tokens(c);
    m->rounds_steps = !c->delta.n_k_heads;
    bool paired = m->any_i8 && (unscaled || has_experts(c));
    m->pairs8_tokens = paired ? (own ? own : PAIRS8_TOKENS) : 0;
    mark_pairs(m);
    mark_pairs16(m);
}

/* The type of activations in most products of a long prefill. */
static enum act_type long_act_type(const struct model *m)
{
    if (m->any_quantized && !m->exact)
        return m->other_bf16 ? ACT_BF16 : ACT_I8;
    return m->dense_bf16 ? ACT_BF16 : ACT_F32;
}

const char *model_gemm_name(const struct model *m)
{
    enum act_type act = long_act_type(m);
    if (act != ACT_F32)
        return act == ACT_BF16 ? "bf16" : "int8";
    return m->blas && !m->exact ? "openblas" : "own";
}

double (*model_peak(const struct model *m))(size_t reps, float *sink)
{
    double (*const peaks[])(size_t, float *) = {[ACT_F32] = m->k->peak_flops,
                                                [ACT_BF16] = m->k->peak_bf16,
                                                [ACT_I8] = m->k->peak_q8};
    return peaks[long_act_type(m)];
}

size_t model_long_rope_from(const struct model *m)
{
    const struct rope_config *r = &m->config.ropes[0];
    return r->type == ROPE_LONGROPE ? r->original + 1 : SIZE_MAX;
}

void (*model_glu(const struct model *m))(float *out, const float *gate,
                                         const float *up, size_t n)
{
    const struct kernels *k = m->k;
    switch (m->config.arch->blocks.activation) {
    case ACTIVATION_GELU:
        return k->geglu;
    case ACTIVATION_CLAMPED_SILU:
        return k->clamped_swiglu;
    case ACTIVATION_GELU_ERF:
        return k->geglu_erf;
    case ACTIVATION_SILU:
        break;
    }
    return k->swiglu;
}

/* GGUF files have the scaling of the first rotary embedding as divisors of its
 * frequencies. */
static int bind_rope_factors(struct model *m, struct qwick_err *e)
{
    const struct weight_ref ref = {.id = WEIGHT_ROPE_FACTORS};
    float *factors;
    size_t n = m->ropes[0].n_rot / 2;
    const struct arch *a = m->config.arch;
    bool must = a->gguf_rope_factors &&
                m->weights.naming.names == a->gguf_names;
    if (!must && !weights_has(&m->weights, ref))
        return 0;
    if (weights_vector(&m->weights, &factors, n, ref, e))
        return -1;
    for (size_t i = 0; i < n && !m->sizes_only; i++)
        m->ropes[0].inv_freq[i] /= factors[i];
    return 0;
}

static int open_ropes(struct model *m, struct qwick_err *e)
{
    const struct config *c = &m->config;
    for (size_t i = 0; i < c->n_ropes; i++) {
        const struct rope_config *r = &c->ropes[i];
        float *inv_freq = malloc(r->n_rot / 2 * sizeof *inv_freq);
        if (!inv_freq)
            return err_oom(e, r->n_rot / 2 * sizeof *inv_freq);
        m->ropes[i] = (struct rope){.n_rot = r->n_rot,
                                    .inv_freq = inv_freq,
                                    .scale = (float)r->attention,
                                    .interleaved = r->interleaved};
        config_rope_frequencies(r, false, inv_freq);
        if (r->type != ROPE_LONGROPE)
            continue;
        inv_freq = malloc(r->n_rot / 2 * sizeof *inv_freq);
        if (!inv_freq)
            return err_oom(e, r->n_rot / 2 * sizeof *inv_freq);
        m->ropes[i].inv_freq_long = inv_freq;
        config_rope_frequencies(r, true, inv_freq);
    }
    return bind_rope_factors(m, e);
}

int model_bind_norm(struct model *m, float **out, struct weight_ref ref,
                    struct qwick_err *e)
{
    const struct config *c = &m->config;
    return weights_norm(&m->weights, out, c->d_model,
                        c->arch->blocks.layer_norm, c->norm_bias, ref, e);
}

/* Bind the embedding, and the tables and the norm that encoders have beside
 * it. */
static int bind_embedding(struct model *m, struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    size_t d = c->d_model;
    struct matrix all;
    if (weights_matrix(w, &m->embed, c->vocab_size, d,
                       (struct weight_ref){.id = WEIGHT_EMBED}, e))
        return -1;
    if (c->n_positions) {
        if (weights_table(w, &all, c->first_position + c->n_positions, d,
                          (struct weight_ref){.id = WEIGHT_POSITIONS}, e))
            return -1;
        matrix_view(&m->positions, &all, c->first_position, c->n_positions);
    }
    if (c->n_types && weights_table(w, &m->types, c->n_types, d,
                                    (struct weight_ref){.id = WEIGHT_TYPES}, e))
        return -1;
    return c->arch->blocks.embed_norm
               ? model_bind_norm(m, &m->embed_norm,
                                 (struct weight_ref){.id = WEIGHT_EMBED_NORM},
                                 e)
               : 0;
}

/* The last norm, which also multiplies logits by their scale: a product is
 * linear. Hidden states do without the scale. */
static int bind_last_norm(struct model *m, struct qwick_err *e)
{
    const struct weight_ref norm =
        layer_weight(WEIGHT_NORM, m->config.n_layers - 1);
    size_t d = m->config.d_model;
    if (model_bind_norm(m, &m->norm, norm, e))
        return -1;
    m->head_norm = m->norm;
    if (m->config.logit_scale == 1)
        return 0;
    if (model_bind_norm(m, &m->head_norm, norm, e))
        return -1;
    for (size_t i = 0; i < d; i++)
        m->head_norm[i] *= m->config.logit_scale;
    return 0;
}

/* A head of its own counts, whatever tie_word_embeddings says: fine-tuning may
 * have changed it and not the embedding. Small checkpoints carry one that
 * equals the embedding. */
static int bind_head(struct model *m, struct qwick_err *e)
{
    enum { COMPARED = 64 };
    const struct weight_ref head = {.id = WEIGHT_HEAD};
    struct config *c = &m->config;
    bool tied = c->tied_head, has = weights_has(&m->weights, head);
    /* the bare model's names have no prefix */
    bool bare = c->class == CLASS_BARE || c->class == CLASS_CLASSIFIER ||
                !*m->weights.naming.prefix;
    if (c->bidirectional) { /* whatever the file has predicts no next token */
        c->tied_head = false;
        m->no_head = true;
        return 0;
    }
    m->no_head = !tied && !has && bare;
    c->tied_head = (tied || m->no_head) && !has;
    if (c->tied_head) {
        m->head = m->embed;
        return 0;
    }
    if (weights_matrix(&m->weights, &m->head, c->vocab_size, c->d_model, head,
                       e))
        return -1;
    return tied && !m->sizes_only
               ? matrix_compare(m->k, &m->head, &m->embed, COMPARED,
                                &m->head_differs, e)
               : 0;
}

/* Bind what an encoder has before its classes, and their biases. */
static int bind_class_input(struct model *m, struct qwick_err *e)
{
    const struct config *c = &m->config;
    struct weights *w = &m->weights;
    const struct weight_ref bias = {.id = WEIGHT_CLASS_DENSE_BIAS},
                            norm = {.id = WEIGHT_CLASS_NORM};
    if (weights_vector(w, &m->class_bias, c->n_classes,
                       (struct weight_ref){.id = WEIGHT_CLASS_BIAS}, e) ||
        weights_matrix(w, &m->class_dense, c->d_model, c->d_model,
                       (struct weight_ref){.id = WEIGHT_CLASS_DENSE}, e))
        return -1;
    if (c->class_dense_bias &&
        weights_vector(w, &m->class_dense_bias, c->d_model, bias, e))
        return -1;
    return c->arch->blocks.class_norm
               ? model_bind_norm(m, &m->class_norm, norm, e)
               : 0;
}

/* The head of a classifier, which has a row for each label. Rerankers have
 * one: the log-odds that a document answers the query. */
static int bind_classes(struct model *m, const char *path, struct qwick_err *e)
{
    const struct weight_ref classes = {.id = WEIGHT_CLASSES};
    struct config *c = &m->config;
    struct weights *w = &m->weights;
    size_t dims[2] = {0};
    if (c->class == CLASS_CLASSIFIER) {
        weights_shape(w, classes, dims, 2);
        if (dims[0] > 1 || c->n_labels > 1)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: architectures: \"%s\" with %zu labels, and "
                           "%zu rows of %s: 1 label is supported",
                           path, c->class_name, c->n_labels, dims[0],
                           c->bidirectional ? "the classifier"
                                            : "score.weight");
        if (!c->bidirectional && st_find(w->set, "score.bias"))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: tensor score.bias: is not supported beside "
                           "score.weight",
                           path);
        c->n_classes = 1;
    }
    if (c->n_classes && weights_matrix(w, &m->classes, c->n_classes, c->d_model,
                                       classes, e))
        return -1;
    return c->n_classes && c->bidirectional ? bind_class_input(m, e) : 0;
}

int model_open(struct model *m, const struct checkpoint *ck,
               const struct st_set *set, struct qwick_err *e)
{
    struct config *c = &m->config;
    struct weights *w = &m->weights;
    if (weights_open(w, set, checkpoint_dir(ck), c->arch->names, m->k, m->exact,
                     e))
        return -1;
    w->quant = &c->quant;
    w->sizes_only = m->sizes_only;
    w->repacks = true;
    w->pool = m->pool;
    m->layers = calloc(c->n_layers, sizeof *m->layers);
    if (!m->layers)
        return err_oom(e, c->n_layers * sizeof *m->layers);
    m->normalise =
        c->arch->blocks.layer_norm ? m->k->layernorm : m->k->rmsnorm;
    if (bind_embedding(m, e))
        return -1;
    if (ple_bind(m, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->arch->bind_layer(m, &m->layers[i], i, e) ||
            ple_bind_layer(m, i, e))
            return -1;
    if (bind_last_norm(m, e))
        return -1;
    if (bind_head(m, e))
        return -1;
    if (bind_classes(m, checkpoint_dir(ck), e) || weights_check_factors(w, e))
        return -1;
    if (open_ropes(m, e))
        return -1;
    m->last_stored = c->n_layers - 1;
    while (c->layers[m->last_stored].kv_back)
        m->last_stored--;
    weights_find_ignored(w, c->n_layers, m->ignored);
    choose_products(m);
    m->shared_bytes = model_shared_bytes(m);
    return 0;
}

void model_class_input(const struct model *m, struct scratch *s, float *state)
{
    const struct matrix *a = &m->class_dense;
    size_t d = m->config.d_model;
    if (!a->rows)
        return;
    const struct row_product p = {.w = a,
                                  .n_rows = d,
                                  .n = 1,
                                  .y = s->proj,
                                  .ldy = d,
                                  .work = s->threads[0].work};
    a->ops->mul_f32(m->k, &p, state, d);
    memcpy(state, s->proj, d * sizeof *state);
    if (m->class_dense_bias)
        m->k->add(state, m->class_dense_bias, d);
    if (m->config.arch->blocks.class_norm)
        m->k->geglu_erf(state, state, NULL, d);
    else
        for (size_t i = 0; i < d; i++)
            state[i] = tanhf(state[i]);
    if (m->class_norm)
        m->normalise(state, state, m->class_norm, 1, d,
                     (float)m->config.rms_eps);
}

size_t layer_inputs(const struct layer *l,
                    const struct matrix *ws[LAYER_INPUTS])
{
    const struct attention *a = &l->attn;
    const struct delta *d = &l->delta;
    for (size_t i = 0; i < d->n_inputs; i++)
        ws[i] = &d->inputs[i];
    if (d->n_inputs)
        return d->n_inputs;
    size_t n = 0;
    ws[n++] = &a->q_proj;
    if (a->k_proj.rows)
        ws[n++] = &a->k_proj;
    if (a->v_proj.rows)
        ws[n++] = &a->v_proj;
    return n;
}

void model_close(struct model *m)
{
    for (size_t i = 0; i < CONFIG_MAX_ROPES; i++) {
        free(m->ropes[i].inv_freq);
        free(m->ropes[i].inv_freq_long);
    }
    for (size_t i = 0; m->layers && i < m->config.n_layers; i++)
        free(m->layers[i].experts.gate); /* up and down are in the same block */
    if (m->preloaded)
        munmap(m->preloaded, m->preloaded_bytes);
    free(m->layers);
    loras_close(&m->loras);
    weights_close(&m->weights);
    config_free(&m->config);
    *m = (struct model){0};
}
