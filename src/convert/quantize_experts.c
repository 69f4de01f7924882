/* Experts of a checkpoint that is quantized: whichever layout the source has,
 * the result stacks them as mlx-lm does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/names.h"

/* One of gate_proj, up_proj and down_proj of a layer. */
struct role {
    enum weight_id one, all, bias;
    bool fused; /* a source may have it in WEIGHT_EXPERTS_GATE_UP */
    bool down;  /* [d_model, d_ff], else [d_ff, d_model] */
};

static const struct role roles[] = {
    {WEIGHT_EXPERT_GATE, WEIGHT_EXPERTS_GATE, WEIGHT_EXPERTS_GATE_BIAS, true,
     false},
    {WEIGHT_EXPERT_UP, WEIGHT_EXPERTS_UP, WEIGHT_EXPERTS_UP_BIAS, true, false},
    {WEIGHT_EXPERT_DOWN, WEIGHT_EXPERTS_DOWN, WEIGHT_EXPERTS_DOWN_BIAS, false,
     true},
};

enum { N_ROLES = sizeof roles / sizeof *roles };

/* What is looked for, and the name under which it was looked for last. */
struct search {
    const struct st_set *set;
    struct naming naming;
    char name[NAMES_BYTES];
};

static const struct st_tensor *experts_find(struct search *s, enum weight_id id,
                                            size_t layer, size_t expert)
{
    const struct weight_ref ref = {id, layer, expert};
    const struct names *names = s->naming.names;
    for (size_t v = 0; names_expand(s->name, names, s->naming.prefix, ref, v);
         v++) {
        const struct st_tensor *t = st_find(s->set, s->name);
        if (t)
            return t;
    }
    names_expand(s->name, names, s->naming.prefix, ref, 0);
    return NULL;
}

/* An error unless t has this shape, of 2 or 3 dimensions, and holds floats. */
static int experts_check(const char *path, const struct st_tensor *t,
                         size_t rank, const size_t *dims, struct qwick_err *e)
{
    char want[80] = "";
    if (t->dtype >= DT_N_FLOAT)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s cannot be quantized (BF16, "
                       "F16 and F32 can)",
                       path, t->file, t->name, dtype_name(t->dtype));
    if (t->rank == rank && memcmp(t->shape, dims, rank * sizeof *dims) == 0)
        return 0;
    for (size_t i = 0, at = 0; i < rank; i++)
        at += (size_t)snprintf(want + at, sizeof want - at, "%s%zu",
                               i ? ", " : "", dims[i]);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: tensor %s: %zu dimensions and %zu elements in the "
                   "file, shape [%s] by config.json",
                   path, t->file, t->name, t->rank,
                   t->n_bytes / dtype_bytes(t->dtype), want);
}

/* The parts of a module: rows of the result in their order. */
struct finder {
    struct quantize_plan *p;
    struct search s;
    const char *path;
};

static int add_part(struct finder *f, struct quantize_module *m,
                    struct quantize_part part, struct qwick_err *e)
{
    const struct st_tensor *t = part.src;
    if (m->n_parts && t->dtype != m->t->dtype)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s, but that of %s is %s",
                       f->path, t->file, t->name, dtype_name(t->dtype),
                       m->t->name, dtype_name(m->t->dtype));
    if (!m->n_parts)
        m->t = t;
    m->parts[m->n_parts++] = part;
    f->p->claims[t - st_at(f->s.set, 0)].module = (size_t)(m - f->p->modules);
    f->p->claims[t - st_at(f->s.set, 0)].claimed = true;
    return 0;
}

/* An error: there is no tensor of the name that was looked for last. */
static int experts_missing(const struct finder *f, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: missing", f->path,
                   f->s.name);
}

/* One tensor for each expert. */
static int find_each(struct finder *f, struct quantize_module *m,
                     const struct role *r, size_t layer, struct qwick_err *e)
{
    const size_t want[] = {m->rows, m->cols};
    for (size_t i = 0; i < m->stack; i++) {
        const struct st_tensor *t = experts_find(&f->s, r->one, layer, i);
        if (!t)
            return experts_missing(f, e);
        const struct quantize_part part = {.src = t, .n = m->rows * m->cols};
        if (experts_check(f->path, t, 2, want, e) || add_part(f, m, part, e))
            return -1;
    }
    return 0;
}

/* Which rows of a matrix a module takes: all, or one of two halves, which come
 * one after the other or by turns. */
struct half {
    size_t i, n;
    bool alternate;
};

/* All in one tensor; of a fused one, half of each expert's rows. transposed: it
 * has their columns. */
static int find_stack(struct finder *f, struct quantize_module *m,
                      const struct st_tensor *t, const struct half *h,
                      bool transposed, struct qwick_err *e)
{
    const size_t rows = h->n * m->rows, cols = m->cols, n = m->rows * cols;
    const size_t want[] = {m->stack, transposed ? cols : rows,
                           transposed ? rows : cols};
    bool alternate = transposed && h->alternate;
    size_t begin = alternate ? h->i : h->i * (transposed ? m->rows : n);
    if (experts_check(f->path, t, 3, want, e))
        return -1;
    if (transposed && quantize_packed(f->p->s, t))
        return quantize_err(f->path, t,
                            "is quantized and transposed, which is not "
                            "supported",
                            e);
    for (size_t i = 0; i < m->stack; i++) {
        struct quantize_part part = {.src = t,
                                     .begin = i * h->n * n + begin,
                                     .n = n,
                                     .cols = cols,
                                     .stride = transposed ? rows : 0,
                                     .step = alternate ? h->n : 1};
        if (add_part(f, m, part, e))
            return -1;
    }
    return 0;
}

