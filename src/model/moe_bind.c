#include "model/moe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "file/json.h"
#include "model/model.h"
#include "model/section.h"

/* ---- config.json ---------------------------------------------------------
 */

/* transformers 5 saves num_experts under the name of its alias. */
static int read_count(const struct section *s, size_t *out, struct qwick_err *e)
{
    static const char name[] = "num_experts", alias[] = "num_local_experts";
    bool renamed = section_absent(s, name) && !section_absent(s, alias);
    const char *key = renamed ? alias : name;
    int64_t n, other;
    char want[64];
    if (json_int(json_get(s->v, key), 0, MAX_EXPERTS, &n)) {
        snprintf(want, sizeof want, "an integer from 0 to %d", MAX_EXPERTS);
        return section_bad(s, key, want, e);
    }
    if (!renamed && !section_absent(s, alias) &&
        (json_int(json_get(s->v, alias), 0, MAX_EXPERTS, &other) ||
         other != n)) {
        snprintf(want, sizeof want, "%lld, as %s", (long long)n, name);
        return section_bad(s, alias, want, e);
    }
    *out = (size_t)n;
    return 0;
}

static int read_dense_layers(struct config *c, const struct section *s,
                             struct qwick_err *e)
{
    const struct json_value *list = json_get(s->v, "mlp_only_layers");
    if (section_absent(s, "mlp_only_layers"))
        return 0;
    if (list->type != JSON_ARRAY)
        return section_bad(s, "mlp_only_layers", "a list of layers", e);
    for (size_t i = 0; i < list->len; i++) {
        int64_t layer;
        if (json_int(&list->items[i], 0, (int64_t)c->n_layers - 1, &layer)) {
            char got[64];
            section_describe(&list->items[i], got, sizeof got);
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: mlp_only_layers[%zu]: must be a layer from 0 "
                           "to %zu, is %s",
                           s->path, i, c->n_layers - 1, got);
        }
        c->layers[layer].n_experts = 0;
    }
    return 0;
}

int experts_read_config(struct config *c, const struct section *s, size_t d_ff,
                        struct qwick_err *e)
{
    size_t n = 0, n_active = 0, step = 1;
    if (read_count(s, &n, e) ||
        section_opt_size(s, "decoder_sparse_step", 1, INT32_MAX, &step, e) ||
        section_opt_bool(s, "norm_topk_prob", false, &c->norm_topk_prob, e))
        return -1;
    if (!n)
        return 0;
    if (section_size(s, "num_experts_per_tok", n, &n_active, e) ||
        (d_ff ? section_opt_size(s, "moe_intermediate_size", d_ff, MAX_DIM,
                                 &d_ff, e)
              : section_size(s, "moe_intermediate_size", MAX_DIM, &d_ff, e)))
        return -1;
    for (size_t i = step - 1; i < c->n_layers; i += step)
        c->layers[i].n_experts = n;
    if (read_dense_layers(c, s, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++) {
        struct layer_config *l = &c->layers[i];
        if (!l->n_experts)
            continue;
        l->n_active = n_active;
        l->expert_ff = d_ff;
        if (!c->arch->blocks.experts_beside)
            l->d_ff = 0;
    }
    return 0;
}

void experts_leave_dense(struct config *c, size_t n)
{
    for (size_t i = 0; i < n && i < c->n_layers; i++) {
        struct layer_config *l = &c->layers[i];
        l->n_experts = l->n_active = l->expert_ff = 0;
        l->d_ff = c->d_ff;
    }
}

int experts_read_shared(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    size_t d_ff;
    if (section_size(s, "shared_expert_intermediate_size", MAX_DIM, &d_ff, e))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].n_experts)
            c->layers[i].shared_ff = d_ff;
    return 0;
}

/* ---- weights -------------------------------------------------------------
 */

/* One role's matrices, all n of them. */
struct role {
    struct matrix *out;
    enum weight_id one, all; /* by expert; stacked */
    size_t rows, cols;
};

