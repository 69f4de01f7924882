/* The form of /v1/messages: Anthropic's messages, and streams of their events.
 * An answer is a list of blocks: thinking, text and calls of tools. */
#include <string.h>

#include "cli/serve/chat_state.h"
#include "cli/serve/endpoints.h"
#include "cli/serve/messages.h"

/* ---- errors ---- */

/* Anthropic's words for statuses. */
static const struct {
    int status;
    const char *type;
} error_types[] = {
    {401, "authentication_error"}, {403, "permission_error"},
    {404, "not_found_error"},      {413, "request_too_large"},
    {429, "rate_limit_error"},     {503, "overloaded_error"},
    {504, "timeout_error"},
};

static const char *messages_error_type(int status)
{
    for (size_t i = 0; i < sizeof(error_types) / sizeof(*error_types); i++)
        if (error_types[i].status == status)
            return error_types[i].type;
    return status >= 500 ? "api_error" : "invalid_request_error";
}

/* Agents look for the words with which a prompt that is too long is refused,
 * and then shorten their conversation. */
static void messages_put_error(struct buf *out, const struct serve_error *e)
{
    bool too_long = e->e.code == QWICK_ERR_CONTEXT;
    struct json_writer w = json_writer(out);
    struct buf text = {0};
    buf_puts(&text, too_long ? "prompt is too long: " : "");
    buf_puts(&text, too_long ? err_without_name(&e->e, "prompt") : e->e.msg);
    jw_object(&w, NULL);
    jw_cstr(&w, "type", "error");
    jw_object(&w, "error");
    jw_cstr(&w, "type", messages_error_type(e->status));
    jw_buf(&w, "message", &text);
    if (e->param[0])
        jw_cstr(&w, "param", e->param);
    jw_end_object(&w);
    jw_end_object(&w);
    buf_free_part(&text, out);
}

const struct protocol protocol_messages = {.put_error = messages_put_error,
                                           .error_event = "error"};

/* ---- parts of an answer ---- */

enum message_block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL };

/* How much of an answer has been written. */
struct message_place {
    size_t thinking, text, calls;
};

/* A piece of thinking or text, or a call. */
struct message_piece {
    enum message_block kind;
    const char *s; /* [n] */
    size_t n;
    size_t call;
};

/* Take the next piece of the answer so far: thinking, text, or a whole call.
 * Returns false if there is none. */
static bool next_piece(const struct chat_sample *x, struct message_place *at,
                       struct message_piece *out)
{
    const struct tool_calls *c = &x->calls;
    size_t end = at->calls < c->n ? c->v[at->calls].at : c->text.len;
    if (x->thinking.len > at->thinking) {
        *out = (struct message_piece){BLOCK_THINKING,
                                      x->thinking.data + at->thinking,
                                      x->thinking.len - at->thinking, 0};
        at->thinking = x->thinking.len;
        return true;
    }
    /* the newline before text behind a call only joins it to other text */
    if (at->calls && at->text && at->text < end &&
        at->text == c->v[at->calls - 1].at &&
        c->text.data[at->text] == '\n')
        at->text++;
    if (at->text < end) {
        *out = (struct message_piece){BLOCK_TEXT, c->text.data + at->text,
                                      end - at->text, 0};
        at->text = end;
        return true;
    }
    if (at->calls >= c->n)
        return false;
    *out = (struct message_piece){BLOCK_CALL, NULL, 0, at->calls++};
    return true;
}

/* Write a block: whole, or as it begins in a stream. */
static void put_block(struct json_writer *w, const char *key,
                      const struct chat_sample *x,
                      const struct message_piece *p, bool whole)
{
    const struct tool_calls *c = &x->calls;
    const char *s = whole ? p->s : "";
    size_t n = whole ? p->n : 0;
    bool ends;
    jw_object(w, key);
    if (p->kind == BLOCK_THINKING) {
        jw_cstr(w, "type", "thinking");
        jw_string(w, "thinking", s, n);
        jw_cstr(w, "signature", "");
    } else if (p->kind == BLOCK_TEXT) {
        jw_cstr(w, "type", "text");
        jw_string(w, "text", s, n);
    } else {
        jw_cstr(w, "type", "tool_use");
        tool_calls_write_id(w, c, p->call);
        jw_cstr(w, "name", tool_calls_at(c, p->call, &ends)->name);
        if (whole) {
            jw_raw(w, "input", c->v[p->call].arguments.data,
                   c->v[p->call].arguments.len);
        } else {
            jw_object(w, "input");
            jw_end_object(w);
        }
    }
    jw_end_object(w);
}

