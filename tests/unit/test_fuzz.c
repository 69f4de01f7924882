/* Every parser with deterministic mutations of valid inputs. It must return 0
 * and a usable result, or -1 with a code and a message of one line. Meant for
 * SAN=1 builds, which detect memory errors. The time is limited; QWICK_FUZZ_MS
 * sets it, and QWICK_FUZZ_SEED selects other mutations. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "file/checkpoint.h"
#include "file/json.h"
#include "file/safetensors.h"
#include "model/config.h"
#include "qwick.h"
#include "tempdir.h"
#include "text/bpe/bpe.h"
#include "text/chat/call_forms.h"
#include "text/grammar/automaton.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"
#include "text/lark/lark.h"
#include "text/grammar/regex.h"
#include "text/schema/schema.h"
#include "text/tools/tools_grammar.h"

/* ---- mutations ---- */

static uint64_t rng;

static size_t below(size_t n)
{
    /* xorshift64*, Vigna 2016 */
    rng ^= rng >> 12;
    rng ^= rng << 25;
    rng ^= rng >> 27;
    return (size_t)((rng * 0x2545F4914F6CDD1Du) >> 33) % n;
}

static const char *const words[] = {
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "\"\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "\\n",
    "\xEF\xBB\xBF",
    "\xFF",
    "\xC3\xA9",
    "\xF0\x9F\x98\x80",
    "\xED\xA0\x80",
    "0",
    "-1",
    "1e400",
    "0.5",
    "1e-320",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-0",
    "00",
    "1.",
    "//",
    "\"a\":1,",
    "[[[[[[[[",
    "BF16",
    "I64",
    "\"shape\":[0]",
    "<|im_end|>",
    "<think>",
    "</think>",
    "\"role\":\"tool\"",
    "\"tool_calls\":[{}]",
    "\"content\":null",
};
enum { N_WORDS = sizeof words / sizeof *words };

/* Replace [at, at + n) of b. */
static void replace(struct buf *b, size_t at, size_t n, const char *p, size_t m)
{
    struct buf out = {0};
    assert_int_equal(buf_append(&out, b->data, at), 0);
    assert_int_equal(buf_append(&out, p, m), 0);
    assert_int_equal(buf_append(&out, b->data + at + n, b->len - at - n), 0);
    buf_free(b);
    *b = out;
}

static void mutate_once(struct buf *b)
{
    size_t at = below(b->len + 1), n = 0;
    if (b->len - at > 0)
        n = below(b->len - at < 24 ? b->len - at + 1 : 24);
    const char *w = words[below(N_WORDS)];
    switch (below(8)) {
    case 0: /* a bit */
        if (at < b->len)
            b->data[at] = (char)(b->data[at] ^ (1 << below(8)));
        break;
    case 1: /* a byte */
        if (at < b->len)
            b->data[at] = (char)below(256);
        break;
    case 2:
        replace(b, at, n, "", 0);
        break;
    case 3:
        replace(b, at, 0, w, strlen(w));
        break;
    case 4:
        replace(b, at, n, w, strlen(w));
        break;
    case 5: { /* a piece from elsewhere */
        char piece[24];
        size_t from = below(b->len + 1);
        size_t m = b->len - from < sizeof piece ? b->len - from : sizeof piece;
        memcpy(piece, b->data + from, m);
        replace(b, at, 0, piece, m);
        break;
    }
    case 6: { /* another number */
        size_t i = at, k = 0;
        while (i < b->len && (b->data[i] < '0' || b->data[i] > '9'))
            i++;
        while (i + k < b->len && b->data[i + k] >= '0' && b->data[i + k] <= '9')
            k++;
        w = words[23 + below(13)];
        replace(b, i, k, w, strlen(w));
        break;
    }
    default: /* cut off the end */
        if (below(4) == 0)
            replace(b, at, b->len - at, "", 0);
    }
}

