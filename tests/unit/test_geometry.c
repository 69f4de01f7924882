/* Logits of random geometries against a plain forward pass in double
 * (reference.h), on every level of this CPU.
 *
 * Bounds. The documented ones are 2e-5 with --exact, 1.2e-2 by default, 2e-2
 * with --kv q8 and 4e-2 on quantized weights. They hold for models that
 * propagate errors like real models. Tiny random models may amplify errors, for
 * example by a norm over two numbers near 0. If an error exceeds the documented
 * bound, the reference runs again with random errors in each place where the
 * mode rounds, as large as its roundings. The mode may then differ by as much
 * as this run. Random and real errors differ only in their signs, so their
 * effects differ by a small factor; AMPLIFIED leaves room for it. In a mixture
 * of experts, errors may swap two experts with nearly equal scores. Whether
 * they do depends on the signs of the errors, so more random runs are made. A
 * bound beyond USELESS would accept wrong results, so such runs are only
 * counted.
 *
 *   QWICK_GEOMETRIES  number of geometries
 *   QWICK_TEST_SEED   seed of the first one; later ones count up */
#include "test.h"

#include <float.h>

#include "base/cpu.h"
#include "engines.h"
#include "other_heads.h"
#include "qwick.h"
#include "reference.h"

#define EXACT_BOUND     2e-5
#define FAST_BOUND      1.2e-2
#define Q8_BOUND        2e-2
#define QUANTIZED_BOUND 4e-2
#define AMPLIFIED       4
#define USELESS         0.25

/* Roundings: sums of many f32 with --exact, bf16, int8 in groups. */
#define ROUND_EXACT 0x1p-22
#define ROUND_BF16  0x1p-9
#define ROUND_INT8  (1.0 / 254)

/* Sanitizers make a model ten times slower. */
#ifdef __SANITIZE_ADDRESS__
enum { DEFAULT_GEOMETRIES = 15 };
#else
enum { DEFAULT_GEOMETRIES = 40 };
#endif
enum { DRAWS = 3, MOE_DRAWS = 12 };

/* ---- geometries --------------------------------------------------------- */

static size_t pick(const size_t *from, size_t n)
{
    return from[between(0, n - 1)];
}
#define PICK(array) pick(array, sizeof array / sizeof *(array))

/* A number up to `most`, usually small. */
static size_t small(size_t most)
{
    double u = uniform();
    return 1 + (size_t)((double)most * u * u);
}

static void draw_heads(struct geometry *g)
{
    static const size_t wide[] = {32, 64, 96, 128, 160, 192, 256, 288, 320};
    static const size_t groups[] = {63,  64,  65,  128, 255, 256,  257,
                                    384, 511, 512, 513, 768, 1000, 1024};
    if (between(0, 3)) {
        g->n_kv_heads = small(5);
        g->group = small(16);
        g->head_dim = between(0, 1) ? PICK(wide) : 2 * small(140);
        while (g->n_kv_heads * g->group * g->head_dim > 2048)
            if (g->group > 1)
                g->group /= 2;
            else
                g->n_kv_heads--;
    } else { /* many query heads on one KV head */
        g->n_kv_heads = between(1, 2);
        g->group = PICK(groups);
        g->head_dim = 2 * between(1, 2);
    }
}

/* Draw a quantized geometry: all rows are whole groups. */
static void draw_quantized(struct geometry *g)
{
    static const size_t q_groups[] = {32, 64, 128}, bits[] = {2, 3, 4, 5, 6, 8};
    g->bits = (int)PICK(bits);
    g->q_group = PICK(q_groups);
    g->d_model = g->q_group * between(1, 2);
    g->d_ff = g->q_group * between(1, 3);
    while (g->n_kv_heads * g->group * g->head_dim % g->q_group)
        g->head_dim += 2;
}

/* Some experts get no token, some get all; layers may be dense in between. */
static void draw_experts(struct geometry *g)
{
    static const size_t counts[] = {1, 2, 3, 5, 8, 17, 40};
    g->n_experts = PICK(counts);
    g->n_active = between(1, g->n_experts < 4 ? g->n_experts : 4);
    g->expert_ff = g->bits ? g->q_group * between(1, 2) : small(150);
    g->sparse_step = between(0, 2) ? 1 : 2;
    g->normalise = between(0, 1);
    g->router_bits = between(0, 1) ? 8 : 0;
    g->layout = (enum expert_layout)between(0, N_LAYOUTS - 1);
    if (g->bits && g->layout == LAYOUT_FUSED)
        g->layout = LAYOUT_STACK;
}

