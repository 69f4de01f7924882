/* Text encoders from each container: hidden states and scores against
 * transformers on each level of this CPU, and equal results from any number of
 * threads and in a batch of unequal texts. tests/golden/families/README.md
 * describes the goldens. */
#include "test.h"

#include "base/cpu.h"
#include "engine/core/engine.h"
#include "engine/tasks/states.h"
#include "engines.h"
#include "golden.h"
#include "model/scratch.h"
#include "released.h"

#define FAMILIES "tests/golden/families/"

/* Of hidden states, as for logits. */
#define EXACT_BOUND 2e-5
#define FLOAT_BOUND 1.2e-2

/* Of 1 - the cosine of vectors: what docs/accuracy.md promises. */
#define EXACT_COSINE 1e-10
#define FLOAT_COSINE 1e-5

/* Tokens of another text in the pass of a batch: more than a pass may have that
 * rounds no activations. */
enum { OTHER_TOKENS = 90 };

/* Which have a GGUF file. */
static const struct {
    const char *name;
    bool gguf;
} goldens[] = {{"bert-cls", true},           {"bert-long", false},
               {"bert-pair", true},          {"bert-rerank", false},
               {"embeddinggemma", true},     {"embeddinggemma-long", false},
               {"modernbert", true},         {"modernbert-long", true},
               {"modernbert-rerank", false}, {"modernbert-rerank-mean", true},
               {"roberta-rerank", true},     {"xlmr", true},
               {"xlmr-rerank", true}};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens, MAX_TEXTS = 8 };

struct expected {
    int32_t *ids;
    size_t n, d, n_type0;
    float *hidden; /* [n, d]; NULL: none */
    float *pooled; /* [d], without Dense modules; NULL: none */
    float *vector; /* [n_vector], of the whole of embed; NULL: none */
    size_t n_vector;
    float score;
    bool has_score;
};

static float *copy_floats(const struct st_tensor *t)
{
    float *out = malloc(t->n_bytes);
    memcpy(out, t->data, t->n_bytes);
    return out;
}

/* The first token's state, or the mean of all. */
static float *pool(const char *name, const float *hidden, size_t n, size_t d)
{
    bool first = strstr(name, "cls") || !strcmp(name, "modernbert-long");
    size_t count = first ? 1 : n;
    float *out = calloc(d, sizeof *out);
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < d; i++)
            out[i] += hidden[t * d + i] / (float)count;
    return out;
}

/* 1 - the cosine of two vectors. */
static double distance(const float *a, const float *b, size_t d)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < d; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return 1 - ab / sqrt(aa * bb);
}

static struct expected read_expected(const char *name)
{
    struct expected x = {0};
    struct st_set *set;
    struct qwick_err e;
    char path[192];
    snprintf(path, sizeof path, FAMILIES "%s/expected.safetensors", name);
    assert_ok(st_open_file(&set, path, &e), &e);
    const struct st_tensor *ids = st_find(set, "input_ids");
    const struct st_tensor *hidden = st_find(set, "hidden");
    const struct st_tensor *pooled = st_find(set, "pooled");
    const struct st_tensor *score = st_find(set, "score");
    const struct st_tensor *type0 = st_find(set, "n_type0");
    x.n = ids->shape[0];
    x.ids = malloc(x.n * sizeof *x.ids);
    for (size_t i = 0; i < x.n; i++)
        x.ids[i] = golden_i64(ids->data, i);
    if (type0)
        x.n_type0 = (size_t)golden_i64(type0->data, 0);
    if (hidden) {
        x.d = hidden->shape[1];
        x.hidden = copy_floats(hidden);
        x.pooled = pool(name, x.hidden, x.n, x.d);
        x.n_vector = pooled->shape[0];
        x.vector = copy_floats(pooled);
    }
    x.has_score = score;
    if (score)
        memcpy(&x.score, score->data, sizeof x.score);
    st_close(set);
    return x;
}

static void free_expected(struct expected *x)
{
    free(x->ids);
    free(x->hidden);
    free(x->pooled);
    free(x->vector);
}

