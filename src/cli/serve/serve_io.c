/* What the I/O thread does with requests: find the endpoint, refuse, answer
 * /health, /v1/models and /metrics, pass the others on. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/os.h"
#include "cli/http/access.h"
#include "cli/io/out.h"
#include "cli/serve/chat_state.h"
#include "cli/serve/endpoints.h"
#include "cli/serve/serve.h"

/* An engine that has work, but made no step for so long, hangs. */
enum { HANGS_MS = 60000 };

static const char json_type[] = "application/json";

/* ---- answers of this thread ---- */

static void reply_error(struct serve *s, const struct endpoint *ep,
                        struct http_call *http, int status, const char *code,
                        const char *message);

/* Count the request, and answer. */
static void io_reply(struct serve *s, const struct endpoint *ep,
                     struct http_call *http, int status, const char *type,
                     struct buf *body)
{
    if (body->failed && status != 503) {
        buf_free(body);
        reply_error(s, ep, http, 503, NULL, "out of memory");
        return;
    }
    serve_count(s, ep, status);
    http_reply(http, status, type, body);
}

/* The protocol of a path, also of one that no row has: clients ask for more
 * below the paths that we have. path NULL: unknown. */
static const struct protocol *path_protocol(const char *path)
{
    for (const struct endpoint *ep = serve_endpoints; path && ep->path; ep++) {
        size_t n = strlen(ep->path);
        if (ep->protocol && strncmp(path, ep->path, n) == 0 &&
            (path[n] == '\0' || path[n] == '/'))
            return ep->protocol;
    }
    return NULL;
}

static void reply_error(struct serve *s, const struct endpoint *ep,
                        struct http_call *http, int status, const char *code,
                        const char *message)
{
    struct serve_error e = {.status = status, .code = code};
    struct buf body = {0};
    err_set(&e.e, QWICK_ERR_USAGE, "%s", message);
    serve_error_json(path_protocol(http_path(http)), &body, &e);
    io_reply(s, ep, http, status, json_type, &body);
}

static void serve_health(struct serve *s, const struct endpoint *ep,
                         struct http_call *http)
{
    bool drains = atomic_load(&s->draining);
    bool hangs = atomic_load(&s->working) &&
                 clock_ms() - atomic_load(&s->step_ms) > HANGS_MS;
    const char *why = atomic_load(&s->loading) ? "the model is being loaded"
                      : drains                 ? "the server is shutting down"
                      : hangs ? "the engine has made no step for a minute"
                              : NULL;
    struct buf body = {0};
    if (why) {
        reply_error(s, ep, http, 503, NULL, why);
        return;
    }
    buf_puts(&body, "{\"status\":\"ok\"}");
    io_reply(s, ep, http, 200, json_type, &body);
}

/* Whether a client expects Anthropic's form of what two protocols have. */
static bool is_anthropic(const struct http_call *http)
{
    return http_field(http, "anthropic-version");
}

/* A model of Anthropic's API. */
static void put_model_info(struct json_writer *w, const struct serve *s,
                           const char *id)
{
    const time_t created = (time_t)s->created;
    struct tm t;
    char at[32] = "";
    if (gmtime_r(&created, &t))
        strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", &t);
    jw_object(w, NULL);
    jw_cstr(w, "type", "model");
    jw_cstr(w, "id", id);
    jw_cstr(w, "display_name", id);
    jw_cstr(w, "created_at", at);
    jw_uint(w, "max_input_tokens", s->n_ctx);
    jw_uint(w, "max_tokens", s->n_ctx);
    jw_null(w, "capabilities");
    jw_end_object(w);
}