/* Layers with a state between those that attend. */
static void draw_qwen35(struct geometry *g)
{
    g->qwen35 = true;
    g->packed = between(0, 1);
    g->mlx = between(0, 1);
    g->gemma = false;
    g->window = 0;
    g->n_layers = between(2, 4); /* one that attends, at least */
    g->n_lin_heads = small(5);
    g->lin_group = between(1, 3);
    g->d_k = small(40);
    g->d_v = g->bits ? g->q_group : small(40);
    g->conv = between(2, 6);
    g->n_rot = 2 * between(1, g->head_dim / 2);
    g->shared_ff = g->bits ? g->q_group * between(1, 2) : small(150);
    g->normalise = true;
}

static struct geometry draw_geometry(void)
{
    static const enum dtype types[] = {DT_BF16, DT_BF16, DT_F16, DT_F32};
    struct geometry g = {.n_layers = between(1, 3),
                         .d_model = between(2, 130),
                         .d_ff = small(260),
                         .vocab_size = between(2, 90),
                         .n_tokens = between(0, 1) ? small(70) : small(9),
                         .window = between(0, 3) ? 0 : between(1, 40),
                         .tied = between(0, 1),
                         .bias = !between(0, 3),
                         .dtype = types[between(0, 3)]};
    draw_heads(&g);
    if (!between(0, 3))
        draw_quantized(&g);
    if (!between(0, 2))
        draw_experts(&g);
    else
        g.gemma = !between(0, 2);
    if (!between(0, 3))
        draw_qwen35(&g);
    if (!between(0, 2)) { /* of the size of scores and logits */
        g.attn_cap = between(0, 1) ? 0.5 : 3;
        g.logit_cap = between(0, 1) ? 0 : 2;
    }
    return g;
}

/* Give some layers other heads. */
static void draw_other_heads(struct geometry *g)
{
    size_t n_heads = ref_n_heads(g), most = n_heads < 512 ? 1024 / n_heads : 2;
    g->n_layers = 3;
    if (g->gemma && !g->window)
        g->window = between(1, 40);
    do
        g->other_kv_heads = between(1, n_heads);
    while (n_heads % g->other_kv_heads);
    g->other_head_dim = 2 * between(1, most < 256 ? most : 256);
    while (g->other_head_dim < g->n_rot ||
           (g->bits && n_heads * g->other_head_dim % g->q_group))
        g->other_head_dim += 2;
}

static const char *describe(const struct geometry *g)
{
    static char text[512];
    snprintf(text, sizeof text,
             "%s%zu layers, %zu wide, d_ff %zu, %zu heads on %zu of %zu, "
             "or %zu of %zu, vocabulary %zu, %zu tokens, window %zu, %s, %d "
             "bits by %zu, "
             "%zu of %zu experts of %zu, step %zu, layout %d%s%s; states: %zu "
             "by %zu of %zu x %zu, convolution %zu, rotary %zu, shared %zu, "
             "caps %g and %g, v from k %d, norm of v %d, %zu shared",
             g->gemma    ? "Gemma, "
             : g->packed ? g->mlx ? "Qwen3-Next by MLX, " : "Qwen3-Next, "
             : g->qwen35 ? g->mlx ? "Qwen3.5 by MLX, " : "Qwen3.5, "
                         : "",
             g->n_layers, g->d_model, g->d_ff, g->n_kv_heads * g->group,
             g->n_kv_heads, g->head_dim, g->other_kv_heads, g->other_head_dim,
             g->vocab_size, g->n_tokens, g->window, dtype_name(g->dtype),
             g->bits, g->q_group, g->n_active, g->n_experts, g->expert_ff,
             g->sparse_step, (int)g->layout, g->tied ? ", tied" : "",
             g->bias ? ", bias" : "", g->n_lin_heads, g->lin_group, g->d_k,
             g->d_v, g->conv, g->n_rot, g->shared_ff, g->attn_cap, g->logit_cap,
             g->v_from_k, g->v_norm, g->n_shared);
    return text;
}

/* ---- bounds ------------------------------------------------------------- */

enum mode { MODE_EXACT, MODE_F32, MODE_F16, MODE_Q8, N_MODES };

static const char *const mode_names[N_MODES] = {
    "exact", "default, KV f32", "default, KV f16", "default, KV q8"};