/* A mutant of text in memory of its exact size. */
static char *mutant(const char *text, size_t n, size_t *n_out)
{
    struct buf b = {0};
    assert_int_equal(buf_append(&b, text, n), 0);
    for (size_t k = 1 + below(4); k-- > 0;)
        mutate_once(&b);
    char *exact = malloc(b.len ? b.len : 1);
    assert_non_null(exact);
    memcpy(exact, b.data, b.len);
    *n_out = b.len;
    buf_free(&b);
    return exact;
}

/* ---- what every failure must be ---- */

static void check_failure(const struct qwick_err *e, const char *in, size_t n)
{
    size_t len = strlen(e->msg), i = 0, k;
    assert_true(e->code >= QWICK_ERR_RUNTIME && e->code <= QWICK_ERR_MEMORY);
    assert_true(len > 0);
    while (i < len && (k = utf8_decode(e->msg + i, len - i, NULL, NULL)) > 0)
        i += k;
    if (i < len)
        fail_msg("message is no UTF-8: %s", e->msg);
    /* only an escaped newline of the input may break the line */
    if (strchr(e->msg, '\n') && !memchr(in, '\\', n))
        fail_msg("message of several lines: %s", e->msg);
}

/* Run one target on mutants of its seeds until the time is up. */
typedef int (*target_fn)(const char *in, size_t n, struct qwick_err *e);

static void fuzz(const char *name, target_fn target, const struct buf *seeds,
                 size_t n_seeds)
{
    const char *ms = getenv("QWICK_FUZZ_MS"), *seed = getenv("QWICK_FUZZ_SEED");
    double end = clock_ms() + (ms ? atof(ms) : 700);
    size_t rounds = 0, good = 0;
    rng = 0x9E3779B97F4A7C15u ^ (seed ? strtoull(seed, NULL, 10) : 1);
    for (; rounds < 20000 || ms; rounds++) {
        if (clock_ms() > end)
            break;
        const struct buf *s = &seeds[below(n_seeds)];
        size_t n;
        char *in = mutant(s->data, s->len, &n);
        struct qwick_err e = {0};
        if (target(in, n, &e))
            check_failure(&e, in, n);
        else
            good++;
        free(in);
    }
    /* the seeds must lead to both outcomes */
    print_message("%s: %zu mutants, %zu accepted\n", name, rounds, good);
    assert_true(good > 0 && good < rounds);
}

static struct buf text_of(const char *s)
{
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, s), 0);
    return b;
}

/* ---- JSON ---- */

static size_t walk(const struct json_value *v)
{
    size_t n = 1;
    if (v->type == JSON_STRING || v->type == JSON_NUMBER) {
        assert_int_equal(v->str[v->len], 0);
        int64_t i;
        double d;
        (void)json_int(v, INT64_MIN, INT64_MAX, &i);
        (void)json_double(v, &d);
    }
    if (v->type == JSON_ARRAY || v->type == JSON_OBJECT)
        for (size_t i = 0; i < v->len; i++)
            n += walk(&v->items[i]);
    if (v->type == JSON_OBJECT)
        for (size_t i = 0; i < v->len; i++)
            assert_true(json_get_n(v, v->keys[i].str, v->keys[i].len) ==
                        &v->items[i]);
    return n;
}

static int target_json(const char *in, size_t n, struct qwick_err *e)
{
    struct json_doc *doc;
    if (json_parse(&doc, "fuzz", in, n, QWICK_ERR_USAGE, e)) {
        assert_null(doc);
        return -1;
    }
    assert_true(walk(json_root(doc)) > 0);
    /* printed text can be read, and prints equal again */
    struct buf once = {0}, twice = {0};
    struct json_doc *again;
    assert_int_equal(json_dump_python(&once, json_root(doc)), 0);
    /* Python's names for values that JSON lacks */
    if (!memmem(once.data, once.len, "Infinity", 8)) {
        if (json_parse(&again, "again", once.data, once.len, QWICK_ERR_USAGE,
                       e))
            fail_msg("%s: %s", e->msg, once.data);
        assert_int_equal(json_dump_python(&twice, json_root(again)), 0);
        assert_int_equal(once.len, twice.len);
        assert_memory_equal(once.data, twice.data, once.len);
        json_free(again);
    }
    buf_free(&once);
    buf_free(&twice);
    json_free(doc);
    return 0;
}