/* One pass over texts: out gets the hidden states of the rows of each. */
static void encode(struct qwick_engine *eng, const struct span *texts, size_t n,
                   float *out)
{
    const struct model *m = &eng->model;
    struct kv_cache kv[MAX_TEXTS];
    struct span spans[MAX_TEXTS];
    struct scratch *s;
    struct qwick_err e;
    size_t total = 0, longest = 0;
    for (size_t i = 0; i < n; i++) {
        assert_ok(kv_init(&kv[i], eng->kv, &m->config, &e), &e);
        assert_ok(kv_reserve(&kv[i], texts[i].n, &e), &e);
        spans[i] = texts[i];
        spans[i].kv = &kv[i];
        total += texts[i].n;
        longest = texts[i].n > longest ? texts[i].n : longest;
    }
    assert_ok(scratch_create(&s, m, &e), &e);
    assert_ok(scratch_reserve(s, m, total, longest, &e), &e);
    const struct pass_io io = {.spans = spans, .n_spans = n, .hidden = out};
    assert_int_equal(model_forward(m, s, &io), 0);
    for (size_t i = 0; i < n; i++)
        kv_free(&kv[i]);
    scratch_free(s);
}

/* The states of a text, alone or beside another one. */
static float *states_of(struct qwick_engine *eng, const struct expected *x,
                        enum span_rows rows, bool batch)
{
    int32_t *other = new_ids(OTHER_TOKENS, 11);
    float *out = malloc((x->n + 1) * eng->model.config.d_model * sizeof *out);
    const struct span texts[] = {
        {.tokens = x->ids, .n = x->n, .n_type0 = x->n_type0, .rows = rows},
        {.tokens = other, .n = OTHER_TOKENS, .rows = ROWS_FIRST}};
    encode(eng, texts, batch ? 2 : 1, out);
    free(other);
    return out;
}

static float *hidden_of(struct qwick_engine *eng, const struct expected *x)
{
    return states_of(eng, x, ROWS_ALL, false);
}

/* The logit of a cross-encoder, from the first token's state or the mean. */
static float score_of(struct qwick_engine *eng, const struct expected *x,
                      bool batch)
{
    const struct model *m = &eng->model;
    size_t d = m->config.d_model;
    bool mean = m->config.class_mean;
    float *states = states_of(eng, x, mean ? ROWS_ALL : ROWS_FIRST, batch);
    float *row = malloc(d * sizeof *row);
    struct scratch *s;
    struct qwick_err e;
    double sum;
    assert_ok(scratch_create(&s, m, &e), &e);
    assert_ok(scratch_reserve(s, m, 1, 1, &e), &e);
    for (size_t t = 1; mean && t < x->n; t++)
        for (size_t i = 0; i < d; i++)
            states[i] += states[t * d + i];
    for (size_t i = 0; mean && i < d; i++)
        states[i] /= (float)x->n;
    model_class_input(m, s, states);
    sum = m->class_bias ? (double)m->class_bias[0] : 0;
    m->classes.ops->to_f32(m->k, row, &m->classes, 0, 1);
    for (size_t i = 0; i < d; i++)
        sum += (double)row[i] * (double)states[i];
    scratch_free(s);
    free(states);
    free(row);
    return (float)sum;
}

static struct qwick_engine *open_encoder(const char *name, const char *form,
                                         enum isa isa, bool exact, int threads)
{
    char path[128];
    snprintf(path, sizeof path, FAMILIES "%s%s", name, form);
    return engine_with(.model = path, .isa = isa_name(isa), .exact = exact,
                       .threads = threads);
}

static size_t n_wrong;

static void check_text(struct qwick_engine *eng, const struct expected *x,
                       const char *name, const char *form, bool batch)
{
    bool exact = eng->model.exact;
    double bound = exact ? EXACT_BOUND : FLOAT_BOUND, error, away = 0;
    if (x->has_score) {
        float got = score_of(eng, x, batch);
        error = fabs((double)got - (double)x->score) / fabs((double)x->score);
    } else {
        float *got = states_of(eng, x, ROWS_ALL, batch);
        float *vector = pool(name, got, x->n, x->d);
        error = relative_error(got, x->hidden, x->n * x->d);
        away = distance(vector, x->pooled, x->d);
        free(vector);
        free(got);
    }
    printf("%s%s %s%s%s: %.3g, 1 - cosine %.3g\n", name, form,
           eng->model.k->name, exact ? " exact" : "", batch ? " batch" : "",
           error, away);
    n_wrong += !(error <= bound);
    n_wrong += !(away <= (exact ? EXACT_COSINE : FLOAT_COSINE));
}

static void check_numbers(const char *name, const char *form, enum isa isa,
                          bool exact)
{
    struct expected x = read_expected(name);
    struct qwick_engine *eng = open_encoder(name, form, isa, exact, 2);
    assert_true(eng->model.config.bidirectional);
    check_text(eng, &x, name, form, false);
    check_text(eng, &x, name, form, true);
    qwick_engine_close(eng);
    free_expected(&x);
}

