#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_tune.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/io/out.h"
#include "cli/report/plot_text.h"
#include "cli/io/progress.h"
#include "cli/io/term.h"
#include "cli/opt/verbs.h"
#include "file/save.h"
#include "qwick.h"

struct args {
    struct common_args c;
    struct opt_ints prompt_lens, depths, batches, threads;
    struct opt_texts models;
    int64_t gen, reps, warmup;
    bool md, csv, parts, compare_any, tune;
    const char *html, *compare;
    double fail_below;
};

#define ARG(field) offsetof(struct args, field)
#define MAX_LEN    10000000

/* Rounds of --tune: a round takes a third of a second. */
enum { TUNE_REPS = 25 };

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Measurements"},
    {.name = "prompt-lens",
     .type = OPT_INTS,
     .arg = "N,...",
     .imin = 1,
     .imax = MAX_LEN,
     .def = "512",
     .help = "tokens of the prompts whose prefill is timed",
     .offset = ARG(prompt_lens)},
    {.name = "gen",
     .type = OPT_INT,
     .arg = "N",
     .imin = 1,
     .imax = MAX_LEN,
     .def = "64",
     .help = "decode steps of a timed run",
     .offset = ARG(gen)},
    {.name = "depths",
     .type = OPT_INTS,
     .arg = "N,...",
     .imin = 1,
     .imax = MAX_LEN,
     .def = "16",
     .help = "tokens in the context before the decode steps",
     .offset = ARG(depths)},
    {.name = "batches",
     .type = OPT_INTS,
     .arg = "N,...",
     .imin = 1,
     .imax = 1024,
     .def = "none",
     .help = "sequences decoded together, at each of the depths",
     .offset = ARG(batches)},
    {.name = "threads",
     .letter = 't',
     .type = OPT_INTS,
     .arg = "N,...",
     .imin = 1,
     .imax = 1024,
     .def = "physical cores",
     .help = "numbers of threads to measure with",
     .offset = ARG(threads)},
    {.name = "reps",
     .type = OPT_INT,
     .arg = "N",
     .imin = 1,
     .imax = 1000,
     .def = "5, with --tune 25",
     .help = "timed runs of each measurement",
     .offset = ARG(reps)},
    {.name = "warmup",
     .type = OPT_INT,
     .arg = "N",
     .imin = 0,
     .imax = 1000,
     .def = "1",
     .help = "runs before the timed ones that do not count",
     .offset = ARG(warmup)},

    {.name = "parts",
     .type = OPT_FLAG,
     .help = "also show where a pass spends its time",
     .offset = ARG(parts)},

    {.name = "tune",
     .type = OPT_FLAG,
     .help = "instead measure all variants of each choice between kernels",
     .offset = ARG(tune)},

    {.type = OPT_HEADING, .help = "Output"},
    {.name = "md",
     .type = OPT_FLAG,
     .help = "print a Markdown table",
     .offset = ARG(md)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print JSON, one object for each model",
     .offset = COMMON(json)},
    {.name = "csv",
     .type = OPT_FLAG,
     .help = "print CSV, one line for each row",
     .offset = ARG(csv)},
    {.name = "html",
     .access = OPT_REPLACES,
     .type = OPT_FILE,
     .arg = "FILE",
     .help = "also write a page with charts to FILE",
     .offset = ARG(html)},

    {.type = OPT_HEADING, .help = "Comparison"},
    {.name = "compare",
     .type = OPT_FILE,
     .arg = "FILE",
     .help = "also show the ratio of each row to that in FILE, which --json "
             "printed",
     .offset = ARG(compare)},
    {.name = "fail-below",
     .type = OPT_NUMBER,
     .arg = "RATIO",
     .min = 0.001,
     .max = 1000,
     .def = "never",
     .help = "with --compare: exit status 1 if a row's share of its limit is "
             "below RATIO of that in FILE",
     .offset = ARG(fail_below)},
    {.name = "compare-any",
     .type = OPT_FLAG,
     .help = "with --compare: FILE may be about another machine, model or "
             "settings",
     .offset = ARG(compare_any)},

    {.type = OPT_HEADING, .help = "Model and machine"},
    {.name = "model",
     .letter = 'm',
     .type = OPT_FILES,
     .arg = "MODEL",
     .help = "model, see qwick(1); repeatable, measured one after the other",
     .def = "the built-in demo model",
     .offset = ARG(models)},
    OPT_ROWS_KERNELS,
    OPT_ROWS_CORE,
    OPT_ROWS_PREFILL,
    OPT_ROWS_BASIC,
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Item i of a list, or the default if no list was given. */
static size_t at(const struct opt_ints *list, size_t i, size_t otherwise)
{
    return list->n ? (size_t)list->v[i] : otherwise;
}

