/* The tensors of a GGUF file: each weight of the family, by its names in the
 * source and in GGUF (names.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "model/arch.h"

struct planner {
    struct quantize_plan *p;
    const struct quantize_source *s;
    const struct quantize_type *type;
    struct quantize_shard *shard;
    const char *path; /* of the source, for messages */
    bool *used;       /* [tensors of the source] */
};

/* Layers that have a weight. */
enum where {
    ALL,
    ATTENTION,
    RECURRENT, /* Gated DeltaNet */
    DENSE,     /* a dense MLP */
    EXPERTS,   /* a mixture of experts */
    SHARED     /* a mixture with an expert that all tokens share */
};

/* Weights of a layer, in the order of the file. Weights that the source's
 * scheme does not have are left out. */
static const struct part {
    enum weight_id id;
    enum where where;
    bool optional;
} parts[] = {
    {WEIGHT_ATTN_NORM, ALL, false},
    {WEIGHT_Q_PROJ, ATTENTION, false},
    {WEIGHT_Q_BIAS, ATTENTION, true},
    {WEIGHT_K_PROJ, ATTENTION, false},
    {WEIGHT_K_BIAS, ATTENTION, true},
    {WEIGHT_V_PROJ, ATTENTION, false},
    {WEIGHT_V_BIAS, ATTENTION, true},
    {WEIGHT_Q_NORM, ATTENTION, false},
    {WEIGHT_K_NORM, ATTENTION, false},
    {WEIGHT_O_PROJ, ATTENTION, false},
    {WEIGHT_O_BIAS, ATTENTION, true},
    {WEIGHT_DELTA_QKV, RECURRENT, false},
    {WEIGHT_DELTA_Z, RECURRENT, false},
    {WEIGHT_DELTA_B, RECURRENT, false},
    {WEIGHT_DELTA_A, RECURRENT, false},
    {WEIGHT_DELTA_BA, RECURRENT, false},
    {WEIGHT_DELTA_CONV, RECURRENT, false},
    {WEIGHT_DELTA_A_LOG, RECURRENT, false},
    {WEIGHT_DELTA_DT_BIAS, RECURRENT, false},
    {WEIGHT_DELTA_NORM, RECURRENT, false},
    {WEIGHT_DELTA_OUT, RECURRENT, false},
    {WEIGHT_ATTN_POST_NORM, ALL, false},
    {WEIGHT_MLP_NORM, ALL, false},
    {WEIGHT_GATE_PROJ, DENSE, false},
    {WEIGHT_UP_PROJ, DENSE, false},
    {WEIGHT_DOWN_PROJ, DENSE, false},
    {WEIGHT_ROUTER, EXPERTS, false},
    {WEIGHT_EXPERTS_GATE, EXPERTS, false},
    {WEIGHT_EXPERTS_UP, EXPERTS, false},
    {WEIGHT_EXPERTS_DOWN, EXPERTS, false},
    {WEIGHT_SHARED_GATE, SHARED, false},
    {WEIGHT_SHARED_GATE_PROJ, SHARED, false},
    {WEIGHT_SHARED_UP_PROJ, SHARED, false},
    {WEIGHT_SHARED_DOWN_PROJ, SHARED, false},
    {WEIGHT_MLP_POST_NORM, ALL, false},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static bool has_part(const struct layer_config *l, enum where where)
{
    return where == ATTENTION   ? !l->recurrent
           : where == RECURRENT ? l->recurrent
           : where == DENSE     ? !l->n_experts
           : where == EXPERTS   ? l->n_experts > 0
           : where == SHARED    ? l->n_experts > 0 && l->shared_ff > 0
                                : true;
}

static bool is_expert(enum weight_id id)
{
    return id == WEIGHT_EXPERTS_GATE || id == WEIGHT_EXPERTS_UP ||
           id == WEIGHT_EXPERTS_DOWN;
}

struct shape {
    size_t rows, cols; /* rows 0: a vector */
    bool exact;        /* small, and stored as F32 */
    bool ones;         /* the source may have more dimensions, of 1 */
};

/* The shape that a weight has by config.json. */
static struct shape shape_of(const struct config *c, struct weight_ref w)
{
    const struct layer_config *l = &c->layers[w.layer];
    const struct delta_config *delta = &c->delta;
    size_t d = c->d_model, q = c->n_heads * c->head_dim;
    size_t kv = c->n_kv_heads * c->head_dim, heads = delta->n_v_heads;
    size_t q_rows = c->attention_gate ? 2 * q : q, v = heads * delta->d_v;
    const struct shape shapes[N_WEIGHTS] = {
        [WEIGHT_EMBED] = {.rows = c->vocab_size, .cols = d},
        [WEIGHT_HEAD] = {.rows = c->vocab_size, .cols = d},
        [WEIGHT_NORM] = {.cols = d},
        [WEIGHT_ATTN_NORM] = {.cols = d},
        [WEIGHT_ATTN_POST_NORM] = {.cols = d},
        [WEIGHT_MLP_NORM] = {.cols = d},
        [WEIGHT_MLP_POST_NORM] = {.cols = d},
        [WEIGHT_Q_PROJ] = {.rows = q_rows, .cols = d},
        [WEIGHT_K_PROJ] = {.rows = kv, .cols = d},
        [WEIGHT_V_PROJ] = {.rows = kv, .cols = d},
        [WEIGHT_O_PROJ] = {.rows = d, .cols = q},
        [WEIGHT_Q_BIAS] = {.cols = q_rows},
        [WEIGHT_K_BIAS] = {.cols = kv},
        [WEIGHT_V_BIAS] = {.cols = kv},
        [WEIGHT_O_BIAS] = {.cols = d},
        [WEIGHT_Q_NORM] = {.cols = c->head_dim},
        [WEIGHT_K_NORM] = {.cols = c->head_dim},
        [WEIGHT_GATE_PROJ] = {.rows = l->d_ff, .cols = d},
        [WEIGHT_UP_PROJ] = {.rows = l->d_ff, .cols = d},
        [WEIGHT_DOWN_PROJ] = {.rows = d, .cols = l->d_ff},
        [WEIGHT_ROUTER] = {.rows = l->n_experts, .cols = d, .exact = true},
        [WEIGHT_SHARED_GATE_PROJ] = {.rows = l->shared_ff, .cols = d},
        [WEIGHT_SHARED_UP_PROJ] = {.rows = l->shared_ff, .cols = d},
        [WEIGHT_SHARED_DOWN_PROJ] = {.rows = d, .cols = l->shared_ff},
        [WEIGHT_SHARED_GATE] = {.cols = d, .ones = true},
        [WEIGHT_DELTA_QKV] = {.rows = delta_channels(delta), .cols = d},
        [WEIGHT_DELTA_Z] = {.rows = v, .cols = d},
        [WEIGHT_DELTA_B] = {.rows = heads, .cols = d},
        [WEIGHT_DELTA_A] = {.rows = heads, .cols = d},
        [WEIGHT_DELTA_QKVZ] = {.rows = delta_channels(delta) + v, .cols = d},
        [WEIGHT_DELTA_BA] = {.rows = 2 * heads, .cols = d},
        [WEIGHT_DELTA_OUT] = {.rows = d, .cols = v},
        [WEIGHT_DELTA_CONV] = {.rows = delta_channels(delta),
                               .cols = delta->conv,
                               .exact = true,
                               .ones = true},
        [WEIGHT_DELTA_A_LOG] = {.cols = heads},
        [WEIGHT_DELTA_DT_BIAS] = {.cols = heads},
        [WEIGHT_DELTA_NORM] = {.cols = delta->d_v},
    };
    return shapes[w.id];
}

/* The weight of the source that holds a weight of the result. */
static enum weight_id source_of(const struct planner *pl, enum weight_id id)
{
    bool packed = pl->p->naming.names->of[WEIGHT_DELTA_QKVZ][0];
    return packed && (id == WEIGHT_DELTA_QKV || id == WEIGHT_DELTA_Z)
               ? WEIGHT_DELTA_QKVZ
               : id;
}

/* Whether a tensor has the shape; without dimensions of 1 if it may have
 * more. */
static bool has_shape(const struct st_tensor *t, const struct shape *s)
{
    size_t dims[ST_MAX_RANK] = {0}, n = 0;
    for (size_t i = 0; i < t->rank; i++)
        if (!s->ones || t->shape[i] != 1)
            dims[n++] = t->shape[i];
    return s->rows ? n == 2 && dims[0] == s->rows && dims[1] == s->cols
                   : n == 1 && dims[0] == s->cols;
}

static int check_shape(const struct planner *pl, const struct st_tensor *t,
                       const struct shape *s, struct qwick_err *e)
{
    char why[160];
    if (t->dtype >= DT_N_FLOAT)
        snprintf(why, sizeof why,
                 "dtype %s cannot be converted (BF16, F16 and F32 can)",
                 dtype_name(t->dtype));
    else if (has_shape(t, s))
        return 0;
    else
        snprintf(why, sizeof why,
                 "%zu dimensions and %zu elements in the file, shape [%zu, "
                 "%zu] by config.json",
                 t->rank, t->n_bytes / dtype_bytes(t->dtype), s->rows, s->cols);
    return quantize_err(pl->path, t, why, e);
}

/* ---- results --------------------------------------------------------------
 */

/* Write the name of a weight in GGUF to out [NAMES_BYTES]. */
static void write_name(const struct planner *pl, char *out, struct weight_ref w)
{
    const struct names *to = pl->s->c.arch->gguf_names;
    if (w.id == WEIGHT_DELTA_A_LOG && !to->of[w.id][0])
        w.id = WEIGHT_DELTA_DECAY;
    names_expand(out, to, to->prefixes[0], w, 0);
}

/* The name of a weight in GGUF, kept by the plan; NULL: out of memory. */
static const char *gguf_name(struct planner *pl, struct weight_ref w)
{
    char name[NAMES_BYTES];
    write_name(pl, name, w);
    char *copy = strdup(name);
    if (copy)
        pl->p->names[pl->p->n_names++] = copy;
    return copy;
}

/* Add a tensor of the file, without shape; its jobs come next. NULL: out of
 * memory. */
static struct st_out_tensor *add_out(struct planner *pl, struct weight_ref w,
                                     enum dtype type)
{
    const struct names *from = pl->p->naming.names,
                       *to = pl->s->c.arch->gguf_names;
    const char *name = gguf_name(pl, w);
    if (!name)
        return NULL;
    size_t i = pl->shard->n_out++;
    /* both schemes may store norms zero-centred */
    pl->p->changes[i] = (struct quantize_change){
        .plus = from->plus[w.id] - to->plus[w.id],
        .times = w.id == WEIGHT_Q_NORM
                     ? quantize_gguf_query_scale(&pl->s->c, w.layer)
                     : 1,
        .decay = w.id == WEIGHT_DELTA_A_LOG && !to->of[w.id][0]};
    pl->shard->out[i] = (struct st_out_tensor){.name = name, .dtype = type};
    return &pl->shard->out[i];
}

/* head: see struct quantize_job. */
static void add_job(struct planner *pl, struct quantize_part part, size_t at,
                    size_t head)
{
    pl->shard->jobs[pl->shard->n_jobs++] = (struct quantize_job){
        .from = part, .at = at, .head = head, .out = {pl->shard->n_out - 1}};
}

/* Elements of a value head in a weight that has value heads, one after another
 * from *begin on; 0: the weight has none, or their order stays. */
static size_t find_heads(const struct planner *pl, enum weight_id id,
                         size_t cols, size_t *begin)
{
    const struct delta_config *c = &pl->s->c.delta;
    bool tiled = pl->s->c.arch->gguf_names->tiled;
    *begin = 0;
    if (c->n_v_heads == c->n_k_heads || tiled == pl->p->naming.names->tiled)
        return 0;
    switch (id) {
    case WEIGHT_DELTA_QKV:
    case WEIGHT_DELTA_CONV:
        *begin = 2 * c->n_k_heads * c->d_k * cols;
        return c->d_v * cols;
    case WEIGHT_DELTA_Z:
        return c->d_v * cols;
    case WEIGHT_DELTA_B:
    case WEIGHT_DELTA_A:
        return cols;
    case WEIGHT_DELTA_A_LOG:
    case WEIGHT_DELTA_DT_BIAS:
        return 1;
    case WEIGHT_DELTA_OUT: /* in each row */
        return c->d_v;
    default:
        return 0;
    }
}

/* Add the jobs of rows [from, from + n) of each key head of the packed matrix
 * t. at: where they begin in the result. Returns where they end. */
static size_t add_rows(struct planner *pl, const struct st_tensor *t,
                       size_t from, size_t n, size_t at)
{
    const struct delta_config *c = &pl->s->c.delta;
    size_t cols = t->shape[1], each = t->shape[0] / c->n_k_heads;
    for (size_t i = 0; i < c->n_k_heads; i++, at += n * cols)
        add_job(pl,
                (struct quantize_part){t, (i * each + from) * cols, n * cols},
                at, 0);
    return at;
}

/* Add the jobs of the part of in_proj_qkvz (struct delta) that is weight id. */
static void unpack(struct planner *pl, enum weight_id id,
                   const struct st_tensor *t)
{
    const struct delta_config *c = &pl->s->c.delta;
    size_t d_k = c->d_k, values = c->n_v_heads / c->n_k_heads * c->d_v, at;
    if (id == WEIGHT_DELTA_Z) {
        add_rows(pl, t, 2 * d_k + values, values, 0);
        return;
    }
    at = add_rows(pl, t, 0, d_k, 0);
    at = add_rows(pl, t, d_k, d_k, at);
    add_rows(pl, t, 2 * d_k, values, at);
}

/* Add the jobs of a weight that is one tensor of the source. */
static void add_jobs(struct planner *pl, enum weight_id id,
                     const struct st_tensor *t, size_t cols)
{
    size_t n = t->n_bytes / dtype_bytes(t->dtype), begin;
    size_t head = find_heads(pl, id, cols, &begin);
    if (begin)
        add_job(pl, (struct quantize_part){t, 0, begin}, 0, 0);
    add_job(pl, (struct quantize_part){t, begin, n - begin}, begin, head);
}

/* The type of a matrix; says when it is not the one asked for. */
static enum dtype choose_type(struct planner *pl, struct weight_ref w,
                              size_t cols)
{
    enum dtype wanted;
    enum dtype type =
        quantize_type_of(pl->type, &pl->s->c, w.id, w.layer, cols, &wanted);
    char name[NAMES_BYTES], why[160];
    if (type != wanted) {
        write_name(pl, name, w);
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

static void mark(struct planner *pl, const struct st_tensor *t)
{
    pl->used[t - st_at(pl->s->set, 0)] = true;
}

/* Add a weight that is in one tensor of the source. */
static int add_weight(struct planner *pl, struct weight_ref w, bool optional,
                      struct qwick_err *e)
{
    const struct naming *from = &pl->p->naming;
    const struct weight_ref source = {source_of(pl, w.id), w.layer, 0};
    const struct st_tensor *t = NULL;
    char name[NAMES_BYTES];
    for (size_t v = 0;
         !t && names_expand(name, from->names, from->prefix, source, v); v++)
        t = st_find(pl->s->set, name);
    if (!t && optional)
        return 0;
    if (!t) {
        names_expand(name, from->names, from->prefix, source, 0);
        return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: missing", pl->path,
                       name);
    }
    struct shape s = shape_of(&pl->s->c, source);
    if (check_shape(pl, t, &s, e))
        return -1;
    s = shape_of(&pl->s->c, w);
    /* as converters do: vectors and small matrices stay exact */
    enum dtype type = s.rows && !s.exact ? choose_type(pl, w, s.cols) : DT_F32;
    struct st_out_tensor *out = add_out(pl, w, type);
    if (!out)
        return err_oom(e, NAMES_BYTES);
    /* converters keep the row of the shared gate, except Qwen3.5's */
    bool row = w.id == WEIGHT_SHARED_GATE && !pl->s->c.arch->gguf_names->tiled;
    const size_t shape[] = {row ? 1 : s.rows, s.cols};
    out->rank = shape[0] ? 2 : 1;
    memcpy(out->shape, shape + (shape[0] ? 0 : 1), out->rank * sizeof *shape);
    if (source.id == w.id)
        add_jobs(pl, w.id, t, s.cols);
    else
        unpack(pl, w.id, t);
    mark(pl, t);
    return 0;
}

/* Add all experts of a layer in one role. */
static int add_experts(struct planner *pl, struct weight_ref w,
                       const struct quantize_module *m, struct qwick_err *e)
{
    struct st_out_tensor *out = add_out(pl, w, choose_type(pl, w, m->cols));
    if (!out)
        return err_oom(e, NAMES_BYTES);
    const size_t shape[] = {m->stack, m->rows, m->cols};
    out->rank = 3;
    memcpy(out->shape, shape, sizeof shape);
    for (size_t i = 0, at = 0; i < m->n_parts; i++) {
        add_job(pl, m->parts[i], at, 0);
        at += m->parts[i].n;
        mark(pl, m->parts[i].src);
    }
    return 0;
}

/* *module: the layer's first one; moves on. quantize_experts has them in the
 * order of parts. */
static int add_layer(struct planner *pl, size_t layer, size_t *module,
                     struct qwick_err *e)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct part *p = &parts[i];
        struct weight_ref w = {.id = p->id, .layer = layer};
        if (!has_part(&pl->s->c.layers[layer], p->where) ||
            (!is_expert(p->id) &&
             !pl->p->naming.names->of[source_of(pl, p->id)][0]))
            continue;
        if (is_expert(p->id)
                ? add_experts(pl, w, &pl->p->modules[(*module)++], e)
                : add_weight(pl, w, p->optional, e))
            return -1;
    }
    return 0;
}

