/* `bench --compare`: the rows of an earlier run beside those of this one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "cli/bench/bench_report.h"
#include "cli/io/out.h"
#include "file/json.h"
#include "file/map.h"

/* A report of one run is some kilobytes. */
enum { MAX_FILE = 64 << 20 };

struct bench_baseline {
    const char *path; /* borrowed */
    char *text;
    struct json_doc **docs; /* one for each model */
    size_t n_docs, cap_docs;
};

/* ---- reading ------------------------------------------------------------ */

/* A row of results that can be compared. */
static bool is_row(const struct json_value *row)
{
    const char *const numbers[] = {"batch", "threads", "tok_s",
                                   "percent_of_limit"};
    double x;
    if (!json_is(json_get(row, "test"), JSON_STRING))
        return false;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (json_double(json_get(row, numbers[i]), &x) || !(x > 0))
            return false;
    return true;
}

static int check_report(const char *name, const struct json_value *o,
                        struct qwick_err *e)
{
    const struct json_value *results = json_get(o, "results");
    if (!json_is(json_get(o, "identity"), JSON_STRING) ||
        !json_is(results, JSON_ARRAY))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: is no report of bench --json of this version: it "
                       "needs \"identity\" and \"results\"",
                       name);
    for (size_t i = 0; i < results->len; i++)
        if (!is_row(&results->items[i]))
            return err_set(e, QWICK_ERR_RUNTIME,
                           "%s: results[%zu]: lacks a test, or a batch, "
                           "threads, tok_s or percent_of_limit above 0",
                           name, i);
    return 0;
}

static int add_report(struct bench_baseline *b, const char *name,
                      const char *text, size_t n, struct qwick_err *e)
{
    struct json_doc *doc;
    if (ARRAY_RESERVE(b->docs, b->cap_docs, b->n_docs + 1, e) ||
        json_parse(&doc, name, text, n, QWICK_ERR_RUNTIME, e))
        return -1;
    b->docs[b->n_docs++] = doc;
    return check_report(name, json_root(doc), e);
}

/* Read one object per line. */
static int read_lines(struct bench_baseline *b, size_t n, struct qwick_err *e)
{
    size_t number = 0;
    for (size_t at = 0; at < n;) {
        char name[512];
        const char *line = b->text + at, *end = memchr(line, '\n', n - at);
        size_t len = end ? (size_t)(end - line) : n - at;
        snprintf(name, sizeof(name), "%s:%zu", b->path, ++number);
        if (strspn(line, " \t\r") < len && add_report(b, name, line, len, e))
            return -1;
        at += len + 1;
    }
    return 0;
}

static int read_file(struct bench_baseline *b, struct qwick_err *e)
{
    size_t n;
    if (map_read_all(b->path, MAX_FILE, &b->text, &n, e))
        return -1;
    const char *newline = memchr(b->text, '\n', n);
    struct qwick_err first;
    size_t offset;
    /* several models: a complete object in the first line, and more lines */
    if (newline && newline + 1 < b->text + n &&
        !json_check(b->path, b->text, (size_t)(newline - b->text),
                    QWICK_ERR_RUNTIME, &offset, &first))
        return read_lines(b, n, e);
    return add_report(b, b->path, b->text, n, e);
}

int bench_baseline_open(struct bench_baseline **out, const char *path)
{
    struct qwick_err e;
    struct bench_baseline *b = *out = calloc(1, sizeof(*b));
    if (!b)
        return msg_oom();
    b->path = path;
    return msg_result(read_file(b, &e), &e);
}

void bench_baseline_free(struct bench_baseline *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n_docs; i++)
        json_free(b->docs[i]);
    free(b->docs);
    free(b->text);
    free(b);
}

/* ---- settings ----------------------------------------------------------- */

enum { SHOWN = 200 };

/* A value of the file as text. */
static void value_text(const struct json_value *v, char out[SHOWN])
{
    snprintf(out, SHOWN, "%s",
             json_is(v, JSON_BOOL) ? v->boolean ? "true" : "false"
             : json_is(v, JSON_STRING) || json_is(v, JSON_NUMBER)
                 ? v->str
                 : json_type_name(v));
}

