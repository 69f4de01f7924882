/* A Gated DeltaNet layer of a forward pass, for random shapes: against the
 * recurrence of the paper in double, and with equal bits in passes of any
 * length, with any number of threads, in batches, and after going back.
 * QWICK_TEST_SEED is the seed. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "base/rng.h"
#include "model/format.h"
#include "model/pass.h"

/* The tokens of a sequence cross several blocks and two pages. */
enum { N_LAYERS = 3, FIRST = 0, LAST = 2, N_TOKENS = 150, MAX_SPANS = 3 };

static uint64_t seed = 1, draws;

static size_t below(size_t n)
{
    return (size_t)(rng_uniform(seed, draws++) * (double)n);
}

/* About normal, with deviation 1. */
static float number(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rng_uniform(seed, draws++);
    return (float)sum;
}

static void *must(void *p)
{
    assert_non_null(p);
    return p;
}

static float *numbers(size_t n, double scale)
{
    float *x = must(malloc(n * sizeof *x));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)number() * scale);
    return x;
}

/* ---- a model of which only the recurrent layers are used ------------------
 */

/* Of value heads, or of the rows of the matrices for the layer's input. */
enum layout { GROUPED, TILED, PACKED_BA, PACKED };

struct shape {
    size_t d_model, n_k_heads, group, d_k, d_v, conv;
    enum layout layout;
};

/* The matrices for a layer's input without packing. */
struct split {
    struct matrix qkv, z, b, a;
};

struct net {
    struct model m;
    struct format_ops ops;
    struct layer layers[N_LAYERS];
    struct layer_config configs[N_LAYERS];
    struct split split[N_LAYERS];
    float *norm;
    float *owned[32]; /* of matrices */
    size_t n_owned;
};

static struct matrix matrix(struct net *net, size_t rows, size_t cols)
{
    float *w = numbers(rows * cols, 1 / sqrt((double)cols));
    net->owned[net->n_owned++] = w;
    return (struct matrix){.format = &format_f32,
                           .ops = &net->ops,
                           .rows = rows,
                           .cols = cols,
                           .step = 1,
                           .data = {(unsigned char *)w},
                           .dtype = DT_F32};
}

/* Rows of a matrix that go into a packed one: `each` of every key head. */
struct packed_rows {
    const struct matrix *m;
    size_t first, each;
};

/* The rows of n parts, those of a key head together. */
static struct matrix pack(struct net *net, const struct packed_rows *parts,
                          size_t n)
{
    size_t heads = net->m.config.delta.n_k_heads, cols = parts[0].m->cols;
    size_t rows = 0;
    for (size_t i = 0; i < n; i++)
        rows += parts[i].each * heads;
    struct matrix all = matrix(net, rows, cols);
    float *to = net->owned[net->n_owned - 1];
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < n; i++) {
            const struct packed_rows *p = &parts[i];
            const float *from = (const float *)(const void *)p->m->data[0] +
                                (p->first + h * p->each) * cols;
            memcpy(to, from, p->each * cols * sizeof *to);
            to += p->each * cols;
        }
    return all;
}

static void fill_inputs(struct net *net, struct delta *d, const struct split *s,
                        enum layout layout)
{
    const struct delta_config *c = &net->m.config.delta;
    size_t keys = c->n_k_heads * c->d_k, group = c->n_v_heads / c->n_k_heads;
    const struct packed_rows qkvz[] = {{&s->qkv, 0, c->d_k},
                                       {&s->qkv, keys, c->d_k},
                                       {&s->qkv, 2 * keys, group * c->d_v},
                                       {&s->z, 0, group * c->d_v}};
    const struct packed_rows ba[] = {{&s->b, 0, group}, {&s->a, 0, group}};
    bool packed = layout == PACKED, packed_ba = packed || layout == PACKED_BA;
    struct matrix *to = d->inputs;
    *to++ = packed ? pack(net, qkvz, 4) : s->qkv;
    if (!packed)
        *to++ = s->z;
    *to++ = packed_ba ? pack(net, ba, 2) : s->b;
    if (!packed_ba)
        *to++ = s->a;
    d->n_inputs = (size_t)(to - d->inputs);
    d->tiled = layout == TILED;
    delta_find_columns(d, c, packed, packed_ba);
}

