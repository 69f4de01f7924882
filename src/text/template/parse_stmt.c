/* Statements: one function per tag, found in a table. */
#include <string.h>

#include "text/template/interp.h"
#include "text/template/node.h"

static bool expect_end(struct parser *p)
{
    char shown[ERR_SHOWN];
    if (p->tok->type == T_BLOCK_END) {
        p->tok++;
        return true;
    }
    parse_fail(p, p->tok->line, "expected the end of the tag, got %s",
               tok_show(p, shown));
    return false;
}

static struct node *parse_statement(struct parser *p);

static bool ends_with(const struct parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (tok_is_name(p, *ends))
            return true;
    return false;
}

static struct node *parse_output(struct parser *p)
{
    struct node *n = parse_node(p, N_OUTPUT, p->tok->line);
    char shown[ERR_SHOWN];
    p->tok++;
    if (!n || !(n->a = parse_tuple(p, true, false)))
        return NULL;
    if (p->tok->type != T_VARIABLE_END)
        return parse_fail(p, p->tok->line, "expected '}}', got %s",
                          tok_show(p, shown));
    p->tok++;
    return n;
}

static struct node *parse_data(struct parser *p)
{
    struct node *n = parse_node(p, N_DATA, p->tok->line);
    struct str *s = arena_alloc(&p->t->arena, sizeof *s, _Alignof(struct str));
    char *copy = arena_copy(&p->t->arena, p->tok->p, p->tok->n);
    if (!n || !s || !copy) {
        err_oom(p->e, p->tok->n);
        return NULL;
    }
    *s = (struct str){.p = copy, .n = p->tok->n, .n_chars = SIZE_MAX};
    s->n_chars = str_chars(s);
    n->val = value_str(s);
    p->tok++;
    return n;
}

/* Statements up to a tag that begins with one of the names in `ends` (NULL: up
 * to the template's end); p stands on that name then. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *body = parse_node(p, N_BLOCK, p->tok->line);
    uint32_t line = p->tok->line;
    size_t cap = 0;
    while (body) {
        struct node *n;
        if (p->tok->type == T_END) {
            if (!ends)
                return body;
            return parse_fail(p, line, "this tag has no {%% %s %%}",
                              *ends ? ends[0] : "end");
        }
        if (p->tok->type == T_DATA) {
            n = parse_data(p);
        } else if (p->tok->type == T_VARIABLE_BEGIN) {
            n = parse_output(p);
        } else {
            p->tok++;
            if (ends && ends_with(p, ends))
                return body;
            n = parse_statement(p);
            if (n && !expect_end(p))
                return NULL;
        }
        if (parse_add(p, body, &cap, n))
            return NULL;
    }
    return NULL;
}

/* The rest of the opening tag's end, a body, and the closing name. */
static struct node *parse_block_body(struct parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct node *n = expect_end(p) ? parse_body(p, ends) : NULL;
    p->tok += n != NULL;
    return n;
}

/* A name, ns.attr, or several of them with commas. */
static struct node *parse_target(struct parser *p, bool with_namespace)
{
    static const char *const reserved[] = {"true",  "false", "none", "True",
                                           "False", "None",  NULL};
    struct node *tuple = parse_node(p, N_TUPLE, p->tok->line);
    bool comma = false;
    size_t cap = 0;
    while (tuple &&
           !(comma && (tok_is(p, OP_ASSIGN) || tok_is(p, OP_RPAREN)))) {
        struct node *n;
        if (ends_with(p, reserved))
            return parse_fail(p, p->tok->line, "cannot assign to %.10s",
                              p->tok->p[0] == 'n' || p->tok->p[0] == 'N'
                                  ? "none"
                                  : "a truth value");
        if (parse_skip(p, OP_LPAREN)) {
            n = parse_enter(p) ? parse_target(p, false) : NULL;
            p->nesting--;
            if (!n || !parse_expect(p, OP_RPAREN))
                return NULL;
        } else {
            n = parse_node(p, N_NAME, p->tok->line);
            if (!n || !(n->name = parse_expect_name(p)))
                return NULL;
        }
        if (with_namespace && n->kind == N_NAME && parse_skip(p, OP_DOT)) {
            n->kind = N_NSREF;
            n->b = parse_node(p, N_CONST, p->tok->line);
            const struct name *attr = n->b ? parse_expect_name(p) : NULL;
            if (!attr)
                return NULL;
            n->b->val = value_str(&attr->str);
        }
        if (parse_add(p, tuple, &cap, n))
            return NULL;
        if (!parse_skip(p, OP_COMMA))
            break;
        comma = true;
    }
    return !tuple || comma ? tuple : tuple->list[0];
}

