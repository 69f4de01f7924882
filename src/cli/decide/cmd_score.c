#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/answer/score_record.h"
#include "cli/answer/score_text.h"
#include "cli/decide/score_html.h"
#include "cli/input/against.h"
#include "cli/io/escape.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/preset.h"
#include "cli/opt/verbs.h"
#include "cli/report/html.h"
#include "cli/report/paint.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "file/save.h"
#include "qwick.h"

struct job {
    const struct verb *verb;
    struct opt_parsed *p;
    struct args *a; /* of p */
    enum score_unit by;
    struct qwick_engine *eng;
    struct qwick_score_options o;
    size_t window, stride;
    struct buf given; /* text of --given or --given-file; data NULL: none */
    struct prompt_template template; /* of the options, for lines */
    struct buf *files; /* [n_files] the argument or the files; NULL: lines */
    size_t n_files;
    struct score_text *texts; /* of the files, or of a group of lines */
    size_t n_texts;
    struct score_totals sum;
    struct score_places places; /* with --html */
    struct against against;     /* with --against */
};

/* ---- texts -------------------------------------------------------------- */

/* Score all texts in joint passes. */
static int score_all(struct job *j, struct qwick_err *e)
{
    if (j->against.reference)
        return against_compare(&j->against, j->texts, j->n_texts, &j->o, e);
    struct qwick_score_item *items = calloc(j->n_texts + 1, sizeof(*items));
    if (!items)
        return err_oom(e, j->n_texts * sizeof(*items));
    for (size_t i = 0; i < j->n_texts; i++)
        items[i] = j->texts[i].item;
    int r = qwick_score(j->eng, items, j->n_texts, &j->o, e);
    for (size_t i = 0; i < j->n_texts && r == 0; i++) {
        j->texts[i].item = items[i];
        score_end(&j->texts[i]);
    }
    free(items);
    return r;
}

static void drop_texts(struct job *j)
{
    score_places_free(&j->places);
    against_drop(&j->against);
    for (size_t i = 0; i < j->n_texts; i++)
        score_free(&j->texts[i]);
    j->n_texts = 0;
}

/* Open the models and enter the sandbox. Returns an exit status. */
static int score_open(struct job *j, struct qwick_err *e)
{
    int status = open_model(&j->eng, j->p, false);
    j->against.eng = j->eng;
    if (!status && j->a->against)
        status = open_model_reference(&j->against.reference, j->p, j->eng);
    if (!status)
        status = sandbox_enter(j->p, j->eng, j->against.reference, SIZE_MAX);
    if (status)
        return status;
    return qwick_score_windows(j->eng, &j->o, &j->window, &j->stride, e)
               ? msg_fail(e)
               : 0;
}

/* ---- files -------------------------------------------------------------- */

/* Returns an exit status. */
static int read_files(struct job *j, struct qwick_err *e)
{
    const char *text = j->p->n_args ? j->p->args[0] : NULL;
    for (size_t i = 0; i < j->n_files; i++) {
        const char **path = j->a->file.n ? &j->a->file.v[i] : NULL;
        struct strings one = {path, path != NULL};
        bool found;
        if (prompt_bytes(&j->files[i], &one, text, &found, e))
            return msg_fail(e);
        if (!found)
            return opt_usage(j->verb,
                             "no text; usage: qwick score [OPTIONS] %s",
                             j->verb->args);
        if (path && !j->files[i].len && j->n_files > 1)
            prompt_warn_empty(*path);
        if (preset_apply(&j->files[i], j->p, e))
            return msg_fail(e);
    }
    return 0;
}

static void put_object(const struct job *j, struct buf *b, size_t i,
                       const struct score_totals *sum)
{
    const struct score_text *t = &j->texts[i];
    struct json_writer w = jw_line(b);
    if (j->a->file.n)
        jw_cstr(&w, "file", j->a->file.v[i]);
    jw_cstr(&w, "model", qwick_engine_info(j->eng)->model);
    jw_uint(&w, "n_given", t->item.n_given);
    jw_uint(&w, "window", j->window);
    jw_uint(&w, "stride", j->stride);
    jw_uint(&w, "n_input_bytes", t->n_input);
    score_put_json(&w, sum);
    if (!j->a->perplexity)
        score_put_units(&w, t, j->by);
    jw_end_line(&w);
}

/* Put a file's name, escaped for a terminal, to which lines with colours go
 * unchanged. */
static void put_name(struct buf *b, const char *name)
{
    struct buf json = {0};
    buf_json_cstr(&json, name);
    if (out_is_tty())
        escape_append(b, json.data, json.len, ESCAPE_NAME, "");
    else
        buf_append(b, json.data, json.len);
    buf_free_part(&json, b);
}

/* Write lines: with --by the units, then the totals behind '#'; otherwise only
 * the totals. */
