/* The answer of generate: sampling, output, the run from start to end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/answer_json.h"
#include "cli/chat_input.h"
#include "cli/emit.h"
#include "cli/gen_job.h"
#include "cli/key.h"
#include "cli/out.h"
#include "cli/profile.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"

/* ---- sampling ---- */

static struct qwick_sampling sampling(const struct gen_job *j)
{
    const struct sampling_wish w = answer_wish(&j->p, &j->a.answer);
    bool think_off = j->mode == MODE_CHAT &&
                     chat_input_think(j->chat, j->think) == QWICK_THINK_OFF;
    struct qwick_sampling s = answer_sampling(j->eng, think_off, &w);
    /* 53 bits: every JSON reader represents the number exactly */
    s.seed = opt_given(&j->p, "seed") ? (uint64_t)j->a.answer.seed
                                      : rng_random_seed() >> 11;
    return s;
}

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

static bool use_colour(const struct gen_args *a)
{
    if (!a->c.color || strcmp(a->c.color, "auto") == 0)
        return err_has_colour();
    return strcmp(a->c.color, "always") == 0;
}

static int write_json(struct gen_job *j, const struct emit *st,
                      const struct qwick_result *r, const struct profile *pr)
{
    struct buf b = {0};
    struct json_answer answer = {
        .r = r,
        .info = qwick_engine_info(j->eng),
        .tokenize_ms = j->tokenize_ms,
        .show_dropped = overflow_parse(j->a.overflow) != OVERFLOW_ERROR,
        .n_dropped = j->n_dropped,
        .show_forced = opt_given(&j->p, "think-budget"),
        .prompt = j->mode == MODE_RAW ? j->ids : NULL,
        .n_prompt = j->n_ids,
        .logprobs = st->logprobs ? &st->items : NULL,
        .block = st->extract ? &st->block : NULL,
        .calls = st->calls.tools ? &st->calls : NULL,
        .profile = pr,
    };
    struct json_writer w = json_writer(&b);
    int status = 0;
    jw_object(&w, NULL);
    if (j->a.c.jsonl)
        jw_cstr(&w, "event", "done");
    json_answer(&w, &answer);
    jw_end_object(&w);
    jw_newline(&w);
    if (jw_status(&w))
        status = msg_oom();
    else if (out_write(b.data, b.len))
        status = QWICK_ERR_RUNTIME;
    buf_free(&b);
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

/* Why the answer was cut; NULL: it was not. */
static const char *cut_reason(const struct gen_job *j,
                              const struct qwick_result *r, char *text,
                              size_t n)
{
    const struct answer_args *a = &j->a.answer;
    switch (r->finish) {
    case QWICK_FINISH_LENGTH:
        snprintf(text, n, "-n %lld is reached", (long long)a->max_tokens);
        return text;
    case QWICK_FINISH_CONTEXT:
        snprintf(text, n, "the context of %zu tokens is full",
                 qwick_session_limit(j->ses));
        return text;
    case QWICK_FINISH_LOOP:
        if (opt_given(&j->p, "loop-guard"))
            snprintf(text, n, "its last %lld tokens repeat themselves",
                     (long long)a->loop_guard);
        else
            snprintf(text, n,
                     "its last %d tokens repeat themselves; --loop-guard 0 "
                     "lets it go on",
                     QWICK_LOOP_GUARD_DEFAULT);
        return text;
    case QWICK_FINISH_TIMEOUT:
        snprintf(text, n, "%g seconds are over", a->timeout);
        return text;
    case QWICK_FINISH_INTERRUPTED:
    case QWICK_FINISH_CANCELLED:
        return "it was interrupted";
    case QWICK_FINISH_STOP:
    case QWICK_FINISH_STOP_STRING:
        break;
    }
    return NULL;
}

/* Warn when an answer is cut or empty: a script cannot tell it from a complete
 * answer. Returns the exit status. */
static int judge(const struct gen_job *j, const struct qwick_result *r)
{
    char text[80], line[160];
    const char *why = cut_reason(j, r, text, sizeof(text));
    /* -x has looked at its block, part of which --prefill may have given */
    bool empty = !j->a.extract && answer_is_empty(r);
    bool whole = j->constraint && j->kind != QWICK_CONSTRAINT_NO_CALL;
    bool required = j->a.answer.require_answer ||
                    (whole && constraint_is_cut(j->kind, r->finish));
    if (*signals_flag() || (!answer_is_cut(r->finish) && !empty))
        return 0;
    if (whole && !required)
        return 0; /* the constraint admits the empty text */
    if (!why)
        why = r->finish == QWICK_FINISH_STOP_STRING ? "a stop string came first"
              : r->thinking ? "the model stopped after its thinking"
                            : "the model stopped at once";
    snprintf(line, sizeof(line), "the answer is %s: %s",
             empty ? "empty" : "cut", why);
    if (required)
        msg_error("%s", line);
    else if (empty || r->finish != QWICK_FINISH_LENGTH)
        msg_warn("%s", line);
    return required ? EXIT_INCOMPLETE : 0;
}

/* -x needs a complete code block with text. Returns -1 to go on, or an exit
 * status after printing a message. */
static int judge_block(const struct gen_job *j, const struct code_block *c,
                       const struct qwick_result *r)
{
    char text[80];
    const char *why = cut_reason(j, r, text, sizeof(text));
    if (*signals_flag())
        return 0;
    if (c->state == CODE_BLOCK_CLOSED && !code_block_is_empty(c))
        return -1;
    if (c->state == CODE_BLOCK_CLOSED)
        msg_error("the code block of the answer is empty");
    else if (c->state == CODE_BLOCK_OPEN)
        msg_error("the answer is cut inside its code block: %s", why);
    else
        msg_error("the answer has no code block%s%s", why ? ": " : "",
                  why ? why : "");
    return EXIT_INCOMPLETE;
}

/* The calls of an answer must be calls of its tools. Returns -1 to go on, or an
 * exit status after printing a message. */
static int judge_calls(const struct tool_calls *c)
{
    if (*signals_flag() || !c->error.len)
        return -1;
    msg_error("%s", c->error.data);
    return EXIT_INCOMPLETE;
}

static void note_timing(const struct qwick_result *r)
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

static int finish(struct gen_job *j, struct emit *st,
                  const struct qwick_generate_options *o,
                  const struct qwick_result *r)
{
    struct profile pr;
    const struct profile *summary = NULL;
    int status = 0;
    emit_end(st, r);
    if (st->status)
        return st->status;
    if (j->a.profile.on) {
        if ((status = profile(j, o, r, &pr)) != 0)
            return status;
        summary = &pr;
    }
    if (st->mode != EMIT_TEXT)
        status = write_json(j, st, r, summary);
    if (summary && !status)
        status = write_profile(j, r, summary);
    note_timing(r);
    return status;
}

/* Whether the answer may begin with thinking. The text of --prefill is its
 * beginning already. */
static bool may_think(const struct gen_job *j)
{
    return j->mode == MODE_CHAT && !j->prefill.len && !j->in_think &&
           chat_input_think(j->chat, j->think) != QWICK_THINK_OFF;
}

/* Whether -x may end the answer after its code block: not if something else
 * needs the whole answer. */
static bool ends_early(const struct gen_job *j)
{
    const struct gen_args *a = &j->a;
    return a->extract && !a->c.json && !a->c.jsonl && !a->save_session &&
           !a->profile.on && !j->constraint;
}

/* Prepare to read code blocks and tool calls. Both may begin in the text of
 * --prefill. Returns 0, or -1 when out of memory. */
static int begin_output(const struct gen_job *j, struct emit *st, uint64_t seed)
{
    struct key k = key_start("answer");
    key_add_ids(&k, j->ids, j->n_ids);
    key_add_u64(&k, seed);
    st->calls.id = key_u64(&k);
    if (j->tools.list.len)
        st->calls.tools = &j->tools.list;
    if (code_block_feed(&st->block, j->prefill.data, j->prefill.len) ||
        tool_calls_feed(&st->calls, j->prefill.data, j->prefill.len))
        return -1;
    st->calls.text.len = 0; /* it is not printed */
    return 0;
}

static int answer(struct gen_job *j, struct qwick_err *e)
{
    const struct gen_args *a = &j->a;
    struct emit st = {
        .mode = a->c.json    ? EMIT_JSON
                : a->c.jsonl ? EMIT_JSONL
                             : EMIT_TEXT,
        .eng = j->eng,
        .stderr_tty = err_is_tty(),
        .show_thinking = a->show_thinking,
        .dim = use_colour(a),
        .no_newline = a->no_newline,
        .logprobs = a->answer.logprobs > 0,
        .extract = a->extract,
        .may_end = ends_early(j),
        .think_fd = j->think_fd,
        .think_file = a->think_file,
    };
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_result r = {0};
    int status;
    o.sampling = sampling(j);
    if (begin_output(j, &st, o.sampling.seed)) {
        emit_free(&st);
        return msg_oom();
    }
    answer_options(&o, &j->p, &a->answer, gen_is_raw(j));
    o.in_think = j->in_think;
    o.split_thinking = j->mode != MODE_RAW && !a->raw;
    o.profile = a->profile.on;
    if (opt_given(&j->p, "lookup"))
        o.lookup = (size_t)a->lookup;
    o.on_token = emit_token;
    o.on_token_ctx = &st;
    o.constraint = j->constraint;
    o.may_think = may_think(j);
    signals_catch();
    qwick_session_interrupt(j->ses, signals_flag());
    progress_start("prompt");
    emit_progress(&st, 0, j->n_ids);
    qwick_session_progress(j->ses, emit_progress, &st);
    if (qwick_generate(j->ses, j->ids, j->n_ids, &o, &r, e) == 0) {
        if (emit_has_ended(&st)) /* its end acts as a stop string */
            r.finish = QWICK_FINISH_STOP_STRING;
        status = finish(j, &st, &o, &r);
        if (!status)
            status = gen_keep(j, &r);
        if (!status)
            status = a->extract ? judge_block(j, &st.block, &r) : -1;
        if (status < 0)
            status = judge_calls(&st.calls);
        if (status < 0)
            status = judge(j, &r);
    } else {
        /* the text of --prefill may have opened a code block */
        struct qwick_result none = {.finish = QWICK_FINISH_INTERRUPTED};
        emit_end(&st, &none);
        /* after a signal during prefill there is no answer, and no message */
        status = st.status              ? st.status
                 : *signals_flag() != 0 ? (int)QWICK_ERR_RUNTIME
                                        : msg_fail(e);
    }
    qwick_result_free(&r);
    emit_free(&st);
    return status;
}

/* Compile the constraint of the options or of the choice of tools. Returns 0,
 * or an exit status after printing a message. */
static int open_constraint(struct gen_job *j)
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

static int generate(struct gen_job *j)
{
    struct qwick_err e = {0};
    int status = gen_check(j);
    if (status >= 0)
        return status;
    j->think = j->a.think && strcmp(j->a.think, "on") == 0 ? QWICK_THINK_ON
               : j->a.think && strcmp(j->a.think, "off") == 0
                   ? QWICK_THINK_OFF
                   : QWICK_THINK_AUTO;
    j->arg = j->p.n_args ? j->p.args[0] : j->a.prompt;
    if (j->p.n_args && strcmp(j->arg, "-") == 0)
        j->arg = NULL; /* "-" is standard input, which is read when there is no
                          argument */
    else if (j->p.n_args)
        common_hint_file(j->arg);
    if ((status = gen_read_input(j, &e)) != 0)
        return status;
    if (out_check())
        return QWICK_ERR_RUNTIME;
    if ((status = gen_check_save(j)) != 0)
        return status;
    if ((status = common_open(&j->eng, &j->a.c, false)) != 0 ||
        (status = gen_choose_mode(j)) != 0)
        return status;
    if ((status = answer_check_model(&j->p, j->eng)) >= 0)
        return status;
    if (j->a.tools && (status = tools_check_template(&j->tools, j->eng)) != 0)
        return status;
    common_hint_demo(&j->a.c);
    if ((status = open_constraint(j)) != 0)
        return status;
    if ((status = gen_open_session(j)) != 0)
        return status;
    if (gen_encode(j, &e))
        return chat_input_fail(j->a.chat_json, &e);
    if ((j->a.think_file &&
         (status = open_file(j->a.think_file, &j->think_fd)) != 0) ||
        (j->a.profile.file &&
         (status = open_file(j->a.profile.file, &j->profile_fd)) != 0))
        return status;
    status = answer(j, &e);
    status = close_file(j->a.think_file, &j->think_fd, status);
    return close_file(j->a.profile.file, &j->profile_fd, status);
}

int gen_run(const struct verb *v, int argc, char **argv)
{
    struct gen_job j = {
        .verb = v, .a.repeat = 1, .think_fd = -1, .profile_fd = -1};
    int status = opt_parse(&j.p, v, argc, argv, &j.a);
    if (status < 0)
        status = common_check(&j.p, &j.a.c);
    if (status < 0)
        status = generate(&j);
    qwick_session_free(j.ses);
    qwick_constraint_free(j.constraint);
    qwick_engine_close(j.eng);
    qwick_chat_free(j.chat);
    tools_free(&j.tools);
    tool_choice_free(&j.choice);
    buf_free(&j.text);
    buf_free(&j.system);
    buf_free(&j.prefill);
    free(j.ids);
    opt_free(&j.p, &j.a);
    return status;
}
