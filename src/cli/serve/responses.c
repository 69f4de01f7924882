/* The form of /v1/responses: a response, or a stream of named events.
 *
 * An answer is read once, in pieces or as a whole, and becomes items. Their
 * events go out only in a stream; the items are the same without one. */
#include "cli/serve/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/key.h"
#include "cli/answer/answer_opts.h"
#include "cli/serve/chat_state.h"

/* An item that has one part with a text. */
struct response_part {
    const char *item, *prefix; /* type of the item, beginning of its id */
    const char *type;          /* of the part */
    const char *index;         /* member of events that numbers parts */
    const char *added, *done;  /* events of the part */
    const char *delta, *whole; /* events of its text */
};

static const struct response_part message = {
    .item = "message",
    .prefix = "msg",
    .type = "output_text",
    .index = "content_index",
    .added = "response.content_part.added",
    .done = "response.content_part.done",
    .delta = "response.output_text.delta",
    .whole = "response.output_text.done",
};

static const struct response_part reasoning = {
    .item = "reasoning",
    .prefix = "rs",
    .type = "reasoning_text",
    .index = "content_index",
    .added = "response.content_part.added",
    .done = "response.content_part.done",
    .delta = "response.reasoning_text.delta",
    .whole = "response.reasoning_text.done",
};

static const struct response_part summary = {
    .item = "reasoning",
    .prefix = "rs",
    .type = "summary_text",
    .index = "summary_index",
    .added = "response.reasoning_summary_part.added",
    .done = "response.reasoning_summary_part.done",
    .delta = "response.reasoning_summary_text.delta",
    .whole = "response.reasoning_summary_text.done",
};

static struct responses *own_of(const struct chat_state *s)
{
    return s->own;
}

static int responses_read(struct chat_state *s, struct body_reader *x)
{
    struct responses *o = s->own = calloc(1, sizeof(*o));
    return o ? responses_read_body(o, x) : err_oom(x->e, sizeof(*o));
}

static void responses_end(struct chat_state *s)
{
    responses_free(s->own);
}

/* ---- events ---- */

struct event {
    const char *name;
    struct buf json;
    struct json_writer w;
};

static void event_begin(struct chat_state *s, struct event *ev,
                        const char *name)
{
    *ev = (struct event){.name = name};
    ev->w = json_writer(&ev->json);
    jw_object(&ev->w, NULL);
    jw_cstr(&ev->w, "type", name);
    jw_uint(&ev->w, "sequence_number", own_of(s)->n_events++);
}

/* Send an event, if there is a stream. Returns 0, or -1 when out of memory. */
static int event_send(struct chat_state *s, struct event *ev)
{
    jw_end_object(&ev->w);
    int rc = jw_status(&ev->w);
    if (!rc && s->all.c->stream)
        serve_event(s->all.c, ev->name, ev->json.data, ev->json.len);
    buf_free(&ev->json);
    return rc;
}

/* ---- items ---- */

enum { ITEM_ID = 32 };

/* The id of the open item, or of the next one. */
static const char *item_id(const struct chat_state *s, const char *prefix,
                           char out[ITEM_ID])
{
    struct key k = key_start("item");
    key_add_text(&k, s->id, strlen(s->id));
    key_add_u64(&k, own_of(s)->n_items);
    snprintf(out, ITEM_ID, "%s_%016llx", prefix,
             (unsigned long long)key_u64(&k));
    return out;
}

static void put_id(struct json_writer *w, const struct chat_state *s,
                   const char *key, const char *prefix)
{
    char id[ITEM_ID];
    jw_cstr(w, key, item_id(s, prefix, id));
}

static void put_logprobs(struct json_writer *w, const struct buf *items)
{
    jw_array(w, "logprobs");
    jw_raw(w, NULL, items->data, items->len);
    jw_end_array(w);
}

/* Write the part of the open item with its first n bytes of text. */
static void put_part(struct json_writer *w, const char *key,
                     const struct responses *o, const char *text, size_t n)
{
    static const struct buf none = {0};
    jw_object(w, key);
    jw_cstr(w, "type", o->open->type);
    jw_string(w, "text", n ? text : "", n);
    if (o->open == &message) {
        jw_array(w, "annotations");
        jw_end_array(w);
        put_logprobs(w, n ? &o->logprobs : &none);
    }
    jw_end_object(w);
}