static int bind_each(struct weights *w, const struct role *r, size_t n,
                     size_t layer, struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (weights_matrix(w, &r->out[i], r->rows, r->cols,
                           (struct weight_ref){r->one, layer, i}, e))
            return -1;
    return 0;
}

/* r->rows rows of a stack for each expert i, from row + i * stride on, `step`
 * rows apart. */
static int cut(struct weights *w, const struct role *r, size_t n,
               const struct matrix *stack, size_t row, size_t stride,
               size_t step, struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (weights_view_steps(w, &r->out[i], stack, row + i * stride, r->rows,
                               step, e))
            return -1;
    return 0;
}

/* All n matrices of a tensor; transposed: it has their columns. parts: see
 * weights_stack_transposed. */
static int open_stack(struct weights *w, struct matrix *out, size_t n,
                      size_t rows, size_t cols, bool transposed, size_t parts,
                      struct weight_ref ref, struct qwick_err *e)
{
    return transposed
               ? weights_stack_transposed(w, out, n, rows, cols, parts, ref, e)
               : weights_stack(w, out, n, rows, cols, ref, e);
}

static int bind_stack(struct weights *w, const struct role *r, size_t n,
                      size_t layer, bool transposed, struct qwick_err *e)
{
    const struct weight_ref ref = {.id = r->all, .layer = layer};
    struct matrix stack;
    transposed = transposed && !weights_in_blocks(w, ref);
    return open_stack(w, &stack, n, r->rows, r->cols, transposed, 1, ref, e) ||
                   cut(w, r, n, &stack, 0, r->rows, 1, e)
               ? -1
               : 0;
}

/* alternate: rows of gate and up come by turns. */
static int bind_fused(struct weights *w, const struct role *gate,
                      const struct role *up, size_t n, size_t layer,
                      bool transposed, bool alternate, struct qwick_err *e)
{
    const struct weight_ref ref = {.id = WEIGHT_EXPERTS_GATE_UP,
                                   .layer = layer};
    struct matrix both;
    transposed = transposed && !weights_in_blocks(w, ref);
    size_t rows = 2 * gate->rows, step = alternate && !transposed ? 2 : 1;
    return open_stack(w, &both, n, rows, gate->cols, transposed,
                      alternate ? 2 : 1, ref, e) ||
                   cut(w, gate, n, &both, 0, rows, step, e) ||
                   cut(w, up, n, &both, step == 2 ? 1 : gate->rows, rows, step,
                       e)
               ? -1
               : 0;
}

/* Products of a role share one type of activations. */
static int check_formats(const struct weights *w, const struct role *r,
                         size_t n, size_t layer, struct qwick_err *e)
{
    const struct matrix *a = &r->out[0];
    for (size_t i = 1; i < n; i++) {
        const struct matrix *b = &r->out[i];
        if (a->format == b->format && a->dtype == b->dtype &&
            a->bits == b->bits && a->group == b->group)
            continue;
        char first[NAMES_BYTES], other[NAMES_BYTES];
        names_expand(first, w->naming.names, w->naming.prefix,
                     (struct weight_ref){r->one, layer, 0}, 0);
        names_expand(other, w->naming.names, w->naming.prefix,
                     (struct weight_ref){r->one, layer, i}, 0);
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: stored as %s (%d bits, group %zu), but "
                       "%s as %s (%d bits, group %zu)",
                       w->path, other, dtype_name(b->dtype), b->bits, b->group,
                       first, dtype_name(a->dtype), a->bits, a->group);
    }
    return 0;
}

/* transposed, alternate: fused stacks are. */
static int bind_roles(struct weights *w, const struct role *roles, size_t n,
                      size_t layer, bool transposed, bool alternate,
                      struct qwick_err *e)
{
    const struct role *gate = &roles[0], *up = &roles[1];
    size_t from = 0; /* roles before it are bound */
    if (weights_has(w, (struct weight_ref){.id = WEIGHT_EXPERTS_GATE_UP,
                                           .layer = layer})) {
        if (bind_fused(w, gate, up, n, layer, transposed, alternate, e))
            return -1;
        from = 2;
    } else {
        transposed = false;
    }
    for (size_t i = from; i < 3; i++) {
        const struct weight_ref all = {.id = roles[i].all, .layer = layer};
        bool stacked =
            !w->naming.names->of[roles[i].one][0] || weights_has(w, all);
        if (stacked ? bind_stack(w, &roles[i], n, layer, transposed, e)
                    : bind_each(w, &roles[i], n, layer, e))
            return -1;
    }
    for (size_t i = 0; i < 3; i++)
        if (check_formats(w, &roles[i], n, layer, e))
            return -1;
    return 0;
}

