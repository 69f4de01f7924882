/* Matrices of compressed-tensors, ModelOpt and MLX's modes, bound from a file
 * of their own and widened, against the definitions: element by element, in
 * code that shares nothing with the model's. And tensors that must be refused.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "file/json.h"
#include "kernel/kernel.h"
#include "model/quant.h"
#include "model/weights.h"
#include "tempdir.h"
#include "tensors_file.h"

#define CT(format, weights)                                                  \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "  \
    "\"format\": \"" format "\", \"config_groups\": {\"g\": {\"targets\": "  \
    "[\"Linear\"], \"weights\": {" weights "}}}, \"ignore\": [\"lm_head\", " \
    "\"re:.*left_out$\"]}}"
#define MLX(mode, bits, group)                                    \
    "{\"quantization\": {\"mode\": \"" mode "\", \"bits\": " bits \
    ", \"group_size\": " group "}}"

static uint32_t random_at(uint64_t i)
{
    return (uint32_t)(rng_uniform(23, i) * 4294967296.0);
}

/* Bind the tensor `name` of temp_dir/x.safetensors and widen it; malloc'ed.
 * NULL with *e set: it is refused. */
static float *widened(const char *config, const char *name,
                      const struct matrix_shape *shape, struct qwick_err *e)
{
    static const struct names names = {.config = "config.json",
                                       .prefixes = {"", NULL}};
    static const struct names *const schemes[] = {&names, NULL};
    struct json_doc *doc;
    struct quant q;
    struct st_set *set;
    struct weights w;
    struct matrix m;
    bool found;
    float *out = NULL;
    assert_ok(json_parse(&doc, "config.json", config, strlen(config),
                         QWICK_ERR_MODEL, e),
              e);
    const struct section s = {
        .v = json_root(doc), .path = "config.json", .in = ""};
    assert_ok(st_open_file(&set, temp_path("x.safetensors"), e), e);
    assert_ok(weights_open(&w, set, "PATH", schemes, kernels_ref(), true, e),
              e);
    if (!quant_read(&q, &s, e)) {
        w.quant = &q;
        if (!weights_named(&w, &m, name, shape, &found, e)) {
            assert_true(found);
            assert_int_equal(m.rows, shape_rows(shape));
            out = malloc(m.rows * m.cols * sizeof *out);
            m.ops->to_f32(kernels_ref(), out, &m, 0, m.rows);
        }
        quant_free(&q);
    }
    weights_close(&w);
    st_close(set);
    json_free(doc);
    return out;
}

static void equal_or_nan(const char *what, const float *got, const double *want,
                         size_t n)
{
    assert_non_null(got);
    for (size_t i = 0; i < n; i++)
        if (isnan(want[i]) ? !isnan(got[i])
                           : fabs((double)got[i] - want[i]) >
                                 fabs(want[i]) * 0x1p-22 + 1e-45)
            fail_msg("%s: element %zu is %.9g, not %.9g", what, i,
                     (double)got[i], want[i]);
}

/* ---- integers ------------------------------------------------------------ */

struct integers {
    const char *name, *config;
    int bits;
    bool int8, symmetric, by_matrix;
    size_t span, stack, rows, cols; /* span: columns of a scale */
};

#define PACKED(bits, more) \
    CT("pack-quantized", "\"num_bits\": " bits ", \"type\": \"int\", " more)
#define GROUPS(n) "\"strategy\": \"group\", \"group_size\": " n
#define ASYM      ", \"symmetric\": false"
#define CHANNEL   "\"strategy\": \"channel\""

