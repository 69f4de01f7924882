/* The tensors of a GGUF file: each weight that the model reads, by its name in
 * GGUF (names.h), and the factors of the rotary embedding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "model/arch.h"

/* A weight, and the tensor of the source that has it. */
struct weight {
    struct weight_ref ref;
    const struct st_tensor *t;
};

struct planner {
    struct quantize_plan *p;
    const struct quantize_source *s;
    const struct config *c; /* the source's */
    const struct arch *to;  /* the family as which GGUF has the source's */
    const struct quantize_type *type;
    struct quantize_shard *shard;
    const char *path; /* of the source, for messages */
    struct weight *weights;
    size_t n_weights;
};

static bool is_expert(enum weight_id id)
{
    return id >= WEIGHT_EXPERT_GATE && id <= WEIGHT_EXPERTS_DOWN_BIAS;
}

/* Whether a tensor of several dimensions is small and has to be exact. Of
 * positions and types a text encoder reads rows, and adds them. */
static bool is_exact(enum weight_id id)
{
    return id == WEIGHT_ROUTER || id == WEIGHT_DELTA_CONV ||
           id == WEIGHT_SHARED_GATE || id == WEIGHT_CLASSES ||
           id == WEIGHT_POSITIONS || id == WEIGHT_TYPES ||
           (id >= WEIGHT_EXPERTS_GATE_BIAS && id <= WEIGHT_EXPERTS_DOWN_BIAS);
}

/* Write a weight's dimensions in the file to out, and return their number: the
 * source may have more, of 1. Converters keep the row of the shared gate,
 * except Qwen3.5's. */
static size_t find_shape(const struct planner *pl, const struct weight *w,
                         size_t out[ST_MAX_RANK])
{
    bool ones = w->ref.id == WEIGHT_DELTA_CONV ||
                (w->ref.id == WEIGHT_SHARED_GATE && pl->to->gguf_names->tiled);
    size_t n = 0;
    for (size_t i = 0; i < w->t->rank; i++)
        if (!ones || w->t->shape[i] != 1)
            out[n++] = w->t->shape[i];
    return n;
}

