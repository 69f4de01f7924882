/* Schemas as automata, and whether they admit a text. */
#ifndef TEST_SCHEMA_AUTOMATON_H
#define TEST_SCHEMA_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/schema/schema.h"

/* The options of schemas, without the indent. */
static struct schema_options test_options;

/* Compile a schema. Returns NULL with *e set if it is refused. */
static struct grammar *grammar_of(const char *text, size_t n, int indent,
                                  struct qwick_err *e)
{
    struct schema_options o = test_options;
    o.indent = indent;
    struct grammar *g = NULL;
    uint32_t root;
    if (grammar_create(&g, "S", e) == 0 &&
        schema_compile(g, text, n, &o, &root, e) == 0 &&
        grammar_finish(g, root, e) == 0)
        return g;
    grammar_free(g);
    return NULL;
}

static bool matches(struct automaton *a, const char *s, size_t n)
{
    uint32_t state = automaton_start(a);
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
        state = automaton_advance(a, state, (unsigned char)s[i]);
    struct qwick_err e;
    assert_ok(automaton_error(a, &e), &e);
    return state != AUTOMATON_DEAD && automaton_accepts(a, state);
}

#endif
