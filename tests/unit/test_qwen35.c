/* Qwen3.5 and Qwen3-Next: layouts of one checkpoint, the form of mlx-lm,
 * quantized weights, broken files. test_golden and test_families have the
 * expected numbers. The tests of all models show that the numbers do not depend
 * on threads, chunks and other sequences of a pass. */
#include "test.h"

#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"
#include "golden.h"
#include "qwick_tools.h"
#include "stack.h"
#include "tempdir.h"
#include "tensors_file.h"

#define MODELS  "tests/golden/models/"
#define WRAPPED "qwen35-wrapped-untied"
#define MOE     "qwen35-moe"

static const char *const mixtures[] = {MOE, QWEN3_NEXT};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

/* ---- helpers ------------------------------------------------------------ */

static char note[512]; /* the last one about ignored tensors */

static void keep_note(void *ctx, enum qwick_log_level level, const char *line)
{
    (void)ctx;
    if (level == QWICK_LOG_NOTE && strstr(line, "not part of the text model"))
        snprintf(note, sizeof note, "%s", line);
}

static int open_model(struct qwick_engine **eng, const char *dir,
                      struct qwick_err *e)
{
    note[0] = '\0';
    return try_open(eng, e, .model = dir, .exact = true, .threads = 2,
                    .log = keep_note);
}

/* Exact logits of the golden's tokens, malloc'ed. */
static float *logits_of(const char *dir, const struct golden *g)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    assert_ok(open_model(&eng, dir, &e), &e);
    float *out = malloc(g->n * g->vocab_size * sizeof *out);
    assert_ok(all_logits(eng, g, out, &e), &e);
    qwick_engine_close(eng);
    return out;
}

/* A golden's tensors, to be changed and written. */
struct copy {
    struct st_set *set;
    struct tensors t;
    char (*names)[192];
};

static struct copy open_copy(const char *golden)
{
    char path[128];
    struct copy c = {0};
    snprintf(path, sizeof path, MODELS "%s/model.safetensors", golden);
    assert_int_equal(st_open_file(&c.set, path, NULL), 0);
    c.t.n = st_count(c.set);
    c.t.t = calloc(c.t.n, sizeof *c.t.t);
    c.names = calloc(c.t.n, sizeof *c.names);
    for (size_t i = 0; i < c.t.n; i++) {
        const struct st_tensor *from = st_at(c.set, i);
        snprintf(c.names[i], sizeof *c.names, "%s", from->name);
        c.t.t[i] = (struct st_out_tensor){.name = c.names[i],
                                          .dtype = from->dtype,
                                          .rank = from->rank,
                                          .data = from->data};
        memcpy(c.t.t[i].shape, from->shape, sizeof from->shape);
    }
    return c;
}

/* Write the tensors and the golden's config.json to temp_dir. */
static void write_copy(struct copy *c, const char *golden)
{
    char path[128], *config;
    size_t n;
    snprintf(path, sizeof path, MODELS "%s/config.json", golden);
    assert_int_equal(map_read_all(path, 1 << 20, &config, &n, NULL), 0);
    temp_clear();
    temp_write("config.json", config, n);
    free(config);
    temp_put_tensors("model.safetensors", c->t.t, c->t.n);
}

static void close_copy(struct copy *c)
{
    free(c->t.t);
    free(c->names);
    st_close(c->set);
}

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* Replace the prefix `from` of all names that have it. */
static void rename_all(struct copy *c, const char *from, const char *to)
{
    for (size_t i = 0; i < c->t.n; i++) {
        char old[192];
        snprintf(old, sizeof old, "%s", c->t.t[i].name);
        if (!strncmp(old, from, strlen(from)))
            snprintf(c->names[i], sizeof *c->names, "%s%s", to,
                     old + strlen(from));
    }
}

/* ---- layouts ------------------------------------------------------------ */

/* Write and close a copy: its logits are the golden's. */
static void copy_equals(struct copy *c, const char *golden,
                        const struct golden *g, const float *want)
{
    write_copy(c, golden);
    close_copy(c);
    float *got = logits_of(temp_dir, g);
    assert_memory_equal(got, want, g->n * g->vocab_size * sizeof *got);
    free(got);
}

