/* The commands of chat. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/chat/chat_job.h"
#include "cli/io/escape.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"

void chat_say(const char *fmt, ...)
{
    struct buf b = {0};
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    if (!escape_append(&b, text, utf8_complete(text, len), ESCAPE_NAME, "\n") &&
        !buf_putc(&b, '\n'))
        fd_write(STDERR_FILENO, b.data, b.len);
    buf_free(&b);
}

/* ---- the file of an argument ---- */

/* Set *out to the file that an argument of this command names. Returns false
 * after printing a message. */
static bool get_file(const char *command, const char *arg, bool whole,
                     struct buf *out, const char **rest)
{
    const char *why = chat_command_file(arg, whole, out, rest);
    struct stat st;
    if (!why && !out->len)
        why = "names no file";
    if (!why && strcmp(out->data, "-") == 0)
        why = "the terminal is no file";
    /* reading a FIFO or a terminal would block, or take what is typed */
    if (!why && stat(out->data, &st) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISDIR(st.st_mode)) {
        msg_error("/%s: %s: is not a regular file", command, out->data);
        return false;
    }
    if (why)
        msg_error("/%s: %s", command, why);
    return !why;
}

/* ---- help and numbers ---- */

static int run_help(struct chat *c, const char *arg)
{
    (void)c;
    (void)arg;
    for (const struct chat_command *row = chat_commands; row->name; row++) {
        char name[64];
        snprintf(name, sizeof(name), "/%s %s", row->name, row->args);
        chat_say("%-24s %s", name, row->help);
    }
    chat_say(
        "A line that ends in \\ goes on in the next one. Lines between two "
        "lines of \"\"\"\nare one message. A blank before a slash sends "
        "the text. Ctrl-C stops an answer.");
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

static int run_stats(struct chat *c, const char *arg)
{
    (void)arg;
    if (c->has_last) {
        say_numbers("last answer:", &c->last);
        chat_say("speed:       %.1f tok/s after the first token",
                 rate(&c->last));
        say_numbers("this chat:  ", &c->total);
    }
    chat_say("context:     %zu of %zu tokens", chat_tokens(c), c->j.limit);
    chat_say("messages:    %zu", qwick_chat_length(c->j.chat));
    return 0;
}

/* ---- thinking and the system prompt ---- */

static const char *think_name(enum qwick_think think)
{
    return think == QWICK_THINK_ON    ? "on"
           : think == QWICK_THINK_OFF ? "off"
                                      : "auto, as the model's template does";
}

static int run_think(struct chat *c, const char *arg)
{
    static const struct {
        const char *name;
        enum qwick_think think;
    } values[] = {{"on", QWICK_THINK_ON},
                  {"off", QWICK_THINK_OFF},
                  {"auto", QWICK_THINK_AUTO}};
    const size_t n = sizeof(values) / sizeof(*values);
    size_t i = 0;
    if (*arg) {
        while (i < n && strcmp(values[i].name, arg) != 0)
            i++;
        if (i == n) {
            msg_error("/think: \"%s\": expected on, off or auto", arg);
            return 0;
        }
        c->j.think = values[i].think;
    }
    chat_say("thinking: %s", think_name(c->j.think));
    return 0;
}

static int run_nothink(struct chat *c, const char *arg)
{
    (void)arg;
    return run_think(c, "off");
}

static int run_system(struct chat *c, const char *arg)
{
    struct qwick_message m;
    struct qwick_err e;
    if (*arg) {
        if (chat_set_system(&c->j.chat, arg, strlen(arg), &e))
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

static int run_nosystem(struct chat *c, const char *arg)
{
    struct qwick_err e;
    bool had;
    (void)arg;
    if (chat_drop_system(&c->j.chat, &had, &e))
        return msg_fail(&e);
    c->unsaved = c->unsaved || had;
    chat_say(had ? "the system prompt is taken out"
                 : "there is no system prompt");
    return 0;
}

/* ---- files ---- */

static int run_save(struct chat *c, const char *arg)
{
    struct buf file = {0};
    const char *rest;
    if (get_file("save", arg, true, &file, &rest) &&
        !chat_write(c->j.chat, file.data))
        chat_say("%s: %zu messages", file.data, qwick_chat_length(c->j.chat));
    buf_free(&file);
    return 0;
}

static int run_load(struct chat *c, const char *arg)
{
    struct buf file = {0};
    struct qwick_chat *chat;
    enum qwick_think think;
    const char *rest;
    if (get_file("load", arg, true, &file, &rest) &&
        !chat_load(file.data, &chat, &think)) {
        qwick_chat_free(c->j.chat);
        c->j.chat = chat;
        c->unsaved = true;
        if (think != QWICK_THINK_AUTO)
            c->j.think = think;
        chat_say("%s: %zu messages", file.data, qwick_chat_length(chat));
    }
    buf_free(&file);
    return 0;
}

/* Put a file's text before the next message; a question behind its name sends
 * the message. */
static int run_read(struct chat *c, const char *arg)
{
    struct buf file = {0};
    struct qwick_err e;
    const char *rest;
    size_t before = c->files.len;
    int status = 0;
    if (!get_file("read", arg, false, &file, &rest)) {
        buf_free(&file);
        return 0;
    }
    const char *name = file.data;
    struct strings files = {.v = &name, .n = 1};
    const struct prompt_sources sources = {
        .files = &files, .names = c->j.a->file_names, .no_stdin = true};
    struct prompt_faults faults = {0};
    struct buf text = {0};
    int failed = prompt_compose(&text, &sources, &faults, &e);
    if (!failed)
        prompt_warn_faults(&faults, name);
    if (failed) {
        msg_fail(&e);
    } else if (!text.len) {
        msg_error("%s: is empty", name);
    } else if ((before && buf_puts(&c->files, "\n\n")) ||
               buf_append(&c->files, text.data, text.len)) {
        c->files.len = before;
        msg_oom();
    } else if (*rest) {
        status = chat_send(c, rest, strlen(rest));
    } else {
        chat_say("%s: %zu bytes go before the next message (/undo drops them)",
                 name, text.len);
    }
    buf_free(&text);
    buf_free(&file);
    return status;
}

/* ---- turns ---- */

static int run_retry(struct chat *c, const char *arg)
{
    size_t i;
    (void)arg;
    if (!chat_last_user(c, &i)) {
        msg_error("/retry: there is no message to answer");
        return 0;
    }
    if (c->model.greedy)
        msg_notice("the sampling is greedy, so the same answer comes again; "
                   "qwick chat --temp 0.7 draws others");
    return chat_again(c);
}

static int run_undo(struct chat *c, const char *arg)
{
    size_t n = qwick_chat_length(c->j.chat), i;
    (void)arg;
    if (c->files.len) {
        c->files.len = 0;
        chat_say("the texts of /read are dropped");
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

static int run_quit(struct chat *c, const char *arg)
{
    (void)arg;
    c->quit = true;
    return 0;
}

/* ---- the table ---- */

const struct chat_command chat_commands[] = {
    {"help", "", "list the commands", run_help},
    {"think", "[on|off|auto]", "let the model think first", run_think},
    {"nothink", "", "like /think off", run_nothink},
    {"system", "[TEXT]", "set the system prompt, or show it", run_system},
    {"nosystem", "", "take the system prompt out", run_nosystem},
    {"read", "FILE [QUESTION]", "put a file's text before the message",
     run_read},
    {"retry", "", "answer the last message again, with another seed",
     run_retry},
    {"undo", "", "take the last message and its answer out", run_undo},
    {"save", "FILE", "write the conversation to a file, as JSON", run_save},
    {"load", "FILE", "go on with the conversation of a file", run_load},
    {"stats", "", "tokens, speed and the context's use", run_stats},
    {"quit", "", "leave; so does Ctrl-D", run_quit},
    {NULL, NULL, NULL, NULL},
};

enum { N_COMMANDS = sizeof(chat_commands) / sizeof(*chat_commands) };

const char *const *chat_command_names(void)
{
    static const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = chat_commands[i].name;
    return names;
}

int chat_run_command(struct chat *c, const char *text)
{
    const char *arg, *near;
    const struct chat_command *row =
        chat_command_find(chat_commands, text, &arg);
    int n = (int)strcspn(text, " \t\n");
    if (!row) {
        near = chat_command_near(chat_commands, text);
        msg_error("%.*s: no such command%s%s%s; a blank before it sends the "
                  "text",
                  n, text, near ? ", did you mean /" : "", near ? near : "",
                  near ? "?" : " (/help lists them)");
        return 0;
    }
    if (*arg && !*row->args) {
        msg_error("/%s: takes no argument", row->name);
        return 0;
    }
    /* blanks at the end are no part of the argument */
    char *trimmed = strdup(arg);
    if (!trimmed)
        return msg_oom();
    for (size_t k = strlen(trimmed); k && strchr(" \t\n", trimmed[k - 1]); k--)
        trimmed[k - 1] = 0;
    int status = row->run(c, trimmed);
    free(trimmed);
    return status;
}
