/* Mixtures of experts: layouts of one checkpoint, routing, broken files. Tests
 * for all models check the numbers, and that they do not depend on threads,
 * chunks and other sequences. */
#include "test.h"

#include "base/buf.h"
#include "base/cpu.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"
#include "golden.h"
#include "reference.h"
#include "qwick_tools.h"

#define MOE      "tests/golden/models/moe"
#define FAMILIES "tests/golden/families/"
enum { N_LAYERS = 3, N_EXPERTS = 8 }; /* of this golden */

/* ---- helpers ------------------------------------------------------------ */

/* The tensors of the golden; their data is borrowed. */
static struct tensors golden_tensors(struct st_set **set)
{
    struct tensors l = {0};
    assert_int_equal(st_open_file(set, MOE "/model.safetensors", NULL), 0);
    l.t = ref_alloc(st_count(*set), sizeof *l.t);
    for (size_t i = 0; i < st_count(*set); i++) {
        const struct st_tensor *t = st_at(*set, i);
        l.t[i] = (struct st_out_tensor){.name = t->name,
                                        .dtype = t->dtype,
                                        .rank = t->rank,
                                        .data = t->data};
        memcpy(l.t[i].shape, t->shape, sizeof t->shape);
    }
    l.n = st_count(*set);
    return l;
}

static void write_tensors(const struct tensors *l)
{
    temp_put_tensors("model.safetensors", l->t, l->n);
}

static void copy_config(void)
{
    char *data;
    size_t n;
    assert_int_equal(map_read_all(MOE "/config.json", 1 << 20, &data, &n, NULL),
                     0);
    temp_write("config.json", data, n);
    free(data);
}

static int open_model(struct qwick_engine **eng, const char *dir, bool exact,
                      enum isa isa, struct qwick_err *e)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    o.model = dir;
    o.exact = exact;
    o.isa = isa_name(isa);
    o.threads = 2;
    return qwick_engine_open(eng, &o, e);
}

/* The logits of all n tokens, malloc'ed. */
static float *logits_of(const char *dir, bool exact, enum isa isa, int32_t *ids,
                        size_t n)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    assert_ok(open_model(&eng, dir, exact, isa, &e), &e);
    struct golden g = {.ids = ids, .n = n};
    g.vocab_size = qwick_engine_info(eng)->vocab_size;
    float *out = ref_alloc(n * g.vocab_size, sizeof *out);
    assert_ok(all_logits(eng, &g, out, &e), &e);
    qwick_engine_close(eng);
    return out;
}

static void refuses(const char *a, const char *b, const char *c)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    if (!open_model(&eng, temp_dir, true, ISA_REF, &e))
        fail_msg("accepted: %s %s %s", a, b, c);
    assert_null(eng);
    if (e.code != QWICK_ERR_MODEL || !strstr(e.msg, a) || !strstr(e.msg, b) ||
        !strstr(e.msg, c) || !strstr(e.msg, temp_dir) || strchr(e.msg, '\n'))
        fail_msg("expected %s, %s, %s in: %s", a, b, c, e.msg);
}

static void layout_all(struct tensors *l, enum expert_layout layout)
{
    for (size_t i = 0; i < N_LAYERS; i++) {
        char mlp[32];
        snprintf(mlp, sizeof mlp, "model.layers.%zu.mlp", i);
        tensors_layout(l, mlp, N_EXPERTS, layout);
    }
}

/* ---- layouts ------------------------------------------------------------ */

