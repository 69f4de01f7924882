/* Gemma 3: layouts of one checkpoint, windows at their real place, broken
 * files. The tests of all models check the numbers, and that they do not
 * depend on threads, chunks or other sequences. */
#include "test.h"

#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"
#include "golden.h"
#include "qwick_tools.h"
#include "reference.h"
#include "session_pages.h"

#define GEMMA "tests/golden/models/gemma3-gqa"

/* ---- helpers ------------------------------------------------------------ */

static struct notes {
    char line[8][512];
    size_t n;
} notes;

static void keep_note(void *ctx, enum qwick_log_level level, const char *line)
{
    (void)ctx;
    if (level == QWICK_LOG_NOTE && notes.n < 8)
        snprintf(notes.line[notes.n++], sizeof *notes.line, "%s", line);
}

static size_t notes_with(const char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < notes.n; i++)
        n += strstr(notes.line[i], text) != NULL;
    return n;
}

static int open_model(struct qwick_engine **eng, const char *dir, size_t chunk,
                      struct qwick_err *e)
{
    notes.n = 0;
    return try_open(eng, e, .model = dir, .exact = true, .threads = 2,
                    .prefill_chunk = chunk, .log = keep_note);
}

/* Logits of the golden's tokens, malloc'ed. */
static float *logits_of(const char *dir)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    struct golden g;
    assert_int_equal(golden_open(&g, "gemma3-gqa"), 0);
    assert_ok(open_model(&eng, dir, 0, &e), &e);
    float *out = ref_alloc(g.n * g.vocab_size, sizeof *out);
    assert_ok(all_logits(eng, &g, out, &e), &e);
    qwick_engine_close(eng);
    golden_close(&g);
    return out;
}

/* Write the golden to temp_dir, with its tensors under another prefix. vision:
 * add the tensors of a vision model. missing: leave out the tensor of this
 * name, unless it is NULL. */
static void write_model(const char *prefix, bool vision, const char *missing)
{
    static const float pixels[128] = {1, 2, 3, 4, 5, 6};
    struct st_set *set;
    size_t n = 0;
    assert_int_equal(st_open_file(&set, GEMMA "/model.safetensors", NULL), 0);
    size_t most = st_count(set) + 2;
    struct st_out_tensor *t = ref_alloc(most, sizeof *t);
    char(*names)[192] = ref_alloc(most, sizeof *names);
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *from = st_at(set, i);
        if (missing && !strcmp(from->name, missing))
            continue;
        snprintf(names[n], sizeof *names, "%s%s", prefix,
                 from->name + strlen("model."));
        t[n] = (struct st_out_tensor){.name = names[n],
                                      .dtype = from->dtype,
                                      .rank = from->rank,
                                      .data = from->data};
        memcpy(t[n].shape, from->shape, sizeof from->shape);
        n++;
    }
    if (vision) {
        t[n++] = (struct st_out_tensor){
            .name = "vision_tower.vision_model.embeddings.weight",
            .dtype = DT_F32,
            .rank = 2,
            .shape = {2, 64},
            .data = pixels};
        t[n++] = (struct st_out_tensor){
            .name = "multi_modal_projector.mm_soft_emb_norm.weight",
            .dtype = DT_F32,
            .rank = 1,
            .shape = {6},
            .data = pixels};
    }
    temp_put_tensors("model.safetensors", t, n);
    free(names);
    free(t);
    st_close(set);
}

/* The golden's config.json between two texts. */
static void write_config(const char *before, const char *after)
{
    char *data, text[8192];
    size_t n;
    assert_int_equal(
        map_read_all(GEMMA "/config.json", 1 << 20, &data, &n, NULL), 0);
    int len =
        snprintf(text, sizeof text, "%s%.*s%s", before, (int)n, data, after);
    assert_true(len > 0 && (size_t)len < sizeof text);
    temp_write("config.json", text, (size_t)len);
    free(data);
}

#define WRAPPED                                                 \
    "{\"model_type\": \"gemma3\", \"eos_token_id\": [1, 106], " \
    "\"vision_config\": {\"hidden_size\": 2}, \"text_config\": "

/* ---- layouts ------------------------------------------------------------ */

static void all_layouts_give_the_same_logits(void **state)
{
    static const char *const prefixes[] = {
        "", "model.", "language_model.model.", "model.language_model."};
    struct golden g;
    assert_int_equal(golden_open(&g, "gemma3-gqa"), 0);
    size_t bytes = g.n * g.vocab_size * sizeof(float);
    float *want = logits_of(GEMMA);
    assert_int_equal(notes_with("not part of the text model"), 0);
    for (size_t i = 0; i < 4; i++) {
        bool wrapped = i > 1;
        temp_clear();
        write_model(prefixes[i], wrapped, NULL);
        write_config(wrapped ? WRAPPED : "", wrapped ? "}" : "");
        float *got = logits_of(temp_dir);
        assert_memory_equal(got, want, bytes);
        assert_int_equal(notes_with("2 tensors, 0.0 MB, are not part of the "
                                    "text model and ignored: "),
                         wrapped);
        free(got);
    }
    free(want);
    golden_close(&g);
}

