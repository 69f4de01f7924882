/* models: list the models on this machine, name them, remove them. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/os.h"
#include "cli/io/escape.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/models/models_remove.h"
#include "cli/opt/aliases.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/report/report.h"
#include "file/json_writer.h"
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
static double measure_bandwidth(const struct args *a)
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

enum { MODEL_FACTS = 22 };

/* The facts of a model. runs: whether it runs, for people. */
static size_t model_facts(struct fact *out, const struct list *l,
                          const struct qwick_model *m, const char *runs)
{
    double speed = tokens_per_second(l, m);
    bool disk = m->weight_bytes && !m->why && !fits(l, m);
    const struct fact facts[] = {
        CELL("name", NULL, "name", NULL, -1, AS_NAME(m->name)),
        FACT("id", AS_TEXT(m->id)),
        FACT("store", AS_TEXT(m->store)),
        FACT("path", AS_TEXT(m->path)),
        CELL("family", NULL, "family", NULL, -1, AS_NAME(m->family)),
        FACT("weights_dtype", AS_TEXT(m->weights_dtype)),
        CELL("n_params", NULL, "params", NULL, 1, AS_LARGE(m->n_params),
             .unknown = !m->n_params),
        CELL("n_active_params", NULL, "active", NULL, 1,
             AS_LARGE(m->n_active_params), .unknown = !m->n_active_params),
        CELL("bits", NULL, "bits", NULL, 1, AS_ESTIMATE(m->bits, 4)),
        FACT("disk_bytes", AS_BYTES(m->disk_bytes)),
        CELL(NULL, NULL, "size", NULL, 1, AS_BYTES(m->disk_bytes),
             .unknown = !m->disk_bytes),
        FACT("weight_bytes", AS_BYTES(m->weight_bytes),
             .unknown = !m->weight_bytes),
        FACT("decode_bytes", AS_BYTES(m->decode_bytes),
             .unknown = !m->decode_bytes),
        CELL("n_ctx_max", NULL, "context", NULL, 1, AS_COUNT(m->n_ctx_max),
             .unknown = !m->n_ctx_max),
        FACT("runs", AS_BOOL(!m->why)),
        FACT("why", AS_TEXT(m->why)),
        FACT("pull", AS_TEXT(m->pull)),
        FACT("fits_memory", AS_BOOL(fits(l, m)), .unknown = !m->weight_bytes),
        FACT("tokens_per_second", AS_ESTIMATE(speed, 4)),
        CELL(NULL, NULL, "est. tok/s", NULL, !disk, AS_ESTIMATE(speed, 4)),
        CELL(NULL, NULL, "est. tok/s", NULL, disk, AS_TEXT("(disk)")),
        CELL(NULL, NULL, "runs", NULL, -1, AS_TEXT(runs)),
    };
    memcpy(out, facts, sizeof facts);
    return sizeof facts / sizeof *facts;
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

static void model_json(struct json_writer *w, const struct list *l,
                       const struct qwick_model *m)
{
    struct fact facts[MODEL_FACTS];
    jw_object(w, NULL);
    report_json(w, facts, model_facts(facts, l, m, NULL));
    jw_end_object(w);
}

static void models_json(struct buf *b, const struct list *l,
                        const struct aliases *a)
{
    struct json_writer w = jw_line(b);
    jw_known_double(&w, "bandwidth", l->bandwidth, 4);
    jw_array(&w, "models");
    for (size_t i = 0; i < l->n; i++)
        model_json(&w, l, &l->v[i]);
    jw_end_array(&w);
    put_aliases(&w, a);
    jw_end_line(&w);
}

/* ---- the table ------------------------------------------------------------
 */

/* Whether a model runs, and why not. */
static void put_runs(struct buf *b, const struct qwick_model *m)
{
    buf_puts(b, m->why ? "no: " : "yes");
    if (m->why)
        report_name(b, m->why);
    if (m->why && m->pull)
        buf_printf(b, "; try qwick pull %s", m->pull);
}

static void models_table(struct buf *b, const struct list *l)
{
    struct fact facts[MODEL_FACTS];
    struct report_table t = {0};
    struct buf runs = {0};
    int bad = 0;
    for (size_t i = 0; i < l->n && !bad; i++) {
        runs.len = 0;
        put_runs(&runs, &l->v[i]);
        bad = report_table_add(&t, facts,
                               model_facts(facts, l, &l->v[i], runs.data));
    }
    report_table_put(b, &t, bad);
    buf_free_part(&runs, b);
}

/* ---- aliases ------------------------------------------------------------- */

/* Append the lines of the aliases. */
static void put_alias_lines(struct buf *b, const struct aliases *a)
{
    for (size_t i = 0; i < a->n; i++) {
        report_name(b, a->v[i].name);
        buf_puts(b, " = ");
        report_name(b, a->v[i].model);
        buf_putc(b, '\n');
    }
}

/* Print the aliases. */
static int list_aliases(const struct args *a)
{
    struct aliases all;
    struct qwick_err e;
    struct buf b = {0};
    if (aliases_read(&all, &e)) {
        aliases_free(&all);
        return msg_fail(&e);
    }
    if (a->json) {
        struct json_writer w = jw_line(&b);
        put_aliases(&w, &all);
        jw_end_line(&w);
    } else {
        put_alias_lines(&b, &all);
    }
    aliases_free(&all);
    return out_print(&b, out_write_names);
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
    int status = msg_result(aliases_set(name, equals + 1, &e), &e);
    if (!status)
        check_target(name);
    free(name);
    return status;
}

static int remove_alias(const char *name)
{
    struct qwick_err e;
    return msg_result(aliases_set(name, NULL, &e), &e);
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
static void models_text(struct buf *b, const struct list *l,
                        const struct aliases *a)
{
    models_table(b, l);
    if (a->n)
        buf_puts(b, l->n ? "\naliases\n" : "aliases\n");
    put_alias_lines(b, a);
}

/* Models that can be opened, as far as their directories show, and aliases.
 * Shells show these names when they complete one. */
static void models_names(struct buf *b, const struct list *l,
                         const struct aliases *a)
{
    size_t left_out = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct qwick_model *m = &l->v[i];
        if (m->why)
            continue;
        if (!escape_is_plain(m->name) || !escape_is_plain(m->id))
            left_out++;
        else
            buf_printf(b, "%s\t%s\n", m->name, m->id);
    }
    for (size_t i = 0; i < a->n; i++)
        if (escape_is_plain(a->v[i].model))
            buf_printf(b, "%s\t%s\n", a->v[i].name, a->v[i].model);
    if (left_out)
        msg_warn("%zu models are left out: their names have control characters "
                 "or are not UTF-8",
                 left_out);
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
        l.bandwidth = measure_bandwidth(a);
    (a->names  ? models_names
     : a->json ? models_json
               : models_text)(&b, &l, &names);
    qwick_models_free(l.v, l.n);
    aliases_free(&names);
    return out_print(&b, out_write_names);
}

static int models_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const char *what = p->n_args ? p->args[0] : "";
    (void)eng;
    if (strcmp(what, "rm") == 0)
        return models_remove(p);
    int status = opt_no_effect(p, OPT_force, OPT_NONE, "without rm");
    if (status >= 0)
        return status;
    if (strcmp(what, "alias") == 0 || strcmp(what, "unalias") == 0)
        return change_aliases(p);
    return p->n_args ? opt_usage(p->verb,
                                 "\"%s\": only alias, unalias and rm take "
                                 "arguments",
                                 what)
                     : list_models(&p->a);
}

