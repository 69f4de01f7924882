/* Dense modules: a linear layer and an activation, on the vector of a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "file/checkpoint.h"
#include "file/gguf.h"
#include "model/fixed.h"
#include "model/pooling_int.h"
#include "model/scratch.h"

/* ---- what files say ------------------------------------------------------ */

static int read_activation(enum dense_activation *out, const struct section *s,
                           struct qwick_err *e)
{
    /* classes of torch.nn; sentence-transformers' default is Tanh */
    static const char *const names[] = {
        [DENSE_IDENTITY] = "torch.nn.modules.linear.Identity",
        [DENSE_TANH] = "torch.nn.modules.activation.Tanh",
        [DENSE_RELU] = "torch.nn.modules.activation.ReLU",
        [DENSE_GELU] = "torch.nn.modules.activation.GELU",
        [DENSE_SIGMOID] = "torch.nn.modules.activation.Sigmoid"};
    static const char key[] = "activation_function";
    const struct json_value *v = json_get(s->v, key);
    *out = DENSE_TANH;
    if (!v)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_equals(v, names[i])) {
            *out = (enum dense_activation)i;
            return 0;
        }
    return section_bad(s, key,
                       "Identity, Tanh, ReLU, GELU or Sigmoid of torch.nn "
                       "(others are not supported)",
                       e);
}

/* Make room for a module whose input is the vector so far. */
static struct dense *add_dense(struct pooling *p, const char *path,
                               struct qwick_err *e)
{
    if (p->n_dense == POOLING_MAX_DENSE) {
        err_set(e, QWICK_ERR_MODEL, "%s: has more than %d Dense modules", path,
                POOLING_MAX_DENSE);
        return NULL;
    }
    struct dense *d = &p->dense[p->n_dense++];
    *d = (struct dense){.n_in = p->width};
    return d;
}

static int read_config(struct pooling *p, struct dense *d,
                       const struct section *s, struct qwick_err *e)
{
    static const struct fixed_field fixed[] = {
        {"module_input_name", "\"sentence_embedding\""},
        {"module_output_name", "\"sentence_embedding\""},
        {"use_residual", "false"},
        {NULL, NULL}};
    size_t n_in;
    char expected[64];
    if (section_size(s, "in_features", MAX_DIM, &n_in, e) ||
        section_size(s, "out_features", MAX_DIM, &d->n_out, e) ||
        section_opt_bool(s, "bias", true, &d->has_bias, e) ||
        fixed_check(s, fixed, NULL, e) || read_activation(&d->activation, s, e))
        return -1;
    snprintf(expected, sizeof expected, "%zu, the numbers of its input",
             d->n_in);
    if (n_in != d->n_in)
        return section_bad(s, "in_features", expected, e);
    p->width = d->n_out;
    return 0;
}

int pooling_read_dense(struct pooling *p, const struct checkpoint *ck,
                       const char *dir, bool normalise, struct qwick_err *e)
{
    struct pooling_file f;
    int rc = pooling_open_config(&f, ck, dir, e);
    struct dense *d = rc ? NULL : add_dense(p, f.path, e);
    if (d) {
        snprintf(d->dir, sizeof d->dir, "%s", dir);
        d->normalise = normalise;
        rc = read_config(p, d, &f.s, e);
    }
    json_free(f.doc);
    return d ? rc : -1;
}

int pooling_find_dense(struct pooling *p, const struct gguf *g,
                       struct qwick_err *e)
{
    static const char *const names[] = {"dense_2.weight", "dense_3.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct st_tensor *t = st_find(gguf_tensors(g), names[i]);
        struct dense *d = t ? add_dense(p, gguf_path(g), e) : NULL;
        if (!t)
            continue;
        if (!d)
            return -1;
        snprintf(d->dir, sizeof d->dir, "%s", names[i]);
        if (t->rank != 2 || t->shape[1] != d->n_in || !t->shape[0] ||
            t->shape[0] > MAX_DIM)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: tensor %s: must be a matrix with rows of %zu, "
                           "the numbers of its input",
                           gguf_path(g), names[i], d->n_in);
        d->n_out = p->width = t->shape[0];
    }
    return 0;
}

/* ---- weights ------------------------------------------------------------- */

static int open_bias(struct dense *d, struct qwick_err *e)
{
    const struct st_tensor *t =
        weights_find_dims(&d->weights, "linear.bias", &d->n_out, 1, "", e);
    if (!t || weights_need_float(&d->weights, t, "biases", e))
        return -1;
    d->bias = weights_floats(&d->weights, t, e);
    return d->bias ? 0 : -1;
}

