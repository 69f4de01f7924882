/* The answer of generate: its profile, and the run from start to end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/answer/answer_json.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/gen_kept.h"
#include "cli/answer/gen_output.h"
#include "cli/generate/gen_samples.h"
#include "cli/io/out.h"
#include "cli/report/plot_text.h"
#include "cli/report/profile.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/sandbox/sandbox.h"
#include "cli/io/signals.h"
#include "cli/io/term.h"

/* ---- output ---- */

static int open_file(const char *path, int *fd)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (*fd >= 0)
        return 0;
    msg_error("%s: open: %s", path, strerror(errno));
    return QWICK_ERR_RUNTIME;
}

static int close_file(const char *path, int *fd, int status)
{
    if (*fd >= 0 && close(*fd) && errno != EINTR) {
        msg_error("%s: write error: %s", path, strerror(errno));
        status = status ? status : (int)QWICK_ERR_RUNTIME;
    }
    *fd = -1;
    return status;
}

static int write_profile(struct gen_job *j, const struct qwick_result *r,
                         const struct profile *pr)
{
    struct buf b = {0};
    int bad = 0, status = 0;
    if (j->profile_fd < 0) {
        if (!j->a.c.json && !j->a.c.jsonl) {
            bad = profile_table(&b, pr, r);
            if (!bad && err_is_tty())
                bad = plot_times(&b, "times of tokens", r->per_token_ms,
                                 r->n_per_token,
                                 term_columns(STDERR_FILENO) - 1,
                                 term_utf8());
            if (!bad)
                fd_write(STDERR_FILENO, b.data, b.len);
        }
    } else {
        struct json_answer answer = {
            .r = r,
            .info = qwick_engine_info(j->eng),
            .tokenize_ms = j->tokenize_ms,
            .profile = pr,
        };
        struct json_writer w = json_writer(&b);
        jw_object(&w, NULL);
        json_timing(&w, &answer);
        jw_end_object(&w);
        jw_newline(&w);
        bad = jw_status(&w);
        if (!bad && fd_write(j->profile_fd, b.data, b.len)) {
            msg_error("%s: write error: %s", j->a.profile.file,
                      strerror(errno));
            status = QWICK_ERR_RUNTIME;
        }
    }
    buf_free(&b);
    return bad ? msg_oom() : status;
}

void gen_note_timing(const struct qwick_result *r)
{
    double decode = r->total_ms - r->prefill_ms;
    msg_note("%zu prompt tokens in %.1f ms, %zu tokens in %.1f ms "
             "(%.1f tok/s after the first), %s",
             r->n_prompt, r->prefill_ms, r->n_tokens, r->total_ms,
             r->n_tokens > 1 && decode > 0
                 ? 1000 * (double)(r->n_tokens - 1) / decode
                 : 0.0,
             qwick_finish_name(r->finish));
    if (r->n_forced)
        msg_note("the think budget is used up: %zu of the tokens are forced",
                 r->n_forced);
}

/* Answer the prompt again without output, --repeat times in all. runs[0] is the
 * first answer; *n counts all runs. A signal ends the loop early. */
static int repeat(struct gen_job *j, const struct qwick_generate_options *o,
                  struct qwick_result *runs, size_t *n)
{
    struct qwick_generate_options silent = *o;
    struct qwick_err e;
    silent.on_token = NULL;
    qwick_session_progress(j->ses, NULL, NULL);
    for (; *n < (size_t)j->a.repeat && !*signals_flag(); ++*n)
        if (qwick_session_rollback(j->ses, 0, &e) ||
            qwick_generate(j->ses, j->ids, j->n_ids, &silent, &runs[*n], &e)) {
            qwick_result_free(&runs[*n]);
            return *signals_flag() ? 0 : msg_fail(&e);
        }
    return 0;
}

/* Profile the answer and the repeated runs of --repeat. */
static int profile(struct gen_job *j, const struct qwick_generate_options *o,
                   const struct qwick_result *r, struct profile *out)
{
    struct qwick_result *runs = calloc((size_t)j->a.repeat, sizeof(*runs));
    size_t n = 1;
    if (!runs)
        return msg_oom();
    runs[0] = *r;
    int status = repeat(j, o, runs, &n);
    double bandwidth = 0;
    if (!status && !*signals_flag())
        qwick_bench_bandwidth(j->eng, 300, &bandwidth, NULL);
    if (!status && profile_make(out, runs, n, j->eng, bandwidth))
        status = msg_oom();
    for (size_t i = 1; i < n; i++)
        qwick_result_free(&runs[i]);
    free(runs);
    return status;
}

/* Print what follows the text of the answer. */
static int finish(struct gen_output *x, struct qwick_result *r)
{
    struct gen_job *j = x->j;
    struct profile pr;
    const struct profile *summary = NULL;
    int status = gen_output_end(x, r);
    if (status)
        return status;
    if (j->a.profile.on) {
        if ((status = profile(j, &x->o, r, &pr)) != 0)
            return status;
        summary = &pr;
    }
    status = gen_output_json(x, r, summary);
    if (summary && !status)
        status = write_profile(j, r, summary);
    gen_note_timing(r);
    return status;
}

