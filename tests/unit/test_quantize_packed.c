/* Quantizing checkpoints in FP8 and MXFP4: results are near the source, what
 * stays in MXFP4 has the source's bits, nothing of the source's quantization is
 * left in the result, and what must be refused. */
#include "test.h"

#include "gguf_written.h"
#include "tensors_file.h"

#define EXACT_BOUND 2e-5   /* the project's, see test_golden.c */
#define BF16_BOUND  1.2e-2 /* the project's, of weights rounded to BF16 */

#define FAMILY(name) "../families/" name
#define GPT_OSS      FAMILY("gpt-oss-mxfp4")

static const struct {
    const char *name;
    bool mxfp4;
} sources[] = {
    {FAMILY("qwen3-fp8-block"), false},
    {FAMILY("qwen3-fp8-row"), false},
    {FAMILY("qwen3-fp8-tensor"), false},
    {FAMILY("mistral3-fp8"), false},
    {FAMILY("qwen3moe-fp8"), false},
    {GPT_OSS, true},
    {"mxfp4", true},
};
enum { N_SOURCES = sizeof sources / sizeof *sources };

static const char *dir_of(const char *name)
{
    static char dir[128];
    snprintf(dir, sizeof dir, MODELS "%s", name);
    return dir;
}

static struct qwick_quantize_options mlx_options(int bits)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    o.bits = bits;
    o.group = 32;
    o.threads = 2;
    o.force = true;
    return o;
}

static const char *write_mlx(const char *src,
                             const struct qwick_quantize_options *o)
{
    const char *path = temp_path("mlx");
    struct qwick_err e;
    assert_ok(qwick_quantize(src, path, o, NULL, &e), &e);
    return path;
}

static struct st_set *open_weights(const char *dir)
{
    char file[160];
    struct st_set *set;
    struct qwick_err e;
    snprintf(file, sizeof file, "%s/model.safetensors", dir);
    assert_ok(st_open_file(&set, file, &e), &e);
    return set;
}

