/* Conversations: their messages, and sessions that follow them. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engines.h"
#include "qwick.h"
#include "own_sampling.h"

/* ---- allocations that fail ---- */

#if defined(__SANITIZE_ADDRESS__)
enum { CAN_FAIL = 0 };
static long fail_in;
#else
enum { CAN_FAIL = 1 };
static long fail_in; /* allocations until one fails; 0: none does */

static bool fails(void)
{
    return fail_in > 0 && --fail_in == 0;
}

/* glibc's own names for them */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
#endif

/* ---- fixtures ---- */

static struct qwick_engine *eng; /* exact: equal results are equal bit by bit */

static int open_engine(void **state)
{
    eng = engine_with(.exact = true, .threads = 2);
    return 0;
}

static int close_engine(void **state)
{
    qwick_engine_close(eng);
    return 0;
}

static struct qwick_chat *create(void)
{
    struct qwick_chat *c;
    assert_int_equal(qwick_chat_create(&c, NULL), 0);
    return c;
}

static void add(struct qwick_chat *c, const char *role, const char *content)
{
    struct qwick_err e;
    assert_ok(qwick_chat_add(c, role, content, strlen(content), &e), &e);
}

static void add_answer(struct qwick_chat *c, const char *thinking,
                       const char *text)
{
    char *t = strdup(text), *h = thinking ? strdup(thinking) : NULL;
    const struct qwick_result r = {.text = t,
                                   .n_text = strlen(t),
                                   .thinking = h,
                                   .n_thinking = h ? strlen(h) : 0};
    assert_int_equal(qwick_chat_add_answer(c, &r, NULL), 0);
    free(t);
    free(h);
}

static void add_json(struct qwick_chat *c, const char *json)
{
    struct qwick_err e;
    assert_ok(qwick_chat_add_json(c, json, strlen(json), &e), &e);
}

static void check_render(const struct qwick_chat *c,
                         const struct qwick_chat_options *o, const char *want)
{
    struct qwick_err e;
    char *text;
    size_t n;
    assert_ok(qwick_chat_render(c, eng, o, &text, &n, &e), &e);
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
    free(text);
}

static void check_texts(const struct qwick_chat *c, size_t i, const char *role,
                        const char *content, const char *thinking)
{
    struct qwick_message m;
    assert_int_equal(qwick_chat_at(c, i, &m, NULL), 0);
    assert_string_equal(m.role, role);
    assert_int_equal(m.n_role, strlen(role));
    assert_int_equal(m.n_content, content ? strlen(content) : 0);
    assert_int_equal(m.n_thinking, thinking ? strlen(thinking) : 0);
    if (content)
        assert_string_equal(m.content, content);
    else
        assert_null(m.content);
    if (thinking)
        assert_string_equal(m.thinking, thinking);
    else
        assert_null(m.thinking);
}

/* ---- messages ---- */

static const char story[] = "<|im_start|>system\nbe brief<|im_end|>\n"
                            "<|im_start|>user\nhow many files?<|im_end|>\n"
                            "<|im_start|>assistant\nls | wc -l<|im_end|>\n"
                            "<|im_start|>user\nand hidden?<|im_end|>\n"
                            "<|im_start|>assistant\n<think>\n-a\n</think>\n\n"
                            "ls -a | wc -l<|im_end|>\n"
                            "<|im_start|>assistant\n";

static void messages_added_and_read_render_the_same(void **state)
{
    struct qwick_chat *added = create(), *read = create();
    assert_int_equal(qwick_chat_length(added), 0);
    add(added, "system", "be brief");
    add(added, "user", "how many files?");
    add_answer(added, "wc counts", "ls | wc -l");
    add(added, "user", "and hidden?");
    add_answer(added, "-a", "ls -a | wc -l");
    assert_int_equal(qwick_chat_length(added), 5);
    check_texts(added, 2, "assistant", "ls | wc -l", "wc counts");
    check_render(added, NULL, story);
    /* in two calls, with the thinking inside the content */
    add_json(read, "[{\"role\":\"system\",\"content\":\"be brief\"},"
                   "{\"role\":\"user\",\"content\":\"how many files?\"}]");
    add_json(read, "{\"messages\":[{\"role\":\"assistant\",\"content\":"
                   "\"<think>\\nwc counts\\n</think>\\n\\nls | wc -l\"},"
                   "{\"role\":\"user\",\"content\":\"and hidden?\"},"
                   "{\"role\":\"assistant\",\"content\":\"ls -a | wc -l\","
                   "\"reasoning_content\":\"-a\"}]}");
    assert_int_equal(qwick_chat_length(read), 5);
    check_render(read, NULL, story);
    qwick_chat_free(added);
    qwick_chat_free(read);
    qwick_chat_free(NULL);
}

