/* The options of batch, and its run from start to end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "cli/batch/batch_job.h"
#include "cli/answer/gen_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/sandbox/sandbox.h"
#include "cli/io/signals.h"
#include "cli/opt/verbs.h"

#define ARG(field) offsetof(struct batch_args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Input and output"},
    {.name = "input",
     .letter = 'i',
     .type = OPT_TEXTS,
     .arg = "FILE",
     .def = "standard input",
     .help = "records, one JSON object per line",
     .offset = COMMON(input)},
    {.name = "input-format",
     .type = OPT_CHOICE,
     .arg = "FORM",
     .choices = "jsonl|openai|lines|csv|tsv",
     .def = "jsonl or openai, as the first record",
     .help = "form of the input",
     .offset = ARG(format)},
    {.name = "lines",
     .type = OPT_FLAG,
     .help = "each line is a prompt, as --input-format lines",
     .offset = COMMON(lines)},
    {.name = "output",
     .letter = 'o',
     .type = OPT_FILE,
     .access = OPT_REWRITES,
     .arg = "FILE",
     .def = "standard output",
     .help =
         "answers, one JSON object per line; a file that is there is continued",
     .offset = ARG(output)},
    {.name = "redo",
     .type = OPT_FLAG,
     .help = "replace answers in FILE that another model, prompt, seed or "
             "other options gave",
     .offset = ARG(redo)},
    {.name = "text",
     .type = OPT_FLAG,
     .help = "write only texts, one answer per line; a line end in an answer "
             "becomes \\n",
     .offset = ARG(text)},
    {.name = "unordered",
     .type = OPT_FLAG,
     .help = "write answers as they finish, not in the order of the input",
     .offset = ARG(unordered)},
    {.name = "shard",
     .type = OPT_TEXT,
     .arg = "I/N",
     .help = "answer every N-th record, beginning with the I-th; 1/1: all",
     .offset = ARG(shard)},
    {.name = "line-offset",
     .type = OPT_INT,
     .arg = "N",
     .imin = 0,
     .imax = (int64_t)1 << 52,
     .def = "0",
     .help =
         "count the lines of the input from N + 1, for a part of a larger file",
     .offset = ARG(line_offset)},
    OPT_ROWS_MAX_BATCH(ARG(max_batch), "16",
                       "most sequences to evaluate at once"),
    {.name = "debounce",
     .type = OPT_INT,
     .arg = "MS",
     .imin = 0,
     .imax = 60000,
     .def = "5",
     .help =
         "when idle, wait for records until none has come for MS milliseconds "
         "or a batch is full; with --seed: until a batch is full",
     .offset = ARG(debounce)},

    {.type = OPT_HEADING, .help = "Prompts"},
    OPT_ROWS_PRESET(ARG(preset)),
    {.name = "file",
     .letter = 'f',
     .type = OPT_TEXTS,
     .arg = "FILE",
     .help = "text before each prompt; repeatable",
     .offset = ARG(files)},
    OPT_ROWS_FILE_NAMES(ARG(file_names)),
    OPT_ROWS_SYSTEM(ARG(system), ARG(system_file),
                    "system prompt for records that have none"),
    OPT_ROWS_TOOLS(ARG(tools), "definitions of tools, for records that have "
                               "none"),
    OPT_ROWS_TOOL_CHOICE(ARG(tool_choice)),
    OPT_ROWS_THINK(ARG(think)),
    OPT_ROWS_THINK_BUDGET(ARG(answer)),
    OPT_ROWS_TEMPLATE,
    OPT_ROWS_ALLOW_SPECIAL(ARG(allow_special)),
    {.name = "raw",
     .type = OPT_FLAG,
     .help = "no chat template: continue the text as it is",
     .offset = ARG(raw)},

    {.type = OPT_HEADING,
     .help = "Length (a record's own \"max_tokens\" and \"stop\" come first)"},
    OPT_ROWS_MAX_TOKENS(ARG(answer)),
    OPT_ROWS_CTX,
    OPT_ROWS_STOP(ARG(answer)),
    OPT_ROWS_ENDING(ARG(answer), "exit status 1"),

    OPT_ROWS_CONSTRAINT(ARG(constraint), "exit status 1"),

    OPT_ROWS_SAMPLING(ARG(answer)),
    {.name = "seed",
     .type = OPT_INT,
     .arg = "N",
     .imin = 0,
     .imax = INT64_MAX,
     .def = "random",
     .help = "seed of the run: with its line number, it gives a record its "
             "seed; records are grouped by number, not by arrival",
     .offset = ARG(answer.seed)},
    OPT_ROWS_LOGPROBS(ARG(answer), ""),
    {.name = "extract",
     .letter = 'x',
     .type = OPT_FLAG,
     .help =
         "also give the first fenced code block of each answer, as \"code\"",
     .offset = ARG(extract)},

    {.type = OPT_HEADING, .help = "Model and machine"},
    OPT_ROWS_MODEL,
    OPT_ROWS_THREADS,
    OPT_ROWS_KERNELS,
    OPT_ROWS_PREFILL,
    OPT_ROWS_DRAFT(ARG(draft)),
    OPT_ROWS_PREFIX,
    OPT_ROWS_SANDBOX,
    OPT_ROWS_BASIC,
};

/* ---- options ---- */

