/* choose with records: labels for many prompts. */
#include <stdlib.h>
#include <string.h>

#include "cli/answer/chat_input.h"
#include "cli/decide/choose_job.h"
#include "cli/io/escape.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"
#include "file/csv.h"
#include "text/chat/chat_values.h"

/* Maximum number of errors that are printed because lines have no place for
 * them; further errors are only counted. */
enum { SHOWN_ERRORS = 20 };

/* ---- prompts ------------------------------------------------------------ */

static int take_ids(const struct choose_job *j, struct choose_prompt *l,
                    const struct json_value *v, struct qwick_err *e)
{
    int64_t id, most = (int64_t)qwick_engine_info(j->g.eng)->vocab_size - 1;
    if (!json_is(v, JSON_ARRAY) || v->len == 0)
        return err_usage(e, "prompt_ids: not an array of token ids");
    l->ids = malloc(v->len * sizeof(*l->ids));
    if (!l->ids)
        return err_oom(e, v->len * sizeof(*l->ids));
    for (size_t i = 0; i < v->len; i++) {
        if (json_int(&v->items[i], 0, most, &id))
            return err_usage(
                e, "prompt_ids: item %zu is not a token id from 0 to %lld", i,
                (long long)most);
        l->ids[l->n_ids++] = (int32_t)id;
    }
    return 0;
}

static int take_chat(const struct choose_job *j, struct choose_prompt *l,
                     const struct qwick_chat *chat, struct qwick_err *e)
{
    const struct qwick_chat_options o = {.size = sizeof(o),
                                         .add_generation_prompt = true,
                                         .think = QWICK_THINK_OFF,
                                         .allow_special = j->a->allow_special};
    bool in_think;
    if (qwick_chat_encode(chat, j->g.eng, &o, j->g.prefill.data,
                          j->g.prefill.len, &l->ids, &l->n_ids, &in_think, e))
        return -1;
    return in_think && !j->a->prefill
               ? choose_close_thinking(j->g.eng, &l->ids, &l->n_ids, e)
               : 0;
}

static int take_text(const struct choose_job *j, struct choose_prompt *l,
                     const struct json_value *v, struct qwick_err *e)
{
    const struct buf *before = &j->g.text, *system = &j->g.system;
    struct qwick_chat *chat = NULL;
    struct buf text = {0};
    int r = -1;
    if (!json_is(v, JSON_STRING))
        return err_usage(e, "prompt: not a string");
    if (before->len + v->len == 0)
        return err_usage(e, "prompt: is empty");
    if (buf_append(&text, before->data, before->len) ||
        (before->len && v->len && buf_puts(&text, "\n\n")) ||
        buf_append(&text, v->str, v->len))
        err_oom(e, v->len);
    else if (j->g.mode == MODE_RAW)
        r = qwick_tokenize_prompt(j->g.eng, text.data, text.len, true, 0,
                                  &l->ids, &l->n_ids, e);
    else if (!qwick_chat_create(&chat, e) &&
             !chat_input_texts(chat, system->data, system->len, text.data,
                               text.len, e))
        r = take_chat(j, l, chat, e);
    qwick_chat_free(chat);
    buf_free(&text);
    return r;
}

static int take_messages(const struct choose_job *j, struct choose_prompt *l,
                         const struct json_value *v, struct qwick_err *e)
{
    const struct chat_values values = chat_values_of(v);
    struct qwick_chat *chat;
    int r = -1;
    if (j->g.mode == MODE_RAW || j->g.text.len || j->g.system.data)
        return err_usage(e, "messages: cannot be combined with %s",
                         j->g.mode == MODE_RAW ? "--raw"
                         : j->g.text.len       ? "--file"
                                               : "--system");
    if (qwick_chat_create(&chat, e))
        return -1;
    if (!chat_add_values(chat, &values, e) &&
        !chat_input_check(chat, "record: ", e))
        r = take_chat(j, l, chat, e);
    qwick_chat_free(chat);
    return r;
}

