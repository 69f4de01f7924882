#include "text/schema/schema_validator.h"

#include <stdlib.h>

#include "text/schema/schema_int.h"

struct schema_validator {
    struct schema s; /* what was read; a check works on a copy with memory of
                        its own */
    struct schema_node *root;
    struct json_doc *doc; /* of the schema's text; NULL: it is borrowed */
};

/* Make the automata of all formats, so that a check changes nothing. Refuse
 * keywords that no check can read. */
static int need_strings(struct schema *s)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct schema_node *node = s->nodes[i];
        bool large = node->pattern && !node->pattern_dfa;
        if (node->weak && !large)
            return schema_refuse(s, node->at, NULL,
                                 "has a keyword that can neither be held nor "
                                 "checked");
        if (node->format && !schema_format_points(s, node->format))
            return -1;
        if (large && schema_pattern_matches(s, node->pattern, "", 0) < 0)
            return -1;
    }
    return 0;
}

static int validator_read(struct schema_validator *v,
                          const struct schema_options *o, struct qwick_err *e)
{
    struct grammar *g = NULL; /* for remarks, which the compiler made before */
    if (grammar_create(&g, "the schema", e))
        return -1;
    v->s.e = e;
    v->s.g = g;
    v->s.checks = true;
    v->s.where = "";
    if (o)
        v->s.form = o->form;
    int rc = schema_read_root(&v->s, &v->root) || grammar_error(g, e) ||
                     need_strings(&v->s)
                 ? -1
                 : 0;
    grammar_free(g);
    hashmap_free(&v->s.by_place);
    v->s.g = NULL;
    v->s.e = NULL;
    return rc;
}

/* Make a validator of a parsed schema, whose document it then owns; NULL: the
 * schema is borrowed. */
static int validator_create(struct schema_validator **out,
                            const struct json_value *schema,
                            struct json_doc *doc,
                            const struct schema_options *o, struct qwick_err *e)
{
    struct qwick_err err = {0};
    struct schema_validator *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) {
        json_free(doc);
        return err_oom(e, sizeof *v);
    }
    v->s.root = schema;
    size_t work = o ? schema_work(o) : MAX_WORK;
    v->s.steps_left = work;
    v->doc = doc;
    int rc = validator_read(v, o, &err);
    if (o && o->work)
        *o->work -= work - v->s.steps_left;
    if (rc) {
        schema_validator_free(v);
        return err_set(e, err.code, "%s%s", o && o->where ? o->where : "",
                       err.msg);
    }
    *out = v;
    return 0;
}

int schema_validator_create(struct schema_validator **out, const char *text,
                            size_t n, const struct schema_options *o,
                            struct qwick_err *e)
{
    struct json_doc *doc = NULL;
    *out = NULL;
    if (json_parse(&doc, "the schema", text, n, QWICK_ERR_USAGE, e))
        return -1;
    return validator_create(out, json_root(doc), doc, o, e);
}

int schema_validator_create_value(struct schema_validator **out,
                                  const struct json_value *schema,
                                  const struct schema_options *o,
                                  struct qwick_err *e)
{
    return validator_create(out, schema, NULL, o, e);
}

void schema_validator_free(struct schema_validator *v)
{
    if (!v)
        return;
    schema_free(&v->s);
    json_free(v->doc);
    free(v);
}

int schema_validator_check_value(const struct schema_validator *v,
                                 const struct json_value *doc,
                                 struct qwick_err *e)
{
    char in_schema[WHAT_BYTES], in_doc[WHAT_BYTES];
    struct schema_failure f;
    struct schema s = v->s;
    struct qwick_err err = {0};
    s.mem = (struct arena){0};
    s.used = 0;
    s.steps_left = MAX_WORK;
    s.e = &err;
    int rc = schema_satisfies(&s, v->root, doc, &f);
    arena_free(&s.mem);
    if (rc < 0 && e)
        *e = err;
    if (rc != 0)
        return rc;
    schema_pointer(s.root, f.node->at, f.keyword, in_schema);
    schema_pointer(doc, f.value, NULL, in_doc);
    err_set(e, QWICK_ERR_RUNTIME, "%s violates %s",
            in_doc[1] ? in_doc + 1 : "the document", in_schema);
    return 0;
}

int schema_validator_check(const struct schema_validator *v, const char *text,
                           size_t n, struct qwick_err *e)
{
    struct qwick_err err = {0};
    struct json_doc *doc = NULL;
    if (json_parse(&doc, "it", text, n, QWICK_ERR_RUNTIME, &err)) {
        if (e)
            *e = err;
        return err.code == QWICK_ERR_RUNTIME ? 0 : -1;
    }
    int rc = schema_validator_check_value(v, json_root(doc), e);
    json_free(doc);
    return rc;
}
