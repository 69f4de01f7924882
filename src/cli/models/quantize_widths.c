#include "cli/models/quantize_widths.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/report/report.h"

void quantize_widths_add(void *ctx, const struct qwick_width *width)
{
    struct quantize_widths *t = ctx;
    char *name = strdup(width->name);
    if (!name || ARRAY_RESERVE(t->v, t->cap, t->n + 1, NULL)) {
        free(name);
        t->failed = true;
        return;
    }
    t->v[t->n] = *width;
    t->v[t->n++].name = name;
}

void quantize_widths_free(struct quantize_widths *t)
{
    for (size_t i = 0; i < t->n; i++)
        free((char *)(uintptr_t)t->v[i].name);
    free(t->v);
    *t = (struct quantize_widths){0};
}

enum { N_FACTS = 6 };

/* bits: of a module, or the mean of all. all: a row of totals. */
static void put_facts(struct fact out[N_FACTS], const struct qwick_width *w,
                        double bits, bool all)
{
    const struct fact type = CELL("type", NULL, "type", NULL, -1,
                                  AS_NAME(w->type ? w->type : ""));
    const struct fact facts[N_FACTS] = {
        CELL("module", NULL, "module", NULL, -1, AS_NAME(w->name)),
        CELL("n_weights", NULL, "weights", NULL, 1, AS_COUNT(w->n_weights)),
        CELL("bits", NULL, "bits", NULL, 1, AS_REAL(bits, all ? 3 : 0, 0)),
        CELL("bytes", NULL, "bytes", NULL, 1, AS_COUNT(w->bytes)),
        CELL("loss", NULL, "loss", NULL, 1, AS_REAL(w->loss, 7, 0)),
        CELL("group", NULL, "group", NULL, 1, AS_COUNT((size_t)w->group),
             .unknown = all),
    };
    memcpy(out, facts, sizeof(facts));
    if (w->type)
        out[N_FACTS - 1] = type;
}

void quantize_widths_json(const struct quantize_widths *t,
                          const struct qwick_quantize_report *r,
                          int common_bits, struct json_writer *w)
{
    struct fact facts[N_FACTS];
    jw_object(w, "budget");
    jw_double(w, "kl", r->kl);
    jw_double(w, "uniform_kl", r->uniform_kl);
    jw_int(w, "uniform_bits", r->uniform_bits);
    jw_uint(w, "n_measured", r->n_measured);
    jw_int(w, "common_bits", common_bits);
    jw_end_object(w);
    jw_array(w, "widths");
    for (size_t i = 0; i < t->n; i++) {
        put_facts(facts, &t->v[i], t->v[i].bits, false);
        jw_object(w, NULL);
        report_json(w, facts, N_FACTS);
        jw_end_object(w);
    }
    jw_end_array(w);
}

int quantize_widths_print(const struct quantize_widths *t,
                          const struct qwick_quantize_report *r)
{
    struct qwick_width total = {.name = "all",
                                .type = t->n && t->v[0].type ? "" : NULL};
    struct report_table table = {0};
    struct fact facts[N_FACTS];
    struct buf b = {0};
    int bad = t->failed;
    for (size_t i = 0; i < t->n; i++) {
        put_facts(facts, &t->v[i], t->v[i].bits, false);
        bad |= report_table_add(&table, facts, N_FACTS);
        total.n_weights += t->v[i].n_weights;
        total.bytes += t->v[i].bytes;
        total.loss += t->v[i].loss;
    }
    put_facts(
        facts, &total, 8 * (double)total.bytes / (double)total.n_weights, true);
    bad |= report_table_add(&table, facts, N_FACTS);
    report_table_put(&b, &table, bad);
    buf_printf(&b,
               "KL measured on %zu tokens of the calibration: %.5f; with %d "
               "bits everywhere: %.5f\n",
               r->n_measured, r->kl, r->uniform_bits, r->uniform_kl);
    return out_print(&b, out_write_names);
}