static const struct integers forms[] = {
    {"4 bits", PACKED("4", GROUPS("128")), 4, false, true, false, 128, 0, 5,
     256},
    {"groups of 96", PACKED("4", GROUPS("96")), 4, false, true, false, 96, 0, 5,
     192},
    {"groups of 256", PACKED("4", GROUPS("256")), 4, false, true, false, 256, 0,
     5, 512},
    {"4 bits, zero points", PACKED("4", GROUPS("32") ASYM), 4, false, false,
     false, 32, 0, 16, 96},
    {"groups of 256, zero points", PACKED("4", GROUPS("256") ASYM), 4, false,
     false, false, 256, 0, 16, 512},
    {"2 bits, zero points", PACKED("2", GROUPS("64") ASYM), 2, false, false,
     false, 64, 0, 32, 128},
    {"8 bits, zero points", PACKED("8", GROUPS("64") ASYM), 8, false, false,
     false, 64, 0, 12, 128},
    {"zero points of a part of a word", PACKED("4", GROUPS("64") ASYM), 4,
     false, false, false, 64, 0, 13, 128},
    {"by row, zero points", PACKED("4", CHANNEL ASYM), 4, false, false, false,
     160, 0, 9, 160},
    {"a stack, zero points", PACKED("4", GROUPS("32") ASYM), 4, false, false,
     false, 32, 3, 10, 64},
    {"a stack by row", PACKED("8", CHANNEL), 8, false, true, false, 64, 3, 5,
     64},
    {"int8 by row", CT("int-quantized", CHANNEL), 8, true, true, false, 256, 0,
     5, 256},
    {"int8 by groups", CT("int-quantized", GROUPS("64")), 8, true, true, false,
     64, 0, 5, 128},
    {"int8, one scale", CT("int-quantized", "\"strategy\": \"tensor\""), 8,
     true, true, true, 128, 0, 5, 128},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* The tensors of a form and its elements. */
struct made {
    uint32_t *codes, *zeros;
    uint16_t *scales;
    int64_t shape[2];
    double *want;
    struct st_out_tensor t[5];
    size_t n;
};

static void made_put(struct made *m, const struct integers *f, const char *name,
                     enum dtype type, size_t rows, size_t cols,
                     const void *data)
{
    size_t skip = f->stack == 0;
    const size_t dims[] = {f->stack, rows, cols};
    struct st_out_tensor *t = &m->t[m->n++];
    *t = (struct st_out_tensor){
        .name = name, .dtype = type, .rank = 3 - skip, .data = data};
    memcpy(t->shape, dims + skip, t->rank * sizeof *dims);
}

/* Put `bits` bits of v at a bit of a run of words that are `step` apart. */
static void put_bits(uint32_t *w, size_t step, size_t bit, int bits, unsigned v)
{
    w[bit / 32 * step] |= v << bit % 32;
    (void)bits; /* 2, 4 or 8: codes are within words */
}

static struct made make(const struct integers *f)
{
    struct made m = {.shape = {(int64_t)f->rows, (int64_t)f->cols}};
    size_t n = f->stack ? f->stack : 1, groups = f->cols / f->span;
    size_t bits = (size_t)f->bits, row_words = f->cols * bits / 32;
    size_t zero_words = (f->rows * bits + 31) / 32;
    m.codes = calloc(n * f->rows * row_words, 4);
    m.zeros = calloc(n * zero_words * groups, 4);
    m.scales = calloc(n * f->rows * groups, 2);
    m.want = malloc(n * f->rows * f->cols * sizeof *m.want);
    for (size_t r = 0; r < n * f->rows; r++)
        for (size_t c = 0; c < f->cols; c++) {
            size_t g = c / f->span, s = f->by_matrix ? 0 : r * groups + g;
            unsigned most = (1u << bits) - 1;
            unsigned code = random_at(r * f->cols + c) & most;
            code = c == 3 ? 0 : c == 4 ? most : code; /* int8: -128, 127 */
            unsigned zero = f->symmetric
                                ? 1u << (bits - 1)
                                : random_at(r * groups + g + 9999) & most;
            float scale;
            m.scales[s] = (uint16_t)(0x3c00 + s % 500); /* BF16 */
            kernels_ref()->to_f32[DT_BF16](&scale, &m.scales[s], 1);
            put_bits(m.codes + r * row_words, 1, c * bits, f->bits,
                     f->int8 ? code ^ 128 : code);
            if (c % f->span == 0)
                put_bits(m.zeros + r / f->rows * zero_words * groups + g,
                         groups, r % f->rows * bits, f->bits, zero);
            m.want[r * f->cols + c] =
                ((double)code - (double)zero) * (double)scale;
        }
    made_put(&m, f, f->int8 ? "x.weight" : "x.weight_packed",
             f->int8 ? DT_I8 : DT_I32, f->rows, f->int8 ? f->cols : row_words,
             m.codes);
    made_put(&m, f, "x.weight_scale", DT_BF16, f->by_matrix ? 1 : f->rows,
             groups, m.scales);
    if (!f->symmetric)
        made_put(&m, f, "x.weight_zero_point", DT_I32, zero_words, groups,
                 m.zeros);
    return m;
}

static void made_free(struct made *m)
{
    free(m->codes);
    free(m->zeros);
    free(m->scales);
    free(m->want);
}

/* code * scale is rounded once more than the definition has it: the tolerance
 * is two roundings of the larger of the two products. */
static void integers_have_their_values(void **state)
{
    for (size_t i = 0; i < N_FORMS; i++) {
        const struct integers *f = &forms[i];
        const struct matrix_shape shape = {f->stack, f->rows, f->cols};
        struct made m = make(f);
        struct qwick_err e;
        temp_put_tensors("x.safetensors", m.t, m.n);
        float *got = widened(f->config, m.t[0].name, &shape, &e);
        if (!got)
            fail_msg("%s: %s", f->name, e.msg);
        for (size_t k = 0; k < shape_rows(&shape) * f->cols; k++)
            if (fabs((double)got[k] - m.want[k]) > 0x1p-15 * 0x1p-8)
                fail_msg("%s: element %zu is %.9g, not %.9g", f->name, k,
                         (double)got[k], m.want[k]);
        free(got);
        made_free(&m);
    }
}

static void refused(const char *what, const char *config, const char *name,
                    const struct matrix_shape *shape, const char *word)
{
    struct qwick_err e = {0};
    float *got = widened(config, name, shape, &e);
    if (got || !strstr(e.msg, word) || strchr(e.msg, '\n'))
        fail_msg("%s: %s, not %s", what, got ? "accepted" : e.msg, word);
}

/* More tensors, which contradict the form. */
static void other_tensors_are_refused(void **state)
{
    static const int64_t other_shape[2] = {5, 128}, same[2] = {5, 256};
    static const uint32_t words[256];
    const struct integers *f = &forms[0];
    const struct matrix_shape shape = {0, 5, 256}, wide = {0, 5, 288};
    struct made m = make(f);
    struct st_out_tensor *last = &m.t[m.n++];
    struct qwick_err e;
    *last = (struct st_out_tensor){
        "x.weight_shape", DT_I64, 1, {2}, (const unsigned char *)other_shape};
    temp_put_tensors("x.safetensors", m.t, m.n);
    refused("shape", f->config, "x.weight_packed", &shape,
            "is [5, 128], but the matrix is [5, 256]");
    last->data = (const unsigned char *)same;
    temp_put_tensors("x.safetensors", m.t, m.n);
    float *got = widened(f->config, "x.weight_packed", &shape, &e);
    assert_non_null(got);
    free(got);
    refused("columns", f->config, "x.weight_packed", &wide,
            "288 columns by config.json are not a multiple of 128");
    *last = (struct st_out_tensor){
        "x.weight_g_idx", DT_I32, 1, {256}, (const unsigned char *)words};
    temp_put_tensors("x.safetensors", m.t, m.n);
    refused("g_idx", f->config, "x.weight_packed", &shape, "actorder");
    *last = (struct st_out_tensor){
        "x.weight_zero_point", DT_I32, 2, {1, 2}, (const unsigned char *)words};
    temp_put_tensors("x.safetensors", m.t, m.n);
    refused("zero point", f->config, "x.weight_packed", &shape,
            "\"symmetric\": true");
    made_free(&m);
}

static void other_configs_are_refused(void **state)
{
    static const struct {
        const char *config, *word;
    } all[] = {
        {PACKED("4", GROUPS("48")), "group_size: must be a multiple of 32"},
        {PACKED("3", GROUPS("64")), "num_bits: must be 2, 4 or 8"},
        {PACKED("4", GROUPS("64") ", \"actorder\": \"group\""), "actorder"},
        {PACKED("4", "\"strategy\": \"tensor\""), "strategy"},
        {CT("int-quantized", CHANNEL), "means pack-quantized weights, but"},
        {CT("int-quantized", CHANNEL ASYM), "symmetric"},
        {CT("int-quantized", CHANNEL ", \"actorder\": \"static\""), "actorder"},
    };
    const struct matrix_shape shape = {0, 5, 256};
    struct made m = make(&forms[0]);
    temp_put_tensors("x.safetensors", m.t, m.n);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refused(all[i].config, all[i].config, "x.weight_packed", &shape,
                all[i].word);
    made_free(&m);
}

/* ---- FP4 and FP8 --------------------------------------------------------- */

/* The number with this E4M3 code: four bits of exponent, three of mantissa. */
static double e4m3(unsigned c)
{
    int e = c >> 3 & 15, m = c & 7;
    double x = (c & 127) == 127 ? NAN : e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return c & 128 ? -x : x;
}

static double e2m1(unsigned c)
{
    static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return c & 8 ? -values[c & 7] : values[c & 7];
}

enum { R = 8, C = 64 };

static unsigned char numbers[R * C], scales[R * C / 16];

/* Each code occurs, and each scale from the first on. */
static void fill_bytes(unsigned first_scale)
{
    for (size_t i = 0; i < sizeof numbers; i++)
        numbers[i] = (unsigned char)(i * 37 + i / 256);
    for (size_t i = 0; i < sizeof scales; i++)
        scales[i] = (unsigned char)(first_scale + i);
}

/* E8M0 scales of 0, which is 2^-127, and 255, which is NaN; E4M3's two NaN. */
static void mxfp8_has_its_values(void **state)
{
    const struct matrix_shape shape = {0, R, C};
    double want[R * C];
    for (unsigned first = 0; first < 256; first += 16) {
        struct qwick_err e;
        fill_bytes(first);
        const struct st_out_tensor t[] = {
            {"x.weight", DT_U32, 2, {R, C / 4}, numbers},
            {"x.scales", DT_U8, 2, {R, C / 32}, scales}};
        temp_put_tensors("x.safetensors", t, 2);
        for (size_t i = 0; i < R * C; i++)
            want[i] = scales[i / 32] == 255
                          ? NAN
                          : e4m3(numbers[i]) * ldexp(1, scales[i / 32] - 127);
        float *got = widened(MLX("mxfp8", "8", "32"), "x.weight", &shape, &e);
        assert_non_null(got);
        for (size_t i = 0; i < R * C; i++)
            if (fabs(want[i]) > (double)FLT_MAX)
                assert_true(isinf(got[i]) && (got[i] > 0) == (want[i] > 0));
            else
                equal_or_nan("mxfp8", got + i, want + i, 1);
        free(got);
    }
}

/* The three layouts of NVFP4: one scale divides, one multiplies. */
static void nvfp4_has_its_values(void **state)
{
    static const struct {
        const char *config, *numbers, *scales, *global;
        enum dtype type, scales_type;
        size_t per_word;
    } all[] = {
        {CT("nvfp4-pack-quantized",
            "\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16, "
            "\"strategy\": \"tensor_group\""),
         "x.weight_packed", "x.weight_scale", "x.weight_global_scale", DT_U8,
         DT_F8_E4M3, 2},
        {"{\"quantization_config\": {\"quant_method\": \"modelopt\", "
         "\"quant_algo\": \"NVFP4\", \"ignore\": [\"y\"]}}",
         "x.weight", "x.weight_scale", "x.weight_scale_2", DT_U8, DT_F8_E4M3,
         2},
        {MLX("nvfp4", "4", "16"), "x.weight", "x.scales", NULL, DT_U32, DT_U8,
         8},
    };
    static const float bad[] = {0, NAN, INFINITY};
    const struct matrix_shape shape = {0, R, C};
    for (size_t k = 0; k < 3; k++) {
        float global = 3;
        double want[R * C], by = k == 0 ? 1.0 / 3 : k == 1 ? 3 : 1;
        struct qwick_err e;
        struct st_out_tensor t[] = {
            {all[k].numbers, all[k].type, 2, {R, C / all[k].per_word}, numbers},
            {all[k].scales, all[k].scales_type, 2, {R, C / 16}, scales},
            {all[k].global, DT_F32, 1, {1}, (unsigned char *)&global}};
        const size_t n = all[k].global ? 3 : 2;
        for (unsigned first = 0; first < 256; first += 32) {
            fill_bytes(first);
            temp_put_tensors("x.safetensors", t, n);
            for (size_t i = 0; i < R * C; i++)
                want[i] = e2m1(numbers[i / 2] >> (i % 2 ? 4 : 0) & 15) *
                          e4m3(scales[i / 16]) * by;
            float *got = widened(all[k].config, t[0].name, &shape, &e);
            equal_or_nan(all[k].numbers, got, want, R * C);
            free(got);
        }
        for (size_t i = 0; all[k].global && i < 3; i++) {
            global = bad[i];
            temp_put_tensors("x.safetensors", t, n);
            refused("global", all[k].config, t[0].name, &shape,
                    "must be a number other than 0");
        }
    }
}

/* ---- modules ------------------------------------------------------------- */

/* A module that config.json leaves out must not be quantized. */
static void ignored_modules_are_refused(void **state)
{
    const struct matrix_shape shape = {0, 5, 256}, small = {0, R, C};
    static const char nvfp4[] =
        CT("nvfp4-pack-quantized",
           "\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16, "
           "\"strategy\": \"tensor_group\"");
    float global = 1;
    struct made m = make(&forms[0]);
    m.t[0].name = "m.left_out.weight_packed";
    m.t[1].name = "m.left_out.weight_scale";
    temp_put_tensors("x.safetensors", m.t, m.n);
    refused("regex", forms[0].config, m.t[0].name, &shape,
            "ignore has \"re:.*left_out$\"");
    m.t[0].name = "lm_head.weight_packed";
    m.t[1].name = "lm_head.weight_scale";
    temp_put_tensors("x.safetensors", m.t, m.n);
    refused("name", forms[0].config, m.t[0].name, &shape, "\"lm_head\"");
    made_free(&m);
    fill_bytes(64);
    const struct st_out_tensor t[] = {
        {"lm_head.weight_packed", DT_U8, 2, {R, C / 2}, numbers},
        {"lm_head.weight_scale", DT_F8_E4M3, 2, {R, C / 16}, scales},
        {"lm_head.weight_global_scale",
         DT_F32,
         1,
         {1},
         (unsigned char *)&global}};
    temp_put_tensors("x.safetensors", t, 3);
    refused("nvfp4", nvfp4, t[0].name, &small, "\"lm_head\"");
    const struct st_out_tensor stack[] = {
        {"x.weight_packed", DT_U8, 3, {2, R / 2, C / 2}, numbers},
        {"x.weight_scale", DT_F8_E4M3, 3, {2, R / 2, C / 16}, scales},
        {"x.weight_global_scale", DT_F32, 1, {1}, (unsigned char *)&global}};
    const struct matrix_shape stacked = {2, R / 2, C};
    temp_put_tensors("x.safetensors", stack, 3);
    refused("stack", nvfp4, stack[0].name, &stacked, "a stack of 2 matrices");
    struct st_out_tensor other[3];
    memcpy(other, stack, sizeof other);
    for (size_t i = 0; i < 2; i++) {
        other[i].rank = 2;
        other[i].shape[0] = R;
        other[i].shape[1] = i ? C / 16 : C / 2;
    }
    other[1].dtype = DT_U8;
    temp_put_tensors("x.safetensors", other, 3);
    refused("type", nvfp4, other[0].name, &small, "must be F8_E4M3 of NVFP4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_have_their_values),
        cmocka_unit_test(other_tensors_are_refused),
        cmocka_unit_test(other_configs_are_refused),
        cmocka_unit_test(mxfp8_has_its_values),
        cmocka_unit_test(nvfp4_has_its_values),
        cmocka_unit_test(ignored_modules_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
