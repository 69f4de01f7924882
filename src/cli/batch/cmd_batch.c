/* The options of batch, and its run from start to end. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/answer/answer_log.h"
#include "cli/batch/batch_job.h"
#include "cli/batch/batch_key.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"

/* ---- options ---- */

/* Parse "2/5" into shard 1 of 5. */
static int batch_parse_shard(struct batch_job *j)
{
    const char *s = j->a->shard, *slash = s ? strchr(s, '/') : NULL;
    char first[24];
    int64_t i = 0, n = 0;
    j->n_shards = 1;
    if (!s)
        return -1;
    if (slash && (size_t)(slash - s) < sizeof(first)) {
        memcpy(first, s, (size_t)(slash - s));
        first[slash - s] = 0;
        if (opt_int(first, &i) || opt_int(slash + 1, &n))
            i = 0;
    }
    if (i < 1 || n < i)
        return opt_usage(j->g.p->verb,
                         "--shard: \"%s\": must be I/N, I from 1 to N", s);
    j->shard = (size_t)(i - 1);
    j->n_shards = (size_t)n;
    return -1;
}

/* Options of the forms of input and output. */
static int batch_check_forms(struct opt_parsed *p)
{
    struct args *a = &p->a;
    int r = preset_check(p);
    if (r >= 0)
        return r;
    if (a->lines)
        a->input_format = "lines";
    if (opt_given(p, OPT_seed) && !a->exact &&
        (r = opt_no_effect(p, OPT_debounce, OPT_seed,
                           "with --seed, unless --exact is given")) >= 0)
        return r;
    return (a->text || a->csv) && a->output && strcmp(a->output, "-") != 0
               ? opt_usage(p->verb,
                           "--%s: cannot be combined with --output: a run "
                           "could not be continued, since %s have no keys; > "
                           "FILE writes a file",
                           a->text ? "text" : "csv", a->text ? "texts" : "rows")
               : -1;
}

static int batch_check(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    int r;
    if (p->n_args)
        return opt_usage(p->verb, "\"%s\": takes no arguments; see --input",
                         p->args[0]);
    if (a->raw)
        answer_drop_think(p, OPT_raw, "with --raw");
    bool dash = a->system_file && strcmp(a->system_file, "-") == 0;
    dash |= a->tools && strcmp(a->tools, "-") == 0;
    for (size_t i = 0; i < a->file.n; i++)
        dash |= strcmp(a->file.v[i], "-") == 0;
    if (dash && !a->input.n)
        return opt_usage(p->verb, "-: standard input has the records");
    if (a->input.n > 1)
        return opt_usage(p->verb, "--input: one file only");
    if ((a->redo || a->retry_errors) &&
        (!a->output || strcmp(a->output, "-") == 0))
        return opt_usage(p->verb, "--%s: has no effect without --output",
                         opt_name(a->redo ? OPT_redo : OPT_retry_errors));
    if ((r = batch_check_forms(p)) >= 0 || (r = constraint_check(p)) >= 0)
        return r;
    if ((r = answer_check(p)) >= 0)
        return r;
    return answer_log_check(p);
}

/* ---- input ---- */

static int batch_open_input(struct batch_job *j)
{
    const char *path = j->a->input.n ? j->a->input.v[0] : NULL;
    int fd = STDIN_FILENO;
    if (!path || strcmp(path, "-") == 0) {
        if (!stdin_is_source())
            return opt_usage(j->g.p->verb,
                             "no input: batch reads records from standard "
                             "input, or --input");
        path = "stdin";
    } else if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        return msg_errno(path, "open");
    }
    lines_init(&j->in, path, fd);
    j->c.input = path;
    j->in.number = (uint64_t)j->a->line_offset;
    return 0;
}

/* Read what the options name, before the model is opened. Returns 0, or an exit
 * status after printing a message. */
