#include "cli/opt/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/os.h"
#include "cli/opt/aliases.h"
#include "cli/io/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/sandbox/sandbox.h"
#include "cli/opt/settings.h"
#include "cli/io/term.h"
#include "file/json.h"

/* Merge --cache-dir into --prefix-cache=DIR, the older form. */
static int check_places(const struct opt_parsed *p, struct common_args *c)
{
    static const char *const with_cache[] = {"prefix-cache-size", NULL};
    if (c->cache_dir && c->prefix_cache.file &&
        !opt_yield(p, "cache-dir", "prefix-cache"))
        return opt_usage(p->verb, "--cache-dir: --prefix-cache names a "
                                  "directory as well");
    if (c->cache_dir) {
        c->prefix_cache.on = true;
        c->prefix_cache.file = c->cache_dir;
    }
    if (!c->prefix_cache.on)
        return opt_no_effect(p, with_cache, "without --prefix-cache");
    return -1;
}

/* Warn if the word right after a flag such as --profile-timing looks like a
 * path without blanks: perhaps the user meant it as the flag's value. */
static void warn_swallowed(const struct opt_parsed *p)
{
    const char *word = p->n_args ? p->args[0] : "";
    if (!p->before || strpbrk(word, " \t\n") || !strpbrk(word, "./"))
        return;
    msg_warn(
        "\"%s\" is taken as an argument, not as the file of --%s; for that "
        "use --%s %s",
        word, p->before->name, p->before->place, word);
}

/* ---- the chat template ---- */

static const char *const template_options[] = {"chat-template", "template-arg",
                                               "template-time", NULL};

/* The name in NAME=VALUE; 0: it has none. */
static size_t arg_name(const char *arg)
{
    const char *equals = strchr(arg, '=');
    return equals ? (size_t)(equals - arg) : 0;
}

static int check_template(const struct opt_parsed *p,
                          const struct common_args *c)
{
    static const char *const without[][2] = {
        {"raw", "with --raw"}, {"prompt-ids", "with --prompt-ids"}};
    const struct opt_texts *args = &c->template_args;
    for (size_t i = 0; i < 2; i++) {
        int r = opt_given(p, without[i][0])
                    ? opt_no_effect(p, template_options, without[i][1])
                    : -1;
        if (r >= 0)
            return r;
    }
    if (opt_find(p->verb, "chat") && !opt_given(p, "chat")) {
        int r = opt_no_effect(p, template_options, "without --chat");
        if (r >= 0)
            return r;
    }
    for (size_t i = 0; i < args->n; i++) {
        size_t n = arg_name(args->v[i]);
        if (!n)
            return opt_usage(p->verb, "--template-arg %s: is not NAME=VALUE",
                             args->v[i]);
        for (size_t k = 0; k < i; k++)
            if (arg_name(args->v[k]) == n &&
                memcmp(args->v[k], args->v[i], n) == 0)
                return opt_usage(p->verb, "--template-arg %.*s: is given twice",
                                 (int)n, args->v[i]);
    }
    return -1;
}