static void fuzz_json(void **state)
{
    struct buf seeds[] = {
        text_of("{\"a\": [1, 2.5, -3e10, true, null], \"b\": {\"\\u00e9\": "
                "\"x\\n\\ud83d\\ude00\", \"\": \"\"}, \"c\": [[[]]]}"),
        text_of("\xEF\xBB\xBF [ \"\xF0\x9F\x98\x80\" , 12345678901234567890 ,"
                " {} ] \n"),
        text_of("{\"k\":\"v\",\"k2\":[{\"k\":\"v\"},{\"k\":0.1}]}"),
    };
    fuzz("json", target_json, seeds, 3);
    for (size_t i = 0; i < 3; i++)
        buf_free(&seeds[i]);
}

/* ---- safetensors ---- */

static volatile unsigned sink;

static int target_safetensors(const char *in, size_t n, struct qwick_err *e)
{
    struct st_set *set;
    temp_write("fuzz.safetensors", in, n);
    if (st_open_file(&set, temp_path("fuzz.safetensors"), e)) {
        assert_null(set);
        return -1;
    }
    size_t total = 0;
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        size_t bytes = dtype_bytes(t->dtype);
        assert_true(t->rank <= ST_MAX_RANK);
        for (size_t k = 0; k < t->rank; k++)
            bytes *= t->shape[k];
        assert_int_equal(bytes, t->n_bytes);
        if (bytes)
            sink += t->data[0] + t->data[bytes - 1];
        total += bytes;
        if (strlen(t->name) == t->name_len)
            assert_true(st_find(set, t->name) == t);
    }
    assert_true(total <= n);
    st_close(set);
    return 0;
}

/* Keep the length of the header right, so that mutants reach the other
 * checks. */
static int target_header(const char *in, size_t n, struct qwick_err *e)
{
    struct buf b = {0};
    char data[64] = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(buf_putc(&b, (char)(n >> 8 * i)), 0);
    assert_int_equal(buf_append(&b, in, n), 0);
    assert_int_equal(buf_append(&b, data, 28), 0);
    int rc = target_safetensors(b.data, b.len, e);
    buf_free(&b);
    return rc;
}

static void fuzz_safetensors(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"BF16\","
        "\"shape\":[2,3],\"data_offsets\":[0,12]},\"b\":{\"dtype\":\"F32\","
        "\"shape\":[4],\"data_offsets\":[12,28]},\"c\":{\"dtype\":\"F16\","
        "\"shape\":[0],\"data_offsets\":[28,28]}}   ";
    struct buf seed = text_of(header);
    fuzz("safetensors header", target_header, &seed, 1);
    struct buf file = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(buf_putc(&file, (char)(seed.len >> 8 * i)), 0);
    assert_int_equal(buf_append(&file, seed.data, seed.len), 0);
    for (int i = 0; i < 28; i++)
        assert_int_equal(buf_putc(&file, (char)i), 0);
    fuzz("safetensors file", target_safetensors, &file, 1);
    buf_free(&seed);
    buf_free(&file);
}

/* ---- tokenizer ---- */

/* The letter that GPT-2's tables write for a byte. */
static uint32_t byte_letter(unsigned c)
{
    uint32_t other = 256;
    for (unsigned b = 0;; b++) {
        bool shown =
            (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == c)
            return shown ? b : other;
        other += !shown;
    }
}

