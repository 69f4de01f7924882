/* The commands of chat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/answer/answer_opts.h"
#include "cli/chat/chat_editor.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "qwick_tools.h"

/* ---- help and numbers ---- */

static int command_help(struct chat *c)
{
    (void)c;
    for (const struct chat_command *row = chat_commands; row->name; row++) {
        char name[64];
        if (!row->help)
            continue;
        snprintf(name, sizeof(name), "/%s %s", row->name, row->args);
        chat_say("%-24s %s", name, row->help);
    }
    chat_say(
        "Alt-Enter, or \\ at the end of a line, begins another line. Lines "
        "between two\nlines of \"\"\" are one message. A blank before a slash "
        "sends the text. Tab completes\ncommands, options, models and files. "
        "Ctrl-C stops an answer.");
    return 0;
}

static double rate(const struct chat_numbers *s)
{
    double ms = s->total_ms - s->prefill_ms;
    return s->n_tokens > 1 && ms > 0 ? 1000 * (double)(s->n_tokens - 1) / ms
                                     : 0;
}

static void say_numbers(const char *what, const struct chat_numbers *s)
{
    chat_say("%s %zu prompt tokens, %zu of them cached, in %.2f s; %zu tokens "
             "in %.2f s",
             what, s->n_prompt, s->n_cached, s->prefill_ms / 1000, s->n_tokens,
             s->total_ms / 1000);
}

static int command_stats(struct chat *c)
{
    if (c->has_last) {
        say_numbers("last answer:", &c->last);
        chat_say("speed:       %.1f tok/s after the first token",
                 rate(&c->last));
        say_numbers("this chat:  ", &c->total);
    }
    chat_say("context:     %zu of %zu tokens", chat_tokens(c),
             c->model.opened.limit);
    chat_say("messages:    %zu", qwick_chat_length(c->j.chat));
    return 0;
}

/* ---- options and the model ---- */

/* Change an option in both processes. value: see chat_set_change. */
static int change_option(struct chat *c, const struct opt *o, const char *value)
{
    const char *before = c->set.changed[o->id];
    struct chat_packet r = {0};
    if (chat_set_change(&c->set, o, value))
        return -1;
    c->change = o;
    int bad = chat_model_ask(c, CHAT_SET, &r) || r.status;
    free(r.json);
    if (bad) {
        (void)chat_set_change(&c->set, o, before);
        return -1;
    }
    c->model.opened.greedy = r.greedy;
    if (o->id == OPT_think)
        c->j.think = answer_think(&c->j.p->a);
    if (o->id == OPT_seed)
        c->n_answers = 0; /* the next answer has this seed */
    return 0;
}

/* Print a line for an option; NULL: for all that can change. */
static void say_options(const struct chat *c, const struct opt *o)
{
    struct buf b = {0};
    chat_set_put(&b, c->j.p, o);
    if (b.len)
        chat_say("%.*s", (int)b.len - 1, b.data);
    buf_free(&b);
}

/* Cut the name of an option off the argument. Returns its row; NULL after
 * printing a message. */
static const struct opt *take_option(struct chat *c, const char *command,
                                     const char **value)
{
    char name[64];
    size_t n = strcspn(c->arg, " \t\n=");
    snprintf(name, sizeof(name), "%.*s", (int)n, c->arg);
    *value = c->arg + n + strspn(c->arg + n, " \t\n");
    if (**value == '=')
        *value += 1 + strspn(*value + 1, " \t\n");
    return chat_set_find(c->j.p, command, name);
}

static int command_set(struct chat *c)
{
    const char *value;
    const struct opt *o = *c->arg ? take_option(c, "/set", &value) : NULL;
    if (!*c->arg)
        say_options(c, NULL);
    else if (o && (!*value || !change_option(c, o, value)))
        say_options(c, o);
    return 0;
}

static int command_unset(struct chat *c)
{
    const char *value;
    const struct opt *o = take_option(c, "/unset", &value);
    if (o && *value)
        msg_error("/unset %s: takes no value", o->name);
    else if (o && !change_option(c, o, chat_unset))
        say_options(c, o);
    return 0;
}

