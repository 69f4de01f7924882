#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/chat_input.h"
#include "cli/common.h"
#include "cli/jsonl.h"
#include "cli/opt.h"
#include "cli/out.h"
#include "cli/prompt.h"
#include "cli/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    const char *think;
    bool no_generation_prompt;
};

#define ARG(field) offsetof(struct args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    {.name = "think",
     .type = OPT_CHOICE,
     .choices = "on|off|auto",
     .def = "auto",
     .help = "enable_thinking, where the chat does not say; auto: the template "
             "is not told",
     .offset = ARG(think)},
    {.name = "no-generation-prompt",
     .type = OPT_FLAG,
     .help = "do not begin the assistant's turn, where the chat does not say",
     .offset = ARG(no_generation_prompt)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print {\"text\"}",
     .offset = COMMON(json)},
    {.name = "jsonl",
     .type = OPT_FLAG,
     .help = "a chat a line in, lines of {\"text\"} out",
     .offset = COMMON(jsonl)},
    OPT_ROWS_MODEL,
    OPT_ROWS_BASIC,
};

struct job {
    struct qwick_engine *eng;
    struct qwick_chat_options o;
};

static int put_json(struct buf *out, const char *text, size_t n)
{
    int bad = buf_puts(out, "{\"text\":");
    bad |= buf_json_string(out, text, n);
    return buf_putc(out, '}') || bad ? -1 : 0;
}

static int render_line(void *ctx, const struct jsonl_line *line,
                       struct buf *out, struct qwick_err *e)
{
    const struct job *j = ctx;
    char *text;
    size_t n;
    int r;
    if (qwick_render(j->eng, line->text, line->n, &j->o, &text, &n, e))
        return -1;
    r = put_json(out, text, n);
    free(text);
    return r ? err_oom(e, n) : 0;
}

/* One chat from a file or standard input; what is printed is the prompt. */
static int render(struct job *j, const char *path, bool json,
                  struct qwick_err *e)
{
    struct buf out = {0};
    char *chat, *text;
    size_t n_chat, n;
    int status = 0;
    if (prompt_read(path, &chat, &n_chat, e))
        return msg_fail(e);
    int r = qwick_render(j->eng, chat, n_chat, &j->o, &text, &n, e);
    free(chat);
    if (r)
        return chat_input_fail(path, e);
    if (!json)
        status = out_write(text, n) ? 1 : 0;
    else if (put_json(&out, text, n) || buf_putc(&out, '\n'))
        status = msg_oom();
    else
        status = out_write(out.data, out.len) ? 1 : 0;
    buf_free(&out);
    free(text);
    return status;
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct args a = {0};
    struct opt_parsed p;
    struct qwick_err e = {0};
    struct job j = {0};
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0 && p.n_args > 1)
        status = opt_usage(v, "\"%s\": one file only", p.args[1]);
    const char *path = p.n_args ? p.args[0] : "-";
    struct opt_texts files = {&path, 1};
    if (status < 0 && strcmp(path, "-") == 0 && !stdin_is_source())
        status =
            opt_usage(v, "no input; usage: qwick render [OPTIONS] %s", v->args);
    if (status < 0) {
        j.o.add_generation_prompt = !a.no_generation_prompt;
        if (a.think && strcmp(a.think, "on") == 0)
            j.o.think = QWICK_THINK_ON;
        if (a.think && strcmp(a.think, "off") == 0)
            j.o.think = QWICK_THINK_OFF;
        status = common_open(&j.eng, &a.c, true);
        if (status == 0)
            status = a.c.jsonl ? jsonl_run(v, &files, render_line, &j)
                               : render(&j, path, a.c.json, &e);
    }
    qwick_engine_close(j.eng);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_render = {
    .name = "render",
    .args = "[FILE]",
    .summary = "a chat as JSON to the prompt text",
    .about = "Print the prompt text of a chat, byte for byte as the "
             "checkpoint's template\ngives it. FILE or standard input holds "
             "an array of messages, or an object with\n\"messages\" and "
             "perhaps \"tools\", \"add_generation_prompt\", "
             "\"enable_thinking\".",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(*opts),
    .run = run,
};