static const struct st_tensor *must_find(const struct st_set *set,
                                         const char *name)
{
    const struct st_tensor *t = st_find(set, name);
    if (!t)
        fail_msg("%s: missing", name);
    return t;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Compare the error of all logits and the median over the tokens with bounds.
 */
static void errors_fit(const char *name, const char *path, double bound,
                       double median_bound)
{
    struct golden g;
    size_t vocab_size;
    assert_int_equal(golden_open(&g, name), 0);
    float *got = logits_of(path, g.ids, g.n, &vocab_size);
    const float *rows = got + (g.n - g.n_rows) * vocab_size;
    double errors[128], error = golden_error(&g, got);
    assert_true(g.n_rows <= 128);
    for (size_t i = 0; i < g.n_rows; i++)
        errors[i] = relative_error(rows + i * vocab_size,
                                   g.logits + i * vocab_size, vocab_size);
    qsort(errors, g.n_rows, sizeof *errors, by_value);
    if (!(error <= bound && errors[g.n_rows / 2] <= median_bound))
        fail_msg("%s: error %.2e, median %.2e", name, error,
                 errors[g.n_rows / 2]);
    free(got);
    golden_close(&g);
}

static void error_fits(const char *name, const char *path, double bound)
{
    errors_fit(name, path, bound, bound);
}

/* ---- results --------------------------------------------------------------
 */

/* A weight in FP8 has up to 4 + 24 bits, of which BF16 keeps 8; one in MXFP4
 * has 2. */
static void floats_have_the_logits_of_the_reference(void **state)
{
    for (size_t i = 0; i < N_SOURCES; i++) {
        write_gguf(dir_of(sources[i].name), "BF16");
        error_fits(sources[i].name, out_path,
                   sources[i].mxfp4 ? EXACT_BOUND : BF16_BOUND);
    }
}

/* The bound is that of test_quantize_families.c. In gpt-oss, other experts are
 * chosen for some tokens, whose errors are up to 0.7: there the median over the
 * tokens is what 8 bits change, 0.05, and a weight in a wrong place changes all
 * tokens. */
static void is_near(const char *name, const char *path)
{
    bool experts = strcmp(name, GPT_OSS) == 0;
    errors_fit(name, path, experts ? 0.5 : 0.08, 0.08);
}

static void eight_bits_are_near(void **state)
{
    struct qwick_quantize_options o = mlx_options(8);
    for (size_t i = 0; i < N_SOURCES; i++) {
        const char *dir = dir_of(sources[i].name);
        write_gguf(dir, "Q8_0");
        is_near(sources[i].name, out_path);
        is_near(sources[i].name, write_mlx(dir, &o));
        if (!sources[i].mxfp4)
            continue;
        write_gguf(dir, NULL);
        is_near(sources[i].name, out_path);
    }
}

/* The number with this E4M3 code: four bits of exponent, three of mantissa. */
static float e4m3(unsigned char c)
{
    int e = c >> 3 & 15, m = c & 7;
    double x = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return (float)(c & 128 ? -x : x);
}

/* A weight by the definition, for each way to share scales: element * scale. */
static float fp8_at(const struct st_set *set, const struct st_tensor *t,
                    size_t row, size_t col, size_t block)
{
    char name[160];
    float scale;
    snprintf(name, sizeof name, "%s_scale_inv", t->name);
    const struct st_tensor *s = st_find(set, name);
    if (!s) {
        snprintf(name, sizeof name, "%s_scale", t->name);
        s = must_find(set, name);
    }
    size_t n = s->n_bytes / dtype_bytes(s->dtype);
    size_t at = n == 1             ? 0
                : n == t->shape[0] ? row
                                   : row / block * s->shape[1] + col / block;
    kernels_ref()->to_f32[s->dtype](&scale,
                                    s->data + at * dtype_bytes(s->dtype), 1);
    return e4m3(t->data[row * t->shape[1] + col]) * scale;
}

/* Modules that are skipped have the weights of the source, rounded to BF16, and
 * no tensor of scales is left. */
static void skipped_modules_are_widened(void **state)
{
    static const char *const skip[] = {"*.layers.*"};
    struct qwick_quantize_options o = mlx_options(4);
    o.skip = skip;
    o.n_skip = 1;
    for (size_t m = 0; m < N_SOURCES; m++) {
        const char *dir = dir_of(sources[m].name);
        size_t n_checked = 0;
        if (sources[m].mxfp4)
            continue;
        struct st_set *want = open_weights(dir);
        struct st_set *got = open_weights(write_mlx(dir, &o));
        for (size_t i = 0; i < st_count(got); i++)
            assert_null(strstr(st_at(got, i)->name, "_scale"));
        for (size_t i = 0; i < st_count(want); i++) {
            const struct st_tensor *t = st_at(want, i);
            if (t->dtype != DT_F8_E4M3)
                continue;
            const struct st_tensor *x = must_find(got, t->name);
            assert_int_equal(x->dtype, DT_BF16);
            for (size_t k = 0; k < t->n_bytes; k += 7, n_checked++) {
                size_t row = k / t->shape[1], col = k % t->shape[1];
                float v = fp8_at(want, t, row, col, 128);
                unsigned char bits[2];
                kernels_ref()->from_f32[DT_BF16](bits, &v, 1);
                assert_memory_equal(bits, x->data + 2 * k, 2);
            }
        }
        assert_true(n_checked > 500);
        st_close(got);
        st_close(want);
    }
}

/* The result is MLX's, whatever the source says about itself. */
static void config_is_that_of_the_result(void **state)
{
    struct qwick_quantize_options o = mlx_options(4);
    for (size_t m = 0; m < N_SOURCES; m++) {
        char path[192], *text;
        size_t n;
        snprintf(path, sizeof path, "%s/config.json",
                 write_mlx(dir_of(sources[m].name), &o));
        assert_int_equal(map_read_all(path, 1 << 20, &text, &n, NULL), 0);
        assert_null(strstr(text, "quant_method"));
        assert_null(strstr(text, "modules_to_not_convert"));
        assert_non_null(strstr(text, "\"mode\": \"affine\""));
        assert_int_equal(strstr(text, "\"mode\": \"mxfp4\"") != NULL,
                         sources[m].mxfp4);
        free(text);
    }
}

/* ---- MXFP4 that stays -----------------------------------------------------
 */

/* gpt-oss's stack has rows of gate_proj and of up_proj by turns; MLX's has one
 * of them, and the same bytes. */
static void same_rows(const struct st_set *source, const struct st_set *got,
                      const char *role, size_t first, size_t step)
{
    static const char *const tails[][2] = {{"blocks", "weight"},
                                           {"scales", "scales"}};
    for (size_t i = 0; i < 2; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%s_%s",
                 step == 2 ? "gate_up_proj" : role, tails[i][0]);
        const struct st_tensor *a = must_find(source, name);
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%s.%s", role,
                 tails[i][1]);
        const struct st_tensor *b = must_find(got, name);
        size_t rows = b->shape[0] * b->shape[1], n = b->n_bytes / rows;
        assert_int_equal(b->rank, 3);
        assert_int_equal(b->dtype, i ? DT_U8 : DT_U32);
        assert_int_equal(b->n_bytes * step, a->n_bytes);
        for (size_t r = 0; r < rows; r++)
            assert_memory_equal(b->data + r * n,
                                a->data + (r * step + first) * n, n);
    }
}

