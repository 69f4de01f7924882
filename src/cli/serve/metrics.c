#include "cli/serve/metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char metrics_type[] = "text/plain; version=0.0.4; charset=utf-8";

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* ---- what is counted ---- */

/* Upper bounds of the buckets, in milliseconds. */
static const double bounds[METRICS_BUCKETS] = {
    0.1,   0.2,   0.5,    1,      2,      5,      10,   20,
    50,    100,   200,    500,    1000,   2000,   5000, 10000,
    20000, 50000, 100000, 200000, 500000, 1000000};

/* The last one stands for all others. */
static const int statuses[METRICS_STATUSES] = {
    200, 204, 400, 401, 403, 404, 405, 408,         413,
    429, 431, 500, 501, 503, 504, 505, METRICS_GONE};

static const char *const ends[N_METRIC_ENDS] = {
    [METRIC_STOP] = "stop",
    [METRIC_LENGTH] = "length",
    [METRIC_ABORT] = "abort",
    [METRIC_ERROR] = "error",
};

void metrics_time(struct metrics *m, enum metric_time which, double ms)
{
    struct metric_histogram *h = &m->times[which];
    size_t i = 0;
    while (i < METRICS_BUCKETS && ms > bounds[i])
        i++;
    metric_add(&h->buckets[i], 1);
    metric_add(&h->ns, ms > 0 ? (uint64_t)(ms * 1e6) : 0);
}

void metrics_end(struct metrics *m, enum qwick_finish f)
{
    enum metric_end end = METRIC_ERROR;
    if (f == QWICK_FINISH_STOP || f == QWICK_FINISH_STOP_STRING)
        end = METRIC_STOP;
    else if (f == QWICK_FINISH_LENGTH || f == QWICK_FINISH_CONTEXT)
        end = METRIC_LENGTH;
    else if (f == QWICK_FINISH_INTERRUPTED || f == QWICK_FINISH_CANCELLED)
        end = METRIC_ABORT;
    metric_add(&m->ends[end], 1);
}

void metrics_request(struct metrics *m, size_t endpoint, int status)
{
    size_t i = 0;
    while (i < METRICS_STATUSES - 1 && statuses[i] != status)
        i++;
    metric_add(&m->requests[endpoint][i], 1);
}

/* ---- the text ---- */

struct text {
    struct buf *out;
    const struct metrics *m;
    const char *(*path)(size_t i);
    const char *model;
};

struct row {
    const char *name, *type, *help;
    void (*put)(const struct text *t, const struct row *r);
    size_t i;   /* what put shows */
    bool micro; /* the number is in millionths */
};

/* Append a label's value with its quotes. */
static void put_value(struct buf *out, const char *s)
{
    buf_putc(out, '"');
    for (; *s; s++)
        if (*s == '\n')
            buf_puts(out, "\\n");
        else if (*s == '"' || *s == '\\')
            buf_printf(out, "\\%c", *s);
        else
            buf_putc(out, *s);
    buf_putc(out, '"');
}

struct label {
    const char *name, *value; /* name NULL: no label */
};

/* Append the name of a sample, its labels, and that of the model, which the
 * process does not have. */
static void put_sample(const struct text *t, const struct row *r,
                       const char *suffix, struct label a, struct label b)
{
    const bool model = strncmp(r->name, "qwick_", 6) == 0;
    const struct label all[] = {{model ? "model_name" : NULL, t->model}, a, b};
    const char *before = "{";
    buf_printf(t->out, "%s%s", r->name, suffix);
    for (size_t i = 0; i < COUNT(all); i++) {
        if (!all[i].name)
            continue;
        buf_printf(t->out, "%s%s=", before, all[i].name);
        put_value(t->out, all[i].value);
        before = ",";
    }
    if (*before == ',')
        buf_putc(t->out, '}');
}

static const struct label none;

static uint64_t value_of(const metric_number *n)
{
    return atomic_load_explicit(n, memory_order_relaxed);
}

static void put_count(const struct text *t, uint64_t n)
{
    buf_printf(t->out, " %" PRIu64 "\n", n);
}

static void put_number(const struct text *t, const struct row *r)
{
    uint64_t n = value_of(&t->m->v[r->i]);
    put_sample(t, r, "", none, none);
    if (r->micro)
        buf_printf(t->out, " %" PRIu64 ".%06u\n", n / 1000000,
                   (unsigned)(n % 1000000));
    else
        put_count(t, n);
}

static void put_ends(const struct text *t, const struct row *r)
{
    for (size_t i = 0; i < N_METRIC_ENDS; i++) {
        put_sample(t, r, "", (struct label){"finished_reason", ends[i]}, none);
        put_count(t, value_of(&t->m->ends[i]));
    }
}

/* Append the counts of an endpoint's answers: of the statuses that it had. */
static void put_statuses(const struct text *t, const struct row *r,
                         const char *path, const metric_number *n)
{
    for (size_t i = 0; i < METRICS_STATUSES; i++) {
        char status[16] = "other";
        if (!value_of(&n[i]))
            continue;
        if (statuses[i])
            snprintf(status, sizeof(status), "%d", statuses[i]);
        put_sample(t, r, "", (struct label){"endpoint", path},
                   (struct label){"status", status});
        put_count(t, value_of(&n[i]));
    }
}