static size_t count(const struct opt_ints *list)
{
    return list->n ? list->n : 1;
}

/* Lengths of the measurements of one engine. */
struct lengths {
    size_t prompt_len, depth; /* defaults */
    size_t gen;
    size_t most; /* tokens of the longest measurement */
};

/* Default lengths shrink to fit the model's context. */
static int plan_lengths(const struct args *a, size_t limit, struct lengths *l,
                        struct qwick_err *e)
{
    l->prompt_len = smaller(512, limit);
    l->gen = a->gen ? (size_t)a->gen : smaller(64, limit / 2);
    l->depth = smaller(16, limit - smaller(l->gen, limit - 1));
    l->most = 1;
    for (size_t i = 0; i < count(&a->prompt_lens); i++) {
        size_t n = at(&a->prompt_lens, i, l->prompt_len);
        l->most = n > l->most ? n : l->most;
    }
    for (size_t i = 0; i < count(&a->depths); i++) {
        size_t n = at(&a->depths, i, l->depth) + l->gen;
        l->most = n > l->most ? n : l->most;
    }
    if (l->most > limit)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "bench: %zu tokens do not fit the context of %zu",
                       l->most, limit);
    return 0;
}

/* Make random valid ids, equal in every run. */
static int make_tokens(struct bench *b, size_t n, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(b->eng);
    size_t range = info->vocab_size;
    if (info->has_tokenizer && info->tokenizer_size < range)
        range = info->tokenizer_size;
    b->tokens = malloc((n + 1) * sizeof(*b->tokens));
    if (!b->tokens)
        return err_oom(e, n);
    for (size_t i = 0; i < n; i++)
        b->tokens[i] = (int32_t)(rng_uniform(1, i) * (double)range);
    return 0;
}

/* A run of the verb. */
struct job {
    const struct args *a;
    struct bench_report r;
    enum bench_format format;
    struct bench bench;
    struct buf out;
    struct bench_line *plan; /* rows of one engine, not measured */
    size_t n_plan;
    size_t n_done, n_runs; /* for progress */
    double start_ms;
};

static void show_run(void *ctx, const struct bench_line *l)
{
    struct job *j = ctx;
    char name[BENCH_NAME], text[100];
    double s = (clock_ms() - j->start_ms) / 1000;
    size_t done = j->n_done++;
    if (!progress_due())
        return;
    bench_line_name(l, name);
    progress_format(text, sizeof(text), "runs", done, j->n_runs,
                    progress_left(s, done, 0, j->n_runs));
    progress_show("%s, %s", text, name);
}

/* Print what is in the buffer. Returns 0, or an exit status. */
static int flush(struct job *j, int bad)
{
    if (bad)
        return msg_oom();
    if (j->out.len)
        progress_output(STDOUT_FILENO);
    int rc = j->out.len ? out_write_names(j->out.data, j->out.len) : 0;
    j->out.len = 0;
    return rc ? (int)QWICK_ERR_RUNTIME : 0;
}

/* Write the rows to measure with an engine to j->plan. */
static void plan_lines(struct job *j, const struct lengths *l, int threads)
{
    const struct args *a = j->a;
    size_t n = 0;
    for (size_t i = 0; i < count(&a->prompt_lens); i++)
        j->plan[n++] =
            (struct bench_line){.test = BENCH_PREFILL,
                                .n = at(&a->prompt_lens, i, l->prompt_len),
                                .batch = 1};
    for (size_t i = 0; i < count(&a->depths); i++)
        j->plan[n++] = (struct bench_line){.test = BENCH_DECODE,
                                           .n = at(&a->depths, i, l->depth),
                                           .batch = 1};
    for (size_t i = 0; i < count(&a->depths); i++)
        for (size_t k = 0; k < a->batches.n; k++)
            j->plan[n++] =
                (struct bench_line){.test = BENCH_BATCH,
                                    .n = at(&a->depths, i, l->depth),
                                    .batch = (size_t)a->batches.v[k]};
    for (size_t i = 0; i < n; i++)
        j->plan[i].threads = threads;
}

/* On a terminal: pictures of the times of the steps. */
static int put_pictures(struct job *j, const struct bench_line *l)
{
    char name[BENCH_NAME];
    if (j->format != BENCH_TEXT || !out_is_tty() || !l->n_steps)
        return 0;
    bench_line_name(l, name);
    return plot_times(&j->out, name, l->step_ms, l->n_steps,
                      term_columns(STDOUT_FILENO) - 1, term_utf8());
}

