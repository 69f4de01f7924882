/* Writing checkpoints of Gemma 3, Qwen3.5 and newer families: GGUF files byte
 * by byte against llama.cpp's converter, the layout of MLX, logits against the
 * goldens, and models that must be refused. */
#include "test.h"

#include "file/gguf_write.h"
#include "gguf_written.h"
#include "tensors_file.h"

#define EXACT_BOUND 2e-5 /* the project's, see test_golden.c */

#define FAMILY(name) "../families/" name

/* Checkpoints, and whether ../golden/gguf has the converter's file. */
static const struct {
    const char *name, *type;
    bool converted;
} models[] = {
    {"gemma3-tied", "BF16", true},
    {"gemma3-gqa", "BF16", false},
    {"qwen35-tied", "BF16", true},
    {"qwen35-wrapped-untied", "BF16", true},
    {"qwen35-moe", "BF16", true},
    {"qwen35-f16-long", "F16", true},
    {QWEN3_NEXT, "BF16", true},
    {FAMILY("ernie4_5"), "BF16", true},
    {FAMILY("exaone4"), "BF16", true},
    {FAMILY("exaone4-full"), "BF16", true},
    {FAMILY("gemma1"), "BF16", true},
    {FAMILY("gemma2"), "BF16", true},
    {FAMILY("gemma2-one"), "BF16", true},
    {FAMILY("gemma4-e2b"), "BF16", true},
    {FAMILY("gemma4-e4b"), "BF16", true},
    {FAMILY("gemma4-kv"), "BF16", true},
    {FAMILY("gemma4-top3"), "BF16", true},
    {FAMILY("glm4-wide"), "BF16", true},
    {FAMILY("gpt-oss-top3"), "BF16", true},
    {FAMILY("granite-bias"), "BF16", true},
    {FAMILY("lfm2-long"), "BF16", true},
    {FAMILY("llama-biases"), "BF16", true},
    {FAMILY("llama3-tied"), "BF16", true},
    {FAMILY("mistral-nemo"), "BF16", true},
    {FAMILY("mistral3"), "BF16", true},
    {FAMILY("mixtral-top3"), "BF16", true},
    {FAMILY("olmo2-one"), "BF16", true},
    {FAMILY("olmo3-yarn"), "BF16", true},
    {FAMILY("phi3-crossing"), "BF16", true},
    {FAMILY("phi3-long"), "BF16", true},
    {FAMILY("phi3-window"), "BF16", true},
    {FAMILY("phi4mini-long"), "BF16", true},
    {FAMILY("qwen2-tied"), "BF16", true},
    {FAMILY("qwen2moe-top3"), "BF16", true},
    {FAMILY("qwen2vl"), "BF16", true},
    {FAMILY("qwen3vl-tied"), "BF16", true},
    {FAMILY("qwen3vlmoe"), "BF16", true},
    {FAMILY("seed-oss"), "BF16", true},
    {FAMILY("smollm3-tied"), "BF16", true},
    {FAMILY("ernie4_5-bias"), "BF16", false},
    {FAMILY("lfm2"), "BF16", false},
    {FAMILY("olmo3"), "BF16", false},
    {FAMILY("qwen25vl"), "BF16", false},
    {FAMILY("seed-oss-bias"), "BF16", false},
};
enum { N_MODELS = sizeof models / sizeof *models };

static void write_model(const char *name, const char *type)
{
    char dir[128];
    snprintf(dir, sizeof dir, MODELS "%s", name);
    write_gguf(dir, type);
}

/* ---- against the converter's files ----------------------------------------
 */

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The converter has ssm_a = -exp(A_log) in float32, we round the result of a
 * double: two roundings apart at most, each half a unit in the last place, and
 * the converter's exp has an error of a unit. */
static void same_decay(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(a[i] - b[i]) <= 4 * 0x1p-24f * fabsf(b[i]));
}

static void same_tensor(const struct st_tensor *a, const struct st_tensor *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->shape, b->shape, a->rank * sizeof *a->shape);
    if (ends_in(a->name, "ssm_a"))
        same_decay((const float *)(const void *)a->data,
                   (const float *)(const void *)b->data, a->shape[0]);
    else if (memcmp(a->data, b->data, a->n_bytes) != 0)
        fail_msg("%s differs", a->name);
}

