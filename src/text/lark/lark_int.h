/* The parser of Lark's grammars, for lark.c and lark_terminal.c. */
#ifndef TEXT_LARK_INT_H
#define TEXT_LARK_INT_H

#include <stdarg.h>
#include <stdio.h>

#include "text/grammar/grammar_int.h"

/* A name in an expression. */
struct lark_use {
    uint32_t rule;
    const char *name; /* [n] in the text */
    size_t n;
};

/* A place in the text, with its line and its column in characters, from 1. */
struct lark_place {
    const char *at;
    size_t line, column;
};

struct lark {
    struct grammar *g;
    const char *text;       /* all of it */
    const char *p, *end;    /* what is not read yet */
    struct lark_place seen; /* the last place that was looked for */
    unsigned depth;         /* groups that are open */
    bool in_terminal;       /* the expression is of a terminal */
    bool ignores;           /* there may be %ignore */
    uint32_t ignored;       /* rule: what %ignore names, any number of times */
    struct grammar_list ignored_nodes;
    struct lark_use *uses; /* [n_uses] */
    size_t n_uses, cap_uses;
    unsigned n_schemas;
    size_t work; /* steps that the schemas after %json may take together */
    const char *module; /* a terminal of "common" is read: its name; else NULL
                         */
};

/* Return the line and the column of a place in the text. */
struct lark_place lark_place(struct lark *x, const char *at);

/* Fail at a place in the text. Returns GRAMMAR_NOTHING. */
uint32_t lark_fail(struct lark *x, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Read alternatives up to what cannot belong to them. self: a reference to the
 * rule that is read, which may begin with itself; GRAMMAR_NOTHING: it may not.
 */
uint32_t lark_expression(struct lark *x, uint32_t self);

/* Read the string, or the range of two strings, whose quote is next. */
uint32_t lark_string(struct lark *x);

/* Read the regular expression whose slash is next. */
uint32_t lark_regex(struct lark *x);

/* Return the rule of a terminal of "common". */
uint32_t lark_common(struct lark *x, const char *name, size_t n);

#endif
