#include "engine/engine.h"

#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "file/hash.h"

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

/* n_ctx_max, stop ids and sampling are left out: no key depends on them. */
static int put_config(struct buf *b, const struct config *c)
{
    const size_t sizes[] = {
        c->vocab_size,
        c->d_model,
        c->d_ff,
        c->n_layers,
        c->n_heads,
        c->n_kv_heads,
        c->head_dim,
        (size_t)c->rope,
        c->rope_original,
        c->rope_truncate,
        c->tied_head,
        c->attention_bias,
        c->sliding_window,
        (size_t)c->quant.all.bits,
        c->quant.all.group,
        c->quant.n,
    };
    const double reals[] = {
        c->rms_eps,        c->rope_theta,     c->rope_factor,
        c->rope_beta_fast, c->rope_beta_slow, c->rope_attention,
    };
    int bad = put_string(b, c->model_type, strlen(c->model_type));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        bad |= put(b, sizes[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        bad |= put_double(b, reals[i]);
    for (size_t i = 0; c->layer_slides && i < c->n_layers; i++)
        bad |= buf_putc(b, (char)c->layer_slides[i]);
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

/* Tensors come in the order of their files. */
static uint64_t hash_files(const struct qwick_engine *eng)
{
    const char *last = NULL;
    uint64_t h = 0;
    for (size_t i = 0; i < st_count(eng->weights); i++) {
        const struct st_tensor *t = st_at(eng->weights, i);
        char path[4096];
        struct stat st;
        if (last && !strcmp(last, t->file))
            continue;
        last = t->file;
        checkpoint_path(eng->ck, t->file, path, sizeof path);
        if (stat(path, &st))
            continue;
        const uint64_t v[] = {(uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                              (uint64_t)st.st_mtim.tv_nsec};
        h = hash_bytes(h, v, sizeof v);
    }
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

int engine_fingerprint(struct qwick_engine *eng, struct fingerprint *out,
                       struct qwick_err *e)
{
    struct fingerprint *own = &eng->fingerprint;
    if (!own->model[0] && !own->model[1] && compute(eng, own)) {
        *own = (struct fingerprint){0};
        return err_oom(e, st_count(eng->weights) * N_PIECES * PIECE);
    }
    *out = *own;
    return 0;
}
