/* LoRA adapters: their files, and their products against merged weights. */
#include <math.h>

#include "base/cpu.h"
#include "golden_run.h"
#include "gguf_build.h"
#include "lora_made.h"

#define LORA "tests/golden/lora/"

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

/* ---- all families --------------------------------------------------------- */

static double difference(const struct golden *g, const char *dir_a,
                         const char *lora, const char *dir_b)
{
    struct qwick_engine *a = adapted(lora, 1, .model = dir_a, .exact = true,
                                     .threads = 2),
                        *b = engine_with(.model = dir_b, .exact = true,
                                         .threads = 2);
    float *x = logits_of(a, g), *y = logits_of(b, g);
    double error = relative_error(x, y, g->n * g->vocab_size);
    free(x);
    free(y);
    qwick_engine_close(a);
    qwick_engine_close(b);
    return error;
}

/* Families with fused projections, rows of q and k in another order in GGUF
 * files, norms in other places, recurrent layers, shared keys. */
static void families_take_adapters(void **state)
{
    static const struct {
        const char *name;
        bool gguf; /* adapters fit its GGUF file, too */
    } cases[] = {
        {"granite-bias", true},   {"phi3-window", true},    {"glm4", false},
        {"ernie4_5", true},   {"exaone4", true},    {"gemma2-one", true},
        {"gemma4-dense", false}, {"lfm2-long", true},   {"olmo2-one", true},
        {"smollm3-tied", true}, {"mistral3", true},  {"llama3-tied", true},
        {"qwen3next-odd", false}, {"gpt-oss", false}, {"seed-oss", true},
        {"gemma4-moe", false}, {"gemma4-kv", false},    {"gemma4-e2b", false},
        {"qwen2moe-top3", false}, {"lfm2moe-top3", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct golden g;
        char path[192];
        snprintf(g.dir, sizeof g.dir, "tests/golden/families/%s",
                 cases[i].name);
        snprintf(path, sizeof path, "%s/expected.safetensors", g.dir);
        assert_int_equal(golden_read(&g, path), 0);
        put_adapted(g.dir);
        double merged = difference(&g, g.dir, temp_path("adapter"),
                                   temp_path("merged")),
               base = difference(&g, g.dir, temp_path("adapter"), g.dir);
        printf("%-16s merged %.2e  base %.2e", cases[i].name, merged, base);
        assert_true(base > 0.05);
        assert_true(merged <= EXACT_BOUND);
        snprintf(path, sizeof path, "%s.gguf", g.dir);
        if (cases[i].gguf && access(path, F_OK) == 0) {
            double gguf = difference(&g, path, temp_path("adapter"),
                                     temp_path("merged"));
            printf("  gguf %.2e", gguf);
            assert_true(gguf <= EXACT_BOUND);
        }
        printf("\n");
        golden_close(&g);
    }
}

/* ---- long prompts, quantized weights -------------------------------------- */

/* Passes of more than 64 tokens multiply by A in bf16 where the matrix reads
 * that. The adapter's share is small here, as in practice. */
static void check_long(enum isa isa, void *ctx)
{
    static const char *const paths[] = {LORA "all/adapter",
                                        LORA "all/adapter.gguf"};
    struct golden g;
    (void)ctx;
    open_case(&g, "all", false);
    free(g.ids);
    g.n = 150;
    g.ids = new_ids(g.n, 3);
    for (size_t i = 0; i < 2; i++) {
        struct qwick_engine *exact = adapted(paths[i], 0.1, .model = g.dir,
                                             .exact = true),
                            *one = adapted(paths[i], 0.1, .model = g.dir,
                                           .threads = 1,
                                           .isa = isa_name(isa)),
                            *more = adapted(paths[i], 0.1, .model = g.dir,
                                            .threads = 3,
                                            .isa = isa_name(isa));
        float *want = logits_of(exact, &g), *x = logits_of(one, &g),
              *y = logits_of(more, &g);
        double error = relative_error(x, want, g.n * g.vocab_size);
        printf("%-10s 150 tokens: %.2e\n", isa_name(isa), error);
        assert_true(error <= FLOAT_BOUND);
        assert_true(relative_error(y, want, g.n * g.vocab_size) <= FLOAT_BOUND);
        free(want);
        free(x);
        free(y);
        qwick_engine_close(exact);
        qwick_engine_close(one);
        qwick_engine_close(more);
    }
    golden_close(&g);
}

static void long_prompts(void **state)
{
    each_isa(check_long, NULL);
}

/* ---- files that are refused ----------------------------------------------- */

static void copy_adapter(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s && cp -r " LORA "all/adapter %s",
             temp_path("bad"), temp_path("bad"));
    assert_int_equal(system(command), 0);
}