/* Measure and print the rows of an engine. */
static int measure_lines(struct job *j, struct bench_model *m)
{
    struct qwick_err e = {0};
    size_t first = m->n_lines;
    int bad = 0;
    for (size_t i = 0; i < j->n_plan; i++) {
        struct bench_line *l = &m->lines[m->n_lines];
        if (bench_measure(&j->bench, j->plan[i].test, j->plan[i].n,
                          j->plan[i].batch, l, &e)) {
            bench_line_free(l);
            progress_clear();
            return msg_fail(&e);
        }
        m->n_lines++;
        int status = flush(j, bench_put_line(&j->out, &j->r, m, l, j->format));
        if (status)
            return status;
    }
    for (size_t i = first; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        if (l->has_parts && j->format < BENCH_JSON)
            bad |= bench_put_parts(&j->out, l, j->format == BENCH_MD);
        bad |= put_pictures(j, l);
    }
    progress_clear();
    return flush(j, bad);
}

static size_t max_depth(const struct args *a, const struct lengths *l)
{
    size_t most = 0;
    for (size_t i = 0; i < count(&a->depths); i++) {
        size_t n = at(&a->depths, i, l->depth) + l->gen;
        most = n > most ? n : most;
    }
    return most;
}

/* Learn about a model whose engine is open for the first time. Returns 0, or an
 * exit status after printing a message. */
static int begin_model(struct job *j, struct bench_model *m,
                       const struct lengths *l)
{
    struct bench *b = &j->bench;
    struct qwick_err e = {0};
    if (bench_model_init(m, b->eng, max_depth(j->a, l), &e))
        return msg_fail(&e);
    m->gen = j->r.set.plan.gen = l->gen;
    m->lines = calloc(j->n_plan * count(&j->a->threads), sizeof(*m->lines));
    if (!m->lines || bench_open(b, j->r.set.plan.reps, l->gen))
        return msg_oom();
    return make_tokens(b, l->most, &e) ? msg_fail(&e) : 0;
}

/* The head waits in the buffer for the first row: output on a terminal ends the
 * progress line. */
static int put_head(struct job *j, struct bench_model *m)
{
    int bad = 0;
    if (m == j->r.models)
        bad |= bench_put_start(&j->out, &j->r, j->format);
    bad |= bench_put_head(&j->out, &j->r, m, j->format);
    return bad ? msg_oom() : 0;
}

/* Measure a model with one number of threads. */
static int bench_engine(struct job *j, struct bench_model *m)
{
    const struct qwick_info *info = qwick_engine_info(j->bench.eng);
    struct qwick_err e = {0};
    struct lengths l;
    bool first = !m->name;
    int status = 0;
    if (plan_lengths(j->a, info->n_ctx_max, &l, &e))
        return msg_fail(&e);
    plan_lines(j, &l, info->threads);
    if (first)
        status = begin_model(j, m, &l);
    if (!status)
        status = bench_baseline_match(&j->r, m, j->a->compare_any);
    if (!status)
        status = bench_baseline_has(&j->r, m, j->plan, j->n_plan);
    if (!status && first)
        status = put_head(j, m);
    return status ? status : measure_lines(j, m);
}

/* After the measurements: how the page cache holds the weights. */
static void note_pages(const struct job *j, struct bench_model *m)
{
    enum { MANY_BYTES = 64 << 20 }; /* with fewer, pages matter little */
    size_t mapped, huge;
    if (j->r.set.preload || qwick_engine_pages(j->bench.eng, &mapped, &huge) ||
        mapped == 0)
        return;
    bool first = isnan(m->huge_share);
    m->huge_share = (double)huge / (double)mapped;
    if (first && mapped > MANY_BYTES && m->huge_share < 0.75)
        msg_warn("%s: %.0f%% of the weights are in huge pages: this costs some "
                 "speed, see \"sometimes a quarter slower\" in qwick(1)",
                 m->name, 100 * m->huge_share);
}

static int bench_model(struct job *j, size_t k)
{
    const struct args *a = j->a;
    struct bench_model *m = &j->r.models[k];
    struct common_args c = a->c;
    int status = 0;
    if (a->models.n) {
        c.model = a->models.v[k];
        c.model_is_name = false;
    }
    for (size_t i = 0; i < count(&a->threads) && !status; i++) {
        c.threads = a->threads.n ? a->threads.v[i] : 0;
        status = common_open(&j->bench.eng, &c, false);
        if (!status)
            status = bench_engine(j, m);
        progress_clear();
        if (!status)
            note_pages(j, m);
        qwick_engine_close(j->bench.eng);
        j->bench.eng = NULL;
    }
    bench_close(&j->bench, j->r.set.plan.reps);
    free(j->bench.tokens);
    j->bench.tokens = NULL;
    if (!status && j->format == BENCH_JSON)
        status = flush(j, bench_put_json(&j->out, &j->r, m));
    return status;
}

static int write_page(const struct job *j)
{
    struct html h = {0};
    if (!j->a->html)
        return 0;
    bench_page(&h, &j->r);
    int status = html_write(&h, j->a->html);
    html_free(&h);
    return status;
}

