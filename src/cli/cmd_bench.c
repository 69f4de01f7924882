#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/common.h"
#include "cli/opt.h"
#include "cli/out.h"
#include "cli/profile.h"
#include "cli/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    struct opt_ints prompt_lens, depths, threads;
    int64_t gen, reps, warmup;
    bool md;
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
    {.name = "threads",
     .letter = 't',
     .type = OPT_INTS,
     .arg = "N,...",
     .imin = 1,
     .imax = 1024,
     .def = "physical cores",
     .help = "numbers of threads, one after the other",
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
     .help = "runs before them that do not count",
     .offset = ARG(warmup)},

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

/* Measuring a line again when the limit moved. */
enum { MAX_ATTEMPTS = 4 };
#define MAX_DRIFT 0.1

/* One measured line. */
struct line {
    bool decode;
    size_t n; /* tokens of the prompt, or depth */
    int threads;
    double tok_s;  /* median */
    double spread; /* (largest - smallest) / median */
    double work;   /* operations, or bytes, of the median run per second */
    double before, after; /* the machine's limit, right before and after */
};

struct bench {
    const struct verb *verb;
    const struct args *a;
    struct qwick_engine *eng;
    struct qwick_session *ses;
    int32_t *tokens; /* as many as any measurement needs, valid ids */
    size_t n_tokens;
    double *ms; /* [reps] */
    struct line *lines;
    size_t gen;              /* decode steps of a run */
    size_t n_lines, n_first; /* n_first: not printed yet */
    struct buf out;
};

/* ---- measuring ---- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int time_prefill(struct bench *b, size_t n, double *ms,
                        struct qwick_err *e)
{
    if (qwick_session_rollback(b->ses, 0, e))
        return -1;
    double t = clock_ms();
    if (qwick_session_sync(b->ses, b->tokens, n, e))
        return -1;
    *ms = clock_ms() - t;
    return 0;
}

static int time_decode(struct bench *b, size_t depth, size_t gen, double *ms,
                       struct qwick_err *e)
{
    if (qwick_session_sync(b->ses, b->tokens, depth, e))
        return -1;
    double t = clock_ms();
    for (size_t i = 0; i < gen; i++)
        if (qwick_session_decode(b->ses, b->tokens[depth + i], e))
            return -1;
    *ms = clock_ms() - t;
    return 0;
}

/* Read bandwidth in bytes, or peak in operations, a second. */
static double measure_limit(struct bench *b, bool decode)
{
    return decode ? qwick_bench_bandwidth(b->eng, 150)
                  : qwick_bench_peak(b->eng, 100);
}

/* The timed runs of one line between two looks at the limit. */
static int measure_once(struct bench *b, bool decode, size_t n, size_t gen,
                        struct line *line, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(b->eng);
    size_t reps = (size_t)b->a->reps, steps = decode ? gen : n;
    double before = measure_limit(b, decode);
    for (int64_t i = -b->a->warmup; i < b->a->reps; i++) {
        double ms;
        if (decode ? time_decode(b, n, gen, &ms, e)
                   : time_prefill(b, n, &ms, e))
            return -1;
        if (i >= 0)
            b->ms[i] = ms;
    }
    double after = measure_limit(b, decode);
    sort_doubles(b->ms, reps);
    double median = quantile(b->ms, reps, 0.5);
    /* a token reads the weights, and the cache up to its own position */
    double a_step = decode ? (double)info->decode_bytes +
                                 (double)info->kv_token_bytes *
                                     ((double)n + 0.5 * (double)gen)
                           : qwick_forward_flops(b->eng, 0, n) / (double)n;
    *line = (struct line){
        .decode = decode,
        .n = n,
        .threads = info->threads,
        .tok_s = 1000 * (double)steps / median,
        .spread = (b->ms[reps - 1] - b->ms[0]) / median,
        .work = a_step * 1000 * (double)steps / median,
        .before = before,
        .after = after,
    };
    return 0;
}

/* How far the limit moved while a line was measured. */
static double drift(const struct line *l)
{
    return fabs(l->before - l->after) / fmax(l->before, l->after);
}

/* On shared hosts the limit swings: a line during which it moved by more than a
 * tenth is measured again, and the steadiest attempt counts. */
static int measure(struct bench *b, bool decode, size_t n, size_t gen,
                   struct qwick_err *e)
{
    struct line *best = &b->lines[b->n_lines], line;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        if (measure_once(b, decode, n, gen, &line, e))
            return -1;
        if (attempt == 0 || drift(&line) < drift(best))
            *best = line;
        if (drift(best) <= MAX_DRIFT)
            break;
    }
    b->n_lines++;
    return 0;
}

/* ---- printing ---- */

