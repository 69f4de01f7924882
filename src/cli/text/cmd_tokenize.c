/* tokenize, detokenize and count: verbs that need only the tokenizer. */
#include <stdlib.h>

#include "base/buf.h"
#include "cli/answer/token_records.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/report/report.h"
#include "qwick.h"

struct job {
    const struct verb *verb;
    const struct opt_parsed *p;
    const struct args *a; /* of p */
    struct qwick_engine *eng;
};

/* ---- one answer ---- */

static void put_ids(struct buf *out, const struct job *j, const int32_t *ids,
                    size_t n)
{
    if (j->verb == &verb_count)
        buf_printf(out, "%zu", n);
    for (size_t i = 0; i < n && j->verb != &verb_count; i++)
        buf_printf(out, "%s%d", i ? " " : "", ids[i]);
    buf_putc(out, '\n');
}

/* ---- --jsonl ---- */

static int text_line(void *ctx, const struct line *line,
                     const struct json_value *v, struct json_writer *w,
                     struct qwick_err *e)
{
    const struct job *j = ctx;
    (void)line;
    return j->verb == &verb_detokenize
               ? detokenize_record(j->eng, j->a, v, w, e)
               : tokenize_record(j->eng, j->a, j->verb == &verb_count, v, w, e);
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
    const char *text = j->p->n_args ? j->p->args[0] : NULL;
    int32_t *ids;
    size_t n;
    bool found;
    if (prompt_bytes(in, &j->a->file, text, &found, e))
        return msg_fail(e);
    if (!found)
        return common_no_input(j->verb);
    if (tokens_encode(j->eng, j->a, buf_text(in), in->len, &ids, &n, e))
        return msg_fail(e);
    if (j->a->json) {
        struct json_writer w = jw_line(out);
        tokens_put_ids(&w, j->verb == &verb_count, ids, n);
        jw_end_line(&w);
    } else {
        put_ids(out, j, ids, n);
    }
    free(ids);
    return 0;
}

/* Count the tokens of each file of -f: a line for each, as wc prints them, and
 * one for all together. */
static int count_files(struct job *j, struct buf *in, struct buf *out,
                       struct qwick_err *e)
{
    const struct strings *files = &j->a->file;
    struct json_writer w = json_writer(out);
    size_t total = 0, n;
    int status = 0;
    if (j->a->json) {
        w = jw_line(out);
        jw_array(&w, "files");
    }
    for (size_t i = 0; i < files->n && !status; i++) {
        const struct strings one = {.v = &files->v[i], .n = 1};
        bool found;
        int32_t *ids;
        in->len = 0;
        if (prompt_bytes(in, &one, NULL, &found, e) ||
            tokens_encode(j->eng, j->a, buf_text(in), in->len, &ids, &n, e)) {
            status = msg_fail(e);
            break;
        }
        free(ids);
        total += n;
        if (!in->len)
            prompt_warn_empty(files->v[i]);
        if (j->a->json) {
            jw_object(&w, NULL);
            jw_cstr(&w, "file", files->v[i]);
            jw_uint(&w, "count", n);
            jw_end_object(&w);
        } else {
            buf_printf(out, "%zu\t", n);
            report_name(out, files->v[i]);
            buf_putc(out, '\n');
        }
    }
    if (j->a->json) {
        jw_end_array(&w);
        jw_uint(&w, "count", total);
        jw_end_line(&w);
    } else {
        buf_printf(out, "%zu\ttotal\n", total);
    }
    return status;
}