/* Write the open item. text NULL: without its part. */
static void put_item(struct json_writer *w, const char *key,
                     const struct chat_state *s, const char *status,
                     const char *text, size_t n)
{
    static const char *const lists[] = {"summary", "content"};
    const struct responses *o = own_of(s);
    jw_object(w, key);
    put_id(w, s, "id", o->open->prefix);
    jw_cstr(w, "type", o->open->item);
    jw_cstr(w, "status", status);
    for (size_t i = o->open == &message; i < 2; i++) {
        jw_array(w, lists[i]);
        if (text && (i == 0) == (o->open == &summary))
            put_part(w, NULL, o, text, n);
        jw_end_array(w);
    }
    if (o->open == &message)
        jw_cstr(w, "role", "assistant");
    else
        jw_null(w, "encrypted_content");
    jw_end_object(w);
}

/* The text of the open item begins here. */
static const char *open_text(const struct chat_sample *x, size_t *n)
{
    const struct responses *o = own_of(chat_of(x));
    const struct buf *b = o->open == &message ? &x->calls.text : &x->thinking;
    size_t end = o->open == &message ? x->sent_text : x->sent_thinking;
    *n = end - o->from;
    return buf_text(b) + o->from;
}

/* Begin an event about the open item or its part. */
static void event_of_item(struct chat_state *s, struct event *ev,
                          const char *name, const char *prefix)
{
    event_begin(s, ev, name);
    put_id(&ev->w, s, "item_id", prefix);
    jw_uint(&ev->w, "output_index", own_of(s)->n_items);
}

static void event_of_part(struct chat_state *s, struct event *ev,
                          const char *name)
{
    const struct response_part *open = own_of(s)->open;
    event_of_item(s, ev, name, open->prefix);
    jw_uint(&ev->w, open->index, 0);
}

static int send_item(struct chat_state *s, const char *name, const char *status,
                     const char *text, size_t n)
{
    struct event ev;
    event_begin(s, &ev, name);
    jw_uint(&ev.w, "output_index", own_of(s)->n_items);
    put_item(&ev.w, "item", s, status, text, n);
    return event_send(s, &ev);
}

/* End an item that was written to the output, which had `before` bytes. If
 * memory ran out, take the item back, because the response of an error has the
 * output as well. */
static int item_end(struct responses *o, const struct json_writer *w,
                    size_t before)
{
    if (jw_status(w)) {
        o->output.len = before;
        return -1;
    }
    o->n_items++;
    return 0;
}

static int item_open(struct chat_sample *x, const struct response_part *part)
{
    struct chat_state *s = chat_of(x);
    struct responses *o = own_of(s);
    struct event ev;
    o->open = part;
    o->from = part == &message ? x->sent_text : x->sent_thinking;
    o->logprobs.len = 0;
    if (send_item(s, "response.output_item.added", "in_progress", NULL, 0))
        return -1;
    event_of_part(s, &ev, part->added);
    put_part(&ev.w, "part", o, NULL, 0);
    return event_send(s, &ev);
}

/* Send the ends of the open item, and append it to the output. */
static int item_close(struct chat_sample *x, const char *status)
{
    struct chat_state *s = chat_of(x);
    struct responses *o = own_of(s);
    struct json_writer w = json_writer(&o->output);
    struct event ev;
    size_t n, before = o->output.len;
    if (!o->open)
        return 0;
    const char *text = open_text(x, &n);
    event_of_part(s, &ev, o->open->whole);
    jw_string(&ev.w, "text", text, n);
    if (o->open == &message)
        put_logprobs(&ev.w, &o->logprobs);
    if (event_send(s, &ev))
        return -1;
    event_of_part(s, &ev, o->open->done);
    put_part(&ev.w, "part", o, text, n);
    if (event_send(s, &ev) ||
        send_item(s, "response.output_item.done", status, text, n))
        return -1;
    put_item(&w, NULL, s, status, text, n);
    o->open = NULL;
    return item_end(o, &w, before);
}