/* Model i: an adapter, or the base model. */
static void put_model(struct json_writer *w, const struct serve *s,
                      const struct http_call *http, size_t i)
{
    const char *id = serve_id(s, i);
    if (is_anthropic(http)) {
        put_model_info(w, s, id);
        return;
    }
    jw_object(w, NULL);
    jw_cstr(w, "id", id);
    jw_cstr(w, "object", "model");
    jw_int(w, "created", s->created);
    jw_cstr(w, "owned_by", "qwick");
    if (i < s->n_loras)
        jw_cstr(w, "parent", s->id);
    jw_uint(w, "context_length", s->n_ctx);
    jw_end_object(w);
}

static void serve_models(struct serve *s, const struct endpoint *ep,
                         struct http_call *http)
{
    struct buf body = {0};
    struct json_writer w = json_writer(&body);
    bool anthropic = is_anthropic(http);
    jw_object(&w, NULL);
    if (!anthropic)
        jw_cstr(&w, "object", "list");
    jw_array(&w, "data");
    put_model(&w, s, http, s->n_loras);
    for (size_t i = 0; i < s->n_loras; i++)
        put_model(&w, s, http, i);
    jw_end_array(&w);
    if (anthropic) {
        jw_cstr(&w, "first_id", s->id);
        jw_cstr(&w, "last_id", serve_id(s, s->n_loras ? s->n_loras - 1 : 0));
        jw_bool(&w, "has_more", false);
    }
    jw_end_object(&w);
    io_reply(s, ep, http, 200, json_type, &body);
}

static const char models_path[] = "/v1/models/";

static void serve_model(struct serve *s, const struct endpoint *ep,
                        struct http_call *http)
{
    struct buf body = {0};
    struct json_writer w = json_writer(&body);
    const char *id = http_path(http) + sizeof(models_path) - 1;
    size_t i = 0;
    while (i < s->n_loras && strcmp(id, serve_id(s, i)) != 0)
        i++;
    if (strcmp(id, serve_id(s, i)) != 0) {
        reply_error(s, ep, http, 404, "model_not_found",
                    "there is no model of this name; see /v1/models");
        return;
    }
    put_model(&w, s, http, i);
    io_reply(s, ep, http, 200, json_type, &body);
}

/* ---- /metrics ---- */

static const char *endpoint_path(size_t i)
{
    return serve_endpoints[i].path;
}

/* Set what nobody counts. What runs is read once: what waits is the rest. */
static void metrics_look(struct serve *s)
{
    metric_number *v = s->metrics.v;
    size_t running = atomic_load(&s->n_running);
    pthread_mutex_lock(&s->mutex);
    size_t all = s->n_streams;
    pthread_mutex_unlock(&s->mutex);
    metric_set(&v[METRIC_RUNNING], running);
    metric_set(&v[METRIC_WAITING], all > running ? all - running : 0);
    uint64_t used = atomic_load(&v[METRIC_KV_BYTES]);
    uint64_t most = (uint64_t)s->a->kv_memory;
    if (!most)
        most = used + os_available_memory();
    metric_set(&v[METRIC_KV_USAGE],
               most ? (uint64_t)(1e6 * (double)used / (double)most) : 0);
    metric_set(&v[METRIC_CONNECTIONS], http_connections(s->http));
    metric_set(&v[METRIC_MEMORY], os_memory_read(s->memory));
    metric_set(&v[METRIC_CPU], os_cpu_us());
    metric_set(&v[METRIC_STARTED], (uint64_t)s->created);
}

static void serve_metrics(struct serve *s, const struct endpoint *ep,
                          struct http_call *http)
{
    struct buf body = {0};
    metrics_look(s);
    metrics_text(&body, &s->metrics, s->id, endpoint_path);
    io_reply(s, ep, http, 200, metrics_type, &body);
}

/* ---- endpoints ---- */

#define HEALTH .early = true, .reply = serve_health

#define RERANK                                                               \
    .prepare = rerank_prepare, .start = rerank_start, .slice = rerank_slice, \
    .free = rerank_free

#define CHAT(FORM)                                                             \
    .chat = true, .form = &FORM, .prepare = chat_prepare, .start = chat_start, \
    .cancel = chat_cancel, .waits = chat_waits, .free = chat_free

