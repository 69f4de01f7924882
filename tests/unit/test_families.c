/* Every family from each container: logits and greedy ids against transformers
 * on each level of this CPU; equal results from the cache, from any number of
 * threads, in a batch, and from a config.json as released checkpoints have it.
 * tests/golden/families/README.md describes the goldens.
 *
 *   QWICK_FAMILIES  a folder of other goldens in the same form: all of it is
 *                   tested, and what does not open is listed */
#include "test.h"

#include <dirent.h>

#include "engine/core/engine.h"
#include "file/map.h"
#include "golden_run.h"
#include "released.h"
#include "tempdir.h"

#define FAMILIES "tests/golden/families"

/* The containers of a golden: S safetensors, M MLX with 4 bits, G GGUF. */
static const struct {
    const char *name, *containers;
} goldens[] = {{"ernie4_5", "SMG"},
               {"ernie4_5-bias", "S"},
               {"exaone4", "SMG"},
               {"exaone4-full", "SG"},
               {"gemma1", "SMG"},
               {"gemma2", "SG"},
               {"gemma2-one", "SMG"},
               {"gemma2-scalar", "S"},
               {"gemma4-e2b", "SG"},
               {"gemma4-e4b", "SMG"},
               {"gemma4-dense", "S"},
               {"gemma4-kv", "SMG"},
               {"gemma4-moe", "S"},
               {"gemma4-top3", "SMG"},
               {"glm4", "S"},
               {"glm4-wide", "SMG"},
               {"gpt-oss", "S"},
               {"gpt-oss-mxfp4", "SG"},
               {"gpt-oss-mxfp4-near", "S"},
               {"gpt-oss-top3", "SMG"},
               {"granite", "S"},
               {"granite-bias", "SMG"},
               {"lfm2", "S"},
               {"lfm2-long", "SMG"},
               {"lfm2moe", "S"},
               {"lfm2moe-scaled", "S"},
               {"lfm2moe-top3", "SMG"},
               {"llama-bias", "S"},
               {"llama-biases", "SMG"},
               {"llama3", "S"},
               {"llama3-tied", "SMG"},
               {"ministral3", "S"},
               {"mistral", "S"},
               {"mistral-nemo", "SMG"},
               {"mistral3", "SMG"},
               {"mistral3-fp8", "S"},
               {"mixtral-top3", "SMG"},
               {"olmo2", "S"},
               {"olmo2-one", "SMG"},
               {"olmo3", "S"},
               {"olmo3-yarn", "SMG"},
               {"phi3", "S"},
               {"phi3-crossing", "SG"},
               {"phi3-long", "SMG"},
               {"phi3-window", "SG"},
               {"phi4mini", "S"},
               {"phi4mini-long", "SMG"},
               {"qwen2", "S"},
               {"qwen2-tied", "SMG"},
               {"qwen2-window", "S"},
               {"qwen25vl", "SMG"},
               {"qwen2moe-step", "S"},
               {"qwen2moe-top3", "SMG"},
               {"qwen2vl", "SMG"},
               {"qwen3-awq", "S"},
               {"qwen3-fp8-block", "S"},
               {"qwen3-fp8-row", "S"},
               {"qwen3-fp8-tensor", "S"},
               {"qwen3-gptq-act", "S"},
               {"qwen3-mxfp8", "S"},
               {"qwen3-nvfp4", "S"},
               {"qwen3-nvfp4-mlx", "S"},
               {"qwen3-nvfp4-modelopt", "S"},
               {"qwen3-w4a16", "S"},
               {"qwen3-w4a16-asym", "S"},
               {"qwen3-w4a16-asym-channel", "S"},
               {"qwen3-w8a16", "S"},
               {"qwen3-w8a8", "S"},
               {"qwen3moe-fp8", "S"},
               {"qwen3next-odd", "SMG"},
               {"qwen3vl", "S"},
               {"qwen3vl-tied", "SMG"},
               {"qwen3vlmoe", "SMG"},
               {"seed-oss", "SMG"},
               {"seed-oss-bias", "S"},
               {"smollm3-own", "S"},
               {"smollm3-tied", "SMG"}};

enum { N_GOLDENS = sizeof goldens / sizeof *goldens, MAX_CELLS = 256 };

