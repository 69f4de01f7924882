/* The options of serve, and its life from start to end. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/os.h"
#include "base/par.h"
#include "cli/answer/answer_opts.h"
#include "cli/answer/constraint_opts.h"
#include "cli/answer/openai_body.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "cli/http/access.h"
#include "cli/serve/endpoints.h"
#include "cli/http/http_mhd.h"
#include "cli/serve/serve.h"

static int serve_check(struct opt_parsed *p)
{
    int r;
    if (p->n_args)
        return opt_usage(p->verb, "\"%s\": takes no arguments", p->args[0]);
    if ((r = constraint_check(p)) >= 0)
        return r;
    return answer_check(p);
}

/* ---- the model ---- */

/* Set the served id: the alias, or the last part of the model's name. */
static int serve_set_id(struct serve *s)
{
    const char *name = s->p->models.alias ? s->p->models.alias
                                          : qwick_engine_info(s->g.eng)->model;
    size_t n = s->p->models.alias ? strcspn(name, ",") : strlen(name);
    size_t from, end = n;
    while (end > 1 && name[end - 1] == '/')
        end--;
    for (from = end; from > 0 && name[from - 1] != '/'; from--)
        ;
    if (end - from > 5 && strncmp(name + end - 5, ".gguf", 5) == 0)
        end -= 5;
    s->id = strndup(name + from, end - from);
    return s->id ? 0 : msg_oom();
}

/* Open the models, and check the options against them. Returns 0, or an exit
 * status after printing a message. */
static int serve_open_models(struct serve *s)
{
    int status;
    /* conversations of agents have 20,000 tokens, which may take 2 GiB */
    size_t memory = os_available_memory() / 4, limit = (size_t)s->a->kv_memory;
    s->p->models.cache_memory = limit && limit < memory ? limit : memory;
    if ((status = open_model_load(&s->g.eng, s->p, false)) != 0 ||
        (status = gen_choose_mode(&s->g)) != 0 ||
        (status = answer_check_generation(s->p, s->g.eng)) != 0 ||
        (status = open_model_draft(&s->g.draft, s->p, s->g.eng)) != 0 ||
        (status = serve_set_id(s)) != 0)
        return status;
    s->n_loras = qwick_engine_lora_count(s->g.eng);
    for (size_t i = 0; i < s->n_loras; i++)
        if (strcmp(serve_id(s, i), s->id) == 0)
            return msg_refuse("--lora: %s is the name of the model itself; "
                              "give the adapter another one, as in NAME=PATH",
                              s->id);
    s->n_ctx =
        s->a->ctx ? (size_t)s->a->ctx : qwick_engine_info(s->g.eng)->n_ctx_max;
    s->embeds = !qwick_embed_suitability(s->g.eng) &&
                !qwick_engine_info(s->g.eng)->is_classifier;
    s->rerank_warning = qwick_rerank_suitability(s->g.eng);
    return 0;
}

static int serve_create_batch(struct serve *s)
{
    struct qwick_batch_options o = {
        .size = sizeof(o),
        .max_batch = (size_t)s->a->max_batch,
        .n_ctx = (size_t)s->a->ctx,
        .kv_bytes = (size_t)s->a->kv_memory,
        .done = serve_batch_done,
        .done_ctx = s,
        .on_layer = serve_batch_layer,
        .on_layer_ctx = s,
        .fair = true,
    };
    struct qwick_err e;
    if (!qwick_batch_create(&s->batch, s->g.eng, &o, &e))
        return 0;
    /* models for embeddings and rerankers may lack what turns states into
       tokens */
    if (e.code != QWICK_ERR_MODEL || (!s->embeds && s->rerank_warning))
        return msg_fail(&e);
    msg_note("%s; it gives no answers", e.msg);
    return 0;
}

/* ---- the process ---- */

/* Start a thread that leaves all signals but those of its own faults to the main
 * thread. */
static int serve_start_thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
    sigset_t old;
    par_block_signals(&old);
    int rc = pthread_create(t, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? msg_failure("thread: %s", strerror(rc)) : 0;
}

static void *serve_io_thread(void *arg)
{
    struct serve *s = arg;
    struct qwick_err e;
    os_wake_early(); /* tokens go out while the engine computes the next */
    if (http_run(s->http, &e)) {
        msg_fail(&e);
        atomic_store(&s->failed, true);
        serve_wake(s);
    }
    return NULL;
}

