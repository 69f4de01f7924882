#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/answer/chat_input.h"
#include "cli/decide/choose_job.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "qwick.h"

static const char *const yes_no[] = {"yes", "no"};

/* ---- prompt and answers ------------------------------------------------- */

static bool is_stop_id(const struct qwick_info *info, int32_t id)
{
    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return false;
}

/* Find the stop token that the chat template writes after an answer, which
 * differs between templates; -1 if it writes none. */
static int turn_end(const struct qwick_engine *eng, int32_t *id,
                    struct qwick_err *e)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *chat;
    int32_t *ids = NULL;
    size_t n = 0;
    bool in_think;
    o.add_generation_prompt = false;
    *id = -1;
    if (qwick_chat_create(&chat, e))
        return -1;
    int rc = qwick_chat_add(chat, "user", "a", 1, e) ||
             qwick_chat_add(chat, "assistant", "b", 1, e) ||
             qwick_chat_encode(chat, eng, &o, NULL, 0, &ids, &n, &in_think, e);
    while (!rc && *id < 0 && n > 0)
        if (is_stop_id(qwick_engine_info(eng), ids[--n]))
            *id = ids[n];
    qwick_chat_free(chat);
    free(ids);
    return rc ? -1 : 0;
}

/* Find the token that ends a reply. */
static int end_id(const struct choose_job *j, int32_t *id, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(j->g.eng);
    *id = -1;
    if (j->g.mode == MODE_CHAT && turn_end(j->g.eng, id, e))
        return -1;
    if (*id < 0 &&
        gen_control_id(j->g.eng,
                       j->g.mode == MODE_RAW ? "<|endoftext|>" : "<|im_end|>",
                       id, e))
        return -1;
    if (*id < 0 && info->n_stop_ids)
        *id = info->stop_ids[0];
    if (*id < 0)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: has no stop token that could end an answer; "
                       "--no-end does without",
                       info->model);
    return 0;
}

static int encode_answers(struct choose_job *j, struct qwick_err *e)
{
    bool special = j->g.mode == MODE_RAW || j->a->allow_special;
    int32_t end = -1;
    j->answers = calloc(j->n_answers, sizeof(*j->answers));
    j->choices = calloc(j->n_answers, sizeof(*j->choices));
    j->logprobs = calloc(j->n_answers * (j->form ? RECORDS_GROUP : 1),
                         sizeof(*j->logprobs));
    if (!j->answers || !j->choices || !j->logprobs)
        return err_oom(e, j->n_answers * sizeof(*j->answers));
    if (!j->a->no_end && end_id(j, &end, e))
        return -1;
    for (size_t i = 0; i < j->n_answers; i++) {
        struct qwick_answer *a = &j->answers[i];
        const char *text = j->texts[i];
        int32_t *ids, *more;
        size_t n;
        if (qwick_tokenize_after(j->g.eng,
                                 j->g.mode == MODE_RAW ? QWICK_IN_TEXT : -1,
                                 text, strlen(text), special, 0, &ids, &n, e))
            return -1;
        a->tokens = ids;
        a->n = n;
        if (n == 0)
            return err_usage(e, "--answer: number %zu has no tokens", i + 1);
        if (end >= 0) {
            if (!(more = realloc(ids, (n + 1) * sizeof(*ids))))
                return err_oom(e, (n + 1) * sizeof(*ids));
            more[n] = end;
            a->tokens = more;
            a->n++;
        }
        if (a->n > j->longest)
            j->longest = a->n;
        for (size_t k = 0; k < i; k++)
            if (j->answers[k].n == a->n &&
                memcmp(j->answers[k].tokens, a->tokens,
                       a->n * sizeof(*a->tokens)) == 0)
                return err_usage(
                    e, "--answer: number %zu is the same as number %zu: \"%s\"",
                    i + 1, k + 1, text);
    }
    return 0;
}

/* Get the ids of an empty think block and the blank line after it. */
static int empty_block(const struct qwick_engine *eng, int32_t **ids,
                       size_t *n_ids, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    const int32_t tags[] = {info->think_open_id, info->think_close_id};
    struct buf block = {0};
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) {
        char *text;
        size_t n;
        if (qwick_token_text(eng, tags[i], false, &text, &n, e))
            rc = -1;
        else if (buf_append(&block, text, n) || buf_puts(&block, "\n\n"))
            rc = err_oom(e, n + 2);
        free(text); /* NULL after a failure */
    }
    if (!rc)
        rc = qwick_tokenize(eng, block.data, block.len, true, ids, n_ids, e);
    buf_free(&block);
    return rc;
}

int choose_close_thinking(const struct qwick_engine *eng, int32_t **ids,
                          size_t *n_ids, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    int32_t *empty, *more;
    size_t n_empty, at = *n_ids;
    while (at > 0 && (*ids)[at - 1] != info->think_open_id)
        at--;
    if (at == 0)
        return 0;
    if (empty_block(eng, &empty, &n_empty, e))
        return -1;
    more = realloc(*ids, (at + n_empty) * sizeof(**ids));
    if (!more) {
        free(empty);
        return err_oom(e, (at + n_empty) * sizeof(**ids));
    }
    memcpy(more + at - 1, empty, n_empty * sizeof(*empty));
    free(empty);
    *ids = more;
    *n_ids = at - 1 + n_empty;
    return 0;
}

int choose_open(struct choose_job *j, struct qwick_err *e)
{
    int status = open_model(&j->g.eng, j->g.p, false);
    if (status || (status = gen_choose_mode(&j->g)) != 0)
        return status;
    common_hint_demo(j->g.p);
    if (encode_answers(j, e))
        return msg_fail(e);
    j->o = (struct qwick_score_options){
        .size = sizeof(struct qwick_score_options),
        .n_ctx = (size_t)j->a->ctx,
        .progress = progress_step,
        .interrupt = signals_flag(),
    };
    return sandbox_enter(j->g.p, j->g.eng, NULL, SIZE_MAX);
}

