#include "text/schema/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/grammar/grammar_int.h"
#include "text/schema/schema_int.h"

/* Memory of the compiler, without the grammar. */
enum { MAX_BYTES = 64 << 20 };

void *schema_alloc(struct schema *s, size_t n, size_t size)
{
    size_t bytes = 0;
    if (size_mul(n + 1, size, &bytes) || bytes > MAX_BYTES - s->used) {
        s->exhausted = true;
        err_usage(s->e,
                  "the schema is too large: its parts need more than %d bytes",
                  MAX_BYTES);
        return NULL;
    }
    void *p = arena_alloc(&s->mem, bytes, 8);
    if (!p) {
        err_oom(s->e, bytes);
        return NULL;
    }
    s->used += bytes;
    memset(p, 0, bytes);
    return p;
}

/* Return the class of a size: that of the next power of two. */
static size_t spare_class(size_t bytes)
{
    size_t k = 6;
    while (k + 1 < SCHEMA_SPARE_CLASSES && (size_t)1 << k < bytes)
        k++;
    return k;
}

void *schema_borrow(struct schema *s, size_t n, size_t size)
{
    size_t bytes = 0;
    if (size_mul(n + 1, size, &bytes) || bytes > MAX_BYTES)
        return schema_alloc(s, n, size); /* fails */
    size_t k = spare_class(bytes);
    void *p = s->spare[k];
    if (!p)
        return schema_alloc(s, (size_t)1 << k, 1);
    memcpy(&s->spare[k], p, sizeof p); /* the next one */
    memset(p, 0, bytes);
    return p;
}

void schema_give_back(struct schema *s, void *p, size_t n, size_t size)
{
    size_t k = spare_class((n + 1) * size);
    if (!p)
        return;
    memcpy(p, &s->spare[k], sizeof p);
    s->spare[k] = p;
}

int schema_step(struct schema *s, size_t n)
{
    if (s->steps_left >= n) {
        s->steps_left -= n;
        return 0;
    }
    s->steps_left = 0;
    s->exhausted = true;
    return err_usage(
        s->e,
        "the schema is too complex: it takes more than %d steps to %s (many "
        "combinations of anyOf, oneOf and allOf?)",
        MAX_WORK, s->checks ? "check a document" : "compile");
}

/* Compile the sets; each can add more. */
static int define_sets(struct schema *s)
{
    for (size_t i = 0; i < s->n_sets; i++) {
        uint32_t node;
        if (schema_define(s, &s->sets[i], &node))
            return -1;
        grammar_define(s->g, s->sets[i].rule, node);
        if (s->g->err.code)
            return grammar_error(s->g, s->e);
    }
    return 0;
}

/* Refuse a schema of which schema_never finds that it admits nothing, and say
 * why. grammar_finish refuses the others. */
static int check_something(struct schema *s, struct schema_node *root)
{
    if (schema_collect(s, NULL, 0, &root, 1))
        return -1;
    size_t n = s->n_list;
    uint32_t *items = schema_alloc(s, n, sizeof *items);
    if (!items)
        return -1;
    if (n)
        memcpy(items, s->list, n * sizeof *items); /* s->list is used again */
    int never = schema_never(s, items, n, MAX_DEPTH);
    if (never <= 0)
        return never;
    return schema_refuse(s, s->culprit ? s->culprit->at : s->root, NULL,
                         "nothing satisfies the schema: %s",
                         s->reason ? s->reason : "it is false");
}

static const struct json_value type_key = {
    .type = JSON_STRING, .str = "type", .len = 4};
static const struct json_value type_object = {
    .type = JSON_STRING, .str = "object", .len = 6};
const struct json_value schema_an_object = {
    .type = JSON_OBJECT, .len = 1, .keys = &type_key, .items = &type_object};
static const struct json_value nothing = {.type = JSON_BOOL};

/* Whether a schema lists the properties of an object and does not mention
 * others. */
static bool is_list_of_properties(const struct schema_node *node)
{
    return node->names && !node->additional && !node->pattern_props.n &&
           !node->ref && !node->all.n && !node->any.n && !node->one.n &&
           !node->condition && !node->dependents.n;
}

/* Read the schema. roots: its nodes, the arguments of a call have two. */
static int read_roots(struct schema *s, struct schema_node *roots[2], size_t *n)
{
    bool call = s->form != SCHEMA_DOCUMENT;
    struct schema_node *no_others = NULL;
    *n = 0;
    if (hashmap_init(&s->by_place, MAX_NODES, MAX_NODES, s->e) ||
        schema_find_names(s) ||
        !(roots[(*n)++] = schema_node_of(s, s->root, 0)) ||
        (call && (!(roots[(*n)++] = schema_node_of(s, &schema_an_object, 0)) ||
                  !(no_others = schema_node_of(s, &nothing, 0)))) ||
        schema_read_all(s) || (!s->checks && check_something(s, roots[0])))
        return -1;
    if (call && is_list_of_properties(roots[0]))
        roots[0]->additional = no_others;
    return 0;
}