/* Parse "2/5" into shard 1 of 5. */
static int parse_shard(struct batch_job *j)
{
    const char *s = j->a.shard, *slash = s ? strchr(s, '/') : NULL;
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
        return opt_usage(j->verb, "--shard: \"%s\": must be I/N, I from 1 to N",
                         s);
    j->shard = (size_t)(i - 1);
    j->n_shards = (size_t)n;
    return -1;
}

/* Options of the forms of input and output. */
static int check_forms(struct batch_job *j)
{
    static const char *const with_seed[] = {"debounce", NULL};
    static const char *const with_text[] = {"logprobs", "tools", "tool-choice",
                                            NULL};
    struct batch_args *a = &j->a;
    int r = preset_check(&j->p, &a->preset);
    if (r >= 0 || (r = opt_conflict(&j->p, "lines", "input-format")) >= 0)
        return r;
    if (a->c.lines)
        a->format = "lines";
    if (opt_given(&j->p, "seed") && !a->c.exact &&
        (r = opt_no_effect(&j->p, with_seed,
                           "with --seed, unless --exact is given")) >= 0)
        return r;
    if (!a->text)
        return -1;
    if (a->output && strcmp(a->output, "-") != 0)
        return opt_usage(j->verb, "--text: cannot be combined with --output: a "
                                  "run could not be continued, since texts "
                                  "have no keys");
    if ((r = opt_conflict(&j->p, "text", "unordered")) >= 0)
        return r;
    return opt_no_effect(&j->p, with_text, "with --text");
}

static int check(struct batch_job *j)
{
    static const char *const with_raw[] = {
        "system", "system-file", "allow-special", "tools", "tool-choice", NULL};
    static const char *const with_files[] = {"file-names", NULL};
    const struct batch_args *a = &j->a;
    int r;
    if (j->p.n_args)
        return opt_usage(j->verb, "\"%s\": takes no arguments; see --input",
                         j->p.args[0]);
    if (a->raw && (r = opt_no_effect(&j->p, with_raw, "with --raw")) >= 0)
        return r;
    if (a->raw)
        answer_drop_think(&j->p, a->think, "with --raw");
    if ((r = opt_conflict(&j->p, "system", "system-file")) >= 0)
        return r;
    if (!a->files.n &&
        (r = opt_no_effect(&j->p, with_files, "without -f")) >= 0)
        return r;
    bool dash = a->system_file && strcmp(a->system_file, "-") == 0;
    dash |= a->tools && strcmp(a->tools, "-") == 0;
    for (size_t i = 0; i < a->files.n; i++)
        dash |= strcmp(a->files.v[i], "-") == 0;
    if (dash && !a->c.input.n)
        return opt_usage(j->verb, "-: standard input has the records");
    if (a->c.input.n > 1)
        return opt_usage(j->verb, "--input: one file only");
    if (a->redo && (!a->output || strcmp(a->output, "-") == 0))
        return opt_usage(j->verb, "--redo: has no effect without --output");
    if ((r = parse_shard(j)) >= 0 || (r = check_forms(j)) >= 0)
        return r;
    if ((r = constraint_check(&j->p, &a->constraint)) >= 0)
        return r;
    if (tool_choice_parse(&j->common.choice, a->tool_choice))
        return msg_oom();
    if ((r = tool_choice_check(&j->common.choice, "--tool-choice", &j->p)) >= 0)
        return r;
    return answer_check(&j->p, &a->answer);
}

/* ---- input ---- */

static int open_input(struct batch_job *j)
{
    const char *path = j->a.c.input.n ? j->a.c.input.v[0] : NULL;
    struct stat st;
    int fd = STDIN_FILENO;
    if (!path || strcmp(path, "-") == 0) {
        if (!stdin_is_source())
            return opt_usage(j->verb,
                             "no input: batch reads records from standard "
                             "input, or --input");
        path = "stdin";
    } else if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        msg_error("%s: open: %s", path, strerror(errno));
        return QWICK_ERR_RUNTIME;
    }
    lines_init(&j->in, path, fd);
    j->in.number = (uint64_t)j->a.line_offset;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
        j->in_bytes = (uint64_t)st.st_size;
    return 0;
}

