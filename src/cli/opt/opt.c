#include "cli/opt/opt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/opt_int.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

/* ---- rows ---- */

static const struct opt opt_rows[] = {
#define OPTION(type_, id_, name_, verbs_, ...) \
    {.id = OPT_##id_,                          \
     .name = (name_),                          \
     .verbs = (verbs_),                        \
     .type = OPT_##type_,                      \
     .offset = offsetof(struct args, id_),     \
     __VA_ARGS__},
#define VARIANT OPTION
#define GROUP(heading, ...) \
    {.verbs = V_ALL, .type = OPT_HEADING, .help = (heading), __VA_ARGS__},
#include "cli/opt/options_table.h"
};

enum { N_ROWS = sizeof(opt_rows) / sizeof(*opt_rows) };

static bool opt_has(const struct verb *v, const struct opt *o)
{
    return o->id != OPT_NONE && (o->verbs & v->bit);
}

const struct opt *opt_next(const struct verb *v, const struct opt *o)
{
    for (o = o ? o + 1 : opt_rows; o < opt_rows + N_ROWS; o++)
        if (v ? opt_has(v, o) : o->id != OPT_NONE)
            return o;
    return NULL;
}

const struct opt *opt_heading(const struct opt *o)
{
    while (o->id != OPT_NONE)
        o--;
    return o;
}

const struct opt *opt_row(const struct verb *v, enum opt_id id)
{
    const struct opt *o = NULL;
    while ((o = opt_next(v, o)) && o->id != id)
        ;
    return o;
}

const struct opt *opt_find(const struct verb *v, const char *name)
{
    const struct opt *o = NULL;
    while ((o = opt_next(v, o)) && strcmp(o->name, name) != 0)
        ;
    return o;
}

const char *opt_name(enum opt_id id)
{
    size_t i = 0;
    while (opt_rows[i].id != id || !opt_rows[i].name)
        i++;
    return opt_rows[i].name;
}

const char *opt_arg(const struct opt *o)
{
    static const char *const args[] = {
        [OPT_INT] = "N",     [OPT_INTS] = "N,...", [OPT_SIZE] = "SIZE",
        [OPT_TEXT] = "TEXT", [OPT_FILE] = "FILE",  [OPT_FLAG_FILE] = NULL,
    };
    return o->arg ? o->arg : args[o->type];
}

void *opt_value_at(const struct opt_parsed *p, const struct opt *o)
{
    return (char *)(uintptr_t)&p->a + o->offset;
}

/* ---- values ---- */

/* Whether a list, which has one of the characters `between` after each word but
 * the last, has the word. */
static bool has_word(const char *list, const char *between, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; n && at && *at; at += strspn(at, between)) {
        size_t k = strcspn(at, between);
        if (k == n && memcmp(at, word, n) == 0)
            return true;
        at += k;
    }
    return false;
}

void opt_range_text(const struct opt *o, bool full, char *out, size_t n)
{
    out[0] = 0;
    if (o->type == OPT_INT || o->type == OPT_INTS) {
        if (o->imax >= INT32_MAX && !full)
            snprintf(out, n, "%lld or more", (long long)o->imin);
        else
            snprintf(out, n, "%lld..%lld", (long long)o->imin,
                     (long long)o->imax);
    } else if (o->type == OPT_NUMBER) {
        snprintf(out, n, "%g..%g", o->min, o->max);
    }
}

/* ---- sources ---- */

/* The source that sets an option, or NULL. */
static const struct opt_source *source_of(const struct opt_parsed *p,
                                          enum opt_id id)
{
    const struct opt_source *s = &p->sources[id];
    return s->rank != OPT_UNSET && !s->off ? s : NULL;
}

bool opt_given(const struct opt_parsed *p, enum opt_id id)
{
    return source_of(p, id) != NULL;
}

bool opt_is_setting(const struct opt_parsed *p, enum opt_id id)
{
    const struct opt_source *s = source_of(p, id);
    return s && s->rank != OPT_LINE;
}

