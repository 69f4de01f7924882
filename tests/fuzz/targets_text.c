/* Tokenizers, chats, templates, and the text of answers. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "engine/generate/stream.h"
#include "file/builtin.h"
#include "file/json.h"
#include "qwick.h"
#include "targets.h"
#include "text/bpe/bpe.h"
#include "text/chat/call_forms.h"
#include "text/chat/harmony.h"
#include "text/chat/tool_calls.h"
#include "text/template/template.h"
#include "text/unicode.h"

/* ---- tokenizer.json, tekken.json ---- */

/* Encode a text, and decode its ids. */
static void use_tokenizer(struct bpe *b)
{
    static const char text[] =
        "the thing: in 3 <think>lines\n\n <|im_end|> 12345 MiXed/\n it'S "
        "\u4E2D\u6587\u30AB\u0301\u200B\xFF\u0645\u0661\u01C5x ";
    for (int special = 0; special < 2; special++) {
        int32_t *ids = NULL;
        size_t n_ids = 0;
        if (bpe_encode(b, text, sizeof text - 1, special, &ids, &n_ids, NULL))
            continue;
        struct bpe_decoder d = {0};
        struct buf out = {0};
        for (size_t i = 0; i < n_ids; i++) {
            CHECK(bpe_has(b, ids[i]) && (size_t)ids[i] < bpe_size(b));
            (void)bpe_decode(b, &d, ids[i], &out);
        }
        (void)bpe_decode_end(&d, &out);
        bpe_decoder_free(&d);
        buf_free(&out);
        free(ids);
    }
    for (int32_t id = -2; id < 300; id++) {
        size_t len;
        CHECK((bpe_token(b, id, &len) != NULL) == bpe_has(b, id));
    }
}

int fuzz_tokenizer(const char *in, size_t n, struct qwick_err *e)
{
    struct bpe *b;
    int rc = bpe_open(&b, "tokenizer.json", in, n, e);
    CHECK((rc == 0) == (b != NULL));
    if (!rc)
        use_tokenizer(b);
    bpe_close(b);
    return rc;
}

int fuzz_tekken(const char *in, size_t n, struct qwick_err *e)
{
    struct bpe *b;
    int rc = bpe_open_tekken(&b, "tekken.json", in, n, e);
    CHECK((rc == 0) == (b != NULL));
    if (!rc)
        use_tokenizer(b);
    bpe_close(b);
    return rc;
}

/* ---- the files beside it ---- */

static const struct json_value *object(const struct json_value *root,
                                       const char *name)
{
    const struct json_value *v = json_get(root, name);
    return json_is(v, JSON_OBJECT) ? v : NULL;
}

/* An object with the contents of the files: config, map and added. Normalized
 * or not, tokens decode to their text. */
int fuzz_beside(const char *in, size_t n, struct qwick_err *e)
{
    struct builtin_file f;
    struct json_doc *doc;
    struct bpe *b;
    if (json_parse(&doc, "beside", in, n, QWICK_ERR_MODEL, e))
        return -1;
    const struct json_value *root = json_root(doc);
    const struct bpe_beside beside = {{"config", object(root, "config")},
                                      {"map", object(root, "map")},
                                      {"added", object(root, "added")}};
    CHECK(builtin_find("tokenizer.json", &f) == 0);
    int rc = bpe_open_beside(&b, "tokenizer.json", (const char *)f.data, f.size,
                             &beside, e);
    for (int32_t id = 0; !rc && (size_t)id < bpe_size(b); id++) {
        size_t len, n_ids = 0;
        int32_t *ids = NULL;
        const char *p = bpe_token(b, id, &len);
        if (!bpe_is_added(b, id))
            continue;
        CHECK(p && bpe_encode(b, p, len, true, &ids, &n_ids, NULL) == 0);
        CHECK(n_ids == 0 || (bpe_has(b, ids[0]) && ids[0] >= 0));
        free(ids);
    }
    if (!rc)
        bpe_close(b);
    json_free(doc);
    return rc;
}

/* ---- texts and ids ---- */

/* The built-in model without its weights. */
static struct qwick_engine *demo(void)
{
    static struct qwick_engine *eng;
    if (!eng) {
        struct qwick_engine_options o = qwick_engine_defaults();
        struct qwick_err e;
        o.tokenizer_only = true;
        o.threads = 1;
        if (qwick_engine_open(&eng, &o, &e))
            fuzz_fail(__FILE__, __LINE__, e.msg);
    }
    return eng;
}

static void encode(const char *text, size_t n, bool special, int32_t **ids,
                   size_t *n_ids, char **back, size_t *n_back)
{
    CHECK(qwick_tokenize(demo(), text, n, special, ids, n_ids, NULL) == 0);
    CHECK(qwick_detokenize(demo(), *ids, *n_ids, false, back, n_back, NULL) ==
          0);
}

/* Encoding and decoding give the normalised text; again, they change nothing.
 */
