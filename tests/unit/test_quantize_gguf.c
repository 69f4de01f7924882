/* Writing GGUF files: types, bytes and errors against llama.cpp's files, logits
 * against the source, the tokenizer, and models and options that must be
 * refused. */
#include "test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engines.h"
#include "gguf_written.h"
#include "model/names.h"
#include "qwick_tools.h"
#include "tensors_file.h"

/* ---- against llama.cpp's files of the demo model --------------------------
 */

static uint64_t fnv(const unsigned char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325;
    while (n-- > 0)
        h = (h ^ *p++) * 0x100000001b3;
    return h;
}

/* The source's tensor of a name in GGUF. */
static const struct st_tensor *source_of(const struct st_set *set,
                                         const char *name)
{
    char here[NAMES_BYTES], there[NAMES_BYTES];
    for (int id = 0; id < N_WEIGHTS; id++)
        for (size_t layer = 0; layer < 8; layer++) {
            const struct weight_ref w = {.id = (enum weight_id)id,
                                         .layer = layer};
            if (names_expand(here, &names_gguf, "", w, 0) &&
                strcmp(here, name) == 0 &&
                names_expand(there, &names_hub, "model.", w, 0))
                return st_find(set, there);
        }
    return NULL;
}

/* One tensor against a line of demo.txt. */
static void check_tensor(const struct st_tensor *t, const struct st_set *src,
                         const char *want)
{
    size_t n, n_src;
    if (t->dtype == DT_F32)
        return;
    if (t->dtype == DT_Q8_0) {
        assert_true(fnv(t->data, t->n_bytes) == strtoull(want, NULL, 16));
        return;
    }
    float *got = widen(t, &n), *x = widen(source_of(src, t->name), &n_src);
    double sum = 0;
    assert_int_equal(n, n_src);
    for (size_t i = 0; i < n; i++)
        sum +=
            ((double)got[i] - (double)x[i]) * ((double)got[i] - (double)x[i]);
    double error = sqrt(sum / (double)n);
    if (!(error <= strtod(want, NULL)))
        fail_msg("%s: error %.4e, llama.cpp's is %s", t->name, error, want);
    free(got);
    free(x);
}

/* Each tensor has the type that llama.cpp's file has; Q8_0 has its bytes, and
 * other types have no larger error. */
static void demo_against_llama(void **state)
{
    static const char *const types[] = {"Q8_0",   "Q5_K_M", "Q4_K_M",
                                        "IQ4_NL", "Q3_K_M", "Q2_K"};
    struct checkpoint *ck;
    struct st_set *src;
    assert_int_equal(checkpoint_open(&ck, NULL, NULL), 0);
    assert_int_equal(st_open(&src, ck, NULL), 0);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        write_gguf(NULL, types[i]);
        struct gguf *g = must_open();
        FILE *f = fopen("tests/golden/gguf/demo.txt", "r");
        char file[16], name[96], type[16], want[32];
        size_t n = 0;
        assert_non_null(f);
        while (fscanf(f, "%15s %95s %15s %31s", file, name, type, want) == 4) {
            if (strcmp(file, types[i]) != 0)
                continue;
            const struct st_tensor *t = st_find(gguf_tensors(g), name);
            assert_non_null(t);
            assert_string_equal(dtype_name(t->dtype), type);
            check_tensor(t, src, want);
            n++;
        }
        fclose(f);
        assert_int_equal(n, st_count(gguf_tensors(g)));
        gguf_close(g);
    }
    st_close(src);
    checkpoint_close(ck);
}

/* ---- logits ---------------------------------------------------------------
 */

/* Floats are copied, and the metadata say the same as config.json: --exact
 * computes equal bits. */
static void floats_have_equal_logits(void **state)
{
    static const char *const models[] = {"attention-bias",
                                         "embedding-names",
                                         "head128-untied-bf16",
                                         "legacy-config",
                                         "sharded-bf16",
                                         "tied-bf16",
                                         "yarn",
                                         "moe"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct golden g;
        assert_int_equal(golden_open(&g, models[i]), 0);
        write_gguf(g.dir, "BF16");
        same_logits(g.dir, out_path, g.ids, g.n);
        golden_close(&g);
    }
    struct golden g;
    assert_int_equal(golden_open(&g, "f16"), 0);
    write_gguf(g.dir, "F16");
    same_logits(g.dir, out_path, g.ids, g.n);
    golden_close(&g);
}