/* The adapter at path is refused with this part of a message. */
static void is_refused(const char *base, const char *path, const char *why)
{
    struct qwick_engine *eng = NULL;
    struct qwick_err e = {0};
    const struct qwick_lora l = {.path = path, .scale = 1};
    if (!try_open(&eng, &e, .model = base, .loras = &l, .n_loras = 1,
                  .threads = 1))
        fail_msg("accepted, not refused with %s", why);
    assert_null(eng);
    if (e.code != QWICK_ERR_MODEL || !strstr(e.msg, why) ||
        strchr(e.msg, '\n'))
        fail_msg("%d: %s, not %s", (int)e.code, e.msg, why);
}

static void fields_are_checked(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"", "adapter_config.json: "},
        {"[]", "peft_type: must be \"LORA\", is missing"},
        {"{\"peft_type\": \"LOHA\"}", "must be \"LORA\", is \"LOHA\""},
        {"{\"peft_type\": \"LORA\"}", "r: must be a number"},
        {"{\"peft_type\": \"LORA\", \"r\": 8}", "lora_alpha: must be"},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 1}", "r: must be"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1}",
         "has rank 8, and "},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": \"x\"}",
         "lora_alpha: must be"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1, \"bias\": "
         "\"all\"}",
         "bias: must be \"none\", is \"all\""},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1, "
         "\"use_rslora\": 1}",
         "use_rslora: must be true or false"},
        {"{\"peft_type\": \"LORA\", \"use_dora\": true}",
         "use_dora: true is not supported"},
        {"{\"peft_type\": \"LORA\", \"fan_in_fan_out\": true}",
         "fan_in_fan_out: true is not"},
        {"{\"peft_type\": \"LORA\", \"modules_to_save\": [\"lm_head\"]}",
         "modules_to_save: an array is not"},
        {"{\"peft_type\": \"LORA\", \"trainable_token_indices\": [1]}",
         "trainable_token_indices: an array is not"},
        {"{\"peft_type\": \"LORA\", \"target_parameters\": [\"x\"]}",
         "target_parameters: an array is not"},
        {"{\"peft_type\": \"LORA\", \"lora_bias\": true}", "lora_bias: true"},
        {"{\"peft_type\": \"LORA\", \"init_lora_weights\": "
         "\"pissa_niter_4\"}",
         "init_lora_weights: \"pissa_niter_4\""},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1, "
         "\"rank_pattern\": [1]}",
         "rank_pattern: must be an object"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1, "
         "\"alpha_pattern\": {\"^q_proj\": 3}}",
         "\"^q_proj\": regular expressions"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1, "
         "\"rank_pattern\": {\"q_proj\": 3}}",
         "has rank 8, and "},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1, "
         "\"target_modules\": [\"q_proj\", \"other\"]}",
         "target_modules: \"other\": "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        copy_adapter();
        put_text("bad/adapter_config.json", cases[i].json);
        is_refused(LORA "all/base", temp_path("bad"), cases[i].why);
    }
    copy_adapter();
    remove(temp_path("bad/adapter_config.json"));
    is_refused(LORA "all/base", temp_path("bad"), "adapter_config.json: ");
}

