#include "cli/opt.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/out.h"
#include "cli/verbs.h"
#include "qwick.h"

/* ---- values ---- */

int opt_int(const char *s, int64_t *out)
{
    const char *p = s + (*s == '-');
    char *end;
    if (*p < '0' || *p > '9')
        return -1;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (*end || errno)
        return -1;
    *out = v;
    return 0;
}

static const char *digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

int opt_size(const char *s, int64_t *out)
{
    static const char units[] = "KMGT";
    char digits[24];
    size_t n = strlen(s);
    const char *unit = n ? strchr(units, s[n - 1]) : NULL;
    int64_t scale = 1;
    n -= unit != NULL;
    if (n == 0 || n >= sizeof(digits) || *s == '-')
        return -1;
    memcpy(digits, s, n);
    digits[n] = 0;
    for (const char *u = units; unit && u <= unit; u++)
        scale *= 1024;
    if (opt_int(digits, out) || __builtin_mul_overflow(*out, scale, out))
        return -1;
    return 0;
}

int opt_number(const char *s, double *out)
{
    /* checked here, because strtod takes blanks, hexadecimal and "nan"; the
     * program never calls setlocale, so the decimal point is a point */
    const char *p = s + (*s == '-');
    const char *q = digits(p);
    size_t n = (size_t)(q - p);
    if (*q == '.') {
        p = q + 1;
        q = digits(p);
        n += (size_t)(q - p);
    }
    if (n == 0)
        return -1;
    if (*q == 'e' || *q == 'E') {
        p = q + 1;
        if (*p == '-' || *p == '+')
            p++;
        q = digits(p);
        if (q == p)
            return -1;
    }
    if (*q)
        return -1;
    *out = strtod(s, NULL);
    return isfinite(*out) ? 0 : -1;
}

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

/* "1..100" of a number, "1 or more" where the largest is of no interest (not
 * in full); empty when there is no range to show. */
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

bool opt_given(const struct opt_parsed *p, const char *name)
{
    size_t i = find(p->verb, name);
    return i < p->verb->n_opts && p->given[i];
}

int opt_conflict(const struct opt_parsed *p, const char *a, const char *b)
{
    if (!opt_given(p, a) || !opt_given(p, b))
        return -1;
    return opt_usage(p->verb, "--%s: cannot be combined with --%s", a, b);
}

int opt_no_effect(const struct opt_parsed *p, const char *const *names,
                  const char *why)
{
    for (; *names; names++)
        if (opt_given(p, *names))
            return opt_usage(p->verb, "--%s: has no effect %s", *names, why);
    return -1;
}

/* ---- help ---- */

#define HELP_WIDTH  79
#define HELP_INDENT 29

/* Append words, broken so that no line passes HELP_WIDTH; col is the present
 * column, following lines start at HELP_INDENT. */
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

static int help_option(struct buf *b, const struct opt *o)
{
    size_t start = b->len, col;
    char range[64], extra[256];
    if (o->letter ? buf_printf(b, "  -%c, --%s", o->letter, o->name)
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

static int help(const struct verb *v)
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
            r = help_option(&b, &v->opts[i]);
    }
    if (main_help)
        r |= buf_puts(&b, "\nExit status: 0 done, 1 failure, 2 usage, 3 model, "
                          "4 context, 5 memory.\nMore: man qwick\n");
    int status = r ? msg_oom() : out_write(b.data, b.len) ? 1 : 0;
    buf_free(&b);
    return status;
}

/* ---- parsing ---- */

static size_t distance(const char *a, const char *b)
{
    size_t row[40], n = strlen(b);
    if (n >= 40)
        return 40;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; a++, i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diag + (*a != b[j - 1]);
            diag = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

static int unknown(const struct verb *v, const char *shown, const char *name)
{
    const char *best = NULL;
    size_t least = 3;
    for (size_t i = 0; name && strlen(name) < 40 && i < v->n_opts; i++) {
        if (!v->opts[i].name)
            continue;
        size_t d = distance(name, v->opts[i].name);
        if (d < least) {
            least = d;
            best = v->opts[i].name;
        }
    }
    if (best)
        return opt_usage(v, "%s: unknown option, did you mean --%s?", shown,
                         best);
    return opt_usage(v, "%s: unknown option", shown);
}

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
                        const char *shown, const char *value)
{
    char range[64];
    range_text(o, true, range, sizeof(range));
    return opt_usage(v, "%s: \"%s\": expected %s, %s", shown, value,
                     o->type == OPT_NUMBER ? "a number"
                     : o->type == OPT_INTS ? "integers between commas"
                                           : "an integer",
                     range);
}