static void put_lines(const struct job *j, struct buf *b, size_t i,
                      const struct score_totals *sum)
{
    const char *prefix = j->a->perplexity ? "" : "#";
    if (j->n_texts > 1) {
        buf_printf(b, "%sfile\t", prefix);
        put_name(b, j->a->file.v[i]);
        buf_putc(b, '\n');
    }
    if (j->a->heat)
        score_put_heat(b, &j->texts[i]);
    else if (!j->a->perplexity)
        score_put_tsv(b, &j->texts[i], j->by);
    score_put_totals(b, sum, prefix);
}

static int print_files(struct job *j)
{
    int status = 0;
    for (size_t i = 0; i < j->n_texts && !status; i++) {
        struct score_totals sum = {0};
        struct buf b = {0};
        score_add(&sum, &j->texts[i]);
        (j->a->json ? put_object : put_lines)(j, &b, i, &sum);
        status = out_print(&b, j->a->heat ? out_write_styled : out_write);
    }
    if (j->a->heat && !status)
        paint_legend(j->a->color);
    return status;
}

static int write_page(const struct job *j)
{
    struct html h = {0};
    if (!j->a->html)
        return 0;
    score_page_begin(&h, j->eng);
    for (size_t i = 0; i < j->n_texts; i++)
        score_page_text(&h, j->eng, j->a->file.n ? j->a->file.v[i] : NULL,
                        &j->texts[i], j->places.v[i]);
    html_end(&h);
    return html_write(&h, j->a->html);
}

static int run_files(struct job *j, struct qwick_err *e)
{
    size_t n = j->a->file.n ? j->a->file.n : 1, n_tokens = 0;
    int status;
    j->files = calloc(n, sizeof(*j->files));
    j->texts = calloc(n, sizeof(*j->texts));
    if (!j->files || !j->texts)
        return msg_oom();
    j->n_files = n;
    if ((status = read_files(j, e)) != 0)
        return status;
    /* a signal before this point ends the wait for input at once */
    signals_catch();
    if ((status = score_open(j, e)) != 0)
        return status;
    for (; j->n_texts < n; j->n_texts++) {
        struct buf *b = &j->files[j->n_texts];
        if (score_prepare(&j->texts[j->n_texts], j->eng, j->a, j->given.data,
                          j->given.len, buf_text(b), b->len, e))
            return msg_fail(e);
        buf_free(b);
    }
    if (j->a->html &&
        score_places_make(&j->places, j->texts, j->n_texts, &j->o))
        return msg_oom();
    progress_start("score");
    for (size_t i = 0; i < j->n_texts; i++)
        n_tokens += j->texts[i].item.n;
    progress_items("tokens", 0, 0, n_tokens, 0);
    int failed = score_all(j, e);
    progress_stop();
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(e);
    if (j->a->against)
        return against_print(&j->against, &j->o, j->a->json);
    status = write_page(j); /* its failure leaves stdout empty */
    return status ? status : print_files(j);
}

/* ---- --jsonl ------------------------------------------------------------ */

/* What a record is filled into the template with. */
struct record_fields {
    const struct job *j;
    const struct json_value *record;
};

/* {} is the record's text, {NAME} its text NAME, or else that of --set. */
static int field_value(void *ctx, const struct template_part *field,
                       const char **s, size_t *n, struct qwick_err *e)
{
    const struct record_fields *f = ctx;
    const struct json_value *v = field->n
                                     ? json_get_n(f->record, field->s, field->n)
                                     : json_get(f->record, "text");
    const char *set = preset_value(f->j->a, field->s, field->n);
    if (json_is(v, JSON_STRING)) {
        *s = v->str;
        *n = v->len;
        return 0;
    }
    if (!field->n || v)
        return err_usage(
            e, "%s: not a string",
            ERR_SHOW(field->n ? field->s : "text", field->n ? field->n : 4));
    if (!set)
        return preset_unset(&f->j->template, field, e);
    *s = set;
    *n = strlen(set);
    return 0;
}

static int fill_line(const struct job *j, const struct json_value *v,
                     struct buf *out, struct qwick_err *e)
{
    const struct prompt_template *t = &j->template;
    struct record_fields f = {j, v};
    if (!preset_given(j->a))
        return 0;
    if (json_get(v, "text") && !prompt_template_find(t, "", 0))
        return err_usage(e, "text: %s has no {} for it", t->name);
    return prompt_template_fill(t, field_value, &f, out, e);
}

static int read_line(void *ctx, size_t i, const struct json_value *v,
                     struct qwick_err *e)
{
    struct job *j = ctx;
    /* n_texts may skip indices: bad lines hold texts without tokens */
    j->n_texts = i + 1;
    struct buf filled = {0};
    int rc =
        fill_line(j, v, &filled, e) ||
        score_record_read(&j->texts[i], j->eng, j->a, &j->given, &filled, v, e);
    buf_free(&filled);
    return rc ? -1 : 0;
}

static int work_lines(void *ctx, struct qwick_err *e)
{
    return score_all(ctx, e);
}

