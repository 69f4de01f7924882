#include "cli/constraint_opts.h"

#include <stdlib.h>
#include <string.h>

#include "cli/out.h"
#include "cli/prompt.h"

static const struct {
    const char *name; /* of the option, after two dashes */
    enum qwick_constraint_kind kind;
    size_t offset; /* of the value in struct constraint_args */
    bool file;     /* the value is the name of a file */
} rows[] = {
    {"--regex", QWICK_CONSTRAINT_REGEX,
     offsetof(struct constraint_args, regex), false},
    {"--choices", QWICK_CONSTRAINT_CHOICES,
     offsetof(struct constraint_args, choices), false},
    {"--grammar", QWICK_CONSTRAINT_GBNF,
     offsetof(struct constraint_args, grammar), true},
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

int constraint_check(const struct opt_parsed *p,
                     const struct constraint_args *a)
{
    static const char *const others[] = {"stop", "ignore-eos"};
    size_t i = given(p, 0), second;
    int r;
    if (i == N_ROWS)
        return -1;
    second = given(p, i + 1);
    if (opt_given(p, "grammar") && strcmp(a->grammar, "-") == 0)
        return opt_usage(p->verb,
                         "--grammar: needs a file, not standard input");
    if (second < N_ROWS)
        return opt_conflict(p, rows[i].name + 2, rows[second].name + 2);
    for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
        if ((r = opt_conflict(p, rows[i].name + 2, others[k])) >= 0)
            return r;
    return -1;
}

int constraint_open(struct qwick_constraint **out, struct qwick_engine *eng,
                    const struct opt_parsed *p, const struct constraint_args *a)
{
    struct qwick_constraint_options o = qwick_constraint_defaults();
    struct qwick_err e;
    char *data = NULL;
    size_t i = given(p, 0);
    *out = NULL;
    if (i == N_ROWS)
        return 0;
    memcpy(&o.text, (const char *)a + rows[i].offset, sizeof(o.text));
    o.n_text = strlen(o.text);
    o.kind = rows[i].kind;
    o.name = rows[i].name;
    if (rows[i].file) {
        o.name = o.text;
        if (prompt_read(o.text, &data, &o.n_text, &e))
            return msg_fail(&e);
        o.text = data;
    }
    int status = qwick_constraint_create(out, eng, &o, &e) ? msg_fail(&e) : 0;
    free(data);
    return status;
}

bool constraint_is_cut(enum qwick_finish why)
{
    return why != QWICK_FINISH_STOP;
}
