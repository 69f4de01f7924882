#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_tune.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/term.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/report/plot_text.h"
#include "cli/sandbox/open_model.h"
#include "file/save.h"
#include "qwick_tools.h"

/* Rounds of --tune: a round takes a third of a second. */
enum { TUNE_REPS = 25 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Item i of a list, or the default if no list was given. */
static size_t item_or(const struct opt_ints *list, size_t i, size_t otherwise)
{
    return list->n ? (size_t)list->v[i] : otherwise;
}

static size_t item_count(const struct opt_ints *list)
{
    return list->n ? list->n : 1;
}

/* Lengths of the measurements of one engine. */
struct lengths {
    size_t prompt_len, depth; /* defaults */
    size_t gen;
    size_t max_depth; /* after the decode steps */
    size_t most;      /* tokens of the longest measurement */
};

/* Default lengths shrink to fit the model's context. */
static int plan_lengths(const struct args *a, size_t limit, struct lengths *l,
                        struct qwick_err *e)
{
    l->prompt_len = smaller(512, limit);
    l->gen = a->gen ? (size_t)a->gen : smaller(64, limit / 2);
    l->depth = smaller(16, limit - smaller(l->gen, limit - 1));
    l->most = 1;
    for (size_t i = 0; i < item_count(&a->prompt_lens); i++) {
        size_t n = item_or(&a->prompt_lens, i, l->prompt_len);
        l->most = n > l->most ? n : l->most;
    }
    l->max_depth = 0;
    for (size_t i = 0; i < item_count(&a->depths); i++) {
        size_t n = item_or(&a->depths, i, l->depth) + l->gen;
        l->max_depth = n > l->max_depth ? n : l->max_depth;
    }
    l->most = l->max_depth > l->most ? l->max_depth : l->most;
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
    struct opt_parsed *p;
    const struct args *a; /* of p */
    struct bench_report r;
    enum report_format format;
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
static int bench_flush(struct job *j)
{
    if (j->out.failed)
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
    for (size_t i = 0; i < item_count(&a->prompt_lens); i++)
        j->plan[n++] =
            (struct bench_line){.test = BENCH_PREFILL,
                                .n = item_or(&a->prompt_lens, i, l->prompt_len),
                                .batch = 1};
    for (size_t i = 0; i < item_count(&a->depths); i++)
        j->plan[n++] =
            (struct bench_line){.test = BENCH_DECODE,
                                .n = item_or(&a->depths, i, l->depth),
                                .batch = 1};
    for (size_t i = 0; i < item_count(&a->depths); i++)
        for (size_t k = 0; k < a->batches.n; k++)
            j->plan[n++] =
                (struct bench_line){.test = BENCH_BATCH,
                                    .n = item_or(&a->depths, i, l->depth),
                                    .batch = (size_t)a->batches.v[k]};
    for (size_t i = 0; i < n; i++)
        j->plan[i].threads = threads;
}

/* On a terminal: pictures of the times of the steps. */
static void put_pictures(struct job *j, const struct bench_line *l)
{
    char name[BENCH_NAME];
    if (j->format != REPORT_TEXT || !out_is_tty() || !l->n_steps)
        return;
    bench_line_name(l, name);
    j->out.failed |=
        plot_times(&j->out, name, l->step_ms, l->n_steps,
                   term_columns(STDOUT_FILENO) - 1, term_utf8()) != 0;
}

/* Measure and print the rows of an engine. */
static int measure_lines(struct job *j, struct bench_model *m)
{
    struct qwick_err e = {0};
    size_t first = m->n_lines;
    for (size_t i = 0; i < j->n_plan; i++) {
        struct bench_line *l = &m->lines[m->n_lines];
        if (bench_measure(&j->bench, j->plan[i].test, j->plan[i].n,
                          j->plan[i].batch, l, &e)) {
            bench_line_free(l);
            progress_clear();
            return msg_fail(&e);
        }
        m->n_lines++;
        l->was = j->plan[i].was;
        if (j->format != REPORT_JSON) /* it prints models when they are done */
            bench_put_row(&j->out, &j->r, m, l, j->format);
        int status = bench_flush(j);
        if (status)
            return status;
    }
    for (size_t i = first; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        if (l->has_parts && j->format < REPORT_JSON)
            bench_put_parts(&j->out, l, j->format == REPORT_MD);
        put_pictures(j, l);
    }
    progress_clear();
    return bench_flush(j);
}

/* Learn about a model whose engine is open for the first time. Returns 0, or an
 * exit status after printing a message. */
static int begin_model(struct job *j, struct bench_model *m,
                       const struct lengths *l)
{
    struct bench *b = &j->bench;
    struct qwick_err e = {0};
    if (bench_model_init(m, b->eng, l->max_depth, &e))
        return msg_fail(&e);
    m->gen = j->r.set.plan.gen = l->gen;
    m->lines =
        calloc(j->n_plan * item_count(&j->a->thread_list), sizeof(*m->lines));
    if (!m->lines || bench_open(b, j->r.set.plan.reps, l->gen))
        return msg_oom();
    return msg_result(make_tokens(b, l->most, &e), &e);
}

/* The head waits in the buffer for the first row: output on a terminal ends the
 * progress line. */
static void bench_head(struct job *j, struct bench_model *m)
{
    if (m == j->r.models)
        bench_put_start(&j->out, &j->r, j->format);
    bench_put_head(&j->out, &j->r, m, j->format);
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
        status = bench_baseline_rows(&j->r, m, j->plan, j->n_plan);
    if (!status && first)
        bench_head(j, m);
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
    int status = 0;
    if (a->models.n) {
        j->p->a.model = a->models.v[k];
        j->p->models.is_name = false;
    }
    for (size_t i = 0; i < item_count(&a->thread_list) && !status; i++) {
        j->p->a.threads = a->thread_list.n ? a->thread_list.v[i] : 0;
        status = open_model(&j->bench.eng, j->p, false);
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
    if (status || j->format != REPORT_JSON)
        return status;
    bench_put_json(&j->out, &j->r, m);
    return bench_flush(j);
}

static int write_page(const struct job *j)
{
    struct html h = {0};
    if (!j->a->html)
        return 0;
    bench_page(&h, &j->r);
    return html_write(&h, j->a->html);
}

static int bench(struct job *j)
{
    const struct args *a = j->a;
    size_t n = a->models.n ? a->models.n : 1;
    int status = 0;
    j->n_plan = item_count(&a->prompt_lens) +
                item_count(&a->depths) * (1 + a->batches.n);
    j->n_runs = n * item_count(&a->thread_list) * j->n_plan *
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
    if (!status && opt_given(j->p, OPT_fail_below))
        status = bench_baseline_gate(&j->r, a->fail_below);
    return status;
}

/* The choices between kernels need no model. */
static int tune(struct opt_parsed *p)
{
    struct qwick_engine *eng;
    struct machine machine;
    size_t reps = opt_given(p, OPT_reps) ? (size_t)p->a.reps : TUNE_REPS;
    p->a.threads = 1;
    machine_read(&machine);
    int status =
        out_check() ? (int)QWICK_ERR_RUNTIME : open_model(&eng, p, false);
    if (status)
        return status;
    status = bench_tune(eng, reps, p->a.json, &machine);
    qwick_engine_close(eng);
    return status;
}

static int bench_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct args *a = &p->a;
    struct job j = {.p = p, .a = a};
    (void)eng; /* each model and number of threads has its own */
    if (a->tune)
        return tune(p);
    j.format = a->json  ? REPORT_JSON
               : a->csv ? REPORT_CSV
               : a->md  ? REPORT_MD
                        : REPORT_TEXT;
    j.r.set =
        (struct bench_settings){.plan = {.reps = (size_t)a->reps,
                                         .warmup = a->warmup,
                                         .parts = a->parts},
                                .exact = a->exact,
                                .preload = a->preload,
                                .numa = a->numa ? a->numa : "off",
                                .prefill_chunk = (size_t)a->prefill_chunk};
    j.bench = (struct bench){
        .plan = &j.r.set.plan, .on_run = show_run, .on_run_ctx = &j};
    int status = bench(&j);
    for (size_t k = 0; k < j.r.n_models; k++)
        bench_model_free(&j.r.models[k]);
    free(j.r.models);
    bench_baseline_free(j.r.was);
    buf_free(&j.out);
    free(j.plan);
    return status;
}

const struct verb verb_bench = {
    .bit = V_BENCH,
    .name = "bench",
    .group = VERBS_MACHINE,
    .args = "",
    .summary = "speed, beside this machine's limits",
    .about = "Time prefill, decode and batches, and print each as a percentage "
             "of a limit of\nthis machine: its read bandwidth, the peak of "
             "its arithmetic, or the slower of\nthe two, measured right before "
             "and after every run.",
    .examples = "  qwick bench --prompt-lens 64 --gen 16 --reps 1 --warmup 0\n",
    .check = common_check_no_args,
    .run = bench_run,
};