/* Equal numbers in another layout give equal logits, bit by bit. */
static void float_layouts_have_equal_logits(void **state)
{
    struct golden g;
    assert_int_equal(golden_open(&g, "moe"), 0);
    copy_config();
    for (int l = 0; l < ISA_COUNT; l++)
        for (int exact = 0; exact < 2 && cpu_has((enum isa)l); exact++) {
            float *want = logits_of(MOE, exact, (enum isa)l, g.ids, g.n);
            for (int layout = 0; layout < N_LAYOUTS; layout++) {
                struct st_set *set;
                struct tensors t = golden_tensors(&set);
                layout_all(&t, (enum expert_layout)layout);
                write_tensors(&t);
                float *got =
                    logits_of(temp_dir, exact, (enum isa)l, g.ids, g.n);
                assert_memory_equal(got, want,
                                    g.n * g.vocab_size * sizeof *got);
                free(got);
                free(t.t);
                st_close(set);
            }
            free(want);
        }
    golden_close(&g);
}

/* Stacked experts with each of MLX's numbers of bits, and a router with its
 * own, give the same logits as one tensor per expert. test_geometry checks the
 * numbers. */
static void quantized_layouts_have_equal_logits(void **state)
{
    static const int widths[] = {2, 3, 4, 5, 6, 8};
    enum { N = 40, VOCAB = 50 };
    int32_t ids[N];
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)(i * 7 % VOCAB);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct geometry g = {.n_layers = 2,
                             .d_model = 128,
                             .d_ff = 64,
                             .n_kv_heads = 1,
                             .group = 2,
                             .head_dim = 32,
                             .vocab_size = VOCAB,
                             .n_tokens = N,
                             .dtype = i % 2 ? DT_F16 : DT_BF16,
                             .bits = widths[i],
                             .q_group = i % 2 ? 32 : 64,
                             .n_experts = 6,
                             .n_active = 2,
                             .expert_ff = 64 + 64 * (i % 2),
                             .sparse_step = 1,
                             .router_bits = 8,
                             .normalise = true};
        for (int exact = 0; exact < 2; exact++) {
            float *logits[2];
            for (int stacked = 0; stacked < 2; stacked++) {
                g.layout = stacked ? LAYOUT_STACK : LAYOUT_EACH;
                seed = i;
                draws = 0;
                struct ref_model *m = ref_create(&g);
                ref_write(m);
                ref_free(m);
                logits[stacked] =
                    logits_of(temp_dir, exact, cpu_best(), ids, N);
            }
            assert_memory_equal(logits[0], logits[1],
                                N * VOCAB * sizeof(float));
            free(logits[0]);
            free(logits[1]);
        }
    }
}

/* --preload copies every part of a stack. */
static void preloaded_stacks_are_the_same(void **state)
{
    struct golden g;
    struct st_set *set;
    struct qwick_err e;
    assert_int_equal(golden_open(&g, "moe"), 0);
    copy_config();
    struct tensors t = golden_tensors(&set);
    layout_all(&t, LAYOUT_FUSED);
    write_tensors(&t);
    struct qwick_engine *eng = engine_with(.model = temp_dir, .exact = true,
                                           .threads = 2, .preload = true);
    float *got = ref_alloc(g.n * g.vocab_size, sizeof *got);
    assert_ok(all_logits(eng, &g, got, &e), &e);
    qwick_engine_close(eng);
    float *want = logits_of(MOE, true, cpu_best(), g.ids, g.n);
    assert_memory_equal(got, want, g.n * g.vocab_size * sizeof *got);
    free(got);
    free(want);
    free(t.t);
    st_close(set);
    golden_close(&g);
}

/* ---- routing ------------------------------------------------------------ */

/* Fill tensors whose name has `part` with one value, or with other random
 * numbers if it is NULL. */
static void overwrite(struct ref_model *m, const char *part, const float *value)
{
    for (size_t i = 0; i < m->n_out; i++) {
        struct st_out_tensor *t = &m->out[i];
        float *x = (float *)(uintptr_t)t->data;
        if (!strstr(t->name, part))
            continue;
        for (size_t j = 0; j < t->shape[0] * t->shape[1]; j++)
            x[j] = value ? *value : (float)gauss();
    }
}