static int detokenize(struct job *j, struct buf *in, struct buf *out,
                      struct qwick_err *e)
{
    bool found = true;
    int32_t *ids;
    size_t n;
    for (size_t i = 0; i < j->p->n_args; i++)
        if (buf_printf(in, "%s ", j->p->args[i]))
            return msg_oom();
    if (!j->p->n_args && prompt_bytes(in, &j->a->file, NULL, &found, e))
        return msg_fail(e);
    if (!found)
        return common_no_input(j->verb);
    if (prompt_ids("ids", buf_text(in), in->len, true, &ids, &n, e))
        return msg_fail(e);
    char *text;
    size_t n_text;
    int r =
        qwick_detokenize(j->eng, ids, n, j->a->skip_special, &text, &n_text, e);
    free(ids);
    if (r)
        return msg_fail(e);
    if (j->a->json) {
        struct json_writer w = jw_line(out);
        tokens_put_text(&w, text, n_text);
        jw_end_line(&w);
    } else {
        buf_append(out, text, n_text);
    }
    free(text);
    return 0;
}

static int text_lines(struct job *j, struct qwick_err *e)
{
    int status = probe(j, e);
    if (status)
        return status;
    const struct records_work w = {.answer = text_line};
    return records_run(j->verb->name, &j->a->input, &w, j);
}

static int text_check(struct opt_parsed *p)
{
    return p->verb == &verb_detokenize ? common_check_text(p, "ids", TEXT_IDS)
                                       : common_check_text(p, "text", TEXT_ONE);
}

static int text_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct job j = {.verb = p->verb, .p = p, .a = &p->a, .eng = eng};
    struct buf in = {0}, out = {0};
    struct qwick_err e = {0};
    if (p->a.jsonl)
        return text_lines(&j, &e);
    bool files = p->verb == &verb_count && p->a.file.n > 1;
    int status = p->verb == &verb_detokenize ? detokenize(&j, &in, &out, &e)
                 : files                     ? count_files(&j, &in, &out, &e)
                                             : tokenize(&j, &in, &out, &e);
    /* the line after a text on a terminal is the shell's */
    if (out_is_tty() && out.len && out.data[out.len - 1] != '\n')
        buf_putc(&out, '\n');
    if (!status)
        status = out_print(&out, out_write);
    buf_free(&in);
    buf_free(&out);
    return status;
}

const struct verb verb_tokenize = {
    .bit = V_TOKENIZE,
    .name = "tokenize",
    .group = VERBS_TOKENS,
    .args = "[TEXT]",
    .summary = "text to token ids",
    .about = "Print the token ids of TEXT, of the files of -f, or of standard "
             "input,\nseparated by blanks. Bytes are kept as they are. Needs "
             "only the tokenizer's\nfiles.",
    .examples = "  qwick tokenize \"hello world\"\n"
                "  qwick tokenize --json -f notes.txt\n",
    .opens = OPENS_TOKENIZER,
    .check = text_check,
    .run = text_run,
};

const struct verb verb_detokenize = {
    .bit = V_DETOKENIZE,
    .name = "detokenize",
    .group = VERBS_TOKENS,
    .args = "[ID...]",
    .summary = "token ids to text",
    .about = "Print the exact bytes of token ids (separated by blanks or "
             "commas), given as\narguments, in the files of -f, or on "
             "standard input. On a terminal, a text that\ndoes not end with a "
             "newline gets one.",
    .examples = "  qwick detokenize 72 105\n"
                "  qwick tokenize \"hello world\" | qwick detokenize\n",
    .opens = OPENS_TOKENIZER,
    .check = text_check,
    .run = text_run,
};

const struct verb verb_count = {
    .bit = V_COUNT,
    .name = "count",
    .group = VERBS_TOKENS,
    .args = "[TEXT]",
    .summary = "number of tokens of a text",
    .about = "Print how many tokens TEXT, the file of -f, or standard input "
             "have. Several -f\ngive a line for each file, with a tab before "
             "its name, and the total. Bytes are\nkept as they are. Needs only "
             "the tokenizer's files.",
    .examples = "  qwick count \"hello world\"\n"
                "  qwick count -f notes.txt\n"
                "  qwick count -f notes.txt -f chat.json\n",
    .opens = OPENS_TOKENIZER,
    .check = text_check,
    .run = text_run,
};
