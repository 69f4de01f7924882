/* models: list the models on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/os.h"
#include "base/utf8.h"
#include "cli/io/escape.h"
#include "cli/io/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"
#include "cli/opt/aliases.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick_tools.h"

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
    o.threads = (int)a->threads;
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

static void put_aliases(struct json_writer *w, const struct aliases *a)
{
    jw_array(w, "aliases");
    for (size_t i = 0; i < a->n; i++) {
        jw_object(w, NULL);
        jw_cstr(w, "name", a->v[i].name);
        jw_cstr(w, "model", a->v[i].model);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static int put_json(struct buf *b, const struct list *l,
                    const struct aliases *a)
{
    struct json_writer w = json_writer(b);
    jw_object(&w, NULL);
    put_real(&w, "bandwidth", l->bandwidth);
    jw_array(&w, "models");
    for (size_t i = 0; i < l->n; i++)
        put_model(&w, l, &l->v[i]);
    jw_end_array(&w);
    put_aliases(&w, a);
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

/* ---- aliases ------------------------------------------------------------- */

/* Append the lines of the aliases. */
static int put_alias_lines(struct buf *b, const struct aliases *a)
{
    int bad = 0;
    for (size_t i = 0; i < a->n && !bad; i++) {
        char *name = plain(a->v[i].name), *model = plain(a->v[i].model);
        bad = !name || !model || buf_printf(b, "%s = %s\n", name, model);
        free(name);
        free(model);
    }
    return bad ? -1 : 0;
}

/* Print the aliases. */
static int list_aliases(const struct args *a)
{
    struct aliases all;
    struct qwick_err e;
    struct buf b = {0};
    int status;
    if (aliases_read(&all, &e)) {
        status = msg_fail(&e);
    } else {
        struct json_writer w = json_writer(&b);
        if (a->json) {
            jw_object(&w, NULL);
            put_aliases(&w, &all);
            jw_end_object(&w);
            jw_newline(&w);
        }
        bool bad = a->json ? jw_status(&w) : put_alias_lines(&b, &all);
        status = bad                              ? msg_oom()
                 : out_write_names(b.data, b.len) ? QWICK_ERR_RUNTIME
                                                  : 0;
    }
    aliases_free(&all);
    buf_free(&b);
    return status;
}

/* Warn if nothing has the name that an alias means. */
static void check_target(const char *name)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng = NULL;
    struct aliases a;
    struct qwick_err e = {0};
    const char *to = NULL;
    char *place = NULL;
    o.tokenizer_only = true;
    if (!aliases_read(&a, &e) && !aliases_follow(&a, name, &to, &e) && to &&
        !qwick_model_find(&place, to, true, &e)) {
        o.model = to;
        o.place = place;
        if (!qwick_engine_open(&eng, &o, &e))
            e.code = 0;
    }
    free(place);
    if (e.code)
        msg_warn("%s: the alias is set, but its model cannot be opened: %s",
                 name, e.msg);
    qwick_engine_close(eng);
    aliases_free(&a);
}

/* alias NAME=MODEL */
static int set_alias(const char *text)
{
    const char *equals = strchr(text, '=');
    struct qwick_err e;
    if (!equals || !equals[1])
        return opt_usage(&verb_models, "alias: \"%s\": is not NAME=MODEL",
                         text);
    char *name = strndup(text, (size_t)(equals - text));
    if (!name)
        return msg_oom();
    int status = aliases_set(name, equals + 1, &e) ? msg_fail(&e) : 0;
    if (!status)
        check_target(name);
    free(name);
    return status;
}

static int remove_alias(const char *name)
{
    struct qwick_err e;
    return aliases_set(name, NULL, &e) ? msg_fail(&e) : 0;
}

/* "alias" and "unalias" with their arguments. */
static int change_aliases(struct opt_parsed *p)
{
    static const enum opt_id list_only[] = {OPT_no_speed, OPT_threads,
                                            OPT_NONE};
    bool add = strcmp(p->args[0], "alias") == 0;
    int status = opt_no_effects(p, list_only, OPT_NONE,
                                add ? "with alias" : "with unalias");
    if (status < 0 && (!add || p->n_args > 1))
        status = opt_no_effect(p, OPT_json, OPT_NONE, "when aliases change");
    if (status >= 0)
        return status;
    if (!add && p->n_args < 2)
        return opt_usage(p->verb, "unalias: needs the name of an alias");
    if (p->n_args < 2)
        return list_aliases(&p->a);
    status = 0;
    for (size_t i = 1; i < p->n_args && !status; i++)
        status = add ? set_alias(p->args[i]) : remove_alias(p->args[i]);
    return status;
}

