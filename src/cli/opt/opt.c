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
    if (v == &verb_generate)
        msg_error("%s (see qwick --help)", text);
    else
        msg_error("%s (see qwick %s --help)", text, v->name);
    return QWICK_ERR_USAGE;
}

static size_t find(const struct verb *v, const char *name)
{
    for (size_t i = 0; i < v->n_opts; i++)
        if (v->opts[i].name && strcmp(v->opts[i].name, name) == 0)
            return i;
    return v->n_opts;
}

const struct opt *opt_find(const struct verb *v, const char *name)
{
    size_t i = find(v, name);
    return i < v->n_opts ? &v->opts[i] : NULL;
}

/* ---- sources ---- */

/* The source that sets an option, or NULL. */
static struct opt_source *source_of(const struct opt_parsed *p,
                                    const char *name)
{
    size_t i = find(p->verb, name);
    return i < p->verb->n_opts && p->sources[i].rank != OPT_UNSET &&
                   !p->sources[i].off
               ? &p->sources[i]
               : NULL;
}

bool opt_given(const struct opt_parsed *p, const char *name)
{
    return source_of(p, name) != NULL;
}

bool opt_is_setting(const struct opt_parsed *p, const char *name)
{
    const struct opt_source *s = source_of(p, name);
    return s && s->rank != OPT_UNSET && s->rank != OPT_LINE;
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
        return sizeof(struct opt_texts);
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
        free(((struct opt_texts *)value)->v);
    else if (type == OPT_INTS)
        free(((struct opt_ints *)value)->v);
}

/* Name the place of a source: "--NAME", or where it is set. */
static const char *source_text(const struct opt_source *s, const char *name,
                               char *out, size_t n)
{
    if (s->where)
        snprintf(out, n, "%s%s%s", s->where, s->rank == OPT_ENV ? "" : ": ",
                 s->rank == OPT_ENV ? "" : name);
    else
        snprintf(out, n, "--%s", name);
    return out;
}

enum { SHOWN = 400 };

/* Give an option the value that it has without its source. */
static void drop(const struct opt_parsed *p, const char *name, const char *why)
{
    struct opt_source *s = source_of(p, name);
    const struct opt *o = &p->verb->opts[s - p->sources];
    char text[SHOWN];
    void *value = (char *)p->values + o->offset;
    value_free(o->type, value);
    memcpy(value, &s->before, value_size(o->type));
    if (s->rank < OPT_LINE)
        msg_note("%s: has no effect %s",
                 source_text(s, name, text, sizeof(text)), why);
    s->rank = OPT_UNSET;
}

bool opt_yield(const struct opt_parsed *p, const char *a, const char *b)
{
    const struct opt_source *x = source_of(p, a), *y = source_of(p, b);
    char why[SHOWN + 8], other[SHOWN];
    if (!x || !y || x->rank == y->rank)
        return false;
    bool a_yields = x->rank < y->rank;
    source_text(a_yields ? y : x, a_yields ? b : a, other, sizeof(other));
    snprintf(why, sizeof(why), "with %s", other);
    drop(p, a_yields ? a : b, why);
    return true;
}

int opt_conflict(const struct opt_parsed *p, const char *a, const char *b)
{
    const struct opt_source *x = source_of(p, a), *y = source_of(p, b);
    char first[SHOWN], second[SHOWN];
    if (!x || !y || opt_yield(p, a, b))
        return -1;
    return opt_usage(p->verb, "%s: cannot be combined with %s",
                     source_text(x, a, first, sizeof(first)),
                     source_text(y, b, second, sizeof(second)));
}

/* If a word of why is an option that the config file or the environment sets,
 * write where to out: " (WHERE)". */
static void blame(const struct opt_parsed *p, const char *why, char *out,
                  size_t n)
{
    const char *word = strstr(why, "--");
    char name[64];
    out[0] = 0;
    if (!word)
        return;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, " "), word + 2);
    const struct opt_source *s = source_of(p, name);
    if (s && s->where)
        snprintf(out, n, " (%s)", s->where);
}

int opt_no_effect(const struct opt_parsed *p, const char *const *names,
                  const char *why)
{
    char where[SHOWN];
    for (; *names; names++) {
        const struct opt_source *s = source_of(p, *names);
        if (s && s->rank < OPT_LINE) {
            drop(p, *names, why);
        } else if (s) {
            blame(p, why, where, sizeof(where));
            return opt_usage(p->verb, "--%s: has no effect %s%s", *names, why,
                             where);
        }
    }
    return -1;
}

