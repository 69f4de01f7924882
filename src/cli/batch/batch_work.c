/* The main loop of batch: read available records, run a pass, write finished
 * answers.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/batch/batch_job.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"

/* How many of the first n records belong to this shard. */
static uint64_t shard_records(const struct batch_job *j, uint64_t n)
{
    return n > j->shard ? (n - j->shard - 1) / j->n_shards + 1 : 0;
}

/* Estimate the seconds left from the share of the input that was read and
 * answered. Negative: unknown. */
static double seconds_left(const struct batch_job *j, double elapsed_ms)
{
    struct qwick_batch_stats s = qwick_batch_get_stats(j->batch);
    if (!j->in_bytes || j->n_done == 0 || j->in.consumed == 0)
        return -1;
    double unread = (double)j->in_bytes - (double)j->in.consumed;
    double todo = (double)(s.n_live + s.n_waiting) +
                  unread * (double)j->n_samples / (double)j->in.consumed;
    return elapsed_ms / 1000 * todo / (double)j->n_done;
}

static void batch_show_progress(struct batch_job *j)
{
    char text[100];
    double ms = clock_ms() - j->start_ms;
    if (!progress_due())
        return;
    struct qwick_batch_stats s = qwick_batch_get_stats(j->batch);
    progress_format(text, sizeof(text), "records", j->n_answered + j->n_skipped,
                    j->at_end ? shard_records(j, j->n_records) : j->n_total,
                    seconds_left(j, ms));
    progress_show("%s, %zu at once, %.0f tok/s", text, s.n_live,
                  ms > 0 ? (double)s.n_generated * 1000 / ms : 0.0);
}

/* Nothing runs: wait for the first record. Then go on reading until a batch is
 * full or no record has come for a while. */
static int batch_feed_idle(struct batch_job *j, struct qwick_err *e)
{
    size_t max = (size_t)j->a->max_batch;
    bool got = qwick_batch_get_stats(j->batch).n_waiting > 0;
    if (batch_out_flush(&j->out, e) || (!got && batch_feed(j, -1, &got, e)))
        return -1;
    while (got && !j->at_end && qwick_batch_get_stats(j->batch).n_waiting < max)
        if (batch_feed(j, (int)j->a->debounce, &got, e))
            return -1;
    return 0;
}

/* Read until a batch is full, without a time limit. */
static int batch_feed_full(struct batch_job *j, struct qwick_err *e)
{
    bool got;
    while (batch_wants_more(j) && !*signals_flag())
        if (batch_out_flush(&j->out, e) || batch_feed(j, -1, &got, e))
            return -1;
    return 0;
}

/* Read the available records. Wait only when no request is open. */
static int batch_feed_running(struct batch_job *j, struct qwick_err *e)
{
    bool got;
    if (batch_feed(j, 0, &got, e))
        return -1;
    struct qwick_batch_stats s = qwick_batch_get_stats(j->batch);
    if (s.n_live == 0 && s.n_waiting < (size_t)j->a->max_batch && !j->at_end)
        return batch_feed_idle(j, e);
    return 0;
}

/* One round of the main loop. Returns 1 to go on, 0 at the end, -1 on
 * failure. */
static int batch_run_pass(struct batch_job *j, struct qwick_err *e)
{
    if (j->by_number ? batch_feed_full(j, e) : batch_feed_running(j, e))
        return -1;
    struct qwick_batch_stats s = qwick_batch_get_stats(j->batch);
    if (s.n_live + s.n_waiting == 0)
        return !j->at_end;
    if (qwick_batch_step(j->batch, e)) {
        if (j->fatal.code) /* a callback failed */
            *e = j->fatal;
        return -1;
    }
    batch_show_progress(j);
    return batch_out_flush(&j->out, e) ? -1 : 1;
}

/* ---- what is reported at the end ---------------------------------------- */

/* Print an error that counts answers; n 0: nothing. */
static void count_error(const char *name, uint64_t n, const char *one,
                        const char *many)
{
    if (n)
        msg_error("%s: %llu %s", name, (unsigned long long)n,
                  plural(n, one, many));
}

/* Print how many answers have the fault of sample_is_broken. */
static void report_broken(const struct batch_job *j, const char *name,
                          uint64_t n, const char *when)
{
    const char *block =
        plural(n, "has no complete code block, or falls short of its",
               "have no complete code block, or fall short of their");
    const char *form = plural(n, "falls short of its", "fall short of their");
    if (n)
        msg_error("%s: %llu %s%s %s constraint or tools", name,
                  (unsigned long long)n, plural(n, "answer", "answers"), when,
                  j->a->extract ? block : form);
}

/* A list of numbers of answers, in one line. */
struct counts {
    char text[300];
    size_t n;
};

/* Append "N WHAT" and, if reason is not NULL, " (REASON)". n 0: nothing. */
static void counts_add(struct counts *c, uint64_t n, const char *what,
                       const char *reason)
{
    if (n && c->n < sizeof(c->text))
        c->n += (size_t)snprintf(
            c->text + c->n, sizeof(c->text) - c->n, "%s%llu %s%s%s%s",
            c->n ? ", " : "", (unsigned long long)n, what, reason ? " (" : "",
            reason ? reason : "", reason ? ")" : "");
}

/* Print one line that counts the answers that are cut or empty. Their
 * "finish_reason" identifies them in the output. Returns whether any makes the
 * run fail. */
