#include "engine/core/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/par.h"

enum { N_PIECES = 16, PIECE = 256 };

static int put(struct buf *b, uint64_t v)
{
    return buf_append(b, &v, sizeof v);
}

static int put_double(struct buf *b, double v)
{
    return buf_append(b, &v, sizeof v);
}

static int put_string(struct buf *b, const char *s, size_t n)
{
    return put(b, n) || buf_append(b, s, n) ? -1 : 0;
}

static int put_rope(struct buf *b, const struct rope_config *r)
{
    return put(b, (uint64_t)r->type) | put(b, r->n_rot) | put(b, r->original) |
           put(b, r->truncate) | put_double(b, r->theta) |
           put_double(b, r->factor) | put_double(b, r->beta_fast) |
           put_double(b, r->beta_slow) | put_double(b, r->attention);
}

static int put_unusual(struct buf *b, size_t tag, double value, double usual)
{
    return value == usual ? 0 : put(b, tag) | put_double(b, value);
}

/* What later families added. It is hashed only where it differs from what
 * earlier ones have, so that these keep their keys. */
static int put_added(struct buf *b, const struct config *c)
{
    bool one = c->n_ropes == 1; /* the others' layers have all been hashed */
    int bad = put_unusual(b, 1, (double)c->residual_scale, 1) |
              put_unusual(b, 2, (double)c->logit_scale, 1) |
              put_unusual(b, 3, one ? (double)c->embed_scale : 1, 1) |
              put_unusual(b, SIZE_MAX, (double)c->logit_cap, 0) |
              put_unusual(b, SIZE_MAX - 1, (double)c->ple_dim, 0) |
              put_unusual(b, SIZE_MAX - 2, (double)c->attn_cap, 0);
    for (size_t i = 0; i < c->n_ropes; i++) {
        const struct rope_config *r = &c->ropes[i];
        size_t whole = c->delta.n_k_heads ? r->n_rot : c->head_dim;
        bad |= put_unusual(b, 4, (double)(i ? whole : r->n_rot), (double)whole);
        bad |= put_unusual(b, 5, r->low_freq, 0) |
               put_unusual(b, 6, r->high_freq, 0) |
               put_unusual(b, 7, r->q_beta, 0) |
               put_unusual(b, 8, r->interleaved, 0);
        if (r->type == ROPE_PROPORTIONAL)
            bad |= put(b, r->n_turning);
        if (r->type == ROPE_LONGROPE)
            bad |= buf_append(b, r->short_factor, sizeof r->short_factor) |
                   buf_append(b, r->long_factor, sizeof r->long_factor);
    }
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct layer_config *l = &c->layers[i];
        double usual = (double)(1.0f / sqrtf((float)l->head_dim));
        bad |= put_unusual(b, 9 + 4 * i, (double)l->n_kv_heads,
                           (double)c->n_kv_heads) |
               put_unusual(b, 10 + 4 * i, (double)l->head_dim,
                           (double)c->head_dim);
        if (l->kv_back || l->v_from_k)
            bad |= put(b, i) | put(b, l->kv_back) | put(b, l->v_from_k);
        if (one)
            bad |= put_unusual(b, 11 + 4 * i, (double)l->score_scale, usual) |
                   put_unusual(b, 12 + 4 * i, (double)l->rope, 0);
    }
    return bad;
}