static int read_prompt(void *ctx, size_t i, const struct json_value *v,
                       struct qwick_err *e)
{
    struct choose_job *j = ctx;
    struct choose_prompt *l = &j->prompts[i];
    const struct json_value *text = json_get(v, "prompt");
    const struct json_value *messages = json_get(v, "messages");
    const struct json_value *ids = json_get(v, "prompt_ids");
    size_t limit = choose_context(j);
    if ((text != NULL) + (messages != NULL) + (ids != NULL) != 1)
        return err_usage(e,
                         "not one of \"prompt\", \"messages\", \"prompt_ids\"");
    int r = ids        ? take_ids(j, l, ids, e)
            : messages ? take_messages(j, l, v, e)
                       : take_text(j, l, text, e);
    if (r == 0 && l->n_ids == 0)
        r = err_usage(e, "prompt: has no tokens");
    if (r == 0 && (j->longest > limit || l->n_ids > limit + 1 - j->longest))
        r = err_set(e, QWICK_ERR_CONTEXT,
                    "prompt: %zu tokens and an answer's %zu do not fit the "
                    "context of %zu",
                    l->n_ids, j->longest - 1, limit);
    if (r) {
        free(l->ids);
        l->ids = NULL;
    }
    return r;
}

static int choose_group(void *ctx, struct qwick_err *e)
{
    struct choose_job *j = ctx;
    struct qwick_choose_item items[RECORDS_GROUP];
    size_t n = 0;
    for (size_t i = 0; i < j->n_prompts; i++)
        if (j->prompts[i].ids)
            items[n++] = (struct qwick_choose_item){
                j->prompts[i].ids, j->prompts[i].n_ids,
                j->logprobs + i * j->n_answers};
    return n ? qwick_choose(j->g.eng, items, n, j->answers, j->n_answers, &j->o,
                            e)
             : 0;
}

static void drop_prompts(void *ctx)
{
    struct choose_job *j = ctx;
    for (size_t i = 0; i < j->n_prompts; i++) {
        free(j->prompts[i].ids);
        j->prompts[i] =
            (struct choose_prompt){.columns = j->prompts[i].columns};
    }
    j->n_prompts = 0;
}

/* ---- answers ------------------------------------------------------------ */

/* Return the label of record i, and set its probability. NULL: it is below
 * --threshold. */
static const char *record_label(struct choose_job *j, size_t i,
                                double *probability)
{
    choices_make(j->choices, j->texts, j->logprobs + i * j->n_answers,
                 j->n_answers, j->a->in_order);
    const char *answer = choose_verdict(j, probability);
    if (!opt_given(j->g.p, OPT_threshold) ||
        *probability >= choose_threshold(j))
        return answer;
    j->any_below = true;
    return j->a->yes ? answer : NULL;
}

static int write_object(void *ctx, size_t i, struct json_writer *w,
                        struct qwick_err *e)
{
    struct choose_job *j = ctx;
    double probability;
    const char *label = record_label(j, i, &probability);
    choices_put_json(w, j->choices, j->n_answers, label, probability);
    return jw_status(w) ? err_oom(e, w->out->len) : 0;
}

/* "LABEL<TAB>PROBABILITY", and the columns of the input behind them. */
static void put_tabs(void *ctx, size_t i, const char *error, struct buf *out)
{
    struct choose_job *j = ctx;
    const struct choose_prompt *l = &j->prompts[i];
    double probability;
    if (error && j->n_bad++ < SHOWN_ERRORS) {
        progress_clear();
        msg_error("%s", error);
    }
    if (l->ids) {
        const char *label = record_label(j, i, &probability);
        choice_put_line(out, label, probability);
    } else {
        buf_putc(out, '\t');
    }
    buf_append(out, l->columns.data, l->columns.len);
    buf_putc(out, '\n');
}

static void put_csv(void *ctx, size_t i, const char *error, struct buf *out)
{
    struct choose_job *j = ctx;
    const struct choose_prompt *l = &j->prompts[i];
    double probability;
    buf_append(out, l->columns.data, l->columns.len);
    if (l->ids) {
        const char *label = record_label(j, i, &probability);
        csv_put(out, label ? label : "", label ? strlen(label) : 0);
        buf_printf(out, ",%.6f,", probability);
    } else {
        buf_puts(out, ",,");
    }
    csv_put(out, error ? error : "", error ? strlen(error) : 0);
    buf_putc(out, '\n');
}

/* Tabs and line ends of a column become \t, \n, \r, as in the forms of batch,
 * and a backslash two. */
static void put_escaped(struct buf *out, const char *text, size_t n)
{
    escape_letters(out, text, n, "\t\n\r\\", "tnr\\", false);
}

/* ---- the input ---------------------------------------------------------- */