static int batch_open_files(struct batch_job *j)
{
    struct qwick_err e = {0};
    const char *out = j->a->output;
    if (out && strcmp(out, "-") == 0)
        out = NULL;
    int status = batch_open_input(j);
    if (status)
        return status;
    if ((status = gen_read_before(&j->g, &e)) != 0)
        return status;
    if (j->a->tools && (status = tools_read(&j->g.tools, j->a->tools)) != 0)
        return status;
    if (!out && out_check())
        return QWICK_ERR_RUNTIME;
    return msg_result(
        source_open(&j->source, &j->in, j->a->input_format, j->g.p, &e) ||
            (j->a->csv && j->a->input_format &&
             source_check_columns(&j->source, "csv", form_csv.columns, &e)) ||
            batch_out_open(&j->out, out, j->a->unordered, j->in.fd, &e),
        &e);
}

/* ---- the run ---- */

/* Find out the forms of input and output. Returns 0, or an exit status after
 * printing a message. */
static int batch_choose_forms(struct batch_job *j)
{
    static const enum opt_id no[] = {OPT_extract, OPT_csv, OPT_NONE};
    struct qwick_err e;
    if (source_detect(&j->source, &e))
        return msg_fail(&e);
    bool openai = j->source.form->is_openai;
    j->form = j->a->text && j->a->null ? &form_text_null
              : j->a->text             ? &form_text
              : j->a->csv              ? &form_csv
              : openai                 ? &form_openai
                                       : &form_jsonl;
    if (!openai || j->a->text)
        return 0;
    int r = opt_no_effects(j->g.p, no, OPT_NONE, "in OpenAI's batch format");
    return r >= 0 ? r : 0;
}

/* Get the ids of a record's prompt. False: it has none, for example because the
 * checkpoint has no tokenizer. */
static bool batch_try_record(struct batch_job *j, struct request *r,
                             const char *line)
{
    return !request_open(r, &j->c, 0, line, strlen(line), NULL) &&
           !request_read(r, NULL);
}

/* Create the scheduler. The common beginning of all prompts (from -s and -f)
 * goes to the prefix cache even if there is only one record. To find it,
 * compare two prompts that share nothing else. */
static int batch_create(struct batch_job *j, struct qwick_err *e)
{
    struct request a = {0}, b = {0};
    struct qwick_batch_options o = {
        .size = sizeof(o),
        .max_batch = (size_t)j->a->max_batch,
        .n_ctx = (size_t)j->a->ctx,
        .done = batch_done,
        .done_ctx = j,
        .interrupt = signals_flag(),
    };
    if (j->a->prefix_cache.on && j->g.text.len + j->g.system.len > 0 &&
        batch_try_record(j, &a, "{\"prompt\":\"a\"}") &&
        batch_try_record(j, &b, "{\"prompt\":\"?\"}")) {
        o.common = a.ids;
        while (o.n_common < a.n_ids && o.n_common < b.n_ids &&
               a.ids[o.n_common] == b.ids[o.n_common])
            o.n_common++;
    }
    int rc = qwick_batch_create(&j->batch, j->g.eng, &o, e);
    request_free(&a);
    request_free(&b);
    return rc;
}

/* Open the models, and check the options against them and against the input.
 * Returns 0, or an exit status after printing a message. */
static int batch_open_models(struct batch_job *j)
{
    int status;
    answer_log_open(&j->g);
    j->g.p->models.cache_memory = open_model_cache_memory();
    if ((status = open_model(&j->g.eng, j->g.p, false)) != 0 ||
        (status = gen_choose_mode(&j->g)) != 0 ||
        (status = answer_check_generation(j->g.p, j->g.eng)) != 0 ||
        (status = open_model_draft(&j->g.draft, j->g.p, j->g.eng)) != 0 ||
        (status = batch_choose_forms(j)) != 0 ||
        (status = tools_check_template(&j->g.tools, j->g.eng)) != 0)
        return status;
    /* with --exact, an answer does not depend on the rest of its batch */
    j->by_number = opt_given(j->g.p, OPT_seed) && !j->a->exact;
    return request_context_open(&j->c);
}

