#include "cli/answer/constraint_opts.h"

#include <stdlib.h>
#include <string.h>

#include "cli/io/out.h"
#include "cli/io/prompt.h"

static const struct {
    const char *name; /* of the option, after two dashes */
    enum qwick_constraint_kind kind;
    size_t offset; /* of the value in struct constraint_args */
    enum {
        VALUE_TEXT,
        VALUE_FILE,
        VALUE_EITHER
    } form; /* of the value; a text
               in EITHER begins
               with "{" */
} rows[] = {
    {"--regex", QWICK_CONSTRAINT_REGEX, offsetof(struct constraint_args, regex),
     VALUE_TEXT},
    {"--choices", QWICK_CONSTRAINT_CHOICES,
     offsetof(struct constraint_args, choices), VALUE_TEXT},
    {"--grammar", QWICK_CONSTRAINT_GBNF,
     offsetof(struct constraint_args, grammar), VALUE_FILE},
    {"--json-schema", QWICK_CONSTRAINT_JSON_SCHEMA,
     offsetof(struct constraint_args, json_schema), VALUE_EITHER},
};

enum { N_ROWS = sizeof(rows) / sizeof(*rows) };

/* Return the first row from i on whose option was given, or N_ROWS. */
static size_t given(const struct opt_parsed *p, size_t i)
{
    while (i < N_ROWS && !opt_given(p, rows[i].name + 2))
        i++;
    return i;
}

bool constraint_given(const struct opt_parsed *p)
{
    return given(p, 0) < N_ROWS;
}

/* Return the value of row i. */
static const char *value(const struct constraint_args *a, size_t i)
{
    const char *v;
    memcpy(&v, (const char *)a + rows[i].offset, sizeof(v));
    return v;
}

static bool is_file(const struct constraint_args *a, size_t i)
{
    return rows[i].form == VALUE_FILE ||
           (rows[i].form == VALUE_EITHER && *value(a, i) != '{');
}

int constraint_check(const struct opt_parsed *p,
                     const struct constraint_args *a)
{
    static const char *const others[] = {"stop", "ignore-eos"};
    static const char *const indent[] = {"json-indent", NULL};
    size_t i, second;
    int r;
    while ((i = given(p, 0)) < N_ROWS && (second = given(p, i + 1)) < N_ROWS)
        if ((r = opt_conflict(p, rows[i].name + 2, rows[second].name + 2)) >= 0)
            return r;
    if (!a->json_schema &&
        (r = opt_no_effect(p, indent, "without --json-schema")) >= 0)
        return r;
    if (i == N_ROWS)
        return -1;
    if (is_file(a, i) && strcmp(value(a, i), "-") == 0)
        return opt_usage(p->verb, "%s: needs a file, not standard input",
                         rows[i].name);
    for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
        if ((r = opt_conflict(p, rows[i].name + 2, others[k])) >= 0)
            return r;
    return -1;
}

int constraint_read(struct qwick_constraint_options *o, char **data,
                    const struct opt_parsed *p, const struct constraint_args *a)
{
    struct qwick_err e;
    size_t i = given(p, 0);
    *o = qwick_constraint_defaults();
    *data = NULL;
    o->text = value(a, i);
    o->n_text = strlen(o->text);
    o->kind = rows[i].kind;
    o->name = rows[i].name;
    o->json_indent = (int)a->json_indent;
    if (!is_file(a, i))
        return 0;
    o->name = o->text;
    if (prompt_read(o->text, data, &o->n_text, &e))
        return msg_fail(&e);
    o->text = *data ? *data : "";
    return 0;
}

int constraint_open(struct qwick_constraint **out,
                    enum qwick_constraint_kind *kind, struct qwick_engine *eng,
                    const struct opt_parsed *p, const struct constraint_args *a)
{
    struct qwick_constraint_options o;
    struct qwick_err e;
    char *data;
    *out = NULL;
    if (!constraint_given(p))
        return 0;
    int status = constraint_read(&o, &data, p, a);
    *kind = o.kind;
    if (!status && qwick_constraint_create(out, eng, &o, &e))
        status = msg_fail(&e);
    free(data);
    return status;
}

bool constraint_is_cut(enum qwick_constraint_kind kind, enum qwick_finish why)
{
    return kind != QWICK_CONSTRAINT_NO_CALL && why != QWICK_FINISH_STOP;
}