static int command_model(struct chat *c)
{
    const struct opt *o = opt_row(c->j.p->verb, OPT_model);
    const char *before = c->set.changed[o->id], *rest;
    size_t n = qwick_chat_length(c->j.chat);
    struct buf name = {0};
    const char *why = chat_command_file(c->arg, true, &name, &rest);
    if (why)
        msg_error("/model: %s", why);
    else if (!*c->arg)
        chat_say("%s", c->model.opened.name);
    else if (!chat_set_change(&c->set, o, buf_text(&name))) {
        if (chat_model_switch(c))
            (void)chat_set_change(&c->set, o, before);
        else
            chat_say("%s, context of %zu tokens%s", c->model.opened.name,
                     (size_t)c->model.opened.limit,
                     n ? "; the conversation is evaluated again with the next "
                         "message"
                       : "");
    }
    buf_free(&name);
    return *signals_flag() ? QWICK_ERR_RUNTIME : 0;
}

/* The names that -m takes. */
static int model_words(struct buf *out, const char *words, size_t n)
{
    struct qwick_model *v;
    size_t n_models;
    bool cut;
    int bad = 0;
    (void)words;
    if (n || qwick_models_names(&v, &n_models, &cut, signals_flag(), NULL))
        return 0;
    for (size_t i = 0; i < n_models; i++)
        if (!v[i].why)
            bad |= buf_printf(out, "%s\n", v[i].name);
    qwick_models_free(v, n_models);
    return bad ? -1 : 0;
}

/* ---- thinking and the system prompt ---- */

static const char *think_name(enum qwick_think think)
{
    return think == QWICK_THINK_ON    ? "on"
           : think == QWICK_THINK_OFF ? "off"
                                      : "auto, as the model's template does";
}

static int command_think(struct chat *c)
{
    const struct args a = {.think = c->arg};
    enum qwick_think think = answer_think(&a);
    if (think == QWICK_THINK_AUTO && *c->arg && strcmp(c->arg, "auto") != 0) {
        msg_error("/think: \"%s\": expected on, off or auto", c->arg);
        return 0;
    }
    if (*c->arg && change_option(c, opt_row(c->j.p->verb, OPT_think), c->arg))
        return 0;
    chat_say("thinking: %s", think_name(c->j.think));
    return 0;
}

static int command_nothink(struct chat *c)
{
    c->arg = "off";
    return command_think(c);
}

static int command_system(struct chat *c)
{
    struct qwick_message m;
    struct qwick_err e;
    if (*c->arg) {
        if (chat_set_system(&c->j.chat, c->arg, strlen(c->arg), &e))
            return msg_fail(&e);
        c->unsaved = true;
        chat_say("the system prompt is set");
    } else if (!qwick_chat_at(c->j.chat, 0, &m, NULL) && m.content &&
               m.n_role == 6 && memcmp(m.role, "system", 6) == 0) {
        err_write_text(m.content, m.n_content);
        err_write_text("\n", 1);
    } else {
        chat_say("there is no system prompt");
    }
    return 0;
}

static int command_nosystem(struct chat *c)
{
    struct qwick_err e;
    int had = chat_set_system(&c->j.chat, NULL, 0, &e);
    if (had < 0)
        return msg_fail(&e);
    c->unsaved = c->unsaved || had;
    chat_say(had ? "the system prompt is taken out"
                 : "there is no system prompt");
    return 0;
}

/* ---- files ---- */

static int command_save(struct chat *c)
{
    if (!chat_write(c->j.chat, c->file))
        chat_say("%s: %zu messages", c->file, qwick_chat_length(c->j.chat));
    return 0;
}

static int command_load(struct chat *c)
{
    if (chat_load(c, c->file))
        return 0;
    c->unsaved = true;
    chat_say("%s: %zu messages", c->file, qwick_chat_length(c->j.chat));
    return 0;
}