static int bench(struct job *j)
{
    const struct args *a = j->a;
    size_t n = a->models.n ? a->models.n : 1;
    int status = 0;
    j->n_plan =
        count(&a->prompt_lens) + count(&a->depths) * (1 + a->batches.n);
    j->n_runs = n * count(&a->threads) * j->n_plan *
                (size_t)(a->reps + a->warmup);
    j->plan = calloc(j->n_plan, sizeof(*j->plan));
    j->r.models = calloc(n, sizeof(*j->r.models));
    j->r.n_models = j->r.models ? n : 0;
    if (!j->plan || !j->r.models)
        return msg_oom();
    machine_read(&j->r.machine);
    struct qwick_err e;
    if (a->html && save_check(a->html, &e))
        return msg_fail(&e);
    if (out_check())
        return QWICK_ERR_RUNTIME;
    if (a->compare &&
        (status = bench_baseline_open(&j->r.was, a->compare)) != 0)
        return status;
    progress_start("bench");
    j->start_ms = clock_ms();
    for (size_t k = 0; k < n && !status; k++)
        status = bench_model(j, k);
    progress_stop();
    if (!status)
        status = write_page(j);
    if (!status && opt_given(a->c.parsed, "fail-below"))
        status = bench_baseline_gate(&j->r, a->fail_below);
    return status;
}

/* The choices between kernels need no model. */
static int tune(const struct args *a)
{
    struct common_args c = a->c;
    struct qwick_engine *eng;
    struct machine machine;
    size_t reps = opt_given(c.parsed, "reps") ? (size_t)a->reps : TUNE_REPS;
    c.threads = 1;
    machine_read(&machine);
    int status = out_check() ? (int)QWICK_ERR_RUNTIME
                             : common_open(&eng, &c, false);
    if (status)
        return status;
    status = bench_tune(eng, reps, a->c.json, &machine);
    qwick_engine_close(eng);
    return status;
}

static int check(const struct opt_parsed *p, const struct args *a)
{
    static const char *const not_tune[] = {
        "model",   "prompt-lens", "gen",        "depths",        "batches",
        "threads", "warmup",      "parts",      "md",            "csv",
        "html",    "compare",     "fail-below", "compare-any",   "exact",
        "kv",      "preload",     "numa",
        "prefill-chunk", NULL};
    static const char *const formats[] = {"md", "json", "csv"};
    static const char *const with_compare[] = {"fail-below", "compare-any",
                                               NULL};
    int r;
    if (a->tune && (r = opt_no_effect(p, not_tune, "with --tune")) >= 0)
        return r;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = i + 1; k < 3; k++)
            if ((r = opt_conflict(p, formats[i], formats[k])) >= 0)
                return r;
    if (!a->compare &&
        (r = opt_no_effect(p, with_compare, "without --compare")) >= 0)
        return r;
    return p->n_args ? opt_usage(p->verb,
                                 "\"%s\": unexpected, a model goes with -m",
                                 p->args[0])
                     : -1;
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct args a = {.reps = 5, .warmup = 1};
    struct opt_parsed p;
    struct job j = {.a = &a};
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0)
        status = check(&p, &a);
    if (status < 0 && a.tune) {
        status = tune(&a);
    } else if (status < 0) {
        j.format = a.c.json ? BENCH_JSON
                   : a.csv  ? BENCH_CSV
                   : a.md   ? BENCH_MD
                            : BENCH_TEXT;
        j.r.set = (struct bench_settings){
            .plan = {.reps = (size_t)a.reps,
                     .warmup = a.warmup,
                     .parts = a.parts},
            .exact = a.c.exact,
            .preload = a.c.preload,
            .numa = a.c.numa ? a.c.numa : "off",
            .prefill_chunk = a.c.prefill_chunk ? (size_t)a.c.prefill_chunk
                                               : 512};
        j.bench = (struct bench){.plan = &j.r.set.plan,
                                 .on_run = show_run,
                                 .on_run_ctx = &j};
        status = bench(&j);
    }
    for (size_t k = 0; k < j.r.n_models; k++)
        bench_model_free(&j.r.models[k]);
    free(j.r.models);
    bench_baseline_free(j.r.was);
    buf_free(&j.out);
    free(j.plan);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_bench = {
    .name = "bench",
    .args = "",
    .summary = "speed, beside this machine's limits",
    .about = "Time prefill, decode and batches, and print each as a percentage "
             "of a limit of\nthis machine: its read bandwidth, the peak of "
             "its arithmetic, or the slower of\nthe two, measured right before "
             "and after every run.",
    .examples = "  qwick bench --prompt-lens 64 --gen 16 --reps 1 --warmup 0\n",
    OPT_TABLE(opts),
    .run = run,
};
