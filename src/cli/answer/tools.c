#include "cli/answer/tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "text/chat/chat_values.h"
#include "text/chat/tool_calls.h"

/* Check definition i of the list. */
static int tools_check_one(const struct json_value *list, size_t i,
                           const char *before, struct qwick_err *e)
{
    const struct json_value *tool = &list->items[i];
    const struct json_value *type = json_get(tool, "type");
    const struct json_value *f = json_get(tool, "function");
    const struct json_value *own = json_get(f, "name");
    const struct json_value *parameters = json_get(f, "parameters");
    const struct json_value *strict = json_get(f, "strict");
    const struct {
        const struct json_value *v;
        bool good;
        const char *what;
    } rows[] = {
        {tool, json_is(tool, JSON_OBJECT), ": must be an object"},
        {type, !type || json_equals(type, "function"),
         ".type: must be \"function\""},
        {f, json_is(f, JSON_OBJECT), ".function: must be an object"},
        {own, json_is(own, JSON_STRING), ".function.name: must be a string"},
        {parameters, !parameters || json_is(parameters, JSON_OBJECT),
         ".function.parameters: must be an object"},
        {strict,
         !strict || json_is(strict, JSON_BOOL) || json_is(strict, JSON_NULL),
         ".function.strict: must be true or false"},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
        if (!rows[r].good)
            return err_usage(e, "%stools[%zu]%s, is %s", before, i,
                             rows[r].what, json_type_name(rows[r].v));
    if (!own->len || strlen(own->str) != own->len)
        return err_usage(
            e, "%stools[%zu].function.name: must not be empty or have NUL",
            before, i);
    if (tool_find(list, own->str, own->len) != f)
        return err_usage(e, "%stools[%zu]: there is another tool \"%s\"",
                         before, i, ERR_SHOW(own->str, own->len));
    return 0;
}

int tools_check(const struct json_value *list, const char *before,
                struct qwick_err *e)
{
    for (size_t i = 0; i < list->len; i++)
        if (tools_check_one(list, i, before, e))
            return -1;
    return 0;
}

/* Find the definitions in the file. Returns 0, or an exit status. */
static int find_list(struct tool_list *t, const char *path)
{
    const struct json_value *v = json_root(t->doc);
    if (json_get(v, "tools"))
        v = json_get(v, "tools");
    if (json_is(v, JSON_ARRAY))
        t->list = *v;
    else if (json_is(v, JSON_OBJECT))
        t->list = (struct json_value){.type = JSON_ARRAY, .len = 1, .items = v};
    if (t->list.len)
        return 0;
    return msg_refuse("%s: must be an array of tools, not empty, or one tool",
                      path);
}

int tools_read(struct tool_list *t, const char *path)
{
    struct qwick_err e;
    char *text;
    size_t n;
    *t = (struct tool_list){0};
    if (prompt_read(path, &text, &n, &e))
        return msg_fail(&e);
    int bad =
        json_parse(&t->doc, path, text ? text : "", n, QWICK_ERR_USAGE, &e);
    free(text);
    if (bad)
        return msg_fail(&e);
    int status = find_list(t, path);
    if (status)
        return status;
    struct buf before = {0};
    status = buf_printf(&before, "%s: ", path)
                 ? msg_oom()
                 : msg_result(tools_check(&t->list, before.data, &e), &e);
    buf_free(&before);
    return status;
}

int tools_of_chat(struct tool_list *t, const char *json, size_t n,
                  struct qwick_err *e)
{
    *t = (struct tool_list){0};
    if (json_parse(&t->doc, "chat", json, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *v = json_get(json_root(t->doc), "tools");
    if (json_is(v, JSON_ARRAY) && v->len)
        t->list = *v;
    t->choice = json_member(json_root(t->doc), "tool_choice");
    return 0;
}

int tools_add(struct qwick_chat *c, const struct json_value *list,
              struct qwick_err *e)
{
    static const struct json_value none = {.type = JSON_ARRAY};
    const struct chat_values v = {.messages = &none, .tools = list};
    return list->len ? chat_add_values(c, &v, e) : 0;
}

/* Render a question, with the tools or without them. */
static int tools_render(const struct tool_list *t,
                        const struct qwick_engine *eng, char **text,
                        struct qwick_err *e)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *c;
    size_t n;
    *text = NULL;
    if (qwick_chat_create(&c, e))
        return -1;
    int rc = qwick_chat_add(c, "user", "?", 1, e) ||
             (t && tools_add(c, &t->list, e)) ||
             qwick_chat_render(c, eng, &o, text, &n, e);
    qwick_chat_free(c);
    return rc;
}

int tools_check_template(const struct tool_list *t,
                         const struct qwick_engine *eng)
{
    struct qwick_err e;
    char *with = NULL, *without = NULL;
    int status = 0;
    if (!t->list.len)
        return 0;
    if (tools_render(t, eng, &with, &e) ||
        tools_render(NULL, eng, &without, &e))
        status = msg_fail(&e);
    else if (strcmp(with, without) == 0)
        status = msg_refuse("--tools: the chat template of %s prints no tools",
                            qwick_engine_info(eng)->model);
    else if (!qwick_engine_info(eng)->call_form)
        status = msg_refuse(
            "--tools: the chat template of %s shows no calls of tools in a "
            "form that qwick knows; leave out --tools, or name a template with "
            "--chat-template",
            qwick_engine_info(eng)->model);
    free(with);
    free(without);
    return status;
}

void tools_free(struct tool_list *t)
{
    json_free(t->doc);
    *t = (struct tool_list){0};
}