int fuzz_tokenize(const char *in, size_t n, struct qwick_err *e)
{
    for (int special = 0; special < 2; special++) {
        int32_t *ids, *again;
        char *back, *twice;
        size_t n_ids, n_back, n_again, n_twice;
        struct buf nfc = {0};
        encode(in, n, special, &ids, &n_ids, &back, &n_back);
        CHECK(unicode_nfc(&nfc, in, n, e) == 0);
        /* an added token ends a normalised piece */
        if (!special)
            CHECK(nfc.len == n_back &&
                  (!n_back || !memcmp(nfc.data, back, n_back)));
        encode(back, n_back, special, &again, &n_again, &twice, &n_twice);
        if (!special)
            CHECK(n_again == n_ids &&
                  (!n_ids || !memcmp(ids, again, n_ids * sizeof *ids)));
        CHECK(n_twice == n_back && !memcmp(twice, back, n_back));
        buf_free(&nfc);
        free(ids);
        free(again);
        free(back);
        free(twice);
    }
    return 0;
}

/* Ids of two bytes each. The text in one go is that of the pieces. */
int fuzz_detokenize(const char *in, size_t n, struct qwick_err *e)
{
    size_t n_ids = n / 2, n_text, k;
    int32_t *ids = malloc((n_ids + 1) * sizeof *ids);
    char *text;
    CHECK(ids);
    for (size_t i = 0; i < n_ids; i++)
        ids[i] = (int32_t)((unsigned char)in[2 * i] |
                           (unsigned)(unsigned char)in[2 * i + 1] << 8) %
                 6000;
    if (qwick_detokenize(demo(), ids, n_ids, false, &text, &n_text, e)) {
        CHECK(!text);
        free(ids);
        return -1;
    }
    CHECK(text[n_text] == '\0');
    struct qwick_detokenizer *d;
    struct buf b = {0};
    const char *part;
    CHECK(qwick_detokenizer_create(&d, demo(), false, e) == 0);
    for (size_t i = 0; i <= n_ids; i++) {
        if (i < n_ids)
            CHECK(qwick_detokenizer_add(d, ids[i], &part, &k, e) == 0);
        else
            CHECK(qwick_detokenizer_flush(d, &part, &k, e) == 0);
        /* what comes out is whole characters */
        for (size_t at = 0, m; at < k; at += m)
            CHECK((m = utf8_decode(part + at, k - at, NULL, NULL)) > 0);
        CHECK(buf_append(&b, part, k) == 0);
    }
    /* whole characters of the exact bytes; others became U+FFFD */
    bool valid = true;
    for (size_t at = 0, m; valid && at < n_text; at += m)
        valid = (m = utf8_decode(text + at, n_text - at, NULL, NULL)) > 0;
    if (valid)
        CHECK(b.len == n_text && (!n_text || !memcmp(b.data, text, n_text)));
    buf_free(&b);
    qwick_detokenizer_free(d);
    free(text);
    free(ids);
    return 0;
}

/* ---- chats and templates ---- */

int fuzz_chat(const char *in, size_t n, struct qwick_err *e)
{
    static const struct qwick_chat_options o = {.size = sizeof o,
                                                .add_generation_prompt = true,
                                                .think = QWICK_THINK_AUTO};
    struct qwick_chat *c;
    char *text = NULL;
    size_t n_text, n_ids;
    int32_t *ids;
    bool in_think;
    CHECK(qwick_chat_create(&c, e) == 0);
    int rc = qwick_chat_add_json(c, in, n, e) ||
                     qwick_chat_render(c, demo(), &o, &text, &n_text, e)
                 ? -1
                 : 0;
    if (!rc) {
        CHECK(text[n_text] == '\0');
        CHECK(qwick_chat_encode(c, demo(), &o, "x", 1, &ids, &n_ids, &in_think,
                                NULL) == 0);
        free(ids);
    }
    free(text);
    qwick_chat_free(c);
    return rc;
}