void opt_warn_no_effect(const struct opt_parsed *p, const char *name,
                        const char *why)
{
    const struct opt_source *s = source_of(p, name);
    char where[SHOWN];
    if (!s)
        return;
    blame(p, why, where, sizeof(where));
    if (s->rank == OPT_LINE)
        msg_warn("--%s: has no effect %s%s", name, why, where);
    drop(p, name, why);
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

/* The row of a letter, or n_opts if there is none. late: the letter stands
 * after the verb. */
static size_t find_letter(const struct verb *v, char letter, bool late)
{
    size_t k = v->n_opts;
    for (size_t i = 0; i < v->n_opts; i++)
        if (v->opts[i].letter == letter && v->opts[i].letter_late <= late &&
            (k == v->n_opts || v->opts[i].letter_late))
            k = i;
    return k;
}

const struct opt *opt_find_letter(const struct verb *v, char letter, bool late)
{
    size_t k = find_letter(v, letter, late);
    return k < v->n_opts ? &v->opts[k] : NULL;
}

/* Whether the option's letter, standing after the verb, means this option. */
static bool has_letter(const struct verb *v, const struct opt *o)
{
    return o->letter && opt_find_letter(v, o->letter, true) == o;
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
    return buf_putc(b, '\n');
}

int opt_help(const struct verb *v)
{
    struct buf b = {0};
    bool main_help = v == &verb_generate;
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
    for (size_t i = 0; i < v->n_opts && r == 0; i++) {
        if (v->opts[i].type == OPT_HEADING)
            r = buf_printf(&b, "\n%s\n", v->opts[i].help);
        else
            r = help_option(&b, v, &v->opts[i]);
    }
    r |= buf_printf(&b, "\nExamples\n%s", v->examples);
    if (main_help)
        r |= buf_puts(&b, "\nExit status: 0 done, 1 failure, 2 usage, 3 model, "
                          "4 context, 5 memory,\n6 incomplete "
                          "(--require-answer).\nMore: man qwick\n");
    int status = r ? msg_oom() : out_write(b.data, b.len) ? 1 : 0;
    buf_free(&b);
    return status;
}

int opt_version(void)
{
    static const char text[] = "qwick " QWICK_VERSION "\n";
    return out_write(text, sizeof(text) - 1) ? QWICK_ERR_RUNTIME : 0;
}

/* ---- unknown options ---- */

/* Names that other programs use for our options. */
static const char *const peers[][2] = {
    {"temperature", "temp"},
    {"max-new-tokens", "max-tokens"},
    {"max-length", "max-tokens"},
    {"n-predict", "max-tokens"},
    {"num-predict", "max-tokens"},
    {"predict", "max-tokens"},
    {"system-prompt", "system"},
    {"system-prompt-file", "system-file"},
    {"ctx-size", "ctx"},
    {"context-size", "ctx"},
    {"context-length", "ctx"},
    {"max-model-len", "ctx"},
    {"num-ctx", "ctx"},
    {"n-ctx", "ctx"},
    {"repetition-penalty", "repeat-penalty"},
    {"num-threads", "threads"},
    {"n-threads", "threads"},
    {"batch-size", "max-batch"},
    {"max-num-seqs", "max-batch"},
    {"stop-sequence", "stop"},
    {"reverse-prompt", "stop"},
    {"top-logprobs", "logprobs"},
    {"n-probs", "logprobs"},
    {"enable-thinking", "think"},
    {"reasoning", "think"},
    {"kv-cache-dtype", "kv"},
    {"cache-type-k", "kv"},
    {"mlock", "preload"},
    {"no-mmap", "preload"},
    {"prompt-cache", "session"},
    {"input-file", "input"},
    {"infile", "input"},
    {"output-file", "output"},
    {"outfile", "output"},
    {"prompt-file", "file"},
    {"no-chat-template", "raw"},
    {"chat-template-kwargs", "template-arg"},
    {"chat-template-file", "chat-template"},
    {"truncation", "overflow"},
};

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
    for (size_t i = 0; i < sizeof(peers) / sizeof(*peers); i++)
        if (strcmp(dashed, peers[i][0]) == 0 &&
            find(v, peers[i][1]) < v->n_opts)
            return peers[i][1];
    for (size_t i = 0; i < v->n_opts; i++) {
        const char *known = v->opts[i].name;
        if (!known)
            continue;
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

/* Another verb that has the option; NULL: none. */
static const struct verb *other_verb(const char *name)
{
    for (size_t i = 0; verbs[i]; i++)
        if (find(verbs[i], name) < verbs[i]->n_opts)
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
    const char *word = v == &verb_generate && p->n_plain ? p->args[0] : NULL;
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
    if (name && (other = other_verb(name)))
        return opt_usage(v, "%s: unknown option of %s; %s has it", shown,
                         v->name, other->name);
    return opt_usage(v, "%s: unknown option%s", shown,
                     name ? "" : "; text that begins with - follows --");
}

/* ---- parsing ---- */

static int push_text(struct opt_texts *t, const char *s)
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
    if (strcmp(o->name, "help") == 0)
        return opt_help(v);
    if (strcmp(o->name, "version") == 0)
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

/* The place of an option's value. */
static void *value_at(const struct opt_parsed *p, const struct opt *o)
{
    return (char *)p->values + o->offset;
}

static int set_next(const struct opt_parsed *p, const struct opt *o,
                    const char *shown, struct cursor *c)
{
    const char *value = next_word(c);
    if (!value)
        return opt_usage(p->verb, "%s: needs a value", shown);
    return set_value(p->verb, o, shown, value, value_at(p, o));
}

static int parse_long(struct opt_parsed *p, const char *arg, struct cursor *c)
{
    const struct verb *v = p->verb;
    char shown[64];
    const char *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg), k;
    if (n >= sizeof(shown))
        return unknown(p, arg, NULL);
    memcpy(shown, arg, n);
    shown[n] = 0;
    k = find(v, shown + 2);
    if (k == v->n_opts)
        return unknown(p, shown, shown + 2);
    const struct opt *o = &v->opts[k];
    p->sources[k].rank = OPT_LINE;
    if (eq)
        return set_value(v, o, shown, eq + 1, value_at(p, o));
    if (takes_value(o))
        return set_next(p, o, shown, c);
    if (o->type == OPT_FLAG_FILE && !p->n_args)
        p->before = o;
    return set_flag(v, o, value_at(p, o));
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
        size_t k = find_letter(v, *at, c->late);
        if (k == v->n_opts)
            return unknown(p, arg[2] ? arg : shown, NULL);
        const struct opt *o = &v->opts[k];
        p->sources[k].rank = OPT_LINE;
        if (takes_value(o))
            return at[1] ? set_value(v, o, shown, at + 1, value_at(p, o))
                         : set_next(p, o, shown, c);
        int r = set_flag(v, o, value_at(p, o));
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

int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv,
              void *args)
{
    int r;
    *p = (struct opt_parsed){.verb = v, .values = args};
    p->args = calloc((size_t)argc + 1, sizeof(*p->args));
    p->sources = calloc(v->n_opts, sizeof(*p->sources));
    if (!p->args || !p->sources)
        return msg_oom();
    if ((r = parse_line(p, argc, argv)) >= 0)
        return r;
    return settings_apply(p);
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
    struct opt_source *s = &p->sources[o - p->verb->opts];
    void *dst = value_at(p, o);
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
    const struct verb *v = other_verb(name);
    if (!v)
        return 0;
    return !arg[n] && takes_value(&v->opts[find(v, name)]) ? 2 : 1;
}

/* The number of words of a bundle of letters, of whichever verb. */
static int short_words(const char *letters)
{
    for (; *letters; letters++) {
        const struct opt *o = NULL;
        for (size_t i = 0; verbs[i] && !o; i++) {
            size_t k = find_letter(verbs[i], *letters, false);
            if (k < verbs[i]->n_opts)
                o = &verbs[i]->opts[k];
        }
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

void opt_free(struct opt_parsed *p, void *args)
{
    for (size_t i = 0; p->verb && i < p->verb->n_opts; i++) {
        const struct opt *o = &p->verb->opts[i];
        value_free(o->type, (char *)args + o->offset);
    }
    free(p->args);
    free(p->sources);
    settings_free(p->settings);
}