static const size_t value_sizes[] = {
    [OPT_FLAG] = sizeof(bool),
    [OPT_INT] = sizeof(int64_t),
    [OPT_SIZE] = sizeof(int64_t),
    [OPT_NUMBER] = sizeof(double),
    [OPT_TEXT] = sizeof(const char *),
    [OPT_FILE] = sizeof(const char *),
    [OPT_CHOICE] = sizeof(const char *),
    [OPT_TEXTS] = sizeof(struct strings),
    [OPT_FILES] = sizeof(struct strings),
    [OPT_INTS] = sizeof(struct opt_ints),
    [OPT_FLAG_FILE] = sizeof(struct opt_flag_file),
};

void opt_value_free(enum opt_type type, void *value)
{
    if (type == OPT_TEXTS || type == OPT_FILES)
        free(((struct strings *)value)->v);
    else if (type == OPT_INTS)
        free(((struct opt_ints *)value)->v);
}

/* Name the place where an option is set: "--NAME", or "FILE:LINE: NAME". */
static const char *source_text(const struct opt_parsed *p, enum opt_id id,
                               char *out, size_t n)
{
    const struct opt_source *s = &p->sources[id];
    if (s->where)
        snprintf(out, n, "%s%s%s", s->where, s->rank == OPT_ENV ? "" : ": ",
                 s->rank == OPT_ENV ? "" : opt_name(id));
    else
        snprintf(out, n, "--%s", opt_name(id));
    return out;
}

enum { SHOWN = 400 };

void opt_unset(struct opt_parsed *p, const struct opt *o)
{
    struct opt_source *s = &p->sources[o->id];
    if (s->rank != OPT_UNSET)
        memcpy(opt_value_at(p, o), &s->before, value_sizes[o->type]);
    s->rank = OPT_UNSET;
}

/* Take an option as if its source did not set it. */
static void opt_drop(struct opt_parsed *p, enum opt_id id, const char *why)
{
    const struct opt *o = opt_row(p->verb, id);
    char text[SHOWN];
    if (p->sources[id].rank < OPT_LINE)
        msg_note("%s: has no effect %s", source_text(p, id, text, sizeof(text)),
                 why);
    opt_value_free(o->type, opt_value_at(p, o));
    opt_unset(p, o);
}

bool opt_yield(struct opt_parsed *p, enum opt_id a, enum opt_id b)
{
    const struct opt_source *x = source_of(p, a), *y = source_of(p, b);
    char why[SHOWN + 8], other[SHOWN];
    if (!x || !y || x->rank == y->rank)
        return false;
    bool a_yields = x->rank < y->rank;
    snprintf(why, sizeof(why), "with %s",
             source_text(p, a_yields ? b : a, other, sizeof(other)));
    opt_drop(p, a_yields ? a : b, why);
    return true;
}

int opt_conflict(struct opt_parsed *p, enum opt_id a, enum opt_id b)
{
    char first[SHOWN], second[SHOWN];
    if (!opt_given(p, a) || !opt_given(p, b) || opt_yield(p, a, b))
        return -1;
    return opt_usage(p->verb, "%s: cannot be combined with %s",
                     source_text(p, a, first, sizeof(first)),
                     source_text(p, b, second, sizeof(second)));
}

/* Write where an option is set to out, as " (WHERE)"; nothing if that is the
 * command line. */
static void blame(const struct opt_parsed *p, enum opt_id id, char *out,
                  size_t n)
{
    const struct opt_source *s = source_of(p, id);
    out[0] = 0;
    if (id != OPT_NONE && s && s->where)
        snprintf(out, n, " (%s)", s->where);
}

