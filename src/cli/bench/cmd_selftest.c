/* selftest: check that this machine computes a model correctly. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "file/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/report/machine.h"
#include "qwick_tools.h"

/* The report while the checks run. Rows are printed when a check ends, so that
 * a run that dies shows how far it came. */
struct report {
    bool json;
    struct buf out;
    struct json_writer w;
    bool failed; /* to write */
};

/* The names of results in the table, and in JSON. */
static const struct {
    const char *table, *json;
} results[] = {
    [QWICK_SELFTEST_PASS] = {"pass", "pass"},
    [QWICK_SELFTEST_FAIL] = {"FAIL", "fail"},
    [QWICK_SELFTEST_SKIP] = {"skip", "skip"},
    [QWICK_SELFTEST_CUT] = {"cut", "cut"},
};

static void selftest_flush(struct report *r)
{
    if (!r->out.len || r->failed || r->out.failed)
        return;
    progress_output(STDOUT_FILENO);
    r->failed = out_write_names(r->out.data, r->out.len) != 0;
    r->out.len = 0;
}

/* ---- the head ------------------------------------------------------------ */

static void head_lines(struct buf *b, const struct machine *m,
                       const struct qwick_info *i)
{
    char memory[32], params[32];
    size_text(m->memory, "B", memory);
    size_text(i->n_params, "", params);
    buf_printf(b,
               "qwick %s selftest, %s\n"
               "system   %s, %d CPUs, %s available\n"
               "cpu      %s\n"
               "kernels  %s of %s, %d threads, prefill %s\n"
               "model    ",
               qwick_version(), m->date, m->system, m->cpus, memory, m->cpu,
               i->isa, i->cpu, i->threads, i->gemm);
    /* a name of a directory may hold any byte */
    buf_json_cstr(b, i->model);
    buf_printf(b,
               ", %s, %s, %s parameters\n\n"
               "check                result  seconds  detail\n",
               i->model_type, i->weights_dtype, params);
}

static void head_json(struct json_writer *w, const struct machine *m,
                      const struct qwick_info *i)
{
    struct fact facts[MACHINE_FACTS];
    jw_object(w, NULL);
    report_json(w, facts, machine_facts(facts, m));
    jw_cstr(w, "isa", i->isa);
    jw_cstr(w, "cpu", i->cpu);
    jw_int(w, "threads", i->threads);
    jw_cstr(w, "gemm", i->gemm);
    jw_cstr(w, "model", i->model);
    jw_cstr(w, "model_type", i->model_type);
    jw_cstr(w, "weights_dtype", i->weights_dtype);
    jw_uint(w, "n_params", i->n_params);
    jw_array(w, "checks");
}

static void selftest_head(struct report *r, const struct qwick_info *i)
{
    struct machine m;
    machine_read(&m);
    if (r->json)
        head_json(&r->w, &m, i);
    else
        head_lines(&r->out, &m, i);
    if (!r->json)
        selftest_flush(r);
}

/* ---- rows ---------------------------------------------------------------- */

static void on_begin(void *ctx, const char *name)
{
    (void)ctx;
    progress_show("%s", name);
}

static int on_done(void *ctx, const struct qwick_selftest_check *c)
{
    struct report *r = ctx;
    double seconds = round(c->ms) / 1e3;
    if (r->json) {
        jw_object(&r->w, NULL);
        jw_cstr(&r->w, "name", c->name);
        jw_cstr(&r->w, "result", results[c->result].json);
        jw_double(&r->w, "seconds", seconds);
        jw_cstr(&r->w, "detail", c->detail);
        jw_end_object(&r->w);
        return 0;
    }
    struct buf detail = {0};
    /* quote a detail only if a name in it would break the line */
    buf_json_cstr(&detail, c->detail);
    bool plain = detail.len == strlen(c->detail) + 2;
    buf_printf(&r->out, "%-20s %-6s  %7.2f  %s\n", c->name,
               results[c->result].table, seconds,
               plain ? c->detail : buf_text(&detail));
    buf_free_part(&detail, &r->out);
    selftest_flush(r);
    return r->failed || r->out.failed;
}

static void selftest_end(struct report *r,
                         const struct qwick_selftest_report *s)
{
    if (!r->json) {
        buf_printf(&r->out,
                   "\n%zu passed, %zu failed, %zu skipped, %zu cut; "
                   "text of %zu tokens\n",
                   s->n_pass, s->n_fail, s->n_skip, s->n_cut, s->n_tokens);
        return;
    }
    jw_end_array(&r->w);
    jw_uint(&r->w, "n_pass", s->n_pass);
    jw_uint(&r->w, "n_fail", s->n_fail);
    jw_uint(&r->w, "n_skip", s->n_skip);
    jw_uint(&r->w, "n_cut", s->n_cut);
    jw_uint(&r->w, "n_tokens", s->n_tokens);
    jw_end_line(&r->w);
}

/* ---- the verb ------------------------------------------------------------ */

static int selftest_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct args *a = &p->a;
    struct report r = {.json = a->json};
    struct qwick_selftest_options o = qwick_selftest_defaults();
    struct qwick_selftest_report s;
    struct qwick_err e = {0};
    r.w = json_writer(&r.out);
    o.time_ms = 1e3 * a->seconds;
    o.begin = on_begin;
    o.done = on_done;
    o.ctx = &r;
    o.interrupt = signals_flag();
    signals_catch();
    progress_start("selftest");
    selftest_head(&r, qwick_engine_info(eng));
    int status = qwick_selftest(eng, &o, &s, &e) ? -1 : 0;
    progress_stop();
    if (!status) {
        selftest_end(&r, &s);
        selftest_flush(&r);
    }
    bool oom = r.out.failed;
    buf_free(&r.out);
    if (oom)
        return msg_oom();
    if (status && !r.failed)
        return msg_fail(&e);
    if (r.failed || s.n_fail)
        return (int)QWICK_ERR_RUNTIME;
    return s.n_cut ? EXIT_INCOMPLETE : 0;
}

const struct verb verb_selftest = {
    .bit = V_SELFTEST,
    .name = "selftest",
    .group = VERBS_MACHINE,
    .args = "",
    .summary = "check that this machine computes a model correctly",
    .about = "Compute the same in several ways on this machine and compare: "
             "all kernel\n"
             "levels of the CPU, cached and recomputed tokens, one thread and "
             "all, a\n"
             "batch and single sequences. Also check the tokenizer, and the "
             "files if\n"
             "their checksums are recorded. Print a table to paste into a "
             "report. The\n"
             "exit status is 1 if a check fails, 6 if time or memory cut one.",
    .examples = "  qwick selftest --json\n",
    .opens = OPENS_MODEL,
    .check = common_check_no_args,
    .run = selftest_run,
};