/* A golden in one container. */
struct cell {
    char file[64]; /* in the folder of goldens */
    bool quantized;
    struct golden g;
};

static struct cell cells[MAX_CELLS];
static size_t n_cells, n_wrong;

/* Tests go on with the next golden. */
static void report(const struct cell *c, const char *what, const char *wrong)
{
    printf("WRONG %s: %s: %s\n", c->file, what, wrong);
    n_wrong++;
}

static void nothing_is_wrong(void)
{
    size_t n = n_wrong;
    n_wrong = 0;
    assert_int_equal(n, 0);
}

/* ---- the table ----------------------------------------------------------- */

/* Add a golden if its file opens. The results of NAME.gguf are in
 * NAME/expected.safetensors or NAME.expected.safetensors. */
static void add_cell(const char *dir, const char *file, bool known)
{
    static const char *const forms[] = {"%s/%.*s/expected.safetensors",
                                        "%s/%.*s.expected.safetensors"};
    struct cell *c = &cells[n_cells];
    struct qwick_engine *eng;
    struct qwick_err e;
    const char *gguf = strstr(file, ".gguf");
    int len = (int)(gguf ? gguf - file : (long)strlen(file)), rc = -1;
    *c = (struct cell){0};
    snprintf(c->file, sizeof c->file, "%s", file);
    for (int i = 0; i < 2 && rc; i++) {
        char path[256];
        snprintf(path, sizeof path, forms[i], dir, len, file);
        rc = golden_read(&c->g, path);
    }
    if (rc && known)
        fail_msg("%s: no expected.safetensors", file);
    if (rc)
        return;
    snprintf(c->g.dir, sizeof c->g.dir, "%s/%s", dir, file);
    if (!try_open(&eng, &e, .model = c->g.dir, .threads = 1)) {
        c->quantized = eng->model.any_quantized;
        qwick_engine_close(eng);
        assert_true(++n_cells < MAX_CELLS);
        return;
    }
    printf("REFUSED %s: %s\n", file, e.msg);
    n_wrong += known;
    golden_close(&c->g);
}

static void add_folder(const char *dir)
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.' && !strstr(list[i]->d_name, "expected"))
            add_cell(dir, list[i]->d_name, false);
        free(list[i]);
    }
    free(list);
}

static void all_goldens_open(void **state)
{
    const char *folder = getenv("QWICK_FAMILIES");
    if (folder)
        add_folder(folder);
    for (size_t i = 0; i < N_GOLDENS && !folder; i++) {
        static const char *const forms[] = {
            ['S'] = "%s", ['M'] = "%s-mlx4", ['G'] = "%s.gguf"};
        for (const char *kind = goldens[i].containers; *kind; kind++) {
            char file[64];
            snprintf(file, sizeof file, forms[(int)*kind], goldens[i].name);
            add_cell(FAMILIES, file, true);
        }
    }
    nothing_is_wrong();
}

/* ---- numbers ------------------------------------------------------------- */

static void logits_of_isa(enum isa isa, void *ctx)
{
    for (size_t i = 0; i < n_cells; i++)
        n_wrong += !golden_errors_fit(&cells[i].g, cells[i].file, isa,
                                      cells[i].quantized ? QUANTIZED_BOUND
                                                         : FLOAT_BOUND);
}

static void logits_match_every_isa(void **state)
{
    each_isa(logits_of_isa, NULL);
    nothing_is_wrong();
}

static void greedy_ids_of_isa(enum isa isa, void *ctx)
{
    for (size_t i = 0; i < n_cells; i++)
        if (!golden_greedy_matches(&cells[i].g, isa_name(isa)))
            report(&cells[i], isa_name(isa), "other greedy ids");
}

static void greedy_ids_match_every_isa(void **state)
{
    each_isa(greedy_ids_of_isa, NULL);
    nothing_is_wrong();
}

/* Kernels and types of activations depend on the number of tokens of a pass.
 * Each prompt that a golden begins with ends with the golden's logits. */