/* Put a file's text before the next message; a question after its name sends
 * the message. */
static int command_read(struct chat *c)
{
    struct qwick_err e;
    size_t before = c->files.len;
    const struct strings files = {.v = &c->file, .n = 1};
    const struct prompt_sources sources = {
        .files = &files, .names = c->j.p->a.file_names, .no_stdin = true};
    struct prompt_faults faults = {0};
    struct buf text = {0};
    int status = 0;
    int failed = prompt_compose(&text, &sources, &faults, &e);
    if (!failed)
        prompt_warn_faults(&faults, c->file);
    if (failed) {
        msg_fail(&e);
    } else if (!text.len) {
        msg_error("%s: is empty", c->file);
    } else if ((before && buf_puts(&c->files, "\n\n")) ||
               buf_append(&c->files, text.data, text.len)) {
        c->files.len = before;
        msg_oom();
    } else if (*c->arg) {
        status = chat_send(c, c->arg, strlen(c->arg));
    } else {
        chat_say("%s: %zu bytes go before the next message (/undo drops them)",
                 c->file, text.len);
    }
    buf_free(&text);
    return status;
}

/* ---- messages ---- */

/* Let the user write a message in an editor, and send it. */
static int command_edit(struct chat *c)
{
    struct chat_text t = {.block = true};
    const struct buf *b = &t.text;
    struct qwick_err e;
    int status = 0;
    if (chat_editor_run(c->arg, strlen(c->arg), &t.text, &e)) {
        msg_fail(&e);
    } else if (strspn(buf_text(b), " \t\n") == b->len) {
        chat_say("the text is empty; nothing is sent");
    } else {
        chat_remember(c, &t);
        err_write_text(b->data, b->len);
        err_write_text("\n", 1);
        status = chat_send(c, b->data, b->len);
    }
    chat_text_free(&t);
    return status;
}

/* ---- turns ---- */

static int command_retry(struct chat *c)
{
    size_t i;
    if (!chat_last_user(c, &i)) {
        msg_error("/retry: there is no message to answer");
        return 0;
    }
    if (c->model.opened.greedy)
        msg_notice("the sampling is greedy, so the same answer comes again; "
                   "/set temp 0.7 draws others");
    return chat_again(c);
}

static int command_undo(struct chat *c)
{
    size_t n = qwick_chat_length(c->j.chat), i;
    if (c->files.len) {
        c->files.len = 0;
        chat_say("the texts of /read are dropped");
        return 0;
    }
    if (c->cleared) {
        n = qwick_chat_length(c->cleared) - n;
        qwick_chat_free(c->j.chat);
        c->j.chat = c->cleared;
        c->cleared = NULL;
        c->unsaved = true;
        chat_say("%zu messages are back", n);
        return 0;
    }
    if (!chat_last_user(c, &i)) {
        msg_error("/undo: there is no exchange");
        return 0;
    }
    (void)qwick_chat_rollback(c->j.chat, i, NULL);
    c->unsaved = true;
    chat_say("%zu messages are taken out, %zu are left", n - i, i);
    return 0;
}

static int command_clear(struct chat *c)
{
    size_t keep = chat_has_system(c->j.chat);
    size_t n = qwick_chat_length(c->j.chat) - keep;
    struct qwick_chat *old;
    struct qwick_err e;
    c->files.len = 0;
    if (n) {
        if (chat_copy(&old, c->j.chat, &e))
            return msg_fail(&e);
        qwick_chat_free(c->cleared);
        c->cleared = old;
        (void)qwick_chat_rollback(c->j.chat, keep, NULL);
        c->unsaved = true;
    }
    chat_say("%zu messages are taken out%s%s", n,
             keep ? ", the system prompt stays" : "",
             n ? "; /undo brings them back" : "");
    return 0;
}

static int command_quit(struct chat *c)
{
    c->quit = true;
    return 0;
}

/* ---- the table ---- */

static int think_words(struct buf *out, const char *words, size_t n)
{
    (void)words;
    return n ? 0 : buf_puts(out, "on\noff\nauto\n");
}