/* One model, its tokens, and the true logits. */
struct trial {
    struct ref_model *m;
    int32_t *tokens;
    size_t n; /* number of logits */
    double *want;
    double drawn[N_MODES]; /* bounds; 0: not needed so far */
};

static double distance(const struct trial *t, const double *got)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < t->n; i++) {
        double d = got[i] - t->want[i];
        diff += d * d;
        norm += t->want[i] * t->want[i];
    }
    return sqrt(diff / norm);
}

static struct ref_noises noises_of(const struct geometry *g, enum mode mode)
{
    const struct ref_noise exact = {ROUND_EXACT, 0, 1},
                           bf16 = {ROUND_BF16, 0, 1};
    struct ref_noises z = {bf16, bf16, bf16};
    if (mode == MODE_EXACT)
        return (struct ref_noises){exact, exact, exact};
    if (g->bits)
        z.products = (struct ref_noise){ROUND_BF16, ROUND_INT8, g->q_group};
    if (mode == MODE_Q8)
        z.kv = (struct ref_noise){ROUND_BF16, ROUND_INT8, KV_I8_GROUP};
    return z;
}

static double stated_bound(const struct geometry *g, enum mode mode)
{
    return mode == MODE_EXACT ? EXACT_BOUND
           : g->bits          ? QUANTIZED_BOUND
           : mode == MODE_Q8  ? Q8_BOUND
                              : FAST_BOUND;
}

/* The bound from random errors. */
static double drawn_bound(const struct trial *t, enum mode mode)
{
    const struct ref_noises z = noises_of(&t->m->g, mode);
    double *got = ref_alloc(t->n, sizeof *got), worst = 0;
    int n = t->m->g.n_experts ? MOE_DRAWS : DRAWS;
    for (int i = 0; i < n; i++) {
        ref_forward(t->m, t->tokens, &z, got);
        worst = fmax(worst, distance(t, got));
    }
    free(got);
    return AMPLIFIED * worst;
}

static void trial_open(struct trial *t, const struct geometry *g)
{
    static const struct ref_noises none;
    t->m = ref_create(g);
    t->tokens = ref_alloc(g->n_tokens, sizeof *t->tokens);
    for (size_t i = 0; i < g->n_tokens; i++)
        t->tokens[i] = (int32_t)between(0, g->vocab_size - 1);
    t->n = g->n_tokens * g->vocab_size;
    t->want = ref_alloc(t->n, sizeof *t->want);
    ref_forward(t->m, t->tokens, &none, t->want);
    ref_write(t->m);
}

static void trial_close(struct trial *t)
{
    temp_clear();
    free(t->tokens);
    free(t->want);
    ref_free(t->m);
}

/* ---- the engine --------------------------------------------------------- */

static struct qwick_engine *open_engine(enum isa level, enum mode mode,
                                        size_t chunk, int threads)
{
    static const enum qwick_kv kv[N_MODES] = {
        [MODE_EXACT] = QWICK_KV_DEFAULT,
        [MODE_F32] = QWICK_KV_F32,
        [MODE_F16] = QWICK_KV_F16,
        [MODE_Q8] = QWICK_KV_Q8,
    };
    return engine_with(.model = temp_dir, .isa = isa_name(level),
                       .exact = mode == MODE_EXACT, .kv = kv[mode],
                       .prefill_chunk = chunk, .threads = threads);
}

struct rows {
    float *at;
    size_t vocab_size;
};

static int keep_row(void *ctx, size_t pos, const float *logits)
{
    struct rows *r = ctx;
    memcpy(r->at + pos * r->vocab_size, logits, r->vocab_size * sizeof *logits);
    return 0;
}

/* The logits of all tokens in passes of `chunk` tokens. *last: the last row if
 * up to three tokens are decoded instead. Both malloc'ed. */
