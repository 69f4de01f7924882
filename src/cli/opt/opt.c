#include "cli/opt/opt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/settings.h"
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
#define VARIANT        OPTION
#define GROUP(heading) {.verbs = V_ALL, .type = OPT_HEADING, .help = (heading)},
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
        if (opt_has(v, o))
            return o;
    return NULL;
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

void *opt_value_at(const struct opt_parsed *p, const struct opt *o)
{
    return (char *)(uintptr_t)&p->a + o->offset;
}

/* ---- values ---- */

static bool is_choice(const char *choices, const char *s)
{
    size_t n = strlen(s);
    while (n && choices) {
        const char *bar = strchr(choices, '|');
        size_t k = bar ? (size_t)(bar - choices) : strlen(choices);
        if (k == n && memcmp(choices, s, n) == 0)
            return true;
        choices = bar ? bar + 1 : NULL;
    }
    return false;
}

/* The range of a number as text: "1..100". Unless full is set, a range without
 * a meaningful maximum becomes "1 or more". Empty if there is no range to
 * show. */
static void range_text(const struct opt *o, bool full, char *out, size_t n)
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

/* ---- messages ---- */

int opt_usage(const struct verb *v, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return msg_usage(v->bit == V_GENERATE ? NULL : v->name, "%s", text);
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

static size_t value_size(enum opt_type type)
{
    switch (type) {
    case OPT_FLAG:
        return sizeof(bool);
    case OPT_INT:
    case OPT_SIZE:
        return sizeof(int64_t);
    case OPT_NUMBER:
        return sizeof(double);
    case OPT_TEXT:
    case OPT_FILE:
    case OPT_CHOICE:
        return sizeof(const char *);
    case OPT_TEXTS:
    case OPT_FILES:
        return sizeof(struct strings);
    case OPT_INTS:
        return sizeof(struct opt_ints);
    case OPT_FLAG_FILE:
        return sizeof(struct opt_flag_file);
    case OPT_HEADING:
        break;
    }
    return 0;
}

/* Free the memory of a value. */
static void value_free(enum opt_type type, void *value)
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

/* Give an option the value that it has without its source. */
static void drop(struct opt_parsed *p, enum opt_id id, const char *why)
{
    struct opt_source *s = &p->sources[id];
    const struct opt *o = opt_row(p->verb, id);
    char text[SHOWN];
    void *value = opt_value_at(p, o);
    value_free(o->type, value);
    memcpy(value, &s->before, value_size(o->type));
    if (s->rank < OPT_LINE)
        msg_note("%s: has no effect %s", source_text(p, id, text, sizeof(text)),
                 why);
    s->rank = OPT_UNSET;
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
    drop(p, a_yields ? a : b, why);
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
        drop(p, id, why);
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
    drop(p, id, why);
}

/* ---- help ---- */

#define HELP_WIDTH  79
#define HELP_INDENT 29

/* Append words with line breaks at HELP_WIDTH. *col is the current column; new
 * lines start at HELP_INDENT. */
static int wrap(struct buf *b, const char *s, size_t *col)
{
    while (*s) {
        size_t n = strcspn(s, " ");
        if (n && *col + 1 + n > HELP_WIDTH) {
            if (buf_printf(b, "\n%*s", HELP_INDENT, ""))
                return -1;
            *col = HELP_INDENT;
        } else if (n && *col > HELP_INDENT) {
            if (buf_putc(b, ' '))
                return -1;
            ++*col;
        }
        if (buf_append(b, s, n))
            return -1;
        *col += n;
        s += n;
        while (*s == ' ')
            s++;
    }
    return 0;
}

const struct opt *opt_find_letter(const struct verb *v, char letter, bool late)
{
    const struct opt *found = NULL;
    for (const struct opt *o = NULL; (o = opt_next(v, o));)
        if (o->letter == letter && o->letter_late <= late &&
            (!found || o->letter_late))
            found = o;
    return found;
}

/* Whether the option's letter, standing after the verb, means this option. */
static bool has_letter(const struct verb *v, const struct opt *o)
{
    return o->letter && opt_find_letter(v, o->letter, true) == o;
}

/* Append the options of which this one needs one. */
static int help_needs(struct buf *b, const struct verb *v, const struct opt *o,
                      size_t *col)
{
    struct buf needs = {0};
    int bad = opt_needs(&needs, v, o->id);
    if (!bad && needs.len)
        bad = wrap(b, "[with", col) || wrap(b, needs.data, col) ||
              buf_putc(b, ']');
    buf_free(&needs);
    return bad;
}

static int help_option(struct buf *b, const struct verb *v, const struct opt *o)
{
    size_t start = b->len, col;
    char range[64], extra[256];
    if (has_letter(v, o) ? buf_printf(b, "  -%c, --%s", o->letter, o->name)
                         : buf_printf(b, "      --%s", o->name))
        return -1;
    if (o->type == OPT_FLAG_FILE) {
        if (buf_printf(b, "[=%s]", o->arg))
            return -1;
    } else if (o->type == OPT_CHOICE) {
        if (buf_printf(b, " %s", o->arg ? o->arg : o->choices))
            return -1;
    } else if (o->type != OPT_FLAG) {
        if (buf_printf(b, " %s", o->arg))
            return -1;
    }
    col = b->len - start;
    if (col + 2 > HELP_INDENT) {
        if (buf_printf(b, "\n%*s", HELP_INDENT, ""))
            return -1;
    } else if (buf_printf(b, "%*s", (int)(HELP_INDENT - col), "")) {
        return -1;
    }
    col = HELP_INDENT;
    if (wrap(b, o->help, &col))
        return -1;
    if (o->type == OPT_CHOICE && o->arg) {
        snprintf(extra, sizeof(extra), "(%s)", o->choices);
        if (wrap(b, extra, &col))
            return -1;
    }
    range_text(o, false, range, sizeof(range));
    if (range[0] || o->def) {
        snprintf(extra, sizeof(extra), "[%s%s%s%s]", range,
                 range[0] && o->def ? "; " : "", o->def ? "default: " : "",
                 o->def ? o->def : "");
        if (wrap(b, extra, &col))
            return -1;
    }
    if (help_needs(b, v, o, &col))
        return -1;
    return buf_putc(b, '\n');
}

int opt_help(const struct verb *v)
{
    struct buf b = {0};
    bool main_help = v->bit == V_GENERATE;
    int r = main_help ? buf_puts(&b, "usage: qwick [OPTIONS] [PROMPT]\n"
                                     "       qwick VERB [OPTIONS] [ARGS]\n\n")
                      : buf_printf(&b, "usage: qwick %s [OPTIONS]%s%s\n\n",
                                   v->name, v->args[0] ? " " : "", v->args);
    r |= buf_printf(&b, "%s\n", v->about);
    if (main_help) {
        r |= buf_puts(&b, "\nVerbs\n");
        for (size_t i = 0; verbs[i]; i++)
            r |= buf_printf(&b, "  %-12s %s\n", verbs[i]->name,
                            verbs[i]->summary);
        r |= buf_puts(&b, "Each has its own --help.\n");
    }
    const struct opt *heading = NULL;
    for (const struct opt *o = opt_rows; o < opt_rows + N_ROWS && !r; o++) {
        if (o->type == OPT_HEADING) {
            heading = o;
        } else if (opt_has(v, o)) {
            r = heading ? buf_printf(&b, "\n%s\n", heading->help) : 0;
            heading = NULL;
            r |= help_option(&b, v, o);
        }
    }
    r |= buf_printf(&b, "\nExamples\n%s", v->examples);
    if (main_help)
        r |= buf_puts(&b, "\nExit status: 0 done, 1 failure, 2 usage, 3 model, "
                          "4 context, 5 memory,\n6 incomplete "
                          "(--require-answer).\nMore: man qwick\n");
    return out_print(&b, r, out_write);
}

int opt_version(void)
{
    static const char text[] = "qwick " QWICK_VERSION "\n";
    return out_write(text, sizeof(text) - 1) ? QWICK_ERR_RUNTIME : 0;
}

/* ---- unknown options ---- */

/* Whether a list of words between blanks has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at && *at; at += strspn(at, " ")) {
        size_t k = strcspn(at, " ");
        if (k == n && memcmp(at, word, n) == 0)
            return true;
        at += k;
    }
    return false;
}

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
        if (has_word(o->peers, dashed) && opt_row(v, o->id))
            return o->name;
    for (const struct opt *o = NULL; (o = opt_next(v, o));) {
        const char *known = o->name;
        if (strncmp(known, dashed, n) == 0) {
            begins = known;
            n_begin++;
        }
        size_t d = word_distance(dashed, known);
        if (d < least) {
            least = d;
            best = known;
        }
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

static bool has_blank(const char *word)
{
    return strpbrk(word, " \t\n") != NULL;
}

/* Report an unknown option. name: the name of a long option, else NULL. */
static int unknown(const struct opt_parsed *p, const char *shown,
                   const char *name)
{
    const struct verb *v = p->verb, *other;
    const char *near = NULL;
    if (has_blank(shown))
        return opt_usage(v,
                         "\"%.60s\": unknown option; text that begins with "
                         "- follows --",
                         shown);
    const char *word = v->bit == V_GENERATE && p->n_plain ? p->args[0] : NULL;
    if (word && (near = verb_near(word)))
        return opt_usage(v,
                         "%s: unknown option; \"%s\" is not a verb, did you "
                         "mean %s?",
                         shown, word, near);
    if (word && verb_is_later(word))
        return opt_usage(v, "%s: unknown option; this version has no verb %s",
                         shown, word);
    if (name && (near = opt_meant(v, name)))
        return opt_usage(v, "%s: unknown option, did you mean --%s?", shown,
                         near);
    if (name && (other = opt_verb_with(name)))
        return opt_usage(v, "%s: unknown option of %s; %s has it", shown,
                         v->name, other->name);
    return opt_usage(v, "%s: unknown option%s", shown,
                     name ? "" : "; text that begins with - follows --");
}

/* ---- parsing ---- */

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
    range_text(o, true, range, sizeof(range));
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

/* Parse and store a value. name: the option as the user wrote it. */
static int set_value(const struct verb *v, const struct opt *o,
                     const char *name, const char *value, void *dst)
{
    int64_t i;
    double d;
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
        if (is_choice(o->later, value))
            return opt_usage(v, "%s %s: not in this version", name, value);
        if (!is_choice(o->choices, value))
            return opt_usage(v, "%s: \"%s\" is none of %s", name, value,
                             o->choices);
        *(const char **)dst = value;
        return -1;
    case OPT_FILE:
        if (!*value)
            return opt_usage(v, "%s: the value is empty", name);
        *(const char **)dst = value;
        return -1;
    case OPT_TEXT:
        *(const char **)dst = value;
        return -1;
    case OPT_TEXTS:
    case OPT_FILES:
        if (!*value)
            return opt_usage(v, "%s: the value is empty", name);
        return push_text(dst, value);
    case OPT_INTS:
        return set_ints(v, o, name, value, dst);
    case OPT_FLAG_FILE:
        if (!*value)
            return opt_usage(v, "%s: the value is empty", name);
        ((struct opt_flag_file *)dst)->on = true;
        ((struct opt_flag_file *)dst)->file = value;
        return -1;
    case OPT_FLAG:
    case OPT_HEADING:
        break;
    }
    return opt_usage(v, "%s: takes no value", name);
}