static void text_parts_become_one_text(void **state)
{
    struct qwick_chat *c = create();
    add_json(c, "[{\"role\":\"system\",\"content\":[]},"
                "{\"name\":\"n\",\"content\":[{\"type\":\"text\",\"text\":"
                "\"one\"},{\"text\":\"two<|im_end|>\",\"type\":\"text\","
                "\"x\":1}],\"role\":\"user\"},"
                "{\"role\":\"assistant\",\"content\":null},"
                "{\"role\":\"user\"}]");
    check_texts(c, 0, "system", "", NULL);
    check_texts(c, 1, "user", "one\ntwo<|im_end|>", NULL);
    check_texts(c, 2, "assistant", NULL, NULL);
    check_texts(c, 3, "user", NULL, NULL);
    qwick_chat_free(c);
}

static void texts_become_utf8_and_may_hold_nul(void **state)
{
    struct qwick_chat *c = create();
    struct qwick_message m;
    assert_int_equal(qwick_chat_add(c, "user", "a\0b\xff\xc3", 5, NULL), 0);
    assert_int_equal(qwick_chat_at(c, 0, &m, NULL), 0);
    assert_int_equal(m.n_content, 9);
    assert_memory_equal(m.content, "a\0b\xef\xbf\xbd\xef\xbf\xbd", 10);
    add_json(c, "[{\"role\":\"user\\u0000\",\"content\":\"\"}]");
    assert_int_equal(qwick_chat_at(c, 1, &m, NULL), 0);
    assert_int_equal(m.n_role, 5);
    qwick_chat_free(c);
}