/* ---- the verb -------------------------------------------------------------
 */

/* Append the table, and the aliases below it. */
static int put_text(struct buf *b, const struct list *l,
                    const struct aliases *a)
{
    return put_table(b, l) ||
                   (a->n && (buf_puts(b, l->n ? "\naliases\n" : "aliases\n") ||
                             put_alias_lines(b, a)))
               ? -1
               : 0;
}

/* Models that can be opened, as far as their directories show, and aliases.
 * Shells show these names when they complete one. */
static int put_names(struct buf *b, const struct list *l,
                     const struct aliases *a)
{
    size_t left_out = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct qwick_model *m = &l->v[i];
        if (m->why)
            continue;
        if (!escape_is_plain(m->name) || !escape_is_plain(m->id))
            left_out++;
        else if (buf_printf(b, "%s\t%s\n", m->name, m->id))
            return -1;
    }
    for (size_t i = 0; i < a->n; i++)
        if (escape_is_plain(a->v[i].model) &&
            buf_printf(b, "%s\t%s\n", a->v[i].name, a->v[i].model))
            return -1;
    if (left_out)
        msg_warn("%zu models are left out: their names have control characters "
                 "or are not UTF-8",
                 left_out);
    return 0;
}

static int list_models(const struct args *a)
{
    struct list l = {.memory = os_available_memory()};
    struct aliases names;
    struct qwick_err e;
    struct buf b = {0};
    bool cut;
    signals_catch();
    int (*list)(struct qwick_model **, size_t *, bool *, const volatile int *,
                struct qwick_err *) =
        a->names ? qwick_models_names : qwick_models_list;
    if (aliases_read(&names, &e) ||
        list(&l.v, &l.n, &cut, signals_flag(), &e)) {
        aliases_free(&names);
        return msg_fail(&e);
    }
    if (cut)
        msg_warn("there are too many files: the list is not complete");
    if (!l.n)
        msg_notice("there are no models; qwick pull ORG/NAME downloads one");
    if (!a->no_speed && !a->names && any_runs(&l))
        l.bandwidth = measure(a);
    int bad = a->names  ? put_names(&b, &l, &names)
              : a->json ? put_json(&b, &l, &names)
                        : put_text(&b, &l, &names);
    int status = bad                              ? msg_oom()
                 : out_write_names(b.data, b.len) ? QWICK_ERR_RUNTIME
                                                  : 0;
    qwick_models_free(l.v, l.n);
    aliases_free(&names);
    buf_free(&b);
    return status;
}

static int models_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const char *what = p->n_args ? p->args[0] : "";
    (void)eng;
    if (strcmp(what, "alias") == 0 || strcmp(what, "unalias") == 0)
        return change_aliases(p);
    return p->n_args ? opt_usage(p->verb,
                                 "\"%s\": only alias and unalias take "
                                 "arguments",
                                 what)
                     : list_models(&p->a);
}

const struct verb verb_models = {
    .bit = V_MODELS,
    .name = "models",
    .args = "[alias [NAME=MODEL] | unalias NAME]",
    .summary = "the models on this machine, and names for them",
    .about = "List the models in the Hugging Face cache, in the directories "
             "of\n$QWICK_MODEL_PATH and in the stores of Ollama, LM Studio, "
             "llama.cpp and\nModelScope: the name of each for -m, and why a "
             "model does not run. Reads only\nheaders. Tokens per second are "
             "an estimate: the read bandwidth of this machine,\nmeasured now, "
             "divided by the bytes that one token reads.\n\n"
             "alias gives a model a name for -m, unalias removes it. Without "
             "NAME=MODEL, alias\nlists these names.",
    .examples = "  qwick models\n"
                "  qwick models alias small=Qwen/Qwen3-0.6B\n"
                "  qwick models --json --no-speed\n"
                "  qwick models --names\n",
    .run = models_run,
};