/* The biases of all experts: rows of the tensor, or halves of them. A part that
 * is gathered gets its name in MLX also when it is complete. */
static int find_biases(struct finder *f, struct quantize_module *m,
                       const struct st_tensor *t, const struct half *h,
                       struct qwick_err *e)
{
    const size_t want[] = {m->rows, h->n * m->cols};
    struct quantize_part part = {.src = t,
                                 .begin = h->i * (h->alternate ? 1 : m->cols),
                                 .n = m->rows * m->cols,
                                 .cols = m->cols,
                                 .stride = h->alternate ? h->n : 1,
                                 .step = want[1]};
    return experts_check(f->path, t, 2, want, e) || add_part(f, m, part, e) ? -1
                                                                            : 0;
}

/* The stack's name in the scheme of the source, without ".weight". Schemes have
 * the variants of routers and of stacks in the same order. */
static char *stack_name(const struct search *s, enum weight_id id, size_t layer)
{
    char name[NAMES_BYTES];
    const struct weight_ref ref = {.id = id, .layer = layer},
                            router = {.id = WEIGHT_ROUTER, .layer = layer};
    const struct names *names = s->naming.names;
    size_t v = 0;
    while (names_expand(name, names, s->naming.prefix, router, v) &&
           !st_find(s->set, name))
        v++;
    names_expand(name, names, s->naming.prefix, ref, v);
    return strndup(name, strlen(name) - strlen(".weight"));
}

/* Begin the next module, with room for a part of each of n experts. */
static struct quantize_module *add_module(struct finder *f,
                                          struct quantize_module new, size_t n,
                                          struct qwick_err *e)
{
    struct quantize_module *m = &f->p->modules[f->p->n_modules];
    *m = new;
    m->parts = calloc(n, sizeof *m->parts);
    if (!m->parts) {
        err_oom(e, n * sizeof *m->parts);
        return NULL;
    }
    f->p->n_modules++;
    return m;
}

/* The weights of a role, or its biases. */
static int find_role(struct finder *f, const struct config *c, size_t layer,
                     size_t which, bool bias, struct qwick_err *e)
{
    const struct layer_config *l = &c->layers[layer];
    const struct role *r = &roles[which];
    size_t n = l->n_experts, rows = r->down ? c->d_model : l->expert_ff;
    size_t cols = r->down ? l->expert_ff : c->d_model;
    struct quantize_module *m = add_module(
        f,
        bias ? (struct quantize_module){.bias = true, .rows = n, .cols = rows}
             : (struct quantize_module){.stack = n, .rows = rows, .cols = cols},
        n, e);
    if (!m)
        return -1;
    const struct st_tensor *fused = experts_find(
        &f->s, bias ? WEIGHT_EXPERTS_GATE_UP_BIAS : WEIGHT_EXPERTS_GATE_UP,
        layer, 0);
    const struct st_tensor *both = r->fused ? fused : NULL;
    const struct st_tensor *all =
        both ? both : experts_find(&f->s, bias ? r->bias : r->all, layer, 0);
    const struct half h = {both ? which : 0, both ? 2 : 1,
                           both && c->arch->alternate_experts};
    bool transposed = fused && c->arch->transposed_experts;
    if (bias && !all)
        return experts_missing(f, e);
    int rc = bias  ? find_biases(f, m, all, &h, e)
             : all ? find_stack(f, m, all, &h, transposed, e)
                   : find_each(f, m, r, layer, e);
    if (rc)
        return -1;
    m->fused = both != NULL;
    m->name = stack_name(&f->s, r->all, layer);
    return m->name ? 0 : err_oom(e, NAMES_BYTES);
}

static void mark_router(struct finder *f, enum weight_id id, size_t layer)
{
    const struct st_tensor *t = experts_find(&f->s, id, layer, 0);
    if (t)
        f->p->claims[t - st_at(f->s.set, 0)].router = true;
}

int quantize_experts(struct quantize_plan *p, const struct st_set *set,
                     const char *path, const struct config *c,
                     struct qwick_err *e)
{
    struct finder f = {
        .p = p, .s = {.set = set, .naming = p->naming}, .path = path};
    for (size_t i = 0; i < c->n_layers; i++) {
        if (!c->layers[i].n_experts)
            continue;
        mark_router(&f, WEIGHT_ROUTER, i);
        mark_router(&f, WEIGHT_SHARED_GATE, i);
        for (size_t r = 0; r < (c->expert_bias ? 2 : 1) * N_ROLES; r++)
            if (find_role(&f, c, i, r % N_ROLES, r >= N_ROLES, e))
                return -1;
    }
    return 0;
}
