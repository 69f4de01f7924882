#include "cli/batch/openai_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/request.h"
#include "file/json.h"
#include "file/json_writer.h"

void openai_state_free(struct openai_state *s)
{
    free(s->model);
    s->model = NULL;
}

int openai_is_request(const char *text, size_t n, bool *is, struct qwick_err *e)
{
    struct json_doc *doc;
    struct qwick_err why;
    *is = false;
    if (json_parse(&doc, RECORD, text, n, QWICK_ERR_USAGE, &why))
        return why.code == QWICK_ERR_MEMORY ? err_oom(e, n) : 0;
    const struct json_value *v = json_root(doc);
    *is = json_get(v, "custom_id") && json_get(v, "body");
    json_free(doc);
    return 0;
}

/* ---- members of the body ------------------------------------------------ */

/* The context of the functions that translate members. */
struct body {
    const struct json_value *v;
    struct json_writer *w;
    struct openai_state *state;
    struct qwick_err *e;
};

struct member {
    const char *name;
    /* Write the members of the record for the value m, which is not null. */
    int (*put)(const struct body *b, const struct member *row,
               const struct json_value *m);
    const char *to; /* the record's name, if it is another one; or the only
                       value that is supported */
};

static int body_refuse(const struct body *b, const char *name, const char *why)
{
    return record_fault(b->e, "body.%s: %s", name, why);
}

static int body_same(const struct body *b, const struct member *row,
                     const struct json_value *m)
{
    jw_value(b->w, row->to ? row->to : row->name, m);
    return 0;
}

/* For members that change no answer. */
static int body_nothing(const struct body *b, const struct member *row,
                        const struct json_value *m)
{
    (void)b, (void)row, (void)m;
    return 0;
}

/* For members of which qwick supports one value only, row->to. */
static int body_only(const struct body *b, const struct member *row,
                     const struct json_value *m)
{
    char why[40];
    const char *value = json_is(m, JSON_BOOL) ? m->boolean ? "true" : "false"
                        : json_is(m, JSON_NUMBER) ? m->str
                                                  : "";
    snprintf(why, sizeof(why), "only %s is supported", row->to);
    return strcmp(value, row->to) == 0 ? 0 : body_refuse(b, row->name, why);
}

static int body_model(const struct body *b, const struct member *row,
                      const struct json_value *m)
{
    char **first = &b->state->model;
    if (!json_is(m, JSON_STRING))
        return body_refuse(b, row->name, "must be a string");
    if (!*first && !(*first = strdup(m->str)))
        return err_oom(b->e, m->len);
    return strcmp(*first, m->str) == 0
               ? 0
               : record_fault(
                     b->e,
                     "body.model: is \"%s\", but the first request has \"%s\"",
                     ERR_SHOW(m->str, m->len),
                     ERR_SHOW(*first, strlen(*first)));
}

/* The newer of two names wins only if the values are equal. */
static int body_max_tokens(const struct body *b, const struct member *row,
                           const struct json_value *m)
{
    const struct json_value *old = json_member(b->v, "max_tokens");
    bool is_old = old == m;
    const struct json_value *new = json_member(b->v, "max_completion_tokens");
    if (is_old && new)
        return json_is(old, JSON_NUMBER) && json_is(new, JSON_NUMBER) &&
                       strcmp(old->str, new->str) == 0
                   ? 0
                   : body_refuse(b, row->name,
                                 "differs from max_completion_tokens");
    jw_value(b->w, "max_tokens", m);
    return 0;
}

static int body_logprobs(const struct body *b, const struct member *row,
                         const struct json_value *m)
{
    const struct json_value *top = json_member(b->v, "top_logprobs");
    int64_t n = 0;
    if (!json_is(m, JSON_BOOL))
        return body_refuse(b, row->name, "must be true or false");
    if (top && json_int(top, 0, 20, &n))
        return body_refuse(b, "top_logprobs",
                           "must be an integer from 0 to 20");
    if (m->boolean)
        jw_int(b->w, "logprobs", n);
    return 0;
}

static int body_top(const struct body *b, const struct member *row,
                    const struct json_value *m)
{
    const struct json_value *on = json_member(b->v, "logprobs");
    (void)m;
    return json_is(on, JSON_BOOL) && on->boolean
               ? 0
               : body_refuse(b, row->name, "needs logprobs: true");
}

static int body_format(const struct body *b, const struct member *row,
                       const struct json_value *m)
{
    const struct json_value *type = json_get(m, "type");
    const struct json_value *schema =
        json_get(json_get(m, "json_schema"), "schema");
    if (json_equals(type, "text"))
        return 0;
    if (json_equals(type, "json_object")) {
        jw_object(b->w, "json_schema");
        jw_cstr(b->w, "type", "object");
        jw_end_object(b->w);
        return 0;
    }
    if (!json_equals(type, "json_schema"))
        return body_refuse(b, row->name,
                           "type must be \"text\", \"json_object\" or "
                           "\"json_schema\"");
    if (!json_is(schema, JSON_OBJECT))
        return body_refuse(b, row->name,
                           "json_schema.schema must be an object");
    jw_value(b->w, "json_schema", schema);
    return 0;
}

