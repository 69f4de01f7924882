#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/tools.h"
#include "file/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick.h"
#include "text/chat/chat_values.h"

struct job {
    struct qwick_engine *eng;
    struct qwick_chat_options o;
    struct tool_list tools; /* of --tools */
};

static int render_line(void *ctx, const struct line *line,
                       const struct json_value *v, struct json_writer *w,
                       struct qwick_err *e)
{
    const struct job *j = ctx;
    const struct chat_values values = chat_values_of(v);
    struct qwick_chat *chat;
    char *text = NULL;
    size_t n;
    (void)line;
    if (qwick_chat_create(&chat, e))
        return -1;
    bool own = json_is(values.tools, JSON_ARRAY) && values.tools->len;
    int rc = chat_add_values(chat, &values, e) ||
             (!own && tools_add(chat, &j->tools.list, e)) ||
             qwick_chat_render(chat, j->eng, &j->o, &text, &n, e);
    qwick_chat_free(chat);
    if (rc)
        return -1;
    jw_string(w, "text", text, n);
    free(text);
    return jw_status(w) ? err_oom(e, n) : 0;
}

/* Print the prompt of one chat. name: of its file; NULL: it is an argument. */
static int render(struct job *j, const char *name, const struct buf *input,
                  bool json, struct qwick_err *e)
{
    struct buf out = {0};
    struct qwick_chat *chat;
    struct tool_list own = {0};
    const char *chat_json = buf_text(input);
    char *text = NULL;
    size_t n;
    if (qwick_chat_create(&chat, e))
        return msg_fail(e);
    int rc = qwick_chat_add_json(chat, chat_json, input->len, e) ||
             tools_of_chat(&own, chat_json, input->len, e) ||
             (!own.list.len && tools_add(chat, &j->tools.list, e)) ||
             qwick_chat_render(chat, j->eng, &j->o, &text, &n, e);
    qwick_chat_free(chat);
    tools_free(&own);
    if (rc)
        return chat_input_fail(name, e);
    if (json) {
        struct json_writer w = jw_line(&out);
        jw_string(&w, "text", text, n);
        jw_end_line(&w);
    } else {
        buf_append(&out, text, n);
    }
    free(text);
    return out_print(&out, out_write);
}

/* Options and arguments against each other: exit status 2, or -1. */
static int render_check(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    int r = common_check_text(p, "chat", TEXT_ONE);
    if (r >= 0)
        return r;
    if (p->n_args && !strchr("[{", p->args[0][strspn(p->args[0], " \t\r\n")]))
        return opt_usage(p->verb,
                         "\"%s\": is not a chat in JSON; -f reads a file",
                         p->args[0]);
    if (a->file.n > 1)
        return opt_usage(p->verb, "--file: one chat only");
    if (!a->jsonl && !p->n_args && !a->file.n && !stdin_is_source())
        return common_no_input(p->verb);
    return -1;
}

static int render_one(struct job *j, const struct opt_parsed *p,
                      struct qwick_err *e)
{
    const struct args *a = &p->a;
    struct buf chat = {0};
    bool found;
    const char *text = p->n_args ? p->args[0] : NULL;
    const char *name = text ? NULL : a->file.n ? a->file.v[0] : "-";
    int status = prompt_bytes(&chat, &a->file, text, &found, e) ? msg_fail(e)
                 : !found ? common_no_input(p->verb)
                          : render(j, name, &chat, a->json, e);
    buf_free(&chat);
    return status;
}

static int render_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    static const struct records_work w = {.answer = render_line};
    const struct args *a = &p->a;
    struct job j = {.eng = eng, .o = qwick_chat_defaults()};
    struct qwick_err e = {0};
    j.o.add_generation_prompt = !a->no_generation_prompt;
    if (a->think && strcmp(a->think, "on") == 0)
        j.o.think = QWICK_THINK_ON;
    if (a->think && strcmp(a->think, "off") == 0)
        j.o.think = QWICK_THINK_OFF;
    int status = a->tools ? tools_read(&j.tools, a->tools) : 0;
    if (!status)
        status = tools_check_template(&j.tools, eng);
    if (!status)
        status = a->jsonl ? records_run(p->verb->name, &a->input, &w, &j)
                          : render_one(&j, p, &e);
    tools_free(&j.tools);
    return status;
}

const struct verb verb_render = {
    .bit = V_RENDER,
    .name = "render",
    .group = VERBS_TOKENS,
    .args = "[JSON]",
    .summary = "a chat as JSON to the prompt text",
    .about = "Print the prompt text of a chat, byte for byte as the "
             "checkpoint's template\ngives it. The chat is the argument, the "
             "file of -f, or standard input: an array\nof messages, or an "
             "object with \"messages\" and perhaps \"tools\",\n"
             "\"add_generation_prompt\", \"enable_thinking\".",
    .examples =
        "  qwick render '[{\"role\":\"user\",\"content\":\"list files\"}]'\n"
        "  qwick render --think off --json -f chat.json\n"
        "  qwick render --template-arg effort=low -f chat.json\n",
    .opens = OPENS_TOKENIZER,
    .check = render_check,
    .run = render_run,
};
