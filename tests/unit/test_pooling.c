/* The modules of sentence-transformers: modes of Pooling, Dense, prompts, and
 * files that are broken. */
#include "test.h"

#include <math.h>

#include "engines.h"
#include "model/pooling.h"
#include "tempdir.h"
#include "tensors_file.h"

#define T \
    "{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}"
#define P \
    "{\"path\": \"1_P\", \"type\": \"sentence_transformers.models.Pooling\"}"
#define N                            \
    "{\"path\": \"9_N\", \"type\": " \
    "\"sentence_transformers.models.Normalize\"}"
#define D(X) \
    "{\"path\": \"" X "\", \"type\": \"sentence_transformers.models.Dense\"}"

/* A causal model without a tokenizer, or the demo model, with these modules. */
static void checkpoint(const char *from, const char *modules,
                       const char *pooling)
{
    static const char *const links[] = {"config.json", "model.safetensors",
                                        "tokenizer.json",
                                        "tokenizer_config.json"};
    char *cwd = getcwd(NULL, 0), path[1200];
    temp_clear();
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", cwd, from, links[i]);
        if (exists(path))
            assert_int_equal(symlink(path, temp_path(links[i])), 0);
    }
    free(cwd);
    if (modules)
        temp_put("modules.json", modules);
    if (pooling)
        temp_put("1_P/config.json", pooling);
}

static const char bare[] = "tests/golden/models/embedding-names";
static const char demo[] = "models/demo";

static struct qwick_engine *open_temp(bool exact, size_t chunk)
{
    return engine_with(.model = temp_dir, .exact = exact, .threads = 2,
                       .prefill_chunk = chunk);
}

static struct qwick_embedder *embedder(struct qwick_engine *eng,
                                       const struct qwick_embed_options *o)
{
    struct qwick_embed_options all = *o;
    struct qwick_embedder *m;
    struct qwick_err e;
    all.size = sizeof all;
    assert_ok(qwick_embedder_create(&m, eng, &all, &e), &e);
    return m;
}

static void embed(struct qwick_embedder *m, const int32_t *ids, size_t n,
                  float *out)
{
    const struct qwick_embed_item item = {ids, n, out};
    struct qwick_err e;
    assert_ok(qwick_embed(m, &item, 1, &e), &e);
}

enum { N_IDS = 21, MOST = 6 * 256 };

/* The states of all tokens: of a causal model, those of the last tokens of all
 * beginnings. */
static float *states_of(const char *from, const int32_t *ids, size_t n,
                        size_t *d)
{
    checkpoint(from, NULL, NULL);
    struct qwick_engine *eng = open_temp(true, 0);
    struct qwick_embedder *m =
        embedder(eng, &(struct qwick_embed_options){.normalize = false});
    *d = qwick_embedder_dim(m);
    float *rows = malloc(n * *d * sizeof *rows);
    for (size_t i = 0; i < n; i++)
        embed(m, ids, i + 1, rows + i * *d);
    qwick_embedder_free(m);
    qwick_engine_close(eng);
    return rows;
}

/* Number k of the vector of one mode, from token `skip` on. */
static double pooled(enum pooling_mode mode, const float *rows, size_t n,
                     size_t skip, size_t d, size_t k)
{
    double sum = 0, weights = 0, most = -INFINITY;
    for (size_t i = skip; i < n; i++) {
        double x = (double)rows[i * d + k];
        double w = mode == POOLING_WEIGHTED_MEAN ? (double)(i + 1) : 1;
        sum += w * x;
        weights += w;
        most = x > most ? x : most;
    }
    return mode == POOLING_CLS         ? (double)rows[k]
           : mode == POOLING_LAST      ? (double)rows[(n - 1) * d + k]
           : mode == POOLING_MAX       ? most
           : mode == POOLING_MEAN_SQRT ? sum / sqrt(weights)
                                       : sum / weights;
}