/* Read the texts of -s, --system-file and -f. */
static int read_texts(struct batch_job *j, struct qwick_err *e)
{
    const struct batch_args *a = &j->a;
    struct request_common *c = &j->common;
    const struct prompt_sources sources = {.files = &a->files,
                                           .names = a->file_names,
                                           .no_stdin = true,
                                           .exact = a->raw,
                                           .others = true};
    struct prompt_faults faults = {0};
    if (prompt_system(&j->system, a->system, a->system_file, a->raw, &faults,
                      e) ||
        prompt_compose(&c->before, &sources, &faults, e))
        return -1;
    prompt_warn_faults(&faults, "prompt");
    if (a->system || a->system_file) {
        c->system = j->system.data ? j->system.data : "";
        c->n_system = j->system.len;
    }
    return 0;
}

/* ---- the run ---- */

/* A checkpoint without a template gets raw prompts; options that need a
 * template are refused.
 */
static int choose_mode(struct batch_job *j)
{
    static const char *const need[] = {"system", "system-file", "allow-special",
                                       "tools",  "tool-choice", NULL};
    struct request_common *c = &j->common;
    c->raw = j->a.raw;
    if (c->raw)
        return 0;
    int r = answer_choose_raw(&j->p, j->a.think, need, j->eng);
    c->raw = r == 0;
    return r < 0 ? 0 : r;
}

/* Find out the forms of input and output. Returns 0, or an exit status after
 * printing a message. */
static int choose_forms(struct batch_job *j)
{
    static const char *const no_extract[] = {"extract", NULL};
    struct qwick_err e;
    if (source_detect(&j->source, &e))
        return msg_fail(&e);
    j->form = j->a.text ? &form_text : j->source.form->out;
    if (j->form != &form_openai)
        return 0;
    int r = opt_no_effect(&j->p, no_extract, "in OpenAI's batch format");
    return r >= 0 ? r : 0;
}

/* Set the run's key, and compare the answers of the output with it. */
static int begin_output(struct batch_job *j, struct qwick_err *e)
{
    size_t n_ctx = (size_t)j->a.c.ctx;
    if (!n_ctx)
        n_ctx = qwick_engine_info(j->eng)->n_ctx_max;
    const char *form = j->form == &form_jsonl ? NULL : j->form->name;
    return request_run_key(&j->common, j->eng, j->a.c.exact, n_ctx, form, e) ||
                   batch_out_begin(&j->out, batch_run_key(j), j->a.redo, e)
               ? -1
               : 0;
}

static void set_common(struct batch_job *j)
{
    const struct batch_args *a = &j->a;
    struct request_common *c = &j->common;
    c->p = &j->p;
    c->eng = j->eng;
    c->draft = j->draft;
    c->answer = &a->answer;
    c->name = j->in.name;
    c->allow_special = a->allow_special;
    c->extract = a->extract;
    c->think = a->think && strcmp(a->think, "on") == 0    ? QWICK_THINK_ON
               : a->think && strcmp(a->think, "off") == 0 ? QWICK_THINK_OFF
                                                          : QWICK_THINK_AUTO;
    c->seeded = opt_given(&j->p, "seed");
    c->seed = c->seeded ? (uint64_t)a->answer.seed : rng_random_seed();
}

/* Get the ids of a record's prompt. False: it has none, for example because the
 * checkpoint has no tokenizer. */
static bool try_record(struct batch_job *j, struct request *r, const char *line)
{
    return !request_open(r, 0, line, strlen(line), NULL) &&
           !request_read(r, &j->common, NULL);
}

/* Create the scheduler. The common beginning of all prompts (from -s and -f)
 * goes to the prefix cache even if there is only one record. To find it,
 * compare two prompts that share nothing else. */
static int create(struct batch_job *j, struct qwick_err *e)
{
    const struct request_common *c = &j->common;
    struct request a = {0}, b = {0};
    struct qwick_batch_options o = {
        .size = sizeof(o),
        .max_batch = (size_t)j->a.max_batch,
        .n_ctx = (size_t)j->a.c.ctx,
        .done = batch_done,
        .done_ctx = j,
        .interrupt = signals_flag(),
    };
    if (j->a.c.prefix_cache.on && c->before.len + c->n_system > 0 &&
        try_record(j, &a, "{\"prompt\":\"a\"}") &&
        try_record(j, &b, "{\"prompt\":\"?\"}")) {
        o.common = a.ids;
        while (o.n_common < a.n_ids && o.n_common < b.n_ids &&
               a.ids[o.n_common] == b.ids[o.n_common])
            o.n_common++;
    }
    int rc = qwick_batch_create(&j->batch, j->eng, &o, e);
    request_free(&a);
    request_free(&b);
    return rc;
}