int opt_no_effect(struct opt_parsed *p, enum opt_id id, enum opt_id because,
                  const char *why)
{
    const struct opt_source *s = source_of(p, id);
    char where[SHOWN];
    if (!s)
        return -1;
    if (s->rank < OPT_LINE) {
        opt_drop(p, id, why);
        return -1;
    }
    blame(p, because, where, sizeof(where));
    return opt_usage(p->verb, "--%s: has no effect %s%s", opt_name(id), why,
                     where);
}

int opt_no_effects(struct opt_parsed *p, const enum opt_id *ids,
                   enum opt_id because, const char *why)
{
    int status = -1;
    for (; *ids && status < 0; ids++)
        status = opt_no_effect(p, *ids, because, why);
    return status;
}

void opt_warn_no_effect(struct opt_parsed *p, enum opt_id id,
                        enum opt_id because, const char *why)
{
    const struct opt_source *s = source_of(p, id);
    char where[SHOWN];
    if (!s)
        return;
    blame(p, because, where, sizeof(where));
    if (s->rank == OPT_LINE)
        msg_warn("--%s: has no effect %s%s", opt_name(id), why, where);
    opt_drop(p, id, why);
}

/* ---- names ---- */

/* The unknown name is another program's name for the option, the beginning of
 * exactly one name, or at most two typing errors away. */
const char *opt_meant(const struct verb *v, const char *name)
{
    const char *best = NULL, *begins = NULL;
    size_t n = strlen(name), least = n > 5 ? 3 : 2, n_begin = 0;
    char dashed[40];
    if (n == 0 || n >= sizeof(dashed))
        return NULL;
    for (size_t i = 0; i <= n; i++)
        dashed[i] = name[i] == '_' ? '-' : name[i];
    for (const struct opt *o = opt_rows; o < opt_rows + N_ROWS; o++)
        if (has_word(o->peers, " ", dashed) && opt_row(v, o->id))
            return o->name;
    for (const struct opt *o = NULL; (o = opt_next(v, o));) {
        const char *known = o->name;
        if (strncmp(known, dashed, n) == 0) {
            begins = known;
            n_begin++;
        }
        word_nearest(dashed, known, &least, &best);
    }
    return best ? best : n_begin == 1 && n > 1 ? begins : NULL;
}

const struct verb *opt_verb_with(const char *name)
{
    for (size_t i = 0; verbs[i]; i++)
        if (opt_find(verbs[i], name))
            return verbs[i];
    return NULL;
}

/* ---- values of the command line ---- */

static int push_text(struct strings *t, const char *s)
{
    const char **v = realloc(t->v, (t->n + 1) * sizeof(*v));
    if (!v)
        return msg_oom();
    t->v = v;
    t->v[t->n++] = s;
    return -1;
}

static int out_of_range(const struct verb *v, const struct opt *o,
                        const char *name, const char *value)
{
    char range[64];
    opt_range_text(o, true, range, sizeof(range));
    return opt_usage(v, "%s: \"%s\": expected %s, %s", name, value,
                     o->type == OPT_NUMBER ? "a number"
                     : o->type == OPT_INTS ? "integers between commas"
                                           : "an integer",
                     range);
}

static int set_ints(const struct verb *v, const struct opt *o, const char *name,
                    const char *value, struct opt_ints *list)
{
    char item[32];
    list->n = 0;
    for (const char *p = value;; p++) {
        size_t n = strcspn(p, ",");
        int64_t x;
        if (n >= sizeof(item))
            return out_of_range(v, o, name, value);
        memcpy(item, p, n);
        item[n] = 0;
        if (opt_int(item, &x) || x < o->imin || x > o->imax)
            return out_of_range(v, o, name, value);
        int64_t *new_v = realloc(list->v, (list->n + 1) * sizeof(*new_v));
        if (!new_v)
            return msg_oom();
        list->v = new_v;
        list->v[list->n++] = x;
        p += n;
        if (!*p)
            return -1;
    }
}