static void fill_layer(struct net *net, size_t layer, enum layout layout)
{
    const struct config *c = &net->m.config;
    struct delta *d = &net->layers[layer].delta;
    size_t channels = delta_channels(&c->delta), heads = c->delta.n_v_heads;
    size_t values = heads * c->delta.d_v;
    net->split[layer] = (struct split){
        .qkv = matrix(net, channels, c->d_model),
        .z = matrix(net, values, c->d_model),
        .b = matrix(net, heads, c->d_model),
        .a = matrix(net, heads, c->d_model),
    };
    *d = (struct delta){
        .out = matrix(net, c->d_model, values),
        .conv = numbers(c->delta.conv * channels, 0.7),
        .decay = numbers(heads, 1),
        .dt_bias = numbers(heads, 2),
        .norm = numbers(c->delta.d_v, 1),
    };
    fill_inputs(net, d, &net->split[layer], layout);
    /* from heads that hardly forget to heads that only see the last tokens */
    for (size_t h = 0; h < heads; h++)
        d->decay[h] = -expf(2 * d->decay[h] - 2);
}

static struct net *net_new(const struct shape *s)
{
    struct net *net = must(calloc(1, sizeof *net));
    struct config *c = &net->m.config;
    net->m.last_stored = LAST;
    *c = (struct config){.arch = &arch_qwen35,
                         .d_model = s->d_model,
                         .n_layers = N_LAYERS,
                         .n_heads = 2,
                         .n_kv_heads = 1,
                         .head_dim = 4,
                         /* a norm of few small numbers amplifies errors: by
                            ten at most with this */
                         .rms_eps = 1e-2,
                         .delta = {.n_k_heads = s->n_k_heads,
                                   .n_v_heads = s->n_k_heads * s->group,
                                   .d_k = s->d_k,
                                   .d_v = s->d_v,
                                   .conv = s->conv},
                         .layers = net->configs};
    for (size_t i = 0; i < N_LAYERS; i++)
        net->configs[i] =
            (struct layer_config){.window = NO_WINDOW, .recurrent = i != 1};
    config_number_layers(c);
    net->m.k = kernels_best();
    net->m.normalise = net->m.k->rmsnorm;
    net->m.exact = true;
    net->m.layers = net->layers;
    format_f32.fill(&net->ops, net->m.k, true);
    fill_layer(net, FIRST, s->layout);
    fill_layer(net, LAST, s->layout);
    net->norm = numbers(s->d_model, 1);
    return net;
}

static void net_free(struct net *net)
{
    for (size_t i = 0; i < N_LAYERS; i += LAST) {
        struct delta *d = &net->layers[i].delta;
        free(d->conv);
        free(d->decay);
        free(d->dt_bias);
        free(d->norm);
    }
    for (size_t i = 0; i < net->n_owned; i++)
        free(net->owned[i]);
    free(net->norm);
    free(net);
}

static size_t width_of(const struct net *net)
{
    return net->m.config.delta.n_v_heads * net->m.config.delta.d_v;
}

/* ---- the recurrence in double ---------------------------------------------
 */

static void multiply(double *y, const struct matrix *w, const double *x)
{
    const float *p = (const float *)(const void *)w->data[0];
    for (size_t r = 0; r < w->rows; r++) {
        y[r] = 0;
        for (size_t c = 0; c < w->cols; c++)
            y[r] += (double)p[r * w->cols + c] * x[c];
    }
}

static double silu(double z)
{
    return z / (1 + exp(-z));
}

/* x / sqrt(scale * sum of squares + eps) * by */
static void normalise(double *out, const double *x, size_t n, double scale,
                      double eps, double by)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] / sqrt(scale * sum + eps) * by;
}

/* One value head of one token; s [d_k, d_v] is its state. */
static void head_step(const struct delta_config *c, double *s, const double *q,
                      const double *k, const double *v, double decay,
                      double beta, double *o)
{
    for (size_t j = 0; j < c->d_v; j++) {
        double delta = v[j];
        o[j] = 0;
        for (size_t i = 0; i < c->d_k; i++) {
            s[i * c->d_v + j] *= decay;
            delta -= s[i * c->d_v + j] * k[i];
        }
        for (size_t i = 0; i < c->d_k; i++) {
            s[i * c->d_v + j] += k[i] * beta * delta;
            o[j] += s[i * c->d_v + j] * q[i];
        }
    }
}

struct truth {
    double *s;   /* [n_v_heads, d_k, d_v] */
    double *qkv; /* [N_TOKENS, channels] */
    double *xn, *mixed, *z, *b, *a, *q, *k, *o;
};

static double *doubles(size_t n)
{
    return must(calloc(n, sizeof(double)));
}