static void prompts_of(const struct cell *c)
{
    const struct golden *g = &c->g;
    size_t first = g->n - g->n_rows, row = g->vocab_size * sizeof(float);
    float *got = malloc(g->n_rows * row);
    struct qwick_engine *eng = engine_with(.model = g->dir);
    for (size_t i = 0; i < g->n_rows; i++) {
        struct qwick_session *s = open_session(eng);
        sync_to(s, g->ids, first + i + 1);
        memcpy(got + i * g->vocab_size, qwick_session_logits(s), row);
        qwick_session_free(s);
    }
    double error = relative_error(got, g->logits, g->n_rows * g->vocab_size);
    printf("%-24s prompts of any length %.2e\n", c->file, error);
    if (error > (c->quantized ? QUANTIZED_BOUND : FLOAT_BOUND))
        report(c, "prompts of any length", "the error is too large");
    qwick_engine_close(eng);
    free(got);
}

static void prompts_of_any_length(void **state)
{
    for (size_t i = 0; i < n_cells; i++)
        prompts_of(&cells[i]);
    nothing_is_wrong();
}

/* ---- equal results ------------------------------------------------------- */

/* Logits of all positions with a number of threads, malloc'ed. */
static float *logits_of(const char *model, const struct golden *g, bool exact,
                        int threads)
{
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = model, .exact = exact, .threads = threads);
    float *got = calloc(g->n * g->vocab_size, sizeof *got);
    assert_ok(all_logits(eng, g, got, &e), &e);
    qwick_engine_close(eng);
    return got;
}

static void expect_equal(const struct cell *c, const char *what, const float *a,
                         const float *b, size_t n)
{
    char wrong[64];
    snprintf(wrong, sizeof wrong, "the logits differ by %.2e",
             relative_error(a, b, n));
    if (memcmp(a, b, n * sizeof *a))
        report(c, what, wrong);
}

static void any_number_of_threads(void **state)
{
    for (size_t i = 0; i < n_cells; i++)
        for (int exact = 0; exact < 2; exact++) {
            const struct golden *g = &cells[i].g;
            float *one = logits_of(g->dir, g, exact, 1);
            float *three = logits_of(g->dir, g, exact, 3);
            expect_equal(&cells[i], "threads", three, one,
                         g->n * g->vocab_size);
            free(one);
            free(three);
        }
    nothing_is_wrong();
}

/* The golden's tokens and its continuation: a sequence that crosses what the
 * golden crosses. */
static size_t whole_sequence(const struct golden *g, int32_t *ids, size_t most)
{
    assert_true(g->n + N_GREEDY <= most);
    memcpy(ids, g->ids, g->n * sizeof *ids);
    memcpy(ids + g->n, g->greedy, sizeof g->greedy);
    return g->n + N_GREEDY;
}

static void expect_fresh(const struct cell *c, struct qwick_session *s,
                         struct qwick_engine *eng, const int32_t *ids, size_t n,
                         const char *what)
{
    struct qwick_session *fresh = open_session(eng);
    sync_to(fresh, ids, n);
    expect_equal(c, what, qwick_session_logits(s), qwick_session_logits(fresh),
                 c->g.vocab_size);
    qwick_session_free(fresh);
}

static void cache_of(const struct cell *c)
{
    int32_t ids[256];
    size_t n = whole_sequence(&c->g, ids, 255);
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = c->g.dir, .exact = true, .prefill_chunk = 7);
    struct qwick_session *s = open_session(eng), *fork;
    sync_to(s, ids, n / 2);
    for (size_t at = n / 2; at < n; at++) {
        assert_ok(qwick_session_decode(s, ids[at], &e), &e);
        if (at % 5 == 0 || at + 1 == n)
            expect_fresh(c, s, eng, ids, at + 1, "decoded");
    }
    assert_ok(qwick_session_fork(&fork, s, &e), &e);
    sync_to(s, ids, n / 2);
    sync_to(s, ids, n - 9);
    expect_fresh(c, s, eng, ids, n - 9, "after a shorter one");
    assert_ok(qwick_session_decode(fork, ids[0], &e), &e);
    ids[n] = ids[0];
    expect_fresh(c, fork, eng, ids, n + 1, "forked");
    qwick_session_free(fork);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void cached_is_recomputed(void **state)
{
    for (size_t i = 0; i < n_cells; i++)
        cache_of(&cells[i]);
    nothing_is_wrong();
}