static int write_line(void *ctx, size_t i, struct json_writer *w,
                      struct qwick_err *e)
{
    struct job *j = ctx;
    if (j->a->against)
        return against_put_text(&j->against, i, w, e);
    score_add(&j->sum, &j->texts[i]);
    score_put_text(w, &j->texts[i]);
    if (j->a->by)
        score_put_units(w, &j->texts[i], j->by);
    return jw_status(w) ? err_oom(e, w->out->len) : 0;
}

static void drop_lines(void *ctx)
{
    drop_texts(ctx);
}

static int print_totals(const struct job *j)
{
    struct buf b = {0};
    if (j->a->against)
        return against_print(&j->against, &j->o, false);
    score_put_totals(&b, &j->sum, "");
    return out_print(&b, out_write);
}

static int run_lines(struct job *j, struct qwick_err *e)
{
    const struct records_work w = {.read = read_line,
                                   .work = work_lines,
                                   .write = write_line,
                                   .drop = drop_lines,
                                   .silent = j->a->perplexity};
    if (preset_template(&j->template, j->p, NULL, e) ||
        preset_check_values(&j->template, j->a, e))
        return msg_fail(e);
    signals_catch();
    int status = score_open(j, e);
    if (status)
        return status;
    j->texts = calloc(RECORDS_GROUP, sizeof(*j->texts));
    if (!j->texts)
        return msg_oom();
    status = records_run(j->verb->name, &j->a->input, &w, j);
    if (!j->a->perplexity || status > 1 || *signals_flag())
        return status;
    int printed = print_totals(j);
    return printed ? printed : status;
}

/* ---- the verb ----------------------------------------------------------- */

static int score_check(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    int r = common_check_text(p, "text", TEXT_ONE), n_stdin = 0;
    if (r >= 0 || (r = common_check_colours(p, OPT_heat)) >= 0 ||
        (r = preset_check(p)) >= 0)
        return r;
    if (a->chat && !a->given && !a->given_file && !a->jsonl)
        return opt_usage(p->verb, "--chat: needs --given, the request");
    const struct strings *files = a->jsonl ? &a->input : &a->file;
    for (size_t i = 0; i < files->n; i++)
        n_stdin += strcmp(files->v[i], "-") == 0;
    n_stdin += a->given_file && strcmp(a->given_file, "-") == 0;
    n_stdin += !p->n_args && !files->n;
    return n_stdin > 1 ? opt_usage(p->verb, "standard input: is asked for more "
                                            "than once")
                       : -1;
}

static int read_given(struct job *j, struct qwick_err *e)
{
    const struct strings one = {&j->a->given_file, 1};
    bool found;
    if (!j->a->given && !j->a->given_file)
        return 0;
    if (prompt_bytes(&j->given, &one, j->a->given, &found, e))
        return -1;
    return buf_reserve(&j->given, 0) ? err_oom(e, 1) : 0;
}

static int score(struct job *j)
{
    static const char *const names[] = {"token", "word", "line", "byte"};
    struct qwick_err e = {0};
    for (int i = 0; i < 4 && j->a->by; i++)
        if (strcmp(j->a->by, names[i]) == 0)
            j->by = (enum score_unit)i;
    if (out_check())
        return QWICK_ERR_RUNTIME; /* fail before the work, not after it */
    if ((j->a->html && save_check(j->a->html, &e)) || read_given(j, &e))
        return msg_fail(&e);
    j->o = (struct qwick_score_options){
        .size = sizeof(struct qwick_score_options),
        .n_ctx = (size_t)j->a->ctx,
        .window = (size_t)j->a->window,
        .stride = (size_t)j->a->stride,
        .progress = progress_step,
        .interrupt = signals_flag(),
    };
    return j->a->jsonl ? run_lines(j, &e) : run_files(j, &e);
}

static int score_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct job j = {.verb = p->verb, .p = p, .a = &p->a, .eng = eng};
    int status = score(&j);
    drop_texts(&j);
    free(j.texts);
    for (size_t i = 0; i < j.n_files; i++)
        buf_free(&j.files[i]);
    free(j.files);
    buf_free(&j.given);
    prompt_template_free(&j.template);
    against_close(&j.against);
    qwick_engine_close(j.eng);
    return status;
}

const struct verb verb_score = {
    .bit = V_SCORE,
    .needs_logits = true,
    .name = "score",
    .group = VERBS_DECIDE,
    .args = "[TEXT]",
    .summary = "how likely a text is: bits, perplexity",
    .about = "Print how surprising each token, word, line or byte of a text is "
             "to the model,\nin bits, and the totals. The text is TEXT, the "
             "files of -f, or standard input;\nits bytes are kept as they are. "
             "The first token is not scored unless --given\nputs a text before "
             "it. Perplexity is exp of the mean loss of the scored tokens.\nA "
             "token's bits are spread evenly over its bytes.",
    .examples = "  qwick score \"ls -l\"\n"
                "  qwick score --perplexity -f notes.txt\n",
    .check = score_check,
    .run = score_run,
};
