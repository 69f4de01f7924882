#include "cli/opt/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "cli/opt/preset.h"
#include "cli/opt/verbs.h"
#include "file/json.h"
#include "file/map.h"
#include "qwick.h"

/* ---- files -------------------------------------------------------------- */

int settings_path(struct buf *out, const char *name)
{
    return xdg_path(out, "XDG_CONFIG_HOME", "/.config", name);
}

int settings_read_file(const char *path, char **text, size_t *n,
                       struct qwick_err *e)
{
    struct stat st;
    *text = NULL;
    *n = 0;
    if (stat(path, &st))
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : err_errno(e, path, "cannot open");
    if (!S_ISREG(st.st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is not a regular file", path);
    if (map_read_all(path, SETTINGS_MAX, text, n, e))
        return -1;
    if (memchr(*text, 0, *n)) {
        free(*text);
        *text = NULL;
        return err_usage(e, "%s: has a NUL byte", path);
    }
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Remove blanks at both ends of s in place; returns its beginning. */
static char *settings_trim(char *s)
{
    size_t n = strlen(s);
    while (n && is_blank(s[n - 1]))
        s[--n] = 0;
    while (is_blank(*s))
        s++;
    return s;
}

/* Decode a value in double quotes in place. */
static int unquote(const char *name, char *value, struct qwick_err *e)
{
    struct json_doc *doc;
    size_t n = strlen(value);
    if (json_parse(&doc, name, value, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *v = json_root(doc);
    int rc = 0;
    if (!json_is(v, JSON_STRING) || memchr(v->str, 0, v->len))
        rc = err_usage(e, "%s: has a NUL character", name);
    else
        memcpy(value, v->str, v->len + 1); /* never longer than its source */
    json_free(doc);
    return rc;
}

int settings_split(char *line, char **name, char **value, struct qwick_err *e)
{
    char *s = settings_trim(line), *equals = strchr(s, '=');
    if (!*s || *s == '#')
        return 1;
    if (!equals || equals == s)
        return err_usage(e, "\"%.100s\": is not NAME = VALUE", s);
    *equals = 0;
    *name = settings_trim(s);
    *value = settings_trim(equals + 1);
    if (**value == '"')
        return unquote(*name, *value, e);
    if (strstr(*value, " #") || strstr(*value, "\t#"))
        return err_usage(e,
                         "%.60s: a comment has its own line; a value with # is "
                         "put in double quotes",
                         *name);
    return 0;
}

/* ---- the config file ---------------------------------------------------- */

struct setting {
    enum opt_rank rank;
    const struct verb *section; /* NULL: for all verbs */
    const char *name, *value;
    char *expanded; /* the value with its "~/" expanded; NULL: it has none */
    char *where;    /* "FILE:LINE", or the name of a variable */
    char *label;    /* "FILE:LINE: NAME", or the name of a variable */
};

struct settings {
    struct buf path; /* empty: there is no place for the file */
    bool exists;
    char *text;
    struct preset *preset; /* of -T; NULL: none */
    struct setting *v;
    size_t n, cap;
    char **kept; /* [n_kept] strings of others */
    size_t n_kept, cap_kept;
};

int settings_keep(struct settings *c, char *s)
{
    if (ARRAY_RESERVE(c->kept, c->cap_kept, c->n_kept + 1, NULL)) {
        free(s);
        return -1;
    }
    c->kept[c->n_kept++] = s;
    return 0;
}

void settings_free(struct settings *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        free(c->v[i].expanded);
        free(c->v[i].where);
        free(c->v[i].label);
    }
    for (size_t i = 0; i < c->n_kept; i++)
        free(c->kept[i]);
    free(c->kept);
    free(c->v);
    free(c->text);
    preset_free(c->preset);
    buf_free(&c->path);
    free(c);
}

/* The verb of a section's line, which begins with '['. */
static int read_section(char *s, const char *where, const struct verb **section)
{
    size_t n = strlen(s);
    if (s[n - 1] != ']')
        return msg_refuse("%s: \"%.100s\": a section is [VERB]", where, s);
    s[n - 1] = 0;
    s = settings_trim(s + 1);
    *section = verb_find(s);
    if (*section)
        return -1;
    const char *near = verb_near(s);
    return msg_refuse("%s: [%.100s]: no such verb%s%s", where, s,
                      DID_YOU_MEAN(near));
}

/* The name of an option that the user probably meant; NULL: none. */
static const char *meant(const struct verb *section, const char *name)
{
    const char *near = NULL;
    while (*name == '-')
        name++;
    if (section)
        return opt_meant(section, name);
    if (opt_verb_with(name))
        return name;
    for (size_t i = 0; verbs[i] && !near; i++)
        near = opt_meant(verbs[i], name);
    return near;
}

static int unknown(const struct setting *s)
{
    const struct verb *other = s->section ? opt_verb_with(s->name) : NULL;
    const char *near = other ? NULL : meant(s->section, s->name);
    if (other)
        return msg_refuse("%s: %s has no such option; %s has it", s->label,
                          s->section->name, other->name);
    return msg_refuse("%s: unknown option%s%s", s->label, DID_YOU_MEAN(near));
}

/* Check a setting. v: the verb that runs. */
static int setting_check(const struct settings *c, struct setting *s,
                         const struct verb *v)
{
    const struct verb *of = s->section             ? s->section
                            : opt_find(v, s->name) ? v
                                                   : opt_verb_with(s->name);
    const struct opt *o = of ? opt_find(of, s->name) : NULL;
    if (!o)
        return unknown(s);
    if (o->single || o->id == OPT_no_config)
        return msg_refuse("%s: belongs to one command, and has no default",
                          s->label);
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].rank == s->rank && c->v[i].section == s->section &&
            strcmp(c->v[i].name, s->name) == 0 && o->type != OPT_TEXTS &&
            !(o->type == OPT_FILES && s->section))
            return msg_refuse("%s: is set twice, first at %s", s->label,
                              c->v[i].where);
    const char *home = getenv("HOME");
    if ((o->type == OPT_FILE || o->type == OPT_FILES) &&
        strncmp(s->value, "~/", 2) == 0) {
        if (!home || asprintf(&s->expanded, "%s%s", home, s->value + 1) < 0) {
            s->expanded = NULL;
            if (home)
                return msg_oom();
            return msg_refuse("%s: \"%s\": HOME is not set", s->label,
                              s->value);
        }
        s->value = s->expanded;
    }
    return opt_check_value(of, o, s->label, s->value);
}

/* A file that is read line by line. */
struct lines_of {
    const char *path;
    bool is_preset;             /* it is a prompt of the user */
    const struct verb *section; /* of the current line; NULL: for all verbs */
};

/* Set the section of a line, which begins with '['. */
static int begin_section(struct lines_of *f, char *line, const char *where)
{
    if (!f->is_preset)
        return read_section(line, where, &f->section);
    return msg_refuse("%s: \"%.100s\": only the config file has sections",
                      where, line);
}

/* Read one line of the file. */
static int read_line(struct settings *c, struct lines_of *f, char *line,
                     size_t number, const struct verb *v)
{
    struct setting s = {0};
    struct qwick_err e;
    char *name, *value;
    if (ARRAY_RESERVE(c->v, c->cap, c->n + 1, &e))
        return msg_fail(&e);
    if (asprintf(&s.where, "%s:%zu", f->path, number) < 0)
        return msg_oom();
    int r = -1, split = 1;
    line = settings_trim(line);
    if (*line == '[')
        r = begin_section(f, line, s.where);
    else if ((split = settings_split(line, &name, &value, &e)) < 0) {
        r = msg_stop(e.code, "%s: %s", s.where, e.msg);
    } else if (split == 0) {
        s.rank = f->is_preset ? OPT_PRESET
                 : f->section ? OPT_CONFIG_VERB
                              : OPT_CONFIG;
        s.section = f->section;
        s.name = name;
        s.value = value;
        if (asprintf(&s.label, "%s: %s", s.where, name) < 0) {
            s.label = NULL;
            r = msg_oom();
        } else {
            r = setting_check(c, &s, v);
        }
    }
    if (split == 0 && r < 0) {
        c->v[c->n++] = s;
        return r;
    }
    free(s.expanded);
    free(s.where);
    free(s.label);
    return r;
}

/* Read lines from the one with this number on. */
static int read_lines(struct settings *c, struct lines_of *f, char *line,
                      size_t number, const struct verb *v)
{
    int r = -1;
    while (line && r < 0) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        r = read_line(c, f, line, number++, v);
        line = end;
    }
    return r;
}

/* Read the whole file, so that a fault shows whichever verb runs. */
static int read_config(struct settings *c, const struct verb *v)
{
    static const char bom[] = "\xEF\xBB\xBF";
    struct qwick_err e;
    size_t n;
    if (settings_path(&c->path, "config"))
        return msg_oom();
    if (!c->path.len)
        return -1;
    if (settings_read_file(c->path.data, &c->text, &n, &e))
        return msg_stop(e.code, "%s (--no-config goes on without it)", e.msg);
    c->exists = c->text != NULL;
    char *line = c->text;
    if (line && strncmp(line, bom, 3) == 0)
        line += 3;
    struct lines_of f = {.path = c->path.data};
    return read_lines(c, &f, line, 1, v);
}

/* ---- the environment ---------------------------------------------------- */

static const char prefix[] = "QWICK_";

/* Variables that are no options. */
static const char *const variables[] = {"QWICK_MODEL_PATH"};

/* Write the option's name for a variable "QWICK_NAME=VALUE" to out. Returns the
 * variable's value; NULL if it cannot be an option. */
static const char *option_of(const char *variable, char *out, size_t size)
{
    size_t skip = sizeof(prefix) - 1, i = 0;
    const char *equals = strchr(variable, '=');
    if (strncmp(variable, prefix, skip) != 0 || !equals)
        return NULL;
    for (const char *at = variable + skip; at < equals; at++, i++) {
        if (i + 1 >= size || islower((unsigned char)*at))
            return NULL;
        out[i] = *at == '_' ? '-' : (char)tolower((unsigned char)*at);
    }
    out[i] = 0;
    for (i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        if (strncmp(variable, variables[i], (size_t)(equals - variable)) == 0 &&
            !variables[i][equals - variable])
            return NULL;
    return equals[1] ? equals + 1 : NULL; /* empty counts as unset */
}

/* Warn of a variable that looks like a misspelt option. */
static void warn_misspelt(const char *variable, const char *option)
{
    for (size_t i = 0; verbs[i]; i++)
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o));)
            if (!o->single && word_distance(option, o->name) == 1) {
                msg_warn("%.*s: no option has this name, did you mean --%s?",
                         (int)strcspn(variable, "="), variable, o->name);
                return;
            }
}

