/* Finding and opening the models that the options name. The sandbox's first
 * part begins before a file of them is parsed. */
#include "cli/sandbox/open_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/os.h"
#include "file/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/opt/common.h"
#include "cli/opt/settings.h"
#include "cli/sandbox/sandbox.h"
#include "file/json.h"
#include "qwick_tools.h"

/* ---- the chat template ---- */

/* The arguments as one JSON object. A value that is no JSON is a text. */
static int template_json(const struct strings *args, struct buf *out)
{
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    for (size_t i = 0; i < args->n; i++) {
        size_t n = common_arg_name(args->v[i]);
        const char *value = args->v[i] + n + 1;
        struct json_doc *doc = NULL;
        struct qwick_err e = {0};
        bool bad = json_parse(&doc, "value", value, strlen(value),
                              QWICK_ERR_USAGE, &e);
        if (bad && e.code == QWICK_ERR_MEMORY)
            return -1;
        jw_key(&w, args->v[i], n);
        if (bad)
            jw_cstr(&w, NULL, value);
        else
            jw_value(&w, NULL, json_root(doc));
        json_free(doc);
    }
    jw_end_object(&w);
    return jw_status(&w);
}

/* Options of the template need one: exit status 2 with the message printed. */
static int check_has_template(const struct qwick_engine *eng,
                              struct opt_parsed *p)
{
    static const enum opt_id options[] = {OPT_chat_template, OPT_template_arg,
                                          OPT_template_time, OPT_NONE};
    if (strcmp(qwick_engine_info(eng)->template_name, "none") != 0)
        return 0;
    int r = opt_no_effects(p, options, OPT_NONE,
                           "with a checkpoint that has no chat template");
    return r >= 0 ? r : 0;
}

/* Refuse a text encoder, or another model without a head, before anything else
 * is said about it. */
static int check_has_logits(const struct qwick_engine *eng,
                            const struct opt_parsed *p)
{
    struct qwick_err e;
    return p->verb->needs_logits && qwick_engine_need_logits(eng, &e)
               ? msg_fail(&e)
               : 0;
}

/* ---- engines ---- */

/* Messages that the engine logs while it opens. They are dropped if opening
 * fails: then only the error is printed. */
static struct {
    bool on;
    struct buf lines; /* per message: a digit for the level, the text, NUL */
} held;

static void put_line(enum qwick_log_level level, const char *line)
{
    progress_clear();
    msg_say(level == QWICK_LOG_WARNING ? MSG_WARNING : MSG_NOTE, "%s", line);
}

static void log_line(void *ctx, enum qwick_log_level level, const char *line)
{
    (void)ctx;
    if (!held.on)
        put_line(level, line);
    else if (buf_putc(&held.lines, level == QWICK_LOG_WARNING ? '0' : '1') ||
             buf_append(&held.lines, line, strlen(line) + 1))
        held.lines.len = 0; /* out of memory: drop the line */
}

/* Print the held messages, warnings first. */
static void put_held(void)
{
    for (char level = '0'; level <= '1'; level++)
        for (size_t i = 0; i < held.lines.len;) {
            const char *line = held.lines.data + i;
            if (*line == level)
                put_line(level == '0' ? QWICK_LOG_WARNING : QWICK_LOG_NOTE,
                         line + 1);
            i += strlen(line) + 1;
        }
}

size_t open_model_cache_memory(void)
{
    const size_t most = (size_t)1 << 30;
    size_t part = os_available_memory() / 4; /* 0: unknown */
    return part && part < most ? part : most;
}

/* The kind of KV cache with this name, a choice of --kv; NULL: the default. */
static enum qwick_kv kv_of(const char *name)
{
    const char *other;
    for (int i = 1; name && (other = qwick_kv_name((enum qwick_kv)i)); i++)
        if (strcmp(name, other) == 0)
            return (enum qwick_kv)i;
    return QWICK_KV_DEFAULT;
}

/* The options of an engine that computes as the common options say. */
static struct qwick_engine_options compute_options(const struct args *c)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    o.log = log_line;
    o.isa = c->isa;
    o.threads = (int)c->threads;
    o.exact = c->exact;
    o.kv = kv_of(c->kv);
    o.prefill_chunk = (size_t)c->prefill_chunk;
    o.preload = c->preload;
    if (c->numa)
        o.numa = strcmp(c->numa, "bind") == 0         ? QWICK_NUMA_BIND
                 : strcmp(c->numa, "interleave") == 0 ? QWICK_NUMA_INTERLEAVE
                                                      : QWICK_NUMA_OFF;
    o.core = c->core;
    o.lazy_blas = true; /* no other thread of this program uses the
                           environment */
    return o;
}