static void contents_are_replaced_and_turns_undone(void **state)
{
    struct qwick_chat *c = create();
    struct qwick_err e;
    add_json(c, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                "\"long\"}],\"x\":{\"y\":1}},{\"role\":\"assistant\"}]");
    add(c, "user", "longer");
    assert_int_equal(qwick_chat_replace(c, 0, "a", 1, &e), 0);
    assert_int_equal(qwick_chat_replace(c, 2, "b", 1, &e), 0);
    assert_int_equal(qwick_chat_replace(c, 2, "", 0, &e), 0);
    assert_int_equal(qwick_chat_replace(c, 0, "short", 5, &e), 0);
    check_texts(c, 0, "user", "short", NULL);
    check_texts(c, 2, "user", "", NULL);
    assert_int_equal(qwick_chat_replace(c, 1, "x", 1, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_string_equal(e.msg, "chat: messages[1].content: must be a string, "
                               "is missing");
    assert_int_equal(qwick_chat_replace(c, 3, "x", 1, &e), -1);
    assert_int_equal(qwick_chat_at(c, 3, &(struct qwick_message){0}, &e), -1);
    assert_int_equal(qwick_chat_rollback(c, 4, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(qwick_chat_length(c), 3);
    assert_int_equal(qwick_chat_rollback(c, 1, &e), 0);
    assert_int_equal(qwick_chat_length(c), 1);
    check_render(c, NULL,
                 "<|im_start|>user\nshort<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(qwick_chat_rollback(c, 0, &e), 0);
    char *text;
    size_t n;
    assert_int_equal(qwick_chat_render(c, eng, NULL, &text, &n, &e), -1);
    assert_string_equal(e.msg, "chat: messages: must hold at least one "
                               "message, is empty");
    qwick_chat_free(c);
}

static void flags_of_the_json_win_over_options(void **state)
{
    static const char user[] = "<|im_start|>user\nx<|im_end|>\n";
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *c = create();
    char want[200];
    assert_int_equal(qwick_chat_think(c), QWICK_THINK_AUTO);
    add_json(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                "\"enable_thinking\":null,\"add_generation_prompt\":null}");
    assert_int_equal(qwick_chat_think(c), QWICK_THINK_AUTO);
    o.think = QWICK_THINK_OFF;
    snprintf(want, sizeof want,
             "%s<|im_start|>assistant\n<think>\n\n</think>\n\n", user);
    check_render(c, &o, want);
    add_json(c, "{\"messages\":[],\"enable_thinking\":true}");
    assert_int_equal(qwick_chat_think(c), QWICK_THINK_ON);
    snprintf(want, sizeof want, "%s<|im_start|>assistant\n", user);
    check_render(c, &o, want);
    add_json(c, "{\"messages\":[],\"enable_thinking\":false,"
                "\"add_generation_prompt\":false}");
    assert_int_equal(qwick_chat_think(c), QWICK_THINK_OFF);
    check_render(c, &o, user);
    qwick_chat_free(c);
}

/* A refused text does not change the conversation. */
static void bad_json_is_refused_by_name(void **state)
{
    static const struct {
        const char *json, *msg;
    } cases[] = {
        {"", "chat: "},
        {"[", "chat: "},
        {"[] x", "chat: offset 3: text after the value"},
        {"[{\"role\":\"user\",\"role\":\"user\"}]", "chat: offset"},
        {"[{\"role\":\"\xff\"}]", "chat: offset"},
        {"{}", "chat: must be an array of messages"},
        {"5", "chat: must be an array of messages"},
        {"{\"messages\":{}}", "chat: must be an array of messages"},
        {"[\"hi\"]", "chat: messages[1]: must be an object, is a string"},
        {"[{\"role\":\"user\"},{\"content\":\"x\"}]",
         "chat: messages[2].role: must be a string, is missing"},
        {"[{\"role\":7}]", "chat: messages[1].role: must be a string, is a "
                           "number"},
        {"[{\"role\":\"user\",\"content\":5}]",
         "chat: messages[1].content: must be a string, a list of text parts "
         "or null, is a number"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},"
         "\"y\"]}]",
         "chat: messages[1].content[1]: must be an object, is a string"},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]",
         "chat: messages[1].content[0].type: must be a string, is missing"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]",
         "chat: messages[1].content[0].type: must be \"text\", is "
         "\"image_url\""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
         "chat: messages[1].content[0].text: must be a string, is missing"},
        {"{\"messages\":[],\"tools\":{\"a\":1}}",
         "chat: tools: must be an array or null, is an object"},
        {"{\"messages\":[],\"enable_thinking\":1}",
         "chat: enable_thinking: must be true, false or null"},
        {"{\"messages\":[],\"add_generation_prompt\":\"x\"}",
         "chat: add_generation_prompt: must be true, false or null"},
    };
    struct qwick_chat *c = create();
    add(c, "user", "x");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwick_err e = {0};
        const char *json = cases[i].json;
        assert_int_equal(qwick_chat_add_json(c, json, strlen(json), &e), -1);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        if (strncmp(e.msg, cases[i].msg, strlen(cases[i].msg)) != 0)
            fail_msg("%s: got %s", json, e.msg);
        assert_int_equal(qwick_chat_add_json(c, json, strlen(json), NULL), -1);
        assert_int_equal(qwick_chat_length(c), 1);
    }
    check_render(c, NULL,
                 "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
    qwick_chat_free(c);
}

static int fill(struct qwick_chat *c, struct qwick_err *e)
{
    static const char json[] =
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
        "\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]";
    char text[] = "yes", thinking[] = "well";
    const struct qwick_result r = {
        .text = text, .n_text = 3, .thinking = thinking, .n_thinking = 4};
    return qwick_chat_add_json(c, json, sizeof json - 1, e) ||
                   qwick_chat_add_answer(c, &r, e) ||
                   qwick_chat_add(c, "user", "b", 1, e) ||
                   qwick_chat_replace(c, 3, "c", 1, e)
               ? -1
               : 0;
}

/* Fails each allocation in turn, as often as there is one. */
static void conversations_survive_failed_allocations(void **state)
{
    if (!CAN_FAIL) {
        print_message("SKIP: the sanitizer has its own allocator\n");
        return;
    }
    int rc = -1;
    long k;
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, &(int32_t){1}, 1, NULL), 0);
    for (k = 1; rc; k++) {
        struct qwick_err e = {0};
        struct qwick_chat *c = NULL;
        int32_t *ids = NULL, *more = NULL;
        size_t n;
        bool in_think;
        fail_in = k;
        rc = qwick_chat_create(&c, &e) || fill(c, &e) ||
             qwick_chat_encode(c, eng, NULL, "x", 1, &ids, &n, &in_think, &e) ||
             qwick_chat_continue(c, s, NULL, "x", 1, &more, &n, &in_think, &e);
        bool failed = fail_in == 0;
        fail_in = 0;
        assert_int_equal(rc != 0, failed);
        if (rc) {
            assert_int_equal(e.code, QWICK_ERR_MEMORY);
            assert_null(more);
        } else {
            assert_int_equal(qwick_chat_length(c), 4);
            check_texts(c, 3, "user", "c", NULL);
        }
        free(ids);
        free(more);
        qwick_chat_free(c);
    }
    qwick_session_free(s);
    assert_true(k > 20);
}

