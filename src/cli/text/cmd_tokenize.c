/* tokenize, detokenize and count: verbs that need only the tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/answer/answer_json.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    struct opt_texts files;
    bool no_special, skip_special;
};

#define ARG(field) offsetof(struct args, field)

/* clang-format off */
#define ROW_FILE                                                              \
    {.name = "file", .letter = 'f', .type = OPT_TEXTS, .arg = "FILE",         \
     .help = "read FILE instead of standard input; repeatable, - is stdin",   \
     .offset = ARG(files)}
#define ROW_NO_SPECIAL                                                        \
    {.name = "no-special", .type = OPT_FLAG,                                  \
     .help = "text such as <|im_end|> is plain text, not a control token",    \
     .offset = ARG(no_special)}
#define ROW_JSON(what)                                                        \
    {.name = "json", .type = OPT_FLAG, .help = what, .offset = COMMON(json)}
#define ROW_JSONL(what)                                                       \
    {.name = "jsonl", .type = OPT_FLAG, .help = what, .offset = COMMON(jsonl)}
/* clang-format on */

static const struct opt tokenize_opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    ROW_FILE,
    ROW_NO_SPECIAL,
    ROW_JSON("print {\"ids\":[...]}"),
    OPT_ROWS_INPUT,
    ROW_JSONL("lines of {\"text\"} in, lines of {\"ids\"} out"),
    OPT_ROWS_MODEL,
    OPT_ROWS_BASIC,
};

static const struct opt count_opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    ROW_FILE,
    ROW_NO_SPECIAL,
    ROW_JSON("print {\"count\":N}"),
    OPT_ROWS_INPUT,
    ROW_JSONL("lines of {\"text\"} in, lines of {\"count\"} out"),
    OPT_ROWS_MODEL,
    OPT_ROWS_BASIC,
};

static const struct opt detokenize_opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    ROW_FILE,
    {.name = "skip-special",
     .type = OPT_FLAG,
     .help = "leave out control tokens",
     .offset = ARG(skip_special)},
    ROW_JSON("print {\"text\",\"bytes_hex\"}"),
    OPT_ROWS_INPUT,
    ROW_JSONL("lines of {\"ids\",\"skip_special\"} in, lines of "
              "{\"text\",\"bytes_hex\"} out"),
    OPT_ROWS_MODEL,
    OPT_ROWS_BASIC,
};

struct job {
    const struct verb *verb;
    struct opt_parsed p;
    struct args a;
    struct qwick_engine *eng;
};

/* ---- one answer ---- */

/* Encode a text into ids. */
static int encode(const struct job *j, const char *text, size_t n,
                  int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    return qwick_tokenize(j->eng, text, n, !j->a.no_special, ids, n_ids, e);
}

static void put_ids_json(struct json_writer *w, const struct job *j,
                         const int32_t *ids, size_t n)
{
    if (j->verb == &verb_count)
        jw_uint(w, "count", n);
    else
        json_ids(w, "ids", ids, n);
}

static int put_ids(struct buf *out, const struct job *j, const int32_t *ids,
                   size_t n)
{
    int bad = 0;
    if (j->verb == &verb_count)
        return buf_printf(out, "%zu\n", n);
    for (size_t i = 0; i < n && !bad; i++)
        bad = buf_printf(out, "%s%d", i ? " " : "", ids[i]);
    return bad | buf_putc(out, '\n');
}

static void put_text_json(struct json_writer *w, const char *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    struct buf bytes = {0};
    for (size_t i = 0; i < n && !w->failed; i++) {
        unsigned char c = (unsigned char)text[i];
        const char pair[] = {hex[c >> 4], hex[c & 15]};
        w->failed |= buf_append(&bytes, pair, 2) != 0;
    }
    jw_string(w, "text", text, n);
    jw_string(w, "bytes_hex", bytes.data ? bytes.data : "", bytes.len);
    buf_free(&bytes);
}

/* ---- --jsonl ---- */