/* Print why a model failed. alias: see opt_models. Returns its exit status. */
static int fail_of(const char *alias, const struct qwick_err *e)
{
    return alias ? msg_stop(e->code, "%s: %s", alias, e->msg) : msg_fail(e);
}

/* Open an engine, and print its messages unless that fails. alias: see
 * opt_models. */
static int open_engine(struct qwick_engine **eng,
                       struct qwick_engine_options *o, const char *alias)
{
    struct qwick_err e = {0};
    char *dir = NULL;
    o->tuning_dir = o->prefix_cache_dir;
    if (!o->tuning_dir) {
        if (qwick_cache_dir(&dir, &e) && e.code == QWICK_ERR_MEMORY)
            return msg_fail(&e);
        o->tuning_dir = dir; /* NULL: the environment names none */
    }
    bool own = !progress_on(); /* not a part of another task */
    if (own) {
        progress_start("load");
        progress_show(o->preload ? "copying the weights to memory"
                                 : "the model");
    }
    held.on = true;
    int failed = qwick_engine_open(eng, o, &e);
    held.on = false;
    free(dir);
    if (own)
        progress_stop();
    int status = failed ? fail_of(alias, &e) : 0;
    if (!status)
        put_held();
    buf_free(&held.lines);
    return status;
}

/* ---- before the sandbox ---- */

/* Find a model, and keep its place as long as p. *place stays NULL without a
 * name. is_name: see qwick_model_find. Returns 0, or an exit status after
 * printing a message. */
static int find_place(struct opt_parsed *p, const char *name, const char *alias,
                      bool is_name, const char **place)
{
    struct qwick_err e = {0};
    char *found, *other;
    if (!name)
        return 0;
    if (qwick_model_find(&found, name, is_name, &e))
        return fail_of(alias, &e);
    if (!is_name && (other = qwick_model_same_name(name))) {
        msg_hint("%s: is the path; the model of this name in the Hugging Face "
                 "cache is %s",
                 name, other);
        free(other);
    }
    *place = found;
    return settings_keep(p->settings, found) ? msg_oom() : 0;
}

/* ---- adapters ---- */

/* The ":SCALE" at the end of a value, if it is a number and no file has the
 * whole value as its name. */
static char *find_scale(char *value, double *scale)
{
    char *colon = strrchr(value, ':');
    struct stat st;
    return colon && stat(value, &st) != 0 && !opt_number(colon + 1, scale)
               ? colon
               : NULL;
}

/* Read a value of --lora, [NAME=]PATH[:SCALE], which is changed. */
static void read_lora(struct qwick_lora *out, char *value, bool named)
{
    struct stat st;
    char *equals = named ? strchr(value, '=') : NULL, *slash, *colon;
    *out = (struct qwick_lora){.path = value, .scale = 1};
    slash = equals ? strchr(value, '/') : NULL;
    if (equals && equals > value && (!slash || equals < slash) &&
        stat(value, &st) != 0) {
        *equals = '\0';
        out->name = value;
        out->path = equals + 1;
    }
    if ((colon = find_scale((char *)(uintptr_t)out->path, &out->scale)))
        *colon = '\0';
}

/* Read all values. Verbs that open several engines do it once. */
static int read_loras(struct opt_parsed *p)
{
    const struct strings *values = &p->a.lora;
    struct opt_models *m = &p->models;
    if (!opt_row(p->verb, OPT_lora) || !values->n || m->loras)
        return 0;
    struct qwick_lora *loras = calloc(values->n, sizeof(*loras));
    if (!loras || settings_keep(p->settings, (char *)loras))
        return msg_oom();
    for (size_t i = 0; i < values->n; i++) {
        char *own = strdup(values->v[i]);
        if (!own || settings_keep(p->settings, own))
            return msg_oom();
        read_lora(&loras[i], own, p->verb->bit == V_SERVE);
    }
    m->loras = loras;
    m->n_loras = values->n;
    return 0;
}