/* ---- sessions ---- */

static const float *logits_of(const struct qwick_session *s)
{
    const float *v = qwick_session_logits(s);
    assert_non_null(v);
    return v;
}

/* Make the session follow the conversation, and check that it then equals a new
 * session over the whole prompt. Returns how many tokens stayed. */
static size_t check_sync(struct qwick_session *s, const struct qwick_chat *c,
                         const struct qwick_chat_options *o)
{
    struct qwick_session *fresh = open_session(eng);
    size_t n_old, n, n_fresh, same = 0;
    const int32_t *now = qwick_session_tokens(s, &n_old), *want;
    int32_t *old = malloc((n_old + 1) * sizeof *old);
    bool in_think;
    assert_non_null(old);
    if (n_old)
        memcpy(old, now, n_old * sizeof *old);
    assert_int_equal(qwick_chat_sync(c, s, o, &in_think, NULL), 0);
    assert_int_equal(qwick_chat_sync(c, fresh, o, &in_think, NULL), 0);
    now = qwick_session_tokens(s, &n);
    want = qwick_session_tokens(fresh, &n_fresh);
    assert_int_equal(n, n_fresh);
    assert_memory_equal(now, want, n * sizeof *now);
    assert_memory_equal(logits_of(s), logits_of(fresh),
                        qwick_engine_info(eng)->vocab_size * sizeof(float));
    while (same < n_old && same < n - 1 && old[same] == now[same])
        same++;
    assert_int_equal(qwick_session_cached(s), same);
    assert_int_equal(qwick_session_cached(fresh), 0);
    qwick_session_free(fresh);
    free(old);
    return same;
}

/* Earlier thinking is dropped from the prompt, and so from the session. */
static void a_session_follows_added_turns(void **state)
{
    static const enum qwick_think thinks[] = {QWICK_THINK_AUTO, QWICK_THINK_ON,
                                              QWICK_THINK_OFF};
    for (size_t i = 0; i < 3; i++) {
        struct qwick_chat_options turn = qwick_chat_defaults(), whole = turn;
        struct qwick_session *s = open_session(eng);
        struct qwick_chat *c = create();
        turn.think = whole.think = thinks[i];
        whole.add_generation_prompt = false;
        add(c, "system", "be brief");
        size_t system = check_sync(s, c, &turn);
        add(c, "user", "how many files are here?");
        check_sync(s, c, &turn);
        size_t first = qwick_session_length(s);
        add_answer(c, "wc counts lines", "ls | wc -l");
        /* the thinking of the last answer is in the prompt */
        assert_true(check_sync(s, c, &whole) >= first - 4);
        size_t with_thinking = qwick_session_length(s);
        add(c, "user", "and hidden ones?");
        size_t kept = check_sync(s, c, &turn);
        assert_true(kept > system && kept < with_thinking);
        assert_true(kept <= first);
        add_answer(c, NULL, "ls -a | wc -l");
        check_sync(s, c, &whole);
        add(c, "user", "sorted by time");
        /* tokens before the thinking were never evaluated again */
        assert_true(check_sync(s, c, &turn) > kept);
        qwick_session_free(s);
        qwick_chat_free(c);
    }
}

static void a_session_follows_undone_turns(void **state)
{
    struct qwick_session *s = open_session(eng);
    struct qwick_chat *c = create();
    add(c, "user", "list the files");
    add_answer(c, NULL, "ls");
    check_sync(s, c, NULL);
    size_t n = qwick_chat_length(c);
    add(c, "user", "by size");
    add_answer(c, "-S", "ls -S");
    add(c, "user", "reversed");
    check_sync(s, c, NULL);
    assert_int_equal(qwick_chat_rollback(c, n, NULL), 0);
    check_sync(s, c, NULL);
    add(c, "user", "by time");
    assert_true(check_sync(s, c, NULL) > 0);
    assert_int_equal(qwick_chat_replace(c, 2, "by name", 7, NULL), 0);
    check_sync(s, c, NULL);
    assert_int_equal(qwick_chat_rollback(c, 0, NULL), 0);
    add(c, "user", "something else");
    check_sync(s, c, NULL);
    qwick_session_free(s);
    qwick_chat_free(c);
}

