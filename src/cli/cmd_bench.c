#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/rng.h"
#include "cli/bench_measure.h"
#include "cli/common.h"
#include "cli/opt.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    struct opt_ints prompt_lens, depths, batches, threads;
    int64_t gen, reps, warmup;
    bool md, parts;
};

#define ARG(field) offsetof(struct args, field)
#define MAX_LEN    10000000

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
     .def = "5",
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

    {.type = OPT_HEADING, .help = "Output"},
    {.name = "md",
     .type = OPT_FLAG,
     .help = "print a Markdown table",
     .offset = ARG(md)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print JSON",
     .offset = COMMON(json)},

    {.type = OPT_HEADING, .help = "Model and machine"},
    OPT_ROWS_MODEL,
    OPT_ROWS_KERNELS,
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

/* All lines of a run, and how many are printed. */
struct report {
    const struct args *a;
    struct bench_plan plan;
    struct bench_line *lines;
    size_t n_lines;
    struct buf out;
    bool failed; /* writing failed */
};

/* Progress counts the runs of one row only: a row needs few runs. */
static void show_run(const struct bench_line *l, size_t i, size_t n)
{
    if (l->batch > 1)
        progress_show("%s of %zu at depth %zu, run %zu of %zu",
                      bench_test_name(l->test), l->batch, l->n, i, n);
    else
        progress_show("%s %s %zu, run %zu of %zu", bench_test_name(l->test),
                      l->test == BENCH_PREFILL ? "of" : "at depth", l->n, i, n);
}

static int flush(struct report *r)
{
    if (r->out.len)
        progress_output(STDOUT_FILENO);
    int rc = r->out.len ? out_write(r->out.data, r->out.len) : 0;
    r->out.len = 0;
    return rc ? (int)QWICK_ERR_RUNTIME : 0;
}

static int add_line(struct bench *b, struct report *r, enum bench_test test,
                    size_t n, size_t batch, struct qwick_err *e)
{
    struct bench_line *l = &r->lines[r->n_lines];
    if (bench_measure(b, test, n, batch, l, e))
        return -1;
    r->n_lines++;
    if (r->a->c.json)
        return 0;
    if (bench_put_line(&r->out, l, r->a->md))
        return err_oom(e, 1);
    r->failed = flush(r) != 0; /* flush printed the message */
    return r->failed ? err_set(e, QWICK_ERR_RUNTIME, "stdout") : 0;
}

static int measure_all(struct bench *b, struct report *r,
                       const struct lengths *l, struct qwick_err *e)
{
    const struct args *a = r->a;
    for (size_t i = 0; i < count(&a->prompt_lens); i++)
        if (add_line(b, r, BENCH_PREFILL, at(&a->prompt_lens, i, l->prompt_len),
                     1, e))
            return -1;
    for (size_t i = 0; i < count(&a->depths); i++)
        if (add_line(b, r, BENCH_DECODE, at(&a->depths, i, l->depth), 1, e))
            return -1;
    for (size_t i = 0; i < count(&a->depths); i++)
        for (size_t j = 0; j < a->batches.n; j++)
            if (add_line(b, r, BENCH_BATCH, at(&a->depths, i, l->depth),
                         (size_t)a->batches.v[j], e))
                return -1;
    return 0;
}

/* Measure all lines at one number of threads. Each is printed when it is
 * done. */
static int bench_threads(struct bench *b, struct report *r, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(b->eng);
    struct lengths l;
    size_t first = r->n_lines;
    bool text = !r->a->c.json;
    if (plan_lengths(r->a, info->n_ctx_max, &l, e) ||
        (!b->tokens && make_tokens(b, l.most, e)))
        return -1;
    r->plan.gen = l.gen;
    if (text && !first && bench_put_head(&r->out, info, r->a->md))
        return err_oom(e, 1);
    if (measure_all(b, r, &l, e))
        return -1;
    for (size_t i = first; i < r->n_lines && text; i++)
        if (r->lines[i].has_parts &&
            bench_put_parts(&r->out, &r->lines[i], r->a->md))
            return err_oom(e, 1);
    return 0;
}

static int bench(struct bench *b, struct report *r)
{
    const struct args *a = r->a;
    struct qwick_err e = {0};
    size_t n_threads = count(&a->threads);
    size_t per =
        count(&a->prompt_lens) + count(&a->depths) * (1 + a->batches.n);
    int status = 0;
    r->lines = calloc(n_threads * per, sizeof(*r->lines));
    b->runs = calloc(r->plan.reps, sizeof(*b->runs));
    b->sorted = calloc(r->plan.reps, sizeof(*b->sorted));
    if (!r->lines || !b->runs || !b->sorted)
        return msg_oom();
    for (size_t i = 0; i < n_threads && !status; i++) {
        struct common_args c = a->c;
        c.threads = a->threads.n ? a->threads.v[i] : 0;
        if ((status = common_open(&b->eng, &c, false)) != 0)
            break;
        int bad = bench_threads(b, r, &e);
        progress_clear();
        if (bad)
            status = r->failed ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
        else if (i + 1 == n_threads && a->c.json &&
                 bench_put_json(&r->out, qwick_engine_info(b->eng), &r->plan,
                                r->lines, r->n_lines))
            status = msg_oom();
        else
            status = flush(r);
        qwick_engine_close(b->eng);
        b->eng = NULL;
    }
    return status;
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct args a = {.reps = 5, .warmup = 1};
    struct opt_parsed p;
    struct report r = {.a = &a};
    struct bench b = {.plan = &r.plan, .on_run = show_run};
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0)
        status = opt_conflict(&p, "md", "json");
    if (status < 0 && p.n_args)
        status =
            opt_usage(v, "\"%s\": unexpected, a model goes with -m", p.args[0]);
    if (status < 0) {
        r.plan = (struct bench_plan){
            .reps = (size_t)a.reps, .warmup = a.warmup, .parts = a.parts};
        progress_start("bench");
        status = bench(&b, &r);
        progress_stop();
    }
    qwick_engine_close(b.eng);
    buf_free(&r.out);
    free(b.tokens);
    free(b.runs);
    free(b.sorted);
    free(r.lines);
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
