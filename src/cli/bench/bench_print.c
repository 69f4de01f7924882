#include "cli/bench/bench_report.h"

#include <math.h>
#include <string.h>

#include "cli/io/units.h"
#include "cli/report/profile.h"

/* ---- facts -------------------------------------------------------------- */

enum { LINE_FACTS = 17 };

size_t bench_model_facts(struct fact *out, const struct bench_report *r,
                         const struct bench_model *m)
{
    const struct bench_settings *set = &r->set;
    size_t n = machine_facts(out, &r->machine);
    const struct fact facts[] = {
        CELL("model", "model", NULL, NULL, 0, AS_TEXT(m->name)),
        FACT("identity", AS_TEXT(m->identity)),
        CELL("weights_dtype", "weights_dtype", NULL, NULL, 0,
             AS_TEXT(m->weights_dtype)),
        CELL("kv_dtype", "kv_dtype", NULL, NULL, 0, AS_TEXT(m->kv_dtype)),
        CELL("isa", "isa", NULL, NULL, 0, AS_TEXT(m->isa)),
        FACT("cpu", AS_TEXT(m->cpu)),
        CELL("gemm", "gemm", NULL, NULL, 0, AS_TEXT(m->gemm)),
        FACT("exact", AS_BOOL(set->exact)),
        FACT("preload", AS_BOOL(set->preload)),
        FACT("numa", AS_TEXT(set->numa)),
        FACT("prefill_chunk", AS_COUNT(set->prefill_chunk)),
        FACT("decode_bytes", AS_BYTES(m->decode_bytes)),
        FACT("kv_token_bytes", AS_BYTES(m->kv_token_bytes)),
        FACT("gen", AS_COUNT(m->gen)),
        {.json = isfinite(m->huge_share) ? "huge_share" : NULL,
         AS_REAL(m->huge_share, 0, 0)},
        FACT("reps", AS_COUNT(set->plan.reps)),
        FACT("warmup", AS_COUNT(set->plan.warmup)),
    };
    memcpy(out + n, facts, sizeof(facts));
    return n + sizeof(facts) / sizeof(*facts);
}

/* The columns of the table. Of a NULL line only their names are needed. */
static size_t line_facts(struct fact *out, const struct bench_report *r,
                         const struct bench_model *m,
                         const struct bench_line *l)
{
    static const struct bench_line none;
    const char *unit = l ? bench_unit(m, l) : NULL;
    l = l ? l : &none;
    const char *n = l->test == BENCH_PREFILL ? "tokens" : "depth";
    const char *rate = l->by_memory ? "gb_s" : "gflop_s";
    double speed = l->tok_s / l->was.tok_s, share = l->share / l->was.share;
    const struct fact facts[] = {
        CELL("test", "test", "test", "Test", -7,
             AS_TEXT(bench_test_name(l->test))),
        CELL(n, "tokens", "tokens", "Tokens", 7, AS_COUNT(l->n)),
        CELL("batch", "batch", "batch", "Batch", 5, AS_COUNT(l->batch)),
        CELL("threads", "threads", "threads", "Threads", 7,
             AS_COUNT(l->threads)),
        CELL("tok_s", "tok_s", "tok/s", "Tokens/s", 10,
             AS_REAL(l->tok_s, 1, 3)),
        FACT("spread", AS_REAL(l->spread, 0, 0)),
        CELL(NULL, "spread_percent", "spread", "Spread", 6,
             AS_PERCENT(l->spread)),
        CELL(rate, "rate", "rate", "Rate", 8, AS_REAL(l->rate / 1e9, 1, 4),
             .unit = unit),
        CELL("limit", "limit", "limit", "Limit", 8,
             AS_REAL(l->limit / 1e9, 1, 4), .unit = unit),
        CELL("unit", "unit", "unit", NULL, -7, AS_WORD(unit)),
        CELL("percent_of_limit", "percent_of_limit", "of limit", "Of limit", 9,
             AS_PERCENT(l->share)),
        CELL("least_percent", "least_percent", "least", NULL, 6,
             AS_PERCENT(l->share_min)),
        CELL("most_percent", "most_percent", "most", NULL, 6,
             AS_PERCENT(l->share_max)),
        CELL(NULL, NULL, "least, most", "Least to most", 0,
             AS_RANGE(l->share_min, l->share_max)),
        CELL("old_tok_s", "old_tok_s", "old tok/s", "Old tokens/s", 10,
             AS_REAL(l->was.tok_s, 1, 3)),
        CELL("speed_ratio", "speed_ratio", "speed", "Speed, ratio", 6,
             AS_REAL(speed, 3, 4)),
        CELL("share_ratio", "share_ratio", "share", "Share, ratio", 6,
             AS_REAL(share, 3, 4)),
    };
    size_t n_facts = sizeof(facts) / sizeof(*facts);
    memcpy(out, facts, sizeof(facts));
    return r->was ? n_facts : n_facts - 3;
}

