#include "cli/answer/gen_output.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/answer/answer_json.h"
#include "cli/answer/chat_input.h"
#include "base/key.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/io/term.h"

/* ---- options ---- */

struct qwick_sampling gen_sampling(const struct gen_job *j)
{
    bool think_off = j->mode == MODE_CHAT &&
                     chat_input_think(j->chat, j->think) == QWICK_THINK_OFF;
    struct qwick_sampling s = answer_sampling(j->p, j->eng, think_off);
    /* 53 bits: every JSON reader represents the number exactly */
    s.seed = opt_given(j->p, OPT_seed) ? (uint64_t)j->p->a.seed
                                       : rng_random_seed() >> 11;
    return s;
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
    const struct args *a = &j->p->a;
    return a->extract && !a->json && !a->jsonl && !a->save_session &&
           !a->keep && !a->go_on && !a->conversation && !a->profile_timing.on && !j->constraint;
}

/* A limit in milliseconds that ends the answer after its first pass. */
#define TIME_IS_OVER 1e-6

static void set_options(struct gen_output *x,
                        const struct qwick_sampling *sampling, uint64_t seed)
{
    const struct gen_job *j = x->j;
    struct qwick_generate_options *o = &x->o;
    *o = qwick_generate_defaults();
    x->sampling = *sampling;
    x->sampling.seed = seed;
    o->sampling = &x->sampling;
    answer_options(o, j->p);
    if (o->timeout_ms > 0 && j->start_ms > 0)
        o->timeout_ms =
            fmax(o->timeout_ms - (clock_ms() - j->start_ms), TIME_IS_OVER);
    if (j->p->a.confidence && !o->logprobs)
        o->logprobs = 1; /* tokens get their probabilities then */
    o->in_think = j->in_think;
    o->split_thinking = j->mode != MODE_RAW && !j->p->a.raw;
    o->profile = j->p->a.profile_timing.on;
    if (opt_given(j->p, OPT_lookup))
        o->lookup = (size_t)j->p->a.lookup;
    o->draft = j->draft;
    o->bias = j->bias;
    o->n_bias = j->p->a.logit_bias.n;
    o->on_token = emit_token;
    o->on_token_ctx = x;
    o->constraint = j->constraint;
    o->may_think = may_think(j);
    o->prefilled = j->prefill.len > 0;
}

int gen_output_begin(struct gen_output *x, struct gen_job *j,
                     const struct qwick_sampling *sampling, uint64_t seed,
                     const size_t *sample)
{
    const struct args *a = &j->p->a;
    *x = (struct gen_output){
        .j = j,
        .sample = sample,
        .text = !a->json && !a->jsonl,
        .shows_thinking =
            err_is_tty() && !sample && !j->think_fd && !msg_quiet(),
        .dim = term_colours(a->color, err_is_tty()),
        .may_end = ends_early(j),
        .paint = {.truecolor = term_truecolor()},
    };
    set_options(x, sampling, seed);
    /* code blocks and tool calls may begin in the text of --prefill */
    struct key k = key_start("answer");
    key_add_ids(&k, j->ids, j->n_ids);
    key_add_u64(&k, seed);
    x->calls.id = key_u64(&k);
    if (j->tools.list.len)
        x->calls.tools = &j->tools.list;
    x->calls.form = call_form_named(qwick_engine_info(j->eng)->call_form);
    if (code_block_feed(&x->block, j->prefill.data, j->prefill.len) ||
        tool_calls_feed(&x->calls, j->prefill.data, j->prefill.len))
        return msg_oom();
    x->calls.text.len = 0; /* it is not printed */
    return 0;
}

void gen_output_free(struct gen_output *x)
{
    buf_free(&x->held);
    buf_free(&x->items);
    buf_free(&x->event);
    paint_free(&x->paint);
    code_block_free(&x->block);
    tool_calls_free(&x->calls);
}

int gen_output_generate(struct gen_output *x, struct qwick_result *r,
                        struct qwick_err *e)
{
    struct gen_job *j = x->j;
    progress_start("prompt");
    progress_items("tokens", 0, 0, j->n_ids, 0);
    qwick_session_progress(j->ses, progress_step, NULL);
    return qwick_generate(j->ses, j->ids, j->n_ids, &x->o, r, e);
}

/* ---- output ---- */