const struct endpoint serve_endpoints[] = {
    {.method = "GET", .path = "/health", .open = true, HEALTH},
    {.method = "GET", .path = "/v1/health", .open = true, HEALTH},
    {.method = "GET", .path = "/", HEALTH},
    {.method = "GET", .path = "/metrics", .reply = serve_metrics},
    {.method = "GET", .path = "/v1/models", .reply = serve_models},
    {.method = "GET", .path = models_path, .reply = serve_model},
    {.method = "POST", .path = "/v1/chat/completions", CHAT(chat_form_openai)},
    {.method = "POST",
     .path = "/v1/responses",
     .protocol = &protocol_responses,
     CHAT(chat_form_responses)},
    {.method = "POST",
     .path = "/v1/messages",
     .protocol = &protocol_messages,
     CHAT(chat_form_messages)},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .protocol = &protocol_messages,
     .chat = true,
     .form = &chat_form_count,
     .prepare = count_prepare,
     .free = chat_free},
    {.method = "POST",
     .path = "/v1/completions",
     .chat = true,
     .prepare = completion_prepare,
     .start = completion_start,
     .slice = completion_slice,
     .cancel = completion_cancel,
     .waits = completion_waits,
     .free = completion_free},
    {.method = "POST",
     .path = "/v1/embeddings",
     .prepare = embeddings_prepare,
     .start = embeddings_start,
     .slice = embeddings_slice,
     .free = embeddings_free},
    {.method = "POST", .path = "/v1/rerank", RERANK},
    {.method = "POST", .path = "/rerank", RERANK},
    {.method = "POST", .path = "/tokenize", .prepare = tokenize_prepare},
    {.method = "POST", .path = "/detokenize", .prepare = detokenize_prepare},
    {.method = "POST",
     .path = "/score",
     .prepare = scoring_prepare,
     .start = scoring_start,
     .slice = scoring_slice,
     .free = scoring_free},
    {0},
};

_Static_assert(sizeof(serve_endpoints) / sizeof(*serve_endpoints) <=
                   METRICS_ENDPOINTS,
               "each endpoint has its counters");

/* Whether a path is that of a row. A row that ends in "/" has names below. */
static bool path_matches(const char *row, const char *path)
{
    size_t n = strlen(row);
    return strcmp(row, path) == 0 || (n > 1 && row[n - 1] == '/' &&
                                      strncmp(row, path, n) == 0 && path[n]);
}

