/* Expressions, by recursive descent in Jinja's order of precedence:
 * if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, postfix,
 * filters and tests. */
#include <string.h>

#include "text/template/interp.h"
#include "text/template/node.h"

static struct node *parse_unary(struct parser *p, bool with_filter);
static struct node *parse_cond(struct parser *p);

static struct node *new_binary(struct parser *p, enum node_kind kind,
                               enum op op, struct node *a, struct node *b,
                               uint32_t line)
{
    struct node *n = a && b ? parse_node(p, kind, line) : NULL;
    if (n) {
        n->op = op;
        n->a = a;
        n->b = b;
    }
    return n;
}

/* ---- displays and names ---- */

/* A list, or a dict with keys and values in turn. */
static struct node *parse_display(struct parser *p, enum node_kind kind)
{
    enum op end = kind == N_DICT ? OP_RBRACE : OP_RBRACKET;
    struct node *n = parse_node(p, kind, p->tok->line);
    size_t cap = 0;
    p->tok++;
    while (n && !tok_is(p, end)) {
        if (n->n && !parse_expect(p, OP_COMMA))
            return NULL;
        if (tok_is(p, end))
            break;
        if (parse_add(p, n, &cap, parse_expression(p, true)))
            return NULL;
        if (kind == N_DICT &&
            (!parse_expect(p, OP_COLON) ||
             parse_add(p, n, &cap, parse_expression(p, true))))
            return NULL;
    }
    p->tok += n != NULL;
    return n;
}

static void note_special_name(struct parser *p, const struct name *name)
{
    for (int i = 0; i < p->n_macros; i++) {
        p->macros[i]->uses_varargs |= str_is(&name->str, "varargs");
        p->macros[i]->uses_kwargs |= str_is(&name->str, "kwargs");
        p->macros[i]->uses_caller |= str_is(&name->str, "caller");
    }
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        struct value v;
    } constants[] = {
        {"true", {.type = V_BOOL, .b = true}},
        {"True", {.type = V_BOOL, .b = true}},
        {"false", {.type = V_BOOL, .b = false}},
        {"False", {.type = V_BOOL, .b = false}},
        {"none", {.type = V_NONE}},
        {"None", {.type = V_NONE}},
    };
    struct node *node = parse_node(p, N_CONST, p->tok->line);
    if (!node)
        return NULL;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (tok_is_name(p, constants[i].word)) {
            node->val = constants[i].v;
            p->tok++;
            return node;
        }
    }
    node->kind = N_NAME;
    node->name = parse_name_of(p, p->tok->p, p->tok->n);
    if (!node->name)
        return NULL;
    note_special_name(p, node->name);
    p->tok++;
    return node;
}

static struct node *parse_primary(struct parser *p)
{
    char shown[ERR_SHOWN];
    struct node *n;
    switch (p->tok->type) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_string(p);
    case T_INTEGER:
    case T_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (tok_is(p, OP_LPAREN)) {
        p->tok++;
        n = parse_tuple(p, true, true);
        return n && parse_expect(p, OP_RPAREN) ? n : NULL;
    }
    if (tok_is(p, OP_LBRACKET))
        return parse_display(p, N_LIST);
    if (tok_is(p, OP_LBRACE))
        return parse_display(p, N_DICT);
    return parse_fail(p, p->tok->line, "unexpected %s", tok_show(p, shown));
}

/* ---- calls, attributes, items ---- */

/* One argument. *seen: the kinds of arguments before it, in order. */
static struct node *parse_argument(struct parser *p, enum node_kind *seen)
{
    uint32_t line = p->tok->line;
    enum node_kind kind = N_ARG;
    const struct name *name = NULL;
    if (parse_skip(p, OP_MUL)) {
        kind = N_STAR;
    } else if (parse_skip(p, OP_POW)) {
        kind = N_STARSTAR;
    } else if (p->tok->type == T_NAME && p->tok[1].type == T_OP &&
               p->tok[1].op == OP_ASSIGN) {
        kind = N_KEYWORD;
        name = parse_name_of(p, p->tok->p, p->tok->n);
        if (!name)
            return NULL;
        p->tok += 2;
    }
    if ((kind == N_ARG && *seen != N_ARG) ||
        (kind == N_STAR && (*seen == N_STAR || *seen == N_STARSTAR)) ||
        *seen == N_STARSTAR)
        return parse_fail(p, line, "arguments are in the wrong order");
    if (*seen != N_STAR || kind != N_KEYWORD)
        *seen = kind;
    struct node *n = parse_node(p, kind, line);
    if (!n)
        return NULL;
    n->name = name;
    n->a = parse_expression(p, true);
    return n->a ? n : NULL;
}