/* Arguments of the chat template: only whether the model thinks. */
static int body_template_args(const struct body *b, const struct member *row,
                              const struct json_value *m)
{
    if (!json_is(m, JSON_OBJECT))
        return body_refuse(b, row->name, "must be an object");
    for (size_t i = 0; i < m->len; i++)
        if (!json_equals(&m->keys[i], "enable_thinking"))
            return record_fault(b->e, "body.%s.%s: is not supported", row->name,
                                ERR_SHOW(m->keys[i].str, m->keys[i].len));
    if (json_member(m, "enable_thinking"))
        jw_value(b->w, "think", json_member(m, "enable_thinking"));
    return 0;
}

static const struct member members[] = {
    {"model", body_model, NULL},
    {"messages", body_same, NULL},
    {"max_tokens", body_max_tokens, NULL},
    {"max_completion_tokens", body_max_tokens, NULL},
    {"temperature", body_same, NULL},
    {"top_p", body_same, NULL},
    {"seed", body_same, NULL},
    {"stop", body_same, NULL},
    {"presence_penalty", body_same, NULL},
    {"frequency_penalty", body_same, NULL},
    {"logit_bias", body_same, NULL},
    {"logprobs", body_logprobs, NULL},
    {"top_logprobs", body_top, NULL},
    {"response_format", body_format, NULL},
    {"tools", body_same, NULL},
    {"tool_choice", body_same, NULL},
    {"parallel_tool_calls", body_only, "true"},
    {"n", body_only, "1"},
    {"stream", body_only, "false"},
    {"store", body_only, "false"},
    {"user", body_nothing, NULL},
    {"metadata", body_nothing, NULL},
    /* of other servers of this format */
    {"top_k", body_same, NULL},
    {"min_p", body_same, NULL},
    {"repetition_penalty", body_same, "repeat_penalty"},
    {"chat_template_kwargs", body_template_args, NULL},
};

static int body_member(const struct body *b, const struct json_value *key,
                       const struct json_value *m)
{
    const size_t n = sizeof(members) / sizeof(*members);
    size_t i = 0;
    while (i < n && !json_equals(key, members[i].name))
        i++;
    if (json_is(m, JSON_NULL))
        return 0;
    return i < n ? members[i].put(b, &members[i], m)
                 : body_refuse(b, ERR_SHOW(key->str, key->len),
                               "is not supported");
}

/* ---- requests ----------------------------------------------------------- */

/* Check the members around the body. */
static int openai_check(const struct json_value *v, struct qwick_err *e)
{
    static const char *const names[] = {"custom_id", "method", "url", "body"};
    const struct json_value *url = json_get(v, "url");
    for (size_t i = 0; i < v->len; i++) {
        size_t k = 0;
        while (k < 4 && !json_equals(&v->keys[i], names[k]))
            k++;
        if (k == 4)
            return record_fault(e, "%s: is not supported",
                                ERR_SHOW(v->keys[i].str, v->keys[i].len));
    }
    if (!json_equals(json_get(v, "method"), "POST"))
        return record_fault(e, "method: must be \"POST\"");
    if (!json_equals(url, "/v1/chat/completions"))
        return record_fault(
            e, "url: must be \"/v1/chat/completions\"%s%s",
            json_is(url, JSON_STRING) ? ", is " : "",
            json_is(url, JSON_STRING) ? ERR_SHOW(url->str, url->len) : "");
    if (!json_is(json_get(v, "body"), JSON_OBJECT))
        return record_fault(e, "body: must be an object, is %s",
                            json_type_name(json_get(v, "body")));
    return 0;
}

static int openai_translate(struct openai_state *s, const struct json_value *v,
                            struct json_writer *w, struct qwick_err *e)
{
    struct body b = {json_get(v, "body"), w, s, e};
    if (openai_check(v, e))
        return -1;
    if (!json_member(b.v, "messages"))
        return body_refuse(&b, "messages", "must be an array, is missing");
    for (size_t i = 0; i < b.v->len; i++)
        if (body_member(&b, &b.v->keys[i], &b.v->items[i]))
            return -1;
    return 0;
}

int openai_request(struct openai_state *s, const char *text, size_t n,
                   struct buf *json, struct qwick_err *e)
{
    struct json_doc *doc;
    struct json_writer w = json_writer(json);
    if (json_parse(&doc, RECORD, text, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *id = json_get(json_root(doc), "custom_id");
    int rc = -1;
    if (!json_is(json_root(doc), JSON_OBJECT) || !json_is(id, JSON_STRING)) {
        record_fault(e,
                     "is no request of OpenAI's batch format: custom_id is %s, "
                     "must be a string",
                     json_type_name(id));
    } else {
        jw_object(&w, NULL);
        jw_string(&w, "id", id->str, id->len);
        size_t len = json->len;
        rc = openai_translate(s, json_root(doc), &w, e);
        if (rc)
            json->len = len;
        w.comma = true;
        jw_end_object(&w);
    }
    json_free(doc);
    if (!jw_status(&w))
        return rc;
    json->len = 0;
    return err_oom(e, 0);
}