static void same_entry(const struct gguf_value *a, const struct gguf_value *b)
{
    if (!a)
        fail_msg("%.*s: missing", (int)b->key_len, b->key);
    bool same = a->type == b->type && a->u == b->u && a->i == b->i &&
                a->f == b->f && a->n_bytes == b->n_bytes && a->n == b->n &&
                (!b->n_bytes || !memcmp(a->data, b->data, b->n_bytes));
    if (!same)
        fail_msg("%.*s differs", (int)b->key_len, b->key);
}

/* What describes the source, and what readers know without the key: a window of
 * 0, the family's usual pattern of windows, a factor that follows from another,
 * and the number of tokens, which the converter writes for want of a
 * tokenizer. */
static bool is_left_out(const char *key, const struct gguf_value *v)
{
    static const char *const begins[] = {"tokenizer.", "general.name",
                                         "general.type", "general.size_label"};
    static const char *const ends[] = {".vocab_size", ".n_deepstack_layers",
                                       ".attention.sliding_window_pattern",
                                       ".rope.scaling.yarn_attn_factor"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(key, begins[i], strlen(begins[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(key, ends[i]))
            return true;
    return ends_in(key, ".sliding_window") && v->u == 0;
}

/* All tensors have the converter's name, type, shape and bytes, and all
 * metadata of the model its keys and values. The tokenizer there is not the
 * checkpoint's, which has none. */
static void written_as_the_converter_does(void **state)
{
    for (size_t m = 0; m < N_MODELS; m++) {
        char path[128];
        struct gguf *want;
        struct qwick_err e;
        if (!models[m].converted)
            continue;
        snprintf(path, sizeof path, "tests/golden/gguf/%s.gguf",
                 models[m].name);
        write_model(models[m].name, models[m].type);
        struct gguf *got = must_open();
        assert_int_equal(gguf_open(&want, path, &e), 0);
        struct st_set *a = gguf_tensors(got), *b = gguf_tensors(want);
        assert_int_equal(st_count(a), st_count(b));
        for (size_t i = 0; i < st_count(b); i++) {
            const struct st_tensor *t = st_find(a, st_at(b, i)->name);
            if (!t)
                fail_msg("%s: missing", st_at(b, i)->name);
            same_tensor(t, st_at(b, i));
        }
        for (size_t i = 0; i < gguf_count(want); i++) {
            const struct gguf_value *v = gguf_at(want, i);
            char key[96];
            snprintf(key, sizeof key, "%.*s", (int)v->key_len, v->key);
            if (!is_left_out(key, v))
                same_entry(gguf_find(got, key), v);
        }
        gguf_close(got);
        gguf_close(want);
    }
}

/* Copy a file of a checkpoint to a directory of the same name, which the result
 * keeps. */
static void copy_file(const char *name, const char *from, const char *to)
{
    char path[192], *text;
    size_t n;
    snprintf(path, sizeof path, MODELS "%s/%s", name, from);
    assert_int_equal(map_read_all(path, 1 << 26, &text, &n, NULL), 0);
    snprintf(path, sizeof path, "%s/%s", strrchr(name, '/') + 1, to);
    temp_write(path, text, n);
    free(text);
}

/* A config.json as released checkpoints have it gives the same file. */
static void released_spellings_write_the_same(void **state)
{
    for (size_t m = 0; m < N_MODELS; m++) {
        char path[192], *one, *two;
        size_t n, n_two;
        const char *name = models[m].name;
        snprintf(path, sizeof path, MODELS "%s/released.json", name);
        if (access(path, F_OK) != 0)
            continue;
        write_model(name, "BF16");
        assert_int_equal(map_read_all(out_path, 1 << 26, &one, &n, NULL), 0);
        snprintf(path, sizeof path, "%s", temp_path(strrchr(name, '/') + 1));
        assert_int_equal(mkdir(path, 0700), 0);
        copy_file(name, "released.json", "config.json");
        copy_file(name, "model.safetensors", "model.safetensors");
        write_gguf(path, "BF16");
        assert_int_equal(map_read_all(out_path, 1 << 26, &two, &n_two, NULL),
                         0);
        if (n != n_two || memcmp(one, two, n) != 0)
            fail_msg("%s: another file", name);
        free(one);
        free(two);
    }
}

/* ---- logits ---------------------------------------------------------------
 */

static void floats_have_the_logits_of_the_reference(void **state)
{
    for (size_t m = 0; m < N_MODELS; m++) {
        struct golden g;
        size_t vocab_size;
        assert_int_equal(golden_open(&g, models[m].name), 0);
        write_model(models[m].name, models[m].type);
        float *got = logits_of(out_path, g.ids, g.n, &vocab_size);
        assert_int_equal(vocab_size, g.vocab_size);
        double error = golden_error(&g, got);
        printf("%-22s exact %.2e\n", models[m].name, error);
        assert_true(error <= EXACT_BOUND);
        free(got);
        golden_close(&g);
    }
}

/* Whether a row is of the newer families. Recurrent states carry errors of
 * rounding on, so that Qwen3-Next's are larger: quantized_as_dequantized tests
 * it. */
static bool is_family(size_t m)
{
    return strncmp(models[m].name, FAMILY(""), strlen(FAMILY(""))) == 0 &&
           strcmp(models[m].name, QWEN3_NEXT) != 0;
}

/* Multiply the norms of queries by the scale that Gemma 4's scores do not have.
 * Without it, softmax of random scores amplifies errors. */
static void scale_queries(struct st_out_tensor *t)
{
    const struct kernels *k = kernels_get(ISA_REF);
    size_t n = t->shape[0];
    float x[512];
    if (!ends_in(t->name, "q_norm.weight"))
        return;
    assert_true(n <= sizeof x / sizeof *x);
    k->to_f32[t->dtype](x, t->data, n);
    for (size_t i = 0; i < n; i++)
        x[i] /= sqrtf((float)n);
    void *data = malloc(n * dtype_bytes(t->dtype));
    assert_non_null(data);
    k->from_f32[t->dtype](data, x, n);
    t->data = data;
}

/* The directory of a checkpoint; of one of Gemma 4, that of a copy with scaled
 * scores. The result is valid until the next call. */
static const char *scaled_source(const char *name)
{
    static char dir[192];
    char path[224];
    struct st_out_tensor *out;
    struct st_set *set;
    struct qwick_err e;
    const char *own = strrchr(name, '/') + 1;
    snprintf(dir, sizeof dir, MODELS "%s", name);
    if (strncmp(own, "gemma4", strlen("gemma4")) != 0)
        return dir;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(st_open_file(&set, path, &e), &e);
    assert_non_null(out = calloc(st_count(set), sizeof *out));
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        out[i] = (struct st_out_tensor){.name = t->name,
                                        .dtype = t->dtype,
                                        .rank = t->rank,
                                        .data = t->data};
        memcpy(out[i].shape, t->shape, sizeof out[i].shape);
        scale_queries(&out[i]);
    }
    snprintf(dir, sizeof dir, "%s", temp_path(own));
    remove_tree(dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    copy_file(name, "config.json", "config.json");
    snprintf(path, sizeof path, "%s/model.safetensors", own);
    temp_put_tensors(path, out, st_count(set));
    for (size_t i = 0; i < st_count(set); i++)
        if (out[i].data != st_at(set, i)->data)
            free((void *)out[i].data);
    free(out);
    st_close(set);
    return dir;
}

/* Check that a model's logits of a golden's tokens are near to the source's. */
static void error_fits(const struct golden *g, const char *source,
                       const char *path, double bound)
{
    size_t vocab_size, n = g->n_rows * g->vocab_size,
                       first = (g->n - g->n_rows) * g->vocab_size;
    float *want = logits_of(source, g->ids, g->n, &vocab_size),
          *got = logits_of(path, g->ids, g->n, &vocab_size);
    double error = relative_error(got + first, want + first, n);
    if (!(error <= bound))
        fail_msg("%s: error %.2e", source, error);
    free(want);
    free(got);
}

static const char *write_mlx(const char *dir, int bits)
{
    const char *path = temp_path("mlx");
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    o.bits = bits;
    o.group = 32;
    o.threads = 2;
    o.force = true;
    assert_ok(qwick_quantize(dir, path, &o, NULL, &e), &e);
    return path;
}

/* With 8 bits, random weights in either format are this near to the source:
 * 0.076 is the largest error. A weight in a wrong place makes a larger one. */
static void eight_bits_are_near(void **state)
{
    for (size_t m = 0; m < N_MODELS; m++) {
        struct golden g;
        if (!is_family(m))
            continue;
        const char *source = scaled_source(models[m].name);
        assert_int_equal(golden_open(&g, models[m].name), 0);
        write_gguf(source, "Q8_0");
        error_fits(&g, source, out_path, 0.08);
        error_fits(&g, source, write_mlx(source, 8), 0.08);
        golden_close(&g);
    }
}

/* Compare names, types and shapes of tensors. */
static void same_layout(const char *name, const char *path)
{
    char file[160];
    struct st_set *got, *want;
    struct qwick_err e;
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    assert_ok(st_open_file(&got, file, &e), &e);
    snprintf(file, sizeof file, MODELS "%s-mlx4/model.safetensors", name);
    assert_ok(st_open_file(&want, file, &e), &e);
    if (st_count(got) != st_count(want))
        fail_msg("%s: %zu tensors, expected %zu", name, st_count(got),
                 st_count(want));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *a = st_at(want, i), *b = st_find(got, a->name);
        /* routers have 8 bits whatever mlx-lm gives them */
        bool router = strstr(a->name, ".gate.") || strstr(a->name, "_gate.") ||
                      strstr(a->name, ".router.");
        size_t n = router ? 1 : a->rank;
        if (!b || a->dtype != b->dtype || a->rank != b->rank ||
            memcmp(a->shape, b->shape, n * sizeof *a->shape) != 0)
            fail_msg("%s: %s: missing, or another shape", name, a->name);
    }
    st_close(got);
    st_close(want);
}

/* Results in MLX's format have mlx-lm's tensors, experts among them. Models
 * with vision keep the names of the source. */
static void layout_of_mlx(void **state)
{
    static const char *const names[] = {
        FAMILY("ernie4_5"),     FAMILY("exaone4"),
        FAMILY("glm4-wide"),    FAMILY("granite-bias"),
        FAMILY("gpt-oss-top3"), FAMILY("llama-biases"),
        FAMILY("llama3-tied"),  FAMILY("mistral-nemo"),
        FAMILY("mixtral-top3"), FAMILY("olmo2-one"),
        FAMILY("olmo3-yarn"),   FAMILY("phi4mini-long"),
        FAMILY("qwen2-tied"),   FAMILY("qwen2moe-top3"),
        FAMILY("seed-oss"),     FAMILY("smollm3-tied")};
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        char dir[128];
        snprintf(dir, sizeof dir, MODELS "%s", names[m]);
        same_layout(names[m], write_mlx(dir, 4));
    }
}

/* The report has the bytes of the tensors in the file. */
static void reported_as_written(void **state)
{
    for (size_t m = 0; m < N_MODELS; m++) {
        struct qwick_quantize_report r;
        struct qwick_err e;
        char dir[128];
        size_t n = 0;
        snprintf(dir, sizeof dir, MODELS "%s", models[m].name);
        unlink(out_path);
        assert_ok(try_write(dir, out_path, "Q4_K_M", 2, &r, &e), &e);
        struct gguf *g = must_open();
        for (size_t i = 0; i < st_count(gguf_tensors(g)); i++)
            n += st_at(gguf_tensors(g), i)->n_bytes;
        assert_int_equal(r.bytes_written, n);
        gguf_close(g);
    }
}

/* Gemma's values are copied, and its norms are the sums that loading makes. */
static void gemma_has_equal_bits(void **state)
{
    struct golden g;
    assert_int_equal(golden_open(&g, "gemma3-tied"), 0);
    write_gguf(g.dir, "BF16");
    same_logits(g.dir, out_path, g.ids, g.n);
    golden_close(&g);
}

static void copy_entry(struct gguf_out *o, const struct gguf_value *v)
{
    char key[96];
    snprintf(key, sizeof key, "%.*s", (int)v->key_len, v->key);
    switch (v->type) {
    case GGUF_U32:
        gguf_put_u32(o, key, (uint32_t)v->u);
        return;
    case GGUF_F32:
        gguf_put_f32(o, key, v->f);
        return;
    case GGUF_STRING:
        gguf_put_string(o, key, (const char *)v->data, v->n_bytes);
        return;
    case GGUF_ARRAY:
        assert_true(v->element == GGUF_I32 || v->element == GGUF_BOOL);
        gguf_put_array(o, key, v->element, v->n);
        for (size_t i = 0; i < v->n; i++)
            if (v->element == GGUF_BOOL)
                gguf_put_element_bool(o, gguf_int_at(v, i) != 0);
            else
                gguf_put_element_i32(o, (int32_t)gguf_int_at(v, i));
        return;
    default:
        fail_msg("%s: type %s", key, gguf_type_name(v->type));
    }
}

/* Write out.gguf with all tensors widened to F32 to path. */
static void write_widened(const char *path)
{
    struct gguf *g = must_open();
    struct st_set *set = gguf_tensors(g);
    size_t n = st_count(set), n_elements;
    struct gguf_out meta = {0};
    struct st_out_tensor *out = calloc(n, sizeof *out);
    struct st_writer *w;
    struct qwick_err e;
    for (size_t i = 0; i < gguf_count(g); i++)
        copy_entry(&meta, gguf_at(g, i));
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = st_at(set, i);
        out[i] = (struct st_out_tensor){
            .name = t->name, .dtype = DT_F32, .rank = t->rank};
        memcpy(out[i].shape, t->shape, t->rank * sizeof *t->shape);
    }
    assert_int_equal(gguf_writer_open(&w, path, &meta, out, n, &e), 0);
    for (size_t i = 0; i < n; i++) {
        float *x = widen(st_at(set, i), &n_elements);
        assert_int_equal(st_writer_at(w, i, 0, x, n_elements * sizeof *x, &e),
                         0);
        free(x);
    }
    assert_int_equal(st_writer_close(w, &e), 0);
    gguf_out_free(&meta);
    free(out);
    gguf_close(g);
}