/* Two tensors, of which one is wrong. */
static void tensors_are_checked(void **state)
{
#define Q    "base_model.model.model.layers.0.self_attn.q_proj.lora_"
#define L(M) "base_model.model.model." M ".lora_"
    static const struct {
        const char *a, *b;
        size_t a_shape[3], b_shape[3], rank;
        enum dtype type;
        const char *why;
    } cases[] = {
        {Q "A.weight", Q "B.weight", {8, 128}, {128, 8}, 2, DT_F32, NULL},
        {Q "A.x.weight", Q "B.x.weight", {8, 128}, {128, 8}, 2, DT_F16, NULL},
        {Q "A.weight", Q "A.x.weight", {8, 128}, {8, 128}, 2, DT_F32,
         "is the same half of a module"},
        {Q "A.weight", Q "B.bias", {8, 128}, {128, 8}, 2, DT_F32,
         "q_proj.lora_B.bias: is no lora_A.weight"},
        {Q "A.weight", Q "B.weight", {8, 127}, {128, 8}, 2, DT_F32,
         "takes 127 elements, the model's matrix takes 128"},
        {Q "A.weight", Q "B.weight", {8, 128}, {64, 8}, 2, DT_F32,
         "has 64 rows, the model's matrix has 128"},
        {Q "A.weight", Q "B.weight", {8, 128}, {128, 4}, 2, DT_F32,
         "has rank 8, and "},
        {Q "A.weight", Q "B.weight", {0, 128}, {128, 0}, 2, DT_F32,
         "has rank 0"},
        {Q "A.weight", Q "B.weight", {8, 8, 16}, {16, 8, 8}, 3, DT_F32,
         "has 3 dimensions, must have 2"},
        {Q "A.weight", Q "B.weight", {8, 128}, {128, 8}, 2, DT_I16,
         "dtype I16 is not supported"},
        {L("layers.3.mlp.up_proj") "A.weight",
         L("layers.3.mlp.up_proj") "B.weight", {8, 128}, {192, 8}, 2, DT_F32,
         "is of layer 3, the model has 3 layers"},
        {L("layers.0.mlp.other") "A.weight", L("layers.0.mlp.other") "B.weight",
         {8, 128}, {192, 8}, 2, DT_F32, "qwen3, has no such matrix"},
        {L("layers.00.mlp.up_proj") "A.weight",
         L("layers.00.mlp.up_proj") "B.weight", {8, 128}, {192, 8}, 2, DT_F32,
         "has no such matrix"},
        {L("embed_tokens") "A.weight", L("embed_tokens") "B.weight", {8, 128},
         {320, 8}, 2, DT_F32, "adapts an embedding"},
        {"base_model.model.lm_head.lora_A.weight",
         "base_model.model.lm_head.lora_B.weight", {8, 128}, {320, 8}, 2, DT_F32,
         "adapts the head"},
        {L("layers.0.mlp.gate") "A.weight", L("layers.0.mlp.gate") "B.weight",
         {8, 128}, {4, 8}, 2, DT_F32, "adapts a router"},
        {L("layers.0.mlp.experts.1.up_proj") "A.weight",
         L("layers.0.mlp.experts.1.up_proj") "B.weight", {8, 128}, {64, 8}, 2,
         DT_F32, "adapts experts"},
        {L("layers.0.self_attn.q_norm") "A.weight",
         L("layers.0.self_attn.q_norm") "B.weight", {8, 128}, {32, 8}, 2, DT_F32,
         "adapts such a weight"},
        {L("embed_tokens") "embedding_A", Q "B.weight", {8, 128}, {128, 8}, 2,
         DT_F32, "adapts an embedding"},
        {Q "magnitude_vector", Q "B.weight", {8, 128}, {128, 8}, 2, DT_F32,
         "is DoRA's"},
    };
    static const float zeros[320 * 8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct st_out_tensor t[] = {
            {.name = cases[i].a, .dtype = cases[i].type,
             .rank = cases[i].rank, .data = zeros},
            {.name = cases[i].b, .dtype = cases[i].type,
             .rank = cases[i].rank, .data = zeros}};
        memcpy(t[0].shape, cases[i].a_shape, sizeof cases[i].a_shape);
        memcpy(t[1].shape, cases[i].b_shape, sizeof cases[i].b_shape);
        copy_adapter();
        temp_put_tensors("bad/adapter_model.safetensors", t, 2);
        put_text("bad/adapter_config.json",
                 "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16}");
        if (cases[i].why)
            is_refused(LORA "all/base", temp_path("bad"), cases[i].why);
        else
            qwick_engine_close(
                adapted(temp_path("bad"), 1, .model = LORA "all/base"));
        temp_put_tensors("bad/adapter_model.safetensors", t, 1);
        if (!cases[i].why)
            is_refused(LORA "all/base", temp_path("bad"), "its B is missing");
    }
    temp_put_tensors("bad/adapter_model.safetensors", NULL, 0);
    is_refused(LORA "all/base", temp_path("bad"), "has no tensors");
    is_refused("tests/golden/families/granite-bias", LORA "all/adapter",
               "the model");
    is_refused("tests/golden/families/granite-bias", LORA "all/adapter.gguf",
               "general.architecture: is \"qwen3\", the model's is \"granite\"");
}