static void check_modes(const char *config, const enum pooling_mode *modes,
                        size_t n_modes)
{
    int32_t ids[N_IDS];
    size_t d;
    some_ids(ids, N_IDS, 1);
    float *rows = states_of(bare, ids, N_IDS, &d), first[MOST], v[MOST];
    checkpoint(bare, "[" T "," P "," N "]", config);
    for (size_t c = 0; c < 3; c++) {
        struct qwick_engine *eng = open_temp(true, c == 0 ? 0 : c * 4 - 3);
        struct qwick_embedder *m =
            embedder(eng, &(struct qwick_embed_options){.normalize = false});
        assert_int_equal(qwick_embedder_dim(m), n_modes * d);
        assert_true(n_modes * d <= MOST);
        embed(m, ids, N_IDS, c ? v : first);
        if (c) /* pieces of a text make no difference */
            assert_memory_equal(v, first, n_modes * d * sizeof *v);
        qwick_embedder_free(m);
        qwick_engine_close(eng);
    }
    for (size_t j = 0; j < n_modes; j++)
        for (size_t k = 0; k < d; k++) {
            double want = pooled(modes[j], rows, N_IDS, 0, d, k);
            /* one rounding to float after sums in double */
            assert_true(fabs((double)first[j * d + k] - want) <=
                        fabs(want) * 0x1.01p-24 + 1e-9);
        }
    free(rows);
}