/* Write out.gguf, of Qwen3-Next, to path with the packed ssm_in of older
 * converters in place of attn_qkv and attn_gate. */
static void write_older(const char *path)
{
    struct gguf *g = must_open();
    struct st_set *set = gguf_tensors(g), *source;
    struct gguf_out meta = {0};
    struct st_out_tensor out[128];
    const struct st_tensor *from[128];
    char names[128][48];
    struct st_writer *w;
    struct qwick_err e;
    size_t n = 0;
    assert_int_equal(
        st_open_file(&source, MODELS QWEN3_NEXT "/model.safetensors", &e), 0);
    for (size_t i = 0; i < gguf_count(g); i++)
        copy_entry(&meta, gguf_at(g, i));
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        char name[96];
        snprintf(names[n], sizeof *names, "%s", t->name);
        if (ends_in(t->name, "attn_gate.weight"))
            continue;
        if (ends_in(t->name, "attn_qkv.weight")) {
            char layer = t->name[4];
            snprintf(names[n], sizeof *names, "blk.%c.ssm_in.weight", layer);
            snprintf(name, sizeof name,
                     "model.layers.%c.linear_attn.in_proj_qkvz.weight", layer);
            t = st_find(source, name);
        }
        out[n] = (struct st_out_tensor){
            .name = names[n], .dtype = t->dtype, .rank = t->rank};
        memcpy(out[n].shape, t->shape, t->rank * sizeof *t->shape);
        from[n++] = t;
    }
    assert_int_equal(gguf_writer_open(&w, path, &meta, out, n, &e), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(
            st_writer_at(w, i, 0, from[i]->data, from[i]->n_bytes, &e), 0);
    assert_int_equal(st_writer_close(w, &e), 0);
    gguf_out_free(&meta);
    st_close(source);
    gguf_close(g);
}