static struct ref_model *routed_model(void)
{
    const struct geometry g = {.n_layers = 1,
                               .d_model = 24,
                               .d_ff = 10,
                               .n_kv_heads = 1,
                               .group = 2,
                               .head_dim = 8,
                               .vocab_size = 30,
                               .n_tokens = 7,
                               .dtype = DT_F32,
                               .n_experts = 5,
                               .n_active = 2,
                               .expert_ff = 12,
                               .sparse_step = 1};
    seed = 3;
    draws = 0;
    return ref_create(&g);
}

static float *routed_logits(struct ref_model *m)
{
    static int32_t ids[] = {1, 2, 3, 20, 4, 25, 9};
    ref_write(m);
    ref_free(m);
    return logits_of(temp_dir, true, cpu_best(), ids, 7);
}

/* Among experts with equal scores, the lowest index wins. */
static void ties_go_to_the_lower_index(void **state)
{
    const float zero = 0;
    const size_t bytes = 7 * 30 * sizeof(float);
    struct ref_model *m = routed_model();
    overwrite(m, "mlp.gate.weight", &zero);
    float *want = routed_logits(m);
    for (int e = 0; e < 5; e++) {
        char part[32];
        snprintf(part, sizeof part, "experts.%d.down_proj", e);
        m = routed_model();
        overwrite(m, "mlp.gate.weight", &zero);
        overwrite(m, part, NULL);
        float *got = routed_logits(m);
        assert_int_equal(memcmp(got, want, bytes) != 0, e < 2);
        free(got);
    }
    free(want);
}

/* NaN scores make the logits NaN, and do no other harm. */
static void scores_that_are_no_numbers(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ref_model *m = routed_model();
        overwrite(m, "mlp.gate.weight", &bad[i]);
        float *logits = routed_logits(m);
        for (size_t j = 0; j < 7 * 30 && i == 0; j++)
            assert_true(isnan(logits[j]));
        free(logits);
    }
}

/* Every size of pass has its own way: routing by each thread or once, f32,
 * pairs or bf16, experts in equal shares or as threads come. The bits are the
 * same on any number of threads. The vocabulary has 320 tokens. */
static void threads_change_no_size(const char *dir, bool exact)
{
    static const size_t sizes[] = {1, 2, 4, 5, 8, 9, 31, 33, 63, 64, 130};
    int32_t ids[130];
    for (size_t i = 0; i < 130; i++)
        ids[i] = (int32_t)(i * 53 % 320);
    float *want[sizeof sizes / sizeof *sizes] = {0};
    for (int threads = 1; threads <= 5; threads++) {
        struct qwick_engine *eng =
            engine_with(.model = dir, .threads = threads, .exact = exact);
        struct qwick_session *s = open_session(eng);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t bytes = 320 * sizeof(float);
            assert_int_equal(qwick_session_rollback(s, 0, NULL), 0);
            assert_int_equal(qwick_session_sync(s, ids, sizes[i], NULL), 0);
            if (threads == 1) {
                want[i] = ref_alloc(320, sizeof(float));
                memcpy(want[i], qwick_session_logits(s), bytes);
            }
            assert_memory_equal(qwick_session_logits(s), want[i], bytes);
        }
        qwick_session_free(s);
        qwick_engine_close(eng);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        free(want[i]);
}

static void threads_change_no_size_of_pass(void **state)
{
    static const char *const dirs[] = {
        MOE, FAMILIES "gpt-oss-top3", FAMILIES "gpt-oss-top3-mlx4",
        FAMILIES "gemma4-top3", FAMILIES "gemma4-top3-mlx4"};
    for (size_t i = 0; i < 2 * sizeof dirs / sizeof *dirs; i++)
        threads_change_no_size(dirs[i / 2], i % 2);
}

/* ---- costs --------------------------------------------------------------- */

/* Run a step of n sequences, with equal or different tokens. Returns the bytes
 * of weights that it reads. */
