/* What the child process of a chat does: it has the model (chat_model.h). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/chat/chat_job.h"
#include "cli/chat/chat_model.h"
#include "cli/answer/gen_output.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "cli/io/signals.h"

/* ---- opening ---- */

/* The messages of the session's file are the truth; its keys and values only
 * save the work of evaluating them. */
static int open_session(struct chat *c, struct chat_reply *reply)
{
    struct gen_job *j = &c->j;
    size_t n;
    bool resume = c->session && access(c->session, F_OK) == 0;
    j->a->session = resume ? c->session : NULL;
    int status = gen_open_session(j);
    j->a->session = NULL;
    if (status || !resume)
        return status;
    const char *note = qwick_session_note(j->ses, &n);
    if (!n) {
        msg_error("%s: has no messages, only tokens: it was not saved by a "
                  "chat",
                  c->session);
        return QWICK_ERR_USAGE;
    }
    reply->json = malloc(n);
    if (!reply->json)
        return msg_oom();
    memcpy(reply->json, note, n);
    reply->n_json = n;
    return 0;
}

int chat_child_open(struct chat *c, struct chat_reply *reply)
{
    struct gen_job *j = &c->j;
    int status;
    if ((status = open_model(&j->eng, j->p, false)) != 0)
        return status;
    if (strcmp(qwick_engine_info(j->eng)->template_name, "none") == 0) {
        msg_error("%s: has no chat template; --chat-template FILE gives one",
                  qwick_engine_info(j->eng)->model);
        return QWICK_ERR_USAGE;
    }
    j->mode = MODE_CHAT;
    answer_drop_think_of(j->p, j->eng);
    if ((status = answer_check_generation(j->p, j->eng)) != 0 ||
        (status = open_model_draft(&j->draft, j->p, j->eng)) != 0)
        return status;
    common_hint_demo(j->p);
    if ((status = gen_open_constraint(j)) != 0 ||
        (status = open_session(c, reply)) != 0)
        return status;
    signals_catch();
    qwick_session_interrupt(j->ses, signals_flag());
    reply->fixed.limit = j->limit;
    reply->fixed.greedy = gen_sampling(j).temperature == 0;
    j->a->session = c->session; /* which is written after each answer */
    status = sandbox_enter(j->p, j->eng, j->draft, SIZE_MAX);
    j->a->session = NULL;
    return status;
}

/* ---- the session's file ---- */

/* Drop the tokens after the last stop token, such as the template's newline: a
 * session ends with its last answer. */
static int end_with_answer(struct gen_job *j, struct qwick_err *e)
{
    enum { MOST = 8 };
    const struct qwick_info *info = qwick_engine_info(j->eng);
    size_t n;
    const int32_t *ids = qwick_session_tokens(j->ses, &n);
    for (size_t k = n; k > 0 && n - k < MOST; k--)
        for (size_t i = 0; i < info->n_stop_ids; i++)
            if (ids[k - 1] == info->stop_ids[i])
                return qwick_session_rollback(j->ses, k, e);
    return 0;
}

/* Make the session's tokens those of the conversation, which /undo, /system or
 * /load have changed: generate --session continues after the last token. */
static int match_session(struct chat *c, struct qwick_err *e)
{
    struct gen_job *j = &c->j;
    struct qwick_chat_options o = qwick_chat_defaults();
    bool in_think;
    o.add_generation_prompt = false;
    o.think = j->think;
    if (!qwick_chat_length(j->chat))
        return qwick_session_rollback(j->ses, 0, e);
    if (!qwick_chat_sync(j->chat, j->ses, &o, &in_think, e))
        return end_with_answer(j, e);
    /* a conversation that does not fit is saved without its tokens */
    return e->code == QWICK_ERR_CONTEXT ? qwick_session_rollback(j->ses, 0, e)
                                        : -1;
}

/* Save with the answer r; NULL: the conversation does not end with an answer
 * that was generated just now. */
static int save(struct chat *c, const struct qwick_result *r)
{
    static const struct qwick_result none = {0};
    struct gen_job *j = &c->j;
    struct qwick_err e;
    char *json;
    size_t n;
    if (!c->session)
        return 0;
    if ((!r && match_session(c, &e)) || qwick_chat_json(j->chat, &json, &n, &e))
        return msg_fail(&e);
    int status = gen_save(j, r ? r : &none, json, n);
    free(json);
    c->unsaved = status != 0;
    return status;
}

/* ---- an answer ---- */

/* Encode the conversation. Returns 0, 1 if it does not fit the context, or -1
 * with *e set. */