static struct node *parse_if(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const only_end[] = {"endif", NULL};
    bool soft = p->soft;
    struct node *branch = n;
    p->soft = true;
    for (;;) {
        branch->a = parse_tuple(p, false, false);
        if (!branch->a || !expect_end(p) || !(branch->b = parse_body(p, ends)))
            return NULL;
        if (!parse_skip_name(p, "elif"))
            break;
        branch->c = parse_node(p, N_IF, p->tok->line);
        if (!branch->c)
            return NULL;
        branch = branch->c;
    }
    if (parse_skip_name(p, "else") &&
        (!expect_end(p) || !(branch->c = parse_body(p, only_end))))
        return NULL;
    p->soft = soft;
    p->tok++; /* endif */
    return n;
}

static struct node *parse_for(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const only_end[] = {"endfor", NULL};
    char shown[ERR_SHOWN];
    if (!(n->a = parse_target(p, false)))
        return NULL;
    if (!parse_skip_name(p, "in"))
        return parse_fail(p, p->tok->line, "expected 'in', got %s",
                          tok_show(p, shown));
    if (!(n->b = parse_tuple(p, false, false)))
        return NULL;
    bool soft = p->soft;
    p->soft = false;
    if (parse_skip_name(p, "if") && !(n->filter = parse_expression(p, true)))
        return NULL;
    n->flag = parse_skip_name(p, "recursive");
    p->n_loops++;
    if (!expect_end(p) || !(n->c = parse_body(p, ends)))
        return NULL;
    p->n_loops--;
    if (parse_skip_name(p, "else") &&
        (!expect_end(p) || !(n->d = parse_body(p, only_end))))
        return NULL;
    p->soft = soft;
    p->tok++; /* endfor */
    return n;
}

static struct node *parse_set(struct parser *p, struct node *n)
{
    n->a = parse_target(p, true);
    if (!n->a)
        return NULL;
    if (parse_skip(p, OP_ASSIGN)) {
        n->b = parse_tuple(p, true, false);
        return n->b ? n : NULL;
    }
    n->kind = N_SETBLOCK;
    if (tok_is(p, OP_PIPE)) {
        n->c = parse_filters(p, parse_node(p, N_INPUT, n->line), false);
        if (!n->c)
            return NULL;
    }
    n->b = parse_block_body(p, "endset");
    return n->b ? n : NULL;
}

/* Parameters in parentheses. */
static int parse_signature(struct parser *p, struct macro_node *m)
{
    struct node names = {0}, defaults = {0};
    size_t cap_names = 0, cap_defaults = 0;
    bool defaults_begun = false;
    if (!parse_expect(p, OP_LPAREN))
        return -1;
    while (!tok_is(p, OP_RPAREN)) {
        if (names.n && !parse_expect(p, OP_COMMA))
            return -1;
        struct node *name = parse_node(p, N_NAME, p->tok->line);
        struct node *none = parse_node(p, N_INPUT, p->tok->line);
        if (!name || !none || !(name->name = parse_expect_name(p)))
            return -1;
        bool has = parse_skip(p, OP_ASSIGN);
        if (!has && defaults_begun) {
            parse_fail(p, p->tok->line,
                       "a parameter without a default follows one with it");
            return -1;
        }
        defaults_begun |= has;
        if (parse_add(p, &names, &cap_names, name) ||
            parse_add(p, &defaults, &cap_defaults,
                      has ? parse_expression(p, true) : none))
            return -1;
    }
    p->tok++;
    m->n_params = names.n;
    m->params = arena_alloc(&p->t->arena, (names.n + 1) * sizeof *m->params,
                            _Alignof(struct name *));
    m->defaults = arena_alloc(&p->t->arena, (names.n + 1) * sizeof *m->defaults,
                              _Alignof(struct node *));
    if (!m->params || !m->defaults)
        return err_oom(p->e, names.n * sizeof *m->params);
    for (size_t i = 0; i < names.n; i++) {
        const struct node *d = defaults.list[i];
        m->params[i] = names.list[i]->name;
        m->defaults[i] = d->kind == N_INPUT ? NULL : d;
        m->uses_caller |= str_is(&m->params[i]->str, "caller");
    }
    return 0;
}

static struct macro_node *open_macro(struct parser *p)
{
    struct macro_node *m =
        arena_alloc(&p->t->arena, sizeof *m, _Alignof(struct macro_node));
    if (p->n_macros == PARSE_MAX_MACROS)
        return parse_fail(p, p->tok->line, "more than %d macros in each other",
                          PARSE_MAX_MACROS);
    if (!m) {
        err_oom(p->e, sizeof *m);
        return NULL;
    }
    *m = (struct macro_node){0};
    p->macros[p->n_macros++] = m;
    return m;
}

/* The body of a function: loops around it are not its own. */
static const struct node *parse_macro_body(struct parser *p, const char *end)
{
    int n_loops = p->n_loops;
    bool soft = p->soft;
    p->n_loops = 0;
    p->soft = false;
    const struct node *body = parse_block_body(p, end);
    p->n_loops = n_loops;
    p->soft = soft;
    return body;
}