static double percent(const struct line *l)
{
    double limit = 0.5 * (l->before + l->after);
    return limit > 0 ? 100 * l->work / limit : NAN;
}

static int put_lines(struct bench *b)
{
    struct buf *o = &b->out;
    bool md = b->a->md;
    int bad = 0;
    if (b->n_first == 0)
        bad |= buf_puts(o, md ? "| test | tokens | threads | tok/s | spread "
                                "| rate | limit before, after | of limit |\n"
                                "|---|---:|---:|---:|---:|---:|---:|---:|\n"
                              : "test      tokens  threads      tok/s  "
                                "spread            rate   limit before, "
                                "after  of limit\n");
    for (size_t i = b->n_first; i < b->n_lines && !bad; i++) {
        const struct line *l = &b->lines[i];
        bad |= buf_printf(o,
                          md ? "| %s | %zu | %d | %.1f | %.1f%% | %.1f %s "
                               "| %.1f, %.1f | %.1f%% |\n"
                             : "%-8s %7zu  %7d %10.1f  %5.1f%% %8.1f %-7s "
                               "%12.1f %8.1f  %7.1f%%\n",
                          l->decode ? "decode" : "prefill", l->n, l->threads,
                          l->tok_s, 100 * l->spread, l->work / 1e9,
                          l->decode ? "GB/s" : "GFLOP/s", l->before / 1e9,
                          l->after / 1e9, percent(l));
    }
    return bad ? -1 : 0;
}

static int put_model(struct bench *b)
{
    const struct qwick_info *i = qwick_engine_info(b->eng);
    struct buf *o = &b->out;
    if (b->a->c.json) {
        int bad = buf_puts(o, "{\"model\":");
        bad |= buf_json_cstr(o, i->model);
        bad |= buf_printf(o,
                          ",\"weights_dtype\":\"%s\",\"kv_dtype\":\"%s\","
                          "\"isa\":\"%s\",\"gemm\":\"%s\",\"decode_bytes\":"
                          "%zu,\"kv_token_bytes\":%zu,\"gen\":%lld,\"reps\":"
                          "%lld,\"warmup\":%lld",
                          i->weights_dtype, i->kv_dtype, i->isa, i->gemm,
                          i->decode_bytes, i->kv_token_bytes, (long long)b->gen,
                          (long long)b->a->reps, (long long)b->a->warmup);
        return bad ? -1 : 0;
    }
    struct buf name = {0};
    int bad = buf_json_cstr(&name, i->model);
    bad |= buf_printf(o,
                      "model %s, %s, kv %s, kernels %s, prefill %s, %.1f MB a "
                      "token\n%s",
                      bad ? "" : name.data, i->weights_dtype, i->kv_dtype,
                      i->isa, i->gemm, (double)i->decode_bytes / 1e6,
                      b->a->md ? "\n" : "");
    buf_free(&name);
    return bad ? -1 : 0;
}

static int put_json_lines(struct bench *b)
{
    struct buf *o = &b->out;
    int bad = buf_puts(o, ",\"results\":[");
    for (size_t i = 0; i < b->n_lines && !bad; i++) {
        const struct line *l = &b->lines[i];
        bad |= buf_printf(o,
                          "%s{\"test\":\"%s\",\"%s\":%zu,\"threads\":%d,"
                          "\"tok_s\":",
                          i ? "," : "", l->decode ? "decode" : "prefill",
                          l->decode ? "depth" : "tokens", l->n, l->threads);
        bad |= buf_json_double(o, l->tok_s);
        bad |= buf_puts(o, ",\"spread\":");
        bad |= buf_json_double(o, l->spread);
        bad |= buf_puts(o, l->decode ? ",\"gb_s\":" : ",\"gflop_s\":");
        bad |= buf_json_double(o, l->work / 1e9);
        bad |= buf_puts(o, ",\"limit\":[");
        bad |= buf_json_double(o, l->before / 1e9);
        bad |= buf_putc(o, ',');
        bad |= buf_json_double(o, l->after / 1e9);
        bad |= buf_puts(o, "],\"percent_of_limit\":");
        bad |= buf_json_double(o, percent(l));
        bad |= buf_putc(o, '}');
    }
    return buf_puts(o, "]}\n") || bad ? -1 : 0;
}

/* ---- the run ---- */

/* Random ids that the tokenizer has; the same at every run. */
static int make_tokens(struct bench *b, size_t n)
{
    const struct qwick_info *info = qwick_engine_info(b->eng);
    size_t range = info->vocab_size;
    if (info->has_tokenizer && info->tokenizer_size < range)
        range = info->tokenizer_size;
    b->tokens = malloc((n + 1) * sizeof(*b->tokens));
    if (!b->tokens)
        return -1;
    for (size_t i = 0; i < n; i++)
        b->tokens[i] = (int32_t)(rng_uniform(1, i) * (double)range);
    b->n_tokens = n;
    return 0;
}

