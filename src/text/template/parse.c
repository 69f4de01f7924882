/* Functions that all parts of the parser use. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "text/template/node.h"
#include "text/template/template.h"

void *parse_fail(struct parser *p, uint32_t line, const char *fmt, ...)
{
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    err_set(p->e, QWICK_ERR_MODEL, "%s: line %u: %s", p->t->file_name, line,
            msg);
    return NULL;
}

struct node *parse_node(struct parser *p, enum node_kind kind, uint32_t line)
{
    struct node *n =
        arena_alloc(&p->t->arena, sizeof *n, _Alignof(struct node));
    if (!n) {
        err_oom(p->e, sizeof *n);
        return NULL;
    }
    *n = (struct node){.kind = kind, .line = line};
    return n;
}

int parse_add(struct parser *p, struct node *list, size_t *cap,
              struct node *item)
{
    if (!item)
        return -1;
    if (list->n == *cap) {
        size_t more = *cap ? *cap * 2 : 4;
        struct node **grown =
            arena_alloc(&p->t->arena, more * sizeof(struct node *),
                        _Alignof(struct node *));
        if (!grown)
            return err_oom(p->e, more * sizeof(struct node *));
        if (list->n)
            memcpy(grown, list->list, list->n * sizeof(struct node *));
        list->list = grown;
        *cap = more;
    }
    list->list[list->n++] = item;
    return 0;
}

static uint32_t name_index(const struct template *t, const char *s, size_t n,
                           uint64_t h)
{
    uint32_t at = hashmap_slot(&t->by_name, h), i;
    while ((i = hashmap_next(&t->by_name, h, &at)) != HASHMAP_NONE)
        if (t->names[i]->n == n && memcmp(t->names[i]->p, s, n) == 0)
            return i;
    return HASHMAP_NONE;
}

const struct name *template_name(const struct template *t, const char *p,
                                 size_t n)
{
    if (!t->n_names)
        return NULL;
    uint32_t i = name_index(t, p, n, hash_bytes(t->seed, p, n));
    return i == HASHMAP_NONE ? NULL : t->names[i];
}

/* Room for one more name; the table is rebuilt at each doubling. */
static int grow_names(struct parser *p)
{
    struct template *t = p->t;
    if (t->n_names < t->cap_names)
        return 0;
    if (ARRAY_RESERVE(t->names, t->cap_names, t->n_names * 2 + 16, p->e) ||
        hashmap_init(&t->by_name, t->cap_names, TEMPLATE_MAX_SOURCE, p->e))
        return -1;
    for (size_t i = 0; i < t->n_names; i++)
        hashmap_put(&t->by_name,
                    hash_bytes(t->seed, t->names[i]->p, t->names[i]->n),
                    (uint32_t)i);
    return 0;
}

const struct name *parse_name_of(struct parser *p, const char *s, size_t n)
{
    struct template *t = p->t;
    if (grow_names(p))
        return NULL;
    uint64_t h = hash_bytes(t->seed, s, n);
    uint32_t i = name_index(t, s, n, h);
    if (i != HASHMAP_NONE)
        return t->names[i];
    struct name *name =
        arena_alloc(&t->arena, sizeof *name, _Alignof(struct name));
    char *copy = arena_copy(&t->arena, s, n);
    if (!name || !copy) {
        err_oom(p->e, sizeof *name + n);
        return NULL;
    }
    *name = (struct name){copy, n, {.p = copy, .n = n, .n_chars = SIZE_MAX}};
    name->str.n_chars = str_chars(&name->str);
    hashmap_put(&t->by_name, h, (uint32_t)t->n_names);
    t->names[t->n_names++] = name;
    return name;
}

bool parse_enter(struct parser *p)
{
    p->nesting++;
    if (p->nesting <= TEMPLATE_MAX_NESTING)
        return true;
    parse_fail(p, p->tok->line, "tags or expressions are nested deeper than %d",
               TEMPLATE_MAX_NESTING);
    return false;
}

bool tok_is(const struct parser *p, enum op op)
{
    return p->tok->type == T_OP && p->tok->op == op;
}

bool tok_is_name(const struct parser *p, const char *name)
{
    return p->tok->type == T_NAME && p->tok->n == strlen(name) &&
           memcmp(p->tok->p, name, p->tok->n) == 0;
}

bool parse_skip(struct parser *p, enum op op)
{
    bool is = tok_is(p, op);
    p->tok += is;
    return is;
}

bool parse_skip_name(struct parser *p, const char *name)
{
    bool is = tok_is_name(p, name);
    p->tok += is;
    return is;
}

const char *tok_show(const struct parser *p, char out[ERR_SHOWN])
{
    switch (p->tok->type) {
    case T_END:
        return "the end of the template";
    case T_VARIABLE_END:
    case T_BLOCK_END:
        return "the end of the tag";
    default:
        snprintf(out, ERR_SHOWN, "'%.60s'", ERR_SHOW(p->tok->p, p->tok->n));
        return out;
    }
}

bool parse_expect(struct parser *p, enum op op)
{
    static const char *const names[N_OPS] = {
        [OP_RBRACKET] = "']'", [OP_LPAREN] = "'('", [OP_RPAREN] = "')'",
        [OP_RBRACE] = "'}'",   [OP_COLON] = "':'",  [OP_COMMA] = "','",
        [OP_ASSIGN] = "'='",
    };
    char shown[ERR_SHOWN];
    if (parse_skip(p, op))
        return true;
    parse_fail(p, p->tok->line, "expected %s, got %s",
               names[op] ? names[op] : "an operator", tok_show(p, shown));
    return false;
}

const struct name *parse_expect_name(struct parser *p)
{
    char shown[ERR_SHOWN];
    if (p->tok->type != T_NAME)
        return parse_fail(p, p->tok->line, "expected a name, got %s",
                          tok_show(p, shown));
    const struct name *n = parse_name_of(p, p->tok->p, p->tok->n);
    p->tok += n != NULL;
    return n;
}