static void states_match_every_isa(void **state)
{
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < N_GOLDENS && cpu_has((enum isa)isa); i++)
            for (int exact = 0; exact < 2; exact++) {
                check_numbers(goldens[i].name, "", (enum isa)isa, exact);
                if (goldens[i].gguf)
                    check_numbers(goldens[i].name, ".gguf", (enum isa)isa,
                                  exact);
            }
    assert_int_equal(n_wrong, 0);
}

/* ---- embed and rerank ---------------------------------------------------- */

struct kept {
    const struct expected *x;
    float *out; /* [x->n_vector] */
};

static struct states_item kept_text(void *ctx, size_t i)
{
    const struct expected *x = ((struct kept *)ctx)->x;
    return (struct states_item){
        .tokens = x->ids, .n = x->n, .n_type0 = x->n_type0};
}

static int keep_state(void *ctx, const size_t *items, size_t n,
                      const float *vectors, struct qwick_err *e)
{
    struct kept *k = ctx;
    assert_int_equal(n, 1);
    memcpy(k->out, vectors, k->x->n_vector * sizeof *vectors);
    return 0;
}

/* The vector of a pair of segments, which qwick_embed does not take: by its
 * task, and the modes of the checkpoint. */
static void pair_vector(struct qwick_engine *eng, const struct expected *x,
                        float *out)
{
    struct kept k = {x, out};
    struct pooling p;
    struct states st = {0};
    struct qwick_err e;
    bool more = true;
    assert_ok(pooling_read(&p, eng->ck, &eng->model.config, &e), &e);
    assert_int_equal(p.n_dense, 0);
    assert_ok(states_open(&st, eng, &p.modes, 0, 0, &e), &e);
    states_begin(&st, 1, kept_text, keep_state, &k);
    while (more)
        assert_ok(states_step(&st, &more, &e), &e);
    states_close(&st);
    pooling_close(&p);
}

static void text_vector(struct qwick_engine *eng, const struct expected *x,
                        float *out)
{
    const struct qwick_embed_item item = {x->ids, x->n, out};
    struct qwick_embedder *m;
    struct qwick_err e;
    assert_ok(qwick_embedder_create(&m, eng, NULL, &e), &e);
    assert_int_equal(qwick_embedder_dim(m), x->n_vector);
    assert_ok(qwick_embed(m, &item, 1, &e), &e);
    qwick_embedder_free(m);
}

/* The scores of pairs of ids. */
static void rank(struct qwick_engine *eng, struct qwick_rerank_item *items,
                 const size_t *n_first, size_t n)
{
    const struct qwick_rerank_options o = {.size = sizeof o,
                                           .raw_scores = true};
    struct qwick_reranker *r;
    struct qwick_err e;
    bool more = true;
    assert_ok(qwick_reranker_create(&r, eng, NULL, 0, &o, &e), &e);
    qwick_rerank_begin_pairs(r, items, n_first, n);
    while (more)
        assert_ok(qwick_rerank_step(r, &more, &e), &e);
    qwick_reranker_free(r);
}

static void check_result(const char *name, const char *form, enum isa isa,
                         bool exact)
{
    struct expected x = read_expected(name);
    struct qwick_engine *eng = open_encoder(name, form, isa, exact, 2);
    double error, bound = exact ? EXACT_BOUND : FLOAT_BOUND;
    if (x.has_score) {
        struct qwick_rerank_item item = {.tokens = x.ids, .n = x.n};
        rank(eng, &item, &x.n_type0, 1);
        error = fabs(item.score - (double)x.score) / fabs((double)x.score);
    } else {
        float *v = malloc(x.n_vector * sizeof *v);
        (x.n_type0 ? pair_vector : text_vector)(eng, &x, v);
        error = distance(v, x.vector, x.n_vector);
        bound = exact ? EXACT_COSINE : FLOAT_COSINE;
        free(v);
    }
    printf("%s%s %s%s: %s %.3g\n", name, form, isa_name(isa),
           exact ? " exact" : "", x.has_score ? "score" : "vector", error);
    n_wrong += !(error <= bound);
    qwick_engine_close(eng);
    free_expected(&x);
}

static void results_match_every_isa(void **state)
{
    for (size_t i = 0; i < N_GOLDENS; i++)
        for (int isa = 0; isa < ISA_COUNT; isa++)
            for (int exact = 0; exact < 2 && cpu_has((enum isa)isa); exact++) {
                check_result(goldens[i].name, "", (enum isa)isa, exact);
                if (goldens[i].gguf)
                    check_result(goldens[i].name, ".gguf", (enum isa)isa,
                                 exact);
            }
    assert_int_equal(n_wrong, 0);
}