static int show_words(struct buf *out, const char *words, size_t n)
{
    (void)words;
    return n ? 0 : buf_puts(out, "chat\n");
}

static int unset_words(struct buf *out, const char *words, size_t n)
{
    return n ? 0 : chat_set_words(out, words, n);
}

const struct chat_command chat_commands[] = {
    {"help", "", "list the commands; so does /?", command_help, NULL},
    {"think", "[on|off|auto]", "let the model think first", command_think,
     think_words},
    {"nothink", "", "like /think off", command_nothink, NULL},
    {"system", "[TEXT]", "set the system prompt, or show it", command_system,
     NULL},
    {"nosystem", "", "take the system prompt out", command_nosystem, NULL},
    {"set", "[OPTION [VALUE]]", "change an option, or show options",
     command_set, chat_set_words},
    {"unset", "OPTION", "as if nothing had set the option", command_unset,
     unset_words},
    {"model", "[NAME]", "go on with another model, or show its name",
     command_model, model_words},
    {"show", "[chat]", "show model, context and options, or all messages",
     chat_show, show_words},
    {"edit", "[TEXT]", "write the message in $VISUAL or $EDITOR", command_edit,
     NULL},
    {"read", "FILE [QUESTION]", "put a file's text before the message",
     command_read, NULL},
    {"retry", "", "answer the last message again, with another seed",
     command_retry, NULL},
    {"undo", "", "take the last message and its answer out", command_undo,
     NULL},
    {"clear", "", "take all messages out, but not the system prompt",
     command_clear, NULL},
    {"save", "FILE", "write the conversation to a file, as JSON", command_save,
     NULL},
    {"load", "FILE", "go on with the conversation of a file", command_load,
     NULL},
    {"stats", "", "tokens, speed and the context's use", command_stats, NULL},
    {"quit", "", "leave; so do /bye and Ctrl-D", command_quit, NULL},
    {"bye", "", NULL, command_quit, NULL},
    {"?", "", NULL, command_help, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* Read the file of a command from c->arg. Returns false after printing a
 * message. */
static bool command_get_file(struct chat *c, const struct chat_command *row,
                             struct buf *out)
{
    bool whole = strcmp(row->args, "FILE") == 0;
    const char *why = chat_command_file(c->arg, whole, out, &c->arg);
    struct stat st;
    if (!why && !out->len)
        why = "names no file";
    if (!why && strcmp(out->data, "-") == 0)
        why = "the terminal is no file";
    c->file = out->data;
    /* reading a FIFO or a terminal would block, or take what is typed */
    if (!why && stat(c->file, &st) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISDIR(st.st_mode)) {
        msg_error("/%s: %s: is not a regular file", row->name, c->file);
        return false;
    }
    if (why)
        msg_error("/%s: %s", row->name, why);
    return !why;
}

int chat_run_command(struct chat *c, const char *text)
{
    const struct chat_command *row =
        chat_command_find(chat_commands, text, &c->arg);
    int status = 0;
    if (!row) {
        const char *near = chat_command_near(chat_commands, text);
        msg_error("%.*s: no such command%s%s%s; a blank before it sends the "
                  "text",
                  (int)strcspn(text, " \t\n"), text,
                  near ? ", did you mean /" : "", near ? near : "",
                  near ? "?" : " (/help lists them)");
        return 0;
    }
    if (*c->arg && !*row->args) {
        msg_error("/%s: takes no argument", row->name);
        return 0;
    }
    /* blanks at the end are no part of the argument */
    struct buf arg = {0}, file = {0};
    if (buf_puts(&arg, c->arg))
        return msg_oom();
    while (arg.len && strchr(" \t\n", arg.data[arg.len - 1]))
        arg.data[--arg.len] = 0;
    c->arg = arg.data;
    if (strncmp(row->args, "FILE", 4) != 0 || command_get_file(c, row, &file))
        status = row->run(c);
    buf_free(&arg);
    buf_free(&file);
    return status;
}