static struct buf tiny_tokenizer(void)
{
    struct buf b = {0};
    int rc = buf_puts(
        &b,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
        "\"added_tokens\":[{\"id\":260,\"content\":\"<|im_end|>\","
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":true},{\"id\":261,\"content\":"
        "\"<think>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":false}],\"normalizer\":{\"type\":"
        "\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":"
        "[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|"
        "'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+"
        "(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":"
        "false,\"use_regex\":false}]},\"post_processor\":{\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,"
        "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
        "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
        "\"vocab\":{");
    for (unsigned c = 0; c < 256 && !rc; c++) {
        char s[4];
        size_t n = utf8_encode(byte_letter(c), s);
        rc = buf_json_string(&b, s, n) || buf_printf(&b, ":%u,", c);
    }
    rc = rc || buf_puts(&b, "\"th\":256,\"the\":257,\"in\":258,\"\u0120the\":"
                            "259},\"merges\":[[\"t\",\"h\"],[\"th\",\"e\"],"
                            "[\"i\",\"n\"],[\"\u0120\",\"the\"]]}}");
    assert_int_equal(rc, 0);
    return b;
}

static int target_bpe(const char *in, size_t n, struct qwick_err *e)
{
    struct bpe *b;
    if (bpe_open(&b, "tokenizer.json", in, n, e)) {
        assert_null(b);
        return -1;
    }
    /* encoding and decoding gives the text back */
    static const char text[] = "the thing: in 3 <think>lines\n\n <|im_end|> ";
    for (int special = 0; special < 2; special++) {
        int32_t *ids = NULL;
        size_t n_ids = 0;
        struct buf back = {0};
        assert_int_equal(
            bpe_encode(b, text, sizeof text - 1, special, &ids, &n_ids, NULL),
            0);
        for (size_t i = 0; i < n_ids; i++) {
            size_t len;
            assert_true(bpe_has(b, ids[i]));
            assert_true((size_t)ids[i] < bpe_size(b));
            const char *p = bpe_token(b, ids[i], &len);
            assert_int_equal(buf_append(&back, p, len), 0);
        }
        assert_int_equal(back.len, sizeof text - 1);
        assert_memory_equal(back.data, text, back.len);
        buf_free(&back);
        free(ids);
    }
    for (int32_t id = -2; id < 300; id++) {
        size_t len;
        assert_true((bpe_token(b, id, &len) != NULL) == bpe_has(b, id));
        (void)bpe_is_special(b, id);
        (void)bpe_is_added(b, id);
    }
    bpe_close(b);
    return 0;
}

static void fuzz_tokenizer(void **state)
{
    struct buf seed = tiny_tokenizer();
    struct qwick_err e;
    assert_ok(target_bpe(seed.data, seed.len, &e), &e);
    fuzz("tokenizer.json", target_bpe, &seed, 1);
    buf_free(&seed);
}

/* ---- config ---- */

static struct checkpoint *config_ck;

static void is_affine(struct quant_params p)
{
    assert_true(p.bits >= 2 && p.bits <= 8 && p.bits != 7);
    assert_true(p.group == 32 || p.group == 64 || p.group == 128);
}

/* Check that kernels support all parameters, and that each module is found. */
static void use_quant(const struct quant *q)
{
    assert_true((q->key != NULL) == (q->all.bits != 0));
    if (q->key)
        is_affine(q->all);
    for (size_t i = 0; i < q->n; i++) {
        const struct quant_override *o = &q->v[i];
        if (o->params.bits)
            is_affine(o->params);
        assert_int_equal(o->module[o->len], 0);
        if (strlen(o->module) == o->len)
            assert_int_equal(quant_find(q, o->module).bits, o->params.bits);
    }
}

static int use_config(struct qwick_err *e)
{
    struct config c;
    if (config_load(&c, config_ck, e)) {
        assert_null(c.layers);
        assert_null(c.quant.v);
        return -1;
    }
    use_quant(&c.quant);
    assert_true(c.n_layers > 0 && c.n_heads % c.n_kv_heads == 0);
    assert_true(c.n_stop_ids <= CONFIG_MAX_STOP_IDS);
    for (size_t i = 0; i < c.n_layers; i++)
        assert_true(c.layers[i].window > 0 && c.layers[i].rope < c.n_ropes);
    if (c.head_dim <= 4096) {
        float *inv = malloc(c.head_dim / 2 * sizeof *inv);
        assert_non_null(inv);
        config_rope_frequencies(&c.ropes[0], false, inv);
        for (size_t i = 0; i < c.head_dim / 2; i++)
            assert_true(inv[i] >= 0 && inv[i] <= 1);
        free(inv);
    }
    config_free(&c);
    return 0;
}