static void modes_are_those_of_sentence_transformers(void **state)
{
    static const struct {
        const char *config;
        enum pooling_mode modes[6];
        size_t n;
    } cases[] = {
        {"{\"pooling_mode_cls_token\": true}", {POOLING_CLS}, 1},
        {"{\"pooling_mode\": \"max\"}", {POOLING_MAX}, 1},
        {"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_lasttoken\": "
         "false}",
         {POOLING_MEAN},
         1},
        {"{}", {POOLING_MEAN}, 1},
        {"{\"pooling_mode\": [\"mean_sqrt_len_tokens\"]}",
         {POOLING_MEAN_SQRT},
         1},
        {"{\"pooling_mode_weightedmean_tokens\": true}",
         {POOLING_WEIGHTED_MEAN},
         1},
        {"{\"pooling_mode\": \"lasttoken\"}", {POOLING_LAST}, 1},
        /* flags: in the order of the modes; a list: in its own */
        {"{\"pooling_mode_lasttoken\": true, \"pooling_mode_mean_tokens\": "
         "true, \"pooling_mode_cls_token\": true, "
         "\"pooling_mode_max_tokens\": true, "
         "\"pooling_mode_weightedmean_tokens\": true, "
         "\"pooling_mode_mean_sqrt_len_tokens\": true}",
         {POOLING_CLS, POOLING_MAX, POOLING_MEAN, POOLING_MEAN_SQRT,
          POOLING_WEIGHTED_MEAN, POOLING_LAST},
         6},
        {"{\"pooling_mode\": [\"lasttoken\", \"mean\"], "
         "\"pooling_mode_max_tokens\": true}",
         {POOLING_LAST, POOLING_MEAN},
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_modes(cases[i].config, cases[i].modes, cases[i].n);
}

/* Tokens of a prompt are left out by all modes but the first and the last
 * token's. At least one token counts. */
static void skipped_tokens_do_not_count(void **state)
{
    enum { ROWS = 7, WIDE = 3 };
    float rows[ROWS * WIDE], out[WIDE];
    double acc[WIDE];
    uint32_t x = 5;
    for (size_t i = 0; i < ROWS * WIDE; i++)
        rows[i] = (float)(x = x * 1664525u + 1013904223u) / 4e9f - 0.5f;
    for (int mode = 0; mode < N_POOLING_MODES; mode++)
        for (size_t skip = 0; skip <= ROWS + 1; skip++) {
            const struct pooling_modes modes = {{(enum pooling_mode)mode}, 1};
            struct pooled t = {ROWS, skip, acc};
            size_t from = skip < ROWS ? skip : ROWS - 1;
            memset(acc, 0, sizeof acc);
            pooling_add(&modes, &t, WIDE, rows, 0, 2);
            pooling_add(&modes, &t, WIDE, rows + 2 * WIDE, 2, ROWS - 2);
            pooling_finish(&modes, &t, WIDE, out);
            for (size_t k = 0; k < WIDE; k++)
                assert_true(fabs((double)out[k] - pooled(modes.v[0], rows, ROWS,
                                                         from, WIDE, k)) <=
                            1e-7);
        }
}

/* A NaN in any token shows in the result. */
static void nans_are_not_lost(void **state)
{
    float rows[4] = {1, NAN, 3, 2}, out;
    double acc;
    const enum pooling_mode all[] = {POOLING_MAX, POOLING_MEAN,
                                     POOLING_WEIGHTED_MEAN};
    for (size_t i = 0; i < 3; i++) {
        const struct pooling_modes modes = {{all[i]}, 1};
        struct pooled t = {4, 0, &acc};
        acc = 0;
        pooling_add(&modes, &t, 1, rows, 0, 4);
        pooling_finish(&modes, &t, 1, &out);
        assert_true(isnan(out));
    }
}

/* ---- Dense --------------------------------------------------------------- */

/* Write a module's weights [n_out, n_in], with a bias unless it is NULL. */
static void put_dense(const char *dir, const char *config, const float *w,
                      const float *bias, size_t n_out, size_t n_in)
{
    const struct st_out_tensor t[] = {{.name = "linear.bias",
                                       .dtype = DT_F32,
                                       .rank = 1,
                                       .shape = {n_out},
                                       .data = (const unsigned char *)bias},
                                      {.name = "linear.weight",
                                       .dtype = DT_F32,
                                       .rank = 2,
                                       .shape = {n_out, n_in},
                                       .data = (const unsigned char *)w}};
    char path[64];
    snprintf(path, sizeof path, "%s/config.json", dir);
    temp_put(path, config);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    temp_put_tensors(path, bias ? t : t + 1, bias ? 2 : 1);
}

static double activation(const char *name, double z)
{
    return strstr(name, "Tanh")      ? tanh(z)
           : strstr(name, "ReLU")    ? (z > 0 ? z : 0)
           : strstr(name, "GELU")    ? z / 2 * (1 + erf(z / sqrt(2)))
           : strstr(name, "Sigmoid") ? 1 / (1 + exp(-z))
                                     : z;
}

static void check_dense(const char *act, bool has_bias, bool normalise)
{
    enum { OUT = 35, OUT2 = 5 };
    int32_t ids[N_IDS];
    size_t d;
    char config[300];
    some_ids(ids, N_IDS, 1);
    float *rows = states_of(bare, ids, N_IDS, &d), v[OUT2];
    float *w = malloc(OUT * d * sizeof *w), w2[OUT2 * OUT], bias[OUT];
    uint32_t x = 9;
    for (size_t i = 0; i < OUT * d; i++)
        w[i] = (float)(x = x * 1664525u + 1013904223u) / 4e9f - 0.5f;
    for (size_t i = 0; i < OUT2 * OUT; i++)
        w2[i] = (float)(x = x * 1664525u + 1013904223u) / 4e9f - 0.5f;
    for (size_t i = 0; i < OUT; i++)
        bias[i] = (float)i / OUT - 0.3f;
    checkpoint(bare,
               normalise ? "[" T "," P "," N "," D("2_D") "," D("3_D") "]"
                         : "[" T "," P "," D("2_D") "," D("3_D") "]",
               "{}");
    snprintf(config, sizeof config,
             "{\"in_features\": %zu, \"out_features\": %d, \"bias\": %s, "
             "\"activation_function\": \"torch.nn.modules.%s\"}",
             d, OUT, has_bias ? "true" : "false", act);
    put_dense("2_D", config, w, has_bias ? bias : NULL, OUT, d);
    snprintf(config, sizeof config,
             "{\"in_features\": %d, \"out_features\": %d, \"bias\": false}",
             OUT, OUT2);
    put_dense("3_D", config, w2, NULL, OUT2, OUT);
    struct qwick_engine *eng = open_temp(true, 0);
    struct qwick_embedder *m =
        embedder(eng, &(struct qwick_embed_options){.normalize = false});
    assert_int_equal(qwick_embedder_dim(m), OUT2);
    embed(m, ids, N_IDS, v);
    double in[256], mid[OUT], length = 0;
    for (size_t k = 0; k < d; k++) {
        in[k] = pooled(POOLING_MEAN, rows, N_IDS, 0, d, k);
        length += in[k] * in[k];
    }
    for (size_t i = 0; i < OUT; i++) {
        mid[i] = 0;
        for (size_t k = 0; k < d; k++)
            mid[i] += (double)w[i * d + k] *
                      (normalise ? in[k] / sqrt(length) : in[k]);
        mid[i] = activation(act, mid[i] + (has_bias ? (double)bias[i] : 0));
    }
    for (size_t i = 0; i < OUT2; i++) {
        double sum = 0, size = 0;
        for (size_t k = 0; k < OUT; k++) {
            sum += (double)w2[i * OUT + k] * mid[k];
            size += fabs((double)w2[i * OUT + k] * mid[k]);
        }
        /* sums in f32 of at most 256 numbers */
        assert_true(fabs((double)v[i] - tanh(sum)) <=
                    256 * 0x1p-24 * (size + 1));
    }
    qwick_embedder_free(m);
    qwick_engine_close(eng);
    free(rows);
    free(w);
}

static void dense_modules_multiply(void **state)
{
    static const char *const acts[] = {"linear.Identity", "activation.Tanh",
                                       "activation.ReLU", "activation.GELU",
                                       "activation.Sigmoid"};
    for (size_t i = 0; i < 5; i++)
        check_dense(acts[i], i % 2 == 0, i > 2);
}

/* ---- broken files -------------------------------------------------------- */

static void refused(const char *why)
{
    struct qwick_engine *eng = open_temp(true, 0);
    struct qwick_embedder *m;
    struct qwick_err e;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qwick_embedder_create(&m, eng, NULL, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        if (!strstr(e.msg, why))
            fail_msg("\"%s\" is not in \"%s\"", why, e.msg);
    }
    qwick_engine_close(eng);
}

static void broken_modules_are_refused(void **state)
{
    static const struct {
        const char *modules, *pooling, *why;
    } cases[] = {
        {"[" T "," P "]", "[]", "must be a JSON object"},
        {"[" T "," P "]", NULL, "1_P/config.json: no such file"},
        {"[" T "," P "]", "{\"pooling_mode\": \"first\"}", "is \"first\""},
        {"[" T "," P "]", "{\"pooling_mode\": []}", "pooling_mode: must be"},
        {"[" T "," P "]", "{\"pooling_mode\": [1]}", "pooling_mode: must be"},
        {"[" T "," P "]",
         "{\"pooling_mode\": [\"cls\", \"cls\", \"cls\", \"cls\", \"cls\", "
         "\"cls\", \"cls\"]}",
         "up to 6"},
        {"[" T "," P "]", "{\"pooling_mode_new\": true}", "pooling_mode_new"},
        {"[" T "," P "]", "{\"pooling_mode_max_tokens\": 1}",
         "pooling_mode_max_tokens: must be true or false"},
        {"[" T "," P "]", "{\"include_prompt\": 0}", "include_prompt"},
        {"[" T "," P "]", "{\"word_embedding_dimension\": 65}",
         "as hidden_size says, is 65"},
        {"[" T "," P "," P "]", "{}", "module 2: type: must be"},
        {"[" T "," P ", {\"type\": \"sentence_transformers.models.LSTM\"}]",
         "{}", "models.LSTM"},
        {"[" T "," N "]", "{}", "module 1: type"},
        {"[" P "," T "]", "{}", "module 0: type"},
        {"[" T "]", NULL, "has no module for pooling"},
        {"[" T "," P "," D("2_D") "]", "{}", "2_D/config.json: no such file"},
        {"[" T "," P "," D("../x") "]", "{}", "not a plain file name"},
        {"[" T "," P "," D("") "]", "{}", "not a plain file name"},
        {"{\"a\": 1}", NULL, "must be a list of modules"},
        {"7", NULL, "must be a list of modules"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        checkpoint(bare, cases[i].modules, cases[i].pooling);
        refused(cases[i].why);
    }
}

#define FEATURES "\"in_features\": 64, \"out_features\": 2"

static void broken_dense_modules_are_refused(void **state)
{
    static const char *const configs[][2] = {
        {"{\"out_features\": 2}", "in_features: must be an integer"},
        {"{\"in_features\": 63, \"out_features\": 2}",
         "in_features: must be 64, the numbers of its input, is 63"},
        {"{\"in_features\": 64, \"out_features\": 0}", "out_features"},
        {"{\"in_features\": 64, \"out_features\": 99999999999}",
         "out_features"},
        {"{" FEATURES ", \"bias\": 1}", "bias: must be true or false"},
        {"{" FEATURES ", \"activation_function\": \"torch.nn.modules."
         "activation.Mish\"}",
         "activation.Mish"},
        {"{" FEATURES ", \"activation_function\": null}",
         "activation_function: must be"},
        {"{" FEATURES ", \"use_residual\": true}", "use_residual"},
        {"{" FEATURES ", \"module_input_name\": \"token_embeddings\"}",
         "module_input_name"},
        {"{" FEATURES "}", "tensor linear.bias: missing"},
        {"{\"in_features\": 64, \"out_features\": 3, \"bias\": false}",
         "tensor linear.weight: shape [2, 64] in the file, [3, 64]"},
    };
    float w[2 * 64] = {0};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        checkpoint(bare, "[" T "," P "," D("2_D") "]", "{}");
        put_dense("2_D", configs[i][0], w, NULL, 2, 64);
        refused(configs[i][1]);
    }
    temp_put("2_D/config.json", "{" FEATURES ", \"bias\": false}");
    temp_put("2_D/pytorch_model.bin", "x");
    /* a file that is cut anywhere */
    char whole[2048];
    FILE *f = fopen(temp_path("2_D/model.safetensors"), "rb");
    assert_non_null(f);
    size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    for (size_t i = 0; i < n; i += 1 + i / 9) {
        temp_write("2_D/model.safetensors", whole, i);
        refused("2_D/model.safetensors");
    }
    temp_remove("2_D/model.safetensors");
    refused("2_D/pytorch_model.bin: is in PyTorch's format");
    temp_remove("2_D/pytorch_model.bin");
    refused("2_D/model.safetensors: no such file");
}

static void broken_files_about_texts_are_refused(void **state)
{
    static const char *const cases[][3] = {
        {"sentence_bert_config.json", "{\"max_seq_length\": 0}",
         "max_seq_length"},
        {"sentence_bert_config.json", "{\"do_lower_case\": 1}",
         "do_lower_case"},
        {"sentence_bert_config.json", "{", "sentence_bert_config.json"},
        {"config_sentence_transformers.json", "{\"prompts\": [1]}",
         "prompts: must be an object of strings"},
        {"config_sentence_transformers.json", "{\"prompts\": {\"a\": 1}}",
         "prompts: must be an object of strings"},
        {"config_sentence_transformers.json",
         "{\"prompts\": {\"a\": \"b\"}, \"default_prompt_name\": \"c\"}",
         "default_prompt_name: must be the name of one of its prompts, is "
         "\"c\""},
        {"config_sentence_transformers.json", "{\"truncate_dim\": -1}",
         "truncate_dim"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        checkpoint(bare, NULL, NULL);
        temp_put(cases[i][0], cases[i][1]);
        refused(cases[i][2]);
    }
}

/* ---- texts --------------------------------------------------------------- */

static size_t encode(const struct qwick_embedder *m, struct qwick_embed_text t,
                     int32_t **ids, size_t *dropped)
{
    size_t n;
    struct qwick_err e;
    t.n_text = strlen(t.text);
    t.n_instruct = t.instruct ? strlen(t.instruct) : 0;
    assert_ok(qwick_embed_encode(m, &t, ids, &n, dropped, &e), &e);
    return n;
}

/* Check that m reads `text` as another embedder would read `want`. */
static void reads(const struct qwick_embedder *m,
                  const struct qwick_embedder *plain, const char *instruct,
                  const char *text, const char *want)
{
    int32_t *a, *b;
    size_t n =
        encode(m, (struct qwick_embed_text){.text = text, .instruct = instruct},
               &a, NULL);
    size_t k = encode(plain, (struct qwick_embed_text){.text = want}, &b, NULL);
    assert_int_equal(n, k);
    assert_memory_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
}

#define PROMPTS                                              \
    "{\"prompts\": {\"query\": \"task: search | query: \", " \
    "\"document\": \"title: none | text: \"}, "              \
    "\"default_prompt_name\": %s}"

static void prompts_go_before_texts(void **state)
{
    char text[300];
    struct qwick_err e;
    struct qwick_embedder *m;
    checkpoint(demo, NULL, NULL);
    struct qwick_engine *other = open_temp(true, 0);
    struct qwick_embedder *plain =
        embedder(other, &(struct qwick_embed_options){.normalize = true});
    checkpoint(demo, NULL, NULL);
    snprintf(text, sizeof text, PROMPTS, "\"document\"");
    temp_put("config_sentence_transformers.json", text);
    struct qwick_engine *eng = open_temp(true, 0);
    m = embedder(eng, &(struct qwick_embed_options){.normalize = true});
    reads(m, plain, NULL, "list files", "title: none | text: list files");
    reads(m, plain, "find", "list files", "Instruct: find\nQuery:list files");
    qwick_embedder_free(m);
    m = embedder(eng, &(struct qwick_embed_options){.prompt_name = "query"});
    reads(m, plain, NULL, "list files", "task: search | query: list files");
    qwick_embedder_free(m);
    /* a query has its own prompt, unless another is named */
    m = embedder(eng, &(struct qwick_embed_options){.query = true});
    reads(m, plain, NULL, "list files", "task: search | query: list files");
    qwick_embedder_free(m);
    m = embedder(eng, &(struct qwick_embed_options){.query = true,
                                                    .prompt_name = "document"});
    reads(m, plain, NULL, "list files", "title: none | text: list files");
    qwick_embedder_free(m);
    const struct qwick_embed_options bad = {.size = sizeof bad,
                                            .prompt_name = "Query"};
    assert_int_equal(qwick_embedder_create(&m, eng, &bad, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_string_equal(e.msg, "prompt name: \"Query\": the model's prompts "
                               "are query, document");
    assert_int_equal(qwick_embedder_create(&m, other, &bad, &e), -1);
    assert_string_equal(e.msg, "prompt name: \"Query\": the model has none");
    qwick_engine_close(eng);
    qwick_embedder_free(plain);
    qwick_engine_close(other);
}

/* include_prompt false: the mean leaves the prompt out, and nothing else. */
static void prompts_can_be_left_out(void **state)
{
    char text[300];
    int32_t *ids, *prompt;
    size_t d, n, n_prompt;
    float v[256];
    checkpoint(demo, "[" T "," P "]", "{\"include_prompt\": false}");
    snprintf(text, sizeof text, PROMPTS, "null");
    temp_put("config_sentence_transformers.json", text);
    struct qwick_engine *eng = open_temp(true, 0);
    struct qwick_embedder *m =
        embedder(eng, &(struct qwick_embed_options){.prompt_name = "query"});
    n = encode(m, (struct qwick_embed_text){.text = "list files"}, &ids, NULL);
    struct qwick_err e;
    assert_ok(qwick_tokenize(eng, "task: search | query: ", 22, false, &prompt,
                             &n_prompt, &e),
              &e);
    assert_true(n > n_prompt);
    embed(m, ids, n, v);
    float *rows = states_of(demo, ids, n, &d);
    for (size_t k = 0; k < d; k++)
        assert_true(fabs((double)v[k] - pooled(POOLING_MEAN, rows, n, n_prompt,
                                               d, k)) <= 1e-5);
    /* another sequence has no prompt */
    embed(m, ids + 1, n - 1, v);
    free(rows);
    rows = states_of(demo, ids + 1, n - 1, &d);
    for (size_t k = 0; k < d; k++)
        assert_true(fabs((double)v[k] -
                         pooled(POOLING_MEAN, rows, n - 1, 0, d, k)) <= 1e-5);
    free(rows);
    free(ids);
    free(prompt);
    qwick_embedder_free(m);
    qwick_engine_close(eng);
}

static void texts_have_the_models_own_limit(void **state)
{
    struct qwick_err e;
    int32_t *ids;
    size_t n, dropped;
    const char *text = "A B C D E F G H";
    checkpoint(demo, NULL, NULL);
    temp_put("sentence_bert_config.json",
             "{\"max_seq_length\": 4, \"do_lower_case\": true}");
    struct qwick_engine *eng = open_temp(true, 0);
    struct qwick_embedder *m =
        embedder(eng, &(struct qwick_embed_options){.normalize = true});
    n = encode(m, (struct qwick_embed_text){.text = text}, &ids, &dropped);
    assert_int_equal(n, 4);
    assert_true(dropped >= 4);
    free(ids);
    /* a caller who would not learn of the cut gets an error */
    const struct qwick_embed_text t = {.text = text, .n_text = strlen(text)};
    assert_int_equal(qwick_embed_encode(m, &t, &ids, &n, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    qwick_embedder_free(m);
    /* a context that is asked for counts instead */
    m = embedder(eng, &(struct qwick_embed_options){.n_ctx = 100});
    n = encode(m, (struct qwick_embed_text){.text = text}, &ids, &dropped);
    assert_int_equal(dropped, 0);
    assert_true(n >= 8);
    free(ids);
    struct qwick_engine *other = engine_with(.model = demo, .exact = true);
    struct qwick_embedder *plain =
        embedder(other, &(struct qwick_embed_options){.normalize = true});
    reads(m, plain, NULL, "LIST \xC3\x89T\xC3\x89 \xCE\x91\xCE\xA3",
          "list \xC3\xA9t\xC3\xA9 \xCE\xB1\xCF\x82");
    qwick_embedder_free(plain);
    qwick_engine_close(other);
    qwick_embedder_free(m);
    qwick_engine_close(eng);
}

static void vectors_have_default_lengths(void **state)
{
    checkpoint(bare, NULL, NULL);
    temp_put("config_sentence_transformers.json", "{\"truncate_dim\": 16}");
    struct qwick_engine *eng = open_temp(true, 0);
    struct qwick_embedder *m =
        embedder(eng, &(struct qwick_embed_options){.normalize = true});
    assert_int_equal(qwick_embedder_dim(m), 16);
    qwick_embedder_free(m);
    m = embedder(eng, &(struct qwick_embed_options){.dim = 20});
    assert_int_equal(qwick_embedder_dim(m), 20);
    qwick_embedder_free(m);
    qwick_engine_close(eng);
}

/* Modules are part of what a vector depends on, and so is what happens to a
 * text before. */
static void modules_change_the_identity(void **state)
{
    static const struct {
        const char *pooling, *limits, *dense;
        float weight, bias;
    } cases[] = {
        {"{}", "{}", FEATURES, 1, 1},
        {"{\"pooling_mode\": \"max\"}", "{}", FEATURES, 1, 1},
        {"{\"include_prompt\": false}", "{}", FEATURES, 1, 1},
        {"{}", "{\"max_seq_length\": 9}", FEATURES, 1, 1},
        {"{}", "{\"do_lower_case\": true}", FEATURES, 1, 1},
        {"{}", "{}", FEATURES, 2, 1},
        {"{}", "{}", FEATURES, 1, 2},
        {"{}", "{}",
         FEATURES ", \"activation_function\": "
                  "\"torch.nn.modules.linear.Identity\"",
         1, 1},
    };
    enum { N_CASES = sizeof cases / sizeof *cases };
    uint64_t id[N_CASES][2], again[2];
    for (size_t i = 0; i < 2 * N_CASES; i++) {
        size_t c = i % N_CASES;
        char config[200];
        float w[2 * 64] = {[127] = cases[c].weight}, bias[2] = {cases[c].bias};
        checkpoint(bare, "[" T "," P "," D("2_D") "]", cases[c].pooling);
        temp_put("sentence_bert_config.json", cases[c].limits);
        snprintf(config, sizeof config, "{%s}", cases[c].dense);
        put_dense("2_D", config, w, bias, 2, 64);
        struct qwick_engine *eng = open_temp(true, 0);
        struct qwick_embedder *m =
            embedder(eng, &(struct qwick_embed_options){.normalize = true});
        assert_int_equal(
            qwick_embedder_identity(m, i < N_CASES ? id[c] : again, NULL), 0);
        if (i >= N_CASES)
            assert_memory_equal(again, id[c], sizeof again);
        for (size_t j = 0; i < N_CASES && j < i; j++)
            assert_true(id[i][0] != id[j][0] && id[i][1] != id[j][1]);
        qwick_embedder_free(m);
        qwick_engine_close(eng);
    }
}

/* ---- text encoders ------------------------------------------------------- */

#define FAMILIES "tests/golden/families/"

static const char *const encoders[] = {"bert-cls", "embeddinggemma",
                                       "modernbert", "xlmr"};
enum { N_ENCODERS = sizeof encoders / sizeof *encoders };

/* Texts of unequal lengths share passes. With exact, each vector is that of the
 * text alone. */
static void encoders_take_whole_texts(void **state)
{
    enum { TEXTS = 30 };
    for (size_t i = 0; i < N_ENCODERS; i++) {
        char path[200];
        snprintf(path, sizeof path, FAMILIES "%s", encoders[i]);
        int32_t *ids[TEXTS];
        size_t n[TEXTS], d;
        float *want = NULL, *v = NULL;
        struct qwick_embed_item items[TEXTS];
        for (size_t c = 0; c < 4; c++) {
            struct qwick_engine *eng =
                engine_with(.model = path, .exact = true, .threads = 1 + c % 2,
                            .prefill_chunk = c == 2   ? 1
                                             : c == 3 ? 16
                                                      : 0);
            struct qwick_embedder *m = embedder(
                eng, &(struct qwick_embed_options){
                         .normalize = true, .max_batch = c == 1 ? 3 : 0});
            d = qwick_embedder_dim(m);
            if (c == 0) {
                want = malloc(TEXTS * d * sizeof *want);
                v = malloc(TEXTS * d * sizeof *v);
            }
            for (size_t t = 0; t < TEXTS; t++) {
                n[t] = t % 7 == 3 ? 100 : 1 + t * 5 % 23;
                ids[t] = new_ids(n[t], (uint32_t)t);
                items[t] = (struct qwick_embed_item){ids[t], n[t], v + t * d};
                if (c == 0)
                    embed(m, ids[t], n[t], want + t * d);
            }
            assert_int_equal(qwick_embed(m, items, TEXTS, NULL), 0);
            assert_memory_equal(v, want, TEXTS * d * sizeof *v);
            for (size_t t = 0; t < TEXTS; t++)
                free(ids[t]);
            qwick_embedder_free(m);
            qwick_engine_close(eng);
        }
        free(v);
        free(want);
    }
}

static volatile int stop_flag;
static int stop_at; /* calls of the progress function */

static void stop_soon(void *ctx, size_t n_done, size_t n_total)
{
    (void)ctx;
    assert_true(n_done <= n_total);
    if (stop_at-- == 0)
        stop_flag = 1;
}

/* A step that was interrupted can go on, with the same result. */
static void interrupted_steps_go_on(void **state)
{
    static const char *const models[] = {FAMILIES "bert-cls",
                                         FAMILIES "modernbert", NULL};
    for (size_t i = 0; i < 3; i++) {
        int32_t *ids = new_ids(90, 4);
        float want[256], v[256];
        if (!models[i])
            checkpoint(bare, "[" T "," P "]", "{}");
        const char *path = models[i] ? models[i] : temp_dir;
        struct qwick_engine *eng =
            engine_with(.model = path, .exact = true, .threads = 2,
                        .prefill_chunk = 16);
        struct qwick_embedder *m =
            embedder(eng, &(struct qwick_embed_options){
                              .progress = stop_soon, .interrupt = &stop_flag});
        stop_flag = 0;
        stop_at = -1;
        embed(m, ids, 90, want);
        const struct qwick_embed_item item = {ids, 90, v};
        size_t stopped = 0;
        for (int at = 0; at < 4; at++) {
            bool more = true;
            struct qwick_err e;
            stop_at = at;
            qwick_embed_begin(m, &item, 1);
            while (more)
                if (qwick_embed_step(m, &more, &e)) {
                    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
                    stop_flag = 0;
                    stopped++;
                }
            assert_memory_equal(v, want, qwick_embedder_dim(m) * sizeof *v);
        }
        assert_true(stopped >= 1);
        qwick_embedder_free(m);
        qwick_engine_close(eng);
        free(ids);
    }
}

static struct qwick_reranker *reranker(struct qwick_engine *eng, bool raw)
{
    const struct qwick_rerank_options o = {.size = sizeof o, .raw_scores = raw};
    struct qwick_reranker *r;
    struct qwick_err e;
    assert_ok(qwick_reranker_create(&r, eng, NULL, 0, &o, &e), &e);
    return r;
}

/* Scores are the sigmoid of what raw ones are. */
static void scores_are_probabilities(void **state)
{
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = FAMILIES "xlmr-rerank", .exact = true);
    int32_t *ids = new_ids(24, 1);
    struct qwick_rerank_item raw = {.tokens = ids, .n = 24},
                             item = {.tokens = ids, .n = 24};
    struct qwick_reranker *r = reranker(eng, true);
    assert_ok(qwick_rerank(r, &raw, 1, &e), &e);
    qwick_reranker_free(r);
    r = reranker(eng, false);
    assert_ok(qwick_rerank(r, &item, 1, &e), &e);
    qwick_reranker_free(r);
    assert_true(raw.score != 0);
    assert_true(fabs(item.score - 1 / (1 + exp(-raw.score))) <= 1e-7);
    free(ids);
    qwick_engine_close(eng);
}

static void encoders_are_refused_where_they_do_not_fit(void **state)
{
    struct qwick_err e;
    struct qwick_embedder *m;
    struct qwick_reranker *r;
    const struct qwick_rerank_options o = {
        .size = sizeof o, .instruct = "x", .n_instruct = 1};
    struct qwick_engine *eng = engine_with(.model = FAMILIES "xlmr-rerank");
    assert_int_equal(qwick_embedder_create(&m, eng, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_int_equal(qwick_reranker_create(&r, eng, "q", 1, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    qwick_engine_close(eng);
    eng = engine_with(.model = FAMILIES "xlmr-rerank.gguf");
    assert_int_equal(qwick_embedder_create(&m, eng, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    qwick_engine_close(eng);
    eng = engine_with(.model = FAMILIES "xlmr");
    assert_int_equal(qwick_reranker_create(&r, eng, NULL, 0, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders_take_whole_texts),
        cmocka_unit_test(interrupted_steps_go_on),
        cmocka_unit_test(scores_are_probabilities),
        cmocka_unit_test(encoders_are_refused_where_they_do_not_fit),
        cmocka_unit_test(modes_are_those_of_sentence_transformers),
        cmocka_unit_test(skipped_tokens_do_not_count),
        cmocka_unit_test(nans_are_not_lost),
        cmocka_unit_test(dense_modules_multiply),
        cmocka_unit_test(broken_modules_are_refused),
        cmocka_unit_test(broken_dense_modules_are_refused),
        cmocka_unit_test(broken_files_about_texts_are_refused),
        cmocka_unit_test(prompts_go_before_texts),
        cmocka_unit_test(prompts_can_be_left_out),
        cmocka_unit_test(texts_have_the_models_own_limit),
        cmocka_unit_test(vectors_have_default_lengths),
        cmocka_unit_test(modules_change_the_identity),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