/* Add a variable's setting. */
static int read_variable(struct settings *c, const char *variable)
{
    struct setting s = {.rank = OPT_ENV};
    struct qwick_err e;
    char option[64];
    const char *value = option_of(variable, option, sizeof(option));
    const struct verb *v = value ? opt_verb_with(option) : NULL;
    const struct opt *o = v ? opt_find(v, option) : NULL;
    if (value && !o)
        warn_misspelt(variable, option);
    if (!o || o->single)
        return -1;
    s.name = o->name;
    s.value = value;
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->v[i].name, s.name) == 0)
            return -1; /* a second one of this name; the first counts */
    if (ARRAY_RESERVE(c->v, c->cap, c->n + 1, &e))
        return msg_fail(&e);
    s.where = strndup(variable, strcspn(variable, "="));
    s.label = strndup(variable, strcspn(variable, "="));
    c->v[c->n++] = s;
    return s.where && s.label ? -1 : msg_oom();
}

static int read_environment(struct settings *c)
{
    int r = -1;
    for (char **at = environ; at && *at && r < 0; at++)
        r = read_variable(c, *at);
    return r;
}

/* ---- the prompt of the user ---------------------------------------------- */

/* Read the file of -T, if the command line has this option. */
static int read_preset(struct opt_parsed *p)
{
    struct settings *c = p->settings;
    struct qwick_err e;
    if (!opt_given(p, OPT_preset))
        return -1;
    if (preset_open(&c->preset, p->a.preset, &e))
        return msg_fail(&e);
    struct lines_of f = {.path = c->preset->path, .is_preset = true};
    return read_lines(c, &f, c->preset->options, c->preset->line, p->verb);
}