static void token_step(const struct net *net, size_t layer, struct truth *r,
                       size_t t, double *out)
{
    const struct delta_config *c = &net->m.config.delta;
    const struct delta *d = &net->layers[layer].delta;
    const struct split *in = &net->split[layer];
    size_t channels = delta_channels(c), nk = c->n_k_heads;
    double *row = r->qkv + t * channels;
    multiply(row, &in->qkv, r->xn);
    multiply(r->z, &in->z, r->xn);
    multiply(r->b, &in->b, r->xn);
    multiply(r->a, &in->a, r->xn);
    for (size_t i = 0; i < channels; i++) {
        double sum = 0;
        for (size_t j = 0; j < c->conv && j <= t; j++)
            sum += (double)d->conv[(c->conv - 1 - j) * channels + i] *
                   row[i - j * channels];
        r->mixed[i] = silu(sum);
    }
    for (size_t h = 0; h < c->n_v_heads; h++, out += c->d_v) {
        size_t kh = d->tiled ? h % nk : h / (c->n_v_heads / nk);
        double dt = r->a[h] + (double)d->dt_bias[h];
        double decay = exp((double)d->decay[h] * log1p(exp(dt)));
        double beta = 1 / (1 + exp(-r->b[h]));
        normalise(r->q, r->mixed + kh * c->d_k, c->d_k, 1, 1e-6,
                  1 / sqrt((double)c->d_k));
        normalise(r->k, r->mixed + (nk + kh) * c->d_k, c->d_k, 1, 1e-6, 1);
        head_step(c, r->s + h * c->d_k * c->d_v, r->q, r->k,
                  r->mixed + 2 * nk * c->d_k + h * c->d_v, decay, beta, r->o);
        normalise(out, r->o, c->d_v, 1 / (double)c->d_v, net->m.config.rms_eps,
                  1);
        for (size_t j = 0; j < c->d_v; j++)
            out[j] *= (double)d->norm[j] * silu(r->z[h * c->d_v + j]);
    }
}

