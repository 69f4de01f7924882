/* Quantizing AWQ, GPTQ and compressed-tensors' integers to MLX's format: with
 * the source's bits and a group that divides its own, nothing is rounded, and
 * logits keep all their bits. */
#include "test.h"

#include "gguf_written.h"
#include "tensors_file.h"
#include "transposed_twins.h"

#define FAMILIES "tests/golden/families/"

/* Logits with int8 activations, or in one order of sums. */
static float *mode_logits(const char *dir, bool exact, size_t *n)
{
    enum { N = 24 };
    int32_t ids[N];
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = dir, .exact = exact, .threads = 2);
    struct golden g = {.ids = ids, .n = N};
    g.vocab_size = qwick_engine_info(eng)->vocab_size;
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)(twin_random(400 + i) % g.vocab_size);
    *n = N * g.vocab_size;
    float *out = malloc(*n * sizeof *out);
    assert_ok(all_logits(eng, &g, out, &e), &e);
    qwick_engine_close(eng);
    return out;
}

static void logits_are_equal(const char *what, const char *a, const char *b)
{
    for (int exact = 0; exact < 2; exact++) {
        size_t n, m;
        float *x = mode_logits(a, exact, &n), *y = mode_logits(b, exact, &m);
        assert_int_equal(n, m);
        if (memcmp(x, y, n * sizeof *x) != 0)
            fail_msg("%s: exact %d: %.2e", what, exact,
                     relative_error(x, y, n));
        free(x);
        free(y);
    }
}

struct chosen {
    int bits, group;
    size_t n_quantized;
};

/* Write the source in MLX's format to temp_dir/mlx. bits, group: 0 for the
 * default. */
static struct chosen write_mlx(const char *src, int bits, int group)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct chosen c;
    struct qwick_err e;
    o.bits = bits;
    o.group = group;
    o.threads = 2;
    o.force = true;
    o.chosen_bits = &c.bits;
    o.chosen_group = &c.group;
    assert_ok(qwick_quantize(src, temp_path("mlx"), &o, &r, &e), &e);
    c.n_quantized = r.n_quantized;
    return c;
}

/* The type of a tensor of temp_dir/mlx; DT_COUNT: there is none. */
static enum dtype type_of(const char *name)
{
    struct st_set *set;
    struct qwick_err e;
    assert_ok(st_open_file(&set, temp_path("mlx/model.safetensors"), &e), &e);
    const struct st_tensor *t = st_find(set, name);
    enum dtype type = t ? t->dtype : DT_COUNT;
    st_close(set);
    return type;
}

#define UP "model.layers.1.mlp.up_proj"

static const struct {
    const char *name;
    int bits, group;
    enum dtype scales; /* F32: that of the source would round biases */
} goldens[] = {{"qwen3-awq", 4, 64, DT_F32},
               {"qwen3-w4a16", 4, 32, DT_BF16},
               {"qwen3-w4a16-asym", 4, 64, DT_F32},
               {"qwen3-w4a16-asym-channel", 4, 128, DT_F32},
               {"qwen3-w8a16", 8, 128, DT_BF16},
               {"qwen3-w8a8", 8, 128, DT_BF16}};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens };

static void goldens_keep_their_codes(void **state)
{
    for (size_t i = 0; i < N_GOLDENS; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, FAMILIES "%s", goldens[i].name);
        struct chosen c = write_mlx(dir, 0, 0);
        assert_int_equal(c.bits, goldens[i].bits);
        assert_int_equal(c.group, goldens[i].group);
        assert_int_equal(c.n_quantized, 14);
        assert_int_equal(type_of(UP ".scales"), goldens[i].scales);
        assert_int_equal(type_of(UP ".biases"), goldens[i].scales);
        logits_are_equal(goldens[i].name, dir, temp_path("mlx"));
        write_mlx(dir, c.bits, c.group);
        logits_are_equal(goldens[i].name, dir, temp_path("mlx"));
    }
}

/* The elements are equal, and sums in f32 have another order: the bound is that
 * of float32 on two layers. */
static void elements_are_equal(const char *dir)
{
    size_t n;
    float *x = mode_logits(dir, true, &n);
    float *y = mode_logits(temp_path("mlx"), true, &n);
    double error = relative_error(x, y, n);
    if (!(error <= 2e-6))
        fail_msg("%s: %.2e", dir, error);
    free(x);
    free(y);
}

/* Smaller groups than the source's repeat its scales. */
static void smaller_groups_keep_the_elements(void **state)
{
    const char *dir = FAMILIES "qwen3-w4a16-asym-channel";
    write_mlx(dir, 4, 32);
    elements_are_equal(dir);
    /* 64 and 160 columns: repacking gives these groups of 64 and 32, and MLX's
       format has one size */
    static const struct twin_form row = {"", false, 3, 0, false, false, false};
    twins_write(&row, MODELS "attention-bias");
    assert_int_equal(write_mlx(temp_path("packed"), 0, 0).group, 32);
    elements_are_equal(temp_path("packed"));
}