static bool takes_value(const struct opt *o)
{
    return o->type != OPT_FLAG && o->type != OPT_FLAG_FILE;
}

/* Set an option without a value. */
static int set_flag(const struct verb *v, const struct opt *o, void *dst)
{
    if (o->id == OPT_help)
        return opt_help(v);
    if (o->id == OPT_version)
        return opt_version();
    if (o->type == OPT_FLAG_FILE)
        ((struct opt_flag_file *)dst)->on = true;
    else
        *(bool *)dst = true;
    return -1;
}

/* Position of the parser. */
struct cursor {
    int argc, i;
    char **argv;
    bool late; /* the verb was passed */
};

static const char *next_word(struct cursor *c)
{
    return c->i + 1 < c->argc ? c->argv[++c->i] : NULL;
}

static int set_next(const struct opt_parsed *p, const struct opt *o,
                    const char *shown, struct cursor *c)
{
    const char *value = next_word(c);
    if (!value)
        return opt_usage(p->verb, "%s: needs a value", shown);
    return set_value(p->verb, o, shown, value, opt_value_at(p, o));
}

static int parse_long(struct opt_parsed *p, const char *arg, struct cursor *c)
{
    const struct verb *v = p->verb;
    char shown[64];
    const char *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    if (n >= sizeof(shown))
        return unknown(p, arg, NULL);
    memcpy(shown, arg, n);
    shown[n] = 0;
    const struct opt *o = opt_find(v, shown + 2);
    if (!o)
        return unknown(p, shown, shown + 2);
    p->sources[o->id].rank = OPT_LINE;
    if (eq)
        return set_value(v, o, shown, eq + 1, opt_value_at(p, o));
    if (takes_value(o))
        return set_next(p, o, shown, c);
    if (o->type == OPT_FLAG_FILE && !p->n_args)
        p->before = o;
    return set_flag(v, o, opt_value_at(p, o));
}

