#include "cli/answer/tool_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const struct {
    const char *name;
    int kind;
} names[] = {
    {"auto", CHOICE_AUTO},
    {"none", CHOICE_NONE},
    {"required", CHOICE_REQUIRED},
};

enum { N_NAMES = sizeof(names) / sizeof(*names) };

int tool_choice_parse(struct tool_choice *out, const char *text)
{
    *out = (struct tool_choice){0};
    if (!text)
        return 0;
    for (size_t i = 0; i < N_NAMES; i++)
        if (strcmp(text, names[i].name) == 0) {
            out->kind = names[i].kind;
            return 0;
        }
    out->kind = CHOICE_TOOL;
    out->name = strdup(text);
    return out->name ? 0 : -1;
}

int tool_choice_read(struct tool_choice *out, const struct json_value *v,
                     struct qwick_err *e)
{
    const struct json_value *name = json_get(json_get(v, "function"), "name");
    *out = (struct tool_choice){0};
    for (size_t i = 0; i < N_NAMES; i++)
        if (json_equals(v, names[i].name)) {
            out->kind = names[i].kind;
            return 0;
        }
    if (!json_equals(json_get(v, "type"), "function") ||
        !json_is(name, JSON_STRING) || strlen(name->str) != name->len)
        return err_usage(
            e, "tool_choice: must be \"auto\", \"none\", \"required\" or "
               "{\"type\": \"function\", \"function\": {\"name\": NAME}}");
    out->kind = CHOICE_TOOL;
    out->name = strdup(name->str);
    return out->name ? 0 : err_oom(e, name->len);
}

void tool_choice_free(struct tool_choice *c)
{
    free(c->name);
    *c = (struct tool_choice){0};
}

int tool_choice_check(const struct tool_choice *c, const char *name,
                      const struct opt_parsed *p)
{
    static const enum opt_id others[] = {
        OPT_regex,      OPT_choices, OPT_grammar, OPT_json_schema,
        OPT_ignore_eos, OPT_prefill, OPT_extract,
    };
    size_t n = sizeof(others) / sizeof(*others);
    if (c->kind == CHOICE_NONE)
        n--; /* only an answer of calls has no code block */
    for (size_t i = 0; i < n && c->kind != CHOICE_AUTO; i++)
        if (opt_given(p, others[i]))
            return opt_usage(p->verb, "%s: cannot be combined with --%s", name,
                             opt_name(others[i]));
    return -1;
}

int tool_choice_constraint(const struct tool_choice *c,
                           const struct json_value *tools, struct buf *text,
                           struct qwick_constraint_options *o,
                           struct qwick_err *e)
{
    *o = qwick_constraint_defaults();
    o->kind = QWICK_CONSTRAINT_NO_CALL;
    o->text = "";
    if (c->kind == CHOICE_NONE)
        return 0;
    if (json_dump_python(text, tools))
        return err_oom(e, text->len);
    o->kind = c->kind == CHOICE_AUTO ? QWICK_CONSTRAINT_TOOLS_AUTO
                                     : QWICK_CONSTRAINT_TOOLS;
    o->text = text->data;
    o->n_text = text->len;
    o->tool = c->name;
    return 0;
}