/* The layouts of the projections give the same bits. */
static void packed_projections_of_older_files(void **state)
{
    struct golden g;
    assert_int_equal(golden_open(&g, QWEN3_NEXT), 0);
    write_model(QWEN3_NEXT, "BF16");
    write_older(temp_path("older.gguf"));
    same_logits(temp_path("older.gguf"), out_path, g.ids, g.n);
    same_logits(g.dir, out_path, g.ids, g.n);
    golden_close(&g);
}

/* With --exact, the blocks give the logits of the dequantized weights. */
static void quantized_as_dequantized(void **state)
{
    static const char *const types[] = {"Q8_0", "Q4_0", "Q4_K_M", "Q6_K"};
    const char *wide = temp_path("wide.gguf");
    for (size_t m = 0; m < N_MODELS; m++) {
        struct golden g;
        assert_int_equal(golden_open(&g, models[m].name), 0);
        write_model(models[m].name, types[m % 4]);
        write_widened(wide);
        same_logits(wide, out_path, g.ids, g.n < 40 ? g.n : 40);
        golden_close(&g);
        unlink(wide);
    }
}

/* Values are rounded after they have been moved and changed: each element of
 * a Q8_0 file is within half a step of the BF16 file's, the step being the
 * largest of its block divided by 127, rounded to F16. */