/* ---- one prompt --------------------------------------------------------- */

double choose_threshold(const struct choose_job *j)
{
    if (opt_given(j->g.p, OPT_threshold))
        return j->a->threshold;
    return j->a->yes ? 0.5 : 0;
}

const char *choose_verdict(const struct choose_job *j, double *probability)
{
    const struct choice *c = choices_best(j->choices, j->n_answers);
    if (!j->a->yes) {
        *probability = c->probability;
        return c->answer;
    }
    for (c = j->choices; c->i != 0;)
        c++;
    *probability = c->probability;
    return yes_no[c->probability >= choose_threshold(j) ? 0 : 1];
}

static void put_answer(const struct choose_job *j, struct buf *b)
{
    double probability;
    const char *answer = choose_verdict(j, &probability);
    if (j->a->json) {
        struct json_writer w = jw_line(b);
        jw_cstr(&w, "model", qwick_engine_info(j->g.eng)->model);
        jw_uint(&w, "prompt_tokens", j->g.n_ids);
        choices_put_json(&w, j->choices, j->n_answers, answer, probability);
        jw_end_line(&w);
    } else if (j->a->yes) {
        buf_puts(b, answer);
        buf_putc(b, '\n');
    } else {
        choices_put_lines(b, j->choices, j->n_answers);
    }
}

size_t choose_context(const struct choose_job *j)
{
    return j->o.n_ctx ? j->o.n_ctx : qwick_engine_info(j->g.eng)->n_ctx_max;
}

/* Encode the prompt. The session serves only as a context limit, reduced by the
 * length of the longest answer. */
static int encode_prompt(struct choose_job *j, struct qwick_err *e)
{
    size_t limit = choose_context(j), room = j->longest - 1;
    if (limit <= room)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "--answer: %zu tokens do not fit the context of %zu",
                       room, limit);
    j->a->max_tokens = (int64_t)j->longest;
    if (qwick_session_create(&j->g.ses, j->g.eng, limit - room, e) ||
        gen_encode(&j->g, e))
        return -1;
    if (j->g.in_think && !j->a->prefill && j->g.mode == MODE_CHAT)
        return choose_close_thinking(j->g.eng, &j->g.ids, &j->g.n_ids, e);
    return 0;
}

static int choose_one(struct choose_job *j, struct qwick_err *e)
{
    int status = gen_read_input(&j->g, e);
    if (status)
        return status;
    /* a signal before this point ends the wait for input at once */
    signals_catch();
    if ((status = choose_open(j, e)) != 0)
        return status;
    if (encode_prompt(j, e))
        return chat_input_fail(j->a->chat_json, e);
    struct qwick_choose_item item = {j->g.ids, j->g.n_ids, j->logprobs};
    progress_start("choose");
    progress_items("tokens", 0, 0, j->g.n_ids, 0);
    int failed =
        qwick_choose(j->g.eng, &item, 1, j->answers, j->n_answers, &j->o, e);
    progress_stop();
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(e);
    choices_make(j->choices, j->texts, j->logprobs, j->n_answers,
                 j->a->in_order);
    struct buf b = {0};
    double probability;
    choose_verdict(j, &probability);
    put_answer(j, &b);
    status = out_print(&b, out_write);
    return !status && probability < choose_threshold(j) ? EXIT_BELOW : status;
}

/* ---- the verb ----------------------------------------------------------- */

static int choose_check(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    enum choose_form form;
    int r = gen_check(p);
    if (r >= 0)
        return r;
    if (!a->yes && a->answer.n < 2)
        return opt_usage(p->verb, a->answer.n
                                      ? "--answer: give two or more answers"
                                      : "no answers; usage: qwick choose -a A "
                                        "-a B [OPTIONS] [PROMPT]");
    return choose_check_records(p, &form);
}

static int choose(struct choose_job *j)
{
    struct qwick_err e = {0};
    if (out_check())
        return QWICK_ERR_RUNTIME; /* fail before the work, not after it */
    j->texts = j->a->yes ? yes_no : j->a->answer.v;
    j->n_answers = j->a->yes ? 2 : j->a->answer.n;
    j->g.think = QWICK_THINK_OFF;
    return j->form ? choose_records(j, &e) : choose_one(j, &e);
}

static int choose_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct choose_job j = {.g = {.p = p, .eng = eng}, .a = &p->a};
    choose_check_records(p, &j.form);
    int status = choose(&j);
    for (size_t i = 0; j.answers && i < j.n_answers; i++)
        free((void *)(uintptr_t)j.answers[i].tokens);
    choose_free_records(&j);
    free(j.answers);
    free(j.choices);
    free(j.logprobs);
    gen_free(&j.g);
    return status;
}

const struct verb verb_choose = {
    .bit = V_CHOOSE,
    .needs_logits = true,
    .name = "choose",
    .group = VERBS_DECIDE,
    .args = "-a A -a B [PROMPT]",
    .summary = "which of some answers is the likeliest, as probabilities",
    .about = "Print how probable each answer is as the model's whole reply to "
             "the prompt:\nits probability among the answers given, and its "
             "own log-probability. Nothing\nis generated: the prompt and "
             "beginnings that answers share are evaluated once.\nThe reply "
             "starts without thinking and ends after the answer with "
             "<|im_end|>,\nunless --no-end is given.",
    .examples =
        "  qwick choose -a \"ls -l\" -a pwd \"list files with details\"\n"
        "  qwick choose -a short -a long -f notes.txt \"how long is this "
        "text?\"\n",
    .check = choose_check,
    .run = choose_run,
};
