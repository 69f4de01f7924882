/* The page of `bench --html`. */

#include "cli/bench/bench_charts.h"
#include "cli/report/profile.h"
#include "cli/report/scale.h"
#include "cli/io/units.h"

/* ---- facts and tables --------------------------------------------------- */

static void page_machine(struct html *h, const struct machine *m)
{
    char memory[32];
    size_text(m->memory, "B", memory);
    html_puts(h, "<table class=\"facts\">\n<caption>Machine</caption>\n");
    html_fact(h, "CPU", "%s", m->cpu);
    html_fact(h, "Resources", "%d logical CPUs, %s memory available", m->cpus,
              memory);
    html_fact(h, "System", "%s", m->system);
    html_fact(h, "qwick", "%s", qwick_version());
    html_fact(h, "Date", "%s", m->date);
    html_puts(h, "</table>\n");
}

static void page_facts(struct html *h, const struct bench_report *r,
                       const struct bench_model *m)
{
    char size[32], params[32];
    size_text(m->decode_bytes, "B", size);
    size_text(m->n_params, "", params);
    html_puts(h, "<table class=\"facts\">\n<caption>Model and settings"
                 "</caption>\n");
    html_fact(h, "Weights", "%.60s, %s parameters, %s read for a token",
              m->weights_dtype, params, size);
    html_fact(h, "Kernels", "%.30s of %.30s, products of prefill %.30s%s",
              m->isa, m->cpu, m->gemm, r->set.exact ? ", exact" : "");
    html_fact(h, "KV cache", "%s", m->kv_dtype);
    html_fact(h, "Runs", "%zu timed, %lld before them; %zu decode steps each",
              r->set.plan.reps, (long long)r->set.plan.warmup, m->gen);
    html_puts(h, "</table>\n");
}

static void page_results(struct html *h, const struct bench_report *r,
                         const struct bench_model *m)
{
    html_puts(h, "<div class=\"wide\"><table>\n<caption>Medians of the runs. "
                 "The limit is the read bandwidth or the peak of arithmetic, "
                 "measured before and after each run.</caption>\n<thead><tr>");
    bench_put_row(&h->out, r, m, NULL, REPORT_HTML);
    html_puts(h, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < m->n_lines; i++) {
        html_puts(h, "<tr>");
        bench_put_row(&h->out, r, m, &m->lines[i], REPORT_HTML);
        html_puts(h, "</tr>\n");
    }
    html_puts(h, "</tbody></table></div>\n");
}

static void page_percentiles(struct html *h, const struct bench_model *m)
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
            h->out.failed = true;
            return;
        }
        bench_series_name(m, l, name);
        html_markup(h, "<tr><td>%s</td><td>%zu</td>", name, l->n_steps);
        const double v[] = {q.least, q.median, q.p95, q.p99, q.most};
        for (size_t k = 0; k < 5; k++) {
            char text[SCALE_TEXT];
            scale_number(v[k], text);
            html_markup(h, "<td>%s</td>", text);
        }
        html_puts(h, "</tr>\n");
    }
    html_puts(h, "</tbody></table></div>\n");
}

/* ---- the page ----------------------------------------------------------- */

static void page_model(struct html *h, const struct bench_report *r,
                       const struct bench_model *m)
{
    html_puts(h, "<section>\n<h2>Model ");
    html_cstr(h, m->name);
    html_puts(h, "</h2>\n");
    page_facts(h, r, m);
    page_results(h, r, m);
    page_percentiles(h, m);
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
    page_machine(h, &r->machine);
    for (size_t k = 0; k < r->n_models && !h->out.failed; k++)
        page_model(h, r, &r->models[k]);
    html_end(h);
}
