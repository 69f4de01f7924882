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

/* Weights of a layer, in the order of the file. */
struct part {
    enum weight_id id;
    bool optional;
};

static const struct part attention[] = {
    {WEIGHT_ATTN_NORM, false}, {WEIGHT_Q_PROJ, false}, {WEIGHT_Q_BIAS, true},
    {WEIGHT_K_PROJ, false},    {WEIGHT_K_BIAS, true},  {WEIGHT_V_PROJ, false},
    {WEIGHT_V_BIAS, true},     {WEIGHT_Q_NORM, false}, {WEIGHT_K_NORM, false},
    {WEIGHT_O_PROJ, false},    {WEIGHT_O_BIAS, true},  {WEIGHT_MLP_NORM, false},
};
enum { N_ATTENTION = sizeof attention / sizeof *attention };

static const enum weight_id dense[] = {WEIGHT_GATE_PROJ, WEIGHT_UP_PROJ,
                                       WEIGHT_DOWN_PROJ};
/* in the order of quantize_experts */
static const enum weight_id mixture[] = {WEIGHT_EXPERTS_GATE, WEIGHT_EXPERTS_UP,
                                         WEIGHT_EXPERTS_DOWN};

/* Set the shape that a weight has by config.json; rows 0: a vector. */
static void shape_of(const struct config *c, struct weight_ref w, size_t *rows,
                     size_t *cols)
{
    const struct layer_config *l = &c->layers[w.layer];
    size_t d = c->d_model, q = c->n_heads * c->head_dim;
    size_t kv = c->n_kv_heads * c->head_dim;
    const struct {
        size_t rows, cols;
    } shapes[N_WEIGHTS] = {
        [WEIGHT_EMBED] = {c->vocab_size, d},
        [WEIGHT_HEAD] = {c->vocab_size, d},
        [WEIGHT_NORM] = {0, d},
        [WEIGHT_ATTN_NORM] = {0, d},
        [WEIGHT_MLP_NORM] = {0, d},
        [WEIGHT_Q_PROJ] = {q, d},
        [WEIGHT_K_PROJ] = {kv, d},
        [WEIGHT_V_PROJ] = {kv, d},
        [WEIGHT_O_PROJ] = {d, q},
        [WEIGHT_Q_BIAS] = {0, q},
        [WEIGHT_K_BIAS] = {0, kv},
        [WEIGHT_V_BIAS] = {0, kv},
        [WEIGHT_O_BIAS] = {0, d},
        [WEIGHT_Q_NORM] = {0, c->head_dim},
        [WEIGHT_K_NORM] = {0, c->head_dim},
        [WEIGHT_GATE_PROJ] = {l->d_ff, d},
        [WEIGHT_UP_PROJ] = {l->d_ff, d},
        [WEIGHT_DOWN_PROJ] = {d, l->d_ff},
        [WEIGHT_ROUTER] = {l->n_experts, d},
    };
    *rows = shapes[w.id].rows;
    *cols = shapes[w.id].cols;
}

static int check_shape(const struct planner *pl, const struct st_tensor *t,
                       size_t rows, size_t cols, struct qwick_err *e)
{
    char why[160];
    if (t->dtype >= DT_N_FLOAT)
        snprintf(why, sizeof why,
                 "dtype %s cannot be converted (BF16, F16 and F32 can)",
                 dtype_name(t->dtype));
    else if (rows == 0
                 ? t->rank == 1 && t->shape[0] == cols
                 : t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols)
        return 0;
    else
        snprintf(why, sizeof why,
                 "%zu dimensions and %zu elements in the file, shape [%zu, "
                 "%zu] by config.json",
                 t->rank, t->n_bytes / dtype_bytes(t->dtype), rows, cols);
    return quantize_err(pl->path, t, why, e);
}

/* ---- results --------------------------------------------------------------
 */