static double step_bytes(struct qwick_engine *eng, size_t n, bool same)
{
    struct qwick_session *s[6];
    struct qwick_step steps[6];
    int32_t ids[6];
    for (size_t i = 0; i < n; i++) {
        ids[i] = same ? 7 : (int32_t)(7 + 41 * i);
        assert_int_equal(qwick_session_create(&s[i], eng, 0, NULL), 0);
        steps[i] = (struct qwick_step){s[i], &ids[i], 1, QWICK_ROWS_LAST};
    }
    double before = qwick_engine_weight_bytes(eng);
    assert_int_equal(qwick_engine_step(eng, steps, n, QWICK_LOGITS, NULL), 0);
    for (size_t i = 0; i < n; i++)
        qwick_session_free(s[i]);
    return qwick_engine_weight_bytes(eng) - before;
}

/* Only experts that at least one token chose count. */
static void experts_count_as_they_are_read(void **state)
{
    enum { ACTIVE = 2, EXPERT = 3 * 48 * 64 };
    struct qwick_engine *eng;
    struct qwick_err e;
    assert_ok(open_model(&eng, MOE, true, cpu_best(), &e), &e);
    const struct qwick_info *i = qwick_engine_info(eng);
    assert_int_equal(i->n_experts, N_EXPERTS);
    assert_int_equal(i->n_active_experts, ACTIVE);
    assert_int_equal(i->expert_d_ff, 48);
    size_t idle = N_LAYERS * (N_EXPERTS - ACTIVE) * EXPERT;
    assert_int_equal(i->n_active_params, i->n_params - idle);
    /* in BF16, with a tied head */
    assert_int_equal(i->decode_bytes, i->weight_bytes - 2 * idle);
    assert_true(step_bytes(eng, 1, true) == (double)i->decode_bytes);
    assert_true(step_bytes(eng, 6, true) == (double)i->decode_bytes);
    double more = step_bytes(eng, 6, false) - (double)i->decode_bytes;
    assert_true(more > 0 && more <= (double)(2 * idle));
    assert_true(fmod(more, 2 * EXPERT) == 0);
    /* experts of other tokens cost a token nothing */
    double all = qwick_forward_flops(eng, 0, 2), one;
    one = all - qwick_forward_flops(eng, 0, 1);
    assert_true(one < 2 * (double)i->n_active_params * 1.1);
    qwick_engine_close(eng);
}

/* A model larger than the memory. */
static void experts_that_do_not_fit(void **state)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    assert_ok(open_model(&eng, MOE, true, cpu_best(), &e), &e);
    const struct model *m = &eng->model;
    size_t all = m->weights.n_bytes, shared = m->shared_bytes;
    double step = (double)model_decode_bytes(m);
    double active = step - (double)shared;
    assert_true(shared + N_LAYERS * N_EXPERTS * m->layers[0].experts.bytes ==
                all);
    assert_true(model_disk_bytes(m, all) == 0);
    /* half of the experts fit */
    assert_true(model_disk_bytes(m, shared + (all - shared) / 2) == active / 2);
    assert_true(model_disk_bytes(m, shared) == active);
    assert_true(model_disk_bytes(m, shared - 1) == step);
    qwick_engine_close(eng);
}

/* ---- quantize ----------------------------------------------------------- */

static const struct geometry to_quantize = {.n_layers = 2,
                                            .d_model = 128,
                                            .d_ff = 64,
                                            .n_kv_heads = 1,
                                            .group = 2,
                                            .head_dim = 32,
                                            .vocab_size = 50,
                                            .n_tokens = 1,
                                            .dtype = DT_BF16,
                                            .n_experts = 6,
                                            .n_active = 2,
                                            .expert_ff = 192,
                                            .sparse_step = 1,
                                            .normalise = true};

/* Write a model of this geometry to temp_dir, in `shards` files. Each has some
 * experts of each layer. */