int opt_set_value(const struct verb *v, const struct opt *o, const char *name,
                  const char *value, void *dst)
{
    int64_t i;
    double d;
    if (!*value && (o->type == OPT_FILE || o->type == OPT_TEXTS ||
                    o->type == OPT_FILES || o->type == OPT_FLAG_FILE))
        return opt_usage(v, "%s: the value is empty", name);
    switch (o->type) {
    case OPT_INT:
        if (opt_int(value, &i) || i < o->imin || i > o->imax)
            return out_of_range(v, o, name, value);
        *(int64_t *)dst = i;
        return -1;
    case OPT_SIZE:
        if (opt_size(value, &i) || i < o->imin)
            return opt_usage(v,
                             "%s: \"%s\": expected a number of bytes, as in "
                             "500M or 4G",
                             name, value);
        *(int64_t *)dst = i;
        return -1;
    case OPT_NUMBER:
        if (opt_number(value, &d) || d < o->min || d > o->max)
            return out_of_range(v, o, name, value);
        *(double *)dst = d;
        return -1;
    case OPT_CHOICE:
        if (has_word(o->later, "|", value))
            return opt_usage(v, "%s %s: not in this version", name, value);
        if (!has_word(o->choices, "|", value))
            return opt_usage(v, "%s: \"%s\" is none of %s", name, value,
                             o->choices);
        *(const char **)dst = value;
        return -1;
    case OPT_FILE:
    case OPT_TEXT:
        *(const char **)dst = value;
        return -1;
    case OPT_TEXTS:
    case OPT_FILES:
        return push_text(dst, value);
    case OPT_INTS:
        return set_ints(v, o, name, value, dst);
    case OPT_FLAG_FILE:
        if (o->choices && !has_word(o->choices, "|", value))
            return opt_usage(v, "%s: \"%s\": its only value is %s", name, value,
                             o->choices);
        ((struct opt_flag_file *)dst)->on = true;
        ((struct opt_flag_file *)dst)->file = value;
        return -1;
    case OPT_FLAG:
    case OPT_HEADING:
        break;
    }
    return opt_usage(v, "%s: takes no value", name);
}

bool opt_takes_value(const struct opt *o)
{
    return o->type != OPT_FLAG && o->type != OPT_FLAG_FILE;
}

/* ---- values of other sources ---- */

/* Parse and store a value as the config file and the environment give it. */
static int set_plain(const struct verb *v, const struct opt *o,
                     const char *name, const char *value, void *dst, bool *off)
{
    bool on = true;
    *off = false;
    if (opt_takes_value(o) || has_word(o->choices, "|", value))
        return opt_set_value(v, o, name, value, dst);
    if (opt_bool(value, &on))
        return o->place
                   ? opt_usage(v,
                               "%s: \"%s\": expected on or off; %s names the "
                               "place",
                               name, value, o->place)
                   : opt_usage(v, "%s: \"%s\": expected on or off%s%s", name,
                               value, o->choices ? ", or " : "",
                               o->choices ? o->choices : "");
    *off = !on;
    if (o->type == OPT_FLAG)
        *(bool *)dst = on;
    else
        *(struct opt_flag_file *)dst = (struct opt_flag_file){.on = on};
    return -1;
}

int opt_set_default(struct opt_parsed *p, const struct opt *o,
                    enum opt_rank rank, const char *where, const char *name,
                    const char *value)
{
    struct opt_source *s = &p->sources[o->id];
    void *dst = opt_value_at(p, o);
    if (s->rank > rank)
        return -1;
    if (s->rank == OPT_UNSET)
        memcpy(&s->before, dst, value_sizes[o->type]);
    s->rank = rank;
    s->where = where;
    return set_plain(p->verb, o, name, value, dst, &s->off);
}

int opt_check_value(const struct verb *v, const struct opt *o, const char *name,
                    const char *value)
{
    union opt_value scratch;
    bool off;
    memset(&scratch, 0, sizeof(scratch));
    int r = set_plain(v, o, name, value, &scratch, &off);
    opt_value_free(o->type, &scratch);
    return r;
}
