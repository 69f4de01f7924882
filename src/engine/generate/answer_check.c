#include "engine/generate/answer_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "file/json.h"
#include "text/chat/call_forms.h"
#include "text/chat/tool_calls.h"
#include "text/schema/schema.h"
#include "text/schema/schema_validator.h"
#include "text/tools/tools_grammar.h"

struct answer_check {
    struct schema_validator **v; /* [n] of the schema, or of each tool's
                                    parameters; NULL: held exactly */
    size_t n;
    struct json_doc *tools; /* NULL: the answer is a document */
    const struct call_form *form;
    bool optional; /* The answer is text with calls or without, which may be
                      cut. A schema that cannot be read is not checked. */
};

/* ---- making -------------------------------------------------------------- */

static struct answer_check *check_alloc(size_t n)
{
    struct answer_check *c = calloc(1, sizeof *c);
    if (!c || !(c->v = calloc(n + 1, sizeof *c->v))) {
        free(c);
        return NULL;
    }
    c->n = n;
    return c;
}

static int check_schema(struct answer_check **out,
                        const struct qwick_constraint_options *o,
                        struct qwick_err *e)
{
    struct answer_check *c = check_alloc(1);
    if (!c)
        return err_oom(e, sizeof *c);
    if (schema_validator_create(&c->v[0], o->text, o->n_text, NULL, e)) {
        answer_check_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

/* Return the parameters of a tool if its schema may be weakened: NULL if not.
 */
static const struct json_value *lenient_parameters(const struct json_value *f,
                                                   bool lenient)
{
    return lenient || tool_is_lenient(f) ? json_member(f, "parameters") : NULL;
}

/* Make the validators of the tools whose schemas may be weakened. *any: there
 * is one. */
static int tools_validators(struct answer_check *c, bool lenient, bool *any,
                            struct qwick_err *e)
{
    const struct json_value *list = json_root(c->tools);
    size_t work = SCHEMA_MAX_WORK;
    const struct schema_options so = {.work = &work,
                                      .form = c->form->kind == CALL_PARAMETERS
                                                  ? SCHEMA_PARAMETERS
                                                  : SCHEMA_ARGUMENTS};
    for (size_t i = 0; i < c->n; i++) {
        struct qwick_err why = {0};
        const struct json_value *p =
            lenient_parameters(tool_definition(&list->items[i]), lenient);
        if (!p)
            continue;
        *any = true;
        if (schema_validator_create_value(&c->v[i], p, &so, &why) &&
            (why.code == QWICK_ERR_MEMORY || !c->optional)) {
            if (e)
                *e = why;
            return -1;
        }
    }
    return 0;
}

static int check_tools(struct answer_check **out,
                       const struct qwick_constraint_options *o,
                       const struct call_form *form, struct qwick_err *e)
{
    struct json_doc *doc;
    bool any = false;
    if (json_parse(&doc, "the tools", o->text, o->n_text, QWICK_ERR_USAGE, e))
        return -1;
    struct answer_check *c = check_alloc(json_root(doc)->len);
    if (!c) {
        json_free(doc);
        return err_oom(e, sizeof *c);
    }
    c->tools = doc;
    c->form = form;
    c->optional = o->kind == QWICK_CONSTRAINT_TOOLS_AUTO;
    int rc = tools_validators(c, o->lenient, &any, e);
    if (rc || !any)
        answer_check_free(c);
    else
        *out = c;
    return rc;
}

int answer_check_create(struct answer_check **out,
                        const struct qwick_constraint_options *o,
                        const struct call_form *form, struct qwick_err *e)
{
    *out = NULL;
    if (o->kind == QWICK_CONSTRAINT_JSON_SCHEMA)
        return o->lenient ? check_schema(out, o, e) : 0;
    if ((o->kind == QWICK_CONSTRAINT_TOOLS ||
         o->kind == QWICK_CONSTRAINT_TOOLS_AUTO) &&
        form)
        return check_tools(out, o, form, e);
    return 0;
}

void answer_check_free(struct answer_check *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        schema_validator_free(c->v[i]);
    free(c->v);
    json_free(c->tools);
    free(c);
}

/* ---- checking ------------------------------------------------------------ */

/* Check the arguments of a call. Returns as schema_validator_check does. */
static int check_call(const struct answer_check *c,
                      const struct tool_call *call, struct qwick_err *e)
{
    const struct json_value *list = json_root(c->tools);
    const struct json_value *f =
        tool_find(list, call->name, strlen(call->name));
    for (size_t i = 0; i < c->n; i++) {
        struct qwick_err why;
        if (!c->v[i] || tool_definition(&list->items[i]) != f)
            continue;
        int rc = schema_validator_check(c->v[i], buf_text(&call->arguments),
                                        call->arguments.len, &why);
        if (rc <= 0)
            err_set(e, why.code, "the arguments of %s: %s", call->name,
                    why.msg);
        return rc;
    }
    return 1;
}

static int check_calls(const struct answer_check *c, const char *text, size_t n,
                       struct qwick_err *e)
{
    struct tool_calls calls = {.tools = json_root(c->tools), .form = c->form};
    int rc = 1;
    if (tool_calls_feed(&calls, text, n) || tool_calls_end(&calls))
        rc = err_oom(e, n);
    if (rc > 0 && calls.cut && !c->optional) {
        err_usage(e, "the last call is cut");
        rc = 0;
    }
    for (size_t i = 0; i < calls.n && rc > 0; i++)
        rc = check_call(c, &calls.v[i], e);
    tool_calls_free(&calls);
    return rc;
}

int answer_check_run(const struct answer_check *c, const char *text, size_t n,
                     bool *valid, struct qwick_err *e)
{
    struct qwick_err why;
    int rc = c->tools ? check_calls(c, text, n, &why)
                      : schema_validator_check(c->v[0], text, n, &why);
    *valid = rc > 0;
    if (rc < 0 && e)
        *e = why;
    if (rc == 0) {
        err_set(e, QWICK_ERR_RUNTIME,
                "the answer does not satisfy the schema: %s", why.msg);
        if (e)
            e->kind = QWICK_KIND_SCHEMA;
    }
    return rc < 0 ? -1 : 0;
}