static void all_prefixes_give_the_same_logits(void **state)
{
    static const char *const prefixes[] = {"model.language_model.", "model.",
                                           "language_model.model."};
    struct golden g;
    assert_int_equal(golden_open(&g, WRAPPED), 0);
    float *want = logits_of(MODELS WRAPPED, &g);
    assert_non_null(strstr(note, "2 tensors, 0.0 MB, are not part of the text "
                                 "model and ignored: "));
    for (size_t i = 0; i < 3; i++) {
        struct copy c = open_copy(WRAPPED);
        rename_all(&c, "model.language_model.", prefixes[i]);
        if (i == 2)
            rename_all(&c, "lm_head.", "language_model.lm_head.");
        copy_equals(&c, WRAPPED, &g, want);
    }
    free(want);
    golden_close(&g);
}

/* As mlx-lm's sanitize does: 1 is added to the norms, and the convolution's
 * last two dimensions change places. */
static void convert_mlx(struct copy *c)
{
    static const char *const norms[] = {
        ".input_layernorm.weight", ".post_attention_layernorm.weight",
        ".q_norm.weight", ".k_norm.weight", "model.norm.weight"};
    for (size_t i = 0; i < c->t.n; i++) {
        struct st_out_tensor *t = &c->t.t[i];
        if (ends_in(t->name, ".conv1d.weight")) {
            t->shape[1] = t->shape[2];
            t->shape[2] = 1;
        }
        for (size_t k = 0; k < 5; k++) {
            if (!ends_in(t->name, norms[k]))
                continue;
            float *v = malloc(t->shape[0] * sizeof *v);
            kernels_ref()->to_f32[t->dtype](v, t->data, t->shape[0]);
            for (size_t j = 0; j < t->shape[0]; j++)
                v[j] += 1;
            tensors_keep(v);
            t->dtype = DT_F32;
            t->data = v;
        }
    }
}

static void the_form_of_mlx_gives_the_same_logits(void **state)
{
    struct golden g;
    assert_int_equal(golden_open(&g, WRAPPED), 0);
    float *want = logits_of(MODELS WRAPPED, &g);
    struct copy c = open_copy(WRAPPED);
    convert_mlx(&c);
    rename_all(&c, "model.language_model.", "language_model.model.");
    rename_all(&c, "lm_head.", "language_model.lm_head.");
    copy_equals(&c, WRAPPED, &g, want);
    free(want);
    golden_close(&g);
}

/* Give the experts of a mixture's layers a layout. */
static void lay_out(struct copy *c, const char *golden,
                    enum expert_layout layout)
{
    bool next = strcmp(golden, MOE) != 0;
    for (int i = 0; i < (next ? 2 : 4); i++) {
        char mlp[64];
        snprintf(mlp, sizeof mlp, "model.layers.%d.mlp", i);
        tensors_layout(&c->t, mlp, next ? 4 : 8, layout);
    }
}

static void all_layouts_of_experts_give_the_same_logits(void **state)
{
    for (size_t m = 0; m < N_MIXTURES; m++) {
        struct golden g;
        assert_int_equal(golden_open(&g, mixtures[m]), 0);
        float *want = logits_of(g.dir, &g);
        assert_string_equal(note, "");
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            struct copy c = open_copy(mixtures[m]);
            lay_out(&c, mixtures[m], (enum expert_layout)layout);
            copy_equals(&c, mixtures[m], &g, want);
        }
        struct copy c = open_copy(mixtures[m]);
        convert_mlx(&c);
        lay_out(&c, mixtures[m], LAYOUT_STACK);
        copy_equals(&c, mixtures[m], &g, want);
        free(want);
        golden_close(&g);
    }
}

/* The bytes of the GGUF file of the checkpoint in temp_dir, malloc'ed. */
static char *gguf_bytes(size_t *n)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    char out[128], *bytes;
    snprintf(out, sizeof out, "%s/out.gguf", temp_dir);
    o.format = QWICK_QUANTIZE_GGUF;
    o.type = "Q4_K_M";
    assert_ok(qwick_quantize(temp_dir, out, &o, NULL, &e) ||
                  map_read_all(out, 1 << 26, &bytes, n, &e),
              &e);
    return bytes;
}

/* Check that the GGUF file of a changed copy, which this closes, has the bytes
 * want [n]. */
static void same_gguf(struct copy *c, const char *golden, const char *want,
                      size_t n)
{
    size_t m;
    write_copy(c, golden);
    close_copy(c);
    char *got = gguf_bytes(&m);
    assert_int_equal(m, n);
    assert_memory_equal(got, want, n);
    free(got);
}