int fuzz_template(const char *in, size_t n, struct qwick_err *e)
{
    static const char json[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be "
        "brief\"},{\"role\":"
        "\"user\",\"content\":\"h\\u00e9 <|im_end|>\"},{\"role\":\"assistant\","
        "\"content\":\"<think>\\nhm</"
        "think>yes\",\"tool_calls\":[{\"name\":\"f\","
        "\"arguments\":{\"a\":[1,2.5,null]}}]}],\"tools\":[{\"name\":\"f\"}],"
        "\"add_generation_prompt\":true,\"n\":-3,\"x\":1.5,\"d\":{\"k\":[]}}";
    static const struct tm now = {.tm_year = 126, .tm_mday = 1};
    static struct json_doc *doc;
    struct template_var vars[8];
    struct template_result r = {0};
    struct template *t;
    if (!doc)
        CHECK(json_parse(&doc, "vars", json, sizeof json - 1, QWICK_ERR_USAGE,
                         e) == 0);
    const struct json_value *v = json_root(doc);
    for (size_t i = 0; i < v->len; i++)
        vars[i] = (struct template_var){v->keys[i].str, &v->items[i], true};
    if (template_open(&t, "fuzz", in, n, e)) {
        CHECK(!t);
        return -1;
    }
    int rc = template_render(&r, t, vars, v->len, &now, e);
    if (!rc) {
        size_t at = 0;
        for (size_t i = 0; i < r.n_own; i++) {
            CHECK(r.own[i].begin >= at && r.own[i].end > r.own[i].begin);
            at = r.own[i].end;
        }
        CHECK(at <= r.text.len);
    }
    template_result_free(&r);
    template_close(t);
    return rc;
}

/* ---- the text of an answer ---- */

/* Add text in pieces of these sizes, in turn; the released text. */
static bool stream_text(struct buf *out, const char *text, size_t n,
                        size_t first, size_t second, const char *const *stop,
                        size_t n_stop)
{
    struct stream s;
    bool stopped = false;
    size_t from, at = 0;
    stream_init(&s, stop, n_stop, false, NULL);
    for (bool odd = false; at < n && !stopped; odd = !odd) {
        size_t k = odd ? second : first;
        k = k < n - at ? k : n - at;
        CHECK(stream_add(&s, text + at, k, at + k == n, &from, &stopped) == 0);
        CHECK(from <= s.text.len);
        at += k;
    }
    CHECK(buf_append(out, s.text.data, s.text.len) == 0);
    stream_free(&s);
    return stopped;
}

/* The first bytes are sizes and a stop string. However the text is divided, the
 * same bytes are released. */
int fuzz_stream(const char *in, size_t n, struct qwick_err *e)
{
    static const char *const more = "</s>";
    char stop[8] = {0};
    struct buf one = {0}, other = {0};
    (void)e;
    if (n < 10)
        return 0;
    memcpy(stop, in + 2, (size_t)(unsigned char)in[9] % 8);
    const char *const stops[] = {more, stop};
    size_t n_stop = *stop ? 2 : 1, first = 1 + (unsigned char)in[0] % 16,
           second = 1 + (unsigned char)in[1] % 16;
    bool a = stream_text(&one, in + 10, n - 10, n, n, stops, n_stop);
    bool b = stream_text(&other, in + 10, n - 10, first, second, stops, n_stop);
    CHECK(a == b && one.len == other.len &&
          (!one.len || !memcmp(one.data, other.data, one.len)));
    for (size_t at = 0, m; at < one.len; at += m)
        CHECK((m = utf8_decode(one.data + at, one.len - at, NULL, NULL)) > 0);
    buf_free(&one);
    buf_free(&other);
    return 0;
}

/* ---- calls of tools ---- */

/* Read a text in pieces of a size. The calls are bounded by the text. */
static void read_calls(struct tool_calls *c, const char *in, size_t n,
                       size_t piece)
{
    for (size_t at = 0; at < n; at += piece)
        CHECK(tool_calls_feed(c, in + at, n - at < piece ? n - at : piece) ==
              0);
    CHECK(tool_calls_end(c) == 0);
    CHECK(c->n <= n && c->text.len <= n + c->n);
}

/* The first bytes are a form, and the size of pieces. However the text is
 * divided, the same calls are read. A header of messages lies in its text. */
int fuzz_calls(const char *in, size_t n, struct qwick_err *e)
{
    static const char tools[] =
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":"
        "\"integer\"},\"b\":{}}}},{\"name\":\"g\"}]";
    struct json_doc *doc;
    size_t n_forms = 0;
    if (n < 2)
        return 0;
    while (call_form_at(n_forms))
        n_forms++;
    CHECK(json_parse(&doc, "tools", tools, sizeof tools - 1, QWICK_ERR_USAGE,
                     NULL) == 0);
    const struct call_form *form = call_form_at((unsigned char)in[0] % n_forms);
    struct tool_calls a = {.tools = json_root(doc), .form = form}, b = a;
    size_t piece = 1 + (unsigned char)in[1] % 16;
    in += 2;
    n -= 2;
    read_calls(&a, in, n, n ? n : 1);
    read_calls(&b, in, n, piece);
    CHECK(a.n == b.n && a.text.len == b.text.len &&
          (!a.text.len || !memcmp(a.text.data, b.text.data, a.text.len)));
    for (size_t i = 0; i < a.n; i++) {
        struct json_doc *arguments;
        CHECK(json_parse(&arguments, "arguments", a.v[i].arguments.data,
                         a.v[i].arguments.len, QWICK_ERR_USAGE, NULL) == 0);
        CHECK(json_is(json_root(arguments), JSON_OBJECT));
        json_free(arguments);
    }
    struct harmony_header h = harmony_read(in, n);
    CHECK(!h.recipient || (h.recipient >= in && h.n_recipient > 0 &&
                           h.recipient + h.n_recipient <= in + n));
    int rc = 0;
    if (a.error.len)
        rc = err_set(e, QWICK_ERR_USAGE, "%s", a.error.data);
    tool_calls_free(&a);
    tool_calls_free(&b);
    json_free(doc);
    return rc;
}
