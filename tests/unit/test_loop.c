/* A program's own decode loop gives the same answer as qwick_generate. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "engines.h"
#include "qwick.h"
#include "own_sampling.h"

enum { MAX_TOKENS = 40 };

static struct qwick_engine *open_engine(bool exact)
{
    return engine_with(.exact = exact, .threads = 2);
}

static int32_t *encode(const struct qwick_engine *eng, const char *text,
                       size_t *n)
{
    struct qwick_chat *chat;
    int32_t *ids;
    bool in_think;
    struct qwick_err e;
    assert_ok(
        qwick_chat_create(&chat, &e) ||
            qwick_chat_add(chat, "user", text, strlen(text), &e) ||
            qwick_chat_encode(chat, eng, NULL, NULL, 0, &ids, n, &in_think, &e),
        &e);
    qwick_chat_free(chat);
    return ids;
}

static bool is_stop(const struct qwick_engine *eng, int32_t id)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return false;
}

/* Generate with our own loop: ids [MAX_TOKENS], and text if there is a
 * detokenizer. Returns the number of ids. */
static size_t answer(struct qwick_engine *eng, struct qwick_sampler *sam,
                     struct qwick_detokenizer *det, const int32_t *prompt,
                     size_t n_prompt, int32_t *ids, struct buf *text)
{
    struct qwick_session *ses = open_session(eng);
    struct qwick_err e;
    const char *p;
    size_t n = 0, n_text;
    assert_ok(qwick_session_sync(ses, prompt, n_prompt, &e) ||
                  qwick_sampler_accept_prompt(sam, prompt, n_prompt, &e),
              &e);
    for (;;) {
        int32_t id, again;
        assert_ok(
            qwick_sampler_draw(sam, qwick_session_logits(ses), &id, &e) ||
                qwick_sampler_draw(sam, qwick_session_logits(ses), &again, &e),
            &e);
        assert_int_equal(id, again); /* the draw is the same until it is
                                        accepted */
        assert_int_equal(qwick_sampler_accept(sam, id, &e), 0);
        ids[n++] = id;
        if (det) {
            assert_ok(qwick_detokenizer_add(det, id, &p, &n_text, &e), &e);
            assert_int_equal(buf_append(text, p, n_text), 0);
        }
        if (n == MAX_TOKENS || is_stop(eng, id))
            break;
        assert_ok(qwick_session_decode(ses, id, &e), &e);
    }
    if (det) {
        assert_int_equal(qwick_detokenizer_flush(det, &p, &n_text, &e), 0);
        assert_int_equal(buf_append(text, p, n_text), 0);
    }
    qwick_session_free(ses);
    return n;
}

static void own_loop_is_as_generate(void **state)
{
    static const char *const prompts[] = {
        "list all listening tcp ports", "what is grep?",
        "count the lines of all files and sort them by size"};
    for (int k = 0; k < 12; k++) {
        struct qwick_engine *eng = open_engine(k & 1);
        struct qwick_generate_options o = qwick_generate_defaults();
        struct qwick_session *ses = open_session(eng);
        struct qwick_sampler *sam;
        struct qwick_detokenizer *det;
        struct qwick_result r;
        struct buf text = {0};
        int32_t ids[MAX_TOKENS];
        size_t n_prompt;
        int32_t *prompt = encode(eng, prompts[k % 3], &n_prompt);
        own_sampling(&o)->seed = (uint64_t)k;
        own_sampling(&o)->temperature = k < 3 ? 0 : 1.5f;
        own_sampling(&o)->top_k = k % 4 == 1 ? 40 : 0;
        own_sampling(&o)->top_p = k % 4 == 2 ? 0.9f : 1;
        own_sampling(&o)->min_p = k % 4 == 3 ? 0.01f : 0;
        own_sampling(&o)->repeat_penalty = k % 2 ? 1.2f : 1;
        own_sampling(&o)->frequency_penalty = k % 3 ? 0.1f : 0;
        o.max_tokens = MAX_TOKENS;
        o.split_thinking = false;
        assert_int_equal(qwick_generate(ses, prompt, n_prompt, &o, &r, NULL),
                         0);
        assert_int_equal(qwick_sampler_create(&sam, eng, o.sampling, NULL), 0);
        assert_int_equal(qwick_detokenizer_create(&det, eng, true, NULL), 0);
        size_t n = answer(eng, sam, det, prompt, n_prompt, ids, &text);
        assert_int_equal(n, r.n_tokens);
        assert_memory_equal(ids, r.tokens, n * sizeof *ids);
        assert_int_equal(text.len, r.n_text);
        if (text.len)
            assert_memory_equal(text.data, r.text, text.len);
        buf_free(&text);
        qwick_result_free(&r);
        qwick_detokenizer_free(det);
        qwick_sampler_free(sam);
        qwick_session_free(ses);
        free(prompt);
        qwick_engine_close(eng);
    }
}