static float *run(const struct trial *t, enum isa level, enum mode mode,
                  size_t chunk, int threads, float **last)
{
    const struct geometry *g = &t->m->g;
    struct qwick_engine *eng = open_engine(level, mode, chunk, threads);
    struct qwick_session *s;
    float *got = ref_alloc(t->n, sizeof *got);
    struct rows rows = {got, g->vocab_size};
    size_t decoded = g->n_tokens / 2 < 3 ? g->n_tokens / 2 : 3;
    size_t prompt = g->n_tokens - decoded;
    *last = ref_alloc(g->vocab_size, sizeof **last);
    struct qwick_err e;
    if (qwick_session_create(&s, eng, 0, &e))
        fail_msg("%s: seed %llu: %s", e.msg, (unsigned long long)seed,
                 describe(g));
    assert_int_equal(qwick_session_all_logits(s, t->tokens, g->n_tokens,
                                              keep_row, &rows, NULL),
                     0);
    assert_int_equal(qwick_session_rollback(s, 0, NULL), 0);
    assert_int_equal(qwick_session_sync(s, t->tokens, prompt, NULL), 0);
    for (size_t i = prompt; i < g->n_tokens; i++)
        assert_int_equal(qwick_session_decode(s, t->tokens[i], NULL), 0);
    memcpy(*last, qwick_session_logits(s), g->vocab_size * sizeof **last);
    qwick_session_free(s);
    qwick_engine_close(eng);
    return got;
}

static struct counts {
    size_t runs, amplified, useless;
    double worst[N_MODES]; /* error as a share of the bound */
} counts;

/* The error over all rows, and of the decoded last row. */
static double error_of(const struct trial *t, const float *got,
                       const float *last)
{
    size_t vocab_size = t->m->g.vocab_size;
    double *all = ref_alloc(t->n, sizeof *all), error;
    for (size_t i = 0; i < t->n; i++)
        all[i] = (double)got[i];
    error = distance(t, all);
    for (size_t i = 0; i < vocab_size; i++)
        all[t->n - vocab_size + i] = (double)last[i];
    error = fmax(error, distance(t, all));
    free(all);
    return error;
}

static void check_error(struct trial *t, enum isa level, enum mode mode,
                        size_t chunk, double error)
{
    double bound = stated_bound(&t->m->g, mode);
    counts.runs++;
    if (!(error <= bound)) {
        if (t->drawn[mode] == 0)
            t->drawn[mode] = drawn_bound(t, mode);
        bound = fmax(bound, t->drawn[mode]);
        counts.amplified++;
    }
    if (bound > USELESS) {
        counts.useless++;
        return;
    }
    if (!(error <= bound))
        fail_msg("%s, %s, chunk %zu: error %.2e over %.2e: seed %llu: %s",
                 isa_name(level), mode_names[mode], chunk, error, bound,
                 (unsigned long long)seed, describe(&t->m->g));
    counts.worst[mode] = fmax(counts.worst[mode], error / bound);
}

static void check_mode(struct trial *t, enum isa level, enum mode mode)
{
    static const size_t chunks[2] = {0, 3};
    float *got[2], *last[2];
    int coin = (int)between(0, 7); /* rarely: waiting threads spin, which is
                                      slow without a CPU for each */
    for (int i = 0; i < 2; i++) {
        int threads = i == coin ? 2 : 1;
        got[i] = run(t, level, mode, chunks[i], threads, &last[i]);
        check_error(t, level, mode, chunks[i], error_of(t, got[i], last[i]));
    }
    if (mode == MODE_EXACT) {
        size_t row = t->m->g.vocab_size;
        assert_memory_equal(got[0], got[1], t->n * sizeof *got[0]);
        assert_memory_equal(last[0], last[1], row * sizeof *last[0]);
        assert_memory_equal(last[0], got[0] + t->n - row,
                            row * sizeof *last[0]);
    }
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        free(last[i]);
    }
}

static void check_geometry(const struct geometry *g)
{
    struct trial t = {0};
    trial_open(&t, g);
    other_heads = g;
    for (int l = 0; l < ISA_COUNT; l++) {
        if (!cpu_has((enum isa)l))
            continue;
        check_mode(&t, (enum isa)l, MODE_EXACT);
        check_mode(&t, (enum isa)l, (enum mode)between(MODE_F32, MODE_Q8));
    }
    other_heads = NULL;
    trial_close(&t);
}

static unsigned long long number_of(const char *name, unsigned long long none)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : none;
}

static void random_geometries_match_the_reference(void **state)
{
    uint64_t first = number_of("QWICK_TEST_SEED", 1);
    size_t n = (size_t)number_of("QWICK_GEOMETRIES", DEFAULT_GEOMETRIES);
    printf("%zu geometries from seed %llu on\n", n, (unsigned long long)first);
    for (size_t i = 0; i < n; i++) {
        seed = first + i;
        draws = 0;
        struct geometry g = draw_geometry();
        check_geometry(&g);
    }
    printf("%zu runs; %zu beyond the stated bound, %zu of these of no use\n",
           counts.runs, counts.amplified, counts.useless);
    for (int mode = 0; mode < N_MODES; mode++)
        printf("%-16s at most %.2f of the bound\n", mode_names[mode],
               counts.worst[mode]);
}