/* The arguments in parentheses become n's list. */
static int parse_arguments(struct parser *p, struct node *n)
{
    size_t cap = 0;
    enum node_kind seen = N_ARG;
    if (!parse_expect(p, OP_LPAREN))
        return -1;
    while (!tok_is(p, OP_RPAREN)) {
        if (n->n && !parse_expect(p, OP_COMMA))
            return -1;
        if (tok_is(p, OP_RPAREN))
            break;
        if (parse_add(p, n, &cap, parse_argument(p, &seen)))
            return -1;
    }
    p->tok++;
    return 0;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = parse_node(p, N_CALL, p->tok->line);
    if (!n || parse_arguments(p, n))
        return NULL;
    n->a = callee;
    return n;
}

/* An index or a slice. */
static struct node *parse_index(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct node *first = NULL;
    if (!tok_is(p, OP_COLON)) {
        first = parse_expression(p, true);
        if (!first || !tok_is(p, OP_COLON))
            return first;
    }
    p->tok++;
    struct node *n = parse_node(p, N_SLICE, line);
    if (!n)
        return NULL;
    n->a = first;
    if (!tok_is(p, OP_COLON) && !tok_is(p, OP_RBRACKET) &&
        !tok_is(p, OP_COMMA) && !(n->b = parse_expression(p, true)))
        return NULL;
    if (parse_skip(p, OP_COLON) && !tok_is(p, OP_RBRACKET) &&
        !tok_is(p, OP_COMMA) && !(n->c = parse_expression(p, true)))
        return NULL;
    return n;
}

static struct node *parse_attribute(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, N_ATTR, p->tok->line);
    if (!n)
        return NULL;
    p->tok++;
    n->a = of;
    if (p->tok->type == T_INTEGER) {
        n->kind = N_ITEM;
        n->b = parse_number(p);
        return n->b ? n : NULL;
    }
    n->name = parse_expect_name(p);
    return n->name ? n : NULL;
}

