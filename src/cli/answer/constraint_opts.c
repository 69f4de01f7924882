#include "cli/answer/constraint_opts.h"

#include <stdlib.h>
#include <string.h>

#include "cli/answer/answer_opts.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"

static const struct {
    enum opt_id id;
    const char *shown; /* in messages */
    enum qwick_constraint_kind kind;
    enum {
        VALUE_TEXT,
        VALUE_FILE,
        VALUE_EITHER /* a text begins with "{" */
    } value;
} rows[] = {
    {OPT_regex, "--regex", QWICK_CONSTRAINT_REGEX, VALUE_TEXT},
    {OPT_choices, "--choices", QWICK_CONSTRAINT_CHOICES, VALUE_TEXT},
    {OPT_grammar, "--grammar", QWICK_CONSTRAINT_GBNF, VALUE_FILE},
    {OPT_json_schema, "--json-schema", QWICK_CONSTRAINT_JSON_SCHEMA,
     VALUE_EITHER},
};

enum { N_ROWS = sizeof(rows) / sizeof(*rows), MAX_INDENT = 16 };

/* The row of the option that is given, or N_ROWS. */
static size_t constraint_row(const struct opt_parsed *p)
{
    size_t i = 0;
    while (i < N_ROWS && !opt_given(p, rows[i].id))
        i++;
    return i;
}

bool constraint_given(const struct opt_parsed *p)
{
    return constraint_row(p) < N_ROWS;
}

static const char *row_value(const struct opt_parsed *p, size_t i)
{
    return *(const char **)opt_value_at(p, opt_row(p->verb, rows[i].id));
}

static bool is_file(const struct opt_parsed *p, size_t i)
{
    return rows[i].value == VALUE_FILE ||
           (rows[i].value == VALUE_EITHER && *row_value(p, i) != '{');
}

/* Read the value of --json-indent. Returns 0 or -1. */
static int read_indent(const struct opt_parsed *p, int *out)
{
    const char *s = p->a.json_indent;
    int64_t n = 0;
    *out = QWICK_INDENT_FREE;
    if (s && strcmp(s, "free") == 0)
        return 0;
    if (s && (opt_int(s, &n) || n < 0 || n > MAX_INDENT))
        return -1;
    *out = (int)n;
    return 0;
}

int constraint_check(const struct opt_parsed *p)
{
    size_t i = constraint_row(p);
    int indent;
    if (read_indent(p, &indent))
        return opt_usage(p->verb,
                         "--json-indent: %s is neither \"free\" nor a number "
                         "in 0..%d",
                         p->a.json_indent, MAX_INDENT);
    if (i < N_ROWS && is_file(p, i) && strcmp(row_value(p, i), "-") == 0)
        return opt_usage(p->verb, "%s: needs a file, not standard input",
                         rows[i].shown);
    return -1;
}

static bool has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n > k && strcmp(s + n - k, suffix) == 0;
}

bool constraint_any_order(const char *order)
{
    return order && strcmp(order, "any") == 0;
}

int constraint_read(struct qwick_constraint_options *o, char **data,
                    const struct opt_parsed *p)
{
    struct qwick_err e;
    size_t i = constraint_row(p);
    *o = qwick_constraint_defaults();
    *data = NULL;
    o->text = row_value(p, i);
    o->n_text = strlen(o->text);
    o->kind = rows[i].kind;
    o->name = rows[i].shown;
    read_indent(p, &o->json_indent); /* constraint_check has read it */
    o->lenient = p->a.schema_lenient;
    o->json_any_order = constraint_any_order(p->a.json_order);
    if (!is_file(p, i))
        return 0;
    o->name = o->text;
    if (o->kind == QWICK_CONSTRAINT_GBNF && has_suffix(o->text, ".lark"))
        o->kind = QWICK_CONSTRAINT_LARK;
    if (prompt_read(o->text, data, &o->n_text, &e))
        return msg_fail(&e);
    o->text = *data ? *data : "";
    return 0;
}

/* Print a line. ctx: a bool that notes errors. */
static void constraint_say(void *ctx, enum qwick_log_level level,
                           const char *line)
{
    bool *failed = ctx;
    *failed |= level == QWICK_LOG_ERROR;
    msg_say(level == QWICK_LOG_ERROR ? MSG_ERROR : MSG_WARNING, "%s", line);
}

int constraint_open(struct qwick_constraint **out, struct qwick_engine *eng,
                    struct qwick_constraint_options *o)
{
    struct qwick_err e;
    bool said = false;
    o->log = constraint_say;
    o->log_ctx = &said;
    int rc = qwick_constraint_create(out, eng, o, &e);
    return said ? (int)e.code : msg_result(rc, &e);
}

int constraint_verdict(const struct qwick_constraint *c, bool is_text,
                       const struct qwick_result *r,
                       enum schema_verdict *verdict, struct qwick_err *e)
{
    bool valid = false;
    *verdict = SCHEMA_UNCHECKED;
    if (!c || !qwick_constraint_is_lenient(c))
        return 0;
    *verdict = SCHEMA_CUT;
    if (!is_text && r->finish != QWICK_FINISH_STOP)
        return 0;
    if (qwick_constraint_check(c, r->text ? r->text : "", r->n_text, &valid, e))
        return -1;
    *verdict = valid ? SCHEMA_VALID : SCHEMA_INVALID;
    return 0;
}

bool constraint_is_text(enum qwick_constraint_kind kind)
{
    return kind == QWICK_CONSTRAINT_NO_CALL ||
           kind == QWICK_CONSTRAINT_TOOLS_AUTO;
}

bool constraint_is_cut(enum qwick_constraint_kind kind, enum qwick_finish why)
{
    return !constraint_is_text(kind) && why != QWICK_FINISH_STOP;
}