/* ---- texts ---- */

/* Move log-probabilities from the sample to the open text. */
static int take_logprobs(struct chat_sample *x)
{
    struct responses *o = own_of(chat_of(x));
    struct json_writer w = json_writer(&o->logprobs);
    jw_raw(&w, NULL, x->logprobs.data, x->logprobs.len);
    x->logprobs.len = 0;
    return jw_status(&w);
}

/* Send the bytes of the text from *sent to `end`. */
static int send_text(struct chat_sample *x, const struct response_part *part,
                     const struct buf *text, size_t *sent, size_t end)
{
    struct chat_state *s = chat_of(x);
    struct responses *o = own_of(s);
    struct event ev;
    if (*sent == end)
        return 0;
    if (o->open != part && item_close(x, "completed"))
        return -1;
    /* the newline that replaces a call */
    if (!o->open && *sent && text->data[*sent] == '\n')
        ++*sent;
    if (!o->open && item_open(x, part))
        return -1;
    event_of_part(s, &ev, part->delta);
    jw_string(&ev.w, "delta", text->data + *sent, end - *sent);
    *sent = end;
    if (part == &message)
        put_logprobs(&ev.w, &x->logprobs);
    return event_send(s, &ev) || (part == &message && take_logprobs(x)) ? -1
                                                                        : 0;
}

static int send_thinking(struct chat_sample *x)
{
    const struct response_part *part =
        own_of(chat_of(x))->summary ? &summary : &reasoning;
    return send_text(x, part, &x->thinking, &x->sent_thinking, x->thinking.len);
}

static int send_message(struct chat_sample *x, size_t end)
{
    return send_text(x, &message, &x->calls.text, &x->sent_text, end);
}

/* ---- calls ---- */

/* Write the names of a function as the request has them. */
static void put_names(struct json_writer *w, const struct responses *o,
                      const char *name)
{
    const struct response_tool *t = NULL;
    for (size_t i = 0; i < o->n_tools && !t; i++)
        if (strcmp(o->tools[i].flat, name) == 0)
            t = &o->tools[i];
    jw_cstr(w, "name", t ? t->name : name);
    if (t)
        jw_cstr(w, "namespace", t->space);
}

/* Write call i with the first n bytes of its arguments. */
static void put_call(struct json_writer *w, const char *key,
                     const struct chat_sample *x, size_t i, const char *status,
                     size_t n)
{
    const struct chat_state *s = chat_of(x);
    bool whole;
    const struct tool_call *call = tool_calls_at(&x->calls, i, &whole);
    char id[TOOL_CALL_ID];
    jw_object(w, key);
    put_id(w, s, "id", "fc");
    jw_cstr(w, "type", "function_call");
    jw_cstr(w, "status", status);
    jw_cstr(w, "call_id", tool_calls_id(&x->calls, i, id));
    put_names(w, own_of(s), call->name);
    jw_string(w, "arguments", buf_text(&call->arguments), n);
    jw_end_object(w);
}

static int send_call_item(struct chat_sample *x, const char *name, size_t i,
                          const char *status, size_t n)
{
    struct chat_state *s = chat_of(x);
    struct event ev;
    event_begin(s, &ev, name);
    jw_uint(&ev.w, "output_index", own_of(s)->n_items);
    put_call(&ev.w, "item", x, i, status, n);
    return event_send(s, &ev);
}

/* Send the end of call i, and append it to the output. */
static int call_close(struct chat_sample *x, size_t i, const char *status)
{
    struct chat_state *s = chat_of(x);
    struct responses *o = own_of(s);
    struct event ev;
    bool whole;
    const struct tool_call *call = tool_calls_at(&x->calls, i, &whole);
    size_t n = call->arguments.len, before = o->output.len;
    event_of_item(s, &ev, "response.function_call_arguments.done", "fc");
    put_names(&ev.w, o, call->name);
    jw_buf(&ev.w, "arguments", &call->arguments);
    if (event_send(s, &ev) ||
        send_call_item(x, "response.output_item.done", i, status, n))
        return -1;
    struct json_writer w = json_writer(&o->output);
    put_call(&w, NULL, x, i, status, n);
    return item_end(o, &w, before);
}

