/* Options that constrain the text of an answer. */
#ifndef CLI_CONSTRAINT_OPTS_H
#define CLI_CONSTRAINT_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Values of the options: a member of a verb's struct of arguments. */
struct constraint_args {
    const char *regex, *choices, *grammar, *json_schema;
    int64_t json_indent;
};

/* clang-format off */
/* Rows for the option table of a verb. at: offset of struct constraint_args in
 * the verb's struct of arguments. */
#define CONSTRAINT_AT(at, field)                                              \
    ((at) + offsetof(struct constraint_args, field))

#define OPT_ROWS_CONSTRAINT(at, status)                                       \
    {.type = OPT_HEADING,                                                     \
     .help = "Constraints (a cut answer: " status ")"},                       \
    {.name = "regex", .type = OPT_TEXT, .arg = "RE",                          \
     .help = "the whole answer matches the regular expression RE",            \
     .offset = CONSTRAINT_AT(at, regex)},                                     \
    {.name = "choices", .type = OPT_TEXT, .arg = "TEXT,TEXT,...",             \
     .help = "the answer is one of these texts; \\, is a comma",              \
     .offset = CONSTRAINT_AT(at, choices)},                                   \
    {.name = "grammar", .type = OPT_FILE, .arg = "FILE",                      \
     .help = "the answer follows the GBNF grammar in FILE",                   \
     .offset = CONSTRAINT_AT(at, grammar)},                                   \
    {.name = "json-schema", .type = OPT_TEXT, .arg = "FILE|TEXT",             \
     .help = "the answer is JSON that the schema admits; a TEXT begins with " \
             "{",                                                             \
     .access = OPT_LOADS, .offset = CONSTRAINT_AT(at, json_schema)},                               \
    {.name = "json-indent", .type = OPT_INT, .arg = "N", .imin = 0,           \
     .imax = 16, .def = "0, compact",                                         \
     .help = "indent that JSON by N blanks per level",                        \
     .offset = CONSTRAINT_AT(at, json_indent)}
/* clang-format on */

/* Check the options against each other and against the options that end
 * answers. Returns -1 to go on, or exit status 2 after printing a message. */
int constraint_check(const struct opt_parsed *p,
                     const struct constraint_args *a);

/* Return whether an option sets a constraint. */
bool constraint_given(const struct opt_parsed *p);

/* Read the constraint of the options into *o, from its file if it is in one.
 * *data owns the text of a file and must be freed with free(); it may be NULL.
 * Call it only if constraint_given. Returns 0, or an exit status after printing
 * a message. */
int constraint_read(struct qwick_constraint_options *o, char **data,
                    const struct opt_parsed *p,
                    const struct constraint_args *a);

/* Compile the constraint of the options, and set *kind; *out is NULL if there
 * is none. Returns 0, or an exit status after printing a message. */
int constraint_open(struct qwick_constraint **out,
                    enum qwick_constraint_kind *kind, struct qwick_engine *eng,
                    const struct opt_parsed *p,
                    const struct constraint_args *a);

/* Whether an answer that ended for this reason may be shorter than the
 * constraint demands. A text without calls has no calls when it is cut,
 * either. */
bool constraint_is_cut(enum qwick_constraint_kind kind, enum qwick_finish why);

#endif
