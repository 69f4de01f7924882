/* Runs the checks of a self-test one after the other, within the time. */
#include "engine/tasks/selftest.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/flag.h"
#include "engine/core/options.h"
#include "qwick_tools.h"

/* Shares of the time that is left. The checksums of a large model would take
 * minutes, so would the scalar kernels, and the first pass may have to read the
 * weights from the disk. */
static const double FIRST_SHARE = 0.25, LEVEL_SHARE = 0.5;

typedef int (*check_fn)(struct selftest *t, struct outcome *out,
                        struct qwick_err *e);

static bool interrupted(const struct selftest *t)
{
    return flag_is_set(t->o->interrupt);
}

int selftest_open(struct qwick_engine **out, const struct selftest *t,
                  const char *isa, bool exact, int threads, struct qwick_err *e)
{
    const struct qwick_engine *given = t->given;
    struct qwick_engine_options o = qwick_engine_defaults();
    o.model = checkpoint_is_builtin(given->ck) ? NULL : given->info.path;
    o.isa = isa;
    o.exact = exact;
    o.threads = threads ? threads : given->info.threads;
    o.lazy_blas = given->model.lazy_blas;
    return qwick_engine_open(out, &o, e);
}

int selftest_session(struct qwick_session **out, const struct selftest *t,
                     struct qwick_engine *eng, struct qwick_err *e)
{
    if (qwick_session_create(out, eng, 0, e))
        return -1;
    qwick_session_interrupt(*out, t->o->interrupt);
    (*out)->deadline_ms = t->end_ms;
    return 0;
}

static void count(struct qwick_selftest_report *r, enum qwick_selftest_result x)
{
    r->n_pass += x == QWICK_SELFTEST_PASS;
    r->n_fail += x == QWICK_SELFTEST_FAIL;
    r->n_skip += x == QWICK_SELFTEST_SKIP;
    r->n_cut += x == QWICK_SELFTEST_CUT;
}

/* Turn an error of a check into its outcome. If memory for the detail is short,
 * it stays empty. */
static void take_error(struct outcome *out, const struct qwick_err *e)
{
    bool late = e->code == QWICK_ERR_INTERRUPTED;
    bool cut = late || e->code == QWICK_ERR_MEMORY;
    out->result = cut ? QWICK_SELFTEST_CUT : QWICK_SELFTEST_FAIL;
    out->detail.len = 0;
    (void)buf_puts(&out->detail, late ? "its time is over" : e->msg);
}

/* The members of a check that are known before it runs. */
struct entry {
    const char *name;
    check_fn fn; /* NULL: selftest_level with the next two */
    const char *isa;
    bool exact;
    double share; /* it gets this share of the time that is left */
};

static int call(struct selftest *t, const struct entry *c, struct outcome *out,
                struct qwick_err *e)
{
    if (t->end_ms > 0 && clock_ms() >= t->end_ms)
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    return c->fn ? c->fn(t, out, e)
                 : selftest_level(t, c->isa, c->exact, out, e);
}

/* Run one check. Returns -1 if the whole test must stop. */
static int run(struct selftest *t, const struct entry *c,
               struct qwick_selftest_report *r, struct qwick_err *e)
{
    const struct qwick_selftest_options *o = t->o;
    struct outcome out = {0};
    struct qwick_err why = {0};
    double start = clock_ms();
    if (o->begin)
        o->begin(o->ctx, c->name);
    double left = t->start_ms + o->time_ms - start;
    t->end_ms = o->time_ms > 0 ? start + c->share * left : 0;
    int rc = call(t, c, &out, &why);
    if (interrupted(t)) {
        buf_free(&out.detail);
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    }
    if (rc)
        take_error(&out, &why);
    count(r, out.result);
    int stop = 0;
    if (o->done) {
        const char *detail = out.detail.data ? out.detail.data : "";
        struct qwick_selftest_check done = {c->name, detail, out.result,
                                            clock_ms() - start};
        stop = o->done(o->ctx, &done);
    }
    buf_free(&out.detail);
    return stop ? err_set(e, QWICK_ERR_INTERRUPTED, "interrupted") : 0;
}

static int run_levels(struct selftest *t, bool exact,
                      struct qwick_selftest_report *r, struct qwick_err *e)
{
    const char *isa;
    for (size_t i = 0; (isa = kernels_level(i)) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s, %s", isa, exact ? "exact" : "default");
        struct entry c = {name, NULL, isa, exact, LEVEL_SHARE};
        if (run(t, &c, r, e))
            return -1;
    }
    return 0;
}

static int run_all(struct selftest *t, struct qwick_selftest_report *r,
                   struct qwick_err *e)
{
    static const struct entry checks[] = {
        {"files", selftest_files, NULL, true, FIRST_SHARE},
        {"tokenizer", selftest_tokenizer, NULL, true, FIRST_SHARE},
        {"cached", selftest_cached, NULL, true, FIRST_SHARE},
        {"threads", selftest_threads, NULL, true, FIRST_SHARE},
        {"batch", selftest_batch, NULL, true, FIRST_SHARE},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (run(t, &checks[i], r, e))
            return -1;
    /* the levels have engines of their own */
    qwick_engine_close(t->exact);
    t->exact = NULL;
    return run_levels(t, true, r, e) || run_levels(t, false, r, e) ? -1 : 0;
}

int qwick_selftest(struct qwick_engine *eng,
                   const struct qwick_selftest_options *given,
                   struct qwick_selftest_report *r, struct qwick_err *e)
{
    struct qwick_selftest_options all = qwick_selftest_defaults(), *o = &all;
    *r = (struct qwick_selftest_report){0};
    if (options_read(o, sizeof *o, given, "selftest", e))
        return -1;
    if (!(o->time_ms >= 0))
        return err_set(e, QWICK_ERR_USAGE, "time: must be at least 0 ms, is %g",
                       o->time_ms);
    struct selftest t = {.o = o, .given = eng, .start_ms = clock_ms()};
    size_t limit;
    int rc = -1;
    if (engine_need_head(eng, e) || engine_context(eng, 0, &limit, e) ||
        selftest_text(&t, e) ||
        selftest_open(&t.exact, &t, eng->info.isa, true, 0, e))
        goto done;
    r->n_tokens = t.n;
    rc = run_all(&t, r, e);
done:
    qwick_engine_close(t.exact);
    free(t.ids);
    free(t.want);
    return rc;
}
