/* LoRA adapters of encoders and of quantized weights, beside these and merged
 * by quantize. */
#include "engine/core/engine.h"
#include "golden_run.h"
#include "lora_made.h"
#include "model/scratch.h"
#include "qwick_tools.h"

#include <unistd.h>

#define FAMILIES "tests/golden/families/"

/* More than a pass may have that rounds nothing in adapters. */
enum { LONG = 100 };

/* ---- encoders ------------------------------------------------------------- */

/* Hidden states of one text, in memory that the caller frees. */
static float *states_of(struct qwick_engine *eng, const int32_t *ids, size_t n)
{
    const struct model *m = &eng->model;
    struct kv_cache kv;
    struct scratch *s;
    struct qwick_err e;
    float *out = malloc(n * m->config.d_model * sizeof *out);
    assert_ok(kv_init(&kv, eng->kv, &m->config, &e), &e);
    assert_ok(kv_reserve(&kv, n, &e), &e);
    assert_ok(scratch_create(&s, m, &e), &e);
    assert_ok(scratch_reserve(s, m, n, n, &e), &e);
    const struct span span = {.tokens = ids,
                              .n = n,
                              .n_type0 = n,
                              .rows = ROWS_ALL,
                              .kv = &kv,
                              .lora = eng->own_lora};
    const struct pass_io io = {.spans = &span, .n_spans = 1, .hidden = out};
    assert_int_equal(model_forward(m, s, &io), 0);
    kv_free(&kv);
    scratch_free(s);
    return out;
}

/* The error of an engine's states against those of another one. Both are
 * closed. */
static double apart(struct qwick_engine *got, struct qwick_engine *want,
                    size_t n)
{
    int32_t *ids = new_ids(n, 5);
    size_t d = want->model.config.d_model;
    float *x = states_of(got, ids, n), *y = states_of(want, ids, n);
    double error = relative_error(x, y, n * d);
    free(ids);
    free(x);
    free(y);
    qwick_engine_close(got);
    qwick_engine_close(want);
    return error;
}

struct encoder {
    const char *dir;
    size_t n;
};

static void check_encoder(enum isa isa, void *ctx)
{
    const struct encoder *x = ctx;
    const char *adapter = temp_path("adapter16");
    double error = apart(adapted(adapter, 0.1, .model = x->dir, .threads = 2,
                                 .isa = isa_name(isa)),
                         adapted(adapter, 0.1, .model = x->dir, .exact = true),
                         x->n);
    printf("%-10s %-48s %zu tokens: %.2e\n", isa_name(isa), x->dir, x->n,
           error);
    assert_true(error <= FLOAT_BOUND);
}

static void encoders_take_adapters(void **state)
{
    static const char *const dirs[] = {FAMILIES "bert-long",
                                       FAMILIES "modernbert-long",
                                       FAMILIES "embeddinggemma-long"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        put_adapted(dirs[i]);
        struct qwick_engine *base = engine_with(.model = dirs[i], .exact = true);
        double merged = apart(adapted(temp_path("adapter"), 1, .model = dirs[i],
                                      .exact = true, .threads = 2),
                              engine_with(.model = temp_path("merged"),
                                          .exact = true),
                              LONG),
               changed = apart(base,
                               adapted(temp_path("adapter"), 0.1,
                                       .model = dirs[i], .exact = true),
                               LONG);
        printf("%s: merged %.2e, base %.2e\n", dirs[i], merged, changed);
        assert_true(merged <= EXACT_BOUND);
        assert_true(changed > 2 * FLOAT_BOUND);
        for (size_t n = 1; n <= LONG; n += n == 1 ? 19 : LONG - 20) {
            struct encoder x = {dirs[i], n};
            each_isa(check_encoder, &x);
        }
    }
}

/* ---- quantized weights ----------------------------------------------------- */

static const char *const forms[] = {
    "qwen3-awq",        "qwen3-gptq-act",           "qwen3-w4a16",
    "qwen3-w4a16-asym", "qwen3-w4a16-asym-channel", "qwen3-w8a16",
    "qwen3-w8a8",       "qwen3-nvfp4",              "qwen3-nvfp4-modelopt",
    "qwen3-fp8-block",  "qwen3-fp8-row",            "qwen3-fp8-tensor"};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* The config without the fields of quantized weights. */
static void put_float_config(const char *dir)
{
    char command[2400];
    snprintf(command, sizeof command,
             "rm -rf %s && mkdir %s && sed 's/\"quantization/\"was/' "
             "%s/config.json >%s/config.json",
             temp_path("merged"), temp_path("merged"), dir,
             temp_path("merged"));
    assert_int_equal(system(command), 0);
}