int gen_output_json(struct gen_output *x, const struct qwick_result *r,
                    const struct profile *pr)
{
    const struct gen_job *j = x->j;
    const struct args *a = &j->p->a;
    struct buf b = {0};
    struct json_answer answer = {
        .r = r,
        .info = qwick_engine_info(j->eng),
        .tokenize_ms = j->tokenize_ms,
        .show_dropped = overflow_parse(a->overflow) != OVERFLOW_ERROR,
        .n_dropped = j->n_dropped,
        .show_forced = opt_given(j->p, OPT_think_budget),
        .prompt = j->mode == MODE_RAW ? j->ids : NULL,
        .n_prompt = j->n_ids,
        .logprobs = a->logprobs ? &x->items : NULL,
        .block = a->extract ? &x->block : NULL,
        .calls = x->calls.tools ? &x->calls : NULL,
        .profile = pr,
        .schema = x->schema,
    };
    if (x->text)
        return 0;
    struct json_writer w = jw_line(&b);
    if (a->jsonl)
        jw_cstr(&w, "event", "done");
    if (x->sample)
        jw_uint(&w, "sample", *x->sample);
    json_answer(&w, &answer);
    jw_end_line(&w);
    return out_print(&b, out_write);
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

/* ---- the verdict ---- */

/* Print a message about the answer; with --samples it names the sample. */
static void judge_say(const struct gen_output *x, bool error, const char *text)
{
    char where[40] = "";
    if (x->sample)
        snprintf(where, sizeof(where), "sample %zu: ", *x->sample);
    msg_say(error ? MSG_ERROR : MSG_WARNING, "%s%s", where, text);
}

/* Why the answer was cut; NULL: it was not. */
static const char *cut_reason(const struct gen_output *x,
                              const struct qwick_result *r, char *text,
                              size_t n)
{
    const struct args *a = &x->j->p->a;
    switch (r->finish) {
    case QWICK_FINISH_LENGTH:
        snprintf(text, n, "-n %lld is reached", (long long)a->max_tokens);
        return text;
    case QWICK_FINISH_CONTEXT:
        snprintf(text, n, "the context of %zu tokens is full", x->j->limit);
        return text;
    case QWICK_FINISH_LOOP:
        snprintf(text, n, "its last %zu tokens repeat themselves%s",
                 x->o.loop_guard,
                 opt_given(x->j->p, OPT_loop_guard)
                     ? ""
                     : "; --loop-guard 0 lets it go on");
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
 * answer. */
static int score_ending(const struct gen_output *x,
                        const struct qwick_result *r)
{
    const struct gen_job *j = x->j;
    char text[80], line[160];
    const char *why = cut_reason(x, r, text, sizeof(text));
    /* -x has looked at its block, part of which --prefill may have given */
    bool empty = !j->p->a.extract && answer_is_empty(r);
    bool whole = j->constraint && !constraint_is_text(j->kind);
    bool short_of = whole && constraint_is_cut(j->kind, r->finish);
    bool required = j->p->a.require_answer || short_of;
    if (!answer_is_cut(r->finish) && !empty && !short_of)
        return 0;
    if (whole && !required)
        return 0; /* the constraint admits the empty text */
    if (!why)
        why = r->finish == QWICK_FINISH_STOP_STRING ? "a stop string came first"
              : r->thinking ? "the model stopped after its thinking"
                            : "the model stopped at once";
    /* the user sees no thinking, so does not know what used the tokens up */
    if (empty && r->thinking && r->finish == QWICK_FINISH_LENGTH)
        snprintf(text, sizeof(text),
                 "-n %lld is reached while the model thought (see --think)",
                 (long long)j->p->a.max_tokens);
    snprintf(line, sizeof(line), "the answer is %s: %s",
             empty ? "empty" : "cut", why);
    if (required || empty || r->finish != QWICK_FINISH_LENGTH)
        judge_say(x, required, line);
    return required ? EXIT_INCOMPLETE : 0;
}

/* -x needs a complete code block with text. Returns -1 to go on. */
static int score_block(const struct gen_output *x, const struct qwick_result *r)
{
    const struct code_block *c = &x->block;
    char text[80], line[160];
    const char *why = cut_reason(x, r, text, sizeof(text));
    if (c->state == CODE_BLOCK_CLOSED && !code_block_is_empty(c))
        return -1;
    if (c->state == CODE_BLOCK_CLOSED)
        judge_say(x, true, "the code block of the answer is empty");
    else {
        if (c->state == CODE_BLOCK_OPEN)
            snprintf(line, sizeof(line),
                     "the answer is cut inside its code block: %s", why);
        else
            snprintf(line, sizeof(line), "the answer has no code block%s%s",
                     why ? ": " : "", why ? why : "");
        judge_say(x, true, line);
    }
    return EXIT_INCOMPLETE;
}

int gen_output_status(const struct gen_output *x, const struct qwick_result *r)
{
    const struct tool_calls *c = &x->calls;
    int status = -1;
    if (*signals_flag())
        return 0;
    if (x->j->p->a.extract)
        status = score_block(x, r);
    if (status < 0 && c->error.len) {
        judge_say(x, true, c->error.data);
        status = EXIT_INCOMPLETE;
    }
    if (status < 0 && x->schema == SCHEMA_INVALID) {
        judge_say(x, true, x->why_invalid.msg);
        status = EXIT_INCOMPLETE;
    }
    return status < 0 ? score_ending(x, r) : status;
}