static void mlx_fields_are_checked(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"{\"fine_tune_type\": \"dora\"}",
         "fine_tune_type: must be \"lora\", is \"dora\""},
        {"{\"fine_tune_type\": \"full\"}", "is \"full\""},
        {"{}", "lora_parameters: must be an object, is missing"},
        {"{\"lora_parameters\": {\"rank\": 8}}",
         "lora_parameters.scale: must be"},
        {"{\"lora_parameters\": {\"scale\": 2}}", "lora_parameters.rank: must"},
        {"{\"lora_parameters\": {\"scale\": 2, \"rank\": 4}}",
         "has rank 8, and "},
        {"{\"lora_parameters\": {\"scale\": 2, \"rank\": 8, \"alpha\": 16}}",
         "lora_parameters.alpha: is 16 and rank is 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_mlx("mlx", LORA "all/adapter/adapter_model.safetensors", 2, 8);
        put_text("mlx/adapter_config.json", cases[i].json);
        is_refused(LORA "all/base", temp_path("mlx"), cases[i].why);
    }
}

static void put_gguf(const char *name, struct gguf_build *g)
{
    struct buf file = gb_done(g);
    FILE *f = fopen(temp_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(file.data, 1, file.len, f), file.len);
    fclose(f);
    buf_free(&file);
}

/* Converters permute the rows of q_proj and k_proj of Llama: rows that rotate
 * together become neighbours. */
static void gguf_rows_return_to_their_places(void **state)
{
    struct golden g;
    struct gguf_build b = GGUF_BUILD;
    struct st_set *set;
    struct qwick_err e;
    snprintf(g.dir, sizeof g.dir, "tests/golden/families/llama3-tied");
    assert_int_equal(
        golden_read(&g, "tests/golden/families/llama3-tied/"
                        "expected.safetensors"),
        0);
    put_adapted(g.dir);
    assert_ok(st_open_file(&set, temp_path("adapter/adapter_model.safetensors"),
                           &e),
              &e);
    struct qwick_engine *eng = engine_with(.model = g.dir, .threads = 1);
    size_t d = qwick_engine_info(eng)->head_dim;
    qwick_engine_close(eng);
    gb_string(&b, "general.architecture", "llama");
    gb_string(&b, "general.type", "adapter");
    gb_string(&b, "adapter.type", "lora");
    gb_float(&b, "adapter.lora.alpha", 10);
    for (size_t i = 0; i < st_count(set); i++) {
        static const char *const names[][2] = {
            {"q_proj", "attn_q"},    {"k_proj", "attn_k"},
            {"v_proj", "attn_v"},    {"o_proj", "attn_output"},
            {"up_proj", "ffn_up"},   {"gate_proj", "ffn_gate"},
            {"down_proj", "ffn_down"}};
        const struct st_tensor *t = st_at(set, i);
        const char *layer = strstr(t->name, "layers.");
        bool is_b = strstr(t->name, "lora_B");
        size_t rows = t->shape[0], cols = t->shape[1], k = 0;
        char name[96];
        while (!strstr(t->name, names[k][0]))
            k++;
        snprintf(name, sizeof name, "blk.%d.%s.weight.lora_%c",
                 atoi(layer + strlen("layers.")), names[k][1],
                 is_b ? 'b' : 'a');
        float *to = malloc(t->n_bytes);
        for (size_t r = 0; r < rows; r++) {
            size_t in = r % d, from = r;
            if (is_b && k < 2)
                from = r - in + in % 2 * (d / 2) + in / 2;
            memcpy(to + r * cols, t->data + from * cols * sizeof *to,
                   cols * sizeof *to);
        }
        const uint64_t dims[] = {cols, rows};
        gb_tensor(&b, name, 2, dims, 0, to, t->n_bytes);
        free(to);
    }
    st_close(set);
    put_gguf("llama.gguf", &b);
    double error = difference(&g, g.dir, temp_path("llama.gguf"),
                              temp_path("merged")),
           both = difference(&g, "tests/golden/families/llama3-tied.gguf",
                             temp_path("llama.gguf"), temp_path("merged"));
    printf("permuted: %.2e, GGUF on GGUF %.2e\n", error, both);
    assert_true(error <= EXACT_BOUND && both <= EXACT_BOUND);
    golden_close(&g);
}

