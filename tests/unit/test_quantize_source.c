/* GGUF files as sources of GGUF files: bytes against results from safetensors,
 * metadata, widened blocks, logits against the goldens, and what is refused. */
#include "test.h"

#include "file/gguf_write.h"
#include "gguf_written.h"
#include "model/names.h"

#define GGUF         "tests/golden/gguf/"
#define FAMILY(name) "../families/" name

/* Checkpoints that ../golden/gguf has as the converter's files. */
static const char *const converted[] = {
    "gemma3-tied",
    "qwen35-tied",
    "qwen35-moe",
    "qwen35-f16-long",
    QWEN3_NEXT,
    FAMILY("exaone4"),
    FAMILY("gemma2-one"),
    FAMILY("gemma4-e2b"),
    FAMILY("gemma4-kv"),
    FAMILY("gemma4-top3"),
    FAMILY("glm4-wide"),
    FAMILY("gpt-oss-top3"),
    FAMILY("granite-bias"),
    FAMILY("lfm2-long"),
    FAMILY("llama3-tied"),
    FAMILY("mixtral-top3"),
    FAMILY("phi3-long"),
    FAMILY("qwen2moe-top3"),
    FAMILY("qwen3vl-tied"),
    FAMILY("seed-oss"),
    /* its checkpoint cannot be written: layers differ */
    FAMILY("lfm2moe-top3"),
};
enum {
    N_CONVERTED = sizeof converted / sizeof *converted,
    N_WRITTEN = N_CONVERTED - 1
};

static void path_of(char out[192], const char *name)
{
    snprintf(out, 192, GGUF "%s.gguf", name);
}

static struct gguf *open_file(const char *path)
{
    struct gguf *g;
    struct qwick_err e;
    assert_ok(gguf_open(&g, path, &e), &e);
    return g;
}

static bool same_bytes_of(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) &&
           !memcmp(a->data, b->data, a->n_bytes);
}

/* ---- against other sources and other files --------------------------------
 */

/* The converter's exp of ssm_a is not ours (test_quantize_families.c). */
static void same_tensors(const struct gguf *a, const struct gguf *b)
{
    struct st_set *want = gguf_tensors(a), *got = gguf_tensors(b);
    assert_int_equal(st_count(want), st_count(got));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *x = st_at(want, i), *y = st_find(got, x->name);
        if (!y || (!same_bytes_of(x, y) && !strstr(x->name, "ssm_a")))
            fail_msg("%s: %s differs", gguf_path(b), x->name);
    }
}

static void as_from_the_checkpoint(void **state)
{
    static const char *const types[] = {"Q8_0", "Q4_K_M", "Q3_K_M", "IQ4_NL"};
    const char *other = temp_path("other.gguf");
    for (size_t i = 0; i < N_WRITTEN; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            char dir[192], file[192];
            struct qwick_err e;
            snprintf(dir, sizeof dir, MODELS "%s", converted[i]);
            path_of(file, converted[i]);
            unlink(other);
            assert_ok(try_write(dir, other, types[k], 2, NULL, &e), &e);
            write_gguf(file, types[k]);
            struct gguf *a = open_file(other), *b = must_open();
            same_tensors(a, b);
            gguf_close(a);
            gguf_close(b);
        }
}

static const struct gguf_value *entry(const struct gguf *g,
                                      const struct gguf_value *v)
{
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_value *x = gguf_at(g, i);
        if (x->key_len == v->key_len && !memcmp(x->key, v->key, v->key_len))
            return x;
    }
    return NULL;
}

/* Each entry of a, the type of the file excepted, is in b. */
static void same_entries(const struct gguf *a, const struct gguf *b)
{
    assert_int_equal(gguf_count(a), gguf_count(b));
    for (size_t i = 0; i < gguf_count(a); i++) {
        const struct gguf_value *v = gguf_at(a, i), *w = entry(b, v);
        bool same = w && v->type == w->type && v->element == w->element &&
                    v->n == w->n && v->n_bytes == w->n_bytes &&
                    !memcmp(v->data, w->data, v->n_bytes);
        if (!same && strncmp(v->key, "general.file_type", v->key_len) != 0)
            fail_msg("%.*s differs", (int)v->key_len, v->key);
    }
}