/* Elements of a shape, at most those of the source. */
static size_t count(const size_t *shape, size_t rank)
{
    size_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

/* ---- the order of the file ------------------------------------------------
 */

/* The embedding, then layer by layer, then other weights of the model. */
static size_t place_of(const struct weight_ref *r)
{
    return r->id == WEIGHT_EMBED      ? 0
           : r->id < WEIGHT_ATTN_NORM ? SIZE_MAX
                                      : r->layer + 1;
}

static int by_place(const void *a, const void *b)
{
    const struct weight_ref *x = &((const struct weight *)a)->ref,
                            *y = &((const struct weight *)b)->ref;
    size_t p = place_of(x), q = place_of(y);
    return p != q ? (p > q) - (p < q) : (x->id > y->id) - (x->id < y->id);
}

/* List the weights that the model reads, experts excepted. */
static void list_weights(struct planner *pl)
{
    const struct weights *w = &pl->s->m.weights;
    for (size_t i = 0; i < st_count(pl->s->set); i++)
        if (w->used[i] && !is_expert(w->refs[i].id))
            pl->weights[pl->n_weights++] =
                (struct weight){w->refs[i], st_at(pl->s->set, i)};
    qsort(pl->weights, pl->n_weights, sizeof *pl->weights, by_place);
}

/* ---- results --------------------------------------------------------------
 */

/* Write the name of a weight in GGUF to out [NAMES_BYTES]. Returns false if it
 * has none. */
static bool write_name(const struct planner *pl, char *out, struct weight_ref w)
{
    const struct names *to = pl->to->gguf_names;
    if (w.id == WEIGHT_DELTA_A_LOG && !to->of[w.id][0])
        w.id = WEIGHT_DELTA_DECAY;
    return names_expand(out, to, to->prefixes[0], w, 0);
}

/* Add a tensor of the file; its jobs come next. */
static void put_out(struct planner *pl, const char *name, enum dtype type,
                    const size_t *shape, size_t rank,
                    struct quantize_change change)
{
    size_t i = pl->shard->n_out++;
    struct st_out_tensor *out = &pl->shard->out[i];
    pl->p->changes[i] = change;
    *out = (struct st_out_tensor){.name = name, .dtype = type, .rank = rank};
    memcpy(out->shape, shape, rank * sizeof *shape);
}

/* Add a weight. from: the tensor of the source, for messages. */
static int add_out(struct planner *pl, struct weight_ref w,
                   const struct st_tensor *from, enum dtype type,
                   const size_t *shape, size_t rank, struct qwick_err *e)
{
    const struct names *scheme = pl->p->naming.names;
    char name[NAMES_BYTES], why[128];
    if (!write_name(pl, name, w)) {
        snprintf(why, sizeof why,
                 "cannot be written to a GGUF file of the family %s",
                 pl->to->gguf);
        return quantize_err(pl->path, from, why, e);
    }
    char *copy = strdup(name);
    if (!copy)
        return err_oom(e, NAMES_BYTES);
    pl->p->names[pl->p->n_names++] = copy;
    /* both schemes may store norms zero-centred */
    const struct quantize_change change = {
        .plus = scheme->plus[w.id] - pl->to->gguf_names->plus[w.id],
        .times = w.id == WEIGHT_Q_NORM
                     ? quantize_gguf_query_scale(pl->c, w.layer)
                     : 1,
        .decay =
            w.id == WEIGHT_DELTA_A_LOG && !pl->to->gguf_names->of[w.id][0]};
    put_out(pl, copy, type, shape, rank, change);
    return 0;
}

static void add_job(struct planner *pl, struct quantize_part part, size_t at,
                    struct quantize_order order)
{
    quantize_add_job(pl->p, pl->shard,
                     (struct quantize_job){.from = part,
                                           .at = at,
                                           .order = order,
                                           .out = {pl->shard->n_out - 1}});
}

/* The order of rows of q_proj and k_proj, or of elements of their biases, in
 * files whose rotary embedding is interleaved: pairs that rotate together
 * become neighbours. */
static struct quantize_order rotary_order(const struct planner *pl,
                                          size_t layer, size_t cols)
{
    if (!pl->to->gguf_interleaved || pl->c->arch->interleaved)
        return (struct quantize_order){0};
    return (struct quantize_order){.unit = cols,
                                   .block = pl->c->layers[layer].head_dim,
                                   .rows = 2,
                                   .cols = pl->c->ropes[0].n_rot / 2};
}

/* The order of value heads with `unit` elements each. */
static struct quantize_order head_order(const struct planner *pl, size_t unit)
{
    const struct delta_config *d = &pl->c->delta;
    if (!d->n_k_heads ||
        pl->to->gguf_names->tiled == pl->p->naming.names->tiled)
        return (struct quantize_order){0};
    return (struct quantize_order){.unit = unit,
                                   .block = d->n_v_heads,
                                   .rows = d->n_k_heads,
                                   .cols = d->n_v_heads / d->n_k_heads};
}

/* The order of a weight's elements from *begin on. cols: of a matrix; 1 of a
 * vector. */
static struct quantize_order order_of(const struct planner *pl,
                                      struct weight_ref w, size_t cols,
                                      size_t *begin)
{
    const struct delta_config *d = &pl->c->delta;
    *begin = 0;
    switch (w.id) {
    case WEIGHT_Q_PROJ:
    case WEIGHT_K_PROJ:
    case WEIGHT_Q_BIAS:
    case WEIGHT_K_BIAS:
        return rotary_order(pl, w.layer, cols);
    case WEIGHT_DELTA_QKV:
    case WEIGHT_DELTA_CONV:
        *begin = 2 * d->n_k_heads * d->d_k * cols;
        return head_order(pl, d->d_v * cols);
    case WEIGHT_DELTA_Z:
        return head_order(pl, d->d_v * cols);
    case WEIGHT_DELTA_B:
    case WEIGHT_DELTA_A:
    case WEIGHT_DELTA_A_LOG:
    case WEIGHT_DELTA_DT_BIAS:
        return head_order(pl, cols);
    case WEIGHT_DELTA_OUT: /* in each row */
        return head_order(pl, d->d_v);
    default:
        return (struct quantize_order){0};
    }
}

/* Add the jobs of a weight that is one tensor of the source. */
static void add_jobs(struct planner *pl, const struct weight *w, size_t cols)
{
    size_t n = w->t->n_bytes / dtype_bytes(w->t->dtype), begin;
    struct quantize_order order = order_of(pl, w->ref, cols, &begin);
    if (begin)
        add_job(pl, (struct quantize_part){.src = w->t, .n = begin}, 0,
                (struct quantize_order){0});
    add_job(pl,
            (struct quantize_part){.src = w->t, .begin = begin, .n = n - begin},
            begin, order);
}

/* Whether a matrix, stored in t, stays in MXFP4. An order must not divide its
 * groups. */
static bool keeps_mxfp4(const struct planner *pl, struct weight_ref w,
                        const struct st_tensor *t, size_t cols)
{
    size_t begin;
    return (pl->type->keeps_mxfp4 || pl->p->find_width) &&
           quantize_is_mxfp4(pl->s, t) &&
           order_of(pl, w, cols, &begin).unit % dtype_block(DT_MXFP4) == 0;
}

/* The type of a matrix, of n elements and stored in t; says when it is not the
 * one asked for. */
static enum dtype choose_type(struct planner *pl, struct weight_ref w,
                              const struct st_tensor *t, size_t n, size_t cols)
{
    enum dtype wanted;
    if (keeps_mxfp4(pl, w, t, cols)) {
        pl->p->n_quantized++;
        return DT_MXFP4;
    }
    enum dtype type =
        quantize_type_of(pl->type, pl->c, w.id, w.layer, cols, &wanted);
    char name[NAMES_BYTES], why[160];
    if (!write_name(pl, name, w))
        snprintf(name, sizeof name, "%s", t->name);
    /* those of recurrent layers keep their type, see quantize_types.c */
    if (pl->p->find_width && !quantize_is_small(w.id)) {
        const struct quantize_asked asked = {name, t, n, cols};
        wanted = pl->p->find_width(pl->p->find_width_ctx, &asked)->type;
        type = quantize_type_fit(wanted, cols);
    }
    if (type != wanted) {
        snprintf(why, sizeof why,
                 "stored as %s: rows of %zu elements are not a multiple of "
                 "%s's block of %zu",
                 dtype_name(type), cols, dtype_name(wanted),
                 dtype_block(wanted));
        quantize_note(pl->p, name, why);
    }
    ++*(type >= DT_BLOCKS ? &pl->p->n_quantized : &pl->p->n_dense);
    return type;
}

/* Add a weight that is one tensor of the source. */
static int add_weight(struct planner *pl, const struct weight *w,
                      struct qwick_err *e)
{
    size_t shape[ST_MAX_RANK], rank = find_shape(pl, w, shape);
    size_t cols = rank > 1 ? shape[rank - 1] : 1;
    /* as converters do: vectors and small matrices stay exact */
    enum dtype type = rank > 1 && !is_exact(w->ref.id)
                          ? choose_type(pl, w->ref, w->t, count(shape, rank), cols)
                          : DT_F32;
    if (add_out(pl, w->ref, w->t, type, shape, rank, e))
        return -1;
    add_jobs(pl, w, cols);
    return 0;
}

/* Add the jobs of rows [from, from + n) of each key head of the packed matrix
 * t. at: where they begin in the result. Returns where they end. */
static size_t add_rows(struct planner *pl, const struct st_tensor *t,
                       size_t from, size_t n, size_t at)
{
    size_t heads = pl->c->delta.n_k_heads, cols = t->shape[1];
    size_t each = t->shape[0] / heads;
    for (size_t i = 0; i < heads; i++, at += n * cols)
        add_job(pl,
                (struct quantize_part){
                    .src = t, .begin = (i * each + from) * cols, .n = n * cols},
                at, (struct quantize_order){0});
    return at;
}

/* Add a part of in_proj_qkvz (struct delta), without its jobs. */
static int add_part(struct planner *pl, const struct weight *w,
                    enum weight_id id, size_t rows, struct qwick_err *e)
{
    const struct weight_ref ref = {.id = id, .layer = w->ref.layer};
    const size_t shape[] = {rows, w->t->shape[1]};
    return add_out(pl, ref, w->t,
                   choose_type(pl, ref, w->t, rows * shape[1], shape[1]), shape,
                   2, e);
}

/* Add the parts of in_proj_qkvz. */
static int add_packed(struct planner *pl, const struct weight *w,
                      struct qwick_err *e)
{
    const struct delta_config *d = &pl->c->delta;
    size_t d_k = d->d_k, values = d->n_v_heads / d->n_k_heads * d->d_v, at;
    if (add_part(pl, w, WEIGHT_DELTA_QKV, delta_channels(d), e))
        return -1;
    at = add_rows(pl, w->t, 0, d_k, 0);
    at = add_rows(pl, w->t, d_k, d_k, at);
    add_rows(pl, w->t, 2 * d_k, values, at);
    if (add_part(pl, w, WEIGHT_DELTA_Z, d->n_v_heads * d->d_v, e))
        return -1;
    add_rows(pl, w->t, 2 * d_k + values, values, 0);
    return 0;
}

/* Add all experts of a layer in one role, or in n roles whose rows come one
 * after the other, or their biases. */
static int add_experts(struct planner *pl, struct weight_ref w,
                       const struct quantize_module *m, size_t n,
                       struct qwick_err *e)
{
    const size_t shape[] = {m->stack, n * m->rows, m->cols};
    size_t skip = m->bias ? 1 : 0, at = 0;
    enum dtype type =
        m->bias ? DT_F32
                : choose_type(pl, w, m->t, count(shape, 3), m->cols);
    if (add_out(pl, w, m->t, type, shape + skip, 3 - skip, e))
        return -1;
    for (size_t i = 0; i < n * m->n_parts; i++) {
        const struct quantize_part part = m[i % n].parts[i / n];
        add_job(pl, part, at, (struct quantize_order){0});
        at += part.n;
    }
    return 0;
}

/* Add a layer's experts. *module: its first one; moves on. */
static int add_roles(struct planner *pl, size_t layer, size_t *module,
                     struct qwick_err *e)
{
    static const enum weight_id roles[] = {
        /* as quantize_experts has them */
        WEIGHT_EXPERTS_GATE,    WEIGHT_EXPERTS_UP,
        WEIGHT_EXPERTS_DOWN,    WEIGHT_EXPERTS_GATE_BIAS,
        WEIGHT_EXPERTS_UP_BIAS, WEIGHT_EXPERTS_DOWN_BIAS};
    size_t n = pl->c->expert_bias ? QUANTIZE_ROLES : QUANTIZE_ROLES / 2, each;
    for (size_t i = 0; i < n; i += each, *module += each) {
        bool fused = i == 0 && pl->to->gguf_fused_experts;
        const struct weight_ref w = {
            .id = fused ? WEIGHT_EXPERTS_GATE_UP : roles[i], .layer = layer};
        each = fused ? 2 : 1;
        if (add_experts(pl, w, &pl->p->modules[*module], each, e))
            return -1;
    }
    return 0;
}

/* Add divisors of the frequencies. */
static int add_factors(struct planner *pl, enum weight_id id, size_t n,
                       struct qwick_err *e)
{
    struct quantize_factors *f = &pl->p->factors[pl->p->n_factors++];
    f->t = (struct st_tensor){.name = "rope_parameters",
                              .file = "config.json",
                              .dtype = DT_F32,
                              .rank = 1,
                              .shape = {n},
                              .data = (const unsigned char *)f->v,
                              .n_bytes = n * sizeof *f->v};
    const struct weight w = {{.id = id}, &f->t};
    return add_weight(pl, &w, e);
}

/* Add the scaling of the rotary embedding as far as the file has it as a
 * tensor. */
static int add_rope(struct planner *pl, struct qwick_err *e)
{
    const struct rope_config *r = &pl->c->ropes[0];
    size_t n = r->n_rot / 2;
    struct quantize_factors *f = pl->p->factors;
    if (r->type == ROPE_LLAMA3) {
        struct rope_config plain = *r;
        float scaled[CONFIG_MAX_FACTORS];
        plain.type = ROPE_DEFAULT;
        config_rope_frequencies(&plain, false, f->v);
        config_rope_frequencies(r, false, scaled);
        for (size_t i = 0; i < n; i++)
            f->v[i] /= scaled[i];
        return add_factors(pl, WEIGHT_ROPE_FACTORS, n, e);
    }
    if (pl->to->gguf_rope_factors) {
        bool all = r->type != ROPE_PROPORTIONAL;
        float divisor = all ? 1 : (float)r->factor;
        /* 1e30: what converters write for a frequency of 0 */
        for (size_t i = 0; i < n; i++)
            f->v[i] = all || i < r->n_turning ? divisor : 1e30f;
        return add_factors(pl, WEIGHT_ROPE_FACTORS, n, e);
    }
    if (r->type != ROPE_LONGROPE)
        return 0;
    memcpy(f[0].v, r->short_factor, n * sizeof *f->v);
    memcpy(f[1].v, r->long_factor, n * sizeof *f->v);
    return add_factors(pl, WEIGHT_ROPE_SHORT, n, e) ||
                   add_factors(pl, WEIGHT_ROPE_LONG, n, e)
               ? -1
               : 0;
}

static int add_all(struct planner *pl, struct qwick_err *e)
{
    size_t module = 0;
    for (size_t i = 0; i < pl->n_weights; i++) {
        const struct weight *w = &pl->weights[i];
        if (w->ref.id == WEIGHT_HEAD && pl->c->tied_head) {
            quantize_note(pl->p, w->t->name,
                          "left out: the embedding is the head");
            continue;
        }
        bool packed = w->ref.id == WEIGHT_DELTA_QKVZ;
        if ((packed ? add_packed : add_weight)(pl, w, e) ||
            (w->ref.id == WEIGHT_ROUTER &&
             add_roles(pl, w->ref.layer, &module, e)))
            return -1;
    }
    return add_rope(pl, e);
}

/* ---- from another GGUF file -----------------------------------------------
 */

/* Add tensor t of the file, under its own name, in this type. */
static int add_same(struct planner *pl, const struct st_tensor *t,
                    enum dtype type, struct qwick_err *e)
{
    const size_t one = 1; /* the shape of a number */
    const struct matrix *m = quantize_packed(pl->s, t);
    const enum dtype stored = m ? m->dtype : t->dtype;
    if (!t->n_bytes)
        return quantize_err(pl->path, t, "has no elements", e);
    put_out(pl, t->name, type, t->rank ? t->shape : &one, t->rank ? t->rank : 1,
            (struct quantize_change){.times = 1});
    size_t n = t->n_bytes / dtype_bytes(t->dtype) * dtype_block(t->dtype);
    /* floats with rows are widened, which finds NaN */
    quantize_add_job(
        pl->p, pl->shard,
        (struct quantize_job){
            .from = {.src = t, .n = n},
            .same = type == stored && (type >= DT_N_FLOAT || !t->rank) &&
                    !quantize_merge_of(pl->s, t),
            .out = {pl->shard->n_out - 1}});
    return 0;
}

/* Add tensor i: a matrix that products read in the type of the rules, anything
 * else as it is. Sets *again if the file has it rounded already. */
static int add_tensor(struct planner *pl, size_t i, bool *again,
                      struct qwick_err *e)
{
    const struct st_tensor *t = st_at(pl->s->set, i);
    const struct weights *w = &pl->s->m.weights;
    const struct matrix *m = quantize_packed(pl->s, t);
    enum dtype stored = m ? m->dtype : t->dtype, type = stored;
    if (w->used[i] && t->rank > 1 && !is_exact(w->refs[i].id))
        type = choose_type(pl, w->refs[i], t, count(t->shape, t->rank),
                           t->shape[t->rank - 1]);
    else if (!w->used[i] && t->rank > 1)
        quantize_note(pl->p, t->name,
                      "stays as stored: the layers do not use it");
    *again = *again || (m && type != stored);
    if (add_same(pl, t, type, e))
        return -1;
    /* factors of blocks are in the elements that are widened */
    return m && m->factors && type == stored && !quantize_merge_of(pl->s, t)
               ? add_same(pl, quantize_factors(pl->s, t), DT_F32, e)
               : 0;
}

static int add_tensors(struct planner *pl, struct qwick_err *e)
{
    bool again = false;
    for (size_t i = 0; i < st_count(pl->s->set); i++)
        if (add_tensor(pl, i, &again, e))
            return -1;
    if (again)
        quantize_warn(pl->p, pl->path,
                      "is quantized already: rounding it again loses more than "
                      "rounding the original");
    return 0;
}

/* ---- the rest of the source -----------------------------------------------
 */

static void note_unused(const struct planner *pl)
{
    size_t n_outside = 0;
    char line[64];
    for (size_t i = 0; i < st_count(pl->s->set); i++) {
        const struct st_tensor *t = st_at(pl->s->set, i);
        if (pl->s->m.weights.used[i])
            continue;
        if (quantize_outside(pl->p, t))
            n_outside++;
        else
            quantize_note(pl->p, t->name,
                          "left out: the model does not use it");
    }
    if (n_outside) {
        snprintf(line, sizeof line, "%zu tensors", n_outside);
        quantize_note(pl->p, line, "left out: not part of the text model");
    }
}

static int reserve(struct planner *pl, struct qwick_err *e)
{
    struct quantize_plan *p = pl->p;
    size_t n_tensors = st_count(pl->s->set);
    /* a tensor for each of the source, of experts one for each module; a second
       one for a packed matrix, or for blocks; factors */
    size_t n_layers = pl->c->n_layers;
    size_t n_out = 2 * n_tensors + p->n_modules + n_layers + N_FACTORS;
    /* a job takes a tensor, a part of one with value heads, half of an expert
       in a fused one, or a part of a key head in a packed one */
    size_t n_jobs =
        2 * n_tensors + N_FACTORS + 4 * pl->c->delta.n_k_heads * n_layers;
    for (size_t i = 0; i < p->n_modules; i++)
        n_jobs += p->modules[i].n_parts;
    p->shards = calloc(1, sizeof *p->shards);
    p->names = calloc(n_out, sizeof *p->names);
    p->changes = calloc(n_out, sizeof *p->changes);
    pl->weights = calloc(n_tensors, sizeof *pl->weights);
    if (!p->shards || !p->names || !p->changes || !pl->weights)
        return err_oom(e, n_out * sizeof *p->names);
    p->n_shards = 1;
    strcpy(p->shards->name, OUTDIR_FILE);
    p->shards->out = calloc(n_out, sizeof *p->shards->out);
    p->shards->jobs = calloc(n_jobs, sizeof *p->shards->jobs);
    pl->shard = p->shards;
    return p->shards->out && p->shards->jobs
               ? 0
               : err_oom(e, n_out * sizeof *p->shards->out);
}

int quantize_gguf_tensors(struct quantize_plan *p,
                          const struct quantize_source *s,
                          const struct quantize_type *t, struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    struct planner pl = {.p = p,
                         .s = s,
                         .c = c,
                         .to = arch_in_gguf(c->arch),
                         .type = t,
                         .path = checkpoint_dir(s->ck)};
    p->naming = s->m.weights.naming;
    p->modules = calloc(QUANTIZE_ROLES * c->n_layers + 1, sizeof *p->modules);
    p->claims = calloc(st_count(s->set) + 1, sizeof *p->claims);
    int rc =
        p->modules && p->claims
            ? 0
            : err_oom(e, QUANTIZE_ROLES * c->n_layers * sizeof *p->modules);
    bool gguf = checkpoint_gguf(s->ck) != NULL;
    if (!rc && !gguf)
        rc = quantize_experts(p, s->set, pl.path, c, e);
    if (!rc)
        rc = reserve(&pl, e);
    if (!rc && gguf) {
        rc = add_tensors(&pl, e);
    } else if (!rc) {
        list_weights(&pl);
        rc = add_all(&pl, e);
        note_unused(&pl);
    }
    free(pl.weights);
    return rc;
}