/* Pairs whose first segments have other lengths share passes, and each keeps
 * its own types. */
static void pairs_keep_their_segments(void **state)
{
    enum { N = 5 };
    static const size_t lengths[N] = {9, 24, 9, 9, 40},
                        n_first[N] = {4, 12, 5, 0, 39};
    struct qwick_engine *eng =
        engine_with(.model = FAMILIES "bert-rerank", .exact = true);
    int32_t *ids = new_ids(64, 3);
    struct qwick_rerank_item items[N];
    for (size_t i = 0; i < N; i++)
        items[i] = (struct qwick_rerank_item){.tokens = ids, .n = lengths[i]};
    rank(eng, items, n_first, N);
    for (size_t i = 0; i < N; i++) {
        struct qwick_rerank_item one = items[i];
        rank(eng, &one, &n_first[i], 1);
        assert_true(one.score == items[i].score);
        for (size_t j = 0; j < i; j++)
            assert_true(items[j].score != items[i].score);
    }
    free(ids);
    qwick_engine_close(eng);
}

/* ---- equivalences -------------------------------------------------------- */

/* Texts of unequal lengths in one pass give the states of single passes, with
 * --exact bit by bit. */
static void check_batch(const char *name, enum isa isa, bool exact, int threads)
{
    static const size_t lengths[MAX_TEXTS] = {1, 64, 7, 65, 2, 120, 33, 5};
    struct qwick_engine *eng = open_encoder(name, "", isa, exact, threads);
    struct qwick_engine *one = open_encoder(name, "", isa, exact, 1);
    size_t d = eng->model.config.d_model, total = 0;
    struct span texts[MAX_TEXTS];
    int32_t *ids = new_ids(512, 7);
    float *all, *single;
    for (size_t i = 0; i < MAX_TEXTS; i++) {
        texts[i] = (struct span){.tokens = ids + total,
                                 .n = lengths[i],
                                 .n_type0 = lengths[i] / 2,
                                 .rows = i % 3 == 1 ? ROWS_FIRST : ROWS_ALL};
        total += lengths[i];
    }
    all = malloc(total * d * sizeof *all);
    single = malloc(total * d * sizeof *single);
    encode(eng, texts, MAX_TEXTS, all);
    for (size_t i = 0, row = 0; i < MAX_TEXTS; i++) {
        size_t n = texts[i].rows == ROWS_FIRST ? 1 : texts[i].n;
        texts[i].rows = ROWS_ALL;
        encode(one, &texts[i], 1, single);
        if (exact)
            assert_memory_equal(all + row * d, single, n * d * sizeof *all);
        else /* each side is within the bound of the goldens */
            assert_true(relative_error(all + row * d, single, n * d) <=
                        2 * FLOAT_BOUND);
        row += n;
    }
    free(all);
    free(single);
    free(ids);
    qwick_engine_close(eng);
    qwick_engine_close(one);
}

static void batches_equal_single_passes(void **state)
{
    static const char *const names[] = {"bert-pair", "modernbert",
                                        "embeddinggemma"};
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < 3 && cpu_has((enum isa)isa); i++) {
            check_batch(names[i], (enum isa)isa, true, 1 + (isa + (int)i) % 4);
            check_batch(names[i], (enum isa)isa, false, 3);
        }
}

/* A text that is longer than a segment of the softmax, and than a chunk. */
static void long_texts_take_one_pass(void **state)
{
    enum { N = 250 };
    struct qwick_engine *eng = engine_with(
        .model = FAMILIES "modernbert", .exact = true, .threads = 2,
        .prefill_chunk = 16);
    struct qwick_engine *one = engine_with(
        .model = FAMILIES "modernbert", .exact = true, .threads = 1);
    struct expected x = {.ids = new_ids(N, 3), .n = N};
    float *a = hidden_of(eng, &x), *b = hidden_of(one, &x);
    assert_memory_equal(a, b, N * eng->model.config.d_model * sizeof *a);
    free(a);
    free(b);
    free_expected(&x);
    qwick_engine_close(eng);
    qwick_engine_close(one);
}