/* Whether a word is a text that only looks like an option: "- a", "-p means".
 */
static bool looks_like_text(const char *arg)
{
    return strcspn(arg, " \t\n") <= 2 && has_blank(arg);
}

/* Parse letters: "-qv", "-n5", "-n 5". */
static int parse_short(struct opt_parsed *p, const char *arg, struct cursor *c)
{
    const struct verb *v = p->verb;
    if (looks_like_text(arg))
        return unknown(p, arg, NULL);
    for (const char *at = arg + 1; *at; at++) {
        char shown[3] = {'-', *at, 0};
        const struct opt *o = opt_find_letter(v, *at, c->late);
        if (!o)
            return unknown(p, arg[2] ? arg : shown, NULL);
        p->sources[o->id].rank = OPT_LINE;
        if (takes_value(o))
            return at[1] ? set_value(v, o, shown, at + 1, opt_value_at(p, o))
                         : set_next(p, o, shown, c);
        int r = set_flag(v, o, opt_value_at(p, o));
        if (r >= 0)
            return r;
    }
    return -1;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1];
}

static int parse_line(struct opt_parsed *p, int argc, char **argv)
{
    struct cursor c = {.argc = argc, .argv = argv};
    bool only_args = false;
    for (; c.i < argc; c.i++) {
        const struct opt *before = p->before;
        char *a = argv[c.i];
        int r = -1;
        if (!a) {
            c.late = true;
            continue;
        }
        if (!p->n_args)
            p->before = NULL;
        if (only_args || !is_option(a)) {
            if (!p->n_args)
                p->before = before;
            p->args[p->n_args++] = a;
            if (!only_args)
                p->n_plain = p->n_args;
        } else if (strcmp(a, "--") == 0) {
            only_args = true;
        } else if (a[1] == '-') {
            r = parse_long(p, a, &c);
        } else {
            r = parse_short(p, a, &c);
        }
        if (r >= 0)
            return r;
    }
    return -1;
}