static int target_config(const char *in, size_t n, struct qwick_err *e)
{
    temp_write("config.json", in, n);
    return use_config(e);
}

static int target_generation(const char *in, size_t n, struct qwick_err *e)
{
    temp_write("generation_config.json", in, n);
    return use_config(e);
}

static void fuzz_config(void **state)
{
#define FIELDS                                                              \
    "\"model_type\": \"qwen3\", \"hidden_act\": \"silu\", \"vocab_size\": " \
    "320, \"hidden_size\": 64, \"intermediate_size\": 160, "                \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, "                \
    "\"num_key_value_heads\": 2, \"head_dim\": 16, "                        \
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-06, "           \
    "\"tie_word_embeddings\": true, \"eos_token_id\": [1, 2], "
    struct buf seeds[] = {
        text_of("{" FIELDS "\"rope_theta\": 1e6, \"rope_scaling\": {\"type\": "
                "\"yarn\", \"factor\": 4.0, \"beta_fast\": 32, \"beta_slow\": "
                "1, \"original_max_position_embeddings\": 64}, "
                "\"sliding_window\": 8, \"use_sliding_window\": true, "
                "\"max_window_layers\": 1}"),
        text_of("{" FIELDS "\"rope_parameters\": {\"rope_theta\": 10000.0, "
                "\"rope_type\": \"linear\", \"factor\": 2}, \"layer_types\": "
                "[\"full_attention\", \"full_attention\", "
                "\"full_attention\"]}"),
        text_of("{" FIELDS "\"rope_theta\": 1e6, \"quantization\": {"
                "\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\", "
                "\"lm_head\": {\"group_size\": 32, \"bits\": 8}, "
                "\"model.layers.0.mlp.up_proj\": false, \"model.layers.1."
                "mlp.up_proj\": true}, \"quantization_config\": {\"bits\": "
                "4, \"group_size\": 64, \"model.layers.0.mlp.up_proj\": "
                "false, \"lm_head\": {\"group_size\": 32, \"bits\": 8}}}"),
    };
    struct buf generation =
        text_of("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, "
                "\"top_p\": 0.95, \"min_p\": 0, \"eos_token_id\": [1, 2]}");
    assert_int_equal(checkpoint_open(&config_ck, temp_dir, NULL), 0);
    struct qwick_err e;
    for (size_t i = 0; i < 3; i++)
        assert_ok(target_config(seeds[i].data, seeds[i].len, &e), &e);
    fuzz("config.json", target_config, seeds, 3);
    temp_write("config.json", seeds[0].data, seeds[0].len);
    fuzz("generation_config.json", target_generation, &generation, 1);
    checkpoint_close(config_ck);
    buf_free(&seeds[0]);
    buf_free(&seeds[1]);
    buf_free(&seeds[2]);
    buf_free(&generation);
}

/* ---- chats ---- */

static struct qwick_engine *chat_engine;

static int target_chat(const char *in, size_t n, struct qwick_err *e)
{
    static const struct qwick_chat_options o = {.size = sizeof(o),
                                                .add_generation_prompt = true,
                                                .think = QWICK_THINK_AUTO};
    char *text, *back;
    size_t n_text, n_ids, n_back;
    struct qwick_chat *c;
    assert_int_equal(qwick_chat_create(&c, e), 0);
    if (qwick_chat_add_json(c, in, n, e)) {
        assert_int_equal(qwick_chat_length(c), 0);
        qwick_chat_free(c);
        return -1;
    }
    if (qwick_chat_render(c, chat_engine, &o, &text, &n_text, e)) {
        assert_null(text);
        assert_int_equal(n_text, 0);
        qwick_chat_free(c);
        return -1;
    }
    assert_non_null(text);
    assert_int_equal(text[n_text], 0);
    free(text);
    int32_t *ids;
    bool in_think;
    assert_int_equal(qwick_chat_encode(c, chat_engine, &o, "x", 1, &ids, &n_ids,
                                       &in_think, NULL),
                     0);
    qwick_chat_free(c);
    assert_int_equal(
        qwick_detokenize(chat_engine, ids, n_ids, false, &back, &n_back, NULL),
        0);
    assert_true(n_back > 0 && back[n_back - 1] == 'x');
    free(back);
    free(ids);
    return 0;
}

