/* LoRA adapters: their files, and their products against merged weights. */
#include <math.h>

#include "base/cpu.h"
#include "golden_run.h"
#include "gguf_build.h"
#include "tempdir.h"
#include "tensors_file.h"
#include "test.h"

#define LORA "tests/golden/lora/"

/* An engine with one adapter. */
#define adapted(PATH, SCALE, ...)                                      \
    engine_with(.loras = &(struct qwick_lora){.path = (PATH),          \
                                              .scale = (SCALE)},       \
                .n_loras = 1, __VA_ARGS__)

static void open_case(struct golden *g, const char *name, bool base)
{
    char path[256];
    snprintf(g->dir, sizeof g->dir, LORA "%s/base", name);
    snprintf(path, sizeof path, LORA "%s%s/expected.safetensors", name,
             base ? "/base" : "");
    assert_int_equal(golden_read(g, path), 0);
}

/* Logits of all positions in memory that the caller frees. */
static float *logits_of(struct qwick_engine *eng, const struct golden *g)
{
    struct qwick_err e;
    float *out = malloc(g->n * g->vocab_size * sizeof *out);
    assert_ok(all_logits(eng, g, out, &e), &e);
    return out;
}

static double error_of(struct qwick_engine *eng, const struct golden *g)
{
    float *got = logits_of(eng, g);
    double error = golden_error(g, got);
    free(got);
    qwick_engine_close(eng);
    return error;
}

/* ---- mlx-lm's form, made of PEFT's --------------------------------------- */

static void put_text(const char *name, const char *text)
{
    FILE *f = fopen(temp_path(name), "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Write the transposed tensors of PEFT's file at path. */
static void put_mlx(const char *dir, const char *path, double scale,
                    size_t rank)
{
    struct st_set *set;
    struct qwick_err e;
    static struct st_out_tensor t[64];
    static char names[64][160];
    char text[256], name[256];
    assert_ok(st_open_file(&set, path, &e), &e);
    size_t n = st_count(set);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *from = st_at(set, i);
        size_t rows = from->shape[0], cols = from->shape[1];
        uint16_t *data = malloc(rows * cols * sizeof *data);
        const char *begin = from->name + strlen("base_model.model.");
        const char *tail = strstr(begin, ".lora_");
        assert_int_equal(from->dtype, DT_BF16);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++)
                memcpy(&data[c * rows + r], from->data + 2 * (r * cols + c), 2);
        snprintf(names[i], sizeof names[i], "%.*s.lora_%c",
                 (int)(tail - begin), begin, tail[6] == 'A' ? 'a' : 'b');
        t[i] = (struct st_out_tensor){.name = names[i],
                                      .dtype = DT_BF16,
                                      .rank = 2,
                                      .shape = {cols, rows},
                                      .data = data};
    }
    mkdir(temp_path(dir), 0700);
    snprintf(name, sizeof name, "%s/adapters.safetensors", dir);
    temp_put_tensors(name, t, n);
    for (size_t i = 0; i < n; i++)
        free((void *)t[i].data);
    st_close(set);
    snprintf(text, sizeof text,
             "{\"fine_tune_type\": \"lora\", \"num_layers\": 3, "
             "\"lora_parameters\": {\"rank\": %zu, \"scale\": %g, "
             "\"dropout\": 0.0}}",
             rank, scale);
    snprintf(name, sizeof name, "%s/adapter_config.json", dir);
    put_text(name, text);
}

/* ---- goldens ------------------------------------------------------------- */

struct form {
    const char *golden, *path;
    double scale;
};

static void check_level(enum isa isa, void *ctx)
{
    const struct form *f = ctx;
    struct golden g;
    open_case(&g, f->golden, false);
    double exact = error_of(adapted(f->path, f->scale, .model = g.dir,
                                    .exact = true, .threads = 2,
                                    .isa = isa_name(isa)),
                            &g);
    double fast = error_of(adapted(f->path, f->scale, .model = g.dir,
                                   .threads = 2, .isa = isa_name(isa)),
                           &g);
    printf("%-10s %-44s exact %.2e  default %.2e\n", isa_name(isa), f->path,
           exact, fast);
    assert_true(exact <= EXACT_BOUND);
    assert_true(fast <= FLOAT_BOUND);
    golden_close(&g);
}

