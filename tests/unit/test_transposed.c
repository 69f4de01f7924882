/* AWQ and GPTQ: their matrices in place and repacked against plain decoding,
 * models against their twins in float32, and files that must be refused. */
#include "test.h"

#include "base/par.h"
#include "golden_run.h"
#include "kernel/kernel.h"
#include "model/transposed.h"
#include "model/weights.h"
#include "qwick_tools.h"
#include "reference.h"
#include "tempdir.h"
#include "transposed_twins.h"

#define MODELS   "tests/golden/models/"
#define FAMILIES "tests/golden/families/"

/* ---- one matrix ---------------------------------------------------------- */

/* Rows: more than a tile of the repacking, and no multiple of one. Columns: more
 * than a strip. */
enum { ROWS = 160, COLS = 768 };

static const struct twin_form forms[] = {
    {"awq", true, 4, 64, false, false, false},
    {"awq, zero_point false", true, 4, 128, false, true, false},
    {"awq, group -1", true, 4, 0, false, false, false},
    {"gptq", false, 4, 64, false, true, false},
    {"gptq, 2 bits", false, 2, 32, false, false, false},
    {"gptq, 3 bits", false, 3, 64, false, false, false},
    {"gptq, 8 bits", false, 8, 128, true, false, false},
    {"gptq_v2", false, 4, 128, true, false, false},
    {"gptq, desc_act", false, 4, 32, false, false, true},
    {"gptq, desc_act, 2 bits", false, 2, 128, true, false, true},
    {"gptq, desc_act, 3 bits", false, 3, 64, true, false, true},
    {"gptq, desc_act, 8 bits", false, 8, 64, true, true, true},
    {"gptq, group -1", false, 3, 0, false, true, false},
    /* groups of more columns than those of the kernels */
    {"awq, group 256", true, 4, 256, false, false, false},
    {"gptq, group 256", false, 4, 256, false, false, false},
    {"gptq, desc_act, group 384", false, 4, 384, false, false, true},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static const struct names names = {.prefixes = {"model.", NULL},
                                   .of = {[WEIGHT_DOWN_PROJ] = {"@x.weight"}}};

static struct quant quant_of(const struct twin_form *f)
{
    return (struct quant){
        .key = "quantization_config",
        .transposed = {.form = f->awq ? TRANSPOSED_AWQ : TRANSPOSED_GPTQ,
                       .bits = f->bits,
                       .group = f->group,
                       .symmetric = f->symmetric,
                       .any_order = f->order,
                       .zero_plus = f->awq || f->v2 ? 0 : 1}};
}

/* Bind the matrix of temp_dir/x.safetensors. */
static void bind(struct weights *w, struct st_set *set, struct quant *q,
                 bool repacks, struct par_pool *pool, struct matrix *m)
{
    static const struct names *const schemes[] = {&names, NULL};
    struct qwick_err e;
    assert_ok(weights_open(w, set, "PATH", schemes, kernels_ref(), true, &e),
              &e);
    w->quant = q;
    w->repacks = repacks;
    w->pool = pool;
    assert_ok(weights_matrix(w, m, ROWS, COLS,
                             (struct weight_ref){.id = WEIGHT_DOWN_PROJ}, &e),
              &e);
}

/* In place, elements are those of the definition. Repacked, code * scale is
 * rounded once more, and so is the sum with -zero * scale, which is exact: both
 * are at most 2^bits scales. */
static void check_elements(const struct twin_form *f, const struct matrix *m,
                           const struct twin_parts *p, bool repacked)
{
    float *got = malloc(COLS * sizeof *got);
    for (size_t r = 0; r < ROWS; r++) {
        m->ops->to_f32(kernels_ref(), got, m, r, 1);
        for (size_t c = 0; c < COLS; c++) {
            size_t at = m->order ? m->order[c] : c;
            float want = p->floats[r * COLS + at], scale;
            kernels_ref()->to_f32[DT_F16](
                &scale, &p->scales[p->g_idx[at] * ROWS + r], 1);
            float bound = repacked ? scale * (float)(2 << f->bits) * 0x1p-24f
                                   : 0;
            if (!(fabsf(got[c] - want) <= bound))
                fail_msg("%s: [%zu, %zu] is %.9g, not %.9g", f->name, r, c,
                         (double)got[c], (double)want);
        }
    }
    free(got);
}

/* Bytes of the file, and what the model says that it holds. */
static void check_bytes(const struct twin_form *f, const struct st_set *set,
                        const struct weights *w, const struct matrix *m)
{
    size_t stored = 0;
    for (size_t i = 0; i < st_count(set); i++)
        stored += st_at(set, i)->n_bytes;
    assert_int_equal(w->n_bytes, matrix_bytes(m));
    assert_int_equal(weights_copied_bytes(w), matrix_bytes(m));
    if (!((double)matrix_bytes(m) <= 1.1 * (double)stored))
        fail_msg("%s: %zu bytes repacked, of %zu", f->name, matrix_bytes(m),
                 stored);
}

static void check_form(const struct twin_form *f, struct par_pool *pool)
{
    char parts_names[4][128];
    struct st_out_tensor t[4];
    struct weights in_place, one, many;
    struct matrix a, b, c;
    struct st_set *set;
    struct quant q = quant_of(f);
    float *x = malloc(ROWS * COLS * sizeof *x);
    for (size_t i = 0; i < ROWS * COLS; i++)
        x[i] = (float)rng_uniform(5, i) - 0.5f;
    struct twin_parts p = twin_new(f, x, ROWS, COLS);
    size_t n = twin_tensors(f, &p, "model.x", parts_names, t);
    temp_put_tensors("x.safetensors", t, n);
    assert_int_equal(st_open_file(&set, temp_path("x.safetensors"), NULL), 0);
    bind(&in_place, set, &q, false, NULL, &a);
    bind(&one, set, &q, true, NULL, &b);
    bind(&many, set, &q, true, pool, &c);
    check_elements(f, &a, &p, false);
    check_elements(f, &b, &p, true);
    check_bytes(f, set, &one, &b);
    assert_int_equal(b.order != NULL, f->order);
    for (size_t i = 0; i < format_affine.n_arrays; i++)
        assert_memory_equal(b.data[i], c.data[i],
                            ROWS * format_affine.row_bytes(&b, i));
    weights_close(&in_place);
    weights_close(&one);
    weights_close(&many);
    st_close(set);
    twin_free(&p);
    free(x);
}

static void matrices_of_each_form(void **state)
{
    struct par_pool *pool = par_create(3);
    for (size_t i = 0; i < N_FORMS; i++)
        check_form(&forms[i], pool);
    par_free(pool);
}

/* ---- models -------------------------------------------------------------- */

struct model_case {
    const char *dir;               /* NULL: a random checkpoint */
    const struct geometry *random; /* of this geometry */
    struct twin_form form;
    bool same_order; /* see twin_same_order */
};

/* Experts whose columns fill several groups, so that each has its own order, and
 * all of which each token takes, so that rounding cannot exchange any. */
#define MIXTURE                                                           \
    .n_layers = 2, .d_model = 64, .d_ff = 64, .n_kv_heads = 2, .group = 2, \
    .head_dim = 32, .vocab_size = 90, .n_experts = 3, .n_active = 3,      \
    .expert_ff = 96, .sparse_step = 1, .normalise = true, .dtype = DT_BF16
static const struct geometry mixture = {MIXTURE, .tied = true};
static const struct geometry with_shared = {MIXTURE,
                                            .qwen35 = true,
                                            .shared_ff = 64,
                                            .n_lin_heads = 2,
                                            .lin_group = 1,
                                            .d_k = 32,
                                            .d_v = 32,
                                            .conv = 4,
                                            .n_rot = 16};
/* Activations are put into order in pieces of 1,024 columns. */
static const struct geometry wide = {.n_layers = 1,
                                     .d_model = 1152,
                                     .d_ff = 64,
                                     .n_kv_heads = 1,
                                     .group = 1,
                                     .head_dim = 64,
                                     .vocab_size = 90,
                                     .tied = true,
                                     .dtype = DT_BF16};

/* Mixtures of experts, alone and beside a shared one; a fused qkv, a fused gate
 * and up, and projections in which only some are packed. */
static const struct model_case models[] = {
    {MODELS "moe", NULL, {"", false, 4, 32, false, false, true}, false},
    {MODELS "moe", NULL, {"", true, 4, 32, false, false, false}, false},
    {NULL, &mixture, {"mixture", false, 4, 32, false, false, true}, false},
    {NULL, &mixture, {"one order", false, 4, 32, false, false, true}, true},
    {NULL, &mixture, {"mixture, awq", true, 4, 32, false, false, false}, false},
    {NULL, &with_shared, {"shared expert", false, 8, 32, false, true, true}, true},
    {NULL, &wide, {"1,152 columns", false, 4, 64, false, false, true}, false},
    {MODELS "attention-bias", NULL, {"", false, 4, 32, false, false, true}, false},
    {FAMILIES "phi3", NULL, {"", false, 4, 32, true, false, true}, false},
    {FAMILIES "phi3", NULL, {"", true, 4, 32, false, false, false}, false},
    {FAMILIES "glm4-wide", NULL, {"", false, 8, 32, false, true, true}, false},
};
enum { N_MODELS = sizeof models / sizeof *models, SHORT = 37, LONG = 300 };

/* The logits of the floats as a golden of the packed model. The ids are those of
 * the checkpoint's golden, if it has one, then any: none are chosen for the
 * result. */
static struct golden twin_golden(const char *dir, size_t n)
{
    struct golden g = {.n = n}, of = {0};
    struct qwick_err e;
    char path[256];
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    (void)golden_read(&of, path);
    struct qwick_engine *eng =
        engine_with(.model = temp_path("floats"), .exact = true, .threads = 2);
    g.vocab_size = qwick_engine_info(eng)->vocab_size;
    g.n_rows = n;
    g.ids = malloc(n * sizeof *g.ids);
    g.logits = malloc(n * g.vocab_size * sizeof *g.logits);
    for (size_t i = 0; i < n; i++)
        g.ids[i] = i < of.n ? of.ids[i]
                            : (int32_t)(twin_random(i) % g.vocab_size);
    golden_close(&of);
    assert_ok(all_logits(eng, &g, g.logits, &e), &e);
    qwick_engine_close(eng);
    snprintf(g.dir, sizeof g.dir, "%s", temp_path("packed"));
    return g;
}

struct twin_run {
    const char *name;
    struct golden golden;
    size_t n_wrong;
};

static void twin_of_isa(enum isa isa, void *ctx)
{
    struct twin_run *r = ctx;
    r->n_wrong += !golden_errors_fit(&r->golden, r->name, isa, QUANTIZED_BOUND);
}

/* Compare temp_dir's packed with its floats on n tokens. */
static size_t compare_twins(const char *name, const char *dir, size_t n)
{
    struct twin_run r = {name, twin_golden(dir, n), 0};
    each_isa(twin_of_isa, &r);
    golden_close(&r.golden);
    return r.n_wrong;
}

static size_t compare_model(const struct model_case *c, size_t n)
{
    const char *dir = c->dir ? c->dir : temp_dir;
    if (c->random) {
        seed = 3;
        draws = 0;
        struct ref_model *m = ref_create(c->random);
        ref_write(m);
        ref_free(m);
    }
    twin_same_order = c->same_order;
    assert_true(twins_write(&c->form, dir) > 3);
    twin_same_order = false;
    return compare_twins(c->dir ? strchr(c->dir + 6, '/') : c->form.name, dir,
                         n);
}

static void models_equal_their_twins(void **state)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < N_MODELS; i++)
        n_wrong += compare_model(&models[i], SHORT);
    assert_int_equal(n_wrong, 0);
}