static void rounded_where_they_belong(void **state)
{
    static const char *const names[] = {"qwen35-tied", "qwen35-moe",
                                        "gemma3-gqa", QWEN3_NEXT};
    for (size_t m = 0; m < 4; m++) {
        size_t n, n_want, n_blocks = 0;
        write_model(names[m], "BF16");
        struct gguf *want = must_open();
        write_model(names[m], "Q8_0");
        struct gguf *got = must_open();
        struct st_set *set = gguf_tensors(got);
        for (size_t i = 0; i < st_count(set); i++) {
            const struct st_tensor *t = st_at(set, i);
            const struct st_tensor *source =
                st_find(gguf_tensors(want), t->name);
            float *x = widen(t, &n), *y = widen(source, &n_want), most = 0;
            assert_int_equal(n, n_want);
            for (size_t k = 0; k < n && t->dtype == DT_Q8_0; k++) {
                for (size_t j = k; j < k + 32 && k % 32 == 0; j++)
                    most = j == k || fabsf(y[j]) > most ? fabsf(y[j]) : most;
                /* half a step, and the rounding of the step to F16: 127 steps
                 * times 2^-11 */
                assert_true(fabsf(x[k] - y[k]) <=
                            most / 127 * (0.5f + 127 * 0x1p-11f));
                n_blocks += k % 32 == 0;
            }
            if (t->dtype == DT_F32)
                assert_memory_equal(x, y, n * sizeof *x);
            free(x);
            free(y);
        }
        assert_true(n_blocks > 1000);
        gguf_close(got);
        gguf_close(want);
    }
}