static void layers_differ_in_heads(void **state)
{
    for (uint64_t i = 0; i < DEFAULT_GEOMETRIES / 2; i++) {
        seed = 1000 + i;
        draws = 0;
        struct geometry g = draw_geometry();
        draw_other_heads(&g);
        check_geometry(&g);
    }
}

/* Values from keys, a norm of values, and layers that read the keys of earlier
 * ones; each alone and together, some with other heads. */
static void keys_and_values_as_in_gemma4(void **state)
{
    for (uint64_t i = 0; i < DEFAULT_GEOMETRIES; i++) {
        seed = 5000 + i;
        draws = 0;
        struct geometry g;
        do
            g = draw_geometry();
        while (g.qwen35);
        if (i % 4 == 0)
            draw_other_heads(&g);
        g.n_layers = 2 + i % 4;
        g.v_from_k = i % 3 != 0;
        g.v_norm = i % 3 != 1;
        g.n_shared = i % 2 ? between(1, g.n_layers - 1) : 0;
        check_geometry(&g);
    }
}

/* Heads as in Gemma 4's layers without a window: all on one of 512. */
static void one_kv_head_of_512(void **state)
{
    for (size_t n = 1; n <= 70; n += n < 4 ? 1 : 22) {
        struct geometry g = {.n_layers = 9,
                             .d_model = 24,
                             .d_ff = 32,
                             .n_kv_heads = 1,
                             .group = 4,
                             .head_dim = 512,
                             .other_kv_heads = 2,
                             .other_head_dim = 256,
                             .vocab_size = 40,
                             .n_tokens = n,
                             .window = 20,
                             .v_from_k = n % 2,
                             .v_norm = true,
                             .n_shared = n % 3 * 2,
                             .dtype = DT_BF16};
        seed = n;
        draws = 0;
        check_geometry(&g);
    }
}

/* Biases, limits and weights of gpt-oss; a dense MLP beside the experts as in
 * Gemma 4; both. */
static void experts_of_other_kinds(void **state)
{
    for (uint64_t i = 0; i < DEFAULT_GEOMETRIES; i++) {
        seed = 4000 + i;
        draws = 0;
        struct geometry g;
        do
            g = draw_geometry();
        while (!g.n_experts || g.qwen35);
        g.clamped = i % 3 != 1;
        g.beside = i % 3 != 0;
        check_geometry(&g);
    }
}

/* With windows that leave few positions, and without. */
static void sinks_take_part_in_the_softmax(void **state)
{
    for (uint64_t i = 0; i < DEFAULT_GEOMETRIES / 2; i++) {
        seed = 2000 + i;
        draws = 0;
        struct geometry g = draw_geometry();
        g.sinks = true;
        if (i % 2 && !g.qwen35)
            g.window = between(1, 4);
        check_geometry(&g);
    }
}

/* Set the vectors of all layers whose names end so to a value. */
static void set_vectors(struct ref_model *m, const char *tail, float value)
{
    for (size_t i = 0; i < m->n; i++) {
        size_t len = strlen(m->t[i].name), n = m->t[i].cols;
        size_t n_tail = strlen(tail);
        if (len < n_tail || strcmp(m->t[i].name + len - n_tail, tail))
            continue;
        for (size_t j = 0; j < m->n_out; j++)
            for (size_t h = 0; h < n && !strcmp(m->out_names[j], m->t[i].name);
                 h++)
                memcpy((float *)m->out[j].data + h, &value, sizeof value);
        for (size_t h = 0; h < n; h++)
            m->t[i].v[h] = (double)value;
    }
}

/* Run a model with these values. finite: its results are as the reference's,
 * otherwise NaN. */
static void check_extreme(const struct geometry *g, const char *tail,
                          float value, bool finite)
{
    static const struct ref_noises none;
    struct trial t = {0};
    float *got, *last;
    seed = 3000;
    draws = 0;
    trial_open(&t, g);
    set_vectors(t.m, tail, value);
    ref_write(t.m);
    ref_forward(t.m, t.tokens, &none, t.want);
    other_heads = g;
    for (int l = 0; l < ISA_COUNT; l++)
        for (int mode = 0; mode < N_MODES && cpu_has((enum isa)l); mode++) {
            got = run(&t, (enum isa)l, (enum mode)mode, 0, 1, &last);
            if (finite)
                check_error(&t, (enum isa)l, (enum mode)mode, 0,
                            error_of(&t, got, last));
            for (size_t k = 0; k < t.n && !finite; k++)
                assert_true(isnan(got[k]));
            free(got);
            free(last);
        }
    other_heads = NULL;
    trial_close(&t);
}