/* Keep every step-th value of each row of v [n, cols], from `first` on, as many
 * as a half of the row has. */
static void keep_half(float *v, size_t n, size_t cols, size_t first,
                      size_t step)
{
    size_t half = cols / 2;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < half; j++)
            v[i * half + j] = v[i * cols + first + j * step];
}

/* The biases of gate_proj and up_proj, in one tensor or in two. */
static int bind_gate_bias(struct model *m, struct experts *x, size_t layer,
                          struct qwick_err *e)
{
    const struct {
        float **out;
        enum weight_id id;
    } halves[] = {{&x->gate_bias, WEIGHT_EXPERTS_GATE_BIAS},
                  {&x->up_bias, WEIGHT_EXPERTS_UP_BIAS}};
    bool alternate = m->config.arch->alternate_experts;
    struct weight_ref ref = {.id = WEIGHT_EXPERTS_GATE_UP_BIAS, .layer = layer};
    bool fused = weights_has(&m->weights, ref);
    size_t cols = (fused ? 2 : 1) * x->d_ff;
    for (size_t i = 0; i < 2; i++) {
        ref.id = fused ? ref.id : halves[i].id;
        if (weights_array(&m->weights, halves[i].out,
                          (const size_t[]){x->n, cols}, 2, ref, e))
            return -1;
        if (fused)
            keep_half(*halves[i].out, x->n, cols, alternate ? i : i * x->d_ff,
                      alternate ? 2 : 1);
    }
    return 0;
}

static int bind_biases(struct model *m, struct experts *x, size_t layer,
                       struct qwick_err *e)
{
    const struct weight_ref down = {.id = WEIGHT_EXPERTS_DOWN_BIAS,
                                    .layer = layer};
    const size_t dims[] = {x->n, m->config.d_model};
    return bind_gate_bias(m, x, layer, e) ||
                   weights_array(&m->weights, &x->down_bias, dims, 2, down, e)
               ? -1
               : 0;
}

static int bind_router(struct model *m, struct experts *x, size_t layer,
                       struct qwick_err *e)
{
    struct weights *w = &m->weights;
    const struct weight_ref router = {.id = WEIGHT_ROUTER, .layer = layer},
                            bias = {.id = WEIGHT_ROUTER_BIAS, .layer = layer},
                            select = {.id = WEIGHT_SELECT_BIAS, .layer = layer};
    if (weights_matrix(w, &x->router, x->n, m->config.d_model, router, e) ||
        (m->config.expert_bias &&
         weights_vector(w, &x->router_bias, x->n, bias, e)) ||
        (m->config.select_bias &&
         weights_vector(w, &x->select_bias, x->n, select, e)))
        return -1;
    x->router.f32_only = true;
    return 0;
}

static int bind_shared(struct model *m, struct experts *x, size_t layer,
                       struct qwick_err *e)
{
    size_t d = m->config.d_model, ff = m->config.layers[layer].shared_ff;
    const struct {
        struct matrix *out;
        enum weight_id id;
        size_t rows, cols;
    } parts[] = {
        {&x->shared.gate_proj, WEIGHT_SHARED_GATE_PROJ, ff, d},
        {&x->shared.up_proj, WEIGHT_SHARED_UP_PROJ, ff, d},
        {&x->shared.down_proj, WEIGHT_SHARED_DOWN_PROJ, d, ff},
        {&x->shared_gate, WEIGHT_SHARED_GATE, 1, d},
    };
    x->shared.glu = x->glu;
    x->shared.scale = m->config.residual_scale;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct weight_ref ref = {.id = parts[i].id, .layer = layer};
        if (weights_matrix(&m->weights, parts[i].out, parts[i].rows,
                           parts[i].cols, ref, e))
            return -1;
    }
    x->shared_gate.f32_only = true;
    return 0;
}