/* Small and sensitive weights keep more bits. Rows have 64, 48 or 40
 * elements: no block of 256 fits them. */
static void types_of_a_mixture(void **state)
{
    static const struct typed types[] = {
        {"blk.0.ssm_conv1d.weight", DT_F32},
        {"blk.0.ssm_a", DT_F32},
        {"blk.0.ssm_dt.bias", DT_F32},
        {"blk.0.ffn_gate_inp.weight", DT_F32},
        {"blk.0.ffn_gate_inp_shexp.weight", DT_F32},
        {"blk.0.ssm_alpha.weight", DT_Q8_0},
        {"blk.0.ssm_beta.weight", DT_Q8_0},
        {"blk.0.attn_qkv.weight", DT_Q5_1}, /* Q5_K, as in llama.cpp */
        {"blk.0.attn_gate.weight", DT_Q5_0},
        {"blk.3.attn_q.weight", DT_Q5_0},
        {"blk.1.ffn_gate_shexp.weight", DT_Q5_0},
        {"blk.1.ffn_down_shexp.weight", DT_F16},
    };
    write_model("qwen35-moe", "Q4_K_M");
    struct gguf *g = must_open();
    types_are(g, types, sizeof types / sizeof *types);
    assert_int_equal(gguf_find(g, "general.file_type")->u, 15);
    gguf_close(g);
}