static int bind_dense(struct dense *d, const struct st_set *set,
                      const char *path, const char *name, const struct model *m,
                      struct qwick_err *e)
{
    static const struct quant unquantized;
    static const struct names scheme = {
        .config = "config.json",
        .prefixes = {"", NULL},
        .of = {[WEIGHT_EMBED] = {"linear.weight"}}};
    static const struct names *const schemes[] = {&scheme, NULL};
    const struct matrix_shape shape = {0, d->n_out, d->n_in};
    bool found;
    if (weights_open(&d->weights, set, path, schemes, m->k, m->exact, e))
        return -1;
    d->weights.quant = &unquantized;
    if (weights_named(&d->weights, &d->weight, name, &shape, &found, e))
        return -1;
    if (!found) {
        /* missing, of another shape, or of a type that no format has */
        const struct st_tensor *t =
            weights_find(&d->weights, name, &shape, "", e);
        return t ? weights_need_float(&d->weights, t, "weights", e) : -1;
    }
    return d->has_bias ? open_bias(d, e) : 0;
}

static int open_module(struct dense *d, const struct checkpoint *ck,
                       const struct model *m, struct qwick_err *e)
{
    static const char file[] = "model.safetensors",
                      torch[] = "pytorch_model.bin";
    bool found;
    struct map map;
    const char *path = checkpoint_dir(ck);
    if (st_open_in(&d->set, ck, d->dir, file, &found, e))
        return -1;
    if (found)
        return bind_dense(d, d->set, path, "linear.weight", m, e);
    if (checkpoint_map_in(ck, d->dir, torch, &map, &found, e))
        return -1;
    if (found)
        map_close(&map);
    return found ? err_set(e, QWICK_ERR_MODEL,
                           "%s/%s/%s: is in PyTorch's format, which is not "
                           "supported; %s must hold the weights",
                           path, d->dir, torch, file)
                 : err_set(e, QWICK_ERR_MODEL,
                           "%s/%s/%s: no such file, but modules.json names it",
                           path, d->dir, file);
}

int pooling_open(struct pooling *p, const struct checkpoint *ck,
                 const struct model *m, struct qwick_err *e)
{
    const struct gguf *g = checkpoint_gguf(ck);
    for (size_t i = 0; i < p->n_dense; i++) {
        struct dense *d = &p->dense[i];
        if (g ? bind_dense(d, gguf_tensors(g), gguf_path(g), d->dir, m, e)
              : open_module(d, ck, m, e))
            return -1;
    }
    return 0;
}

/* ---- arithmetic ---------------------------------------------------------- */

static float activate(enum dense_activation how, float x)
{
    double z = (double)x;
    switch (how) {
    case DENSE_IDENTITY:
        break;
    case DENSE_TANH:
        return (float)tanh(z);
    case DENSE_RELU:
        return x < 0 ? 0 : x;
    case DENSE_GELU:
        return (float)(z / 2 * (1 + erf(z / sqrt(2))));
    case DENSE_SIGMOID:
        return (float)(1 / (1 + exp(-z)));
    }
    return x;
}

/* Scale vectors to length 1. A vector of zeros stays one. */
static void normalise(float *x, size_t n, size_t d)
{
    for (size_t i = 0; i < n; i++, x += d) {
        double sum = 0;
        for (size_t k = 0; k < d; k++)
            sum += (double)x[k] * (double)x[k];
        for (size_t k = 0; k < d && sum > 0; k++)
            x[k] = (float)((double)x[k] / sqrt(sum));
    }
}

struct dense_job {
    const struct dense *d;
    const struct model *m;
    struct scratch *s;
    const float *x;
    float *y;
    size_t n;
};

static void dense_rows(void *ctx, struct par_team *team, int tid,
                       int n_threads)
{
    const struct dense_job *j = ctx;
    const struct dense *d = j->d;
    size_t begin, end;
    (void)team;
    par_split(d->n_out, 16, tid, n_threads, &begin, &end);
    if (begin == end)
        return;
    struct row_product p = {.w = &d->weight,
                            .row = begin,
                            .n_rows = end - begin,
                            .n = j->n,
                            .y = j->y + begin,
                            .ldy = d->n_out,
                            .work = j->s->threads[tid].work};
    d->weight.ops->mul_f32(j->m->k, &p, j->x, d->n_in);
    for (size_t i = 0; i < j->n; i++)
        for (size_t r = begin; r < end; r++) {
            float *y = &j->y[i * d->n_out + r];
            *y = activate(d->activation, *y + (d->bias ? d->bias[r] : 0));
        }
}

int pooling_dense(const struct pooling *p, const struct model *m,
                  struct scratch *s, const float *x, size_t n, float **out,
                  struct qwick_err *e)
{
    size_t n_in = p->n_dense ? p->dense[0].n_in : p->width;
    float *from = calloc(n + 1, n_in * sizeof *from);
    *out = NULL;
    if (!from)
        return err_oom(e, n * n_in * sizeof *from);
    memcpy(from, x, n * n_in * sizeof *from);
    for (size_t i = 0; i < p->n_dense; i++) {
        const struct dense *d = &p->dense[i];
        float *to = calloc(n + 1, d->n_out * sizeof *to);
        if (!to) {
            free(from);
            return err_oom(e, n * d->n_out * sizeof *to);
        }
        if (d->normalise)
            normalise(from, n, d->n_in);
        struct dense_job j = {d, m, s, from, to, n};
        par_run(m->pool, dense_rows, &j);
        free(from);
        from = to;
    }
    *out = from;
    return 0;
}