/* ---- bias --------------------------------------------------------------- */

struct mask {
    const unsigned char *allowed; /* [vocab_size], or NULL: all */
    float add;                    /* added to the logits of allowed ids */
    int32_t id;                   /* gets `value`; -1: none */
    float value;
    int fail;
};

static int bias(void *ctx, float *logits, size_t vocab_size)
{
    const struct mask *m = ctx;
    for (size_t i = 0; i < vocab_size; i++) {
        if (m->allowed && !m->allowed[i])
            logits[i] = -INFINITY;
        else
            logits[i] += m->add;
    }
    if (m->id >= 0)
        logits[m->id] = m->value;
    return m->fail;
}

static void a_mask_holds_for_each_token(void **state)
{
    struct qwick_engine *eng = open_engine(false);
    size_t vocab_size = qwick_engine_info(eng)->vocab_size, n_prompt;
    int32_t *prompt = encode(eng, "list files", &n_prompt);
    unsigned char *allowed = calloc(vocab_size, 1);
    assert_non_null(allowed);
    for (size_t i = 0; i < vocab_size; i++) {
        char *text;
        size_t n;
        const int32_t id = (int32_t)i;
        assert_int_equal(qwick_detokenize(eng, &id, 1, false, &text, &n, NULL),
                         0);
        allowed[i] = n > 0 && strspn(text, "0123456789") == n;
        free(text);
    }
    for (int k = 0; k < 4; k++) {
        struct qwick_sampling o = qwick_sampling_neutral();
        struct mask m = {.allowed = allowed, .id = -1};
        struct qwick_sampler *sam;
        struct qwick_detokenizer *det;
        struct buf text = {0};
        int32_t ids[MAX_TOKENS];
        o.temperature = k == 0 ? 0 : 2;
        o.top_k = k == 2 ? 10 : 0;
        o.top_p = k == 3 ? 0.9f : 1;
        o.seed = 7;
        assert_int_equal(qwick_sampler_create(&sam, eng, &o, NULL), 0);
        assert_int_equal(qwick_detokenizer_create(&det, eng, true, NULL), 0);
        qwick_sampler_bias(sam, bias, &m);
        size_t n = answer(eng, sam, det, prompt, n_prompt, ids, &text);
        assert_int_equal(n, MAX_TOKENS);
        for (size_t i = 0; i < n; i++)
            assert_true(allowed[ids[i]]);
        assert_true(text.len >= MAX_TOKENS);
        for (size_t i = 0; i < text.len; i++)
            assert_true(text.data[i] >= '0' && text.data[i] <= '9');
        buf_free(&text);
        qwick_detokenizer_free(det);
        qwick_sampler_free(sam);
    }
    free(allowed);
    free(prompt);
    qwick_engine_close(eng);
}