static void same_bytes_for_any_threads(void **state)
{
    same_bytes(MODELS "qwen35-moe", "Q4_0", 4);
}

/* ---- windows, scores ------------------------------------------------------
 */

/* The types of Gemma's seven layers. */
static void put_layers(const char *kinds)
{
    char *text;
    size_t n;
    copy_model("gemma3-tied", "\"hidden_size\"", "\"hidden_size\"");
    assert_int_equal(
        map_read_all(temp_path("config.json"), 1 << 20, &text, &n, NULL), 0);
    char *begin = strstr(text, "\"layer_types\": ["), *end = strchr(begin, ']');
    FILE *f = fopen(temp_path("config.json"), "wb");
    fprintf(f, "%.*s\"layer_types\": [", (int)(begin - text), text);
    for (size_t i = 0; kinds[i]; i++)
        fprintf(f, "%s\"%s_attention\"", i ? ", " : "",
                kinds[i] == 's' ? "sliding" : "full");
    fprintf(f, "%s", end);
    fclose(f);
    free(text);
}

/* The file says which layers have a window: by the family's default, by a
 * number or by flags. */
static void windows_of_any_layers(void **state)
{
    static const char key[] = "gemma3.attention.sliding_window_pattern";
    static const struct {
        const char *kinds;
        int type; /* of the entry; -1: none */
        uint64_t period;
    } all[] = {
        {"sssssfs", -1, 0},         {"ssfssfs", GGUF_U32, 3},
        {"ssssssf", GGUF_U32, 7},   {"sssssss", GGUF_U32, 0},
        {"fssfsss", GGUF_ARRAY, 0}, {"fffffff", -1, 0},
    };
    struct golden g;
    assert_int_equal(golden_open(&g, "gemma3-tied"), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        put_layers(all[i].kinds);
        write_gguf(temp_dir, "BF16");
        struct gguf *file = must_open();
        const struct gguf_value *v = gguf_find(file, key);
        assert_int_equal(v ? (int)v->type : -1, all[i].type);
        if (v)
            assert_int_equal(v->u, all[i].period);
        assert_int_equal(gguf_find(file, "gemma3.attention.sliding_window") ==
                             NULL,
                         strchr(all[i].kinds, 's') == NULL);
        gguf_close(file);
        same_logits(temp_dir, out_path, g.ids, g.n);
    }
    golden_close(&g);
}

/* Readers assume a score scale. q_norm makes up for another one, and stays
 * unchanged if the model has the assumed one. */
static void another_score_scale(void **state)
{
    size_t n;
    write_model("gemma3-tied", "BF16");
    struct gguf *g = must_open();
    float *x = widen(st_find(gguf_tensors(g), "blk.1.attn_q_norm.weight"), &n);
    gguf_close(g);
    copy_model("gemma3-tied", "\"query_pre_attn_scalar\": 32",
               "\"query_pre_attn_scalar\": 8");
    write_gguf(temp_dir, "BF16");
    g = must_open();
    float *y = widen(st_find(gguf_tensors(g), "blk.1.attn_q_norm.weight"), &n);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(y[i] - 2 * x[i]) <= 0x1p-22f * fabsf(x[i]));
    gguf_close(g);
    free(x);
    free(y);
}

/* A text model may have no sections of positions in images. The file has the
 * sections of the goldens: 2, 1 and 1 of 4 frequencies. */
static void sections_of_a_text_model(void **state)
{
    static const char key[] = "qwen35.rope.dimension_sections";
    static const int32_t want[] = {2, 1, 1, 0};
    copy_model("qwen35-tied", "\"mrope_section\"", "\"other_section\"");
    write_gguf(temp_dir, "BF16");
    struct gguf *g = must_open();
    const struct gguf_value *v = gguf_find(g, key);
    assert_non_null(v);
    assert_int_equal(v->n, 4);
    assert_memory_equal(v->data, want, sizeof want);
    gguf_close(g);
}

