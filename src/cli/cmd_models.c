/* models: list the models on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/os.h"
#include "base/utf8.h"
#include "cli/common.h"
#include "cli/json_writer.h"
#include "cli/opt.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    bool no_speed;
};

#define ARG(field) offsetof(struct args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print JSON",
     .offset = COMMON(json)},
    {.name = "no-speed",
     .type = OPT_FLAG,
     .help = "do not estimate tokens per second",
     .offset = ARG(no_speed)},
    OPT_ROWS_THREADS,
    OPT_ROWS_BASIC,
};

/* Time for measuring the bandwidth. Its median varies by a few percent. */
static const double BANDWIDTH_MS = 100;

struct list {
    struct qwick_model *v;
    size_t n;
    double bandwidth; /* bytes per second; 0: not measured */
    size_t memory;    /* that weights may take; 0: unknown */
};

/* ---- speed ----------------------------------------------------------------
 */

/* Any engine measures the same memory; that of the demo model opens at once. */
static double measure(const struct args *a)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng = NULL;
    struct qwick_err e;
    double rate = 0;
    o.threads = (int)a->c.threads;
    o.lazy_blas = true;
    if (qwick_engine_open(&eng, &o, &e) ||
        qwick_bench_bandwidth(eng, BANDWIDTH_MS, &rate, &e))
        msg_warn("the bandwidth could not be measured: %s", e.msg);
    qwick_engine_close(eng);
    return rate;
}

static bool any_runs(const struct list *l)
{
    return l->n > 0 && !l->v[0].why; /* these are the first ones */
}

static bool fits(const struct list *l, const struct qwick_model *m)
{
    return !l->memory || m->weight_bytes <= l->memory;
}

/* Each token reads decode_bytes once. 0: unknown, or the disk decides. */
static double tokens_per_second(const struct list *l,
                                const struct qwick_model *m)
{
    return m->why || !m->decode_bytes || !fits(l, m)
               ? 0
               : l->bandwidth / (double)m->decode_bytes;
}

/* ---- JSON -----------------------------------------------------------------
 */

static void put_size(struct json_writer *w, const char *key, size_t n)
{
    if (n)
        jw_uint(w, key, n);
    else
        jw_null(w, key);
}

/* Four digits: more would change from run to run. */
static void put_real(struct json_writer *w, const char *key, double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", v);
    if (v > 0)
        jw_double(w, key, strtod(text, NULL));
    else
        jw_null(w, key);
}

static void put_model(struct json_writer *w, const struct list *l,
                      const struct qwick_model *m)
{
    jw_object(w, NULL);
    jw_cstr(w, "name", m->name);
    jw_cstr(w, "id", m->id);
    jw_cstr(w, "store", m->store);
    jw_cstr(w, "path", m->path);
    jw_cstr(w, "family", m->family);
    jw_cstr(w, "weights_dtype", m->weights_dtype);
    put_size(w, "n_params", m->n_params);
    put_size(w, "n_active_params", m->n_active_params);
    put_real(w, "bits", m->bits);
    jw_uint(w, "disk_bytes", m->disk_bytes);
    put_size(w, "weight_bytes", m->weight_bytes);
    put_size(w, "decode_bytes", m->decode_bytes);
    put_size(w, "n_ctx_max", m->n_ctx_max);
    jw_bool(w, "runs", !m->why);
    jw_cstr(w, "why", m->why);
    jw_cstr(w, "pull", m->pull);
    if (m->weight_bytes)
        jw_bool(w, "fits_memory", fits(l, m));
    else
        jw_null(w, "fits_memory");
    put_real(w, "tokens_per_second", tokens_per_second(l, m));
    jw_end_object(w);
}

static int put_json(struct buf *b, const struct list *l)
{
    struct json_writer w = json_writer(b);
    jw_object(&w, NULL);
    put_real(&w, "bandwidth", l->bandwidth);
    jw_array(&w, "models");
    for (size_t i = 0; i < l->n; i++)
        put_model(&w, l, &l->v[i]);
    jw_end_array(&w);
    jw_end_object(&w);
    jw_newline(&w);
    return jw_status(&w);
}

/* ---- the table ------------------------------------------------------------
 */

enum { N_COLUMNS = 9 };

static const struct {
    const char *title;
    bool left;
} columns[N_COLUMNS] = {
    {"name", true},     {"family", true},      {"params", false},
    {"active", false},  {"bits", false},       {"size", false},
    {"context", false}, {"est. tok/s", false}, {"runs", true},
};

struct row {
    char *cells[N_COLUMNS];
};

/* A text of a file or a file's name: whole if it is plain, else quoted, so that
 * no control byte and no end of line gets out. */
static char *plain(const char *s)
{
    struct buf b = {0};
    size_t n = strlen(s), i = 0;
    while (i < n && (unsigned char)s[i] > 31 && s[i] != 127)
        i++;
    bool is_plain = i == n && utf8_valid(s, n) == n;
    if (is_plain ? buf_puts(&b, s) : buf_json_string(&b, s, n))
        buf_free(&b);
    return buf_take(&b, NULL);
}

static char *size_cell(size_t n, const char *unit)
{
    char text[32] = "-";
    if (n)
        size_text(n, unit, text);
    return strdup(text);
}

static char *context_cell(size_t n)
{
    char text[32] = "-";
    if (n)
        snprintf(text, sizeof text, "%zu", n);
    return strdup(text);
}