static void put_requests(const struct text *t, const struct row *r)
{
    const char *path;
    for (size_t i = 0; (path = t->path(i)); i++)
        put_statuses(t, r, path, t->m->requests[i]);
    put_statuses(t, r, "other", t->m->requests[METRICS_ENDPOINTS]);
}

/* The count is the sum of the buckets, so that they agree while others count.
 */
static void put_times(const struct text *t, const struct row *r)
{
    const struct metric_histogram *h = &t->m->times[r->i];
    uint64_t n = 0, ns = value_of(&h->ns);
    char bound[32];
    for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
        n += value_of(&h->buckets[i]);
        if (i < METRICS_BUCKETS)
            snprintf(bound, sizeof(bound), "%g", bounds[i] / 1000);
        else
            snprintf(bound, sizeof(bound), "+Inf");
        put_sample(t, r, "_bucket", (struct label){"le", bound}, none);
        put_count(t, n);
    }
    put_sample(t, r, "_sum", none, none);
    buf_printf(t->out, " %" PRIu64 ".%09u\n", ns / 1000000000,
               (unsigned)(ns % 1000000000));
    put_sample(t, r, "_count", none, none);
    put_count(t, n);
}

static void put_build(const struct text *t, const struct row *r)
{
    put_sample(t, r, "", (struct label){"version", qwick_version()}, none);
    put_count(t, 1);
}

/* ---- rows ---- */

#define NUMBER(NAME, TYPE, I, HELP)            \
    {                                          \
        NAME, TYPE, HELP, put_number, I, false \
    }
#define MICRO(NAME, TYPE, I, HELP)            \
    {                                         \
        NAME, TYPE, HELP, put_number, I, true \
    }
#define TIMES(NAME, I, HELP)                         \
    {                                                \
        NAME, "histogram", HELP, put_times, I, false \
    }

static const struct row rows[] = {
    NUMBER("qwick_num_requests_running", "gauge", METRIC_RUNNING,
           "Answers that are generated now; embeddings, rankings and scores "
           "count as one each."),
    NUMBER("qwick_num_requests_waiting", "gauge", METRIC_WAITING,
           "Answers that wait for a place or for memory."),
    NUMBER("qwick_kv_cache_bytes", "gauge", METRIC_KV_BYTES,
           "Memory of the keys and values of running answers."),
    MICRO("qwick_kv_cache_usage_perc", "gauge", METRIC_KV_USAGE,
          "The part of --kv-memory that they take, or without it of the memory "
          "that they have and that is free; 1 is all."),
    NUMBER("qwick_num_preemptions_total", "counter", METRIC_PREEMPTIONS,
           "Times that an answer lost its keys and values to others."),
    NUMBER("qwick_prompt_tokens_total", "counter", METRIC_PROMPT_TOKENS,
           "Tokens of prompts, cached ones included, when their first token "
           "is drawn; also of embeddings, rankings and scores."),
    NUMBER("qwick_generation_tokens_total", "counter", METRIC_GENERATION_TOKENS,
           "Tokens of answers."),
    NUMBER("qwick_prefix_cache_queries_total", "counter", METRIC_CACHE_QUERIES,
           "Tokens of prompts that were looked up in the prefix cache."),
    NUMBER("qwick_prefix_cache_hits_total", "counter", METRIC_CACHE_HITS,
           "Tokens of prompts that the prefix cache had."),
    {"qwick_request_success_total", "counter",
     "Answers that have ended, by finished_reason; abort: the client left, or "
     "the server shut down.",
     put_ends, 0, false},
    TIMES("qwick_time_to_first_token_seconds", METRIC_FIRST_TOKEN,
          "From the last byte of a request to its first token."),
    TIMES("qwick_inter_token_latency_seconds", METRIC_INTER_TOKEN,
          "Between two tokens of an answer."),
    TIMES("qwick_request_time_per_output_token_seconds", METRIC_PER_TOKEN,
          "Mean time between the tokens of an answer."),
    TIMES("qwick_e2e_request_latency_seconds", METRIC_END_TO_END,
          "From the last byte of a request to the end of its answer, of "
          "requests that the model answered with status 200."),
    TIMES("qwick_event_delay_seconds", METRIC_EVENT_DELAY,
          "From an event of a stream to its write; slow clients count, events "
          "that wait together count once."),
    {"qwick_http_requests_total", "counter",
     "Requests by endpoint and status; 499: the client had left. An error "
     "inside a stream counts with its own status.",
     put_requests, 0, false},
    NUMBER("qwick_http_connections", "gauge", METRIC_CONNECTIONS,
           "Open connections."),
    {"qwick_build_info", "gauge", "Version of qwick.", put_build, 0, false},
    NUMBER("process_resident_memory_bytes", "gauge", METRIC_MEMORY,
           "Memory of the process, the mapped model included."),
    MICRO("process_cpu_seconds_total", "counter", METRIC_CPU,
          "CPU time of the process."),
    NUMBER("process_start_time_seconds", "gauge", METRIC_STARTED,
           "Unix time of the start."),
};

void metrics_text(struct buf *out, const struct metrics *m, const char *model,
                  const char *(*path)(size_t i))
{
    struct buf name = {0};
    utf8_sanitize(&name, model, strlen(model));
    const struct text t = {out, m, path, buf_text(&name)};
    for (size_t i = 0; i < COUNT(rows); i++) {
        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name,
                   rows[i].help, rows[i].name, rows[i].type);
        rows[i].put(&t, &rows[i]);
    }
    buf_free_part(&name, out);
}