static int encode(struct gen_job *j, struct qwick_err *e)
{
    free(j->ids);
    j->ids = NULL;
    j->n_ids = 0;
    if (!gen_encode(j, e))
        return 0;
    if (e->code != QWICK_ERR_CONTEXT)
        return -1;
    size_t enough = prompt_enough(j->limit); /* encoding stops beyond that */
    bool more = enough && j->n_ids > enough;
    msg_error("with this message the conversation has %s%zu tokens, the "
              "context holds %zu: the message is taken back; /undo makes room, "
              "/save keeps the conversation",
              more ? "more than " : "", more ? enough : j->n_ids, j->limit);
    return 1;
}

static struct chat_numbers numbers_of(const struct qwick_result *r)
{
    return (struct chat_numbers){
        .n_prompt = r->n_prompt,
        .n_cached = r->n_cached,
        .n_tokens = r->n_tokens,
        .prefill_ms = r->prefill_ms,
        .total_ms = r->total_ms,
    };
}

/* The answer as a conversation of one message, for the chat's own process. */
static int answer_json(const struct qwick_result *r, struct chat_reply *reply,
                       struct qwick_err *e)
{
    struct qwick_chat *one;
    if (qwick_chat_create(&one, e))
        return -1;
    int rc = qwick_chat_add_answer(one, r, e) ||
                     qwick_chat_json(one, &reply->json, &reply->n_json, e)
                 ? -1
                 : 0;
    qwick_chat_free(one);
    return rc;
}

/* After the output of an answer: add it to the conversation, and say how it
 * ended. */
static int finish(struct chat *c, struct gen_output *x, struct qwick_result *r,
                  struct chat_reply *reply)
{
    struct qwick_err e;
    int status = gen_output_end(x, r);
    if (status)
        return status;
    signals_forget_int();
    if (*signals_flag()) {
        if (c->session)
            msg_warn("%s: the last exchange is not saved, as the answer was "
                     "interrupted",
                     c->session);
        return QWICK_ERR_RUNTIME;
    }
    if (!r->n_tokens) {
        msg_warn("%s before the answer; the message is taken back",
                 r->finish == QWICK_FINISH_TIMEOUT ? "the time was over"
                                                   : "interrupted");
        return 0;
    }
    if (qwick_chat_add_answer(c->j.chat, r, &e) || answer_json(r, reply, &e))
        return msg_fail(&e);
    reply->fixed.numbers = numbers_of(r);
    gen_note_timing(r);
    if (r->finish == QWICK_FINISH_INTERRUPTED)
        msg_warn("the answer was interrupted; its part above stays in the "
                 "conversation");
    else
        (void)gen_output_status(x, r);
    if (qwick_session_store(c->j.ses, r->n_prompt, &e))
        msg_warn("prefix cache: %s", e.msg);
    return save(c, r);
}

/* Generate. Returns 0, or an exit status that ends the chat. */
static int generate(struct chat *c, struct gen_output *x,
                    struct chat_reply *reply)
{
    struct gen_job *j = &c->j;
    struct qwick_result r;
    struct qwick_err e = {0};
    progress_start("prompt");
    progress_items("tokens", 0, 0, j->n_ids, 0);
    qwick_session_progress(j->ses, progress_step, NULL);
    int rc = qwick_generate(j->ses, j->ids, j->n_ids, &x->o, &r, &e), status;
    if (rc) {
        struct qwick_result none = {.finish = QWICK_FINISH_INTERRUPTED};
        bool interrupted = *signals_flag() != 0;
        emit_end(&x->st, &none);
        signals_forget_int();
        status = x->st.status;
        if (!status && *signals_flag())
            status = QWICK_ERR_RUNTIME;
        if (!status && interrupted)
            msg_warn("interrupted before the answer; the message is taken "
                     "back");
        else if (!status)
            msg_fail(&e); /* such as too little memory: the chat goes on */
    } else {
        status = finish(c, x, &r, reply);
    }
    qwick_result_free(&r);
    return status;
}

int chat_child_answer(struct chat *c, uint64_t number, struct chat_reply *reply)
{
    struct gen_job *j = &c->j;
    struct gen_output x;
    struct qwick_err e = {0};
    int rc = encode(j, &e);
    if (rc) {
        if (rc < 0)
            msg_fail(&e);
        return 0;
    }
    const struct qwick_sampling sampling = gen_sampling(j);
    uint64_t seed = opt_given(j->p, OPT_seed)
                        ? answer_seed(sampling.seed, number)
                        : sampling.seed;
    int status = gen_output_begin(&x, j, &sampling, seed, NULL);
    if (!status)
        status = generate(c, &x, reply);
    gen_output_free(&x);
    return status;
}

int chat_child_save(struct chat *c)
{
    return save(c, NULL);
}

size_t chat_child_count(const struct chat *c)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    int32_t *ids;
    size_t n;
    bool in_think;
    o.add_generation_prompt = false;
    o.think = c->j.think;
    if (!qwick_chat_length(c->j.chat) ||
        qwick_chat_encode(c->j.chat, c->j.eng, &o, NULL, 0, &ids, &n, &in_think,
                          NULL))
        return 0;
    free(ids);
    return n;
}
