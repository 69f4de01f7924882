#include <math.h>

#include "cli/bench/bench_report.h"
#include "cli/io/json_writer.h"
#include "cli/report/profile.h"
#include "cli/io/units.h"
#include "qwick_tools.h"

/* ---- text and Markdown -------------------------------------------------- */

static int put_csv_names(struct buf *o, const struct bench_report *r);

int bench_put_start(struct buf *o, const struct bench_report *r,
                    enum bench_format f)
{
    const struct machine *m = &r->machine;
    char memory[32];
    if (f == BENCH_CSV)
        return put_csv_names(o, r);
    if (f == BENCH_JSON)
        return 0;
    size_text(m->memory, "B", memory);
    const char *end = f == BENCH_MD ? "  \n" : "\n"; /* a line break */
    return buf_printf(o, "qwick %s bench, %s%s%s, %d CPUs, %s available%s%s\n",
                      qwick_version(), m->date, end, m->system, m->cpus, memory,
                      end, m->cpu);
}

int bench_put_head(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m, enum bench_format f)
{
    bool md = f == BENCH_MD;
    struct buf name = {0};
    if (f == BENCH_JSON || f == BENCH_CSV)
        return 0;
    int bad = buf_json_cstr(&name, m->name);
    bad |= buf_printf(o,
                      "%smodel %s, %s, kv %s, kernels %s of %s, prefill %s, "
                      "%.1f MB a token\n%s",
                      m == r->models && !md ? "" : "\n",
                      bad ? "" : name.data, m->weights_dtype, m->kv_dtype,
                      m->isa, m->cpu, m->gemm, (double)m->decode_bytes / 1e6,
                      md ? "\n" : "");
    buf_free(&name);
    bad |= buf_puts(
        o, md ? "| test | tokens | batch | threads | tok/s | spread | rate | "
                "limit | of limit | least, most |"
              : "test     tokens batch threads      tok/s spread     rate    "
                "limit unit     of limit  least   most");
    if (r->was)
        bad |= buf_puts(o, md ? " old tok/s | speed | share |"
                              : "  old tok/s  speed  share");
    bad |= buf_puts(o, md ? "\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
                            "---:|"
                          : "");
    if (r->was && md)
        bad |= buf_puts(o, "---:|---:|---:|");
    return buf_putc(o, '\n') || bad ? -1 : 0;
}

static int put_row(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m, const struct bench_line *l,
                   bool md)
{
    struct bench_was was;
    const char *unit = bench_unit(m, l);
    int bad = buf_printf(o, md ? "| %s | %zu | %zu | %d | %.1f | %.1f%% | "
                               : "%-7s %7zu %5zu %7d %10.1f %5.1f%% ",
                         bench_test_name(l->test), l->n, l->batch, l->threads,
                         l->tok_s, 100 * l->spread);
    /* the table of a terminal names the unit of both once */
    bad |= md ? buf_printf(o, "%.1f %s | %.1f %s", l->rate / 1e9, unit,
                           l->limit / 1e9, unit)
              : buf_printf(o, "%8.1f %8.1f %-7s", l->rate / 1e9, l->limit / 1e9,
                           unit);
    bad |= buf_printf(o, md ? " | %.1f%% | %.1f%%, %.1f%% |"
                            : " %8.1f%% %5.1f%% %5.1f%%",
                      100 * l->share, 100 * l->share_min, 100 * l->share_max);
    if (bench_find_was(r, m, l, &was))
        bad |= buf_printf(o, md ? " %.1f | %.3f | %.3f |" : " %10.1f %6.3f %6.3f",
                          was.tok_s, l->tok_s / was.tok_s,
                          l->share / was.share);
    return buf_putc(o, '\n') || bad ? -1 : 0;
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
    for (size_t i = 0; i < QWICK_PROFILE_PARTS; i++)
        total += l->parts[i];
    int bad =
        buf_printf(o,
                   md ? "\n%s %zu, batch %zu, %d threads:\n\n"
                        "| part | ms a pass | share |\n|---|---:|---:|\n"
                      : "%s %zu, batch %zu, %d threads: ms a pass, share\n",
                   bench_test_name(l->test), l->n, l->batch, l->threads);
    for (size_t i = 0; i < QWICK_PROFILE_PARTS; i++)
        bad |= put_part(o, qwick_profile_part(i), l->parts[i], total, md);
    if (!isnan(l->sampling_ms))
        bad |= put_part(o, "sampling", l->sampling_ms, total, md);
    return bad ? -1 : 0;
}

/* ---- CSV ---------------------------------------------------------------- */

static int put_csv_names(struct buf *o, const struct bench_report *r)
{
    return buf_printf(o,
                      "version,date,system,cpu_name,cpus,model,weights_dtype,"
                      "kv_dtype,isa,gemm,test,tokens,batch,threads,tok_s,"
                      "spread_percent,rate,limit,unit,percent_of_limit,"
                      "least_percent,most_percent%s\n",
                      r->was ? ",old_tok_s,speed_ratio,share_ratio" : "");
}

/* Append a field and a comma; RFC 4180 doubles quotes. */
static int put_field(struct buf *o, const char *s)
{
    int bad = buf_putc(o, '"');
    for (; *s; s++)
        bad |= *s == '"' ? buf_puts(o, "\"\"") : buf_putc(o, *s);
    return buf_puts(o, "\",") | bad;
}

