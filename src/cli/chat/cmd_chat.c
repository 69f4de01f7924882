/* The interactive verb: its options, and the loop of messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/answer/answer_log.h"
#include "cli/chat/chat_history.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/io/state_file.h"
#include "cli/opt/preset.h"
#include "cli/opt/verbs.h"
#include "cli/store/conversation_store.h"

/* ---- checks before the model is opened ---- */

static int check_terminal(const struct verb *verb)
{
    const char *which = !isatty(STDIN_FILENO)    ? "standard input"
                        : !isatty(STDOUT_FILENO) ? "standard output"
                                                 : NULL;
    return which ? opt_usage(verb,
                             "%s is not a terminal; qwick \"PROMPT\" answers "
                             "once, qwick batch answers many prompts",
                             which)
                 : -1;
}

static int chat_check(struct opt_parsed *p)
{
    int r;
    if (p->n_args)
        return opt_usage(p->verb,
                         "\"%s\": chat takes no arguments; type the message "
                         "there, or use qwick \"PROMPT\" for one answer",
                         p->args[0]);
    if ((r = preset_check(p)) >= 0 || (r = answer_check(p)) >= 0 ||
        (r = constraint_check(p)) >= 0 ||
        (r = conversation_check_answer(p)) >= 0 ||
        (r = answer_log_check(p)) >= 0)
        return r;
    if (p->a.think && strcmp(p->a.think, "off") == 0)
        opt_warn_no_effect(p, OPT_think_budget, OPT_think, "with --think off");
    return check_terminal(p->verb);
}

/* ---- the conversation that a chat begins with ---- */

static int load_kept(struct chat *c)
{
    char *path;
    int status = gen_kept_find(&c->j, &path);
    if (!status && path) { /* else a conversation begins */
        status = chat_load(c, path);
        if (!status)
            gen_kept_hint(c->j.chat);
    }
    free(path);
    return status;
}

static int set_system(struct chat *c)
{
    const struct args *a = &c->j.p->a;
    struct buf text = {0};
    struct prompt_faults faults = {0};
    struct qwick_err e;
    if (!a->system && !a->system_file)
        return 0;
    int rc =
        prompt_system(&text, a->system, a->system_file, false, &faults, &e) ||
        chat_set_system(&c->j.chat, buf_text(&text), text.len, &e);
    prompt_warn_faults(&faults, "system prompt");
    buf_free(&text);
    return msg_result(rc, &e);
}

/* Start the process of the model, and go on with the messages of its session.
 */
static int open_child(struct chat *c)
{
    struct chat_packet r = {0};
    struct qwick_err e;
    int status = chat_model_start(c, &r);
    if (!status && r.json &&
        qwick_chat_add_json(c->j.chat, r.json, r.n_json, &e))
        status = msg_stop(e.code, "%s: %s", c->session, e.msg);
    free(r.json);
    if (!status && c->j.p->a.conversation)
        conversation_note_model(c->j.p->a.conversation, c->j.last_model,
                                c->model.opened.name);
    return status ? status : set_system(c);
}

static int begin_conversation(struct chat *c)
{
    struct qwick_err e;
    int status = msg_result(qwick_chat_create(&c->j.chat, &e), &e);
    if (!status && c->j.p->a.chat_json)
        status = chat_load(c, c->j.p->a.chat_json);
    if (!status && (c->j.p->a.go_on || c->j.p->a.conversation))
        status = load_kept(c);
    return status;
}

/* ---- the history ---- */

static void open_history(struct chat *c)
{
    struct qwick_err e;
    if (c->j.p->a.no_history || state_path(&c->history, "history") ||
        !c->history.len)
        return;
    if (chat_history_load(c->history.data, chat_line_remember, c->line, &e)) {
        msg_warn("%s; the history is not used", e.msg);
        c->history.len = 0;
    }
}

void chat_remember(struct chat *c, const struct chat_text *t)
{
    struct buf entry = {0};
    struct qwick_err e;
    if (!chat_text_entry(t, &entry) && entry.len) {
        chat_line_remember(c->line, entry.data, entry.len);
        if (c->history.len &&
            chat_history_add(c->history.data, entry.data, entry.len, &e)) {
            msg_warn("%s; the history is not written", e.msg);
            c->history.len = 0;
        }
    }
    buf_free(&entry);
}

/* ---- the loop ---- */

static bool is_blank(const struct buf *b)
{
    return strspn(b->data, " \t\r\n") == b->len;
}

/* Run a command, or send a message. */
static int take_message(struct chat *c, const struct chat_text *t)
{
    const struct buf *b = &t->text;
    if (!b->len || is_blank(b))
        return 0;
    if (!t->block && chat_command_is(b->data))
        return chat_run_command(c, b->data);
    size_t skip = t->block ? 0 : chat_command_skip(b->data);
    return chat_send(c, b->data + skip, b->len - skip);
}

/* After Ctrl-C at the prompt. armed: the line before was an empty line with
 * Ctrl-C. */