static char *real_cell(double v)
{
    char text[32] = "-";
    if (v > 0)
        snprintf(text, sizeof text, v < 9.95 ? "%.1f" : "%.0f", v);
    return strdup(text);
}

static char *runs_cell(const struct qwick_model *m)
{
    char *why = m->why ? plain(m->why) : NULL, *text = NULL;
    if (!m->why)
        return strdup("yes");
    if (why &&
        asprintf(&text, "no: %s%s%s", why, m->pull ? "; try qwick pull " : "",
                 m->pull ? m->pull : "") < 0)
        text = NULL;
    free(why);
    return text;
}

static int fill_row(struct row *r, const struct list *l,
                    const struct qwick_model *m)
{
    char *const cells[N_COLUMNS] = {
        plain(m->name),
        plain(m->family ? m->family : "-"),
        size_cell(m->n_params, ""),
        size_cell(m->n_active_params, ""),
        real_cell(m->bits),
        size_cell(m->disk_bytes, "B"),
        context_cell(m->n_ctx_max),
        m->weight_bytes && !m->why && !fits(l, m)
            ? strdup("(disk)")
            : real_cell(tokens_per_second(l, m)),
        runs_cell(m),
    };
    memcpy(r->cells, cells, sizeof cells);
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (!cells[i])
            return -1;
    return 0;
}

/* The number of columns of a name on a terminal. */
static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static int put_row(struct buf *b, const struct row *r,
                   const size_t widths[N_COLUMNS])
{
    int bad = 0;
    for (size_t i = 0; i < N_COLUMNS && !bad; i++) {
        const char *s = r->cells[i];
        int pad = (int)(widths[i] - width_of(s));
        bool last = i + 1 == N_COLUMNS;
        if (columns[i].left)
            bad = buf_printf(b, "%s%*s", s, last ? 0 : pad, "");
        else
            bad = buf_printf(b, "%*s%s", pad, "", s);
        bad |= buf_puts(b, last ? "\n" : "  ");
    }
    return bad ? -1 : 0;
}

static int put_rows(struct buf *b, struct row *rows, size_t n)
{
    size_t widths[N_COLUMNS] = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < N_COLUMNS; k++) {
            size_t w = width_of(rows[i].cells[k]);
            widths[k] = w > widths[k] ? w : widths[k];
        }
    for (size_t i = 0; i < n; i++)
        if (put_row(b, &rows[i], widths))
            return -1;
    return 0;
}

static int put_table(struct buf *b, const struct list *l)
{
    struct row *rows = calloc(l->n + 1, sizeof *rows);
    int bad = rows ? 0 : -1;
    if (!l->n) {
        free(rows);
        return bad;
    }
    for (size_t k = 0; k < N_COLUMNS && !bad; k++)
        if (!(rows[0].cells[k] = strdup(columns[k].title)))
            bad = -1;
    for (size_t i = 0; i < l->n && !bad; i++)
        bad = fill_row(&rows[i + 1], l, &l->v[i]);
    if (!bad)
        bad = put_rows(b, rows, l->n + 1);
    for (size_t i = 0; rows && i <= l->n; i++)
        for (size_t k = 0; k < N_COLUMNS; k++)
            free(rows[i].cells[k]);
    free(rows);
    return bad;
}

/* ---- the verb -------------------------------------------------------------
 */

static int models(const struct args *a)
{
    struct list l = {.memory = os_available_memory()};
    struct qwick_err e;
    struct buf b = {0};
    bool cut;
    signals_catch();
    if (qwick_models_list(&l.v, &l.n, &cut, signals_flag(), &e))
        return msg_fail(&e);
    if (cut)
        msg_warn("there are too many files: the list is not complete");
    if (!l.n)
        msg_notice("there are no models; qwick pull ORG/NAME downloads one");
    if (!a->no_speed && any_runs(&l))
        l.bandwidth = measure(a);
    int bad = a->c.json ? put_json(&b, &l) : put_table(&b, &l);
    int status = bad                        ? msg_oom()
                 : out_write(b.data, b.len) ? QWICK_ERR_RUNTIME
                                            : 0;
    qwick_models_free(l.v, l.n);
    buf_free(&b);
    return status;
}

static int run(const struct verb *v, int argc, char **argv)
{
    static const char *const speed_only[] = {"threads", NULL};
    struct args a = {0};
    struct opt_parsed p;
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0 && p.n_args)
        status = opt_usage(v, "\"%s\": takes no arguments", p.args[0]);
    if (status < 0 && a.no_speed)
        status = opt_no_effect(&p, speed_only, "with --no-speed");
    if (status < 0)
        status = models(&a);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_models = {
    .name = "models",
    .args = "",
    .summary = "the models on this machine",
    .about = "List the models in the Hugging Face cache, in the directories "
             "of\n$QWICK_MODEL_PATH and in the stores of Ollama, LM Studio, "
             "llama.cpp and\nModelScope: the name of each for -m, and why a "
             "model does not run. Reads only\nheaders. Tokens per second are "
             "an estimate: the read bandwidth of this machine,\nmeasured now, "
             "divided by the bytes that one token reads.",
    .examples = "  qwick models\n"
                "  qwick models --json --no-speed\n",
    OPT_TABLE(opts),
    .run = run,
};
