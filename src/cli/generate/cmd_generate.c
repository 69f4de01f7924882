/* The answer of generate: its profile, and the run from start to end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/answer/answer_json.h"
#include "cli/answer/answer_log.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/gen_output.h"
#include "cli/generate/gen_samples.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/io/term.h"
#include "cli/report/plot_text.h"
#include "cli/report/profile.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "cli/store/conversation_store.h"
#include "qwick_tools.h"

/* ---- output ---- */

static int open_file(const char *path, int *fd)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (*fd >= 0)
        return 0;
    return msg_errno(path, "open");
}

static int close_file(const char *path, int *fd, int status)
{
    if (*fd > 0 && close(*fd) && errno != EINTR) {
        msg_errno(path, "write error");
        status = status ? status : (int)QWICK_ERR_RUNTIME;
    }
    *fd = 0;
    return status;
}

static int write_profile(struct gen_job *j, const struct qwick_result *r,
                         const struct profile *pr)
{
    struct buf b = {0};
    int status = 0;
    if (j->profile_fd) {
        struct json_answer answer = {
            .r = r,
            .info = qwick_engine_info(j->eng),
            .tokenize_ms = j->tokenize_ms,
            .profile = pr,
        };
        struct json_writer w = jw_line(&b);
        json_timing(&w, &answer);
        jw_end_line(&w);
        if (!b.failed && fd_write(j->profile_fd, b.data, b.len))
            status = msg_errno(j->p->a.profile_timing.file, "write error");
    } else if (!j->p->a.json && !j->p->a.jsonl) {
        profile_table(&b, pr, r);
        if (err_is_tty())
            b.failed |=
                plot_times(&b, "times of tokens", r->per_token_ms,
                           r->n_per_token, term_columns(STDERR_FILENO) - 1,
                           term_utf8()) != 0;
        if (!b.failed)
            fd_write(STDERR_FILENO, b.data, b.len);
    }
    bool oom = b.failed;
    buf_free(&b);
    return oom ? msg_oom() : status;
}

/* Answer the prompt again without output, --repeat times in all. runs[0] is the
 * first answer; *n counts all runs. A signal ends the loop early. */
static int generate_repeat(struct gen_job *j,
                           const struct qwick_generate_options *o,
                           struct qwick_result *runs, size_t *n)
{
    struct qwick_generate_options silent = *o;
    struct qwick_err e;
    silent.on_token = NULL;
    qwick_session_progress(j->ses, NULL, NULL);
    for (; *n < (size_t)j->p->a.repeat && !*signals_flag(); ++*n)
        if (qwick_session_rollback(j->ses, 0, &e) ||
            qwick_generate(j->ses, j->ids, j->n_ids, &silent, &runs[*n], &e)) {
            qwick_result_free(&runs[*n]);
            return *signals_flag() ? 0 : msg_fail(&e);
        }
    return 0;
}