const struct preset *settings_preset(const struct settings *c)
{
    return c ? c->preset : NULL;
}

bool settings_has_file(const struct settings *c)
{
    return c->exists;
}

/* ---- all --------------------------------------------------------------- */

/* Set what sources of one rank set for the verb. */
static int apply_rank(struct opt_parsed *p, enum opt_rank rank)
{
    const struct settings *c = p->settings;
    int r = -1;
    for (size_t i = 0; i < c->n && r < 0; i++) {
        const struct setting *s = &c->v[i];
        const struct opt *o = opt_find(p->verb, s->name);
        if (o && s->rank == rank && (!s->section || s->section == p->verb))
            r = opt_set_default(p, o, rank, s->where, s->label, s->value);
    }
    return r;
}

int settings_apply(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    bool plain = p->verb->bit & (V_HELP | V_VERSION);
    int r;
    if (plain && !a->show_config)
        return -1; /* a fault of the configuration does not keep help away */
    p->settings = calloc(1, sizeof(*p->settings));
    if (!p->settings)
        return msg_oom();
    msg_level(a->quiet, a->verbose);
    if ((r = read_environment(p->settings)) >= 0 ||
        (r = apply_rank(p, OPT_ENV)) >= 0 || (r = read_preset(p)) >= 0 ||
        (r = apply_rank(p, OPT_PRESET)) >= 0)
        return r;
    if (!a->no_config && ((r = read_config(p->settings, p->verb)) >= 0 ||
                          (r = apply_rank(p, OPT_CONFIG_VERB)) >= 0 ||
                          (r = apply_rank(p, OPT_CONFIG)) >= 0))
        return r;
    return a->show_config ? settings_show(p) : -1;
}