static void released_spellings(void **state)
{
    size_t n_made = 0;
    for (size_t i = 0; i < N_GOLDENS; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, FAMILIES "%s", goldens[i].name);
        if (!make_released(dir))
            continue;
        struct expected x = read_expected(goldens[i].name);
        struct qwick_engine *eng =
            engine_with(.model = temp_dir, .exact = true, .threads = 1);
        struct qwick_engine *new =
            engine_with(.model = dir, .exact = true, .threads = 1);
        float *a = hidden_of(eng, &x), *b = hidden_of(new, &x);
        assert_memory_equal(a, b,
                            x.n * eng->model.config.d_model * sizeof *a);
        free(a);
        free(b);
        free_expected(&x);
        qwick_engine_close(eng);
        qwick_engine_close(new);
        n_made++;
    }
    assert_int_equal(n_made, 5);
}

/* Replace each `old` in a text by `new`, which is as long. */
static size_t replace_all(char *text, size_t n, const char *old,
                          const char *new)
{
    size_t len = strlen(old), count = 0;
    assert_int_equal(strlen(new), len);
    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(text + i, old, len) == 0) {
            memcpy(text + i, new, len);
            count++;
        }
    return count;
}

/* The first converters kept TensorFlow's names of the parts of a norm. */
static void old_names_of_norms(void **state)
{
    struct expected x = read_expected("bert-cls");
    struct qwick_err e;
    char *text;
    size_t n;
    temp_clear();
    assert_ok(map_read_all(FAMILIES "bert-cls/config.json", 1 << 20, &text, &n,
                           &e),
              &e);
    temp_write("config.json", text, n);
    free(text);
    assert_ok(map_read_all(FAMILIES "bert-cls/model.safetensors", 1 << 22,
                           &text, &n, &e),
              &e);
    assert_int_equal(replace_all(text, n, "LayerNorm.weight\"",
                                 "LayerNorm.gamma\" "),
                     7);
    assert_int_equal(
        replace_all(text, n, "LayerNorm.bias\"", "LayerNorm.beta\""), 7);
    temp_write("model.safetensors", text, n);
    free(text);
    struct qwick_engine *eng =
        engine_with(.model = temp_dir, .exact = true, .threads = 1);
    float *got = hidden_of(eng, &x);
    assert_true(relative_error(got, x.hidden, x.n * x.d) <= EXACT_BOUND);
    free(got);
    free_expected(&x);
    qwick_engine_close(eng);
}

/* ---- refusals ------------------------------------------------------------ */

static void says(const char *path, const char *what)
{
    struct qwick_err e = open_refused(path);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (!strstr(e.msg, what))
        fail_msg("expected %s in: %s", what, e.msg);
}

static void what_is_missing_is_named(void **state)
{
    says(FAMILIES "bert-rerank.gguf", "cls.weight: missing");
}

/* Some checkpoints have BERT's model_type and another computation. */
static void other_positions_are_refused(void **state)
{
    struct qwick_err e;
    char *text, *end;
    size_t n;
    temp_clear();
    assert_ok(map_read_all(FAMILIES "bert-cls/config.json", 1 << 20, &text, &n,
                           &e),
              &e);
    end = memchr(text, '{', n);
    assert_non_null(end);
    FILE *f = fopen(temp_path("config.json"), "w");
    assert_non_null(f);
    fprintf(f, "{\"position_embedding_type\": \"alibi\",%.*s",
            (int)(text + n - end - 1), end + 1);
    assert_int_equal(fclose(f), 0);
    free(text);
    says(temp_dir, "position_embedding_type");
}

/* An encoder generates nothing. */
static void sessions_are_refused(void **state)
{
    static const struct {
        const char *model, *what;
    } rows[] = {{"xlmr", "is a text encoder"},
                {"embeddinggemma.gguf", "is a text encoder"},
                {"xlmr-rerank", "only rerank uses"},
                {"xlmr-rerank.gguf", "only rerank uses"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[128];
        struct qwick_session *s;
        struct qwick_err e = {0};
        snprintf(path, sizeof path, FAMILIES "%s", rows[i].model);
        struct qwick_engine *eng = engine_with(.model = path, .threads = 1);
        assert_int_equal(qwick_session_create(&s, eng, 0, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        assert_non_null(strstr(e.msg, rows[i].what));
        qwick_engine_close(eng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_match_every_isa),
        cmocka_unit_test(results_match_every_isa),
        cmocka_unit_test(pairs_keep_their_segments),
        cmocka_unit_test(batches_equal_single_passes),
        cmocka_unit_test(long_texts_take_one_pass),
        cmocka_unit_test(released_spellings),
        cmocka_unit_test(old_names_of_norms),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(other_positions_are_refused),
        cmocka_unit_test(sessions_are_refused),
    };
    cmocka_set_test_filter(getenv("TEST_FILTER"));
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