static int put_csv(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m, const struct bench_line *l)
{
    const char *const texts[] = {qwick_version(), r->machine.date,
                                 r->machine.system, r->machine.cpu};
    const char *const model[] = {m->name, m->weights_dtype, m->kv_dtype, m->isa,
                                 m->gemm, bench_test_name(l->test)};
    struct bench_was was;
    int bad = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        bad |= put_field(o, texts[i]);
    bad |= buf_printf(o, "%d,", r->machine.cpus);
    for (size_t i = 0; i < sizeof(model) / sizeof(*model); i++)
        bad |= put_field(o, model[i]);
    bad |= buf_printf(o, "%zu,%zu,%d,%.3f,%.3f,%.4f,%.4f,%s,%.3f,%.3f,%.3f",
                      l->n, l->batch, l->threads, l->tok_s, 100 * l->spread,
                      l->rate / 1e9, l->limit / 1e9, bench_unit(m, l),
                      100 * l->share, 100 * l->share_min, 100 * l->share_max);
    if (bench_find_was(r, m, l, &was))
        bad |= buf_printf(o, ",%.3f,%.4f,%.4f", was.tok_s,
                          l->tok_s / was.tok_s, l->share / was.share);
    return buf_putc(o, '\n') || bad ? -1 : 0;
}

int bench_put_line(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m, const struct bench_line *l,
                   enum bench_format f)
{
    if (f == BENCH_JSON)
        return 0;
    return f == BENCH_CSV ? put_csv(o, r, m, l)
                          : put_row(o, r, m, l, f == BENCH_MD);
}

/* ---- JSON --------------------------------------------------------------- */

static void put_json_parts(struct json_writer *w, const struct bench_line *l)
{
    jw_object(w, "parts_ms");
    for (size_t i = 0; i < QWICK_PROFILE_PARTS; i++)
        jw_double(w, qwick_profile_part(i), l->parts[i]);
    if (!isnan(l->sampling_ms))
        jw_double(w, "sampling", l->sampling_ms);
    jw_end_object(w);
}

static void put_json_times(struct json_writer *w, const struct bench_line *l)
{
    jw_array(w, "runs_ms");
    for (size_t i = 0; i < l->n_runs; i++)
        jw_double(w, NULL, l->run_ms[i]);
    jw_end_array(w);
    if (!l->n_steps)
        return;
    struct quantiles q;
    if (quantiles_of(l->step_ms, l->n_steps, &q)) {
        w->failed = true;
        return;
    }
    jw_object(w, "step_ms");
    jw_double(w, "least", q.least);
    jw_double(w, "median", q.median);
    jw_double(w, "p95", q.p95);
    jw_double(w, "p99", q.p99);
    jw_double(w, "most", q.most);
    jw_end_object(w);
}

static void put_json_line(struct json_writer *w, const struct bench_report *r,
                          const struct bench_model *m,
                          const struct bench_line *l)
{
    struct bench_was was;
    jw_object(w, NULL);
    jw_cstr(w, "test", bench_test_name(l->test));
    jw_uint(w, l->test == BENCH_PREFILL ? "tokens" : "depth", l->n);
    jw_uint(w, "batch", l->batch);
    jw_int(w, "threads", l->threads);
    jw_double(w, "tok_s", l->tok_s);
    jw_double(w, "spread", l->spread);
    jw_double(w, l->by_memory ? "gb_s" : "gflop_s", l->rate / 1e9);
    jw_double(w, "limit", l->limit / 1e9);
    jw_cstr(w, "unit", bench_unit(m, l));
    jw_double(w, "percent_of_limit", 100 * l->share);
    jw_double(w, "least_percent", 100 * l->share_min);
    jw_double(w, "most_percent", 100 * l->share_max);
    if (bench_find_was(r, m, l, &was)) {
        jw_double(w, "old_tok_s", was.tok_s);
        jw_double(w, "speed_ratio", l->tok_s / was.tok_s);
        jw_double(w, "share_ratio", l->share / was.share);
    }
    put_json_times(w, l);
    if (l->has_parts)
        put_json_parts(w, l);
    jw_end_object(w);
}

int bench_put_json(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m)
{
    const struct machine *x = &r->machine;
    struct json_writer w = json_writer(o);
    jw_object(&w, NULL);
    jw_cstr(&w, "version", qwick_version());
    jw_cstr(&w, "date", x->date);
    jw_cstr(&w, "system", x->system);
    jw_cstr(&w, "cpu_name", x->cpu);
    jw_int(&w, "cpus", x->cpus);
    jw_uint(&w, "available_memory", x->memory);
    jw_cstr(&w, "model", m->name);
    jw_cstr(&w, "identity", m->identity);
    jw_cstr(&w, "weights_dtype", m->weights_dtype);
    jw_cstr(&w, "kv_dtype", m->kv_dtype);
    jw_cstr(&w, "isa", m->isa);
    jw_cstr(&w, "cpu", m->cpu);
    jw_cstr(&w, "gemm", m->gemm);
    jw_bool(&w, "exact", r->set.exact);
    jw_bool(&w, "preload", r->set.preload);
    jw_cstr(&w, "numa", r->set.numa);
    jw_uint(&w, "prefill_chunk", r->set.prefill_chunk);
    jw_uint(&w, "decode_bytes", m->decode_bytes);
    jw_uint(&w, "kv_token_bytes", m->kv_token_bytes);
    jw_uint(&w, "gen", m->gen);
    if (isfinite(m->huge_share))
        jw_double(&w, "huge_share", m->huge_share);
    jw_uint(&w, "reps", r->set.plan.reps);
    jw_int(&w, "warmup", r->set.plan.warmup);
    jw_array(&w, "results");
    for (size_t j = 0; j < m->n_lines; j++)
        put_json_line(&w, r, m, &m->lines[j]);
    jw_end_array(&w);
    jw_end_object(&w);
    jw_newline(&w);
    return jw_status(&w);
}
