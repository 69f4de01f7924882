/* Read vocab.txt, which older checkpoints of BERT have in place of
 * tokenizer.json: one token a line, by id. transformers makes the rest of the
 * tokenizer from tokenizer_config.json (BertConverter); so does this file,
 * which writes that tokenizer.json. */
#include "base/buf.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_load.h"

/* Special tokens: their names, and the texts that they have without a name in
 * other files. */
static const char *const names[] = {"unk_token", "cls_token", "sep_token",
                                    "pad_token", "mask_token"};
static const char *const usual[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]",
                                    "[MASK]"};
enum { UNK, CLS, SEP, N_NEEDED, N_NAMES = 5 };

struct vocab {
    const char *name;
    const struct json_value *config, *map;
    const char *special[N_NAMES];
    size_t n_special[N_NAMES];
    long id[N_NAMES]; /* -1: not in the vocabulary */
    struct buf json;
    struct qwick_err *e;
};

static void find_names(struct vocab *v)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct json_value *t = json_get(v->map, names[i]);
        t = bpe_is_null(t) ? json_get(v->config, names[i]) : t;
        t = json_is(t, JSON_OBJECT) ? json_get(t, "content") : t;
        bool named = json_is(t, JSON_STRING) && t->len > 0;
        v->special[i] = named ? t->str : usual[i];
        v->n_special[i] = named ? t->len : strlen(usual[i]);
        v->id[i] = -1;
    }
}

/* Write the tokens as an object. */
static void put_vocab(struct vocab *v, const char *p, size_t n)
{
    long id = 0;
    buf_puts(&v->json, "{");
    for (const char *end = p + n; p < end; id++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        size_t token = len > 0 && p[len - 1] == '\r' ? len - 1 : len;
        buf_puts(&v->json, id ? "," : "");
        buf_json_string(&v->json, p, token);
        buf_printf(&v->json, ":%ld", id);
        for (size_t i = 0; i < N_NAMES; i++)
            if (token == v->n_special[i] &&
                memcmp(p, v->special[i], token) == 0)
                v->id[i] = id;
        p += len + (stop != NULL);
    }
    buf_puts(&v->json, "}");
}

static void put_special(struct vocab *v, size_t i)
{
    buf_json_string(&v->json, v->special[i], v->n_special[i]);
}

static void put_added(struct vocab *v)
{
    const char *comma = "";
    buf_puts(&v->json, "\"added_tokens\":[");
    for (size_t i = 0; i < N_NAMES; i++) {
        if (v->id[i] < 0)
            continue;
        buf_printf(&v->json, "%s{\"id\":%ld,\"content\":", comma, v->id[i]);
        put_special(v, i);
        buf_puts(&v->json, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
                           "false,\"normalized\":false,\"special\":true}");
        comma = ",";
    }
    buf_puts(&v->json, "]");
}

/* A flag of tokenizer_config.json: true, false, or null if it is missing. */
static const char *flag(const struct vocab *v, const char *name,
                        const char *missing)
{
    const struct json_value *x = json_get(v->config, name);
    return json_is(x, JSON_BOOL) ? (x->boolean ? "true" : "false") : missing;
}

static void put_rest(struct vocab *v)
{
    static const char *const keys[] = {"cls", "sep"};
    buf_printf(&v->json,
               ",\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":"
               "true,\"handle_chinese_chars\":%s,\"strip_accents\":%s,"
               "\"lowercase\":%s},\"pre_tokenizer\":{\"type\":"
               "\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\","
               "\"prefix\":\"##\",\"cleanup\":true},\"post_processor\":{"
               "\"type\":\"BertProcessing\"",
               flag(v, "tokenize_chinese_chars", "true"),
               flag(v, "strip_accents", "null"),
               flag(v, "do_lower_case", "true"));
    for (size_t i = CLS; i <= SEP; i++) {
        buf_printf(&v->json, ",\"%s\":[", keys[i - CLS]);
        put_special(v, i);
        buf_printf(&v->json, ",%ld]", v->id[i]);
    }
    buf_puts(&v->json, "}}");
}

/* Refuse other tokenizers that have a file of this name. */
static int check_class(const struct vocab *v, const char *config_path)
{
    static const char *const known[] = {
        "BertTokenizer",           "BertTokenizerFast", "DistilBertTokenizer",
        "DistilBertTokenizerFast", "ElectraTokenizer",  "ElectraTokenizerFast"};
    const struct json_value *class = json_get(v->config, "tokenizer_class");
    const struct json_value *basic = json_get(v->config, "do_basic_tokenize");
    if (basic && !bpe_is_bool(basic, true))
        return err_set(v->e, QWICK_ERR_MODEL,
                       "%s: do_basic_tokenize: must be true with vocab.txt",
                       config_path);
    if (bpe_is_null(class))
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (json_equals(class, known[i]))
            return 0;
    return err_set(v->e, QWICK_ERR_MODEL,
                   "%s: tokenizer_class: %s is not supported with vocab.txt "
                   "(supported: BertTokenizer, or tokenizer.json)",
                   config_path,
                   json_is(class, JSON_STRING) ? class->str : "this");
}

static int compose(struct vocab *v, const char *text, size_t n)
{
    find_names(v);
    buf_puts(&v->json, "{\"version\":\"1.0\",\"model\":{\"type\":\"WordPiece\","
                       "\"unk_token\":");
    put_special(v, UNK);
    buf_puts(&v->json, ",\"continuing_subword_prefix\":\"##\","
                       "\"max_input_chars_per_word\":100,\"vocab\":");
    put_vocab(v, text, n);
    for (size_t i = 0; i < N_NEEDED; i++)
        if (v->id[i] < 0)
            return err_set(v->e, QWICK_ERR_MODEL, "%s: has no line \"%s\" (%s)",
                           v->name, ERR_SHOW(v->special[i], v->n_special[i]),
                           names[i]);
    buf_puts(&v->json, "},");
    put_added(v);
    put_rest(v);
    return v->json.failed ? err_oom(v->e, v->json.len) : 0;
}

int bpe_open_vocab(struct bpe **out, const char *name, const char *text,
                   size_t n, const struct bpe_beside *beside,
                   struct qwick_err *e)
{
    struct qwick_err unused;
    struct vocab v = {.name = name,
                      .config = beside->config.root,
                      .map = beside->map.root,
                      .e = e ? e : &unused};
    *out = NULL;
    int rc =
        check_class(&v, beside->config.path) || compose(&v, text, n) ||
                bpe_open_beside(out, name, v.json.data, v.json.len, beside, e)
            ? -1
            : 0;
    buf_free(&v.json);
    return rc;
}