static void mlx_keeps_the_bytes(void **state)
{
    struct st_set *source = open_weights(dir_of(GPT_OSS));
    for (int bits = 4; bits <= 8; bits += 4) {
        struct qwick_quantize_options o = mlx_options(bits);
        struct st_set *got = open_weights(write_mlx(dir_of(GPT_OSS), &o));
        same_rows(source, got, "gate_proj", 0, 2);
        same_rows(source, got, "up_proj", 1, 2);
        same_rows(source, got, "down_proj", 0, 1);
        st_close(got);
    }
    st_close(source);
}

/* Fewer bits than MXFP4 has are rounded. */
static void fewer_bits_are_rounded(void **state)
{
    struct qwick_quantize_options o = mlx_options(3);
    struct qwick_quantize_report r;
    struct qwick_err e;
    const char *path = temp_path("mlx");
    assert_ok(qwick_quantize(dir_of(GPT_OSS), path, &o, &r, &e), &e);
    struct st_set *got = open_weights(path);
    must_find(got, "model.layers.1.mlp.experts.gate_proj.biases");
    assert_int_equal(r.n_dense, 0);
    st_close(got);
}

/* Without a type, weights in MXFP4 have the values of the BF16 file; with any
 * other type, that one counts. */
static void gguf_keeps_the_values(void **state)
{
    for (size_t m = 0; m < N_SOURCES; m++) {
        size_t n, n_kept = 0;
        if (!sources[m].mxfp4)
            continue;
        write_gguf(dir_of(sources[m].name), "BF16");
        struct gguf *want = must_open();
        write_gguf(dir_of(sources[m].name), NULL);
        struct gguf *got = must_open();
        assert_int_equal(gguf_find(got, "general.file_type")->u, 38);
        for (size_t i = 0; i < st_count(gguf_tensors(got)); i++) {
            const struct st_tensor *t = st_at(gguf_tensors(got), i);
            if (t->dtype != DT_MXFP4)
                continue;
            float *x = widen(t, &n);
            float *y = widen(must_find(gguf_tensors(want), t->name), &n);
            assert_memory_equal(x, y, n * sizeof *x);
            free(x);
            free(y);
            n_kept++;
        }
        assert_true(n_kept >= 12);
        gguf_close(got);
        gguf_close(want);
        write_gguf(dir_of(sources[m].name), "Q4_0");
        got = must_open();
        for (size_t i = 0; i < st_count(gguf_tensors(got)); i++)
            assert_true(st_at(gguf_tensors(got), i)->dtype != DT_MXFP4);
        gguf_close(got);
    }
}