/* The arguments as one JSON object. A value that is no JSON is a text. */
static int template_json(const struct opt_texts *args, struct buf *out)
{
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    for (size_t i = 0; i < args->n; i++) {
        size_t n = arg_name(args->v[i]);
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
                              const struct common_args *c)
{
    if (strcmp(qwick_engine_info(eng)->template_name, "none") != 0)
        return 0;
    int r = opt_no_effect(c->parsed, template_options,
                          "with a checkpoint that has no chat template");
    return r >= 0 ? r : 0;
}

/* ---- aliases of models ---- */

/* If *model is an alias, replace it by what it means. *where becomes the alias
 * and its place. Both strings live as long as p. *is_name: whether the model
 * does not come from the command line, where a path wins over an alias. Returns
 * -1 to go on, or an exit status after printing a message. */
static int resolve_alias(const struct opt_parsed *p, const char *option,
                         bool no_config, const char **model, const char **where,
                         bool *is_name)
{
    struct aliases a = {0};
    struct qwick_err e = {0};
    const char *to = NULL;
    struct stat st;
    int r = -1;
    *where = NULL;
    *is_name = opt_is_setting(p, option);
    if (!*model || no_config || !p->settings ||
        (!*is_name && stat(*model, &st) == 0))
        return -1;
    if (aliases_read(&a, &e) || aliases_follow(&a, *model, &to, &e)) {
        r = msg_fail(&e);
    } else if (to) {
        char *own = strdup(to), *text = NULL;
        const struct alias *first = aliases_find(&a, *model);
        if (asprintf(&text, "%s, an alias (%s:%zu)", *model, a.path,
                     first->line) < 0)
            text = NULL;
        if (!own || !text) {
            free(own);
            free(text);
            r = msg_oom();
        } else if (settings_keep(p->settings, own) ||
                   settings_keep(p->settings, text)) {
            r = msg_oom();
        } else {
            *model = own;
            *where = text;
            *is_name = true;
        }
    }
    aliases_free(&a);
    return r;
}

/* Results that are files: "-" would be a file of that name. -o is where a verb
 * writes its result, so the verb knows what "-" means there. */
static int check_outputs(const struct opt_parsed *p)
{
    for (size_t i = 0; i < p->verb->n_opts; i++) {
        const struct opt *o = &p->verb->opts[i];
        const union opt_value *v =
            (const void *)((const char *)p->values + o->offset);
        bool writes = o->access == OPT_OPENS || o->access == OPT_REPLACES ||
                      o->access == OPT_REWRITES;
        if (writes && o->type == OPT_FILE && v->text &&
            strcmp(v->text, "-") == 0 && strcmp(o->name, "output") != 0)
            return opt_usage(p->verb,
                             "--%s -: names a file, not standard output",
                             o->name);
    }
    return -1;
}

int common_check(const struct opt_parsed *p, struct common_args *c)
{
    msg_level(c->quiet, c->verbose);
    c->parsed = p;
    int dash = check_outputs(p);
    if (dash >= 0)
        return dash;
    if (c->exact && c->kv && strcmp(c->kv, "f32") != 0 &&
        !opt_yield(p, "kv", "exact"))
        return opt_usage(p->verb, "--kv %s: --exact needs f32", c->kv);
    int r = check_places(p, c);
    if (r >= 0 ||
        (r = resolve_alias(p, "model", c->no_config, &c->model, &c->alias,
                           &c->model_is_name)) >= 0 ||
        (r = opt_conflict(p, "json", "jsonl")) >= 0)
        return r;
    warn_swallowed(p);
    return check_template(p, c);
}

int common_check_colours(const struct opt_parsed *p,
                         const struct common_args *c, const char *option)
{
    const char *const names[] = {option, NULL};
    if (!opt_given(p, option) || term_colours(c->color, out_is_tty()))
        return -1;
    return opt_no_effect(p, names,
                         c->color && strcmp(c->color, "never") == 0
                             ? "with --color never"
                         : out_is_tty()
                             ? "on a terminal without colours (NO_COLOR, or "
                               "TERM)"
                             : "where stdout is no terminal; add --color "
                               "always to get escape sequences there");
}

void common_hint_demo(const struct common_args *c)
{
    if (!c->model)
        msg_hint("this is the built-in demo model, which only knows shell "
                 "commands; -m MODEL takes another one");
}

/* ---- arguments that are texts ---- */

/* Whether argument i is a regular file's name. After "--" it is text. */
static bool names_file(const struct opt_parsed *p, size_t i)
{
    struct stat st;
    return i < p->n_plain && stat(p->args[i], &st) == 0 && S_ISREG(st.st_mode);
}

void common_warn_file(const struct opt_parsed *p)
{
    if (p->n_args == 1 && names_file(p, 0))
        msg_warn("\"%s\" is taken as text, but a file has this name; -f %s "
                 "reads it",
                 p->args[0], p->args[0]);
}

int common_refuse_words(const struct opt_parsed *p, const char *what,
                        const char *hint)
{
    for (size_t i = 0; i < p->n_args; i++)
        if (names_file(p, i))
            return opt_usage(p->verb,
                             "\"%s\": is a file; give -f for each file, as in "
                             "-f %s",
                             p->args[i], p->args[i]);
    return p->n_args > 1
               ? opt_usage(p->verb, "\"%s\": one %s only, quote it%s",
                           p->args[1], what, hint)
               : opt_usage(p->verb, "\"%s\": --prompt was given as well",
                           p->args[0]);
}

int common_check_records(const struct opt_parsed *p, struct common_args *c)
{
    int r = opt_conflict(p, "lines", "jsonl");
    if (r >= 0 || !c->input.n || c->lines)
        return r;
    c->jsonl = true;
    return opt_conflict(p, "input", "json");
}

/* Sources beside records. */
static int check_beside_records(const struct opt_parsed *p,
                                const struct common_args *c)
{
    const char *form = c->lines ? "lines" : "jsonl";
    if (p->n_args)
        return opt_usage(p->verb, "\"%s\": has no effect with --%s", p->args[0],
                         form);
    if (opt_given(p, "file"))
        return opt_usage(p->verb,
                         "--file: each file is one text; -i FILE names the "
                         "records of --%s",
                         form);
    return -1;
}

static int check_args(const struct opt_parsed *p, bool records)
{
    for (size_t i = 0; i < p->n_args; i++) {
        const char *arg = p->args[i];
        if (names_file(p, i))
            return opt_usage(p->verb,
                             "\"%s\": is a file, arguments are text; use "
                             "-f %s%s%s",
                             arg, arg,
                             records ? " for a text, or for records -i " : "",
                             records ? arg : "");
        if (p->n_args > 1 && i < p->n_plain && strcmp(arg, "-") == 0)
            return opt_usage(p->verb, "\"-\": is standard input, and cannot be "
                                      "combined with arguments");
    }
    return -1;
}

int common_no_input(const struct verb *v)
{
    return opt_usage(v, "no input; usage: qwick %s [OPTIONS] %s", v->name,
                     v->args);
}

int common_check_text(struct opt_parsed *p, struct common_args *c,
                      const char *what, enum text_args kind)
{
    int r = common_check_records(p, c);
    bool records = c->lines || c->jsonl;
    if (p->n_args == 1 && strcmp(p->args[0], "-") == 0)
        p->n_args = 0;
    if (r >= 0 || (kind != TEXT_IDS && (r = check_args(p, records)) >= 0))
        return r;
    if (kind == TEXT_ONE && p->n_args > 1)
        return common_refuse_words(p, what, "");
    if (records)
        return check_beside_records(p, c);
    if (p->n_args && opt_given(p, "file"))
        return opt_usage(p->verb, "--file: cannot be combined with %s%s",
                         kind == TEXT_IDS ? "" : "a ", what);
    return -1;
}

/* Messages that the engine logs while it opens. They are dropped if opening
 * fails: then only the error is printed. */
static struct {
    bool on;
    struct buf lines; /* per message: a digit for the level, the text, NUL */
} held;

static void put_line(enum qwick_log_level level, const char *line)
{
    progress_clear();
    if (level == QWICK_LOG_WARNING)
        msg_warn("%s", line);
    else
        msg_note("%s", line);
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
    static const enum qwick_log_level levels[] = {QWICK_LOG_WARNING,
                                                  QWICK_LOG_NOTE};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < held.lines.len;) {
            const char *line = held.lines.data + i;
            if (*line == '0' + k)
                put_line(levels[k], line + 1);
            i += strlen(line) + 1;
        }
    }
}