/* The default of a number: the number at the beginning of its text. */
static void set_default_value(struct opt_parsed *p, const struct opt *o)
{
    char number[32];
    size_t n = o->def ? strcspn(o->def, ",; ") : 0;
    void *value = opt_value_at(p, o);
    if (n == 0 || n >= sizeof(number))
        return;
    memcpy(number, o->def, n);
    number[n] = 0;
    /* A default in words fails to parse, and leaves 0. */
    if (o->type == OPT_INT || o->type == OPT_SIZE)
        (void)opt_size(number, value);
    else if (o->type == OPT_NUMBER)
        (void)opt_number(number, value);
}

int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv)
{
    int r;
    *p = (struct opt_parsed){.verb = v};
    for (const struct opt *o = NULL; (o = opt_next(v, o));)
        set_default_value(p, o);
    p->args = calloc((size_t)argc + 1, sizeof(*p->args));
    if (!p->args)
        return msg_oom();
    if ((r = parse_line(p, argc, argv)) >= 0 || (r = settings_apply(p)) >= 0)
        return r;
    return opt_check_relations(p);
}

/* ---- values of other sources ---- */

/* Parse and store a value as the config file and the environment give it. */
static int set_plain(const struct verb *v, const struct opt *o,
                     const char *name, const char *value, void *dst, bool *off)
{
    bool on = true;
    *off = false;
    if (takes_value(o))
        return set_value(v, o, name, value, dst);
    if (opt_bool(value, &on))
        return o->place
                   ? opt_usage(v,
                               "%s: \"%s\": expected on or off; %s names the "
                               "place",
                               name, value, o->place)
                   : opt_usage(v, "%s: \"%s\": expected on or off", name,
                               value);
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
        memcpy(&s->before, dst, value_size(o->type));
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
    value_free(o->type, &scratch);
    return r;
}

/* ---- finding the verb ---- */

/* The number of words of a long option, of whichever verb. */
static int long_words(const char *arg)
{
    char name[64];
    size_t n = strcspn(arg, "=");
    if (n >= sizeof(name))
        return 0;
    memcpy(name, arg, n);
    name[n] = 0;
    const struct verb *v = opt_verb_with(name);
    if (!v)
        return 0;
    return !arg[n] && takes_value(opt_find(v, name)) ? 2 : 1;
}

/* The number of words of a bundle of letters, of whichever verb. */
static int short_words(const char *letters)
{
    for (; *letters; letters++) {
        const struct opt *o = NULL;
        for (size_t i = 0; verbs[i] && !o; i++)
            o = opt_find_letter(verbs[i], *letters, false);
        if (!o)
            return 0;
        if (takes_value(o))
            return letters[1] ? 1 : 2;
    }
    return 1;
}

int opt_words(int argc, char *const *argv)
{
    const char *a = argv[0];
    if (!is_option(a) || strcmp(a, "--") == 0)
        return 0;
    int n = a[1] == '-' ? long_words(a + 2) : short_words(a + 1);
    return n > argc ? argc : n;
}

void opt_free(struct opt_parsed *p)
{
    for (const struct opt *o = NULL; (o = opt_next(p->verb, o));)
        value_free(o->type, opt_value_at(p, o));
    free(p->args);
    settings_free(p->settings);
}