/* Write the tensors of out.gguf as F32 to a checkpoint beside it. */
static void write_dequantized(const char *config)
{
    struct gguf *g = must_open();
    struct st_set *set = gguf_tensors(g);
    size_t n = st_count(set), size, n_elements;
    struct st_out_tensor *out = calloc(n, sizeof *out);
    char(*names)[NAMES_BYTES] = calloc(n, sizeof *names);
    char *text;
    size_t at = 0;
    for (int id = 0; id < N_WEIGHTS; id++)
        for (size_t layer = 0; layer < 8; layer++) {
            const struct weight_ref ref = {.id = (enum weight_id)id,
                                           .layer = layer};
            char here[NAMES_BYTES];
            const struct st_tensor *t =
                names_expand(here, &names_gguf, "", ref, 0) ? st_find(set, here)
                                                            : NULL;
            /* weights of the model have the same name for all layers */
            if (!t || (layer > 0 && strncmp(here, "blk.", 4) != 0))
                continue;
            names_expand(names[at], &names_hub, "model.", ref, 0);
            out[at] = (struct st_out_tensor){.name = names[at],
                                             .dtype = DT_F32,
                                             .rank = t->rank,
                                             .data = widen(t, &n_elements)};
            memcpy(out[at++].shape, t->shape, t->rank * sizeof *t->shape);
        }
    assert_int_equal(at, n);
    temp_put_tensors("model.safetensors", out, n);
    assert_int_equal(map_read_all(config, 1 << 20, &text, &size, NULL), 0);
    temp_write("config.json", text, size);
    free(text);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)out[i].data);
    free(out);
    free(names);
    gguf_close(g);
}

/* With --exact, the logits equal those of the dequantized weights. Rows of demo
 * fit superblocks. Those of head128 do not, so they become Q5_0, Q5_1, Q4_0 and
 * Q8_0. */
static void quantized_as_dequantized(void **state)
{
    static const struct {
        const char *model, *config, *type;
    } all[] = {
        {NULL, "models/demo/config.json", "Q4_K_M"},
        {MODELS "head128-untied-bf16", MODELS "head128-untied-bf16/config.json",
         "Q4_K_M"},
        {MODELS "head128-untied-bf16", MODELS "head128-untied-bf16/config.json",
         "Q4_0"},
        {NULL, "models/demo/config.json", "Q5_K_M"},
        {NULL, "models/demo/config.json", "Q3_K_M"},
        {NULL, "models/demo/config.json", "Q2_K"},
        {NULL, "models/demo/config.json", "IQ4_NL"},
        {MODELS "head128-untied-bf16", MODELS "head128-untied-bf16/config.json",
         "Q5_K_M"},
        {MODELS "head128-untied-bf16", MODELS "head128-untied-bf16/config.json",
         "Q2_K"},
    };
    static const int32_t ids[] = {5, 17, 300, 1, 44, 44, 2, 250};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        write_gguf(all[i].model, all[i].type);
        write_dequantized(all[i].config);
        same_logits(temp_dir, out_path, ids, 8);
    }
    unlink(temp_path("model.safetensors"));
    unlink(temp_path("config.json"));
}

/* ---- types of a mixture ---------------------------------------------------
 */

/* Rows of 64 and 48 elements: blocks of 32, and floats. */
static void experts_and_routers(void **state)
{
    static const struct typed types[] = {
        {"blk.1.ffn_gate_inp.weight", DT_F32},
        {"blk.1.ffn_norm.weight", DT_F32},
        {"blk.1.ffn_gate_exps.weight", DT_Q5_0},
        {"blk.1.ffn_down_exps.weight", DT_F16},
        {"blk.2.attn_v.weight", DT_Q8_0},
    };
    struct qwick_quantize_report r;
    struct qwick_err e;
    unlink(out_path);
    assert_int_equal(try_write(MODELS "moe", out_path, NULL, 1, &r, &e), 0);
    struct gguf *g = must_open();
    types_are(g, types, sizeof types / sizeof *types);
    const struct st_tensor *t =
        st_find(gguf_tensors(g), "blk.1.ffn_gate_exps.weight");
    assert_int_equal(t->rank, 3);
    assert_int_equal(t->shape[0], 8);
    assert_int_equal(gguf_find(g, "general.file_type")->u, 15);
    assert_int_equal(gguf_find(g, "qwen3moe.expert_count")->u, 8);
    assert_true(r.n_quantized > 0 && r.n_dense == 3);
    gguf_close(g);
}

/* ---- the tokenizer --------------------------------------------------------
 */

static struct qwick_engine *open_engine(const char *model)
{
    return engine_with(.model = model);
}

