/* Constraints: regular expressions, GBNF, Lark, JSON Schema. */
#include <stdbool.h>

#include "targets.h"
#include "text/grammar/automaton.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"
#include "text/lark/lark.h"
#include "text/grammar/regex.h"
#include "text/schema/schema.h"

static uint32_t compile_regex(struct grammar *g, const char *in, size_t n)
{
    uint32_t root = grammar_rule(g, "root", 4);
    grammar_define(g, root, regex_compile(g, NULL, in, n, REGEX_WHOLE));
    return root;
}

/* Follow a text through the automaton. From each state that it reaches, some
 * byte leads on, or the text may end. */
static void walk(struct automaton *a, const char *in, size_t n)
{
    uint32_t s = automaton_start(a);
    for (size_t i = 0; i < 30 && !automaton_is_final(a, s); i++) {
        unsigned char bytes[256], byte = n ? (unsigned char)in[i % n] : 0;
        bool any = automaton_accepts(a, s);
        automaton_bytes(a, s, bytes);
        size_t tries = 0;
        while (tries++ < 256 && !bytes[byte])
            byte++; /* wraps round */
        CHECK(any || tries <= 256);
        if (tries > 256)
            return;
        s = automaton_advance(a, s, byte);
        if (automaton_error(a, NULL))
            return; /* too ambiguous */
        CHECK(s != AUTOMATON_DEAD);
    }
}

/* A tokenizer that has a token for texts of any length. */
static int32_t find_token(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    (void)text;
    return (int32_t)(n % 1000);
}

enum language { REGEX, GBNF, LARK, SCHEMA };

static int run(enum language l, const char *in, size_t n, struct qwick_err *e)
{
    struct grammar *g;
    struct automaton *a;
    uint32_t root;
    CHECK(grammar_create(&g, "G", e) == 0);
    grammar_set_tokens(g, 1000, find_token, NULL);
    int rc = 0;
    if (l == SCHEMA)
        rc = schema_compile(g, in, n, NULL, &root, e);
    else
        root = l == GBNF   ? gbnf_compile(g, in, n)
               : l == LARK ? lark_compile(g, in, n)
                           : compile_regex(g, in, n);
    rc = rc || grammar_error(g, e) || grammar_finish(g, root, e) ||
         automaton_create(&a, g, e);
    grammar_free(g);
    if (rc)
        return -1;
    walk(a, in, n);
    automaton_free(a);
    return 0;
}

int fuzz_regex(const char *in, size_t n, struct qwick_err *e)
{
    return run(REGEX, in, n, e);
}

int fuzz_gbnf(const char *in, size_t n, struct qwick_err *e)
{
    return run(GBNF, in, n, e);
}

int fuzz_lark(const char *in, size_t n, struct qwick_err *e)
{
    return run(LARK, in, n, e);
}

int fuzz_schema(const char *in, size_t n, struct qwick_err *e)
{
    return run(SCHEMA, in, n, e);
}