/* So many tokens multiply in bf16 where the CPU can, in passes and in blocks:
 * activations are put into the order of each matrix there, too. Where tokens
 * choose experts, some are exchanged. */
static void long_prompts_equal_their_twins(void **state)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < N_MODELS; i++)
        if (models[i].form.order &&
            !(models[i].dir && strstr(models[i].dir, "moe")))
            n_wrong += compare_model(&models[i], LONG);
    assert_int_equal(n_wrong, 0);
}

/* ---- refused --------------------------------------------------------------
 */

static const struct twin_form plain = {"", false, 4, 32, false, false, true};

#define Q_PROJ "model.layers.0.self_attn.q_proj."

/* A change of one tensor, Q_PROJ + tail. */
struct change {
    const char *tail;
    enum dtype dtype; /* DT_COUNT: the same */
    size_t shape[2];  /* 0: the same */
    int fifth;        /* element 5; 0: the same */
    const char *word; /* of the error */
};

/* Write packed/model.safetensors anew with one change. word NULL: the tensor is
 * left out. */
static void change_tensor(const struct change *c)
{
    enum { MOST = 512 };
    static struct st_out_tensor out[MOST];
    char *path = realpath(temp_path("packed/model.safetensors"), NULL);
    char name[128];
    struct st_set *set;
    uint32_t *words = NULL;
    size_t n = 0;
    snprintf(name, sizeof name, Q_PROJ "%s", c->tail);
    assert_int_equal(st_open_file(&set, path, NULL), 0);
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        struct st_out_tensor o = {t->name, t->dtype, t->rank, {0}, t->data};
        memcpy(o.shape, t->shape, t->rank * sizeof *t->shape);
        if (strcmp(t->name, name) == 0) {
            if (!c->word)
                continue;
            o.dtype = c->dtype == DT_COUNT ? o.dtype : c->dtype;
            for (size_t k = 0; k < t->rank && k < 2; k++)
                o.shape[k] = c->shape[k] ? c->shape[k] : o.shape[k];
            if (c->fifth) {
                words = malloc(t->n_bytes);
                memcpy(words, t->data, t->n_bytes);
                words[5] = (uint32_t)c->fifth;
                o.data = (unsigned char *)words;
            }
        }
        out[n++] = o;
    }
    temp_put_tensors("packed/other", out, n);
    st_close(set);
    assert_int_equal(rename(temp_path("packed/other"), path), 0);
    free(path);
    free(words);
}