/* Send a piece of a call. */
static int send_call(struct chat_sample *x, const struct chat_call_piece *p)
{
    struct chat_state *s = chat_of(x);
    struct event ev;
    if (p->begins && (item_close(x, "completed") ||
                      send_call_item(x, "response.output_item.added", p->i,
                                     "in_progress", 0)))
        return -1;
    if (p->n) {
        event_of_item(s, &ev, "response.function_call_arguments.delta", "fc");
        jw_string(&ev.w, "delta", p->arguments, p->n);
        if (event_send(s, &ev))
            return -1;
    }
    return p->ends ? call_close(x, p->i, "completed") : 0;
}

/* ---- the sample ---- */

/* Whether the answer was cut. */
static bool is_cut(const struct chat_sample *x)
{
    return answer_is_cut(x->sample.r.finish) || x->calls.cut;
}

static int send_items(struct chat_sample *x)
{
    const struct tool_call *call;
    struct chat_call_piece p = {.ends = true};
    if (send_thinking(x))
        return -1;
    while (p.ends &&
           (call = tool_calls_at(&x->calls, x->sent_calls, &p.ends))) {
        if (send_message(x, call->at))
            return -1;
        if (!chat_next_call(x, &p))
            return 0;
        if (send_call(x, &p))
            return -1;
    }
    return send_message(x, x->calls.text.len);
}

/* End the last item. An answer that was not cut has a message or a call. */
static int end_items(struct chat_sample *x)
{
    bool cut = is_cut(x);
    if (x->call_open)
        return call_close(x, x->sent_calls, "incomplete");
    if (!cut && !x->calls.n && !x->sent_text &&
        (item_close(x, "completed") || item_open(x, &message)))
        return -1;
    return item_close(x, cut ? "incomplete" : "completed");
}

/* ---- the response ---- */

static void put_usage(struct json_writer *w, const struct openai_usage *u)
{
    jw_object(w, "usage");
    jw_uint(w, "input_tokens", u->n_prompt);
    jw_object(w, "input_tokens_details");
    jw_uint(w, "cached_tokens", u->n_cached);
    /* what is evaluated goes into the cache */
    jw_uint(w, "cache_write_tokens", u->n_prompt - u->n_cached);
    jw_end_object(w);
    jw_uint(w, "output_tokens", u->n_tokens);
    jw_object(w, "output_tokens_details");
    jw_uint(w, "reasoning_tokens", u->n_thinking);
    jw_end_object(w);
    jw_uint(w, "total_tokens", u->n_prompt + u->n_tokens);
    jw_end_object(w);
}

/* Write the members that say how an answer ended. */
static void put_end(struct json_writer *w, const struct chat_state *s,
                    const char *status, const struct serve_error *why)
{
    bool completed = strcmp(status, "completed") == 0;
    jw_cstr(w, "status", status);
    if (completed)
        jw_int(w, "completed_at", (int64_t)time(NULL));
    else
        jw_null(w, "completed_at");
    if (why) {
        jw_object(w, "error");
        jw_cstr(w, "code", "server_error");
        jw_cstr(w, "message", why->e.msg);
        jw_end_object(w);
    } else {
        jw_null(w, "error");
    }
    if (strcmp(status, "incomplete") == 0) {
        jw_object(w, "incomplete_details");
        jw_cstr(w, "reason", "max_output_tokens");
        jw_end_object(w);
    } else {
        jw_null(w, "incomplete_details");
    }
    jw_array(w, "output");
    jw_raw(w, NULL, own_of(s)->output.data, own_of(s)->output.len);
    jw_end_array(w);
}

/* Write the response. why: its error; NULL: it did not fail. usage NULL: it has
 * not ended. */