static void write_numbers(const struct geometry *g, size_t shards)
{
    struct ref_model *m;
    seed = 17;
    draws = 0;
    m = ref_create(g);
    ref_write(m);
    if (shards > 1) {
        struct buf index = {0};
        assert_int_equal(buf_puts(&index, "{\"weight_map\": {"), 0);
        for (size_t s = 0; s < shards; s++) {
            struct st_out_tensor part[REF_MAX_TENSORS];
            struct tensors l = {part, 0};
            char name[48];
            snprintf(name, sizeof name, "model-%zu.safetensors", s);
            for (size_t i = s; i < m->n_out; i += shards) {
                part[l.n++] = m->out[i];
                assert_int_equal(
                    buf_printf(&index, "%s\"%s\": \"%s\"",
                               index.data[index.len - 1] == '{' ? "" : ", ",
                               m->out[i].name, name),
                    0);
            }
            struct st_writer *w;
            assert_int_equal(
                st_writer_open(&w, temp_path(name), l.t, l.n, NULL), 0);
            assert_int_equal(st_writer_close(w, NULL), 0);
        }
        assert_int_equal(buf_puts(&index, "}}"), 0);
        temp_write("model.safetensors.index.json", index.data, index.len);
        assert_int_equal(unlink(temp_path("model.safetensors")), 0);
        buf_free(&index);
    }
    ref_free(m);
}

static void quantize_to(const char *dir, int bits, const char *skip)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    o.bits = bits;
    o.group = 64;
    o.force = true;
    o.threads = 2;
    o.skip = &skip;
    o.n_skip = skip ? 1 : 0;
    assert_ok(qwick_quantize(temp_dir, dir, &o, NULL, &e), &e);
}

/* Check the names, shapes and bits of the quantized tensors. */
static void check_written(const char *dir, int bits)
{
    struct qwick_engine *eng;
    struct qwick_tensor t;
    struct qwick_err e;
    const struct geometry *g = &to_quantize;
    size_t stacks = 0;
    assert_ok(open_model(&eng, dir, true, cpu_best(), &e), &e);
    const struct qwick_info *info = qwick_engine_info(eng);
    assert_int_equal(info->quant_bits, bits);
    assert_int_equal(info->quant_overrides, bits < 8 ? g->n_layers : 0);
    if (bits < 8)
        assert_int_equal(info->params_by_bits[8],
                         g->n_layers * g->n_experts * g->d_model);
    for (size_t i = 0; !qwick_tensor_at(eng, i, &t, NULL); i++) {
        assert_true(t.used);
        assert_null(strstr(t.name, ".experts."));
        if (!strstr(t.name, "switch_mlp.gate_proj."))
            continue;
        stacks++;
        assert_int_equal(t.rank, 3);
        assert_int_equal(t.shape[0], g->n_experts);
        assert_int_equal(t.shape[1], g->expert_ff);
    }
    assert_int_equal(stacks, 3 * g->n_layers);
    qwick_engine_close(eng);
}

/* Quantizing any layout, in one file or several, gives the same weights as
 * quantizing them one by one, with a router of 8 bits. */
static void quantized_experts_are_stacked(void **state)
{
    static const int widths[] = {4, 3, 8};
    static int32_t ids[] = {1, 2, 30, 4, 5, 26, 7, 48, 9};
    enum { N = sizeof ids / sizeof *ids };
    char dir[80];
    snprintf(dir, sizeof dir, "%s/out", temp_dir);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct geometry g = to_quantize;
        g.bits = widths[i];
        g.q_group = 64;
        g.router_bits = widths[i] < 8 ? 8 : 0;
        write_numbers(&g, 1);
        float *want = logits_of(temp_dir, true, cpu_best(), ids, N);
        for (int layout = 0; layout < N_LAYOUTS; layout++)
            for (size_t shards = 1; shards <= 3; shards += 2) {
                temp_clear();
                g = to_quantize;
                g.layout = (enum expert_layout)layout;
                write_numbers(&g, shards);
                quantize_to(dir, widths[i], NULL);
                float *got = logits_of(dir, true, cpu_best(), ids, N);
                assert_memory_equal(got, want, N * g.vocab_size * sizeof *got);
                free(got);
                check_written(dir, widths[i]);
            }
        free(want);
        temp_clear();
    }
}