static void types_of_gpt_oss(void **state)
{
    static const struct typed types[] = {
        {"blk.1.ffn_gate_exps.weight", DT_MXFP4},
        {"blk.1.ffn_up_exps.weight", DT_MXFP4},
        {"blk.1.ffn_down_exps.weight", DT_MXFP4},
        {"blk.1.ffn_gate_inp.weight", DT_F32},
        {"blk.1.attn_q.weight", DT_Q8_0},
        {"token_embd.weight", DT_Q8_0},
        {"output.weight", DT_Q8_0},
    };
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    const char *chosen;
    o.format = QWICK_QUANTIZE_GGUF;
    o.chosen_type = &chosen;
    unlink(out_path);
    assert_ok(qwick_quantize(dir_of(GPT_OSS), out_path, &o, NULL, &e), &e);
    assert_string_equal(chosen, "MXFP4");
    struct gguf *g = must_open();
    types_are(g, types, sizeof types / sizeof *types);
    gguf_close(g);
    unlink(out_path);
    assert_ok(
        qwick_quantize(dir_of(FAMILY("qwen3-fp8-row")), out_path, &o, NULL, &e),
        &e);
    assert_string_equal(chosen, "Q4_K_M");
}

static void same_bytes_for_any_threads(void **state)
{
    same_bytes(dir_of(GPT_OSS), NULL, 4);
    same_bytes(dir_of(FAMILY("qwen3moe-fp8")), "Q8_0", 3);
}

/* ---- stacks of experts ----------------------------------------------------
 */

/* Tensors of a checkpoint in temp_dir. */
struct built {
    struct st_out_tensor t[160];
    char names[160][96];
    size_t n;
};

static void put(struct built *b, const char *name, enum dtype dtype,
                size_t rank, const size_t *shape, const void *data)
{
    struct st_out_tensor *t = &b->t[b->n];
    assert_true(b->n < 160);
    snprintf(b->names[b->n], sizeof *b->names, "%s", name);
    *t = (struct st_out_tensor){
        .name = b->names[b->n], .dtype = dtype, .rank = rank, .data = data};
    memcpy(t->shape, shape, rank * sizeof *shape);
    b->n++;
}

/* Scales in blocks of 128 rows as scales in blocks of 32 rows; malloc'ed. */
static float *finer(const struct st_tensor *s, size_t rows, size_t *n)
{
    size_t cols = s->shape[1];
    *n = (rows + 31) / 32;
    float *out = malloc(*n * cols * sizeof *out);
    for (size_t i = 0; i < *n; i++)
        memcpy(out + i * cols, s->data + i / 4 * cols * sizeof *out,
               cols * sizeof *out);
    return out;
}

/* Append the elements and scales of one expert's matrix to a stack. */
static void append(const struct st_set *set, size_t layer, size_t expert,
                   const char *role, unsigned char **q, float **scales)
{
    char name[128];
    size_t n;
    snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.%s.weight",
             layer, expert, role);
    const struct st_tensor *t = must_find(set, name);
    memcpy(*q, t->data, t->n_bytes);
    *q += t->n_bytes;
    strcat(name, "_scale_inv");
    const struct st_tensor *s = must_find(set, name);
    float *fine = finer(s, t->shape[0], &n);
    memcpy(*scales, fine, n * s->shape[1] * sizeof *fine);
    *scales += n * s->shape[1];
    free(fine);
}

enum { EXPERTS = 4, FF = 96, D = 160 }; /* of qwen3moe-fp8 */

/* Put the experts of a layer as transformers 5 has them. *memory: what the
 * tensors have, to be freed. */
