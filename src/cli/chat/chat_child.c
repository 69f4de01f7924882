/* What the child process of a chat does: it has the model (chat_model.h). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/answer/gen_output.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "file/json.h"

/* ---- opening ---- */

/* The messages of the session's file are the truth; its keys and values only
 * save the work of evaluating them. */
static int child_open_session(struct chat *c, struct chat_packet *reply)
{
    struct gen_job *j = &c->j;
    size_t n;
    bool resume = c->session && !c->evaluate && access(c->session, F_OK) == 0;
    j->p->a.session = resume ? c->session : NULL;
    int status = gen_open_session(j);
    j->p->a.session = NULL;
    if (status || !resume)
        return status;
    const char *note = qwick_session_note(j->ses, &n);
    if (!n)
        return msg_refuse(
            "%s: has no messages, only tokens: it was not saved by a "
            "chat",
            c->session);
    reply->json = malloc(n);
    if (!reply->json)
        return msg_oom();
    memcpy(reply->json, note, n);
    reply->n_json = n;
    return 0;
}

/* Open the model, its session and the sandbox. The reply gets what the first
 * one has. Returns 0, or an exit status after printing a message. */
static int child_open(struct chat *c, struct chat_packet *reply)
{
    struct gen_job *j = &c->j;
    int status;
    j->p->a.session = c->session;
    if ((status = open_model(&j->eng, j->p, false)) != 0)
        return status;
    if (strcmp(qwick_engine_info(j->eng)->template_name, "none") == 0)
        return msg_refuse(
            "%s: has no chat template; --chat-template FILE gives one",
            qwick_engine_info(j->eng)->model);
    j->mode = MODE_CHAT;
    answer_drop_think_of(j->p, j->eng);
    if ((status = answer_check_generation(j->p, j->eng)) != 0 ||
        (status = open_model_draft(&j->draft, j->p, j->eng)) != 0)
        return status;
    common_hint_demo(j->p);
    if ((status = gen_open_constraint(j)) != 0 ||
        (status = child_open_session(c, reply)) != 0)
        return status;
    signals_catch();
    qwick_session_interrupt(j->ses, signals_flag());
    reply->limit = j->limit;
    reply->greedy = gen_sampling(j).temperature == 0;
    snprintf(reply->name, sizeof(reply->name), "%s",
             qwick_engine_info(j->eng)->model);
    j->p->a.session = c->session; /* which is written after each answer */
    status = sandbox_enter(j->p, j->eng, j->draft, SIZE_MAX);
    j->p->a.session = NULL;
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
static int child_save(struct chat *c, const struct qwick_result *r)
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
static int child_encode(struct gen_job *j, struct qwick_err *e)
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

/* Put the answer into the reply, as a conversation of one message. */
static int reply_answer(struct chat_packet *reply, const struct gen_output *x,
                        const struct qwick_result *r, struct qwick_err *e)
{
    struct qwick_chat *one;
    reply->numbers = (struct chat_numbers){
        .n_prompt = r->n_prompt,
        .n_cached = r->n_cached,
        .n_tokens = r->n_tokens,
        .prefill_ms = r->prefill_ms,
        .total_ms = r->total_ms,
    };
    reply->finish = (uint32_t)r->finish;
    reply->seed = r->seed;
    reply->sampling = x->sampling;
    if (qwick_chat_create(&one, e))
        return -1;
    int rc = qwick_chat_add_answer(one, r, e) ||
             qwick_chat_json(one, &reply->json, &reply->n_json, e);
    qwick_chat_free(one);
    return rc ? -1 : 0;
}

/* After the output of an answer: add it to the conversation, and say how it
 * ended. */
static int child_finish(struct chat *c, struct gen_output *x,
                        struct qwick_result *r, struct chat_packet *reply)
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
    if (qwick_chat_add_answer(c->j.chat, r, &e) || reply_answer(reply, x, r, &e))
        return msg_fail(&e);
    gen_note_timing(r);
    if (r->finish == QWICK_FINISH_INTERRUPTED)
        msg_warn("the answer was interrupted; its part above stays in the "
                 "conversation");
    else
        (void)gen_output_status(x, r);
    if (qwick_session_store(c->j.ses,
                            c->j.p->a.conversation
                                ? qwick_session_length(c->j.ses)
                                : r->n_prompt,
                            &e))
        msg_warn("prefix cache: %s", e.msg);
    return child_save(c, r);
}

/* Generate. Returns 0, or an exit status that ends the chat. */
static int child_generate(struct chat *c, struct gen_output *x,
                          struct chat_packet *reply)
{
    struct qwick_result r;
    struct qwick_err e = {0};
    int status;
    if (gen_output_generate(x, &r, &e)) {
        bool interrupted = *signals_flag() != 0;
        status = gen_output_fail(x);
        signals_forget_int();
        if (!status && *signals_flag())
            status = QWICK_ERR_RUNTIME;
        if (!status && interrupted)
            msg_warn("interrupted before the answer; the message is taken "
                     "back");
        else if (!status)
            msg_fail(&e); /* such as too little memory: the chat goes on */
    } else {
        status = child_finish(c, x, &r, reply);
    }
    qwick_result_free(&r);
    return status;
}