/* Generate the only answer. */
static int run(struct gen_output *x, struct qwick_err *e)
{
    struct gen_job *j = x->j;
    struct qwick_result r = {0};
    int status;
    signals_catch();
    if (x->st.dim) {
        signals_at_kill(emit_restore);
        signals_at_crash(emit_restore);
    }
    qwick_session_interrupt(j->ses, signals_flag());
    progress_start("prompt");
    progress_items("tokens", 0, 0, j->n_ids, 0);
    qwick_session_progress(j->ses, progress_step, NULL);
    if (qwick_generate(j->ses, j->ids, j->n_ids, &x->o, &r, e) == 0) {
        status = finish(x, &r);
        if (!status)
            status = gen_keep(j, &r);
        if (!status)
            status = gen_output_status(x, &r);
    } else {
        /* the text of --prefill may have opened a code block */
        struct qwick_result none = {.finish = QWICK_FINISH_INTERRUPTED};
        x->st.null = false; /* there is no text to end */
        emit_end(&x->st, &none);
        /* after a signal during prefill there is no answer, and no message */
        status = x->st.status           ? x->st.status
                 : *signals_flag() != 0 ? (int)QWICK_ERR_RUNTIME
                                        : msg_fail(e);
    }
    qwick_result_free(&r);
    return status;
}

static int answer(struct gen_job *j, struct qwick_err *e)
{
    const struct qwick_sampling sampling = gen_sampling(j);
    struct gen_output x;
    if (j->a.samples > 1)
        return gen_samples(j, &sampling);
    int status = gen_output_begin(&x, j, &sampling, sampling.seed, NULL);
    if (!status)
        status = run(&x, e);
    gen_output_free(&x);
    return status;
}

static int answer_coloured(struct gen_job *j, struct qwick_err *e)
{
    int status = answer(j, e);
    if (j->a.confidence)
        paint_legend(j->a.c.color);
    return status;
}

int gen_open_constraint(struct gen_job *j)
{
    struct qwick_constraint_options o;
    struct buf text = {0};
    struct qwick_err e;
    if (j->choice.kind == CHOICE_AUTO || !j->tools.list.len)
        return constraint_open(&j->constraint, &j->kind, j->eng, &j->p,
                               &j->a.constraint);
    int rc = tool_choice_constraint(&j->choice, &j->tools.list, &text, &o, &e);
    o.name = j->a.tool_choice ? "--tool-choice" : "tool_choice";
    j->kind = o.kind;
    if (!rc)
        rc = qwick_constraint_create(&j->constraint, j->eng, &o, &e);
    buf_free(&text);
    return rc ? msg_fail(&e) : 0;
}

void gen_set_think(struct gen_job *j)
{
    j->think = j->a.think && strcmp(j->a.think, "on") == 0 ? QWICK_THINK_ON
               : j->a.think && strcmp(j->a.think, "off") == 0
                   ? QWICK_THINK_OFF
                   : QWICK_THINK_AUTO;
}

static int generate(struct gen_job *j)
{
    struct qwick_err e = {0};
    int status = gen_check(j);
    if (status >= 0)
        return status;
    prompt_timeout(j->a.answer.timeout, j->start_ms);
    gen_set_think(j);
    if ((status = gen_read_input(j, &e)) != 0)
        return status;
    if (out_check())
        return QWICK_ERR_RUNTIME;
    if ((status = gen_check_save(j)) != 0 ||
        (status = gen_kept_prepare(j)) != 0)
        return status;
    if (j->a.samples > 1) /* later samples take the prompt from there */
        j->a.c.prefix_memory = common_cache_memory();
    if ((status = common_open(&j->eng, &j->a.c, false)) != 0 ||
        (status = gen_choose_mode(j)) != 0)
        return status;
    if (j->a.tools && (status = tools_check_template(&j->tools, j->eng)) != 0)
        return status;
    if ((status = answer_check_generation(&j->p, &j->a.answer, j->eng)) != 0 ||
        (status = common_open_draft(&j->draft, &j->a.c, j->eng)) != 0)
        return status;
    common_hint_demo(&j->a.c);
    if ((status = gen_open_constraint(j)) != 0)
        return status;
    if ((status = gen_open_session(j)) != 0)
        return status;
    if ((status = gen_kept_check_session(j)) >= 0)
        return status;
    if (gen_encode(j, &e))
        return chat_input_fail(j->a.chat_json, &e);
    gen_warn_verb(j);
    if ((j->a.think_file &&
         (status = open_file(j->a.think_file, &j->think_fd)) != 0) ||
        (j->a.profile.file &&
         (status = open_file(j->a.profile.file, &j->profile_fd)) != 0))
        return status;
    if ((status = sandbox_enter(&j->p, &j->a.c, j->eng, j->draft, j->n_ids)) !=
        0)
        return status;
    status = answer_coloured(j, &e);
    status = close_file(j->a.think_file, &j->think_fd, status);
    return close_file(j->a.profile.file, &j->profile_fd, status);
}

void gen_free(struct gen_job *j)
{
    qwick_session_free(j->ses);
    qwick_constraint_free(j->constraint);
    qwick_engine_close(j->eng);
    qwick_engine_close(j->draft);
    qwick_chat_free(j->chat);
    tools_free(&j->tools);
    tool_choice_free(&j->choice);
    buf_free(&j->text);
    buf_free(&j->system);
    buf_free(&j->prefill);
    free(j->ids);
    opt_free(&j->p, &j->a);
}

int gen_run(const struct verb *v, int argc, char **argv)
{
    struct gen_job j = {.verb = v,
                        .a.repeat = 1,
                        .a.samples = 1,
                        .start_ms = clock_ms(),
                        .think_fd = -1,
                        .profile_fd = -1};
    int status = opt_parse(&j.p, v, argc, argv, &j.a);
    if (status < 0)
        status = common_check(&j.p, &j.a.c);
    if (status < 0)
        status = generate(&j);
    gen_free(&j);
    return status;
}