/* The elements of a matrix, in the order of its input. */
static float *rows_of(const struct matrix *m)
{
    float *out = malloc(m->rows * m->cols * sizeof *out),
          *row = malloc(m->cols * sizeof *row);
    for (size_t r = 0; r < m->rows; r++) {
        m->ops->to_f32(kernels_ref(), row, m, r, 1);
        for (size_t c = 0; c < m->cols; c++)
            out[r * m->cols + (m->order ? m->order[c] : c)] = row[c];
    }
    free(row);
    return out;
}

/* Add the float32 elements of a matrix to `merged`, and an adapter of it to
 * `adapter`; an adapted matrix gets what the adapter adds. */
static void add_matrix(struct tensors *adapter, struct tensors *merged,
                       const char *module, const struct matrix *m,
                       uint32_t *seed)
{
    const size_t shape[] = {m->rows, m->cols}, a_shape[] = {RANK, m->cols},
                 b_shape[] = {m->rows, RANK};
    float *w = rows_of(m), *a = drawn(RANK * m->cols,
                                      sqrtf(3 / (float)m->cols), seed),
          *b = drawn(m->rows * RANK, 0.1f, seed);
    char name[256];
    add_product(w, a, b, m->rows, m->cols);
    snprintf(name, sizeof name, "%s.weight", module);
    add_tensor(merged, name, DT_F32, shape, 2, w);
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", module);
    add_tensor(adapter, name, DT_F32, a_shape, 2, a);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", module);
    add_tensor(adapter, name, DT_F32, b_shape, 2, b);
}

/* As put_adapted, of a checkpoint of Qwen3 with quantized weights. */
static void put_quantized(const char *dir)
{
    static struct tensors adapter, merged;
    struct qwick_engine *eng = engine_with(.model = dir, .exact = true);
    const struct model *m = &eng->model;
    struct st_set *set;
    struct qwick_err e;
    char path[256], module[128];
    uint32_t seed = 9;
    adapter.n = merged.n = 0;
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct attention *a = &m->layers[i].attn;
        const struct mlp *mlp = &m->layers[i].mlp;
        const struct {
            const char *name;
            const struct matrix *m;
        } all[] = {{"self_attn.q_proj", &a->q_proj},
                   {"self_attn.k_proj", &a->k_proj},
                   {"self_attn.v_proj", &a->v_proj},
                   {"self_attn.o_proj", &a->o_proj},
                   {"mlp.gate_proj", &mlp->gate_proj},
                   {"mlp.up_proj", &mlp->up_proj},
                   {"mlp.down_proj", &mlp->down_proj}};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            snprintf(module, sizeof module, "model.layers.%zu.%s", i,
                     all[k].name);
            add_matrix(&adapter, &merged, module, all[k].m, &seed);
        }
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(st_open_file(&set, path, &e), &e);
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        if (strstr(t->name, "_proj."))
            continue;
        assert_true(t->dtype < DT_N_FLOAT);
        void *copy = malloc(t->n_bytes + 1);
        memcpy(copy, t->data, t->n_bytes);
        add_tensor(&merged, t->name, t->dtype, t->shape, t->rank, copy);
    }
    st_close(set);
    qwick_engine_close(eng);
    put_float_config(dir);
    put_tensors(&adapter, &merged);
}

/* Logits of LONG tokens, in memory that the caller frees. The engine is
 * closed. */
static float *long_logits(struct qwick_engine *eng, size_t n, size_t *n_out)
{
    struct golden g = {.ids = new_ids(n, 3),
                       .n = n,
                       .vocab_size = qwick_engine_info(eng)->vocab_size};
    struct qwick_err e;
    float *out = malloc(g.n * g.vocab_size * sizeof *out);
    assert_ok(all_logits(eng, &g, out, &e), &e);
    *n_out = g.n * g.vocab_size;
    free(g.ids);
    qwick_engine_close(eng);
    return out;
}

static double logits_apart(struct qwick_engine *got, struct qwick_engine *want,
                           size_t n)
{
    size_t count;
    float *x = long_logits(got, n, &count), *y = long_logits(want, n, &count);
    double error = relative_error(x, y, count);
    free(x);
    free(y);
    return error;
}