const struct verb verb_models = {
    .bit = V_MODELS,
    .name = "models",
    .group = VERBS_MODELS,
    .args = "[alias [NAME=MODEL] | unalias NAME | rm NAME...]",
    .summary = "the models on this machine, and names for them",
    .about = "List the models in the Hugging Face cache, in the directories "
             "of\n$QWICK_MODEL_PATH and in the stores of Ollama, LM Studio, "
             "llama.cpp and\nModelScope: the name of each for -m, and why a "
             "model does not run. Reads only\nheaders. Tokens per second are "
             "an estimate: the read bandwidth of this machine,\nmeasured now, "
             "divided by the bytes that one token reads.\n\n"
             "alias gives a model a name for -m, unalias removes it. Without "
             "NAME=MODEL, alias\nlists these names.\n\n"
             "rm removes models from the Hugging Face cache and prints the "
             "bytes that are free\nthen: ORG/NAME is a snapshot, ID:Q8_0 one "
             "GGUF file of it. Files that another\nsnapshot shares stay. It "
             "asks first; without a terminal it needs --force. Models\nin the "
             "stores of other programs are refused.",
    .examples = "  qwick models\n"
                "  qwick models alias small=Qwen/Qwen3-0.6B\n"
                "  qwick models --json --no-speed\n"
                "  qwick models --names\n",
    .run = models_run,
};
