/* Answers that are messages with channels: headers in all spellings, and what a
 * stream of tokens shows of them. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engine/generate/generate.h"
#include "engines.h"
#include "tempdir.h"
#include "text/chat/harmony.h"

/* ---- headers ---- */

static void headers_are_read(void **state)
{
    static const struct {
        const char *header;
        enum harmony_kind kind;
        bool final;
        const char *recipient;
    } rows[] = {
        {"assistant<|channel|>final", HARMONY_IS_TEXT, true, ""},
        {"<|channel|>final", HARMONY_IS_TEXT, true, ""},
        {"<|channel|>final <|constrain|>json", HARMONY_IS_TEXT, true, ""},
        {"<|start|>assistant<|channel|>analysis", HARMONY_IS_THINKING, false,
         ""},
        {"<|channel|>commentary", HARMONY_IS_TEXT, false, ""},
        {"<|channel|>commentary to=functions.f <|constrain|>json",
         HARMONY_IS_CALL, false, "functions.f"},
        {"<|channel|>commentary to=functions.f<|constrain|>json",
         HARMONY_IS_CALL, false, "functions.f"},
        {"assistant to=functions.a.b<|channel|>commentary json",
         HARMONY_IS_CALL, false, "functions.a.b"},
        {" to=python<|channel|>analysis code", HARMONY_IS_CALL, false,
         "python"},
        {"functions.f to=assistant<|channel|>commentary", HARMONY_IS_TEXT,
         false, ""},
        {"assistant", HARMONY_IS_TEXT, false, ""},
        {"<|channel|>", HARMONY_IS_TEXT, false, ""},
        {"<|channel|>analysis2 to=", HARMONY_IS_TEXT, false, ""},
        {"", HARMONY_IS_TEXT, false, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct harmony_header h =
            harmony_read(rows[i].header, strlen(rows[i].header));
        assert_int_equal(h.kind, rows[i].kind);
        assert_int_equal(h.final, rows[i].final);
        assert_int_equal(h.recipient != NULL, *rows[i].recipient != '\0');
        if (h.recipient) {
            assert_int_equal(h.n_recipient, strlen(rows[i].recipient));
            assert_memory_equal(h.recipient, rows[i].recipient, h.n_recipient);
        }
    }
}

/* ---- answers ---- */

/* A tokenizer with a token for each byte, and the tokens of messages: so headers come in the smallest pieces. */
static struct qwick_engine *open_messages(void)
{
    static const char *const added[] = {
        "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
        "<|constrain|>", "<|return|>", "<|call|>"};
    char path[128];
    snprintf(path, sizeof path, "%s/tokenizer.json", temp_dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"added_tokens\":[", f);
    for (int i = 0; i < 7; i++)
        fprintf(f,
                "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"lstrip\":"
                "false,\"rstrip\":false,\"normalized\":false,\"single_word\":"
                "false}",
                i ? "," : "", 300 + i, added[i]);
    fputs("],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
          "\"add_prefix_space\":false,\"use_regex\":true},\"post_processor\":"
          "null,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
          "\"BPE\",\"vocab\":{",
          f);
    for (int c = 0, next = 256; c < 256; c++) {
        bool plain = (c > ' ' && c < 0x7F) || (c > 0xA0 && c != 0xAD);
        fprintf(f, "%s\"\\u%04x\":%d", c ? "," : "", plain ? c : next, c);
        next += !plain;
    }
    fputs("},\"merges\":[]}}", f);
    assert_int_equal(fclose(f), 0);
    return engine_with(.model = temp_dir, .tokenizer_only = true);
}

/* What the events of an answer show. */
struct shown {
    struct buf text, thinking;
    size_t n_form;
};

static int show_event(void *ctx, const struct qwick_token_event *ev)
{
    struct shown *x = ctx;
    assert_true(!ev->form || !ev->n_text || ev->channel == QWICK_THINKING ||
                ev->text[0] != '<');
    x->n_form += ev->form;
    return buf_append(ev->channel == QWICK_TEXT ? &x->text : &x->thinking,
                      ev->text, ev->n_text);
}

static struct ids {
    int32_t *v;
    size_t n;
} encode_all(struct qwick_engine *eng, const char *text)
{
    struct ids r;
    struct qwick_err e;
    assert_ok(qwick_tokenize(eng, text, strlen(text), true, &r.v, &r.n, &e),
              &e);
    return r;
}

static const struct {
    const char *prompt, *answer, *text, *thinking;
    bool ends; /* the last token ends the answer */
} answers[] = {
    {HARMONY_TURN,
     HARMONY_THINKING "why\n" HARMONY_END HARMONY_TURN HARMONY_FINAL
                      "Hi.<|return|>",
     "Hi.", "why", true},
    {HARMONY_TURN, HARMONY_FINAL "Hi." HARMONY_END, "Hi.", NULL, true},
    {HARMONY_TURN HARMONY_FINAL, "{\"a\": 1}<|return|>", "{\"a\": 1}", NULL,
     true},
    {HARMONY_TURN HARMONY_THINKING,
     "so" HARMONY_END HARMONY_TURN HARMONY_FINAL "x<|return|>", "x", "so",
     true},
    /* a call, in the order of the documents and in that of the template */
    {HARMONY_TURN,
     HARMONY_THINKING "t" HARMONY_END HARMONY_TURN
                      "<|channel|>commentary to=functions.f "
                      "<|constrain|>json<|message|>{}<|call|>",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}", "t",
     true},
    {HARMONY_TURN,
     " to=functions.f<|channel|>commentary json<|message|>{\"a\":[1]}<|call|>",
     "<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\":[1]}",
     NULL, true},
    /* a text before a call, and two messages of thinking */
    {HARMONY_TURN,
     HARMONY_THINKING
     "a" HARMONY_END HARMONY_TURN
     "<|channel|>commentary<|message|>I look." HARMONY_END HARMONY_TURN
         HARMONY_THINKING "b" HARMONY_END HARMONY_TURN HARMONY_FINAL
     "It is so.<|return|>",
     "I look.\n\nIt is so.", "a\nb", true},
    {HARMONY_TURN,
     "<|channel|>commentary<|message|>Wait." HARMONY_END HARMONY_TURN
     "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
     "Wait.<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
     NULL, true},
    /* control tokens that do not belong there have no text */
    {HARMONY_TURN,
     HARMONY_FINAL "a<|channel|>b<|message|>c<|constrain|>d<|return|>", "abcd",
     NULL, true},
    {HARMONY_TURN,
     HARMONY_THINKING "a" HARMONY_END
                      "lost<|channel|>final<|message|>b<|return|>",
     "b", "a", true},
    {HARMONY_TURN, "<|message|>plain<|return|>", "plain", NULL, true},
    /* cut */
    {HARMONY_TURN, HARMONY_THINKING "a", "", "a", false},
    {HARMONY_TURN, "<|channel|>anal", "", NULL, false},
    {HARMONY_TURN, "<|channel|>commentary<|message|>a" HARMONY_END, "a", NULL,
     false},
};