/* All texts of a file, and each id alone. */
static void equal_tokenizers(void **state)
{
    char *text;
    size_t n_text;
    write_gguf(NULL, "Q8_0");
    struct qwick_engine *a = open_engine(NULL), *b = open_engine(out_path);
    struct qwick_err e;
    assert_int_equal(map_read_all("tests/golden/text/tokenizer.jsonl", 1 << 24,
                                  &text, &n_text, &e),
                     0);
    for (int special = 0; special < 2; special++) {
        int32_t *x, *y;
        size_t nx, ny;
        assert_int_equal(qwick_tokenize(a, text, n_text, special, &x, &nx, &e),
                         0);
        assert_int_equal(qwick_tokenize(b, text, n_text, special, &y, &ny, &e),
                         0);
        assert_int_equal(nx, ny);
        assert_memory_equal(x, y, nx * sizeof *x);
        free(x);
        free(y);
    }
    free(text);
    int32_t n = (int32_t)qwick_engine_info(a)->vocab_size;
    for (int32_t id = 0; id < n; id++)
        for (int skip = 0; skip < 2; skip++) {
            char *x, *y;
            size_t nx, ny;
            assert_int_equal(qwick_detokenize(a, &id, 1, skip, &x, &nx, &e), 0);
            assert_int_equal(qwick_detokenize(b, &id, 1, skip, &y, &ny, &e), 0);
            assert_int_equal(nx, ny);
            assert_memory_equal(x, y, nx);
            free(x);
            free(y);
        }
    qwick_engine_close(a);
    qwick_engine_close(b);
}

/* ---- threads --------------------------------------------------------------
 */

static void same_bytes_for_any_threads(void **state)
{
    same_bytes(MODELS "sharded-bf16", "Q4_K_M", 3);
}

/* ---- refused --------------------------------------------------------------
 */

/* Settings that GGUF cannot hold, or that its readers would misunderstand. */
static void models_that_gguf_has_not(void **state)
{
    refused(MODELS "mlx4", out_path, NULL, QWICK_ERR_MODEL,
            "quantized already");
    refuses_config("moe", "\"norm_topk_prob\": true",
                   "\"norm_topk_prob\": false", "norm_topk_prob");
    refuses_config("yarn", "\"rope_type\": \"yarn\"",
                   "\"rope_type\": \"yarn\", \"truncate\": false", "truncate");
    refuses_config("yarn", "\"rope_type\": \"yarn\"",
                   "\"rope_type\": \"yarn\", \"attention_factor\": 2.5",
                   "attention_factor");
    refuses_config("tied-bf16", "\"hidden_size\": 64", "\"hidden_size\": 128",
                   "[320, 128] by config.json");
}

static void bad_values(void **state)
{
    static const char tensor[] = "model.layers.1.mlp.up_proj.weight";
    static const struct {
        uint16_t bits; /* BF16 */
        const char *type;
    } all[] = {{0x7fc0, "Q8_0"},
               {0x7f80, "BF16"},
               {0xff80, "Q4_K_M"},
               {0x7f00, "Q4_0"},
               {0x4800, "F16"}}; /* 131072 */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char word[96];
        copy_model("tied-bf16", "\"hidden_size\"", "\"hidden_size\"");
        put_bad_value(tensor, 3, 1, all[i].bits);
        snprintf(word, sizeof word, "%s: row 3: holds NaN, infinities or",
                 tensor);
        unlink(out_path);
        refused(temp_dir, out_path, all[i].type, QWICK_ERR_MODEL, word);
        assert_int_equal(access(out_path, F_OK), -1);
    }
}

static void places_that_are_taken(void **state)
{
    const char *dir = temp_path("d"), *link = temp_path("l");
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    refused(MODELS "tied-bf16", "", NULL, QWICK_ERR_USAGE, "is empty");
    refused(MODELS "tied-bf16", out_path, "Q9", QWICK_ERR_USAGE, "\"Q9\"");
    put_file(out_path, "mine", 4);
    refused(MODELS "tied-bf16", out_path, NULL, QWICK_ERR_USAGE, "--force");
    o.format = QWICK_QUANTIZE_GGUF;
    o.force = true;
    assert_int_equal(qwick_quantize(MODELS "tied-bf16", out_path, &o, NULL, &e),
                     -1);
    assert_non_null(strstr(e.msg, "it is not a GGUF file"));
    write_gguf(MODELS "tied-bf16", "F16");
    assert_int_equal(qwick_quantize(MODELS "tied-bf16", out_path, &o, NULL, &e),
                     0);
    struct gguf *g = must_open();
    assert_int_equal(gguf_find(g, "general.file_type")->u, 15);
    gguf_close(g);
    assert_int_equal(mkdir(dir, 0777), 0);
    refused(MODELS "tied-bf16", dir, NULL, QWICK_ERR_USAGE, "is a directory");
    assert_int_equal(symlink("nowhere", link), 0);
    refused(MODELS "tied-bf16", link, NULL, QWICK_ERR_USAGE,
            "cannot be a file");
    refused(MODELS "tied-bf16", temp_path("no/where"), NULL, QWICK_ERR_RUNTIME,
            "cannot create");
    temp_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_against_llama),
        cmocka_unit_test(floats_have_equal_logits),
        cmocka_unit_test(quantized_as_dequantized),
        cmocka_unit_test(experts_and_routers),
        cmocka_unit_test(equal_tokenizers),
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(models_that_gguf_has_not),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(places_that_are_taken),
    };
    return cmocka_run_group_tests(tests, setup, temp_teardown);
}