static int set_ints(const struct verb *v, const struct opt *o,
                    const char *shown, const char *value, struct opt_ints *list)
{
    char item[32];
    list->n = 0;
    for (const char *p = value;; p++) {
        size_t n = strcspn(p, ",");
        int64_t x;
        if (n >= sizeof(item))
            return out_of_range(v, o, shown, value);
        memcpy(item, p, n);
        item[n] = 0;
        if (opt_int(item, &x) || x < o->imin || x > o->imax)
            return out_of_range(v, o, shown, value);
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

/* shown is the option as the user wrote it. */
static int set_value(const struct verb *v, const struct opt *o,
                     const char *shown, const char *value, void *args)
{
    void *dst = (char *)args + o->offset;
    int64_t i;
    double d;
    switch (o->type) {
    case OPT_INT:
        if (opt_int(value, &i) || i < o->imin || i > o->imax)
            return out_of_range(v, o, shown, value);
        *(int64_t *)dst = i;
        return -1;
    case OPT_SIZE:
        if (opt_size(value, &i) || i < o->imin)
            return opt_usage(v,
                             "%s: \"%s\": expected a number of bytes, as in "
                             "500M or 4G",
                             shown, value);
        *(int64_t *)dst = i;
        return -1;
    case OPT_NUMBER:
        if (opt_number(value, &d) || d < o->min || d > o->max)
            return out_of_range(v, o, shown, value);
        *(double *)dst = d;
        return -1;
    case OPT_CHOICE:
        if (is_choice(o->later, value))
            return opt_usage(v, "%s %s: not in this version", shown, value);
        if (!is_choice(o->choices, value))
            return opt_usage(v, "%s: \"%s\" is none of %s", shown, value,
                             o->choices);
        *(const char **)dst = value;
        return -1;
    case OPT_FILE:
        if (!*value)
            return opt_usage(v, "%s: the value is empty", shown);
        *(const char **)dst = value;
        return -1;
    case OPT_TEXT:
        *(const char **)dst = value;
        return -1;
    case OPT_TEXTS:
        if (!*value)
            return opt_usage(v, "%s: the value is empty", shown);
        return push_text(dst, value);
    case OPT_INTS:
        return set_ints(v, o, shown, value, dst);
    case OPT_FLAG_FILE:
        if (!*value)
            return opt_usage(v, "%s: the value is empty", shown);
        ((struct opt_flag_file *)dst)->on = true;
        ((struct opt_flag_file *)dst)->file = value;
        return -1;
    case OPT_FLAG:
    case OPT_HEADING:
        break;
    }
    return opt_usage(v, "%s: takes no value", shown);
}

static bool takes_value(const struct opt *o)
{
    return o->type != OPT_FLAG && o->type != OPT_FLAG_FILE;
}

/* An option without a value. */
static int set_flag(const struct verb *v, const struct opt *o, void *args)
{
    void *dst = (char *)args + o->offset;
    if (strcmp(o->name, "help") == 0)
        return help(v);
    if (strcmp(o->name, "version") == 0)
        return out_write("qwick " QWICK_VERSION "\n",
                         sizeof("qwick " QWICK_VERSION "\n") - 1)
                   ? 1
                   : 0;
    if (o->type == OPT_FLAG_FILE)
        ((struct opt_flag_file *)dst)->on = true;
    else
        *(bool *)dst = true;
    return -1;
}

static int parse_long(struct opt_parsed *p, const char *arg, int argc,
                      char **argv, int *i, void *args)
{
    const struct verb *v = p->verb;
    char shown[64];
    const char *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg), k;
    if (n >= sizeof(shown))
        return unknown(v, arg, NULL);
    memcpy(shown, arg, n);
    shown[n] = 0;
    k = find(v, shown + 2);
    if (k == v->n_opts)
        return unknown(v, shown, shown + 2);
    p->given[k] = true;
    if (eq)
        return set_value(v, &v->opts[k], shown, eq + 1, args);
    if (!takes_value(&v->opts[k]))
        return set_flag(v, &v->opts[k], args);
    if (++*i >= argc)
        return opt_usage(v, "%s: needs a value", shown);
    return set_value(v, &v->opts[k], shown, argv[*i], args);
}

/* "-qv", "-n5", "-n 5". */
static int parse_short(struct opt_parsed *p, const char *arg, int argc,
                       char **argv, int *i, void *args)
{
    const struct verb *v = p->verb;
    for (const char *c = arg + 1; *c; c++) {
        char shown[3] = {'-', *c, 0};
        size_t k = 0;
        while (k < v->n_opts && v->opts[k].letter != *c)
            k++;
        if (k == v->n_opts)
            return unknown(v, arg[2] ? arg : shown, NULL);
        p->given[k] = true;
        if (takes_value(&v->opts[k])) {
            if (c[1])
                return set_value(v, &v->opts[k], shown, c + 1, args);
            if (++*i >= argc)
                return opt_usage(v, "%s: needs a value", shown);
            return set_value(v, &v->opts[k], shown, argv[*i], args);
        }
        int r = set_flag(v, &v->opts[k], args);
        if (r >= 0)
            return r;
    }
    return -1;
}

int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv,
              void *args)
{
    bool only_args = false;
    memset(p, 0, sizeof(*p));
    p->verb = v;
    p->args = calloc((size_t)argc + 1, sizeof(*p->args));
    if (!p->args)
        return msg_oom();
    for (int i = 0; i < argc; i++) {
        char *a = argv[i];
        int r = -1;
        if (only_args || a[0] != '-' || !a[1])
            p->args[p->n_args++] = a;
        else if (strcmp(a, "--") == 0)
            only_args = true;
        else if (a[1] == '-')
            r = parse_long(p, a, argc, argv, &i, args);
        else
            r = parse_short(p, a, argc, argv, &i, args);
        if (r >= 0)
            return r;
    }
    return -1;
}

void opt_free(struct opt_parsed *p, void *args)
{
    for (size_t i = 0; p->verb && i < p->verb->n_opts; i++) {
        const struct opt *o = &p->verb->opts[i];
        void *dst = (char *)args + o->offset;
        if (o->type == OPT_TEXTS)
            free(((struct opt_texts *)dst)->v);
        else if (o->type == OPT_INTS)
            free(((struct opt_ints *)dst)->v);
    }
    free(p->args);
}
