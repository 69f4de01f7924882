/* Answers in OpenAI's batch format. */
#include <stdio.h>
#include <string.h>

#include "cli/answer/openai_chat.h"
#include "cli/batch/batch_form.h"

/* The beginning of "id", which holds what a later run must know: the number of
 * the record's line, and its key. */
static const char id_head[] = "batch_req_";

static void openai_begin(struct json_writer *w, const struct batch_line *l)
{
    char id[64];
    int n = snprintf(id, sizeof(id), "%s%llu_%s", id_head,
                     (unsigned long long)l->line, l->key);
    jw_object(w, NULL);
    jw_string(w, "id", id, (size_t)n);
    if (l->id->len)
        jw_raw(w, "custom_id", l->id->data, l->id->len);
    else
        jw_null(w, "custom_id");
}

/* "created" is 0, and the usage has no details, so that equal runs write equal
 * bytes. */
static void openai_body(struct json_writer *w, const struct batch_line *l,
                        const struct json_answer *a)
{
    char id[64];
    snprintf(id, sizeof(id), "chatcmpl-%s-%llu", l->key + 9,
             (unsigned long long)l->line);
    const struct openai_head h = {.id = id, .model = a->info->model};
    const struct openai_usage usage = {.n_prompt = a->r->n_prompt,
                                       .n_tokens = a->r->n_tokens};
    openai_completion(w, "body", &h, a, 1, &usage);
}

static void openai_answer(struct json_writer *w, const struct batch_line *l,
                          const struct batch_answer *a)
{
    char id[64];
    int n = snprintf(id, sizeof(id), "req_%s_%llu", l->key + 9,
                     (unsigned long long)l->line);
    openai_begin(w, l);
    jw_object(w, "response");
    jw_int(w, "status_code", 200);
    jw_string(w, "request_id", id, (size_t)n);
    openai_body(w, l, &a->a);
    jw_end_object(w);
    jw_null(w, "error");
    if (a->incomplete)
        jw_bool(w, "incomplete", true);
    jw_end_object(w);
}

static const char *openai_error_code(const struct qwick_err *why)
{
    if (why->kind == QWICK_KIND_SCHEMA)
        return "schema_invalid";
    switch (why->code) {
    case QWICK_ERR_USAGE:
        return "invalid_request";
    case QWICK_ERR_CONTEXT:
        return "context_length_exceeded";
    default:
        return "server_error";
    }
}

static void openai_error(struct json_writer *w, const struct batch_line *l,
                         const struct qwick_err *why)
{
    openai_begin(w, l);
    jw_null(w, "response");
    jw_object(w, "error");
    jw_cstr(w, "code", openai_error_code(why));
    jw_cstr(w, "message", why->msg);
    jw_end_object(w);
    jw_end_object(w);
}

/* ---- reading ------------------------------------------------------------ */

/* Read the number of the line and the key from "id". */
static bool openai_read_id(const char *id, struct batch_read *r)
{
    size_t skip = sizeof(id_head) - 1;
    if (strncmp(id, id_head, skip) != 0)
        return false;
    for (id += skip; *id >= '0' && *id <= '9'; id++) {
        r->line = r->line * 10 + (*id - '0');
        if (r->line > (int64_t)1 << 53)
            return false;
    }
    r->key = id + 1;
    return r->line > 0 && *id == '_' && strlen(r->key) == BATCH_KEY_LEN;
}

static bool openai_read(const struct json_value *v, struct batch_read *r)
{
    const struct json_value *id = json_get(v, "id");
    const struct json_value *choices =
        json_get(json_get(json_get(v, "response"), "body"), "choices");
    const struct json_value *choice =
        json_is(choices, JSON_ARRAY) && choices->len ? choices->items : NULL;
    const struct json_value *message = json_get(choice, "message");
    const struct json_value *why = json_get(choice, "finish_reason");
    *r = (struct batch_read){
        .id = json_get(v, "custom_id"),
        .error = json_is(json_get(v, "error"), JSON_OBJECT),
        .incomplete = json_get(v, "incomplete"),
        .finish = json_equals(why, "tool_calls") ? "stop"
                  : json_is(why, JSON_STRING)    ? why->str
                                                 : NULL,
        .text = json_get(message, "content"),
        .calls = json_get(message, "tool_calls"),
    };
    return json_is(id, JSON_STRING) && openai_read_id(id->str, r) &&
           (r->error || r->finish);
}

const struct output_form form_openai = {
    .name = "OpenAI's batch format",
    .head = "{\"id\":\"batch_req_",
    .max_samples = 1,
    .answer = openai_answer,
    .error = openai_error,
    .token = openai_logprobs,
    .read = openai_read,
};