static void interrupted(const struct chat_text *t, bool empty, bool *armed)
{
    fd_write(STDOUT_FILENO, "^C\n", 3);
    if (empty && !t->open && *armed)
        return; /* the signal ends the program */
    signals_forget_int();
    *armed = empty && !t->open;
    if (*armed)
        chat_say("Ctrl-C again leaves, and so does Ctrl-D");
}

/* Read one message, or a part of it. Returns 0, -1 to leave, or an exit
 * status. */
static int read_message(struct chat *c, struct chat_text *t, struct buf *line,
                        bool *armed)
{
    bool complete;
    int status = 0;
    enum chat_line_status got =
        chat_line_read(c->line, t->open ? "... " : ">>> ", line);
    switch (got) {
    case CHAT_LINE_FAILED:
        return msg_oom();
    case CHAT_LINE_STOPPED:
        return -1;
    case CHAT_LINE_END:
        fd_write(STDOUT_FILENO, "\n", 1);
        return -1;
    case CHAT_LINE_INTERRUPTED:
    case CHAT_LINE_INTERRUPTED_EMPTY:
        interrupted(t, got == CHAT_LINE_INTERRUPTED_EMPTY, armed);
        chat_text_clear(t);
        return *signals_flag() ? -1 : 0;
    case CHAT_LINE_GOT:
        break;
    }
    *armed = false;
    if (chat_text_add(t, line->data, line->len, &complete))
        return msg_oom();
    if (complete) {
        chat_remember(c, t);
        status = take_message(c, t);
        chat_text_clear(t);
    }
    return status;
}

static int chat_loop(struct chat *c)
{
    struct chat_text t = {0};
    struct buf line = {0};
    bool armed = false;
    int status = 0;
    while (!status && !c->quit)
        status = read_message(c, &t, &line, &armed);
    chat_text_free(&t);
    buf_free(&line);
    return status < 0 ? 0 : status;
}

static void greet(const struct chat *c)
{
    size_t n = qwick_chat_length(c->j.chat);
    char before[60] = "";
    if (n)
        snprintf(before, sizeof(before), ", %zu messages", n);
    if (!msg_quiet())
        chat_say("%s, context of %zu tokens%s; /help lists the commands, "
                 "Ctrl-D leaves",
                 c->model.opened.name, (size_t)c->model.opened.limit, before);
}

/* Restore the terminal with fn when a signal ends the program. */
static void restore_with(void (*fn)(void))
{
    signals_at_kill(fn);
    signals_at_bus(fn);
    signals_at_crash(fn);
}

static int converse(struct chat *c)
{
    struct qwick_err e;
    signals_catch();
    if (chat_line_open(&c->line, chat_commands, &e))
        return msg_fail(&e);
    restore_with(chat_line_restore);
    open_history(c);
    greet(c);
    if (!msg_quiet())
        chat_show_last(c);
    int status = chat_loop(c);
    restore_with(NULL);
    chat_line_close(c->line);
    c->line = NULL;
    if (!status && !*signals_flag())
        status = chat_save_session(c);
    return status;
}

/* A template that no message fits is refused at once. */
static int check_template(const struct chat *c)
{
    struct buf text = {0};
    struct qwick_err e;
    int rc = buf_puts(&text, "text") ? err_oom(&e, 1) : chat_fill(c, &text, &e);
    buf_free(&text);
    return msg_result(rc, &e);
}

static int chat_start(struct chat *c)
{
    struct gen_job *j = &c->j;
    int status;
    j->think = answer_think(&j->p->a);
    c->session = j->p->a.save_session = j->p->a.session;
    j->p->a.session = NULL; /* the child sets it where it needs it */
    if ((status = chat_set_begin(&c->set, j->p)) != 0 ||
        (status = check_template(c)) != 0 ||
        (status = gen_check_save(j)) != 0 ||
        (status = begin_conversation(c)) != 0 || (status = open_child(c)) != 0)
        return status;
    return converse(c);
}

static int chat_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct chat c = {.j = {.p = p, .eng = eng}}; /* none: the child opens it */
    int status = chat_start(&c);
    chat_model_stop(&c.model);
    buf_free(&c.history);
    buf_free(&c.files);
    qwick_chat_free(c.cleared);
    chat_set_end(&c.set);
    gen_free(&c.j);
    return status;
}

const struct verb verb_chat = {
    .bit = V_CHAT,
    .needs_logits = true,
    .name = "chat",
    .group = VERBS_ANSWER,
    .args = "",
    .summary = "converse with a model at the terminal",
    .about = "Converse with a language model at a terminal. Each message is "
             "answered; only its\nnew tokens are evaluated. Lines are edited "
             "with the usual keys, and the arrow\nkeys show earlier messages. "
             "Commands begin with a slash: /set changes an option,\n/model the "
             "model, /edit opens your editor, /help lists all. Alt-Enter "
             "begins\nanother line, Tab completes, Ctrl-C stops an answer, "
             "Ctrl-D leaves.",
    .examples = "  qwick chat\n"
                "  qwick chat -m Qwen/Qwen3-0.6B --session manual.qwick\n"
                "  qwick chat --temp 0.7 -s \"Answer in one sentence.\"\n",
    .check = chat_check,
    .run = chat_run,
};