static struct node *parse_macro(struct parser *p, struct node *n)
{
    if (!(n->name = parse_expect_name(p)) || !(n->macro = open_macro(p)) ||
        parse_signature(p, n->macro))
        return NULL;
    n->macro->name = n->name;
    n->macro->body = parse_macro_body(p, "endmacro");
    p->n_macros--;
    return n->macro->body ? n : NULL;
}

static struct node *parse_call_block(struct parser *p, struct node *n)
{
    if (!(n->macro = open_macro(p)) ||
        (tok_is(p, OP_LPAREN) && parse_signature(p, n->macro)))
        return NULL;
    n->a = parse_expression(p, true);
    if (!n->a)
        return NULL;
    if (n->a->kind != N_CALL)
        return parse_fail(p, n->line, "a call block needs a call");
    n->macro->body = parse_macro_body(p, "endcall");
    p->n_macros--;
    return n->macro->body ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p, struct node *n)
{
    n->a = parse_filters(p, parse_node(p, N_INPUT, n->line), true);
    n->b = n->a ? parse_block_body(p, "endfilter") : NULL;
    return n->b ? n : NULL;
}

static struct node *parse_with(struct parser *p, struct node *n)
{
    size_t cap = 0;
    while (p->tok->type != T_BLOCK_END) {
        if (n->n && !parse_expect(p, OP_COMMA))
            return NULL;
        if (parse_add(p, n, &cap, parse_target(p, false)) ||
            !parse_expect(p, OP_ASSIGN) ||
            parse_add(p, n, &cap, parse_expression(p, true)))
            return NULL;
    }
    n->b = parse_block_body(p, "endwith");
    return n->b ? n : NULL;
}

static struct node *parse_generation(struct parser *p, struct node *n)
{
    n->b = (struct node *)parse_macro_body(p, "endgeneration");
    return n->b ? n : NULL;
}

/* Without inheritance a block prints its body where it stands. */
static struct node *parse_block(struct parser *p, struct node *n)
{
    if (!(n->name = parse_expect_name(p)))
        return NULL;
    while (parse_skip_name(p, "scoped") || parse_skip_name(p, "required"))
        ;
    n->b = (struct node *)parse_macro_body(p, "endblock");
    if (!n->b)
        return NULL;
    if (p->tok->type == T_NAME &&
        parse_name_of(p, p->tok->p, p->tok->n) == n->name)
        p->tok++;
    return n;
}

static struct node *parse_print(struct parser *p, struct node *n)
{
    size_t cap = 0;
    while (p->tok->type != T_BLOCK_END) {
        struct node *out = parse_node(p, N_OUTPUT, p->tok->line);
        if ((n->n && !parse_expect(p, OP_COMMA)) || !out ||
            !(out->a = parse_expression(p, true)) || parse_add(p, n, &cap, out))
            return NULL;
    }
    return n;
}

static struct node *parse_loop_control(struct parser *p, struct node *n)
{
    if (!p->n_loops)
        return parse_fail(p, n->line, "'%s' outside of a loop",
                          n->kind == N_BREAK ? "break" : "continue");
    return n;
}

static struct node *parse_unsupported(struct parser *p, struct node *n)
{
    return parse_fail(p, n->line, "chat templates cannot use other templates");
}

static const struct {
    const char *tag;
    enum node_kind kind;
    struct node *(*parse)(struct parser *p, struct node *n);
} statements[] = {
    {"if", N_IF, parse_if},
    {"for", N_FOR, parse_for},
    {"set", N_SET, parse_set},
    {"macro", N_MACRO, parse_macro},
    {"call", N_CALLBLOCK, parse_call_block},
    {"filter", N_FILTERBLOCK, parse_filter_block},
    {"with", N_WITH, parse_with},
    {"generation", N_SCOPE, parse_generation},
    {"block", N_SCOPE, parse_block},
    {"print", N_BLOCK, parse_print},
    {"break", N_BREAK, parse_loop_control},
    {"continue", N_CONTINUE, parse_loop_control},
    {"include", N_BLOCK, parse_unsupported},
    {"import", N_BLOCK, parse_unsupported},
    {"from", N_BLOCK, parse_unsupported},
    {"extends", N_BLOCK, parse_unsupported},
};

static struct node *parse_statement(struct parser *p)
{
    char shown[ERR_SHOWN];
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!tok_is_name(p, statements[i].tag))
            continue;
        struct node *n = parse_node(p, statements[i].kind, p->tok->line);
        p->tok++;
        if (n)
            n = parse_enter(p) ? statements[i].parse(p, n) : NULL;
        p->nesting--;
        return n;
    }
    return parse_fail(p, p->tok->line, "unknown tag %s", tok_show(p, shown));
}

int parse_template(struct parser *p)
{
    p->t->root = parse_body(p, NULL);
    if (!p->t->root)
        return -1;
    if (p->unknown) {
        const struct name *name = p->unknown->name;
        parse_fail(p, p->unknown->line, "no %s is named '%s'",
                   p->unknown->kind == N_FILTER ? "filter" : "test",
                   ERR_SHOW(name->p, name->n));
        return -1;
    }
    return 0;
}