/* Write the names of CSV's columns. */
static int batch_put_header(struct batch_job *j, struct qwick_err *e)
{
    const char *const *name = j->form->columns;
    struct buf *b = &j->out.ready;
    if (!name)
        return 0;
    source_put_columns(&j->source, NULL, csv_put, 0, ',', b);
    for (; *name; name++)
        buf_printf(b, "%s%c", *name, name[1] ? ',' : '\n');
    return b->failed ? err_oom(e, b->len) : 0;
}

static int batch_answer_all(struct batch_job *j)
{
    struct qwick_err e = {0};
    int status = batch_parse_shard(j);
    if (status >= 0)
        return status;
    if (tool_choice_parse(&j->g.choice, j->a->tool_choice))
        return msg_oom();
    status = tool_choice_check(&j->g.choice, "--tool-choice", j->g.p);
    if (status >= 0 || (status = batch_open_files(j)) != 0 ||
        (status = batch_open_models(j)) != 0)
        return status;
    if (batch_create(j, &e) || batch_key_open(j, &e) ||
        batch_out_begin(&j->out, batch_run_key(j), j->a->redo,
                        j->a->retry_errors, &e) ||
        batch_put_header(j, &e))
        return msg_fail(&e);
    if ((status = sandbox_enter(j->g.p, j->g.eng, j->g.draft, SIZE_MAX)) != 0)
        return status;
    signals_catch();
    status = batch_work(j);
    if (batch_out_close(&j->out, &e) && !status)
        status = msg_fail(&e);
    return status;
}

static int batch_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct batch_job j = {.g = {.p = p, .eng = eng},
                          .a = &p->a,
                          .in.fd = -1,
                          .out = BATCH_OUT_NONE};
    request_context_init(&j.c, &j.g);
    j.c.name = RECORD;
    j.c.unit = "line";
    int status = batch_answer_all(&j);
    qwick_batch_free(j.batch);
    batch_drop(&j);
    request_context_free(&j.c);
    gen_free(&j.g);
    if (j.in.fd > STDIN_FILENO)
        close(j.in.fd);
    source_free(&j.source);
    buf_free(&j.columns);
    lines_free(&j.in);
    batch_out_close(&j.out, NULL);
    free(j.ids.v);
    hashmap_free(&j.ids.map);
    return status;
}

const struct verb verb_batch = {
    .bit = V_BATCH,
    .needs_logits = true,
    .name = "batch",
    .group = VERBS_ANSWER,
    .args = "",
    .summary = "answer many prompts: JSON lines, texts, tables",
    .about =
        "Answer the records of a file or of standard input, many at once. "
        "A record is a\nJSON object on a line of its own; --input-format "
        "takes lines, tables and\nOpenAI's batch format, too. A record has "
        "\"prompt\", \"messages\" or \"prompt_ids\",\nand it can overrule "
        "options: \"temperature\", \"top_k\", \"top_p\", \"min_p\",\n"
        "\"repeat_penalty\", \"presence_penalty\", \"frequency_penalty\", "
        "\"seed\",\n\"max_tokens\", \"stop\", \"think\", \"think_budget\", "
        "\"n\" (samples), \"logprobs\",\n\"logit_bias\", \"tools\", "
        "\"tool_choice\", and one of \"regex\", \"choices\",\n\"grammar\" "
        "and \"json_schema\". Each answer is the object of generate --json\n"
        "with \"line\" and the record's \"id\".",
    .examples = "  echo '{\"id\":1,\"prompt\":\"list files\"}' | qwick batch\n"
                "  qwick batch -i prompts.jsonl -o answers.jsonl\n"
                "  ls | qwick batch --lines --text --prompt-template "
                "'Rename {}'\n",
    .check = batch_check,
    .run = batch_run,
};