/* Forms without a golden: 2, 3 and 8 bits, groups of whole rows, zero points of
 * 256, experts, fused projections, and columns in another order. */
static const struct twin_case {
    const char *dir;
    struct twin_form form;
    int group;
    bool keeps;
} twins[] = {
    {MODELS "moe", {"", true, 4, 32, false, false, false}, 32, true},
    {MODELS "moe", {"", false, 4, 32, false, true, false}, 32, true},
    {MODELS "attention-bias",
     {"", false, 2, 64, false, false, false},
     64,
     true},
    {MODELS "attention-bias",
     {"", false, 3, 32, false, false, false},
     32,
     true},
    {MODELS "attention-bias", {"", false, 8, 32, true, false, false}, 32, true},
    {FAMILIES "phi3", {"", false, 4, 32, true, false, false}, 32, true},
    {FAMILIES "phi3", {"", false, 4, 32, true, false, true}, 64, false},
};

static void twins_keep_their_codes(void **state)
{
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        const struct twin_case *t = &twins[i];
        size_t n_packed = twins_write(&t->form, t->dir);
        struct chosen c = write_mlx(temp_path("packed"), 0, 0);
        assert_int_equal(c.group, t->group);
        if (!t->keeps)
            continue;
        assert_int_equal(c.bits, t->form.bits);
        if (!strstr(t->dir, "moe")) /* experts are one module */
            assert_int_equal(c.n_quantized, n_packed);
        logits_are_equal(t->dir, temp_path("packed"), temp_path("mlx"));
    }
}

/* With other bits or larger groups, everything is rounded, floats too. */
static void other_bits_are_rounded(void **state)
{
    const char *dir = FAMILIES "qwen3-awq";
    size_t n;
    assert_int_equal(write_mlx(dir, 8, 0).n_quantized, 16);
    float *x = mode_logits(dir, true, &n);
    float *y = mode_logits(temp_path("mlx"), true, &n);
    assert_true(relative_error(x, y, n) <= 0.08); /* test_quantize_packed.c's */
    free(x);
    free(y);
    assert_int_equal(type_of(UP ".scales"), DT_F16);
    assert_int_equal(write_mlx(dir, 4, 128).n_quantized, 16);
    assert_int_equal(type_of(UP ".scales"), DT_F16);
    assert_int_equal(type_of("model.embed_tokens.scales"), DT_BF16);
}

/* Floats stay, unless a pattern names them or the head gets its own bits. */
static void floats_are_rounded_when_asked(void **state)
{
    static const char *const all[] = {"*"}, *const skip[] = {"*.up_proj"};
    const char *dir = FAMILIES "qwen3-awq";
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct qwick_err e;
    o.force = true;
    o.head_bits = 8;
    assert_ok(qwick_quantize(dir, temp_path("mlx"), &o, &r, &e), &e);
    assert_int_equal(r.n_quantized, 15);
    o.head_bits = 0;
    o.only = all;
    o.n_only = 1;
    assert_ok(qwick_quantize(dir, temp_path("mlx"), &o, &r, &e), &e);
    assert_int_equal(r.n_quantized, 16);
    assert_int_equal(type_of(UP ".scales"), DT_F32);
    assert_int_equal(type_of("model.embed_tokens.scales"), DT_BF16);
    o.n_only = 0;
    o.skip = skip;
    o.n_skip = 1;
    assert_ok(qwick_quantize(dir, temp_path("mlx"), &o, &r, &e), &e);
    assert_int_equal(r.n_quantized, 12);
    assert_int_equal(type_of(UP ".weight"), DT_F16);
}

/* Codes with an infinite scale are refused. */
static void scales_must_be_numbers(void **state)
{
    static const struct twin_form form = {"", true, 4, 32, false, false, false};
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    twins_write(&form, MODELS "attention-bias");
    struct st_set *set;
    size_t offset = 0;
    const char *path = temp_path("packed/model.safetensors");
    assert_ok(st_open_file(&set, path, &e), &e);
    const struct st_tensor *t =
        st_find(set, "model.layers.0.mlp.up_proj.scales");
    assert_non_null(t);
    offset = (size_t)(t->data - st_map(set, 0)->data);
    st_close(set);
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite("\0\x7c", 1, 2, f), 2); /* infinity */
    fclose(f);
    o.force = true;
    assert_int_equal(
        qwick_quantize(temp_path("packed"), temp_path("mlx"), &o, NULL, &e),
        -1);
    assert_non_null(strstr(e.msg, "up_proj"));
    assert_non_null(strstr(e.msg, "holds NaN, infinities"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_keep_their_codes),
        cmocka_unit_test(smaller_groups_keep_the_elements),
        cmocka_unit_test(twins_keep_their_codes),
        cmocka_unit_test(other_bits_are_rounded),
        cmocka_unit_test(floats_are_rounded_when_asked),
        cmocka_unit_test(scales_must_be_numbers),
    };
    return cmocka_run_group_tests(tests, setup, temp_teardown);
}