/* The name of a weight in GGUF, kept by the plan; NULL: out of memory. */
static const char *gguf_name(struct planner *pl, struct weight_ref w)
{
    char name[NAMES_BYTES];
    names_expand(name, &names_gguf, names_gguf.prefixes[0], w, 0);
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
    const char *name = gguf_name(pl, w);
    if (!name)
        return NULL;
    size_t i = pl->shard->n_out++;
    /* both schemes may store norms zero-centred */
    pl->p->plus[i] = pl->p->naming.names->plus[w.id] - names_gguf.plus[w.id];
    pl->shard->out[i] = (struct st_out_tensor){.name = name, .dtype = type};
    return &pl->shard->out[i];
}

static void add_job(struct planner *pl, struct quantize_part part, size_t at)
{
    pl->shard->jobs[pl->shard->n_jobs++] = (struct quantize_job){
        .from = part, .at = at, .out = {pl->shard->n_out - 1}};
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
        names_expand(name, &names_gguf, names_gguf.prefixes[0], w, 0);
        snprintf(why, sizeof why,
                 "stored as %s: rows of %zu elements are no multiple of "
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

/* Add a weight that is one tensor of the source. */
static int add_weight(struct planner *pl, struct weight_ref w, bool optional,
                      struct qwick_err *e)
{
    const struct naming *from = &pl->p->naming;
    const struct st_tensor *t = NULL;
    char name[NAMES_BYTES];
    size_t rows, cols;
    for (size_t v = 0;
         !t && names_expand(name, from->names, from->prefix, w, v); v++)
        t = st_find(pl->s->set, name);
    if (!t && optional)
        return 0;
    if (!t) {
        names_expand(name, from->names, from->prefix, w, 0);
        return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: missing", pl->path,
                       name);
    }
    shape_of(&pl->s->c, w, &rows, &cols);
    if (check_shape(pl, t, rows, cols, e))
        return -1;
    /* as converters do: vectors and routers are small and stay exact */
    enum dtype type =
        rows && w.id != WEIGHT_ROUTER ? choose_type(pl, w, cols) : DT_F32;
    struct st_out_tensor *out = add_out(pl, w, type);
    if (!out)
        return err_oom(e, NAMES_BYTES);
    out->rank = t->rank;
    memcpy(out->shape, t->shape, t->rank * sizeof *t->shape);
    add_job(pl,
            (struct quantize_part){t, 0, t->n_bytes / dtype_bytes(t->dtype)},
            0);
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
        add_job(pl, m->parts[i], at);
        at += m->parts[i].n;
        mark(pl, m->parts[i].src);
    }
    return 0;
}

/* *module: the layer's first one; moves on. */
static int add_layer(struct planner *pl, size_t layer, size_t *module,
                     struct qwick_err *e)
{
    for (size_t i = 0; i < N_ATTENTION; i++)
        if (add_weight(
                pl, (struct weight_ref){.id = attention[i].id, .layer = layer},
                attention[i].optional, e))
            return -1;
    bool experts = pl->s->c.layers[layer].n_experts > 0;
    struct weight_ref w = {.id = WEIGHT_ROUTER, .layer = layer};
    if (experts && add_weight(pl, w, false, e))
        return -1;
    for (size_t i = 0; i < 3; i++) {
        w.id = experts ? mixture[i] : dense[i];
        if (experts ? add_experts(pl, w, &pl->p->modules[(*module)++], e)
                    : add_weight(pl, w, false, e))
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
static void count(struct quantize_plan *p)
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
    size_t n_out = n_layers * (N_ATTENTION + 4) + 3;
    /* a job takes a tensor, or half of an expert in a fused one */
    size_t n_jobs = 0;
    for (size_t i = 0; i < p->n_modules; i++)
        n_jobs += p->modules[i].n_parts;
    n_jobs += n_tensors;
    p->shards = calloc(1, sizeof *p->shards);
    p->names = calloc(n_out, sizeof *p->names);
    p->plus = calloc(n_out, sizeof *p->plus);
    if (!p->shards || !p->names || !p->plus)
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
        count(p);
    }
    free(pl.used);
    return rc;
}