/* Families, and the demo model with its tokenizer and template. */
static void metadata_are_copied(void **state)
{
    const char *first = temp_path("first.gguf");
    struct qwick_err e;
    for (size_t i = 0; i <= N_CONVERTED; i++) {
        char path[192];
        if (i < N_CONVERTED)
            path_of(path, converted[i]);
        assert_ok(try_write(i < N_CONVERTED ? path : NULL, first, "BF16", 2,
                            NULL, &e),
                  &e);
        write_gguf(first, "Q4_0");
        struct gguf *a = open_file(first), *b = must_open();
        same_entries(a, b);
        assert_int_equal(gguf_find(b, "general.file_type")->u, 2);
        gguf_close(a);
        gguf_close(b);
        unlink(first);
    }
}

/* A type that all matrices have already. */
static void same_types_are_copied(void **state)
{
    static const char *const files[][2] = {{"tiny-dense-Q8_0", "Q8_0"},
                                           {"tiny-moe-Q8_0", "Q8_0"},
                                           {"tiny-dense-F16", "F16"},
                                           {FAMILY("gpt-oss-mxfp4"), NULL}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[192];
        path_of(path, files[i][0]);
        write_gguf(path, files[i][1]);
        write_gguf(path, files[i][1]);
        struct gguf *a = open_file(path), *b = must_open();
        struct st_set *set = gguf_tensors(a);
        for (size_t k = 0; k < st_count(set); k++) {
            const struct st_tensor *t = st_at(set, k);
            const struct st_tensor *got = st_find(gguf_tensors(b), t->name);
            bool kept = files[i][1] || t->dtype == DT_MXFP4;
            assert_non_null(got);
            if (kept && !same_bytes_of(t, got))
                fail_msg("%s: %s differs", path, t->name);
        }
        gguf_close(a);
        gguf_close(b);
    }
}

/* ---- blocks of all types --------------------------------------------------
 */

static const char *const blocks[] = {
    "tiny-dense-Q4_0",   "tiny-dense-Q4_1",   "tiny-dense-Q5_0",
    "tiny-dense-Q5_1",   "tiny-dense-IQ4_NL", "tiny-dense-Q2_K",
    "tiny-dense-Q3_K_S", "tiny-dense-Q4_K_S", "tiny-dense-Q5_K_S",
    "tiny-dense-Q6_K",   "tiny-dense-IQ4_XS", "tiny-dense-Q8_0",
    "qwen3-MXFP4",       "qwen3-NVFP4",       "qwen3-IQ3_XXS",
    "qwen3-IQ3_S",       "qwen3-IQ2_XXS",     "qwen3-IQ2_XS",
    "qwen3-IQ2_S",       "qwen3-IQ1_S",       "qwen3-IQ1_M",
    "qwen3-TQ1_0",       "qwen3-TQ2_0"};
enum { N_BLOCKS = sizeof blocks / sizeof *blocks };

/* Elements of t, times its NAME.scale. */
static float *widen_all(const struct st_set *set, const struct st_tensor *t,
                        size_t *n)
{
    char name[NAMES_BYTES];
    float *x = widen(t, n), by;
    snprintf(name, sizeof name, "%.*s.scale", (int)names_module(t->name),
             t->name);
    const struct st_tensor *scale = st_find(set, name);
    if (!scale)
        return x;
    memcpy(&by, scale->data, sizeof by);
    for (size_t i = 0; i < *n; i++)
        x[i] *= by;
    return x;
}

/* Elements of BF16 are those of the blocks, rounded once. */
static void elements_are_widened(void **state)
{
    for (size_t i = 0; i < N_BLOCKS; i++) {
        char path[192];
        path_of(path, blocks[i]);
        write_gguf(path, "BF16");
        struct gguf *a = open_file(path), *b = must_open();
        for (size_t k = 0; k < st_count(gguf_tensors(b)); k++) {
            const struct st_tensor *got = st_at(gguf_tensors(b), k);
            const struct st_tensor *t = st_find(gguf_tensors(a), got->name);
            size_t n;
            float *x = widen_all(gguf_tensors(a), t, &n);
            uint16_t *want = malloc(n * sizeof *want);
            assert_int_equal(got->dtype, t->rank > 1 ? DT_BF16 : DT_F32);
            kernels_best()->from_f32[DT_BF16](want, x, n);
            if (t->rank > 1 && memcmp(got->data, want, 2 * n) != 0)
                fail_msg("%s: %s differs", path, t->name);
            free(want);
            free(x);
        }
        gguf_close(a);
        gguf_close(b);
    }
}

