/* Schemas with documents that they admit and others, for the tests of the
 * schema compiler. */
#ifndef TEST_SCHEMA_DOCS_H
#define TEST_SCHEMA_DOCS_H

#include "test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "schema_automaton.h"

static struct automaton *compile(const char *text, size_t n, int indent,
                                 struct qwick_err *e)
{
    struct grammar *g = grammar_of(text, n, indent, e);
    struct automaton *a = NULL;
    if (g)
        automaton_create(&a, g, e);
    grammar_free(g);
    return a;
}

enum { MAX_DOCS = 24 };

struct documents {
    const char *schema;
    const char *valid[MAX_DOCS], *invalid[MAX_DOCS];
};

/* Return a copy of a text with double quotes for single ones. */
static char *quoted(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    return copy;
}

static void check_texts(struct automaton *a, const char *schema,
                        const char *const *texts, bool valid, bool quotes)
{
    for (; *texts; texts++) {
        char *text = quotes ? quoted(*texts) : strdup(*texts);
        assert_non_null(text);
        if (matches(a, text, strlen(text)) != valid)
            fail_msg("%s %s %s", schema, valid ? "does not admit" : "admits",
                     text);
        free(text);
    }
}

static void check_documents(const struct documents *d, bool quotes)
{
    struct qwick_err e;
    char *schema = quotes ? quoted(d->schema) : strdup(d->schema);
    assert_non_null(schema);
    struct automaton *a = compile(schema, strlen(schema), 0, &e);
    if (!a)
        fail_msg("%s: %s", schema, e.msg);
    check_texts(a, schema, d->valid, true, quotes);
    check_texts(a, schema, d->invalid, false, quotes);
    automaton_free(a);
    free(schema);
}

/* Fail unless a schema, with single quotes, is refused with this message. */
__attribute__((unused)) static void check_refused(const char *schema, const char *message)
{
    struct qwick_err e = {0};
    char *text = quoted(schema);
    struct automaton *a = compile(text, strlen(text), 0, &e);
    if (a)
        fail_msg("%s is accepted", schema);
    if (strncmp(e.msg, "S: ", 3) != 0 ||
        strncmp(e.msg + 3, message, strlen(message)) != 0)
        fail_msg("%s: %s\nexpected %s", schema, e.msg, message);
    free(text);
}

#endif