/* All tokens x [N_TOKENS, d_model]: out [N_TOKENS, width]. */
static void true_layer(const struct net *net, size_t layer, const float *x,
                       double *out)
{
    const struct delta_config *c = &net->m.config.delta;
    size_t d = net->m.config.d_model, channels = delta_channels(c);
    struct truth r = {.s = doubles(c->n_v_heads * c->d_k * c->d_v),
                      .qkv = doubles(N_TOKENS * channels),
                      .xn = doubles(d),
                      .mixed = doubles(channels),
                      .z = doubles(width_of(net)),
                      .b = doubles(c->n_v_heads),
                      .a = doubles(c->n_v_heads),
                      .q = doubles(c->d_k),
                      .k = doubles(c->d_k),
                      .o = doubles(c->d_v)};
    double *all[] = {r.s, r.qkv, r.xn, r.mixed, r.z, r.b, r.a, r.q, r.k, r.o};
    for (size_t t = 0; t < N_TOKENS; t++) {
        for (size_t i = 0; i < d; i++)
            r.xn[i] = (double)x[t * d + i];
        normalise(r.xn, r.xn, d, 1 / (double)d, net->m.config.rms_eps, 1);
        for (size_t i = 0; i < d; i++)
            r.xn[i] *= (double)net->norm[i];
        token_step(net, layer, &r, t, out + t * width_of(net));
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- passes ---------------------------------------------------------------
 */

struct run {
    struct pass pass;
    const struct net *net;
    size_t layer;
};

static void body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct run *r = ctx;
    struct worker w = {.p = &r->pass,
                       .k = r->net->m.k,
                       .team = team,
                       .own = &r->pass.s->threads[tid],
                       .tid = tid,
                       .n_threads = n_threads};
    pass_delta(&w, r->layer, r->net->norm,
               r->layer == LAST ? r->pass.n_kept : r->pass.n);
}

/* One pass of a layer over spans; x [tokens, d_model] of each. Rows of the
 * results go to out of each span: all, or in the last layer those it wants. */
static void pass(struct net *net, struct scratch *s, size_t layer,
                 const struct span *spans, size_t n_spans,
                 const float *const *x, float *const *out)
{
    struct pass_io io = {.spans = spans, .n_spans = n_spans};
    bool stop = false;
    size_t d = net->m.config.d_model, width = width_of(net), at = 0;
    struct run r = {.pass = {.m = &net->m,
                             .s = s,
                             .io = &io,
                             .single = true,
                             .products = PRODUCTS_SKINNY,
                             .stop = &stop},
                    .net = net,
                    .layer = layer};
    for (size_t i = 0; i < n_spans; i++) {
        r.pass.n += spans[i].n;
        r.pass.single = r.pass.single && spans[i].n == 1;
        struct kv_cache *kv = spans[i].kv;
        assert_int_equal(kv_reserve(kv, kv->n + spans[i].n, NULL), 0);
        if (kv->n == 0) /* the values of a new state must not matter */
            memset(kv->state.live, 0xff, state_live_bytes(&kv->state));
    }
    assert_int_equal(scratch_reserve(s, &net->m, r.pass.n, 2 * N_TOKENS, NULL),
                     0);
    for (size_t i = 0; i < n_spans; i++)
        for (size_t t = 0; t < spans[i].n; t++, at++)
            memcpy(s->x + at * scratch_ld(d), x[i] + t * d, d * sizeof(float));
    pass_plan_attention(&r.pass);
    par_run(net->m.pool, body, &r);
    at = 0;
    for (size_t i = 0; i < n_spans; i++) {
        size_t n = layer != LAST || spans[i].rows == ROWS_ALL ? spans[i].n
                   : spans[i].rows == ROWS_LAST               ? 1
                                                              : 0;
        for (size_t t = 0; t < n; t++, at++)
            memcpy(out[i] + t * width, s->attn + at * scratch_ld(width),
                   width * sizeof(float));
        kv_advance(spans[i].kv, spans[i].n);
    }
}

/* A net's threads and memory. */
static struct scratch *threads_start(struct net *net, int n)
{
    struct scratch *s;
    net->m.pool = must(par_create(n));
    net->m.n_threads = par_threads(net->m.pool);
    assert_int_equal(scratch_create(&s, &net->m, NULL), 0);
    return s;
}

static void threads_stop(struct net *net, struct scratch *s)
{
    scratch_free(s);
    par_free(net->m.pool);
    net->m.pool = NULL;
}

/* All tokens of x in one pass on one thread. */
static float *at_once(struct net *net, size_t layer, const float *x)
{
    struct scratch *s = threads_start(net, 1);
    struct kv_cache kv;
    float *out = must(malloc(N_TOKENS * width_of(net) * sizeof *out));
    assert_int_equal(kv_init(&kv, kv_kind(QWICK_KV_F32), &net->m.config, NULL), 0);
    struct span span = {.kv = &kv, .n = N_TOKENS, .rows = ROWS_ALL};
    pass(net, s, layer, &span, 1, &x, &out);
    kv_free(&kv);
    threads_stop(net, s);
    return out;
}

/* Some tokens of a pass: often one, often across blocks. */
static size_t some(size_t left)
{
    size_t most = below(2) ? 3 : below(2) ? 40 : N_TOKENS;
    return 1 + below(left < most ? left : most);
}

/* ---- tests ----------------------------------------------------------------
 */

static const struct shape shapes[] = {
    {24, 2, 1, 16, 16, 4, GROUPED}, {33, 3, 2, 8, 24, 4, GROUPED},
    {20, 2, 3, 20, 7, 2, GROUPED},  {17, 1, 8, 5, 33, 8, GROUPED},
    {16, 2, 4, 32, 1, 3, TILED},    {40, 4, 2, 17, 19, 5, TILED},
    {12, 1, 1, 1, 3, 6, GROUPED},   {32, 3, 5, 9, 4, 7, TILED},
    {9, 5, 1, 64, 65, 32, GROUPED}, {24, 2, 2, 16, 16, 4, PACKED},
    {33, 3, 4, 8, 23, 4, PACKED},   {20, 4, 1, 20, 7, 2, PACKED},
    {17, 1, 8, 5, 33, 8, PACKED},   {40, 3, 2, 17, 19, 5, PACKED_BA},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Tests of each shape get a net and tokens. */
static void each_shape(void (*test)(struct net *net, const float *x))
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct net *net = net_new(&shapes[i]);
        float *x = numbers(N_TOKENS * shapes[i].d_model, 1);
        test(net, x);
        free(x);
        net_free(net);
    }
}

static void compare_truth(struct net *net, const float *x)
{
    size_t n = N_TOKENS * width_of(net);
    for (size_t layer = 0; layer < N_LAYERS; layer += LAST) {
        double *want = doubles(n), diff = 0, norm = 0;
        float *got = at_once(net, layer, x);
        true_layer(net, layer, x, want);
        for (size_t i = 0; i < n; i++) {
            diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
            norm += want[i] * want[i];
        }
        /* the documented bound of --exact */
        if (!(sqrt(diff / norm) < 2e-5))
            fail_msg("layer %zu: off by %g (seed %llu)", layer,
                     sqrt(diff / norm), (unsigned long long)seed);
        free(want);
        free(got);
    }
}

static void equals_the_recurrence(void **state)
{
    each_shape(compare_truth);
}

