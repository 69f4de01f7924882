#include "cli/opt/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/os.h"
#include "cli/io/out.h"
#include "cli/io/term.h"
#include "cli/opt/aliases.h"
#include "cli/opt/settings.h"

/* Merge the older form of a flag with a file, --NAME-dir FILE, into
 * --NAME=FILE. */
static int merge_place(struct opt_parsed *p, enum opt_id flag,
                       enum opt_id older, const char *what)
{
    struct opt_flag_file *f = opt_value_at(p, opt_row(p->verb, flag));
    const char **file = opt_value_at(p, opt_row(p->verb, older));
    if (*file && f->file && !opt_yield(p, older, flag))
        return opt_usage(p->verb, "--%s: --%s names a %s as well",
                         opt_name(older), opt_name(flag), what);
    if (*file)
        *f = (struct opt_flag_file){true, *file};
    return -1;
}

/* Warn if the word right after a flag such as --profile-timing looks like a
 * path without blanks: perhaps the user meant it as the flag's value. */
static void warn_swallowed(const struct opt_parsed *p)
{
    const char *word = p->n_args ? p->args[0] : "";
    if (!p->before || !p->before->place || strpbrk(word, " \t\n") || !strpbrk(word, "./"))
        return;
    msg_warn(
        "\"%s\" is taken as an argument, not as the file of --%s; for that "
        "use --%s %s",
        word, p->before->name, p->before->place, word);
}

/* ---- the chat template ---- */

size_t common_arg_name(const char *arg)
{
    const char *equals = strchr(arg, '=');
    return equals ? (size_t)(equals - arg) : 0;
}

static int check_template_args(const struct opt_parsed *p)
{
    const struct strings *args = &p->a.template_arg;
    for (size_t i = 0; i < args->n; i++) {
        size_t n = common_arg_name(args->v[i]);
        if (!n)
            return opt_usage(p->verb, "--template-arg %s: is not NAME=VALUE",
                             args->v[i]);
        for (size_t k = 0; k < i; k++)
            if (common_arg_name(args->v[k]) == n &&
                memcmp(args->v[k], args->v[i], n) == 0)
                return opt_usage(p->verb, "--template-arg %.*s: is given twice",
                                 (int)n, args->v[i]);
    }
    return -1;
}

/* ---- aliases of models ---- */

int common_resolve_alias(struct opt_parsed *p, enum opt_id option,
                         const char **where, bool *is_name)
{
    const char **model = opt_value_at(p, opt_row(p->verb, option));
    struct aliases a = {0};
    struct qwick_err e = {0};
    const char *to = NULL;
    struct stat st;
    int r = -1;
    *where = NULL;
    *is_name = opt_is_setting(p, option);
    if (!*model || p->a.no_config || !p->settings ||
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
    for (const struct opt *o = NULL; (o = opt_next(p->verb, o));) {
        const union opt_value *v = opt_value_at(p, o);
        bool writes = o->access == OPT_OPENS || o->access == OPT_REPLACES ||
                      o->access == OPT_REWRITES;
        if (writes && o->type == OPT_FILE && v->text &&
            strcmp(v->text, "-") == 0 && o->id != OPT_output)
            return opt_usage(
                p->verb, "--%s -: names a file, not standard output", o->name);
    }
    return -1;
}

/* SLURM_CPUS_PER_TASK is not ours, so a bad value is no reason to fail. */
static void warn_slurm(const struct opt_parsed *p)
{
    const struct opt *threads = opt_find(p->verb, "threads");
    int cpus;
    const char *bad = os_slurm_cpus(&cpus);
    if (bad && threads && !opt_given(p, threads->id))
        msg_warn("SLURM_CPUS_PER_TASK: \"%.40s\": is no number of CPUs and is "
                 "ignored",
                 bad);
}

int common_check(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    int r;
    msg_level(a->quiet, a->verbose);
    if ((r = check_outputs(p)) >= 0)
        return r;
    if (a->exact && a->kv && strcmp(a->kv, "f32") != 0 &&
        !opt_yield(p, OPT_kv, OPT_exact))
        return opt_usage(p->verb, "--kv %s: --exact needs f32", a->kv);
    if (a->cache_dir &&
        (r = merge_place(p, OPT_prefix_cache, OPT_cache_dir, "directory")) >= 0)
        return r;
    if (a->profile_file &&
        (r = merge_place(p, OPT_profile_timing, OPT_profile_file, "file")) >= 0)
        return r;
    if (a->model && (r = common_resolve_alias(p, OPT_model, &p->models.alias,
                                              &p->models.is_name)) >= 0)
        return r;
    warn_swallowed(p);
    warn_slurm(p);
    return check_template_args(p);
}

int common_check_colours(struct opt_parsed *p, enum opt_id option)
{
    const char *when = p->a.color;
    if (!opt_given(p, option) || term_colours(when, out_is_tty()))
        return -1;
    return opt_no_effect(
        p, option, OPT_color,
        when && strcmp(when, "never") == 0 ? "with --color never"
        : out_is_tty() ? "on a terminal without colours (NO_COLOR, or TERM)"
                       : "where stdout is no terminal; add --color always to "
                         "get escape sequences there");
}

void common_hint_demo(const struct opt_parsed *p)
{
    if (!p->a.model)
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

int common_check_records(struct opt_parsed *p)
{
    if (!p->a.input.n || p->a.lines)
        return -1;
    p->a.jsonl = true;
    return opt_conflict(p, OPT_input, OPT_json);
}

/* Sources beside records. */
static int check_beside_records(const struct opt_parsed *p)
{
    const char *form = p->a.lines ? "lines" : "jsonl";
    if (p->n_args)
        return opt_usage(p->verb, "\"%s\": has no effect with --%s", p->args[0],
                         form);
    if (opt_given(p, OPT_file))
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

int common_check_no_args(struct opt_parsed *p)
{
    return p->n_args
               ? opt_usage(p->verb, "\"%s\": unexpected, a model goes with -m",
                           p->args[0])
               : -1;
}

int common_no_input(const struct verb *v)
{
    return opt_usage(v, "no input; usage: qwick %s [OPTIONS] %s", v->name,
                     v->args);
}

int common_check_text(struct opt_parsed *p, const char *what,
                      enum text_args kind)
{
    int r = common_check_records(p);
    bool records = p->a.lines || p->a.jsonl;
    if (p->n_args == 1 && strcmp(p->args[0], "-") == 0)
        p->n_args = 0;
    if (r >= 0 || (kind != TEXT_IDS && (r = check_args(p, records)) >= 0))
        return r;
    if (kind == TEXT_ONE && p->n_args > 1)
        return common_refuse_words(p, what, "");
    if (records)
        return check_beside_records(p);
    if (p->n_args && opt_given(p, OPT_file))
        return opt_usage(p->verb, "--file: cannot be combined with %s%s",
                         kind == TEXT_IDS ? "" : "a ", what);
    return -1;
}