static void fuzz_chat(void **state)
{
    struct buf seeds[] = {
        text_of("[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":"
                "\"user\",\"content\":\"hi <|im_end|>\"},{\"role\":"
                "\"assistant\",\"content\":\"<think>\\nhm\\n</think>\\n\\n"
                "yes\",\"reasoning_content\":\"so\"},{\"role\":\"user\","
                "\"content\":[{\"type\":\"text\",\"text\":\"more\"},"
                "{\"text\":\"still\",\"type\":\"text\"}]}]"),
        text_of("{\"messages\":[{\"role\":\"user\",\"content\":\"w?\"},"
                "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":"
                "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                "\"arguments\":{\"a\":[1,2.5,\"\\u00e9\"]}}},{\"name\":\"g\","
                "\"arguments\":\"{}\"}]},{\"role\":\"tool\",\"content\":"
                "\"3\"},{\"role\":\"tool\",\"content\":\"4\"}],\"tools\":"
                "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                "\"parameters\":{\"x\":1e16}}}],\"add_generation_prompt\":"
                "true,\"enable_thinking\":false}"),
    };
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_err e;
    o.tokenizer_only = true;
    o.threads = 1;
    assert_ok(qwick_engine_open(&chat_engine, &o, &e), &e);
    for (size_t i = 0; i < 2; i++)
        assert_ok(target_chat(seeds[i].data, seeds[i].len, &e), &e);
    fuzz("chat", target_chat, seeds, 2);
    qwick_engine_close(chat_engine);
    buf_free(&seeds[0]);
    buf_free(&seeds[1]);
}

/* ---- constraints ---- */

static enum { REGEX, GBNF, LARK, SCHEMA, TOOLS, TOOLS_AS_XML } grammar_kind;

static int compile_grammar(struct grammar *g, const char *in, size_t n,
                           uint32_t *root, struct qwick_err *e)
{
    if (grammar_kind == SCHEMA)
        return schema_compile(g, in, n, NULL, root, e);
    if (grammar_kind == TOOLS || grammar_kind == TOOLS_AS_XML) {
        const struct tools_options o = {
            .form = call_form_named(grammar_kind == TOOLS ? "qwen"
                                                          : "qwen-coder")};
        return tools_compile(g, in, n, &o, root, e);
    }
    if (grammar_kind == GBNF) {
        *root = gbnf_compile(g, in, n);
    } else if (grammar_kind == LARK) {
        *root = lark_compile(g, in, n);
    } else {
        *root = grammar_rule(g, "root", 4);
        grammar_define(g, *root, regex_compile(g, NULL, in, n, REGEX_WHOLE));
    }
    return grammar_error(g, e);
}

/* A tokenizer that has a token for texts of any length. */
static int32_t find_token(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    (void)text;
    return (int32_t)(n % 1000);
}

/* Every state that a text reaches can be completed: from each one, some byte
 * leads on, or the text may end. */
static int target_grammar(const char *in, size_t n, struct qwick_err *e)
{
    struct grammar *g;
    struct automaton *a;
    uint32_t root;
    assert_int_equal(grammar_create(&g, "G", e), 0);
    grammar_set_tokens(g, 1000, find_token, NULL);
    int rc = compile_grammar(g, in, n, &root, e) ||
             grammar_finish(g, root, e) || automaton_create(&a, g, e);
    grammar_free(g);
    if (rc)
        return -1;
    uint32_t s = automaton_start(a);
    for (int i = 0; i < 20 && !automaton_is_final(a, s); i++) {
        unsigned char bytes[256], byte = (unsigned char)below(256);
        automaton_bytes(a, s, bytes);
        bool any = automaton_accepts(a, s);
        for (size_t k = 0; k < 256; k++)
            any |= bytes[k] != 0;
        assert_true(any);
        while (!bytes[byte])
            byte++; /* wraps round */
        s = automaton_advance(a, s, byte);
        if (automaton_error(a, NULL))
            break; /* too ambiguous */
        assert_int_not_equal(s, AUTOMATON_DEAD);
    }
    automaton_free(a);
    return 0;
}