/* The length to which a sequence of n tokens goes back: often one that the live
 * state holds, otherwise any, which takes a snapshot. */
static size_t going_back(size_t n)
{
    size_t most = n < DELTA_BLOCK + 1 ? n : DELTA_BLOCK + 1;
    return below(3) ? n - below(most) : below(n);
}

/* One sequence in passes of random lengths; sometimes it goes back. Every page
 * carries a snapshot. */
static void compare_passes(struct net *net, const float *x)
{
    size_t width = width_of(net), d = net->m.config.d_model;
    float *want = at_once(net, FIRST, x);
    float *got = must(malloc(N_TOKENS * width * sizeof *got));
    for (int threads = 1; threads <= 5; threads++) {
        struct scratch *s = threads_start(net, threads);
        struct kv_cache kv;
        assert_int_equal(kv_init(&kv, kv_kind(QWICK_KV_F32), &net->m.config, NULL), 0);
        for (size_t n = 0, steps = 0; n < N_TOKENS; n = kv.n, steps++) {
            struct span span = {.kv = &kv, .n = some(N_TOKENS - n)};
            const float *from = x + n * d;
            float *to = got + n * width;
            kv.snapshot_pages = 1;
            pass(net, s, FIRST, &span, 1, &from, &to);
            if (steps < 40 && (kv.n == N_TOKENS || below(3) == 0))
                kv_truncate(&kv, going_back(kv.n));
        }
        assert_memory_equal(got, want, N_TOKENS * width * sizeof *got);
        kv_free(&kv);
        threads_stop(net, s);
    }
    free(want);
    free(got);
}

static void any_passes_same_bits(void **state)
{
    each_shape(compare_passes);
}

/* Several sequences in one pass, each with tokens of its own, in the last
 * layer, where only some rows go on. */
static void compare_batch(struct net *net, const float *x)
{
    static const enum span_rows wanted[] = {ROWS_NONE, ROWS_LAST, ROWS_ALL};
    size_t width = width_of(net), d = net->m.config.d_model, n[MAX_SPANS] = {0};
    float *all[MAX_SPANS], *want[MAX_SPANS], *out[MAX_SPANS];
    struct kv_cache kv[MAX_SPANS];
    struct scratch *s;
    for (size_t i = 0; i < MAX_SPANS; i++) {
        all[i] = i ? numbers(N_TOKENS * d, 1) : must(malloc(N_TOKENS * d * 4));
        if (i == 0)
            memcpy(all[0], x, N_TOKENS * d * sizeof *x);
        want[i] = at_once(net, LAST, all[i]);
        out[i] = must(malloc(N_TOKENS * width * sizeof *out[i]));
        assert_int_equal(kv_init(&kv[i], kv_kind(QWICK_KV_F32), &net->m.config, NULL), 0);
    }
    s = threads_start(net, 3);
    for (bool left = true; left;) {
        struct span spans[MAX_SPANS];
        const float *from[MAX_SPANS];
        size_t which[MAX_SPANS], m = 0;
        bool single = below(2);
        for (size_t i = 0; i < MAX_SPANS; i++)
            if (n[i] < N_TOKENS && below(4)) {
                spans[m] =
                    (struct span){.kv = &kv[i],
                                  .n = single ? 1 : some(N_TOKENS - n[i]),
                                  .rows = wanted[below(3)]};
                from[m] = all[i] + n[i] * d;
                which[m++] = i;
            }
        if (m)
            pass(net, s, LAST, spans, m, from, out);
        for (size_t j = 0; j < m; j++) {
            size_t i = which[j], end = n[i] + spans[j].n;
            size_t rows = spans[j].rows == ROWS_ALL    ? spans[j].n
                          : spans[j].rows == ROWS_LAST ? 1
                                                       : 0;
            assert_memory_equal(out[j], want[i] + (end - rows) * width,
                                rows * width * sizeof *out[j]);
            n[i] = end;
        }
        left = n[0] + n[1] + n[2] < MAX_SPANS * N_TOKENS;
    }
    threads_stop(net, s);
    for (size_t i = 0; i < MAX_SPANS; i++) {
        free(all[i]);
        free(want[i]);
        free(out[i]);
        kv_free(&kv[i]);
    }
}

static void batch_same_bits(void **state)
{
    each_shape(compare_batch);
}

int main(void)
{
    const char *env = getenv("QWICK_TEST_SEED");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_recurrence),
        cmocka_unit_test(any_passes_same_bits),
        cmocka_unit_test(batch_same_bits),
    };
    if (env && *env)
        seed = strtoull(env, NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