size_t common_cache_memory(void)
{
    const size_t most = (size_t)1 << 30;
    size_t part = os_available_memory() / 4; /* 0: unknown */
    return part && part < most ? part : most;
}

/* The options of an engine that computes as the common options say. */
static struct qwick_engine_options compute_options(const struct common_args *c)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    o.log = log_line;
    o.isa = c->isa;
    o.threads = (int)c->threads;
    o.exact = c->exact;
    if (c->kv)
        o.kv = strcmp(c->kv, "f32") == 0   ? QWICK_KV_F32
               : strcmp(c->kv, "f16") == 0 ? QWICK_KV_F16
                                           : QWICK_KV_Q8;
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

/* Open an engine, and print its messages unless that fails. alias: see
 * common_args. */
static int open_engine(struct qwick_engine **eng,
                       struct qwick_engine_options *o, const char *alias)
{
    struct qwick_err e = {0}, named;
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
    if (failed && alias) {
        err_set(&named, e.code, "%s: %s", alias, e.msg);
        e = named;
    }
    held.on = false;
    free(dir);
    if (own)
        progress_stop();
    int status = failed ? msg_fail(&e) : 0;
    if (!status)
        put_held();
    buf_free(&held.lines);
    return status;
}

/* ---- before the sandbox ---- */