static bool report_endings(const struct batch_job *j)
{
    static const enum qwick_finish cuts[] = {
        QWICK_FINISH_LENGTH, QWICK_FINISH_CONTEXT, QWICK_FINISH_LOOP,
        QWICK_FINISH_TIMEOUT};
    bool required = j->a->require_answer;
    struct counts c = {0};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
        /* the user asked for -n; count it only if answers must be complete */
        if (required || cuts[i] != QWICK_FINISH_LENGTH)
            counts_add(&c, j->n_cut[cuts[i]], "cut",
                       qwick_finish_name(cuts[i]));
    counts_add(&c, j->n_empty, "empty", NULL);
    report_broken(j, j->in.name, j->n_broken, "");
    report_broken(j, j->out.file.path, j->out.n_broken, " of earlier runs");
    if (required)
        count_error(j->out.file.path, j->out.n_incomplete,
                    "answer of earlier runs is cut or empty",
                    "answers of earlier runs are cut or empty");
    if (c.n)
        msg_say(required ? MSG_ERROR : MSG_WARNING,
                "%s: incomplete answers: %s", j->in.name, c.text);
    return j->n_broken || j->out.n_broken ||
           (required && (c.n || j->out.n_incomplete));
}

/* Count the answers of this run by finish reason. */
static void report_reasons(const struct batch_job *j)
{
    struct counts c = {0};
    for (int i = 0; i <= QWICK_FINISH_CANCELLED; i++)
        counts_add(&c, j->n_ended[i], qwick_finish_name((enum qwick_finish)i),
                   NULL);
    counts_add(&c, j->n_errors, plural(j->n_errors, "error", "errors"), NULL);
    if (c.n)
        msg_note("finish reasons: %s", c.text);
}

/* Report the numbers of a complete run. Returns its exit status. */
static int batch_report(const struct batch_job *j)
{
    struct qwick_batch_stats s = qwick_batch_get_stats(j->batch);
    double ms = clock_ms() - j->start_ms;
    if (j->ids.n_repeated > BATCH_SHOWN_IDS)
        msg_warn("%s: %llu records repeat an id", j->in.name,
                 (unsigned long long)j->ids.n_repeated);
    count_error(j->in.name, j->n_errors, "answer is an error",
                "answers are errors");
    count_error(j->out.file.path, j->out.n_errors,
                "answer of earlier runs is an error",
                "answers of earlier runs are errors");
    bool bad = report_endings(j) || j->n_errors || j->out.n_errors;
    report_reasons(j);
    msg_note("%llu %s, %llu answered before, %llu %s; "
             "%llu tokens in %.1f s (%.1f tok/s), %llu evaluated, %llu shared, "
             "%llu passes",
             (unsigned long long)j->n_answered,
             plural(j->n_answered, "record", "records"),
             (unsigned long long)j->n_skipped, (unsigned long long)j->n_errors,
             plural(j->n_errors, "answer is an error", "answers are errors"),
             (unsigned long long)s.n_generated, ms / 1000,
             ms > 0 ? (double)s.n_generated * 1000 / ms : 0.0,
             (unsigned long long)s.n_evaluated, (unsigned long long)s.n_shared,
             (unsigned long long)s.n_passes);
    return bad ? QWICK_ERR_RUNTIME : 0;
}

/* End the output, and report answers that are held or lost. */
static int batch_end_output(struct batch_job *j, bool complete)
{
    struct qwick_err e = {0};
    size_t n_held, n_lost;
    int rc = batch_out_end(&j->out, complete, &n_held, &n_lost, &e);
    if (rc)
        return msg_fail(&e);
    if (n_lost && !j->out.failed)
        msg_warn("%zu finished %s after one that is not, and %s lost; "
                 "--output would keep %s",
                 n_lost, plural(n_lost, "answer comes", "answers come"),
                 plural(n_lost, "is", "are"), plural(n_lost, "it", "them"));
    /* print the note on a terminal even without -v: the user pressed Ctrl-C */
    if (n_held && isatty(STDERR_FILENO) && !msg_quiet())
        msg_level(false, true);
    if (n_held)
        msg_note("%s: %zu %s not due; the next run takes %s from there",
                 j->out.pending.path, n_held,
                 plural(n_held, "answer that is", "answers that are"),
                 plural(n_held, "it", "them"));
    return 0;
}

int batch_work(struct batch_job *j)
{
    struct qwick_err e = {0};
    int r, status;
    struct stat st;
    if (j->source.no_json)
        source_warn_no_json(j->in.name);
    if (!fstat(j->in.fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
        j->in_bytes = (uint64_t)st.st_size;
    j->start_ms = clock_ms();
    progress_start("batch");
    if (progress_on())
        j->n_total = shard_records(j, source_count(&j->source));
    batch_show_progress(j);
    do
        r = *signals_flag() ? 0 : batch_run_pass(j, &e);
    while (r > 0 && !*signals_flag());
    progress_stop();
    /* asked to stop: write finished answers, drop running ones */
    if (*signals_flag()) {
        batch_out_flush(&j->out, NULL);
        batch_end_output(j, false);
        return QWICK_ERR_RUNTIME;
    }
    if (!r)
        r = batch_out_flush(&j->out, &e);
    if (r) {
        status = j->out.failed && !j->out.file.path ? (int)QWICK_ERR_RUNTIME
                                                    : msg_fail(&e);
        batch_end_output(j, false);
        return status;
    }
    if ((status = batch_end_output(j, true)) != 0)
        return status;
    prompt_warn_faults(&j->source.faults, j->in.name);
    if (!j->n_records)
        return records_none(j->g.p->verb->name, j->in.name);
    return batch_report(j);
}