/* Answer the conversation, print the answer and how it ended, and save the
 * session. The reply gets the answer if it has tokens. Returns 0, or an exit
 * status that ends the chat. */
static int child_answer(struct chat *c, uint64_t number,
                        struct chat_packet *reply)
{
    struct gen_job *j = &c->j;
    struct gen_output x;
    struct qwick_err e = {0};
    int rc = child_encode(j, &e);
    if (rc < 0)
        msg_fail(&e);
    if (rc)
        return 0;
    const struct qwick_sampling sampling = gen_sampling(j);
    uint64_t seed = opt_given(j->p, OPT_seed)
                        ? answer_seed(sampling.seed, number)
                        : sampling.seed;
    int status = gen_output_begin(&x, j, &sampling, seed, NULL);
    if (!status)
        status = child_generate(c, &x, reply);
    gen_output_free(&x);
    return status;
}

/* Return the number of tokens of the conversation; 0: unknown. */
static size_t child_count(const struct gen_job *j)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    int32_t *ids = NULL;
    size_t n;
    bool in_think;
    o.add_generation_prompt = false;
    o.think = j->think;
    if (qwick_chat_encode(j->chat, j->eng, &o, NULL, 0, &ids, &n, &in_think,
                          NULL))
        return 0;
    free(ids);
    return n;
}

/* ---- options ---- */

/* Check a change against the model. */
static int child_check_change(struct gen_job *j, const struct opt *o)
{
    if (o->id == OPT_think || o->id == OPT_think_budget)
        answer_drop_think_of(j->p, j->eng); /* warns */
    else if (qwick_engine_info(j->eng)->think_close_id < 0)
        opt_unset(j->p, opt_row(j->p->verb, OPT_think_budget));
    return answer_check_generation(j->p, j->eng);
}

/* Change the option of a request as the chat's own process did. Returns 0, or
 * an exit status with nothing changed. */
static int child_set(struct chat *c, const struct chat_packet *q)
{
    struct gen_job *j = &c->j;
    struct json_doc *doc;
    struct qwick_err e;
    if (json_parse(&doc, "change", q->json, q->n_json, QWICK_ERR_RUNTIME, &e))
        return msg_fail(&e);
    const struct json_value *v = json_root(doc)->items;
    const struct opt *o = opt_find(j->p->verb, v[0].str);
    const char *before = c->set.changed[o->id];
    int status = chat_set_change(
        &c->set, o, json_is(&v[1], JSON_STRING) ? v[1].str : chat_unset);
    json_free(doc);
    if (!status && (status = child_check_change(j, o)) != 0)
        (void)chat_set_change(&c->set, o, before);
    return status;
}

/* ---- requests ---- */

/* Take the conversation of a request. */
static int child_take_chat(struct gen_job *j, struct chat_packet *q)
{
    struct qwick_err e;
    qwick_chat_free(j->chat);
    int rc = qwick_chat_create(&j->chat, &e) ||
             qwick_chat_add_json(j->chat, q->json, q->n_json, &e);
    if (rc)
        msg_fail(&e);
    free(q->json);
    q->json = NULL;
    return rc;
}

static int child_send(struct chat *c, int fd, struct chat_packet *r)
{
    r->unsaved = c->unsaved;
    r->signal = *signals_flag();
    return chat_packet_send(fd, r);
}

static int child_do_request(struct chat *c, struct chat_packet *q, int fd)
{
    struct chat_packet r = {0};
    if (q->op != CHAT_SET && child_take_chat(&c->j, q))
        return -1;
    c->j.think = (enum qwick_think)q->think;
    signals_forget_int(); /* Ctrl-C at the prompt came here, too */
    switch ((enum chat_op)q->op) {
    case CHAT_ANSWER:
        r.status = child_answer(c, q->number, &r);
        break;
    case CHAT_SAVE:
        r.status = child_save(c, NULL);
        break;
    case CHAT_COUNT:
        r.n_tokens = child_count(&c->j);
        break;
    case CHAT_SET:
        r.status = child_set(c, q);
        r.greedy = gen_sampling(&c->j).temperature == 0;
        free(q->json);
        q->json = NULL;
    }
    return child_send(c, fd, &r);
}

_Noreturn void chat_child_run(struct chat *c, long parent, int fd)
{
    struct chat_packet p = {0};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* not later than the chat, however that ends */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || null < 0 || dup2(null, STDIN_FILENO) < 0)
        _exit(QWICK_ERR_RUNTIME);
    close(null);
    signals_forked();
    int status = p.status = child_open(c, &p);
    int bad = child_send(c, fd, &p);
    while (!status && !bad)
        bad = chat_packet_receive(fd, &p, NULL) || child_do_request(c, &p, fd);
    signals_finish(); /* dies by a signal that only this process got */
    _exit(status);
}