/* Find a model, and keep its place as long as p. *place stays NULL without a
 * name. is_name: see qwick_model_find. Returns 0, or an exit status after
 * printing a message. */
static int find_place(const struct opt_parsed *p, const char *name,
                      const char *alias, bool is_name, const char **place)
{
    struct qwick_err e = {0};
    char *found, *other;
    if (!name)
        return 0;
    if (qwick_model_find(&found, name, is_name, &e)) {
        if (alias) {
            struct qwick_err why = e;
            err_set(&e, why.code, "%s: %s", alias, why.msg);
        }
        return msg_fail(&e);
    }
    if (!is_name && (other = qwick_model_same_name(name))) {
        msg_hint("%s: is the path; the model of this name in the Hugging Face "
                 "cache is %s",
                 name, other);
        free(other);
    }
    *place = found;
    return settings_keep(p->settings, found) ? msg_oom() : 0;
}

int common_find(struct common_args *c)
{
    const struct opt_parsed *p = c->parsed;
    const struct opt *o = opt_find(p->verb, "draft");
    const union opt_value *v =
        o ? (const void *)((const char *)p->values + o->offset) : NULL;
    bool is_name = false;
    int status;
    c->draft = v ? v->text : NULL;
    if (c->draft && (status = resolve_alias(p, "draft", c->no_config, &c->draft,
                                            &c->draft_alias, &is_name)) >= 0)
        return status;
    if ((status = find_place(p, c->model, c->alias, c->model_is_name,
                             &c->place)) != 0 ||
        (status = find_place(p, c->draft, c->draft_alias, is_name,
                             &c->draft_place)) != 0)
        return status;
    if (!opt_find(p->verb, "no-sandbox") || c->no_sandbox)
        return 0;
    const char *const places[] = {c->place, c->draft_place};
    return sandbox_load(p, c, places, 2);
}

int common_open(struct qwick_engine **eng, struct common_args *c,
                bool tokenizer_only)
{
    struct buf json = {0};
    int status = common_find(c);
    struct qwick_engine_options o = compute_options(c);
    o.model = c->model;
    o.place = c->place;
    o.tokenizer_only = tokenizer_only;
    o.prefix_cache_bytes = c->prefix_memory;
    o.prefix_cache_disk = c->prefix_cache.on;
    o.prefix_cache_dir = c->prefix_cache.file;
    o.prefix_cache_disk_bytes = (size_t)c->prefix_cache_size;
    o.chat_template = c->chat_template;
    o.template_time = c->template_time;
    *eng = NULL;
    if (status)
        return status;
    if (c->template_args.n && template_json(&c->template_args, &json)) {
        buf_free(&json);
        return msg_oom();
    }
    o.template_args = json.data;
    status = open_engine(eng, &o, c->alias);
    buf_free(&json);
    return status ? status : check_has_template(*eng, c);
}

int common_open_draft(struct qwick_engine **draft, const struct common_args *c,
                      struct qwick_engine *eng)
{
    struct qwick_engine_options o = compute_options(c);
    struct qwick_err e = {0};
    int status;
    *draft = NULL;
    if (!c->draft)
        return 0;
    o.model = c->draft;
    o.place = c->draft_place;
    if ((status = open_engine(draft, &o, c->draft_alias)) != 0)
        return status;
    if (qwick_draft_check(eng, *draft, &e))
        return msg_fail(&e);
    if (strcmp(qwick_engine_info(eng)->path, qwick_engine_info(*draft)->path) ==
        0)
        msg_warn("--draft: is the model itself, which is too slow to guess");
    return 0;
}