/* Set the members that say how an answer ended. */
static void put_stop(struct json_writer *w, const struct chat_sample *x)
{
    const struct qwick_result *r = &x->sample.r;
    const struct qwick_generate_options *o = &chat_of(x)->r.o;
    bool cut =
        chat_of(x)->warm || x->calls.cut || r->finish == QWICK_FINISH_LENGTH;
    bool found = r->finish == QWICK_FINISH_STOP_STRING && !x->calls.n;
    jw_cstr(w, "stop_reason",
            r->finish == QWICK_FINISH_CONTEXT ? "model_context_window_exceeded"
            : cut                             ? "max_tokens"
            : x->calls.n                      ? "tool_use"
            : found                           ? "stop_sequence"
                                              : "end_turn");
    jw_cstr(w, "stop_sequence",
            found && r->stop_index < o->n_stop ? o->stop[r->stop_index] : NULL);
}

static void put_usage(struct json_writer *w, const struct openai_usage *u)
{
    jw_object(w, "usage");
    jw_uint(w, "input_tokens", u->n_prompt - u->n_cached);
    jw_uint(w, "cache_creation_input_tokens", 0);
    jw_uint(w, "cache_read_input_tokens", u->n_cached);
    jw_uint(w, "output_tokens", u->n_tokens);
    jw_object(w, "output_tokens_details");
    jw_uint(w, "thinking_tokens", u->n_thinking);
    jw_end_object(w);
    jw_end_object(w);
}

/* Write the members of a message. x NULL: it has just begun. */
static void put_message(struct json_writer *w, const struct chat_state *s,
                        const struct chat_sample *x,
                        const struct openai_usage *usage)
{
    struct message_place at = {0};
    struct message_piece p;
    jw_cstr(w, "id", s->head.id);
    jw_cstr(w, "type", "message");
    jw_cstr(w, "role", "assistant");
    jw_cstr(w, "model", s->head.model);
    jw_array(w, "content");
    while (x && next_piece(x, &at, &p))
        put_block(w, NULL, x, &p, true);
    jw_end_array(w);
    if (x) {
        put_stop(w, x);
    } else {
        jw_null(w, "stop_reason");
        jw_null(w, "stop_sequence");
    }
    put_usage(w, usage);
}

/* ---- events ---- */

static struct json_writer event_begin(struct buf *json, const char *type)
{
    struct json_writer w = json_writer(json);
    jw_object(&w, NULL);
    jw_cstr(&w, "type", type);
    return w;
}

/* Send an event and free its text. Returns 0, or -1 when out of memory. */
static int event_send(struct chat_state *s, struct json_writer *w,
                      const char *type)
{
    jw_end_object(w);
    int rc = jw_status(w);
    if (!rc)
        serve_event(s->all.c, type, w->out->data, w->out->len);
    buf_free(w->out);
    return rc;
}

static void send_start(struct chat_sample *x)
{
    static const char type[] = "message_start";
    struct chat_state *s = chat_of(x);
    const struct openai_usage usage = {.n_prompt = s->r.n_ids};
    struct buf json = {0};
    if (x->began)
        return;
    x->began = true;
    struct json_writer w = event_begin(&json, type);
    jw_object(&w, "message");
    put_message(&w, s, NULL, &usage);
    jw_end_object(&w);
    if (event_send(s, &w, type))
        x->sample.oom = true;
}

/* Send a delta of the block that is open. */
static void send_delta(struct chat_sample *x, const char *kind, const char *key,
                       const char *text, size_t n)
{
    static const char type[] = "content_block_delta";
    struct buf json = {0};
    struct json_writer w = event_begin(&json, type);
    jw_uint(&w, "index", x->n_blocks - 1);
    jw_object(&w, "delta");
    jw_cstr(&w, "type", kind);
    jw_string(&w, key, text, n);
    jw_end_object(&w);
    if (event_send(chat_of(x), &w, type))
        x->sample.oom = true;
}

/* End the block that is open, if there is one. */
static void end_block(struct chat_sample *x)
{
    static const char type[] = "content_block_stop";
    struct buf json = {0};
    if (x->block == BLOCK_NONE)
        return;
    if (x->block == BLOCK_THINKING)
        send_delta(x, "signature_delta", "signature", "", 0);
    struct json_writer w = event_begin(&json, type);
    jw_uint(&w, "index", x->n_blocks - 1);
    if (event_send(chat_of(x), &w, type))
        x->sample.oom = true;
    x->block = BLOCK_NONE;
}

