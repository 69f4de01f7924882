#include "cli/models/quantize_report.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "cli/answer/score_record.h"
#include "cli/io/lines.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/report/loss_rows.h"
#include "cli/report/report.h"
#include "cli/sandbox/open_model.h"

/* ---- texts -------------------------------------------------------------- */

static int reserve_text(struct quantize_report *r, struct qwick_err *e)
{
    return ARRAY_RESERVE(r->texts, r->cap_texts, r->n_texts + 1, e);
}

static int read_line(void *ctx, const struct line *l)
{
    struct quantize_report *r = ctx;
    const struct buf none = {0};
    struct qwick_err e = {0};
    struct record record;
    int status = 0;
    if (record_read(&record, l) || reserve_text(r, &e)) {
        status = msg_oom();
    } else if (record.error.len) {
        status = msg_refuse("--report: %s", record.error.data);
    } else if (score_record_read(&r->texts[r->n_texts], r->against.reference,
                                 &r->p->a, &none, &none, record.value, &e)) {
        status = msg_stop(e.code, "--report: %s: %s", l->where, e.msg);
    } else {
        r->n_texts++;
    }
    record_free(&record);
    return status;
}

static int read_text(struct quantize_report *r, const char *path)
{
    const struct strings one = {&path, 1};
    struct qwick_err e = {0};
    struct buf text = {0};
    bool found;
    int bad = prompt_bytes(&text, &one, NULL, &found, &e) ||
              reserve_text(r, &e) ||
              score_prepare(&r->texts[r->n_texts], r->against.reference,
                            &r->p->a, NULL, 0, buf_text(&text), text.len, &e);
    r->n_texts += !bad;
    buf_free(&text);
    return bad ? msg_fail(&e) : 0;
}

static int read_texts(struct quantize_report *r, const char *path)
{
    const struct lines_handler handler = {.line = read_line};
    const struct strings one = {&path, 1};
    const char *dot = strrchr(path, '.');
    int status = dot && strcmp(dot, ".jsonl") == 0
                     ? lines_run(&one, &handler, r)
                     : read_text(r, path);
    for (size_t i = 0; i < r->n_texts && !status; i++) {
        const struct qwick_score_item *it = &r->texts[i].item;
        if (qwick_score_first(it) < it->n)
            return 0;
    }
    return status ? status
                  : msg_refuse("--report: %s: has no token to measure", path);
}

/* ---- the comparison ----------------------------------------------------- */

int quantize_report_open(struct quantize_report *r, struct opt_parsed *p)
{
    r->p = p;
    int status = open_model_exact(&r->against.reference, p, NULL);
    return status ? status : read_texts(r, p->a.report);
}

int quantize_report_run(struct quantize_report *r)
{
    struct qwick_score_options o = qwick_score_defaults();
    struct qwick_err e = {0};
    int status = open_model_exact(&r->against.eng, r->p, r->p->a.output);
    if (status)
        return status;
    o.progress = progress_step;
    o.interrupt = signals_flag();
    progress_start("report");
    int failed =
        against_compare(&r->against, r->texts, r->n_texts, &o, &e) ||
        qwick_losses_summary(r->against.sum, &r->losses, &e);
    progress_stop();
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    return 0;
}

void quantize_report_json(const struct quantize_report *r,
                          struct json_writer *w)
{
    jw_object(w, "report");
    jw_cstr(w, "file", r->p->a.report);
    jw_uint(w, "n_texts", r->against.n_texts);
    losses_json(w, &r->losses);
    jw_end_object(w);
}

int quantize_report_print(const struct quantize_report *r,
                          const struct qwick_quantize_report *sizes)
{
    struct buf b = {0};
    buf_printf(&b, "bytes\t%zu\nsource_bytes\t%zu\nbits_per_weight\t%.4f\n",
               sizes->bytes_written, sizes->bytes_read, sizes->bits_per_weight);
    losses_lines(&b, &r->losses);
    return out_print(&b, out_write);
}

void quantize_report_close(struct quantize_report *r)
{
    for (size_t i = 0; i < r->n_texts; i++)
        score_free(&r->texts[i]);
    free(r->texts);
    qwick_engine_close(r->against.eng);
    against_close(&r->against);
}