static void a_bias_moves_the_draw_and_is_checked(void **state)
{
    struct qwick_engine *eng = open_engine(false);
    size_t vocab_size = qwick_engine_info(eng)->vocab_size;
    struct qwick_sampling o = qwick_sampling_neutral();
    struct qwick_sampler *sam;
    struct mask m = {.id = 65, .value = 1e4f};
    struct qwick_err e;
    unsigned char *none = calloc(vocab_size, 1);
    float *logits = calloc(vocab_size, sizeof *logits);
    int32_t id;
    assert_true(none && logits);
    logits[70] = 10;
    o.temperature = 0;
    assert_int_equal(qwick_sampler_create(&sam, eng, &o, &e), 0);
    assert_int_equal(qwick_sampler_draw(sam, logits, &id, &e), 0);
    assert_int_equal(id, 70);
    qwick_sampler_bias(sam, bias, &m);
    assert_int_equal(qwick_sampler_draw(sam, logits, &id, &e), 0);
    assert_int_equal(id, 65);
    assert_true(logits[65] == 0 && logits[70] == 10);
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        m.value = bad[i];
        assert_int_equal(qwick_sampler_draw(sam, logits, &id, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        assert_non_null(strstr(e.msg, "token 65"));
    }
    m = (struct mask){.allowed = none, .id = -1};
    assert_int_equal(qwick_sampler_draw(sam, logits, &id, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "no token is left"));
    m = (struct mask){.id = -1, .fail = 1};
    assert_int_equal(qwick_sampler_draw(sam, logits, &id, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    qwick_sampler_bias(sam, NULL, NULL);
    assert_int_equal(qwick_sampler_draw(sam, logits, &id, &e), 0);
    assert_int_equal(id, 70);
    assert_int_equal(qwick_sampler_draw(sam, NULL, &id, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    const int32_t out[] = {-1, (int32_t)vocab_size};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qwick_sampler_accept(sam, out[i], &e), -1);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        assert_int_equal(qwick_sampler_accept_prompt(sam, &out[i], 1, &e), -1);
    }
    qwick_sampler_free(sam);
    o.temperature = -1;
    assert_int_equal(qwick_sampler_create(&sam, eng, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_null(sam);
    free(none);
    free(logits);
    qwick_engine_close(eng);
}

/* ---- text --------------------------------------------------------------- */

static bool valid(const char *p, size_t n)
{
    size_t i = 0, len;
    while (i < n && (len = utf8_decode(p + i, n - i, NULL, NULL)) > 0)
        i += len;
    return i == n;
}

static void characters_come_whole(void **state)
{
    static const char text[] = "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80!";
    struct qwick_engine *eng = open_engine(false);
    struct qwick_detokenizer *det;
    struct qwick_err e;
    struct buf out = {0};
    int32_t *ids;
    const char *p;
    size_t n, n_text, held = 0;
    assert_int_equal(
        qwick_tokenize(eng, text, sizeof text - 1, false, &ids, &n, NULL), 0);
    assert_int_equal(qwick_detokenizer_create(&det, eng, false, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(qwick_detokenizer_add(det, ids[i], &p, &n_text, NULL),
                         0);
        assert_true(valid(p, n_text));
        held += n_text == 0;
        assert_int_equal(buf_append(&out, p, n_text), 0);
    }
    assert_true(held > 0); /* the emoji takes several tokens */
    assert_int_equal(out.len, sizeof text - 1);
    assert_memory_equal(out.data, text, out.len);
    assert_int_equal(qwick_detokenizer_flush(det, &p, &n_text, NULL), 0);
    assert_int_equal(n_text, 0);
    free(ids);
    /* a text that ends inside a character, then another text */
    assert_int_equal(qwick_tokenize(eng, "a\xF0\x9F", 3, false, &ids, &n, NULL),
                     0);
    out.len = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(qwick_detokenizer_add(det, ids[i], &p, &n_text, NULL),
                         0);
        assert_int_equal(buf_append(&out, p, n_text), 0);
    }
    assert_int_equal(out.len, 1);
    assert_int_equal(qwick_detokenizer_flush(det, &p, &n_text, NULL), 0);
    assert_int_equal(n_text, 3);
    assert_memory_equal(p, "\xEF\xBF\xBD", 3);
    assert_int_equal(qwick_detokenizer_add(det, ids[0], &p, &n_text, NULL), 0);
    assert_int_equal(n_text, 1);
    assert_int_equal(*p, 'a');
    assert_int_equal(qwick_detokenizer_add(det, -1, &p, &n_text, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    free(ids);
    buf_free(&out);
    qwick_detokenizer_free(det);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_loop_is_as_generate),
        cmocka_unit_test(a_mask_holds_for_each_token),
        cmocka_unit_test(a_bias_moves_the_draw_and_is_checked),
        cmocka_unit_test(characters_come_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