static void gguf_files_of_all_layouts_are_equal(void **state)
{
    size_t n;
    struct copy c;
    char *want;
    for (size_t m = 0; m < N_MIXTURES; m++) {
        c = open_copy(mixtures[m]);
        write_copy(&c, mixtures[m]);
        close_copy(&c);
        want = gguf_bytes(&n);
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            c = open_copy(mixtures[m]);
            if (layout == LAYOUT_STACK)
                convert_mlx(&c);
            lay_out(&c, mixtures[m], (enum expert_layout)layout);
            same_gguf(&c, mixtures[m], want, n);
        }
        free(want);
    }
    c = open_copy(WRAPPED);
    write_copy(&c, WRAPPED);
    close_copy(&c);
    want = gguf_bytes(&n);
    for (int mlx = 0; mlx < 2; mlx++) {
        c = open_copy(WRAPPED);
        if (mlx)
            convert_mlx(&c);
        rename_all(&c, "model.language_model.", "language_model.model.");
        rename_all(&c, "lm_head.", "language_model.lm_head.");
        same_gguf(&c, WRAPPED, want, n);
    }
    free(want);
}

/* ---- quantized weights -------------------------------------------------- */

/* The matrices of a checkpoint in temp_dir, widened to F32, as a checkpoint
 * without quantization, in the same place. */
static void dequantize(const char *golden)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    assert_ok(open_model(&eng, temp_dir, &e), &e);
    struct copy c = open_copy(golden);
    const struct weights *w = &eng->model.weights;
    for (size_t i = 0; i < c.t.n; i++) {
        struct st_out_tensor *t = &c.t.t[i];
        const struct st_tensor *q = st_find(eng->weights, t->name);
        if (!q || q->dtype != DT_U32)
            continue;
        float *v = malloc(t->shape[0] * t->shape[1] * sizeof *v);
        const struct matrix *m = NULL;
        for (size_t k = 0; k < w->n_matrices && !m; k++)
            if (w->matrices[k]->data[0] == q->data)
                m = w->matrices[k];
        assert_non_null(m);
        m->ops->to_f32(eng->model.k, v, m, 0, m->rows);
        tensors_keep(v);
        t->dtype = DT_F32;
        t->data = v;
    }
    write_copy(&c, golden);
    close_copy(&c);
    qwick_engine_close(eng);
}

static void quantize(const char *golden, int bits, const char *out)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    char dir[128];
    snprintf(dir, sizeof dir, MODELS "%s", golden);
    o.bits = bits;
    o.group = 32;
    o.force = true;
    o.threads = 1;
    temp_clear();
    assert_ok(qwick_quantize(dir, out, &o, NULL, &e), &e);
}

/* With weights of 4 or 8 bits, the logits equal those of the dequantized
 * weights. */
static void quantized_weights_have_their_own_logits(void **state)
{
    static const char *const names[] = {"qwen35-tied", WRAPPED};
    for (size_t i = 0; i < 4; i++) {
        struct golden g;
        const char *name = names[i % 2];
        assert_int_equal(golden_open(&g, name), 0);
        quantize(name, i < 2 ? 4 : 8, temp_dir);
        float *got = logits_of(temp_dir, &g);
        dequantize(name);
        float *want = logits_of(temp_dir, &g);
        double error = relative_error(got, want, g.n * g.vocab_size);
        printf("%-24s %d bits: exact %.2e\n", name, i < 2 ? 4 : 8, error);
        /* two orders of sums, each within the bound of --exact */
        assert_true(error <= 4e-5);
        assert_true(relative_error(got, g.logits, g.n * g.vocab_size) > 1e-4);
        free(got);
        free(want);
        golden_close(&g);
    }
}

static const struct st_tensor *find(const struct st_set *set, const char *name)
{
    const struct st_tensor *t = st_find(set, name);
    if (!t)
        fail_msg("%s: not there", name);
    return t;
}

/* The convolution, the parameters of the decay and the norms are copied.
 * Routers keep 8 bits. */