static void fuzz_constraints(void **state)
{
    struct buf regex[] = {
        text_of("(ab|[^c-f\\d]{2,5}?)*x+(?:y|\\u00e9)\\w?|^\\x41{3}$"),
        text_of("[a-z]+(, [a-z]+){0,3}\\.")};
    struct buf gbnf[] = {
        text_of("root ::= \"[\" item (\",\" item)* \"]\" # c\n"
                "item ::= [a-z^\\]]{1,3} | root | (\n\"x\" | .)+ | !<[5]> "
                "<think>\n"),
        text_of("root ::= a? b\na ::= \"\\u00e9\" a | \"\"\nb ::= a \"z\"")};
    struct buf lark[] = {
        text_of("// c\nstart: a | start \"+\" a -> b\n  | %json {\"type\":"
                "\"null\"}\na: [\"x\"i] (/[a-z]+\\/./s | INT)~1..2 \"y\"*\n"
                "%import common.INT\n%ignore /\\s+/"),
        text_of("start.2: A{2,3} B?\n?A: \"a\"..\"f\" | B\nB: "
                "\"\\u00e9\\x41\"\n%import common (WS -> W, CNAME)\n"
                "%ignore W | CNAME")};
    struct buf schema[] = {
        text_of("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
                "\"string\",\"maxLength\":5,\"pattern\":\"^[ab]\"},\"b\":"
                "{\"type\":\"integer\",\"minimum\":-3,\"multipleOf\":2}},"
                "\"required\":[\"a\"],\"additionalProperties\":false}"),
        text_of("{\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":"
                "\"#/$defs/t\"},\"maxItems\":3}},\"anyOf\":[{\"$ref\":"
                "\"#/$defs/t\"},{\"enum\":[1,\"x\",null]}]}")};
    static const char tool[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
        "\"type\":[\"string\",\"null\"],\"maxLength\":4},\"b\":{"
        "\"$ref\":\"#/$defs/n\"}},\"required\":[\"b\"],\"$defs\":{\"n\":{"
        "\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}}}]";
    static const char bare[] =
        "[{\"name\":\"g\"},{\"name\":\"h\",\"parameters\":{\"anyOf\":["
        "{\"properties\":{\"c\":{\"enum\":[\"5\",5,[1]]}}},{\"properties\":"
        "{\"d\":{}},\"required\":[\"d\"]}]}}]";
    struct buf tools[] = {text_of(tool), text_of(bare)};
    struct buf xml[] = {text_of(tool), text_of(bare)};
    struct buf *seeds[] = {regex, gbnf, lark, schema, tools, xml};
    static const char *const names[] = {"regex",  "grammar", "lark",
                                        "schema", "tools",   "tools as XML"};
    struct qwick_err e;
    for (size_t k = 0; k < 6; k++) {
        grammar_kind = (int)k;
        rng = 1;
        for (size_t i = 0; i < 2; i++)
            assert_ok(target_grammar(seeds[k][i].data, seeds[k][i].len, &e),
                      &e);
        fuzz(names[k], target_grammar, seeds[k], 2);
        buf_free(&seeds[k][0]);
        buf_free(&seeds[k][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuzz_json),      cmocka_unit_test(fuzz_safetensors),
        cmocka_unit_test(fuzz_tokenizer), cmocka_unit_test(fuzz_config),
        cmocka_unit_test(fuzz_chat),      cmocka_unit_test(fuzz_constraints),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