static void check_form(enum isa isa, void *ctx)
{
    const struct encoder *x = ctx;
    const char *adapter = temp_path("adapter16");
    double error =
        logits_apart(adapted(adapter, 0.1, .model = x->dir, .threads = 2,
                             .isa = isa_name(isa)),
                     adapted(adapter, 0.1, .model = x->dir, .exact = true),
                     x->n);
    printf("%-10s %-48s %zu tokens: %.2e\n", isa_name(isa), x->dir, x->n,
           error);
    assert_true(error <= QUANTIZED_BOUND);
}

static void quantized_weights_take_adapters(void **state)
{
    for (size_t i = 0; i < N_FORMS; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, FAMILIES "%s", forms[i]);
        put_quantized(dir);
        double merged = logits_apart(adapted(temp_path("adapter"), 1,
                                             .model = dir, .exact = true,
                                             .threads = 2),
                                     engine_with(.model = temp_path("merged"),
                                                 .exact = true),
                                     LONG),
               changed = logits_apart(engine_with(.model = dir, .exact = true),
                                      adapted(temp_path("adapter"), 0.1,
                                              .model = dir, .exact = true),
                                      LONG);
        printf("%s: merged %.2e, base %.2e\n", dir, merged, changed);
        assert_true(merged <= EXACT_BOUND);
        assert_true(changed > 1.5 * QUANTIZED_BOUND);
        for (size_t n = 20; n <= LONG; n += LONG - 20) {
            struct encoder x = {dir, n};
            each_isa(check_form, &x);
        }
    }
}

/* ---- merged by quantize ---------------------------------------------------- */

/* The error of what quantize makes of a checkpoint and n adapters, against
 * `want`. type: of a GGUF file; NULL: 8 bits in MLX's format. */
static double error_of(const char *dir, const char *type, size_t n,
                       const char *want)
{
    const struct qwick_lora lora = {.path = temp_path("adapter16"),
                                    .scale = 1};
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct qwick_err e;
    char out[1024];
    snprintf(out, sizeof out, "%s", temp_path(type ? "out.gguf" : "out"));
    o.threads = 2;
    o.force = true;
    o.type = type;
    o.format = type ? QWICK_QUANTIZE_GGUF : QWICK_QUANTIZE_MLX;
    o.bits = type ? 0 : 8;
    o.group = type ? 0 : 32;
    o.loras = &lora;
    o.n_loras = n;
    assert_ok(qwick_quantize(dir, out, &o, &r, &e), &e);
    return logits_apart(engine_with(.model = out, .exact = true),
                        engine_with(.model = want, .exact = true), 20);
}

/* What quantize merges is what it makes of merged weights, whose sums were
 * rounded differently. MLX's format also has the scales in the source's type:
 * BF16, where merged weights get F32. */
static void check_merge(const char *dir, const char *type)
{
    const char *merged = temp_path("merged");
    double of_merged = error_of(merged, type, 0, merged),
           error = error_of(dir, type, 1, temp_path("merged"));
    printf("%-48s %-5s adapter %.2e, merged weights %.2e\n", dir,
           type ? type : "8 bit", error, of_merged);
    assert_true(error <= (type ? 1.02 : 2) * of_merged);
}

/* Writers of GGUF files put rows into another order, or take several tensors
 * together. */
static void quantize_merges_families(void **state)
{
    static const char *const names[] = {
        "granite-bias", "phi3-window", "llama3-tied",   "mistral3",
        "lfm2-long",    "ernie4_5",    "gemma2-one",    "qwen3next-odd",
        "gpt-oss",      "gemma4-kv",   "qwen2moe-top3", "smollm3-tied"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char dir[128], gguf[192];
        snprintf(dir, sizeof dir, FAMILIES "%s", names[i]);
        snprintf(gguf, sizeof gguf, "%s.gguf", dir);
        put_adapted(dir);
        check_merge(dir, NULL);
        check_merge(dir, "F16");
        bool recurrent = strstr(names[i], "qwen3next"); /* see other_heads */
        if (!recurrent && access(gguf, F_OK) == 0)
            check_merge(gguf, "F16");
    }
}

static void quantize_merges_quantized_weights(void **state)
{
    for (size_t i = 0; i < N_FORMS; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, FAMILIES "%s", forms[i]);
        put_quantized(dir);
        check_merge(dir, "F16");
        check_merge(dir, "BF16");
        check_merge(dir, "Q8_0");
        check_merge(dir, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders_take_adapters),
        cmocka_unit_test(quantized_weights_take_adapters),
        cmocka_unit_test(quantize_merges_families),
        cmocka_unit_test(quantize_merges_quantized_weights),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