/* A verb has one option at most that names a second model. */
static const char *second_model(const struct args *a)
{
    return a->draft ? a->draft : a->against;
}

int open_model_find(struct opt_parsed *p)
{
    struct opt_models *m = &p->models;
    const enum opt_id second = p->a.draft ? OPT_draft : OPT_against;
    bool is_name = false;
    int status = read_loras(p);
    if (status)
        return status;
    if (second_model(&p->a) &&
        (status = common_resolve_alias(p, second, &m->second_alias,
                                       &is_name)) >= 0)
        return status;
    if ((status = find_place(p, p->a.model, m->alias, m->is_name, &m->place)) ||
        (status = find_place(p, second_model(&p->a), m->second_alias, is_name,
                             &m->second_place)))
        return status;
    const char *const places[] = {m->place, m->second_place};
    return sandbox_load(p, places, 2);
}

int open_model_load(struct qwick_engine **eng, struct opt_parsed *p,
                    bool tokenizer_only)
{
    const struct args *a = &p->a;
    struct buf json = {0};
    struct qwick_engine_options o = compute_options(a);
    o.model = a->model;
    o.place = p->models.place;
    o.tokenizer_only = tokenizer_only;
    o.loras = p->models.loras;
    o.n_loras = p->models.n_loras;
    o.loras_apart = p->verb->bit == V_SERVE;
    o.prefix_cache_bytes = p->models.cache_memory;
    o.prefix_cache_disk = a->prefix_cache.on;
    o.prefix_cache_dir = a->prefix_cache.file;
    o.prefix_cache_disk_bytes = (size_t)a->prefix_cache_size;
    o.chat_template = a->chat_template;
    o.template_time = a->template_time;
    *eng = NULL;
    if (a->template_arg.n && template_json(&a->template_arg, &json)) {
        buf_free(&json);
        return msg_oom();
    }
    o.template_args = json.data;
    int status = open_engine(eng, &o, p->models.alias);
    buf_free(&json);
    if (status || (status = check_has_logits(*eng, p)) != 0)
        return status;
    return check_has_template(*eng, p);
}

int open_model(struct qwick_engine **eng, struct opt_parsed *p,
               bool tokenizer_only)
{
    int status = open_model_find(p);
    *eng = NULL;
    return status ? status : open_model_load(eng, p, tokenizer_only);
}

/* Open the second model, as these options say. */
static int open_second(struct qwick_engine **out, const struct opt_parsed *p,
                       struct qwick_engine_options *o)
{
    o->model = second_model(&p->a);
    o->place = p->models.second_place;
    return open_engine(out, o, p->models.second_alias);
}

int open_model_reference(struct qwick_engine **out, const struct opt_parsed *p,
                         struct qwick_engine *eng)
{
    struct qwick_engine_options o = compute_options(&p->a);
    struct qwick_err e = {0};
    *out = NULL;
    o.kv = QWICK_KV_DEFAULT;
    int status = open_second(out, p, &o);
    if (status)
        return status;
    return qwick_compare_check(eng, *out, &e) ? msg_fail(&e) : 0;
}

int open_model_exact(struct qwick_engine **out, struct opt_parsed *p,
                     const char *result)
{
    struct qwick_engine_options o = compute_options(&p->a);
    *out = NULL;
    o.exact = true;
    o.model = result ? result : p->a.model;
    o.place = result ? result : p->models.place;
    if (!result) {
        o.loras = p->models.loras;
        o.n_loras = p->models.n_loras;
    }
    int status = open_engine(out, &o, result ? NULL : p->models.alias);
    if (status)
        return status;
    struct qwick_err e;
    return qwick_engine_need_logits(*out, &e) ? msg_fail(&e) : 0;
}

int open_model_draft(struct qwick_engine **draft, const struct opt_parsed *p,
                     struct qwick_engine *eng)
{
    struct qwick_engine_options o = compute_options(&p->a);
    struct qwick_err e = {0};
    int status;
    *draft = NULL;
    if (!p->a.draft)
        return 0;
    if ((status = open_second(draft, p, &o)) != 0)
        return status;
    if (qwick_draft_check(eng, *draft, &e))
        return msg_fail(&e);
    if (strcmp(qwick_engine_info(eng)->path, qwick_engine_info(*draft)->path) ==
        0)
        msg_warn("--draft: is the model itself, which is too slow to guess");
    return 0;
}
