/* A turn of chat: a message and its answer. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/chat_input.h"
#include "cli/chat_job.h"
#include "cli/gen_output.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"

bool chat_last_user(const struct chat *c, size_t *i)
{
    struct qwick_message m;
    return chat_input_last_user(c->j.chat, i, &m);
}

size_t chat_tokens(const struct chat *c)
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

int chat_save_session(struct chat *c)
{
    return c->unsaved ? save(c, NULL) : 0;
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

static void count(struct chat *c, const struct qwick_result *r)
{
    c->last = (struct chat_numbers){
        .n_prompt = r->n_prompt,
        .n_cached = r->n_cached,
        .n_tokens = r->n_tokens,
        .prefill_ms = r->prefill_ms,
        .total_ms = r->total_ms,
    };
    c->has_last = true;
    c->total.n_prompt += r->n_prompt;
    c->total.n_cached += r->n_cached;
    c->total.n_tokens += r->n_tokens;
    c->total.prefill_ms += r->prefill_ms;
    c->total.total_ms += r->total_ms;
}

/* After the output of an answer: add it to the conversation, and say how it
 * ended. *added: it has tokens. */
static int finish(struct chat *c, struct gen_output *x, struct qwick_result *r,
                  bool *added)
{
    struct qwick_err e;
    int status = gen_output_end(x, r);
    *added = false;
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
    if (qwick_chat_add_answer(c->j.chat, r, &e))
        return msg_fail(&e);
    *added = true;
    count(c, r);
    gen_note_timing(r);
    if (r->finish == QWICK_FINISH_INTERRUPTED)
        msg_warn("the answer was interrupted; its part above stays in the "
                 "conversation");
    else
        (void)gen_output_judge(x, r);
    if (qwick_session_store(c->j.ses, r->n_prompt, &e))
        msg_warn("prefix cache: %s", e.msg);
    return save(c, r);
}

/* Generate. Returns 0, or an exit status that ends the chat. */
static int generate(struct chat *c, struct gen_output *x, bool *added)
{
    struct gen_job *j = &c->j;
    struct qwick_result r;
    struct qwick_err e = {0};
    progress_start("prompt");
    emit_progress(&x->st, 0, j->n_ids);
    qwick_session_progress(j->ses, emit_progress, &x->st);
    int rc = qwick_generate(j->ses, j->ids, j->n_ids, &x->o, &r, &e), status;
    if (rc) {
        struct qwick_result none = {.finish = QWICK_FINISH_INTERRUPTED};
        bool interrupted = *signals_flag() != 0;
        *added = false;
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
        status = finish(c, x, &r, added);
    }
    qwick_result_free(&r);
    return status;
}

/* Answer the conversation, whose last message is the user's. */
static int answer(struct chat *c, bool *added)
{
    struct gen_job *j = &c->j;
    struct gen_output x;
    struct qwick_err e = {0};
    *added = false;
    int rc = encode(j, &e);
    if (rc) {
        if (rc < 0)
            msg_fail(&e);
        return 0;
    }
    const struct qwick_sampling sampling = gen_sampling(j);
    uint64_t seed = opt_given(&j->p, "seed")
                        ? answer_seed(sampling.seed, c->n_answers)
                        : sampling.seed;
    c->n_answers++;
    int status = gen_output_begin(&x, j, &sampling, seed, NULL);
    if (!status)
        status = generate(c, &x, added);
    gen_output_free(&x);
    return status;
}

/* ---- turns ---- */

int chat_send(struct chat *c, const char *text, size_t n)
{
    struct qwick_chat *chat = c->j.chat;
    size_t before = qwick_chat_length(chat);
    struct buf b = {0};
    struct qwick_err e;
    bool added = false;
    int bad = buf_append(&b, c->files.data, c->files.len) ||
              (b.len && n && buf_puts(&b, "\n\n")) || buf_append(&b, text, n);
    int status = bad ? msg_oom()
                 : qwick_chat_add(chat, "user", b.data, b.len, &e)
                     ? msg_fail(&e)
                     : 0;
    buf_free(&b);
    if (!status)
        status = answer(c, &added);
    if (added)
        c->files.len = 0;
    else
        (void)qwick_chat_rollback(chat, before, NULL);
    return status;
}

int chat_again(struct chat *c)
{
    struct qwick_chat *old;
    struct qwick_err e;
    size_t i;
    bool added;
    if (!chat_last_user(c, &i))
        return 0;
    if (chat_copy(&old, c->j.chat, &e))
        return msg_fail(&e);
    (void)qwick_chat_rollback(c->j.chat, i + 1, NULL);
    int status = answer(c, &added);
    if (added) {
        qwick_chat_free(old);
    } else { /* the old answer stays */
        qwick_chat_free(c->j.chat);
        c->j.chat = old;
    }
    return status;
}