static void put_response(struct json_writer *w, const char *key,
                         const struct chat_state *s, const char *status,
                         const struct serve_error *why,
                         const struct openai_usage *usage)
{
    static const char *const nulls[] = {
        "max_tool_calls", "previous_response_id", "prompt_cache_key",
        "safety_identifier", "user"};
    jw_object(w, key);
    jw_cstr(w, "id", s->head.id);
    jw_cstr(w, "object", "response");
    jw_int(w, "created_at", s->head.created);
    jw_cstr(w, "model", s->head.model);
    put_end(w, s, status, why);
    jw_raw(w, NULL, own_of(s)->echo.data, own_of(s)->echo.len);
    jw_double(w, "temperature", (double)s->r.sampling.temperature);
    jw_double(w, "top_p", (double)s->r.sampling.top_p);
    jw_bool(w, "background", false);
    jw_bool(w, "store", false);
    jw_cstr(w, "service_tier", "default");
    jw_cstr(w, "truncation", "disabled");
    for (size_t i = 0; i < sizeof(nulls) / sizeof(*nulls); i++)
        jw_null(w, nulls[i]);
    if (usage)
        put_usage(w, usage);
    else
        jw_null(w, "usage");
    jw_end_object(w);
}

static int send_response(struct chat_state *s, const char *name,
                         const char *status, const struct serve_error *why,
                         const struct openai_usage *usage)
{
    struct event ev;
    event_begin(s, &ev, name);
    put_response(&ev.w, "response", s, status, why, usage);
    return event_send(s, &ev);
}

/* ---- the form ---- */

static void responses_send_begin(struct chat_sample *x)
{
    struct chat_state *s = chat_of(x);
    if (x->began)
        return;
    x->began = true;
    if (send_response(s, "response.created", "in_progress", NULL, NULL) ||
        send_response(s, "response.in_progress", "in_progress", NULL, NULL))
        x->sample.oom = true;
}

static void responses_send(struct chat_sample *x, bool all)
{
    (void)all;
    responses_send_begin(x);
    if (send_items(x))
        x->sample.oom = true;
}

static void responses_send_end(struct chat_sample *x)
{
    if (end_items(x))
        x->sample.oom = true;
}

static int responses_send_last(struct chat_state *s,
                               const struct openai_usage *usage)
{
    return is_cut(chat_at(s, 0)) ? send_response(s, "response.incomplete",
                                                 "incomplete", NULL, usage)
                                 : send_response(s, "response.completed",
                                                 "completed", NULL, usage);
}

static void responses_write(struct chat_state *s, const struct json_answer *a,
                            const struct openai_usage *usage,
                            struct json_writer *w)
{
    struct chat_sample *x = chat_at(s, 0);
    (void)a;
    if (send_items(x) || end_items(x))
        w->failed = true;
    put_response(w, NULL, s, is_cut(x) ? "incomplete" : "completed", NULL,
                 usage);
}

const struct chat_form chat_form_responses = {
    .id_prefix = "resp_",
    .member_name = responses_member_name,
    .read = responses_read,
    .send_begin = responses_send_begin,
    .send = responses_send,
    .send_end = responses_send_end,
    .send_last = responses_send_last,
    .write = responses_write,
    .free = responses_end,
};

/* Some clients read the event "error", others response.failed. Of the event
 * "error", some read its own members, others the members of its "error". */
static void responses_send_error(struct serve_call *c,
                                 const struct serve_error *e)
{
    struct chat_state *s = c->state;
    struct event ev;
    event_begin(s, &ev, "error");
    jw_cstr(&ev.w, "code", e->code);
    jw_cstr(&ev.w, "message", e->e.msg);
    jw_cstr(&ev.w, "param", e->param[0] ? e->param : NULL);
    jw_object(&ev.w, "error");
    jw_cstr(&ev.w, "type", serve_error_type(e->status));
    jw_cstr(&ev.w, "code", e->code);
    jw_cstr(&ev.w, "message", e->e.msg);
    jw_cstr(&ev.w, "param", e->param[0] ? e->param : NULL);
    jw_end_object(&ev.w);
    if (event_send(s, &ev) ||
        send_response(s, "response.failed", "failed", e, NULL))
        c->broken = true;
}

const struct protocol protocol_responses = {
    .put_error = serve_openai_error,
    .send_error = responses_send_error,
};
