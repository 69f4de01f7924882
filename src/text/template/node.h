/* The source of a template as tokens, and its syntax tree. */
#ifndef TEXT_TEMPLATE_NODE_H
#define TEXT_TEMPLATE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "text/template/value.h"

/* ---- tokens ---- */

enum token_type {
    T_END, /* of the source */
    T_DATA,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING, /* with its quotes */
    T_INTEGER,
    T_FLOAT,
    T_OP
};

enum op {
    OP_NONE,
    OP_FLOORDIV, /* operators of two characters come first */
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_GE,
    OP_LE,
    OP_ADD,
    OP_SUB,
    OP_DIV,
    OP_MUL,
    OP_MOD,
    OP_CONCAT,
    OP_LBRACKET,
    OP_RBRACKET,
    OP_LPAREN,
    OP_RPAREN,
    OP_LBRACE,
    OP_RBRACE,
    OP_GT,
    OP_LT,
    OP_ASSIGN,
    OP_DOT,
    OP_COLON,
    OP_PIPE,
    OP_COMMA,
    OP_SEMICOLON,
    N_OPS,
    OP_IN = N_OPS, /* comparisons that are words */
    OP_NOT_IN
};

struct token {
    enum token_type type;
    enum op op;
    uint32_t line;
    const char *p; /* in the normalised source */
    size_t n;
};

/* Cut src[0..n), valid UTF-8 with newlines normalised, into tokens with a final
 * T_END. *out is malloc'ed. name is for messages. */
int lex(struct token **out, size_t *n_out, const char *name, const char *src,
        size_t n, struct qwick_err *e);

/* ---- the tree ---- */

enum node_kind {
    /* expressions */
    N_CONST,    /* val */
    N_NAME,     /* name */
    N_TUPLE,    /* list */
    N_LIST,     /* list */
    N_DICT,     /* list: key, value, key, ... */
    N_CONCAT,   /* list */
    N_BINARY,   /* op a b */
    N_NEG,      /* a */
    N_POS,      /* a */
    N_NOT,      /* a */
    N_AND,      /* a b */
    N_OR,       /* a b */
    N_COMPARE,  /* a, then list of N_OPERAND */
    N_OPERAND,  /* op a */
    N_COND,     /* b if a else c; c may be NULL */
    N_ATTR,     /* a.name */
    N_ITEM,     /* a[b] */
    N_SLICE,    /* a:b:c inside N_ITEM, each may be NULL */
    N_CALL,     /* a(list) */
    N_FILTER,   /* a|name(list); fn */
    N_TEST,     /* a is name(list); fn */
    N_ARG,      /* a */
    N_KEYWORD,  /* name=a */
    N_STAR,     /* *a */
    N_STARSTAR, /* **a */
    N_NSREF,    /* name.attr as a target; b: N_CONST with the attribute */
    /* statements */
    N_DATA,        /* val */
    N_OUTPUT,      /* a */
    N_BLOCK,       /* list: statements in a row */
    N_IF,          /* a: condition, b: body, c: else or NULL */
    N_FOR,         /* a: target, b: iterable, c: body, d: else, filter; flag:
                      recursive */
    N_SET,         /* a: target, b: value */
    N_SETBLOCK,    /* a: target, b: body, c: filters of N_INPUT or NULL */
    N_INPUT,       /* the text that a chain of filters begins with */
    N_MACRO,       /* macro */
    N_CALLBLOCK,   /* macro: the body, a: the call */
    N_FILTERBLOCK, /* a: filters of N_INPUT, b: body */
    N_SCOPE,       /* b: body in a scope of its own */
    N_WITH,        /* list: target, value, ...; b: body */
    N_BREAK,
    N_CONTINUE,
    N_KINDS
};

/* An identifier, one object per spelling in a template. */
struct name {
    const char *p;
    size_t n;
    struct str str; /* the same */
};

struct macro_node {
    const struct name *name; /* NULL: of a call block */
    const struct name **params;
    const struct node **defaults; /* [n_params], NULL: none */
    size_t n_params;
    const struct node *body;
    bool uses_varargs, uses_kwargs, uses_caller; /* anywhere in the body */
};

struct node {
    enum node_kind kind;
    enum op op;
    uint32_t line;
    bool flag;
    const struct name *name;
    struct value val;
    struct node *a, *b, *c, *d, *filter;
    struct node **list;
    size_t n;
    const struct builtin *fn;
    struct macro_node *macro;
};

struct template
{
    char *file_name;
    struct arena arena;
    struct node *root;
    const struct name **names;
    size_t n_names, cap_names;
    struct hashmap by_name;
    uint64_t seed;
};

/* Return the name with this spelling, or NULL if the template has none. */
const struct name *template_name(const struct template *t, const char *p,
                                 size_t n);

/* ---- the parser ---- */

/* Maximum nesting of macros and call blocks. */
enum { PARSE_MAX_MACROS = 32 };

struct parser {
    struct template *t;
    const struct token *tok; /* the current one */
    struct qwick_err *e;
    int nesting;
    int n_loops; /* loops around, within the innermost function */
    bool soft;   /* inside a condition: unknown filters fail only when they
                    run */
    const struct node *unknown; /* the first unknown filter or test outside of
                                   conditions */
    struct macro_node *macros[PARSE_MAX_MACROS]; /* open ones */
    int n_macros;
};

int parse_template(struct parser *p);

/* Set the error "NAME: line N: message" with code MODEL. Returns NULL. */
void *parse_fail(struct parser *p, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct node *parse_node(struct parser *p, enum node_kind kind, uint32_t line);
int parse_add(struct parser *p, struct node *list, size_t *cap,
              struct node *item);
const struct name *parse_name_of(struct parser *p, const char *s, size_t n);
bool parse_enter(struct parser *p);
bool tok_is(const struct parser *p, enum op op);
bool tok_is_name(const struct parser *p, const char *name);
bool parse_skip(struct parser *p, enum op op);
bool parse_skip_name(struct parser *p, const char *name);
/* Skip the current token if it is this operator. Otherwise returns false with
 * the error set. */
bool parse_expect(struct parser *p, enum op op);
const struct name *parse_expect_name(struct parser *p);
/* Return the current token as text for messages. */
const char *tok_show(const struct parser *p, char out[ERR_SHOWN]);

/* Parse an expression. Returns NULL with the error set on failure. */
struct node *parse_expression(struct parser *p, bool with_cond);
/* Parse an expression, or a tuple if there are commas. */
struct node *parse_tuple(struct parser *p, bool with_cond, bool in_parens);
struct node *parse_string(struct parser *p);
struct node *parse_number(struct parser *p);
/* Parse the filters after `input`. inline_first: no bar comes before the first
 * filter. */
struct node *parse_filters(struct parser *p, struct node *input,
                           bool inline_first);

#endif