/* A request that the model answers. */
static const char *first_request(const struct serve *s)
{
    return s->batch ? "chat/completions -d '{\"messages\": [{\"role\": "
                      "\"user\", \"content\": \"list files\"}]}"
           : qwick_engine_info(s->g.eng)->is_classifier
               ? "rerank -d '{\"query\": \"list files\", \"documents\": "
                 "[\"ls\", \"rm\"]}"
               : "embeddings -d '{\"input\": \"list files\"}";
}

/* Say where the server listens, and on a terminal, how to try it. */
static void serve_greet(const struct serve *s)
{
    const struct listener *l = s->listeners.v;
    struct buf where = {0};
    for (size_t i = 0; i < s->listeners.n; i++)
        buf_printf(&where, "%s%s", i ? ", " : "", LISTEN_SHOW(&l[i].a));
    msg_notice("%s answers at %s", s->id, buf_text(&where));
    bool is_unix = l->a.kind == LISTEN_UNIX;
    msg_hint("try: curl %s%s%s/v1/%s'", is_unix ? "--unix-socket " : "",
             is_unix ? l->a.path : "",
             is_unix ? " http://localhost" : LISTEN_SHOW(&l->a),
             first_request(s));
    buf_free(&where);
}

/* Answer requests until the server ends. */
static int serve_work(struct serve *s)
{
    pthread_t prepare;
    pthread_mutex_lock(&s->mutex);
    s->idle_ms = clock_ms();
    pthread_mutex_unlock(&s->mutex);
    atomic_store(&s->loading, false);
    int status = serve_start_thread(&prepare, serve_prepare_thread, s);
    if (status)
        return status;
    serve_greet(s);
    notify_send(s->notify, "READY=1");
    s->watchdog_at = clock_ms() + s->watchdog_ms;
    status = serve_loop(s);
    pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    pthread_cond_signal(&s->to_prepare);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(prepare, NULL);
    return status;
}

static void call_on_io_thread(void *ctx, void (*fn)(void *arg), void *arg)
{
    const struct serve *s = ctx;
    http_on_thread(s->http, fn, arg);
}

/* Open what belongs to the model, while the I/O thread answers /health. */
static int serve_load(struct serve *s)
{
    const struct sandbox_thread io = {call_on_io_thread, s};
    int status;
    if ((status = serve_open_models(s)) != 0 ||
        (status = request_context_open(&s->requests)) != 0 ||
        (status = embeddings_open(s)) != 0 ||
        (status = serve_create_batch(s)) != 0 ||
        (status = sandbox_enter_with(s->p, s->g.eng, s->g.draft, SIZE_MAX,
                                     &io)) != 0)
        return status;
    signals_catch();
    if (s->a->api_key_file)
        signals_catch_reload();
    return 0;
}

/* Run the threads until the server ends. */
static int serve_run_threads(struct serve *s)
{
    pthread_t io;
    atomic_store(&s->loading, true);
    int status = serve_start_thread(&io, serve_io_thread, s);
    if (status)
        return status;
    if ((status = serve_load(s)) == 0)
        status = serve_work(s);
    serve_fail_all(s);
    http_stop(s->http);
    pthread_join(io, NULL);
    serve_fail_all(s); /* those that came meanwhile */
    return status;
}

/* ---- sockets ---- */

/* Read the addresses of --listen. *out is allocated. */
static int serve_read_addresses(const struct serve *s, struct listen_addr **out,
                                size_t *n)
{
    static const char *const standard = "127.0.0.1:8080";
    const struct strings *given = &s->a->listen;
    struct qwick_err e;
    *n = given->n ? given->n : 1;
    *out = calloc(*n, sizeof(**out));
    if (!*out)
        return msg_oom();
    for (size_t i = 0; i < *n; i++)
        if (listen_parse(given->n ? given->v[i] : standard, &(*out)[i], &e))
            return opt_usage(s->p->verb, "--listen: %s", e.msg);
    return 0;
}

/* Open the sockets, before the sandbox and before the model: a taken port is
 * known at once. */