static void put_stacks(struct built *b, const struct st_set *set, size_t layer,
                       void *memory[4])
{
    const size_t both[] = {EXPERTS, 2 * FF, D}, down[] = {EXPERTS, D, FF};
    const size_t both_scales[] = {EXPERTS, 6, 2},
                 down_scales[] = {EXPERTS, 5, 1};
    unsigned char *q[2] = {malloc(EXPERTS * 2 * FF * D),
                           malloc(EXPERTS * D * FF)};
    float *scales[2] = {malloc(EXPERTS * 12 * sizeof(float)),
                        malloc(EXPERTS * 5 * sizeof(float))};
    char name[96];
    for (size_t i = 0; i < 2; i++) {
        memory[i] = q[i];
        memory[2 + i] = scales[i];
        snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%s", layer,
                 i ? "down_proj" : "gate_up_proj");
        put(b, name, DT_F8_E4M3, 3, i ? down : both, q[i]);
        strcat(name, "_scale_inv");
        put(b, name, DT_F32, 3, i ? down_scales : both_scales, scales[i]);
    }
    for (size_t i = 0; i < EXPERTS; i++) {
        append(set, layer, i, "gate_proj", &q[0], &scales[0]);
        append(set, layer, i, "up_proj", &q[0], &scales[0]);
        append(set, layer, i, "down_proj", &q[1], &scales[1]);
    }
}

/* Fused stacks in FP8, where an expert has several blocks, are the same model.
 */
static void fused_stacks_of_blocks(void **state)
{
    static const char name[] = FAMILY("qwen3moe-fp8");
    struct st_set *set = open_weights(dir_of(name));
    struct built *b = calloc(1, sizeof *b);
    void *stacks[2][4];
    float *scales[160] = {NULL};
    struct golden g;
    assert_int_equal(golden_open(&g, name), 0);
    copy_model(name, "[\n      128,\n      128\n    ]", "[32, 128]");
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        const char *tail = strstr(t->name, "_scale_inv");
        if (strstr(t->name, ".experts."))
            continue;
        if (!tail) {
            put(b, t->name, t->dtype, t->rank, t->shape, t->data);
            continue;
        }
        char weight[96];
        size_t shape[] = {0, t->shape[1]};
        snprintf(weight, sizeof weight, "%.*s", (int)(tail - t->name), t->name);
        scales[i] = finer(t, must_find(set, weight)->shape[0], shape);
        put(b, t->name, DT_F32, 2, shape, scales[i]);
    }
    for (size_t i = 0; i < 2; i++)
        put_stacks(b, set, i, stacks[i]);
    temp_put_tensors("model.safetensors", b->t, b->n);
    same_logits(g.dir, temp_dir, g.ids, g.n);
    write_gguf(g.dir, "Q8_0");
    rename(out_path, temp_path("single.gguf"));
    write_gguf(temp_dir, "Q8_0");
    same_logits(temp_path("single.gguf"), out_path, g.ids, g.n);
    struct qwick_quantize_options o = mlx_options(8);
    error_fits(name, write_mlx(temp_dir, &o), 0.08);
    for (size_t i = 0; i < 8; i++)
        free(stacks[i / 4][i % 4]);
    for (size_t i = 0; i < 160; i++)
        free(scales[i]);
    free(b);
    golden_close(&g);
    st_close(set);
}

/* ---- refused --------------------------------------------------------------
 */

static void mlx_refused(const char *src, const struct qwick_quantize_options *o,
                        int code, const char *word)
{
    struct qwick_err e = {0};
    if (qwick_quantize(src, temp_path("mlx"), o, NULL, &e) == 0)
        fail_msg("accepted, wanted: %s", word);
    if ((int)e.code != code || !strstr(e.msg, word) || strchr(e.msg, '\n'))
        fail_msg("%d: %s (wanted %d: %s)", (int)e.code, e.msg, code, word);
    assert_false(exists(temp_path("mlx")));
}