/* What rounding a second time may change: BF16 rounds each element by 2^-9 at
 * most, which the bound of BF16 activations covers; Q8_0 rounds like the int8
 * activations of quantized weights. */
static void logits_of_the_golden(void **state)
{
    static const struct {
        const char *type;
        double bound;
    } all[] = {{"BF16", 1.2e-2}, {"Q8_0", 4e-2}};
    for (size_t i = 0; i < N_BLOCKS; i++)
        for (size_t k = 0; k < 2; k++) {
            char path[192];
            struct golden g;
            size_t v;
            snprintf(path, sizeof path, GGUF "%s.expected.safetensors",
                     blocks[i]);
            assert_int_equal(golden_read(&g, path), 0);
            path_of(path, blocks[i]);
            write_gguf(path, all[k].type);
            float *x = logits_of(out_path, g.ids, g.n, &v);
            double error = golden_error(&g, x);
            printf("%-18s to %-5s %.1e\n", blocks[i], all[k].type, error);
            assert_true(error <= all[k].bound);
            free(x);
            golden_close(&g);
        }
}

/* ---- factors beside blocks ------------------------------------------------
 */

/* Write the file at path with one more tensor of floats, all of value v. */
static void write_more(const char *path, const char *name, size_t n, float v,
                       const char *to)
{
    struct gguf *g = open_file(path);
    struct st_set *set = gguf_tensors(g);
    struct gguf_out o = {0};
    struct st_writer *w;
    struct qwick_err e;
    size_t count = st_count(set);
    struct st_out_tensor *out = calloc(count + 1, sizeof *out);
    float *values = malloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = v;
    for (size_t i = 0; i < gguf_count(g); i++)
        gguf_put_value(&o, gguf_at(g, i));
    for (size_t i = 0; i < count; i++) {
        const struct st_tensor *t = st_at(set, i);
        out[i] = (struct st_out_tensor){
            .name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(out[i].shape, t->shape, sizeof t->shape);
    }
    out[count] = (struct st_out_tensor){
        .name = name, .dtype = DT_F32, .rank = 1, .shape = {n}};
    assert_ok(gguf_writer_open(&w, to, &o, out, count + 1, &e), &e);
    for (size_t i = 0; i < count; i++)
        assert_ok(st_writer_at(w, i, 0, st_at(set, i)->data,
                               st_at(set, i)->n_bytes, &e),
                  &e);
    assert_ok(st_writer_at(w, count, 0, values, n * sizeof *values, &e), &e);
    assert_ok(st_writer_close(w, &e), &e);
    gguf_out_free(&o);
    free(values);
    free(out);
    gguf_close(g);
}

/* A factor stays beside blocks that are copied, and is in elements that are
 * widened. */
static void factors_of_blocks(void **state)
{
    static const char name[] = "blk.0.attn_q.scale";
    static const int32_t ids[] = {3, 9, 1, 250, 7};
    const char *source = temp_path("factor.gguf");
    write_more(GGUF "tiny-dense-Q8_0.gguf", name, 1, 0.5f, source);
    write_gguf(source, "Q8_0");
    struct gguf *a = open_file(source), *b = must_open();
    same_tensors(a, b);
    gguf_close(b);
    same_logits(source, out_path, ids, 5);
    write_gguf(source, "F16");
    b = must_open();
    assert_null(st_find(gguf_tensors(b), name));
    assert_int_equal(st_count(gguf_tensors(b)) + 1, st_count(gguf_tensors(a)));
    size_t n, m;
    float *x = widen(st_find(gguf_tensors(a), "blk.0.attn_q.weight"), &n);
    float *y = widen(st_find(gguf_tensors(b), "blk.0.attn_q.weight"), &m);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(0.5f * x[i] - y[i]) <= 0x1p-11f * fabsf(y[i]));
    assert_int_equal(n, m);
    free(x);
    free(y);
    gguf_close(a);
    gguf_close(b);
}

/* Gemma 4's experts have factors of this name, which the model reads: they stay
 * whatever the blocks become. */