/* Run an answer through a generation as a model would write it. */
static void run_answer(struct qwick_engine *eng, size_t i)
{
    struct shown x = {0};
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_result r = {0};
    struct ids prompt = encode_all(eng, answers[i].prompt);
    struct ids ids = encode_all(eng, answers[i].answer);
    struct config *c = &eng->model.config;
    struct generation g = {.eng = eng, .o = &o, .r = &r};
    struct qwick_err e;
    bool end = false, in_think;
    o.on_token = show_event;
    o.on_token_ctx = &x;
    g.rules = (struct decode_rules){.stop_ids = c->stop_ids,
                                    .n_stop_ids = c->n_stop_ids,
                                    .budget = SIZE_MAX,
                                    .limit = SIZE_MAX,
                                    .turn = SIZE_MAX};
    assert_ok(channels_begin(&g.channels, eng, prompt.v, prompt.n, true, &e),
              &e);
    assert_ok(channels_in_thinking(eng, prompt.v, prompt.n, &in_think, &e), &e);
    assert_int_equal(in_think, channels_think(&g.channels));
    stream_init(&g.stream, NULL, 0, in_think, NULL);
    for (size_t k = 0; k < ids.n; k++) {
        assert_false(end);
        assert_ok(generation_emit(&g, ids.v[k], k, &end, &e), &e);
    }
    assert_int_equal(end, answers[i].ends);
    assert_ok(generation_finish(&g, &e), &e);
    if (strcmp(r.text, answers[i].text))
        fail_msg("answer %zu: %s\nnot\n%s", i, r.text, answers[i].text);
    assert_int_equal(r.thinking != NULL, answers[i].thinking != NULL);
    if (r.thinking)
        assert_string_equal(r.thinking, answers[i].thinking);
    /* the events have all that is certain, in order */
    assert_true(x.text.len <= r.n_text);
    assert_memory_equal(x.text.data ? x.text.data : "", r.text, x.text.len);
    if (end)
        assert_int_equal(x.text.len, r.n_text);
    buf_free(&x.text);
    buf_free(&x.thinking);
    qwick_result_free(&r);
    generation_free(&g);
    free(prompt.v);
    free(ids.v);
}

static void messages_have_channels(void **state)
{
    struct qwick_engine *eng = open_messages();
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        run_answer(eng, i);
    qwick_engine_close(eng);
}

static void only_answers_end(void **state)
{
    struct qwick_engine *eng = open_messages();
    const struct config *c = &eng->model.config;
    assert_int_equal(c->n_stop_ids, 2);
    assert_int_equal(c->stop_ids[0], 305);
    assert_int_equal(c->stop_ids[1], 306);
    assert_int_equal(eng->think_close, 301);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_read),
        cmocka_unit_test(messages_have_channels),
        cmocka_unit_test(only_answers_end),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