/* Compile the constraint of the options, if there is one. */
static int open_constraint(struct batch_job *j)
{
    struct request_common *c = &j->common;
    struct qwick_constraint_options o;
    struct qwick_err e;
    struct buf text = {0};
    char *data = NULL;
    int status = 0;
    bool choice = c->choice.kind != CHOICE_AUTO && c->tools.list.len;
    if (!choice && !constraint_given(&j->p))
        return 0;
    if (!choice)
        status = constraint_read(&o, &data, &j->p, &j->a.constraint);
    else if (tool_choice_constraint(&c->choice, &c->tools.list, &text, &o, &e))
        status = msg_fail(&e);
    if (choice)
        o.name = "--tool-choice";
    if (!status &&
        constraint_cache_get(&c->constraints, j->eng, &o, &c->constraint, &e))
        status = msg_fail(&e);
    buf_free(&text);
    free(data);
    return status;
}

static int run(struct batch_job *j)
{
    struct qwick_err e = {0};
    const char *out = j->a.output;
    int status = check(j);
    if (status >= 0)
        return status;
    if ((status = open_input(j)) != 0)
        return status;
    if (out && strcmp(out, "-") == 0)
        out = NULL;
    if (read_texts(j, &e))
        return msg_fail(&e);
    if (j->a.tools && (status = tools_read(&j->common.tools, j->a.tools)) != 0)
        return status;
    if (!out && out_check())
        return QWICK_ERR_RUNTIME;
    if (source_open(&j->source, &j->in, j->a.format, &j->p, &j->a.preset, &e))
        return msg_fail(&e);
    if (batch_out_open(&j->out, out, j->a.unordered, j->in.fd, &e))
        return msg_fail(&e);
    j->a.c.prefix_memory = common_cache_memory();
    if ((status = common_open(&j->eng, &j->a.c, false)) != 0 ||
        (status = choose_mode(j)) != 0)
        return status;
    if ((status = answer_check_generation(&j->p, &j->a.answer, j->eng)) != 0 ||
        (status = common_open_draft(&j->draft, &j->a.c, j->eng)) != 0)
        return status;
    if ((status = choose_forms(j)) != 0)
        return status;
    set_common(j);
    if ((status = tools_check_template(&j->common.tools, j->eng)) != 0)
        return status;
    if ((status = open_constraint(j)) != 0)
        return status;
    /* with --exact, an answer does not depend on the rest of its batch */
    j->by_number = opt_given(&j->p, "seed") && !j->a.c.exact;
    if (create(j, &e) || begin_output(j, &e))
        return msg_fail(&e);
    if ((status = sandbox_enter(&j->p, &j->a.c, j->eng, j->draft, SIZE_MAX)) !=
        0)
        return status;
    signals_catch();
    status = batch_work(j);
    if (batch_out_close(&j->out, &e) && !status)
        status = msg_fail(&e);
    return status;
}

static int batch_run(const struct verb *v, int argc, char **argv)
{
    struct batch_job j = {
        .verb = v, .in.fd = -1, .out = {.fd = -1, .pending_fd = -1}};
    j.a.max_batch = 16;
    j.a.debounce = 5;
    int status = opt_parse(&j.p, v, argc, argv, &j.a);
    if (status < 0)
        status = common_check(&j.p, &j.a.c);
    if (status < 0)
        status = run(&j);
    qwick_batch_free(j.batch);
    batch_drop(&j);
    constraint_cache_free(&j.common.constraints);
    tools_free(&j.common.tools);
    tool_choice_free(&j.common.choice);
    qwick_engine_close(j.eng);
    qwick_engine_close(j.draft);
    if (j.in.fd > STDIN_FILENO)
        close(j.in.fd);
    source_free(&j.source);
    lines_free(&j.in);
    batch_out_close(&j.out, NULL);
    free(j.ids.v);
    buf_free(&j.common.before);
    buf_free(&j.common.unknown);
    buf_free(&j.system);
    opt_free(&j.p, &j.a);
    return status;
}

const struct verb verb_batch = {
    .name = "batch",
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
        "\"n\" (samples), \"logprobs\",\n\"tools\", \"tool_choice\", and one "
        "of \"regex\", \"choices\", \"grammar\" and\n\"json_schema\". Each "
        "answer is the object of generate --json with \"line\" and\nthe "
        "record's \"id\".",
    .examples = "  echo '{\"id\":1,\"prompt\":\"list files\"}' | qwick batch\n"
                "  qwick batch -i prompts.jsonl -o answers.jsonl\n"
                "  ls | qwick batch --lines --text --prompt-template "
                "'Rename {}'\n",
    OPT_TABLE(opts),
    .run = batch_run,
};