static void factors_of_experts(void **state)
{
    char path[192];
    const char *source = temp_path("experts.gguf");
    struct qwick_err e;
    struct golden g;
    size_t v;
    path_of(path, FAMILY("gemma4-top3"));
    assert_int_equal(golden_open(&g, FAMILY("gemma4-top3")), 0);
    assert_ok(try_write(path, source, "Q8_0", 1, NULL, &e), &e);
    write_gguf(source, "F16");
    struct gguf *b = must_open();
    assert_non_null(st_find(gguf_tensors(b), "blk.0.ffn_down_exps.scale"));
    gguf_close(b);
    float *x = logits_of(source, g.ids, g.n, &v);
    float *y = logits_of(out_path, g.ids, g.n, &v);
    double error = relative_error(y, x, g.n * v);
    printf("gemma4-top3 Q8_0 to F16 %.1e\n", error);
    assert_true(error <= 1.2e-2);
    free(x);
    free(y);
    golden_close(&g);
}

/* ---- refused --------------------------------------------------------------
 */

/* Write the first n bytes of a file, one of them changed. */
static const char *broken(const char *path, size_t n, size_t at,
                          unsigned char v)
{
    char *text;
    size_t size;
    assert_int_equal(map_read_all(path, 1 << 26, &text, &size, NULL), 0);
    if (at < size)
        text[at] = (char)v;
    temp_write("broken.gguf", text, n < size ? n : size);
    free(text);
    return temp_path("broken.gguf");
}

static void broken_files(void **state)
{
    static const char path[] = GGUF "tiny-dense-Q4_0.gguf";
    const struct gguf_value *v;
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e = {0};
    unlink(out_path);
    refused(broken(path, 5000, SIZE_MAX, 0), out_path, NULL, QWICK_ERR_MODEL,
            "truncated");
    refused(broken(path, SIZE_MAX, 4, 9), out_path, NULL, QWICK_ERR_MODEL,
            "version 9");
    write_more(path, "blk.0.attn_q.scale", 1, NAN, temp_path("nan.gguf"));
    refused(temp_path("nan.gguf"), out_path, "Q8_0", QWICK_ERR_MODEL,
            "blk.0.attn_q.scale: element 0");
    write_more(path, "more.weight", 64, NAN, temp_path("nan.gguf"));
    refused(temp_path("nan.gguf"), out_path, "Q8_0", QWICK_ERR_MODEL,
            "more.weight: row 0: holds NaN");
    struct gguf *g = open_file(path);
    v = gguf_find(g, "qwen3.block_count");
    assert_non_null(v);
    size_t at = (size_t)(v->data - st_map(gguf_tensors(g), 0)->data);
    gguf_close(g);
    refused(broken(path, SIZE_MAX, at, 77), out_path, NULL, QWICK_ERR_MODEL,
            "missing");
    assert_int_equal(access(out_path, F_OK), -1);
    assert_int_equal(qwick_quantize(path, temp_path("mlx"), &o, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_non_null(strstr(e.msg, "quantize the safetensors checkpoint"));
}

/* The source is never replaced. */
static void source_stays(void **state)
{
    char *text, *now;
    size_t n, m;
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e = {0};
    const char *path =
        broken(GGUF "tiny-dense-Q4_0.gguf", SIZE_MAX, SIZE_MAX, 0);
    assert_int_equal(map_read_all(path, 1 << 26, &text, &n, NULL), 0);
    o.format = QWICK_QUANTIZE_GGUF;
    o.force = true;
    assert_int_equal(qwick_quantize(path, path, &o, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, "is the source"));
    assert_int_equal(map_read_all(path, 1 << 26, &now, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_memory_equal(text, now, n);
    free(text);
    free(now);
}

static void same_bytes_for_any_threads(void **state)
{
    same_bytes(GGUF "qwen3-IQ3_XXS.gguf", "Q4_K_M", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_from_the_checkpoint),
        cmocka_unit_test(metadata_are_copied),
        cmocka_unit_test(same_types_are_copied),
        cmocka_unit_test(elements_are_widened),
        cmocka_unit_test(logits_of_the_golden),
        cmocka_unit_test(factors_of_blocks),
        cmocka_unit_test(factors_of_experts),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(source_stays),
        cmocka_unit_test(same_bytes_for_any_threads),
    };
    return cmocka_run_group_tests(tests, setup, temp_teardown);
}