void bench_put_row(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m, const struct bench_line *l,
                   enum report_format form)
{
    struct fact f[BENCH_FACTS + LINE_FACTS];
    size_t n = form == REPORT_CSV ? bench_model_facts(f, r, m) : 0;
    n += line_facts(f + n, r, m, l);
    report_row(o, f, n, form, !l);
}

/* ---- text and Markdown -------------------------------------------------- */

void bench_put_start(struct buf *o, const struct bench_report *r,
                     enum report_format f)
{
    const struct machine *m = &r->machine;
    char memory[32];
    const char *end = f == REPORT_MD ? "  \n" : "\n"; /* a line break */
    size_text(m->memory, "B", memory);
    if (f == REPORT_CSV)
        bench_put_row(o, r, r->models, NULL, f);
    else if (f != REPORT_JSON)
        buf_printf(o, "qwick %s bench, %s%s%s, %d CPUs, %s available%s%s\n",
                   qwick_version(), m->date, end, m->system, m->cpus, memory,
                   end, m->cpu);
}

void bench_put_head(struct buf *o, const struct bench_report *r,
                    const struct bench_model *m, enum report_format f)
{
    bool md = f == REPORT_MD;
    if (f == REPORT_JSON || f == REPORT_CSV)
        return;
    buf_puts(o, m == r->models && !md ? "model " : "\nmodel ");
    buf_json_cstr(o, m->name);
    buf_printf(o,
               ", %s, kv %s, kernels %s of %s, prefill %s, "
               "%.1f MB a token\n%s",
               m->weights_dtype, m->kv_dtype, m->isa, m->cpu, m->gemm,
               (double)m->decode_bytes / 1e6, md ? "\n" : "");
    bench_put_row(o, r, m, NULL, f);
}

static void put_part(struct buf *o, const char *name, double ms, double total,
                     bool md)
{
    buf_printf(o, md ? "| %s | %.3f | %.1f%% |\n" : "  %-12s %9.3f %5.1f%%\n",
               name, ms, 100 * ms / total);
}

void bench_put_parts(struct buf *o, const struct bench_line *l, bool md)
{
    double total = isnan(l->sampling_ms) ? 0 : l->sampling_ms;
    for (size_t i = 0; i < QWICK_PROFILE_PARTS; i++)
        total += l->parts[i];
    buf_printf(o,
               md ? "\n%s %zu, batch %zu, %d threads:\n\n"
                    "| part | ms a pass | share |\n|---|---:|---:|\n"
                  : "%s %zu, batch %zu, %d threads: ms a pass, share\n",
               bench_test_name(l->test), l->n, l->batch, l->threads);
    for (size_t i = 0; i < QWICK_PROFILE_PARTS; i++)
        put_part(o, qwick_profile_part(i), l->parts[i], total, md);
    if (!isnan(l->sampling_ms))
        put_part(o, "sampling", l->sampling_ms, total, md);
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

void bench_put_json(struct buf *o, const struct bench_report *r,
                    const struct bench_model *m)
{
    struct fact f[BENCH_FACTS];
    struct json_writer w = jw_line(o);
    report_json(&w, f, bench_model_facts(f, r, m));
    jw_array(&w, "results");
    for (size_t i = 0; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        jw_object(&w, NULL);
        report_json(&w, f, line_facts(f, r, m, l));
        put_json_times(&w, l);
        if (l->has_parts)
            put_json_parts(&w, l);
        jw_end_object(&w);
    }
    jw_end_line(&w);
}
