#include "cli/serve/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/token_records.h"

static bool is_name(const char *const *names, const struct json_value *key)
{
    while (*names && !json_equals(key, *names))
        names++;
    return *names != NULL;
}

void *body_state(struct serve_call *c, size_t n, struct serve_error *e)
{
    struct qwick_err why;
    c->state = calloc(1, n);
    if (!c->state) {
        err_oom(&why, n);
        body_fault(e, NULL, &why);
    }
    return c->state;
}

/* Find a number that no double has: it could not be written again, neither into a
 * record nor into an answer. NULL: there is none. */
static const struct json_value *find_huge(const struct json_value *v)
{
    const struct json_value *huge = NULL;
    bool list = json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT);
    double x;
    for (size_t i = 0; list && i < v->len && !huge; i++)
        huge = find_huge(&v->items[i]);
    if (json_is(v, JSON_NUMBER) &&
        (v->len > 300 || strpbrk(v->str, "eE")) && json_double(v, &x))
        huge = v;
    return huge;
}

int body_read(struct serve_call *c, const char *const *names,
              struct json_doc **doc, struct serve_error *e)
{
    struct qwick_err why;
    size_t n;
    const char *text = http_body(c->http, &n);
    if (json_parse_within(doc, "body", text, n, c->s->requests.json_bytes,
                          QWICK_ERR_USAGE, &why)) {
        /* a program that sends no JSON is lost; it shall not go on */
        http_add_field(c->http, "Connection", "close");
        return body_fault(e, NULL, &why);
    }
    const struct json_value *v = json_root(*doc);
    if (!json_is(v, JSON_OBJECT))
        return serve_refuse(e, NULL, "body: must be an object, is %s",
                            json_type_name(v));
    const struct json_value *model = json_get(v, "model");
    serve_choose_lora(c, json_is(model, JSON_STRING) ? model->str : NULL);
    const struct json_value *huge = find_huge(v);
    if (huge)
        return serve_refuse(e, NULL, "body: the number %s is out of range",
                            ERR_SHOW(huge->str, huge->len));
    for (size_t i = 0; names && i < v->len; i++)
        if (!is_name(names, &v->keys[i]))
            request_warn_unknown(&c->s->requests, &v->keys[i],
                                 http_number(c->http));
    return 0;
}

int body_fault(struct serve_error *e, const char *param,
               const struct qwick_err *why)
{
    struct qwick_err fault = *why;
    if (fault.code == QWICK_ERR_MODEL)
        fault.code = QWICK_ERR_USAGE;
    *e = serve_error_of(&fault);
    if (param && e->status == 400)
        snprintf(e->param, sizeof(e->param), "%s", param);
    return -1;
}

int body_bool(const struct json_value *v, const char *name, bool *out,
              struct serve_error *e)
{
    const struct json_value *m = json_member(v, name);
    *out = m && m->boolean;
    return !m || json_is(m, JSON_BOOL)
               ? 0
               : serve_refuse(e, name, "%s: must be true or false, is %s", name,
                              json_type_name(m));
}

int body_int(const struct json_value *v, const char *name, int64_t min,
             int64_t max, int64_t *out, struct serve_error *e)
{
    const struct json_value *m = json_member(v, name);
    return !m || !json_int(m, min, max, out)
               ? 0
               : serve_refuse(e, name,
                              "%s: must be an integer from %lld to %lld", name,
                              (long long)min, (long long)max);
}

/* ---- inputs ---- */

static bool is_ids(const struct json_value *v)
{
    return json_is(v, JSON_ARRAY) && v->len && v->items[0].type == JSON_NUMBER;
}

int body_inputs(const struct json_value *v, const char *name,
                struct body_inputs *in, struct serve_error *e)
{
    const struct json_value *m = json_member(v, name);
    bool one = json_is(m, JSON_STRING) || is_ids(m);
    *in = (struct body_inputs){.name = name, .items = m, .n = 1};
    if (!one && !json_is(m, JSON_ARRAY))
        return serve_refuse(e, name,
                            "%s: must be a string, an array of token ids, or "
                            "an array of these, is %s",
                            name, json_type_name(m));
    if (!one) {
        in->items = m->items;
        in->n = m->len;
    }
    if (in->n == 0)
        return serve_refuse(e, name, "%s: is empty", name);
    if (in->n > BODY_MAX_INPUTS)
        return serve_refuse(e, name, "%s: %zu items, at most %d are allowed",
                            name, in->n, BODY_MAX_INPUTS);
    for (size_t i = 0; i < in->n; i++) {
        const struct json_value *item = &in->items[i];
        if (!json_is(item, JSON_STRING) && !json_is(item, JSON_ARRAY))
            return serve_refuse(e, name,
                                "%s: item %zu must be a string or an array of "
                                "token ids, is %s",
                                name, i, json_type_name(item));
        if (item->len == 0)
            return serve_refuse(e, name, "%s: item %zu is empty", name, i);
    }
    return 0;
}

int body_ids(const struct body_inputs *in, size_t i, size_t vocab_size,
             int32_t **ids, size_t *n, struct serve_error *e)
{
    const struct json_value *list = &in->items[i];
    struct qwick_err why;
    char label[64];
    snprintf(label, sizeof(label), "%s: item %zu", in->name, i);
    *n = list->len;
    return token_ids_read(list, label, (int32_t)vocab_size - 1, ids, &why)
               ? body_fault(e, in->name, &why)
               : 0;
}