static struct node *parse_item(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, N_ITEM, p->tok->line);
    struct node *tuple = parse_node(p, N_TUPLE, p->tok->line);
    size_t cap = 0;
    if (!n || !tuple)
        return NULL;
    p->tok++;
    while (!tok_is(p, OP_RBRACKET)) {
        if (tuple->n && !parse_expect(p, OP_COMMA))
            return NULL;
        if (parse_add(p, tuple, &cap, parse_index(p)))
            return NULL;
    }
    p->tok++;
    for (size_t i = 0; tuple->n != 1 && i < tuple->n; i++)
        if (tuple->list[i]->kind == N_SLICE)
            return parse_fail(p, n->line, "a tuple contains a slice");
    n->a = of;
    n->b = tuple->n == 1 ? tuple->list[0] : tuple;
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (tok_is(p, OP_DOT))
            n = parse_attribute(p, n);
        else if (tok_is(p, OP_LBRACKET))
            n = parse_item(p, n);
        else if (tok_is(p, OP_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- filters and tests ---- */

/* A name with dots becomes n's name. */
static int parse_function_name(struct parser *p, struct node *n)
{
    const char *begin = p->tok->p;
    n->name = parse_expect_name(p);
    if (!n->name)
        return -1;
    bool dotted = false;
    while (tok_is(p, OP_DOT)) {
        p->tok++;
        if (!parse_expect_name(p))
            return -1;
        dotted = true;
    }
    if (dotted)
        n->name = parse_name_of(p, begin,
                                (size_t)(p->tok[-1].p + p->tok[-1].n - begin));
    return n->name ? 0 : -1;
}

/* An unknown name is an error when the template is parsed. In a condition it is
 * an error only when it runs. */
static void find_function(struct parser *p, struct node *n)
{
    n->fn = n->kind == N_FILTER ? filter_find(n->name->p, n->name->n)
                                : test_find(n->name->p, n->name->n);
    if (!n->fn && !p->soft && !p->unknown)
        p->unknown = n;
}

struct node *parse_filters(struct parser *p, struct node *input,
                           bool inline_first)
{
    while (input && (tok_is(p, OP_PIPE) || inline_first)) {
        p->tok += !inline_first;
        inline_first = false;
        struct node *n = parse_node(p, N_FILTER, p->tok->line);
        if (!n || parse_function_name(p, n))
            return NULL;
        find_function(p, n);
        if (tok_is(p, OP_LPAREN) && parse_arguments(p, n))
            return NULL;
        n->a = input;
        input = n;
    }
    return input;
}

static bool begins_operand(const struct parser *p)
{
    switch (p->tok->type) {
    case T_NAME:
        return !tok_is_name(p, "else") && !tok_is_name(p, "or") &&
               !tok_is_name(p, "and");
    case T_STRING:
    case T_INTEGER:
    case T_FLOAT:
        return true;
    default:
        return tok_is(p, OP_LBRACKET) || tok_is(p, OP_LBRACE);
    }
}

static struct node *parse_test(struct parser *p, struct node *input)
{
    struct node *n = parse_node(p, N_TEST, p->tok->line);
    size_t cap = 0;
    p->tok++;
    bool negated = parse_skip_name(p, "not");
    if (!n || parse_function_name(p, n))
        return NULL;
    find_function(p, n);
    n->a = input;
    if (tok_is(p, OP_LPAREN)) {
        if (parse_arguments(p, n))
            return NULL;
    } else if (begins_operand(p)) {
        if (tok_is_name(p, "is"))
            return parse_fail(p, p->tok->line, "tests cannot be chained");
        struct node *arg = parse_node(p, N_ARG, p->tok->line);
        if (!arg || !(arg->a = parse_postfix(p, parse_primary(p))) ||
            parse_add(p, n, &cap, arg))
            return NULL;
    }
    return negated ? new_binary(p, N_NOT, OP_NONE, n, n, n->line) : n;
}

static struct node *parse_filters_and_tests(struct parser *p, struct node *n)
{
    while (n) {
        if (tok_is(p, OP_PIPE))
            n = parse_filters(p, n, false);
        else if (tok_is_name(p, "is"))
            n = parse_test(p, n);
        else if (tok_is(p, OP_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ---- */

static struct node *parse_unary_inner(struct parser *p, bool with_filter)
{
    uint32_t line = p->tok->line;
    struct node *n;
    if (tok_is(p, OP_SUB) || tok_is(p, OP_ADD)) {
        enum node_kind kind = tok_is(p, OP_SUB) ? N_NEG : N_POS;
        p->tok++;
        n = parse_unary(p, false);
        n = new_binary(p, kind, OP_NONE, n, n, line);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    return with_filter ? parse_filters_and_tests(p, n) : n;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *n = parse_enter(p) ? parse_unary_inner(p, with_filter) : NULL;
    p->nesting--;
    return n;
}

static struct node *parse_pow(struct parser *p)
{
    struct node *n = parse_unary(p, true);
    while (n && tok_is(p, OP_POW)) {
        uint32_t line = p->tok->line;
        p->tok++;
        n = new_binary(p, N_BINARY, OP_POW, n, parse_unary(p, true), line);
    }
    return n;
}

static struct node *parse_product(struct parser *p)
{
    struct node *n = parse_pow(p);
    while (n && (tok_is(p, OP_MUL) || tok_is(p, OP_DIV) ||
                 tok_is(p, OP_FLOORDIV) || tok_is(p, OP_MOD))) {
        const struct token *t = p->tok++;
        n = new_binary(p, N_BINARY, t->op, n, parse_pow(p), t->line);
    }
    return n;
}

static struct node *parse_concat(struct parser *p)
{
    struct node *first = parse_product(p), *n;
    size_t cap = 0;
    if (!first || !tok_is(p, OP_CONCAT))
        return first;
    n = parse_node(p, N_CONCAT, p->tok->line);
    if (!n || parse_add(p, n, &cap, first))
        return NULL;
    while (parse_skip(p, OP_CONCAT))
        if (parse_add(p, n, &cap, parse_product(p)))
            return NULL;
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_concat(p);
    while (n && (tok_is(p, OP_ADD) || tok_is(p, OP_SUB))) {
        const struct token *t = p->tok++;
        n = new_binary(p, N_BINARY, t->op, n, parse_concat(p), t->line);
    }
    return n;
}

/* Take the comparison at the current token. OP_NONE if there is none. */
static enum op take_comparison(struct parser *p)
{
    if (p->tok->type == T_OP && ((p->tok->op >= OP_EQ && p->tok->op <= OP_LE) ||
                                 p->tok->op == OP_GT || p->tok->op == OP_LT))
        return p->tok++->op;
    if (parse_skip_name(p, "in"))
        return OP_IN;
    if (tok_is_name(p, "not") && p->tok[1].type == T_NAME && p->tok[1].n == 2 &&
        memcmp(p->tok[1].p, "in", 2) == 0) {
        p->tok += 2;
        return OP_NOT_IN;
    }
    return OP_NONE;
}

static struct node *parse_compare(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct node *first = parse_sum(p), *n = NULL;
    size_t cap = 0;
    enum op op;
    while (first && (op = take_comparison(p)) != OP_NONE) {
        if (!n && !(n = parse_node(p, N_COMPARE, line)))
            return NULL;
        struct node *right = parse_sum(p);
        right = new_binary(p, N_OPERAND, op, right, right, p->tok->line);
        if (parse_add(p, n, &cap, right))
            return NULL;
        n->a = first;
    }
    return n ? n : first;
}

static struct node *parse_not(struct parser *p)
{
    uint32_t line = p->tok->line;
    if (!tok_is_name(p, "not"))
        return parse_compare(p);
    p->tok++;
    struct node *n = parse_enter(p) ? parse_not(p) : NULL;
    p->nesting--;
    return new_binary(p, N_NOT, OP_NONE, n, n, line);
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (n && tok_is_name(p, "and")) {
        uint32_t line = p->tok++->line;
        n = new_binary(p, N_AND, OP_NONE, n, parse_not(p), line);
    }
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (n && tok_is_name(p, "or")) {
        uint32_t line = p->tok++->line;
        n = new_binary(p, N_OR, OP_NONE, n, parse_and(p), line);
    }
    return n;
}

static struct node *parse_cond(struct parser *p)
{
    bool soft = p->soft;
    const struct node *unknown = p->unknown;
    struct node *n = parse_or(p);
    while (n && tok_is_name(p, "if")) {
        uint32_t line = p->tok++->line;
        p->soft = true;
        p->unknown = unknown; /* the branch before is conditional */
        struct node *test = parse_or(p);
        n = new_binary(p, N_COND, OP_NONE, test, n, line);
        if (n && parse_skip_name(p, "else")) {
            n->c = parse_enter(p) ? parse_cond(p) : NULL;
            p->nesting--;
            if (!n->c)
                n = NULL;
        }
    }
    p->soft = soft;
    return n;
}

struct node *parse_expression(struct parser *p, bool with_cond)
{
    struct node *n = NULL;
    if (parse_enter(p))
        n = with_cond ? parse_cond(p) : parse_or(p);
    p->nesting--;
    return n;
}

static bool tuple_ends(const struct parser *p)
{
    return p->tok->type == T_VARIABLE_END || p->tok->type == T_BLOCK_END ||
           tok_is(p, OP_RPAREN);
}

struct node *parse_tuple(struct parser *p, bool with_cond, bool in_parens)
{
    uint32_t line = p->tok->line;
    struct node *tuple = parse_node(p, N_TUPLE, line);
    bool comma = false;
    size_t cap = 0;
    char shown[ERR_SHOWN];
    while (tuple && !tuple_ends(p)) {
        if (parse_add(p, tuple, &cap, parse_expression(p, with_cond)))
            return NULL;
        if (!parse_skip(p, OP_COMMA))
            break;
        comma = true;
    }
    if (!tuple || comma || (in_parens && !tuple->n))
        return tuple;
    if (!tuple->n)
        return parse_fail(p, line, "expected an expression, got %s",
                          tok_show(p, shown));
    return tuple->list[0];
}