static const struct geometry extreme = {.n_layers = 2,
                                        .d_model = 32,
                                        .d_ff = 40,
                                        .n_kv_heads = 2,
                                        .group = 4,
                                        .head_dim = 16,
                                        .vocab_size = 30,
                                        .n_tokens = 33,
                                        .window = 3,
                                        .dtype = DT_F32};

/* A sink of -inf changes nothing, and beside a huge one no value counts. NaN
 * stays NaN. */
static void extreme_sinks(void **state)
{
    static const float values[] = {-INFINITY, -FLT_MAX, 1e3f, FLT_MAX,
                                   INFINITY,  NAN};
    struct geometry g = extreme;
    g.sinks = true;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        check_extreme(&g, ".sinks", values[i], values[i] <= FLT_MAX);
}

/* The limits of the activation hold infinite values, except a gate of -inf. */
static void extreme_biases_of_experts(void **state)
{
    static const struct {
        const char *tail;
        float value;
        bool finite;
    } rows[] = {
        {".gate_bias", FLT_MAX, true},  {".gate_bias", INFINITY, true},
        {".gate_bias", -FLT_MAX, true}, {".gate_bias", -INFINITY, false},
        {".gate_bias", NAN, false},     {".up_bias", INFINITY, true},
        {".up_bias", -INFINITY, true},  {".up_bias", NAN, false},
        {".down_bias", NAN, false},     {"gate.bias", NAN, false},
        {"gate.bias", INFINITY, false}, {"gate.bias", -INFINITY, false},
    };
    struct geometry g = extreme;
    g.n_experts = 5;
    g.n_active = 2;
    g.expert_ff = 24;
    g.sparse_step = 1;
    g.clamped = true;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        g.beside = i % 2;
        check_extreme(&g, rows[i / 2].tail, rows[i / 2].value,
                      rows[i / 2].finite);
    }
}

/* 512 query heads on one KV head beside layers with many KV heads. */
static void many_heads_beside_few(void **state)
{
    for (size_t n = 1; n <= 40; n += n < 4 ? 1 : 9)
        for (int swap = 0; swap < 2; swap++) {
            struct geometry g = {.n_layers = 3,
                                 .d_model = 16,
                                 .d_ff = 24,
                                 .n_kv_heads = swap ? 128 : 1,
                                 .group = swap ? 4 : 512,
                                 .head_dim = swap ? 4 : 2,
                                 .other_kv_heads = swap ? 1 : 128,
                                 .other_head_dim = swap ? 2 : 4,
                                 .vocab_size = 20,
                                 .n_tokens = n,
                                 .window = 10,
                                 .attn_cap = (double)(n % 2),
                                 .dtype = DT_BF16};
            seed = n;
            draws = 0;
            check_geometry(&g);
        }
}

/* Prompt passes with fewer tokens than query heads per KV head. */
static void many_heads_on_one_kv_head(void **state)
{
    static const size_t groups[] = {256, 512, 1024};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (size_t n = 1; n <= 7; n++) {
            struct geometry g = {.n_layers = 2,
                                 .d_model = 16,
                                 .d_ff = 24,
                                 .n_kv_heads = 1,
                                 .group = groups[i],
                                 .head_dim = 2,
                                 .vocab_size = 20,
                                 .n_tokens = n,
                                 .dtype = DT_BF16};
            seed = i;
            draws = 0;
            check_geometry(&g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_heads_on_one_kv_head),
        cmocka_unit_test(many_heads_beside_few),
        cmocka_unit_test(layers_differ_in_heads),
        cmocka_unit_test(keys_and_values_as_in_gemma4),
        cmocka_unit_test(one_kv_head_of_512),
        cmocka_unit_test(experts_of_other_kinds),
        cmocka_unit_test(sinks_take_part_in_the_softmax),
        cmocka_unit_test(extreme_sinks),
        cmocka_unit_test(extreme_biases_of_experts),
        cmocka_unit_test(random_geometries_match_the_reference),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