static void quantize_keeps_small_tensors(void **state)
{
    struct st_set *set;
    quantize(MOE, 4, temp_dir);
    assert_int_equal(st_open_file(&set, temp_path("model.safetensors"), NULL),
                     0);
#define LAYER "model.layers.0."
    static const char *const kept[] = {
        LAYER "linear_attn.conv1d.weight", LAYER "linear_attn.A_log",
        LAYER "linear_attn.dt_bias", LAYER "linear_attn.norm.weight",
        LAYER "input_layernorm.weight"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_int_equal(find(set, kept[i])->dtype, DT_BF16);
    /* 64 columns: 8 bits are 16 words, 4 bits are 8 */
    assert_int_equal(find(set, LAYER "mlp.gate.weight")->shape[1], 16);
    assert_int_equal(find(set, LAYER "mlp.shared_expert_gate.weight")->shape[1],
                     16);
    assert_int_equal(
        find(set, LAYER "linear_attn.in_proj_qkv.weight")->shape[1], 8);
    assert_int_equal(
        find(set, LAYER "mlp.shared_expert.up_proj.weight")->shape[1], 8);
    st_close(set);
    struct golden g;
    assert_int_equal(golden_open(&g, MOE), 0);
    free(logits_of(temp_dir, &g));
    assert_string_equal(note, "");
    golden_close(&g);
    quantize(QWEN3_NEXT, 4, temp_dir);
    assert_int_equal(st_open_file(&set, temp_path("model.safetensors"), NULL),
                     0);
    assert_int_equal(
        find(set, LAYER "linear_attn.in_proj_qkvz.weight")->shape[1], 8);
    assert_int_equal(find(set, LAYER "linear_attn.in_proj_ba.weight")->shape[1],
                     8);
    st_close(set);
    assert_int_equal(golden_open(&g, QWEN3_NEXT), 0);
    free(logits_of(temp_dir, &g));
    golden_close(&g);
}

/* ---- broken files ------------------------------------------------------- */

static void refuse(const char *golden, const char *name, const char *why)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    assert_int_equal(open_model(&eng, temp_dir, &e), -1);
    if (!strstr(e.msg, name) || !strstr(e.msg, why))
        fail_msg("%s: expected %s and %s in: %s", golden, name, why, e.msg);
}

static void missing_tensors_are_named(void **state)
{
    static const char *const needed[] = {
        "linear_attn.in_proj_qkvz.weight", /* these two of Qwen3-Next */
        "linear_attn.in_proj_ba.weight",
        "linear_attn.A_log",
        "linear_attn.conv1d.weight",
        "linear_attn.dt_bias",
        "linear_attn.in_proj_a.weight",
        "linear_attn.in_proj_b.weight",
        "linear_attn.in_proj_qkv.weight",
        "linear_attn.in_proj_z.weight",
        "linear_attn.norm.weight",
        "linear_attn.out_proj.weight",
        "mlp.gate.weight",
        "mlp.shared_expert.down_proj.weight",
        "mlp.shared_expert.gate_proj.weight",
        "mlp.shared_expert.up_proj.weight",
        "mlp.shared_expert_gate.weight",
        "post_attention_layernorm.weight",
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char name[96];
        const char *golden = i < 2 ? QWEN3_NEXT : MOE;
        struct copy c = open_copy(golden);
        snprintf(name, sizeof name, "model.layers.%d.%s", i >= 2, needed[i]);
        *tensors_find(&c.t, name) = c.t.t[c.t.n - 1];
        c.t.n--;
        write_copy(&c, golden);
        close_copy(&c);
        refuse(golden, name, "missing");
    }
}

static void shapes_are_checked(void **state)
{
    static const struct {
        const char *name, *says;
        size_t dim, n;
    } rows[] = {
        {"model.layers.0.linear_attn.in_proj_qkvz.weight", "[256, 64]", 0, 160},
        {"model.layers.0.linear_attn.in_proj_ba.weight", "[12, 64]", 0, 6},
        {"model.layers.0.linear_attn.conv1d.weight", "[128, 1, 4]", 2, 3},
        {"model.layers.0.linear_attn.conv1d.weight", "[128, 1, 4]", 0, 127},
        {"model.layers.0.linear_attn.A_log", "[4]", 0, 3},
        {"model.layers.0.linear_attn.in_proj_b.weight", "[4, 64]", 0, 3},
        {"model.layers.0.linear_attn.norm.weight", "[16]", 0, 15},
        {"model.layers.0.mlp.shared_expert_gate.weight", "[1, 64]", 1, 63},
        {"model.layers.3.self_attn.q_proj.weight", "[256, 64]", 0, 128},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *golden = i < 2 ? QWEN3_NEXT : MOE;
        struct copy c = open_copy(golden);
        struct st_out_tensor *t = tensors_find(&c.t, rows[i].name);
        t->shape[rows[i].dim] = rows[i].n;
        write_copy(&c, golden);
        close_copy(&c);
        refuse(golden, rows[i].name, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_prefixes_give_the_same_logits),
        cmocka_unit_test(the_form_of_mlx_gives_the_same_logits),
        cmocka_unit_test(gguf_files_of_all_layouts_are_equal),
        cmocka_unit_test(all_layouts_of_experts_give_the_same_logits),
        cmocka_unit_test(quantized_weights_have_their_own_logits),
        cmocka_unit_test(quantize_keeps_small_tensors),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(shapes_are_checked),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