/* Write the tensors of a model to the copied one, in which `name` is FP8, with
 * one scale for each matrix. */
static void put_fp8(const char *model, const char *name)
{
    struct st_set *set = open_weights(dir_of(model));
    struct built *b = calloc(1, sizeof *b);
    const struct st_tensor *t = must_find(set, name);
    const size_t one[] = {t->shape[0]};
    char scales[96];
    float *ones = malloc(one[0] * sizeof *ones);
    for (size_t i = 0; i < one[0]; i++)
        ones[i] = 1;
    snprintf(scales, sizeof scales, "%s_scale", name);
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *s = st_at(set, i);
        put(b, s->name, s == t ? DT_F8_E4M3 : s->dtype, s->rank, s->shape,
            s->data);
    }
    put(b, scales, DT_F32, 1, one, ones);
    temp_put_tensors("model.safetensors", b->t, b->n);
    free(ones);
    free(b);
    st_close(set);
}

/* Products need rows, and a block of FP8 has scales for the other dimension. */
static void transposed_stacks(void **state)
{
    static const char model[] = FAMILY("gpt-oss-top3");
    static const char word[] = "experts.gate_up_proj: is quantized and "
                               "transposed, which is not supported";
    struct qwick_quantize_options o = mlx_options(8);
    struct qwick_engine *eng;
    struct qwick_err e;
    copy_model(model, "\"model_type\"",
               "\"quantization_config\": {\"quant_method\": \"fp8\"}, "
               "\"model_type\"");
    put_fp8(model, "model.layers.0.mlp.experts.gate_up_proj");
    struct qwick_engine_options eo = qwick_engine_defaults();
    eo.model = temp_dir;
    assert_int_not_equal(qwick_engine_open(&eng, &eo, &e), 0);
    assert_non_null(strstr(e.msg, word));
    unlink(out_path);
    refused(temp_dir, out_path, NULL, QWICK_ERR_MODEL, word);
    remove_tree(temp_path("mlx"));
    mlx_refused(temp_dir, &o, QWICK_ERR_MODEL, word);
}

/* Change a byte of a tensor of the copied model. */
static void put_byte(const char *tensor, size_t at, unsigned char byte)
{
    char *text;
    size_t n;
    struct st_set *set = open_weights(temp_dir);
    const struct st_tensor *t = must_find(set, tensor);
    const struct st_tensor *last = st_at(set, st_count(set) - 1);
    size_t end = (size_t)(last->data + last->n_bytes - t->data);
    assert_int_equal(
        map_read_all(temp_path("model.safetensors"), 1 << 26, &text, &n, NULL),
        0);
    text[n - end + at] = (char)byte;
    st_close(set);
    temp_write("model.safetensors", text, n);
    free(text);
}

static void bad_values(void **state)
{
    static const char fp8[] = "model.layers.1.mlp.up_proj.weight";
    static const char scales[] = "model.layers.1.mlp.experts.down_proj_scales";
    struct qwick_quantize_options o = mlx_options(8);
    remove_tree(temp_path("mlx"));
    copy_model(FAMILY("qwen3-fp8-tensor"), "\"hidden_size\"",
               "\"hidden_size\"");
    put_byte(fp8, 3 * 32 + 5, 0x7f); /* NaN */
    unlink(out_path);
    refused(temp_dir, out_path, "Q8_0", QWICK_ERR_MODEL,
            "up_proj.weight: row 3: holds NaN");
    mlx_refused(temp_dir, &o, QWICK_ERR_MODEL,
                "up_proj.weight: row 3: holds NaN");
    copy_model(GPT_OSS, "\"hidden_size\"", "\"hidden_size\"");
    put_byte(scales, 2 * 70 + 1, 255); /* NaN: row 70 */
    refused(temp_dir, out_path, NULL, QWICK_ERR_MODEL, "row 70: holds NaN");
    refused(temp_dir, out_path, "BF16", QWICK_ERR_MODEL, "row 70: holds NaN");
    mlx_refused(temp_dir, &o, QWICK_ERR_MODEL, "row 70: holds NaN");
}

