#include <math.h>

#include "cli/bench_measure.h"
#include "cli/json_writer.h"

const char *bench_test_name(enum bench_test t)
{
    return t == BENCH_PREFILL  ? "prefill"
           : t == BENCH_DECODE ? "decode"
                               : "batch";
}

static const char *unit(const struct bench_line *l)
{
    return l->by_memory ? "GB/s" : "GFLOP/s";
}

int bench_put_head(struct buf *o, const struct qwick_info *i, bool md)
{
    struct buf name = {0};
    int bad = buf_json_cstr(&name, i->model);
    bad |=
        buf_printf(o,
                   "model %s, %s, kv %s, kernels %s, prefill %s, %.1f MB a "
                   "token\n%s",
                   bad ? "" : name.data, i->weights_dtype, i->kv_dtype, i->isa,
                   i->gemm, (double)i->decode_bytes / 1e6, md ? "\n" : "");
    buf_free(&name);
    bad |= buf_puts(
        o, md ? "| test | tokens | batch | threads | tok/s | spread | rate | "
                "limit | of limit | least, most |\n"
                "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
              : "test     tokens batch threads      tok/s spread             "
                "rate    limit  of limit  least   most\n");
    return bad ? -1 : 0;
}

int bench_put_line(struct buf *o, const struct bench_line *l, bool md)
{
    return buf_printf(
        o,
        md ? "| %s | %zu | %zu | %d | %.1f | %.1f%% | %.1f %s | %.1f | %.1f%% "
             "| %.1f%%, %.1f%% |\n"
           : "%-7s %7zu %5zu %7d %10.1f %5.1f%% %8.1f %-7s %8.1f %8.1f%% "
             "%5.1f%% %5.1f%%\n",
        bench_test_name(l->test), l->n, l->batch, l->threads, l->tok_s,
        100 * l->spread, l->rate / 1e9, unit(l), l->limit / 1e9, 100 * l->share,
        100 * l->share_min, 100 * l->share_max);
}

static int put_part(struct buf *o, const char *name, double ms, double total,
                    bool md)
{
    return buf_printf(
        o, md ? "| %s | %.3f | %.1f%% |\n" : "  %-12s %9.3f %5.1f%%\n", name,
        ms, 100 * ms / total);
}

int bench_put_parts(struct buf *o, const struct bench_line *l, bool md)
{
    double total = isnan(l->sampling_ms) ? 0 : l->sampling_ms;
    for (size_t i = 0; i < QWICK_PARTS; i++)
        total += l->parts[i];
    int bad =
        buf_printf(o,
                   md ? "\n%s %zu, batch %zu, %d threads:\n\n"
                        "| part | ms a pass | share |\n|---|---:|---:|\n"
                      : "%s %zu, batch %zu, %d threads: ms a pass, share\n",
                   bench_test_name(l->test), l->n, l->batch, l->threads);
    for (size_t i = 0; i < QWICK_PARTS; i++)
        bad |= put_part(o, qwick_part_name(i), l->parts[i], total, md);
    if (!isnan(l->sampling_ms))
        bad |= put_part(o, "sampling", l->sampling_ms, total, md);
    return bad ? -1 : 0;
}

/* ---- JSON --------------------------------------------------------------- */

static void put_json_parts(struct json_writer *w, const struct bench_line *l)
{
    jw_object(w, "parts_ms");
    for (size_t i = 0; i < QWICK_PARTS; i++)
        jw_double(w, qwick_part_name(i), l->parts[i]);
    if (!isnan(l->sampling_ms))
        jw_double(w, "sampling", l->sampling_ms);
    jw_end_object(w);
}

static void put_json_line(struct json_writer *w, const struct bench_line *l)
{
    jw_object(w, NULL);
    jw_cstr(w, "test", bench_test_name(l->test));
    jw_uint(w, l->test == BENCH_PREFILL ? "tokens" : "depth", l->n);
    jw_uint(w, "batch", l->batch);
    jw_int(w, "threads", l->threads);
    jw_double(w, "tok_s", l->tok_s);
    jw_double(w, "spread", l->spread);
    jw_double(w, l->by_memory ? "gb_s" : "gflop_s", l->rate / 1e9);
    jw_double(w, "limit", l->limit / 1e9);
    jw_double(w, "percent_of_limit", 100 * l->share);
    jw_double(w, "least_percent", 100 * l->share_min);
    jw_double(w, "most_percent", 100 * l->share_max);
    if (l->has_parts)
        put_json_parts(w, l);
    jw_end_object(w);
}

int bench_put_json(struct buf *o, const struct qwick_info *i,
                   const struct bench_plan *plan,
                   const struct bench_line *lines, size_t n)
{
    struct json_writer w = json_writer(o);
    jw_object(&w, NULL);
    jw_cstr(&w, "model", i->model);
    jw_cstr(&w, "weights_dtype", i->weights_dtype);
    jw_cstr(&w, "kv_dtype", i->kv_dtype);
    jw_cstr(&w, "isa", i->isa);
    jw_cstr(&w, "gemm", i->gemm);
    jw_uint(&w, "decode_bytes", i->decode_bytes);
    jw_uint(&w, "kv_token_bytes", i->kv_token_bytes);
    jw_uint(&w, "gen", plan->gen);
    jw_uint(&w, "reps", plan->reps);
    jw_int(&w, "warmup", plan->warmup);
    jw_array(&w, "results");
    for (size_t j = 0; j < n; j++)
        put_json_line(&w, &lines[j]);
    jw_end_array(&w);
    jw_end_object(&w);
    jw_newline(&w);
    return jw_status(&w);
}
