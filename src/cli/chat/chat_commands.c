/* The commands of chat. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/answer/answer_opts.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"

/* ---- help and numbers ---- */

static int command_help(struct chat *c)
{
    (void)c;
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
    if (*c->arg)
        c->j.think = think;
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
                   "qwick chat --temp 0.7 draws others");
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
    if (!chat_last_user(c, &i)) {
        msg_error("/undo: there is no exchange");
        return 0;
    }
    (void)qwick_chat_rollback(c->j.chat, i, NULL);
    c->unsaved = true;
    chat_say("%zu messages are taken out, %zu are left", n - i, i);
    return 0;
}

static int command_quit(struct chat *c)
{
    c->quit = true;
    return 0;
}

/* ---- the table ---- */

const struct chat_command chat_commands[] = {
    {"help", "", "list the commands", command_help},
    {"think", "[on|off|auto]", "let the model think first", command_think},
    {"nothink", "", "like /think off", command_nothink},
    {"system", "[TEXT]", "set the system prompt, or show it", command_system},
    {"nosystem", "", "take the system prompt out", command_nosystem},
    {"read", "FILE [QUESTION]", "put a file's text before the message",
     command_read},
    {"retry", "", "answer the last message again, with another seed",
     command_retry},
    {"undo", "", "take the last message and its answer out", command_undo},
    {"save", "FILE", "write the conversation to a file, as JSON", command_save},
    {"load", "FILE", "go on with the conversation of a file", command_load},
    {"stats", "", "tokens, speed and the context's use", command_stats},
    {"quit", "", "leave; so does Ctrl-D", command_quit},
    {NULL, NULL, NULL, NULL},
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