static void refuses(const char *what, const char *word)
{
    struct qwick_err e = open_refused(temp_path("packed"));
    if (e.code != QWICK_ERR_MODEL || !strstr(e.msg, word) ||
        strchr(e.msg, '\n'))
        fail_msg("%s: \"%s\" lacks \"%s\"", what, e.msg, word);
}

/* Sizes stay within the data: [64, 64] weights have 8 x 64 words of codes, 2 x 8
 * of zero points and 2 x 64 scales. */
static void broken_tensors(void **state)
{
    static const struct change all[] = {
        {"qweight", DT_COUNT, {4, 64}, 0, "shape [4, 64] in the file, [8, 64]"},
        {"qweight", DT_COUNT, {8, 32}, 0, "shape [8, 32] in the file, [8, 64]"},
        {"qweight", DT_F32, {0}, 0, "dtype F32 in the file, must be I32"},
        {"scales", DT_COUNT, {1, 64}, 0, "shape [1, 64] in the file, [2, 64]"},
        {"scales", DT_I16, {0}, 0, "dtype I16 is not supported for scales"},
        {"qzeros", DT_COUNT, {2, 4}, 0, "shape [2, 4] in the file, [2, 8]"},
        {"qzeros", DT_F32, {0}, 0, "dtype F32 in the file, must be I32"},
        {"g_idx", DT_COUNT, {32}, 0, "shape [32] in the file, [64]"},
        {"g_idx", DT_F32, {0}, 0, "dtype F32 in the file, must be I32"},
        {"g_idx", DT_COUNT, {0}, 2, "column 5 has group 2, of 2 groups"},
        {"g_idx", DT_COUNT, {0}, -1, "column 5 has group -1, of 2 groups"},
        {"g_idx", DT_COUNT, {0}, 1, "columns, but group_size is 32"},
        {"qzeros", DT_COUNT, {0}, 0, NULL},
        {"scales", DT_COUNT, {0}, 0, NULL},
        {"g_idx", DT_COUNT, {0}, 0, NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        twins_write(&plain, MODELS "attention-bias");
        change_tensor(&all[i]);
        refuses(all[i].tail, all[i].word ? all[i].word : ": missing");
        refuses(all[i].tail, all[i].tail);
    }
}

/* Replace a text of packed/config.json. */
static void change_config(const char *from, const char *to)
{
    char *text;
    size_t n;
    assert_int_equal(map_read_all(temp_path("packed/config.json"), 1 << 20,
                                  &text, &n, NULL),
                     0);
    char *at = strstr(text, from);
    assert_non_null(at);
    FILE *f = fopen(temp_path("packed/config.json"), "wb");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(fclose(f), 0);
    free(text);
}

static void broken_configs(void **state)
{
    static const struct {
        const char *from, *to, *word;
    } all[] = {
        {"\"bits\": 4", "\"bits\": 5", "bits: must be 2, 3, 4 or 8"},
        {"\"bits\": 4", "\"bits\": 8", "shape [8, 64] in the file, [16, 64]"},
        {"\"group_size\": 32", "\"group_size\": 64", "in the file, [1, "},
        {"\"group_size\": 32", "\"group_size\": 0", "group_size: must be -1, "},
        {"\"group_size\": 32", "\"group_size\": 256", "64 columns"},
        {"\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\"",
         "checkpoint_format: must be \"gptq\" or \"gptq_v2\", is \"marlin\""},
        {"\"quant_method\": \"gptq\"", "\"quant_method\": \"awq\"",
         "shape [8, 64] in the file, [64, 8]"},
        {"\"desc_act\": true", "\"desc_act\": 1", "desc_act: must be true or"},
        {"\"bits\": 4", "\"bits\": 4, \"dynamic\": {\"+:q_proj\": {\"bits\": 8}}",
         "dynamic: rule \"+:q_proj\""},
        {"\"bits\": 4", "\"bits\": 4, \"pack_dtype\": \"int16\"", "pack_dtype"},
        {"\"quantization_config\"", "\"other\"", "means weights in AWQ or GPTQ"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        twins_write(&plain, MODELS "attention-bias");
        change_config(all[i].from, all[i].to);
        refuses(all[i].to, all[i].word);
    }
    twins_write(&plain, MODELS "attention-bias");
    change_config("\"bits\": 4", "\"bits\": 4, \"version\": \"gemv\"");
    change_config("\"quant_method\": \"gptq\"", "\"quant_method\": \"awq\"");
    refuses("version", "version: must be \"gemm\"");
    /* rules that only leave modules out */
    twins_write(&plain, MODELS "attention-bias");
    change_config("\"bits\": 4", "\"bits\": 4, \"dynamic\": {\"-:x\": {}}");
    qwick_engine_close(engine_with(.model = temp_path("packed")));
}

/* ---- what config.json does not say ---------------------------------------
 */

/* Tensors count, whatever config.json says: an order without desc_act, and zero
 * points of symmetric weights. An order that says nothing may lack. */
static void tensors_beside_the_config(void **state)
{
    static const struct change none = {"g_idx", DT_COUNT, {0}, 0, NULL};
    static const struct twin_form plain_order = {"",    false, 4,    32,
                                                 false, false, false};
    const char *dir = MODELS "attention-bias";
    twins_write(&plain, dir);
    change_config("\"desc_act\": true", "\"desc_act\": false");
    assert_int_equal(compare_twins("g_idx", dir, SHORT), 0);
    twins_write(&plain, dir);
    change_config("\"sym\": false", "\"sym\": true");
    assert_int_equal(compare_twins("zero points", dir, SHORT), 0);
    twins_write(&plain_order, dir);
    change_tensor(&none);
    assert_int_equal(compare_twins("no g_idx", dir, SHORT), 0);
}

/* Stored as 255, from which 256 is made. */
static void zero_points_beyond_a_byte(void **state)
{
    static const struct twin_form bytes = {"",    false, 8,   32,
                                           false, false, true};
    static const struct change top = {"qzeros", DT_COUNT, {0}, -1, ""};
    twins_write(&bytes, MODELS "attention-bias");
    change_tensor(&top);
    refuses("qzeros", "zero point 256 of row 20 in group 0, at most 255");
}

/* The head is multiplied in other ways, which put nothing into order. */
static void heads_have_no_order(void **state)
{
    const char *dir = MODELS "head128-untied-bf16";
    struct twin_form f = plain;
    twin_head = true;
    twins_write(&f, dir);
    refuses("lm_head", "lm_head.qweight: its g_idx has another order");
    f.order = false;
    twins_write(&f, dir);
    assert_int_equal(compare_twins("head", dir, SHORT), 0);
    twin_head = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_each_form),
        cmocka_unit_test(models_equal_their_twins),
        cmocka_unit_test(long_prompts_equal_their_twins),
        cmocka_unit_test(broken_tensors),
        cmocka_unit_test(broken_configs),
        cmocka_unit_test(tensors_beside_the_config),
        cmocka_unit_test(zero_points_beyond_a_byte),
        cmocka_unit_test(heads_have_no_order),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