static void sources_and_options(void **state)
{
    struct qwick_quantize_options o = mlx_options(8);
    static const char *const skip[] = {"model.embed_tokens"};
    remove_tree(temp_path("mlx"));
    unlink(out_path);
    refused(dir_of(FAMILY("qwen3-fp8-row")), out_path, "MXFP4", QWICK_ERR_USAGE,
            "only weights that are in MXFP4 already can stay so");
    refused(dir_of("tied-bf16"), out_path, "MXFP4", QWICK_ERR_USAGE,
            "only weights that are in MXFP4 already");
    o.skip = skip;
    o.n_skip = 1;
    mlx_refused(dir_of("mxfp4"), &o, QWICK_ERR_USAGE,
                "no module is left to quantize");
    /* FP8 without its config */
    copy_model(FAMILY("qwen3-fp8-tensor"), "\"quantization_config\"",
               "\"other_config\"");
    refused(temp_dir, out_path, NULL, QWICK_ERR_MODEL,
            "dtype F8_E4M3 is not supported without a quantization_config");
    /* affine weights beside MXFP4 */
    copy_model("mxfp4", "\"mode\": \"mxfp4\"",
               "\"mode\": \"mxfp4\", \"lm_head\": {\"group_size\": 32, "
               "\"bits\": 4}");
    char *text, *at;
    size_t n;
    const char *path = temp_path("config.json");
    assert_int_equal(map_read_all(path, 1 << 20, &text, &n, NULL), 0);
    at = strstr(text, "\"quantization_config\"");
    assert_non_null(at);
    at[1] = 'x';
    temp_write("config.json", text, n);
    free(text);
    o = mlx_options(8);
    mlx_refused(temp_dir, &o, QWICK_ERR_MODEL,
                "quantization: lm_head is quantized already (4 bits)");
    refused(temp_dir, out_path, NULL, QWICK_ERR_MODEL, "quantized already");
}

/* Experts in two forms would have rows in two orders. */
static void some_experts_in_mxfp4(void **state)
{
    struct st_set *set = open_weights(dir_of(GPT_OSS));
    struct built *b = calloc(1, sizeof *b);
    struct qwick_quantize_options o = mlx_options(8);
    void *zeros = calloc(4 * 64 * 64, 2);
    const size_t shape[] = {4, 64, 64};
    copy_model(GPT_OSS, "\"hidden_size\"", "\"hidden_size\"");
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        if (!strstr(t->name, "layers.2.mlp.experts.down_proj_s") &&
            !strstr(t->name, "layers.2.mlp.experts.down_proj_bl"))
            put(b, t->name, t->dtype, t->rank, t->shape, t->data);
    }
    put(b, "model.layers.2.mlp.experts.down_proj", DT_BF16, 3, shape, zeros);
    temp_put_tensors("model.safetensors", b->t, b->n);
    mlx_refused(temp_dir, &o, QWICK_ERR_MODEL,
                "layer 2: only some experts are in MXFP4");
    free(zeros);
    free(b);
    st_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_have_the_logits_of_the_reference),
        cmocka_unit_test(eight_bits_are_near),
        cmocka_unit_test(skipped_modules_are_widened),
        cmocka_unit_test(config_is_that_of_the_result),
        cmocka_unit_test(mlx_keeps_the_bytes),
        cmocka_unit_test(fewer_bits_are_rounded),
        cmocka_unit_test(gguf_keeps_the_values),
        cmocka_unit_test(types_of_gpt_oss),
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(fused_stacks_of_blocks),
        cmocka_unit_test(transposed_stacks),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(sources_and_options),
        cmocka_unit_test(some_experts_in_mxfp4),
    };
    return cmocka_run_group_tests(tests, setup, temp_teardown);
}