/* Compare one fact. Returns 0, or an exit status after printing a message. */
static int compare_fact(const struct bench_baseline *b,
                        const struct json_value *o, const char *key,
                        const char *ours, bool any)
{
    const struct json_value *v = json_get(o, key);
    char theirs[SHOWN];
    if (!v && strcmp(key, "numa") == 0)
        snprintf(theirs, SHOWN, "off"); /* a file from before the option */
    else
        value_text(v, theirs);
    if (strncmp(theirs, ours, SHOWN - 1) == 0)
        return 0;
    msg_say(any ? MSG_WARNING : MSG_ERROR,
            "%s: %s: is \"%s\", but \"%s\" in this run%s", b->path, key, theirs,
            ours, any ? "" : "; --compare-any compares anyway");
    return any ? 0 : QWICK_ERR_RUNTIME;
}

static int compare_facts(const struct bench_report *r,
                         const struct bench_model *m,
                         const struct json_value *o, bool any)
{
    static const char *const keys[] = {
        "identity", "cpu_name", "cpus", "isa",           "gemm", "kv_dtype",
        "exact",    "preload",  "numa", "prefill_chunk", "gen"};
    struct fact facts[BENCH_FACTS];
    size_t n = bench_model_facts(facts, r, m);
    int status = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !status; i++) {
        struct buf ours = {0};
        for (size_t k = 0; k < n && !status; k++)
            if (facts[k].json && strcmp(facts[k].json, keys[i]) == 0 &&
                report_plain(&ours, &facts[k]))
                status = msg_oom();
        if (!status)
            status = compare_fact(r->was, o, keys[i], ours.data, any);
        buf_free(&ours);
    }
    return status;
}

/* The object with the value of a key; NULL: none. */
static const struct json_value *find_object(const struct bench_baseline *b,
                                            const char *key, const char *value)
{
    for (size_t i = 0; i < b->n_docs; i++)
        if (json_equals(json_get(json_root(b->docs[i]), key), value))
            return json_root(b->docs[i]);
    return NULL;
}

int bench_baseline_match(const struct bench_report *r, struct bench_model *m,
                         bool any)
{
    struct bench_baseline *b = r->was;
    if (!b)
        return 0;
    const struct json_value *o = find_object(b, "identity", m->identity);
    if (!o && any)
        o = find_object(b, "model", m->name);
    if (!o && (r->n_models == 1 || any) && b->n_docs == 1)
        o = json_root(b->docs[0]);
    if (!o)
        return msg_failure(
            "%s: has no report of the model \"%s\" (identity %s)", b->path,
            m->name, m->identity);
    m->was = o;
    return compare_facts(r, m, o, any);
}

/* ---- rows --------------------------------------------------------------- */

static bool is_number(const struct json_value *v, size_t want)
{
    int64_t x;
    return !json_int(v, 0, INT64_MAX, &x) && (uint64_t)x == want;
}

/* Find the row of a line; false: there is none. */
static bool find_row(const struct bench_model *m, struct bench_line *l)
{
    const struct json_value *results = json_get(m->was, "results");
    const char *n = l->test == BENCH_PREFILL ? "tokens" : "depth";
    for (size_t i = 0; i < results->len; i++) {
        const struct json_value *row = &results->items[i];
        if (!json_equals(json_get(row, "test"), bench_test_name(l->test)) ||
            !is_number(json_get(row, n), l->n) ||
            !is_number(json_get(row, "batch"), l->batch) ||
            !is_number(json_get(row, "threads"), (size_t)l->threads))
            continue;
        json_double(json_get(row, "tok_s"), &l->was.tok_s);
        json_double(json_get(row, "percent_of_limit"), &l->was.share);
        l->was.share /= 100;
        return true;
    }
    return false;
}

int bench_baseline_rows(const struct bench_report *r,
                        const struct bench_model *m, struct bench_line *lines,
                        size_t n)
{
    char name[BENCH_NAME];
    for (size_t i = 0; i < n && r->was; i++)
        if (!find_row(m, &lines[i])) {
            bench_line_name(&lines[i], name);
            return msg_failure("%s: has no row %s, threads %d", r->was->path,
                               name, lines[i].threads);
        }
    return 0;
}

int bench_baseline_gate(const struct bench_report *r, double ratio)
{
    int status = 0;
    for (size_t k = 0; k < r->n_models; k++) {
        const struct bench_model *m = &r->models[k];
        for (size_t i = 0; i < m->n_lines; i++) {
            const struct bench_line *l = &m->lines[i];
            char name[BENCH_NAME];
            if (l->share / l->was.share >= ratio)
                continue; /* a NaN fails */
            bench_line_name(l, name);
            status = msg_failure(
                "%s: %s, threads %d: %.1f%% of the limit is %.3f of the "
                "%.1f%% in %s, below %g",
                m->name, name, l->threads, 100 * l->share,
                l->share / l->was.share, 100 * l->was.share, r->was->path,
                ratio);
        }
    }
    return status;
}
