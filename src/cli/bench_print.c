#include <math.h>

#include "cli/bench_measure.h"
#include "cli/json_out.h"

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

static int put_number(struct buf *o, const char *key, double v)
{
    int bad = buf_printf(o, ",\"%s\":", key);
    bad |= buf_json_double(o, v);
    return bad;
}

static int put_json_parts(struct buf *o, const struct bench_line *l)
{
    int bad = buf_puts(o, ",\"parts_ms\":{");
    for (size_t i = 0; i < QWICK_PARTS; i++) {
        bad |= buf_printf(o, "%s\"%s\":", i ? "," : "", qwick_part_name(i));
        bad |= buf_json_double(o, l->parts[i]);
    }
    if (!isnan(l->sampling_ms))
        bad |= put_number(o, "sampling", l->sampling_ms);
    return buf_putc(o, '}') | bad;
}

static int put_json_line(struct buf *o, const struct bench_line *l)
{
    int bad = buf_printf(
        o, "{\"test\":\"%s\",\"%s\":%zu,\"batch\":%zu,\"threads\":%d",
        bench_test_name(l->test), l->test == BENCH_PREFILL ? "tokens" : "depth",
        l->n, l->batch, l->threads);
    bad |= put_number(o, "tok_s", l->tok_s);
    bad |= put_number(o, "spread", l->spread);
    bad |= put_number(o, l->by_memory ? "gb_s" : "gflop_s", l->rate / 1e9);
    bad |= put_number(o, "limit", l->limit / 1e9);
    bad |= put_number(o, "percent_of_limit", 100 * l->share);
    bad |= put_number(o, "least_percent", 100 * l->share_min);
    bad |= put_number(o, "most_percent", 100 * l->share_max);
    if (l->has_parts)
        bad |= put_json_parts(o, l);
    return buf_putc(o, '}') | bad;
}

int bench_put_json(struct buf *o, const struct qwick_info *i,
                   const struct bench_plan *plan,
                   const struct bench_line *lines, size_t n)
{
    int bad = buf_puts(o, "{\"model\":");
    bad |= buf_json_cstr(o, i->model);
    bad |= buf_puts(o, ",\"weights_dtype\":");
    bad |= buf_json_cstr(o, i->weights_dtype);
    bad |= buf_printf(o,
                      ",\"kv_dtype\":\"%s\",\"isa\":\"%s\",\"gemm\":\"%s\","
                      "\"decode_bytes\":%zu,\"kv_token_bytes\":%zu,\"gen\":"
                      "%zu,\"reps\":%zu,\"warmup\":%lld,\"results\":[",
                      i->kv_dtype, i->isa, i->gemm, i->decode_bytes,
                      i->kv_token_bytes, plan->gen, plan->reps,
                      (long long)plan->warmup);
    for (size_t j = 0; j < n; j++) {
        if (j)
            bad |= buf_putc(o, ',');
        bad |= put_json_line(o, &lines[j]);
    }
    return buf_puts(o, "]}\n") | bad ? -1 : 0;
}