/* n_ctx_max, stop ids and sampling are left out: no key depends on them. */
static int put_config(struct buf *b, const struct config *c)
{
    const struct rope_config *rope = &c->ropes[0];
    const size_t sizes[] = {
        c->vocab_size,
        c->d_model,
        c->d_ff,
        c->n_layers,
        c->n_heads,
        c->n_kv_heads,
        c->head_dim,
        (size_t)rope->type,
        rope->original,
        rope->truncate,
        c->tied_head,
        c->qkv_bias,
        c->sliding_window,
        (size_t)c->quant.all.bits,
        c->quant.all.group,
        c->quant.n,
    };
    const double reals[] = {
        c->rms_eps,      rope->theta,     rope->factor,
        rope->beta_fast, rope->beta_slow, rope->attention,
    };
    int bad = put_string(b, c->model_type, strlen(c->model_type));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        bad |= put(b, sizes[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        bad |= put_double(b, reals[i]);
    for (size_t i = 0; i < c->n_layers; i++)
        bad |= buf_putc(b, c->layers[i].window != NO_WINDOW);
    /* a family with one rotary embedding hashes nothing more */
    for (size_t i = 1; i < c->n_ropes; i++)
        bad |= put_rope(b, &c->ropes[i]);
    for (size_t i = 0; i < c->n_layers && c->n_ropes > 1; i++)
        bad |= put(b, c->layers[i].rope) |
               put_double(b, (double)c->layers[i].score_scale);
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct layer_config *l = &c->layers[i];
        if (l->n_experts) /* dense models keep the keys of earlier versions */
            bad |= put(b, i) | put(b, l->n_active) |
                   put(b, (uint64_t)c->norm_topk_prob);
    }
    bad |= put_added(b, c);
    if (c->quant.fp8)
        bad |= put(b, c->quant.block_rows) | put(b, c->quant.block_cols);
    for (size_t i = 0; i < c->quant.n; i++) {
        const struct quant_override *o = &c->quant.v[i];
        bad |= put_string(b, o->module, o->len);
        bad |= put(b, (uint64_t)o->params.bits) | put(b, o->params.group);
    }
    return bad;
}

static int put_tensor(struct buf *b, const struct st_tensor *t)
{
    int bad = put_string(b, t->name, t->name_len);
    bad |= put(b, (uint64_t)t->dtype) | put(b, t->rank);
    for (size_t i = 0; i < t->rank; i++)
        bad |= put(b, t->shape[i]);
    if (t->n_bytes <= N_PIECES * PIECE)
        return bad | buf_append(b, t->data, t->n_bytes);
    size_t step = (t->n_bytes - PIECE) / (N_PIECES - 1);
    for (size_t i = 0; i < N_PIECES; i++) {
        size_t at = i + 1 < N_PIECES ? i * step : t->n_bytes - PIECE;
        bad |= buf_append(b, t->data + at, PIECE);
    }
    return bad;
}

static uint64_t hash_files(const struct qwick_engine *eng)
{
    const struct map_id *id;
    const char *name;
    uint64_t h = 0;
    for (size_t i = 0; (id = st_file_id(eng->weights, i, &name)) != NULL; i++)
        if (id->ino || id->dev)
            h = hash_bytes(h, id, sizeof *id);
    return h;
}

static int compute(const struct qwick_engine *eng, struct fingerprint *out)
{
    struct buf b = {0};
    int bad = put_config(&b, &eng->model.config);
    for (size_t i = 0; i < st_count(eng->weights) && !bad; i++)
        bad |= put_tensor(&b, st_at(eng->weights, i));
    if (!bad) {
        out->model[0] = hash_bytes(0x71776b31, b.data, b.len);
        out->model[1] = hash_bytes(0x9b97f4a7c15f39cc, b.data, b.len);
        out->files = hash_files(eng);
    }
    buf_free(&b);
    return bad;
}

/* Add what the files of an adapter say. */
static void add_lora(struct fingerprint *out, const struct lora_facts *f)
{
    for (size_t i = 0; i < 2; i++)
        out->model[i] = hash_bytes(out->model[i], f->hash, sizeof f->hash);
}

int engine_fingerprint(struct qwick_engine *eng, size_t lora,
                       struct fingerprint *out, struct qwick_err *e)
{
    struct fingerprint *own = &eng->fingerprint;
    if (!own->model[0] && !own->model[1] && compute(eng, own)) {
        *own = (struct fingerprint){0};
        return err_oom(e, st_count(eng->weights) * N_PIECES * PIECE);
    }
    *out = *own;
    if (lora)
        add_lora(out, &eng->model.loras.v[lora - 1]);
    return 0;
}

/* ---- contents ------------------------------------------------------------ */

/* A part of a tensor: the unit of work of a thread. */
struct slice {
    const unsigned char *data;
    size_t n;
    uint64_t hash;
};

struct reading {
    struct slice *slices;
    size_t n;
};

static void hash_slices(void *ctx, struct par_team *team, int tid,
                        int n_threads)
{
    struct reading *r = ctx;
    size_t begin, end;
    (void)tid;
    (void)n_threads;
    while (par_next(team, r->n, 1, &begin, &end))
        for (size_t i = begin; i < end; i++)
            r->slices[i].hash = hash_bulk(i, r->slices[i].data, r->slices[i].n);
}

int engine_contents(struct qwick_engine *eng, uint64_t *out,
                    struct qwick_err *e)
{
    enum { SLICE = 1 << 20 };
    struct reading r = {0};
    size_t cap = 0;
    if (eng->has_contents) {
        *out = eng->contents;
        return 0;
    }
    for (size_t i = 0; i < st_count(eng->weights); i++)
        cap += st_at(eng->weights, i)->n_bytes / SLICE + 1;
    r.slices = malloc((cap + 1) * sizeof *r.slices);
    if (!r.slices)
        return err_oom(e, cap * sizeof *r.slices);
    for (size_t i = 0; i < st_count(eng->weights); i++) {
        const struct st_tensor *t = st_at(eng->weights, i);
        if (eng->model.weights.used[i] == WEIGHT_TABLE)
            continue;
        for (size_t at = 0; at < t->n_bytes; at += SLICE) {
            size_t n = t->n_bytes - at < SLICE ? t->n_bytes - at : SLICE;
            r.slices[r.n++] = (struct slice){.data = t->data + at, .n = n};
        }
    }
    par_run(eng->pool, hash_slices, &r);
    uint64_t h = st_count(eng->weights);
    for (size_t i = 0; i < r.n; i++)
        h = hash_mix(h ^ r.slices[i].hash, 0xa0761d6478bd642fu ^ r.slices[i].n);
    free(r.slices);
    eng->contents = h;
    eng->has_contents = true;
    *out = h;
    return 0;
}

int engine_check_unchanged(const struct qwick_engine *eng, struct qwick_err *e)
{
    const struct map_id *id;
    const char *name;
    for (size_t i = 0; (id = st_file_id(eng->weights, i, &name)) != NULL; i++) {
        char path[4200];
        struct map_id now;
        checkpoint_path(eng->ck, name, path, sizeof path);
        if (!id->ino || map_id_now(&now, path) || now.dev != id->dev ||
            now.ino != id->ino || !memcmp(id, &now, sizeof now))
            continue;
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: was changed while it was in use", path);
    }
    return 0;
}