static void every_form_equals_the_merged_weights(void **state)
{
    put_mlx("mlx", LORA "all/adapter/adapter_model.safetensors", 2, 8);
    const struct form forms[] = {
        {"all", LORA "all/adapter", 1},
        {"all", LORA "all/adapter.gguf", 1},
        {"all", temp_path("mlx"), 1},
        {"qv-rs", LORA "qv-rs/adapter", 1},
        /* the converter to GGUF does not know use_rslora: sqrt(rank) is
           missing */
        {"qv-rs", LORA "qv-rs/adapter.gguf", 2},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        each_isa(check_level, (void *)&forms[i]);
}

static void scale_0_is_the_base(void **state)
{
    struct golden g;
    open_case(&g, "all", true);
    for (int exact = 0; exact < 2; exact++) {
        struct qwick_engine *a = engine_with(.model = g.dir, .exact = exact),
                            *b = adapted(LORA "all/adapter", 0,
                                         .model = g.dir, .exact = exact);
        float *x = logits_of(a, &g), *y = logits_of(b, &g);
        assert_memory_equal(x, y, g.n * g.vocab_size * sizeof *x);
        assert_true(golden_error(&g, x) <= (exact ? EXACT_BOUND : FLOAT_BOUND));
        free(x);
        free(y);
        qwick_engine_close(a);
        qwick_engine_close(b);
    }
    golden_close(&g);
}

static void halves_add_up(void **state)
{
    const struct qwick_lora halves[] = {
        {.path = LORA "all/adapter", .scale = 0.5},
        {.path = LORA "all/adapter.gguf", .scale = 0.5}};
    struct golden g;
    open_case(&g, "all", false);
    for (int exact = 0; exact < 2; exact++) {
        double error = error_of(engine_with(.model = g.dir, .exact = exact,
                                            .loras = halves, .n_loras = 2),
                                &g);
        printf("two halves: %.2e\n", error);
        assert_true(error <= (exact ? EXACT_BOUND : FLOAT_BOUND));
    }
    golden_close(&g);
}

static void exact_is_exact(void **state)
{
    struct golden g;
    struct qwick_err e;
    open_case(&g, "all", false);
    struct qwick_engine *one = adapted(LORA "all/adapter", 1, .model = g.dir,
                                       .exact = true, .threads = 1),
                        *more = adapted(LORA "all/adapter", 1, .model = g.dir,
                                        .exact = true, .threads = 3);
    float *x = logits_of(one, &g), *y = logits_of(more, &g);
    size_t row = g.vocab_size * sizeof *x;
    assert_memory_equal(x, y, g.n * row);
    /* token by token */
    struct qwick_session *s = open_session(more);
    for (size_t i = 0; i < g.n; i++) {
        sync_to(s, g.ids, i + 1);
        assert_memory_equal(qwick_session_logits(s), x + i * g.vocab_size, row);
    }
    qwick_session_free(s);
    /* several sequences in one pass */
    struct qwick_session *v[3];
    struct qwick_step steps[3];
    for (size_t i = 0; i < 3; i++) {
        v[i] = open_session(more);
        steps[i] = (struct qwick_step){v[i], g.ids, g.n - i, QWICK_ROWS_LAST};
    }
    assert_ok(qwick_engine_step(more, steps, 3, QWICK_LOGITS, &e), &e);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(qwick_session_logits(v[i]),
                            x + (g.n - i - 1) * g.vocab_size, row);
        qwick_session_free(v[i]);
    }
    free(x);
    free(y);
    qwick_engine_close(one);
    qwick_engine_close(more);
    golden_close(&g);
}

/* Sequences of one pass have different adapters, and each gets what it gets
 * alone. */
static void adapters_share_a_pass(void **state)
{
    static const struct qwick_lora two[] = {
        {.path = LORA "all/adapter", .name = "a", .scale = 1},
        {.path = LORA "all/adapter.gguf", .name = "b", .scale = -0.5}};
    struct golden g;
    struct qwick_err e;
    open_case(&g, "all", false);
    size_t row = g.vocab_size * sizeof(float);
    struct qwick_engine *eng =
        engine_with(.model = g.dir, .exact = true, .loras = two, .n_loras = 2,
                    .loras_apart = true, .threads = 2,
                    .prefix_cache_bytes = 1 << 24);
    struct qwick_session *v[6];
    struct qwick_step steps[6];
    float *alone[3];
    for (size_t i = 0; i < 3; i++) {
        struct qwick_engine *own =
            i == 2 ? engine_with(.model = g.dir, .exact = true)
                   : engine_with(.model = g.dir, .exact = true,
                                 .loras = &two[i], .n_loras = 1);
        alone[i] = logits_of(own, &g);
        qwick_engine_close(own);
    }
    assert_memory_not_equal(alone[0], alone[1], row);
    assert_memory_not_equal(alone[0], alone[2], row);
    for (int rows = QWICK_ROWS_LAST; rows <= QWICK_ROWS_ALL; rows++) {
        for (size_t i = 0; i < 6; i++) {
            assert_ok(qwick_engine_use_lora(eng, i % 3, &e), &e);
            v[i] = open_session(eng);
            steps[i] = (struct qwick_step){v[i], g.ids, g.n - i,
                                           (enum qwick_rows)rows};
        }
        assert_ok(qwick_engine_step(eng, steps, 6, QWICK_LOGITS, &e), &e);
        for (size_t i = 0; i < 6; i++)
            assert_memory_equal(qwick_session_logits(v[i]),
                                alone[i % 3] + (g.n - i - 1) * g.vocab_size,
                                row);
        /* a decode step of all */
        for (size_t i = 1; i < 6; i++)
            steps[i] = (struct qwick_step){v[i], g.ids + g.n - i, 1,
                                           (enum qwick_rows)rows};
        assert_ok(qwick_engine_step(eng, steps + 1, 5, QWICK_LOGITS, &e), &e);
        for (size_t i = 1; i < 6; i++)
            assert_memory_equal(qwick_session_logits(v[i]),
                                alone[i % 3] + (g.n - i) * g.vocab_size, row);
        for (size_t i = 0; i < 6; i++)
            qwick_session_free(v[i]);
    }
    for (size_t i = 0; i < 3; i++)
        free(alone[i]);
    assert_int_equal(qwick_engine_use_lora(eng, 3, &e), -1);
    qwick_engine_close(eng);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_equals_the_merged_weights),
        cmocka_unit_test(scale_0_is_the_base),
        cmocka_unit_test(halves_add_up),
        cmocka_unit_test(exact_is_exact),
        cmocka_unit_test(adapters_share_a_pass),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