static int encode_line(void *ctx, const struct line *line,
                       const struct json_value *v, struct json_writer *w,
                       struct qwick_err *e)
{
    const struct job *j = ctx;
    const struct json_value *text = json_get(v, "text");
    int32_t *ids;
    size_t n;
    if (!json_is(text, JSON_STRING))
        return err_set(e, QWICK_ERR_USAGE, "%s: text: not a string",
                       line->where);
    if (encode(j, text->str, text->len, &ids, &n, e))
        return -1;
    put_ids_json(w, j, ids, n);
    free(ids);
    return jw_status(w) ? err_oom(e, text->len) : 0;
}

static int decode_line(void *ctx, const struct line *line,
                       const struct json_value *v, struct json_writer *w,
                       struct qwick_err *e)
{
    const struct job *j = ctx;
    const char *where = line->where;
    const struct json_value *list = json_get(v, "ids");
    const struct json_value *skip = json_get(v, "skip_special");
    bool skip_special = j->a.skip_special;
    int r = -1;
    if (!json_is(list, JSON_ARRAY))
        return err_set(e, QWICK_ERR_USAGE, "%s: ids: not an array", where);
    if (json_is(skip, JSON_BOOL))
        skip_special = skip->boolean;
    else if (skip && !json_is(skip, JSON_NULL))
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: skip_special: not true or false", where);
    int32_t *ids = malloc((list->len + 1) * sizeof(*ids));
    if (!ids)
        return err_oom(e, list->len * sizeof(*ids));
    for (size_t i = 0; i < list->len; i++) {
        int64_t x;
        if (json_int(&list->items[i], 0, INT32_MAX, &x)) {
            err_set(e, QWICK_ERR_USAGE, "%s: ids: item %zu is not a token id",
                    where, i);
            goto done;
        }
        ids[i] = (int32_t)x;
    }
    char *text;
    size_t n;
    r = qwick_detokenize(j->eng, ids, list->len, skip_special, &text, &n, e);
    if (r)
        goto done;
    put_text_json(w, text, n);
    free(text);
    r = jw_status(w) ? err_oom(e, n) : 0;
done:
    free(ids);
    return r;
}

/* ---- the verbs ---- */

/* Fail once if the checkpoint has no tokenizer, not at every line. */
static int probe(const struct job *j, struct qwick_err *e)
{
    int32_t *ids;
    size_t n;
    if (qwick_tokenize(j->eng, "", 0, false, &ids, &n, e))
        return msg_fail(e);
    free(ids);
    return 0;
}

static int tokenize(struct job *j, struct buf *in, struct buf *out,
                    struct qwick_err *e)
{
    const char *text = j->p.n_args ? j->p.args[0] : NULL;
    int32_t *ids;
    size_t n;
    bool found;
    int status;
    if (prompt_bytes(in, &j->a.files, text, &found, e))
        return msg_fail(e);
    if (!found)
        return common_no_input(j->verb);
    if ((status = common_open(&j->eng, &j->a.c, true)) != 0)
        return status;
    if (encode(j, in->data ? in->data : "", in->len, &ids, &n, e))
        return msg_fail(e);
    struct json_writer w = json_writer(out);
    if (j->a.c.json) {
        jw_object(&w, NULL);
        put_ids_json(&w, j, ids, n);
        jw_end_object(&w);
        jw_newline(&w);
    }
    int bad = j->a.c.json ? jw_status(&w) : put_ids(out, j, ids, n);
    free(ids);
    return bad ? msg_oom() : 0;
}