int schema_read_root(struct schema *s, struct schema_node **root)
{
    struct schema_node *roots[2] = {NULL};
    size_t n;
    int rc = read_roots(s, roots, &n);
    *root = roots[0];
    return rc;
}

static int compile(struct schema *s, uint32_t *root_rule)
{
    struct schema_node *roots[2];
    size_t n;
    if (hashmap_init(&s->by_items, MAX_SETS, MAX_SETS, s->e) ||
        read_roots(s, roots, &n) || schema_collect(s, NULL, 0, roots, n))
        return -1;
    const struct schema_set *set =
        schema_set_of(s, s->form == SCHEMA_PARAMETERS ? LEVEL_PARAMETERS : 0);
    if (!set)
        return -1;
    *root_rule = set->rule;
    return define_sets(s);
}

void schema_free(struct schema *s)
{
    arena_free(&s->mem);
    free(s->nodes);
    free(s->resources);
    free(s->names);
    free(s->sets);
    free(s->list);
    free(s->stack);
    hashmap_free(&s->by_place);
    hashmap_free(&s->by_root);
    hashmap_free(&s->by_name);
    hashmap_free(&s->by_items);
    hashmap_free(&s->by_missing);
}

size_t schema_work(const struct schema_options *o)
{
    return o->work && *o->work < MAX_WORK ? *o->work : MAX_WORK;
}

/* Prepare to compile a schema. */
static void start(struct schema *s, struct grammar *g,
                  const struct json_value *schema,
                  const struct schema_options *o, struct qwick_err *e)
{
    *s = (struct schema){.e = e,
                       .g = g,
                       .where = o->where ? o->where : "",
                       .root = schema,
                       .indent = o->indent == SCHEMA_FREE ? 0 : o->indent,
                       .free_space = o->indent == SCHEMA_FREE,
                       .spaced = o->spaced,
                       .lenient = o->lenient,
                       .any_order = o->any_order,
                       .form = o->form,
                       .call = o->call,
                       .steps_left = schema_work(o)};
}

/* Take the steps of a schema from those of several. */
static void take_work(const struct schema_options *o, size_t left)
{
    if (o->work)
        *o->work -= schema_work(o) - left;
}

int schema_compile_value(struct grammar *g, const struct json_value *schema,
                         const struct schema_options *given, uint32_t *root,
                         struct qwick_err *e)
{
    static const struct schema_options defaults;
    const struct schema_options *o = given ? given : &defaults;
    struct qwick_err err = {0};
    struct schema s;
    int rc = -1;
    *root = 0;
    start(&s, g, schema, o, &err);
    if (s.indent < 0 || s.indent > SCHEMA_MAX_INDENT)
        err_usage(&err, "an indent of %d spaces is outside 0 to %d", s.indent,
                  SCHEMA_MAX_INDENT);
    else
        rc = compile(&s, root);
    if (rc && s.exhausted && s.lenient && grammar_error(g, NULL) == 0) {
        take_work(o, s.steps_left);
        schema_free(&s);
        err = (struct qwick_err){0};
        start(&s, g, schema, o, &err);
        s.simple = true;
        rc = compile(&s, root);
    }
    if (rc)
        schema_go_on(&s);
    if (rc && err.code == QWICK_ERR_USAGE)
        grammar_fail(g, "%s%s", s.where, err.msg);
    if (rc && err.code && err.code != QWICK_ERR_USAGE) {
        if (e)
            *e = err;
    } else {
        rc = grammar_error(g, e);
    }
    take_work(o, s.steps_left);
    schema_free(&s);
    return rc;
}

int schema_compile(struct grammar *g, const char *text, size_t n,
                   const struct schema_options *o, uint32_t *root,
                   struct qwick_err *e)
{
    struct qwick_err err = {0};
    struct json_doc *doc = NULL;
    *root = 0;
    if (n > SCHEMA_MAX_BYTES)
        err_usage(&err, "a schema of %zu bytes is larger than the limit %u", n,
                  SCHEMA_MAX_BYTES);
    else if (!json_parse(&doc, "the schema", text, n, QWICK_ERR_USAGE, &err)) {
        int rc = schema_compile_value(g, json_root(doc), o, root, e);
        json_free(doc);
        return rc;
    }
    if (err.code == QWICK_ERR_USAGE)
        grammar_fail(g, "%s%s", o && o->where ? o->where : "", err.msg);
    if ((err.code != QWICK_ERR_USAGE || !grammar_error(g, e)) && e)
        *e = err;
    return -1;
}