/* Experts that are not quantized keep their layout. */
static void experts_may_stay_dense(void **state)
{
    static int32_t ids[] = {1, 2, 30};
    char dir[80];
    snprintf(dir, sizeof dir, "%s/out", temp_dir);
    float *first = NULL;
    for (int layout = 0; layout < N_LAYOUTS; layout++) {
        struct geometry g = to_quantize;
        temp_clear();
        g.layout = (enum expert_layout)layout;
        write_numbers(&g, 1);
        quantize_to(dir, 4, "*.switch_mlp.*");
        float *got = logits_of(dir, true, cpu_best(), ids, 3);
        if (!first) {
            first = ref_alloc(3 * g.vocab_size, sizeof *first);
            memcpy(first, got, 3 * g.vocab_size * sizeof *first);
        }
        assert_memory_equal(got, first, 3 * g.vocab_size * sizeof *first);
        free(got);
        struct st_set *set;
        assert_int_equal(
            st_open_file(&set, temp_path("out/model.safetensors"), NULL), 0);
        assert_true((st_find(set, "model.layers.1.mlp.experts.5.up_proj"
                                  ".weight") != NULL) ==
                    (layout == LAYOUT_EACH));
        st_close(set);
    }
    free(first);
}

/* In GGUF, too, experts are stacked. */
static void gguf_files_of_all_layouts_are_equal(void **state)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    char out[80], *want = NULL, *got;
    size_t n_want = 0, n;
    snprintf(out, sizeof out, "%s/out.gguf", temp_dir);
    o.format = QWICK_QUANTIZE_GGUF;
    o.force = true;
    copy_config();
    for (int layout = -1; layout < N_LAYOUTS; layout++) {
        struct st_set *set;
        struct tensors t = golden_tensors(&set);
        if (layout >= 0)
            layout_all(&t, (enum expert_layout)layout);
        write_tensors(&t);
        assert_ok(qwick_quantize(temp_dir, out, &o, NULL, &e) ||
                      map_read_all(out, 1 << 26, &got, &n, &e),
                  &e);
        if (!want) {
            want = got;
            n_want = n;
        } else {
            assert_int_equal(n, n_want);
            assert_memory_equal(got, want, n);
            free(got);
        }
        free(t.t);
        st_close(set);
    }
    free(want);
}

static void quantize_refuses(const char *skip, enum qwick_err_code code,
                             const char *a, const char *b)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    o.skip = &skip;
    o.n_skip = skip ? 1 : 0;
    assert_int_equal(qwick_quantize(temp_dir, temp_path("out"), &o, NULL, &e),
                     -1);
    if (e.code != code || !strstr(e.msg, a) || !strstr(e.msg, b))
        fail_msg("expected %s, %s in: %s", a, b, e.msg);
}

static void experts_that_cannot_be_quantized(void **state)
{
    struct geometry g = to_quantize;
    g.layout = LAYOUT_FUSED;
    write_numbers(&g, 1);
    quantize_refuses("*.1.*up_proj", QWICK_ERR_USAGE,
                     "model.layers.1.mlp.switch_mlp.gate_proj", "one tensor");
    struct st_set *set;
    copy_config();
    struct tensors t = golden_tensors(&set);
    *tensors_find(&t, "model.layers.2.mlp.experts.7.down_proj.weight") =
        t.t[t.n - 1];
    t.n--;
    write_tensors(&t);
    quantize_refuses(NULL, QWICK_ERR_MODEL,
                     "model.layers.2.mlp.experts.7.down_proj.weight",
                     "missing");
    free(t.t);
    st_close(set);
    t = golden_tensors(&set);
    struct st_out_tensor *x =
        tensors_find(&t, "model.layers.0.mlp.experts.2.up_proj.weight");
    x->shape[0]--;
    write_tensors(&t);
    quantize_refuses(NULL, QWICK_ERR_MODEL, x->name, "[48, 64]");
    x->shape[0]++;
    x->dtype = DT_F16;
    write_tensors(&t);
    quantize_refuses(NULL, QWICK_ERR_MODEL, x->name, "dtype F16");
    free(t.t);
    st_close(set);
}