/* ---- refused --------------------------------------------------------------
 */

static void models_that_gguf_has_not(void **state)
{
    static const struct {
        const char *name, *word;
    } lacking[] = {
        {FAMILY("gemma2-scalar"), "final_logit_softcapping: null cannot"},
        {FAMILY("mistral"), "sliding_window: a window cannot"},
        {FAMILY("qwen2-window"), "sliding_window: a window cannot"},
        {FAMILY("qwen2moe-step"), "mlp_only_layers: layers without experts"},
        {FAMILY("smollm3-own"), "no_rope_layers: other layers"},
    };
    refuses_config("gemma3-tied",
                   "\"rope_theta\": 10000.0,\n      \"rope_type\": \"default\"",
                   "\"rope_theta\": 10000.0,\n      \"rope_type\": \"linear\","
                   "\n      \"factor\": 2.0",
                   "rope_parameters: scaling in layers with a window");
    refuses_config("qwen35-tied", "\"linear_conv_kernel_dim\": 4",
                   "\"linear_conv_kernel_dim\": 3",
                   "linear_attn.conv1d.weight: shape [");
    refuses_config("qwen35-tied", "\"mrope_section\": [\n      2,",
                   "\"mrope_section\": [\n      3,",
                   "mrope_section: other sections than [2, 1, 1]");
    refuses_config(FAMILY("gemma2-one"), "\"attn_logit_softcapping\": 4.0",
                   "\"attn_logit_softcapping\": null",
                   "attn_logit_softcapping: null cannot");
    refuses_config(FAMILY("gemma2-one"), "\"query_pre_attn_scalar\": 16",
                   "\"query_pre_attn_scalar\": 8",
                   "query_pre_attn_scalar: another value");
    refuses_config(FAMILY("gemma2-one"),
                   "\"sliding_attention\",\n    \"full_attention\",\n    "
                   "\"sliding_attention\"",
                   "\"full_attention\", \"full_attention\", "
                   "\"full_attention\"",
                   "layer_types: a model without sliding_attention");
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, MODELS "%s", lacking[i].name);
        unlink(out_path);
        refused(dir, out_path, NULL, QWICK_ERR_MODEL, lacking[i].word);
    }
}

/* The message names the row of the source, not of the result, whose value
 * heads have another order. */
static void bad_value_in_a_head(void **state)
{
    static const char tensor[] = "model.layers.0.linear_attn.in_proj_z.weight";
    const uint16_t nan = 0x7fc0;
    char word[128];
    copy_model("qwen35-tied", "\"hidden_size\"", "\"hidden_size\"");
    put_bad_value(tensor, 17, 5, nan); /* a row of the second head */
    snprintf(word, sizeof word, "%s: row 17: holds NaN", tensor);
    unlink(out_path);
    refused(temp_dir, out_path, "Q8_0", QWICK_ERR_MODEL, word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_as_the_converter_does),
        cmocka_unit_test(released_spellings_write_the_same),
        cmocka_unit_test(floats_have_the_logits_of_the_reference),
        cmocka_unit_test(eight_bits_are_near),
        cmocka_unit_test(layout_of_mlx),
        cmocka_unit_test(reported_as_written),
        cmocka_unit_test(gemma_has_equal_bits),
        cmocka_unit_test(packed_projections_of_older_files),
        cmocka_unit_test(quantized_as_dequantized),
        cmocka_unit_test(rounded_where_they_belong),
        cmocka_unit_test(types_of_a_mixture),
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(windows_of_any_layers),
        cmocka_unit_test(another_score_scale),
        cmocka_unit_test(sections_of_a_text_model),
        cmocka_unit_test(models_that_gguf_has_not),
        cmocka_unit_test(bad_value_in_a_head),
    };
    return cmocka_run_group_tests(tests, setup, temp_teardown);
}
