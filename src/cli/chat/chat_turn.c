/* The turns of a chat, in its own process: the messages. The answers come from
 * the process of the model (chat_model.h). */
#include <stdlib.h>

#include "cli/answer/answer_log.h"
#include "cli/answer/chat_input.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/opt/preset.h"
#include "cli/opt/settings.h"
#include "cli/store/conversation_store.h"

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

/* Write the conversation that has a name. Returns 0, or an exit status after
 * printing a message. */
static int chat_save_named(struct chat *c)
{
    struct qwick_err e;
    char *json = NULL;
    size_t n;
    int rc = qwick_chat_json(c->j.chat, &json, &n, &e) ||
             conversation_write(c->j.p->a.conversation, c->model.opened.name,
                                json, n, &e);
    free(json);
    c->unsaved = rc;
    return msg_result(rc, &e);
}

int chat_save_session(struct chat *c)
{
    struct chat_packet r = {0};
    if (c->unsaved && c->j.p->a.conversation)
        return chat_save_named(c);
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

/* Log the last exchange. The log is open only meanwhile: the process of the model
 * must not get it. */
static void chat_log(struct chat *c, const struct chat_packet *r)
{
    struct gen_job *j = &c->j;
    struct qwick_message m;
    struct log_row row = {
        .model = log_text(c->model.opened.name),
        .prompt_tokens = (int64_t)r->numbers.n_prompt,
        .cached_tokens = (int64_t)r->numbers.n_cached,
        .completion_tokens = (int64_t)r->numbers.n_tokens,
        .prefill_ms = r->numbers.prefill_ms,
        .total_ms = r->numbers.total_ms,
        .seed = (int64_t)r->seed,
    };
    size_t n = qwick_chat_length(j->chat);
    if (!j->p->a.log.on || !n || qwick_chat_at(j->chat, n - 1, &m, NULL))
        return;
    answer_log_open(j);
    answer_log_chat(&row, j->chat);
    row.messages--; /* without the answer */
    row.answer = (struct log_text){m.content, m.n_content};
    row.thinking = (struct log_text){m.thinking, m.n_thinking};
    if (r->finish <= QWICK_FINISH_CANCELLED)
        row.finish_reason =
            log_text(qwick_finish_name((enum qwick_finish)r->finish));
    answer_log_add(j, &row, &r->sampling);
    log_db_close(j->log);
    j->log = NULL;
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
        chat_log(c, &r);
        if (c->j.p->a.conversation)
            (void)chat_save_named(c); /* again at the end, if it fails */
    }
    free(r.json);
    return status;
}

/* ---- turns ---- */

int chat_fill(const struct chat *c, struct buf *text, struct qwick_err *e)
{
    const struct preset *s = settings_preset(c->j.p->settings);
    if (s && !s->n) /* it only sets options */
        return 0;
    return preset_apply(text, c->j.p, e);
}

int chat_send(struct chat *c, const char *text, size_t n)
{
    struct qwick_chat *chat = c->j.chat;
    size_t before = qwick_chat_length(chat);
    struct buf b = {0};
    struct qwick_err e;
    bool added = false;
    int bad = buf_append(&b, c->files.data, c->files.len) ||
              (b.len && n && buf_puts(&b, "\n\n")) || buf_append(&b, text, n);
    int status =
        bad ? msg_oom()
            : msg_result(chat_fill(c, &b, &e) ||
                             qwick_chat_add(chat, "user", b.data, b.len, &e),
                         &e);
    buf_free(&b);
    if (!status)
        status = chat_answer(c, &added);
    if (added) {
        c->files.len = 0;
        qwick_chat_free(c->cleared);
        c->cleared = NULL;
    } else {
        (void)qwick_chat_rollback(chat, before, NULL);
    }
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