/* The quantized text model, including its head, is the same for every layout.
 * The vision model does not change. */
static void only_the_text_model_is_quantized(void **state)
{
    static const char *const prefixes[] = {"model.", "language_model.model.",
                                           "model.language_model."};
    static const char vision[] = "vision_tower.vision_model.embeddings.weight";
    struct golden g;
    char dir[80];
    float *want = NULL;
    assert_int_equal(golden_open(&g, "gemma3-gqa"), 0);
    snprintf(dir, sizeof dir, "%s/out", temp_dir);
    for (size_t i = 0; i < 3; i++) {
        struct qwick_quantize_options o = qwick_quantize_defaults();
        struct qwick_err e;
        o.bits = 4;
        o.group = 32;
        o.head_bits = 8;
        o.force = true;
        o.threads = 1;
        temp_clear();
        write_model(prefixes[i], i > 0, NULL);
        write_config(i > 0 ? WRAPPED : "", i > 0 ? "}" : "");
        assert_ok(qwick_quantize(temp_dir, dir, &o, NULL, &e), &e);
        float *got = logits_of(dir);
        if (want)
            assert_memory_equal(got, want, g.n * g.vocab_size * sizeof(float));
        struct st_set *set;
        assert_int_equal(
            st_open_file(&set, temp_path("out/model.safetensors"), NULL), 0);
        const struct st_tensor *t = st_find(set, vision);
        assert_int_equal(t != NULL, i > 0);
        assert_true(!t || (t->dtype == DT_F32 && t->shape[1] == 64));
        st_close(set);
        free(want);
        want = got;
    }
    free(want);
    golden_close(&g);
}

/* Of both files and both objects. */
static void the_whole_model_has_the_stop_ids(void **state)
{
    struct qwick_engine *eng;
    struct qwick_err e;
    temp_clear();
    write_model("language_model.model.", true, NULL);
    write_config(WRAPPED, "}");
    assert_int_equal(open_model(&eng, temp_dir, 0, &e), 0);
    const struct config *c = &eng->model.config;
    assert_int_equal(c->n_stop_ids, 2);
    assert_int_equal(c->stop_ids[0], 1);
    assert_int_equal(c->stop_ids[1], 106);
    assert_string_equal(qwick_engine_info(eng)->model_type, "gemma3_text");
    qwick_engine_close(eng);
}

static void missing_tensors_are_named(void **state)
{
    static const char *const needed[] = {
        "model.layers.3.post_attention_layernorm.weight",
        "model.layers.3.pre_feedforward_layernorm.weight",
        "model.layers.3.post_feedforward_layernorm.weight",
        "model.layers.3.self_attn.q_norm.weight", "model.norm.weight"};
    struct qwick_engine *eng;
    struct qwick_err e;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        temp_clear();
        write_model("model.", false, needed[i]);
        write_config("", "");
        assert_int_equal(open_model(&eng, temp_dir, 0, &e), -1);
        if (!strstr(e.msg, needed[i]) || !strstr(e.msg, "missing"))
            fail_msg("expected %s in: %s", needed[i], e.msg);
    }
}

/* ---- windows ------------------------------------------------------------ */

static struct qwick_session *session_of(struct qwick_engine *eng,
                                        const int32_t *ids, size_t n)
{
    struct qwick_session *s;
    struct qwick_err e;
    assert_ok(qwick_session_create(&s, eng, 0, &e) ||
                  qwick_session_sync(s, ids, n, &e),
              &e);
    return s;
}

/* All layers but one see 16 positions. */
static void released_pages_change_no_result(void **state)
{
    enum { N = 900, SMALL = 64 };
    struct qwick_engine *big, *small;
    struct qwick_err e;
    int32_t ids[N];
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)((i * i * 31 + i * 7) % 384);
    assert_int_equal(open_model(&big, GEMMA, 2 * N, &e), 0);
    assert_int_equal(open_model(&small, GEMMA, SMALL, &e), 0);
    struct qwick_session *want = session_of(big, ids, N), *fork;
    struct qwick_session *s = session_of(small, ids, N - 5);
    for (size_t i = N - 5; i < N; i++)
        assert_int_equal(qwick_session_decode(s, ids[i], &e), 0);
    same_logits(s, want);
    size_t gone = n_released(s);
    assert_true(gone > (N - 16 - KV_SLACK - SMALL) / KV_BLOCK - 2);
    assert_int_equal(qwick_session_fork(&fork, s, &e), 0);
    assert_int_equal(qwick_session_rollback(s, N - 100, &e), 0);
    assert_int_equal(qwick_session_sync(s, ids, N, &e), 0);
    assert_int_equal(s->n_cached, N - 100);
    same_logits(s, want);
    same_logits(fork, want);
    qwick_session_free(fork);
    qwick_session_free(s);
    qwick_session_free(want);
    qwick_engine_close(small);
    qwick_engine_close(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layouts_give_the_same_logits),
        cmocka_unit_test(only_the_text_model_is_quantized),
        cmocka_unit_test(the_whole_model_has_the_stop_ids),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(released_pages_change_no_result),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