static bool method_matches(const char *row, const char *method)
{
    return strcmp(row, method) == 0 ||
           (strcmp(row, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* Find the row of a request. NULL with *allowed not NULL: the path has another
 * method. */
static const struct endpoint *find_endpoint(const struct http_call *http,
                                            const char **allowed)
{
    *allowed = NULL;
    for (const struct endpoint *ep = serve_endpoints; ep->path; ep++) {
        if (!path_matches(ep->path, http_path(http)))
            continue;
        if (method_matches(ep->method, http_method(http)))
            return ep;
        *allowed = ep->method;
    }
    return NULL;
}

/* ---- the handler ---- */

/* Whether there is a place for another call. */
static bool has_place(struct serve *s)
{
    pthread_mutex_lock(&s->mutex);
    bool has = s->n_streams < (size_t)(s->a->max_batch + s->a->queue);
    pthread_mutex_unlock(&s->mutex);
    return has;
}

/* Answer what a browser asks before it sends a page's request. */
static void reply_preflight(struct serve *s, const struct endpoint *ep,
                            struct http_call *http)
{
    const char *names = http_field(http, "Access-Control-Request-Headers");
    http_add_field(http, "Access-Control-Allow-Methods", ACCESS_ALLOW_METHODS);
    http_add_field(http, "Access-Control-Max-Age", ACCESS_MAX_AGE);
    if (access_is_name_list(names))
        http_add_field(http, "Access-Control-Allow-Headers", names);
    serve_count(s, ep, 204);
    http_reply(http, 204, NULL, NULL);
}

static void serve_reload(struct serve *s)
{
    struct qwick_err e;
    if (atomic_exchange(&s->reload, false) && access_reload(s->access, &e))
        msg_warn("%s; the old keys stay", e.msg);
}

/* Answer a request that the rules of access refuse. Returns whether it may go
 * on. */
static bool serve_admit(struct serve *s, struct http_call *http,
                        const struct endpoint *ep)
{
    const struct access_head head = {
        .method = http_method(http),
        .host = http_host(http),
        .origin = http_field(http, "Origin"),
        .fetch_site = http_field(http, "Sec-Fetch-Site"),
        .authorization = http_field(http, "Authorization"),
        .api_key = http_field(http, "x-api-key"),
        .open = ep && ep->open,
    };
    serve_reload(s);
    struct access_answer a = access_check(s->access, &head);
    if (a.origin) {
        http_add_field(http, "Access-Control-Allow-Origin", a.origin);
        http_add_field(http, "Vary", "Origin");
    }
    if (a.status == 204)
        reply_preflight(s, ep, http);
    else if (a.status == 401)
        http_add_field(http, "WWW-Authenticate", "Bearer");
    if (a.why)
        reply_error(s, ep, http, a.status,
                    a.status == 401 ? "invalid_api_key" : NULL, a.why);
    return a.status == 0;
}

static void on_head(void *ctx, struct http_call *http)
{
    struct serve *s = ctx;
    const char *allowed;
    const struct endpoint *ep = find_endpoint(http, &allowed);
    if (!serve_admit(s, http, ep))
        return; /* it has been answered */
    if (!ep && allowed) {
        http_add_field(http, "Allow", allowed);
        reply_error(s, ep, http, 405, NULL,
                    "this path has another method, see Allow");
    } else if (!ep) {
        reply_error(s, ep, http, 404, NULL, "there is no such path");
    } else if (!ep->reply && atomic_load(&s->draining)) {
        reply_error(s, ep, http, 503, NULL, "the server is shutting down");
    } else if (!ep->reply && !has_place(s)) {
        http_add_field(http, "Retry-After", "1");
        reply_error(s, ep, http, 429, NULL,
                    "the queue is full, try again later");
    }
}

static void on_ready(void *ctx, struct http_call *http)
{
    struct serve *s = ctx;
    const char *allowed;
    const struct endpoint *ep = find_endpoint(http, &allowed);
    if (ep->reply && (ep->early || !atomic_load(&s->loading)))
        ep->reply(s, ep, http);
    else
        serve_begin(s, http, ep);
}

static void on_gone(void *ctx, struct http_call *http)
{
    struct serve *s = ctx;
    struct serve_call *c = http_tag(http);
    if (!c)
        return;
    atomic_store(&c->stop, SERVE_GONE);
    atomic_store(&s->any_stopped, true);
    serve_wake(s);
}

static void on_written(void *ctx, double ms)
{
    struct serve *s = ctx;
    metrics_time(&s->metrics, METRIC_EVENT_DELAY, ms);
}

static void on_fault(void *ctx, const char *path, int status, const char *why,
                     struct buf *body)
{
    struct serve_error e = {.status = status};
    const struct endpoint *ep = serve_endpoints;
    while (ep->path && !(path && path_matches(ep->path, path)))
        ep++;
    serve_count(ctx, ep->path ? ep : NULL, status);
    err_set(&e.e, QWICK_ERR_USAGE, "%s", why);
    serve_error_json(path_protocol(path), body, &e);
}

struct http_handler serve_handler(struct serve *s)
{
    return (struct http_handler){.ctx = s,
                                 .head = on_head,
                                 .ready = on_ready,
                                 .gone = on_gone,
                                 .written = on_written,
                                 .fault = on_fault};
}