static int keep_result(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *e)
{
    if (e)
        fail_msg("%s", e->msg);
    *(struct qwick_result *)tag = *r;
    *r = (struct qwick_result){0};
    return 0;
}

/* The golden's prompt among shorter ones, two at a time. */
static void batch_of(const struct cell *c)
{
    struct qwick_err e;
    struct qwick_batch *b;
    struct qwick_result r[4] = {0};
    struct qwick_engine *eng = engine_with(.model = c->g.dir, .exact = true);
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_batch_options bo = qwick_batch_defaults();
    own_sampling(&o)->temperature = 0;
    o.max_tokens = N_GREEDY;
    o.ignore_eos = true;
    bo.max_batch = 2;
    bo.done = keep_result;
    assert_ok(qwick_batch_create(&b, eng, &bo, &e), &e);
    for (size_t i = 0; i < 4; i++)
        assert_ok(
            qwick_batch_add(b, c->g.ids, i % 2 ? c->g.n : 3 + i, &o, &r[i], &e),
            &e);
    assert_ok(qwick_batch_run(b, &e), &e);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r[i].n_tokens, N_GREEDY);
        if (i % 2 && memcmp(r[i].tokens, c->g.greedy, sizeof c->g.greedy) != 0)
            report(c, "batch", "other ids");
        qwick_result_free(&r[i]);
    }
    qwick_batch_free(b);
    qwick_engine_close(eng);
}

static void batch_is_single(void **state)
{
    for (size_t i = 0; i < n_cells; i++)
        batch_of(&cells[i]);
    nothing_is_wrong();
}

/* GGUF files of Llama's family have rows of q_proj and k_proj in another order,
 * so their keys are not those of the checkpoint. */
static void copies_have_equal_keys(void **state)
{
    static const struct {
        const char *name;
        bool equal_keys;
    } rows[] = {{"llama3-tied", false}, {"qwen2-tied", true}};
    for (size_t i = 0; i < 2; i++) {
        char dir[64], file[64];
        snprintf(dir, sizeof dir, FAMILIES "/%s", rows[i].name);
        snprintf(file, sizeof file, FAMILIES "/%s.gguf", rows[i].name);
        struct qwick_engine *a = engine_with(.model = dir),
                            *b = engine_with(.model = dir),
                            *c = engine_with(.model = file),
                            *d = engine_with(.model = file);
        assert_true(model_is_copy(&a->model, &b->model));
        assert_true(model_is_copy(&c->model, &d->model));
        assert_int_equal(model_is_copy(&a->model, &c->model),
                         rows[i].equal_keys);
        qwick_engine_close(a);
        qwick_engine_close(b);
        qwick_engine_close(c);
        qwick_engine_close(d);
    }
}

/* ---- configurations ------------------------------------------------------ */

/* The same checkpoint, spelled as before transformers 5. */
static void released_spellings(void **state)
{
    for (size_t i = 0; i < n_cells; i++) {
        const struct golden *g = &cells[i].g;
        if (!make_released(g->dir))
            continue;
        float *want = logits_of(g->dir, g, true, 1);
        float *got = logits_of(temp_dir, g, true, 1);
        expect_equal(&cells[i], "released.json", got, want,
                     g->n * g->vocab_size);
        free(want);
        free(got);
    }
    nothing_is_wrong();
}

static void latent_attention_is_refused(void **state)
{
    struct qwick_err e = open_refused(FAMILIES "/glm4lite");
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_non_null(strstr(e.msg, "glm4_moe_lite"));
}

static int close_cells(void **state)
{
    for (size_t i = 0; i < n_cells; i++)
        golden_close(&cells[i].g);
    return temp_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_goldens_open),
        cmocka_unit_test(logits_match_every_isa),
        cmocka_unit_test(greedy_ids_match_every_isa),
        cmocka_unit_test(prompts_of_any_length),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(cached_is_recomputed),
        cmocka_unit_test(batch_is_single),
        cmocka_unit_test(copies_have_equal_keys),
        cmocka_unit_test(released_spellings),
        cmocka_unit_test(latent_attention_is_refused),
    };
    return cmocka_run_group_tests(tests, temp_setup, close_cells);
}