/* Begin a record of the group: keep the columns that its line shows. */
static int begin_record(void *ctx, const struct source_record *r)
{
    struct choose_job *j = ctx;
    struct buf *columns = &j->prompts[j->n_prompts++].columns;
    int rc = 0;
    columns->len = 0;
    if (j->form == CHOOSE_JSONL && r->line == 1 && !r->blank && r->n &&
        r->text[strspn(r->text, " \t\r")] != '{')
        source_warn_no_json(j->input.in.name);
    if (j->form == CHOOSE_CSV)
        rc = source_put_columns(&j->input.source, r, csv_put, 0, ',', columns);
    else if (j->a->with_input)
        rc = source_put_columns(&j->input.source, r, put_escaped, '\t', 0,
                                columns);
    return rc ? msg_oom() : 0;
}

static int read_input(void *ctx, const struct lines_handler *h, void *h_ctx)
{
    struct choose_job *j = ctx;
    return source_files_run(&j->input, begin_record, j, h, h_ctx);
}

/* The columns that CSV has after those of the input. */
static const char *const csv_columns[] = {"answer", "probability", "error",
                                          NULL};

/* Open the first file of the input, and check it against the options. */
static int open_input(struct choose_job *j, struct qwick_err *e)
{
    int status = source_files_open(&j->input, j->g.p, j->a->input_format);
    if (status || j->form != CHOOSE_CSV)
        return status;
    return msg_result(
        source_check_columns(&j->input.source, "csv", csv_columns, e), e);
}

static int put_header(struct choose_job *j)
{
    struct buf b = {0};
    if (j->form != CHOOSE_CSV)
        return 0;
    source_put_columns(&j->input.source, NULL, csv_put, 0, ',', &b);
    for (const char *const *name = csv_columns; *name; name++)
        buf_printf(&b, "%s%c", *name, name[1] ? ',' : '\n');
    return out_print(&b, out_write);
}

int choose_records(struct choose_job *j, struct qwick_err *e)
{
    static const struct records_work base = {.read = read_prompt,
                                             .work = choose_group,
                                             .write = write_object,
                                             .drop = drop_prompts,
                                             .input = read_input,
                                             .required = true};
    struct records_work w = base;
    int status = gen_read_before(&j->g, e);
    if (j->form != CHOOSE_JSONL)
        w.row = j->form == CHOOSE_CSV ? put_csv : put_tabs;
    if (status || (status = open_input(j, e)) != 0)
        return status;
    signals_catch();
    if ((status = choose_open(j, e)) != 0)
        return status;
    j->prompts = calloc(RECORDS_GROUP, sizeof(*j->prompts));
    if (!j->prompts)
        return msg_oom();
    if ((status = put_header(j)) != 0)
        return status;
    status = records_run(j->g.p->verb->name, &j->a->input, &w, j);
    if (j->n_bad)
        msg_error(
            "%zu %s", j->n_bad,
            plural(j->n_bad, "record has no label", "records have no labels"));
    return !status && j->any_below ? EXIT_BELOW : status;
}

void choose_free_records(struct choose_job *j)
{
    drop_prompts(j);
    for (size_t i = 0; j->prompts && i < RECORDS_GROUP; i++)
        buf_free(&j->prompts[i].columns);
    free(j->prompts);
    source_files_free(&j->input);
}

/* ---- options ------------------------------------------------------------ */

/* Whether a - stands for the records' place, so that no other option may name
 * standard input. */
static bool records_on_stdin(const struct args *a)
{
    bool dash = !a->input.n;
    for (size_t i = 0; i < a->input.n; i++)
        dash |= strcmp(a->input.v[i], "-") == 0;
    return dash;
}

int choose_check_records(struct opt_parsed *p, enum choose_form *form)
{
    struct args *a = &p->a;
    if (a->lines)
        a->input_format = "lines";
    else if (!a->input_format && (a->jsonl || a->input.n))
        a->input_format = "jsonl";
    *form = !a->input_format                        ? CHOOSE_ONE
            : a->csv                                ? CHOOSE_CSV
            : strcmp(a->input_format, "jsonl") == 0 ? CHOOSE_JSONL
                                                    : CHOOSE_TABS;
    if (*form == CHOOSE_ONE)
        return -1;
    if (p->n_args)
        return opt_usage(p->verb,
                         "\"%s\": has no effect with records; "
                         "--prompt-template \"... {}\" asks about each",
                         p->args[0]);
    if (a->input.n > 1 && strchr("ct", *a->input_format))
        return opt_usage(p->verb,
                         "--input: one file only with --input-format "
                         "%s",
                         a->input_format);
    for (size_t i = 0; records_on_stdin(a) && i < a->file.n; i++)
        if (strcmp(a->file.v[i], "-") == 0)
            return opt_usage(p->verb, "--file -: standard input has the "
                                      "records");
    return -1;
}