/* Lengths that were not asked for shrink to what the model can take. */
static int check_lengths(const struct bench *b, size_t *prompt_len,
                         size_t *depth, size_t *gen, size_t *most,
                         struct qwick_err *e)
{
    size_t limit = qwick_session_limit(b->ses);
    const struct args *a = b->a;
    *prompt_len = smaller(512, limit);
    *gen = a->gen ? (size_t)a->gen : smaller(64, limit / 2);
    *depth = smaller(16, limit - smaller(*gen, limit - 1));
    *most = a->prompt_lens.n ? 1 : *prompt_len;
    for (size_t i = 0; i < a->prompt_lens.n; i++)
        if ((size_t)a->prompt_lens.v[i] > *most)
            *most = (size_t)a->prompt_lens.v[i];
    if (!a->depths.n && *depth + *gen > *most)
        *most = *depth + *gen;
    for (size_t i = 0; i < a->depths.n; i++)
        if ((size_t)a->depths.v[i] + *gen > *most)
            *most = (size_t)a->depths.v[i] + *gen;
    if (*most > limit)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "bench: %zu tokens do not fit the context of %zu", *most,
                       limit);
    return 0;
}

static int bench_threads(struct bench *b, struct qwick_err *e)
{
    const struct args *a = b->a;
    size_t prompt_len, depth, gen, most;
    if (qwick_session_create(&b->ses, b->eng, 0, e) ||
        check_lengths(b, &prompt_len, &depth, &gen, &most, e))
        return -1;
    if (!b->tokens && make_tokens(b, most))
        return err_oom(e, most);
    b->gen = gen;
    b->n_first = b->n_lines;
    if (b->n_first == 0 && put_model(b))
        return err_oom(e, 1);
    size_t n_lens = a->prompt_lens.n ? a->prompt_lens.n : 1;
    for (size_t i = 0; i < n_lens; i++)
        if (measure(b, false,
                    a->prompt_lens.n ? (size_t)a->prompt_lens.v[i] : prompt_len,
                    gen, e))
            return -1;
    size_t n_depths = a->depths.n ? a->depths.n : 1;
    for (size_t i = 0; i < n_depths; i++)
        if (measure(b, true, a->depths.n ? (size_t)a->depths.v[i] : depth, gen,
                    e))
            return -1;
    return 0;
}

static int flush(struct bench *b)
{
    int r = b->out.len ? out_write(b->out.data, b->out.len) : 0;
    b->out.len = 0;
    return r ? (int)QWICK_ERR_RUNTIME : 0;
}

static int bench(struct bench *b)
{
    const struct args *a = b->a;
    struct qwick_err e = {0};
    size_t n_threads = a->threads.n ? a->threads.n : 1;
    size_t per = (a->prompt_lens.n ? a->prompt_lens.n : 1) +
                 (a->depths.n ? a->depths.n : 1);
    int status = 0;
    b->lines = calloc(n_threads * per, sizeof(*b->lines));
    b->ms = calloc((size_t)a->reps, sizeof(*b->ms));
    if (!b->lines || !b->ms)
        return msg_oom();
    for (size_t i = 0; i < n_threads && !status; i++) {
        struct common_args c = a->c;
        c.threads = a->threads.n ? a->threads.v[i] : 0;
        if ((status = common_open(&b->eng, &c, false)) != 0)
            break;
        if (bench_threads(b, &e))
            status = msg_fail(&e);
        else if (!a->c.json)
            status = put_lines(b) ? msg_oom() : flush(b);
        qwick_session_free(b->ses);
        qwick_engine_close(b->eng);
        b->ses = NULL;
        b->eng = NULL;
    }
    if (status || !a->c.json)
        return status;
    return put_json_lines(b) ? msg_oom() : flush(b);
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct args a = {.reps = 5, .warmup = 1};
    struct opt_parsed p;
    struct bench b = {.verb = v, .a = &a};
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0)
        status = opt_conflict(&p, "md", "json");
    if (status < 0 && p.n_args)
        status =
            opt_usage(v, "\"%s\": unexpected, a model goes with -m", p.args[0]);
    if (status < 0)
        status = bench(&b);
    qwick_session_free(b.ses);
    qwick_engine_close(b.eng);
    buf_free(&b.out);
    free(b.tokens);
    free(b.ms);
    free(b.lines);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_bench = {
    .name = "bench",
    .args = "",
    .summary = "speed, beside this machine's limits",
    .about = "Time prefill and decode separately, and give each as a "
             "percentage of what this\nmachine can do: decode against its "
             "read bandwidth, prefill against the peak of\nits arithmetic, "
             "both measured right before and after\neach line.",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(*opts),
    .run = run,
};