static int detokenize(struct job *j, struct buf *in, struct buf *out,
                      struct qwick_err *e)
{
    bool found = true;
    int32_t *ids;
    size_t n;
    int status, r;
    for (size_t i = 0; i < j->p.n_args; i++)
        if (buf_printf(in, "%s ", j->p.args[i]))
            return msg_oom();
    if (!j->p.n_args && prompt_bytes(in, &j->a.files, NULL, &found, e))
        return msg_fail(e);
    if (!found)
        return common_no_input(j->verb);
    if (prompt_ids("ids", in->data ? in->data : "", in->len, true, &ids, &n, e))
        return msg_fail(e);
    if ((status = common_open(&j->eng, &j->a.c, true)) != 0) {
        free(ids);
        return status;
    }
    char *text;
    size_t n_text;
    r = qwick_detokenize(j->eng, ids, n, j->a.skip_special, &text, &n_text, e);
    free(ids);
    if (r)
        return msg_fail(e);
    struct json_writer w = json_writer(out);
    if (j->a.c.json) {
        jw_object(&w, NULL);
        put_text_json(&w, text, n_text);
        jw_end_object(&w);
        jw_newline(&w);
    }
    int bad = j->a.c.json ? jw_status(&w) : buf_append(out, text, n_text);
    free(text);
    return bad ? msg_oom() : 0;
}

static int lines(struct job *j, struct qwick_err *e)
{
    int status = common_open(&j->eng, &j->a.c, true);
    if (status || (status = probe(j, e)) != 0)
        return status;
    const struct records_work w = {
        .answer = j->verb == &verb_detokenize ? decode_line : encode_line};
    return records_run(j->verb, &j->a.c.input, &w, j);
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct job j = {.verb = v};
    struct buf in = {0}, out = {0};
    struct qwick_err e = {0};
    int status = opt_parse(&j.p, v, argc, argv, &j.a);
    if (status < 0)
        status = common_check(&j.p, &j.a.c);
    if (status < 0)
        status = v == &verb_detokenize
                     ? common_check_text(&j.p, &j.a.c, "ids", TEXT_IDS)
                     : common_check_text(&j.p, &j.a.c, "text", TEXT_ONE);
    if (status < 0 && j.a.c.jsonl) {
        status = lines(&j, &e);
    } else if (status < 0) {
        status = v == &verb_detokenize ? detokenize(&j, &in, &out, &e)
                                       : tokenize(&j, &in, &out, &e);
        /* the line after a text on a terminal is the shell's */
        if (status == 0 && out_is_tty() && out.len &&
            out.data[out.len - 1] != '\n' && buf_putc(&out, '\n'))
            status = msg_oom();
        if (status == 0 && out_write(out.data ? out.data : "", out.len))
            status = QWICK_ERR_RUNTIME;
    }
    qwick_engine_close(j.eng);
    buf_free(&in);
    buf_free(&out);
    opt_free(&j.p, &j.a);
    return status;
}

const struct verb verb_tokenize = {
    .name = "tokenize",
    .args = "[TEXT]",
    .summary = "text to token ids",
    .about = "Print the token ids of TEXT, of the files of -f, or of standard "
             "input,\nseparated by blanks. Bytes are kept as they are. Needs "
             "only the tokenizer's\nfiles.",
    .examples = "  qwick tokenize \"hello world\"\n"
                "  qwick tokenize --json -f notes.txt\n",
    OPT_TABLE(tokenize_opts),
    .run = run,
};

const struct verb verb_detokenize = {
    .name = "detokenize",
    .args = "[ID...]",
    .summary = "token ids to text",
    .about = "Print the exact bytes of token ids (separated by blanks or "
             "commas), given as\narguments, in the files of -f, or on "
             "standard input. On a terminal, a text that\ndoes not end with a "
             "newline gets one.",
    .examples = "  qwick detokenize 72 105\n"
                "  qwick tokenize \"hello world\" | qwick detokenize\n",
    OPT_TABLE(detokenize_opts),
    .run = run,
};

const struct verb verb_count = {
    .name = "count",
    .args = "[TEXT]",
    .summary = "number of tokens of a text",
    .about = "Print how many tokens TEXT, the files of -f, or standard input "
             "have. Bytes are\nkept as they are. Needs only the tokenizer's "
             "files.",
    .examples = "  qwick count \"hello world\"\n"
                "  qwick count -f notes.txt\n",
    OPT_TABLE(count_opts),
    .run = run,
};