/* The answer that a new session gives to the same prompt. */
static void fresh_answer(const struct qwick_chat *c,
                         const struct qwick_chat_options *o,
                         struct qwick_generate_options g,
                         struct qwick_result *r)
{
    struct qwick_session *s = open_session(eng);
    int32_t *ids;
    size_t n;
    assert_int_equal(
        qwick_chat_encode(c, eng, o, NULL, 0, &ids, &n, &g.in_think, NULL), 0);
    assert_int_equal(qwick_generate(s, ids, n, &g, r, NULL), 0);
    assert_int_equal(r->n_cached, 0);
    free(ids);
    qwick_session_free(s);
}

static void answers_become_turns(void **state)
{
    static const char *const questions[] = {
        "list all listening tcp ports", "find large files", "show disk usage"};
    static const enum qwick_think thinks[] = {QWICK_THINK_AUTO,
                                              QWICK_THINK_OFF};
    for (size_t i = 0; i < 2; i++) {
        struct qwick_chat_options o = qwick_chat_defaults();
        struct qwick_generate_options g = qwick_generate_defaults();
        struct qwick_session *s = open_session(eng);
        struct qwick_chat *c = create();
        o.think = thinks[i];
        own_sampling(&g)->temperature = 0.8f;
        own_sampling(&g)->seed = 11;
        g.max_tokens = 40;
        for (size_t k = 0; k < 3; k++) {
            struct qwick_result r, want;
            add(c, "user", questions[k]);
            fresh_answer(c, &o, g, &want);
            assert_int_equal(qwick_chat_generate(c, s, &o, &g, &r, NULL), 0);
            assert_int_equal(r.n_tokens, want.n_tokens);
            assert_memory_equal(r.tokens, want.tokens,
                                r.n_tokens * sizeof *r.tokens);
            assert_true(k == 0 || r.n_cached > 0);
            assert_int_equal(qwick_chat_length(c), 2 * k + 2);
            check_texts(c, 2 * k + 1, "assistant", r.text, r.thinking);
            qwick_result_free(&r);
            qwick_result_free(&want);
        }
        check_sync(s, c, &o);
        qwick_session_free(s);
        qwick_chat_free(c);
    }
}

/* A session that has the first n bytes of a text goes on with the ids of the
 * whole text. */
static void check_continue(const struct qwick_chat *c,
                           const struct qwick_chat_options *o, const char *text,
                           size_t n)
{
    struct qwick_session *s = open_session(eng);
    int32_t *old, *want, *ids;
    size_t n_old, n_want, n_ids;
    bool in_think;
    assert_int_equal(qwick_tokenize(eng, text, n, true, &old, &n_old, NULL), 0);
    assert_int_equal(
        qwick_tokenize(eng, text, strlen(text), true, &want, &n_want, NULL), 0);
    if (n_old)
        assert_int_equal(qwick_session_sync(s, old, n_old, NULL), 0);
    assert_int_equal(
        qwick_chat_continue(c, s, o, NULL, 0, &ids, &n_ids, &in_think, NULL),
        0);
    assert_int_equal(n_ids, n_want);
    assert_memory_equal(ids, want, n_ids * sizeof *ids);
    free(old);
    free(want);
    free(ids);
    qwick_session_free(s);
}