static int add_all(struct planner *pl, struct qwick_err *e)
{
    struct weight_ref w = {.id = WEIGHT_EMBED};
    size_t module = 0;
    if (add_weight(pl, w, false, e))
        return -1;
    for (size_t i = 0; i < pl->s->c.n_layers; i++)
        if (add_layer(pl, i, &module, e))
            return -1;
    w.id = WEIGHT_NORM;
    if (add_weight(pl, w, false, e))
        return -1;
    w.id = WEIGHT_HEAD;
    return pl->s->c.tied_head ? 0 : add_weight(pl, w, false, e);
}

/* ---- the rest of the source -----------------------------------------------
 */

static void note_unused(const struct planner *pl)
{
    size_t n_outside = 0;
    char line[64];
    for (size_t i = 0; i < st_count(pl->s->set); i++) {
        const struct st_tensor *t = st_at(pl->s->set, i);
        if (pl->used[i])
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

/* The sums for the report. */
static void tensors_count(struct quantize_plan *p)
{
    const struct quantize_shard *s = p->shards;
    for (size_t i = 0; i < s->n_jobs; i++) {
        size_t n = s->jobs[i].from.n;
        enum dtype type = s->out[s->jobs[i].out[0]].dtype;
        p->n_params += n;
        p->bytes_read += n * dtype_bytes(s->jobs[i].from.src->dtype);
        p->bytes_written += n / dtype_block(type) * dtype_bytes(type);
    }
}

static int reserve(struct quantize_plan *p, size_t n_layers, size_t n_tensors,
                   struct qwick_err *e)
{
    /* each layer's weights, and the embedding, the last norm and the head */
    size_t n_out = n_layers * N_PARTS + 3;
    /* a job takes a tensor, a part of one with value heads, or half of an
       expert in a fused one */
    size_t n_jobs = n_tensors;
    for (size_t i = 0; i < p->n_modules; i++)
        n_jobs += p->modules[i].n_parts;
    n_jobs += n_tensors;
    /* or the queries, keys, values or gates of a key head in a packed one */
    n_jobs += 4 * p->n_k_heads * n_layers;
    p->shards = calloc(1, sizeof *p->shards);
    p->names = calloc(n_out, sizeof *p->names);
    p->changes = calloc(n_out, sizeof *p->changes);
    if (!p->shards || !p->names || !p->changes)
        return err_oom(e, n_out * sizeof *p->names);
    p->n_shards = 1;
    strcpy(p->shards->name, OUTDIR_FILE);
    p->shards->out = calloc(n_out, sizeof *p->shards->out);
    p->shards->jobs = calloc(n_jobs + 1, sizeof *p->shards->jobs);
    return p->shards->out && p->shards->jobs
               ? 0
               : err_oom(e, n_out * sizeof *p->shards->out);
}

int quantize_gguf_tensors(struct quantize_plan *p,
                          const struct quantize_source *s,
                          const struct quantize_type *t, struct qwick_err *e)
{
    size_t n = st_count(s->set);
    struct planner pl = {
        .p = p, .s = s, .type = t, .path = checkpoint_dir(s->ck)};
    p->naming = names_choose(s->c.arch->names, s->set);
    p->n_k_heads = s->c.delta.n_k_heads;
    p->n_v_heads = s->c.delta.n_v_heads;
    p->modules = calloc(3 * s->c.n_layers + 1, sizeof *p->modules);
    p->claims = calloc(n + 1, sizeof *p->claims);
    pl.used = calloc(n + 1, sizeof *pl.used);
    int rc = p->modules && p->claims && pl.used
                 ? 0
                 : err_oom(e, (n + 1) * sizeof *p->modules);
    for (size_t i = 0; i < n && !rc; i++)
        rc = quantize_check_tensor(st_at(s->set, i), pl.path, e);
    if (!rc)
        rc = quantize_experts(p, s->set, pl.path, &s->c, e);
    if (!rc)
        rc = reserve(p, s->c.n_layers, n, e);
    if (!rc) {
        pl.shard = p->shards;
        rc = add_all(&pl, e);
    }
    if (!rc) {
        note_unused(&pl);
        tensors_count(p);
    }
    free(pl.used);
    return rc;
}
