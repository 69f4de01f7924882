/* The page of `bench --html`. */
#include <math.h>
#include <stdio.h>

#include "cli/bench/bench_charts.h"
#include "cli/report/profile.h"
#include "cli/report/scale.h"
#include "cli/io/units.h"

/* ---- facts and tables --------------------------------------------------- */

static void put_machine(struct html *h, const struct machine *m)
{
    char text[128], memory[32];
    size_text(m->memory, "B", memory);
    html_puts(h, "<table class=\"facts\">\n<caption>Machine</caption>\n");
    html_fact(h, "CPU", m->cpu);
    snprintf(text, sizeof(text), "%d logical CPUs, %s memory available",
             m->cpus, memory);
    html_fact(h, "Resources", text);
    html_fact(h, "System", m->system);
    html_fact(h, "qwick", qwick_version());
    html_fact(h, "Date", m->date);
    html_puts(h, "</table>\n");
}

static void put_model(struct html *h, const struct bench_report *r,
                      const struct bench_model *m)
{
    char text[256], size[32], params[32];
    size_text(m->decode_bytes, "B", size);
    size_text(m->n_params, "", params);
    html_puts(h, "<table class=\"facts\">\n<caption>Model and settings"
                 "</caption>\n");
    snprintf(text, sizeof(text), "%.60s, %s parameters, %s read for a token",
             m->weights_dtype, params, size);
    html_fact(h, "Weights", text);
    snprintf(text, sizeof(text), "%.30s of %.30s, products of prefill %.30s%s",
             m->isa, m->cpu, m->gemm, r->set.exact ? ", exact" : "");
    html_fact(h, "Kernels", text);
    html_fact(h, "KV cache", m->kv_dtype);
    snprintf(text, sizeof(text),
             "%zu timed, %lld before them; %zu decode steps each",
             r->set.plan.reps, (long long)r->set.plan.warmup, m->gen);
    html_fact(h, "Runs", text);
    html_puts(h, "</table>\n");
}

static void put_cell(struct html *h, double v, const char *unit)
{
    char text[SCALE_TEXT];
    scale_number(v, text);
    html_markup(h, "<td>%s%s</td>", text, isfinite(v) ? unit : "");
}

static void put_row(struct html *h, const struct bench_report *r,
                    const struct bench_model *m, const struct bench_line *l)
{
    struct bench_was was;
    char unit[16];
    snprintf(unit, sizeof(unit), " %s", bench_unit(m, l));
    html_markup(h, "<tr><td>%s</td><td>%zu</td><td>%zu</td><td>%d</td>",
                bench_test_name(l->test), l->n, l->batch, l->threads);
    put_cell(h, l->tok_s, "");
    put_cell(h, 100 * l->spread, "%");
    put_cell(h, l->rate / 1e9, unit);
    put_cell(h, l->limit / 1e9, unit);
    put_cell(h, 100 * l->share, "%");
    html_markup(h, "<td>%.1f to %.1f%%</td>", 100 * l->share_min,
                100 * l->share_max);
    if (bench_find_was(r, m, l, &was)) {
        put_cell(h, was.tok_s, "");
        put_cell(h, l->tok_s / was.tok_s, "");
        put_cell(h, l->share / was.share, "");
    }
    html_puts(h, "</tr>\n");
}

static void put_results(struct html *h, const struct bench_report *r,
                        const struct bench_model *m)
{
    html_puts(h, "<div class=\"wide\"><table>\n<caption>Medians of the runs. "
                 "The limit is the read bandwidth or the peak of arithmetic, "
                 "measured before and after each run.</caption>\n<thead><tr>"
                 "<th scope=\"col\">Test</th><th scope=\"col\">Tokens</th>"
                 "<th scope=\"col\">Batch</th><th scope=\"col\">Threads</th>"
                 "<th scope=\"col\">Tokens/s</th><th scope=\"col\">Spread</th>"
                 "<th scope=\"col\">Rate</th><th scope=\"col\">Limit</th>"
                 "<th scope=\"col\">Of limit</th>"
                 "<th scope=\"col\">Least to most</th>");
    if (r->was)
        html_puts(h, "<th scope=\"col\">Old tokens/s</th>"
                     "<th scope=\"col\">Speed, ratio</th>"
                     "<th scope=\"col\">Share, ratio</th>");
    html_puts(h, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < m->n_lines; i++)
        put_row(h, r, m, &m->lines[i]);
    html_puts(h, "</tbody></table></div>\n");
}

static void put_percentiles(struct html *h, const struct bench_model *m)
{
    html_puts(h, "<div class=\"wide\"><table>\n<caption>Milliseconds of a "
                 "decode step, over all runs</caption>\n<thead><tr>"
                 "<th scope=\"col\">Test</th><th scope=\"col\">Steps</th>"
                 "<th scope=\"col\">Least</th><th scope=\"col\">Median</th>"
                 "<th scope=\"col\">p95</th><th scope=\"col\">p99</th>"
                 "<th scope=\"col\">Most</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        struct quantiles q;
        char name[BENCH_NAME];
        if (!l->n_steps)
            continue;
        if (quantiles_of(l->step_ms, l->n_steps, &q)) {
            h->failed = true;
            return;
        }
        bench_series_name(m, l, name);
        html_markup(h, "<tr><td>%s</td><td>%zu</td>", name, l->n_steps);
        const double v[] = {q.least, q.median, q.p95, q.p99, q.most};
        for (size_t k = 0; k < 5; k++)
            put_cell(h, v[k], "");
        html_puts(h, "</tr>\n");
    }
    html_puts(h, "</tbody></table></div>\n");
}

/* ---- the page ----------------------------------------------------------- */

static void put_model_part(struct html *h, const struct bench_report *r,
                           const struct bench_model *m)
{
    html_puts(h, "<section>\n<h2>Model ");
    html_cstr(h, m->name);
    html_puts(h, "</h2>\n");
    put_model(h, r, m);
    put_results(h, r, m);
    put_percentiles(h, m);
    html_puts(h, "<div class=\"charts\">\n");
    bench_roofline(h, m);
    bench_depths(h, m);
    for (size_t i = 0; i < m->n_lines; i++)
        if (m->lines[i].n_steps)
            bench_steps(h, m, &m->lines[i]);
    bench_quantiles(h, m);
    html_puts(h, "</div>\n</section>\n");
}

void bench_page(struct html *h, const struct bench_report *r)
{
    html_begin(h, "qwick bench");
    put_machine(h, &r->machine);
    for (size_t k = 0; k < r->n_models && !h->failed; k++)
        put_model_part(h, r, &r->models[k]);
    html_end(h);
}
