#include "cli/input/openai_request.h"

#include "cli/answer/request.h"
#include "file/json.h"
#include "file/json_writer.h"

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

int openai_request(struct body_reader *x, const char *text, size_t n,
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
        const struct json_value *body = json_get(json_root(doc), "body");
        rc = openai_check(json_root(doc), e);
        body_begin(x, body, &w, e);
        if (!rc)
            rc = openai_read_body(x);
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