/* Profile the answer and the repeated runs of --repeat. */
static int generate_profile(struct gen_job *j,
                            const struct qwick_generate_options *o,
                            const struct qwick_result *r, struct profile *out)
{
    struct qwick_result *runs = calloc((size_t)j->p->a.repeat, sizeof(*runs));
    size_t n = 1;
    if (!runs)
        return msg_oom();
    runs[0] = *r;
    int status = generate_repeat(j, o, runs, &n);
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
static int generate_finish(struct gen_output *x, struct qwick_result *r)
{
    struct gen_job *j = x->j;
    struct profile pr;
    const struct profile *summary = NULL;
    int status = gen_output_end(x, r);
    if (status)
        return status;
    if (j->p->a.profile_timing.on) {
        if ((status = generate_profile(j, &x->o, r, &pr)) != 0)
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
static int generate_one(struct gen_output *x, struct qwick_err *e)
{
    struct gen_job *j = x->j;
    struct qwick_result r = {0};
    int status;
    signals_catch();
    if (x->dim) {
        signals_at_kill(emit_restore);
        signals_at_crash(emit_restore);
    }
    qwick_session_interrupt(j->ses, signals_flag());
    if (gen_output_generate(x, &r, e) == 0) {
        status = generate_finish(x, &r);
        answer_log_job(j, &x->sampling, &r);
        if (!status)
            status = gen_keep(j, &r);
        if (!status)
            status = gen_output_status(x, &r);
    } else {
        status = gen_output_fail(x);
        /* after a signal during prefill there is no answer, and no message */
        if (!status)
            status = *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(e);
    }
    qwick_result_free(&r);
    return status;
}

static int generate_answer(struct gen_job *j, struct qwick_err *e)
{
    const struct qwick_sampling sampling = gen_sampling(j);
    struct gen_output x;
    if (j->p->a.samples > 1)
        return gen_samples(j, &sampling);
    int status = gen_output_begin(&x, j, &sampling, sampling.seed, NULL);
    if (!status)
        status = generate_one(&x, e);
    gen_output_free(&x);
    return status;
}

static int answer_coloured(struct gen_job *j, struct qwick_err *e)
{
    int status = generate_answer(j, e);
    if (j->p->a.confidence)
        paint_legend(j->p->a.color);
    return status;
}

/* Check that the ids of --logit-bias are the model's. */
static int check_bias_ids(const struct gen_job *j)
{
    size_t vocab_size = qwick_engine_info(j->eng)->vocab_size;
    for (size_t i = 0; i < j->p->a.logit_bias.n; i++)
        if ((size_t)j->bias[i].id >= vocab_size)
            return opt_usage(j->p->verb,
                             "--logit-bias: %d is not a token id from 0 to %zu",
                             (int)j->bias[i].id, vocab_size - 1);
    return 0;
}

static int generate_job(struct gen_job *j)
{
    struct qwick_err e = {0};
    int status;
    prompt_timeout(j->p->a.timeout, j->start_ms);
    j->think = answer_think(&j->p->a);
    if ((status = answer_read_bias(j->p, &j->bias)) != 0 ||
        (status = gen_read_input(j, &e)) != 0)
        return status;
    if (out_check())
        return QWICK_ERR_RUNTIME;
    if ((status = gen_check_save(j)) != 0 ||
        (status = gen_kept_prepare(j)) != 0)
        return status;
    answer_log_open(j);
    if (j->p->a.samples > 1) /* later samples take the prompt from there */
        j->p->models.cache_memory = open_model_cache_memory();
    if ((status = open_model(&j->eng, j->p, false)) != 0 ||
        (status = gen_choose_mode(j)) != 0)
        return status;
    if (j->p->a.tools &&
        (status = tools_check_template(&j->tools, j->eng)) != 0)
        return status;
    if ((status = check_bias_ids(j)) != 0 ||
        (status = answer_check_generation(j->p, j->eng)) != 0 ||
        (status = open_model_draft(&j->draft, j->p, j->eng)) != 0)
        return status;
    common_hint_demo(j->p);
    if (j->p->a.conversation)
        conversation_note_model(j->p->a.conversation, j->last_model,
                                qwick_engine_info(j->eng)->model);
    if ((status = gen_open_constraint(j)) != 0)
        return status;
    if ((status = gen_open_session(j)) != 0)
        return status;
    if ((status = gen_kept_check_session(j)) >= 0)
        return status;
    if (gen_encode(j, &e))
        return chat_input_fail(j->p->a.chat_json, &e);
    gen_warn_verb(j);
    if ((j->p->a.think_file &&
         (status = open_file(j->p->a.think_file, &j->think_fd)) != 0) ||
        (j->p->a.profile_timing.file &&
         (status = open_file(j->p->a.profile_timing.file, &j->profile_fd)) !=
             0))
        return status;
    if ((status = sandbox_enter(j->p, j->eng, j->draft, j->n_ids)) != 0)
        return status;
    status = answer_coloured(j, &e);
    status = close_file(j->p->a.think_file, &j->think_fd, status);
    return close_file(j->p->a.profile_timing.file, &j->profile_fd, status);
}

static int generate_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct gen_job j = {.p = p, .eng = eng, .start_ms = clock_ms()};
    int status = generate_job(&j);
    gen_free(&j);
    return status;
}

const struct verb verb_generate = {
    .bit = V_GENERATE,
    .needs_logits = true,
    .name = "generate",
    .group = VERBS_ANSWER,
    .args = "[PROMPT]",
    .summary = "answer a prompt (the default; also called run)",
    .about = "Answer one prompt with a language model on the CPU. The prompt "
             "is the files of\n-f, then piped standard input, then the "
             "argument, joined by blank lines. The\nanswer goes to stdout, "
             "everything else to stderr. A prompt that begins with -\nfollows "
             "--.",
    .examples = "  qwick \"list the files of a directory\"\n"
                "  qwick -f notes.txt -n 60 \"say this in one sentence\"\n"
                "  qwick --keep \"list files\" && qwick -C \"by size\"\n",
    .check = gen_check,
    .run = generate_run,
};