/* ---- broken files ------------------------------------------------------- */

static void each_missing_expert_is_named(void **state)
{
    static const char *const names[] = {
        "model.layers.1.mlp.gate.weight",
        "model.layers.0.mlp.experts.0.gate_proj.weight",
        "model.layers.2.mlp.experts.7.up_proj.weight",
        "model.layers.1.mlp.experts.3.down_proj.weight"};
    copy_config();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct st_set *set;
        struct tensors t = golden_tensors(&set);
        *tensors_find(&t, names[i]) = t.t[t.n - 1];
        t.n--;
        write_tensors(&t);
        refuses(names[i], "missing", "tensor");
        free(t.t);
        st_close(set);
    }
}

static void shapes_of_stacks_are_checked(void **state)
{
    static const struct {
        enum expert_layout layout;
        const char *name, *want;
    } rows[] = {
        {LAYOUT_EACH, "model.layers.0.mlp.gate.weight", "[8, 64] by"},
        {LAYOUT_EACH, "model.layers.2.mlp.experts.5.down_proj.weight",
         "[64, 48] by"},
        {LAYOUT_FUSED, "model.layers.1.mlp.experts.gate_up_proj",
         "[8, 96, 64] by"},
        {LAYOUT_FUSED, "model.layers.0.mlp.experts.down_proj",
         "[8, 64, 48] by"},
        {LAYOUT_STACK, "model.layers.0.mlp.switch_mlp.up_proj.weight",
         "[8, 48, 64] by"},
    };
    copy_config();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct st_set *set;
        struct tensors t = golden_tensors(&set);
        layout_all(&t, rows[i].layout);
        struct st_out_tensor *x = tensors_find(&t, rows[i].name);
        assert_non_null(x);
        x->shape[0]--; /* one expert or row less */
        write_tensors(&t);
        refuses(rows[i].name, rows[i].want, "shape [");
        free(t.t);
        st_close(set);
    }
}

/* All experts of a layer must take activations of one type. */
static void formats_of_a_role_must_agree(void **state)
{
    struct st_set *set;
    copy_config();
    struct tensors t = golden_tensors(&set);
    struct st_out_tensor *x =
        tensors_find(&t, "model.layers.1.mlp.experts.6.up_proj.weight");
    x->dtype = DT_F16; /* as many bytes */
    write_tensors(&t);
    refuses("model.layers.1.mlp.experts.6.up_proj.weight", "F16", "BF16");
    free(t.t);
    st_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(float_layouts_have_equal_logits, fresh),
        cmocka_unit_test_setup(quantized_layouts_have_equal_logits, fresh),
        cmocka_unit_test_setup(preloaded_stacks_are_the_same, fresh),
        cmocka_unit_test_setup(ties_go_to_the_lower_index, fresh),
        cmocka_unit_test_setup(scores_that_are_no_numbers, fresh),
        cmocka_unit_test_setup(threads_change_no_size_of_pass, fresh),
        cmocka_unit_test_setup(experts_count_as_they_are_read, fresh),
        cmocka_unit_test_setup(experts_that_do_not_fit, fresh),
        cmocka_unit_test_setup(quantized_experts_are_stacked, fresh),
        cmocka_unit_test_setup(experts_may_stay_dense, fresh),
        cmocka_unit_test_setup(gguf_files_of_all_layouts_are_equal, fresh),
        cmocka_unit_test_setup(experts_that_cannot_be_quantized, fresh),
        cmocka_unit_test_setup(each_missing_expert_is_named, fresh),
        cmocka_unit_test_setup(shapes_of_stacks_are_checked, fresh),
        cmocka_unit_test_setup(formats_of_a_role_must_agree, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
