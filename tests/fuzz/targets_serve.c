/* Requests of the server. */
#include <stdlib.h>
#include <string.h>

#include "cli/answer/openai_body.h"
#include "cli/io/out.h"
#include "cli/opt/verbs.h"
#include "cli/http/http_head.h"
#include "cli/http/http_parts.h"
#include "cli/serve/serve.h"
#include "file/json.h"
#include "targets.h"

/* ---- heads ---- */

static void check_span(struct http_span s, const struct http_head *h)
{
    CHECK(s.at <= h->n && s.n <= h->n - s.at);
}

/* What two programs could read in two ways is not in a head that is taken. */
static void check_head(const char *in, size_t n, const struct http_head *h)
{
    CHECK(h->n >= 4 && h->n <= n);
    CHECK(memcmp(in + h->n - 4, "\r\n\r\n", 4) == 0);
    CHECK(!memchr(in, 0, h->n));
    for (size_t i = 0; i < h->n; i++)
        CHECK((in[i] == '\n') == (i > 0 && in[i - 1] == '\r'));
    check_span(h->method, h);
    check_span(h->target, h);
    check_span(h->path, h);
    check_span(h->host, h);
    CHECK(h->method.n > 0 && h->target.n > 0);
    CHECK(h->n_fields <= HTTP_MAX_FIELDS && !(h->chunked && h->length));
    for (size_t i = 0; i < h->n_fields; i++) {
        check_span(h->names[i], h);
        check_span(h->values[i], h);
        CHECK(h->names[i].n > 0);
    }
}

/* Bytes of a connection: a head is the same in whatever pieces it comes. */
int fuzz_http(const char *in, size_t n, struct qwick_err *e)
{
    struct http_head head, part;
    const char *why = NULL;
    int status = http_head_check(in, n, &head, &why);
    CHECK(status == 0 || status == 200 || (status >= 400 && why));
    if (status == 200)
        check_head(in, n, &head);
    for (size_t m = 0; m < n; m += n < 512 ? 1 : n / 64) {
        int s = http_head_check(in, m, &part, &why);
        CHECK(s == 0 || s == status);
        CHECK(s != 200 || part.n == head.n);
        CHECK(status != 200 || (s == 200) == (m >= head.n));
    }
    return status >= 400 ? err_set(e, QWICK_ERR_USAGE, "%s", why) : 0;
}

/* ---- bodies ---- */

/* A server of the demo model without sockets and threads. */
static struct serve *server(void)
{
    static char *words[] = {"--no-config", "--quiet", "--embeddings", NULL};
    static struct opt_parsed p;
    static struct serve s = {.p = &p,
                             .a = &p.a,
                             .g = {.p = &p},
                             .id = "demo",
                             .wake = -1,
                             .mutex = PTHREAD_MUTEX_INITIALIZER,
                             .to_prepare = PTHREAD_COND_INITIALIZER};
    struct qwick_engine_options o = qwick_engine_defaults();
    if (s.g.eng)
        return &s;
    o.threads = 1;
    CHECK(opt_parse(&p, &verb_serve, 3, words) == -1);
    msg_level(true, false);
    CHECK(qwick_engine_open(&s.g.eng, &o, NULL) == 0);
    s.n_ctx = qwick_engine_info(s.g.eng)->n_ctx_max;
    request_context_init(&s.requests, &s.g);
    s.requests.input = "serve";
    s.requests.unit = "request";
    s.requests.member_name = openai_member_name;
    CHECK(gen_choose_mode(&s.g) == 0);
    CHECK(request_context_open(&s.requests) == 0);
    return &s;
}

/* The endpoint with a body whose path is s[n]; NULL: none. */
static const struct endpoint *endpoint_of(const char *s, size_t n)
{
    const struct endpoint *ep = serve_endpoints;
    while (ep->path && (!ep->prepare || strlen(ep->path) != n ||
                        memcmp(ep->path, s, n) != 0))
        ep++;
    return ep->path ? ep : NULL;
}

/* A request whose body has come. It has two owners: this file and the server. */
static struct http_call *request_of(struct http *h, const char *body, size_t n)
{
    struct http_call *c = calloc(1, sizeof(*c));
    CHECK(c && buf_append(&c->body, body, n) == 0);
    atomic_fetch_add(&h->n_body_bytes, n);
    c->h = h;
    c->number = 1;
    c->ready = true;
    c->n_refs = 2;
    return c;
}

/* An answer is JSON, and an error has its members. */
static void check_answer(const struct http_call *c)
{
    struct json_doc *doc = NULL;
    CHECK(c->ended && c->status >= 200 && c->status < 600);
    CHECK(json_parse(&doc, "answer", buf_text(&c->out), c->out.len,
                     QWICK_ERR_RUNTIME, NULL) == 0);
    if (c->status != 200) {
        const struct json_value *e = json_get(json_root(doc), "error");
        CHECK(json_is(json_get(e, "message"), JSON_STRING));
        CHECK(json_is(json_get(e, "type"), JSON_STRING));
    }
    json_free(doc);
}

/* The first line is the path of an endpoint, the rest a body, which is prepared.
 * The call then ends with an error. Taken if it could start. */
int fuzz_body(const char *in, size_t n, struct qwick_err *e)
{
    static struct http h = {.wake = -1, .mutex = PTHREAD_MUTEX_INITIALIZER};
    struct serve *s = server();
    struct serve_error why = {0};
    const char *line = memchr(in, '\n', n);
    const struct endpoint *ep = line ? endpoint_of(in, (size_t)(line - in)) : NULL;
    if (!ep)
        return err_set(e, QWICK_ERR_USAGE, "no endpoint");
    h.last_woken = &h.woken;
    struct http_call *http = request_of(&h, line + 1, n - (size_t)(line + 1 - in));
    serve_begin(s, http, ep);
    struct serve_call *c = serve_pop(&s->unprepared);
    CHECK(c);
    int rc = ep->prepare(c, &why);
    CHECK(rc != 0 || !c->stream || !http->ended);
    if (rc == 0)
        why = (struct serve_error){.status = 503, .e.msg = "the end"};
    else if (rc < 0)
        CHECK(why.status >= 400 && why.e.msg[0]);
    if (rc <= 0) {
        s->n_streams += c->n_streams - 1;
        serve_fail(c, &why);
    }
    CHECK(s->n_calls == 0 && s->n_streams == 0);
    check_answer(http);
    pthread_mutex_lock(&h.mutex);
    http_call_release(http);
    pthread_mutex_unlock(&h.mutex);
    CHECK(atomic_load(&h.n_body_bytes) == 0);
    return rc < 0 ? err_set(e, QWICK_ERR_USAGE, "%s", why.e.msg) : 0;
}
