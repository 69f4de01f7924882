/* The turns of a chat, in its own process: the messages. The answers come from
 * the process of the model (chat_model.h). */
#include <stdlib.h>

#include "cli/answer/chat_input.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"

bool chat_last_user(const struct chat *c, size_t *i)
{
    struct qwick_message m;
    return chat_input_last_user(c->j.chat, i, &m);
}

size_t chat_tokens(struct chat *c)
{
    struct chat_packet r = {0};
    bool bad =
        !qwick_chat_length(c->j.chat) || chat_model_ask(c, CHAT_COUNT, &r);
    free(r.json);
    return bad ? 0 : r.n_tokens;
}

int chat_save_session(struct chat *c)
{
    struct chat_packet r = {0};
    if (!c->unsaved || !c->session)
        return 0;
    bool bad = chat_model_ask(c, CHAT_SAVE, &r) != 0;
    free(r.json);
    return bad ? (int)QWICK_ERR_RUNTIME : r.status;
}

/* ---- an answer ---- */

static void add_numbers(struct chat *c, const struct chat_numbers *n)
{
    c->last = *n;
    c->has_last = true;
    c->total.n_prompt += n->n_prompt;
    c->total.n_cached += n->n_cached;
    c->total.n_tokens += n->n_tokens;
    c->total.prefill_ms += n->prefill_ms;
    c->total.total_ms += n->total_ms;
}

/* Answer the conversation, whose last message is the user's. *added: the answer
 * has tokens, and is its last message now. Returns 0, or an exit status that
 * ends the chat. */
static int chat_answer(struct chat *c, bool *added)
{
    struct chat_packet r = {0};
    struct qwick_err e;
    int status;
    *added = false;
    if (chat_model_ask(c, CHAT_ANSWER, &r)) {
        signals_forget_int();
        return *signals_flag() ? QWICK_ERR_RUNTIME : 0;
    }
    c->n_answers++;
    signals_forget_int();
    /* the chat goes on when only the model's process got a signal */
    status = *signals_flag()     ? (int)QWICK_ERR_RUNTIME
             : c->model.pid == 0 ? 0
                                 : r.status;
    if (r.json && qwick_chat_add_json(c->j.chat, r.json, r.n_json, &e)) {
        status = msg_fail(&e);
    } else if (r.json) {
        *added = true;
        c->unsaved = r.unsaved;
        add_numbers(c, &r.numbers);
    }
    free(r.json);
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
        status = chat_answer(c, &added);
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
    int status = chat_answer(c, &added);
    if (added) {
        qwick_chat_free(old);
    } else { /* the old answer stays */
        qwick_chat_free(c->j.chat);
        c->j.chat = old;
    }
    return status;
}