static int serve_open_sockets(struct serve *s)
{
    struct listen_addr *addrs;
    struct qwick_err e;
    size_t n;
    int status = serve_read_addresses(s, &addrs, &n);
    if (!status)
        status = msg_result(listen_open(&s->listeners, addrs, n, &e), &e);
    free(addrs);
    notify_open(&s->notify);
    s->watchdog_ms = s->notify < 0 ? (double)INFINITY : notify_watchdog_ms();
    s->memory = os_memory_open();
    return status;
}

static int serve_open_access(struct serve *s)
{
    const struct access_options o = {.hosts = s->a->allow_host,
                                     .origins = s->a->allow_origin,
                                     .bound = s->listeners.v,
                                     .n_bound = s->listeners.n,
                                     .key_file = s->a->api_key_file,
                                     .no_auth = s->a->no_auth};
    struct qwick_err e;
    return msg_result(access_open(&s->access, &o, &e), &e);
}

/* Open what the threads need, after the first part of the sandbox. */
static int serve_open_http(struct serve *s)
{
    const struct http_limits limits = {0};
    const struct http_handler h = serve_handler(s);
    struct qwick_err e;
    int *fds = calloc(s->listeners.n, sizeof(*fds));
    if (!fds)
        return msg_oom();
    for (size_t i = 0; i < s->listeners.n; i++) {
        fds[i] = s->listeners.v[i].fd;
        s->listeners.v[i].fd = -1;
    }
    int status = msg_result(
        http_open(&s->http, fds, s->listeners.n, &limits, &h, &e), &e);
    free(fds);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!status && s->wake < 0)
        status = msg_errno("eventfd", "open");
    return status;
}

static int serve_all(struct serve *s)
{
    struct qwick_err e = {0};
    int status;
    if ((status = gen_read_before(&s->g, &e)) != 0 ||
        (status = msg_result(http_mhd_load(&e), &e)) != 0 ||
        (status = serve_open_sockets(s)) != 0 ||
        (status = serve_open_access(s)) != 0 ||
        (status = open_model_find(s->p)) != 0 ||
        (status = serve_open_http(s)) != 0)
        return status;
    tzset(); /* reads the environment, which loading OpenBLAS changes */
    s->created = (int64_t)time(NULL);
    status = serve_run_threads(s);
    if (!status)
        signals_forget(); /* the server has ended as it was told */
    return status;
}

/* Memory for the preparation of one request, of 256 MiB in all: a body of chat
 * completions is parsed, and so is the record that it becomes. */
enum { JSON_BYTES = 64 << 20, RENDER_BYTES = 96 << 20 };

static int serve_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct serve s = {.p = p,
                      .a = &p->a,
                      .g = {.p = p, .eng = eng},
                      .wake = -1,
                      .notify = -1,
                      .memory = -1,
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .to_prepare = PTHREAD_COND_INITIALIZER};
    request_context_init(&s.requests, &s.g);
    s.requests.input = "serve";
    s.requests.unit = "request";
    s.requests.member_name = openai_member_name;
    s.requests.json_bytes = JSON_BYTES;
    s.requests.render_bytes = RENDER_BYTES;
    int status = serve_all(&s);
    http_close(s.http);
    access_close(s.access);
    listen_close(&s.listeners);
    qwick_batch_free(s.batch);
    request_context_free(&s.requests);
    gen_free(&s.g);
    if (s.wake >= 0)
        close(s.wake);
    if (s.notify >= 0)
        close(s.notify);
    if (s.memory >= 0)
        close(s.memory);
    free(s.id);
    return status;
}

const struct verb verb_serve = {
    .bit = V_SERVE,
    .name = "serve",
    .group = VERBS_ANSWER,
    .args = "",
    .summary = "answer programs and agents over HTTP, as OpenAI and Anthropic do",
    .about =
        "Answer the programs of this machine over HTTP: chats, completions, "
        "embeddings\nand reranking in the forms of OpenAI's API, messages in "
        "Anthropic's. It listens\nat 127.0.0.1:8080 unless --listen is given, "
        "and only this verb of qwick listens\nat all. Requests overrule the "
        "options below, which are their defaults.",
    .examples = "  qwick serve -m Qwen/Qwen3-4B\n"
                "  qwick serve --listen unix:/run/user/1000/qwick.sock\n",
    .check = serve_check,
    .run = serve_run,
};