static void gguf_keys_are_checked(void **state)
{
    static const struct {
        const char *type, *adapter, *tensor, *why;
    } cases[] = {
        {"adapter", "lora", "blk.0.attn_q.weight", NULL},
        {"model", "lora", "blk.0.attn_q.weight",
         "general.type: must be \"adapter\", is \"model\""},
        {"adapter", "alora", "blk.0.attn_q.weight",
         "adapter.type: must be \"lora\", is \"alora\""},
        {NULL, "lora", "blk.0.attn_q.weight", "general.type: missing"},
        {"adapter", "lora", "blk.9.attn_q.weight", "is of layer 9"},
        {"adapter", "lora", "token_embd.weight", "adapts an embedding"},
        {"adapter", "lora", "output.weight", "adapts the head"},
        {"adapter", "lora", "blk.0.ffn_gate_exps.weight", "adapts experts"},
        {"adapter", "lora", "blk.0.other.weight", "has no such matrix"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_build g = GGUF_BUILD;
        const uint64_t a[] = {128, 8}, b[] = {8, 128};
        char name[80];
        gb_string(&g, "general.architecture", "qwen3");
        if (cases[i].type)
            gb_string(&g, "general.type", cases[i].type);
        gb_string(&g, "adapter.type", cases[i].adapter);
        gb_float(&g, "adapter.lora.alpha", 16);
        static const float zeros[128 * 8];
        snprintf(name, sizeof name, "%s.lora_a", cases[i].tensor);
        gb_tensor(&g, name, 2, a, 0, zeros, 128 * 8 * 4);
        snprintf(name, sizeof name, "%s.lora_b", cases[i].tensor);
        gb_tensor(&g, name, 2, b, 0, zeros, 128 * 8 * 4);
        put_gguf("bad.gguf", &g);
        if (cases[i].why)
            is_refused(LORA "all/base", temp_path("bad.gguf"), cases[i].why);
        else
            qwick_engine_close(
                adapted(temp_path("bad.gguf"), 1, .model = LORA "all/base"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_equals_the_merged_weights),
        cmocka_unit_test(scale_0_is_the_base),
        cmocka_unit_test(halves_add_up),
        cmocka_unit_test(exact_is_exact),
        cmocka_unit_test(adapters_share_a_pass),
        cmocka_unit_test(families_take_adapters),
        cmocka_unit_test(long_prompts),
        cmocka_unit_test(fields_are_checked),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(mlx_fields_are_checked),
        cmocka_unit_test(gguf_rows_return_to_their_places),
        cmocka_unit_test(gguf_keys_are_checked),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