/* The norms and factors of experts beside a dense MLP. The router's input is
 * normalised, then multiplied by a vector and by 1 / sqrt(d_model)
 * (Gemma4TextRouter in transformers). */
static int bind_beside(struct model *m, struct experts *x, size_t layer,
                       struct qwick_err *e)
{
    size_t d = m->config.d_model;
    const struct {
        float **out;
        enum weight_id id;
        size_t n;
    } all[] = {{&x->router_norm, WEIGHT_ROUTER_SCALE, d},
               {&x->norm, WEIGHT_EXPERTS_NORM, d},
               {&x->post_norm, WEIGHT_EXPERTS_POST_NORM, d},
               {&x->dense_post_norm, WEIGHT_DENSE_POST_NORM, d},
               {&x->scales, WEIGHT_EXPERT_SCALES, x->n}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (weights_vector(&m->weights, all[i].out, all[i].n,
                           (struct weight_ref){.id = all[i].id, .layer = layer},
                           e))
            return -1;
    for (size_t i = 0; i < d; i++)
        x->router_norm[i] /= sqrtf((float)d);
    return 0;
}

/* Make room for the matrices of all experts. */
static int allocate(struct experts *x, size_t n, struct qwick_err *e)
{
    size_t n_bytes;
    if (size_mul(3 * n, sizeof *x->gate, &n_bytes))
        return err_oom(e, SIZE_MAX);
    x->gate = calloc(3 * n, sizeof *x->gate);
    if (!x->gate)
        return err_oom(e, n_bytes);
    x->up = x->gate + n;
    x->down = x->up + n;
    x->n = n;
    return 0;
}

/* Sigmoids may all be nearly 0 (Lfm2MoeSparseMoeBlock). */
#define SIGMOID_EPS 1e-6f

int experts_bind(struct model *m, struct experts *x, size_t layer,
                 struct qwick_err *e)
{
    const struct config *c = &m->config;
    const struct arch *a = c->arch;
    const struct layer_config *l = &c->layers[layer];
    const struct weights *w = &m->weights;
    size_t n = l->n_experts, d = c->d_model;
    if (allocate(x, n, e) || bind_router(m, x, layer, e) ||
        (a->blocks.experts_beside && bind_beside(m, x, layer, e)))
        return -1;
    x->n_active = l->n_active;
    x->d_ff = l->expert_ff;
    x->routing = a->blocks.routing;
    x->normalise = c->norm_topk_prob && x->routing != ROUTING_CHOSEN;
    x->sum_eps = x->routing == ROUTING_SIGMOID ? SIGMOID_EPS : 0;
    x->glu = model_glu(m);
    x->scale = c->residual_scale * c->routed_scale;
    /* GGUF files fuse them, too, in the order of products */
    bool hub = w->naming.names != a->gguf_names;
    const struct role roles[] = {
        {x->gate, WEIGHT_EXPERT_GATE, WEIGHT_EXPERTS_GATE, l->expert_ff, d},
        {x->up, WEIGHT_EXPERT_UP, WEIGHT_EXPERTS_UP, l->expert_ff, d},
        {x->down, WEIGHT_EXPERT_DOWN, WEIGHT_EXPERTS_DOWN, d, l->expert_ff},
    };
    size_t bytes = w->n_bytes, n_params = w->n_params;
    if (bind_roles(&m->weights, roles, n, layer, hub && a->transposed_experts,
                   hub && a->alternate_experts, e) ||
        (c->expert_bias && bind_biases(m, x, layer, e)))
        return -1;
    /* GGUF files have the experts' factors where blocks have theirs */
    for (size_t i = 0; x->scales && i < n; i++)
        x->down[i].factors = NULL;
    x->bytes = (w->n_bytes - bytes) / n;
    x->n_params = (w->n_params - n_params) / n;
    return l->shared_ff ? bind_shared(m, x, layer, e) : 0;
}