static void begin_block(struct chat_sample *x, const struct message_piece *p)
{
    static const char type[] = "content_block_start";
    struct buf json = {0};
    struct json_writer w = event_begin(&json, type);
    jw_uint(&w, "index", x->n_blocks++);
    put_block(&w, "content_block", x, p, false);
    if (event_send(chat_of(x), &w, type))
        x->sample.oom = true;
    x->block = (int)p->kind;
}

static void send_text(struct chat_sample *x, const struct message_piece *p)
{
    if (x->block != (int)p->kind) {
        end_block(x);
        begin_block(x, p);
    }
    if (p->kind == BLOCK_THINKING)
        send_delta(x, "thinking_delta", "thinking", p->s, p->n);
    else
        send_delta(x, "text_delta", "text", p->s, p->n);
}

/* Send the next part of a call. Returns true if the call has ended. */
static bool send_call(struct chat_sample *x)
{
    struct chat_call_piece call;
    if (!chat_next_call(x, &call))
        return false;
    const struct message_piece p = {.kind = BLOCK_CALL, .call = call.i};
    if (call.begins) {
        end_block(x);
        begin_block(x, &p);
    }
    if (call.n)
        send_delta(x, "input_json_delta", "partial_json", call.arguments,
                   call.n);
    return call.ends;
}

static void send_pieces(struct chat_sample *x, bool all)
{
    struct message_place at = {x->sent_thinking, x->sent_text, x->sent_calls};
    struct message_piece p;
    bool more = true;
    (void)all;
    send_start(x);
    while (more && next_piece(x, &at, &p))
        if (p.kind == BLOCK_CALL)
            more = send_call(x);
        else
            send_text(x, &p);
    while (more && send_call(x))
        ;
    x->sent_thinking = at.thinking;
    x->sent_text = at.text;
}

/* ---- the end of the call ---- */

static int send_stop(struct chat_state *s, const struct openai_usage *usage)
{
    static const char delta[] = "message_delta", stop[] = "message_stop";
    struct buf json = {0};
    struct json_writer w = event_begin(&json, delta);
    jw_object(&w, "delta");
    put_stop(&w, chat_at(s, 0));
    jw_end_object(&w);
    put_usage(&w, usage);
    if (event_send(s, &w, delta))
        return -1;
    w = event_begin(&json, stop);
    return event_send(s, &w, stop);
}

static void write_message(struct chat_state *s, const struct json_answer *a,
                          const struct openai_usage *usage,
                          struct json_writer *w)
{
    (void)a;
    jw_object(w, NULL);
    put_message(w, s, chat_at(s, 0), usage);
    jw_end_object(w);
}

/* ---- the forms ---- */

static int read_body(struct chat_state *s, struct body_reader *x, bool counts)
{
    const struct qwick_info *info = qwick_engine_info(s->all.c->s->g.eng);
    return messages_read_body(x, counts, info->think_close_id >= 0);
}

static int read_answered(struct chat_state *s, struct body_reader *x)
{
    int64_t n;
    s->warm = !json_int(json_member(x->body, "max_tokens"), 0, 0, &n);
    return read_body(s, x, false);
}

static int read_counted(struct chat_state *s, struct body_reader *x)
{
    return read_body(s, x, true);
}

const struct chat_form chat_form_messages = {
    .id_prefix = "msg_",
    .call_prefix = "toolu",
    .member_name = messages_member_name,
    .read = read_answered,
    .send_begin = send_start,
    .send = send_pieces,
    .send_end = end_block,
    .send_last = send_stop,
    .write = write_message,
};

const struct chat_form chat_form_count = {
    .id_prefix = "msg_",
    .member_name = messages_member_name,
    .read = read_counted,
};

int count_prepare(struct serve_call *c, struct serve_error *e)
{
    struct chat_state *s = chat_open(c, e);
    struct buf json = {0};
    struct json_writer w = json_writer(&json);
    c->stream = false;
    if (!s)
        return -1;
    jw_object(&w, NULL);
    jw_uint(&w, "input_tokens", s->r.n_ids);
    jw_end_object(&w);
    serve_reply(c, &json);
    return 1;
}