static void a_session_of_unknown_turns_goes_on(void **state)
{
    static const char whole[] =
        "<|im_start|>user\nhow many?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\nls | wc -l<|im_end|>\n"
        "<|im_start|>user\nSTAND-IN ANSWER<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    const char *end = strstr(whole, "-l<|im_end|>") + 2;
    const char *next = strstr(whole, "<|im_start|>user\nSTAND");
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *c = create();
    struct qwick_session *s = open_session(eng);
    struct qwick_err e;
    int32_t *ids;
    size_t n;
    bool in_think;
    o.think = QWICK_THINK_OFF;
    assert_int_equal(
        qwick_chat_continue(c, s, &o, NULL, 0, &ids, &n, &in_think, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    add(c, "user", "STAND-IN ANSWER");
    /* cut; ended by the model; without tokens */
    check_continue(c, &o, whole, (size_t)(end - whole));
    check_continue(c, &o, whole, (size_t)(end - whole) + strlen("<|im_end|>"));
    check_continue(c, &o, next, 0);
    qwick_session_free(s);
    qwick_chat_free(c);
}

static void failed_answers_are_no_turns(void **state)
{
    struct qwick_generate_options g = qwick_generate_defaults();
    struct qwick_session *s;
    struct qwick_chat *c = create();
    struct qwick_result r;
    struct qwick_err e;
    const int stop = 1;
    add(c, "user", "list all listening tcp ports");
    assert_int_equal(qwick_session_create(&s, eng, 4, NULL), 0);
    assert_int_equal(qwick_chat_generate(c, s, NULL, &g, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    qwick_result_free(&r);
    qwick_session_free(s);
    s = open_session(eng);
    qwick_session_interrupt(s, &stop);
    assert_int_equal(qwick_chat_generate(c, s, NULL, &g, &r, &e), 0);
    assert_int_equal(r.finish, QWICK_FINISH_INTERRUPTED);
    qwick_result_free(&r);
    assert_int_equal(qwick_chat_length(c), 1);
    qwick_session_free(s);
    qwick_chat_free(c);
}

/* The JSON of a conversation, added to a new one, gives the same JSON. */
static void check_json(const char *in, const char *want)
{
    struct qwick_chat *c = create(), *again = create();
    char *json, *second;
    size_t n, n_second;
    assert_int_equal(qwick_chat_add_json(c, in, strlen(in), NULL), 0);
    assert_int_equal(qwick_chat_json(c, &json, &n, NULL), 0);
    assert_string_equal(json, want);
    assert_int_equal(n, strlen(want));
    assert_int_equal(qwick_chat_add_json(again, json, n, NULL), 0);
    assert_int_equal(qwick_chat_json(again, &second, &n_second, NULL), 0);
    assert_string_equal(second, json);
    free(json);
    free(second);
    qwick_chat_free(c);
    qwick_chat_free(again);
}

static void a_conversation_is_written_as_json(void **state)
{
    check_json("[]", "[]\n");
    check_json("[{\"role\":\"user\",\"content\":\"a\\n\\u00e9\\u0000\"},"
               "{\"role\":\"assistant\",\"content\":\"b\","
               "\"reasoning_content\":\"c\",\"tool_calls\":[{\"id\":1}]}]",
               "[\n{\"role\": \"user\", \"content\": \"a\\n\xc3\xa9\\u0000\"},"
               "\n{\"role\": \"assistant\", \"content\": \"b\", "
               "\"reasoning_content\": \"c\", \"tool_calls\": "
               "[{\"id\": 1}]}\n]\n");
    check_json("[{\"role\":\"developer\",\"content\":[{\"type\":\"text\","
               "\"text\":\"a\"}]},{\"role\":\"developer\",\"content\":\"b\"}]",
               "[\n{\"role\": \"system\", \"content\": [{\"type\": \"text\", "
               "\"text\": \"a\"}]},\n{\"role\": \"system\", \"content\": "
               "\"b\"}\n]\n");
    check_json("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
               "\"enable_thinking\":false,\"tools\":[{\"x\":2}]}",
               "{\"enable_thinking\": false,\n\"tools\": [{\"x\": 2}],\n"
               "\"messages\": [\n{\"role\": \"user\", \"content\": \"a\"}"
               "\n]}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_added_and_read_render_the_same),
        cmocka_unit_test(text_parts_become_one_text),
        cmocka_unit_test(texts_become_utf8_and_may_hold_nul),
        cmocka_unit_test(contents_are_replaced_and_turns_undone),
        cmocka_unit_test(flags_of_the_json_win_over_options),
        cmocka_unit_test(bad_json_is_refused_by_name),
        cmocka_unit_test(conversations_survive_failed_allocations),
        cmocka_unit_test(a_session_follows_added_turns),
        cmocka_unit_test(a_session_follows_undone_turns),
        cmocka_unit_test(answers_become_turns),
        cmocka_unit_test(a_session_of_unknown_turns_goes_on),
        cmocka_unit_test(failed_answers_are_no_turns),
        cmocka_unit_test(a_conversation_is_written_as_json),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
